//! Publish suppression (`interest: on`): a message that no peer subscribes to is not sent. This module decides when it
//! is certain that no peer subscribes, and whether suppressing peers know the subscriptions here (docs/wire.md 10.7).
//!
//! A suppressed message takes no number, so no receiver can miss it. No subscription may therefore be overlooked. A
//! peer that got a confirmation of its subscriptions is sent matching messages until its BYE, even if it is silent,
//! given up or removed.

use super::Peer;
use crate::message::{Epoch, PeerName};
use crate::proto::effect::MemberEvent;
use crate::proto::members::{Member, RunIdentity};
use crate::proto::mutant::Mutant;
use crate::proto::send::AnnouncementKind;
use crate::proto::stats::MemberState;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant, nanos};
use crate::wire::InterestAnnouncement;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Heartbeat intervals without suppression after the start. By then this peer and all others have heard each other.
const SUSPEND_HEARTBEATS: u32 = 5;
/// Average distance between the answers of many peers to one.
const ANSWER_SPREAD: Duration = Duration::from_micros(200);

/// State that decides whether this peer may suppress messages.
#[derive(Debug)]
pub(super) struct Suppression {
    /// Time before which this peer suppresses nothing.
    from: Instant,
    /// True if the subscriptions of all others are known; `None` if that was not determined since the last input.
    is_certain: Option<bool>,
    /// Peers that are absent and may return.
    absent: BTreeMap<Epoch, AbsentPeer>,
}

/// A peer that is absent and may return.
#[derive(Debug)]
struct AbsentPeer {
    name: Option<PeerName>,
    address: SocketAddr,
    started: Instant,
    last_heard: Instant,
}

impl AbsentPeer {
    fn of(member: &Member) -> AbsentPeer {
        let RunIdentity { name, address, started, last_heard } = member.run();
        AbsentPeer { name: name.cloned(), address, started, last_heard }
    }

    fn run(&self) -> RunIdentity<'_> {
        let AbsentPeer { name, address, started, last_heard } = self;
        RunIdentity { name: name.as_ref(), address: *address, started: *started, last_heard: *last_heard }
    }
}

impl Suppression {
    pub(super) fn new(now: Instant, heartbeat: Duration) -> Suppression {
        Suppression { from: now + heartbeat * SUSPEND_HEARTBEATS, is_certain: None, absent: BTreeMap::new() }
    }

    /// Discards the cached certainty after an input.
    pub(super) fn reset_certainty(&mut self) {
        self.is_certain = None;
    }

    /// Suspends suppression until a time.
    pub(super) fn suspend_until(&mut self, until: Instant) {
        self.from = self.from.max(until);
    }

    /// Suspends suppression for a new epoch, which no peer has heard of.
    pub(super) fn on_own_epoch(&mut self, now: Instant, heartbeat: Duration) {
        self.suspend_until(now + heartbeat * SUSPEND_HEARTBEATS);
    }
}

impl Peer {
    /// Returns the version of the last change of the subscriptions here, for [`Peer::confirmed`].
    pub fn subscriptions_version(&self) -> u64 {
        self.interest.version()
    }

    /// Returns the subscription version that every suppressing peer that is up has confirmed. Such a peer has sent all
    /// matching messages since. A peer that suppresses messages assumes the same of members that have not announced it.
    pub fn confirmed(&self) -> u64 {
        let version = self.interest.version();
        if self.settings.suppresses && !self.discovery.is_discovered {
            return 0;
        }
        let up = self.members.values().filter(|member| member.state == MemberState::Up);
        let known = up.map(|member| member.interest_sync.confirmed(version, self.settings.suppresses));
        known.min().unwrap_or(version)
    }

    /// Stops waiting for peers that have not confirmed this version of the subscriptions in time, until they confirm a
    /// later one.
    pub fn skip_confirmation(&mut self, version: u64) {
        let late = self.members.values_mut().filter(|member| member.interest_sync.is_awaited(version));
        late.for_each(|member| member.interest_sync.abandon());
    }

    /// Requests the confirmation of the subscriptions here from every peer that is up. Returns whether a confirmation
    /// is outstanding.
    pub fn flush_subscriptions(&mut self, now: ClockReading) -> bool {
        let version = self.interest.version();
        let up = self.members.values_mut().filter(|member| member.state == MemberState::Up);
        up.for_each(|member| member.interest_sync.flush(now.instant, version));
        self.is_flushing(version)
    }

    /// Returns whether a peer that is up has yet to confirm this version, after [`Peer::flush_subscriptions`].
    pub fn is_flushing(&self, version: u64) -> bool {
        let mut up = self.members.values().filter(|member| member.state == MemberState::Up);
        up.any(|member| member.interest_sync.is_flushing(version))
    }

    /// Ends the wait for peers that have not answered a flush in time.
    pub fn end_flush(&mut self) {
        self.members.values_mut().for_each(|member| member.interest_sync.end_flush());
    }

    /// Returns the part of an announcement of this peer that concerns subscriptions.
    pub(super) fn interest_announcement(&self, to: Option<&Member>) -> InterestAnnouncement {
        let version = self.interest.version();
        let wants_confirmation = to.is_some_and(|member| member.interest_sync.is_awaited(version));
        InterestAnnouncement { version, suppresses: self.settings.suppresses, wants_confirmation }
    }

    /// Handles a member's report of whether it suppresses messages. A report to this peer alone also confirms a version
    /// of the subscriptions here.
    pub(super) fn on_interest_sync(
        &mut self,
        now: ClockReading,
        epoch: Epoch,
        announcement: Option<InterestAnnouncement>,
        known: Option<u64>,
    ) {
        let version = self.interest.version();
        let Some(member) = self.members.get_mut(&epoch) else { return };
        member.interest_sync.on_control(announcement.is_some_and(|announcement| announcement.suppresses));
        match known {
            Some(known) if self.interest.local_interest().renew(known) => {
                member.interest_sync.on_forgery(now.instant);
                self.counters.interest_forgeries += 1;
                self.notify_member_event(epoch, MemberEvent::InterestForged);
            }
            Some(known) => {
                member.interest_sync.on_confirmed(known, version);
                if announcement.is_some_and(|announcement| announcement.wants_confirmation) {
                    self.schedule_confirmation(now, epoch);
                }
            }
            None => {}
        }
    }

    /// Schedules the confirmation to a member that its subscriptions are known, if they are and its address is proven.
    pub(super) fn schedule_confirmation(&mut self, now: ClockReading, epoch: Epoch) {
        // Rule: proof
        let is_proven = self.members.get(&epoch).is_some_and(|member| member.proof.is_proven);
        if !is_proven || !self.remote_interest.is_known(epoch) {
            return;
        }
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let spread = ANSWER_SPREAD.saturating_mul(members.saturating_sub(1));
        let delay = Duration::from_nanos(self.rng.below(nanos(spread) + 1));
        if let Some(member) = self.members.get_mut(&epoch) {
            member.interest_sync.schedule_answer(now.instant + delay);
        }
    }

    /// Requests outstanding confirmations, and sends the due confirmations to other peers.
    pub(super) fn on_suppression_tick(&mut self, now: ClockReading) {
        if self.stop.is_some() {
            return;
        }
        let version = self.interest.version();
        let up = self.members.values().filter(|member| member.state == MemberState::Up);
        let concerned = up.filter(|member| member.interest_sync.needs_tick(now.instant, version));
        let mut due: Vec<Epoch> = concerned.map(Member::epoch).collect();
        due.retain(|epoch| {
            self.members.get_mut(epoch).is_some_and(|member| member.interest_sync.take_due(now.instant, version))
        });
        for epoch in due {
            // Any host can forge a heartbeat of a peer that suppresses messages.
            if self.may_send_to(epoch) {
                self.send_announcement(now, AnnouncementKind::Heartbeat, Some(epoch), 0);
            }
        }
    }

    /// Returns the time of the next suppression tick that concerns no single member.
    pub(super) fn suppression_deadline(&self) -> Option<Instant> {
        self.discovery.discovery().filter(|_| self.settings.suppresses && self.stop.is_none())
    }

    /// Returns whether a message that matches no remote subscription is certainly unwanted and may be suppressed.
    pub(super) fn is_certain(&mut self, now: ClockReading) -> bool {
        if let Some(is_certain) = self.suppression.is_certain {
            return is_certain;
        }
        let is_certain = self.is_interest_complete(now);
        self.suppression.is_certain = Some(is_certain);
        is_certain
    }

    fn is_interest_complete(&self, now: ClockReading) -> bool {
        if self.settings.mutants.is(Mutant::SuppressUncertain) {
            return true;
        }
        let is_known = |member: &Member| match member.state {
            MemberState::Left => true,
            MemberState::Crashed => !self.remote_interest.is_below_reported(member.epoch()),
            MemberState::Up | MemberState::Silent => self.remote_interest.is_known(member.epoch()),
        };
        self.suppression.from <= now.instant
            && !self.admission.has_pending()
            && self.members.values().all(is_known)
            && self.remote_interest.absent().all(|epoch| !self.remote_interest.is_below_reported(epoch))
    }

    /// Returns whether a message on the subject matches a known remote subscription, or this peer suppresses nothing.
    pub(super) fn is_wanted(&mut self, subject: &Subject) -> bool {
        !self.settings.suppresses || self.remote_interest.is_wanted(subject)
    }

    /// Retains the subscriptions of a member that was given up without a BYE, unless a later run of it is present.
    pub(super) fn retain_interest(&mut self, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let absent = AbsentPeer::of(member);
        let is_followed = self
            .members
            .values()
            .any(|other| other.epoch() != epoch && other.is_alive() && other.follows(member.run()));
        // A member without a confirmation does not rely on this peer.
        let is_owed = self.settings.suppresses && self.remote_interest.was_reported(epoch);
        if !is_owed || is_followed || self.settings.mutants.is(Mutant::SuppressForgets) {
            return self.remote_interest.end(epoch);
        }
        self.suppression.absent.insert(epoch, absent);
        self.remote_interest.mark_absent(epoch);
    }

    /// Drops the subscriptions of a removed member, unless it is recorded as absent.
    pub(super) fn evict_interest(&mut self, epoch: Epoch) {
        if !self.suppression.absent.contains_key(&epoch) {
            self.remote_interest.end(epoch);
        }
    }

    /// Discards an absent epoch that has certainly ended, or that can be remembered no longer.
    pub(super) fn discard_absent(&mut self, epoch: Epoch) {
        if self.suppression.absent.remove(&epoch).is_some() {
            self.remote_interest.end(epoch);
        }
    }

    /// Handles the return of a member, which is no longer absent. Its former runs will not return.
    pub(super) fn on_present(&mut self, epoch: Epoch) {
        if self.suppression.absent.is_empty() {
            return;
        }
        if self.suppression.absent.remove(&epoch).is_some() {
            self.remote_interest.mark_present(epoch);
        }
        let Some(member) = self.members.get(&epoch) else { return };
        let absent = self.suppression.absent.iter();
        let departed: Vec<Epoch> =
            absent.filter(|(_, absent)| member.follows(absent.run())).map(|(epoch, _)| *epoch).collect();
        departed.into_iter().for_each(|departed| self.discard_absent(departed));
    }
}
