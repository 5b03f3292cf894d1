//! The index tables of the journal, and the writer's cache of its content.

use super::row::signed;
use super::usage::RetentionUsage;
use crate::event::model::{EventId, ServerId};
use crate::storage::journal::error::StoreError;
use crate::subject::Subject;
use foldhash::{HashMap, HashSet};
use rusqlite::{Connection, Transaction, params};
use std::collections::BTreeMap;

/// Condition that selects the tail of the table `event`.
pub(super) const IS_TAIL: &str = "(SELECT arrival FROM filled) < i.arrival";
/// Maximum number of types whose numbers are cached.
const TYPES_MAX: usize = 65_536;
/// Statements that add the tail to the index tables and to the sums of types, and advance `filled`. Ids and times
/// almost rise with the arrival. Only types need sorting, since otherwise each event would touch another page than the
/// previous event.
const INDEX_TAIL: [&str; 6] = [
    "INSERT INTO by_id SELECT server, session, instance, arrival FROM event WHERE (SELECT arrival FROM filled) < arrival",
    "INSERT INTO by_type SELECT type, time, arrival FROM event \
     WHERE (SELECT arrival FROM filled) < arrival ORDER BY type, time, arrival",
    "INSERT INTO by_time SELECT time, arrival FROM event WHERE (SELECT arrival FROM filled) < arrival",
    "INSERT INTO by_source_time SELECT source_time, time, arrival FROM event \
     WHERE (SELECT arrival FROM filled) < arrival AND source_time IS NOT NULL",
    "UPDATE type SET events = events + more, bytes = bytes + more_bytes, first = min(first, earliest) FROM ( \
         SELECT type, count(*) AS more, sum(coalesce(octet_length(payload), 0)) AS more_bytes, min(time) AS earliest \
         FROM event WHERE (SELECT arrival FROM filled) < arrival GROUP BY type \
     ) AS tail WHERE number = tail.type",
    "UPDATE filled SET arrival = max(arrival, (SELECT coalesce(max(arrival), 0) FROM event))",
];

/// The writer's cache of the content of the file.
#[derive(Debug, Default)]
pub(super) struct WriterCache {
    /// Numbers of types.
    types: HashMap<Subject, i64>,
    /// Arrival number of the next event.
    pub(super) next: i64,
    /// Ids of the events in the tail.
    pub(super) tail: HashSet<EventId>,
    /// Upper bound of the stored event ids, per server.
    last: BTreeMap<ServerId, EventId>,
}

impl WriterCache {
    /// Reads the cache from the file.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<WriterCache> {
        let next = connection.query_row(
            "SELECT 1 + max((SELECT coalesce(max(arrival), 0) FROM event), (SELECT arrival FROM filled))",
            [],
            |row| row.get(0),
        )?;
        let mut servers = connection.prepare("SELECT id, session FROM server")?;
        let last = servers.query_map([], |row| {
            let server = ServerId(row.get(0)?);
            Ok((server, EventId { server, session: row.get::<_, i64>(1)?.unsigned_abs(), instance: u64::MAX }))
        })?;
        let mut events = connection
            .prepare("SELECT server, session, instance FROM event WHERE (SELECT arrival FROM filled) < arrival")?;
        let tail = events.query_map([], |row| {
            let (session, instance) = (row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, i64>(2)?.unsigned_abs());
            Ok(EventId { server: ServerId(row.get(0)?), session, instance })
        })?;
        let (last, tail) = (last.collect::<Result<_, _>>()?, tail.collect::<Result<_, _>>()?);
        Ok(WriterCache { types: HashMap::default(), next, tail, last })
    }

    /// Returns whether the event is stored.
    pub(super) fn is_stored(&self, transaction: &Transaction<'_>, id: EventId) -> Result<bool, StoreError> {
        if self.last.get(&id.server).is_none_or(|last| *last < id) {
            return Ok(false);
        }
        if self.tail.contains(&id) {
            return Ok(true);
        }
        let mut find =
            transaction.prepare_cached("SELECT 1 FROM by_id WHERE server = ? AND session = ? AND instance = ?")?;
        Ok(find.exists(params![id.server.0, signed(id.session)?, signed(id.instance)?])?)
    }

    /// Adds an event that was inserted with the next arrival.
    pub(super) fn add(&mut self, id: EventId) -> Result<(), StoreError> {
        self.next = self.next.checked_add(1).ok_or_else(|| StoreError::damaged("an arrival"))?;
        self.tail.insert(id);
        let last = self.last.entry(id.server).or_insert(id);
        *last = id.max(*last);
        Ok(())
    }

    /// Removes a type from the cache after its row was deleted.
    pub(super) fn remove_type(&mut self, subject: &Subject) {
        self.types.remove(subject);
    }

    /// Returns the number of a type. A type without a number gets one.
    pub(super) fn type_number(&mut self, transaction: &Transaction<'_>, subject: &Subject) -> Result<i64, StoreError> {
        if let Some(number) = self.types.get(subject) {
            return Ok(*number);
        }
        let known = |transaction: &Transaction<'_>| -> rusqlite::Result<Option<i64>> {
            let mut find = transaction.prepare_cached("SELECT number FROM type WHERE subject = ?")?;
            let mut rows = find.query([subject.as_str()])?;
            rows.next()?.map(|row| row.get(0)).transpose()
        };
        let number = match known(transaction)? {
            Some(number) => number,
            None => {
                transaction.prepare_cached("INSERT INTO type (subject) VALUES (?)")?.execute([subject.as_str()])?;
                transaction.last_insert_rowid()
            }
        };
        if TYPES_MAX <= self.types.len() {
            self.types.clear();
        }
        self.types.insert(subject.detached(), number);
        Ok(number)
    }
}

/// Moves the tail into the index tables, and adds its events to the retention usage, if given.
pub(super) fn index_tail(
    transaction: &Transaction<'_>,
    cache: &mut WriterCache,
    usage: Option<&mut RetentionUsage>,
) -> Result<(), StoreError> {
    if cache.tail.is_empty() {
        return Ok(());
    }
    if let Some(usage) = usage {
        usage.add_tail(transaction)?;
    }
    for sql in INDEX_TAIL {
        transaction.prepare_cached(sql)?.execute([])?;
    }
    cache.tail.clear();
    Ok(())
}

/// Returns the arrival of the event; `None` if it is not stored.
pub(super) fn arrival(connection: &Connection, id: EventId) -> Result<Option<i64>, StoreError> {
    let (Ok(session), Ok(instance)) = (signed(id.session), signed(id.instance)) else { return Ok(None) };
    let mut find = connection.prepare_cached(&format!(
        "SELECT arrival FROM by_id WHERE server = ?1 AND session = ?2 AND instance = ?3 \
         UNION ALL SELECT arrival FROM event i WHERE {IS_TAIL} AND server = ?1 AND session = ?2 AND instance = ?3"
    ))?;
    let mut rows = find.query(params![id.server.0, session, instance])?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}
