//! Invariants of each step and each state of the model.

use super::{ModelState, WorkerSlot};
use crate::event::order::memory::MemoryStore;
use crate::event::order::model::scenario::LEASE_MS;
use crate::event::order::name::{Object, WorkerName};
use crate::event::order::store::{OpOutcome, StoreOp, WorkerOp};
use crate::event::order::worker::{OrderedEvent, Settings, Worker, WorkerAction};
use bytes::Bytes;

/// An event of the scenario: the object, and its position in the object's order.
type EventPosition = (usize, usize);

impl ModelState {
    /// Checks Q2, Q3 and Q4 of a sent event. For an event stamped in a lost history, checks only Q3.
    pub(super) fn on_send(&mut self, event: &OrderedEvent, is_lost: bool) -> Result<(), String> {
        let wrong = |text: &str| Err(format!("{text}: {event:?}"));
        let object = self.object(&event.object);
        let position: Option<EventPosition> = self.sent.iter().enumerate().find_map(|(object, sent)| {
            sent.ids.iter().find(|(id, ..)| *id == event.id).map(|(_, position, _)| (object, *position))
        });
        let payload = |position: usize| self.constants.events[object].get(position);
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
                let position = self.constants.events[object].iter().position(|payload| *payload == event.payload);
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
    pub(super) fn check_step(&self, before: &MemoryStore, op: &StoreOp, outcome: &OpOutcome) -> Result<(), String> {
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
    pub(super) fn check(&self) -> Result<(), String> {
        for (index, object) in self.constants.objects.iter().enumerate() {
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
            let others = self.holds().filter(|(name, _)| **name != self.constants.names[index]);
            if others.map(|(_, lease)| lease.lease_end_ms).any(|end_ms| end_ms < until_ms) {
                return Err(format!("Q5: {} sleeps until {until_ms}", self.constants.names[index]));
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
            self.constants.pushes[..self.pushed].iter().filter(|push| push.0 == index).map(|push| push.2).sum();
        let taken = pushed.checked_sub(self.store.events(object).count());
        let events = &self.constants.events[index];
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
        let mut state = self.clone();
        let name = WorkerName::new("Z").expect("a name");
        let worker = Worker::new(Settings { name, lease_ms: LEASE_MS }, None);
        let worker = worker.with_mutants(self.constants.scenario.mutants);
        state.slots.push(WorkerSlot { worker: Some(worker), unreported: None });
        let index = self.slots.len();
        for _ in 0..200 {
            match state.peek(index) {
                Some(WorkerAction::Wait { .. }) if state.worker(index).object().is_some() => state.finish(index),
                Some(WorkerAction::Wait { .. }) => state.now_ms += LEASE_MS,
                _ => state.step(index)?,
            }
            let is_done = state.store.with_events().next().is_none() && state.holds().next().is_none();
            if !is_done {
                continue;
            }
            let sent = state.sent.iter().map(|sent| sent.next);
            let all = self.constants.events.iter().map(Vec::len);
            let is_owned = self.constants.objects.iter().any(|object| state.store.owner(object).is_some());
            return if sent.eq(all) && !is_owned {
                Ok(())
            } else {
                Err(format!("Q1: not everything is sent: {state:?}"))
            };
        }
        Err("Q5: what is left is not taken over".to_owned())
    }
}
