//! The subscriptions of this peer's clients as advertised to other peers: the number with each filter, and the last
//! change.
//!
//! Every change gets the next version. A record covers all entries whose last change lies in a span of versions. Lost
//! records are repeated from the requester's version, and late or duplicate records are recognized as known. Ended
//! entries stay for the peers that know them, up to a limit. A requester that is older than an evicted entry builds a new
//! table. If a peer has forged entries, every peer is made to do so ([`LocalInterest::renew`]).

use crate::message::SubscriptionFilter;
use crate::proto::mutant::{Mutant, Mutants};
use crate::proto::remote_interest::{STEP_MAX, VERSION_MAX};
use crate::wire::{INTEREST_COUNT_MAX, Interest, InterestEntry, InterestRequest};
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of ended entries that are still advertised; beyond it the oldest are evicted, and the floor rises.
pub const ENDED_MAX: usize = 65_536;

/// The subscriptions of this peer's clients as advertised to other peers.
#[derive(Debug)]
pub struct LocalInterest {
    entries: HashMap<Arc<SubscriptionFilter>, LocalEntry, FixedState>,
    /// Every entry by its version.
    by_version: BTreeMap<u64, Arc<SubscriptionFilter>>,
    /// Versions of ended entries.
    ended: BTreeSet<u64>,
    ended_max: usize,
    /// Version up to which ended entries were evicted.
    floor: u64,
    high: u64,
    /// Version up to which all entries have been announced.
    sent: u64,
    mutants: Mutants,
}

#[derive(Clone, Copy, Debug)]
struct LocalEntry {
    count: u32,
    version: u64,
}

impl LocalInterest {
    /// Creates an empty table; `seed` makes hashing unpredictable.
    pub fn new(seed: u64, ended_max: usize, mutants: Mutants) -> LocalInterest {
        LocalInterest {
            entries: HashMap::with_hasher(FixedState::with_seed(seed)),
            by_version: BTreeMap::new(),
            ended: BTreeSet::new(),
            ended_max,
            floor: 0,
            high: 0,
            sent: 0,
            mutants,
        }
    }

    /// Returns the version of the last change.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// Counts one subscription more or one less with this filter.
    pub fn change(&mut self, wanted: &SubscriptionFilter, is_more: bool) {
        self.high += 1;
        let key = match self.entries.get_key_value(wanted) {
            Some((key, _)) => Arc::clone(key),
            None => Arc::new(wanted.clone()),
        };
        let version = self.high;
        let entry = self.entries.entry(Arc::clone(&key)).or_insert(LocalEntry { count: 0, version });
        if self.by_version.remove(&entry.version).is_some() {
            self.ended.remove(&entry.version);
        }
        entry.version = version;
        entry.count = if is_more {
            entry.count + 1
        } else {
            entry.count.checked_sub(1).expect("an ended subscription was counted")
        };
        if entry.count == 0 {
            self.ended.insert(version);
        }
        self.by_version.insert(version, key);
        self.evict_ended(self.ended_max);
    }

    /// Evicts the ended entries that ended first, until there are at most this number.
    fn evict_ended(&mut self, ended_max: usize) {
        while ended_max < self.ended.len() {
            let oldest = self.ended.pop_first().expect("there are more than the limit");
            let wanted = self.by_version.remove(&oldest).expect("every version has its entry");
            self.entries.remove(&wanted);
            if !self.mutants.is(Mutant::EndedInterestDropped) {
                self.floor = oldest;
            }
        }
    }

    /// Makes every other peer build a new table, because one of them has entries of the version `forged`, which this peer
    /// has never announced. The new version is above that, and no table of an earlier version can be completed. Returns
    /// whether `forged` is such a version (docs/wire.md W142).
    pub fn renew(&mut self, forged: u64) -> bool {
        if forged <= self.high {
            return false;
        }
        // A peer that claims more is wrong, or forges this: no peer applies records so far ahead.
        let forged = forged.min(self.high.saturating_add(STEP_MAX));
        // No peer uses a table of the highest version, so that is as good as a new one.
        self.high = forged.saturating_add(1).min(VERSION_MAX).max(self.high);
        self.evict_ended(0);
        self.floor = self.high;
        true
    }

    /// Returns whether there are changes that have not been announced to the group.
    pub fn has_changes(&self) -> bool {
        self.sent < self.high
    }

    /// Announces all entries again, because this peer begins a new epoch and no other peer knows them.
    pub fn reannounce(&mut self) {
        self.sent = 0;
    }

    /// Returns the next record for all peers, with at most `room` bytes of entries.
    pub fn poll_changes(&mut self, room: usize) -> Option<Interest> {
        // A peer that does not know evicted entries must send a request anyway.
        self.sent = self.sent.max(self.floor);
        let record = self.record(self.sent, 0, room)?;
        self.sent = record.upto;
        Some(record)
    }

    /// Returns the answer to a request: at most `records_max` records, each with at most `room` bytes of entries.
    pub fn answer(&self, request: &InterestRequest, room: usize, records_max: usize) -> Vec<Interest> {
        let is_anew = request.from.max(request.base) < self.floor;
        // The requester knows no entry that ended before its table was begun.
        let base = if is_anew { self.high } else { request.base };
        let base = if request.from < self.floor { base } else { 0 };
        let mut after = if is_anew { 0 } else { request.from };
        // The requester's value is untrusted.
        let base = base.min(self.high);
        let mut records = Vec::new();
        while records.len() < records_max {
            let Some(record) = self.record(after, base, room) else { break };
            after = record.upto;
            records.push(record);
        }
        records
    }

    /// Returns the entries whose last change has a version above `after`, up to `room` bytes, without those that ended
    /// up to `base`. Returns `None` if `after` is the highest version.
    fn record(&self, after: u64, base: u64, room: usize) -> Option<Interest> {
        if self.high <= after {
            return None;
        }
        let (mut upto, mut bytes, mut entries) = (self.high, 0, Vec::new());
        for (version, wanted) in self.by_version.range(after + 1..) {
            if *version <= base && self.ended.contains(version) {
                continue;
            }
            let count = self.entries.get(wanted).map_or(0, |entry| entry.count.min(INTEREST_COUNT_MAX));
            let entry = InterestEntry { wanted: SubscriptionFilter::clone(wanted), count };
            bytes += entry.bytes();
            if room < bytes && !entries.is_empty() {
                upto = version - 1;
                break;
            }
            entries.push(entry);
        }
        Some(Interest { after, upto, high: self.high, base, entries })
    }
}
