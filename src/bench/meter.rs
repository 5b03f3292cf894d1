//! A meter of rates.

use std::time::Duration;

use crate::time::Instant;

/// Divisor that gives the warm-up time after the first message from the duration of a run. The rate excludes this
/// time.
const WARM_UP_SHARE: u32 = 10;
/// Returns the warm-up time of a run of this length.
pub fn warm_up(span: Duration) -> Duration {
    span / WARM_UP_SHARE
}

/// Minimum time span from which a rate can be determined.
const MEASURABLE_SPAN_MIN: Duration = Duration::from_millis(1);

/// A count that is read now and then.
#[derive(Debug)]
pub struct RateMeter {
    warm_up: Duration,
    warm_up_count: u64,
    /// The first reading; the first one after the warm-up; the last one.
    readings: Option<[(Instant, u64); 3]>,
}

impl RateMeter {
    /// Creates a meter for a run that takes `span`, and whose warm-up takes at least `warm_up_count` messages.
    pub fn new(span: Duration, warm_up_count: u64) -> RateMeter {
        RateMeter { warm_up: warm_up(span), warm_up_count, readings: None }
    }

    /// Enters the count at a time; neither ever falls.
    pub fn read(&mut self, now: Instant, count: u64) {
        let Some([first, begin, last]) = &mut self.readings else {
            self.readings = Some([(now, count); 3]);
            return;
        };
        if now.since(first.0) <= self.warm_up || count <= self.warm_up_count {
            *begin = (now, count);
        }
        *last = (now, count);
    }

    /// Returns the rate between the readings after the warm-up. If their span is too short, the rate is that over all
    /// readings; it is 0 if that is too short as well.
    pub fn per_s(&self) -> f64 {
        let Some([first, begin, last]) = self.readings else { return 0.0 };
        let spans = [begin, first].map(|(at, count)| (last.0.since(at), last.1 - count));
        let rate = |(span, count): (Duration, u64)| count as f64 / span.as_secs_f64();
        spans.into_iter().find(|(span, _)| MEASURABLE_SPAN_MIN <= *span).map_or(0.0, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_does_not_count() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut meter = RateMeter::new(Duration::from_secs(1), 0);
        assert_eq!(meter.per_s(), 0.0);
        meter.read(at(5), 10);
        assert_eq!(meter.per_s(), 0.0);
        meter.read(at(105), 20);
        assert_eq!(meter.per_s(), 100.0);
        meter.read(at(605), 1020);
        assert_eq!(meter.per_s(), 2000.0);
        meter.read(at(1105), 1520);
        assert_eq!(meter.per_s(), 1500.0);
        let mut meter = RateMeter::new(Duration::from_secs(1), 100);
        for (millis, count) in [(0, 0), (500, 100), (600, 110)] {
            meter.read(at(millis), count);
        }
        assert_eq!(meter.per_s(), 100.0);
    }
}
