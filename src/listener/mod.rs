//! Listeners: client protocols without I/O. Their input is bytes; their output is requests to the peer and bytes to
//! send. Only the stream service of FTN18 calls a store.
//!
//! A listener uses no socket, no clock and no core. The shell passes its requests to the core, and deliveries back to
//! it. `docs/local-protocol.md` describes every byte of the local protocol.

pub mod access;
#[cfg(feature = "listeners")]
pub(crate) mod buffer;
#[cfg(feature = "listeners")]
pub mod client;
#[cfg(feature = "listeners")]
pub mod client_command;
#[cfg(feature = "listeners")]
mod client_permissions;
pub mod codec;
#[cfg(feature = "listeners")]
pub mod drop_report;
pub mod event;
pub mod frame;
#[cfg(feature = "streams")]
pub mod ftn18;
#[cfg(feature = "listeners")]
pub mod hat;
#[cfg(feature = "listeners")]
pub mod http_access;
#[cfg(feature = "streams")]
pub mod http_api;
pub mod local;
#[cfg(feature = "listeners")]
pub mod nats;
pub mod nkey;
#[cfg(feature = "streams")]
pub mod notice;
pub mod output_buffer;
#[cfg(feature = "streams")]
mod percent_encoding;
pub mod permissions;
pub mod protocol;
pub mod publish_run;
#[cfg(feature = "listeners")]
pub mod redis;
pub mod refusal;
pub(crate) mod replication;
#[cfg(feature = "listeners")]
pub mod rv;
pub mod session_request;
pub mod stream;
pub(crate) mod value;
#[cfg(feature = "listeners")]
pub mod websocket;
