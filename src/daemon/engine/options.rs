//! Options with which a peer starts.

use crate::config::ConfigOrigin;
use crate::daemon::drop_rule::DropRule;

/// Options of a peer beside its configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// True if the peer listens on the configured Unix socket, so that other programs of this host can attach.
    pub serve: bool,
    /// True if the peer handles signals. It ends on SIGTERM and SIGINT: gracefully on the first, at once on the second.
    /// On SIGHUP it reopens its log and reads its configuration again. Only a program that is nothing but a peer should
    /// set it.
    pub signals: bool,
    /// True if the peer notifies systemd of its state, provided that the environment names systemd's socket. Only a program
    /// that is nothing but a peer should set it.
    pub systemd: bool,
    /// Rule that drops some received datagrams, for demonstrations and tests.
    pub drop: Option<DropRule>,
    /// Origin of the configuration; without it the peer cannot read the configuration again.
    pub config_origin: Option<ConfigOrigin>,
}
