//! The peer's end of the shared memory of an attached client.

use crate::daemon::connection_state::{ConnectionState, ReadOutcome};
use crate::daemon::outbox::ClientOutbox;
use crate::listener::local::{LocalFault, PeerEndpoint, ProtocolViolation};
use crate::shared_memory::{
    DescriptorQueue, RingFault, RingReader, RingSide, RingWriter, SealedBuffer, Segment, TakenDescriptor, rings,
    send_doorbell,
};
use bytes::Bytes;
use mio::net::UnixStream;
use std::io::{self, Read};

/// Maximum bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// The rings of a client. Its socket carries only doorbells, some with a descriptor, and its end is the end of the
/// connection.
#[derive(Debug)]
pub(crate) struct LocalRings {
    reader: RingReader,
    writer: RingWriter,
    /// Descriptors of buffers whose frames are not processed yet.
    descriptors: DescriptorQueue,
    /// True once the client has closed the socket. What it has written before is still read.
    is_socket_closed: bool,
}

impl LocalRings {
    /// Makes the peer's end of a new segment.
    pub(crate) fn new(segment: Segment) -> LocalRings {
        let (reader, writer) = rings(segment, RingSide::Peer);
        LocalRings { reader, writer, descriptors: DescriptorQueue::default(), is_socket_closed: false }
    }

    /// Returns whether a read may have an outcome.
    pub(crate) fn has_input(&self) -> bool {
        self.is_socket_closed || self.reader.has_bytes()
    }

    /// Asks the client for a doorbell at its next frame.
    pub(crate) fn arm(&mut self) {
        self.reader.arm();
    }

    /// Reads pending doorbells through `scratch`, and the descriptors beside them. The end of the socket ends both streams
    /// of the client: the peer writes nothing more, and reads only what is in the ring by now.
    ///
    /// # Errors
    /// A counter of the client is not possible, or it sends descriptors without frames.
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
        let waiting = self.descriptors.len();
        let outcome = flow.read(&mut Doorbells { stream, descriptors: &mut self.descriptors }, true, scratch, |_| {});
        self.check_descriptors()?;
        // A read ends behind a descriptor, although the socket may have more.
        flow.is_readable |= waiting < self.descriptors.len();
        match outcome {
            ReadOutcome::Bytes(_) => self.on_doorbell(),
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

    fn on_doorbell(&mut self) {
        self.reader.on_doorbell();
        self.writer.on_doorbell();
    }

    /// Returns the fault of a client that sends descriptors without frames.
    fn check_descriptors(&self) -> Result<(), LocalFault> {
        match self.descriptors.has_fault() {
            true => Err(LocalFault::ProtocolViolation(ProtocolViolation::Descriptors)),
            false => Ok(()),
        }
    }

    /// Takes the next descriptor, which the client has sent before the frame that needs it, and maps its buffer of
    /// `bytes` bytes. Returns `None` if this process may not have the descriptor or the mapping.
    ///
    /// # Errors
    /// The client has sent no descriptor, or that of something else.
    pub(crate) fn take_buffer(
        &mut self,
        flow: &mut ConnectionState,
        stream: &UnixStream,
        bytes: usize,
    ) -> Result<Option<Bytes>, LocalFault> {
        let TakenDescriptor { descriptor, has_doorbells } = self.descriptors.take_from(stream);
        self.check_descriptors()?;
        if has_doorbells {
            flow.is_readable = true;
            self.on_doorbell();
        }
        match descriptor {
            None => Err(LocalFault::ProtocolViolation(ProtocolViolation::BufferMissing)),
            Some(None) => Ok(None),
            Some(Some(memory)) => SealedBuffer::open(memory, bytes, false)
                .map_err(|_| LocalFault::ProtocolViolation(ProtocolViolation::BufferUnsealed)),
        }
    }

    /// Returns the position up to which the client has read.
    ///
    /// # Errors
    /// A counter of the client is not possible.
    pub(crate) fn head(&mut self) -> Result<u64, RingFault> {
        self.writer.head()
    }

    /// Returns the position up to which output is written.
    pub(crate) fn tail(&self) -> u64 {
        self.writer.tail()
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

    /// Wakes the client if it waits until its ring is read. A client that publishes finds that by itself meanwhile, so
    /// the peer calls this a turn later, or before it sleeps.
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
        let mut is_all = outbox.write_to(&mut self.writer)?;
        if outbox.has_waiting_report() {
            // The client rings the doorbell when it has read, unless it has done so by now.
            self.writer.await_reader();
            outbox.on_read(self.writer.head()?);
            is_all = outbox.write_to(&mut self.writer)?;
        }
        if self.writer.take_doorbell_request() {
            send_doorbell(stream);
        }
        Ok(is_all)
    }
}

/// The socket, as a stream of doorbells.
struct Doorbells<'a> {
    stream: &'a UnixStream,
    descriptors: &'a mut DescriptorQueue,
}

impl Read for Doorbells<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.descriptors.receive(self.stream, bytes)
    }
}

fn fault(RingFault: RingFault) -> LocalFault {
    LocalFault::ProtocolViolation(ProtocolViolation::RingCounter)
}
