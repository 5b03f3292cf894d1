//! The columns and fields of each report, with the content of their cells.

use std::time::Duration;

use serde_json::Value;

use crate::cli::loss_text::{cause_code_text, reason_code_text};
use crate::terminal::output::EscapedText;
use crate::terminal::table::Column;

/// Content of a cell.
#[derive(Clone, Copy)]
pub(super) enum Cell {
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
    pub(super) fn text(self, row: &Value) -> String {
        match self {
            Cell::Field(pointer) => field(row, pointer),
            Cell::FieldOr(pointer, otherwise) => match field(row, pointer) {
                text if text.is_empty() => otherwise.to_owned(),
                text => text,
            },
            Cell::Span(pointer) => row.pointer(pointer).and_then(Value::as_u64).map_or(String::new(), span),
            Cell::Rule(rule) => rule(row),
        }
    }
}

use Cell::{Field, FieldOr, Rule, Span};

pub(super) const STATUS: &[(&str, Cell)] = &[
    ("name", Field("/name")),
    ("epoch", Field("/epoch")),
    ("state", Field("/phase")),
    ("up", Span("/uptime_ms")),
    ("version", Field("/version")),
    ("pid", Field("/pid")),
    ("security", Rule(security)),
    ("realm", Field("/realm")),
    ("cipher", Field("/cipher")),
    ("origin", Field("/origin")),
    ("revoked hosts", Rule(revoked_hosts)),
    ("group", Field("/group")),
    ("port", Field("/port")),
    ("transport", Rule(transport)),
    ("inbox", Field("/inbox")),
    ("interface", Field("/interface")),
    ("address", Field("/address")),
    ("chosen", Field("/interface_reason")),
    ("mtu", Field("/mtu")),
    ("socket", FieldOr("/socket", "-")),
    ("configuration", FieldOr("/config_file", "-")),
    ("loaded", Field("/config_loaded")),
    ("needs restart", Rule(|status| names(&status["restart_needed"]))),
    ("clients", Field("/clients")),
    ("send queue", Field("/send_queue")),
    ("datagram max", Field("/datagram_bytes")),
    ("message max", Field("/message_bytes_max")),
    ("receive buffer", Rule(|status| granted(status, "receive_buffer"))),
    ("send buffer", Rule(|status| granted(status, "send_buffer"))),
    ("offloads", Rule(offloads)),
    ("event server", FieldOr("/events/server", "-")),
    ("journal", FieldOr("/events/journal", "-")),
];

/// Seed 002, "Show loss": the columns and their order.
pub(super) const LOSS: &[(Column, Cell)] = &[
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

/// Messages that were missed, of the publishers for which there are some.
pub(super) const LOSS_SHARES: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("missed"), Rule(|row| missed(row).to_string())),
    (Column::new("repaired"), Rule(|row| share(row, row["repaired"]["count"].as_u64()))),
    (Column::new("lost"), Rule(|row| share(row, messages_lost_max(row)))),
    (Column::new("unverified"), Rule(|row| share(row, row["unverified"]["count"].as_u64()))),
];

/// A row without a subject counts messages whose subjects are not known, or not counted one by one.
pub(super) const LOSS_BY_SUBJECT: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("subject").left(), Rule(subject_of_loss)),
    (Column::new("lost"), Rule(|row| counted(&row["lost"]))),
    (Column::new("repaired"), Field("/repaired")),
    (Column::new("unverified"), Field("/unverified")),
    (Column::new("pending datagrams"), Field("/pending_datagrams")),
    (Column::new("loss time"), Field("/time")),
    (Column::new("reason").left(), Rule(|row| reason_code_text(&field(row, "/reason")).to_owned())),
    (Column::new("cause").left(), Rule(|row| cause_code_text(&field(row, "/cause")).to_owned())),
];

pub(super) const LOSS_MESSAGES: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("repaired"), Field("/repaired/count")),
    (Column::new("repair time"), Field("/repaired/time")),
    (Column::new("unverified"), Field("/unverified/count")),
    (Column::new("unv time"), Field("/unverified/time")),
    (Column::new("reasons").left(), Rule(reasons)),
];

pub(super) const LOSS_DATAGRAMS: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("range"), Rule(range)),
    (Column::new("delivered"), Field("/datagrams/delivered")),
    (Column::new("buffered"), Field("/datagrams/buffered")),
    (Column::new("missing"), Field("/datagrams/missing")),
    (Column::new("repaired"), Field("/datagrams/repaired")),
    (Column::new("pending"), Field("/datagrams/pending")),
    (Column::new("lost"), Field("/datagrams/lost")),
    (Column::new("unverified"), Field("/datagrams/unverified")),
    (Column::new("kernel"), Field("/overrun")),
];

/// Missing, repaired, pending and unverified are datagrams; the losses are messages.
pub(super) const OUTBOUND: &[(Column, Cell)] = &[
    (Column::new("receiver"), Field("/user")),
    (Column::new("missing"), Field("/missing")),
    (Column::new("repaired"), Field("/repaired")),
    (Column::new("pending"), Field("/pending")),
    (Column::new("unverified"), Field("/unverified")),
    (Column::new("msg loss"), Rule(|row| counted(&row["lost"]))),
    (Column::new("ibx loss"), Field("/inbox_lost")),
    (Column::new("time"), Field("/time")),
];

pub(super) const HISTORY: &[(Column, Cell)] = &[
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

pub(super) const TOTALS: &[(&str, Cell)] = &[
    ("subjects", Field("/subjects")),
    ("events", Field("/events")),
    ("bytes", Rule(|totals| format!("{} of at most {}", totals["bytes"], totals["bytes_max"]))),
    ("replaced", Field("/replaced")),
    ("expired", Field("/expired")),
    ("evicted", Field("/evicted")),
    ("too large", Field("/too_large")),
];

/// Column of the names in certificates, which peers in open mode do not have.
pub(super) const MEMBER: Column = Column::new("member").left();
/// The column of the proofs of origin, which only keyed peers have.
pub(super) const ORIGIN: Column = Column::new("origin");

pub(super) const PEERS: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("name").left(), Rule(peer_name)),
    (MEMBER, Field("/member")),
    (Column::new("address").left(), Field("/address")),
    (Column::new("state"), Rule(peer_state)),
    (Column::new("up"), Span("/uptime_ms")),
    (Column::new("last heard"), Span("/last_heard_ms")),
    (Column::new("msgs in"), Field("/messages_in")),
    (Column::new("datagrams"), Field("/datagrams_in")),
    (Column::new("lost"), Field("/lost")),
    (Column::new("unverified"), Field("/unverified")),
    (Column::new("repaired"), Rule(peer_repaired)),
    (ORIGIN, FieldOr("/origin", "-")),
];

pub(super) const SKEW: &[(Column, Cell)] = &[
    (Column::new("user"), Field("/user")),
    (Column::new("name").left(), Rule(peer_name)),
    (Column::new("address").left(), Field("/address")),
    (Column::new("state"), Field("/state")),
    (Column::new("clock"), Rule(clock)),
    (Column::new("measured"), Rule(measured)),
];

pub(super) const SUBS: &[(Column, Cell)] = &[
    (Column::new("client"), Field("/client")),
    (Column::new("name").left(), Field("/name")),
    (Column::new("sub"), Field("/sub")),
    (Column::new("pattern").left(), Field("/pattern")),
    (Column::new("glob").left(), Field("/glob")),
    (Column::new("queue").left(), Field("/queue")),
    (Column::new("mode").left(), Field("/mode")),
    (Column::new("deliveries"), Field("/deliveries")),
];

pub(super) const INTEREST: &[(Column, Cell)] = &[
    (Column::new("peer").left(), Field("/publisher")),
    (Column::new("pattern").left(), Field("/pattern")),
    (Column::new("glob").left(), Field("/glob")),
    (Column::new("queue").left(), Field("/queue")),
    (Column::new("subscriptions"), Field("/subscriptions")),
    (Column::new("complete").left(), Field("/complete")),
];

/// Rows without a publisher concern this peer's own messages.
pub(super) const SEQNO: &[(Column, Cell)] = &[
    (Column::new("user"), FieldOr("/user", "-")),
    (Column::new("subject").left(), Field("/subject")),
    (Column::new("last seq"), Field("/seq")),
    (Column::new("frame start"), Field("/frame_start")),
    (Column::new("count"), Field("/count")),
];

pub(super) const WINDOWS: &[(Column, Cell)] = &[
    (Column::new("window").left(), Field("/window")),
    (Column::new("subjects"), Field("/subjects")),
    (Column::new("bytes"), Field("/bytes")),
    (Column::new("size"), Field("/size")),
    (Column::new("limit"), Field("/bytes_max")),
    (Column::new("time"), Span("/time_ms")),
    (Column::new("rotations"), Field("/rotations")),
    (Column::new("evicted"), FieldOr("/evicted", "-")),
];

pub(super) const COUNTERS: &[(Column, Cell)] = &[
    (Column::new("counter").left(), Field("/counter")),
    (Column::new("value"), Field("/value")),
    (Column::new("meaning").left(), Field("/meaning")),
];

pub(super) const CLIENTS: &[(Column, Cell)] = &[
    (Column::new("client"), Field("/client")),
    (Column::new("name").left(), Field("/name")),
    (Column::new("listener").left(), FieldOr("/listener", "-")),
    (Column::new("address").left(), FieldOr("/address", "-")),
    (Column::new("account").left(), FieldOr("/account", "-")),
    (Column::new("user").left(), Rule(user)),
    (Column::new("pid"), FieldOr("/pid", "-")),
    (Column::new("path").left(), FieldOr("/path", "-")),
    (Column::new("connected"), Span("/connected_ms")),
    (Column::new("published"), Field("/published")),
    (Column::new("delivered"), Field("/delivered")),
    (Column::new("dropped"), Field("/dropped")),
    (Column::new("queued"), Field("/queued")),
    (Column::new("bytes"), Field("/queued_bytes")),
    (Column::new("unread"), Field("/unread_bytes")),
    (Column::new("denied"), FieldOr("/denied", "-")),
];

pub(super) const FOLLOWED: &[(Column, Cell)] = &[
    (Column::new("followed server"), Field("/server")),
    (Column::new("peer").left(), FieldOr("/peer", "-")),
    (Column::new("session"), Field("/session")),
    (Column::new("state").left(), Rule(|row| row["state"].as_str().unwrap_or("-").replace('_', " "))),
];

pub(super) const LISTENERS: &[(Column, Cell)] = &[
    (Column::new("listener").left(), Field("/listener")),
    (Column::new("address").left(), Field("/address")),
    (Column::new("tls").left(), FieldOr("/tls", "-")),
    (Column::new("accounts"), Field("/accounts")),
    (Column::new("clients"), Field("/clients")),
    (Column::new("accepted"), Field("/accepted")),
    (Column::new("refused"), Field("/refused")),
    (Column::new("accept failures"), FieldOr("/accept_failures", "-")),
    (Column::new("unauthorized"), FieldOr("/unauthorized", "-")),
    (Column::new("denied"), FieldOr("/denied", "-")),
    (Column::new("faults"), FieldOr("/faults", "-")),
    (Column::new("slow"), FieldOr("/slow", "-")),
    (Column::new("evicted"), Field("/evicted")),
];

/// Returns the name of a local client's user, or else its id.
fn user(row: &Value) -> String {
    match field(row, "/user") {
        name if name.is_empty() => FieldOr("/user_id", "-").text(row),
        name => name,
    }
}

pub(super) fn field(row: &Value, pointer: &str) -> String {
    match row.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => EscapedText(text.as_bytes()).to_string(),
        Some(value) => value.to_string(),
    }
}

/// Returns the size of a buffer, and the wanted size if that is larger.
fn granted(status: &Value, buffer: &str) -> String {
    let wanted = &status[format!("{buffer}_wanted")];
    match status[buffer].as_u64() < wanted.as_u64() {
        true => format!("{} of {wanted} wanted", status[buffer]),
        false => status[buffer].to_string(),
    }
}

/// Returns the kernel's offloads: for many datagrams at once, and for the peer's own multicasts.
fn offloads(status: &Value) -> String {
    let used = ["gso", "gro", "filter"].into_iter().filter(|name| status["offloads"][*name] == true);
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

/// Returns names, or `-` without any.
pub(super) fn names(list: &Value) -> String {
    let names: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// Returns a number, or both bounds if it is not known exactly.
pub(super) fn counted(count: &Value) -> String {
    match count.as_object() {
        None => count.to_string(),
        Some(bounds) if bounds["max"].is_null() => format!("{}..", bounds["min"]),
        Some(bounds) => format!("{}..{}", bounds["min"], bounds["max"]),
    }
}

/// Returns whether messages of the publisher were missed.
pub(super) fn is_any_missed(row: &Value) -> bool {
    0 < missed(row)
}

/// Returns the number of messages that were missing at first; the upper bound, if it is not known exactly.
fn missed(row: &Value) -> u64 {
    let counts = [row["repaired"]["count"].as_u64(), messages_lost_max(row), row["unverified"]["count"].as_u64()];
    counts.into_iter().flatten().fold(0, u64::saturating_add)
}

fn messages_lost_max(row: &Value) -> Option<u64> {
    row["lost"]["max"].as_u64().or(row["lost"].as_u64())
}

/// Returns a number of messages, with its share of the missed ones: `3 (30.0 %)`.
fn share(row: &Value, part: Option<u64>) -> String {
    with_percent(part.unwrap_or(0), missed(row))
}

/// Returns the messages of a peer that were repaired, with their share of those that were missed.
fn peer_repaired(row: &Value) -> String {
    let [repaired, lost, unverified] = ["repaired", "lost", "unverified"].map(|field| row[field].as_u64().unwrap_or(0));
    with_percent(repaired, repaired.saturating_add(lost).saturating_add(unverified))
}

fn with_percent(part: u64, whole: u64) -> String {
    match whole {
        0 => part.to_string(),
        whole => format!("{part} ({:.1} %)", 100.0 * part as f64 / whole as f64),
    }
}

fn subject_of_loss(row: &Value) -> String {
    match row["kind"].as_str() {
        Some("other_subjects") => "(further subjects)".to_owned(),
        Some("inbox") => "(to this peer alone)".to_owned(),
        Some("unknown_subject") => "(unknown subjects)".to_owned(),
        _ => field(row, "/subject"),
    }
}

/// Returns the reasons such as `not repaired in time 12, repair is off 1`.
fn reasons(row: &Value) -> String {
    let counts = row["reasons"].as_object().into_iter().flatten();
    counts.map(|(reason, count)| format!("{} {count}", reason_code_text(reason))).collect::<Vec<String>>().join(", ")
}

fn range(row: &Value) -> String {
    format!("{}..{}", field(row, "/datagrams/baseline"), field(row, "/datagrams/high"))
}

fn peer_name(row: &Value) -> String {
    let note = match (&row["foreign_name"], &row["duplicate_name"]) {
        (Value::Bool(true), _) => " (name of another host)",
        (_, Value::Bool(true)) => " (name used twice)",
        _ => "",
    };
    format!("{}{note}", FieldOr("/publisher", "?").text(row))
}

/// Returns by how much the clock of a peer is ahead (+) or behind (-).
fn clock(row: &Value) -> String {
    let millis = row.pointer("/clock_skew/ahead_ms").and_then(Value::as_i64);
    millis.map_or_else(
        || "unknown".to_owned(),
        |millis| {
            let sign = if millis < 0 { '-' } else { '+' };
            match millis.unsigned_abs() {
                millis @ 0..1000 => format!("{sign}{millis}ms"),
                millis => format!("{sign}{}", span(millis)),
            }
        },
    )
}

fn measured(row: &Value) -> String {
    let age = row.pointer("/clock_skew/age_ms").and_then(Value::as_u64);
    age.map_or(String::new(), |age| format!("{} ago", span(age)))
}

/// Returns the mode of the peer, which is loud if other hosts can read and publish.
fn security(status: &Value) -> String {
    match status["open_to_network"] == true {
        true => "OPEN: other hosts can read every message and publish any".to_owned(),
        false => field(status, "/security"),
    }
}

/// Returns the number of revoked hosts with the revision of the list; empty in open mode.
fn revoked_hosts(status: &Value) -> String {
    match (status["revoked_hosts"].as_u64(), status["revocations"].as_u64()) {
        (Some(hosts), Some(revision)) if 0 < revision => format!("{hosts} (revision {revision})"),
        (Some(hosts), _) => hosts.to_string(),
        _ => String::new(),
    }
}

/// Returns how multicasts leave, with the number of hosts that get copies.
fn transport(status: &Value) -> String {
    match status["copies_to"].as_array().map_or(0, Vec::len) {
        0 => field(status, "/transport"),
        hosts => format!("{}, to {hosts} hosts", field(status, "/transport")),
    }
}

fn peer_state(row: &Value) -> String {
    let multicast = if row["multicast_dead"] == true { ", no multicast" } else { "" };
    let excluded = row["flow_exclusion"]["for_ms"].as_u64().map_or(String::new(), |millis| {
        let reason = FieldOr("/flow_exclusion/reason", "?").text(row);
        format!(", excluded for {} ({reason})", span(millis))
    });
    let reached = match row["reached_by"].as_str() {
        Some("unicast") => ", by unicast",
        Some("none") => ", not in 'peers'",
        _ => "",
    };
    format!("{}{reached}{multicast}{excluded}", field(row, "/state"))
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

    #[test]
    fn clock_is_ahead_or_behind() {
        let text = |ahead_ms: i64| clock(&serde_json::json!({ "clock_skew": { "ahead_ms": ahead_ms } }));
        assert_eq!([-7, 0, 61_000, -3_700_000].map(text), ["-7ms", "+0ms", "+1m 1s", "-1h 1m"]);
        assert_eq!(clock(&serde_json::json!({ "clock_skew": null })), "unknown");
    }

    #[test]
    fn spans_have_two_units() {
        assert_eq!([500, 61_000, 3_700_000, 90_000_000].map(span), ["0.5s", "1m 1s", "1h 1m", "1d 1h"]);
    }
}
