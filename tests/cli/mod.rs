//! The `seqcast` command from the user's view.

mod bench;
mod commands;
mod log;
mod readme;
mod streams;
