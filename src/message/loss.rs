//! Losses: their extent, reason and cause.

use super::{Dseq, Publisher};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use std::fmt;

/// A number that is exact, or lies between two known bounds. It never uses 1 for an unknown number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The exact number.
    Exact(u64),
    /// At least `min`, at most `max`.
    Between {
        /// Smallest possible number.
        min: u64,
        /// Largest possible number.
        max: u64,
    },
}

impl Count {
    /// Creates a count from its bounds; `Exact` if both are equal.
    pub fn from_bounds(min: u64, max: u64) -> Count {
        if min == max { Count::Exact(min) } else { Count::Between { min, max: max.max(min) } }
    }

    /// Returns the smallest possible number.
    pub fn min(self) -> u64 {
        match self {
            Count::Exact(count) => count,
            Count::Between { min, .. } => min,
        }
    }

    /// Returns the largest possible number.
    pub fn max(self) -> u64 {
        match self {
            Count::Exact(count) => count,
            Count::Between { max, .. } => max,
        }
    }

    /// Returns whether the number is exact.
    pub fn is_exact(self) -> bool {
        matches!(self, Count::Exact(_))
    }
}

impl fmt::Display for Count {
    /// Formats it as `7`, or `0..7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Exact(count) => write!(f, "{count}"),
            Count::Between { min, max } => write!(f, "{min}..{max}"),
        }
    }
}

/// Reason for which messages or datagrams count as lost or unverified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Repair is off: the loss is reported after the reorder grace.
    Disabled,
    /// The loss was not repaired within `reliability`.
    Deadline,
    /// The publisher has evicted the messages from its history.
    Expired,
    /// A limit of this peer was reached.
    Overflow,
    /// The publisher left (BYE) or was given up.
    PublisherGone,
    /// No datagram of the publisher arrived within the silence timeout. The publisher may resume, which closes the
    /// loss.
    Silent,
    /// The publisher's epoch ended without BYE.
    Crashed,
    /// A receiver of this peer's data reported the loss without a reason.
    Reported,
    /// The publisher's unicast datagrams arrive, but not its multicast ones (wire.md W111). In advisories only.
    Blackhole,
    /// Datagrams in the publisher's name contradict each other, so one of them is forged.
    Contradicted,
    /// The datagrams precede the first contact with a publisher of unknown age. It is unknown whether they were sent to
    /// this peer.
    Start,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 11] = [
        Reason::Disabled,
        Reason::Deadline,
        Reason::Expired,
        Reason::Overflow,
        Reason::PublisherGone,
        Reason::Silent,
        Reason::Crashed,
        Reason::Reported,
        Reason::Blackhole,
        Reason::Contradicted,
        Reason::Start,
    ];

    /// Returns the name in logs, JSON and advisories.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Disabled => "DISABLED",
            Reason::Deadline => "DEADLINE",
            Reason::Expired => "EXPIRED",
            Reason::Overflow => "OVERFLOW",
            Reason::PublisherGone => "PUBLISHER_GONE",
            Reason::Silent => "SILENT",
            Reason::Crashed => "CRASHED",
            Reason::Reported => "REPORTED",
            Reason::Blackhole => "MCAST_BLACKHOLE",
            Reason::Contradicted => "CONTRADICTED",
            Reason::Start => "START",
        }
    }
}

// Counters are indexed by the position of the reason in the list.
const _: () = {
    let mut index = 0;
    while index < Reason::ALL.len() {
        assert!(Reason::ALL[index] as usize == index, "the list is in the order of declaration");
        index += 1;
    }
    assert!(Reason::Start as usize + 1 == Reason::ALL.len(), "the last reason ends the list");
};

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Location at which datagrams went missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Between the publisher and this host, as far as this host can determine.
    Network,
    /// This host's kernel dropped the missing datagrams because the receive buffer was full.
    LocalOverrun {
        /// Datagrams that the kernel's drop counter accounts for.
        datagrams: u64,
    },
    /// Both: this host's kernel dropped a part of the missing datagrams, and the others never reached it.
    Mixed {
        /// Datagrams that the kernel's drop counter accounts for.
        overrun: u64,
        /// All other missing datagrams.
        network: u64,
    },
}

/// Number of missing datagrams, and the number of those that this host's kernel dropped. They determine the cause of a
/// loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingDatagrams {
    /// Number of missing datagrams; 0 if the loss is not in datagrams, or in unknown ones.
    pub datagrams: u64,
    /// Number of missing datagrams that the kernel's drop counter accounts for.
    pub overrun: u64,
}

impl MissingDatagrams {
    /// Adds the numbers of another loss.
    pub fn plus(self, other: MissingDatagrams) -> MissingDatagrams {
        MissingDatagrams {
            datagrams: self.datagrams.saturating_add(other.datagrams),
            overrun: self.overrun.saturating_add(other.overrun),
        }
    }

    /// Returns the cause of a loss of these datagrams.
    pub fn cause(self) -> Cause {
        match (self.overrun, self.datagrams.saturating_sub(self.overrun)) {
            (0, _) => Cause::Network,
            (datagrams, 0) => Cause::LocalOverrun { datagrams },
            (overrun, network) => Cause::Mixed { overrun, network },
        }
    }
}

impl Cause {
    /// Returns the number of missing datagrams that this host's kernel dropped.
    pub fn overrun(&self) -> u64 {
        match *self {
            Cause::Network => 0,
            Cause::LocalOverrun { datagrams: overrun } | Cause::Mixed { overrun, .. } => overrun,
        }
    }

    /// Returns the number of missing datagrams that this host's kernel did not drop, if it dropped others of the loss.
    pub fn network(&self) -> u64 {
        match *self {
            Cause::Network | Cause::LocalOverrun { .. } => 0,
            Cause::Mixed { network, .. } => network,
        }
    }

    /// Returns the name in logs, JSON and advisories.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Network => "NETWORK",
            Cause::LocalOverrun { .. } => "LOCAL_OVERRUN",
            Cause::Mixed { .. } => "MIXED",
        }
    }
}

/// A loss, or an unverified range. It is delivered like a message, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The publisher whose data is lost.
    pub publisher: Publisher,
    /// Extent of the loss.
    pub what: LossScope,
    /// Reason of the loss.
    pub reason: Reason,
    /// Cause of the loss, as far as known.
    pub cause: Cause,
    /// Time at which the peer settled the loss.
    pub at: WallTime,
}

/// Extent of a [`Loss`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossScope {
    /// Messages of one subject that the publisher sent and this peer will not deliver: *lost*.
    Messages {
        /// The subject.
        subject: Subject,
        /// Lowest missing number.
        first: Seq,
        /// Highest missing number.
        last: Seq,
        /// Number of missing messages.
        count: Count,
    },
    /// Datagrams of unknown content: *unverified* until a later message of a subject proves their content. An
    /// incomplete large message without a number (A8) is reported as the datagram in which it began.
    Datagrams {
        /// The first datagram.
        first: Dseq,
        /// The last datagram.
        last: Dseq,
        /// Number of unexplained messages in them, of any subject, subscribed or not. It is exact, unless an earlier
        /// reported loss may lie in these or in other datagrams.
        messages: Count,
    },
    /// The publisher fell silent, so it is unknown whether it sent more datagrams. With [`Reason::Silent`] the
    /// publisher may resume; with [`Reason::Crashed`] it cannot.
    Tail {
        /// Highest known datagram.
        after: Dseq,
    },
    /// Messages sent to this peer alone (replies, polls): the inbox loss of `show loss`.
    Inbox {
        /// Number of messages; exact.
        messages: u64,
    },
}
