//! The arguments of `doctor`, and the text below its help.

use clap::Args;

use crate::cli::bus_options::PeerOptions;

/// Below `seqcast doctor --help`.
pub const DOCTOR_HELP: &str = "\
Examples:
  seqcast doctor                            checks the network of the running peer, or of the configuration
  seqcast doctor --interface eth0           checks an interface before a peer uses it
  seqcast doctor --fix                      prints the commands that mend what is wrong
  sudo seqcast doctor --fix --yes           raises the limits of buffers, and changes nothing else
  seqcast doctor --json | jq '.checks[] | select(.state == \"broken\")'

Each line is a check. ✓ is well; ! is a notice or a warning; ✗ is broken; ? could not be checked. Below what is not \
well stand the consequence (why) and the remedy (fix). The exit code is 1 if something is broken.

Only the rules of the firewall need root; without it that line begins with ?. The checks send probes that do not leave \
this host, and listen to the group for 1.2 seconds.";

/// `seqcast doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorOptions {
    /// Print the commands that mend what is wrong, instead of the report.
    #[arg(long)]
    pub fix: bool,
    /// Carry out the harmless ones: limits of the kernel that only allow larger buffers.
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The network to check, if it is not that of the running peer.
    #[command(flatten)]
    pub peer: PeerOptions,
}
