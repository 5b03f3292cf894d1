//! The Hat listener: clients of Hat Event Server (seed 004) register events, subscribe to them and query them.
//!
//! | layer | file |
//! |---|---|
//! | SBS, the encoding of values | [`sbs`] |
//! | frames, and chatter: numbered messages in conversations | [`chatter`] |
//! | messages of clients, and messages of servers | [`client_message`], [`server_message`] |
//! | values in messages | [`value`] |
//! | settings, and the faults and refusals of clients | [`settings`], [`fault`], [`registration_refusal`] |
//! | one client, and what it requests of the shell | [`session`], [`action`] |
//! | the same client in the interface that all listeners share | [`client`] |
//!
//! # What differs from the reference
//!
//! - The protocol can refuse a registration, but no other request. The listener disconnects a client whose request is
//!   invalid. If no event can match a query, the answer is empty.
//! - A type has at least one subtype, and fits into a subject. A registration of another type fails, and a query for it
//!   finds nothing. The same holds for patterns that match no type: `?` and `*` in a longer subtype, or a `*` that is
//!   not the last.
//! - A payload of the JSON kind must be valid JSON, without `NaN` and `Infinity`. Python accepts them; Hat's own client
//!   refuses them.
//! - With accounts configured, a client must have a token. Without accounts, any token is accepted.
//! - A session of another peer may arrive in several messages: on the bus each event is a message of its own
//!   ([`client`]).
//! - JSON nested deeper than 900 levels is refused: stock clients cannot read it (`event::model::JSON_DEPTH_MAX`).
//! - An event is stored before any client receives it, so a request for persisted events makes no difference.

pub mod action;
pub mod chatter;
pub mod client;
pub mod client_message;
pub mod fault;
pub mod registration_refusal;
mod request_queue;
pub mod sbs;
pub mod server_message;
pub mod session;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod value;

pub use action::{HatAction, RequestId};
pub use chatter::{ChatterMessage, ChatterParser};
pub use client::HatClient;
pub use fault::HatFault;
pub use registration_refusal::RegistrationRefusal;
pub use session::HatSession;
pub use settings::Settings;
