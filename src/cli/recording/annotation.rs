//! Annotations: properties of messages that MCAP has no fields for. An annotation precedes the message that it describes,
//! and only messages with such properties have one.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::message::{Count, Headers};

/// Properties of the next message of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Annotation {
    /// Subject of the message.
    pub subject: String,
    /// Epoch of its publisher, in sixteen hexadecimal digits.
    pub epoch: String,
    /// Sequence field of the message: the low 32 bits of its number.
    pub sequence: u32,
    /// The whole number, as in `0x5c19adc000000001`; null if the publisher gave it none.
    pub seq: Option<String>,
    /// Offset in the publisher's history; null if unknown.
    pub offset: Option<u32>,
    /// Number of messages that are missing before the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingCount>,
    /// True if the message was missing at first and arrived on request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    /// True if the message came from the publisher's history.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// True for a journalled event.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub event: bool,
    /// Subject to which an answer was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Header fields in their order, if they are `key: value` lines in UTF-8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Any other block of header fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_base64: Option<String>,
}

/// A number of missing messages in JSON: exact, or between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MissingCount {
    /// The exact number.
    Exact(u64),
    /// The number lies between these.
    Between {
        /// Smallest possible number.
        min: u64,
        /// Largest possible number.
        max: u64,
    },
}

impl From<Count> for MissingCount {
    fn from(count: Count) -> MissingCount {
        match count {
            Count::Exact(count) => MissingCount::Exact(count),
            Count::Between { min, max } => MissingCount::Between { min, max },
        }
    }
}

impl Annotation {
    /// Stores a block of header fields; a block that pairs cannot express is stored in Base64.
    pub fn set_headers(&mut self, block: &[u8]) {
        let headers = Headers::from_block(Bytes::copy_from_slice(block));
        let is_exact = Headers::from_pairs(headers.iter()).is_ok_and(|again| again == headers);
        if is_exact {
            self.headers = headers.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        } else {
            self.headers_base64 = Some(BASE64_STANDARD.encode(block));
        }
    }

    /// Returns the header fields; fields of a foreign file that are not valid are omitted.
    pub fn message_headers(&self) -> Headers {
        match &self.headers_base64 {
            Some(block) => {
                BASE64_STANDARD.decode(block).map_or_else(|_| Headers::new(), |block| Headers::from_block(block.into()))
            }
            None => {
                let pairs = self.headers.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                Headers::from_pairs(pairs).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_back_unchanged() {
        let blocks: [&[u8]; 4] = [b"", b"a: 1\r\nB: two words\r\na: \r\n", b"a:1\r\n", b"\xff\xfe: 1\r\nno colon"];
        for block in blocks {
            let mut annotation = Annotation::default();
            annotation.set_headers(block);
            let text = serde_json::to_string(&annotation).unwrap();
            let read: Annotation = serde_json::from_str(&text).unwrap();
            assert_eq!(read.message_headers().block(), block, "{text}");
        }
    }

    #[test]
    fn ordinary_message_needs_three_fields() {
        let annotation = Annotation { subject: "a.b".into(), epoch: "0abc".into(), ..Annotation::default() };
        let text = r#"{"subject":"a.b","epoch":"0abc","sequence":0,"seq":null,"offset":null}"#;
        assert_eq!(serde_json::to_string(&annotation).unwrap(), text);
    }
}
