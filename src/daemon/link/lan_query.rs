//! Queries of the link to the engine: what the programs of the LAN subscribe to.

use crate::link::interest_summary::{LanInterest, LanReceivers};
use crate::message::{ClientId, Epoch, SubscriptionFilter};
use crate::proto::peer::Peer;
use crate::proto::remote_interest::RemoteEntry;
use crate::subject::pattern_set::PatternSet;
use crate::subject::{Pattern, Subject};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Maximum number of different patterns of each kind in an answer. Beyond it everything counts as wanted.
const PATTERNS_MAX: usize = 4096;

/// A query of the link.
#[derive(Debug)]
pub(crate) struct LanQuery {
    /// The link as a client of the peer. Its own subscriptions do not count.
    pub(super) client: ClientId,
    /// Subscriptions of the LAN's other gateways, by the epochs of their peers. They do not count either.
    pub(super) gateways: Arc<BTreeMap<Epoch, PatternSet>>,
    pub(super) question: LanQuestion,
    pub(super) answer: Sender<LanAnswer>,
}

/// Question of the link.
#[derive(Debug)]
pub(super) enum LanQuestion {
    /// Numbers of the subscriptions that match the subject of a request with this number.
    Receivers { number: u64, subject: Subject },
    /// Patterns of the subscriptions to imported subjects, once any have changed since the answer with these counters.
    Interest { known: Option<(u64, u64)>, imports: PatternSet },
}

/// Answer of the engine.
#[derive(Debug)]
pub(super) enum LanAnswer {
    /// Subscriptions that match the subject of the request with this number.
    Receivers { number: u64, receivers: LanReceivers },
    /// Patterns of the subscriptions, with the change counters, and the number of subscriptions that were looked at.
    Interest { changes: (u64, u64), interest: LanInterest, visited: u32 },
}

impl LanQuery {
    /// Answers the query, or returns one that waits for a change. If the link does not take the answer, its request ends
    /// by the timeout.
    pub(crate) fn answer(self, peer: &mut Peer) -> Option<LanQuery> {
        if self.waits(peer) {
            return Some(self);
        }
        let LanQuery { client, gateways, question, answer } = self;
        let count_of = |entry: &RemoteEntry| program_count(&gateways, entry);
        let found = match question {
            LanQuestion::Receivers { number, subject } => {
                let counts = peer.receiver_counts(&subject, Some(client), count_of);
                let is_certain = peer.knows_all_interest();
                let receivers = LanReceivers { plain: counts.plain, groups: counts.groups, is_certain };
                LanAnswer::Receivers { number, receivers }
            }
            LanQuestion::Interest { imports, .. } => {
                let changes = peer.subscription_changes();
                let mut interest = LanInterest::default();
                let mut visited = 0;
                peer.visit_subscriptions(client, count_of, |wanted| {
                    visited += 1;
                    let SubscriptionFilter { pattern, queue, .. } = wanted;
                    if imports.intersects(pattern) {
                        let patterns = if queue.is_some() { &mut interest.groups } else { &mut interest.plain };
                        insert(patterns, pattern);
                    }
                });
                LanAnswer::Interest { changes, interest, visited }
            }
        };
        drop(answer.try_send(found));
        None
    }

    /// Returns whether the query waits for a change of the subscriptions.
    pub(crate) fn waits(&self, peer: &Peer) -> bool {
        matches!(self.question, LanQuestion::Interest { known: Some(known), .. } if known == peer.subscription_changes())
    }
}

/// Returns the number of an entry's subscriptions that belong to programs, and not to a gateway.
fn program_count(gateways: &BTreeMap<Epoch, PatternSet>, entry: &RemoteEntry) -> u32 {
    let SubscriptionFilter { pattern, glob, queue } = &entry.wanted;
    let is_plain = glob.is_none() && queue.is_none();
    let of_gateway = gateways.get(&entry.epoch).is_some_and(|set| set.patterns().iter().any(|own| own == pattern));
    entry.count.saturating_sub(u32::from(is_plain && of_gateway))
}

/// Adds a pattern. If there are too many, `>` replaces all.
fn insert(patterns: &mut BTreeSet<Pattern>, pattern: &Pattern) {
    match patterns.len() < PATTERNS_MAX {
        true => drop(patterns.insert(pattern.clone())),
        false => {
            patterns.clear();
            patterns.extend(">".parse::<Pattern>());
        }
    }
}
