//! Arguments of `seqcast top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::message::PeerRef;
use crate::terminal::value;

/// Below `seqcast top --help`.
pub const HELP: &str = "\
Examples:
  seqcast top
  seqcast top --view loss --interval 2s
  seqcast top --at B.test                   shows another peer of the LAN
  seqcast top --view lan                    shows all peers of the LAN, as they report themselves
  seqcast top --once                        prints all views once, as text

Keys: 1 to 6 or Tab change the view, s the column of the order, r its direction, / filters, p pauses, arrows and Page \
keys scroll, ? shows these keys, q ends.

The view lan asks every peer of the group for its losses and clients, each at most once in 2 s and only while it is \
shown. A peer that does not answer, or whose remote-reports is 'no', has a row with the reason.

Rates are taken between two samples. Where standard output is no terminal, the command prints as with --once.";

/// `seqcast top`.
#[derive(Args, Clone, Debug)]
pub struct TopOptions {
    /// The view to begin with.
    #[arg(long, value_enum, default_value_t = TopView::Peers)]
    pub view: TopView,
    /// Time between two samples.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "1s")]
    pub interval: Duration,
    /// Print all views as text, and end.
    #[arg(long)]
    pub once: bool,
    /// Show another peer (its name or epoch), which its `remote-reports` must allow.
    #[arg(long, value_name = "PEER", help_heading = "Peer")]
    pub at: Option<PeerRef>,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}

/// The views of `seqcast top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopView {
    /// The other peers, with the rates of what they publish.
    Peers,
    /// The subjects, with their rates.
    Subjects,
    /// Losses of each publisher, and their reasons.
    Loss,
    /// The clients of the peer, and their queues.
    Clients,
    /// The listeners of the peer.
    Listeners,
    /// All peers of the LAN, as they report themselves.
    Lan,
}

impl TopView {
    /// All views, in the order of their keys.
    pub const ALL: [TopView; 6] =
        [TopView::Peers, TopView::Subjects, TopView::Loss, TopView::Clients, TopView::Listeners, TopView::Lan];

    /// Returns the name in the heading.
    pub fn as_str(self) -> &'static str {
        match self {
            TopView::Peers => "peers",
            TopView::Subjects => "subjects",
            TopView::Loss => "loss",
            TopView::Clients => "clients",
            TopView::Listeners => "listeners",
            TopView::Lan => "lan",
        }
    }
}
