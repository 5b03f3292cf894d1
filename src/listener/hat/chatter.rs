//! Chatter: numbered messages in conversations, and pings.
//!
//! ```text
//! frame   = n (1 byte) · length (n bytes, big-endian) · message
//! message = id integer · first integer · owner boolean · token boolean · last boolean · type text · body bytes
//! ```
//!
//! Each side numbers its messages from 1. `first` is the number of the message that began the conversation. `owner` is
//! true if the sender of this message began the conversation, and `last` if this message ends it. `token` is always
//! true, and is ignored.

use super::fault::HatFault;
use super::sbs::{SbsError, SbsReader, put_boolean, put_count, put_integer, put_text};
use super::settings::Settings;
use crate::listener::buffer::Buffer;
use bytes::{BufMut, BytesMut};

/// Type of a ping.
pub const PING: &str = "HatChatter.Ping";
/// Type of the answer to a ping.
pub const PONG: &str = "HatChatter.Pong";
/// Type name in reports of malformed frames.
pub const MESSAGE: &str = "HatChatter.Msg";

/// Maximum size of the length of a frame, in bytes.
const LENGTH_BYTES_MAX: usize = 8;
/// Maximum capacity that an empty buffer retains, in bytes.
const IDLE_BYTES: usize = 4096;

/// A message, borrowed from the parser's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatterMessage<'a> {
    /// Number of the message.
    pub id: i128,
    /// Conversation of the message.
    pub conversation: Conversation,
    /// True if the message ends the conversation.
    pub is_last: bool,
    /// Type of the body.
    pub type_name: &'a str,
    /// The body, encoded.
    pub body: &'a [u8],
}

/// A conversation, as the sender of a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The number of its first message.
    pub first: i128,
    /// True if the sender of the message began the conversation.
    pub is_own: bool,
}

impl Conversation {
    /// Returns the conversation as the other side names it.
    pub fn mirror(self) -> Conversation {
        Conversation { is_own: !self.is_own, ..self }
    }
}

impl<'a> ChatterMessage<'a> {
    /// Reads the content of a frame.
    ///
    /// # Errors
    /// Fails if the bytes are no message.
    pub fn decode(bytes: &'a [u8]) -> Result<ChatterMessage<'a>, SbsError> {
        let mut reader = SbsReader::new(bytes);
        let id = reader.integer()?;
        let conversation = Conversation { first: reader.integer()?, is_own: reader.boolean()? };
        let _token = reader.boolean()?;
        let is_last = reader.boolean()?;
        let (type_name, body) = (reader.text()?, reader.bytes()?);
        reader.end()?;
        Ok(ChatterMessage { id, conversation, is_last, type_name, body })
    }

    /// Returns the frame without the body, which comes last.
    pub fn head(&self) -> BytesMut {
        let mut message = BytesMut::new();
        put_integer(&mut message, self.id);
        put_integer(&mut message, self.conversation.first);
        put_boolean(&mut message, self.conversation.is_own);
        put_boolean(&mut message, true);
        put_boolean(&mut message, self.is_last);
        put_text(&mut message, self.type_name);
        put_count(&mut message, self.body.len());
        let length = ((message.len() + self.body.len()) as u64).to_be_bytes();
        // There is always a message, so the length is not 0.
        let zeros = length.iter().take_while(|byte| **byte == 0).count();
        let length = &length[zeros..];
        let mut head = BytesMut::with_capacity(1 + length.len() + message.len());
        head.put_u8(length.len() as u8);
        head.put_slice(length);
        head.put_slice(&message);
        head
    }

    /// Returns the frame of the message.
    pub fn frame(&self) -> BytesMut {
        let mut frame = self.head();
        frame.put_slice(self.body);
        frame
    }
}

/// Splits the bytes of a client into messages, for any segmentation of the stream.
#[derive(Debug)]
pub struct ChatterParser {
    buffer: Buffer,
    /// Size of the last returned frame, which is still in the buffer, in bytes.
    returned_bytes: usize,
    frame_bytes_max: usize,
    /// Maximum frame size of authenticated clients.
    admitted_bytes_max: usize,
}

impl ChatterParser {
    /// Creates the parser of a client that has just connected.
    pub fn new(settings: &Settings) -> ChatterParser {
        ChatterParser {
            buffer: Buffer::new(IDLE_BYTES),
            returned_bytes: 0,
            frame_bytes_max: settings.unauthenticated_bytes_max,
            admitted_bytes_max: settings.frame_bytes_max,
        }
    }

    /// Lifts the limit of unauthenticated clients.
    pub fn admit(&mut self) {
        self.frame_bytes_max = self.admitted_bytes_max;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Makes the next call return the last message once more.
    pub fn repeat_last(&mut self) {
        self.returned_bytes = 0;
    }

    /// Returns the next message, or `None` until more bytes arrive. The next call consumes the bytes of the message.
    ///
    /// # Errors
    /// The bytes are no valid frame or message, or exceed the limit; the connection ends.
    #[expect(clippy::should_implement_trait, reason = "the command borrows from the parser")]
    pub fn next(&mut self) -> Result<Option<ChatterMessage<'_>>, HatFault> {
        self.buffer.skip(std::mem::take(&mut self.returned_bytes));
        let Some((header_bytes, length)) = self.length()? else { return Ok(None) };
        let Some(content) = self.buffer.rest()[header_bytes..].get(..length) else { return Ok(None) };
        self.returned_bytes = header_bytes + length;
        let message = ChatterMessage::decode(content);
        message.map(Some).map_err(|error| HatFault::Malformed { type_name: MESSAGE, error })
    }

    /// Returns the number of held bytes. A large buffer counts with its whole capacity.
    pub fn held_bytes(&self) -> usize {
        self.buffer.held_bytes()
    }

    /// Returns the number of bytes of the next frame's header, and the frame's length; `None` until the header has
    /// arrived.
    fn length(&self) -> Result<Option<(usize, usize)>, HatFault> {
        let Some((&count, rest)) = self.buffer.rest().split_first() else { return Ok(None) };
        let count = usize::from(count);
        if count < 1 || LENGTH_BYTES_MAX < count {
            return Err(HatFault::Length(count));
        }
        let Some(digits) = rest.get(..count) else { return Ok(None) };
        let bytes = digits.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        match usize::try_from(bytes).ok().filter(|bytes| *bytes <= self.frame_bytes_max) {
            Some(length) => Ok(Some((1 + count, length))),
            None => Err(HatFault::TooLong { bytes, bytes_max: self.frame_bytes_max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sbs::SbsErrorKind;
    use super::*;

    #[test]
    fn ping_equals_the_bytes_of_the_reference() {
        let ping = b"\x01\x16\x87\x87\x01\x01\x00\x8fHatChatter.Ping\x80";
        let pong = b"\x01\x16\x87\x87\x00\x01\x01\x8fHatChatter.Pong\x80";
        let conversation = Conversation { first: 7, is_own: true };
        let ping_message = ChatterMessage { id: 7, conversation, is_last: false, type_name: PING, body: b"" };
        let conversation = conversation.mirror();
        let pong_message = ChatterMessage { id: 7, conversation, is_last: true, type_name: PONG, body: b"" };
        for (bytes, message) in [(ping, ping_message), (pong, pong_message)] {
            assert_eq!(message.frame(), bytes[..]);
            let mut parser = ChatterParser::new(&Settings::default());
            parser.push(bytes);
            assert_eq!(parser.next(), Ok(Some(message)));
            parser.repeat_last();
            assert_eq!(parser.next(), Ok(Some(message)));
            assert_eq!(parser.next(), Ok(None));
            assert_eq!(parser.held_bytes(), 0);
        }
    }

    #[test]
    fn length_is_written_in_the_fewest_bytes() {
        let conversation = Conversation { first: 1, is_own: true };
        for (body_bytes, expected) in [(0, &[1, 8][..]), (247, &[2, 1, 0]), (1 << 20, &[3, 16, 0, 11])] {
            let body = vec![0; body_bytes];
            let message = ChatterMessage { id: 1, conversation, is_last: true, type_name: "t", body: &body };
            let frame = message.frame();
            assert_eq!(frame[..expected.len()], *expected, "{body_bytes}");
            let padded = [&[8, 0, 0, 0, 0, 0][..], &[0; 3][expected.len() - 1..], &expected[1..]].concat();
            let mut parser =
                ChatterParser::new(&Settings { unauthenticated_bytes_max: 2 << 20, ..Settings::default() });
            parser.push(&padded);
            parser.push(&frame[expected.len()..]);
            assert_eq!(parser.next(), Ok(Some(message)));
        }
    }

    #[test]
    fn invalid_length_ends_the_connection_before_the_body() {
        let settings = Settings { unauthenticated_bytes_max: 40, frame_bytes_max: 300, ..Settings::default() };
        let check = |bytes: &[u8], is_admitted: bool, expected: Result<Option<ChatterMessage<'_>>, HatFault>| {
            let mut parser = ChatterParser::new(&settings);
            if is_admitted {
                parser.admit();
            }
            parser.push(bytes);
            assert_eq!(parser.next(), expected, "{bytes:?}");
        };
        check(&[0], false, Err(HatFault::Length(0)));
        check(&[9], false, Err(HatFault::Length(9)));
        check(&[1], false, Ok(None));
        check(&[1, 40], false, Ok(None));
        check(&[1, 41], false, Err(HatFault::TooLong { bytes: 41, bytes_max: 40 }));
        check(&[1, 41], true, Ok(None));
        check(&[2, 1, 45], true, Err(HatFault::TooLong { bytes: 301, bytes_max: 300 }));
        check(&[0xff; 9], true, Err(HatFault::Length(255)));
        let all = [&[8][..], &[0xff; 8]].concat();
        check(&all, true, Err(HatFault::TooLong { bytes: u64::MAX, bytes_max: 300 }));
        let malformed = |at, kind| Err(HatFault::Malformed { type_name: MESSAGE, error: SbsError { at, kind } });
        check(&[1, 0], false, malformed(0, SbsErrorKind::Short));
        check(b"\x01\x07\x81\x81\x02\x01\x01\x80\x80", false, malformed(2, SbsErrorKind::Boolean(2)));
        check(b"\x01\x08\x81\x81\x01\x01\x01\x80\x80\x80", false, malformed(7, SbsErrorKind::Trailing));
    }

    /// The parser releases the memory of a large message.
    #[test]
    fn idle_parser_holds_no_bytes() {
        let conversation = Conversation { first: 1, is_own: true };
        let body = vec![7; 400_000];
        let frame = ChatterMessage { id: 1, conversation, is_last: true, type_name: "t", body: &body }.frame();
        let mut parser = ChatterParser::new(&Settings::default());
        for part in frame.chunks(1000) {
            assert_eq!(parser.next(), Ok(None));
            parser.push(part);
        }
        assert!(frame.len() <= parser.held_bytes());
        assert!(parser.next().is_ok_and(|message| message.is_some()));
        assert_eq!(parser.next(), Ok(None));
        assert_eq!(parser.held_bytes(), 0);
    }
}
