//! Budget of a publisher for answers: a quarter of its other traffic or its minimum rate, plus a burst (wire.md W114).

use crate::sim::scenario::{MILLIS, SECOND};
use std::collections::VecDeque;

/// Bytes that may be spent at once after a pause.
const BURST: i64 = 256 << 10;
/// Tolerance in bytes for the rounding of clocks and rates.
const SLACK: i64 = 4 << 10;
/// Nanoseconds over which a first transmission adds its quarter: a second, and the slot in which it is counted.
const WINDOW: u64 = SECOND + 60 * MILLIS;

/// The meter of one publisher. It compares answers and budget in every time span.
#[derive(Debug, Default)]
pub(crate) struct AnswerBudget {
    /// The minimum rate in bytes a second.
    rate: u64,
    /// Time at which the publisher began.
    since: u64,
    /// Bytes of all answers.
    answers: u64,
    /// Bytes of all first transmissions.
    sent: u64,
    /// Times of recent first transmissions, each with the running sum of bytes up to it.
    recent: VecDeque<(u64, u64)>,
    /// Running sum of bytes sent before `recent`.
    before: u64,
    /// Minimum of answers sent minus budget earned so far; every time span may begin there.
    low: Option<i64>,
}

impl AnswerBudget {
    /// Creates the meter of a publisher that begins at `at` and may always send `rate` bytes of answers a second.
    pub fn new(at: u64, rate: u64) -> AnswerBudget {
        AnswerBudget { rate: rate.max(1), since: at, ..AnswerBudget::default() }
    }

    /// Records that `bytes` of data are sent for the first time.
    pub fn on_first_transmission(&mut self, at: u64, bytes: usize) {
        self.sent += bytes as u64;
        self.recent.push_back((at, self.sent));
    }

    /// Records an answer of `bytes`. Returns the number of bytes by which it exceeds the budget, if it does.
    pub fn on_answer(&mut self, at: u64, bytes: usize) -> Option<i64> {
        while let Some((_, sum)) = self.recent.front().filter(|(sent, _)| sent + WINDOW <= at) {
            self.before = *sum;
            self.recent.pop_front();
        }
        let earned = (u128::from(self.rate) * u128::from(at - self.since) / u128::from(SECOND) * 1001 / 1000) as i64;
        let from = self.answers as i64 - earned - self.before as i64 / 4;
        let low = from.min(self.low.unwrap_or(from));
        self.low = Some(low);
        self.answers += bytes as u64;
        let most = BURST + SLACK;
        let spent = self.answers as i64 - earned - self.sent as i64 / 4 - low;
        (most < spent).then_some(spent - most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_beyond_burst_rate_and_quarter_are_violations() {
        let mut meter = AnswerBudget::new(0, 1000);
        assert_eq!(meter.on_answer(SECOND, 250 << 10), None);
        assert!(meter.on_answer(SECOND, 20 << 10).is_some(), "more than a burst");
        let mut meter = AnswerBudget::new(0, 1000);
        assert_eq!(meter.on_answer(SECOND, 256 << 10), None);
        assert_eq!(meter.on_answer(11 * SECOND, 10_000), None, "ten seconds of the rate");
        meter.on_first_transmission(11 * SECOND, 100_000);
        assert_eq!(meter.on_answer(12 * SECOND, 26_000), None);
        assert!(meter.on_answer(14 * SECOND, 10_000).is_some(), "the quarter of the sent bytes is spent");
    }
}
