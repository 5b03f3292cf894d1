//! The records of control datagrams: HEARTBEAT, HELLO, BYE.

use super::header::{Header, Kind, number};
use super::reader::Reader;
use super::{BYE, CHECK_BYTES, HEARTBEAT, HELLO, Malformed, PAD, RECORD_HEADER_BYTES, Record};
use crate::message::{Dseq, Epoch, PeerName};
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;

/// HELLO: the sender wants a HELLO in answer.
const WANTS_REPLY: u8 = 0x01;

/// What a peer says of itself: the body of HEARTBEAT and BYE, and the end of HELLO.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x40  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |              high: dseq of the last data datagram             |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |           trail: oldest dseq that can be resent               |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |     manifest trail: oldest dseq whose content is known        |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |             heartbeat interval in milliseconds                |
/// +---------------------------------------------------------------+
/// |               pub-window-time in milliseconds                 |
/// +---------------------------------------------------------------+
/// |     directed high: last dseq of the stream to the receiver    |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |      directed count: messages begun in the stream to it       |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |  directed receiver: the epoch these two are about; 0: nobody  |
/// |                                                               |
/// +---------------+-----------------------------------------------+
/// |  name bytes   |               name (1 to 64)                 ...
/// +---------------+---------------+-------------------------------+
/// |     field     |             length            |    bytes     ... any number, skipped if unknown
/// +---------------+-------------------------------+---------------+
/// ```
/// BYE is the same with type 0x42.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    /// The dseq of the last data datagram; 0 before the first.
    pub high: Dseq,
    /// The oldest dseq that can be resent; `high + 1` if none can.
    pub trail: Dseq,
    /// The oldest dseq whose subjects and seqs are still known; `high + 1` if none.
    pub manifest_trail: Dseq,
    /// The longest time between two heartbeats; whole milliseconds, at least 1.
    pub heartbeat: Duration,
    /// How long an idle subject keeps its number at least; whole milliseconds.
    pub pub_window_time: Duration,
    /// The last dseq of the directed stream to the receiver of this record; 0 in multicast.
    pub directed_high: Dseq,
    /// Messages begun in the directed stream to the receiver of this record; 0 in multicast.
    pub directed_count: u64,
    /// Whose directed stream these two are about. A peer that came back at the same address under a new epoch sees by
    /// it that they are not about its own. `None` in multicast.
    pub directed_receiver: Option<Epoch>,
    /// The sender's name, for people.
    pub name: PeerName,
}

impl Announce {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Announce, Malformed> {
        let high = Dseq(number(reader.u64()?)?);
        let trail = Dseq(number(reader.u64()?)?);
        let manifest_trail = Dseq(number(reader.u64()?)?);
        let heartbeat_ms = reader.u32()?;
        if heartbeat_ms == 0 {
            return Err(Malformed::Interval);
        }
        let heartbeat = Duration::from_millis(u64::from(heartbeat_ms));
        let pub_window_time = Duration::from_millis(u64::from(reader.u32()?));
        let directed_high = Dseq(number(reader.u64()?)?);
        let directed_count = number(reader.u64()?)?;
        let directed_receiver = Epoch::new(reader.u64()?);
        let name_bytes = usize::from(reader.u8()?);
        let name = reader.bytes(name_bytes)?;
        let name = std::str::from_utf8(&name).map_err(|_| Malformed::NameEncoding)?;
        let name = name.parse().map_err(Malformed::Name)?;
        while !reader.is_done() {
            let _field = reader.u8()?;
            let bytes = usize::from(reader.u16()?);
            reader.span(bytes)?;
        }
        Ok(Announce {
            high,
            trail,
            manifest_trail,
            heartbeat,
            pub_window_time,
            directed_high,
            directed_count,
            directed_receiver,
            name,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.high.0);
        out.put_u64(self.trail.0);
        out.put_u64(self.manifest_trail.0);
        out.put_u32(millis(self.heartbeat).max(1));
        out.put_u32(millis(self.pub_window_time));
        out.put_u64(self.directed_high.0);
        out.put_u64(self.directed_count);
        out.put_u64(self.directed_receiver.map_or(0, Epoch::bits));
        let name = self.name.as_str().as_bytes();
        out.put_u8(u8::try_from(name.len()).expect("names have at most 64 bytes"));
        out.put_slice(name);
    }
}

/// Whole milliseconds, at most 2^32 - 1.
fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

/// The greeting of a peer that starts, and the answer to one.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x41  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |             cookie; 0: none, or one is asked for              |
/// |                                                               |
/// +---------------+-----------------------------------------------+
/// | hello flags   |          as HEARTBEAT from `high` on         ...
/// +---------------+-----------------------------------------------+
///
/// hello flags = 0x01 WANTS_REPLY; others are ignored
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Proof that the sender can be reached at its address; 0 if it has none.
    pub cookie: u64,
    /// Whether the sender wants a HELLO in answer.
    pub wants_reply: bool,
    /// What the sender says of itself.
    pub announce: Announce,
}

impl Hello {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Hello, Malformed> {
        let cookie = reader.u64()?;
        let flags = reader.u8()?;
        let announce = Announce::decode(reader)?;
        Ok(Hello { cookie, wants_reply: flags & WANTS_REPLY != 0, announce })
    }
}

/// A control datagram with this one record, followed by PAD if needed so that it has at least `padded_to` bytes
/// (at most three more). `padded_to` is at most 65,507; 0 means no padding.
///
/// # Panics
/// If the header is not that of a control datagram, or the record not a HEARTBEAT, HELLO or BYE.
pub fn encode_control(header: &Header, record: &Record, padded_to: usize) -> Bytes {
    assert_eq!(header.kind, Kind::Control, "only control datagrams hold control records");
    assert!(padded_to <= super::DATAGRAM_BYTES_MAX, "padding to more than a datagram holds");
    let mut body = BytesMut::with_capacity(256);
    let record_type = match record {
        Record::Heartbeat(announce) => {
            announce.encode(&mut body);
            HEARTBEAT
        }
        Record::Bye(announce) => {
            announce.encode(&mut body);
            BYE
        }
        Record::Hello(hello) => {
            body.put_u64(hello.cookie);
            body.put_u8(if hello.wants_reply { WANTS_REPLY } else { 0 });
            hello.announce.encode(&mut body);
            HELLO
        }
        Record::Run(_) | Record::Fragment(_) | Record::UnknownData(_) => panic!("not a control record: {record:?}"),
    };
    let bytes = header.bytes() + RECORD_HEADER_BYTES + body.len() + CHECK_BYTES;
    let mut out = BytesMut::with_capacity(bytes.max(padded_to) + RECORD_HEADER_BYTES);
    header.encode(&mut out);
    put_record(&mut out, record_type, &body);
    if bytes < padded_to {
        let pad_bytes = (padded_to - bytes).saturating_sub(RECORD_HEADER_BYTES);
        put_record(&mut out, PAD, &vec![0; pad_bytes]);
    }
    super::builder::put_check(&mut out);
    out.freeze()
}

fn put_record(out: &mut BytesMut, record_type: u8, body: &[u8]) {
    out.put_u8(record_type);
    out.put_u8(0);
    out.put_u16(u16::try_from(body.len()).expect("records are smaller than a datagram"));
    out.put_slice(body);
}
