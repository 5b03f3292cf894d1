//! A handshake in progress with one epoch of another peer.

use super::association::{GivenSecret, RemoteHost};
use super::handshake_datagram::NONCE_BYTES;
use super::noise::{Noise, NoiseTransport};
use crate::message::Epoch;
use crate::time::Instant;
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

/// Time before the first repetition of a datagram; it doubles with each.
const REPEAT_FIRST: Duration = Duration::from_millis(20);
/// Number of times that each repeated datagram of a handshake is sent.
const SENDS_MAX: u32 = 5;
/// Time for which an initiator waits for a COOKIE. The next HELLO begins anew.
const REQUEST_TIME: Duration = Duration::from_millis(250);
/// Time for which a responder waits for the FINAL.
const RESPONSE_TIME: Duration = Duration::from_secs(1);
/// Time for which no handshake is begun with an epoch at an address after one has failed.
const BACKOFF: Duration = Duration::from_secs(1);
/// The same, if the peer is not trusted.
const REFUSAL_BACKOFF: Duration = Duration::from_secs(10);

/// The other side of a handshake: an epoch at one address. Whoever claims the epoch from another address is another
/// one, and does not disturb this handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RemoteEndpoint {
    pub(super) epoch: Epoch,
    pub(super) address: SocketAddr,
}

/// Progress of a handshake.
pub(super) enum HandshakeProgress {
    /// The initiator waits for a COOKIE with the nonce of its REQUEST.
    Requesting { nonce: [u8; NONCE_BYTES] },
    /// The initiator waits for a RESPONSE.
    Initiating { noise: Box<Noise> },
    /// The initiator has sent its keys, and waits for those of this host.
    Finishing { transport: Box<NoiseTransport>, host: RemoteHost, given: GivenSecret },
    /// The responder waits for a FINAL. It answers the same INIT with the same RESPONSE.
    Responding { noise: Box<Noise>, init: Vec<u8> },
    /// The handshake has failed.
    BackedOff,
    /// The other side is not trusted.
    Refused,
}

/// Action on an exchange at its due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExchangeDue {
    /// Send the last datagram again.
    Repeat(Bytes),
    /// The handshake has failed. The exchange stays for its back-off.
    BackOff {
        /// True if the other side may have completed the handshake.
        may_be_complete: bool,
    },
    /// Remove the exchange.
    End,
}

/// A handshake, with what repeats and ends it.
pub(super) struct HandshakeExchange {
    pub(super) progress: HandshakeProgress,
    /// Datagram that was sent last.
    pub(super) datagram: Bytes,
    sends: u32,
    /// Time of the next repetition, or of the end.
    pub(super) due: Instant,
}

impl HandshakeExchange {
    /// Creates the exchange after this peer has sent a datagram.
    pub(super) fn sent(now: Instant, progress: HandshakeProgress, datagram: Bytes) -> HandshakeExchange {
        let time = match progress {
            HandshakeProgress::Requesting { .. } => REQUEST_TIME,
            HandshakeProgress::Responding { .. } => RESPONSE_TIME,
            HandshakeProgress::Initiating { .. }
            | HandshakeProgress::Finishing { .. }
            | HandshakeProgress::BackedOff
            | HandshakeProgress::Refused => REPEAT_FIRST,
        };
        HandshakeExchange { progress, datagram, sends: 1, due: now + time }
    }

    /// Creates the state in which no handshake is begun for a while.
    pub(super) fn backed_off(now: Instant) -> HandshakeExchange {
        HandshakeExchange::ended(HandshakeProgress::BackedOff, now + BACKOFF)
    }

    /// Creates the same for a peer that is not trusted.
    pub(super) fn refused(now: Instant) -> HandshakeExchange {
        HandshakeExchange::ended(HandshakeProgress::Refused, now + REFUSAL_BACKOFF)
    }

    fn ended(progress: HandshakeProgress, due: Instant) -> HandshakeExchange {
        HandshakeExchange { progress, datagram: Bytes::new(), sends: 0, due }
    }

    /// Returns whether this peer has sent an INIT, and the handshake has not failed.
    pub(super) fn is_initiated(&self) -> bool {
        matches!(self.progress, HandshakeProgress::Initiating { .. } | HandshakeProgress::Finishing { .. })
    }

    /// Returns whether the other side may have completed the handshake, and this one has not.
    pub(super) fn is_finishing(&self) -> bool {
        matches!(self.progress, HandshakeProgress::Finishing { .. })
    }

    /// Returns whether the handshake has failed, or the other side was refused.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.progress, HandshakeProgress::BackedOff | HandshakeProgress::Refused)
    }

    /// Returns whether the exchange may be removed for another one: the other side has not proven its address, or the
    /// handshake has failed.
    pub(super) fn gives_way(&self) -> bool {
        self.has_ended() || matches!(self.progress, HandshakeProgress::Requesting { .. })
    }

    /// Handles the due time.
    pub(super) fn on_due(&mut self, now: Instant) -> ExchangeDue {
        if !self.is_initiated() {
            return ExchangeDue::End;
        }
        if self.sends < SENDS_MAX {
            self.due = now + REPEAT_FIRST * 2u32.pow(self.sends);
            self.sends += 1;
            return ExchangeDue::Repeat(self.datagram.clone());
        }
        let may_be_complete = self.is_finishing();
        *self = HandshakeExchange::backed_off(now);
        ExchangeDue::BackOff { may_be_complete }
    }
}
