//! Events that applications post within their own transactions: rows of `seqcast_outbox`. A peer claims a row,
//! registers the event in its journal under a distinct source timestamp, and removes the row once the event is in its
//! stream.
//!
//! Any program can post an event: `INSERT INTO seqcast_outbox (stream, type, data) VALUES ('main', 'DEPOSIT',
//! '{"amount":"10.00"}')`. The table refuses data that cannot be an event.

use crate::event::model::{Json, ServerId};
use crate::event::stream::name::{StreamName, StreamType};
use crate::event::stream::store::PostedEvent;
use crate::event::timestamp::Timestamp;
use crate::storage::streams::column_values::{damaged, timestamp, unsigned};
use crate::storage::streams::error::StreamFault;
use bytes::Bytes;
use rusqlite::{Connection, Row, Transaction, params};

const UNCLAIMED: &str = "SELECT number, stream, type, data, stamp FROM seqcast_outbox WHERE server IS NULL AND refused IS NULL AND \
    stream IN (SELECT value FROM json_each(?)) ORDER BY number LIMIT ?";

/// Adds an event to a stream within the caller's transaction (003, section 3.2.1). The event is delivered exactly if
/// the transaction commits, as soon as a peer runs that serves the stream from this file (`stream-store`). The peer
/// then assigns its id, in the order of the commits.
///
/// # Errors
/// SQLite refuses the event, which is not added. Either the tables do not exist, the file is locked or full, or SQLite
/// does not accept the data as JSON. [`SqliteStreams::open`](super::SqliteStreams::open) creates the tables, as a peer
/// does when it starts.
pub fn add_event_in(
    transaction: &Transaction<'_>,
    stream: &StreamName,
    kind: &StreamType,
    data: &Json,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO seqcast_outbox (stream, type, data) VALUES (?, ?, ?)")?
        .execute(params![stream.as_str(), kind.as_str(), data.as_str()])?;
    Ok(())
}

/// Returns the names of streams as a JSON array, which the statements take as a parameter.
pub(super) fn names(streams: &[StreamName]) -> String {
    let names: Vec<&str> = streams.iter().map(StreamName::as_str).collect();
    serde_json::to_string(&names).expect("texts are valid JSON")
}

/// Returns whether these streams have no unclaimed posted event.
pub(super) fn is_empty(connection: &Connection, names: &str) -> Result<bool, StreamFault> {
    Ok(!connection.prepare_cached(UNCLAIMED)?.exists(params![names, 1])?)
}

/// Claims unclaimed rows.
pub(super) fn claim(
    connection: &Connection,
    server: ServerId,
    names: &str,
    now: Timestamp,
    count_max: usize,
) -> Result<Vec<PostedEvent>, StreamFault> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(stamp) FROM seqcast_outbox WHERE server = ?")?
        .query_row([server.0], |row| row.get(0))?;
    let last = last.map(timestamp).transpose()?;
    let mut stamp = last.map_or(now, |last| now.max(last.following()));
    let mut unclaimed = Vec::new();
    {
        let mut find = connection.prepare_cached(UNCLAIMED)?;
        let mut rows = find.query(params![names, i64::try_from(count_max).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            unclaimed.push((row.get(0)?, parse_row(row)?));
        }
    }
    let mut claim = connection.prepare_cached("UPDATE seqcast_outbox SET server = ?, stamp = ? WHERE number = ?")?;
    let mut claimed = Vec::new();
    for (number, found) in unclaimed {
        match found {
            Ok(posted) => {
                claim.execute(params![server.0, stamp.as_micros(), number])?;
                claimed.push(PostedEvent { stamp, ..posted });
                stamp = stamp.following();
            }
            Err(reason) => quarantine(connection, number, &reason)?,
        }
    }
    Ok(claimed)
}

/// Returns the rows that the server has claimed.
pub(super) fn claimed(
    connection: &Connection,
    server: ServerId,
    stream: &StreamName,
) -> Result<Vec<PostedEvent>, StreamFault> {
    let mut find = connection.prepare_cached(
        "SELECT number, stream, type, data, stamp FROM seqcast_outbox \
         WHERE server = ? AND stream = ? AND refused IS NULL ORDER BY number",
    )?;
    let mut rows = find.query(params![server.0, stream.as_str()])?;
    let mut claimed = Vec::new();
    while let Some(row) = rows.next()? {
        claimed.push(parse_row(row)?.map_err(StreamFault::Damaged)?);
    }
    Ok(claimed)
}

/// Marks the row of an event that can never be registered.
pub(super) fn quarantine(connection: &Connection, number: i64, reason: &str) -> Result<(), StreamFault> {
    connection
        .prepare_cached("UPDATE seqcast_outbox SET refused = ? WHERE number = ?")?
        .execute(params![reason, number])?;
    Ok(())
}

/// Removes the row of an event that is now in its stream.
pub(super) fn remove_registered(
    connection: &Connection,
    server: ServerId,
    stream: &StreamName,
    stamp: Timestamp,
) -> Result<(), StreamFault> {
    connection
        .prepare_cached("DELETE FROM seqcast_outbox WHERE server = ? AND stream = ? AND stamp = ? AND refused IS NULL")?
        .execute(params![server.0, stream.as_str(), stamp.as_micros()])?;
    Ok(())
}

/// Parses a row. Returns the inner error, the reason, if the table accepted a row that is not a valid event.
fn parse_row(row: &Row<'_>) -> Result<Result<PostedEvent, String>, StreamFault> {
    let number = unsigned(row.get(0)?)?;
    let stream = row.get_ref(1)?.as_str().map_err(|_| damaged("a stream"))?.parse();
    let kind = row.get_ref(2)?.as_str().map_err(|_| damaged("a type"))?.parse();
    // SQLite stores text that is not valid UTF-8.
    let data = row.get_ref(3)?.as_bytes().map_err(|_| damaged("data"))?;
    let data = Json::from_bytes(Bytes::copy_from_slice(data));
    let stamp = row.get::<_, Option<i64>>(4)?.map_or(Ok(Timestamp::MIN), timestamp)?;
    Ok(match (stream, kind, data) {
        (Ok(stream), Ok(kind), Ok(data)) => Ok(PostedEvent { number, stream, kind, data, stamp }),
        (Err(error), ..) | (_, Err(error), _) => Err(error.to_string()),
        (.., Err(error)) => Err(error.to_string()),
    })
}
