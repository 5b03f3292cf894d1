//! Listeners: client protocols without I/O. Bytes come in; frames and bytes to send go out.
//!
//! A listener knows nothing of sockets, of time or of the core; the shell carries its requests to the core and the core's
//! deliveries back. `docs/local-protocol.md` describes every byte of the local protocol.

pub mod access;
pub(crate) mod buffer;
pub mod client;
pub mod codec;
pub mod event;
pub mod frame;
pub mod ftn18;
pub mod hat;
pub(crate) mod journal;
pub mod local;
pub mod nats;
pub mod output_buffer;
pub mod publish_run;
pub mod redis;
pub mod refusal;
pub mod session_request;
pub mod stream;
pub(crate) mod value;
