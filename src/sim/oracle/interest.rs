//! The knowledge of peers about each other's subscriptions, and suppression: no peer suppresses a message that another
//! one is entitled to.
//!
//! The oracle counts the changes of each peer's subscriptions itself. It reads from the datagrams which of these
//! changes other peers confirm.

use super::{Oracle, PeerRun};
use crate::message::{ClientId, Queue, SubscriptionFilter, Target};
use crate::proto::peer::Peer;
use crate::proto::stats::MemberState;
use crate::sim::scenario::{SECOND, reaches};
use crate::sim::truth::NEVER;
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, nanos};
use std::collections::BTreeMap;

/// A present or former member of a queue group.
#[derive(Debug)]
pub(crate) struct QueueMember {
    pub target: Target,
    pub pattern: Pattern,
    pub queue: Queue,
    pub end: u64,
    /// Version of the subscriptions at which the membership began.
    pub version: u64,
}

impl PeerRun {
    /// Counts a change of the subscriptions and returns the new version.
    pub(super) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

impl Oracle {
    /// Returns the highest version of a run's subscriptions that a stream has confirmed.
    fn confirmed_version(&self, stream: usize, run: usize) -> u64 {
        let epoch = self.truth.streams[self.runs[run].stream].epoch;
        self.truth.streams[stream].confirmed.get(&epoch.bits()).copied().unwrap_or(0)
    }

    /// Checks an announcement of a peer: its own subscription version, and the versions that it confirms for others.
    pub(super) fn check_interest_announcement(&mut self, run: usize) {
        let stream = self.runs[run].stream;
        let Some((version, known)) = self.truth.streams[stream].announced_interest.take() else { return };
        self.figures.cross_checks += 1;
        if version != self.runs[run].version {
            let truth = self.runs[run].version;
            self.findings.add(
                "interest",
                format!("run {run} advertises version {version} of its subscriptions, in truth {truth}"),
            );
        }
        let Some((receiver, known)) = known else { return };
        let other = self.runs.iter().position(|other| self.truth.streams[other.stream].epoch.bits() == receiver);
        if let Some(other) = other.filter(|other| self.runs[*other].version < known) {
            let truth = self.runs[other].version;
            let text = format!("run {run} confirms version {known} of run {other}, in truth {truth}");
            self.findings.add("interest", text);
        }
    }

    /// Returns whether a run must send a message that it publishes now: if it has just started, or has confirmed a
    /// matching subscription at another peer.
    pub(super) fn must_be_sent(&mut self, run: usize, subject: &Subject) -> bool {
        let stream = self.runs[run].stream;
        let PeerRun { host, born, ref settings, .. } = self.runs[run];
        let age = self.findings.now - born;
        // Boot clocks are fast by 500 ppm at most.
        if age + age / 1000 < 5 * nanos(settings.heartbeat) {
            return true;
        }
        (0..self.runs.len()).any(|other| {
            let main = self.runs[other].main;
            let PeerRun { ended, host: there, .. } = self.runs[main];
            let leaves = self.truth.streams[self.runs[main].stream].has_sent_bye;
            if ended != NEVER || leaves || there == host {
                return false;
            }
            let known = self.confirmed_version(stream, main);
            let mut subs = self.runs[other].subs.iter();
            let mut members = self.runs[other].members.iter();
            subs.any(|sub| sub.is_active() && sub.version <= known && sub.wants(subject))
                || members.any(|one| one.end == NEVER && one.version <= known && one.pattern.matches(subject))
        })
    }

    /// Checks the version that a peer reports as confirmed by all suppressing peers. Each one that it hears must have
    /// confirmed that version.
    pub(crate) fn check_confirmed(&mut self, run: usize, confirmed: u64, heard: &[u64]) {
        for epoch in heard {
            let stream = self.truth.streams.iter().position(|stream| stream.epoch.bits() == *epoch);
            let Some(stream) = stream.filter(|stream| self.truth.streams[*stream].settings.suppresses) else {
                continue;
            };
            // A peer that does not suppress assumes the same of a peer without an announcement.
            let is_named = self.runs[run].track(stream).announced_at != NEVER || self.runs[run].settings.suppresses;
            self.figures.cross_checks += 1;
            let known = self.confirmed_version(stream, run);
            if known < confirmed && is_named {
                let text =
                    format!("run {run} counts version {confirmed} as confirmed by stream {stream}, in truth {known}");
                self.findings.add("confirmed", text);
            }
        }
    }

    /// Checks at the end that peers which have been together for 6 s know each other's subscriptions.
    pub(crate) fn check_views(&mut self, at: u64, peers: &mut [(usize, ClockReading, &mut Peer)]) {
        if self.healed_at == NEVER {
            return;
        }
        let runs: Vec<(usize, u64)> = peers.iter().map(|(run, _, peer)| (*run, peer.epoch().bits())).collect();
        for (run, now, peer) in peers {
            let rows = peer.remote_rows();
            for (other, epoch) in runs.iter().filter(|(other, _)| other != run) {
                let born = |run: usize| self.truth.streams[self.runs[run].stream].born;
                let together = at - born(*run).max(born(*other));
                let is_reachable = reaches(self.cells, self.runs[*run].host, self.runs[*other].host);
                if together < 6 * SECOND || !is_reachable {
                    continue;
                }
                let mut known: BTreeMap<SubscriptionFilter, u64> = BTreeMap::new();
                let of_other = rows.iter().filter(|row| row.publisher.epoch.bits() == *epoch);
                of_other.for_each(|row| *known.entry(row.wanted.clone()).or_default() += u64::from(row.count));
                self.figures.cross_checks += 1;
                let truth = self.wanted(*other);
                if known != truth {
                    let text = format!("run {run} knows of run {other}: {known:?}, in truth {truth:?}");
                    self.findings.add("views", text);
                }
            }
            self.check_receivers((*run, *now), peer, &runs);
        }
    }

    /// Returns the subscription filters of a run, each with its number of subscriptions.
    fn wanted(&self, run: usize) -> BTreeMap<SubscriptionFilter, u64> {
        let mut wanted: BTreeMap<SubscriptionFilter, u64> = BTreeMap::new();
        for side in self.sides(run) {
            for sub in self.runs[side].subs.iter().filter(|sub| sub.is_active()) {
                *wanted.entry(sub.pattern.clone().into()).or_default() += 1;
            }
        }
        for member in self.runs[run].members.iter().filter(|member| member.end == NEVER) {
            let one = SubscriptionFilter { queue: Some(member.queue.clone()), ..member.pattern.clone().into() };
            *wanted.entry(one).or_default() += 1;
        }
        wanted
    }

    /// Checks that each peer knows the number of receivers of a message, provided that no peer is silent.
    fn check_receivers(&mut self, (run, now): (usize, ClockReading), peer: &mut Peer, runs: &[(usize, u64)]) {
        let rows = peer.member_rows(now);
        let is_whole = rows.iter().all(|row| row.state == MemberState::Up || row.state == MemberState::Left);
        if !is_whole || self.cells != 0 || runs.iter().any(|(_, epoch)| !self.is_met(peer, *epoch)) {
            return;
        }
        let subjects = self.truth.subjects.iter().filter(|subject| !subject.as_str().starts_with("_INBOX."));
        let all: Vec<(SubscriptionFilter, u64)> = runs.iter().flat_map(|(run, _)| self.wanted(*run)).collect();
        let mut finding = None;
        for subject in subjects.take(20) {
            let matching = all.iter().filter(|(wanted, _)| wanted.pattern.matches(subject));
            let mut queues: Vec<&Queue> = matching.clone().filter_map(|(wanted, _)| wanted.queue.as_ref()).collect();
            queues.sort();
            queues.dedup();
            let plain: u64 = matching.filter(|(wanted, _)| wanted.queue.is_none()).map(|(_, count)| count).sum();
            let truth = plain + queues.len() as u64;
            self.figures.cross_checks += 1;
            if peer.receivers(ClientId(0), subject) != (truth, true) {
                finding = Some(format!(
                    "run {run}: {subject} has {:?} receivers, in truth {truth}",
                    peer.receivers(ClientId(0), subject)
                ));
            }
        }
        if let Some(finding) = finding {
            self.findings.add("receivers", finding);
        }
    }

    fn is_met(&self, peer: &Peer, epoch: u64) -> bool {
        let born =
            self.truth.streams.iter().find(|stream| stream.epoch.bits() == epoch).map_or(0, |stream| stream.born);
        peer.epoch().bits() == epoch || born + 6 * SECOND < self.findings.now
    }
}
