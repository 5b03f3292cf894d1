//! Messages that the stream has stored, for some time.
//!
//! A cluster may lose messages that it has confirmed (nats-server 2.9.10, after deaths of servers and full disks). Then
//! an importing site requests them, and they are stored once more.

use super::restore_request::MissingMessages;
use crate::link::envelope::LinkEnvelope;
use crate::link::stream_counts::LinkStreamKey;
use crate::message::Message;
use crate::seqno::Seq;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

/// Time for which messages are retained: as long as the stream recognizes those that come twice.
const RETAINED_TIME: Duration = Duration::from_secs(120);
/// Maximum bytes of the messages.
const RETAINED_BYTES_MAX: usize = 32 << 20;
/// Bytes that a message counts beside its payload and its header fields.
const MESSAGE_BYTES: usize = 384;

#[derive(Debug)]
struct RetainedMessage {
    message: Message,
    /// A stream sequence that the stream had given before it stored the message.
    stored_behind: u64,
    is_restored: bool,
}

impl RetainedMessage {
    fn bytes(&self) -> usize {
        MESSAGE_BYTES + self.message.body_bytes()
    }
}

/// The messages, by their streams and numbers.
#[derive(Debug, Default)]
pub(super) struct RetainedMessages {
    messages: BTreeMap<(LinkStreamKey, Seq), RetainedMessage>,
    /// Keys of the messages with the times at which they were stored, oldest first.
    by_time: VecDeque<(Instant, LinkStreamKey, Seq)>,
    bytes: usize,
}

impl RetainedMessages {
    /// Retains a message that was stored behind this stream sequence, but not one that its publisher has not numbered:
    /// importers would not recognize it.
    pub(super) fn put(&mut self, now: Instant, stored_behind: u64, message: &Message) {
        let Some(Ok(envelope)) = LinkEnvelope::find(&message.headers) else { return };
        let Some(seq) = envelope.point.position.seq else { return };
        // The memory of a whole datagram is not retained.
        let subject = message.subject.detached();
        let payload = Bytes::copy_from_slice(&message.payload);
        let stream = LinkStreamKey { publisher: envelope.publisher.epoch, subject: subject.clone() };
        let message = Message { subject, payload, ..message.clone() };
        let retained = RetainedMessage { message, stored_behind, is_restored: false };
        let key = (stream.clone(), seq);
        if self.messages.contains_key(&key) {
            return;
        }
        self.bytes += retained.bytes();
        self.messages.insert(key, retained);
        self.by_time.push_back((now, stream, seq));
        self.expire(now);
    }

    /// Forgets messages that are too old or too many.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_old = |at: Instant| RETAINED_TIME <= now.since(at);
        while self.by_time.front().is_some_and(|(at, ..)| is_old(*at) || RETAINED_BYTES_MAX < self.bytes)
            && let Some((_, stream, seq)) = self.by_time.pop_front()
        {
            let removed = self.messages.remove(&(stream, seq));
            self.bytes -= removed.map_or(0, |retained| retained.bytes());
        }
    }

    /// Returns the numbers of the messages among `missing` that may be stored once more, in their order: those that the
    /// stream has not removed by its limits, whose first message has the stream sequence `first`.
    pub(super) fn restorable(&self, missing: &MissingMessages, first: u64) -> Vec<Seq> {
        let MissingMessages { stream, after, before, count_max } = missing;
        if after.is_some_and(|after| *before <= after) {
            return Vec::new();
        }
        let range = self.messages.range((missing.begin(), Bound::Excluded((stream.clone(), *before))));
        let count_max = usize::try_from(*count_max).unwrap_or(usize::MAX);
        let last = range.rev().take(count_max);
        let is_restorable =
            |retained: &RetainedMessage| !retained.is_restored && first.saturating_sub(1) <= retained.stored_behind;
        let mut seqs: Vec<Seq> =
            last.filter(|(_, retained)| is_restorable(retained)).map(|((_, seq), _)| *seq).collect();
        seqs.reverse();
        seqs
    }

    /// Returns a message to be stored once more.
    pub(super) fn message(&self, stream: &LinkStreamKey, seq: Seq) -> Option<&Message> {
        Some(&self.messages.get(&(stream.clone(), seq))?.message)
    }

    /// Notes that a message is stored once more. That happens once.
    pub(super) fn on_restored(&mut self, stream: &LinkStreamKey, seq: Seq) {
        if let Some(retained) = self.messages.get_mut(&(stream.clone(), seq)) {
            retained.is_restored = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Epoch, Headers};
    use crate::seqno::Frame;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn seq(number: u64) -> Seq {
        Seq::from_parts(Frame::new(7).unwrap(), number).unwrap()
    }

    fn stream() -> LinkStreamKey {
        LinkStreamKey { publisher: Epoch::new(9).unwrap(), subject: "orders.1".parse().unwrap() }
    }

    /// Returns the message with this number of its publisher, or without one.
    fn message(number: Option<u64>, payload: usize) -> Message {
        let word = number.map_or("-".to_owned(), |number| crate::link::envelope::seq_word(seq(number)));
        let origin = format!("plant1 6b1f90a2c3d4e5f6 3 9 2 7 0000000000000009 - {word} - -");
        let headers = Headers::from_pairs([("Seqcast-Origin", origin.as_str())]).unwrap();
        Message { headers, ..Message::new("orders.1".parse().unwrap(), vec![7; payload]) }
    }

    fn missing(after: Option<u64>, before: u64, count_max: u64) -> MissingMessages {
        MissingMessages { stream: stream(), after: after.map(seq), before: seq(before), count_max }
    }

    #[test]
    fn missing_messages_are_restored_once() {
        let mut retained = RetainedMessages::default();
        (1..=9).for_each(|number| retained.put(at(0), 100 + number, &message(Some(number), 10)));
        retained.put(at(0), 110, &message(None, 10));
        let found = |retained: &RetainedMessages, missing: MissingMessages, first| -> Vec<u64> {
            retained.restorable(&missing, first).into_iter().map(Seq::count).collect()
        };
        for (what, missing, first, expected) in [
            ("between two", missing(Some(3), 7, u64::MAX), 1, &[4, 5, 6][..]),
            ("from the begin", missing(None, 4, u64::MAX), 1, &[1, 2, 3]),
            ("the last ones", missing(None, 10, 2), 1, &[8, 9]),
            ("removed by the limits", missing(None, 10, u64::MAX), 109, &[8, 9]),
            ("none between", missing(Some(3), 4, u64::MAX), 1, &[]),
            ("in the wrong order", missing(Some(7), 3, u64::MAX), 1, &[]),
            ("the same", missing(Some(3), 3, u64::MAX), 1, &[]),
        ] {
            assert_eq!(found(&retained, missing, first), expected, "{what}");
        }
        retained.on_restored(&stream(), seq(5));
        assert_eq!(found(&retained, missing(Some(3), 7, u64::MAX), 1), [4, 6]);
        assert_eq!(retained.message(&stream(), seq(4)), Some(&message(Some(4), 10)));
    }

    #[test]
    fn retained_messages_are_bounded_and_expire() {
        let mut retained = RetainedMessages::default();
        (1..=100).for_each(|number| retained.put(at(number), 0, &message(Some(number), 1 << 20)));
        assert!(retained.bytes <= RETAINED_BYTES_MAX && 30 < retained.messages.len(), "{} bytes", retained.bytes);
        assert_eq!(retained.messages.len(), retained.by_time.len());
        retained.expire(at(100 + RETAINED_TIME.as_secs() - 1));
        assert_eq!(retained.messages.len(), 1);
        retained.expire(at(100 + RETAINED_TIME.as_secs()));
        assert_eq!((retained.messages.len(), retained.bytes), (0, 0));
    }
}
