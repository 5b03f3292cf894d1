//! Items that arrived and wait for an earlier datagram: in the order of the stream, and by subject.
//!
//! A buffered item can be delivered in two cases (A3): every gap before it is settled, or it follows the last message
//! of its subject. Two kinds of items are therefore judged again: those below the lowest gap, and the first buffered
//! item of a subject after a delivery. The numbers of a subject rise in the order of the stream. While its first item
//! waits, the later ones must wait. The cost of a missing datagram thus depends on the items that it releases, and not
//! on the size of the buffer.

use crate::message::Dseq;
use crate::proto::stream_item::{Arrival, StreamItem};
use crate::subject::Subject;
use foldhash::quality::FixedState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

/// Position of an item: its datagram, and the index of its record there.
pub(super) type Position = (Dseq, u32);

/// Hash of a subject with numbers. At worst, two subjects with the same hash wait for each other until the gap is
/// settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubjectKey(u64);

/// Buffered items of one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ReorderBuffer {
    items: BTreeMap<Position, (Arrival, StreamItem)>,
    /// Items that have numbers.
    by_subject: BTreeSet<(SubjectKey, Position)>,
    /// Large messages that will never be complete.
    abandoned: BTreeSet<Position>,
    /// Items to judge again although a gap before them is open.
    due: BTreeSet<Position>,
    bytes: usize,
}

impl ReorderBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the bytes of the messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether an item of this datagram is buffered.
    pub(super) fn has(&self, dseq: Dseq) -> bool {
        self.items.range((dseq, 0)..=(dseq, u32::MAX)).next().is_some()
    }

    /// Adds an item that must wait.
    pub(super) fn insert(&mut self, at: Position, arrival: Arrival, item: StreamItem) {
        let (key, is_abandoned) = (key_of(&item), matches!(item, StreamItem::AbandonedMessage(_)));
        self.bytes += item.bytes();
        if let Some((_, replaced)) = self.items.insert(at, (arrival, item)) {
            self.unindex(at, &replaced);
        }
        if let Some(key) = key {
            self.by_subject.insert((key, at));
        }
        if is_abandoned {
            self.abandoned.insert(at);
        }
    }

    /// Marks the item at `at` to be judged again, after a change other than the last number of its subject.
    pub(super) fn judge_again(&mut self, at: Position) {
        self.due.insert(at);
    }

    /// Returns the key of the items that may follow this one, if there can be any.
    pub(super) fn followers_of(&self, item: &StreamItem) -> Option<SubjectKey> {
        if self.by_subject.is_empty() { None } else { key_of(item) }
    }

    /// Marks the first buffered item of a subject to be judged again, after an item was delivered or dropped.
    pub(super) fn on_item_removed(&mut self, followers: Option<SubjectKey>) {
        let Some(key) = followers else { return };
        let lowest = (key, (Dseq(0), 0));
        if let Some((_, at)) = self.by_subject.range(lowest..).next().filter(|(other, _)| *other == key) {
            self.due.insert(*at);
        }
    }

    /// Handles the late first fragment of an abandoned message: no missing datagram accounts for it.
    pub(super) fn on_late_first_fragment(&mut self, dseq: Dseq) {
        for at in &self.abandoned {
            if let Some((_, StreamItem::AbandonedMessage(abandoned))) = self.items.get_mut(at)
                && abandoned.missing == dseq
            {
                abandoned.begun = true;
                self.due.insert(*at);
            }
        }
    }

    /// Removes the next item to judge, in the order of the stream: first all below `frontier`, then those marked. The
    /// caller inserts the item again if it still must wait.
    pub(super) fn pop(&mut self, frontier: Dseq) -> Option<(Position, Arrival, StreamItem)> {
        let first = self.items.first_key_value().map(|(at, _)| *at).filter(|at| at.0 < frontier);
        let at = match first {
            Some(at) => {
                self.due.remove(&at);
                at
            }
            None => self.due.pop_first()?,
        };
        let (arrival, item) = self.items.remove(&at).expect("due items are in the buffer");
        self.unindex(at, &item);
        Some((at, arrival, item))
    }

    /// Removes the item at `at` from the indices.
    fn unindex(&mut self, at: Position, item: &StreamItem) {
        self.bytes -= item.bytes();
        if let Some(key) = key_of(item) {
            self.by_subject.remove(&(key, at));
        }
        if matches!(item, StreamItem::AbandonedMessage(_)) {
            self.abandoned.remove(&at);
        }
    }

    /// Returns whether the invariants hold that are checked without visiting the items. The ledger counts `datagrams`
    /// buffered datagrams.
    #[inline]
    pub(super) fn is_intact(&self, datagrams: u64) -> bool {
        let items = self.items.len();
        (datagrams == 0) == (items == 0)
            && datagrams <= items as u64
            && self.by_subject.len() <= items
            && self.abandoned.len() <= items
            && self.due.len() <= items
            && (0 < items || self.bytes == 0)
    }

    /// Describes the state for the message of a failed check.
    #[cold]
    pub(super) fn summary(&self) -> String {
        format!(
            "{} items with {} bytes, {} by subject, {} abandoned, {} due",
            self.items.len(),
            self.bytes,
            self.by_subject.len(),
            self.abandoned.len(),
            self.due.len()
        )
    }

    /// Returns the number of datagrams with buffered items.
    pub(super) fn datagrams(&self) -> u64 {
        let mut last = None;
        self.items.keys().filter(|(dseq, _)| last.replace(*dseq) != Some(*dseq)).count() as u64
    }

    /// Drops the items of datagrams from `dseq` on, and returns these datagrams.
    pub(super) fn drop_from(&mut self, dseq: Dseq) -> Vec<Dseq> {
        let mut datagrams = Vec::new();
        for (at, (_, item)) in self.items.split_off(&(dseq, 0)) {
            self.unindex(at, &item);
            self.due.remove(&at);
            if datagrams.last() != Some(&at.0) {
                datagrams.push(at.0);
            }
        }
        datagrams
    }

    /// Checks that the indices contain exactly the buffered items.
    pub(super) fn assert_invariants(&self) {
        let items = || self.items.iter().map(|(at, (_, item))| (*at, item));
        let keys: BTreeSet<_> = items().filter_map(|(at, item)| Some((key_of(item)?, at))).collect();
        let abandoned: BTreeSet<_> =
            items().filter(|(_, item)| matches!(item, StreamItem::AbandonedMessage(_))).map(|(at, _)| at).collect();
        assert_eq!((&self.by_subject, &self.abandoned), (&keys, &abandoned));
        assert!(self.due.iter().all(|at| self.items.contains_key(at)));
        assert_eq!(self.bytes, self.items.values().map(|(_, item)| item.bytes()).sum::<usize>());
    }
}

#[cfg(test)]
impl ReorderBuffer {
    /// Marks all buffered items to be judged again, as if all changes were unknown.
    pub(super) fn judge_all_again(&mut self) {
        self.due = self.items.keys().copied().collect();
    }

    /// Breaks the sum of the bytes.
    pub(super) fn break_bytes(&mut self) {
        self.bytes += 7;
    }

    /// Returns the number of buffered large messages that will never be complete.
    pub(super) fn abandoned(&self) -> usize {
        self.abandoned.len()
    }
}

fn key_of(item: &StreamItem) -> Option<SubjectKey> {
    item.position()?;
    Some(key(item.subject()))
}

fn key(subject: &Subject) -> SubjectKey {
    SubjectKey(FixedState::default().hash_one(subject.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inconsistent_state_is_detected_and_described() {
        assert!(ReorderBuffer::default().is_intact(0));
        let mut buffer = ReorderBuffer::default();
        buffer.break_bytes();
        assert!(!buffer.is_intact(0), "an empty buffer has no bytes");
        assert!(buffer.summary().contains("0 items with 7 bytes"), "{}", buffer.summary());
        assert!(!ReorderBuffer::default().is_intact(1), "the ledger counts one buffered datagram");
    }
}
