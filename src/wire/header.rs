//! The fixed start of every datagram.

use super::reader::Reader;
use super::{DecodeError, MAGIC, MODE_OPEN, NUMBER_LIMIT, VERSION};
use crate::message::Epoch;
use bytes::BufMut;

/// Kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Messages for the group; numbered by the publisher's dseq.
    Data,
    /// Messages for one receiver; numbered by the dseq of the stream to it.
    Directed,
    /// Everything else; numbered by the sender's control counter.
    Control,
}

impl Kind {
    pub(crate) fn to_wire(self) -> u8 {
        match self {
            Kind::Data => 0,
            Kind::Directed => 1,
            Kind::Control => 2,
        }
    }

    fn from_wire(byte: u8) -> Result<Kind, DecodeError> {
        match byte {
            0 => Ok(Kind::Data),
            1 => Ok(Kind::Directed),
            2 => Ok(Kind::Control),
            other => Err(DecodeError::Kind(other)),
        }
    }
}

/// The header: 36 bytes, 44 in a directed datagram.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-------------------------------+---------------+---------------+
/// |       magic = 0x5343 "SC"     |  version = 1  |     mode      |  0
/// +---------------+---------------+---------------+---------------+
/// |     kind      |   flags = 0   |             group             |  4
/// +---------------+---------------+-------------------------------+
/// |                            epoch, not 0                       |  8
/// |                                                               |
/// +---------------------------------------------------------------+
/// |                     number, 1 to 2^63 - 1                     | 16
/// |                                                               |
/// +---------------------------------------------------------------+
/// |                     count, 0 to 2^63 - 1                      | 24
/// |                                                               |
/// +---------------------------------------------------------------+
/// |                    uptime in milliseconds                     | 32
/// +---------------------------------------------------------------+
/// |        receiver: an epoch, not 0; only in directed            | 36
/// |                                                               |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the datagram.
    pub kind: Kind,
    /// The group: its UDP port.
    pub group: u16,
    /// Epoch of the sender.
    pub epoch: Epoch,
    /// Dseq of the stream, or the control counter; from 1, below [`NUMBER_LIMIT`].
    pub number: u64,
    /// Messages begun in all earlier datagrams of the stream; in control datagrams, in all multicast data so far.
    pub count: u64,
    /// Milliseconds since the epoch started, at sealing; saturates at 2^32 - 1 (49.7 days).
    pub uptime_ms: u32,
    /// Epoch of the receiver; in directed datagrams only.
    pub receiver: Option<Epoch>,
}

impl Header {
    /// Offset of the kind.
    pub(crate) const KIND_AT: usize = 4;
    /// Bytes of a header without receiver.
    pub(crate) const SHORT_BYTES: usize = 36;
    /// Bytes of the longest header, that of a directed datagram.
    pub(crate) const BYTES_MAX: usize = 44;

    /// Returns the bytes of this header.
    pub fn bytes(&self) -> usize {
        if self.receiver.is_some() { Self::BYTES_MAX } else { Self::SHORT_BYTES }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Header, DecodeError> {
        let (_magic, _version, _mode) = (reader.u16()?, reader.u8()?, reader.u8()?);
        let kind = Kind::from_wire(reader.u8()?)?;
        let _flags = reader.u8()?;
        let group = reader.u16()?;
        let epoch = Epoch::new(reader.u64()?).ok_or(DecodeError::Epoch)?;
        let number = number(reader.u64()?)?;
        if number == 0 {
            return Err(DecodeError::Number(number));
        }
        let count = self::number(reader.u64()?)?;
        let uptime_ms = reader.u32()?;
        let receiver = match kind {
            Kind::Directed => Some(Epoch::new(reader.u64()?).ok_or(DecodeError::Epoch)?),
            Kind::Data | Kind::Control => None,
        };
        Ok(Header { kind, group, epoch, number, count, uptime_ms, receiver })
    }

    /// Writes the header; it must be one that [`Header::decode`] accepts.
    pub(super) fn encode(&self, mut out: impl BufMut) {
        assert_eq!(self.receiver.is_some(), self.kind == Kind::Directed, "exactly directed datagrams name a receiver");
        assert!((1..NUMBER_LIMIT).contains(&self.number), "numbers start at 1");
        assert!(self.count < NUMBER_LIMIT, "counts stay below 2^63");
        out.put_u16(MAGIC);
        out.put_u8(VERSION);
        out.put_u8(MODE_OPEN);
        out.put_u8(self.kind.to_wire());
        out.put_u8(0);
        out.put_u16(self.group);
        out.put_u64(self.epoch.bits());
        out.put_u64(self.number);
        out.put_u64(self.count);
        out.put_u32(self.uptime_ms);
        if let Some(receiver) = self.receiver {
            out.put_u64(receiver.bits());
        }
    }
}

/// Decodes a dseq, counter or count.
pub(super) fn number(raw: u64) -> Result<u64, DecodeError> {
    if raw < NUMBER_LIMIT { Ok(raw) } else { Err(DecodeError::Number(raw)) }
}
