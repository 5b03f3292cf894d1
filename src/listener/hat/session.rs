//! One client: what it has asked and not got yet, and whether it is there.

use super::chatter::{ChatterMessage, Conversation};
use super::client_message::{EventSubscription, HatClientMessage, INIT_REQ, Init};
use super::server_message::{EVENTS_NOTIFY, HatServerMessage, Status};
use super::value::put_events;
use super::{HatFault, RegistrationRefusal, Settings};
use crate::event::model::{Event, Json, Payload, Registration};
use crate::event::store::{Query, QueryPage};
use crate::listener::access::{Account, Credentials, is_equal};
use crate::listener::output_buffer::OutputBuffer;
use crate::subject::event_type::EventType;
use crate::time::Instant;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::Arc;

/// A request of a client, which no other request of the client has before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What a client wants of the shell. What can be answered without never gets here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatAction {
    /// The client has proven who it is, or needs not; the limits of strangers end.
    Admitted {
        /// Its account, for people.
        account: String,
        /// The client's name for itself, for people.
        name: String,
    },
    /// The client is to be told of these events from now on, by [`HatSession::on_events`].
    Subscribe(EventSubscription),
    /// Register these events, in one session: answered by [`HatSession::on_registered`].
    Register {
        /// Which request.
        request: RequestId,
        /// At least one.
        registrations: Vec<Registration>,
    },
    /// A question that makes sense: answered by [`HatSession::on_answered`].
    Query {
        /// Which request.
        request: RequestId,
        /// The question.
        query: Query,
    },
    /// A registration has failed before it came to that; nothing is to be done but to tell people.
    Refused(RegistrationRefusal),
    /// Write what there is to write, then close.
    Close,
}

/// The conversation with a client.
///
/// Requests are done in their order: registrations that follow each other are asked for at once, questions one by one, and none of either
/// before those of the other kind that came earlier are answered. So a question finds what was registered before it.
#[derive(Debug)]
pub struct HatSession {
    settings: Arc<Settings>,
    status: Status,
    stage: HatSessionState,
    /// How many messages were sent.
    sent: i128,
    /// Requests that are not answered, in order.
    requests: VecDeque<QueuedRequest>,
    /// The number of the first of them.
    first: u64,
    /// Bytes of all of them, as they came.
    requests_bytes: usize,
    asks: VecDeque<HatAction>,
    /// What is to be registered when the client is gone.
    disconnect_event: Option<Registration>,
    subscriptions: usize,
    /// When the last message came, or a stranger connected.
    last_received: Instant,
    /// When the client was asked whether it is there, if nothing came since.
    pinged: Option<Instant>,
}

/// How far the conversation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HatSessionState {
    /// The client has not proven who it is; holds where it has tried.
    Unauthenticated(Option<Conversation>),
    /// It has, and waits for its welcome.
    Authenticated,
    /// It is welcome.
    Welcome,
    /// The server stops when all is answered.
    Stopping,
    /// Nothing more is said or heard.
    Closed,
}

/// A request that is not answered.
#[derive(Debug)]
struct QueuedRequest {
    /// Where the answer belongs; `None` if none is wanted.
    conversation: Option<Conversation>,
    /// Its size as it came.
    bytes: usize,
    /// The client is welcome with the answer, and told of these.
    welcome: Option<EventSubscription>,
    state: HatRequestState,
}

#[derive(Debug)]
enum HatRequestState {
    /// It waits until it can be asked for.
    Waiting(JournalCommand),
    /// The shell does it.
    Submitted(HatRequestKind),
    /// The answer waits for those before it.
    Done(HatServerMessage),
}

#[derive(Debug)]
enum JournalCommand {
    Register(Vec<Registration>),
    Query(Query),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HatRequestKind {
    Register,
    Query,
}

impl HatSession {
    /// With a client that has just connected to a server of this status.
    pub fn new(settings: Arc<Settings>, status: Status, now: Instant) -> HatSession {
        HatSession {
            settings,
            status,
            stage: HatSessionState::Unauthenticated(None),
            sent: 0,
            requests: VecDeque::new(),
            first: 0,
            requests_bytes: 0,
            asks: VecDeque::new(),
            disconnect_event: None,
            subscriptions: 0,
            last_received: now,
            pinged: None,
        }
    }

    /// The client's next message. Not to be called while the session [`is_full`](HatSession::is_full).
    ///
    /// # Errors
    /// The client is at fault; its connection ends when [`on_fault`](HatSession::on_fault) has said so.
    pub fn on_command(
        &mut self,
        now: Instant,
        message: ChatterMessage<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), HatFault> {
        let conversation = message.conversation.mirrored();
        match self.stage {
            HatSessionState::Closed => return Ok(()),
            HatSessionState::Unauthenticated(_) if message.type_name == INIT_REQ && !message.is_last => {
                self.stage = HatSessionState::Unauthenticated(Some(conversation));
            }
            HatSessionState::Unauthenticated(_) => {}
            HatSessionState::Authenticated | HatSessionState::Welcome | HatSessionState::Stopping => {
                (self.last_received, self.pinged) = (now, None)
            }
        }
        let said = HatClientMessage::decode(&message, &self.settings)?;
        let type_name = said.type_name();
        let answer = (!message.is_last).then_some(conversation);
        match said {
            HatClientMessage::Ping => self.send(conversation, true, &HatServerMessage::Pong, out),
            HatClientMessage::Pong => {}
            HatClientMessage::Init(_) | HatClientMessage::Query(_) if message.is_last => {
                return Err(HatFault::Ended(type_name));
            }
            HatClientMessage::Init(init) if !self.is_admitted() => self.on_init(now, init, message.body.len())?,
            _ if !self.is_admitted() => return Err(HatFault::Unexpected(type_name)),
            HatClientMessage::Init(_) => return Err(HatFault::Unexpected(type_name)),
            // Whoever wants to is welcome to say so, though nobody asks for it.
            HatClientMessage::EventsAck => {}
            HatClientMessage::Register(registrations) => self.register(answer, registrations, message.body.len()),
            HatClientMessage::Query(query) => {
                let nothing = || HatRequestState::Done(HatServerMessage::QueryPage(QueryPage::default()));
                let state = query.map_or_else(nothing, |query| HatRequestState::Waiting(JournalCommand::Query(query)));
                self.push(answer, message.body.len(), None, state);
            }
        }
        self.flush(out);
        Ok(())
    }

    /// What is asked of the shell next; to be drained after every call that takes `out`. Requests, which have answers, only if the client
    /// takes them.
    pub fn poll_request(&mut self, takes_answers: bool) -> Option<HatAction> {
        self.asks.pop_front().or_else(|| if takes_answers { self.next_request() } else { None })
    }

    /// The events of an [`HatAction::Register`] are stored; `None` if they are not.
    ///
    /// # Panics
    /// There is no such request.
    pub fn on_registered(&mut self, request: RequestId, events: Option<Vec<Event>>, out: &mut OutputBuffer) {
        let status = self.status;
        let request = self.asked(request, HatRequestKind::Register);
        // Whether it is stored that the client has come changes nothing for the client.
        let is_welcome = request.welcome.is_some();
        request.state = HatRequestState::Done(if is_welcome {
            HatServerMessage::Init(Ok(status))
        } else {
            HatServerMessage::Registered(events)
        });
        self.flush(out);
    }

    /// The answer to an [`HatAction::Query`].
    ///
    /// # Panics
    /// There is no such request.
    pub fn on_answered(&mut self, request: RequestId, answer: QueryPage, out: &mut OutputBuffer) {
        self.asked(request, HatRequestKind::Query).state = HatRequestState::Done(HatServerMessage::QueryPage(answer));
        self.flush(out);
    }

    /// Events of one session to which the client subscribes, at least one, ascending. Gives how many were written.
    pub fn on_events(&mut self, events: &[&Event], out: &mut OutputBuffer) -> usize {
        if !matches!(self.stage, HatSessionState::Welcome | HatSessionState::Stopping) {
            return 0;
        }
        let mut body = BytesMut::new();
        put_events(&mut body, events.iter().copied());
        let conversation = self.new_conversation();
        self.put(conversation, true, EVENTS_NOTIFY, body.freeze(), out);
        events.len()
    }

    /// The server has this status from now on.
    pub fn on_status(&mut self, status: Status, out: &mut OutputBuffer) {
        if self.status == status || matches!(self.stage, HatSessionState::Stopping | HatSessionState::Closed) {
            return;
        }
        self.status = status;
        self.send_status(out);
    }

    /// The server is about to stop: nothing more is registered. When all that was asked is answered the client is told that this is so,
    /// and the connection is to be closed.
    pub fn on_stop(&mut self, out: &mut OutputBuffer) {
        self.on_status(Status::Stopping, out);
        match self.stage {
            HatSessionState::Welcome => self.stage = HatSessionState::Stopping,
            HatSessionState::Unauthenticated(_) | HatSessionState::Authenticated => self.end(),
            HatSessionState::Stopping | HatSessionState::Closed => {}
        }
        self.flush(out);
    }

    /// The connection ends; says so where the protocol has a word for it, which is in the answer to the first request.
    pub fn on_fault(&mut self, fault: &HatFault, out: &mut OutputBuffer) {
        if let HatSessionState::Unauthenticated(Some(conversation)) = self.stage {
            self.send(conversation, true, &HatServerMessage::Init(Err(fault.to_string())), out);
        }
        self.stage = HatSessionState::Closed;
    }

    /// What is to be registered when the connection has ended, each in a session of its own, given once: what the client has asked for
    /// and the shell was not, and that the client is gone.
    pub fn take_final_registrations(&mut self) -> Vec<Vec<Registration>> {
        let left = self.requests.drain(..).filter_map(|request| match request.state {
            HatRequestState::Waiting(JournalCommand::Register(registrations)) => Some(registrations),
            _ => None,
        });
        left.chain(self.disconnect_event.take().map(|disconnect_event| vec![disconnect_event])).collect()
    }

    /// When [`on_deadline`](HatSession::on_deadline) is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.stage {
            HatSessionState::Unauthenticated(_) => Some(self.last_received + self.settings.auth_time),
            HatSessionState::Authenticated | HatSessionState::Welcome | HatSessionState::Stopping => {
                Some(self.pinged.unwrap_or(self.last_received) + self.settings.ping_interval)
            }
            HatSessionState::Closed => None,
        }
    }

    /// Time has passed; `is_read` is false while nothing is read of the client, because it has yet to take what it was answered.
    ///
    /// # Errors
    /// The client did not say in time who it is, or nothing is heard of it.
    pub fn on_deadline(&mut self, now: Instant, is_read: bool, out: &mut OutputBuffer) -> Result<(), HatFault> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if !self.is_admitted() {
            return Err(HatFault::AuthTime);
        }
        // What it may have said is not read.
        if self.is_full() || !is_read {
            (self.last_received, self.pinged) = (now, None);
            return Ok(());
        }
        if self.pinged.is_some() {
            return Err(HatFault::Idle);
        }
        self.pinged = Some(now);
        let conversation = self.new_conversation();
        self.send(conversation, false, &HatServerMessage::Ping, out);
        Ok(())
    }

    /// Whether this request, which the shell does, is an [`HatAction::Register`].
    pub fn is_registering(&self, request: RequestId) -> bool {
        let request = self.place(request).and_then(|place| self.requests.get(place));
        request.is_some_and(|request| matches!(request.state, HatRequestState::Submitted(HatRequestKind::Register)))
    }

    /// Whether so much is not answered that nothing more may be read of the client. It may change with every call that takes `out`.
    pub fn is_full(&self) -> bool {
        self.settings.requests_max <= self.requests.len() || self.settings.requests_bytes_max <= self.requests_bytes
    }

    /// Whether the client has proven who it is, or needs not.
    pub fn is_admitted(&self) -> bool {
        matches!(self.stage, HatSessionState::Authenticated | HatSessionState::Welcome | HatSessionState::Stopping)
    }

    /// The patterns that the client subscribes to.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Bytes of requests that are not answered, as they came.
    pub fn held_bytes(&self) -> usize {
        self.requests_bytes
    }

    fn on_init(&mut self, now: Instant, init: Init, bytes: usize) -> Result<(), HatFault> {
        let HatSessionState::Unauthenticated(conversation) = self.stage else {
            unreachable!("only strangers say who they are")
        };
        let Init { name, token, subscription, persisted: _ } = init;
        let account = self.account(&name, token.as_deref()).ok_or(HatFault::Token)?;
        self.last_received = now;
        self.stage = HatSessionState::Authenticated;
        self.subscriptions = subscription.patterns.len();
        let come = self.announcement(&name, "\"CONNECTED\"");
        self.disconnect_event = self.announcement(&name, "\"DISCONNECTED\"");
        let state = match come {
            Some(come) => HatRequestState::Waiting(JournalCommand::Register(vec![come])),
            None => HatRequestState::Done(HatServerMessage::Init(Ok(self.status))),
        };
        self.push(conversation, bytes, Some(subscription), state);
        self.asks.push_back(HatAction::Admitted { account, name });
        Ok(())
    }

    /// The account of a client, for people; `None` if it has none and needs one.
    fn account(&self, name: &str, token: Option<&str>) -> Option<String> {
        let access = &self.settings.access;
        if !access.is_closed() {
            return Some("open".to_owned());
        }
        let told = token?.as_bytes();
        let is_proven = |account: &&Account| match &account.credentials {
            Credentials::Token(token) => is_equal(token, told),
            Credentials::User { name: user, password } => is_equal(user, name.as_bytes()) & is_equal(password, told),
            Credentials::Nkey(_) => false,
        };
        access.accounts.iter().find(is_proven).map(|account| match &account.credentials {
            Credentials::User { name, .. } => name.clone(),
            Credentials::Token(_) | Credentials::Nkey(_) => "token".to_owned(),
        })
    }

    /// The event that tells that a client has come or gone, if one is to. There is none for a name that is too long for a type.
    fn announcement(&self, name: &str, text: &'static str) -> Option<Registration> {
        if !self.settings.announces || self.status != Status::Operational {
            return None;
        }
        let (server, name) = (self.settings.server.to_string(), subtype(name));
        let event_type = EventType::new(["event", &server, "eventer", &name]).ok()?;
        let payload = Json::from_bytes(Bytes::from_static(text.as_bytes())).expect("a string of JSON");
        Some(Registration { event_type, source_timestamp: None, payload: Some(Payload::Json(payload)) })
    }

    fn register(
        &mut self,
        answer: Option<Conversation>,
        registrations: Result<Vec<Registration>, RegistrationRefusal>,
        bytes: usize,
    ) {
        let registrations = match self.status {
            Status::Operational => registrations,
            status => registrations.and(Err(RegistrationRefusal::Status(status))),
        };
        let send = |events| HatRequestState::Done(HatServerMessage::Registered(events));
        let state = match registrations {
            Ok(registrations) if registrations.is_empty() => send(Some(Vec::new())),
            Ok(registrations) => HatRequestState::Waiting(JournalCommand::Register(registrations)),
            Err(refusal) => {
                self.asks.push_back(HatAction::Refused(refusal));
                send(None)
            }
        };
        self.push(answer, bytes, None, state);
    }

    fn push(
        &mut self,
        conversation: Option<Conversation>,
        bytes: usize,
        welcome: Option<EventSubscription>,
        state: HatRequestState,
    ) {
        self.requests_bytes += bytes;
        self.requests.push_back(QueuedRequest { conversation, bytes, welcome, state });
    }

    /// Hands on the next request, if it may be done beside those that the shell does.
    fn next_request(&mut self) -> Option<HatAction> {
        let mut under_way = None;
        for (number, request) in (self.first..).zip(&mut self.requests) {
            let kind = match &request.state {
                HatRequestState::Waiting(JournalCommand::Register(_)) => HatRequestKind::Register,
                HatRequestState::Waiting(JournalCommand::Query(_)) => HatRequestKind::Query,
                HatRequestState::Submitted(kind) => *kind,
                HatRequestState::Done(_) => continue,
            };
            if matches!(request.state, HatRequestState::Submitted(_)) {
                under_way = Some(kind);
                continue;
            }
            // Answers to questions may be large: the next one is asked when it is seen whether the client takes them.
            if under_way.is_some_and(|other| other != kind || kind == HatRequestKind::Query) {
                return None;
            }
            let request_id = RequestId(number);
            return match std::mem::replace(&mut request.state, HatRequestState::Submitted(kind)) {
                HatRequestState::Waiting(JournalCommand::Register(registrations)) => {
                    Some(HatAction::Register { request: request_id, registrations })
                }
                HatRequestState::Waiting(JournalCommand::Query(query)) => {
                    Some(HatAction::Query { request: request_id, query })
                }
                HatRequestState::Submitted(_) | HatRequestState::Done(_) => unreachable!("it waits"),
            };
        }
        None
    }

    /// Where a request stands among those without an answer, if it is one of them.
    fn place(&self, request: RequestId) -> Option<usize> {
        request.0.checked_sub(self.first).and_then(|place| usize::try_from(place).ok())
    }

    /// A request of this kind that the shell does.
    fn asked(&mut self, request: RequestId, kind: HatRequestKind) -> &mut QueuedRequest {
        let place = self.place(request);
        let request = place.and_then(|place| self.requests.get_mut(place)).expect("a request is answered once");
        assert!(
            matches!(request.state, HatRequestState::Submitted(asked) if asked == kind),
            "{kind:?} answers {request:?}"
        );
        request
    }

    /// Says what can be said in order; then, if the server stops and nothing is left, that it has.
    fn flush(&mut self, out: &mut OutputBuffer) {
        while let Some(QueuedRequest { state: HatRequestState::Done(_), .. }) = self.requests.front() {
            let Some(QueuedRequest { conversation, bytes, welcome, state: HatRequestState::Done(said) }) =
                self.requests.pop_front()
            else {
                unreachable!("it was looked at")
            };
            self.first += 1;
            self.requests_bytes -= bytes;
            if self.stage == HatSessionState::Closed {
                continue;
            }
            if let Some(conversation) = conversation {
                self.send(conversation, true, &said, out);
            }
            if let Some(subscription) = welcome {
                self.stage = HatSessionState::Welcome;
                self.asks.push_back(HatAction::Subscribe(subscription));
            }
        }
        if self.stage == HatSessionState::Stopping && self.requests.is_empty() {
            self.status = Status::Standby;
            self.send_status(out);
            self.end();
        }
    }

    /// Tells the status to a client that has been told another one.
    fn send_status(&mut self, out: &mut OutputBuffer) {
        if matches!(self.stage, HatSessionState::Welcome | HatSessionState::Stopping) {
            let conversation = self.new_conversation();
            self.send(conversation, true, &HatServerMessage::Status(self.status), out);
        }
    }

    fn end(&mut self) {
        self.stage = HatSessionState::Closed;
        self.asks.push_back(HatAction::Close);
    }

    /// The one that begins with the next message.
    fn new_conversation(&self) -> Conversation {
        Conversation { first: self.sent + 1, is_own: true }
    }

    fn send(&mut self, conversation: Conversation, is_last: bool, said: &HatServerMessage, out: &mut OutputBuffer) {
        self.put(conversation, is_last, said.type_name(), said.encode().freeze(), out);
    }

    fn put(&mut self, conversation: Conversation, is_last: bool, type_name: &str, body: Bytes, out: &mut OutputBuffer) {
        self.sent += 1;
        let message = ChatterMessage { id: self.sent, conversation, is_last, type_name, body: &body };
        out.put(&message.head());
        out.put_shared(&body);
    }
}

/// A name as one subtype: what no subtype holds is written as in a URL, and then `%` is too.
fn subtype(name: &str) -> String {
    let is_reserved = |c: char| matches!(c, '?' | '*' | '/');
    if !name.contains(is_reserved) {
        return name.to_owned();
    }
    let escaped = |c: char| if is_reserved(c) || c == '%' { format!("%{:02X}", u32::from(c)) } else { c.to_string() };
    name.chars().map(escaped).collect()
}
