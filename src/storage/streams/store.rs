//! Operations that a stream store of a peer has in addition to those of [`StreamStore`].

use super::error::StreamStorageError;
use crate::event::stream::store::StreamStore;

/// A store that can commit several steps together, so that they share the wait for the disk.
pub trait BatchStore: StreamStore<Error = StreamStorageError> + Send {
    /// Begins a batch, which [`commit`](BatchStore::commit) stores as a whole. A refused step has no effect on the
    /// batch. Other processes can write until the first change of the batch.
    fn begin(&mut self);

    /// Commits the steps since the batch began. They then survive a crash of the host.
    ///
    /// # Errors
    /// The batch cannot be stored, and has no effect. Or the store is unreachable, and the outcome may be unknown.
    fn commit(&mut self) -> Result<(), StreamStorageError>;

    /// Returns the location of the store for messages, without any password.
    fn location(&self) -> String;

    /// Returns whether other peers may serve the same streams from this store.
    fn is_shared(&self) -> bool;
}
