//! The simulator over a fixed range of seeds (docs/simulator.md). `SEQCAST_SEED=n` runs one seed with a trace.

use seqcast::sim;
use seqcast::sim::report::{Spread, Totals};
use seqcast::sim::scenario::{Fault, MILLIS, SECOND, Scenario};
use std::io::Write;

/// Seeds of a release build, as in CI; other builds are slower and run a share.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 2400 };
/// Runs of the tail scenario.
const TAIL_RUNS: u64 = if cfg!(debug_assertions) { 2 } else { 12 };
/// Lines of the trace that a replayed seed shows.
const TRACE_LINES: usize = 80;

#[test]
fn every_loss_is_told_exactly_and_nothing_else() {
    if let Ok(seed) = std::env::var("SEQCAST_SEED") {
        return replay(seed.parse().expect("SEQCAST_SEED is a number"));
    }
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    let (totals, failures) = sim::sweep(0..SEEDS, threads);
    show(&totals.to_string());
    for failure in failures.iter().take(10) {
        for violation in &failure.violations {
            println!("seed {}: {violation}", failure.seed);
        }
        println!(
            "replay: SEQCAST_SEED={} cargo test --release --test main sim::every_loss -- --nocapture",
            failure.seed
        );
    }
    assert!(failures.is_empty(), "{} of {SEEDS} seeds failed", failures.len());
    if cfg!(debug_assertions) {
        println!("a debug build runs {SEEDS} seeds only; the figures are asserted in release builds");
    } else {
        check_figures(&totals);
    }
}

/// Prints figures in every run: what goes to the handle itself is not kept back when the test passes.
fn show(figures: &str) {
    writeln!(std::io::stderr(), "{figures}").expect("standard error can be written");
}

/// What CI promises to have tried.
fn check_figures(totals: &Totals) {
    let figures = &totals.figures;
    assert!(2000 <= figures.scenarios);
    assert!(40 * 3600 * SECOND <= figures.nanos, "{} s simulated", figures.nanos / SECOND);
    assert!(10_000_000 <= figures.datagrams_sent, "{} datagrams sent", figures.datagrams_sent);
    assert!(500_000 <= figures.copies_dropped, "{} copies dropped", figures.copies_dropped);
    for (kind, scenarios) in Fault::ALL.iter().zip(&totals.faults) {
        assert!(figures.scenarios <= scenarios * 20, "{kind:?} is on in {scenarios} scenarios only");
    }
}

/// Runs one seed and shows what led to the first violation.
fn replay(seed: u64) {
    let outcome = sim::run(&Scenario::draw(seed), true);
    let from = outcome.trace.len().saturating_sub(TRACE_LINES);
    outcome.trace[from..].iter().for_each(|line| println!("{line}"));
    let again = sim::run_seed(seed);
    let found = if outcome.findings.kept.is_empty() { again.findings.kept } else { outcome.findings.kept };
    found.iter().for_each(|violation| println!("seed {seed}: {violation}"));
    assert!(found.is_empty(), "seed {seed} failed");
}

#[test]
fn a_seed_runs_the_same_every_time() {
    for seed in 0..4 {
        let scenario = Scenario::draw(seed);
        let (one, two) = (sim::run(&scenario, false), sim::run(&scenario, false));
        assert_eq!((one.digest, one.figures), (two.digest, two.figures), "seed {seed}");
    }
}

#[test]
fn tail_losses_are_told_within_200_ms_at_five_percent_loss() {
    let mut tails = Spread::default();
    for seed in 0..TAIL_RUNS {
        let outcome = sim::run(&Scenario::of_tails(seed), false);
        assert_eq!(outcome.findings.kept, [], "seed {seed}");
        tails.merge(&outcome.tails);
    }
    show(&format!("from the sealing of a tail to the report of its loss, 5 % loss: {tails}"));
    assert!(TAIL_RUNS * 300 <= tails.count, "{} tails", tails.count);
    assert!(tails.quantile(0.999) <= 200 * MILLIS, "{tails}");
}

#[test]
fn a_loss_at_the_source_costs_a_thousand_receivers_ten_requests_and_two_resends() {
    let receivers = if cfg!(debug_assertions) { 200 } else { 1000 };
    let outcome = sim::run(&Scenario::of_implosion(1, receivers), false);
    assert_eq!(outcome.findings.kept, []);
    let (asked, resent) = outcome.most_asked;
    let lost = outcome.figures.lost_at_source;
    show(&format!(
        "{receivers} receivers, {lost} datagrams lost at the source: at most {asked} requests and {resent} resends of one, \
         {} of {} in all; {}",
        outcome.figures.requests, outcome.figures.resends, outcome.repairs
    ));
    assert!(10 <= lost, "{lost} lost");
    assert_eq!(outcome.figures.repaired, lost * receivers as u64, "everybody gets all of them");
    assert!(asked <= 10 && resent <= 2);
}

#[test]
fn of_64_that_ask_at_once_all_get_what_they_miss_within_a_quarter_of_what_is_sent() {
    let outcome = sim::run(&Scenario::of_storm(1, 64), false);
    assert_eq!(outcome.findings.kept, []);
    let figures = &outcome.figures;
    show(&format!(
        "64 receivers missed {} messages: {} requests, {} resends of {} datagrams; {}",
        figures.repaired, figures.requests, figures.resends, figures.datagrams_sealed, outcome.repairs
    ));
    assert_eq!((figures.owed_lost, figures.owed_unverified, figures.pending), (0, 0, 0));
    assert!(64 * 300 <= figures.repaired, "{}", figures.repaired);
}
