//! The FTN18 listener: clients of FutoIn event streams (seed 003) add events, register consumers, poll, and have events pushed.
//!
//! | layer | file |
//! |---|---|
//! | messages: JSON objects, requests and responses (FTN3) | [`message`] |
//! | calls in a URL (FTN5), as messages | [`url`] |
//! | what can be called, and the checks in their order | [`call`] |
//! | who calls (FTN8.1), and one connection | [`session`] |
//! | what is told when something is wrong | [`fault`] |
//! | what is done: adding, polling, pushing, for all connections | [`stream_service`] |
//!
//! Whole messages come in and go out; HTTP and WebSocket are the shell's.
//!
//! # What differs from the reference
//!
//! - A wrong version or function is told as that also to callers without credentials.
//! - Polls never answer with more than the client takes: a list is cut by bytes too.
//! - A poll with a `last_id` behind the last event does not move the position beyond that.
//! - Message authentication codes (`-hmac`, `-smac`) are answered with `SecurityError`.

pub mod call;
pub mod fault;
pub mod message;
pub mod session;
pub mod stream_service;
#[cfg(test)]
mod tests;
pub mod url;
