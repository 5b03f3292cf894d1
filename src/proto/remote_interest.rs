//! Advertised subscriptions of other peers: one table per peer, and one tree over all tables.
//!
//! A table is complete up to a version: it contains every entry whose last change is at or before that version. A table
//! is known if that version is the highest that the peer has announced. If the peer no longer sends the changes that a
//! table lacks, a new table is built beside the old one. The new table replaces the old one once it is as complete.
//!
//! A forged record makes a table complete up to a version that the peer has never had. That is reported to the peer, as
//! every complete version is, and the peer then makes this one build a new table (docs/wire.md W142).

mod peer_table;

use crate::message::{Epoch, SubscriptionFilter};
use crate::proto::mutant::{Mutant, Mutants};
use crate::subject::tree::Tree;
use crate::subject::{Subject, channel};
use crate::time::Instant;
use crate::wire::{Interest, InterestEntry, InterestRequest};
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use peer_table::{PeerTable, PendingTable};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

/// Maximum time between two requests if no answer comes.
const REQUEST_INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Time between requests to a peer whose entries exceed the limit.
const OVERFLOW_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of versions by which records are ahead of the last announcement, and announcements of the one before.
pub(super) const STEP_MAX: u64 = 1 << 20;
/// Version from which entries are never known: all messages to that peer are sent. So forged versions do not use up the
/// numbers of the peer.
pub const VERSION_MAX: u64 = 1 << 62;

/// Divisor of the entry limit that gives the share of all peers at one IP address.
const SHARES: usize = 4;

/// Outcome of an advertised-subscription record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// The record contained a new change.
    Applied,
    /// The record contained nothing new.
    Stale,
    /// A record before it is missing.
    Gap,
    /// The record would exceed the limit of entries.
    Overflow,
}

/// An entry of another peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEntry {
    /// Epoch of the peer that advertises the entry.
    pub epoch: Epoch,
    /// Filter of the subscription.
    pub wanted: SubscriptionFilter,
    /// Number of the peer's subscriptions with this filter.
    pub count: u32,
}

/// The entries of all other peers.
#[derive(Debug)]
pub struct RemoteInterest {
    entries: Vec<Option<RemoteEntry>>,
    /// Unused indices of `entries`.
    unused: Vec<u32>,
    /// Indices of entries by peer and filter.
    by_filter: HashTable<u32>,
    hasher: FixedState,
    tree: Tree<u32>,
    tables: BTreeMap<Epoch, PeerTable>,
    /// Peers that are absent and may return.
    absent: BTreeSet<Epoch>,
    /// Peers that are silent or that a later run has replaced.
    unreachable: BTreeSet<Epoch>,
    len: usize,
    /// Number of entries in queue groups.
    queue_len: usize,
    /// Number of entries of new tables that are being built.
    len_fresh: usize,
    len_max: usize,
    /// Number of changes of entries so far.
    changes: u64,
    grace: Duration,
    mutants: Mutants,
    /// Scratch buffer; empty between calls, and keeps its capacity.
    found: Vec<u32>,
}

impl RemoteInterest {
    /// Creates an empty table of at most `len_max` entries. `grace` is the time for which missing records may simply be
    /// late. `seed` makes hashing unpredictable.
    pub fn new(seed: u64, len_max: usize, grace: Duration, mutants: Mutants) -> RemoteInterest {
        RemoteInterest {
            entries: Vec::new(),
            unused: Vec::new(),
            by_filter: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            tree: Tree::new(seed),
            tables: BTreeMap::new(),
            absent: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            len: 0,
            queue_len: 0,
            len_fresh: 0,
            len_max,
            changes: 0,
            grace,
            mutants,
            found: Vec::new(),
        }
    }

    /// Returns whether all advertised subscriptions of this peer are known.
    pub fn is_known(&self, epoch: Epoch) -> bool {
        self.tables.get(&epoch).is_some_and(PeerTable::is_known)
    }

    /// Returns the version up to which the table is complete, and records that it is reported to the peer.
    pub fn report_complete(&mut self, epoch: Epoch) -> u64 {
        let Some(table) = self.tables.get_mut(&epoch) else { return 0 };
        table.reported = table.reported.max(table.complete);
        table.complete
    }

    /// Returns whether a known version was ever reported to the peer.
    pub fn was_reported(&self, epoch: Epoch) -> bool {
        self.tables.get(&epoch).is_some_and(|table| 0 < table.reported)
    }

    /// Returns whether the table is less complete than the version reported to the peer.
    pub fn is_below_reported(&self, epoch: Epoch) -> bool {
        self.tables.get(&epoch).is_some_and(|table| table.complete < table.reported)
    }

    /// Handles a peer's version in an announcement that is newer than all before (docs/wire.md W60).
    pub fn on_announcement(&mut self, now: Instant, epoch: Epoch, version: u64) {
        self.tables.entry(epoch).or_insert_with(PeerTable::new).on_announcement(now, version);
    }

    /// Handles a record of a peer at `source`.
    pub fn on_record(&mut self, now: Instant, epoch: Epoch, source: IpAddr, record: Interest) -> RecordOutcome {
        let table = self.tables.entry(epoch).or_insert_with(PeerTable::new);
        if !table.is_plausible(record.high) {
            return RecordOutcome::Gap;
        }
        table.source = Some(source);
        table.on_high(now, record.high);
        let outcome = self.apply(epoch, record);
        let Some(table) = self.tables.get_mut(&epoch) else { return outcome };
        match outcome {
            RecordOutcome::Overflow => {
                (table.stale_since, table.overflowed) = (Some(now), Some(now));
                (table.request_at, table.interval) = (now + OVERFLOW_INTERVAL, OVERFLOW_INTERVAL);
            }
            _ => table.update_staleness(now, outcome == RecordOutcome::Applied),
        }
        outcome
    }

    fn apply(&mut self, epoch: Epoch, record: Interest) -> RecordOutcome {
        let mutants = self.mutants;
        let Some(table) = self.tables.get_mut(&epoch) else { return RecordOutcome::Stale };
        let follows = |complete: u64, base: u64| {
            let is_stale = record.upto <= complete && !mutants.is(Mutant::StaleInterestApplied);
            let is_gap = complete < record.after && !mutants.is(Mutant::InterestAcrossGap);
            !is_stale && !is_gap && record.base <= base
        };
        let begins = record.base != 0
            && record.after == 0
            && table.complete < record.base
            && table.fresh.as_ref().is_none_or(|fresh| fresh.base < record.base);
        if begins {
            self.len_fresh -= table.fresh.as_ref().map_or(0, |fresh| fresh.entries.len());
            table.fresh = Some(PendingTable { base: record.base, complete: 0, entries: BTreeMap::new() });
        }
        let mut outcome = if record.upto <= table.complete { RecordOutcome::Stale } else { RecordOutcome::Gap };
        // An entry announced before the table was begun may have ended since without notice.
        let fits = |fresh: &&mut PendingTable| fresh.base <= record.high && follows(fresh.complete, fresh.base);
        if let Some(fresh) = table.fresh.as_mut().filter(fits) {
            let before = fresh.entries.len();
            for InterestEntry { wanted, count } in &record.entries {
                match count {
                    0 => fresh.entries.remove(wanted),
                    count => fresh.entries.insert(wanted.clone(), *count),
                };
            }
            fresh.complete = record.upto;
            self.len_fresh = self.len_fresh + fresh.entries.len() - before;
            outcome = RecordOutcome::Applied;
        }
        if follows(table.complete, table.base) {
            table.complete = record.upto;
            outcome = RecordOutcome::Applied;
            record.entries.into_iter().for_each(|entry| self.put(epoch, entry));
        }
        self.switch_table(epoch);
        if self.make_room(epoch) {
            return outcome;
        }
        self.empty(epoch);
        RecordOutcome::Overflow
    }

    /// Makes room for the entries of a present peer and returns whether that succeeded. It evicts the entries of absent
    /// and unreachable peers; only those at the same address, if only the share of that address is exceeded.
    fn make_room(&mut self, epoch: Epoch) -> bool {
        loop {
            let is_room_exceeded = self.len_max < self.len + self.len_fresh;
            if !is_room_exceeded && !self.is_share_exceeded(epoch) {
                return true;
            }
            let source = self.tables.get(&epoch).and_then(|table| table.source);
            let is_evictable = |other: &Epoch| {
                let table = self.tables.get(other).filter(|table| 0 < table.len());
                *other != epoch && table.is_some_and(|table| is_room_exceeded || table.source == source)
            };
            let Some(other) = self.absent.iter().chain(&self.unreachable).copied().find(is_evictable) else {
                return false;
            };
            self.empty(other);
        }
    }

    /// Returns whether the peers at this peer's address exceed the share of one address.
    fn is_share_exceeded(&self, epoch: Epoch) -> bool {
        let share = self.len_max.div_ceil(SHARES);
        if self.len + self.len_fresh <= share {
            return false;
        }
        let Some(source) = self.tables.get(&epoch).map(|table| table.source) else { return false };
        let at_source = self.tables.values().filter(|table| table.source == source);
        share < at_source.map(PeerTable::len).sum()
    }

    /// Schedules requests to peers whose entries exceeded a limit, because there is room again.
    fn on_room(&mut self) {
        for table in self.tables.values_mut() {
            if let Some(overflowed) = table.overflowed.take() {
                (table.request_at, table.interval) = (overflowed + REQUEST_INTERVAL_MAX, REQUEST_INTERVAL_MAX);
            }
        }
    }

    /// Switches to the new table if it is as complete as the old one, and drops it if it is not needed.
    fn switch_table(&mut self, epoch: Epoch) {
        let Some(table) = self.tables.get_mut(&epoch) else { return };
        let is_needed = !table.is_known();
        let Some(fresh) = table.fresh.take_if(|fresh| !is_needed || fresh.base.max(table.complete) <= fresh.complete)
        else {
            return;
        };
        self.len_fresh -= fresh.entries.len();
        if !is_needed {
            return;
        }
        (table.complete, table.base) = (fresh.complete, fresh.base);
        let indices = std::mem::take(&mut table.indices);
        indices.into_iter().for_each(|index| self.remove_entry(index));
        for (wanted, count) in fresh.entries {
            self.put(epoch, InterestEntry { wanted, count });
        }
    }

    /// Marks a peer as absent. The peer may return, so its entries stay, but only for [`RemoteInterest::is_wanted`].
    pub fn mark_absent(&mut self, epoch: Epoch) {
        if self.tables.contains_key(&epoch) && self.absent.insert(epoch) {
            self.changes += 1;
        }
    }

    /// Marks a peer as present.
    pub fn mark_present(&mut self, epoch: Epoch) {
        if self.absent.remove(&epoch) {
            self.changes += 1;
        }
    }

    /// Sets whether a peer can be reached. Entries of an unreachable peer do not count as receivers, but still keep
    /// messages from being suppressed.
    pub fn set_reachable(&mut self, epoch: Epoch, is_reachable: bool) {
        let is_change = if is_reachable { self.unreachable.remove(&epoch) } else { self.unreachable.insert(epoch) };
        self.changes += u64::from(is_change);
    }

    /// Returns the peers that are absent and may return.
    pub fn absent(&self) -> impl Iterator<Item = Epoch> {
        self.absent.iter().copied()
    }

    /// Removes a peer that has ended, with all its entries.
    pub fn end(&mut self, epoch: Epoch) {
        self.mark_present(epoch);
        self.unreachable.remove(&epoch);
        let had_entries = self.tables.get(&epoch).is_some_and(|table| 0 < table.len());
        self.empty(epoch);
        self.tables.remove(&epoch);
        if had_entries {
            self.on_room();
        }
    }

    /// Clears a peer's table, as if no record of it had arrived.
    fn empty(&mut self, epoch: Epoch) {
        let Some(table) = self.tables.get_mut(&epoch) else { return };
        self.len_fresh -= table.fresh.take().map_or(0, |fresh| fresh.entries.len());
        (table.complete, table.base) = (0, 0);
        let indices = std::mem::take(&mut table.indices);
        indices.into_iter().for_each(|index| self.remove_entry(index));
    }

    fn hash(&self, epoch: Epoch, wanted: &SubscriptionFilter) -> u64 {
        self.hasher.hash_one((epoch, wanted))
    }

    /// Applies a peer's announcement of one entry.
    fn put(&mut self, epoch: Epoch, InterestEntry { wanted, count }: InterestEntry) {
        self.changes += 1;
        let hash = self.hash(epoch, &wanted);
        let entries = &mut self.entries;
        let is_entry = |index: &u32| {
            entries[*index as usize].as_ref().is_some_and(|entry| entry.epoch == epoch && entry.wanted == wanted)
        };
        match (self.by_filter.find(hash, is_entry).copied(), count) {
            (None, 0) => {}
            (Some(index), 0) => {
                if let Some(table) = self.tables.get_mut(&epoch) {
                    table.indices.remove(&index);
                }
                self.remove_entry(index);
            }
            (Some(index), count) => {
                if let Some(entry) = &mut entries[index as usize] {
                    entry.count = count;
                }
            }
            (None, count) => self.add(hash, RemoteEntry { epoch, wanted, count }),
        }
    }

    fn add(&mut self, hash: u64, entry: RemoteEntry) {
        let index = self.unused.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("fewer entries than 2^32")
        });
        self.tree.insert(&entry.wanted.pattern, index);
        if let Some(table) = self.tables.get_mut(&entry.epoch) {
            table.indices.insert(index);
        }
        self.queue_len += usize::from(entry.wanted.queue.is_some());
        self.entries[index as usize] = Some(entry);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_filter.insert_unique(hash, index, |index| {
            entries[*index as usize].as_ref().map_or(0, |entry| hasher.hash_one((entry.epoch, &entry.wanted)))
        });
        self.len += 1;
    }

    /// Removes an entry, except from the table of its peer.
    fn remove_entry(&mut self, index: u32) {
        self.changes += 1;
        let entry = self.entries[index as usize].as_ref().expect("a table has the indices of its entries");
        let hash = self.hasher.hash_one((entry.epoch, &entry.wanted));
        let found = self.by_filter.find_entry(hash, |other| *other == index);
        found.expect("every entry is in the index").remove();
        let entry = self.entries[index as usize].take().expect("found above");
        assert!(self.tree.remove(&entry.wanted.pattern, index), "every entry is in the tree");
        self.queue_len -= usize::from(entry.wanted.queue.is_some());
        self.unused.push(index);
        self.len -= 1;
    }

    /// Returns the number of changes of the entries. While it is unchanged, matches are unchanged.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns whether an entry matches the subject, including entries of absent peers.
    pub fn is_wanted(&mut self, subject: &Subject) -> bool {
        let mut is_wanted = false;
        self.visit_all(subject, |_| is_wanted = true);
        is_wanted
    }

    /// Returns whether an entry is in a queue group.
    pub fn has_queues(&self) -> bool {
        0 < self.queue_len
    }

    /// Calls `each` with every entry of present peers that matches the subject.
    pub fn visit(&mut self, subject: &Subject, mut each: impl FnMut(&RemoteEntry)) {
        let absent = std::mem::take(&mut self.absent);
        self.visit_all(subject, |entry| {
            if absent.is_empty() || !absent.contains(&entry.epoch) {
                each(entry);
            }
        });
        self.absent = absent;
    }

    /// Calls `each` with every entry of reachable peers that matches the subject.
    pub fn visit_reachable(&mut self, subject: &Subject, mut each: impl FnMut(&RemoteEntry)) {
        let unreachable = std::mem::take(&mut self.unreachable);
        self.visit(subject, |entry| {
            if unreachable.is_empty() || !unreachable.contains(&entry.epoch) {
                each(entry);
            }
        });
        self.unreachable = unreachable;
    }

    fn visit_all(&mut self, subject: &Subject, mut each: impl FnMut(&RemoteEntry)) {
        if self.len == 0 {
            return;
        }
        let mut found = std::mem::take(&mut self.found);
        self.tree.matches(subject, &mut found);
        let mut text: Option<Cow<'_, [u8]>> = None;
        for entry in found.iter().filter_map(|index| self.entries[*index as usize].as_ref()) {
            let matches = entry
                .wanted
                .glob
                .as_ref()
                .is_none_or(|glob| glob.matches(text.get_or_insert_with(|| channel::of_subject(subject))));
            if matches {
                each(entry);
            }
        }
        found.clear();
        self.found = found;
    }

    /// Returns the time of the next request to a peer.
    pub fn deadline(&self, is_up: impl Fn(Epoch) -> bool) -> Option<Instant> {
        let due = self.tables.iter().filter_map(|(epoch, table)| Some((*epoch, table.request_deadline(self.grace)?)));
        due.filter(|(epoch, _)| is_up(*epoch)).map(|(_, at)| at).min()
    }

    /// Returns the next request that is due, if any.
    pub fn poll_request(&mut self, now: Instant, is_up: impl Fn(Epoch) -> bool) -> Option<InterestRequest> {
        let grace = self.grace;
        let is_due = |table: &PeerTable| table.request_deadline(grace).is_some_and(|at| at <= now);
        let mut tables = self.tables.iter_mut();
        let (epoch, table) = tables.find(|(epoch, table)| is_due(table) && is_up(**epoch))?;
        table.request_at = now + table.interval;
        table.interval = (table.interval * 2).min(REQUEST_INTERVAL_MAX.max(table.interval));
        let (from, base) =
            table.fresh.as_ref().map_or((table.complete, table.base), |fresh| (fresh.complete, fresh.base));
        Some(InterestRequest { epoch: *epoch, from, base })
    }

    /// Returns all entries of present peers, by peer.
    pub fn entries(&self) -> impl Iterator<Item = &RemoteEntry> {
        let tables = self.tables.iter().filter(|(epoch, _)| !self.absent.contains(epoch));
        let indices = tables.flat_map(|(_, table)| &table.indices);
        indices.filter_map(|index| self.entries[*index as usize].as_ref())
    }

    /// Checks the invariants that hold between calls; panics if one is violated.
    pub fn assert_invariants(&self) {
        let indices: usize = self.tables.values().map(|table| table.indices.len()).sum();
        let fresh: usize = self.tables.values().filter_map(|table| Some(table.fresh.as_ref()?.entries.len())).sum();
        assert_eq!((indices, fresh), (self.len, self.len_fresh), "entries are counted");
        assert_eq!(self.by_filter.len(), self.len, "every entry is found");
        let queues = self.entries.iter().flatten().filter(|entry| entry.wanted.queue.is_some()).count();
        assert_eq!(queues, self.queue_len, "entries in queue groups are counted");
    }
}

#[cfg(test)]
mod tests;
