//! Checks for gaps that must have been repaired (O9): no receiver gives up a datagram that the publisher still has,
//! once requests and answers get through.

use super::StreamChecker;
use crate::message::Reason;
use crate::sim::oracle::PeerRun;
use crate::sim::scenario::MILLIS;
use crate::sim::truth::{MessageTrace, NEVER};
use crate::time::nanos;
use std::time::Duration;

/// Maximum time between two requests for the same datagram (A1).
const REQUEST_INTERVAL_MAX: u64 = 640 * MILLIS;
/// Maximum random wait before the first request.
const BACKOFF_MAX: u64 = 100 * MILLIS;
/// Number of network delays that a round of requests may take: address proof, request, answer, and a turn for each.
const COPIES: u64 = 8;
/// Upper bound of every silence in a scenario. A publisher whose `forget` is at least this long forgets no receiver.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Budget for answers, in bytes a second, with which a publisher can answer all requests in time.
const ANSWER_RATE: u64 = 1 << 20;
/// Number of peers that answer the first multicast of an unproven address on average (W159).
const ANSWERING_PEERS: u64 = 8;

impl StreamChecker<'_> {
    /// Checks O9. If a receiver gives up a datagram for its deadline long after all network faults have ended, the
    /// publisher must have been free to evict it.
    pub(super) fn check_repaired_after_heal(&mut self, dseq: u64, reason: Reason) {
        if reason == Reason::Deadline && self.can_be_repaired(dseq) {
            let stream = &self.truth().streams[self.stream];
            let sealed = stream.bcast.datagrams[dseq as usize - 1].at;
            let (found, healed, proved) = (self.track().found(dseq), self.oracle.healed_at, self.proved_at());
            self.add_finding(
                "O9",
                format!(
                    "datagram {dseq} of {sealed} given up, announced at {found}, healed at {healed}, proven at {proved}"
                ),
            );
        }
    }

    /// Returns the time at which this receiver proved its address to the publisher.
    fn proved_at(&self) -> u64 {
        let publisher = &self.oracle.runs[self.truth().streams[self.stream].run];
        let own = self.oracle.runs[self.run].stream;
        publisher.tracks.get(own).and_then(Option::as_ref).map_or(NEVER, |track| track.proved_at)
    }

    /// Returns the number of announcements that a receiver may leave unanswered before it proves its address. A few
    /// peers answer the first announcement, and twice as many answer each later one (W159).
    fn announcements_before_answer(&self) -> u64 {
        let rounds = (self.oracle.runs.len() as u64).div_ceil(ANSWERING_PEERS);
        u64::from(rounds.next_power_of_two().ilog2())
    }

    /// Returns whether the publisher must have answered a request for the datagram by now.
    fn can_be_repaired(&self, dseq: u64) -> bool {
        let (run, stream) = (&self.oracle.runs[self.run], &self.truth().streams[self.stream]);
        let publisher = &self.oracle.runs[stream.run];
        let round = REQUEST_INTERVAL_MAX + COPIES * self.oracle.delay_max;
        let known = self.track().found(dseq).max(self.oracle.healed_at);
        if known == NEVER || run.is_limited() || !run.repairs() {
            return false;
        }
        // If the address is not proven, the first request only starts the proof. A publisher that forgot a silent
        // receiver requires a new proof.
        let may_forget = publisher.settings.forget < SILENCE_MAX;
        let is_proven = self.proved_at() <= self.oracle.healed_at && !may_forget;
        let proven = if is_proven {
            0
        } else {
            round + self.announcements_before_answer() * nanos(publisher.settings.heartbeat)
        };
        let due = known + run.reorder_grace() + BACKOFF_MAX + round + proven;
        let was_paused = |run: &PeerRun| 0 < run.paused(known, self.at);
        due < self.at
            && stream.ended == NEVER
            && !stream.has_sent_bye
            && !was_paused(run)
            && !was_paused(publisher)
            && ANSWER_RATE <= publisher.settings.recovery.resend_rate_min
            && !stream.may_be_evicted(self.at, dseq).0
    }

    /// Checks the second part of O9: a message is not lost while the history of its subject has it. That holds if each
    /// of its datagrams came or was reported by a manifest.
    pub(super) fn check_fetched(&mut self, message: usize, sent: &MessageTrace, reason: Reason) {
        let (stream, track) = (&self.truth().streams[self.stream], self.track());
        let run = &self.oracle.runs[self.run];
        // A manifest that comes after its datagrams were given up changes nothing. Datagrams in which no message
        // begins are given up without a report.
        let given_up = |dseq: u64| track.gap_report(dseq).map_or(NEVER, |reported| reported.at);
        let due = |dseq: u64| track.found(dseq).saturating_add(run.t_rec() * 999 / 1000);
        let is_reported = |dseq: u64| {
            track.may_be_rebuilt(dseq) && track.manifest_read_at(dseq) < given_up(dseq) && !track.expired_first(dseq)
        };
        let taken = run.acceptance_time(&stream.settings);
        let came = |dseq: u64| self.had_read(dseq) && given_up(dseq) == NEVER && !track.came_late(dseq, taken);
        let is_known = match sent.first == sent.last {
            true => is_reported(sent.first) && track.read(sent.first) == NEVER,
            false => {
                let is_reported = |dseq: u64| is_reported(dseq) && track.manifest_read_at(dseq) < due(dseq);
                self.was_wanted(sent) && (sent.first..=sent.last).all(|dseq| is_reported(dseq) || came(dseq))
            }
        };
        if reason == Reason::Expired
            && sent.is_whole
            && is_known
            && stream.ended == NEVER
            && !run.is_limited()
            && !stream.may_be_evicted_from_history(message, self.oracle.truth.unsent(stream.run))
        {
            self.add_finding(
                "O9",
                format!("message {message} reported as gone though the history must have it: {sent:?}"),
            );
        }
    }

    /// Returns whether an existing subscription matched a message before it was sealed. Receivers fetch nothing for
    /// other subscriptions.
    fn was_wanted(&self, sent: &MessageTrace) -> bool {
        let subject = &self.truth().subjects[sent.subject];
        self.oracle.runs[self.run]
            .subs
            .iter()
            .any(|sub| sub.is_active() && sub.start < sent.sealed && sub.wants(subject))
    }
}
