//! Events of seed 004: their identity, numbering, order, encoding and subscriptions.
//!
//! An event is immutable and has an identity: the server that created it, the session (one processing of a request to
//! register events) and its position there. It has a type, which is a list of subtypes, and perhaps a payload. There is
//! no I/O here: the caller stores events, sends them and reads the clock.
//!
//! [`order`] is seed 001: several producers agree on one order of each object's events, whatever these are.

pub mod follower;
pub mod message;
pub mod model;
pub mod order;
pub mod pattern_index;
pub mod refusal;
pub mod replication;
pub mod sequencer;
pub mod server_id_claim;
pub mod store;
pub mod stream;
pub mod timestamp;
