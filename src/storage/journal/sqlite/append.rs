//! Appends events to the journal.

use super::index::{WriterCache, index_tail};
use super::row::signed;
use super::usage::RetentionUsage;
use crate::event::model::{Event, Payload};
use crate::event::timestamp::Timestamp;
use crate::storage::journal::error::StoreError;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use std::collections::BTreeMap;

/// Stores the events that are not stored yet, and returns their number. After an error the cache is invalid.
pub(super) fn append(
    connection: &mut Connection,
    cache: &mut WriterCache,
    usage: &mut Option<RetentionUsage>,
    tail_events: usize,
    events: &[Event],
) -> Result<usize, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let before = cache.next;
    insert(&transaction, cache, events)?;
    if tail_events <= cache.tail.len() {
        let mut known_usage = usage.take();
        index_tail(&transaction, cache, known_usage.as_mut())?;
        transaction.commit()?;
        *usage = known_usage;
    } else {
        transaction.commit()?;
    }
    Ok(usize::try_from(cache.next - before).expect("at most the number of events"))
}

/// Inserts the events that are not stored yet after the last one.
fn insert(transaction: &Transaction<'_>, cache: &mut WriterCache, events: &[Event]) -> Result<(), StoreError> {
    let mut insert = transaction.prepare_cached("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut servers = BTreeMap::new();
    for event in events {
        let (session, instance) = (signed(event.id.session)?, signed(event.id.instance)?);
        if cache.is_stored(transaction, event.id)? {
            continue;
        }
        let number = cache.type_number(transaction, event.event_type.subject())?;
        let (payload_type, payload) = match &event.payload {
            None => (None, ValueRef::Null),
            Some(Payload::Json(json)) => (None, ValueRef::Text(json.bytes())),
            Some(Payload::Binary { type_name, bytes }) => (Some(&**type_name), ValueRef::Blob(bytes)),
        };
        let time = event.timestamp.as_micros();
        insert.execute(params![
            cache.next,
            event.id.server.0,
            session,
            instance,
            number,
            time,
            event.source_timestamp.map(Timestamp::as_micros),
            payload_type,
            ToSqlOutput::Borrowed(payload),
        ])?;
        cache.add(event.id)?;
        servers.insert(event.id.server, (session, time));
    }
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO server VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE \
         SET session = max(session, excluded.session), time = max(time, excluded.time)",
    )?;
    for (server, (session, time)) in servers {
        upsert.execute(params![server.0, session, time])?;
    }
    Ok(())
}
