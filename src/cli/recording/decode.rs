//! Decodes the records of MCAP from bytes: each length is checked before it is used, and nothing is allocated by a
//! length that a file claims.
//!
//! ```text
//! record:   opcode u8 | length u64 | content
//! channel:  id u16 | schema u16 | topic text | encoding text | metadata: bytes u32, then pairs of texts
//! message:  channel u16 | sequence u32 | log_time u64 | publish_time u64 | data
//! chunk:    start u64 | end u64 | uncompressed u64 | CRC u32 | compression text | bytes u64, then records
//! ```
//!
//! A text is a length (u32) and UTF-8. All numbers are little-endian.

/// The bytes with which a file begins and ends.
pub const MAGIC: [u8; 8] = [0x89, b'M', b'C', b'A', b'P', b'0', b'\r', b'\n'];
/// Bytes before the content of a record.
pub const RECORD_HEADER_BYTES: usize = 9;

/// Opcode of the first record of a file.
pub const HEADER: u8 = 0x01;
/// Opcode of the last record of a file.
pub const FOOTER: u8 = 0x02;
/// Opcode of a channel.
pub const CHANNEL: u8 = 0x04;
/// Opcode of a message.
pub const MESSAGE: u8 = 0x05;
/// Opcode of a chunk.
pub const CHUNK: u8 = 0x06;
/// Opcode of the record that ends the data section.
pub const DATA_END: u8 = 0x0f;

/// Bytes of the content of a footer.
pub const FOOTER_BYTES: usize = 20;

/// Error: the content of a record does not have the form that its opcode requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRecord;

/// Header of a record: its kind and the length of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Kind of the record.
    pub opcode: u8,
    /// Bytes of content, as claimed.
    pub bytes: u64,
}

impl RecordHeader {
    /// Decodes a header.
    pub fn decode(bytes: [u8; RECORD_HEADER_BYTES]) -> RecordHeader {
        let [opcode, length @ ..] = bytes;
        RecordHeader { opcode, bytes: u64::from_le_bytes(length) }
    }
}

/// A channel of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRecord<'a> {
    /// Number by which messages refer to the channel.
    pub id: u16,
    /// Its topic.
    pub topic: &'a str,
    /// Its metadata, in the order of the file.
    pub metadata: Vec<(&'a str, &'a str)>,
}

impl ChannelRecord<'_> {
    /// Returns the first value of a key of the metadata.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

/// A message of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRecord<'a> {
    /// Its channel.
    pub channel: u16,
    /// Its number within the channel; 0 if unused.
    pub sequence: u32,
    /// Time at which it was recorded, in nanoseconds since 1970.
    pub log_time: u64,
    /// Its content.
    pub data: &'a [u8],
}

/// A chunk of a file, with its records still compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRecord<'a> {
    /// Bytes of its records after decompression, as claimed.
    pub uncompressed_bytes: u64,
    /// CRC-32 of the decompressed records; 0 if there is none.
    pub crc: u32,
    /// Name of the compression; empty for none.
    pub compression: &'a str,
    /// The records.
    pub data: &'a [u8],
}

/// The content of the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterRecord {
    /// Offset of the index in the file; 0 if there is none.
    pub index_start: u64,
    /// CRC-32 of the index and the beginning of the footer; 0 if there is none.
    crc: u32,
}

impl FooterRecord {
    /// Returns whether an index, and the end of the file that begins with the footer, have the right checksum.
    pub fn matches(&self, index: &[u8], end: &[u8]) -> bool {
        let Some(footer) = end.get(..RECORD_HEADER_BYTES + FOOTER_BYTES - 4) else { return false };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(index);
        hasher.update(footer);
        self.crc == 0 || self.crc == hasher.finalize()
    }
}

/// Decodes the last bytes of a file: the footer and the magic bytes. Returns `None` if they are something else.
pub fn file_end(bytes: &[u8]) -> Option<FooterRecord> {
    let mut rest = Remainder(bytes.strip_suffix(&MAGIC)?);
    let header = RecordHeader::decode(rest.array().ok()?);
    if header != (RecordHeader { opcode: FOOTER, bytes: FOOTER_BYTES as u64 }) {
        return None;
    }
    let (index_start, _offsets_start, crc) = (rest.u64().ok()?, rest.u64().ok()?, rest.u32().ok()?);
    Some(FooterRecord { index_start, crc })
}

/// Decodes the content of a channel record.
///
/// # Errors
/// The content is malformed.
pub fn channel(content: &[u8]) -> Result<ChannelRecord<'_>, MalformedRecord> {
    let mut rest = Remainder(content);
    let (id, _schema) = (rest.u16()?, rest.u16()?);
    let topic = rest.text()?;
    let _encoding = rest.text()?;
    let mut pairs = Remainder(rest.sized()?);
    let mut metadata = Vec::new();
    while !pairs.0.is_empty() {
        metadata.push((pairs.text()?, pairs.text()?));
    }
    Ok(ChannelRecord { id, topic, metadata })
}

/// Decodes the content of a message record.
///
/// # Errors
/// The content is malformed.
pub fn message(content: &[u8]) -> Result<MessageRecord<'_>, MalformedRecord> {
    let mut rest = Remainder(content);
    let (channel, sequence) = (rest.u16()?, rest.u32()?);
    let (log_time, _publish_time) = (rest.u64()?, rest.u64()?);
    Ok(MessageRecord { channel, sequence, log_time, data: rest.0 })
}

/// Decodes the content of a chunk record.
///
/// # Errors
/// The content is malformed.
pub fn chunk(content: &[u8]) -> Result<ChunkRecord<'_>, MalformedRecord> {
    let mut rest = Remainder(content);
    let (_start, _end) = (rest.u64()?, rest.u64()?);
    let (uncompressed_bytes, crc) = (rest.u64()?, rest.u32()?);
    let compression = rest.text()?;
    let bytes = usize::try_from(rest.u64()?).map_err(|_| MalformedRecord)?;
    let data = rest.take(bytes)?;
    Ok(ChunkRecord { uncompressed_bytes, crc, compression, data })
}

/// Splits the first record off the records of a chunk: its opcode and its content.
///
/// # Errors
/// The record reaches beyond the chunk.
pub fn split_record<'a>(records: &mut &'a [u8]) -> Result<(u8, &'a [u8]), MalformedRecord> {
    let (header, rest) = records.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or(MalformedRecord)?;
    let header = RecordHeader::decode(*header);
    let mut rest = Remainder(rest);
    let content = rest.take(usize::try_from(header.bytes).map_err(|_| MalformedRecord)?)?;
    *records = rest.0;
    Ok((header.opcode, content))
}

/// Bytes of a record that are not yet decoded.
struct Remainder<'a>(&'a [u8]);

impl<'a> Remainder<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], MalformedRecord> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(MalformedRecord)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedRecord> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(MalformedRecord)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, MalformedRecord> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, MalformedRecord> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, MalformedRecord> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a length (u32) and that number of bytes.
    fn sized(&mut self) -> Result<&'a [u8], MalformedRecord> {
        let bytes = usize::try_from(self.u32()?).map_err(|_| MalformedRecord)?;
        self.take(bytes)
    }

    fn text(&mut self) -> Result<&'a str, MalformedRecord> {
        std::str::from_utf8(self.sized()?).map_err(|_| MalformedRecord)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
    }

    fn channel_bytes() -> Vec<u8> {
        let metadata = [text("k"), text("v"), text("k"), text("w")].concat();
        let length = u32::try_from(metadata.len()).unwrap().to_le_bytes();
        [&[7, 0, 1, 0][..], &text("a.b"), &text("json"), &length, &metadata].concat()
    }

    #[test]
    fn records_are_decoded() {
        let bytes = channel_bytes();
        let decoded = channel(&bytes).unwrap();
        assert_eq!((decoded.id, decoded.topic, decoded.value("k"), decoded.value("x")), (7, "a.b", Some("v"), None));
        let bytes = [&[7, 0, 5, 0, 0, 0][..], &9u64.to_le_bytes(), &8u64.to_le_bytes(), b"data"].concat();
        assert_eq!(message(&bytes), Ok(MessageRecord { channel: 7, sequence: 5, log_time: 9, data: b"data" }));
        let mut records: &[u8] = &[&[5u8][..], &2u64.to_le_bytes(), b"abc"].concat();
        assert_eq!(split_record(&mut records), Ok((5, &b"ab"[..])));
        assert_eq!(split_record(&mut records), Err(MalformedRecord));
    }

    #[test]
    fn shortened_record_is_refused() {
        let whole = channel_bytes();
        for bytes in 0..whole.len() {
            assert_eq!(channel(&whole[..bytes]), Err(MalformedRecord), "{bytes}");
        }
    }

    #[test]
    fn length_beyond_the_record_is_refused() {
        let lie = u32::MAX.to_le_bytes();
        assert_eq!(channel(&[&[7, 0, 1, 0][..], &lie, b"a"].concat()), Err(MalformedRecord));
        let mut records: &[u8] = &[&[MESSAGE][..], &u64::MAX.to_le_bytes(), b"abc"].concat();
        assert_eq!(split_record(&mut records), Err(MalformedRecord));
        let claimed = [&[0; 28][..], &text(""), &u64::MAX.to_le_bytes()].concat();
        assert_eq!(chunk(&claimed), Err(MalformedRecord));
    }
}
