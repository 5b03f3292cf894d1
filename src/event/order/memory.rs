//! The shared state in memory, for tests and models. It is the reference for the durable stores.

use super::mutant::{OrderMutant, OrderMutants};
use super::name::{Object, WorkerName};
use super::stamp::{Generation, OrderStamp};
use super::store::{
    BYTES_PER_STEP, EVENTS_PER_STEP, OBJECTS_PER_STEP, ObjectSnapshot, OpOutcome, STAMPS_PER_STEP, StampedEvent, Store,
    StoreOp, StoreSnapshot, WorkerContext, WorkerOp, WorkerSnapshot,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

/// The shared state, with the keys of [`store`](super::store) as fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryStore {
    data: BTreeMap<Object, Bytes>,
    events: BTreeMap<Object, VecDeque<Bytes>>,
    last: BTreeMap<Object, OrderStamp>,
    owners: BTreeMap<Object, Owner>,
    with_events: VecDeque<Object>,
    workers: BTreeMap<WorkerName, WorkerRecord>,
    /// Last assigned stamp.
    mark: Option<OrderStamp>,
    /// True if something may have been lost since the generation began.
    is_suspect: bool,
    /// Maximum number of events of a batch, if lower than usual.
    batch_max: Option<usize>,
    mutants: OrderMutants,
}

/// The owner of an object, which may process its events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The worker.
    pub worker: WorkerName,
    /// Its token.
    pub token: OrderStamp,
}

/// Record of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerRecord {
    /// Stamp of its run.
    pub session: OrderStamp,
    /// Lease on the object that it has taken, if any.
    pub lease: Option<ObjectLease>,
}

/// Lease of a worker on the object that it has taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectLease {
    /// The object.
    pub object: Object,
    /// Time from which others may take the object over, in milliseconds.
    pub lease_end_ms: u64,
    /// Events in process, oldest first, with their ids.
    pub batch: Vec<(OrderStamp, Bytes)>,
}

impl ObjectLease {
    /// Returns the id of the last event in process.
    fn last(&self) -> Option<OrderStamp> {
        self.batch.last().map(|(id, _)| *id)
    }
}

impl MemoryStore {
    /// Sets the state back to `earlier`, as when a server fails over to a replica that lagged behind.
    pub fn rewind(&mut self, earlier: MemoryStore) {
        *self = MemoryStore { is_suspect: true, batch_max: self.batch_max, mutants: self.mutants, ..earlier };
    }

    /// Returns the state with a mistake in its steps.
    pub fn with_mutants(self, mutants: OrderMutants) -> MemoryStore {
        MemoryStore { mutants, ..self }
    }

    /// Returns the state with at most this number of events in a batch.
    pub fn with_batches_of(self, batch_max: usize) -> MemoryStore {
        MemoryStore { batch_max: Some(batch_max), ..self }
    }

    /// Returns `OBJ:data`.
    pub fn data(&self, object: &Object) -> Option<&Bytes> {
        self.data.get(object)
    }

    /// Returns `OBJ:events`, oldest first.
    pub fn events(&self, object: &Object) -> impl Iterator<Item = &Bytes> {
        self.events.get(object).into_iter().flatten()
    }

    /// Returns `OBJ:last.event.id`.
    pub fn last(&self, object: &Object) -> Option<OrderStamp> {
        self.last.get(object).copied()
    }

    /// Returns `OBJ:event.worker`.
    pub fn owner(&self, object: &Object) -> Option<&Owner> {
        self.owners.get(object)
    }

    /// Returns `objects.with.events`, oldest first.
    pub fn with_events(&self) -> impl Iterator<Item = &Object> {
        self.with_events.iter()
    }

    /// Returns `event.worker:W:*` of all workers.
    pub fn workers(&self) -> impl Iterator<Item = (&WorkerName, &WorkerRecord)> {
        self.workers.iter()
    }

    fn read_mark(&self) -> OpOutcome {
        match self.mark {
            Some(mark) if !self.is_lost(mark) => OpOutcome::MarkRead { mark },
            _ => self.lost_generation(),
        }
    }

    fn show(&self, objects: &[Object], queued_max: usize) -> StoreSnapshot {
        let taken = self.workers.values().filter_map(|entry| Some(&entry.lease.as_ref()?.object));
        let names: BTreeSet<&Object> = objects.iter().chain(taken).chain(self.with_events().take(queued_max)).collect();
        let worker = |(name, entry): (&WorkerName, &WorkerRecord)| WorkerSnapshot {
            name: name.clone(),
            object: entry.lease.as_ref().map(|lease| lease.object.clone()),
            lease_end_ms: entry.lease.as_ref().map(|lease| lease.lease_end_ms),
            events: entry.lease.as_ref().map_or(0, |lease| lease.batch.len() as u64),
            last: entry.lease.as_ref().and_then(ObjectLease::last),
        };
        let object = |name: &Object| ObjectSnapshot {
            name: name.clone(),
            queued: self.events(name).count() as u64,
            last: self.last(name),
            owner: self.owner(name).map(|owner| owner.worker.clone()),
        };
        StoreSnapshot {
            mark: self.mark,
            is_suspect: self.is_suspect,
            queued: self.with_events.len() as u64,
            workers: self.workers.iter().map(worker).collect(),
            objects: names.into_iter().map(object).collect(),
        }
    }

    /// Returns whether a caller that has seen `mark` cannot continue with this state.
    fn is_lost(&self, mark: OrderStamp) -> bool {
        let Some(last) = self.mark else { return true };
        if self.mutants.is(OrderMutant::LossUnnoticed) {
            return false;
        }
        self.is_suspect
            || last.generation() != mark.generation()
            || last < mark
            || !last.is_followed_by(STAMPS_PER_STEP)
    }

    fn lost_generation(&self) -> OpOutcome {
        OpOutcome::LostGeneration { found: self.mark.map(OrderStamp::generation) }
    }

    fn begin(&mut self, found: Option<Generation>, generation: Generation) -> OpOutcome {
        if self.mark.map(OrderStamp::generation) == found && found < Some(generation) {
            self.mark = Some(OrderStamp::begin(generation));
            self.is_suspect = false;
        }
        self.read_mark()
    }

    fn stamp(&mut self) -> OrderStamp {
        let next = self.mark.and_then(OrderStamp::next).expect("checked before each step");
        self.mark = Some(next);
        next
    }

    fn push(&mut self, object: &Object, data: &Bytes, events: impl Iterator<Item = Bytes>) -> OpOutcome {
        self.data.insert(object.clone(), data.clone());
        self.events.entry(object.clone()).or_default().extend(events);
        self.with_events.push_back(object.clone());
        OpOutcome::Pushed { mark: self.mark.expect("checked before each step") }
    }

    fn open(&mut self, context: &WorkerContext) -> OpOutcome {
        let session = self.stamp();
        let entry = self.workers.entry(context.worker.clone()).or_insert(WorkerRecord { session, lease: None });
        entry.session = session;
        if let Some(lease) = &mut entry.lease {
            lease.lease_end_ms = context.lease_end_ms();
        }
        OpOutcome::Opened { session, object: entry.lease.as_ref().map(|lease| lease.object.clone()) }
    }

    fn apply_worker_op(&mut self, context: &WorkerContext, session: OrderStamp, op: &WorkerOp) -> OpOutcome {
        match self.workers.get(&context.worker) {
            None => return OpOutcome::NotHeld,
            Some(entry) if entry.session != session && !self.mutants.is(OrderMutant::SessionUnchecked) => {
                return OpOutcome::Superseded;
            }
            Some(_) => {}
        }
        match op {
            WorkerOp::Take | WorkerOp::TakeOver if self.lease(context).is_some() => OpOutcome::NotHeld,
            WorkerOp::Take => self.take(context),
            WorkerOp::TakeOver => self.take_over(context),
            WorkerOp::Claim { object } | WorkerOp::Drop { object } if !self.holds(context, object) => {
                OpOutcome::NotHeld
            }
            WorkerOp::Claim { object } => self.claim(context, object),
            WorkerOp::Drop { object } => self.drop_object(context, object),
            WorkerOp::Next { object, token }
            | WorkerOp::Renew { object, token }
            | WorkerOp::Record { object, token, .. }
            | WorkerOp::Advance { object, token, .. }
                if !self.owns(context, object, *token) =>
            {
                OpOutcome::NotHeld
            }
            WorkerOp::Next { object, .. } => self.next(context, object),
            WorkerOp::Renew { .. } => {
                self.renew_lease(context);
                OpOutcome::Done
            }
            WorkerOp::Record { object, id, .. } => self.record(context, object, *id),
            WorkerOp::Advance { object, token, id } => self.advance(context, object, *token, *id),
            WorkerOp::Leave => self.leave(context),
        }
    }

    fn lease(&mut self, context: &WorkerContext) -> &mut Option<ObjectLease> {
        &mut self.workers.get_mut(&context.worker).expect("the session was checked").lease
    }

    /// Begins the lease of the worker anew, and returns it.
    fn renew_lease(&mut self, context: &WorkerContext) -> &mut ObjectLease {
        let lease = self.lease(context).as_mut().expect("the worker has a lease");
        lease.lease_end_ms = context.lease_end_ms();
        lease
    }

    fn holds(&mut self, context: &WorkerContext, object: &Object) -> bool {
        self.lease(context).as_ref().is_some_and(|lease| lease.object == *object)
    }

    fn owns(&mut self, context: &WorkerContext, object: &Object, token: OrderStamp) -> bool {
        let is_owner =
            self.owners.get(object).is_some_and(|owner| owner.worker == context.worker && owner.token == token);
        if self.mutants.is(OrderMutant::OwnerUnchecked) {
            let lease = ObjectLease { object: object.clone(), lease_end_ms: context.lease_end_ms(), batch: Vec::new() };
            self.lease(context).get_or_insert(lease);
        }
        self.holds(context, object) && (is_owner || self.is_unfenced())
    }

    fn is_unfenced(&self) -> bool {
        self.mutants.is(OrderMutant::OwnerUnchecked) || self.mutants.is(OrderMutant::TakeOverUnfenced)
    }

    /// Returns the id of the last event in process.
    fn in_process(&mut self, context: &WorkerContext) -> Option<OrderStamp> {
        self.lease(context).as_ref().and_then(ObjectLease::last)
    }

    fn take(&mut self, context: &WorkerContext) -> OpOutcome {
        let Some(object) = self.with_events.pop_front() else { return OpOutcome::Empty };
        let lease = ObjectLease { object: object.clone(), lease_end_ms: context.lease_end_ms(), batch: Vec::new() };
        *self.lease(context) = Some(lease);
        OpOutcome::Taken { object }
    }

    fn take_over(&mut self, context: &WorkerContext) -> OpOutcome {
        let mutants = self.mutants;
        let is_eligible = |lease: &&ObjectLease| {
            !mutants.is(OrderMutant::TakeOverOwnedOnly) || self.owners.contains_key(&lease.object)
        };
        let others = self.workers.iter().filter(|(name, _)| **name != context.worker);
        let holds = others.filter_map(|(name, entry)| Some((entry.lease.as_ref().filter(is_eligible)?, name)));
        let first = holds.min_by_key(|(lease, name)| (lease.lease_end_ms, &lease.object, *name));
        let Some((lease, from)) = first else { return OpOutcome::NoneEnded { first_ms: None } };
        let end_ms = lease.lease_end_ms;
        if context.now_ms < end_ms && !mutants.is(OrderMutant::TakeOverEarly) {
            return OpOutcome::NoneEnded { first_ms: Some(end_ms) };
        }
        let from = from.clone();
        let their_lease = &mut self.workers.get_mut(&from).expect("found above").lease;
        let lease = if mutants.is(OrderMutant::TakeOverUnfenced) { their_lease.clone() } else { their_lease.take() };
        let lease = lease.expect("found above");
        if !self.is_unfenced() {
            self.workers.remove(&from);
        }
        let object = lease.object.clone();
        if self.owners.get(&object).is_some_and(|owner| owner.worker == from) {
            let owner = Owner { worker: context.worker.clone(), token: self.stamp() };
            self.owners.insert(object.clone(), owner);
        }
        *self.lease(context) = Some(ObjectLease { lease_end_ms: context.lease_end_ms(), ..lease });
        OpOutcome::Taken { object }
    }

    fn claim(&mut self, context: &WorkerContext, object: &Object) -> OpOutcome {
        self.renew_lease(context);
        let is_owned_by_other = self.owners.get(object).is_some_and(|owner| owner.worker != context.worker);
        if is_owned_by_other && !self.mutants.is(OrderMutant::ClaimOwned) {
            return OpOutcome::Owned;
        }
        let token = self.grant_ownership(context, object);
        let mut batch = std::mem::take(&mut self.renew_lease(context).batch);
        if self.mutants.is(OrderMutant::UnfinishedForgotten) {
            batch.clear();
        }
        if self.mutants.is(OrderMutant::UnfinishedCut) {
            batch.truncate(1);
        }
        if self.mutants.is(OrderMutant::NewIdOnResend) {
            batch.iter_mut().for_each(|(id, _)| *id = self.stamp());
        }
        self.renew_lease(context).batch.clone_from(&batch);
        OpOutcome::Claimed { token, unfinished: self.stamped_batch(object, batch) }
    }

    fn grant_ownership(&mut self, context: &WorkerContext, object: &Object) -> OrderStamp {
        let token = self.stamp();
        self.owners.insert(object.clone(), Owner { worker: context.worker.clone(), token });
        token
    }

    /// Returns the batch with the `prev` of each event.
    fn stamped_batch(&self, object: &Object, batch: Vec<(OrderStamp, Bytes)>) -> Vec<StampedEvent> {
        let mut last = self.last(object);
        let is_mutant = self.mutants.is(OrderMutant::PrevOfBatch);
        let stamp = |(id, payload)| {
            let prev = if is_mutant { last } else { last.replace(id) };
            StampedEvent { id, prev, payload }
        };
        batch.into_iter().map(stamp).collect()
    }

    fn next(&mut self, context: &WorkerContext, object: &Object) -> OpOutcome {
        if self.in_process(context).is_some() {
            return OpOutcome::NotHeld;
        }
        self.renew_lease(context);
        let drawn = self.draw(object);
        let Some((last, _)) = drawn.last() else {
            if !self.mutants.is(OrderMutant::ReleaseLater) {
                self.owners.remove(object);
            }
            return OpOutcome::Emptied;
        };
        let last = *last;
        let batch = self.stamped_batch(object, drawn.clone());
        if self.mutants.is(OrderMutant::RecordBeforeSend) {
            self.last.insert(object.clone(), last);
        } else {
            self.renew_lease(context).batch = drawn;
        }
        OpOutcome::Next(batch)
    }

    /// Removes the next events from the queue, and stamps them with new ids.
    fn draw(&mut self, object: &Object) -> Vec<(OrderStamp, Bytes)> {
        let Some(mut queue) = self.events.remove(object) else { return Vec::new() };
        let batch_max = self.batch_max.unwrap_or(EVENTS_PER_STEP);
        let (mut drawn, mut bytes, before) = (Vec::new(), 0, self.mark);
        while drawn.len() < batch_max && bytes < BYTES_PER_STEP {
            let Some(payload) = queue.pop_front() else { break };
            bytes += payload.len();
            drawn.push((self.stamp(), payload));
        }
        if self.mutants.is(OrderMutant::IdsUnreserved) {
            self.mark = before.and_then(OrderStamp::next);
        }
        if !queue.is_empty() {
            self.events.insert(object.clone(), queue);
        }
        drawn
    }

    fn record(&mut self, context: &WorkerContext, object: &Object, id: OrderStamp) -> OpOutcome {
        if self.in_process(context) != Some(id) && !self.mutants.is(OrderMutant::RecordBeforeSend) {
            return OpOutcome::NotHeld;
        }
        let batch = std::mem::take(&mut self.renew_lease(context).batch);
        if !self.mutants.is(OrderMutant::LastForgotten) {
            let first = batch.first().filter(|_| self.mutants.is(OrderMutant::FirstAsLast));
            self.last.insert(object.clone(), first.map_or(id, |(first, _)| *first));
        }
        OpOutcome::Done
    }

    fn advance(&mut self, context: &WorkerContext, object: &Object, token: OrderStamp, id: OrderStamp) -> OpOutcome {
        if self.record(context, object, id) == OpOutcome::NotHeld {
            return OpOutcome::NotHeld;
        }
        if let OpOutcome::Next(batch) = self.next(context, object) {
            return OpOutcome::Advanced { object: object.clone(), token, batch };
        }
        self.drop_object(context, object);
        for _ in 0..OBJECTS_PER_STEP {
            let Some(first) = self.with_events.front() else { return OpOutcome::Empty };
            let is_owned = self.owners.contains_key(first) && !self.mutants.is(OrderMutant::ClaimOwned);
            if is_owned || !self.events.contains_key(first) || self.mutants.is(OrderMutant::EntryWasted) {
                self.with_events.pop_front();
                continue;
            }
            let object = first.clone();
            self.take(context);
            let token = self.grant_ownership(context, &object);
            let OpOutcome::Next(batch) = self.next(context, &object) else { unreachable!("it has events") };
            return OpOutcome::Advanced { object, token, batch };
        }
        OpOutcome::Paused
    }

    fn leave(&mut self, context: &WorkerContext) -> OpOutcome {
        if self.lease(context).is_some() {
            return OpOutcome::NotHeld;
        }
        self.workers.remove(&context.worker);
        OpOutcome::Done
    }

    fn drop_object(&mut self, context: &WorkerContext, object: &Object) -> OpOutcome {
        if self.owners.get(object).is_some_and(|owner| owner.worker == context.worker) {
            if !self.mutants.is(OrderMutant::ReleaseLater) && !self.mutants.is(OrderMutant::DropEarly) {
                return OpOutcome::NotHeld;
            }
            self.owners.remove(object);
        }
        *self.lease(context) = None;
        OpOutcome::Done
    }
}

impl WorkerContext {
    /// Returns the time until which other workers may not take over the object of this worker, in milliseconds.
    pub fn lease_end_ms(&self) -> u64 {
        self.now_ms.saturating_add(self.lease_ms)
    }
}

impl Store for MemoryStore {
    type Error = Infallible;

    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, Infallible> {
        let mark = match op {
            StoreOp::ReadMark => return Ok(self.read_mark()),
            StoreOp::Show { objects, queued_max } => {
                return Ok(OpOutcome::Shown(self.show(objects, *queued_max)));
            }
            StoreOp::Begin { found, generation } => return Ok(self.begin(*found, *generation)),
            StoreOp::Push { mark, .. } => *mark,
            StoreOp::Open { context } | StoreOp::WorkerOp { context, .. } => context.mark,
        };
        if self.is_lost(mark) {
            return Ok(self.lost_generation());
        }
        Ok(match op {
            StoreOp::Push { object, data, main, subs, .. } => {
                self.push(object, data, std::iter::once(main).chain(subs).cloned())
            }
            StoreOp::Open { context } => self.open(context),
            StoreOp::WorkerOp { context, session, op } => self.apply_worker_op(context, *session, op),
            StoreOp::ReadMark | StoreOp::Show { .. } | StoreOp::Begin { .. } => unreachable!("done above"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(number: u32) -> Generation {
        Generation::new(number).unwrap()
    }

    fn apply(store: &mut MemoryStore, op: &StoreOp) -> OpOutcome {
        let Ok(outcome) = store.apply(op);
        outcome
    }

    fn begun_store() -> MemoryStore {
        let mut store = MemoryStore::default();
        assert_eq!(apply(&mut store, &StoreOp::ReadMark), OpOutcome::LostGeneration { found: None });
        let mark = OrderStamp::begin(generation(7));
        let op = StoreOp::Begin { found: None, generation: generation(7) };
        assert_eq!(apply(&mut store, &op), OpOutcome::MarkRead { mark });
        store
    }

    fn push(mark: OrderStamp) -> StoreOp {
        let [data, main, one, two] = ["{}", "main", "one", "two"].map(|text| Bytes::from_static(text.as_bytes()));
        StoreOp::Push { mark, object: Object::new("work:1").unwrap(), data, main, subs: vec![one, two] }
    }

    fn open(mark: OrderStamp) -> StoreOp {
        StoreOp::Open {
            context: WorkerContext { worker: WorkerName::new("A").unwrap(), mark, now_ms: 0, lease_ms: 10 },
        }
    }

    #[test]
    fn push_queues_the_events_and_the_object() {
        let (mut store, mark, object) =
            (begun_store(), OrderStamp::begin(generation(7)), Object::new("work:1").unwrap());
        assert_eq!(apply(&mut store, &push(mark)), OpOutcome::Pushed { mark });
        let events: Vec<&[u8]> = store.events(&object).map(|event| &event[..]).collect();
        assert_eq!((events, store.data(&object).unwrap()), (vec![&b"main"[..], b"one", b"two"], &Bytes::from("{}")));
        assert_eq!(store.with_events().collect::<Vec<_>>(), [&object]);
    }

    /// Checks that each step of a caller that has seen `mark` is refused and changes nothing.
    fn check_lost(store: &MemoryStore, mark: OrderStamp, found: u32) {
        for op in [push(mark), open(mark)] {
            let mut after = store.clone();
            assert_eq!(apply(&mut after, &op), OpOutcome::LostGeneration { found: Some(generation(found)) });
            assert_eq!(after, *store);
        }
    }

    #[test]
    fn step_on_another_state_is_refused() {
        let mut store = begun_store();
        let earlier = store.clone();
        let session = OrderStamp::begin(generation(7)).next().unwrap();
        assert_eq!(
            apply(&mut store, &open(OrderStamp::begin(generation(7)))),
            OpOutcome::Opened { session, object: None }
        );
        // The state has another generation, or fewer stamps than were seen.
        check_lost(&store, OrderStamp::begin(generation(6)), 7);
        check_lost(&store, OrderStamp::begin(generation(8)), 7);
        check_lost(&store, session.next().unwrap(), 7);
        // The state went back, and the store knows it.
        store.rewind(earlier);
        check_lost(&store, OrderStamp::begin(generation(7)), 7);
        assert_eq!(apply(&mut store, &StoreOp::ReadMark), OpOutcome::LostGeneration { found: Some(generation(7)) });
        // All stamps are given out.
        let last = OrderStamp::from_number(OrderStamp::begin(generation(8)).number() - 1);
        check_lost(&MemoryStore { mark: last, ..begun_store() }, OrderStamp::begin(generation(7)), 7);
    }

    #[test]
    fn one_of_two_callers_begins_a_generation() {
        let mut store = begun_store();
        store.rewind(store.clone());
        let (found, mark) = (Some(generation(7)), OrderStamp::begin(generation(9)));
        for (found, number, outcome) in [
            (None, 9, OpOutcome::LostGeneration { found }),
            (found, 7, OpOutcome::LostGeneration { found }),
            (found, 9, OpOutcome::MarkRead { mark }),
            (found, 10, OpOutcome::MarkRead { mark }),
        ] {
            let op = StoreOp::Begin { found, generation: generation(number) };
            assert_eq!(apply(&mut store, &op), outcome, "{op:?}");
        }
    }
}
