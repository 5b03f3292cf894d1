//! A subscription: a bounded stream of messages, and of word about those that are missing.

use super::RecvError;
use super::link::Link;
use crate::daemon::clock::Clock;
use crate::daemon::mailbox::Answered;
use crate::daemon::queue::{Event, EventQueue, Item, Nothing};
use crate::message::{Epoch, SubId};
use crate::proto::effect::Unanswered;
use crate::proto::join::{Join, JoinEvent, Joined};
use crate::time::Instant;
use crossbeam_channel::{Receiver, Select, TryRecvError, unbounded};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a publisher may take to answer a question; it is asked several times.
const ANSWER_TIME: Duration = Duration::from_secs(2);

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
    asked: Vec<(Epoch, Receiver<Answered>)>,
}

impl Subscription {
    pub(super) fn new(queue: Arc<EventQueue>, subs: Vec<SubId>, link: Link, join: Option<Join>) -> Subscription {
        let joining = join.map(|join| Mutex::new(Joining { join, asked: Vec::new() }));
        Subscription { queue, subs, link, joining }
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

    /// All events, waiting for each, until the bus is closed or its peer is gone.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(|| self.recv())
    }

    /// A confirmed start: waits until every publisher that was known when the subscription was made has said where it
    /// begins, or will not say so; see [`Joined::is_established`]. `None` for a subscription that asked for neither history nor
    /// confirmation. Events are not lost by it; with history, those replayed so far are read later.
    ///
    /// # Errors
    /// Not in time, or the bus is closed.
    pub fn established(&self, timeout: Duration) -> Result<Option<Joined>, RecvError> {
        let Some(mut joining) = self.joining() else { return Ok(None) };
        let until = Clock::now().instant + timeout;
        loop {
            if let Some(joined) = joining.join.baselines() {
                return Ok(Some(joined));
            }
            self.ask(&mut joining);
            self.wait(&mut joining, Some(until)).map_err(error)?;
        }
    }

    fn joining(&self) -> Option<MutexGuard<'_, Joining>> {
        // A panic while it was held has left nothing half done.
        self.joining.as_ref().map(|joining| joining.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn next(&self, timeout: Option<Duration>) -> Result<Event, Nothing> {
        let Some(mut joining) = self.joining() else {
            let item = if timeout == Some(Duration::ZERO) { self.queue.pop() } else { self.queue.pop_wait(timeout) };
            return match item? {
                Item::Event(event) => Ok(event),
                Item::Known(_) => unreachable!("nobody asked for news"),
            };
        };
        let until = timeout.map(|timeout| Clock::now().instant + timeout);
        loop {
            match joining.join.poll_event() {
                Some(JoinEvent::Message(delivery)) => return Ok(Event::Message(delivery)),
                Some(JoinEvent::Loss(loss)) => return Ok(Event::Loss(loss)),
                Some(JoinEvent::Joined(joined)) => return Ok(Event::Joined(joined)),
                None => {}
            }
            if joining.join.is_joining() {
                self.ask(&mut joining);
                self.wait(&mut joining, until)?;
                continue;
            }
            match self.queue.pop_wait(until.map(|until| until.since(Clock::now().instant)))? {
                Item::Known(publisher) => joining.join.on_known(publisher),
                Item::Event(Event::Message(delivery)) => joining.join.on_live(Clock::now().wall, delivery),
                Item::Event(Event::Loss(loss)) => joining.join.on_loss(loss),
                Item::Event(event) => {
                    joining.join.on_dropped();
                    return Ok(event);
                }
            }
        }
    }

    /// Asks what is to be asked.
    fn ask(&self, joining: &mut Joining) {
        while let Some((epoch, question)) = joining.join.poll_question() {
            let (sender, answers) = unbounded();
            match self.link.ask(epoch.into(), question, ANSWER_TIME, sender) {
                Ok(()) => joining.asked.push((epoch, answers)),
                Err(_) => joining.join.on_answer(Clock::now().wall, epoch, Err(Unanswered::TooMany)),
            }
        }
    }

    /// Waits for what the join needs: an answer, or news of publishers.
    fn wait(&self, joining: &mut Joining, until: Option<Instant>) -> Result<(), Nothing> {
        let left = until.map(|until| until.since(Clock::now().instant));
        if joining.asked.is_empty() {
            match self.queue.pop_known(left) {
                Ok(publisher) => joining.join.on_known(publisher),
                Err(Nothing::Ever) => joining.join.give_up(Clock::now().wall),
                Err(Nothing::Yet) => return Err(Nothing::Yet),
            }
            return Ok(());
        }
        while let Ok(publisher) = self.queue.pop_known(Some(Duration::ZERO)) {
            joining.join.on_known(publisher);
        }
        let mut select = Select::new();
        for (_, answers) in &joining.asked {
            select.recv(answers);
        }
        let index = match left {
            None => select.ready(),
            Some(left) => select.ready_timeout(left).map_err(|_| Nothing::Yet)?,
        };
        let (epoch, answers) = &joining.asked[index];
        let (epoch, answer) = match answers.try_recv() {
            Ok(answer) => (*epoch, answer),
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Disconnected) => (*epoch, Err(Unanswered::Gone)),
        };
        if answer.as_ref().map_or(true, |part| part.last) {
            joining.asked.swap_remove(index);
        }
        joining.join.on_answer(Clock::now().wall, epoch, answer);
        Ok(())
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
