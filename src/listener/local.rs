//! The local listener: splits a byte stream into frames, and enforces the order of frames in a conversation.
//!
//! [`PeerEndpoint`] is the peer's end and [`ClientEndpoint`] is the client's. Neither uses a socket. A [`LocalFault`]
//! ends a conversation: an endpoint returns no frames after it.

use crate::listener::codec::{FrameError, LENGTH_BYTES};
use crate::listener::frame::{ByeReason, ClientFrame, FRAME_BYTES_MAX, PeerFrame, VERSION};
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;

/// Maximum size of a frame before the greeting, in bytes. A HELLO has at most 262 bytes, and a BYE at most 258.
const GREETING_BYTES_MAX: usize = 1024;

/// Fault of the other side that ends a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalFault {
    /// The other side sent bytes that cannot be decoded.
    Malformed(FrameError),
    /// The other side sent a frame that is not allowed at this point.
    ProtocolViolation(ProtocolViolation),
    /// The other side speaks another version.
    Incompatible {
        /// Its version.
        peer_version: u16,
    },
}

/// Protocol violation of a well-formed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolViolation {
    /// The first frame is not a greeting.
    NoGreeting,
    /// A second greeting.
    SecondGreeting,
    /// A second request for shared memory, or one that other frames follow before its answer.
    SharedMemory,
    /// The other side wrote a counter into the shared memory that is not possible.
    RingCounter,
    /// The payload of a message is in a buffer whose descriptor did not come, or the connection has no shared memory.
    BufferMissing,
    /// The buffer of a message is no memfd of fixed size that the payload fits into.
    BufferUnusable,
    /// Several descriptors came at once, or many without their frames.
    Descriptors,
}

impl fmt::Display for LocalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalFault::Malformed(malformed) => malformed.fmt(f),
            LocalFault::ProtocolViolation(ProtocolViolation::NoGreeting) => {
                write!(f, "the first frame must be the greeting")
            }
            LocalFault::ProtocolViolation(ProtocolViolation::SecondGreeting) => write!(f, "the greeting was repeated"),
            LocalFault::ProtocolViolation(ProtocolViolation::SharedMemory) => {
                write!(f, "shared memory was requested again, or more was sent before the answer")
            }
            LocalFault::ProtocolViolation(ProtocolViolation::RingCounter) => {
                write!(f, "a counter in the shared memory is not possible")
            }
            LocalFault::ProtocolViolation(ProtocolViolation::BufferMissing) => {
                write!(f, "a message came without the descriptor of its buffer")
            }
            LocalFault::ProtocolViolation(ProtocolViolation::BufferUnusable) => {
                write!(f, "the buffer of a message is no memfd of fixed size that its payload fits into")
            }
            LocalFault::ProtocolViolation(ProtocolViolation::Descriptors) => {
                write!(f, "several descriptors came at once, or too many without their frames")
            }
            LocalFault::Incompatible { peer_version } => write!(
                f,
                "the other side speaks version {peer_version} of the local protocol, this one version {VERSION}: \
                 install the same version of seqcast on both sides"
            ),
        }
    }
}

impl std::error::Error for LocalFault {}

impl LocalFault {
    /// Returns the last frame for the side at fault.
    pub fn bye(&self) -> PeerFrame {
        let reason = match self {
            LocalFault::Malformed(_) => ByeReason::Malformed,
            LocalFault::ProtocolViolation(_) => ByeReason::ProtocolViolation,
            LocalFault::Incompatible { .. } => ByeReason::Incompatible,
        };
        PeerFrame::Bye { reason, text: self.to_string() }
    }
}

/// Splits a byte stream into frames, for any segmentation of the stream. It buffers at most one incomplete frame and
/// the bytes received with that frame.
#[derive(Debug)]
struct FrameAssembler {
    buffer: BytesMut,
}

impl FrameAssembler {
    /// Returns the next complete frame without its length, or `None` until more bytes arrive.
    fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes_max < bytes {
            return Err(FrameError::TooLong { bytes: u64::from(length), bytes_max });
        }
        if self.buffer.len() - LENGTH_BYTES < bytes {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(bytes).freeze()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndpointState {
    Greeting,
    Open,
    Closed,
}

/// Endpoint of either side.
#[derive(Debug)]
struct LocalEndpoint {
    frames: FrameAssembler,
    state: EndpointState,
}

impl LocalEndpoint {
    fn new() -> LocalEndpoint {
        LocalEndpoint { frames: FrameAssembler { buffer: BytesMut::new() }, state: EndpointState::Greeting }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.state != EndpointState::Closed {
            self.frames.buffer.extend_from_slice(bytes);
        }
    }

    fn push_with<T>(&mut self, append: impl FnOnce(&mut BytesMut) -> T) -> T {
        if self.state == EndpointState::Closed { append(&mut BytesMut::new()) } else { append(&mut self.frames.buffer) }
    }

    /// Returns the next frame, which `decode` reads, if `check` allows it in the present state.
    fn next<T>(
        &mut self,
        decode: impl Fn(Bytes) -> Result<T, FrameError>,
        check: impl Fn(&T, EndpointState) -> Result<EndpointState, LocalFault>,
    ) -> Result<Option<T>, LocalFault> {
        let bytes_max = match self.state {
            EndpointState::Greeting => GREETING_BYTES_MAX,
            EndpointState::Open => FRAME_BYTES_MAX,
            EndpointState::Closed => return Ok(None),
        };
        let decoded = match self.frames.next(bytes_max) {
            Ok(None) => return Ok(None),
            Ok(Some(frame)) => decode(frame).map_err(LocalFault::Malformed),
            Err(malformed) => Err(LocalFault::Malformed(malformed)),
        };
        let checked = decoded.and_then(|frame| check(&frame, self.state).map(|state| (frame, state)));
        match checked {
            Ok((frame, state)) => {
                self.state = state;
                Ok(Some(frame))
            }
            Err(fault) => {
                self.state = EndpointState::Closed;
                self.frames.buffer = BytesMut::new();
                Err(fault)
            }
        }
    }
}

/// The peer's end of one conversation.
#[derive(Debug)]
pub struct PeerEndpoint(LocalEndpoint);

impl Default for PeerEndpoint {
    fn default() -> PeerEndpoint {
        PeerEndpoint::new()
    }
}

impl PeerEndpoint {
    /// Returns the endpoint of a new conversation.
    pub fn new() -> PeerEndpoint {
        PeerEndpoint(LocalEndpoint::new())
    }

    /// Adds bytes received from the client. After each push, call [`PeerEndpoint::poll_frame`] until it returns
    /// `None`. The endpoint then holds less than one frame.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Adds the bytes that `append` appends to the buffer, as [`PeerEndpoint::push`] does.
    pub(crate) fn push_with<T>(&mut self, append: impl FnOnce(&mut BytesMut) -> T) -> T {
        self.0.push_with(append)
    }

    /// Returns whether bytes of an incomplete frame are buffered.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.0.frames.buffer.is_empty()
    }

    /// Returns the client's next frame. The first frame must be a HELLO of this version.
    ///
    /// # Errors
    /// Returns the fault that ends the conversation. Send [`LocalFault::bye`] before closing.
    pub fn poll_frame(&mut self) -> Result<Option<ClientFrame>, LocalFault> {
        self.0.next(ClientFrame::decode, |frame, state| match (frame, state) {
            (ClientFrame::Hello { version, .. }, EndpointState::Greeting) if *version != VERSION => {
                Err(LocalFault::Incompatible { peer_version: *version })
            }
            (ClientFrame::Hello { .. }, EndpointState::Greeting) => Ok(EndpointState::Open),
            (ClientFrame::Hello { .. }, _) => Err(LocalFault::ProtocolViolation(ProtocolViolation::SecondGreeting)),
            (_, EndpointState::Greeting) => Err(LocalFault::ProtocolViolation(ProtocolViolation::NoGreeting)),
            _ => Ok(EndpointState::Open),
        })
    }
}

/// The client's end of one conversation.
#[derive(Debug)]
pub struct ClientEndpoint(LocalEndpoint);

impl Default for ClientEndpoint {
    fn default() -> ClientEndpoint {
        ClientEndpoint::new()
    }
}

impl ClientEndpoint {
    /// Returns the endpoint of a new conversation. The client sends HELLO first.
    pub fn new() -> ClientEndpoint {
        ClientEndpoint(LocalEndpoint::new())
    }

    /// Adds bytes received from the peer. After each push, call [`ClientEndpoint::poll_frame`] until it returns
    /// `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Adds the bytes that `append` appends to the buffer, as [`ClientEndpoint::push`] does.
    pub(crate) fn push_with<T>(&mut self, append: impl FnOnce(&mut BytesMut) -> T) -> T {
        self.0.push_with(append)
    }

    /// Returns whether bytes of an incomplete frame are buffered.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.0.frames.buffer.is_empty()
    }

    /// Returns the peer's next frame. The first frame must be a WELCOME of this version or a BYE. No frame follows a
    /// BYE.
    ///
    /// # Errors
    /// Returns the fault that ends the conversation.
    pub fn poll_frame(&mut self) -> Result<Option<PeerFrame>, LocalFault> {
        self.0.next(PeerFrame::decode, |frame, state| match (frame, state) {
            (PeerFrame::Bye { .. }, _) => Ok(EndpointState::Closed),
            (PeerFrame::Welcome(welcome), EndpointState::Greeting) if welcome.version != VERSION => {
                Err(LocalFault::Incompatible { peer_version: welcome.version })
            }
            (PeerFrame::Welcome(_), EndpointState::Greeting) => Ok(EndpointState::Open),
            (PeerFrame::Welcome(_), _) => Err(LocalFault::ProtocolViolation(ProtocolViolation::SecondGreeting)),
            (_, EndpointState::Greeting) => Err(LocalFault::ProtocolViolation(ProtocolViolation::NoGreeting)),
            _ => Ok(EndpointState::Open),
        })
    }
}

#[cfg(test)]
mod tests;
