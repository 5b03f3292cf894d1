//! Messages of other sites that two gateways of this site deliver, because one continues where the other one has ended.
//!
//! The next gateway cannot know the last messages of one that has died if its LAN has lost their datagrams. It delivers
//! them again, and each peer drops those that it has delivered. A peer remembers for each stream which numbers of the
//! publisher came from which gateway. What it does not remember it delivers.

use super::envelope::{ORIGIN_HEADER, PUBLISHER_WORD, SEQ_WORD, parse_epoch, parse_seq};
use super::remote_stream_key::RemoteStreamKey;
use super::site_name::SiteName;
use crate::delivery::Deliveries;
use crate::message::{DeliveryRef, Epoch};
use crate::seqno::Seq;
use lru::LruCache;
use std::num::NonZeroUsize;

/// Maximum number of streams that a peer remembers. It forgets the one that was idle longest.
pub const REMEMBERED_STREAMS_MAX: usize = 65_536;
/// Maximum number of ranges of a stream. The oldest one is forgotten.
const RANGES_MAX: usize = 8;

/// Numbers of a stream that one gateway has delivered. Those between that did not come from it are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeliveredRange {
    gateway: Epoch,
    first: Seq,
    last: Seq,
}

/// Drops messages of other sites that another gateway has delivered before.
#[derive(Debug)]
pub struct RepeatFilter {
    /// Ranges of each stream, in order, without overlaps.
    streams: LruCache<RemoteStreamKey, Vec<DeliveredRange>>,
    dropped: u64,
}

impl Default for RepeatFilter {
    fn default() -> RepeatFilter {
        RepeatFilter::with_limit(NonZeroUsize::new(REMEMBERED_STREAMS_MAX).expect("the limit is not 0"))
    }
}

impl RepeatFilter {
    /// Creates a filter that remembers this number of streams.
    fn with_limit(streams_max: NonZeroUsize) -> RepeatFilter {
        // The table grows as streams appear: most peers have none.
        let mut streams = LruCache::unbounded();
        streams.resize(streams_max);
        RepeatFilter { streams, dropped: 0 }
    }

    /// Returns the number of messages dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the deliveries without the messages that another gateway has delivered before, in order. Each element
    /// has one or more successive messages.
    pub fn filter(&mut self, deliveries: Deliveries) -> Vec<Deliveries> {
        let (mut index, mut repeated) = (0, Vec::new());
        deliveries.clone().visit(|delivery| {
            if self.is_repeated(delivery) {
                repeated.push(index);
            }
            index += 1;
        });
        if repeated.is_empty() {
            return vec![deliveries];
        }
        self.dropped += repeated.len() as u64;
        let kept = deliveries.enumerate().filter(|(index, _)| repeated.binary_search(index).is_err());
        kept.map(|(_, delivery)| delivery.into()).collect()
    }

    /// Notes a delivery. Returns true if another gateway has delivered the message before.
    fn is_repeated(&mut self, delivery: &DeliveryRef<'_>) -> bool {
        let Some(origin) = origin_value(delivery.headers).and_then(StreamOrigin::from_value) else { return false };
        let (StreamOrigin { site, publisher, seq }, gateway) = (origin, delivery.publisher.epoch);
        let key = RemoteStreamKey { site, publisher, subject: delivery.subject.clone() };
        let is_repeated = match self.streams.get_mut(&key) {
            Some(ranges) => note(ranges, gateway, seq),
            None => {
                let range = DeliveredRange { gateway, first: seq, last: seq };
                self.streams.put(key.detached(), vec![range]);
                false
            }
        };
        // A subscription that begins gets what others have got before.
        is_repeated && !delivery.replayed
    }
}

/// Stream of a message of another site, and its number.
struct StreamOrigin {
    site: SiteName,
    publisher: Epoch,
    seq: Seq,
}

impl StreamOrigin {
    /// Reads the three words of an envelope that matter here; `None` if the publisher has not numbered the message.
    fn from_value(value: &[u8]) -> Option<StreamOrigin> {
        let mut words = value.trim_ascii_start().split(|byte| *byte == b' ').map(|word| std::str::from_utf8(word).ok());
        let site = words.next()??.parse().ok()?;
        let publisher = parse_epoch(words.nth(PUBLISHER_WORD - 1)??)?;
        let seq = parse_seq(words.nth(SEQ_WORD - PUBLISHER_WORD - 1)??)?;
        Some(StreamOrigin { site, publisher, seq })
    }
}

/// Notes a message in the ranges of its stream. Returns true if another gateway has delivered it.
fn note(ranges: &mut Vec<DeliveredRange>, gateway: Epoch, seq: Seq) -> bool {
    let behind = ranges.partition_point(|range| range.first <= seq);
    match ranges[..behind].last_mut() {
        // A message for several subscriptions of a peer may be delivered to each by itself.
        Some(range) if seq <= range.last => return range.gateway != gateway,
        Some(range) if range.gateway == gateway => range.last = seq,
        _ => {
            ranges.insert(behind, DeliveredRange { gateway, first: seq, last: seq });
            if RANGES_MAX < ranges.len() {
                ranges.remove(0);
            }
        }
    }
    false
}

/// Returns whether a block of header fields is that of a message of another site.
pub(crate) fn is_imported(block: &[u8]) -> bool {
    origin_value(block).is_some()
}

/// Returns what follows the key of the first field of the origin in a block of header fields: the value, and further
/// lines.
fn origin_value(block: &[u8]) -> Option<&[u8]> {
    let mut lines = block;
    loop {
        // A gateway writes it into the first line.
        if let Some((key, value)) = lines.split_at_checked(ORIGIN_HEADER.len())
            && let Some(value) = value.strip_prefix(b":")
            && key.eq_ignore_ascii_case(ORIGIN_HEADER.as_bytes())
        {
            return Some(value);
        }
        let end = lines.iter().position(|byte| *byte == b'\n')?;
        lines = &lines[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::envelope::{LinkEnvelope, RemotePublisher};
    use crate::link::position::{PublisherPosition, StreamPoint};
    use crate::link::shares::share_of;
    use crate::message::{Headers, Message, Publisher, Verdict};
    use crate::rng::Rng;
    use crate::seqno::Frame;
    use crate::subject::Subject;
    use std::collections::BTreeSet;

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    /// Returns a number in an early frame up to 5, or in a later one.
    fn seq(number: u64) -> Seq {
        match number.checked_sub(5) {
            Some(count) => Seq::from_parts(Frame::new(9).unwrap(), count + 1).unwrap(),
            None => Seq::from_parts(Frame::new(7).unwrap(), number + 1).unwrap(),
        }
    }

    /// Returns a message with these numbers of its publisher.
    fn message(subject: &str, publisher: u64, seq: Option<Seq>) -> Message {
        let subject: Subject = subject.parse().unwrap();
        let position = PublisherPosition { seq, ..PublisherPosition::default() };
        let envelope = LinkEnvelope {
            site: "plant1".parse().unwrap(),
            share: share_of(&subject),
            number: 1,
            publisher: RemotePublisher { epoch: epoch(publisher), name: None },
            point: StreamPoint { gateway: epoch(100), first_number: 1, ordinal: 1, position },
        };
        let headers = envelope.add_to(&Headers::from_pairs([("key", "value")]).unwrap()).unwrap();
        Message { headers, ..Message::new(subject, Vec::new()) }
    }

    fn publisher(gateway: u64) -> Publisher {
        Publisher { name: None, epoch: epoch(gateway), uid: 1 }
    }

    fn run_of(gateway: u64, messages: &[Message]) -> Deliveries {
        Deliveries::run_of(messages, seq(0), publisher(gateway), Verdict::Next)
    }

    /// Returns the numbers of those messages on a subject that are left if a gateway delivers them.
    fn kept(filter: &mut RepeatFilter, gateway: u64, subject: &str, numbers: &[u64]) -> Vec<u64> {
        let messages: Vec<Message> = numbers.iter().map(|number| message(subject, 1, Some(seq(*number)))).collect();
        let left = filter.filter(run_of(gateway, &messages)).into_iter().flatten();
        let values = left.map(|delivery| LinkEnvelope::find(&delivery.message.headers).unwrap().unwrap());
        let seqs = values.map(|envelope| envelope.point.position.seq.unwrap());
        seqs.map(|left| (0..50).find(|number| seq(*number) == left).unwrap()).collect()
    }

    #[test]
    fn messages_of_another_gateway_are_dropped() {
        let mut filter = RepeatFilter::default();
        assert_eq!(kept(&mut filter, 10, "a", &[0, 1, 2]), [0, 1, 2]);
        assert_eq!(kept(&mut filter, 11, "a", &[1, 2, 3, 4]), [3, 4]);
        assert_eq!(kept(&mut filter, 10, "a", &[2, 3, 4, 5]), [2, 5], "the first one is for another subscription");
        assert_eq!(filter.dropped(), 4);
        assert_eq!(kept(&mut filter, 11, "b", &[1, 2]), [1, 2], "another stream");
    }

    #[test]
    fn late_messages_before_a_take_over_are_kept() {
        let mut filter = RepeatFilter::default();
        assert_eq!(kept(&mut filter, 10, "a", &[3, 4]), [3, 4]);
        assert_eq!(kept(&mut filter, 11, "a", &[8, 9]), [8, 9]);
        assert_eq!(kept(&mut filter, 10, "a", &[5, 6, 9]), [5, 6]);
        assert_eq!(kept(&mut filter, 12, "a", &[1, 2, 6, 7, 8, 10]), [1, 2, 7, 10]);
    }

    #[test]
    fn messages_without_numbers_are_kept() {
        let mut filter = RepeatFilter::default();
        let plain = Message::new("a".parse().unwrap(), Vec::new());
        let origin =
            |value| Message { headers: Headers::from_pairs([("seqcast-origin", value)]).unwrap(), ..plain.clone() };
        for message in [message("a", 1, None), origin("plant1"), origin("-"), origin(""), plain.clone()] {
            for gateway in [10, 11] {
                assert_eq!(filter.filter(run_of(gateway, std::slice::from_ref(&message))).len(), 1);
            }
        }
        assert_eq!(filter.dropped(), 0);
    }

    /// Returns the number of messages that are left if a gateway's peer repeats this one for a new subscription.
    fn replayed(filter: &mut RepeatFilter, gateway: u64, message: &Message) -> usize {
        let mut delivery = run_of(gateway, std::slice::from_ref(message)).next().unwrap();
        delivery.replayed = true;
        filter.filter(delivery.into()).len()
    }

    #[test]
    fn replayed_messages_are_kept_and_noted() {
        let mut filter = RepeatFilter::default();
        let numbered = message("a", 1, Some(seq(1)));
        assert_eq!([10, 11].map(|gateway| replayed(&mut filter, gateway, &numbered)), [1, 1]);
        assert_eq!(filter.filter(run_of(10, std::slice::from_ref(&numbered))).len(), 1);
        assert!(filter.filter(run_of(12, &[numbered])).is_empty(), "the first gateway has delivered it before");
    }

    #[test]
    fn streams_and_ranges_are_bounded() {
        let mut filter = RepeatFilter::with_limit(NonZeroUsize::new(2).unwrap());
        for subject in ["a", "b", "c"] {
            assert_eq!(kept(&mut filter, 10, subject, &[1]), [1]);
        }
        assert!(kept(&mut filter, 11, "c", &[1]).is_empty());
        assert_eq!(kept(&mut filter, 11, "a", &[1]), [1], "its stream is forgotten");
        for number in 0..40 {
            assert_eq!(kept(&mut filter, 10 + number % 2, "d", &[number]), [number]);
        }
        assert!(filter.streams.iter().all(|(_, ranges)| ranges.len() <= RANGES_MAX));
    }

    /// Gateways take over from each other, and deliver what they believe to be missing. Each number is left once, and
    /// none that was never delivered is dropped.
    #[test]
    fn random_take_overs_deliver_each_message_once() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut filter = RepeatFilter::default();
            let mut delivered = BTreeSet::new();
            let (mut next, mut gateway) = (0, 10);
            while next < 50 {
                if rng.below(4) == 0 {
                    gateway += 1;
                    next -= rng.below(4).min(next);
                }
                let fresh = delivered.insert(next);
                let left = kept(&mut filter, gateway, "a", &[next]);
                assert_eq!(left.len(), usize::from(fresh), "seed {seed}, number {next} of gateway {gateway}");
                next += 1;
            }
        }
    }
}
