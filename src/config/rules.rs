//! The value of `history-rules`: other bounds of the history for some subjects.
//!
//! A rule is a pattern and its differing bounds, `plant.> count 10 time 5 min`. A lone `;` separates two rules in one
//! text; in the file they may be a list.

use super::host_defaults::HostDefaults;
use super::value_error::{RULE_PARTS, RULES_MAX, RuleError, ValueError};
use super::value_format::{ValueFormat, split_list};
use crate::subject::Pattern;
use std::time::Duration;

/// Other bounds of the history for the subjects that match a pattern; the first matching rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryOverride {
    /// Pattern of the subjects.
    pub pattern: Pattern,
    /// Maximum number of messages of each subject, 0 for none; `history-count` if absent.
    pub count: Option<usize>,
    /// Maximum bytes of the messages of each subject; `history-subject-size` if absent.
    pub size: Option<usize>,
    /// Retention time of a message; `history-time` if absent.
    pub time: Option<Duration>,
}

/// Format of `history-rules`. The three other formats read the bounds of a rule in place of their keys.
pub(super) struct HistoryRulesFormat<C, S, T> {
    pub count: C,
    pub size: S,
    pub time: T,
}

impl<C, S, T> ValueFormat for HistoryRulesFormat<C, S, T>
where
    C: ValueFormat<Value = usize>,
    S: ValueFormat<Value = usize>,
    T: ValueFormat<Value = Duration>,
{
    type Value = Vec<HistoryOverride>;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Vec<HistoryOverride>, ValueError> {
        if text == "none" {
            return Ok(Vec::new());
        }
        let rules = split_list(text, &[])?.into_iter().map(|words| self.rule(&words, defaults));
        let rules = rules.collect::<Result<Vec<_>, RuleError>>().map_err(ValueError::Rule)?;
        if RULES_MAX < rules.len() {
            return Err(ValueError::Rule(RuleError::TooMany));
        }
        Ok(rules)
    }

    fn show(&self, rules: &Vec<HistoryOverride>) -> String {
        if rules.is_empty() {
            return "none".into();
        }
        let rule = |rule: &HistoryOverride| {
            let count = rule.count.map(|count| format!(" count {}", self.count.show(&count)));
            let size = rule.size.map(|size| format!(" size {}", self.size.show(&size)));
            let time = rule.time.map(|time| format!(" time {}", self.time.show(&time)));
            let parts: String = [count, size, time].into_iter().flatten().collect();
            format!("{}{parts}", rule.pattern.as_str())
        };
        rules.iter().map(rule).collect::<Vec<String>>().join(" ; ")
    }

    fn range(&self) -> String {
        format!("none, or up to {RULES_MAX} rules: a pattern, then count, size and time as far as they differ")
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Reads the bounds after the pattern of a rule; `put` accepts one bound and its value, and returns whether it was set
/// already.
pub(super) fn parts(
    words: &[&str],
    mut put: impl FnMut(&'static str, &str) -> Result<bool, ValueError>,
) -> Result<(), RuleError> {
    let begins = |word: &&str| RULE_PARTS.contains(word);
    match words.first() {
        None => return Err(RuleError::Nothing),
        Some(word) if !begins(word) => return Err(RuleError::UnknownPart((*word).to_owned())),
        Some(_) => {}
    }
    for chunk in words.chunk_by(|_, next| !begins(next)) {
        let part = RULE_PARTS.into_iter().find(|part| *part == chunk[0]).expect("a chunk begins with such a word");
        let text = chunk[1..].join(" ");
        let refused = |error| RuleError::Part(part, Box::new(error));
        if text.is_empty() {
            return Err(refused(ValueError::Empty));
        }
        if put(part, &text).map_err(refused)? {
            return Err(RuleError::Twice(part));
        }
    }
    Ok(())
}

impl<C, S, T> HistoryRulesFormat<C, S, T>
where
    C: ValueFormat<Value = usize>,
    S: ValueFormat<Value = usize>,
    T: ValueFormat<Value = Duration>,
{
    fn rule(&self, words: &[&str], defaults: &HostDefaults) -> Result<HistoryOverride, RuleError> {
        let (pattern, words) = words.split_first().ok_or(RuleError::Empty)?;
        let pattern: Pattern = pattern.parse().map_err(|error| RuleError::Pattern(format!("{error}")))?;
        let mut rule = HistoryOverride { pattern, count: None, size: None, time: None };
        parts(words, |part, text| {
            Ok(match part {
                "count" => rule.count.replace(self.count.parse(text, defaults)?).is_some(),
                "size" => rule.size.replace(self.size.parse(text, defaults)?).is_some(),
                _ => rule.time.replace(self.time.parse(text, defaults)?).is_some(),
            })
        })?;
        Ok(rule)
    }
}
