//! The options that select the bus of a command, and that set up a peer.

use std::path::PathBuf;

use clap::Args;

use crate::terminal::value::{self, Setting};

/// Options of a peer, with precedence over its configuration file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Peer")]
pub struct PeerOptions {
    /// Read this configuration file (default: the one that SEQCAST_CONFIG names, else built-in defaults: loopback
    /// only).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The name of the peer for people, such as A.test.
    #[arg(long)]
    pub name: Option<String>,
    /// The interface of the multicast group: a name (eth0), an address, a network (192.168.7.0/24), lo or auto.
    #[arg(long, value_name = "WHICH")]
    pub interface: Option<String>,
    /// Run the peer without keys, also where other hosts reach it: each of them can read everything and publish anything.
    #[arg(long)]
    pub open: bool,
    /// The multicast group, IPv4 or IPv6.
    #[arg(long, value_name = "ADDRESS")]
    pub group: Option<String>,
    /// The UDP port of the group.
    #[arg(long)]
    pub port: Option<String>,
    /// The Unix socket at which programs reach the peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Any key of the configuration file, such as pub-window-size="10 mb"; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = value::setting)]
    pub settings: Vec<Setting>,
}

/// Options that select the bus: the local peer through its socket, or a peer of one's own.
#[derive(Args, Clone, Debug, Default)]
pub struct BusOptions {
    /// Run a peer inside this command instead of using the local one.
    #[arg(long, help_heading = "Peer")]
    pub embed: bool,
    /// Options of that peer.
    #[command(flatten)]
    pub peer: PeerOptions,
}
