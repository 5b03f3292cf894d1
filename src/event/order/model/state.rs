//! One state of the model, with a store, workers that may crash at any step, a front end and the sent events. It also
//! defines the next transitions.

mod invariants;

use super::scenario::ScenarioConstants;
use super::state_hasher::{StateHasher, StateRelation};
use crate::event::order::memory::{MemoryStore, ObjectLease};
use crate::event::order::name::{Object, WorkerName};
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::store::{OpOutcome, Store, StoreOp, WorkerOp};
use crate::event::order::worker::{Worker, WorkerAction, WorkerAdvisory, WorkerEnd};
use std::hash::Hash;
use std::sync::Arc;

/// Events of an object that were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SentEvents {
    /// Ids in the order of first sendings, with the position of the event and its prev.
    ids: Vec<(OrderStamp, usize, Option<OrderStamp>)>,
    /// Position of the event that is to be sent next.
    next: usize,
    /// The highest token seen.
    token: Option<OrderStamp>,
}

#[derive(Clone, Debug, Hash)]
struct WorkerSlot {
    worker: Option<Worker>,
    /// Generation that the worker knew when the state was rolled back, until it reports the loss.
    unreported: Option<Generation>,
}

/// A saved store, with what had been pushed and sent.
#[derive(Clone, Debug, Hash)]
struct SavedState {
    store: MemoryStore,
    pushed: usize,
    next: Vec<usize>,
}

/// One state of the model.
#[derive(Clone, Debug)]
pub struct ModelState {
    constants: Arc<ScenarioConstants>,
    store: MemoryStore,
    slots: Vec<WorkerSlot>,
    front: Option<OrderStamp>,
    pushed: usize,
    now_ms: u64,
    crashes: u8,
    restarts: u8,
    ends: u8,
    ticks: u8,
    losses: u8,
    saved: Option<Arc<SavedState>>,
    sent: Vec<SentEvents>,
}

/// A change of the state that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The front end pushes the next main event with its subevents.
    Push,
    /// This worker does its next step.
    Step(usize),
    /// The event that this worker sends is sent.
    Sent(usize),
    /// This worker is notified of a push, and performs its next step.
    Wake(usize),
    /// This worker crashes.
    Crash(usize),
    /// This worker starts after a crash or a stop.
    Restart(usize),
    /// The model ends this worker.
    End(usize),
    /// Time passes.
    Tick,
    /// From here on the store may go back to this state.
    Save,
    /// The store goes back to the saved state.
    GoBack,
}

impl ModelState {
    /// Returns the first state of a scenario.
    ///
    /// # Panics
    /// Panics if a worker cannot begin.
    pub fn new(constants: &Arc<ScenarioConstants>) -> ModelState {
        let scenario = &constants.scenario;
        let mut state = ModelState {
            constants: Arc::clone(constants),
            store: MemoryStore::default().with_batches_of(scenario.batch_max).with_mutants(scenario.mutants),
            slots: vec![WorkerSlot { worker: None, unreported: None }; scenario.workers.len()],
            front: None,
            pushed: 0,
            now_ms: 0,
            crashes: scenario.crashes,
            restarts: scenario.restarts,
            ends: scenario.ends,
            ticks: scenario.ticks,
            losses: scenario.losses,
            saved: None,
            sent: vec![SentEvents::default(); constants.objects.len()],
        };
        for index in 0..state.slots.len() {
            state.start(index);
            while scenario.is_warm && !matches!(state.peek(index), Some(WorkerAction::Wait { .. })) {
                state.step(index).expect("nothing can go wrong yet");
            }
        }
        state
    }

    /// Returns one number for all states that are alike.
    pub fn digest(&self, relation: StateRelation) -> u128 {
        let mut all = StateHasher::new(relation);
        (self.pushed, self.now_ms, &self.sent).hash(&mut all);
        (self.crashes, self.restarts, self.ends, self.ticks, self.losses, &self.saved).hash(&mut all);
        self.front.map(OrderStamp::generation).hash(&mut all);
        if relation == StateRelation::Same {
            (&self.store, &self.front).hash(&mut all);
        }
        self.store.with_events().for_each(|object| object.hash(&mut all));
        for object in &self.constants.objects {
            let owner = self.store.owner(object).map(|owner| owner.token);
            (self.store.last(object), owner, self.store.events(object).count()).hash(&mut all);
            let holds = self.holds().filter(|(_, lease)| lease.object == *object);
            holds.for_each(|(_, lease)| lease.batch.hash(&mut all));
        }
        let one = |index| {
            let mut one = all.clone();
            self.hash_worker(index, &mut one);
            one.wide()
        };
        match relation {
            StateRelation::Workers => (0..self.slots.len()).map(one).fold(all.wide(), u128::wrapping_add),
            StateRelation::Same | StateRelation::Stamps => {
                (0..self.slots.len()).for_each(|index| self.hash_worker(index, &mut all));
                all.wide()
            }
        }
    }

    fn hash_worker(&self, index: usize, state: &mut StateHasher) {
        let name = &self.constants.names[index];
        let record = self.store.workers().find(|(found, _)| *found == name);
        (&self.slots[index], record).hash(state);
        for object in &self.constants.objects {
            self.store.owner(object).is_some_and(|owner| owner.worker == *name).hash(state);
        }
        // The equality of stamps does not show how a token to be sent compares with those sent before.
        if let Some((object, token)) = self.sends_next(index) {
            (Some(token) < self.sent[self.object(&object)].token).hash(state);
        }
    }

    /// Returns object and token of a worker that sends, or is about to continue its batch.
    fn sends_next(&self, index: usize) -> Option<(Object, OrderStamp)> {
        let worker = self.slots[index].worker.as_ref().filter(|worker| worker.object().is_some())?;
        let mut after = worker.clone();
        if let WorkerAction::Wait { .. } = self.peek(index)? {
            self.sent_ids().for_each(|id| after.on_sent(id));
        }
        match after.poll_step(self.now_ms) {
            WorkerAction::Send(event) => Some((event.object, event.token)),
            WorkerAction::Apply(StoreOp::WorkerOp { op: WorkerOp::Renew { object, token }, .. }) => {
                Some((object, token))
            }
            _ => None,
        }
    }

    fn start(&mut self, index: usize) {
        let worker = Worker::new(self.constants.settings(index), None).with_mutants(self.constants.scenario.mutants);
        self.slots[index] = WorkerSlot { worker: Some(worker), unreported: None };
    }

    fn object(&self, object: &Object) -> usize {
        self.constants.objects.iter().position(|found| found == object).expect("only these are pushed")
    }

    fn peek(&self, index: usize) -> Option<WorkerAction> {
        self.slots[index].worker.clone().map(|mut worker| worker.poll_step(self.now_ms))
    }

    /// Returns all transitions that can happen next.
    pub fn transitions(&self) -> Vec<Transition> {
        let mut transitions = Vec::new();
        if self.pushed < self.constants.pushes.len() {
            transitions.push(Transition::Push);
        }
        let is_queued = self.store.with_events().next().is_some();
        for (index, slot) in self.slots.iter().enumerate() {
            match self.peek(index) {
                None if 0 < self.restarts => transitions.push(Transition::Restart(index)),
                None => {}
                Some(WorkerAction::Wait { until_ms }) => {
                    if slot.worker.as_ref().is_some_and(|worker| worker.object().is_some()) {
                        transitions.push(Transition::Sent(index));
                    } else if is_queued {
                        transitions.push(Transition::Wake(index));
                    }
                    assert!(self.now_ms < until_ms, "a wait that is over");
                }
                Some(_) => transitions.push(Transition::Step(index)),
            }
            if 0 < self.crashes && slot.worker.is_some() {
                transitions.push(Transition::Crash(index));
            }
            if 0 < self.ends && slot.worker.is_some() {
                transitions.push(Transition::End(index));
            }
        }
        // Time matters only if a lease exists.
        if 0 < self.ticks && self.holds().next().is_some() {
            transitions.push(Transition::Tick);
        }
        if 0 < self.losses {
            transitions.push(if self.saved.is_none() { Transition::Save } else { Transition::GoBack });
        }
        transitions
    }

    /// Returns whether no running participant has anything to do.
    pub fn is_quiet(&self, transitions: &[Transition]) -> bool {
        !transitions.iter().any(|next| {
            matches!(next, Transition::Push | Transition::Step(_) | Transition::Sent(_) | Transition::Wake(_))
        })
    }

    /// Makes one of the transitions that can happen next, and checks the invariants.
    ///
    /// # Errors
    /// Returns the violation in this state, or in the state after it.
    pub fn perform(&mut self, next: Transition) -> Result<(), String> {
        match next {
            Transition::Push => self.push()?,
            Transition::Step(index) => self.step(index)?,
            Transition::Sent(index) => self.finish(index),
            Transition::Wake(index) => {
                self.worker(index).on_push();
                self.step(index)?;
            }
            Transition::Crash(index) => {
                self.crashes -= 1;
                self.slots[index].worker = None;
            }
            Transition::Restart(index) => {
                self.restarts -= 1;
                self.start(index);
            }
            Transition::End(index) => {
                self.ends -= 1;
                self.worker(index).on_end();
            }
            Transition::Tick => {
                self.ticks -= 1;
                self.now_ms += self.constants.scenario.tick_ms;
            }
            Transition::Save => {
                let next = self.sent.iter().map(|sent| sent.next).collect();
                self.saved = Some(Arc::new(SavedState { store: self.store.clone(), pushed: self.pushed, next }));
            }
            Transition::GoBack => self.rewind(),
        }
        self.check()
    }

    fn worker(&mut self, index: usize) -> &mut Worker {
        self.slots[index].worker.as_mut().expect("it runs")
    }

    fn apply(&mut self, op: &StoreOp) -> OpOutcome {
        let Ok(outcome) = self.store.apply(op);
        outcome
    }

    /// Pushes as a program does that still has what it pushed.
    fn push(&mut self) -> Result<(), String> {
        let (object, first, count) = self.constants.pushes[self.pushed];
        let events = &self.constants.events[object][first..first + count];
        let (main, subs) = events.split_first().expect("a main event");
        let (main, subs, name) = (main.clone(), subs.to_vec(), self.constants.objects[object].clone());
        let data = main.clone();
        loop {
            let outcome = match self.front {
                None => self.apply(&StoreOp::ReadMark),
                Some(mark) => {
                    let (object, data, main) = (name.clone(), data.clone(), main.clone());
                    self.apply(&StoreOp::Push { mark, object, data, main, subs: subs.clone() })
                }
            };
            match outcome {
                OpOutcome::MarkRead { mark } => self.front = Some(mark),
                OpOutcome::LostGeneration { .. } if self.front.is_some() => self.front = None,
                OpOutcome::LostGeneration { found } => {
                    let generation = Generation::after(found, self.now_ms).expect("a generation");
                    self.apply(&StoreOp::Begin { found, generation });
                }
                OpOutcome::Pushed { mark } => {
                    self.front = Some(mark);
                    self.pushed += 1;
                    let stored = self.store.data(&name);
                    return if stored == Some(&data) { Ok(()) } else { Err(format!("data is {stored:?}")) };
                }
                outcome => return Err(format!("{outcome:?} of a push")),
            }
        }
    }

    fn step(&mut self, index: usize) -> Result<(), String> {
        let now_ms = self.now_ms;
        match self.worker(index).poll_step(now_ms) {
            WorkerAction::Apply(op) => {
                let before = self.store.clone();
                let outcome = self.apply(&op);
                self.check_step(&before, &op, &outcome)?;
                self.worker(index).on_outcome(now_ms, outcome);
                Ok(())
            }
            WorkerAction::Send(event) => {
                match self.slots[index].unreported {
                    Some(lost) if lost < event.token.generation() => {
                        return Err(format!("a lost generation was not reported: {event:?}"));
                    }
                    unreported => self.on_send(&event, unreported.is_some())?,
                }
                if !self.constants.scenario.is_slow {
                    self.finish(index);
                }
                Ok(())
            }
            WorkerAction::Report(advice @ WorkerAdvisory::LostGeneration { .. })
                if self.constants.scenario.losses == 0 =>
            {
                Err(format!("a loss is reported, and there was none: {advice:?}"))
            }
            WorkerAction::Report(WorkerAdvisory::LostGeneration { .. }) => {
                self.slots[index].unreported = None;
                Ok(())
            }
            WorkerAction::Report(WorkerAdvisory::TakenOver { .. }) => Ok(()),
            WorkerAction::Stop(stop) => {
                let name = &self.constants.names[index];
                let has_record = self.store.workers().any(|(record, _)| record == name);
                let is_only = self.constants.names.iter().filter(|other| *other == name).count() == 1;
                self.slots[index].worker = None;
                if stop == WorkerEnd::Ended && has_record && is_only {
                    return Err(format!("the name of {name}, which has ended, is still recorded"));
                }
                Ok(())
            }
            WorkerAction::Wait { .. } => unreachable!("no move"),
        }
    }

    fn finish(&mut self, index: usize) {
        // Only the id that is being sent has an effect.
        let ids: Vec<OrderStamp> = self.sent_ids().collect();
        ids.into_iter().for_each(|id| self.worker(index).on_sent(id));
    }

    /// Returns the ids of the events that were sent.
    fn sent_ids(&self) -> impl Iterator<Item = OrderStamp> {
        self.sent.iter().flat_map(|sent| &sent.ids).map(|(id, ..)| *id)
    }

    fn rewind(&mut self) {
        self.losses -= 1;
        let saved = self.saved.take().expect("it was saved");
        self.store.rewind(saved.store.clone());
        self.pushed = saved.pushed;
        for (sent, next) in self.sent.iter_mut().zip(&saved.next) {
            sent.next = *next;
        }
        for slot in &mut self.slots {
            slot.unreported = slot.worker.as_ref().and_then(Worker::mark).map(OrderStamp::generation);
        }
    }

    fn holds(&self) -> impl Iterator<Item = (&WorkerName, &ObjectLease)> {
        self.store.workers().filter_map(|(name, record)| Some((name, record.lease.as_ref()?)))
    }
}
