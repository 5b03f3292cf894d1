//! `show`: rows of a peer's reports as tables of text and as JSON.

use std::time::Duration;

use super::table::{Column, Table};
use crate::proto::stats::{LossRow, MemberRow, SeqnoRow, SubRow, Tally, WindowRow};

/// The table of seed 002, column for column; more columns if `verbose`.
pub fn loss(rows: &[LossRow], verbose: bool) -> Table {
    let mut columns = vec![
        Column::new("user"),
        Column::new("repeat"),
        Column::new("rep time"),
        Column::new("not sub"),
        Column::new("not time"),
        Column::new("msg loss").wide(9),
        Column::new("loss time"),
        Column::new("ibx loss"),
        Column::new("ibx time"),
    ];
    if verbose {
        let more = ["unverif", "unv time", "kernel", "range", "delivered", "held", "pending", "lost"];
        columns.extend(more.map(Column::new));
        columns.push(Column::new("unverified"));
    }
    let mut table = Table::new(&columns);
    for row in rows {
        let mut cells = vec![row.publisher.to_string()];
        for tally in [row.repeat, row.not_sub] {
            cells.extend([tally.count.to_string(), last(tally)]);
        }
        cells.extend([range_of(row.msg_loss.count, row.msg_loss_uncertain), last(row.msg_loss)]);
        cells.extend([row.ibx_loss.count.to_string(), last(row.ibx_loss)]);
        if verbose {
            let states = row.datagrams;
            cells.extend([row.unverified.count.to_string(), last(row.unverified)]);
            cells.extend([row.overrun.to_string(), format!("{}..{}", states.baseline, states.high)]);
            let counts = [states.delivered, states.held, states.pending, states.lost, states.unverified];
            cells.extend(counts.map(|count| count.to_string()));
        }
        table.row(cells);
    }
    table
}

/// The other peers.
pub fn peers(rows: &[MemberRow]) -> Table {
    let headers = ["state", "up", "heard", "msgs in", "datagrams", "lost", "unverified"].map(Column::new);
    let mut columns = vec![Column::new("user"), Column::new("name").left(), Column::new("address").left()];
    columns.extend(headers);
    let mut table = Table::new(&columns);
    for row in rows {
        let name = row.publisher.name.as_ref().map_or("?", |name| name.as_str());
        table.row(vec![
            row.publisher.to_string(),
            format!("{name}{}", if row.duplicate_name { " (name used twice)" } else { "" }),
            row.address.to_string(),
            row.state.as_str().to_owned(),
            span(row.uptime),
            format!("{} ago", span(row.last_heard)),
            row.messages_in.to_string(),
            row.datagrams_in.to_string(),
            row.lost.to_string(),
            row.unverified.to_string(),
        ]);
    }
    table
}

/// The subscriptions of this peer's clients.
pub fn subs(rows: &[SubRow]) -> Table {
    let mut table = Table::new(&[
        Column::new("client"),
        Column::new("sub"),
        Column::new("pattern").left(),
        Column::new("deliveries"),
    ]);
    for row in rows {
        table.row(vec![
            row.client.0.to_string(),
            row.sub.0.to_string(),
            row.pattern.to_string(),
            row.deliveries.to_string(),
        ]);
    }
    table
}

/// The last number of each subject; `-` stands for this peer.
pub fn seqno(rows: &[SeqnoRow]) -> Table {
    let columns = [
        Column::new("user"),
        Column::new("subject").left(),
        Column::new("last seq"),
        Column::new("frame start"),
        Column::new("count"),
    ];
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(vec![
            row.publisher.as_ref().map_or("-".to_owned(), |publisher| publisher.to_string()),
            row.subject.to_string(),
            row.last.to_string(),
            row.last.frame().start().to_string(),
            row.last.count().to_string(),
        ]);
    }
    table
}

/// The publication and the subscription window.
pub fn windows(rows: &[WindowRow; 2]) -> Table {
    let mut columns = vec![Column::new("window").left()];
    columns.extend(["subjects", "bytes", "size", "limit", "time", "rotations", "evicted"].map(Column::new));
    let mut table = Table::new(&columns);
    for (name, row) in ["pub", "sub"].iter().zip(rows) {
        table.row(vec![
            (*name).to_owned(),
            row.subjects.to_string(),
            row.bytes.to_string(),
            row.size.to_string(),
            row.bytes_max.to_string(),
            humantime::format_duration(row.time).to_string(),
            row.rotations.to_string(),
            row.evicted.to_string(),
        ]);
    }
    table
}

/// Everything that is counted: name, value, meaning.
pub fn counters<'a>(rows: impl IntoIterator<Item = (&'a str, u64, &'a str)>) -> Table {
    let mut table = Table::new(&[Column::new("counter").left(), Column::new("value"), Column::new("meaning").left()]);
    for (name, value, meaning) in rows {
        table.row(vec![name.to_owned(), value.to_string(), meaning.to_owned()]);
    }
    table
}

fn last(tally: Tally) -> String {
    tally.last.map_or(String::new(), |at| at.to_string())
}

fn range_of(min: u64, uncertain: u64) -> String {
    if uncertain == 0 { min.to_string() } else { format!("{min}..{}", min + uncertain) }
}

/// A span of time in at most two units, such as `2d 3h`, `4m 5s` or `7.1s`.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, _) => format!("{:.1}s", span.as_secs_f64()),
        (0, 0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes}m"),
        (days, hours, ..) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Dseq, Epoch, Publisher};
    use crate::proto::stats::DatagramStates;
    use crate::time::Wall;

    /// Seed 002, "Show loss", to the byte.
    const SEED: &str = "\
user | repeat | rep time | not sub | not time |  msg loss |   loss time  | ibx loss | ibx time
-----+--------+----------+---------+----------+-----------+--------------+----------+---------
 B.1 |      0 |          |       0 |          |         0 |              |        0 |         
 D.3 |      0 |          |       0 |          |       766 | 20:42:24.431 |        0 |         
 C.4 |      0 |          |       0 |          |         0 |              |        0 |         
";

    #[test]
    fn show_loss_prints_the_table_of_the_seed() {
        let mut rows = [row("B.test", 1), row("D.test", 3), row("C.test", 4)];
        rows[1].msg_loss = Tally { count: 766, last: Some(time_of_day(20, 42, 24, 431)) };
        assert_eq!(loss(&rows, false).to_string(), SEED);
    }

    #[test]
    fn every_column_of_show_loss_has_its_own_number() {
        let mut row = row("sensor-7.plant", 12);
        let at = |second| Some(time_of_day(1, 2, second, 0));
        row.repeat = Tally { count: 1_000_000, last: at(3) };
        row.not_sub = Tally { count: 22, last: at(4) };
        row.msg_loss = Tally { count: 5, last: at(5) };
        row.msg_loss_uncertain = 4;
        row.ibx_loss = Tally { count: 7, last: at(6) };
        assert_eq!(
            loss(&[row], false).to_string(),
            "\
\x20   user    |  repeat |   rep time   | not sub |   not time   |  msg loss |   loss time  | ibx loss |   ibx time  \n\
            ------------+---------+--------------+---------+--------------+-----------+--------------+----------+-------------\n\
            sensor-7.12 | 1000000 | 01:02:03.000 |      22 | 01:02:04.000 |      5..9 | 01:02:05.000 |        7 | 01:02:06.000\n"
        );
    }

    #[test]
    fn show_loss_in_full_shows_where_every_datagram_went() {
        let mut row = row("B.test", 1);
        row.unverified = Tally { count: 9, last: Some(time_of_day(0, 0, 1, 0)) };
        row.overrun = 3;
        row.datagrams = DatagramStates {
            baseline: Dseq(10),
            high: Dseq(110),
            delivered: 90,
            held: 1,
            pending: 2,
            lost: 3,
            unverified: 4,
        };
        let text = loss(&[row], true).to_string();
        let cells: Vec<&str> = text.lines().nth(2).unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells[9..], ["9", "00:00:01.000", "3", "10..110", "90", "1", "2", "3", "4"]);
    }

    #[test]
    fn spans_have_two_units() {
        let texts = [500, 61_000, 3_700_000, 90_000_000].map(|millis| span(Duration::from_millis(millis)));
        assert_eq!(texts, ["0.5s", "1m 1s", "1h 1m", "1d 1h"]);
    }

    fn time_of_day(hour: u64, minute: u64, second: u64, millis: u64) -> Wall {
        Wall::from_nanos((((hour * 60 + minute) * 60 + second) * 1000 + millis) * 1_000_000)
    }

    fn row(name: &str, uid: u32) -> LossRow {
        LossRow {
            publisher: Publisher { name: Some(name.parse().unwrap()), epoch: Epoch::new(7).unwrap(), uid },
            repeat: Tally::default(),
            not_sub: Tally::default(),
            msg_loss: Tally::default(),
            msg_loss_uncertain: 0,
            ibx_loss: Tally::default(),
            unverified: Tally::default(),
            datagrams: DatagramStates::default(),
            overrun: 0,
            inconsistent: 0,
        }
    }
}
