//! `subjects`: the subjects of messages, with their rates: those that this host receives, or all that peers publish.

pub mod args;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use self::args::SubjectListOptions;
use super::connect;
use super::group_reports::{self, GroupPeer};
use super::subject_position::SubjectPosition;
use crate::bus::Bus;
use crate::clock::Clock;
use crate::subject::{Pattern, Subject};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{EscapedText, Output, note};
use crate::terminal::table::{Column, TextTable};

/// Subject of a stream of messages, and the epoch of its publisher: two peers may have one name.
type StreamKey = (String, String);

/// Position of a stream, and the number of its last message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SampledPosition {
    /// Name of the publisher; its epoch while its name is unknown.
    publisher: String,
    position: SubjectPosition,
    seq: String,
}

/// The positions of all streams at one time.
#[derive(Debug, Default)]
struct StreamSample {
    streams: BTreeMap<StreamKey, SampledPosition>,
    /// True if a report has more streams than the limit.
    omitted: bool,
    /// Epochs of the peers that gave their report.
    peers: BTreeSet<String>,
}

/// Runs `subjects`.
///
/// # Errors
/// The local peer cannot be reached, or does not answer.
pub fn run(options: &SubjectListOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let interrupt = Interrupt::watch()?;
    let bus = connect::attach(options.socket.as_ref(), "subjects")?;
    let mut peers = group_reports::peers(&bus)?;
    peers.retain(|peer| options.published || peer.is_local);
    let asked = peers.len();
    let first = sample(&bus, &peers, options, &interrupt)?;
    // A peer without a first report is not asked, and named, again: it would have no rates.
    peers.retain(|peer| first.peers.contains(&peer.epoch));
    let began = Clock::now().instant;
    interrupt.sleep(options.interval);
    if interrupt.is_raised() {
        return Err(CommandFailure::interrupted());
    }
    let second = sample(&bus, &peers, options, &interrupt)?;
    let rows = rates(&first, &second, Clock::now().instant.since(began));
    match options.json {
        true => out.line(json!({ "rows": rows }))?,
        false => out.bytes(table(&rows).to_string().as_bytes())?,
    }
    if second.omitted {
        note(format_args!("further subjects are not shown; --limit is {}", options.limit));
    }
    Ok(if second.peers.len() == asked { Exit::Done } else { Exit::Failed })
}

fn sample(
    bus: &Bus,
    peers: &[GroupPeer],
    options: &SubjectListOptions,
    interrupt: &Interrupt,
) -> Result<StreamSample, CommandFailure> {
    // One more than is shown, so that the sample knows whether there are more.
    let query = json!({ "show": "seqno", "limit": options.limit.saturating_add(1) });
    let reports = group_reports::query_all(bus, peers, &query, interrupt)?;
    let mut sample = StreamSample::default();
    for (peer, report) in &reports {
        sample.add(peer, report, options);
    }
    Ok(sample)
}

impl StreamSample {
    /// Adds the streams of one peer's report that the options ask for.
    fn add(&mut self, peer: &GroupPeer, report: &Value, options: &SubjectListOptions) {
        self.peers.insert(peer.epoch.clone());
        let rows = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
        // Rows of published subjects name no publisher.
        let wanted: Vec<&Value> = rows.iter().filter(|row| row["epoch"].is_null() == options.published).collect();
        self.omitted |= options.limit < wanted.len();
        for row in wanted.into_iter().take(options.limit) {
            let Some(subject) = row["subject"].as_str().filter(|subject| is_match(options.pattern.as_ref(), subject))
            else {
                continue;
            };
            let (epoch, name) = match row["epoch"].as_str() {
                Some(epoch) => (epoch, row["publisher"].as_str().unwrap_or(epoch)),
                None => (peer.epoch.as_str(), peer.name.as_str()),
            };
            let position = SampledPosition {
                publisher: name.to_owned(),
                position: SubjectPosition::of(row),
                seq: row["seq"].as_str().unwrap_or_default().to_owned(),
            };
            self.streams.insert((subject.to_owned(), epoch.to_owned()), position);
        }
    }
}

fn is_match(pattern: Option<&Pattern>, subject: &str) -> bool {
    pattern.is_none_or(|pattern| subject.parse::<Subject>().is_ok_and(|subject| pattern.matches(&subject)))
}

/// Returns a row for each stream of the second sample, the fastest first.
fn rates(first: &StreamSample, second: &StreamSample, elapsed: Duration) -> Vec<Value> {
    let messages = |key: &StreamKey, now: &SampledPosition| match first.streams.get(key) {
        Some(before) => Some(now.position.messages_since(before.position)),
        // The first sample may have left the stream out.
        None if first.omitted => None,
        // The stream began after the first sample.
        None => Some(now.position.count),
    };
    let mut rows: Vec<(Option<u64>, Value)> = second
        .streams
        .iter()
        .map(|(key, now)| {
            let messages = messages(key, now);
            let rate = messages.map(|messages| messages as f64 / elapsed.as_secs_f64().max(f64::EPSILON));
            let row = json!({
                "publisher": now.publisher,
                "epoch": key.1,
                "subject": key.0,
                "seq": now.seq,
                "messages": messages,
                "rate": rate.map(|rate| (rate * 10.0).round() / 10.0),
            });
            (messages, row)
        })
        .collect();
    rows.sort_by_key(|(messages, _)| std::cmp::Reverse(*messages));
    rows.into_iter().map(|(_, row)| row).collect()
}

fn table(rows: &[Value]) -> TextTable {
    let columns = [
        Column::new("subject").left(),
        Column::new("publisher").left(),
        Column::new("messages/s"),
        Column::new("last"),
    ];
    let mut table = TextTable::new(&columns);
    for row in rows {
        let text = |field: &str| EscapedText(row[field].as_str().unwrap_or_default().as_bytes()).to_string();
        let rate = row["rate"].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        table.row(vec![text("subject"), text("publisher"), rate, text("seq")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_the_messages_between_two_samples() {
        let sample = |streams: &[(&str, u64, u64)]| StreamSample {
            streams: streams
                .iter()
                .map(|(subject, frame, count)| {
                    let position = SubjectPosition { frame: *frame, count: *count };
                    let sampled = SampledPosition { publisher: "A".to_owned(), position, seq: format!("{count}") };
                    (((*subject).to_owned(), "a".to_owned()), sampled)
                })
                .collect(),
            ..StreamSample::default()
        };
        let first = sample(&[("idle", 1, 5), ("fast", 1, 100), ("frame", 1, 900)]);
        let second = sample(&[("idle", 1, 5), ("fast", 1, 300), ("frame", 2, 40), ("new", 1, 6)]);
        let rows = rates(&first, &second, Duration::from_secs(2));
        let found: Vec<_> = rows.iter().map(|row| (row["subject"].as_str().unwrap(), &row["rate"])).collect();
        assert_eq!(
            found,
            [("fast", &json!(100.0)), ("frame", &json!(20.0)), ("new", &json!(3.0)), ("idle", &json!(0.0))]
        );
    }
}
