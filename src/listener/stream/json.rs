//! Streams and consumers in JSON, as commands and the web server write them. The names of the fields never change.

use super::StreamRow;
use crate::event::stream::name::StreamName;
use crate::event::stream::store::{ConsumerRow, MissedRange};
use serde_json::{Value, json};

/// Returns a stream in JSON.
pub fn stream_json(row: &StreamRow) -> Value {
    let StreamRow { settings, contents, consumers } = row;
    let types: Vec<String> = settings.types.iter().map(ToString::to_string).collect();
    json!({
        "stream": settings.name.as_str(),
        "last": contents.last.to_string(),
        "events": contents.events,
        "bytes": contents.bytes,
        "consumers": consumers,
        "types": types,
        "age_ms": settings.limits.age.map(|age| age.as_millis() as u64),
        "bytes_max": settings.limits.bytes,
        "policy": settings.limits.policy.as_str(),
    })
}

/// Returns a consumer in JSON.
pub fn consumer_json(stream: &StreamName, row: &ConsumerRow) -> Value {
    json!({
        "stream": stream.as_str(),
        "user": row.consumer.user.as_str(),
        "component": row.consumer.component.as_str(),
        "position": row.position.to_string(),
        "lag": row.lag,
        "lapsed": row.lapsed.map(missed_json),
        "registered": row.registered.to_string(),
        "last_request": row.last_request.to_string(),
    })
}

/// Returns the events that a consumer missed, in JSON.
pub fn missed_json(MissedRange { first, last, count }: MissedRange) -> Value {
    json!({ "first": first.to_string(), "last": last.to_string(), "count": count })
}
