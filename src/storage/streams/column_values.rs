//! Conversion of column values, for all databases of streams. All numbers are signed 64-bit integers.

use super::error::StreamFault;
use crate::event::stream::name::StreamId;
use crate::event::stream::store::Contents;
use crate::event::timestamp::Timestamp;

/// The row of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamRecord {
    /// Number of the stream in the other tables.
    pub(super) number: i64,
    pub(super) contents: Contents,
}

/// Returns the fault of a value that no version of this program writes.
pub(super) fn damaged(what: &str) -> StreamFault {
    StreamFault::Damaged(format!("it holds {what} with an invalid value"))
}

/// Encodes a part of an id, or a count.
pub(super) fn signed(number: u64) -> Result<i64, StreamFault> {
    i64::try_from(number).map_err(|_| StreamFault::Other(format!("{number} does not fit into a column")))
}

/// Decodes a part of an id, or a count.
pub(super) fn unsigned(number: i64) -> Result<u64, StreamFault> {
    u64::try_from(number).map_err(|_| damaged("a number"))
}

/// Decodes the id of an event in a stream.
pub(super) fn id(number: i64) -> Result<StreamId, StreamFault> {
    StreamId::from_number(unsigned(number)?).ok_or_else(|| damaged("an id"))
}

/// Decodes microseconds since 1970.
pub(super) fn timestamp(micros: i64) -> Result<Timestamp, StreamFault> {
    Timestamp::from_micros(micros).map_err(|_| damaged("a time"))
}
