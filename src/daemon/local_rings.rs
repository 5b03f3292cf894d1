//! The peer's end of the shared memory of an attached client.

use crate::daemon::connection_state::{ConnectionState, ReadOutcome};
use crate::daemon::outbox::ClientOutbox;
use crate::listener::local::{LocalFault, PeerEndpoint, ProtocolViolation};
use crate::shared_memory::{RingFault, RingReader, RingSide, RingWriter, Segment, ring_doorbell, rings};
use mio::net::UnixStream;
use std::io;

/// Maximum bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// The rings of a client. Its socket carries only doorbells, and its end is the end of the connection.
#[derive(Debug)]
pub(crate) struct LocalRings {
    reader: RingReader,
    writer: RingWriter,
    /// True once the client has closed the socket. What it has written before is still read.
    has_ended: bool,
}

impl LocalRings {
    /// Makes the peer's end of a new segment.
    pub(crate) fn new(segment: Segment) -> LocalRings {
        let (reader, writer) = rings(segment, RingSide::Peer);
        LocalRings { reader, writer, has_ended: false }
    }

    /// Returns whether a read may have an outcome.
    pub(crate) fn has_input(&self) -> bool {
        self.has_ended || self.reader.has_bytes()
    }

    /// Asks the client for a doorbell at its next frame.
    pub(crate) fn arm(&mut self) {
        self.reader.arm();
    }

    /// Records a doorbell.
    pub(crate) fn on_doorbell(&mut self) {
        self.reader.on_doorbell();
        self.writer.on_doorbell();
    }

    /// Reads pending doorbells through `scratch`, and once from the ring into the protocol parser.
    ///
    /// # Errors
    /// The counters of the client are not possible.
    pub(crate) fn read(
        &mut self,
        flow: &mut ConnectionState,
        stream: &mut UnixStream,
        endpoint: &mut PeerEndpoint,
        scratch: &mut [u8],
    ) -> Result<ReadOutcome, LocalFault> {
        if flow.is_write_closed() {
            // Nothing else ends the writing of a ring.
            return Err(fault(RingFault));
        }
        if flow.is_readable {
            match flow.read(stream, true, scratch, |_| {}) {
                ReadOutcome::Bytes(_) => self.on_doorbell(),
                ReadOutcome::Nothing => {}
                ReadOutcome::End => {
                    self.has_ended = true;
                    flow.is_readable = false;
                }
            }
        }
        match endpoint.push_with(|buffer| self.reader.read(READ_BYTES, buffer)).map_err(fault)? {
            0 if self.has_ended => Ok(ReadOutcome::End),
            0 => Ok(ReadOutcome::Nothing),
            bytes => Ok(ReadOutcome::Bytes(bytes)),
        }
    }

    /// Wakes the client if it waits until its ring is read. A client that publishes finds that by itself meanwhile, so the
    /// peer calls this a turn later, or before it sleeps.
    pub(crate) fn ring_owed_doorbell(&mut self, stream: &UnixStream) {
        if !self.reader.has_bytes() && self.reader.owes_doorbell() {
            ring_doorbell(stream);
        }
    }

    /// Writes pending output, as far as the ring takes it. Returns whether all was written.
    ///
    /// # Errors
    /// The counters of the client are not possible.
    pub(crate) fn write(&mut self, outbox: &mut ClientOutbox, stream: &UnixStream) -> io::Result<bool> {
        if outbox.is_empty() {
            return Ok(true);
        }
        let is_all = outbox.write_to(&mut self.writer)?;
        if self.writer.owes_doorbell() {
            ring_doorbell(stream);
        }
        Ok(is_all)
    }
}

fn fault(RingFault: RingFault) -> LocalFault {
    LocalFault::ProtocolViolation(ProtocolViolation::RingCounter)
}
