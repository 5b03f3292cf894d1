//! Proof that a peer can be reached at its address, and the few datagrams that are sent there before (wire.md
//! W99 to W106).

use crate::rng::Rng;
use crate::time::Instant;
use std::time::Duration;

/// Padded length in bytes of a HELLO that requests a reply, so that the reply is never longer than the request (5.6).
pub const HELLO_BYTES: usize = 256;

/// Number of datagrams sent to an unproven address for each datagram accepted from it.
const UNPROVEN_DATAGRAMS: u8 = 3;
/// Time after which an unreturned token is replaced in the next control message to its peer. It exceeds a round trip on
/// a LAN.
const TOKEN_TIME: Duration = Duration::from_millis(50);
/// Average number of peers that answer the first multicast of an unproven address. Twice that number answer the next
/// one.
pub const ANSWERING_PEERS: u64 = 8;
/// Number of datagrams without a unicast answer after which about [`ANSWERING_PEERS`] peers answer each further
/// multicast.
const UNANSWERED_MAX: u8 = 8;

/// Tokens exchanged with a peer, and the credit for datagrams to its address until it is proven.
#[derive(Debug)]
pub struct AddressProof {
    /// Token that the peer must return from its address before it receives answers.
    pub token: u64,
    /// Time at which the token was first sent.
    token_sent: Option<Instant>,
    /// The previous token, whose echo may still be in flight.
    former_token: Option<u64>,
    /// Token that the peer expects to be echoed.
    pub echo: Option<u64>,
    /// True once the peer has returned the token.
    pub is_proven: bool,
    /// True once the peer has sent a unicast datagram to this peer.
    pub has_unicast_contact: bool,
    /// Number of datagrams that may still be sent to the peer while its address is unproven.
    unproven_credit: u8,
    /// Number of datagrams accepted from the peer (saturating), and datagrams sent to it before its address was proven.
    received: u8,
    unanswered: u8,
}

impl AddressProof {
    /// Creates the state of a peer after its first datagram.
    pub fn new(rng: &mut Rng) -> AddressProof {
        AddressProof {
            token: rng.next_u64() | 1,
            token_sent: None,
            former_token: None,
            echo: None,
            is_proven: false,
            has_unicast_contact: false,
            unproven_credit: UNPROVEN_DATAGRAMS,
            received: 0,
            unanswered: 0,
        }
    }

    /// Returns the token for the next control message. It differs from the last one if that did not return in time: a
    /// token is echoed once, and the echo may be lost.
    pub fn next_token(&mut self, now: Instant, rng: &mut Rng) -> u64 {
        if !self.is_proven && self.token_sent.is_some_and(|sent| TOKEN_TIME <= now.since(sent)) {
            self.former_token = Some(self.token);
            (self.token, self.token_sent) = (rng.next_u64() | 1, None);
        }
        self.token_sent.get_or_insert(now);
        self.token
    }

    /// Returns whether `echo` proves the address: it is one of the last two tokens sent there.
    pub fn is_token(&self, echo: Option<u64>) -> bool {
        echo.is_some() && (echo == Some(self.token) || echo == self.former_token)
    }

    /// Spends credit for one datagram to the peer's address and returns false if there is none. A proven address always
    /// has credit. Until then one datagram from the peer earns credit for three. A peer that only multicasts was heard
    /// by all `peers` of the group. A few of them answer, and more after each repetition, so that the group does not
    /// multiply one forged multicast.
    pub fn spend_credit(&mut self, peers: u64, rng: &mut Rng) -> bool {
        // Rule: proof
        if self.is_proven {
            return true;
        }
        if self.unproven_credit == 0 {
            return false;
        }
        self.unproven_credit -= 1;
        let times = if self.unanswered < UNANSWERED_MAX { self.received.clamp(1, 32) - 1 } else { 0 };
        let answering = ANSWERING_PEERS << times;
        let is_allowed = self.has_unicast_contact || is_among(answering, peers, rng);
        self.unanswered = self.unanswered.saturating_add(u8::from(is_allowed));
        is_allowed
    }

    /// Earns credit for datagrams to the peer after a new datagram from it was accepted.
    pub fn earn_credit(&mut self) {
        self.unproven_credit = UNPROVEN_DATAGRAMS;
        self.received = self.received.saturating_add(1);
    }

    /// Returns the minimum size in bytes of a datagram to the peer. Until its token arrived, the datagram is as large
    /// as an answer that carries the token.
    pub fn padding(&self) -> usize {
        if self.echo.is_some() { 0 } else { HELLO_BYTES }
    }
}

/// Returns whether this peer is among the `answering` of all `peers`. Each peer decides that at random.
pub fn is_among(answering: u64, peers: u64, rng: &mut Rng) -> bool {
    peers <= answering || rng.below(peers) < answering
}
