//! Reasons for which the decoder rejects bytes.

use super::Kind;
use crate::message::{NameError, QueueError};
use crate::subject::SubjectError;
use std::fmt;

/// Reason for which a datagram counts as not received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscardReason {
    /// Not this protocol: too short, or another magic.
    Foreign,
    /// Another version of this protocol; holds it.
    Version(u8),
    /// A security mode that this build does not have; holds it.
    Mode(u8),
    /// The check value does not fit the bytes.
    Check,
    /// The check value fits, but the bytes break a rule of the layout.
    Malformed(DecodeError),
}

/// Rule of the layout that the bytes break. Only a faulty or hostile sender produces such a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A field reaches past the end of its datagram or record.
    Truncated,
    /// Bytes are left over at the end of a record.
    Trailing {
        /// The type of the record.
        record: u8,
        /// Number of bytes left over.
        bytes: usize,
    },
    /// An unknown kind of datagram.
    Kind(u8),
    /// An epoch of 0.
    Epoch,
    /// A datagram number, control counter or count that is 0 where it must not be, or not below 2^63.
    Number(u64),
    /// A record that does not belong into this kind of datagram.
    Misplaced {
        /// The type of the record.
        record: u8,
        /// The kind of the datagram.
        kind: Kind,
    },
    /// Unknown flag bits, or flag bits that exclude each other.
    Flags(u8),
    /// An invalid subject.
    Subject(SubjectError),
    /// An invalid reply subject.
    Reply(SubjectError),
    /// An invalid peer name.
    Name(NameError),
    /// A peer name that is not UTF-8.
    NameEncoding,
    /// A seq whose count is 0.
    Seq(u64),
    /// A run that does not end in the frame in which it begins.
    RunRange,
    /// A run of no messages.
    RunEmpty,
    /// A stamp with a seq that does not begin a frame.
    StampInside,
    /// A chain that names no earlier frame, or that accompanies another number than the first of a frame.
    Chain,
    /// A variable-length number of more than four bytes, or longer than needed.
    Varint,
    /// A fragment without bytes.
    FragmentEmpty,
    /// A fragmented message larger than the limit; holds its size in bytes.
    FragmentTotal(u32),
    /// A fragment that reaches past the end of its message.
    FragmentRange,
    /// Index 0 with an offset, an offset too small for the number of earlier parts, or an index that the stream cannot
    /// have reached yet.
    FragmentIndex(u32),
    /// A later fragment that is not the first record, or an unfinished one that is not the last.
    FragmentOrder,
    /// A message larger than the limit; holds its size in bytes.
    MessageTooLarge(usize),
    /// A heartbeat interval of 0.
    Interval,
    /// A known field that occurs twice, or has an impossible length or value; holds the type of the field.
    Field(u8),
    /// An invalid name of a queue group.
    Queue(QueueError),
    /// A span of versions that is empty or ends above the highest.
    Versions,
    /// No ranges of datagrams, or ranges that are empty, overlap, or do not ascend.
    Ranges,
    /// A manifest of no datagrams.
    ManifestEmpty,
    /// A beacon of a group that is no multicast address, or has no port.
    Group,
    /// Bytes between the name of a beacon and its check value; holds their number.
    BeaconTrailing(usize),
}

impl DiscardReason {
    /// Returns the name of the reason (`docs/wire.md`, W12).
    pub fn as_str(&self) -> &'static str {
        match self {
            DiscardReason::Foreign => "foreign",
            DiscardReason::Version(_) => "version",
            DiscardReason::Mode(_) => "mode",
            DiscardReason::Check => "check",
            DiscardReason::Malformed(_) => "malformed",
        }
    }
}

impl fmt::Display for DiscardReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiscardReason::Foreign => write!(f, "not a seqcast datagram"),
            DiscardReason::Version(version) => write!(f, "wire version {version} is not supported by this build"),
            DiscardReason::Mode(mode) => write!(f, "security mode {mode} is not supported by this build"),
            DiscardReason::Check => write!(f, "the check value does not fit: damaged on its way"),
            DiscardReason::Malformed(malformed) => write!(f, "malformed: {malformed}"),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => write!(f, "a field reaches past the end"),
            DecodeError::Trailing { record, bytes } => {
                write!(f, "{bytes} bytes too many at the end of a record of type {record:#04x}")
            }
            DecodeError::Kind(kind) => write!(f, "datagrams of kind {kind} do not exist"),
            DecodeError::Epoch => write!(f, "an epoch must not be 0"),
            DecodeError::Number(number) => write!(f, "the number {number} is out of range"),
            DecodeError::Misplaced { record, kind } => {
                write!(f, "a record of type {record:#04x} does not belong into a {kind:?} datagram")
            }
            DecodeError::Flags(flags) => write!(f, "the flags {flags:#04x} do not exist together"),
            DecodeError::Subject(error) => write!(f, "subject: {error}"),
            DecodeError::Reply(error) => write!(f, "reply subject: {error}"),
            DecodeError::Name(error) => write!(f, "{error}"),
            DecodeError::NameEncoding => write!(f, "a peer name must be UTF-8"),
            DecodeError::Seq(raw) => write!(f, "the count of seq {raw:#018x} must not be 0"),
            DecodeError::RunRange => write!(f, "a run must end in the frame in which it begins"),
            DecodeError::RunEmpty => write!(f, "a run must not be empty"),
            DecodeError::StampInside => write!(f, "only the first message of a frame has a stamp"),
            DecodeError::Chain => {
                write!(f, "a chain must be of an earlier frame and go before the first number of one")
            }
            DecodeError::Varint => write!(f, "a variable-length number must be as short as it can be, at most 4 bytes"),
            DecodeError::FragmentEmpty => write!(f, "a fragment must not be empty"),
            DecodeError::FragmentTotal(bytes) => write!(f, "a fragmented message of {bytes} bytes is too large"),
            DecodeError::FragmentRange => write!(f, "a fragment must end within its message"),
            DecodeError::FragmentIndex(index) => write!(f, "the fragment index {index} fits neither offset nor stream"),
            DecodeError::FragmentOrder => write!(f, "a later fragment must come first, an unfinished one last"),
            DecodeError::MessageTooLarge(bytes) => write!(f, "a message of {bytes} bytes is too large"),
            DecodeError::Interval => write!(f, "a heartbeat interval must not be 0"),
            DecodeError::Field(field) => {
                write!(f, "the field {field:#04x} comes twice or has an impossible length or value")
            }
            DecodeError::Queue(error) => write!(f, "{error}"),
            DecodeError::Versions => write!(f, "versions must ascend and not be above the highest"),
            DecodeError::Ranges => write!(f, "ranges of datagrams must be there, ascend and not overlap"),
            DecodeError::ManifestEmpty => write!(f, "a manifest must describe a datagram"),
            DecodeError::Group => write!(f, "a beacon must name a multicast address and a port"),
            DecodeError::BeaconTrailing(bytes) => write!(f, "{bytes} bytes too many at the end of a beacon"),
        }
    }
}

impl std::error::Error for DiscardReason {}
impl std::error::Error for DecodeError {}
