//! One simulated host: its clocks, its receive buffer, and the peer that runs on it.

use crate::message::{DeliveryMode, Target};
use crate::proto::effect::Path;
use crate::proto::pace::cost;
use crate::proto::peer::Peer;
use crate::security::SecurityLayer;
use crate::sim::joiner::Joiner;
use crate::sim::scenario::{HostSpec, SECOND};
use crate::sim::truth::{DatagramId, NEVER};
use crate::time::{ClockReading, Instant, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Maximum number of turns in a row in which a host that reads too slowly defers its ticks, as in the daemon.
pub(super) const BUSY_TURNS_MAX: u32 = 64;
/// Turns a second of a host with limited speed. In each turn it reads what it can process in a turn, and processes it.
const TURNS_PER_SECOND: u64 = 2000;

/// A datagram on its way or in a receive buffer.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Its identity, if it is intact.
    pub id: DatagramId,
    /// The sender's address.
    pub from: SocketAddr,
    /// The path by which it arrives.
    pub path: Path,
    /// The UDP payload.
    pub bytes: Bytes,
}

/// A host.
pub struct Machine {
    /// Its specification in the scenario.
    pub spec: HostSpec,
    /// Its peer, while one runs.
    pub peer: Option<Peer>,
    /// The security layer of the peer, if it is keyed.
    pub security: Option<SecurityLayer>,
    /// Bit set of the hosts that the host knows to be revoked.
    pub revoked: u64,
    /// Revision of that.
    pub revision: u64,
    /// The oracle's number for the run of the peer.
    pub run: usize,
    /// The address of the peer.
    pub address: SocketAddr,
    /// Receive buffer: each datagram with the number of drops before it and its arrival in virtual time.
    pub buffer: VecDeque<(u64, u64, Packet)>,
    /// Bytes in `buffer`, as receive windows count them.
    pub buffered: u64,
    /// Number of turns in a row that left datagrams in `buffer`, so that ticks were deferred.
    pub busy_turns: u32,
    /// Time until which the host processes the datagrams that it has read.
    pub busy_until: u64,
    /// Number of datagrams left in the current flood of the host's applications, and the time at which it began.
    pub flood: (u32, u64),
    /// For each flood, the times at which it began and at which its last datagram had left.
    pub flood_times: Vec<(u64, u64)>,
    /// Number of drops since the last datagram that fitted.
    pub dropped: u64,
    /// Total number of drops.
    pub dropped_total: u64,
    /// Time until which the host pauses.
    pub paused_until: u64,
    /// Time of the next turn of the host's loop; `NEVER` if none is scheduled.
    pub turn_at: u64,
    /// Time of the next wake-up for the peer's deadline; `NEVER` if none is scheduled.
    pub wake_at: u64,
    /// Sum of the steps of the host's wall clock, in nanoseconds.
    pub wall_step: i64,
    /// Subscriptions of the host's clients: target, index of the pattern, delivery mode.
    pub subscriptions: Vec<(Target, usize, DeliveryMode)>,
    /// Members of queue groups at the host: index of the pattern and number of the group of each.
    pub members: BTreeMap<u32, (usize, u32)>,
    /// The client that has joined late, if there is one.
    pub joiner: Option<Joiner>,
    /// Number of datagrams left in the current burst of the host's applications.
    pub burst: u32,
    /// True if the peer is stopping.
    pub is_stopping: bool,
}

impl Machine {
    /// Creates a host on which nothing runs.
    pub fn new(number: usize, spec: HostSpec) -> Machine {
        let ip = IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + number as u32));
        Machine {
            spec,
            peer: None,
            security: None,
            revoked: 0,
            revision: 0,
            run: 0,
            address: SocketAddr::new(ip, 7500),
            buffer: VecDeque::new(),
            buffered: 0,
            busy_turns: 0,
            busy_until: 0,
            flood: (0, 0),
            flood_times: Vec::new(),
            dropped: 0,
            dropped_total: 0,
            paused_until: 0,
            turn_at: NEVER,
            wake_at: NEVER,
            wall_step: 0,
            subscriptions: Vec::new(),
            members: BTreeMap::new(),
            joiner: None,
            burst: 0,
            is_stopping: false,
        }
    }

    /// Returns the next time at which the peer or its security layer wants to run.
    pub fn deadline(&mut self) -> Option<Instant> {
        let deadline = self.peer.as_mut()?.poll_deadline();
        self.deadline_with(deadline)
    }

    /// Returns the next deadline of the host, if that of its peer is known already.
    pub fn deadline_with(&self, peer: Option<Instant>) -> Option<Instant> {
        peer.into_iter().chain(self.security.as_ref().map(SecurityLayer::deadline)).min()
    }

    /// Returns the readings of the host's clocks at a virtual time.
    pub fn now(&self, at: u64) -> ClockReading {
        let drift = at as i64 / 1000 * self.spec.skew_ppm / 1000;
        let instant = (self.spec.boot + at).saturating_add_signed(drift);
        let wall = (self.spec.wall + at).saturating_add_signed(self.wall_step);
        ClockReading { instant: Instant::from_nanos(instant), wall: WallTime::from_nanos(wall) }
    }

    /// Returns the first virtual time from `at` on at which the host's boot clock has reached `instant`.
    pub fn virtual_time_of(&self, at: u64, instant: Instant) -> u64 {
        let distance = instant.since(self.now(at).instant).as_nanos() as i64;
        // The clock is off by at most 500 ppm. The square of that and 2 us are added, so that the result is never too
        // early.
        let distance = distance - distance / 1000 * self.spec.skew_ppm / 1000 + distance / 4_000_000;
        at + distance.max(0) as u64 + if self.spec.skew_ppm == 0 { 0 } else { 2000 }
    }

    /// Puts a datagram into the receive buffer. Returns false if the buffer is full.
    pub fn receive(&mut self, at: u64, packet: Packet) -> bool {
        // As in operating systems, a buffer with any free space takes a whole datagram.
        if self.spec.buffer_datagrams <= self.buffer.len() || self.spec.buffer_bytes <= self.buffered {
            self.dropped += 1;
            self.dropped_total += 1;
            return false;
        }
        self.buffered += cost(packet.bytes.len());
        self.buffer.push_back((std::mem::take(&mut self.dropped), at, packet));
        true
    }

    /// Removes the oldest datagram from the receive buffer, with the number of drops before it and its arrival time.
    pub fn read(&mut self) -> Option<(u64, u64, Packet)> {
        let read = self.buffer.pop_front()?;
        self.buffered -= cost(read.2.bytes.len());
        Some(read)
    }

    /// Returns the maximum nanoseconds for which the host reads before it looks at the clock again; 0 if its speed is
    /// not limited. In each turn it reads at least one datagram.
    pub fn reading_max(&self) -> u64 {
        let datagram_bytes = cost(self.spec.settings.datagram_bytes_max);
        match self.spec.speed {
            0 => 0,
            speed => u64::from(BUSY_TURNS_MAX) * (SECOND / TURNS_PER_SECOND + datagram_bytes * SECOND / speed),
        }
    }

    /// Returns the number of bytes that the host reads in one turn.
    pub fn turn_bytes(&self) -> u64 {
        match self.spec.speed {
            0 => u64::MAX,
            speed => speed / TURNS_PER_SECOND,
        }
    }

    /// Removes the peer and all datagrams that it had not read.
    pub fn halt(&mut self) {
        self.peer = None;
        self.security = None;
        self.joiner = None;
        self.buffer.clear();
        (self.buffered, self.busy_turns, self.busy_until, self.flood) = (0, 0, 0, (0, 0));
        self.dropped = 0;
        self.burst = 0;
        self.is_stopping = false;
        self.wake_at = NEVER;
        self.turn_at = NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::{SECOND, Scenario};

    #[test]
    fn deadlines_are_met_despite_clock_drift() {
        for skew_ppm in [-500, 0, 500] {
            let mut spec = Scenario::draw(1).hosts.remove(0);
            (spec.skew_ppm, spec.boot) = (skew_ppm, 5 * SECOND);
            let machine = Machine::new(0, spec);
            let now = machine.now(1000 * SECOND).instant.as_nanos() as i64;
            assert_eq!(now, 1005 * SECOND as i64 + skew_ppm * 1_000_000);
            for distance in [0, 1, 999, 1_000_000, 3_500_000_000, 60_000_000_000] {
                let deadline = Instant::from_nanos(now as u64 + distance);
                let at = machine.virtual_time_of(1000 * SECOND, deadline);
                assert!(deadline <= machine.now(at).instant, "{skew_ppm} {distance}");
                assert!(at <= 1000 * SECOND + distance + distance / 1500 + 20_000, "{skew_ppm} {distance}");
            }
        }
    }
}
