//! Streams of seed 003: durable events for registered consumers, which poll events or have them pushed, and for live
//! consumers.
//!
//! A stream is a list of events with rising ids of its own. A reliable consumer is registered. The peer remembers the
//! position up to which the consumer has accepted events, and retains later ones. There is no I/O here: the shell
//! stores, sends and reads the clock.

pub mod live_pusher;
pub mod model;
pub mod name;
pub mod pusher;
pub mod store;
