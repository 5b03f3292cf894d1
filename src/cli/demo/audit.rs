//! The audit of the demonstration: the notices of a receiver, compared with the messages that were really sent.

use std::collections::BTreeMap;

use crate::bus::Notice;
use crate::message::{Count, LossScope};
use crate::seqno::Seq;
use crate::subject::Subject;

/// Number of messages sent on each subject, numbered from 1 within one frame.
pub type SentCounts = BTreeMap<Subject, u64>;

/// The state of each message of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageOutcome {
    /// Nothing was reported about the message.
    Open,
    /// The message was delivered.
    Delivered,
    /// The message was delivered after it was missing and requested.
    Repaired,
    /// The message was reported as lost.
    Lost,
}

/// One receiver's account.
#[derive(Debug, Default)]
pub struct DeliveryAudit {
    outcomes: BTreeMap<Subject, Vec<MessageOutcome>>,
    /// Messages reported as lost, subject by subject: lower and upper bound.
    reported: BTreeMap<Subject, (u64, u64)>,
    /// Contradictions in the notices.
    faults: Vec<String>,
    /// Messages that were dropped because the demonstration read too slowly.
    pub dropped: u64,
}

/// The balance of one subject.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SubjectBalance {
    /// The subject.
    pub subject: String,
    /// Number of messages published.
    pub sent: u64,
    /// Number of messages delivered.
    pub delivered: u64,
    /// Number of delivered messages that were missing at first, and requested.
    pub repaired: u64,
    /// Number of messages reported as lost.
    pub lost: u64,
    /// Number of messages without any report.
    pub unverified: u64,
}

impl DeliveryAudit {
    /// Records a notice of the receiver.
    pub fn record(&mut self, notice: &Notice) {
        match notice {
            Notice::Message(delivery) => match delivery.seq {
                Some(seq) => {
                    let new = if delivery.repaired { MessageOutcome::Repaired } else { MessageOutcome::Delivered };
                    self.record_outcomes(&delivery.message.subject, seq, seq, new);
                }
                None => self.faults.push(format!("a message on {} has no number", delivery.message.subject)),
            },
            Notice::Loss(loss) => {
                if let LossScope::Messages { subject, first, last, count } = &loss.what {
                    self.record_loss(subject, *first, *last, *count);
                }
            }
            Notice::Dropped(count) => self.dropped += count,
            Notice::Joined(_) => {}
        }
    }

    fn record_loss(&mut self, subject: &Subject, first: Seq, last: Seq, count: Count) {
        // The demonstration stays within one frame, so the range is exact. A receiver that missed the frame's first
        // message cannot know that, and reports min..max.
        let span = last.count() - first.count() + 1;
        if first.frame() != last.frame() || !(count.min()..=count.max()).contains(&span) {
            self.faults.push(format!("{count} messages on {subject} cannot be all of {first}..{last}"));
        }
        self.record_outcomes(subject, first, last, MessageOutcome::Lost);
        let reported = self.reported.entry(subject.clone()).or_default();
        *reported = (reported.0 + count.min(), reported.1 + count.max());
    }

    fn record_outcomes(&mut self, subject: &Subject, first: Seq, last: Seq, new: MessageOutcome) {
        let outcomes = self.outcomes.entry(subject.detached()).or_default();
        let index = |seq: Seq| usize::try_from(seq.count() - 1).expect("the demonstration fits the memory");
        if outcomes.len() <= index(last) {
            outcomes.resize(index(last) + 1, MessageOutcome::Open);
        }
        for (at, outcome) in outcomes.iter_mut().enumerate().take(index(last) + 1).skip(index(first)) {
            if *outcome != MessageOutcome::Open {
                self.faults.push(format!("message {} on {subject} is {new:?} after it was {outcome:?}", at + 1));
            }
            *outcome = new;
        }
    }

    /// Returns the balance of each subject.
    pub fn balance(&self, sent: &SentCounts) -> Vec<SubjectBalance> {
        let row = |(subject, sent): (&Subject, &u64)| {
            let outcomes = self.outcomes.get(subject).map_or(&[][..], Vec::as_slice);
            let count = |outcome| outcomes.iter().filter(|other| **other == outcome).count() as u64;
            let (repaired, lost) = (count(MessageOutcome::Repaired), count(MessageOutcome::Lost));
            let delivered = count(MessageOutcome::Delivered) + repaired;
            let unverified = sent.saturating_sub(delivered + lost);
            SubjectBalance { subject: subject.to_string(), sent: *sent, delivered, repaired, lost, unverified }
        };
        sent.iter().map(row).collect()
    }

    /// Returns the contradictions: messages that were reported and never sent, or reported twice, and a number of
    /// messages without report other than `unverified`. The list is empty if every message is accounted for.
    pub fn faults(&self, sent: &SentCounts, unverified: u64) -> Vec<String> {
        let mut faults = self.faults.clone();
        for (subject, outcomes) in &self.outcomes {
            let sent = sent.get(subject).copied().unwrap_or(0);
            if sent < outcomes.len() as u64 {
                faults.push(format!("message {} on {subject} was reported, but only {sent} were sent", outcomes.len()));
            }
        }
        let balance = self.balance(sent);
        for row in &balance {
            let reported = self
                .reported
                .iter()
                .find(|(subject, _)| subject.as_str() == row.subject)
                .map(|(_, reported)| *reported);
            let (min, max) = reported.unwrap_or_default();
            if !(min..=max).contains(&row.lost) {
                faults.push(format!("{min}..{max} losses were reported on {}, not {}", row.subject, row.lost));
            }
        }
        let open: u64 = balance.iter().map(|row| row.unverified).sum();
        if open != unverified {
            faults.push(format!("{open} messages were not reported, and {unverified} were reported as unverified"));
        }
        if 0 < self.dropped {
            faults.push(format!("{} messages were dropped because the demonstration read too slowly", self.dropped));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Cause, Delivery, Epoch, Loss, Message, Publisher, Reason, Verdict};
    use crate::seqno::Frame;
    use crate::time::WallTime;

    #[test]
    fn repaired_messages_count_as_delivered() {
        let mut audit = DeliveryAudit::default();
        for count in 1..=5 {
            let Notice::Message(mut delivery) = message(count) else { unreachable!() };
            delivery.repaired = count % 2 == 0;
            audit.record(&Notice::Message(delivery));
        }
        let sent = SentCounts::from([("a".parse().unwrap(), 5)]);
        let balance = &audit.balance(&sent)[0];
        assert_eq!((balance.delivered, balance.repaired, balance.lost), (5, 2, 0));
        assert_eq!(audit.faults(&sent, 0), Vec::<String>::new());
    }

    /// Runs the audit. Each word is a notice on subject `a`, on which 5 messages were sent: `3` is a delivery, `!2-4` a
    /// loss.
    fn check(notices: &str, unverified: u64, fits: bool) {
        let mut audit = DeliveryAudit::default();
        for notice in notices.split_whitespace() {
            audit.record(&match notice.strip_prefix('!') {
                None => message(notice.parse().unwrap()),
                Some(range) => {
                    let (first, last) = range.split_once('-').unwrap();
                    loss(first.parse().unwrap(), last.parse().unwrap())
                }
            });
        }
        let faults = audit.faults(&SentCounts::from([("a".parse().unwrap(), 5)]), unverified);
        assert_eq!(faults.is_empty(), fits, "{notices}: {faults:?}");
    }

    #[test]
    fn unbalanced_accounts_are_faults() {
        check("1 2 3 4 5", 0, true);
        check("1 !2-4 5", 0, true);
        check("1 2 3", 2, true);
        check("!1-2 3 4", 1, true);
        check("1 2 3", 0, false);
        check("1 2 3 4 5", 1, false);
        check("1 1 2 3 4 5", 0, false);
        check("1 !2-4 3 5", 0, false);
        check("1 2 3 !3-4 5", 0, false);
        check("1 2 3 4 5 6", 0, false);
        check("1 2 3 4 !5-6", 0, false);
    }

    #[test]
    fn count_outside_its_range_is_a_fault() {
        for (count, fits) in [
            (Count::Exact(5), true),
            (Count::Exact(4), false),
            (Count::Between { min: 1, max: 7 }, true),
            (Count::Between { min: 6, max: 7 }, false),
        ] {
            let mut audit = DeliveryAudit::default();
            let Notice::Loss(mut reported) = loss(1, 5) else { unreachable!() };
            if let LossScope::Messages { count: of, .. } = &mut reported.what {
                *of = count;
            }
            audit.record(&Notice::Loss(reported));
            let faults = audit.faults(&SentCounts::from([("a".parse().unwrap(), 5)]), 0);
            assert_eq!(faults.is_empty(), fits, "{count}: {faults:?}");
        }
    }

    fn seq(count: u64) -> Seq {
        Seq::from_parts(Frame::at(WallTime::from_nanos(1_700_000_000_000_000_000)), count).unwrap()
    }

    fn publisher() -> Publisher {
        Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 }
    }

    fn message(count: u64) -> Notice {
        let message = Message::new("a".parse().unwrap(), "");
        Notice::Message(Delivery {
            message,
            publisher: publisher(),
            seq: Some(seq(count)),
            offset: None,
            verdict: Verdict::Next,
            repaired: false,
            replayed: false,
            origin: None,
        })
    }

    fn loss(first: u64, last: u64) -> Notice {
        let what = LossScope::Messages {
            subject: "a".parse().unwrap(),
            first: seq(first),
            last: seq(last),
            count: Count::Exact(last - first + 1),
        };
        let (reason, cause, at) = (Reason::Disabled, Cause::Network, WallTime::EPOCH);
        Notice::Loss(Loss { publisher: publisher(), what, reason, cause, at })
    }
}
