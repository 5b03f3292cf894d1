//! Arguments of `seqcast ping`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::message::PeerRef;
use crate::terminal::value;

/// Below `seqcast ping --help`.
pub const HELP: &str = "\
Examples:
  seqcast ping B.test
  seqcast ping B.test --count 5 --interval 200ms
  seqcast ping 1f6e2c5a90b3d874 --json | jq .round_trip_us

Each question goes from this command through the local peer to the other one and back, by unicast, as messages to one \
peer do. The clock is that of the other host less that of this one; its uncertainty is half the round trip. The other \
peer answers about 20 questions a second, unless its remote-reports is 'no'.

The exit code is 0 if an answer came, 27 if none came in time, 4 if the peer is unknown or has left, and 1 if it \
refuses.";

/// `seqcast ping`.
#[derive(Args, Clone, Debug)]
pub struct PingOptions {
    /// The peer: its name, or its epoch.
    pub peer: PeerRef,
    /// Number of questions; without it, the command asks until the user ends it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Time between two questions.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "1s")]
    pub interval: Duration,
    /// Time to wait for an answer.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "2s")]
    pub timeout: Duration,
    /// Print JSON Lines.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}
