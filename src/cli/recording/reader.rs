//! Reads a recording from its beginning to its end, one message at a time, and reports damage instead of failing.
//!
//! The reader allocates memory for a chunk only if the rest of the file is at least as long as the chunk claims to be. It
//! uses only the channels of the index at the end, since a file whose writer was killed has no index.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

use super::decode::{self, MalformedRecord, RECORD_HEADER_BYTES, RecordHeader};
use super::decompress::ChunkCompression;
use super::{ChannelKind, EPOCH_KEY, KIND_KEY};
use crate::subject::{Subject, SubjectError};

/// Maximum bytes of a chunk, compressed or not. Usual writers end a chunk after 1 to 16 MiB.
const CHUNK_BYTES_MAX: u64 = 256 << 20;
/// Maximum bytes of a channel, or of a message outside of a chunk.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Maximum bytes of the index at the end of a file that is read for its channels.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of characters in the report of a topic that is no subject.
const TOPIC_CHARACTERS_MAX: usize = 120;

/// A channel of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedChannel {
    /// Messages of this subject.
    Message {
        /// The subject.
        subject: Subject,
        /// Epoch of the publisher; empty in files of other programs.
        epoch: String,
    },
    /// Annotations, losses or drops.
    Notice(ChannelKind),
    /// The topic is not a subject.
    Invalid {
        /// The beginning of the topic.
        topic: String,
        /// Reason for which it is not a subject.
        error: SubjectError,
    },
}

impl RecordedChannel {
    /// Returns whether the recorder wrote the channel, not another program.
    pub fn is_recorded(&self) -> bool {
        match self {
            RecordedChannel::Message { epoch, .. } => !epoch.is_empty(),
            RecordedChannel::Notice(_) => true,
            RecordedChannel::Invalid { .. } => false,
        }
    }

    fn new(record: &decode::ChannelRecord<'_>) -> RecordedChannel {
        let kind = record.value(KIND_KEY).and_then(|name| ChannelKind::ALL.into_iter().find(|k| k.as_str() == name));
        let subject = match kind {
            Some(ChannelKind::Message) => record.topic.parse(),
            Some(kind) => return RecordedChannel::Notice(kind),
            None => foreign_subject(record.topic),
        };
        match subject {
            Ok(subject) => {
                let epoch = record.value(EPOCH_KEY).filter(|epoch| kind.is_some() && epoch.len() == 16);
                RecordedChannel::Message { subject, epoch: epoch.unwrap_or_default().to_owned() }
            }
            Err(error) => {
                let topic = record.topic.chars().take(TOPIC_CHARACTERS_MAX).collect();
                RecordedChannel::Invalid { topic, error }
            }
        }
    }
}

/// Returns the subject of a topic of another program: without the first `/`, and with `.` in place of the others.
fn foreign_subject(topic: &str) -> Result<Subject, SubjectError> {
    topic.strip_prefix('/').unwrap_or(topic).replace('/', ".").parse()
}

/// Location of a message in a recording; [`RecordingReader::data`] returns its content until the next event is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedMessage {
    /// Number of its channel.
    pub channel: u16,
    /// Its number within the channel; 0 if unused.
    pub sequence: u32,
    /// Time of recording in nanoseconds since 1970.
    pub log_time: u64,
    data: Range<usize>,
}

/// Next part of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordingEvent {
    /// A message.
    Message(RecordedMessage),
    /// Something could not be read; reading continues after it.
    Damage(FileDamage),
    /// The end of a file that its writer has closed.
    End,
    /// The end of a file that its writer has not closed, or that was cut; holds the offset of the incomplete part.
    Truncated(u64),
}

/// A part of a file that cannot be read, with its offset in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// Offset of the record.
    pub offset: u64,
    /// Kind of the damage.
    pub kind: DamageKind,
}

/// Kind of a [`FileDamage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The checksum of a chunk differs from its content.
    Checksum,
    /// A record has a content that its kind does not allow.
    Malformed,
    /// A record is larger than this program reads. Holds its size in bytes.
    TooLarge(u64),
    /// A chunk has a compression that this program cannot read.
    Compression(String),
}

impl fmt::Display for FileDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileDamage { offset, kind } = self;
        match kind {
            DamageKind::Checksum => write!(f, "the chunk at byte {offset} is damaged: its checksum is wrong"),
            DamageKind::Malformed => write!(f, "the record at byte {offset} is damaged"),
            DamageKind::TooLarge(bytes) => {
                write!(f, "the record at byte {offset} has {bytes} bytes, more than this program reads")
            }
            DamageKind::Compression(name) => {
                write!(f, "the chunk at byte {offset} has the compression '{name}', which this program cannot read")
            }
        }
    }
}

/// Reads a recording. After [`RecordingEvent::End`] and [`RecordingEvent::Truncated`] nothing follows.
#[derive(Debug)]
pub struct RecordingReader<R> {
    input: BufReader<R>,
    /// Size of the input in bytes when it was opened.
    bytes: u64,
    /// Offset of the next record.
    position: u64,
    /// Offset of the record that was read last.
    record_offset: u64,
    /// The record that was read last, or the decompressed records of a chunk.
    content: Vec<u8>,
    /// Memory for the next decompressed chunk.
    decompressed: Vec<u8>,
    /// The records in `content` that are not yet returned.
    records: Range<usize>,
    channels: BTreeMap<u16, RecordedChannel>,
}

impl<R: Read + Seek> RecordingReader<R> {
    /// Opens an input of `bytes` bytes; `None` if it is no MCAP file.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn open(input: R, bytes: u64) -> io::Result<Option<RecordingReader<R>>> {
        let mut input = BufReader::with_capacity(1 << 18, input);
        let mut magic = [0; decode::MAGIC.len()];
        let position = magic.len() as u64;
        if bytes < position {
            return Ok(None);
        }
        input.read_exact(&mut magic)?;
        if magic != decode::MAGIC {
            return Ok(None);
        }
        let mut reader = RecordingReader {
            input,
            bytes,
            position,
            record_offset: position,
            content: Vec::new(),
            decompressed: Vec::new(),
            records: 0..0,
            channels: BTreeMap::new(),
        };
        reader.read_index_channels()?;
        reader.input.seek(SeekFrom::Start(position))?;
        Ok(Some(reader))
    }

    /// Reads the channels in the index of the file, if it has one. They replace the channels in a damaged chunk, which
    /// later messages need.
    fn read_index_channels(&mut self) -> io::Result<()> {
        let mut end = [0; RECORD_HEADER_BYTES + decode::FOOTER_BYTES + decode::MAGIC.len()];
        let Some(footer_start) = self.bytes.checked_sub(end.len() as u64) else { return Ok(()) };
        self.input.seek(SeekFrom::Start(footer_start))?;
        self.input.read_exact(&mut end)?;
        let Some(footer) = decode::file_end(&end) else { return Ok(()) };
        let Some(bytes) = footer_start.checked_sub(footer.index_start) else { return Ok(()) };
        if footer.index_start == 0 || INDEX_BYTES_MAX < bytes {
            return Ok(());
        }
        let mut index = vec![0; usize::try_from(bytes).expect("below the maximum")];
        self.input.seek(SeekFrom::Start(footer.index_start))?;
        self.input.read_exact(&mut index)?;
        if !footer.matches(&index, &end) {
            return Ok(());
        }
        let mut records = &index[..];
        while let Ok((opcode, content)) = decode::split_record(&mut records) {
            if opcode == decode::CHANNEL
                && let Ok(record) = decode::channel(content)
            {
                self.channels.insert(record.id, RecordedChannel::new(&record));
            }
        }
        Ok(())
    }

    /// Returns the channels that are known so far, by their numbers.
    pub fn channels(&self) -> &BTreeMap<u16, RecordedChannel> {
        &self.channels
    }

    /// Returns the channel of a message.
    pub fn channel(&self, message: &RecordedMessage) -> &RecordedChannel {
        self.channels.get(&message.channel).expect("a message of an unknown channel is damage")
    }

    /// Returns the content of the message that was read last.
    pub fn data(&self, message: &RecordedMessage) -> &[u8] {
        &self.content[message.data.clone()]
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the size of the input in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the next part.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn next_event(&mut self) -> io::Result<RecordingEvent> {
        loop {
            while !self.records.is_empty() {
                if let Some(event) = self.next_of_chunk() {
                    return Ok(event);
                }
            }
            if let Some(event) = self.read_record()? {
                return Ok(event);
            }
        }
    }

    /// Takes the next record of the chunk; `None` if it is neither a message nor damaged.
    fn next_of_chunk(&mut self) -> Option<RecordingEvent> {
        let mut rest = &self.content[self.records.clone()];
        match decode::split_record(&mut rest) {
            Ok((opcode, content)) => {
                let end = self.records.end - rest.len();
                let start = end - content.len();
                self.records.start = end;
                self.interpret(opcode, start..end)
            }
            Err(MalformedRecord) => {
                self.records = 0..0;
                Some(self.damage(DamageKind::Malformed))
            }
        }
    }

    /// Interprets a channel or a message, whose content is a part of the buffer.
    fn interpret(&mut self, opcode: u8, range: Range<usize>) -> Option<RecordingEvent> {
        let content = &self.content[range.clone()];
        match opcode {
            decode::CHANNEL => match decode::channel(content) {
                Ok(record) => {
                    self.channels.insert(record.id, RecordedChannel::new(&record));
                    None
                }
                Err(MalformedRecord) => Some(self.damage(DamageKind::Malformed)),
            },
            decode::MESSAGE => match decode::message(content) {
                Ok(record) if self.channels.contains_key(&record.channel) => {
                    let data = range.end - record.data.len()..range.end;
                    let decode::MessageRecord { channel, sequence, log_time, .. } = record;
                    Some(RecordingEvent::Message(RecordedMessage { channel, sequence, log_time, data }))
                }
                _ => Some(self.damage(DamageKind::Malformed)),
            },
            _ => None,
        }
    }

    /// Reads a record of the file; `None` if it is a chunk, or any other record that the caller does not need.
    fn read_record(&mut self) -> io::Result<Option<RecordingEvent>> {
        self.record_offset = self.position;
        let left = self.bytes - self.position;
        let mut header = [0; RECORD_HEADER_BYTES];
        if left < header.len() as u64 {
            return Ok(Some(RecordingEvent::Truncated(self.position)));
        }
        self.input.read_exact(&mut header)?;
        let RecordHeader { opcode, bytes } = RecordHeader::decode(header);
        if left - (header.len() as u64) < bytes {
            return Ok(Some(RecordingEvent::Truncated(self.position)));
        }
        self.position += header.len() as u64;
        let bytes_max = match opcode {
            decode::CHUNK => CHUNK_BYTES_MAX,
            decode::CHANNEL | decode::MESSAGE => RECORD_BYTES_MAX,
            decode::FOOTER => return self.read_end(bytes).map(Some),
            _ => {
                self.skip(bytes)?;
                return Ok(None);
            }
        };
        if bytes_max < bytes {
            self.skip(bytes)?;
            return Ok(Some(self.damage(DamageKind::TooLarge(bytes))));
        }
        self.content.resize(usize::try_from(bytes).expect("below the maximum"), 0);
        self.input.read_exact(&mut self.content)?;
        self.position += bytes;
        if opcode == decode::CHUNK {
            return Ok(self.open_chunk().err().map(|kind| self.damage(kind)));
        }
        let event = self.interpret(opcode, 0..self.content.len());
        Ok(match event {
            // The recorder writes messages in chunks only, which have checksums.
            Some(RecordingEvent::Message(message)) if self.channel(&message).is_recorded() => {
                Some(self.damage(DamageKind::Malformed))
            }
            event => event,
        })
    }

    /// Checks the chunk in the buffer and makes its records the next ones.
    fn open_chunk(&mut self) -> Result<(), DamageKind> {
        let chunk = decode::chunk(&self.content).map_err(|MalformedRecord| DamageKind::Malformed)?;
        if !chunk.compression.is_empty() {
            let compression = ChunkCompression::from_name(chunk.compression).ok_or_else(|| {
                DamageKind::Compression(chunk.compression.chars().take(TOPIC_CHARACTERS_MAX).collect())
            })?;
            if CHUNK_BYTES_MAX < chunk.uncompressed_bytes {
                return Err(DamageKind::TooLarge(chunk.uncompressed_bytes));
            }
            self.decompressed.clear();
            let result = compression.decompress(chunk.data, chunk.uncompressed_bytes, &mut self.decompressed);
            if !matches!(result, Ok(true)) {
                return Err(DamageKind::Malformed);
            }
            if chunk.crc != 0 && chunk.crc != crc32fast::hash(&self.decompressed) {
                return Err(DamageKind::Checksum);
            }
            std::mem::swap(&mut self.content, &mut self.decompressed);
            self.records = 0..self.content.len();
            return Ok(());
        }
        if chunk.crc != 0 && chunk.crc != crc32fast::hash(chunk.data) {
            return Err(DamageKind::Checksum);
        }
        // The data may be followed by padding.
        let start = chunk.data.as_ptr() as usize - self.content.as_ptr() as usize;
        self.records = start..start + chunk.data.len();
        Ok(())
    }

    /// Reads the footer, of this number of bytes, and the magic bytes behind it.
    fn read_end(&mut self, bytes: u64) -> io::Result<RecordingEvent> {
        self.skip(bytes)?;
        let mut magic = [0; decode::MAGIC.len()];
        if self.bytes - self.position < magic.len() as u64 {
            return Ok(RecordingEvent::Truncated(self.position));
        }
        self.input.read_exact(&mut magic)?;
        Ok(match magic == decode::MAGIC {
            true => RecordingEvent::End,
            false => RecordingEvent::Truncated(self.position),
        })
    }

    /// Skips bytes, which the file contains.
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.input.seek_relative(i64::try_from(bytes).expect("within the file"))?;
        self.position += bytes;
        Ok(())
    }

    fn damage(&self, kind: DamageKind) -> RecordingEvent {
        RecordingEvent::Damage(FileDamage { offset: self.record_offset, kind })
    }
}

#[cfg(test)]
mod tests;
