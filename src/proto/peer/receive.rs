//! Datagrams of other peers: from bytes to members and streams.

use super::Peer;
use crate::message::{Dseq, Epoch, Reason};
use crate::proto::address_proof::HELLO_BYTES;
use crate::proto::contact::Contact;
use crate::proto::effect::{ArrivedDatagram, MemberEvent, Path};
use crate::proto::ledger::Acceptance;
use crate::proto::members::{DUPLICATE_AFTER, Member, Side};
use crate::proto::mutant::Mutant;
use crate::proto::quarantine::{JumpVerdict, is_plausible};
use crate::proto::send::AnnouncementKind;
use crate::proto::stats::MemberState;
use crate::proto::wall_clock::ClockOffset;
use crate::time::{ClockReading, Instant};
use crate::wire::{self, DiscardReason, Header, Hello, Kind, PeerAnnouncement, Record};
use std::net::SocketAddr;
use std::time::Duration;

/// Minimum interval between two answers to the HELLOs of one peer, and between two HELLOs to an unknown one. It is
/// shorter than the 20 ms between the first two HELLOs.
pub(super) const ANSWER_INTERVAL: Duration = Duration::from_millis(15);

impl Peer {
    pub(super) fn on_datagram(&mut self, now: ClockReading, datagram: ArrivedDatagram) {
        let ArrivedDatagram { from, path, bytes, arrived } = datagram;
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += bytes.len() as u64;
        if wire::claimed_epoch(&bytes) == Some(self.origin.epoch) {
            self.counters.discard_own += 1;
            return;
        }
        let source = DatagramSource { from, path, bytes: bytes.len() };
        self.inbound.arrived = arrived;
        let lists = &mut self.inbound.lists;
        let mut datagram = match wire::decode_with(bytes, self.settings.check_value, |count| lists.take_records(count))
        {
            Ok(datagram) => datagram,
            Err(discard) => return self.on_discard(&discard),
        };
        let header = datagram.header;
        if header.group != self.settings.group {
            self.counters.discard_group += 1;
        } else if from.ip().is_multicast() || from.ip().is_unspecified() || from.port() == 0 {
            self.counters.discard_source += 1;
        } else if header.receiver.is_some_and(|receiver| receiver != self.origin.epoch) {
            self.counters.discard_other_receiver += 1;
        } else if header.kind == Kind::Control && datagram.records.is_empty() {
            // No record in it is known, so its number proves nothing either (wire.md W20).
        } else if header.kind == Kind::Control && !self.accepts_control(now, &header, from) {
            self.counters.discard_quarantined += 1;
        } else if header.kind == Kind::Control {
            self.on_path(now, source, &header);
            datagram.records.drain(..).for_each(|record| self.on_control(now, source, &header, record));
            self.inbound.lists.put_records(datagram.records);
        } else {
            self.on_path(now, source, &header);
            self.on_data(now, source, header, datagram.records);
        }
        self.publish_advisories(now, Some(header.epoch), false);
    }

    /// Returns whether the number of a control datagram is plausible. Any number is plausible for an unknown epoch, or
    /// for an epoch that is bound to another address.
    fn accepts_control(&mut self, now: ClockReading, header: &Header, from: SocketAddr) -> bool {
        let member = self.members.get_mut(&header.epoch).filter(|member| member.address == from);
        member.is_none_or(|member| member.control.admits(now.instant, header.number, header.uptime_ms))
    }

    pub(super) fn on_discard(&mut self, discard: &DiscardReason) {
        let counter = match discard {
            DiscardReason::Foreign => &mut self.counters.discard_foreign,
            DiscardReason::Version(_) => &mut self.counters.discard_version,
            DiscardReason::Mode(_) => &mut self.counters.discard_mode,
            DiscardReason::Check => &mut self.counters.discard_check,
            DiscardReason::Malformed(_) => &mut self.counters.discard_malformed,
        };
        *counter += 1;
    }

    fn on_data(&mut self, now: ClockReading, source: DatagramSource, header: Header, records: Vec<Record>) {
        if records.iter().any(|record| matches!(record, Record::UnknownData(_))) {
            self.counters.unknown_records += 1;
            return;
        }
        let (contact, dseq) = (Contact::of_data(&header), Dseq(header.number));
        let jump = if let Some(member) = self.members.get_mut(&header.epoch) {
            if member.address != source.from {
                self.counters.discard_source += 1;
                return;
            }
            let arrived = self.inbound.arrived;
            self.inbound.arrived =
                member.on_further_contact(&self.settings, contact, now.instant, arrived, &mut self.rng);
            member.check_jump(&header, dseq, Some(&records))
        } else {
            if header.kind == Kind::Directed {
                self.counters.discard_unknown_peer += 1;
                return;
            }
            if self.defer_until_announced(now, source, &header, &records)
                || !self.find_or_add_member(now, source.from, header.epoch, contact, None)
            {
                return;
            }
            let Some(member) = self.members.get_mut(&header.epoch) else { return };
            member.check_jump(&header, dseq, Some(&records))
        };
        match jump {
            JumpVerdict::Quarantined => self.counters.discard_quarantined += 1,
            JumpVerdict::Plausible(earlier) => {
                if let Some((earlier, records)) = earlier {
                    self.accept(now, earlier, records);
                }
                self.accept(now, header, records);
            }
        }
    }

    /// Handles a data datagram of a known member.
    pub(super) fn accept(&mut self, now: ClockReading, header: Header, records: Vec<Record>) {
        let (epoch, dseq) = (header.epoch, Dseq(header.number));
        let directed = header.kind == Kind::Directed;
        let member = self.members.get(&epoch);
        let is_after_bye =
            member.is_some_and(|m| !directed && m.state == MemberState::Left && m.bcast.ledger().high() < dseq);
        let is_back = member.is_some_and(|m| matches!(m.state, MemberState::Silent | MemberState::Crashed));
        let has_live = member.is_some_and(|m| !directed && m.live.is_some());
        if is_after_bye {
            self.reopen(now, epoch);
        }
        if is_back {
            // The notification precedes all deliveries of its messages.
            self.notify_discovery(epoch, None);
        }
        if has_live {
            self.accept_side(now, Side::Live, header, records.clone());
        }
        let side = if directed { Side::Ptp } else { Side::Bcast };
        let stamp = records.iter().rev().find_map(Record::stamp);
        let counter = match self.accept_side(now, side, header, records) {
            // The stamp of a resent datagram is old.
            Some(Acceptance::Fresh) => {
                if let (Some(stamp), Some(member)) = (stamp, self.members.get_mut(&epoch)) {
                    member.clock_offset = Some(ClockOffset::new(now, stamp.time));
                }
                return;
            }
            Some(Acceptance::Filled | Acceptance::Repaired) => return,
            Some(Acceptance::BeforeBaseline) => &mut self.counters.discard_before_baseline,
            Some(Acceptance::Duplicate) => &mut self.counters.discard_duplicate,
            Some(Acceptance::Late) => &mut self.counters.discard_late,
            Some(Acceptance::Contradiction) | None => &mut self.counters.discard_contradiction,
        };
        *counter += 1;
    }

    /// Passes a data datagram to one side of a member, and settles gaps early if that side then buffers too many bytes.
    /// Returns its acceptance, or `None` if there is no such side.
    fn accept_side(
        &mut self,
        now: ClockReading,
        side: Side,
        header: Header,
        records: Vec<Record>,
    ) -> Option<Acceptance> {
        let (acceptance, buffered_bytes) = self.with_stream(now, header.epoch, side, |recv, ctx, out| {
            let acceptance = recv.on_datagram(ctx, Dseq(header.number), header.count, records, out);
            (acceptance, recv.buffered_bytes())
        })?;
        let is_new = matches!(acceptance, Acceptance::Fresh | Acceptance::Filled | Acceptance::Repaired);
        // A directed datagram shows nothing of the multicast stream.
        if is_new && side == Side::Bcast {
            self.on_fresh_data(now, header.epoch);
        }
        if 0 < buffered_bytes && (is_new || side == Side::Live) {
            self.limit_buffered(now, header.epoch, side);
        }
        Some(acceptance)
    }

    /// Handles a new datagram of a member's multicast stream: a sign of life, and progress to report.
    fn on_fresh_data(&mut self, now: ClockReading, epoch: Epoch) {
        let (receivers, wants_repair) = (self.members.len(), self.wants_repair());
        let Some(member) = self.members.get_mut(&epoch) else { return };
        // Rule: silence
        let is_report_due = if member.on_sign_of_life(now.instant) {
            self.on_return(now, epoch);
            let Some(member) = self.members.get_mut(&epoch) else { return };
            member.record_awaited(now.instant, wants_repair, receivers)
        } else {
            member.record_awaited(now.instant, wants_repair, receivers)
        };
        if is_report_due {
            self.send_receiver_report(now.instant, epoch);
        }
    }

    /// Settles gaps early while too many bytes wait for them (A7).
    pub(super) fn limit_buffered(&mut self, now: ClockReading, epoch: Epoch, side: Side) {
        let of_side = |member: &mut Member| member.side(side).map_or(0, |(recv, ..)| recv.buffered_bytes());
        while self.members.get_mut(&epoch).map_or(0, of_side) != 0 {
            if self.members.values().map(Member::buffered_bytes).sum::<usize>() <= self.settings.hold_bytes_max {
                return;
            }
            self.with_stream(now, epoch, side, |recv, ctx, out| recv.overflow(ctx, out));
        }
    }

    /// Reopens an epoch whose BYE was forged, as a later datagram of it shows. Missing data in between is awaited like
    /// any other gap.
    fn reopen(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        self.counters.forged_byes += 1;
        (member.state, member.ended) = (MemberState::Up, None);
        member.on_contact(now.instant);
        member.last_heard = now.instant;
        self.update_pace(now.instant);
        self.on_present(epoch);
        self.notify_member_event(epoch, MemberEvent::Resumed);
        self.notify_discovery(epoch, None);
    }

    /// Handles a sign of life of a member.
    fn on_sign_of_life(&mut self, now: ClockReading, epoch: Epoch) {
        if self.members.get_mut(&epoch).is_some_and(|member| member.on_sign_of_life(now.instant)) {
            self.on_return(now, epoch);
        }
    }

    /// Handles the return of a member that was not up, or was taken for a former run of another.
    fn on_return(&mut self, now: ClockReading, epoch: Epoch) {
        self.remote_interest.set_reachable(epoch, true);
        let Some(member) = self.members.get_mut(&epoch) else { return };
        if matches!(member.state, MemberState::Silent | MemberState::Crashed) {
            if member.state == MemberState::Crashed {
                let deadline = now.instant + self.settings.reliability;
                member.sides_mut().for_each(|recv| recv.resume(now.instant, deadline));
            }
            member.state = MemberState::Up;
            member.ended = None;
            // The member counts as a receiver again.
            self.update_pace(now.instant);
            self.on_present(epoch);
            self.notify_member_event(epoch, MemberEvent::Resumed);
            self.notify_discovery(epoch, None);
        }
    }

    pub(super) fn on_control(&mut self, now: ClockReading, source: DatagramSource, header: &Header, record: Record) {
        if matches!(
            record,
            Record::ResendRequest(_)
                | Record::Manifest(_)
                | Record::Expired(_)
                | Record::ReceiverReport(_)
                | Record::Interest(_)
                | Record::InterestRequest(_)
        ) {
            self.record_uptime(now, source.from, header);
            self.send_hello_to_unknown(now, source, header, &record);
        }
        match record {
            Record::ResendRequest(request) => self.on_resend_request(now, source, header, &request),
            Record::Manifest(manifest) => self.on_manifest(now, source, header, manifest),
            Record::Expired(expired) => self.on_expired(now, source, header, &expired),
            Record::Interest(interest) => self.on_interest_record(now, source, header, interest),
            Record::InterestRequest(request) => self.on_interest_request(now, source, header, request),
            Record::ReceiverReport(report) => self.on_receiver_report(now, source, header, report),
            Record::Heartbeat(announce) => {
                self.on_announcement(now, source, header, &announce, AnnouncementKind::Heartbeat)
            }
            Record::Hello(hello) => {
                let Hello { cookie, wants_reply, announce } = *hello;
                self.on_announcement(now, source, header, &announce, AnnouncementKind::Hello { cookie, wants_reply });
            }
            Record::Bye(announce) => self.on_announcement(now, source, header, &announce, AnnouncementKind::Bye),
            _ => {}
        }
    }

    /// Handles the announcement of a peer.
    fn on_announcement(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        announce: &PeerAnnouncement,
        kind: AnnouncementKind,
    ) {
        let is_bye = kind == AnnouncementKind::Bye;
        let epoch = header.epoch;
        if let AnnouncementKind::Hello { cookie, wants_reply: false } = kind
            && source.path == Path::Unicast
            && cookie != self.announcements.cookie
        {
            self.counters.discard_unknown_peer += 1;
            return;
        }
        if !self.find_or_add_member(now, source.from, epoch, Contact::of_announce(header, announce), Some(announce)) {
            return;
        }
        // After its BYE an epoch sends no other announcement.
        let is_after_bye =
            |member: &Member| !is_bye && member.state == MemberState::Left && member.control.number() < header.number;
        if self.members.get(&epoch).is_some_and(is_after_bye) {
            self.reopen(now, epoch);
        }
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let has_left = member.state == MemberState::Left;
        // A later BYE may be the one that announces the directed stream.
        if header.number <= member.control.number() || (has_left && !is_bye) {
            self.counters.discard_stale_control += 1;
            if self.settings.mutants.is(Mutant::StaleHeartbeatRefreshes) {
                self.on_sign_of_life(now, epoch);
            }
            return;
        }
        member.control.accept(now.instant, header.number, header.uptime_ms);
        member.proof.has_unicast_contact |= source.path == Path::Unicast;
        member.on_announce(announce);
        let is_report_due = source.path == Path::Multicast
            && is_plausible(member.bcast.ledger().high(), announce.high)
            && member.receive_progress.on_control(now.instant, announce.high);
        let heard_before = member.last_heard;
        if source.path == Path::Unicast && announce.directed_receiver == Some(self.origin.epoch) {
            if let Some(report) = &announce.report {
                member.on_report(**report, now.wall);
            }
            member.liveness.on_control(now.instant, member.heartbeat, announce.high);
            self.on_queue_report(epoch, announce);
            self.on_proof(now, epoch, announce);
        }
        if is_report_due {
            self.schedule_report_now(now.instant, epoch);
        }
        self.on_sign_of_life(now, epoch);
        // Any member of a keyed group can seal a multicast in the name of another one.
        let is_for_this = source.path == Path::Unicast && announce.directed_receiver == Some(self.origin.epoch);
        self.on_interest_announcement(now, header, announce, is_for_this);
        self.supersede_former_runs(epoch);
        self.end_departed_members(now, epoch, heard_before);
        self.report_duplicate_names(now, epoch);
        self.check_announced_name(epoch);
        self.on_high(now, header, announce, is_for_this);
        match kind {
            AnnouncementKind::Hello { cookie, wants_reply: true } => self.answer(now, epoch, cookie, source.bytes),
            AnnouncementKind::Bye if !has_left => self.end(now, epoch, Reason::PublisherGone),
            _ => {}
        }
    }

    /// Handles the highest datagrams of an announcement. If it is for this peer, it states those of the directed stream.
    pub(super) fn on_high(
        &mut self,
        now: ClockReading,
        header: &Header,
        announce: &PeerAnnouncement,
        is_for_this: bool,
    ) {
        match self.members.get_mut(&header.epoch).map(|member| member.check_jump(header, announce.high, None)) {
            Some(JumpVerdict::Plausible(None)) => {}
            Some(JumpVerdict::Plausible(Some((earlier, records)))) => self.accept(now, earlier, records),
            Some(JumpVerdict::Quarantined) => {
                self.counters.discard_quarantined += 1;
                return;
            }
            None => return,
        }
        let (epoch, high, count) = (header.epoch, announce.high, header.count);
        self.with_stream(now, epoch, Side::Live, |recv, ctx, out| recv.on_control(ctx, high, count, out));
        let fits = self.with_stream(now, epoch, Side::Bcast, |recv, ctx, out| recv.on_control(ctx, high, count, out));
        // An announcement of the directed stream to a former run of this peer, or to one at its address, does not
        // concern this run.
        let (high, count) = (announce.directed_high, announce.directed_count);
        let known = self.members.get(&epoch).map_or(Dseq(0), |member| member.ptp.ledger().high());
        let directed_fits = !is_for_this
            || is_plausible(known, high)
                && self.with_stream(now, epoch, Side::Ptp, |recv, ctx, out| recv.on_control(ctx, high, count, out))
                    == Some(true);
        if let Some(member) = self.members.get_mut(&epoch) {
            member.receive_progress.rewind_to(member.bcast.ledger().high());
        }
        if fits != Some(true) || !directed_fits {
            self.counters.discard_contradiction += 1;
        }
    }

    /// Answers a HELLO, never with more bytes than it had, and only to the address it came from.
    pub(super) fn answer(&mut self, now: ClockReading, epoch: Epoch, cookie: u64, bytes_max: usize) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let lately = member.hello_answered_at.is_some_and(|at| now.instant.since(at) < ANSWER_INTERVAL);
        if self.stop.is_none() && HELLO_BYTES <= bytes_max && !lately && self.may_send_to(epoch) {
            let Some(member) = self.members.get_mut(&epoch) else { return };
            member.hello_answered_at = Some(now.instant);
            self.send_announcement(now, AnnouncementKind::Hello { cookie, wants_reply: false }, Some(epoch), 0);
        }
    }

    /// Excludes former runs of the peer of this epoch from queue choices and receiver counts, without touching their
    /// streams. A run that is heard again counts again. A forged name therefore costs an honest peer its turn only
    /// until its next datagram.
    fn supersede_former_runs(&mut self, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let others = self.members.values().filter(|other| other.epoch() != epoch && other.is_reachable());
        let departed: Vec<Epoch> = others.filter(|other| member.follows(other.run())).map(Member::epoch).collect();
        for departed in departed {
            if let Some(member) = self.members.get_mut(&departed) {
                member.is_superseded = true;
            }
            self.remote_interest.set_reachable(departed, false);
            self.expire_assignments(departed);
        }
    }

    /// Ends earlier runs at the address of a peer that sent an announcement, because the same address means the same
    /// socket (R1). A run is kept if it was heard at or after `heard_before`, or within one and a half heartbeat
    /// intervals. Long-delayed datagrams make an earlier run look like the later one.
    fn end_departed_members(&mut self, now: ClockReading, epoch: Epoch, heard_before: Instant) {
        // Rule: epoch
        let Some(member) = self.members.get(&epoch).filter(|_| heard_before < now.instant) else { return };
        let departed_members: Vec<Epoch> = self
            .members
            .values()
            .filter(|other| other.epoch() != epoch && other.address == member.address && other.is_alive())
            .filter(|other| other.started <= member.started)
            .filter(|other| other.last_heard < heard_before && other.alive_until() < now.instant)
            .map(Member::epoch)
            .collect();
        departed_members.into_iter().for_each(|departed| self.end(now, departed, Reason::Crashed));
    }

    /// Handles other epochs with the name of this one: former runs, or a second peer of that name.
    pub(super) fn report_duplicate_names(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let (name, started) = (member.publisher.name.clone(), member.started);
        let namesakes: Vec<Epoch> = self
            .members
            .values()
            .filter(|other| other.epoch() != epoch && other.is_alive() && other.publisher.name == name)
            .map(Member::epoch)
            .collect();
        for other in namesakes {
            let (Some(a), Some(b)) = (self.members.get(&epoch), self.members.get(&other)) else { continue };
            let duplicate = a.is_duplicate_of(b) && !a.duplicate_name;
            if b.started <= started && b.address != a.address && !b.has_successor {
                let silent = b.state == MemberState::Silent;
                self.members.get_mut(&other).expect("found above").has_successor = true;
                if silent {
                    self.end(now, other, Reason::Crashed);
                }
            }
            if duplicate {
                self.on_duplicate(epoch);
                self.on_duplicate(other);
            }
        }
        let mine = name.as_ref() == Some(&self.settings.name);
        let lasting = self
            .members
            .get(&epoch)
            .is_some_and(|member| !member.duplicate_name && DUPLICATE_AFTER <= now.instant.since(member.first_heard));
        if mine && lasting {
            self.on_duplicate(epoch);
        }
    }

    pub(super) fn on_duplicate(&mut self, epoch: Epoch) {
        if let Some(member) = self.members.get_mut(&epoch)
            && !member.duplicate_name
        {
            member.duplicate_name = true;
            self.notify_member_event(epoch, MemberEvent::DuplicateName);
        }
    }
}

/// Origin of a datagram.
#[derive(Clone, Copy)]
pub(super) struct DatagramSource {
    pub(super) from: SocketAddr,
    pub(super) path: Path,
    pub(super) bytes: usize,
}
