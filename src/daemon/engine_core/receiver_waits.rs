//! Waits of clients until a subject has a subscriber, or until it certainly has none. Certainty takes time: a peer that
//! has just started does not know all others, and another new peer has not yet advertised its clients' subscriptions.

use super::EngineCore;
use crate::listener::session_request::{ReceiverCondition, ReceiverCount};
use crate::message::{ClientId, Target};
use crate::proto::peer::Peer;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use std::time::Duration;

/// Maximum number of waits of all clients. A further wait is ignored, and the client's own timeout ends its request.
const WAITS_MAX: usize = 4096;
/// Maximum number of waits of one client.
const CLIENT_WAITS_MAX: usize = 1024;
/// Maximum time until the absence of receivers becomes certain.
const CERTAIN_TIME: Duration = Duration::from_secs(2);
/// Interval between checks for certain absence.
const ABSENT_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between checks for a receiver. It is longer, since such a wait may last for the client's whole timeout.
const PRESENT_INTERVAL: Duration = Duration::from_millis(20);

/// Requester that waits for a receiver condition.
#[derive(Debug)]
pub(crate) enum ReceiverWaiter {
    /// A listener client that awaits an answer on this subject.
    Listener(ClientId, Subject),
    /// A subscription of an attached or embedded client. The wait ends with the subscription.
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

/// All pending waits.
#[derive(Debug, Default)]
pub(crate) struct ReceiverWaits {
    waits: Vec<ReceiverWait>,
    /// Time of the next check.
    check_at: Instant,
}

impl ReceiverWaits {
    /// Returns the time of the next check, if any wait is pending.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.waits.is_empty()).then_some(self.check_at)
    }

    /// Ends the waits of a client, or only those of one subscription.
    pub(crate) fn end(&mut self, client: ClientId, sub: Option<Target>) {
        let is_over = |waiter: &ReceiverWaiter| match (waiter, sub) {
            (ReceiverWaiter::Subscription(target), Some(sub)) => *target == sub,
            (_, Some(_)) => false,
            (waiter, None) => waiter.client() == client,
        };
        self.waits.retain(|wait| !is_over(&wait.waiter));
    }

    /// Adds a wait of a listener client until it is certain that its message on `subject` has no receiver. The client
    /// awaits an answer on `reply`.
    pub(crate) fn await_absence(&mut self, now: Instant, client: ClientId, reply: Subject, subject: Subject) {
        if self.has_room(client) {
            let (waiter, condition) = (ReceiverWaiter::Listener(client, reply), ReceiverCondition::Absent);
            self.push(now, ReceiverWait { waiter, condition, subject, until: now + CERTAIN_TIME });
        }
    }

    /// Returns whether the limits allow one more wait of this client.
    fn has_room(&self, client: ClientId) -> bool {
        let of_client = self.waits.iter().filter(|wait| wait.waiter.client() == client).count();
        self.waits.len() < WAITS_MAX && of_client < CLIENT_WAITS_MAX
    }

    fn push(&mut self, now: Instant, wait: ReceiverWait) {
        let interval = match wait.condition {
            ReceiverCondition::Absent => ABSENT_INTERVAL,
            ReceiverCondition::Present => PRESENT_INTERVAL,
        };
        let soon = now + interval;
        self.check_at = if self.waits.is_empty() { soon } else { self.check_at.min(soon) };
        self.waits.push(wait);
    }
}

impl EngineCore {
    /// Notifies a client when the condition holds, at once if it already does. The wait ends after `timeout`.
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
        if self.receiver_waits.has_room(waiter.client()) {
            self.check_receivers(now, ReceiverWait { waiter, condition, subject, until: now.instant + timeout });
        }
    }

    /// Notifies the waiters whose condition holds, if a check is due.
    pub(in crate::daemon) fn report_awaited(&mut self, now: ClockReading) {
        if self.receiver_waits.deadline().is_some_and(|check_at| check_at <= now.instant) {
            std::mem::take(&mut self.receiver_waits.waits).into_iter().for_each(|wait| self.check_receivers(now, wait));
        }
    }

    fn check_receivers(&mut self, now: ClockReading, wait: ReceiverWait) {
        let receivers = count_receivers(&mut self.peer, wait.waiter.client(), &wait.subject);
        let (is_met, can_be_met) = match (wait.condition, receivers) {
            (ReceiverCondition::Absent, ReceiverCount { count: 0, is_certain }) => (is_certain, true),
            // A receiver that becomes known only now may have received the message: the wait ends without a report.
            (ReceiverCondition::Absent, _) => (false, false),
            (ReceiverCondition::Present, ReceiverCount { count, .. }) => (0 < count, true),
        };
        match wait.waiter {
            #[cfg(feature = "listeners")]
            ReceiverWaiter::Listener(client, reply) if is_met => {
                self.clients.answer_published(client, &reply, receivers);
            }
            ReceiverWaiter::Subscription(target) if is_met => self.clients.report_awaited(target),
            _ if can_be_met && now.instant < wait.until => self.receiver_waits.push(now.instant, wait),
            _ => {}
        }
    }
}

/// Returns the receivers of a message of this client on `subject`.
pub(crate) fn count_receivers(peer: &mut Peer, id: ClientId, subject: &Subject) -> ReceiverCount {
    let (count, is_certain) = peer.receivers(id, subject);
    ReceiverCount { count, is_certain }
}
