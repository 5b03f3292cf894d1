//! Streams whose last known point may be an old one.

use crate::link::remote_stream_key::RemoteStreamKey;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for which the first message that is read of a stream, and that was not heard on the LAN, may be one that the
/// stream keeps twice. Then later ones were delivered before it, and what seems to be missing is not certain to be lost.
const UNCERTAIN_TIME: Duration = Duration::from_secs(600);
/// Maximum number of such streams. Beyond it losses of one of them may be reported that did not take place.
const UNCERTAIN_MAX: usize = 262_144;

/// The streams, and the times until which they are uncertain.
#[derive(Debug, Default)]
pub(super) struct UncertainStreams(BTreeMap<RemoteStreamKey, Instant>);

impl UncertainStreams {
    /// Notes that a stream is uncertain from now on.
    pub(super) fn put(&mut self, now: Instant, key: RemoteStreamKey) {
        if UNCERTAIN_MAX <= self.0.len() {
            self.0.pop_first();
        }
        self.0.insert(key, now + UNCERTAIN_TIME);
    }

    /// Notes that the last point of a stream is certain.
    pub(super) fn remove(&mut self, key: &RemoteStreamKey) {
        self.0.remove(key);
    }

    /// Returns whether the last point of a stream may be an old one.
    pub(super) fn contains(&self, now: Instant, key: &RemoteStreamKey) -> bool {
        self.0.get(key).is_some_and(|until| now < *until)
    }
}
