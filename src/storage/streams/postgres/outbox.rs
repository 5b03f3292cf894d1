//! Events that applications post within their own transactions: rows of `seqcast_outbox`, as in SQLite.

use super::connection::{PostgresSession, column};
use crate::event::model::{Json, ServerId};
use crate::event::stream::name::{StreamName, StreamType};
use crate::event::stream::store::PostedEvent;
use crate::event::timestamp::Timestamp;
use crate::storage::streams::column_values::{timestamp, unsigned};
use crate::storage::streams::error::StreamFault;
use bytes::Bytes;
use tokio_postgres::Row;

/// Adds an event to a stream within the caller's transaction (003, section 3.2.1). The event is delivered exactly if
/// the transaction commits, as soon as a peer runs that serves the stream from this database (`stream-store`). The peer
/// assigns its id when it claims the event. Events committed before a claim precede events committed after it.
///
/// # Errors
/// The server refuses the event, and the transaction can only be rolled back. Either the tables do not exist, or the
/// server does not accept the data as JSON. [`PostgresStreams::open`](super::PostgresStreams::open) creates the tables,
/// as a peer does when it starts.
pub fn add_event_in(
    transaction: &mut postgres::Transaction<'_>,
    stream: &StreamName,
    kind: &StreamType,
    data: &Json,
) -> Result<(), postgres::Error> {
    let post = "INSERT INTO seqcast_outbox (stream, type, data) VALUES ($1, $2, $3::text::json)";
    transaction.execute(post, &[&stream.as_str(), &kind.as_str(), &data.as_str()]).map(drop)
}

/// Returns whether these streams have no unclaimed posted event.
pub(super) async fn is_empty(session: &PostgresSession, names: &[&str]) -> Result<bool, StreamFault> {
    let find = "SELECT 1 FROM seqcast_outbox WHERE server IS NULL AND refused IS NULL AND stream = ANY ($1) LIMIT 1";
    Ok(session.rows(find, &[&names]).await?.is_empty())
}

/// Claims unclaimed rows, except those that an application is changing.
pub(super) async fn claim(
    session: &PostgresSession,
    server: ServerId,
    names: &[&str],
    now: Timestamp,
    count_max: usize,
) -> Result<Vec<PostedEvent>, StreamFault> {
    let find_last = "SELECT max(stamp) FROM seqcast_outbox WHERE server = $1";
    let find = "SELECT number, stream, type, data::text, stamp FROM seqcast_outbox \
        WHERE server IS NULL AND refused IS NULL AND stream = ANY ($1) ORDER BY number LIMIT $2 FOR UPDATE SKIP LOCKED";
    let claim = "UPDATE seqcast_outbox posted SET server = $1, stamp = claimed.stamp \
        FROM unnest($2::bigint[], $3::bigint[]) claimed (number, stamp) WHERE posted.number = claimed.number";
    let server_number = i64::from(server.0);
    let last = match session.rows(find_last, &[&server_number]).await?.first() {
        Some(row) => column::<Option<i64>>(row, 0)?.map(timestamp).transpose()?,
        None => None,
    };
    let mut stamp = last.map_or(now, |last| now.max(last.following()));
    let (mut claimed, mut numbers, mut stamps) = (Vec::new(), Vec::new(), Vec::new());
    let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
    for row in &session.rows(find, &[&names, &limit]).await? {
        let number = column(row, 0)?;
        match parse_row(row)? {
            Ok(posted) => {
                claimed.push(PostedEvent { stamp, ..posted });
                numbers.push(number);
                stamps.push(stamp.as_micros());
                stamp = stamp.following();
            }
            Err(reason) => quarantine(session, number, &reason).await?,
        }
    }
    if !numbers.is_empty() {
        session.change(claim, &[&server_number, &numbers, &stamps]).await?;
    }
    Ok(claimed)
}

/// Returns the rows that the server has claimed.
pub(super) async fn claimed(
    session: &PostgresSession,
    server: ServerId,
    stream: &StreamName,
) -> Result<Vec<PostedEvent>, StreamFault> {
    let find = "SELECT number, stream, type, data::text, stamp FROM seqcast_outbox \
        WHERE server = $1 AND stream = $2 AND refused IS NULL ORDER BY number";
    let rows = session.rows(find, &[&i64::from(server.0), &stream.as_str()]).await?;
    rows.iter().map(|row| parse_row(row)?.map_err(StreamFault::Damaged)).collect()
}

/// Marks the row of an event that can never be registered.
pub(super) async fn quarantine(session: &PostgresSession, number: i64, reason: &str) -> Result<(), StreamFault> {
    session.change("UPDATE seqcast_outbox SET refused = $2 WHERE number = $1", &[&number, &reason]).await?;
    Ok(())
}

/// Removes the rows of events that are now in their stream.
pub(super) async fn remove_registered(
    session: &PostgresSession,
    server: ServerId,
    stream: &StreamName,
    stamps: &[i64],
) -> Result<(), StreamFault> {
    let remove =
        "DELETE FROM seqcast_outbox WHERE server = $1 AND stream = $2 AND stamp = ANY ($3) AND refused IS NULL";
    session.change(remove, &[&i64::from(server.0), &stream.as_str(), &stamps]).await?;
    Ok(())
}

/// Parses a row. Returns the inner error, the reason, if the table accepted a row that is not a valid event.
fn parse_row(row: &Row) -> Result<Result<PostedEvent, String>, StreamFault> {
    let number = unsigned(column(row, 0)?)?;
    let stream = column::<&str>(row, 1)?.parse::<StreamName>();
    let kind = column::<&str>(row, 2)?.parse::<StreamType>();
    let data = Json::from_bytes(Bytes::copy_from_slice(column::<&str>(row, 3)?.as_bytes()));
    let stamp = column::<Option<i64>>(row, 4)?.map_or(Ok(Timestamp::MIN), timestamp)?;
    Ok(match (stream, kind, data) {
        (Ok(stream), Ok(kind), Ok(data)) => Ok(PostedEvent { number, stream, kind, data, stamp }),
        (Err(error), ..) | (_, Err(error), _) => Err(error.to_string()),
        (.., Err(error)) => Err(error.to_string()),
    })
}
