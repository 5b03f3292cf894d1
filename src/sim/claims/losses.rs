//! Checks reports of losses against the oracle's knowledge (O2, O3, O5, O6, O8).

use super::StreamChecker;
use crate::message::{Count, Loss, Reason, Target};
use crate::sim::oracle::{GapReport, MessageState, slot};
use crate::sim::scenario::MILLIS;
use crate::sim::truth::{MessageTrace, NEVER};
use crate::time::nanos;

impl StreamChecker<'_> {
    pub(super) fn on_lost(&mut self, to: &[Target], subject: usize, range: &[usize], count: Count, loss: &Loss) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.figures.reports_lost += 1;
        self.oracle.figures.reports_between += u64::from(!count.is_exact());
        self.oracle.extend_digest(&[at, run, 3, stream, subject as u64, count.min(), count.max(), range.len() as u64]);
        let missing = range.len() as u64;
        let fits = match count {
            Count::Exact(exact) => exact == missing,
            // A subscription that began after the last message before may be owed none of them.
            Count::Between { max, .. } => missing <= max,
        };
        if !fits {
            self.add_finding("O6", format!("{count} lost on subject {subject}, in truth {missing} in {range:?}"));
        }
        for message in range {
            self.check_missing(*message, loss.reason);
        }
        for target in to {
            let Some(sub) = self.sub(*target, subject) else {
                self.add_finding(
                    "O2",
                    format!("loss on subject {subject} reported to {target:?}, which does not want it"),
                );
                continue;
            };
            self.on_lost_to(sub, subject, range, count, loss.reason);
        }
        if to.is_empty() {
            // The report goes to members of queue groups, which have no message states.
            self.track_mut().reported_to_members.extend(range);
        }
        // A loss is reported twice if some subscriptions are owed less of it than others.
        let track = self.track_mut();
        let same = track.last_report == Some((at, subject, range[0]));
        let (min, max) = if same { track.last_report_bounds } else { (0, 0) };
        track.reported_sums[0] += count.min().saturating_sub(min);
        track.reported_sums[1] += count.max().saturating_sub(max);
        track.last_report_bounds = (count.min().max(min), count.max().max(max));
        track.last_report = Some((at, subject, range[0]));
    }

    fn on_lost_to(&mut self, sub: usize, subject: usize, range: &[usize], count: Count, reason: Reason) {
        let (low, high) = (range[0], range[range.len() - 1]);
        let before = *self.track_mut().next_message(sub, subject);
        let owed = self.unreported(sub, subject, before, high + 1);
        let run = &self.oracle.runs[self.run];
        let stream = &self.truth().streams[self.stream];
        let entitled = |message: &usize| {
            self.oracle.is_entitled(self.run, &run.subs[sub], stream, self.track(), &self.sent(*message))
        };
        let unowed: Vec<usize> = range.iter().copied().filter(|message| !entitled(message)).collect();
        let found_before = |message: &usize| {
            let found = self.track().latest_found(self.sent(*message).last);
            found != NEVER && found + 5 * MILLIS < run.subs[sub].start
        };
        let found_before: Vec<usize> = range.iter().copied().filter(found_before).collect();
        let reported: Vec<(usize, MessageState)> = range
            .iter()
            .map(|m| (*m, self.track().state(sub, *m)))
            .filter(|(_, s)| *s != MessageState::Unreported)
            .collect();
        if let Some((message, state)) =
            reported.iter().find(|(_, state)| !matches!(state, MessageState::MaybeLost { .. }))
        {
            self.add_finding("O2", format!("message {message} reported as lost to subscription {sub} after {state:?}"));
        }
        if count.is_exact() && !unowed.is_empty() {
            self.add_finding(
                "O2",
                format!("messages {unowed:?} reported as lost to subscription {sub}, which was not owed them"),
            );
        }
        if count.is_exact() && !found_before.is_empty() {
            let text = format!("reported as lost to subscription {sub}, which began after they were found missing");
            self.add_finding("O2", format!("messages {found_before:?} {text}"));
        }
        // A frame without a link gives no information about the frame before it.
        let frame = |message: usize| self.sent(message).seq.map(crate::seqno::Seq::frame);
        let has_link = self.first_of_frame(&self.sent(low)).is_some_and(|first| self.sent(first).is_chained);
        let all = owed.iter().filter(|message| has_link || frame(**message) == frame(low)).count() as u64;
        let early: Vec<usize> = owed.iter().copied().filter(|m| *m < low && frame(*m) == frame(low)).collect();
        let forgets = self.oracle.runs[self.run].settings.sub_window.bytes < 1 << 20;
        if self.is_linked(sub, subject, before)
            && !forgets
            && (!count.is_exact() && count.max() < all || count.is_exact() && !early.is_empty())
        {
            let text =
                format!("{count} reported as lost to subscription {sub}, in truth {all} with {early:?} before {low}");
            self.add_finding("O6", text);
        }
        let overflow = reason == Reason::Overflow;
        let state =
            if count.is_exact() { MessageState::Lost { overflow } } else { MessageState::MaybeLost { overflow } };
        for message in range.iter().copied().chain(owed.iter().copied().filter(|_| !count.is_exact())) {
            self.track_mut().set_state(sub, message, state);
            let at = self.at;
            self.track_mut().cover(message, at);
        }
        *self.track_mut().next_message(sub, subject) = before.max(high + 1);
    }

    /// Checks O3: a message reported as lost is really missing.
    fn check_missing(&mut self, message: usize, reason: Reason) {
        let sent = self.sent(message);
        let missing = |dseq: u64| !self.had_read(dseq) || self.track().gap_report(dseq).is_some();
        let first_missing = (sent.first..=sent.last).find(|dseq| missing(*dseq));
        let arrived = first_missing.is_none();
        // A gap in which no message begins is settled without a report; a datagram of it that comes later is late.
        let taken = self.oracle.runs[self.run].acceptance_time(&self.truth().streams[self.stream].settings);
        let late = |dseq: u64| self.track().came_late(dseq, taken);
        let late = (sent.first..=sent.last).any(|dseq| late(dseq) || self.track().is_doubtful(dseq));
        if self.oracle.runs[self.run].is_limited() {
            return;
        }
        if arrived && !late && reason != Reason::Overflow {
            self.add_finding("O3", format!("message {message} reported as lost though it had come: {sent:?}"));
        }
        if reason == Reason::Overflow || !sent.is_whole && self.truth().streams[self.stream].ended == NEVER {
            return;
        }
        if let Some(text) = self.message_too_early(&sent) {
            self.add_finding("O3", format!("{text}: {sent:?}"));
        }
        self.check_fetched(message, &sent, reason);
        if let Some(dseq) = first_missing.filter(|dseq| self.track().gap_report(*dseq).is_none()) {
            self.check_repaired_after_heal(dseq, reason);
        }
    }

    /// Returns the error if a message is given up now before any of its missing or possibly rebuilt datagrams was due.
    /// The receiver gives up a large message together with one of its datagrams, even if that arrives later.
    fn message_too_early(&self, sent: &MessageTrace) -> Option<String> {
        let taken = self.oracle.runs[self.run].acceptance_time(&self.truth().streams[self.stream].settings);
        let given_up = |dseq: &u64| {
            let (track, dseq) = (self.track(), *dseq);
            let is_reported = track.gap_report(dseq).is_some() || track.may_be_rebuilt(dseq);
            // A gap in which no message begins is settled without a report.
            !self.had_read(dseq) || is_reported || track.came_late(dseq, taken)
        };
        let mut first = None;
        for dseq in (sent.first..=sent.last).filter(given_up) {
            first.get_or_insert(self.datagram_too_early(dseq, None)?);
        }
        first
    }

    /// Returns whether the receiver reported the epoch as crashed while it awaited this datagram. It gave up the
    /// missing datagrams then, even if the numbers of a subject reveal their content later.
    fn gave_up_with_epoch(&self, dseq: u64) -> bool {
        let found = self.track().found(dseq);
        self.track().ends.iter().any(|end| found <= end.at)
    }

    /// Checks O3: nothing is given up before its time.
    fn check_grace(&mut self, dseq: u64, reason: Reason) {
        let text = self.datagram_too_early(dseq, Some(reason));
        text.into_iter().for_each(|text| self.add_finding("O3", text));
    }

    /// Returns the error if a datagram is given up now before its time. `reason` is the one reported for this datagram,
    /// if any was.
    fn datagram_too_early(&self, dseq: u64, reason: Option<Reason>) -> Option<String> {
        let run = &self.oracle.runs[self.run];
        if reason == Some(Reason::Overflow) || run.is_limited() {
            return None;
        }
        let (track, stream) = (self.track(), &self.truth().streams[self.stream]);
        let (found, need) = (track.found(dseq), run.t_rec() * 999 / 1000);
        let elapsed = self.at.saturating_sub(found);
        let forgotten = nanos(run.settings.forget) * 999 / 1000 <= self.at - track.last_sign;
        let ended = stream.ended <= self.at || forgotten;
        let gone = || stream.may_be_evicted(self.at, dseq).0 && run.reorder_grace() * 999 / 1000 <= elapsed;
        let deadline = need <= if run.repairs() { track.heard_max.between(found, self.at) } else { elapsed };
        let fits = match reason {
            Some(Reason::Disabled) => !run.repairs() && deadline,
            Some(Reason::Deadline) => run.repairs() && deadline,
            Some(Reason::Expired) => {
                let manifest_gone = stream.may_be_evicted(self.at, dseq).1 || track.may_be_rebuilt(dseq);
                run.repairs() && gone() && manifest_gone
            }
            Some(Reason::Crashed) => ended,
            Some(Reason::PublisherGone) => track.bye_read && deadline || ended,
            Some(_) => false,
            None => deadline || ended || self.gave_up_with_epoch(dseq) || run.repairs() && gone(),
        };
        (!fits).then(|| {
            let heard = track.heard_max.between(found, self.at) / 1000;
            let elapsed = elapsed / 1000;
            format!("datagram {dseq} given up {elapsed} us after its announcement ({reason:?}), its publisher heard for {heard} us of that")
        })
    }

    pub(super) fn on_unverified(&mut self, clients: u64, first: u64, last: u64, count: Count, reason: Reason) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.figures.reports_unverified += 1;
        self.oracle.extend_digest(&[at, run, 4, stream, first, last, count.min(), count.max()]);
        self.track_mut().reported_sums[2] += count.max();
        let high = self.truth().streams[self.stream].bcast.high();
        if last < first || first == 0 || high < last {
            return self.add_finding("O4", format!("datagrams {first}..{last} unverified, {high} were sent"));
        }
        if reason == Reason::Start {
            return self.on_age_unknown(first, last, count);
        }
        // If a message without a number was delivered from the datagram, the datagram came. Then the report is about
        // its large message.
        let broken = self.broken_message(first, last, count);
        let came = broken.is_some() && self.unnumbered(first).into_iter().any(|message| self.is_delivered(message));
        if first == last && !came && self.is_rebuilt(first, count) {
            return self.on_unnumbered_gone(first, count.min(), clients, reason);
        }
        if let Some(message) = broken {
            return self.on_broken(message, clients, reason);
        }
        self.check_unverified_count(first, last, count);
        for dseq in first..=last {
            let (arrived, read) = (self.track().arrived(dseq), self.track().read(dseq));
            // A gap that a limit or a report of the publisher ends is reported before the rest of a batch is read.
            let at_once = matches!(reason, Reason::Overflow | Reason::Expired);
            let unread = !at_once && arrived < at && self.oracle.runs[self.run].paused(arrived, at) == 0;
            // Datagrams that came before the first announcement waited for it, and were processed after it in turn.
            let waited =
                reason == Reason::Overflow && at <= self.track().announced_at || self.track().is_doubtful(dseq);
            if self.had_read(dseq) && !waited || unread {
                let taken = self.oracle.runs[self.run].acceptance_time(&self.truth().streams[self.stream].settings);
                let late = self.had_read(dseq) && self.track().found(dseq) + taken <= read;
                if !late {
                    self.add_finding("O5", format!("datagram {dseq} unverified though it had come at {arrived}"));
                }
            }
            if self.track().contact.is_none_or(|(_, low)| dseq <= low) {
                self.check_baseline(dseq);
            }
            self.check_grace(dseq, reason);
            self.check_repaired_after_heal(dseq, reason);
            self.on_settled(dseq, reason);
            self.track_mut().record_gap_report(dseq, GapReport { at, clients, by_limit: reason == Reason::Overflow });
        }
        let range = self.truth().streams[self.stream].bcast.begun_in(first, last);
        let continued = self.truth().streams[self.stream].bcast.datagrams[first as usize - 1].continued;
        for message in range.chain(continued) {
            self.track_mut().cover(message, at);
        }
    }

    /// Checks O5: data from before the first contact is unverified only if no earlier announcement gave the age of
    /// the epoch.
    fn on_age_unknown(&mut self, first: u64, last: u64, count: Count) {
        let all = self.truth().streams[self.stream].bcast.begun_in(first, last).len() as u64;
        if first != 1 || count.min() != 0 || count.max() != all {
            self.add_finding("O5", format!("{count} messages before the contact in {first}..{last}, in truth {all}"));
        }
        if self.track().announced_at < self.at {
            self.add_finding(
                "O5",
                format!("the age counted as unknown at {}, after an announcement had come", self.at),
            );
        }
        let heartbeat = nanos(self.oracle.runs[self.run].settings.heartbeat);
        if self.track().contact.is_none_or(|(at, _)| self.at < at + heartbeat * 1998 / 1000) {
            self.add_finding("O5", "the age counted as unknown before two heartbeats had passed".to_owned());
        }
        if let Some(dseq) = (first..=last).find(|dseq| self.had_read(*dseq)) {
            self.add_finding("O5", format!("datagram {dseq} unverified though it had come before the contact"));
        }
        self.track_mut().is_age_unknown = true;
    }

    /// Returns the large message without a number that a report of one datagram is about. The message begins in that
    /// datagram, which came, so nothing else in the datagram can be unknown.
    fn broken_message(&self, first: u64, last: u64, count: Count) -> Option<usize> {
        let message = self.truth().streams[self.stream].bcast.begun_in(first, first).last()?;
        let sent = self.sent(message);
        let is_large = sent.first < sent.last || !sent.is_whole;
        let came = self.track().read(first) <= self.at && self.track().gap_report(first).is_none();
        (first == last && count == Count::Exact(1) && sent.seq.is_none() && is_large && came).then_some(message)
    }

    fn on_broken(&mut self, message: usize, clients: u64, reason: Reason) {
        let at = self.at;
        if let Some(before) = self.track().message_report(message) {
            self.add_finding("O5", format!("large message {message} reported as unverified after {before:?}"));
        }
        if self.is_delivered(message) {
            self.add_finding("O5", format!("large message {message} reported as unverified after it was delivered"));
        }
        self.check_missing(message, reason);
        self.track_mut().cover(message, at);
        self.track_mut()
            .record_message_report(message, GapReport { at, clients, by_limit: reason == Reason::Overflow });
    }

    fn is_delivered(&self, message: usize) -> bool {
        self.track().states.iter().any(|of| of.get(message) == Some(&MessageState::Delivered))
    }

    /// Returns the messages without a number that begin in a datagram. If the publisher reported its content, only
    /// these are unverified, and not the whole datagram.
    fn unnumbered(&self, dseq: u64) -> Vec<usize> {
        let range = self.truth().streams[self.stream].bcast.begun_in(dseq, dseq);
        range.filter(|message| self.sent(*message).seq.is_none()).collect()
    }

    fn is_rebuilt(&self, dseq: u64, count: Count) -> bool {
        count.is_exact() && self.track().may_be_rebuilt(dseq) && count.min() <= self.unnumbered(dseq).len() as u64
    }

    fn on_unnumbered_gone(&mut self, dseq: u64, messages: u64, clients: u64, reason: Reason) {
        let at = self.at;
        self.check_grace(dseq, reason);
        let most = self.unnumbered(dseq).len() as u64;
        let reported = slot(&mut self.track_mut().unnumbered_lost, dseq as usize - 1, 0);
        *reported += messages;
        let reported = *reported;
        if most < reported {
            self.add_finding(
                "O5",
                format!("{reported} messages without a number reported of datagram {dseq}, which has {most}"),
            );
        }
        for message in self.unnumbered(dseq) {
            if self.is_delivered(message) {
                self.add_finding("O5", format!("message {message} reported as unverified after it was delivered"));
            }
            self.track_mut().cover(message, at);
            self.track_mut().record_message_report(message, GapReport { at, clients, by_limit: false });
        }
    }

    /// Checks the count of messages that begin in the range and are not yet reported as lost.
    fn check_unverified_count(&mut self, first: u64, last: u64, count: Count) {
        let flow = &self.truth().streams[self.stream].bcast;
        let range = flow.begun_in(first, last);
        let all = range.len() as u64;
        let reported = |message: &usize| {
            let states = self.track().states.iter();
            let mut states = states.filter_map(|of| of.get(*message));
            states.any(|state| matches!(state, MessageState::Lost { .. } | MessageState::MaybeLost { .. }))
                || self.track().reported_to_members.contains(message)
        };
        let explained = range.filter(|message| reported(message) || self.is_known_unowed(*message)).count() as u64;
        let fits = match count {
            Count::Exact(exact) => exact <= all && all - explained <= exact,
            Count::Between { min, max } => min <= all && max <= all && all - explained <= max,
        };
        if !fits {
            self.add_finding(
                "O5",
                format!("{count} messages in {first}..{last}, in truth {all}, {explained} reported before"),
            );
        }
    }

    /// Returns whether the numbers of its subject may show that a missing message is no loss of this receiver. That
    /// needs a matching subscription, so that the receiver follows these numbers. No matching subscription is owed the
    /// message.
    fn is_known_unowed(&self, message: usize) -> bool {
        let (run, stream) = (&self.oracle.runs[self.run], &self.truth().streams[self.stream]);
        let sent = self.sent(message);
        let subject = &self.truth().subjects[sent.subject];
        let mut wanting = run.subs.iter().filter(|sub| sub.is_active() && sub.wants(subject)).peekable();
        let is_followed = wanting.peek().is_some()
            || run.members.iter().any(|member| member.end == NEVER && member.pattern.matches(subject));
        is_followed && wanting.all(|sub| !self.oracle.is_owed(self.run, sub, stream, self.track(), &sent))
    }

    /// Checks O2 and R4: the receiver reports nothing from before the baseline, unless a subscription may be older than
    /// the epoch.
    fn check_baseline(&mut self, dseq: u64) {
        let (run, track) = (&self.oracle.runs[self.run], self.track());
        let born = self.truth().streams[self.stream].born;
        // Of the datagrams that waited for the first announcement, the lowest is the baseline.
        let is_above_early = (1..dseq).any(|low| track.read(low) != NEVER && track.read(low) <= track.announced_at);
        // A receiver that is about to forget the publisher may still continue its ledger.
        if born <= run.born && !track.has_returned && !is_above_early {
            self.add_finding("O2", format!("datagram {dseq} is from before the baseline of this peer"));
        }
    }

    /// Checks O8: the time from the announcement of a datagram to its report.
    fn on_settled(&mut self, dseq: u64, reason: Reason) {
        if self.track().gap_report(dseq).is_some() || reason == Reason::Overflow {
            return;
        }
        let found = self.track().latest_found(dseq);
        let run = &self.oracle.runs[self.run];
        let elapsed = self.at.saturating_sub(found);
        // T_rec runs while the publisher is heard.
        let took = if run.repairs() { self.track().heard_min.between(found, self.at) } else { elapsed };
        let reading = self.oracle.reading_max.get(run.host).copied().unwrap_or(0);
        let bound = run.t_rec() * 1001 / 1000 + MILLIS + run.paused(found, self.at + MILLIS) + reading;
        let flow = &self.truth().streams[self.stream].bcast;
        let sealed = flow.datagrams[dseq as usize - 1].at;
        let next = flow.datagrams.get(dseq as usize).map_or(NEVER, |next| next.at);
        let latency = self.at - sealed;
        let is_tail = 200 * MILLIS <= next.saturating_sub(sealed);
        self.oracle.settling.add(elapsed);
        if is_tail {
            self.oracle.tails.add(latency);
        }
        if bound < took && found != NEVER {
            self.add_finding("O8", format!("datagram {dseq} given up after it was awaited for {} us", took / 1000));
        }
    }

    pub(super) fn on_tail(&mut self, after: u64, reason: Reason) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.extend_digest(&[at, run, 5, stream, after, reason as u64]);
        let high = self.truth().streams[self.stream].bcast.high();
        if high < after {
            self.add_finding("O4", format!("nothing known after {after}, in truth {high} were sent"));
        }
        let truth = &self.truth().streams[self.stream];
        let silent_after = truth.silent_after().min(nanos(self.oracle.runs[self.run].settings.heartbeat) * 7 / 2);
        let quiet = at - self.track().last_sign.min(at);
        let died = truth.ended < at;
        match reason {
            Reason::Silent => {
                self.oracle.figures.reports_silent += 1;
                if quiet < silent_after * 999 / 1000 {
                    self.add_finding("O5", format!("silent after {} ms", quiet / MILLIS));
                }
                self.track_mut().silences.push(crate::sim::oracle::SilencePeriod {
                    from: at,
                    until: NEVER,
                    after,
                    ended_by_stale: false,
                });
            }
            Reason::Crashed => {
                self.oracle.figures.reports_crashed += 1;
                let forget = nanos(self.oracle.runs[self.run].settings.forget);
                if !died && quiet < forget * 999 / 1000 {
                    self.add_finding("O5", format!("crashed though it lives and was heard {} ms ago", quiet / MILLIS));
                }
                self.track_mut().ends.push(crate::sim::oracle::EpochEnd { at, after, upto: NEVER, stale_return: None });
            }
            other => self.add_finding("O5", format!("a tail because of {other}")),
        }
    }

    pub(super) fn on_inbox(&mut self, messages: u64) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.figures.inbox_lost += messages;
        self.oracle.extend_digest(&[at, run, 6, stream, messages]);
        self.track_mut().reported_sums[3] += messages;
        self.track_mut().directed_lost += messages;
        let own = self.truth().streams[self.oracle.runs[self.run].stream].epoch.bits();
        let sent = self.truth().streams[self.stream].directed_to(own).map_or(0, |flow| flow.messages.len() as u64);
        let known = self.track().directed_lost + self.track().directed_delivered;
        if sent < known {
            self.add_finding("O4", format!("{known} directed messages delivered or lost, {sent} sent"));
        }
    }
}
