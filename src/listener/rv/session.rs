//! Session of a Rendezvous connection: the handshake, the listens, and the messages of both directions.

use super::advisory::{self, EncodedAdvisory};
use super::client_error::{self, refusal_text};
use super::envelope::{RvEnvelope, RvLetter};
use super::fault::{InitError, RvFault};
use super::handshake::{self, RvInit};
use super::message::kind;
use super::message_writer::RvWriter;
use super::parser::RvCommand;
use super::payload::RvHeaders;
use super::request::RvRequest;
use super::settings::{ENVELOPE_BYTES, Settings};
use super::subject::{self, ADVISORY_PREFIX, INBOX_PREFIX, LOCAL_PREFIX};
use super::subscriptions::{LOSSES, RvSubscriptions};
use crate::delivery::Deliveries;
use crate::listener::client_permissions::ClientPermissions;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{ConnectionInfo, Publish, SessionRequest};
use crate::message::{Delivery, Headers, Message, Refusal, SubId};
use crate::subject::{Pattern, SUBJECT_BYTES_MAX, Subject};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Pattern of the advisories about losses, which every client gets.
const LOSS_ADVISORIES: &str = "_RV.ERROR.SYSTEM.DATALOSS.>";
/// Time for which a client with a list of patterns may answer a request, at least. It is at most twice as long.
const REQUEST_PERIOD: Duration = Duration::from_secs(120);

/// Progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InitStage {
    /// No init has come.
    Nothing,
    /// The first init is answered.
    Answered,
    /// The session has begun.
    Connected,
}

/// Session of one Rendezvous connection.
#[derive(Debug)]
pub struct RvSession {
    settings: Arc<Settings>,
    stage: InitStage,
    /// Unique name of the connection.
    gob: String,
    /// Pattern of the client's own inboxes, if no other client can have the session.
    own_inboxes: Option<Pattern>,
    /// Names in the client's verified certificate.
    certificate_names: Vec<String>,
    /// Account of the client; empty if none is required.
    account: String,
    permissions: ClientPermissions,
    subs: RvSubscriptions,
    writer: RvWriter,
    requests: VecDeque<SessionRequest<'static>>,
    /// Subject of the last published message: its field, and the subject on the bus.
    last_subject: Option<(Vec<u8>, Subject)>,
    handshake_deadline: Instant,
    /// Time at which the next period for answers begins, for a client with a list of patterns.
    answer_deadline: Option<Instant>,
}

impl RvSession {
    /// Creates the session of a new connection.
    pub fn new(settings: Arc<Settings>, connection: &ConnectionInfo, now: Instant) -> RvSession {
        let [a, b, c, d, e, f, g, h, ..] = connection.nonce;
        // Thirteen digits, as daemons write.
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 12;
        RvSession {
            stage: InitStage::Nothing,
            gob: format!("{number:013X}"),
            own_inboxes: None,
            certificate_names: Vec::new(),
            account: String::new(),
            permissions: ClientPermissions::new(&settings.access.permissions),
            subs: RvSubscriptions::default(),
            writer: RvWriter::default(),
            requests: VecDeque::new(),
            last_subject: None,
            handshake_deadline: now + settings.handshake_time,
            answer_deadline: None,
            settings,
        }
    }

    /// Writes the version record, with which the daemon begins.
    pub fn on_open(&mut self, out: &mut OutputBuffer) {
        out.put(&handshake::VERSION);
    }

    /// Records the names in the client's verified certificate.
    pub fn on_certificate(&mut self, names: &[String]) {
        self.certificate_names = names.to_vec();
    }

    /// Handles the client's next command. Returns its first request to the peer;
    /// [`poll_request`](RvSession::poll_request) returns the others.
    ///
    /// # Errors
    /// The command ends the connection.
    #[inline]
    pub fn on_command<'a>(
        &mut self,
        now: Instant,
        command: RvCommand<'a>,
        out: &mut OutputBuffer,
    ) -> Result<Option<SessionRequest<'a>>, RvFault> {
        match command {
            RvCommand::Version => out.put(&handshake::info(handshake::OFFER)),
            RvCommand::Info => out.put(&handshake::info(handshake::AGREED)),
            RvCommand::TooLarge { bytes } => self.report_too_large(bytes, out),
            RvCommand::Envelope(envelope) => match envelope.letter {
                RvLetter::Init => self.init(now, &envelope, out)?,
                RvLetter::Data | RvLetter::Listen | RvLetter::Cancel if !self.is_admitted() => {
                    return Err(RvFault::NoSession);
                }
                RvLetter::Data => return self.publish(envelope, out),
                RvLetter::Listen => self.listen(&envelope, out)?,
                RvLetter::Cancel => self.cancel(&envelope)?,
                RvLetter::Advisory | RvLetter::Response | RvLetter::Process => return Err(RvFault::DaemonLetter),
            },
        }
        Ok(self.requests.pop_front())
    }

    /// Returns a further request to the peer.
    pub fn poll_request(&mut self) -> Option<SessionRequest<'static>> {
        self.requests.pop_front()
    }

    /// Writes the refusal of an init. The protocol has no other report of a fault.
    pub fn on_fault(&mut self, fault: &RvFault, out: &mut OutputBuffer) {
        if let RvFault::Init(error) = fault {
            out.put(&handshake::refused(*error));
        }
    }

    /// Handles the peer's refusal of a message, or of the subscription `sub`, which then does not exist.
    pub fn on_refused(&mut self, sub: Option<SubId>, refusal: &Refusal, out: &mut OutputBuffer) {
        if let Some(sub) = sub {
            // The subscriptions of the session itself are not those of the client.
            let Some(text) = self.subs.remove(sub) else { return };
            // The daemon announces no listen that does not exist.
            let is_announced = |request: &SessionRequest<'_>| matches!(request, SessionRequest::Rv(RvRequest::Listened { text: listened, .. }) if *listened == text);
            self.requests.retain(|request| !is_announced(request));
            return self.report_illegal_listen(&text, &refusal_text(refusal), out);
        }
        match refusal {
            Refusal::MessageTooLarge { bytes, .. } => self.report_too_large(*bytes, out),
            Refusal::Stopping => {}
            refusal => {
                let text = self.last_subject.as_ref().map(|(_, subject)| subject::of_subject(subject));
                self.report_illegal_publish(&text.unwrap_or_default(), &refusal_text(refusal), out);
            }
        }
    }

    /// Returns the subscription to which a message on this subject that matches all of `subs` is delivered: a client
    /// gets one copy. Returns none for messages of programs that match the subscription to losses alone, and for inboxes
    /// that only a listen to `>` matches.
    pub fn delivery_subs<'a>(&self, subs: &'a [SubId], subject: &Subject) -> &'a [SubId] {
        self.subs.first_of(subs, subject.as_bytes().starts_with(INBOX_PREFIX))
    }

    /// Writes an advisory that the peer itself has made, whether the client listens to it or not.
    pub fn on_advisory(&mut self, advisory: &Delivery, out: &mut OutputBuffer) {
        if !self.is_admitted() {
            return;
        }
        match advisory::of_json(&advisory.message.payload) {
            Some(encoded) => encoded.frame().iter().for_each(|frame| out.put(frame)),
            None => _ = self.writer.write(&Deliveries::from(advisory.clone()), out),
        }
    }

    /// Writes messages for one subscription, as [`RvSession::delivery_subs`] returns it. Returns the number of messages
    /// written.
    pub fn on_deliveries(&mut self, subs: &[SubId], deliveries: &Deliveries, out: &mut OutputBuffer) -> usize {
        let Some(sub) = subs.first() else { return 0 };
        if !self.is_admitted() || !self.subs.has_id(*sub) {
            return 0;
        }
        let written = self.writer.write(deliveries, out);
        if 0 < written && self.permissions.records_requests() {
            let permissions = &mut self.permissions;
            deliveries.clone().visit(|delivery| {
                if !delivery.reply.is_empty() {
                    permissions.on_request(delivery.reply);
                }
            });
        }
        written
    }

    /// Begins the time limit of a new connection again.
    pub fn restart_deadlines(&mut self, now: Instant) {
        self.handshake_deadline = now + self.settings.handshake_time;
    }

    /// Returns the deadline for [`on_deadline`](RvSession::on_deadline).
    pub fn deadline(&self) -> Option<Instant> {
        if self.is_admitted() { self.answer_deadline } else { Some(self.handshake_deadline) }
    }

    /// Handles the deadline if it has passed.
    ///
    /// # Errors
    /// The client did not complete the handshake in time.
    pub fn on_deadline(&mut self, now: Instant, _: &mut OutputBuffer) -> Result<(), RvFault> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if !self.is_admitted() {
            return Err(RvFault::HandshakeTime);
        }
        self.permissions.end_period();
        self.answer_deadline = Some(now + REQUEST_PERIOD);
        Ok(())
    }

    /// Returns whether the session has begun.
    pub fn is_admitted(&self) -> bool {
        self.stage == InitStage::Connected
    }

    /// Returns the number of listens to different subjects.
    pub fn subscriptions(&self) -> usize {
        self.subs.len()
    }

    /// Returns whether the session has this subscription.
    pub fn has_subscription(&self, sub: SubId) -> bool {
        self.subs.has_id(sub)
    }

    /// Returns the bytes held for requests that the client may answer.
    pub fn held_bytes(&self) -> usize {
        self.permissions.held_bytes()
    }

    /// Answers an init: the first one with the names of the daemon, a later one with the beginning of the session.
    fn init(&mut self, now: Instant, envelope: &RvEnvelope<'_>, out: &mut OutputBuffer) -> Result<(), RvFault> {
        let init = RvInit::read(envelope);
        init.check(&self.settings).map_err(RvFault::Init)?;
        match self.stage {
            InitStage::Nothing => {
                self.authenticate()?;
                out.put(&handshake::accepted(&self.settings, &init, &self.gob));
                self.stage = InitStage::Answered;
            }
            InitStage::Answered => {
                self.begin(now, init);
                out.put(&handshake::connected());
            }
            InitStage::Connected => out.put(&handshake::connected()),
        }
        Ok(())
    }

    /// Finds the account of the client's certificate, if the listener has accounts.
    fn authenticate(&mut self) -> Result<(), RvFault> {
        let access = &self.settings.access;
        if access.requires_authentication() {
            let found = access.account_of_certificate(&self.certificate_names);
            let found = found.ok_or(RvFault::Init(InitError::Account))?;
            found.credentials.public_name().clone_into(&mut self.account);
            self.permissions.set(&found.permissions);
        }
        Ok(())
    }

    /// Begins the session.
    fn begin(&mut self, now: Instant, init: RvInit) {
        let own = format!("{}.{}", host_hex(&self.settings), self.gob);
        let session = init.session.filter(|name| subject::to_subject(name.as_bytes()).is_ok()).unwrap_or(own);
        // The daemon knows its own name behind the number of any host.
        let is_shared = session.get(9..) == Some(&self.gob);
        if is_shared {
            self.own_inboxes = format!("_INBOX.{session}.>").parse().ok();
        }
        self.stage = InitStage::Connected;
        self.answer_deadline = self.permissions.records_requests().then(|| now + REQUEST_PERIOD);
        let name = format!("{} {session}", init.user);
        self.requests.push_back(SessionRequest::Admitted { account: self.account.clone() });
        self.requests.push_back(SessionRequest::Named { name });
        let losses: Pattern = LOSS_ADVISORIES.parse().expect("a constant that is a pattern");
        self.requests.push_back(SessionRequest::Subscribe { sub: LOSSES, filter: losses.into() });
        self.requests.push_back(SessionRequest::Rv(RvRequest::Started { user: init.user, session, is_shared }));
    }

    #[inline]
    fn publish<'a>(
        &mut self,
        envelope: RvEnvelope<'a>,
        out: &mut OutputBuffer,
    ) -> Result<Option<SessionRequest<'a>>, RvFault> {
        let field = envelope.subject.ok_or(RvFault::Subject)?;
        let subject = match &self.last_subject {
            Some((last, subject)) if last == field => subject.clone(),
            _ => {
                let text = subject::text(field).map_err(RvFault::Message)?;
                match subject::to_subject(&text) {
                    Ok(subject) => {
                        self.last_subject = Some((field.to_vec(), subject.clone()));
                        subject
                    }
                    Err(error) => {
                        self.report_illegal_publish(&text, &error.to_string(), out);
                        return Ok(self.requests.pop_front());
                    }
                }
            }
        };
        let reply = match envelope.reply.map(subject::to_subject).transpose() {
            Ok(reply) => reply,
            Err(error) => {
                let text = format!("invalid reply subject: {error}");
                self.report_illegal_publish(&subject::of_subject(&subject), &text, out);
                return Ok(self.requests.pop_front());
            }
        };
        let foreign = reply.as_ref().filter(|reply| !self.is_own_inbox(reply));
        if let Some(denial) = self.permissions.publish_denial(&subject, foreign) {
            self.report_illegal_publish(&subject::of_subject(&subject), &denial.to_string(), out);
            self.requests.push_back(SessionRequest::Denied(denial));
            return Ok(self.requests.pop_front());
        }
        let others = if envelope.has_others { envelope.others() } else { Vec::new() };
        if ENVELOPE_BYTES < others.len() {
            let text = format!("the further fields of the envelope have more than {ENVELOPE_BYTES} bytes");
            self.report_illegal_publish(&subject::of_subject(&subject), &text, out);
            return Ok(self.requests.pop_front());
        }
        let headers = match (&envelope.data, envelope.has_others) {
            (Some(data), false) if data.kind == kind::MESSAGE => Headers::new(),
            (None, false) => Headers::new(),
            (data, true) => RvHeaders::new(data.as_ref(), others).to_headers(),
            (data, false) => RvHeaders::new(data.as_ref(), Vec::new()).to_headers(),
        };
        let payload = envelope.data.map_or(&[][..], |data| data.data);
        if subject.as_bytes().starts_with(LOCAL_PREFIX) {
            let message = Message { reply, headers, ..Message::new(subject, payload.to_vec()) };
            return Ok(Some(SessionRequest::Rv(RvRequest::PublishLocal(message))));
        }
        Ok(Some(SessionRequest::Publish(Publish { subject, reply, headers, payload, wants_receivers: false })))
    }

    fn is_own_inbox(&self, subject: &Subject) -> bool {
        self.own_inboxes.as_ref().is_some_and(|own| own.matches(subject))
    }

    /// Counts a listen, and subscribes with the first one to a subject.
    fn listen(&mut self, envelope: &RvEnvelope<'_>, out: &mut OutputBuffer) -> Result<(), RvFault> {
        let text = subject::text(envelope.subject.ok_or(RvFault::Subject)?).map_err(RvFault::Message)?;
        if !self.subs.has(&text) {
            let pattern = match subject::to_pattern(&text) {
                Ok(pattern) => pattern,
                Err(error) => {
                    self.report_illegal_listen(&text, &error.to_string(), out);
                    return Ok(());
                }
            };
            if self.settings.subscriptions_max <= self.subs.len() {
                let refusal = Refusal::TooManySubscriptions { max: self.settings.subscriptions_max };
                self.report_illegal_listen(&text, &refusal_text(&refusal), out);
                return Ok(());
            }
            let is_own = self.own_inboxes.as_ref() == Some(&pattern);
            if let Some(denial) = self.permissions.subscribe_denial(&pattern).filter(|_| !is_own) {
                self.report_illegal_listen(&text, &denial.to_string(), out);
                self.requests.push_back(SessionRequest::Denied(denial));
                return Ok(());
            }
            let (_, sub) = self.subs.add(&text);
            let sub = sub.expect("the first listen to a subject begins a subscription");
            self.requests.push_back(SessionRequest::Subscribe { sub, filter: pattern.into() });
        } else {
            self.subs.add(&text);
        }
        if is_announced(&text) {
            let reply = envelope.reply.filter(|reply| self.may_announce(reply)).map(Bytes::copy_from_slice);
            self.requests.push_back(SessionRequest::Rv(RvRequest::Listened { text: text.into(), reply }));
        }
        Ok(())
    }

    /// Returns whether the announcement of a listen may have this reply subject. Otherwise a client could make
    /// publishers of images publish where the client itself may not.
    fn may_announce(&mut self, reply: &[u8]) -> bool {
        let Ok(reply) = subject::to_subject(reply) else { return false };
        let denial = if self.is_own_inbox(&reply) { None } else { self.permissions.reply_denial(&reply) };
        let is_permitted = denial.is_none();
        self.requests.extend(denial.map(SessionRequest::Denied));
        is_permitted
    }

    /// Takes a listen away, and unsubscribes with the last one. A cancel without a listen is ignored.
    fn cancel(&mut self, envelope: &RvEnvelope<'_>) -> Result<(), RvFault> {
        let text = subject::text(envelope.subject.ok_or(RvFault::Subject)?).map_err(RvFault::Message)?;
        if let Some((text, ended)) = self.subs.cancel(&text) {
            self.requests.extend(ended.map(|sub| SessionRequest::Unsubscribe { sub }));
            if is_announced(&text) {
                self.requests.push_back(SessionRequest::Rv(RvRequest::Cancelled { text }));
            }
        }
        Ok(())
    }

    /// Reports to the client that its message is too large.
    fn report_too_large(&mut self, bytes: usize, out: &mut OutputBuffer) {
        let reason = client_error::too_large_text(&self.settings, bytes);
        self.report(client_error::too_large(&self.settings, &reason), "message size", reason, out);
    }

    /// Reports to the client that it cannot publish on a subject.
    fn report_illegal_publish(&mut self, text: &[u8], reason: &str, out: &mut OutputBuffer) {
        self.report_illegal("CLIENT.ILLEGAL_PUBLISH", text, reason, out);
    }

    /// Reports to the client that it cannot listen to a subject. Libraries do not know this advisory; the protocol has
    /// no other answer to a listen.
    fn report_illegal_listen(&mut self, text: &[u8], reason: &str, out: &mut OutputBuffer) {
        self.report_illegal("CLIENT.ILLEGAL_LISTEN", text, reason, out);
    }

    fn report_illegal(&mut self, name: &'static str, text: &[u8], reason: &str, out: &mut OutputBuffer) {
        let text = &text[..text.len().min(SUBJECT_BYTES_MAX)];
        let transport = format!("{}.{}", host_hex(&self.settings), self.gob);
        let advisory = client_error::illegal(name, text, &transport, reason);
        self.report(advisory, name, format!("{}: {reason}", text.escape_ascii()), out);
    }

    /// Sends an advisory to the client alone, whether it listens to it or not, and reports it to the operator.
    fn report(
        &mut self,
        advisory: Option<EncodedAdvisory>,
        kind: &'static str,
        reason: String,
        out: &mut OutputBuffer,
    ) {
        let frame = advisory.and_then(|advisory| advisory.frame());
        frame.iter().for_each(|frame| out.put(frame));
        self.requests.push_back(SessionRequest::Refused { kind, reason });
    }
}

/// Returns the number of the daemon as clients write it.
pub(super) fn host_hex(settings: &Settings) -> String {
    format!("{:08X}", settings.host.to_bits())
}

/// Returns whether listens to the subject are announced. Those to advisories and inboxes are not.
fn is_announced(text: &[u8]) -> bool {
    !text.starts_with(ADVISORY_PREFIX) && !text.starts_with(INBOX_PREFIX)
}
