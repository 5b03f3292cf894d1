//! What arrived and has to wait for an earlier datagram: in the order of the stream, and by subject.
//!
//! A held item can be handed on when every gap before it is settled, or when it follows the last message of its subject
//! (reliability.md A3). So nothing needs to be judged again but what lies below the lowest gap, and the first item of
//! a subject after another one of that subject was handed on: the numbers of a subject rise in the order of the stream,
//! so while that one has to wait, the later ones have to. What a datagram that was missing costs is then what it releases,
//! however much is held.

use super::item::{Arrival, StreamItem};
use crate::message::Dseq;
use crate::subject::Subject;
use foldhash::quality::FixedState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

/// Place of an item within its datagram: record by record.
pub(super) type Position = (Dseq, u32);

/// A subject with numbers, by its hash. Two subjects that share one wait for each other at worst until the gap is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubjectKey(u64);

/// Everything held of one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ReorderBuffer {
    items: BTreeMap<Position, (Arrival, StreamItem)>,
    /// The items that have numbers.
    by_subject: BTreeSet<(SubjectKey, Position)>,
    /// The large messages that will never be whole.
    doomed: BTreeSet<Position>,
    /// The items to judge again though a gap before them is open.
    due: BTreeSet<Position>,
    bytes: usize,
}

impl ReorderBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of the messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether anything of this datagram is held.
    pub(super) fn has(&self, dseq: Dseq) -> bool {
        self.items.range((dseq, 0)..=(dseq, u32::MAX)).next().is_some()
    }

    /// Holds an item that has just been judged: it has to wait.
    pub(super) fn insert(&mut self, at: Position, arrival: Arrival, item: StreamItem) {
        let (key, is_doomed) = (key_of(&item), matches!(item, StreamItem::AbandonedMessage(_)));
        self.bytes += item.bytes();
        if let Some((_, replaced)) = self.items.insert(at, (arrival, item)) {
            self.unindex(at, &replaced);
        }
        if let Some(key) = key {
            self.by_subject.insert((key, at));
        }
        if is_doomed {
            self.doomed.insert(at);
        }
    }

    /// Something else than the last number of its subject has changed for the item held at `at`.
    pub(super) fn judge_again(&mut self, at: Position) {
        self.due.insert(at);
    }

    /// What names the items that may follow this one, if there can be any.
    pub(super) fn followers_of(&self, item: &StreamItem) -> Option<SubjectKey> {
        if self.by_subject.is_empty() { None } else { key_of(item) }
    }

    /// An item was handed on, or dropped: the first one held of its subject may now follow.
    pub(super) fn on_gone(&mut self, followers: Option<SubjectKey>) {
        let Some(key) = followers else { return };
        let lowest = (key, (Dseq(0), 0));
        if let Some((_, at)) = self.by_subject.range(lowest..).next().filter(|(other, _)| *other == key) {
            self.due.insert(*at);
        }
    }

    /// The beginning of a message that was given up before arrived: no missing datagram accounts for it.
    pub(super) fn on_late_head(&mut self, dseq: Dseq) {
        for at in &self.doomed {
            if let Some((_, StreamItem::AbandonedMessage(doomed))) = self.items.get_mut(at)
                && doomed.missing == dseq
            {
                doomed.begun = true;
                self.due.insert(*at);
            }
        }
    }

    /// Takes out the next item to judge, in the order of the stream: everything below `frontier`, then what may follow the
    /// last message of its subject. One that still has to wait is inserted again.
    pub(super) fn pop(&mut self, frontier: Dseq) -> Option<(Position, Arrival, StreamItem)> {
        let first = self.items.first_key_value().map(|(at, _)| *at).filter(|at| at.0 < frontier);
        let at = match first {
            Some(at) => {
                self.due.remove(&at);
                at
            }
            None => self.due.pop_first()?,
        };
        let (arrival, item) = self.items.remove(&at).expect("what is due is held");
        self.unindex(at, &item);
        Some((at, arrival, item))
    }

    /// An item that was held at `at` is so no more.
    fn unindex(&mut self, at: Position, item: &StreamItem) {
        self.bytes -= item.bytes();
        if let Some(key) = key_of(item) {
            self.by_subject.remove(&(key, at));
        }
        if matches!(item, StreamItem::AbandonedMessage(_)) {
            self.doomed.remove(&at);
        }
    }

    /// Returns whether the invariants hold that can be seen without going through the items. The ledger says that
    /// `datagrams` are held.
    #[inline]
    pub(super) fn is_intact(&self, datagrams: u64) -> bool {
        let items = self.items.len();
        (datagrams == 0) == (items == 0)
            && datagrams <= items as u64
            && self.by_subject.len() <= items
            && self.doomed.len() <= items
            && self.due.len() <= items
            && (0 < items || self.bytes == 0)
    }

    /// Describes the state for the message of a failed check.
    #[cold]
    pub(super) fn summary(&self) -> String {
        format!(
            "{} items with {} bytes, {} by subject, {} doomed, {} due",
            self.items.len(),
            self.bytes,
            self.by_subject.len(),
            self.doomed.len(),
            self.due.len()
        )
    }

    /// How many datagrams anything is held of.
    pub(super) fn datagrams(&self) -> u64 {
        let mut last = None;
        self.items.keys().filter(|(dseq, _)| last.replace(*dseq) != Some(*dseq)).count() as u64
    }

    /// Drops what is held of datagrams from `dseq` on, and names these datagrams.
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

    /// The indices name what is held and nothing else.
    pub(super) fn assert_invariants(&self) {
        let items = || self.items.iter().map(|(at, (_, item))| (*at, item));
        let keys: BTreeSet<_> = items().filter_map(|(at, item)| Some((key_of(item)?, at))).collect();
        let doomed: BTreeSet<_> =
            items().filter(|(_, item)| matches!(item, StreamItem::AbandonedMessage(_))).map(|(at, _)| at).collect();
        assert_eq!((&self.by_subject, &self.doomed), (&keys, &doomed));
        assert!(self.due.iter().all(|at| self.items.contains_key(at)));
        assert_eq!(self.bytes, self.items.values().map(|(_, item)| item.bytes()).sum::<usize>());
    }
}

#[cfg(test)]
impl ReorderBuffer {
    /// Whatever is held is judged again, as if nothing were known of what has changed.
    pub(super) fn judge_all_again(&mut self) {
        self.due = self.items.keys().copied().collect();
    }

    /// Breaks the sum of the bytes.
    pub(super) fn break_bytes(&mut self) {
        self.bytes += 7;
    }

    /// How many large messages that will never be whole are held.
    pub(super) fn doomed(&self) -> usize {
        self.doomed.len()
    }
}

fn key_of(item: &StreamItem) -> Option<SubjectKey> {
    item.place()?;
    Some(key(item.subject()))
}

fn key(subject: &Subject) -> SubjectKey {
    SubjectKey(FixedState::default().hash_one(subject.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_state_is_seen_and_described() {
        assert!(ReorderBuffer::default().is_intact(0));
        let mut held = ReorderBuffer::default();
        held.break_bytes();
        assert!(!held.is_intact(0), "bytes of nothing");
        assert!(held.summary().contains("0 items with 7 bytes"), "{}", held.summary());
        assert!(!ReorderBuffer::default().is_intact(1), "the ledger says that one is held");
    }
}
