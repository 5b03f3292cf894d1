//! Subjects and patterns in the path of a URL, and the parameters of its query.
//!
//! A path is percent-encoded (RFC 3986): `+` is a plus sign in it. In a query it is a space, as forms write it.

use crate::listener::percent_encoding;
use crate::subject::{Pattern, Subject, SubjectError};
use std::fmt;
use std::time::Duration;

/// Reason why a part of a URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlFault {
    /// `%` is not followed by two hexadecimal digits.
    Escape,
    /// The decoded bytes are not UTF-8.
    Encoding,
    /// The path has an unescaped slash where a subject or pattern is expected.
    Slash,
    /// The decoded text is no subject or pattern.
    Subject(SubjectError),
    /// A parameter that the resource does not have.
    UnknownParameter(String),
    /// A parameter that occurs twice.
    Twice(String),
    /// A time without a unit, or outside 1 ms to [`TIMEOUT_MAX`].
    Timeout,
}

/// Maximum time for a reply.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(60);

impl fmt::Display for UrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UrlFault::Escape => write!(f, "'%' in a URL is followed by two hexadecimal digits: write %25 for '%'"),
            UrlFault::Encoding => write!(f, "the URL is not UTF-8"),
            UrlFault::Slash => {
                write!(
                    f,
                    "dots separate the tokens of a subject, as in plant.line1.speed: write %2F for '/' in a token"
                )
            }
            UrlFault::Subject(error) => error.fmt(f),
            UrlFault::UnknownParameter(name) => write!(f, "there is no parameter {name:?} here"),
            UrlFault::Twice(name) => write!(f, "the parameter {name:?} occurs twice"),
            UrlFault::Timeout => write!(f, "a timeout is 1ms to 60s, such as timeout=500ms or timeout=2s"),
        }
    }
}

impl std::error::Error for UrlFault {}

/// Decodes percent-encoded text. `is_form` says that `+` is a space.
fn decode(text: &str, is_form: bool) -> Result<String, UrlFault> {
    let bytes = percent_encoding::decode(text, is_form).ok_or(UrlFault::Escape)?;
    String::from_utf8(bytes).map_err(|_| UrlFault::Encoding)
}

fn decode_path(path: &str) -> Result<String, UrlFault> {
    if path.contains('/') { Err(UrlFault::Slash) } else { decode(path, false) }
}

/// Returns the subject that the rest of a path names.
///
/// # Errors
/// The rest cannot be decoded, or is no subject.
pub fn parse_subject(path: &str) -> Result<Subject, UrlFault> {
    decode_path(path)?.parse().map_err(UrlFault::Subject)
}

/// Returns the pattern that the rest of a path names.
///
/// # Errors
/// The rest cannot be decoded, or is no pattern.
pub fn parse_pattern(path: &str) -> Result<Pattern, UrlFault> {
    decode_path(path)?.parse().map_err(UrlFault::Subject)
}

/// Returns the values of the parameters with these names in a query, each `None` if it is absent.
///
/// # Errors
/// The query cannot be decoded, has another parameter, or has one twice.
pub fn parse_parameters<const COUNT: usize>(
    query: &str,
    names: [&str; COUNT],
) -> Result<[Option<String>; COUNT], UrlFault> {
    let mut values = [const { None }; COUNT];
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let name = decode(name, true)?;
        let Some(index) = names.iter().position(|known| *known == name) else {
            return Err(UrlFault::UnknownParameter(name));
        };
        if values[index].replace(decode(value, true)?).is_some() {
            return Err(UrlFault::Twice(name));
        }
    }
    Ok(values)
}

/// Returns the time of a parameter: a whole number with the unit `ms` or `s`.
///
/// # Errors
/// The text is no such time, or lies outside 1 ms to [`TIMEOUT_MAX`].
pub fn parse_timeout(text: &str) -> Result<Duration, UrlFault> {
    let (number, unit) = text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len());
    let number: u32 = number.parse().map_err(|_| UrlFault::Timeout)?;
    let time = match unit {
        "ms" => Duration::from_millis(number.into()),
        "s" => Duration::from_secs(number.into()),
        _ => return Err(UrlFault::Timeout),
    };
    if time.is_zero() || TIMEOUT_MAX < time { Err(UrlFault::Timeout) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_a_unit_and_bounds() {
        assert_eq!(parse_timeout("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_timeout("60s"), Ok(TIMEOUT_MAX));
        for text in ["", "5", "s", "0s", "61s", "-1s", "1.5s", "1 s", "99999999999ms", "5m", "٣s"] {
            assert_eq!(parse_timeout(text), Err(UrlFault::Timeout), "{text}");
        }
    }

    #[test]
    fn escaped_subjects_are_decoded() {
        for (path, expected) in [
            ("plant.line1.speed", Ok("plant.line1.speed")),
            ("plant.a%2Fb", Ok("plant.a/b")),
            ("a+b", Ok("a+b")),
            ("%c3%a4.%E2%82%AC", Ok("ä.€")),
            ("plant/speed", Err(UrlFault::Slash)),
            ("a%", Err(UrlFault::Escape)),
            ("a%2", Err(UrlFault::Escape)),
            ("a%zz", Err(UrlFault::Escape)),
            ("a%+1", Err(UrlFault::Escape)),
            ("a%ff", Err(UrlFault::Encoding)),
            ("a%20b", Err(UrlFault::Subject(SubjectError::Character(1)))),
            ("a%00", Err(UrlFault::Subject(SubjectError::Character(1)))),
            ("", Err(UrlFault::Subject(SubjectError::Empty))),
            ("a..b", Err(UrlFault::Subject(SubjectError::EmptyToken(2)))),
            ("a.%2A", Err(UrlFault::Subject(SubjectError::Wildcard))),
        ] {
            let parsed = parse_subject(path);
            assert_eq!(parsed.as_ref().map(Subject::as_str), expected.as_ref().copied(), "{path}");
        }
    }

    #[test]
    fn escaped_patterns_are_decoded() {
        for (path, expected) in [
            ("plant.%3E", Ok("plant.>")),
            ("*.speed", Ok("*.speed")),
            ("%2a", Ok("*")),
            ("%3E.a", Err(UrlFault::Subject(SubjectError::InnerTail))),
        ] {
            let parsed = parse_pattern(path);
            assert_eq!(parsed.as_ref().map(Pattern::as_str), expected.as_ref().copied(), "{path}");
        }
    }

    #[test]
    fn parameters_are_known_and_single() {
        let parse = |query| parse_parameters(query, ["queue", "format"]);
        assert_eq!(parse(""), Ok([None, None]));
        assert_eq!(parse("format=json&queue=a%26b+c"), Ok([Some("a&b c".into()), Some("json".into())]));
        assert_eq!(parse("format"), Ok([None, Some(String::new())]));
        assert_eq!(parse("format=a&format=b"), Err(UrlFault::Twice("format".into())));
        assert_eq!(parse("fromat=a"), Err(UrlFault::UnknownParameter("fromat".into())));
        assert_eq!(parse("queue=%"), Err(UrlFault::Escape));
    }
}
