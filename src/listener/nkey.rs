//! Public keys of NATS users (nkeys), as text.

use std::fmt;

/// Length of a key as text, in bytes: 35 bytes in base 32.
const TEXT_BYTES: usize = 56;
/// The first byte of a user's key; it makes the text begin with `U`.
const USER: u8 = 20 << 3;
/// Bytes of an Ed25519 public key.
const KEY_BYTES: usize = 32;

/// Reason why a text is not a user's public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NkeyError {
    /// The text does not have 56 characters of `A-Z` and `2-7`.
    Text,
    /// The key is not a user's key, or it is a secret key.
    Kind,
    /// The checksum does not match: a character is wrong.
    Check,
}

impl fmt::Display for NkeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NkeyError::Text => write!(f, "an nkey has {TEXT_BYTES} characters, each one of A-Z and 2-7"),
            NkeyError::Kind => write!(f, "the public nkey of a user begins with U"),
            NkeyError::Check => write!(f, "the nkey has a wrong character: its check value does not fit"),
        }
    }
}

impl std::error::Error for NkeyError {}

/// Decodes the key from the text `U…`.
///
/// # Errors
/// Returns the reason why the text is not such a key.
pub fn decode(text: &str) -> Result<[u8; KEY_BYTES], NkeyError> {
    let bytes = decode_base32(text).ok_or(NkeyError::Text)?;
    let (content, check) = bytes.split_at(1 + KEY_BYTES);
    if content[0] != USER {
        return Err(NkeyError::Kind);
    }
    if crc16(content).to_le_bytes() != *check {
        return Err(NkeyError::Check);
    }
    Ok(content[1..].try_into().expect("as long as a key"))
}

/// Encodes a user's key as text, the inverse of [`decode`].
pub fn encode(key: &[u8; KEY_BYTES]) -> String {
    let mut bytes = vec![USER];
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
    let (words, _) = bytes.as_chunks::<5>();
    let letters = words.iter().flat_map(|word| {
        let bits = word.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        (0..8).rev().map(move |at| b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(bits >> (at * 5) & 31) as usize])
    });
    letters.map(char::from).collect()
}

/// Decodes a text in base 32.
fn decode_base32(text: &str) -> Option<[u8; TEXT_BYTES * 5 / 8]> {
    if text.len() != TEXT_BYTES {
        return None;
    }
    let mut bytes = [0; TEXT_BYTES * 5 / 8];
    for (group, bytes) in text.as_bytes().chunks(8).zip(bytes.chunks_mut(5)) {
        let mut bits = 0_u64;
        for letter in group {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'2'..=b'7' => letter - b'2' + 26,
                _ => return None,
            };
            bits = bits << 5 | u64::from(value);
        }
        bytes.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    Some(bytes)
}

/// Computes the CRC-16 with polynomial 0x1021 and initial value 0 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}
