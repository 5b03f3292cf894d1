//! The shell around the core: the engine with its sockets and clients, and the services attached to it.

pub(crate) mod advisories;
pub mod batch;
pub(crate) mod clients;
pub(crate) mod confirm;
pub mod drop_rule;
pub(crate) mod engine;
pub mod events;
pub(crate) mod flow;
pub mod interface;
pub mod listeners;
pub mod local;
pub mod log;
mod log_file;
pub(crate) mod mailbox;
pub mod multicast;
pub(crate) mod outbox;
pub(crate) mod parts;
pub mod queue;
pub(crate) mod readiness;
pub(crate) mod receive;
pub(crate) mod receiver_waits;
pub mod self_test;
pub(crate) mod serve;
pub mod show;
pub(crate) mod shutdown;
pub(crate) mod signals;
pub mod start;
pub mod stream_service;
pub(crate) mod timer;
pub(crate) mod transmit_queue;
mod unserved_report;

pub use crate::clock;
