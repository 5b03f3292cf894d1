//! The stream service of a peer: the thread that serves the event streams (seed 003), and the HTTP server for its
//! clients.

mod client_memory;
pub mod http;
pub mod input;
pub mod input_queue;
pub mod peer_streams;
pub(crate) mod requests;
pub mod service_thread;
pub(crate) mod stream_host;
