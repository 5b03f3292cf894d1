//! Splits a client's bytes into commands.
//!
//! Every command is borrowed from the parser's buffer. The session interprets commands and validates their subjects.

use super::command::{NatsCommand, OPS, Op, Pub};
use super::fault::{AuthenticationFailure, NatsFault};
use super::settings::Settings;
use crate::listener::buffer::Buffer;
use std::mem;
use std::ops::Range;

/// Maximum capacity that an empty buffer retains, in bytes. It bounds the memory of idle clients.
const IDLE_BYTES: usize = 1024;
/// Maximum number of digits of a size; a message has at most 8 MiB.
const SIZE_DIGITS_MAX: usize = 9;
/// Maximum number of arguments that are parsed: one more than any operation has.
const ARGUMENTS_MAX: usize = 6;

/// Buffers a client's bytes until they form complete commands. It holds at most one incomplete command and the bytes
/// pushed with it.
#[derive(Debug)]
pub struct NatsParser {
    buffer: Buffer,
    /// Size of the last returned command, which is still in the buffer, in bytes.
    returned_bytes: usize,
    /// Number of bytes of the next command that contain no line end.
    searched_bytes: usize,
    /// Total size of the next command in bytes; 0 until its line is complete.
    command_bytes: usize,
    /// True if commands other than CONNECT are allowed.
    is_admitted: bool,
    line_bytes_max: usize,
    unauthenticated_bytes_max: usize,
    payload_bytes_max: usize,
    /// The last returned command, if it is a PUB without a reply subject.
    last_pub: Option<LastPub>,
}

impl NatsParser {
    /// Creates a parser with an empty buffer.
    pub fn new(settings: &Settings) -> NatsParser {
        NatsParser {
            buffer: Buffer::new(IDLE_BYTES),
            returned_bytes: 0,
            searched_bytes: 0,
            command_bytes: 0,
            is_admitted: !settings.access.requires_authentication(),
            line_bytes_max: settings.line_bytes_max,
            unauthenticated_bytes_max: settings.unauthenticated_bytes_max.min(settings.line_bytes_max),
            payload_bytes_max: settings.payload_bytes_max,
            last_pub: None,
        }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Returns the next complete command, or `None` until more bytes arrive. The next call consumes the bytes of the
    /// command, unless [`repeat_last`](NatsParser::repeat_last) is called before.
    ///
    /// # Errors
    /// The bytes are not a command, or the command is not allowed. The parser cannot continue after an error.
    #[expect(clippy::should_implement_trait, reason = "the command borrows from the parser")]
    pub fn next(&mut self) -> Result<Option<NatsCommand<'_>>, NatsFault> {
        if self.has_repetition() {
            return Ok(Some(NatsCommand::Pub(self.take_repetition())));
        }
        self.last_pub = None;
        self.buffer.skip(mem::take(&mut self.returned_bytes));
        let line_bytes_max = if self.is_admitted { self.line_bytes_max } else { self.unauthenticated_bytes_max };
        let rest = self.buffer.rest();
        if rest.is_empty() || rest.len() < self.command_bytes {
            return Ok(None);
        }
        let op_match = match_op(rest)?;
        if !self.is_admitted && !matches!(op_match, OpMatch::Partial | OpMatch::Complete(Op::Connect, _)) {
            return Err(NatsFault::Unauthorized(AuthenticationFailure::NotConnected));
        }
        let Some(line_end) = line_end(&rest[self.searched_bytes..]).map(|at| self.searched_bytes + at) else {
            self.searched_bytes = rest.len();
            return match op_match {
                // The limit leaves room for a space and for the CR of the line end.
                OpMatch::Complete(_, op_bytes) if line_bytes_max + 2 < rest.len() - op_bytes => {
                    Err(NatsFault::LineTooLong)
                }
                _ => Ok(None),
            };
        };
        let OpMatch::Complete(op, op_bytes) = op_match else { return Err(NatsFault::UnknownOperation) };
        let line = &rest[op_bytes..line_end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line_bytes_max + 1 < line.len() {
            return Err(NatsFault::LineTooLong);
        }
        let (command, bytes) = match op {
            Op::Pub | Op::Hpub => {
                let head = PubLine::read(op, line)?;
                if self.payload_bytes_max < head.bytes {
                    return Err(NatsFault::PayloadTooLong { bytes: head.bytes, bytes_max: self.payload_bytes_max });
                }
                let bytes = line_end + 1 + head.bytes + 2;
                let Some(content) = rest.get(line_end + 1..bytes) else {
                    (self.searched_bytes, self.command_bytes) = (line_end, bytes);
                    return Ok(None);
                };
                self.last_pub = head.is_plain().then(|| LastPub::new(&rest[..=line_end], op_bytes, head.subject));
                (NatsCommand::Pub(head.into_pub(content)?), bytes)
            }
            _ => (parse_line(op, line)?, line_end + 1),
        };
        self.returned_bytes = bytes;
        (self.searched_bytes, self.command_bytes) = (0, 0);
        Ok(Some(command))
    }

    /// Returns the payload of the next command if it is complete and its line repeats that of the last command, a PUB
    /// without a reply subject. Otherwise it changes nothing. It does what [`next`](NatsParser::next) does, at less cost.
    #[inline]
    pub fn next_repeated(&mut self) -> Option<&[u8]> {
        self.has_repetition().then(|| self.take_repetition().payload)
    }

    /// Returns whether the next command is complete and has the line of the last command, a PUB without a reply subject.
    /// Programs often publish many messages of one size on one subject; such a line needs no parsing.
    #[inline]
    fn has_repetition(&self) -> bool {
        let Some(LastPub { line_bytes, .. }) = self.last_pub else { return false };
        let (last, rest) = self.buffer.rest().split_at(self.returned_bytes);
        match rest.get(..last.len()) {
            Some(next) => next[..line_bytes] == last[..line_bytes] && next.ends_with(b"\r\n"),
            None => false,
        }
    }

    /// Returns the next command, which [`has_repetition`](NatsParser::has_repetition) has found.
    #[inline]
    fn take_repetition(&mut self) -> Pub<'_> {
        self.buffer.skip(self.returned_bytes);
        let last = self.last_pub.as_ref().expect("only a PUB is repeated");
        let (line, content) = self.buffer.rest()[..self.returned_bytes].split_at(last.line_bytes);
        let payload = content.strip_suffix(b"\r\n").expect("the line end after the payload was found");
        Pub { subject: &line[last.subject.clone()], reply: None, headers: None, payload }
    }

    /// Makes the parser return the last command once more.
    pub fn repeat_last(&mut self) {
        self.last_pub = None;
        self.returned_bytes = 0;
    }

    /// Lifts the limits of unauthenticated clients.
    pub fn admit(&mut self) {
        self.is_admitted = true;
    }

    /// Returns the number of held bytes. A large buffer counts with its whole capacity.
    pub fn held_bytes(&self) -> usize {
        self.buffer.held_bytes()
    }
}

/// The parts of a returned PUB without a reply subject, which is still in the buffer.
#[derive(Debug)]
struct LastPub {
    /// Size of the line with its end.
    line_bytes: usize,
    /// Location of the subject in the line.
    subject: Range<usize>,
}

impl LastPub {
    /// Describes this line with its end. The name of the operation has `op_bytes` bytes.
    fn new(line: &[u8], op_bytes: usize, subject: &[u8]) -> LastPub {
        let start = op_bytes + line[op_bytes..].iter().take_while(|byte| is_separator(**byte)).count();
        LastPub { line_bytes: line.len(), subject: start..start + subject.len() }
    }
}

/// Result of matching the start of a line with the operations.
enum OpMatch {
    /// The bytes are a prefix of an operation's name.
    Partial,
    /// An operation and the length of its name, in bytes.
    Complete(Op, usize),
}

fn match_op(bytes: &[u8]) -> Result<OpMatch, NatsFault> {
    for (name, op) in OPS {
        let count = name.len().min(bytes.len());
        if !bytes[..count].eq_ignore_ascii_case(&name[..count]) {
            continue;
        }
        return match bytes.get(count) {
            _ if count < name.len() => Ok(OpMatch::Partial),
            Some(byte) if op.needs_space() && !matches!(byte, b' ' | b'\t') => Err(NatsFault::UnknownOperation),
            _ => Ok(OpMatch::Complete(op, count)),
        };
    }
    Err(NatsFault::UnknownOperation)
}

/// Returns the index of the first LF. It compares eight bytes at a time, because all received bytes pass through it.
fn line_end(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const LINE_FEEDS: u64 = u64::from_ne_bytes([b'\n'; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word) ^ LINE_FEEDS;
        // The lowest bit that is set belongs to the first byte that is 0.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return Some(index * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|byte| *byte == b'\n').map(|at| words.len() * 8 + at)
}

/// Returns whether the byte separates arguments.
fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// The arguments of a line, up to one more than any operation has.
struct Arguments<'a> {
    all: [&'a [u8]; ARGUMENTS_MAX],
    count: usize,
}

impl<'a> Arguments<'a> {
    #[inline]
    fn read(line: &'a [u8]) -> Arguments<'a> {
        let mut arguments = Arguments { all: [&[]; ARGUMENTS_MAX], count: 0 };
        let mut begin = None;
        for (at, byte) in line.iter().enumerate() {
            match (is_separator(*byte), begin) {
                (true, Some(from)) => {
                    arguments.add(&line[from..at]);
                    begin = None;
                }
                (true, None) | (false, Some(_)) => {}
                (false, None) => begin = Some(at),
            }
        }
        if let Some(from) = begin {
            arguments.add(&line[from..]);
        }
        arguments
    }

    #[inline]
    fn add(&mut self, argument: &'a [u8]) {
        if self.count < ARGUMENTS_MAX {
            self.all[self.count] = argument;
            self.count += 1;
        }
    }

    fn get(&self) -> &[&'a [u8]] {
        &self.all[..self.count]
    }
}

/// Parsed line of a PUB or HPUB.
struct PubLine<'a> {
    subject: &'a [u8],
    reply: Option<&'a [u8]>,
    /// Bytes of the headers; `None` for PUB.
    header_bytes: Option<usize>,
    /// Bytes of headers and payload together.
    bytes: usize,
}

impl<'a> PubLine<'a> {
    #[inline]
    fn read(op: Op, line: &'a [u8]) -> Result<PubLine<'a>, NatsFault> {
        let arguments = Arguments::read(line);
        let (subject, reply, header_bytes, bytes) = match (op, arguments.get()) {
            (Op::Pub, [subject, bytes]) => (subject, None, None, bytes),
            (Op::Pub, [subject, reply, bytes]) => (subject, Some(*reply), None, bytes),
            (Op::Hpub, [subject, header_bytes, bytes]) => (subject, None, Some(header_bytes), bytes),
            (Op::Hpub, [subject, reply, header_bytes, bytes]) => (subject, Some(*reply), Some(header_bytes), bytes),
            _ => return Err(NatsFault::Arguments(op)),
        };
        let bytes = parse_size(bytes).ok_or(NatsFault::Size(op))?;
        let header_bytes = match header_bytes {
            Some(text) => {
                Some(parse_size(text).filter(|header_bytes| *header_bytes <= bytes).ok_or(NatsFault::Size(op))?)
            }
            None => None,
        };
        Ok(PubLine { subject, reply, header_bytes, bytes })
    }

    /// Returns whether the message has only a subject and a payload.
    fn is_plain(&self) -> bool {
        self.reply.is_none() && self.header_bytes.is_none()
    }

    /// Returns the complete command. `content` must end with CR LF.
    #[inline]
    fn into_pub(self, content: &'a [u8]) -> Result<Pub<'a>, NatsFault> {
        let content = content.strip_suffix(b"\r\n").ok_or(NatsFault::UnknownOperation)?;
        let (headers, payload) = match self.header_bytes {
            Some(bytes) => (Some(&content[..bytes]), &content[bytes..]),
            None => (None, content),
        };
        Ok(Pub { subject: self.subject, reply: self.reply, headers, payload })
    }
}

/// Parses a size of at most nine digits.
#[inline]
fn parse_size(text: &[u8]) -> Option<usize> {
    if text.is_empty() || SIZE_DIGITS_MAX < text.len() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |size, digit| size * 10 + usize::from(digit - b'0')))
}

/// Parses a command that consists of a single line.
fn parse_line(op: Op, line: &[u8]) -> Result<NatsCommand<'_>, NatsFault> {
    match op {
        Op::Connect => return Ok(NatsCommand::Connect(line.trim_ascii())),
        Op::Ping => return Ok(NatsCommand::Ping),
        Op::Pong => return Ok(NatsCommand::Pong),
        Op::Info | Op::Ok => return Ok(NatsCommand::Ignored),
        Op::Err => return Ok(NatsCommand::Err),
        Op::Pub | Op::Hpub | Op::Sub | Op::Unsub => {}
    }
    let arguments = Arguments::read(line);
    match (op, arguments.get()) {
        (Op::Sub, [subject, sid]) => Ok(NatsCommand::Sub { subject, queue: None, sid }),
        (Op::Sub, [subject, queue, sid]) => Ok(NatsCommand::Sub { subject, queue: Some(queue), sid }),
        (Op::Unsub, [sid]) => Ok(NatsCommand::Unsub { sid, max: 0 }),
        // As in nats-server, a value that is not a number ends the subscription at once.
        (Op::Unsub, [sid, max]) => Ok(NatsCommand::Unsub { sid, max: parse_size(max).unwrap_or(0) as u64 }),
        _ => Err(NatsFault::Arguments(op)),
    }
}
