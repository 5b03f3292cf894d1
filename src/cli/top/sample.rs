//! The reports of a peer at one time, and the tables that two such samples give.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::args::TopView;
use crate::bus::Bus;
use crate::cli::subject_position::SubjectPosition;
use crate::clock::Clock;
use crate::message::PeerRef;
use crate::terminal::exit::CommandFailure;
use crate::terminal::output::{EscapedText, pluralize};
use crate::terminal::peer;
use crate::terminal::table::{Column, TextTable};
use crate::time::Instant;

/// Maximum number of subjects of each direction.
const SUBJECTS_MAX: usize = 1000;
/// The reports of a sample.
const REPORTS: [&str; 7] = ["status", "health", "peers", "loss", "clients", "seqno", "history"];
/// Bytes that the report `history` counts for each message beside payload, headers and reply subject.
const HISTORY_EVENT_BYTES: u64 = 42;

/// The reports of a peer at one time.
#[derive(Clone, Debug)]
pub(super) struct TopSample {
    at: Instant,
    reports: BTreeMap<&'static str, Value>,
}

impl TopSample {
    /// Asks a peer for its reports: the local one, or another one by way of it.
    ///
    /// # Errors
    /// The peer does not answer, or refuses.
    pub(super) fn take(bus: &Bus, other: Option<&PeerRef>) -> Result<TopSample, CommandFailure> {
        let mut reports = BTreeMap::new();
        for name in REPORTS {
            let query = json!({ "show": name, "limit": SUBJECTS_MAX });
            let report = match other {
                Some(other) => peer::show_of(bus, other, &query)?,
                None => peer::show(bus, query)?,
            };
            reports.insert(name, report);
        }
        Ok(TopSample { at: Clock::now().instant, reports })
    }

    /// Returns a sample without reports.
    pub(super) fn empty() -> TopSample {
        TopSample { at: Instant::from_nanos(0), reports: BTreeMap::new() }
    }

    /// Adds the rows of the peers of the LAN.
    pub(super) fn set_lan(&mut self, rows: Vec<Value>) {
        self.reports.insert("lan", json!({ "rows": rows }));
    }

    fn rows(&self, report: &str) -> &[Value] {
        self.reports.get(report).and_then(|report| report["rows"].as_array()).map_or(&[], Vec::as_slice)
    }

    fn object(&self, report: &str) -> &Value {
        self.reports.get(report).map_or(&Value::Null, |answer| &answer[report])
    }

    /// Returns the first line: the peer, its group, and the state of its health.
    pub(super) fn heading(&self) -> String {
        let (status, health) = (self.object("status"), self.object("health"));
        let up = self.rows("peers").iter().filter(|row| row["state"] == "up").count();
        let lost: u64 = self.rows("loss").iter().map(|row| number(row, "/msg_loss/count")).sum();
        format!(
            "{}  {} port {} on {}  health {}  {} up, {}, {} lost",
            text(status, "/name"),
            text(status, "/group"),
            status["port"],
            text(status, "/interface"),
            text(health, "/state"),
            pluralize(up as u64, "peer"),
            pluralize(self.rows("clients").len() as u64, "client"),
            pluralize(lost, "message"),
        )
    }
}

/// A cell: its text, and the number by which it is ordered, if it is one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopCell {
    pub(super) text: String,
    number: Option<f64>,
}

impl TopCell {
    fn text(text: String) -> TopCell {
        TopCell { text, number: None }
    }

    fn count(count: u64) -> TopCell {
        TopCell { text: count.to_string(), number: Some(count as f64) }
    }

    /// A count; `None` if it is unknown.
    fn optional_count(count: Option<u64>) -> TopCell {
        count.map_or(TopCell { text: "-".to_owned(), number: Some(-1.0) }, TopCell::count)
    }

    /// A number a second; `None` if it is unknown yet.
    fn rate(rate: Option<f64>) -> TopCell {
        let text = rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        TopCell { text, number: Some(rate.unwrap_or(-1.0)) }
    }

    fn compare(&self, other: &TopCell) -> Ordering {
        match (self.number, other.number) {
            (Some(left), Some(right)) => left.total_cmp(&right),
            _ => self.text.cmp(&other.text),
        }
    }
}

/// A view with its rows.
#[derive(Clone, Debug)]
pub(super) struct TopTable {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<TopCell>>,
    /// Column by which the view is ordered at first, from the largest number.
    pub(super) order: usize,
}

impl TopTable {
    /// Returns the table of a view. Rates need an earlier sample.
    pub(super) fn new(view: TopView, now: &TopSample, before: Option<&TopSample>) -> TopTable {
        match view {
            TopView::Peers => peers(now, before),
            TopView::Subjects => subjects(now, before),
            TopView::Loss => losses(now),
            TopView::Clients => clients(now, before),
            TopView::Listeners => listeners(now, before),
            TopView::Lan => lan(now),
        }
    }

    /// Keeps the rows of which a cell contains the text.
    pub(super) fn filter(&mut self, text: &str) {
        self.rows.retain(|row| row.iter().any(|cell| cell.text.contains(text)));
    }

    /// Orders the rows by a column.
    pub(super) fn sort(&mut self, column: usize, is_descending: bool) {
        self.rows.sort_by(|left, right| match is_descending {
            true => right[column].compare(&left[column]),
            false => left[column].compare(&right[column]),
        });
    }

    /// Returns the table as text.
    pub(super) fn to_text(&self) -> TextTable {
        let mut table = TextTable::new(&self.columns);
        for row in &self.rows {
            table.row(row.iter().map(|cell| cell.text.clone()).collect());
        }
        table
    }
}

/// Returns a field as text that is safe for a terminal; `-` if there is none.
fn text(row: &Value, pointer: &str) -> String {
    match row.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => EscapedText(text.as_bytes()).to_string(),
        Some(other) => other.to_string(),
    }
}

fn number(row: &Value, pointer: &str) -> u64 {
    row.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// Returns the increase of a field a second since the earlier sample, for the row with the same key. `None` if the
/// earlier sample has no such row.
fn rate(now: &TopSample, before: Option<&TopSample>, report: &str, row: &Value, key: &str, field: &str) -> Option<f64> {
    let before = before?;
    let old = before.rows(report).iter().find(|old| old.pointer(key) == row.pointer(key))?;
    Some(per_second(number(row, field).saturating_sub(number(old, field)), now.at.since(before.at)))
}

/// Returns the mean size of the messages in a row of the report `history`: payload, headers and reply subject, in bytes.
fn mean_bytes(row: &Value) -> Option<f64> {
    let (count, bytes) = (number(row, "/count"), number(row, "/bytes"));
    (count != 0).then(|| bytes.saturating_sub(HISTORY_EVENT_BYTES * count) as f64 / count as f64)
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64().max(0.001)
}

fn peers(now: &TopSample, before: Option<&TopSample>) -> TopTable {
    let columns = [
        Column::new("peer").left(),
        Column::new("address").left(),
        Column::new("state").left(),
        Column::new("msgs/s"),
        Column::new("datagrams/s"),
        Column::new("lost"),
        Column::new("unverified"),
    ];
    let rows = now.rows("peers").iter().map(|row| {
        let rate = |field| TopCell::rate(rate(now, before, "peers", row, "/epoch", field));
        vec![
            TopCell::text(text(row, if row["publisher"].is_null() { "/epoch" } else { "/publisher" })),
            TopCell::text(text(row, "/address")),
            TopCell::text(text(row, "/state")),
            rate("/messages_in"),
            rate("/datagrams_in"),
            TopCell::count(number(row, "/lost")),
            TopCell::count(number(row, "/unverified")),
        ]
    });
    TopTable { columns: columns.to_vec(), rows: rows.collect(), order: 3 }
}

fn subjects(now: &TopSample, before: Option<&TopSample>) -> TopTable {
    let columns = [
        Column::new("subject").left(),
        Column::new("publisher").left(),
        Column::new("msgs/s"),
        Column::new("bytes/s"),
        Column::new("count"),
        Column::new("last"),
    ];
    let kept: BTreeMap<&str, &Value> =
        now.rows("history").iter().filter_map(|row| Some((row["subject"].as_str()?, row))).collect();
    let key = |row: &Value| (row["epoch"].to_string(), row["subject"].to_string());
    let earlier: BTreeMap<(String, String), &Value> =
        before.into_iter().flat_map(|before| before.rows("seqno")).map(|row| (key(row), row)).collect();
    let own = text(now.object("status"), "/name");
    let rows = now.rows("seqno").iter().map(|row| {
        let rate = before.and_then(|before| {
            let old = earlier.get(&key(row))?;
            let messages = SubjectPosition::of(row).messages_since(SubjectPosition::of(old));
            Some(per_second(messages, now.at.since(before.at)))
        });
        let publisher = match (row["publisher"].is_string(), row["epoch"].is_string()) {
            (true, _) => text(row, "/publisher"),
            (false, true) => text(row, "/epoch"),
            (false, false) => own.clone(),
        };
        // Only the history of the publisher knows the sizes of its messages.
        let kept = row["subject"].as_str().filter(|_| row["epoch"].is_null()).and_then(|subject| kept.get(subject));
        vec![
            TopCell::text(text(row, "/subject")),
            TopCell::text(publisher),
            TopCell::rate(rate),
            TopCell::rate(rate.zip(kept.and_then(|row| mean_bytes(row))).map(|(rate, bytes)| rate * bytes)),
            TopCell::count(number(row, "/count")),
            TopCell::text(text(row, "/seq")),
        ]
    });
    TopTable { columns: columns.to_vec(), rows: rows.collect(), order: 2 }
}

fn losses(now: &TopSample) -> TopTable {
    let columns = [
        Column::new("publisher").left(),
        Column::new("lost"),
        Column::new("repaired"),
        Column::new("pending"),
        Column::new("unverified"),
        Column::new("kernel"),
        Column::new("reasons").left(),
    ];
    let rows = now.rows("loss").iter().map(|row| {
        let reasons = row["reasons"].as_object().into_iter().flatten();
        let reasons: Vec<String> = reasons.map(|(reason, count)| format!("{reason} {count}")).collect();
        vec![
            TopCell::text(text(row, if row["publisher"].is_null() { "/user" } else { "/publisher" })),
            TopCell::count(number(row, "/msg_loss/count")),
            TopCell::count(number(row, "/repaired/count")),
            TopCell::count(number(row, "/datagrams/pending")),
            TopCell::count(number(row, "/unverified/count")),
            TopCell::count(number(row, "/overrun")),
            TopCell::text(reasons.join(", ")),
        ]
    });
    TopTable { columns: columns.to_vec(), rows: rows.collect(), order: 1 }
}

fn clients(now: &TopSample, before: Option<&TopSample>) -> TopTable {
    let columns = [
        Column::new("client").left(),
        Column::new("by").left(),
        Column::new("out/s"),
        Column::new("in/s"),
        Column::new("queued"),
        Column::new("bytes"),
        Column::new("dropped"),
    ];
    let rows = now.rows("clients").iter().map(|row| {
        let rate = |field| TopCell::rate(rate(now, before, "clients", row, "/client", field));
        let by = if row["listener"].is_null() { "local".to_owned() } else { text(row, "/listener") };
        vec![
            TopCell::text(format!("{} {}", row["client"], text(row, "/name"))),
            TopCell::text(by),
            rate("/delivered"),
            rate("/published"),
            TopCell::count(number(row, "/queued")),
            TopCell::count(number(row, "/queued_bytes")),
            TopCell::count(number(row, "/dropped")),
        ]
    });
    TopTable { columns: columns.to_vec(), rows: rows.collect(), order: 2 }
}

fn listeners(now: &TopSample, before: Option<&TopSample>) -> TopTable {
    let columns = [
        Column::new("listener").left(),
        Column::new("address").left(),
        Column::new("clients"),
        Column::new("accepted/s"),
        Column::new("refused"),
        Column::new("unauthorized"),
    ];
    let listeners = |sample: &TopSample| -> Vec<Value> {
        let status = sample.object("status");
        let mut all = status["listeners"].as_array().cloned().unwrap_or_default();
        let others = [&status["streams"], &status["http"]];
        all.extend(others.into_iter().filter(|listener| listener.is_object()).cloned());
        all
    };
    let earlier = before.map(listeners).unwrap_or_default();
    let rows = listeners(now).into_iter().map(|row| {
        let old = earlier.iter().find(|old| old["address"] == row["address"]);
        let rate = before.zip(old).map(|(before, old)| {
            per_second(number(&row, "/accepted").saturating_sub(number(old, "/accepted")), now.at.since(before.at))
        });
        vec![
            TopCell::text(text(&row, "/listener")),
            TopCell::text(text(&row, "/address")),
            TopCell::count(number(&row, "/clients")),
            TopCell::rate(rate),
            TopCell::count(number(&row, "/refused")),
            TopCell::count(number(&row, "/unauthorized")),
        ]
    });
    TopTable { columns: columns.to_vec(), rows: rows.collect(), order: 2 }
}

fn lan(now: &TopSample) -> TopTable {
    let columns = [
        Column::new("peer").left(),
        Column::new("health").left(),
        Column::new("out/s"),
        Column::new("in/s"),
        Column::new("clients"),
        Column::new("lost"),
        Column::new("repaired"),
        Column::new("pending"),
        Column::new("note").left(),
    ];
    let rows = now.rows("lan").iter().map(|row| {
        let count = |name: &str| TopCell::optional_count(row[name].as_u64());
        let note = match (row["reason"].is_string(), row["worst"].is_string()) {
            (true, _) => text(row, "/reason"),
            (false, true) => format!("most of {}", text(row, "/worst")),
            (false, false) => String::new(),
        };
        vec![
            TopCell::text(text(row, "/name")),
            TopCell::text(text(row, "/health")),
            TopCell::rate(row["published_rate"].as_f64()),
            TopCell::rate(row["delivered_rate"].as_f64()),
            count("clients"),
            count("lost"),
            count("repaired"),
            count("pending"),
            TopCell::text(note),
        ]
    });
    TopTable { columns: columns.to_vec(), rows: rows.collect(), order: 5 }
}

#[cfg(test)]
impl TopSample {
    /// Returns a sample of these reports, `millis` after the start.
    pub(super) fn example(millis: u64, reports: &[(&'static str, Value)]) -> TopSample {
        TopSample { at: Instant::from_nanos(millis * 1_000_000), reports: reports.iter().cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqno(rows: &[(&str, u64, u64)]) -> (&'static str, Value) {
        let row = |(subject, frame, count): &(&str, u64, u64)| json!({ "subject": subject, "frame": frame, "count": count, "seq": "0x1" });
        ("seqno", json!({ "rows": rows.iter().map(row).collect::<Vec<Value>>() }))
    }

    fn texts(table: &TopTable, column: usize) -> Vec<&str> {
        table.rows.iter().map(|row| row[column].text.as_str()).collect()
    }

    #[test]
    fn rates_are_taken_between_two_samples() {
        let status = ("status", json!({ "status": { "name": "A" } }));
        let history = ("history", json!({ "rows": [{ "subject": "a", "count": 4, "bytes": 4 * (42 + 100) }] }));
        let before = TopSample::example(0, &[seqno(&[("a", 1, 5), ("b", 1, 7)]), status.clone()]);
        let now = TopSample::example(2_000, &[seqno(&[("a", 1, 25), ("b", 2, 4), ("new", 1, 1)]), status, history]);
        let mut table = TopTable::new(TopView::Subjects, &now, Some(&before));
        table.sort(table.order, true);
        assert_eq!((texts(&table, 0), texts(&table, 2)), (vec!["a", "b", "new"], vec!["10.0", "2.0", "-"]));
        assert_eq!((texts(&table, 1), texts(&table, 3)), (vec!["A", "A", "A"], vec!["1000.0", "-", "-"]));
        table.filter("ne");
        assert_eq!(texts(&table, 0), ["new"]);
    }

    #[test]
    fn peers_without_report_come_last() {
        let mut sample = TopSample::empty();
        let row = |name: &str, lost: u64| json!({ "name": name, "lost": lost, "worst": "P", "health": "ok" });
        let silent = json!({ "name": "silent", "reason": "no answer came in time" });
        sample.set_lan(vec![row("A", 0), silent, row("B", 10), row("C", 9)]);
        let mut table = TopTable::new(TopView::Lan, &sample, None);
        table.sort(table.order, true);
        assert_eq!(texts(&table, 0), ["B", "C", "A", "silent"]);
        assert_eq!(table.rows[3].iter().map(|cell| cell.text.as_str()).filter(|text| *text == "-").count(), 7);
        assert_eq!((texts(&table, 8)[0], texts(&table, 8)[3]), ("most of P", "no answer came in time"));
    }

    #[test]
    fn numbers_are_ordered_as_numbers() {
        let row = |name: &str, lost: u64| json!({ "publisher": name, "msg_loss": { "count": lost } });
        let sample = TopSample::example(0, &[("loss", json!({ "rows": [row("A", 9), row("B", 10), row("C", 0)] }))]);
        let mut table = TopTable::new(TopView::Loss, &sample, None);
        table.sort(1, true);
        assert_eq!(texts(&table, 0), ["B", "A", "C"]);
        table.sort(0, false);
        assert_eq!(texts(&table, 0), ["A", "B", "C"]);
    }
}
