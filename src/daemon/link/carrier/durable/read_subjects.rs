//! Subjects that a site reads from the stream of the cluster.
//!
//! A reader limits itself to the subjects that the stream has when it begins. If a site adds others later, the reader
//! does not get their messages until the next look at the stream. It begins again then, at the end that the stream had at
//! the look before: all messages of the new subjects are behind it.

use crate::link::durable::{HubPosition, StoredArrival};
use crate::subject::pattern_set::PatternSet;
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use std::time::Duration;

/// Time for which new subjects are a reason to begin again: by then the gateway that reads has noticed them.
const NEW_TIME: Duration = Duration::from_secs(60);

/// The subjects at the last look, and those that were new.
#[derive(Debug, Default)]
pub(super) struct ReadSubjects {
    last_subjects: Option<StreamSubjects>,
    /// Time at which subjects were new, and the look before.
    before: Option<Change>,
    /// The last reading of new subjects. It continues if it was interrupted.
    catch_up: Option<CatchUp>,
}

#[derive(Clone, Debug)]
struct StreamSubjects {
    wanted: PatternSet,
    /// Sequence of the last message of the stream.
    last: u64,
}

#[derive(Debug)]
struct Change {
    at: Instant,
    before: StreamSubjects,
}

/// Reads the messages of new subjects that the reader has passed.
#[derive(Clone, Debug)]
pub(super) struct CatchUp {
    /// Stream sequence behind which messages of these are not read.
    pub(super) from: u64,
    /// Position of the reader. Up to it the messages of other subjects were read.
    to: HubPosition,
    read: PatternSet,
}

impl ReadSubjects {
    /// Notes the subjects that the site reads, and the sequence of the stream's last message.
    pub(super) fn on_stream_info(&mut self, now: Instant, wanted: Vec<Pattern>, last: u64) {
        let wanted: PatternSet = wanted.into_iter().collect();
        let subjects = StreamSubjects { wanted, last };
        let Some(before) = self.last_subjects.replace(subjects.clone()) else { return };
        let is_new = |pattern: &Pattern| !before.wanted.contains(pattern);
        if subjects.wanted.patterns().iter().any(is_new) && !self.has_new(now) {
            self.before = Some(Change { at: now, before });
        }
    }

    /// Returns whether there are new subjects.
    pub(super) fn has_new(&self, now: Instant) -> bool {
        self.before.as_ref().is_some_and(|change| now.since(change.at) < NEW_TIME)
    }

    /// Returns how a reader at this position gets the messages of new subjects, if there are any. They are not new any
    /// more then.
    pub(super) fn catch_up(&mut self, now: Instant, position: HubPosition) -> Option<CatchUp> {
        let change = self.before.take_if(|change| now.since(change.at) < NEW_TIME);
        self.before = None;
        self.catch_up = match self.catch_up.take().filter(|interrupted| position.sequence < interrupted.to.sequence) {
            // It has not read the subjects that are new since then, either.
            Some(interrupted) => Some(CatchUp { from: position.sequence, ..interrupted }),
            None => change.map(|Change { before, .. }| CatchUp {
                from: before.last.min(position.sequence),
                to: position,
                read: before.wanted,
            }),
        };
        self.catch_up.clone()
    }
}

impl CatchUp {
    /// Returns whether a message of the stream was read before.
    pub(super) fn skips(&self, arrival: StoredArrival, subject: &Subject) -> bool {
        self.to.covers(arrival) && self.read.matches(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::WallTime;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(1000 + secs)
    }

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn arrival(sequence: u64) -> StoredArrival {
        StoredArrival { sequence, at: WallTime::from_nanos(sequence) }
    }

    fn position(sequence: u64) -> HubPosition {
        arrival(sequence).into()
    }

    #[test]
    fn new_subjects_are_read_from_the_look_before() {
        let mut subjects = ReadSubjects::default();
        subjects.on_stream_info(at(0), patterns(&["a.>"]), 10);
        subjects.on_stream_info(at(10), patterns(&["a.>"]), 20);
        assert!(!subjects.has_new(at(10)), "the first subjects are not new");
        subjects.on_stream_info(at(20), patterns(&["a.>", "b.>"]), 30);
        // The look with which a reader begins finds nothing more.
        subjects.on_stream_info(at(21), patterns(&["a.>", "b.>"]), 31);
        assert!(subjects.has_new(at(21)));
        let catch_up = subjects.catch_up(at(21), position(29)).unwrap();
        assert_eq!(catch_up.from, 20);
        let skips = |sequence, subject: &str| catch_up.skips(arrival(sequence), &subject.parse().unwrap());
        assert_eq!(
            [skips(21, "a.x"), skips(29, "a.x"), skips(30, "a.x"), skips(21, "b.x")],
            [true, true, false, false]
        );
        assert!(!subjects.has_new(at(21)) && subjects.catch_up(at(21), position(29)).is_none(), "they are read by now");
    }

    #[test]
    fn interrupted_reader_continues_with_new_subjects() {
        let mut subjects = ReadSubjects::default();
        subjects.on_stream_info(at(0), patterns(&["a.>"]), 900);
        subjects.on_stream_info(at(10), patterns(&["a.>", "b.>"]), 1_000);
        assert!(subjects.catch_up(at(10), position(1_000)).is_some_and(|catch_up| catch_up.from == 900));
        let catch_up = subjects.catch_up(at(90), position(905)).unwrap();
        let skips = |sequence, subject: &str| catch_up.skips(arrival(sequence), &subject.parse().unwrap());
        assert_eq!(
            [skips(906, "a.x"), skips(1_000, "a.x"), skips(1_001, "a.x"), skips(906, "b.x")],
            [true, true, false, false]
        );
        assert_eq!(catch_up.from, 905);
        assert!(subjects.catch_up(at(91), position(1_000)).is_none(), "they are read by now");
    }

    #[test]
    fn new_subjects_are_soon_left_to_the_reader() {
        let mut subjects = ReadSubjects::default();
        subjects.on_stream_info(at(0), patterns(&["a.>"]), 10);
        subjects.on_stream_info(at(10), patterns(&["a.>", "b.>"]), 20);
        assert!(subjects.has_new(at(69)) && !subjects.has_new(at(70)));
        assert!(subjects.catch_up(at(70), position(100)).is_none());
        subjects.on_stream_info(at(80), patterns(&["a.>", "b.>", "c.>"]), 120);
        let catch_up = subjects.catch_up(at(80), position(15)).unwrap();
        assert_eq!((catch_up.from, catch_up.to), (15, position(15)), "the position is before the look");
    }
}
