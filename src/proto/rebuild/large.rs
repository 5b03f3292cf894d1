//! Large messages that the history is asked for: once each, however many of their datagrams are being rebuilt.
//!
//! A message is named by the datagram in which it begins. It is asked for once that is accounted for, so that what comes has
//! a place; until then, and until the answer, everything that is rebuilt and has a part of it waits.

use super::{RETRY_INTERVAL, RetryTimer};
use crate::message::Dseq;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Bytes that are asked for at a time, or one message: an answer that waits behind others is not asked for in vain meanwhile.
const ASKED_BYTES_MAX: usize = 1 << 20;
/// An answer may take so long for each byte (8 MiB/s, of a network of 100 Mbit/s) before it is asked for again.
const NANOS_PER_BYTE: u64 = 120;

/// What names a message to its history, and how much it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageKey {
    /// The subject.
    pub subject: Subject,
    /// The number.
    pub seq: Seq,
    /// Bytes of the whole body.
    pub bytes: usize,
}

/// One of them.
#[derive(Clone, Debug)]
struct LargeMessage {
    name: MessageKey,
    /// The datagrams being rebuilt that have a part of it; at least one.
    waiting: BTreeSet<Dseq>,
    state: FetchState,
}

#[derive(Clone, Debug)]
enum FetchState {
    /// The datagram in which it begins is missing, and nothing is known of that yet.
    Headless,
    /// It is asked for when there is room.
    Queued,
    /// It was asked for.
    Asked(RetryTimer),
}

/// All of one stream, each with a datagram that is being rebuilt.
#[derive(Clone, Debug, Default)]
pub(super) struct LargeMessages {
    by_first: BTreeMap<Dseq, LargeMessage>,
    queued: BTreeSet<Dseq>,
    /// Bytes of those that were asked for.
    asked_bytes: usize,
}

impl LargeMessages {
    /// The message that begins in this datagram.
    pub(super) fn name(&self, first: Dseq) -> Option<&MessageKey> {
        self.by_first.get(&first).map(|large| &large.name)
    }

    /// A datagram that is being rebuilt has a part of a message. `has_head` says whether the beginning is accounted for.
    pub(super) fn join(&mut self, first: Dseq, dseq: Dseq, name: &MessageKey, has_head: bool) {
        let new = || LargeMessage { name: name.clone(), waiting: BTreeSet::new(), state: FetchState::Headless };
        self.by_first.entry(first).or_insert_with(new).waiting.insert(dseq);
        if has_head {
            self.on_head(first);
        }
    }

    /// The beginning of the message arrived, or what was in its datagram is known.
    pub(super) fn on_head(&mut self, first: Dseq) {
        if let Some(large) = self.by_first.get_mut(&first)
            && matches!(large.state, FetchState::Headless)
        {
            large.state = FetchState::Queued;
            self.queued.insert(first);
        }
    }

    /// A datagram with a part of the message is not rebuilt any more. When none is, nothing needs to be fetched.
    pub(super) fn leave(&mut self, first: Dseq, dseq: Dseq) {
        if let Some(large) = self.by_first.get_mut(&first) {
            large.waiting.remove(&dseq);
            if large.waiting.is_empty() {
                self.remove(first);
            }
        }
    }

    /// It is decided what becomes of the message. Gives the datagrams that waited for it.
    pub(super) fn remove(&mut self, first: Dseq) -> Option<BTreeSet<Dseq>> {
        let large = self.by_first.remove(&first)?;
        self.queued.remove(&first);
        if let FetchState::Asked(_) = large.state {
            self.asked_bytes -= large.name.bytes;
        }
        Some(large.waiting)
    }

    /// A message whose beginning was not accounted for, and now lies below what is settled.
    pub(super) fn headless_below(&self, frontier: Dseq) -> Option<Dseq> {
        let is_headless = |large: &LargeMessage| matches!(large.state, FetchState::Headless);
        self.by_first.range(..frontier).find(|(_, large)| is_headless(large)).map(|(first, _)| *first)
    }

    /// The first of those that wait for their turn, if there is room for it.
    fn next(&self) -> Option<Dseq> {
        let first = self.queued.first()?;
        let bytes = self.by_first.get(first).map_or(0, |large| large.name.bytes);
        (self.asked_bytes == 0 || self.asked_bytes + bytes <= ASKED_BYTES_MAX).then_some(*first)
    }

    /// When the history is to be asked for something, at the earliest: at once, if it is the turn of a message.
    pub(super) fn request_deadline(&self) -> Option<Instant> {
        if self.next().is_some() {
            return Some(Instant::ZERO);
        }
        let at = |large: &LargeMessage| match &large.state {
            FetchState::Asked(retry) => Some(retry.at),
            FetchState::Headless | FetchState::Queued => None,
        };
        self.by_first.values().filter_map(at).min()
    }

    /// Calls `ask` with each message that the history is to be asked for now.
    pub(super) fn send_due_requests(&mut self, now: Instant, mut ask: impl FnMut(Dseq, &MessageKey)) {
        for (first, large) in &mut self.by_first {
            if let FetchState::Asked(retry) = &mut large.state
                && retry.take_due(now)
            {
                ask(*first, &large.name);
            }
        }
        while let Some(first) = self.next() {
            self.queued.remove(&first);
            let large = self.by_first.get_mut(&first).expect("what is queued is there");
            self.asked_bytes += large.name.bytes;
            let wait = Duration::from_nanos(NANOS_PER_BYTE * large.name.bytes as u64);
            large.state = FetchState::Asked(RetryTimer::after(now, RETRY_INTERVAL.max(wait)));
            ask(first, &large.name);
        }
    }

    /// Each message is waited for by datagrams for which `waits`, and the sums are right.
    pub(super) fn assert_invariants(&self, waits: impl Fn(Dseq, Dseq) -> bool) {
        let (mut queued, mut asked_bytes) = (BTreeSet::new(), 0);
        for (first, large) in &self.by_first {
            assert!(!large.waiting.is_empty() && large.waiting.iter().all(|dseq| waits(*dseq, *first)));
            match large.state {
                FetchState::Headless => {}
                FetchState::Queued => drop(queued.insert(*first)),
                FetchState::Asked(_) => asked_bytes += large.name.bytes,
            }
        }
        assert_eq!((&self.queued, self.asked_bytes), (&queued, asked_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: usize) -> MessageKey {
        let seq = Seq::from_parts(crate::seqno::Frame::new(1).unwrap(), 1).unwrap();
        MessageKey { subject: "a".parse().unwrap(), seq, bytes }
    }

    fn asked(larges: &mut LargeMessages) -> Vec<u64> {
        let mut asked = Vec::new();
        larges.send_due_requests(Instant::ZERO, |first, _| asked.push(first.0));
        asked
    }

    #[test]
    fn messages_are_asked_for_in_their_order_and_so_many_bytes_at_a_time() {
        let mut larges = LargeMessages::default();
        for (first, bytes) in [(30, 4 << 20), (10, 600 << 10), (20, 400 << 10), (40, 1000)] {
            larges.join(Dseq(first), Dseq(first + 1), &name(bytes), true);
        }
        assert_eq!(asked(&mut larges), [10, 20]);
        assert!(asked(&mut larges).is_empty());
        larges.remove(Dseq(10));
        assert!(asked(&mut larges).is_empty(), "there is no room beside the other one");
        larges.leave(Dseq(20), Dseq(21));
        assert_eq!(asked(&mut larges), [30], "alone, however large");
        larges.assert_invariants(|_, _| true);
        larges.remove(Dseq(30));
        assert_eq!(asked(&mut larges), [40]);
    }

    #[test]
    fn a_larger_message_is_awaited_for_longer_before_it_is_asked_for_again() {
        for (bytes, expected) in [(2000, [40, 120, 280, 600]), (8 << 20, [1006, 2013, 3019, 4026])] {
            let mut larges = LargeMessages::default();
            larges.join(Dseq(1), Dseq(1), &name(bytes), true);
            assert_eq!(asked(&mut larges), [1]);
            let times = expected.map(|_| {
                let at = larges.request_deadline().unwrap();
                larges.send_due_requests(at, |_, _| {});
                at.since(Instant::ZERO).as_millis()
            });
            assert_eq!(times, expected);
        }
    }

    #[test]
    fn a_message_whose_beginning_is_not_accounted_for_is_not_asked_for() {
        let mut larges = LargeMessages::default();
        larges.join(Dseq(5), Dseq(7), &name(3000), false);
        larges.join(Dseq(5), Dseq(8), &name(3000), false);
        assert_eq!((asked(&mut larges), larges.request_deadline()), (vec![], None));
        assert_eq!((larges.headless_below(Dseq(5)), larges.headless_below(Dseq(6))), (None, Some(Dseq(5))));
        larges.on_head(Dseq(5));
        assert_eq!((larges.headless_below(Dseq(6)), asked(&mut larges)), (None, vec![5]));
        larges.leave(Dseq(5), Dseq(7));
        assert!(larges.name(Dseq(5)).is_some());
        larges.leave(Dseq(5), Dseq(8));
        assert!(larges.name(Dseq(5)).is_none(), "all its datagrams came after all");
        larges.assert_invariants(|_, _| true);
    }
}
