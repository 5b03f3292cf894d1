//! The part of a history in arguments.

use crate::bus::Selection;

/// Reads the part of a history: `all`, a number of messages of each subject, or a time back from now.
///
/// # Errors
/// Returns the form of such a part.
pub fn selection(text: &str) -> Result<Selection, String> {
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
        _ => {
            Err("a history is 'all', a number of messages of each subject, or a time such as 90s or '10 min'"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn history_part_is_a_number_time_or_all() {
        assert_eq!(selection("all"), Ok(Selection::default()));
        assert_eq!(selection("7"), Ok(Selection { newest: Some(7), age: None }));
        assert_eq!(selection("90s"), Ok(Selection { newest: None, age: Some(Duration::from_secs(90)) }));
        assert_eq!(selection("10 min"), Ok(Selection { newest: None, age: Some(Duration::from_secs(600)) }));
        assert!(
            selection("0").unwrap_err().contains("from 1") && selection("4294967296").unwrap_err().contains("from 1")
        );
        assert!(
            selection("0s").is_err() && selection("").is_err() && selection("ALL").is_err() && selection("-1").is_err()
        );
    }
}
