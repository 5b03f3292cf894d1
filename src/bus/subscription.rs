//! A subscription: a bounded stream of messages, and of word about those that are missing.

use super::link::PeerLink;
use super::{RecvError, WaitError};
use crate::daemon::clock::Clock;
use crate::daemon::mailbox::{AnswerReceiver, AnswerSender};
use crate::daemon::queue::{Notice, NoticeRef, PopError, QueueItem, SubscriptionQueue};
use crate::message::{Epoch, SubId};
use crate::proto::effect::QuestionFailure;
use crate::proto::join::{Join, JoinEvent, Joined};
use crossbeam_channel::TryRecvError;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a publisher may take to answer a question; it is asked several times.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// When a question is tried again that could not be asked for want of room.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// A stream of [`Notice`]s. It is bounded: a reader that is too slow loses the newest messages, of this subscription only,
/// and finds [`Notice::Dropped`] in their place. Dropping it ends the subscription.
///
/// Several threads may read from one subscription; each event goes to one of them.
pub struct Subscription {
    queue: Arc<SubscriptionQueue>,
    subs: Vec<SubId>,
    link: PeerLink,
    /// Its beginning, if that is more than from now on.
    join_progress: Option<Mutex<JoinProgress>>,
}

/// A late join, and the questions of it that have no answer yet.
struct JoinProgress {
    join: Join,
    pending_answers: Vec<(Epoch, AnswerReceiver)>,
    /// Whether a question could not be asked for want of room.
    is_backpressured: bool,
    /// Events that were dropped where the queue has been read to, if some were.
    dropped: Option<u64>,
    /// Whether the bus is closed, or its peer is gone, and the queue has been read.
    is_closed: bool,
}

impl Subscription {
    pub(super) fn new(
        queue: Arc<SubscriptionQueue>,
        subs: Vec<SubId>,
        link: PeerLink,
        join: Option<Join>,
    ) -> Subscription {
        let join_progress = join.map(|join| {
            Mutex::new(JoinProgress {
                join,
                pending_answers: Vec::new(),
                is_backpressured: false,
                dropped: None,
                is_closed: false,
            })
        });
        Subscription { queue, subs, link, join_progress }
    }

    /// Where its events come from, and the number of its only pattern.
    pub(super) fn single(&self) -> (&SubscriptionQueue, SubId) {
        (&self.queue, self.subs[0])
    }

    /// Waits for the next event; `None` when the bus is closed or its peer is gone, and all is read.
    ///
    /// Not for [`EmbeddedPeer`](super::EmbeddedPeer): nobody would drive the peer meanwhile.
    pub fn recv(&self) -> Option<Notice> {
        self.next(None).ok()
    }

    /// Waits for the next event, for at most `timeout`.
    ///
    /// # Errors
    /// None came in time, or none will come.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Notice, RecvError> {
        self.next(Some(timeout)).map_err(error)
    }

    /// Takes the next event if there is one.
    ///
    /// # Errors
    /// There is none, or none will come.
    pub fn try_recv(&self) -> Result<Notice, RecvError> {
        self.next(Some(Duration::ZERO)).map_err(error)
    }

    /// Calls `each` with every event that is there by now, in order, and says how many that were: the fast way to read many.
    /// An event is shown where it lies; what is to be kept has to be copied.
    ///
    /// # Errors
    /// None is there and none will come.
    pub fn drain(&self, mut each: impl FnMut(NoticeRef<'_>)) -> Result<usize, RecvError> {
        if self.join_progress.is_none() {
            return self.queue.drain(each).map_err(error);
        }
        let mut count = 0;
        loop {
            match self.next(Some(Duration::ZERO)) {
                Ok(event) => event.visit(&mut each),
                Err(PopError::Closed) if count == 0 => return Err(RecvError::Closed),
                Err(_) => return Ok(count),
            }
            count += 1;
        }
    }

    /// All events, waiting for each, until the bus is closed or its peer is gone.
    pub fn iter(&self) -> impl Iterator<Item = Notice> + '_ {
        std::iter::from_fn(|| self.recv())
    }

    /// A confirmed start: waits until every publisher that is known by then has said where the subscription begins, or will not
    /// say so; see [`Joined::is_established`]. `None` for a subscription that asked for neither history nor confirmation.
    /// No event is lost by it. Not for [`EmbeddedPeer`](super::EmbeddedPeer), as [`Subscription::recv`].
    ///
    /// # Errors
    /// Not in time, or the bus is closed.
    pub fn wait_established(&self, timeout: Duration) -> Result<Option<Joined>, RecvError> {
        let Some(join_progress) = &self.join_progress else { return Ok(None) };
        let until = Clock::now().instant + timeout;
        loop {
            let notifications = self.queue.notifications();
            let mut left = until.since(Clock::now().instant);
            {
                let mut join_progress = locked(join_progress);
                while self.take(&mut join_progress) || self.advance_join(&mut join_progress) {}
                if let Some(joined) = join_progress.join.baselines() {
                    return if join_progress.is_closed { Err(RecvError::Closed) } else { Ok(Some(joined)) };
                }
                if join_progress.is_backpressured {
                    left = left.min(RETRY_INTERVAL);
                }
            }
            if until <= Clock::now().instant {
                return Err(RecvError::Empty);
            }
            self.queue.wait_notification(notifications, Some(left));
        }
    }

    fn next(&self, timeout: Option<Duration>) -> Result<Notice, PopError> {
        let Some(join_progress) = &self.join_progress else {
            let item = if timeout == Some(Duration::ZERO) { self.queue.pop() } else { self.queue.pop_wait(timeout) };
            return match item? {
                QueueItem::Notice(event) => Ok(event),
                // Not asked for; the peer may have sent it all the same.
                QueueItem::Known(_) => self.next(timeout),
            };
        };
        let until = timeout.map(|timeout| Clock::now().instant + timeout);
        loop {
            let notifications = self.queue.notifications();
            let (event, is_backpressured) = {
                let mut join_progress = locked(join_progress);
                (self.next_joining(&mut join_progress), join_progress.is_backpressured)
            };
            match event {
                Err(PopError::Empty) => {}
                event => return event,
            }
            let left = until.map(|until| until.since(Clock::now().instant));
            if left == Some(Duration::ZERO) {
                return Err(PopError::Empty);
            }
            let retry = is_backpressured.then_some(RETRY_INTERVAL);
            self.queue.wait_notification(notifications, left.into_iter().chain(retry).min());
        }
    }

    /// The next event, without waiting.
    fn next_joining(&self, join_progress: &mut JoinProgress) -> Result<Notice, PopError> {
        loop {
            match join_progress.join.poll_event() {
                Some(JoinEvent::Message(delivery)) => return Ok(Notice::Message(delivery)),
                Some(JoinEvent::Loss(loss)) => return Ok(Notice::Loss(loss)),
                Some(JoinEvent::Joined(joined)) => return Ok(Notice::Joined(joined)),
                None => {}
            }
            if let Some(dropped) = join_progress.dropped.take() {
                return Ok(Notice::Dropped(dropped));
            }
            if !self.take(join_progress) && !self.advance_join(join_progress) && join_progress.join.has_no_event() {
                return Err(if join_progress.is_closed { PopError::Closed } else { PopError::Empty });
            }
        }
    }

    /// Takes what came live, before answers are taken: a message that the history has let go may be there. False if there
    /// was nothing.
    fn take(&self, join_progress: &mut JoinProgress) -> bool {
        let mut has_taken = false;
        while !join_progress.join.is_full() && join_progress.dropped.is_none() && join_progress.join.has_no_event() {
            match self.queue.pop() {
                Ok(QueueItem::Known(publisher)) => join_progress.join.on_publisher(publisher),
                Ok(QueueItem::Notice(Notice::Message(delivery))) => {
                    join_progress.join.on_message(Clock::now().wall, delivery)
                }
                Ok(QueueItem::Notice(Notice::Loss(loss))) => join_progress.join.on_loss(loss),
                Ok(QueueItem::Notice(Notice::Dropped(dropped))) => {
                    join_progress.join.on_dropped();
                    join_progress.dropped = Some(dropped);
                }
                // Only the join says so.
                Ok(QueueItem::Notice(Notice::Joined(_))) => {}
                Err(PopError::Empty) => {
                    join_progress.join.on_idle(Clock::now().wall);
                    break;
                }
                Err(PopError::Closed) if join_progress.is_closed => break,
                Err(PopError::Closed) => {
                    join_progress.is_closed = true;
                    join_progress.join.abandon(Clock::now().wall);
                    join_progress.join.on_idle(Clock::now().wall);
                }
            }
            has_taken = true;
        }
        has_taken
    }

    /// Asks what is to be asked and takes what was answered. False if there was nothing to do.
    fn advance_join(&self, join_progress: &mut JoinProgress) -> bool {
        let mut has_advanced = false;
        while let Ok(publisher) = self.queue.pop_publisher() {
            join_progress.join.on_publisher(publisher);
            has_advanced = true;
        }
        join_progress.is_backpressured = false;
        while let Some((epoch, question)) = join_progress.join.poll_question() {
            let (answer, answers) = AnswerSender::new(Some(self.queue.clone()));
            match self.link.ask(epoch.into(), question, (Duration::ZERO, ANSWER_TIMEOUT), answer) {
                Ok(()) => join_progress.pending_answers.push((epoch, answers)),
                Err(WaitError::Closed) => {
                    join_progress.join.on_answer(Clock::now().wall, epoch, Err(QuestionFailure::Gone));
                }
                Err(_) => {
                    join_progress.join.requeue(epoch);
                    join_progress.is_backpressured = true;
                    break;
                }
            }
            has_advanced = true;
        }
        let mut index = 0;
        while let Some((epoch, answers)) = join_progress.pending_answers.get(index) {
            let answer = match answers.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) => {
                    index += 1;
                    continue;
                }
                Err(TryRecvError::Disconnected) => Err(QuestionFailure::Gone),
            };
            has_advanced = true;
            if !join_progress.join.on_answer(Clock::now().wall, *epoch, answer) {
                join_progress.pending_answers.swap_remove(index);
            }
        }
        has_advanced
    }
}

fn locked(join_progress: &Mutex<JoinProgress>) -> MutexGuard<'_, JoinProgress> {
    // A panic while it was held has left nothing half done.
    join_progress.lock().unwrap_or_else(PoisonError::into_inner)
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

fn error(nothing: PopError) -> RecvError {
    match nothing {
        PopError::Empty => RecvError::Empty,
        PopError::Closed => RecvError::Closed,
    }
}
