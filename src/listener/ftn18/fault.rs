//! Errors reported to callers, by the names of FTN3 and FTN18.

/// Name of an error. FTN3 and FTN18 define no other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultName {
    /// The message, the function or a parameter is wrong.
    InvalidRequest,
    /// The interface is unknown.
    UnknownInterface,
    /// The interface has no such version here.
    NotSupportedVersion,
    /// The caller is not authenticated, or the channel is not secure.
    SecurityError,
    /// The account of the caller does not permit the call.
    Unauthorized,
    /// The request exceeds a limit.
    DefenseRejected,
    /// The service failed.
    InternalError,
    /// A live consumer is not registered (FTN18 3.3.1).
    LiveNotAllowed,
    /// The consumer is not registered (FTN18 3.3.1).
    NotRegistered,
}

impl FaultName {
    /// Returns the name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultName::InvalidRequest => "InvalidRequest",
            FaultName::UnknownInterface => "UnknownInterface",
            FaultName::NotSupportedVersion => "NotSupportedVersion",
            FaultName::SecurityError => "SecurityError",
            FaultName::Unauthorized => "Unauthorized",
            FaultName::DefenseRejected => "DefenseRejected",
            FaultName::InternalError => "InternalError",
            FaultName::LiveNotAllowed => "LiveNotAllowed",
            FaultName::NotRegistered => "NotRegistered",
        }
    }
}

/// An error in the answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFault {
    /// Name, for programs.
    pub name: FaultName,
    /// Text, for people.
    pub text: String,
}

impl CallFault {
    /// Creates a fault of this name.
    pub fn new(name: FaultName, text: impl Into<String>) -> CallFault {
        CallFault { name, text: text.into() }
    }
}
