//! A command of a client of any protocol.

use crate::listener::{hat, nats, redis, rv};

/// A command, borrowed from the parser's buffer.
#[derive(Debug)]
pub enum ClientCommand<'a> {
    /// Command of a NATS client.
    Nats(nats::NatsCommand<'a>),
    /// Command of a Redis client.
    Redis(redis::RedisCommand<'a>),
    /// Command of a Hat client.
    Hat(hat::ChatterMessage<'a>),
    /// Command of a Rendezvous client.
    Rv(rv::RvCommand<'a>),
}

impl ClientCommand<'_> {
    /// Returns whether the command publishes. Such a command may be backpressured.
    pub fn is_publish(&self) -> bool {
        match self {
            ClientCommand::Nats(command) => command.is_publish(),
            ClientCommand::Redis(command) => command.is_publish(),
            // The peer publishes the events that the command registers once they are stored.
            ClientCommand::Hat(_) => false,
            ClientCommand::Rv(command) => command.is_publish(),
        }
    }

    /// Returns whether the command begins or ends subscriptions.
    pub fn is_subscribe(&self) -> bool {
        match self {
            ClientCommand::Nats(command) => command.is_subscribe(),
            ClientCommand::Redis(command) => command.is_subscribe(),
            ClientCommand::Hat(_) => false,
            ClientCommand::Rv(command) => command.is_subscribe(),
        }
    }
}
