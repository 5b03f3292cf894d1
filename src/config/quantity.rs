//! Formats of sizes, rates, times and numbers.

use super::host_defaults::HostDefaults;
use super::value_error::ValueError;
use super::value_format::ValueFormat;
use crate::proto::pace::Pace;
use std::fmt;
use std::time::Duration;

/// A size in bytes; `mb` is 1,048,576 bytes.
pub(super) struct SizeFormat {
    pub min: usize,
    pub max: usize,
}

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("byte", 1),
    ("bytes", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("megabytes", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
];

/// Reads `4096`, `10 mb`, `10mb`, `1.5 kb`; truncates a fraction of a byte.
///
/// # Errors
/// The text is not a number with a unit of size, or is too large.
pub fn parse_size(text: &str) -> Result<usize, ValueError> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim().to_ascii_lowercase());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let decimal = |part: &str| -> Result<u64, ValueError> {
        match part.parse() {
            Ok(value) => Ok(value),
            Err(_) if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() => Err(ValueError::Overflow),
            Err(_) => Err(ValueError::SizeNumber),
        }
    };
    let (whole, thousandths) = (decimal(whole)?, decimal(fraction)?);
    let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or(ValueError::SizeUnit(unit))?.1;
    let tenths = 10u128.checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX)).ok_or(ValueError::Overflow)?;
    let bytes = u128::from(whole) * u128::from(scale) + u128::from(thousandths) * u128::from(scale) / tenths;
    usize::try_from(bytes).map_err(|_| ValueError::Overflow)
}

/// Returns `10 mb`, `64 kb`, `1000 bytes`: the largest unit that divides the size.
pub(super) fn show_size(bytes: usize) -> String {
    let units = [("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)];
    match units.iter().find(|(_, scale)| bytes != 0 && bytes.is_multiple_of(*scale)) {
        Some((unit, scale)) => format!("{} {unit}", bytes / scale),
        None if bytes == 1 => "1 byte".into(),
        None => format!("{bytes} bytes"),
    }
}

impl ValueFormat for SizeFormat {
    type Value = usize;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<usize, ValueError> {
        in_range(parse_size(text)?, self.min, self.max, show_size, "")
    }

    fn show(&self, value: &usize) -> String {
        show_size(*value)
    }

    fn range(&self) -> String {
        format!("{} to {}", show_size(self.min), show_size(self.max))
    }
}

/// Publish rate: `auto`, `off`, or a size per second.
pub(super) struct PaceFormat {
    pub rate: SizeFormat,
}

impl ValueFormat for PaceFormat {
    type Value = Pace;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Pace, ValueError> {
        match text {
            "auto" => Ok(Pace::Auto),
            "off" => Ok(Pace::Off),
            _ => {
                let rate = text.strip_suffix("/s").unwrap_or(text).trim_end();
                let rate = self.rate.parse(rate, defaults).map_err(|error| match error {
                    ValueError::SizeNumber => ValueError::Pace,
                    error => error,
                })?;
                Ok(Pace::Rate(rate as u64))
            }
        }
    }

    fn show(&self, pace: &Pace) -> String {
        match pace {
            Pace::Auto => "auto".into(),
            Pace::Off => "off".into(),
            Pace::Rate(rate) => format!("{}/s", show_size(usize::try_from(*rate).unwrap_or(usize::MAX))),
        }
    }

    fn range(&self) -> String {
        format!("auto, off, or {} a second", self.rate.range())
    }
}

/// A span of time, with its unit.
pub(super) struct DurationFormat {
    pub min: Duration,
    pub max: Duration,
    /// Reason for `min`, if it is not obvious.
    pub reason: &'static str,
}

fn show_span(span: Duration) -> String {
    match (span.as_secs(), span.subsec_nanos()) {
        (0, 0) => "0 sec".into(),
        (86_400, 0) => "1 day".into(),
        (secs, 0) if secs.is_multiple_of(86_400) => format!("{} days", secs / 86_400),
        (secs, 0) => format!("{secs} sec"),
        (_, nanos) if nanos % 1_000_000 == 0 => format!("{} ms", span.as_millis()),
        _ => humantime::format_duration(span).to_string(),
    }
}

impl ValueFormat for DurationFormat {
    type Value = Duration;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Duration, ValueError> {
        if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit()) {
            return Err(ValueError::DurationUnit(text.to_owned()));
        }
        let span = humantime::parse_duration(text).map_err(|error| ValueError::Duration(error.to_string()))?;
        in_range(span, self.min, self.max, show_span, self.reason)
    }

    fn show(&self, value: &Duration) -> String {
        show_span(*value)
    }

    fn range(&self) -> String {
        format!("{} to {}", show_span(self.min), show_span(self.max))
    }
}

/// A whole number.
pub(super) struct NumberFormat<T> {
    pub min: T,
    pub max: T,
}

impl<T: Copy + PartialOrd + fmt::Display + TryFrom<u64>> ValueFormat for NumberFormat<T> {
    type Value = T;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<T, ValueError> {
        let digits: String = text.chars().filter(|c| !matches!(c, ',' | '_')).collect();
        if digits.is_empty() || digits.bytes().any(|b| !b.is_ascii_digit()) {
            return Err(ValueError::Number);
        }
        let above = || ValueError::AboveMax { max: self.max.to_string(), reason: "" };
        let number = digits.parse::<u64>().ok().and_then(|n| T::try_from(n).ok()).ok_or_else(above)?;
        in_range(number, self.min, self.max, |n| n.to_string(), "")
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        format!("{} to {}", self.min, self.max)
    }
}

/// Number of retained messages of a subject: 0, or at least two (seed 000, "Sizes and Probabilities").
pub(super) struct HistoryCountFormat {
    pub max: usize,
}

impl ValueFormat for HistoryCountFormat {
    type Value = usize;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<usize, ValueError> {
        match (NumberFormat { min: 0, max: self.max }).parse(text, defaults)? {
            1 => Err(ValueError::OneMessage),
            count => Ok(count),
        }
    }

    fn show(&self, value: &usize) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        format!("0, or 2 to {}", self.max)
    }
}

fn in_range<T: Copy + PartialOrd>(
    value: T,
    min: T,
    max: T,
    show: impl Fn(T) -> String,
    reason: &'static str,
) -> Result<T, ValueError> {
    if value < min {
        return Err(ValueError::BelowMin { min: show(min), reason });
    }
    if max < value {
        return Err(ValueError::AboveMax { max: show(max), reason: "" });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(host: &str) -> HostDefaults {
        HostDefaults { host: host.into(), runtime_dir: None, state_dir: None, uid: 7 }
    }

    #[test]
    fn sizes_are_binary_and_need_no_space() {
        let check =
            |text: &str, expected: Result<usize, ValueError>| assert_eq!(parse_size(text), expected, "{text:?}");
        check("10 mb", Ok(10_485_760));
        check("10mb", Ok(10_485_760));
        check("10 MiB", Ok(10_485_760));
        check("4 megabytes", Ok(4 << 20));
        check("1.5 kb", Ok(1536));
        check("0.001 kb", Ok(1));
        check("512", Ok(512));
        check("512 bytes", Ok(512));
        check("0", Ok(0));
        check("2 GB", Ok(2 << 30));
        check("", Err(ValueError::SizeNumber));
        check("mb", Err(ValueError::SizeNumber));
        check("-1 mb", Err(ValueError::SizeNumber));
        check("1. mb", Err(ValueError::SizeNumber));
        check("1.2.3 mb", Err(ValueError::SizeNumber));
        check("10 mbit", Err(ValueError::SizeUnit("mbit".into())));
        check("99999999999999999999", Err(ValueError::Overflow));
        check("18446744073709551615 gb", Err(ValueError::Overflow));
        check(&format!("0.{}1", "0".repeat(45)), Err(ValueError::Overflow));
    }

    #[test]
    fn shown_sizes_and_times_are_read_back() {
        for bytes in [0, 1, 1000, 1024, 1536, 65_507, 10 << 20, 3 << 30] {
            assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }
        let kind = DurationFormat { min: Duration::ZERO, max: Duration::MAX, reason: "" };
        for millis in [0u64, 1, 5, 250, 1000, 1500, 60_000, 86_400_000, 90_000_000] {
            let span = Duration::from_millis(millis);
            assert_eq!(kind.parse(&kind.show(&span), &defaults("")), Ok(span));
        }
        let span = Duration::from_nanos(1_234_567);
        assert_eq!(kind.parse(&kind.show(&span), &defaults("")), Ok(span));
    }
}
