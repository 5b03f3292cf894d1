//! Finds the positions of a series, in the index tables and in the tail.

use super::index::{IS_TAIL, arrival};
use super::row::{event_type, timestamp};
use super::types::TypeFilter;
use crate::event::model::EventId;
use crate::event::store::{Series, SeriesOrder};
use crate::storage::journal::error::StoreError;
use foldhash::{HashMap, HashMapExt};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use std::collections::BTreeSet;

/// Maximum number of types whose events a query looks up separately. For more types it scans all events.
pub(super) const MERGED_TYPES_MAX: usize = 256;
/// Minimum number of rows of each partition examined in a slice, regardless of the number of partitions.
const PARTITION_ROWS_MIN: usize = 16;

/// Position of an event in a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeriesPosition {
    /// Time by which the series is ordered.
    pub(super) key: i64,
    /// Time of the event.
    pub(super) time: i64,
    pub(super) arrival: i64,
}

/// Partition of an index table in which the positions of a series are searched.
#[derive(Clone, Copy)]
enum SeriesPartition {
    /// All events, ordered by time.
    All,
    /// The events of this type, ordered by time.
    Type(i64),
}

/// Scan state of a series query.
pub(super) struct SeriesScan<'a> {
    connection: &'a Connection,
    series: &'a Series,
    types: &'a TypeFilter,
    /// Numbers of all selected types, if they are few.
    selected_types: Option<&'a BTreeSet<i64>>,
    /// Selection results cached by type number: true if the type is selected.
    selections: HashMap<i64, bool>,
}

impl<'a> SeriesScan<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        series: &'a Series,
        types: &'a TypeFilter,
        selected_types: Option<&'a BTreeSet<i64>>,
    ) -> SeriesScan<'a> {
        SeriesScan { connection, series, types, selected_types, selections: HashMap::new() }
    }

    /// Returns the position of an event in the series; `None` if the series does not contain it.
    pub(super) fn position(&mut self, id: EventId) -> Result<Option<SeriesPosition>, StoreError> {
        let Some(arrival) = arrival(self.connection, id)? else { return Ok(None) };
        let mut find =
            self.connection.prepare_cached("SELECT time, arrival, type, source_time FROM event WHERE arrival = ?")?;
        let mut rows = find.query([arrival])?;
        rows.next()?.map_or(Ok(None), |row| self.matching_position(row))
    }

    /// Returns the first positions after `after`: at most `wanted` of each partition, from about `rows` rows, and those
    /// in the tail. Also returns the position up to which they are complete, if more positions may follow.
    pub(super) fn positions(
        &mut self,
        after: Option<SeriesPosition>,
        wanted: usize,
        rows: usize,
    ) -> Result<(Vec<SeriesPosition>, Option<SeriesPosition>), StoreError> {
        let is_descending = self.series.is_descending;
        let mut positions = self.scan_tail(after)?;
        let partitions: Vec<SeriesPartition> = match self.selected_types {
            Some(selected_types) if self.series.by == SeriesOrder::Time => {
                selected_types.iter().map(|number| SeriesPartition::Type(*number)).collect()
            }
            _ => vec![SeriesPartition::All],
        };
        let partition_rows = (rows / partitions.len().max(1)).max(PARTITION_ROWS_MIN);
        let mut end: Option<SeriesPosition> = None;
        for partition in partitions {
            let partition_end = self.scan_partition(partition, after, wanted, partition_rows, &mut positions)?;
            end = match (end, partition_end) {
                (Some(end), Some(partition_end)) if is_descending => Some(end.max(partition_end)),
                (Some(end), Some(partition_end)) => Some(end.min(partition_end)),
                (end, partition_end) => end.or(partition_end),
            };
        }
        positions.sort_unstable_by(|a, b| if is_descending { b.cmp(a) } else { a.cmp(b) });
        if let Some(end) = end {
            positions.truncate(positions.partition_point(|position| !self.is_after(*position, end)));
        }
        Ok((positions, end))
    }

    /// Returns whether `position` comes after `other` in the series.
    fn is_after(&self, position: SeriesPosition, other: SeriesPosition) -> bool {
        if self.series.is_descending { position < other } else { other < position }
    }

    /// Returns the matching positions in the tail after `after`.
    fn scan_tail(&mut self, after: Option<SeriesPosition>) -> Result<Vec<SeriesPosition>, StoreError> {
        let sql = format!("SELECT time, arrival, type, source_time FROM event i WHERE {IS_TAIL}");
        let mut find = self.connection.prepare_cached(&sql)?;
        let mut rows = find.query([])?;
        let mut positions = Vec::new();
        while let Some(row) = rows.next()? {
            let position = self.matching_position(row)?;
            positions.extend(position.filter(|position| after.is_none_or(|after| self.is_after(*position, after))));
        }
        Ok(positions)
    }

    /// Adds the first positions of a partition. Returns the position up to which they are complete, if more positions
    /// may follow.
    fn scan_partition(
        &mut self,
        partition: SeriesPartition,
        after: Option<SeriesPosition>,
        wanted: usize,
        rows_max: usize,
        positions: &mut Vec<SeriesPosition>,
    ) -> Result<Option<SeriesPosition>, StoreError> {
        let (sql, values) = self.sql(partition, after, rows_max);
        let mut find = self.connection.prepare_cached(&sql)?;
        let mut rows = find.query(params_from_iter(&values))?;
        let (mut count, mut found) = (0, 0);
        while let Some(row) = rows.next()? {
            count += 1;
            if let Some(position) = self.matching_position(row)? {
                found += 1;
                positions.push(position);
            }
            if found == wanted || count == rows_max {
                let (time, arrival) = (row.get(0)?, row.get(1)?);
                let key = if self.series.by == SeriesOrder::Time { time } else { row.get(3)? };
                return Ok(Some(SeriesPosition { key, time, arrival }));
            }
        }
        Ok(None)
    }

    /// Returns the position of a row's event, if the series contains it. The row holds time, arrival, type and source
    /// time.
    fn matching_position(&mut self, row: &Row<'_>) -> Result<Option<SeriesPosition>, StoreError> {
        let (time, source_time) = (row.get(0)?, row.get::<_, Option<i64>>(3)?);
        let key = if self.series.by == SeriesOrder::Time { Some(time) } else { source_time };
        let is_in_time = self.series.time.contains(Some(timestamp(time)?))
            && self.series.source_time.contains(source_time.map(timestamp).transpose()?);
        let Some(key) = key.filter(|_| is_in_time) else { return Ok(None) };
        let is_type_matched = self.types.is_unrestricted() || self.is_type_matched(row.get(2)?)?;
        Ok(if is_type_matched { Some(SeriesPosition { key, time, arrival: row.get(1)? }) } else { None })
    }

    fn is_type_matched(&mut self, number: i64) -> Result<bool, StoreError> {
        if let Some(selected_types) = self.selected_types {
            return Ok(selected_types.contains(&number));
        }
        if let Some(is_type_matched) = self.selections.get(&number) {
            return Ok(*is_type_matched);
        }
        let mut find = self.connection.prepare_cached("SELECT subject FROM type WHERE number = ?")?;
        let mut rows = find.query([number])?;
        let row = rows.next()?.ok_or_else(|| StoreError::damaged("a type's number"))?;
        let is_type_matched = self.types.is_match(&event_type(row.get_ref(0)?)?);
        self.selections.insert(number, is_type_matched);
        Ok(is_type_matched)
    }

    /// Builds the SQL query for rows of a partition, and its values. Its only condition is a range in the order, so
    /// that it examines no more rows than it returns. The alias `i` is the index table. The alias `e` is the table
    /// `event`, for columns that the index lacks.
    fn sql(&self, partition: SeriesPartition, after: Option<SeriesPosition>, rows_max: usize) -> (String, Vec<Value>) {
        let series = self.series;
        let is_by_time = series.by == SeriesOrder::Time;
        let (table, mut values) = match partition {
            SeriesPartition::Type(number) => ("by_type", vec![number]),
            SeriesPartition::All if is_by_time => ("by_time", vec![]),
            SeriesPartition::All => ("by_source_time", vec![]),
        };
        let needs_type = matches!(partition, SeriesPartition::All) && !self.types.is_unrestricted();
        let needs_source_time = is_by_time && series.source_time.is_bounded();
        let event_type = match partition {
            SeriesPartition::Type(_) => "i.type",
            SeriesPartition::All if needs_type => "e.type",
            SeriesPartition::All => "NULL",
        };
        let source_time = match (is_by_time, needs_source_time) {
            (false, _) => "i.source_time",
            (true, true) => "e.source_time",
            (true, false) => "NULL",
        };
        let mut sql = format!(
            "SELECT i.time, i.arrival, {event_type}, {source_time} FROM {table} i{} WHERE {}",
            if needs_type || needs_source_time { " CROSS JOIN event e ON e.arrival = i.arrival" } else { "" },
            if matches!(partition, SeriesPartition::Type(_)) { "i.type = ?" } else { "true" },
        );
        let (key, order, span) = match is_by_time {
            true => ("i.time", &["i.time", "i.arrival"][..], series.time),
            false => ("i.source_time", &["i.source_time", "i.time", "i.arrival"][..], series.source_time),
        };
        let (comparison, direction, from, to) = match series.is_descending {
            false => (">", "ASC", span.from, span.to),
            true => ("<", "DESC", span.to, span.from),
        };
        // With a position, the first bound is redundant, and SQLite might begin its scan at it.
        match (after, from) {
            (Some(SeriesPosition { key: at, time, arrival }), _) => {
                let placeholders = vec!["?"; order.len()].join(", ");
                sql.push_str(&format!(" AND ({}) {comparison} ({placeholders})", order.join(", ")));
                let position = [at, time, arrival];
                values.extend(&position[position.len() - order.len()..]);
            }
            (None, Some(from)) => {
                sql.push_str(&format!(" AND {key} {comparison}= ?"));
                values.push(from.as_micros());
            }
            (None, None) => {}
        }
        if let Some(to) = to {
            sql.push_str(&format!(" AND {key} {}= ?", if series.is_descending { ">" } else { "<" }));
            values.push(to.as_micros());
        }
        let order: Vec<String> = order.iter().map(|column| format!("{column} {direction}")).collect();
        sql.push_str(&format!(" ORDER BY {} LIMIT ?", order.join(", ")));
        values.push(i64::try_from(rows_max).unwrap_or(i64::MAX));
        (sql, values.into_iter().map(Value::Integer).collect())
    }
}
