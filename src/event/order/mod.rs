//! Seed 001: one order for the events of each object, although several producers make them and several workers send
//! them.
//!
//! Each step is one atomic operation on the shared state ([`store::StoreOp`]):
//!
//! | who | step | effect on the shared state |
//! |---|---|---|
//! | front end | pushes a main event, its subevents, and the object's new state | sets `OBJ:data` |
//! | | | appends to `OBJ:events` and `objects.with.events` |
//! | worker | begins, or begins again after a crash | its previous run may no longer write |
//! | | takes an object | moves it from `objects.with.events` to `event.worker:W:object`, with a lease |
//! | | or takes over an object whose lease has ended | moves object, ownership and batch in process to this worker |
//! | | claims it, or drops it if another worker is the owner | sets `OBJ:event.worker` with a new token |
//! | | draws a batch of events | moves them from `OBJ:events` to `event.worker:W:event`, with new ids |
//! | | | unsets `OBJ:event.worker` if the queue is empty |
//! | | sends them one after the other, with id, `prev` and token | – |
//! | | records them | unsets `event.worker:W:event`, sets `OBJ:last.event.id` |
//! | | draws again; without events, drops the object | unsets `event.worker:W:object` |
//! | | and takes, claims and draws until it has a batch | one step from `records` on: [`store::WorkerOp::Advance`] |
//! | consumer | buffers an event until its `prev` was processed | – |
//!
//! These invariants hold after every step. Those of the seed come first.
//!
//! 1. The main events in `OBJ:events` are no more than the entries of `OBJ` in `objects.with.events` and in all
//!    `event.worker:W:object`; or `OBJ:event.worker` is set, and that worker processes all of them.
//! 2. The worker in `OBJ:event.worker` has `OBJ` in its `event.worker:W:object`.
//! 3. A worker that does not own its object has no event in process.
//! 4. An event in process is not queued.
//! 5. Q1: each pushed event is queued, is in process, or was sent. Q2: the events of an object are sent in the order of
//!    its queue. Events sent again keep their id and `prev`; `prev` names the previous event. Q3: no two events ever
//!    share an id, not even after a loss of the state. Q4: the store and the consumers refuse a worker that no longer
//!    owns an object. Q5: a crashed worker delays an object by at most one lease.
//!
//! `model`, of the feature `sim`, explores all states of small scenarios with the code of [`Worker`](worker::Worker)
//! itself, and checks these invariants in each. There is no I/O here: the caller waits, sends, stores and reads the
//! clock.

pub mod consumer;
pub mod envelope;
pub mod memory;
#[cfg(feature = "sim")]
pub mod model;
pub mod mutant;
pub mod name;
pub mod stamp;
pub mod store;
pub mod worker;

#[cfg(test)]
mod tests;
