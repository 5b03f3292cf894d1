//! Streams of seed 003 at a peer: where they are stored, the thread that serves them, and the HTTP server through which clients come.

pub mod archive;
pub(crate) mod ask;
pub mod error;
mod held;
pub mod http;
pub mod inputs;
pub mod peer;
pub mod postgres;
mod row;
pub mod serve;
pub mod sqlite;
pub mod store;
mod websocket;

#[cfg(test)]
mod tests;
