//! State of the durable messages of a gateway, as the other gateways of its LAN hear of it.

use crate::link::envelope::LinkEnvelope;
use crate::link::position::StreamPoint;
use crate::link::remote_stream_key::RemoteStreamKey;
use crate::subject::Subject;
use serde::{Deserialize, Serialize};

/// State of a gateway's durable messages, for the other gateways of its LAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::link) struct DurableAnnouncement {
    /// Milliseconds since it began to listen to the LAN.
    pub(super) listening_ms: u64,
    /// Age in milliseconds of its oldest message that is not stored; 0 if all are.
    pub(super) unstored_ms: u64,
    /// Whether it sends messages of shares that others carry.
    pub(super) draining: bool,
    /// Time of the position that the cluster has stored for this gateway, in nanoseconds since 1970; 0 if it does not read
    /// the stream, or does not know the time.
    pub(super) position_time: u64,
    /// Streams in which it waits for messages, some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) held: Vec<AnnouncedStream>,
}

/// A stream in which a gateway waits for messages before it reports them as lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnnouncedStream {
    /// Envelope of its last delivered message, without that message's number in the share.
    origin: String,
    subject: String,
}

impl AnnouncedStream {
    /// Returns a stream of which a message with the envelope `waiting` waits behind the point `last`.
    pub(super) fn new(key: &RemoteStreamKey, last: StreamPoint, waiting: LinkEnvelope) -> AnnouncedStream {
        let number = waiting.number.max(last.first_number);
        let origin = LinkEnvelope { point: last, number, ..waiting }.to_value();
        AnnouncedStream { origin, subject: key.subject.to_string() }
    }

    /// Returns the stream and its last point; `None` if the announcement is malformed.
    pub(super) fn read(&self) -> Option<(RemoteStreamKey, StreamPoint)> {
        let envelope = LinkEnvelope::from_value(&self.origin).ok()?;
        let subject: Subject = self.subject.parse().ok()?;
        Some((RemoteStreamKey::new(&envelope, &subject), envelope.point))
    }

    /// Returns the maximum bytes of its text (JSON), in which a character of the subject may take two.
    pub(super) fn bytes(&self) -> usize {
        32 + self.origin.len() + 2 * self.subject.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_streams_are_read_as_written() {
        let waiting = "plant1 6b1f90a2c3d4e5f6 3 9 2 7 b41c09e2aa70d355 - - - -";
        let waiting = LinkEnvelope::from_value(waiting).unwrap();
        let key = RemoteStreamKey::new(&waiting, &"orders.1".parse().unwrap());
        let last = StreamPoint { first_number: 12, ordinal: 5, ..waiting.point };
        let announced = AnnouncedStream::new(&key, last, waiting);
        assert_eq!(announced.read(), Some((key, last)));
        assert!(serde_json::to_string(&announced).unwrap().len() <= announced.bytes());
        for malformed in [("", "orders.1"), (announced.origin.as_str(), ""), ("plant1", "orders.1")] {
            let (origin, subject) = (malformed.0.to_owned(), malformed.1.to_owned());
            assert_eq!(AnnouncedStream { origin, subject }.read(), None);
        }
    }
}
