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
use crate::daemon::listeners::TlsError;
use crate::daemon::listeners::stream::ListenerTls;
use crate::daemon::listeners::tls;
use answer::{REQUEST_TIME, answer};
use axum::Router;
use context::{HttpShared, PING_TIME, RequestContext, STALLED};
use counts::ConnectionGuard;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Maximum time for which a connection may be open without a request: longer than clients keep an idle connection.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// Pause before the next accept after the system has refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval between checks whether memory can be returned to the system.
const TRIM_TIME: Duration = Duration::from_secs(1);
/// First byte of a TLS connection (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Reason why the server cannot start.
#[derive(Debug)]
pub enum HttpError {
    /// The system refuses to listen on the address.
    Listen(SocketAddr, io::Error),
    /// The certificates or the key cannot be used.
    Tls(TlsError),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpError::Listen(address, error) => {
                write!(
                    f,
                    "cannot listen for clients of streams on {address}: {error}; choose another address with ftn18"
                )
            }
            HttpError::Tls(error) => write!(f, "ftn18-tls: {error}"),
        }
    }
}

impl Error for HttpError {}

/// The server. It stops when this is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    counts: Arc<HttpCounts>,
    memory: Arc<ClientMemory>,
    /// Closed to stop the server.
    end: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts the server, which sends the requests of clients to `inputs`.
    ///
    /// # Errors
    /// The server cannot listen, or its TLS files cannot be used.
    pub fn start(settings: Settings, inputs: InputSender) -> Result<HttpServer, HttpError> {
        let wanted = settings.address;
        let failed = |error| HttpError::Listen(wanted, error);
        let tls = settings.tls.as_ref().map(tls::load).transpose().map_err(HttpError::Tls)?;
        let listener = TcpListener::bind(wanted).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let counts = Arc::new(HttpCounts::default());
        let memory = ClientMemory::new(settings.bytes_max);
        let next = AtomicU64::new(0);
        let (end, mut ended) = watch::channel(());
        let shared = HttpShared {
            settings,
            inputs,
            next,
            counts: Arc::clone(&counts),
            end: ended.clone(),
            memory: Arc::clone(&memory),
        };
        let shared = Arc::new(shared);
        let (is_open, trimmed) = (Arc::clone(&counts), Arc::clone(&memory));
        let serve = async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => {
                    tokio::select! {
                        () = accept(shared, listener, tls) => {}
                        () = trim(&trimmed) => {}
                        _ = ended.changed() => {}
                    }
                    // WebSockets are closed with a Close frame; all other work ends with the runtime.
                    drop(tokio::time::timeout(websocket::CLOSE_TIME, websocket::wait_until_closed(&is_open)).await);
                }
                Err(error) => tracing::error!(%error, "the server of streams cannot listen"),
            }
        };
        let thread = thread::Builder::new().name("streams-http".into()).spawn(move || runtime.block_on(serve));
        Ok(HttpServer { address, counts, memory, end: Some(end), thread: Some(thread.map_err(failed)?) })
    }

    /// Returns the listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub fn counts(&self) -> &HttpCounts {
        &self.counts
    }

    /// Returns the bytes of events that clients hold, and the number of clients evicted for holding too much.
    pub fn memory_counts(&self) -> (usize, u64) {
        self.memory.counts()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported the fault.
            drop(thread.join());
        }
    }
}

/// Returns memory to the system whenever clients have released enough; never ends.
async fn trim(memory: &ClientMemory) {
    loop {
        tokio::time::sleep(TRIM_TIME).await;
        if memory.take_trim_due() {
            trim_allocator();
        }
    }
}

/// Accepts connections; never ends.
async fn accept(shared: Arc<HttpShared>, listener: tokio::net::TcpListener, tls: Option<ListenerTls>) {
    let acceptor = tls.map(|tls| (TlsAcceptor::from(tls.config), tls.is_optional));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The usual cause is the limit of open files.
                tracing::debug!(%error, "accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let counts = &shared.counts;
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        if shared.settings.clients_max <= counts.clients.load(Ordering::Relaxed) {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            counts.on_ended("too many clients: see listener-client-max");
            continue;
        }
        let guard = ConnectionGuard::new(&shared.counts);
        let (shared, acceptor) = (Arc::clone(&shared), acceptor.clone());
        tokio::spawn(async move {
            serve(stream, acceptor, shared).await;
            drop(guard);
        });
    }
}

/// Serves a connection until it ends.
async fn serve(stream: TcpStream, acceptor: Option<(TlsAcceptor, bool)>, shared: Arc<HttpShared>) {
    // Answers are small and must not be delayed.
    drop(stream.set_nodelay(true));
    // A client that acknowledges nothing for this time is gone, even while an answer is sent.
    drop(SockRef::from(&stream).set_tcp_user_timeout(Some(PING_TIME)));
    let account = shared.memory.account();
    let counts = Arc::clone(&shared.counts);
    let plain = RequestContext { is_secure: shared.settings.is_trusted, shared, account };
    let Some((acceptor, is_optional)) = acceptor else {
        return serve_connection_http(TokioIo::new(stream), plain).await;
    };
    let begin = async {
        let mut first = [0];
        match is_optional && !matches!(stream.peek(&mut first).await, Ok(1) if first[0] == TLS_HANDSHAKE) {
            true => Err(stream),
            false => Ok(acceptor.accept(stream).await),
        }
    };
    match tokio::time::timeout(REQUEST_TIME, begin).await {
        Ok(Ok(Ok(stream))) => {
            serve_connection_http(TokioIo::new(stream), RequestContext { is_secure: true, ..plain }).await
        }
        Ok(Err(stream)) => serve_connection_http(TokioIo::new(stream), plain).await,
        Ok(Ok(Err(error))) => tracing::debug!(%error, "no encrypted connection at the ftn18 listener"),
        Err(_) => counts.on_ended("no encryption in time"),
    }
}

async fn serve_connection_http<S>(stream: S, context: RequestContext)
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(IDLE_TIME);
    let (account, counts) = (Arc::clone(&context.account), Arc::clone(&context.shared.counts));
    let service = TowerToHyperService::new(Router::new().fallback(answer).with_state(context));
    let connection = server.serve_connection(stream, service).with_upgrades();
    let done = tokio::select! {
        done = connection => done,
        () = account.evicted() => return counts.on_ended("client held most: see listener-memory"),
    };
    if let Err(error) = done {
        if error.is_timeout() {
            counts.on_ended("no request in time");
        } else if is_unacknowledged(&error) {
            counts.on_ended(STALLED);
        }
        tracing::debug!(%error, "a connection of the ftn18 listener");
    }
}

/// Returns whether the system ended a connection because the client acknowledged nothing for [`PING_TIME`].
fn is_unacknowledged(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests;
