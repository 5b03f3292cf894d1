//! Shares of the exported subjects, and the gateway of a site that carries each.
//!
//! Every gateway announces itself to the others of its site. All of them apply the same rule to the same announcements,
//! so they need no vote. While two of them disagree, both may carry a share: importers drop what they get twice.
//!
//! A gateway that has connected with the cluster listens before it says that it is ready, and carries shares a moment
//! later. By then those that carried them have released them, and it has received what they have not exported or
//! imported in between.

use crate::message::Epoch;
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of shares. Each gateway of a site carries about the same number of them.
pub const SHARES: u8 = 16;
/// Interval of a gateway's announcements.
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(600);
/// Time after the last announcement of a gateway from which the others carry its shares: two announcements may be lost,
/// and the third one may be late.
pub const GATEWAY_TIMEOUT: Duration = Duration::from_millis(2_250);
/// Time for which a gateway listens before it is ready, while another one carries the shares. If that one dies, others
/// that retain the messages of the last seconds take over, and not this one.
const LISTEN_TIME: Duration = Duration::from_secs(5);
/// The same while no other one is ready: two rounds of manifests, so that it is owed what comes then, and longer than
/// the lease of another gateway that it has not heard.
pub(super) const LISTEN_ALONE_TIME: Duration = Duration::from_millis(2_500);
/// Time after which a gateway that is ready carries shares: the others have heard of it.
const HAND_OVER_TIME: Duration = Duration::from_millis(250);
/// Time after its own last announcement from which a gateway counts itself as dead, before the others do.
pub const LEASE: Duration = Duration::from_millis(1_750);
const _: () = assert!(3 * ANNOUNCE_INTERVAL.as_millis() < GATEWAY_TIMEOUT.as_millis(), "two may be lost");
const _: () = assert!(LEASE.as_millis() < GATEWAY_TIMEOUT.as_millis(), "a gateway ends before others replace it");
const _: () = assert!(LEASE.as_millis() < LISTEN_ALONE_TIME.as_millis(), "a gateway ends before a new one begins");
/// Maximum number of gateways of a site.
pub const GATEWAYS_MAX: usize = 64;

/// Returns the share of a subject: the same at every gateway.
pub fn share_of(subject: &Subject) -> u8 {
    (hash(subject.as_bytes()) % u64::from(SHARES)) as u8
}

/// Returns a hash that is equal in every program. No secret depends on it.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    // FNV-1a.
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    mixed(bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash))
}

/// Spreads the bits of a number over all bits (the last step of SplitMix64).
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The last announcement of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GatewayState {
    at: Instant,
    is_ready: bool,
}

/// The gateways of a site, as one of them sees them.
#[derive(Debug)]
pub struct Election {
    /// Epoch of this gateway.
    own: Epoch,
    /// Time since which this gateway listens to the cluster, and since which it is ready.
    linked_at: Option<Instant>,
    ready_at: Option<Instant>,
    others: BTreeMap<Epoch, GatewayState>,
    /// The shares that this gateway carries, one bit for each.
    carried: u16,
}

impl Election {
    /// Creates the election of a gateway that is not connected.
    pub fn new(own: Epoch) -> Election {
        Election { own, linked_at: None, ready_at: None, others: BTreeMap::new(), carried: 0 }
    }

    /// Notes whether this gateway is connected to the cluster.
    pub fn set_linked(&mut self, now: Instant, is_linked: bool) {
        match is_linked {
            true => self.linked_at = self.linked_at.or(Some(now)),
            false => (self.linked_at, self.ready_at) = (None, None),
        }
        self.on_tick(now);
    }

    /// Listens anew, as after a new connection.
    pub fn pause(&mut self, now: Instant) {
        self.linked_at = self.linked_at.map(|_| now);
        self.ready_at = None;
        self.on_tick(now);
    }

    /// Returns whether this gateway carries shares, or is about to.
    pub fn is_ready(&self) -> bool {
        self.ready_at.is_some()
    }

    /// Notes the announcement of another gateway of the site.
    pub fn on_announcement(&mut self, now: Instant, gateway: Epoch, is_ready: bool) {
        let is_known = self.others.contains_key(&gateway);
        if gateway != self.own && (is_known || self.others.len() < GATEWAYS_MAX) {
            self.others.insert(gateway, GatewayState { at: now, is_ready });
        }
        self.on_tick(now);
    }

    /// Notes that a gateway has left.
    pub fn on_departure(&mut self, now: Instant, gateway: Epoch) {
        self.others.remove(&gateway);
        self.on_tick(now);
    }

    /// Forgets silent gateways, and decides anew.
    pub fn on_tick(&mut self, now: Instant) {
        self.others.retain(|_, state| now.since(state.at) < GATEWAY_TIMEOUT);
        if self.ready_at.is_none() && self.ready_from().is_some_and(|from| from <= now) {
            self.ready_at = Some(now);
        }
        self.carried = 0;
        if self.carries_from().is_none_or(|from| now < from) {
            return;
        }
        let is_own = |share: &u8| self.elected(*share) == Some(self.own);
        self.carried = (0..SHARES).filter(is_own).fold(0, |carried, share| carried | 1 << share);
    }

    /// Returns the gateway that carries a share, or is about to; `None` if no gateway is ready.
    pub fn elected(&self, share: u8) -> Option<Epoch> {
        let weight = |gateway: &Epoch| (mixed(gateway.bits() ^ mixed(u64::from(share) + 1)), *gateway);
        let others = self.others.iter().filter(|(_, state)| state.is_ready).map(|(gateway, _)| *gateway);
        others.chain(self.is_ready().then_some(self.own)).max_by_key(weight)
    }

    /// Returns whether a gateway is this one, or another one of the site that announces itself.
    pub fn knows(&self, gateway: Epoch) -> bool {
        gateway == self.own || self.others.contains_key(&gateway)
    }

    /// Returns whether another gateway of the site is ready.
    pub fn has_ready_others(&self) -> bool {
        self.others.values().any(|state| state.is_ready)
    }

    /// Returns whether this gateway carries the share.
    pub fn carries(&self, share: u8) -> bool {
        share < SHARES && self.carried & (1 << share) != 0
    }

    /// Returns whether this gateway answers the LAN's requests of a share: the one that carries it does, or the first
    /// one of all while none is ready.
    pub fn answers(&self, share: u8) -> bool {
        self.carries(share) || !self.has_ready_others() && self.others.keys().all(|other| self.own < *other)
    }

    /// Returns the shares that this gateway carries, in order.
    pub fn carried(&self) -> impl Iterator<Item = u8> + '_ {
        (0..SHARES).filter(|share| self.carries(*share))
    }

    /// Returns the time of the next decision that no announcement causes.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let ends = self.others.values().map(|state| state.at + GATEWAY_TIMEOUT);
        let own = if self.ready_at.is_none() { self.ready_from() } else { self.carries_from() };
        ends.chain(own.filter(|own| now < *own)).min()
    }

    fn ready_from(&self) -> Option<Instant> {
        let listen_time = if self.has_ready_others() { LISTEN_TIME } else { LISTEN_ALONE_TIME };
        Some(self.linked_at? + listen_time)
    }

    fn carries_from(&self) -> Option<Instant> {
        Some(self.ready_at? + HAND_OVER_TIME)
    }
}
