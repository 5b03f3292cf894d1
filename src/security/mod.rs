//! Security: the keys of hosts and realms, without I/O.
//!
//! Nothing here reads a clock, a file or the system's randomness: times and random bytes are arguments.

pub mod realm;
