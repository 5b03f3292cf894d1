//! Requests for messages that the stream has lost, from the site that waits for them to the one that has exported them.

use crate::link::envelope::{parse_epoch, parse_seq, seq_word};
use crate::link::stream_counts::LinkStreamKey;
use crate::seqno::{Frame, Seq};
use serde::{Deserialize, Serialize};
use std::ops::Bound;

/// Maximum number of gaps that a request names.
pub(super) const REQUESTED_GAPS_MAX: usize = 64;

/// A gap in a stream: messages that an importer misses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMessages {
    /// The stream of the messages.
    pub(in crate::link) stream: LinkStreamKey,
    /// Number of the message behind which they are; `None` if the importer knows of none.
    pub(in crate::link) after: Option<Seq>,
    /// Number of the message before which they are.
    pub(in crate::link) before: Seq,
    /// Maximum number of these messages. They are the last ones before `before`.
    pub(in crate::link) count_max: u64,
}

impl MissingMessages {
    /// Returns the bound behind which they are, in the order of streams and numbers.
    pub(super) fn begin(&self) -> Bound<(LinkStreamKey, Seq)> {
        match self.after {
            Some(after) => Bound::Excluded((self.stream.clone(), after)),
            None => Bound::Included((self.stream.clone(), Frame::default().first())),
        }
    }

    /// Adds the messages of another gap of the stream, which overlaps this one. Two sites may miss the same ones.
    pub(super) fn merge(&mut self, other: &MissingMessages) {
        let is_same = (self.after, self.before) == (other.after, other.before);
        self.count_max = match (self.after, other.after) {
            _ if is_same => self.count_max.max(other.count_max),
            (Some(_), Some(_)) => self.count_max.saturating_add(other.count_max),
            // The missing ones of the earlier gap may be anywhere.
            _ => u64::MAX,
        };
        self.after = self.after.min(other.after);
        self.before = self.before.max(other.before);
    }
}

/// A request.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRequest {
    missing: Vec<MissingText>,
}

/// The JSON of [`MissingMessages`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub fn from_json(text: &[u8]) -> Option<RestoreRequest> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the text of the request.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers can be written")
    }

    /// Adds the messages of a further gap.
    pub fn push(&mut self, missing: &MissingMessages) {
        self.missing.push(MissingText {
            publisher: missing.stream.publisher.to_string(),
            subject: missing.stream.subject.to_string(),
            after: missing.after.map(seq_word),
            before: seq_word(missing.before),
            count: missing.count_max,
        });
    }

    /// Returns the messages that are requested, without those of gaps whose description is malformed, and of gaps beyond the
    /// maximum number.
    pub fn messages(&self) -> impl Iterator<Item = MissingMessages> {
        self.missing.iter().take(REQUESTED_GAPS_MAX).filter_map(MissingText::read)
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
        assert_eq!(request.messages().count(), REQUESTED_GAPS_MAX);
        let text = String::from_utf8(text).unwrap();
        for malformed in [text.replace("orders.1", "orders..1"), text.replace("\"before\":\"", "\"before\":\"x")] {
            let read = RestoreRequest::from_json(malformed.as_bytes()).expect("a request");
            assert_eq!(read.messages().count(), 0, "{malformed}");
        }
        assert!(RestoreRequest::from_json(b"{}").is_none());
    }
}
