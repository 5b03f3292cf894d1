//! What the clients of other peers subscribe to, as far as those peers have told it: one table for each, and one tree for all.
//!
//! A table is complete up to a version: of every entry that changed last up to it, the last change is known. It is known when
//! that is the highest version that the peer has told of. Who stands before what the peer still tells of builds a new table beside
//! the old one and changes over when it is as good.

use crate::message::{Epoch, SubscriptionFilter};
use crate::proto::mutant::{Mutant, Mutants};
use crate::subject::tree::Tree;
use crate::subject::{Subject, channel};
use crate::time::Instant;
use crate::wire::{Interest, InterestEntry, InterestRequest};
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

/// The least time between two requests.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
/// The longest, where no answer comes.
const ASK_INTERVAL_MAX: Duration = Duration::from_secs(2);
/// A peer with more entries than there is room for is asked again after this.
const OVERFLOW_INTERVAL: Duration = Duration::from_secs(30);

/// The peers of one IP address may have one part in so many of the room for the entries of all peers.
const SHARES: usize = 4;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// It told something new.
    News,
    /// Everything in it was known.
    Late,
    /// Something before it is missing.
    Gap,
    /// There is no room for it.
    Overflow,
}

/// An entry of another peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEntry {
    /// Whose.
    pub epoch: Epoch,
    /// What is wanted.
    pub wanted: SubscriptionFilter,
    /// By how many of its subscriptions.
    pub count: u32,
}

/// The entries of all other peers.
#[derive(Debug)]
pub struct RemoteInterest {
    entries: Vec<Option<RemoteEntry>>,
    /// Places without an entry.
    unused: Vec<u32>,
    /// Places by peer and what is wanted.
    index: HashTable<u32>,
    hasher: FixedState,
    tree: Tree<u32>,
    tables: BTreeMap<Epoch, PeerTable>,
    /// Peers that are not there any more and may come back.
    lost: BTreeSet<Epoch>,
    /// Peers that are silent or that a later run has replaced.
    unreachable: BTreeSet<Epoch>,
    len: usize,
    /// Entries of new tables that are being built.
    len_fresh: usize,
    len_max: usize,
    /// How often an entry has changed.
    changes: u64,
    grace: Duration,
    mutants: Mutants,
    /// Empty between calls; keeps its room.
    found: Vec<u32>,
}

/// What one peer has told.
#[derive(Debug)]
struct PeerTable {
    /// Address from which the entries came.
    source: Option<IpAddr>,
    /// The highest version told, and by which control datagram. `None`: nothing yet.
    high: Option<(u64, u64)>,
    complete: u64,
    /// Up to which version the peer was told that it is.
    reported: u64,
    /// It holds nothing that ended before this version.
    base: u64,
    places: BTreeSet<u32>,
    fresh: Option<PendingTable>,
    /// Since when more is there than is known, and nothing came.
    behind: Option<Instant>,
    /// When it is asked next, at the earliest.
    ask_at: Instant,
    interval: Duration,
}

/// A new table that is not as good as the old one yet.
#[derive(Debug)]
struct PendingTable {
    base: u64,
    complete: u64,
    entries: BTreeMap<SubscriptionFilter, u32>,
}

impl PeerTable {
    fn new() -> PeerTable {
        PeerTable {
            source: None,
            high: None,
            complete: 0,
            reported: 0,
            base: 0,
            places: BTreeSet::new(),
            fresh: None,
            behind: None,
            ask_at: Instant::ZERO,
            interval: ASK_INTERVAL,
        }
    }

    /// Returns the number of its entries, old and new.
    fn len(&self) -> usize {
        self.places.len() + self.fresh.as_ref().map_or(0, |fresh| fresh.entries.len())
    }

    fn is_known(&self) -> bool {
        self.high.is_some_and(|(_, high)| high == self.complete)
    }

    /// A control datagram of this number tells of a highest version.
    fn on_high(&mut self, now: Instant, number: u64, high: u64) {
        // What was sent before is not newer because it comes later.
        if self.high.is_none_or(|(before, _)| before < number) {
            self.high = Some((number, high.max(self.complete)));
        }
        self.note_behind(now, false);
    }

    fn note_behind(&mut self, now: Instant, is_progress: bool) {
        if self.is_known() || self.high.is_none() {
            (self.behind, self.interval) = (None, ASK_INTERVAL);
        } else if self.behind.is_none() || is_progress {
            (self.behind, self.interval) = (Some(now), ASK_INTERVAL);
            if is_progress {
                self.ask_at = now + ASK_INTERVAL;
            }
        }
    }

    fn request_deadline(&self, grace: Duration) -> Option<Instant> {
        Some((self.behind? + grace).max(self.ask_at))
    }
}

impl RemoteInterest {
    /// Nobody has told anything. There is room for `len_max` entries; `grace` is how long what is missing may simply be late, and
    /// `seed` makes the places in the tables unpredictable.
    pub fn new(seed: u64, len_max: usize, grace: Duration, mutants: Mutants) -> RemoteInterest {
        RemoteInterest {
            entries: Vec::new(),
            unused: Vec::new(),
            index: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            tree: Tree::new(seed),
            tables: BTreeMap::new(),
            lost: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            len: 0,
            len_fresh: 0,
            len_max,
            changes: 0,
            grace,
            mutants,
            found: Vec::new(),
        }
    }

    /// Whether all that this peer's clients subscribe to is known.
    pub fn is_known(&self, epoch: Epoch) -> bool {
        self.tables.get(&epoch).is_some_and(PeerTable::is_known)
    }

    /// Up to which version everything is known; the peer is told so.
    pub fn report_complete(&mut self, epoch: Epoch) -> u64 {
        let Some(table) = self.tables.get_mut(&epoch) else { return 0 };
        table.reported = table.reported.max(table.complete);
        table.complete
    }

    /// Whether the peer was told that something is known of it.
    pub fn was_reported(&self, epoch: Epoch) -> bool {
        self.tables.get(&epoch).is_some_and(|table| 0 < table.reported)
    }

    /// Whether less is known of a peer than it was told.
    pub fn is_short(&self, epoch: Epoch) -> bool {
        self.tables.get(&epoch).is_some_and(|table| table.complete < table.reported)
    }

    /// A peer tells its highest version, in the control datagram of this number.
    pub fn on_control(&mut self, now: Instant, epoch: Epoch, number: u64, high: u64) {
        self.tables.entry(epoch).or_insert_with(PeerTable::new).on_high(now, number, high);
    }

    /// A record of a peer at `source`, in the control datagram of this number.
    pub fn on_record(
        &mut self,
        now: Instant,
        (epoch, source): (Epoch, IpAddr),
        number: u64,
        record: Interest,
    ) -> RecordOutcome {
        let table = self.tables.entry(epoch).or_insert_with(PeerTable::new);
        table.source = Some(source);
        table.on_high(now, number, record.high);
        let taken = self.take(epoch, record);
        let Some(table) = self.tables.get_mut(&epoch) else { return taken };
        match taken {
            RecordOutcome::Overflow => {
                table.behind = Some(now);
                (table.ask_at, table.interval) = (now + OVERFLOW_INTERVAL, OVERFLOW_INTERVAL);
            }
            _ => table.note_behind(now, taken == RecordOutcome::News),
        }
        taken
    }

    fn take(&mut self, epoch: Epoch, record: Interest) -> RecordOutcome {
        let mutants = self.mutants;
        let Some(table) = self.tables.get_mut(&epoch) else { return RecordOutcome::Late };
        let follows = |complete: u64, base: u64| {
            let is_late = record.upto <= complete && !mutants.is(Mutant::LateNewsApplied);
            let is_gap = complete < record.after && !mutants.is(Mutant::NewsAcrossGap);
            !is_late && !is_gap && record.base <= base
        };
        let begins = record.base != 0
            && record.after == 0
            && table.complete < record.base
            && table.fresh.as_ref().is_none_or(|fresh| fresh.base < record.base);
        if begins {
            self.len_fresh -= table.fresh.as_ref().map_or(0, |fresh| fresh.entries.len());
            table.fresh = Some(PendingTable { base: record.base, complete: 0, entries: BTreeMap::new() });
        }
        let mut taken = if record.upto <= table.complete { RecordOutcome::Late } else { RecordOutcome::Gap };
        // What was told before it was begun may have ended since, untold.
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
            taken = RecordOutcome::News;
        }
        if follows(table.complete, table.base) {
            table.complete = record.upto;
            taken = RecordOutcome::News;
            record.entries.into_iter().for_each(|entry| self.put(epoch, entry));
        }
        self.switch_table(epoch);
        // Those that are there come first.
        while self.len_max < self.len + self.len_fresh
            && let Some(lost) = self.lost.iter().copied().find(|lost| self.has_entries(*lost))
        {
            self.empty(lost);
        }
        if self.len_max < self.len + self.len_fresh || self.is_share_exceeded(epoch) {
            self.empty(epoch);
            return RecordOutcome::Overflow;
        }
        taken
    }

    /// Returns whether the peers at the address of this one have more entries than may come from one address.
    fn is_share_exceeded(&self, epoch: Epoch) -> bool {
        let share = self.len_max.div_ceil(SHARES);
        if self.len + self.len_fresh <= share {
            return false;
        }
        let Some(source) = self.tables.get(&epoch).map(|table| table.source) else { return false };
        let at_source = self.tables.values().filter(|table| table.source == source);
        share < at_source.map(PeerTable::len).sum()
    }

    fn has_entries(&self, epoch: Epoch) -> bool {
        self.tables.get(&epoch).is_some_and(|table| !table.places.is_empty() || table.fresh.is_some())
    }

    /// Takes the new table if it is as good as the old one, and drops it if it is not needed.
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
        let places = std::mem::take(&mut table.places);
        places.into_iter().for_each(|place| self.drop_place(place));
        for (wanted, count) in fresh.entries {
            self.put(epoch, InterestEntry { wanted, count });
        }
    }

    /// A peer is not there, but may come back: its entries stay, for [`RemoteInterest::is_wanted`] alone.
    pub fn lose(&mut self, epoch: Epoch) {
        if self.tables.contains_key(&epoch) && self.lost.insert(epoch) {
            self.changes += 1;
        }
    }

    /// A peer is there, perhaps again.
    pub fn restore(&mut self, epoch: Epoch) {
        if self.lost.remove(&epoch) {
            self.changes += 1;
        }
    }

    /// Sets whether a peer can be reached. The entries of one that cannot are not counted as receivers, and still keep messages
    /// from being suppressed.
    pub fn set_reachable(&mut self, epoch: Epoch, is_reachable: bool) {
        let is_change = if is_reachable { self.unreachable.remove(&epoch) } else { self.unreachable.insert(epoch) };
        self.changes += u64::from(is_change);
    }

    /// Those that are not there and may come back.
    pub fn lost(&self) -> impl Iterator<Item = Epoch> {
        self.lost.iter().copied()
    }

    /// A peer ended: its entries end with it.
    pub fn end(&mut self, epoch: Epoch) {
        self.restore(epoch);
        self.unreachable.remove(&epoch);
        if self.tables.contains_key(&epoch) {
            self.empty(epoch);
            self.tables.remove(&epoch);
        }
    }

    /// Forgets what a peer has told, as if nothing of it had come.
    fn empty(&mut self, epoch: Epoch) {
        let Some(table) = self.tables.get_mut(&epoch) else { return };
        self.len_fresh -= table.fresh.take().map_or(0, |fresh| fresh.entries.len());
        (table.complete, table.base) = (0, 0);
        let places = std::mem::take(&mut table.places);
        places.into_iter().for_each(|place| self.drop_place(place));
    }

    fn hash(&self, epoch: Epoch, wanted: &SubscriptionFilter) -> u64 {
        self.hasher.hash_one((epoch, wanted))
    }

    /// What a peer tells of one entry.
    fn put(&mut self, epoch: Epoch, InterestEntry { wanted, count }: InterestEntry) {
        self.changes += 1;
        let hash = self.hash(epoch, &wanted);
        let entries = &mut self.entries;
        let is_it = |place: &u32| {
            entries[*place as usize].as_ref().is_some_and(|entry| entry.epoch == epoch && entry.wanted == wanted)
        };
        match (self.index.find(hash, is_it).copied(), count) {
            (None, 0) => {}
            (Some(place), 0) => {
                if let Some(table) = self.tables.get_mut(&epoch) {
                    table.places.remove(&place);
                }
                self.drop_place(place);
            }
            (Some(place), count) => {
                if let Some(entry) = &mut entries[place as usize] {
                    entry.count = count;
                }
            }
            (None, count) => self.add(hash, RemoteEntry { epoch, wanted, count }),
        }
    }

    fn add(&mut self, hash: u64, entry: RemoteEntry) {
        let place = self.unused.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("fewer entries than 2^32")
        });
        self.tree.insert(&entry.wanted.pattern, place);
        if let Some(table) = self.tables.get_mut(&entry.epoch) {
            table.places.insert(place);
        }
        self.entries[place as usize] = Some(entry);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert_unique(hash, place, |place| {
            entries[*place as usize].as_ref().map_or(0, |entry| hasher.hash_one((entry.epoch, &entry.wanted)))
        });
        self.len += 1;
    }

    /// Removes an entry from everywhere but its table.
    fn drop_place(&mut self, place: u32) {
        self.changes += 1;
        let entry = self.entries[place as usize].as_ref().expect("a table has the places of its entries");
        let hash = self.hasher.hash_one((entry.epoch, &entry.wanted));
        let found = self.index.find_entry(hash, |other| *other == place);
        found.expect("every entry is in the index").remove();
        let entry = self.entries[place as usize].take().expect("found above");
        assert!(self.tree.remove(&entry.wanted.pattern, place), "every entry is in the tree");
        self.unused.push(place);
        self.len -= 1;
    }

    /// How often the entries have changed: as long as this stays, what matches stays.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether an entry matches the subject, also one of a peer that is lost.
    pub fn is_wanted(&mut self, subject: &Subject) -> bool {
        let mut is_wanted = false;
        self.visit_all(subject, |_| is_wanted = true);
        is_wanted
    }

    /// Calls `each` with every entry that matches the subject, of all peers that are there.
    pub fn visit(&mut self, subject: &Subject, mut each: impl FnMut(&RemoteEntry)) {
        let lost = std::mem::take(&mut self.lost);
        self.visit_all(subject, |entry| {
            if lost.is_empty() || !lost.contains(&entry.epoch) {
                each(entry);
            }
        });
        self.lost = lost;
    }

    /// Calls `each` with every entry that matches the subject, of all peers that can be reached.
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
        for entry in found.iter().filter_map(|place| self.entries[*place as usize].as_ref()) {
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

    /// When a peer is to be asked next.
    pub fn deadline(&self, is_there: impl Fn(Epoch) -> bool) -> Option<Instant> {
        let tables = self.tables.iter().filter(|(epoch, _)| is_there(**epoch));
        tables.filter_map(|(_, table)| table.request_deadline(self.grace)).min()
    }

    /// The next request that is due, if there is one.
    pub fn poll_request(&mut self, now: Instant, is_there: impl Fn(Epoch) -> bool) -> Option<InterestRequest> {
        let grace = self.grace;
        let is_due = |table: &PeerTable| table.request_deadline(grace).is_some_and(|at| at <= now);
        let mut tables = self.tables.iter_mut();
        let (epoch, table) = tables.find(|(epoch, table)| is_due(table) && is_there(**epoch))?;
        table.ask_at = now + table.interval;
        table.interval = (table.interval * 2).min(ASK_INTERVAL_MAX.max(table.interval));
        let (from, base) =
            table.fresh.as_ref().map_or((table.complete, table.base), |fresh| (fresh.complete, fresh.base));
        Some(InterestRequest { epoch: *epoch, from, base })
    }

    /// All entries of peers that are there, by peer.
    pub fn entries(&self) -> impl Iterator<Item = &RemoteEntry> {
        let tables = self.tables.iter().filter(|(epoch, _)| !self.lost.contains(epoch));
        let places = tables.flat_map(|(_, table)| &table.places);
        places.filter_map(|place| self.entries[*place as usize].as_ref())
    }

    /// Checks what must hold between calls; panics if it does not.
    pub fn assert_invariants(&self) {
        let places: usize = self.tables.values().map(|table| table.places.len()).sum();
        let fresh: usize = self.tables.values().filter_map(|table| Some(table.fresh.as_ref()?.entries.len())).sum();
        assert_eq!((places, fresh), (self.len, self.len_fresh), "entries are counted");
        assert_eq!(self.index.len(), self.len, "every entry is found");
    }
}

#[cfg(test)]
mod tests;
