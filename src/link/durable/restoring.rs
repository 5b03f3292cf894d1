//! Messages that the cluster has confirmed and lost: the site that waits for them requests them, and the site that has
//! exported them stores them once more.

use super::DurableGateway;
use super::restore_request::{MissingMessages, RestoreRequest};
use crate::link::site_name::SiteName;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of streams whose messages are to be stored once more.
const WAITING_MAX: usize = 1_024;
/// Time after which a request is out of date. The importer repeats it.
const REQUEST_AGE_MAX: Duration = Duration::from_secs(5);

/// Requested messages that wait until the state of the stream is known.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    at: Instant,
    missing: MissingMessages,
}

impl WaitingRequest {
    /// Adds the messages of another request for the same stream.
    fn merge(&mut self, now: Instant, other: &MissingMessages) {
        let MissingMessages { after, before, count_max, .. } = &mut self.missing;
        self.at = now;
        *after = (*after).min(other.after);
        *before = (*before).max(other.before);
        *count_max = (*count_max).max(other.count_max);
    }
}

impl DurableGateway {
    /// Returns the requests for messages that this gateway misses, one for each site, if it is time for them.
    pub(in crate::link) fn restore_requests(&mut self, now: Instant) -> BTreeMap<SiteName, RestoreRequest> {
        self.import.restore_requests(now)
    }

    /// Handles a request of another site. [`DurableGateway::on_stream_state`] carries it out: messages that the stream has
    /// removed by its limits are not stored again.
    pub(in crate::link) fn on_restore_request(&mut self, now: Instant, request: &RestoreRequest) {
        for missing in request.messages() {
            // One for each stream: what hostile requests cost does not grow with their number.
            if let Some(waiting) = self.restoring.get_mut(&missing.stream) {
                waiting.merge(now, &missing);
                continue;
            }
            if WAITING_MAX <= self.restoring.len() {
                self.restoring.retain(|_, waiting| now.since(waiting.at) < REQUEST_AGE_MAX);
            }
            if self.restoring.len() < WAITING_MAX {
                self.restoring.insert(missing.stream.clone(), WaitingRequest { at: now, missing });
            }
        }
    }

    /// Handles the present state of the stream: the sequences of its first message and of its last one. Stores messages
    /// once more that were requested before.
    pub fn on_stream_state(&mut self, now: Instant, first: u64, last: u64) {
        for WaitingRequest { at, missing } in std::mem::take(&mut self.restoring).into_values() {
            if now.since(at) < REQUEST_AGE_MAX {
                self.counts.restored += self.spool.restore(now, &missing, first);
            }
        }
        self.spool.on_stream_end(last);
    }
}
