//! The shell around the core: the only code that touches clocks, sockets and the disk.

pub(crate) mod advise;
pub(crate) mod awaits;
pub mod batch;
pub(crate) mod clients;
pub mod clock;
pub(crate) mod confirm;
pub mod doors;
pub mod drop_rule;
pub(crate) mod engine;
pub(crate) mod flow;
pub(crate) mod intake;
pub mod interface;
pub mod local;
pub mod log;
mod log_file;
pub(crate) mod mailbox;
pub mod multicast;
pub(crate) mod outbox;
pub mod queue;
pub mod self_test;
pub(crate) mod serve;
pub mod show;
pub(crate) mod signals;
pub mod start;
pub mod store;
pub(crate) mod timer;
pub(crate) mod transmit;
