//! Queries of other peers to the journal of events, from their arrival until the publication of their answers.

use crate::event::replication::ReplicationPage;
use crate::message::Epoch;
use crate::subject::Subject;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::BTreeSet;

/// Maximum number of queries of other peers in progress. Further queries get no answer, and their peers must retry. The
/// log reports the first, second, fourth … of these.
const PAGES_MAX: usize = 64;

/// A peer that sent a query, the subject of the reply, and the reply; `None` if the journal cannot be read.
pub(super) type PageReply = (Epoch, Subject, Option<ReplicationPage>);

/// Queries of other peers, each from its arrival until the publication of its answer: at most one of each peer, and at
/// most [`PAGES_MAX`] in all.
pub(super) struct PageQueue {
    /// Peers whose queries have no published answer yet.
    pending: BTreeSet<Epoch>,
    /// Answers of the journal's reader. The channel has room for one answer to each peer in `pending`.
    replies: (Sender<PageReply>, Receiver<PageReply>),
    /// Number of queries that were not answered because of [`PAGES_MAX`].
    unanswered: u64,
}

impl PageQueue {
    pub(super) fn new() -> PageQueue {
        PageQueue { pending: BTreeSet::new(), replies: bounded(PAGES_MAX), unanswered: 0 }
    }

    /// Registers a query of a peer and returns the sender for its answer. Returns `None` while an earlier query of the
    /// peer is pending, or at [`PAGES_MAX`] pending queries: the peer must retry.
    pub(super) fn admit(&mut self, from: Epoch) -> Option<Sender<PageReply>> {
        if self.pending.contains(&from) {
            return None;
        }
        if PAGES_MAX <= self.pending.len() {
            self.unanswered += 1;
            if self.unanswered.is_power_of_two() {
                tracing::warn!(peer = %from, unanswered = self.unanswered, "query of events not answered: too many peers query at a time");
            }
            return None;
        }
        self.pending.insert(from);
        Some(self.replies.0.clone())
    }

    /// Removes the query of a peer that gets no answer.
    pub(super) fn cancel(&mut self, from: Epoch) {
        self.pending.remove(&from);
    }

    /// Takes the next answer. Its peer may send the next query.
    pub(super) fn take(&mut self) -> Option<PageReply> {
        let reply = self.replies.1.try_recv().ok()?;
        self.pending.remove(&reply.0);
        Some(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_beyond_the_limit_waits_for_an_answer() {
        let peer = |number: u64| Epoch::new(number).unwrap();
        let answer = |from: Epoch| (from, "a".parse::<Subject>().unwrap(), None);
        let (mut pages, limit) = (PageQueue::new(), PAGES_MAX as u64);
        let admitted: Vec<_> = (1..=limit).map(|number| pages.admit(peer(number)).expect("there is room")).collect();
        assert!(pages.admit(peer(1)).is_none(), "its first question has no answer yet");
        assert_eq!(pages.unanswered, 0);
        assert!(pages.admit(peer(limit + 1)).is_none());
        assert_eq!(pages.unanswered, 1);
        for (sender, number) in admitted.iter().zip(1..) {
            assert!(sender.try_send(answer(peer(number))).is_ok(), "no admitted question loses its answer");
        }
        assert_eq!(pages.take().map(|(from, ..)| from), Some(peer(1)));
        assert!(pages.admit(peer(limit + 1)).is_some());
        pages.cancel(peer(limit + 1));
        assert!(pages.admit(peer(1)).is_some());
        assert!(pages.admit(peer(limit + 1)).is_none());
        assert_eq!(pages.unanswered, 2);
    }
}
