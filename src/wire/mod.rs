//! Wire version 1: the byte layout of every datagram and record.
//!
//! `docs/wire.md` is the specification; each struct here carries its bit diagram. Bytes from the network are checked
//! once, by [`decode`]. Its result is checked in every respect that does not need the state of a stream. All numbers
//! are big-endian. This module uses no sockets, no time and no state of streams.
//!
//! ```text
//! datagram = header (36 bytes, 44 if directed) · record* · check (4 bytes in mode 0)
//! record   = type u8 · flags u8 · length u16 · body (length bytes)
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod beacon;
mod builder;
mod control;
pub(crate) mod entry;
mod error;
mod fragment;
mod header;
mod interest;
mod keyed;
mod manifest;
mod pace;
pub(crate) mod queue;
mod reader;
mod repair;
mod run;
#[cfg(test)]
mod tests;

pub use beacon::Beacon;
pub use builder::{Builder, Entry, RETAINED_BYTES_MIN, fits_alone, sealed_allocation_max};
pub use control::{Hello, InterestAnnouncement, PeerAnnouncement, QueueReport, Report, ShareCount, encode_control};
pub use error::{DecodeError, DiscardReason};
pub use fragment::{FRAGMENT_TOTAL_MAX, Fragment, assemble, body_of};
pub use header::{Header, Kind};
pub use interest::{INTEREST_COUNT_MAX, Interest, InterestEntry, InterestRequest};
#[cfg(any(all(test, feature = "security"), feature = "sim"))]
pub(crate) use keyed::padding;
pub use keyed::{KeyChoice, KeyedHeader, has_record_for_one, into_keyed, into_open, with_check_value};
pub use manifest::{Content, ContentKind, Manifest, ManifestBuilder, contents_of, decode_contents, put_contents};
pub use pace::{ReceiverReport, WINDOW_DATAGRAM_BYTES};
pub use repair::{ExpiryNotice, Range, ResendRequest};
pub use run::{Run, RunMessages};
pub(crate) use {
    entry::{put_varint, varint_bytes},
    reader::Reader,
    run::EntryMeta,
};

use crate::message::{Epoch, Stamp};
use bytes::Bytes;

/// The first two bytes of every datagram: "SC".
pub const MAGIC: u16 = 0x5343;
/// The version of this layout.
pub const VERSION: u8 = 1;
/// The security mode without keys: a CRC32C ends the datagram. Other modes are reserved.
pub const MODE_OPEN: u8 = 0;
/// The largest datagram in bytes: what UDP over IPv4 carries.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// All dseqs, counters and counts lie below this, so that sums of two never overflow 64 bits.
pub const NUMBER_LIMIT: u64 = 1 << 63;

/// Bytes of a record before its body.
const RECORD_HEADER_BYTES: usize = 4;
/// Bytes of the check value in mode 0.
pub(crate) const CHECK_BYTES: usize = 4;

const PAD: u8 = 0x00;
const RUN: u8 = 0x01;
const FRAGMENT: u8 = 0x02;
const HEARTBEAT: u8 = 0x40;
const HELLO: u8 = 0x41;
const BYE: u8 = 0x42;
const RESEND_REQUEST: u8 = 0x43;
const MANIFEST: u8 = 0x44;
const EXPIRED: u8 = 0x45;
const INTEREST: u8 = 0x48;
const INTEREST_REQUEST: u8 = 0x49;
const RECEIVER_REPORT: u8 = 0x4b;
/// Record types from here on are control records; those below, except PAD, are data records.
const CONTROL_FIRST: u8 = 0x40;

/// The first message of a frame carries a stamp.
const FLAG_STAMP: u8 = 0x01;
/// The stamp is followed by the last seq of the frame before.
const FLAG_CHAIN: u8 = 0x02;
/// The messages have no seq.
const FLAG_UNSEQ: u8 = 0x04;
/// The messages are journalled events.
const FLAG_EVENT: u8 = 0x08;
/// Each message has a reply subject, headers, or both.
const FLAG_META: u8 = 0x10;
const FLAGS_KNOWN: u8 = FLAG_STAMP | FLAG_CHAIN | FLAG_UNSEQ | FLAG_EVENT | FLAG_META;

/// The last four bytes of the datagrams of a peer's protocol core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckValue {
    /// CRC32C of all bytes before them, as they leave and arrive in open mode.
    #[default]
    Crc32c,
    /// Zeros, which nobody verifies: a security layer seals and opens all datagrams, and its tag protects them.
    Unused,
}

/// One unit of a datagram. PAD and unknown control records are left out by [`decode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Messages of one subject with consecutive numbers.
    Run(Run),
    /// A part of a message that is larger than a datagram.
    Fragment(Fragment),
    /// Announcement that is sent while there is no data.
    Heartbeat(Box<PeerAnnouncement>),
    /// Announcement that is sent at start and in answer.
    Hello(Box<Hello>),
    /// Announcement that is sent at the end of an epoch; its numbers are final.
    Bye(Box<PeerAnnouncement>),
    /// Request for missing datagrams.
    ResendRequest(ResendRequest),
    /// Content of datagrams that cannot be retransmitted.
    Manifest(Manifest),
    /// Datagrams about which the publisher knows nothing any more.
    Expired(ExpiryNotice),
    /// Advertised subscriptions of the sender.
    Interest(Interest),
    /// Request for advertised subscriptions.
    InterestRequest(InterestRequest),
    /// Receive capacity of a receiver.
    ReceiverReport(ReceiverReport),
    /// Data records of a type (0x03 to 0x3f) that this version does not know, one or more: their content is unverified.
    UnknownData(u8),
}

// Runs are frequent and moved often, so larger records are boxed.
const _: () = assert!(size_of::<Record>() <= 128);

impl Record {
    /// Returns the publisher's time and offset, if a message in this record begins a frame.
    pub fn stamp(&self) -> Option<Stamp> {
        match self {
            Record::Run(run) => run.stamp,
            Record::Fragment(fragment) => fragment.stamp,
            _ => None,
        }
    }

    /// Returns the number of messages that begin in this record: all of a run, one in a fragment with index 0.
    pub fn messages_begun(&self) -> u64 {
        match self {
            Record::Run(run) => u64::from(run.count),
            Record::Fragment(fragment) => u64::from(fragment.index == 0),
            _ => 0,
        }
    }
}

/// A decoded datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sender of the datagram, and its position in the stream.
    pub header: Header,
    /// Records of the datagram in order.
    pub records: Vec<Record>,
}

impl Datagram {
    /// Returns the number of messages that begin in this datagram: all of its runs, and fragments with index 0.
    pub fn messages_begun(&self) -> u64 {
        self.records.iter().map(Record::messages_begun).sum()
    }
}

/// Returns the epoch that a datagram of this version claims, before any check. It serves to discard this peer's own
/// multicast, which the system loops back, at little cost.
pub fn claimed_epoch(bytes: &[u8]) -> Option<Epoch> {
    let [m0, m1, VERSION, MODE_OPEN, _, _, _, _, epoch @ ..] = bytes else { return None };
    let epoch = epoch.first_chunk()?;
    if u16::from_be_bytes([*m0, *m1]) == MAGIC { Epoch::new(u64::from_be_bytes(*epoch)) } else { None }
}

/// Returns the header of a datagram of this version, without checking anything after it. The header is readable in every
/// security mode (W14).
pub fn unchecked_header(bytes: &Bytes) -> Option<Header> {
    match **bytes {
        [m0, m1, VERSION, ..] if u16::from_be_bytes([m0, m1]) == MAGIC => Header::decode(&mut Reader::new(bytes)).ok(),
        _ => None,
    }
}

/// Decodes one datagram. Subjects, headers and payloads are slices of `bytes`; nothing is copied.
///
/// # Errors
/// Returns the [`DiscardReason`] for which the datagram counts as not received. The order of checking is foreign,
/// version, mode, check value, malformed.
pub fn decode(bytes: Bytes) -> Result<Datagram, DiscardReason> {
    decode_with(bytes, CheckValue::Crc32c, Vec::with_capacity)
}

/// Works as [`decode`], for datagrams that end with this kind of check value. `list` returns an empty list for the
/// records, with the given number of places.
///
/// # Errors
/// Returns the [`DiscardReason`], as [`decode`] does.
pub fn decode_with(
    bytes: Bytes,
    check_value: CheckValue,
    list: impl FnOnce(usize) -> Vec<Record>,
) -> Result<Datagram, DiscardReason> {
    let [m0, m1, version, mode, ..] = *bytes else {
        return Err(DiscardReason::Foreign);
    };
    if u16::from_be_bytes([m0, m1]) != MAGIC {
        return Err(DiscardReason::Foreign);
    }
    if version != VERSION {
        return Err(DiscardReason::Version(version));
    }
    if mode != MODE_OPEN {
        return Err(DiscardReason::Mode(mode));
    }
    let Some((content, check)) = bytes.split_last_chunk::<CHECK_BYTES>() else {
        return Err(DiscardReason::Foreign);
    };
    if check_value == CheckValue::Crc32c && crc32c::crc32c(content) != u32::from_be_bytes(*check) {
        return Err(DiscardReason::Check);
    }
    let content = bytes.slice(..content.len());
    decode_content(&content, list).map_err(DiscardReason::Malformed)
}

/// Approximate minimum body of a record that counts for the initial capacity.
const RECORD_BYTES_MIN: usize = 8;

/// Returns the maximum number of records that are kept. Empty and skipped records do not count, so the reserved memory
/// cannot be much larger than the datagram.
fn records_in(reader: &Reader<'_>) -> usize {
    let mut reader = reader.clone();
    let mut count = 0;
    while let Ok([record_type, _, high, low]) = reader.array() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        count += usize::from(RECORD_BYTES_MIN <= length && !is_skipped(record_type));
        if reader.span(length).is_err() {
            break;
        }
    }
    count
}

/// Decodes the bytes that the check value covers.
fn decode_content(content: &Bytes, list: impl FnOnce(usize) -> Vec<Record>) -> Result<Datagram, DecodeError> {
    let mut reader = Reader::new(content);
    let header = Header::decode(&mut reader)?;
    let mut records = list(records_in(&reader));
    // Fragments of a message are one per datagram in consecutive datagrams, so a later part comes first and an
    // unfinished one last.
    let (mut is_first, mut is_open) = (true, false);
    // A bit for each type of data record, all of which are below 0x40.
    let mut unknown_seen = 0u64;
    while !reader.is_done() {
        let record_type = reader.u8()?;
        let flags = reader.u8()?;
        let length = usize::from(reader.u16()?);
        let mut body = reader.record(length)?;
        if is_skipped(record_type) {
            continue;
        }
        let is_control = CONTROL_FIRST <= record_type;
        if is_control != (header.kind == Kind::Control) {
            return Err(DecodeError::Misplaced { record: record_type, kind: header.kind });
        }
        let Some(record) = decode_record(record_type, flags, &mut body)? else {
            // Each type is recorded once, so that empty records cannot make the list larger than the datagram.
            if unknown_seen & 1 << record_type == 0 {
                unknown_seen |= 1 << record_type;
                records.push(Record::UnknownData(record_type));
            }
            continue;
        };
        body.finish(record_type)?;
        if !is_control {
            let (continues, ends) = match &record {
                Record::Fragment(fragment) => {
                    if header.number <= u64::from(fragment.index) {
                        return Err(DecodeError::FragmentIndex(fragment.index));
                    }
                    (fragment.index != 0, fragment.is_last())
                }
                _ => (false, true),
            };
            if is_open || continues && !is_first {
                return Err(DecodeError::FragmentOrder);
            }
            (is_first, is_open) = (false, !ends);
        }
        records.push(record);
    }
    Ok(Datagram { header, records })
}

/// Returns whether records of a type leave no record: PAD, and control records that this version does not know (W16).
#[inline]
fn is_skipped(record_type: u8) -> bool {
    record_type == PAD || CONTROL_FIRST <= record_type && !is_known_control(record_type)
}

/// Returns whether a type is that of a control record that this version knows.
fn is_known_control(record_type: u8) -> bool {
    matches!(
        record_type,
        HEARTBEAT | HELLO | BYE | RESEND_REQUEST | MANIFEST | EXPIRED | INTEREST | INTEREST_REQUEST | RECEIVER_REPORT
    )
}

/// Decodes the body of a record; `None` if its type is unknown.
#[inline]
fn decode_record(record_type: u8, flags: u8, body: &mut Reader<'_>) -> Result<Option<Record>, DecodeError> {
    Ok(Some(match record_type {
        RUN => Record::Run(Run::decode(flags, body)?),
        FRAGMENT => Record::Fragment(Fragment::decode(flags, body)?),
        HEARTBEAT => Record::Heartbeat(Box::new(PeerAnnouncement::decode(body)?)),
        HELLO => Record::Hello(Box::new(Hello::decode(body)?)),
        BYE => Record::Bye(Box::new(PeerAnnouncement::decode(body)?)),
        RESEND_REQUEST => Record::ResendRequest(ResendRequest::decode(flags, body)?),
        MANIFEST => Record::Manifest(Manifest::decode(body)?),
        EXPIRED => Record::Expired(ExpiryNotice::decode(flags, body)?),
        INTEREST => Record::Interest(Interest::decode(body)?),
        INTEREST_REQUEST => Record::InterestRequest(InterestRequest::decode(body)?),
        RECEIVER_REPORT => Record::ReceiverReport(ReceiverReport::decode(body)?),
        _ => return Ok(None),
    }))
}
