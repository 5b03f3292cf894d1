//! Events: registration, the journal, other servers' events, and the order of the events of an object.

mod follow;
mod journal;
mod order;
mod registration;
