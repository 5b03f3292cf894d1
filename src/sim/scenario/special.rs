//! Scenarios for one property each, whose tests assert figures.

use super::draw::{ROOM_BYTES, draw_host};
use super::{Action, FaultKind, Faults, MICROS, MILLIS, NetworkConditions, SECOND, Scenario, Traffic};
use crate::message::DeliveryMode;
use crate::proto::mutant::Mutants;
use crate::proto::pace::PaceSettings;
use crate::proto::resend::RingSettings;
use crate::proto::{Recovery, Settings};
use crate::rng::Rng;
use std::time::Duration;

/// A subscription to all subjects.
const SUBSCRIBE_ALL: Action = Action::Subscribe { client: 0, sub: 0, pattern: 0, mode: DeliveryMode::Repair };

/// Number of cells of the implosion: each receiver hears the publisher and the receivers of its own cell.
const CELLS: usize = 50;

/// Speed of a receiver of a flood.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Bytes that it reads in a second; 0 for no limit.
    pub bytes_per_second: u64,
    /// Bytes that its receive buffer holds.
    pub buffer_bytes: u64,
}

/// Send rate in bytes a second below which publishers of floods do not wait for receivers.
pub const FLOOR: u64 = 10_000_000;

impl Scenario {
    /// Draws bursts, each with a pause of 1 to 2 s after it, between eight peers under 5 % loss and nothing else. A
    /// loss at the end of a burst is found by the heartbeats alone.
    pub fn of_tails(seed: u64) -> Scenario {
        let mut scenario = Scenario::draw_with(seed, Faults::default(), Mutants::default());
        let mut rng = Rng::new(seed);
        let settings = Settings {
            heartbeat: Duration::from_secs(1),
            reliability: Duration::from_millis(5),
            recovery: Recovery::modest(),
            pace: PaceSettings::auto(ROOM_BYTES),
            ..scenario.hosts[0].settings.clone()
        };
        scenario.hosts = (0..8).map(|n| draw_host(&mut rng, Faults::default(), &settings, n)).collect();
        scenario.faults = Faults::of(&[FaultKind::Loss]);
        scenario.patterns = vec![">".to_owned()];
        scenario.weather = NetworkConditions {
            loss: 0.05,
            latency: 100 * MICROS,
            jitter: 50 * MICROS,
            ..NetworkConditions::default()
        };
        scenario.traffic = Traffic { subjects: 4, batch_max: 1, spacing_max: 200 * MICROS, ..scenario.traffic };
        (scenario.heal_at, scenario.end) = (200 * SECOND, 210 * SECOND);
        scenario.events.clear();
        for host in 0..8 {
            scenario.plan(0, host, Action::Start);
            scenario.plan(0, host, SUBSCRIBE_ALL);
            let mut at = 5 * SECOND + rng.below(SECOND);
            while at < scenario.heal_at {
                scenario.plan(at, host, Action::Burst(1 + rng.below(4) as u32));
                at += SECOND + rng.below(SECOND);
            }
        }
        scenario.events.sort_by_key(|event| event.at);
        scenario
    }

    /// Draws one publisher and `receivers` of all its messages. The network loses some datagrams at the source, which
    /// are missing at all receivers at once, and nothing else. Each receiver knows only one in 50 of the others. So it
    /// waits for a shorter time than one that knows all, and more receivers send a request.
    pub fn of_implosion(seed: u64, receivers: usize) -> Scenario {
        let settings = |settings: &Settings| Settings { reliability: Duration::from_secs(2), ..settings.clone() };
        let mut scenario = Scenario::of_one_publisher(seed, receivers, settings);
        scenario.cells = CELLS;
        scenario.weather = NetworkConditions { source: 0.2, ..scenario.weather };
        scenario.traffic = Traffic { spacing_max: 30 * MILLIS, ..scenario.traffic };
        scenario.plan(3 * SECOND, 0, Action::Burst(100));
        (scenario.heal_at, scenario.end) = (5 * SECOND, 10 * SECOND + 600 * MILLIS);
        scenario.events.sort_by_key(|event| event.at);
        scenario
    }

    /// Draws one publisher that keeps sending, and `receivers` that lose different datagrams. The receivers are cut off
    /// for up to 2 s, and then request their missing datagrams at once. Retransmissions may take a quarter of the
    /// publisher's rate, so repair takes time.
    pub fn of_storm(seed: u64, receivers: usize) -> Scenario {
        let settings = |settings: &Settings| {
            // The ring holds all datagrams, so that the publisher does not wait for receivers that request.
            let ring = RingSettings { bytes_max: 64 << 20, ..settings.recovery.ring };
            let recovery = Recovery { resend_rate_min: 1, ring, ..settings.recovery.clone() };
            Settings { reliability: Duration::from_secs(40), recovery, ..settings.clone() }
        };
        let mut scenario = Scenario::of_one_publisher(seed, receivers, settings);
        scenario.weather = NetworkConditions { loss: 0.03, ..scenario.weather };
        scenario.traffic = Traffic { spacing_max: 8 * MILLIS, payload_max: 1200, ..scenario.traffic };
        scenario.plan(3 * SECOND, 0, Action::Burst(7500));
        let mut rng = Rng::new(seed);
        for host in 1..=receivers {
            scenario.plan(5 * SECOND, host, Action::LinkDown(rng.between(500, 2000) * MILLIS));
        }
        (scenario.heal_at, scenario.end) = (8 * SECOND, 40 * SECOND);
        scenario.events.sort_by_key(|event| event.at);
        scenario
    }

    /// Draws a publisher that floods `receivers`, which start two seconds earlier. It sends `datagrams` of 8 kB as
    /// soon as it has started.
    pub fn of_flood(seed: u64, receivers: &[Speed], datagrams: u32) -> Scenario {
        Scenario::of_floods(seed, receivers, &[(0, 2 * SECOND, datagrams)], Mutants::default())
    }

    /// Draws receivers and host 0, which publishes. `floods` has the host, the time and the number of datagrams of each
    /// flood. All peers have the same settings but for their speeds.
    pub fn of_floods(seed: u64, receivers: &[Speed], floods: &[(usize, u64, u32)], mutants: Mutants) -> Scenario {
        let settings = |settings: &Settings| {
            let ring = RingSettings { bytes_max: 64 << 20, ..settings.recovery.ring };
            let recovery = Recovery { ring, ..settings.recovery.clone() };
            let reliability = Duration::from_secs(2);
            Settings { reliability, recovery, datagram_bytes_max: 8900, mutants, ..settings.clone() }
        };
        let mut scenario = Scenario::of_one_publisher(seed, receivers.len(), settings);
        for (host, speed) in scenario.hosts[1..].iter_mut().zip(receivers) {
            (host.speed, host.buffer_bytes) = (speed.bytes_per_second, speed.buffer_bytes);
            host.turn = 20 * MICROS;
            host.reports_arrival = true;
        }
        for host in &mut scenario.hosts {
            let room_bytes = host.buffer_bytes.min(ROOM_BYTES) / 8 * 7;
            host.settings.pace = PaceSettings { floor: FLOOR, ..PaceSettings::auto(room_bytes) };
        }
        // A reordered datagram would make the amount read look larger.
        scenario.weather = NetworkConditions { jitter: 0, ..scenario.weather };
        scenario.traffic = Traffic { payload_max: 8000, ..scenario.traffic };
        for (host, at, datagrams) in floods {
            scenario.plan(*at, *host, Action::Flood(*datagrams));
        }
        (scenario.heal_at, scenario.end) = (20 * SECOND, 30 * SECOND);
        scenario.events.sort_by_key(|event| event.at);
        scenario
    }

    /// Sets the probability of loss of each copy, and the bytes that publishers retain for retransmission.
    pub fn with_loss(mut self, loss: f64, resend_bytes: usize) -> Scenario {
        self.weather.loss = loss;
        self.hosts.iter_mut().for_each(|host| host.settings.recovery.ring.bytes_max = resend_bytes);
        self
    }

    /// Schedules a pause of `nanos` nanoseconds at a host.
    pub fn with_pause(mut self, host: usize, at: u64, nanos: u64) -> Scenario {
        self.faults = self.faults.with(FaultKind::Pause);
        self.plan(at, host, Action::Pause(nanos));
        self.events.sort_by_key(|event| event.at);
        self
    }

    /// Draws receivers on a fast network that start two seconds before their only publisher, host 0.
    fn of_one_publisher(seed: u64, receivers: usize, settings: impl Fn(&Settings) -> Settings) -> Scenario {
        let mut scenario = Scenario::draw_with(seed, Faults::default(), Mutants::default());
        let mut rng = Rng::new(seed);
        let heartbeat = Duration::from_secs(1);
        let drawn = Settings {
            heartbeat,
            recovery: Recovery::modest(),
            pace: PaceSettings::auto(ROOM_BYTES),
            ..scenario.hosts[0].settings.clone()
        };
        let settings = settings(&Settings { datagram_bytes_max: 1400, ..drawn });
        scenario.hosts = (0..=receivers).map(|n| draw_host(&mut rng, Faults::default(), &settings, n)).collect();
        scenario.faults = Faults::of(&[FaultKind::Loss]);
        scenario.patterns = vec![">".to_owned()];
        scenario.weather =
            NetworkConditions { latency: 100 * MICROS, jitter: 50 * MICROS, ..NetworkConditions::default() };
        scenario.traffic = Traffic { subjects: 4, batch_max: 1, meta: 0.0, ..scenario.traffic };
        scenario.events.clear();
        scenario.plan(2 * SECOND, 0, Action::Start);
        for host in 1..=receivers {
            let at = rng.below(500 * MILLIS);
            scenario.plan(at, host, Action::Start);
            scenario.plan(at, host, SUBSCRIBE_ALL);
        }
        scenario
    }
}
