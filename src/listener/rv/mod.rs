//! The Rendezvous listener: the protocol that clients of TIBCO Rendezvous speak with their daemon.
//!
//! [`RvParser`] splits a client's bytes into [`RvCommand`]s. [`RvSession`] answers them or turns them into requests to
//! the peer, and writes the peer's deliveries. [`RvHost`] is the daemon that all sessions share: it announces sessions
//! and listens. The protocol between daemons, queue groups and HTTP are deliberately absent.

mod advisory;
mod announcement_queue;
mod client_error;
mod envelope;
mod fault;
mod handshake;
mod host;
pub mod message;
mod message_writer;
mod parser;
mod payload;
pub mod request;
mod session;
mod settings;
mod subject;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use advisory::slow_consumer;
pub use envelope::{RvEnvelope, RvLetter};
pub use fault::{InitError, RvFault};
pub use host::{RvHost, RvHostFacts, RvTraffic};
pub use parser::{RvCommand, RvParser};
pub use session::RvSession;
pub use settings::Settings;
