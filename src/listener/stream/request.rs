//! Requests about streams and their consumers.

use super::fields::{
    ACCEPT, ADD, CONSUMERS, LIST, POLL, READ, REGISTER, REMOVE, RESET, consumer, json, parse_field, put_consumer,
    put_count, stream_id,
};
use crate::event::model::Json;
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::listener::codec::{FrameError, FrameReader, put_bytes8, put_bytes32};
use bytes::{BufMut, BytesMut};
use std::collections::BTreeSet;

/// Flags of optional fields of a read.
const LAST: u8 = 0x01;
const WANT: u8 = 0x02;

const START: u8 = 0;
const END: u8 = 1;
const AT: u8 = 2;

/// A request about a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// Name of the stream. `None` selects the first stream of the configuration, or all streams for `List`.
    pub stream: Option<StreamName>,
    /// The operation.
    pub operation: StreamOperation,
}

/// Operations on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOperation {
    /// Lists streams and their contents.
    List,
    /// Adds an event.
    Add {
        /// Its type.
        kind: StreamType,
        /// Its data.
        data: Json,
    },
    /// Reads the events after the position that a consumer has accepted.
    Poll {
        /// The consumer.
        consumer: Consumer,
        /// Position that the consumer accepts with this request.
        last: Option<StreamId>,
        /// Types that the consumer wants; `None` for all. Events of other types count as accepted.
        want: Option<BTreeSet<StreamType>>,
        /// Maximum number of events.
        events_max: u32,
    },
    /// Reads the events after a position, without a consumer.
    Read {
        /// Position after which the read begins.
        after: StreamId,
        /// Types of the events; `None` for all.
        want: Option<BTreeSet<StreamType>>,
        /// Maximum number of events.
        events_max: u32,
    },
    /// Accepts all events up to this position for a consumer.
    Accept(Consumer, StreamId),
    /// Lists the registered consumers.
    Consumers,
    /// Registers a consumer, or resumes a lapsed one.
    Register(Consumer),
    /// Sets the position of a consumer.
    Reset(Consumer, ResetPosition),
    /// Removes a consumer.
    Remove(Consumer),
}

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetPosition {
    /// Before the first retained event.
    Start,
    /// After the last event.
    End,
    /// After the event with this id.
    After(StreamId),
}

impl StreamRequest {
    /// Appends the request.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        let code = match &self.operation {
            StreamOperation::List => LIST,
            StreamOperation::Add { .. } => ADD,
            StreamOperation::Poll { .. } => POLL,
            StreamOperation::Read { .. } => READ,
            StreamOperation::Accept(..) => ACCEPT,
            StreamOperation::Consumers => CONSUMERS,
            StreamOperation::Register(_) => REGISTER,
            StreamOperation::Reset(..) => RESET,
            StreamOperation::Remove(_) => REMOVE,
        };
        out.put_u8(code);
        put_bytes8(out, self.stream.as_ref().map_or("", |stream| stream.as_str()).as_bytes());
        match &self.operation {
            StreamOperation::List | StreamOperation::Consumers => {}
            StreamOperation::Add { kind, data } => {
                put_bytes8(out, kind.as_str().as_bytes());
                put_bytes32(out, data.bytes());
            }
            StreamOperation::Poll { consumer, last, want, events_max } => {
                put_consumer(out, consumer);
                put_read_range(out, *last, want.as_ref(), *events_max);
            }
            StreamOperation::Read { after, want, events_max } => {
                put_read_range(out, Some(*after), want.as_ref(), *events_max)
            }
            StreamOperation::Accept(consumer, up_to) => {
                put_consumer(out, consumer);
                out.put_u64(up_to.number());
            }
            StreamOperation::Register(consumer) | StreamOperation::Remove(consumer) => put_consumer(out, consumer),
            StreamOperation::Reset(consumer, position) => {
                put_consumer(out, consumer);
                match position {
                    ResetPosition::Start => out.put_u8(START),
                    ResetPosition::End => out.put_u8(END),
                    ResetPosition::After(id) => {
                        out.put_u8(AT);
                        out.put_u64(id.number());
                    }
                }
            }
        }
    }

    /// Reads a request.
    pub(crate) fn read(reader: &mut FrameReader) -> Result<StreamRequest, FrameError> {
        let code = reader.u8()?;
        let name = reader.bytes8()?;
        let stream = if name.is_empty() { None } else { Some(parse_field(&name, "stream")?) };
        let operation = match code {
            LIST => StreamOperation::List,
            ADD => {
                let kind = parse_field(&reader.bytes8()?, "type")?;
                StreamOperation::Add { kind, data: json(reader, Json::from_bytes)? }
            }
            POLL => {
                let consumer = consumer(reader)?;
                let ReadRange { last, want, events_max } = read_range(reader)?;
                StreamOperation::Poll { consumer, last, want, events_max }
            }
            READ => {
                let ReadRange { last: after, want, events_max } = read_range(reader)?;
                StreamOperation::Read { after: after.ok_or(FrameError::Value("flags"))?, want, events_max }
            }
            ACCEPT => StreamOperation::Accept(consumer(reader)?, stream_id(reader)?),
            CONSUMERS => StreamOperation::Consumers,
            REGISTER => StreamOperation::Register(consumer(reader)?),
            RESET => {
                let consumer = consumer(reader)?;
                let position = match reader.u8()? {
                    START => ResetPosition::Start,
                    END => ResetPosition::End,
                    AT => ResetPosition::After(stream_id(reader)?),
                    _ => return Err(FrameError::Value("position")),
                };
                StreamOperation::Reset(consumer, position)
            }
            REMOVE => StreamOperation::Remove(consumer(reader)?),
            _ => return Err(FrameError::Value("request")),
        };
        Ok(StreamRequest { stream, operation })
    }
}

/// Range of a read: its first position, the wanted types and the maximum number of events.
struct ReadRange {
    last: Option<StreamId>,
    want: Option<BTreeSet<StreamType>>,
    events_max: u32,
}

fn put_read_range(out: &mut BytesMut, last: Option<StreamId>, want: Option<&BTreeSet<StreamType>>, events_max: u32) {
    out.put_u8(if last.is_some() { LAST } else { 0 } | if want.is_some() { WANT } else { 0 });
    last.iter().for_each(|last| out.put_u64(last.number()));
    if let Some(want) = want {
        put_count(out, want.len());
        want.iter().for_each(|kind| put_bytes8(out, kind.as_str().as_bytes()));
    }
    out.put_u32(events_max);
}

fn read_range(reader: &mut FrameReader) -> Result<ReadRange, FrameError> {
    let flags = reader.u8()?;
    if flags & !(LAST | WANT) != 0 {
        return Err(FrameError::Value("flags"));
    }
    let last = if flags & LAST == 0 { None } else { Some(stream_id(reader)?) };
    let want = match flags & WANT {
        0 => None,
        _ => {
            let count = reader.count32(2)?;
            Some((0..count).map(|_| parse_field(&reader.bytes8()?, "want")).collect::<Result<_, _>>()?)
        }
    };
    Ok(ReadRange { last, want, events_max: reader.u32()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn malformed_request_is_refused() {
        let check = |bytes: &'static [u8], expected: FrameError| {
            assert_eq!(
                StreamRequest::read(&mut FrameReader::new(Bytes::from_static(bytes))),
                Err(expected),
                "{bytes:?}"
            );
        };
        check(b"", FrameError::Short);
        check(b"\x09\0", FrameError::Value("request"));
        check(b"\x00\x04Main", FrameError::Value("stream"));
        check(b"\x01\0\x01a\0\0\0\x011", FrameError::Value("type"));
        check(b"\x01\0\x01A\0\0\0\x01{", FrameError::Value("JSON"));
        check(b"\x01\0\x01A\xff\xff\xff\xff1", FrameError::Short);
        check(b"\x02\0\x01u\x02a-\0", FrameError::Value("component"));
        check(b"\x02\0\x03u:v\x01a\0", FrameError::Value("user"));
        check(b"\x02\0\x01u\x01a\x04", FrameError::Value("flags"));
        check(b"\x02\0\x01u\x01a\x02\xff\xff\xff\xff", FrameError::Short);
        check(b"\x02\0\x01u\x01a\x02\0\0\0\x01\x01a\0\0", FrameError::Value("want"));
        check(b"\x03\0\0\0\0\0\x01", FrameError::Value("flags"));
        check(b"\x04\0\x01u\x01a\xff\xff\xff\xff\xff\xff\xff\xff", FrameError::Value("id"));
        check(b"\x07\0\x01u\x01a\x03", FrameError::Value("position"));
    }
}
