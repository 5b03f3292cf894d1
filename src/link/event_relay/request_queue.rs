//! Requests of followers for events of another site, at either end of the link.

use crate::event::model::ServerId;
use crate::link::envelope::parse_epoch;
use crate::link::site_name::SiteName;
use crate::message::Epoch;
use crate::subject::Subject;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time after which a server that does not answer is sent the next request. Its follower repeats this one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of requests to one server that wait for the answer to an earlier one.
const WAITING_MAX: usize = 64;
/// Maximum bytes of all waiting requests.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Time for which an answer to a request of this LAN is awaited. A follower repeats a request after at most a minute.
const PENDING_TIME: Duration = Duration::from_secs(120);
/// Maximum number of requests of this LAN without an answer.
const PENDING_MAX: usize = 1024;

/// Identity of a request: the site and the gateway that have sent it, and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayedRequest {
    pub(super) site: SiteName,
    pub(super) gateway: Epoch,
    pub(super) number: u64,
}

impl RelayedRequest {
    /// Returns the value of the header field.
    pub(super) fn to_value(&self) -> String {
        format!("{} {} {}", self.site, self.gateway, self.number)
    }

    /// Parses the value of the header field.
    pub(super) fn from_value(value: &str) -> Option<RelayedRequest> {
        let mut words = value.split(' ');
        let (site, gateway, number) = (words.next()?, words.next()?, words.next()?);
        let request =
            RelayedRequest { site: site.parse().ok()?, gateway: parse_epoch(gateway)?, number: number.parse().ok()? };
        words.next().is_none().then_some(request)
    }
}

/// A request that a server of this LAN has yet to answer.
#[derive(Debug)]
struct SentQuery {
    /// Number on this LAN.
    number: u64,
    at: Instant,
    request: RelayedRequest,
}

/// Requests of other sites to one server.
#[derive(Debug, Default)]
struct ServerQueue {
    sent: Option<SentQuery>,
    waiting: VecDeque<(RelayedRequest, Bytes)>,
}

/// Requests of other sites to servers of this LAN. A server answers one request of a peer at a time.
#[derive(Debug, Default)]
pub(super) struct ExportedRequests {
    queues: BTreeMap<ServerId, ServerQueue>,
    /// Bytes of the waiting requests.
    bytes: usize,
    /// Number of requests sent so far.
    count: u64,
}

impl ExportedRequests {
    /// Appends a request, unless it waits already. Returns false if there is no room.
    pub(super) fn add(&mut self, server: ServerId, request: RelayedRequest, payload: Bytes) -> bool {
        let queue = self.queues.entry(server).or_default();
        let is_sent = queue.sent.as_ref().is_some_and(|sent| sent.request == request);
        if is_sent || queue.waiting.iter().any(|(waiting, _)| *waiting == request) {
            return true;
        }
        if WAITING_MAX <= queue.waiting.len() || WAITING_BYTES_MAX < self.bytes + payload.len() {
            return false;
        }
        self.bytes += payload.len();
        queue.waiting.push_back((request, payload));
        true
    }

    /// Returns the next request to send to a server with its number on this LAN, unless an answer is awaited.
    pub(super) fn next(&mut self, now: Instant, server: ServerId) -> Option<(u64, Bytes)> {
        let queue = self.queues.get_mut(&server)?;
        if queue.sent.as_ref().is_some_and(|sent| now.since(sent.at) < ANSWER_TIMEOUT) {
            return None;
        }
        queue.sent = None;
        let (request, payload) = queue.waiting.pop_front()?;
        self.bytes -= payload.len();
        self.count += 1;
        queue.sent = Some(SentQuery { number: self.count, at: now, request });
        Some((self.count, payload))
    }

    /// Returns the server that has yet to answer the request with this number.
    pub(super) fn server(&self, number: u64) -> Option<ServerId> {
        let is_sent = |queue: &ServerQueue| queue.sent.as_ref().is_some_and(|sent| sent.number == number);
        self.queues.iter().find(|(_, queue)| is_sent(queue)).map(|(server, _)| *server)
    }

    /// Removes and returns the request that this server has answered.
    pub(super) fn take(&mut self, server: ServerId) -> Option<RelayedRequest> {
        self.queues.get_mut(&server)?.sent.take().map(|sent| sent.request)
    }

    /// Returns the servers that have not answered in time, if further requests wait.
    pub(super) fn overdue(&self, now: Instant) -> Vec<ServerId> {
        let is_overdue = |queue: &ServerQueue| {
            let is_late = queue.sent.as_ref().is_none_or(|sent| ANSWER_TIMEOUT <= now.since(sent.at));
            is_late && !queue.waiting.is_empty()
        };
        self.queues.iter().filter(|(_, queue)| is_overdue(queue)).map(|(server, _)| *server).collect()
    }

    /// Drops the requests to the other servers than those for which `is_relayed` returns true.
    pub(super) fn retain(&mut self, is_relayed: impl Fn(ServerId) -> bool) {
        self.queues.retain(|server, _| is_relayed(*server));
        let waiting = self.queues.values().flat_map(|queue| &queue.waiting);
        self.bytes = waiting.map(|(_, payload)| payload.len()).sum();
    }
}

/// A request of a follower of this LAN that has no answer yet.
#[derive(Debug)]
pub(super) struct PendingRelayAnswer {
    pub(super) number: u64,
    pub(super) server: ServerId,
    /// Site of the server.
    pub(super) site: String,
    /// Time of the last transmission.
    at: Instant,
}

/// Requests of followers of this LAN to servers of other sites, by the subjects of their answers.
#[derive(Debug, Default)]
pub(super) struct ImportedRequests {
    pending: BTreeMap<Subject, PendingRelayAnswer>,
    /// Number of requests so far.
    count: u64,
}

impl ImportedRequests {
    /// Notes a request. A repeated one keeps its number. Returns the number, or `None` if there is no room.
    pub(super) fn add(&mut self, now: Instant, reply: Subject, server: ServerId, site: &str) -> Option<u64> {
        let is_same = |pending: &PendingRelayAnswer| pending.server == server && pending.site == site;
        if let Some(pending) = self.pending.get_mut(&reply).filter(|pending| is_same(pending)) {
            pending.at = now;
            return Some(pending.number);
        }
        if PENDING_MAX <= self.pending.len() && !self.pending.contains_key(&reply) {
            return None;
        }
        self.count += 1;
        self.pending.insert(reply, PendingRelayAnswer { number: self.count, server, site: site.to_owned(), at: now });
        Some(self.count)
    }

    /// Removes the request to this server of this site with this number. Returns the subject of its answer.
    pub(super) fn take(&mut self, number: u64, server: ServerId, site: &str) -> Option<Subject> {
        let is_answered =
            |pending: &PendingRelayAnswer| pending.number == number && pending.server == server && pending.site == site;
        let (reply, _) = self.pending.iter().find(|(_, pending)| is_answered(pending))?;
        let reply = reply.clone();
        self.pending.remove(&reply);
        Some(reply)
    }

    /// Forgets the requests for whose answers nobody waits any more.
    pub(super) fn expire(&mut self, now: Instant) {
        self.pending.retain(|_, pending| now.since(pending.at) < PENDING_TIME);
    }
}
