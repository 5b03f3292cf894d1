//! Arguments of `seqcast trace`.

use std::path::PathBuf;

use clap::Args;

use crate::subject::Subject;

/// Below `seqcast trace --help`.
pub const HELP: &str = "\
Examples:
  seqcast trace plant.7.temp
  seqcast trace plant.7.temp --json | jq '.rows[] | select(0 < .behind)'

A row shows what one peer has received of the subject from one publisher: its last number, how many messages that is \
behind the publisher, and to how many clients the peer delivers. The messages that the peer has lost and repaired are \
those of all subjects of that publisher. A peer without a row has received nothing of the subject.

A peer that is silent or does not answer, or whose remote-reports is 'no', is named on standard error. The exit code is \
then 1.";

/// `seqcast trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceOptions {
    /// The subject.
    pub subject: Subject,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}
