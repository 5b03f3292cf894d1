//! Removes events that the retention rules do not keep.

use super::append::{WriterCache, index_tail};
use super::query::{event_type, timestamp, unsigned};
use crate::event::store::retention::{Retention, Rule};
use crate::event::timestamp::Timestamp;
use crate::storage::journal::error::StoreError;
use crate::subject::Subject;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Placeholder for an arrival that was not looked up yet; sorts before all others.
const UNKNOWN: i64 = i64::MIN;
/// Usage that the tail adds to each of its types.
const TAIL_USAGE: &str = "SELECT t.subject, t.number, t.events, t.first, count(*), sum(coalesce(octet_length(e.payload), 0)), min(e.time) \
    FROM event e JOIN type t ON t.number = e.type WHERE (SELECT arrival FROM filled) < e.arrival GROUP BY e.type";

/// Usage of the indexed events by retention rule, so that no operation has to scan all types.
#[derive(Debug)]
pub(super) struct RetentionUsage {
    retention: Retention,
    /// Usage per rule, in the order of the rules.
    rules: Vec<RuleUsage>,
}

#[derive(Debug, Default)]
struct RuleUsage {
    events: u64,
    bytes: u64,
    /// Time and arrival of the earliest event of each type, with the type number. If an earlier event arrived since,
    /// both entries are there.
    heads: BinaryHeap<Reverse<(i64, i64, i64)>>,
}

/// Events removed from one type.
#[derive(Default)]
struct TypeRemoval {
    events: i64,
    bytes: i64,
    /// Time of the earliest remaining event, if any.
    first: Option<i64>,
}

impl RetentionUsage {
    /// Reads the usage of all types, which takes a microsecond or two per type.
    fn read(connection: &Connection, retention: &Retention) -> Result<RetentionUsage, StoreError> {
        let rules = retention.rules.iter().map(|_| RuleUsage::default()).collect();
        let mut usage = RetentionUsage { retention: retention.clone(), rules };
        let mut types =
            connection.prepare_cached("SELECT subject, number, events, bytes, first FROM type WHERE 0 < events")?;
        let mut rows = types.query([])?;
        while let Some(row) = rows.next()? {
            usage.add(row.get_ref(0)?, [row.get(2)?, row.get(3)?], Some((row.get(4)?, row.get(1)?)))?;
        }
        Ok(usage)
    }

    /// Adds the usage of the tail before it moves into the index tables.
    pub(super) fn add_tail(&mut self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        let mut tail = transaction.prepare_cached(TAIL_USAGE)?;
        let mut rows = tail.query([])?;
        while let Some(row) = rows.next()? {
            let (number, events, first) = (row.get(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?);
            let earliest = row.get(6)?;
            let head = (events == 0 || earliest < first).then_some((earliest, number));
            self.add(row.get_ref(0)?, [row.get(4)?, row.get(5)?], head)?;
        }
        Ok(())
    }

    /// Adds events and bytes of a type. `head` is the time of its earliest event with the type number, if that is new.
    fn add(&mut self, subject: ValueRef<'_>, more: [i64; 2], head: Option<(i64, i64)>) -> Result<(), StoreError> {
        let Some(rule) = self.retention.rule(&event_type(subject)?) else { return Ok(()) };
        let usage = &mut self.rules[rule];
        let [events, bytes] = more;
        usage.events = usage.events.checked_add(unsigned(events)?).ok_or_else(damaged)?;
        usage.bytes = usage.bytes.checked_add(unsigned(bytes)?).ok_or_else(damaged)?;
        usage.heads.extend(head.map(|(time, number)| Reverse((time, UNKNOWN, number))));
        Ok(())
    }
}

fn damaged() -> StoreError {
    StoreError::damaged("a count of events or bytes")
}

/// Removes at most `budget` events and returns the number removed by each rule. After an error the caches are invalid.
///
/// Removing an event takes about ten microseconds. Types without events are removed as well; their numbers are not
/// reused.
pub(super) fn trim(
    connection: &mut Connection,
    cache: &mut WriterCache,
    usage: &mut Option<RetentionUsage>,
    retention: &Retention,
    (now, budget): (Timestamp, usize),
) -> Result<Vec<u64>, StoreError> {
    let mut taken = usage.take().filter(|usage| usage.retention == *retention);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    index_tail(&transaction, cache, taken.as_mut())?;
    let mut new = match taken {
        Some(usage) => usage,
        None => RetentionUsage::read(&transaction, retention)?,
    };
    let (mut left, mut counts) = (budget, Vec::new());
    for (rule, of_rule) in retention.rules.iter().zip(&mut new.rules) {
        let mut types = BTreeMap::new();
        let count = trim_rule(&transaction, rule, of_rule, &mut types, now, left)?;
        for (number, removed) in types {
            update_type_row(&transaction, cache, number, &removed)?;
        }
        left -= count;
        counts.push(count as u64);
    }
    transaction.commit()?;
    *usage = Some(new);
    Ok(counts)
}

/// Removes events of one rule, the earliest first. Returns their number.
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
        && let Some(head) = usage.heads.peek().copied()
        && rule.is_exceeded(now, timestamp(head.0.0)?, usage.events, usage.bytes)
    {
        while usage.heads.peek() == Some(&head) {
            usage.heads.pop();
        }
        let Reverse((time, arrival, number)) = head;
        if arrival != UNKNOWN {
            let freed = remove(transaction, number, time, arrival)?;
            let removed = types.entry(number).or_default();
            (removed.events, removed.bytes, removed.first) = (removed.events + 1, removed.bytes + freed, None);
            usage.events = usage.events.checked_sub(1).ok_or_else(damaged)?;
            usage.bytes = usage.bytes.checked_sub(freed.unsigned_abs()).ok_or_else(damaged)?;
            count += 1;
        }
        let mut rows = earliest.query([number])?;
        if let Some(row) = rows.next()? {
            let time = row.get(0)?;
            usage.heads.push(Reverse((time, row.get(1)?, number)));
            if let Some(removed) = types.get_mut(&number) {
                removed.first = Some(time);
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
        return Err(damaged());
    }
    if removed.first.is_none() {
        transaction.prepare_cached("DELETE FROM type WHERE number = ?")?.execute([number])?;
        let subject: Subject = subject.parse().map_err(|_| StoreError::damaged("an event type"))?;
        cache.remove_type(&subject);
    }
    Ok(())
}

/// Removes an event from all tables. Returns the bytes of its payload.
fn remove(transaction: &Transaction<'_>, number: i64, time: i64, arrival: i64) -> Result<i64, StoreError> {
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
