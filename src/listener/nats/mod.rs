//! The NATS listener: the client protocol of nats-server for unmodified client libraries.
//!
//! [`NatsParser`] splits a client's bytes into [`NatsCommand`]s. [`NatsSession`] answers them or turns them into
//! requests to the peer, and writes the peer's deliveries. `docs/listeners.md` lists the supported features.
//! JetStream, accounts with separate subject spaces, clusters and leaf nodes are deliberately absent.

mod command;
mod connect;
mod fault;
mod headers;
mod info;
mod message_writer;
mod parser;
mod session;
mod settings;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use command::{NatsCommand, Op, Pub};
pub use fault::{AuthenticationFailure, ConnectFault, NatsFault};
pub use info::VERSION;
pub use parser::NatsParser;
pub use session::NatsSession;
pub use settings::{Settings, Tls};
