//! Decoder and encoder for the fields of the local protocol: big-endian numbers, texts and byte strings with a
//! length.
//!
//! The reader checks the bounds of each field; [`frame`](super::frame) validates the values. A length is compared with
//! the available bytes before it causes an allocation.

use crate::message::{NameError, QueueError};
use crate::subject::SubjectError;
use crate::wire;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

/// Size of the length field of a frame, in bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Decoding error of a frame. It ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The length field of the frame exceeds the limit.
    TooLong {
        /// Value of the length field, in bytes.
        bytes: u64,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The kind of frame does not exist in this direction.
    Kind(u8),
    /// The frame ends inside a field.
    Short,
    /// The frame has this number of bytes after its last field.
    Trailing(usize),
    /// A field has an invalid value. Holds the name of the field.
    Value(&'static str),
    /// A subject or pattern is not valid.
    Subject(SubjectError),
    /// A peer name is not valid.
    Name(NameError),
    /// A name of a queue group is not valid.
    Queue(QueueError),
    /// A run of messages is not valid.
    Run(wire::DecodeError),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::TooLong { bytes, bytes_max } => {
                write!(f, "a frame has {bytes} bytes, at most {bytes_max} are allowed")
            }
            FrameError::Kind(kind) => write!(f, "unknown kind of frame {kind:#04x}"),
            FrameError::Short => write!(f, "a frame ends inside a field"),
            FrameError::Trailing(bytes) => write!(f, "a frame has {bytes} bytes after its last field"),
            FrameError::Value(field) => write!(f, "the field '{field}' has an invalid value"),
            FrameError::Subject(error) => error.fmt(f),
            FrameError::Name(error) => error.fmt(f),
            FrameError::Queue(error) => error.fmt(f),
            FrameError::Run(malformed) => write!(f, "in a run of messages, {malformed}"),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<SubjectError> for FrameError {
    fn from(error: SubjectError) -> FrameError {
        FrameError::Subject(error)
    }
}

impl From<wire::DecodeError> for FrameError {
    fn from(malformed: wire::DecodeError) -> FrameError {
        FrameError::Run(malformed)
    }
}

impl From<NameError> for FrameError {
    fn from(error: NameError) -> FrameError {
        FrameError::Name(error)
    }
}

impl From<QueueError> for FrameError {
    fn from(error: QueueError) -> FrameError {
        FrameError::Queue(error)
    }
}

/// Reads fields from the front of a frame. Byte strings are slices of the frame.
pub(crate) struct FrameReader(Bytes);

impl FrameReader {
    pub(crate) fn new(frame: Bytes) -> FrameReader {
        FrameReader(frame)
    }

    fn require(&self, bytes: usize) -> Result<(), FrameError> {
        if self.0.len() < bytes { Err(FrameError::Short) } else { Ok(()) }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        self.require(1)?;
        Ok(self.0.get_u8())
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.require(2)?;
        Ok(self.0.get_u16())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        self.require(4)?;
        Ok(self.0.get_u32())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.require(8)?;
        Ok(self.0.get_u64())
    }

    fn take(&mut self, bytes: usize) -> Result<Bytes, FrameError> {
        self.require(bytes)?;
        Ok(self.0.split_to(bytes))
    }

    /// Reads a byte string with a one-byte length.
    pub(crate) fn bytes8(&mut self) -> Result<Bytes, FrameError> {
        let bytes = self.u8()?;
        self.take(usize::from(bytes))
    }

    /// Reads a byte string with a four-byte length.
    pub(crate) fn bytes32(&mut self) -> Result<Bytes, FrameError> {
        let bytes = self.u32()?;
        self.take(usize::try_from(bytes).map_err(|_| FrameError::Short)?)
    }

    /// Reads a UTF-8 text with a one-byte length.
    pub(crate) fn text8(&mut self, field: &'static str) -> Result<String, FrameError> {
        String::from_utf8(self.bytes8()?.to_vec()).map_err(|_| FrameError::Value(field))
    }

    /// Reads a four-byte number of entries, each of at least `entry_bytes` bytes. A number that the remaining bytes
    /// cannot hold is an error, so no allocation depends on it.
    pub(crate) fn count32(&mut self, entry_bytes: usize) -> Result<usize, FrameError> {
        let count = usize::try_from(self.u32()?).map_err(|_| FrameError::Short)?;
        self.require(count.checked_mul(entry_bytes).ok_or(FrameError::Short)?)?;
        Ok(count)
    }

    /// Reads flags of which only `flag` may be set. Returns whether it is set.
    pub(crate) fn flag(&mut self, flag: u8) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            flags if flags == flag => Ok(true),
            _ => Err(FrameError::Value("flags")),
        }
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.0.split_to(self.0.len())
    }

    /// Checks that no bytes remain.
    pub(crate) fn end(&self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::Trailing(self.0.len())) }
    }
}

/// Appends a frame: its length, and the bytes that `write` appends.
pub(crate) fn put_frame(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32(0);
    write(out);
    let bytes = u32::try_from(out.len() - start - LENGTH_BYTES).expect("frames are far below 4 GiB");
    out[start..start + LENGTH_BYTES].copy_from_slice(&bytes.to_be_bytes());
}

/// Writes a byte string with a one-byte length. A longer string is a bug of the caller and panics.
pub(crate) fn put_bytes8(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u8(u8::try_from(bytes.len()).expect("checked on construction"));
    out.put_slice(bytes);
}

/// Writes a byte string with a four-byte length.
pub(crate) fn put_bytes32(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("messages are limited to 8 MiB"));
    out.put_slice(bytes);
}

/// Returns the longest prefix of `text` that has at most 255 bytes and ends between characters.
pub(crate) fn truncate255(text: &str) -> &str {
    let mut end = text.len().min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
