//! Layout of datagrams in keyed modes, which end with a tag instead of a check value. The ciphers are not known here.

use super::{CHECK_BYTES, Header, MODE_OPEN, unchecked_header};
use bytes::Bytes;

/// Offset of the mode in the header.
const MODE_AT: usize = 3;
/// Offset of the flags in the header.
const FLAGS_AT: usize = 5;
/// The key of the datagram is one of the sender and this receiver alone.
const FLAG_PAIRWISE: u8 = 0x01;

/// Header of a keyed datagram, which is readable without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedHeader {
    /// The mode byte.
    pub mode: u8,
    /// True if the key is one of the sender and one receiver, false if it is one of the sender and the group.
    pub is_pairwise: bool,
    /// The fields that open mode has, too.
    pub header: Header,
    /// Bytes of the header in the datagram.
    pub header_bytes: usize,
}

impl KeyedHeader {
    /// Decodes the header of a datagram; `None` if it is not one of this version.
    pub fn decode(datagram: &Bytes) -> Option<KeyedHeader> {
        let header = unchecked_header(datagram)?;
        Some(KeyedHeader {
            mode: *datagram.get(MODE_AT)?,
            is_pairwise: datagram.get(FLAGS_AT)? & FLAG_PAIRWISE != 0,
            header,
            header_bytes: header.bytes(),
        })
    }

    /// Returns header and records of a datagram of open mode, with the header of a keyed one.
    ///
    /// # Panics
    /// If the datagram is not one that this version has sealed.
    pub fn convert(mode: u8, is_pairwise: bool, open: &Bytes) -> (KeyedHeader, Vec<u8>) {
        let header = unchecked_header(open).expect("the datagram was sealed by this version");
        let (content, _) = open.split_last_chunk::<CHECK_BYTES>().expect("a check value ends it");
        let mut bytes = content.to_vec();
        set_mode(&mut bytes, mode, if is_pairwise { FLAG_PAIRWISE } else { 0 });
        (KeyedHeader { mode, is_pairwise, header, header_bytes: header.bytes() }, bytes)
    }
}

/// Sets mode and flags in a header.
fn set_mode(datagram: &mut [u8], mode: u8, flags: u8) {
    for (at, value) in [(MODE_AT, mode), (FLAGS_AT, flags)] {
        *datagram.get_mut(at).expect("a datagram begins with a header") = value;
    }
}

/// Returns a datagram of open mode that has nothing but padding, for tests.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn padding(header: &Header, body: &[u8]) -> Bytes {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend([super::PAD, 0]);
    bytes.extend(u16::try_from(body.len()).expect("it fits a record").to_be_bytes());
    bytes.extend(body);
    into_open(bytes)
}

/// Returns the datagram of open mode with the header of a keyed one and its decrypted records.
pub fn into_open(mut bytes: Vec<u8>) -> Bytes {
    set_mode(&mut bytes, MODE_OPEN, 0);
    let check = crc32c::crc32c(&bytes);
    bytes.extend(check.to_be_bytes());
    bytes.into()
}
