//! The local listener: cuts a stream of bytes into frames and keeps the order of a conversation.
//!
//! [`Listener`] is the peer's end, [`Caller`] the client's. Neither knows a socket. After a [`Fault`] a conversation is over:
//! nothing more comes out, whatever goes in.

use crate::listener::codec::Malformed;
use crate::listener::frame::{ByeReason, FRAME_BYTES_MAX, LENGTH_BYTES, ToClient, ToPeer, VERSION};
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;

/// The largest frame before the greeting, in bytes: a HELLO has at most 262, a BYE at most 258.
const GREETING_BYTES_MAX: usize = 1024;

/// Why a conversation is over; named after who is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The other side sent bytes that mean nothing.
    Malformed(Malformed),
    /// The other side sent a frame that is not allowed at this point.
    Misbehaved(Misbehaved),
    /// The other side speaks another version.
    Incompatible {
        /// Its version.
        theirs: u16,
    },
}

/// What a well-formed frame did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaved {
    /// The first frame was no greeting.
    NoGreeting,
    /// A second greeting.
    SecondGreeting,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Malformed(malformed) => malformed.fmt(f),
            Fault::Misbehaved(Misbehaved::NoGreeting) => write!(f, "the first frame must be the greeting"),
            Fault::Misbehaved(Misbehaved::SecondGreeting) => write!(f, "a second greeting"),
            Fault::Incompatible { theirs } => write!(
                f,
                "the other side speaks version {theirs} of the local protocol, this one version {VERSION}: \
                 install the same version of seqcast on both sides"
            ),
        }
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// The last frame for the one at fault.
    pub fn bye(&self) -> ToClient {
        let reason = match self {
            Fault::Malformed(_) => ByeReason::Malformed,
            Fault::Misbehaved(_) => ByeReason::Misbehaved,
            Fault::Incompatible { .. } => ByeReason::Incompatible,
        };
        ToClient::Bye { reason, text: self.to_string() }
    }
}

/// Cuts a byte stream into frames, however the stream was cut before. Holds at most one frame and what came with it.
#[derive(Debug)]
struct Frames {
    buffer: BytesMut,
}

impl Frames {
    /// The next whole frame without its length; `None` until more bytes come.
    fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Malformed> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes_max < bytes {
            return Err(Malformed::TooLong { bytes: u64::from(length), bytes_max });
        }
        if self.buffer.len() - LENGTH_BYTES < bytes {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(bytes).freeze()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Open,
    Over,
}

/// What both ends have in common.
#[derive(Debug)]
struct Conversation {
    frames: Frames,
    state: State,
}

impl Conversation {
    fn new() -> Conversation {
        Conversation { frames: Frames { buffer: BytesMut::new() }, state: State::Greeting }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.state != State::Over {
            self.frames.buffer.extend_from_slice(bytes);
        }
    }

    /// The next frame as `decode` reads it and `judge` allows it in the present state.
    fn next<T>(
        &mut self,
        decode: impl Fn(Bytes) -> Result<T, Malformed>,
        judge: impl Fn(&T, State) -> Result<State, Fault>,
    ) -> Result<Option<T>, Fault> {
        let bytes_max = match self.state {
            State::Greeting => GREETING_BYTES_MAX,
            State::Open => FRAME_BYTES_MAX,
            State::Over => return Ok(None),
        };
        let read = match self.frames.next(bytes_max) {
            Ok(None) => return Ok(None),
            Ok(Some(frame)) => decode(frame).map_err(Fault::Malformed),
            Err(malformed) => Err(Fault::Malformed(malformed)),
        };
        let judged = read.and_then(|frame| judge(&frame, self.state).map(|state| (frame, state)));
        match judged {
            Ok((frame, state)) => {
                self.state = state;
                Ok(Some(frame))
            }
            Err(fault) => {
                self.state = State::Over;
                self.frames.buffer = BytesMut::new();
                Err(fault)
            }
        }
    }
}

/// The peer's end of one conversation.
#[derive(Debug)]
pub struct Listener(Conversation);

impl Default for Listener {
    fn default() -> Listener {
        Listener::new()
    }
}

impl Listener {
    /// A conversation that begins.
    pub fn new() -> Listener {
        Listener(Conversation::new())
    }

    /// Takes bytes as they came from the client. Call [`Listener::poll_frame`] until `None` after each push; then what is
    /// held is less than one frame.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The client's next frame: first a HELLO of this version, then anything else.
    ///
    /// # Errors
    /// What ended the conversation; [`Fault::bye`] is the answer to send before closing.
    pub fn poll_frame(&mut self) -> Result<Option<ToPeer>, Fault> {
        self.0.next(ToPeer::decode, |frame, state| match (frame, state) {
            (ToPeer::Hello { version, .. }, State::Greeting) if *version != VERSION => {
                Err(Fault::Incompatible { theirs: *version })
            }
            (ToPeer::Hello { .. }, State::Greeting) => Ok(State::Open),
            (ToPeer::Hello { .. }, _) => Err(Fault::Misbehaved(Misbehaved::SecondGreeting)),
            (_, State::Greeting) => Err(Fault::Misbehaved(Misbehaved::NoGreeting)),
            _ => Ok(State::Open),
        })
    }
}

/// The client's end of one conversation.
#[derive(Debug)]
pub struct Caller(Conversation);

impl Default for Caller {
    fn default() -> Caller {
        Caller::new()
    }
}

impl Caller {
    /// A conversation that begins; the client sends HELLO first.
    pub fn new() -> Caller {
        Caller(Conversation::new())
    }

    /// Takes bytes as they came from the peer. Call [`Caller::poll_frame`] until `None` after each push.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The peer's next frame: first a WELCOME of this version or a BYE, then anything else. After a BYE nothing comes.
    ///
    /// # Errors
    /// What ended the conversation.
    pub fn poll_frame(&mut self) -> Result<Option<ToClient>, Fault> {
        self.0.next(ToClient::decode, |frame, state| match (frame, state) {
            (ToClient::Bye { .. }, _) => Ok(State::Over),
            (ToClient::Welcome(welcome), State::Greeting) if welcome.version != VERSION => {
                Err(Fault::Incompatible { theirs: welcome.version })
            }
            (ToClient::Welcome(_), State::Greeting) => Ok(State::Open),
            (ToClient::Welcome(_), _) => Err(Fault::Misbehaved(Misbehaved::SecondGreeting)),
            (_, State::Greeting) => Err(Fault::Misbehaved(Misbehaved::NoGreeting)),
            _ => Ok(State::Open),
        })
    }
}

#[cfg(test)]
mod tests;
