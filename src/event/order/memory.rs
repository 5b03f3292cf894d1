//! The shared state in memory: for tests and models, and the obvious twin of the stores that last.

use super::mutant::{Mutant, Mutants};
use super::name::{Object, WorkerName};
use super::stamp::{Generation, Stamp};
use super::store::{
    Act, BYTES_PER_STEP, Caller, EVENTS_PER_STEP, OBJECTS_PER_STEP, Op, Outcome, STAMPS_PER_STEP, Shown, ShownObject,
    ShownWorker, Stamped, Store,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

/// The keys of [`store`](super::store), as fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    data: BTreeMap<Object, Bytes>,
    events: BTreeMap<Object, VecDeque<Bytes>>,
    last: BTreeMap<Object, Stamp>,
    owners: BTreeMap<Object, Owner>,
    with_events: VecDeque<Object>,
    workers: BTreeMap<WorkerName, Kept>,
    /// The last stamp given out.
    mark: Option<Stamp>,
    /// Whether something may have been lost since the generation began.
    is_suspect: bool,
    /// Events of a batch at most, if fewer than usual.
    batch_max: Option<usize>,
    mutants: Mutants,
}

/// Who may process the events of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The worker.
    pub worker: WorkerName,
    /// Its token.
    pub token: Stamp,
}

/// What is kept of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// Its run.
    pub session: Stamp,
    /// What it has taken.
    pub hold: Option<Hold>,
}

/// What a worker has taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The object.
    pub object: Object,
    /// When others may take it over, in milliseconds.
    pub lease_end_ms: u64,
    /// The events that the worker processes, oldest first, with their ids.
    pub batch: Vec<(Stamp, Bytes)>,
}

impl Hold {
    /// The id of the last event in process.
    fn last(&self) -> Option<Stamp> {
        self.batch.last().map(|(id, _)| *id)
    }
}

impl Memory {
    /// The state goes back to `earlier`, or to nothing, as when a server fails over to a replica that was behind.
    pub fn go_back(&mut self, earlier: Memory) {
        *self = Memory { is_suspect: true, batch_max: self.batch_max, mutants: self.mutants, ..earlier };
    }

    /// The state with a mistake in its steps.
    pub fn mutated(self, mutants: Mutants) -> Memory {
        Memory { mutants, ..self }
    }

    /// The state with batches of so many events at most.
    pub fn with_batches_of(self, batch_max: usize) -> Memory {
        Memory { batch_max: Some(batch_max), ..self }
    }

    /// `OBJ:data`.
    pub fn data(&self, object: &Object) -> Option<&Bytes> {
        self.data.get(object)
    }

    /// `OBJ:events`, oldest first.
    pub fn events(&self, object: &Object) -> impl Iterator<Item = &Bytes> {
        self.events.get(object).into_iter().flatten()
    }

    /// `OBJ:last.event.id`.
    pub fn last(&self, object: &Object) -> Option<Stamp> {
        self.last.get(object).copied()
    }

    /// `OBJ:event.worker`.
    pub fn owner(&self, object: &Object) -> Option<&Owner> {
        self.owners.get(object)
    }

    /// `objects.with.events`, oldest first.
    pub fn with_events(&self) -> impl Iterator<Item = &Object> {
        self.with_events.iter()
    }

    /// `event.worker:W:*`, of all workers.
    pub fn workers(&self) -> impl Iterator<Item = (&WorkerName, &Kept)> {
        self.workers.iter()
    }

    fn look(&self) -> Outcome {
        match self.mark {
            Some(mark) if !self.is_lost(mark) => Outcome::Looked { mark },
            _ => self.lost(),
        }
    }

    fn show(&self, objects: &[Object], queued_max: usize) -> Shown {
        let held = self.workers.values().filter_map(|kept| Some(&kept.hold.as_ref()?.object));
        let names: BTreeSet<&Object> = objects.iter().chain(held).chain(self.with_events().take(queued_max)).collect();
        let worker = |(name, kept): (&WorkerName, &Kept)| ShownWorker {
            name: name.clone(),
            object: kept.hold.as_ref().map(|hold| hold.object.clone()),
            lease_end_ms: kept.hold.as_ref().map(|hold| hold.lease_end_ms),
            events: kept.hold.as_ref().map_or(0, |hold| hold.batch.len() as u64),
            last: kept.hold.as_ref().and_then(Hold::last),
        };
        let object = |name: &Object| ShownObject {
            name: name.clone(),
            queued: self.events(name).count() as u64,
            last: self.last(name),
            owner: self.owner(name).map(|owner| owner.worker.clone()),
        };
        Shown {
            mark: self.mark,
            is_suspect: self.is_suspect,
            queued: self.with_events.len() as u64,
            workers: self.workers.iter().map(worker).collect(),
            objects: names.into_iter().map(object).collect(),
        }
    }

    /// Whether a caller that has seen `mark` cannot go on with this state.
    fn is_lost(&self, mark: Stamp) -> bool {
        let Some(last) = self.mark else { return true };
        if self.mutants.is(Mutant::LossUnnoticed) {
            return false;
        }
        self.is_suspect
            || last.generation() != mark.generation()
            || last < mark
            || !last.is_followed_by(STAMPS_PER_STEP)
    }

    fn lost(&self) -> Outcome {
        Outcome::LostGeneration { found: self.mark.map(Stamp::generation) }
    }

    fn begin(&mut self, found: Option<Generation>, generation: Generation) -> Outcome {
        if self.mark.map(Stamp::generation) == found && found < Some(generation) {
            self.mark = Some(Stamp::begin(generation));
            self.is_suspect = false;
        }
        self.look()
    }

    fn stamp(&mut self) -> Stamp {
        let next = self.mark.and_then(Stamp::next).expect("checked before each step");
        self.mark = Some(next);
        next
    }

    fn push(&mut self, object: &Object, data: &Bytes, events: impl Iterator<Item = Bytes>) -> Outcome {
        self.data.insert(object.clone(), data.clone());
        self.events.entry(object.clone()).or_default().extend(events);
        self.with_events.push_back(object.clone());
        Outcome::Pushed { mark: self.mark.expect("checked before each step") }
    }

    fn open(&mut self, by: &Caller) -> Outcome {
        let session = self.stamp();
        let kept = self.workers.entry(by.worker.clone()).or_insert(Kept { session, hold: None });
        kept.session = session;
        if let Some(hold) = &mut kept.hold {
            hold.lease_end_ms = by.lease_end_ms();
        }
        Outcome::Opened { session, object: kept.hold.as_ref().map(|hold| hold.object.clone()) }
    }

    fn act(&mut self, by: &Caller, session: Stamp, act: &Act) -> Outcome {
        match self.workers.get(&by.worker) {
            None => return Outcome::NotHeld,
            Some(kept) if kept.session != session && !self.mutants.is(Mutant::SessionUnchecked) => {
                return Outcome::Superseded;
            }
            Some(_) => {}
        }
        match act {
            Act::Take | Act::TakeOver if self.hold(by).is_some() => Outcome::NotHeld,
            Act::Take => self.take(by),
            Act::TakeOver => self.take_over(by),
            Act::Claim { object } | Act::Drop { object } if !self.holds(by, object) => Outcome::NotHeld,
            Act::Claim { object } => self.claim(by, object),
            Act::Drop { object } => self.drop_object(by, object),
            Act::Next { object, token }
            | Act::Renew { object, token }
            | Act::Record { object, token, .. }
            | Act::Advance { object, token, .. }
                if !self.owns(by, object, *token) =>
            {
                Outcome::NotHeld
            }
            Act::Next { object, .. } => self.next(by, object),
            Act::Renew { .. } => {
                self.renewed(by);
                Outcome::Done
            }
            Act::Record { object, id, .. } => self.record(by, object, *id),
            Act::Advance { object, token, id } => self.advance(by, (object.clone(), *token), *id),
            Act::Leave => self.leave(by),
        }
    }

    fn hold(&mut self, by: &Caller) -> &mut Option<Hold> {
        &mut self.workers.get_mut(&by.worker).expect("the session was checked").hold
    }

    /// What the worker holds, its lease begun anew.
    fn renewed(&mut self, by: &Caller) -> &mut Hold {
        let hold = self.hold(by).as_mut().expect("it was checked that the worker holds it");
        hold.lease_end_ms = by.lease_end_ms();
        hold
    }

    fn holds(&mut self, by: &Caller, object: &Object) -> bool {
        self.hold(by).as_ref().is_some_and(|hold| hold.object == *object)
    }

    fn owns(&mut self, by: &Caller, object: &Object, token: Stamp) -> bool {
        let is_owner = self.owners.get(object).is_some_and(|owner| owner.worker == by.worker && owner.token == token);
        if self.mutants.is(Mutant::OwnerUnchecked) {
            let hold = Hold { object: object.clone(), lease_end_ms: by.lease_end_ms(), batch: Vec::new() };
            self.hold(by).get_or_insert(hold);
        }
        self.holds(by, object) && (is_owner || self.is_unfenced())
    }

    fn is_unfenced(&self) -> bool {
        self.mutants.is(Mutant::OwnerUnchecked) || self.mutants.is(Mutant::TakeOverUnfenced)
    }

    /// The id of the last event in process.
    fn in_process(&mut self, by: &Caller) -> Option<Stamp> {
        self.hold(by).as_ref().and_then(Hold::last)
    }

    fn take(&mut self, by: &Caller) -> Outcome {
        let Some(object) = self.with_events.pop_front() else { return Outcome::Empty };
        let hold = Hold { object: object.clone(), lease_end_ms: by.lease_end_ms(), batch: Vec::new() };
        *self.hold(by) = Some(hold);
        Outcome::Taken { object }
    }

    fn take_over(&mut self, by: &Caller) -> Outcome {
        let mutants = self.mutants;
        let counts = |hold: &&Hold| !mutants.is(Mutant::TakeOverOwnedOnly) || self.owners.contains_key(&hold.object);
        let others = self.workers.iter().filter(|(name, _)| **name != by.worker);
        let holds = others.filter_map(|(name, kept)| Some((kept.hold.as_ref().filter(counts)?, name)));
        let first = holds.min_by_key(|(hold, name)| (hold.lease_end_ms, &hold.object, *name));
        let Some((hold, from)) = first else { return Outcome::NoneEnded { first_ms: None } };
        let end_ms = hold.lease_end_ms;
        if by.now_ms < end_ms && !mutants.is(Mutant::TakeOverEarly) {
            return Outcome::NoneEnded { first_ms: Some(end_ms) };
        }
        let from = from.clone();
        let theirs = &mut self.workers.get_mut(&from).expect("found above").hold;
        let hold = if mutants.is(Mutant::TakeOverUnfenced) { theirs.clone() } else { theirs.take() };
        let hold = hold.expect("found above");
        if !self.is_unfenced() {
            self.workers.remove(&from);
        }
        let object = hold.object.clone();
        if self.owners.get(&object).is_some_and(|owner| owner.worker == from) {
            let owner = Owner { worker: by.worker.clone(), token: self.stamp() };
            self.owners.insert(object.clone(), owner);
        }
        *self.hold(by) = Some(Hold { lease_end_ms: by.lease_end_ms(), ..hold });
        Outcome::Taken { object }
    }

    fn claim(&mut self, by: &Caller, object: &Object) -> Outcome {
        self.renewed(by);
        let is_others = self.owners.get(object).is_some_and(|owner| owner.worker != by.worker);
        if is_others && !self.mutants.is(Mutant::ClaimOwned) {
            return Outcome::Owned;
        }
        let token = self.own(by, object);
        let mut batch = std::mem::take(&mut self.renewed(by).batch);
        if self.mutants.is(Mutant::UnfinishedForgotten) {
            batch.clear();
        }
        if self.mutants.is(Mutant::UnfinishedCut) {
            batch.truncate(1);
        }
        if self.mutants.is(Mutant::NewIdOnResend) {
            batch.iter_mut().for_each(|(id, _)| *id = self.stamp());
        }
        self.renewed(by).batch.clone_from(&batch);
        Outcome::Claimed { token, unfinished: self.stamped(object, batch) }
    }

    fn own(&mut self, by: &Caller, object: &Object) -> Stamp {
        let token = self.stamp();
        self.owners.insert(object.clone(), Owner { worker: by.worker.clone(), token });
        token
    }

    /// The batch, in which each event names the one before.
    fn stamped(&self, object: &Object, batch: Vec<(Stamp, Bytes)>) -> Vec<Stamped> {
        let mut last = self.last(object);
        let is_mutant = self.mutants.is(Mutant::PrevOfBatch);
        let one = |(id, payload)| {
            let prev = if is_mutant { last } else { last.replace(id) };
            Stamped { id, prev, payload }
        };
        batch.into_iter().map(one).collect()
    }

    fn next(&mut self, by: &Caller, object: &Object) -> Outcome {
        if self.in_process(by).is_some() {
            return Outcome::NotHeld;
        }
        self.renewed(by);
        let drawn = self.draw(object);
        let Some((last, _)) = drawn.last() else {
            if !self.mutants.is(Mutant::ReleaseLater) {
                self.owners.remove(object);
            }
            return Outcome::Emptied;
        };
        let last = *last;
        let batch = self.stamped(object, drawn.clone());
        if self.mutants.is(Mutant::RecordBeforeSend) {
            self.last.insert(object.clone(), last);
        } else {
            self.renewed(by).batch = drawn;
        }
        Outcome::Next(batch)
    }

    /// Takes the next events from the queue, with new ids.
    fn draw(&mut self, object: &Object) -> Vec<(Stamp, Bytes)> {
        let Some(mut queue) = self.events.remove(object) else { return Vec::new() };
        let batch_max = self.batch_max.unwrap_or(EVENTS_PER_STEP);
        let (mut drawn, mut bytes, before) = (Vec::new(), 0, self.mark);
        while drawn.len() < batch_max && bytes < BYTES_PER_STEP {
            let Some(payload) = queue.pop_front() else { break };
            bytes += payload.len();
            drawn.push((self.stamp(), payload));
        }
        if self.mutants.is(Mutant::IdsUnreserved) {
            self.mark = before.and_then(Stamp::next);
        }
        if !queue.is_empty() {
            self.events.insert(object.clone(), queue);
        }
        drawn
    }

    fn record(&mut self, by: &Caller, object: &Object, id: Stamp) -> Outcome {
        if self.in_process(by) != Some(id) && !self.mutants.is(Mutant::RecordBeforeSend) {
            return Outcome::NotHeld;
        }
        let batch = std::mem::take(&mut self.renewed(by).batch);
        if !self.mutants.is(Mutant::LastForgotten) {
            let first = batch.first().filter(|_| self.mutants.is(Mutant::FirstAsLast));
            self.last.insert(object.clone(), first.map_or(id, |(first, _)| *first));
        }
        Outcome::Done
    }

    fn advance(&mut self, by: &Caller, owned: (Object, Stamp), id: Stamp) -> Outcome {
        if self.record(by, &owned.0, id) == Outcome::NotHeld {
            return Outcome::NotHeld;
        }
        let (object, token) = owned;
        if let Outcome::Next(batch) = self.next(by, &object) {
            return Outcome::Advanced { object, token, batch };
        }
        self.drop_object(by, &object);
        for _ in 0..OBJECTS_PER_STEP {
            let Some(first) = self.with_events.front() else { return Outcome::Empty };
            let is_owned = self.owners.contains_key(first) && !self.mutants.is(Mutant::ClaimOwned);
            if is_owned || !self.events.contains_key(first) || self.mutants.is(Mutant::EntryWasted) {
                self.with_events.pop_front();
                continue;
            }
            let object = first.clone();
            self.take(by);
            let token = self.own(by, &object);
            let Outcome::Next(batch) = self.next(by, &object) else { unreachable!("it has events") };
            return Outcome::Advanced { object, token, batch };
        }
        Outcome::Paused
    }

    fn leave(&mut self, by: &Caller) -> Outcome {
        if self.hold(by).is_some() {
            return Outcome::NotHeld;
        }
        self.workers.remove(&by.worker);
        Outcome::Done
    }

    fn drop_object(&mut self, by: &Caller, object: &Object) -> Outcome {
        if self.owners.get(object).is_some_and(|owner| owner.worker == by.worker) {
            if !self.mutants.is(Mutant::ReleaseLater) && !self.mutants.is(Mutant::DropEarly) {
                return Outcome::NotHeld;
            }
            self.owners.remove(object);
        }
        *self.hold(by) = None;
        Outcome::Done
    }
}

impl Caller {
    /// When others may take over what it holds from now on, in milliseconds.
    pub fn lease_end_ms(&self) -> u64 {
        self.now_ms.saturating_add(self.lease_ms)
    }
}

impl Store for Memory {
    type Error = Infallible;

    fn apply(&mut self, op: &Op) -> Result<Outcome, Infallible> {
        let mark = match op {
            Op::Look => return Ok(self.look()),
            Op::Show { objects, queued_max } => return Ok(Outcome::Shown(self.show(objects, *queued_max))),
            Op::Begin { found, generation } => return Ok(self.begin(*found, *generation)),
            Op::Push { mark, .. } => *mark,
            Op::Open { by } | Op::Act { by, .. } => by.mark,
        };
        if self.is_lost(mark) {
            return Ok(self.lost());
        }
        Ok(match op {
            Op::Push { object, data, main, subs, .. } => {
                self.push(object, data, std::iter::once(main).chain(subs).cloned())
            }
            Op::Open { by } => self.open(by),
            Op::Act { by, session, act } => self.act(by, *session, act),
            Op::Look | Op::Show { .. } | Op::Begin { .. } => unreachable!("done above"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(number: u32) -> Generation {
        Generation::new(number).unwrap()
    }

    fn apply(store: &mut Memory, op: &Op) -> Outcome {
        let Ok(outcome) = store.apply(op);
        outcome
    }

    fn begun() -> Memory {
        let mut store = Memory::default();
        assert_eq!(apply(&mut store, &Op::Look), Outcome::LostGeneration { found: None });
        let mark = Stamp::begin(generation(7));
        let op = Op::Begin { found: None, generation: generation(7) };
        assert_eq!(apply(&mut store, &op), Outcome::Looked { mark });
        store
    }

    fn push(mark: Stamp) -> Op {
        let [data, main, one, two] = ["{}", "main", "one", "two"].map(|text| Bytes::from_static(text.as_bytes()));
        Op::Push { mark, object: Object::new("work:1").unwrap(), data, main, subs: vec![one, two] }
    }

    fn open(mark: Stamp) -> Op {
        Op::Open { by: Caller { worker: WorkerName::new("A").unwrap(), mark, now_ms: 0, lease_ms: 10 } }
    }

    #[test]
    fn a_push_queues_events_and_object_and_sets_the_state() {
        let (mut store, mark, object) = (begun(), Stamp::begin(generation(7)), Object::new("work:1").unwrap());
        assert_eq!(apply(&mut store, &push(mark)), Outcome::Pushed { mark });
        let events: Vec<&[u8]> = store.events(&object).map(|event| &event[..]).collect();
        assert_eq!((events, store.data(&object).unwrap()), (vec![&b"main"[..], b"one", b"two"], &Bytes::from("{}")));
        assert_eq!(store.with_events().collect::<Vec<_>>(), [&object]);
    }

    /// Each step of a caller that has seen `mark` is refused and changes nothing.
    fn check_lost(store: &Memory, mark: Stamp, found: u32) {
        for op in [push(mark), open(mark)] {
            let mut after = store.clone();
            assert_eq!(apply(&mut after, &op), Outcome::LostGeneration { found: Some(generation(found)) });
            assert_eq!(after, *store);
        }
    }

    #[test]
    fn a_state_that_is_not_the_one_that_was_seen_is_refused() {
        let mut store = begun();
        let earlier = store.clone();
        let session = Stamp::begin(generation(7)).next().unwrap();
        assert_eq!(apply(&mut store, &open(Stamp::begin(generation(7)))), Outcome::Opened { session, object: None });
        // Another generation, or fewer stamps than were seen.
        check_lost(&store, Stamp::begin(generation(6)), 7);
        check_lost(&store, Stamp::begin(generation(8)), 7);
        check_lost(&store, session.next().unwrap(), 7);
        // Gone back, and known to be.
        store.go_back(earlier);
        check_lost(&store, Stamp::begin(generation(7)), 7);
        assert_eq!(apply(&mut store, &Op::Look), Outcome::LostGeneration { found: Some(generation(7)) });
        // All stamps given out.
        let last = Stamp::from_number(Stamp::begin(generation(8)).number() - 1);
        check_lost(&Memory { mark: last, ..begun() }, Stamp::begin(generation(7)), 7);
    }

    #[test]
    fn of_two_that_begin_a_generation_one_does() {
        let mut store = begun();
        store.go_back(store.clone());
        let (found, mark) = (Some(generation(7)), Stamp::begin(generation(9)));
        for (found, number, outcome) in [
            (None, 9, Outcome::LostGeneration { found }),
            (found, 7, Outcome::LostGeneration { found }),
            (found, 9, Outcome::Looked { mark }),
            (found, 10, Outcome::Looked { mark }),
        ] {
            let op = Op::Begin { found, generation: generation(number) };
            assert_eq!(apply(&mut store, &op), outcome, "{op:?}");
        }
    }
}
