//! Shared memory for attached clients.

use super::EngineCore;
use crate::config::Config;
use crate::daemon::connection_state::ReadOutcome;
use crate::daemon::local_rings::LocalRings;
use crate::daemon::local_socket::Connection;
use crate::daemon::tokens::client_token;
use crate::listener::frame::{LentPayload, PeerFrame, SegmentRefusal, SegmentRefusalReason};
use crate::listener::local::{LocalFault, ProtocolViolation};
use crate::listener::refusal::{RefusalReason, RequestRefusal};
use crate::message::{ClientId, Message};
use crate::shared_memory::{Segment, send_with_descriptor};
use crate::time::ClockReading;
use bytes::BytesMut;
use mio::Interest;

/// Limits of the shared memory of clients, and the number of refusals.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct SegmentLimits {
    /// Size of each of the two rings of a client, in bytes; `None` if shared memory is switched off.
    ring_bytes: Option<usize>,
    /// Maximum bytes of the rings of all clients.
    bytes_max: usize,
    /// Number of requests refused.
    pub(in crate::daemon) refused: u64,
    /// Number of payloads published in lent memory.
    pub(in crate::daemon) payloads_lent: u64,
}

impl SegmentLimits {
    /// Returns the limits of a configuration.
    pub(super) fn of(config: &Config) -> SegmentLimits {
        // The largest power of two of which two fit.
        let ring_bytes = config.shared_memory.map(|bytes| 1 << (bytes / 2).ilog2());
        SegmentLimits { ring_bytes, bytes_max: config.shared_memory_max, refused: 0, payloads_lent: 0 }
    }

    /// Returns whether clients may request shared memory.
    pub(super) fn is_offered(&self) -> bool {
        self.ring_bytes.is_some()
    }

    /// Returns the size of each ring of a further client, if `count` clients have rings.
    fn ring_bytes(&self, count: usize) -> Result<usize, SegmentRefusal> {
        let Some(ring_bytes) = self.ring_bytes else {
            return Err(refusal(SegmentRefusalReason::Off, "shared-memory is off".to_owned()));
        };
        if self.bytes_max / (2 * ring_bytes) <= count {
            let text = format!("the rings of {count} clients are all that shared-memory-max permits");
            return Err(refusal(SegmentRefusalReason::LimitReached, text));
        }
        Ok(ring_bytes)
    }
}

impl EngineCore {
    /// Answers a client that requests shared memory. After a refusal the client goes on with the socket.
    pub(super) fn share_memory(&mut self, now: ClockReading, id: ClientId) {
        let count = self.clients.ring_count();
        let Some(connection) = self.clients.connection(id) else { return };
        // Each refusal costs a system call or more, so a client has one request.
        let is_repeated = std::mem::replace(&mut connection.has_requested_memory, true);
        if is_repeated || connection.endpoint.has_bytes() {
            return self.on_fault(now, id, &LocalFault::ProtocolViolation(ProtocolViolation::SharedMemory));
        }
        match self.segments.ring_bytes(count).and_then(|ring_bytes| share(connection, ring_bytes)) {
            Ok(()) => {
                // A doorbell that the client reads would otherwise wake the peer, since the socket then has more room.
                let registry = self.poll.registry();
                if let Err(error) = registry.reregister(&mut connection.stream, client_token(id), Interest::READABLE) {
                    tracing::debug!(%error, client = id.0, "reregister");
                }
            }
            Err(refusal) => {
                self.segments.refused += 1;
                tracing::debug!(client = id.0, reason = refusal.text, "no shared memory for a client");
                self.clients.answer(id, &PeerFrame::Segment(Err(refusal)));
            }
        }
    }

    /// Publishes a message whose payload is in a buffer of the client.
    pub(super) fn publish_buffer(&mut self, now: ClockReading, id: ClientId, message: Message, payload: LentPayload) {
        match self.clients.read_buffer(now.instant, id, payload) {
            Ok(Some(payload)) => {
                self.segments.payloads_lent += 1;
                self.publish_whole(now, id, Message { payload, ..message });
            }
            Ok(None) => {
                let refusal = RequestRefusal { sub: None, reason: RefusalReason::BufferLost };
                self.clients.answer(id, &PeerFrame::Refused(refusal));
            }
            Err(fault) => self.on_fault(now, id, &fault),
        }
    }

    /// Reads doorbells of a client with shared memory, also while its frames must wait: otherwise they would fill the
    /// socket, and the client could not report that there is room for output. Returns whether frames may be processed.
    pub(super) fn read_doorbells(&mut self, now: ClockReading, id: ClientId) -> bool {
        let Some(connection) = self.clients.connection(id) else { return false };
        let is_closing = connection.flow.is_closing;
        match connection.read_doorbells(&mut self.scratch) {
            Ok(ReadOutcome::Bytes(_)) => self.clients.on_writable(id),
            Ok(ReadOutcome::End) if is_closing => self.detach(now, id),
            Ok(_) => {}
            Err(fault) => {
                self.on_fault(now, id, &fault);
                return false;
            }
        }
        !is_closing
    }
}

/// Makes a segment and hands it to the client.
fn share(connection: &mut Connection, ring_bytes: usize) -> Result<(), SegmentRefusal> {
    let unread = |text: &str| refusal(SegmentRefusalReason::UnreadOutput, text.to_owned());
    connection.write();
    if !connection.outbox.is_empty() {
        return Err(unread("the client has not read all output of the peer"));
    }
    let system = |error: std::io::Error| refusal(SegmentRefusalReason::System, format!("no shared memory: {error}"));
    let (segment, memory) = Segment::create(ring_bytes).map_err(system)?;
    let mut frame = BytesMut::new();
    PeerFrame::Segment(Ok(u32::try_from(ring_bytes).expect("at most 1 GiB"))).encode(&mut frame);
    send_with_descriptor(&connection.stream, &frame, &memory).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => unread("the socket has no room for the answer"),
        _ => system(error),
    })?;
    connection.rings = Some(LocalRings::new(segment));
    Ok(())
}

fn refusal(reason: SegmentRefusalReason, text: String) -> SegmentRefusal {
    SegmentRefusal { reason, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_powers_of_two_within_the_limits() {
        let limits = |shared_memory, shared_memory_max| {
            let mut config = Config::for_this_host();
            (config.shared_memory, config.shared_memory_max) = (shared_memory, shared_memory_max);
            SegmentLimits::of(&config)
        };
        for (bytes, ring_bytes) in [(64 << 10, 32 << 10), (100_000, 32 << 10), (2 << 20, 1 << 20)] {
            assert_eq!(limits(Some(bytes), 1 << 30).ring_bytes(0), Ok(ring_bytes), "{bytes}");
        }
        let two = limits(Some(1 << 20), 2 << 20);
        assert_eq!(two.ring_bytes(1), Ok(512 << 10));
        assert_eq!(two.ring_bytes(2).unwrap_err().reason, SegmentRefusalReason::LimitReached);
        let off = limits(None, 1 << 20);
        assert!(!off.is_offered());
        assert_eq!(off.ring_bytes(0).unwrap_err().reason, SegmentRefusalReason::Off);
    }
}
