//! Replaced subjects: `a=b` plays `a` as `b` and `a.x` as `b.x`.

use std::str::FromStr;

use crate::subject::{Subject, SubjectError};

/// A replacement of the first tokens of subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectMapping {
    /// The first tokens, or all of them.
    from: Subject,
    /// The tokens in their place.
    to: Subject,
}

impl FromStr for SubjectMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<SubjectMapping, String> {
        let (from, to) = text.split_once('=').ok_or("a replacement is a=b: subject a is played as b")?;
        let subject = |text: &str| text.parse().map_err(|error: SubjectError| format!("'{text}': {error}"));
        Ok(SubjectMapping { from: subject(from)?, to: subject(to)? })
    }
}

impl SubjectMapping {
    /// Returns the replacement of a subject, or `None` if the mapping does not concern it.
    fn replace(&self, subject: &Subject) -> Option<Result<Subject, SubjectError>> {
        let rest = subject.as_str().strip_prefix(self.from.as_str())?;
        let concerns = rest.is_empty() || rest.starts_with('.');
        concerns.then(|| format!("{}{rest}", self.to.as_str()).parse())
    }
}

/// Returns the subject as it is played: replaced by the first mapping that concerns it, or itself.
///
/// # Errors
/// The replacement is no subject: it is too long, or has too many tokens.
pub fn remap(mappings: &[SubjectMapping], subject: &Subject) -> Result<Subject, SubjectError> {
    mappings.iter().find_map(|mapping| mapping.replace(subject)).unwrap_or_else(|| Ok(subject.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_tokens_are_replaced() {
        let mappings: Vec<SubjectMapping> = ["a.b=x", "a=y.z"].map(|text| text.parse().unwrap()).to_vec();
        let cases = [("a.b", "x"), ("a.b.c", "x.c"), ("a.bc", "y.z.bc"), ("a", "y.z"), ("b.a", "b.a"), ("ab", "ab")];
        for (from, to) in cases {
            assert_eq!(remap(&mappings, &from.parse().unwrap()).unwrap().as_str(), to, "{from}");
        }
    }

    #[test]
    fn replacement_that_is_no_subject_is_refused() {
        for text in ["a", "=b", "a=", "a.*=b", "a=b c"] {
            assert!(text.parse::<SubjectMapping>().is_err(), "{text}");
        }
        let long: SubjectMapping = format!("a={}", "x".repeat(250)).parse().unwrap();
        assert_eq!(remap(&[long], &"a.bcdefg".parse().unwrap()), Err(SubjectError::TooLong(257)));
    }
}
