//! Removes events that exceed the retention.

use super::index::{WriterCache, index_tail};
use super::row::timestamp;
use super::usage::{RetentionUsage, RuleUsage, TypeHead, UNKNOWN_ARRIVAL, damaged_count};
use crate::event::store::retention::{Retention, Rule};
use crate::event::timestamp::Timestamp;
use crate::storage::journal::error::StoreError;
use crate::subject::Subject;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Events removed from one type.
#[derive(Default)]
struct TypeRemoval {
    events: i64,
    bytes: i64,
    /// Time of the earliest remaining event, if any.
    first: Option<i64>,
}

/// Removes at most `budget` events and returns the number removed by each rule. After an error the caches are invalid.
///
/// Removing an event takes about ten microseconds. Types without events are removed as well, and their numbers are
/// never reused.
pub(super) fn trim(
    connection: &mut Connection,
    cache: &mut WriterCache,
    usage: &mut Option<RetentionUsage>,
    retention: &Retention,
    now: Timestamp,
    budget: usize,
) -> Result<Vec<u64>, StoreError> {
    let mut known_usage = usage.take().filter(|usage| usage.retention == *retention);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    index_tail(&transaction, cache, known_usage.as_mut())?;
    let mut new_usage = match known_usage {
        Some(usage) => usage,
        None => RetentionUsage::read(&transaction, retention)?,
    };
    let (mut left, mut counts) = (budget, Vec::new());
    for (rule, rule_usage) in retention.rules.iter().zip(&mut new_usage.rules) {
        let mut types = BTreeMap::new();
        let count = trim_rule(&transaction, rule, rule_usage, &mut types, now, left)?;
        for (number, removed) in types {
            update_type_row(&transaction, cache, number, &removed)?;
        }
        left -= count;
        counts.push(count as u64);
    }
    transaction.commit()?;
    *usage = Some(new_usage);
    Ok(counts)
}

/// Removes events of one rule, earliest first, and records the removals in `types`. Returns their number.
fn trim_rule(
    transaction: &Transaction<'_>,
    rule: &Rule,
    usage: &mut RuleUsage,
    types: &mut BTreeMap<i64, TypeRemoval>,
    now: Timestamp,
    budget: usize,
) -> Result<usize, StoreError> {
    let mut earliest = transaction
        .prepare_cached("SELECT time, arrival FROM by_type WHERE type = ? ORDER BY time, arrival LIMIT 1")?;
    let mut count = 0;
    while count < budget
        && let Some(Reverse(head)) = usage.heads.peek().copied()
        && rule.is_exceeded(now, timestamp(head.time)?, usage.events, usage.bytes)
    {
        while usage.heads.peek() == Some(&Reverse(head)) {
            usage.heads.pop();
        }
        if head.arrival != UNKNOWN_ARRIVAL {
            let freed = remove(transaction, head)?;
            let removed = types.entry(head.number).or_default();
            (removed.events, removed.bytes, removed.first) = (removed.events + 1, removed.bytes + freed, None);
            usage.events = usage.events.checked_sub(1).ok_or_else(damaged_count)?;
            usage.bytes = usage.bytes.checked_sub(freed.unsigned_abs()).ok_or_else(damaged_count)?;
            count += 1;
        }
        let mut rows = earliest.query([head.number])?;
        if let Some(row) = rows.next()? {
            let next = TypeHead { time: row.get(0)?, arrival: row.get(1)?, number: head.number };
            usage.heads.push(Reverse(next));
            if let Some(removed) = types.get_mut(&head.number) {
                removed.first = Some(next.time);
            }
        }
    }
    Ok(count)
}

/// Updates the row of a type after a removal; deletes the row if no event is left.
fn update_type_row(
    transaction: &Transaction<'_>,
    cache: &mut WriterCache,
    number: i64,
    removed: &TypeRemoval,
) -> Result<(), StoreError> {
    let mut update = transaction.prepare_cached(
        "UPDATE type SET events = events - ?, bytes = bytes - ?, first = ? WHERE number = ? RETURNING events, bytes, subject",
    )?;
    let first = removed.first.unwrap_or(i64::MAX);
    let (events, bytes, subject) = update.query_row(params![removed.events, removed.bytes, first, number], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    })?;
    if events < 0 || bytes < 0 || removed.first.is_none() && (events, bytes) != (0, 0) {
        return Err(damaged_count());
    }
    if removed.first.is_none() {
        transaction.prepare_cached("DELETE FROM type WHERE number = ?")?.execute([number])?;
        let subject: Subject = subject.parse().map_err(|_| StoreError::damaged("an event type"))?;
        cache.remove_type(&subject);
    }
    Ok(())
}

/// Removes an event from all tables. Returns the bytes of its payload.
fn remove(transaction: &Transaction<'_>, event: TypeHead) -> Result<i64, StoreError> {
    let TypeHead { time, arrival, number } = event;
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
    Ok(bytes)
}
