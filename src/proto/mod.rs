//! The protocol core: state machines without I/O.
//!
//! There is no socket, clock, thread, lock, log line or global here. Time and randomness are arguments. Data for the
//! network or for a client leaves as an [`effect::Effect`]; calls of the peer also return refusals and rows of reports.
//!
//! The rules of loss accounting have short names. `// Rule: <name>` stands where a rule is kept, and `/// Proves:
//! <name>` in the doc comment of a test that shows it; `tests/tidy.rs` requires both. Numbers such as R1 and A2, here
//! and in comments, are those of `docs/loss-accounting.md`.
//!
//! | rule | meaning | source |
//! |---|---|---|
//! | `epoch` | a run of a peer has its own ledger; a new run closes the old one's tail | R1 |
//! | `number` | datagrams are numbered without gaps, control datagrams separately | R2 |
//! | `heartbeat` | heartbeats repeat the highest number, ever more rarely; only newer datagrams prove liveness | R3 |
//! | `baseline` | a receiver older than the publisher is owed everything, others what follows first contact | R4 |
//! | `gap` | a skipped datagram is pending for the grace, then settled | R5, A2 |
//! | `silence` | a silent publisher is reported, and its ledger is kept | R8 |
//! | `blackhole` | a peer whose unicasts arrive and whose multicasts do not is reported; the group is rejoined | W111 |
//! | `overflow` | limits end gaps early and report so; they never prevent detection | R9, A8 |
//! | `frame` | a new frame is above every evicted frame; no proof depends on a clock | R10, A11 |
//! | `evict` | only idle subjects leave the windows, and an evicted subject proves nothing | R11 |
//! | `cross-check` | numbers of subjects and counts of datagrams must agree | R12 |
//! | `release` | a message is released if it directly follows its subject's last, or if no earlier gap is open | A3 |
//! | `quarantine` | an implausible jump waits for a second datagram | A10 |
//! | `resend` | a request is answered with the very datagram, with its manifest, or with an expiry notice | R6 |
//! | `proof` | no answer goes to an address that did not return its token | W99 to W102 |
//! | `linger` | a stopping peer stays while others request, but not forever | R6 |
//! | `suppress` | the first request gets a unicast, the second a multicast, a premature one nothing | A9 |
//! | `credit` | no peer is sent much more than it can miss, however often it requests | W114 |
//! | `budget` | answers take a quarter of the live rate, or the minimum, and a burst; requesters share equally | W114 |
//! | `pace` | no receiver is sent more than its receive window, and no datagram is announced before it is sent | W132, W135 |
//! | `pace-resends` | no datagram is sent if pending requests could then no longer be answered | W132 |
//! | `pace-proven` | a receiver with an unproven address is waited for during 200 ms at most | W133 |
//! | `flow-exclusion` | a receiver slower than the floor is not waited for until it has caught up | W133 |
//! | `publish-suppression` | a suppressed message takes no number; confirmed subscriptions miss nothing | W143, W145 |
//! | `advisory-throttle` | the first advisory at once, then one a second with sums; pending sums are flushed at the end | seed 002 |

mod address_proof;
pub mod advisory;
pub mod certified;
mod contact;
mod continuity;
mod departed;
pub mod effect;
mod fragment;
mod globs;
pub mod history;
pub mod interest;
mod interest_sync;
pub mod join;
mod ledger;
pub mod list_pools;
mod liveness;
mod local_interest;
mod loss;
mod member_streams;
mod member_table;
mod members;
pub mod mutant;
mod nak;
mod newest_control;
pub mod pace;
mod path_probe;
pub mod peer;
mod quarantine;
pub mod question;
mod queue_ledger;
mod rebuild;
mod recv;
mod refusals;
pub mod remote_interest;
mod reported_loss;
pub mod resend;
pub mod run_batch;
pub mod run_delivery;
mod send;
pub mod stats;
mod stream_item;
pub mod subject_run;
mod transit;
mod wall_clock;
pub mod window;

use crate::message::PeerName;
use crate::proto::history::HistorySettings;
use crate::proto::mutant::Mutants;
use crate::proto::pace::PaceSettings;
use crate::proto::resend::{ResendSettings, RingSettings};
pub use crate::wire::CheckValue;
use std::time::Duration;

/// All settings of the core. `config` holds the defaults of the product and fills them in; the simulator draws them
/// from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name for people; not necessarily unique.
    pub name: PeerName,
    /// The group's number in every datagram: the UDP port of the multicast group (the seed's `scid`).
    pub group: u16,
    /// The largest datagram to send, in bytes of UDP payload; from 576 to 65,507.
    pub datagram_bytes_max: usize,
    /// The kind of check value at the end of sent and received datagrams.
    pub check_value: CheckValue,
    /// The largest message to publish, in bytes of payload, headers and reply subject; at most
    /// [`MESSAGE_BYTES_MAX`](crate::message::MESSAGE_BYTES_MAX).
    pub message_bytes_max: usize,
    /// The interval of heartbeats when idle (R3); silence is 3.5 times the interval that a publisher announces.
    pub heartbeat: Duration,
    /// T_rec: time for which a missing datagram is awaited before it is settled (A1). If it is at most the grace,
    /// nothing is requested.
    pub reliability: Duration,
    /// Settings of loss recovery.
    pub recovery: Recovery,
    /// Time for which a silent epoch is remembered before it is given up as crashed.
    pub forget: Duration,
    /// The publication window.
    pub pub_window: WindowSettings,
    /// The subscription window.
    pub sub_window: WindowSettings,
    /// Number of messages that a frame holds before the count wraps into a new frame: 2^35 - 1. Only tests use less.
    pub frame_messages_max: u64,
    /// Maximum bytes of messages that wait for an earlier datagram, over all publishers (A7).
    pub hold_bytes_max: usize,
    /// Maximum bytes of incomplete large messages for each publisher (A12).
    pub reassembly_bytes_max: usize,
    /// Maximum number of incomplete large messages for each publisher.
    pub reassembly_sets_max: usize,
    /// Maximum number of pending ranges, and of settled ranges that may still be explained, for each publisher (R9).
    pub gaps_max: usize,
    /// Maximum number of epochs of other peers that are members.
    pub peers_max: usize,
    /// Maximum number of subscriptions of one client.
    pub client_subscriptions_max: usize,
    /// Maximum number of subscriptions of all clients together.
    pub subscriptions_max: usize,
    /// Maximum number of advertised subscriptions of all other peers; a peer beyond that counts as not known.
    pub interest_max: usize,
    /// True if messages that match no subscription of other peers are suppressed.
    pub suppresses: bool,
    /// Maximum number of subjects in the match cache.
    pub match_cache_max: usize,
    /// Minimum time between two advisories about one publisher, after the first.
    pub advisory_interval: Duration,
    /// Maximum number of subjects named in one advisory; the rest are counted.
    pub advisory_subjects_max: usize,
    /// Settings of the sending rate and of this peer's receive capacity.
    pub pace: PaceSettings,
    /// Deliberate mistakes, for the tests of the simulator's oracle; `Mutants::default()` makes none.
    pub mutants: Mutants,
}

/// Settings of loss recovery: of this peer's requests, and of its answers to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Time for which a missing datagram may simply be late, before it is requested from the publisher.
    pub grace: Duration,
    /// Settings of the retransmit ring (A7).
    pub ring: RingSettings,
    /// Minimum budget of answers to requests, in bytes per second; the budget is larger if more than four times as much
    /// is sent anyway.
    pub resend_rate_min: u64,
    /// Settings of the retained messages of each subject, for polls and late joiners (seed 000).
    pub history: HistorySettings,
    /// Maximum time that a stopping peer stays while others request missing datagrams.
    pub linger: Duration,
}

impl Recovery {
    /// Returns the grace of R5 and small bounds, for many peers in one process.
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
    /// Returns the limits of answering requests.
    fn resends(&self) -> ResendSettings {
        ResendSettings {
            rate_min: match self.mutants.is(mutant::Mutant::NoBudget) {
                true => 1 << 40,
                false => self.recovery.resend_rate_min,
            },
            datagram_bytes_max: self.datagram_bytes_max,
            requesters_max: self.peers_max,
            ring_bytes: self.recovery.ring.bytes_max as u64,
        }
    }

    /// Returns whether missing datagrams are requested.
    pub fn repairs(&self) -> bool {
        self.recovery.grace < self.reliability
    }
}

/// One sequence window (seed 002, "Publish/Subscription sequence window"; A8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSettings {
    /// Rotate when the current generation exceeds this many bytes and `time` has passed.
    pub bytes: usize,
    /// Minimum time between two rotations, and thus the minimum time that an idle entry stays; at least 10 s for
    /// publishers.
    pub time: Duration,
    /// The hard limit in bytes: beyond it new subjects get no entry.
    pub bytes_max: usize,
}
