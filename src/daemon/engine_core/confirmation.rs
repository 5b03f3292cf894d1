//! Confirmation of subscriptions across the LAN. A peer with `interest: on` suppresses messages that no other peer
//! wants. A subscription is reported active once every such peer knows it, so that nothing published later is missing.
//! Without suppressing peers that is at once.
//!
//! A listener client also waits until all other peers know its subscription. Otherwise one of them could answer a
//! request that is meant for this client with "no responders".

use super::EngineCore;
use crate::listener::frame::PeerFrame;
use crate::listener::refusal::RefusalReason;
use crate::message::{ClientId, SubId};
use crate::proto::peer::discovery::{CONFIRMATION_MAX, FLUSH_MAX};
use crate::time::{ClockReading, Instant};
use crossbeam_channel::Sender;

/// Recipient of the confirmation of a subscription.
#[derive(Debug)]
pub(crate) enum Subscriber {
    /// An attached client.
    Attached(ClientId, SubId),
    /// An embedded client.
    Embedded(ClientId, SubId, Sender<Result<(), RefusalReason>>),
    /// A listener client. Until the confirmation, the engine processes only further subscriptions of the client, and
    /// writes nothing to it.
    Listener(ClientId),
}

/// A subscription not yet known to all relevant peers.
#[derive(Debug)]
pub(super) struct PendingConfirmation {
    /// Version of the subscriptions that the other peers must confirm.
    version: u64,
    /// Deadline after which the subscription is reported without the confirmation of suppressing peers.
    until: Instant,
    /// Deadline of the wait for peers that suppress nothing; `None` if there is no such wait, or no longer.
    flush_until: Option<Instant>,
    subscriber: Subscriber,
}

impl EngineCore {
    /// Starts the confirmation of a new subscription, and reports it to the subscriber when it is complete. Returns the
    /// version of the subscriptions to wait for, or `None` if the subscription is confirmed already.
    pub(crate) fn confirm(&mut self, now: ClockReading, subscriber: Subscriber) -> Option<u64> {
        let version = self.peer.subscriptions_version();
        let is_flushing = matches!(subscriber, Subscriber::Listener(_)) && self.peer.flush_subscriptions(now);
        if version <= self.peer.confirmed() && !is_flushing {
            self.report_confirmed(now, version, subscriber);
            return None;
        }
        let flush_until = is_flushing.then(|| now.instant + FLUSH_MAX);
        self.pending_confirmations.push(PendingConfirmation {
            version,
            until: now.instant + CONFIRMATION_MAX,
            flush_until,
            subscriber,
        });
        Some(version)
    }

    /// Returns whether all subscriptions are confirmed.
    pub(crate) fn are_confirmed(&self) -> bool {
        self.peer.subscriptions_version() <= self.peer.confirmed()
    }

    /// Reports subscriptions that are confirmed now, and those whose wait has expired.
    pub(in crate::daemon) fn confirm_due(&mut self, now: ClockReading) {
        if self.pending_confirmations.is_empty() {
            return;
        }
        let confirmed = self.peer.confirmed();
        for mut pending in std::mem::take(&mut self.pending_confirmations) {
            let is_confirmed = pending.version <= confirmed;
            if pending.flush_until.is_some_and(|until| until <= now.instant) {
                self.peer.end_flush();
            }
            pending.flush_until.take_if(|_| !self.peer.is_flushing(pending.version));
            if (is_confirmed || pending.until <= now.instant) && pending.flush_until.is_none() {
                if !is_confirmed {
                    self.unconfirmed_reported += 1;
                    self.peer.skip_confirmation(pending.version);
                }
                self.report_confirmed(now, pending.version, pending.subscriber);
            } else {
                self.pending_confirmations.push(pending);
            }
        }
    }

    /// Returns the earliest time at which a wait expires.
    pub(in crate::daemon) fn confirm_deadline(&self) -> Option<Instant> {
        let ends = |pending: &PendingConfirmation| pending.flush_until.unwrap_or(pending.until);
        self.pending_confirmations.iter().map(ends).min()
    }

    /// Ends the pending confirmations of a client, or of one of its subscriptions.
    pub(super) fn end_confirmation(&mut self, client: ClientId, sub: Option<SubId>) {
        self.pending_confirmations.retain(|pending| match pending.subscriber {
            Subscriber::Attached(owner, pending_sub) | Subscriber::Embedded(owner, pending_sub, _) => {
                owner != client || sub.is_some_and(|sub| sub != pending_sub)
            }
            Subscriber::Listener(owner) => owner != client || sub.is_some(),
        });
    }

    fn report_confirmed(&mut self, now: ClockReading, version: u64, subscriber: Subscriber) {
        match subscriber {
            Subscriber::Attached(client, sub) => self.clients.answer(client, &PeerFrame::Subscribed { sub }),
            Subscriber::Embedded(client, sub, answer) => {
                // The requester may have stopped waiting.
                if answer.send(Ok(())).is_err() {
                    self.unsubscribe(now, client, sub);
                }
            }
            Subscriber::Listener(client) => self.clients.resume_confirmed(client, version),
        }
    }
}
