//! Version and limits of the local protocol.

use crate::message::{MESSAGE_BYTES_MAX, PeerName};
use crate::subject::SUBJECT_BYTES_MAX;

/// Version of the local protocol that this build implements. Peer and client must have the same version.
pub const VERSION: u16 = 11;

/// Maximum size of a frame, in bytes after the length field: the largest message and 1 MiB for all other fields.
pub const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1024 * 1024;

/// Maximum number of subscriptions in one MESSAGE, MESSAGE RUN, LOSS or DROPPED frame. Further subscriptions go into
/// further frames.
pub const FRAME_SUBS_MAX: usize = 4096;

const _: () = assert!(
    FRAME_SUBS_MAX * 12 + 2 * SUBJECT_BYTES_MAX + PeerName::BYTES_MAX + 256 < FRAME_BYTES_MAX - MESSAGE_BYTES_MAX,
    "a full list of subscriptions must fit beside the largest message"
);

/// Maximum index of a buffer among those of a side.
pub(crate) const BUFFER_INDEX_MAX: u8 = 127;

/// Minimum size of a payload in a buffer, in bytes.
pub(crate) const LENT_BYTES_MIN: usize = 64 * 1024;
