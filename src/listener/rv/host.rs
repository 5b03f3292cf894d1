//! State of the daemon that all sessions of the listener share: it announces hosts, sessions and listens, and answers
//! the queries of monitors.

use super::advisory::{field, text};
use super::announcement_queue::{AnnouncementQueue, listen_message, message};
use super::message::{RvField, RvMessage, RvValue};
use super::request::{RvQuery, RvRequest};
use super::subject::{self, INBOX_PREFIX};
use crate::message::Message;
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, Instant, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Interval of the advisories about the state of the host.
const STATUS_INTERVAL: Duration = Duration::from_secs(90);
/// Maximum size of the answer to a query in bytes; the rest is left out.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum size in bytes of the answers in one [`ANSWER_PERIOD`], which the last one may exceed. Further queries have no
/// answer.
const ANSWERS_BYTES_MAX: usize = 16 << 20;
/// Period of [`ANSWERS_BYTES_MAX`].
const ANSWER_PERIOD: Duration = Duration::from_secs(1);

/// Facts about the daemon that do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RvHostFacts {
    /// Number by which clients know the daemon, as an address.
    pub host: Ipv4Addr,
    /// Name of the peer.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// TCP port of the listener.
    pub port: u16,
    /// Service that the listener serves.
    pub service: u16,
    /// Network that the listener serves, as text.
    pub network: String,
}

/// Traffic of the peer since its start, as clients read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RvTraffic {
    /// Number of messages sent and received.
    pub messages: [u64; 2],
    /// Number of bytes sent and received.
    pub bytes: [u64; 2],
    /// Number of datagrams sent and received.
    pub datagrams: [u64; 2],
    /// Number of datagrams sent again, and of those missed.
    pub repairs: [u64; 2],
    /// Number of messages lost here, and lost by others.
    pub losses: [u64; 2],
}

/// A connected client.
#[derive(Debug)]
struct HostClient {
    user: String,
    session: String,
    /// True if the client counts as part of the daemon's own session.
    is_shared: bool,
    /// True if no client before it has the name of its session.
    has_name: bool,
    /// Number of listens by subject.
    listens: BTreeMap<Bytes, u32>,
}

impl HostClient {
    /// Returns whether monitors see the client. A session with the name of another one would take its place.
    fn is_visible(&self) -> bool {
        self.has_name || self.is_shared
    }

    /// Returns whether monitors see the client as a session of its own.
    fn is_session(&self) -> bool {
        self.has_name && !self.is_shared
    }
}

/// State that all sessions of the listener share.
#[derive(Debug)]
pub struct RvHost {
    facts: RvHostFacts,
    /// Name of the session of all clients that have none of their own.
    own_session: String,
    clients: BTreeMap<u32, HostClient>,
    /// Names of the sessions of the clients, and the own one. Each belongs to the first client that uses it.
    names: BTreeSet<String>,
    /// Number of listens of the own session by subject.
    shared: BTreeMap<Bytes, u32>,
    /// Start of the first of the present clients, and the time of the next advisory about the state.
    running: Option<HostRun>,
    waiting: AnnouncementQueue,
    /// Beginning of the present period of answers.
    answers_since: Instant,
    /// Size of the answers in that period in bytes.
    answers_bytes: usize,
    /// Number of queries without an answer.
    unanswered: u64,
}

/// Time during which clients are connected.
#[derive(Clone, Copy, Debug)]
struct HostRun {
    started: Instant,
    next_status: Instant,
}

impl RvHost {
    /// Creates the state of a daemon without clients.
    pub fn new(facts: RvHostFacts, now: ClockReading) -> RvHost {
        let own_session = format!("{:08X}.DAEMON.{:X}", facts.host.to_bits(), now.wall.as_nanos() / 1000);
        RvHost {
            facts,
            names: BTreeSet::from([own_session.clone()]),
            own_session,
            clients: BTreeMap::new(),
            shared: BTreeMap::new(),
            running: None,
            waiting: AnnouncementQueue::default(),
            answers_since: now.instant,
            answers_bytes: 0,
            unanswered: 0,
        }
    }

    /// Handles a request of the session of this client.
    pub fn on_request(&mut self, now: ClockReading, client: u32, request: RvRequest) {
        match request {
            RvRequest::Started { user, session, is_shared } => self.start(now, client, user, session, is_shared),
            RvRequest::Listened { text, reply } => self.on_listened(client, &text, reply),
            RvRequest::Cancelled { text } => self.on_cancelled(client, &text),
            RvRequest::PublishLocal(_) => unreachable!("the shell delivers such a message"),
        }
    }

    /// Answers a message at the daemon's inbox, if it is a query that wants an answer.
    pub fn on_query(&mut self, now: ClockReading, message: &Message) {
        if let (Some(reply), Some(query)) = (message.reply.clone(), RvQuery::of(message)) {
            self.answer_within_limit(now, reply, &query);
        }
    }

    /// Counts queries that had no room before they were read.
    pub fn on_unanswered(&mut self, queries: u64) {
        self.unanswered += queries;
    }

    /// Returns the pattern of the daemon's inbox.
    pub fn inbox(&self) -> Pattern {
        format!("_INBOX.{}.DAEMON", self.host_hex()).parse().expect("a valid subject")
    }

    /// Returns whether clients are connected. Without any, the daemon has no inbox.
    pub fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Announces the end of a client, if its session had begun.
    pub fn on_departure(&mut self, now: ClockReading, client: u32) {
        let Some(departed) = self.clients.remove(&client) else { return };
        if departed.has_name {
            self.names.remove(&departed.session);
        }
        let HostClient { is_shared, session, listens, .. } = &departed;
        let is_last = |(text, count): &(&Bytes, &u32)| !is_shared || release(&mut self.shared, text, **count);
        let ended: Vec<Bytes> = listens.iter().filter(is_last).map(|(text, _)| text.clone()).collect();
        if !ended.is_empty() {
            let session = if *is_shared { &self.own_session } else { session };
            self.waiting.push_stops(session.clone(), ended);
        }
        if departed.is_shared {
            let name = format!("UNREACHABLE.TRANSPORT.{}", departed.session);
            let rest = vec![self.host_address(), field("tport", text(&departed.session))];
            self.waiting.push(message(&name, None, rest));
        } else if departed.has_name {
            self.announce_session("STOP", &departed.user, &departed.session);
        }
        if self.clients.is_empty() {
            self.running = None;
            let name = format!("HOST.STOP.{}", self.host_hex());
            let stop = message(&name, None, vec![self.host_address(), self.host_name(), time(now.wall)]);
            self.waiting.push(stop);
        }
    }

    /// Returns the next message to publish for whose subject `is_wanted` is true. Others are dropped. `None` may mean
    /// that there were many of them, so that the rest has to wait.
    pub fn poll_message(&mut self, is_wanted: impl FnMut(&Subject) -> bool) -> Option<Message> {
        self.waiting.poll(is_wanted)
    }

    /// Returns whether messages wait.
    pub fn has_messages(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of sessions, and that of dropped messages: too many waited, or too many were asked for.
    pub fn counts(&self) -> [u64; 2] {
        [self.clients.len() as u64, self.waiting.dropped() + self.unanswered]
    }

    /// Returns the deadline for [`RvHost::on_deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.running.map(|running| running.next_status)
    }

    /// Announces the state of the host, if that is due.
    pub fn on_deadline(&mut self, now: ClockReading, traffic: RvTraffic) {
        let Some(running) = self.running.as_mut().filter(|running| running.next_status <= now.instant) else { return };
        running.next_status = now.instant + STATUS_INTERVAL;
        self.announce_host("STATUS", now, Some(traffic));
    }

    fn start(&mut self, now: ClockReading, client: u32, user: String, session: String, is_shared: bool) {
        let is_first = self.clients.is_empty();
        let label = (user.clone(), session.clone());
        let has_name = self.names.insert(session.clone());
        self.clients.insert(client, HostClient { user, session, is_shared, has_name, listens: BTreeMap::new() });
        if is_first {
            self.running = Some(HostRun { started: now.instant, next_status: now.instant + STATUS_INTERVAL });
            self.announce_host("START", now, None);
        }
        if has_name && !is_shared {
            self.announce_session("START", &label.0, &label.1);
        }
    }

    fn on_listened(&mut self, client: u32, subject: &Bytes, reply: Option<Bytes>) {
        let Some(client) = self.clients.get_mut(&client).filter(|client| client.is_visible()) else { return };
        let listens = client.listens.entry(subject.clone()).or_default();
        *listens = listens.saturating_add(1);
        let count = match client.is_shared {
            true => {
                let shared = self.shared.entry(subject.clone()).or_default();
                *shared = shared.saturating_add(1);
                *shared
            }
            false => *listens,
        };
        let session = if client.is_shared { &self.own_session } else { &client.session };
        let announcement = listen_message("START", session, subject, count, reply.as_deref());
        self.waiting.push(announcement);
    }

    fn on_cancelled(&mut self, client: u32, subject: &Bytes) {
        let Some(client) = self.clients.get_mut(&client).filter(|client| client.is_visible()) else { return };
        let is_last = release(&mut client.listens, subject, 1);
        let (is_shared, session) = (client.is_shared, client.session.clone());
        let is_last = if is_shared { release(&mut self.shared, subject, 1) } else { is_last };
        if is_last {
            self.announce_stop(is_shared, &session, subject);
        }
    }

    /// Announces that the last listen of a session to the subject has ended.
    fn announce_stop(&mut self, is_shared: bool, session: &str, subject: &[u8]) {
        let session = if is_shared { &self.own_session } else { session };
        let announcement = listen_message("STOP", session, subject, 0, None);
        self.waiting.push(announcement);
    }

    fn announce_session(&mut self, event: &str, user: &str, session: &str) {
        let name = format!("SESSION.{event}.{}", self.host_hex());
        let rest = vec![self.host_address(), self.host_name(), field("id", text(session)), field("userid", text(user))];
        let announcement = message(&name, None, rest);
        self.waiting.push(announcement);
    }

    /// Announces the host. The traffic is part of its state.
    fn announce_host(&mut self, event: &str, now: ClockReading, traffic: Option<RvTraffic>) {
        let name = format!("HOST.{event}.{}", self.host_hex());
        let started = self.running.map_or(now.instant, |running| running.started);
        let up = u32::try_from(now.instant.since(started).as_secs()).unwrap_or(u32::MAX);
        let service = self.facts.service.to_string();
        let mut rest = vec![
            self.host_address(),
            self.host_name(),
            field("sn", RvValue::U32(1)),
            field("os", RvValue::U8(1)),
            field("ver", text(&self.facts.version)),
            time(now.wall),
            field("up", RvValue::U32(up)),
        ];
        rest.extend(traffic.map(traffic_fields).into_iter().flatten());
        rest.push(field("ipport", RvValue::IpPort(self.facts.port)));
        rest.push(field("service", text(&service)));
        rest.push(field("network", text(&self.facts.network)));
        let announcement = message(&name, None, rest);
        self.waiting.push(announcement);
    }

    /// Queues the answer to a query, unless the reply subject is no inbox, or the answers of this period are too
    /// large already.
    fn answer_within_limit(&mut self, now: ClockReading, reply: Subject, query: &RvQuery) {
        // A query must not make the daemon publish where its sender may not.
        if !reply.as_bytes().starts_with(INBOX_PREFIX) {
            return;
        }
        if ANSWER_PERIOD <= now.instant.since(self.answers_since) {
            (self.answers_since, self.answers_bytes) = (now.instant, 0);
        }
        if ANSWERS_BYTES_MAX <= self.answers_bytes {
            self.unanswered += 1;
            return;
        }
        if let Some(payload) = self.answer(query) {
            self.answers_bytes += payload.len();
            self.waiting.push(Some(Message::new(reply, payload)));
        }
    }

    /// Returns the answer to a query; `None` if the session is unknown.
    fn answer(&self, query: &RvQuery) -> Option<Vec<u8>> {
        let mut answer = RvMessage::default();
        let has_shared = self.clients.values().any(|client| client.is_shared);
        let own = has_shared.then_some(&self.own_session);
        let sessions = self.clients.values().filter(|client| client.is_session()).map(|client| &client.session);
        let mut budget = ANSWER_BYTES_MAX;
        match query {
            RvQuery::Sessions => {
                for session in own.into_iter().chain(sessions).take_while(|session| take(&mut budget, session.len())) {
                    answer.push("", text(session));
                }
            }
            RvQuery::Subscriptions(session) => {
                let is_named = |client: &&HostClient| client.is_session() && client.session == *session;
                let (user, listens) = match self.clients.values().find(is_named) {
                    Some(client) => (&client.user[..], &client.listens),
                    None if own == Some(session) => ("nobody", &self.shared),
                    None => return None,
                };
                answer.push("user", text(user));
                let exact = listens.keys().filter(|subject| !is_wildcard(subject));
                let wildcards = listens.keys().filter(|subject| is_wildcard(subject));
                for listen in exact.chain(wildcards).take_while(|listen| take(&mut budget, listen.len())) {
                    answer.push("", RvValue::Subject(subject::elements(listen)?));
                }
                answer.push("end", RvValue::I32(1));
            }
        }
        let mut payload = Vec::new();
        answer.encode(&mut payload).ok().map(|()| payload)
    }

    fn host_hex(&self) -> String {
        format!("{:08X}", self.facts.host.to_bits())
    }

    fn host_address(&self) -> RvField<'static> {
        field("hostaddr", RvValue::IpAddress(self.facts.host))
    }

    fn host_name(&self) -> RvField<'_> {
        field("hostid", text(&self.facts.name))
    }
}

/// Takes `listens` off the count of a subject. Returns whether none is left.
fn release(counts: &mut BTreeMap<Bytes, u32>, subject: &Bytes, listens: u32) -> bool {
    let Some(count) = counts.get_mut(subject) else { return false };
    *count = count.saturating_sub(listens);
    let is_last = *count == 0;
    if is_last {
        counts.remove(subject);
    }
    is_last
}

/// Takes the bytes of a field off the budget of an answer. Returns false if it is used up.
fn take(budget: &mut usize, bytes: usize) -> bool {
    *budget = budget.saturating_sub(bytes + 16);
    0 < *budget
}

/// Returns whether the text has a wildcard.
fn is_wildcard(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'.').any(|element| matches!(element, b"*" | b">"))
}

fn time(wall: WallTime) -> RvField<'static> {
    let micros = wall.as_nanos() / 1000;
    let secs = u32::try_from(micros / 1_000_000).unwrap_or(u32::MAX);
    let micros = u32::try_from(micros % 1_000_000).expect("less than a second");
    field("time", RvValue::DateTime { secs, micros })
}

fn traffic_fields(traffic: RvTraffic) -> Vec<RvField<'static>> {
    let RvTraffic { messages, bytes, datagrams, repairs, losses } = traffic;
    let pairs = [("ms", messages[0]), ("bs", bytes[0]), ("mr", messages[1]), ("br", bytes[1])];
    let more = [("ps", datagrams[0]), ("pr", datagrams[1]), ("rx", repairs[0]), ("pm", repairs[1])];
    let losses = [("idl", losses[0]), ("odl", losses[1])];
    pairs.into_iter().chain(more).chain(losses).map(|(name, count)| field(name, RvValue::U64(count))).collect()
}
