//! Seed 001: one order for the events of each object, although several producers make them and several workers send
//! them.
//!
//! | who | step | on the shared state, atomically ([`store::StoreOp`]) |
//! |---|---|---|
//! | front end | pushes a main event and subevents of an object, with its new state | `OBJ:data`, `OBJ:events`, `objects.with.events` |
//! | worker | begins, or begins again after a crash | its run before may not write any more |
//! | | takes an object | from `objects.with.events` to `event.worker:W:object`, with a lease |
//! | | or takes one over whose holder's lease has ended | object, ownership and batch in process, as they are |
//! | | claims it | sets `OBJ:event.worker` with a new token, unless another worker is there: then it drops the object |
//! | | draws the next events, a batch | from `OBJ:events` to `event.worker:W:event`, with new ids; if there is none, unsets `OBJ:event.worker` |
//! | | sends them one after the other, with id, `prev` and token | – |
//! | | records them | unsets `event.worker:W:event`, sets `OBJ:last.event.id` |
//! | | draws again; if there is no event, drops the object | unsets `event.worker:W:object` |
//! | | and takes, claims and draws until there is one | the last three lines are one step ([`store::WorkerOp::Advance`]) |
//! | consumer | holds an event until its `prev` was processed | – |
//!
//! The invariants that hold after every step, those of the seed first:
//!
//! 1. The main events in `OBJ:events` are no more than the entries of `OBJ` in `objects.with.events` and in all
//!    `event.worker:W:object`; or `OBJ:event.worker` is set, and that worker processes all of them.
//! 2. The worker in `OBJ:event.worker` has `OBJ` in its `event.worker:W:object`.
//! 3. A worker that does not own its object has no event in process.
//! 4. An event in process is not queued.
//! 5. Q1: each event that was pushed is queued, is in process, or was sent. Q2: events of an object are sent in the
//!    order of its queue. Events sent again keep their id and `prev`; `prev` names the event before. Q3: no two events
//!    ever share an id, not even if the state was lost. Q4: the store and the consumers refuse a worker that no longer
//!    owns an object. Q5: a crashed worker delays an object by at most one lease.
//!
//! `tests` explores all states of small worlds with the code of [`Worker`](worker::Worker) itself, and checks these
//! invariants in each. There is no I/O here: the caller waits, sends, stores and reads the clock.

pub mod consumer;
pub mod envelope;
pub mod memory;
pub mod mutant;
pub mod name;
pub mod stamp;
pub mod store;
pub mod worker;

#[cfg(test)]
mod tests;
