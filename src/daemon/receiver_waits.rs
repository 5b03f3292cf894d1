//! What clients await of a subject: that certainly nobody gets a message, so that who asks nobody is told so, or that somebody
//! does. A peer that has just started does not know all others, and one that has just come has not told what its clients
//! subscribe to.

use crate::daemon::engine::Engine;
use crate::listener::session_request::{ReceiverCondition, ReceiverCount};
use crate::message::ClientId;
use crate::proto::effect::Target;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use std::time::Duration;

/// Clients that wait, at most, each counted as often as it does; those beyond are left to their own patience.
const WAITS_MAX: usize = 4096;
/// As often one client waits, at most.
const CLIENT_WAITS_MAX: usize = 1024;
/// For so long it may take until it is certain that nobody gets a message.
const CERTAIN_TIME: Duration = Duration::from_secs(2);
/// How often that is looked at.
const CERTAIN_INTERVAL: Duration = Duration::from_millis(5);
/// How often it is looked at whether somebody has come; that may take as long as the client has time.
const SOMEBODY_INTERVAL: Duration = Duration::from_millis(20);

/// Who waits.
#[derive(Debug)]
pub(crate) enum ReceiverWaiter {
    /// A client of a listener, for an answer on this subject.
    Listener(ClientId, Subject),
    /// A subscription of a program, which ends the waiting when it ends.
    Subscription(Target),
}

impl ReceiverWaiter {
    fn client(&self) -> ClientId {
        match self {
            ReceiverWaiter::Listener(client, _) => *client,
            ReceiverWaiter::Subscription(target) => target.client,
        }
    }
}

#[derive(Debug)]
struct ReceiverWait {
    waiter: ReceiverWaiter,
    condition: ReceiverCondition,
    subject: Subject,
    until: Instant,
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct ReceiverWaits {
    waits: Vec<ReceiverWait>,
    /// When they are looked at again.
    check_at: Instant,
}

impl ReceiverWaits {
    /// When something is to be looked at.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.waits.is_empty()).then_some(self.check_at)
    }

    /// The client is gone, or only this subscription of it.
    pub(crate) fn end(&mut self, client: ClientId, sub: Option<Target>) {
        let is_over = |waiter: &ReceiverWaiter| match (waiter, sub) {
            (ReceiverWaiter::Subscription(target), Some(sub)) => *target == sub,
            (_, Some(_)) => false,
            (waiter, None) => waiter.client() == client,
        };
        self.waits.retain(|one| !is_over(&one.waiter));
    }

    fn push(&mut self, now: Instant, one: ReceiverWait) {
        let interval = match one.condition {
            ReceiverCondition::Absent => CERTAIN_INTERVAL,
            ReceiverCondition::Present => SOMEBODY_INTERVAL,
        };
        let soon = now + interval;
        self.check_at = if self.waits.is_empty() { soon } else { self.check_at.min(soon) };
        self.waits.push(one);
    }
}

impl Engine {
    /// Tells a client when that has come, if it comes within `timeout`: at once if it is so already.
    pub(crate) fn begin_await(
        &mut self,
        now: ClockReading,
        waiter: ReceiverWaiter,
        condition: ReceiverCondition,
        subject: Subject,
        timeout: Duration,
    ) {
        let timeout = match condition {
            ReceiverCondition::Absent => CERTAIN_TIME.min(timeout),
            ReceiverCondition::Present => timeout,
        };
        let of_client = self.receiver_waits.waits.iter().filter(|one| one.waiter.client() == waiter.client()).count();
        if self.receiver_waits.waits.len() < WAITS_MAX && of_client < CLIENT_WAITS_MAX {
            self.check_receivers(now, ReceiverWait { waiter, condition, subject, until: now.instant + timeout });
        }
    }

    /// Tells those who wait for what has come.
    pub(super) fn report_awaited(&mut self, now: ClockReading) {
        if self.receiver_waits.deadline().is_some_and(|check_at| check_at <= now.instant) {
            std::mem::take(&mut self.receiver_waits.waits).into_iter().for_each(|one| self.check_receivers(now, one));
        }
    }

    fn check_receivers(&mut self, now: ClockReading, one: ReceiverWait) {
        let receivers = self.receivers(one.waiter.client(), &one.subject);
        let (has_come, can_come) = match (one.condition, receivers) {
            (ReceiverCondition::Absent, ReceiverCount { count: 0, is_certain }) => (is_certain, true),
            // Somebody may have got it who is known only now.
            (ReceiverCondition::Absent, _) => (false, false),
            (ReceiverCondition::Present, ReceiverCount { count, .. }) => (0 < count, true),
        };
        match one.waiter {
            ReceiverWaiter::Listener(client, reply) if has_come => {
                let Some(connection) = self.clients.listener(client) else { return };
                connection.answer(|session, out| session.on_published(Some(&reply), receivers, out));
                self.clients.schedule_write(client);
            }
            ReceiverWaiter::Subscription(target) if has_come => self.clients.report_awaited(target),
            _ if can_come && now.instant < one.until => self.receiver_waits.push(now.instant, one),
            _ => {}
        }
    }
}
