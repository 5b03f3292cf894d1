//! Answers queries: finds positions in the index tables and in the tail, and reads the events there. It works in
//! slices, so that a query that has to scan the whole journal does not block others.

use super::series::{MERGED_TYPES_MAX, SeriesPosition, SeriesScan};
use super::signed;
use super::types::{TypeCursor, TypeFilter};
use crate::event::model::{Event, EventId, Json, Payload, ServerId};
use crate::event::store::{Query, QueryPage, QueryPageBuilder, Series, ServerQuery};
use crate::event::timestamp::Timestamp;
use crate::storage::journal::error::StoreError;
use crate::subject::Subject;
use crate::subject::event_type::EventType;
use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeSet, HashMap};

/// Rows examined per slice; a slice takes some milliseconds.
const SLICE_ROWS: usize = 8192;
/// Minimum rows per slice of a query whose patterns are expensive to match.
const SLICE_ROWS_MIN: usize = 64;
/// Maximum number of events read in a slice of a series.
const SLICE_EVENTS: usize = 1024;
/// Cost of finding and reading the latest event of a type, in rows.
const LATEST_ROWS: usize = 32;
/// Condition that selects the tail of the table `event`.
pub(super) const IS_TAIL: &str = "(SELECT arrival FROM filled) < i.arrival";

/// The progress of a query. Events appended or removed meanwhile may or may not be in the answer.
#[derive(Debug)]
pub struct QueryCursor {
    query: Query,
    types: TypeFilter,
    stage: QueryStage,
    page: QueryPageBuilder,
    slice_rows: usize,
}

#[derive(Debug)]
enum QueryStage {
    /// Scans the types: for the latest event of each, or to find out whether they are few.
    TypeFilter(TypeCursor, BTreeSet<i64>),
    /// Scans positions behind the last one examined. The set holds the selected types, if they are few.
    Positions(Option<BTreeSet<i64>>, Option<SeriesPosition>),
}

impl QueryCursor {
    /// Starts a valid query.
    pub fn new(query: Query) -> QueryCursor {
        let (types, stage) = match &query {
            Query::Latest(types) => (types.as_deref(), QueryStage::TypeFilter(TypeCursor::default(), BTreeSet::new())),
            Query::Series(Series { types: Some(types), .. }) => {
                (Some(&**types), QueryStage::TypeFilter(TypeCursor::default(), BTreeSet::new()))
            }
            Query::Series(Series { types: None, .. }) | Query::Server(_) => (None, QueryStage::Positions(None, None)),
        };
        let (types, page) = (TypeFilter::new(types), QueryPageBuilder::new(&query));
        let slice_rows = (SLICE_ROWS / types.rows()).max(SLICE_ROWS_MIN);
        QueryCursor { query, types, stage, page, slice_rows }
    }

    /// Starts a query with slices of `slice_rows` rows.
    #[cfg(test)]
    pub(super) fn with_slices(query: Query, slice_rows: usize) -> QueryCursor {
        QueryCursor { slice_rows, ..QueryCursor::new(query) }
    }

    /// Runs a slice against the current content of the file. Returns whether it was the last one.
    pub(super) fn advance(&mut self, connection: &mut Connection) -> Result<bool, StoreError> {
        let snapshot = connection.transaction()?;
        let rows = self.slice_rows;
        let is_done = match &self.query {
            Query::Latest(_) => latest(&snapshot, &self.types, &mut self.stage, &mut self.page, rows)?,
            Query::Series(series) => {
                self::series(&snapshot, series, &self.types, &mut self.stage, &mut self.page, rows)?
            }
            Query::Server(of_server) => self::of_server(&snapshot, of_server, &mut self.page)?,
        };
        snapshot.commit()?;
        Ok(is_done)
    }

    /// Checks that the event or server that the query names exists, if nothing was found.
    pub(super) fn check_names(&self, connection: &Connection) -> Result<(), StoreError> {
        match &self.query {
            Query::Series(Series { after: Some(id), .. })
                if self.page.is_empty() && arrival(connection, *id)?.is_none() =>
            {
                Err(StoreError::NoEvent(*id))
            }
            Query::Server(ServerQuery { server, .. }) if self.page.is_empty() => {
                let mut find = connection.prepare_cached("SELECT id FROM server ORDER BY id")?;
                let servers = find.query_map([], |row| row.get(0).map(ServerId))?.collect::<Result<Vec<_>, _>>()?;
                if servers.contains(server) { Ok(()) } else { Err(StoreError::NoServer(*server, servers)) }
            }
            _ => Ok(()),
        }
    }

    /// Returns the answer of a finished query.
    pub fn end(self) -> QueryPage {
        self.page.end()
    }
}

/// Answers a query in one go.
pub(super) fn answer(connection: &mut Connection, query: &Query) -> Result<QueryPage, StoreError> {
    let mut search = QueryCursor::new(query.clone());
    while !search.advance(connection)? {}
    Ok(search.end())
}

/// Reads the events with these arrivals until the page is full. Returns whether the page takes more.
fn take(
    connection: &Connection,
    arrivals: impl Iterator<Item = i64>,
    page: &mut QueryPageBuilder,
) -> Result<bool, StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT e.server, e.session, e.instance, t.subject, e.time, e.source_time, e.payload_type, e.payload \
         FROM event e JOIN type t ON t.number = e.type WHERE e.arrival = ?",
    )?;
    for arrival in arrivals {
        let mut rows = find.query([arrival])?;
        let row = rows.next()?.ok_or_else(|| StoreError::damaged("an arrival"))?;
        if !page.take(event(row)?) {
            return Ok(false);
        }
    }
    Ok(true)
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

fn latest(
    connection: &Connection,
    types: &TypeFilter,
    stage: &mut QueryStage,
    page: &mut QueryPageBuilder,
    mut rows_left: usize,
) -> Result<bool, StoreError> {
    let QueryStage::TypeFilter(at, _) = stage else { unreachable!("it looks for types only") };
    let mut in_tail: HashMap<i64, (i64, i64)> = HashMap::new();
    let mut tail = connection.prepare_cached(&format!("SELECT type, time, arrival FROM event i WHERE {IS_TAIL}"))?;
    let mut rows = tail.query([])?;
    while let Some(row) = rows.next()? {
        let place = (row.get(1)?, row.get(2)?);
        let latest = in_tail.entry(row.get(0)?).or_insert(place);
        *latest = place.max(*latest);
    }
    let mut find = connection
        .prepare_cached("SELECT time, arrival FROM by_type WHERE type = ? ORDER BY time DESC, arrival DESC LIMIT 1")?;
    types.scan(connection, at, &mut rows_left, |number, rows_left| {
        *rows_left = rows_left.saturating_sub(LATEST_ROWS);
        let mut rows = find.query([number])?;
        let filled = rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?;
        let latest = filled.max(in_tail.get(&number).copied());
        take(connection, latest.map(|(_, arrival)| arrival).into_iter(), page)
    })
}

fn of_server(
    connection: &Connection,
    of_server: &ServerQuery,
    page: &mut QueryPageBuilder,
) -> Result<bool, StoreError> {
    let place = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (session, instance) = of_server.after.map_or((0, 0), |after| (place(after.session), place(after.instance)));
    // One more than needed, which shows whether there are more.
    let wanted = page.remaining() + 1;
    let mut places: Vec<SeriesPosition> = Vec::new();
    for (table, condition) in [("by_id", "true"), ("event", IS_TAIL)] {
        let mut find = connection.prepare_cached(&format!(
            "SELECT session, instance, arrival FROM {table} i WHERE {condition} AND server = ? \
             AND (session, instance) > (?, ?) ORDER BY session, instance LIMIT {wanted}"
        ))?;
        let mut rows = find.query(params![of_server.server.0, session, instance])?;
        while let Some(row) = rows.next()? {
            places.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    places.sort_unstable();
    take(connection, places.into_iter().take(wanted).map(|(.., arrival)| arrival), page)?;
    Ok(true)
}

fn series(
    connection: &Connection,
    series: &Series,
    types: &TypeFilter,
    stage: &mut QueryStage,
    page: &mut QueryPageBuilder,
    mut rows: usize,
) -> Result<bool, StoreError> {
    if let QueryStage::TypeFilter(at, found) = stage {
        let is_done = types.scan(connection, at, &mut rows, |number, _| {
            found.insert(number);
            Ok(found.len() <= MERGED_TYPES_MAX)
        })?;
        if !is_done {
            return Ok(false);
        }
        *stage =
            QueryStage::Positions(Some(std::mem::take(found)).filter(|found| found.len() <= MERGED_TYPES_MAX), None);
    }
    let QueryStage::Positions(selected_types, behind) = stage else { unreachable!("it was made so") };
    if selected_types.as_ref().is_some_and(BTreeSet::is_empty) {
        return Ok(true);
    }
    let mut finding = SeriesScan::new(connection, series, types, selected_types.as_ref());
    if behind.is_none()
        && let Some(id) = series.after
    {
        *behind = finding.place(id)?;
        if behind.is_none() {
            return Ok(true);
        }
    }
    // One more than needed, which shows whether there are more.
    let wanted = page.remaining().saturating_add(1).min(SLICE_EVENTS);
    let (places, end) = finding.places(*behind, wanted, rows)?;
    if !take(connection, places.iter().take(wanted).map(|(.., arrival)| *arrival), page)? {
        return Ok(true);
    }
    *behind = if wanted < places.len() { Some(places[wanted - 1]) } else { end };
    Ok(behind.is_none())
}

/// Decodes a row that [`take`] reads.
fn event(row: &Row<'_>) -> Result<Event, StoreError> {
    let server = u32::try_from(row.get::<_, i64>(0)?).map_err(|_| StoreError::damaged("a server"))?;
    let id = EventId { server: ServerId(server), session: unsigned(row.get(1)?)?, instance: unsigned(row.get(2)?)? };
    let payload = match (row.get_ref(7)?, row.get::<_, Option<String>>(6)?) {
        (ValueRef::Null, None) => None,
        (ValueRef::Text(text), None) => {
            let json =
                Json::from_stored(Bytes::copy_from_slice(text)).map_err(|_| StoreError::damaged("a JSON payload"))?;
            Some(Payload::Json(json))
        }
        (ValueRef::Blob(bytes), Some(type_name)) => {
            Some(Payload::Binary { type_name: type_name.into(), bytes: Bytes::copy_from_slice(bytes) })
        }
        _ => return Err(StoreError::damaged("a payload")),
    };
    Ok(Event {
        id,
        event_type: event_type(row.get_ref(3)?)?,
        timestamp: timestamp(row.get(4)?)?,
        source_timestamp: row.get::<_, Option<i64>>(5)?.map(timestamp).transpose()?,
        payload,
    })
}

pub(super) fn event_type(value: ValueRef<'_>) -> Result<EventType, StoreError> {
    let subject = value.as_bytes().ok().and_then(|bytes| Subject::from_bytes(Bytes::copy_from_slice(bytes)).ok());
    subject.and_then(|subject| EventType::of_subject(&subject)).ok_or_else(|| StoreError::damaged("an event type"))
}

pub(super) fn timestamp(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_micros(micros).map_err(|_| StoreError::damaged("a time"))
}

pub(super) fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::damaged("an id"))
}
