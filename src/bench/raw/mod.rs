//! The rates of the kernel without the bus: bare datagrams over the same group. Their payloads are as distinct and as
//! thoroughly checked as those of messages.

mod mmsg;
pub mod ping;
mod socket;
pub mod throughput;
