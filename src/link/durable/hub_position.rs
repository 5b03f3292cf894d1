//! Positions in the cluster's stream.
//!
//! A stream that has lost its end gives sequences to other messages again, and its copies may disagree about the sequence
//! of a message (nats-server 2.9, after deaths of servers and full disks). The time at which a message was stored is the
//! same in all copies, so a position has both.

use crate::time::WallTime;
use std::fmt;
use std::str::FromStr;

/// Arrival of a message in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredArrival {
    /// Stream sequence of the message, from 1.
    pub sequence: u64,
    /// Time by the clock of the cluster.
    pub at: WallTime,
}

/// Position in the stream: a message, with all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubPosition {
    /// Stream sequence; 0 before the first message.
    pub sequence: u64,
    /// Time at which the message was stored, by the clock of the cluster, if it is known.
    pub at: Option<WallTime>,
}

impl HubPosition {
    /// Returns the position at a stream sequence.
    pub fn of_sequence(sequence: u64) -> HubPosition {
        HubPosition { sequence, at: None }
    }

    /// Returns whether a message is at this position or before it.
    pub fn covers(&self, arrival: StoredArrival) -> bool {
        arrival.sequence <= self.sequence && self.at.is_none_or(|at| arrival.at <= at)
    }

    /// Returns whether a later message has a sequence up to this position: sequences were given again, or differ.
    pub fn is_reused_by(&self, arrival: StoredArrival) -> bool {
        arrival.sequence <= self.sequence && !self.covers(arrival)
    }

    /// Returns the earlier one of this position and that of a stream sequence.
    #[must_use]
    pub fn up_to(self, sequence: u64) -> HubPosition {
        if self.sequence <= sequence { self } else { HubPosition::of_sequence(sequence) }
    }
}

impl From<StoredArrival> for HubPosition {
    fn from(arrival: StoredArrival) -> HubPosition {
        HubPosition { sequence: arrival.sequence, at: Some(arrival.at) }
    }
}

/// The stream sequence, and the time in nanoseconds since 1970 if it is known.
impl fmt::Display for HubPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{} {}", self.sequence, at.as_nanos()),
            None => write!(f, "{}", self.sequence),
        }
    }
}

/// The text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedPosition;

impl FromStr for HubPosition {
    type Err = MalformedPosition;

    fn from_str(text: &str) -> Result<HubPosition, MalformedPosition> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| MalformedPosition);
        Ok(match text.split_once(' ') {
            Some((sequence, at)) => {
                HubPosition { sequence: number(sequence)?, at: Some(WallTime::from_nanos(number(at)?)) }
            }
            None => HubPosition::of_sequence(number(text)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_written() {
        let known = HubPosition { sequence: 120, at: Some(WallTime::from_nanos(7)) };
        for position in [known, HubPosition::of_sequence(120), HubPosition::default()] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in ["", "12x", "-1", "99999999999999999999", "1 ", " 1", "1 x", "1 2 3"] {
            assert_eq!(text.parse::<HubPosition>(), Err(MalformedPosition), "{text:?}");
        }
    }

    #[test]
    fn later_message_with_earlier_sequence_is_new() {
        let position = HubPosition { sequence: 120, at: Some(WallTime::from_nanos(50)) };
        let at = |sequence, nanos| StoredArrival { sequence, at: WallTime::from_nanos(nanos) };
        for (arrival, is_covered, is_passed) in
            [(at(120, 50), true, false), (at(100, 60), false, true), (at(121, 40), false, false)]
        {
            let found = (position.covers(arrival), position.is_reused_by(arrival));
            assert_eq!(found, (is_covered, is_passed), "{arrival:?}");
        }
        assert!(position.up_to(130) == position && position.up_to(110) == HubPosition::of_sequence(110));
    }
}
