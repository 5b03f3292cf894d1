//! Selection of the types in a journal that match a query.

use super::row::event_type;
use crate::clock::random_u64;
use crate::event::pattern_index::PatternIndex;
use crate::storage::journal::error::StoreError;
use crate::subject::event_type::{EventType, TypePattern};
use rusqlite::Connection;

/// Number of pattern-matching steps that cost about as much as reading a row.
const ROW_STEPS: usize = 128;

/// The types that a query selects.
#[derive(Debug)]
pub(super) struct TypeFilter {
    /// Index of the query's patterns, without duplicates; `None` for all types.
    pattern_index: Option<PatternIndex<()>>,
    /// Ranges of the patterns in the order of subjects, ascending and disjoint.
    ranges: Vec<SubjectRange>,
    /// Total number of subtypes of the patterns with a `?`: the maximum number of steps to match a type.
    steps: usize,
}

/// The subjects with a prefix, or the one subject that equals it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SubjectRange {
    prefix: String,
    is_exact: bool,
}

impl SubjectRange {
    fn contains(&self, subject: &str) -> bool {
        if self.is_exact { subject == self.prefix } else { subject.starts_with(&self.prefix) }
    }
}

/// Progress of a scan over the types: the range, and the last type examined in it.
#[derive(Debug, Default)]
pub(super) struct TypeCursor {
    range: usize,
    last: Option<EventType>,
}

impl TypeFilter {
    /// Creates a filter for the types that match one of the patterns; `None` selects all types.
    pub(super) fn new(patterns: Option<&[TypePattern]>) -> TypeFilter {
        let Some(patterns) = patterns else {
            return TypeFilter {
                pattern_index: None,
                ranges: vec![SubjectRange { prefix: String::new(), is_exact: false }],
                steps: 0,
            };
        };
        let mut pattern_index = PatternIndex::new(random_u64());
        let (mut ranges, mut steps) = (Vec::new(), 0);
        for pattern in patterns {
            pattern_index.insert(pattern, ());
            let tokens = pattern.from_zero().as_str().split('.');
            steps += if tokens.clone().any(|token| token == "*") { tokens.count() } else { 0 };
            let prefix = pattern.literal_prefix().to_owned();
            let is_exact = prefix == pattern.from_zero().as_str();
            ranges.push(SubjectRange { prefix, is_exact });
        }
        ranges.sort_unstable();
        ranges.dedup_by(|range, before| before.contains(&range.prefix));
        TypeFilter { pattern_index: Some(pattern_index), ranges, steps }
    }

    /// Returns whether all types are selected.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.pattern_index.is_none()
    }

    /// Returns the maximum cost of matching a type, in rows.
    pub(super) fn match_rows(&self) -> usize {
        1 + self.steps / ROW_STEPS
    }

    /// Returns whether the type is selected.
    pub(super) fn is_match(&self, event_type: &EventType) -> bool {
        self.pattern_index.as_ref().is_none_or(|pattern_index| {
            let mut found = Vec::new();
            pattern_index.matches(event_type, &mut found);
            !found.is_empty()
        })
    }

    /// Calls `each` with the numbers of the selected types in the journal, in the order of their subjects. The scan
    /// stops when `each` returns false or `rows_left` is used up; `each` subtracts the rows that it examines. Returns
    /// false if the scan has to continue.
    pub(super) fn scan(
        &self,
        connection: &Connection,
        cursor: &mut TypeCursor,
        rows_left: &mut usize,
        mut each: impl FnMut(i64, &mut usize) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let mut find =
            connection.prepare_cached("SELECT number, subject FROM type WHERE ? <= subject ORDER BY subject")?;
        while let Some(range) = self.ranges.get(cursor.range) {
            let mut rows = find.query([cursor.last.as_ref().map_or(&*range.prefix, |last| last.subject().as_str())])?;
            loop {
                if *rows_left == 0 {
                    return Ok(false);
                }
                *rows_left -= 1;
                let Some(row) = rows.next()? else { break };
                let event_type = event_type(row.get_ref(1)?)?;
                if !range.contains(event_type.subject().as_str()) {
                    break;
                }
                // The query returns the type at which the previous slice stopped once more.
                let is_new = cursor.last.as_ref() != Some(&event_type);
                if is_new && self.is_match(&event_type) && !each(row.get(0)?, rows_left)? {
                    return Ok(true);
                }
                cursor.last = Some(event_type);
            }
            *cursor = TypeCursor { range: cursor.range + 1, last: None };
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_each_subject_once() {
        let check = |patterns: &[&str], expected: &[(&str, bool)]| {
            let patterns: Vec<TypePattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
            let ranges = TypeFilter::new(Some(&patterns)).ranges;
            let ranges: Vec<(&str, bool)> = ranges.iter().map(|range| (&*range.prefix, range.is_exact)).collect();
            assert_eq!(ranges, expected, "{patterns:?}");
        };
        check(&[], &[]);
        check(&["b", "a/x", "b", "a"], &[("a", true), ("a.x", true), ("b", true)]);
        check(&["a/b/c", "a/b/*", "a/b/?", "a/b", "c/?/d"], &[("a.b", false), ("c", false)]);
        check(&["a", "*", "?/b"], &[("", false)]);
    }
}
