//! Answers to `show`: every report of the peer as JSON. `docs/local-protocol.md` documents the names of the fields,
//! which do not change.

mod loss_rows;
mod peer_summary;
mod site_rows;

use self::loss_rows::{loss, outbound, subject_loss};
use self::peer_summary::peer_summary;
use self::site_rows::add_site_rows;
use crate::message::{Epoch, Publisher, SubscriptionFilter};
use crate::proto::history::{HistoryRow, HistoryTotals};
use crate::proto::peer::Peer;
use crate::proto::stats::{MemberRow, RemoteRow, SeqnoRow, WindowRow};
use crate::subject::{Pattern, Subject};
use crate::time::ClockReading;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::client_origin::ClientOrigin;
use super::client_process::ClientProcess;
use super::site_losses::SiteLosses;
use super::subject_losses::SubjectLosses;

/// Names of all reports.
pub const REPORTS: [&str; 14] = [
    "status",
    "health",
    "loss",
    "loss_by_subject",
    "outbound",
    "peers",
    "subs",
    "interest",
    "seqno",
    "windows",
    "history",
    "counters",
    "clients",
    "links",
];

/// Maximum number of reports that one query can ask for.
const NAMES_MAX: usize = 8;
/// Default maximum of rows in a report.
const LIMIT: usize = 10_000;
/// Default maximum of rows of `show seqno` for each direction.
const SEQNO_LIMIT: usize = 1_000;
/// Default maximum of rows of `show history`.
const HISTORY_LIMIT: usize = 1_000;
/// Maximum number of rows that a query of a program of this host can ask for: an answer should fit a frame.
pub(crate) const LIMIT_MAX: usize = 50_000;

/// A counter of the shell: name, value, meaning.
pub(crate) type CounterRow = (&'static str, u64, &'static str);

/// A client in `show clients`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientRow {
    /// Number that the peer assigned to the client.
    pub(crate) client: u32,
    /// Name that the client gives itself; may be empty.
    pub(crate) name: String,
    /// Listener at which the client has connected.
    pub(crate) origin: Option<ClientOrigin>,
    /// Account with which it authenticated at a listener, if it had to.
    pub(crate) account: Option<String>,
    /// True if the client is in the peer's process.
    pub(crate) embedded: bool,
    /// Process of a local client, if the kernel reports it.
    pub(crate) process: Option<ClientProcess>,
    /// Path of its frames: `shm` or `socket` if it is attached.
    pub(crate) path: Option<&'static str>,
    /// Time since it connected.
    pub(crate) connected: Duration,
    /// Number of messages it published.
    pub(crate) published: u64,
    /// Number of messages and loss reports delivered to it; one for several of its subscriptions counts once.
    pub(crate) delivered: u64,
    /// Number of messages and loss reports dropped because it was too slow, by subscription.
    pub(crate) dropped: u64,
    /// Number of messages and loss reports that wait for it.
    pub(crate) queued: u64,
    /// Bytes that wait for it.
    pub(crate) queued_bytes: u64,
    /// Bytes of incomplete input that it has sent at a listener.
    pub(crate) unread_bytes: u64,
    /// Number of its actions at a listener that its account did not permit.
    pub(crate) denied: u64,
}

/// Input of all reports.
pub(crate) struct ReportInput<'a> {
    /// The peer; it changes only to read its history.
    pub(crate) peer: &'a mut Peer,
    pub(crate) now: ClockReading,
    /// The fields of `show status`.
    pub(crate) status: Value,
    /// The fields of `show health`.
    pub(crate) health: Value,
    pub(crate) clients: Vec<ClientRow>,
    pub(crate) counters: Vec<CounterRow>,
    pub(crate) subject_losses: &'a SubjectLosses,
    pub(crate) site_losses: &'a SiteLosses,
    /// Returns the proof that a peer with this epoch has published a message; `None` in open mode.
    pub(crate) origin_of: &'a dyn Fn(Epoch) -> Option<&'static str>,
    /// Address of this host.
    pub(crate) address: IpAddr,
    /// Addresses to which multicasts are copied; none if they leave as multicasts.
    pub(crate) copies_to: &'a [SocketAddr],
    /// Maximum number of rows that the query can ask for.
    pub(crate) rows_max: usize,
}

/// Answers one query: `{"show": "loss"}`, optionally with a `"limit"` of rows, and for `history` with a `"pattern"`.
/// Returns `{"error": "…"}` for an invalid query.
pub(crate) fn answer(query: &Value, input: &mut ReportInput<'_>) -> Value {
    let Some(what) = query.get("show").and_then(Value::as_str) else {
        return json!({ "error": "a question is a JSON object such as {\"show\": \"loss\"}" });
    };
    let limit = |default: usize| {
        let wanted = query.get("limit").and_then(Value::as_u64);
        wanted.map_or(default, |wanted| usize::try_from(wanted).unwrap_or(usize::MAX)).min(input.rows_max)
    };
    let mut rows: Vec<Value> = match what {
        "status" => return json!({ "show": what, "status": input.status }),
        "health" => return json!({ "show": what, "health": input.health }),
        "loss" => input.peer.loss_rows().iter().map(loss).collect(),
        "loss_by_subject" => input.subject_losses.rows(&input.peer.loss_rows()).iter().map(subject_loss).collect(),
        "outbound" => input.peer.outbound_rows().iter().map(outbound).collect(),
        "history" => return history(input.peer, query, limit(HISTORY_LIMIT)),
        "peers" => peers(input),
        "subs" => subs(input),
        "interest" => input.peer.remote_rows().iter().map(interest).collect(),
        "seqno" => input.peer.seqno_rows(limit(SEQNO_LIMIT)).iter().map(seqno).collect(),
        "windows" => {
            let rows = input.peer.window_rows();
            ["pub", "sub"].iter().zip(&rows).map(|(name, row)| window(name, row)).collect()
        }
        "counters" => {
            let peer = [input.peer.counters().rows(), input.peer.resend_counters().rows()].concat();
            let rows = peer.into_iter().chain(input.counters.iter().copied());
            rows.map(|(counter, value, meaning)| json!({ "counter": counter, "value": value, "meaning": meaning }))
                .collect()
        }
        "clients" => input.clients.iter().map(client).collect(),
        "links" => return json!({ "show": what, "link": input.status["link"], "rows": input.status["link"]["sites"] }),
        "summary" => return peer_summary(query, input),
        _ => return json!({ "error": format!("no report '{what}'; use one of {}", REPORTS.join(", ")) }),
    };
    let rows_max = if what == "seqno" { rows.len() } else { limit(LIMIT) };
    let omitted = rows.len().saturating_sub(rows_max);
    rows.truncate(rows_max);
    let mut answer = match omitted {
        0 => json!({ "show": what, "rows": rows }),
        _ => json!({ "show": what, "rows": rows, "omitted": omitted }),
    };
    match what {
        "loss" => add_site_rows(&mut answer, input.site_losses.rows(), rows_max),
        "loss_by_subject" => add_site_rows(&mut answer, input.site_losses.rows_by_subject(), rows_max),
        _ => {}
    }
    answer
}

/// Answers a query for several reports of the same time: `{"show": ["status", "loss"]}`. `"limit"` applies to each.
/// Returns `{"error": "…"}` for an invalid query, and in place of a report that does not exist.
pub(crate) fn answer_several(names: &[Value], query: &Value, input: &mut ReportInput<'_>) -> Value {
    if NAMES_MAX < names.len() {
        return json!({ "error": format!("one question asks for at most {NAMES_MAX} reports") });
    }
    let report = |name: &Value| answer(&json!({ "show": name, "limit": query["limit"] }), input);
    json!({ "show": names, "reports": names.iter().map(report).collect::<Vec<Value>>() })
}

/// Answers `{"show": "subject", "subject": "a.b"}`: what the peer publishes and receives of one subject, and for how many
/// clients. Returns `{"error": "…"}` for an invalid query.
pub(crate) fn subject(peer: &mut Peer, query: &Value) -> Value {
    let subject = match query["subject"].as_str().map(str::parse::<Subject>) {
        Some(Ok(subject)) => subject,
        Some(Err(error)) => return json!({ "error": error.to_string() }),
        None => return json!({ "error": "the query names no subject: {\"show\": \"subject\", \"subject\": \"a.b\"}" }),
    };
    let rows = peer.subject_rows(&subject);
    let (published, received): (Vec<&SeqnoRow>, Vec<&SeqnoRow>) = rows.iter().partition(|row| row.publisher.is_none());
    let targets = peer.subscribers(&subject);
    let clients: BTreeSet<u32> = targets.iter().map(|target| target.client.0).collect();
    json!({
        "show": "subject",
        "subject": {
            "subject": subject.as_str(),
            "published": published.first().map(|row| seqno(row)),
            "received": received.into_iter().map(seqno).collect::<Vec<Value>>(),
            "clients": clients.len(),
            "subscriptions": targets.len(),
        },
    })
}

/// Returns `user` as in the seed's table, then the identity of the publisher.
fn publisher(publisher: &Publisher) -> serde_json::Map<String, Value> {
    let Value::Object(fields) = json!({
        "user": publisher.to_string(),
        "publisher": publisher.name.as_ref().map(|name| name.as_str()),
        "epoch": publisher.epoch.to_string(),
        "uid": publisher.uid,
    }) else {
        unreachable!("an object was written")
    };
    fields
}

/// Returns the fields of `of`, then those of `more`.
fn publisher_row(of: &Publisher, more: Value) -> Value {
    let mut fields = publisher(of);
    let Value::Object(more) = more else { unreachable!("every row is an object") };
    fields.extend(more);
    Value::Object(fields)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the whole answer: a row for each subject, and the sums of all subjects, whatever the pattern.
fn history(peer: &mut Peer, query: &Value, limit: usize) -> Value {
    let pattern = query.get("pattern").map_or(Ok(">"), |pattern| pattern.as_str().ok_or("a pattern is a text"));
    let pattern = match pattern.map(str::parse::<Pattern>) {
        Ok(Ok(pattern)) => pattern,
        Ok(Err(error)) => return json!({ "error": error.to_string() }),
        Err(error) => return json!({ "error": error }),
    };
    let (rows, omitted) = peer.history_rows(&pattern, limit);
    let row = |row: &HistoryRow| {
        json!({
            "subject": row.subject.as_str(),
            "n0": row.span.first,
            "n1": row.span.last,
            "first_seq": row.span.first_seq.to_string(),
            "last_seq": row.span.last_seq.to_string(),
            "count": row.count,
            "bytes": row.bytes,
            "oldest": row.oldest.to_string(),
            "oldest_ns": row.oldest.as_nanos(),
            "newest": row.newest.to_string(),
            "newest_ns": row.newest.as_nanos(),
        })
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    let HistoryTotals { subjects, events, bytes, bytes_max, replaced, expired, evicted, too_large } =
        peer.history_totals();
    let totals = json!({
        "subjects": subjects,
        "events": events,
        "bytes": bytes,
        "bytes_max": bytes_max,
        "replaced": replaced,
        "expired": expired,
        "evicted": evicted,
        "too_large": too_large,
    });
    match omitted {
        0 => json!({ "show": "history", "rows": rows, "totals": totals }),
        _ => json!({ "show": "history", "rows": rows, "omitted": omitted, "totals": totals }),
    }
}

fn peers(input: &ReportInput) -> Vec<Value> {
    let repaired: BTreeMap<Epoch, u64> =
        input.peer.loss_rows().iter().map(|row| (row.publisher.epoch, row.repaired.count)).collect();
    let row = |row: &MemberRow| peer(row, repaired.get(&row.publisher.epoch).copied().unwrap_or(0), input);
    input.peer.member_rows(input.now).iter().map(row).collect()
}

/// Returns how the multicasts of this peer reach a host.
fn reached_by(address: IpAddr, input: &ReportInput<'_>) -> &'static str {
    if input.copies_to.is_empty() || address == input.address {
        "multicast"
    } else if input.copies_to.iter().any(|to| to.ip() == address) {
        "unicast"
    } else {
        "none"
    }
}

fn peer(row: &MemberRow, repaired: u64, input: &ReportInput<'_>) -> Value {
    publisher_row(
        &row.publisher,
        json!({
            "address": row.address.to_string(),
            "state": row.state.as_str(),
            "reached_by": reached_by(row.address.ip(), input),
            "uptime_ms": millis(row.uptime),
            "last_heard_ms": millis(row.last_heard),
            "messages_in": row.messages_in,
            "datagrams_in": row.datagrams_in,
            "lost": row.lost,
            "unverified": row.unverified,
            "repaired": repaired,
            "duplicate_name": row.duplicate_name,
            "member": row.member.as_ref().map(|name| name.as_str()),
            "foreign_name": row.has_foreign_name,
            "multicast_dead": row.is_multicast_dead,
            "unicast_absent": row.is_unicast_absent,
            "proven": row.is_proven,
            "flow_exclusion": row.flow_exclusion.map(|(span, has_reported)| json!({
                "for_ms": millis(span),
                "reason": if has_reported { "slow" } else { "no report" },
            })),
            "flow_exclusion_count": row.flow_exclusion_count,
            "kernel_drops": row.kernel_drops,
            "origin": (input.origin_of)(row.publisher.epoch),
            "clock_skew": row.clock_offset.map(|(nanos, age)| json!({
                "ahead_ms": nanos / 1_000_000,
                "age_ms": millis(age),
            })),
        }),
    )
}

fn subs(input: &ReportInput<'_>) -> Vec<Value> {
    let names: BTreeMap<u32, &str> = input.clients.iter().map(|row| (row.client, row.name.as_str())).collect();
    let row = |row: &crate::proto::stats::SubRow| {
        json!({
            "client": row.client.0,
            "name": names.get(&row.client.0),
            "sub": row.sub.0,
            "pattern": row.wanted.pattern.as_str(),
            "glob": glob(&row.wanted),
            "queue": row.wanted.queue.as_ref().map(|queue| queue.as_str()),
            "mode": row.mode.as_str(),
            "deliveries": row.deliveries,
        })
    };
    input.peer.sub_rows().iter().map(row).collect()
}

fn glob(wanted: &SubscriptionFilter) -> Option<String> {
    wanted.glob.as_ref().map(|glob| String::from_utf8_lossy(glob.text()).into_owned())
}

fn interest(row: &RemoteRow) -> Value {
    publisher_row(
        &row.publisher,
        json!({
            "pattern": row.wanted.pattern.as_str(),
            "glob": glob(&row.wanted),
            "queue": row.wanted.queue.as_ref().map(|queue| queue.as_str()),
            "subscriptions": row.count,
            "complete": row.is_complete,
        }),
    )
}

fn seqno(row: &SeqnoRow) -> Value {
    let fields = json!({
        "subject": row.subject.as_str(),
        "seq": row.last.to_string(),
        "seq_raw": row.last.raw(),
        "frame": row.last.frame().number(),
        "frame_start": row.last.frame().start().to_string(),
        "frame_start_ns": row.last.frame().start().as_nanos(),
        "count": row.last.count(),
    });
    match &row.publisher {
        Some(publisher) => publisher_row(publisher, fields),
        None => fields,
    }
}

fn window(name: &str, row: &WindowRow) -> Value {
    json!({
        "window": name,
        "subjects": row.subjects,
        "bytes": row.bytes,
        "size": row.size,
        "bytes_max": row.bytes_max,
        "time_ms": millis(row.time),
        "rotations": row.rotations,
        "evicted": row.evicted,
    })
}

fn client(row: &ClientRow) -> Value {
    json!({
        "client": row.client,
        "name": row.name,
        "listener": row.origin.map(|origin| origin.listener),
        "address": row.origin.map(|origin| origin.address.to_string()),
        "account": row.account,
        "embedded": row.embedded,
        "pid": row.process.as_ref().map(|process| process.pid),
        "user_id": row.process.as_ref().map(|process| process.user_id),
        "user": row.process.as_ref().and_then(|process| process.user.as_deref()),
        "path": row.path,
        "connected_ms": millis(row.connected),
        "published": row.published,
        "delivered": row.delivered,
        "dropped": row.dropped,
        "queued": row.queued,
        "queued_bytes": row.queued_bytes,
        "unread_bytes": row.unread_bytes,
        "denied": row.denied,
    })
}
