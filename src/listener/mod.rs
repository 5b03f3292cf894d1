//! Listeners: client protocols without I/O. Bytes come in; frames and bytes to send go out.
//!
//! A listener knows nothing of sockets, of time or of the core; the shell carries its requests to the core and the core's
//! deliveries back. `docs/local-protocol.md` describes every byte of the local protocol.

pub mod access;
pub mod ask;
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
pub mod out;
pub mod redis;
pub mod refused;
pub mod run;
pub mod stream;
pub(crate) mod value;
