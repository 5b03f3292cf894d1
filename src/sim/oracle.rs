//! The oracle: knows what was sent, what reached which socket and who wanted it, and holds every delivery and every
//! report of a peer against that. It computes entitlement and baselines itself and asks the product for neither.
//!
//! This file keeps the books; `claims` judges what peers say, `verdict` what is left at the end.

mod interest;
mod paths;
mod queues;
mod resend_requests;
mod sides;
mod track;

pub(crate) use queues::{QUEUE_CLIENT, is_member};
pub(crate) use track::{EpochEnd, GapReport, MessageState, SilencePeriod, Track, slot};

use crate::message::{ClientId, DeliveryMode, Epoch, Message, Queue};
use crate::proto::Settings;
use crate::proto::effect::{Path, Target};
use crate::sim::report::{Figures, Findings, LatencyHistogram};
use crate::sim::scenario::{MILLIS, SECOND};
use crate::sim::truth::{ControlContent, DatagramId, EpochTrace, GroundTruth, MessageTrace, NEVER};
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, nanos};
use bytes::Bytes;
use interest::QueueMember;
use std::collections::HashSet;
use std::net::SocketAddr;

/// A subscription and the time for which it stood.
#[derive(Debug)]
pub(crate) struct ObservedSubscription {
    pub target: Target,
    pattern: Pattern,
    pub start: u64,
    pub end: u64,
    /// With which change of the subscriptions it began.
    pub version: u64,
    /// For each subject: not known yet, no, yes.
    matches: Vec<Option<bool>>,
}

impl ObservedSubscription {
    pub fn is_active(&self) -> bool {
        self.end == NEVER
    }

    pub fn wants(&self, subject: &Subject) -> bool {
        self.pattern.matches(subject)
    }

    pub fn matches(&mut self, index: usize, subject: &Subject) -> bool {
        if self.matches.len() <= index {
            self.matches.resize(index + 1, None);
        }
        *self.matches[index].get_or_insert_with(|| self.pattern.matches(subject))
    }
}

/// So much data of an epoch waits for its first word at least.
const EARLY_BYTES: usize = 64 << 10;

/// One run of a peer, as a receiver; or the side of it that subscriptions in mode live are on.
#[derive(Debug)]
pub(crate) struct PeerRun {
    pub host: usize,
    /// The run that this is the live side of, or this one itself.
    pub main: usize,
    /// The live side of this one, if it has any.
    pub live: Option<usize>,
    /// Its current epoch, as an index into `GroundTruth::streams`.
    pub stream: usize,
    pub born: u64,
    pub ended: u64,
    pub subs: Vec<ObservedSubscription>,
    /// Its clients in queue groups; of the run itself only, not of its live side.
    pub members: Vec<QueueMember>,
    /// Whether one of them got a message that was handed over, and repaired on its way.
    pub is_handed: bool,
    /// Changes of its subscriptions; of the run itself only.
    pub version: u64,
    pub tracks: Vec<Option<Box<Track>>>,
    /// When it stood still.
    pub pauses: Vec<(u64, u64)>,
    /// Local deliveries that are still owed: message and subscription.
    pub local: Vec<(usize, usize)>,
    pub kernel_drops: u64,
    /// Addresses that gave back the token sent there.
    pub proven: Vec<SocketAddr>,
    /// When the datagram that was read last had arrived, if that is said.
    pub arrived: Option<u64>,
    /// Whether its effects are drained after each input.
    pub drains_each: bool,
    pub settings: Settings,
}

impl PeerRun {
    fn new(at: u64, host: usize, (main, stream): (usize, usize), settings: Settings) -> PeerRun {
        PeerRun {
            host,
            main,
            live: None,
            stream,
            born: at,
            ended: NEVER,
            subs: Vec::new(),
            members: Vec::new(),
            is_handed: false,
            version: 0,
            tracks: Vec::new(),
            pauses: Vec::new(),
            local: Vec::new(),
            kernel_drops: 0,
            proven: Vec::new(),
            arrived: None,
            drains_each: true,
            settings,
        }
    }

    /// For how long it stood still between two times.
    pub fn paused(&self, from: u64, to: u64) -> u64 {
        self.pauses.iter().map(|(start, end)| to.min(*end).saturating_sub(from.max(*start))).sum()
    }

    /// The first time from `at` on at which it does not stand still.
    pub fn awake_at(&self, at: u64) -> u64 {
        self.pauses.iter().fold(at, |at, (start, end)| if *start <= at && at < *end { *end } else { at })
    }

    /// Whether its limits are so small that gaps end early, without a word if nothing began in them.
    pub fn is_limited(&self) -> bool {
        self.settings.gaps_max < 100 || self.settings.hold_bytes_max.min(self.settings.reassembly_bytes_max) < 1 << 20
    }

    /// T_rec in nanoseconds.
    pub fn grace(&self) -> u64 {
        nanos(self.settings.reliability)
    }

    /// The reorder grace in nanoseconds.
    pub fn reorder_grace(&self) -> u64 {
        nanos(self.settings.recovery.grace)
    }

    /// Whether it asks for what is missing.
    pub fn repairs(&self) -> bool {
        self.settings.recovery.grace < self.settings.reliability
    }

    /// What comes within so many nanoseconds of word of it is certainly taken from a publisher with these settings: later
    /// it may be settled already, if the publisher can let go of it.
    pub fn taken_within(&self, publisher: &Settings) -> u64 {
        let kept = 1 << 20 <= publisher.recovery.ring.bytes_max && SECOND * 30 <= nanos(publisher.recovery.ring.time);
        (if kept { self.grace() } else { self.reorder_grace() }) * 999 / 1000
    }

    /// The clients that have a subscription, as a bit set.
    pub fn clients(&self) -> u64 {
        self.subs.iter().filter(|sub| sub.is_active()).fold(0, |set, sub| set | 1 << sub.target.client.0)
    }

    /// The subscription that a target names, if it stands.
    pub fn find(&self, target: Target) -> Option<usize> {
        self.subs.iter().position(|sub| sub.is_active() && sub.target == target)
    }

    pub fn track(&mut self, stream: usize) -> &mut Track {
        slot_box(&mut self.tracks, stream)
    }
}

fn slot_box(list: &mut Vec<Option<Box<Track>>>, index: usize) -> &mut Track {
    if list.len() <= index {
        list.resize_with(index + 1, || None);
    }
    list[index].get_or_insert_default()
}

/// The oracle of one run of a scenario.
#[derive(Debug)]
pub struct Oracle {
    pub(crate) truth: GroundTruth,
    pub(crate) runs: Vec<PeerRun>,
    pub(crate) findings: Findings,
    pub(crate) figures: Figures,
    pub(crate) settling: LatencyHistogram,
    pub(crate) tails: LatencyHistogram,
    pub(crate) repairs: LatencyHistogram,
    pub(crate) digest: u64,
    /// The most that a datagram is under way.
    pub(crate) delay_max: u64,
    /// How long each host may read on before it looks at the time again; 0 for those that are not said to.
    pub(crate) reading: Vec<u64>,
    /// When all network faults ended.
    pub(crate) healed: u64,
    /// As in the scenario.
    pub(crate) cells: usize,
    /// Which messages members of which queue groups got.
    shares: HashSet<(usize, Queue)>,
    /// Messages that were repaired for some subscription, by run.
    pub(crate) repaired_in: HashSet<(usize, usize)>,
    /// When a queue group changed last.
    queues_changed: u64,
}

impl Oracle {
    /// An oracle that has seen nothing; no datagram is under way for longer than `delay_max` nanoseconds. `cells` are those
    /// of the scenario.
    pub fn new(delay_max: u64, cells: usize) -> Oracle {
        Oracle {
            truth: GroundTruth::new(),
            runs: Vec::new(),
            findings: Findings::default(),
            figures: Figures::default(),
            settling: LatencyHistogram::default(),
            tails: LatencyHistogram::default(),
            repairs: LatencyHistogram::default(),
            digest: 0,
            delay_max,
            reading: Vec::new(),
            healed: NEVER,
            cells,
            shares: HashSet::new(),
            repaired_in: HashSet::new(),
            queues_changed: 0,
        }
    }

    /// Adds to the digest of what happened.
    pub(crate) fn note(&mut self, words: &[u64]) {
        for word in words {
            self.digest = (self.digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }

    /// A peer starts. Gives the number of its run.
    pub fn on_start(&mut self, at: u64, now: ClockReading, host: usize, epoch: Epoch, settings: &Settings) -> usize {
        let run = self.runs.len();
        self.runs.push(PeerRun::new(at, host, (run, self.truth.streams.len()), settings.clone()));
        self.truth.begin(at, now, run, epoch, settings, &mut self.findings);
        run
    }

    /// A peer goes on under a new epoch.
    pub fn on_new_epoch(&mut self, at: u64, now: ClockReading, run: usize, epoch: Epoch) {
        let old = self.runs[run].stream;
        self.truth.end(at, old, &mut self.findings);
        for side in self.sides(run) {
            self.runs[side].stream = self.truth.streams.len();
        }
        let settings = self.runs[run].settings.clone();
        self.truth.begin(at, now, run, epoch, &settings, &mut self.findings);
        // Directed streams are between two epochs.
        for track in self.runs[run].tracks.iter_mut().flatten() {
            (track.direct_last, track.direct, track.inbox) = (0, 0, 0);
            track.direct_read.clear();
        }
    }

    /// A peer ends, by crash or by its own will.
    pub fn on_end(&mut self, at: u64, run: usize, gracefully: bool) {
        self.check_local(run);
        let stream = self.runs[run].stream;
        self.truth.end(at, stream, &mut self.findings);
        if gracefully && !self.truth.streams[stream].said_bye {
            self.findings.add("R1", format!("epoch {} stopped without BYE", self.truth.streams[stream].epoch));
        }
        for side in self.sides(run) {
            self.runs[side].ended = at;
            self.runs[side].subs.iter_mut().filter(|sub| sub.is_active()).for_each(|sub| sub.end = at);
            self.runs[side].members.iter_mut().filter(|one| one.end == NEVER).for_each(|one| one.end = at);
        }
    }

    /// A peer stands still until then.
    pub fn on_pause(&mut self, at: u64, run: usize, until: u64) {
        for side in self.sides(run) {
            self.runs[side].pauses.push((at, until));
        }
        self.truth.postpone_heartbeat(self.runs[run].stream, until);
    }

    /// A client subscribes; nothing happens if it has a subscription of that name already.
    pub fn on_subscribe(&mut self, at: u64, run: usize, target: Target, pattern: &Pattern, mode: DeliveryMode) {
        if self.side_with(run, target).is_some() {
            return;
        }
        let side = self.side_of(run, mode);
        let version = self.runs[run].change();
        let pattern = pattern.clone();
        self.runs[side].subs.push(ObservedSubscription {
            target,
            pattern,
            start: at,
            end: NEVER,
            version,
            matches: Vec::new(),
        });
    }

    /// A client ends one of its subscriptions.
    pub fn on_unsubscribe(&mut self, at: u64, run: usize, target: Target) {
        self.end_subs(at, run, |sub| sub.target == target);
    }

    /// A client goes, and all its subscriptions with it.
    pub fn on_detach(&mut self, at: u64, run: usize, client: ClientId) {
        self.end_subs(at, run, |sub| sub.target.client == client);
    }

    fn end_subs(&mut self, at: u64, run: usize, is_ended: impl Fn(&ObservedSubscription) -> bool) {
        for side in self.sides(run) {
            let mut ended = 0;
            for sub in self.runs[side].subs.iter_mut().filter(|sub| sub.is_active() && is_ended(sub)) {
                (sub.end, ended) = (at, ended + 1);
            }
            self.runs[run].version += ended;
        }
    }

    /// An application publishes. Gives the message to hand to the peer; `is_local` unless it is directed elsewhere.
    pub fn on_publish(&mut self, run: usize, envelope: Message, bytes: usize, is_local: bool) -> Message {
        self.figures.messages_published += 1;
        let spares = self.truth.streams[self.runs[run].stream].settings.spares;
        let must_be_sent = !spares || self.must_be_sent(run, &envelope.subject);
        let message = self.truth.publish(self.findings.now, run, (envelope, bytes), must_be_sent);
        let id = self.truth.published.len() - 1;
        let subject = self.truth.published[id].subject;
        for side in self.sides(run).filter(|_| is_local) {
            let PeerRun { subs, local, .. } = &mut self.runs[side];
            for (at, sub) in subs.iter_mut().enumerate().filter(|(_, sub)| sub.is_active()) {
                if sub.matches(subject, &message.subject) {
                    local.push((id, at));
                }
            }
        }
        message
    }

    /// All effects of what an application did have been taken.
    pub fn check_local(&mut self, run: usize) {
        for side in self.sides(run) {
            if let Some((id, sub)) = self.runs[side].local.first() {
                let text = format!("run {side}: message {id} of its own was not delivered to its subscription {sub}");
                self.findings.add("local", text);
                self.runs[side].local.clear();
            }
        }
    }

    /// A peer sends a datagram, to an address or to the group.
    pub fn on_sent(
        &mut self,
        at: u64,
        now: ClockReading,
        run: usize,
        bytes: &Bytes,
        to: Option<SocketAddr>,
    ) -> DatagramId {
        self.figures.datagrams_sent += 1;
        let note = self.truth.on_sent(at, now, run, bytes, to.is_none(), &mut self.findings);
        if let Some(to) = to {
            self.check_proof(run, to, note);
        }
        self.check_interest_word(run);
        if let Some(request) = self.truth.request.take() {
            self.on_request(at, run, &request);
        }
        note
    }

    /// A copy reaches a receive buffer, or would have if it had not been lost or damaged.
    pub fn on_copy(&mut self, at: u64, run: usize, note: DatagramId, arrives: bool) {
        let DatagramId::Data { stream, dseq } = note else { return };
        for side in self.sides(run) {
            let track = self.runs[side].track(stream);
            let gone = slot(&mut track.gone, dseq as usize - 1, 0);
            *gone = at.max(*gone);
            if arrives {
                let arrived = slot(&mut track.arrived, dseq as usize - 1, NEVER);
                *arrived = at.min(*arrived);
            }
        }
    }

    /// Whether a run has read anything of the stream of a datagram.
    pub fn knows(&self, run: usize, note: DatagramId) -> bool {
        let stream = match note {
            DatagramId::Data { stream, .. }
            | DatagramId::Directed { stream, .. }
            | DatagramId::Control { stream, .. } => stream,
            DatagramId::Unidentified => return false,
        };
        self.runs[run].tracks.get(stream).is_some_and(|track| track.as_ref().is_some_and(|t| t.contact.is_some()))
    }

    /// A peer reads a whole datagram from its receive buffer.
    pub fn on_read(&mut self, at: u64, run: usize, note: DatagramId, (from, path): (SocketAddr, Path)) {
        self.on_echo(at, run, note, from);
        self.on_path(at, run, note, path);
        self.on_answer(at, run, note);
        for side in self.sides(run) {
            self.on_stream(at, side, note);
        }
    }

    /// One side of a peer learns something of the multicast stream of another.
    fn on_stream(&mut self, at: u64, run: usize, note: DatagramId) {
        let arrived = self.main(run).arrived;
        let forget = nanos(self.runs[run].settings.forget);
        let is_late = self.is_late(at, run, note);
        let is_limited = self.runs[run].is_limited();
        match note {
            DatagramId::Data { stream, dseq } if !self.is_own(run, stream) => {
                let settings = &self.truth.streams[stream].settings;
                let (taken, beat) = (self.runs[run].taken_within(settings), nanos(settings.heartbeat) * 3 / 2);
                let track = self.runs[run].track(stream);
                let is_new = track.read(dseq) == NEVER;
                if is_new && (track.ends.is_empty() || track.high() < dseq) {
                    track.record_contact(at, dseq - 1, forget, (arrived, is_late));
                }
                if is_new {
                    *slot(&mut track.read, dseq as usize - 1, NEVER) = at;
                    if track.word_at == NEVER {
                        track.early_low = track.early_low.min(dseq - 1);
                        track.early_bytes += self.truth.streams[stream].bcast.bytes_of(dseq);
                        if EARLY_BYTES < track.early_bytes {
                            track.doubtful.push(dseq);
                        }
                    }
                    track.heard_most.add(at, beat / 1000 * 1001);
                    track.signs.push(at);
                }
                // Late ones and those from before the baseline need not count, nor what a limit had settled without a word
                // because it was explained already, or what a manifest had told.
                let above = track.contact.is_some_and(|(_, first)| first < dseq);
                let in_time = track.found(dseq) == NEVER || !is_limited && at < track.found(dseq) + taken;
                let is_open = track.declared(dseq).is_none() && !track.may_be_rebuilt(dseq);
                if is_new && above && in_time && is_open {
                    track.sign(at, beat, is_late);
                }
                track.raise_high(at, dseq);
            }
            DatagramId::Control { stream, number, says: ControlContent::Word { high, bye, .. } }
                if !self.is_own(run, stream) =>
            {
                let beat = nanos(self.truth.streams[stream].settings.heartbeat) * 3 / 2;
                let track = self.runs[run].track(stream);
                if track.control < number {
                    track.record_contact(at, high, forget, (arrived, is_late));
                    track.control = number;
                    track.word_at = track.word_at.min(at);
                    // Who said BYE is not waited for any longer.
                    track.sign(at, if bye { NEVER / 2 } else { beat }, is_late);
                    track.raise_high(at, high);
                    track.bye_read |= bye;
                }
            }
            _ => {}
        }
    }

    /// A peer reads what was sent to it alone: what was in datagrams, that nothing is known of them, or a datagram of its
    /// directed stream.
    fn on_answer(&mut self, at: u64, run: usize, note: DatagramId) {
        let own = self.runs[run].stream;
        match note {
            DatagramId::Control { stream, says: ControlContent::Manifest { first, last }, .. } => {
                let track = self.runs[run].track(stream);
                for dseq in first..=last {
                    let manifest_read_at = slot(&mut track.manifest_read_at, dseq as usize - 1, NEVER);
                    *manifest_read_at = at.min(*manifest_read_at);
                }
            }
            DatagramId::Control { stream, says: ControlContent::Expired { last }, .. } => {
                self.runs[run].track(stream).expired.push((at, last));
            }
            DatagramId::Directed { stream, receiver, number } if receiver == self.truth.streams[own].epoch.bits() => {
                let track = self.runs[run].track(stream);
                *slot(&mut track.direct_read, number as usize - 1, false) = true;
            }
            _ => {}
        }
    }

    /// Whether a datagram was under way for longer than the network takes: an old one that came again.
    fn is_late(&self, at: u64, run: usize, note: DatagramId) -> bool {
        let sealed = match note {
            DatagramId::Data { stream, dseq } => self.truth.streams[stream].bcast.datagrams[dseq as usize - 1].at,
            DatagramId::Control { stream, number, .. } => self.truth.streams[stream].controls[number as usize - 1],
            DatagramId::Directed { .. } | DatagramId::Unidentified => return false,
        };
        self.delay_max + self.runs[run].paused(sealed, at) < at - sealed
    }

    /// Whether a subscription is certainly owed a message; if not it may still be.
    pub(crate) fn is_owed(
        &self,
        run: usize,
        sub: &ObservedSubscription,
        stream: &EpochTrace,
        track: &Track,
        sent: &MessageTrace,
    ) -> bool {
        let Some((_, first_heard)) = track.contact else { return false };
        if sent.sealed <= sub.start || sub.end <= sent.at || self.runs[run].born > sent.at {
            return false;
        }
        first_heard < sent.first || self.is_owed_all(sub, stream, track)
    }

    /// R4: the subscription is older than the epoch by more than the margin.
    pub(crate) fn is_owed_all(&self, sub: &ObservedSubscription, stream: &EpochTrace, track: &Track) -> bool {
        let Some((contact, _)) = track.contact.filter(|_| !track.returned && !track.is_age_unknown) else {
            return false;
        };
        // Nobody is older than the time itself.
        let margin = 100 * MILLIS + contact / 1000 + self.delay_max + track.doubt + 2 * MILLIS;
        sub.start + margin < stream.born
    }

    /// Whether a subscription may be told of a message or get it: it was sent while it stood, or was under way when it
    /// began (A6).
    pub(crate) fn is_entitled(
        &self,
        run: usize,
        sub: &ObservedSubscription,
        stream: &EpochTrace,
        track: &Track,
        sent: &MessageTrace,
    ) -> bool {
        let receiver = &self.runs[run];
        let under_way = |dseq: u64| match track.read(dseq) {
            NEVER => receiver.awake_at(track.gone(dseq).max(sent.at + self.delay_max)),
            read => read,
        };
        let settled = (sent.first..=sent.last).map(under_way).max().unwrap_or(0);
        if sub.start <= sent.at || sub.start <= receiver.awake_at(settled + receiver.grace()) + 2 * MILLIS {
            return true;
        }
        // What is asked for is under way for as long.
        let found = track.found_late(sent.last);
        let above = track.contact.is_some_and(|(_, first)| first.min(track.early_low) < sent.last);
        (above || receiver.born < stream.born)
            && receiver.repairs()
            && found != NEVER
            && sub.start <= track.heard.after(found, receiver.grace() + 10 * MILLIS)
    }
}
