//! The subjects of the stream, and whether some site also exports live messages on them.

use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::time::Instant;
use std::time::Duration;

/// Time for which a gateway stays subscribed to the subjects of the stream once it has learned them or has connected. A
/// site that exports live messages on them is noticed if it publishes within this time.
const OBSERVED_TIME: Duration = Duration::from_secs(10);

/// The subjects that the stream keeps.
#[derive(Debug, Default)]
pub(super) struct StoredSubjects {
    subjects: PatternSet,
    /// Time from which they are observed.
    since: Instant,
    /// Whether some site exports live messages on them, or has done so.
    has_live: bool,
}

impl StoredSubjects {
    /// Sets the subjects. `has_live`: this site exports live messages on some of them.
    pub(super) fn set(&mut self, now: Instant, subjects: PatternSet, has_live: bool) {
        if self.subjects != subjects {
            (self.subjects, self.since) = (subjects, now);
        }
        self.has_live = self.has_live || has_live;
    }

    /// Begins to observe them anew, after the connection to the cluster has begun or ended.
    pub(super) fn on_link(&mut self, now: Instant) {
        self.since = now;
    }

    /// Returns whether the stream keeps the subject.
    pub(super) fn matches(&self, subject: &Subject) -> bool {
        self.subjects.matches(subject)
    }

    /// Notes that some site exports live messages on a subject.
    pub(super) fn on_live(&mut self, subject: &Subject) {
        self.has_live = self.has_live || self.subjects.matches(subject);
    }

    /// Returns the subjects of the stream if no live messages are known on them and they were observed long enough;
    /// otherwise none.
    pub(super) fn stream_only(&self, now: Instant) -> PatternSet {
        match self.has_live || now < self.since + OBSERVED_TIME {
            true => PatternSet::default(),
            false => self.subjects.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> PatternSet {
        texts.iter().map(|text| text.parse().expect("a pattern")).collect()
    }

    #[test]
    fn stream_only_subjects_are_known_after_observation() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let subject = |text: &str| text.parse::<Subject>().expect("a subject");
        let (orders, none) = (set(&["orders.>"]), set(&[]));
        let mut stored = StoredSubjects::default();
        stored.set(at(100), orders.clone(), false);
        stored.set(at(105), orders.clone(), false);
        assert_eq!(stored.stream_only(at(109)), none, "live messages may come");
        stored.on_live(&subject("plant.1"));
        assert_eq!(stored.stream_only(at(110)), orders);
        stored.on_link(at(200));
        assert_eq!((stored.stream_only(at(209)), stored.stream_only(at(210))), (none.clone(), orders.clone()));
        stored.on_live(&subject("orders.1"));
        assert_eq!(stored.stream_only(at(1_000)), none, "another site exports one of them live");
        stored.set(at(1_000), none.clone(), false);
        stored.set(at(1_001), orders.clone(), false);
        assert_eq!(stored.stream_only(at(2_000)), none, "the site is still there");
        let mut stored = StoredSubjects::default();
        stored.set(at(100), orders, true);
        assert_eq!(stored.stream_only(at(3_000)), none, "this site exports one of them live");
    }
}
