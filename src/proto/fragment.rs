//! Reassembles messages larger than a datagram. `send` splits them.
//!
//! The fragments of a message are in consecutive datagrams, so the number of the first fragment's datagram identifies
//! the message. One settled datagram among them makes the message incomplete for good.

use crate::message::{Dseq, Message, Reason};
use crate::proto::continuity::SeqPosition;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use crate::wire::{self, Fragment};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// A message that will never be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedMessage {
    /// Subject of the message.
    pub subject: Subject,
    /// Number of the message; `None` if the publisher gave none.
    pub position: Option<SeqPosition>,
    /// Last of its datagrams that arrived.
    pub dseq: Dseq,
    /// True if the message begins at the end of that datagram: only its beginning arrived.
    pub at_end: bool,
    /// Datagram in which the message begins, whether or not that arrived.
    pub first: Dseq,
    /// First of its datagrams that did not arrive.
    pub missing: Dseq,
    /// True if its beginning arrived: then it is not among the messages begun in the missing datagrams.
    pub begun: bool,
    /// Time at which the first of its datagrams that arrived was first known to exist.
    pub reached: Instant,
    /// True if this peer gave it up because of a limit, and not because of a missing datagram.
    pub by_limit: bool,
    /// Reason for which one of its fragments is known to be unavailable.
    pub gone: Option<Reason>,
}

/// A reassembled message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReassembledMessage {
    /// The message.
    pub message: Message,
    /// Number of the message; `None` if the publisher gave none.
    pub position: Option<SeqPosition>,
    /// Datagram of its last fragment.
    pub dseq: Dseq,
    /// Time at which the first of its datagrams that arrived was first known to exist.
    pub reached: Instant,
    /// True if any of its datagrams was requested.
    pub repaired: bool,
}

/// An incomplete message.
#[derive(Clone, Debug)]
struct PartialMessage {
    first: Dseq,
    head: Fragment,
    position: Option<SeqPosition>,
    /// Offset and bytes by fragment index.
    chunks: BTreeMap<u32, (u32, Bytes)>,
    /// Lowest missing index.
    missing: u32,
    received: usize,
    dseq: Dseq,
    reached: Instant,
    repaired: bool,
    /// True if its beginning did not arrive, but a manifest accounts for it.
    head_known: bool,
    /// Reason for which one of its fragments is known to be unavailable.
    gone: Option<Reason>,
}

impl AbandonedMessage {
    /// Returns the reason for which this peer gave the message up; `missing` is the reason for missing datagrams of the
    /// stream.
    pub fn reason(&self, missing: Reason) -> Reason {
        // Rule: overflow
        if self.by_limit { Reason::Overflow } else { self.gone.unwrap_or(missing) }
    }
}

impl PartialMessage {
    /// Returns the bytes that count against the limit.
    fn bytes(&self) -> usize {
        self.received + self.chunks.len() * FRAGMENT_OVERHEAD_BYTES
    }

    fn missing(&self) -> Dseq {
        Dseq(self.first.0 + u64::from(self.missing))
    }

    fn fits(&self, fragment: &Fragment) -> bool {
        let head = &self.head;
        head.subject == fragment.subject
            && head.seq == fragment.seq
            && head.total == fragment.total
            && head.meta == fragment.meta
            && head.event == fragment.event
            && !self.chunks.contains_key(&fragment.index)
            && self.received + fragment.chunk.len() <= head.total as usize
    }

    fn into_abandoned(self) -> AbandonedMessage {
        AbandonedMessage {
            at_end: self.dseq == self.first,
            first: self.first,
            missing: self.missing(),
            begun: 0 < self.missing || self.head_known,
            reached: self.reached,
            by_limit: false,
            gone: self.gone,
            subject: self.head.subject,
            position: self.position,
            dseq: self.dseq,
        }
    }
}

/// Bytes that a fragment of an incomplete message counts in addition to its content: its table entry and allocator
/// overhead.
const FRAGMENT_OVERHEAD_BYTES: usize = 100;
/// Size in bytes below which a fragment is copied.
const COPIED_BYTES: usize = 16 << 10;

/// Number of abandoned messages that are remembered, so that a late fragment does not restart one. The fragments of a
/// message are close together, so few entries are needed at a time.
const ABANDONED_MAX: usize = 256;

/// All incomplete messages of one stream.
#[derive(Clone, Debug)]
pub struct Reassembly {
    partials: VecDeque<PartialMessage>,
    /// First datagrams of abandoned messages whose later fragments may still arrive.
    abandoned: VecDeque<Dseq>,
    bytes: usize,
    bytes_max: usize,
    sets_max: usize,
}

/// Outcome of adding a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FragmentOutcome {
    /// More fragments are needed.
    Incomplete,
    /// The message was given up before.
    Abandoned,
    /// The message is complete.
    Complete(ReassembledMessage),
    /// The fragments contradict each other; the message was given up.
    Contradiction(Option<AbandonedMessage>),
}

impl Reassembly {
    /// Creates an empty buffer for at most `sets_max` messages and `bytes_max` bytes at a time (A12).
    pub fn new(bytes_max: usize, sets_max: usize) -> Reassembly {
        Reassembly { partials: VecDeque::new(), abandoned: VecDeque::new(), bytes: 0, bytes_max, sets_max }
    }

    /// Adds a fragment that arrived in datagram `dseq`, which was first known to exist at `reached`.
    pub fn on_fragment(&mut self, dseq: Dseq, reached: Instant, repaired: bool, fragment: Fragment) -> FragmentOutcome {
        let Some(first) = dseq.0.checked_sub(u64::from(fragment.index)).filter(|first| 0 < *first).map(Dseq) else {
            return FragmentOutcome::Contradiction(None);
        };
        if self.is_over(first) {
            return FragmentOutcome::Abandoned;
        }
        let at = match self.partials.iter().position(|partial| partial.first == first) {
            Some(at) if self.partials[at].fits(&fragment) => at,
            Some(at) => return FragmentOutcome::Contradiction(Some(self.abandon(at))),
            None => {
                let position =
                    fragment.seq.map(|seq| SeqPosition { seq, stamp: fragment.stamp, chain: fragment.chain });
                let head = Fragment { chunk: Bytes::new(), ..fragment.clone() };
                let partial = PartialMessage {
                    first,
                    head,
                    position,
                    chunks: BTreeMap::new(),
                    missing: 0,
                    received: 0,
                    dseq,
                    reached,
                    repaired,
                    head_known: false,
                    gone: None,
                };
                let at = self.partials.partition_point(|other| other.first < first);
                self.partials.insert(at, partial);
                at
            }
        };
        let partial = &mut self.partials[at];
        self.bytes += fragment.chunk.len() + FRAGMENT_OVERHEAD_BYTES;
        partial.received += fragment.chunk.len();
        partial.dseq = partial.dseq.max(dseq);
        partial.reached = partial.reached.min(reached);
        partial.repaired |= repaired;
        // A small fragment must not keep its datagram in memory, which may be much larger than the bytes it counts.
        let is_small = fragment.chunk.len() < COPIED_BYTES;
        let chunk = if is_small { Bytes::copy_from_slice(&fragment.chunk) } else { fragment.chunk };
        partial.chunks.insert(fragment.index, (fragment.offset, chunk));
        while partial.chunks.contains_key(&partial.missing) {
            partial.missing += 1;
        }
        if partial.received < partial.head.total as usize {
            return FragmentOutcome::Incomplete;
        }
        self.assemble(at)
    }

    /// Drops the fragments of the message that begins in datagram `first`. A later fragment restarts it.
    pub fn remove(&mut self, first: Dseq) {
        self.take_of(first);
    }

    /// Removes and returns the fragments of the message that begins in datagram `first`, if any.
    fn take_of(&mut self, first: Dseq) -> Option<PartialMessage> {
        let at = self.partials.iter().position(|partial| partial.first == first)?;
        Some(self.take(at))
    }

    fn take(&mut self, at: usize) -> PartialMessage {
        let partial = self.partials.remove(at).expect("the caller has the index");
        self.bytes -= partial.bytes();
        partial
    }

    fn assemble(&mut self, at: usize) -> FragmentOutcome {
        let partial = self.take(at);
        let mut body = BytesMut::with_capacity(partial.received);
        for (offset, bytes) in partial.chunks.values() {
            if *offset as usize != body.len() {
                return self.refuse(partial);
            }
            body.extend_from_slice(bytes);
        }
        let head = &partial.head;
        match wire::assemble(head.subject.clone(), head.event, head.meta, body.freeze()) {
            Ok(message) => {
                let PartialMessage { position, dseq, reached, repaired, .. } = partial;
                FragmentOutcome::Complete(ReassembledMessage { message, position, dseq, reached, repaired })
            }
            Err(_) => self.refuse(partial),
        }
    }

    fn refuse(&mut self, partial: PartialMessage) -> FragmentOutcome {
        self.remember_abandoned(partial.first);
        FragmentOutcome::Contradiction(Some(partial.into_abandoned()))
    }

    fn abandon(&mut self, at: usize) -> AbandonedMessage {
        let partial = self.take(at);
        self.remember_abandoned(partial.first);
        partial.into_abandoned()
    }

    fn remember_abandoned(&mut self, first: Dseq) {
        if self.is_over(first) {
            return;
        }
        if ABANDONED_MAX <= self.abandoned.len() {
            self.abandoned.pop_front();
        }
        self.abandoned.push_back(first);
    }

    /// Records that a fragment of the message that begins in datagram `first` will not arrive. The publisher no longer
    /// has it, or did not answer in time.
    pub fn on_fragment_gone(&mut self, first: Dseq, reason: Reason) {
        if let Some(partial) = self.partials.iter_mut().find(|partial| partial.first == first) {
            partial.gone.get_or_insert(reason);
        }
    }

    /// Records that the datagram `first`, where a message begins, will not arrive but is accounted for. Returns true if
    /// other fragments of the message arrived, so that the message is reported with them. Otherwise later fragments are
    /// ignored.
    pub fn on_head_known(&mut self, first: Dseq) -> bool {
        if let Some(partial) = self.partials.iter_mut().find(|partial| partial.first == first) {
            partial.head_known = true;
            return true;
        }
        let was_given_up = self.is_over(first);
        self.remember_abandoned(first);
        was_given_up
    }

    /// Returns whether the message that begins in datagram `first` was given up, or arrived in another way.
    pub fn is_over(&self, first: Dseq) -> bool {
        self.abandoned.contains(&first)
    }

    /// Returns whether the first fragment of the message with this number has arrived, and no fragment is known to be
    /// unavailable.
    pub fn has_head(&self, first: Dseq, seq: Seq) -> bool {
        self.partials.iter().any(|partial| {
            partial.first == first && 0 < partial.missing && partial.gone.is_none() && partial.head.seq == Some(seq)
        })
    }

    /// Handles a complete copy, from the history, of the message that begins in datagram `first`. Its fragments are
    /// dropped, and later ones are ignored. Returns its position, and the time at which the first of its datagrams that
    /// arrived was known to exist.
    pub fn on_fetched(&mut self, first: Dseq) -> Option<(Option<SeqPosition>, Instant)> {
        self.remember_abandoned(first);
        let partial = self.take_of(first)?;
        Some((partial.position, partial.reached))
    }

    /// Gives up a message that lacks a datagram below `frontier`, which can no longer arrive. A message that
    /// `is_awaited` in another way is kept.
    pub fn take_abandoned_below(
        &mut self,
        frontier: Dseq,
        is_awaited: impl Fn(Dseq) -> bool,
    ) -> Option<AbandonedMessage> {
        let lacks_settled_fragment =
            |partial: &PartialMessage| partial.missing() < frontier && !is_awaited(partial.first);
        let at = self.partials.iter().position(lacks_settled_fragment)?;
        Some(self.abandon(at))
    }

    /// Gives up the oldest message while a limit is exceeded.
    pub fn take_abandoned_by_limit(&mut self) -> Option<AbandonedMessage> {
        if self.bytes <= self.bytes_max && self.partials.len() <= self.sets_max {
            return None;
        }
        Some(AbandonedMessage { by_limit: true, ..self.abandon(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(subject: &str, index: u32) -> Fragment {
        Fragment {
            subject: subject.parse().unwrap(),
            seq: None,
            stamp: None,
            chain: None,
            event: false,
            meta: false,
            index,
            total: 30,
            offset: index * 10,
            chunk: Bytes::from_static(&[7; 10]),
        }
    }

    /// Proves: W34
    #[test]
    fn contradictory_fragments_are_never_joined() {
        let changes: [fn(&mut Fragment); 4] = [
            |part| part.subject = "b".parse().unwrap(),
            |part| part.total = 31,
            |part| part.event = true,
            |part| part.meta = true,
        ];
        for change in changes {
            let mut reassembly = Reassembly::new(1000, 9);
            let mut take =
                |part: Fragment| reassembly.on_fragment(Dseq(9 + u64::from(part.index)), Instant::ZERO, false, part);
            assert_eq!(take(fragment("a", 0)), FragmentOutcome::Incomplete);
            let mut other = fragment("a", 1);
            change(&mut other);
            assert!(matches!(take(other), FragmentOutcome::Contradiction(Some(_))));
            assert_eq!(take(fragment("a", 2)), FragmentOutcome::Abandoned);
        }
    }

    #[test]
    fn late_fragment_does_not_restart_abandoned_message() {
        let mut reassembly = Reassembly::new(1000, 1);
        for (first, subject) in [(10, "a"), (20, "b"), (30, "c")] {
            assert_eq!(
                reassembly.on_fragment(Dseq(first), Instant::ZERO, false, fragment(subject, 0)),
                FragmentOutcome::Incomplete
            );
        }
        let abandoned: Vec<AbandonedMessage> = std::iter::from_fn(|| reassembly.take_abandoned_by_limit()).collect();
        assert_eq!(abandoned.iter().map(|abandoned| abandoned.dseq).collect::<Vec<_>>(), [Dseq(10), Dseq(20)]);
        assert!(abandoned.iter().all(|abandoned| abandoned.by_limit));
        for (dseq, subject) in [(12, "a"), (22, "b")] {
            assert_eq!(
                reassembly.on_fragment(Dseq(dseq), Instant::ZERO, false, fragment(subject, 2)),
                FragmentOutcome::Abandoned
            );
        }
        assert_eq!(reassembly.take_abandoned_below(Dseq(25), |_| false), None, "neither is given up twice");
    }
}
