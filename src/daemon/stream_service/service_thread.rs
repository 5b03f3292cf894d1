//! The thread that serves streams. Inputs that arrive during a turn are processed, stored and answered together in
//! the next one.

use super::input::{AnswerCallback, ClientCallback, ClientMessage, StreamInput};
use super::input_queue::{InputChannel, InputReceiver, InputSender};
use crate::clock::Clock;
use crate::event::model::{Event, EventId, Registration, ServerId};
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::MissedRange;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::stream_service::{
    CallOrigin, ConnectionId, Settings, StreamEffect, StreamNotice, StreamService,
};
use crate::listener::stream::{StreamRefusal, StreamRefusalKind};
use crate::storage::streams::error::{StreamFault, StreamStorageError};
use crate::storage::streams::store::BatchStore;
use std::collections::BTreeMap;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Maximum number of inputs per turn.
const INPUTS_PER_TURN: usize = 4096;
/// Maximum number of stored events that a stream takes in one step of its store.
const STORED_PAGE: usize = 1024;
/// Pause before a failed read is retried.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// The journal of the peer, as the stream service sees it. Results arrive as inputs.
pub trait JournalAccess: Send {
    /// Registers events as a session: [`StreamInput::Registered`] follows.
    fn register(&mut self, number: u64, registrations: Vec<Registration>);

    /// Finds the events of a server behind `after`: [`StreamInput::Found`] follows.
    fn find(&mut self, stream: usize, after: EventId);

    /// Notifies programs that a consumer has lapsed.
    fn report_lapse(&mut self, stream: StreamName, consumer: Consumer, missed: MissedRange);
}

/// Handle of the thread. Dropping it stops the thread after all earlier inputs.
#[derive(Debug)]
pub struct StreamServiceHandle {
    inputs: InputSender,
    thread: Option<JoinHandle<()>>,
}

impl StreamServiceHandle {
    /// Starts to serve the streams of the settings. `server` registers their events. `last_events` contains the last
    /// event in the journal for each server.
    ///
    /// # Errors
    /// The store cannot be read, or the system cannot create the thread.
    pub fn start(
        mut store: Box<dyn BatchStore>,
        settings: Settings,
        server: ServerId,
        last_events: &[EventId],
        events: Box<dyn JournalAccess>,
        channel: InputChannel,
    ) -> Result<StreamServiceHandle, StreamStorageError> {
        let stream_service = StreamService::new(&mut *store, settings, server, last_events)?;
        let location = store.location();
        let service_loop = StreamServiceLoop {
            stream_service,
            store,
            events,
            inputs: channel.receiver,
            stored: BTreeMap::new(),
            clients: BTreeMap::new(),
            pending_answers: BTreeMap::new(),
            next_number: 0,
        };
        let failed = |error: io::Error| StreamStorageError { location, fault: StreamFault::Other(error.to_string()) };
        let thread = thread::Builder::new().name("streams".into()).spawn(move || service_loop.run()).map_err(failed)?;
        Ok(StreamServiceHandle { inputs: channel.sender, thread: Some(thread) })
    }
}

impl Drop for StreamServiceHandle {
    fn drop(&mut self) {
        // A thread that panicked has already reported the fault.
        drop(self.inputs.push(StreamInput::Stop));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The state of the thread.
struct StreamServiceLoop {
    stream_service: StreamService,
    store: Box<dyn BatchStore>,
    events: Box<dyn JournalAccess>,
    inputs: InputReceiver,
    /// Events that the journal has stored in this turn, by server.
    stored: BTreeMap<ServerId, Vec<Event>>,
    clients: BTreeMap<ConnectionId, ClientCallback>,
    /// Callbacks of pending requests, by request number.
    pending_answers: BTreeMap<u64, AnswerCallback>,
    /// Number of the next request.
    next_number: u64,
}

impl StreamServiceLoop {
    fn run(mut self) {
        loop {
            let wait = self.stream_service.deadline().since(Clock::now().instant);
            let mut next = self.inputs.pop_wait(wait);
            self.store.begin();
            let mut keeps_running = true;
            let mut processed = 0;
            while let Some(input) = next {
                keeps_running &= self.process(input);
                processed += 1;
                next = if processed < INPUTS_PER_TURN { self.inputs.pop() } else { None };
            }
            self.feed_stored_events();
            self.stream_service.run(&mut *self.store, Clock::now());
            if let Err(error) = self.store.commit() {
                tracing::warn!(%error, "streams could not be stored");
                keeps_running &= self.roll_back(error);
            }
            self.flush_effects();
            if !keeps_running {
                return;
            }
        }
    }

    /// Returns to the stored state, once it can be read again. Until then calls are answered with the fault, and
    /// events wait in the journal. Returns false if the thread must stop.
    fn roll_back(&mut self, error: StreamStorageError) -> bool {
        let mut reason = error.to_string();
        let mut is_unreadable = false;
        while let Err(again) = self.stream_service.roll_back(&mut *self.store, &reason) {
            reason = again.to_string();
            if !is_unreadable {
                is_unreadable = true;
                tracing::error!(error = %again, "streams cannot be read; the peer retries until they can");
            }
            self.flush_failed_effects(&reason);
            let until = Clock::now().instant + RETRY_TIME;
            loop {
                let Some(input) = self.inputs.pop_wait(until.since(Clock::now().instant)) else { break };
                if !self.refuse(input, &reason) {
                    return false;
                }
            }
        }
        if is_unreadable {
            tracing::info!("streams can be read again");
        }
        true
    }

    /// Passes the stored events of this turn to the streams, in pages, since each call costs steps of the store.
    fn feed_stored_events(&mut self) {
        let now = Clock::now().instant;
        for events in std::mem::take(&mut self.stored).into_values() {
            for page in events.chunks(STORED_PAGE) {
                self.stream_service.on_stored(&mut *self.store, now, page);
            }
        }
    }

    /// Handles an input without the store. Returns false if the thread must stop.
    fn refuse(&mut self, input: StreamInput, reason: &str) -> bool {
        match input {
            StreamInput::Called { conn, call, .. } => {
                if let Some(client) = self.clients.get(&conn) {
                    client(ClientMessage::CallResult(call, Err(CallFault::new(FaultName::InternalError, reason))));
                }
                true
            }
            StreamInput::Requested(_, callback) => {
                callback(Err(StreamRefusal::new(StreamRefusalKind::Unavailable, reason)));
                true
            }
            StreamInput::Stored(events) => {
                events.first().into_iter().for_each(|event| self.stream_service.on_events_added(event.id.server));
                true
            }
            // A later query finds the events again.
            StreamInput::Found { stream, after, .. } => self.process(StreamInput::Found { stream, after, found: None }),
            StreamInput::Opened(..)
            | StreamInput::Answered { .. }
            | StreamInput::Closed(_)
            | StreamInput::Registered { .. }
            | StreamInput::Fetched(_)
            | StreamInput::JournalGrown(_)
            | StreamInput::Stop => self.process(input),
        }
    }

    /// Flushes the pending effects; those that depend on the failed store become errors.
    fn flush_failed_effects(&mut self, reason: &str) {
        self.flush_effects_with(|effect| match effect {
            StreamEffect::CallCompleted { conn, call, result: Ok(_) } => Some(StreamEffect::CallCompleted {
                conn,
                call,
                result: Err(CallFault::new(FaultName::InternalError, reason)),
            }),
            StreamEffect::Answered { number, answer: Ok(_) } => {
                let refusal = StreamRefusal::new(StreamRefusalKind::Unavailable, reason);
                Some(StreamEffect::Answered { number, answer: Err(refusal) })
            }
            // A consumer whose group is not sent registers again.
            StreamEffect::Group { .. } => None,
            effect => Some(effect),
        });
    }

    /// Handles an input. Returns false if the thread must stop.
    fn process(&mut self, input: StreamInput) -> bool {
        let now = Clock::now();
        match input {
            StreamInput::Opened(conn, callback) => drop(self.clients.insert(conn, callback)),
            StreamInput::Called { conn, call, stream, user, what } => {
                self.stream_service.on_call(&mut *self.store, now, CallOrigin { conn, call }, stream, user, what);
            }
            StreamInput::Answered { conn, push, seq, is_accepted } => {
                self.stream_service.on_answer(now.instant, conn, push, seq, is_accepted);
            }
            StreamInput::Closed(conn) => {
                self.stream_service.on_close(conn);
                self.clients.remove(&conn);
            }
            StreamInput::Requested(request, callback) => {
                let number = self.next_number;
                self.next_number += 1;
                self.pending_answers.insert(number, callback);
                self.stream_service.on_request(&mut *self.store, now, number, request);
            }
            StreamInput::Registered { number, registered } => self.stream_service.on_registered(number, registered),
            StreamInput::Fetched(events) => self.stream_service.on_fetched(&events),
            StreamInput::Stored(events) => {
                if let Some(event) = events.first() {
                    self.stored.entry(event.id.server).or_default().extend(events);
                }
            }
            StreamInput::JournalGrown(server) => self.stream_service.on_events_added(server),
            StreamInput::Found { stream, after, found } => {
                self.stream_service.on_found(&mut *self.store, now.instant, stream, after, found);
            }
            StreamInput::Stop => return false,
        }
        true
    }

    fn flush_effects(&mut self) {
        self.flush_effects_with(Some);
    }

    fn flush_effects_with(&mut self, map: impl Fn(StreamEffect) -> Option<StreamEffect>) {
        while let Some(effect) = self.stream_service.poll_effect() {
            let Some(effect) = map(effect) else { continue };
            let (conn, message) = match effect {
                StreamEffect::Register { number, registrations } => {
                    self.events.register(number, registrations);
                    continue;
                }
                StreamEffect::Find { stream, after } => {
                    self.events.find(stream, after);
                    continue;
                }
                StreamEffect::Notice(notice) => {
                    tracing::warn!("{notice}");
                    if let StreamNotice::Lapsed { stream, consumer, missed } = notice {
                        self.events.report_lapse(stream, consumer, missed);
                    }
                    continue;
                }
                StreamEffect::Answered { number, answer } => {
                    if let Some(callback) = self.pending_answers.remove(&number) {
                        callback(answer);
                    }
                    continue;
                }
                StreamEffect::CallCompleted { conn, call, result } => (conn, ClientMessage::CallResult(call, result)),
                StreamEffect::Group { conn, push, version, seq, events } => {
                    (conn, ClientMessage::Group { push, version, seq, events })
                }
                StreamEffect::PushEnd { conn, push, is_closed } => (conn, ClientMessage::PushEnd { push, is_closed }),
            };
            if let Some(client) = self.clients.get(&conn) {
                client(message);
            }
        }
    }
}
