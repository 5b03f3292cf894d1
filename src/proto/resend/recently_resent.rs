//! Which datagrams were just resent, and to whom: what a second asker, and one who asks too soon, are known by (A9).

use super::ranges::Ranges;
use super::{LINGER, LINGER_ALONE, RESENT_MAX, RESENT_TIME, ResendTarget};
use crate::message::Epoch;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A datagram of the multicast stream, or of the directed stream to a member.
pub type StreamPosition = (Option<Epoch>, u64);

/// The resends that are remembered, the latest of each datagram.
#[derive(Debug, Default)]
pub struct RecentlyResent {
    resent: BTreeMap<StreamPosition, (ResendTarget, Instant)>,
    /// In the order of time; some of them not the latest of their datagram.
    order: VecDeque<(StreamPosition, Instant)>,
}

impl RecentlyResent {
    /// A datagram was resent.
    pub fn remember(&mut self, now: Instant, place: StreamPosition, to: ResendTarget) {
        self.resent.insert(place, (to, now));
        self.order.push_back((place, now));
        while let Some((place, at)) = self.order.front().copied() {
            if self.order.len() <= RESENT_MAX && now < at + RESENT_TIME {
                return;
            }
            self.order.pop_front();
            if self.resent.get(&place).is_some_and(|(_, latest)| *latest == at) {
                self.resent.remove(&place);
            }
        }
    }

    /// To whom a datagram was resent last, if that is remembered.
    pub fn target_of(&self, now: Instant, place: StreamPosition) -> Option<ResendTarget> {
        self.resent.get(&place).filter(|(_, at)| now < *at + RESENT_TIME).map(|(to, _)| *to)
    }

    /// Adds to `wanted` the numbers of `first..=last` that were not just resent where `from` gets them, and says how
    /// many were. Costs as much as the memory has of them.
    pub fn select_wanted(
        &self,
        now: Instant,
        from: Epoch,
        stream: Option<Epoch>,
        range: (u64, u64),
        wanted: &mut Ranges,
    ) -> u64 {
        let (mut first, last) = range;
        let mut suppressed = 0;
        for ((_, number), (to, at)) in self.resent.range((stream, first)..=(stream, last)) {
            // Rule: suppress
            let linger = match to {
                ResendTarget::Group => LINGER,
                ResendTarget::Member(asker) if *asker == from => LINGER_ALONE,
                ResendTarget::Member(_) => Duration::ZERO,
            };
            if now < *at + linger {
                wanted.insert(first, number - 1);
                first = number + 1;
                suppressed += 1;
            }
        }
        wanted.insert(first, last);
        suppressed
    }

    /// The limits hold, and nothing is kept that will never leave.
    pub fn assert_invariants(&self) {
        assert!(self.resent.len() <= self.order.len() && self.order.len() <= RESENT_MAX);
    }
}
