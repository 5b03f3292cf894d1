//! Requests for messages that the stream has lost, from the site that waits for them to the one that has exported them.

use crate::link::envelope::{parse_epoch, parse_seq, seq_word};
use crate::link::stream_counts::LinkStreamKey;
use crate::seqno::Seq;
use serde::{Deserialize, Serialize};

/// Maximum number of streams that a request names.
pub(super) const REQUESTED_STREAMS_MAX: usize = 64;

/// Messages of a stream that an importer misses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingMessages {
    pub(super) stream: LinkStreamKey,
    /// Number of the message behind which they are; `None` if the importer knows of none.
    pub(super) after: Option<Seq>,
    /// Number of the message before which they are.
    pub(super) before: Seq,
    /// Maximum number of these messages. They are the last ones before `before`.
    pub(super) count_max: u64,
}

/// A request.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::link) struct RestoreRequest {
    streams: Vec<MissingText>,
}

/// The JSON of [`MissingMessages`].
#[derive(Debug, Serialize, Deserialize)]
struct MissingText {
    publisher: String,
    subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    before: String,
    count: u64,
}

impl RestoreRequest {
    /// Parses a request; `None` if it is malformed.
    pub(in crate::link) fn from_json(text: &[u8]) -> Option<RestoreRequest> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the text of the request.
    pub(in crate::link) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers can be written")
    }

    /// Adds messages of a further stream.
    pub(super) fn push(&mut self, missing: &MissingMessages) {
        self.streams.push(MissingText {
            publisher: missing.stream.publisher.to_string(),
            subject: missing.stream.subject.to_string(),
            after: missing.after.map(seq_word),
            before: seq_word(missing.before),
            count: missing.count_max,
        });
    }

    /// Returns the messages that are requested, without those of streams whose description is malformed, and of streams
    /// beyond the maximum number.
    pub(super) fn messages(&self) -> impl Iterator<Item = MissingMessages> {
        self.streams.iter().take(REQUESTED_STREAMS_MAX).filter_map(MissingText::read)
    }
}

impl MissingText {
    fn read(&self) -> Option<MissingMessages> {
        let after = match &self.after {
            Some(word) => Some(parse_seq(word)?),
            None => None,
        };
        let before = parse_seq(&self.before)?;
        if after.is_some_and(|after| before <= after) {
            return None;
        }
        Some(MissingMessages {
            stream: LinkStreamKey { publisher: parse_epoch(&self.publisher)?, subject: self.subject.parse().ok()? },
            after,
            before,
            count_max: self.count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;
    use crate::seqno::Frame;

    #[test]
    fn requests_are_read_as_written() {
        let seq = |number| Seq::from_parts(Frame::new(7).unwrap(), number).unwrap();
        let stream = LinkStreamKey { publisher: Epoch::new(9).unwrap(), subject: "orders.1".parse().unwrap() };
        let missing = MissingMessages { stream, after: Some(seq(4)), before: seq(7), count_max: 2 };
        let first = MissingMessages { after: None, ..missing.clone() };
        let mut request = RestoreRequest::default();
        [&missing, &first].into_iter().for_each(|messages| request.push(messages));
        let text = request.to_json();
        let read = RestoreRequest::from_json(&text).expect("a request");
        assert_eq!(read.messages().collect::<Vec<_>>(), [missing.clone(), first]);
        (0..100).for_each(|_| request.push(&missing));
        assert_eq!(request.messages().count(), REQUESTED_STREAMS_MAX);
        let text = String::from_utf8(text).unwrap();
        for malformed in [text.replace("orders.1", "orders..1"), text.replace("\"before\":\"", "\"before\":\"x")] {
            let read = RestoreRequest::from_json(malformed.as_bytes()).expect("a request");
            assert_eq!(read.messages().count(), 0, "{malformed}");
        }
        assert!(RestoreRequest::from_json(b"{}").is_none());
    }
}
