//! What the kernel carries without the bus: bare datagrams over the same group, with payloads as distinct and as
//! thoroughly checked as those of messages.

mod mmsg;
pub mod ping;
mod socket;
pub mod throughput;
