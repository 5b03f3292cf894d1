//! Announcements of this peer: HELLO, heartbeats, BYE, and the new epoch of a peer whose frames ran out or whose
//! address changed.

use super::{BYES, Peer, inbox_of};
use crate::message::{Dseq, Epoch, Reason};
use crate::proto::address_proof::HELLO_BYTES;
use crate::proto::effect::{Effect, EpochChange};
use crate::proto::members::{Member, Side};
use crate::proto::mutant::Mutant;
use crate::proto::pace::PacedReceiver;
use crate::proto::path_probe::PathProbe;
use crate::proto::recv::StreamOutcome;
use crate::proto::send::{AnnouncementKind, Control, HeartbeatTimer, Origin};
use crate::time::{ClockReading, Instant};
use crate::wire::PeerAnnouncement;
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

/// Number of the first announcements after the start that are HELLOs.
const HELLOS: u8 = 4;

/// Schedule and numbers of the announcements.
pub(super) struct Announcements {
    /// Numbers of the control datagrams.
    pub(super) control: Control,
    /// Heartbeats of the multicast stream.
    pub(super) heartbeat_timer: HeartbeatTimer,
    /// Number of the next announcements that are HELLOs.
    hellos: u8,
    /// Cookie that the answers to the HELLOs carry.
    pub(super) cookie: u64,
}

impl Announcements {
    /// Creates the schedule of a peer that starts now.
    pub(super) fn new(cookie: u64, heartbeat: Duration, now: Instant) -> Announcements {
        let heartbeat_timer = HeartbeatTimer::starting(now, heartbeat);
        Announcements { control: Control::new(), heartbeat_timer, hellos: HELLOS, cookie }
    }

    /// Begins the announcements of a new epoch.
    fn begin_epoch(&mut self, heartbeat: Duration, now: Instant) {
        *self = Announcements::new(self.cookie, heartbeat, now);
    }

    /// Returns whether no HELLO was sent yet.
    fn is_first(&self) -> bool {
        self.hellos == HELLOS
    }

    /// Returns whether the next announcement is a HELLO, and counts it.
    fn take_hello(&mut self) -> bool {
        let is_hello = 0 < self.hellos;
        self.hellos = self.hellos.saturating_sub(1);
        is_hello
    }
}

impl Peer {
    /// Returns whether one more datagram may be sent to the address of a member, and spends the credit for it.
    pub(super) fn may_send_to(&mut self, epoch: Epoch) -> bool {
        let peers = self.members.len() as u64;
        self.members.get_mut(&epoch).is_some_and(|member| member.proof.spend_credit(peers, &mut self.rng))
    }

    /// Sends an announcement to the group, or to one member, padded to `bytes`.
    pub(super) fn send_announcement(
        &mut self,
        now: ClockReading,
        kind: AnnouncementKind,
        to: Option<Epoch>,
        bytes: usize,
    ) {
        if let Some(epoch) = to {
            self.seal_returned(now, epoch);
        }
        let address = to.and_then(|epoch| self.members.get(&epoch)).map(|member| member.address);
        let datagram = self.announcement_datagram(now, kind, to, bytes);
        self.send(address, datagram);
    }

    /// Seals the directed datagram to a member before an announcement to it. A message counts as returned in the
    /// announcement, which must therefore cover its datagram. Otherwise the member would not miss that datagram if this
    /// peer crashed now.
    fn seal_returned(&mut self, now: ClockReading, to: Epoch) {
        if self.interest.has_had_queues() {
            self.seal_directed(now, to);
        }
    }

    /// Sends a heartbeat with a token of its own to a member, padded to a size.
    pub(super) fn send_probe(&mut self, now: ClockReading, PathProbe { to, token, bytes }: PathProbe) {
        self.seal_returned(now, to);
        let address = self.members.get(&to).map(|member| member.address);
        if address.is_some() {
            let kind = AnnouncementKind::Heartbeat;
            let datagram = self.announcement_with_token(now, kind, Some(to), Some(token), bytes);
            self.send(address, datagram);
        }
    }

    pub(super) fn announcement_datagram(
        &mut self,
        now: ClockReading,
        kind: AnnouncementKind,
        to: Option<Epoch>,
        bytes: usize,
    ) -> Bytes {
        let token = to
            .and_then(|epoch| self.members.get_mut(&epoch))
            .map(|member| member.proof.next_token(now.instant, &mut self.rng));
        self.announcement_with_token(now, kind, to, token, bytes)
    }

    /// Creates an announcement with this token for the member.
    pub(super) fn announcement_with_token(
        &mut self,
        now: ClockReading,
        kind: AnnouncementKind,
        to: Option<Epoch>,
        token: Option<u64>,
        bytes: usize,
    ) -> Bytes {
        // Any other announcement would revoke the BYE (W54, W56).
        let kind = if self.has_sent_bye() { AnnouncementKind::Bye } else { kind };
        let member = to.and_then(|epoch| self.members.get(&epoch));
        let (high, count) = self.outbound.sent();
        let mut announced = high;
        match kind {
            AnnouncementKind::Heartbeat if self.settings.mutants.is(Mutant::HighTooHigh) => announced = high.next(),
            // Rule: pace
            AnnouncementKind::Heartbeat if self.settings.mutants.is(Mutant::QueuedAnnounced) => {
                announced = self.outbound.multicast.high()
            }
            AnnouncementKind::Bye if self.settings.mutants.is(Mutant::ByeShort) => {
                announced = Dseq(high.0.saturating_sub(1))
            }
            _ => {}
        }
        let announce = PeerAnnouncement {
            high: announced,
            trail: self.outbound.ring.trail(),
            manifest_trail: self.outbound.ring.manifest_trail(),
            heartbeat: self.settings.heartbeat,
            pub_window_time: self.settings.pub_window.time,
            directed_high: member.map_or(Dseq(0), |member| member.directed.high()),
            directed_count: member.map_or(0, |member| member.directed.count()),
            directed_receiver: member.map(Member::epoch),
            name: self.settings.name.clone(),
            token,
            echo: member.and_then(|member| member.proof.echo),
            interest: Some(self.interest_announcement(member)),
            interest_known: to.map(|epoch| self.remote_interest.report_complete(epoch)),
            queue: member.and_then(|member| self.queue_report(member)),
            report: member
                .filter(|_| kind == AnnouncementKind::Heartbeat && !self.settings.mutants.is(Mutant::SilentReport))
                .map(|member| Box::new(member.own_report())),
        };
        let record = kind.record(announce);
        self.announcements.control.datagram(now.instant, &self.origin, count, &record, bytes)
    }

    /// Requests an announcement from an address whose peer may be unknown.
    pub(super) fn send_hello(&mut self, now: ClockReading, address: SocketAddr) {
        if self.has_sent_bye() {
            return;
        }
        let hello = AnnouncementKind::Hello { cookie: self.announcements.cookie, wants_reply: true };
        let datagram = self.announcement_datagram(now, hello, None, HELLO_BYTES);
        self.send(Some(address), datagram);
    }

    pub(super) fn send_due_announcements(&mut self, now: ClockReading) {
        let silent = self.settings.mutants.is(Mutant::NoHeartbeat);
        // A stopping peer continues its heartbeats while datagrams are queued.
        let is_over = self.stop.is_some() && !self.has_queued();
        if !is_over && self.announcements.heartbeat_timer.take_due(now.instant) {
            if self.announcements.is_first() {
                // Peers accept the entries only after the first HELLO.
                self.interest.local_interest().reannounce();
                self.discovery.on_first_hello(now.instant);
            }
            if self.announcements.take_hello() {
                let wants_reply = self.members.is_empty();
                let hello = AnnouncementKind::Hello { cookie: self.announcements.cookie, wants_reply };
                self.send_announcement(now, hello, None, if wants_reply { HELLO_BYTES } else { 0 });
            } else if !silent {
                self.send_announcement(now, AnnouncementKind::Heartbeat, None, 0);
            }
        }
        let mut due = self.due_members(now.instant);
        due.retain(|epoch| {
            let member = self.members.get_mut(epoch).filter(|member| member.is_alive());
            member.is_some_and(|member| member.heartbeat_timer.take_due(now.instant))
        });
        if silent || is_over {
            return;
        }
        for epoch in due {
            if self.may_send_to(epoch) {
                self.send_announcement(now, AnnouncementKind::Heartbeat, Some(epoch), 0);
            }
        }
    }

    /// Ends this epoch in order and begins a new one.
    pub(super) fn begin_epoch(&mut self, now: ClockReading, change: EpochChange) {
        self.flush(now);
        self.flush_queued(now);
        // Directed streams end with the epoch: outstanding data of those to this peer is settled now.
        for epoch in self.members.epochs().to_vec() {
            let mut services = Vec::new();
            self.with_stream(now, epoch, Side::Ptp, |recv, ctx, out| {
                recv.end(ctx, Reason::PublisherGone, out);
                services.extend(out.extract_if(.., |outcome| matches!(outcome, StreamOutcome::Service(_))));
            });
            // These messages may cause answers to clients, which can no longer be published in this epoch.
            self.questions.postpone(epoch, services);
        }
        self.expire_all_assignments();
        for _ in 0..BYES {
            self.send_announcement(now, AnnouncementKind::Bye, None, 0);
        }
        if let Some(forgotten) = self.admission.departed.remember_own(self.origin.epoch) {
            self.discard_absent(forgotten);
        }
        let epoch = Epoch::new(self.rng.next_u64() | 1).expect("not zero");
        self.origin = Origin { epoch, started: now.instant, ..self.origin };
        self.publication.begin_epoch(&self.settings, &mut self.rng);
        self.outbound.begin_epoch(&self.settings, now.instant);
        self.path_probes.clear();
        self.announcements.begin_epoch(self.settings.heartbeat, now.instant);
        self.inbox = inbox_of(epoch);
        self.suppression.on_own_epoch(now.instant, self.settings.heartbeat);
        for member in self.members.values_mut() {
            member.on_own_epoch(&self.settings, now.instant, &mut self.rng);
            member.receiver = PacedReceiver::new(now.instant, &mut self.outbound.pacer);
            if member.proof.is_proven {
                member.receiver.on_proven();
            }
        }
        self.update_pace(now.instant);
        self.admission.departed.on_new_epoch();
        self.effects.push_back(Effect::NewEpoch { epoch, change });
    }
}
