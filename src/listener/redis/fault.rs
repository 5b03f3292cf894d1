//! Faults of Redis clients, each of which ends the connection.

use std::fmt;

/// Reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisFault {
    /// The number of arguments is invalid or above the limit.
    Arguments,
    /// The length of an argument is invalid or above the limit.
    Bulk,
    /// An unauthenticated client sent more arguments than allowed.
    UnauthenticatedArguments,
    /// An unauthenticated client sent a longer argument than allowed.
    UnauthenticatedBulk,
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
    /// The client sent an HTTP request, so a browser may be abused to reach this listener. The client gets no answer.
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
            RedisFault::UnauthenticatedArguments => "Protocol error: unauthenticated multibulk length",
            RedisFault::UnauthenticatedBulk => "Protocol error: unauthenticated bulk length",
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
