//! What callers are told when something is wrong, by the names of FTN3 and FTN18.

/// The name of an error. Clients know no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultName {
    /// The message, the function or a parameter is wrong.
    InvalidRequest,
    /// No such interface.
    UnknownInterface,
    /// The interface has no such version here.
    NotSupportedVersion,
    /// Who calls is not known, or the way is not secure.
    SecurityError,
    /// So much is asked that it is not done.
    DefenseRejected,
    /// Something is wrong here.
    InternalError,
    /// A live consumer is not registered (FTN18 3.3.1).
    LiveNotAllowed,
    /// The consumer is not registered (FTN18 3.3.1).
    NotRegistered,
}

impl FaultName {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultName::InvalidRequest => "InvalidRequest",
            FaultName::UnknownInterface => "UnknownInterface",
            FaultName::NotSupportedVersion => "NotSupportedVersion",
            FaultName::SecurityError => "SecurityError",
            FaultName::DefenseRejected => "DefenseRejected",
            FaultName::InternalError => "InternalError",
            FaultName::LiveNotAllowed => "LiveNotAllowed",
            FaultName::NotRegistered => "NotRegistered",
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFault {
    /// For programs.
    pub name: FaultName,
    /// For people.
    pub text: String,
}

impl CallFault {
    /// A fault of this name.
    pub fn new(name: FaultName, text: impl Into<String>) -> CallFault {
        CallFault { name, text: text.into() }
    }
}
