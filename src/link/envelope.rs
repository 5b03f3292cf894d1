//! The envelope of a message between sites: one header field with its site, its gateway, and its publisher's numbers.
//!
//! ```text
//! Seqcast-Origin: plant1 6b1f90a2c3d4e5f6 3 1207 1102 18 b41c09e2aa70d355 A.test 5c19adc000000007 4711 b8335b8
//!                 site   gateway          |  |    |    |  publisher        name   seq              offset frame
//!                                         |  |    |    ordinal: the 18th message that the gateway counted
//!                                         |  |    number of the first message of that count
//!                                         |  number of this message in the share
//!                                         share
//! ```
//!
//! The frame is the one in which the publisher began to number the subject, in hexadecimal. A value that is unknown is
//! `-`. Three words follow if the publisher numbered the subject before: the last number, offset and frame of that.

use super::position::{NumberingEnd, PublisherPosition, StreamPoint};
use super::shares::SHARES;
use super::site_name::SiteName;
use crate::message::{Epoch, HeaderError, Headers, PeerName};
use crate::seqno::{Frame, Seq};
use std::fmt::{self, Display, Write};

/// Key of the header field.
pub const ORIGIN_HEADER: &str = "Seqcast-Origin";
/// Maximum length of the value in bytes. The longest one that a gateway writes has 290.
pub const ENVELOPE_BYTES_MAX: usize = 512;

/// Index of the word with the epoch of the publisher.
pub(super) const PUBLISHER_WORD: usize = 6;
/// Index of the word with the publisher's number of the message.
pub(super) const SEQ_WORD: usize = 8;

/// First capacity of a value in bytes, which most values fit.
const VALUE_BYTES: usize = 160;
/// Word instead of the offset if the publisher's numbers may include messages that are not exported.
const SPARSE: &str = "sparse";

/// Publisher of a message in another site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemotePublisher {
    /// Epoch of the publisher.
    pub epoch: Epoch,
    /// Its configured name, or `None` if the gateway did not know it yet.
    pub name: Option<PeerName>,
}

/// Contents of the header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEnvelope {
    /// Site of the publisher.
    pub site: SiteName,
    /// Share of the subject, below [`SHARES`].
    pub share: u8,
    /// Number of the message among all messages of the share that the gateway has received, from 1.
    pub number: u64,
    /// The publisher.
    pub publisher: RemotePublisher,
    /// Point of the message in its stream.
    pub point: StreamPoint,
}

/// A word of the header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeField {
    /// Name of the site.
    Site,
    /// Epoch of the gateway.
    Gateway,
    /// The share.
    Share,
    /// Number of the message in the share.
    Number,
    /// Number of the first message of the gateway's count.
    FirstNumber,
    /// Ordinal of the message in that count.
    Ordinal,
    /// Epoch of the publisher.
    Publisher,
    /// Name of the publisher.
    Name,
    /// The publisher's number of the message.
    Seq,
    /// Offset in the subject's history.
    Offset,
    /// Frame in which the numbering began.
    Frame,
}

/// Reason for which a header field is no envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidEnvelope {
    /// The value is longer than [`ENVELOPE_BYTES_MAX`].
    TooLong,
    /// The word is missing.
    Missing(EnvelopeField),
    /// The word has another form, or contradicts the words before it.
    Malformed(EnvelopeField),
}

impl Display for InvalidEnvelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidEnvelope::TooLong => write!(f, "the header {ORIGIN_HEADER} exceeds {ENVELOPE_BYTES_MAX} bytes"),
            InvalidEnvelope::Missing(field) => write!(f, "the header {ORIGIN_HEADER} has no {field:?}"),
            InvalidEnvelope::Malformed(field) => write!(f, "the header {ORIGIN_HEADER} has a malformed {field:?}"),
        }
    }
}

impl std::error::Error for InvalidEnvelope {}

impl LinkEnvelope {
    /// Returns the value of the header field.
    pub fn to_value(&self) -> String {
        let LinkEnvelope { site, share, number, publisher, point } = self;
        let StreamPoint { gateway, first_number, ordinal, position } = point;
        let mut value = String::with_capacity(VALUE_BYTES);
        let publisher_epoch = publisher.epoch;
        write!(value, "{site} {gateway} {share} {number} {first_number} {ordinal} {publisher_epoch}")
            .expect("a string takes everything");
        push(&mut value, publisher.name.as_ref());
        push(&mut value, position.seq.map(SeqWord));
        match position.is_sparse {
            true => push(&mut value, Some(SPARSE)),
            false => push(&mut value, position.offset),
        }
        push(&mut value, position.numbered_from.map(FrameWord));
        if let Some(before) = position.before {
            push(&mut value, Some(SeqWord(before.seq)));
            push(&mut value, before.offset);
            push(&mut value, before.numbered_from.map(FrameWord));
        }
        value
    }

    /// Parses the value of the header field. Words that a later version appends are ignored.
    ///
    /// # Errors
    /// The value is too long, a word is missing or has another form, or the numbers contradict each other.
    pub fn from_value(value: &str) -> Result<LinkEnvelope, InvalidEnvelope> {
        use EnvelopeField as Field;
        if ENVELOPE_BYTES_MAX < value.len() {
            return Err(InvalidEnvelope::TooLong);
        }
        let mut words = Words(value.split(' '));
        let site = words.required(Field::Site, |word| word.parse().ok())?;
        let gateway = words.required(Field::Gateway, parse_epoch)?;
        let share = words.required(Field::Share, |word| word.parse().ok().filter(|share| *share < SHARES))?;
        let number = words.required(Field::Number, parse_number)?;
        let within = |count: &u64| *count <= number;
        let first_number = words.required(Field::FirstNumber, |word| parse_number(word).filter(within))?;
        let ordinal = words.required(Field::Ordinal, parse_number)?;
        let epoch = words.required(Field::Publisher, parse_epoch)?;
        let name = words.optional(Field::Name, |word| word.parse().ok())?;
        let seq = words.optional(Field::Seq, parse_seq)?;
        let (is_sparse, offset) = match words.optional(Field::Offset, parse_offset)? {
            Some(SparseOffset::Sparse) => (true, None),
            Some(SparseOffset::Dense(offset)) => (false, Some(offset)),
            None => (false, None),
        };
        let numbered_from = words.optional(Field::Frame, parse_frame)?;
        let before = match words.0.next() {
            Some(end) => Some(NumberingEnd {
                seq: parse_seq(end).ok_or(InvalidEnvelope::Malformed(Field::Seq))?,
                offset: words.optional(Field::Offset, |word| word.parse().ok())?,
                numbered_from: words.optional(Field::Frame, parse_frame)?,
            }),
            None => None,
        };
        let position = PublisherPosition { seq, offset, numbered_from, before, is_sparse };
        let point = StreamPoint { gateway, first_number, ordinal, position };
        Ok(LinkEnvelope { site, share, number, publisher: RemotePublisher { epoch, name }, point })
    }

    /// Returns whether there is an envelope among header fields, even a malformed one.
    pub fn is_in(headers: &Headers) -> bool {
        headers.field(ORIGIN_HEADER).is_some()
    }

    /// Returns whether header fields are those of a request or a reply, whose origin is the name of a site or `-`.
    pub fn is_relayed(headers: &Headers) -> bool {
        headers.field(ORIGIN_HEADER).is_some_and(|value| value == "-" || value.parse::<SiteName>().is_ok())
    }

    /// Returns the envelope among header fields, if there is one. Of several the first counts.
    pub fn find(headers: &Headers) -> Option<Result<LinkEnvelope, InvalidEnvelope>> {
        headers.field(ORIGIN_HEADER).map(LinkEnvelope::from_value)
    }

    /// Returns the header fields of a message with this envelope in front, and without any other one.
    ///
    /// # Errors
    /// One of the fields cannot be written.
    pub fn add_to(&self, headers: &Headers) -> Result<Headers, HeaderError> {
        let value = self.to_value();
        let others = headers.iter().filter(|(key, _)| !key.eq_ignore_ascii_case(ORIGIN_HEADER));
        Headers::from_pairs(std::iter::once((ORIGIN_HEADER, &*value)).chain(others))
    }
}

/// The words of a value that are still to be read.
struct Words<'a>(std::str::Split<'a, char>);

impl Words<'_> {
    fn required<T>(
        &mut self,
        field: EnvelopeField,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, InvalidEnvelope> {
        let word = self.0.next().ok_or(InvalidEnvelope::Missing(field))?;
        parse(word).ok_or(InvalidEnvelope::Malformed(field))
    }

    /// Reads a word that may be `-`.
    fn optional<T>(
        &mut self,
        field: EnvelopeField,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, InvalidEnvelope> {
        self.required(field, |word| if word == "-" { Some(None) } else { parse(word).map(Some) })
    }
}

fn push(value: &mut String, word: Option<impl Display>) {
    match word {
        Some(word) => write!(value, " {word}").expect("a string takes everything"),
        None => value.push_str(" -"),
    }
}

/// The 16 hexadecimal digits of a number.
struct SeqWord(Seq);

impl Display for SeqWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0.raw())
    }
}

/// The hexadecimal digits of a frame.
struct FrameWord(Frame);

impl Display for FrameWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0.number())
    }
}

/// Returns the 16 hexadecimal digits of a number.
pub(super) fn seq_word(seq: Seq) -> String {
    SeqWord(seq).to_string()
}

/// Returns the hexadecimal digits of a frame.
pub(super) fn frame_word(frame: Frame) -> String {
    FrameWord(frame).to_string()
}

/// The word of the offset.
enum SparseOffset {
    Dense(u32),
    Sparse,
}

fn parse_offset(word: &str) -> Option<SparseOffset> {
    if word == SPARSE { Some(SparseOffset::Sparse) } else { word.parse().ok().map(SparseOffset::Dense) }
}

fn parse_number(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| 0 < *number)
}

/// Parses the hexadecimal digits of a number.
pub(super) fn parse_seq(word: &str) -> Option<Seq> {
    Seq::new(u64::from_str_radix(word, 16).ok()?)
}

/// Parses the hexadecimal digits of a frame.
pub(super) fn parse_frame(word: &str) -> Option<Frame> {
    Frame::new(u32::from_str_radix(word, 16).ok()?)
}

/// Parses the 16 hexadecimal digits of an epoch.
pub(super) fn parse_epoch(word: &str) -> Option<Epoch> {
    Some(word).filter(|word| word.len() == 16).and_then(|word| u64::from_str_radix(word, 16).ok()).and_then(Epoch::new)
}
