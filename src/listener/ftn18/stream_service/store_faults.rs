//! Faults of calls and refusals of requests that come from the store of streams.

use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::{MissedRange, StreamStoreError};
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::stream::{StreamRefusal, StreamRefusalKind};
use std::fmt;

/// Returns the fault for an error of the store.
pub(super) fn internal(error: impl fmt::Display) -> CallFault {
    CallFault::new(FaultName::InternalError, error.to_string())
}

/// Returns the fault for a request of a consumer that the store refuses.
pub(super) fn store_fault<E: fmt::Display>(consumer: &Consumer, error: StreamStoreError<E>) -> CallFault {
    match error {
        StreamStoreError::NotRegistered => CallFault::new(
            FaultName::NotRegistered,
            format!("{consumer} is not registered: call registerConsumer first"),
        ),
        StreamStoreError::Lapsed(MissedRange { first, last, count }) => CallFault::new(
            FaultName::NotRegistered,
            format!(
                "{consumer} has lapsed: {count} events, {first} to {last}, were not accepted in time and are removed; \
                 call registerConsumer to continue after them"
            ),
        ),
        StreamStoreError::Full => CallFault::new(FaultName::InternalError, "no further event can be added"),
        StreamStoreError::Store(error) => internal(error),
    }
}

/// Returns the refusal for a consumer that is not registered.
pub(super) fn unregistered(name: &StreamName, consumer: &Consumer) -> StreamRefusal {
    StreamRefusal::new(
        StreamRefusalKind::NotRegistered,
        format!("{consumer} is no consumer of the stream {name}: register it first"),
    )
}

/// Returns the refusal of a consumer's request that the store refuses.
pub(super) fn store_refusal<E: fmt::Display>(
    name: &StreamName,
    consumer: &Consumer,
    error: StreamStoreError<E>,
) -> StreamRefusal {
    match error {
        StreamStoreError::NotRegistered => unregistered(name, consumer),
        StreamStoreError::Lapsed(missed) => {
            let MissedRange { first, last, count } = missed;
            let text = format!(
                "{consumer} has lapsed: {count} events of the stream {name}, {first} to {last}, were not accepted in time and are \
                 removed; register it again to continue after them"
            );
            StreamRefusal::new(StreamRefusalKind::Lapsed(missed), text)
        }
        error @ (StreamStoreError::Full | StreamStoreError::Store(_)) => refusal_of_fault(store_fault(consumer, error)),
    }
}

/// Returns the refusal for an error of the store.
pub(super) fn unavailable(error: impl fmt::Display) -> StreamRefusal {
    StreamRefusal::new(StreamRefusalKind::Unavailable, error.to_string())
}

/// Returns the refusal that corresponds to the fault of a call.
pub(super) fn refusal_of_fault(CallFault { name, text }: CallFault) -> StreamRefusal {
    let kind = match name {
        FaultName::InternalError => StreamRefusalKind::Unavailable,
        FaultName::DefenseRejected => StreamRefusalKind::Busy,
        _ => StreamRefusalKind::Invalid,
    };
    StreamRefusal::new(kind, text)
}
