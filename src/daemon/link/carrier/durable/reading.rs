//! The reading of the stream, by the gateway that does that for its site.

use super::position::{PositionError, WrittenPosition};
use super::stream_reader::{ReadMessage, ReaderStart, StreamReader};
use super::{
    LAST_WRITE_TIMEOUT, POSITION_INTERVAL, RETRY_INTERVAL, STREAM_INFO_INTERVAL, hub_date, hub_time, single_message,
    stream,
};
use crate::clock::Clock;
use crate::daemon::link::carrier::LinkCarrier;
use crate::daemon::link::hub::received_message;
use crate::daemon::link::report::StreamTask;
use crate::link::durable::{HubPosition, ReadingStart, StartedReading, StoredArrival, StoredPosition};
use crate::message::Message;
use crate::subject::Pattern;
use crate::time::WallTime;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::RawMessage;
use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Maximum difference of the clocks of the cluster's servers. A reader that begins by time begins earlier by this.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(5);
/// Time within which a reader receives a message before the position, unless the stream has none.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// Why a reader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadingEnd {
    /// Another gateway reads the stream, the connection has ended, or the stream has new subjects or has lost its end.
    Over,
    /// A message has not come.
    Gap,
    /// The sequence of the position is that of another message.
    Reused,
}

impl LinkCarrier {
    /// Reads the stream while this gateway does that for its site.
    pub(super) async fn read(&self, context: &Context) {
        loop {
            self.durable.is_reading.set(self.may_read());
            if !self.durable.is_reading.get() {
                self.report.set_stream_fault(StreamTask::Read, None);
                self.durable.for_read.notified().await;
                continue;
            }
            let read = self.read_stream(context).await;
            self.gateway.borrow_mut().durable_mut().stop_reading();
            match read {
                Ok(()) => {
                    // Meanwhile the LAN repairs what it has lost of the last messages.
                    sleep(POSITION_INTERVAL).await;
                    if !self.may_read() {
                        self.end_reading(context).await;
                    }
                    self.durable.stored.set(None);
                }
                Err(reason) => {
                    self.durable.stored.set(None);
                    tracing::warn!(reason, "the link cannot read the stream of the cluster");
                    let fault = format!("the stream cannot be read: {reason}");
                    self.report.set_stream_fault(StreamTask::Read, Some(fault));
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Ends the reading, and stores how far it was. Another gateway continues there.
    pub(in crate::daemon::link::carrier) async fn end_reading(&self, context: &Context) {
        let position = {
            let mut gateway = self.gateway.borrow_mut();
            let durable = gateway.durable_mut();
            // The LAN of a gateway that leaves may not take the last message any more.
            durable.position().or_else(|| durable.stop_reading())
        };
        let Some((position, stored)) = position.zip(self.durable.stored.take()) else { return };
        if position != stored.position && self.is_connected.get() {
            let write = self.write_position(context, position, stored.revision);
            // If it fails, the messages since the last position are delivered again.
            drop(timeout(LAST_WRITE_TIMEOUT, write).await);
        }
    }

    /// Lets the reading begin or end, if it is time.
    pub(in crate::daemon::link::carrier) fn update_reading(&self) {
        if self.may_read() != self.durable.is_reading.get() {
            self.durable.for_read.notify_one();
        }
    }

    fn may_read(&self) -> bool {
        self.is_connected.get()
            && self.durable.info.borrow().is_some()
            && !self.durable.imports.patterns().is_empty()
            && self.gateway.borrow().durable().reads(Clock::now().instant)
    }

    /// Reads the stream behind the stored position. Returns once another gateway does that.
    async fn read_stream(&self, context: &Context) -> Result<(), String> {
        // The stream is read after its position, so the position is not behind its end unless the stream has lost it.
        let entry = self.durable.positions.read(context, self.signing.as_ref()).await?;
        let Some(info) = stream::open(context, &self.durable.settings).await.map_err(|fault| fault.to_string())? else {
            self.durable.info.replace(None);
            return Ok(());
        };
        let wanted = stream::wanted_subjects(&info, &self.durable.imports);
        if wanted.is_empty() {
            sleep(STREAM_INFO_INTERVAL).await;
            return Ok(());
        }
        self.update_wanted_subjects(wanted.clone(), &info);
        self.durable.has_lost_end.set(false);
        let is_new = entry.at.is_some_and(|at| at < info.created);
        let is_own = self.durable.written.get() == Some(entry.revision);
        let start = ReadingStart { stored: entry.position, is_own, first: info.first, last: info.last, is_new };
        let StartedReading { position, read_from, removed } =
            self.gateway.borrow_mut().durable_mut().start_reading(start);
        if 0 < removed {
            tracing::warn!(removed, "the stream has removed messages that this site has not read");
        }
        let stored = match entry.position {
            StoredPosition::At(stored) => WrittenPosition { position: stored, revision: entry.revision },
            // The position at which a site begins is stored at once, others once the LAN has had the time to repair.
            StoredPosition::None | StoredPosition::Unreadable => {
                match self.write_position(context, position, entry.revision).await {
                    Ok(written) => written,
                    Err(PositionError::Overtaken) => return Ok(()),
                    Err(PositionError::Refused(reason)) => return Err(reason),
                }
            }
        };
        if is_new || info.last.sequence < stored.position.sequence {
            tracing::warn!(%stored.position, %info.last, %position, "the stream is another one, or has lost messages");
        }
        self.durable.stored.set(Some(stored));
        let catch_up = self.durable.subjects.borrow_mut().catch_up(Clock::now().instant, position);
        let from = catch_up.as_ref().map_or(position.sequence, |catch_up| catch_up.from);
        if from < position.sequence {
            tracing::info!(from, %position, "reads the subjects that the stream has kept since then");
            self.gateway.borrow_mut().durable_mut().rewind(from);
        }
        self.durable.catch_up.replace(catch_up);
        let filter = StreamReader::filter(context, &info.subjects, &wanted);
        self.durable.read_to.set(read_from.min(from));
        let single_behind = self.durable.failures.borrow().single_behind();
        let single_behind = single_behind.filter(|behind| self.durable.read_to.get() <= *behind);
        if let Some(behind) = single_behind {
            self.durable.read_to.set(position.sequence.min(from));
            self.read_singly(context, &filter, behind).await?;
        }
        let unchecked = Some(position).filter(|position| position.at.is_some() && single_behind.is_none());
        self.read_with(context, &filter, unchecked).await
    }

    /// Reads single messages up to the first one behind a stream sequence, in place of a reader, which may fail there. The
    /// stream has the subjects of `filter`, or all if it is empty.
    async fn read_singly(&self, context: &Context, filter: &[Pattern], behind: u64) -> Result<(), String> {
        let patterns: Vec<String> = match filter {
            [] => vec![">".to_owned()],
            _ => filter.iter().map(Pattern::to_string).collect(),
        };
        while self.durable.read_to.get() <= behind && self.may_read() {
            if !self.gateway.borrow().durable().has_room() {
                drop(timeout(POSITION_INTERVAL, self.durable.for_room.notified()).await);
                continue;
            }
            let mut next: Option<RawMessage> = None;
            for pattern in &patterns {
                let read_to = self.durable.read_to.get();
                let found = single_message::next_on(context, &self.durable.settings.name, pattern, read_to).await?;
                next = next.into_iter().chain(found).min_by_key(|message| message.sequence);
            }
            let Some(next) = next else { break };
            let arrival = StoredArrival { sequence: next.sequence, at: hub_time(next.time).unwrap_or(WallTime::EPOCH) };
            let message = single_message::bus_message(next);
            if message.is_none() {
                tracing::warn!(arrival.sequence, "steps over a message of the stream that cannot be read");
            }
            self.on_read(arrival, message);
        }
        self.durable.failures.borrow_mut().on_single(self.durable.read_to.get());
        Ok(())
    }

    /// Reads on with a reader. `unchecked` is the position, unless its place in the stream is known.
    async fn read_with(
        &self,
        context: &Context,
        filter: &[Pattern],
        mut unchecked: Option<HubPosition>,
    ) -> Result<(), String> {
        let mut start = ReaderStart::Behind(self.durable.read_to.get());
        loop {
            let mut reader = StreamReader::open(context, &self.durable.settings.name, filter, start).await?;
            self.report.set_stream_fault(StreamTask::Read, None);
            let started = Clock::now().instant;
            let read = self.deliver(context, &mut reader, unchecked).await;
            if let (Ok(ReadingEnd::Reused), Some(position)) = (&read, unchecked.take())
                && let Some(date) = position.at.and_then(hub_date)
            {
                self.gateway.borrow_mut().durable_mut().accept_earlier();
                start = ReaderStart::Since(date - CLOCK_DIFFERENCE_MAX);
                continue;
            }
            if !self.is_connected.get() || matches!(read, Ok(ReadingEnd::Gap) | Err(_)) {
                let worked = Clock::now().instant.since(started);
                self.durable.failures.borrow_mut().on_failure(worked, self.durable.read_to.get());
            }
            return read.map(drop);
        }
    }

    /// Hands the messages of the stream to the gateway, and stores the position. Ends as well if the place of the position
    /// `unchecked` is another one than its sequence says: the first message shows it, or none comes.
    async fn deliver(
        &self,
        context: &Context,
        reader: &mut StreamReader,
        mut unchecked: Option<HubPosition>,
    ) -> Result<ReadingEnd, String> {
        let mut ticks = interval(POSITION_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The LAN has repaired by now what it lost of the messages that were delivered before the last tick.
        let Some(WrittenPosition { position: mut reached, .. }) = self.durable.stored.get() else {
            return Ok(ReadingEnd::Over);
        };
        // Only the end of the reading waits for the answer to a write.
        let mut write = pin!(Fuse::terminated());
        let mut check_end = pin!(sleep(CHECK_TIME));
        let reading = async {
            loop {
                let (has_room, is_delivered, position) = {
                    let gateway = self.gateway.borrow();
                    let durable = gateway.durable();
                    (durable.has_room(), durable.is_delivered(), durable.position())
                };
                let Some(position) = position else { return Ok(ReadingEnd::Over) };
                let unstored = self.durable.stored.get().filter(|stored| stored.position != reached);
                let is_idle = is_delivered && position == reached && unstored.is_none();
                tokio::select! {
                    // Messages that the reader has received come before the end of its connection.
                    biased;
                    written = &mut write => {
                        if !self.on_position_written(written) {
                            return Ok(ReadingEnd::Over);
                        }
                    }
                    _ = ticks.tick(), if !is_idle => {
                        if let Some(WrittenPosition { revision, .. }) = unstored.filter(|_| write.is_terminated()) {
                            write.set(self.write_position(context, reached, revision).fuse());
                        }
                        reached = position;
                    }
                    read = reader.read(), if has_room => {
                        let Some(ReadMessage { arrival, message }) = read? else { return Ok(ReadingEnd::Gap) };
                        if unchecked.take().is_some_and(|position| position.is_reused_by(arrival)) {
                            tracing::warn!(%position, "the stream has other messages before the position");
                            return Ok(ReadingEnd::Reused);
                        }
                        self.on_read(arrival, received_message(message));
                    }
                    () = self.durable.for_room.notified(), if !has_room => {}
                    () = self.durable.for_read.notified() => {
                        if self.is_reading_over() {
                            return Ok(ReadingEnd::Over);
                        }
                    }
                    () = &mut check_end, if unchecked.is_some() && has_room => return Ok(ReadingEnd::Reused),
                }
            }
        };
        let end = reading.await;
        if !write.is_terminated()
            && let Ok(written) = timeout(LAST_WRITE_TIMEOUT, &mut write).await
        {
            self.on_position_written(written);
        }
        end
    }

    fn is_reading_over(&self) -> bool {
        let has_new_subjects = self.durable.subjects.borrow().has_new(Clock::now().instant);
        !self.may_read() || has_new_subjects || self.durable.has_lost_end.get()
    }

    /// Handles the answer to a write of the position. Returns false if another gateway has written one.
    fn on_position_written(&self, written: Result<WrittenPosition, PositionError>) -> bool {
        let fault = match written {
            Ok(stored) => {
                self.gateway.borrow_mut().durable_mut().on_position(stored.position);
                self.durable.stored.set(Some(stored));
                None
            }
            Err(PositionError::Overtaken) => return false,
            // The next tick writes again. Until then another gateway would deliver more of it again.
            Err(PositionError::Refused(reason)) => Some(format!("the position is not stored: {reason}")),
        };
        self.report.set_stream_fault(StreamTask::Read, fault);
        true
    }

    /// Handles a message of the stream; `None` in place of one that is none of the bus.
    fn on_read(&self, arrival: StoredArrival, message: Option<Message>) {
        self.durable.read_to.set(arrival.sequence);
        let was_read = |message: &Message| {
            self.durable.catch_up.borrow().as_ref().is_some_and(|catch_up| catch_up.skips(arrival, &message.subject))
        };
        let was_read = message.as_ref().is_some_and(was_read);
        let mut gateway = self.gateway.borrow_mut();
        let durable = gateway.durable_mut();
        if was_read {
            return durable.on_refused(arrival);
        }
        match (message, &self.signing) {
            (Some(message), Some(signing)) => match signing.open_stored(arrival.at, message) {
                Some(message) => durable.on_stored(Clock::now().instant, arrival, Some(message)),
                None => durable.on_refused(arrival),
            },
            (message, _) => durable.on_stored(Clock::now().instant, arrival, message),
        }
        drop(gateway);
        self.wake();
    }

    /// Writes the position over the value with this revision.
    async fn write_position(
        &self,
        context: &Context,
        position: HubPosition,
        revision: u64,
    ) -> Result<WrittenPosition, PositionError> {
        let written = self.durable.positions.write(context, self.signing.as_ref(), position, revision).await?;
        self.durable.written.set(Some(written.revision));
        Ok(written)
    }
}
