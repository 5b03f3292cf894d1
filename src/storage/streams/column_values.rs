//! Column values of stores: signed 64-bit integers.

use super::error::StreamFault;
use crate::event::stream::name::StreamId;
use crate::event::timestamp::Timestamp;

pub(super) fn damaged(what: &str) -> StreamFault {
    StreamFault::Damaged(format!("it holds {what} that cannot be one"))
}

pub(super) fn signed(number: u64) -> Result<i64, StreamFault> {
    i64::try_from(number).map_err(|_| StreamFault::Other(format!("{number} does not fit into a column")))
}

pub(super) fn unsigned(number: i64) -> Result<u64, StreamFault> {
    u64::try_from(number).map_err(|_| damaged("a number"))
}

pub(super) fn id(number: i64) -> Result<StreamId, StreamFault> {
    StreamId::from_number(unsigned(number)?).ok_or_else(|| damaged("an id"))
}

pub(super) fn timestamp(micros: i64) -> Result<Timestamp, StreamFault> {
    Timestamp::from_micros(micros).map_err(|_| damaged("a time"))
}
