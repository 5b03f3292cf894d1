//! The payload template of `pub` and `reply`, and the pace of `--rate`.

use std::time::Duration;

use bytes::Bytes;

use crate::terminal::value::Rate;
use crate::time::Instant;

/// A payload in which `{{count}}` (or `{{.Count}}`, as other tools write it) is replaced by the number of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Text before, between and after the occurrences of the number; one piece if there is none.
    pieces: Vec<Bytes>,
}

impl Template {
    /// Reads a template.
    pub fn new(text: &[u8]) -> Template {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((at, mark)) = first_mark(rest) {
            pieces.push(Bytes::copy_from_slice(&rest[..at]));
            rest = &rest[at + mark.len()..];
        }
        pieces.push(Bytes::copy_from_slice(rest));
        Template { pieces }
    }

    /// Returns the payload of message `count`.
    pub fn payload(&self, count: u64) -> Bytes {
        match self.pieces.as_slice() {
            [whole] => whole.clone(),
            pieces => pieces.join(count.to_string().as_bytes()).into(),
        }
    }
}

fn first_mark(text: &[u8]) -> Option<(usize, &'static str)> {
    const MARKS: [&str; 2] = ["{{count}}", "{{.Count}}"];
    let position = |mark: &'static str| Some((text.windows(mark.len()).position(|at| at == mark.as_bytes())?, mark));
    MARKS.into_iter().filter_map(position).min()
}

/// Schedule by which messages 1, 2, 3 … are due.
#[derive(Clone, Copy, Debug)]
pub struct RatePacer {
    start: Instant,
    rate: Option<Rate>,
}

impl RatePacer {
    /// Starts a schedule now; without a rate every message is due at once.
    pub fn new(rate: Option<Rate>, now: Instant) -> RatePacer {
        RatePacer { start: now, rate }
    }

    /// Returns the time until the message after `sent` others is due.
    pub fn wait(&self, sent: u64, now: Instant) -> Duration {
        let Some(Rate(rate)) = self.rate else { return Duration::ZERO };
        let due = Duration::try_from_secs_f64(sent as f64 / rate).unwrap_or(Duration::MAX);
        due.saturating_sub(now.since(self.start))
    }

    /// Returns the messages per second so far.
    pub fn achieved_rate(&self, sent: u64, now: Instant) -> f64 {
        sent as f64 / now.since(self.start).as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_contains_the_message_number() {
        check("plain", 7, "plain");
        check("{{count}}", 7, "7");
        check("a {{.Count}} b {{count}}", 12, "a 12 b 12");
        check("{{count}{{count}}}", 3, "{{count}3}");
        check("", 1, "");
    }

    fn check(text: &str, count: u64, expected: &str) {
        assert_eq!(Template::new(text.as_bytes()).payload(count), expected, "{text:?}");
    }

    #[test]
    fn rate_spreads_messages_evenly() {
        let start = Instant::from_nanos(5_000);
        let pacer = RatePacer::new(Some(Rate(1000.0)), start);
        assert_eq!(pacer.wait(0, start), Duration::ZERO);
        assert_eq!(pacer.wait(3, start), Duration::from_millis(3));
        assert_eq!(pacer.wait(3, start + Duration::from_millis(2)), Duration::from_millis(1));
        assert_eq!(pacer.wait(3, start + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(RatePacer::new(None, start).wait(1_000_000, start), Duration::ZERO);
        assert_eq!(pacer.achieved_rate(500, start + Duration::from_secs(1)), 500.0);
    }
}
