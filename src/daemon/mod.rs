//! The shell around the core: the only code that touches clocks, sockets and the disk.

pub mod batch;
pub mod clock;
pub mod interface;
pub mod multicast;
pub mod self_test;
