//! Removes what a journal shall not keep.

use super::append::{Known, fill};
use super::query::{event_type, timestamp};
use crate::daemon::store::error::StoreError;
use crate::event::store::retention::{Retention, Rule};
use crate::event::timestamp::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Stands for an arrival that was not looked up yet; before all others.
const UNKNOWN: i64 = i64::MIN;

/// The events of a type that are in the orders.
struct Held {
    number: i64,
    events: u64,
    bytes: u64,
    /// None of them is earlier.
    first: i64,
    is_changed: bool,
}

/// Removes so many events at most, and gives how many of each rule. After an error nothing is known.
///
/// It costs a microsecond or two for each type there is, and some ten for each event that goes.
pub(super) fn trim(
    connection: &mut Connection,
    known: &mut Known,
    retention: &Retention,
    now: Timestamp,
    budget: usize,
) -> Result<Vec<u64>, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    fill(&transaction, known)?;
    let mut left = budget;
    let mut removed = Vec::new();
    for (rule, mut types) in retention.rules.iter().zip(held(&transaction, retention)?) {
        let count = trim_rule(&transaction, rule, &mut types, now, left)?;
        left -= count;
        removed.push(count as u64);
        let mut update =
            transaction.prepare_cached("UPDATE type SET events = ?, bytes = ?, first = ? WHERE number = ?")?;
        for held in types.iter().filter(|held| held.is_changed) {
            update.execute(params![held.events as i64, held.bytes as i64, held.first, held.number])?;
        }
    }
    transaction.commit()?;
    Ok(removed)
}

/// The types that have events, for each rule those that belong to it.
fn held(transaction: &Transaction<'_>, retention: &Retention) -> Result<Vec<Vec<Held>>, StoreError> {
    let mut found: Vec<Vec<Held>> = retention.rules.iter().map(|_| Vec::new()).collect();
    let mut types =
        transaction.prepare_cached("SELECT subject, number, events, bytes, first FROM type WHERE 0 < events")?;
    let mut rows = types.query([])?;
    while let Some(row) = rows.next()? {
        let Some(rule) = retention.rule(&event_type(row.get_ref(0)?)?) else { continue };
        let (events, bytes) = (row.get::<_, i64>(2)?.unsigned_abs(), row.get::<_, i64>(3)?.unsigned_abs());
        found[rule].push(Held { number: row.get(1)?, events, bytes, first: row.get(4)?, is_changed: false });
    }
    Ok(found)
}

/// Removes events of one rule, the earliest first. Gives how many.
fn trim_rule(
    transaction: &Transaction<'_>,
    rule: &Rule,
    types: &mut [Held],
    now: Timestamp,
    budget: usize,
) -> Result<usize, StoreError> {
    let sum = |of: fn(&Held) -> u64| types.iter().try_fold(0, |sum: u64, held| sum.checked_add(of(held)));
    let damaged = || StoreError::damaged("a count of events or bytes");
    let mut count = sum(|held| held.events).ok_or_else(damaged)?;
    let mut bytes = sum(|held| held.bytes).ok_or_else(damaged)?;
    // Where the earliest event of each type stands, or not before what.
    let mut heads: BinaryHeap<_> =
        types.iter().enumerate().map(|(index, held)| Reverse((held.first, UNKNOWN, index))).collect();
    let mut earliest = transaction
        .prepare_cached("SELECT time, arrival FROM by_type WHERE type = ? ORDER BY time, arrival LIMIT 1")?;
    let mut removed = 0;
    while removed < budget
        && let Some(Reverse((time, arrival, index))) = heads.pop()
        && rule.is_too_much(now, timestamp(time)?, count, bytes)
    {
        let held = &mut types[index];
        if arrival != UNKNOWN {
            let freed = remove(transaction, held.number, time, arrival)?;
            held.events = held.events.checked_sub(1).ok_or_else(damaged)?;
            held.bytes = held.bytes.checked_sub(freed).ok_or_else(damaged)?;
            // Theirs are parts of these.
            (count, bytes, removed) = (count - 1, bytes - freed, removed + 1);
        }
        let mut rows = earliest.query([held.number])?;
        held.is_changed = true;
        if let Some(row) = rows.next()? {
            held.first = row.get(0)?;
            heads.push(Reverse((held.first, row.get(1)?, index)));
        }
    }
    Ok(removed)
}

/// Removes an event from everywhere. Gives how many bytes its payload had.
fn remove(transaction: &Transaction<'_>, number: i64, time: i64, arrival: i64) -> Result<u64, StoreError> {
    let mut delete = transaction.prepare_cached(
        "DELETE FROM event WHERE arrival = ? RETURNING server, session, instance, source_time, coalesce(octet_length(payload), 0)",
    )?;
    let (server, session, instance, source_time, bytes) = delete.query_row([arrival], |row| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, i64>(1)?,
            row.get::<_, i64>(2)?,
            row.get::<_, Option<i64>>(3)?,
            row.get::<_, i64>(4)?,
        ))
    })?;
    transaction
        .prepare_cached("DELETE FROM by_id WHERE server = ? AND session = ? AND instance = ?")?
        .execute([server, session, instance])?;
    transaction
        .prepare_cached("DELETE FROM by_type WHERE type = ? AND time = ? AND arrival = ?")?
        .execute([number, time, arrival])?;
    transaction.prepare_cached("DELETE FROM by_time WHERE time = ? AND arrival = ?")?.execute([time, arrival])?;
    if let Some(source_time) = source_time {
        transaction
            .prepare_cached("DELETE FROM by_source_time WHERE source_time = ? AND time = ? AND arrival = ?")?
            .execute([source_time, time, arrival])?;
    }
    Ok(bytes.unsigned_abs())
}
