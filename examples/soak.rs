//! Runs the simulator over many seeds; `tools/soak` builds and starts it. `--help` describes the arguments.

use clap::Parser;
use seqcast::sim;
use seqcast::sim::Failure;
use seqcast::sim::report::Totals;
use seqcast::sim::scenario::Scenario;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Lines of the trace of a seed that failed.
const TRACE_LINES: usize = 80;

/// Runs the simulator over the seeds from FIRST_SEED on and prints running totals. A seed that breaks a rule ends the run with
/// what led to it, unless --keep-going is given. The last line is a summary that two runs can be compared by.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Args {
    /// The first seed.
    #[arg(value_name = "FIRST_SEED")]
    first: u64,
    /// Number of seeds; without end if it is not given.
    #[arg(long)]
    count: Option<u64>,
    /// Ends the run after this wall time, for example "90min" or "8h". Seeds that run then are finished.
    #[arg(long, value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Ends the run when this many hours were simulated.
    #[arg(long, value_name = "HOURS")]
    simulated: Option<f64>,
    /// Goes on past seeds that break a rule, and fails at the end.
    #[arg(long)]
    keep_going: bool,
    /// The file that gets a line for each violation: the seed, the rule and what was seen. It is written anew.
    #[arg(long, value_name = "FILE", default_value = "target/soak-failures.txt")]
    failures: PathBuf,
    /// Number of threads; as many as there are processors if it is not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Seeds between two prints.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Runs nothing; writes the scenario of FIRST_SEED to this file, for tests/corpus/scenarios.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.keep {
        Some(path) => std::fs::write(path, Scenario::draw(args.first).to_text())
            .map(|()| true)
            .map_err(|why| cannot_write(path, &why)),
        None => soak(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("soak: {why}");
            ExitCode::FAILURE
        }
    }
}

fn cannot_write(path: &Path, why: &std::io::Error) -> String {
    format!("cannot write {}: {why}\n  fix: name a file that can be written", path.display())
}

/// Runs the seeds. Returns whether all of them kept the rules.
fn soak(args: &Args) -> Result<bool, String> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from)).max(1);
    let mut file = File::create(&args.failures).map_err(|why| cannot_write(&args.failures, &why))?;
    let end = args.count.map_or(u64::MAX, |count| args.first.saturating_add(count));
    #[expect(clippy::disallowed_methods, reason = "a limit of wall time, outside the simulation")]
    let started = Instant::now();
    let is_over = |sum: &Totals| {
        args.time.is_some_and(|time| time <= started.elapsed())
            || args.simulated.is_some_and(|hours| hours <= sum.simulated_hours())
    };
    let (mut sum, mut failed, mut seed) = (Totals::default(), 0, args.first);
    while seed < end && !is_over(&sum) && (failed == 0 || args.keep_going) {
        let next = seed.saturating_add(args.batch).min(end);
        let (totals, failures) = sim::sweep(seed..next, threads);
        sum.merge(&totals);
        println!("seeds {} to {}\n{sum}\n", args.first, next - 1);
        for failure in &failures {
            report(failure, &mut file).map_err(|why| cannot_write(&args.failures, &why))?;
        }
        if let Some(failure) = failures.first().filter(|_| !args.keep_going) {
            show(failure);
        }
        failed += failures.len();
        seed = next;
    }
    let place = args.failures.display();
    if 0 < failed {
        println!("soak: the violations are in {place}; a seed is replayed by: tools/soak SEED --count 1");
    }
    println!(
        "soak: seeds {} to {}: {}, {failed} failed, {} s",
        args.first,
        seed.saturating_sub(1),
        sum.summary(),
        started.elapsed().as_secs()
    );
    Ok(failed == 0)
}

fn report(failure: &Failure, file: &mut File) -> std::io::Result<()> {
    for violation in &failure.violations {
        println!("seed {}: {violation}", failure.seed);
        writeln!(file, "{} {violation}", failure.seed)?;
    }
    file.flush()
}

/// What led to the first violation of a seed.
fn show(failure: &Failure) {
    let outcome = sim::run(&Scenario::draw(failure.seed), true);
    let from = outcome.trace.len().saturating_sub(TRACE_LINES);
    outcome.trace[from..].iter().for_each(|line| println!("{line}"));
}
