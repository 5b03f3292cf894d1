//! Runs the simulator over many seeds; `tools/soak` builds and starts it. `--help` describes the arguments.

use clap::Parser;
use seqcast::sim;
use seqcast::sim::SeedFailure;
use seqcast::sim::report::Totals;
use seqcast::sim::scenario::Scenario;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines of the trace of a scenario that failed.
const TRACE_LINES: usize = 80;
/// Distance of the first seeds of two runs that start a second apart. No run reaches this number of seeds, and the
/// products fit 64 bits until the year 2554.
const SEEDS_PER_SECOND: u64 = 1_000_000_000;

/// Runs the simulator over the seeds from FIRST_SEED on and prints running totals. A seed that breaks a rule ends the
/// run with its last events, unless --keep-going is given. The last line is a summary by which two runs can be
/// compared.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Args {
    /// The first seed. Without it the run takes new seeds: the first is the number of seconds since 1970, times 10^9.
    #[arg(value_name = "FIRST_SEED")]
    first: Option<u64>,
    /// Number of seeds; without end if it is not given.
    #[arg(long)]
    count: Option<u64>,
    /// Ends the run after this wall time, for example "90min" or "8h". Seeds that run then are finished.
    #[arg(long, value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Ends the run when this many hours were simulated.
    #[arg(long, value_name = "HOURS")]
    simulated: Option<f64>,
    /// Continues past seeds that break a rule, and fails at the end.
    #[arg(long)]
    keep_going: bool,
    /// The file to which a line is appended for each violation: the seed, the commit, the rule and the observation.
    /// No line is ever removed from it.
    #[arg(long, value_name = "FILE", default_value = "target/soak-failures.txt")]
    failures: PathBuf,
    /// Number of threads; the number of processors if it is not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Number of seeds between two prints.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Runs nothing; writes the scenario of FIRST_SEED to this file, for tests/corpus/scenarios.
    #[arg(long, value_name = "FILE", requires = "first")]
    keep: Option<PathBuf>,
    /// Runs the scenario of this file alone, which --keep wrote. If it breaks a rule, prints the last events before
    /// that.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["first", "count", "time", "simulated", "keep_going", "keep"])]
    replay: Option<PathBuf>,
    /// The commit that the summary and the lines of --failures name; tools/soak gives it.
    #[arg(long, value_name = "HASH", default_value = "unknown")]
    commit: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let first = args.first.unwrap_or_else(new_seed);
    let done = match (&args.keep, &args.replay) {
        (Some(path), _) => {
            fs::write(path, Scenario::draw(first).to_text()).map(|()| true).map_err(|why| cannot_write(path, &why))
        }
        (None, Some(path)) => replay(path, &args.commit),
        (None, None) => soak(&args, first),
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

/// Returns a first seed beyond those of all earlier runs.
fn new_seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "outside the simulation, which depends on the seed alone")]
    let now = SystemTime::now();
    first_seed(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// Returns the first seed of a run that starts at this number of seconds since 1970.
fn first_seed(seconds: u64) -> u64 {
    seconds.saturating_mul(SEEDS_PER_SECOND)
}

fn cannot_write(path: &Path, why: &io::Error) -> String {
    format!("cannot write {}: {why}\n  fix: name a file that can be written", path.display())
}

/// Opens the file of violations to append to it: the failures of an earlier run may not be fixed yet.
fn open_failures(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Runs the seeds. Returns whether no run broke a rule.
fn soak(args: &Args, first: u64) -> Result<bool, String> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from)).max(1);
    let mut file = open_failures(&args.failures).map_err(|why| cannot_write(&args.failures, &why))?;
    let end = args.count.map_or(u64::MAX, |count| first.saturating_add(count));
    #[expect(clippy::disallowed_methods, reason = "a limit of wall time, outside the simulation")]
    let started = Instant::now();
    let is_over = |sum: &Totals| {
        args.time.is_some_and(|time| time <= started.elapsed())
            || args.simulated.is_some_and(|hours| hours <= sum.simulated_hours())
    };
    println!("soak: seeds from {first} on, commit {}", args.commit);
    let (mut sum, mut failed, mut seed) = (Totals::default(), 0, first);
    while seed < end && !is_over(&sum) && (failed == 0 || args.keep_going) {
        let next = seed.saturating_add(args.batch).min(end);
        let (totals, failures) = sim::sweep(seed..next, threads);
        sum.merge(&totals);
        println!("seeds {first} to {}\n{sum}\n", next - 1);
        for failure in &failures {
            report(failure, &args.commit, &mut file).map_err(|why| cannot_write(&args.failures, &why))?;
        }
        if let Some(failure) = failures.first().filter(|_| !args.keep_going) {
            show(&Scenario::draw(failure.seed));
        }
        failed += failures.len();
        seed = next;
    }
    let location = args.failures.display();
    if 0 < failed {
        println!("soak: the violations are in {location}; a seed is replayed by: tools/soak SEED --count 1");
    }
    println!(
        "soak: commit {}, seeds {first} to {}: {}, {failed} failed, {} s",
        args.commit,
        seed.saturating_sub(1),
        sum.summary(),
        started.elapsed().as_secs()
    );
    Ok(failed == 0)
}

fn report(failure: &SeedFailure, commit: &str, file: &mut impl Write) -> io::Result<()> {
    for violation in &failure.violations {
        println!("seed {}: {violation}", failure.seed);
        writeln!(file, "{} at {commit}: {violation}", failure.seed)?;
    }
    file.flush()
}

/// Prints the events before the first violation of a scenario. A panic leaves no trace; it has printed its message.
fn show(scenario: &Scenario) {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| sim::run(scenario, true))) else { return };
    let from = outcome.trace.len().saturating_sub(TRACE_LINES);
    outcome.trace[from..].iter().for_each(|line| println!("{line}"));
}

/// Runs a kept scenario. Returns whether the run broke no rule.
fn replay(path: &Path, commit: &str) -> Result<bool, String> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|why| format!("cannot read {name}: {why}\n  fix: name a file of tests/corpus/scenarios"))?;
    let scenario = Scenario::from_text(&text)
        .map_err(|why| format!("{name} has no scenario: {why}\n  fix: name a file that --keep wrote"))?;
    let violations = sim::run_scenario(&scenario).findings.violations;
    if !violations.is_empty() {
        show(&scenario);
    }
    violations.iter().for_each(|violation| println!("{name}: {violation}"));
    println!("soak: commit {commit}, {name}: {} violations", violations.len());
    Ok(violations.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use seqcast::sim::report::Violation;

    #[test]
    fn arguments_that_contradict_each_other_are_refused() {
        Args::command().debug_assert();
        let parses = |line: &str| Args::try_parse_from(line.split(' ')).is_ok();
        for line in ["soak", "soak 7 --count 1", "soak --time 8h --keep-going", "soak 7 --keep a", "soak --replay a"] {
            assert!(parses(line), "{line}");
        }
        for line in ["soak --keep a", "soak 7 --replay a", "soak --replay a --count 1", "soak --batch 0", "soak x"] {
            assert!(!parses(line), "{line}");
        }
    }

    #[test]
    fn later_run_begins_beyond_earlier_seeds() {
        let year = 365 * 24 * 3600;
        for seconds in [1_700_000_000, 1_700_000_000 + year, 1 << 34] {
            assert_eq!(first_seed(seconds + 1) - first_seed(seconds), SEEDS_PER_SECOND, "{seconds} s");
        }
    }

    #[test]
    fn replayed_seed_leaves_the_list_it_came_from() {
        let path = std::env::temp_dir().join(format!("seqcast-soak-{}.txt", std::process::id()));
        let violation = || Violation { at: 0, rule: "O1", text: "withheld".to_owned() };
        for seed in [7, 8, 7] {
            let failure = SeedFailure { seed, violations: vec![violation()] };
            report(&failure, "abc", &mut open_failures(&path).unwrap()).unwrap();
        }
        drop(open_failures(&path).unwrap());
        let lines = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let line = |seed: u64| format!("{seed} at abc: {}\n", violation());
        assert_eq!(lines, line(7) + &line(8) + &line(7));
    }
}
