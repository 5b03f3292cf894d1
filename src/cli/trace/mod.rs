//! `trace`: what each peer of the group has received of a subject, to how many clients it delivers it, and what it lost.

pub mod args;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::args::TraceOptions;
use super::connect;
use super::group_reports::{self, GroupPeer};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{EscapedText, Output};
use crate::terminal::table::{Column, TextTable};

const COLUMNS: [Column; 8] = [
    Column::new("peer").left(),
    Column::new("publisher").left(),
    Column::new("last"),
    Column::new("behind"),
    Column::new("clients"),
    Column::new("lost"),
    Column::new("repaired"),
    Column::new("pending"),
];

/// Runs `trace`.
///
/// # Errors
/// The local peer cannot be reached, or does not answer.
pub fn run(options: &TraceOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let interrupt = Interrupt::watch()?;
    let bus = connect::attach(options.socket.as_ref(), "trace")?;
    let peers = group_reports::peers(&bus)?;
    let query = json!({ "show": "subject", "subject": options.subject.as_str() });
    let reports = group_reports::query_all(&bus, &peers, &query, &interrupt)?;
    // A peer without the first report is not asked, and named, again.
    let answered: Vec<GroupPeer> = reports.iter().map(|(peer, _)| (*peer).clone()).collect();
    let losses = group_reports::query_all(&bus, &answered, &json!({ "show": "loss" }), &interrupt)?;
    let rows = rows(&reports, &losses);
    match options.json {
        true => out.line(json!({ "subject": options.subject.as_str(), "rows": rows }))?,
        false if rows.is_empty() => {
            out.line(format_args!("no peer publishes or has received {}", options.subject))?;
        }
        false => out.bytes(table(&rows).to_string().as_bytes())?,
    }
    Ok(if losses.len() == peers.len() { Exit::Done } else { Exit::Failed })
}

/// Joins the reports of all peers: a row for each publisher, then one for each receiver of it.
fn rows(reports: &[(&GroupPeer, Value)], losses: &[(&GroupPeer, Value)]) -> Vec<Value> {
    let published: BTreeMap<&str, (&str, &Value)> = reports
        .iter()
        .map(|(peer, report)| (peer.epoch.as_str(), (peer.name.as_str(), &report["subject"]["published"])))
        .filter(|(_, (_, last))| last.is_object())
        .collect();
    let mut rows: Vec<Value> = published
        .values()
        .map(|(name, last)| json!({ "peer": name, "publisher": name, "state": "published", "seq": last["seq"] }))
        .collect();
    for (peer, report) in reports {
        let of_peer = losses.iter().find(|(of, _)| of.epoch == peer.epoch).map_or(&Value::Null, |(_, report)| report);
        for received in report["subject"]["received"].as_array().into_iter().flatten() {
            let epoch = received["epoch"].as_str().unwrap_or_default();
            let publisher = published.get(epoch);
            let loss = of_publisher(of_peer, epoch);
            rows.push(json!({
                "peer": peer.name,
                // The receiver may not know the name yet, nor may the publisher have answered.
                "publisher": publisher.map(|(name, _)| *name).or(received["publisher"].as_str()).unwrap_or(epoch),
                "state": "received",
                "seq": received["seq"],
                "behind": publisher.and_then(|(_, last)| behind(last, received)),
                "clients": report["subject"]["clients"],
                "lost": loss["lost"],
                "repaired": loss["repaired"]["count"],
                "pending": loss["datagrams"]["pending"],
            }));
        }
    }
    rows
}

/// Returns the row of a publisher in `show loss`.
fn of_publisher<'r>(report: &'r Value, epoch: &str) -> &'r Value {
    let mut rows = report["rows"].as_array().into_iter().flatten();
    rows.find(|row| row["epoch"] == epoch).unwrap_or(&Value::Null)
}

/// Returns the number of messages between two numbers of one frame; `None` if their frames differ. The sample of the
/// receiver may be the later one.
fn behind(published: &Value, received: &Value) -> Option<u64> {
    if published["frame"] != received["frame"] {
        return None;
    }
    Some(published["count"].as_u64()?.saturating_sub(received["count"].as_u64()?))
}

fn table(rows: &[Value]) -> TextTable {
    let mut table = TextTable::new(&COLUMNS);
    for row in rows {
        let fields = ["peer", "publisher", "seq", "behind", "clients", "lost", "repaired", "pending"];
        table.row(fields.map(|field| cell(&row[field])).to_vec());
    }
    table
}

/// Returns the text of a cell; a count that is not exact is an interval.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => EscapedText(text.as_bytes()).to_string(),
        Value::Object(count) => format!("{}..{}", count["min"], count["max"]),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_all_peers_are_joined() {
        let publisher = json!({ "subject": { "clients": 0, "received": [],
            "published": { "seq": "0x09", "frame": 1, "count": 9 } } });
        let receiver = json!({ "subject": { "clients": 2, "published": null, "received": [
            { "publisher": null, "epoch": "a", "seq": "0x07", "frame": 1, "count": 7 },
            { "publisher": "Y", "epoch": "y", "seq": "0x02", "frame": 1, "count": 2 },
            { "publisher": null, "epoch": "z", "seq": "0x03", "frame": 1, "count": 3 }] } });
        let loss = json!({ "rows": [
            { "epoch": "a", "lost": { "min": 1, "max": 2 }, "repaired": { "count": 4 }, "datagrams": { "pending": 5 } }] });
        let peer = |name: &str, epoch: &str| GroupPeer {
            name: name.into(),
            epoch: epoch.into(),
            is_local: false,
            is_silent: false,
        };
        let (a, b) = (peer("A", "a"), peer("B", "b"));
        let rows = rows(&[(&a, publisher), (&b, receiver)], &[(&b, loss)]);
        let expected = "\
peer | publisher | last | behind | clients | lost | repaired | pending
-----+-----------+------+--------+---------+------+----------+--------
A    | A         | 0x09 |      - |       - |    - |        - |       -
B    | A         | 0x07 |      2 |       2 | 1..2 |        4 |       5
B    | Y         | 0x02 |      - |       2 |    - |        - |       -
B    | z         | 0x03 |      - |       2 |    - |        - |       -
";
        assert_eq!(table(&rows).to_string(), expected);
    }
}
