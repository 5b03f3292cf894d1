//! What can be wrong with a shared state, where, and what mends it. No text has a password in it.

use std::fmt;

/// Why a step was not done, or why it is not known whether it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError {
    /// Where: host, port and database of a server, or the path of a file.
    pub at: String,
    /// What is wrong.
    pub fault: OrderFault,
}

/// What is wrong with a shared state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderFault {
    /// The address is none: why. Nobody was asked.
    Address(&'static str),
    /// It cannot be reached, or does not answer before anything was asked: in the words of the system. The step was not done.
    Unreachable(String),
    /// The step was sent, and there was no answer. Whether it was done is not known.
    Unknown(String),
    /// Name or password are wrong, or may not do this: in the words of the server. The step was not done.
    Denied(String),
    /// Under our names stands what no program of ours has written: where, or what.
    Foreign(String),
    /// The state is of another version of this program.
    Version {
        /// Its version.
        found: String,
        /// The one that this program knows.
        known: u32,
    },
    /// The server is a replica. The step was not done.
    ReadOnly,
    /// No room is left, or what is written cannot be kept: in the words of the store. The step was not done.
    Full(String),
    /// The server is set up so that it may lose the state without anybody noticing: how.
    Misconfigured(&'static str),
    /// It is busy with something else for longer than one waits. The step was not done.
    Busy,
    /// The file is damaged: what was found.
    Damaged(String),
    /// The file was moved or replaced while it was open.
    Replaced,
    /// Anything else, in the words of the store. The step was not done.
    Other(String),
}

impl OrderError {
    /// Whether the step may have been done nevertheless.
    pub fn is_unknown(&self) -> bool {
        matches!(self.fault, OrderFault::Unknown(_))
    }

    /// Whether the same may go well later without anybody changing anything.
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
                write!(f, "{at} cannot be reached ({why}): nothing was done; start it, or mend the way")
            }
            OrderFault::Unknown(why) => {
                write!(f, "{at} did not answer ({why}): the step may have been done or not; look before doing it again")
            }
            OrderFault::Denied(why) => {
                write!(f, "{at} lets nobody in with these credentials ({why}): mend the address")
            }
            OrderFault::Foreign(what) => {
                write!(
                    f,
                    "{at} holds other data where the order is kept ({what}): nothing was changed; choose another place"
                )
            }
            OrderFault::Version { found, known } => write!(
                f,
                "the order in {at} has version {found}, this program knows {known}: start the program that wrote it"
            ),
            OrderFault::ReadOnly => write!(f, "{at} is a replica: nothing was done; name the primary"),
            OrderFault::Full(why) => write!(f, "{at} has no room ({why}): nothing was done; make room, then try again"),
            OrderFault::Misconfigured(why) => write!(f, "{at} {why}"),
            OrderFault::Busy => write!(f, "{at} is busy with something else: nothing was done; try again"),
            OrderFault::Damaged(why) => {
                write!(f, "{at} is damaged ({why}): nothing was changed; restore a copy, or begin anew")
            }
            OrderFault::Replaced => {
                write!(f, "{at} was moved or replaced while it was open: nothing was done; start again")
            }
            OrderFault::Other(why) => write!(f, "{at}: {why}"),
        }
    }
}

impl std::error::Error for OrderError {}
