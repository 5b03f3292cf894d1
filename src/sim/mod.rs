//! The second shell: it runs the core of the daemon without sockets and clocks.
//!
//! [`run`] simulates a whole LAN from a [`Scenario`]: many peers, a seeded network, hosts and an oracle. The network
//! loses, repeats, delays, reorders and damages datagrams. Hosts crash, pause and set their clocks. The oracle knows
//! everything that was sent and checks every delivery and every report of a loss against it (O1 to O10).
//! `docs/simulator.md` describes the simulator.

mod claims;
mod final_checks;
pub mod fuzz;
mod joiner;
mod machine;
mod network;
mod oracle;
pub mod report;
pub mod scenario;
mod truth;
mod world;

use report::{RunOutcome, Totals, Violation};
use scenario::{FaultKind, Scenario};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs a scenario. With a trace, the run ends at the first violation, and the outcome has the last events.
pub fn run(scenario: &Scenario, with_trace: bool) -> RunOutcome {
    world::World::new(scenario, with_trace).run()
}

/// Runs a scenario without the checks of the datagrams that peers send: mistakes must then show at the receivers.
pub fn run_without_sender_checks(scenario: &Scenario) -> RunOutcome {
    world::World::new(scenario, false).without_sender_checks().run()
}

/// Runs the scenario of a seed as [`run_scenario`] does.
pub fn run_seed(seed: u64) -> RunOutcome {
    run_drawn(seed, || Scenario::draw(seed))
}

/// Runs a scenario, and again without clock steps if it has any: all deliveries and reports must be the same (O10). A
/// panic is a violation.
pub fn run_scenario(scenario: &Scenario) -> RunOutcome {
    run_drawn(scenario.seed, || scenario.clone())
}

fn run_drawn(seed: u64, draw: impl FnOnce() -> Scenario) -> RunOutcome {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let scenario = draw();
        let mut outcome = run(&scenario, false);
        // Beyond the last frame the wall clock decides when an epoch ends.
        let clocks = [FaultKind::ClockSeconds, FaultKind::ClockHours, FaultKind::Clock1970, FaultKind::Clock2115];
        let has_steps =
            clocks.iter().any(|kind| scenario.faults.has(*kind)) && !scenario.faults.has(FaultKind::ClockBeyond);
        if has_steps {
            outcome.figures.clock_twins += 1;
            if run(&scenario.without_clock_steps(), false).digest != outcome.digest {
                outcome.findings.add("O10", "without clock steps other deliveries or reports follow".to_owned());
            }
        }
        outcome
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let mut outcome = RunOutcome { seed, ..RunOutcome::default() };
        outcome.findings.add("panic", text.unwrap_or_default());
        outcome
    })
}

/// A seed whose run broke a rule.
#[derive(Clone, Debug)]
pub struct SeedFailure {
    /// The seed.
    pub seed: u64,
    /// The first violations.
    pub violations: Vec<Violation>,
}

/// Runs many seeds on several threads. Returns the sums and the failures in the order of their seeds.
pub fn sweep(seeds: Range<u64>, threads: usize) -> (Totals, Vec<SeedFailure>) {
    let next = AtomicU64::new(seeds.start);
    let result = Mutex::new((Totals::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut totals, mut failures) = (Totals::default(), Vec::new());
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seeds.end <= seed {
                        break;
                    }
                    let outcome = run_seed(seed);
                    totals.add(&outcome);
                    if 0 < outcome.findings.count {
                        failures.push(SeedFailure { seed, violations: outcome.findings.violations });
                    }
                }
                let mut sum = result.lock().expect("no thread panics while it holds the lock");
                sum.0.merge(&totals);
                sum.1.extend(failures);
            });
        }
    });
    let (totals, mut failures) = result.into_inner().expect("no thread panics while it holds the lock");
    failures.sort_by_key(|failure| failure.seed);
    (totals, failures)
}

#[cfg(test)]
mod tests;
