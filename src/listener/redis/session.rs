//! Session of a Redis connection: its account, its protocol version and the pending reply.

mod authentication;
mod client_commands;
mod subscription_commands;

use super::client_filter::ClientFilter;
use super::command::{RedisCommand, number};
use super::command_table::{CommandEntry, CommandId, find, wrong_number};
use super::fault::RedisFault;
use super::pubsub::{LossCounter, RedisSubscriptions, SubscriptionKind, deliver, invalid_channel};
use super::reply::ReplyWriter;
use super::settings::Settings;
use super::{admin, info};
use crate::delivery::Deliveries;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Denial, DeniedAction, Permissions};
use crate::listener::session_request::{
    ClientFacts, ConnectionInfo, Publish, ReceiverCount, RespState, ServerFacts, SessionRequest,
};
use crate::message::{Count, Headers, Refusal, SubId};
use crate::subject::glob::Glob;
use crate::subject::{Subject, channel};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Commands to which the session replies (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyMode {
    All,
    /// All commands except the next one.
    SkipNext,
    /// All commands except the present one.
    Skip,
    None,
}

/// Reply to the client's last command that waits for an answer from the peer.
#[derive(Debug)]
enum PendingReply {
    Nothing,
    ReceiverCount,
    /// Channels, and the index of each in the peer's answer if it maps to a subject.
    Counts(Vec<(Bytes, Option<usize>)>),
    Channels(Option<Glob>),
    Patterns,
    Info(Vec<Vec<u8>>),
    Clients(ClientFilter),
    /// The flag is true if the reply is the number of closed connections.
    Kill(ClientFilter, bool),
}

/// Session of one Redis connection.
#[derive(Debug)]
pub struct RedisSession {
    settings: Arc<Settings>,
    client: u32,
    listen: SocketAddr,
    is_resp3: bool,
    name: String,
    /// Account; `None` before authentication.
    account: Option<String>,
    /// Permissions of the account.
    permissions: Permissions,
    /// Names in the client's verified certificate.
    certificate_names: Vec<String>,
    wrong_passwords: u32,
    /// Deadline for the authentication of the client.
    auth_deadline: Instant,
    answers: ReplyMode,
    subs: RedisSubscriptions,
    lost: LossCounter,
    pending: PendingReply,
    requests: VecDeque<SessionRequest<'static>>,
    /// Channel of the last published message, and its subject.
    last_channel: Option<(Vec<u8>, Subject)>,
    /// Name of the last command, or `None` before the first one and after an unknown one.
    last_command: Option<&'static str>,
    /// Time of the last command, or of the connection before the first one.
    last_command_at: Instant,
    is_closing: bool,
}

/// Error of redis-server 7.0 for a channel that the account does not permit.
const NO_PERMISSION: &str = "NOPERM this user has no permissions to access one of the channels used as arguments";
/// Maximum number of sections of an `INFO` that are evaluated; further ones are ignored.
const SECTIONS_MAX: usize = 64;

impl RedisSession {
    /// Creates the session of a new connection.
    pub fn new(settings: Arc<Settings>, connection: &ConnectionInfo, now: Instant) -> RedisSession {
        let requires_authentication = settings.access.requires_authentication();
        RedisSession {
            client: connection.client,
            listen: connection.listen,
            is_resp3: false,
            name: String::new(),
            account: (!requires_authentication).then(|| authentication::DEFAULT_USER.into()),
            permissions: settings.access.permissions.clone(),
            certificate_names: Vec::new(),
            wrong_passwords: 0,
            auth_deadline: now + settings.auth_time,
            answers: ReplyMode::All,
            subs: RedisSubscriptions::default(),
            lost: LossCounter::default(),
            pending: PendingReply::Nothing,
            requests: VecDeque::new(),
            last_channel: None,
            last_command: None,
            last_command_at: now,
            is_closing: false,
            settings,
        }
    }

    /// Handles a new connection. This protocol has no greeting.
    pub fn on_open(&mut self, _: &mut OutputBuffer) {
        if let Some(account) = &self.account {
            self.requests.push_back(SessionRequest::Admitted { account: account.clone() });
        }
    }

    /// Handles the client's next command. Returns its first request to the peer;
    /// [`poll_request`](RedisSession::poll_request) returns the others.
    ///
    /// # Errors
    /// The command ends the connection.
    #[inline]
    pub fn on_command<'a>(
        &mut self,
        now: Instant,
        command: RedisCommand<'a>,
        out: &mut OutputBuffer,
    ) -> Result<Option<SessionRequest<'a>>, RedisFault> {
        if self.is_closing {
            return Ok(None);
        }
        self.answers = match self.answers {
            ReplyMode::SkipNext => ReplyMode::Skip,
            ReplyMode::Skip => ReplyMode::All,
            same => same,
        };
        self.pending = PendingReply::Nothing;
        self.last_command_at = now;
        if command.len() == 3 && command.is(b"PUBLISH") && self.is_admitted() && !self.is_subscriber() {
            self.last_command = Some("publish");
            return Ok(self.publish(command, out));
        }
        if command.is(b"POST") || command.is(b"HOST:") {
            return Err(RedisFault::Http);
        }
        let found = find(&command);
        self.last_command = found.as_ref().ok().map(|entry| entry.name);
        match found.and_then(|entry| entry.check_arity(&command).map(|()| entry)) {
            Err(error) => self.reply(out).error(error),
            Ok(entry) if !self.is_admitted() && !entry.is_allowed_unauthenticated() => {
                self.reply(out).error("NOAUTH Authentication required.");
            }
            Ok(entry) if self.is_subscriber() && !entry.is_for_subscribers() => {
                self.reply(out).error(format!(
                    "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                     this context",
                    entry.name
                ));
            }
            Ok(CommandEntry { id: CommandId::Publish, .. }) => return Ok(self.publish(command, out)),
            Ok(entry) => self.run(now, entry, command, out)?,
        }
        Ok(self.requests.pop_front())
    }

    /// Returns a further request of the last command to the peer.
    pub fn poll_request(&mut self) -> Option<SessionRequest<'static>> {
        self.requests.pop_front()
    }

    /// Writes the error that ends the connection.
    pub fn on_fault(&mut self, fault: &RedisFault, out: &mut OutputBuffer) {
        self.is_closing = true;
        match fault {
            // A browser gets no answer that it could display.
            RedisFault::Http => {}
            RedisFault::Passwords => ReplyWriter::new(out, self.is_resp3, false).error(authentication::WRONG_PASSWORD),
            fault => ReplyWriter::new(out, self.is_resp3, false).error(format!("ERR {fault}")),
        }
    }

    /// Handles the peer's refusal of the last request. If `sub` is given, this subscription does not exist.
    pub fn on_refused(&mut self, sub: Option<SubId>, refusal: &Refusal, out: &mut OutputBuffer) {
        let text = refusal_reply(refusal);
        self.pending = PendingReply::Nothing;
        self.reply(out).error(text);
        // The session has confirmed the subscription already, so it notifies the client of its end.
        if let Some((kind, name)) = sub.and_then(|sub| self.subs.by_id(sub)) {
            self.subs.remove(kind, &name);
            let count = self.subs.count(kind);
            self.reply(out).subscription(kind.push_types()[1], Some(&name), count);
        }
    }

    /// Handles the number of receivers of the published message.
    #[inline]
    pub fn on_published(&mut self, _: Option<&Subject>, receivers: ReceiverCount, out: &mut OutputBuffer) {
        if let PendingReply::ReceiverCount = self.take_pending() {
            self.reply(out).integer(receivers.count);
        }
    }

    /// Returns whether the next command, if it is equal to the last publish apart from the payload, would be answered in
    /// the same way.
    pub fn may_repeat_publishes(&self) -> bool {
        matches!(self.answers, ReplyMode::All | ReplyMode::None)
    }

    /// Handles the number of receivers of a message that was published like the last one.
    #[inline]
    pub fn on_repeated_publish(&mut self, receivers: ReceiverCount, out: &mut OutputBuffer) {
        self.reply(out).integer(receivers.count);
    }

    /// Handles the answer to [`SessionRequest::ServerFacts`].
    pub fn on_server_facts(&mut self, facts: &ServerFacts, out: &mut OutputBuffer) {
        if let PendingReply::Info(sections) = self.take_pending() {
            let text = info::text(facts, &sections, self.lost.count());
            self.reply(out).text(&text);
        }
    }

    /// Handles the answer to [`SessionRequest::Clients`].
    pub fn on_clients(&mut self, clients: &[ClientFacts], out: &mut OutputBuffer) {
        match self.take_pending() {
            PendingReply::Clients(filter) => {
                let text = self.client_list(clients, &filter);
                self.reply(out).text(&text);
            }
            PendingReply::Kill(filter, is_counted) => self.kill(clients, &filter, is_counted, out),
            _ => {}
        }
    }

    /// Writes messages for these subscriptions. Returns the number of messages written.
    pub fn on_deliveries(&mut self, subs: &[SubId], deliveries: &Deliveries, out: &mut OutputBuffer) -> usize {
        if self.is_closing { 0 } else { deliver(&self.subs, subs, deliveries, self.is_resp3, out) }
    }

    /// Returns the number of messages lost for the client, over all subscriptions.
    pub fn lost(&self) -> Count {
        self.lost.count()
    }

    /// Counts `lost` messages for each of these subscriptions. The protocol cannot report a loss; `CLIENT INFO` shows
    /// the sum.
    pub fn on_lost(&mut self, subs: &[SubId], lost: Count) {
        subs.iter().for_each(|_| self.lost.add(lost));
    }

    /// Does nothing, because the protocol cannot report that the peer is about to stop.
    pub fn on_stop(&mut self, _: &mut OutputBuffer) {}

    /// Begins the time limit of a new connection again.
    pub fn restart_deadlines(&mut self, now: Instant) {
        self.auth_deadline = now + self.settings.auth_time;
    }

    /// Returns the deadline for [`on_deadline`](RedisSession::on_deadline).
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_admitted()).then_some(self.auth_deadline)
    }

    /// Handles the deadline if it has passed.
    ///
    /// # Errors
    /// The client did not authenticate in time.
    pub fn on_deadline(&mut self, now: Instant, _: &mut OutputBuffer) -> Result<(), RedisFault> {
        if self.deadline().is_some_and(|deadline| deadline <= now) { Err(RedisFault::AuthTime) } else { Ok(()) }
    }

    /// Returns whether the client is authenticated, or needs no authentication.
    pub fn is_admitted(&self) -> bool {
        self.account.is_some()
    }

    /// Returns the state of this connection that `CLIENT LIST` shows to every client.
    pub fn resp_state(&self, now: Instant) -> RespState {
        RespState {
            last_command: self.last_command,
            idle_secs: now.since(self.last_command_at).as_secs(),
            version: if self.is_resp3 { 3 } else { 2 },
            subscriptions: self.subs.counts(),
        }
    }

    /// Returns the number of subscriptions.
    pub fn subscriptions(&self) -> usize {
        self.subs.len()
    }

    /// Returns whether the session has this subscription.
    pub fn has_subscription(&self, sub: SubId) -> bool {
        self.subs.has_id(sub)
    }

    /// Returns the writer for the reply to the present command.
    #[inline]
    fn reply<'a>(&self, out: &'a mut OutputBuffer) -> ReplyWriter<'a> {
        ReplyWriter::new(out, self.is_resp3, matches!(self.answers, ReplyMode::Skip | ReplyMode::None))
    }

    #[inline]
    fn take_pending(&mut self) -> PendingReply {
        std::mem::replace(&mut self.pending, PendingReply::Nothing)
    }

    /// Returns whether the connection is in subscriber mode: a RESP2 connection with subscriptions.
    fn is_subscriber(&self) -> bool {
        !self.is_resp3 && 0 < self.subs.len()
    }

    /// Closes the connection once all output is written.
    fn close(&mut self) {
        self.is_closing = true;
        self.requests.push_back(SessionRequest::Close);
    }

    #[inline]
    fn publish<'a>(&mut self, command: RedisCommand<'a>, out: &mut OutputBuffer) -> Option<SessionRequest<'a>> {
        let name = command.arg(1);
        let subject = match &self.last_channel {
            Some((last_channel, subject)) if last_channel == name => subject.clone(),
            _ => match channel::to_subject(name) {
                Ok(subject) => {
                    self.last_channel = Some((name.to_vec(), subject.clone()));
                    subject
                }
                Err(error) => {
                    self.reply(out).error(invalid_channel(&error));
                    return None;
                }
            },
        };
        if !self.permissions.publish.permits(&subject) {
            self.deny(DeniedAction::Publish, name, out);
            return self.requests.pop_front();
        }
        self.pending = PendingReply::ReceiverCount;
        let headers = Headers::new();
        Some(SessionRequest::Publish(Publish {
            subject,
            reply: None,
            headers,
            payload: command.arg(2),
            wants_receivers: true,
        }))
    }

    /// Refuses an action that the account does not permit, and reports that to the operator.
    fn deny(&mut self, action: DeniedAction, channel: &[u8], out: &mut OutputBuffer) {
        self.reply(out).error(NO_PERMISSION);
        self.requests.push_back(SessionRequest::Denied(Denial::new(action, channel.escape_ascii())));
    }

    fn run(
        &mut self,
        now: Instant,
        entry: &CommandEntry,
        command: RedisCommand<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), RedisFault> {
        let mut reply = self.reply(out);
        match entry.id {
            CommandId::Auth => return self.auth(command, out),
            CommandId::Hello => return self.hello(command, out),
            CommandId::Ping => self.ping(command, out),
            CommandId::Echo => reply.bulk(command.arg(1)),
            CommandId::Select => select(command, &mut reply),
            CommandId::Flush => flush(command, &mut reply),
            CommandId::Monitor => reply.error("ERR MONITOR is not supported: PSUBSCRIBE * shows every message"),
            CommandId::Quit => {
                reply.ok();
                self.close();
            }
            CommandId::Reset => self.reset(now, out),
            CommandId::Subscribe => self.subscribe(SubscriptionKind::Channel, command, out),
            CommandId::Psubscribe => self.subscribe(SubscriptionKind::Glob, command, out),
            CommandId::Ssubscribe => self.subscribe(SubscriptionKind::Shard, command, out),
            CommandId::Unsubscribe => self.unsubscribe(SubscriptionKind::Channel, command, out),
            CommandId::Punsubscribe => self.unsubscribe(SubscriptionKind::Glob, command, out),
            CommandId::Sunsubscribe => self.unsubscribe(SubscriptionKind::Shard, command, out),
            CommandId::PubsubChannels | CommandId::PubsubNumpat | CommandId::PubsubNumsub => {
                self.pubsub(entry.id, command, out)
            }
            CommandId::Info => {
                self.pending =
                    PendingReply::Info(command.args(1).take(SECTIONS_MAX).map(<[u8]>::to_ascii_lowercase).collect());
                self.requests.push_back(SessionRequest::ServerFacts);
            }
            CommandId::ClientReply => self.client_reply(command, out),
            CommandId::ClientGetname
            | CommandId::ClientNumber
            | CommandId::ClientInfo
            | CommandId::ClientKill
            | CommandId::ClientList
            | CommandId::ClientSetinfo
            | CommandId::ClientSetname
            | CommandId::ClientSwitch => self.run_client(entry.id, command, out),
            id => admin::run(id, command, &mut reply),
        }
        Ok(())
    }

    fn ping(&self, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let mut reply = self.reply(out);
        match (command.len(), self.is_subscriber()) {
            (1, false) => reply.simple("PONG"),
            (2, false) => reply.bulk(command.arg(1)),
            (1 | 2, true) => {
                reply.array(2);
                reply.bulk(b"pong");
                reply.bulk(if command.len() == 2 { command.arg(1) } else { b"" });
            }
            _ => reply.error(wrong_number("ping")),
        }
    }
}

/// Returns the error reply for a refusal of the peer.
fn refusal_reply(refusal: &Refusal) -> String {
    match refusal {
        Refusal::MessageTooLarge { bytes, bytes_max } => {
            format!("ERR a message has at most {bytes_max} bytes, this one has {bytes}")
        }
        Refusal::TooManySubscriptions { max } => format!("ERR there may be at most {max} subscriptions"),
        Refusal::TooManyGlobSteps { max } => {
            format!(
                "ERR globs may take at most {max} steps for a message: the fewer bytes between two *, the fewer steps"
            )
        }
        Refusal::PublishDenied(_) | Refusal::SubscribeDenied(_) => NO_PERMISSION.into(),
        Refusal::Subject(error) => invalid_channel(error),
        Refusal::Stopping => "ERR the peer is stopping".into(),
        Refusal::QueueLive | Refusal::QueueDiscovery => unreachable!("no listener sends such a request"),
    }
}

fn select(command: RedisCommand<'_>, reply: &mut ReplyWriter<'_>) {
    match number(command.arg(1)) {
        Some(0..=15) => reply.ok(),
        Some(_) => reply.error("ERR DB index is out of range"),
        None => reply.error("ERR value is not an integer or out of range"),
    }
}

/// Replies OK without effect, because there are no keys.
fn flush(command: RedisCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let is_known = |word: &[u8]| word.eq_ignore_ascii_case(b"ASYNC") || word.eq_ignore_ascii_case(b"SYNC");
    if command.len() <= 2 && command.args(1).all(is_known) { reply.ok() } else { reply.error("ERR syntax error") }
}
