//! Rings in memory that a program shares with its peer: one byte stream for each direction.
//!
//! The peer makes a [`Segment`], a memfd of fixed size without a name, and hands its descriptor over. The last process
//! that uses the memory frees it, however that process ends. Neither side trusts the other: each keeps its own counter
//! privately, checks the counter of the other side on each look, and copies bytes out before anything parses them. All
//! accesses to shared bytes are in this module.
//!
//! `docs/local-protocol.md` describes the layout and the doorbells.

mod handover;
mod ring;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use handover::{receive_with_descriptor, send_doorbell, send_with_descriptor};
pub(crate) use ring::{RingFault, RingReader, RingWriter, rings};
pub(crate) use segment::{RingSide, Segment};
