//! One receiver's view of one stream, as the oracle keeps it.

use crate::sim::oracle::paths::PathObservation;
use crate::sim::scenario::SECOND;
use crate::sim::truth::{MessageTrace, NEVER};
use std::collections::HashSet;

/// Outcome of a message at a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageState {
    Unreported,
    Delivered,
    /// It is reported as lost. `overflow` is set if a limit was the reason.
    Lost {
        overflow: bool,
    },
    /// It is within a loss whose number is an interval. `overflow` is set if a limit was the reason.
    MaybeLost {
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
    /// True if a stale datagram ended it: one sealed longer ago than a transit takes.
    pub ended_by_stale: bool,
}

/// A report that an epoch ended: the datagram after which nothing is known, and the last unknown one if the epoch
/// came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochEnd {
    pub at: u64,
    pub after: u64,
    pub upto: u64,
    /// Time at which a stale datagram made it seem alive again.
    pub stale_return: Option<u64>,
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
    /// Time at which the receiver first read something of the stream, and the datagram up to which nothing is certainly
    /// owed.
    pub contact: Option<(u64, u64)>,
    /// Time from the arrival of the datagram of the first contact to its reading. It adds to the margin of R4.
    pub contact_delay: u64,
    /// For each datagram, the time at which its first intact copy reached the receive buffer.
    pub arrived: Vec<u64>,
    /// For each datagram, the time at which its first intact copy was read.
    pub read: Vec<u64>,
    /// For each datagram, the time at which its last copy arrived, or would have without loss and damage.
    pub last_copies: Vec<u64>,
    /// Times of its datagrams by path.
    pub paths: PathObservation,
    /// Time at which the peer of this stream proved its address to this run.
    pub proved_at: u64,
    /// For each datagram, the time at which its manifest was read.
    pub manifest_read_at: Vec<u64>,
    /// Reports of expiry: the time of reading, and the datagram up to which the publisher has evicted all.
    pub expired: Vec<(u64, u64)>,
    /// For each datagram, the number of its unnumbered messages that were reported as unverified.
    pub unnumbered_lost: Vec<u64>,
    /// For each datagram, the report that it is unverified.
    pub gap_reports: Vec<Option<GapReport>>,
    /// For each unnumbered message, the report that it is unverified, by the datagram in which it began.
    pub message_reports: Vec<Option<GapReport>>,
    /// Times at which the receiver learnt of a higher datagram: (time, datagram), both rising.
    pub highs: Vec<(u64, u64)>,
    /// Number of the last announcement read.
    pub control: u64,
    /// Time of the last datagram read that certainly counts as a sign of life.
    pub last_sign: u64,
    /// Times at which the publisher certainly counted as heard: a beat and a half from each sign of life (A1).
    pub heard_min: HeardIntervals,
    /// Times at which it may have counted as heard.
    pub heard_max: HeardIntervals,
    /// Time at which its first announcement was read.
    pub announced_at: u64,
    /// The datagram before the lowest one read before the first announcement. That lowest datagram is the baseline.
    pub early_low: u64,
    /// Bytes of datagrams read before the first announcement.
    pub early_bytes: usize,
    /// Datagrams that the receiver may have discarded, for lack of room until the first announcement.
    pub doubtful: Vec<u64>,
    pub silences: Vec<SilencePeriod>,
    /// Times of stale signs of life. In open mode no receiver can recognize these (A10), so they close a reported
    /// silence. A silence that continues is reported again one T_silent later.
    pub stale_signs: Vec<u64>,
    /// Times at which a datagram was read that may count as a sign of life.
    pub signs: Vec<u64>,
    /// Reports of its crash.
    pub ends: Vec<EpochEnd>,
    /// True if datagrams sent before the first contact were reported as unverified, since no announcement had given
    /// the age of the epoch.
    pub is_age_unknown: bool,
    /// True if it came back after it had been forgotten, so that only datagrams after its return are owed.
    pub has_returned: bool,
    pub bye_read: bool,
    /// For each subscription and message, the outcome.
    pub states: Vec<Vec<MessageState>>,
    /// For each subscription and subject: one more than the last message delivered or lost.
    pub next_messages: Vec<Vec<usize>>,
    /// For each message, the time at which it was first delivered or reported as missing to any client.
    pub covered_at: Vec<u64>,
    /// Sums of the reports: lower and upper bound of lost messages, upper bound of unverified ones, lost directed ones.
    pub reported_sums: [u64; 4],
    /// Messages reported as lost only to members of queue groups.
    pub reported_to_members: HashSet<usize>,
    /// The last reported loss: time, subject and first message.
    pub last_report: Option<(u64, usize, usize)>,
    /// Lower and upper bound of that loss.
    pub last_report_bounds: (u64, u64),
    /// Sums of the advisories, as of the reports.
    pub advised_sums: [u64; 4],
    /// Time of the last advisory about the multicast stream, the directed stream, and as a publisher.
    pub advised_at: [u64; 4],
    /// Number of messages delivered as repaired.
    pub repaired: u64,
    /// Number of directed messages delivered.
    pub directed_delivered: u64,
    /// Number of directed messages reported as lost.
    pub directed_lost: u64,
    /// Index after the last delivered directed message.
    pub directed_next: usize,
    /// For each directed datagram, true if it was read.
    pub directed_read: Vec<bool>,
}

impl Default for Track {
    fn default() -> Track {
        Track {
            contact: None,
            contact_delay: 0,
            arrived: Vec::new(),
            read: Vec::new(),
            last_copies: Vec::new(),
            paths: PathObservation::default(),
            proved_at: NEVER,
            manifest_read_at: Vec::new(),
            expired: Vec::new(),
            unnumbered_lost: Vec::new(),
            gap_reports: Vec::new(),
            message_reports: Vec::new(),
            highs: Vec::new(),
            control: 0,
            last_sign: 0,
            heard_min: HeardIntervals::default(),
            heard_max: HeardIntervals::default(),
            announced_at: NEVER,
            early_low: NEVER,
            early_bytes: 0,
            doubtful: Vec::new(),
            silences: Vec::new(),
            stale_signs: Vec::new(),
            signs: Vec::new(),
            ends: Vec::new(),
            is_age_unknown: false,
            has_returned: false,
            bye_read: false,
            states: Vec::new(),
            next_messages: Vec::new(),
            covered_at: Vec::new(),
            reported_sums: [0; 4],
            reported_to_members: HashSet::new(),
            last_report: None,
            last_report_bounds: (0, 0),
            advised_sums: [0; 4],
            advised_at: [NEVER; 4],
            repaired: 0,
            directed_delivered: 0,
            directed_lost: 0,
            directed_next: 0,
            directed_read: Vec::new(),
        }
    }
}

/// Returns the entry at `index` of a list, which grows by copies of `empty` if it is shorter.
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

    /// Returns whether a message may come from the history. That needs the manifest of one of its datagrams, and the
    /// first datagram or its manifest.
    pub fn may_be_fetched(&self, sent: &MessageTrace) -> bool {
        let is_begun = self.read(sent.first) != NEVER || self.may_be_rebuilt(sent.first);
        is_begun && (sent.first..=sent.last).any(|dseq| self.may_be_rebuilt(dseq))
    }

    /// Returns whether the receiver read of the expiry of a datagram before its manifest. It gave the datagram up then.
    pub fn expired_first(&self, dseq: u64) -> bool {
        let manifest_read_at = self.manifest_read_at(dseq);
        self.expired.iter().any(|(at, last)| dseq <= *last && *at <= manifest_read_at)
    }

    pub fn gap_report(&self, dseq: u64) -> Option<GapReport> {
        self.gap_reports.get(dseq as usize - 1).copied().flatten()
    }

    pub fn record_gap_report(&mut self, dseq: u64, reported: GapReport) {
        let declared = slot(&mut self.gap_reports, dseq as usize - 1, None);
        declared.get_or_insert(reported).clients |= reported.clients;
    }

    pub fn message_report(&self, message: usize) -> Option<GapReport> {
        self.message_reports.get(message).copied().flatten()
    }

    pub fn record_message_report(&mut self, message: usize, reported: GapReport) {
        *slot(&mut self.message_reports, message, None) = Some(reported);
    }

    pub fn state(&self, sub: usize, message: usize) -> MessageState {
        self.states.get(sub).and_then(|of| of.get(message)).copied().unwrap_or(MessageState::Unreported)
    }

    pub fn set_state(&mut self, sub: usize, message: usize, state: MessageState) {
        *slot(slot(&mut self.states, sub, Vec::new()), message, MessageState::Unreported) = state;
    }

    pub fn cover(&mut self, message: usize, at: u64) {
        let covered = slot(&mut self.covered_at, message, NEVER);
        *covered = at.min(*covered);
    }

    /// Returns the index after the last message of a subject delivered or lost at a subscription.
    pub fn next_message(&mut self, sub: usize, subject: usize) -> &mut usize {
        slot(slot(&mut self.next_messages, sub, Vec::new()), subject, 0)
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
    pub(super) fn record_contact(&mut self, at: u64, high: u64, forget: u64, (arrived, is_stale): (Option<u64>, bool)) {
        if self.contact.is_none() {
            self.contact_delay = arrived.map_or(0, |arrived| at - arrived);
        }
        let Some(end) = self.ends.last_mut().filter(|end| end.upto == NEVER) else {
            self.contact.get_or_insert((at, high));
            return;
        };
        if at < end.at + forget / 1000 * 999 {
            // The receiver still remembers the epoch, however fast its clock is: the ledger continues.
            end.upto = end.after;
            end.stale_return = is_stale.then_some(at);
        } else {
            end.upto = high;
            self.contact = Some((at, high));
            self.has_returned = true;
            // The counts of the epoch begin anew.
            (self.reported_sums, self.advised_sums) = ([0; 4], [0; 4]);
            self.next_messages.clear();
            self.repaired = 0;
        }
    }

    /// Returns the latest time at which the receiver learnt that a datagram exists. Data read before the first
    /// announcement may have waited for it.
    pub fn latest_found(&self, dseq: u64) -> u64 {
        let found = self.found(dseq);
        if found == NEVER { NEVER } else { found.max(self.announced_at.min(found + 3 * SECOND)) }
    }

    /// Returns the time until which a silence may stay unreported. Its report was due at `due`, and a datagram is
    /// unknown until `known`. Signs of life that do not announce the datagram, such as retransmissions, postpone the
    /// report until `silence_bound` after the last of them.
    pub fn silence_deadline(&self, mut due: u64, known: u64, silence_bound: u64) -> u64 {
        loop {
            let signs = self.signs.partition_point(|at| *at <= due && *at < known);
            match signs.checked_sub(1).map(|last| self.signs[last] + silence_bound) {
                Some(later) if due < later => due = later,
                _ => return due,
            }
        }
    }

    /// Returns whether the receiver may have discarded a datagram that it read.
    pub fn is_doubtful(&self, dseq: u64) -> bool {
        self.doubtful.contains(&dseq)
    }

    /// Returns whether a datagram came more than `grace` after its first announcement.
    pub fn came_late(&self, dseq: u64, grace: u64) -> bool {
        self.read(dseq) != NEVER && self.found(dseq) != NEVER && self.found(dseq) + grace <= self.read(dseq)
    }

    pub(super) fn record_sign_of_life(&mut self, at: u64, beat: u64, is_stale: bool) {
        if is_stale {
            self.stale_signs.push(at);
        }
        self.last_sign = at;
        self.signs.push(at);
        self.heard_min.add(at, beat / 1000 * 999);
        self.heard_max.add(at, beat / 1000 * 1001);
        // A silence reported again without a certain sign of life in between leaves two of them open.
        for silence in self.silences.iter_mut().rev().take_while(|silence| silence.until == NEVER) {
            silence.until = at;
            silence.ended_by_stale = is_stale;
        }
    }
}
