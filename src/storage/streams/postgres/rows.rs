//! Queries and updates of the rows in PostgreSQL.

use super::connection::{PostgresSession, column};
use crate::event::model::{EventId, Json, ServerId};
use crate::event::stream::model::{PASSED_MAX, PageBudget, StreamEvent, StreamPage};
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::{ConsumerRow, Contents, MissedRange, NewEvent, Policy, StreamLimits, TrimReport};
use crate::event::timestamp::Timestamp;
use crate::storage::streams::column_values::{StreamRecord, damaged, id, signed, timestamp, unsigned};
use crate::storage::streams::error::StreamFault;
use bytes::Bytes;
use std::collections::BTreeMap;
use tokio_postgres::Row;

/// Maximum number of events that one statement adds.
const STATEMENT_EVENTS_MAX: usize = 4096;
/// Maximum bytes of data that one statement adds.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// Finds the row of a stream; `None` if the stream was never used.
pub(super) async fn find(session: &PostgresSession, stream: &StreamName) -> Result<Option<StreamRecord>, StreamFault> {
    let find = "SELECT number, last, events, bytes FROM seqcast_streams WHERE name = $1";
    let rows = session.rows(find, &[&stream.as_str()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (last, events) = (id(column(row, 1)?)?, unsigned(column(row, 2)?)?);
    let contents = Contents { last, events, bytes: unsigned(column(row, 3)?)? };
    if last.number() < events {
        return Err(damaged("a count of events"));
    }
    Ok(Some(StreamRecord { number: column(row, 0)?, contents }))
}

pub(super) async fn find_or_create(
    session: &PostgresSession,
    stream: &StreamName,
) -> Result<StreamRecord, StreamFault> {
    if let Some(found) = find(session, stream).await? {
        return Ok(found);
    }
    let make = "INSERT INTO seqcast_streams (name, last, events, bytes) VALUES ($1, 0, 0, 0)";
    session.change(make, &[&stream.as_str()]).await?;
    find(session, stream)
        .await?
        .ok_or_else(|| StreamFault::Foreign("seqcast_streams: an inserted row is missing".into()))
}

pub(super) async fn update_contents(session: &PostgresSession, record: StreamRecord) -> Result<(), StreamFault> {
    let StreamRecord { number, contents } = record;
    let values = (signed(contents.last.number())?, signed(contents.events)?, signed(contents.bytes)?);
    let update_contents = "UPDATE seqcast_streams SET last = $2, events = $3, bytes = $4 WHERE number = $1";
    session.change(update_contents, &[&number, &values.0, &values.1, &values.2]).await?;
    Ok(())
}

fn event_id(row: &Row, from: usize) -> Result<EventId, StreamFault> {
    let server = u32::try_from(column::<i64>(row, from)?).map_err(|_| damaged("a server"))?;
    let (session, instance) = (unsigned(column(row, from + 1)?)?, unsigned(column(row, from + 2)?)?);
    Ok(EventId { server: ServerId(server), session, instance })
}

pub(super) async fn covered(
    session: &PostgresSession,
    stream: &StreamName,
) -> Result<BTreeMap<ServerId, EventId>, StreamFault> {
    let find = "SELECT server, session, instance FROM seqcast_covered \
        WHERE stream = (SELECT number FROM seqcast_streams WHERE name = $1)";
    let rows = session.rows(find, &[&stream.as_str()]).await?;
    let position = |row| event_id(row, 0).map(|position| (position.server, position));
    rows.iter().map(position).collect()
}

pub(super) async fn cover(session: &PostgresSession, number: i64, positions: &[EventId]) -> Result<(), StreamFault> {
    if positions.is_empty() {
        return Ok(());
    }
    let cover = "INSERT INTO seqcast_covered SELECT $1::bigint, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) \
        ON CONFLICT (stream, server) DO UPDATE SET session = excluded.session, instance = excluded.instance";
    let servers: Vec<i64> = positions.iter().map(|position| position.server.0.into()).collect();
    let column = |field: fn(&EventId) -> u64| {
        positions.iter().map(|position| signed(field(position))).collect::<Result<Vec<i64>, StreamFault>>()
    };
    let (sessions, instances) = (column(|position| position.session)?, column(|position| position.instance)?);
    session.change(cover, &[&number, &servers, &sessions, &instances]).await?;
    Ok(())
}

/// Adds events with the ids after `last`.
pub(super) async fn insert(
    session: &PostgresSession,
    number: i64,
    mut last: i64,
    mut events: &[&NewEvent],
) -> Result<(), StreamFault> {
    let insert = "INSERT INTO seqcast_events SELECT $1::bigint, * FROM \
        unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])";
    while !events.is_empty() {
        let mut bytes = 0;
        let fits = |event: &&&NewEvent| {
            bytes += event.data.bytes().len();
            bytes <= STATEMENT_BYTES_MAX
        };
        let count = events.iter().take(STATEMENT_EVENTS_MAX).take_while(fits).count().max(1);
        let (part, rest) = events.split_at(count);
        let column =
            |field: fn(&NewEvent) -> u64| part.iter().map(|event| signed(field(event))).collect::<Result<Vec<_>, _>>();
        let ids: Vec<i64> = (last + 1..).take(count).collect();
        let kinds: Vec<&str> = part.iter().map(|event| event.kind.as_str()).collect();
        let data: Vec<&str> = part.iter().map(|event| event.data.as_str()).collect();
        let times: Vec<i64> = part.iter().map(|event| event.time.as_micros()).collect();
        let servers: Vec<i64> = part.iter().map(|event| event.origin.server.0.into()).collect();
        let (sessions, instances) = (column(|event| event.origin.session)?, column(|event| event.origin.instance)?);
        session.change(insert, &[&number, &ids, &kinds, &data, &times, &servers, &sessions, &instances]).await?;
        (last, events) = (last + count as i64, rest);
    }
    Ok(())
}

macro_rules! select_consumers {
    ($where:literal) => {
        concat!(
            r#"SELECT "user", component, position, missed_first, missed_last, missed_count, registered, heard "#,
            "FROM seqcast_consumers WHERE stream = $1 ",
            $where
        )
    };
}

fn consumer_row(record: &StreamRecord, row: &Row) -> Result<ConsumerRow, StreamFault> {
    let user = column::<&str>(row, 0)?.parse().map_err(|_| damaged("a user"))?;
    let component = column::<&str>(row, 1)?.parse().map_err(|_| damaged("a component"))?;
    let lapsed = match column::<Option<i64>>(row, 3)? {
        Some(first) => {
            let (last, count) = (id(column(row, 4)?)?, unsigned(column(row, 5)?)?);
            Some(MissedRange { first: id(first)?, last, count })
        }
        None => None,
    };
    let position = id(column(row, 2)?)?;
    Ok(ConsumerRow {
        consumer: Consumer { user, component },
        position,
        lapsed,
        registered: timestamp(column(row, 6)?)?,
        last_request: timestamp(column(row, 7)?)?,
        lag: record.contents.count_after(position),
    })
}

pub(super) async fn consumers(
    session: &PostgresSession,
    record: &StreamRecord,
) -> Result<Vec<ConsumerRow>, StreamFault> {
    let rows = session.rows(select_consumers!(r#"ORDER BY "user", component"#), &[&record.number]).await?;
    rows.iter().map(|row| consumer_row(record, row)).collect()
}

pub(super) async fn find_consumer(
    session: &PostgresSession,
    record: &StreamRecord,
    consumer: &Consumer,
) -> Result<Option<ConsumerRow>, StreamFault> {
    let find = select_consumers!(r#"AND "user" = $2 AND component = $3"#);
    let rows = session.rows(find, &[&record.number, &consumer.user.as_str(), &consumer.component.as_str()]).await?;
    rows.first().map(|row| consumer_row(record, row)).transpose()
}

pub(super) async fn upsert_consumer(
    session: &PostgresSession,
    stream: i64,
    row: &ConsumerRow,
) -> Result<(), StreamFault> {
    let put = r#"INSERT INTO seqcast_consumers VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (stream, "user", component) DO UPDATE SET position = excluded.position, missed_first = excluded.missed_first,
        missed_last = excluded.missed_last, missed_count = excluded.missed_count, heard = excluded.heard"#;
    let missed = |field: fn(&MissedRange) -> u64| row.lapsed.as_ref().map(|missed| signed(field(missed))).transpose();
    let (first, last) = (missed(|missed| missed.first.number())?, missed(|missed| missed.last.number())?);
    let (count, position) = (missed(|missed| missed.count)?, signed(row.position.number())?);
    let (user, component) = (row.consumer.user.as_str(), row.consumer.component.as_str());
    let (registered, last_request) = (row.registered.as_micros(), row.last_request.as_micros());
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
        [&stream, &user, &component, &position, &first, &last, &count, &registered, &last_request];
    session.change(put, &values).await?;
    Ok(())
}

/// Fills the page with the events after its position.
pub(super) async fn read(
    session: &PostgresSession,
    found: &StreamRecord,
    mut page: StreamPage,
    kinds: Option<&[&str]>,
    mut budget: PageBudget,
) -> Result<StreamPage, StreamFault> {
    // Reads the events that fit, and one further event, which shows that the page ends and may be large.
    let part = "SELECT id, type, data, time, server, session, instance FROM ( \
            SELECT *, sum(octet_length(data)) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS total FROM seqcast_events \
            WHERE stream = $1 AND $2 < id AND id <= $3 AND ($4::text[] IS NULL OR type = ANY ($4)) ORDER BY id LIMIT $5 \
        ) part WHERE total - octet_length(data) <= $6 ORDER BY id";
    let (start, last) = (found.contents.start().number(), found.contents.last);
    let mut from = page.covered.number().max(start);
    while from < last.number() {
        let end = if kinds.is_some() { last.number().min(from + PASSED_MAX) } else { last.number() };
        let (limit, bytes) = (
            budget.events.saturating_add(1).min(STATEMENT_EVENTS_MAX) as i64,
            budget.bytes.min(STATEMENT_BYTES_MAX) as i64,
        );
        let rows = session.rows(part, &[&found.number, &signed(from)?, &signed(end)?, &kinds, &limit, &bytes]).await?;
        let mut read = 0;
        for row in &rows {
            let data = Bytes::copy_from_slice(column::<&str>(row, 2)?.as_bytes());
            read += data.len() as i64;
            let event = StreamEvent {
                id: id(column(row, 0)?)?,
                kind: column::<&str>(row, 1)?.parse().map_err(|_| damaged("a type"))?,
                data: Json::from_stored(data).map_err(|_| damaged("JSON"))?,
                time: timestamp(column(row, 3)?)?,
                origin: event_id(row, 4)?,
            };
            from = event.id.number();
            if !page.take(event, &mut budget) {
                // The page covers the retained events before this one.
                if start < from - 1 {
                    page.covered = page.covered.max(id(signed(from - 1)?)?);
                }
                return Ok(page);
            }
        }
        let is_part = rows.len() as i64 == limit || bytes < read;
        from = if is_part { from } else { end };
        if !is_part && end < last.number() {
            (page.covered, page.more_follows) = (id(signed(end)?)?, true);
            return Ok(page);
        }
    }
    // Events added meanwhile follow this position.
    page.covered = page.covered.max(last);
    Ok(page)
}

pub(super) async fn trim(
    session: &PostgresSession,
    mut found: StreamRecord,
    limits: &StreamLimits,
    now: Timestamp,
    budget: usize,
) -> Result<TrimReport, StreamFault> {
    let mut report = TrimReport::default();
    let consumer_rows = consumers(session, &found).await?;
    let floor = consumer_rows.iter().filter(|row| row.lapsed.is_none()).map(|row| row.position).min();
    let (before, start) = (found, found.contents.start().number());
    let exceeds_bytes = |bytes: u64| limits.bytes.is_some_and(|max| max < bytes);
    let is_accepted = floor.is_some_and(|floor| start < floor.number());
    if !is_accepted && limits.age.is_none() && !exceeds_bytes(found.contents.bytes) {
        return Ok(report);
    }
    let oldest = "SELECT id, time, octet_length(data)::bigint FROM seqcast_events WHERE stream = $1 AND $2 < id ORDER BY id LIMIT $3";
    let count = i64::try_from(budget).unwrap_or(i64::MAX);
    let mut end = start;
    for row in &session.rows(oldest, &[&found.number, &signed(start)?, &count]).await? {
        let (oldest, time, bytes) = (id(column(row, 0)?)?, timestamp(column(row, 1)?)?, unsigned(column(row, 2)?)?);
        let contents = &mut found.contents;
        let is_accepted = floor.is_some_and(|floor| oldest <= floor);
        let is_excess = limits.policy == Policy::Lapse && (limits.is_old(now, time) || exceeds_bytes(contents.bytes));
        if !is_accepted && !is_excess {
            break;
        }
        end += 1;
        if oldest.number() != end {
            return Err(damaged("ids with gaps, or an id"));
        }
        contents.events = contents.events.checked_sub(1).ok_or_else(|| damaged("a count of events"))?;
        contents.bytes = contents.bytes.checked_sub(bytes).ok_or_else(|| damaged("a count of bytes"))?;
    }
    if end == start {
        return Ok(report);
    }
    let last = id(signed(end)?)?;
    for row in consumer_rows.into_iter().filter(|row| row.position < last) {
        let behind = row.position.number().max(start);
        let missed = MissedRange { first: id(signed(behind + 1)?)?, last, count: end - behind };
        let lapsed = Some(row.lapsed.map_or(missed, |before| before.merge(missed)));
        report.missed.push((row.consumer.clone(), missed));
        upsert_consumer(session, found.number, &ConsumerRow { lapsed, position: last, ..row }).await?;
    }
    let remove = "DELETE FROM seqcast_events WHERE stream = $1 AND $2 < id AND id <= $3";
    session.change(remove, &[&found.number, &signed(start)?, &signed(end)?]).await?;
    update_contents(session, found).await?;
    report.removed = before.contents.events - found.contents.events;
    Ok(report)
}
