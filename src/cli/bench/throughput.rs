//! `bench throughput` and `bench fanout`: the library and the raw rates in turn, within one run.

use std::io;

use serde::Serialize;

use super::args::{BenchPath, RawOptions, RunOptions, ThroughputOptions};
use super::job::Load;
use super::report::{Found, RAW_MODES, Ratios, Row};
use super::stage::{Case, Raw, Run, Stage};
use crate::cli::event::json as text;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{Output, note};
use crate::cli::table::{Column, Table};
use crate::time::nanos;

/// What was measured.
#[derive(Default)]
struct Rates {
    /// What was found where the programs ran.
    found: Option<Found>,
    /// One for each way and size.
    rows: Vec<Row>,
    /// One for each size.
    ratios: Vec<Ratios>,
}

impl Rates {
    /// Whether all is as it should be: nothing is unaccounted for, damaged, doubled or out of order.
    fn is_good(&self) -> bool {
        self.rows.iter().all(Row::is_good)
    }
}

/// Runs `bench throughput`.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run(options: &ThroughputOptions, out: &mut Output) -> Result<Exit, Failure> {
    run_to("throughput", options, 1, out)
}

/// Measures and prints what comes to so many subscribers.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run_to(verb: &str, options: &ThroughputOptions, subscribers: usize, out: &mut Output) -> Result<Exit, Failure> {
    let stage = Stage::new(&options.stage)?;
    let mut rates = Rates::default();
    for size in &options.size {
        let load = Load {
            bytes: *size,
            span_ns: nanos(options.run.secs),
            rate: options.rate.map(|rate| rate.0),
            subjects: 1,
            is_stamped: false,
        };
        let case = Case { load, subscribers, is_each: false, drop: 0.0 };
        measure(&stage, name(options.stage.path), &case, options.run, options.raw, &mut rates)?;
    }
    print(verb, options.stage.json, options.run, &stage, &rates, out)
}

/// The name of a path among the rows.
pub fn name(path: BenchPath) -> &'static str {
    match path {
        BenchPath::Library => "library",
        BenchPath::Threads => "threads",
        BenchPath::Daemon => "daemon",
    }
}

/// Runs a case and its raw rates in turn, as often as wanted, and enters them.
fn measure(
    stage: &Stage,
    what: &'static str,
    case: &Case,
    run: RunOptions,
    raw: RawOptions,
    rates: &mut Rates,
) -> Result<(), Failure> {
    let size = case.load.bytes;
    let mut library: Vec<Run> = Vec::new();
    let mut raws: Vec<RawRuns> = Vec::new();
    for _ in 0..run.runs {
        library.push(stage.library(case)?);
        let found = rates.found.get_or_insert_with(|| Found::by(&library[0]));
        if raws.is_empty() && !raw.no_raw {
            let bytes = raw_bytes(size, found.datagram_bytes);
            for (mode, what) in RAW_MODES {
                let raw = Raw { mode, bytes, receivers: case.subscribers, rate: None };
                raws.push(RawRuns { what, raw, rate: stage.raw_rate(&raw, run.secs)?, runs: Vec::new() });
            }
        }
        for raws in &mut raws {
            let Ok(rate) = raws.rate else { continue };
            match stage.raw(&Raw { rate, ..raws.raw }, run.secs)? {
                Ok(run) => {
                    found.enter_raw(raws.raw.mode, &run);
                    raws.runs.push(run);
                }
                Err(why) => raws.rate = Err(why),
            }
        }
    }
    let datagram_bytes = rates.found.as_ref().and_then(|found| found.datagram_bytes);
    let row = Row::of(what, size, datagram_bytes.unwrap_or(0), size, &library);
    let raws: Vec<Row> = raws.into_iter().map(|raws| raws.row(size)).collect();
    if let [plain, gso, gso_gro] = &raws[..] {
        rates.ratios.push(Ratios::of(&row, [plain, gso, gso_gro], raw.offloads_off));
    }
    rates.rows.extend(raws);
    rates.rows.push(row);
    Ok(())
}

/// What was measured in one raw way.
struct RawRuns {
    what: &'static str,
    raw: Raw,
    /// Datagrams a second, or why it cannot be done.
    rate: Result<Option<f64>, String>,
    runs: Vec<Run>,
}

impl RawRuns {
    fn row(self, size: usize) -> Row {
        let bytes = self.raw.bytes;
        match self.rate {
            Ok(rate) => Row { paced_per_s: rate, ..Row::of(self.what, size, bytes as u64, bytes, &self.runs) },
            Err(why) => Row::unsupported(self.what, size, why),
        }
    }
}

/// Bytes of a raw datagram that is to be compared with messages of `size` bytes: what is too large for one goes in several.
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
    found: &'a Option<Found>,
    rows: &'a [Row],
    ratios: &'a [Ratios],
}

/// Prints rates, and says how the command ends.
fn print(
    verb: &str,
    is_json: bool,
    run: RunOptions,
    stage: &Stage,
    rates: &Rates,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let (version, ok, secs) = (env!("CARGO_PKG_VERSION"), rates.is_good(), run.secs.as_secs_f64());
    let Rates { found, rows, ratios } = rates;
    let group = format!("{}:{}", stage.config.group, stage.config.port);
    match is_json {
        true => out.line(text(&RatesJson { verb, version, ok, secs, runs: run.runs, group, found, rows, ratios }))?,
        false => print_text(run, rates, out)?,
    }
    out.flush()?;
    verdict(rates)
}

/// Says what is void, and what does not add up.
fn verdict(rates: &Rates) -> Result<Exit, Failure> {
    for Ratios { size, void, .. } in &rates.ratios {
        if let Some(why) = void {
            note(format_args!("VOID ({size} bytes): {why}"));
            note("  fix: ethtool -K IFACE tx-udp-segmentation on; or say --offloads-off if they are off on purpose");
        }
    }
    rates.rows.iter().for_each(Row::complain);
    Ok(if rates.is_good() { Exit::Done } else { Exit::Failed })
}

fn print_text(run: RunOptions, rates: &Rates, out: &mut Output) -> io::Result<()> {
    for line in rates.found.iter().flat_map(Found::lines) {
        out.line(line)?;
    }
    out.line(format_args!("{}\n", times(run)))?;
    out.bytes(table(&rates.rows).to_string().as_bytes())?;
    if !rates.ratios.is_empty() {
        out.line("")?;
        out.bytes(ratio_table(&rates.ratios).to_string().as_bytes())?;
    }
    Ok(())
}

/// How long and how often, for people.
pub fn times(run: RunOptions) -> String {
    match run.runs {
        1 => format!("{:?}, once", run.secs),
        runs => format!("{:?} each, median of {runs} runs", run.secs),
    }
}

fn table(rows: &[Row]) -> Table {
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
    let mut table = Table::new(&columns);
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

fn cells_of(row: &Row) -> [String; 13] {
    let rate = |per_s: f64| format!("{per_s:.0}");
    // What of raw datagrams did not come is known to nobody but the kernel.
    let told = |text: String| if row.what.starts_with("raw_") { String::new() } else { text };
    [
        rate(row.per_s.median),
        rate(row.per_s.min),
        rate(row.per_s.max),
        format!("{:.1}", row.bytes_per_s / 1e6),
        row.sent.to_string(),
        row.received.to_string(),
        told(row.lost()),
        told(row.unverified.to_string()),
        row.dropped.to_string(),
        told(row.repaired.to_string()),
        row.kernel_drops.to_string(),
        format!("{:.0}", row.sender_ns),
        format!("{:.0}", row.receiver_ns),
    ]
}

fn ratio_table(ratios: &[Ratios]) -> Table {
    let headers = ["to raw plain", "to raw GSO", "to raw GSO/GRO", "raw GSO/GRO to plain"];
    let mut columns = vec![Column::new("size")];
    columns.extend(headers.map(Column::new));
    columns.push(Column::new("").left());
    let mut table = Table::new(&columns);
    for row in ratios {
        let all = [row.to_raw_plain, row.to_raw_gso, row.to_raw_gso_gro, row.raw_gso_gro_to_raw_plain];
        let cells = all.map(|spread| spread.map_or("-".to_owned(), |spread| format!("{:.2}", spread.median)));
        let void = if row.void.is_some() { "VOID" } else { "" };
        table.row([row.size.to_string()].into_iter().chain(cells).chain([void.to_owned()]).collect());
    }
    table
}
