//! Large messages to fetch from the history: each is requested once, regardless of the number of its datagrams being
//! rebuilt.
//!
//! A message is identified by the datagram in which it begins. It is requested once that datagram is accounted for, so
//! that the fetched message has a position. Until the answer, every datagram being rebuilt with a part of it waits.

use super::retry::{RETRY_INTERVAL, RetryTimer};
use crate::message::Dseq;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum bytes requested at a time, unless one message is larger. Without this limit, answers that wait behind others
/// would be requested again in vain.
const REQUESTED_BYTES_MAX: usize = 1 << 20;
/// Time per byte that an answer may take before it is requested again (8 MiB/s, of a network of 100 Mbit/s).
const NANOS_PER_BYTE: u64 = 120;

/// Identity of a message in its history, and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageKey {
    /// The subject.
    pub subject: Subject,
    /// The number.
    pub seq: Seq,
    /// Bytes of the whole body.
    pub bytes: usize,
}

/// A large message to fetch.
#[derive(Clone, Debug)]
struct LargeMessage {
    key: MessageKey,
    /// Datagrams being rebuilt that have a part of it; at least one.
    waiting: BTreeSet<Dseq>,
    state: FetchState,
}

#[derive(Clone, Debug)]
enum FetchState {
    /// The datagram in which it begins is missing, and its content is still unknown.
    BeginningUnknown,
    /// It is requested when there is room.
    Queued,
    /// It was requested.
    Requested(RetryTimer),
}

/// Large messages of one stream, each with a datagram that is being rebuilt.
#[derive(Clone, Debug, Default)]
pub(super) struct LargeMessages {
    by_first: BTreeMap<Dseq, LargeMessage>,
    queued: BTreeSet<Dseq>,
    /// Bytes of the requested messages.
    requested_bytes: usize,
}

impl LargeMessages {
    /// Returns the message that begins in this datagram.
    pub(super) fn key(&self, first: Dseq) -> Option<&MessageKey> {
        self.by_first.get(&first).map(|large| &large.key)
    }

    /// Adds a datagram being rebuilt that has a part of a message. `has_head` is true if the beginning is accounted
    /// for.
    pub(super) fn add_datagram(&mut self, first: Dseq, dseq: Dseq, key: &MessageKey, has_head: bool) {
        let new = || LargeMessage { key: key.clone(), waiting: BTreeSet::new(), state: FetchState::BeginningUnknown };
        self.by_first.entry(first).or_insert_with(new).waiting.insert(dseq);
        if has_head {
            self.on_head(first);
        }
    }

    /// Handles the arrival of the message's beginning, or of the content of its datagram.
    pub(super) fn on_head(&mut self, first: Dseq) {
        if let Some(large) = self.by_first.get_mut(&first)
            && matches!(large.state, FetchState::BeginningUnknown)
        {
            large.state = FetchState::Queued;
            self.queued.insert(first);
        }
    }

    /// Removes a datagram with a part of the message that is not rebuilt any more. The last one cancels the fetch.
    pub(super) fn remove_datagram(&mut self, first: Dseq, dseq: Dseq) {
        if let Some(large) = self.by_first.get_mut(&first) {
            large.waiting.remove(&dseq);
            if large.waiting.is_empty() {
                self.remove(first);
            }
        }
    }

    /// Removes a message whose outcome is decided. Returns the datagrams that waited for it.
    pub(super) fn remove(&mut self, first: Dseq) -> Option<BTreeSet<Dseq>> {
        let large = self.by_first.remove(&first)?;
        self.queued.remove(&first);
        if let FetchState::Requested(_) = large.state {
            self.requested_bytes -= large.key.bytes;
        }
        Some(large.waiting)
    }

    /// Returns a message whose beginning was not accounted for, and now lies below the settled frontier.
    pub(super) fn headless_below(&self, frontier: Dseq) -> Option<Dseq> {
        let has_unknown_beginning = |large: &LargeMessage| matches!(large.state, FetchState::BeginningUnknown);
        self.by_first.range(..frontier).find(|(_, large)| has_unknown_beginning(large)).map(|(first, _)| *first)
    }

    /// Returns the first queued message, if there is room for it.
    fn next(&self) -> Option<Dseq> {
        let first = self.queued.first()?;
        let bytes = self.by_first.get(first).map_or(0, |large| large.key.bytes);
        (self.requested_bytes == 0 || self.requested_bytes + bytes <= REQUESTED_BYTES_MAX).then_some(*first)
    }

    /// Returns the earliest time of the next request to the history: at once, if a queued message has room.
    pub(super) fn request_deadline(&self) -> Option<Instant> {
        if self.next().is_some() {
            return Some(Instant::ZERO);
        }
        let at = |large: &LargeMessage| match &large.state {
            FetchState::Requested(retry) => Some(retry.at),
            FetchState::BeginningUnknown | FetchState::Queued => None,
        };
        self.by_first.values().filter_map(at).min()
    }

    /// Calls `request` with each message to request from the history now.
    pub(super) fn send_due_requests(&mut self, now: Instant, mut request: impl FnMut(Dseq, &MessageKey)) {
        for (first, large) in &mut self.by_first {
            if let FetchState::Requested(retry) = &mut large.state
                && retry.take_due(now)
            {
                request(*first, &large.key);
            }
        }
        while let Some(first) = self.next() {
            self.queued.remove(&first);
            let large = self.by_first.get_mut(&first).expect("queued messages are in the table");
            self.requested_bytes += large.key.bytes;
            let wait = Duration::from_nanos(NANOS_PER_BYTE * large.key.bytes as u64);
            large.state = FetchState::Requested(RetryTimer::after(now, RETRY_INTERVAL.max(wait)));
            request(first, &large.key);
        }
    }

    /// Checks that datagrams for which `waits` holds wait for each message, and that the sums are right.
    pub(super) fn assert_invariants(&self, waits: impl Fn(Dseq, Dseq) -> bool) {
        let (mut queued, mut requested_bytes) = (BTreeSet::new(), 0);
        for (first, large) in &self.by_first {
            assert!(!large.waiting.is_empty() && large.waiting.iter().all(|dseq| waits(*dseq, *first)));
            match large.state {
                FetchState::BeginningUnknown => {}
                FetchState::Queued => drop(queued.insert(*first)),
                FetchState::Requested(_) => requested_bytes += large.key.bytes,
            }
        }
        assert_eq!((&self.queued, self.requested_bytes), (&queued, requested_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: usize) -> MessageKey {
        let seq = Seq::from_parts(crate::seqno::Frame::new(1).unwrap(), 1).unwrap();
        MessageKey { subject: "a".parse().unwrap(), seq, bytes }
    }

    fn requested(larges: &mut LargeMessages) -> Vec<u64> {
        let mut requested = Vec::new();
        larges.send_due_requests(Instant::ZERO, |first, _| requested.push(first.0));
        requested
    }

    #[test]
    fn large_messages_are_requested_in_order_within_budget() {
        let mut larges = LargeMessages::default();
        for (first, bytes) in [(30, 4 << 20), (10, 600 << 10), (20, 400 << 10), (40, 1000)] {
            larges.add_datagram(Dseq(first), Dseq(first + 1), &key(bytes), true);
        }
        assert_eq!(requested(&mut larges), [10, 20]);
        assert!(requested(&mut larges).is_empty());
        larges.remove(Dseq(10));
        assert!(requested(&mut larges).is_empty(), "there is no room beside the other one");
        larges.remove_datagram(Dseq(20), Dseq(21));
        assert_eq!(requested(&mut larges), [30], "a message alone may exceed the budget");
        larges.assert_invariants(|_, _| true);
        larges.remove(Dseq(30));
        assert_eq!(requested(&mut larges), [40]);
    }

    #[test]
    fn retry_interval_grows_with_message_size() {
        for (bytes, expected) in [(2000, [40, 120, 280, 600]), (8 << 20, [1006, 2013, 3019, 4026])] {
            let mut larges = LargeMessages::default();
            larges.add_datagram(Dseq(1), Dseq(1), &key(bytes), true);
            assert_eq!(requested(&mut larges), [1]);
            let times = expected.map(|_| {
                let at = larges.request_deadline().unwrap();
                larges.send_due_requests(at, |_, _| {});
                at.since(Instant::ZERO).as_millis()
            });
            assert_eq!(times, expected);
        }
    }

    #[test]
    fn message_without_known_beginning_is_not_requested() {
        let mut larges = LargeMessages::default();
        larges.add_datagram(Dseq(5), Dseq(7), &key(3000), false);
        larges.add_datagram(Dseq(5), Dseq(8), &key(3000), false);
        assert_eq!((requested(&mut larges), larges.request_deadline()), (vec![], None));
        assert_eq!((larges.headless_below(Dseq(5)), larges.headless_below(Dseq(6))), (None, Some(Dseq(5))));
        larges.on_head(Dseq(5));
        assert_eq!((larges.headless_below(Dseq(6)), requested(&mut larges)), (None, vec![5]));
        larges.remove_datagram(Dseq(5), Dseq(7));
        assert!(larges.key(Dseq(5)).is_some());
        larges.remove_datagram(Dseq(5), Dseq(8));
        assert!(larges.key(Dseq(5)).is_none(), "all its datagrams arrived after all");
        larges.assert_invariants(|_, _| true);
    }
}
