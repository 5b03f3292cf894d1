//! State of a NATS connection: it handles the client's commands and writes its output.

use super::command::{NatsCommand, Pub};
use super::connect::{self, ConnectOptions};
use super::fault::{AuthenticationFailure, NatsFault, put_error, violation};
use super::headers::convert_headers;
use super::info;
use super::message_writer::{HeaderMode, MessageWriter};
use super::settings::Settings;
use super::subscriptions::NatsSubscriptions;
use crate::delivery::Deliveries;
use crate::listener::client_permissions::ClientPermissions;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Denial, DeniedAction};
use crate::listener::session_request::{
    ClientFacts, ConnectionInfo, ListedSubscription, Publish, ReceiverCount, ServerFacts, SessionRequest,
};
use crate::message::{Count, Headers, Queue, Refusal, SubId, SubscriptionFilter};
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Maximum delay of the first PING without its random part, as in nats-server.
const FIRST_PING: Duration = Duration::from_secs(2);
/// Divisor of the delay of the first PING that yields its random part. Clients that connect together thus get their
/// PINGs at different times.
const SPREAD_DIVISOR: u64 = 5;
/// Maximum size, in bytes, of headers that are cached for the next message with equal headers.
const HEADERS_CACHED_BYTES_MAX: usize = 512;

/// The state of a connection.
#[derive(Debug)]
pub struct NatsSession {
    settings: Arc<Settings>,
    connection: ConnectionInfo,
    options: ConnectOptions,
    name: String,
    is_admitted: bool,
    /// Account as which the client has authenticated last, for people.
    account: Option<String>,
    /// Names in the client's verified certificate.
    certificate_names: Vec<String>,
    /// True if messages carry headers with the metadata of the bus, provided that the client supports headers.
    is_annotated: bool,
    permissions: ClientPermissions,
    requests: VecDeque<SessionRequest<'static>>,
    subs: NatsSubscriptions,
    writer: MessageWriter,
    /// True if a publish, subscribe or unsubscribe request was sent to the peer since the last PING.
    has_pending_request: bool,
    /// True if a `+OK` is due once the peer answers.
    is_ok_pending: bool,
    /// True if a PONG is due once the peer answers.
    is_pong_pending: bool,
    /// Subject of the last published message.
    subject: Option<Subject>,
    /// Last headers, as the client sent them and as they are published.
    headers: Option<(Bytes, Headers)>,
    /// Time at which an unauthenticated connection ends.
    auth_deadline: Instant,
    last_received: Instant,
    next_ping: Instant,
    /// True once the first PING was sent.
    was_pinged: bool,
    /// Number of PINGs that the client has not answered.
    pings: u32,
}

impl NatsSession {
    /// Creates the session of a new connection.
    pub fn new(settings: Arc<Settings>, connection: &ConnectionInfo, now: Instant) -> NatsSession {
        let mut session = NatsSession {
            permissions: ClientPermissions::new(&settings.access.permissions),
            is_annotated: settings.access.headers,
            is_admitted: !settings.access.requires_authentication(),
            settings,
            connection: *connection,
            options: ConnectOptions::default(),
            name: String::new(),
            account: None,
            certificate_names: Vec::new(),
            requests: VecDeque::new(),
            subs: NatsSubscriptions::default(),
            writer: MessageWriter::default(),
            has_pending_request: false,
            is_pong_pending: false,
            is_ok_pending: false,
            subject: None,
            headers: None,
            auth_deadline: now,
            last_received: now,
            next_ping: now,
            was_pinged: false,
            pings: 0,
        };
        session.restart_deadlines(now);
        if session.is_admitted {
            session.requests.push_back(SessionRequest::Admitted { account: "open".to_owned() });
        }
        session
    }

    /// Begins the time limits of a new connection, again if the client could not use the protocol before.
    pub fn restart_deadlines(&mut self, now: Instant) {
        let first = self.settings.ping_interval.min(FIRST_PING);
        let chance = crate::rng::Rng::new(self.connection.seed()).below(crate::time::nanos(first) / SPREAD_DIVISOR);
        self.auth_deadline = now + self.settings.auth_time;
        self.next_ping = now + first + Duration::from_nanos(chance);
    }

    /// Writes the greeting.
    pub fn on_open(&mut self, out: &mut OutputBuffer) {
        out.put(&info::line(&self.settings, &self.connection, false));
    }

    /// Records the names in the client's verified certificate. A CONNECT without credentials authenticates by them.
    pub fn on_certificate(&mut self, names: &[String]) {
        self.certificate_names = names.to_vec();
    }

    /// Answers a command, or returns its request to the peer.
    ///
    /// # Errors
    /// The command ends the connection; [`on_fault`](NatsSession::on_fault) reports the fault to the client.
    #[inline]
    pub fn on_command<'a>(
        &mut self,
        now: Instant,
        command: NatsCommand<'a>,
        out: &mut OutputBuffer,
    ) -> Result<Option<SessionRequest<'a>>, NatsFault> {
        self.last_received = now;
        if !self.is_admitted && !matches!(command, NatsCommand::Connect(_)) {
            return Err(NatsFault::Unauthorized(AuthenticationFailure::NotConnected));
        }
        match command {
            NatsCommand::Pub(publish) => self.publish(publish, out),
            NatsCommand::Sub { subject, queue, sid } => Ok(self.subscribe(subject, queue, sid, out)),
            NatsCommand::Unsub { sid, max } => Ok(self.unsubscribe(sid, max, out)),
            NatsCommand::Ping => Ok(self.on_ping(out)),
            NatsCommand::Pong => {
                self.pings = 0;
                Ok(None)
            }
            NatsCommand::Connect(json) => self.connect(json, out),
            NatsCommand::Ignored => Ok(None),
            NatsCommand::Err => Err(NatsFault::ClientError),
        }
    }

    /// Returns a further request to the peer that the last command or the last deliveries caused.
    pub fn poll_request(&mut self) -> Option<SessionRequest<'static>> {
        let request = self.requests.pop_front();
        if self.requests.is_empty() && request.is_some() {
            self.requests = VecDeque::new();
        }
        request
    }

    /// Reports to the client the reason for the end of the connection.
    pub fn on_fault(&mut self, fault: &NatsFault, out: &mut OutputBuffer) {
        if *fault != NatsFault::ClientError {
            put_error(out, fault.protocol_text());
        }
    }

    /// Handles a refusal by the peer. The subscription `sub`, if given, does not exist.
    pub fn on_refused(&mut self, sub: Option<SubId>, refusal: &Refusal, out: &mut OutputBuffer) {
        if let Some(sub) = sub {
            self.subs.remove(sub);
        }
        self.is_ok_pending = false;
        match refusal {
            Refusal::MessageTooLarge { .. } => {
                put_error(out, "Maximum Payload Violation");
                self.requests.push_back(SessionRequest::Close);
            }
            Refusal::TooManySubscriptions { .. } => put_error(out, "maximum subscriptions exceeded"),
            Refusal::Subject(_) if sub.is_some() => put_error(out, "Invalid Subject"),
            Refusal::Subject(_) => put_error(out, "Invalid Publish Subject"),
            Refusal::PublishDenied(subject) => self.deny(Denial::new(DeniedAction::Publish, subject), None, out),
            Refusal::SubscribeDenied(pattern) => self.deny(Denial::new(DeniedAction::Subscribe, pattern), None, out),
            Refusal::Stopping => put_error(out, "Server Shutdown"),
            Refusal::QueueLive | Refusal::QueueDiscovery | Refusal::TooManyGlobSteps { .. } => {
                unreachable!("this listener sends no such request")
            }
        }
    }

    /// Handles the receiver count of a published message with the reply subject `reply`. Notifies a client that
    /// requested it (`no_responders`) if the message certainly has no receivers.
    pub fn on_published(&mut self, reply: Option<&Subject>, receivers: ReceiverCount, out: &mut OutputBuffer) {
        let Some(reply) = reply.filter(|_| receivers.count == 0 && receivers.is_certain) else { return };
        if !self.options.no_responders {
            return;
        }
        self.send_ok(out);
        let Some(sub) = self.subs.find_by_reply(reply, self.connection.seed()) else { return };
        for part in [b"HMSG ".as_slice(), reply.as_bytes(), b" ", &sub.sid, b" 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"] {
            out.put(part);
        }
    }

    /// Handles the answer of the peer after all earlier requests. Writes the pending `+OK`, and answers a PING that
    /// followed requests.
    pub fn on_counts(&mut self, _counts: &[ReceiverCount], out: &mut OutputBuffer) {
        self.send_ok(out);
        if std::mem::take(&mut self.is_pong_pending) {
            out.put(b"PONG\r\n");
        }
    }

    /// Does nothing, because this protocol does not request a list.
    pub fn on_subscription_list(&mut self, _listed: &[ListedSubscription], _out: &mut OutputBuffer) -> usize {
        0
    }

    /// Does nothing, because this protocol does not request facts.
    pub fn on_server_facts(&mut self, _facts: &ServerFacts, _out: &mut OutputBuffer) {}

    /// Does nothing, because this protocol does not request the list of clients.
    pub fn on_clients(&mut self, _clients: &[ClientFacts], _out: &mut OutputBuffer) {}

    /// Writes messages for the client's subscriptions. Returns the total number of messages written for all of them.
    pub fn on_deliveries(&mut self, subs: &[SubId], deliveries: &Deliveries, out: &mut OutputBuffer) -> usize {
        let mode = match (self.options.headers, self.is_annotated) {
            (false, _) => HeaderMode::Plain,
            (true, false) => HeaderMode::Headers,
            (true, true) => HeaderMode::Annotated,
        };
        let requests = &mut self.requests;
        let ended = |sub| requests.push_back(SessionRequest::Unsubscribe { sub });
        let written = self.writer.write(&mut self.subs, subs, deliveries, mode, out, ended);
        if 0 < written && self.permissions.records_requests() {
            deliveries.clone().visit(|delivery| {
                if !delivery.reply.is_empty() {
                    self.permissions.on_request(delivery.reply);
                }
            });
        }
        written
    }

    /// Records that `lost` messages of each of these subscriptions are lost before its next message.
    pub fn on_lost(&mut self, subs: &[SubId], lost: Count) {
        if self.is_annotated {
            subs.iter().for_each(|sub| self.subs.on_lost(*sub, lost));
        }
    }

    /// Reports to the client that the peer is about to stop and that it should reconnect elsewhere.
    pub fn on_stop(&mut self, out: &mut OutputBuffer) {
        if self.options.takes_info {
            out.put(&info::line(&self.settings, &self.connection, true));
        }
    }

    /// Returns the time of the next necessary call of [`on_deadline`](NatsSession::on_deadline).
    pub fn deadline(&self) -> Option<Instant> {
        Some(if self.is_admitted { self.next_ping } else { self.auth_deadline })
    }

    /// Handles the deadline if it has passed.
    ///
    /// # Errors
    /// The client exceeded a time limit, and the connection ends.
    pub fn on_deadline(&mut self, now: Instant, out: &mut OutputBuffer) -> Result<(), NatsFault> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if !self.is_admitted {
            return Err(NatsFault::AuthTimeout);
        }
        // The first PING checks that the client answers at all. Later PINGs are sent only to silent clients.
        if !self.was_pinged || self.settings.ping_interval <= now.since(self.last_received) {
            if self.settings.pings_max <= self.pings {
                return Err(NatsFault::Stale);
            }
            self.was_pinged = true;
            self.pings += 1;
            out.put(b"PING\r\n");
        }
        self.next_ping = now + self.settings.ping_interval;
        // A received request can thus be answered for at least one interval and at most two.
        self.permissions.end_period();
        Ok(())
    }

    /// Returns whether the client is authenticated, or needs no authentication.
    pub fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    /// Returns whether the client gets a `+OK` for each message that it publishes.
    pub fn confirms_publishes(&self) -> bool {
        self.options.verbose
    }

    /// Returns the number of subscriptions.
    pub fn subscriptions(&self) -> usize {
        self.subs.len()
    }

    /// Returns whether the session has this subscription.
    pub fn has_subscription(&self, sub: SubId) -> bool {
        self.subs.get(sub).is_some()
    }

    /// Returns the bytes held for requests that the client may answer.
    pub fn held_bytes(&self) -> usize {
        self.permissions.held_bytes()
    }

    fn connect<'a>(&mut self, json: &[u8], out: &mut OutputBuffer) -> Result<Option<SessionRequest<'a>>, NatsFault> {
        let mut options = self.options;
        let identity = connect::read(json, &mut options)?;
        let access = &self.settings.access;
        if access.requires_authentication() {
            let account = if identity.has_credentials() || self.certificate_names.is_empty() {
                connect::authenticate(access, &identity, &info::nonce(&self.connection))
            } else {
                access.account_of_certificate(&self.certificate_names).ok_or(AuthenticationFailure::Certificate)
            };
            let account = account.map_err(NatsFault::Unauthorized)?;
            self.is_annotated = access.headers || account.headers;
            self.permissions.set(&account.permissions);
            let label = account.credentials.public_name().to_owned();
            self.is_admitted = true;
            if self.account.as_ref() != Some(&label) {
                self.account = Some(label.clone());
                self.requests.push_back(SessionRequest::Admitted { account: label });
            }
        }
        if options.echo != self.options.echo {
            self.requests.push_back(SessionRequest::Echo(options.echo));
        }
        self.options = options;
        if !identity.name.is_empty() && identity.name != self.name {
            self.name.clone_from(&identity.name);
            self.requests.push_back(SessionRequest::Named { name: identity.name });
        }
        self.confirm(out);
        Ok(self.requests.pop_front())
    }

    fn on_ping(&mut self, out: &mut OutputBuffer) -> Option<SessionRequest<'static>> {
        if !std::mem::take(&mut self.has_pending_request) {
            out.put(b"PONG\r\n");
            return None;
        }
        // A PONG confirms that earlier commands are complete. It therefore waits for the peer's answer to a count
        // request without subjects.
        self.is_pong_pending = true;
        Some(SessionRequest::Count { subjects: Vec::new() })
    }

    #[inline]
    fn publish<'a>(
        &mut self,
        publish: Pub<'a>,
        out: &mut OutputBuffer,
    ) -> Result<Option<SessionRequest<'a>>, NatsFault> {
        let Pub { subject, reply, headers, payload } = publish;
        if headers.is_some() && !self.options.headers {
            return Err(NatsFault::NoHeaders);
        }
        let Some(subject) = self.subject(subject) else {
            put_error(out, "Invalid Publish Subject");
            return Ok(None);
        };
        let reply = match reply.map(|reply| Subject::from_bytes(Bytes::copy_from_slice(reply))) {
            None => None,
            Some(Ok(reply)) => Some(reply),
            Some(Err(_)) => {
                put_error(out, "Invalid Reply Subject");
                return Ok(None);
            }
        };
        if let Some(denial) = self.permissions.publish_denial(&subject, reply.as_ref()) {
            self.deny(denial, None, out);
            return Ok(self.requests.pop_front());
        }
        let headers = match headers {
            None | Some([]) => Headers::new(),
            Some(text) => match self.headers(text) {
                Some(headers) => headers,
                None => {
                    put_error(out, "Invalid Headers");
                    return Ok(None);
                }
            },
        };
        self.has_pending_request = true;
        self.confirm_when_done();
        let wants_receivers = self.options.no_responders && reply.is_some();
        Ok(Some(SessionRequest::Publish(Publish { subject, reply, headers, payload, wants_receivers })))
    }

    /// Refuses an action that the account does not permit, and reports that to the operator.
    fn deny(&mut self, denial: Denial, queue: Option<&Queue>, out: &mut OutputBuffer) {
        put_error(out, violation(&denial, queue));
        self.requests.push_back(SessionRequest::Denied(denial));
    }

    /// Returns the subject with this text. Parses the text only if it differs from the subject of the last message.
    #[inline]
    fn subject(&mut self, text: &[u8]) -> Option<Subject> {
        if let Some(last) = self.subject.as_ref().filter(|last| last.as_bytes() == text) {
            return Some(last.clone());
        }
        let subject = Subject::from_bytes(Bytes::copy_from_slice(text)).ok()?;
        self.subject = Some(subject.clone());
        Some(subject)
    }

    /// Returns the headers to publish for this text; `None` if they are invalid.
    fn headers(&mut self, text: &[u8]) -> Option<Headers> {
        if let Some((_, headers)) = self.headers.as_ref().filter(|(last, _)| last == text) {
            return Some(headers.clone());
        }
        let headers = convert_headers(text)?;
        if text.len() <= HEADERS_CACHED_BYTES_MAX {
            self.headers = Some((Bytes::copy_from_slice(text), headers.clone()));
        }
        Some(headers)
    }

    fn subscribe(
        &mut self,
        subject: &[u8],
        queue: Option<&[u8]>,
        sid: &[u8],
        out: &mut OutputBuffer,
    ) -> Option<SessionRequest<'static>> {
        let Settings { sid_bytes_max, subscriptions_max, .. } = *self.settings;
        let Ok(pattern) = Pattern::from_bytes(Bytes::copy_from_slice(subject)) else {
            put_error(out, "Invalid Subject");
            return None;
        };
        let Ok(queue) = queue.map(|queue| Queue::from_bytes(Bytes::copy_from_slice(queue))).transpose() else {
            put_error(out, "Invalid Queue Name");
            return None;
        };
        if let Some(denial) = self.permissions.subscribe_denial(&pattern) {
            self.deny(denial, queue.as_ref(), out);
            return self.requests.pop_front();
        }
        if sid_bytes_max < sid.len() {
            put_error(out, format_args!("Invalid Subscription ID: more than {sid_bytes_max} bytes"));
            return None;
        }
        if self.subs.has(sid) {
            // As in nats-server, the first subscription remains.
            self.confirm(out);
            return None;
        }
        if subscriptions_max <= self.subs.len() {
            put_error(out, "maximum subscriptions exceeded");
            return None;
        }
        let sub = self.subs.add(sid, pattern.clone(), queue.is_some());
        self.has_pending_request = true;
        self.confirm_when_done();
        Some(SessionRequest::Subscribe { sub, filter: SubscriptionFilter { pattern, glob: None, queue } })
    }

    fn unsubscribe(&mut self, sid: &[u8], max: u64, out: &mut OutputBuffer) -> Option<SessionRequest<'static>> {
        let ended = self.subs.limit(sid, max);
        self.has_pending_request |= ended.is_some();
        self.confirm(out);
        ended.map(|sub| SessionRequest::Unsubscribe { sub })
    }

    /// Schedules a `+OK` for a verbose client. It is sent once the peer has completed the operation, unless the peer
    /// refuses it.
    #[inline]
    fn confirm_when_done(&mut self) {
        if self.options.verbose {
            self.is_ok_pending = true;
            self.requests.push_back(SessionRequest::Count { subjects: Vec::new() });
        }
    }

    fn send_ok(&mut self, out: &mut OutputBuffer) {
        if std::mem::take(&mut self.is_ok_pending) {
            out.put(b"+OK\r\n");
        }
    }

    /// Writes `+OK` to a verbose client.
    #[inline]
    fn confirm(&mut self, out: &mut OutputBuffer) {
        if self.options.verbose {
            out.put(b"+OK\r\n");
        }
    }
}
