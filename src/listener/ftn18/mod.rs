//! The FTN18 listener: clients of FutoIn event streams (seed 003) add events and register consumers. Consumers poll
//! events or have them pushed.
//!
//! | layer | file |
//! |---|---|
//! | messages: JSON objects, requests and responses (FTN3) | [`message`] |
//! | calls in a URL (FTN5), as messages | [`url`] |
//! | interfaces and functions, and the checks in their order | [`call`] |
//! | authentication of callers (FTN8.1), and one connection | [`session`] |
//! | error names and texts | [`fault`] |
//! | adding, polling and pushing, for all connections | [`stream_service`] |
//!
//! This module takes and returns whole messages; the shell implements HTTP and WebSocket.
//!
//! # What differs from the reference
//!
//! - Callers without credentials get the same error for a wrong version or function as other callers.
//! - The answer to a poll never exceeds the client's limit: the number of its events is also limited by their bytes.
//! - A poll with a `last_id` after the last event moves the position only to the last event.
//! - Message authentication codes (`-hmac`, `-smac`) are answered with `SecurityError`.

pub mod call;
pub mod call_permission;
pub mod fault;
pub mod message;
pub mod session;
pub mod stream_service;
#[cfg(test)]
mod tests;
pub mod url;
