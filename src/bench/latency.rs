//! `bench latency`: the latency of a message.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::args::{BenchPath, LatencyOptions, RunOptions};
use super::job::{Load, PingReport, RawMode, RawPace, ReceiveReport};
use super::latencies::Quantiles;
use super::report::{RunStats, TestbedInfo, Times, adds_up};
use super::testbed::{BenchRun, LoadCase, PingCase, RawCase, Testbed};
use super::throughput::{name, print_head, times};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::json;
use crate::terminal::output::{Output, note};
use crate::terminal::table::{Column, TextTable};
use crate::time::nanos;

/// The rate to which the user's is compared: nearly idle, but with enough messages for a percentile.
const IDLE_RATE: f64 = 1000.0;

/// Names of the round trips.
const PINGS: [&str; 6] = ["raw_blocking", "raw_busy", "blocking", "busy", "blocking_keyed", "busy_keyed"];

/// Result of one way of measuring, over all runs.
#[derive(Clone, Debug, Serialize)]
struct LatencyRow {
    /// `raw_blocking`, `raw_busy`, `blocking`, `busy`, `blocking_keyed`, `busy_keyed`, `raw_one_way`, `one_way`.
    what: &'static str,
    /// Messages per second; to and fro there is no rate.
    rate: Option<f64>,
    /// One-way latency.
    #[serde(flatten)]
    times: Times,
    /// Number of messages that did not arrive.
    lost: u64,
    /// One way: true if every message was received or accounted for.
    adds_up: bool,
    /// Contradictions in the received messages.
    faults: Vec<String>,
}

impl LatencyRow {
    fn of(what: &'static str, rate: Option<f64>, runs: impl Iterator<Item = Quantiles>, lost: u64) -> LatencyRow {
        LatencyRow { what, rate, times: Times::of(runs), lost, adds_up: true, faults: Vec::new() }
    }

    fn pinged(what: &'static str, runs: &[PingReport]) -> LatencyRow {
        LatencyRow::of(what, None, runs.iter().map(|run| run.latencies), runs.iter().map(|run| run.lost).sum())
    }

    /// Makes a row of raw datagrams. They may get lost, and nothing reports that.
    fn raw_one_way(rate: f64, runs: &[BenchRun]) -> LatencyRow {
        let sent: u64 = runs.iter().map(|run| run.sent.sent).sum();
        let received: u64 = reports(runs).map(|report| report.received).sum();
        LatencyRow::received("raw_one_way", rate, runs, sent.saturating_sub(received))
    }

    fn one_way(rate: f64, runs: &[BenchRun]) -> LatencyRow {
        let lost = |report: &ReceiveReport| report.lost + report.unverified + report.dropped;
        let row = LatencyRow::received("one_way", rate, runs, reports(runs).map(lost).sum());
        LatencyRow { adds_up: runs.iter().all(adds_up), ..row }
    }

    /// Makes a row of what the receivers of these runs measured.
    fn received(what: &'static str, rate: f64, runs: &[BenchRun], lost: u64) -> LatencyRow {
        let faults = reports(runs).flat_map(|report| report.faults.iter().cloned()).collect();
        let row = LatencyRow::of(what, Some(rate), reports(runs).map(|report| report.latencies), lost);
        LatencyRow { faults, ..row }
    }
}

/// Returns the reports of the receivers of all runs.
fn reports(runs: &[BenchRun]) -> impl Iterator<Item = &ReceiveReport> {
    runs.iter().flat_map(|run| &run.received)
}

/// Ratio of two latencies.
#[derive(Clone, Debug, Serialize)]
struct Ratio {
    /// The compared row.
    what: &'static str,
    /// The row to compare with.
    to: &'static str,
    /// Ratio of the medians.
    p50: Option<f64>,
    /// Ratio of the 99th percentiles.
    p99: Option<f64>,
}

impl Ratio {
    fn of(what: &'static str, own: &LatencyRow, to: &'static str, other: &LatencyRow) -> Ratio {
        let ratio = |own: RunStats, other: RunStats| (0.0 < other.median).then(|| own.median / other.median);
        let (own, other) = (own.times, other.times);
        Ratio { what, to, p50: ratio(own.p50_ns, other.p50_ns), p99: ratio(own.p99_ns, other.p99_ns) }
    }
}

/// The answer with `--json`.
#[derive(Serialize)]
struct LatencyJson<'a> {
    verb: &'a str,
    version: &'a str,
    ok: bool,
    path: &'a str,
    size: usize,
    secs: f64,
    runs: u32,
    found: &'a Option<TestbedInfo>,
    rows: &'a [LatencyRow],
    ratios: &'a [Ratio],
    /// Reason why one-way latency cannot be measured, if it cannot.
    one_way_unsupported: Option<&'a str>,
}

/// Runs `bench latency`.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run(options: &LatencyOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let testbed = Testbed::new(&options.testbed)?.with_realm(options.keyed)?;
    let mut pings: [Vec<PingReport>; 6] = Default::default();
    let mut ways: [Vec<BenchRun>; 2] = Default::default();
    let mut raw_ways: [Vec<BenchRun>; 2] = Default::default();
    let rates = [IDLE_RATE, options.rate.0];
    let mut unsupported = None;
    // A peer that the bench neither drives nor configures for it does not poll busily.
    let has_busy = matches!(options.testbed.path, BenchPath::Library | BenchPath::Host);
    let keyed = options.keyed;
    let wanted = [!options.no_raw, !options.no_raw && has_busy, true, has_busy, keyed, keyed && has_busy];
    for _ in 0..options.run.runs {
        for (way, pinged) in pings.iter_mut().enumerate().filter(|(way, _)| wanted[*way]) {
            let case = PingCase { is_raw: way < 2, is_busy: way % 2 == 1, bytes: options.size, is_keyed: 4 <= way };
            let run = testbed.ping(case, options.run.secs)?;
            if !run.has_one_clock {
                unsupported = Some("the programs are on two machines, which have two clocks");
            }
            pinged.push(run.report);
        }
        let both = ways.iter_mut().zip(&mut raw_ways);
        for (rate, (runs, raw_runs)) in rates.into_iter().zip(both).filter(|_| unsupported.is_none()) {
            if !options.no_raw {
                let raw = testbed.raw(&raw_case(options.size, rate), options.run.secs)?;
                raw_runs.push(raw.map_err(|why| CommandFailure::new(Exit::Failed, why))?);
            }
            runs.push(testbed.library(&case(options.size, options.run.secs, rate))?);
        }
    }
    let found = ways[0].first().map(TestbedInfo::from_run);
    let mut rows: Vec<LatencyRow> = PINGS
        .into_iter()
        .zip(&pings)
        .filter(|(_, runs)| !runs.is_empty())
        .map(|(what, runs)| LatencyRow::pinged(what, runs))
        .collect();
    let raw_ways = rates.into_iter().zip(&raw_ways).filter(|(_, runs)| !runs.is_empty());
    rows.extend(raw_ways.map(|(rate, runs)| LatencyRow::raw_one_way(rate, runs)));
    let ways = rates.into_iter().zip(&ways).filter(|(_, runs)| !runs.is_empty());
    rows.extend(ways.map(|(rate, runs)| LatencyRow::one_way(rate, runs)));
    let ratios = ratios(&rows);
    let ok = rows.iter().all(|row| row.adds_up && row.faults.is_empty());
    match options.testbed.json {
        true => out.line(json(&LatencyJson {
            verb: "latency",
            version: env!("CARGO_PKG_VERSION"),
            ok,
            path: name(options.testbed.path),
            size: options.size,
            secs: options.run.secs.as_secs_f64(),
            runs: options.run.runs,
            found: &found,
            rows: &rows,
            ratios: &ratios,
            one_way_unsupported: unsupported,
        }))?,
        false => print(options.run, found.as_ref(), &rows, &ratios, out)?,
    }
    out.flush()?;
    if let Some(why) = unsupported {
        note(format_args!("one-way latency was not measured: {why}"));
    }
    for fault in rows.iter().flat_map(|row| &row.faults) {
        note(fault);
    }
    if rows.iter().any(|row| !row.adds_up) {
        note("the published messages do not add up with the received and the reported ones");
    }
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

/// Returns a case with messages at a rate, whose payloads contain their due time.
fn case(bytes: usize, span: Duration, rate: f64) -> LoadCase {
    let load = Load { bytes, span_ns: nanos(span), rate: Some(rate), subjects: 1, is_stamped: true };
    LoadCase { load, subscribers: 1, is_each: false, drop: 0.0, is_keyed: false }
}

/// Returns the same case with raw datagrams.
fn raw_case(bytes: usize, rate: f64) -> RawCase {
    RawCase { mode: RawMode::Plain, bytes, receivers: 1, pace: RawPace::Due(rate) }
}

fn ratios(rows: &[LatencyRow]) -> Vec<Ratio> {
    let row = |what: &str| rows.iter().find(|row| row.what == what);
    let mut ratios = Vec::new();
    let pairs =
        [("blocking", "raw_blocking"), ("busy", "raw_busy"), ("blocking_keyed", "blocking"), ("busy_keyed", "busy")];
    for (own, other) in pairs {
        if let (Some(ours), Some(theirs)) = (row(own), row(other)) {
            ratios.push(Ratio::of(own, ours, other, theirs));
        }
    }
    let ways = |what: &str| rows.iter().filter(|row| row.what == what).collect::<Vec<&LatencyRow>>();
    if let [idle, loaded] = ways("one_way")[..] {
        ratios.push(Ratio::of("one_way", loaded, "one_way_idle", idle));
        if let [_, raw] = ways("raw_one_way")[..] {
            ratios.push(Ratio::of("one_way", loaded, "raw_one_way", raw));
        }
    }
    ratios
}

/// The headers of [`micros`].
pub const TIMES: [&str; 7] = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max"];

/// Returns times for people, in microseconds: the medians of the runs.
pub fn micros(times: &Times) -> [String; 7] {
    let all = [times.min_ns, times.p50_ns, times.p90_ns, times.p99_ns, times.p999_ns, times.p9999_ns, times.max_ns];
    all.map(|spread| format!("{:.1}", spread.median / 1000.0))
}

fn print(
    run: RunOptions,
    found: Option<&TestbedInfo>,
    rows: &[LatencyRow],
    ratios: &[Ratio],
    out: &mut Output,
) -> io::Result<()> {
    print_head(found, format_args!("{}; one way, in microseconds", times(run)), out)?;
    let mut columns = vec![Column::new("what").left(), Column::new("rate")];
    columns.push(Column::new("messages"));
    columns.extend(TIMES.map(Column::new));
    columns.push(Column::new("lost"));
    let mut table = TextTable::new(&columns);
    for row in rows {
        let rate = row.rate.map_or(String::new(), |rate| format!("{rate:.0}/s"));
        let mut cells = vec![row.what.to_owned(), rate, row.times.count.to_string()];
        cells.extend(micros(&row.times));
        cells.push(row.lost.to_string());
        table.row(cells);
    }
    out.bytes(table.to_string().as_bytes())?;
    out.line("")?;
    for Ratio { what, to, p50, p99 } in ratios {
        let [p50, p99] = [p50, p99].map(|ratio| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
        out.line(format_args!("{what} to {to}: p50 {p50}, p99 {p99}"))?;
    }
    Ok(())
}
