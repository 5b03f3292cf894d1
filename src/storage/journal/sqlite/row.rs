//! Decodes the rows of the journal's tables, and checks each value that a damaged file may hold.

use crate::event::model::{Event, EventId, Json, Payload, ServerId};
use crate::event::timestamp::Timestamp;
use crate::storage::journal::error::StoreError;
use crate::subject::Subject;
use crate::subject::event_type::EventType;
use bytes::Bytes;
use rusqlite::Row;
use rusqlite::types::ValueRef;

/// Columns of a complete event, as [`event`] decodes them: `e` is the table `event`, `t` the table `type`.
pub(super) const EVENT_COLUMNS: &str =
    "e.server, e.session, e.instance, t.subject, e.time, e.source_time, e.payload_type, e.payload";

/// Decodes a row of [`EVENT_COLUMNS`].
pub(super) fn event(row: &Row<'_>) -> Result<Event, StoreError> {
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

/// Decodes the subject of an event type.
pub(super) fn event_type(value: ValueRef<'_>) -> Result<EventType, StoreError> {
    let subject = value.as_bytes().ok().and_then(|bytes| Subject::from_bytes(Bytes::copy_from_slice(bytes)).ok());
    subject.and_then(|subject| EventType::of_subject(&subject)).ok_or_else(|| StoreError::damaged("an event type"))
}

/// Decodes microseconds since 1970.
pub(super) fn timestamp(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_micros(micros).map_err(|_| StoreError::damaged("a time"))
}

/// Decodes a part of an id, or a count.
pub(super) fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::damaged("an id"))
}

/// Encodes a part of an id as SQLite's signed integer; the maximum is 2^63 - 1.
pub(super) fn signed(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Range)
}
