//! Timestamps of events, in microseconds since 1970, and their text form (RFC 3339).

use crate::time::WallTime;
use std::fmt;
use std::str::FromStr;

const SECOND_MICROS: i64 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_468;
/// Days of the 400 years after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// A point in time in microseconds since 1970-01-01 UTC, without leap seconds. It lies in the years 0000 to 9999, which
/// have a text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The reason why a number or text is not a valid timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimestampError {
    /// The text does not have the form of RFC 3339.
    Form,
    /// The date or time does not exist, such as month 13, hour 24 or a leap second.
    Date,
    /// The time is before the year 0000 or after 9999.
    Range,
}

impl fmt::Display for TimestampError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimestampError::Form => {
                write!(f, "a time is written like 2026-11-22T15:04:05.123456Z or 2026-11-22T16:04:05+01:00")
            }
            TimestampError::Date => write!(f, "there is no such date or time of day (leap seconds are not known)"),
            TimestampError::Range => write!(f, "a time lies in the years 0000 to 9999"),
        }
    }
}

impl std::error::Error for TimestampError {}

impl Timestamp {
    /// The first microsecond of the year 0000.
    pub const MIN: Timestamp = Timestamp(-62_167_219_200_000_000);
    /// The last microsecond of the year 9999.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999_999);

    /// Returns the time this number of microseconds after 1970-01-01 UTC; a negative number is before it.
    ///
    /// # Errors
    /// [`TimestampError::Range`].
    pub fn from_micros(micros: i64) -> Result<Timestamp, TimestampError> {
        let is_in_range = Timestamp::MIN.0 <= micros && micros <= Timestamp::MAX.0;
        if is_in_range { Ok(Timestamp(micros)) } else { Err(TimestampError::Range) }
    }

    /// Returns the microseconds since 1970-01-01 UTC.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the timestamp one microsecond later, but at most [`Timestamp::MAX`].
    pub fn following(self) -> Timestamp {
        Timestamp(self.0 + 1).min(Timestamp::MAX)
    }
}

impl From<WallTime> for Timestamp {
    /// Truncates to the microsecond.
    fn from(wall: WallTime) -> Timestamp {
        let micros = i64::try_from(wall.as_nanos() / 1000).expect("2^64 ns are less than 2^63 µs");
        Timestamp::from_micros(micros).expect("2^64 ns end in the year 2554")
    }
}

impl fmt::Display for Timestamp {
    /// Writes the time in UTC, to the microsecond: `2026-11-22T15:04:05.123456Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(SECOND_MICROS), self.0.rem_euclid(SECOND_MICROS));
        let (year, month, day) = date(seconds.div_euclid(DAY_SECONDS));
        let second = seconds.rem_euclid(DAY_SECONDS);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Parses RFC 3339, with a space, `T` or `t` between date and time and up to nine fractional digits. Digits beyond
    /// the microsecond are truncated.
    fn from_str(text: &str) -> Result<Timestamp, TimestampError> {
        let (point, zone) = text.as_bytes().split_first_chunk::<19>().ok_or(TimestampError::Form)?;
        let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T' | b't' | b' ', h0, h1, b':', i0, i1, b':', s0, s1] =
            *point
        else {
            return Err(TimestampError::Form);
        };
        let (year, month, day) = (parse_digits(&[y0, y1, y2, y3])?, parse_digits(&[m0, m1])?, parse_digits(&[d0, d1])?);
        let (hour, minute, second) = (parse_digits(&[h0, h1])?, parse_digits(&[i0, i1])?, parse_digits(&[s0, s1])?);
        let (micros, zone) = split_fraction(zone)?;
        let east_minutes = match *zone {
            [b'Z' | b'z'] => 0,
            [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
                let (hours, minutes) = (parse_digits(&[h0, h1])?, parse_digits(&[m0, m1])?);
                if 23 < hours || 59 < minutes {
                    return Err(TimestampError::Date);
                }
                (60 * hours + minutes) * if sign == b'+' { 1 } else { -1 }
            }
            _ => return Err(TimestampError::Form),
        };
        let days = days(year, month, day);
        // Only existing dates survive the conversion to days and back.
        if !(1..=12).contains(&month) || date(days) != (year, month, day) || 23 < hour || 59 < minute || 59 < second {
            return Err(TimestampError::Date);
        }
        let seconds = days * DAY_SECONDS + 3600 * hour + 60 * (minute - east_minutes) + second;
        Timestamp::from_micros(seconds * SECOND_MICROS + micros)
    }
}

/// Parses a number from its decimal digits.
fn parse_digits(digits: &[u8]) -> Result<i64, TimestampError> {
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Ok(10 * number + i64::from(digit - b'0')),
        _ => Err(TimestampError::Form),
    })
}

/// Parses an optional fraction of a second. Returns its microseconds and the rest of the text.
fn split_fraction(text: &[u8]) -> Result<(i64, &[u8]), TimestampError> {
    let Some(text) = text.strip_prefix(b".") else { return Ok((0, text)) };
    let len = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if len < 1 || 9 < len {
        return Err(TimestampError::Form);
    }
    let mut digits = [b'0'; 9];
    digits[..len].copy_from_slice(&text[..len]);
    Ok((parse_digits(&digits[..6])?, &text[len..]))
}

/// Returns the days since 1970 of a date in the Gregorian calendar. Years begin with March here, so that the leap day
/// is the last day of a year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if 2 < month { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1 - DAYS_BEFORE_1970
}

/// Returns the date this number of days after 1970-01-01: year, month, day.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    // Subtracts the leap days of every 4, 100 and 400 years before.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn known_times_are_formatted() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (1_700_000_000_000_005, "2023-11-14T22:13:20.000005Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (-2_203_891_200_000_000, "1900-03-01T00:00:00.000000Z"),
            (Timestamp::MIN.0, "0000-01-01T00:00:00.000000Z"),
            (Timestamp::MAX.0, "9999-12-31T23:59:59.999999Z"),
        ] {
            let time = Timestamp::from_micros(micros).unwrap();
            assert_eq!((time.to_string().as_str(), text.parse()), (text, Ok(time)));
        }
        assert_eq!(Timestamp::from_micros(Timestamp::MIN.0 - 1), Err(TimestampError::Range));
        assert_eq!(Timestamp::from_micros(i64::MAX), Err(TimestampError::Range));
        assert_eq!(Timestamp::from(WallTime::from_nanos(5_999)).as_micros(), 5);
        assert_eq!(Timestamp::from(WallTime::from_nanos(u64::MAX)).to_string(), "2554-07-21T23:34:33.709551Z");
    }

    /// Checks that every existing day follows the one before, and has the date that counting gives.
    #[test]
    fn every_day_has_its_date() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let mut at = Timestamp::MIN.0 / SECOND_MICROS / DAY_SECONDS;
        for year in 0..=9999 {
            for month in 1..=12 {
                let len = match month {
                    2 => 28 + i64::from(is_leap(year)),
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                for day in 1..=len {
                    assert_eq!((date(at), days(year, month, day)), ((year, month, day), at));
                    at += 1;
                }
            }
        }
    }

    #[test]
    fn valid_forms_are_parsed_and_others_refused() {
        let same = [
            "2026-11-22T15:04:05Z",
            "2026-11-22t15:04:05.0z",
            "2026-11-22 16:34:05.000000999+01:30",
            "2026-11-22T14:04:05-01:00",
        ];
        let time: Timestamp = same[0].parse().unwrap();
        for text in same {
            assert_eq!(text.parse(), Ok(time), "{text}");
        }
        for (text, error) in [
            ("", TimestampError::Form),
            ("2026-11-22", TimestampError::Form),
            ("2026-11-22T15:04:05", TimestampError::Form),
            ("2026-11-22T15:04:05.Z", TimestampError::Form),
            ("2026-11-22T15:04:05.0123456789Z", TimestampError::Form),
            ("2026-11-22T15:04:05Zx", TimestampError::Form),
            ("2026-11-22T15:04:05+0100", TimestampError::Form),
            ("+026-11-22T15:04:05Z", TimestampError::Form),
            ("2026-11-22T15:04:0ßZ", TimestampError::Form),
            ("2026-13-01T00:00:00Z", TimestampError::Date),
            ("2026-00-01T00:00:00Z", TimestampError::Date),
            ("2026-02-29T00:00:00Z", TimestampError::Date),
            ("2026-02-00T00:00:00Z", TimestampError::Date),
            ("2026-01-01T24:00:00Z", TimestampError::Date),
            ("2016-12-31T23:59:60Z", TimestampError::Date),
            ("2026-01-01T00:00:00+24:00", TimestampError::Date),
            ("0000-01-01T00:00:00+00:01", TimestampError::Range),
            ("9999-12-31T23:59:59-00:01", TimestampError::Range),
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(error), "{text}");
        }
    }

    #[test]
    fn formatted_time_is_parsed_unchanged() {
        let mut rng = Rng::new(1);
        let span = Timestamp::MAX.0.abs_diff(Timestamp::MIN.0);
        let mut draw =
            || Timestamp::from_micros(Timestamp::MIN.0.checked_add_unsigned(rng.between(0, span)).unwrap()).unwrap();
        for _ in 0..20_000 {
            let (one, other) = (draw(), draw());
            assert_eq!(one.to_string().parse(), Ok(one));
            assert_eq!(one.to_string().cmp(&other.to_string()), one.cmp(&other));
        }
    }
}
