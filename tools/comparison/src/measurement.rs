//! Measures everything in turn: each round runs every system once with every size.

use crate::role::Role;
use crate::systems::System;
use crate::table::Table;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct MeasurementArgs {
    /// The built program of seqcast
    #[arg(long)]
    seqcast: PathBuf,
    /// Systems to measure beside it, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = System::value_variants().to_vec())]
    systems: Vec<System>,
    /// Bytes of a payload, multiples of 8 up to 1,024, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    sizes: Vec<usize>,
    /// Publishing time of each run, in seconds
    #[arg(long, default_value_t = 3.0)]
    secs: f64,
    /// Number of rounds; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Print lines of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Result of one run.
pub struct Outcome {
    /// Received messages a second.
    pub per_s: f64,
    pub sent: u64,
    pub received: u64,
}

/// The paths of seqcast's bench, and their names in the table. The first run also measures the kernel.
const SEQCAST_PATHS: [(&str, &str); 3] = [
    ("library", "seqcast, library"),
    ("shm", "seqcast, two daemons, shared memory"),
    ("daemon", "seqcast, two daemons, sockets"),
];
const RAW: &str = "raw UDP, GSO and GRO";

/// Measures, then prints the table.
pub fn run(args: &MeasurementArgs) -> Result<()> {
    if let Some(size) = args.sizes.iter().find(|size| !(8..=1024).contains(*size) || **size % 8 != 0) {
        bail!("a payload has a multiple of 8 bytes, at least 8 and at most 1024, not {size}");
    }
    if args.rounds == 0 || !(0.5..=3600.0).contains(&args.secs) {
        bail!("a comparison has at least one round, of 0.5 to 3600 seconds");
    }
    let mut table = Table::new(&args.sizes);
    for round in 1..=args.rounds {
        for &size in &args.sizes {
            for (path, label) in SEQCAST_PATHS {
                eprintln!("round {round}, {size} bytes: {label}");
                let rows = bench_rows(&args.seqcast, path, size, args.secs)?;
                if path == SEQCAST_PATHS[0].0 {
                    table.add(RAW, size, outcome(&rows, "raw_gso_gro")?);
                }
                table.add(label, size, outcome(&rows, path)?);
            }
            for &system in &args.systems {
                eprintln!("round {round}, {size} bytes: {}", system.label());
                let outcome = measure(system, size, args.secs);
                table.add(system.label(), size, outcome.with_context(|| system.label())?);
            }
        }
    }
    if args.json {
        table.print_json();
    } else {
        table.print();
    }
    Ok(())
}

/// Returns the rows of one run of seqcast's own bench.
fn bench_rows(seqcast: &Path, path: &str, size: usize, secs: f64) -> Result<Vec<Value>> {
    let mut command = Command::new(seqcast);
    command.args(["bench", "throughput", "--json", "--path", path, "--size", &size.to_string()]);
    command.args(["--secs", &format!("{}ms", (secs * 1000.0).round())]);
    if path != SEQCAST_PATHS[0].0 {
        command.arg("--no-raw");
    }
    let output = command.output().with_context(|| format!("{} does not run", seqcast.display()))?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the bench failed: {}", String::from_utf8_lossy(&output.stderr)))?;
    report["rows"].as_array().cloned().with_context(|| format!("the bench has no rows: {report}"))
}

fn outcome(rows: &[Value], what: &str) -> Result<Outcome> {
    let row = rows.iter().find(|row| row["what"] == what).with_context(|| format!("the bench has no row {what}"))?;
    if row["adds_up"] != true {
        bail!("sent and received messages do not add up: {row}");
    }
    let number = |field: &str| row[field].as_u64().with_context(|| format!("the row has no number {field}: {row}"));
    let per_s = row["per_s"]["median"].as_f64().context("the row has no rate")?;
    Ok(Outcome { per_s, sent: number("sent")?, received: number("received")? })
}

/// Runs one system once.
fn measure(system: System, size: usize, secs: f64) -> Result<Outcome> {
    let place = system.start()?;
    let start_role = |role| Role::start(role, &[&system.name(), &place.endpoint, &size.to_string(), &secs.to_string()]);
    let mut subscriber = start_role("subscribe")?;
    let ready = subscriber.read_line()?;
    if ready.trim() != "ready" {
        bail!("the subscriber is not ready: {ready:?}");
    }
    let mut publisher = start_role("publish")?;
    let published = publisher.read_json()?;
    let arrived = subscriber.finish()?;
    let number = |value: &Value, field: &str| value[field].as_u64().context("a role prints numbers");
    if number(&arrived, "wrong")? != 0 {
        bail!("messages are damaged or out of order: {arrived}");
    }
    let per_s = arrived["per_s"].as_f64().context("the run was too short for a rate")?;
    Ok(Outcome { per_s, sent: number(&published, "sent")?, received: number(&arrived, "received")? })
}
