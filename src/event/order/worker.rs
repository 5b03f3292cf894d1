//! A worker takes objects, becomes their owner, and sends their events one after the other, with id and `prev`.
//!
//! The steps are those of seed 001 in its order, with a batch of events where the seed has one event. A worker may end
//! at any point, between two steps or within a step. A later run of the same name continues from the state of the
//! store. So does a worker of another name once the lease has ended.

use super::mutant::{OrderMutant, OrderMutants};
use super::name::{Object, WorkerName};
use super::stamp::{Generation, OrderStamp};
use super::store::{OpOutcome, StampedEvent, StoreOp, WorkerContext, WorkerOp};
use bytes::Bytes;
use std::collections::VecDeque;

/// An event as a worker sends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrderedEvent {
    /// Object of the event.
    pub object: Object,
    /// Id of the event; two events with the same id are the same event.
    pub id: OrderStamp,
    /// Id of the object's previous event; `None` for the first event. Less than `id`.
    pub prev: Option<OrderStamp>,
    /// The fencing token of the owner that sends it.
    pub token: OrderStamp,
    /// The event as it was pushed.
    pub payload: Bytes,
}

/// Settings of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Name of the worker; no two running workers may have the same name.
    pub name: WorkerName,
    /// Duration of a lease in milliseconds, from the worker's last step on. Until it ends, other workers may not take
    /// over the worker's object. It is at least 2, longer than any step, and the same for all workers of a store.
    pub lease_ms: u64,
}

/// The next action that a worker requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerAction {
    /// A step on the store. The caller passes its outcome to [`Worker::on_outcome`], or calls [`Worker::on_unknown`] if
    /// the outcome is unknown.
    Apply(StoreOp),
    /// An event to send. The caller calls [`Worker::on_sent`] once it is sent as durably as the sender promises.
    Send(OrderedEvent),
    /// An advisory to report. The worker continues.
    Report(WorkerAdvisory),
    /// No action is due before this time, unless an event is sent ([`Worker::on_sent`]) or an object is pushed
    /// ([`Worker::on_push`]).
    Wait {
        /// Time of the next poll, in milliseconds.
        until_ms: u64,
    },
    /// The worker has stopped.
    Stop(WorkerEnd),
}

/// A condition that the worker reports to its operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerAdvisory {
    /// The state of the generation that this worker knew was lost or rolled back. Pushed events may be lost, and sent
    /// events may be sent again with another id.
    LostGeneration {
        /// Generation that the worker knew; `None` at its start.
        known: Option<Generation>,
        /// Generation that it found instead; `None` if the state is empty.
        found: Option<Generation>,
    },
    /// Another worker took over the object of this worker, because the lease had ended.
    TakenOver {
        /// Object that this worker held.
        object: Object,
    },
}

/// The reason why a worker has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerEnd {
    /// Another worker of the same name has begun a run.
    Superseded,
    /// The caller ended the worker with [`Worker::on_end`].
    Ended,
    /// No higher generation exists, so that no new one can begin (in the year 2093).
    NoGeneration,
}

/// State of a worker. In each state up to `Recording`, the worker waits for the outcome of a step, or has yet to
/// request the step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WorkerState {
    ReadingMark,
    Beginning {
        found: Option<Generation>,
    },
    Opening,
    /// The worker has no object. It first checks the leases of others if that is due.
    Free,
    TakingOver {
        since_ms: u64,
    },
    TakingObject,
    Claiming {
        object: Object,
    },
    Dropping {
        object: Object,
    },
    Drawing(OwnedObject),
    Recording {
        owned: OwnedObject,
        id: OrderStamp,
    },
    Sending {
        owned: OwnedObject,
        /// Unsent events of the batch, at least one. The first one is being sent if `is_in_flight`.
        batch: VecDeque<StampedEvent>,
        is_in_flight: bool,
    },
    Waiting,
    Leaving,
    Stopped(WorkerEnd),
}

/// An object and the token by which the worker owns it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnedObject {
    object: Object,
    token: OrderStamp,
}

/// A worker of an order of events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    settings: Settings,
    state: WorkerState,
    /// Stamp of the present run, once the run is open.
    session: Option<OrderStamp>,
    /// The highest stamp seen.
    mark: Option<OrderStamp>,
    /// Time of the next check of other workers' leases, in milliseconds. No lease ends earlier.
    leases_ms: u64,
    /// Time at which the worker renews its lease while it sends a batch, in milliseconds.
    renew_ms: u64,
    is_renewing: bool,
    /// True once the caller has ended the worker.
    is_ending: bool,
    advisory: Option<WorkerAdvisory>,
    mutants: OrderMutants,
}

impl Worker {
    /// Creates a worker that begins, or begins again after a crash. `mark` is the highest stamp that the caller
    /// remembers, if any. With a higher stamp, the worker detects a rollback of the state earlier.
    pub fn new(settings: Settings, mark: Option<OrderStamp>) -> Worker {
        Worker {
            settings,
            state: WorkerState::ReadingMark,
            session: None,
            mark,
            leases_ms: 0,
            renew_ms: 0,
            is_renewing: false,
            is_ending: false,
            advisory: None,
            mutants: OrderMutants::default(),
        }
    }

    /// Returns the worker with deliberate mistakes in its steps.
    pub fn with_mutants(self, mutants: OrderMutants) -> Worker {
        Worker { mutants, ..self }
    }

    /// Returns the next action. `now_ms` is in milliseconds since 1970-01-01 UTC, on the clock of all workers of the
    /// store. After [`WorkerAction::Apply`] the caller must not poll again before it has reported the outcome.
    pub fn poll_step(&mut self, now_ms: u64) -> WorkerAction {
        if let Some(advisory) = self.advisory.take() {
            return WorkerAction::Report(advisory);
        }
        if self.is_ending && matches!(self.state, WorkerState::Free | WorkerState::Waiting) {
            self.state = WorkerState::Leaving;
        }
        if self.state == WorkerState::Free || self.state == WorkerState::Waiting && self.leases_ms <= now_ms {
            self.state = if now_ms < self.leases_ms {
                WorkerState::TakingObject
            } else {
                WorkerState::TakingOver { since_ms: now_ms }
            };
        }
        let op = match &mut self.state {
            WorkerState::ReadingMark => return WorkerAction::Apply(StoreOp::ReadMark),
            WorkerState::Beginning { found } => {
                let known = self.mark.map(OrderStamp::generation).max(*found);
                return match Generation::after(known, now_ms) {
                    Some(generation) => WorkerAction::Apply(StoreOp::Begin { found: *found, generation }),
                    None => WorkerAction::Stop(WorkerEnd::NoGeneration),
                };
            }
            WorkerState::Opening => return WorkerAction::Apply(StoreOp::Open { context: self.context(now_ms) }),
            WorkerState::Free => unreachable!("left above"),
            WorkerState::TakingOver { .. } => WorkerOp::TakeOver,
            WorkerState::TakingObject => WorkerOp::Take,
            WorkerState::Claiming { object } => WorkerOp::Claim { object: object.clone() },
            WorkerState::Dropping { object } => WorkerOp::Drop { object: object.clone() },
            WorkerState::Drawing(owned) => WorkerOp::Next { object: owned.object.clone(), token: owned.token },
            // Objects of crashed workers must not wait until the queue is empty. When a check of leases is due, the
            // worker therefore performs single steps.
            WorkerState::Recording { owned, id }
                if self.is_ending || self.leases_ms <= now_ms || self.mutants.is_stepwise() =>
            {
                WorkerOp::Record { object: owned.object.clone(), token: owned.token, id: *id }
            }
            WorkerState::Recording { owned, id } => {
                WorkerOp::Advance { object: owned.object.clone(), token: owned.token, id: *id }
            }
            // The lease is renewed between two events of a batch, too.
            WorkerState::Sending { owned, .. } if self.renew_ms <= now_ms => {
                self.is_renewing = true;
                WorkerOp::Renew { object: owned.object.clone(), token: owned.token }
            }
            WorkerState::Sending { owned, batch, is_in_flight: is_in_flight @ false } => {
                *is_in_flight = true;
                return WorkerAction::Send(ordered_event(owned, &batch[0]));
            }
            WorkerState::Sending { .. } => return WorkerAction::Wait { until_ms: self.renew_ms },
            WorkerState::Waiting => return WorkerAction::Wait { until_ms: self.leases_ms },
            WorkerState::Leaving => WorkerOp::Leave,
            WorkerState::Stopped(stop) => return WorkerAction::Stop(*stop),
        };
        let session = self.session.expect("a run is open before its first step");
        WorkerAction::Apply(StoreOp::WorkerOp { context: self.context(now_ms), session, op })
    }

    /// Handles the outcome of the step on the store.
    ///
    /// # Panics
    /// Panics if the requested step cannot have this outcome.
    pub fn on_outcome(&mut self, now_ms: u64, outcome: OpOutcome) {
        let is_renewing = std::mem::take(&mut self.is_renewing);
        let state = std::mem::replace(&mut self.state, WorkerState::ReadingMark);
        self.state = match (state, outcome) {
            (WorkerState::ReadingMark, OpOutcome::LostGeneration { found }) => self.on_lost(found),
            (WorkerState::ReadingMark, OpOutcome::MarkRead { mark }) => self.on_mark_read(mark),
            (WorkerState::Beginning { .. }, OpOutcome::MarkRead { mark }) if self.mark <= Some(mark) => {
                self.on_mark(mark)
            }
            // The worker reads the mark again, which shows the current generation.
            (WorkerState::Beginning { .. }, OpOutcome::MarkRead { .. }) | (_, OpOutcome::LostGeneration { .. }) => {
                WorkerState::ReadingMark
            }
            (_, OpOutcome::Superseded) => WorkerState::Stopped(WorkerEnd::Superseded),
            (state, OpOutcome::NotHeld) => self.on_not_held(state),
            (state, OpOutcome::Done) if is_renewing => {
                self.renew_ms = now_ms.saturating_add(self.settings.lease_ms / 2);
                state
            }
            (WorkerState::Opening, OpOutcome::Opened { session, object }) => {
                self.raise_mark(session);
                self.session = Some(session);
                object.map_or(WorkerState::Free, |object| WorkerState::Claiming { object })
            }
            (WorkerState::TakingOver { .. } | WorkerState::TakingObject, OpOutcome::Taken { object }) => {
                WorkerState::Claiming { object }
            }
            (WorkerState::TakingOver { since_ms }, OpOutcome::NoneEnded { first_ms }) => {
                // An object that another worker takes later has a full lease from then on.
                let later_ms = since_ms.saturating_add(self.settings.lease_ms);
                self.leases_ms = first_ms.map_or(later_ms, |first_ms| first_ms.min(later_ms));
                if self.mutants.is(OrderMutant::LeasesUnwatched) {
                    self.leases_ms = u64::MAX;
                }
                WorkerState::TakingObject
            }
            (WorkerState::TakingObject, OpOutcome::Empty) => WorkerState::Waiting,
            (WorkerState::Claiming { object }, OpOutcome::Claimed { token, unfinished }) => {
                self.raise_mark(token);
                let owned = OwnedObject { object, token };
                match unfinished.is_empty() {
                    true => WorkerState::Drawing(owned),
                    false => self.send(now_ms, owned, unfinished),
                }
            }
            (WorkerState::Claiming { object }, OpOutcome::Owned) => WorkerState::Dropping { object },
            (WorkerState::Drawing(owned), OpOutcome::Next(batch)) => self.send(now_ms, owned, batch),
            (WorkerState::Drawing(owned), OpOutcome::Emptied) => WorkerState::Dropping { object: owned.object },
            (WorkerState::Recording { .. }, OpOutcome::Advanced { object, token, batch }) => {
                self.raise_mark(token);
                self.send(now_ms, OwnedObject { object, token }, batch)
            }
            (WorkerState::Recording { .. }, OpOutcome::Empty) => WorkerState::Waiting,
            (WorkerState::Recording { owned, .. }, OpOutcome::Done) if self.mutants.is(OrderMutant::DropEarly) => {
                WorkerState::Dropping { object: owned.object }
            }
            (WorkerState::Recording { owned, .. }, OpOutcome::Done) => WorkerState::Drawing(owned),
            (WorkerState::Recording { .. }, OpOutcome::Paused) | (WorkerState::Dropping { .. }, OpOutcome::Done) => {
                WorkerState::Free
            }
            (WorkerState::Leaving, OpOutcome::Done) => WorkerState::Stopped(WorkerEnd::Ended),
            (state, outcome) => panic!("{outcome:?} is no outcome of the step requested in {state:?}"),
        };
    }

    /// Handles a step whose outcome is unknown, for example because the store was unreachable. The worker begins again
    /// from the state of the store. The caller decides when to retry.
    pub fn on_unknown(&mut self) {
        self.is_renewing = false;
        if !matches!(self.state, WorkerState::Stopped(_)) {
            self.state = WorkerState::ReadingMark;
        }
    }

    /// Records that the event with this id was sent. An event that is not being sent is ignored.
    pub fn on_sent(&mut self, id: OrderStamp) {
        let WorkerState::Sending { owned, batch, is_in_flight: is_in_flight @ true } = &mut self.state else { return };
        if batch[0].id != id {
            return;
        }
        *is_in_flight = false;
        let last = batch[batch.len() - 1].id;
        batch.pop_front();
        if batch.is_empty() || self.mutants.is(OrderMutant::RecordEarly) {
            self.state = WorkerState::Recording { owned: owned.clone(), id: last };
        }
    }

    /// Records that an object may have been pushed. A worker that waits for an object tries to take one at once.
    pub fn on_push(&mut self) {
        if self.state == WorkerState::Waiting {
            self.state = WorkerState::Free;
        }
    }

    /// Ends the worker. It first sends the queued events of its object, takes no other object, and stops.
    pub fn on_end(&mut self) {
        self.is_ending = true;
    }

    /// Returns the highest stamp that the worker has seen. The caller remembers it for the next run.
    pub fn mark(&self) -> Option<OrderStamp> {
        self.mark
    }

    /// Returns the object that the worker has taken. Killing a worker without an object delays no other worker.
    pub fn object(&self) -> Option<&Object> {
        match &self.state {
            WorkerState::Claiming { object } | WorkerState::Dropping { object } => Some(object),
            WorkerState::Drawing(owned) | WorkerState::Recording { owned, .. } | WorkerState::Sending { owned, .. } => {
                Some(&owned.object)
            }
            _ => None,
        }
    }

    fn context(&self, now_ms: u64) -> WorkerContext {
        let mark = self.mark.expect("the first step reads the mark");
        WorkerContext { worker: self.settings.name.clone(), mark, now_ms, lease_ms: self.settings.lease_ms }
    }

    fn raise_mark(&mut self, stamp: OrderStamp) {
        self.mark = self.mark.max(Some(stamp));
    }

    fn on_mark_read(&mut self, mark: OrderStamp) -> WorkerState {
        let Some(known) = self.mark else { return self.on_mark(mark) };
        if mark < known {
            return self.on_lost(Some(mark.generation()));
        }
        if known.generation() < mark.generation() {
            self.report_lost_state(Some(mark.generation()));
        }
        self.on_mark(mark)
    }

    fn on_lost(&mut self, found: Option<Generation>) -> WorkerState {
        self.report_lost_state(found);
        WorkerState::Beginning { found }
    }

    /// Reports a lost state. An empty state without a known generation is a beginning, not a loss.
    fn report_lost_state(&mut self, found: Option<Generation>) {
        let known = self.mark.map(OrderStamp::generation);
        if known.max(found).is_some() {
            self.advisory = Some(WorkerAdvisory::LostGeneration { known, found });
        }
    }

    fn on_mark(&mut self, mark: OrderStamp) -> WorkerState {
        self.raise_mark(mark);
        self.leases_ms = 0;
        WorkerState::Opening
    }

    fn on_not_held(&mut self, state: WorkerState) -> WorkerState {
        self.state = state;
        if let Some(object) = self.object() {
            self.advisory = Some(WorkerAdvisory::TakenOver { object: object.clone() });
        }
        WorkerState::Opening
    }

    fn send(&mut self, now_ms: u64, owned: OwnedObject, batch: Vec<StampedEvent>) -> WorkerState {
        self.raise_mark(batch.last().expect("a batch has at least one event").id);
        self.renew_ms = now_ms.saturating_add(self.settings.lease_ms / 2);
        WorkerState::Sending { owned, batch: batch.into(), is_in_flight: false }
    }
}

fn ordered_event(owned: &OwnedObject, event: &StampedEvent) -> OrderedEvent {
    OrderedEvent {
        object: owned.object.clone(),
        id: event.id,
        prev: event.prev,
        token: owned.token,
        payload: event.payload.clone(),
    }
}
