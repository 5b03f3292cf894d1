//! What peers know of each other's subscriptions, and what they leave out because of it: nothing that somebody was told to get.
//!
//! The oracle counts the changes of each peer's subscriptions itself, and reads from the datagrams which of them other peers
//! say that they know.

use super::{Oracle, PeerRun};
use crate::message::{ClientId, Queue, SubscriptionFilter};
use crate::proto::effect::Target;
use crate::proto::peer::Peer;
use crate::proto::stats::MemberState;
use crate::sim::scenario::{SECOND, is_heard};
use crate::sim::truth::NEVER;
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, nanos};
use std::collections::BTreeMap;

/// A member of a queue group, now or before.
#[derive(Debug)]
pub(crate) struct QueueMember {
    pub target: Target,
    pub pattern: Pattern,
    pub queue: Queue,
    pub end: u64,
    /// With which change of the subscriptions it began.
    pub version: u64,
}

impl PeerRun {
    /// One subscription more or less.
    pub(super) fn change(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

impl Oracle {
    /// Up to which version a stream has said to know the subscriptions of a run.
    fn confirmed_version(&self, stream: usize, run: usize) -> u64 {
        let epoch = self.truth.streams[self.runs[run].stream].epoch;
        self.truth.streams[stream].known.get(&epoch.bits()).copied().unwrap_or(0)
    }

    /// A peer has said something: of its own subscriptions, and of those of others.
    pub(super) fn check_interest_word(&mut self, run: usize) {
        let stream = self.runs[run].stream;
        let Some((version, known)) = self.truth.streams[stream].interest_said.take() else { return };
        self.figures.cross_checks += 1;
        if version != self.runs[run].version {
            let truth = self.runs[run].version;
            self.findings
                .add("interest", format!("run {run} tells version {version} of its subscriptions, it is {truth}"));
        }
        let Some((receiver, known)) = known else { return };
        let other = self.runs.iter().position(|other| self.truth.streams[other.stream].epoch.bits() == receiver);
        if let Some(other) = other.filter(|other| self.runs[*other].version < known) {
            let truth = self.runs[other].version;
            let text = format!("run {run} claims to know {known} changes of run {other}, there were {truth}");
            self.findings.add("interest", text);
        }
    }

    /// Whether a message that a run publishes now must be sent: a subscription elsewhere wants it, and the publisher has said to
    /// know that; or it has just started.
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
            let leaves = self.truth.streams[self.runs[main].stream].said_bye;
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

    /// A peer says up to which version all that spare messages know its subscriptions: all that it hears have said so.
    pub(crate) fn check_confirmed(&mut self, run: usize, confirmed: u64, heard: &[u64]) {
        for epoch in heard {
            let stream = self.truth.streams.iter().position(|stream| stream.epoch.bits() == *epoch);
            let Some(stream) = stream.filter(|stream| self.truth.streams[*stream].settings.spares) else { continue };
            // Who has not said a word is not taken to spare anything by those that do not themselves.
            let is_named = self.runs[run].track(stream).word_at != NEVER || self.runs[run].settings.spares;
            self.figures.cross_checks += 1;
            let known = self.confirmed_version(stream, run);
            if known < confirmed && is_named {
                let text =
                    format!("run {run} takes {confirmed} changes for known to stream {stream}, that knows {known}");
                self.findings.add("confirmed", text);
            }
        }
    }

    /// What peers that have been together for long know of each other at the end.
    pub(crate) fn check_views(&mut self, at: u64, peers: &mut [(usize, ClockReading, &mut Peer)]) {
        if self.healed == NEVER {
            return;
        }
        let runs: Vec<(usize, u64)> = peers.iter().map(|(run, _, peer)| (*run, peer.epoch().bits())).collect();
        for (run, now, peer) in peers {
            let rows = peer.remote_rows();
            for (other, epoch) in runs.iter().filter(|(other, _)| other != run) {
                let born = |run: usize| self.truth.streams[self.runs[run].stream].born;
                let together = at - born(*run).max(born(*other));
                let hears = is_heard(self.cells, self.runs[*run].host, self.runs[*other].host);
                if together < 6 * SECOND || !hears {
                    continue;
                }
                let mut known: BTreeMap<SubscriptionFilter, u64> = BTreeMap::new();
                let of_it = rows.iter().filter(|row| row.publisher.epoch.bits() == *epoch);
                of_it.for_each(|row| *known.entry(row.wanted.clone()).or_default() += u64::from(row.count));
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

    /// What the subscriptions of a run want, and how many want the same.
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

    /// Where nobody is silent, each peer knows how many get a message.
    fn check_receivers(&mut self, (run, now): (usize, ClockReading), peer: &mut Peer, runs: &[(usize, u64)]) {
        let rows = peer.member_rows(now);
        let is_whole = rows.iter().all(|row| row.state == MemberState::Up || row.state == MemberState::Left);
        if !is_whole || self.cells != 0 || runs.iter().any(|(_, epoch)| !self.is_met(peer, *epoch)) {
            return;
        }
        let subjects = self.truth.subjects.iter().filter(|subject| !subject.as_str().starts_with("_INBOX."));
        let all: Vec<(SubscriptionFilter, u64)> = runs.iter().flat_map(|(run, _)| self.wanted(*run)).collect();
        let mut wrong = None;
        for subject in subjects.take(20) {
            let matching = all.iter().filter(|(wanted, _)| wanted.pattern.matches(subject));
            let mut queues: Vec<&Queue> = matching.clone().filter_map(|(wanted, _)| wanted.queue.as_ref()).collect();
            queues.sort();
            queues.dedup();
            let plain: u64 = matching.filter(|(wanted, _)| wanted.queue.is_none()).map(|(_, count)| count).sum();
            let truth = plain + queues.len() as u64;
            self.figures.cross_checks += 1;
            if peer.receivers(ClientId(0), subject) != (truth, true) {
                wrong = Some(format!(
                    "run {run}: {subject} has {:?} receivers, in truth {truth}",
                    peer.receivers(ClientId(0), subject)
                ));
            }
        }
        if let Some(wrong) = wrong {
            self.findings.add("receivers", wrong);
        }
    }

    fn is_met(&self, peer: &Peer, epoch: u64) -> bool {
        let born =
            self.truth.streams.iter().find(|stream| stream.epoch.bits() == epoch).map_or(0, |stream| stream.born);
        peer.epoch().bits() == epoch || born + 6 * SECOND < self.findings.now
    }
}
