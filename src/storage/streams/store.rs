//! Operations of a peer's stream store, in addition to those of every store.

use super::error::StreamStorageError;
use crate::event::stream::store::StreamStore;

/// A store that can commit several steps together, so that they share the wait for the disk.
pub trait BatchStore: StreamStore<Error = StreamStorageError> + Send {
    /// Begins a batch, which [`commit`](BatchStore::commit) stores as a whole. A refused step changes nothing, and the
    /// other steps remain. Other processes can write until the first change.
    fn begin(&mut self);

    /// Commits the steps since the batch began. They survive a crash of the host then.
    ///
    /// # Errors
    /// The batch cannot be stored, and none of it was done. Or the store is unreachable, and the outcome may be
    /// unknown.
    fn commit(&mut self) -> Result<(), StreamStorageError>;

    /// Returns the location of the store for messages, without any password.
    fn location(&self) -> String;

    /// Returns whether other peers may have the same streams in it.
    fn is_shared(&self) -> bool;
}
