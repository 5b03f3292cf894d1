//! Runs a worker on a store: sends its events, waits while no object is queued, and retries while the store fails.

use super::error::OrderError;
use crate::clock::Clock;
use crate::event::order::stamp::OrderStamp;
use crate::event::order::store::{OpOutcome, Store, StoreOp, WorkerOp};
use crate::event::order::worker::{OrderedEvent, Settings, Worker, WorkerAction, WorkerAdvisory, WorkerEnd};
use crate::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// First pause while no object is queued, or after a failure. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause while no object is queued. No notification announces a push, so an event may wait this long.
const IDLE_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Longest pause while the store fails, or `send` refuses an event.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Interval at which a waiting worker checks whether it must stop.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A notice of a running worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerNotice {
    /// An advisory about the shared state, or about the object that the worker holds.
    Advisory(WorkerAdvisory),
    /// The store fails; the worker retries until its patience ends. Reported once.
    Unreachable(OrderError),
    /// The store works again.
    Recovered,
}

/// A worker with its callbacks.
#[derive(Debug)]
pub struct WorkerRun<'a, Send, Notify> {
    /// Settings of the worker.
    pub settings: Settings,
    /// The highest stamp stored by an earlier run, if any.
    pub mark: Option<OrderStamp>,
    /// Maximum time for which the worker retries a failing step.
    pub patience: Duration,
    /// Sends an event as durably as required, and returns whether it was sent. If it refuses an event, it is called
    /// again for this event. It may get the same event more than once, and should take less than half a lease.
    pub send: Send,
    /// Receives the notices.
    pub notify: Notify,
    /// True once the worker must stop. It then sends the events of its present object and takes no other object. If
    /// `send` refuses an event, the worker stops without sending it.
    pub is_ending: &'a AtomicBool,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerExit {
    /// Reason why the worker has stopped.
    pub stop: WorkerEnd,
    /// The highest stamp seen; the caller stores it for the next run.
    pub mark: Option<OrderStamp>,
}

impl<Send, Notify> WorkerRun<'_, Send, Notify>
where
    Send: FnMut(&OrderedEvent) -> bool,
    Notify: FnMut(WorkerNotice),
{
    /// Runs until the worker is stopped, or another worker of the same name has begun.
    ///
    /// # Errors
    /// The store failed for longer than the patience, or with a permanent fault. Another worker takes over the object
    /// when the lease ends, or this worker resumes it when it is started again.
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
                    // The worker retries the event only while it holds the object.
                    if !(is_renewal(&op) && applied == Ok(OpOutcome::Done)) {
                        unsent = None;
                    }
                    match applied {
                        Ok(outcome) => {
                            if !matches!(outcome, OpOutcome::Empty) {
                                idle = PAUSE_MIN;
                            }
                            worker.on_outcome(now_ms(), outcome);
                            if retries.on_success() {
                                (self.notify)(WorkerNotice::Recovered);
                            }
                        }
                        Err(error) => self.on_error(&mut worker, &mut retries, error)?,
                    }
                }
                WorkerAction::Send(event) => match (self.send)(&event) {
                    true => worker.on_sent(event.id),
                    // The event stays in process, for the next run of this worker or for another one.
                    false if self.is_ending.load(Ordering::Relaxed) => {
                        return Ok(WorkerExit { stop: WorkerEnd::Ended, mark: worker.mark() });
                    }
                    false => unsent = Some((event, PAUSE_MIN)),
                },
                WorkerAction::Report(advisory) => (self.notify)(WorkerNotice::Advisory(advisory)),
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
                WorkerAction::Stop(stop) => return Ok(WorkerExit { stop, mark: worker.mark() }),
            }
        }
    }

    fn on_error(
        &mut self,
        worker: &mut Worker,
        retries: &mut RetryBackoff,
        error: OrderError,
    ) -> Result<(), OrderError> {
        let (is_first, is_ending) = (retries.is_fresh(), self.is_ending.load(Ordering::Relaxed));
        // The signal that ends the worker may have interrupted the step.
        if is_ending && error.is_transient() && retries.take_last_try() {
            worker.on_unknown();
            return Ok(());
        }
        match retries.on_failure(&error) {
            Some(pause) if !is_ending => {
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

    /// Waits for `pause`, or until the worker must stop.
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
    matches!(op, StoreOp::WorkerOp { op: WorkerOp::Renew { .. }, .. })
}

/// Returns the current time in milliseconds since 1970-01-01 UTC.
pub(super) fn now_ms() -> u64 {
    Clock::now().wall.as_nanos() / 1_000_000
}

/// Backoff of a failing operation.
#[derive(Debug)]
pub(super) struct RetryBackoff {
    patience: Duration,
    since: Option<Instant>,
    pause: Duration,
    /// True once an operation that failed at the end was tried again.
    had_last_try: bool,
}

impl RetryBackoff {
    pub(super) fn new(patience: Duration) -> RetryBackoff {
        RetryBackoff { patience, since: None, pause: PAUSE_MIN, had_last_try: false }
    }

    fn is_fresh(&self) -> bool {
        self.since.is_none()
    }

    /// Returns whether an operation that fails at the end may be tried again: once, and only if it works otherwise.
    fn take_last_try(&mut self) -> bool {
        self.is_fresh() && !std::mem::replace(&mut self.had_last_try, true)
    }

    /// Records a failure. Returns the pause before the next try; `None` if the operation must not be retried.
    pub(super) fn on_failure(&mut self, error: &OrderError) -> Option<Duration> {
        let now = Clock::now().instant;
        let since = *self.since.get_or_insert(now);
        if !error.is_transient() || self.patience <= now.since(since) {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(RETRY_PAUSE_MAX);
        Some(pause)
    }

    /// Records a success. Returns whether the operation had failed before.
    fn on_success(&mut self) -> bool {
        self.pause = PAUSE_MIN;
        self.since.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::OrderFault;
    use super::*;
    use crate::event::order::memory::MemoryStore;
    use crate::event::order::name::WorkerName;

    /// A store whose first steps after a signal are interrupted.
    struct InterruptedStore {
        store: MemoryStore,
        failures: usize,
    }

    impl Store for InterruptedStore {
        type Error = OrderError;

        fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, OrderError> {
            if 0 < self.failures {
                self.failures -= 1;
                let fault = OrderFault::Unknown("Interrupted system call".to_owned());
                return Err(OrderError { location: "memory".to_owned(), fault });
            }
            let Ok(outcome) = self.store.apply(op);
            Ok(outcome)
        }
    }

    #[test]
    fn step_that_a_signal_interrupts_is_repeated() {
        let stop = |failures| {
            let is_ending = AtomicBool::new(true);
            let run = WorkerRun {
                settings: Settings { name: WorkerName::new("w").unwrap(), lease_ms: 1000 },
                mark: None,
                patience: Duration::from_secs(60),
                send: |_: &OrderedEvent| true,
                notify: |notice| panic!("{notice:?}"),
                is_ending: &is_ending,
            };
            run.run(&mut InterruptedStore { store: MemoryStore::default(), failures }).map(|exit| exit.stop)
        };
        assert_eq!(stop(0), Ok(WorkerEnd::Ended));
        assert_eq!(stop(1), Ok(WorkerEnd::Ended));
        assert!(stop(2).is_err(), "the store fails");
    }
}
