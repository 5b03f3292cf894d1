//! Subject runs: messages of one subject that are published one after the other. The lookup for the first message need
//! not be repeated for the others.

use crate::subject::Subject;

/// The text of a subject, and the subject run of the message.
#[derive(Clone, Copy, Debug)]
pub struct SubjectRunKey<'a> {
    text: &'a [u8],
    /// Number of the subject run, unique within one peer; 0 for a message in no subject run.
    subject_run: u64,
}

impl<'a> SubjectRunKey<'a> {
    /// Returns the subject's bytes.
    pub fn text(self) -> &'a [u8] {
        self.text
    }

    /// Returns the number of the subject run, if there is one.
    pub fn subject_run(self) -> Option<u64> {
        Some(self.subject_run).filter(|subject_run| *subject_run != 0)
    }
}

impl<'a> From<&'a Subject> for SubjectRunKey<'a> {
    /// Creates a key outside all subject runs.
    fn from(subject: &'a Subject) -> SubjectRunKey<'a> {
        SubjectRunKey { text: subject.as_bytes(), subject_run: 0 }
    }
}

/// Detects the start and end of subject runs.
#[derive(Debug, Default)]
pub struct SubjectRuns {
    /// Subject of the current run.
    text: Vec<u8>,
    /// The same subject from the second message on. Only then is a reference worth keeping, because it compares faster.
    recent: Option<Subject>,
    number: u64,
}

impl SubjectRuns {
    /// Returns whether a message on `subject` continues the current run.
    pub fn continues_run(&mut self, subject: &Subject) -> bool {
        if self.recent.as_ref().is_some_and(|recent| recent.is_same(subject)) {
            return true;
        }
        let continues_run = self.text == subject.as_bytes();
        if continues_run {
            self.recent = Some(subject.clone());
        }
        continues_run
    }

    /// Returns the key of the current run.
    pub fn key(&self) -> Option<SubjectRunKey<'_>> {
        (self.number != 0).then_some(SubjectRunKey { text: &self.text, subject_run: self.number })
    }

    /// Returns the key of a message on `subject`, and whether it begins a run.
    pub fn next<'a>(&mut self, subject: &'a Subject) -> (SubjectRunKey<'a>, bool) {
        let continues_run = self.continues_run(subject);
        if !continues_run {
            self.recent = None;
            self.text.clear();
            self.text.extend_from_slice(subject.as_bytes());
            self.number += 1;
        }
        (SubjectRunKey { text: subject.as_bytes(), subject_run: self.number }, !continues_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_continues_while_the_subject_repeats() {
        let (a, b): (Subject, Subject) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut subject_runs = SubjectRuns::default();
        let mut next = |subject: &Subject| {
            let (key, begins) = subject_runs.next(subject);
            (key.subject_run().unwrap(), begins)
        };
        assert_eq!([next(&a), next(&a), next(&"a".parse().unwrap())], [(1, true), (1, false), (1, false)]);
        assert_eq!([next(&b), next(&a), next(&a)], [(2, true), (3, true), (3, false)]);
        assert_eq!(SubjectRunKey::from(&a).subject_run(), None);
    }
}
