//! What can be wrong with a store of streams, where, and what mends it. No text has a password in it.

use crate::event::stream::store::StreamStoreError;
use std::fmt;

/// Why a store does not do what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStorageError {
    /// Where: the path of a file, or host, port and database of a server.
    pub at: String,
    /// What is wrong.
    pub fault: StreamFault,
}

/// What is wrong with a store of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// It cannot be reached, or opened: in the words of the system.
    Unreachable(String),
    /// There is no room: in the words of the store. Nothing was changed.
    Full(String),
    /// Others have held it for longer than one waits. Nothing was changed.
    Busy,
    /// It is no data base, or its tables of our names are not ours.
    Foreign(String),
    /// Its tables are of another version of this program.
    Version {
        /// Their version.
        found: i64,
        /// The one that this program knows.
        known: i64,
    },
    /// It is damaged, or holds what no program of ours writes: what was found.
    Damaged(String),
    /// Anything else, in the words of the store. Nothing was changed.
    Other(String),
}

/// Why a step is not done, before it is said where.
pub(super) type StepError = StreamStoreError<StreamFault>;

impl StreamStorageError {
    /// The same with the place of the store.
    pub(super) fn refused(at: &str, refused: StepError) -> StreamStoreError<StreamStorageError> {
        match refused {
            StreamStoreError::NotRegistered => StreamStoreError::NotRegistered,
            StreamStoreError::Lapsed(missed) => StreamStoreError::Lapsed(missed),
            StreamStoreError::Full => StreamStoreError::Full,
            StreamStoreError::Store(fault) => StreamStoreError::Store(StreamStorageError { at: at.to_owned(), fault }),
        }
    }

    /// Why a step is not done that only the store can refuse.
    pub(super) fn expect_store_error(refused: StreamStoreError<StreamStorageError>) -> StreamStorageError {
        match refused {
            StreamStoreError::Store(error) => error,
            refused => unreachable!("{refused:?} is no matter of the store"),
        }
    }

    /// Whether the same may go well later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self.fault, StreamFault::Unreachable(_) | StreamFault::Full(_) | StreamFault::Busy)
    }
}

impl fmt::Display for StreamStorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.at;
        match &self.fault {
            StreamFault::Unreachable(why) => write!(f, "{at} cannot be used ({why}): start it, or mend the way to it"),
            StreamFault::Full(why) => {
                write!(f, "{at} has no room ({why}): nothing was changed; make room, then try again")
            }
            StreamFault::Busy => write!(f, "{at} is held by others for too long: nothing was changed; try again"),
            StreamFault::Foreign(what) => {
                write!(
                    f,
                    "{at} holds other data where streams are kept ({what}): nothing was changed; choose another place"
                )
            }
            StreamFault::Version { found, known } => write!(
                f,
                "the streams in {at} have version {found}, this program knows {known}: start the program that wrote them"
            ),
            StreamFault::Damaged(why) => {
                write!(f, "{at} is damaged ({why}): nothing was changed; restore a copy, or begin anew")
            }
            StreamFault::Other(why) => write!(f, "{at}: {why}"),
        }
    }
}

impl std::error::Error for StreamStorageError {}
