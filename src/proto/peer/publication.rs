//! State of publishing: the numbers and the history of published subjects, and the route of the current subject.

use super::batch::PublishBatch;
use super::queue::QueueGroup;
use crate::message::{ClientId, Epoch};
use crate::proto::Settings;
use crate::proto::history::{History, RunStart};
use crate::proto::interest::MatchSet;
use crate::proto::send::SendStream;
use crate::proto::subject_run::SubjectRuns;
use crate::proto::window::PubWindow;
use crate::rng::Rng;
use crate::subject::Subject;
use crate::time::ClockReading;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Route of the messages on a subject, valid until subscriptions change.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// True if a message on the subject is a poll in text, provided that it has a reply subject.
    pub(super) is_poll: bool,
    /// Owner of the inbox that contains the subject.
    pub(super) owner: Option<Epoch>,
    /// Local subscriptions to the subject, without those of `except`.
    pub(super) local: Option<Arc<MatchSet>>,
    /// Publishing client, if its own subscriptions do not get its messages.
    pub(super) except: Option<ClientId>,
    /// Queue groups that match the subject.
    pub(super) groups: Option<Arc<[QueueGroup]>>,
    /// Number of receiving subscriptions, once it was counted.
    pub(super) receivers: Option<u64>,
    /// True if a remote subscription is known to match, or if this peer suppresses nothing.
    pub(super) is_wanted: bool,
    /// Change counters of the subscriptions here and elsewhere at the time of routing.
    pub(super) changes: (u64, u64),
}

/// Numbers, history and route of the published messages.
pub(super) struct Publication {
    /// Numbers of the subjects.
    pub(super) window: PubWindow,
    /// Retained messages of each subject.
    pub(super) history: History,
    /// The current subject run.
    pub(super) runs: SubjectRuns,
    /// Messages to be numbered together.
    pub(super) batch: Option<PublishBatch>,
    /// Route of the messages of the current subject run.
    pub(super) route: Route,
    /// Clients whose own subscriptions do not get what they publish.
    no_echo_clients: BTreeSet<ClientId>,
}

impl Publication {
    /// Creates the state of a peer that has published nothing yet, with seeds for the window and for the history.
    pub(super) fn new(settings: &Settings, window_seed: u64, history_seed: u64) -> Publication {
        Publication {
            window: window(settings, window_seed),
            history: History::new(&settings.recovery.history, history_seed),
            runs: SubjectRuns::default(),
            batch: None,
            route: Route::default(),
            no_echo_clients: BTreeSet::new(),
        }
    }

    /// Begins the numbers and the history of a new epoch.
    pub(super) fn begin_epoch(&mut self, settings: &Settings, rng: &mut Rng) {
        self.window = window(settings, rng.next_u64());
        self.history = History::new(&settings.recovery.history, rng.next_u64());
    }

    /// Sets whether the client's own subscriptions get what it publishes.
    pub(super) fn set_echo(&mut self, client: ClientId, is_on: bool) {
        match is_on {
            true => self.no_echo_clients.remove(&client),
            false => self.no_echo_clients.insert(client),
        };
    }

    /// Returns the client if its own subscriptions do not get what it publishes.
    #[inline]
    pub(super) fn except(&self, client: ClientId) -> Option<ClientId> {
        self.no_echo_clients.contains(&client).then_some(client)
    }

    /// Adds a message to the current batch and to the open datagram, if possible. Returns whether it did.
    #[inline]
    pub(super) fn extend(
        &mut self,
        now: ClockReading,
        client: ClientId,
        subject: &Subject,
        payload: &[u8],
        stream: &mut SendStream,
    ) -> bool {
        let except = self.except(client);
        let Some(batch) = self.batch.as_mut().filter(|batch| batch.except == except) else { return false };
        let fits = batch.left != 0 && batch.now == now && self.runs.continues_run(subject) && stream.extend(payload);
        if fits {
            batch.left -= 1;
            batch.count += 1;
        }
        fits
    }

    /// Ends the current batch, after numbering and retaining its messages, which are in the open datagram of `stream`.
    pub(super) fn end_batch(&mut self, stream: &SendStream) -> Option<PublishBatch> {
        let batch = self.batch.take()?;
        if let (1.., Some(key)) = (batch.count, self.runs.key()) {
            let PublishBatch { now, seq, offset, at, .. } = batch;
            let start = RunStart { now, seq, offset, datagram_location: stream.sealed_location(at) };
            self.window.advance(key, batch.count);
            self.history.record_run(key, start, batch.count as usize, stream.entries(at));
        }
        Some(batch)
    }

    /// Checks that a batch holds no more messages than its subject has numbers for, in an open datagram.
    pub(super) fn assert_invariants(&self, stream: &SendStream) {
        if let Some(batch) = &self.batch {
            assert!(stream.is_open(), "the messages of a batch are in the open datagram");
            assert!(batch.left.checked_add(batch.count).is_some(), "a batch ends with its frame");
        }
    }
}

fn window(settings: &Settings, seed: u64) -> PubWindow {
    PubWindow::new(settings.pub_window, settings.frame_messages_max, seed).mutated(settings.mutants)
}
