//! An exhaustive model of workers, a store and a front end: it visits every state of a small scenario.
//!
//! A [`scenario`] says which transitions may happen, and how often. A [`state`] makes them with the code of the
//! product, and checks the invariants of [`order`](super) after each. An [`exploration`] visits each state once.

pub mod exploration;
pub mod scenario;
pub mod state;
pub mod state_hasher;
