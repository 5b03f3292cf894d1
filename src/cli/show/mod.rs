//! `show`: a peer's answers as tables of text, or unchanged as JSON.

pub mod args;
mod columns;
mod link_columns;

use std::path::PathBuf;

use serde_json::{Value, json};

use self::args::{HealthOptions, LinkStatusOptions, ShowOptions, ShowReport};
use self::columns::{
    CLIENTS, COUNTERS, Cell, FOLLOWED, HISTORY, INTEREST, LISTENERS, LOSS, LOSS_BY_SUBJECT, LOSS_DATAGRAMS,
    LOSS_MESSAGES, LOSS_SHARES, MEMBER, ORIGIN, OUTBOUND, PEERS, SEQNO, SKEW, STATUS, SUBS, TOTALS, WINDOWS,
    is_any_missed,
};
use self::link_columns::{LINK, LINK_DURABLE, LINK_EVENTS, SITE_LOSSES, SITE_LOSSES_BY_SUBJECT, SITES};
use super::connect;
use super::receivers::LonePeerAdvice;
use crate::message::PeerRef;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{EscapedText, Output, note};
use crate::terminal::peer;
use crate::terminal::table::{Column, TextTable};

/// Runs `show`.
///
/// # Errors
/// The peer cannot be reached, or does not know the report.
pub fn run(options: &ShowOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let ShowOptions { what, json, at, socket } = options;
    let answer = print_report(what, at.as_ref(), socket.as_ref(), *json, out)?;
    for omitted in ["omitted", "sites_omitted"].iter().filter_map(|field| answer[*field].as_u64()) {
        if 0 < omitted {
            note(format_args!("{omitted} more rows are not shown"));
        }
    }
    if let ShowReport::Seqno { limit } = what
        && is_limit_reached(&answer, *limit)
    {
        note(format_args!("{limit} subjects of each direction are shown at most; --limit raises that"));
    }
    Ok(Exit::Done)
}

/// Runs `health`.
///
/// # Errors
/// The peer cannot be reached.
pub fn run_health(options: &HealthOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let HealthOptions { json, at, socket } = options;
    let answer = print_report(&ShowReport::Health, at.as_ref(), socket.as_ref(), *json, out)?;
    Ok(if answer["health"]["state"] == "broken" { Exit::Failed } else { Exit::Done })
}

/// Runs `link status`.
///
/// # Errors
/// The peer cannot be reached.
pub fn run_link_status(options: &LinkStatusOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let LinkStatusOptions { json, socket } = options;
    let answer = print_report(&ShowReport::Links, None, socket.as_ref(), *json, out)?;
    Ok(if answer["link"]["state"] == "connected" { Exit::Done } else { Exit::Failed })
}

/// Prints a report of the local peer, or of another one, and returns it.
fn print_report(
    what: &ShowReport,
    at: Option<&PeerRef>,
    socket: Option<&PathBuf>,
    json: bool,
    out: &mut Output,
) -> Result<Value, CommandFailure> {
    let bus = connect::attach(socket, "show")?;
    let answer = match at {
        Some(other) => peer::show_of(&bus, other, &query(what))?,
        None => peer::show(&bus, query(what))?,
    };
    match json {
        true => out.line(&answer)?,
        false => out.bytes(text(what, &answer).as_bytes())?,
    }
    if *what == ShowReport::Peers && at.is_none() && answer["rows"].as_array().is_some_and(Vec::is_empty) {
        out.flush()?;
        note(format_args!("this peer knows no other peer; {}", LonePeerAdvice::of(&bus)?));
    }
    Ok(answer)
}

/// Returns whether a report of sequence numbers may lack subjects: it does not say so itself.
fn is_limit_reached(answer: &Value, limit: usize) -> bool {
    let rows = answer["rows"].as_array().map_or(&[][..], Vec::as_slice);
    // Rows of published subjects name no publisher.
    let published = rows.iter().filter(|row| row["epoch"].is_null()).count();
    limit <= published || limit <= rows.len() - published
}

fn query(what: &ShowReport) -> Value {
    match what {
        ShowReport::Loss { outbound: true, .. } => json!({ "show": "outbound" }),
        ShowReport::Loss { by_subject: true, .. } => json!({ "show": "loss_by_subject" }),
        ShowReport::History { pattern: None, limit } => json!({ "show": "history", "limit": limit }),
        ShowReport::History { pattern: Some(pattern), limit } => {
            json!({ "show": "history", "pattern": pattern.as_str(), "limit": limit })
        }
        ShowReport::Status => json!({ "show": "status" }),
        ShowReport::Health => json!({ "show": "health" }),
        ShowReport::Loss { .. } => json!({ "show": "loss" }),
        ShowReport::Peers | ShowReport::Skew => json!({ "show": "peers" }),
        ShowReport::Subs => json!({ "show": "subs" }),
        ShowReport::Interest => json!({ "show": "interest" }),
        ShowReport::Seqno { limit } => json!({ "show": "seqno", "limit": limit }),
        ShowReport::Windows => json!({ "show": "windows" }),
        ShowReport::Counters => json!({ "show": "counters" }),
        ShowReport::Clients => json!({ "show": "clients" }),
        ShowReport::Links => json!({ "show": "links" }),
    }
}

/// Returns a peer's answer as text: one table, or several with an empty line between them.
fn text(what: &ShowReport, answer: &Value) -> String {
    let Some(first) = table(what, answer) else { return health(&answer["health"]) };
    let first = first.to_string();
    match what {
        ShowReport::Loss { verbose: true, .. } => {
            let [messages, datagrams] = [LOSS_MESSAGES, LOSS_DATAGRAMS].map(|cells| rows(cells, answer));
            let parts = format!(
                "messages\n{messages}\ndatagrams: missing = repaired + pending + lost + unverified\n{datagrams}"
            );
            format!("{first}\n{parts}{}", site_losses(SITE_LOSSES, answer))
        }
        ShowReport::Loss { outbound: false, by_subject: false, .. } => {
            first + &shares(answer) + &verdicts(answer) + &site_losses(SITE_LOSSES, answer)
        }
        ShowReport::Loss { by_subject: true, .. } => first + &site_losses(SITE_LOSSES_BY_SUBJECT, answer),
        ShowReport::History { .. } => format!("{first}\n{}", fields("all subjects", TOTALS, &answer["totals"])),
        ShowReport::Status => {
            let status = &answer["status"];
            let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
            let mut listeners = list(&status["listeners"]);
            let servers = [&status["streams"], &status["http"]];
            listeners.extend(servers.into_iter().filter(|server| !server.is_null()).cloned());
            let tables = [(LISTENERS, listeners), (FOLLOWED, list(&status["events"]["followed"]))];
            let further = tables.into_iter().filter(|(_, of)| !of.is_empty());
            let further = further.map(|(cells, of)| format!("\n{}", rows(cells, &json!({ "rows": of }))));
            [first].into_iter().chain(further).collect()
        }
        ShowReport::Links if answer["link"].is_null() => {
            "this peer is no gateway: the key link names the servers of a cluster\n".to_owned()
        }
        ShowReport::Links => format!("{first}{}\n{}", link_parts(&answer["link"]), rows(SITES, answer)),
        _ => first,
    }
}

/// Returns the tables of events and of durable messages of a link, each below an empty line. Events that may not cross
/// have none.
fn link_parts(link: &Value) -> String {
    let parts = [("events", LINK_EVENTS, &link["events"]), ("durable messages", LINK_DURABLE, &link["durable"])];
    let used = parts.into_iter().filter(|(_, _, part)| !part.is_null());
    used.map(|(title, cells, part)| format!("\n{}", fields(title, cells, part))).collect()
}

/// Returns a peer's answer as the table of the report, or the first one of several.
fn table(what: &ShowReport, answer: &Value) -> Option<TextTable> {
    let cells: &[(Column, Cell)] = match what {
        ShowReport::Health => return None,
        ShowReport::Status => return Some(fields("this peer", STATUS, &answer["status"])),
        ShowReport::Loss { outbound: true, .. } => OUTBOUND,
        ShowReport::Loss { by_subject: true, .. } => LOSS_BY_SUBJECT,
        ShowReport::Loss { .. } => LOSS,
        ShowReport::History { .. } => HISTORY,
        ShowReport::Peers => return Some(peers(answer)),
        ShowReport::Skew => SKEW,
        ShowReport::Subs => SUBS,
        ShowReport::Interest => INTEREST,
        ShowReport::Seqno { .. } => SEQNO,
        ShowReport::Windows => WINDOWS,
        ShowReport::Counters => COUNTERS,
        ShowReport::Clients => CLIENTS,
        ShowReport::Links => return Some(fields("link", LINK, &answer["link"])),
    };
    Some(rows(cells, answer))
}

/// Returns the table of other peers, without the names of members and their proofs of origin if no peer has a name.
fn peers(answer: &Value) -> TextTable {
    let has_members = answer["rows"].as_array().into_iter().flatten().any(|row| row["member"].is_string());
    let shown =
        PEERS.iter().filter(|(column, _)| has_members || ![MEMBER.header, ORIGIN.header].contains(&column.header));
    rows(&shown.copied().collect::<Vec<_>>(), answer)
}

/// Returns the answer to `show loss` as the table of the seed.
pub fn loss_table(answer: &Value) -> TextTable {
    rows(LOSS, answer)
}

/// Returns a table of the publishers of which messages were missed, below an empty line.
fn shares(answer: &Value) -> String {
    let all = answer["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let missed: Vec<Value> = all.iter().filter(|row| is_any_missed(row)).cloned().collect();
    match missed.is_empty() {
        true => String::new(),
        false => format!("\n{}", rows(LOSS_SHARES, &json!({ "rows": missed }))),
    }
}

/// Returns a table of the losses of other sites, if there are any, below an empty line.
fn site_losses(cells: &[(Column, Cell)], answer: &Value) -> String {
    match answer["sites"].as_array().is_none_or(Vec::is_empty) {
        true => String::new(),
        false => format!("\n{}", rows(cells, &json!({ "rows": answer["sites"] }))),
    }
}

/// Returns a line for each publisher of which something was missing, below an empty line.
fn verdicts(answer: &Value) -> String {
    let rows = answer["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let line = |row: &Value| {
        let [user, verdict] = [row["user"].as_str()?, row["verdict"].as_str()?];
        Some(format!("{}: {}\n", EscapedText(user.as_bytes()), EscapedText(verdict.as_bytes())))
    };
    let lines: String = rows.iter().filter_map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// Returns the findings, each as a few lines.
fn health(health: &Value) -> String {
    let findings = health["findings"].as_array().map_or(&[][..], Vec::as_slice);
    if findings.is_empty() {
        return "ok: the peer has found nothing wrong with this host or its network\n".to_owned();
    }
    let lines = findings.iter().map(|finding| {
        let [severity, check, since, found, effect, fix] = ["severity", "check", "since", "found", "effect", "fix"]
            .map(|field| EscapedText(finding[field].as_str().unwrap_or_default().as_bytes()).to_string());
        format!("{severity}: {check}: {found} (since {since})\n  {effect}\n  fix: {fix}\n")
    });
    lines.collect()
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
fn fields(heading: &'static str, fields: &[(&str, Cell)], object: &Value) -> TextTable {
    let mut table = TextTable::new(&[Column::new(heading).left(), Column::new("").left()]);
    for (heading, cell) in fields {
        table.row(vec![(*heading).to_owned(), cell.text(object)]);
    }
    table
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

    const LOSS_PLAIN: ShowReport = ShowReport::Loss { verbose: false, outbound: false, by_subject: false };
    const LOSS_IN_FULL: ShowReport = ShowReport::Loss { verbose: true, outbound: false, by_subject: false };

    fn text_of_the_seed(row: &Value) -> String {
        text(&LOSS_PLAIN, &json!({ "rows": [row] }))
    }

    #[test]
    fn verdicts_follow_the_loss_table() {
        let rows = json!([{ "user": "B.1", "verdict": "it was the path" }, { "user": "C.2", "verdict": null }]);
        let text = text(&LOSS_PLAIN, &json!({ "rows": rows }));
        assert!(text.ends_with("\n\nB.1: it was the path\n"), "{text}");
    }

    #[test]
    fn loss_table_is_that_of_the_seed() {
        let mut rows = ["B.1", "D.3", "C.4"].map(row);
        rows[1]["msg_loss"] = json!({ "count": 766, "time": "20:42:24.431" });
        assert_eq!(text(&LOSS_PLAIN, &json!({ "show": "loss", "rows": rows })), SEED);
    }

    #[test]
    fn missed_messages_follow_with_shares() {
        let mut missed = row("B.1");
        missed["repaired"] = json!({ "count": 30 });
        missed["lost"] = json!({ "min": 9, "max": 10 });
        missed["unverified"] = json!({ "count": 0 });
        let text = text(&LOSS_PLAIN, &json!({ "rows": [missed, row("C.2")] }));
        assert!(
            text.ends_with(
                "

user | missed |   repaired  |     lost    | unverified
-----+--------+-------------+-------------+-----------
 B.1 |     40 | 30 (75.0 %) | 10 (25.0 %) |  0 (0.0 %)
"
            ),
            "{text}"
        );
    }

    #[test]
    fn losses_of_other_sites_follow_in_a_table() {
        let row = |publisher: Value, lost: Value, tails: u64| {
            json!({ "site": "plant1", "publisher": publisher, "epoch": null, "lost": lost, "tails": tails,
                "time": "20:42:24.431", "kind": "tail", "subject": null })
        };
        let sites = [row(json!("A.test"), json!(40), 0), row(json!(null), json!({ "min": 0, "max": null }), 1)];
        let answer = json!({ "rows": [], "sites": sites });
        let of_sites = site_losses(SITE_LOSSES, &answer);
        let lines: Vec<Vec<&str>> = of_sites.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(lines[1], ["site", "publisher", "lost", "tails", "loss time"]);
        assert_eq!(lines[3], ["plant1", "A.test", "40", "0", "20:42:24.431"]);
        assert_eq!(lines[4], ["plant1", "(unknown publishers)", "0..", "1", "20:42:24.431"]);
        let by_subject = site_losses(SITE_LOSSES_BY_SUBJECT, &answer);
        assert!(by_subject.contains("(behind the last known message)"), "{by_subject}");
        assert_eq!(site_losses(SITE_LOSSES, &json!({ "sites": [] })), "", "no table without losses");
    }

    #[test]
    fn losses_by_subject_name_reason_and_cause() {
        let row = |kind: &str, subject: Option<&str>| {
            json!({
                "user": "B.1", "kind": kind, "subject": subject, "lost": { "min": 1, "max": 3 }, "repaired": 4,
                "time": "00:00:01.000", "reason": "DEADLINE", "cause": "MIXED",
            })
        };
        let answer = json!({ "rows": [row("subject", Some("a.b")), row("unknown_subject", None)] });
        let text = text(&ShowReport::Loss { verbose: false, outbound: false, by_subject: true }, &answer);
        let lines: Vec<&str> = text.lines().collect();
        let cells = |line: usize| lines[line].split('|').map(str::trim).collect::<Vec<&str>>();
        let last = ["00:00:01.000", "not repaired in time", "partly dropped by this host's kernel"];
        assert_eq!(cells(2), [&["B.1", "a.b", "1..3", "4", "", ""][..], &last].concat());
        assert_eq!(cells(3)[1], "(unknown subjects)");
    }

    #[test]
    fn loss_columns_have_their_own_numbers() {
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
    fn verbose_loss_shows_the_datagrams_by_state() {
        let mut row = row("B.1");
        row["repaired"] = json!({ "count": 77, "time": "00:00:02.000" });
        row["unverified"] = json!({ "count": 9, "time": "00:00:01.000" });
        row["reasons"] = json!({ "DEADLINE": 12, "EXPIRED": 1 });
        row["overrun"] = json!(3);
        row["datagrams"] = json!({
            "baseline": 10, "high": 110, "delivered": 90, "buffered": 1, "missing": 14, "repaired": 5, "pending": 2,
            "lost": 3, "unverified": 4,
        });
        let text = text(&LOSS_IN_FULL, &json!({ "rows": [row] }));
        let lines: Vec<&str> = text.lines().collect();
        let cells = |line: usize| lines[line].split('|').map(str::trim).collect::<Vec<&str>>();
        assert_eq!(
            lines[..3].join("\n") + "\n",
            loss_table(&json!({ "rows": [row] })).to_string(),
            "the seed's table stays"
        );
        assert_eq!(
            cells(7),
            [
                "B.1",
                "77",
                "00:00:02.000",
                "9",
                "00:00:01.000",
                "not repaired in time 12, no longer kept by the publisher 1"
            ]
        );
        assert_eq!(lines[9], "datagrams: missing = repaired + pending + lost + unverified");
        assert_eq!(cells(12), ["B.1", "10..110", "90", "1", "14", "5", "2", "3", "4", "3"]);
    }

    #[test]
    fn outbound_loss_has_a_row_for_each_receiver() {
        let row = |lost: Value| {
            json!({
                "user": "B.1", "missing": 7, "repaired": 4, "pending": 1, "unverified": 2, "lost": lost,
                "inbox_lost": 9, "time": "00:00:01.000",
            })
        };
        let answer = json!({ "rows": [row(json!(3)), row(json!({ "min": 3, "max": 5 }))] });
        assert_eq!(
            text(&ShowReport::Loss { verbose: false, outbound: true, by_subject: false }, &answer),
            "\
receiver | missing | repaired | pending | unverified | msg loss | ibx loss |     time    
---------+---------+----------+---------+------------+----------+----------+-------------
     B.1 |       7 |        4 |       1 |          2 |        3 |        9 | 00:00:01.000
     B.1 |       7 |        4 |       1 |          2 |     3..5 |        9 | 00:00:01.000
"
        );
    }

    #[test]
    fn history_ends_with_the_totals() {
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
    fn full_report_of_numbers_may_lack_subjects() {
        let answer = json!({ "rows": [{ "epoch": null }, { "epoch": "a" }, { "epoch": "b" }] });
        assert_eq!([1, 2, 3].map(|limit| is_limit_reached(&answer, limit)), [true, true, false]);
    }

    #[test]
    fn absent_values_are_blank_or_named() {
        let rows = json!({ "rows": [{ "subject": "a.b", "seq": "0x1", "count": 1 }] });
        let text = table(&ShowReport::Seqno { limit: 1 }, &rows).unwrap().to_string();
        assert_eq!(text.lines().nth(2), Some("   - | a.b     |      0x1 |             |     1"));
        let rows = json!({ "rows": [{ "user": "?.1", "publisher": null, "duplicate_name": true, "state": "up", "multicast_dead": true, "flow_exclusion": { "for_ms": 2500, "reason": "slow" } }] });
        let text = table(&ShowReport::Peers, &rows).unwrap().to_string();
        assert!(
            text.contains("? (name used twice)") && text.contains("up, no multicast, excluded for 2.5s (slow)"),
            "{text}"
        );
        assert!(!text.contains("member"), "{text}");
        let rows = json!({ "rows": [{ "user": "A.1", "publisher": "A", "member": "B", "foreign_name": true, "state": "up" }] });
        let text = table(&ShowReport::Peers, &rows).unwrap().to_string();
        assert!(text.contains("A (name of another host) | B "), "{text}");
        assert_eq!(table(&ShowReport::Subs, &json!({})).unwrap().to_string().lines().count(), 2);
    }

    #[test]
    fn status_has_a_row_for_each_field() {
        let about = json!({
            "name": "A.test", "uptime_ms": 61_000, "socket": null,
            "receive_buffer": 10, "receive_buffer_wanted": 20, "send_buffer": 20, "send_buffer_wanted": 20,
            "offloads": { "gso": true, "gro": false, "filter": true }, "events": { "server": 7 },
        });
        let text = table(&ShowReport::Status, &json!({ "show": "status", "status": about })).unwrap().to_string();
        for row in ["name           | A.test\n", "up             | 1m 1s\n", "socket         | -\n"] {
            assert!(text.contains(row), "{row:?} is not in {text}");
        }
        assert!(
            text.ends_with("receive buffer | 10 of 20 wanted\nsend buffer    | 20\noffloads       | gso, filter\nevent server   | 7\njournal        | -\n"),
            "{text}"
        );
    }

    #[test]
    fn status_has_a_table_of_listeners() {
        let listener = json!({
            "listener": "nats", "address": "127.0.0.1:4222", "tls": null, "accounts": 2, "clients": 3, "accepted": 9,
            "refused": 1, "accept_failures": 7, "unauthorized": 4, "denied": 10, "faults": 5, "slow": 6, "evicted": 8,
        });
        let shown = |listeners: Value| {
            text(&ShowReport::Status, &json!({ "show": "status", "status": { "listeners": listeners } }))
        };
        assert!(shown(json!([listener])).ends_with(
            "
listener | address        | tls | accounts | clients | accepted | refused | accept failures | unauthorized | denied | faults | slow | evicted
---------+----------------+-----+----------+---------+----------+---------+-----------------+--------------+--------+--------+------+--------
nats     | 127.0.0.1:4222 | -   |        2 |       3 |        9 |       1 |               7 |            4 |     10 |      5 |    6 |       8
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
listener | address        | tls      | accounts | clients | accepted | refused | accept failures | unauthorized | denied | faults | slow | evicted
---------+----------------+----------+----------+---------+----------+---------+-----------------+--------------+--------+--------+------+--------
ftn18    | 127.0.0.1:8181 | required |        0 |       1 |        2 |       0 |               - |            - |      - |      - |    - |       1
"
        ));
    }

    #[test]
    fn status_has_a_table_of_followed_servers() {
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

    fn row(user: &str) -> Value {
        let none = json!({ "count": 0, "time": null });
        json!({ "user": user, "repeat": none, "not_sub": none, "msg_loss": none, "msg_loss_uncertain": 0, "ibx_loss": none })
    }
}
