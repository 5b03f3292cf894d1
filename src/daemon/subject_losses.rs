//! Losses by publisher and subject, as far as the reports to clients name the subject.
//!
//! The core counts losses by publisher. The shell adds up what the core reports of each subject, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::delivery::Deliveries;
use crate::message::{Cause, Count, Epoch, Loss, LossScope, Publisher, Reason};
use crate::proto::stats::LossRow;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;

/// Maximum number of subjects with counts of their own, of all publishers together. Each takes a few hundred bytes.
const SUBJECTS_MAX: usize = 10_000;

/// Losses and repairs of one subject, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubjectTally {
    /// Number of lost messages, lower bound.
    lost_min: u64,
    /// Number of lost messages, upper bound.
    lost_max: u64,
    /// Number of messages received after they were missing and requested.
    pub(crate) repaired: u64,
    /// Reason and cause of the last loss.
    pub(crate) last: Option<(Reason, Cause)>,
    /// Time of the last loss.
    pub(crate) at: Option<WallTime>,
}

impl SubjectTally {
    fn add_lost(&mut self, loss: &Loss, count: Count) {
        // A hostile publisher may claim any numbers.
        self.lost_min = self.lost_min.saturating_add(count.min());
        self.lost_max = self.lost_max.saturating_add(count.max());
        (self.last, self.at) = (Some((loss.reason, loss.cause)), Some(loss.at));
    }

    fn plus(&self, other: &SubjectTally) -> SubjectTally {
        SubjectTally {
            lost_min: self.lost_min.saturating_add(other.lost_min),
            lost_max: self.lost_max.saturating_add(other.lost_max),
            repaired: self.repaired.saturating_add(other.repaired),
            last: None,
            at: None,
        }
    }

    /// Returns the number of lost messages, as exactly as it is known.
    pub(crate) fn lost(&self) -> Count {
        Count::from_bounds(self.lost_min, self.lost_max)
    }

    fn is_zero(&self) -> bool {
        self.lost_max == 0 && self.repaired == 0
    }
}

/// Messages that a row of `show loss --by-subject` counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LossSubject {
    /// Messages of this subject.
    Known(Subject),
    /// Messages of the subjects that are not counted one by one, because there are too many.
    Others,
    /// Messages to this peer alone. Reports do not name their subjects.
    Inbox,
    /// Messages of the group whose subjects are not known.
    Unknown {
        /// Number of messages in missing datagrams that nothing has explained yet.
        unverified: u64,
        /// Number of datagrams that are missing and may still come.
        pending: u64,
    },
}

/// A row of `show loss --by-subject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubjectLossRow {
    /// The publisher.
    pub(crate) publisher: Publisher,
    /// The messages that the row counts.
    pub(crate) subject: LossSubject,
    /// Their losses and repairs.
    pub(crate) tally: SubjectTally,
}

/// Losses of one publisher.
#[derive(Debug, Default)]
struct PublisherLosses {
    subjects: BTreeMap<Subject, SubjectTally>,
    /// Losses of all further subjects.
    others: SubjectTally,
}

/// A reported range of lost messages.
#[derive(Debug, PartialEq, Eq)]
struct LostRange {
    epoch: Epoch,
    subject: Subject,
    first: Seq,
    last: Seq,
    /// Upper bound of the number of lost messages.
    max: u64,
    at: WallTime,
}

/// Losses by publisher and subject, since the first contact with the publisher.
#[derive(Debug)]
pub(crate) struct SubjectLosses {
    publishers: BTreeMap<Epoch, PublisherLosses>,
    /// Number of subjects of all publishers.
    subjects: usize,
    subjects_max: usize,
    /// The range that was reported last.
    last_range: Option<LostRange>,
    /// Number of losses and repairs counted for other subjects, because there were too many.
    pub(crate) unlisted: u64,
}

impl Default for SubjectLosses {
    fn default() -> SubjectLosses {
        SubjectLosses::new(SUBJECTS_MAX)
    }
}

impl SubjectLosses {
    fn new(subjects_max: usize) -> SubjectLosses {
        SubjectLosses { publishers: BTreeMap::new(), subjects: 0, subjects_max, last_range: None, unlisted: 0 }
    }

    /// Counts a reported loss, if it names a subject.
    pub(crate) fn on_report(&mut self, loss: &Loss) {
        let LossScope::Messages { subject, first, last, count } = &loss.what else { return };
        let epoch = loss.publisher.epoch;
        let range =
            LostRange { epoch, subject: subject.detached(), first: *first, last: *last, max: count.max(), at: loss.at };
        // The core reports a loss once more to subscriptions that are perhaps not owed the messages.
        if count.min() == 0 && self.last_range.as_ref() == Some(&range) {
            return;
        }
        self.tally(epoch, subject).add_lost(loss, *count);
        self.last_range = Some(range);
    }

    /// Counts delivered messages that were repaired.
    pub(crate) fn on_deliver(&mut self, deliveries: &Deliveries) {
        if let Some((publisher, subject)) = deliveries.repaired() {
            let (epoch, messages) = (publisher.epoch, deliveries.len() as u64);
            let tally = self.tally(epoch, subject);
            tally.repaired = tally.repaired.saturating_add(messages);
        }
    }

    /// Forgets the publishers that have no row in `show loss` any more.
    pub(crate) fn retain(&mut self, rows: &[LossRow]) {
        let known: BTreeSet<Epoch> = rows.iter().map(|row| row.publisher.epoch).collect();
        self.publishers.retain(|epoch, _| known.contains(epoch));
        self.subjects = self.publishers.values().map(|losses| losses.subjects.len()).sum();
    }

    fn tally(&mut self, epoch: Epoch, subject: &Subject) -> &mut SubjectTally {
        let PublisherLosses { subjects, others } = self.publishers.entry(epoch).or_default();
        if !subjects.contains_key(subject) {
            if self.subjects_max <= self.subjects {
                self.unlisted += 1;
                return others;
            }
            self.subjects += 1;
            subjects.insert(subject.detached(), SubjectTally::default());
        }
        subjects.get_mut(subject).expect("it was just inserted")
    }

    /// Returns the rows of `show loss --by-subject`, most lost messages first. For each publisher, the lost messages of
    /// all rows but that of its inbox add up to its row in `rows`.
    pub(crate) fn rows(&self, rows: &[LossRow]) -> Vec<SubjectLossRow> {
        let mut all: Vec<SubjectLossRow> = rows.iter().flat_map(|row| self.publisher_rows(row)).collect();
        all.sort_by_key(|row| std::cmp::Reverse((row.tally.lost_max, row.tally.repaired)));
        all
    }

    fn publisher_rows(&self, row: &LossRow) -> Vec<SubjectLossRow> {
        let none = PublisherLosses::default();
        let losses = self.publishers.get(&row.publisher.epoch).unwrap_or(&none);
        let known = losses.subjects.values().fold(losses.others.clone(), |sum, tally| sum.plus(tally));
        let lost = row.lost();
        let unknown_min = lost.min().saturating_sub(known.lost_min);
        let unknown = SubjectTally {
            lost_min: unknown_min,
            lost_max: lost.max().saturating_sub(known.lost_max).max(unknown_min),
            repaired: row.repaired.count.saturating_sub(known.repaired),
            last: None,
            at: None,
        };
        let (unverified, pending) = (row.unverified.count, row.datagrams.pending);
        let inbox = SubjectTally {
            lost_min: row.ibx_loss.count,
            lost_max: row.ibx_loss.count,
            at: row.ibx_loss.last,
            ..SubjectTally::default()
        };
        let subjects =
            losses.subjects.iter().map(|(subject, tally)| (LossSubject::Known(subject.clone()), tally.clone()));
        let further = [
            (LossSubject::Others, losses.others.clone()),
            (LossSubject::Inbox, inbox),
            (LossSubject::Unknown { unverified, pending }, unknown),
        ];
        let is_shown = |subject: &LossSubject, tally: &SubjectTally| match subject {
            LossSubject::Unknown { unverified, pending } => !tally.is_zero() || 0 < unverified + pending,
            _ => !tally.is_zero(),
        };
        subjects
            .chain(further)
            .filter(|(subject, tally)| is_shown(subject, tally))
            .map(|(subject, tally)| SubjectLossRow { publisher: row.publisher.clone(), subject, tally })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::proto::stats::{DatagramStates, LossTally};

    const NOW: WallTime = WallTime::from_nanos(1_000_000_000);

    fn publisher() -> Publisher {
        Publisher { name: None, epoch: Epoch::new(7).unwrap(), uid: 1 }
    }

    fn loss(subject: &str, first: u64, count: Count) -> Loss {
        let first = Seq::new(0x5c19_adc0_0000_0000 + first).unwrap();
        let what = LossScope::Messages { subject: subject.parse().unwrap(), first, last: first, count };
        Loss { publisher: publisher(), what, reason: Reason::Deadline, cause: Cause::Network, at: NOW }
    }

    /// Returns the publisher's row in `show loss`: lost messages, those lost in its inbox, and repaired ones.
    fn loss_row(lost: Count, inbox: u64, repaired: u64) -> LossRow {
        let tally = |count| LossTally { count, last: None };
        LossRow {
            publisher: publisher(),
            repeat: tally(0),
            not_sub: tally(0),
            repaired: tally(repaired),
            msg_loss: tally(lost.min()),
            msg_loss_uncertain: lost.max() - lost.min(),
            ibx_loss: tally(inbox),
            unverified: tally(4),
            reason: None,
            reasons: [0; Reason::ALL.len()],
            datagrams: DatagramStates { pending: 2, ..DatagramStates::default() },
            overrun: 0,
            inconsistencies: 0,
        }
    }

    /// Returns the rows as texts: subject, lost, repaired.
    fn rows(losses: &SubjectLosses, row: LossRow) -> Vec<String> {
        let text = |row: SubjectLossRow| {
            let subject = match row.subject {
                LossSubject::Known(subject) => subject.to_string(),
                other => format!("{other:?}"),
            };
            format!("{subject} {} {}", row.tally.lost(), row.tally.repaired)
        };
        losses.rows(&[row]).into_iter().map(text).collect()
    }

    #[test]
    fn rows_add_up_to_the_publisher() {
        let mut losses = SubjectLosses::new(2);
        let counts = [("a", 3), ("b", 5), ("c", 1), ("d", 2), ("a", 1)];
        for (number, (subject, count)) in counts.into_iter().enumerate() {
            losses.on_report(&loss(subject, number as u64 + 1, Count::Exact(count)));
        }
        assert_eq!(
            rows(&losses, loss_row(Count::from_bounds(18, 21), 8, 0)),
            ["Unknown { unverified: 4, pending: 2 } 6..9 0", "Inbox 8 0", "b 5 0", "a 4 0", "Others 3 0"]
        );
        assert_eq!(losses.unlisted, 2);
    }

    #[test]
    fn second_report_of_a_range_counts_nothing() {
        let mut losses = SubjectLosses::default();
        losses.on_report(&loss("a", 1, Count::Exact(3)));
        losses.on_report(&loss("a", 1, Count::from_bounds(0, 3)));
        losses.on_report(&loss("a", 2, Count::from_bounds(0, 3)));
        assert_eq!(
            rows(&losses, loss_row(Count::from_bounds(3, 6), 0, 0)),
            ["a 3..6 0", "Unknown { unverified: 4, pending: 2 } 0 0"]
        );
    }

    #[test]
    fn repaired_messages_are_counted_by_subject() {
        let mut losses = SubjectLosses::default();
        let deliveries = |repaired| {
            let message = Message::new("a".parse().unwrap(), "x");
            Deliveries::of_message(message, None, publisher(), crate::message::Verdict::Next, repaired)
        };
        losses.on_deliver(&deliveries(true));
        losses.on_deliver(&deliveries(false));
        assert_eq!(
            rows(&losses, loss_row(Count::Exact(0), 0, 1)),
            ["a 0 1", "Unknown { unverified: 4, pending: 2 } 0 0"]
        );
    }

    #[test]
    fn publishers_without_a_row_are_forgotten() {
        let mut losses = SubjectLosses::new(1);
        losses.on_report(&loss("a", 1, Count::Exact(1)));
        losses.retain(&[]);
        losses.on_report(&loss("b", 1, Count::Exact(1)));
        assert_eq!((losses.subjects, losses.unlisted), (1, 0), "there is room again");
    }
}
