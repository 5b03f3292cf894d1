//! The durable messages of a link: sent to the stream of the cluster, and read from it.
//!
//! One task looks after the stream, one sends and awaits the answers, one reads. The rules are those of
//! [`crate::link::durable`].

mod position;
mod read_subjects;
mod stream;
mod stream_reader;

pub(in crate::daemon::link) use self::stream::HubStreamSettings;

use self::position::{PositionError, PositionStore, StoredPosition};
use self::read_subjects::{CatchUp, ReadSubjects};
use self::stream::{HubStreamFault, StreamInfo};
use self::stream_reader::StreamReader;
use super::LinkCarrier;
use crate::clock::Clock;
use crate::daemon::link::hub::{header_map, hub_subject, received_message};
use crate::daemon::link::report::StreamTask;
use crate::link::durable::{ReadingStart, SpoolTicket, StartedReading, StoreOutcome, UNANSWERED_MAX};
use crate::link::site_name::SiteName;
use crate::message::Message;
use crate::security::batch_signature::BATCH_MESSAGES_MAX;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::time::WallTime;
use async_nats::Client;
use async_nats::datetime::DateTime;
use async_nats::jetstream::context::{Context, ContextBuilder, PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{Error as StreamError, ErrorCode};
use futures_util::future::{BoxFuture, Fuse, FusedFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Time for which an answer of the cluster is awaited.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval at which the settings of the stream are read again.
const STREAM_INFO_INTERVAL: Duration = Duration::from_secs(10);
/// The same while the stream cannot be used.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which the position is stored.
const POSITION_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of messages that wait for their answers.
const PENDING_ANSWERS_MAX: usize = 8192;
const _: () = assert!(UNANSWERED_MAX < PENDING_ANSWERS_MAX, "the client does not delay what the spool sends");
/// Maximum time for which a link that ends waits until its position is stored.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// An answer of the stream to a message.
type AwaitedAnswer = BoxFuture<'static, Answered>;

struct Answered {
    ticket: SpoolTicket,
    /// Whether the stream had the message before.
    outcome: Result<bool, PublishError>,
}

/// Arrival of a message in the stream.
struct StoredArrival {
    /// Stream sequence of the message.
    sequence: u64,
    /// Time by the clock of the cluster.
    at: WallTime,
}

impl StoredArrival {
    /// Returns the arrival of a message; `None` if the cluster does not state it.
    fn of(read: &async_nats::jetstream::Message) -> Option<StoredArrival> {
        let info = read.info().ok()?;
        Some(StoredArrival { sequence: info.stream_sequence, at: hub_time(info.published)? })
    }
}

/// Returns a time by the clock of the cluster; `None` if it is before 1970.
fn hub_time(time: DateTime) -> Option<WallTime> {
    u64::try_from(time.unix_timestamp_nanos()).ok().map(WallTime::from_nanos)
}

/// The stream of a link.
pub(in crate::daemon::link) struct DurableLink {
    settings: HubStreamSettings,
    imports: PatternSet,
    positions: PositionStore,
    info: RefCell<Option<StreamInfo>>,
    /// The position that the cluster stores, and its revision, while this gateway reads the stream.
    stored: Cell<Option<StoredPosition>>,
    /// Revision of the last position that this gateway has stored.
    written: Cell<Option<u64>>,
    /// Subjects that the site reads.
    subjects: RefCell<ReadSubjects>,
    /// Messages that the reader skips, because it has read them before.
    catch_up: RefCell<Option<CatchUp>>,
    /// Whether the stream has failed to store the last message.
    is_stalled: Cell<bool>,
    /// Wakes the task that looks after the stream.
    for_stream: Notify,
    /// Wakes the task that sends.
    pub(super) for_store: Notify,
    /// Wakes the task that reads.
    pub(super) for_read: Notify,
}

impl DurableLink {
    /// Creates the durable part of a link of `site`, which imports these subjects.
    pub(in crate::daemon::link) fn new(
        settings: HubStreamSettings,
        site: &SiteName,
        imports: PatternSet,
    ) -> DurableLink {
        let positions = PositionStore::new(&settings.name, site, settings.copies);
        DurableLink {
            settings,
            imports,
            positions,
            info: RefCell::new(None),
            stored: Cell::new(None),
            written: Cell::new(None),
            subjects: RefCell::default(),
            catch_up: RefCell::default(),
            is_stalled: Cell::new(false),
            for_stream: Notify::new(),
            for_store: Notify::new(),
            for_read: Notify::new(),
        }
    }

    /// Returns the requests of the link to the stream.
    pub(super) fn context(client: &Client) -> Context {
        ContextBuilder::new().timeout(ANSWER_TIMEOUT).max_ack_inflight(PENDING_ANSWERS_MAX).build(client.clone())
    }
}

impl LinkCarrier {
    /// Carries durable messages until the link ends.
    pub(super) async fn carry_durable(&self, context: &Context) {
        tokio::join!(self.watch_stream(context), self.store(context), self.read(context));
    }

    /// Stores the position of a gateway that leaves.
    pub(super) async fn end_durable(&self, context: &Context) {
        let position = self.gateway.borrow().durable().position();
        if let Some((position, stored)) = position.zip(self.durable.stored.get()) {
            let write = self.durable.positions.write(context, self.signing.as_ref(), position, stored.revision);
            drop(timeout(LAST_WRITE_TIMEOUT, write).await);
        }
    }

    /// Opens the stream, and looks at its settings now and then.
    async fn watch_stream(&self, context: &Context) {
        let DurableLink { settings, for_stream, info, .. } = &self.durable;
        loop {
            if !self.is_connected.get() {
                for_stream.notified().await;
                continue;
            }
            let (fault, pause);
            match stream::open(context, settings).await {
                Ok(found) => {
                    let subjects = found.iter().flat_map(|info| info.subjects.iter().cloned()).collect();
                    self.gateway.borrow_mut().durable_mut().set_stream_subjects(subjects);
                    fault = found.as_ref().and_then(|info| info.fault.clone());
                    if let Some(info) = &found {
                        self.update_wanted_subjects(stream::wanted_subjects(info, &self.durable.imports), info);
                    }
                    pause = if found.is_some() { STREAM_INFO_INTERVAL } else { RETRY_INTERVAL };
                    info.replace(found);
                }
                Err(found) => {
                    // A cluster that does not answer has the stream all the same.
                    if !matches!(found, HubStreamFault::Refused(_)) {
                        info.replace(None);
                    }
                    (fault, pause) = (Some(found), RETRY_INTERVAL);
                }
            }
            self.report.set_stream_open(info.borrow().is_some());
            self.report.set_stream_fault(StreamTask::Open, fault.as_ref().map(HubStreamFault::to_string));
            self.durable.for_store.notify_one();
            self.durable.for_read.notify_one();
            drop(timeout(pause, for_stream.notified()).await);
        }
    }

    /// Notes which subjects of the stream the site reads.
    fn update_wanted_subjects(&self, wanted: Vec<Pattern>, info: &StreamInfo) {
        self.durable.subjects.borrow_mut().on_stream_info(Clock::now().instant, wanted, info.last);
    }

    /// Tells the durable part of a change of the connection.
    pub(super) fn on_connection(&self) {
        self.durable.for_stream.notify_one();
    }

    /// Sends what waits for the stream, and handles the answers. A stream that does not store gets one message now and
    /// then until it does.
    async fn store(&self, context: &Context) {
        let mut answers: FuturesUnordered<AwaitedAnswer> = FuturesUnordered::new();
        loop {
            if !self.durable.is_stalled.get() {
                while self.send_to_stream(context, &answers).await {}
            } else if answers.is_empty() {
                sleep(RETRY_INTERVAL).await;
                if !self.send_to_stream(context, &answers).await && !self.gateway.borrow().durable().has_spooled() {
                    // Another gateway has stored them.
                    self.end_stall();
                }
            }
            if answers.is_empty() {
                self.durable.for_store.notified().await;
                continue;
            }
            tokio::select! {
                Some(answered) = answers.next() => {
                    self.on_answer(answered);
                    while let Some(Some(answered)) = answers.next().now_or_never() {
                        self.on_answer(answered);
                    }
                }
                () = self.durable.for_store.notified() => {}
            }
        }
    }

    /// Sends the next messages that wait, those of one batch in a realm. Returns whether there were any.
    async fn send_to_stream(&self, context: &Context, answers: &FuturesUnordered<AwaitedAnswer>) -> bool {
        let messages = self.next_to_store();
        let is_any = !messages.is_empty();
        for (ticket, message) in messages {
            let subject = hub_subject(&message.subject);
            let publish = PublishMessage::build()
                .headers(header_map(&message.headers))
                .payload(message.payload)
                .expected_stream(&self.durable.settings.name);
            match context.send_publish(subject, publish).await {
                Ok(answer) => answers.push(answered(ticket, answer).boxed()),
                Err(error) => self.on_answer(Answered { ticket, outcome: Err(error) }),
            }
        }
        is_any
    }

    /// Returns the next messages for the stream: one, or in a realm those that one signature covers.
    fn next_to_store(&self) -> Vec<(SpoolTicket, Message)> {
        if !self.is_connected.get() || self.durable.info.borrow().is_none() {
            return Vec::new();
        }
        let (now, mut gateway) = (Clock::now().instant, self.gateway.borrow_mut());
        let mut next = || gateway.durable_mut().poll_store(now);
        let Some(signing) = &self.signing else { return next().into_iter().collect() };
        let count_max = if self.durable.is_stalled.get() { 1 } else { BATCH_MESSAGES_MAX };
        let (tickets, messages): (Vec<_>, Vec<_>) = std::iter::from_fn(next).take(count_max).unzip();
        let mut signed = Vec::new();
        for (ticket, message) in tickets.into_iter().zip(signing.sign(messages)) {
            match message {
                Some(message) => signed.push((ticket, message)),
                None => gateway.durable_mut().on_outcome(now, ticket, StoreOutcome::Refused),
            }
        }
        signed
    }

    fn on_answer(&self, answered: Answered) {
        let Answered { ticket, outcome } = answered;
        let outcome = match outcome {
            Ok(is_duplicate) => {
                self.end_stall();
                // Only signatures make an old copy differ from a new one.
                if is_duplicate && self.signing.is_some() { StoreOutcome::Duplicate } else { StoreOutcome::Stored }
            }
            Err(error) if is_too_large(&error) => {
                tracing::debug!(%error, "the stream never takes a message");
                StoreOutcome::Refused
            }
            Err(error) => {
                self.on_stall(&error);
                StoreOutcome::Failed
            }
        };
        self.gateway.borrow_mut().durable_mut().on_outcome(Clock::now().instant, ticket, outcome);
        self.wake_timer();
    }

    fn end_stall(&self) {
        if self.durable.is_stalled.replace(false) {
            self.report.set_stream_fault(StreamTask::Store, None);
        }
    }

    /// Notes that the stream has not stored a message.
    fn on_stall(&self, error: &PublishError) {
        tracing::debug!(%error, "the stream has not stored a message");
        if self.is_connected.get() {
            self.report
                .set_stream_fault(StreamTask::Store, Some(format!("the stream stores nothing: {}", reason(error))));
            if !self.durable.is_stalled.replace(true) {
                self.durable.for_stream.notify_one();
            }
        }
    }

    /// Reads the stream while this gateway does that for its site.
    async fn read(&self, context: &Context) {
        loop {
            if !self.may_read() {
                self.report.set_stream_fault(StreamTask::Read, None);
                drop(timeout(POSITION_INTERVAL, self.durable.for_read.notified()).await);
                continue;
            }
            let read = self.read_stream(context).await;
            self.durable.stored.set(None);
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

    fn may_read(&self) -> bool {
        self.is_connected.get()
            && self.durable.info.borrow().is_some()
            && !self.durable.imports.patterns().is_empty()
            && self.gateway.borrow().durable().reads(Clock::now().instant)
    }

    /// Reads the stream behind the stored position. Returns once another gateway does that.
    async fn read_stream(&self, context: &Context) -> Result<(), String> {
        // The stream is read after its position, so the position is not behind its end unless the stream has lost it.
        let mut stored = self.durable.positions.read(context, self.signing.as_ref()).await?;
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
        let start = ReadingStart {
            stored: stored.position.or((stored.revision != 0).then_some(0)),
            is_own: stored.position.is_some() && self.durable.written.get() == Some(stored.revision),
            first: info.first,
            last: info.last,
            is_new: stored.at.is_some_and(|at| at < info.created),
        };
        let StartedReading { position, read_from, removed } =
            self.gateway.borrow_mut().durable_mut().start_reading(start);
        if 0 < removed {
            tracing::warn!(removed, "the stream has removed messages that this site has not read");
        }
        if start.is_new || stored.position.is_some_and(|stored| info.last < stored) {
            tracing::warn!(stored.position, info.last, position, "the stream is another one, or has lost messages");
        }
        // The position at which a site begins is stored at once, others once the LAN has had the time to repair.
        if stored.position.is_none() {
            match self.write_position(context, position, stored.revision).await {
                Ok(written) => stored = written,
                Err(PositionError::Overtaken) => return Ok(()),
                Err(PositionError::Refused(reason)) => return Err(reason),
            }
        }
        self.durable.stored.set(Some(stored));
        let catch_up = self.durable.subjects.borrow_mut().catch_up(Clock::now().instant, position);
        let from = catch_up.as_ref().map_or(position, |catch_up| catch_up.from);
        if from < position {
            tracing::info!(from, position, "reads the subjects that the stream has kept since then");
            self.gateway.borrow_mut().durable_mut().rewind(from);
        }
        self.durable.catch_up.replace(catch_up);
        let read_from = read_from.min(from);
        let name = &self.durable.settings.name;
        let mut reader = StreamReader::open(context, name, &info.subjects, &wanted, read_from).await?;
        self.report.set_stream_fault(StreamTask::Read, None);
        self.deliver(context, &mut reader, stored.position.unwrap_or(position)).await
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
            let has_room = self.gateway.borrow().durable().has_room();
            tokio::select! {
                read = reader.read(), if has_room => match read? {
                    Some(message) => self.on_read(message),
                    None => return Ok(()),
                },
                written = &mut write => {
                    if !self.on_position_written(written) {
                        return Ok(());
                    }
                }
                _ = ticks.tick() => {
                    if !self.may_read() || self.durable.subjects.borrow().has_new(Clock::now().instant) {
                        return Ok(());
                    }
                    let Some(position) = self.gateway.borrow().durable().position() else { return Ok(()) };
                    let stored = self.durable.stored.get().filter(|stored| stored.position != Some(reached));
                    if let Some(StoredPosition { revision, .. }) = stored.filter(|_| write.is_terminated()) {
                        write.set(self.write_position(context, reached, revision).fuse());
                    }
                    reached = position;
                }
                () = self.durable.for_read.notified(), if !has_room => {}
            }
        }
    }

    /// Handles the answer to a write of the position. Returns false if another gateway has written one.
    fn on_position_written(&self, written: Result<StoredPosition, PositionError>) -> bool {
        let fault = match written {
            Ok(stored) => {
                self.gateway.borrow_mut().durable_mut().on_position(stored.position.unwrap_or(0));
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

    fn on_read(&self, read: async_nats::jetstream::Message) {
        let Some(StoredArrival { sequence, at }) = StoredArrival::of(&read) else { return };
        let message = received_message(read.message);
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

    /// Writes the position over the value with this revision. Returns what is stored then.
    async fn write_position(
        &self,
        context: &Context,
        position: u64,
        revision: u64,
    ) -> Result<StoredPosition, PositionError> {
        let revision = self.durable.positions.write(context, self.signing.as_ref(), position, revision).await?;
        self.durable.written.set(Some(revision));
        Ok(StoredPosition { position: Some(position), revision, at: None })
    }
}

async fn answered(ticket: SpoolTicket, answer: PublishAckFuture) -> Answered {
    let outcome = answer.await.map(|stored| stored.duplicate);
    Answered { ticket, outcome }
}

/// Returns whether the stream never takes the message.
fn is_too_large(error: &PublishError) -> bool {
    let code = error.source().and_then(|source| source.downcast_ref::<StreamError>()).map(StreamError::error_code);
    error.kind() == PublishErrorKind::MaxPayloadExceeded || code == Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM)
}

fn reason(error: &PublishError) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
