//! The simulator over a fixed range of seeds (docs/simulator.md). `SEQCAST_SEED=n` runs one seed with a trace.

mod mutants;
mod order;

use seqcast::proto::mutant::Mutants;
use seqcast::sim;
use seqcast::sim::report::RunOutcome;
use seqcast::sim::report::{LatencyHistogram, Totals};
use seqcast::sim::scenario::{FLOOR, FaultKind, MILLIS, SECOND, Scenario, Speed};
use std::io::Write;
use std::ops::Range;

/// Number of seeds of a release build, as in CI; other builds are slower and run a share. With those of a commit and the
/// keyed ones they are 1,800.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 1140 };
/// Runs of the tail scenario.
const TAIL_RUNS: u64 = if cfg!(debug_assertions) { 2 } else { 12 };
/// Lines of the trace that a replayed seed shows.
const TRACE_LINES: usize = 80;

/// Number of seeds whose peers are keyed in any case.
const KEYED_SEEDS: u64 = if cfg!(debug_assertions) { 10 } else { 60 };

/// Number of new seeds for each commit, beside the fixed ones.
const COMMIT_SEEDS: u64 = if cfg!(debug_assertions) { 15 } else { 600 };
/// First seed of the range for commits, far above the fixed ones; the range ends 2^40 seeds later.
const COMMIT_SEEDS_BASE: u64 = 1 << 40;

#[test]
fn every_loss_is_reported_exactly() {
    if let Ok(seed) = std::env::var("SEQCAST_SEED") {
        return replay(seed.parse().expect("SEQCAST_SEED is a number"));
    }
    let totals = sweep(0..SEEDS);
    if cfg!(debug_assertions) {
        println!("a debug build runs {SEEDS} seeds only; the figures are asserted in release builds");
    } else {
        check_figures(&totals);
    }
}

/// The same commit gives the same seeds, and each further commit gives new ones.
#[test]
fn new_seeds_of_each_commit_hold() {
    let commit = std::env::var("SEQCAST_COMMIT").unwrap_or_else(|_| head());
    let number = commit.get(..10).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let first = COMMIT_SEEDS_BASE + number.expect("a commit has at least ten hexadecimal digits");
    show(&format!("commit {commit}: seeds {first} to {}", first + COMMIT_SEEDS - 1));
    sweep(first..first + COMMIT_SEEDS);
}

/// The same oracle judges peers that seal their datagrams: nothing more is lost, and nothing is opened that no peer has
/// sealed.
#[test]
fn keyed_peers_report_every_loss_exactly() {
    let mut failed = Vec::new();
    for seed in 0..KEYED_SEEDS {
        let faults = Scenario::draw(seed).faults.with(FaultKind::Keyed);
        let scenario = Scenario::draw_with(seed, faults, Mutants::default());
        let findings = sim::run_scenario(&scenario).findings.violations;
        findings.iter().for_each(|violation| println!("seed {seed}: {violation}"));
        failed.extend((!findings.is_empty()).then_some(seed));
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Returns the hash of the commit that is checked out.
fn head() -> String {
    let git = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
    let hash = git.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let hash = hash.and_then(|hash| String::from_utf8(hash).ok());
    hash.expect("this test draws its seeds from the commit; outside a git checkout set SEQCAST_COMMIT to its hash")
        .trim()
        .into()
}

/// Scenarios that once failed, as they were drawn then, whatever the generator draws from their seeds now.
#[test]
fn scenarios_that_failed_before_hold() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder of kept scenarios can be read");
    let mut files: Vec<_> = files.map(|file| file.expect("an entry of the folder can be read").path()).collect();
    files.sort();
    assert!(5 <= files.len(), "{folder} has {} files", files.len());
    let mut failed = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a kept scenario can be read");
        let scenario = Scenario::from_text(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let findings = sim::run_scenario(&scenario).findings.violations;
        findings.iter().for_each(|violation| println!("{}: {violation}", file.display()));
        if !findings.is_empty() {
            let path = file.strip_prefix(env!("CARGO_MANIFEST_DIR")).expect("the folder is part of the tree");
            println!("replay: tools/soak --replay {}", path.display());
            failed.push(file);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn kept_scenarios_are_explained() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = std::fs::read_to_string(format!("{root}/docs/simulator.md")).expect("docs/simulator.md can be read");
    for file in std::fs::read_dir(format!("{root}/tests/corpus/scenarios")).expect("the folder can be read") {
        let path = file.expect("an entry of the folder can be read").path();
        let name = path.file_stem().expect("a file has a name").to_string_lossy();
        assert!(page.contains(&format!("`{name}`")), "docs/simulator.md does not say why {name} is kept");
    }
}

/// Runs these seeds and checks that none fails. Prints their sums and the command that replays each failure.
fn sweep(seeds: Range<u64>) -> Totals {
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    let count = seeds.end - seeds.start;
    let (totals, failures) = sim::sweep(seeds, threads);
    show(&totals.to_string());
    for failure in failures.iter().take(10) {
        for violation in &failure.violations {
            println!("seed {}: {violation}", failure.seed);
        }
        println!(
            "replay: SEQCAST_SEED={} cargo test --release --features sim --test main sim::every_loss -- --nocapture",
            failure.seed
        );
    }
    assert!(failures.is_empty(), "{} of {count} seeds failed", failures.len());
    totals
}

/// Prints figures in every run: output written to the handle itself is shown even when the test passes.
fn show(figures: &str) {
    writeln!(std::io::stderr(), "{figures}").expect("standard error can be written");
}

/// Checks that the seeds covered what CI promises.
fn check_figures(totals: &Totals) {
    let figures = &totals.figures;
    assert!(SEEDS <= figures.scenarios);
    assert!(40 * 3600 * SECOND <= figures.nanos, "{} s simulated", figures.nanos / SECOND);
    assert!(10_000_000 <= figures.datagrams_sent, "{} datagrams sent", figures.datagrams_sent);
    assert!(500_000 <= figures.copies_dropped, "{} copies dropped", figures.copies_dropped);
    for (kind, scenarios) in FaultKind::drawn().zip(&totals.faults) {
        assert!(figures.scenarios <= scenarios * 20, "{kind:?} is on in {scenarios} scenarios only");
    }
}

/// Runs one seed and shows the events before the first violation.
fn replay(seed: u64) {
    let outcome = sim::run(&Scenario::draw(seed), true);
    let from = outcome.trace.len().saturating_sub(TRACE_LINES);
    outcome.trace[from..].iter().for_each(|line| println!("{line}"));
    let again = sim::run_seed(seed);
    let found =
        if outcome.findings.violations.is_empty() { again.findings.violations } else { outcome.findings.violations };
    found.iter().for_each(|violation| println!("seed {seed}: {violation}"));
    assert!(found.is_empty(), "seed {seed} failed");
}

#[test]
fn seed_runs_the_same_every_time() {
    for seed in 0..4 {
        let scenario = Scenario::draw(seed);
        let (one, two) = (sim::run(&scenario, false), sim::run(&scenario, false));
        assert_eq!((one.digest, one.figures), (two.digest, two.figures), "seed {seed}");
    }
}

#[test]
fn tail_loss_is_reported_within_200_ms() {
    let mut tails = LatencyHistogram::default();
    for seed in 0..TAIL_RUNS {
        let outcome = sim::run(&Scenario::of_tails(seed), false);
        assert_eq!(outcome.findings.violations, [], "seed {seed}");
        tails.merge(&outcome.tails);
    }
    show(&format!("from the sealing of a tail to the report of its loss, 5 % loss: {tails}"));
    assert!(TAIL_RUNS * 300 <= tails.count, "{} tails", tails.count);
    assert!(tails.quantile(0.999) <= 200 * MILLIS, "{tails}");
}

#[test]
fn source_loss_costs_ten_requests_and_two_resends() {
    let receivers = if cfg!(debug_assertions) { 200 } else { 1000 };
    let outcome = sim::run(&Scenario::of_implosion(1, receivers), false);
    assert_eq!(outcome.findings.violations, []);
    let (requests, resent) = outcome.most_requested;
    let lost = outcome.figures.lost_at_source;
    show(&format!(
        "{receivers} receivers, {lost} datagrams lost at the source: at most {requests} requests and {resent} resends \
         of one, {} of {} in all; {}",
        outcome.figures.requests, outcome.figures.resends, outcome.repairs
    ));
    assert!(10 <= lost, "{lost} lost");
    // A receiver that learns of a tail by a unicast heartbeat asks before the others know. They get the
    // retransmission as if nothing had been missing.
    let expected = outcome.figures.messages_published * receivers as u64;
    assert_eq!(outcome.figures.deliveries, expected, "each receiver gets all messages");
    assert!(requests <= 10 && resent <= 2);
}

#[test]
fn simultaneous_requests_are_answered_within_the_resend_rate() {
    let outcome = sim::run(&Scenario::of_storm(1, 64), false);
    assert_eq!(outcome.findings.violations, []);
    let figures = &outcome.figures;
    show(&format!(
        "64 receivers missed {} messages: {} requests, {} resends of {} datagrams; {}",
        figures.repaired, figures.requests, figures.resends, figures.datagrams_sealed, outcome.repairs
    ));
    assert_eq!((figures.owed_lost, figures.owed_unverified, figures.pending), (0, 0, 0));
    assert!(64 * 300 <= figures.repaired, "{}", figures.repaired);
}

/// Approximate bytes that a datagram of a flood counts in windows.
const FLOOD_BYTES: u64 = 8000 + 600;

/// Returns a receiver that reads this number of megabytes a second, with the most common receive buffer.
fn speed(megabytes: u64) -> Speed {
    Speed { bytes_per_second: megabytes * 1_000_000, buffer_bytes: 4 << 20 }
}

/// Returns the bytes a second at which each host's last flood left; 0 for a host without one.
fn rates(outcome: &RunOutcome, datagrams: u64) -> Vec<u64> {
    let rate = |floods: &Vec<(u64, u64)>| {
        floods.last().map_or(0, |(began, ended)| datagrams * FLOOD_BYTES * SECOND / (ended - began))
    };
    outcome.flood_times.iter().map(rate).collect()
}

fn check_clean(outcome: &RunOutcome) {
    assert_eq!(outcome.findings.violations, []);
    let figures = &outcome.figures;
    assert_eq!((figures.owed_lost, figures.owed_unverified, figures.pending), (0, 0, 0));
}

#[test]
fn publisher_keeps_the_speed_of_the_slowest() {
    for receivers in [1, 10, 100] {
        let datagrams = if cfg!(debug_assertions) { 1000 } else { 4000 };
        // Between 50 and 400 MB/s.
        let speeds: Vec<Speed> = (0..receivers).map(|n| speed(if n == 0 { 50 } else { 100 + n * 3 })).collect();
        let outcome = sim::run(&Scenario::of_flood(receivers, &speeds, datagrams), false);
        check_clean(&outcome);
        let rate = rates(&outcome, datagrams.into())[0];
        show(&format!("{receivers} receivers, the slowest at 50 MB/s: {} MB/s", rate / 1_000_000));
        assert_eq!(outcome.dropped, vec![0; outcome.dropped.len()], "{receivers} receivers");
        assert!((40_000_000..58_000_000).contains(&rate), "{receivers} receivers: {rate} bytes a second");
    }
}

#[test]
fn publisher_waits_for_repairs() {
    // The ring evicts datagrams after a tenth of a second. Four losses in a row take longer than that.
    let outcome = sim::run(&Scenario::of_flood(1, &[speed(200); 3], 8000).with_loss(0.1, 16 << 20), false);
    check_clean(&outcome);
    let rate = rates(&outcome, 8000)[0];
    show(&format!("a tenth lost: {} MB/s", rate / 1_000_000));
    assert!(15_000_000 < rate, "{rate} bytes a second");
}

#[test]
fn receiver_below_the_floor_is_excluded() {
    let datagrams = 8000;
    let speeds = [speed(FLOOR / 1_000_000 / 5), speed(100), speed(200), speed(300)];
    let outcome = sim::run(&Scenario::of_flood(1, &speeds, datagrams), false);
    assert_eq!(outcome.findings.violations, []);
    let rate = rates(&outcome, datagrams.into())[0];
    show(&format!("one of four at a fifth of the floor: {} MB/s, {:?} dropped", rate / 1_000_000, outcome.dropped));
    assert_eq!([0, 2, 3, 4].map(|host| outcome.dropped[host]), [0; 4]);
    assert!(0 < outcome.dropped[1], "the publisher did not wait for the receiver");
    assert!(60_000_000 <= rate, "{rate} bytes a second");
}

#[test]
fn stopped_receiver_is_excluded_and_returns() {
    let speeds = [speed(100), speed(100), speed(200)];
    let floods = [(0, 3 * SECOND, 20_000), (0, 12 * SECOND, 4000)];
    let scenario = Scenario::of_floods(1, &speeds, &floods, Mutants::default());
    let outcome = sim::run(&scenario.with_pause(1, 3 * SECOND + 200 * MILLIS, 5 * SECOND), false);
    assert_eq!(outcome.findings.violations, []);
    let [first, again] = [0, 1].map(|flood| outcome.flood_times[0][flood]);
    show(&format!(
        "one of three pauses for 5 s: {} ms instead of 1720, then {} ms instead of 344; {:?} dropped",
        (first.1 - first.0) / MILLIS,
        (again.1 - again.0) / MILLIS,
        outcome.dropped
    ));
    assert_eq!([0, 2, 3].map(|host| outcome.dropped[host]), [0; 3]);
    assert!(first.1 - first.0 < 2600 * MILLIS, "the publisher waits for the others only");
    assert!(again.1 - again.0 < 500 * MILLIS);
}

#[test]
fn publishers_share_tiny_buffers_fairly() {
    // Hosts of which one has room for a single datagram, 12 kB, 100 kB.
    let tiny = |buffer_bytes| Speed { bytes_per_second: 100_000_000, buffer_bytes };
    let speeds = [tiny(4 << 10), tiny(12 << 10), tiny(100 << 10)];
    let outcome = sim::run(&Scenario::of_flood(1, &speeds, 2000), false);
    check_clean(&outcome);
    let rate = rates(&outcome, 2000)[0];
    show(&format!("tiny buffers: {} MB/s, {:?} dropped", rate / 1_000_000, outcome.dropped));
    // If a datagram fills the buffer, the buffer drops control messages: fewer than one for fifty datagrams.
    assert!(outcome.dropped.iter().all(|dropped| *dropped < 40), "{:?}", outcome.dropped);

    let speeds = vec![speed(100); 10];
    let floods = [(0, 3 * SECOND, 8000), (1, 3 * SECOND, 8000)];
    let outcome = sim::run(&Scenario::of_floods(1, &speeds, &floods, Mutants::default()), false);
    check_clean(&outcome);
    let rates = rates(&outcome, 8000);
    show(&format!(
        "two publishers to receivers of 100 MB/s: {} and {} MB/s, {:?} dropped",
        rates[0] / 1_000_000,
        rates[1] / 1_000_000,
        outcome.dropped
    ));
    assert!(rates[0].abs_diff(rates[1]) * 5 < rates[0], "{rates:?}");
    assert!(70_000_000 < rates[0] + rates[1], "{rates:?}");
}
