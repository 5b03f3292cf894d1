//! SBS, the encoding of Hat: values one after the other, without tags. The reader must know the type of each value.
//!
//! ```text
//! integer   7 bits a byte, most significant first, two's complement; bit 7 marks the last byte, and bit 6 of the
//!           first byte is the sign
//! boolean   00 or 01
//! text      integer: number of bytes · UTF-8
//! bytes     integer: number of bytes · the bytes
//! array     integer: number of elements · each of them
//! record    its fields
//! choice    integer: index of the alternative, from 0 · its value
//! optional  a choice of nothing and a value
//! ```
//!
//! The encoding does not limit integers. This reader accepts at most ten bytes, which hold every signed and unsigned
//! number of 64 bits. The writer uses the fewest bytes. The reader also accepts more bytes than needed, since the rule
//! of decoding gives them a value.

use bytes::{BufMut, BytesMut};
use std::fmt;

/// Maximum size of an integer that the reader accepts, in bytes.
const INTEGER_BYTES_MAX: usize = 10;

/// Decoding error: the bytes are not a value of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SbsError {
    /// Position of the value, in bytes from the start of the input.
    pub at: usize,
    /// Kind of the error.
    pub kind: SbsErrorKind,
}

/// The kind of a decoding error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SbsErrorKind {
    /// The value ends too early.
    Short,
    /// An integer has more than ten bytes.
    Integer,
    /// A boolean has this invalid byte.
    Boolean(u8),
    /// A text is not UTF-8.
    Text,
    /// A length or a number of elements is negative, or exceeds the rest of the input.
    Length(i128),
    /// The choice has no alternative with this index.
    Choice(i128),
    /// A number is outside the range of its field.
    Range(i128),
    /// A well-formed value is outside the range of its type.
    Meaningless,
    /// Bytes follow the last value.
    Trailing,
}

impl fmt::Display for SbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.at)?;
        match self.kind {
            SbsErrorKind::Short => write!(f, "the value ends too early"),
            SbsErrorKind::Integer => write!(f, "an integer has at most {INTEGER_BYTES_MAX} bytes"),
            SbsErrorKind::Boolean(byte) => write!(f, "{byte:#04x} is no boolean"),
            SbsErrorKind::Text => write!(f, "a text must be UTF-8"),
            SbsErrorKind::Length(length) => write!(f, "a length of {length} exceeds the remaining bytes"),
            SbsErrorKind::Choice(index) => write!(f, "there is no alternative {index}"),
            SbsErrorKind::Range(number) => write!(f, "{number} is out of range"),
            SbsErrorKind::Meaningless => write!(f, "the value is outside the range of its type"),
            SbsErrorKind::Trailing => write!(f, "bytes follow the end"),
        }
    }
}

impl std::error::Error for SbsError {}

/// Reader of values. After an error it must not be used again.
#[derive(Clone, Debug)]
pub struct SbsReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> SbsReader<'a> {
    /// Creates a reader of the bytes.
    pub fn new(bytes: &'a [u8]) -> SbsReader<'a> {
        SbsReader { bytes, at: 0 }
    }

    /// Returns the position of the next value, in bytes from the start.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Reads a number.
    ///
    /// # Errors
    /// [`SbsErrorKind::Short`], [`SbsErrorKind::Integer`].
    pub fn integer(&mut self) -> Result<i128, SbsError> {
        let rest = &self.bytes[self.at..];
        let last = rest.iter().take(INTEGER_BYTES_MAX).position(|byte| byte & 0x80 != 0);
        let Some(last) = last else {
            return Err(self.malformed(if rest.len() < INTEGER_BYTES_MAX {
                SbsErrorKind::Short
            } else {
                SbsErrorKind::Integer
            }));
        };
        let sign = if rest[0] & 0x40 == 0 { 0 } else { -1 };
        self.at += last + 1;
        Ok(rest[..=last].iter().fold(sign, |value, byte| value << 7 | i128::from(byte & 0x7f)))
    }

    /// Reads a number of the type of its field.
    ///
    /// # Errors
    /// [`SbsErrorKind::Range`], and those of [`SbsReader::integer`].
    pub fn number<T: TryFrom<i128>>(&mut self) -> Result<T, SbsError> {
        let at = self.at;
        let value = self.integer()?;
        T::try_from(value).map_err(|_| SbsError { at, kind: SbsErrorKind::Range(value) })
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// [`SbsErrorKind::Short`], [`SbsErrorKind::Boolean`].
    pub fn boolean(&mut self) -> Result<bool, SbsError> {
        let kind = match self.bytes.get(self.at) {
            Some(byte @ (0 | 1)) => {
                self.at += 1;
                return Ok(*byte == 1);
            }
            Some(byte) => SbsErrorKind::Boolean(*byte),
            None => SbsErrorKind::Short,
        };
        Err(self.malformed(kind))
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// [`SbsErrorKind::Length`], and those of [`SbsReader::integer`].
    pub fn bytes(&mut self) -> Result<&'a [u8], SbsError> {
        let length = self.count(1)?;
        self.at += length;
        Ok(&self.bytes[self.at - length..self.at])
    }

    /// Reads a text.
    ///
    /// # Errors
    /// [`SbsErrorKind::Text`], and those of [`SbsReader::bytes`].
    pub fn text(&mut self) -> Result<&'a str, SbsError> {
        let at = self.at;
        std::str::from_utf8(self.bytes()?).map_err(|_| SbsError { at, kind: SbsErrorKind::Text })
    }

    /// Reads the number of elements of an array, each of which takes at least `element_bytes_min` bytes. A number of
    /// elements that the rest of the input cannot hold is an error.
    ///
    /// # Errors
    /// [`SbsErrorKind::Length`], and those of [`SbsReader::integer`].
    pub fn count(&mut self, element_bytes_min: usize) -> Result<usize, SbsError> {
        let at = self.at;
        let count = self.integer()?;
        let count_max = (self.bytes.len() - self.at) / element_bytes_min;
        let fits = usize::try_from(count).ok().filter(|count| *count <= count_max);
        fits.ok_or(SbsError { at, kind: SbsErrorKind::Length(count) })
    }

    /// Reads the index of one of `count` alternatives.
    ///
    /// # Errors
    /// [`SbsErrorKind::Choice`], and those of [`SbsReader::integer`].
    pub fn choice(&mut self, count: usize) -> Result<usize, SbsError> {
        let at = self.at;
        let index = self.integer()?;
        let known = usize::try_from(index).ok().filter(|index| *index < count);
        known.ok_or(SbsError { at, kind: SbsErrorKind::Choice(index) })
    }

    /// Reads a value that may be absent.
    ///
    /// # Errors
    /// Those of [`SbsReader::choice`] and of `read`.
    pub fn optional<T, E: From<SbsError>>(
        &mut self,
        read: impl FnOnce(&mut SbsReader<'a>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        if self.choice(2)? == 0 { Ok(None) } else { read(self).map(Some) }
    }

    /// Checks that the input has ended.
    ///
    /// # Errors
    /// [`SbsErrorKind::Trailing`].
    pub fn end(&self) -> Result<(), SbsError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.malformed(SbsErrorKind::Trailing)) }
    }

    fn malformed(&self, kind: SbsErrorKind) -> SbsError {
        SbsError { at: self.at, kind }
    }
}

/// Appends a number, in the fewest bytes.
pub fn put_integer(out: &mut BytesMut, value: i128) {
    let mut groups = 1;
    // The highest of the written bits must be the sign bit.
    while !(-1..=0).contains(&(value >> (7 * groups - 1))) {
        groups += 1;
    }
    for group in (0..groups).rev() {
        let last = if group == 0 { 0x80 } else { 0 };
        out.put_u8((value >> (7 * group)) as u8 & 0x7f | last);
    }
}

/// Appends a length, a number of elements or the index of an alternative.
pub fn put_count(out: &mut BytesMut, count: usize) {
    put_integer(out, count as i128);
}

/// Appends a boolean.
pub fn put_boolean(out: &mut BytesMut, value: bool) {
    out.put_u8(u8::from(value));
}

/// Appends bytes.
pub fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.put_slice(bytes);
}

/// Appends a text.
pub fn put_text(out: &mut BytesMut, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Appends a value that may be absent.
pub fn put_optional<T>(out: &mut BytesMut, value: Option<T>, put: impl FnOnce(&mut BytesMut, T)) {
    put_count(out, usize::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn encoded(put: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
        let mut out = BytesMut::new();
        put(&mut out);
        out.to_vec()
    }

    #[test]
    fn integer_equals_the_bytes_of_the_reference() {
        for (value, bytes) in [
            (0, &[0x80][..]),
            (1, &[0x81]),
            (-1, &[0xff]),
            (63, &[0xbf]),
            (64, &[0x00, 0xc0]),
            (-64, &[0xc0]),
            (-65, &[0x7f, 0xbf]),
            (127, &[0x00, 0xff]),
            (128, &[0x01, 0x80]),
            (-128, &[0x7f, 0x80]),
            (-129, &[0x7e, 0xff]),
            (8191, &[0x3f, 0xff]),
            (8192, &[0x00, 0x40, 0x80]),
            (-8192, &[0x40, 0x80]),
            (-8193, &[0x7f, 0x3f, 0xff]),
            (2_147_483_647, &[0x07, 0x7f, 0x7f, 0x7f, 0xff]),
            (-2_147_483_648, &[0x78, 0x00, 0x00, 0x00, 0x80]),
            (i128::from(i64::MAX), &[0x00, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0xff]),
            (i128::from(i64::MIN), &[0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]),
        ] {
            assert_eq!(encoded(|out| put_integer(out, value)), bytes, "{value}");
            assert_eq!(SbsReader::new(bytes).integer(), Ok(value));
        }
        assert_eq!(encoded(|out| put_text(out, "ž🙂")), *b"\x86\xc5\xbe\xf0\x9f\x99\x82");
    }

    #[test]
    fn integer_is_written_in_the_fewest_bytes() {
        let mut rng = Rng::new(1);
        for round in 0..20_000 {
            let bits = rng.next_u64() >> rng.below(64);
            let value = if round % 2 == 0 { i128::from(bits) } else { i128::from(bits as i64) };
            let bytes = encoded(|out| put_integer(out, value));
            assert_eq!(SbsReader::new(&bytes).integer(), Ok(value));
            if 1 < bytes.len() {
                let shorter = SbsReader::new(&bytes[1..]).integer();
                assert_ne!(shorter, Ok(value), "{value}: the first byte says nothing");
            }
        }
        assert_eq!(encoded(|out| put_integer(out, i128::from(u64::MAX))).len(), INTEGER_BYTES_MAX);
    }

    #[test]
    fn padded_integer_has_the_same_value() {
        assert_eq!(SbsReader::new(&[0, 0, 0x85]).integer(), Ok(5));
        assert_eq!(SbsReader::new(&[0x7f, 0x7f, 0xff]).integer(), Ok(-1));
        assert_eq!(SbsReader::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0x85]).integer(), Ok(5));
    }

    #[test]
    fn invalid_value_is_refused_with_its_position() {
        let check = |bytes: &[u8], read: fn(&mut SbsReader<'_>) -> Option<SbsError>, kind| {
            // A byte in front shows that the position counts from the start.
            let shifted = [b"\x81", bytes].concat();
            let mut reader = SbsReader::new(&shifted);
            reader.integer().unwrap();
            assert_eq!(read(&mut reader), Some(SbsError { at: 1, kind }), "{bytes:?}");
        };
        check(b"", |reader| reader.integer().err(), SbsErrorKind::Short);
        check(&[0; 9], |reader| reader.integer().err(), SbsErrorKind::Short);
        check(&[0; 10], |reader| reader.integer().err(), SbsErrorKind::Integer);
        check(&[0x7f; 4000], |reader| reader.integer().err(), SbsErrorKind::Integer);
        check(b"\x02\x80", |reader| reader.number::<u8>().err(), SbsErrorKind::Range(256));
        check(b"\xff", |reader| reader.number::<u64>().err(), SbsErrorKind::Range(-1));
        check(b"", |reader| reader.boolean().err(), SbsErrorKind::Short);
        check(b"\x81", |reader| reader.boolean().err(), SbsErrorKind::Boolean(0x81));
        check(b"\x82a", |reader| reader.bytes().err(), SbsErrorKind::Length(2));
        check(b"\xff", |reader| reader.bytes().err(), SbsErrorKind::Length(-1));
        check(b"\x82\xc3\x28", |reader| reader.text().err(), SbsErrorKind::Text);
        check(b"\x82abc", |reader| reader.count(2).err(), SbsErrorKind::Length(2));
        let longest = encoded(|out| put_integer(out, i128::from(i64::MAX)));
        check(&longest, |reader| reader.count(3).err(), SbsErrorKind::Length(i128::from(i64::MAX)));
        check(b"\x83", |reader| reader.choice(3).err(), SbsErrorKind::Choice(3));
        check(b"\x82", |reader| reader.optional(SbsReader::integer).err(), SbsErrorKind::Choice(2));
        check(b"a", |reader| reader.end().err(), SbsErrorKind::Trailing);
        assert_eq!(
            SbsReader::new(b"\x81").optional(SbsReader::integer),
            Err(SbsError { at: 1, kind: SbsErrorKind::Short })
        );
    }
}
