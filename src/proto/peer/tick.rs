//! Timers of the peer: settling of gaps, silence of members, expiry of members, the graceful stop.

use super::{BYES, LINGER_QUIET, Peer, STOP_DRAIN_TIME, Stop};
use crate::message::{Epoch, Reason};
use crate::proto::effect::{Effect, MemberEvent};
use crate::proto::members::{Member, Side};
use crate::proto::mutant::Mutant;
use crate::proto::send::{AnnouncementKind, HeartbeatTimer};
use crate::proto::stats::MemberState;
use crate::time::{ClockReading, Instant};

impl Peer {
    /// Ends an epoch that sent BYE or was given up.
    pub(super) fn end(&mut self, now: ClockReading, epoch: Epoch, reason: Reason) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        member.ended = Some(now.instant);
        if reason == Reason::PublisherGone {
            member.state = MemberState::Left;
            // The member may continue under a new epoch, of which nothing has been heard yet.
            self.suppression.suspend_until(now.instant + member.heartbeat);
            self.remote_interest.end(epoch);
            self.notify_member_event(epoch, MemberEvent::Left);
        } else {
            member.state = MemberState::Crashed;
            self.expire_assignments(epoch);
            let Some(member) = self.members.get_mut(&epoch) else { return };
            let deadline = now.instant + self.settings.recovery.grace;
            member.sides_mut().for_each(|recv| recv.expedite(deadline));
            self.retain_interest(epoch);
            self.notify_member_event(epoch, MemberEvent::Crashed);
            self.fail_questions(now, epoch);
            self.report_tail(now, epoch, Reason::Crashed);
        }
    }

    /// Settles all outstanding data of a member that will send no more.
    fn end_streams(&mut self, now: ClockReading, epoch: Epoch, reason: Reason) {
        for side in Side::ALL {
            self.with_stream(now, epoch, side, |recv, ctx, out| recv.end(ctx, reason, out));
        }
    }

    pub(super) fn on_tick(&mut self, now: ClockReading) {
        for (from, message) in self.questions.take_postponed() {
            self.on_service(now, from, message);
        }
        self.flush(now);
        self.outbound.ring.on_tick(now.instant);
        self.publication.history.on_tick(now.instant);
        self.on_pending_epoch_tick(now);
        self.publication.window.rotate_if_due(now.instant);
        for uid in self.inbound.window.rotate_if_due(now.instant) {
            let epoch = self.members.values().find(|member| member.has_uid(uid)).map(Member::epoch);
            if let Some(member) = epoch.and_then(|epoch| self.members.get_mut(&epoch)) {
                member.on_evicted(uid);
            }
        }
        self.inbound.expire_overrun(now.instant);
        for epoch in self.due_members(now.instant) {
            self.on_member_tick(now, epoch);
            self.send_resend_requests(now, epoch);
        }
        self.on_interest_tick(now);
        self.on_suppression_tick(now);
        self.on_question_tick(now);
        self.on_discovery_tick(now);
        self.fetch(now);
        self.answer_requests(now);
        self.on_path_tick(now);
        self.on_pace_tick(now);
        self.on_report_tick(now.instant);
        self.send_due_announcements(now);
        self.on_stop_tick(now);
        self.publish_advisories(now, None, false);
    }

    /// Returns the members that need attention now. A tick changes no others, whose state need not be in the
    /// processor's cache.
    pub(super) fn due_members(&mut self, now: Instant) -> Vec<Epoch> {
        let (forget, receivers) = (self.settings.forget, self.members.len());
        self.members.due(now, |member| member.next_due_with_interest(forget, receivers))
    }

    pub(super) fn on_member_tick(&mut self, now: ClockReading, epoch: Epoch) {
        let due = self.members.get(&epoch).and_then(Member::settle_deadline);
        if due.is_some_and(|deadline| deadline <= now.instant) {
            for side in Side::ALL {
                self.with_stream(now, epoch, side, |recv, ctx, out| recv.on_deadline(ctx, out));
            }
        }
        self.on_liveness_tick(now, epoch);
        self.expire_departed_assignments(now, epoch);
        let forget = self.settings.forget;
        let Some(member) = self.members.get_mut(&epoch) else { return };
        match member.state {
            MemberState::Up if member.silent_at() <= now.instant => {
                if self.settings.mutants.is(Mutant::ForgetOnSilence) {
                    member.forgotten = true;
                }
                if member.has_successor {
                    return self.end(now, epoch, Reason::Crashed);
                }
                // Rule: silence
                member.state = MemberState::Silent;
                self.remote_interest.set_reachable(epoch, false);
                self.expire_assignments(epoch);
                self.notify_member_event(epoch, MemberEvent::Silent);
                self.report_tail(now, epoch, Reason::Silent);
            }
            MemberState::Silent if member.last_heard + forget <= now.instant => self.end(now, epoch, Reason::Crashed),
            MemberState::Left | MemberState::Crashed
                if member.ended.unwrap_or(member.last_heard) + forget <= now.instant =>
            {
                self.expire_member(now, epoch);
            }
            _ => {}
        }
    }

    /// Removes a member that has ended, after publishing its advisories.
    pub(super) fn expire_member(&mut self, now: ClockReading, epoch: Epoch) {
        self.end_streams(now, epoch, Reason::PublisherGone);
        self.expire_assignments(epoch);
        self.publish_advisories(now, Some(epoch), true);
        self.outbound.resends.remove_requester(epoch);
        self.path_probes.remove(epoch);
        self.discovery.remove_member(epoch);
        self.evict_interest(epoch);
        if let Some(member) = self.members.remove(&epoch)
            && let Some(forgotten) = self.admission.departed.remember(member.departed())
        {
            self.admission.listening_since = now.instant;
            self.discard_absent(forgotten);
        }
    }

    pub(super) fn on_stop(&mut self, now: ClockReading) {
        if self.stop.is_some() {
            return;
        }
        self.flush(now);
        self.path_probes.clear();
        let heartbeat_timer = HeartbeatTimer::starting(now.instant, self.settings.heartbeat);
        let linger = self.settings.recovery.linger;
        // Queued datagrams must leave, and the peer must announce its end, while its operator still waits.
        let (hold_until, until) = (now.instant + (linger / 2).min(STOP_DRAIN_TIME), now.instant + linger);
        self.stop =
            Some(Stop { byes: BYES, heartbeat_timer, hold_until, quiet_since: now.instant, until, is_over: false });
        self.on_stop_tick(now);
    }

    pub(super) fn on_stop_tick(&mut self, now: ClockReading) {
        let Some(mut stop) = self.stop.filter(|stop| !stop.is_over) else { return };
        if self.has_queued() {
            if now.instant < stop.hold_until {
                return;
            }
            self.flush_queued(now);
        }
        if 0 < stop.byes && stop.heartbeat_timer.take_due(now.instant) {
            stop.byes -= 1;
            stop.quiet_since = now.instant;
            // Each peer first gets a BYE with its directed stream, then all get one with the multicast stream.
            let alive: Vec<Epoch> = self.members.values().filter(|m| m.is_alive()).map(Member::epoch).collect();
            for epoch in alive {
                if self.may_send_to(epoch) {
                    self.send_announcement(now, AnnouncementKind::Bye, Some(epoch), 0);
                }
            }
            self.send_announcement(now, AnnouncementKind::Bye, None, 0);
        }
        // Rule: linger
        stop.is_over = stop.byes == 0 && self.linger_deadline(&stop) <= now.instant;
        self.stop = Some(stop);
        if stop.is_over {
            self.publish_advisories(now, None, true);
            self.effects.push_back(Effect::Stopped);
        }
    }

    /// Returns the time until which a peer stays after its last BYE to answer requests, which is bounded.
    pub(super) fn linger_deadline(&self, stop: &Stop) -> Instant {
        if !self.has_receivers() {
            return stop.quiet_since;
        }
        (stop.quiet_since + LINGER_QUIET).min(stop.until)
    }
}
