//! Sizes of payloads in arguments.

use crate::message::MESSAGE_BYTES_MAX;

/// Reads the size of a payload: bytes, `64`, or with a unit, `8 mb` (1,048,576 bytes each). The minimum is
/// 8 bytes, which contain the number of the message; the maximum is the largest message.
///
/// # Errors
/// Returns the form of a size.
pub fn payload_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "b" => Some(1),
        "k" | "kb" | "kib" => Some(1024),
        "m" | "mb" | "mib" => Some(1024 * 1024),
        _ => None,
    };
    let bytes = unit.and_then(|unit| number.parse::<usize>().ok()?.checked_mul(unit));
    bytes
        .filter(|bytes| (8..=MESSAGE_BYTES_MAX).contains(bytes))
        .ok_or_else(|| format!("a size is from 8 to {MESSAGE_BYTES_MAX} bytes, such as 64, 1024, 64kb or 8mb"))
}

/// Reads a size like [`payload_bytes`], of payloads that also contain their due time: at least 16 bytes.
///
/// # Errors
/// Returns the form of a size.
pub fn stamped_bytes(text: &str) -> Result<usize, String> {
    match payload_bytes(text)? {
        8..16 => Err("payloads that contain their due time have at least 16 bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_sizes_have_units_and_bounds() {
        assert_eq!([" 64", "1kb", "8 MiB", "8b"].map(payload_bytes), [Ok(64), Ok(1024), Ok(8 << 20), Ok(8)]);
        for text in ["7", "9mb", "", "mb", "1gb", "-8", "1.5kb", "99999999999999999999"] {
            assert!(payload_bytes(text).unwrap_err().contains("from 8 to"), "{text}");
        }
        assert_eq!(stamped_bytes("16"), Ok(16));
        assert!(stamped_bytes("15").unwrap_err().contains("at least 16"));
    }
}
