//! Settings of the Redis listener.

use crate::listener::access::Access;
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
    pub unauthenticated_arguments_max: usize,
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
            unauthenticated_arguments_max: 10,
            unauthenticated_bytes_max: 16 << 10,
            subscriptions_max: 100_000,
            auth_time: Duration::from_secs(10),
            auth_attempts_max: 10,
            is_encrypted: false,
        }
    }
}
