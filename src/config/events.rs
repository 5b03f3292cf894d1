//! The values of the keys about events: the server id, the journal's location, and its retention.

use super::host_defaults::HostDefaults;
use super::quantity::{DurationFormat, NumberFormat, SizeFormat};
use super::rules::parts;
use super::value_error::{RULES_MAX, RuleError, ValueError};
use super::value_format::{ValueFormat, split_list};
use crate::event::model::ServerId;
use crate::event::store::retention::{Retention, Rule};
use crate::subject::event_type::TypePattern;
use std::path::PathBuf;
use std::time::Duration;

/// Server id; `auto` is an id that is drawn once and stored in the journal.
pub(super) struct ServerIdFormat;

const SERVER: NumberFormat<u32> = NumberFormat { min: 0, max: u32::MAX };

impl ValueFormat for ServerIdFormat {
    type Value = Option<ServerId>;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Option<ServerId>, ValueError> {
        if text == "auto" { Ok(None) } else { SERVER.parse(text, defaults).map(|number| Some(ServerId(number))) }
    }

    fn show(&self, value: &Option<ServerId>) -> String {
        value.map_or("auto".into(), |server| server.to_string())
    }

    fn range(&self) -> String {
        format!("{}, or auto: drawn once and stored in the journal", SERVER.range())
    }
}

/// A directory; `auto` depends on the user.
pub(super) struct DataDirFormat;

impl ValueFormat for DataDirFormat {
    type Value = PathBuf;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<PathBuf, ValueError> {
        match text {
            "auto" => Ok(defaults.data_dir()),
            _ if text.contains('\0') => Err(ValueError::PathNul),
            _ => Ok(PathBuf::from(text)),
        }
    }

    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }

    fn range(&self) -> String {
        "a path; auto is seqcast in $XDG_STATE_HOME, else in ~/.local/state".into()
    }
}

/// Patterns of event types, or `none`.
pub(super) struct EventTypesFormat;

impl ValueFormat for EventTypesFormat {
    type Value = Vec<TypePattern>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Vec<TypePattern>, ValueError> {
        if text == "none" {
            return Ok(Vec::new());
        }
        let patterns = split_list(text, &[])?.into_iter().map(|words| match words[..] {
            [pattern] => pattern.parse().map_err(ValueError::EventType),
            _ => Err(ValueError::EventTypes),
        });
        let patterns = patterns.collect::<Result<Vec<_>, ValueError>>()?;
        if RULES_MAX < patterns.len() { Err(ValueError::EventTypes) } else { Ok(patterns) }
    }

    fn show(&self, value: &Vec<TypePattern>) -> String {
        if value.is_empty() {
            return "none".into();
        }
        value.iter().map(TypePattern::to_string).collect::<Vec<String>>().join(" ; ")
    }

    fn range(&self) -> String {
        format!("none, or up to {RULES_MAX} patterns of event types with ; between two")
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Retention of events: rules such as `plant/* count 1000 size 10 mb time 30 days`.
pub(super) struct RetentionFormat;

const COUNT: NumberFormat<u64> = NumberFormat { min: 1, max: 1 << 40 };
const SIZE: SizeFormat = SizeFormat { min: 1, max: 1 << 50 };
const TIME: DurationFormat =
    DurationFormat { min: Duration::from_secs(1), max: Duration::from_secs(1000 * 365 * 86_400), reason: "" };

impl ValueFormat for RetentionFormat {
    type Value = Retention;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Retention, ValueError> {
        if text == "all" {
            return Ok(Retention::default());
        }
        let rules = split_list(text, &[])?.into_iter().map(|words| rule(&words, defaults));
        let rules = rules.collect::<Result<Vec<_>, RuleError>>().map_err(ValueError::Retention)?;
        if RULES_MAX < rules.len() {
            return Err(ValueError::Retention(RuleError::TooMany));
        }
        Ok(Retention { rules })
    }

    fn show(&self, value: &Retention) -> String {
        if value.rules.is_empty() {
            return "all".into();
        }
        let rule = |rule: &Rule| {
            let count = rule.count.map(|count| format!(" count {}", COUNT.show(&count)));
            let size =
                rule.bytes.map(|bytes| format!(" size {}", SIZE.show(&usize::try_from(bytes).unwrap_or(usize::MAX))));
            let time = rule.age.map(|age| format!(" time {}", TIME.show(&age)));
            let parts: String = [count, size, time].into_iter().flatten().collect();
            format!("{}{parts}", rule.pattern)
        };
        value.rules.iter().map(rule).collect::<Vec<String>>().join(" ; ")
    }

    fn range(&self) -> String {
        format!(
            "all, or up to {RULES_MAX} rules: a pattern of event types, then count, size and time as far as they are limited"
        )
    }

    fn is_list(&self) -> bool {
        true
    }
}

fn rule(words: &[&str], defaults: &HostDefaults) -> Result<Rule, RuleError> {
    let (pattern, words) = words.split_first().ok_or(RuleError::Empty)?;
    let pattern: TypePattern = pattern.parse().map_err(|error| RuleError::Pattern(format!("{error}")))?;
    let mut rule = Rule { pattern, age: None, count: None, bytes: None };
    parts(words, |part, text| {
        Ok(match part {
            "count" => rule.count.replace(COUNT.parse(text, defaults)?).is_some(),
            "size" => rule.bytes.replace(SIZE.parse(text, defaults)? as u64).is_some(),
            _ => rule.age.replace(TIME.parse(text, defaults)?).is_some(),
        })
    })?;
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(uid: u32, state_dir: Option<&str>) -> HostDefaults {
        HostDefaults { host: "h".into(), runtime_dir: None, state_dir: state_dir.map(PathBuf::from), uid }
    }

    #[test]
    fn automatic_data_directory_belongs_to_the_user() {
        let auto = |state_dir| DataDirFormat.parse("auto", &defaults(7, state_dir)).unwrap();
        assert_eq!(auto(Some("/u/.local/state")), PathBuf::from("/u/.local/state/seqcast"));
        assert_eq!(auto(None), PathBuf::from("/tmp/seqcast-7/data"));
    }

    #[test]
    fn shown_server_ids_are_read_back() {
        let defaults = defaults(1, None);
        for text in ["auto", "0", "4294967295"] {
            assert_eq!(ServerIdFormat.show(&ServerIdFormat.parse(text, &defaults).unwrap()), text);
        }
        assert!(ServerIdFormat.parse("4294967296", &defaults).is_err());
    }

    #[test]
    fn event_type_lists_are_read_back_or_refused() {
        let defaults = defaults(1, None);
        for text in ["none", "*", "plant/?/alarm ; a/* ; /x"] {
            assert_eq!(EventTypesFormat.show(&EventTypesFormat.parse(text, &defaults).unwrap()), text);
        }
        let many = vec!["a"; RULES_MAX + 1].join(" ; ");
        for (text, part) in
            [("a/*/b", "'*'"), ("a b", "256 patterns"), ("a ;", "256 patterns"), (&many, "256 patterns")]
        {
            let refused = EventTypesFormat.parse(text, &defaults).unwrap_err();
            assert!(refused.to_string().contains(part), "{text}: {refused}");
            assert!(refused.suggestion("").is_some(), "{text}");
        }
    }

    #[test]
    fn retention_rules_are_read_back_or_refused() {
        let defaults = defaults(1, None);
        for text in ["all", "plant/* count 1000", "plant/?/alarm count 1 size 10 mb time 30 days ; * time 5 sec"] {
            assert_eq!(RetentionFormat.show(&RetentionFormat.parse(text, &defaults).unwrap()), text);
        }
        for (text, part) in [
            ("plant/*", "no limit"),
            ("a/*/b count 1", "'*'"),
            ("a count 0", "less than 1"),
            ("a age 1 day", "\"age\""),
            ("a count 1 count 2", "repeated"),
            ("a count 1 ;", "missing"),
        ] {
            let refused = RetentionFormat.parse(text, &defaults).unwrap_err();
            assert!(refused.to_string().contains(part), "{text}: {refused}");
            assert!(refused.suggestion("").is_some(), "{text}");
        }
    }
}
