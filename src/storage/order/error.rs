//! Errors of a shared state, with its location and the remedy. No text contains a password.

use crate::storage::tls_fault::TlsFault;
use std::fmt;

/// Error of a step that had no effect, or whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError {
    /// Location of the state: host, port and database of a server, or the path of a file.
    pub location: String,
    /// The fault.
    pub fault: OrderFault,
}

/// Faults of a shared state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderFault {
    /// The address is invalid. Holds the reason. No server was contacted.
    Address(&'static str),
    /// The store is unreachable, or did not answer before the step was sent. Holds the system's message. The step had
    /// no effect.
    Unreachable(String),
    /// The connection to the server cannot be encrypted. Nothing was sent over it.
    Tls(TlsFault),
    /// The store did not answer the step that was sent. The outcome is unknown. Holds the system's message.
    Unknown(String),
    /// The user name or password is wrong, or the user has no permission. Holds the server's message. The step had no
    /// effect.
    Denied(String),
    /// The keys or tables have a value that no version of this program writes. Holds the value or its location.
    Foreign(String),
    /// The state is of another version of this program.
    Version {
        /// Version of the state.
        found: String,
        /// The version that this program supports.
        supported: u32,
    },
    /// The server is a replica. The step had no effect.
    ReadOnly,
    /// The store is full, or cannot persist its writes. Holds its message. The step had no effect.
    Full(String),
    /// With its configuration the server may lose the state unnoticed, or cannot hold it. Holds the reason.
    Misconfigured(&'static str),
    /// The store was busy for longer than the timeout. The step had no effect.
    Busy,
    /// The file is damaged. Holds a description of the damage.
    Damaged(String),
    /// The file was moved or replaced while it was open.
    Replaced,
    /// The store needs a feature that this build lacks. Holds its name.
    Unsupported(&'static str),
    /// Any other error. Holds the store's message. The step had no effect.
    Other(String),
}

impl OrderError {
    /// Returns whether the step may have had an effect despite the error.
    pub fn is_unknown(&self) -> bool {
        matches!(self.fault, OrderFault::Unknown(_))
    }

    /// Returns whether a later retry may succeed without an operator's intervention.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.fault,
            OrderFault::Unreachable(_)
                | OrderFault::Unknown(_)
                | OrderFault::ReadOnly
                | OrderFault::Full(_)
                | OrderFault::Busy
        )
    }
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = &self.location;
        match &self.fault {
            OrderFault::Address(reason) => write!(
                f,
                "{reason}: write redis://[user:password@]host[:port][/database], or rediss://… to encrypt the connection"
            ),
            OrderFault::Unreachable(reason) => {
                write!(
                    f,
                    "{location} cannot be reached ({reason}): nothing was done; start its server, or check the network"
                )
            }
            OrderFault::Tls(fault) => write!(f, "{location} cannot be used over TLS: {fault}"),
            OrderFault::Unknown(reason) => {
                write!(
                    f,
                    "{location} did not answer ({reason}): the step may have been done or not; check before repeating it"
                )
            }
            OrderFault::Denied(reason) => {
                write!(f, "{location} refuses these credentials ({reason}): correct the address")
            }
            OrderFault::Foreign(content) => {
                write!(
                    f,
                    "{location} holds other data where the order is kept ({content}): nothing was changed; choose another location"
                )
            }
            OrderFault::Version { found, supported } => write!(
                f,
                "the order in {location} has version {found}, this program knows {supported}: start the program that wrote it"
            ),
            OrderFault::ReadOnly => write!(f, "{location} is a replica: nothing was done; name the primary"),
            OrderFault::Full(reason) => {
                write!(f, "{location} has no room ({reason}): nothing was done; make room, then try again")
            }
            OrderFault::Misconfigured(reason) => write!(f, "{location} {reason}"),
            OrderFault::Busy => write!(f, "{location} is busy with other work: nothing was done; try again"),
            OrderFault::Damaged(reason) => {
                write!(f, "{location} is damaged ({reason}): nothing was changed; restore a copy, or start a new one")
            }
            OrderFault::Replaced => {
                write!(f, "{location} was moved or replaced while it was open: nothing was done; start again")
            }
            OrderFault::Unsupported(feature) => {
                write!(f, "{location} cannot be used: this build has no {feature}; build it with the feature {feature}")
            }
            OrderFault::Other(reason) => write!(f, "{location}: {reason}"),
        }
    }
}

impl std::error::Error for OrderError {}
