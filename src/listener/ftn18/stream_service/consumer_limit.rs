//! The maximum number of consumers of a stream.

use super::store_faults::internal;
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::{ConsumerRow, StreamStore};
use crate::event::timestamp::Timestamp;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use std::fmt;

/// Maximum number of consumers of a stream. The service examines all of them once a second. A list of them with the
/// longest names fits a frame.
pub(super) const CONSUMERS_MAX: usize = 10_000;

/// Registers a consumer unless the maximum number is reached. Returns the previous row of the consumer.
pub(super) fn register<S>(
    store: &mut S,
    name: &StreamName,
    consumer: &Consumer,
    now: Timestamp,
) -> Result<Option<ConsumerRow>, CallFault>
where
    S: StreamStore + ?Sized,
    S::Error: fmt::Display,
{
    let before = store.register(name, consumer, now).map_err(internal)?;
    if before.is_none() && CONSUMERS_MAX < store.consumers(name).map_err(internal)?.len() {
        store.remove(name, consumer).map_err(internal)?;
        let text = format!("the stream {name} has {CONSUMERS_MAX} consumers: remove unused ones");
        return Err(CallFault::new(FaultName::DefenseRejected, text));
    }
    Ok(before)
}
