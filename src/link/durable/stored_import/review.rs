//! Messages before the position, which a gateway reads when it begins.

use super::{STREAMS_MAX, StoredImport};
use crate::link::durable::hub_position::StoredArrival;
use crate::link::durable::stored::DurableOrigin;
use crate::link::position::StreamPoint;
use crate::link::remote_stream_key::RemoteStreamKey;

/// Maximum time between a message before the position and the position, in nanoseconds, for the message to be delivered:
/// a program whose peer has restarted since then may have it.
const REDELIVERED_AGE_MAX: u64 = 120_000_000_000;

impl StoredImport {
    /// Returns whether a message before the position has not been delivered: it follows the last one of its stream that
    /// was. If it was all the same, peers drop it.
    pub(super) fn is_undelivered(&self, arrival: StoredArrival, key: &RemoteStreamKey, origin: &DurableOrigin) -> bool {
        let age = self.delivered_to.at.map_or(0, |at| at.as_nanos().saturating_sub(arrival.at.as_nanos()));
        let point = &origin.envelope.point;
        let last = self.awaited_before(key, point).or_else(|| self.last_point(key));
        let is_later = point.position.seq.is_some() && last.is_some_and(|last| last.precedes(point));
        is_later
            && age < REDELIVERED_AGE_MAX
            && !self.reviewed.contains(key)
            && self.missing_before(key, origin).is_none()
    }

    /// Notes how far a stream was before the position.
    pub(super) fn review(&mut self, key: RemoteStreamKey, point: StreamPoint) {
        let is_later = self.last.peek(&key).is_none_or(|last| !point.is_covered_by(last));
        if is_later && self.reviewed.len() < STREAMS_MAX {
            self.reviewed.insert(key.clone());
        }
        self.advance(key, point);
    }
}
