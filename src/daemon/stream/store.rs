//! What a store of streams does in a peer, beside what every store does.

use super::error::StreamStorageError;
use crate::event::stream::store::StreamStore;

/// A store that can store several steps together, so that they share the waiting for the disk.
pub trait BatchStore: StreamStore<Error = StreamStorageError> + Send {
    /// What is done from now on is stored together by [`commit`](BatchStore::commit). A step that is refused changes nothing, and the
    /// others stand. Others can write until something is changed.
    fn begin(&mut self);

    /// Stores what was done since it was begun; it survives a crash of the host then.
    ///
    /// # Errors
    /// It cannot be stored, and nothing of it was done; or the store is away, and it may not be known whether it was.
    fn commit(&mut self) -> Result<(), StreamStorageError>;

    /// Where it is, for people; without any password.
    fn place(&self) -> String;

    /// Whether other peers may have the same streams in it.
    fn is_shared(&self) -> bool;
}
