//! The arguments of `debug`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Below `seqcast debug --help`.
pub const DEBUG_HELP: &str = "\
Examples:
  seqcast debug bundle
  seqcast debug bundle -o bundle.json";

/// Below `seqcast debug bundle --help`.
const BUNDLE_HELP: &str = "\
Examples:
  seqcast debug bundle                              writes a new file in this directory, and prints its name
  seqcast debug bundle -o bundle.json
  seqcast debug bundle -o - | jq .reports.health

The file is JSON: versions, the configuration of the local peer, all reports of 'show', the last 1,000 lines of its log, \
the report of 'doctor', and the interfaces, limits and UDP counters of this host. Passwords and tokens of the configuration are left out; names \
of peers, subjects and addresses are not, so read the file before you publish it. No message is in it. If no peer \
answers, the file has the rest, and the reason.";

/// `seqcast debug`.
#[derive(Args, Clone, Debug)]
pub struct DebugOptions {
    /// The command.
    #[command(subcommand)]
    pub what: DebugCommand,
}

/// The commands of `seqcast debug`.
#[derive(Clone, Debug, Subcommand)]
pub enum DebugCommand {
    /// Write one file with all that a maintainer needs to know about the local peer and its host.
    #[command(after_help = BUNDLE_HELP)]
    Bundle(BundleOptions),
}

impl DebugCommand {
    /// Returns the option that names the socket of the peer.
    pub fn socket(&mut self) -> &mut Option<PathBuf> {
        match self {
            DebugCommand::Bundle(options) => &mut options.socket,
        }
    }
}

/// `seqcast debug bundle`.
#[derive(Args, Clone, Debug)]
pub struct BundleOptions {
    /// The file to write, which must not exist; - is standard output (default: seqcast-debug-TIME.json).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print a JSON object with the name of the file.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}
