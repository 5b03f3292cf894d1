//! Streams of seed 003: durable events for registered consumers, which poll them or have them pushed, and for live ones.
//!
//! A stream is a list of events with ids of its own, which rise. A reliable consumer is registered; the peer remembers up to where it has
//! accepted the events, and keeps those behind. There is no I/O here: what is stored, sent and timed is done by the shell.

pub mod live_pusher;
pub mod model;
pub mod name;
pub mod push;
pub mod store;
