//! Queue groups whose messages another peer has just returned. Its subscriptions as known here are then out of
//! date. These are no refusals of requests of clients (`src/message/refusal.rs`).

use crate::message::Queue;
use crate::time::Instant;
use std::time::Duration;

/// Time for which a peer that has returned a message gets no returned message of the same group.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// Maximum number of groups of one peer for which refusals are remembered.
const REFUSALS_MAX: usize = 64;

/// Groups that a peer has just refused, with the time of the refusal.
#[derive(Debug, Default)]
pub struct Refusals(Vec<(Queue, Instant)>);

impl Refusals {
    /// Remembers that the peer refused a message of the group now.
    pub fn insert(&mut self, now: Instant, queue: Queue) {
        self.0.retain(|(other, at)| *other != queue && now < *at + REFUSAL_TIME);
        if self.0.len() < REFUSALS_MAX {
            self.0.push((queue, now));
        }
    }

    /// Returns whether the peer refused a message of the group in the last 100 ms.
    pub fn has(&self, now: Instant, queue: &Queue) -> bool {
        self.0.iter().any(|(other, at)| other == queue && now < *at + REFUSAL_TIME)
    }
}
