//! Errors of a shared state, with their location and remedy. No text contains a password.

use std::fmt;

/// Reason why a step was not done, or why its outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError {
    /// Location: host, port and database of a server, or the path of a file.
    pub at: String,
    /// The fault.
    pub fault: OrderFault,
}

/// Faults of a shared state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderFault {
    /// The address is invalid, for this reason. No server was contacted.
    Address(&'static str),
    /// The store is unreachable, or did not answer before the step was sent; the text is the system's message. The
    /// step was not done.
    Unreachable(String),
    /// The step was sent, and no answer came. Its outcome is unknown.
    Unknown(String),
    /// The user name or password is wrong, or lacks the permission; the text is the server's message. The step was not
    /// done.
    Denied(String),
    /// Our keys or tables hold a value that no version of this program writes; the text names it or its location.
    Foreign(String),
    /// The state is of another version of this program.
    Version {
        /// Its version.
        found: String,
        /// The version that this program supports.
        known: u32,
    },
    /// The server is a replica. The step was not done.
    ReadOnly,
    /// The store is full, or cannot persist its writes; the text is its message. The step was not done.
    Full(String),
    /// The server's configuration allows it to lose the state unnoticed, in this way.
    Misconfigured(&'static str),
    /// The store was busy for longer than the timeout. The step was not done.
    Busy,
    /// The file is damaged; the text names the fault.
    Damaged(String),
    /// The file was moved or replaced while it was open.
    Replaced,
    /// This build lacks the feature of this name, which the store needs.
    Unsupported(&'static str),
    /// Any other error; the text is the store's message. The step was not done.
    Other(String),
}

impl OrderError {
    /// Returns whether the step may have been done despite the error.
    pub fn is_unknown(&self) -> bool {
        matches!(self.fault, OrderFault::Unknown(_))
    }

    /// Returns whether a later retry may succeed without anybody changing anything.
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
        let at = &self.at;
        match &self.fault {
            OrderFault::Address(why) => write!(f, "{why}: write redis://[user:password@]host[:port][/database]"),
            OrderFault::Unreachable(why) => {
                write!(f, "{at} cannot be reached ({why}): nothing was done; start its server, or check the network")
            }
            OrderFault::Unknown(why) => {
                write!(f, "{at} did not answer ({why}): the step may have been done or not; check before repeating it")
            }
            OrderFault::Denied(why) => {
                write!(f, "{at} refuses these credentials ({why}): correct the address")
            }
            OrderFault::Foreign(what) => {
                write!(
                    f,
                    "{at} holds other data where the order is kept ({what}): nothing was changed; choose another location"
                )
            }
            OrderFault::Version { found, known } => write!(
                f,
                "the order in {at} has version {found}, this program knows {known}: start the program that wrote it"
            ),
            OrderFault::ReadOnly => write!(f, "{at} is a replica: nothing was done; name the primary"),
            OrderFault::Full(why) => write!(f, "{at} has no room ({why}): nothing was done; make room, then try again"),
            OrderFault::Misconfigured(why) => write!(f, "{at} {why}"),
            OrderFault::Busy => write!(f, "{at} is busy with other work: nothing was done; try again"),
            OrderFault::Damaged(why) => {
                write!(f, "{at} is damaged ({why}): nothing was changed; restore a copy, or start a new one")
            }
            OrderFault::Replaced => {
                write!(f, "{at} was moved or replaced while it was open: nothing was done; start again")
            }
            OrderFault::Unsupported(feature) => {
                write!(f, "{at} cannot be used: this build has no {feature}; build it with the feature {feature}")
            }
            OrderFault::Other(why) => write!(f, "{at}: {why}"),
        }
    }
}

impl std::error::Error for OrderError {}
