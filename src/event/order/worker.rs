//! A worker: takes objects, becomes their owner, and sends their events, one after the other, with id and prev.
//!
//! The steps are those of seed 001 in its order, with a batch of events where the seed has one event. A worker may end at any point, between
//! any two steps or in the middle of one: another value of the same name, or a worker of another name when the lease has ended, goes on
//! from what the store knows.

use super::mutant::{Mutant, Mutants};
use super::name::{Object, WorkerName};
use super::stamp::{Generation, Stamp};
use super::store::{Act, Caller, Op, Outcome, Stamped};
use bytes::Bytes;
use std::collections::VecDeque;

/// An event as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrderedEvent {
    /// The object that it relates to.
    pub object: Object,
    /// Its id; two events with the same id are the same event.
    pub id: Stamp,
    /// The id of the object's event before; `None` if it is the first one. Less than `id`.
    pub prev: Option<Stamp>,
    /// The fencing token of the owner that sends it.
    pub token: Stamp,
    /// The event as it was pushed.
    pub payload: Bytes,
}

/// What a worker is told once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Its name; no two workers that run may have the same.
    pub name: WorkerName,
    /// For how long what it holds is safe from other workers, from its last step on, in milliseconds. At least 2, and longer than any
    /// step takes; the same for all workers of a store.
    pub lease_ms: u64,
}

/// What a worker wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A step on the store; [`Worker::on_outcome`] takes its outcome, [`Worker::on_unknown`] that there is none.
    Apply(Op),
    /// An event is to be sent; [`Worker::on_sent`] says that it was, durably, as far as the sender promises that.
    Send(OrderedEvent),
    /// There is something to tell. The worker goes on.
    Advise(Advice),
    /// Nothing before this time, in milliseconds, unless an event was sent or an object is pushed ([`Worker::on_push`]).
    Wait {
        /// When to ask again.
        until_ms: u64,
    },
    /// Nothing any more.
    Stop(Stop),
}

/// What happened that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// The state of the generation that this worker knew was lost or went back: events that were pushed may be gone, and events that
    /// were sent may be sent again with another id.
    LostGeneration {
        /// What the worker knew; `None` at its start.
        known: Option<Generation>,
        /// What it found instead; `None` if the state is empty.
        found: Option<Generation>,
    },
    /// Somebody took over what this worker held, because its lease had ended.
    TakenOver {
        /// What it held.
        object: Object,
    },
}

/// Why a worker does nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Another one with its name has begun.
    Superseded,
    /// It was to end ([`Worker::on_end`]), and has.
    Ended,
    /// There is no higher generation, so that no new one can begin (in the year 2093).
    NoGeneration,
}

/// Where a worker stands. Each state up to `Recording` waits for the outcome of its step on the store, or has yet to ask for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Looking,
    Beginning {
        found: Option<Generation>,
    },
    Opening,
    /// Looks at the leases of others first, if it is time to.
    Free,
    TakingOver {
        since_ms: u64,
    },
    ReceiveProgress,
    Claiming {
        object: Object,
    },
    Dropping {
        object: Object,
    },
    Drawing(Owned),
    Recording {
        owned: Owned,
        id: Stamp,
    },
    Sending {
        owned: Owned,
        /// What is left of the batch, at least one. The first one is being sent, if `is_out`.
        batch: VecDeque<Stamped>,
        is_out: bool,
    },
    Waiting,
    Leaving,
    Stopped(Stop),
}

/// An object and the token by which the worker owns it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owned {
    object: Object,
    token: Stamp,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    settings: Settings,
    state: State,
    /// Its run, once it is open.
    session: Option<Stamp>,
    /// The highest stamp seen.
    mark: Option<Stamp>,
    /// When to look at the leases of others again, in milliseconds; none of them ends before.
    leases_ms: u64,
    /// When to renew its own while an event is sent, in milliseconds.
    renew_ms: u64,
    is_renewing: bool,
    /// Whether it is to end.
    is_ending: bool,
    advice: Option<Advice>,
    mutants: Mutants,
}

impl Worker {
    /// A worker that begins, or begins again after a crash. `mark` is the highest stamp that the caller remembers, if any: the more
    /// it remembers, the sooner a state that went back is noticed.
    pub fn new(settings: Settings, mark: Option<Stamp>) -> Worker {
        Worker {
            settings,
            state: State::Looking,
            session: None,
            mark,
            leases_ms: 0,
            renew_ms: 0,
            is_renewing: false,
            is_ending: false,
            advice: None,
            mutants: Mutants::default(),
        }
    }

    /// The worker with a mistake in its steps.
    pub fn mutated(self, mutants: Mutants) -> Worker {
        Worker { mutants, ..self }
    }

    /// What to do next; `now_ms` is in milliseconds since 1970-01-01 UTC, on the clock of all workers of the store. After
    /// [`Step::Apply`] not to be asked again before the outcome was told.
    pub fn poll_step(&mut self, now_ms: u64) -> Step {
        if let Some(advice) = self.advice.take() {
            return Step::Advise(advice);
        }
        if self.is_ending && matches!(self.state, State::Free | State::Waiting) {
            self.state = State::Leaving;
        }
        if self.state == State::Free || self.state == State::Waiting && self.leases_ms <= now_ms {
            self.state =
                if now_ms < self.leases_ms { State::ReceiveProgress } else { State::TakingOver { since_ms: now_ms } };
        }
        let act = match &mut self.state {
            State::Looking => return Step::Apply(Op::Look),
            State::Beginning { found } => {
                let known = self.mark.map(Stamp::generation).max(*found);
                return match Generation::after(known, now_ms) {
                    Some(generation) => Step::Apply(Op::Begin { found: *found, generation }),
                    None => Step::Stop(Stop::NoGeneration),
                };
            }
            State::Opening => return Step::Apply(Op::Open { by: self.caller(now_ms) }),
            State::Free => unreachable!("left above"),
            State::TakingOver { .. } => Act::TakeOver,
            State::ReceiveProgress => Act::Take,
            State::Claiming { object } => Act::Claim { object: object.clone() },
            State::Dropping { object } => Act::Drop { object: object.clone() },
            State::Drawing(owned) => Act::Next { object: owned.object.clone(), token: owned.token },
            // Others that are gone are not to wait until nothing is queued: then the steps are single ones.
            State::Recording { owned, id }
                if self.is_ending || self.leases_ms <= now_ms || self.mutants.is_stepwise() =>
            {
                Act::Record { object: owned.object.clone(), token: owned.token, id: *id }
            }
            State::Recording { owned, id } => {
                Act::Advance { object: owned.object.clone(), token: owned.token, id: *id }
            }
            // Between two events of a batch, too.
            State::Sending { owned, .. } if self.renew_ms <= now_ms => {
                self.is_renewing = true;
                Act::Renew { object: owned.object.clone(), token: owned.token }
            }
            State::Sending { owned, batch, is_out: is_out @ false } => {
                *is_out = true;
                return Step::Send(ordered(owned, &batch[0]));
            }
            State::Sending { .. } => return Step::Wait { until_ms: self.renew_ms },
            State::Waiting => return Step::Wait { until_ms: self.leases_ms },
            State::Leaving => Act::Leave,
            State::Stopped(stop) => return Step::Stop(*stop),
        };
        let session = self.session.expect("a run is open before its first step");
        Step::Apply(Op::Act { by: self.caller(now_ms), session, act })
    }

    /// What became of the step on the store.
    ///
    /// # Panics
    /// It is no outcome of the step that was asked for.
    pub fn on_outcome(&mut self, now_ms: u64, outcome: Outcome) {
        let is_renewing = std::mem::take(&mut self.is_renewing);
        let state = std::mem::replace(&mut self.state, State::Looking);
        self.state = match (state, outcome) {
            (State::Looking, Outcome::LostGeneration { found }) => self.on_lost(found),
            (State::Looking, Outcome::Looked { mark }) => self.on_looked(mark),
            (State::Beginning { .. }, Outcome::Looked { mark }) if self.mark <= Some(mark) => self.on_mark(mark),
            // Whatever it was, another look tells what there is now.
            (State::Beginning { .. }, Outcome::Looked { .. }) | (_, Outcome::LostGeneration { .. }) => State::Looking,
            (_, Outcome::Superseded) => State::Stopped(Stop::Superseded),
            (state, Outcome::NotHeld) => self.on_not_held(state),
            (state, Outcome::Done) if is_renewing => {
                self.renew_ms = now_ms.saturating_add(self.settings.lease_ms / 2);
                state
            }
            (State::Opening, Outcome::Opened { session, object }) => {
                self.see(session);
                self.session = Some(session);
                object.map_or(State::Free, |object| State::Claiming { object })
            }
            (State::TakingOver { .. } | State::ReceiveProgress, Outcome::Taken { object }) => {
                State::Claiming { object }
            }
            (State::TakingOver { since_ms }, Outcome::NoneEnded { first_ms }) => {
                // Whatever others take from then on is theirs for a lease.
                let later_ms = since_ms.saturating_add(self.settings.lease_ms);
                self.leases_ms = first_ms.map_or(later_ms, |first_ms| first_ms.min(later_ms));
                if self.mutants.is(Mutant::LeasesUnwatched) {
                    self.leases_ms = u64::MAX;
                }
                State::ReceiveProgress
            }
            (State::ReceiveProgress, Outcome::Empty) => State::Waiting,
            (State::Claiming { object }, Outcome::Claimed { token, unfinished }) => {
                self.see(token);
                let owned = Owned { object, token };
                match unfinished.is_empty() {
                    true => State::Drawing(owned),
                    false => self.send(now_ms, owned, unfinished),
                }
            }
            (State::Claiming { object }, Outcome::Owned) => State::Dropping { object },
            (State::Drawing(owned), Outcome::Next(batch)) => self.send(now_ms, owned, batch),
            (State::Drawing(owned), Outcome::Emptied) => State::Dropping { object: owned.object },
            (State::Recording { .. }, Outcome::Advanced { object, token, batch }) => {
                self.see(token);
                self.send(now_ms, Owned { object, token }, batch)
            }
            (State::Recording { .. }, Outcome::Empty) => State::Waiting,
            (State::Recording { owned, .. }, Outcome::Done) if self.mutants.is(Mutant::DropEarly) => {
                State::Dropping { object: owned.object }
            }
            (State::Recording { owned, .. }, Outcome::Done) => State::Drawing(owned),
            (State::Recording { .. }, Outcome::Paused) | (State::Dropping { .. }, Outcome::Done) => State::Free,
            (State::Leaving, Outcome::Done) => State::Stopped(Stop::Ended),
            (state, outcome) => panic!("{outcome:?} is no outcome of what was asked for by {state:?}"),
        };
    }

    /// The store could not be reached, or it is not known what became of the step: the worker begins again, from what the store knows.
    /// When it is worth trying is for the caller to say.
    pub fn on_unknown(&mut self) {
        self.is_renewing = false;
        if !matches!(self.state, State::Stopped(_)) {
            self.state = State::Looking;
        }
    }

    /// The event with this id was sent. One that is not being sent does not matter.
    pub fn on_sent(&mut self, id: Stamp) {
        let State::Sending { owned, batch, is_out: is_out @ true } = &mut self.state else { return };
        if batch[0].id != id {
            return;
        }
        *is_out = false;
        let last = batch[batch.len() - 1].id;
        batch.pop_front();
        if batch.is_empty() || self.mutants.is(Mutant::RecordEarly) {
            self.state = State::Recording { owned: owned.clone(), id: last };
        }
    }

    /// An object was pushed, perhaps: if the worker waits for one, it looks again.
    pub fn on_push(&mut self) {
        if self.state == State::Waiting {
            self.state = State::Free;
        }
    }

    /// The worker is to end: it sends what is queued of the object that it has taken, takes no other, and stops.
    pub fn on_end(&mut self) {
        self.is_ending = true;
    }

    /// The highest stamp that it has seen; to be remembered for the next run.
    pub fn mark(&self) -> Option<Stamp> {
        self.mark
    }

    /// The object that it has taken. A worker without one can be killed and delays nobody.
    pub fn object(&self) -> Option<&Object> {
        match &self.state {
            State::Claiming { object } | State::Dropping { object } => Some(object),
            State::Drawing(owned) | State::Recording { owned, .. } | State::Sending { owned, .. } => {
                Some(&owned.object)
            }
            _ => None,
        }
    }

    fn caller(&self, now_ms: u64) -> Caller {
        let mark = self.mark.expect("the first step is a look");
        Caller { worker: self.settings.name.clone(), mark, now_ms, lease_ms: self.settings.lease_ms }
    }

    fn see(&mut self, stamp: Stamp) {
        self.mark = self.mark.max(Some(stamp));
    }

    fn on_looked(&mut self, mark: Stamp) -> State {
        let Some(known) = self.mark else { return self.on_mark(mark) };
        if mark < known {
            return self.on_lost(Some(mark.generation()));
        }
        if known.generation() < mark.generation() {
            self.advise_lost(Some(mark.generation()));
        }
        self.on_mark(mark)
    }

    fn on_lost(&mut self, found: Option<Generation>) -> State {
        self.advise_lost(found);
        State::Beginning { found }
    }

    /// An empty state that nobody knew is a beginning, not a loss.
    fn advise_lost(&mut self, found: Option<Generation>) {
        let known = self.mark.map(Stamp::generation);
        if known.max(found).is_some() {
            self.advice = Some(Advice::LostGeneration { known, found });
        }
    }

    fn on_mark(&mut self, mark: Stamp) -> State {
        self.see(mark);
        self.leases_ms = 0;
        State::Opening
    }

    fn on_not_held(&mut self, state: State) -> State {
        self.state = state;
        if let Some(object) = self.object() {
            self.advice = Some(Advice::TakenOver { object: object.clone() });
        }
        State::Opening
    }

    fn send(&mut self, now_ms: u64, owned: Owned, batch: Vec<Stamped>) -> State {
        self.see(batch.last().expect("a batch has at least one event").id);
        self.renew_ms = now_ms.saturating_add(self.settings.lease_ms / 2);
        State::Sending { owned, batch: batch.into(), is_out: false }
    }
}

fn ordered(owned: &Owned, event: &Stamped) -> OrderedEvent {
    OrderedEvent {
        object: owned.object.clone(),
        id: event.id,
        prev: event.prev,
        token: owned.token,
        payload: event.payload.clone(),
    }
}
