//! `show`: a peer's answers as tables of text, or unchanged as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::{ShowOptions, ShowReport};
use super::bus_options::PeerOptions;
use super::connect;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{EscapedText, Output, note};
use crate::terminal::peer;
use crate::terminal::table::{Column, TextTable};

/// Runs `show`.
///
/// # Errors
/// The peer cannot be reached, or does not know the report.
pub fn run(options: &ShowOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let peer = PeerOptions { socket: options.socket.clone(), ..PeerOptions::default() };
    let bus = peer::attach(&connect::socket(&peer)?, "show")?;
    let answer = peer::show(&bus, query(&options.what))?;
    match options.json {
        true => out.line(&answer)?,
        false => out.bytes(text(&options.what, &answer).as_bytes())?,
    }
    if let Some(omitted) = answer["omitted"].as_u64().filter(|omitted| 0 < *omitted) {
        note(format_args!("{omitted} more rows are not shown"));
    }
    Ok(Exit::Done)
}

fn query(what: &ShowReport) -> Value {
    match what {
        ShowReport::Loss { outbound: true, .. } => json!({ "show": "outbound" }),
        ShowReport::History { pattern: None, limit } => json!({ "show": "history", "limit": limit }),
        ShowReport::History { pattern: Some(pattern), limit } => {
            json!({ "show": "history", "pattern": pattern.as_str(), "limit": limit })
        }
        ShowReport::Status => json!({ "show": "status" }),
        ShowReport::Loss { .. } => json!({ "show": "loss" }),
        ShowReport::Peers => json!({ "show": "peers" }),
        ShowReport::Subs => json!({ "show": "subs" }),
        ShowReport::Interest => json!({ "show": "interest" }),
        ShowReport::Seqno { limit } => json!({ "show": "seqno", "limit": limit }),
        ShowReport::Windows => json!({ "show": "windows" }),
        ShowReport::Counters => json!({ "show": "counters" }),
        ShowReport::Clients => json!({ "show": "clients" }),
    }
}

/// Returns a peer's answer as text: one table, or several with an empty line between them.
fn text(what: &ShowReport, answer: &Value) -> String {
    let first = table(what, answer).to_string();
    match what {
        ShowReport::Loss { verbose: true, .. } => {
            let [messages, datagrams] = [LOSS_MESSAGES, LOSS_DATAGRAMS].map(|cells| rows(cells, answer));
            format!(
                "{first}\nmessages\n{messages}\ndatagrams: missing = repaired + pending + lost + unverified\n{datagrams}"
            )
        }
        ShowReport::History { .. } => format!("{first}\n{}", fields("all subjects", TOTALS, &answer["totals"])),
        ShowReport::Status => {
            let status = &answer["status"];
            let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
            let mut listeners = list(&status["listeners"]);
            listeners.extend(Some(&status["streams"]).filter(|streams| !streams.is_null()).cloned());
            let tables = [(LISTENERS, listeners), (FOLLOWED, list(&status["events"]["followed"]))];
            let behind = tables.into_iter().filter(|(_, of)| !of.is_empty());
            let behind = behind.map(|(cells, of)| format!("\n{}", rows(cells, &json!({ "rows": of }))));
            [first].into_iter().chain(behind).collect()
        }
        _ => first,
    }
}

/// Returns a peer's answer as the table of the report, or the first one of several.
pub fn table(what: &ShowReport, answer: &Value) -> TextTable {
    let cells: &[(Column, Cell)] = match what {
        ShowReport::Status => return fields("this peer", STATUS, &answer["status"]),
        ShowReport::Loss { outbound: false, .. } => LOSS,
        ShowReport::Loss { outbound: true, .. } => OUTBOUND,
        ShowReport::History { .. } => HISTORY,
        ShowReport::Peers => PEERS,
        ShowReport::Subs => SUBS,
        ShowReport::Interest => INTEREST,
        ShowReport::Seqno { .. } => SEQNO,
        ShowReport::Windows => WINDOWS,
        ShowReport::Counters => COUNTERS,
        ShowReport::Clients => CLIENTS,
    };
    rows(cells, answer)
}

/// Returns a table with a row for each row of the answer.
fn rows(cells: &[(Column, Cell)], answer: &Value) -> TextTable {
    let columns: Vec<Column> = cells.iter().map(|(column, _)| *column).collect();
    let mut table = TextTable::new(&columns);
    for row in answer["rows"].as_array().map_or(&[][..], Vec::as_slice) {
        table.row(cells.iter().map(|(_, cell)| cell.text(row)).collect());
    }
    table
}

/// Returns a table of a single object: a row for each of its fields.
fn fields(heading: &'static str, fields: &[(&str, Cell)], about: &Value) -> TextTable {
    let mut table = TextTable::new(&[Column::new(heading).left(), Column::new("").left()]);
    for (heading, cell) in fields {
        table.row(vec![(*heading).to_owned(), cell.text(about)]);
    }
    table
}

/// Content of a cell.
#[derive(Clone, Copy)]
enum Cell {
    /// The field at this JSON pointer, unchanged; empty if it is null.
    Field(&'static str),
    /// The same, or the second text if the field is absent.
    FieldOr(&'static str, &'static str),
    /// A span of time in milliseconds.
    Span(&'static str),
    /// A text that needs a rule of its own.
    Rule(fn(&Value) -> String),
}

impl Cell {
    fn text(self, row: &Value) -> String {
        match self {
            Cell::Field(place) => field(row, place),
            Cell::FieldOr(place, otherwise) => match field(row, place) {
                text if text.is_empty() => otherwise.to_owned(),
                text => text,
            },
            Cell::Span(place) => row.pointer(place).and_then(Value::as_u64).map_or(String::new(), span),
            Cell::Rule(rule) => rule(row),
        }
    }
}

use Cell::{Field, FieldOr, Rule, Span};

const STATUS: &[(&str, Cell)] = &[
    ("name", Field("/name")),
    ("epoch", Field("/epoch")),
    ("state", Field("/phase")),
    ("up", Span("/uptime_ms")),
    ("version", Field("/version")),
    ("pid", Field("/pid")),
    ("mode", Field("/mode")),
    ("group", Field("/group")),
    ("port", Field("/port")),
    ("inbox", Field("/inbox")),
    ("interface", Field("/interface")),
    ("address", Field("/address")),
    ("chosen", Field("/interface_why")),
    ("mtu", Field("/mtu")),
    ("socket", FieldOr("/socket", "-")),
    ("clients", Field("/clients")),
    ("send queue", Field("/send_queue")),
    ("datagram max", Field("/datagram_bytes")),
    ("message max", Field("/message_bytes_max")),
    ("receive buffer", Rule(|about| granted(about, "receive_buffer"))),
    ("send buffer", Rule(|about| granted(about, "send_buffer"))),
    ("offloads", Rule(offloads)),
    ("event server", FieldOr("/events/server", "-")),
    ("journal", FieldOr("/events/journal", "-")),
];

/// Seed 002, "Show loss": the columns and their order.
const LOSS: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("repeat"), Field("/repeat/count")),
    (Column::new("rep time"), Field("/repeat/time")),
    (Column::new("not sub"), Field("/not_sub/count")),
    (Column::new("not time"), Field("/not_sub/time")),
    (Column::new("msg loss").wide(9), Rule(messages_lost)),
    (Column::new("loss time"), Field("/msg_loss/time")),
    (Column::new("ibx loss"), Field("/ibx_loss/count")),
    (Column::new("ibx time"), Field("/ibx_loss/time")),
];

const LOSS_MESSAGES: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("repaired"), Field("/repaired/count")),
    (Column::new("repair time"), Field("/repaired/time")),
    (Column::new("unverified"), Field("/unverified/count")),
    (Column::new("unv time"), Field("/unverified/time")),
    (Column::new("reasons").left(), Rule(reasons)),
];

const LOSS_DATAGRAMS: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("range"), Rule(range)),
    (Column::new("delivered"), Field("/datagrams/delivered")),
    (Column::new("held"), Field("/datagrams/held")),
    (Column::new("missing"), Field("/datagrams/missing")),
    (Column::new("repaired"), Field("/datagrams/repaired")),
    (Column::new("pending"), Field("/datagrams/pending")),
    (Column::new("lost"), Field("/datagrams/lost")),
    (Column::new("unverified"), Field("/datagrams/unverified")),
    (Column::new("kernel"), Field("/overrun")),
];

/// Missing, repaired, pending and unverified are datagrams; lost are messages.
const OUTBOUND: &[(Column, Cell)] = &[
    (Column::new("receiver"), Field("/user")),
    (Column::new("missing"), Field("/missing")),
    (Column::new("repaired"), Field("/repaired")),
    (Column::new("pending"), Field("/pending")),
    (Column::new("unverified"), Field("/unverified")),
    (Column::new("msg loss"), Rule(|row| counted(&row["lost"]))),
    (Column::new("time"), Field("/time")),
];

const HISTORY: &[(Column, Cell)] = &[
    (Column::new("subject").left(), Field("/subject")),
    (Column::new("events"), Field("/count")),
    (Column::new("bytes"), Field("/bytes")),
    (Column::new("n0"), Field("/n0")),
    (Column::new("n1"), Field("/n1")),
    (Column::new("first seq"), Field("/first_seq")),
    (Column::new("last seq"), Field("/last_seq")),
    (Column::new("oldest"), Field("/oldest")),
    (Column::new("newest"), Field("/newest")),
];

const TOTALS: &[(&str, Cell)] = &[
    ("subjects", Field("/subjects")),
    ("events", Field("/events")),
    ("bytes", Rule(|totals| format!("{} of at most {}", totals["bytes"], totals["bytes_max"]))),
    ("replaced", Field("/replaced")),
    ("expired", Field("/expired")),
    ("evicted", Field("/evicted")),
    ("too large", Field("/too_large")),
];

const PEERS: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("name").left(), Rule(peer_name)),
    (Column::new("address").left(), Field("/address")),
    (Column::new("state"), Rule(peer_state)),
    (Column::new("up"), Span("/uptime_ms")),
    (Column::new("heard"), Span("/last_heard_ms")),
    (Column::new("msgs in"), Field("/messages_in")),
    (Column::new("datagrams"), Field("/datagrams_in")),
    (Column::new("lost"), Field("/lost")),
    (Column::new("unverified"), Field("/unverified")),
];

const SUBS: &[(Column, Cell)] = &[
    (Column::new("client"), Field("/client")),
    (Column::new("name").left(), Field("/name")),
    (Column::new("sub"), Field("/sub")),
    (Column::new("pattern").left(), Field("/pattern")),
    (Column::new("glob").left(), Field("/glob")),
    (Column::new("queue").left(), Field("/queue")),
    (Column::new("mode").left(), Field("/mode")),
    (Column::new("deliveries"), Field("/deliveries")),
];

const INTEREST: &[(Column, Cell)] = &[
    (Column::new("peer").left(), Field("/publisher")),
    (Column::new("pattern").left(), Field("/pattern")),
    (Column::new("glob").left(), Field("/glob")),
    (Column::new("queue").left(), Field("/queue")),
    (Column::new("subscriptions"), Field("/subscriptions")),
    (Column::new("complete").left(), Field("/complete")),
];

/// Rows without a publisher concern this peer's own messages.
const SEQNO: &[(Column, Cell)] = &[
    (Column::new("user"), FieldOr("/user", "-")),
    (Column::new("subject").left(), Field("/subject")),
    (Column::new("last seq"), Field("/seq")),
    (Column::new("frame start"), Field("/frame_start")),
    (Column::new("count"), Field("/count")),
];

const WINDOWS: &[(Column, Cell)] = &[
    (Column::new("window").left(), Field("/window")),
    (Column::new("subjects"), Field("/subjects")),
    (Column::new("bytes"), Field("/bytes")),
    (Column::new("size"), Field("/size")),
    (Column::new("limit"), Field("/bytes_max")),
    (Column::new("time"), Span("/time_ms")),
    (Column::new("rotations"), Field("/rotations")),
    (Column::new("evicted"), Field("/evicted")),
];

const COUNTERS: &[(Column, Cell)] = &[
    (Column::new("counter").left(), Field("/counter")),
    (Column::new("value"), Field("/value")),
    (Column::new("meaning").left(), Field("/meaning")),
];

const CLIENTS: &[(Column, Cell)] = &[
    (Column::new("client"), Field("/client")),
    (Column::new("name").left(), Field("/name")),
    (Column::new("listener").left(), FieldOr("/listener", "-")),
    (Column::new("address").left(), FieldOr("/address", "-")),
    (Column::new("account").left(), FieldOr("/account", "-")),
    (Column::new("pid"), FieldOr("/pid", "-")),
    (Column::new("connected"), Span("/connected_ms")),
    (Column::new("published"), Field("/published")),
    (Column::new("delivered"), Field("/delivered")),
    (Column::new("dropped"), Field("/dropped")),
    (Column::new("queued"), Field("/queued")),
    (Column::new("bytes"), Field("/queued_bytes")),
    (Column::new("unread"), Field("/unread_bytes")),
];

const FOLLOWED: &[(Column, Cell)] = &[
    (Column::new("followed server"), Field("/server")),
    (Column::new("peer").left(), FieldOr("/peer", "-")),
    (Column::new("session"), Field("/session")),
    (Column::new("state").left(), Rule(|row| row["state"].as_str().unwrap_or("-").replace('_', " "))),
];

const LISTENERS: &[(Column, Cell)] = &[
    (Column::new("listener").left(), Field("/listener")),
    (Column::new("address").left(), Field("/address")),
    (Column::new("tls").left(), FieldOr("/tls", "-")),
    (Column::new("accounts"), Field("/accounts")),
    (Column::new("clients"), Field("/clients")),
    (Column::new("accepted"), Field("/accepted")),
    (Column::new("refused"), Field("/refused")),
    (Column::new("waited"), FieldOr("/kept_waiting", "-")),
    (Column::new("unauthorized"), FieldOr("/unauthorized", "-")),
    (Column::new("faults"), FieldOr("/faults", "-")),
    (Column::new("slow"), FieldOr("/slow", "-")),
    (Column::new("evicted"), Field("/evicted")),
];

fn field(row: &Value, place: &str) -> String {
    match row.pointer(place) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => EscapedText(text.as_bytes()).to_string(),
        Some(value) => value.to_string(),
    }
}

/// Returns the size of a buffer, and the wanted size if that is larger.
fn granted(about: &Value, buffer: &str) -> String {
    let wanted = &about[format!("{buffer}_wanted")];
    match about[buffer].as_u64() < wanted.as_u64() {
        true => format!("{} of {wanted} wanted", about[buffer]),
        false => about[buffer].to_string(),
    }
}

/// Returns the kernel's offloads for many datagrams at once.
fn offloads(about: &Value) -> String {
    let used = ["gso", "gro"].into_iter().filter(|name| about["offloads"][*name] == true);
    match used.collect::<Vec<_>>() {
        none if none.is_empty() => "none".into(),
        used => used.join(", "),
    }
}

fn messages_lost(row: &Value) -> String {
    let least = row.pointer("/msg_loss/count").and_then(Value::as_u64).unwrap_or(0);
    match row["msg_loss_uncertain"].as_u64() {
        None | Some(0) => least.to_string(),
        Some(more) => format!("{least}..{}", least + more),
    }
}

/// Returns a number, or both bounds if it is not known exactly.
fn counted(count: &Value) -> String {
    match count.as_object() {
        None => count.to_string(),
        Some(bounds) => format!("{}..{}", bounds["min"], bounds["max"]),
    }
}

/// Returns the reasons such as `DEADLINE 12, EXPIRED 1`.
fn reasons(row: &Value) -> String {
    let counts = row["reasons"].as_object().into_iter().flatten();
    counts.map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<String>>().join(", ")
}

fn range(row: &Value) -> String {
    format!("{}..{}", field(row, "/datagrams/baseline"), field(row, "/datagrams/high"))
}

fn peer_name(row: &Value) -> String {
    let note = if row["duplicate_name"] == true { " (name used twice)" } else { "" };
    format!("{}{note}", FieldOr("/publisher", "?").text(row))
}

fn peer_state(row: &Value) -> String {
    let deaf = if row["multicast_dead"] == true { ", no multicast" } else { "" };
    let left = row["left_behind"]["for_ms"].as_u64().map_or(String::new(), |millis| {
        let why = FieldOr("/left_behind/why", "?").text(row);
        format!(", left behind for {} ({why})", span(millis))
    });
    format!("{}{deaf}{left}", field(row, "/state"))
}

/// Returns a span of time in at most two units, such as `2d 3h`, `4m 5s` or `7.1s`.
fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, _) => format!("{:.1}s", Duration::from_millis(millis).as_secs_f64()),
        (0, 0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes}m"),
        (days, hours, ..) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of seed 002, "Show loss", to the byte.
    const SEED: &str = "\
user | repeat | rep time | not sub | not time |  msg loss |   loss time  | ibx loss | ibx time
-----+--------+----------+---------+----------+-----------+--------------+----------+---------
 B.1 |      0 |          |       0 |          |         0 |              |        0 |         
 D.3 |      0 |          |       0 |          |       766 | 20:42:24.431 |        0 |         
 C.4 |      0 |          |       0 |          |         0 |              |        0 |         
";

    const LOSS_PLAIN: ShowReport = ShowReport::Loss { verbose: false, outbound: false };
    const LOSS_IN_FULL: ShowReport = ShowReport::Loss { verbose: true, outbound: false };

    fn text_of_the_seed(row: &Value) -> String {
        text(&LOSS_PLAIN, &json!({ "rows": [row] }))
    }

    #[test]
    fn show_loss_prints_the_table_of_the_seed() {
        let mut rows = ["B.1", "D.3", "C.4"].map(row);
        rows[1]["msg_loss"] = json!({ "count": 766, "time": "20:42:24.431" });
        assert_eq!(text(&LOSS_PLAIN, &json!({ "show": "loss", "rows": rows })), SEED);
    }

    #[test]
    fn every_column_of_show_loss_has_its_own_number() {
        let mut row = row("sensor-7.12");
        row["repeat"] = json!({ "count": 1_000_000, "time": "01:02:03.000" });
        row["not_sub"] = json!({ "count": 22, "time": "01:02:04.000" });
        row["msg_loss"] = json!({ "count": 5, "time": "01:02:05.000" });
        row["msg_loss_uncertain"] = json!(4);
        row["ibx_loss"] = json!({ "count": 7, "time": "01:02:06.000" });
        let text = text_of_the_seed(&row);
        assert_eq!(
            text,
            "\
\x20   user    |  repeat |   rep time   | not sub |   not time   |  msg loss |   loss time  | ibx loss |   ibx time  \n\
            ------------+---------+--------------+---------+--------------+-----------+--------------+----------+-------------\n\
            sensor-7.12 | 1000000 | 01:02:03.000 |      22 | 01:02:04.000 |      5..9 | 01:02:05.000 |        7 | 01:02:06.000\n"
        );
    }

    #[test]
    fn show_loss_in_full_shows_where_every_datagram_went() {
        let mut row = row("B.1");
        row["repaired"] = json!({ "count": 77, "time": "00:00:02.000" });
        row["unverified"] = json!({ "count": 9, "time": "00:00:01.000" });
        row["reasons"] = json!({ "DEADLINE": 12, "EXPIRED": 1 });
        row["overrun"] = json!(3);
        row["datagrams"] = json!({
            "baseline": 10, "high": 110, "delivered": 90, "held": 1, "missing": 14, "repaired": 5, "pending": 2,
            "lost": 3, "unverified": 4,
        });
        let text = text(&LOSS_IN_FULL, &json!({ "rows": [row] }));
        let lines: Vec<&str> = text.lines().collect();
        let cells = |line: usize| lines[line].split('|').map(str::trim).collect::<Vec<&str>>();
        assert_eq!(lines[..3].join("\n") + "\n", text_of_the_seed(&row), "the seed's table stays as it is");
        assert_eq!(cells(7), ["B.1", "77", "00:00:02.000", "9", "00:00:01.000", "DEADLINE 12, EXPIRED 1"]);
        assert_eq!(lines[9], "datagrams: missing = repaired + pending + lost + unverified");
        assert_eq!(cells(12), ["B.1", "10..110", "90", "1", "14", "5", "2", "3", "4", "3"]);
    }

    #[test]
    fn show_loss_outbound_has_a_row_for_each_receiver() {
        let row = |lost: Value| {
            json!({
                "user": "B.1", "missing": 7, "repaired": 4, "pending": 1, "unverified": 2, "lost": lost,
                "time": "00:00:01.000",
            })
        };
        let answer = json!({ "rows": [row(json!(3)), row(json!({ "min": 3, "max": 5 }))] });
        assert_eq!(
            text(&ShowReport::Loss { verbose: false, outbound: true }, &answer),
            "\
receiver | missing | repaired | pending | unverified | msg loss |     time    
---------+---------+----------+---------+------------+----------+-------------
     B.1 |       7 |        4 |       1 |          2 |        3 | 00:00:01.000
     B.1 |       7 |        4 |       1 |          2 |     3..5 | 00:00:01.000
"
        );
    }

    #[test]
    fn show_history_ends_with_the_sums() {
        let answer = json!({
            "rows": [{
                "subject": "a.b", "count": 3, "bytes": 129, "n0": 5, "n1": 7, "first_seq": "0x1", "last_seq": "0x3",
                "oldest": "00:00:01.000", "newest": "00:00:02.000",
            }],
            "totals": {
                "subjects": 1, "events": 3, "bytes": 1000, "bytes_max": 2000, "replaced": 4, "expired": 5, "evicted": 6,
                "too_large": 7,
            },
        });
        assert_eq!(
            text(&ShowReport::History { pattern: None, limit: 1 }, &answer),
            "\
subject | events | bytes | n0 | n1 | first seq | last seq |    oldest    |    newest   
--------+--------+-------+----+----+-----------+----------+--------------+-------------
a.b     |      3 |   129 |  5 |  7 |       0x1 |      0x3 | 00:00:01.000 | 00:00:02.000

all subjects | 
-------------+---------------------
subjects     | 1
events       | 3
bytes        | 1000 of at most 2000
replaced     | 4
expired      | 5
evicted      | 6
too large    | 7
"
        );
    }

    #[test]
    fn what_is_not_there_is_blank_or_said() {
        let rows = json!({ "rows": [{ "subject": "a.b", "seq": "0x1", "count": 1 }] });
        let text = table(&ShowReport::Seqno { limit: 1 }, &rows).to_string();
        assert_eq!(text.lines().nth(2), Some("   - | a.b     |      0x1 |             |     1"));
        let rows = json!({ "rows": [{ "user": "?.1", "publisher": null, "duplicate_name": true, "state": "up", "multicast_dead": true, "left_behind": { "for_ms": 2500, "why": "slow" } }] });
        let text = table(&ShowReport::Peers, &rows).to_string();
        assert!(
            text.contains("? (name used twice)") && text.contains("up, no multicast, left behind for 2.5s (slow)"),
            "{text}"
        );
        assert_eq!(table(&ShowReport::Subs, &json!({})).to_string().lines().count(), 2);
    }

    #[test]
    fn the_status_has_a_row_for_each_field() {
        let about = json!({
            "name": "A.test", "uptime_ms": 61_000, "socket": null,
            "receive_buffer": 10, "receive_buffer_wanted": 20, "send_buffer": 20, "send_buffer_wanted": 20,
            "offloads": { "gso": true, "gro": true }, "events": { "server": 7 },
        });
        let text = table(&ShowReport::Status, &json!({ "show": "status", "status": about })).to_string();
        for row in ["name           | A.test\n", "up             | 1m 1s\n", "socket         | -\n"] {
            assert!(text.contains(row), "{row:?} is not in {text}");
        }
        assert!(
            text.ends_with("receive buffer | 10 of 20 wanted\nsend buffer    | 20\noffloads       | gso, gro\nevent server   | 7\njournal        | -\n"),
            "{text}"
        );
    }

    #[test]
    fn the_status_of_a_peer_with_listeners_has_a_table_of_them() {
        let listener = json!({
            "listener": "nats", "address": "127.0.0.1:4222", "tls": null, "accounts": 2, "clients": 3, "accepted": 9,
            "refused": 1, "kept_waiting": 7, "unauthorized": 4, "faults": 5, "slow": 6, "evicted": 8,
        });
        let shown = |listeners: Value| {
            text(&ShowReport::Status, &json!({ "show": "status", "status": { "listeners": listeners } }))
        };
        assert!(shown(json!([listener])).ends_with(
            "
listener | address        | tls | accounts | clients | accepted | refused | waited | unauthorized | faults | slow | evicted
---------+----------------+-----+----------+---------+----------+---------+--------+--------------+--------+------+--------
nats     | 127.0.0.1:4222 | -   |        2 |       3 |        9 |       1 |      7 |            4 |      5 |    6 |       8
"
        ));
        assert!(!shown(json!([])).contains("listener"));
        let streams = json!({
            "listener": "ftn18", "address": "127.0.0.1:8181", "tls": "required", "accounts": 0, "clients": 1, "accepted": 2, "refused": 0,
            "evicted": 1,
        });
        let status = json!({ "show": "status", "status": { "listeners": [], "streams": streams } });
        assert!(text(&ShowReport::Status, &status).ends_with(
            "
listener | address        | tls      | accounts | clients | accepted | refused | waited | unauthorized | faults | slow | evicted
---------+----------------+----------+----------+---------+----------+---------+--------+--------------+--------+------+--------
ftn18    | 127.0.0.1:8181 | required |        0 |       1 |        2 |       0 |      - |            - |      - |    - |       1
"
        ));
    }

    #[test]
    fn the_status_of_a_peer_that_follows_others_has_a_table_of_them() {
        let followed = json!([
            { "server": 7, "peer": "A.test", "session": 40, "state": "live" },
            { "server": 12, "peer": null, "session": 0, "state": "catching_up" },
        ]);
        let status = json!({ "show": "status", "status": { "listeners": [], "events": { "followed": followed } } });
        assert!(text(&ShowReport::Status, &status).ends_with(
            "
followed server | peer   | session | state
----------------+--------+---------+------------
              7 | A.test |      40 | live
             12 | -      |       0 | catching up
"
        ));
    }

    #[test]
    fn spans_have_two_units() {
        assert_eq!([500, 61_000, 3_700_000, 90_000_000].map(span), ["0.5s", "1m 1s", "1h 1m", "1d 1h"]);
    }

    fn row(user: &str) -> Value {
        let none = json!({ "count": 0, "time": null });
        json!({ "user": user, "repeat": none, "not_sub": none, "msg_loss": none, "msg_loss_uncertain": 0, "ibx_loss": none })
    }
}
