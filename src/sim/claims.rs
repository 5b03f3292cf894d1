//! What a peer says, deliveries, losses, advisories, news of members, against what the oracle knows (O2 to O7).

use crate::message::{Count, Delivery, Loss, Missing, Reason, Verdict};
use crate::proto::advisory::{Advisory, Stream as AdvisedStream};
use crate::proto::effect::{MemberEvent, Target};
use crate::sim::oracle::{Declared, Oracle, Run, State, Track};
use crate::sim::scenario::MILLIS;
use crate::sim::truth::{NEVER, Sent, Truth};
use crate::time::nanos;

/// The oracle's parts while one receiver and one stream are looked at.
struct View<'a> {
    at: u64,
    run: usize,
    stream: usize,
    oracle: &'a mut Oracle,
}

impl Oracle {
    fn view(&mut self, at: u64, run: usize, stream: usize) -> View<'_> {
        self.runs[run].track(stream);
        View { at, run, stream, oracle: self }
    }

    /// A peer hands a message to clients.
    pub fn on_deliver(&mut self, at: u64, run: usize, to: &[Target], delivery: &Delivery) {
        self.figures.deliveries += to.len() as u64;
        let id = match self.truth.identify(&delivery.message) {
            Ok(id) => id,
            Err(why) => {
                let text = format!("run {run} delivered a message on {}: {why}", delivery.message.subject);
                return self.findings.add("O4", text);
            }
        };
        self.note(&[at, run as u64, 1, id as u64, to.len() as u64]);
        if to.is_empty() {
            self.findings.add("deliver", format!("run {run} delivered message {id} to nobody"));
        }
        let Some(stream) = self.truth.stream(delivery.publisher.epoch) else {
            let text = format!("run {run} delivered message {id} from an epoch that is not: {:?}", delivery.publisher);
            return self.findings.add("O4", text);
        };
        if self.truth.streams[stream].run == run {
            return self.on_local(run, to, id, delivery);
        }
        match self.truth.published[id].sent {
            Some((sent, None, message)) if sent == stream => {
                self.view(at, run, stream).on_deliver(to, message, delivery);
            }
            Some((sent, Some(receiver), message)) if sent == stream => {
                self.view(at, run, stream).on_direct(to, receiver, message, delivery);
            }
            sent => {
                let text = format!("run {run} delivered message {id} from stream {stream}, it was sent as {sent:?}");
                self.findings.add("O4", text);
            }
        }
    }

    fn on_local(&mut self, run: usize, to: &[Target], id: usize, delivery: &Delivery) {
        let Run { subs, local, .. } = &mut self.runs[run];
        for target in to {
            let is = |at: usize| (subs[at].client, subs[at].sub) == (target.client.0, target.sub.0);
            match local.iter().position(|(message, sub)| *message == id && is(*sub)) {
                Some(at) => drop(local.swap_remove(at)),
                None => {
                    let text = format!("run {run} delivered its own message {id} to {target:?} though it was not owed");
                    self.findings.add("local", text);
                }
            }
        }
        if delivery.verdict != Verdict::Direct {
            self.findings.add("verdict", format!("run {run}: its own message {id} as {:?}", delivery.verdict));
        }
    }

    /// A peer tells clients of a loss.
    pub fn on_report(&mut self, at: u64, run: usize, to: &[Target], loss: &Loss) {
        let Some(stream) = self.truth.stream(loss.publisher.epoch).filter(|of| self.truth.streams[*of].run != run)
        else {
            let text = format!("run {run} reports a loss of an epoch that is not: {loss:?}");
            return self.findings.add("O4", text);
        };
        let active = self.runs[run].clients();
        let mut clients = 0u64;
        for target in to {
            clients |= 1 << target.client.0;
            let known = self.runs[run]
                .subs
                .iter()
                .any(|sub| sub.is_active() && (sub.client, sub.sub) == (target.client.0, target.sub.0));
            if !known {
                self.findings.add("deliver", format!("run {run} reports to {target:?}, which is not there"));
            }
        }
        let to_all = !matches!(loss.what, Missing::Messages { .. });
        if to_all && (clients != active || to.len() != active.count_ones() as usize) {
            let text = format!("run {run} reports {:?} to {to:?}, clients are {active:b}", loss.what);
            self.findings.add("deliver", text);
        }
        let mut view = self.view(at, run, stream);
        match &loss.what {
            Missing::Messages { subject, first, last, count } => {
                let range = view.oracle.truth.known_subject(subject).map(|subject| {
                    let flow = &view.oracle.truth.streams[stream].bcast;
                    (subject, flow.numbered_between(subject, *first, *last).to_vec())
                });
                let Some((subject, range)) = range.filter(|(_, range)| !range.is_empty()) else {
                    let text = format!("run {run} tells of {first:?}..{last:?} on {subject}, which was never sent");
                    return self.findings.add("O4", text);
                };
                view.on_lost(to, subject, &range, *count, loss);
            }
            Missing::Datagrams { first, last, messages } => {
                view.on_unverified(clients, first.0, last.0, *messages, loss.reason);
            }
            Missing::Tail { after } => view.on_tail(after.0, loss.reason),
            Missing::Inbox { messages } => view.on_inbox(*messages),
        }
    }

    /// A peer publishes an advisory.
    pub fn on_advise(&mut self, at: u64, run: usize, advisory: &Advisory) {
        let Some(stream) = self.truth.stream(advisory.publisher.epoch) else {
            return self.findings.add("O4", format!("run {run} advises of an epoch that is not: {advisory:?}"));
        };
        let interval = nanos(self.runs[run].settings.advisory_interval);
        let is_stopping = self.truth.streams[self.runs[run].stream].said_bye;
        let track = self.runs[run].track(stream);
        // The last one is flushed when either end goes.
        let is_last = is_stopping || track.bye_read || !track.ends.is_empty();
        let which = match advisory.stream {
            AdvisedStream::Bcast => 0,
            AdvisedStream::Ptp => 1,
            AdvisedStream::Outbound => 2,
        };
        let before = std::mem::replace(&mut track.advised_at[which], at);
        if before != NEVER && at - before < interval * 999 / 1000 && !is_last {
            let text = format!("run {run}: an advisory {} ms after another", (at - before) / MILLIS);
            self.findings.add("throttle", text);
        }
        match advisory.stream {
            AdvisedStream::Ptp => track.advised[3] += advisory.lost_min,
            AdvisedStream::Bcast => {
                track.advised[0] += advisory.lost_min;
                track.advised[1] += advisory.lost_max;
                track.advised[2] += advisory.unverified;
            }
            AdvisedStream::Outbound => {}
        }
    }

    /// A peer has news of another.
    pub fn on_member(&mut self, at: u64, run: usize, epoch: crate::message::Epoch, event: MemberEvent) {
        let Some(stream) = self.truth.stream(epoch).filter(|of| self.truth.streams[*of].run != run) else {
            return self.findings.add("O4", format!("run {run} says {event:?} of an epoch that is not: {epoch}"));
        };
        self.note(&[at, run as u64, 2, stream as u64, event as u64]);
        if event == MemberEvent::Left && !self.truth.streams[stream].said_bye {
            self.findings.add("O5", format!("run {run} says that epoch {epoch} left"));
        }
    }
}

impl View<'_> {
    fn track(&self) -> &Track {
        self.oracle.runs[self.run].tracks[self.stream].as_ref().expect("made by Oracle::view")
    }

    fn track_mut(&mut self) -> &mut Track {
        self.oracle.runs[self.run].track(self.stream)
    }

    fn truth(&self) -> &Truth {
        &self.oracle.truth
    }

    fn sent(&self, message: usize) -> Sent {
        self.truth().streams[self.stream].bcast.messages[message]
    }

    fn wrong(&mut self, rule: &'static str, text: String) {
        let text = format!("run {} of stream {}: {text}", self.run, self.stream);
        self.oracle.findings.add(rule, text);
    }

    /// Whether a datagram was certainly read before what the peer says now. One that drains its effects after a whole
    /// batch may have said it before it read the rest.
    fn had_read(&self, dseq: u64) -> bool {
        let read = self.track().read(dseq);
        read < self.at || read == self.at && self.oracle.runs[self.run].drains_each
    }

    /// The subscription that a target names, if it stands and matches.
    fn sub(&mut self, target: Target, subject: usize) -> Option<usize> {
        let Oracle { runs, truth, .. } = &mut *self.oracle;
        let named = |sub: &crate::sim::oracle::Sub| (sub.client, sub.sub) == (target.client.0, target.sub.0);
        let at = runs[self.run].subs.iter().position(|sub| sub.is_active() && named(sub))?;
        runs[self.run].subs[at].matches(subject, &truth.subjects[subject]).then_some(at)
    }

    fn on_deliver(&mut self, to: &[Target], message: usize, delivery: &Delivery) {
        let sent = self.sent(message);
        if delivery.seq != sent.seq {
            self.wrong("O7", format!("message {message} delivered with number {:?}: {sent:?}", delivery.seq));
        }
        self.check_repaired(message, &sent, delivery.repaired);
        for dseq in sent.first..=sent.last {
            let fetched = delivery.repaired && self.truth().streams[self.stream].bcast.is_manifested(dseq);
            if self.track().read(dseq) == NEVER && !fetched {
                self.wrong("O4", format!("message {message} delivered without datagram {dseq}: {sent:?}"));
            } else if let Some(declared) = self.track().declared(dseq).filter(|declared| declared.at < self.at) {
                self.wrong("O5", format!("message {message} of datagram {dseq} delivered after {declared:?}"));
            }
        }
        if let Some(told) = self.track().broken(message) {
            self.wrong("O5", format!("large message {message} delivered after {told:?}"));
        }
        let at = self.at;
        self.track_mut().cover(message, at);
        for target in to {
            match self.sub(*target, sent.subject) {
                Some(sub) => self.on_deliver_to(sub, message, &sent, delivery),
                None => self.wrong("O7", format!("message {message} delivered to {target:?}, which does not want it")),
            }
        }
    }

    /// A5: what is called repaired was missing for longer than datagrams may be late, and what is not was not.
    fn check_repaired(&mut self, message: usize, sent: &Sent, is_repaired: bool) {
        let run = &self.oracle.runs[self.run];
        let (repairs, grace) = (run.repairs(), run.reorder_grace());
        let (track, mut dseqs) = (self.track(), sent.first..=sent.last);
        // Rebuilt from a manifest, whatever came later.
        let fetched =
            |dseq: u64| self.truth().streams[self.stream].bcast.is_manifested(dseq) || track.is_doubtful(dseq);
        let may = dseqs.clone().any(|dseq| track.came_late(dseq, grace * 998 / 1000) || fetched(dseq));
        let must = dseqs.all(|dseq| track.read(dseq) != NEVER && !fetched(dseq))
            && (sent.first..=sent.last).any(|dseq| {
                track.found(dseq) == track.found_late(dseq) && track.came_late(dseq, grace * 1002 / 1000 + 1000)
            });
        if is_repaired && !(repairs && may) || !is_repaired && repairs && must {
            self.wrong("A5", format!("message {message} delivered, repaired: {is_repaired}: {sent:?}"));
        }
        if is_repaired {
            let found = (sent.first..=sent.last).map(|dseq| self.track().found(dseq)).min().unwrap_or(self.at);
            let took = self.at.saturating_sub(found);
            self.oracle.figures.repaired += 1;
            self.oracle.repairs.add(took);
            self.track_mut().repaired += 1;
        }
    }

    fn on_deliver_to(&mut self, sub: usize, message: usize, sent: &Sent, delivery: &Delivery) {
        let state = self.track().state(sub, message);
        if matches!(state, State::Delivered | State::Lost { .. }) {
            let rule = if state == State::Delivered { "O7" } else { "O2" };
            self.wrong(rule, format!("message {message} delivered to subscription {sub} after {state:?}: {sent:?}"));
        }
        let run = &self.oracle.runs[self.run];
        if !self.oracle.is_entitled(self.run, &run.subs[sub], &self.truth().streams[self.stream], self.track(), sent) {
            let start = run.subs[sub].start;
            self.wrong("A6", format!("message {message} delivered to subscription {sub} of {start}: {sent:?}"));
        }
        let before = *self.track_mut().last(sub, sent.subject);
        if message < before {
            self.wrong("O7", format!("message {message} delivered to subscription {sub} after {}", before - 1));
        }
        // A verdict that says "next" or "so many missing" leaves nothing unsaid between this message and the one before.
        // Nor does the first message of a subject at a subscription that is older than the epoch: the numbers of its
        // frame before it were all missed.
        let forgets = self.oracle.runs[self.run].settings.sub_window.bytes < 1 << 20;
        let chained = sent.is_chained && !forgets && self.is_linked(sub, sent.subject, before);
        let linked = matches!(delivery.verdict, Verdict::Next | Verdict::Skip(_)) || chained;
        let from = if before == 0 { self.frame_start(sub, sent) } else { linked.then_some(before) };
        if let Some(from) = from.filter(|_| sent.seq.is_some()) {
            for skipped in self.unsaid(sub, sent.subject, from, message) {
                let text = format!(
                    "subscription {sub} got {message} as {:?} without word of {skipped}: {:?}",
                    delivery.verdict,
                    self.sent(skipped)
                );
                self.wrong("O6", text);
            }
        }
        self.track_mut().tell(sub, message, State::Delivered);
        *self.track_mut().last(sub, sent.subject) = message + 1;
    }

    /// Whether the last numbered message that a subscription got or was told of was sent while it stood, and not under
    /// way when it began: then what follows is linked to it. What had no number links nothing (R12). `before` is one more
    /// than the last message of all.
    fn is_linked(&self, sub: usize, subject: usize, before: usize) -> bool {
        let run = &self.oracle.runs[self.run];
        let numbered = self.truth().streams[self.stream].bcast.numbered(subject);
        let known = &numbered[..numbered.partition_point(|message| *message < before)];
        let last = known.iter().rfind(|message| self.track().state(sub, **message) != State::Nothing);
        run.pauses.is_empty() && last.is_some_and(|last| run.subs[sub].start < self.sent(*last).at)
    }

    /// The first message of the frame of a message, if a subscription is certainly owed all of the epoch and the
    /// receiver forgets no subject.
    fn frame_start(&self, sub: usize, sent: &Sent) -> Option<usize> {
        let run = &self.oracle.runs[self.run];
        let stream = &self.truth().streams[self.stream];
        let is_owed_all = self.oracle.is_owed_all(&run.subs[sub], stream, self.track());
        if !is_owed_all || run.settings.sub_window.bytes < 1 << 20 {
            return None;
        }
        let frame = sent.seq?.frame();
        stream.bcast.numbered_between(sent.subject, frame.first(), sent.seq?).first().copied()
    }

    /// Numbered messages of a subject from `from` to before `to` that a subscription is owed and knows nothing of.
    fn unsaid(&self, sub: usize, subject: usize, from: usize, to: usize) -> Vec<usize> {
        let run = &self.oracle.runs[self.run];
        let stream = &self.truth().streams[self.stream];
        let all = stream.bcast.numbered(subject);
        let (low, high) = (all.partition_point(|at| *at < from), all.partition_point(|at| *at < to));
        let unsaid = |message: &usize| {
            let sent = &stream.bcast.messages[*message];
            self.track().state(sub, *message) == State::Nothing
                && self.oracle.is_owed(self.run, &run.subs[sub], stream, self.track(), sent)
        };
        all[low..high.max(low)].iter().copied().filter(unsaid).collect()
    }

    fn on_direct(&mut self, to: &[Target], receiver: u64, message: usize, delivery: &Delivery) {
        let own = self.truth().streams[self.oracle.runs[self.run].stream].epoch.bits();
        if receiver != own {
            self.wrong("O4", format!("directed message {message} to {receiver:x} delivered at {own:x}"));
            return;
        }
        let flow = self.truth().streams[self.stream].directed_to(receiver);
        let Some(sent) = flow.and_then(|flow| flow.messages.get(message)).copied() else { return };
        if delivery.verdict != Verdict::Direct {
            self.wrong("verdict", format!("directed message {message} as {:?}", delivery.verdict));
        }
        if (sent.first..=sent.last).any(|number| !self.track().direct_read.get(number as usize - 1).is_some_and(|r| *r))
        {
            self.wrong("O4", format!("directed message {message} delivered without its datagrams: {sent:?}"));
        }
        let wants = to.iter().filter(|target| self.sub(**target, sent.subject).is_some()).count();
        if wants != to.len() {
            self.wrong("O7", format!("directed message {message} delivered to {to:?}"));
        }
        let before = std::mem::replace(&mut self.track_mut().direct_last, message + 1);
        if message < before {
            self.wrong("O7", format!("directed message {message} delivered after {}", before - 1));
        }
        self.track_mut().direct += 1;
        self.track_mut().repaired += u64::from(delivery.repaired);
        self.oracle.figures.repaired += u64::from(delivery.repaired);
    }

    fn on_lost(&mut self, to: &[Target], subject: usize, range: &[usize], count: Count, loss: &Loss) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.figures.reports_lost += 1;
        self.oracle.figures.reports_between += u64::from(!count.is_exact());
        self.oracle.note(&[at, run, 3, stream, subject as u64, count.min(), count.max(), range.len() as u64]);
        let missing = range.len() as u64;
        let fits = match count {
            Count::Exact(exact) => exact == missing,
            // One that came later than the last message before may be owed none of them.
            Count::Between { max, .. } => missing <= max,
        };
        if !fits {
            self.wrong("O6", format!("{count} lost on subject {subject}, in truth {missing} in {range:?}"));
        }
        for message in range {
            self.check_missing(*message, loss.reason);
        }
        for target in to {
            let Some(sub) = self.sub(*target, subject) else {
                self.wrong("O2", format!("loss on subject {subject} told to {target:?}, which does not want it"));
                continue;
            };
            self.on_lost_to(sub, subject, range, count, loss.reason);
        }
        // One loss is told twice if some subscriptions are owed less of it than others.
        let track = self.track_mut();
        let same = track.told_last == Some((at, subject, range[0]));
        let (min, max) = if same { track.told_bounds } else { (0, 0) };
        track.told[0] += count.min().saturating_sub(min);
        track.told[1] += count.max().saturating_sub(max);
        track.told_bounds = (count.min().max(min), count.max().max(max));
        track.told_last = Some((at, subject, range[0]));
    }

    fn on_lost_to(&mut self, sub: usize, subject: usize, range: &[usize], count: Count, reason: Reason) {
        let (low, high) = (range[0], range[range.len() - 1]);
        let before = *self.track_mut().last(sub, subject);
        let owed = self.unsaid(sub, subject, before, high + 1);
        let run = &self.oracle.runs[self.run];
        let stream = &self.truth().streams[self.stream];
        let entitled = |message: &usize| {
            self.oracle.is_entitled(self.run, &run.subs[sub], stream, self.track(), &self.sent(*message))
        };
        let strangers: Vec<usize> = range.iter().copied().filter(|message| !entitled(message)).collect();
        let told: Vec<(usize, State)> =
            range.iter().map(|m| (*m, self.track().state(sub, *m))).filter(|(_, s)| *s != State::Nothing).collect();
        if let Some((message, state)) = told.iter().find(|(_, state)| !matches!(state, State::Maybe { .. })) {
            self.wrong("O2", format!("message {message} told as lost to subscription {sub} after {state:?}"));
        }
        if count.is_exact() && !strangers.is_empty() {
            self.wrong(
                "O2",
                format!("messages {strangers:?} told as lost to subscription {sub}, which was not owed them"),
            );
        }
        let all = owed.len() as u64;
        // A frame without a link says nothing of the frame before it.
        let frame = |message: usize| self.sent(message).seq.map(crate::seqno::Seq::frame);
        let early: Vec<usize> = owed.iter().copied().filter(|m| *m < low && frame(*m) == frame(low)).collect();
        let forgets = self.oracle.runs[self.run].settings.sub_window.bytes < 1 << 20;
        if self.is_linked(sub, subject, before)
            && !forgets
            && (!count.is_exact() && count.max() < all || count.is_exact() && !early.is_empty())
        {
            let text =
                format!("{count} told as lost to subscription {sub}, in truth {all} with {early:?} before {low}");
            self.wrong("O6", text);
        }
        let overflow = reason == Reason::Overflow;
        let state = if count.is_exact() { State::Lost { overflow } } else { State::Maybe { overflow } };
        for message in range.iter().copied().chain(owed.iter().copied().filter(|_| !count.is_exact())) {
            self.track_mut().tell(sub, message, state);
            let at = self.at;
            self.track_mut().cover(message, at);
        }
        *self.track_mut().last(sub, subject) = before.max(high + 1);
    }

    /// O3: a message told as lost is really missing.
    fn check_missing(&mut self, message: usize, reason: Reason) {
        let sent = self.sent(message);
        let missing = |dseq: u64| !self.had_read(dseq) || self.track().declared(dseq).is_some();
        let first_missing = (sent.first..=sent.last).find(|dseq| missing(*dseq));
        let arrived = first_missing.is_none();
        // A gap without a message that begins in it is settled without a word; what comes after that is late.
        let taken = self.oracle.runs[self.run].taken_within(&self.truth().streams[self.stream].settings);
        let late = |dseq: u64| self.track().came_late(dseq, taken);
        let late = (sent.first..=sent.last).any(|dseq| late(dseq) || self.track().is_doubtful(dseq));
        if self.oracle.runs[self.run].is_limited() {
            return;
        }
        if arrived && !late && reason != Reason::Overflow {
            self.wrong("O3", format!("message {message} told as lost though it had come: {sent:?}"));
        }
        if reason == Reason::Overflow || !sent.is_whole && self.truth().streams[self.stream].ended == NEVER {
            return;
        }
        if let Some(dseq) = first_missing {
            self.check_grace(dseq, None);
        }
    }

    /// Whether the epoch was told as crashed while this datagram was awaited, and heard again later. What is missing was
    /// given up then, however much later the numbers of a subject tell what was in it.
    fn gave_up_with_epoch(&self, dseq: u64) -> bool {
        let found = self.track().found(dseq);
        self.track().ends.iter().any(|end| found <= end.at)
    }

    /// O3: nothing is given up before its time. The reason is that of this very datagram, if that is known.
    fn check_grace(&mut self, dseq: u64, reason: Option<Reason>) {
        let run = &self.oracle.runs[self.run];
        if reason == Some(Reason::Overflow) || run.is_limited() {
            return;
        }
        let (track, stream) = (self.track(), &self.truth().streams[self.stream]);
        let (found, need) = (track.found(dseq), run.grace() * 999 / 1000);
        let elapsed = self.at.saturating_sub(found);
        let forgotten = nanos(run.settings.forget) * 999 / 1000 <= self.at - track.sign_sure;
        let ended = stream.ended <= self.at || forgotten;
        let gone = || stream.may_be_gone(self.at, dseq).0 && run.reorder_grace() * 999 / 1000 <= elapsed;
        let deadline = need <= if run.repairs() { track.heard_most.between(found, self.at) } else { elapsed };
        let fits = match reason {
            Some(Reason::Disabled) => !run.repairs() && deadline,
            Some(Reason::Deadline) => run.repairs() && deadline,
            Some(Reason::Expired) => {
                let manifest_gone = stream.may_be_gone(self.at, dseq).1 || stream.bcast.is_manifested(dseq);
                run.repairs() && gone() && manifest_gone
            }
            Some(Reason::Crashed) => ended,
            Some(Reason::PublisherGone) => track.bye_read && deadline || ended,
            Some(_) => false,
            None => deadline || ended || self.gave_up_with_epoch(dseq) || run.repairs() && gone(),
        };
        if !fits {
            let text = format!(
                "datagram {dseq} given up {} us after word of it ({reason:?}), heard for {} us of that",
                elapsed / 1000,
                track.heard_most.between(found, self.at) / 1000
            );
            self.wrong("O3", text);
        }
    }

    fn on_unverified(&mut self, clients: u64, first: u64, last: u64, count: Count, reason: Reason) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.figures.reports_unverified += 1;
        self.oracle.note(&[at, run, 4, stream, first, last, count.min(), count.max()]);
        self.track_mut().told[2] += count.max();
        let high = self.truth().streams[self.stream].bcast.high();
        if last < first || first == 0 || high < last {
            return self.wrong("O4", format!("datagrams {first}..{last} unverified, {high} were sent"));
        }
        if let Some(message) = self.broken(first, last, count) {
            return self.on_broken(message, clients, reason);
        }
        if first == last && self.is_rebuilt(first, count) {
            return self.on_unnumbered_gone(first, clients, reason);
        }
        self.check_unverified_count(first, last, count);
        for dseq in first..=last {
            let (arrived, read) = (self.track().arrived(dseq), self.track().read(dseq));
            // What a limit or word of the publisher ends is told before the rest of a batch is read.
            let at_once = matches!(reason, Reason::Overflow | Reason::Expired);
            let unread = !at_once && arrived < at && self.oracle.runs[self.run].paused(arrived, at) == 0;
            // What came before the first word waited for it, and was taken after that one after the other.
            let waited = reason == Reason::Overflow && at <= self.track().word_at || self.track().is_doubtful(dseq);
            if self.had_read(dseq) && !waited || unread {
                let taken = self.oracle.runs[self.run].taken_within(&self.truth().streams[self.stream].settings);
                let late = self.had_read(dseq) && self.track().found(dseq) + taken <= read;
                if !late {
                    self.wrong("O5", format!("datagram {dseq} unverified though it had come at {arrived}"));
                }
            }
            if self.track().contact.is_none_or(|(_, low)| dseq <= low) {
                self.check_baseline(dseq);
            }
            self.check_grace(dseq, Some(reason));
            self.on_settled(dseq, reason);
            self.track_mut().declare(dseq, Declared { at, clients, by_limit: reason == Reason::Overflow });
        }
        let range = self.truth().streams[self.stream].bcast.begun_in(first, last);
        let going_on = self.truth().streams[self.stream].bcast.datagrams[first as usize - 1].goes_on;
        for message in range.chain(going_on) {
            self.track_mut().cover(message, at);
        }
    }

    /// The large message without a number that a report of one datagram is about: it begins there, in a datagram that
    /// came, so nothing else can be unknown of it.
    fn broken(&self, first: u64, last: u64, count: Count) -> Option<usize> {
        let message = self.truth().streams[self.stream].bcast.begun_in(first, first).last()?;
        let sent = self.sent(message);
        let is_large = sent.first < sent.last || !sent.is_whole;
        let came = self.track().read(first) <= self.at && self.track().declared(first).is_none();
        (first == last && count == Count::Exact(1) && sent.seq.is_none() && is_large && came).then_some(message)
    }

    fn on_broken(&mut self, message: usize, clients: u64, reason: Reason) {
        let at = self.at;
        if let Some(before) = self.track().broken(message) {
            self.wrong("O5", format!("large message {message} told as unverified after {before:?}"));
        }
        if self.track().states.iter().any(|of| of.get(message) == Some(&State::Delivered)) {
            self.wrong("O5", format!("large message {message} told as unverified after it was delivered"));
        }
        self.check_missing(message, reason);
        self.track_mut().cover(message, at);
        self.track_mut().tell_broken(message, Declared { at, clients, by_limit: reason == Reason::Overflow });
    }

    /// Messages without a number in a datagram whose content the publisher told: only these are unverified, and not
    /// the whole datagram.
    fn unnumbered(&self, dseq: u64) -> Vec<usize> {
        let range = self.truth().streams[self.stream].bcast.begun_in(dseq, dseq);
        range.filter(|message| self.sent(*message).seq.is_none()).collect()
    }

    fn is_rebuilt(&self, dseq: u64, count: Count) -> bool {
        let flow = &self.truth().streams[self.stream].bcast;
        let all = flow.begun_in(dseq, dseq).len() as u64;
        let unnumbered = self.unnumbered(dseq).len() as u64;
        flow.is_manifested(dseq) && count.is_exact() && count.min() <= unnumbered && count.min() < all
    }

    fn on_unnumbered_gone(&mut self, dseq: u64, clients: u64, reason: Reason) {
        let at = self.at;
        self.check_grace(dseq, Some(reason));
        for message in self.unnumbered(dseq) {
            if self.track().states.iter().any(|of| of.get(message) == Some(&State::Delivered)) {
                self.wrong("O5", format!("message {message} told as unverified after it was delivered"));
            }
            self.track_mut().cover(message, at);
            self.track_mut().tell_broken(message, Declared { at, clients, by_limit: false });
        }
    }

    /// Messages that begin in the range and are not yet told as lost.
    fn check_unverified_count(&mut self, first: u64, last: u64, count: Count) {
        let flow = &self.truth().streams[self.stream].bcast;
        let range = flow.begun_in(first, last);
        let all = range.len() as u64;
        let told = |message: &usize| {
            let states = self.track().states.iter();
            let mut states = states.filter_map(|of| of.get(*message));
            states.any(|state| matches!(state, State::Lost { .. } | State::Maybe { .. }))
        };
        let explained = range.filter(told).count() as u64;
        let fits = match count {
            Count::Exact(exact) => exact <= all && all - explained <= exact,
            Count::Between { min, max } => min <= all && max <= all && all - explained <= max,
        };
        if !fits {
            self.wrong("O5", format!("{count} messages in {first}..{last}, in truth {all}, {explained} told before"));
        }
    }

    /// O5, R4: nothing from before the baseline is told, unless some subscription may be older than the epoch.
    fn check_baseline(&mut self, dseq: u64) {
        let run = &self.oracle.runs[self.run];
        let born = self.truth().streams[self.stream].born;
        // At the edge of being forgotten the receiver may still go on with its ledger.
        if born <= run.born && !self.track().returned {
            self.wrong("O2", format!("datagram {dseq} is from before this peer listened"));
        }
    }

    /// O8: how long it took.
    fn on_settled(&mut self, dseq: u64, reason: Reason) {
        if self.track().declared(dseq).is_some() || reason == Reason::Overflow {
            return;
        }
        let found = self.track().found_late(dseq);
        let run = &self.oracle.runs[self.run];
        let elapsed = self.at.saturating_sub(found);
        // T_rec runs while the publisher is heard.
        let took = if run.repairs() { self.track().heard.between(found, self.at) } else { elapsed };
        let bound = run.grace() * 1001 / 1000 + MILLIS + run.paused(found, self.at + MILLIS);
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
            self.wrong("O8", format!("datagram {dseq} given up after it was awaited for {} us", took / 1000));
        }
    }

    fn on_tail(&mut self, after: u64, reason: Reason) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.note(&[at, run, 5, stream, after, reason as u64]);
        let high = self.truth().streams[self.stream].bcast.high();
        if high < after {
            self.wrong("O4", format!("nothing known after {after}, in truth {high} were sent"));
        }
        let truth = &self.truth().streams[self.stream];
        let silent_after = truth.silent_after().min(nanos(self.oracle.runs[self.run].settings.heartbeat) * 7 / 2);
        let quiet = at - self.track().sign_sure.min(at);
        let died = truth.ended < at;
        match reason {
            Reason::Silent => {
                self.oracle.figures.reports_silent += 1;
                if quiet < silent_after * 999 / 1000 {
                    self.wrong("O5", format!("silent after {} ms", quiet / MILLIS));
                }
                self.track_mut().silences.push(crate::sim::oracle::Silence {
                    from: at,
                    until: NEVER,
                    after,
                    misled: false,
                });
            }
            Reason::Crashed => {
                self.oracle.figures.reports_crashed += 1;
                let forget = nanos(self.oracle.runs[self.run].settings.forget);
                if !died && quiet < forget * 999 / 1000 {
                    self.wrong("O5", format!("crashed though it lives and was heard {} ms ago", quiet / MILLIS));
                }
                self.track_mut().ends.push(crate::sim::oracle::End { at, after, upto: NEVER, misled: None });
            }
            other => self.wrong("O5", format!("a tail because of {other}")),
        }
    }

    fn on_inbox(&mut self, messages: u64) {
        let (at, run, stream) = (self.at, self.run as u64, self.stream as u64);
        self.oracle.figures.inbox_lost += messages;
        self.oracle.note(&[at, run, 6, stream, messages]);
        self.track_mut().told[3] += messages;
        self.track_mut().inbox += messages;
        let own = self.truth().streams[self.oracle.runs[self.run].stream].epoch.bits();
        let sent = self.truth().streams[self.stream].directed_to(own).map_or(0, |flow| flow.messages.len() as u64);
        let known = self.track().inbox + self.track().direct;
        if sent < known {
            self.wrong("O4", format!("{known} directed messages delivered or lost, {sent} sent"));
        }
    }
}
