//! The HTTP server as its connections and requests see it.

use super::counts::HttpCounts;
use crate::config::TlsFiles;
use crate::daemon::http_server::ConnectionCounts;
use crate::daemon::stream_service::client_memory::{ClientMemory, MemoryAccount};
use crate::daemon::stream_service::input_queue::InputSender;
use crate::event::stream::store::StreamSettings;
use crate::listener::access::Access;
use crate::listener::ftn18::call::Channel;
use crate::listener::ftn18::session::CallSession;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::watch;

/// Idle time after which the server pings a client. After a second idle time without an answer it closes the
/// connection.
pub(super) const PING_TIME: Duration = Duration::from_secs(60);
/// Additional time per byte for a client to receive a message: 16 kB a second.
pub(super) const BYTE_TIME: Duration = Duration::from_micros(62);
/// Error text for a client whose request is refused temporarily.
pub(super) const BUSY: &str = "too many requests wait; try again";

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Listen address.
    pub address: SocketAddr,
    /// Access control of clients.
    pub access: Arc<Access>,
    /// The streams, in the order of their numbers; at least one.
    pub streams: Vec<StreamSettings>,
    /// Maximum number of connections at a time.
    pub clients_max: usize,
    /// Maximum bytes of events that all clients hold together. At the limit the client that holds the most is closed.
    pub bytes_max: usize,
    /// True if an unencrypted channel counts as secure: a proxy encrypts it, or it does not leave the host.
    pub is_trusted: bool,
    /// The files for TLS, if connections are encrypted.
    pub tls: Option<TlsFiles>,
}

/// State that all connections share.
pub(super) struct HttpShared {
    pub(super) settings: Settings,
    pub(super) inputs: InputSender,
    /// Number of the next client.
    pub(super) next: AtomicU64,
    pub(super) connections: Arc<ConnectionCounts>,
    pub(super) counts: Arc<HttpCounts>,
    /// Changes when the server stops.
    pub(super) end: watch::Receiver<()>,
    pub(super) memory: Arc<ClientMemory>,
}

/// The server, as a request of one connection sees it.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) shared: Arc<HttpShared>,
    /// True if no third party can read or change the connection.
    pub(super) is_secure: bool,
    /// Memory account of the request's connection.
    pub(super) account: Arc<MemoryAccount>,
}

impl HttpShared {
    /// Returns the index of the stream that a path names, the first one if the path is empty.
    pub(super) fn stream(&self, path: &str) -> Option<usize> {
        let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if last.is_empty() {
            Some(0)
        } else {
            self.settings.streams.iter().position(|stream| stream.name.as_str() == last)
        }
    }
}

impl RequestContext {
    /// Creates the session of a connection or request.
    pub(super) fn session(&self, is_bidirectional: bool) -> CallSession {
        let channel = Channel { is_secure: self.is_secure, is_bidirectional };
        CallSession::new(channel, Arc::clone(&self.shared.settings.access))
    }
}
