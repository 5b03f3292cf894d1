//! Subscriptions that stand in the whole LAN: who subscribes is told so when every peer that spares messages knows it
//! (`interest: on`), so that nothing published after that is missing. Where nobody spares any, that is at once.
//!
//! The client of a listener waits until the other peers know it, too: a request to it must not be answered by "no responders".

use crate::daemon::engine::Engine;
use crate::listener::frame::PeerFrame;
use crate::listener::refusal::RefusalReason;
use crate::message::{ClientId, SubId};
use crate::proto::peer::discovery::{CONFIRMATION_MAX, FLUSH_MAX};
use crate::time::{ClockReading, Instant};
use crossbeam_channel::Sender;

/// Who is told that a subscription stands.
#[derive(Debug)]
pub(super) enum Subscriber {
    /// An attached program.
    Attached(ClientId, SubId),
    /// A program in the same process.
    Embedded(ClientId, SubId, Sender<Result<(), RefusalReason>>),
    /// The client of a listener, from which nothing more is taken, and to which nothing is written, until then.
    Listener(ClientId),
}

/// A subscription that not all may know yet.
#[derive(Debug)]
pub(super) struct PendingConfirmation {
    version: u64,
    until: Instant,
    /// Time until which peers that suppress nothing are waited for; `None` once they are not.
    flush_until: Option<Instant>,
    subscriber: Subscriber,
}

impl Engine {
    /// A subscription has just begun: whose it is is told when it stands. Gives the version of the subscriptions to wait for, if it
    /// does not stand yet.
    pub(super) fn confirm(&mut self, now: ClockReading, subscriber: Subscriber) -> Option<u64> {
        let version = self.peer.subscriptions_version();
        let is_flushing = matches!(subscriber, Subscriber::Listener(_)) && self.peer.flush_subscriptions(now);
        if version <= self.peer.confirmed() && !is_flushing {
            self.report_confirmed(now, version, subscriber);
            return None;
        }
        let flush_until = is_flushing.then(|| now.instant + FLUSH_MAX);
        self.unconfirmed.push(PendingConfirmation {
            version,
            until: now.instant + CONFIRMATION_MAX,
            flush_until,
            subscriber,
        });
        Some(version)
    }

    /// Whether all subscriptions stand.
    pub(crate) fn are_confirmed(&self) -> bool {
        self.peer.subscriptions_version() <= self.peer.confirmed()
    }

    /// Tells those whose subscriptions stand now, and those that have waited for long enough.
    pub(super) fn confirm_due(&mut self, now: ClockReading) {
        if self.unconfirmed.is_empty() {
            return;
        }
        let confirmed = self.peer.confirmed();
        for mut unconfirmed in std::mem::take(&mut self.unconfirmed) {
            let is_confirmed = unconfirmed.version <= confirmed;
            if unconfirmed.flush_until.is_some_and(|until| until <= now.instant) {
                self.peer.end_flush();
            }
            unconfirmed.flush_until.take_if(|_| !self.peer.is_flushing(unconfirmed.version));
            if (is_confirmed || unconfirmed.until <= now.instant) && unconfirmed.flush_until.is_none() {
                if !is_confirmed {
                    self.unconfirmed_reported += 1;
                    self.peer.skip_confirmation(unconfirmed.version);
                }
                self.report_confirmed(now, unconfirmed.version, unconfirmed.subscriber);
            } else {
                self.unconfirmed.push(unconfirmed);
            }
        }
    }

    /// When the first of them has waited for long enough.
    pub(super) fn confirm_deadline(&self) -> Option<Instant> {
        let ends = |unconfirmed: &PendingConfirmation| unconfirmed.flush_until.unwrap_or(unconfirmed.until);
        self.unconfirmed.iter().map(ends).min()
    }

    /// Nobody waits for these any more: those of a client, or one of its subscriptions.
    pub(super) fn end_confirmation(&mut self, client: ClientId, sub: Option<SubId>) {
        self.unconfirmed.retain(|unconfirmed| match unconfirmed.subscriber {
            Subscriber::Attached(whose, which) | Subscriber::Embedded(whose, which, _) => {
                whose != client || sub.is_some_and(|sub| sub != which)
            }
            Subscriber::Listener(whose) => whose != client || sub.is_some(),
        });
    }

    fn report_confirmed(&mut self, now: ClockReading, version: u64, subscriber: Subscriber) {
        match subscriber {
            Subscriber::Attached(client, sub) => self.clients.answer(client, &PeerFrame::Subscribed { sub }),
            Subscriber::Embedded(client, sub, answer) => {
                // Who asked may have stopped waiting.
                if answer.send(Ok(())).is_err() {
                    self.unsubscribe(now, client, sub);
                }
            }
            Subscriber::Listener(client) => {
                let waits = self
                    .clients
                    .listener(client)
                    .and_then(|connection| connection.unconfirmed.take_if(|awaited| *awaited <= version));
                if waits.is_some() {
                    self.clients.schedule_write(client);
                    self.listeners.note(&mut self.clients, client);
                }
            }
        }
    }
}
