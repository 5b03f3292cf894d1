//! The memory that clients of doors hold together: what they have sent and not ended, and what waits to be written to them.

use super::connection::DoorConnection;

/// What all clients of doors hold. What is written to several without a copy counts for each of them.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: usize,
    bytes_max: usize,
}

impl Memory {
    /// Nothing is held, and at most about so many bytes may be.
    pub(crate) fn new(bytes_max: usize) -> Memory {
        Memory { bytes: 0, bytes_max }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether what is delivered should be written at once, so that only those hold much who do not read.
    pub(crate) fn is_scarce(&self) -> bool {
        self.bytes_max / 2 <= self.bytes
    }

    /// Whether the client, one of so many, may be given more.
    pub(crate) fn has_share(&self, connection: &DoorConnection, clients: usize) -> bool {
        !self.is_full() || connection.held_bytes() <= self.bytes_max / clients.max(1)
    }

    /// Whether somebody has to give up what it holds.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes_max <= self.bytes
    }

    /// Looks again at what a client holds.
    pub(crate) fn note(&mut self, connection: &mut DoorConnection) {
        self.change(connection, connection.held_bytes());
    }

    /// The client is gone.
    pub(crate) fn forget(&mut self, connection: &mut DoorConnection) {
        self.change(connection, 0);
    }

    fn change(&mut self, connection: &mut DoorConnection, bytes: usize) {
        self.bytes = self.bytes - std::mem::replace(&mut connection.held_noted, bytes) + bytes;
    }
}
