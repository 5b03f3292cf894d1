//! Payloads that are in a buffer instead of their frame.

use super::limits::{BUFFER_INDEX_MAX, LENT_BYTES_MIN};
use crate::listener::codec::{FrameError, FrameReader};
use crate::message::MESSAGE_BYTES_MAX;
use bytes::{BufMut, BytesMut};

/// A payload in a buffer that the sender of the frame lends to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentPayload {
    /// Size of the payload in bytes: 65,536 to [`MESSAGE_BYTES_MAX`].
    pub bytes: usize,
    /// Index of the buffer among those of the sender: at most 127.
    pub index: u8,
    /// True if the descriptor of the buffer comes through the socket: the other side does not have it, or that of an
    /// earlier buffer with this index.
    pub is_new: bool,
}

impl LentPayload {
    pub(super) fn put(self, out: &mut BytesMut) {
        out.put_u32(u32::try_from(self.bytes).expect("messages are limited to 8 MiB"));
        out.put_u8(self.index);
        out.put_u8(u8::from(self.is_new));
    }

    pub(super) fn read(reader: &mut FrameReader) -> Result<LentPayload, FrameError> {
        let bytes = match usize::try_from(reader.u32()?) {
            Ok(bytes) if (LENT_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&bytes) => bytes,
            _ => return Err(FrameError::Value("payload bytes")),
        };
        let index = reader.u8()?;
        if BUFFER_INDEX_MAX < index {
            return Err(FrameError::Value("buffer"));
        }
        Ok(LentPayload { bytes, index, is_new: reader.flag(1)? })
    }
}
