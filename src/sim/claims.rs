//! Checks the reports of a peer against the oracle's knowledge: deliveries, losses, advisories and events of members
//! (O2 to O7).

mod losses;
mod repairs;

use crate::message::{Delivery, Loss, LossScope, Target, Verdict};
use crate::proto::advisory::{Advisory, AdvisoryStream as AdvisedStream};
use crate::proto::effect::MemberEvent;
use crate::sim::oracle::{MessageState, Oracle, PeerRun, Track};
use crate::sim::scenario::MILLIS;
use crate::sim::truth::{GroundTruth, MessageTrace, NEVER};
use crate::time::nanos;

/// Checks the reports of one receiver about one stream.
struct StreamChecker<'a> {
    at: u64,
    run: usize,
    stream: usize,
    oracle: &'a mut Oracle,
}

impl Oracle {
    fn checker(&mut self, at: u64, run: usize, stream: usize) -> StreamChecker<'_> {
        self.runs[run].track(stream);
        StreamChecker { at, run, stream, oracle: self }
    }

    /// Checks a message that a peer delivers to clients.
    pub fn on_deliver(&mut self, at: u64, run: usize, to: &[Target], delivery: &Delivery) {
        self.figures.deliveries += to.len() as u64;
        let id = match self.truth.identify(&delivery.message) {
            Ok(id) => id,
            Err(reason) => {
                let text = format!("run {run} delivered a message on {}: {reason}", delivery.message.subject);
                return self.findings.add("O4", text);
            }
        };
        self.extend_digest(&[at, run as u64, 1, id as u64, to.len() as u64]);
        if delivery.repaired {
            self.repaired_in.insert((run, id));
        }
        if to.is_empty() {
            self.findings.add("deliver", format!("run {run} delivered message {id} to no client"));
        }
        let Some(stream) = self.truth.stream(delivery.publisher.epoch) else {
            let text = format!("run {run} delivered message {id} of an unknown epoch: {:?}", delivery.publisher);
            return self.findings.add("O4", text);
        };
        if self.is_own(run, stream) {
            return self.on_local(run, to, id, delivery);
        }
        let sent = self.truth.published[id].sent.or_else(|| self.truth.find_incomplete(stream, delivery));
        match sent {
            Some((sent, None, message)) if sent == stream => {
                let side = to.first().and_then(|target| self.side_with(run, *target));
                self.checker(at, side.unwrap_or(run), stream).on_deliver(to, message, delivery);
            }
            Some((sent, Some(receiver), message)) if sent == stream => {
                self.checker(at, run, stream).on_direct(to, receiver, message, delivery);
            }
            sent => {
                let text = format!("run {run} delivered message {id} from stream {stream}, it was sent as {sent:?}");
                self.findings.add("O4", text);
            }
        }
    }

    fn on_local(&mut self, run: usize, to: &[Target], id: usize, delivery: &Delivery) {
        for target in to {
            let side = self.side_with(run, *target).unwrap_or(run);
            let PeerRun { subs, pending_local, .. } = &mut self.runs[side];
            match pending_local.iter().position(|(message, sub)| *message == id && subs[*sub].target == *target) {
                Some(at) => drop(pending_local.swap_remove(at)),
                None => {
                    let text = format!("run {run} delivered its own message {id} to {target:?}, which was not owed it");
                    self.findings.add("local", text);
                }
            }
        }
        if delivery.verdict != Verdict::Direct {
            self.findings.add("verdict", format!("run {run}: its own message {id} as {:?}", delivery.verdict));
        }
    }

    /// Checks a loss that a peer reports to clients.
    pub fn on_report(&mut self, at: u64, run: usize, to: &[Target], loss: &Loss) {
        let Some(stream) = self.truth.stream(loss.publisher.epoch).filter(|of| !self.is_own(run, *of)) else {
            let text = format!("run {run} reports a loss of an unknown epoch: {loss:?}");
            return self.findings.add("O4", text);
        };
        // Each side misses messages and datagrams of its own.
        let is_of_side = matches!(loss.what, LossScope::Messages { .. } | LossScope::Datagrams { .. });
        let side = to.first().filter(|_| is_of_side).and_then(|target| self.side_with(run, *target)).unwrap_or(run);
        let reported: Vec<usize> = if is_of_side { vec![side] } else { self.sides(run).collect() };
        let clients = self.check_targets(&reported, to, loss);
        let mut checker = self.checker(at, side, stream);
        match &loss.what {
            LossScope::Messages { subject, first, last, count } => {
                let range = checker.oracle.truth.known_subject(subject).map(|subject| {
                    let flow = &checker.oracle.truth.streams[stream].bcast;
                    (subject, flow.numbered_between(subject, *first, *last).to_vec())
                });
                let Some((subject, range)) = range.filter(|(_, range)| !range.is_empty()) else {
                    let text =
                        format!("run {run} reports {first:?}..{last:?} on {subject} as lost, which was never sent");
                    return self.findings.add("O4", text);
                };
                checker.on_lost(to, subject, &range, *count, loss);
            }
            LossScope::Datagrams { first, last, messages } => {
                checker.on_unverified(clients, first.0, last.0, *messages, loss.reason);
            }
            LossScope::Tail { after } => {
                for side in reported {
                    self.checker(at, side, stream).on_tail(after.0, loss.reason);
                }
            }
            LossScope::Inbox { messages } => checker.on_inbox(*messages),
        }
    }

    /// Checks the targets of a report: each is an existing subscription. A loss that is not of one subject goes to one
    /// subscription of each client on these sides. Returns the clients that get the report, as a bit set.
    fn check_targets(&mut self, sides: &[usize], to: &[Target], loss: &Loss) -> u64 {
        let run = sides[0];
        let (mut active, mut clients) = (0, 0);
        sides.iter().for_each(|side| active |= self.runs[*side].clients());
        for target in to {
            clients |= 1 << target.client.0;
            if !sides.iter().any(|side| self.runs[*side].find(*target).is_some()) {
                self.findings.add("deliver", format!("run {run} reports to {target:?}, which does not exist"));
            }
        }
        let to_all = !matches!(loss.what, LossScope::Messages { .. });
        if to_all && (clients != active || to.len() != active.count_ones() as usize) {
            let text = format!("run {run} reports {:?} to {to:?}, clients are {active:b}", loss.what);
            self.findings.add("deliver", text);
        }
        clients
    }

    /// Checks an advisory that a peer publishes.
    pub fn on_advise(&mut self, at: u64, run: usize, advisory: &Advisory) {
        let Some(stream) = self.truth.stream(advisory.publisher.epoch) else {
            return self.findings.add("O4", format!("run {run} advises of an unknown epoch: {advisory:?}"));
        };
        let interval = nanos(self.runs[run].settings.advisory_interval);
        let is_stopping = self.truth.streams[self.runs[run].stream].has_sent_bye;
        let track = self.runs[run].track(stream);
        // The peer flushes its last advisory when it or the publisher stops.
        let is_last = is_stopping || track.bye_read || !track.ends.is_empty();
        let index = match advisory.stream {
            AdvisedStream::Bcast => 0,
            AdvisedStream::Ptp => 1,
            AdvisedStream::OutboundBcast => 2,
            AdvisedStream::OutboundPtp => 3,
        };
        let before = std::mem::replace(&mut track.advised_at[index], at);
        if before != NEVER && at - before < interval * 999 / 1000 && !is_last {
            let text = format!("run {run}: an advisory {} ms after another", (at - before) / MILLIS);
            self.findings.add("throttle", text);
        }
        match advisory.stream {
            AdvisedStream::Ptp => track.advised_sums[3] += advisory.lost_min,
            AdvisedStream::Bcast => {
                track.advised_sums[0] += advisory.lost_min;
                track.advised_sums[1] += advisory.lost_max;
                track.advised_sums[2] += advisory.unverified;
            }
            AdvisedStream::OutboundBcast | AdvisedStream::OutboundPtp => {}
        }
    }

    /// Checks an event of a member that a peer reports.
    pub fn on_member(&mut self, at: u64, run: usize, epoch: crate::message::Epoch, event: MemberEvent) {
        let Some(stream) = self.truth.stream(epoch).filter(|of| !self.is_own(run, *of)) else {
            return self.findings.add("O4", format!("run {run} reports {event:?} of an unknown epoch: {epoch}"));
        };
        self.extend_digest(&[at, run as u64, 2, stream as u64, event as u64]);
        self.on_path_event(at, run, stream, event);
        if event == MemberEvent::Left && !self.truth.streams[stream].has_sent_bye {
            self.findings.add("O5", format!("run {run} reports that epoch {epoch} left, which sent no BYE"));
        }
    }
}

impl StreamChecker<'_> {
    fn track(&self) -> &Track {
        self.oracle.runs[self.run].tracks[self.stream].as_ref().expect("made by Oracle::checker")
    }

    fn track_mut(&mut self) -> &mut Track {
        self.oracle.runs[self.run].track(self.stream)
    }

    fn truth(&self) -> &GroundTruth {
        &self.oracle.truth
    }

    fn sent(&self, message: usize) -> MessageTrace {
        self.truth().streams[self.stream].bcast.messages[message]
    }

    fn add_finding(&mut self, rule: &'static str, text: String) {
        let text = format!("run {} of stream {}: {text}", self.run, self.stream);
        self.oracle.findings.add(rule, text);
    }

    /// Returns whether a datagram was certainly read before the report that the peer makes now. A host that drains
    /// effects after a whole batch may have made the report before it read the rest.
    fn had_read(&self, dseq: u64) -> bool {
        let read = self.track().read(dseq);
        read < self.at || read == self.at && self.oracle.main(self.run).drains_each
    }

    /// Returns the subscription of this side that a target names, if it exists and matches.
    fn sub(&mut self, target: Target, subject: usize) -> Option<usize> {
        let Oracle { runs, truth, .. } = &mut *self.oracle;
        let at = runs[self.run].find(target)?;
        runs[self.run].subs[at].matches(subject, &truth.subjects[subject]).then_some(at)
    }

    fn on_deliver(&mut self, to: &[Target], message: usize, delivery: &Delivery) {
        let sent = self.sent(message);
        if delivery.seq != sent.seq {
            self.add_finding("O7", format!("message {message} delivered with number {:?}: {sent:?}", delivery.seq));
        }
        self.check_repaired(message, &sent, delivery.repaired);
        let may_be_fetched = delivery.repaired && self.track().may_be_fetched(&sent);
        for dseq in sent.first..=sent.last {
            if self.track().read(dseq) == NEVER && !may_be_fetched {
                self.add_finding("O4", format!("message {message} delivered without datagram {dseq}: {sent:?}"));
            } else if may_be_fetched && sent.first < dseq {
                // The message comes whole from the history, whatever happened to its later datagrams.
            } else if let Some(declared) = self.track().gap_report(dseq).filter(|declared| declared.at < self.at) {
                self.add_finding("O5", format!("message {message} of datagram {dseq} delivered after {declared:?}"));
            }
        }
        if let Some(reported) = self.track().message_report(message) {
            self.add_finding("O5", format!("large message {message} delivered after {reported:?}"));
        }
        let at = self.at;
        self.track_mut().cover(message, at);
        for target in to {
            match self.sub(*target, sent.subject) {
                Some(sub) => self.on_deliver_to(sub, message, &sent, delivery),
                None => {
                    self.add_finding("O7", format!("message {message} delivered to {target:?}, which does not want it"))
                }
            }
        }
    }

    /// Checks A5: a message counts as repaired exactly if it was missing for longer than datagrams may be late.
    fn check_repaired(&mut self, message: usize, sent: &MessageTrace, is_repaired: bool) {
        let run = &self.oracle.runs[self.run];
        let (repairs, grace) = (run.repairs(), run.reorder_grace());
        let (track, mut dseqs) = (self.track(), sent.first..=sent.last);
        // A manifest may have rebuilt the message before its datagrams came.
        let fetched = |dseq: u64| track.may_be_rebuilt(dseq) || track.is_doubtful(dseq);
        let may_be = dseqs.clone().any(|dseq| track.came_late(dseq, grace * 998 / 1000) || fetched(dseq));
        let must_be = dseqs.all(|dseq| track.read(dseq) != NEVER && !fetched(dseq))
            && (sent.first..=sent.last).any(|dseq| {
                track.found(dseq) == track.latest_found(dseq) && track.came_late(dseq, grace * 1002 / 1000 + 1000)
            });
        if is_repaired && !(repairs && may_be) || !is_repaired && repairs && must_be {
            self.add_finding("A5", format!("message {message} delivered, repaired: {is_repaired}: {sent:?}"));
        }
        if is_repaired {
            let found = (sent.first..=sent.last).map(|dseq| self.track().found(dseq)).min().unwrap_or(self.at);
            let took = self.at.saturating_sub(found);
            self.oracle.figures.repaired += 1;
            self.oracle.repairs.add(took);
            self.track_mut().repaired += 1;
        }
    }

    fn on_deliver_to(&mut self, sub: usize, message: usize, sent: &MessageTrace, delivery: &Delivery) {
        let state = self.track().state(sub, message);
        if matches!(state, MessageState::Delivered | MessageState::Lost { .. }) {
            let rule = if state == MessageState::Delivered { "O7" } else { "O2" };
            self.add_finding(
                rule,
                format!("message {message} delivered to subscription {sub} after {state:?}: {sent:?}"),
            );
        }
        let run = &self.oracle.runs[self.run];
        if !self.oracle.is_entitled(self.run, &run.subs[sub], &self.truth().streams[self.stream], self.track(), sent) {
            let start = run.subs[sub].start;
            self.add_finding("A6", format!("message {message} delivered to subscription {sub} of {start}: {sent:?}"));
        }
        let before = *self.track_mut().next_message(sub, sent.subject);
        if message < before {
            self.add_finding("O7", format!("message {message} delivered to subscription {sub} after {}", before - 1));
        }
        // A verdict of "next", or of a number of missing messages, accounts for all messages since the one before. So
        // does the first message of a subject at a subscription that is older than the epoch: that subscription missed
        // all earlier numbers of the frame.
        let forgets = self.oracle.runs[self.run].settings.sub_window.bytes < 1 << 20;
        let chained = sent.is_chained && !forgets && self.is_linked(sub, sent.subject, before);
        let linked = matches!(delivery.verdict, Verdict::Next | Verdict::Skip(_)) || chained;
        let from = if before == 0 { self.frame_start(sub, sent) } else { linked.then_some(before) };
        if let Some(from) = from.filter(|_| sent.seq.is_some()) {
            for skipped in self.unreported(sub, sent.subject, from, message) {
                let text = format!(
                    "subscription {sub} got {message} as {:?} without a report of {skipped}: {:?}",
                    delivery.verdict,
                    self.sent(skipped)
                );
                self.add_finding("O6", text);
            }
        }
        self.track_mut().set_state(sub, message, MessageState::Delivered);
        *self.track_mut().next_message(sub, sent.subject) = message + 1;
    }

    /// Returns whether the next message is linked to the last numbered one that a subscription knows. It is if that
    /// one was sealed after the subscription began. A message without a number links nothing (R12). `before` is one
    /// more than the last message delivered or lost.
    fn is_linked(&self, sub: usize, subject: usize, before: usize) -> bool {
        let run = &self.oracle.runs[self.run];
        let numbered = self.truth().streams[self.stream].bcast.numbered(subject);
        let known = &numbered[..numbered.partition_point(|message| *message < before)];
        let last = known.iter().rfind(|message| self.track().state(sub, **message) != MessageState::Unreported);
        run.pauses.is_empty() && last.is_some_and(|last| run.subs[sub].start < self.sent(*last).sealed)
    }

    /// Returns the first message of the frame of a message, if a subscription is certainly owed all of the epoch and
    /// the receiver forgets no subject.
    fn frame_start(&self, sub: usize, sent: &MessageTrace) -> Option<usize> {
        let run = &self.oracle.runs[self.run];
        let stream = &self.truth().streams[self.stream];
        let is_owed_all = self.oracle.is_owed_all(&run.subs[sub], stream, self.track());
        if !is_owed_all || self.is_birth_unknown() || run.settings.sub_window.bytes < 1 << 20 {
            return None;
        }
        self.first_of_frame(sent)
    }

    /// Returns the first message of the frame of a message; `None` if that has no number.
    fn first_of_frame(&self, sent: &MessageTrace) -> Option<usize> {
        let seq = sent.seq?;
        let bcast = &self.truth().streams[self.stream].bcast;
        bcast.numbered_between(sent.subject, seq.frame().first(), seq).first().copied()
    }

    /// Returns whether the first contact was the first datagram, and no announcement gave the age of the epoch within
    /// two heartbeats. Then the receiver knows the sent messages, and not which subscriptions are older than the epoch.
    fn is_birth_unknown(&self) -> bool {
        let heartbeat = nanos(self.oracle.runs[self.run].settings.heartbeat);
        let track = self.track();
        track.contact.is_some_and(|(at, below)| below == 0 && at + heartbeat * 1998 / 1000 < track.announced_at)
    }

    /// Returns numbered messages of a subject from `from` to before `to` that a subscription is owed and knows
    /// nothing of.
    fn unreported(&self, sub: usize, subject: usize, from: usize, to: usize) -> Vec<usize> {
        let run = &self.oracle.runs[self.run];
        let stream = &self.truth().streams[self.stream];
        let all = stream.bcast.numbered(subject);
        let (low, high) = (all.partition_point(|at| *at < from), all.partition_point(|at| *at < to));
        let unreported = |message: &usize| {
            let sent = &stream.bcast.messages[*message];
            self.track().state(sub, *message) == MessageState::Unreported
                && self.oracle.is_owed(self.run, &run.subs[sub], stream, self.track(), sent)
        };
        all[low..high.max(low)].iter().copied().filter(unreported).collect()
    }

    /// Returns the subscriptions of both sides that match a subject, each with the time at which it began.
    fn interested_targets(&mut self, subject: usize) -> Vec<(Target, u64)> {
        let mut wanting = Vec::new();
        for side in self.oracle.sides(self.run) {
            let Oracle { runs, truth, .. } = &mut *self.oracle;
            for sub in runs[side].subs.iter_mut().filter(|sub| sub.is_active()) {
                if sub.matches(subject, &truth.subjects[subject]) {
                    wanting.push((sub.target, sub.start));
                }
            }
        }
        wanting
    }

    fn on_direct(&mut self, to: &[Target], receiver: u64, message: usize, delivery: &Delivery) {
        let own = self.truth().streams[self.oracle.runs[self.run].stream].epoch.bits();
        if receiver != own {
            self.add_finding("O4", format!("directed message {message} to {receiver:x} delivered at {own:x}"));
            return;
        }
        let flow = self.truth().streams[self.stream].directed_to(receiver);
        let Some(sent) = flow.and_then(|flow| flow.messages.get(message)).copied() else { return };
        if delivery.verdict != Verdict::Direct {
            self.add_finding("verdict", format!("directed message {message} as {:?}", delivery.verdict));
        }
        if (sent.first..=sent.last)
            .any(|number| !self.track().directed_read.get(number as usize - 1).is_some_and(|r| *r))
        {
            self.add_finding("O4", format!("directed message {message} delivered without its datagrams: {sent:?}"));
        }
        let wanting = self.interested_targets(sent.subject);
        let is_wanted = to.iter().all(|target| wanting.iter().any(|(wants, _)| wants == target));
        let is_missed = |(target, start): &(Target, u64)| *start < sent.at && !to.contains(target);
        if !is_wanted || wanting.iter().any(is_missed) {
            self.add_finding("O7", format!("directed message {message} delivered to {to:?}, wanted by {wanting:?}"));
        }
        let before = std::mem::replace(&mut self.track_mut().directed_next, message + 1);
        if message < before {
            self.add_finding("O7", format!("directed message {message} delivered after {}", before - 1));
        }
        self.track_mut().directed_delivered += 1;
        self.track_mut().repaired += u64::from(delivery.repaired);
        self.oracle.figures.repaired += u64::from(delivery.repaired);
    }
}
