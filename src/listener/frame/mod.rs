//! Encoding and decoding of the frames of the local protocol. `docs/local-protocol.md` describes them.
//!
//! ```text
//!  0               4       5
//! +---------------+-------+----------------------------+
//! |  length u32   | kind  |  body, `length` - 1 bytes  |   numbers are big-endian
//! +---------------+-------+----------------------------+
//! ```

mod client_frame;
mod lent_payload;
mod limits;
mod peer_frame;

pub use client_frame::ClientFrame;
pub use lent_payload::LentPayload;
pub(crate) use limits::{BUFFER_INDEX_MAX, LENT_BYTES_MIN};
pub use limits::{FRAME_BYTES_MAX, FRAME_SUBS_MAX, VERSION};
pub use peer_frame::{ByeReason, PeerFrame, SegmentRefusal, SegmentRefusalReason, Welcome};
pub(crate) use peer_frame::{put_message_buffer, put_message_head, put_message_run};
