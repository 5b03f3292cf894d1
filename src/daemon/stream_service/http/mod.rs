//! The HTTP server of the FTN18 listener: requests by POST, and WebSockets, on a thread of its own.
//!
//! The last part of the path names the stream; an empty path selects the first stream.

mod answer;
mod client;
mod context;
mod counts;
mod websocket;

pub use context::Settings;
pub use counts::HttpCounts;

use super::client_memory::{ClientMemory, trim_allocator};
use super::input_queue::InputSender;
use crate::daemon::http_server::{
    ConnectionCounts, ConnectionLimits, HttpConnection, HttpError, HttpServer, HttpService, ServerSettings,
};
use answer::answer;
use axum::Router;
use context::{HttpShared, RequestContext};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Maximum time for which a connection may be open without a request: longer than clients keep an idle connection.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// Maximum bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Interval between checks whether memory can be returned to the system.
const TRIM_TIME: Duration = Duration::from_secs(1);

/// The server. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamServer {
    server: HttpServer,
    counts: Arc<HttpCounts>,
    memory: Arc<ClientMemory>,
}

impl StreamServer {
    /// Starts the server, which sends the requests of clients to `inputs`.
    ///
    /// # Errors
    /// The server cannot listen, or its TLS files cannot be used.
    pub(crate) fn start(settings: Settings, inputs: InputSender) -> Result<StreamServer, HttpError> {
        let memory = ClientMemory::new(settings.bytes_max);
        let server = ServerSettings {
            listener: "ftn18",
            address: settings.address,
            tls: settings.tls.clone(),
            limits: ConnectionLimits {
                count_max: settings.clients_max,
                full: "too many clients: see listener-client-max",
                idle_time: IDLE_TIME,
                head_bytes_max: HEAD_BYTES_MAX,
            },
        };
        let counts = Arc::new(HttpCounts::default());
        let (shared_counts, shared_memory) = (Arc::clone(&counts), Arc::clone(&memory));
        let server = HttpServer::start(server, |connections, end| {
            StreamHttp(Arc::new(HttpShared {
                settings,
                inputs,
                next: AtomicU64::new(0),
                connections: Arc::clone(connections),
                counts: shared_counts,
                end,
                memory: shared_memory,
            }))
        })?;
        Ok(StreamServer { server, counts, memory })
    }

    /// Returns the listen address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the counters of the connections.
    pub(crate) fn connections(&self) -> &ConnectionCounts {
        self.server.counts()
    }

    /// Returns the counters of the requests.
    pub(crate) fn counts(&self) -> &HttpCounts {
        &self.counts
    }

    /// Returns the bytes of events that clients hold, and the number of clients evicted for holding too much.
    pub(crate) fn memory_counts(&self) -> (usize, u64) {
        self.memory.counts()
    }
}

/// The service of the server.
struct StreamHttp(Arc<HttpShared>);

impl HttpService for StreamHttp {
    fn open(&self, is_encrypted: bool) -> HttpConnection {
        let shared = Arc::clone(&self.0);
        let account = shared.memory.account();
        let is_secure = is_encrypted || shared.settings.is_trusted;
        let context = RequestContext { is_secure, shared, account: Arc::clone(&account) };
        let end = async move {
            account.evicted().await;
            "client held most: see listener-memory"
        };
        HttpConnection { router: Router::new().fallback(answer).with_state(context), end: Box::pin(end) }
    }

    /// Returns memory to the system whenever clients have released enough.
    async fn run(&self) {
        loop {
            tokio::time::sleep(TRIM_TIME).await;
            if self.0.memory.take_trim_due() {
                trim_allocator();
            }
        }
    }

    /// Closes the WebSockets with a Close frame.
    async fn close(&self) {
        websocket::wait_until_closed(&self.0.counts).await;
    }
}

#[cfg(test)]
mod tests;
