//! Sets of patterns, and whether a whole pattern lies within a set.

use super::{Pattern, SUBJECT_TOKENS_MAX, Subject};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A set of patterns, which matches a subject if one of them does. Cloning copies a reference only.
///
/// ```
/// use seqcast::subject::{Pattern, pattern_set::PatternSet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let set: PatternSet = ["plant.*", "plant.*.>"].into_iter().map(|text| text.parse::<Pattern>()).collect::<Result<_, _>>()?;
/// assert!(set.contains(&"plant.>".parse()?));
/// assert!(!set.contains(&"*.7".parse()?));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatternSet(Arc<[Pattern]>);

impl FromIterator<Pattern> for PatternSet {
    fn from_iter<T: IntoIterator<Item = Pattern>>(patterns: T) -> PatternSet {
        PatternSet(patterns.into_iter().collect())
    }
}

impl PatternSet {
    /// Returns the patterns in the order in which they were given.
    pub fn patterns(&self) -> &[Pattern] {
        &self.0
    }

    /// Returns whether one of the patterns matches the subject.
    pub fn matches(&self, subject: &Subject) -> bool {
        self.matches_text(subject.as_bytes())
    }

    /// Returns whether the set matches every subject that the pattern matches.
    ///
    /// Several patterns together may contain one that none of them contains alone. The pattern is therefore replaced by
    /// one representative of each number of tokens, with `*` for every token that may be any: no literal token of the
    /// set equals it. A pattern of the set that matches the representative has wildcards there, so it matches all
    /// subjects of this number of tokens. Subjects that are too long to exist are required too; this only matters for
    /// patterns of about 200 bytes.
    pub fn contains(&self, pattern: &Pattern) -> bool {
        let mut representative = pattern.as_str().as_bytes().to_vec();
        if pattern.tokens().last() != Some(b">") {
            return self.matches_text(&representative);
        }
        let token_count = pattern.tokens().count();
        (token_count..=SUBJECT_TOKENS_MAX).all(|count| {
            if token_count < count {
                representative.push(b'.');
            } else {
                representative.pop();
            }
            representative.push(b'*');
            self.matches_text(&representative)
        })
    }

    /// Returns whether the set matches some subject that the pattern matches.
    pub fn intersects(&self, pattern: &Pattern) -> bool {
        self.0.iter().any(|own| own.intersects(pattern))
    }

    /// Returns the set of the subjects that both sets match.
    pub fn intersection(&self, other: &PatternSet) -> PatternSet {
        let common: BTreeSet<Pattern> =
            self.0.iter().flat_map(|own| other.0.iter().filter_map(|other| own.intersection(other))).collect();
        common.into_iter().collect()
    }

    fn matches_text(&self, subject: &[u8]) -> bool {
        self.0.iter().any(|pattern| pattern.matches_text(subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn set(patterns: &[&str]) -> PatternSet {
        patterns.iter().map(|text| text.parse::<Pattern>().unwrap()).collect()
    }

    #[test]
    fn known_patterns_are_contained_or_not() {
        for (patterns, pattern, expected) in [
            (&["a.b"][..], "a.b", true),
            (&["a.*"], "a.b", true),
            (&["a.b"], "a.*", false),
            (&["a.*"], "a.*", true),
            (&["a.*"], "a.>", false),
            (&["a.>"], "a.*.c", true),
            (&["a.>"], "a", false),
            (&["a.>"], ">", false),
            (&[">"], ">", true),
            (&["*"], ">", false),
            (&["*", "*.>"], ">", true),
            (&["a.*", "a.*.*.>"], "a.>", false),
            (&["a.*", "a.*.*", "a.*.*.>"], "a.>", true),
            (&["a.b", "a.c"], "a.*", false),
            (&["*.b"], "a.b", true),
            (&["*.b"], "a.*", false),
            (&["a>"], "a>", true),
            (&[], "a", false),
        ] {
            assert_eq!(set(patterns).contains(&pattern.parse().unwrap()), expected, "{patterns:?} {pattern}");
        }
        let deep = vec!["x"; SUBJECT_TOKENS_MAX - 1].join(".");
        assert!(set(&[&format!("{deep}.*")]).contains(&format!("{deep}.>").parse().unwrap()));
    }

    /// Returns a pattern of one to three tokens.
    fn draw(rng: &mut Rng) -> String {
        let mut tokens: Vec<&str> = (0..rng.between(1, 3)).map(|_| ["a", "b", "*"][rng.below(3) as usize]).collect();
        if rng.below(3) == 0 {
            tokens.pop();
            tokens.push(">");
        }
        tokens.join(".")
    }

    /// Compares with matching: every subject of up to four tokens, each of which a pattern can name (`a`, `b`) or not
    /// (`x`). A longer subject matches the same patterns of up to three tokens as one of four tokens does.
    #[test]
    fn relations_equal_matching_of_all_subjects() {
        let mut subjects: Vec<String> = ["a", "b", "x"].map(str::to_owned).to_vec();
        let mut longest = subjects.clone();
        for _ in 1..4 {
            longest = longest.iter().flat_map(|head| ["a", "b", "x"].map(|token| format!("{head}.{token}"))).collect();
            subjects.extend_from_slice(&longest);
        }
        let subjects: Vec<Subject> = subjects.iter().map(|text| text.parse().unwrap()).collect();
        let mut rng = Rng::new(7);
        let mut contained = 0;
        for _ in 0..20_000 {
            let drawn: Vec<String> = (0..rng.below(5)).map(|_| draw(&mut rng)).collect();
            let set = set(&drawn.iter().map(String::as_str).collect::<Vec<_>>());
            let pattern: Pattern = draw(&mut rng).parse().unwrap();
            let expected = subjects.iter().all(|subject| !pattern.matches(subject) || set.matches(subject));
            assert_eq!(set.contains(&pattern), expected, "{pattern} in {drawn:?}");
            let is_common = subjects.iter().any(|subject| pattern.matches(subject) && set.matches(subject));
            assert_eq!(set.intersects(&pattern), is_common, "{pattern} and {drawn:?}");
            let common = set.intersection(&[pattern.clone()].into_iter().collect());
            for subject in &subjects {
                let is_in_both = set.matches(subject) && pattern.matches(subject);
                assert_eq!(common.matches(subject), is_in_both, "{subject} in {pattern} and {drawn:?}");
            }
            contained += u32::from(expected);
        }
        assert!(1000 < contained, "{contained} of the drawn patterns are contained");
    }
}
