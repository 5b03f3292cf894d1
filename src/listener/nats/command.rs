//! Commands of clients, borrowed from the parser's buffer.

use std::fmt;

/// An operation of the protocol that clients have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sends the client's identity and options.
    Connect,
    /// Publishes a message.
    Pub,
    /// Publishes a message with headers.
    Hpub,
    /// Begins a subscription.
    Sub,
    /// Ends a subscription.
    Unsub,
    /// Checks whether the other side is alive.
    Ping,
    /// Answers PING.
    Pong,
    /// Information that only servers send; ignored from a client.
    Info,
    /// Confirms an operation.
    Ok,
    /// Reports an error.
    Err,
}

/// Every operation with its name.
pub(super) const OPS: [(&[u8], Op); 10] = [
    (b"PUB", Op::Pub),
    (b"HPUB", Op::Hpub),
    (b"SUB", Op::Sub),
    (b"UNSUB", Op::Unsub),
    (b"PING", Op::Ping),
    (b"PONG", Op::Pong),
    (b"CONNECT", Op::Connect),
    (b"INFO", Op::Info),
    (b"+OK", Op::Ok),
    (b"-ERR", Op::Err),
];

impl Op {
    fn name(self) -> &'static [u8] {
        OPS.iter().find(|(_, op)| *op == self).expect("every operation has a name").0
    }

    /// Returns the syntax of the operation.
    pub(super) fn usage(self) -> &'static str {
        match self {
            Op::Pub => "PUB <subject> [reply] <bytes>",
            Op::Hpub => "HPUB <subject> [reply] <header bytes> <all bytes>",
            Op::Sub => "SUB <subject> [queue] <sid>",
            Op::Unsub => "UNSUB <sid> [max]",
            Op::Connect => "CONNECT <JSON object>",
            Op::Ping | Op::Pong | Op::Info | Op::Ok | Op::Err => "a line",
        }
    }

    /// Returns whether the rest of the line is ignored.
    fn takes_anything(self) -> bool {
        matches!(self, Op::Ping | Op::Pong | Op::Ok)
    }

    /// Returns whether a space must follow the name.
    pub(super) fn needs_space(self) -> bool {
        !self.takes_anything() && self != Op::Connect
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.name()).expect("names are text"))
    }
}

/// A command of a client, borrowed from the parser's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatsCommand<'a> {
    /// CONNECT with its JSON.
    Connect(&'a [u8]),
    /// PUB or HPUB.
    Pub(Pub<'a>),
    /// SUB.
    Sub {
        /// Subject, which may contain wildcards.
        subject: &'a [u8],
        /// Queue group.
        queue: Option<&'a [u8]>,
        /// The client's id of the subscription.
        sid: &'a [u8],
    },
    /// UNSUB.
    Unsub {
        /// The client's id of the subscription.
        sid: &'a [u8],
        /// Number of messages after which the subscription ends, counted from its beginning; 0 for immediately.
        max: u64,
    },
    /// PING.
    Ping,
    /// PONG.
    Pong,
    /// A command without meaning from a client. The session ignores it, as nats-server does.
    Ignored,
    /// The client sent -ERR.
    Err,
}

/// A message that a client publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pub<'a> {
    /// Subject of the message.
    pub subject: &'a [u8],
    /// Reply subject, if an answer is wanted.
    pub reply: Option<&'a [u8]>,
    /// Headers, from the version line to the empty line; `None` for PUB.
    pub headers: Option<&'a [u8]>,
    /// Payload.
    pub payload: &'a [u8],
}

impl NatsCommand<'_> {
    /// Returns whether the command publishes a message. Such a command may be backpressured.
    pub fn is_publish(&self) -> bool {
        matches!(self, NatsCommand::Pub(_))
    }

    /// Returns whether the command begins or ends a subscription.
    pub fn is_subscribe(&self) -> bool {
        matches!(self, NatsCommand::Sub { .. } | NatsCommand::Unsub { .. })
    }
}
