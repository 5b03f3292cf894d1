//! One receiver's view of one stream, as the oracle keeps it.

use crate::sim::oracle::paths::PathObservation;
use crate::sim::scenario::SECOND;
use crate::sim::truth::{MessageTrace, NEVER};
use std::collections::HashSet;

/// Outcome of a message at a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageState {
    Nothing,
    Delivered,
    /// It is reported as lost. The flag is set if a limit was the reason.
    Lost {
        overflow: bool,
    },
    /// It is within a loss whose number is an interval. The flag is set if a limit was the reason.
    Maybe {
        overflow: bool,
    },
}

/// A receiver's report of a datagram, or of a message by the datagram in which it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapReport {
    pub at: u64,
    /// The clients that got the report, as a bit set.
    pub clients: u64,
    /// True if a limit was the reason.
    pub by_limit: bool,
}

/// A time of silence, from its report until the publisher was heard again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilencePeriod {
    pub from: u64,
    pub until: u64,
    pub after: u64,
    /// True if the datagram that ended it had been in transit for seconds.
    pub misled: bool,
}

/// A report that an epoch ended: the datagram after which nothing is known, and the last unknown one if the epoch
/// came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochEnd {
    pub at: u64,
    pub after: u64,
    pub upto: u64,
    /// Time at which a datagram that had been in transit for seconds made it seem alive again.
    pub misled: Option<u64>,
}

/// Times at which a publisher counted as heard, disjoint and in order.
#[derive(Debug, Default)]
pub(crate) struct HeardIntervals(Vec<(u64, u64)>);

impl HeardIntervals {
    /// Adds the interval of `nanos` from `at` on.
    pub(super) fn add(&mut self, at: u64, nanos: u64) {
        let until = at.saturating_add(nanos);
        match self.0.last_mut() {
            Some((_, end)) if at <= *end => *end = until.max(*end),
            _ => self.0.push((at, until)),
        }
    }

    /// Returns the time heard between two times.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        let first = self.0.partition_point(|(_, end)| *end <= from);
        let part = |(start, end): &(u64, u64)| to.min(*end).saturating_sub(from.max(*start));
        self.0[first..].iter().take_while(|(start, _)| *start < to).map(part).sum()
    }

    /// Returns the time at which the publisher has been heard for `nanos` since `from`.
    pub fn after(&self, from: u64, nanos: u64) -> u64 {
        let first = self.0.partition_point(|(_, end)| *end <= from);
        let mut left = nanos;
        for (start, end) in &self.0[first..] {
            let start = from.max(*start);
            if left <= end - start {
                return start + left;
            }
            left -= end - start;
        }
        NEVER
    }
}

/// One receiver's view of one stream.
#[derive(Debug)]
pub(crate) struct Track {
    /// Time at which the receiver first read something of the stream, and the datagram up to which nothing need be
    /// owed.
    pub contact: Option<(u64, u64)>,
    /// Time between the last known emptiness of its socket and the contact; the receiver must assume that it is
    /// younger by this.
    pub doubt: u64,
    /// For each datagram, the time at which its first whole copy reached the receive buffer.
    pub arrived: Vec<u64>,
    /// For each datagram, the time at which the first whole copy was read.
    pub read: Vec<u64>,
    /// For each datagram, the time at which its last copy arrived or would have.
    pub last_copies: Vec<u64>,
    /// Datagrams heard of it, by path.
    pub paths: PathObservation,
    /// Time at which the receiver of this track's stream proved its address to this run.
    pub proved: u64,
    /// For each datagram, the time at which its manifest was read.
    pub manifest_read_at: Vec<u64>,
    /// Reports of expiry: the time of reading, and the datagram up to which nothing is known any more.
    pub expired: Vec<(u64, u64)>,
    /// For each datagram, the number of its messages without a number that were reported as gone.
    pub rebuilt: Vec<u64>,
    pub declared: Vec<Option<GapReport>>,
    /// For each message, its report if it is a large one without a number, reported by the datagram in which it
    /// began.
    pub broken: Vec<Option<GapReport>>,
    /// Times at which the receiver learnt of a higher datagram: (time, datagram), both rising.
    pub highs: Vec<(u64, u64)>,
    pub control: u64,
    /// Time of the last datagram read that must, or may, count as a sign of life.
    pub sign_sure: u64,
    /// Times at which the publisher counted as heard, for certain and at most: a beat and a half from each sign of
    /// life (A1).
    pub heard: HeardIntervals,
    pub heard_most: HeardIntervals,
    /// Time at which its first announcement was read.
    pub announced_at: u64,
    /// The datagram before the lowest one read before the first announcement. Of those that wait for it, the lowest
    /// is the baseline.
    pub early_low: u64,
    /// Bytes of datagrams read before the first announcement, and those that may have found no room to wait for it.
    pub early_bytes: usize,
    pub doubtful: Vec<u64>,
    pub silences: Vec<SilencePeriod>,
    /// Signs of life that had been in transit for seconds. In open mode no receiver can tell (A10), so they close a
    /// reported silence. Any silence that they do not account for is reported again one T_silent later.
    pub misled: Vec<u64>,
    /// Times at which something was read that may count as a sign of life.
    pub signs: Vec<u64>,
    /// Reports of its crash.
    pub ends: Vec<EpochEnd>,
    /// True if datagrams sent before the first contact were reported as unverified, since no announcement had given
    /// the age of the epoch.
    pub is_age_unknown: bool,
    /// True if it came back after it had been forgotten, so that only datagrams after its return are owed.
    pub returned: bool,
    pub bye_read: bool,
    /// For each subscription and message, the outcome.
    pub states: Vec<Vec<MessageState>>,
    /// For each subscription and subject: one more than the last message delivered or lost.
    pub last: Vec<Vec<usize>>,
    /// For each message, the time at which it was first delivered or reported as missing to any client.
    pub covered: Vec<u64>,
    /// Sums of reports and of advisories: lower, upper bound of lost, upper bound of unverified, inbox.
    pub reported: [u64; 4],
    /// Messages reported as lost only to members of queue groups.
    pub reported_members: HashSet<usize>,
    /// The last reported loss: time, subject, first message, and bounds.
    pub reported_last: Option<(u64, usize, usize)>,
    pub reported_bounds: (u64, u64),
    pub advised: [u64; 4],
    pub advised_at: [u64; 3],
    /// Messages delivered as repaired.
    pub repaired: u64,
    /// Directed messages delivered.
    pub direct: u64,
    /// Directed messages reported as lost.
    pub inbox: u64,
    /// One more than the last of them.
    pub direct_last: usize,
    /// For each directed datagram, true if it was read.
    pub direct_read: Vec<bool>,
}

impl Default for Track {
    fn default() -> Track {
        Track {
            contact: None,
            doubt: 0,
            arrived: Vec::new(),
            read: Vec::new(),
            last_copies: Vec::new(),
            paths: PathObservation::default(),
            proved: NEVER,
            manifest_read_at: Vec::new(),
            expired: Vec::new(),
            rebuilt: Vec::new(),
            declared: Vec::new(),
            broken: Vec::new(),
            highs: Vec::new(),
            control: 0,
            sign_sure: 0,
            heard: HeardIntervals::default(),
            heard_most: HeardIntervals::default(),
            announced_at: NEVER,
            early_low: NEVER,
            early_bytes: 0,
            doubtful: Vec::new(),
            silences: Vec::new(),
            misled: Vec::new(),
            signs: Vec::new(),
            ends: Vec::new(),
            is_age_unknown: false,
            returned: false,
            bye_read: false,
            states: Vec::new(),
            last: Vec::new(),
            covered: Vec::new(),
            reported: [0; 4],
            reported_members: HashSet::new(),
            reported_last: None,
            reported_bounds: (0, 0),
            advised: [0; 4],
            advised_at: [NEVER; 3],
            repaired: 0,
            direct: 0,
            inbox: 0,
            direct_last: 0,
            direct_read: Vec::new(),
        }
    }
}

/// Returns the entry for a datagram or message, which are counted from `first`.
pub(crate) fn slot<T: Clone>(list: &mut Vec<T>, index: usize, empty: T) -> &mut T {
    if list.len() <= index {
        list.resize(index + 1, empty);
    }
    &mut list[index]
}

impl Track {
    pub fn arrived(&self, dseq: u64) -> u64 {
        self.arrived.get(dseq as usize - 1).copied().unwrap_or(NEVER)
    }

    pub fn read(&self, dseq: u64) -> u64 {
        self.read.get(dseq as usize - 1).copied().unwrap_or(NEVER)
    }

    pub fn last_copy(&self, dseq: u64) -> u64 {
        self.last_copies.get(dseq as usize - 1).copied().unwrap_or(0)
    }

    /// Returns the time at which the manifest of a datagram was read.
    pub fn manifest_read_at(&self, dseq: u64) -> u64 {
        self.manifest_read_at.get(dseq as usize - 1).copied().unwrap_or(NEVER)
    }

    /// Returns whether the manifest of a datagram was read before the datagram itself: its content may come from the
    /// history.
    pub fn may_be_rebuilt(&self, dseq: u64) -> bool {
        let manifest_read_at = self.manifest_read_at(dseq);
        manifest_read_at != NEVER && manifest_read_at <= self.read(dseq)
    }

    /// Returns whether a message may come from the history. One reported datagram of it is enough, if that in which
    /// it begins is accounted for.
    pub fn may_be_fetched(&self, sent: &MessageTrace) -> bool {
        let is_begun = self.read(sent.first) != NEVER || self.may_be_rebuilt(sent.first);
        is_begun && (sent.first..=sent.last).any(|dseq| self.may_be_rebuilt(dseq))
    }

    /// Returns whether the expiry of a datagram was reported before its manifest was read: then it was given up.
    pub fn expired_first(&self, dseq: u64) -> bool {
        let manifest_read_at = self.manifest_read_at(dseq);
        self.expired.iter().any(|(at, last)| dseq <= *last && *at <= manifest_read_at)
    }

    pub fn declared(&self, dseq: u64) -> Option<GapReport> {
        self.declared.get(dseq as usize - 1).copied().flatten()
    }

    pub fn declare(&mut self, dseq: u64, reported: GapReport) {
        let declared = slot(&mut self.declared, dseq as usize - 1, None);
        declared.get_or_insert(reported).clients |= reported.clients;
    }

    pub fn broken(&self, message: usize) -> Option<GapReport> {
        self.broken.get(message).copied().flatten()
    }

    pub fn report_broken(&mut self, message: usize, reported: GapReport) {
        *slot(&mut self.broken, message, None) = Some(reported);
    }

    pub fn state(&self, sub: usize, message: usize) -> MessageState {
        self.states.get(sub).and_then(|of| of.get(message)).copied().unwrap_or(MessageState::Nothing)
    }

    pub fn set_state(&mut self, sub: usize, message: usize, state: MessageState) {
        *slot(slot(&mut self.states, sub, Vec::new()), message, MessageState::Nothing) = state;
    }

    pub fn cover(&mut self, message: usize, at: u64) {
        let covered = slot(&mut self.covered, message, NEVER);
        *covered = at.min(*covered);
    }

    pub fn last(&mut self, sub: usize, subject: usize) -> &mut usize {
        slot(slot(&mut self.last, sub, Vec::new()), subject, 0)
    }

    /// Returns the highest datagram that the receiver knows of.
    pub fn high(&self) -> u64 {
        self.highs.last().map_or(0, |(_, high)| *high)
    }

    /// Returns the time at which the receiver first learnt that a datagram exists.
    pub fn found(&self, dseq: u64) -> u64 {
        let at = self.highs.partition_point(|(_, high)| *high < dseq);
        self.highs.get(at).map_or(NEVER, |(at, _)| *at)
    }

    pub(super) fn raise_high(&mut self, at: u64, high: u64) {
        if self.high() < high {
            self.highs.push((at, high));
        }
    }

    /// Records that something new of the stream was read, after which datagrams up to `high` are known.
    pub(super) fn record_contact(&mut self, at: u64, high: u64, forget: u64, (arrived, is_late): (Option<u64>, bool)) {
        if self.contact.is_none() {
            self.doubt = arrived.map_or(0, |arrived| at - arrived);
        }
        let Some(end) = self.ends.last_mut().filter(|end| end.upto == NEVER) else {
            self.contact.get_or_insert((at, high));
            return;
        };
        if at < end.at + forget / 1000 * 999 {
            // It is still remembered, by any clock: the ledger continues.
            end.upto = end.after;
            end.misled = is_late.then_some(at);
        } else {
            end.upto = high;
            self.contact = Some((at, high));
            self.returned = true;
            // Its counts begin anew.
            (self.reported, self.advised) = ([0; 4], [0; 4]);
            self.last.clear();
            self.repaired = 0;
        }
    }

    /// Returns the latest time at which the receiver found that a datagram exists: data before the first announcement
    /// may have waited.
    pub fn latest_found(&self, dseq: u64) -> u64 {
        let found = self.found(dseq);
        if found == NEVER { NEVER } else { found.max(self.announced_at.min(found + 3 * SECOND)) }
    }

    /// Returns the time until which a silence may stay unreported. It was due at `due`, `whole` after the last sign
    /// of life, and a datagram is unknown until `known`. Signs of life that do not announce the datagram, such as
    /// retransmissions, postpone the report.
    pub fn silence_deadline(&self, mut due: u64, known: u64, whole: u64) -> u64 {
        loop {
            let signs = self.signs.partition_point(|at| *at <= due && *at < known);
            match signs.checked_sub(1).map(|last| self.signs[last] + whole) {
                Some(later) if due < later => due = later,
                _ => return due,
            }
        }
    }

    /// Returns whether a datagram that was read may not have been taken.
    pub fn is_doubtful(&self, dseq: u64) -> bool {
        self.doubtful.contains(&dseq)
    }

    /// Returns whether a datagram came more than `grace` after its first announcement.
    pub fn came_late(&self, dseq: u64, grace: u64) -> bool {
        self.read(dseq) != NEVER && self.found(dseq) != NEVER && self.found(dseq) + grace <= self.read(dseq)
    }

    pub(super) fn record_sign_of_life(&mut self, at: u64, beat: u64, is_late: bool) {
        if is_late {
            self.misled.push(at);
        }
        self.sign_sure = at;
        self.signs.push(at);
        self.heard.add(at, beat / 1000 * 999);
        self.heard_most.add(at, beat / 1000 * 1001);
        // A silence that was reported again without a sign of life in between leaves two open.
        for silence in self.silences.iter_mut().rev().take_while(|silence| silence.until == NEVER) {
            silence.until = at;
            silence.misled = is_late;
        }
    }
}
