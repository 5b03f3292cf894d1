//! The bounded queue between the engine and one subscription of an embedded client.
//!
//! If the reader is too slow, the queue drops the newest notices. It reports their number at the place in the stream
//! where they are missing.

mod notice;

pub(crate) use notice::QueueItem;
pub use notice::{Notice, NoticeRef};

use crate::daemon::readiness::ReadinessPipe;
use crate::delivery::Deliveries;
use crate::message::Publisher;
use crate::proto::run_batch::RunBatch;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
#[cfg(feature = "async")]
use std::task::Waker;
use std::time::Duration;

/// Bytes charged for a notice in addition to its message: the structures around it.
const EVENT_BYTES: usize = 256;

/// Bytes in a queue from which on it copies small runs out of their datagrams. A reader that keeps up causes no copies.
const ATTACHED_BYTES: usize = 1024 * 1024;
/// Minimum bytes of a run, or charged for the runs of a datagram together, that refer to the datagram beyond
/// [`ATTACHED_BYTES`]. A datagram keeps up to 64 KiB, of which the queue counts only the runs.
const ATTACHED_RUN_BYTES: usize = 4096;

/// Number of loss reports accepted beyond a queue full of messages: reports are small, rare, and the purpose of the
/// bus. Further reports are counted as dropped.
const LOSSES_BEYOND_MAX: usize = 4096;

/// Reason why [`SubscriptionQueue::pop`] returns no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PopError {
    /// The queue is empty at present.
    Empty,
    /// The queue is empty and closed.
    Closed,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Maximum number of notices.
    pub(crate) count_max: usize,
    /// Maximum bytes of messages. A larger message still fits an empty queue.
    pub(crate) bytes_max: usize,
}

impl QueueLimits {
    /// Returns the fullness of a queue with `count` notices of `bytes` bytes, in parts of 1,024.
    pub(crate) fn fullness(&self, count: usize, bytes: usize) -> u64 {
        let part = |of: usize, max: usize| (of as u64).saturating_mul(1024) / max.max(1) as u64;
        part(count, self.count_max).max(part(bytes, self.bytes_max)).min(1024)
    }
}

#[derive(Debug)]
pub(crate) struct SubscriptionQueue {
    limits: QueueLimits,
    state: Mutex<QueueState>,
    ready: Condvar,
    /// Descriptor for event loops, once one was requested.
    readiness: OnceLock<ReadinessPipe>,
}

/// An entry of a queue.
#[derive(Debug)]
enum QueueEntry {
    /// Messages of one subject, and the bytes charged for them.
    Messages(Deliveries, usize),
    /// Messages of several subjects that arrived in one datagram; at least one.
    Runs(RunBatch),
    /// Any other notice.
    Notice(Notice),
}

#[derive(Debug, Default)]
struct QueueState {
    queued: VecDeque<QueueEntry>,
    /// Empty buffer whose allocation is reused next.
    recycled: VecDeque<QueueEntry>,
    /// Number of notices in the queue.
    count: usize,
    publishers: VecDeque<Option<Publisher>>,
    /// True if the awaited receiver condition of a subject has been met.
    has_awaited: bool,
    bytes: usize,
    /// Number of notices dropped since the last notice in the queue.
    dropped: u64,
    /// Number of notices dropped in total.
    dropped_total: u64,
    readers_waiting: usize,
    /// Number of notifications so far; a late join waits for the next one.
    notifications: u64,
    /// Number of late joins that wait for the next notification.
    notification_waiters: usize,
    /// True while the descriptor for event loops is readable.
    is_signalled: bool,
    /// Task that waits for the next notification.
    #[cfg(feature = "async")]
    waiting_task: Option<Waker>,
    closed: bool,
}

impl SubscriptionQueue {
    pub(crate) fn new(limits: QueueLimits) -> SubscriptionQueue {
        SubscriptionQueue { limits, state: Mutex::default(), ready: Condvar::new(), readiness: OnceLock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code panics while it holds the lock. If one did, the queue would still be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends messages. Those for which there is no room are dropped and counted.
    #[inline]
    pub(crate) fn push_messages(&self, messages: Deliveries) {
        self.wake(self.put_messages(messages));
    }

    /// Does the same as [`SubscriptionQueue::push_messages`] without waking a reader. [`SubscriptionQueue::notify`]
    /// must follow the last push.
    pub(crate) fn push_messages_silently(&self, messages: Deliveries) {
        drop(self.put_messages(messages));
    }

    #[inline]
    fn put_messages(&self, mut messages: Deliveries) -> MutexGuard<'_, QueueState> {
        let mut state = self.lock();
        if state.closed {
            return state;
        }
        let bytes = EVENT_BYTES + messages.bytes();
        let (count, room) = (messages.len(), self.room(&state, bytes));
        if 0 < room {
            state.report_dropped();
            messages.truncate(room);
            if ATTACHED_BYTES <= state.bytes && messages.bytes() < ATTACHED_RUN_BYTES {
                messages.detach();
            }
            state.count += messages.len();
            state.bytes += bytes;
            state.queued.push_back(QueueEntry::Messages(messages, bytes));
        }
        state.drop_events(count.saturating_sub(room) as u64);
        state
    }

    /// Appends the messages of a datagram. Those for which there is no room are dropped and counted.
    pub(crate) fn push_runs(&self, batch: RunBatch) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let bytes = charged_bytes(&batch);
        // Its runs are judged one by one if they do not fit together, or refer to much more memory than is charged.
        let is_attached = batch.is_dense() && (state.bytes < ATTACHED_BYTES || ATTACHED_RUN_BYTES <= bytes);
        let is_fitting = bytes <= self.limits.bytes_max && batch.messages() <= self.room(&state, bytes);
        if !is_attached || !is_fitting {
            drop(state);
            batch.for_each(|(_, messages)| drop(self.put_messages(messages)));
            return self.notify();
        }
        state.report_dropped();
        (state.count, state.bytes) = (state.count + batch.messages(), state.bytes + bytes);
        state.queued.push_back(QueueEntry::Runs(batch));
        self.wake(state);
    }

    /// Appends a notice, or drops and counts it. A [`Notice::Dropped`] adds to the count.
    pub(crate) fn push(&self, event: Notice) {
        let event = match event {
            Notice::Message(delivery) => return self.push_messages(delivery.into()),
            event => event,
        };
        let mut state = self.lock();
        if state.closed {
            return;
        }
        match event {
            Notice::Dropped(count) => state.drop_events(count),
            Notice::Loss(_) if self.limits.count_max + LOSSES_BEYOND_MAX <= state.count => state.drop_events(1),
            event => {
                state.report_dropped();
                state.count += 1;
                state.bytes += EVENT_BYTES;
                state.queued.push_back(QueueEntry::Notice(event));
            }
        }
        self.wake(state);
    }

    /// Appends a discovered publisher, or `None` after the last of those known at first.
    pub(crate) fn push_publisher(&self, publisher: Option<Publisher>) {
        let mut state = self.lock();
        // A publisher that is reported repeatedly is queued once.
        if !state.closed && !state.publishers.contains(&publisher) {
            state.publishers.push_back(publisher);
            self.wake(state);
        }
    }

    /// Records that the awaited receiver condition has been met, and wakes the reader.
    pub(crate) fn push_awaited(&self) {
        let mut state = self.lock();
        state.has_awaited = true;
        self.wake(state);
    }

    /// Returns whether the awaited receiver condition has been met since the last call.
    pub(crate) fn take_awaited(&self) -> bool {
        std::mem::take(&mut self.lock().has_awaited)
    }

    /// Wakes waiting readers after a change of this queue or in a source that its reader also waits for.
    pub(crate) fn notify(&self) {
        self.wake(self.lock());
    }

    fn wake(&self, mut state: MutexGuard<'_, QueueState>) {
        self.count_notification(&mut state);
        #[cfg(feature = "async")]
        let waiting_task = state.waiting_task.take();
        let waiting = (state.notification_waiters, state.readers_waiting);
        drop(state);
        match waiting {
            (0, 0) => {}
            (0, _) => self.ready.notify_one(),
            // A thread that waits for a notification may be unable to use the notice, so all threads are woken.
            _ => self.ready.notify_all(),
        }
        #[cfg(feature = "async")]
        waiting_task.into_iter().for_each(Waker::wake);
    }

    /// Counts a notification and makes the descriptor for event loops readable.
    fn count_notification(&self, state: &mut QueueState) {
        state.notifications += 1;
        if let Some(readiness) = self.readiness.get()
            && !std::mem::replace(&mut state.is_signalled, true)
        {
            readiness.signal();
        }
    }

    /// Returns a descriptor that is readable from now on until [`SubscriptionQueue::clear_readiness`], and again from
    /// the next notification on.
    pub(crate) fn readiness_fd(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(readiness) = self.readiness.get() {
            return Ok(readiness.fd());
        }
        let opened = ReadinessPipe::open()?;
        let mut state = self.lock();
        // Another thread may have opened a pipe meanwhile.
        let readiness = self.readiness.get_or_init(|| opened);
        if !std::mem::replace(&mut state.is_signalled, true) {
            readiness.signal();
        }
        Ok(readiness.fd())
    }

    /// Returns the number of notifications so far if an event loop waits for the descriptor.
    pub(crate) fn watched_notifications(&self) -> Option<u64> {
        self.readiness.get().map(|_| self.notifications())
    }

    /// Makes the descriptor for event loops unreadable, unless the number of notifications differs from `since` or the
    /// queue is closed. Returns whether it is unreadable.
    pub(crate) fn clear_readiness(&self, since: u64) -> bool {
        let mut state = self.lock();
        if state.notifications != since || state.closed {
            return false;
        }
        if let Some(readiness) = self.readiness.get()
            && std::mem::take(&mut state.is_signalled)
        {
            readiness.clear();
        }
        true
    }

    /// Has the next notification wake the task. Returns false if the number of notifications differs from `since`.
    #[cfg(feature = "async")]
    pub(crate) fn wake_task(&self, since: u64, task: &Waker) -> bool {
        let mut state = self.lock();
        let is_waiting = state.notifications == since;
        if is_waiting {
            state.waiting_task = Some(task.clone());
        }
        is_waiting
    }

    /// Returns the number of messages of together `bytes` bytes that fit. After a drop the queue accepts messages again
    /// when it is half empty, so that drops come in few spans.
    fn room(&self, state: &QueueState, bytes: usize) -> usize {
        let part = if 0 < state.dropped { 2 } else { 1 };
        if 0 < state.bytes && self.limits.bytes_max / part < state.bytes + bytes {
            return 0;
        }
        self.limits.count_max.div_ceil(part).saturating_sub(state.count)
    }

    /// Returns whether an item can be taken, or none will come.
    pub(crate) fn has_items(&self) -> bool {
        !self.lock().is_idle()
    }

    /// Takes the oldest item.
    pub(crate) fn pop(&self) -> Result<QueueItem, PopError> {
        self.lock().pop()
    }

    /// Takes the oldest item, and waits for one: without limit, or for at most `timeout`.
    pub(crate) fn pop_wait(&self, timeout: Option<Duration>) -> Result<QueueItem, PopError> {
        if timeout == Some(Duration::ZERO) {
            return self.pop();
        }
        let mut state = self.lock();
        state.readers_waiting += 1;
        state = self.wait(state, timeout, |state| state.is_idle());
        state.readers_waiting -= 1;
        let item = state.pop();
        let is_for_another = !state.queued.is_empty() && 0 < state.readers_waiting;
        drop(state);
        // One notification may announce several notices.
        if is_for_another {
            self.ready.notify_one();
        }
        item
    }

    /// Takes all notices and calls `each` with a reference to each, without holding a lock meanwhile. Returns their
    /// number.
    pub(crate) fn drain(&self, mut each: impl FnMut(NoticeRef<'_>)) -> Result<usize, PopError> {
        let mut state = self.lock();
        state.publishers.clear();
        let recycled = std::mem::take(&mut state.recycled);
        let mut queued = std::mem::replace(&mut state.queued, recycled);
        let (mut count, dropped, closed) = (state.count, std::mem::take(&mut state.dropped), state.closed);
        (state.count, state.bytes) = (0, 0);
        drop(state);
        for queued in queued.drain(..) {
            match queued {
                QueueEntry::Messages(messages, _) => messages.visit(|delivery| each(NoticeRef::Message(delivery))),
                QueueEntry::Runs(batch) => batch.visit(|delivery| each(NoticeRef::Message(delivery))),
                QueueEntry::Notice(event) => event.visit(&mut each),
            }
        }
        // The next call reuses the allocation.
        self.lock().recycled = queued;
        if 0 < dropped {
            each(NoticeRef::Dropped(dropped));
            count += 1;
        }
        if count == 0 && closed { Err(PopError::Closed) } else { Ok(count) }
    }

    /// Takes the oldest discovered publisher and leaves the notices in the queue.
    pub(crate) fn pop_publisher(&self) -> Result<Option<Publisher>, PopError> {
        let mut state = self.lock();
        let nothing = if state.closed { PopError::Closed } else { PopError::Empty };
        state.publishers.pop_front().ok_or(nothing)
    }

    /// Returns the number of notifications so far, for [`SubscriptionQueue::wait_notification`].
    pub(crate) fn notifications(&self) -> u64 {
        self.lock().notifications
    }

    /// Waits until the number of notifications differs from `since`: without limit, or for at most `timeout`.
    pub(crate) fn wait_notification(&self, since: u64, timeout: Option<Duration>) {
        let mut state = self.lock();
        state.notification_waiters += 1;
        state = self.wait(state, timeout, |state| state.notifications == since);
        state.notification_waiters -= 1;
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, QueueState>,
        timeout: Option<Duration>,
        is_idle: impl FnMut(&mut QueueState) -> bool,
    ) -> MutexGuard<'a, QueueState> {
        match timeout {
            None => self.ready.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                self.ready.wait_timeout_while(state, timeout, is_idle).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Closes the queue. Readers can still take the queued items.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.wake(state);
        // Every reader must see the end, and a notification wakes only one of them.
        self.ready.notify_all();
    }

    /// Returns the fullness in parts of 1,024, and 0 while the queue drops: publishers do not wait for a reader that
    /// already loses messages.
    pub(crate) fn fullness(&self) -> u64 {
        let state = self.lock();
        if 0 < state.dropped { 0 } else { self.limits.fullness(state.count, state.bytes) }
    }

    /// Returns (notices, bytes, notices dropped in total).
    pub(crate) fn fill(&self) -> (usize, usize, u64) {
        let state = self.lock();
        (state.count, state.bytes, state.dropped_total)
    }
}

impl QueueState {
    /// Returns whether no item can be taken, and further ones may come.
    fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.publishers.is_empty() && self.dropped == 0 && !self.closed
    }

    fn pop(&mut self) -> Result<QueueItem, PopError> {
        if let Some(publisher) = self.publishers.pop_front() {
            return Ok(QueueItem::Publisher(publisher));
        }
        self.split_runs();
        if let Some(QueueEntry::Messages(messages, bytes)) = self.queued.front_mut()
            && let Some(delivery) = messages.next()
        {
            self.count -= 1;
            if messages.len() == 0 {
                self.bytes -= *bytes;
                self.queued.pop_front();
            }
            return Ok(QueueItem::Notice(Notice::Message(delivery)));
        }
        match self.queued.pop_front() {
            Some(QueueEntry::Notice(event)) => {
                (self.count, self.bytes) = (self.count - 1, self.bytes - EVENT_BYTES);
                Ok(QueueItem::Notice(event))
            }
            Some(QueueEntry::Messages(..) | QueueEntry::Runs(_)) => {
                unreachable!("messages leave with the last of them")
            }
            None if 0 < self.dropped => Ok(QueueItem::Notice(Notice::Dropped(std::mem::take(&mut self.dropped)))),
            None if self.closed => Err(PopError::Closed),
            None => Err(PopError::Empty),
        }
    }

    /// Separates the first run from others of its datagram, if it is next.
    fn split_runs(&mut self) {
        let Some(QueueEntry::Runs(batch)) = self.queued.front_mut() else { return };
        let (_, messages) = batch.next().expect("a batch leaves with its last run");
        if batch.runs() == 0 {
            self.queued.pop_front();
        }
        let bytes = EVENT_BYTES + messages.bytes();
        self.queued.push_front(QueueEntry::Messages(messages, bytes));
    }

    /// Counts `count` dropped notices.
    fn drop_events(&mut self, count: u64) {
        self.dropped += count;
        self.dropped_total += count;
    }

    /// Appends the number of dropped notices before any later notice.
    fn report_dropped(&mut self) {
        if 0 < self.dropped {
            let dropped = std::mem::take(&mut self.dropped);
            self.count += 1;
            self.bytes += EVENT_BYTES;
            self.queued.push_back(QueueEntry::Notice(Notice::Dropped(dropped)));
        }
    }
}

/// Returns the bytes charged for a batch.
fn charged_bytes(batch: &RunBatch) -> usize {
    EVENT_BYTES * batch.runs() + batch.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{
        Cause, Delivery, Dseq, Epoch, Loss, LossScope, Message, MessageRef, Publisher, Reason, Verdict,
    };
    use crate::seqno::{Frame, Seq};
    use crate::subject::Subject;
    use crate::time::WallTime;
    use crate::wire::{Run, entry};
    use bytes::Bytes;
    use std::sync::Arc;

    fn publisher() -> Publisher {
        Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 }
    }

    fn message(bytes: usize) -> Notice {
        let message = Message::new("a".parse().unwrap(), vec![0u8; bytes]);
        Notice::Message(Delivery::new(message, publisher(), None, Verdict::Direct))
    }

    fn loss() -> Notice {
        let what = LossScope::Tail { after: Dseq(1) };
        let (reason, cause, at) = (Reason::Silent, Cause::Network, WallTime::EPOCH);
        Notice::Loss(Loss { publisher: publisher(), what, reason, cause, at })
    }

    /// Runs a story: a digit pushes that number of messages, `l` pushes a loss, `r` reads one item. Compares the items
    /// read; `.` means none.
    fn check(count_max: usize, story: &str, expected: &str) {
        let queue = SubscriptionQueue::new(QueueLimits { count_max, bytes_max: 1 << 30 });
        let mut read = String::new();
        for step in story.chars() {
            match step {
                'l' => queue.push(loss()),
                'k' => queue.push_publisher(None),
                'r' => match queue.pop() {
                    Ok(QueueItem::Notice(Notice::Message(_))) => read.push('m'),
                    Ok(QueueItem::Notice(Notice::Loss(_))) => read.push('l'),
                    Ok(QueueItem::Notice(Notice::Dropped(count))) => read.push_str(&count.to_string()),
                    Ok(QueueItem::Notice(Notice::Joined(_))) => read.push('j'),
                    Ok(QueueItem::Publisher(_)) => read.push('k'),
                    Err(_) => read.push('.'),
                },
                digit => (0..digit.to_digit(10).unwrap()).for_each(|_| queue.push(message(1))),
            }
        }
        assert_eq!(read, expected, "{story}");
    }

    #[test]
    fn drops_are_reported_in_place() {
        check(4, "3rrrr", "mmm.");
        check(4, "7rrrrrr", "mmmm3.");
        // The queue is read down to half before it accepts messages again; the drop count precedes them.
        check(4, "6r1rr1rrrr", "mmmm3m.");
    }

    #[test]
    fn small_runs_of_slow_readers_leave_their_datagrams() {
        for (payload_bytes, attached) in [(64, 1..=ATTACHED_BYTES / EVENT_BYTES), (ATTACHED_RUN_BYTES, 5000..=5000)] {
            let queue = SubscriptionQueue::new(QueueLimits { count_max: 5000, bytes_max: 1 << 30 });
            let subject: Subject = "a".parse().unwrap();
            let mut datagram = Vec::new();
            entry::put(&mut datagram, MessageRef::new(&subject, &vec![7; payload_bytes]));
            let datagram = Bytes::from(datagram);
            for _ in 0..5000 {
                let run = Run::of_packed(subject.clone(), None, 1, datagram.clone());
                queue.push_messages(Deliveries::of_run(run, publisher(), Verdict::Unnumbered, false));
            }
            let mut count = 0;
            while let Ok(QueueItem::Notice(Notice::Message(delivery))) = queue.pop() {
                assert_eq!(delivery.message.payload, vec![7; payload_bytes]);
                count += usize::from(datagram.as_ptr_range().contains(&delivery.message.payload.as_ptr()));
            }
            assert!(attached.contains(&count), "{count} of {payload_bytes} bytes");
        }
    }

    #[test]
    fn batch_beyond_the_limit_is_accepted_in_part() {
        let queue = SubscriptionQueue::new(QueueLimits { count_max: 5, bytes_max: 1 << 30 });
        let together = |count: u64| {
            let messages = (0..count).map(|_| Message::new("a".parse().unwrap(), "x")).collect();
            let seq = Seq::from_parts(Frame::new(1).unwrap(), 1).unwrap();
            Deliveries::of_messages(messages, seq, publisher())
        };
        queue.push_messages(together(3));
        queue.push_messages(together(4));
        assert_eq!(queue.fill().0, 5);
        queue.push_messages(together(1));
        queue.push(loss());
        let (mut read, mut count) = (Vec::new(), 0);
        let drained = queue.drain(|event| match event {
            NoticeRef::Message(delivery) => read.push(delivery.seq.map_or(0, Seq::count)),
            NoticeRef::Dropped(dropped) => count += dropped,
            NoticeRef::Loss(_) => read.push(0),
            NoticeRef::Joined(_) => {}
        });
        assert_eq!((drained, read, count), (Ok(7), vec![1, 2, 3, 1, 2, 0], 3), "the loss follows the dropped messages");
        assert_eq!(queue.fill(), (0, 0, 3));
        assert_eq!(queue.drain(|_| {}), Ok(0));
        queue.close();
        assert_eq!(queue.drain(|_| {}), Err(PopError::Closed));
    }

    #[test]
    fn runs_are_read_together_or_apart() {
        let batch = |wanted: usize| {
            let run = |index: usize| {
                let (subject, mut entries) = (format!("t.{index}").parse().unwrap(), Vec::new());
                (0..3).for_each(|n| entry::put(&mut entries, MessageRef::new(&subject, &[n; 64])));
                Run::of_packed(subject, Some(Seq::from_parts(Frame::new(1).unwrap(), 1).unwrap()), 3, entries.into())
            };
            RunBatch::of_runs((0..10).map(run).collect(), 0..wanted, publisher())
        };
        let queue = |count_max, wanted| {
            let queue = SubscriptionQueue::new(QueueLimits { count_max, bytes_max: 1 << 30 });
            queue.push_runs(batch(wanted));
            queue.push(loss());
            queue
        };
        // Each run has two messages that were not received before: all, few of many, and more than the queue takes.
        for (count_max, wanted, expected, dropped) in [(99, 10, 20_usize, 0), (99, 2, 4, 0), (7, 10, 7, 13)] {
            let (popped, drained) = (queue(count_max, wanted), queue(count_max, wanted));
            let charged = EVENT_BYTES * expected.div_ceil(2);
            assert!(charged < popped.fill().1 && popped.fill() == drained.fill(), "{:?}", popped.fill());
            let mut apart = Vec::new();
            while let Ok(QueueItem::Notice(notice)) = popped.pop() {
                apart.push(notice);
            }
            let messages = apart.iter().filter(|notice| matches!(notice, Notice::Message(_))).count();
            assert_eq!((messages, popped.fill().0, popped.fill().1), (expected, 0, 0));
            let mut together = Vec::new();
            let read = drained.drain(|notice| match notice {
                NoticeRef::Message(delivery) => together.push(Notice::Message(delivery.to_delivery())),
                NoticeRef::Loss(loss) => together.push(Notice::Loss(loss.clone())),
                NoticeRef::Dropped(count) => together.push(Notice::Dropped(count)),
                NoticeRef::Joined(_) => {}
            });
            assert_eq!((together, read), (apart.clone(), Ok(apart.len())));
            assert_eq!(apart.contains(&Notice::Dropped(dropped)), 0 < dropped);
        }
    }

    /// Returns a batch of runs of one empty message each, which refer to this datagram.
    fn small_runs(count: usize, capacity: usize, datagram: &Bytes) -> RunBatch {
        let mut runs = Vec::with_capacity(capacity);
        let run = |_| Run::of_packed("a".parse().unwrap(), None, 1, datagram.slice(..1));
        runs.extend((0..count).map(run));
        RunBatch::of_runs(runs, 0..count, publisher())
    }

    #[test]
    fn small_batches_of_slow_readers_leave_their_datagrams() {
        let datagram = Bytes::from(vec![0; 65_000]);
        let first = ATTACHED_BYTES.div_ceil(2 * (EVENT_BYTES + 1));
        // Number of runs, capacity of their list, batches pushed, and batches that stay together.
        for (runs, capacity, pushed, together) in
            [(2, 2, 2 * first, first), (2, 5, first, 0), (16, 16, 2 * first, 2 * first), (16, 33, first, 0)]
        {
            let queue = SubscriptionQueue::new(QueueLimits { count_max: 1 << 20, bytes_max: 1 << 30 });
            for _ in 0..pushed {
                queue.push_runs(small_runs(runs, capacity, &datagram));
            }
            let state = queue.lock();
            let is_batch = |entry: &&QueueEntry| matches!(entry, QueueEntry::Runs(_));
            assert_eq!(state.queued.iter().filter(is_batch).count(), together, "{runs} runs, {capacity} places");
            let attached = |entry: &QueueEntry| match entry {
                QueueEntry::Messages(messages, _) => {
                    let entries = messages.run().expect("the messages of a run").entries;
                    usize::from(datagram.as_ptr_range().contains(&entries.as_ptr()))
                }
                _ => 1,
            };
            // Each of these refers to the datagram.
            let attached: usize = state.queued.iter().map(attached).sum();
            assert!(attached <= together.max(ATTACHED_BYTES / EVENT_BYTES), "{attached} of {runs} runs");
        }
    }

    #[test]
    fn empty_queue_accepts_part_of_large_batch() {
        let datagram = Bytes::from(vec![0; 65_000]);
        let fill = |runs, bytes_max| {
            let queue = SubscriptionQueue::new(QueueLimits { count_max: 1 << 20, bytes_max });
            queue.push_runs(small_runs(runs, runs, &datagram));
            queue.fill()
        };
        let bytes = EVENT_BYTES + 1;
        assert_eq!(fill(1000, 1000 * bytes), (1000, 1000 * bytes, 0));
        assert_eq!(fill(1000, 1000 * bytes - 1), (999, 999 * bytes, 1));
        assert_eq!(fill(3800, 65_536), (255, 255 * bytes, 3545));
        assert_eq!(fill(2, 100), (1, bytes, 1));
    }

    #[test]
    fn publisher_discovery_precedes_messages() {
        check(4, "2k1krrrrr", "kmmm.");
    }

    #[test]
    fn full_queue_still_accepts_losses() {
        check(2, "4lrrrrr", "mm2l.");
    }

    #[test]
    fn queue_bytes_are_bounded_beyond_one_message() {
        let queue = SubscriptionQueue::new(QueueLimits { count_max: 100, bytes_max: 1000 });
        queue.push(message(5000));
        queue.push(message(1));
        assert_eq!(queue.fill(), (1, 5000 + EVENT_BYTES, 1));
        assert!(matches!(queue.pop(), Ok(QueueItem::Notice(Notice::Message(_)))));
        assert_eq!(queue.pop(), Ok(QueueItem::Notice(Notice::Dropped(1))));
        assert_eq!(queue.pop(), Err(PopError::Empty));
        queue.push(message(1));
        queue.close();
        queue.push(message(1));
        assert!(matches!(queue.pop_wait(None), Ok(QueueItem::Notice(Notice::Message(_)))));
        assert_eq!(queue.pop_wait(None), Err(PopError::Closed));
    }

    #[test]
    fn messages_beyond_the_queue_size_are_dropped() {
        for (client_queue_size, dropped) in [(2000, true), (1 << 20, false)] {
            let queue = SubscriptionQueue::new(QueueLimits { count_max: 100, bytes_max: client_queue_size });
            (0..10).for_each(|_| queue.push(message(1000)));
            assert_eq!(queue.fill().2 != 0, dropped, "{client_queue_size} bytes");
        }
    }

    #[test]
    fn waiting_reader_is_woken() {
        let queue = Arc::new(SubscriptionQueue::new(QueueLimits { count_max: 4, bytes_max: 1000 }));
        let reader = {
            let queue = queue.clone();
            std::thread::spawn(move || {
                let mut read = 0;
                while let Ok(event) = queue.pop_wait(None) {
                    read += if let QueueItem::Notice(Notice::Dropped(count)) = event { count } else { 1 };
                }
                read
            })
        };
        (0..10_000).for_each(|_| queue.push(message(1)));
        queue.close();
        assert_eq!(reader.join().unwrap(), 10_000);
        assert_eq!(queue.pop_wait(Some(Duration::from_millis(1))), Err(PopError::Closed));
    }
}
