//! The engine's handling of event requests.

use super::replication::LocalServer;
use super::requester::{EventCompletion, EventRequester, JournalReply};
use super::{EventsError, answers, unavailable};
use crate::daemon::engine::Engine;
use crate::daemon::listeners::connection::ListenerConnection;
use crate::daemon::mailbox::SubscriptionRequest;
use crate::daemon::stream_service::input::StreamInput;
use crate::event::model::{Event, EventId, Json, Payload, Registration};
use crate::event::refusal::{EventRefusal, EventRefusalKind};
use crate::listener::client::{ClientSession, Protocol};
use crate::listener::event::{EventAnswer, EventRequest};
use crate::listener::frame::PeerFrame;
use crate::message::{ClientId, DeliveryMode, SubId, SubscriptionFilter};
use crate::subject::event_type::EventType;
use crate::time::ClockReading;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Starts an event request. It is refused at once, or answered later.
    pub(crate) fn request_events(&mut self, now: ClockReading, asker: EventRequester, request: EventRequest) {
        if let Err(refusal) = self.start_events_request(now, &asker, request) {
            self.send_event_answers(&asker, vec![Err(refusal)]);
        }
    }

    /// Starts an event request of a listener client, like [`Engine::request_events`].
    pub(crate) fn request_listener_events(
        &mut self,
        now: ClockReading,
        client: ClientId,
        number: u64,
        request: EventRequest,
    ) {
        if let Err(refusal) = self.start_events_request(now, &EventRequester::Listener(client, number), request) {
            let Some(connection) = self.clients.listener(client) else { return };
            let ClientSession::Hat(session) = &mut connection.session else {
                unreachable!("others ask nothing about events")
            };
            session.on_refusal(number, &refusal, &mut connection.unwritten.out);
            connection.unwritten.note_answers();
        }
    }

    fn start_events_request(
        &mut self,
        now: ClockReading,
        asker: &EventRequester,
        request: EventRequest,
    ) -> Result<(), EventRefusal> {
        let publisher = self.events.publisher(now, &mut self.clients);
        let begun = match self.is_running() {
            true => {
                self.open_events(now).and_then(|()| self.events.begin(now, publisher, &self.mailbox, asker, request))
            }
            false => Err(EventRefusal::stopping()),
        };
        begun.inspect_err(|refusal| self.record_refusal(asker, refusal))
    }

    /// Opens the journal, and shares it with other peers, unless that was done.
    fn open_events(&mut self, now: ClockReading) -> Result<(), EventRefusal> {
        self.events.open_with_retry(now)?;
        self.replicate_events(now).map_err(unavailable)
    }

    /// Shares the journal with other peers, once it is open.
    pub(crate) fn replicate_events(&mut self, now: ClockReading) -> Result<(), EventsError> {
        let Some(server) = self.events.server().filter(|_| self.events.needs_replication()) else { return Ok(()) };
        let client = self.events.publisher(now, &mut self.clients);
        let (epoch, message_bytes_max) = (self.peer.epoch(), self.peer.settings().message_bytes_max);
        let own = LocalServer { server, epoch, client, message_bytes_max, mailbox: Arc::clone(&self.mailbox) };
        let queue = self.events.share(&own)?;
        for (sub, pattern) in (0..).map(SubId).zip(own.patterns()) {
            let wanted = SubscriptionFilter { pattern, glob: None, queue: None };
            let request = SubscriptionRequest { wanted, mode: Some(DeliveryMode::Repair), wants_discovery: false };
            if let Err(refusal) = self.subscribe(now, client, sub, request, Arc::clone(&queue)) {
                tracing::error!(?refusal, "the journal of events is not shared with other peers");
            }
        }
        Ok(())
    }

    /// Handles the outcome of the server-id claim: starts the requests that were held back.
    pub(crate) fn on_events_claimed(&mut self, now: ClockReading, claimed: Result<(), EventRefusal>) {
        let publisher = self.events.publisher(now, &mut self.clients);
        for (asker, request) in self.events.on_claimed(claimed) {
            let begun = self.events.begin(now, publisher, &self.mailbox, &asker, request);
            if let Err(refusal) = begun {
                self.record_refusal(&asker, &refusal);
                self.send_result(now, &asker, Err(refusal));
            }
        }
    }

    /// Registers an event which reports that the peer starts or stops registering events.
    pub(crate) fn announce_events(&mut self, now: ClockReading, word: &'static str) {
        let Some(server) = self.events.server() else { return };
        let event_type = EventType::new(["event", &server.to_string(), "engine"]).expect("short words and a number");
        let text = Bytes::from(format!("\"{word}\""));
        let payload = Some(Payload::Json(Json::from_bytes(text).expect("a word between quotes")));
        self.register_internal(now, vec![Registration { event_type, source_timestamp: None, payload }]);
    }

    /// Registers events of the peer itself, for which no client waits.
    pub(crate) fn register_internal(&mut self, now: ClockReading, registrations: Vec<Registration>) {
        self.request_events(now, EventRequester::Internal, EventRequest::Register(registrations));
    }

    /// Handles the outcome of a request to the journal.
    pub(crate) fn on_events_done(&mut self, now: ClockReading, outcome: EventCompletion) {
        let EventCompletion { asker, done, ended } = outcome;
        ended.into_iter().for_each(|cost| self.events.end(cost));
        match &done {
            Ok(JournalReply::Registered(events)) => {
                self.events.registered += events.len() as u64;
                self.deliver_to_subscribers(now, events);
            }
            Ok(JournalReply::Found(_)) => {}
            Err(refusal) => self.record_refusal(&asker, refusal),
        }
        self.send_result(now, &asker, done);
    }

    /// Sends the outcome of a request to its requester.
    fn send_result(&mut self, now: ClockReading, asker: &EventRequester, done: Result<JournalReply, EventRefusal>) {
        if let EventRequester::Listener(client, number) = asker {
            return self.send_listener_result(now, *client, *number, done);
        }
        let answers = match done {
            Ok(done) => answers(done).into_iter().map(Ok).collect(),
            Err(refusal) => vec![Err(refusal)],
        };
        self.send_event_answers(asker, answers);
    }

    fn record_refusal(&mut self, asker: &EventRequester, refusal: &EventRefusal) {
        self.events.refused += 1;
        if matches!(refusal.kind, EventRefusalKind::Unavailable | EventRefusalKind::Full) {
            self.events.unable += 1;
            if self.events.unable.is_power_of_two() {
                let refused = self.events.unable;
                tracing::warn!(client = asker.client().0, reason = %refusal, refused, "request about events refused");
            }
        }
    }

    fn send_event_answers(&mut self, asker: &EventRequester, answers: Vec<Result<EventAnswer, EventRefusal>>) {
        match asker {
            EventRequester::Attached(client, id) => {
                let Some(connection) = self.clients.connection(*client) else { return };
                let answers =
                    if connection.outbox.exceeds_answer_limit() { vec![Err(EventRefusal::busy())] } else { answers };
                for answer in answers {
                    self.clients.answer(*client, &PeerFrame::Events { id: *id, answer });
                }
            }
            // The caller may have stopped waiting. At the bound the channel itself reports that parts are missing.
            EventRequester::Embedded(_, told) => {
                answers.into_iter().for_each(|answer| {
                    told.send(answer);
                });
            }
            EventRequester::Streams { number, inputs, .. } => {
                for answer in answers {
                    let registered = answer.map(|answer| match answer {
                        EventAnswer::Registered(of) => EventId { server: of.server, session: of.session, instance: 1 },
                        EventAnswer::Found(..) => unreachable!("streams find events by themselves"),
                    });
                    // If the thread has ended, it waits for nothing.
                    drop(inputs.push(StreamInput::Registered { number: *number, registered }));
                }
            }
            EventRequester::Listener(..) | EventRequester::Internal => {}
        }
    }

    /// Sends the outcome of a request to the client of a listener.
    fn send_listener_result(
        &mut self,
        now: ClockReading,
        id: ClientId,
        number: u64,
        done: Result<JournalReply, EventRefusal>,
    ) {
        self.with_hat_client(now, id, |connection| {
            let ClientSession::Hat(session) = &mut connection.session else {
                unreachable!("others ask nothing about events")
            };
            let out = &mut connection.unwritten.out;
            match done {
                Ok(JournalReply::Registered(events)) => session.on_registered(number, events, out),
                Ok(JournalReply::Found(answer)) => session.on_answered(number, answer, out),
                Err(refusal) => session.on_refusal(number, &refusal, out),
            }
            connection.unwritten.note_answers();
        });
    }

    /// Delivers the events of a session together to the Hat clients that subscribe to them.
    fn deliver_to_subscribers(&mut self, now: ClockReading, events: &[Event]) {
        if !self.listeners.has_clients(Protocol::Hat) {
            return;
        }
        let mut told: BTreeMap<ClientId, Vec<&Event>> = BTreeMap::new();
        for event in events {
            let targets = self.peer.targets(event.event_type.subject());
            for target in targets.iter().flat_map(|to| to.iter()) {
                if self.clients.listener(target.client).is_some_and(|it| matches!(it.session, ClientSession::Hat(_))) {
                    let events = told.entry(target.client).or_default();
                    if events.last().is_none_or(|last| last.id != event.id) {
                        events.push(event);
                    }
                }
            }
        }
        for (id, events) in told {
            self.with_hat_client(now, id, |connection| {
                let has_room = connection.has_room();
                let ClientSession::Hat(session) = &mut connection.session else { unreachable!("it was looked at") };
                match has_room {
                    true => {
                        let taken = session.on_events(&events, &mut connection.unwritten.out);
                        connection.unwritten.note_events(taken);
                    }
                    false => session.on_lost(),
                }
            });
        }
    }

    /// Passes a message to a client, and handles its resulting requests.
    fn with_hat_client(&mut self, now: ClockReading, id: ClientId, say: impl FnOnce(&mut ListenerConnection)) {
        let Some(connection) = self.clients.listener(id) else { return };
        say(connection);
        self.drain_requests(now, id);
        // An answer or a session may be large, and a turn may have one for each of many clients.
        self.clients.write_if_memory_is_scarce(id);
        self.clients.on_served(id);
        self.listeners.note(&mut self.clients, id);
        self.schedule_wake(now, id);
        self.evict(now);
    }
}
