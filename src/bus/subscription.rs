//! A subscription: a bounded stream of messages, and of word about those that are missing.

use super::RecvError;
use super::link::Link;
use crate::daemon::queue::{Event, EventQueue, Nothing};
use crate::message::SubId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A stream of [`Event`]s. It is bounded: a reader that is too slow loses the newest messages, of this subscription only,
/// and finds [`Event::Dropped`] in their place. Dropping it ends the subscription.
///
/// Several threads may read from one subscription; each event goes to one of them.
pub struct Subscription {
    queue: Arc<EventQueue>,
    subs: Vec<SubId>,
    link: Link,
}

impl Subscription {
    pub(super) fn new(queue: Arc<EventQueue>, subs: Vec<SubId>, link: Link) -> Subscription {
        Subscription { queue, subs, link }
    }

    /// Waits for the next event; `None` when the bus is closed or its peer is gone, and all is read.
    ///
    /// Not for [`Embedded`](super::Embedded): nobody would drive the peer meanwhile.
    pub fn recv(&self) -> Option<Event> {
        self.queue.pop_wait(None).ok()
    }

    /// Waits for the next event, for at most `timeout`.
    ///
    /// # Errors
    /// None came in time, or none will come.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Event, RecvError> {
        self.queue.pop_wait(Some(timeout)).map_err(error)
    }

    /// Takes the next event if there is one.
    ///
    /// # Errors
    /// There is none, or none will come.
    pub fn try_recv(&self) -> Result<Event, RecvError> {
        self.queue.pop().map_err(error)
    }

    /// All events, waiting for each, until the bus is closed or its peer is gone.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(|| self.recv())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for sub in &self.subs {
            self.link.unsubscribe(*sub);
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("subs", &self.subs).finish_non_exhaustive()
    }
}

fn error(nothing: Nothing) -> RecvError {
    match nothing {
        Nothing::Yet => RecvError::Empty,
        Nothing::Ever => RecvError::Closed,
    }
}
