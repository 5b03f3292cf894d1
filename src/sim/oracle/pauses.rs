//! The pauses of a receiver. Some scenarios pause a reader thousands of times, and the oracle asks for each message.

/// A pause, by times in nanoseconds.
#[derive(Debug)]
struct Pause {
    start: u64,
    end: u64,
    /// The latest end of this pause and of all earlier ones.
    latest_end: u64,
}

/// Pauses in the order of their starts. They may overlap.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Vec<Pause>);

impl Pauses {
    /// Adds a pause that starts after the others, or with the last of them.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let last = self.0.last();
        assert!(last.is_none_or(|last| last.start <= start), "pauses are recorded as they start");
        let latest_end = last.map_or(end, |last| end.max(last.latest_end));
        self.0.push(Pause { start, end, latest_end });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pauses that may end after `at`, in order.
    fn after(&self, at: u64) -> &[Pause] {
        &self.0[self.0.partition_point(|pause| pause.latest_end <= at)..]
    }

    /// Returns the sum of the pauses between two times.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        let part = |pause: &Pause| to.min(pause.end).saturating_sub(from.max(pause.start));
        self.after(from).iter().take_while(|pause| pause.start < to).map(part).sum()
    }

    /// Returns the first time from `at` on that is in no pause.
    pub fn end_at(&self, at: u64) -> u64 {
        let mut awake = at;
        for pause in self.after(at) {
            if awake < pause.start {
                break;
            }
            awake = awake.max(pause.end);
        }
        awake
    }

    /// Returns the time at which `nanos` have passed since `from`, where the pauses since `begin` do not count.
    pub fn due(&self, begin: u64, from: u64, nanos: u64) -> u64 {
        let mut due = from + nanos;
        // The result grows with each further pause that it covers.
        loop {
            let later = self.end_at(from + nanos + self.between(begin, due));
            if later == due {
                return due;
            }
            due = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pauses;
    use crate::rng::Rng;

    #[test]
    fn sums_and_ends_agree_with_all_pauses() {
        let mut rng = Rng::new(7);
        let (mut pauses, mut all, mut start) = (Pauses::default(), Vec::new(), 0);
        for _ in 0..200 {
            start += rng.below(30);
            let end = start + rng.below(40);
            pauses.add(start, end);
            all.push((start, end));
            let (from, to) = (rng.below(start + 50), rng.below(start + 50));
            let sum: u64 = all.iter().map(|(start, end)| to.min(*end).saturating_sub(from.max(*start))).sum();
            assert_eq!(pauses.between(from, to), sum, "between {from} and {to} of {all:?}");
            let is_paused = |at: u64| all.iter().any(|(start, end)| (*start..*end).contains(&at));
            let awake = (from..).find(|at| !is_paused(*at));
            assert_eq!(Some(pauses.end_at(from)), awake, "from {from} of {all:?}");
        }
    }
}
