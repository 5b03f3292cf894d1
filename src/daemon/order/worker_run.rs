//! Runs a worker on a store: sends what it says, waits when nothing is queued, and tries again while the store is away.

use super::error::OrderError;
use crate::daemon::clock::Clock;
use crate::event::order::stamp::OrderStamp;
use crate::event::order::store::{OpOutcome, Store, StoreOp, WorkerOp};
use crate::event::order::worker::{OrderedEvent, Settings, Worker, WorkerAction, WorkerAdvisory, WorkerEnd};
use crate::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The first wait when nothing is queued, or when something failed; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest wait when nothing is queued: nobody tells a worker of a push, so that long an event may lie.
const IDLE_PAUSE_MAX: Duration = Duration::from_millis(20);
/// The longest wait for a store that is away, and for a sender that does not take an event.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a worker that is to end may not notice.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// What a worker tells while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerNotice {
    /// Something happened to the shared state, or to what the worker held.
    WorkerAdvisory(WorkerAdvisory),
    /// The store fails; the worker tries again until its patience ends. Told once.
    Unreachable(OrderError),
    /// The store does not fail any more.
    Recovered,
}

/// A worker and whom it works for.
#[derive(Debug)]
pub struct WorkerRun<'a, Send, Notify> {
    /// Of the worker.
    pub settings: Settings,
    /// The highest stamp remembered of a run before, if any.
    pub mark: Option<OrderStamp>,
    /// How long the store may fail in a row.
    pub patience: Duration,
    /// Sends an event, so durably as is wanted, and gives whether it was sent; if not, it is asked again. It may get the same event more
    /// than once, and should take less than half a lease.
    pub send: Send,
    /// Hears what happens.
    pub notify: Notify,
    /// Set when the worker is to end. It finishes the object that it has, and takes no other; if an event
    /// is not taken then, it ends without.
    pub is_ending: &'a AtomicBool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerExit {
    /// Why.
    pub stop: WorkerEnd,
    /// The highest stamp seen, to be remembered.
    pub mark: Option<OrderStamp>,
}

impl<Send, Notify> WorkerRun<'_, Send, Notify>
where
    Send: FnMut(&OrderedEvent) -> bool,
    Notify: FnMut(WorkerNotice),
{
    /// Works until it is to end, or another worker of its name has begun.
    ///
    /// # Errors
    /// The store failed for longer than the patience, or in a way that does not pass. What the worker holds is taken over when its
    /// lease ends, or goes on when it is started again.
    pub fn run<S: Store<Error = OrderError>>(mut self, store: &mut S) -> Result<WorkerExit, OrderError> {
        let mut worker = Worker::new(self.settings.clone(), self.mark);
        let mut retries = RetryBackoff::new(self.patience);
        let mut unsent = None;
        let mut idle = PAUSE_MIN;
        loop {
            if self.is_ending.load(Ordering::Relaxed) {
                worker.on_end();
            }
            match worker.poll_step(now_ms()) {
                WorkerAction::Apply(op) => {
                    let applied = store.apply(&op);
                    // It goes on being sent only while the object is held.
                    if !(is_renewal(&op) && applied == Ok(OpOutcome::Done)) {
                        unsent = None;
                    }
                    match applied {
                        Ok(outcome) => {
                            if !matches!(outcome, OpOutcome::Empty) {
                                idle = PAUSE_MIN;
                            }
                            worker.on_outcome(now_ms(), outcome);
                            if retries.succeeded() {
                                (self.notify)(WorkerNotice::Recovered);
                            }
                        }
                        Err(error) => self.on_error(&mut worker, &mut retries, error)?,
                    }
                }
                WorkerAction::Send(event) => match (self.send)(&event) {
                    true => worker.on_sent(event.id),
                    // It stays in process, for the next run of this worker or for another one.
                    false if self.is_ending.load(Ordering::Relaxed) => {
                        return Ok(WorkerExit { stop: WorkerEnd::Ended, mark: worker.mark() });
                    }
                    false => unsent = Some((event, PAUSE_MIN)),
                },
                WorkerAction::Report(advice) => (self.notify)(WorkerNotice::WorkerAdvisory(advice)),
                WorkerAction::Wait { until_ms } => {
                    let left = Duration::from_millis(until_ms.saturating_sub(now_ms()));
                    match &mut unsent {
                        Some((event, pause)) => {
                            self.wait(left.min(*pause));
                            *pause = (*pause * 2).min(RETRY_PAUSE_MAX);
                            if (self.send)(event) {
                                worker.on_sent(event.id);
                                unsent = None;
                            } else if self.is_ending.load(Ordering::Relaxed) {
                                return Ok(WorkerExit { stop: WorkerEnd::Ended, mark: worker.mark() });
                            }
                        }
                        None => {
                            self.wait(left.min(idle));
                            idle = (idle * 2).min(IDLE_PAUSE_MAX);
                            worker.on_push();
                        }
                    }
                }
                WorkerAction::WorkerEnd(stop) => return Ok(WorkerExit { stop, mark: worker.mark() }),
            }
        }
    }

    fn on_error(
        &mut self,
        worker: &mut Worker,
        retries: &mut RetryBackoff,
        error: OrderError,
    ) -> Result<(), OrderError> {
        let is_first = retries.is_fresh();
        match retries.failed(&error) {
            Some(pause) if !self.is_ending.load(Ordering::Relaxed) => {
                if is_first {
                    (self.notify)(WorkerNotice::Unreachable(error));
                }
                worker.on_unknown();
                self.wait(pause);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Not for longer than it takes to notice that it is to end.
    fn wait(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !self.is_ending.load(Ordering::Relaxed) {
            let part = left.min(END_CHECK_INTERVAL);
            thread::sleep(part);
            left -= part;
        }
    }
}

fn is_renewal(op: &StoreOp) -> bool {
    matches!(op, StoreOp::WorkerOp { act: WorkerOp::Renew { .. }, .. })
}

/// Now, in milliseconds since 1970-01-01 UTC.
pub(super) fn now_ms() -> u64 {
    Clock::now().wall.as_nanos() / 1_000_000
}

/// How often and how long something that fails is tried.
#[derive(Debug)]
pub(super) struct RetryBackoff {
    patience: Duration,
    since: Option<Instant>,
    pause: Duration,
}

impl RetryBackoff {
    pub(super) fn new(patience: Duration) -> RetryBackoff {
        RetryBackoff { patience, since: None, pause: PAUSE_MIN }
    }

    fn is_fresh(&self) -> bool {
        self.since.is_none()
    }

    /// How long to wait before the next try; `None` if there is to be none.
    pub(super) fn failed(&mut self, error: &OrderError) -> Option<Duration> {
        let now = Clock::now().instant;
        let since = *self.since.get_or_insert(now);
        if !error.is_transient() || self.patience <= now.since(since) {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(RETRY_PAUSE_MAX);
        Some(pause)
    }

    /// Gives whether it had failed before.
    fn succeeded(&mut self) -> bool {
        self.pause = PAUSE_MIN;
        self.since.take().is_some()
    }
}
