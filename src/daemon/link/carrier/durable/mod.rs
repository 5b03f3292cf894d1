//! The durable messages of a link: sent to the stream of the cluster, and read from it.
//!
//! One task looks after the stream, one sends (`stream_sender.rs`), one reads (`reading.rs`). The rules are those of
//! [`crate::link::durable`].

mod position;
mod read_subjects;
mod reading;
mod reading_failures;
mod single_message;
mod stream;
mod stream_reader;
mod stream_sender;

pub(in crate::daemon::link) use self::stream::HubStreamSettings;

use self::position::{PositionStore, WrittenPosition};
use self::read_subjects::{CatchUp, ReadSubjects};
use self::reading_failures::ReadingFailures;
use self::stream::{HubStreamFault, StreamInfo};
use self::stream_sender::{StoreAck, StoreAnswer, StoreFailure, StreamSender};
use super::LinkCarrier;
use crate::clock::Clock;
use crate::daemon::link::report::StreamTask;
use crate::link::durable::{SpoolTicket, StoreOutcome};
use crate::link::site_name::SiteName;
use crate::message::Message;
use crate::security::batch_signature::BATCH_MESSAGES_MAX;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::time::WallTime;
use async_nats::Client;
use async_nats::datetime::DateTime;
use async_nats::jetstream::context::{Context, ContextBuilder};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Time for which an answer of the cluster is awaited.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval at which the settings of the stream are read again.
const STREAM_INFO_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two looks at the stream.
const STREAM_INFO_PAUSE: Duration = Duration::from_millis(200);
/// Interval of the looks while the stream cannot be used.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which the position is stored.
const POSITION_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum time for which a reading that ends waits until its position is stored.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns a time by the clock of the cluster; `None` if it is before 1970.
fn hub_time(time: DateTime) -> Option<WallTime> {
    u64::try_from(time.unix_timestamp_nanos()).ok().map(WallTime::from_nanos)
}

/// Returns a time as the client of the cluster writes it, if it can.
fn hub_date(time: WallTime) -> Option<DateTime> {
    async_nats::datetime::from_nanos(i128::from(time.as_nanos())).ok()
}

/// The stream of a link.
pub(in crate::daemon::link) struct DurableLink {
    settings: HubStreamSettings,
    imports: PatternSet,
    positions: PositionStore,
    info: RefCell<Option<StreamInfo>>,
    /// The position that the cluster stores, while this gateway reads the stream and until it has stored its last one.
    stored: Cell<Option<WrittenPosition>>,
    /// Revision of the last position that this gateway has stored.
    written: Cell<Option<u64>>,
    /// Stream sequence of the last message that was read.
    read_to: Cell<u64>,
    /// Whether the stream has lost messages that were read: it gives their sequences again.
    has_lost_end: Cell<bool>,
    failures: RefCell<ReadingFailures>,
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
    /// Whether this gateway reads, or attempts to.
    is_reading: Cell<bool>,
    /// Wakes the task that reads: it begins, ends, or looks at the stream again.
    for_read: Notify,
    /// Wakes that task when there may be room for further messages.
    pub(super) for_room: Notify,
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
            read_to: Cell::new(0),
            has_lost_end: Cell::new(false),
            failures: RefCell::default(),
            subjects: RefCell::default(),
            catch_up: RefCell::default(),
            is_stalled: Cell::new(false),
            for_stream: Notify::new(),
            for_store: Notify::new(),
            is_reading: Cell::new(false),
            for_read: Notify::new(),
            for_room: Notify::new(),
        }
    }

    /// Returns the requests of the link to the stream.
    pub(super) fn context(client: &Client) -> Context {
        ContextBuilder::new().timeout(ANSWER_TIMEOUT).build(client.clone())
    }
}

impl LinkCarrier {
    /// Carries durable messages until the link ends.
    pub(super) async fn carry_durable(&self, context: &Context) {
        tokio::join!(self.watch_stream(context), self.store(context), self.read(context));
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
            let read_to = self.durable.read_to.get();
            match stream::open(context, settings).await {
                Ok(found) => {
                    let subjects = found.iter().flat_map(|info| info.subjects.iter().cloned()).collect();
                    self.gateway.borrow_mut().set_stored_subjects(Clock::now().instant, subjects);
                    self.check_subscriptions();
                    fault = found.as_ref().and_then(|info| info.fault.clone());
                    if let Some(info) = &found {
                        let (now, mut gateway) = (Clock::now().instant, self.gateway.borrow_mut());
                        gateway.durable_mut().on_stream_state(now, info.first, info.last.sequence);
                        // Other copies than the one that is read may have fewer messages, and do not lose any.
                        let before = self.durable.info.borrow().as_ref().map_or(0, |before| before.last.sequence);
                        self.durable.has_lost_end.set(info.last.sequence < read_to.min(before));
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
            sleep(STREAM_INFO_PAUSE).await;
            drop(timeout(pause, for_stream.notified()).await);
        }
    }

    /// Lets the settings and the state of the stream be read soon.
    pub(super) fn look_at_stream(&self) {
        self.durable.for_stream.notify_one();
    }

    /// Wakes the task that sends, if something waits for the stream.
    pub(super) fn wake_store(&self) {
        if self.gateway.borrow().durable().has_spooled() {
            self.durable.for_store.notify_one();
        }
    }

    /// Notes which subjects of the stream the site reads.
    fn update_wanted_subjects(&self, wanted: Vec<Pattern>, info: &StreamInfo) {
        self.durable.subjects.borrow_mut().on_stream_info(Clock::now().instant, wanted, info.last.sequence);
    }

    /// Tells the durable part of a change of the connection.
    pub(super) fn on_connection(&self) {
        self.durable.for_stream.notify_one();
        self.durable.for_read.notify_one();
    }

    /// Sends what waits for the stream, and handles the answers. A stream that does not store gets one message now and
    /// then until it does.
    async fn store(&self, context: &Context) {
        // This fails only if the client has ended. Then the link ends as well.
        let Ok(mut sender) = StreamSender::new(context.client(), &self.durable.settings.name).await else { return };
        loop {
            if !self.durable.is_stalled.get() {
                while self.send_to_stream(&mut sender).await {}
            } else if sender.is_idle() {
                sleep(RETRY_INTERVAL).await;
                if !self.send_to_stream(&mut sender).await && !self.gateway.borrow().durable().has_spooled() {
                    // Another gateway has stored them.
                    self.end_stall();
                }
            }
            tokio::select! {
                answer = sender.answer() => {
                    self.on_answer(answer);
                    while let Some(answer) = sender.next_answer() {
                        self.on_answer(answer);
                    }
                }
                () = self.durable.for_store.notified() => {}
            }
        }
    }

    /// Sends the next messages that wait, those of one batch in a realm. Returns whether there were any.
    async fn send_to_stream(&self, sender: &mut StreamSender) -> bool {
        let messages = self.next_to_store();
        let is_any = !messages.is_empty();
        for (ticket, message) in messages {
            if let Err(answer) = sender.send(ticket, message).await {
                self.on_answer(answer);
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

    fn on_answer(&self, answer: StoreAnswer) {
        let StoreAnswer { ticket, outcome } = answer;
        let outcome = match outcome {
            Ok(StoreAck { sequence, is_duplicate }) => {
                self.end_stall();
                // Only signatures make an old copy differ from a new one.
                match is_duplicate && self.signing.is_some() {
                    true => StoreOutcome::Duplicate { sequence },
                    false => StoreOutcome::Stored { sequence },
                }
            }
            Err(StoreFailure::TooLarge(reason)) => {
                tracing::debug!(reason, "the stream never takes a message");
                StoreOutcome::Refused
            }
            Err(StoreFailure::NotStored(reason)) => {
                self.on_stall(&reason);
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
    fn on_stall(&self, reason: &str) {
        tracing::debug!(reason, "the stream has not stored a message");
        if self.is_connected.get() {
            self.report.set_stream_fault(StreamTask::Store, Some(format!("the stream stores nothing: {reason}")));
            if !self.durable.is_stalled.replace(true) {
                self.durable.for_stream.notify_one();
            }
        }
    }
}
