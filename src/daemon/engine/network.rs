//! The sockets of a peer on its interface, and the fields of `show status` about them.

use super::start_error::StartError;
use crate::config::Config;
use crate::daemon::interface::ChosenInterface;
use crate::daemon::local_socket::LocalSocket;
use crate::daemon::multicast::{BufferGrant, SocketOptions, Sockets};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Returns the options of the sockets of a peer on an interface.
pub(super) fn socket_options<'a>(config: &Config, chosen: &'a ChosenInterface) -> SocketOptions<'a> {
    SocketOptions {
        group: config.group,
        port: config.port,
        interface: chosen,
        inbox_port: config.inbox_port,
        ttl: config.sent_ttl(),
        receive_buffer: config.receive_buffer,
        send_buffer: config.send_buffer,
    }
}

/// Opens the sockets of a peer on an interface, and logs the buffers that the system grants.
pub(super) fn open_sockets(config: &Config, chosen: &ChosenInterface) -> Result<Sockets, StartError> {
    let mut sockets = Sockets::open(&socket_options(config, chosen)).map_err(StartError::Sockets)?;
    log_copies(config, &mut sockets);
    for granted in sockets.granted() {
        let BufferGrant { wanted, granted: bytes, .. } = granted;
        if granted.is_short() {
            tracing::warn!(wanted, granted = bytes, "{granted}");
        } else {
            tracing::debug!(wanted, granted = bytes, "{granted}");
        }
    }
    Ok(sockets)
}

/// Logs the reason why no unicast copies of multicasts can arrive, if there is one.
pub(super) fn log_copies(config: &Config, sockets: &mut Sockets) {
    match sockets.take_copies_error() {
        Some(error) if !config.peers.is_empty() => {
            tracing::warn!(%error, "no unicast copies of multicasts arrive here");
        }
        Some(error) => tracing::debug!(%error, "no unicast copies of multicasts arrive here"),
        None => {}
    }
}

/// Returns the fields of `show status` that only another address of the interface changes.
pub(super) fn static_status(
    config: &Config,
    chosen: &ChosenInterface,
    sockets: &Sockets,
    local_socket: Option<&LocalSocket>,
) -> Value {
    let [receive, send] = sockets.granted();
    json!({
        "name": config.name.as_str(),
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "group": sockets.group_address().ip().to_string(),
        "port": sockets.group_address().port(),
        "ttl": config.ttl,
        "transport": if config.peers.is_empty() { "multicast" } else { "unicast" },
        "copies_to": sockets.copy_addresses(&config.peers).iter().map(SocketAddr::to_string).collect::<Vec<String>>(),
        "inbox": sockets.inbox_address().to_string(),
        "interface": chosen.name,
        "address": chosen.address.to_string(),
        "interface_reason": chosen.reason.to_string(),
        "loopback": chosen.loopback,
        "mtu": chosen.mtu,
        "message_bytes_max": config.message_size,
        "receive_buffer_wanted": receive.wanted,
        "receive_buffer": receive.granted,
        "send_buffer_wanted": send.wanted,
        "send_buffer": send.granted,
        "socket": local_socket.map(|local_socket| local_socket.path().display().to_string()),
    })
}
