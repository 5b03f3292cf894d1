//! Errors of a stream store, with their location and remedy. No text contains a password.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::event::stream::store::StreamStoreError;
use crate::storage::tls_fault::TlsFault;
use std::fmt;

/// Error of a stream store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStorageError {
    /// Location: the path of a file, or host, port and database of a server.
    pub location: String,
    /// The fault.
    pub fault: StreamFault,
}

/// Faults of a stream store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// The store cannot be reached or opened. Holds the system's message.
    Unreachable(String),
    /// The connection to the server cannot be encrypted. Nothing was sent over it.
    Tls(TlsFault),
    /// The store is full. Holds its message. The step had no effect.
    Full(String),
    /// Other processes have locked the store for longer than the timeout. The step had no effect.
    Busy,
    /// The file is not a database, or tables with the names of seqcast are not those of seqcast. Holds a description.
    Foreign(String),
    /// The tables are of another version of this program.
    Version {
        /// The version of the tables.
        found: i64,
        /// The version that this program supports.
        supported: i64,
    },
    /// The store is damaged, or has a value that no version of this program writes. Holds a description of the damage.
    Damaged(String),
    /// The store needs a feature that this build lacks. Holds its name.
    Unsupported(&'static str),
    /// Any other error. Holds the store's message. The step had no effect.
    Other(String),
}

/// Error of a step, before the location of the store is added.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) type StepError = StreamStoreError<StreamFault>;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl StreamStorageError {
    /// Adds the location of the store to an error.
    pub(super) fn with_location(location: &str, error: StepError) -> StreamStoreError<StreamStorageError> {
        match error {
            StreamStoreError::NotRegistered => StreamStoreError::NotRegistered,
            StreamStoreError::Lapsed(missed) => StreamStoreError::Lapsed(missed),
            StreamStoreError::Full => StreamStoreError::Full,
            StreamStoreError::Store(fault) => {
                StreamStoreError::Store(StreamStorageError { location: location.to_owned(), fault })
            }
        }
    }

    /// Returns the store's error of a step that no state of a stream or consumer can refuse.
    pub(super) fn expect_store_error(error: StreamStoreError<StreamStorageError>) -> StreamStorageError {
        match error {
            StreamStoreError::Store(error) => error,
            error => unreachable!("{error:?} is not an error of the store"),
        }
    }
}

impl StreamStorageError {
    /// Returns the error of a store that this build cannot use.
    #[cfg(not(all(feature = "postgres", feature = "sqlite")))]
    pub(super) fn unsupported(location: String, feature: &'static str) -> StreamStorageError {
        StreamStorageError { location, fault: StreamFault::Unsupported(feature) }
    }

    /// Returns whether a later retry may succeed without an operator's intervention.
    pub fn is_transient(&self) -> bool {
        matches!(self.fault, StreamFault::Unreachable(_) | StreamFault::Full(_) | StreamFault::Busy)
    }
}

impl fmt::Display for StreamStorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = &self.location;
        match &self.fault {
            StreamFault::Unreachable(reason) => {
                write!(f, "{location} cannot be used ({reason}); start its server, or check the path and the network")
            }
            StreamFault::Tls(fault) => write!(f, "{location} cannot be used over TLS: {fault}"),
            StreamFault::Full(reason) => {
                write!(f, "{location} has no room ({reason}): nothing was changed; make room, then try again")
            }
            StreamFault::Busy => {
                write!(f, "other processes hold {location} for too long: nothing was changed; try again")
            }
            StreamFault::Foreign(content) => {
                write!(
                    f,
                    "{location} holds other data where streams are kept ({content}): nothing was changed; choose another location"
                )
            }
            StreamFault::Version { found, supported } => write!(
                f,
                "the streams in {location} have version {found}, this program knows {supported}: start the program that wrote them"
            ),
            StreamFault::Damaged(reason) => {
                write!(f, "{location} is damaged ({reason}): nothing was changed; restore a copy, or start a new one")
            }
            StreamFault::Unsupported(feature) => {
                write!(f, "{location} cannot be used: this build has no {feature}; build it with the feature {feature}")
            }
            StreamFault::Other(reason) => write!(f, "{location}: {reason}"),
        }
    }
}

impl std::error::Error for StreamStorageError {}
