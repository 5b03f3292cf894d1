//! A subscription: a bounded stream of messages, and of word about those that are missing.

use super::link::Link;
use super::{RecvError, WaitError};
use crate::daemon::clock::Clock;
use crate::daemon::mailbox::{AnswerTo, Answers};
use crate::daemon::queue::{Event, EventQueue, EventRef, Item, Nothing};
use crate::message::{Epoch, SubId};
use crate::proto::effect::Unanswered;
use crate::proto::join::{Join, JoinEvent, Joined};
use crossbeam_channel::TryRecvError;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a publisher may take to answer a question; it is asked several times.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// When a question is tried again that could not be asked for want of room.
const RETRY: Duration = Duration::from_millis(2);

/// A stream of [`Event`]s. It is bounded: a reader that is too slow loses the newest messages, of this subscription only,
/// and finds [`Event::Dropped`] in their place. Dropping it ends the subscription.
///
/// Several threads may read from one subscription; each event goes to one of them.
pub struct Subscription {
    queue: Arc<EventQueue>,
    subs: Vec<SubId>,
    link: Link,
    /// Its beginning, if that is more than from now on.
    joining: Option<Mutex<Joining>>,
}

/// A late join, and the questions of it that have no answer yet.
struct Joining {
    join: Join,
    asked: Vec<(Epoch, Answers)>,
    /// Whether a question could not be asked for want of room.
    is_held_up: bool,
    /// Events that were dropped where the queue has been read to, if some were.
    dropped: Option<u64>,
    /// Whether the bus is closed, or its peer is gone, and the queue has been read.
    is_closed: bool,
}

impl Subscription {
    pub(super) fn new(queue: Arc<EventQueue>, subs: Vec<SubId>, link: Link, join: Option<Join>) -> Subscription {
        let joining = join.map(|join| {
            Mutex::new(Joining { join, asked: Vec::new(), is_held_up: false, dropped: None, is_closed: false })
        });
        Subscription { queue, subs, link, joining }
    }

    /// Where its events come from, and the number of its only pattern.
    pub(super) fn single(&self) -> (&EventQueue, SubId) {
        (&self.queue, self.subs[0])
    }

    /// Waits for the next event; `None` when the bus is closed or its peer is gone, and all is read.
    ///
    /// Not for [`Embedded`](super::Embedded): nobody would drive the peer meanwhile.
    pub fn recv(&self) -> Option<Event> {
        self.next(None).ok()
    }

    /// Waits for the next event, for at most `timeout`.
    ///
    /// # Errors
    /// None came in time, or none will come.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Event, RecvError> {
        self.next(Some(timeout)).map_err(error)
    }

    /// Takes the next event if there is one.
    ///
    /// # Errors
    /// There is none, or none will come.
    pub fn try_recv(&self) -> Result<Event, RecvError> {
        self.next(Some(Duration::ZERO)).map_err(error)
    }

    /// Calls `each` with every event that is there by now, in order, and says how many that were: the fast way to read many.
    /// An event is shown where it lies; what is to be kept has to be copied.
    ///
    /// # Errors
    /// None is there and none will come.
    pub fn drain(&self, mut each: impl FnMut(EventRef<'_>)) -> Result<usize, RecvError> {
        if self.joining.is_none() {
            return self.queue.drain(each).map_err(error);
        }
        let mut count = 0;
        loop {
            match self.next(Some(Duration::ZERO)) {
                Ok(event) => event.visit(&mut each),
                Err(Nothing::Ever) if count == 0 => return Err(RecvError::Closed),
                Err(_) => return Ok(count),
            }
            count += 1;
        }
    }

    /// All events, waiting for each, until the bus is closed or its peer is gone.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(|| self.recv())
    }

    /// A confirmed start: waits until every publisher that is known by then has said where the subscription begins, or will not
    /// say so; see [`Joined::is_established`]. `None` for a subscription that asked for neither history nor confirmation.
    /// No event is lost by it. Not for [`Embedded`](super::Embedded), as [`Subscription::recv`].
    ///
    /// # Errors
    /// Not in time, or the bus is closed.
    pub fn established(&self, timeout: Duration) -> Result<Option<Joined>, RecvError> {
        let Some(joining) = &self.joining else { return Ok(None) };
        let until = Clock::now().instant + timeout;
        loop {
            let rings = self.queue.rings();
            let mut left = until.since(Clock::now().instant);
            {
                let mut joining = locked(joining);
                while self.take(&mut joining) || self.go_on(&mut joining) {}
                if let Some(joined) = joining.join.baselines() {
                    return if joining.is_closed { Err(RecvError::Closed) } else { Ok(Some(joined)) };
                }
                if joining.is_held_up {
                    left = left.min(RETRY);
                }
            }
            if until <= Clock::now().instant {
                return Err(RecvError::Empty);
            }
            self.queue.wait_ring(rings, Some(left));
        }
    }

    fn next(&self, timeout: Option<Duration>) -> Result<Event, Nothing> {
        let Some(joining) = &self.joining else {
            let item = if timeout == Some(Duration::ZERO) { self.queue.pop() } else { self.queue.pop_wait(timeout) };
            return match item? {
                Item::Event(event) => Ok(event),
                // Not asked for; the peer may have sent it all the same.
                Item::Known(_) => self.next(timeout),
            };
        };
        let until = timeout.map(|timeout| Clock::now().instant + timeout);
        loop {
            let rings = self.queue.rings();
            let (event, is_held_up) = {
                let mut joining = locked(joining);
                (self.next_joining(&mut joining), joining.is_held_up)
            };
            match event {
                Err(Nothing::Yet) => {}
                event => return event,
            }
            let left = until.map(|until| until.since(Clock::now().instant));
            if left == Some(Duration::ZERO) {
                return Err(Nothing::Yet);
            }
            let retry = is_held_up.then_some(RETRY);
            self.queue.wait_ring(rings, left.into_iter().chain(retry).min());
        }
    }

    /// The next event, without waiting.
    fn next_joining(&self, joining: &mut Joining) -> Result<Event, Nothing> {
        loop {
            match joining.join.poll_event() {
                Some(JoinEvent::Message(delivery)) => return Ok(Event::Message(delivery)),
                Some(JoinEvent::Loss(loss)) => return Ok(Event::Loss(loss)),
                Some(JoinEvent::Joined(joined)) => return Ok(Event::Joined(joined)),
                None => {}
            }
            if let Some(dropped) = joining.dropped.take() {
                return Ok(Event::Dropped(dropped));
            }
            if !self.take(joining) && !self.go_on(joining) && joining.join.has_no_event() {
                return Err(if joining.is_closed { Nothing::Ever } else { Nothing::Yet });
            }
        }
    }

    /// Takes what came live, before answers are taken: a message that the history has let go may be there. False if there
    /// was nothing.
    fn take(&self, joining: &mut Joining) -> bool {
        let mut has_taken = false;
        while !joining.join.is_full() && joining.dropped.is_none() && joining.join.has_no_event() {
            match self.queue.pop() {
                Ok(Item::Known(publisher)) => joining.join.on_known(publisher),
                Ok(Item::Event(Event::Message(delivery))) => joining.join.on_message(Clock::now().wall, delivery),
                Ok(Item::Event(Event::Loss(loss))) => joining.join.on_loss(loss),
                Ok(Item::Event(Event::Dropped(dropped))) => {
                    joining.join.on_dropped();
                    joining.dropped = Some(dropped);
                }
                // Only the join says so.
                Ok(Item::Event(Event::Joined(_))) => {}
                Err(Nothing::Yet) => {
                    joining.join.on_idle(Clock::now().wall);
                    break;
                }
                Err(Nothing::Ever) if joining.is_closed => break,
                Err(Nothing::Ever) => {
                    joining.is_closed = true;
                    joining.join.give_up(Clock::now().wall);
                    joining.join.on_idle(Clock::now().wall);
                }
            }
            has_taken = true;
        }
        has_taken
    }

    /// Asks what is to be asked and takes what was answered. False if there was nothing to do.
    fn go_on(&self, joining: &mut Joining) -> bool {
        let mut has_gone_on = false;
        while let Ok(publisher) = self.queue.pop_known() {
            joining.join.on_known(publisher);
            has_gone_on = true;
        }
        joining.is_held_up = false;
        while let Some((epoch, question)) = joining.join.poll_question() {
            let (answer, answers) = AnswerTo::new(Some(self.queue.clone()));
            match self.link.ask(epoch.into(), question, (Duration::ZERO, ANSWER_TIME), answer) {
                Ok(()) => joining.asked.push((epoch, answers)),
                Err(WaitError::Closed) => {
                    joining.join.on_answer(Clock::now().wall, epoch, Err(Unanswered::Gone));
                }
                Err(_) => {
                    joining.join.put_back(epoch);
                    joining.is_held_up = true;
                    break;
                }
            }
            has_gone_on = true;
        }
        let mut index = 0;
        while let Some((epoch, answers)) = joining.asked.get(index) {
            let answer = match answers.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) => {
                    index += 1;
                    continue;
                }
                Err(TryRecvError::Disconnected) => Err(Unanswered::Gone),
            };
            has_gone_on = true;
            if !joining.join.on_answer(Clock::now().wall, *epoch, answer) {
                joining.asked.swap_remove(index);
            }
        }
        has_gone_on
    }
}

fn locked(joining: &Mutex<Joining>) -> MutexGuard<'_, Joining> {
    // A panic while it was held has left nothing half done.
    joining.lock().unwrap_or_else(PoisonError::into_inner)
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
