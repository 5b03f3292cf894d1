//! The order of events in its real stores: on a redis-server of the test's own, and in SQLite files.

mod command;
mod conform;
mod faults;
mod kill;
mod sent_events;
mod state;
mod tls;

use seqcast::event::order::store::{OpOutcome, Store, StoreOp};

const REDIS_PREFIX: &str = "t:";

fn apply<S: Store<Error: std::fmt::Debug>>(store: &mut S, op: &StoreOp) -> OpOutcome {
    store.apply(op).expect("the store is there")
}
