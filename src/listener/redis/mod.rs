//! The Redis listener: RESP2 and RESP3, publish and subscribe, and what client libraries ask before they do.
//!
//! A channel is a subject by the rule of [`channel`](crate::subject::channel). There are no keys here: every command about them
//! is refused as one that is unknown. Only the payload of a message can be told in this protocol; its headers and its reply
//! subject cannot. `docs/listeners.md` says what each command does.

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

/// What the listener allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who may use it.
    pub access: Access,
    /// The largest argument in bytes. A larger one is a protocol error, and the connection is closed.
    pub payload_bytes_max: usize,
    /// The largest command in bytes, all arguments and their lengths together. The same.
    pub command_bytes_max: usize,
    /// The most arguments of a command. The same.
    pub arguments_max: usize,
    /// The longest inline command in bytes. The same.
    pub line_bytes_max: usize,
    /// The most arguments of a command of a client that has not proven who it is. The same.
    pub stranger_arguments_max: usize,
    /// The largest argument of such a client in bytes. The same.
    pub unauthenticated_bytes_max: usize,
    /// The most subscriptions of a client. The command that would make more gets an error and makes none.
    pub subscriptions_max: usize,
    /// How long a client may take to prove who it is. Then it gets an error, and the connection is closed.
    pub auth_time: Duration,
    /// So many wrong passwords close the connection.
    pub auth_attempts_max: u32,
    /// Whether every client must encrypt its connection; the shell sees to that.
    pub is_encrypted: bool,
}

impl Default for Settings {
    /// Everyone may use it; limits as in Redis 7, and lower ones where those are for gigabytes.
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

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisFault {
    /// The number of arguments is none, or above the limit.
    Arguments,
    /// The length of an argument is none, or above the limit.
    Bulk,
    /// A client that has not proven who it is sends more arguments than it may.
    StrangerArguments,
    /// A client that has not proven who it is sends a longer argument than it may.
    StrangerBulk,
    /// An argument begins with this byte instead of `$`.
    Expected(u8),
    /// The number of arguments has too many digits.
    ArgumentsDigits,
    /// The length of an argument has too many digits.
    BulkDigits,
    /// An inline command is too long.
    Line,
    /// In an inline command a quotation mark is not closed, or something follows at once where it is.
    Quotes,
    /// The arguments of a command are too long together.
    Command,
    /// A request of HTTP: somebody uses a browser to get at this listener. It gets no answer.
    Http,
    /// The client did not prove in time who it is.
    AuthTime,
    /// The client has sent too many wrong passwords.
    Passwords,
    /// The connection must be encrypted and is not.
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
