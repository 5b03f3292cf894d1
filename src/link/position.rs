//! Points in a stream, and the number of messages between two of them.
//!
//! A stream is what one publisher sends on one subject. Two counts describe a point in it. The gateway's own count is
//! dense, and goes on when the publisher numbers the subject anew; it ends with the gateway. The publisher's numbers
//! are the same at every gateway, so they compare points that two gateways have counted.

use crate::message::{Count, Epoch};
use crate::seqno::{Frame, Seq};
use std::cmp::Ordering;

/// Maximum number of lost messages that offsets prove to the gateway of the LAN. A larger one is taken for the random
/// offset of a new numbering whose first message was not delivered.
const OFFSET_LOSS_MAX: u64 = 1 << 20;

/// Numbers of a message in the stream of its publisher and its subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherPosition {
    /// Number of the message; `None` if its publisher had no memory left to number the subject (A8).
    pub seq: Option<Seq>,
    /// Offset in the subject's history (seed 000); `None` if unknown.
    pub offset: Option<u32>,
    /// Frame in which the publisher began to number the subject; `None` if that was before the gateway listened. The
    /// offsets of one numbering follow each other; a new one starts at a random offset.
    pub numbered_from: Option<Frame>,
    /// The last message of the numbering before, if the gateway received it.
    pub before: Option<NumberingEnd>,
    /// True if the numbers may include messages that are not exported, such as requests. Then they prove no loss.
    pub is_sparse: bool,
}

/// The last message of a numbering that the publisher has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberingEnd {
    /// Its number.
    pub seq: Seq,
    /// Its offset, if known.
    pub offset: Option<u32>,
    /// Frame in which its numbering began, if known.
    pub numbered_from: Option<Frame>,
}

/// A message of a stream, as one gateway has counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPoint {
    /// Epoch of the gateway.
    pub gateway: Epoch,
    /// Number in the share of the first message of the stream that the gateway counted.
    pub first_number: u64,
    /// Ordinal of this message among those that the gateway received or knows to be lost, from 1.
    pub ordinal: u64,
    /// The publisher's numbers.
    pub position: PublisherPosition,
}

impl StreamPoint {
    /// Returns whether this point is known to come before `other` in its stream.
    pub fn precedes(&self, other: &StreamPoint) -> bool {
        match (self.position.seq, other.position.seq) {
            (Some(own), Some(other)) => own < other,
            _ => self.is_same_count(other) && self.ordinal < other.ordinal,
        }
    }

    /// Returns whether this message is `last` or is known to come before it.
    pub fn is_covered_by(&self, last: &StreamPoint) -> bool {
        match (self.position.seq, last.position.seq) {
            (Some(own), Some(last)) => own <= last,
            _ => self.is_same_count(last) && self.ordinal <= last.ordinal,
        }
    }

    /// Returns the number of messages between `last` and this later point; `None` if there are none, or if nothing is
    /// known of them.
    pub fn missing_since(&self, last: &StreamPoint) -> Option<Count> {
        if self.is_same_count(last) && last.ordinal < self.ordinal {
            return Some(self.ordinal - last.ordinal - 1).filter(|count| 0 < *count).map(Count::Exact);
        }
        self.position.missing_since(last.position)
    }

    /// Returns whether the same count of a gateway has both points.
    pub(super) fn is_same_count(&self, other: &StreamPoint) -> bool {
        (self.gateway, self.first_number) == (other.gateway, other.first_number)
    }
}

impl PublisherPosition {
    /// Returns the number of messages between `last` and this later one, by the publisher's numbers alone.
    pub fn missing_since(self, last: PublisherPosition) -> Option<Count> {
        let numbered = self.numbered_since(last)?;
        let is_sparse = self.is_sparse || last.is_sparse;
        Some(if is_sparse { Count::from_bounds(0, numbered.max()) } else { numbered })
    }

    /// Returns the number of messages between `last` and this later one that the publisher has numbered.
    fn numbered_since(self, last: PublisherPosition) -> Option<Count> {
        let (seq, last_seq) = (self.seq?, last.seq?);
        if seq.frame() == last_seq.frame() {
            let between = seq.count().saturating_sub(last_seq.count()).saturating_sub(1);
            return Some(between).filter(|count| 0 < *count).map(Count::Exact);
        }
        // The messages of this frame come after `last`, which is in an earlier frame.
        let min = seq.count() - 1;
        let steps = self.offset.zip(last.offset).map(|(own, last)| u64::from(own.wrapping_sub(last)).saturating_sub(1));
        let count = match (self.numbered_from.zip(last.numbered_from), steps) {
            (Some((own, earlier)), _) if own != earlier => match self.missing_to_end(last) {
                // The frame in which a numbering begins holds its first messages.
                Some(missing) if own == seq.frame() => sum(missing, Count::Exact(min)),
                missing => Count::from_bounds(missing.map_or(0, Count::min).saturating_add(min), u64::MAX),
            },
            // A larger number would mean that the offset went back: one of the two is wrong.
            (Some(_), Some(steps)) if steps < 1 << 31 => Count::Exact(steps),
            (Some(_), Some(_)) => Count::from_bounds(min, u64::MAX),
            // It is unknown whether the publisher began a new numbering between the two. If it did, the offset is
            // random, and so large that it bounds the number all the same.
            (_, steps) => Count::from_bounds(min, steps.unwrap_or(u64::MAX).max(min)),
        };
        Some(count).filter(|count| 0 < count.max())
    }

    /// Returns the position with what another one in the same frame proves. Numbers within a frame are dense, and a new
    /// numbering begins with a new frame.
    pub(super) fn completed_by(self, other: PublisherPosition) -> PublisherPosition {
        let Some((seq, other_seq)) = self.seq.zip(other.seq) else { return self };
        if seq.frame() != other_seq.frame() {
            return self;
        }
        let steps = seq.count().wrapping_sub(other_seq.count()) as u32;
        let offset = self.offset.or_else(|| Some(other.offset?.wrapping_add(steps)));
        let (numbered_from, before) = match self.numbered_from {
            Some(_) => (self.numbered_from, self.before),
            None => (other.numbered_from, other.before),
        };
        PublisherPosition { offset, numbered_from, before, is_sparse: self.is_sparse || other.is_sparse, ..self }
    }

    /// Completes the numbers of a message that the LAN delivered after `last`, without a new numbering. In between it
    /// reported `skipped` messages as lost. Returns the number of messages that were lost at least: messages that the
    /// gateway's own queue dropped are known by the numbers alone.
    pub(super) fn continue_after(&mut self, last: PublisherPosition, skipped: Count) -> u64 {
        (self.numbered_from, self.before) = (last.numbered_from, last.before);
        let by_numbers = PublisherPosition { offset: None, ..*self }.numbered_since(last).unwrap_or(Count::Exact(0));
        let steps = self.offset.zip(last.offset).map(|(own, last)| u64::from(own.wrapping_sub(last)).saturating_sub(1));
        let loss_max = OFFSET_LOSS_MAX.max(skipped.max());
        let (proven, is_continued) = match steps {
            Some(steps) if !by_numbers.is_exact() && by_numbers.min() <= steps && steps <= loss_max => {
                (Count::Exact(steps), true)
            }
            _ => (by_numbers, by_numbers.is_exact() || steps.is_none()),
        };
        let lost = skipped.min().max(proven.min());
        if is_continued && (proven.is_exact() || skipped.is_exact() && proven.min() <= skipped.min()) {
            // Publishers send the offset with the first message of a frame only; it is dense over the frames.
            self.offset = self.offset.or_else(|| Some(last.offset?.wrapping_add(lost as u32).wrapping_add(1)));
        } else {
            // A new numbering may have begun among the lost messages.
            (self.numbered_from, self.before) = (None, None);
        }
        lost
    }

    /// Returns the number of messages behind `last` in its numbering, if this message is of the next numbering.
    fn missing_to_end(self, last: PublisherPosition) -> Option<Count> {
        let NumberingEnd { seq, offset, numbered_from } = self.before?;
        if numbered_from != last.numbered_from {
            return None;
        }
        let end = PublisherPosition { seq: Some(seq), offset, numbered_from, ..PublisherPosition::default() };
        match last.seq?.cmp(&seq) {
            Ordering::Less => Some(one_more(end.numbered_since(last))),
            Ordering::Equal => Some(Count::Exact(0)),
            Ordering::Greater => None,
        }
    }
}

/// Returns a count that is larger by one; `None` counts as none.
pub(super) fn one_more(count: Option<Count>) -> Count {
    sum(count.unwrap_or(Count::Exact(0)), Count::Exact(1))
}

/// Returns the sum of two counts.
pub(super) fn sum(one: Count, other: Count) -> Count {
    Count::from_bounds(one.min().saturating_add(other.min()), one.max().saturating_add(other.max()))
}
