//! Repair: this peer's requests, its answers, and the proof of an address that precedes any answer (R5, R6,
//! A9; wire.md W99).

use super::Peer;
use crate::message::{DeliveryMode, Dseq, Epoch};
use crate::proto::address_proof::HELLO_BYTES;
use crate::proto::members::{Member, Side};
use crate::proto::mutant::Mutant;
use crate::proto::peer::receive::DatagramSource;
use crate::proto::resend::{ResendAnswer, ResendTarget, RingContent};
use crate::proto::send::AnnouncementKind;
use crate::proto::stats::MemberState;
use crate::time::{ClockReading, Instant};
use crate::wire::{ExpiryNotice, Header, Manifest, PeerAnnouncement, Range, Record, ResendRequest};
use std::net::SocketAddr;
use std::time::Duration;

/// Minimum interval between early heartbeats to a member. Some of them may be lost before the address is proven, and
/// nothing is repaired until then. The interval is therefore shorter than the first waits between requests.
const EARLY_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(4);

impl Peer {
    /// Handles the tokens of an announcement: this peer's token that the member echoes, and the member's token that
    /// this peer must echo.
    pub(super) fn on_proof(&mut self, now: ClockReading, epoch: Epoch, announce: &PeerAnnouncement) {
        if let Some(echo) = announce.echo {
            self.path_probes.on_echo(now.instant, epoch, echo);
        }
        let Some(member) = self.members.get_mut(&epoch) else { return };
        // Rule: proof
        if !member.proof.is_proven && member.proof.is_token(announce.echo) {
            member.proof.is_proven = true;
            member.receiver.on_proven();
            let parked_questions = std::mem::take(&mut member.parked_questions);
            parked_questions.into_iter().for_each(|message| self.on_service(now, epoch, message));
            if self.settings.suppresses {
                self.schedule_confirmation(now, epoch);
            }
            self.update_pace(now.instant);
        }
        let Some(member) = self.members.get_mut(&epoch) else { return };
        if announce.token.is_some() && announce.token != member.proof.echo {
            member.proof.echo = announce.token;
            if self.may_send_to(epoch) {
                self.send_early_heartbeat(now, epoch);
            }
        }
    }

    /// Sends a heartbeat to a member out of turn, at most once per interval.
    pub(super) fn send_early_heartbeat(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        if member.announced_at.is_none_or(|at| EARLY_HEARTBEAT_INTERVAL <= now.instant.since(at)) {
            member.announced_at = Some(now.instant);
            self.send_announcement(now, AnnouncementKind::Heartbeat, Some(epoch), 0);
        }
    }

    /// Requests the missing datagrams of a publisher's streams whose requests are due.
    pub(super) fn send_resend_requests(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        if member.request_deadline().is_none_or(|at| now.instant < at) {
            return;
        }
        let unicast = member.liveness.is_dead();
        let only_manifests = self.interest.is_empty(DeliveryMode::Repair);
        let ranges_max = ResendRequest::ranges_max(self.settings.datagram_bytes_max);
        let mut requests = Vec::new();
        let mut outcomes = std::mem::take(&mut self.inbound.outcomes);
        for directed in [false, true] {
            let mut ranges = Vec::new();
            let recv = if directed { &mut member.ptp } else { &mut member.bcast };
            let add_range = |first: Dseq, last: Dseq| {
                let has_room = ranges.len() < ranges_max;
                if has_room {
                    ranges.push(Range { first, last });
                }
                has_room
            };
            recv.send_due_requests(now.instant, add_range, &mut outcomes);
            if !ranges.is_empty() {
                // Without subscriptions in mode repair, the manifests of the datagrams suffice (A4).
                let manifests_only = only_manifests && !directed;
                requests.push(ResendRequest { epoch, directed, manifests_only, unicast, ranges });
            }
        }
        let padded = member.proof.padding();
        let (address, publisher) = (member.address, member.publisher.clone());
        for outcome in outcomes.drain(..) {
            self.on_outcome(now, DeliveryMode::Repair, &publisher, outcome);
        }
        self.inbound.outcomes = outcomes;
        for request in requests {
            if !self.may_send_to(epoch) {
                continue;
            }
            self.counters.requests_sent += 1;
            self.control_to(now.instant, address, &Record::ResendRequest(request), padded);
        }
    }

    pub(super) fn control_to(&mut self, now: Instant, address: SocketAddr, record: &Record, padded: usize) {
        let (_, count) = self.outbound.sent();
        let bytes = self.announcements.control.datagram(now, &self.origin, count, record, padded);
        self.send(Some(address), bytes);
    }

    /// Returns the member that a control datagram is from, if the epoch is known and bound to that address.
    pub(super) fn member_at(&mut self, source: DatagramSource, header: &Header) -> Option<&mut Member> {
        let member = self.members.get_mut(&header.epoch).filter(|member| member.address == source.from);
        if member.is_none() {
            self.counters.discard_unknown_peer += 1;
        }
        member
    }

    /// Handles a receiver's request for datagrams.
    pub(super) fn on_resend_request(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        request: &ResendRequest,
    ) {
        let (own, mutants, sent) = (self.origin.epoch, self.settings.mutants, self.outbound.sent().0);
        let Some(member) = self.member_at(source, header) else { return };
        if request.epoch != own {
            self.counters.discard_old_epoch += 1;
            return;
        }
        // Rule: proof
        if !member.proof.is_proven && !mutants.is(Mutant::AnswerUnproven) {
            self.counters.requests_unproven += 1;
            if HELLO_BYTES <= source.bytes {
                self.send_early_heartbeat(now, header.epoch);
            }
            return;
        }
        let high = if request.directed { member.directed.high() } else { sent };
        if !request.directed {
            member.receiver.on_request(&request.ranges, sent);
        }
        self.outbound.resends.on_request(now.instant, header.epoch, request, high);
        self.counters.requests_received += 1;
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.byes == 0) {
            stop.quiet_since = now.instant;
        }
        self.answer_requests(now);
    }

    /// Sends the answers to requests, as far as the budgets allow.
    pub(super) fn answer_requests(&mut self, now: ClockReading) {
        self.outbound.resends.pause_live(now.instant, self.outbound.pacer.waits_for_resends());
        loop {
            let directed = |epoch: Epoch| self.members.get(&epoch).map(|member| &member.directed_ring);
            let Some(answer) = self.outbound.resends.poll_answer(now.instant, &self.outbound.ring, directed) else {
                return;
            };
            if let ResendAnswer::Resend { repeated_for: Some(epoch), bytes, .. } = &answer {
                self.on_repeated_resend(now.instant, *epoch, bytes.len());
            }
            // Rule: resend
            match answer {
                ResendAnswer::Resend { to: ResendTarget::Group, bytes, .. } => {
                    self.counters.resends += 1;
                    self.outbound.pacer.on_resent(bytes.len());
                    self.send(None, bytes);
                }
                ResendAnswer::Resend { to: ResendTarget::Member(epoch), dseq, mut bytes, .. } => {
                    let Some(member) = self.members.get(&epoch) else { continue };
                    if self.settings.mutants.is(Mutant::ResendOther)
                        && let RingContent::Datagram(other) = self.outbound.ring.find(dseq.next())
                    {
                        bytes = other;
                    }
                    let address = member.address;
                    self.counters.resends += 1;
                    self.send(Some(address), bytes);
                }
                ResendAnswer::Manifest { to, manifest } => self.send_to_member(now, to, &Record::Manifest(manifest)),
                ResendAnswer::Expired { to, expired } => self.send_to_member(now, to, &Record::Expired(expired)),
            }
        }
    }

    fn send_to_member(&mut self, now: ClockReading, to: Epoch, record: &Record) {
        if let Some(member) = self.members.get(&to) {
            let address = member.address;
            self.control_to(now.instant, address, record, 0);
        }
    }

    /// Handles a publisher's manifests of datagrams that it cannot resend.
    pub(super) fn on_manifest(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        manifest: Manifest,
    ) {
        if self.member_at(source, header).is_none() {
            return;
        }
        let fits =
            self.with_stream(now, header.epoch, Side::Bcast, |recv, ctx, out| recv.on_manifest(ctx, manifest, out));
        if fits == Some(false) {
            self.counters.discard_contradiction += 1;
        }
        self.fetch(now);
    }

    /// Handles a publisher's notice that it knows nothing about some datagrams any more.
    pub(super) fn on_expired(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        expired: &ExpiryNotice,
    ) {
        if self.member_at(source, header).is_none() {
            return;
        }
        let Some(last) = expired.ranges.last().map(|range| range.last) else { return };
        let side = match expired.receiver {
            None => Side::Bcast,
            Some(receiver) if receiver == self.origin.epoch => Side::Ptp,
            Some(_) => {
                self.counters.discard_other_receiver += 1;
                return;
            }
        };
        self.with_stream(now, header.epoch, side, |recv, ctx, out| recv.on_expired(ctx, last, out));
    }

    /// Returns whether receivers may still request datagrams of a peer that is stopping.
    pub(super) fn has_receivers(&self) -> bool {
        0 < self.outbound.sent().0.0
            && self.members.values().any(|member| matches!(member.state, MemberState::Up | MemberState::Silent))
    }
}
