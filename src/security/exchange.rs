//! A handshake in progress with one epoch of another peer.

use super::association::RemoteHost;
use super::noise::{Noise, NoiseTransport};
use crate::time::Instant;
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

use super::handshake_datagram::NONCE_BYTES;

/// Time before the first repetition of a datagram; it doubles with each.
const REPEAT_FIRST: Duration = Duration::from_millis(20);
/// Number of times that each datagram of a handshake is sent.
const SENDS_MAX: u32 = 5;
/// Time for which a responder waits for the FINAL.
const RESPONSE_TIME: Duration = Duration::from_secs(1);
/// Time for which no handshake is begun with an epoch after one has failed.
const BACKOFF: Duration = Duration::from_secs(1);
/// The same, if the peer is not trusted.
const REFUSAL_BACKOFF: Duration = Duration::from_secs(10);

/// Progress of a handshake.
pub(super) enum HandshakeProgress {
    /// The initiator waits for a COOKIE with the nonce of its REQUEST.
    Requesting { nonce: [u8; NONCE_BYTES] },
    /// The initiator waits for a RESPONSE.
    Initiating { noise: Box<Noise> },
    /// The initiator has sent its keys, and waits for those of this host.
    Finishing { transport: Box<NoiseTransport>, host: RemoteHost },
    /// The responder waits for a FINAL. It answers the same INIT with the same RESPONSE.
    Responding { noise: Box<Noise>, init: Vec<u8> },
    /// The handshake has failed.
    BackedOff,
}

/// A handshake, with what repeats and ends it.
pub(super) struct HandshakeExchange {
    pub(super) address: SocketAddr,
    pub(super) progress: HandshakeProgress,
    /// Datagram that was sent last.
    pub(super) datagram: Bytes,
    sends: u32,
    /// Time of the next repetition, or of the end.
    pub(super) due: Instant,
}

impl HandshakeExchange {
    /// Creates the exchange after the initiator has sent a datagram.
    pub(super) fn sent(
        now: Instant,
        address: SocketAddr,
        progress: HandshakeProgress,
        datagram: Bytes,
    ) -> HandshakeExchange {
        HandshakeExchange { address, progress, datagram, sends: 1, due: now + REPEAT_FIRST }
    }

    /// Creates the exchange after the responder has sent a RESPONSE.
    pub(super) fn responded(
        now: Instant,
        address: SocketAddr,
        progress: HandshakeProgress,
        datagram: Bytes,
    ) -> HandshakeExchange {
        HandshakeExchange { address, progress, datagram, sends: 1, due: now + RESPONSE_TIME }
    }

    /// Creates the state in which no handshake is begun for a while.
    pub(super) fn refused(now: Instant, address: SocketAddr) -> HandshakeExchange {
        HandshakeExchange::backed_off(now + REFUSAL_BACKOFF, address)
    }

    fn backed_off(due: Instant, address: SocketAddr) -> HandshakeExchange {
        HandshakeExchange { address, progress: HandshakeProgress::BackedOff, datagram: Bytes::new(), sends: 0, due }
    }

    /// Returns whether this peer is the initiator, and the handshake has not failed.
    pub(super) fn is_initiator(&self) -> bool {
        match self.progress {
            HandshakeProgress::Requesting { .. }
            | HandshakeProgress::Initiating { .. }
            | HandshakeProgress::Finishing { .. } => true,
            HandshakeProgress::Responding { .. } | HandshakeProgress::BackedOff => false,
        }
    }

    /// Returns whether the handshake has failed.
    pub(super) fn is_backed_off(&self) -> bool {
        matches!(self.progress, HandshakeProgress::BackedOff)
    }

    /// Handles the due time. Returns the datagram to repeat, if there is one; the exchange is over if there is none
    /// and it had failed before.
    pub(super) fn repeat(&mut self, now: Instant) -> Option<Bytes> {
        if self.is_initiator() && self.sends < SENDS_MAX {
            self.due = now + REPEAT_FIRST * 2u32.pow(self.sends);
            self.sends += 1;
            return Some(self.datagram.clone());
        }
        *self = HandshakeExchange::backed_off(now + BACKOFF, self.address);
        None
    }
}
