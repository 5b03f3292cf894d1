//! Faults of FTN18 calls that come from the store of streams.

use crate::event::stream::name::Consumer;
use crate::event::stream::store::{MissedRange, StreamStoreError};
use crate::listener::ftn18::fault::{CallFault, FaultName};
use std::fmt;

/// Returns the fault for an error of the store.
pub(super) fn internal(error: impl fmt::Display) -> CallFault {
    CallFault::new(FaultName::InternalError, error.to_string())
}

/// Returns the fault for a request of a consumer that the store refuses.
pub(super) fn refused<E: fmt::Display>(consumer: &Consumer, why: StreamStoreError<E>) -> CallFault {
    match why {
        StreamStoreError::NotRegistered => CallFault::new(
            FaultName::NotRegistered,
            format!("{consumer} is not registered: call registerConsumer first"),
        ),
        StreamStoreError::Lapsed(MissedRange { first, last, count }) => CallFault::new(
            FaultName::NotRegistered,
            format!(
                "{consumer} has lapsed: {count} events, {first} to {last}, were not accepted in time and are gone; call \
                 registerConsumer to go on behind them"
            ),
        ),
        StreamStoreError::Full => CallFault::new(FaultName::InternalError, "no further event can be added"),
        StreamStoreError::Store(error) => internal(error),
    }
}
