//! Reading and writing the fields of the local protocol: big-endian numbers, texts and byte strings with their length.
//!
//! The reader checks the bounds once; what a value means is judged by `frame`. Nothing is allocated by a length that has
//! not been checked against the bytes that are there.

use crate::message::{NameError, QueueError};
use crate::subject::SubjectError;
use crate::wire;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

/// Why the bytes of a frame mean nothing. The connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The frame says that it is longer than the limit.
    TooLong {
        /// The length it says, in bytes.
        bytes: u64,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// No such kind of frame in this direction.
    Kind(u8),
    /// The frame ends inside a field.
    Short,
    /// So many bytes are left over after the last field.
    Trailing(usize),
    /// A value that the field cannot have; holds the name of the field.
    Value(&'static str),
    /// A subject or pattern that is none.
    Subject(SubjectError),
    /// A peer name that is none.
    Name(NameError),
    /// A name of a queue group that is none.
    Queue(QueueError),
    /// A run of messages that is none.
    Run(wire::Malformed),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::TooLong { bytes, bytes_max } => {
                write!(f, "a frame of {bytes} bytes, at most {bytes_max} allowed")
            }
            FrameError::Kind(kind) => write!(f, "unknown kind of frame {kind:#04x}"),
            FrameError::Short => write!(f, "a frame ends inside a field"),
            FrameError::Trailing(bytes) => write!(f, "{bytes} bytes too many in a frame"),
            FrameError::Value(field) => write!(f, "bad value in field '{field}'"),
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

impl From<wire::Malformed> for FrameError {
    fn from(malformed: wire::Malformed) -> FrameError {
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

/// Takes fields off the front of a frame; byte strings are slices of it.
pub(crate) struct FrameReader(Bytes);

impl FrameReader {
    pub(crate) fn new(frame: Bytes) -> FrameReader {
        FrameReader(frame)
    }

    fn need(&self, bytes: usize) -> Result<(), FrameError> {
        if self.0.len() < bytes { Err(FrameError::Short) } else { Ok(()) }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.need(2)?;
        Ok(self.0.get_u16())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    fn take(&mut self, bytes: usize) -> Result<Bytes, FrameError> {
        self.need(bytes)?;
        Ok(self.0.split_to(bytes))
    }

    /// A byte string after its length in one byte.
    pub(crate) fn bytes8(&mut self) -> Result<Bytes, FrameError> {
        let bytes = self.u8()?;
        self.take(usize::from(bytes))
    }

    /// A byte string after its length in four bytes.
    pub(crate) fn bytes32(&mut self) -> Result<Bytes, FrameError> {
        let bytes = self.u32()?;
        self.take(usize::try_from(bytes).map_err(|_| FrameError::Short)?)
    }

    /// A UTF-8 text after its length in one byte.
    pub(crate) fn text8(&mut self, field: &'static str) -> Result<String, FrameError> {
        String::from_utf8(self.bytes8()?.to_vec()).map_err(|_| FrameError::Value(field))
    }

    /// How many entries of `entry_bytes` each follow; their number stands in four bytes and is checked against what is
    /// there before anything is allocated.
    pub(crate) fn count32(&mut self, entry_bytes: usize) -> Result<usize, FrameError> {
        let count = usize::try_from(self.u32()?).map_err(|_| FrameError::Short)?;
        self.need(count.checked_mul(entry_bytes).ok_or(FrameError::Short)?)?;
        Ok(count)
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.0.split_to(self.0.len())
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::Trailing(self.0.len())) }
    }
}

/// Writes a byte string after its length in one byte; longer ones are our own mistake.
pub(crate) fn put_bytes8(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u8(u8::try_from(bytes.len()).expect("checked where the value was made"));
    out.put_slice(bytes);
}

/// Writes a byte string after its length in four bytes.
pub(crate) fn put_bytes32(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("messages are limited to 8 MiB"));
    out.put_slice(bytes);
}

/// The part of `text` that fits a field of at most 255 bytes, cut between characters.
pub(crate) fn cut255(text: &str) -> &str {
    let mut end = text.len().min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
