//! The peer's end of the shared memory of an attached client.

use crate::daemon::connection_state::{ConnectionState, ReadOutcome};
use crate::daemon::outbox::ClientOutbox;
use crate::listener::frame::{BUFFER_INDEX_MAX, LENT_BYTES_MIN, LentPayload};
use crate::listener::local::{LocalFault, PeerEndpoint, ProtocolViolation};
use crate::shared_memory::{
    BUFFER_BYTES_MIN, BUFFERS_MAX, BufferReturns, DescriptorQueue, LentBuffers, RingFault, RingReader, RingSide,
    RingWriter, Segment, TakenDescriptor, check_buffer, rings, send_doorbell,
};
use mio::net::UnixStream;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Maximum bytes of one read.
const READ_BYTES: usize = 64 * 1024;

const _: () = assert!(BUFFER_INDEX_MAX as usize + 1 == BUFFERS_MAX && LENT_BYTES_MIN == BUFFER_BYTES_MIN);

/// The rings of a client. Its socket carries only doorbells, some with a descriptor, and its end is the end of the
/// connection.
#[derive(Debug)]
pub(crate) struct LocalRings {
    reader: RingReader,
    writer: RingWriter,
    /// Descriptors of buffers whose frames are not processed yet.
    descriptors: DescriptorQueue,
    /// The client's buffers, by index.
    client_buffers: Vec<ClientBuffer>,
    /// Way to give these buffers back.
    returns: BufferReturns,
    /// The peer's buffers that the client may read.
    pub(crate) lent: LentBuffers,
    /// True once the client has closed the socket. What it has written before is still read.
    is_socket_closed: bool,
}

impl LocalRings {
    /// Makes the peer's end of a new segment.
    pub(crate) fn new(segment: Segment) -> LocalRings {
        let (reader, writer) = rings(segment, RingSide::Peer);
        LocalRings {
            returns: reader.buffer_returns(),
            lent: LentBuffers::new(writer.buffer_returns()),
            reader,
            writer,
            descriptors: DescriptorQueue::default(),
            client_buffers: Vec::new(),
            is_socket_closed: false,
        }
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

    /// Copies the payload in a buffer of the client into `payload`, which has its size, and gives the buffer back. Returns
    /// false if this process may not have the descriptor.
    ///
    /// # Errors
    /// The client has sent no descriptor, or that of something else, or the buffer is smaller than the payload.
    pub(crate) fn read_buffer(
        &mut self,
        flow: &mut ConnectionState,
        stream: &UnixStream,
        lent: LentPayload,
        payload: &mut [u8],
    ) -> Result<bool, LocalFault> {
        if lent.is_new {
            self.take_descriptor(flow, stream, lent.index)?;
        }
        let outcome = match self.client_buffers.get(usize::from(lent.index)) {
            // A read, other than an access to mapped memory, does not fail for want of memory.
            Some(ClientBuffer::Open(memory)) => {
                memory.read_exact_at(payload, 0).map(|()| true).map_err(|_| unusable_buffer())
            }
            Some(ClientBuffer::Refused) => Ok(false),
            Some(ClientBuffer::Unknown) | None => Err(LocalFault::ProtocolViolation(ProtocolViolation::BufferMissing)),
        };
        self.returns.give_back(lent.index);
        outcome
    }

    /// Takes the descriptor of a buffer, which the client has sent before the frame that needs it.
    fn take_descriptor(
        &mut self,
        flow: &mut ConnectionState,
        stream: &UnixStream,
        index: u8,
    ) -> Result<(), LocalFault> {
        let TakenDescriptor { descriptor, has_doorbells } = self.descriptors.take_from(stream);
        self.check_descriptors()?;
        if has_doorbells {
            flow.is_readable = true;
            self.on_doorbell();
        }
        let descriptor = descriptor.ok_or(LocalFault::ProtocolViolation(ProtocolViolation::BufferMissing))?;
        if let Some(memory) = &descriptor {
            // A read of another file could block this process.
            check_buffer(memory.as_fd()).map_err(|_| unusable_buffer())?;
        }
        let at = usize::from(index);
        if self.client_buffers.len() <= at {
            self.client_buffers.resize_with(at + 1, || ClientBuffer::Unknown);
        }
        self.client_buffers[at] = descriptor.map_or(ClientBuffer::Refused, |memory| ClientBuffer::Open(memory.into()));
        Ok(())
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

/// A buffer of a client.
#[derive(Debug)]
enum ClientBuffer {
    /// The client has sent no descriptor.
    Unknown,
    /// The system has refused the descriptor to this process.
    Refused,
    Open(File),
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

fn unusable_buffer() -> LocalFault {
    LocalFault::ProtocolViolation(ProtocolViolation::BufferUnusable)
}

fn fault(RingFault: RingFault) -> LocalFault {
    LocalFault::ProtocolViolation(ProtocolViolation::RingCounter)
}
