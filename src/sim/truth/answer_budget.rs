//! What a publisher may spend on answers: a quarter of what it sends anyway, or its least rate, and a burst (5.6).

use crate::sim::scenario::{MILLIS, SECOND};
use std::collections::VecDeque;

/// What may be spent at once after a pause, in bytes.
const BURST: i64 = 256 << 10;
/// For the rounding of clocks and rates.
const SLACK: i64 = 4 << 10;
/// What was sent gives its quarter within so many nanoseconds: a second, and the slot that it is counted in.
const WINDOW: u64 = SECOND + 60 * MILLIS;

/// The meter of one publisher: compares the sums of every span of time.
#[derive(Debug, Default)]
pub(crate) struct AnswerBudget {
    /// The least rate, in bytes a second.
    rate: u64,
    since: u64,
    answers: u64,
    sent: u64,
    /// When something was sent lately, and the sum up to it.
    recent: VecDeque<(u64, u64)>,
    /// The sum of what was sent before that.
    before: u64,
    /// The lowest that the answers were below what had come before them; every span may begin there.
    low: Option<i64>,
}

impl AnswerBudget {
    /// Of a publisher that begins now and may send `rate` bytes of answers a second at least.
    pub fn new(at: u64, rate: u64) -> AnswerBudget {
        AnswerBudget { rate: rate.max(1), since: at, ..AnswerBudget::default() }
    }

    /// Data of so many bytes is sent for the first time.
    pub fn on_first(&mut self, at: u64, bytes: usize) {
        self.sent += bytes as u64;
        self.recent.push_back((at, self.sent));
    }

    /// An answer of so many bytes is sent. By how many bytes it is too much, if it is.
    pub fn on_answer(&mut self, at: u64, bytes: usize) -> Option<i64> {
        while let Some((_, sum)) = self.recent.front().filter(|(sent, _)| sent + WINDOW <= at) {
            self.before = *sum;
            self.recent.pop_front();
        }
        let came = (u128::from(self.rate) * u128::from(at - self.since) / u128::from(SECOND) * 1001 / 1000) as i64;
        let from = self.answers as i64 - came - self.before as i64 / 4;
        let low = from.min(self.low.unwrap_or(from));
        self.low = Some(low);
        self.answers += bytes as u64;
        let most = BURST + SLACK;
        let spent = self.answers as i64 - came - self.sent as i64 / 4 - low;
        (most < spent).then_some(spent - most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_has_its_burst_its_rate_and_a_quarter_of_what_was_sent() {
        let mut meter = AnswerBudget::new(0, 1000);
        assert_eq!(meter.on_answer(SECOND, 250 << 10), None);
        assert!(meter.on_answer(SECOND, 20 << 10).is_some(), "more than a burst");
        let mut meter = AnswerBudget::new(0, 1000);
        assert_eq!(meter.on_answer(SECOND, 256 << 10), None);
        assert_eq!(meter.on_answer(11 * SECOND, 10_000), None, "ten seconds of the rate");
        meter.on_first(11 * SECOND, 100_000);
        assert_eq!(meter.on_answer(12 * SECOND, 26_000), None);
        assert!(meter.on_answer(14 * SECOND, 10_000).is_some(), "its quarter is spent");
    }
}
