//! Manifests: what a gateway counted of each stream lately, in JSON.
//!
//! A manifest follows the messages that it names on the same connection, so an importer that misses one of them has
//! lost it. The manifests of one *round* name all streams of a share with messages behind a number. An importer that
//! missed a round requests another one from the last number up to which it knows everything. One message carries the
//! manifests of several shares that name few streams: those of an idle gateway come together.

use super::envelope::{RemotePublisher, frame_word, parse_epoch, parse_frame, parse_seq, seq_word};
use super::position::{NumberingEnd, PublisherPosition, StreamPoint};
use super::shares::SHARES;
use super::site_name::SiteName;
use crate::message::Epoch;
use crate::seqno::{Frame, Seq};
use crate::subject::Subject;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum number of streams in a manifest, and in all manifests of a message.
pub const ENTRIES_MAX: usize = 1024;
/// Maximum size of a message of manifests in bytes: the default size limit of a message at a NATS server.
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
    /// The bytes are not the JSON of manifests, or a field has another form: the name of the field.
    Malformed(&'static str),
    /// There are more manifests than [`SHARES`].
    TooManyShares,
    /// The manifests name more than [`ENTRIES_MAX`] streams.
    TooManyEntries,
    /// The numbers of the round contradict each other.
    Round,
    /// The numbers of a stream contradict each other.
    Stream,
}

impl fmt::Display for InvalidManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidManifest::TooLong => write!(f, "the manifests exceed {MANIFEST_BYTES_MAX} bytes"),
            InvalidManifest::Malformed(field) => write!(f, "the manifests have a malformed {field}"),
            InvalidManifest::TooManyShares => write!(f, "there are more than {SHARES} manifests in a message"),
            InvalidManifest::TooManyEntries => write!(f, "the manifests name more than {ENTRIES_MAX} streams"),
            InvalidManifest::Round => f.write_str("the numbers of the manifest's round contradict each other"),
            InvalidManifest::Stream => f.write_str("the numbers of a stream in the manifest contradict each other"),
        }
    }
}

impl std::error::Error for InvalidManifest {}

/// The JSON of the manifests in a message.
#[derive(Serialize, Deserialize)]
struct BatchText {
    site: String,
    gateway: String,
    shares: Vec<ManifestText>,
}

/// The JSON of a manifest. That of a round without others names neither its index nor their number, and numbers that
/// equal the one before are left out.
#[derive(Serialize, Deserialize)]
struct ManifestText {
    share: u8,
    carries: bool,
    after: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    named_to: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(default, skip_serializing_if = "is_first")]
    part: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    parts: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    streams: Vec<EntryText>,
}

fn is_first(part: &u32) -> bool {
    *part == 0
}

fn one() -> u32 {
    1
}

fn is_one(parts: &u32) -> bool {
    *parts == one()
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

/// Manifests of a gateway that one message carries: at most one for each share, with [`ENTRIES_MAX`] streams in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestBatch {
    manifests: Vec<LinkManifest>,
}

impl ManifestBatch {
    /// Appends a manifest of the same gateway. Returns the manifests before it if the message has no room for more.
    pub fn add(&mut self, manifest: LinkManifest) -> Option<ManifestBatch> {
        let entries: usize = self.manifests.iter().map(|manifest| manifest.entries.len()).sum();
        let has_room = self.manifests.len() < usize::from(SHARES) && entries + manifest.entries.len() <= ENTRIES_MAX;
        let full = (!has_room).then(|| std::mem::take(self));
        self.manifests.push(manifest);
        full
    }

    /// Returns the manifests as JSON; `None` if there are none.
    pub fn to_json(&self) -> Option<Vec<u8>> {
        let LinkManifest { site, gateway, .. } = self.manifests.first()?;
        let text = BatchText {
            site: site.to_string(),
            gateway: gateway.to_string(),
            shares: self.manifests.iter().map(ManifestText::new).collect(),
        };
        Some(serde_json::to_vec(&text).expect("strings and numbers can be written"))
    }

    /// Parses the manifests of a message. There is at least one.
    ///
    /// # Errors
    /// The bytes are too many, are not the JSON of manifests, or contradict themselves.
    pub fn from_json(bytes: &[u8]) -> Result<ManifestBatch, InvalidManifest> {
        if MANIFEST_BYTES_MAX < bytes.len() {
            return Err(InvalidManifest::TooLong);
        }
        let text: BatchText = serde_json::from_slice(bytes).map_err(|_| InvalidManifest::Malformed("JSON"))?;
        if usize::from(SHARES) < text.shares.len() {
            return Err(InvalidManifest::TooManyShares);
        }
        if ENTRIES_MAX < text.shares.iter().map(|share| share.streams.len()).sum() {
            return Err(InvalidManifest::TooManyEntries);
        }
        let site: SiteName = text.site.parse().map_err(|_| InvalidManifest::Malformed("site"))?;
        let gateway = parse_epoch(&text.gateway).ok_or(InvalidManifest::Malformed("gateway"))?;
        let manifests = text.shares.into_iter().map(|share| share.parse(&site, gateway));
        let manifests = manifests.collect::<Result<Vec<LinkManifest>, _>>()?;
        let batch = Some(ManifestBatch { manifests }).filter(|batch| !batch.manifests.is_empty());
        batch.ok_or(InvalidManifest::Malformed("shares"))
    }

    /// Returns the site of the gateway; `None` if there is no manifest.
    pub fn site(&self) -> Option<&SiteName> {
        self.manifests.first().map(|manifest| &manifest.site)
    }
}

impl IntoIterator for ManifestBatch {
    type Item = LinkManifest;
    type IntoIter = std::vec::IntoIter<LinkManifest>;

    fn into_iter(self) -> Self::IntoIter {
        self.manifests.into_iter()
    }
}

impl ManifestText {
    fn new(manifest: &LinkManifest) -> ManifestText {
        ManifestText {
            share: manifest.share,
            carries: manifest.carries,
            after: manifest.after,
            named_to: Some(manifest.named_to).filter(|named_to| *named_to != manifest.after),
            received: Some(manifest.received).filter(|received| *received != manifest.named_to),
            part: manifest.part,
            parts: manifest.parts,
            streams: manifest.entries.iter().map(EntryText::new).collect(),
        }
    }

    fn parse(self, site: &SiteName, gateway: Epoch) -> Result<LinkManifest, InvalidManifest> {
        let named_to = self.named_to.unwrap_or(self.after);
        let received = self.received.unwrap_or(named_to);
        if self.parts <= self.part || named_to < self.after || received < named_to {
            return Err(InvalidManifest::Round);
        }
        let entry = |entry: EntryText| {
            let entry = entry.parse(gateway)?;
            let is_named = self.after < entry.last_number && entry.last_number <= received;
            Some(entry).filter(|_| is_named).ok_or(InvalidManifest::Stream)
        };
        Ok(LinkManifest {
            site: site.clone(),
            gateway,
            share: Some(self.share).filter(|share| *share < SHARES).ok_or(InvalidManifest::Malformed("share"))?,
            carries: self.carries,
            after: self.after,
            named_to,
            received,
            part: self.part,
            parts: self.parts,
            entries: self.streams.into_iter().map(entry).collect::<Result<_, _>>()?,
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
