//! Manifests: what a gateway counted of each stream lately, in JSON.
//!
//! A manifest follows the messages that it names on the same connection, so an importer that misses one of them has
//! lost it. The manifests of one *round* name all streams with messages behind a number. An importer that missed a
//! round requests another one from the last number up to which it knows everything.

use super::envelope::{RemotePublisher, frame_word, parse_epoch, parse_frame, parse_seq, seq_word};
use super::position::{NumberingEnd, PublisherPosition, StreamPoint};
use super::shares::SHARES;
use super::site_name::SiteName;
use crate::message::Epoch;
use crate::seqno::{Frame, Seq};
use crate::subject::Subject;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum number of streams in a manifest.
pub const ENTRIES_MAX: usize = 1024;
/// Maximum size of a manifest in bytes: the default size limit of a message at a NATS server.
pub const MANIFEST_BYTES_MAX: usize = 1024 * 1024;

/// A stream in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The publisher.
    pub publisher: RemotePublisher,
    /// The subject.
    pub subject: Subject,
    /// Number in the share of the last message of the stream.
    pub last_number: u64,
    /// Point of that message.
    pub last: StreamPoint,
}

/// Part of what a gateway counted of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkManifest {
    /// Site of the gateway.
    pub site: SiteName,
    /// Epoch of the gateway.
    pub gateway: Epoch,
    /// The share.
    pub share: u8,
    /// Whether the gateway carries the share. If not, messages that the manifest names may still be on their way from
    /// another gateway.
    pub carries: bool,
    /// The manifests of this round name all streams with a message behind this number.
    pub after: u64,
    /// Number up to which the round names streams.
    pub named_to: u64,
    /// Number of the last message of the share that the gateway received. It exceeds `named_to` while another gateway
    /// carries the share.
    pub received: u64,
    /// Index of this manifest in its round.
    pub part: u32,
    /// Number of manifests in the round, at least 1.
    pub parts: u32,
    /// The streams of this part, at most [`ENTRIES_MAX`].
    pub entries: Vec<ManifestEntry>,
}

/// Reason for which bytes are no manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidManifest {
    /// There are more than [`MANIFEST_BYTES_MAX`] bytes.
    TooLong,
    /// The bytes are not the JSON of a manifest, or a field has another form: the name of the field.
    Malformed(&'static str),
    /// The manifest names more than [`ENTRIES_MAX`] streams.
    TooManyEntries,
    /// The numbers of the round contradict each other.
    Round,
    /// The numbers of a stream contradict each other.
    Stream,
}

impl fmt::Display for InvalidManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidManifest::TooLong => write!(f, "the manifest exceeds {MANIFEST_BYTES_MAX} bytes"),
            InvalidManifest::Malformed(field) => write!(f, "the manifest has a malformed {field}"),
            InvalidManifest::TooManyEntries => write!(f, "the manifest names more than {ENTRIES_MAX} streams"),
            InvalidManifest::Round => f.write_str("the numbers of the manifest's round contradict each other"),
            InvalidManifest::Stream => f.write_str("the numbers of a stream in the manifest contradict each other"),
        }
    }
}

impl std::error::Error for InvalidManifest {}

/// The JSON of a manifest.
#[derive(Serialize, Deserialize)]
struct ManifestText {
    site: String,
    gateway: String,
    share: u8,
    carries: bool,
    after: u64,
    named_to: u64,
    received: u64,
    part: u32,
    parts: u32,
    streams: Vec<EntryText>,
}

/// The JSON of a stream.
#[derive(Serialize, Deserialize)]
struct EntryText {
    publisher: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    subject: String,
    first: u64,
    last: u64,
    ordinal: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame: Option<String>,
    /// Number, offset and frame of the end of the numbering before.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<(String, Option<u32>, Option<String>)>,
    /// True if the numbers may include messages that are not exported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sparse: bool,
}

impl LinkManifest {
    /// Returns the manifest as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let text = ManifestText {
            site: self.site.to_string(),
            gateway: self.gateway.to_string(),
            share: self.share,
            carries: self.carries,
            after: self.after,
            named_to: self.named_to,
            received: self.received,
            part: self.part,
            parts: self.parts,
            streams: self.entries.iter().map(EntryText::new).collect(),
        };
        serde_json::to_vec(&text).expect("strings and numbers can be written")
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// The bytes are too many, are not the JSON of a manifest, or contradict themselves.
    pub fn from_json(bytes: &[u8]) -> Result<LinkManifest, InvalidManifest> {
        if MANIFEST_BYTES_MAX < bytes.len() {
            return Err(InvalidManifest::TooLong);
        }
        let text: ManifestText = serde_json::from_slice(bytes).map_err(|_| InvalidManifest::Malformed("JSON"))?;
        if ENTRIES_MAX < text.streams.len() {
            return Err(InvalidManifest::TooManyEntries);
        }
        if text.parts <= text.part || text.named_to < text.after || text.received < text.named_to {
            return Err(InvalidManifest::Round);
        }
        let gateway = parse_epoch(&text.gateway).ok_or(InvalidManifest::Malformed("gateway"))?;
        let entry = |entry: EntryText| {
            let entry = entry.parse(gateway)?;
            let is_named = text.after < entry.last_number && entry.last_number <= text.received;
            Some(entry).filter(|_| is_named).ok_or(InvalidManifest::Stream)
        };
        Ok(LinkManifest {
            site: text.site.parse().map_err(|_| InvalidManifest::Malformed("site"))?,
            gateway,
            share: Some(text.share).filter(|share| *share < SHARES).ok_or(InvalidManifest::Malformed("share"))?,
            carries: text.carries,
            after: text.after,
            named_to: text.named_to,
            received: text.received,
            part: text.part,
            parts: text.parts,
            entries: text.streams.into_iter().map(entry).collect::<Result<_, _>>()?,
        })
    }
}

impl EntryText {
    fn new(entry: &ManifestEntry) -> EntryText {
        let ManifestEntry { publisher, subject, last_number, last } = entry;
        let PublisherPosition { seq, offset, numbered_from, before, is_sparse } = last.position;
        let end = |end: NumberingEnd| (seq_word(end.seq), end.offset, end.numbered_from.map(frame_word));
        EntryText {
            publisher: publisher.epoch.to_string(),
            name: publisher.name.as_ref().map(ToString::to_string),
            subject: String::from_utf8_lossy(subject.as_bytes()).into_owned(),
            first: last.first_number,
            last: *last_number,
            ordinal: last.ordinal,
            seq: seq.map(seq_word),
            offset,
            frame: numbered_from.map(frame_word),
            before: before.map(end),
            sparse: is_sparse,
        }
    }

    fn parse(self, gateway: Epoch) -> Result<ManifestEntry, InvalidManifest> {
        if self.first == 0 || self.ordinal == 0 || self.last < self.first {
            return Err(InvalidManifest::Stream);
        }
        let name = self.name.map(|name| name.parse().map_err(|_| InvalidManifest::Malformed("name")));
        let before = self.before.map(|(seq, offset, frame)| {
            Ok(NumberingEnd { seq: read_seq(seq)?, offset, numbered_from: frame.map(read_frame).transpose()? })
        });
        let position = PublisherPosition {
            seq: self.seq.map(read_seq).transpose()?,
            offset: self.offset,
            numbered_from: self.frame.map(read_frame).transpose()?,
            before: before.transpose()?,
            is_sparse: self.sparse,
        };
        let epoch = parse_epoch(&self.publisher).ok_or(InvalidManifest::Malformed("publisher"))?;
        Ok(ManifestEntry {
            publisher: RemotePublisher { epoch, name: name.transpose()? },
            subject: self.subject.parse().map_err(|_| InvalidManifest::Malformed("subject"))?,
            last_number: self.last,
            last: StreamPoint { gateway, first_number: self.first, ordinal: self.ordinal, position },
        })
    }
}

fn read_seq(word: String) -> Result<Seq, InvalidManifest> {
    parse_seq(&word).ok_or(InvalidManifest::Malformed("seq"))
}

fn read_frame(word: String) -> Result<Frame, InvalidManifest> {
    parse_frame(&word).ok_or(InvalidManifest::Malformed("frame"))
}
