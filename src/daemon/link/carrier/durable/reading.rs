//! The reading of the stream, by the gateway that does that for its site.

use super::position::{PositionError, WrittenPosition};
use super::stream_reader::StreamReader;
use super::{POSITION_INTERVAL, RETRY_INTERVAL, STREAM_INFO_INTERVAL, StoredArrival, hub_time, single_message, stream};
use crate::clock::Clock;
use crate::daemon::link::carrier::LinkCarrier;
use crate::daemon::link::hub::received_message;
use crate::daemon::link::report::StreamTask;
use crate::link::durable::{ReadingStart, StartedReading, StoredPosition};
use crate::message::Message;
use crate::subject::Pattern;
use crate::time::WallTime;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::RawMessage;
use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture};
use std::pin::pin;
use tokio::time::{MissedTickBehavior, interval, sleep};

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
            let has_read = self.durable.stored.take().is_some();
            if has_read && (read.is_err() || !self.is_connected.get()) {
                let mut blocked = self.durable.blocked.get();
                blocked.on_failure(self.durable.read_to.get());
                self.durable.blocked.set(blocked);
            }
            self.gateway.borrow_mut().durable_mut().stop_reading();
            match read {
                Ok(()) => sleep(POSITION_INTERVAL).await,
                Err(reason) => {
                    tracing::warn!(reason, "the link cannot read the stream of the cluster");
                    let fault = format!("the stream cannot be read: {reason}");
                    self.report.set_stream_fault(StreamTask::Read, Some(fault));
                    sleep(RETRY_INTERVAL).await;
                }
            }
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
        let is_new = entry.at.is_some_and(|at| at < info.created);
        let is_own = self.durable.written.get() == Some(entry.revision);
        let start = ReadingStart { stored: entry.position, is_own, first: info.first, last: info.last, is_new };
        let StartedReading { position, read_from, removed } =
            self.gateway.borrow_mut().durable_mut().start_reading(start);
        if 0 < removed {
            tracing::warn!(removed, "the stream has removed messages that this site has not read");
        }
        let stored = match entry.position {
            StoredPosition::Sequence(stored) => WrittenPosition { position: stored, revision: entry.revision },
            // The position at which a site begins is stored at once, others once the LAN has had the time to repair.
            StoredPosition::None | StoredPosition::Unreadable => {
                match self.write_position(context, position, entry.revision).await {
                    Ok(written) => written,
                    Err(PositionError::Overtaken) => return Ok(()),
                    Err(PositionError::Refused(reason)) => return Err(reason),
                }
            }
        };
        if is_new || info.last < stored.position {
            tracing::warn!(stored.position, info.last, position, "the stream is another one, or has lost messages");
        }
        self.durable.stored.set(Some(stored));
        let catch_up = self.durable.subjects.borrow_mut().catch_up(Clock::now().instant, position);
        let from = catch_up.as_ref().map_or(position, |catch_up| catch_up.from);
        if from < position {
            tracing::info!(from, position, "reads the subjects that the stream has kept since then");
            self.gateway.borrow_mut().durable_mut().rewind(from);
        }
        self.durable.catch_up.replace(catch_up);
        self.durable.read_to.set(read_from.min(from));
        let filter = StreamReader::filter(context, &info.subjects, &wanted);
        if let Some(blocked_behind) = self.durable.blocked.get().blocked_behind() {
            self.read_singly(context, &filter, blocked_behind).await?;
        }
        let name = &self.durable.settings.name;
        let mut reader = StreamReader::open(context, name, &filter, self.durable.read_to.get()).await?;
        self.report.set_stream_fault(StreamTask::Read, None);
        self.deliver(context, &mut reader, stored.position).await
    }

    /// Reads single messages up to the first one behind `blocked_behind`, which may be one that ends the connection of a
    /// reader. The stream has the subjects of `filter`, or all if it is empty.
    async fn read_singly(&self, context: &Context, filter: &[Pattern], blocked_behind: u64) -> Result<(), String> {
        let everything = [">".to_owned()];
        let patterns: Vec<String> = filter.iter().map(Pattern::to_string).collect();
        let patterns = if patterns.is_empty() { &everything[..] } else { &patterns };
        while self.durable.read_to.get() <= blocked_behind && self.may_read() {
            if !self.gateway.borrow().durable().has_room() {
                self.durable.for_room.notified().await;
                continue;
            }
            let mut next: Option<RawMessage> = None;
            for pattern in patterns {
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
            self.on_read(&arrival, message);
        }
        Ok(())
    }

    /// Hands the messages of the stream to the gateway, and stores the position, which is `stored` at first.
    async fn deliver(&self, context: &Context, reader: &mut StreamReader, stored: u64) -> Result<(), String> {
        let mut ticks = interval(POSITION_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The LAN has repaired by now what it lost of the messages that were delivered before the last tick.
        let mut reached = stored;
        // Nothing waits for the answer to a write.
        let mut write = pin!(Fuse::terminated());
        loop {
            let (has_room, position) = {
                let gateway = self.gateway.borrow();
                (gateway.durable().has_room(), gateway.durable().position())
            };
            let Some(position) = position else { return Ok(()) };
            let unstored = self.durable.stored.get().filter(|stored| stored.position != reached);
            let is_idle = self.durable.read_to.get() <= position && position == reached && unstored.is_none();
            tokio::select! {
                read = reader.read(), if has_room => match read? {
                    Some(message) => {
                        let Some(arrival) = StoredArrival::of(&message) else { continue };
                        self.on_read(&arrival, received_message(message.message));
                    }
                    None => return Ok(()),
                },
                written = &mut write => {
                    if !self.on_position_written(written) {
                        return Ok(());
                    }
                }
                _ = ticks.tick(), if !is_idle => {
                    if let Some(WrittenPosition { revision, .. }) = unstored.filter(|_| write.is_terminated()) {
                        write.set(self.write_position(context, reached, revision).fuse());
                    }
                    reached = position;
                }
                () = self.durable.for_read.notified() => {
                    if !self.may_read() || self.durable.subjects.borrow().has_new(Clock::now().instant) {
                        return Ok(());
                    }
                }
                () = self.durable.for_room.notified(), if !has_room => {}
            }
        }
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
    fn on_read(&self, arrival: &StoredArrival, message: Option<Message>) {
        let StoredArrival { sequence, at } = *arrival;
        self.durable.read_to.set(sequence);
        let was_read = |message: &Message| {
            self.durable.catch_up.borrow().as_ref().is_some_and(|catch_up| catch_up.skips(sequence, &message.subject))
        };
        let was_read = message.as_ref().is_some_and(was_read);
        let mut gateway = self.gateway.borrow_mut();
        let durable = gateway.durable_mut();
        if was_read {
            return durable.on_refused(sequence);
        }
        match (message, &self.signing) {
            (Some(message), Some(signing)) => match signing.open_stored(at, message) {
                Some(message) => durable.on_stored(Clock::now().instant, sequence, Some(message)),
                None => durable.on_refused(sequence),
            },
            (message, _) => durable.on_stored(Clock::now().instant, sequence, message),
        }
        drop(gateway);
        self.wake();
    }

    /// Writes the position over the value with this revision.
    async fn write_position(
        &self,
        context: &Context,
        position: u64,
        revision: u64,
    ) -> Result<WrittenPosition, PositionError> {
        let written = self.durable.positions.write(context, self.signing.as_ref(), position, revision).await?;
        self.durable.written.set(Some(written.revision));
        Ok(written)
    }
}
