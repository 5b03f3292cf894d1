//! The peer's end of the shared memory of an attached client.

use crate::daemon::connection_state::{ConnectionState, ReadOutcome};
use crate::daemon::outbox::ClientOutbox;
use crate::listener::local::{LocalFault, PeerEndpoint, ProtocolViolation};
use crate::shared_memory::{RingFault, RingReader, RingSide, RingWriter, Segment, rings, send_doorbell};
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
    is_socket_closed: bool,
}

impl LocalRings {
    /// Makes the peer's end of a new segment.
    pub(crate) fn new(segment: Segment) -> LocalRings {
        let (reader, writer) = rings(segment, RingSide::Peer);
        LocalRings { reader, writer, is_socket_closed: false }
    }

    /// Returns whether a read may have an outcome.
    pub(crate) fn has_input(&self) -> bool {
        self.is_socket_closed || self.reader.has_bytes()
    }

    /// Asks the client for a doorbell at its next frame.
    pub(crate) fn arm(&mut self) {
        self.reader.arm();
    }

    /// Reads pending doorbells through `scratch`. The end of the socket ends both streams of the client: the peer writes
    /// nothing more, and reads only what is in the ring by now.
    ///
    /// # Errors
    /// A counter of the client is not possible.
    pub(crate) fn read_doorbells(
        &mut self,
        flow: &mut ConnectionState,
        stream: &mut UnixStream,
        scratch: &mut [u8],
    ) -> Result<ReadOutcome, LocalFault> {
        if !flow.is_readable || self.is_socket_closed {
            flow.is_readable = false;
            return Ok(ReadOutcome::Nothing);
        }
        if flow.is_write_closed() {
            // A write to a ring fails for no other reason.
            return Err(fault(RingFault));
        }
        let outcome = flow.read(stream, true, scratch, |_| {});
        match outcome {
            ReadOutcome::Bytes(_) => {
                self.reader.on_doorbell();
                self.writer.on_doorbell();
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::End => {
                flow.is_readable = false;
                flow.end_writes();
                self.is_socket_closed = true;
                self.reader.end_stream().map_err(fault)?;
            }
        }
        Ok(outcome)
    }

    /// Reads once from the ring into the protocol parser.
    ///
    /// # Errors
    /// The counter of the client is not possible.
    pub(crate) fn read(&mut self, endpoint: &mut PeerEndpoint) -> Result<ReadOutcome, LocalFault> {
        match endpoint.push_with(|buffer| self.reader.read(READ_BYTES, buffer)).map_err(fault)? {
            0 if self.is_socket_closed => Ok(ReadOutcome::End),
            0 => Ok(ReadOutcome::Nothing),
            bytes => Ok(ReadOutcome::Bytes(bytes)),
        }
    }

    /// Wakes the client if it waits until its ring is read. A client that publishes finds that by itself meanwhile, so the
    /// peer calls this a turn later, or before it sleeps.
    pub(crate) fn wake_waiting_writer(&mut self, stream: &UnixStream) {
        if !self.reader.has_bytes() && self.reader.take_doorbell_request() {
            send_doorbell(stream);
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
        if self.writer.take_doorbell_request() {
            send_doorbell(stream);
        }
        Ok(is_all)
    }
}

fn fault(RingFault: RingFault) -> LocalFault {
    LocalFault::ProtocolViolation(ProtocolViolation::RingCounter)
}
