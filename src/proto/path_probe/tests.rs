//! Tests of the search on paths that lose heartbeats for one reason or another.

use super::*;

const FULL: usize = 1472;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn receiver(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

/// Makes the path to receiver 2 suspect.
fn suspect(millis: u64) -> PathProbes {
    let mut probes = PathProbes::default();
    for _ in 0..SUSPICION_REPEATS {
        assert_eq!(probes.deadline(), None);
        probes.on_repeated_resend(at(millis), receiver(2), FULL);
    }
    probes
}

/// Searches until the end. `is_echoed` gets the time in milliseconds and the size of each heartbeat.
fn search(probes: &mut PathProbes, rng: &mut Rng, mut is_echoed: impl FnMut(u64, usize) -> bool) -> Option<PathSizes> {
    for millis in 0..10_000 {
        while let Some(PathProbe { to, token, bytes }) = probes.poll_probe(at(millis), rng) {
            if is_echoed(millis, bytes) {
                probes.on_echo(at(millis), to, token);
            }
        }
        probes.assert_invariants();
        if let Some((epoch, sizes)) = probes.poll_result(at(millis)) {
            assert_eq!(epoch, receiver(2));
            return Some(sizes);
        }
        probes.deadline()?;
    }
    panic!("the search has not ended");
}

#[test]
fn largest_arriving_size_is_found() {
    for (path, arriving, failing) in [(1471, 1400, 1472), (1422, 1400, 1472), (1399, 1200, 1400), (576, 576, 1000)] {
        let found = search(&mut suspect(0), &mut Rng::new(1), |_, bytes| bytes <= path);
        assert_eq!(found, Some(PathSizes { arriving, failing }), "{path}");
    }
}

#[test]
fn largest_arriving_size_is_found_despite_loss() {
    let found = |seed: u64| {
        let (mut rng, mut loss) = (Rng::new(seed), Rng::new(!seed));
        let sizes = search(&mut suspect(0), &mut rng, |_, bytes| bytes <= 1400 && !loss.chance(0.05));
        sizes.is_some_and(|sizes| sizes.arriving == 1400)
    };
    let count = (0..200).filter(|seed| found(*seed)).count();
    assert!(190 < count, "{count} of 200 searches");
}

#[test]
fn random_loss_limits_no_size() {
    for percent in [1_u32, 5, 20, 40, 60, 80, 95] {
        for seed in 0..100 {
            let (mut rng, mut loss) = (Rng::new(seed), Rng::new(!seed));
            let is_echoed = |_: u64, _: usize| !loss.chance(f64::from(percent) / 100.0);
            assert_eq!(search(&mut suspect(0), &mut rng, is_echoed), None, "{percent} %, seed {seed}");
        }
    }
}

#[test]
fn burst_loss_limits_no_size() {
    for seed in 0..300 {
        let (mut rng, mut loss) = (Rng::new(seed), Rng::new(!seed));
        let mean = loss.between(1, 200);
        let (mut is_lost, mut until) = (loss.chance(0.5), 0);
        let is_echoed = |millis: u64, _: usize| {
            while until <= millis {
                is_lost = !is_lost;
                until += 1 + loss.below(mean * 2);
            }
            !is_lost
        };
        assert_eq!(search(&mut suspect(0), &mut rng, is_echoed), None, "seed {seed}");
    }
}

#[test]
fn dead_path_limits_no_size() {
    assert_eq!(search(&mut suspect(0), &mut Rng::new(1), |_, _| false), None);
    for end in 0..600 {
        let found = search(&mut suspect(0), &mut Rng::new(1), |millis, _| end < millis);
        assert_eq!(found, None, "the path comes back after {end} ms");
    }
}

#[test]
fn slow_receiver_limits_no_size() {
    // Other traffic fills the receive buffer, which the receiver empties at intervals. What has no room is dropped.
    for seed in 0..200 {
        let (mut rng, mut traffic) = (Rng::new(seed), Rng::new(!seed));
        let (room, pause) = (traffic.between(2000, 100_000), traffic.between(2, 500));
        let (mut used, mut filled_at) = (0, 0);
        let is_echoed = |millis: u64, bytes: usize| {
            while filled_at < millis {
                filled_at += 1;
                for _ in 0..traffic.below(40) {
                    used += if used + FULL as u64 <= room { FULL as u64 } else { 0 };
                }
                used = if filled_at.is_multiple_of(pause) { 0 } else { used };
            }
            let has_room = used + bytes as u64 <= room;
            used += if has_room { bytes as u64 } else { 0 };
            has_room
        };
        assert_eq!(search(&mut suspect(0), &mut rng, is_echoed), None, "seed {seed}");
    }
}

#[test]
fn busy_receiver_reveals_its_limit() {
    // The receiver reads at intervals and echoes one heartbeat then.
    for pause in [1, 10, 30, 45] {
        let (mut rng, mut probes, mut waiting) = (Rng::new(1), suspect(0), Vec::new());
        let found = (0..10_000).find_map(|millis| {
            while let Some(probe) = probes.poll_probe(at(millis), &mut rng) {
                waiting.extend((probe.bytes <= 1400).then_some(probe.token));
            }
            if millis % pause == 0
                && let Some(token) = waiting.drain(..).next()
            {
                probes.on_echo(at(millis), receiver(2), token);
            }
            probes.poll_result(at(millis))
        });
        assert_eq!(found, Some((receiver(2), PathSizes { arriving: 1400, failing: FULL })), "every {pause} ms");
    }
}

#[test]
fn few_repeats_start_no_search() {
    let mut probes = PathProbes::default();
    for number in 0..100 {
        probes.on_repeated_resend(at(number * 1000), receiver(2), FULL);
        (0..20).for_each(|_| probes.on_repeated_resend(at(number * 1000), receiver(3), 576));
    }
    assert_eq!(probes.deadline(), None);
}

#[test]
fn arrival_of_the_full_size_ends_the_search() {
    let (mut rng, mut sent) = (Rng::new(1), 0);
    let mut probes = suspect(0);
    let found = search(&mut probes, &mut rng, |_, bytes| {
        sent += 1;
        bytes == FULL
    });
    assert_eq!((found, sent), (None, 1));
    let repeat = |probes: &mut PathProbes, millis| {
        (0..100).for_each(|_| probes.on_repeated_resend(at(millis), receiver(2), FULL));
        probes.deadline().is_some()
    };
    assert!(!repeat(&mut probes, 9999) && repeat(&mut probes, 10_000), "it rests for ten seconds");
}

#[test]
fn few_searches_run_at_a_time() {
    let mut probes = PathProbes::default();
    for number in 1..=100 {
        (0..20).for_each(|_| probes.on_repeated_resend(at(0), receiver(number), FULL));
        probes.assert_invariants();
    }
    let (mut rng, mut bytes, mut datagrams) = (Rng::new(1), 0, 0);
    for millis in 0..10_000 {
        while let Some(probe) = probes.poll_probe(at(millis), &mut rng) {
            (bytes, datagrams) = (bytes + probe.bytes, datagrams + 1);
        }
        assert_eq!(probes.poll_result(at(millis)), None);
    }
    // Each is made three times, since no heartbeat is echoed.
    assert_eq!((datagrams, bytes), (4 * 3 * 40, 4 * 3 * 8 * (576 + 1000 + 1200 + 1400 + FULL)));
    // Their ends free the slots for others.
    (0..8).for_each(|_| probes.on_repeated_resend(at(10_000), receiver(50), FULL));
    assert!(probes.deadline().is_some());
    probes.remove(receiver(50));
    assert_eq!(probes.deadline(), None);
}
