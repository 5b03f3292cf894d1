//! Parser for commands: arrays of byte strings, or lines of text.
//!
//! The parser records its progress in an incomplete command, so that bytes that arrive singly cost no more than a
//! complete command. A length is checked before its use, and never causes an allocation.

use super::command::{ArgumentRange, RedisCommand, number};
use super::fault::RedisFault;
use super::inline;
use super::settings::Settings;
use crate::listener::buffer::{Buffer, LARGE_BYTES, held_bytes};

/// Maximum number of digits of a number of arguments or of an argument's length. Valid numbers have at most ten digits.
const DIGITS_MAX: usize = 32;
/// Maximum capacity that an empty buffer retains, in bytes. It bounds the memory of idle clients.
const IDLE_BYTES: usize = 4096;

/// Buffers received bytes until they form a complete command.
#[derive(Debug)]
pub struct RedisParser {
    buffer: Buffer,
    /// Offset of the first unparsed byte from the start of the command.
    at: usize,
    /// Number of arguments not parsed yet; `None` before their number is parsed.
    arguments_left: Option<usize>,
    /// Ranges of the arguments in `buffer` or in `inline_bytes`.
    spans: Vec<ArgumentRange>,
    /// Arguments of an inline command; empty for other commands.
    inline_bytes: Vec<u8>,
    is_inline: bool,
    /// True if a complete command is buffered and was returned.
    is_complete: bool,
    /// True if the next call returns that command once more.
    is_repeated: bool,
    arguments_max: usize,
    bulk_bytes_max: usize,
    line_bytes_max: usize,
    command_bytes_max: usize,
    is_unauthenticated: bool,
    /// Maximum number of arguments after authentication.
    admitted_arguments_max: usize,
    /// Maximum bytes of an argument after authentication.
    admitted_bulk_bytes_max: usize,
    /// Number of commands that needed no parsing.
    #[cfg(test)]
    pub(super) repetitions: usize,
}

impl RedisParser {
    /// Creates the parser of a new connection.
    pub fn new(settings: &Settings) -> RedisParser {
        let mut parser = RedisParser {
            buffer: Buffer::new(IDLE_BYTES),
            at: 0,
            arguments_left: None,
            spans: Vec::new(),
            inline_bytes: Vec::new(),
            is_inline: false,
            is_complete: false,
            is_repeated: false,
            arguments_max: settings.unauthenticated_arguments_max,
            bulk_bytes_max: settings.unauthenticated_bytes_max,
            line_bytes_max: settings.line_bytes_max,
            command_bytes_max: settings.command_bytes_max.min(u32::MAX as usize),
            is_unauthenticated: true,
            admitted_arguments_max: settings.arguments_max,
            admitted_bulk_bytes_max: settings.payload_bytes_max,
            #[cfg(test)]
            repetitions: 0,
        };
        if !settings.access.requires_authentication() {
            parser.admit();
        }
        parser
    }

    /// Lifts the limits of unauthenticated clients.
    pub fn admit(&mut self) {
        self.is_unauthenticated = false;
        self.arguments_max = self.admitted_arguments_max;
        self.bulk_bytes_max = self.admitted_bulk_bytes_max;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Makes the parser return the last command once more.
    pub fn repeat_last(&mut self) {
        self.is_repeated = self.is_complete;
    }

    /// Returns the next command, or `None` until more bytes arrive. The next call consumes the bytes of the command.
    ///
    /// # Errors
    /// The bytes are not a valid command; the connection ends.
    #[expect(clippy::should_implement_trait, reason = "the command borrows from the parser")]
    pub fn next(&mut self) -> Result<Option<RedisCommand<'_>>, RedisFault> {
        if !std::mem::take(&mut self.is_repeated) {
            if self.has_repetition() {
                self.skip_to_repetition();
            } else {
                if std::mem::take(&mut self.is_complete) {
                    self.drop_command();
                    self.shrink();
                }
                self.is_complete = self.advance()?;
            }
        }
        if !self.is_complete {
            self.release();
            return Ok(None);
        }
        let bytes = if self.is_inline { &self.inline_bytes[..] } else { self.buffer.rest() };
        Ok(Some(RedisCommand::new(bytes, &self.spans)))
    }

    /// Returns the last argument of the next command, which is the payload of a publish. The command must be complete,
    /// and equal to the last one in all other bytes; otherwise nothing changes. It does what
    /// [`next`](RedisParser::next) does, at less cost.
    #[inline]
    pub fn next_repeated(&mut self) -> Option<&[u8]> {
        if self.is_repeated || !self.has_repetition() {
            return None;
        }
        self.skip_to_repetition();
        self.spans.last().map(|payload| payload.of(self.buffer.rest()))
    }

    /// Proceeds to the next command, which [`has_repetition`](RedisParser::has_repetition) has found.
    #[inline]
    fn skip_to_repetition(&mut self) {
        self.buffer.skip(self.at);
        #[cfg(test)]
        {
            self.repetitions += 1;
        }
    }

    /// Returns whether the next command is complete and differs from the last one, which is still in the buffer, at most
    /// in the bytes of the last argument. Programs often publish many messages of one size on one channel; the next of
    /// them needs no parsing.
    #[inline]
    fn has_repetition(&self) -> bool {
        let Some(last_argument) = self.spans.last().filter(|_| self.is_complete && !self.is_inline) else {
            return false;
        };
        let (last, rest) = self.buffer.rest().split_at(self.at);
        rest.len() >= last.len() && rest[..last_argument.start()] == last[..last_argument.start()]
    }

    /// Returns the number of held bytes. A large buffer counts with its whole capacity.
    pub fn held_bytes(&self) -> usize {
        let spans = |count: usize| count * size_of::<ArgumentRange>();
        self.buffer.held_bytes()
            + held_bytes(self.inline_bytes.capacity(), self.inline_bytes.len())
            + held_bytes(spans(self.spans.capacity()), spans(self.spans.len()))
    }

    fn drop_command(&mut self) {
        self.buffer.skip(std::mem::take(&mut self.at));
        self.arguments_left = None;
        self.spans.clear();
        self.inline_bytes.clear();
        self.is_inline = false;
    }

    /// Releases the memory of a large, consumed command, even if another one has begun.
    fn shrink(&mut self) {
        if LARGE_BYTES < self.spans.capacity() * size_of::<ArgumentRange>() {
            self.spans = Vec::new();
        }
        if LARGE_BYTES < self.inline_bytes.capacity() {
            self.inline_bytes = Vec::new();
        }
    }

    /// Releases the memory of consumed commands if no further bytes are buffered.
    fn release(&mut self) {
        if !self.buffer.rest().is_empty() {
            return;
        }
        if IDLE_BYTES < self.spans.capacity() * size_of::<ArgumentRange>() {
            self.spans = Vec::new();
        }
        if IDLE_BYTES < self.inline_bytes.capacity() {
            self.inline_bytes = Vec::new();
        }
    }

    /// Parses further bytes. Returns whether a complete command is buffered.
    fn advance(&mut self) -> Result<bool, RedisFault> {
        loop {
            let is_parsed = match self.arguments_left {
                Some(0) => return Ok(true),
                Some(left) => self.bulk(left)?,
                None => match self.buffer.rest().first() {
                    None => return Ok(false),
                    Some(b'*') => self.count()?,
                    Some(_) => self.line()?,
                },
            };
            if !is_parsed {
                return Ok(false);
            }
        }
    }

    /// Parses the number of arguments. Returns whether it was complete.
    fn count(&mut self) -> Result<bool, RedisFault> {
        let Some((digits, end)) = self.digits(self.at, RedisFault::ArgumentsDigits)? else { return Ok(false) };
        let count = number(digits).filter(|count| *count <= i64::from(i32::MAX)).ok_or(RedisFault::Arguments)?;
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        if self.arguments_max < count {
            return Err(if self.is_unauthenticated {
                RedisFault::UnauthenticatedArguments
            } else {
                RedisFault::Arguments
            });
        }
        self.at = end;
        if count == 0 {
            self.drop_command();
        } else {
            self.arguments_left = Some(count);
        }
        Ok(true)
    }

    /// Parses the next of `left` remaining arguments. Returns whether it was complete.
    #[inline]
    fn bulk(&mut self, left: usize) -> Result<bool, RedisFault> {
        match self.buffer.rest().get(self.at) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(byte) => return Err(RedisFault::Expected(*byte)),
        }
        let Some((digits, start)) = self.digits(self.at, RedisFault::BulkDigits)? else { return Ok(false) };
        let length = number(digits).and_then(|length| usize::try_from(length).ok()).ok_or(RedisFault::Bulk)?;
        if self.bulk_bytes_max < length {
            return Err(if self.is_unauthenticated && length <= self.admitted_bulk_bytes_max {
                RedisFault::UnauthenticatedBulk
            } else {
                RedisFault::Bulk
            });
        }
        let end = start + length;
        if self.command_bytes_max < end + 2 {
            return Err(RedisFault::Command);
        }
        // As in Redis, the two bytes after the argument are not checked.
        if self.buffer.rest().len() < end + 2 {
            return Ok(false);
        }
        self.spans.push(ArgumentRange::new(start, end));
        self.at = end + 2;
        self.arguments_left = Some(left - 1);
        Ok(true)
    }

    /// Returns the digits after the byte at offset `at` of the command, and the offset after their line end. Returns
    /// `None` if the line end has not arrived.
    #[inline]
    fn digits(&self, at: usize, too_long: RedisFault) -> Result<Option<(&[u8], usize)>, RedisFault> {
        let text = &self.buffer.rest()[at + 1..];
        let end = text.iter().take(DIGITS_MAX + 1).position(|byte| *byte == b'\r');
        match end {
            Some(end) if end + 1 < text.len() => Ok(Some((&text[..end], at + end + 3))),
            None if DIGITS_MAX < text.len() => Err(too_long),
            _ => Ok(None),
        }
    }

    /// Parses an inline command. Returns whether its line end was found.
    fn line(&mut self) -> Result<bool, RedisFault> {
        let text = self.buffer.rest();
        let end = text[self.at..].iter().position(|byte| *byte == b'\n').map(|end| self.at + end);
        if self.line_bytes_max < end.unwrap_or(text.len()) {
            return Err(RedisFault::Line);
        }
        let Some(end) = end else {
            self.at = text.len();
            return Ok(false);
        };
        let line = text[..end].strip_suffix(b"\r").unwrap_or(&text[..end]);
        inline::split(line, &mut self.inline_bytes, &mut self.spans)?;
        self.at = end + 1;
        if self.spans.is_empty() {
            self.drop_command();
        } else {
            self.is_inline = true;
            self.arguments_left = Some(0);
        }
        Ok(true)
    }
}
