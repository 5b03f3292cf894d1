//! Streams of seed 003 at a peer: their stores, the thread that serves them, and the HTTP server for clients.

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
