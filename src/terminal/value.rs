//! Values in arguments: times, rates, shares, settings.

use std::time::Duration;

use crate::config;

/// Messages a second; above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

/// A key of the configuration with its value, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Text before the first equals sign.
    pub key: String,
    /// Text after it.
    pub value: String,
}

/// Reads a number of seconds, or a time as [`wait`] does.
///
/// # Errors
/// Returns the form of a time.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        Err(_) => wait(text),
    }
}

/// Reads a time: `2s`, `500 ms`, `1m 30s`. A number without a unit is refused, as in the configuration.
///
/// # Errors
/// Returns the form of a time.
pub fn wait(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(0.0) => return Ok(Duration::ZERO),
        Ok(_) => return Err(format!("a time needs a unit: {text}s or {text}ms")),
        Err(_) => {}
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; a time looks like 2s or 500ms"))
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

/// Reads a size in bytes, as in the configuration: `10 mb` is 10,485,760 bytes.
///
/// # Errors
/// Returns the form of a size.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = config::parse_size(text).map_err(|error| format!("{error}; a size looks like 500 kb or 2 gb"))?;
    match u64::try_from(bytes) {
        Ok(bytes @ 1..) => Ok(bytes),
        _ => Err("a size is above 0".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_refused() {
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("500ms"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err() && seconds("nan").is_err());
        assert_eq!(wait("2"), Err("a time needs a unit: 2s or 2ms".to_owned()));
        assert_eq!(wait("0"), Ok(Duration::ZERO));
        assert_eq!(wait("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(wait("-1").is_err() && wait("soon").is_err() && wait("nan").is_err() && wait("").is_err());
        assert_eq!(rate("20000/s"), Ok(Rate(20_000.0)));
        assert_eq!(rate("0.5"), Ok(Rate(0.5)));
        assert!(rate("0").is_err() && rate("-3/s").is_err() && rate("inf").is_err() && rate("fast").is_err());
        assert_eq!((size("10 mb"), size("512")), (Ok(10 << 20), Ok(512)));
        assert!(size("0").is_err() && size("10 mbit").is_err() && size("-1 mb").is_err());
        assert_eq!(percent("5%"), Ok(0.05));
        assert_eq!(percent("0"), Ok(0.0));
        assert!(percent("100%").is_err() && percent("-1").is_err() && percent("x").is_err());
    }

    #[test]
    fn settings_are_split_at_the_first_equals_sign() {
        assert_eq!(setting("a = b=c"), Ok(Setting { key: "a".into(), value: "b=c".into() }));
        assert!(setting("=b").is_err() && setting("a").is_err());
    }
}
