//! Values in arguments: times, rates, shares, header fields, settings.

use std::time::Duration;

use crate::bus::Selection;
use crate::message::{Headers, MESSAGE_BYTES_MAX};

/// Messages a second; above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

/// A header field as typed: key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// Text before the first colon.
    pub key: String,
    /// Text after it, without an optional space.
    pub value: String,
}

/// A key of the configuration with its value, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Text before the first equals sign.
    pub key: String,
    /// Text after it.
    pub value: String,
}

/// Reads a time: `2s`, `500 ms`, `1m 30s`, or a number of seconds.
///
/// # Errors
/// Returns the form of a time.
pub fn wait(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; a time looks like 2s or 500ms"))
}

/// Reads the part of a history: `all`, a number of messages of each subject, or a time back from now.
///
/// # Errors
/// Returns the form of such a part.
pub fn history(text: &str) -> Result<Selection, String> {
    if text == "all" {
        return Ok(Selection::default());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return match text.parse() {
            Ok(newest @ 1..) => Ok(Selection { newest: Some(newest), age: None }),
            _ => Err("a number of messages is from 1 to 4294967295".to_owned()),
        };
    }
    match humantime::parse_duration(text) {
        Ok(age) if !age.is_zero() => Ok(Selection { newest: None, age: Some(age) }),
        _ => Err("it is 'all', a number of messages of each subject, or a time such as 90s or '10 min'".to_owned()),
    }
}

/// Reads a rate: `20000/s` or `20000`.
///
/// # Errors
/// Returns the form of a rate.
pub fn rate(text: &str) -> Result<Rate, String> {
    match text.strip_suffix("/s").unwrap_or(text).trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && 0.0 < rate => Ok(Rate(rate)),
        _ => Err("a rate is a number of messages a second above 0, such as 20000/s".to_owned()),
    }
}

/// Reads the size of a benchmark's payload: bytes, `64`, or with a unit, `8 mb` (1,048,576 bytes each). The minimum is
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

/// Reads a number of subscribers of a benchmark, from 1 to 64.
///
/// # Errors
/// The text is no such number.
pub fn subscribers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(subscribers @ 1..=64) => Ok(subscribers),
        _ => Err("there are 1 to 64 subscribers".to_owned()),
    }
}

/// Reads a size like [`payload_bytes`], of payloads that also contain their due time: at least 16 bytes.
///
/// # Errors
/// Returns the form of a size.
pub fn stamped_bytes(text: &str) -> Result<usize, String> {
    match payload_bytes(text)? {
        8..16 => Err("payloads that say when they were due have at least 16 bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads a share of datagrams: `5%` or `5`, from 0 % to below 100 %.
///
/// # Errors
/// Returns the form of a share.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a share is a number from 0 to below 100, such as 5%".to_owned()),
    }
}

/// Reads a header field: `key: value`.
///
/// # Errors
/// Returns the reason why it is none.
pub fn header(text: &str) -> Result<HeaderField, String> {
    let Some((key, value)) = text.split_once(':') else {
        return Err("a header field is KEY:VALUE".to_owned());
    };
    let value = value.strip_prefix(' ').unwrap_or(value);
    Headers::from_pairs([(key, value)]).map_err(|error| error.to_string())?;
    Ok(HeaderField { key: key.to_owned(), value: value.to_owned() })
}

/// Reads a setting: `key=value`.
///
/// # Errors
/// Returns the form of a setting.
pub fn setting(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok(Setting { key: key.trim().to_owned(), value: value.trim().to_owned() })
        }
        _ => Err("a setting is KEY=VALUE, such as heartbeat=500ms".to_owned()),
    }
}

/// Returns the headers of a message from checked fields.
pub fn headers(fields: &[HeaderField]) -> Headers {
    let pairs = fields.iter().map(|field| (field.key.as_str(), field.value.as_str()));
    Headers::from_pairs(pairs).expect("each field was checked when the arguments were read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused() {
        assert_eq!(wait("2"), Ok(Duration::from_secs(2)));
        assert_eq!(wait("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(wait("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(wait("-1").is_err() && wait("soon").is_err() && wait("nan").is_err() && wait("").is_err());
        assert_eq!(rate("20000/s"), Ok(Rate(20_000.0)));
        assert_eq!(rate("0.5"), Ok(Rate(0.5)));
        assert!(rate("0").is_err() && rate("-3/s").is_err() && rate("inf").is_err() && rate("fast").is_err());
        assert_eq!(percent("5%"), Ok(0.05));
        assert_eq!(percent("0"), Ok(0.0));
        assert!(percent("100%").is_err() && percent("-1").is_err() && percent("x").is_err());
    }

    #[test]
    fn sizes_of_payloads_have_units_and_bounds() {
        assert_eq!([" 64", "1kb", "8 MiB", "8b"].map(payload_bytes), [Ok(64), Ok(1024), Ok(8 << 20), Ok(8)]);
        for text in ["7", "9mb", "", "mb", "1gb", "-8", "1.5kb", "99999999999999999999"] {
            assert!(payload_bytes(text).unwrap_err().contains("from 8 to"), "{text}");
        }
        assert_eq!((subscribers("4"), subscribers("65").is_err()), (Ok(4), true));
        assert_eq!(stamped_bytes("16"), Ok(16));
        assert!(stamped_bytes("15").unwrap_err().contains("at least 16"));
    }

    #[test]
    fn parts_of_a_history_are_a_number_a_time_or_all() {
        assert_eq!(history("all"), Ok(Selection::default()));
        assert_eq!(history("7"), Ok(Selection { newest: Some(7), age: None }));
        assert_eq!(history("90s"), Ok(Selection { newest: None, age: Some(Duration::from_secs(90)) }));
        assert_eq!(history("10 min"), Ok(Selection { newest: None, age: Some(Duration::from_secs(600)) }));
        assert!(history("0").unwrap_err().contains("from 1") && history("4294967296").unwrap_err().contains("from 1"));
        assert!(history("0s").is_err() && history("").is_err() && history("ALL").is_err() && history("-1").is_err());
    }

    #[test]
    fn header_fields_are_checked_at_once() {
        let field = header("Content-Type: text/plain: yes").unwrap();
        assert_eq!((field.key.as_str(), field.value.as_str()), ("Content-Type", "text/plain: yes"));
        assert_eq!(headers(&[field]).block().as_ref(), b"Content-Type: text/plain: yes\r\n");
        assert_eq!(header("k:").unwrap().value, "");
        assert_eq!(header("none"), Err("a header field is KEY:VALUE".to_owned()));
        assert!(header("a b: c").unwrap_err().contains("\"a b\""));
        assert!(header("a: b\nc").unwrap_err().contains("line break"));
    }

    #[test]
    fn settings_are_split_at_the_first_equals_sign() {
        assert_eq!(setting("a = b=c"), Ok(Setting { key: "a".into(), value: "b=c".into() }));
        assert!(setting("=b").is_err() && setting("a").is_err());
    }
}
