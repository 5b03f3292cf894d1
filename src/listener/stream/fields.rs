//! Codes and fields of requests about streams, answers and refusals.

use crate::event::model::{Json, JsonError};
use crate::event::stream::name::{Consumer, StreamId};
use crate::event::stream::store::MissedRange;
use crate::listener::codec::{FrameError, FrameReader, put_bytes8};
use bytes::{BufMut, Bytes, BytesMut};
use std::str::{self, FromStr};

pub(super) const LIST: u8 = 0;
pub(super) const ADD: u8 = 1;
pub(super) const POLL: u8 = 2;
pub(super) const READ: u8 = 3;
pub(super) const ACCEPT: u8 = 4;
pub(super) const CONSUMERS: u8 = 5;
pub(super) const REGISTER: u8 = 6;
pub(super) const RESET: u8 = 7;
pub(super) const REMOVE: u8 = 8;

pub(super) fn put_numbers(out: &mut BytesMut, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.put_u64(*number));
}

pub(super) fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u32(u32::try_from(count).expect("a frame has fewer bytes"));
}

pub(super) fn put_consumer(out: &mut BytesMut, Consumer { user, component }: &Consumer) {
    put_bytes8(out, user.as_str().as_bytes());
    put_bytes8(out, component.as_str().as_bytes());
}

pub(super) fn consumer(reader: &mut FrameReader) -> Result<Consumer, FrameError> {
    let user = parse_field(&reader.bytes8()?, "user")?;
    Ok(Consumer { user, component: parse_field(&reader.bytes8()?, "component")? })
}

pub(super) fn put_missed(out: &mut BytesMut, MissedRange { first, last, count }: MissedRange) {
    put_numbers(out, &[first.number(), last.number(), count]);
}

pub(super) fn missed_range(reader: &mut FrameReader) -> Result<MissedRange, FrameError> {
    Ok(MissedRange { first: stream_id(reader)?, last: stream_id(reader)?, count: reader.u64()? })
}

pub(super) fn json(reader: &mut FrameReader, check: fn(Bytes) -> Result<Json, JsonError>) -> Result<Json, FrameError> {
    check(reader.bytes32()?).map_err(|_| FrameError::Value("JSON"))
}

pub(super) fn stream_id(reader: &mut FrameReader) -> Result<StreamId, FrameError> {
    StreamId::from_number(reader.u64()?).ok_or(FrameError::Value("id"))
}

pub(super) fn parse_field<T: FromStr>(text: &Bytes, field: &'static str) -> Result<T, FrameError> {
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(FrameError::Value(field))
}
