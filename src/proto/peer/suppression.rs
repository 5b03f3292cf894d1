//! What nobody wants is not sent (`interest: on`): when that is certain, and whether those that spare know what clients here
//! subscribe to (docs/wire.md 10.7).
//!
//! What is not sent takes no number, so nobody can miss it. For that no subscription may be overlooked: a peer that was told that
//! its own are known is sent what they match until it says BYE, also when it is silent, given up or forgotten meanwhile.

use super::Peer;
use crate::message::{Epoch, PeerName};
use crate::proto::members::Member;
use crate::proto::mutant::Mutant;
use crate::proto::send::AnnounceKind;
use crate::proto::stats::MemberState;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant, nanos};
use crate::wire::InterestWord;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A peer that has sent everything for so many heartbeat intervals has been heard by, and has heard, whoever is there.
const SUSPEND_HEARTBEATS: u32 = 5;
/// Answers of many peers to one are so far apart on average.
const ANSWER_SPREAD: Duration = Duration::from_micros(200);

/// What keeps this peer from sparing messages.
#[derive(Debug)]
pub(super) struct Suppression {
    /// Everything is sent before this.
    from: Instant,
    /// Whether all that others want is known, if that was found out since something happened.
    is_certain: Option<bool>,
    /// Who those were that are not there and may come back.
    lost: BTreeMap<Epoch, AbsentPeer>,
}

/// A peer that is not there and may come back.
#[derive(Debug)]
struct AbsentPeer {
    name: Option<PeerName>,
    address: SocketAddr,
    started: Instant,
    last_heard: Instant,
}

impl AbsentPeer {
    fn of(member: &Member) -> AbsentPeer {
        let Member { publisher, address, started, last_heard, .. } = member;
        AbsentPeer { name: publisher.name.clone(), address: *address, started: *started, last_heard: *last_heard }
    }

    /// Whether `other` is a later run of the same peer: heard first when this one was heard no more, at its address, or on its
    /// host under its name.
    fn is_followed_by(&self, other: &Member) -> bool {
        let is_namesake = other.address.ip() == self.address.ip() && other.publisher.name == self.name;
        (other.address == self.address || is_namesake)
            && self.started <= other.started
            && self.last_heard <= other.first_heard
    }
}

impl Suppression {
    pub(super) fn new(now: Instant, heartbeat: Duration) -> Suppression {
        Suppression { from: now + heartbeat * SUSPEND_HEARTBEATS, is_certain: None, lost: BTreeMap::new() }
    }

    /// Something happened.
    pub(super) fn reset_certainty(&mut self) {
        self.is_certain = None;
    }

    /// Everything is sent until then.
    pub(super) fn suspend_until(&mut self, until: Instant) {
        self.from = self.from.max(until);
    }

    /// A new epoch begins, of which nobody has heard.
    pub(super) fn on_own_epoch(&mut self, now: Instant, heartbeat: Duration) {
        self.suspend_until(now + heartbeat * SUSPEND_HEARTBEATS);
    }
}

impl Peer {
    /// The version of the last change of the subscriptions here, for [`Peer::confirmed`].
    pub fn subscriptions_version(&self) -> u64 {
        self.interest.version()
    }

    /// Up to which version every peer that is heard and spares messages knows the subscriptions here: what they match it has
    /// sent since. A peer that spares messages itself takes others to do so before it has heard of them.
    pub fn confirmed(&self) -> u64 {
        let version = self.interest.version();
        if self.settings.spares && !self.news.is_discovered {
            return 0;
        }
        let up = self.members.values().filter(|member| member.state == MemberState::Up);
        let known = up.map(|member| member.interest_sync.confirmed(version, self.settings.spares));
        known.min().unwrap_or(version)
    }

    /// Somebody has waited long enough for this version of the subscriptions to be confirmed: those that have not done so are not
    /// waited for until they confirm more.
    pub fn skip_confirmation(&mut self, version: u64) {
        let late = self.members.values_mut().filter(|member| member.interest_sync.is_awaited(version));
        late.for_each(|member| member.interest_sync.abandon());
    }

    /// Asks every peer that is up to say that it knows the subscriptions here. Returns whether one of them has yet to say so.
    pub fn flush_subscriptions(&mut self, now: ClockReading) -> bool {
        let version = self.interest.version();
        let up = self.members.values_mut().filter(|member| member.state == MemberState::Up);
        up.for_each(|member| member.interest_sync.flush(now.instant, version));
        self.is_flushing(version)
    }

    /// Returns whether a peer that is up has yet to say that it knows this version, after [`Peer::flush_subscriptions`].
    pub fn is_flushing(&self, version: u64) -> bool {
        let mut up = self.members.values().filter(|member| member.state == MemberState::Up);
        up.any(|member| member.interest_sync.is_flushing(version))
    }

    /// Ends the waiting for peers that have not answered a flush in time.
    pub fn end_flush(&mut self) {
        self.members.values_mut().for_each(|member| member.interest_sync.end_flush());
    }

    /// What an announcement of this peer says of subscriptions.
    pub(super) fn interest_word(&self, to: Option<&Member>) -> InterestWord {
        let version = self.interest.version();
        let asks = to.is_some_and(|member| member.interest_sync.is_awaited(version));
        InterestWord { version, spares: self.settings.spares, asks }
    }

    /// A member says whether it spares messages and, if the word is for this peer alone, up to which version it knows the
    /// subscriptions here.
    pub(super) fn on_interest_sync(
        &mut self,
        now: ClockReading,
        epoch: Epoch,
        word: Option<InterestWord>,
        known: Option<u64>,
    ) {
        let version = self.interest.version();
        let Some(member) = self.members.get_mut(&epoch) else { return };
        member.interest_sync.on_control(word.is_some_and(|word| word.spares));
        match known {
            // Nobody can know what was not told.
            Some(known) if version < known => self.counters.discard_contradiction += 1,
            Some(known) => {
                member.interest_sync.on_confirmed(known, version);
                if word.is_some_and(|word| word.asks) {
                    self.schedule_confirmation(now, epoch);
                }
            }
            None => {}
        }
    }

    /// A member is to be told that its subscriptions are known, if they are, and it is proven that it is where it says.
    pub(super) fn schedule_confirmation(&mut self, now: ClockReading, epoch: Epoch) {
        // Rule: proof
        let is_proven = self.members.get(&epoch).is_some_and(|member| member.is_proven);
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

    /// Asks those that spare messages and have yet to say that they know the subscriptions here, and tells others the same.
    pub(super) fn on_suppression_tick(&mut self, now: ClockReading) {
        if self.stop.is_some() {
            return;
        }
        let version = self.interest.version();
        let up = self.members.iter_mut().filter(|(_, member)| member.state == MemberState::Up);
        let due =
            up.filter_map(|(epoch, member)| member.interest_sync.take_due(now.instant, version).then_some(*epoch));
        for epoch in due.collect::<Vec<Epoch>>() {
            // Anybody can forge a heartbeat that says that its peer suppresses messages.
            if self.may_send_to(epoch) {
                self.send_announcement(now, AnnounceKind::Heartbeat, Some(epoch), 0);
            }
        }
    }

    /// When something of this is due.
    pub(super) fn suppression_deadline(&self) -> Option<Instant> {
        let up = self.members.values().filter(|member| member.state == MemberState::Up);
        let discovery = self.news.discovery().filter(|_| self.settings.spares);
        up.filter_map(|member| member.interest_sync.deadline()).chain(discovery).min().filter(|_| self.stop.is_none())
    }

    /// Whether a message on the subject, which matches no entry of others, is not sent.
    pub(super) fn is_certain(&mut self, now: ClockReading) -> bool {
        if let Some(is_certain) = self.suppression.is_certain {
            return is_certain;
        }
        let is_certain = self.is_interest_complete(now);
        self.suppression.is_certain = Some(is_certain);
        is_certain
    }

    fn is_interest_complete(&self, now: ClockReading) -> bool {
        if self.settings.mutants.is(Mutant::SpareUncertain) {
            return true;
        }
        let is_known = |member: &Member| match member.state {
            MemberState::Left => true,
            MemberState::Crashed => !self.remote_interest.is_short(member.epoch()),
            MemberState::Up | MemberState::Silent => self.remote_interest.is_known(member.epoch()),
        };
        self.suppression.from <= now.instant
            && self.pending_data.is_empty()
            && self.members.values().all(is_known)
            && self.remote_interest.lost().all(|epoch| !self.remote_interest.is_short(epoch))
    }

    /// Whether a message on the subject is to be sent for somebody elsewhere, as far as is known.
    pub(super) fn is_wanted(&mut self, subject: &Subject) -> bool {
        !self.settings.spares || self.remote_interest.is_wanted(subject)
    }

    /// A member was given up without a BYE: unless a later run of it is there, what it wanted is sent as before.
    pub(super) fn retain_interest(&mut self, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let lost = AbsentPeer::of(member);
        let is_followed =
            self.members.values().any(|other| other.epoch() != epoch && other.is_alive() && lost.is_followed_by(other));
        // Who was told nothing was promised nothing.
        let is_owed = self.settings.spares && self.remote_interest.was_reported(epoch);
        if !is_owed || is_followed || self.settings.mutants.is(Mutant::SpareForgets) {
            return self.remote_interest.end(epoch);
        }
        self.suppression.lost.insert(epoch, lost);
        self.remote_interest.lose(epoch);
    }

    /// A member is forgotten: nothing of it stays but what was lost with it.
    pub(super) fn evict_interest(&mut self, epoch: Epoch) {
        if !self.suppression.lost.contains_key(&epoch) {
            self.remote_interest.end(epoch);
        }
    }

    /// An epoch that had been lost ended for certain, or can be remembered no longer.
    pub(super) fn discard_absent(&mut self, epoch: Epoch) {
        if self.suppression.lost.remove(&epoch).is_some() {
            self.remote_interest.end(epoch);
        }
    }

    /// A member is heard, perhaps again: it is not lost, and former runs of it are not to come back.
    pub(super) fn on_present(&mut self, epoch: Epoch) {
        if self.suppression.lost.is_empty() {
            return;
        }
        if self.suppression.lost.remove(&epoch).is_some() {
            self.remote_interest.restore(epoch);
        }
        let Some(member) = self.members.get(&epoch) else { return };
        let lost = self.suppression.lost.iter();
        let departed: Vec<Epoch> =
            lost.filter(|(_, lost)| lost.is_followed_by(member)).map(|(epoch, _)| *epoch).collect();
        departed.into_iter().for_each(|departed| self.discard_absent(departed));
    }
}
