//! The kinds of fault.

use crate::rng::Rng;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The kinds of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl FaultKind {
            /// Every kind, in the order of declaration.
            pub const ALL: &'static [FaultKind] = &[$(FaultKind::$name,)+];

            /// Returns the name in tables.
            pub fn as_str(self) -> &'static str {
                match self { $(FaultKind::$name => stringify!($name),)+ }
            }
        }
    };
}

faults! {
    /// Each packet copy is lost with a probability up to 30 %.
    Loss,
    /// Loss in bursts (Gilbert-Elliott).
    Burst,
    /// Packets arrive twice.
    Duplicate,
    /// Packets overtake each other within the reorder grace.
    ReorderWithin,
    /// Packets are late by more than the reorder grace.
    ReorderBeyond,
    /// A latency of milliseconds instead of microseconds.
    Delay,
    /// A link is down for 50 ms to 3 s.
    Flap,
    /// The peers fall into two halves that do not hear each other.
    Partition,
    /// Some peers are heard by others but do not hear them.
    OneWay,
    /// Multicast does not reach a peer while unicast does.
    MulticastDead,
    /// A peer crashes and restarts within a frame (8.59 s).
    CrashSoon,
    /// A peer crashes and restarts after more than a frame.
    CrashLate,
    /// A restarted peer uses another port.
    OtherPort,
    /// A peer stops with a BYE, and may restart.
    Stop,
    /// A wall clock steps by up to a minute either way.
    ClockSeconds,
    /// A wall clock steps by up to a day either way.
    ClockHours,
    /// A wall clock is set to 1970.
    Clock1970,
    /// A wall clock is set to 2115.
    Clock2115,
    /// A wall clock is beyond the last frame (2116), so a peer that needs another frame begins a new epoch.
    ClockBeyond,
    /// Boot clocks run up to 500 ppm fast or slow.
    Skew,
    /// Peers start while others are already publishing.
    LateJoin,
    /// Subscriptions come and go.
    Resubscribe,
    /// Publication windows so small that subjects rotate out and some get no number.
    TinyPubWindow,
    /// Subscription windows so small that subjects rotate out and some are not tracked.
    TinySubWindow,
    /// Frames of a few messages.
    TinyFrames,
    /// Limits on buffered messages, gaps and reassembly so small that peers reach them.
    TinyLimits,
    /// Messages larger than a datagram.
    Large,
    /// Bytes are flipped and datagrams cut in flight.
    Corrupt,
    /// Foreign datagrams and garbage arrive.
    Garbage,
    /// Requests and replies between two peers.
    Directed,
    /// A receive buffer of few datagrams, and short pauses of the reader.
    Overrun,
    /// A process pauses for up to 5 s.
    Pause,
    /// Old packets arrive again, seconds later.
    Replay,
    /// Epochs are forgotten after a short silence.
    ShortForget,
    /// Receivers request no missing datagrams.
    NoRepair,
    /// Few datagrams can be retransmitted.
    TinyRing,
    /// Publishers retain few or no manifests of datagrams that they cannot retransmit.
    TinyManifests,
    /// Publishers retain few messages of each subject, or none.
    TinyHistory,
    /// Retransmissions are limited to a few kilobytes a second.
    SlowResends,
    /// A switch forgets that a peer is in the group: multicasts of another one do not reach it until it joins anew.
    Snooping,
    /// Some subscriptions are in mode live.
    Live,
    /// Some peers suppress messages without a subscriber.
    Suppression,
    /// Some clients are members of queue groups.
    Queues,
    /// The peers seal their datagrams, and authenticate each other before they use them.
    Keyed,
}

impl FaultKind {
    /// Returns the kinds that scenarios draw. Handshakes take long to simulate, so keyed peers have a sweep of their own.
    pub fn drawn() -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.iter().copied().filter(|kind| *kind != FaultKind::Keyed)
    }
}

/// The active kinds of fault, which scenario files list by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(u64);

impl Faults {
    /// Returns the set of these kinds.
    pub fn of(kinds: &[FaultKind]) -> Faults {
        kinds.iter().fold(Faults::default(), |sum, kind| sum.with(*kind))
    }

    /// Returns whether `kind` is on.
    pub fn has(self, kind: FaultKind) -> bool {
        self.0 >> (kind as u32) & 1 == 1
    }

    /// Returns the set with `kind` on as well.
    pub fn with(self, kind: FaultKind) -> Faults {
        Faults(self.0 | 1 << (kind as u32))
    }

    /// Returns the set with `kind` off.
    pub fn without(self, kind: FaultKind) -> Faults {
        Faults(self.0 & !(1 << (kind as u32)))
    }

    pub(super) fn draw(rng: &mut Rng) -> Faults {
        // Between none and about two fifths of the kinds.
        let share = rng.below(5) as f64 / 10.0;
        FaultKind::drawn().fold(Faults::default(), |sum, kind| if rng.chance(share) { sum.with(kind) } else { sum })
    }
}

impl Serialize for Faults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(FaultKind::ALL.iter().filter(|kind| self.has(**kind)).map(|kind| kind.as_str()))
    }
}

impl<'de> Deserialize<'de> for Faults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Faults, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().try_fold(Faults::default(), |sum, name| {
            let kind = FaultKind::ALL.iter().find(|kind| kind.as_str() == name);
            Ok(sum.with(*kind.ok_or_else(|| D::Error::custom(format!("{name:?} is no kind of fault")))?))
        })
    }
}
