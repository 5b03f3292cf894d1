//! Origin of a client that a listener serves.

use crate::listener::protocol::Protocol;
use std::net::SocketAddr;

/// Listener and address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientOrigin {
    /// Name of the listener, which is also its key in the configuration.
    pub(crate) listener: &'static str,
    pub(crate) protocol: Protocol,
    /// Address of the client.
    pub(crate) address: SocketAddr,
}
