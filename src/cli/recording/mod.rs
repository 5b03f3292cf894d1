//! The format of recordings: how messages and losses are stored in MCAP, and how a file is read back.
//!
//! `record` writes this format and `play` reads it. It belongs to the commands, since no other layer needs it. Writing
//! uses the crate `mcap`. Reading does not: the crate's parser reserves memory by lengths that a file claims, and its
//! chunk reader overflows on records that reach beyond their chunk. [`decode`] checks each length first and does no
//! I/O; [`reader`] does the I/O.

pub mod annotation;
pub mod decode;
pub mod decompress;
pub mod reader;

use std::fmt;

/// Profile in the header of a recording.
pub const PROFILE: &str = "seqcast";
/// Version of this mapping, in the metadata record of a recording.
pub const FORMAT_VERSION: &str = "1";
/// Name of the metadata record at the beginning of each file.
pub const METADATA_NAME: &str = "seqcast";
/// Key in the metadata of a channel that names its [`ChannelKind`]; other programs' channels have none.
pub const KIND_KEY: &str = "seqcast";
/// Key of the publisher's epoch in the metadata of a channel, in sixteen hexadecimal digits.
pub const EPOCH_KEY: &str = "epoch";
/// Key of the publisher's configured name in the metadata of a channel.
pub const PUBLISHER_KEY: &str = "publisher";

/// Contents of a channel of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// Messages of one subject and one publisher; the payload is the data.
    Message,
    /// Annotations: further properties of the message that follows in the file.
    Annotation,
    /// Losses on the bus.
    Loss,
    /// Messages that were received and not recorded.
    Drop,
}

impl ChannelKind {
    /// All kinds.
    pub const ALL: [ChannelKind; 4] =
        [ChannelKind::Message, ChannelKind::Annotation, ChannelKind::Loss, ChannelKind::Drop];

    /// Returns the name in the metadata of a channel.
    pub fn as_str(self) -> &'static str {
        match self {
            ChannelKind::Message => "message",
            ChannelKind::Annotation => "annotation",
            ChannelKind::Loss => "loss",
            ChannelKind::Drop => "drop",
        }
    }

    /// Returns the topic of the only channel of this kind; `None` for messages, whose topic is their subject.
    pub fn topic(self) -> Option<&'static str> {
        match self {
            ChannelKind::Message => None,
            ChannelKind::Annotation => Some("seqcast/annotations"),
            ChannelKind::Loss => Some("seqcast/losses"),
            ChannelKind::Drop => Some("seqcast/drops"),
        }
    }

    /// Returns name and JSON schema of the messages of this kind. Messages of the bus have the schema of any object, and
    /// only if their payload is JSON.
    pub fn schema(self) -> JsonSchema {
        let (name, text) = match self {
            ChannelKind::Message => ("json", r#"{"type":"object"}"#),
            ChannelKind::Annotation => ("seqcast.Annotation", ANNOTATION_SCHEMA),
            ChannelKind::Loss => ("seqcast.Loss", LOSS_SCHEMA),
            ChannelKind::Drop => ("seqcast.Drop", DROP_SCHEMA),
        };
        JsonSchema { name, text }
    }
}

/// Name and text of a JSON schema.
#[derive(Clone, Copy, Debug)]
pub struct JsonSchema {
    /// Name under which viewers list it.
    pub name: &'static str,
    /// The schema.
    pub text: &'static str,
}

const ANNOTATION_SCHEMA: &str = r#"{"type":"object","properties":{
"subject":{"type":"string"},"epoch":{"type":"string"},"sequence":{"type":"integer"},
"seq":{"type":["string","null"]},"offset":{"type":["integer","null"]},
"missing":{"type":["integer","object"]},"repaired":{"type":"boolean"},"replayed":{"type":"boolean"},
"event":{"type":"boolean"},"reply":{"type":"string"},"headers_base64":{"type":"string"},
"headers":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}"#;

const LOSS_SCHEMA: &str = r#"{"type":"object","properties":{
"text":{"type":"string"},"type":{"type":"string"},"kind":{"type":"string"},"subject":{"type":"string"},
"user":{"type":"string"},"publisher":{"type":["string","null"]},"epoch":{"type":"string"},
"reason":{"type":"string"},"cause":{"type":"string"},"time":{"type":"string"},
"first":{"type":["string","integer"]},"last":{"type":["string","integer"]},
"count":{"type":["integer","object"]},"messages":{"type":["integer","object"]},"after":{"type":"integer"},
"overrun_datagrams":{"type":"integer"},"network_datagrams":{"type":"integer"}}}"#;

const DROP_SCHEMA: &str = r#"{"type":"object","properties":{
"text":{"type":"string"},"type":{"type":"string"},"count":{"type":"integer"},"where":{"type":"string"}}}"#;

/// Place in this process at which received messages were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPlace {
    /// The queue between the peer and the subscription (`client-queue-size`).
    Subscription,
    /// The queue between the subscription and the file (`--max-memory`).
    Recorder,
}

impl DropPlace {
    /// Returns the name in a recording.
    pub fn as_str(self) -> &'static str {
        match self {
            DropPlace::Subscription => "subscription",
            DropPlace::Recorder => "recorder",
        }
    }
}

impl fmt::Display for DropPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DropPlace::Subscription => "the queue of the subscription was full (client-queue-size)",
            DropPlace::Recorder => "the queue to the file was full (--max-memory)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_json_objects() {
        for kind in ChannelKind::ALL {
            let schema: serde_json::Value = serde_json::from_str(kind.schema().text).unwrap();
            assert_eq!(schema["type"], "object", "{kind:?}");
        }
    }
}
