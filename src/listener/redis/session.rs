//! State of a Redis connection: its account, its protocol version and the pending answer.

use super::command_table::{CommandEntry, CommandId, find, wrong_number};
use super::parser::{RedisCommand, number};
use super::pubsub::{LossCounter, RedisSubscriptions, SubscriptionKind, deliver, no_channel, want};
use super::reply::ReplyWriter;
use super::{RedisFault, Settings, admin, client, info};
use crate::delivery::Deliveries;
use crate::listener::access::{Account, Credentials, is_equal};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{
    ClientFacts, ConnectionInfo, ListedSubscription, Publish, ReceiverCount, RespState, ServerFacts, SessionRequest,
};
use crate::message::{Count, Headers, Refusal, SubId};
use crate::subject::glob::Glob;
use crate::subject::{Subject, channel};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// Maximum number of glob matching steps to select the channels of a list, about 50 ms.
const LIST_STEPS_MAX: usize = 20_000_000;

/// Commands that are answered (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyMode {
    All,
    /// All commands except the next one.
    SkipNext,
    /// All commands except the present one.
    Skip,
    None,
}

/// Answer from the peer that the client's last command waits for.
#[derive(Debug)]
pub(super) enum PendingReply {
    Nothing,
    ReceiverCount,
    /// Channels, and the index of each in the peer's answer if it maps to a subject.
    Counts(Vec<(Bytes, Option<usize>)>),
    Channels(Option<Glob>),
    Patterns,
    Info(Vec<Vec<u8>>),
    Clients(client::ClientFilter),
    /// The flag is true if the reply is the number of closed connections.
    Kill(client::ClientFilter, bool),
}

/// Session of one Redis connection.
#[derive(Debug)]
pub struct RedisSession {
    settings: Arc<Settings>,
    pub(super) client: u32,
    pub(super) listen: SocketAddr,
    pub(super) is_resp3: bool,
    pub(super) name: String,
    /// Account; `None` before authentication.
    pub(super) account: Option<String>,
    wrong_passwords: u32,
    /// Deadline for the authentication of the client.
    auth_deadline: Instant,
    answers: ReplyMode,
    pub(super) subs: RedisSubscriptions,
    pub(super) lost: LossCounter,
    pub(super) pending: PendingReply,
    pub(super) asks: VecDeque<SessionRequest<'static>>,
    /// Channel of the last published message, and its subject.
    recent: Option<(Vec<u8>, Subject)>,
    /// Name of the last command, or `None` before the first one and after an unknown one.
    last_command: Option<&'static str>,
    /// Time of the last command, or of the connection before the first one.
    last_command_at: Instant,
    is_closing: bool,
}

/// User name that an `AUTH` with only a password implies.
const DEFAULT: &str = "default";
/// Maximum number of sections of an `INFO` that are evaluated; further ones are ignored.
const SECTIONS_MAX: usize = 64;
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> \
                           <pass> option can be used to authenticate the client and select the RESP protocol version at the \
                           same time";

impl RedisSession {
    /// Creates the session of a new connection.
    pub fn new(settings: Arc<Settings>, hello: &ConnectionInfo, now: Instant) -> RedisSession {
        let is_closed = settings.access.is_closed();
        RedisSession {
            client: hello.client,
            listen: hello.listen,
            is_resp3: false,
            name: String::new(),
            account: (!is_closed).then(|| DEFAULT.into()),
            wrong_passwords: 0,
            auth_deadline: now + settings.auth_time,
            answers: ReplyMode::All,
            subs: RedisSubscriptions::default(),
            lost: LossCounter::default(),
            pending: PendingReply::Nothing,
            asks: VecDeque::new(),
            recent: None,
            last_command: None,
            last_command_at: now,
            is_closing: false,
            settings,
        }
    }

    /// Handles the opened connection. This protocol has no greeting.
    pub fn on_open(&mut self, _: &mut OutputBuffer) {
        if let Some(account) = &self.account {
            self.asks.push_back(SessionRequest::Admitted { account: account.clone() });
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
        Ok(self.asks.pop_front())
    }

    /// Returns a further request of the last command to the peer.
    pub fn poll_request(&mut self) -> Option<SessionRequest<'static>> {
        self.asks.pop_front()
    }

    /// Writes the error that ends the connection.
    pub fn on_fault(&mut self, fault: &RedisFault, out: &mut OutputBuffer) {
        self.is_closing = true;
        match fault {
            // The browser gets no answer that it could show.
            RedisFault::Http => {}
            RedisFault::Passwords => ReplyWriter::new(out, self.is_resp3, false).error(WRONG_PASSWORD),
            fault => ReplyWriter::new(out, self.is_resp3, false).error(format!("ERR {fault}")),
        }
    }

    /// Handles the peer's refusal of the last request. A subscription with this number does not exist.
    pub fn on_refused(&mut self, sub: Option<SubId>, refusal: &Refusal, out: &mut OutputBuffer) {
        let text = refused(refusal);
        self.pending = PendingReply::Nothing;
        self.reply(out).error(text);
        // The subscription was already confirmed, so the client is notified that it has ended.
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

    /// Handles the answer to [`SessionRequest::Count`].
    pub fn on_counts(&mut self, counts: &[ReceiverCount], out: &mut OutputBuffer) {
        let PendingReply::Counts(channels) = self.take_pending() else { return };
        let mut reply = self.reply(out);
        reply.array(2 * channels.len());
        for (channel, at) in channels {
            reply.bulk(&channel);
            reply.integer(at.and_then(|at| counts.get(at)).map_or(0, |receivers| receivers.count));
        }
    }

    /// Handles the answer to [`SessionRequest::List`]. Returns the number of matching steps that were used.
    pub fn on_subscription_list(&mut self, listed: &[ListedSubscription], out: &mut OutputBuffer) -> usize {
        match self.take_pending() {
            PendingReply::Patterns => {
                let patterns: BTreeSet<_> =
                    listed.iter().filter(|listed| !listed.is_exact()).map(|l| &l.wanted).collect();
                self.reply(out).integer(patterns.len() as u64);
                0
            }
            PendingReply::Channels(glob) => {
                let exact = listed.iter().filter(|listed| listed.is_exact());
                let subjects = exact.filter_map(|listed| listed.wanted.pattern.as_str().parse::<Subject>().ok());
                let names = subjects.map(|subject| channel::of_subject(&subject).into_owned());
                let mut reply = self.reply(out);
                let (channels, steps) = chosen(names.collect(), glob.as_ref());
                if let Some(channels) = channels {
                    reply.array(channels.len());
                    channels.iter().for_each(|channel| reply.bulk(channel));
                } else {
                    reply.error(format!(
                        "ERR there are so many channels that this glob would take more than {LIST_STEPS_MAX} steps: the \
                         fewer bytes between two *, the fewer steps"
                    ));
                }
                steps
            }
            _ => 0,
        }
    }

    /// Handles the answer to [`SessionRequest::ServerFacts`].
    pub fn on_server_facts(&mut self, facts: &ServerFacts, out: &mut OutputBuffer) {
        if let PendingReply::Info(sections) = self.take_pending() {
            let text = info::text(facts, &sections, self);
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
    pub(super) fn reply<'a>(&self, out: &'a mut OutputBuffer) -> ReplyWriter<'a> {
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
    pub(super) fn close(&mut self) {
        self.is_closing = true;
        self.asks.push_back(SessionRequest::Close);
    }

    #[inline]
    fn publish<'a>(&mut self, command: RedisCommand<'a>, out: &mut OutputBuffer) -> Option<SessionRequest<'a>> {
        let name = command.arg(1);
        let subject = match &self.recent {
            Some((recent, subject)) if recent == name => subject.clone(),
            _ => match channel::to_subject(name) {
                Ok(subject) => {
                    self.recent = Some((name.to_vec(), subject.clone()));
                    subject
                }
                Err(error) => {
                    self.reply(out).error(no_channel(&error));
                    return None;
                }
            },
        };
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
                self.asks.push_back(SessionRequest::ServerFacts);
            }
            CommandId::ClientReply => self.client_reply(command, out),
            CommandId::ClientGetname
            | CommandId::ClientNumber
            | CommandId::ClientInfo
            | CommandId::ClientKill
            | CommandId::ClientList
            | CommandId::ClientSetinfo
            | CommandId::ClientSetname
            | CommandId::ClientSwitch => self.client(entry.id, command, out),
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

    fn auth(&mut self, command: RedisCommand<'_>, out: &mut OutputBuffer) -> Result<(), RedisFault> {
        let (name, password) = match command.len() {
            2 if !self.settings.access.is_closed() => {
                self.reply(out).error(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                     configuration is correct?",
                );
                return Ok(());
            }
            2 => (DEFAULT.as_bytes(), command.arg(1)),
            3 => (command.arg(1), command.arg(2)),
            _ => {
                self.reply(out).error("ERR syntax error");
                return Ok(());
            }
        };
        if self.log_in(name, password)? {
            self.reply(out).ok();
        } else {
            self.reply(out).error(WRONG_PASSWORD);
        }
        Ok(())
    }

    /// Returns whether the name and password belong to an account, and records the account if they do.
    fn log_in(&mut self, name: &[u8], password: &[u8]) -> Result<bool, RedisFault> {
        let access = &self.settings.access;
        // Every account is checked, so that the time does not reveal which account matched.
        let fits = |account: &Account| match &account.credentials {
            Credentials::User { name: user, password: word } => is_equal(user, name) & is_equal(word, password),
            Credentials::Token(word) => (name == DEFAULT.as_bytes()) & is_equal(word, password),
            Credentials::Nkey(_) => false,
        };
        let is_right = access.accounts.iter().fold(false, |found, account| found | fits(account));
        if is_right || !access.is_closed() && name == DEFAULT.as_bytes() {
            let account = String::from_utf8_lossy(name).into_owned();
            self.account = Some(account.clone());
            self.asks.push_back(SessionRequest::Admitted { account });
            return Ok(true);
        }
        self.wrong_passwords += 1;
        if self.settings.auth_attempts_max <= self.wrong_passwords { Err(RedisFault::Passwords) } else { Ok(false) }
    }

    fn hello(&mut self, command: RedisCommand<'_>, out: &mut OutputBuffer) -> Result<(), RedisFault> {
        let mut is_resp3 = self.is_resp3;
        if 1 < command.len() {
            let Some(version) = number(command.arg(1)) else {
                self.reply(out).error("ERR Protocol version is not an integer or out of range");
                return Ok(());
            };
            if !(2..=3).contains(&version) {
                self.reply(out).error("NOPROTO unsupported protocol version");
                return Ok(());
            }
            is_resp3 = version == 3;
        }
        let (mut login, mut name) = (None, None);
        let mut at = 2;
        while at < command.len() {
            let (option, more) = (command.arg(at), command.len() - at - 1);
            if option.eq_ignore_ascii_case(b"AUTH") && 2 <= more {
                login = Some((command.arg(at + 1), command.arg(at + 2)));
                at += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && 1 <= more {
                match client::name(command.arg(at + 1)) {
                    Ok(text) => name = Some(text),
                    Err(error) => {
                        self.reply(out).error(error);
                        return Ok(());
                    }
                }
                at += 2;
            } else {
                let option = &option[..option.len().min(128)];
                self.reply(out).error([b"ERR Syntax error in HELLO option '", option, b"'"].concat());
                return Ok(());
            }
        }
        if let Some((user, password)) = login
            && !self.log_in(user, password)?
        {
            self.reply(out).error(WRONG_PASSWORD);
            return Ok(());
        }
        if !self.is_admitted() {
            self.reply(out).error(HELLO_FIRST);
            return Ok(());
        }
        if let Some(name) = name {
            self.be_named(name);
        }
        self.is_resp3 = is_resp3;
        info::hello(self.client, is_resp3, &mut self.reply(out));
        Ok(())
    }

    pub(super) fn be_named(&mut self, name: String) {
        self.name.clone_from(&name);
        self.asks.push_back(SessionRequest::Named { name });
    }

    fn reset(&mut self, now: Instant, out: &mut OutputBuffer) {
        let ended = self.subs.clear().map(|sub| SessionRequest::Unsubscribe { sub });
        self.asks.extend(ended);
        if !self.name.is_empty() {
            self.be_named(String::new());
        }
        self.answers = ReplyMode::All;
        self.is_resp3 = false;
        // An unauthenticated client gains no time.
        if self.settings.access.is_closed() && self.account.take().is_some() {
            self.auth_deadline = now + self.settings.auth_time;
        }
        self.reply(out).simple("RESET");
    }

    fn client_reply(&mut self, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let word = command.arg(2).to_ascii_lowercase();
        match (&word[..], self.answers) {
            (b"on", _) => {
                self.answers = ReplyMode::All;
                self.reply(out).ok();
            }
            (b"off", _) => self.answers = ReplyMode::None,
            (b"skip", ReplyMode::None) => {}
            (b"skip", _) => self.answers = ReplyMode::SkipNext,
            _ => self.reply(out).error("ERR syntax error"),
        }
    }

    /// Begins all subscriptions, or none if one of them is invalid.
    fn subscribe(&mut self, kind: SubscriptionKind, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let mut wanted = Vec::with_capacity(command.len() - 1);
        let mut added = BTreeSet::new();
        for name in command.args(1) {
            let name = Bytes::copy_from_slice(name);
            match want(kind, &name) {
                Ok(want) => wanted.push((name.clone(), want)),
                Err(error) => return self.reply(out).error(error),
            }
            if !self.subs.has(kind, &name) {
                added.insert(name);
            }
            let max = self.settings.subscriptions_max;
            if max < self.subs.len() + added.len() {
                return self.reply(out).error(format!("ERR a client may have at most {max} subscriptions"));
            }
        }
        for (name, wanted) in wanted {
            if !self.subs.has(kind, &name) {
                let sub = self.subs.add(kind, name.clone());
                self.asks.push_back(SessionRequest::Subscribe { sub, wanted });
            }
            let count = self.subs.count(kind);
            self.reply(out).subscription(kind.push_types()[0], Some(&name), count);
        }
    }

    /// Ends the named subscriptions, or all of this kind.
    fn unsubscribe(&mut self, kind: SubscriptionKind, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let names: Vec<Bytes> = match command.len() {
            1 => self.subs.names(kind),
            _ => command.args(1).map(Bytes::copy_from_slice).collect(),
        };
        let word = kind.push_types()[1];
        if names.is_empty() {
            let count = self.subs.count(kind);
            return self.reply(out).subscription(word, None, count);
        }
        for name in names {
            self.asks.extend(self.subs.remove(kind, &name).map(|sub| SessionRequest::Unsubscribe { sub }));
            let count = self.subs.count(kind);
            self.reply(out).subscription(word, Some(&name), count);
        }
    }

    fn pubsub(&mut self, id: CommandId, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        match (id, command.len()) {
            (CommandId::PubsubNumpat, _) => {
                self.pending = PendingReply::Patterns;
                self.asks.push_back(SessionRequest::List);
            }
            (CommandId::PubsubNumsub, 2) => self.reply(out).array(0),
            (CommandId::PubsubNumsub, _) => {
                let (mut channels, mut subjects) = (Vec::new(), Vec::new());
                for name in command.args(2) {
                    // A name that maps to no subject has no subscriptions.
                    let subject = channel::to_subject(name).ok();
                    channels.push((Bytes::copy_from_slice(name), subject.as_ref().map(|_| subjects.len())));
                    subjects.extend(subject);
                }
                self.pending = PendingReply::Counts(channels);
                self.asks.push_back(SessionRequest::Count { subjects });
            }
            (_, 2) => self.list_channels(None),
            (_, 3) => match Glob::new(command.arg(2)) {
                Ok(glob) => self.list_channels(Some(glob)),
                Err(error) => self.reply(out).error(format!("ERR {error}")),
            },
            _ => {
                let name = &command.arg(1)[..command.arg(1).len().min(128)];
                let (before, behind) =
                    (b"ERR unknown subcommand or wrong number of arguments for '", b"'. Try PUBSUB HELP.");
                self.reply(out).error([&before[..], name, behind].concat());
            }
        }
    }

    fn list_channels(&mut self, glob: Option<Glob>) {
        self.pending = PendingReply::Channels(glob);
        self.asks.push_back(SessionRequest::List);
    }
}

/// Returns the channels that match the glob, or `None` if the step limit is exhausted, and the number of steps used.
fn chosen(mut channels: BTreeSet<Vec<u8>>, glob: Option<&Glob>) -> (Option<BTreeSet<Vec<u8>>>, usize) {
    let Some(glob) = glob else { return (Some(channels), 0) };
    let mut left = LIST_STEPS_MAX;
    channels.retain(|channel| {
        let (matches, steps) = if left == 0 { (false, 0) } else { glob.matches_counted(channel) };
        left = left.saturating_sub(steps);
        matches
    });
    ((0 < left).then_some(channels), LIST_STEPS_MAX - left)
}

fn refused(refusal: &Refusal) -> String {
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
        Refusal::Subject(error) => no_channel(error),
        Refusal::Stopping => "ERR the peer is stopping".into(),
        Refusal::QueueLive | Refusal::QueueNews => unreachable!("no listener asks for that"),
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
