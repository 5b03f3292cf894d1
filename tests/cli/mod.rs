//! The `seqcast` command from the user's view.

mod bench;
mod commands;
mod log;
mod messages;
mod peer;
mod readme;
mod streams;
