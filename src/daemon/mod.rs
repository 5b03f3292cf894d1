//! The shell around the core: the only code that touches clocks, sockets and the disk.

pub mod clock;
pub mod interface;
