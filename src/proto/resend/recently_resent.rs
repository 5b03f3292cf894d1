//! Datagrams that were just resent, and their receivers. They identify a second requester, and a request that the
//! resend has crossed (A9).

use super::ranges::Ranges;
use crate::message::Epoch;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time after a resend to the group during which a request for the same datagram is suppressed, because the requester
/// sent it before the resend arrived; Aeron's value (A9).
pub const LINGER: Duration = Duration::from_millis(10);

/// Such a time after a resend to the requester alone. It is shorter than the minimum time between two requests of one
/// receiver, 5 ms less a quarter (A1). A repeated request is therefore answered again.
pub const LINGER_ALONE: Duration = Duration::from_millis(3);

/// Time for which an answer is remembered, so that a second requester makes the next one multicast. It exceeds the
/// longest time between two requests for the same datagram, 640 ms (A1).
pub const RESENT_TIME: Duration = Duration::from_secs(1);

/// Maximum number of remembered answers.
const RESENT_MAX: usize = 4096;

/// Receiver of a resend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendTarget {
    /// By unicast, to this member alone.
    Member(Epoch),
    /// By multicast, because several members requested it.
    Group,
}

/// Position in the multicast stream, or in the directed stream to a member.
pub type StreamPosition = (Option<Epoch>, u64);

/// Remembered resends, the latest of each datagram.
#[derive(Debug, Default)]
pub struct RecentlyResent {
    resent: BTreeMap<StreamPosition, (ResendTarget, Instant)>,
    /// Resends in the order of time; some are not the latest of their datagram.
    order: VecDeque<(StreamPosition, Instant)>,
}

impl RecentlyResent {
    /// Remembers the resend of a datagram.
    pub fn remember(&mut self, now: Instant, position: StreamPosition, to: ResendTarget) {
        self.resent.insert(position, (to, now));
        self.order.push_back((position, now));
        while let Some((position, at)) = self.order.front().copied() {
            if self.order.len() <= RESENT_MAX && now < at + RESENT_TIME {
                return;
            }
            self.order.pop_front();
            if self.resent.get(&position).is_some_and(|(_, latest)| *latest == at) {
                self.resent.remove(&position);
            }
        }
    }

    /// Returns the receiver of the last resend of a datagram, if that is remembered.
    pub fn target_of(&self, now: Instant, position: StreamPosition) -> Option<ResendTarget> {
        self.resent.get(&position).filter(|(_, at)| now < *at + RESENT_TIME).map(|(to, _)| *to)
    }

    /// Adds to `wanted` the numbers of `first..=last` that `from` was not just resent, and returns the number of
    /// suppressed ones. The cost grows with the remembered resends in the range.
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
                ResendTarget::Member(requester) if *requester == from => LINGER_ALONE,
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

    /// Checks the limits, and that every remembered resend will expire.
    pub fn assert_invariants(&self) {
        assert!(self.resent.len() <= self.order.len() && self.order.len() <= RESENT_MAX);
    }
}
