//! Claim to a server id, under which only one peer of a LAN registers events. A peer announces its claim for
//! 300 ms before it registers events. A peer that already holds the id answers at once, and the claiming peer
//! yields.

use super::model::ServerId;
use super::replication::{Announcement, SERVER_TIMEOUT};
use super::timestamp::Timestamp;
use crate::message::Epoch;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval of a server's announcements while it registers no events.
const INTERVAL: Duration = Duration::from_secs(10);
/// Interval of announcements while a peer claims the id, and minimum time between two announcements without events.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Time for which a peer claims an id before it holds the id: three announcements and their answers, some of which may
/// be lost.
const CLAIM_TIME: Duration = Duration::from_millis(300);
/// Maximum number of remembered peers that follow others.
const FOLLOWERS_MAX: usize = 4096;

/// An action that a claim requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAction {
    /// Announce the server.
    Announce,
    /// The peer holds the id: it registers events from now on.
    Hold,
    /// The peer in this epoch has the id: this peer stops registering events.
    Yield(Epoch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimState {
    Claiming {
        until: Instant,
    },
    Held,
    Yielding(Epoch),
    /// The peer has yielded. It still announces itself periodically, and whether it follows other servers.
    Ended,
}

/// A peer's claim to a server id.
#[derive(Debug)]
pub struct ServerIdClaim {
    server: ServerId,
    /// Epoch of this peer.
    epoch: Epoch,
    /// Time at which the journal was opened.
    opened: Timestamp,
    state: ClaimState,
    /// Time of the last announcement.
    last_announcement: Option<Instant>,
    /// Time of the next announcement.
    announce_at: Instant,
    /// Peers that follow others, and the time of their last announcement.
    followers: BTreeMap<Epoch, Instant>,
}

impl ServerIdClaim {
    /// Creates a claim that begins now; `opened` is the time at which the journal was opened.
    pub fn new(now: Instant, server: ServerId, epoch: Epoch, opened: Timestamp) -> ServerIdClaim {
        let state = ClaimState::Claiming { until: now + CLAIM_TIME };
        ServerIdClaim {
            server,
            epoch,
            opened,
            state,
            last_announcement: None,
            announce_at: now,
            followers: BTreeMap::new(),
        }
    }

    /// Returns whether events can be registered.
    pub fn is_held(&self) -> bool {
        self.state == ClaimState::Held
    }

    /// Returns whether at least one peer follows others.
    pub fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Handles a peer's announcement of a server; the peer may be this one.
    pub fn on_announcement(&mut self, now: Instant, from: Epoch, announcement: &Announcement) {
        if from == self.epoch {
            return;
        }
        if announcement.follows {
            self.add_follower(now, from);
        }
        if matches!(self.state, ClaimState::Yielding(_) | ClaimState::Ended) {
            return;
        }
        let rank = |is_held: bool, opened, epoch: Epoch| (!is_held, opened, epoch.bits());
        let other = rank(announcement.is_held, announcement.opened, from);
        if announcement.until.server == self.server && other < rank(self.is_held(), self.opened, self.epoch) {
            self.state = ClaimState::Yielding(from);
            return;
        }
        // A peer that has just started needs the announcements of all servers at once. A peer that claims this id must
        // learn that this peer holds it.
        if !announcement.is_held || announcement.until.server == self.server {
            self.announce_soon(now);
        }
    }

    /// Notes that a gateway relays events of this LAN to followers in other sites. Announces the server soon if that is
    /// new. The gateway may be this peer.
    pub fn on_relay(&mut self, now: Instant, gateway: Epoch) {
        if !self.followers.contains_key(&gateway) {
            self.announce_soon(now);
        }
        self.add_follower(now, gateway);
    }

    fn add_follower(&mut self, now: Instant, follower: Epoch) {
        if self.followers.len() < FOLLOWERS_MAX || self.followers.contains_key(&follower) {
            self.followers.insert(follower, now);
        }
    }

    fn announce_soon(&mut self, now: Instant) {
        let soon = self.last_announcement.map_or(now, |last| now.max(last + INTERVAL_MIN));
        self.announce_at = self.announce_at.min(soon);
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Instant) -> Option<ClaimAction> {
        self.followers.retain(|_, last| now.since(*last) < SERVER_TIMEOUT);
        match self.state {
            ClaimState::Claiming { until } if until <= now => {
                self.state = ClaimState::Held;
                self.announce_at = now;
                return Some(ClaimAction::Hold);
            }
            ClaimState::Yielding(to) => {
                self.state = ClaimState::Ended;
                return Some(ClaimAction::Yield(to));
            }
            ClaimState::Claiming { .. } | ClaimState::Held | ClaimState::Ended => {}
        }
        if now < self.announce_at {
            return None;
        }
        self.last_announcement = Some(now);
        let is_claiming = matches!(self.state, ClaimState::Claiming { .. });
        self.announce_at = now + if is_claiming { INTERVAL_MIN } else { INTERVAL };
        Some(ClaimAction::Announce)
    }

    /// Returns the time of the next poll if nothing happens before. It may already have passed.
    pub fn deadline(&self) -> Instant {
        match self.state {
            ClaimState::Claiming { until } => until.min(self.announce_at),
            ClaimState::Held | ClaimState::Ended => self.announce_at,
            ClaimState::Yielding(_) => Instant::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::EventId;
    use crate::event::replication::INSTANCE_END;
    use crate::rng::Rng;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn epoch(bits: u64) -> Epoch {
        Epoch::new(bits).unwrap()
    }

    fn announced(server: u32, is_held: bool, opened: i64, follows: bool) -> Announcement {
        let position = EventId { server: ServerId(server), session: 3, instance: INSTANCE_END };
        let opened = Timestamp::from_micros(opened).unwrap();
        Announcement { opened, is_held, follows, since: position, until: position, events: Vec::new() }
    }

    fn claim(now: u64) -> ServerIdClaim {
        ServerIdClaim::new(at(now), ServerId(7), epoch(5), Timestamp::from_micros(100).unwrap())
    }

    /// Returns the actions up to this time, with the times in milliseconds.
    fn acts(claim: &mut ServerIdClaim, until: u64) -> Vec<(u64, ClaimAction)> {
        let mut acts = Vec::new();
        while claim.deadline() <= at(until) {
            let now = claim.deadline();
            let act = claim.poll(now).expect("what is due is done");
            acts.push((now.as_nanos() / 1_000_000, act));
        }
        acts
    }

    #[test]
    fn free_server_id_is_held_after_claiming() {
        let (mut claim, announce) = (claim(1000), |at| (at, ClaimAction::Announce));
        let expected = [announce(1000), announce(1100), announce(1200), (1300, ClaimAction::Hold), announce(1300)];
        assert_eq!(acts(&mut claim, 1300), expected);
        assert!(claim.is_held());
        assert_eq!(acts(&mut claim, 22_000), [announce(11_300), announce(21_300)]);
        // The peer receives its own announcements.
        claim.on_announcement(at(22_000), epoch(5), &announced(7, true, 100, true));
        claim.on_announcement(at(22_000), epoch(6), &announced(8, true, 100, false));
        assert!(acts(&mut claim, 22_000).is_empty() && !claim.has_followers());
        // A new peer is answered at once, but the rate of answers is limited.
        claim.on_announcement(at(22_000), epoch(6), &announced(8, false, 100, false));
        assert_eq!(acts(&mut claim, 22_000), [announce(22_000)]);
        claim.on_announcement(at(22_010), epoch(6), &announced(9, false, 100, false));
        assert_eq!(acts(&mut claim, 23_000), [announce(22_100)]);
    }

    #[test]
    fn held_claim_wins_before_an_earlier_one() {
        // State here; state, opening time and epoch of the other peer; expected result: this peer yields.
        for (is_held, theirs, yields) in [
            (false, (true, 200, 9), true),
            (true, (false, 1, 1), false),
            (false, (false, 99, 9), true),
            (false, (false, 101, 1), false),
            (false, (false, 100, 4), true),
            (false, (false, 100, 6), false),
            (true, (true, 99, 9), true),
            (true, (true, 101, 1), false),
        ] {
            let mut claim = claim(0);
            let now = if is_held { 400 } else { 50 };
            acts(&mut claim, now);
            claim.on_announcement(at(now), epoch(theirs.2), &announced(7, theirs.0, theirs.1, false));
            let expected = if yields { ClaimAction::Yield(epoch(theirs.2)) } else { ClaimAction::Announce };
            assert_eq!(acts(&mut claim, 450).first().map(|(_, act)| *act), Some(expected), "{theirs:?}");
            assert_eq!(claim.is_held(), !yields, "{theirs:?}");
            if yields {
                let later = acts(&mut claim, 100_000);
                assert!(!later.is_empty() && later.iter().all(|(_, act)| *act == ClaimAction::Announce), "{later:?}");
            }
        }
    }

    #[test]
    fn silent_follower_is_removed_after_the_timeout() {
        let mut claim = claim(0);
        claim.on_announcement(at(400), epoch(6), &announced(8, true, 1, true));
        acts(&mut claim, 30_400);
        assert!(claim.has_followers());
        acts(&mut claim, 40_400);
        assert!(!claim.has_followers());
    }

    #[test]
    fn relaying_gateway_counts_as_a_follower() {
        let mut claim = claim(0);
        acts(&mut claim, 5_000);
        claim.on_relay(at(5_000), epoch(5));
        assert_eq!(acts(&mut claim, 5_000), [(5_000, ClaimAction::Announce)], "it needs the position at once");
        claim.on_relay(at(15_000), epoch(5));
        assert_eq!(acts(&mut claim, 16_000), [(15_000, ClaimAction::Announce)], "this one was due");
        assert!(claim.has_followers());
        acts(&mut claim, 60_000);
        assert!(!claim.has_followers());
    }

    /// Announcements are lost or delayed by less than the time of a claim. In the end exactly one claim holds the id.
    /// Two claims never hold it at once if one began while the other one held it.
    #[test]
    fn one_of_many_claims_is_held() {
        for seed in 0..2000 {
            let mut rng = Rng::new(seed);
            let count = 2 + rng.below(4);
            let mut claims: Vec<(u64, ServerIdClaim)> = (0..count)
                .map(|number| {
                    let begin = rng.below(800);
                    let opened = Timestamp::from_micros(rng.below(1000) as i64).unwrap();
                    (begin, ServerIdClaim::new(at(begin), ServerId(7), epoch(number + 1), opened))
                })
                .collect();
            let mut coming: Vec<(u64, usize, bool, Timestamp)> = Vec::new();
            let mut now = 0;
            while now < 25_000 {
                for (of, claim) in (1..).zip(&mut claims) {
                    for (_, from, is_held, opened) in coming.iter().filter(|(due, ..)| *due == now) {
                        let mut announcement = announced(7, *is_held, 0, false);
                        announcement.opened = *opened;
                        if *from != of && claim.0 <= now && !rng.chance(0.1) {
                            claim.1.on_announcement(at(now), epoch(*from as u64), &announcement);
                        }
                    }
                }
                coming.retain(|(due, ..)| now < *due);
                for (of, (begin, claim)) in (1..).zip(&mut claims) {
                    while *begin <= now
                        && let Some(act) = claim.poll(at(now))
                    {
                        if act == ClaimAction::Announce {
                            coming.push((now + 1 + rng.below(20), of, claim.is_held(), claim.opened));
                        }
                    }
                }
                // Nothing can happen before the next deadline or arrival, so the loop skips to it.
                let deadlines = claims.iter().map(|(_, claim)| claim.deadline().as_nanos() / 1_000_000);
                let next = deadlines.chain(coming.iter().map(|(due, ..)| *due)).min();
                now = next.expect("a claim has a deadline").max(now + 1);
            }
            assert_eq!(claims.iter().filter(|(_, claim)| claim.is_held()).count(), 1, "seed {seed}");
        }
    }
}
