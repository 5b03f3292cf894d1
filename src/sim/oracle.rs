//! The oracle records all datagrams sent, their arrival at each socket, and all subscriptions. It checks every
//! delivery and every report of a peer against that. It computes entitlement and baselines itself, and reads neither
//! from the product.
//!
//! This file has the records; `claims` judges the reports of peers, `final_checks` the state at the end.

mod interest;
mod paths;
mod pauses;
mod queues;
mod resend_requests;
mod sides;
mod track;

pub(crate) use queues::{QUEUE_CLIENT, is_member};
pub(crate) use track::{EpochEnd, GapReport, MessageState, SilencePeriod, Track, slot};

use crate::message::{ClientId, DeliveryMode, Epoch, Message, Queue, Target};
use crate::proto::Settings;
use crate::proto::effect::Path;
use crate::sim::report::{Figures, Findings, LatencyHistogram};
use crate::sim::scenario::{MILLIS, SECOND};
use crate::sim::truth::{ControlContent, DatagramId, EpochTrace, GroundTruth, MessageTrace, NEVER};
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, nanos};
use bytes::Bytes;
use interest::QueueMember;
use pauses::Pauses;
use std::collections::HashSet;
use std::net::SocketAddr;

/// A subscription and the time for which it existed.
#[derive(Debug)]
pub(crate) struct ObservedSubscription {
    pub target: Target,
    pattern: Pattern,
    pub start: u64,
    pub end: u64,
    /// Version of the run's subscriptions at which it began.
    pub version: u64,
    /// For each subject, whether it matches; `None` until that is computed.
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

/// Bytes of an epoch's data for which a receiver always has room until the first announcement.
const EARLY_BYTES: usize = 64 << 10;

/// One run of a peer, as a receiver, or the live side of one, which has the subscriptions in mode live.
#[derive(Debug)]
pub(crate) struct PeerRun {
    pub host: usize,
    /// Index of the main run: of this one, unless it is a live side.
    pub main: usize,
    /// Index of its live side, if it has any.
    pub live: Option<usize>,
    /// Its current epoch, as an index into `GroundTruth::streams`.
    pub stream: usize,
    pub born: u64,
    pub ended: u64,
    pub subs: Vec<ObservedSubscription>,
    /// Its clients in queue groups; empty for a live side.
    pub members: Vec<QueueMember>,
    /// True if a member of a queue group got a message that another peer had returned, and that was repaired.
    pub has_returned_message: bool,
    /// Number of changes of its subscriptions on both sides; 0 for a live side.
    pub version: u64,
    pub tracks: Vec<Option<Box<Track>>>,
    pub pauses: Pauses,
    /// Local deliveries still owed: message and subscription of each.
    pub pending_local: Vec<(usize, usize)>,
    pub kernel_drops: u64,
    /// Addresses that echoed the token sent there.
    pub proven_addresses: Vec<SocketAddr>,
    /// Arrival time of the datagram that was read last, if it is reported.
    pub last_arrival: Option<u64>,
    /// True if its effects are drained after each input.
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
            has_returned_message: false,
            version: 0,
            tracks: Vec::new(),
            pauses: Pauses::default(),
            pending_local: Vec::new(),
            kernel_drops: 0,
            proven_addresses: Vec::new(),
            last_arrival: None,
            drains_each: true,
            settings,
        }
    }

    /// Returns the total time of its pauses between two times.
    pub fn paused(&self, from: u64, to: u64) -> u64 {
        self.pauses.between(from, to)
    }

    /// Returns the first time from `at` on at which it is not paused.
    pub fn awake_at(&self, at: u64) -> u64 {
        self.pauses.end_at(at)
    }

    /// Returns whether its limits are small. Such a run ends gaps early, and reports nothing of gaps in which no
    /// message began.
    pub fn is_limited(&self) -> bool {
        self.settings.gaps_max < 100 || self.settings.hold_bytes_max.min(self.settings.reassembly_bytes_max) < 1 << 20
    }

    /// Returns T_rec in nanoseconds.
    pub fn t_rec(&self) -> u64 {
        nanos(self.settings.reliability)
    }

    /// Returns the reorder grace in nanoseconds.
    pub fn reorder_grace(&self) -> u64 {
        nanos(self.settings.recovery.grace)
    }

    /// Returns whether it requests missing datagrams.
    pub fn repairs(&self) -> bool {
        self.settings.recovery.grace < self.settings.reliability
    }

    /// Returns the nanoseconds after its announcement within which a run certainly accepts a datagram of a publisher. A
    /// later one may be settled already, if the publisher can evict it.
    pub fn acceptance_time(&self, publisher: &Settings) -> u64 {
        let is_retained =
            1 << 20 <= publisher.recovery.ring.bytes_max && SECOND * 30 <= nanos(publisher.recovery.ring.time);
        (if is_retained { self.t_rec() } else { self.reorder_grace() }) * 999 / 1000
    }

    /// Returns the clients that have a subscription, as a bit set.
    pub fn clients(&self) -> u64 {
        self.subs.iter().filter(|sub| sub.is_active()).fold(0, |set, sub| set | 1 << sub.target.client.0)
    }

    /// Returns the subscription that a target names, if it exists.
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
    /// This histogram and the next two are those of [`RunOutcome`](crate::sim::report::RunOutcome).
    pub(crate) settling: LatencyHistogram,
    pub(crate) tails: LatencyHistogram,
    pub(crate) repairs: LatencyHistogram,
    pub(crate) digest: u64,
    /// Maximum time that a datagram is in transit.
    pub(crate) delay_max: u64,
    /// For each host, the maximum time for which it reads before it looks at the clock again, in nanoseconds; 0 if its
    /// speed is not limited.
    pub(crate) reading_max: Vec<u64>,
    /// Time at which all network faults ended.
    pub(crate) healed_at: u64,
    /// Number of cells of the scenario.
    pub(crate) cells: usize,
    /// Deliveries to members of queue groups: message and group of each.
    shares: HashSet<(usize, Queue)>,
    /// Messages that were repaired for some subscription, by run.
    pub(crate) repaired_in: HashSet<(usize, usize)>,
    /// Time of the last change of a queue group.
    queues_changed_at: u64,
}

impl Oracle {
    /// Creates an oracle that has seen nothing. No datagram is in transit for longer than `delay_max` nanoseconds.
    /// `cells` are those of the scenario.
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
            reading_max: Vec::new(),
            healed_at: NEVER,
            cells,
            shares: HashSet::new(),
            repaired_in: HashSet::new(),
            queues_changed_at: 0,
        }
    }

    /// Adds to the digest of the run.
    pub(crate) fn extend_digest(&mut self, values: &[u64]) {
        for value in values {
            self.digest = (self.digest ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }

    /// Records that a peer starts. Returns the number of its run.
    pub fn on_start(&mut self, at: u64, now: ClockReading, host: usize, epoch: Epoch, settings: &Settings) -> usize {
        let run = self.runs.len();
        self.runs.push(PeerRun::new(at, host, (run, self.truth.streams.len()), settings.clone()));
        self.truth.begin(at, now, run, epoch, settings, &mut self.findings);
        run
    }

    /// Records that a peer continues under a new epoch.
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
            (track.directed_next, track.directed_delivered, track.directed_lost) = (0, 0, 0);
            track.directed_read.clear();
        }
    }

    /// Records that a peer ends, by a crash or by a stop.
    pub fn on_end(&mut self, at: u64, run: usize, gracefully: bool) {
        self.check_local(run);
        let stream = self.runs[run].stream;
        self.truth.end(at, stream, &mut self.findings);
        if gracefully && !self.truth.streams[stream].has_sent_bye {
            self.findings.add("R1", format!("epoch {} stopped without BYE", self.truth.streams[stream].epoch));
        }
        for side in self.sides(run) {
            self.runs[side].ended = at;
            self.runs[side].subs.iter_mut().filter(|sub| sub.is_active()).for_each(|sub| sub.end = at);
            self.runs[side].members.iter_mut().filter(|one| one.end == NEVER).for_each(|one| one.end = at);
        }
    }

    /// Records that a peer pauses from `at` to `until`.
    pub fn on_pause(&mut self, at: u64, run: usize, until: u64) {
        for side in self.sides(run) {
            self.runs[side].pauses.add(at, until);
        }
        self.truth.postpone_heartbeat(self.runs[run].stream, until);
    }

    /// Records that a client subscribes; nothing happens if it has a subscription of that name already.
    pub fn on_subscribe(&mut self, at: u64, run: usize, target: Target, pattern: &Pattern, mode: DeliveryMode) {
        if self.side_with(run, target).is_some() {
            return;
        }
        let side = self.side_of(run, mode);
        let version = self.runs[run].next_version();
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

    /// Records that a client ends one of its subscriptions.
    pub fn on_unsubscribe(&mut self, at: u64, run: usize, target: Target) {
        self.end_subs(at, run, |sub| sub.target == target);
    }

    /// Records that a client disconnects, which ends all its subscriptions.
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

    /// Records a publication and returns the message for the peer. `is_local` is set unless it is directed to another
    /// peer.
    pub fn on_publish(&mut self, run: usize, envelope: Message, bytes: usize, is_local: bool) -> Message {
        self.figures.messages_published += 1;
        let suppresses = self.truth.streams[self.runs[run].stream].settings.suppresses;
        let must_be_sent = !suppresses || self.must_be_sent(run, &envelope.subject);
        let message = self.truth.publish(self.findings.now, run, (envelope, bytes), must_be_sent);
        let id = self.truth.published.len() - 1;
        let subject = self.truth.published[id].subject;
        for side in self.sides(run).filter(|_| is_local) {
            let PeerRun { subs, pending_local, .. } = &mut self.runs[side];
            for (at, sub) in subs.iter_mut().enumerate().filter(|(_, sub)| sub.is_active()) {
                if sub.matches(subject, &message.subject) {
                    pending_local.push((id, at));
                }
            }
        }
        message
    }

    /// Checks the local deliveries, once all effects of an application's action are drained.
    pub fn check_local(&mut self, run: usize) {
        for side in self.sides(run) {
            if let Some((id, sub)) = self.runs[side].pending_local.first() {
                let text = format!("run {side}: message {id} of its own was not delivered to its subscription {sub}");
                self.findings.add("local", text);
                self.runs[side].pending_local.clear();
            }
        }
    }

    /// Records a datagram that a peer sends, to an address or to the group.
    pub fn on_sent(
        &mut self,
        at: u64,
        now: ClockReading,
        run: usize,
        bytes: &Bytes,
        to: Option<SocketAddr>,
    ) -> DatagramId {
        self.figures.datagrams_sent += 1;
        let id = self.truth.on_sent(at, now, run, bytes, to.is_none(), &mut self.findings);
        if let Some(to) = to {
            self.check_proof(run, to, id);
        }
        self.check_interest_announcement(run);
        if let Some(request) = self.truth.request.take() {
            self.on_request(at, run, &request);
        }
        id
    }

    /// Records a copy that reaches a receive buffer, or would have if it had not been lost or damaged.
    pub fn on_copy(&mut self, at: u64, run: usize, id: DatagramId, arrives: bool) {
        let DatagramId::Data { stream, dseq } = id else { return };
        for side in self.sides(run) {
            let track = self.runs[side].track(stream);
            let last_copy = slot(&mut track.last_copies, dseq as usize - 1, 0);
            *last_copy = at.max(*last_copy);
            if arrives {
                let arrived = slot(&mut track.arrived, dseq as usize - 1, NEVER);
                *arrived = at.min(*arrived);
            }
        }
    }

    /// Returns whether a run has read anything of the stream of a datagram.
    pub fn knows(&self, run: usize, id: DatagramId) -> bool {
        let stream = match id {
            DatagramId::Data { stream, .. }
            | DatagramId::Directed { stream, .. }
            | DatagramId::Control { stream, .. } => stream,
            DatagramId::Unidentified => return false,
        };
        self.runs[run].tracks.get(stream).is_some_and(|track| track.as_ref().is_some_and(|t| t.contact.is_some()))
    }

    /// Records that a peer reads a whole datagram from its receive buffer.
    pub fn on_read(&mut self, at: u64, run: usize, id: DatagramId, (from, path): (SocketAddr, Path)) {
        self.on_echo(at, run, id, from);
        self.on_path(at, run, id, path);
        self.on_answer(at, run, id);
        for side in self.sides(run) {
            self.on_stream(at, side, id);
        }
    }

    /// Records that one side of a peer learns something of the multicast stream of another.
    fn on_stream(&mut self, at: u64, run: usize, id: DatagramId) {
        let arrived = self.main(run).last_arrival;
        let forget = nanos(self.runs[run].settings.forget);
        let is_stale = self.is_stale(at, run, id);
        let is_limited = self.runs[run].is_limited();
        match id {
            DatagramId::Data { stream, dseq } if !self.is_own(run, stream) => {
                let settings = &self.truth.streams[stream].settings;
                let (taken, beat) = (self.runs[run].acceptance_time(settings), nanos(settings.heartbeat) * 3 / 2);
                let track = self.runs[run].track(stream);
                let is_new = track.read(dseq) == NEVER;
                if is_new && (track.ends.is_empty() || track.high() < dseq) {
                    track.record_contact(at, dseq - 1, forget, (arrived, is_stale));
                }
                if is_new {
                    *slot(&mut track.read, dseq as usize - 1, NEVER) = at;
                    if track.announced_at == NEVER {
                        track.early_low = track.early_low.min(dseq - 1);
                        track.early_bytes += self.truth.streams[stream].bcast.bytes_of(dseq);
                        if EARLY_BYTES < track.early_bytes {
                            track.doubtful.push(dseq);
                        }
                    }
                    track.heard_max.add(at, beat / 1000 * 1001);
                    track.signs.push(at);
                }
                // Some datagrams need not count as signs of life: late ones, those from before the baseline, and those
                // that a manifest had reported. Nor need those of a gap that a limit settled without a report, because
                // the lost messages were reported before.
                let above = track.contact.is_some_and(|(_, first)| first < dseq);
                let in_time = track.found(dseq) == NEVER || !is_limited && at < track.found(dseq) + taken;
                let is_open = track.gap_report(dseq).is_none() && !track.may_be_rebuilt(dseq);
                if is_new && above && in_time && is_open {
                    track.record_sign_of_life(at, beat, is_stale);
                }
                track.raise_high(at, dseq);
            }
            DatagramId::Control { stream, number, content: ControlContent::Announcement { high, bye, .. } }
                if !self.is_own(run, stream) =>
            {
                let beat = nanos(self.truth.streams[stream].settings.heartbeat) * 3 / 2;
                let track = self.runs[run].track(stream);
                if track.control < number {
                    track.record_contact(at, high, forget, (arrived, is_stale));
                    track.control = number;
                    track.announced_at = track.announced_at.min(at);
                    // After a BYE no receiver waits for the publisher any longer.
                    track.record_sign_of_life(at, if bye { NEVER / 2 } else { beat }, is_stale);
                    track.raise_high(at, high);
                    track.bye_read |= bye;
                }
            }
            _ => {}
        }
    }

    /// Records that a peer reads a datagram sent to it alone: a manifest, a report of expiry, or a datagram of its
    /// directed stream.
    fn on_answer(&mut self, at: u64, run: usize, id: DatagramId) {
        let own = self.runs[run].stream;
        match id {
            DatagramId::Control { stream, content: ControlContent::Manifest { first, last }, .. } => {
                let track = self.runs[run].track(stream);
                for dseq in first..=last {
                    let manifest_read_at = slot(&mut track.manifest_read_at, dseq as usize - 1, NEVER);
                    *manifest_read_at = at.min(*manifest_read_at);
                }
            }
            DatagramId::Control { stream, content: ControlContent::Expired { last }, .. } => {
                self.runs[run].track(stream).expired.push((at, last));
            }
            DatagramId::Directed { stream, receiver, number } if receiver == self.truth.streams[own].epoch.bits() => {
                let track = self.runs[run].track(stream);
                *slot(&mut track.directed_read, number as usize - 1, false) = true;
            }
            _ => {}
        }
    }

    /// Returns whether a datagram was sealed longer ago than one transit takes, such as a replay or a retransmission.
    fn is_stale(&self, at: u64, run: usize, id: DatagramId) -> bool {
        let sealed = match id {
            DatagramId::Data { stream, dseq } => self.truth.streams[stream].bcast.datagrams[dseq as usize - 1].at,
            DatagramId::Control { stream, number, .. } => self.truth.streams[stream].control_times[number as usize - 1],
            DatagramId::Directed { .. } | DatagramId::Unidentified => return false,
        };
        self.delay_max + self.runs[run].paused(sealed, at) < at - sealed
    }

    /// Returns whether a subscription is certainly owed a message. If false, the message may still be owed.
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

    /// Returns whether R4 holds: the subscription is older than the epoch by more than the margin.
    pub(crate) fn is_owed_all(&self, sub: &ObservedSubscription, stream: &EpochTrace, track: &Track) -> bool {
        let Some((contact, _)) = track.contact.filter(|_| !track.has_returned && !track.is_age_unknown) else {
            return false;
        };
        // No subscription began before time 0.
        let margin = 100 * MILLIS + contact / 1000 + self.delay_max + track.contact_delay + 2 * MILLIS;
        sub.start + margin < stream.born
    }

    /// Returns whether a subscription may get a message or a report of its loss. The message was sent while the
    /// subscription existed, or was in transit when it began (A6).
    pub(crate) fn is_entitled(
        &self,
        run: usize,
        sub: &ObservedSubscription,
        stream: &EpochTrace,
        track: &Track,
        sent: &MessageTrace,
    ) -> bool {
        let receiver = &self.runs[run];
        let transit_end = |dseq: u64| match track.read(dseq) {
            NEVER => receiver.awake_at(track.last_copy(dseq).max(sent.at + self.delay_max)),
            read => read,
        };
        let settled = (sent.first..=sent.last).map(transit_end).max().unwrap_or(0);
        if sub.start <= sent.at || sub.start <= receiver.awake_at(settled + receiver.t_rec()) + 2 * MILLIS {
            return true;
        }
        let above = track.contact.is_some_and(|(_, first)| first.min(track.early_low) < sent.last);
        if !receiver.repairs() {
            // Its first datagrams may be retransmissions for other receivers, which look like new ones.
            let is_of_first_contact = track.announced_at != NEVER && track.found(sent.last) <= track.announced_at;
            return above && is_of_first_contact && track.contact.is_some_and(|(contact, _)| sub.start <= contact);
        }
        // A requested datagram may still be in transit until T_rec has run.
        let found = track.latest_found(sent.last);
        (above || receiver.born < stream.born)
            && found != NEVER
            && sub.start <= track.heard_min.after(found, receiver.t_rec() + 10 * MILLIS)
    }
}
