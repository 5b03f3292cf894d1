//! Messages of the stream that gateways of a site have delivered, behind the stored position.

use super::hub_position::StoredArrival;
use crate::time::WallTime;
use std::collections::BTreeMap;

/// Maximum number of messages that are remembered. Messages beyond it may be delivered twice when another gateway continues.
const MESSAGES_MAX: usize = 1 << 20;

/// Gateway that has delivered a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deliverer {
    Own,
    Other,
}

/// The messages, by the times at which the cluster stored them, and their stream sequences.
#[derive(Debug, Default)]
pub(super) struct DeliveredMessages(BTreeMap<(WallTime, u64), Deliverer>);

impl DeliveredMessages {
    /// Notes that a gateway has delivered a message.
    pub(super) fn put(&mut self, arrival: StoredArrival, deliverer: Deliverer) {
        let known = self.0.entry((arrival.at, arrival.sequence)).or_insert(deliverer);
        if deliverer == Deliverer::Own {
            *known = Deliverer::Own;
        }
        if MESSAGES_MAX < self.0.len() {
            self.0.pop_first();
        }
    }

    /// Forgets the messages up to this time.
    pub(super) fn forget(&mut self, to: WallTime) {
        self.0 = self.0.split_off(&(to, u64::MAX));
    }

    /// Returns the gateway that has delivered the message with this sequence.
    pub(super) fn deliverer(&self, arrival: StoredArrival) -> Option<Deliverer> {
        self.0.get(&(arrival.at, arrival.sequence)).copied()
    }

    /// Returns the gateway that has delivered a message of the same time with another sequence: the same message in another
    /// copy of the stream, unless the clock of the cluster is coarse.
    pub(super) fn deliverer_elsewhere(&self, arrival: StoredArrival) -> Option<Deliverer> {
        let StoredArrival { sequence, at } = arrival;
        let mut of_time = self.0.range((at, 0)..=(at, u64::MAX));
        of_time.find(|((_, place), _)| *place != sequence).map(|(_, deliverer)| *deliverer)
    }
}
