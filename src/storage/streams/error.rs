//! Errors of a stream store, with their location and remedy. No text contains a password.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::event::stream::store::StreamStoreError;
use std::fmt;

/// Error of a stream store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStorageError {
    /// Location: the path of a file, or host, port and database of a server.
    pub at: String,
    /// The fault.
    pub fault: StreamFault,
}

/// Faults of a stream store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// The store cannot be reached or opened; the text is the system's message.
    Unreachable(String),
    /// The store is full; the text is its message. Nothing was changed.
    Full(String),
    /// Other processes have held the store for longer than the timeout. Nothing was changed.
    Busy,
    /// It is not a database, or its tables with our names are not ours.
    Foreign(String),
    /// Its tables are of another version of this program.
    Version {
        /// The version of the tables.
        found: i64,
        /// The version that this program supports.
        known: i64,
    },
    /// The store is damaged, or holds a value that no version of this program writes. The text names the fault.
    Damaged(String),
    /// This build lacks the feature of this name, which the store needs.
    Unsupported(&'static str),
    /// Any other error; the text is the store's message. Nothing was changed.
    Other(String),
}

/// Reason why a step is not done, before the location of the store is added.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) type StepError = StreamStoreError<StreamFault>;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl StreamStorageError {
    /// Adds the location of the store to an error.
    pub(super) fn refused(at: &str, refused: StepError) -> StreamStoreError<StreamStorageError> {
        match refused {
            StreamStoreError::NotRegistered => StreamStoreError::NotRegistered,
            StreamStoreError::Lapsed(missed) => StreamStoreError::Lapsed(missed),
            StreamStoreError::Full => StreamStoreError::Full,
            StreamStoreError::Store(fault) => StreamStoreError::Store(StreamStorageError { at: at.to_owned(), fault }),
        }
    }

    /// Returns the store's error of a step that only the store can refuse.
    pub(super) fn expect_store_error(refused: StreamStoreError<StreamStorageError>) -> StreamStorageError {
        match refused {
            StreamStoreError::Store(error) => error,
            refused => unreachable!("{refused:?} is no matter of the store"),
        }
    }
}

impl StreamStorageError {
    /// Returns the error of a store that this build cannot use.
    #[cfg(not(all(feature = "postgres", feature = "sqlite")))]
    pub(super) fn unsupported(at: String, feature: &'static str) -> StreamStorageError {
        StreamStorageError { at, fault: StreamFault::Unsupported(feature) }
    }

    /// Returns whether a later retry may succeed without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self.fault, StreamFault::Unreachable(_) | StreamFault::Full(_) | StreamFault::Busy)
    }
}

impl fmt::Display for StreamStorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.at;
        match &self.fault {
            StreamFault::Unreachable(why) => {
                write!(f, "{at} cannot be used ({why}): start its server, or check the path and the network")
            }
            StreamFault::Full(why) => {
                write!(f, "{at} has no room ({why}): nothing was changed; make room, then try again")
            }
            StreamFault::Busy => write!(f, "other processes hold {at} for too long: nothing was changed; try again"),
            StreamFault::Foreign(what) => {
                write!(
                    f,
                    "{at} holds other data where streams are kept ({what}): nothing was changed; choose another location"
                )
            }
            StreamFault::Version { found, known } => write!(
                f,
                "the streams in {at} have version {found}, this program knows {known}: start the program that wrote them"
            ),
            StreamFault::Damaged(why) => {
                write!(f, "{at} is damaged ({why}): nothing was changed; restore a copy, or start a new one")
            }
            StreamFault::Unsupported(feature) => {
                write!(f, "{at} cannot be used: this build has no {feature}; build it with the feature {feature}")
            }
            StreamFault::Other(why) => write!(f, "{at}: {why}"),
        }
    }
}

impl std::error::Error for StreamStorageError {}
