//! Calls of clients, and the registrations of the events that they add.

use super::StreamService;
use super::consumer_limit::register;
use super::effect::{CallOrigin, StreamEffect};
use super::pushes::PushRequest;
use super::registration::{JournalRegistration, PendingAdd};
use super::search::{SearchRequester, StreamSearch};
use super::store_faults::internal;
use crate::event::model::{EventId, Json, Payload, Registration};
use crate::event::refusal::{EventRefusal, EventRefusalKind};
use crate::event::stream::model::{LIST_EVENTS_MAX, PageBudget};
use crate::event::stream::name::{Consumer, StreamId, StreamType, UserName};
use crate::event::stream::store::StreamStore;
use crate::event::timestamp::Timestamp;
use crate::listener::ftn18::call::Call;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::message::ENVELOPE_BYTES;
use crate::listener::ftn18::session::CallResult;
use crate::subject::event_type::EventType;
use crate::time::ClockReading;
use std::fmt;

impl StreamService {
    /// Handles a call about the stream with this index.
    pub fn on_call<S>(
        &mut self,
        store: &mut S,
        now: ClockReading,
        from: CallOrigin,
        stream: usize,
        user: UserName,
        call: Call,
    ) where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let name = self.streams[stream].settings.name.clone();
        let time = Timestamp::from(now.wall);
        let consumer = |component| Consumer { user, component };
        let result = match call {
            Call::Ping { .. } => unreachable!("the session answers a ping"),
            Call::Add { kind, data } => return self.add(store, from, stream, &kind, data),
            Call::Register(component) if component.is_live() => Err(CallFault::new(
                FaultName::LiveNotAllowed,
                "LIVE is not registered: call readyToReceive or pollEvents",
            )),
            Call::Register(component) => {
                register(store, &name, &consumer(component), time).map(|_| CallResult::Accepted)
            }
            Call::Poll { component, last, want, answer_bytes_max } => {
                let bytes = answer_bytes_max - ENVELOPE_BYTES;
                let budget = PageBudget { events: LIST_EVENTS_MAX, bytes };
                let requester = SearchRequester::Call(from, consumer(component));
                let search = StreamSearch::new(requester, stream, last.unwrap_or(StreamId::START), want, budget);
                return self.search(store, search, time);
            }
            Call::Ready { component, want, version } => {
                let request = PushRequest { stream, consumer: consumer(component), want, version };
                self.begin_push(store, now, from.conn, request).map(|()| CallResult::Accepted)
            }
        };
        self.effects.push_back(StreamEffect::CallCompleted { conn: from.conn, call: from.call, result });
    }

    /// Registers an event for a stream, unless the stream is full.
    pub(super) fn add<S: StreamStore + ?Sized>(
        &mut self,
        store: &mut S,
        from: CallOrigin,
        stream: usize,
        kind: &StreamType,
        data: Json,
    ) where
        S::Error: fmt::Display,
    {
        let settings = &self.streams[stream].settings;
        let is_full = match settings.limits.may_block() {
            true => store
                .contents(&settings.name)
                .map(|contents| settings.limits.is_blocked(contents.bytes + self.pending_bytes(stream))),
            false => store.check().map(|()| false),
        };
        let result = match is_full {
            Err(error) => Err(internal(error)),
            Ok(true) => {
                let text = format!("the stream {} is full: a consumer has to accept events first", settings.name);
                Err(CallFault::new(FaultName::DefenseRejected, text))
            }
            Ok(false) => {
                let subtypes = [settings.name.as_str(), kind.as_str()];
                let event_type = EventType::new(subtypes).expect("two short subtypes");
                let number = self.registration_next;
                self.registration_next += 1;
                let caller = PendingAdd { from, bytes: data.bytes().len() as u64 };
                let payload = Some(Payload::Json(data));
                self.registering.insert(number, JournalRegistration::Call(caller, stream));
                let registrations = vec![Registration { event_type, source_timestamp: None, payload }];
                return self.effects.push_back(StreamEffect::Register { number, registrations });
            }
        };
        self.effects.push_back(StreamEffect::CallCompleted { conn: from.conn, call: from.call, result });
    }

    /// Returns the bytes of the events that calls have added and that are not in the stream yet.
    fn pending_bytes(&self, stream: usize) -> u64 {
        let registering = self.registering.values().filter_map(|registering| match registering {
            JournalRegistration::Call(caller, of) if *of == stream => Some(caller.bytes),
            JournalRegistration::Call(..) | JournalRegistration::Posted(_) => None,
        });
        let unfed = self.unfed.iter().filter(|((of, _), _)| *of == stream).map(|(_, caller)| caller.bytes);
        registering.chain(unfed).sum()
    }

    /// Handles the result of a registration.
    pub fn on_registered(&mut self, number: u64, registered: Result<EventId, EventRefusal>) {
        match (self.registering.remove(&number), registered) {
            (None, _) => return,
            (Some(JournalRegistration::Posted(posted)), Err(refusal)) => self.outbox.on_refused(posted, refusal),
            (Some(JournalRegistration::Posted(_)), Ok(id)) => {
                self.outbox.on_registered();
                self.fed = self.fed.split_off(&(id, 0));
            }
            (Some(JournalRegistration::Call(PendingAdd { from, .. }, _)), Err(refusal)) => {
                let name = match refusal.kind {
                    EventRefusalKind::Busy => FaultName::DefenseRejected,
                    EventRefusalKind::Invalid => FaultName::InvalidRequest,
                    EventRefusalKind::Unavailable | EventRefusalKind::Full | EventRefusalKind::Stopping => {
                        FaultName::InternalError
                    }
                };
                let result = Err(CallFault::new(name, refusal.text));
                self.effects.push_back(StreamEffect::CallCompleted { conn: from.conn, call: from.call, result });
            }
            (Some(JournalRegistration::Call(caller, stream)), Ok(id)) => {
                match self.fed.remove(&(id, stream)) {
                    Some(id) => {
                        let result = Ok(CallResult::Added(id));
                        let PendingAdd { from, .. } = caller;
                        self.effects.push_back(StreamEffect::CallCompleted {
                            conn: from.conn,
                            call: from.call,
                            result,
                        });
                    }
                    None => {
                        self.unfed.insert((stream, id), caller);
                    }
                }
                if let Some(feed) = self.streams[stream].feeds.get(&self.server) {
                    self.fail_missing(stream, feed.covered);
                }
                // Registrations are confirmed in the order of their events, so no call waits for earlier events.
                self.fed = self.fed.split_off(&(id, 0));
            }
        }
        if self.registering.is_empty() {
            self.fed.clear();
        }
    }
}
