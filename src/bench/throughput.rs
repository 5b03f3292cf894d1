//! `bench throughput` and `bench fanout`: the library and the raw rates in turn, within one run.

use std::fmt;
use std::io;

use serde::Serialize;

use super::args::{BenchPath, RunOptions, ThroughputOptions};
use super::job::{Load, RawPace};
use super::report::{RAW_MODES, Ratios, RunStats, TestbedInfo, ThroughputRow};
use super::testbed::{BenchRun, LoadCase, RawCase, Testbed};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::json as text;
use crate::terminal::output::{Output, note};
use crate::terminal::table::{Column, TextTable};
use crate::time::nanos;

/// The measured rates.
#[derive(Default)]
struct Rates {
    /// Environment of the programs.
    found: Option<TestbedInfo>,
    /// Rows, one for each way and size.
    rows: Vec<ThroughputRow>,
    /// Ratios, one for each size.
    ratios: Vec<Ratios>,
    /// Ratios of keyed peers to open ones, one for each size if they were measured.
    keyed: Vec<KeyedRatio>,
}

/// The rate of keyed peers as a multiple of that of open ones.
#[derive(Clone, Copy, Debug, Serialize)]
struct KeyedRatio {
    /// Bytes of payload of a message.
    size: usize,
    /// Ratio, run by run.
    to_open: Option<RunStats>,
}

impl Rates {
    /// Returns whether no row has a problem: nothing is unaccounted for, damaged, duplicate or out of order.
    fn is_good(&self) -> bool {
        self.rows.iter().all(ThroughputRow::is_good)
    }
}

/// Runs `bench throughput`.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run(options: &ThroughputOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    run_to("throughput", options, 1, out)
}

/// Measures and prints the rates with `subscribers` subscribers.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run_to(
    verb: &str,
    options: &ThroughputOptions,
    subscribers: usize,
    out: &mut Output,
) -> Result<Exit, CommandFailure> {
    let testbed = Testbed::new(&options.testbed)?.with_realm(options.keyed)?;
    let mut rates = Rates::default();
    for size in &options.size {
        let load = Load {
            bytes: *size,
            span_ns: nanos(options.run.secs),
            rate: options.rate.map(|rate| rate.0),
            subjects: 1,
            is_stamped: false,
        };
        let case = LoadCase { load, subscribers, is_each: false, drop: 0.0, is_keyed: false };
        measure(&testbed, options, &case, &mut rates)?;
    }
    print(verb, options.testbed.json, options.run, &testbed, &rates, out)
}

/// Returns the name of a path among the rows.
pub fn name(path: BenchPath) -> &'static str {
    let [name, _] = names(path);
    name
}

/// Returns the names of a path between open peers, and between keyed ones.
fn names(path: BenchPath) -> [&'static str; 2] {
    match path {
        BenchPath::Library => ["library", "library_keyed"],
        BenchPath::Threads => ["threads", "threads_keyed"],
        BenchPath::Daemon => ["daemon", "daemon_keyed"],
        BenchPath::Shm => ["shm", "shm_keyed"],
        BenchPath::Host => ["host", "host_keyed"],
    }
}

/// Runs a case and its raw rates in turn, the given number of times, and enters the results.
fn measure(
    testbed: &Testbed,
    options: &ThroughputOptions,
    case: &LoadCase,
    rates: &mut Rates,
) -> Result<(), CommandFailure> {
    let (size, run, raw) = (case.load.bytes, options.run, options.raw);
    let mut library: Vec<BenchRun> = Vec::new();
    let mut keyed: Vec<BenchRun> = Vec::new();
    let mut raws: Vec<RawRuns> = Vec::new();
    for _ in 0..run.runs {
        library.push(testbed.library(case)?);
        if options.keyed {
            keyed.push(testbed.library(&LoadCase { is_keyed: true, ..*case })?);
        }
        let found = rates.found.get_or_insert_with(|| TestbedInfo::from_run(&library[0]));
        if raws.is_empty() && !raw.no_raw {
            let bytes = raw_bytes(size, found.datagram_bytes);
            for (mode, what) in RAW_MODES {
                let raw = RawCase { mode, bytes, receivers: case.subscribers, pace: RawPace::Unlimited };
                raws.push(RawRuns { what, raw, rate: testbed.raw_rate(&raw, run.secs)?, runs: Vec::new() });
            }
        }
        for raws in &mut raws {
            let Ok(rate) = raws.rate else { continue };
            match testbed
                .raw(&RawCase { pace: rate.map_or(RawPace::Unlimited, RawPace::Batches), ..raws.raw }, run.secs)?
            {
                Ok(run) => {
                    found.merge_raw(raws.raw.mode, &run);
                    raws.runs.push(run);
                }
                Err(why) => raws.rate = Err(why),
            }
        }
    }
    let datagram_bytes = rates.found.as_ref().and_then(|found| found.datagram_bytes);
    let [what, what_keyed] = names(options.testbed.path);
    let row = ThroughputRow::of(what, size, datagram_bytes.unwrap_or(0), size, &library);
    let raws: Vec<ThroughputRow> = raws.into_iter().map(|raws| raws.row(size)).collect();
    if let [plain, gso, gso_gro] = &raws[..] {
        rates.ratios.push(Ratios::of(&row, [plain, gso, gso_gro], raw.offloads_off));
    }
    rates.rows.extend(raws);
    if options.keyed {
        let bytes = keyed.first().and_then(|run| run.receiver.datagram_bytes);
        let keyed = ThroughputRow::of(what_keyed, size, bytes.unwrap_or(0), size, &keyed);
        rates.keyed.push(KeyedRatio { size, to_open: keyed.ratio(&row) });
        rates.rows.extend([row, keyed]);
    } else {
        rates.rows.push(row);
    }
    Ok(())
}

/// Runs of one raw way.
struct RawRuns {
    what: &'static str,
    raw: RawCase,
    /// Datagrams per second, or the reason why it cannot be done.
    rate: Result<Option<f64>, String>,
    runs: Vec<BenchRun>,
}

impl RawRuns {
    fn row(self, size: usize) -> ThroughputRow {
        let bytes = self.raw.bytes;
        match self.rate {
            Ok(rate) => ThroughputRow {
                paced_per_s: rate,
                ..ThroughputRow::of(self.what, size, bytes as u64, bytes, &self.runs)
            },
            Err(why) => ThroughputRow::unsupported(self.what, size, why),
        }
    }
}

/// Returns the size of a raw datagram that is compared with messages of `size` bytes: larger ones are sent as several.
fn raw_bytes(size: usize, datagram_bytes: Option<u64>) -> usize {
    datagram_bytes.and_then(|bytes| usize::try_from(bytes).ok()).map_or(size, |bytes| bytes.min(size))
}

/// The answer with `--json`.
#[derive(Serialize)]
struct RatesJson<'a> {
    verb: &'a str,
    version: &'a str,
    ok: bool,
    secs: f64,
    runs: u32,
    group: String,
    found: &'a Option<TestbedInfo>,
    rows: &'a [ThroughputRow],
    ratios: &'a [Ratios],
    keyed: &'a [KeyedRatio],
}

/// Prints rates, and returns the exit code of the command.
fn print(
    verb: &str,
    is_json: bool,
    run: RunOptions,
    testbed: &Testbed,
    rates: &Rates,
    out: &mut Output,
) -> Result<Exit, CommandFailure> {
    let (version, ok, secs) = (env!("CARGO_PKG_VERSION"), rates.is_good(), run.secs.as_secs_f64());
    let Rates { found, rows, ratios, keyed } = rates;
    let group = format!("{}:{}", testbed.config.group, testbed.config.port);
    match is_json {
        true => {
            let runs = run.runs;
            out.line(text(&RatesJson { verb, version, ok, secs, runs, group, found, rows, ratios, keyed }))?;
        }
        false => print_text(run, rates, out)?,
    }
    out.flush()?;
    verdict(rates)
}

/// Reports void ratios and rows with problems.
fn verdict(rates: &Rates) -> Result<Exit, CommandFailure> {
    for Ratios { size, void, .. } in &rates.ratios {
        if let Some(why) = void {
            note(format_args!("VOID ({size} bytes): {why}"));
            note("  fix: ethtool -K IFACE tx-udp-segmentation on; or use --offloads-off if they are off on purpose");
        }
    }
    rates.rows.iter().for_each(ThroughputRow::report_problems);
    Ok(if rates.is_good() { Exit::Done } else { Exit::Failed })
}

fn print_text(run: RunOptions, rates: &Rates, out: &mut Output) -> io::Result<()> {
    print_head(rates.found.as_ref(), times(run), out)?;
    out.bytes(table(&rates.rows).to_string().as_bytes())?;
    if !rates.ratios.is_empty() {
        out.line("")?;
        out.bytes(ratio_table(&rates.ratios).to_string().as_bytes())?;
    }
    for KeyedRatio { size, to_open } in &rates.keyed {
        let ratio = to_open.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.median));
        out.line(format_args!("\n{size} bytes: keyed peers carry {ratio} times the messages of open ones"))?;
    }
    Ok(())
}

/// Prints the lines about the machines, a title and an empty line.
///
/// # Errors
/// The same as of [`Output::line`].
pub fn print_head(found: Option<&TestbedInfo>, title: impl fmt::Display, out: &mut Output) -> io::Result<()> {
    for line in found.iter().flat_map(|found| found.lines()) {
        out.line(line)?;
    }
    out.line(format_args!("{title}\n"))
}

/// Returns the duration and number of the runs, for people.
pub fn times(run: RunOptions) -> String {
    match run.runs {
        1 => format!("{:?}, once", run.secs),
        runs => format!("{:?} each, median of {runs} runs", run.secs),
    }
}

fn table(rows: &[ThroughputRow]) -> TextTable {
    let headers = [
        "per second",
        "min",
        "max",
        "MB/s",
        "sent",
        "received",
        "lost",
        "unverified",
        "dropped",
        "repaired",
        "kernel",
        "send ns",
        "recv ns",
    ];
    let mut columns = vec![Column::new("size"), Column::new("what").left()];
    columns.extend(headers.map(Column::new));
    let mut table = TextTable::new(&columns);
    for row in rows {
        let mut cells = vec![row.size.to_string(), row.what.to_owned()];
        match &row.unsupported {
            Some(why) => cells.extend([why.as_str()].into_iter().chain([""; 12]).map(str::to_owned)),
            None => cells.extend(cells_of(row)),
        }
        table.row(cells);
    }
    table
}

fn cells_of(row: &ThroughputRow) -> [String; 13] {
    let rate = |per_s: f64| format!("{per_s:.0}");
    // Only the kernel knows which raw datagrams were lost.
    let known = |text: String| if row.what.starts_with("raw_") { String::new() } else { text };
    [
        rate(row.per_s.median),
        rate(row.per_s.min),
        rate(row.per_s.max),
        format!("{:.1}", row.bytes_per_s / 1e6),
        row.sent.to_string(),
        row.received.to_string(),
        known(row.lost()),
        known(row.unverified.to_string()),
        row.dropped.to_string(),
        known(row.repaired.to_string()),
        row.kernel_drops.to_string(),
        format!("{:.0}", row.sender_ns),
        format!("{:.0}", row.receiver_ns),
    ]
}

fn ratio_table(ratios: &[Ratios]) -> TextTable {
    let headers = ["to raw plain", "to raw GSO", "to raw GSO/GRO", "raw GSO/GRO to plain"];
    let mut columns = vec![Column::new("size")];
    columns.extend(headers.map(Column::new));
    columns.push(Column::new("").left());
    let mut table = TextTable::new(&columns);
    for row in ratios {
        let all = [row.to_raw_plain, row.to_raw_gso, row.to_raw_gso_gro, row.raw_gso_gro_to_raw_plain];
        let cells = all.map(|spread| spread.map_or("-".to_owned(), |spread| format!("{:.2}", spread.median)));
        let void = if row.void.is_some() { "VOID" } else { "" };
        table.row([row.size.to_string()].into_iter().chain(cells).chain([void.to_owned()]).collect());
    }
    table
}
