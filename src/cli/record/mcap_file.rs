//! One file of a recording: its channels and chunks.
//!
//! Chunks are built in memory and written as a whole, so that a process that is killed leaves complete chunks and at
//! most one incomplete one at the end.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write as _};

use foldhash::fast::FixedState;
use mcap::records::{MessageHeader, Metadata};
use mcap::{McapError, WriteOptions, Writer};
use serde::de::IgnoredAny;

use super::file_sink::{FilePosition, FileSink};
use super::notice_queue::QueuedMessage;
use crate::cli::recording::annotation::Annotation;
use crate::cli::recording::{ChannelKind, EPOCH_KEY, KIND_KEY, METADATA_NAME, PROFILE, PUBLISHER_KEY, decode};
use crate::message::{Publisher, Verdict};
use crate::terminal::output::json;

/// Maximum number of channels of a file; MCAP numbers them with 16 bits.
const CHANNELS_MAX: usize = 60_000;
/// Maximum number of entries of the index, one for each channel of each chunk. The index is in memory, with some
/// 50 bytes for an entry.
const INDEX_ENTRIES_MAX: u64 = 4_000_000;
/// Bytes after which a chunk is complete.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of a message record without its content.
const MESSAGE_BYTES: u64 = 31;
/// Bytes of a message in the index of its chunk.
const MESSAGE_INDEX_BYTES: u64 = 16;
/// Bytes of a channel in the index of a chunk, both behind the chunk and at the end of the file.
const CHANNEL_INDEX_BYTES: u64 = 25;
/// Bytes of a chunk without its records, and of its entry at the end of the file.
const CHUNK_OVERHEAD_BYTES: u64 = 160;
/// Bytes of a file without chunks and channels.
const FILE_OVERHEAD_BYTES: u64 = 4096;
/// Maximum size of a payload that is checked for being JSON.
const JSON_CHECK_BYTES_MAX: usize = 1 << 20;
/// Message encoding of payloads that are not JSON.
const BYTES_ENCODING: &str = "application/octet-stream";

/// A file of a recording, open for writing.
pub struct McapFile {
    writer: Writer<FileSink>,
    position: FilePosition,
    /// Offset of the end of the last complete chunk.
    sealed_bytes: u64,
    chunk: OpenChunk,
    /// Channels of messages.
    channels: Vec<MessageChannel>,
    /// Index in `channels`, by publisher and then by subject.
    channel_index: BTreeMap<ChannelPublisher, HashMap<Box<[u8]>, usize, FixedState>>,
    /// Channels of annotations, losses and drops, in the order of [`ChannelKind::ALL`].
    notice_channels: [Option<NoticeChannel>; ChannelKind::ALL.len()],
    /// Estimated size of the index at the end of the file.
    index_bytes: u64,
    index_entries: u64,
    /// Seed of the hashes: subjects come from the network.
    seed: u64,
    encoding: Option<String>,
}

/// Publisher of a channel. A publisher has a second channel once its name is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChannelPublisher {
    /// Bits of its epoch.
    epoch: u64,
    /// True if the metadata of the channel has its name.
    is_named: bool,
}

impl From<&Publisher> for ChannelPublisher {
    fn from(publisher: &Publisher) -> ChannelPublisher {
        ChannelPublisher { epoch: publisher.epoch.bits(), is_named: publisher.name.is_some() }
    }
}

/// The chunk that is being built.
#[derive(Debug, Default)]
struct OpenChunk {
    /// Number of the chunk in its file, from 0.
    number: u64,
    /// Bytes of records.
    bytes: u64,
    /// Bytes of its index.
    index_bytes: u64,
    /// Messages of the bus.
    messages: u64,
}

/// A channel of messages.
#[derive(Clone, Copy, Debug)]
struct MessageChannel {
    id: u16,
    /// Number of the chunk that last received a message.
    last_chunk: Option<u64>,
    /// The numbering of its last message; the next one needs no annotation if it continues it.
    numbering: ChannelNumbering,
}

/// The parts of the numbers of a message that usually stay the same from one message to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ChannelNumbering {
    /// The high 32 bits of the number.
    seq_high: Option<u32>,
    /// The offset minus the sequence field.
    offset_delta: Option<u32>,
}

/// A channel of annotations, losses or drops.
#[derive(Clone, Copy, Debug)]
struct NoticeChannel {
    id: u16,
    /// Number of messages written.
    count: u32,
    last_chunk: Option<u64>,
}

impl McapFile {
    /// Begins a file with this metadata. Channels get `encoding`, or one that suits their first payload.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(
        file: File,
        metadata: &BTreeMap<String, String>,
        encoding: Option<String>,
        seed: u64,
    ) -> io::Result<McapFile> {
        let sink = FileSink::new(file);
        let position = sink.position();
        let options = WriteOptions::new()
            .compression(None)
            .profile(PROFILE)
            .library(concat!("seqcast ", env!("CARGO_PKG_VERSION")))
            .chunk_size(None)
            .disable_seeking(true)
            // Each chunk has a checksum of its own; one more over the same bytes would only cost time.
            .calculate_data_section_crc(false);
        let mut writer = options.create(sink).map_err(io_error)?;
        let record = Metadata { name: METADATA_NAME.to_owned(), metadata: metadata.clone() };
        writer.write_metadata(&record).map_err(io_error)?;
        writer.flush().map_err(io_error)?;
        Ok(McapFile {
            writer,
            sealed_bytes: position.bytes(),
            position,
            chunk: OpenChunk::default(),
            channels: Vec::new(),
            channel_index: BTreeMap::new(),
            notice_channels: [None; ChannelKind::ALL.len()],
            index_bytes: 0,
            index_entries: 0,
            seed,
            encoding,
        })
    }

    /// Returns the size that the file would have if it were closed now; an estimate from above.
    pub fn projected_bytes(&self) -> u64 {
        self.position.bytes() + self.chunk.bytes + self.chunk.index_bytes + self.index_bytes + FILE_OVERHEAD_BYTES
    }

    /// Returns whether the file has room for no further channel, or its index has become too large for the memory.
    pub fn is_full(&self) -> bool {
        CHANNELS_MAX <= self.channels.len() || INDEX_ENTRIES_MAX <= self.index_entries
    }

    /// Returns whether the chunk is large enough to be written.
    pub fn is_chunk_full(&self) -> bool {
        CHUNK_BYTES <= self.chunk.bytes
    }

    /// Returns whether the file has any message, in a written chunk or in the open one.
    pub fn has_messages(&self) -> bool {
        0 < self.chunk.number || 0 < self.chunk.bytes
    }

    /// Adds a message to the chunk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_message(&mut self, message: &QueuedMessage<'_>) -> io::Result<()> {
        let publisher = ChannelPublisher::from(message.publisher);
        let known = self.channel_index.get(&publisher).and_then(|subjects| subjects.get(message.subject)).copied();
        let index = match known {
            Some(index) => index,
            None => self.add_message_channel(message)?,
        };
        let sequence = match (message.seq, message.offset) {
            (Some(seq), _) => low_half(seq.raw()),
            (None, offset) => offset.unwrap_or(0),
        };
        let numbering = ChannelNumbering {
            seq_high: message.seq.map(|seq| low_half(seq.raw() >> 32)),
            offset_delta: message.offset.map(|offset| offset.wrapping_sub(sequence)),
        };
        if self.channels[index].numbering != numbering || message.is_special() {
            let annotation = json(&annotation(message, sequence));
            self.write_notice(ChannelKind::Annotation, message.log_time, annotation.as_bytes())?;
        }
        let channel = &mut self.channels[index];
        channel.numbering = numbering;
        let is_first = channel.last_chunk.replace(self.chunk.number) != Some(self.chunk.number);
        let channel_id = channel.id;
        self.chunk.messages += 1;
        let log_time = message.log_time;
        let header = MessageHeader { channel_id, sequence, log_time, publish_time: log_time };
        self.append(&header, message.payload, is_first)
    }

    /// Adds an annotation, a loss or a drop in JSON to the chunk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_notice(&mut self, kind: ChannelKind, log_time: u64, text: &[u8]) -> io::Result<()> {
        let mut channel = match self.notice_channels[kind as usize] {
            Some(channel) => channel,
            None => self.add_notice_channel(kind)?,
        };
        channel.count = channel.count.wrapping_add(1);
        let is_first = channel.last_chunk.replace(self.chunk.number) != Some(self.chunk.number);
        self.notice_channels[kind as usize] = Some(channel);
        let NoticeChannel { id: channel_id, count: sequence, .. } = channel;
        let header = MessageHeader { channel_id, sequence, log_time, publish_time: log_time };
        self.append(&header, text, is_first)
    }

    /// Adds a message to the chunk, which is the first one of its channel there if `is_first`.
    fn append(&mut self, header: &MessageHeader, data: &[u8], is_first: bool) -> io::Result<()> {
        self.chunk.bytes += MESSAGE_BYTES + data.len() as u64;
        self.chunk.index_bytes += MESSAGE_INDEX_BYTES;
        if is_first {
            self.chunk.index_bytes += CHANNEL_INDEX_BYTES;
            self.index_entries += 1;
        }
        self.writer.write_to_known_channel(header, data).map_err(io_error)
    }

    /// Adds a channel, and returns its index.
    fn add_message_channel(&mut self, message: &QueuedMessage<'_>) -> io::Result<usize> {
        let subject = std::str::from_utf8(message.subject).map_err(io::Error::other)?;
        let Publisher { name, epoch, .. } = message.publisher;
        let mut metadata = BTreeMap::from([
            (KIND_KEY.to_owned(), ChannelKind::Message.as_str().to_owned()),
            (EPOCH_KEY.to_owned(), epoch.to_string()),
        ]);
        if let Some(name) = name {
            metadata.insert(PUBLISHER_KEY.to_owned(), name.as_str().to_owned());
        }
        let (schema, encoding) = match &self.encoding {
            Some(encoding) => (0, encoding.clone()),
            None if is_json_object(message.payload) => (self.add_schema(ChannelKind::Message)?, "json".to_owned()),
            None => (0, BYTES_ENCODING.to_owned()),
        };
        let id = self.add_channel(schema, subject, &encoding, &metadata)?;
        let index = self.channels.len();
        self.channels.push(MessageChannel { id, last_chunk: None, numbering: ChannelNumbering::default() });
        let state = FixedState::with_seed(self.seed);
        let publisher = ChannelPublisher::from(message.publisher);
        let subjects = self.channel_index.entry(publisher).or_insert_with(|| HashMap::with_hasher(state));
        subjects.insert(message.subject.into(), index);
        Ok(index)
    }

    fn add_notice_channel(&mut self, kind: ChannelKind) -> io::Result<NoticeChannel> {
        let metadata = BTreeMap::from([(KIND_KEY.to_owned(), kind.as_str().to_owned())]);
        let schema = self.add_schema(kind)?;
        let id = self.add_channel(schema, kind.topic().expect("a channel of its own"), "json", &metadata)?;
        Ok(NoticeChannel { id, count: 0, last_chunk: None })
    }

    fn add_schema(&mut self, kind: ChannelKind) -> io::Result<u16> {
        let schema = kind.schema();
        self.writer.add_schema(schema.name, "jsonschema", schema.text.as_bytes()).map_err(io_error)
    }

    fn add_channel(
        &mut self,
        schema: u16,
        topic: &str,
        encoding: &str,
        metadata: &BTreeMap<String, String>,
    ) -> io::Result<u16> {
        let texts: usize = metadata.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
        let bytes = (topic.len() + encoding.len() + texts + 40) as u64;
        self.chunk.bytes += bytes;
        self.index_bytes += bytes;
        self.writer.add_channel(schema, topic, encoding, metadata).map_err(io_error)
    }

    /// Writes the chunk to the file, and returns the number of messages in it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn seal(&mut self) -> io::Result<u64> {
        if self.chunk.bytes == 0 {
            return Ok(0);
        }
        self.writer.flush().map_err(io_error)?;
        self.sealed_bytes = self.position.bytes();
        self.index_bytes += self.chunk.index_bytes + CHUNK_OVERHEAD_BYTES;
        let number = self.chunk.number + 1;
        Ok(std::mem::replace(&mut self.chunk, OpenChunk { number, ..OpenChunk::default() }).messages)
    }

    /// Writes the index and closes the file. [`McapFile::seal`] has written all chunks.
    ///
    /// # Errors
    /// The file cannot be written; it then ends with its last complete chunk.
    pub fn finish(mut self) -> io::Result<()> {
        let end = self.writer.finish();
        let mut sink = self.writer.into_inner();
        end.map_err(io_error).and_then(|_| sink.flush()).inspect_err(|_| {
            // The first error is the one to report.
            drop(sink.replace_end(self.sealed_bytes, &end_without_index()));
        })
    }

    /// Shortens the file to its complete chunks after a failure and ends it there, without an index.
    ///
    /// # Errors
    /// The file cannot be written; it then ends with its last complete chunk.
    pub fn abandon(self) -> io::Result<()> {
        self.writer.into_inner().replace_end(self.sealed_bytes, &end_without_index())
    }
}

/// Returns the records that end a file whose index could not be written.
fn end_without_index() -> Vec<u8> {
    let data_end = [&[decode::DATA_END][..], &4u64.to_le_bytes(), &[0; 4]].concat();
    let footer = [&[decode::FOOTER][..], &20u64.to_le_bytes(), &[0; 20]].concat();
    [&data_end[..], &footer, &decode::MAGIC].concat()
}

/// Returns the properties of a message that MCAP has no fields for.
fn annotation(message: &QueuedMessage<'_>, sequence: u32) -> Annotation {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut annotation = Annotation {
        subject: text(message.subject),
        epoch: message.publisher.epoch.to_string(),
        sequence,
        seq: message.seq.map(|seq| seq.to_string()),
        offset: message.offset,
        missing: match message.verdict {
            Verdict::Skip(count) => Some(count.into()),
            _ => None,
        },
        repaired: message.repaired,
        replayed: message.replayed,
        event: message.event,
        reply: (!message.reply.is_empty()).then(|| text(message.reply)),
        ..Annotation::default()
    };
    annotation.set_headers(message.headers);
    annotation
}

fn low_half(number: u64) -> u32 {
    (number & u64::from(u32::MAX)) as u32
}

fn is_json_object(payload: &[u8]) -> bool {
    payload.trim_ascii_start().first() == Some(&b'{')
        && payload.len() <= JSON_CHECK_BYTES_MAX
        && serde_json::from_slice::<IgnoredAny>(payload).is_ok()
}

fn io_error(error: McapError) -> io::Error {
    match error {
        McapError::Io(error) => error,
        error => io::Error::other(error),
    }
}
