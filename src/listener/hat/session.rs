//! The session of one client: its unanswered requests, and the supervision of its connection.

use super::action::{HatAction, RequestId};
use super::chatter::{ChatterMessage, Conversation};
use super::client_message::{EventSubscription, HatClientMessage, INIT_REQ, Init};
use super::fault::HatFault;
use super::registration_refusal::RegistrationRefusal;
use super::request_queue::{
    AnsweredRequest, HatRequestKind, HatRequestState, JournalCommand, QueuedRequest, RequestQueue,
};
use super::server_message::{EVENTS_NOTIFY, HatServerMessage, Status};
use super::settings::Settings;
use super::value::put_events;
use crate::event::model::{Event, Json, Payload, Registration};
use crate::event::store::{Query, QueryPage};
use crate::listener::access::{Credentials, is_equal};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Denial, DeniedAction, Permissions};
use crate::subject::event_type::{EventType, TypePattern};
use crate::time::Instant;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::Arc;

/// The session of a client.
#[derive(Debug)]
pub struct HatSession {
    settings: Arc<Settings>,
    status: Status,
    state: HatSessionState,
    /// Number of messages sent.
    sent: i128,
    requests: RequestQueue,
    actions: VecDeque<HatAction>,
    /// Permissions of the client's account.
    permissions: Permissions,
    /// Event to register when the client has disconnected.
    disconnect_event: Option<Registration>,
    subscriptions: usize,
    /// Names in the client's verified certificate.
    certificate_names: Vec<String>,
    /// Time of the last message, or of the connection of an unauthenticated client.
    last_received: Instant,
    /// Time of the last ping, if the client has sent nothing since.
    last_ping: Option<Instant>,
}

/// State of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HatSessionState {
    /// The client is unauthenticated. Holds the conversation in which it tries to authenticate.
    Unauthenticated(Option<Conversation>),
    /// The client is authenticated, and waits for the answer to its first request.
    Authenticated,
    /// The client has its answer and receives events.
    Welcome,
    /// The server is stopping. The connection closes once all requests are answered.
    Stopping,
    /// The session neither sends nor processes messages.
    Closed,
}

impl HatSession {
    /// Creates the session of a client that has just connected to a server of this status.
    pub fn new(settings: Arc<Settings>, status: Status, now: Instant) -> HatSession {
        HatSession {
            permissions: settings.access.permissions.clone(),
            settings,
            status,
            state: HatSessionState::Unauthenticated(None),
            sent: 0,
            requests: RequestQueue::default(),
            actions: VecDeque::new(),
            disconnect_event: None,
            subscriptions: 0,
            certificate_names: Vec::new(),
            last_received: now,
            last_ping: None,
        }
    }

    /// Handles the client's next message. Must not be called while the session [`is_full`](HatSession::is_full).
    ///
    /// # Errors
    /// Returns the client's fault. The connection ends after [`on_fault`](HatSession::on_fault) has reported it.
    pub fn on_command(
        &mut self,
        now: Instant,
        message: ChatterMessage<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), HatFault> {
        let conversation = message.conversation.mirror();
        match self.state {
            HatSessionState::Closed => return Ok(()),
            HatSessionState::Unauthenticated(_) if message.type_name == INIT_REQ && !message.is_last => {
                self.state = HatSessionState::Unauthenticated(Some(conversation));
            }
            HatSessionState::Unauthenticated(_) => {}
            HatSessionState::Authenticated | HatSessionState::Welcome | HatSessionState::Stopping => {
                (self.last_received, self.last_ping) = (now, None)
            }
        }
        let request = HatClientMessage::decode(&message, &self.settings)?;
        let type_name = request.type_name();
        let answer = (!message.is_last).then_some(conversation);
        match request {
            HatClientMessage::Ping => self.send(conversation, true, &HatServerMessage::Pong, out),
            HatClientMessage::Pong => {}
            HatClientMessage::Init(_) | HatClientMessage::Query(_) if message.is_last => {
                return Err(HatFault::Ended(type_name));
            }
            HatClientMessage::Init(init) if !self.is_admitted() => self.on_init(now, init, message.body.len(), out)?,
            _ if !self.is_admitted() => return Err(HatFault::Unexpected(type_name)),
            HatClientMessage::Init(_) => return Err(HatFault::Unexpected(type_name)),
            // An acknowledgement is allowed, though the listener does not request it.
            HatClientMessage::EventsAck => {}
            HatClientMessage::Register(registrations) => self.register(answer, registrations, message.body.len()),
            HatClientMessage::Query(query) if !self.may_query(query.as_ref()) => self.end(),
            HatClientMessage::Query(query) => {
                let nothing = || HatRequestState::Done(HatServerMessage::Found(QueryPage::default()));
                let state = query.map_or_else(nothing, |query| HatRequestState::Waiting(JournalCommand::Query(query)));
                self.push(answer, message.body.len(), None, state);
            }
        }
        self.flush(out);
        Ok(())
    }

    /// Returns the next action for the shell, which polls until `None` after every call with `out`. The action is a
    /// request with an answer only if `takes_answers` is true.
    pub fn poll_request(&mut self, takes_answers: bool) -> Option<HatAction> {
        self.actions.pop_front().or_else(|| if takes_answers { self.requests.submit_next() } else { None })
    }

    /// Handles the stored events of an [`HatAction::Register`]; `None` if they are not stored.
    ///
    /// # Panics
    /// Panics if there is no such request.
    pub fn on_registered(&mut self, request: RequestId, events: Option<Vec<Event>>, out: &mut OutputBuffer) {
        let status = self.status;
        let request = self.requests.submitted(request, HatRequestKind::Register);
        // The client is accepted even if the event of its connection could not be stored.
        let is_welcome = request.welcome.is_some();
        request.state = HatRequestState::Done(if is_welcome {
            HatServerMessage::Init(Ok(status))
        } else {
            HatServerMessage::Registered(events)
        });
        self.flush(out);
    }

    /// Handles the answer to an [`HatAction::Query`].
    ///
    /// # Panics
    /// Panics if there is no such request.
    pub fn on_answered(&mut self, request: RequestId, answer: QueryPage, out: &mut OutputBuffer) {
        self.requests.submitted(request, HatRequestKind::Query).state =
            HatRequestState::Done(HatServerMessage::Found(answer));
        self.flush(out);
    }

    /// Sends events of one session to which the client subscribes, at least one, ascending. Returns the number of
    /// events sent.
    pub fn on_events(&mut self, events: &[&Event], out: &mut OutputBuffer) -> usize {
        if !matches!(self.state, HatSessionState::Welcome | HatSessionState::Stopping) {
            return 0;
        }
        let mut body = BytesMut::new();
        put_events(&mut body, events.iter().copied());
        let conversation = self.new_conversation();
        self.put(conversation, true, EVENTS_NOTIFY, body.freeze(), out);
        events.len()
    }

    /// Records the new status of the server and sends it to the client.
    pub fn on_status(&mut self, status: Status, out: &mut OutputBuffer) {
        if self.status == status || matches!(self.state, HatSessionState::Stopping | HatSessionState::Closed) {
            return;
        }
        self.status = status;
        self.send_status(out);
    }

    /// Records that the server is about to stop; it refuses further registrations. When all requests are answered, the
    /// client receives the final status and the connection is closed.
    pub fn on_stop(&mut self, out: &mut OutputBuffer) {
        self.on_status(Status::Stopping, out);
        match self.state {
            HatSessionState::Welcome => self.state = HatSessionState::Stopping,
            HatSessionState::Unauthenticated(_) | HatSessionState::Authenticated => self.end(),
            HatSessionState::Stopping | HatSessionState::Closed => {}
        }
        self.flush(out);
    }

    /// Ends the session. Reports the fault if the first request is unanswered, since only its answer can report an
    /// error.
    pub fn on_fault(&mut self, fault: &HatFault, out: &mut OutputBuffer) {
        if let HatSessionState::Unauthenticated(Some(conversation)) = self.state {
            self.send(conversation, true, &HatServerMessage::Init(Err(fault.to_string())), out);
        }
        self.state = HatSessionState::Closed;
    }

    /// Removes and returns the registrations to make after the connection has ended, each in a session of its own:
    /// those that the shell has not received yet, and the event of the disconnection.
    pub fn take_final_registrations(&mut self) -> Vec<Vec<Registration>> {
        let mut registrations = self.requests.take_waiting_registrations();
        registrations.extend(self.disconnect_event.take().map(|event| vec![event]));
        registrations
    }

    /// Begins the time limits of a new connection again.
    pub fn restart_deadlines(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Returns the time at which [`on_deadline`](HatSession::on_deadline) is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            HatSessionState::Unauthenticated(_) => Some(self.last_received + self.settings.auth_time),
            HatSessionState::Authenticated | HatSessionState::Welcome | HatSessionState::Stopping => {
                Some(self.last_ping.unwrap_or(self.last_received) + self.settings.ping_interval)
            }
            HatSessionState::Closed => None,
        }
    }

    /// Handles the passage of time. `is_read` is false while the listener does not read from the client, because the
    /// client has not accepted its answers.
    ///
    /// # Errors
    /// The client did not authenticate in time, or does not answer a ping.
    pub fn on_deadline(&mut self, now: Instant, is_read: bool, out: &mut OutputBuffer) -> Result<(), HatFault> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if !self.is_admitted() {
            return Err(HatFault::AuthTime);
        }
        // The client may have sent messages that the listener has not read.
        if self.is_full() || !is_read {
            (self.last_received, self.last_ping) = (now, None);
            return Ok(());
        }
        if self.last_ping.is_some() {
            return Err(HatFault::Idle);
        }
        self.last_ping = Some(now);
        let conversation = self.new_conversation();
        self.send(conversation, false, &HatServerMessage::Ping, out);
        Ok(())
    }

    /// Returns whether this request, which the shell processes, is an [`HatAction::Register`].
    pub fn is_registering(&self, request: RequestId) -> bool {
        self.requests.is_registering(request)
    }

    /// Returns whether the limit of unanswered requests is reached, so that the listener may not read from the client.
    /// The result may change with every call with `out`.
    pub fn is_full(&self) -> bool {
        self.settings.requests_max <= self.requests.len() || self.settings.requests_bytes_max <= self.requests.bytes()
    }

    /// Returns whether the client is authenticated, or needs no authentication.
    pub fn is_admitted(&self) -> bool {
        matches!(self.state, HatSessionState::Authenticated | HatSessionState::Welcome | HatSessionState::Stopping)
    }

    /// Returns the number of patterns that the client subscribes to.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Returns the bytes of unanswered requests, as received.
    pub fn held_bytes(&self) -> usize {
        self.requests.bytes()
    }

    fn on_init(&mut self, now: Instant, init: Init, bytes: usize, out: &mut OutputBuffer) -> Result<(), HatFault> {
        let HatSessionState::Unauthenticated(conversation) = self.state else {
            unreachable!("only an unauthenticated client is initialized")
        };
        let Init { name, token, subscription, persisted: _ } = init;
        let account = self.log_in(&name, token.as_deref()).ok_or(HatFault::Token)?;
        self.last_received = now;
        if let Some(denial) = self.subscribe_denial(&subscription.patterns) {
            let refusal = HatServerMessage::Init(Err(denial.to_string()));
            conversation.into_iter().for_each(|conversation| self.send(conversation, true, &refusal, out));
            self.actions.extend([HatAction::Admitted { account, name }, HatAction::Denied(denial)]);
            self.end();
            return Ok(());
        }
        self.state = HatSessionState::Authenticated;
        self.subscriptions = subscription.patterns.len();
        let connected = self.announcement(&name, "\"CONNECTED\"");
        self.disconnect_event = self.announcement(&name, "\"DISCONNECTED\"");
        let state = match connected {
            Some(connected) => HatRequestState::Waiting(JournalCommand::Register(vec![connected])),
            None => HatRequestState::Done(HatServerMessage::Init(Ok(self.status))),
        };
        self.push(conversation, bytes, Some(subscription), state);
        self.actions.push_back(HatAction::Admitted { account, name });
        Ok(())
    }

    /// Records the names in the client's verified certificate. A client without a token authenticates by them.
    pub fn on_certificate(&mut self, names: &[String]) {
        self.certificate_names = names.to_vec();
    }

    /// Authenticates a client and sets its permissions. Returns its account, for people; `None` if the client needs an
    /// account and has not authenticated.
    fn log_in(&mut self, name: &str, token: Option<&str>) -> Option<String> {
        let access = &self.settings.access;
        if !access.requires_authentication() {
            return Some("open".to_owned());
        }
        let account = match token.map(str::as_bytes) {
            Some(token) => access.accounts.iter().find(|account| match &account.credentials {
                Credentials::Token(secret) => is_equal(secret, token),
                Credentials::User { name: user, password } => {
                    is_equal(user, name.as_bytes()) & is_equal(password, token)
                }
                Credentials::Nkey(_) | Credentials::Certificate(_) => false,
            }),
            None => access.account_of_certificate(&self.certificate_names),
        };
        let account = account?;
        self.permissions = account.permissions.clone();
        Some(account.credentials.public_name().to_owned())
    }

    /// Returns the reason why the client may not read events of these types; `None` if it may.
    fn subscribe_denial(&self, patterns: &[TypePattern]) -> Option<Denial> {
        let denied = patterns.iter().find(|pattern| !self.permissions.subscribe.permits_types(pattern))?;
        Some(Denial::new(DeniedAction::Subscribe, denied))
    }

    /// Returns whether the client may make the query. Reports a denial to the operator, since the protocol has no refusal
    /// of queries.
    fn may_query(&mut self, query: Option<&Query>) -> bool {
        let denial = query.and_then(|query| match query.types() {
            Some(patterns) => self.subscribe_denial(patterns),
            None => self.subscribe_denial(&[TypePattern::all()]),
        });
        self.actions.extend(denial.clone().map(HatAction::Denied));
        denial.is_none()
    }

    /// Returns the event of a client's connection or disconnection, if announcements are enabled. A name that is too
    /// long for a type has no event.
    fn announcement(&self, name: &str, text: &'static str) -> Option<Registration> {
        if !self.settings.announces || self.status != Status::Operational {
            return None;
        }
        let (server, name) = (self.settings.server.to_string(), escape_subtype(name));
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
        let is_denied =
            |registration: &&Registration| !self.permissions.publish.permits(registration.event_type.subject());
        let denied = registrations.iter().flatten().find(is_denied);
        let denial = denied.map(|denied| Denial::new(DeniedAction::Publish, &denied.event_type));
        let send = |events| HatRequestState::Done(HatServerMessage::Registered(events));
        let state = match registrations {
            Ok(_) if denial.is_some() => {
                self.actions.extend(denial.map(HatAction::Denied));
                send(None)
            }
            Ok(registrations) if registrations.is_empty() => send(Some(Vec::new())),
            Ok(registrations) => HatRequestState::Waiting(JournalCommand::Register(registrations)),
            Err(refusal) => {
                self.actions.push_back(HatAction::Refused(refusal));
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
        self.requests.push(QueuedRequest { conversation, bytes, welcome, state });
    }

    /// Sends the answers that are due, in the order of the requests. If the server is stopping and all requests are
    /// answered, sends the final status.
    fn flush(&mut self, out: &mut OutputBuffer) {
        while let Some(AnsweredRequest { conversation, welcome, answer }) = self.requests.pop_answered() {
            if self.state == HatSessionState::Closed {
                continue;
            }
            if let Some(conversation) = conversation {
                self.send(conversation, true, &answer, out);
            }
            if let Some(subscription) = welcome {
                self.state = HatSessionState::Welcome;
                self.actions.push_back(HatAction::Subscribe(subscription));
            }
        }
        if self.state == HatSessionState::Stopping && self.requests.is_empty() {
            self.status = Status::Standby;
            self.send_status(out);
            self.end();
        }
    }

    /// Sends the status to a client that has received an earlier one.
    fn send_status(&mut self, out: &mut OutputBuffer) {
        if matches!(self.state, HatSessionState::Welcome | HatSessionState::Stopping) {
            let conversation = self.new_conversation();
            self.send(conversation, true, &HatServerMessage::Status(self.status), out);
        }
    }

    fn end(&mut self) {
        self.state = HatSessionState::Closed;
        self.actions.push_back(HatAction::Close);
    }

    /// Returns the conversation that begins with the next message.
    fn new_conversation(&self) -> Conversation {
        Conversation { first: self.sent + 1, is_own: true }
    }

    fn send(&mut self, conversation: Conversation, is_last: bool, message: &HatServerMessage, out: &mut OutputBuffer) {
        self.put(conversation, is_last, message.type_name(), message.encode().freeze(), out);
    }

    fn put(&mut self, conversation: Conversation, is_last: bool, type_name: &str, body: Bytes, out: &mut OutputBuffer) {
        self.sent += 1;
        let message = ChatterMessage { id: self.sent, conversation, is_last, type_name, body: &body };
        out.put(&message.head());
        out.put_shared(&body);
    }
}

/// Converts a name to one subtype. If it has characters that a subtype cannot have, escapes these and `%` as in a URL.
fn escape_subtype(name: &str) -> String {
    let is_reserved = |c: char| matches!(c, '?' | '*' | '/');
    if !name.contains(is_reserved) {
        return name.to_owned();
    }
    let escaped = |c: char| if is_reserved(c) || c == '%' { format!("%{:02X}", u32::from(c)) } else { c.to_string() };
    name.chars().map(escaped).collect()
}
