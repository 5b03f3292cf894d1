//! The `seqcast` command from the user's view.

mod bench;
mod commands;
mod container;
mod debug;
mod decode;
mod group;
mod log;
mod man;
mod messages;
mod patience;
mod peer;
mod progress;
mod publish;
mod readme;
mod realm;
mod recording;
mod streams;
mod systemd;
mod top;
