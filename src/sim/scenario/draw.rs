//! Draws of the values for a whole scenario: settings, hosts, patterns, traffic, weather.

use super::{FaultKind, Faults, HostSpec, MICROS, MILLIS, NetworkConditions, SECOND, Traffic, WALL_START};
use crate::message::DeliveryMode;
use crate::proto::history::HistorySettings;
use crate::proto::mutant::Mutants;
use crate::proto::pace::{FIRST_WINDOW_BYTES, Pace, PaceSettings};
use crate::proto::resend::RingSettings;
use crate::proto::{Recovery, Settings, WindowSettings};
use crate::rng::Rng;
use crate::time::nanos;
use crate::wire::CheckValue;
use std::time::Duration;

/// Size in bytes of a receive window that no scenario fills.
pub(super) const ROOM_BYTES: u64 = 4 << 20;

/// Draws the send rate and the receive window of a host.
pub(super) fn draw_pace(rng: &mut Rng) -> PaceSettings {
    let pace = match rng.below(6) {
        0 => Pace::Off,
        1 => Pace::Rate(rng.between(200_000, 5_000_000)),
        _ => Pace::Auto,
    };
    let room_bytes = if rng.chance(0.4) { ROOM_BYTES } else { rng.between(500, 60_000) };
    let first_bytes = if rng.chance(0.4) { FIRST_WINDOW_BYTES } else { rng.between(500, 30_000) };
    PaceSettings { pace, floor: rng.between(0, 300_000), room_bytes, first_bytes }
}

/// Draws the size of datagrams: of the smallest that a peer may be given, of Ethernet, of jumbo frames and of loopback.
fn draw_datagram_bytes(rng: &mut Rng) -> usize {
    match rng.below(25) {
        0..5 => 576,
        5..20 => 1400,
        20..24 => 8900,
        _ => 32_600,
    }
}

pub(super) fn draw_settings(rng: &mut Rng, faults: Faults, mutants: Mutants) -> Settings {
    let window = |rng: &mut Rng, tiny: bool| {
        let time = Duration::from_secs(10);
        let roomy = WindowSettings { bytes: 4 << 20, time, bytes_max: 64 << 20 };
        if !tiny {
            return roomy;
        }
        let bytes = rng.between(64, 1500) as usize;
        WindowSettings { bytes, time, bytes_max: if rng.chance(0.5) { bytes * 2 } else { 64 << 20 } }
    };
    let tiny_limits = faults.has(FaultKind::TinyLimits);
    let mut limit = |roomy: usize, low: u64, high: u64| {
        if tiny_limits && rng.chance(0.6) { rng.between(low, high) as usize } else { roomy }
    };
    let (hold_bytes_max, reassembly_bytes_max) = (limit(64 << 20, 100, 3000), limit(64 << 20, 2000, 30_000));
    let (reassembly_sets_max, gaps_max) = (limit(64, 1, 3), limit(8192, 1, 6));
    let grace = [5, 5, 5, 5, 2, 20, 50][rng.below(7) as usize];
    Settings {
        name: "sim".parse().expect("a valid name"),
        group: 7500,
        datagram_bytes_max: draw_datagram_bytes(rng),
        check_value: CheckValue::Crc32c,
        message_bytes_max: 1 << 20,
        heartbeat: Duration::from_millis([250, 500, 1000, 1000][rng.below(4) as usize]),
        reliability: Duration::from_millis(if faults.has(FaultKind::NoRepair) {
            grace
        } else {
            rng.between(300, 2000)
        }),
        recovery: draw_recovery(rng, faults, Duration::from_millis(grace)),
        forget: Duration::from_secs(if faults.has(FaultKind::ShortForget) { rng.between(4, 8) } else { 60 }),
        pub_window: window(rng, faults.has(FaultKind::TinyPubWindow)),
        sub_window: window(rng, faults.has(FaultKind::TinySubWindow)),
        frame_messages_max: match (faults.has(FaultKind::TinyFrames), faults.has(FaultKind::ClockBeyond)) {
            (true, false) => rng.between(1, 40),
            (_, true) => rng.between(100, 400),
            _ => crate::seqno::COUNT_MAX,
        },
        hold_bytes_max,
        reassembly_bytes_max,
        reassembly_sets_max,
        gaps_max,
        peers_max: 1024,
        client_subscriptions_max: 100,
        subscriptions_max: 1000,
        interest_max: 10_000,
        suppresses: false,
        match_cache_max: [2, 1000][rng.below(2) as usize],
        advisory_interval: Duration::from_secs(1),
        advisory_subjects_max: [2, 100][rng.below(2) as usize],
        pace: PaceSettings::auto(ROOM_BYTES),
        mutants,
    }
}

fn draw_recovery(rng: &mut Rng, faults: Faults, grace: Duration) -> Recovery {
    let mut recovery = Recovery { grace, linger: Duration::from_millis(rng.between(100, 2000)), ..Recovery::modest() };
    (recovery.ring.bytes_max, recovery.ring.manifest_bytes_max) = (64 << 20, 64 << 20);
    if faults.has(FaultKind::TinyRing) {
        // A small datagram takes 200 to 400 bytes.
        let bytes_max = if rng.chance(0.2) { 0 } else { rng.between(1000, 12_000) as usize };
        let time = if rng.chance(0.2) { Duration::from_millis(rng.between(50, 3000)) } else { recovery.ring.time };
        recovery.ring = RingSettings { bytes_max, time, ..recovery.ring };
    }
    if faults.has(FaultKind::TinyManifests) {
        recovery.ring.manifest_bytes_max = if rng.chance(0.5) { 0 } else { rng.between(500, 6000) as usize };
    }
    if faults.has(FaultKind::TinyHistory) {
        let count_max = if rng.chance(0.2) { 0 } else { rng.between(2, 10) as u32 };
        recovery.history = HistorySettings { count_max, ..recovery.history };
    }
    if faults.has(FaultKind::SlowResends) {
        recovery.resend_rate_min = rng.between(500, 20_000);
    }
    recovery
}

pub(super) fn draw_host(rng: &mut Rng, faults: Faults, settings: &Settings, number: usize) -> HostSpec {
    let skew_ppm = if faults.has(FaultKind::Skew) { rng.below(1001) as i64 - 500 } else { 0 };
    let name = format!("h{number}.sim").parse().expect("a valid name");
    HostSpec {
        skew_ppm,
        boot: rng.between(1, 100_000) * SECOND + rng.below(SECOND),
        wall: WALL_START + rng.below(4 * SECOND),
        buffer_datagrams: if faults.has(FaultKind::Overrun) { rng.between(2, 24) as usize } else { 100_000 },
        buffer_bytes: u64::MAX,
        speed: 0,
        turn: [0, 0, 20 * MICROS, 200 * MICROS][rng.below(4) as usize],
        drains_each: rng.chance(0.5),
        reports_arrival: faults.has(FaultKind::Pause) || faults.has(FaultKind::Overrun) || rng.chance(0.5),
        loops_back: rng.chance(0.3),
        inbox: DeliveryMode::Repair,
        settings: Settings { name, ..settings.clone() },
    }
}

/// Draws the patterns of subscriptions. Subjects are `p<publisher>.<n>` and `all.<n>`.
pub(super) fn draw_patterns(rng: &mut Rng, hosts: usize) -> Vec<String> {
    let mut patterns = vec![">".to_owned(), "all.>".to_owned(), "*.1".to_owned()];
    for host in 0..hosts {
        patterns.push(format!("p{host}.>"));
        patterns.push(format!("p{host}.{}", rng.below(4)));
    }
    patterns.extend((0..3).map(|n| format!("all.{n}")));
    patterns
}

pub(super) fn draw_traffic(rng: &mut Rng, faults: Faults, settings: &Settings) -> Traffic {
    let tiny = faults.has(FaultKind::TinyPubWindow) || faults.has(FaultKind::TinySubWindow);
    let datagram = settings.datagram_bytes_max as u64;
    Traffic {
        subjects: if tiny { rng.between(20, 120) } else { rng.between(2, 24) },
        batch_max: [1, 1, 3, 12][rng.below(4) as usize],
        spacing_max: [0, 200 * MICROS, 2 * MILLIS, 20 * MILLIS][rng.below(4) as usize],
        payload_max: rng.between(0, 200),
        large: if faults.has(FaultKind::Large) { (0.08, datagram * 6) } else { (0.0, 0) },
        directed: if faults.has(FaultKind::Directed) { 0.2 } else { 0.0 },
        meta: 0.1,
    }
}

pub(super) fn draw_weather(rng: &mut Rng, faults: Faults, settings: &Settings) -> NetworkConditions {
    let grace = nanos(settings.recovery.grace);
    let mut weather = NetworkConditions { latency: rng.between(20, 200) * MICROS, ..NetworkConditions::default() };
    weather.jitter = rng.below(weather.latency);
    if faults.has(FaultKind::Delay) {
        weather.latency = rng.between(1, 20) * MILLIS;
    }
    if faults.has(FaultKind::Loss) {
        weather.loss = rng.between(1, 30) as f64 / 100.0;
    }
    if faults.has(FaultKind::Burst) {
        weather.burst_begin = rng.between(1, 20) as f64 / 1000.0;
        weather.burst_end = rng.between(5, 50) as f64 / 100.0;
        weather.burst_loss = rng.between(50, 100) as f64 / 100.0;
    }
    if faults.has(FaultKind::Duplicate) {
        weather.duplicate = rng.between(1, 20) as f64 / 100.0;
    }
    if faults.has(FaultKind::ReorderWithin) || faults.has(FaultKind::ReorderBeyond) {
        weather.reorder = rng.between(1, 30) as f64 / 100.0;
        // The margin of R4 covers a latency of 100 ms.
        let most = if faults.has(FaultKind::ReorderBeyond) { (grace * 10).min(70 * MILLIS) } else { grace * 9 / 10 };
        weather.reorder_max = most;
    }
    if faults.has(FaultKind::Corrupt) {
        weather.corrupt = rng.between(1, 10) as f64 / 100.0;
    }
    if faults.has(FaultKind::Replay) {
        weather.replay = rng.between(1, 5) as f64 / 100.0;
    }
    if faults.has(FaultKind::Garbage) {
        weather.garbage = rng.between(1, 5) as f64 / 100.0;
    }
    weather
}
