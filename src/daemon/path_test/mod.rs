//! The test of the path between two hosts: its datagrams, and the side that answers them.

pub(crate) mod datagram;
pub(crate) mod responder;
