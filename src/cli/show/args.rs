//! The arguments of `show`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::help;
use crate::message::PeerRef;
use crate::subject::Pattern;

/// Below `seqcast show loss --help`.
const LOSS_HELP: &str = "\
Examples:
  seqcast show loss
  seqcast show loss -v                              adds repairs, reasons, and datagrams by state
  seqcast show loss --outbound                      shows the messages that others missed
  seqcast show loss --by-subject                    shows which subjects lost how much
  seqcast show loss --json | jq '.rows[] | {user, lost}'

Columns, one row for each publisher (its name up to the first dot, and a number in the order of first contact):
  user      the publisher
  repeat    multicast messages received more than once, and time of the last
  not sub   multicast messages received without a local subscription, and time of the last
  msg loss  multicast messages lost, and time of the last; 5..9 if the exact number is unknown
  ibx loss  messages to this peer alone that were lost, and time of the last
Below, for each publisher of which messages were missed: how many, and how many of them were repaired, are lost, or are \
unverified, each with its share; then one sentence about the datagrams.
With -v, in further tables:
  repaired    messages that were missing and arrived on request, and time of the last
  unverified  messages in missing datagrams of unknown content, and time of the last
  reasons     number of reports of lost or unverified messages for each reason
  the datagrams of the publisher by state: range = delivered + buffered + pending + lost + unverified, and
  missing = repaired + pending + lost + unverified; kernel: missing datagrams that the kernel of this host dropped.
With --outbound, one row for each other peer, as that peer reports the losses of this peer's messages: datagrams missing,
  repaired, pending and unverified; messages lost; time of the last change.
With --by-subject, one row for each publisher and subject, most lost messages first: messages lost and repaired; time, \
reason and cause of the last loss. Rows in parentheses count messages of unknown subjects with the datagrams that are \
still awaited, messages to this peer alone, and messages of further subjects if there are over 10,000.
On a LAN with a gateway a further table follows with a row for each publisher in another site, or for each of its \
subjects: messages of the site that were lost on the way, 5.. if nothing bounds the number; tails, the number of times \
that the last gateway of the site ended with an unknown number of messages behind it.
Times are UTC.";

/// `seqcast show`.
#[derive(Args, Clone, Debug)]
pub struct ShowOptions {
    /// The report to show.
    #[command(subcommand)]
    pub what: ShowReport,
    /// Print a JSON object.
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Show the report of another peer (its name or epoch), which its key remote-reports must allow.
    #[arg(long, value_name = "PEER", global = true, help_heading = "Peer")]
    pub at: Option<PeerRef>,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", global = true, help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}

/// The reports of `seqcast show`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ShowReport {
    /// The local peer itself: name, epoch, group, interface, buffers, state.
    #[command(after_help = help::SHOW_STATUS)]
    Status,
    /// Defects of this host or its network that the peer notices while it runs, each with its remedy.
    #[command(after_help = help::SHOW_HEALTH)]
    Health,
    /// Repeated, unwanted and lost messages of each publisher.
    #[command(after_help = LOSS_HELP)]
    Loss {
        /// Also show repaired and unverified messages, the datagrams by state, and the kernel's drops.
        #[arg(short, long)]
        verbose: bool,
        /// Show instead what other peers report to have missed of this peer's messages.
        #[arg(long, conflicts_with = "verbose")]
        outbound: bool,
        /// Show instead the losses of each subject, most lost messages first.
        #[arg(long, conflicts_with_all = ["verbose", "outbound"])]
        by_subject: bool,
    },
    /// The other peers of the group.
    #[command(after_help = help::SHOW_PEERS)]
    Peers,
    /// The clocks of the other peers, compared with that of this one.
    #[command(after_help = SKEW_HELP)]
    Skew,
    /// The subscriptions of this peer's clients.
    #[command(after_help = help::SHOW_SUBS)]
    Subs,
    /// The known subscriptions of other peers' clients.
    #[command(after_help = help::SHOW_INTEREST)]
    Interest,
    /// The last sequence number of each subject, published and received.
    #[command(after_help = help::SHOW_SEQNO)]
    Seqno {
        /// Maximum number of subjects of each direction.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// The windows that hold the sequence numbers of published and of subscribed subjects.
    #[command(after_help = help::SHOW_WINDOWS)]
    Windows,
    /// The messages that this peer retains of each subject for polls and late subscribers, and their totals.
    #[command(after_help = help::SHOW_HISTORY)]
    History {
        /// Only subjects that match: * matches one token, > all the rest.
        pattern: Option<Pattern>,
        /// Maximum number of subjects.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// All counters, each with its meaning.
    #[command(after_help = help::SHOW_COUNTERS)]
    Counters,
    /// The clients of this peer: attached and embedded programs, and clients of its listeners.
    #[command(after_help = help::SHOW_CLIENTS)]
    Clients,
    /// The link of this peer to other sites, and what came from each of them.
    #[command(after_help = help::SHOW_LINKS)]
    Links,
}

/// Below `seqcast show skew --help`.
const SKEW_HELP: &str = "\
Examples:
  seqcast show skew
  seqcast show skew --json | jq '.rows[] | {publisher, clock_skew}'

'clock' says how much the wall clock of the peer is ahead (+) of that of this one, or behind (-). It is measured when the \
peer begins to publish on a subject, as long ago as 'measured' says, and unknown before. The time that the message was on \
its way, usually a few milliseconds, makes the other clock look behind by as much. From 8.6 s on, which is a time frame, \
'seqcast health' reports it.";

/// Below `seqcast health --help`.
pub const HEALTH_HELP: &str = "\
Examples:
  seqcast health
  seqcast health --json | jq -r .health.state
  seqcast health || systemctl restart seqcast

The exit code is 1 if a finding is 'broken': the peer cannot reach others, or be reached. Warnings and notices leave it \
at 0. It is 4 if no peer answers.";

/// `seqcast health`.
#[derive(Args, Clone, Debug)]
pub struct HealthOptions {
    /// Show the findings of another peer (its name or epoch), which its key remote-reports must allow.
    #[arg(long, value_name = "PEER", help_heading = "Peer")]
    pub at: Option<PeerRef>,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Below `seqcast link --help` and `seqcast link status --help`.
pub const LINK_HELP: &str = "\
Examples:
  seqcast link status
  seqcast link status --json | jq -r .link.fault
  seqcast link status >/dev/null || echo 'no connection with the other sites'

The report is that of 'seqcast show links'. The exit code is 0 if the link is connected with the cluster, 1 if it is not or \
if the peer has no link, and 4 if no peer answers.";

/// `seqcast link`.
#[derive(Args, Clone, Debug)]
pub struct LinkOptions {
    /// The command.
    #[command(subcommand)]
    pub what: LinkCommand,
}

/// The commands of `seqcast link`.
#[derive(Clone, Debug, Subcommand)]
pub enum LinkCommand {
    /// Show the link of the local peer, and what came from each other site.
    #[command(after_help = LINK_HELP)]
    Status(LinkStatusOptions),
}

/// `seqcast link status`.
#[derive(Args, Clone, Debug)]
pub struct LinkStatusOptions {
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
