//! `bench subjects`: the cost of a message with many subjects, which are used for publishing in turn.

use std::io;

use serde::Serialize;

use super::args::{LoadOptions, RunOptions, SubjectsOptions};
use super::job::{Load, Window};
use super::report::{RunStats, TestbedInfo, ThroughputRow};
use super::testbed::{BenchRun, LoadCase, Testbed};
use super::throughput::{name, print_head, times};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::Output;
use crate::terminal::output::json;
use crate::terminal::table::{Column, TextTable};
use crate::time::nanos;

/// Maximum size of the windows of subjects: a million subjects fit.
const WINDOW_MAX: &str = "1 gb";

/// Result for one number of subjects.
#[derive(Clone, Debug, Serialize)]
struct SubjectsRow {
    subjects: u64,
    #[serde(flatten)]
    row: ThroughputRow,
    /// Time for each message, in nanoseconds.
    message_ns: f64,
    /// Ratio to the time with the first number of subjects, run by run.
    to_first: Option<RunStats>,
    /// The publisher's window of subjects.
    publisher_window: Window,
    /// The subscriber's window of subjects.
    subscriber_window: Window,
}

impl SubjectsRow {
    fn of(subjects: u64, row: ThroughputRow, first: Option<&SubjectsRow>, runs: &[BenchRun]) -> SubjectsRow {
        let last = runs.last();
        let subscriber_window = last.and_then(|run| run.received.first()).map(|report| report.window);
        SubjectsRow {
            subjects,
            message_ns: if 0.0 < row.per_s.median { 1e9 / row.per_s.median } else { 0.0 },
            to_first: first.map_or(Some(RunStats::of([1.0])), |first| first.row.ratio(&row)),
            row,
            publisher_window: last.map(|run| run.sent.window).unwrap_or_default(),
            subscriber_window: subscriber_window.unwrap_or_default(),
        }
    }
}

/// The answer with `--json`.
#[derive(Serialize)]
struct SubjectsJson<'a> {
    verb: &'a str,
    version: &'a str,
    ok: bool,
    secs: f64,
    runs: u32,
    each: bool,
    found: &'a Option<TestbedInfo>,
    rows: &'a [SubjectsRow],
}

/// Runs `bench subjects`.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run(options: &SubjectsOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let LoadOptions { rate, run, testbed: programs } = &options.load;
    let subjects_max = options.subjects.iter().max().expect("there is one").to_string();
    let mut more = vec![("pub-window-max", WINDOW_MAX), ("sub-window-max", WINDOW_MAX)];
    if options.each {
        more.extend([("client-subscriptions-max", &*subjects_max), ("subscriptions-max", &*subjects_max)]);
    }
    let testbed = Testbed::with(programs, &more)?;
    let case = |subjects| {
        let span_ns = nanos(run.secs);
        let rate = rate.map(|rate| rate.0);
        let load = Load { bytes: options.size, span_ns, rate, subjects, is_stamped: false };
        LoadCase { load, subscribers: 1, is_each: options.each, drop: 0.0, is_keyed: false }
    };
    let mut runs: Vec<Vec<BenchRun>> = options.subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..run.runs {
        for (subjects, runs) in options.subjects.iter().zip(&mut runs) {
            runs.push(testbed.library(&case(*subjects))?);
        }
    }
    let found = runs[0].first().map(TestbedInfo::from_run);
    let datagram_bytes = found.as_ref().and_then(|found| found.datagram_bytes).unwrap_or(0);
    let mut rows: Vec<SubjectsRow> = Vec::new();
    for (subjects, runs) in options.subjects.iter().zip(&runs) {
        let row = ThroughputRow::of(name(programs.path), options.size, datagram_bytes, options.size, runs);
        rows.push(SubjectsRow::of(*subjects, row, rows.first(), runs));
    }
    let ok = rows.iter().all(|cost| cost.row.is_good());
    match programs.json {
        true => out.line(json(&SubjectsJson {
            verb: "subjects",
            version: env!("CARGO_PKG_VERSION"),
            ok,
            secs: run.secs.as_secs_f64(),
            runs: run.runs,
            each: options.each,
            found: &found,
            rows: &rows,
        }))?,
        false => print(*run, found.as_ref(), &rows, out)?,
    }
    out.flush()?;
    rows.iter().for_each(|cost| cost.row.report_problems());
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

fn print(run: RunOptions, found: Option<&TestbedInfo>, rows: &[SubjectsRow], out: &mut Output) -> io::Result<()> {
    print_head(found, times(run), out)?;
    let headers = [
        "subjects",
        "per second",
        "min",
        "max",
        "ns",
        "to first",
        "send ns",
        "recv ns",
        "sent",
        "received",
        "lost",
        "unverified",
        "dropped",
        "pub MB",
        "window",
        "sub MB",
        "window",
    ];
    let mut table = TextTable::new(&headers.map(Column::new));
    let mega = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    for SubjectsRow { subjects, row, message_ns, to_first, publisher_window, subscriber_window } in rows {
        table.row(vec![
            subjects.to_string(),
            format!("{:.0}", row.per_s.median),
            format!("{:.0}", row.per_s.min),
            format!("{:.0}", row.per_s.max),
            format!("{message_ns:.0}"),
            to_first.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.median)),
            format!("{:.0}", row.sender_ns),
            format!("{:.0}", row.receiver_ns),
            row.sent.to_string(),
            row.received.to_string(),
            row.lost(),
            row.unverified.to_string(),
            row.dropped.to_string(),
            mega(row.sender_rss_bytes),
            mega(publisher_window.bytes),
            mega(row.receiver_rss_bytes),
            mega(subscriber_window.bytes),
        ]);
    }
    out.bytes(table.to_string().as_bytes())
}
