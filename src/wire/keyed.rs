//! Layout of datagrams in keyed modes, which end with a tag instead of a check value. The ciphers are not known here.

use super::{
    CHECK_BYTES, EXPIRED, Header, INTEREST_REQUEST, MANIFEST, MODE_OPEN, RECEIVER_REPORT, RESEND_REQUEST,
    unchecked_header,
};
use bytes::{Bytes, BytesMut};

/// Offset of the mode in the header.
const MODE_AT: usize = 3;
/// Offset of the flags in the header.
const FLAGS_AT: usize = 5;
/// The key of the datagram is one of the sender and this receiver alone.
const FLAG_PAIRWISE: u8 = 0x01;
/// The key of the datagram is one of an odd phase of the sender; with `FLAG_PAIRWISE`, the last announced phase is odd.
const FLAG_ODD_PHASE: u8 = 0x02;

/// The key of a sender that seals a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChoice {
    /// A key that every member of the group has.
    Group {
        /// True if the phase of the key is odd. Of two successive phases, one is odd.
        is_odd_phase: bool,
    },
    /// A key of the sender and one receiver.
    Pairwise {
        /// True if the phase is odd that the sender had announced last when it sealed the datagram.
        is_odd_phase: bool,
    },
}

impl KeyChoice {
    /// Returns the key of a phase that every member has.
    pub fn of_phase(phase: u8) -> KeyChoice {
        KeyChoice::Group { is_odd_phase: phase % 2 == 1 }
    }

    fn flags(self) -> u8 {
        let (pairwise, is_odd_phase) = match self {
            KeyChoice::Pairwise { is_odd_phase } => (FLAG_PAIRWISE, is_odd_phase),
            KeyChoice::Group { is_odd_phase } => (0, is_odd_phase),
        };
        if is_odd_phase { pairwise | FLAG_ODD_PHASE } else { pairwise }
    }

    fn of_flags(flags: u8) -> KeyChoice {
        let is_odd_phase = flags & FLAG_ODD_PHASE != 0;
        match flags & FLAG_PAIRWISE != 0 {
            true => KeyChoice::Pairwise { is_odd_phase },
            false => KeyChoice::Group { is_odd_phase },
        }
    }
}

/// Header of a keyed datagram, which is readable without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedHeader {
    /// The mode byte.
    pub mode: u8,
    /// The key.
    pub key: KeyChoice,
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
            key: KeyChoice::of_flags(*datagram.get(FLAGS_AT)?),
            header,
            header_bytes: header.bytes(),
        })
    }
}

/// Returns header and records of a datagram of open mode, with mode and flags of a keyed one, and with capacity for
/// `tag_bytes` more.
///
/// # Panics
/// If the datagram is not one that this version has made.
pub fn into_keyed(open: &[u8], mode: u8, key: KeyChoice, tag_bytes: usize) -> Vec<u8> {
    let (content, _) = open.split_last_chunk::<CHECK_BYTES>().expect("a check value ends it");
    let mut bytes = Vec::with_capacity(content.len() + tag_bytes);
    bytes.extend(content);
    set_mode(&mut bytes, mode, key.flags());
    bytes
}

/// Returns whether a datagram of open mode has a record that goes to one receiver alone: a request, an answer or a report.
/// Its header has `header_bytes`. An INTEREST may go to the group or to one receiver.
pub fn has_record_for_one(header_bytes: usize, datagram: &[u8]) -> bool {
    let records = datagram.split_last_chunk::<CHECK_BYTES>().and_then(|(content, _)| content.get(header_bytes..));
    let mut rest = records.unwrap_or_default();
    while let [kind, _, b0, b1, after @ ..] = rest {
        if matches!(*kind, RESEND_REQUEST | MANIFEST | EXPIRED | INTEREST_REQUEST | RECEIVER_REPORT) {
            return true;
        }
        rest = after.get(usize::from(u16::from_be_bytes([*b0, *b1]))..).unwrap_or_default();
    }
    false
}

/// Sets mode and flags in a header.
fn set_mode(datagram: &mut [u8], mode: u8, flags: u8) {
    for (at, value) in [(MODE_AT, mode), (FLAGS_AT, flags)] {
        *datagram.get_mut(at).expect("a datagram begins with a header") = value;
    }
}

/// Returns a datagram of open mode that has nothing but padding, for tests.
#[cfg(any(all(test, feature = "security"), feature = "sim"))]
pub(crate) fn padding(header: &Header, body: &[u8]) -> Bytes {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend([super::PAD, 0]);
    bytes.extend(u16::try_from(body.len()).expect("it fits a record").to_be_bytes());
    bytes.extend(body);
    into_open(BytesMut::from(&bytes[..]))
}

/// Returns a datagram of open mode with the CRC32C of its bytes as its check value.
///
/// # Panics
/// If the datagram is shorter than a check value.
pub fn with_check_value(open: &[u8]) -> Bytes {
    let (content, _) = open.split_last_chunk::<CHECK_BYTES>().expect("a check value ends it");
    [content, &crc32c::crc32c(content).to_be_bytes()].concat().into()
}

/// Returns the datagram of open mode with the header of a keyed one and its decrypted records. Its check value is
/// [`CheckValue::Unused`](super::CheckValue::Unused).
pub fn into_open(mut bytes: BytesMut) -> Bytes {
    set_mode(&mut bytes, MODE_OPEN, 0);
    bytes.extend_from_slice(&[0; CHECK_BYTES]);
    bytes.freeze()
}
