//! The protocol core: state machines without I/O.
//!
//! There is no socket, clock, thread, lock, log line or global here: time and chance are arguments,
//! and everything that happens leaves as an [`effect::Effect`].
//!
//! The rules of loss accounting have short names. `// Rule: <name>` stands where a rule is kept, and `/// Proves: <name>`
//! in the doc comment of a test that shows it; a test of the tree wants both.
//!
//! | rule | says | source |
//! |---|---|---|
//! | `epoch` | a run of a peer has its own ledger; a new run closes the old one's tail | R1 |
//! | `number` | datagrams are numbered without gaps, control datagrams apart | R2 |
//! | `heartbeat` | the highest number is repeated, decaying, by multicast and unicast; only what is new shows life | R3 |
//! | `baseline` | who listened before the publisher started is owed everything, others what follows first contact | R4 |
//! | `gap` | what is skipped is pending for the grace, then settled | R5, A2 |
//! | `silence` | silence is told, its ledger is kept | R8 |
//! | `blackhole` | whose unicast words come alone is not heard by multicast: told, and the group joined anew | 3.4 |
//! | `overflow` | limits end gaps early and tell so; they never cost detection | R9, A8 |
//! | `frame` | a new frame is above every frame given up; no proof depends on a clock | R10, A11 |
//! | `evict` | only idle subjects leave the windows, and what left proves nothing | R11 |
//! | `cross-check` | numbers of subjects and counts of datagrams must agree | R12 |
//! | `release` | a message is released when it follows its subject's last, or nothing before it is open | A3 |
//! | `quarantine` | an implausible jump waits for a second word | A10 |
//! | `resend` | a request is answered with the very datagram, with what it held, or with word that it is gone | R6 |
//! | `proof` | no answer goes to an address that did not send back what was sent to it | 5.6 |
//! | `linger` | who stops stays while others ask, but not for ever | R6 |
//! | `suppress` | the first asker gets a unicast, a second one makes it a multicast, who asks too soon gets nothing | A9 |
//! | `credit` | nobody is sent much more than it can miss, however often it asks | 5.6 |
//! | `budget` | answers take a quarter of the live rate, or the least rate, and a burst; each asker an equal share | 5.6 |
//! | `pace` | nobody is sent more than it has room for, and nothing is told as sent before it is | 3.2 |
//! | `pace-resends` | nobody is sent so much that what it still asks for cannot be sent again | 3.2 |
//! | `pace-proven` | who has not proven its address is waited for during 200 ms at most | 3.2 |
//! | `left-behind` | who takes less than the floor is not waited for until it has come close again | 3.2 |
//! | `spare` | what is not sent takes no number, and whoever was told that it is known gets what it wants | W143, W145 |
//! | `advisory-throttle` | the first at once, then one a second with sums, the last flushed | seed 002 |

pub mod advisory;
mod continuity;
pub mod delivery;
mod departed;
pub mod effect;
mod fragment;
mod globs;
pub mod history;
pub mod interest;
mod interest_sync;
pub mod join;
mod ledger;
mod liveness;
mod local_interest;
mod loss;
mod members;
pub mod mutant;
mod nak;
mod newest_control;
pub mod pace;
pub mod peer;
pub mod question;
mod queue_ledger;
mod rebuild;
mod recv;
mod refusals;
mod remote_interest;
pub mod resend;
mod send;
pub mod stats;
pub mod subject_run;
mod transit;
pub mod window;

use crate::message::PeerName;
use crate::proto::history::HistorySettings;
use crate::proto::mutant::Mutants;
use crate::proto::pace::PaceSettings;
use crate::proto::resend::{ResendSettings, RingSettings};
use std::time::Duration;

/// Everything that can be set on the core. `config` holds the defaults of the product and fills this in;
/// the simulator draws it from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name for people; not necessarily unique.
    pub name: PeerName,
    /// The group's number in every datagram: the UDP port of the multicast group (the seed's `scid`).
    pub group: u16,
    /// The largest datagram to send, in bytes of UDP payload; from 576 to 65,507.
    pub datagram_bytes_max: usize,
    /// The largest message to publish, in bytes of payload, headers and reply subject; at most
    /// [`MESSAGE_BYTES_MAX`](crate::message::MESSAGE_BYTES_MAX).
    pub message_bytes_max: usize,
    /// The interval of heartbeats when idle (R3); silence is 3.5 times the interval that a publisher announces.
    pub heartbeat: Duration,
    /// T_rec: how long a missing datagram is waited for before it is settled (A1). Up to the grace, nothing is asked for.
    pub reliability: Duration,
    /// How what is missing is got back.
    pub recovery: Recovery,
    /// How long an epoch that fell silent is remembered before it is given up as crashed.
    pub forget: Duration,
    /// The publication window.
    pub pub_window: WindowSettings,
    /// The subscription window.
    pub sub_window: WindowSettings,
    /// Messages a frame holds before the count wraps into a new one: 2^35 - 1. Smaller only to test the wrap.
    pub frame_messages_max: u64,
    /// Bytes of messages held for an earlier datagram, over all publishers (A7).
    pub hold_bytes_max: usize,
    /// Bytes of incomplete large messages for each publisher (A12).
    pub reassembly_bytes_max: usize,
    /// Incomplete large messages for each publisher.
    pub reassembly_sets_max: usize,
    /// Pending ranges, and settled ranges that may still be explained, for each publisher (R9).
    pub gaps_max: usize,
    /// Epochs of other peers that are remembered.
    pub peers_max: usize,
    /// Subscriptions of one client.
    pub client_subscriptions_max: usize,
    /// Subscriptions of all clients together.
    pub subscriptions_max: usize,
    /// Entries of what other peers' clients subscribe to, of all of them; a peer beyond that counts as not known.
    pub interest_max: usize,
    /// Whether what nobody at other peers is known to want is not sent.
    pub spares: bool,
    /// Subjects in the match cache.
    pub match_cache_max: usize,
    /// The least time between two advisories about one publisher, after the first.
    pub advisory_interval: Duration,
    /// Subjects named in one advisory; the rest are counted.
    pub advisory_subjects_max: usize,
    /// How fast to send, and what this peer can take.
    pub pace: PaceSettings,
    /// Deliberate mistakes, for the tests of the simulator's oracle; `Mutants::default()` makes none.
    pub mutants: Mutants,
}

/// How what is missing is got back: from others, and by others from this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How long a missing datagram may simply be late, before the publisher is asked for it.
    pub grace: Duration,
    /// What is kept of datagrams sent, for resends (A7).
    pub ring: RingSettings,
    /// Bytes a second that answers to requests may take at least; more if more than four times as much is sent anyway.
    pub resend_rate_min: u64,
    /// What is kept of the messages of each subject, for polls and late joiners (seed 000).
    pub history: HistorySettings,
    /// How long a peer that stops stays at most while others ask for what they miss of it.
    pub linger: Duration,
}

impl Recovery {
    /// The grace of R5 and small bounds, for many peers in one process.
    pub fn modest() -> Recovery {
        let time = Duration::from_secs(30);
        Recovery {
            grace: Duration::from_millis(5),
            ring: RingSettings { bytes_max: 4 << 20, time, manifest_bytes_max: 4 << 20 },
            resend_rate_min: 8 << 20,
            history: HistorySettings {
                count_max: 100,
                bytes_max: 64 << 10,
                time: Duration::from_secs(3600),
                total_bytes_max: 4 << 20,
                overrides: Vec::new(),
            },
            linger: Duration::from_secs(2),
        }
    }
}

impl Settings {
    /// The limits of answering requests.
    fn resends(&self) -> ResendSettings {
        ResendSettings {
            rate_min: match self.mutants.is(mutant::Mutant::NoBudget) {
                true => 1 << 40,
                false => self.recovery.resend_rate_min,
            },
            datagram_bytes_max: self.datagram_bytes_max,
            requesters_max: self.peers_max,
            kept_bytes: self.recovery.ring.bytes_max as u64,
        }
    }

    /// Whether missing datagrams are asked for.
    pub fn repairs(&self) -> bool {
        self.recovery.grace < self.reliability
    }
}

/// One sequence window (seed 002, "Publish/Subscription sequence window"; reliability.md A8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSettings {
    /// Rotate when the current generation exceeds this many bytes and `time` has passed.
    pub bytes: usize,
    /// The least time between two rotations, thus the least time that an idle entry stays; at least 10 s for publishers.
    pub time: Duration,
    /// The hard limit in bytes: beyond it new subjects get no entry.
    pub bytes_max: usize,
}
