//! The arguments of `doctor`, and the text below its help.

use clap::Args;

use crate::cli::bus_options::PeerOptions;
use crate::doctor::PathTarget;

/// Below `seqcast doctor --help`.
pub const DOCTOR_HELP: &str = "\
Examples:
  seqcast doctor                            checks the network of the running peer, or of the configuration
  seqcast doctor --interface eth0           checks an interface before a peer uses it
  seqcast doctor --fix                      prints the commands that mend what is wrong
  sudo seqcast doctor --fix --yes           raises the limits of buffers, and changes nothing else
  seqcast doctor --with 10.0.0.2            checks the path to that host, both ways
  seqcast doctor --listen --interface eth0  answers there, if no peer runs on that host
  seqcast doctor --json | jq '.checks[] | select(.state == \"broken\")'

Each line is a check. ✓ is well; ! is a notice or a warning; ✗ is broken; ? could not be checked. Below what is \
not well stand the consequence (why) and the remedy (fix). The exit code is 1 if something is broken.

Only the rules of the firewall need root; without it that line begins with ?. The checks send probes that do not leave \
this host, and listen to the group for 1.2 seconds.

--with needs a peer on the other host, with the same group and port, or 'seqcast doctor --listen'. Both sides send 50 \
datagrams of each kind: by unicast and by multicast, small, as large as the MTU, and one byte larger. The other side \
sends to an address only after a proof that it belongs to this host, and never more than it receives from there. A \
peer answers unless its configuration has 'path-tests: off', and of several peers on one host only one answers.";

/// `seqcast doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorOptions {
    /// Print the commands that mend what is wrong, instead of the report.
    #[arg(long)]
    pub fix: bool,
    /// Carry out the harmless ones: limits of the kernel that only allow larger buffers.
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Also check the path to this host, on which a peer or 'seqcast doctor --listen' runs: a name, an address, or the
    /// name of a peer.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = PathTarget::parse)]
    pub with: Option<PathTarget>,
    /// Answer the doctors of other hosts until Ctrl-C, instead of checking this one.
    #[arg(long, conflicts_with_all = ["with", "fix"])]
    pub listen: bool,
    /// The UDP port at which to answer (default: the port of the group).
    #[arg(long, value_name = "PORT", requires = "listen", value_parser = clap::value_parser!(u16).range(1..))]
    pub bind: Option<u16>,
    /// Print a JSON object; with --listen an object for each event.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The network to check, if it is not that of the running peer.
    #[command(flatten)]
    pub peer: PeerOptions,
}
