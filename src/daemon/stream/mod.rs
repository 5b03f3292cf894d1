//! Streams of seed 003 at a peer: where they are stored, the thread that serves them, and the HTTP server through which clients come.

pub mod archive;
mod client_memory;
mod column_values;
pub mod error;
pub mod http;
pub mod input_queue;
pub mod peer_streams;
pub mod postgres;
pub(crate) mod requests;
pub mod service_thread;
pub mod sqlite;
pub mod store;
mod websocket;

#[cfg(test)]
mod tests;
