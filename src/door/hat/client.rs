//! A client as the shell sees the clients of all doors: what [`Session`] asks, in the words of the doors.
//!
//! Events of this peer are told in whole sessions, by [`Client::on_events`], as soon as they are stored; those of other peers come as
//! messages of the bus, and those of a session together as far as they come together. Word of a loss is not in the protocol: a client
//! that has missed something is closed, and asks for what it wants when it comes again.

use super::session::{self, RequestId, Session};
use super::to_client::Status;
use super::{Fault, Message, Settings};
use crate::door::ask::{Ask, EventAsk};
use crate::door::event::EventRequest;
use crate::door::out::Out;
use crate::event::model::{Event, EventId, Registration, ServerId};
use crate::event::refusal::Refusal;
use crate::event::store::Answer;
use crate::message::{SubId, Wanted};
use crate::proto::delivery::Deliveries;
use crate::subject::event_type::TypePattern;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// The conversation with a client of the Hat door.
#[derive(Debug)]
pub struct Client {
    session: Session,
    /// Whose events are told when they are stored.
    own: ServerId,
    /// The client wants events of this server only.
    only: Option<ServerId>,
    /// Subscriptions to subjects.
    subs: u32,
    asks: VecDeque<Ask<'static>>,
}

impl Client {
    /// With a client that has just connected.
    pub fn new(settings: Arc<Settings>, now: Instant) -> Client {
        let own = settings.server;
        let session = Session::new(settings, Status::Operational, now);
        Client { session, own, only: None, subs: 0, asks: VecDeque::new() }
    }

    /// The client's next message. Not to be called while it [`is_full`](Client::is_full).
    ///
    /// # Errors
    /// The client is at fault.
    pub fn on_command(&mut self, now: Instant, message: Message<'_>, out: &mut Out) -> Result<(), Fault> {
        self.session.on_command(now, message, out)
    }

    /// What is asked of the peer.
    pub fn poll_ask(&mut self) -> Option<Ask<'static>> {
        while self.asks.is_empty() {
            match self.session.poll_ask()? {
                session::Ask::Admitted { account, name } => {
                    self.asks.extend([Ask::Admitted { account }, Ask::Named { name }]);
                }
                session::Ask::Subscribe(subscription) => {
                    self.only = subscription.server;
                    subscription.patterns.iter().for_each(|pattern| self.subscribe(pattern));
                }
                session::Ask::Register { request, registrations } => {
                    let request = EventAsk { id: request.0, request: EventRequest::Register(registrations) };
                    self.asks.push_back(Ask::Events(request));
                }
                session::Ask::Query { request, query } => {
                    self.asks.push_back(Ask::Events(EventAsk { id: request.0, request: EventRequest::Query(query) }));
                }
                session::Ask::Refused(refusal) => self.asks.push_back(Ask::Refused { reason: refusal.to_string() }),
                session::Ask::Close => self.asks.push_back(Ask::Close),
            }
        }
        self.asks.pop_front()
    }

    fn subscribe(&mut self, pattern: &TypePattern) {
        for pattern in pattern.subject_patterns() {
            self.subs += 1;
            let wanted = Wanted { pattern, glob: None, queue: None };
            self.asks.push_back(Ask::Subscribe { sub: SubId(self.subs), wanted });
        }
    }

    /// What the peer refuses: a subscription, without which the client would miss events.
    pub fn on_refused(&mut self) {
        self.asks.push_back(Ask::Close);
    }

    /// The journal has registered what the client asked for.
    pub fn on_registered(&mut self, request: u64, events: Vec<Event>, out: &mut Out) {
        self.session.on_registered(RequestId(request), Some(events), out);
    }

    /// The journal has answered a question.
    pub fn on_answered(&mut self, request: u64, answer: Answer, out: &mut Out) {
        self.session.on_answered(RequestId(request), answer, out);
    }

    /// The journal refuses a request. If that was a question, it ends the conversation: the protocol has no word for that.
    pub fn on_refusal(&mut self, request: u64, refusal: &Refusal, out: &mut Out) {
        match self.session.is_registering(RequestId(request)) {
            true => self.session.on_registered(RequestId(request), None, out),
            false => self.asks.extend([Ask::Refused { reason: refusal.to_string() }, Ask::Close]),
        }
    }

    /// Whether it wants events of this server.
    fn wants(&self, id: EventId) -> bool {
        self.only.is_none_or(|only| only == id.server)
    }

    /// Events of one session of this peer that match its subscriptions, ascending. Gives how many were written.
    pub fn on_events(&mut self, events: &[&Event], out: &mut Out) -> usize {
        let events: Vec<&Event> = events.iter().copied().filter(|event| self.wants(event.id)).collect();
        if events.is_empty() { 0 } else { self.session.on_events(&events, out) }
    }

    /// Messages that match its subscriptions: events of other peers, and what is no event. Gives how many were written.
    pub fn on_deliveries(&mut self, deliveries: &Deliveries, out: &mut Out) -> usize {
        let events = deliveries.clone().filter_map(|delivery| Event::of_message(&delivery.message).ok());
        let events: Vec<Event> = events.filter(|event| event.id.server != self.own && self.wants(event.id)).collect();
        let is_one = |a: &Event, b: &Event| (a.id.server, a.id.session) == (b.id.server, b.id.session);
        let sessions = events.chunk_by(is_one);
        sessions.map(|events| self.session.on_events(&events.iter().collect::<Vec<_>>(), out)).sum()
    }

    /// Something that matches its subscriptions is lost.
    pub fn on_lost(&mut self) {
        let reason = "events are lost, for which the protocol has no word".to_owned();
        self.asks.extend([Ask::Refused { reason }, Ask::Close]);
    }

    /// Tells the client what it did wrong, as far as there is a word for it.
    pub fn on_fault(&mut self, fault: &Fault, out: &mut Out) {
        self.session.on_fault(fault, out);
    }

    /// The peer is about to stop.
    pub fn on_stop(&mut self, out: &mut Out) {
        self.session.on_stop(out);
    }

    /// What is to be registered when the connection has ended, given once.
    pub fn take_farewell(&mut self) -> Option<Registration> {
        self.session.take_farewell()
    }

    /// Time has passed.
    ///
    /// # Errors
    /// The client has taken too long.
    pub fn on_deadline(&mut self, now: Instant, out: &mut Out) -> Result<(), Fault> {
        self.session.on_deadline(now, out)
    }

    /// Bytes of requests that are not answered.
    pub fn held_bytes(&self) -> usize {
        self.session.held_bytes()
    }

    /// Whether nothing more is to be read of it before something is answered.
    pub fn is_full(&self) -> bool {
        self.session.is_full()
    }

    /// Whether it has proven who it is.
    pub fn is_admitted(&self) -> bool {
        self.session.is_admitted()
    }

    /// When [`Session::on_deadline`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.session.deadline()
    }

    /// Its subscriptions.
    pub fn subscriptions(&self) -> usize {
        self.session.subscriptions()
    }

    /// Whether this is a number of one of its subscriptions to subjects.
    pub fn has_subscription(&self, sub: SubId) -> bool {
        (1..=self.subs).contains(&sub.0)
    }
}
