//! Beacon: announces the group of a peer to the peers of other groups.
//!
//! A beacon is no datagram of a group: it has a magic of its own, and no record of it changes the state of a stream.

use super::reader::Reader;
use super::{CHECK_BYTES, DecodeError, DiscardReason};
use crate::message::{Epoch, PeerName};
use bytes::{BufMut, Bytes, BytesMut};
use std::net::IpAddr;

/// The first two bytes of every beacon: "SB".
const MAGIC: u16 = 0x5342;
/// The version of this layout.
const VERSION: u8 = 1;
/// Bytes before the address of the group.
const FIXED_BYTES: usize = 16;
/// Bytes of an IPv6 address, the longer kind.
const ADDRESS_BYTES_MAX: usize = 16;

/// A peer and its group (W162).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-------------------------------+---------------+---------------+
/// |     magic = 0x5342 ("SB")     |  version = 1  |   flags = 0   |  0
/// +-------------------------------+---------------+---------------+
/// |                             epoch                             |  4
/// |                                                               |
/// +-------------------------------+---------------+---------------+
/// |       port of the group       | address bytes |  name bytes   | 12
/// +-------------------------------+---------------+---------------+
/// |    address of the group (4 or 16) · name (1 to 64)           ... 16
/// +---------------------------------------------------------------+
/// |                          check value                          |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// Epoch of the peer.
    pub epoch: Epoch,
    /// Name of the peer.
    pub name: PeerName,
    /// Multicast address of its group.
    pub group: IpAddr,
    /// UDP port of its group; not 0.
    pub port: u16,
}

impl Beacon {
    /// Bytes of the longest beacon.
    pub const BYTES_MAX: usize = FIXED_BYTES + ADDRESS_BYTES_MAX + PeerName::BYTES_MAX + CHECK_BYTES;

    /// Decodes a beacon. The order of checking is foreign, version, check value, malformed.
    ///
    /// # Errors
    /// Returns the reason for which the bytes are discarded.
    pub fn decode(bytes: &Bytes) -> Result<Beacon, DiscardReason> {
        let [m0, m1, version, ..] = **bytes else { return Err(DiscardReason::Foreign) };
        if u16::from_be_bytes([m0, m1]) != MAGIC {
            return Err(DiscardReason::Foreign);
        }
        if version != VERSION {
            return Err(DiscardReason::Version(version));
        }
        let Some((content, check)) = bytes.split_last_chunk::<CHECK_BYTES>() else {
            return Err(DiscardReason::Foreign);
        };
        if crc32c::crc32c(content) != u32::from_be_bytes(*check) {
            return Err(DiscardReason::Check);
        }
        Beacon::decode_content(&bytes.slice(..content.len())).map_err(DiscardReason::Malformed)
    }

    /// Decodes the bytes that the check value covers.
    fn decode_content(content: &Bytes) -> Result<Beacon, DecodeError> {
        let mut reader = Reader::new(content);
        let (_magic, _version, _flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
        let epoch = Epoch::new(reader.u64()?).ok_or(DecodeError::Epoch)?;
        let port = reader.u16()?;
        let (address_bytes, name_bytes) = (reader.u8()?, usize::from(reader.u8()?));
        let group: IpAddr = match address_bytes {
            4 => reader.array::<4>()?.into(),
            16 => reader.array::<16>()?.into(),
            _ => return Err(DecodeError::Group),
        };
        if !group.is_multicast() || port == 0 {
            return Err(DecodeError::Group);
        }
        let name = reader.bytes(name_bytes)?;
        let name = str::from_utf8(&name).map_err(|_| DecodeError::NameEncoding)?;
        let name = name.parse().map_err(DecodeError::Name)?;
        match reader.left() {
            0 => Ok(Beacon { epoch, name, group, port }),
            left => Err(DecodeError::BeaconTrailing(left)),
        }
    }

    /// Returns the bytes of the beacon. The group must be one that [`Beacon::decode`] accepts.
    pub fn encode(&self) -> Bytes {
        assert!(self.group.is_multicast() && self.port != 0, "a peer has a group");
        let mut out = BytesMut::with_capacity(Beacon::BYTES_MAX);
        out.put_u16(MAGIC);
        out.put_u8(VERSION);
        out.put_u8(0);
        out.put_u64(self.epoch.bits());
        out.put_u16(self.port);
        let address = match self.group {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        out.put_u8(u8::try_from(address.len()).expect("an address has 4 or 16 bytes"));
        let name = self.name.as_str();
        out.put_u8(u8::try_from(name.len()).expect("a name has at most 64 bytes"));
        out.put_slice(&address);
        out.put_slice(name.as_bytes());
        let check = crc32c::crc32c(&out);
        out.put_u32(check);
        out.freeze()
    }
}
