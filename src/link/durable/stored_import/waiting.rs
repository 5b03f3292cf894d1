//! Streams in which a gateway waits for messages: what other gateways of the site hear of them, and what is requested of
//! other sites.

use super::StoredImport;
use crate::link::durable::held_messages::HeldStream;
use crate::link::durable::restore_request::{MissingMessages, REQUESTED_GAPS_MAX, RestoreRequest};
use crate::link::position::StreamPoint;
use crate::link::remote_stream_key::RemoteStreamKey;
use crate::link::site_name::SiteName;
use crate::link::stream_counts::LinkStreamKey;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of streams whose messages another gateway awaits, as far as this one has heard none of them.
const AWAITED_MAX: usize = 65_536;
/// Time for which a gateway waits before it requests messages.
const REQUEST_DELAY: Duration = Duration::from_secs(1);
/// Interval of further requests.
const REQUEST_INTERVAL: Duration = Duration::from_secs(2);
/// Pause between requests, if a single one cannot name all gaps.
const REQUEST_PAUSE: Duration = Duration::from_millis(100);

impl StoredImport {
    /// Returns the streams with messages that wait, without those whose last point is uncertain: those behind the stream
    /// `behind` in the order of the keys, or all.
    pub(in crate::link::durable) fn held_streams(
        &self,
        now: Instant,
        behind: Option<&RemoteStreamKey>,
    ) -> impl Iterator<Item = HeldStream> {
        self.held.streams_behind(behind).filter_map(move |(key, first)| {
            let waiting = first.origin.as_ref()?.envelope.clone();
            let awaited = self.awaited_before(key, &waiting.point);
            let last = self.last.peek(key).filter(|_| !self.uncertain_streams.contains(now, key));
            Some(HeldStream { key: key.clone(), last: *awaited.or(last)?, waiting })
        })
    }

    /// Notes that another gateway waits for the messages behind a point of a stream. If it ends before it reports them as
    /// lost, this gateway does, even if it has heard no message of the stream.
    pub(in crate::link::durable) fn on_held_by_other(&mut self, key: RemoteStreamKey, last: StreamPoint) {
        if self.last.peek(&key).is_none_or(|own| own.precedes(&last)) {
            self.awaited_behind.insert(key, last);
            if AWAITED_MAX < self.awaited_behind.len() {
                self.awaited_behind.pop_first();
            }
        }
    }

    /// Returns the point before `point` behind which another gateway waited, if it is later than the last one of this
    /// gateway.
    pub(super) fn awaited_before(&self, key: &RemoteStreamKey, point: &StreamPoint) -> Option<&StreamPoint> {
        let is_later = |awaited: &&StreamPoint| self.last_point(key).is_none_or(|last| last.precedes(awaited));
        self.awaited_behind.get(key).filter(|awaited| awaited.precedes(point)).filter(is_later)
    }

    /// Returns the time of the next request for messages, if some are missing.
    pub(super) fn request_due(&self) -> Option<Instant> {
        Some(self.request_at.max(self.held.oldest()?.since + REQUEST_DELAY))
    }

    /// Returns the requests for the messages that others wait for, one for each site, if it is time for them.
    pub(in crate::link::durable) fn restore_requests(&mut self, now: Instant) -> BTreeMap<SiteName, RestoreRequest> {
        let mut requests: BTreeMap<SiteName, RestoreRequest> = BTreeMap::new();
        if self.request_due().is_none_or(|due| now < due) {
            return requests;
        }
        let last = self.requested_to.take();
        let last_stream = last.as_ref().map(|(key, _)| key);
        let others = self.held.streams_behind(last_stream).map(|(key, _)| key);
        let (mut count, mut named) = (0, None);
        'gaps: for key in last_stream.into_iter().chain(others) {
            let named_to = last.as_ref().filter(|(stream, _)| stream == key).map(|(_, before)| *before);
            for missing in self.missing_messages(key).filter(|missing| named_to < Some(missing.before)) {
                requests.entry(key.site.clone()).or_default().push(&missing);
                count += 1;
                if count == REQUESTED_GAPS_MAX {
                    named = Some((key.clone(), missing.before));
                    break 'gaps;
                }
            }
        }
        self.requested_to = named;
        self.request_at = now + if self.requested_to.is_some() { REQUEST_PAUSE } else { REQUEST_INTERVAL };
        requests
    }

    /// Returns the messages for which others of a stream wait, as far as they have numbers.
    fn missing_messages(&self, key: &RemoteStreamKey) -> impl Iterator<Item = MissingMessages> {
        let first = self.held.first(key).and_then(|first| {
            let origin = first.origin.as_ref()?;
            let point = &origin.envelope.point;
            let last = self.awaited_before(key, point).or_else(|| self.last_point(key));
            Some((last, point, self.missing_before(key, origin)?))
        });
        let later = self.held.neighbours(key).filter_map(|(one, next)| {
            let (last, origin) = (one.point()?, next.origin.as_ref()?);
            let point = &origin.envelope.point;
            let missing = point.missing_since(last).filter(|missing| !origin.explains(*missing))?;
            Some((Some(last), point, missing))
        });
        first.into_iter().chain(later).filter_map(|(last, point, missing)| {
            let after = match last {
                Some(last) => Some(last.position.seq?),
                None => None,
            };
            Some(MissingMessages {
                stream: LinkStreamKey { publisher: key.publisher, subject: key.subject.clone() },
                after,
                before: point.position.seq?,
                count_max: missing.max(),
            })
        })
    }
}
