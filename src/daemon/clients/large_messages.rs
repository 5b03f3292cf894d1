//! Large messages of attached clients with shared memory. They write the payloads they publish into buffers of their own,
//! which the peer copies once, and read the payloads that they receive in the buffers of the peer.

use super::{ClientTransport, Clients};
use crate::daemon::local_rings::LocalRings;
use crate::listener::frame::{LentPayload, PeerFrame};
use crate::listener::local::LocalFault;
use crate::listener::value::delivery_body;
use crate::message::{ClientId, Delivery, Message, Target};
use crate::shared_memory::{BufferPool, FreshBuffer, OwnBuffer};
use crate::time::{ClockReading, Instant};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Time after its last use for which the memory of the buffers is retained.
const RETENTION_TIME: Duration = Duration::from_secs(5);

/// The buffers of a peer that its clients read.
#[derive(Debug, Default)]
pub(super) struct DeliveryBuffers {
    pool: BufferPool,
    /// Time at which they are freed, unless they are used until then.
    free_at: Option<Instant>,
}

impl DeliveryBuffers {
    /// Removes the buffers that a client has when its connection ends: it may read them as long as it runs.
    pub(super) fn remove_lent(&mut self, rings: &mut LocalRings) {
        self.pool.remove_lent(|index| rings.lent.is_lent(index));
    }
}

/// A payload in a buffer of the peer.
struct BufferedPayload {
    buffer: Arc<OwnBuffer>,
    /// Keeps the buffer from being written.
    payload: Bytes,
}

impl Clients {
    /// Copies the payload of a client's present frame, which is in a buffer of the client. Returns `None` if this process
    /// may not have the buffer.
    ///
    /// # Errors
    /// The client has sent no buffer, or something else.
    pub(crate) fn read_buffer(
        &mut self,
        now: Instant,
        id: ClientId,
        lent: LentPayload,
    ) -> Result<Option<Bytes>, LocalFault> {
        let fresh = self.fresh_buffer(now, lent.bytes);
        let Some(connection) = self.connection(id) else { return Ok(None) };
        let read = match fresh {
            Some(mut buffer) => {
                let read = connection.read_buffer(lent, buffer.as_mut_slice());
                read.map(|is_read| is_read.then(|| buffer.freeze()))
            }
            None => {
                let mut bytes = vec![0; lent.bytes];
                connection.read_buffer(lent, &mut bytes).map(|is_read| is_read.then(|| bytes.into()))
            }
        };
        if lent.is_new {
            // A doorbell read beside the descriptor may say that the client has room for output.
            self.on_writable(id);
        }
        read
    }

    /// Returns a buffer for a payload that clients may read; `None` if there is none.
    fn fresh_buffer(&mut self, now: Instant, bytes: usize) -> Option<FreshBuffer> {
        let (map, attached) = (&mut self.map, &self.attached);
        let fresh = self.buffers.pool.take(bytes, |index| {
            attached.iter().any(|id| match map.get_mut(id).map(|client| &mut client.kind) {
                Some(ClientTransport::Attached(connection)) => {
                    connection.rings.as_mut().is_some_and(|rings| rings.lent.is_lent(index))
                }
                _ => false,
            })
        });
        if fresh.is_some() || self.buffers.free_at.is_none() {
            self.buffers.free_at = Some(now + RETENTION_TIME);
        }
        if let Some(error) = self.buffers.pool.take_refusal() {
            tracing::warn!(%error, "the system has no shared memory for large messages, so they are copied");
        }
        fresh
    }

    /// Delivers a large message to the attached clients among the targets.
    pub(super) fn deliver_large(&mut self, now: ClockReading, to: &[Target], delivery: &Delivery) {
        let shared = self.buffer_for(now.instant, to, &delivery.message.payload).map(|shared| {
            let message = Message { payload: Bytes::new(), ..delivery.message.clone() };
            (shared, delivery_body(&Delivery { message, ..delivery.clone() }))
        });
        let mut body = None;
        self.push_attached(now, to, |connection, subs| {
            if let Some((BufferedPayload { buffer, payload }, body)) = &shared
                && let Some(outcome) = connection.push_buffer(subs, body, buffer, payload.len())
            {
                return outcome;
            }
            connection.outbox.push_message(subs, body.get_or_insert_with(|| delivery_body(delivery).freeze()))
        });
    }

    /// Returns the buffer that the payload is in, or a copy of it in one, if clients among the targets can read it in
    /// place.
    fn buffer_for(&mut self, now: Instant, to: &[Target], payload: &Bytes) -> Option<BufferedPayload> {
        let map = &mut self.map;
        let mut can_borrow = |target: &Target| match map.get_mut(&target.client).map(|client| &mut client.kind) {
            Some(ClientTransport::Attached(connection)) => connection.can_borrow(payload.len()),
            _ => false,
        };
        if !to.iter().any(&mut can_borrow) {
            return None;
        }
        let payload = match self.buffers.pool.buffer_of(payload) {
            Some(_) => payload.clone(),
            None => {
                let mut fresh = self.fresh_buffer(now, payload.len())?;
                fresh.as_mut_slice().copy_from_slice(payload);
                fresh.freeze()
            }
        };
        let buffer = self.buffers.pool.buffer_of(&payload)?.clone();
        Some(BufferedPayload { buffer, payload })
    }

    /// Has the descriptors of the peer's buffers sent to a client again.
    pub(crate) fn reset_descriptors(&mut self, id: ClientId) {
        if let Some(rings) = self.connection(id).and_then(|connection| connection.rings.as_mut()) {
            rings.lent.reset_descriptors();
        }
    }

    /// Returns when [`Clients::free_unused_buffers`] is due.
    pub(crate) fn buffer_deadline(&self) -> Option<Instant> {
        self.buffers.free_at
    }

    /// Frees the memory of the buffers if no message has used it for long, and has the clients do the same.
    pub(crate) fn free_unused_buffers(&mut self, now: Instant) {
        if self.buffers.free_at.is_none_or(|at| now < at) {
            return;
        }
        self.buffers.free_at = None;
        self.buffers.pool.clear();
        for id in self.attached.clone() {
            let Some(rings) = self.connection(id).and_then(|connection| connection.rings.as_mut()) else { continue };
            if rings.lent.reset_descriptors() {
                self.answer(id, &PeerFrame::BuffersFreed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::daemon::local_rings::LocalRings;
    use crate::daemon::local_socket::Connection;
    use crate::daemon::subscription_queue::QueueLimits;
    use crate::listener::frame::Welcome;
    use crate::listener::local::ClientEndpoint;
    use crate::message::{Epoch, Publisher, SubId, Verdict};
    use crate::shared_memory::{BUFFER_BYTES_MIN, RingReader, RingSide, Segment, hand_over, rings, send_doorbell};
    use bytes::BytesMut;
    use mio::net::UnixStream;
    use std::os::fd::AsFd;

    const RING_BYTES: usize = 4096;

    /// Clients of which one has shared memory, with its end of the ring and of the socket.
    struct Ends {
        clients: Clients,
        id: ClientId,
        reader: RingReader,
        socket: UnixStream,
    }

    fn ends(limits: QueueLimits) -> Ends {
        let (segment, memory) = Segment::create(RING_BYTES).unwrap();
        let (reader, _) = rings(Segment::open(memory.as_fd(), RING_BYTES).unwrap(), RingSide::Client);
        let mut clients = Clients::new(limits, 0);
        let (id, socket) = add(&mut clients, segment);
        Ends { clients, id, reader, socket }
    }

    /// Adds a client with shared memory. Returns its number and its end of the socket.
    fn add(clients: &mut Clients, segment: Segment) -> (ClientId, UnixStream) {
        let (stream, socket) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(stream, clients.limits());
        connection.rings = Some(LocalRings::new(segment));
        let id = clients.add(Clock::now(), String::new(), ClientTransport::Attached(Box::new(connection)));
        (id, socket)
    }

    fn target(client: ClientId, sub: u32) -> Target {
        Target { client, sub: SubId(sub) }
    }

    #[test]
    fn unused_buffers_are_freed() {
        let Ends { mut clients, id, mut reader, socket: _socket } =
            ends(QueueLimits { count_max: 10, bytes_max: 1 << 20 });
        let now = Clock::now();
        let payload = Bytes::from(vec![1; BUFFER_BYTES_MIN]);
        assert!(clients.buffer_for(now.instant, &[], &payload).is_none(), "nobody reads it");
        assert_eq!(clients.buffer_deadline(), None);
        let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 };
        let delivery = Delivery::new(Message::new("x".parse().unwrap(), payload), publisher, None, Verdict::Direct);
        clients.deliver_large(now, &[target(id, 0)], &delivery);
        let due = clients.buffer_deadline().unwrap();
        clients.free_unused_buffers(now.instant);
        assert_eq!(clients.buffer_deadline(), Some(due), "it is not due");
        clients.free_unused_buffers(due);
        assert_eq!(clients.buffer_deadline(), None);
        assert!(clients.write().is_empty());
        let mut endpoint = ClientEndpoint::new();
        let mut greeting = BytesMut::new();
        PeerFrame::Welcome(Welcome::any()).encode(&mut greeting);
        endpoint.push(&greeting);
        endpoint.push_with(|out| reader.read(RING_BYTES, out)).unwrap();
        let mut next = || endpoint.poll_frame().unwrap();
        assert!(matches!(next(), Some(PeerFrame::Welcome(_))));
        let Some(PeerFrame::MessageBuffer { payload: lent, .. }) = next() else { panic!("the message") };
        assert_eq!(lent, LentPayload { bytes: BUFFER_BYTES_MIN, index: 0, is_new: true });
        assert_eq!(next(), Some(PeerFrame::BuffersFreed));
    }

    #[test]
    fn doorbell_before_a_buffer_continues_output() {
        let Ends { mut clients, id, mut reader, socket } = ends(QueueLimits { count_max: 10, bytes_max: 1 << 20 });
        clients.answer(id, &PeerFrame::Shown { id: 1, answer: vec![b' '; 2 * RING_BYTES].into() });
        assert!(clients.write().is_empty());
        let mut out = BytesMut::new();
        assert_eq!(reader.read(RING_BYTES, &mut out), Ok(RING_BYTES), "the ring is full");
        assert!(reader.take_doorbell_request());
        send_doorbell(&socket);
        let mut pool = BufferPool::default();
        let mut fresh = pool.take(BUFFER_BYTES_MIN, |_| false).unwrap();
        fresh.as_mut_slice().fill(1);
        let payload = fresh.freeze();
        assert!(hand_over(&socket, pool.buffer_of(&payload).unwrap().memory()));
        let lent = LentPayload { bytes: BUFFER_BYTES_MIN, index: 3, is_new: true };
        assert_eq!(clients.read_buffer(Clock::now().instant, id, lent).unwrap().unwrap(), payload);
        assert!(clients.write().is_empty());
        assert_eq!(reader.read(RING_BYTES, &mut out), Ok(RING_BYTES), "the client gets more");
    }
}
