//! Joining of the parts in which the report of another peer comes.

use crate::proto::question::{ANSWER_BYTES_MAX, Answer, AnswerContent, Refused};
use serde_json::Value;

/// Reason why the parts are no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssemblyError {
    /// The asked peer refuses.
    Refused(Refused),
    /// A part was lost on its way.
    PartLost,
    /// The parts are no answer to a query for a report.
    Misfit,
}

/// The parts of a report that have come, in order.
#[derive(Debug, Default)]
pub(crate) struct ReportAssembly {
    bytes: Vec<u8>,
    /// Number of the next part.
    next: u16,
}

impl ReportAssembly {
    /// Adds a part, and returns the report with the last one.
    ///
    /// # Errors
    /// Returns the reason why there will be no report.
    pub(crate) fn add(&mut self, answer: Answer) -> Result<Option<Value>, AssemblyError> {
        let Answer { part, last, content, .. } = answer;
        let bytes = match content {
            AnswerContent::Report(bytes) => bytes,
            AnswerContent::Refused(reason) => return Err(AssemblyError::Refused(reason)),
            _ => return Err(AssemblyError::Misfit),
        };
        if part != self.next {
            return Err(AssemblyError::PartLost);
        }
        if ANSWER_BYTES_MAX < self.bytes.len() + bytes.len() || part == u16::MAX {
            return Err(AssemblyError::Misfit);
        }
        self.next += 1;
        self.bytes.extend_from_slice(&bytes);
        if !last {
            return Ok(None);
        }
        serde_json::from_slice(&self.bytes).map(Some).map_err(|_| AssemblyError::Misfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Dseq, Epoch};
    use serde_json::json;

    fn part(part: u16, last: bool, content: AnswerContent) -> Answer {
        Answer { epoch: Epoch::new(1).unwrap(), high: Dseq(0), part, last, content }
    }

    fn report(number: u16, last: bool, bytes: &[u8]) -> Answer {
        part(number, last, AnswerContent::Report(bytes.to_vec().into()))
    }

    #[test]
    fn parts_are_joined_in_order() {
        let mut assembly = ReportAssembly::default();
        assert_eq!(assembly.add(report(0, false, b"{\"a\"")), Ok(None));
        assert_eq!(assembly.add(report(1, true, b":1}")), Ok(Some(json!({ "a": 1 }))));
    }

    #[test]
    fn parts_that_are_no_report_are_errors() {
        let refused = part(0, true, AnswerContent::Refused(Refused::NoReports));
        let poll = part(0, true, AnswerContent::Poll { first: 0, answers: Vec::new() });
        let cases = [
            (refused, AssemblyError::Refused(Refused::NoReports)),
            (poll, AssemblyError::Misfit),
            (report(1, true, b"{}"), AssemblyError::PartLost),
            (report(0, true, b"{"), AssemblyError::Misfit),
            (report(0, false, &vec![b' '; ANSWER_BYTES_MAX + 1]), AssemblyError::Misfit),
        ];
        for (answer, expected) in cases {
            assert_eq!(ReportAssembly::default().add(answer), Err(expected));
        }
    }
}
