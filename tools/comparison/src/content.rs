//! Payloads that their number determines: the receiver knows which message it has, and that it is intact.

/// Odd numbers with bits all over, so that neighbours differ in all their bytes.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = 0xd1b5_4a32_d192_ed03;

/// Writes the payload of message `number`. Its length is a multiple of 8 bytes, at least 8.
pub fn fill(payload: &mut [u8], number: u64) {
    let mut word = number;
    for chunk in payload.as_chunks_mut::<8>().0 {
        *chunk = word.to_le_bytes();
        word = word.wrapping_mul(SPREAD).wrapping_add(STEP);
    }
}

/// Returns the number of a payload; `None` if it is damaged.
pub fn read(payload: &[u8]) -> Option<u64> {
    let words = payload.as_chunks::<8>().0;
    let number = u64::from_le_bytes(*words.first()?);
    let (mut word, mut differing) = (number, 0);
    for chunk in words {
        differing |= u64::from_le_bytes(*chunk) ^ word;
        word = word.wrapping_mul(SPREAD).wrapping_add(STEP);
    }
    (differing == 0).then_some(number)
}
