//! Runs the simulator over seeds without end; `tools/soak` starts it. Arguments: the first seed, and how many if not
//! without end. Prints running totals; at the first seed that breaks a rule it prints what led to it, and fails.

use seqcast::sim;
use seqcast::sim::report::Totals;
use seqcast::sim::scenario::Scenario;
use std::process::ExitCode;

/// Seeds between two prints.
const BATCH: u64 = 500;
/// Lines of the trace of a seed that failed.
const TRACE_LINES: usize = 80;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let first = arguments.next().unwrap_or(0);
    let end = arguments.next().map_or(u64::MAX, |count| first.saturating_add(count));
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    let mut sum = Totals::default();
    let mut seed = first;
    while seed < end {
        let next = seed.saturating_add(BATCH).min(end);
        let (totals, failures) = sim::sweep(seed..next, threads);
        sum.merge(&totals);
        println!("seeds {first} to {}\n{sum}\n", next - 1);
        if let Some(failure) = failures.first() {
            let outcome = sim::run(&Scenario::draw(failure.seed), true);
            let from = outcome.trace.len().saturating_sub(TRACE_LINES);
            outcome.trace[from..].iter().for_each(|line| println!("{line}"));
            failure.violations.iter().for_each(|violation| println!("seed {}: {violation}", failure.seed));
            println!(
                "{} of these seeds failed: {:?}",
                failures.len(),
                failures.iter().map(|f| f.seed).collect::<Vec<_>>()
            );
            return ExitCode::FAILURE;
        }
        seed = next;
    }
    ExitCode::SUCCESS
}
