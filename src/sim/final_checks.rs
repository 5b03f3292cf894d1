//! The checks at the end of a run, when everything has settled. Every message owed is delivered or reported as
//! missing, in time (O1, O8). Every figure that a peer shows agrees with the oracle's own.

use crate::proto::peer::Peer;
use crate::proto::stats::LossRow;
use crate::sim::oracle::{MessageState, ObservedSubscription, Oracle, PeerRun, Track};
use crate::sim::scenario::{MILLIS, SECOND, reaches};
use crate::sim::truth::{DatagramTrace, EpochTrace, MessageTrace, NEVER};
use crate::wire::Report;

/// The outcome of an owed message at a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryStatus {
    Delivered,
    Lost,
    Unverified,
    Tail,
    /// The receiver still awaits it, because it heard the publisher for less than T_rec since its announcement.
    Suspended,
    /// All its datagrams came in time, and it was neither delivered nor reported as lost.
    Withheld,
    Missed,
    /// It was delivered or reported too late.
    Late,
}

impl Oracle {
    /// Checks the end of the run; `peers` are those that still run, with the numbers of their runs.
    pub fn finish(&mut self, at: u64, peers: &[(usize, &Peer)]) {
        peers.iter().for_each(|(_, peer)| peer.check());
        self.truth.check_heartbeats(at, &mut self.findings);
        for (run, _) in peers.iter().filter(|(_, peer)| !peer.has_queued()) {
            self.truth.finish_run(*run, &mut self.findings);
        }
        self.check_assignments(peers);
        self.check_queue_deliveries(&peers.iter().map(|(run, _)| *run).collect::<Vec<_>>());
        for (run, peer) in peers {
            self.check_counters(*run, peer);
            for row in peer.loss_rows() {
                self.check_row(at, *run, &row);
                self.check_outbound(*run, &row, peers);
            }
        }
        let alive: Vec<usize> = peers.iter().map(|(run, _)| *run).collect();
        for run in 0..self.runs.len() {
            for stream in 0..self.truth.streams.len() {
                if !self.is_own(run, stream) {
                    self.check_pair(at, run, stream, alive.contains(&self.runs[run].main));
                }
            }
        }
    }

    fn check_counters(&mut self, run: usize, peer: &Peer) {
        let counters = peer.counters();
        let dropped = self.runs[run].kernel_drops;
        for (name, shown, truth) in [
            ("inconsistencies", counters.inconsistencies, 0),
            ("discard_malformed", counters.discard_malformed, 0),
            ("discard_contradiction", counters.discard_contradiction, 0),
            ("interest_forgeries", counters.interest_forgeries, 0),
            ("discard_source", counters.discard_source, 0),
            ("discard_quarantined", counters.discard_quarantined, 0),
            ("discard_peers_full", counters.discard_peers_full, 0),
            ("kernel_drops", counters.kernel_drops, dropped),
        ] {
            self.figures.cross_checks += 1;
            if shown != truth {
                self.findings.add("counter", format!("run {run}: {name} is {shown}, in truth {truth}"));
            }
        }
    }

    /// Checks that a receiver and its publisher agree on the receiver's losses.
    fn check_outbound(&mut self, run: usize, row: &LossRow, peers: &[(usize, &Peer)]) {
        let own = self.truth.streams[self.runs[run].stream].epoch;
        let publisher = peers.iter().find(|(_, peer)| peer.epoch() == row.publisher.epoch);
        let Some(reported) = publisher.map(|(_, peer)| peer.outbound_rows()) else { return };
        let reported =
            reported.into_iter().find(|reported| reported.receiver.epoch == own).map(|reported| reported.report);
        let states = row.datagrams;
        let lost_max = row.msg_loss.count + row.msg_loss_uncertain;
        let shown = Report {
            missing: states.repaired + states.pending + states.lost + states.unverified,
            repaired: states.repaired,
            pending: states.pending,
            unverified: states.unverified,
            lost_min: row.msg_loss.count,
            lost_max,
            overrun: row.overrun,
            directed_lost: row.ibx_loss.count,
        };
        self.figures.cross_checks += 1;
        if reported != Some(shown) {
            self.findings.add("outbound", format!("run {run} missed {shown:?}, its publisher shows {reported:?}"));
        }
    }

    /// Checks O1 for the ledger, and `show loss` against the reports.
    fn check_row(&mut self, at: u64, run: usize, row: &LossRow) {
        let Some(stream) = self.truth.stream(row.publisher.epoch) else {
            return self.findings.add("O4", format!("run {run} shows an unknown epoch: {row:?}"));
        };
        let truth = &self.truth.streams[stream];
        let taken = self.runs[run].acceptance_time(&truth.settings);
        let rebuilt = !self.runs[run].repairs() || taken < self.runs[run].t_rec() * 999 / 1000;
        let states = row.datagrams;
        let sum = states.delivered + states.buffered + states.pending + states.lost + states.unverified;
        let Some(track) = self.runs[run].tracks.get(stream).and_then(Option::as_ref) else { return };
        let high = truth.bcast.high();
        let lives = truth.ended == NEVER;
        let sound = sum == states.high.0 - states.baseline.0 && states.high.0 <= high;
        // Datagrams of a silent publisher are awaited until it is heard or forgotten.
        let is_silent = !(lives || track.bye_read);
        let may_await = is_silent || self.is_returned_at_end(at, run, truth, track);
        let settled = states.pending == 0 && states.buffered == 0 || may_await;
        self.figures.pending += if lives { states.pending } else { 0 };
        // A pacer may let a datagram leave just before the end of the run.
        let is_due = |sent: &DatagramTrace| sent.at + self.silence_bound(&self.runs[run], truth) <= at;
        let due = truth.bcast.datagrams.iter().rposition(is_due).map_or(0, |index| index as u64 + 1);
        let knows_all = due <= states.high.0 || is_silent;
        let (grace, repairs) = (self.runs[run].reorder_grace(), self.runs[run].repairs());
        // Bounds on accepted datagrams: all that came within the grace, and all that came or were rebuilt.
        let (mut accepted_min, mut accepted_max) = (0, 0);
        // Bounds on datagrams that were missing for longer than datagrams may be late, or for ever.
        let (mut missing_min, mut missing_max) = (0, 0);
        for dseq in states.baseline.0 + 1..=states.high.0 {
            let read = track.read(dseq);
            accepted_max += u64::from(read != NEVER || track.may_be_rebuilt(dseq));
            if read != NEVER {
                let in_time = read < track.found(dseq).saturating_add(taken) && track.gap_report(dseq).is_none();
                let in_time = in_time && !track.is_doubtful(dseq);
                accepted_min += u64::from(in_time);
            }
            let late = |grace: u64| read == NEVER || track.came_late(dseq, grace);
            let is_clear = !track.is_doubtful(dseq) && track.found(dseq) == track.latest_found(dseq);
            let late_for_sure = read == NEVER || repairs && late(grace * 1002 / 1000 + 1000);
            missing_min += u64::from(late_for_sure && is_clear);
            missing_max += u64::from(late(grace * 998 / 1000) || !is_clear || track.gap_report(dseq).is_some());
        }
        let missing = states.repaired + states.pending + states.lost + states.unverified;
        let limited = self.runs[run].is_limited() || track.has_returned;
        let missing = limited || (missing_min..=missing_max).contains(&missing);
        let accepted_min = if self.runs[run].is_limited() || rebuilt && 0 < states.buffered { 0 } else { accepted_min };
        let counted = (accepted_min..=accepted_max).contains(&(states.delivered + states.buffered));
        let repaired =
            row.repaired.count == track.repaired || track.has_returned || self.runs[run].has_returned_message;
        // The losses of both sides are added up.
        let live = self.runs[run].live.and_then(|live| self.runs[live].tracks.get(stream)?.as_ref());
        let reported_to_both = |at: usize| track.reported_sums[at] + live.map_or(0, |live| live.reported_sums[at]);
        let shown = [row.msg_loss.count, row.msg_loss.count + row.msg_loss_uncertain, row.ibx_loss.count];
        let reported = shown == [0, 1, 3].map(reported_to_both);
        // The next advisory has the losses reported less than an interval after the last one.
        let interval = crate::time::nanos(self.runs[run].settings.advisory_interval);
        let is_pending = |stream: usize| {
            let last = track.advised_at[stream];
            last != NEVER && at < last + interval
        };
        let advised = [(0, 0), (1, 0), (3, 1)]
            .iter()
            .all(|(sum, stream)| track.advised_sums[*sum] == reported_to_both(*sum) || is_pending(*stream));
        // A receiver may have continued the ledger and sums of a publisher that it was about to forget.
        let (reported, advised) = (reported || track.has_returned, advised || track.has_returned);
        let report_sums = (track.reported_sums, track.advised_sums, track.repaired);
        self.figures.cross_checks += 9;
        for (rule, holds) in [
            ("ledger sum", sound),
            ("ledger settled", settled),
            ("ledger high", knows_all),
            ("ledger delivered", counted),
            ("ledger missing", missing),
            ("show loss", reported),
            ("advisories", advised),
            ("inconsistencies", row.inconsistencies == 0),
            ("repaired", repaired),
        ] {
            if !holds {
                let text = format!(
                    "run {run} of stream {stream}: {row:?}; sent {high}, accepted {accepted_min}..{accepted_max}, missing {missing_min}..{missing_max}, reported {report_sums:?}"
                );
                self.findings.add(rule, text);
            }
        }
    }

    fn check_pair(&mut self, at: u64, run: usize, stream: usize, is_alive: bool) {
        let truth = &self.truth.streams[stream];
        let receiver = &self.runs[run];
        let is_main = receiver.main == run;
        let together = at.min(receiver.ended).min(truth.ended).saturating_sub(receiver.born.max(truth.born));
        let Some(track) = receiver.tracks.get(stream).and_then(Option::as_ref).filter(|t| t.contact.is_some()) else {
            let is_reachable = reaches(self.cells, self.runs[truth.run].host, receiver.host);
            if is_main && is_alive && is_reachable && truth.ended == NEVER && 6 * SECOND < together {
                self.findings.add("O1", format!("run {run} never met stream {stream}"));
            }
            return;
        };
        let lives = truth.ended == NEVER;
        let open = track.silences.last().is_some_and(|silence| silence.until == NEVER);
        if is_alive && lives && open {
            self.findings.add("O8", format!("run {run} still reports stream {stream} as silent"));
        }
        if is_main {
            self.check_directed(run, stream, is_alive);
        }
        // The subscriptions are moved out for the checks, since matching fills their caches.
        let mut subs = std::mem::take(&mut self.runs[run].subs);
        for (index, sub) in subs.iter_mut().enumerate() {
            self.check_sub(at, run, stream, is_alive, (index, sub));
        }
        self.runs[run].subs = subs;
    }

    /// Checks that everything sent to this receiver alone is delivered or counted.
    fn check_directed(&mut self, run: usize, stream: usize, is_alive: bool) {
        let (receiver, truth) = (&self.runs[run], &self.truth.streams[stream]);
        let own = &self.truth.streams[receiver.stream];
        let Some(track) = receiver.tracks.get(stream).and_then(Option::as_ref) else { return };
        let same_epoch = own.born == receiver.born;
        let Some(flow) = truth.directed_to(own.epoch.bits()) else { return };
        if !is_alive || truth.ended != NEVER || !same_epoch || !track.ends.is_empty() {
            return;
        }
        let sent = flow.messages.len() as u64;
        let known = track.directed_delivered + track.directed_lost;
        self.figures.cross_checks += 1;
        // No client here gets questions to histories or their answers, but their losses count.
        if !(sent - flow.service_messages..=sent).contains(&known) {
            let text = format!(
                "run {run} of stream {stream}: {sent} directed messages, {} delivered, {} reported",
                track.directed_delivered, track.directed_lost
            );
            self.findings.add("O1", text);
        }
    }

    fn check_sub(
        &mut self,
        at: u64,
        run: usize,
        stream: usize,
        is_alive: bool,
        (index, sub): (usize, &mut ObservedSubscription),
    ) {
        let receiver = &self.runs[run];
        let truth = &self.truth.streams[stream];
        let Some(track) = receiver.tracks.get(stream).and_then(Option::as_ref) else { return };
        let lasts_to_end = is_alive && sub.end == NEVER;
        let until = if lasts_to_end { at } else { sub.end };
        let (mut owed, mut counts) = (0, [0u64; 4]);
        let mut wrong = Vec::new();
        for (message, sent) in truth.bcast.messages.iter().enumerate() {
            if !sub.matches(sent.subject, &self.truth.subjects[sent.subject])
                || !self.is_owed(run, sub, truth, track, sent)
            {
                continue;
            }
            let bound = self.bound(receiver, stream, track, sent);
            // A message is optional if the subscription ends before its verdict is due (A6). If the publisher died in
            // the middle of a message, the tail covers it, or the receiver reports it.
            let is_young = until < sent.at.saturating_add(bound);
            // The pacer of a live publisher may delay a message until just before the end.
            let is_held_back = sent.sealed.saturating_add(bound) <= until && is_young;
            // A replayed datagram may bring back a publisher that was forgotten, just before the end.
            let is_unsettled = truth.ended == NEVER && is_held_back || track.has_returned && is_young;
            if !lasts_to_end && is_young || lasts_to_end && is_unsettled {
                continue;
            }
            let silence_bound = self.silence_bound(receiver, truth);
            let main = self.main_track(receiver, stream, track);
            let status =
                delivery_status(receiver, truth, (track, main), (index, sub), (message, sent), (until, silence_bound));
            if !lasts_to_end && status == DeliveryStatus::Suspended {
                continue;
            }
            owed += 1;
            match status {
                DeliveryStatus::Delivered => {}
                DeliveryStatus::Lost => counts[0] += 1,
                DeliveryStatus::Unverified => counts[1] += 1,
                DeliveryStatus::Tail => counts[2] += 1,
                // Datagrams of a silent publisher are awaited until it is heard.
                DeliveryStatus::Suspended if truth.ended != NEVER || !is_alive => counts[2] += 1,
                missed => {
                    if missed == DeliveryStatus::Missed || lasts_to_end {
                        wrong.push(("O1", message, *sent, missed));
                    }
                    continue;
                }
            }
            // If a publisher never finished a message, its rest is missing from the publisher's end on.
            let sent_at = if sent.is_whole { sent.at } else { sent.at.max(truth.ended) };
            if let Some(late) = lateness(receiver, track, main, message, sent, (sent_at, bound, silence_bound)) {
                wrong.push(("O8", message, *sent, DeliveryStatus::Late));
                counts[3] = counts[3].max(late);
            }
        }
        let (lost, unverified, tail, late) = (counts[0], counts[1], counts[2], counts[3]);
        self.figures.owed += owed;
        self.figures.owed_lost += lost;
        self.figures.owed_unverified += unverified;
        self.figures.owed_tail += tail;
        for (rule, message, sent, status) in wrong.into_iter().take(3) {
            let text = format!(
                "run {run} of stream {stream}: subscription {index} (client {}, {}..{}) and message {message}: {status:?}, late by {} ms, {sent:?}",
                sub.target.client.0,
                sub.start,
                sub.end,
                late / MILLIS
            );
            self.findings.add(rule, text);
        }
    }

    /// Returns the time in nanoseconds from the sealing of a message to its verdict (`docs/loss-accounting.md`, "Time
    /// bounds"). By then it is delivered, reported as missing, or covered by an open silence.
    fn bound(&self, receiver: &PeerRun, stream: usize, track: &Track, sent: &MessageTrace) -> u64 {
        let truth = &self.truth.streams[stream];
        let silence_bound = self.silence_bound(receiver, truth);
        // The first data of a publisher waits for its first announcement, for two heartbeats at most (A10).
        let waits = crate::time::nanos(receiver.settings.heartbeat) * 2002 / 1000;
        let contact = track.contact.map_or(0, |(at, _)| at.max(track.announced_at.min(at + waits)));
        // No receiver can miss a message for certain before its last datagram has left, which the pacer may delay.
        let left = truth.bcast.datagrams.get(sent.last as usize - 1).map_or(sent.at, |datagram| datagram.at);
        let from = left.max(contact);
        // The time of all the receiver's pauses does not count.
        let mut due = receiver.pauses.due(sent.at, from, silence_bound);
        let first = track.stale_signs.partition_point(|misled| *misled < sent.at);
        for misled in &track.stale_signs[first..] {
            if due < *misled {
                break;
            }
            due = due.max(receiver.awake_at(misled + silence_bound + receiver.paused(*misled, misled + silence_bound)));
        }
        self.main_track(receiver, stream, track).silence_deadline(due, track.latest_found(sent.last), silence_bound)
            - sent.at
    }

    /// Returns whether a stale datagram of an ended publisher came just before the end of the run, at `at`. Then the
    /// datagrams that it announced need not be settled.
    fn is_returned_at_end(&self, at: u64, run: usize, truth: &EpochTrace, track: &Track) -> bool {
        let bound = self.silence_bound(&self.runs[run], truth);
        truth.ended != NEVER && track.stale_signs.last().is_some_and(|replay| at < replay.saturating_add(bound))
    }

    /// Returns the track of the main side, which has all signs of life of the publisher for both sides.
    fn main_track<'a>(&'a self, receiver: &PeerRun, stream: usize, track: &'a Track) -> &'a Track {
        self.runs[receiver.main].tracks.get(stream).and_then(Option::as_deref).unwrap_or(track)
    }

    /// Returns the time from the last sign of life to the report of a silence, or of the content of a gap found then.
    fn silence_bound(&self, receiver: &PeerRun, truth: &EpochTrace) -> u64 {
        let own = crate::time::nanos(receiver.settings.heartbeat) * 7 / 2;
        let silent = truth.silent_after().max(own) * 1001 / 1000;
        silent + receiver.t_rec() + 3 * self.delay_max + 10 * MILLIS
    }
}

fn delivery_status(
    receiver: &PeerRun,
    truth: &EpochTrace,
    (track, main): (&Track, &Track),
    (index, sub): (usize, &ObservedSubscription),
    (message, sent): (usize, &MessageTrace),
    (until, silence_bound): (u64, u64),
) -> DeliveryStatus {
    let dseqs = || sent.first..=sent.last;
    let reported = |dseq: u64| track.gap_report(dseq).is_some_and(|d| d.clients >> sub.target.client.0 & 1 == 1);
    let state = track.state(index, message);
    match state {
        MessageState::Delivered => return DeliveryStatus::Delivered,
        MessageState::Lost { overflow: true } | MessageState::MaybeLost { overflow: true } => {
            return DeliveryStatus::Lost;
        }
        _ => {}
    }
    // A message that a limit ended is reported by the datagram in which it began, whatever came later.
    let reported_broken = track.message_report(message).is_some_and(|d| d.clients >> sub.target.client.0 & 1 == 1);
    if reported_broken && track.message_report(message).is_some_and(|d| d.by_limit) {
        return DeliveryStatus::Unverified;
    }
    let found = track.latest_found(sent.last);
    let suspended = receiver.repairs()
        && state == MessageState::Unreported
        && found != NEVER
        && track.heard_min.between(found, until) <= receiver.t_rec() + receiver.paused(found, until) + 5 * MILLIS;
    if suspended && !reported_broken && !dseqs().any(reported) {
        return DeliveryStatus::Suspended;
    }
    // A message whose datagrams all came in time must have been delivered. At the end of the run it may still wait
    // for what is missing before it: a replay can bring back a publisher that counted as crashed.
    let taken = receiver.acceptance_time(&truth.settings);
    let has_returned = track.ends.last().is_some_and(|end| end.upto != NEVER);
    let hold = if sub.end == NEVER && has_returned { receiver.t_rec() } else { 0 };
    let in_time = |dseq: u64| {
        let read = track.read(dseq);
        read != NEVER
            && track.gap_report(dseq).is_none()
            && !track.is_doubtful(dseq)
            && read < track.found(dseq).saturating_add(taken)
            && read.saturating_add(hold) < until
    };
    if sent.is_whole && !receiver.is_limited() && dseqs().all(in_time) {
        return DeliveryStatus::Withheld;
    }
    match state {
        MessageState::Lost { .. } | MessageState::MaybeLost { .. } => return DeliveryStatus::Lost,
        _ => {}
    }
    if reported_broken || dseqs().any(reported) {
        return DeliveryStatus::Unverified;
    }
    let beyond = |after: u64| after < sent.last;
    // The receiver reports a silence again after a stale datagram closed it, unless further ones postpone that.
    let silent = |silence: &crate::sim::oracle::SilencePeriod| {
        let end = if silence.ended_by_stale {
            main.silence_deadline(silence.until.saturating_add(silence_bound), found, silence_bound)
        } else {
            silence.until.saturating_add(receiver.t_rec() + 2 * MILLIS)
        };
        silence.from <= until && until <= end && beyond(silence.after)
    };
    let silent = track.silences.iter().any(silent);
    let crashed = |end: &crate::sim::oracle::EpochEnd| {
        let holds = sent.first <= end.upto || end.stale_return.is_some_and(|misled| until <= misled + silence_bound);
        end.at <= until && beyond(end.after) && holds
    };
    let crashed = track.ends.iter().any(crashed);
    // If a publisher never finished a message, no receiver that knows of its end can miss it.
    let unfinished = !sent.is_whole && truth.ended != NEVER;
    if silent || crashed || unfinished && (!track.ends.is_empty() || !track.silences.is_empty()) {
        DeliveryStatus::Tail
    } else {
        DeliveryStatus::Missed
    }
}

/// Returns the delay beyond the bound of the first report or delivery of a message.
fn lateness(
    receiver: &PeerRun,
    track: &Track,
    main: &Track,
    message: usize,
    sent: &MessageTrace,
    (sent_at, bound, silence_bound): (u64, u64, u64),
) -> Option<u64> {
    // A peer that paused hears and reports late. The time of its reports is not judged.
    if !receiver.pauses.is_empty() {
        return None;
    }
    let covered = track.covered_at.get(message).copied().unwrap_or(NEVER);
    let due = sent_at.saturating_add(bound);
    // T_rec runs while the publisher is heard, from the first announcement of the last datagram.
    let found = track.latest_found(sent.last);
    let repairs = receiver.repairs() && found != NEVER;
    let repaired_by =
        if repairs { track.heard_min.after(found, receiver.t_rec() * 1001 / 1000 + 5 * MILLIS) } else { 0 };
    if covered <= due || found <= due && covered <= repaired_by {
        return None;
    }
    let silent_until = silent_until(receiver, track, main, sent, due, silence_bound);
    let excused = silent_until.is_some_and(|until| covered == NEVER || covered <= until.max(repaired_by));
    // If a publisher never finished a message, its last datagram was never sent.
    let crashed = track.ends.iter().any(|end| end.at <= due && (end.after < sent.last || !sent.is_whole));
    (!excused && !crashed).then(|| covered.min(due + 100 * SECOND) - due)
}

/// Returns the time until which reports of silence cover a message that was due at `due`, if a report covered it then.
/// A stale datagram that closes a silence need not announce the message. The receiver then reports the silence again,
/// `silence_bound` after the last such datagram at the latest. The new report covers the message in turn.
fn silent_until(
    receiver: &PeerRun,
    track: &Track,
    main: &Track,
    sent: &MessageTrace,
    due: u64,
    silence_bound: u64,
) -> Option<u64> {
    let known = track.latest_found(sent.last);
    let mut until = None;
    for silence in &track.silences {
        let is_next = until.is_some_and(|until| silence.from <= until) && silence.after < sent.last;
        if silence.from <= due || is_next {
            let end = if silence.ended_by_stale {
                main.silence_deadline(silence.until.saturating_add(silence_bound), known, silence_bound)
            } else {
                silence.until.saturating_add(receiver.t_rec() + 5 * MILLIS)
            };
            until = until.max(Some(end));
        }
    }
    until
}
