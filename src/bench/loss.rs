//! `bench loss`: the rate while datagrams get lost, compared with the rate without loss.

use std::io;
use std::process::Command;

use serde::Serialize;

use super::args::{BenchPath, LoadOptions, LossOptions, RunOptions};
use super::job::Load;
use super::latency::{TIMES, micros};
use super::report::{RunStats, TestbedInfo, ThroughputRow, Times};
use super::testbed::{BenchRun, LoadCase, Testbed};
use super::throughput::{name, print_head, times};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::json;
use crate::terminal::output::{Output, note};
use crate::terminal::table::{Column, TextTable};
use crate::time::nanos;

/// A fault of the network that the user's commands make and end.
struct NetworkFault<'a> {
    heal: &'a str,
}

impl<'a> NetworkFault<'a> {
    fn begin(fault: &str, heal: &'a str) -> Result<NetworkFault<'a>, CommandFailure> {
        let guard = NetworkFault { heal };
        shell(fault)?;
        Ok(guard)
    }
}

impl Drop for NetworkFault<'_> {
    fn drop(&mut self) {
        if let Err(failure) = shell(self.heal) {
            note(format_args!("seqcast: {failure}"));
        }
    }
}

fn shell(command: &str) -> Result<(), CommandFailure> {
    let how = match Command::new("sh").args(["-c", command]).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(CommandFailure::new(Exit::Failed, format!("'{command}' failed: {how}")))
}

/// Result for one share of loss.
#[derive(Clone, Debug, Serialize)]
struct Goodput {
    /// The share of datagrams dropped on purpose; null with a fault of the network.
    drop: Option<f64>,
    #[serde(flatten)]
    row: ThroughputRow,
    /// Rate as a share of the rate without loss, run by run.
    goodput: Option<RunStats>,
    /// Latency from publishing a message until it was read.
    latency: Times,
    /// The same, of retransmitted messages.
    repair_latency: Times,
}

/// The answer with `--json`.
#[derive(Serialize)]
struct BenchLossJson<'a> {
    verb: &'a str,
    version: &'a str,
    ok: bool,
    secs: f64,
    runs: u32,
    found: &'a Option<TestbedInfo>,
    rows: &'a [Goodput],
}

/// Runs `bench loss`.
///
/// # Errors
/// A value is wrong, a process or a command of the user fails.
pub fn run(options: &LossOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let LoadOptions { rate, run, testbed: programs } = &options.load;
    if programs.path == BenchPath::Host {
        let text = "with --path host no message passes a network that could lose it";
        return Err(CommandFailure::new(Exit::Usage, text).fix("give another --path"));
    }
    let testbed = Testbed::new(programs)?;
    let case = |drop| {
        let (span_ns, rate) = (nanos(run.secs), rate.map(|rate| rate.0));
        let load = Load { bytes: options.size, span_ns, rate, subjects: 1, is_stamped: true };
        LoadCase { load, subscribers: 1, is_each: false, drop, is_keyed: false }
    };
    let fault = options.fault.as_deref().zip(options.heal.as_deref());
    let drops = if fault.is_some() { vec![None] } else { options.drop.iter().copied().map(Some).collect() };
    let mut runs: Vec<Vec<BenchRun>> = [None].iter().chain(&drops).map(|_| Vec::new()).collect();
    for _ in 0..run.runs {
        runs[0].push(testbed.library(&case(0.0))?);
        for (drop, runs) in drops.iter().zip(&mut runs[1..]) {
            let _fault = fault.map(|(fault, heal)| NetworkFault::begin(fault, heal)).transpose()?;
            runs.push(testbed.library(&case(drop.unwrap_or(0.0)))?);
        }
    }
    let found = runs[0].first().map(TestbedInfo::from_run);
    let datagram_bytes = found.as_ref().and_then(|found| found.datagram_bytes).unwrap_or(0);
    let mut rows: Vec<Goodput> = Vec::new();
    for (drop, runs) in [Some(0.0)].iter().chain(&drops).zip(&runs) {
        let row = ThroughputRow::of(name(programs.path), options.size, datagram_bytes, options.size, runs);
        let goodput = rows.first().map_or(Some(RunStats::of([1.0])), |lossless| row.ratio(&lossless.row));
        let reports = || runs.iter().flat_map(|run| &run.received);
        let latency = Times::of(reports().map(|report| report.latencies));
        let repair_latency = Times::of(reports().map(|report| report.repair_latencies));
        rows.push(Goodput { drop: *drop, row, goodput, latency, repair_latency });
    }
    let ok = rows.iter().all(|goodput| goodput.row.is_good());
    let (version, secs) = (env!("CARGO_PKG_VERSION"), run.secs.as_secs_f64());
    match programs.json {
        true => out.line(json(&BenchLossJson {
            verb: "loss",
            version,
            ok,
            secs,
            runs: run.runs,
            found: &found,
            rows: &rows,
        }))?,
        false => print(*run, found.as_ref(), &rows, out)?,
    }
    out.flush()?;
    rows.iter().for_each(|goodput| goodput.row.report_problems());
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

fn print(run: RunOptions, found: Option<&TestbedInfo>, rows: &[Goodput], out: &mut Output) -> io::Result<()> {
    print_head(found, times(run), out)?;
    let headers = [
        "loss",
        "per second",
        "min",
        "max",
        "goodput",
        "sent",
        "received",
        "repaired",
        "lost",
        "unverified",
        "dropped",
        "kernel",
    ];
    let mut table = TextTable::new(&headers.map(Column::new));
    let loss = |drop: Option<f64>| drop.map_or("fault".to_owned(), |drop| format!("{}%", drop * 100.0));
    for Goodput { drop, row, goodput, .. } in rows {
        table.row(vec![
            loss(*drop),
            format!("{:.0}", row.per_s.median),
            format!("{:.0}", row.per_s.min),
            format!("{:.0}", row.per_s.max),
            goodput.map_or("-".to_owned(), |goodput| format!("{:.2}", goodput.median)),
            row.sent.to_string(),
            row.received.to_string(),
            row.repaired.to_string(),
            row.lost(),
            row.unverified.to_string(),
            row.dropped.to_string(),
            row.kernel_drops.to_string(),
        ]);
    }
    out.bytes(table.to_string().as_bytes())?;
    out.line("\nfrom publishing to reading, in microseconds")?;
    let mut columns = vec![Column::new("loss"), Column::new("of").left(), Column::new("messages")];
    columns.extend(TIMES.map(Column::new));
    let mut table = TextTable::new(&columns);
    for Goodput { drop, latency, repair_latency, .. } in rows {
        for (of, times) in [("all", latency), ("repaired", repair_latency)] {
            if 0 < times.count {
                let cells = [loss(*drop), of.to_owned(), times.count.to_string()];
                table.row(cells.into_iter().chain(micros(times)).collect());
            }
        }
    }
    out.bytes(table.to_string().as_bytes())
}
