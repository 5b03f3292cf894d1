//! The counts of a gateway: a point for each message of its LAN that may cross.

use super::envelope::{LinkEnvelope, RemotePublisher};
use super::local_subjects::stays_local;
use super::position::{NumberingEnd, PublisherPosition, StreamPoint};
use super::shares::share_of;
use super::site_name::SiteName;
use crate::message::{Count, Delivery, Epoch, Message, Verdict};
use crate::seqno::Seq;
use crate::subject::Subject;
use lru::LruCache;
use std::num::NonZeroUsize;

/// Maximum number of streams that a gateway counts. The count of an evicted stream begins anew.
pub const EXPORTED_STREAMS_MAX: usize = 262_144;
/// Maximum number of streams with messages that are not exported which a gateway remembers.
const SPARSE_STREAMS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("not 0");

/// A message to be exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its envelope.
    pub envelope: LinkEnvelope,
    /// The message, as the LAN delivered it.
    pub message: Message,
}

impl Export {
    /// Returns the stream of the message.
    pub(super) fn key(&self) -> LinkStreamKey {
        LinkStreamKey { publisher: self.envelope.publisher.epoch, subject: self.message.subject.clone() }
    }
}

/// A publisher and a subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LinkStreamKey {
    pub(super) publisher: Epoch,
    pub(super) subject: Subject,
}

/// Count of a stream at a gateway.
#[derive(Clone, Debug)]
pub(super) struct CountedStream {
    pub(super) publisher: RemotePublisher,
    /// Number in the share of the last message.
    pub(super) last_number: u64,
    /// The last message.
    pub(super) last: StreamPoint,
    /// The highest number that another gateway of the site has exported.
    pub(super) returned: Option<Seq>,
    /// Point of the last message behind that one which is not exported, such as a request. It has no ordinal: that of
    /// the next exported message follows the last one's.
    unexported: Option<StreamPoint>,
}

impl CountedStream {
    /// Returns the point that the next message follows.
    fn end(&self) -> StreamPoint {
        self.unexported.unwrap_or(self.last)
    }
}

/// A message that was counted.
#[derive(Clone, Debug)]
pub(super) struct CountedMessage {
    pub(super) export: Export,
    /// Number in the share of the message before it in its stream.
    pub(super) previous: Option<u64>,
    /// Number of messages between the two that the LAN has lost, at least.
    pub(super) lost: u64,
}

/// The streams that a gateway counts.
#[derive(Debug)]
pub(super) struct StreamCounts {
    site: SiteName,
    gateway: Epoch,
    streams: LruCache<LinkStreamKey, CountedStream>,
    /// Streams with messages that are not exported.
    sparse: LruCache<LinkStreamKey, ()>,
}

impl StreamCounts {
    /// Creates the counts of a gateway in this epoch.
    pub(super) fn new(site: SiteName, gateway: Epoch) -> StreamCounts {
        StreamCounts { site, gateway, streams: LruCache::unbounded(), sparse: LruCache::new(SPARSE_STREAMS_MAX) }
    }

    /// Returns the name of the site.
    pub(super) fn site(&self) -> &SiteName {
        &self.site
    }

    /// Returns the epoch of the gateway.
    pub(super) fn gateway(&self) -> Epoch {
        self.gateway
    }

    /// Counts a message that the LAN delivered, which follows the message with the number `last_number` of its share.
    /// Messages of other sites, repeated and replayed ones, and subjects that [stay local](stays_local) never cross.
    pub(super) fn count(&mut self, delivery: &Delivery, last_number: &mut u64) -> Option<CountedMessage> {
        let Delivery { message, publisher, .. } = delivery;
        let is_local = stays_local(message.subject.as_bytes());
        if is_local || delivery.replayed || LinkEnvelope::is_in(&message.headers) {
            return None;
        }
        let key = LinkStreamKey { publisher: publisher.epoch, subject: message.subject.clone() };
        let before = self.streams.get(&key);
        let last_seq = before.and_then(|stream| stream.end().position.seq);
        if delivery.seq.zip(last_seq).is_some_and(|(seq, last)| seq <= last) {
            return None;
        }
        *last_number += 1;
        let number = *last_number;
        let share = share_of(&message.subject);
        let publisher = RemotePublisher { epoch: publisher.epoch, name: publisher.name.clone() };
        let last = before.map(CountedStream::end);
        let mut point = next_point(self.gateway, number, last, delivery);
        point.position.is_sparse = self.sparse.contains(&key);
        let previous = before.map(|stream| stream.last_number);
        let returned = before.and_then(|stream| stream.returned);
        if before.is_none() && EXPORTED_STREAMS_MAX <= self.streams.len() {
            self.streams.pop_lru();
        }
        let stream = CountedStream {
            publisher: publisher.clone(),
            last_number: number,
            last: point,
            returned,
            unexported: None,
        };
        self.streams.put(key, stream);
        let lost = last.map_or(0, |last| (point.ordinal - last.ordinal).saturating_sub(1));
        let envelope = LinkEnvelope { site: self.site.clone(), share, number, publisher, point };
        Some(CountedMessage { export: Export { envelope, message: message.clone() }, previous, lost })
    }

    /// Notes a message of the LAN that is not exported.
    pub(super) fn on_unexported(&mut self, delivery: &Delivery) {
        let key = LinkStreamKey { publisher: delivery.publisher.epoch, subject: delivery.message.subject.clone() };
        if let Some(stream) = self.streams.get_mut(&key) {
            let end = stream.end();
            let is_newer = |(seq, last): (Seq, Seq)| last < seq;
            if !delivery.replayed && delivery.seq.zip(end.position.seq).is_none_or(is_newer) {
                let point = next_point(self.gateway, stream.last_number, Some(end), delivery);
                stream.unexported = Some(StreamPoint { ordinal: point.ordinal - 1, ..point });
            }
        }
        self.sparse.put(key, ());
    }

    /// Returns the count of a stream.
    pub(super) fn get(&self, key: &LinkStreamKey) -> Option<&CountedStream> {
        self.streams.peek(key)
    }

    /// Notes the number of a message that another gateway of the site has exported.
    pub(super) fn on_returned(&mut self, key: &LinkStreamKey, seq: Option<Seq>) {
        if let Some(stream) = self.streams.peek_mut(key) {
            stream.returned = stream.returned.max(seq);
        }
    }

    /// Returns the streams of a share with a message behind this number.
    pub(super) fn streams_behind(&self, share: u8, number: u64) -> Vec<LinkStreamKey> {
        let behind = self.streams.iter().filter(|(_, stream)| number < stream.last_number);
        behind.map(|(key, _)| key).filter(|key| share_of(&key.subject) == share).cloned().collect()
    }
}

/// Returns the point of a message that has this number in its share and follows `last` in its stream.
fn next_point(gateway: Epoch, number: u64, last: Option<StreamPoint>, delivery: &Delivery) -> StreamPoint {
    let Delivery { seq, offset, verdict, .. } = delivery;
    let mut position = PublisherPosition { seq: *seq, offset: *offset, ..PublisherPosition::default() };
    if let (Verdict::Start(_), Some(seq)) = (verdict, seq) {
        position.numbered_from = Some(seq.frame());
    }
    let Some(last) = last else { return StreamPoint { gateway, first_number: number, ordinal: 1, position } };
    let lost = if position.numbered_from.is_some() {
        let PublisherPosition { seq, offset, numbered_from, .. } = last.position;
        position.before = seq.map(|seq| NumberingEnd { seq, offset, numbered_from });
        0
    } else {
        // The LAN has reported these messages as lost, so the other sites must hear of them too.
        let skipped = if let Verdict::Skip(count) = verdict { *count } else { Count::Exact(0) };
        position.continue_after(last.position, skipped)
    };
    StreamPoint { ordinal: last.ordinal.saturating_add(lost).saturating_add(1), position, ..last }
}
