//! Parser of a connection: the two records of the handshake, then frames.

use super::envelope::{RvEnvelope, RvLetter};
use super::fault::RvFault;
use super::message::{HEAD_BYTES, MAGIC};
use super::settings::{ENVELOPE_BYTES, Settings};
use crate::listener::buffer::Buffer;

/// Size of a version record in bytes.
pub const VERSION_BYTES: usize = 12;
/// Size of an info record in bytes.
pub const INFO_BYTES: usize = 64;
/// Maximum capacity that an empty buffer retains, in bytes. It bounds the memory of idle clients.
const IDLE_BYTES: usize = 4096;

/// A unit of a client's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RvCommand<'a> {
    /// The version record. Its words have no known meaning.
    Version,
    /// The info record. Its words have no known meaning.
    Info,
    /// A frame.
    Envelope(RvEnvelope<'a>),
    /// A frame that is too large for the bus. The parser drops its bytes.
    TooLarge {
        /// Size of the frame in bytes.
        bytes: usize,
    },
}

impl RvCommand<'_> {
    /// Returns whether the command publishes. Such a command may be backpressured.
    pub fn is_publish(&self) -> bool {
        matches!(self, RvCommand::Envelope(envelope) if envelope.letter == RvLetter::Data)
    }

    /// Returns whether the command begins or ends a listen.
    pub fn is_subscribe(&self) -> bool {
        let is_listen = |letter| matches!(letter, RvLetter::Listen | RvLetter::Cancel);
        matches!(self, RvCommand::Envelope(envelope) if is_listen(envelope.letter))
    }
}

/// Part of the conversation that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConversationStage {
    Version,
    Info,
    Frames,
}

/// Buffers received bytes until they form a record or a frame.
#[derive(Debug)]
pub struct RvParser {
    buffer: Buffer,
    stage: ConversationStage,
    /// Size in bytes of the buffered unit that was returned last.
    returned: usize,
    /// True if the next call returns that unit once more.
    is_repeated: bool,
    /// Size of the frame that was returned last as too large.
    too_large: Option<usize>,
    /// Number of bytes of a frame that are dropped as they come.
    dropping: usize,
    /// Maximum size of a frame that is buffered, in bytes.
    frame_bytes_max: usize,
    /// Maximum size of a frame that is buffered after the handshake, in bytes.
    admitted_bytes_max: usize,
    /// Maximum size of a frame that is dropped instead of an end of the connection, in bytes.
    dropped_bytes_max: usize,
}

impl RvParser {
    /// Creates the parser of a new connection.
    pub fn new(settings: &Settings) -> RvParser {
        RvParser {
            buffer: Buffer::new(IDLE_BYTES),
            stage: ConversationStage::Version,
            returned: 0,
            is_repeated: false,
            too_large: None,
            dropping: 0,
            frame_bytes_max: settings.unauthenticated_bytes_max,
            admitted_bytes_max: settings.message_bytes_max.saturating_add(ENVELOPE_BYTES),
            dropped_bytes_max: settings.frame_bytes_max,
        }
    }

    /// Lifts the limits of clients whose session has not begun.
    pub fn admit(&mut self) {
        self.frame_bytes_max = self.admitted_bytes_max;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let dropped = self.dropping.min(bytes.len());
        self.dropping -= dropped;
        self.buffer.push(&bytes[dropped..]);
    }

    /// Makes the parser return the last unit once more.
    pub fn repeat_last(&mut self) {
        self.is_repeated = 0 < self.returned || self.too_large.is_some();
    }

    /// Returns the number of held bytes. A large buffer counts with its whole capacity.
    pub fn held_bytes(&self) -> usize {
        self.buffer.held_bytes()
    }

    /// Returns the next unit, or `None` until more bytes arrive. The next call consumes its bytes.
    ///
    /// # Errors
    /// The bytes are not valid input; the connection ends.
    #[expect(clippy::should_implement_trait, reason = "the command borrows from the parser")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<RvCommand<'_>>, RvFault> {
        if !std::mem::take(&mut self.is_repeated) {
            self.consume();
        }
        if let Some(bytes) = self.too_large {
            return Ok(Some(RvCommand::TooLarge { bytes }));
        }
        let (record_bytes, record) = match self.stage {
            ConversationStage::Version => (VERSION_BYTES, RvCommand::Version),
            ConversationStage::Info => (INFO_BYTES, RvCommand::Info),
            ConversationStage::Frames => return self.frame(),
        };
        let is_complete = record_bytes <= self.buffer.rest().len();
        self.returned = if is_complete { record_bytes } else { 0 };
        Ok(is_complete.then_some(record))
    }

    /// Consumes the unit that was returned last.
    #[inline]
    fn consume(&mut self) {
        self.too_large = None;
        let returned = std::mem::take(&mut self.returned);
        if 0 < returned {
            self.buffer.skip(returned);
            self.stage = match self.stage {
                ConversationStage::Version => ConversationStage::Info,
                ConversationStage::Info | ConversationStage::Frames => ConversationStage::Frames,
            };
        }
    }

    #[inline]
    fn frame(&mut self) -> Result<Option<RvCommand<'_>>, RvFault> {
        loop {
            let Some(head) = self.buffer.rest().first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let [a, b, c, d, magic @ ..] = *head;
            let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
            if u32::from_be_bytes(magic) != MAGIC || bytes < HEAD_BYTES {
                return Err(RvFault::Frame);
            }
            // An empty frame keeps the connection alive.
            if bytes == HEAD_BYTES {
                self.buffer.skip(bytes);
                continue;
            }
            if self.frame_bytes_max < bytes {
                return self.drop_frame(bytes);
            }
            if self.buffer.rest().len() < bytes {
                return Ok(None);
            }
            self.returned = bytes;
            return RvEnvelope::decode(&self.buffer.rest()[..bytes])
                .map(|envelope| Some(RvCommand::Envelope(envelope)));
        }
    }

    /// Drops a frame that is too large, as its bytes come.
    fn drop_frame(&mut self, bytes: usize) -> Result<Option<RvCommand<'_>>, RvFault> {
        let is_admitted = self.frame_bytes_max == self.admitted_bytes_max;
        if !is_admitted || self.dropped_bytes_max < bytes {
            let bytes_max = if is_admitted { self.dropped_bytes_max } else { self.frame_bytes_max };
            return Err(RvFault::FrameTooLong { bytes, bytes_max });
        }
        let buffered = self.buffer.rest().len().min(bytes);
        self.buffer.skip(buffered);
        self.dropping = bytes - buffered;
        self.too_large = Some(bytes);
        Ok(Some(RvCommand::TooLarge { bytes }))
    }
}
