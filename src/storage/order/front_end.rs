//! A front end, which pushes events of an object with its new state.

use super::error::{OrderError, OrderFault};
use super::worker_run::{RetryBackoff, now_ms};
use crate::event::order::name::Object;
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::store::{OpOutcome, Store, StoreOp};
use bytes::Bytes;
use std::thread;
use std::time::Duration;

/// A front end on a store.
#[derive(Debug)]
pub struct FrontEnd<S> {
    store: S,
    mark: Option<OrderStamp>,
    patience: Duration,
}

/// The events and the state of one push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The object.
    pub object: Object,
    /// Its new state.
    pub data: Bytes,
    /// The main event.
    pub main: Bytes,
    /// The subevents, which follow it in this order.
    pub subs: Vec<Bytes>,
}

impl Push {
    /// Returns the step for a front end that has seen `mark`.
    fn to_op(&self, mark: OrderStamp) -> StoreOp {
        let Push { object, data, main, subs } = self.clone();
        StoreOp::Push { mark, object, data, main, subs }
    }
}

/// Receipt of queued events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushReceipt {
    /// The highest stamp seen; the caller stores it for the next run.
    pub mark: OrderStamp,
    /// Certain or possible loss of the state before the push.
    pub lost: Option<StateLoss>,
}

/// A certain or possible loss or rollback of the state. Events pushed before may be lost; the caller must push them
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLoss {
    /// The generation that this front end knew.
    pub known: Option<Generation>,
    /// The generation found instead; `None` if the state is empty.
    pub found: Option<Generation>,
}

impl<S: Store<Error = OrderError>> FrontEnd<S> {
    /// Creates a front end. `mark` is the highest stamp stored by an earlier run, if any. `patience` is the maximum
    /// time for which the front end retries a failing step.
    pub fn new(store: S, mark: Option<OrderStamp>, patience: Duration) -> FrontEnd<S> {
        FrontEnd { store, mark, patience }
    }

    /// Queues the events and sets the state of the object, in one step.
    ///
    /// # Errors
    /// The step had no effect, because the store failed for longer than the patience or with a permanent fault. Or the
    /// outcome is unknown ([`OrderError::is_unknown`]). Such a step is not retried, since the events might be queued
    /// twice.
    pub fn push(&mut self, push: &Push) -> Result<PushReceipt, OrderError> {
        let mut retries = RetryBackoff::new(self.patience);
        let (mut known, mut lost) = (self.mark, None);
        loop {
            let op = known.map_or(StoreOp::ReadMark, |mark| push.to_op(mark));
            let mut failure = None;
            match self.store.apply(&op) {
                Ok(OpOutcome::Pushed { mark }) => {
                    self.mark = Some(mark);
                    return Ok(PushReceipt { mark, lost });
                }
                Ok(OpOutcome::MarkRead { mark }) if self.mark <= Some(mark) => {
                    // Another process may have begun the generation.
                    if self.mark.is_some_and(|before| before.generation() < mark.generation()) {
                        self.record_loss(&mut lost, Some(mark.generation()));
                    }
                    known = Some(mark);
                }
                Ok(OpOutcome::LostGeneration { .. }) if known.is_some() => known = None,
                Ok(OpOutcome::LostGeneration { found }) => failure = self.begin(&mut lost, found).err(),
                Ok(OpOutcome::MarkRead { mark }) => failure = self.begin(&mut lost, Some(mark.generation())).err(),
                Ok(outcome) => unreachable!("{outcome:?} of a push"),
                Err(error) if error.is_unknown() && known.is_some() => return Err(error),
                Err(error) => failure = Some(error),
            }
            if let Some(error) = failure {
                thread::sleep(retries.on_failure(&error).ok_or(error)?);
            }
        }
    }

    /// Records the first loss. An empty state is no loss if no generation was known before.
    fn record_loss(&self, lost: &mut Option<StateLoss>, found: Option<Generation>) {
        let known = self.mark.map(OrderStamp::generation);
        if known.max(found).is_some() {
            lost.get_or_insert(StateLoss { known, found });
        }
    }

    /// Begins a generation. Whatever the outcome, the caller reads the mark again.
    fn begin(&mut self, lost: &mut Option<StateLoss>, found: Option<Generation>) -> Result<(), OrderError> {
        self.record_loss(lost, found);
        let known = self.mark.map(OrderStamp::generation).max(found);
        let none = || OrderError {
            location: "order".into(),
            fault: OrderFault::Other("there is no higher generation".into()),
        };
        let generation = Generation::after(known, now_ms()).ok_or_else(none)?;
        self.store.apply(&StoreOp::Begin { found, generation }).map(drop)
    }
}
