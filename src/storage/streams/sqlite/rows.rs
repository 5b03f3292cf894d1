//! Queries and updates of the rows in SQLite.

use crate::event::model::{EventId, Json, ServerId};
use crate::event::stream::model::{PASSED_MAX, PageBudget, StreamEvent, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{ConsumerRow, Contents, MissedRange, Policy, StreamLimits, TrimReport};
use crate::event::timestamp::Timestamp;
use crate::storage::streams::column_values::{StreamRecord, damaged, id, signed, timestamp, unsigned};
use crate::storage::streams::error::StreamFault;
use bytes::Bytes;
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeMap, BTreeSet};

fn event_id(row: &Row<'_>, from: usize) -> Result<EventId, StreamFault> {
    let (session, instance) = (unsigned(row.get(from + 1)?)?, unsigned(row.get(from + 2)?)?);
    Ok(EventId { server: ServerId(row.get(from)?), session, instance })
}

/// Finds the row of a stream; `None` if the stream was never used.
pub(super) fn find(connection: &Connection, stream: &StreamName) -> Result<Option<StreamRecord>, StreamFault> {
    let mut find =
        connection.prepare_cached("SELECT number, last, events, bytes FROM seqcast_streams WHERE name = ?")?;
    let mut rows = find.query([stream.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (events, bytes) = (unsigned(row.get(2)?)?, unsigned(row.get(3)?)?);
    Ok(Some(StreamRecord { number: row.get(0)?, contents: Contents { last: id(row.get(1)?)?, events, bytes } }))
}

/// Finds the row of a stream, or creates it.
pub(super) fn find_or_create(connection: &Connection, stream: &StreamName) -> Result<StreamRecord, StreamFault> {
    if let Some(found) = find(connection, stream)? {
        return Ok(found);
    }
    connection
        .prepare_cached("INSERT INTO seqcast_streams (name, last, events, bytes) VALUES (?, 0, 0, 0)")?
        .execute([stream.as_str()])?;
    Ok(StreamRecord { number: connection.last_insert_rowid(), contents: Contents::default() })
}

/// Stores the contents of a stream.
pub(super) fn update_contents(connection: &Connection, record: StreamRecord) -> Result<(), StreamFault> {
    let StreamRecord { number, contents } = record;
    connection
        .prepare_cached("UPDATE seqcast_streams SET last = ?, events = ?, bytes = ? WHERE number = ?")?
        .execute(params![signed(contents.last.number())?, signed(contents.events)?, signed(contents.bytes)?, number])?;
    Ok(())
}

/// Returns, for each server, the position up to which its journal was scanned for the stream.
pub(super) fn covered(connection: &Connection, stream: i64) -> Result<BTreeMap<ServerId, EventId>, StreamFault> {
    let mut find =
        connection.prepare_cached("SELECT server, session, instance FROM seqcast_covered WHERE stream = ?")?;
    let mut rows = find.query([stream])?;
    let mut positions = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let position = event_id(row, 0)?;
        positions.insert(position.server, position);
    }
    Ok(positions)
}

fn consumer_row(row: &Row<'_>, record: StreamRecord) -> Result<ConsumerRow, StreamFault> {
    let name = |text: String| text.parse().map_err(|_| damaged("a user"));
    let component = |text: String| text.parse().map_err(|_| damaged("a component"));
    let missed = |first: Option<i64>| -> Result<Option<MissedRange>, StreamFault> {
        let Some(first) = first else { return Ok(None) };
        Ok(Some(MissedRange { first: id(first)?, last: id(row.get(4)?)?, count: unsigned(row.get(5)?)? }))
    };
    let position = id(row.get(2)?)?;
    Ok(ConsumerRow {
        consumer: Consumer { user: name(row.get(0)?)?, component: component(row.get(1)?)? },
        position,
        lapsed: missed(row.get(3)?)?,
        registered: timestamp(row.get(6)?)?,
        last_request: timestamp(row.get(7)?)?,
        lag: record.contents.count_after(position),
    })
}

const SELECT_CONSUMERS: &str = "SELECT user, component, position, missed_first, missed_last, missed_count, registered, heard \
    FROM seqcast_consumers WHERE stream = ?1";

/// Finds a consumer of a stream.
pub(super) fn find_consumer(
    connection: &Connection,
    record: StreamRecord,
    consumer: &Consumer,
) -> Result<Option<ConsumerRow>, StreamFault> {
    let mut find = connection.prepare_cached(&format!("{SELECT_CONSUMERS} AND user = ?2 AND component = ?3"))?;
    let mut rows = find.query(params![record.number, consumer.user.as_str(), consumer.component.as_str()])?;
    rows.next()?.map(|row| consumer_row(row, record)).transpose()
}

/// Returns the consumers of a stream, in the order of their names.
pub(super) fn consumers(connection: &Connection, record: StreamRecord) -> Result<Vec<ConsumerRow>, StreamFault> {
    let mut find = connection.prepare_cached(&format!("{SELECT_CONSUMERS} ORDER BY user, component"))?;
    let mut rows = find.query([record.number])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(consumer_row(row, record)?);
    }
    Ok(found)
}

/// Inserts or replaces the row of a consumer.
pub(super) fn upsert_consumer(connection: &Connection, stream: i64, row: &ConsumerRow) -> Result<(), StreamFault> {
    let missed = |field: fn(&MissedRange) -> u64| row.lapsed.as_ref().map(|missed| signed(field(missed))).transpose();
    connection.prepare_cached("REPLACE INTO seqcast_consumers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?.execute(
        params![
            stream,
            row.consumer.user.as_str(),
            row.consumer.component.as_str(),
            signed(row.position.number())?,
            missed(|missed| missed.first.number())?,
            missed(|missed| missed.last.number())?,
            missed(|missed| missed.count)?,
            row.registered.as_micros(),
            row.last_request.as_micros(),
        ],
    )?;
    Ok(())
}

/// Reads the events after `after` that match, until the page is full.
pub(super) fn read(
    connection: &Connection,
    record: StreamRecord,
    after: StreamId,
    want: Option<&BTreeSet<StreamType>>,
    mut budget: PageBudget,
) -> Result<StreamPage, StreamFault> {
    let (mut page, mut passed) = (StreamPage::new(after), 0);
    let mut read = connection.prepare_cached(
        "SELECT id, type, data, time, server, session, instance FROM seqcast_events \
         WHERE stream = ? AND ? < id ORDER BY id",
    )?;
    let mut rows = read.query(params![record.number, signed(after.number())?])?;
    while let Some(row) = rows.next()? {
        let (found, kind) = (id(row.get(0)?)?, row.get_ref(1)?.as_str().map_err(|_| damaged("a type"))?);
        if want.is_none_or(|want| want.contains(kind)) {
            let data = Bytes::from(row.get::<_, String>(2)?);
            let event = StreamEvent {
                id: found,
                kind: kind.parse().map_err(|_| damaged("a type"))?,
                data: Json::from_stored(data).map_err(|_| damaged("JSON"))?,
                time: timestamp(row.get(3)?)?,
                origin: event_id(row, 4)?,
            };
            if !page.take(event, &mut budget) {
                return Ok(page);
            }
        } else if passed == PASSED_MAX {
            page.more_follows = true;
            return Ok(page);
        } else {
            passed += 1;
        }
        page.covered = found;
    }
    // Events added meanwhile follow this position.
    page.covered = page.covered.max(record.contents.last);
    Ok(page)
}

/// Removes the oldest events that all consumers have read, or that exceed the limits.
pub(super) fn trim(
    connection: &Connection,
    record: StreamRecord,
    limits: &StreamLimits,
    now: Timestamp,
    budget: usize,
) -> Result<TrimReport, StreamFault> {
    let mut report = TrimReport::default();
    let StreamRecord { number, mut contents } = record;
    let consumer_rows = consumers(connection, record)?;
    let active = consumer_rows.iter().filter(|row| row.lapsed.is_none());
    let floor = active.map(|row| row.position).min();
    let mut end = None;
    {
        let mut oldest = connection.prepare_cached(
            "SELECT id, time, octet_length(data) FROM seqcast_events WHERE stream = ? ORDER BY id LIMIT ?",
        )?;
        let mut rows = oldest.query(params![number, i64::try_from(budget).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let (found, time, bytes) = (id(row.get(0)?)?, timestamp(row.get(1)?)?, unsigned(row.get(2)?)?);
            let is_accepted = floor.is_some_and(|floor| found <= floor);
            let exceeds_bytes = limits.bytes.is_some_and(|max| max < contents.bytes);
            let is_excess = limits.policy == Policy::Lapse && (limits.is_old(now, time) || exceeds_bytes);
            if !is_accepted && !is_excess {
                break;
            }
            contents.events = contents.events.checked_sub(1).ok_or_else(|| damaged("a count of events"))?;
            contents.bytes = contents.bytes.checked_sub(bytes).ok_or_else(|| damaged("a count of bytes"))?;
            end = Some(found);
        }
    }
    let Some(end) = end else { return Ok(report) };
    for row in consumer_rows.into_iter().filter(|row| row.position < end) {
        let mut find_missed = connection
            .prepare_cached("SELECT min(id), count(*) FROM seqcast_events WHERE stream = ? AND ? < id AND id <= ?")?;
        let bounds = params![number, signed(row.position.number())?, signed(end.number())?];
        let (first, count) =
            find_missed.query_row(bounds, |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?)))?;
        let Some(first) = first else { continue };
        let missed = MissedRange { first: id(first)?, last: end, count: unsigned(count)? };
        let lapsed = Some(row.lapsed.map_or(missed, |before| before.merge(missed)));
        report.missed.push((row.consumer.clone(), missed));
        upsert_consumer(connection, number, &ConsumerRow { lapsed, position: end, ..row })?;
    }
    connection
        .prepare_cached("DELETE FROM seqcast_events WHERE stream = ? AND id <= ?")?
        .execute(params![number, signed(end.number())?])?;
    update_contents(connection, StreamRecord { number, contents })?;
    report.removed = record.contents.events - contents.events;
    Ok(report)
}
