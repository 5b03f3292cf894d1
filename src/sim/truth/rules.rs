//! Rules for the bytes that leave a peer: numbers, heartbeats, and answers to requests (R1 to R3, R6, R9 to R11).

use super::{EpochTrace, GroundTruth, NEVER, StreamTrace};
use crate::message::Stamp;
use crate::proto::pace::Pace;
use crate::seqno::{Frame, Seq};
use crate::sim::report::Findings;
use crate::sim::scenario::MILLIS;
use crate::subject::Subject;
use crate::time::{ClockReading, WallTime, nanos};
use crate::wire::{self, ExpiryNotice, Header, Kind, Manifest, PeerAnnouncement};
use hashbrown::HashMap;

impl GroundTruth {
    /// Checks the number of a message against the last one of its subject (R10, R11, A11).
    #[expect(clippy::too_many_arguments, reason = "one message with its position in the stream")]
    pub(super) fn check_number(
        &self,
        at: u64,
        now: ClockReading,
        (stream, receiver): (usize, Option<u64>),
        flow: &StreamTrace,
        (subject, seq): (usize, Option<Seq>),
        (stamp, chain): (Option<Stamp>, Option<Seq>),
        out: &mut Findings,
    ) {
        if !self.is_strict {
            return;
        }
        let settings = &self.streams[stream].settings;
        let name = &self.subjects[subject];
        let Some(seq) = seq else {
            if receiver.is_none() && 1 << 20 <= settings.pub_window.bytes_max {
                out.add("R9", format!("{name} has no number though there is room"));
            }
            return;
        };
        let before = flow.numbered(subject).last().map(|at| flow.messages[*at]);
        let fits = match before.and_then(|before| Some((before.seq?, before.sealed))) {
            None => seq.count() == 1 && chain.is_none(),
            Some((last, _)) if last.frame() == seq.frame() => Some(seq) == last.forward(1) && stamp.is_none(),
            Some((last, last_at)) => {
                let idle = at - last_at;
                let forgot = nanos(settings.pub_window.time) * 999 / 1000 <= idle;
                last < seq && seq.count() == 1 && (chain == Some(last) || chain.is_none() && forgot)
            }
        };
        // A paced datagram has the time of its sealing. Its uptime shows that to a millisecond, the publication time of
        // its messages exactly.
        let wall = WallTime::from_nanos(now.wall.as_nanos().saturating_sub(2 * MILLIS));
        let oldest = self.unsent.get(self.streams[stream].run).and_then(|unsent| unsent.front());
        let is_waiting = oldest.is_some_and(|id| self.published[*id].at < at);
        let may_wait = receiver.is_none() && settings.pace.pace != Pace::Off && is_waiting;
        let is_fresh = !may_wait && flow.datagrams.last().is_none_or(|datagram| datagram.sealed == at);
        let is_current = |seq: Seq| !is_fresh || Frame::at(wall) <= seq.frame();
        let is_stamped = (seq.count() == 1) == stamp.is_some()
            && stamp.is_none_or(|stamp| seq.frame().start() <= stamp.time && is_current(seq));
        if !fits || !is_stamped || settings.frame_messages_max < seq.count() {
            out.add("R10", format!("{name}: {seq:?} (stamp {stamp:?}, chain {chain:?}) after {before:?}"));
        }
    }
}

impl StreamTrace {
    /// Returns whether a buffer of `bytes_max` bytes that keeps each datagram for `time` may have evicted a datagram
    /// at `at`. The overhead beside the bytes themselves is estimated high.
    pub(super) fn may_be_evicted(&self, at: u64, dseq: u64, bytes_max: usize, time: u64) -> bool {
        let Some(sealed) = self.datagrams.get(dseq as usize - 1) else { return false };
        let before = if dseq < 2 { 0 } else { self.cumulative_bytes[dseq as usize - 2] };
        let bytes = self.cumulative_bytes.last().map_or(0, |all| all - before);
        let datagrams = self.high() + 1 - dseq;
        let bytes_max = bytes_max as u64;
        bytes_max < bytes * 2 + 300 * datagrams + 1024 || time * 999 / 1000 <= at - sealed.at
    }
}

impl EpochTrace {
    /// Checks R1: after its BYE an epoch announces nothing but BYEs.
    pub(super) fn check_bye(&mut self, bye: bool, is_strict: bool, out: &mut Findings) {
        if is_strict && self.has_sent_bye && !bye {
            out.add("R1", format!("epoch {} sends another announcement after its BYE", self.epoch));
        }
        self.has_sent_bye |= bye;
    }

    /// Checks R3: heartbeats leave 20, 60, 140, 300 ms … after the last datagram.
    pub(super) fn check_heartbeat(&self, at: u64, out: &mut Findings) {
        if !self.has_sent_bye && self.heartbeat_due.0 + 4 * MILLIS < at {
            out.add(
                "R3",
                format!("epoch {} has a heartbeat overdue by {} ms", self.epoch, (at - self.heartbeat_due.0) / MILLIS),
            );
        }
    }

    /// Returns the earliest time at which a datagram that leaves now was sealed.
    pub(super) fn sealed_at(&self, at: u64, now: ClockReading, header: &Header) -> u64 {
        let uptime = now.instant.since(self.started.instant).as_millis() as u64;
        match uptime.saturating_sub(header.uptime_ms.into()) {
            0 | 1 => at,
            millis => at.saturating_sub((millis + 1) * MILLIS),
        }
    }

    pub(super) fn check_header(
        &self,
        at: u64,
        now: ClockReading,
        header: &Header,
        bytes: usize,
        multicast: bool,
        out: &mut Findings,
    ) {
        if multicast {
            self.check_heartbeat(at, out);
        }
        let uptime = now.instant.since(self.started.instant).as_millis() as u64;
        // A datagram of the group may have waited for the pacer since it was sealed.
        let may_wait = header.kind == Kind::Data && self.settings.pace.pace != Pace::Off;
        let is_dated = u64::from(header.uptime_ms) <= uptime + 1 && (may_wait || self.sealed_at(at, now, header) == at);
        if !is_dated || header.group != self.settings.group {
            out.add("wire", format!("uptime {} of {uptime} ms, group {}", header.uptime_ms, header.group));
        }
        if self.settings.datagram_bytes_max < bytes {
            out.add("wire", format!("a datagram of {bytes} bytes"));
        }
        if self.ended != NEVER {
            out.add("R1", format!("epoch {} has ended and sent {header:?}", self.epoch));
        }
    }

    /// Returns whether this is one of the last two tokens that were sent to a receiver.
    pub fn is_token(&self, receiver: u64, token: u64) -> bool {
        self.tokens.get(&receiver).is_some_and(|(last, former)| token == *last || Some(token) == *former)
    }

    /// Returns whether the publisher may have evicted a datagram, and whether it may have evicted its manifest.
    pub fn may_be_evicted(&self, at: u64, dseq: u64) -> (bool, bool) {
        let ring = &self.settings.recovery.ring;
        let time = nanos(ring.time);
        let datagram = self.bcast.may_be_evicted(at, dseq, ring.bytes_max, time);
        (datagram, datagram && self.bcast.may_be_evicted(at, dseq, ring.manifest_bytes_max, time.saturating_mul(10)))
    }

    /// Returns whether a message may have left the history of its subject. The overhead beside the bytes of the
    /// messages is estimated high. `unsent` counts the messages, and their bytes, that are in the history already
    /// and have yet to leave.
    pub fn may_be_evicted_from_history(&self, message: usize, unsent: (usize, usize)) -> bool {
        let settings = &self.settings.recovery.history;
        let sent = self.bcast.messages[message];
        let numbered = self.bcast.numbered(sent.subject);
        let since = &numbered[numbered.partition_point(|at| *at < message)..];
        let bytes = |at: &usize| self.bcast.messages[*at].bytes + 300;
        let more = unsent.1 + 300 * unsent.0;
        // Subjects that rotate out begin anew.
        self.settings.pub_window.bytes < 1 << 20
            || sent.seq.is_none()
            || (settings.count_max as usize) < since.len() + unsent.0
            || settings.bytes_max < since.iter().map(bytes).sum::<usize>() + more
            || settings.total_bytes_max / 4
                < (message..self.bcast.messages.len()).map(|at| bytes(&at)).sum::<usize>() + more
    }

    /// Checks R6: a manifest describes only datagrams that the publisher may have evicted, or whose manifest alone a
    /// receiver requested.
    pub(super) fn check_manifest(
        &self,
        at: u64,
        manifest: &Manifest,
        (subjects, is_strict): (&HashMap<Subject, usize>, bool),
        out: &mut Findings,
    ) {
        for (dseq, contents) in (manifest.first.0..).zip(&manifest.datagrams) {
            if self.bcast.high() < dseq {
                return out.add("R6", format!("manifest of datagram {dseq}, {} were sent", self.bcast.high()));
            }
            let sealed = self.bcast.datagrams[dseq as usize - 1];
            let begun: u64 = contents.iter().map(wire::Content::messages_begun).sum();
            let mut messages = sealed.continued.into_iter().chain(sealed.first..sealed.first + sealed.begun);
            let fits = contents.iter().all(|content| {
                let count = match content.kind {
                    wire::ContentKind::Run { count } => u64::from(count),
                    wire::ContentKind::Part { .. } => 1,
                };
                (0..count).all(|nth| {
                    let Some(sent) = messages.next().map(|message| self.bcast.messages[message]) else { return false };
                    Some(&sent.subject) == subjects.get(&content.subject)
                        && sent.seq == content.seq.and_then(|seq| seq.forward(nth))
                })
            });
            let is_complete = fits && messages.next().is_none() && begun == sealed.begun as u64;
            let before = dseq > manifest.first.0 || manifest.before == sealed.first as u64;
            if is_strict && !(is_complete && before) {
                out.add("R6", format!("manifest {contents:?} of datagram {dseq}, which is {sealed:?}"));
            }
            if is_strict
                && !self.may_be_evicted(at, dseq).0
                && !self.bcast.resend_counts[dseq as usize - 1].manifest_only
            {
                let ring = self.settings.recovery.ring.bytes_max;
                out.add("R6", format!("manifest of datagram {dseq} though it is in the ring of {ring} bytes"));
            }
        }
    }

    /// Checks R6: datagrams reported as expired may have been evicted.
    pub(super) fn check_expired(&self, at: u64, expired: &ExpiryNotice, out: &mut Findings) {
        let ring = &self.settings.recovery.ring;
        for range in &expired.ranges {
            let may_be_gone = match expired.receiver {
                None => self.may_be_evicted(at, range.last.0).1,
                // The publisher drops the directed stream of a receiver that it forgets.
                Some(_) if nanos(self.settings.forget) < 30_000 * MILLIS => true,
                Some(receiver) => self.directed_to(receiver.bits()).is_some_and(|flow| {
                    flow.may_be_evicted(at, range.last.0, ring.bytes_max.min(256 << 10), nanos(ring.time))
                }),
            };
            if !may_be_gone {
                out.add("R6", format!("{expired:?} of datagrams that must still be there"));
            }
        }
    }

    pub(super) fn check_announce(&self, at: u64, announce: &PeerAnnouncement, count: u64, out: &mut Findings) {
        let trail = announce.trail.0;
        let is_evicted = trail <= self.bcast.high() + 1
            && announce.manifest_trail <= announce.trail
            && (trail < 2 || self.may_be_evicted(at, trail - 1).0);
        let fits = announce.high.0 == self.bcast.high()
            && count == self.bcast.messages.len() as u64
            && is_evicted
            && announce.heartbeat == self.settings.heartbeat
            && announce.pub_window_time == self.settings.pub_window.time
            && announce.name == self.settings.name;
        if !fits {
            let high = self.bcast.high();
            out.add("R3", format!("{announce:?} with count {count} after datagram {high}"));
        }
    }
}
