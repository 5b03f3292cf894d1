//! The simulated network: it decides for each copy of a packet whether to deliver it after a delay, to drop it, or to
//! deliver it twice.

use crate::rng::Rng;
use crate::sim::scenario::{MILLIS, NetworkConditions, SECOND};
use bytes::Bytes;

/// The outcome of one copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOutcome {
    /// It arrives this number of nanoseconds after it was sent.
    Deliver(u64),
    /// It arrives this number of nanoseconds after it was sent, with changed bytes.
    Corrupt(u64),
    /// It never arrives. Without the drop it would arrive this number of nanoseconds after it was sent.
    Drop(u64),
    /// It arrives a second time, this number of nanoseconds after it was sent, if the receiver has heard its sender.
    Replay(u64),
}

/// Links between hosts, and their faults.
#[derive(Debug)]
pub struct SimulatedNetwork {
    rng: Rng,
    weather: NetworkConditions,
    hosts: usize,
    /// For each link, true if it is in the bad state of its burst model.
    bursts: Vec<bool>,
    /// For each link, the time until which it is cut.
    cut_until: Vec<u64>,
    /// For each host, the time until which multicast does not reach it.
    multicast_dead_until: Vec<u64>,
    /// For each link, true if a switch withholds multicasts from it.
    snooped: Vec<bool>,
}

impl SimulatedNetwork {
    /// Creates a network of `hosts` hosts in which nothing is cut.
    pub fn new(rng: Rng, weather: NetworkConditions, hosts: usize) -> SimulatedNetwork {
        SimulatedNetwork {
            rng,
            weather,
            hosts,
            bursts: vec![false; hosts * hosts],
            cut_until: vec![0; hosts * hosts],
            multicast_dead_until: vec![0; hosts],
            snooped: vec![false; hosts * hosts],
        }
    }

    /// Cuts the link from one host to another.
    pub fn cut(&mut self, from: usize, to: usize, until: u64) {
        let link = &mut self.cut_until[from * self.hosts + to];
        *link = until.max(*link);
    }

    /// Cuts a host off in both directions.
    pub fn cut_host(&mut self, host: usize, until: u64) {
        for other in (0..self.hosts).filter(|other| *other != host) {
            self.cut(host, other, until);
            self.cut(other, host, until);
        }
    }

    /// Withholds all multicasts from a host until `until`.
    pub fn block_multicast(&mut self, host: usize, until: u64) {
        self.multicast_dead_until[host] = until;
    }

    /// Withholds one host's multicasts from another, until the latter joins the group anew.
    pub fn snoop(&mut self, from: usize, to: usize) {
        self.snooped[from * self.hosts + to] = true;
    }

    /// Records that a host joins the group anew.
    pub fn rejoin(&mut self, host: usize) {
        (0..self.hosts).for_each(|from| self.snooped[from * self.hosts + host] = false);
    }

    /// Ends all faults. Latency stays.
    pub fn heal(&mut self) {
        self.weather = NetworkConditions {
            latency: self.weather.latency,
            jitter: self.weather.jitter,
            ..NetworkConditions::default()
        };
        self.cut_until.fill(0);
        self.multicast_dead_until.fill(0);
        self.bursts.fill(false);
        self.snooped.fill(false);
    }

    /// Returns whether a datagram that is sent now reaches no host.
    pub fn is_lost_at_source(&mut self) -> bool {
        0.0 < self.weather.source && self.rng.chance(self.weather.source)
    }

    /// Returns the maximum delay of a copy other than a replay, in nanoseconds.
    pub fn delay_max(&self) -> u64 {
        self.weather.latency + self.weather.jitter + self.weather.reorder_max
    }

    /// Draws the outcomes of the copies of one packet on one link, and appends them to `outcomes`.
    pub fn draw_outcomes(
        &mut self,
        now: u64,
        from: usize,
        to: usize,
        multicast: bool,
        outcomes: &mut Vec<LinkOutcome>,
    ) {
        let after = self.delay();
        if self.is_lost(now, from, to, multicast) {
            outcomes.push(LinkOutcome::Drop(after));
            return;
        }
        if 0.0 < self.weather.corrupt && self.rng.chance(self.weather.corrupt) {
            outcomes.push(LinkOutcome::Corrupt(after));
            return;
        }
        outcomes.push(LinkOutcome::Deliver(after));
        if 0.0 < self.weather.duplicate && self.rng.chance(self.weather.duplicate) {
            let again = self.delay();
            outcomes.push(LinkOutcome::Deliver(again));
        }
        if 0.0 < self.weather.replay && self.rng.chance(self.weather.replay) {
            outcomes.push(LinkOutcome::Replay(self.rng.between(300 * MILLIS, 20 * SECOND)));
        }
    }

    fn delay(&mut self) -> u64 {
        let mut delay = self.weather.latency + self.rng.below(self.weather.jitter + 1);
        if 0.0 < self.weather.reorder && self.rng.chance(self.weather.reorder) {
            delay += self.rng.below(self.weather.reorder_max + 1);
        }
        delay
    }

    fn is_lost(&mut self, now: u64, from: usize, to: usize, multicast: bool) -> bool {
        let link = from * self.hosts + to;
        let lacks_multicast = now < self.multicast_dead_until[to] || self.snooped[link];
        if now < self.cut_until[link] || multicast && lacks_multicast {
            return true;
        }
        if 0.0 < self.weather.burst_begin {
            let change = if self.bursts[link] { self.weather.burst_end } else { self.weather.burst_begin };
            self.bursts[link] ^= self.rng.chance(change);
            if self.bursts[link] && self.rng.chance(self.weather.burst_loss) {
                return true;
            }
        }
        0.0 < self.weather.loss && self.rng.chance(self.weather.loss)
    }

    /// Returns the datagram with one to three flipped bits, or cut short.
    pub fn damage(&mut self, bytes: &Bytes) -> Bytes {
        let mut damaged = bytes.to_vec();
        if self.rng.chance(0.2) {
            damaged.truncate(self.rng.below(bytes.len() as u64) as usize);
            return damaged.into();
        }
        for _ in 0..self.rng.between(1, 3) {
            let at = self.rng.below(bytes.len() as u64) as usize;
            damaged[at] ^= 1 << self.rng.below(8);
        }
        if damaged == *bytes {
            damaged[0] ^= 1;
        }
        damaged.into()
    }

    /// Returns a foreign datagram now and then.
    pub fn garbage(&mut self) -> Option<Bytes> {
        if self.weather.garbage == 0.0 || !self.rng.chance(self.weather.garbage) {
            return None;
        }
        let mut bytes: Vec<u8> = (0..self.rng.below(120)).map(|_| self.rng.next_u32() as u8).collect();
        // Half of them begin like a datagram of the protocol.
        for (byte, ours) in bytes.iter_mut().zip(*b"SC\x01\x00").take(4 * self.rng.below(2) as usize) {
            *byte = ours;
        }
        Some(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(weather: NetworkConditions) -> SimulatedNetwork {
        SimulatedNetwork::new(Rng::new(7), weather, 3)
    }

    /// Sends 10,000 packets and counts (delivered, corrupted, dropped, replayed).
    fn count(network: &mut SimulatedNetwork, now: u64) -> (u64, u64, u64, u64) {
        let mut sums = (0, 0, 0, 0);
        let mut outcomes = Vec::new();
        for _ in 0..10_000 {
            outcomes.clear();
            network.draw_outcomes(now, 0, 1, true, &mut outcomes);
            for outcome in &outcomes {
                match outcome {
                    LinkOutcome::Deliver(_) => sums.0 += 1,
                    LinkOutcome::Corrupt(_) => sums.1 += 1,
                    LinkOutcome::Drop(_) => sums.2 += 1,
                    LinkOutcome::Replay(_) => sums.3 += 1,
                }
            }
        }
        sums
    }

    #[test]
    fn certain_loss_drops_every_packet() {
        assert_eq!(
            count(&mut network(NetworkConditions { loss: 1.0, ..NetworkConditions::default() }), 0),
            (0, 0, 10_000, 0)
        );
        assert_eq!(count(&mut network(NetworkConditions::default()), 0), (10_000, 0, 0, 0));
    }

    #[test]
    fn fault_rates_match_their_settings() {
        let weather = NetworkConditions { loss: 0.1, duplicate: 0.2, replay: 0.05, ..NetworkConditions::default() };
        let (delivered, _, dropped, replayed) = count(&mut network(weather), 0);
        assert!((900..1100).contains(&dropped), "{dropped}");
        assert!((10_500..11_100).contains(&delivered), "{delivered}");
        assert!((350..550).contains(&replayed), "{replayed}");
        let burst =
            NetworkConditions { burst_begin: 0.01, burst_end: 0.1, burst_loss: 1.0, ..NetworkConditions::default() };
        let (_, _, dropped, _) = count(&mut network(burst), 0);
        assert!((600..1200).contains(&dropped), "1 of 11 on average: {dropped}");
    }

    #[test]
    fn cuts_hold_until_their_end_or_healing() {
        let mut net = network(NetworkConditions::default());
        net.cut(0, 1, 100);
        assert_eq!(count(&mut net, 99).2, 10_000);
        assert_eq!(count(&mut net, 100).2, 0);
        net.block_multicast(1, 300);
        let mut outcomes = Vec::new();
        net.draw_outcomes(200, 0, 1, false, &mut outcomes);
        assert_eq!(outcomes, [LinkOutcome::Deliver(0)], "unicast still passes");
        assert_eq!(count(&mut net, 200).2, 10_000);
        net.block_multicast(1, 0);
        net.snoop(0, 1);
        assert_eq!(count(&mut net, 400).2, 10_000);
        net.rejoin(1);
        assert_eq!(count(&mut net, 400).2, 0);
        net.cut_host(1, 500);
        net.heal();
        assert_eq!(count(&mut net, 200).2, 0);
    }

    #[test]
    fn damage_always_changes_the_datagram() {
        let mut net = network(NetworkConditions::default());
        let bytes = Bytes::from_static(&[0xa5; 64]);
        for _ in 0..1000 {
            assert_ne!(net.damage(&bytes), bytes);
        }
    }
}
