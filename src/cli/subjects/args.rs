//! Arguments of `seqcast subjects`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::subject::Pattern;
use crate::terminal::value;

/// Below `seqcast subjects --help`.
pub const HELP: &str = "\
Examples:
  seqcast subjects                          what clients of this host receive, with rates
  seqcast subjects --published              what any peer of the LAN publishes, wanted or not
  seqcast subjects 'plant.>' --published --interval 5s --json

The command takes two samples and prints the messages a second between them. A subject whose numbers began a new frame \
meanwhile shows at least its messages of that frame.

With --published every peer is asked. A peer that is silent or does not answer, or whose remote-reports is 'no', is \
named on standard error, and the exit code is 1.";

/// `seqcast subjects`.
#[derive(Args, Clone, Debug)]
pub struct SubjectListOptions {
    /// Only subjects that match: * matches one token, > all the rest.
    pub pattern: Option<Pattern>,
    /// Show what the peers of the LAN publish, instead of what this host receives.
    #[arg(long)]
    pub published: bool,
    /// Time between the two samples.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "1s")]
    pub interval: Duration,
    /// Maximum number of subjects of each peer.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}
