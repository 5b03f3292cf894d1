//! Rings in memory that a program shares with its peer: one byte stream for each direction. Large payloads pass beside
//! them, in buffers that each side lends to the other.
//!
//! The peer makes a [`Segment`], a memfd of fixed size without a name, and hands its descriptor over. The last process
//! that uses the memory frees it, however that process ends. Neither side of a ring trusts the other: each keeps its own
//! counter privately, checks the counter of the other side on each look, and copies bytes out before anything parses
//! them. A program reads the payloads in buffers of its peer in place, and trusts it not to write them; the peer copies
//! those in buffers of programs. All accesses to shared bytes are in this module.
//!
//! `docs/local-protocol.md` describes the layout and the doorbells.

mod buffer;
mod buffer_pool;
mod handover;
mod lent_buffers;
mod returns;
mod ring;
mod segment;
#[cfg(test)]
mod tests;
mod unread_buffers;

pub(crate) use buffer::{BUFFER_BYTES_MIN, BorrowedBuffers, FreshBuffer, OwnBuffer, check_buffer};
pub(crate) use buffer_pool::BufferPool;
pub(crate) use handover::{
    DescriptorQueue, TakenDescriptor, hand_over, receive_with_descriptor, send_doorbell, send_with_descriptor,
};
pub(crate) use lent_buffers::LentBuffers;
pub(crate) use returns::BufferReturns;
pub(crate) use ring::{RingFault, RingReader, RingWriter, rings};
pub(crate) use segment::{BUFFERS_MAX, RingSide, Segment};
pub(crate) use unread_buffers::{UNREAD_BUFFERS_MAX, UnreadBuffers};
