//! The test of the path between two hosts, which `seqcast doctor --with` begins: its datagrams, the side that answers
//! them, and the rate at which a running peer does so.

pub(crate) mod datagram;
pub(crate) mod responder;

use self::datagram::{PROBE_BYTES_MIN, is_of_prober};
use self::responder::{ProbeResponse, ReceivedProbe, Responder};
use super::batch::{OutgoingDatagram, ReceivedDatagram};
use super::multicast::Sockets;
use crate::clock::Clock;
use crate::proto::effect::Path;
use crate::time::Instant;
use std::io;
use std::time::Duration;

/// Bytes of path tests that a peer handles in a second. A test with the usual MTU has 450 kB, one with jumbo frames
/// 2.7 MB.
const BYTES_A_SECOND: u64 = 1 << 20;
/// Maximum lead over that rate.
const LEAD_MAX: Duration = Duration::from_secs(8);
/// Lead over that rate up to which tests begin. A test that has begun then finds room for 4 MiB: datagrams that the peer
/// discards would seem to be lost.
const BEGINNING_LEAD_MAX: Duration = Duration::from_secs(4);

/// The answers of a running peer to path tests. Its socket for copies receives them, so of several peers on one host
/// only one answers.
#[derive(Debug)]
pub(crate) struct PathTests {
    responder: Responder,
    rate: PathTestRate,
    /// Hops of a multicast, as configured.
    ttl: u8,
    received: u64,
    discarded: u64,
}

impl PathTests {
    /// Creates the state of a peer that starts now. `secret` is random.
    pub(crate) fn new(secret: u64, ttl: u8, now: Instant) -> PathTests {
        let rate = PathTestRate { due: now };
        PathTests { responder: Responder::new(secret), rate, ttl, received: 0, discarded: 0 }
    }

    /// Handles a datagram of a path test: answers a question to this peer, and counts a multicast to it. The group also
    /// receives the answers of this peer and of others, which are of no interest here.
    pub(crate) fn handle(&mut self, sockets: &Sockets, datagram: &ReceivedDatagram) {
        if !is_of_prober(&datagram.bytes) {
            return;
        }
        self.received += 1;
        if !self.rate.admit(Clock::now().instant, datagram.bytes.len()) {
            self.discarded += 1;
            return;
        }
        let path = if datagram.is_copy { Path::Unicast } else { Path::Multicast };
        let ttl = self.ttl;
        respond(&mut self.responder, path, datagram, |response| {
            let answer = OutgoingDatagram { to: response.to, bytes: response.bytes.clone() };
            sockets.answer_path_test(answer, response.allows_fragments, ttl)
        });
        for prober in self.responder.take_begun() {
            tracing::info!(%prober, "another host tests the path to this peer (doctor --with)");
        }
    }

    /// Returns the number of datagrams of path tests that arrived, and that of those above the rate.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.received, self.discarded]
    }
}

/// Passes a datagram to a responder, and sends the answer by `send`, which returns whether the system took it.
pub(crate) fn respond(
    responder: &mut Responder,
    path: Path,
    datagram: &ReceivedDatagram,
    send: impl FnOnce(&ProbeResponse) -> io::Result<bool>,
) {
    let now = Clock::now();
    let received = datagram.arrived.unwrap_or(now.wall).as_nanos();
    let arrival = ReceivedProbe { path, from: datagram.from, bytes: &datagram.bytes, received };
    let Some(response) = responder.handle(now.instant, now.wall.as_nanos(), &arrival) else { return };
    // An answer that the system refuses counts as not sent, and the prober learns that from the tallies.
    if send(&response).unwrap_or(false) {
        responder.on_sent(&response);
    }
}

/// The rate at which a peer handles path tests. It bounds the answers, too: none is longer than what it answers.
#[derive(Debug)]
struct PathTestRate {
    /// Time from which the bytes so far keep to the rate.
    due: Instant,
}

impl PathTestRate {
    fn admit(&mut self, now: Instant, bytes: usize) -> bool {
        // Only the first datagram of a test is smaller than a probe.
        let lead_max = if bytes < PROBE_BYTES_MIN { BEGINNING_LEAD_MAX } else { LEAD_MAX };
        let is_admitted = self.due <= now + lead_max;
        if is_admitted {
            self.due = self.due.max(now) + Duration::from_nanos(bytes as u64 * 1_000_000_000 / BYTES_A_SECOND);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begun_test_is_handled_whole_at_the_limit() {
        let now = Instant::from_nanos(0);
        let mut rate = PathTestRate { due: now };
        let admitted = |rate: &mut PathTestRate, bytes| (0..100_000).take_while(|_| rate.admit(now, bytes)).count();
        let kept = |count: usize, bytes: usize| (count * bytes) as u64;
        let begun = admitted(&mut rate, 52);
        assert!((4 << 20..(4 << 20) + 104).contains(&kept(begun, 52)), "{begun}");
        let probes = admitted(&mut rate, 8972);
        assert!((4 << 20..(4 << 20) + 2 * 8972).contains(&kept(probes, 8972)), "{probes}");
        assert!(!rate.admit(now, 52) && !rate.admit(now, 64));
        let later = now + Duration::from_secs(1);
        assert!(rate.admit(later, 64) && !rate.admit(later, 52));
    }
}
