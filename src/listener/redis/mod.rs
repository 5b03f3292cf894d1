//! The Redis listener: RESP2 and RESP3, publish and subscribe, and the commands that client libraries send first.
//!
//! [`channel`](crate::subject::channel) maps a channel to a subject. There are no keys: every command about keys is
//! refused as unknown. The protocol carries only the payload of a message, without its headers and its reply subject.
//! `docs/listeners.md` describes each command.

mod admin;
mod client_filter;
mod command;
mod command_table;
mod fault;
mod info;
mod inline;
mod parser;
mod pubsub;
mod reply;
mod session;
mod settings;
#[cfg(test)]
mod tests;

pub use command::RedisCommand;
pub use fault::RedisFault;
pub use parser::RedisParser;
pub use session::RedisSession;
pub use settings::Settings;
