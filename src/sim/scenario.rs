//! Derives a scenario from a seed: the peers, their settings, the faults, and the time of each event.
//!
//! Each kind of fault is on or off for the whole scenario (a swarm). Thus some runs have one fault alone and others
//! many at once. A scenario is plain data; hand-made ones serve the tests of the simulator itself.

mod draw;
mod faults;
mod revocations;
mod size;
mod special;
mod text_format;

pub use faults::{FaultKind, Faults};
pub use special::{FLOOR, Speed};

use crate::message::DeliveryMode;
use crate::proto::Settings;
use crate::proto::mutant::Mutants;
use crate::proto::pace::PaceSettings;
use crate::rng::Rng;
use crate::time::nanos;
use draw::{draw_host, draw_pace, draw_patterns, draw_settings, draw_traffic, draw_weather};
use serde::{Deserialize, Serialize};
use size::ScenarioSize;
use text_format::{StoredMode, StoredSettings};

/// A microsecond of virtual time, which is counted in nanoseconds.
pub const MICROS: u64 = 1_000;
/// A millisecond of virtual time.
pub const MILLIS: u64 = 1_000_000;
/// A second of virtual time.
pub const SECOND: u64 = 1_000_000_000;

/// Effects of the network on packet copies while faults are on. Probabilities from 0 to 1, times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConditions {
    /// Probability that a copy is lost, independent of others.
    pub loss: f64,
    /// Probability of a change from the good to the bad state, for each copy on a link.
    pub burst_begin: f64,
    /// Probability of a change from the bad to the good state.
    pub burst_end: f64,
    /// Probability of loss in the bad state.
    pub burst_loss: f64,
    /// Probability of a second copy.
    pub duplicate: f64,
    /// Probability of an additional delay up to `reorder_max`.
    pub reorder: f64,
    /// Maximum additional delay.
    pub reorder_max: u64,
    /// Minimum latency of every copy.
    pub latency: u64,
    /// Maximum random addition to `latency`.
    pub jitter: u64,
    /// Probability that a copy arrives with changed bytes.
    pub corrupt: f64,
    /// Probability that a copy arrives again after 0.3 to 20 s.
    pub replay: f64,
    /// Probability of a foreign datagram beside a copy.
    pub garbage: f64,
    /// Probability that a data datagram reaches no host when it is sent for the first time.
    pub source: f64,
}

/// An action at a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Action {
    /// The host's peer starts.
    Start,
    /// The peer dies.
    Crash,
    /// The peer comes back, on another port if `other_port` is set.
    Restart {
        /// True for another port.
        other_port: bool,
    },
    /// The peer begins to stop.
    Stop,
    /// The host pauses for this time in nanoseconds.
    Pause(u64),
    /// The host's link is down for this time in nanoseconds.
    LinkDown(u64),
    /// Multicast does not reach the host for this time in nanoseconds.
    MulticastDead(u64),
    /// Multicasts of the named host do not reach this one until it joins the group anew.
    Snoop(usize),
    /// The host does not hear the hosts in a bit set. They do not hear the host either, unless `one_way` is set.
    Partition {
        /// Bit set of the other hosts.
        others: u64,
        /// True if the others still hear the host.
        one_way: bool,
        /// Duration in nanoseconds.
        nanos: u64,
    },
    /// The host's wall clock steps by this number of nanoseconds.
    ClockBy(i64),
    /// The host's wall clock is set to this number of nanoseconds since 1970.
    ClockTo(u64),
    /// A client subscribes to the pattern with this index.
    Subscribe {
        /// The client.
        client: u32,
        /// Number of the subscription at the client.
        sub: u32,
        /// Index into `Scenario::patterns`.
        pattern: usize,
        /// The delivery mode, which decides about missing messages.
        #[serde(with = "StoredMode")]
        mode: DeliveryMode,
    },
    /// A client ends a subscription.
    Unsubscribe {
        /// The client.
        client: u32,
        /// Number of the subscription at the client.
        sub: u32,
    },
    /// A client joins late: it subscribes to the pattern with this index, and first requests the newest retained
    /// messages of each subject, or all.
    Join {
        /// Index into `Scenario::patterns`.
        pattern: usize,
        /// Number of messages for each subject; `None` for all.
        newest: Option<u32>,
        /// The delivery mode, which decides about missing messages.
        #[serde(with = "StoredMode")]
        mode: DeliveryMode,
    },
    /// A client joins a queue group, with the pattern with this index.
    JoinQueue {
        /// Its number among the members at the host.
        member: u32,
        /// Index into `Scenario::patterns`.
        pattern: usize,
        /// The group's number.
        queue: u32,
    },
    /// A client leaves its queue group.
    LeaveQueue(u32),
    /// The host learns which hosts are revoked. If its peer is keyed, it changes its keys.
    Revoke {
        /// Bit set of the hosts.
        hosts: u64,
    },
    /// A client disconnects.
    Detach(u32),
    /// The host's applications publish this number of datagrams, with up to `Traffic::spacing_max` between them.
    Burst(u32),
    /// The host's applications publish this number of datagrams as fast as the peer accepts them.
    Flood(u32),
}

/// A scheduled action at a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioEvent {
    /// Virtual time in nanoseconds.
    pub at: u64,
    /// Index of the host.
    pub host: usize,
    /// The action.
    pub action: Action,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Parts per million by which the boot clock runs fast.
    pub skew_ppm: i64,
    /// The boot clock at virtual time 0, in nanoseconds.
    pub boot: u64,
    /// The wall clock at virtual time 0, in nanoseconds since 1970.
    pub wall: u64,
    /// Capacity of the receive buffer in datagrams.
    pub buffer_datagrams: usize,
    /// Capacity of the receive buffer in bytes, as receive windows count them.
    pub buffer_bytes: u64,
    /// Bytes that the host reads in a second, as receive windows count them; 0 for no limit.
    pub speed: u64,
    /// Nanoseconds from the arrival of a datagram until the host reads its socket.
    pub turn: u64,
    /// True if the host drains effects after each input, false if after all inputs of a turn.
    pub drains_each: bool,
    /// True if the host passes the arrival time of datagrams to its peer; required of hosts that pause.
    pub reports_arrival: bool,
    /// True if the host's own multicast comes back to it.
    pub loops_back: bool,
    /// Delivery mode of the subscription to its inbox.
    #[serde(with = "StoredMode")]
    pub inbox: DeliveryMode,
    /// The settings of its peer.
    #[serde(with = "StoredSettings")]
    pub settings: Settings,
}

/// Messages that applications publish.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Number of subjects of each publisher; the lower half is common to all.
    pub subjects: u64,
    /// Maximum number of messages in one datagram.
    pub batch_max: u64,
    /// Maximum time between two datagrams of a burst.
    pub spacing_max: u64,
    /// Maximum payload bytes of a message.
    pub payload_max: u64,
    /// Probability that a message is larger than a datagram, and its largest size in bytes.
    pub large: (f64, u64),
    /// Probability that a message is directed to another peer.
    pub directed: f64,
    /// Probability that a message has a reply subject or headers.
    pub meta: f64,
}

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its seed.
    pub seed: u64,
    /// The active faults.
    pub faults: Faults,
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// Number of cells. A host hears the first host and those whose number has the same remainder modulo `cells`; 0
    /// if all hear all.
    pub cells: usize,
    /// Network conditions until `heal_at`.
    pub weather: NetworkConditions,
    /// The published traffic.
    pub traffic: Traffic,
    /// Patterns of the subscriptions.
    pub patterns: Vec<String>,
    /// The events, ordered by time.
    pub events: Vec<ScenarioEvent>,
    /// The end of all network faults.
    pub heal_at: u64,
    /// The end of the run; at least T_silent + T_rec after the last message.
    pub end: u64,
    /// True if clock steps are applied; a run without them must have the same outcome (O10).
    pub clock_steps: bool,
}

/// Duration of the traffic after all faults have ended.
const QUIET_AFTER: u64 = 4 * SECOND;
/// The wall clock of a scenario's start: 2026-02-01 00:00:00 UTC.
const WALL_START: u64 = 1_769_904_000 * SECOND;
/// 2115-06-01 00:00:00 UTC.
const WALL_2115: u64 = 4_588_876_800 * SECOND;
/// 2116-02-20 23:53:00 UTC: 38 s before the last frame ends.
const WALL_BEYOND: u64 = 4_611_685_980 * SECOND;

/// Returns whether multicasts of one host may reach another, with this number of cells.
pub fn reaches(cells: usize, from: usize, to: usize) -> bool {
    cells == 0 || from == 0 || to == 0 || from % cells == to % cells
}

impl Scenario {
    /// Returns the scenario of a seed.
    pub fn draw(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0x5e9_ca57);
        let size = ScenarioSize::draw(seed);
        let faults = size.with_faults(seed, Faults::draw(&mut rng));
        Scenario::draw_sized(seed, faults, Mutants::default(), size)
    }

    /// Returns the scenario of a seed with given faults and a mutant, of the ordinary size.
    pub fn draw_with(seed: u64, faults: Faults, mutants: Mutants) -> Scenario {
        Scenario::draw_sized(seed, faults, mutants, ScenarioSize::Ordinary)
    }

    fn draw_sized(seed: u64, faults: Faults, mutants: Mutants, size: ScenarioSize) -> Scenario {
        let mut rng = Rng::new(seed);
        let hosts_count = [2, 3, 3, 4, 4, 5][rng.below(6) as usize];
        let hosts_count = size.hosts(&mut rng, hosts_count);
        let settings = draw_settings(&mut rng, faults, mutants);
        let hosts = (0..hosts_count).map(|n| draw_host(&mut rng, faults, &settings, n)).collect::<Vec<_>>();
        let patterns = draw_patterns(&mut rng, hosts_count);
        let traffic = draw_traffic(&mut rng, faults, &settings);
        let weather = draw_weather(&mut rng, faults, &settings);
        let heal_at = rng.between(45, 62) * SECOND;
        let heal_at = size.heal_at(&mut rng, heal_at);
        let quiet_at = heal_at + QUIET_AFTER;
        let heartbeat = u64::try_from(settings.heartbeat.as_nanos()).unwrap_or(SECOND);
        let end = quiet_at + heartbeat * 9 / 2 + 3 * SECOND + nanos(settings.reliability);
        let mut scenario = Scenario {
            seed,
            faults,
            hosts,
            cells: 0,
            weather,
            traffic,
            patterns,
            events: Vec::new(),
            heal_at,
            end,
            clock_steps: true,
        };
        for host in 0..hosts_count {
            scenario.plan_host(&mut rng, host, quiet_at, size);
        }
        scenario.plan_joins();
        scenario.draw_paces();
        scenario.draw_suppression();
        scenario.plan_queues(size);
        scenario.plan_revocations();
        if faults.has(FaultKind::Live) {
            scenario.draw_modes();
        }
        scenario.events.sort_by_key(|event| event.at);
        scenario
    }

    /// Schedules a client that joins late at half of the hosts, at any time.
    fn plan_joins(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x10_14e5);
        for host in 0..self.hosts.len() {
            let at = rng.below(self.heal_at);
            let pattern = rng.below(self.patterns.len() as u64) as usize;
            let newest = if rng.chance(0.5) { None } else { Some(rng.between(1, 20) as u32) };
            if rng.chance(0.5) {
                self.plan(at, host, Action::Join { pattern, newest, mode: DeliveryMode::Repair });
            }
        }
    }

    /// Draws the send rate and the receive window of each host; the window before the first report is the same for
    /// all.
    fn draw_paces(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x9a_ce);
        let first_bytes = draw_pace(&mut rng).first_bytes;
        for host in &mut self.hosts {
            host.settings.pace = PaceSettings { first_bytes, ..draw_pace(&mut rng) };
        }
    }

    /// Draws the peers that suppress messages without a subscriber.
    fn draw_suppression(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x5_9a4e);
        for host in &mut self.hosts {
            host.settings.suppresses = self.faults.has(FaultKind::Suppression) && rng.chance(0.8);
        }
    }

    /// Schedules joins and departures of members of two queue groups.
    fn plan_queues(&mut self, size: ScenarioSize) {
        let mut rng = Rng::new(self.seed ^ 0x90_e0e);
        // A host whose other subscriptions are all live repairs nothing for its queue members.
        if !self.faults.has(FaultKind::Queues) || self.faults.has(FaultKind::Live) {
            return;
        }
        for host in 0..self.hosts.len() {
            let mut at = rng.below(10 * SECOND);
            while at < self.heal_at {
                let member = rng.below(3) as u32;
                let pattern = rng.below(self.patterns.len() as u64) as usize;
                let action = match rng.chance(0.3) {
                    true => Action::LeaveQueue(member),
                    false => Action::JoinQueue { member, pattern, queue: rng.below(2) as u32 },
                };
                self.plan(at, host, action);
                at += rng.below(20 * SECOND) * size.interval_factor();
            }
        }
    }

    /// Draws delivery modes: at each host none of the subscriptions are live, about half of them, or all.
    fn draw_modes(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x11_fe);
        let shares: Vec<f64> = self.hosts.iter().map(|_| [0.0, 0.5, 0.5, 1.0][rng.below(4) as usize]).collect();
        let mut draw = |host: usize| if rng.chance(shares[host]) { DeliveryMode::Live } else { DeliveryMode::Repair };
        for (number, host) in self.hosts.iter_mut().enumerate() {
            host.inbox = draw(number);
        }
        for ScenarioEvent { host, action, .. } in &mut self.events {
            if let Action::Subscribe { mode, .. } | Action::Join { mode, .. } = action {
                *mode = draw(*host);
            }
        }
    }

    /// Returns the time at which traffic ends.
    pub fn quiet_at(&self) -> u64 {
        self.heal_at + QUIET_AFTER
    }

    /// Returns whether multicasts of one host may reach another.
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        reaches(self.cells, from, to)
    }

    /// Returns the same scenario without clock steps.
    pub fn without_clock_steps(&self) -> Scenario {
        Scenario { clock_steps: false, ..self.clone() }
    }

    fn plan(&mut self, at: u64, host: usize, action: Action) {
        self.events.push(ScenarioEvent { at, host, action });
    }

    fn plan_host(&mut self, rng: &mut Rng, host: usize, quiet_at: u64, size: ScenarioSize) {
        let late = self.faults.has(FaultKind::LateJoin) && host != 0 && rng.chance(0.5);
        let (earliest, latest) = size.late_start();
        let start =
            if late { rng.between(earliest, latest) * SECOND + rng.below(SECOND) } else { rng.below(300 * MILLIS) };
        self.plan(start, host, Action::Start);
        self.plan_subscriptions(rng, host, (start, quiet_at), size);
        self.plan_life(rng, host, start, size);
        self.plan_links(rng, host, size);
        self.plan_clock(rng, host, size);
        let mut at = start + rng.below(2 * SECOND);
        while at < quiet_at {
            self.plan(at, host, Action::Burst(1 + rng.below(32) as u32));
            let interval = if rng.chance(0.2) { rng.between(2, 6) * SECOND } else { rng.below(900 * MILLIS) };
            at += interval * size.interval_factor();
        }
    }

    fn plan_subscriptions(&mut self, rng: &mut Rng, host: usize, (start, quiet_at): (u64, u64), size: ScenarioSize) {
        for client in 0..1 + rng.below(3) as u32 {
            for sub in 0..1 + rng.below(2) as u32 {
                let pattern = rng.below(self.patterns.len() as u64) as usize;
                let at = start + if rng.chance(0.8) { 0 } else { rng.below(5 * SECOND) };
                self.plan(at, host, Action::Subscribe { client, sub, pattern, mode: DeliveryMode::Repair });
            }
        }
        if !self.faults.has(FaultKind::Resubscribe) {
            return;
        }
        let mut at = start + rng.below(5 * SECOND);
        while at < quiet_at {
            let (client, sub) = (rng.below(3) as u32, rng.below(3) as u32);
            let action = match rng.below(8) {
                0 => Action::Detach(client),
                1..=3 => Action::Unsubscribe { client, sub },
                _ => {
                    let pattern = rng.below(self.patterns.len() as u64) as usize;
                    Action::Subscribe { client, sub, pattern, mode: DeliveryMode::Repair }
                }
            };
            self.plan(at, host, action);
            at += rng.below(6 * SECOND) * size.interval_factor();
        }
    }

    fn plan_life(&mut self, rng: &mut Rng, host: usize, start: u64, size: ScenarioSize) {
        let factor = size.interval_factor();
        let mut at = start + rng.between(3, 25) * SECOND + rng.below(SECOND);
        let kinds = [FaultKind::CrashSoon, FaultKind::CrashLate, FaultKind::Stop];
        let on: Vec<FaultKind> = kinds.into_iter().filter(|kind| self.faults.has(*kind)).collect();
        while !on.is_empty() && rng.chance(size.next_life()) && at < self.heal_at - 2 * SECOND {
            let kind = on[rng.below(on.len() as u64) as usize];
            let downtime = match kind {
                FaultKind::CrashSoon => rng.between(10, 6000) * MILLIS,
                FaultKind::CrashLate => rng.between(9, 20) * SECOND,
                _ => rng.between(1, 8000) * MILLIS,
            };
            let action = if kind == FaultKind::Stop { Action::Stop } else { Action::Crash };
            self.plan(at, host, action);
            at += downtime;
            if kind == FaultKind::Stop && rng.chance(0.3) {
                return;
            }
            let other_port = self.faults.has(FaultKind::OtherPort) && rng.chance(0.5);
            self.plan(at.min(self.heal_at), host, Action::Restart { other_port });
            at += rng.between(1, 20) * SECOND * factor;
        }
        if self.faults.has(FaultKind::Pause) {
            let mut at = start + rng.below(20 * SECOND);
            while at < self.heal_at - 6 * SECOND {
                let nanos = if rng.chance(0.5) { rng.below(100 * MILLIS) } else { rng.below(5 * SECOND) };
                self.plan(at, host, Action::Pause(nanos));
                at += nanos + rng.below(25 * SECOND) * factor;
            }
        }
        if self.faults.has(FaultKind::Overrun) {
            let mut at = start + rng.below(SECOND);
            while at < self.heal_at - SECOND {
                self.plan(at, host, Action::Pause(rng.below(30 * MILLIS)));
                at += rng.below(2 * SECOND) * factor;
            }
        }
    }

    fn plan_links(&mut self, rng: &mut Rng, host: usize, size: ScenarioSize) {
        let all_hosts = (1u64 << self.hosts.len()) - 1;
        for kind in
            [FaultKind::Flap, FaultKind::Partition, FaultKind::OneWay, FaultKind::MulticastDead, FaultKind::Snooping]
        {
            if kind == FaultKind::Snooping && !self.faults.has(kind) {
                continue;
            }
            let mut at = rng.below(15 * SECOND);
            while self.faults.has(kind) && at < self.heal_at {
                let long = rng.between(200, 10_000) * MILLIS;
                let others = rng.below(all_hosts + 1) & !(1 << host);
                let (action, nanos) = match kind {
                    FaultKind::Flap => {
                        let nanos = rng.between(50, 3000) * MILLIS;
                        (Action::LinkDown(nanos), nanos)
                    }
                    FaultKind::MulticastDead => (Action::MulticastDead(long), long),
                    FaultKind::Snooping => (Action::Snoop(rng.below(self.hosts.len() as u64) as usize), long),
                    _ => (Action::Partition { others, one_way: kind == FaultKind::OneWay, nanos: long }, long),
                };
                self.plan(at, host, action);
                at += nanos + rng.below(30 * SECOND) * size.interval_factor();
            }
        }
    }

    fn plan_clock(&mut self, rng: &mut Rng, host: usize, size: ScenarioSize) {
        let minute = 60 * SECOND as i64;
        for kind in [
            FaultKind::ClockSeconds,
            FaultKind::ClockHours,
            FaultKind::Clock1970,
            FaultKind::Clock2115,
            FaultKind::ClockBeyond,
        ] {
            let mut at = rng.below(25 * SECOND);
            while self.faults.has(kind) && at < self.heal_at {
                let sign = if rng.chance(0.5) { 1 } else { -1 };
                let within = rng.below(SECOND);
                let action = match kind {
                    FaultKind::ClockSeconds => Action::ClockBy(sign * rng.below(minute as u64) as i64),
                    FaultKind::ClockHours => Action::ClockBy(sign * rng.below(1440 * minute as u64) as i64),
                    FaultKind::Clock1970 => Action::ClockTo(within),
                    FaultKind::Clock2115 => Action::ClockTo(WALL_2115 + within),
                    _ => Action::ClockTo(WALL_BEYOND + within),
                };
                self.plan(at, host, action);
                at += rng.between(5, 40) * SECOND * size.interval_factor();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_draws_the_same_scenario() {
        assert_eq!(Scenario::draw(42), Scenario::draw(42));
        assert_ne!(Scenario::draw(42).events, Scenario::draw(43).events);
    }

    #[test]
    fn every_fault_is_drawn_in_many_scenarios() {
        let drawn: Vec<Faults> = (0..1000).map(|seed| Scenario::draw(seed).faults).collect();
        for kind in FaultKind::drawn() {
            let with = drawn.iter().filter(|faults| faults.has(kind)).count();
            assert!((100..400).contains(&with), "{kind:?} {with}");
        }
        assert!(50 < drawn.iter().filter(|faults| **faults == Faults::default()).count());
    }

    #[test]
    fn some_scenarios_are_long_and_some_busy() {
        let drawn: Vec<Scenario> = (0..2000).map(Scenario::draw).collect();
        let long = drawn.iter().filter(|scenario| 3000 * SECOND < scenario.end).count();
        let busy = drawn.iter().filter(|scenario| 20 <= scenario.hosts.len()).count();
        assert!((80..200).contains(&long) && (15..60).contains(&busy), "{long} {busy}");
        assert!(drawn.iter().all(|scenario| scenario.hosts.len() <= 50));
    }

    #[test]
    fn wall_times_lie_near_the_frame_limit() {
        use crate::seqno::{FRAME_MAX, Frame};
        use crate::time::WallTime;
        assert!(Frame::at(WallTime::from_nanos(WALL_2115)).number() < FRAME_MAX - 1_000_000);
        assert!(Frame::at(WallTime::from_nanos(WALL_BEYOND)).number() > FRAME_MAX - 6);
    }
}
