//! What time brings: gaps settled, silence, forgetting, the graceful stop.

use super::{BYES, OVERRUN_AGE_MAX, Peer, Stop};
use crate::message::{Epoch, Reason};
use crate::proto::effect::{Effect, MemberEvent};
use crate::proto::members::Member;
use crate::proto::mutant::Mutant;
use crate::proto::send::{Beat, Word};
use crate::proto::stats::MemberState;
use crate::time::Now;

impl Peer {
    /// An epoch ended: by BYE, or it was given up.
    pub(super) fn end(&mut self, now: Now, epoch: Epoch, reason: Reason) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        member.ended = Some(now.instant);
        if reason == Reason::PublisherGone {
            member.state = MemberState::Left;
            self.tell(epoch, MemberEvent::Left);
        } else {
            member.state = MemberState::Crashed;
            self.tell(epoch, MemberEvent::Crashed);
            self.report_tail(now, epoch, Reason::Crashed);
        }
    }

    pub(super) fn on_tick(&mut self, now: Now) {
        self.flush(now);
        self.pub_window.rotate_if_due(now.instant);
        for uid in self.sub_window.rotate_if_due(now.instant) {
            if let Some(member) = self.members.values_mut().find(|member| member.publisher.uid == uid) {
                member.bcast.on_evicted();
            }
        }
        if OVERRUN_AGE_MAX < now.instant.since(self.overrun.1) {
            self.overrun.0 = 0;
        }
        let epochs: Vec<Epoch> = self.members.keys().copied().collect();
        for epoch in epochs {
            self.on_member_tick(now, epoch);
        }
        self.beat(now);
        self.on_stop_tick(now);
        self.advise(now, None, false);
    }

    pub(super) fn on_member_tick(&mut self, now: Now, epoch: Epoch) {
        for directed in [false, true] {
            self.with_stream(now, epoch, directed, |recv, ctx, out| {
                if recv.deadline().is_some_and(|deadline| deadline <= ctx.now.instant) {
                    recv.on_deadline(ctx, out);
                }
            });
        }
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
                self.tell(epoch, MemberEvent::Silent);
                self.report_tail(now, epoch, Reason::Silent);
            }
            MemberState::Silent if member.last_heard + forget <= now.instant => self.end(now, epoch, Reason::Crashed),
            MemberState::Left | MemberState::Crashed
                if member.ended.unwrap_or(member.last_heard) + forget <= now.instant =>
            {
                self.forget(now, epoch);
            }
            _ => {}
        }
    }

    /// Lets go of a member that has ended; what was to be told of it is told first.
    pub(super) fn forget(&mut self, now: Now, epoch: Epoch) {
        self.advise(now, Some(epoch), true);
        if let Some(member) = self.members.remove(&epoch)
            && self.formers.remember(&member)
        {
            self.listening = now.instant;
        }
    }

    pub(super) fn on_stop(&mut self, now: Now) {
        if self.stop.is_some() {
            return;
        }
        self.flush(now);
        self.stop = Some(Stop { byes: BYES, beat: Beat::starting(now.instant, self.settings.heartbeat) });
        self.on_stop_tick(now);
    }

    pub(super) fn on_stop_tick(&mut self, now: Now) {
        let Some(stop) = &mut self.stop else { return };
        if stop.byes == 0 || !stop.beat.take_due(now.instant) {
            return;
        }
        stop.byes -= 1;
        let last = stop.byes == 0;
        // Each peer is told alone how much was directed to it, before all are told what was multicast.
        let alive: Vec<Epoch> = self.members.values().filter(|m| m.is_alive()).map(Member::epoch).collect();
        for epoch in alive {
            self.say(now, Word::Bye, Some(epoch), 0);
        }
        self.say(now, Word::Bye, None, 0);
        if last {
            self.advise(now, None, true);
            self.effects.push_back(Effect::Stopped);
        }
    }
}
