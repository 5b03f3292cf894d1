//! The Redis listener: RESP2 and RESP3, publish and subscribe, and the commands that client libraries send first.
//!
//! [`channel`](crate::subject::channel) maps a channel to a subject. There are no keys: every command about keys is
//! refused as unknown. The protocol carries only the payload of a message, without its headers and its reply subject.
//! `docs/listeners.md` describes each command.

mod admin;
mod client;
mod command_table;
mod info;
mod inline;
mod parser;
mod pubsub;
mod reply;
mod session;
#[cfg(test)]
mod tests;

pub use parser::{RedisCommand, RedisParser};
pub use session::RedisSession;

use crate::listener::access::Access;
use std::fmt;
use std::time::Duration;

/// Access rules and limits of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Accounts that may use the listener.
    pub access: Access,
    /// Maximum size of an argument, in bytes. A larger one is a protocol error and ends the connection.
    pub payload_bytes_max: usize,
    /// Maximum size of a command, in bytes, with all arguments and their lengths. A larger one ends the connection.
    pub command_bytes_max: usize,
    /// Maximum number of arguments of a command. A larger number ends the connection.
    pub arguments_max: usize,
    /// Maximum length of an inline command, in bytes. A longer one ends the connection.
    pub line_bytes_max: usize,
    /// Maximum number of arguments of a command from an unauthenticated client. A larger number ends the connection.
    pub stranger_arguments_max: usize,
    /// Maximum size of an argument from an unauthenticated client, in bytes. A larger one ends the connection.
    pub unauthenticated_bytes_max: usize,
    /// Maximum number of subscriptions of a client. A command that would exceed it gets an error and begins no
    /// subscription.
    pub subscriptions_max: usize,
    /// Time that a client has to authenticate. After it, the client gets an error and the connection is closed.
    pub auth_time: Duration,
    /// Number of wrong passwords after which the connection is closed.
    pub auth_attempts_max: u32,
    /// True if every client must encrypt its connection; the shell enforces it.
    pub is_encrypted: bool,
}

impl Default for Settings {
    /// Returns settings without authentication, with the limits of Redis 7. Limits are lower where Redis allows
    /// gigabytes.
    fn default() -> Settings {
        Settings {
            access: Access::default(),
            payload_bytes_max: 8 << 20,
            command_bytes_max: 9 << 20,
            arguments_max: 128 << 10,
            line_bytes_max: 64 << 10,
            stranger_arguments_max: 10,
            unauthenticated_bytes_max: 16 << 10,
            subscriptions_max: 100_000,
            auth_time: Duration::from_secs(10),
            auth_attempts_max: 10,
            is_encrypted: false,
        }
    }
}

/// Reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisFault {
    /// The number of arguments is invalid or above the limit.
    Arguments,
    /// The length of an argument is invalid or above the limit.
    Bulk,
    /// An unauthenticated client sent more arguments than allowed.
    StrangerArguments,
    /// An unauthenticated client sent a longer argument than allowed.
    StrangerBulk,
    /// An argument begins with this byte instead of `$`.
    Expected(u8),
    /// The number of arguments has too many digits.
    ArgumentsDigits,
    /// The length of an argument has too many digits.
    BulkDigits,
    /// An inline command is too long.
    Line,
    /// An inline command has an unclosed quotation mark, or a closing mark without a space after it.
    Quotes,
    /// The total length of a command's arguments exceeds the limit.
    Command,
    /// The client sent an HTTP request, so a browser may be abused to reach this listener. It gets no answer.
    Http,
    /// The client did not authenticate in time.
    AuthTime,
    /// The client has sent too many wrong passwords.
    Passwords,
    /// The connection is not encrypted, but must be.
    NotEncrypted,
}

impl fmt::Display for RedisFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RedisFault::Arguments => "Protocol error: invalid multibulk length",
            RedisFault::Bulk => "Protocol error: invalid bulk length",
            RedisFault::StrangerArguments => "Protocol error: unauthenticated multibulk length",
            RedisFault::StrangerBulk => "Protocol error: unauthenticated bulk length",
            RedisFault::Expected(byte) => {
                let byte = if byte.is_ascii_control() { b' ' } else { *byte };
                return write!(f, "Protocol error: expected '$', got '{}'", byte.escape_ascii());
            }
            RedisFault::ArgumentsDigits => "Protocol error: too big mbulk count string",
            RedisFault::BulkDigits => "Protocol error: too big bulk count string",
            RedisFault::Line => "Protocol error: too big inline request",
            RedisFault::Quotes => "Protocol error: unbalanced quotes in request",
            RedisFault::Command => "Protocol error: too big request",
            RedisFault::Http => "Protocol error: a request of HTTP",
            RedisFault::AuthTime => "no password came in time",
            RedisFault::Passwords => "too many wrong passwords",
            RedisFault::NotEncrypted => "this listener takes encrypted connections only",
        })
    }
}

impl std::error::Error for RedisFault {}
