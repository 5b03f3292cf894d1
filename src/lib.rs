//! seqcast: a brokerless message bus for a LAN whose subscribers know exactly what they missed.

pub mod bus;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod door;
pub mod message;
pub mod proto;
pub mod rng;
pub mod seqno;
pub mod sim;
pub mod subject;
pub mod time;
pub mod wire;
