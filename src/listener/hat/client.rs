//! A Hat client behind the interface of all listeners: turns the requests of [`HatSession`] into those of a listener.
//!
//! [`HatClient::on_events`] sends the events of this peer in whole sessions, as soon as they are stored. Events of
//! other peers arrive as messages of the bus, one for each event. [`HatClient::flush_events`] sends them once all
//! messages received together are processed. So the events of a session are sent together, as far as they arrive
//! together.
//!
//! The protocol has no message that reports a loss. The listener therefore disconnects a client that has missed an
//! event. The client queries the missing events when it reconnects.

use super::action::{HatAction, RequestId};
use super::chatter::ChatterMessage;
use super::fault::HatFault;
use super::server_message::Status;
use super::session::HatSession;
use super::settings::Settings;
use crate::delivery::Deliveries;
use crate::event::model::{Event, EventId, Registration, ServerId};
use crate::event::refusal::EventRefusal;
use crate::event::store::QueryPage;
use crate::listener::event::EventRequest;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{JournalRequest, SessionRequest};
use crate::message::{Refusal, SubId, SubscriptionFilter};
use crate::subject::event_type::TypePattern;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// The session of a client of the Hat listener.
#[derive(Debug)]
pub struct HatClient {
    session: HatSession,
    /// Id of the server of this peer, whose events are sent once they are stored.
    local_server: ServerId,
    /// Server whose events the client wants; `None` for all servers.
    only: Option<ServerId>,
    /// Number of subscriptions to subjects.
    subs: u32,
    /// Events of one session of another peer that are not sent yet.
    pending_events: Vec<Event>,
    /// Bytes of the payloads of these events.
    pending_bytes: usize,
    /// True once a message was lost: no later event is sent.
    has_lost: bool,
    requests: VecDeque<SessionRequest<'static>>,
}

/// Bytes of pending payloads at which events are sent before the rest of their session arrives.
const PENDING_BYTES_MAX: usize = 64 * 1024;

impl HatClient {
    /// Creates the session of a client that has just connected.
    pub fn new(settings: Arc<Settings>, now: Instant) -> HatClient {
        let local_server = settings.server;
        let session = HatSession::new(settings, Status::Operational, now);
        let (pending_events, requests) = (Vec::new(), VecDeque::new());
        HatClient {
            session,
            local_server,
            only: None,
            subs: 0,
            pending_events,
            pending_bytes: 0,
            has_lost: false,
            requests,
        }
    }

    /// Records the names in the client's verified certificate.
    pub fn on_certificate(&mut self, names: &[String]) {
        self.session.on_certificate(names);
    }

    /// Handles the client's next message. Must not be called while the client [`is_full`](HatClient::is_full).
    ///
    /// # Errors
    /// Returns the client's fault, after which its connection ends.
    pub fn on_command(
        &mut self,
        now: Instant,
        message: ChatterMessage<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), HatFault> {
        self.session.on_command(now, message, out)
    }

    /// Returns the next request to the peer. It is a request with an answer only if `takes_answers` is true.
    pub fn poll_request(&mut self, takes_answers: bool) -> Option<SessionRequest<'static>> {
        while self.requests.is_empty() {
            match self.session.poll_request(takes_answers)? {
                HatAction::Admitted { account, name } => {
                    self.requests.extend([SessionRequest::Admitted { account }, SessionRequest::Named { name }]);
                }
                HatAction::Subscribe(subscription) => {
                    self.only = subscription.server;
                    subscription.patterns.iter().for_each(|pattern| self.subscribe(pattern));
                }
                HatAction::Register { request, registrations } => {
                    let request = JournalRequest { id: request.0, request: EventRequest::Register(registrations) };
                    self.requests.push_back(SessionRequest::Events(request));
                }
                HatAction::Query { request, query } => {
                    self.requests.push_back(SessionRequest::Events(JournalRequest {
                        id: request.0,
                        request: EventRequest::Query(query),
                    }));
                }
                HatAction::Refused(refusal) => {
                    let (kind, reason) = (refusal.kind(), refusal.to_string());
                    self.requests.push_back(SessionRequest::Refused { kind, reason });
                }
                HatAction::Denied(denial) => self.requests.push_back(SessionRequest::Denied(denial)),
                HatAction::Close => self.requests.push_back(SessionRequest::Close),
            }
        }
        self.requests.pop_front()
    }

    fn subscribe(&mut self, pattern: &TypePattern) {
        for pattern in pattern.subject_patterns() {
            self.subs += 1;
            let filter = SubscriptionFilter { pattern, glob: None, queue: None };
            self.requests.push_back(SessionRequest::Subscribe { sub: SubId(self.subs), filter });
        }
    }

    /// Handles the peer's refusal of a subscription. Disconnects the client, since it would miss events.
    pub fn on_refused(&mut self, refusal: &Refusal) {
        let reason = format!("a subscription is refused, without which the client would miss events: {refusal:?}");
        self.requests.extend([SessionRequest::Refused { kind: "subscription", reason }, SessionRequest::Close]);
    }

    /// Handles the events that the journal has registered for the client.
    pub fn on_registered(&mut self, request: u64, events: Vec<Event>, out: &mut OutputBuffer) {
        self.session.on_registered(RequestId(request), Some(events), out);
    }

    /// Handles the journal's answer to a query.
    pub fn on_answered(&mut self, request: u64, answer: QueryPage, out: &mut OutputBuffer) {
        self.session.on_answered(RequestId(request), answer, out);
    }

    /// Answers a request that the journal refuses. The answer has no reason, and a client may want no answer to a
    /// registration, so each refusal is reported to the operator. A refused query ends the connection, since the
    /// protocol has no refusal of queries.
    pub fn on_refusal(&mut self, request: u64, refusal: &EventRefusal, out: &mut OutputBuffer) {
        self.requests.push_back(SessionRequest::Refused { kind: refusal.kind.as_str(), reason: refusal.to_string() });
        match self.session.is_registering(RequestId(request)) {
            true => self.session.on_registered(RequestId(request), None, out),
            false => self.requests.push_back(SessionRequest::Close),
        }
    }

    /// Returns whether the client receives events of this server.
    fn wants(&self, id: EventId) -> bool {
        !self.has_lost && self.only.is_none_or(|only| only == id.server)
    }

    /// Sends events of one session of this peer that match the client's subscriptions, ascending. Returns the number of
    /// events sent.
    pub fn on_events(&mut self, events: &[&Event], out: &mut OutputBuffer) -> usize {
        let events: Vec<&Event> = events.iter().copied().filter(|event| self.wants(event.id)).collect();
        if events.is_empty() { 0 } else { self.session.on_events(&events, out) }
    }

    /// Handles messages that match the client's subscriptions: events of other peers, and messages that are not events.
    /// Returns the number of events that are sent, now or by [`HatClient::flush_events`].
    pub fn on_deliveries(&mut self, deliveries: &Deliveries, out: &mut OutputBuffer) -> usize {
        let events = deliveries.clone().filter_map(|delivery| Event::of_message(&delivery.message).ok());
        let mut count = 0;
        for event in events {
            if event.id.server == self.local_server || !self.wants(event.id) {
                continue;
            }
            let session = |event: &Event| (event.id.server, event.id.session);
            let is_other = self.pending_events.last().is_some_and(|last| session(last) != session(&event));
            if is_other || PENDING_BYTES_MAX <= self.pending_bytes {
                self.flush_events(out);
            }
            self.pending_bytes += event.payload_size();
            self.pending_events.push(event);
            count += 1;
        }
        count
    }

    /// Sends the pending events. The caller calls it once all messages received together are processed.
    pub fn flush_events(&mut self, out: &mut OutputBuffer) {
        let mut events = std::mem::take(&mut self.pending_events);
        self.pending_bytes = 0;
        // A message that was lost and repaired arrives after its successors.
        events.sort_by_key(|event| event.id.instance);
        if !events.is_empty() {
            self.session.on_events(&events.iter().collect::<Vec<_>>(), out);
        }
    }

    /// Handles the loss of a message that matches the client's subscriptions. Disconnects the client.
    pub fn on_lost(&mut self) {
        let reason = "events are lost, which the protocol cannot report".to_owned();
        if !std::mem::replace(&mut self.has_lost, true) {
            self.requests.extend([SessionRequest::Refused { kind: "lost events", reason }, SessionRequest::Close]);
        }
    }

    /// Reports the fault to the client, as far as the protocol can express it.
    pub fn on_fault(&mut self, fault: &HatFault, out: &mut OutputBuffer) {
        self.session.on_fault(fault, out);
    }

    /// Announces that the peer is about to stop.
    pub fn on_stop(&mut self, out: &mut OutputBuffer) {
        self.session.on_stop(out);
    }

    /// Removes and returns the registrations to make after the connection has ended, each in a session of its own.
    pub fn take_final_registrations(&mut self) -> Vec<Vec<Registration>> {
        self.session.take_final_registrations()
    }

    /// Handles the passage of time, as [`HatSession::on_deadline`] does.
    ///
    /// # Errors
    /// The client has taken too long.
    pub fn on_deadline(&mut self, now: Instant, is_read: bool, out: &mut OutputBuffer) -> Result<(), HatFault> {
        self.session.on_deadline(now, is_read, out)
    }

    /// Returns the number of bytes of unanswered requests and of pending events.
    pub fn held_bytes(&self) -> usize {
        self.session.held_bytes() + self.pending_bytes
    }

    /// Returns whether no further message may be read before a request is answered.
    pub fn is_full(&self) -> bool {
        self.session.is_full()
    }

    /// Returns whether the client is authenticated.
    pub fn is_admitted(&self) -> bool {
        self.session.is_admitted()
    }

    /// Begins the time limits of a new connection again.
    pub fn restart_deadlines(&mut self, now: Instant) {
        self.session.restart_deadlines(now);
    }

    /// Returns the time at which [`HatSession::on_deadline`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.session.deadline()
    }

    /// Returns whether the session has this subscription.
    pub fn has_subscription(&self, sub: SubId) -> bool {
        (1..=self.subs).contains(&sub.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chatter::{ChatterParser, Conversation};
    use super::super::client_message::{EventSubscription, HatClientMessage, Init};
    use super::super::server_message::HatServerMessage;
    use super::*;
    use crate::event::model::Payload;
    use crate::event::timestamp::Timestamp;
    use crate::message::{Delivery, Epoch, Publisher, Verdict};

    fn client() -> HatClient {
        let settings = Settings { server: ServerId(1), announces: false, ..Settings::default() };
        let mut client = HatClient::new(Arc::new(settings), Instant::ZERO);
        let subscription = EventSubscription { patterns: vec![TypePattern::all()], server: None };
        let init = HatClientMessage::Init(Init { name: String::new(), token: None, subscription, persisted: false });
        let (conversation, body) = (Conversation { first: 1, is_own: true }, init.encode().unwrap());
        let message = ChatterMessage { id: 1, conversation, is_last: false, type_name: init.type_name(), body: &body };
        client.on_command(Instant::ZERO, message, &mut OutputBuffer::new()).unwrap();
        assert!(client.poll_request(true).is_some());
        client
    }

    fn delivery(id: &str, bytes: usize) -> Deliveries {
        let event = Event {
            id: id.parse().unwrap(),
            event_type: "a/b".parse().unwrap(),
            timestamp: Timestamp::MIN,
            source_timestamp: None,
            payload: Some(Payload::Binary { type_name: "".into(), bytes: vec![0; bytes].into() }),
        };
        let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 0 };
        let (message, verdict) = (crate::message::Message::from(&event), Verdict::Direct);
        Delivery {
            message,
            publisher,
            seq: None,
            offset: None,
            verdict,
            repaired: false,
            replayed: false,
            origin: None,
        }
        .into()
    }

    /// Returns the ids in each of the messages to the client.
    fn sent_ids(out: &mut OutputBuffer) -> Vec<String> {
        let mut parser = ChatterParser::new(&Settings { unauthenticated_bytes_max: usize::MAX, ..Settings::default() });
        parser.push(&out.take());
        let mut sent_ids = Vec::new();
        while let Some(message) = parser.next().unwrap() {
            let HatServerMessage::Events(events) = HatServerMessage::decode(&message).unwrap() else {
                panic!("{message:?}")
            };
            sent_ids.push(events.iter().map(|event| event.id.to_string()).collect::<Vec<_>>().join(" "));
        }
        sent_ids
    }

    /// Delivers messages that arrive together, and checks the events sent for them.
    fn check(ids: &[&str], bytes: usize, expected: &[&str]) {
        let (mut client, mut out) = (client(), OutputBuffer::new());
        let count: usize = ids.iter().map(|id| client.on_deliveries(&delivery(id, bytes), &mut out)).sum();
        client.flush_events(&mut out);
        assert_eq!(sent_ids(&mut out), expected);
        assert_eq!(count, expected.iter().map(|ids| ids.split(' ').count()).sum::<usize>());
        client.flush_events(&mut out);
        assert!(out.is_empty() && client.held_bytes() == 0, "they are sent once");
    }

    #[test]
    fn events_of_one_session_are_sent_together() {
        check(&["2/1/1", "2/1/2", "2/2/1", "3/2/1", "3/2/2"], 5, &["2/1/1 2/1/2", "2/2/1", "3/2/1 3/2/2"]);
        // A lost and repaired event arrives later.
        check(&["2/1/2", "2/1/3", "2/1/1"], 5, &["2/1/1 2/1/2 2/1/3"]);
        // Events of this peer are sent when they are stored.
        check(&["1/1/1", "2/1/1", "1/1/2", "2/1/2"], 5, &["2/1/1 2/1/2"]);
        check(&["1/1/1"], 5, &[]);
    }

    #[test]
    fn refused_subscription_closes_the_connection() {
        let mut client = client();
        while client.poll_request(true).is_some() {}
        client.on_refused(&Refusal::Stopping);
        let requests: Vec<SessionRequest<'_>> = std::iter::from_fn(|| client.poll_request(true)).collect();
        let [SessionRequest::Refused { reason, .. }, SessionRequest::Close] = &requests[..] else {
            panic!("{requests:?}")
        };
        assert!(reason.ends_with("miss events: Stopping"), "{reason}");
    }

    #[test]
    fn unanswered_registration_that_fails_is_reported() {
        let mut client = client();
        let registration = Registration { event_type: "a/b".parse().unwrap(), source_timestamp: None, payload: None };
        let (request, mut out) = (HatClientMessage::Register(Ok(vec![registration; 4097])), OutputBuffer::new());
        let (conversation, body) = (Conversation { first: 2, is_own: true }, request.encode().unwrap());
        let message =
            ChatterMessage { id: 2, conversation, is_last: true, type_name: request.type_name(), body: &body };
        while client.poll_request(true).is_some() {}
        client.on_command(Instant::ZERO, message, &mut out).unwrap();
        let Some(SessionRequest::Events(request)) = client.poll_request(true) else {
            panic!("it is handed to the journal")
        };
        client.on_refusal(request.id, &EventRefusal::too_many(4097), &mut out);
        let Some(SessionRequest::Refused { kind: "invalid", reason }) = client.poll_request(true) else {
            panic!("it is not reported")
        };
        assert!(reason.contains("4097 events"), "{reason}");
        assert_eq!((client.poll_request(true), out.is_empty()), (None, true));
    }

    #[test]
    fn pending_events_are_sent_at_the_limit() {
        let half = PENDING_BYTES_MAX / 2;
        check(&["2/1/1", "2/1/2", "2/1/3", "2/1/4"], half, &["2/1/1 2/1/2", "2/1/3 2/1/4"]);
        let (mut client, mut out) = (client(), OutputBuffer::new());
        client.on_deliveries(&delivery("2/1/1", half), &mut out);
        assert_eq!((client.held_bytes(), out.len()), (half, 0));
    }
}
