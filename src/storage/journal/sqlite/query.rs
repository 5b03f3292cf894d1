//! Answers queries: finds positions in the index tables and in the tail, and reads their events. A query runs in
//! slices, so that a query that has to scan the whole journal does not block others.

use super::index::{IS_TAIL, arrival};
use super::row::{EVENT_COLUMNS, event};
use super::series::{MERGED_TYPES_MAX, SeriesPosition, SeriesScan};
use super::types::{TypeCursor, TypeFilter};
use crate::event::model::ServerId;
use crate::event::store::{Query, QueryPage, QueryPageBuilder, Series, ServerQuery};
use crate::storage::journal::error::StoreError;
use rusqlite::{Connection, params};
use std::collections::{BTreeSet, HashMap};

/// Rows examined per slice; a slice takes some milliseconds.
const SLICE_ROWS: usize = 8192;
/// Minimum rows per slice of a query whose patterns are expensive to match.
const SLICE_ROWS_MIN: usize = 64;
/// Maximum number of events read in a slice of a series.
const SLICE_EVENTS: usize = 1024;
/// Cost of finding and reading the latest event of a type, in rows.
const LATEST_ROWS: usize = 32;

/// Progress of a query. The answer may omit or include events that are appended or removed meanwhile.
#[derive(Debug)]
pub struct QueryCursor {
    query: Query,
    types: TypeFilter,
    stage: QueryStage,
    page: QueryPageBuilder,
    slice_rows: usize,
}

/// Next step of a query's scan.
#[derive(Debug)]
enum QueryStage {
    /// Scans the types: for the latest event of each, or for the numbers of the selected types, as long as they are
    /// few.
    Types(TypeCursor, BTreeSet<i64>),
    /// Scans positions after the last one examined. The set holds the selected types, if they are few.
    Positions(Option<BTreeSet<i64>>, Option<SeriesPosition>),
}

impl QueryCursor {
    /// Starts a valid query.
    pub fn new(query: Query) -> QueryCursor {
        let (types, stage) = match &query {
            Query::Latest(types) => (types.as_deref(), QueryStage::Types(TypeCursor::default(), BTreeSet::new())),
            Query::Series(Series { types: Some(types), .. }) => {
                (Some(&**types), QueryStage::Types(TypeCursor::default(), BTreeSet::new()))
            }
            Query::Series(Series { types: None, .. }) | Query::Server(_) => (None, QueryStage::Positions(None, None)),
        };
        let (types, page) = (TypeFilter::new(types), QueryPageBuilder::new(&query));
        let slice_rows = (SLICE_ROWS / types.match_rows()).max(SLICE_ROWS_MIN);
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
            Query::Server(query) => server_events(&snapshot, query, &mut self.page)?,
        };
        snapshot.commit()?;
        Ok(is_done)
    }

    /// Checks that the event or server that the query names exists, if the query found no event.
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

/// Runs all slices of a query.
pub(super) fn answer(connection: &mut Connection, query: &Query) -> Result<QueryPage, StoreError> {
    let mut cursor = QueryCursor::new(query.clone());
    while !cursor.advance(connection)? {}
    Ok(cursor.end())
}

/// Reads the events with these arrivals until the page is full. Returns whether the page takes more.
fn take(
    connection: &Connection,
    arrivals: impl Iterator<Item = i64>,
    page: &mut QueryPageBuilder,
) -> Result<bool, StoreError> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT {EVENT_COLUMNS} FROM event e JOIN type t ON t.number = e.type WHERE e.arrival = ?"
    ))?;
    for arrival in arrivals {
        let mut rows = find.query([arrival])?;
        let row = rows.next()?.ok_or_else(|| StoreError::damaged("an arrival"))?;
        if !page.take(event(row)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds the latest event of each type to the page. Returns whether the query is done.
fn latest(
    connection: &Connection,
    types: &TypeFilter,
    stage: &mut QueryStage,
    page: &mut QueryPageBuilder,
    mut rows_left: usize,
) -> Result<bool, StoreError> {
    let QueryStage::Types(cursor, _) = stage else { unreachable!("this query only scans types") };
    let mut in_tail: HashMap<i64, (i64, i64)> = HashMap::new();
    let mut tail = connection.prepare_cached(&format!("SELECT type, time, arrival FROM event i WHERE {IS_TAIL}"))?;
    let mut rows = tail.query([])?;
    while let Some(row) = rows.next()? {
        let position = (row.get(1)?, row.get(2)?);
        let latest = in_tail.entry(row.get(0)?).or_insert(position);
        *latest = position.max(*latest);
    }
    let mut find = connection
        .prepare_cached("SELECT time, arrival FROM by_type WHERE type = ? ORDER BY time DESC, arrival DESC LIMIT 1")?;
    types.scan(connection, cursor, &mut rows_left, |number, rows_left| {
        *rows_left = rows_left.saturating_sub(LATEST_ROWS);
        let mut rows = find.query([number])?;
        let filled = rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?;
        let latest = filled.max(in_tail.get(&number).copied());
        take(connection, latest.map(|(_, arrival)| arrival).into_iter(), page)
    })
}

/// Adds the events of a server to the page, in the order of their ids.
fn server_events(
    connection: &Connection,
    query: &ServerQuery,
    page: &mut QueryPageBuilder,
) -> Result<bool, StoreError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (session, instance) = query.after.map_or((0, 0), |after| (number(after.session), number(after.instance)));
    // One more position than the page takes shows whether more events match.
    let wanted = page.remaining() + 1;
    let mut positions: Vec<(i64, i64, i64)> = Vec::new();
    for (table, condition) in [("by_id", "true"), ("event", IS_TAIL)] {
        let mut find = connection.prepare_cached(&format!(
            "SELECT session, instance, arrival FROM {table} i WHERE {condition} AND server = ? \
             AND (session, instance) > (?, ?) ORDER BY session, instance LIMIT {wanted}"
        ))?;
        let mut rows = find.query(params![query.server.0, session, instance])?;
        while let Some(row) = rows.next()? {
            positions.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    positions.sort_unstable();
    take(connection, positions.into_iter().take(wanted).map(|(.., arrival)| arrival), page)?;
    Ok(true)
}

/// Adds events of a series to the page, in a slice of `rows` rows. Returns whether the query is done.
fn series(
    connection: &Connection,
    series: &Series,
    types: &TypeFilter,
    stage: &mut QueryStage,
    page: &mut QueryPageBuilder,
    mut rows: usize,
) -> Result<bool, StoreError> {
    if let QueryStage::Types(cursor, found) = stage {
        let is_done = types.scan(connection, cursor, &mut rows, |number, _| {
            found.insert(number);
            Ok(found.len() <= MERGED_TYPES_MAX)
        })?;
        if !is_done {
            return Ok(false);
        }
        *stage =
            QueryStage::Positions(Some(std::mem::take(found)).filter(|found| found.len() <= MERGED_TYPES_MAX), None);
    }
    let QueryStage::Positions(selected_types, after) = stage else { unreachable!("the types were scanned") };
    if selected_types.as_ref().is_some_and(BTreeSet::is_empty) {
        return Ok(true);
    }
    let mut scan = SeriesScan::new(connection, series, types, selected_types.as_ref());
    if after.is_none()
        && let Some(id) = series.after
    {
        *after = scan.position(id)?;
        if after.is_none() {
            return Ok(true);
        }
    }
    // One more position than the page takes shows whether more events match.
    let wanted = page.remaining().saturating_add(1).min(SLICE_EVENTS);
    let (positions, end) = scan.positions(*after, wanted, rows)?;
    if !take(connection, positions.iter().take(wanted).map(|position| position.arrival), page)? {
        return Ok(true);
    }
    *after = if wanted < positions.len() { Some(positions[wanted - 1]) } else { end };
    Ok(after.is_none())
}
