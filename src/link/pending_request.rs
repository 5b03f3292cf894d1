//! Requests that wait for replies, and the time and the memory that they may take.

use super::site_name::SiteName;
use crate::message::Message;
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Time without a reply after which a request is forgotten.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of requests that wait. Further ones are dropped.
pub const PENDING_MAX: usize = 65_536;
/// Maximum bytes of the requests that may still be sent to another site. Further ones are dropped.
pub const PENDING_BYTES_MAX: usize = 64 << 20;

/// Sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOrigin {
    /// A program of this site.
    Lan,
    /// A gateway of another site, for a program there.
    Site,
    /// A client of the cluster.
    Client,
}

/// Receiver of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayStage {
    /// None yet: the gateway waits for the number of the subscriptions on its LAN.
    Lookup,
    /// The programs of this site.
    Lan,
    /// Another site, or the clients of the cluster.
    Hub,
}

/// A request that waits for replies.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) origin: RequestOrigin,
    pub(super) stage: RelayStage,
    pub(super) subject: Subject,
    /// Subject to which the replies go.
    pub(super) reply: Subject,
    /// The request, while it may have to be sent again.
    pub(super) message: Option<Message>,
    /// Sites that it may still be sent to, the next one last.
    pub(super) sites: Vec<SiteName>,
    /// Site that it was sent to last; `None` if that were the clients of the cluster.
    pub(super) asked: Option<SiteName>,
    /// True if it may still be sent to the clients of the cluster.
    pub(super) asks_clients: bool,
    /// True if the subscriptions of the LAN are known, so that their absence is certain.
    pub(super) is_certain: bool,
    pub(super) has_reply: bool,
    /// Number of times that it was sent to the cluster.
    pub(super) attempts: u8,
    until: Instant,
}

impl PendingRequest {
    fn bytes(&self) -> usize {
        self.message.as_ref().map_or(0, Message::body_bytes)
    }
}

/// The requests that wait for replies, by their numbers.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    requests: BTreeMap<u64, PendingRequest>,
    /// Times at which they may end, ascending.
    deadlines: VecDeque<(Instant, u64)>,
    /// Subjects to which the replies to requests of other sites go: one for each request.
    site_replies: BTreeSet<Subject>,
    bytes: usize,
    last: u64,
}

impl PendingRequests {
    /// Adds a request. Returns its number; `None` if there is no room, or if the cluster repeats a request of another site.
    pub(super) fn add(&mut self, now: Instant, origin: RequestOrigin, message: Message, reply: Subject) -> Option<u64> {
        let bytes = message.body_bytes();
        if PENDING_MAX <= self.requests.len() || PENDING_BYTES_MAX < self.bytes + bytes {
            return None;
        }
        if origin == RequestOrigin::Site && !self.site_replies.insert(reply.clone()) {
            return None;
        }
        self.bytes += bytes;
        self.last += 1;
        let until = now + REPLY_TIMEOUT;
        self.deadlines.push_back((until, self.last));
        let request = PendingRequest {
            origin,
            stage: RelayStage::Lookup,
            subject: message.subject.clone(),
            reply,
            message: Some(message),
            sites: Vec::new(),
            asked: None,
            asks_clients: false,
            is_certain: false,
            has_reply: false,
            attempts: 0,
            until,
        };
        self.requests.insert(self.last, request);
        Some(self.last)
    }

    /// Returns a request that is in this stage.
    pub(super) fn find(&mut self, number: u64, stage: RelayStage) -> Option<&mut PendingRequest> {
        self.requests.get_mut(&number).filter(|request| request.stage == stage)
    }

    /// Notes that a request goes to the cluster, unless the programs of this site have it. Returns it.
    pub(super) fn begin_hub(&mut self, number: u64) -> Option<&mut PendingRequest> {
        let request = self.requests.get_mut(&number).filter(|request| request.stage != RelayStage::Lan)?;
        request.stage = RelayStage::Hub;
        Some(request)
    }

    /// Takes the message of a request that is not sent again.
    pub(super) fn take_message(&mut self, number: u64) -> Option<Message> {
        let message = self.requests.get_mut(&number)?.message.take()?;
        self.bytes -= message.body_bytes();
        Some(message)
    }

    /// Notes a reply: others may follow.
    pub(super) fn on_reply(&mut self, now: Instant, number: u64) {
        drop(self.take_message(number));
        if let Some(request) = self.requests.get_mut(&number) {
            (request.has_reply, request.until) = (true, now + REPLY_TIMEOUT);
        }
    }

    /// Ends a request.
    pub(super) fn remove(&mut self, number: u64) -> Option<PendingRequest> {
        let request = self.requests.remove(&number)?;
        self.bytes -= request.bytes();
        if request.origin == RequestOrigin::Site {
            self.site_replies.remove(&request.reply);
        }
        Some(request)
    }

    /// Ends the requests whose time has passed. Their senders have timeouts of their own.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, number)) = self.deadlines.front().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.pop_front();
            match self.requests.get(&number).map(|request| request.until) {
                Some(until) if now < until => self.deadlines.push_back((until, number)),
                Some(_) => drop(self.remove(number)),
                None => {}
            }
        }
    }

    /// Returns the time of the next expiry.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(requests: &mut PendingRequests, now: Instant, bytes: usize) -> Option<u64> {
        let message = Message::new("plant.x".parse().unwrap(), vec![0; bytes]);
        requests.add(now, RequestOrigin::Lan, message, "_INBOX.x".parse().unwrap())
    }

    #[test]
    fn room_returns_once_requests_end() {
        let (start, mut requests) = (Instant::ZERO, PendingRequests::default());
        let half = PENDING_BYTES_MAX / 2;
        let numbers = [half, half].map(|bytes| add(&mut requests, start, bytes).expect("room"));
        assert_eq!(add(&mut requests, start, 1), None);
        requests.on_reply(start + REPLY_TIMEOUT / 2, numbers[0]);
        assert_eq!(requests.bytes, half, "a request with a reply is not sent again");
        requests.expire(start + REPLY_TIMEOUT);
        assert_eq!((requests.bytes, requests.requests.len()), (0, 1), "further replies may follow the first one");
        requests.expire(start + REPLY_TIMEOUT * 2);
        assert_eq!((requests.requests.len(), requests.deadline()), (0, None));
        for _ in 0..PENDING_MAX {
            add(&mut requests, start, 0).expect("room");
        }
        assert_eq!(add(&mut requests, start, 0), None);
    }
}
