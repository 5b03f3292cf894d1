//! Bytes to commands: arrays of byte strings, or lines of text.
//!
//! What has been read of a command that is not whole yet is remembered, so that bytes that come one by one cost no more than
//! those that come at once. A length is checked before anything is done by it, and nothing is allocated by it.

use super::{RedisFault, Settings, inline};
use crate::listener::buffer::{Buffer, LARGE_BYTES, held_bytes};

/// Where an argument is, from the start of the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArgumentRange {
    start: u32,
    end: u32,
}

impl ArgumentRange {
    pub(super) fn new(start: usize, end: usize) -> ArgumentRange {
        let place = |at| u32::try_from(at).expect("a command has less than 4 GiB");
        ArgumentRange { start: place(start), end: place(end) }
    }
}

/// A command where it was read.
#[derive(Clone, Copy, Debug)]
pub struct RedisCommand<'a> {
    bytes: &'a [u8],
    spans: &'a [ArgumentRange],
}

impl<'a> RedisCommand<'a> {
    /// Whether it publishes a message.
    pub fn is_publish(&self) -> bool {
        self.is(b"PUBLISH") || self.is(b"SPUBLISH")
    }

    /// Whether it begins or ends subscriptions.
    pub fn is_subscribe(&self) -> bool {
        const NAMES: [&[u8]; 6] =
            [b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"SUNSUBSCRIBE"];
        NAMES.iter().any(|name| self.is(name))
    }

    /// Whether this is its name, in capital letters or small ones.
    #[inline]
    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.arg(0).eq_ignore_ascii_case(name)
    }

    /// How many arguments, its name included; there is always that.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// An argument that there is.
    #[inline]
    pub(super) fn arg(&self, index: usize) -> &'a [u8] {
        let ArgumentRange { start, end } = self.spans[index];
        &self.bytes[start as usize..end as usize]
    }

    /// The arguments from this one on.
    pub(super) fn args(self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        (from..self.len()).map(move |index| self.arg(index))
    }
}

/// The longest number of arguments or length of one in bytes; the real ones have at most ten digits.
const DIGITS_MAX: usize = 32;
/// A buffer of up to so many bytes is kept while nothing is in it: a client that does nothing costs little.
const IDLE_BYTES: usize = 4096;

/// What has come and is not a whole command yet.
#[derive(Debug)]
pub struct RedisParser {
    buffer: Buffer,
    /// From the start of the command: what lies before it has been read.
    at: usize,
    /// Arguments that are still to come; `None` before their number is known.
    left: Option<usize>,
    /// Where arguments are: in `buffer`, or in `words`.
    spans: Vec<ArgumentRange>,
    /// The words of an inline command; empty for others.
    words: Vec<u8>,
    is_inline: bool,
    /// A whole command lies there and was handed out,
    is_whole: bool,
    /// and is to be handed out once more.
    is_kept: bool,
    arguments_max: usize,
    bulk_bytes_max: usize,
    line_bytes_max: usize,
    command_bytes_max: usize,
    is_unauthenticated: bool,
    /// What ends once the client is no stranger any more: arguments and bytes.
    admitted_max: (usize, usize),
}

impl RedisParser {
    /// Of a connection that begins.
    pub fn new(settings: &Settings) -> RedisParser {
        let mut parser = RedisParser {
            buffer: Buffer::new(IDLE_BYTES),
            at: 0,
            left: None,
            spans: Vec::new(),
            words: Vec::new(),
            is_inline: false,
            is_whole: false,
            is_kept: false,
            arguments_max: settings.stranger_arguments_max,
            bulk_bytes_max: settings.unauthenticated_bytes_max,
            line_bytes_max: settings.line_bytes_max,
            command_bytes_max: settings.command_bytes_max.min(u32::MAX as usize),
            is_unauthenticated: true,
            admitted_max: (settings.arguments_max, settings.payload_bytes_max),
        };
        if !settings.access.is_closed() {
            parser.admit();
        }
        parser
    }

    /// The client has proven who it is: the limits of strangers end.
    pub fn admit(&mut self) {
        self.is_unauthenticated = false;
        (self.arguments_max, self.bulk_bytes_max) = self.admitted_max;
    }

    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The command just given is given once more.
    pub fn keep(&mut self) {
        self.is_kept = self.is_whole;
    }

    /// The next command, or `None` if more bytes are needed. The bytes of a command are dropped by the following call.
    ///
    /// # Errors
    /// The bytes mean nothing; the connection ends.
    #[expect(clippy::should_implement_trait, reason = "what is given is borrowed from the parser")]
    pub fn next(&mut self) -> Result<Option<RedisCommand<'_>>, RedisFault> {
        if !std::mem::take(&mut self.is_kept) {
            if std::mem::take(&mut self.is_whole) {
                self.drop_command();
                self.shrink();
            }
            self.is_whole = self.advance()?;
        }
        if !self.is_whole {
            self.release();
            return Ok(None);
        }
        let bytes = if self.is_inline { &self.words[..] } else { self.buffer.rest() };
        Ok(Some(RedisCommand { bytes, spans: &self.spans }))
    }

    /// Bytes that are held; of a large buffer all that it has.
    pub fn held_bytes(&self) -> usize {
        let spans = |count: usize| count * size_of::<ArgumentRange>();
        self.buffer.held_bytes()
            + held_bytes(self.words.capacity(), self.words.len())
            + held_bytes(spans(self.spans.capacity()), spans(self.spans.len()))
    }

    fn drop_command(&mut self) {
        self.buffer.skip(std::mem::take(&mut self.at));
        self.left = None;
        self.spans.clear();
        self.words.clear();
        self.is_inline = false;
    }

    /// Gives back the memory of a large command that is done with, though another one has begun.
    fn shrink(&mut self) {
        if LARGE_BYTES < self.spans.capacity() * size_of::<ArgumentRange>() {
            self.spans = Vec::new();
        }
        if LARGE_BYTES < self.words.capacity() {
            self.words = Vec::new();
        }
    }

    /// Gives back the memory of commands that are done with, where nothing follows.
    fn release(&mut self) {
        if !self.buffer.rest().is_empty() {
            return;
        }
        if IDLE_BYTES < self.spans.capacity() * size_of::<ArgumentRange>() {
            self.spans = Vec::new();
        }
        if IDLE_BYTES < self.words.capacity() {
            self.words = Vec::new();
        }
    }

    /// Reads on; whether a whole command lies there.
    fn advance(&mut self) -> Result<bool, RedisFault> {
        loop {
            let whole = match self.left {
                Some(0) => return Ok(true),
                Some(left) => self.bulk(left)?,
                None => match self.buffer.rest().first() {
                    None => return Ok(false),
                    Some(b'*') => self.count()?,
                    Some(_) => self.line()?,
                },
            };
            if !whole {
                return Ok(false);
            }
        }
    }

    /// The number of arguments; whether it is there.
    fn count(&mut self) -> Result<bool, RedisFault> {
        let Some((digits, end)) = self.digits(self.at, RedisFault::ArgumentsDigits)? else { return Ok(false) };
        let count = number(digits).filter(|count| *count <= i64::from(i32::MAX)).ok_or(RedisFault::Arguments)?;
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        if self.arguments_max < count {
            return Err(if self.is_unauthenticated { RedisFault::StrangerArguments } else { RedisFault::Arguments });
        }
        self.at = end;
        if count == 0 {
            self.drop_command();
        } else {
            self.left = Some(count);
        }
        Ok(true)
    }

    /// The next argument, of so many that are still to come; whether it is there.
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
            return Err(if self.is_unauthenticated && length <= self.admitted_max.1 {
                RedisFault::StrangerBulk
            } else {
                RedisFault::Bulk
            });
        }
        let end = start + length;
        if self.command_bytes_max < end + 2 {
            return Err(RedisFault::Command);
        }
        // The two bytes behind it are not looked at, as in Redis.
        if self.buffer.rest().len() < end + 2 {
            return Ok(false);
        }
        self.spans.push(ArgumentRange::new(start, end));
        self.at = end + 2;
        self.left = Some(left - 1);
        Ok(true)
    }

    /// The digits behind the byte at this place of the command, and where what is behind them begins; `None` if their end is
    /// not there yet.
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

    /// A command in a line of text; whether its end is there.
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
        inline::split(line, &mut self.words, &mut self.spans)?;
        self.at = end + 1;
        if self.spans.is_empty() {
            self.drop_command();
        } else {
            self.is_inline = true;
            self.left = Some(0);
        }
        Ok(true)
    }
}

/// A decimal number without `+` and without zeros in front.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_negative = digits.len() < text.len();
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if 9 < digit {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i64::from(digit))?;
    }
    Some(if is_negative { -value } else { value })
}
