//! A subscription: a bounded stream of messages and of notices about missing ones.

use super::peer_link::PeerLink;
use super::{RecvError, WaitError};
use crate::clock::Clock;
use crate::daemon::mailbox::{AnswerReceiver, AnswerSender};
use crate::daemon::subscription_queue::{Notice, NoticeRef, PopError, QueueItem, SubscriptionQueue};
use crate::message::{Epoch, QuestionFailure, SubId};
use crate::proto::join::{Join, JoinEvent, Joined};
use crossbeam_channel::TryRecvError;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
#[cfg(feature = "async")]
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "async")]
use std::task::{Context, Poll};
use std::time::Duration;

/// Time limit for a publisher's answer to a request; the request is repeated several times.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay before a request is retried that was refused because a queue was full.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// A bounded stream of [`Notice`]s. A reader that is too slow loses the newest messages, of this subscription only,
/// and reads [`Notice::Dropped`] in their place. Dropping the handle ends the subscription.
///
/// Several threads may read from one subscription; each notice goes to one of them.
///
/// If the bus is attached by shared memory and has this subscription alone, the reading thread takes the messages out
/// of that memory itself. Between its calls they wait there and in the peer; after some milliseconds without a call a
/// thread of the bus takes them.
pub struct Subscription {
    queue: Arc<SubscriptionQueue>,
    subs: Vec<SubId>,
    link: PeerLink,
    /// Progress of the join, if the subscription begins with history or confirmation.
    join_progress: Option<Mutex<JoinProgress>>,
}

/// A late join, with its unanswered requests.
struct JoinProgress {
    join: Join,
    pending_answers: Vec<(Epoch, AnswerReceiver)>,
    /// True if a request could not be sent because a queue was full.
    is_backpressured: bool,
    /// Number of notices dropped at the current read position, if any.
    dropped: Option<u64>,
    /// True if the bus is closed, or its peer is gone, and the queue has been read.
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

    /// Returns the queue, and the number of the only pattern of the subscription.
    pub(super) fn single(&self) -> (&SubscriptionQueue, SubId) {
        (&self.queue, self.subs[0])
    }

    /// Waits for the next notice; returns `None` when the bus is closed or its peer is gone, and all notices are read.
    ///
    /// Do not call it for [`EmbeddedPeer`](super::EmbeddedPeer): no thread would drive the peer meanwhile.
    pub fn recv(&self) -> Option<Notice> {
        self.next_notice(None).ok()
    }

    /// Waits at most `timeout` for the next notice.
    ///
    /// # Errors
    /// No notice came in time, or none will come.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Notice, RecvError> {
        self.next_notice(Some(timeout)).map_err(recv_error)
    }

    /// Takes the next notice if there is one.
    ///
    /// # Errors
    /// There is no notice at present, or none will come.
    pub fn try_recv(&self) -> Result<Notice, RecvError> {
        let notifications = self.queue.watched_notifications();
        let notice = self.next_notice(Some(Duration::ZERO));
        if notice == Err(PopError::Empty) {
            self.clear_readiness(notifications);
        }
        notice.map_err(recv_error)
    }

    /// Calls `each` with every available notice, in order, and returns their number: the fast way to read many. A
    /// notice is borrowed from the queue; the caller copies what it keeps.
    ///
    /// # Errors
    /// There is no notice, and none will come.
    pub fn drain(&self, each: impl FnMut(NoticeRef<'_>)) -> Result<usize, RecvError> {
        let notifications = self.queue.watched_notifications();
        let drained = if self.join_progress.is_none() { self.drain_plain(each) } else { self.drain_joining(each) };
        self.clear_readiness(notifications);
        drained.map_err(recv_error)
    }

    fn drain_plain(&self, mut each: impl FnMut(NoticeRef<'_>)) -> Result<usize, PopError> {
        match self.queue.drain(&mut each) {
            // The connection may have notices that nobody has read yet.
            Ok(0) => match self.next_notice(Some(Duration::ZERO)) {
                Ok(notice) => {
                    notice.visit(&mut each);
                    // If the queue is closed by now, the next call reports it.
                    Ok(1 + self.queue.drain(each).unwrap_or(0))
                }
                Err(PopError::Empty) => Ok(0),
                Err(error) => Err(error),
            },
            drained => drained,
        }
    }

    fn drain_joining(&self, mut each: impl FnMut(NoticeRef<'_>)) -> Result<usize, PopError> {
        let mut count = 0;
        loop {
            match self.next_notice(Some(Duration::ZERO)) {
                Ok(event) => event.visit(&mut each),
                Err(PopError::Closed) if count == 0 => return Err(PopError::Closed),
                Err(_) => return Ok(count),
            }
            count += 1;
        }
    }

    /// Returns a descriptor for event loops, which is readable while a notice may wait and after the end. It is
    /// readable at first. The reader calls [`Subscription::try_recv`] until there is no notice, or
    /// [`Subscription::drain`], which make it unreadable; other calls do not. Nothing else may read from it.
    ///
    /// ```
    /// # use seqcast::{bus::Bus, config::Config, message::Message};
    /// # use std::os::fd::AsFd;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = Config::from_text("example", "parameters:\n  port: 31872\n")?;
    /// let bus = Bus::embed(&config)?;
    /// let subscription = bus.subscribe("plant.>".parse()?)?;
    /// let ready = subscription.readiness_fd()?;
    /// bus.publish(Message::new("plant.7".parse()?, "on"))?;
    /// let mut received = 0;
    /// while received == 0 {
    ///     // An event loop waits for this descriptor together with its others.
    ///     let mut descriptors = [nix::poll::PollFd::new(ready.as_fd(), nix::poll::PollFlags::POLLIN)];
    ///     nix::poll::poll(&mut descriptors, nix::poll::PollTimeout::NONE)?;
    ///     received += subscription.drain(|notice| println!("{notice:?}"))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn readiness_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.link.require_thread();
        self.queue.readiness_fd()
    }

    /// Makes the descriptor unreadable after a read that has left no notice, unless something has happened since then.
    /// It stays readable while a request of the join must be retried.
    fn clear_readiness(&self, notifications: Option<u64>) {
        if let Some(since) = notifications
            && !self.is_backpressured()
        {
            self.queue.clear_readiness(since);
        }
    }

    /// Returns whether a request of the join could not be sent because a queue was full.
    fn is_backpressured(&self) -> bool {
        self.join_progress.as_ref().is_some_and(|join_progress| locked(join_progress).is_backpressured)
    }

    /// Returns an iterator over all notices; it waits for each, until the bus is closed or its peer is gone.
    pub fn iter(&self) -> impl Iterator<Item = Notice> + '_ {
        std::iter::from_fn(|| self.recv())
    }

    /// Waits for a confirmed start: every publisher known by then has reported where the subscription begins, or has
    /// failed to; see [`Joined::is_established`]. Returns `None` for a subscription that requested neither history nor
    /// confirmation. The call loses no notice. Do not call it for [`EmbeddedPeer`](super::EmbeddedPeer), like
    /// [`Subscription::recv`].
    ///
    /// # Errors
    /// The start is not confirmed in time, or the bus is closed.
    pub fn wait_established(&self, timeout: Duration) -> Result<Option<Joined>, RecvError> {
        let Some(join_progress) = &self.join_progress else { return Ok(None) };
        let until = Clock::now().instant + timeout;
        loop {
            let notifications = self.queue.notifications();
            let mut left = until.since(Clock::now().instant);
            {
                let mut join_progress = locked(join_progress);
                while self.take_live_messages(&mut join_progress) || self.advance_join(&mut join_progress) {}
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
            self.link.wait_notification(&self.queue, notifications, Some(left));
        }
    }

    fn next_notice(&self, timeout: Option<Duration>) -> Result<Notice, PopError> {
        let Some(join_progress) = &self.join_progress else {
            return match self.link.receive(&self.queue, timeout)? {
                QueueItem::Notice(event) => Ok(event),
                // Not requested; the peer may have sent it all the same.
                QueueItem::Publisher(_) => self.next_notice(timeout),
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
            self.link.wait_notification(&self.queue, notifications, left.into_iter().chain(retry).min());
        }
    }

    /// Returns the next notice, without waiting.
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
            if !self.take_live_messages(join_progress)
                && !self.advance_join(join_progress)
                && join_progress.join.has_no_event()
            {
                return Err(if join_progress.is_closed { PopError::Closed } else { PopError::Empty });
            }
        }
    }

    /// Takes the live messages before the answers: they may contain a message that the history has evicted. Returns
    /// false if there were none.
    fn take_live_messages(&self, join_progress: &mut JoinProgress) -> bool {
        let mut has_taken = false;
        while !join_progress.join.is_full() && join_progress.dropped.is_none() && join_progress.join.has_no_event() {
            match self.queue.pop() {
                Ok(QueueItem::Publisher(publisher)) => join_progress.join.on_publisher(publisher),
                Ok(QueueItem::Notice(Notice::Message(delivery))) => {
                    join_progress.join.on_message(Clock::now().wall, delivery)
                }
                Ok(QueueItem::Notice(Notice::Loss(loss))) => join_progress.join.on_loss(loss),
                Ok(QueueItem::Notice(Notice::Dropped(dropped))) => {
                    join_progress.join.on_dropped();
                    join_progress.dropped = Some(dropped);
                }
                // Only the join reports this.
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

    /// Sends due requests and takes received answers. Returns false if there was nothing to do.
    fn advance_join(&self, join_progress: &mut JoinProgress) -> bool {
        let mut has_advanced = false;
        while let Ok(publisher) = self.queue.pop_publisher() {
            join_progress.join.on_publisher(publisher);
            has_advanced = true;
        }
        join_progress.is_backpressured = false;
        while let Some((epoch, question)) = join_progress.join.poll_question() {
            let (answer, answers) = AnswerSender::new(Some(self.queue.clone()));
            match self.link.request_history(epoch.into(), question, Duration::ZERO, ANSWER_TIMEOUT, answer) {
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
    // A panic under the lock leaves the progress consistent.
    join_progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The notices of the subscription, up to the end of the bus or of its peer. It needs no runtime: a notice wakes the
/// task that polled last.
#[cfg(feature = "async")]
impl futures_core::Stream for Subscription {
    type Item = Notice;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        self.link.require_thread();
        loop {
            let notifications = self.queue.notifications();
            match self.try_recv() {
                Ok(notice) => return Poll::Ready(Some(notice)),
                Err(RecvError::Closed) => return Poll::Ready(None),
                Err(RecvError::Empty) => {}
            }
            if self.is_backpressured() {
                // The peer takes a request each turn, and reports no free place in its queue. The task polls again at
                // once.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.queue.wake_task(notifications, context.waker()) {
                return Poll::Pending;
            }
        }
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

fn recv_error(error: PopError) -> RecvError {
    match error {
        PopError::Empty => RecvError::Empty,
        PopError::Closed => RecvError::Closed,
    }
}
