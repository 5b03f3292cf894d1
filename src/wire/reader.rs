//! The only reader of bytes from the network. Only [`Reader::span`] compares lengths with the available bytes.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::DecodeError;
use bytes::Bytes;
use std::ops::Range;

/// Maximum bytes of a variable-length number: 28 bits.
const VARINT_BYTES_MAX: u32 = 4;

/// A position in a part of a datagram.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a Bytes,
    /// Bytes of the whole datagram up to the end of the part.
    part: &'a [u8],
    /// Index of the next byte to read; at most `part.len()`.
    at: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes` from the first to the last.
    pub(crate) fn new(bytes: &'a Bytes) -> Reader<'a> {
        Reader { bytes, part: bytes, at: 0 }
    }

    /// Creates a reader of `bytes` that begins at the location `at` of another reader.
    pub(crate) fn at(bytes: &'a Bytes, at: usize) -> Reader<'a> {
        Reader { bytes, part: bytes, at: at.min(bytes.len()) }
    }

    /// Returns whether everything is read.
    pub(crate) fn is_done(&self) -> bool {
        self.at == self.part.len()
    }

    /// Returns the number of bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.part.len().saturating_sub(self.at)
    }

    /// Consumes the next `count` bytes and returns their range in the datagram. This is the only bounds check.
    #[inline]
    pub(crate) fn span(&mut self, count: usize) -> Result<Range<usize>, DecodeError> {
        let start = self.at;
        let end = start.checked_add(count).filter(|end| *end <= self.part.len()).ok_or(DecodeError::Truncated)?;
        self.at = end;
        Ok(start..end)
    }

    /// Reads the next `count` bytes without a copy.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<Bytes, DecodeError> {
        let span = self.span(count)?;
        Ok(self.slice(span))
    }

    /// Returns the bytes of a range that [`Reader::span`] returned, without a copy.
    pub(crate) fn slice(&self, span: Range<usize>) -> Bytes {
        if span.is_empty() { Bytes::new() } else { self.bytes.slice(span) }
    }

    /// Returns a reader of only the next `count` bytes.
    pub(crate) fn record(&mut self, count: usize) -> Result<Reader<'a>, DecodeError> {
        let span = self.span(count)?;
        let part = self.part.get(..span.end).ok_or(DecodeError::Truncated)?;
        Ok(Reader { bytes: self.bytes, part, at: span.start })
    }

    /// Refuses bytes that are left over in a record of this type.
    pub(crate) fn finish(&self, record: u8) -> Result<(), DecodeError> {
        if self.is_done() { Ok(()) } else { Err(DecodeError::Trailing { record, bytes: self.left() }) }
    }

    /// Reads the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let span = self.span(N)?;
        let bytes = self.part.get(span).and_then(<[u8]>::first_chunk);
        bytes.copied().ok_or(DecodeError::Truncated)
    }

    /// Reads one byte.
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_be_bytes)
    }

    /// Reads two bytes.
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads four bytes.
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads eight bytes.
    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a variable-length number (LEB128): seven bits a byte, lowest first, the top bit set in all but the last
    /// byte. It has at most four bytes, and no superfluous ones.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<usize, DecodeError> {
        match self.part.get(self.at) {
            Some(byte) if byte & 0x80 == 0 => {
                self.at = self.at.saturating_add(1);
                Ok(usize::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<usize, DecodeError> {
        let mut value = 0u32;
        for index in 0..VARINT_BYTES_MAX {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << index.saturating_mul(7);
            if byte & 0x80 == 0 {
                let is_shortest = byte != 0 || index == 0;
                return if is_shortest { Ok(value as usize) } else { Err(DecodeError::Varint) };
            }
        }
        Err(DecodeError::Varint)
    }
}
