//! The report `summary`: a peer in a few numbers, and its losses without details. It is small, so that a peer can ask
//! all others for theirs again and again.

use super::ReportInput;
use crate::daemon::advisories::AdvisoryCount;
use crate::proto::stats::{LossRow, MemberState};
use serde_json::{Value, json};

/// Maximum number of rows, and the default. A row takes about 140 bytes.
const ROWS_MAX: u64 = 256;

/// Answers `{"show": "summary"}`, optionally with a lower `"limit"` of rows. The most lost messages come first.
pub(super) fn peer_summary(query: &Value, input: &ReportInput<'_>) -> Value {
    let limit = query.get("limit").and_then(Value::as_u64).unwrap_or(ROWS_MAX).min(ROWS_MAX);
    let mut losses = input.peer.loss_rows();
    let lost = |row: &LossRow| row.lost().max().saturating_add(row.ibx_loss.count);
    losses.sort_by_key(|row| std::cmp::Reverse((lost(row), row.repaired.count)));
    let rows: Vec<Value> = losses.iter().take(limit as usize).map(loss).collect();
    let (status, counters) = (&input.status, input.peer.counters());
    let up = input.peer.member_rows(input.now).iter().filter(|row| row.state == MemberState::Up).count();
    let dropped = input.clients.iter().fold(0, |sum: u64, row| sum.saturating_add(row.dropped));
    let listeners = status["listeners"].as_array().map_or(0, Vec::len);
    let servers = [&status["streams"], &status["http"]].into_iter().filter(|server| server.is_object()).count();
    json!({
        "show": "summary",
        "summary": {
            "name": status["name"],
            "epoch": status["epoch"],
            "version": status["version"],
            "phase": status["phase"],
            "uptime_ms": status["uptime_ms"],
            "health": input.health["state"],
            "peers_up": up,
            "clients": status["clients"],
            "dropped": dropped,
            "listeners": listeners + servers,
            "messages_published": counters.messages_published,
            "messages_delivered": counters.messages_delivered,
        },
        "rows": rows,
        "omitted": losses.len() - rows.len(),
    })
}

fn loss(row: &LossRow) -> Value {
    json!({
        "publisher": row.publisher.name.as_ref().map(|name| name.as_str()),
        "epoch": row.publisher.epoch.to_string(),
        "lost": serde_json::to_value(AdvisoryCount(row.lost())).expect("numbers are valid JSON"),
        "inbox_lost": row.ibx_loss.count,
        "repaired": row.repaired.count,
        "pending": row.datagrams.pending,
    })
}
