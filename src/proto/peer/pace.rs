//! Pacing: the schedule of datagrams for the group, and this peer's reports to publishers.

use super::Peer;
use super::receive::DatagramSource;
use crate::message::{DeliveryMode, Epoch};
use crate::proto::effect::MemberEvent;
use crate::proto::members::Member;
use crate::proto::mutant::Mutant;
use crate::proto::pace::WindowChange;
use crate::proto::send::SealedDatagram;
use crate::proto::stats::MemberState;
use crate::time::{ClockReading, Instant};
use crate::wire::{Header, ReceiverReport, Record};

impl Peer {
    /// Returns whether publishers are backpressured: the sealed datagrams fill the pacer, because of receivers or a
    /// rate. The peer still accepts messages.
    pub fn is_publish_blocked(&self) -> bool {
        self.outbound.pacer.is_full()
    }

    /// Returns whether sealed datagrams are queued.
    pub fn has_queued(&self) -> bool {
        !self.outbound.pacer.is_empty()
    }

    /// Sends sealed datagrams to the group, or queues them until they may leave.
    pub(super) fn send_paced(&mut self, now: ClockReading) {
        let mut sealed = std::mem::take(&mut self.outbound.sealed);
        // Only the first of them was open before.
        if let Some(first) = sealed.first() {
            self.publication.history.attach(&first.bytes);
        }
        for datagram in sealed.drain(..) {
            if self.outbound.pacer.is_empty() && self.outbound.pacer.is_open(now.instant) {
                self.transmit(now, datagram);
            } else {
                self.outbound.pacer.enqueue(now.instant, datagram);
            }
        }
        self.outbound.sealed = sealed;
    }

    /// Sends the queued datagrams that may leave now.
    pub(super) fn send_queued(&mut self, now: ClockReading) {
        while !self.outbound.pacer.is_empty() && self.outbound.pacer.is_open(now.instant) {
            self.send_next_queued(now);
        }
    }

    /// Sends all queued datagrams, because there is no more time to wait.
    pub(super) fn flush_queued(&mut self, now: ClockReading) {
        while !self.outbound.pacer.is_empty() {
            self.send_next_queued(now);
        }
    }

    fn send_next_queued(&mut self, now: ClockReading) {
        if let Some(datagram) = self.outbound.pacer.pop() {
            self.transmit(now, datagram);
        }
    }

    fn transmit(&mut self, now: ClockReading, SealedDatagram { dseq, before, bytes }: SealedDatagram) {
        self.announcements.heartbeat_timer.on_datagram(now.instant);
        self.outbound.ring.push(now.instant, dseq, before, &bytes);
        self.outbound.resends.on_sent(now.instant, bytes.len());
        self.outbound.pacer.on_sent(now.instant, dseq, bytes.len());
        self.send(None, bytes);
    }

    /// Recomputes the allowance after a change of the receivers or of their reports.
    pub(super) fn update_pace(&mut self, now: Instant) {
        let ignores_reports = self.settings.mutants.is(Mutant::PacerIgnoresReports);
        let counts = |member: &&Member| member.state == MemberState::Up && !ignores_reports;
        self.outbound.pacer.update_allowance(now, self.members.values().filter(counts).map(|member| &member.receiver));
    }

    /// Handles a receiver's report of its progress and its window.
    pub(super) fn on_receiver_report(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        report: ReceiverReport,
    ) {
        let own = self.origin.epoch;
        // A receiver can only have read datagrams that were sent.
        let taken = report.taken.min(self.outbound.sent().0);
        let stays_excluded = self.settings.mutants.is(Mutant::ExcludedForever);
        let epoch = header.epoch;
        if self.member_at(source, header).is_none() {
            return;
        }
        if report.epoch != own {
            self.counters.discard_old_epoch += 1;
            return;
        }
        self.counters.reports_received += 1;
        let Some(member) = self.members.get_mut(&epoch) else { return };
        if stays_excluded && member.receiver.exclusion().is_some() {
            return;
        }
        let ignores_requests = self.settings.mutants.is(Mutant::PacerIgnoresRequests);
        let report = ReceiverReport { taken, awaited: report.awaited.filter(|_| !ignores_requests), ..report };
        let (number, uptime_ms) = (header.number, header.uptime_ms);
        let effect = self.outbound.pacer.on_report(now.instant, &mut member.receiver, number, uptime_ms, report);
        let Some(effect) = effect else { return };
        member.proof.earn_credit();
        if effect.is_back && member.receiver.exclusion_count().is_power_of_two() {
            self.notify_member_event(epoch, MemberEvent::CaughtUp);
        }
        if effect.affects_allowance {
            self.update_pace(now.instant);
            self.send_queued(now);
        }
        // Flow control waits for an unproven receiver only briefly (W133).
        let is_proven = self.members.get(&epoch).is_some_and(|member| member.proof.is_proven);
        if !is_proven && self.may_send_to(epoch) {
            self.send_early_heartbeat(now, epoch);
        }
    }

    /// Excludes receivers that have delayed this peer for too long from flow control, and sends the datagrams that may
    /// leave then.
    pub(super) fn on_pace_tick(&mut self, now: ClockReading) {
        if self.outbound.pacer.is_empty() {
            return;
        }
        let up = self.members.values().filter(|member| member.state == MemberState::Up);
        let lagging: Vec<Epoch> = up
            .filter(|member| self.outbound.pacer.is_lagging(now.instant, &member.receiver))
            .map(Member::epoch)
            .collect();
        for epoch in lagging {
            let Some(member) = self.members.get_mut(&epoch) else { continue };
            self.outbound.pacer.exclude(now.instant, &mut member.receiver);
            self.counters.flow_exclusions += 1;
            // The event is reported the first time, and then whenever the number of times is a power of two.
            if member.receiver.exclusion_count().is_power_of_two() {
                self.notify_member_event(epoch, MemberEvent::FlowExcluded);
            }
        }
        self.update_pace(now.instant);
        self.send_queued(now);
        self.outbound.pacer.on_tick(now.instant);
    }

    /// Schedules a report to a member after its datagrams were read from the group's receive buffer.
    pub(super) fn schedule_report_now(&mut self, now: Instant, epoch: Epoch) {
        let receivers = self.members.len();
        let Some(member) = self.members.get_mut(&epoch) else { return };
        member.receive_progress.schedule_report();
        // Ticks are rare under load, so a report that is due is sent at once.
        if member.receive_progress.deadline(receivers).is_some_and(|at| at <= now) {
            self.send_receiver_report(now, epoch);
        }
    }

    /// Sends a report to a publisher: the progress in its stream, and the window.
    pub(super) fn send_receiver_report(&mut self, now: Instant, epoch: Epoch) {
        match self.members.get_mut(&epoch) {
            Some(member) if !member.is_alive() => return member.receive_progress.cancel_report(),
            Some(_) => {}
            None => return,
        }
        let active = |member: &&Member| member.epoch() != epoch && member.receive_progress.is_active(now);
        // This peer's own multicasts come back to its own buffer.
        let sharers =
            1 + self.members.values().filter(active).count() + usize::from(self.outbound.pacer.is_active(now));
        let dropped = self.counters.kernel_drops;
        let wants_repair = self.wants_repair();
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let window = self.inbound.receive_window.advertise(now, sharers);
        let awaited = member.awaited().filter(|_| wants_repair);
        member.receive_progress.on_reported(now, window, self.inbound.receive_window.is_reduced(), awaited);
        let (address, taken, padded) = (member.address, member.receive_progress.high(), member.proof.padding());
        if !self.may_send_to(epoch) {
            return;
        }
        let report = ReceiverReport { epoch, taken, window, awaited, dropped };
        self.counters.reports_sent += 1;
        self.control_to(now, address, &Record::ReceiverReport(report), padded);
        if self.inbound.receive_window.on_sharers(sharers) {
            self.schedule_other_reports(now, epoch);
        }
    }

    /// Schedules a report to a new publisher if the window is smaller than the first window that it assumes.
    pub(super) fn on_publisher(&mut self, now: Instant, epoch: Epoch) {
        let is_tiny = self.inbound.receive_window.window(now, 1) < self.settings.pace.first_bytes;
        if is_tiny && let Some(member) = self.members.get_mut(&epoch) {
            member.receive_progress.schedule_report();
        }
    }

    /// Schedules reports of the smaller window to all active publishers except `but`.
    fn schedule_other_reports(&mut self, now: Instant, but: Epoch) {
        let others = self.members.values_mut().filter(|member| member.epoch() != but);
        others
            .filter(|member| member.receive_progress.is_active(now))
            .for_each(|member| member.receive_progress.schedule_report());
    }

    /// Shrinks the windows after the system dropped datagrams because the buffer was full.
    pub(super) fn on_overrun(&mut self, now: Instant) {
        if self.inbound.receive_window.on_overrun(now) {
            self.members
                .values_mut()
                .filter(|member| member.receive_progress.is_active(now))
                .for_each(|member| member.receive_progress.schedule_report());
        }
    }

    /// Updates the window from the fullness of local queues. Publishers that got a smaller window because of them may
    /// get a larger one.
    pub(super) fn on_backlog(&mut self, now: Instant, fullness: u64) {
        match self.inbound.receive_window.on_backlog(now, fullness) {
            WindowChange::None => {}
            WindowChange::Less => self.schedule_other_reports(now, self.origin.epoch),
            WindowChange::More => {
                self.members
                    .values_mut()
                    .filter(|member| member.receive_progress.is_reduced())
                    .for_each(|m| m.receive_progress.schedule_report());
            }
        }
    }

    /// Returns whether this peer wants missed datagrams resent.
    pub(super) fn wants_repair(&self) -> bool {
        self.settings.repairs() && !self.interest.is_empty(DeliveryMode::Repair)
    }

    /// Sends the reports that are due.
    pub(super) fn on_report_tick(&mut self, now: Instant) {
        let (receivers, wants_repair) = (self.members.len(), self.wants_repair());
        let awaited = |member: &Member| member.awaited().filter(|_| wants_repair);
        let is_changed = |member: &&Member| member.receive_progress.is_changed_by(now, awaited(member));
        let changed: Vec<Epoch> = self.members.values().filter(is_changed).map(Member::epoch).collect();
        for epoch in changed {
            if let Some(member) = self.members.get_mut(&epoch) {
                member.receive_progress.schedule_report();
            }
        }
        for epoch in self.due_members(now) {
            let deadline = self.members.get(&epoch).and_then(|member| member.receive_progress.deadline(receivers));
            if deadline.is_some_and(|at| at <= now) {
                self.send_receiver_report(now, epoch);
            }
        }
    }
}
