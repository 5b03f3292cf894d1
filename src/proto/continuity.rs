//! Position of a message relative to the last one of its subject (seed 002, "Message Loss").
//!
//! A pure function. `recv` calls it and adds the ledger's knowledge of the datagrams in between.

use crate::message::Stamp;
use crate::proto::window::SubEntry;
use crate::seqno::Seq;

/// Numbering of a message, or of the first message of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqPosition {
    /// Number of the message.
    pub seq: Seq,
    /// Time and offset, if the publisher started the numbering here.
    pub stamp: Option<Stamp>,
    /// Last number of the previous frame, if the publisher still knew it.
    pub chain: Option<Seq>,
}

/// Position of a message in its subject's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// No message of the subject was received before.
    First,
    /// The message was received before: its number is at or below the last one.
    Repeat,
    /// The message directly follows the last one, by number or by chain.
    Follows,
    /// The publisher restarted without a link: nothing is proven missing, nothing is proven present.
    Restart,
    /// Messages are proven missing before it.
    Skip(Skip),
}

/// A range of numbers proven missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Lowest number missing, as far as known.
    pub first: Seq,
    /// Highest number missing.
    pub last: Seq,
    /// Number of messages that are certainly missing.
    pub messages: u64,
    /// Messages that may be missing in addition.
    pub rest: UnprovenLoss,
}

/// Messages that may be missing in addition to those proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnprovenLoss {
    /// None: the numbers are contiguous.
    None,
    /// The end of an earlier frame. It may be missing if it was sent before the publisher evicted the subject (R11). It
    /// may also be missing if enough messages are missing that the count may have wrapped.
    Earlier,
    /// Any number: frames of unknown length lie in between.
    Any,
}

impl SeqPosition {
    /// Compares this position with the last message received of the same (publisher, subject).
    pub fn judge(&self, seen: Option<&SubEntry>) -> Continuity {
        let Some(last) = seen.map(|entry| entry.last) else { return Continuity::First };
        if self.seq <= last {
            return Continuity::Repeat;
        }
        if self.seq.frame() == last.frame() {
            return skip_within(last, self.seq.count() - 1);
        }
        match self.chain {
            Some(chain) if chain < last || self.seq <= chain => self.judge_unlinked(last),
            Some(chain) if chain.frame() == last.frame() => skip_within(last, chain.count()),
            Some(chain) => Continuity::Skip(Skip {
                first: chain.frame().first(),
                last: chain,
                messages: chain.count(),
                rest: UnprovenLoss::Any,
            }),
            None => self.judge_unlinked(last),
        }
    }

    /// Returns the history offset of the first message of this position's frame, if it is known from here or from an
    /// earlier message.
    pub fn offset_of_frame(&self, seen: Option<&SubEntry>) -> Option<u32> {
        match self.stamp {
            // The offset is modulo 2^32, as is the truncated count.
            Some(stamp) => Some(stamp.offset.wrapping_sub((self.seq.count() - 1) as u32)),
            None => seen.filter(|entry| entry.last.frame() == self.seq.frame())?.offset,
        }
    }

    fn judge_unlinked(&self, last: Seq) -> Continuity {
        debug_assert!(last.frame() < self.seq.frame());
        match self.missing_of_frame() {
            Some(skip) => Continuity::Skip(skip),
            None => Continuity::Restart,
        }
    }

    /// Returns the missing numbers of this position's frame before it, if any.
    pub fn missing_of_frame(&self) -> Option<Skip> {
        let count = self.seq.count();
        let last = Seq::from_parts(self.seq.frame(), count - 1)?;
        Some(Skip { first: self.seq.frame().first(), last, messages: count - 1, rest: UnprovenLoss::Earlier })
    }
}

/// Returns the continuity between the number `last` and the count `upto` of the same frame. Both were received, or
/// named by a chain.
fn skip_within(last: Seq, upto: u64) -> Continuity {
    let messages = upto - last.count();
    match (last.forward(1), last.forward(messages)) {
        (Some(first), Some(last)) if 0 < messages => {
            Continuity::Skip(Skip { first, last, messages, rest: UnprovenLoss::None })
        }
        _ => Continuity::Follows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Dseq;
    use crate::seqno::{COUNT_MAX, Frame};
    use crate::time::{Instant, WallTime};

    fn seq(frame: u32, count: u64) -> Seq {
        Seq::from_parts(Frame::new(frame).unwrap(), count).unwrap()
    }

    /// Checks the judgement of `next` (with `chain`, if given) after `last`; `None` means nothing received.
    fn check(last: Option<Seq>, next: Seq, chain: Option<Seq>, expected: Continuity) {
        let seen = last.map(|last| SubEntry { last, dseq: Dseq(1), at: Instant::ZERO, offset: None });
        let stamp = (next.count() == 1).then_some(Stamp { time: WallTime::EPOCH, offset: 0 });
        let judged = SeqPosition { seq: next, stamp, chain }.judge(seen.as_ref());
        assert_eq!(judged, expected, "{next:?} after {last:?}");
    }

    fn skip(first: Seq, last: Seq, messages: u64, rest: UnprovenLoss) -> Continuity {
        Continuity::Skip(Skip { first, last, messages, rest })
    }

    #[test]
    fn position_is_judged_by_last_seq_and_chain() {
        check(None, seq(5, 1), None, Continuity::First);
        check(None, seq(5, 9), None, Continuity::First);
        check(Some(seq(5, 3)), seq(5, 3), None, Continuity::Repeat);
        check(Some(seq(5, 3)), seq(5, 1), None, Continuity::Repeat);
        check(Some(seq(5, 3)), seq(4, 9), None, Continuity::Repeat);
        check(Some(seq(5, 3)), seq(5, 4), None, Continuity::Follows);
        check(Some(seq(5, 3)), seq(5, 6), None, skip(seq(5, 4), seq(5, 5), 2, UnprovenLoss::None));
        check(Some(seq(5, 3)), seq(7, 1), None, Continuity::Restart);
        check(Some(seq(5, 3)), seq(7, 1), Some(seq(5, 3)), Continuity::Follows);
        check(Some(seq(5, COUNT_MAX)), seq(6, 1), Some(seq(5, COUNT_MAX)), Continuity::Follows);
        check(Some(seq(5, 3)), seq(7, 1), Some(seq(5, 5)), skip(seq(5, 4), seq(5, 5), 2, UnprovenLoss::None));
        check(Some(seq(5, 3)), seq(7, 1), Some(seq(6, 4)), skip(seq(6, 1), seq(6, 4), 4, UnprovenLoss::Any));
        check(Some(seq(5, 3)), seq(7, 3), None, skip(seq(7, 1), seq(7, 2), 2, UnprovenLoss::Earlier));
    }

    #[test]
    fn chain_that_contradicts_received_seqs_is_ignored() {
        check(Some(seq(5, 3)), seq(7, 1), Some(seq(5, 2)), Continuity::Restart);
        check(Some(seq(5, 3)), seq(7, 1), Some(seq(8, 2)), Continuity::Restart);
    }
}
