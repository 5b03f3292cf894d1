//! One state of the model, with a store, workers that may crash at any step, a front end and the sent events. It also
//! defines the next moves.

use super::canon::{Alike, Canon};
use crate::event::order::memory::{MemoryStore, ObjectLease};
use crate::event::order::mutant::OrderMutants;
use crate::event::order::name::{Object, WorkerName};
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::store::{OpOutcome, Store, StoreOp, WorkerOp};
use crate::event::order::worker::{OrderedEvent, Settings, Worker, WorkerAction, WorkerAdvisory, WorkerEnd};
use bytes::Bytes;
use std::hash::Hash;
use std::sync::Arc;

pub const LEASE_MS: u64 = 10;

/// Parameters of a model: possible moves and their maximum numbers.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The names of the workers that run; two may be the same.
    pub workers: &'static [&'static str],
    /// The objects of the pushes, with their numbers of subevents.
    pub pushes: &'static [(&'static str, usize)],
    pub crashes: u8,
    /// Starts of workers that crashed or stopped.
    pub restarts: u8,
    /// Number of times that the model ends a worker.
    pub ends: u8,
    /// Number of times that time passes, and the step in milliseconds.
    pub ticks: u8,
    pub tick_ms: u64,
    /// Number of times that the store is rolled back to any earlier state.
    pub losses: u8,
    /// True if workers have begun before all other moves.
    pub is_warm: bool,
    /// True if sending takes time, so that other moves may happen during it.
    pub is_slow: bool,
    /// Maximum number of events of a batch.
    pub batch_max: usize,
    pub mutants: OrderMutants,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            workers: &["A"],
            pushes: &[("x", 0)],
            crashes: 0,
            restarts: 0,
            ends: 0,
            ticks: 0,
            tick_ms: LEASE_MS,
            losses: 0,
            is_warm: true,
            is_slow: false,
            batch_max: 2,
            mutants: OrderMutants::default(),
        }
    }
}

/// An event of the scenario: the object, and its position in the object's order.
type EventPosition = (usize, usize);

/// The constants of a scenario.
#[derive(Debug)]
pub struct Fixed {
    pub scenario: Scenario,
    names: Vec<WorkerName>,
    objects: Vec<Object>,
    /// The events of each object in the order of the queue.
    events: Vec<Vec<Bytes>>,
    /// For each push: the object, its first event, and the number of events.
    pushes: Vec<(usize, usize, usize)>,
}

impl Fixed {
    pub fn new(scenario: &Scenario) -> Arc<Fixed> {
        let mut texts: Vec<&str> = scenario.pushes.iter().map(|(object, _)| *object).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut events = vec![Vec::new(); texts.len()];
        let mut pushes = Vec::new();
        for (text, subs) in scenario.pushes {
            let object = texts.iter().position(|found| found == text).expect("collected above");
            pushes.push((object, events[object].len(), 1 + subs));
            for index in 0..=*subs {
                let kind = if index == 0 { "main" } else { "sub" };
                let text = format!("{kind} {text} {}", events[object].len());
                events[object].push(Bytes::from(text));
            }
        }
        Arc::new(Fixed {
            scenario: scenario.clone(),
            names: scenario.workers.iter().map(|name| WorkerName::new(name).expect("a name")).collect(),
            objects: texts.iter().map(|text| Object::new(text).expect("a name")).collect(),
            events,
            pushes,
        })
    }

    fn settings(&self, slot: usize) -> Settings {
        Settings { name: self.names[slot].clone(), lease_ms: LEASE_MS }
    }
}

/// Events of an object that were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sent {
    /// Ids in the order of first sendings, with the position of the event and its prev.
    ids: Vec<(OrderStamp, usize, Option<OrderStamp>)>,
    /// Position of the event that is to be sent next.
    next: usize,
    /// The highest token seen.
    token: Option<OrderStamp>,
}

#[derive(Clone, Debug, Hash)]
struct Slot {
    worker: Option<Worker>,
    /// Generation that the worker knew when the state was rolled back, until it reports the loss.
    unreported: Option<Generation>,
}

/// A saved store, with what had been pushed and sent.
#[derive(Clone, Debug, Hash)]
struct Saved {
    store: MemoryStore,
    pushed: usize,
    next: Vec<usize>,
}

/// One state of the model.
#[derive(Clone, Debug)]
pub struct World {
    fixed: Arc<Fixed>,
    store: MemoryStore,
    slots: Vec<Slot>,
    front: Option<OrderStamp>,
    pushed: usize,
    now_ms: u64,
    crashes: u8,
    restarts: u8,
    ends: u8,
    ticks: u8,
    losses: u8,
    saved: Option<Arc<Saved>>,
    sent: Vec<Sent>,
}

/// A move that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The front end pushes the next main event with its subevents.
    Push,
    /// This worker does its next step.
    Step(usize),
    /// The event that this worker sends is sent.
    Sent(usize),
    /// This worker is notified of a push, and performs its next step.
    Wake(usize),
    Crash(usize),
    Restart(usize),
    /// The model ends this worker.
    End(usize),
    Tick,
    /// From here on the store may go back to this state.
    Save,
    GoBack,
}

impl World {
    pub fn new(fixed: &Arc<Fixed>) -> World {
        let scenario = &fixed.scenario;
        let mut world = World {
            fixed: Arc::clone(fixed),
            store: MemoryStore::default().with_batches_of(scenario.batch_max).with_mutants(scenario.mutants),
            slots: vec![Slot { worker: None, unreported: None }; scenario.workers.len()],
            front: None,
            pushed: 0,
            now_ms: 0,
            crashes: scenario.crashes,
            restarts: scenario.restarts,
            ends: scenario.ends,
            ticks: scenario.ticks,
            losses: scenario.losses,
            saved: None,
            sent: vec![Sent::default(); fixed.objects.len()],
        };
        for index in 0..world.slots.len() {
            world.start(index);
            while scenario.is_warm && !matches!(world.peek(index), Some(WorkerAction::Wait { .. })) {
                world.step(index).expect("nothing can go wrong yet");
            }
        }
        world
    }

    /// Returns one number for all states that are alike.
    pub fn digest(&self, alike: Alike) -> u128 {
        let mut all = Canon::new(alike);
        (self.pushed, self.now_ms, &self.sent).hash(&mut all);
        (self.crashes, self.restarts, self.ends, self.ticks, self.losses, &self.saved).hash(&mut all);
        self.front.map(OrderStamp::generation).hash(&mut all);
        if alike == Alike::Same {
            (&self.store, &self.front).hash(&mut all);
        }
        self.store.with_events().for_each(|object| object.hash(&mut all));
        for object in &self.fixed.objects {
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
        match alike {
            Alike::Workers => (0..self.slots.len()).map(one).fold(all.wide(), u128::wrapping_add),
            Alike::Same | Alike::Stamps => {
                (0..self.slots.len()).for_each(|index| self.hash_worker(index, &mut all));
                all.wide()
            }
        }
    }

    fn hash_worker(&self, index: usize, state: &mut Canon) {
        let name = &self.fixed.names[index];
        let record = self.store.workers().find(|(found, _)| *found == name);
        (&self.slots[index], record).hash(state);
        for object in &self.fixed.objects {
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
        let worker = Worker::new(self.fixed.settings(index), None).with_mutants(self.fixed.scenario.mutants);
        self.slots[index] = Slot { worker: Some(worker), unreported: None };
    }

    fn object(&self, object: &Object) -> usize {
        self.fixed.objects.iter().position(|found| found == object).expect("only these are pushed")
    }

    fn peek(&self, index: usize) -> Option<WorkerAction> {
        self.slots[index].worker.clone().map(|mut worker| worker.poll_step(self.now_ms))
    }

    /// Returns all moves that can happen next.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if self.pushed < self.fixed.pushes.len() {
            moves.push(Move::Push);
        }
        let is_queued = self.store.with_events().next().is_some();
        for (index, slot) in self.slots.iter().enumerate() {
            match self.peek(index) {
                None if 0 < self.restarts => moves.push(Move::Restart(index)),
                None => {}
                Some(WorkerAction::Wait { until_ms }) => {
                    if slot.worker.as_ref().is_some_and(|worker| worker.object().is_some()) {
                        moves.push(Move::Sent(index));
                    } else if is_queued {
                        moves.push(Move::Wake(index));
                    }
                    assert!(self.now_ms < until_ms, "a wait that is over");
                }
                Some(_) => moves.push(Move::Step(index)),
            }
            if 0 < self.crashes && slot.worker.is_some() {
                moves.push(Move::Crash(index));
            }
            if 0 < self.ends && slot.worker.is_some() {
                moves.push(Move::End(index));
            }
        }
        // Time matters only if a lease exists.
        if 0 < self.ticks && self.holds().next().is_some() {
            moves.push(Move::Tick);
        }
        if 0 < self.losses {
            moves.push(if self.saved.is_none() { Move::Save } else { Move::GoBack });
        }
        moves
    }

    /// Returns whether no running participant has anything to do.
    pub fn is_quiet(&self, moves: &[Move]) -> bool {
        !moves.iter().any(|next| matches!(next, Move::Push | Move::Step(_) | Move::Sent(_) | Move::Wake(_)))
    }

    /// # Errors
    /// Returns the violation in this state, or in the state after it.
    pub fn make(&mut self, next: Move) -> Result<(), String> {
        match next {
            Move::Push => self.push()?,
            Move::Step(index) => self.step(index)?,
            Move::Sent(index) => self.finish(index),
            Move::Wake(index) => {
                self.worker(index).on_push();
                self.step(index)?;
            }
            Move::Crash(index) => {
                self.crashes -= 1;
                self.slots[index].worker = None;
            }
            Move::Restart(index) => {
                self.restarts -= 1;
                self.start(index);
            }
            Move::End(index) => {
                self.ends -= 1;
                self.worker(index).on_end();
            }
            Move::Tick => {
                self.ticks -= 1;
                self.now_ms += self.fixed.scenario.tick_ms;
            }
            Move::Save => {
                let next = self.sent.iter().map(|sent| sent.next).collect();
                self.saved = Some(Arc::new(Saved { store: self.store.clone(), pushed: self.pushed, next }));
            }
            Move::GoBack => self.rewind(),
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
        let (object, first, count) = self.fixed.pushes[self.pushed];
        let events = &self.fixed.events[object][first..first + count];
        let (main, subs) = events.split_first().expect("a main event");
        let (main, subs, name) = (main.clone(), subs.to_vec(), self.fixed.objects[object].clone());
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
                if !self.fixed.scenario.is_slow {
                    self.finish(index);
                }
                Ok(())
            }
            WorkerAction::Report(advice @ WorkerAdvisory::LostGeneration { .. }) if self.fixed.scenario.losses == 0 => {
                Err(format!("a loss is reported, and there was none: {advice:?}"))
            }
            WorkerAction::Report(WorkerAdvisory::LostGeneration { .. }) => {
                self.slots[index].unreported = None;
                Ok(())
            }
            WorkerAction::Report(WorkerAdvisory::TakenOver { .. }) => Ok(()),
            WorkerAction::Stop(stop) => {
                let name = &self.fixed.names[index];
                let has_record = self.store.workers().any(|(record, _)| record == name);
                let is_only = self.fixed.names.iter().filter(|other| *other == name).count() == 1;
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

    // ---- invariants

    /// Checks Q2, Q3 and Q4 of a sent event. For an event stamped in a lost history, checks only Q3.
    fn on_send(&mut self, event: &OrderedEvent, is_lost: bool) -> Result<(), String> {
        let wrong = |text: &str| Err(format!("{text}: {event:?}"));
        let object = self.object(&event.object);
        let position: Option<EventPosition> = self.sent.iter().enumerate().find_map(|(object, sent)| {
            sent.ids.iter().find(|(id, ..)| *id == event.id).map(|(_, position, _)| (object, *position))
        });
        let payload = |position: usize| self.fixed.events[object].get(position);
        let sent = &self.sent[object];
        match position {
            Some((owner, position)) => {
                if owner != object || payload(position) != Some(&event.payload) {
                    return wrong("Q3: an id of two events");
                }
                if !sent.ids.contains(&(event.id, position, event.prev)) {
                    return wrong("Q2: sent again with another prev");
                }
                if position == sent.next && !is_lost {
                    self.sent[object].next += 1;
                }
            }
            None if is_lost => {
                let position = self.fixed.events[object].iter().position(|payload| *payload == event.payload);
                self.sent[object].ids.push((event.id, position.expect("it was pushed"), event.prev));
            }
            None => {
                if payload(sent.next) != Some(&event.payload) {
                    return wrong("Q2: not the next event of the queue");
                }
                if sent.ids.last().is_some_and(|(last, ..)| event.id <= *last) || Some(event.id) <= event.prev {
                    return wrong("Q2: ids do not rise");
                }
                let prev = event.prev.map(|prev| sent.ids.iter().find(|(id, ..)| *id == prev).map(|found| found.1));
                if prev != sent.next.checked_sub(1).map(Some) {
                    return wrong("Q2: prev does not name the event before");
                }
                if Some(event.token) < sent.token && sent.token < Some(event.id) {
                    return wrong("Q4: a new event by an old token");
                }
                let position = sent.next;
                self.sent[object].ids.push((event.id, position, event.prev));
                self.sent[object].next += 1;
            }
        }
        let sent = &mut self.sent[object];
        sent.token = sent.token.max(Some(event.token));
        Ok(())
    }

    /// Checks Q4 and Q5 of a step on the store.
    fn check_step(&self, before: &MemoryStore, op: &StoreOp, outcome: &OpOutcome) -> Result<(), String> {
        let StoreOp::WorkerOp { context, session, op } = op else { return Ok(()) };
        let wrong = |text: &str| Err(format!("{text}: {op:?} {outcome:?}"));
        if matches!(outcome, OpOutcome::LostGeneration { .. } | OpOutcome::Superseded | OpOutcome::NotHeld) {
            return if *before == self.store { Ok(()) } else { wrong("a step that is refused changed something") };
        }
        let own = before.workers().find(|(name, _)| **name == context.worker).map(|(_, record)| record);
        if own.is_none_or(|record| record.session != *session) {
            return wrong("Q4: two runs of one worker");
        }
        let others = || before.workers().filter(|(name, _)| **name != context.worker);
        let ends = || others().filter_map(|(_, record)| record.lease.as_ref().map(|lease| lease.lease_end_ms));
        match (op, outcome) {
            (
                WorkerOp::Next { object, token }
                | WorkerOp::Record { object, token, .. }
                | WorkerOp::Advance { object, token, .. }
                | WorkerOp::Renew { object, token },
                _,
            ) if before.owner(object).is_none_or(|owner| owner.worker != context.worker || owner.token != *token) => {
                wrong("Q4: done by an old token")
            }
            (WorkerOp::TakeOver, OpOutcome::Taken { .. }) if ends().all(|end_ms| context.now_ms < end_ms) => {
                wrong("Q5: taken over before the lease ended")
            }
            (WorkerOp::TakeOver, OpOutcome::NoneEnded { .. }) if ends().any(|end_ms| end_ms <= context.now_ms) => {
                wrong("Q5: not taken over after the lease ended")
            }
            _ => Ok(()),
        }
    }

    /// Checks the four invariants of the seed, and Q1 and Q5 of the state.
    fn check(&self) -> Result<(), String> {
        for (index, object) in self.fixed.objects.iter().enumerate() {
            self.check_object(index, object).map_err(|text| format!("{object}: {text}"))?;
        }
        for (name, lease) in self.holds() {
            let owner = self.store.owner(&lease.object).map(|owner| &owner.worker);
            if owner != Some(name) && !lease.batch.is_empty() {
                return Err(format!("invariant 3: {name} does not own {} and has events of it", lease.object));
            }
            if self.now_ms + LEASE_MS < lease.lease_end_ms {
                return Err(format!("Q5: {name} holds {} for more than a lease", lease.object));
            }
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let is_idle =
                slot.worker.as_ref().is_some_and(|worker| worker.object().is_none()) && slot.unreported.is_none();
            if !is_idle {
                continue;
            }
            let Some(WorkerAction::Wait { until_ms }) = self.peek(index) else { continue };
            let others = self.holds().filter(|(name, _)| **name != self.fixed.names[index]);
            if others.map(|(_, lease)| lease.lease_end_ms).any(|end_ms| end_ms < until_ms) {
                return Err(format!("Q5: {} sleeps until {until_ms}", self.fixed.names[index]));
            }
        }
        Ok(())
    }

    fn check_object(&self, index: usize, object: &Object) -> Result<(), String> {
        let owner = self.store.owner(object);
        let holders = || self.holds().filter(|(_, lease)| lease.object == *object);
        let mains = self.store.events(object).filter(|event| event.starts_with(b"main")).count();
        let queued = self.store.with_events().filter(|queued| *queued == object).count();
        if queued + holders().count() < mains && owner.is_none() {
            return Err(format!("invariant 1: {mains} main events are queued, nobody will come for all of them"));
        }
        if let Some(owner) = owner
            && !holders().any(|(name, _)| *name == owner.worker)
        {
            return Err(format!("invariant 2: {} owns it and does not hold it", owner.worker));
        }
        let in_process: Vec<&Bytes> =
            holders().flat_map(|(_, lease)| &lease.batch).map(|(_, payload)| payload).collect();
        if self.store.events(object).any(|event| in_process.contains(&event)) {
            return Err("invariant 4: an event in process is queued as well".to_owned());
        }
        let pushed: usize =
            self.fixed.pushes[..self.pushed].iter().filter(|push| push.0 == index).map(|push| push.2).sum();
        let taken = pushed.checked_sub(self.store.events(object).count());
        let events = &self.fixed.events[index];
        let Some(taken) = taken.filter(|taken| self.store.events(object).eq(&events[*taken..pushed])) else {
            return Err("Q1: the queue is not what was pushed last".to_owned());
        };
        let recorded = taken.checked_sub(in_process.len());
        let Some(recorded) = recorded.filter(|recorded| in_process.iter().copied().eq(&events[*recorded..taken]))
        else {
            return Err(format!("Q1: in process is {in_process:?}"));
        };
        if self.sent[index].next < recorded {
            return Err("Q1: recorded as sent, and was not".to_owned());
        }
        Ok(())
    }

    /// Checks that from here one more worker, and time, are enough to send everything that was pushed.
    ///
    /// # Errors
    /// Returns the events that are left.
    pub fn check_healed(&self) -> Result<(), String> {
        let mut world = self.clone();
        let name = WorkerName::new("Z").expect("a name");
        let worker = Worker::new(Settings { name, lease_ms: LEASE_MS }, None);
        let worker = worker.with_mutants(self.fixed.scenario.mutants);
        world.slots.push(Slot { worker: Some(worker), unreported: None });
        let index = self.slots.len();
        for _ in 0..200 {
            match world.peek(index) {
                Some(WorkerAction::Wait { .. }) if world.worker(index).object().is_some() => world.finish(index),
                Some(WorkerAction::Wait { .. }) => world.now_ms += LEASE_MS,
                _ => world.step(index)?,
            }
            let is_done = world.store.with_events().next().is_none() && world.holds().next().is_none();
            if !is_done {
                continue;
            }
            let sent = world.sent.iter().map(|sent| sent.next);
            let all = self.fixed.events.iter().map(Vec::len);
            let is_owned = self.fixed.objects.iter().any(|object| world.store.owner(object).is_some());
            return if sent.eq(all) && !is_owned {
                Ok(())
            } else {
                Err(format!("Q1: not everything is sent: {world:?}"))
            };
        }
        Err("Q5: what is left is not taken over".to_owned())
    }
}
