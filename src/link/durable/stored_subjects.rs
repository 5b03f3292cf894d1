//! The subjects of the stream, and whether other messages come on them than those that the stream has.

use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::time::Instant;
use std::time::Duration;

/// Time for which a gateway also subscribes to new subjects of the stream. In it a site that exports messages of
/// [`GatewaySettings::exports`](crate::link::gateway_settings::GatewaySettings) on them shows that by such a message.
const OBSERVED_TIME: Duration = Duration::from_secs(10);

/// The subjects that the stream keeps.
#[derive(Debug, Default)]
pub(super) struct StoredSubjects {
    subjects: PatternSet,
    since: Instant,
    /// Whether some site exports live messages on them.
    has_live: bool,
}

impl StoredSubjects {
    /// Sets the subjects. `has_live`: this site exports live messages on some of them.
    pub(super) fn set(&mut self, now: Instant, subjects: PatternSet, has_live: bool) {
        if self.subjects != subjects {
            *self = StoredSubjects { subjects, since: now, has_live };
        }
    }

    /// Returns whether the stream keeps the subject.
    pub(super) fn matches(&self, subject: &Subject) -> bool {
        self.subjects.matches(subject)
    }

    /// Notes that some site exports live messages on a subject.
    pub(super) fn on_live(&mut self, subject: &Subject) {
        self.has_live = self.has_live || self.subjects.matches(subject);
    }

    /// Returns the subjects of the stream once its messages are the only ones on them, as far as this gateway knows;
    /// otherwise none.
    pub(super) fn unmixed(&self, now: Instant) -> PatternSet {
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
    fn unmixed_subjects_are_known_after_some_time() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let subject = |text: &str| text.parse::<Subject>().expect("a subject");
        let (orders, none) = (set(&["orders.>"]), set(&[]));
        let mut stored = StoredSubjects::default();
        stored.set(at(100), orders.clone(), false);
        stored.set(at(105), orders.clone(), false);
        assert_eq!(stored.unmixed(at(109)), none, "live messages may come");
        stored.on_live(&subject("plant.1"));
        assert_eq!(stored.unmixed(at(110)), orders);
        stored.on_live(&subject("orders.1"));
        assert_eq!(stored.unmixed(at(1_000)), none, "another site exports one of them live");
        stored.set(at(1_000), set(&["orders.*"]), false);
        assert_eq!(stored.unmixed(at(1_010)), set(&["orders.*"]), "nothing is known of the new ones");
        stored.set(at(2_000), orders, true);
        assert_eq!(stored.unmixed(at(3_000)), none, "this site exports one of them live");
    }
}
