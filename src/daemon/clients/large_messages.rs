//! Delivery of large messages to attached clients. Those with shared memory read the payload in place.

use super::{ClientTransport, Clients};
use crate::listener::local::LocalFault;
use crate::listener::value::delivery_body;
use crate::message::{ClientId, Delivery, Message, Target};
use crate::shared_memory::SealedBuffer;
use crate::time::ClockReading;
use bytes::Bytes;
use std::sync::Arc;

/// Minimum size in bytes of a payload that is copied into a buffer for the clients with shared memory, unless it is one.
const COPIED_BYTES_MIN: usize = 256 * 1024;
/// Minimum number of clients with shared memory for such a copy. The new pages of a buffer cost more than the copies for
/// fewer.
const COPY_READERS_MIN: usize = 3;

impl Clients {
    /// Takes the buffer of `bytes` bytes that a client has sent for its present frame. Returns `None` if this process may
    /// not have it.
    ///
    /// # Errors
    /// The client has sent no buffer, or something else.
    pub(crate) fn take_buffer(&mut self, id: ClientId, bytes: usize) -> Result<Option<Bytes>, LocalFault> {
        let Some(connection) = self.connection(id) else { return Ok(None) };
        let buffer = connection.take_buffer(bytes);
        // A doorbell read beside the descriptor may say that the client has room for output.
        self.on_writable(id);
        buffer
    }

    /// Delivers a large message to the attached clients among the targets.
    pub(super) fn deliver_large(&mut self, now: ClockReading, to: &[Target], delivery: &Delivery) {
        let shared = self.buffer_for(to, &delivery.message.payload).map(|buffer| {
            let message = Message { payload: Bytes::new(), ..delivery.message.clone() };
            (buffer, delivery_body(&Delivery { message, ..delivery.clone() }))
        });
        let mut body = None;
        self.push_attached(now, to, |connection, subs| {
            if let Some((buffer, body)) = &shared
                && let Some(outcome) = connection.push_buffer(subs, body, buffer)
            {
                return outcome;
            }
            connection.outbox.push_message(subs, body.get_or_insert_with(|| delivery_body(delivery).freeze()))
        });
    }

    /// Returns the buffer that the payload is, or a copy of it in a new one, if clients among the targets can read it in
    /// place.
    fn buffer_for(&self, to: &[Target], payload: &Bytes) -> Option<Arc<SealedBuffer>> {
        let has_rings = |target: &Target| match self.map.get(&target.client).map(|client| &client.kind) {
            Some(ClientTransport::Attached(connection)) => connection.uses_rings(),
            _ => false,
        };
        // A client gets one frame, however many of its subscriptions match.
        let readers = to.chunk_by(|a, b| a.client == b.client).filter(|targets| has_rings(&targets[0])).count();
        if readers == 0 {
            return None;
        }
        let buffer = SealedBuffer::of(payload);
        if buffer.is_some() || payload.len() < COPIED_BYTES_MIN || readers < COPY_READERS_MIN {
            return buffer;
        }
        SealedBuffer::copy(payload).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::daemon::local_rings::LocalRings;
    use crate::daemon::local_socket::Connection;
    use crate::daemon::subscription_queue::QueueLimits;
    use crate::listener::frame::PeerFrame;
    use crate::message::SubId;
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

    #[test]
    fn copy_is_made_for_several_clients() {
        let Ends { mut clients, id, .. } = ends(QueueLimits { count_max: 10, bytes_max: 1 << 20 });
        let payload = Bytes::from(vec![1; COPIED_BYTES_MIN]);
        let target = |client, sub| Target { client, sub: SubId(sub) };
        let overlapping: Vec<Target> = (0..5).map(|sub| target(id, sub)).collect();
        assert!(clients.buffer_for(&overlapping, &payload).is_none(), "one client gets one frame");
        let mut several = vec![target(id, 0)];
        for _ in 1..COPY_READERS_MIN {
            assert!(clients.buffer_for(&several, &payload).is_none());
            let segment = Segment::create(RING_BYTES).unwrap().0;
            several.push(target(add(&mut clients, segment).0, 0));
        }
        assert_eq!(clients.buffer_for(&several, &payload).map(|buffer| buffer.len()), Some(COPIED_BYTES_MIN));
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
        let buffer = SealedBuffer::copy(&vec![1; BUFFER_BYTES_MIN]).unwrap();
        assert!(hand_over(&socket, buffer.memory()));
        assert_eq!(clients.take_buffer(id, BUFFER_BYTES_MIN).unwrap().unwrap(), vec![1; BUFFER_BYTES_MIN]);
        assert!(clients.write().is_empty());
        assert_eq!(reader.read(RING_BYTES, &mut out), Ok(RING_BYTES), "the client gets more");
    }
}
