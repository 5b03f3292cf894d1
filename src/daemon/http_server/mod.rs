//! An HTTP server on a thread of its own: its connections, their encryption, and the limits of their number and time.
//! A service answers the requests.

mod counts;
mod socket_fault;

pub(crate) use counts::{ConnectionCounts, ConnectionGuard};
pub(crate) use socket_fault::SocketFault;

use crate::config::TlsFiles;
use crate::daemon::listeners::TlsError;
use crate::daemon::listeners::client_certificate::HandshakeFault;
use crate::daemon::listeners::stream::ListenerTls;
use crate::daemon::listeners::tls;
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Maximum time for a client to send a request, or to complete the TLS handshake.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(30);
/// Maximum time for which a client acknowledges nothing while an answer is sent.
pub(crate) const ACKNOWLEDGE_TIME: Duration = Duration::from_secs(60);
/// End reason of the connection of a client that reads nothing.
pub(crate) const STALLED: &str = "the client neither reads nor answers";
/// Maximum time for which a server that stops waits for its service to close.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Pause before the next accept after the system has refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// First byte of a TLS connection (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Settings of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings {
    /// Name of the listener, which is also its key in the configuration.
    pub(crate) listener: &'static str,
    /// Listen address.
    pub(crate) address: SocketAddr,
    /// The files for TLS, if connections are encrypted.
    pub(crate) tls: Option<TlsFiles>,
    /// Limits of the connections.
    pub(crate) limits: ConnectionLimits,
}

/// Limits of the connections of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Maximum number of connections at a time.
    pub(crate) count_max: usize,
    /// End reason of a connection beyond `count_max`.
    pub(crate) full: &'static str,
    /// Maximum time for which a connection may be open without a whole request head.
    pub(crate) idle_time: Duration,
    /// Maximum bytes of a request head; at least 8,192.
    pub(crate) head_bytes_max: usize,
}

/// Reason why a server cannot start.
#[derive(Debug)]
pub enum HttpError {
    /// The system refuses to listen on the address.
    Listen {
        /// Key of the listener.
        listener: &'static str,
        /// Address at which it should listen.
        address: SocketAddr,
        /// Error that the system returned.
        error: io::Error,
    },
    /// The certificates or the key cannot be used.
    Tls {
        /// Key of the listener.
        listener: &'static str,
        /// Reason.
        error: TlsError,
    },
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpError::Listen { listener, address, error } if error.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "another program listens at {address}; stop it, or write another address for the {listener} listener, \
                 such as {listener}: {}",
                address.port().checked_add(10_000).unwrap_or(0)
            ),
            HttpError::Listen { listener, address, error } => write!(
                f,
                "the {listener} listener cannot listen at {address}: {error}; see {listener}: in the configuration"
            ),
            HttpError::Tls { listener, error } => write!(f, "{listener}-tls: {error}"),
        }
    }
}

impl Error for HttpError {}

/// The service of a server.
pub(crate) trait HttpService: Send + Sync + 'static {
    /// Begins to serve a connection.
    fn open(&self, is_encrypted: bool) -> HttpConnection;

    /// Does the work that no request starts; never ends.
    fn run(&self) -> impl Future<Output = ()> + Send;

    /// Closes what the stop of the server must not cut off.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// A connection, as its service sees it.
pub(crate) struct HttpConnection {
    /// Answers the requests.
    pub(crate) router: Router,
    /// Completes with the reason if the server must end the connection.
    pub(crate) end: Pin<Box<dyn Future<Output = &'static str> + Send>>,
}

/// The server. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct HttpServer {
    address: SocketAddr,
    counts: Arc<ConnectionCounts>,
    /// Closed to stop the server.
    end: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a server. `service` gets the counters, and a channel that changes when the server stops.
    ///
    /// # Errors
    /// The server cannot listen, or its TLS files cannot be used.
    pub(crate) fn start<S: HttpService>(
        settings: ServerSettings,
        service: impl FnOnce(&Arc<ConnectionCounts>, watch::Receiver<()>) -> S,
    ) -> Result<HttpServer, HttpError> {
        let ServerSettings { listener, address: wanted, tls, limits } = settings;
        let failed = |error| HttpError::Listen { listener, address: wanted, error };
        let tls = tls.as_ref().map(tls::load).transpose().map_err(|error| HttpError::Tls { listener, error })?;
        let socket = TcpListener::bind(wanted).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        let runtime = runtime.map_err(failed)?;
        let counts = Arc::new(ConnectionCounts::new(listener));
        let (end, mut ended) = watch::channel(());
        let service = Arc::new(service(&counts, ended.clone()));
        let acceptor = Acceptor { service: Arc::clone(&service), counts: Arc::clone(&counts), limits, tls };
        let serve = async move {
            match tokio::net::TcpListener::from_std(socket) {
                Ok(socket) => {
                    tokio::select! {
                        () = acceptor.accept(socket) => {}
                        () = service.run() => {}
                        _ = ended.changed() => {}
                    }
                    // All other work ends with the runtime.
                    drop(tokio::time::timeout(CLOSE_TIME, service.close()).await);
                }
                Err(error) => tracing::error!(%error, listener, "the server cannot listen"),
            }
        };
        let run = move || {
            runtime.block_on(serve);
            // The engine waits for this thread, so this thread must not wait for work that waits for the engine.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(format!("{listener}-http")).spawn(run);
        Ok(HttpServer { address, counts, end: Some(end), thread: Some(thread.map_err(failed)?) })
    }

    /// Returns the listen address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub(crate) fn counts(&self) -> &ConnectionCounts {
        &self.counts
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

/// Accepts the connections of a server.
struct Acceptor<S> {
    service: Arc<S>,
    counts: Arc<ConnectionCounts>,
    limits: ConnectionLimits,
    tls: Option<ListenerTls>,
}

impl<S: HttpService> Acceptor<S> {
    /// Accepts connections; never ends.
    async fn accept(self, socket: tokio::net::TcpListener) {
        let Acceptor { service, counts, limits, tls } = self;
        let tls = tls.map(|tls| (TlsAcceptor::from(Arc::clone(&tls.config)), tls.is_optional()));
        loop {
            let stream = match socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The usual cause is the limit of open files.
                    tracing::debug!(%error, "accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            counts.accepted.fetch_add(1, Ordering::Relaxed);
            if limits.count_max <= counts.open.load(Ordering::Relaxed) {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                counts.on_ended(limits.full);
                continue;
            }
            let guard = ConnectionGuard::new(&counts);
            let (service, counts, tls) = (Arc::clone(&service), Arc::clone(&counts), tls.clone());
            tokio::spawn(async move {
                serve(stream, tls, &*service, &counts, limits).await;
                drop(guard);
            });
        }
    }
}

/// Serves a connection until it ends.
async fn serve(
    stream: TcpStream,
    tls: Option<(TlsAcceptor, bool)>,
    service: &impl HttpService,
    counts: &ConnectionCounts,
    limits: ConnectionLimits,
) {
    // Answers are small and must not be delayed.
    drop(stream.set_nodelay(true));
    // A client that acknowledges nothing for this time is gone, even while an answer is sent.
    drop(SockRef::from(&stream).set_tcp_user_timeout(Some(ACKNOWLEDGE_TIME)));
    let Some((acceptor, is_optional)) = tls else {
        return serve_connection(TokioIo::new(stream), service.open(false), counts, limits).await;
    };
    let begin = async {
        let mut first = [0];
        match is_optional && !matches!(stream.peek(&mut first).await, Ok(1) if first[0] == TLS_HANDSHAKE) {
            true => Err(stream),
            false => Ok(acceptor.accept(stream).await),
        }
    };
    match tokio::time::timeout(REQUEST_TIME, begin).await {
        Ok(Ok(Ok(stream))) => serve_connection(TokioIo::new(stream), service.open(true), counts, limits).await,
        Ok(Err(stream)) => serve_connection(TokioIo::new(stream), service.open(false), counts, limits).await,
        Ok(Ok(Err(error))) => match HandshakeFault::of(&error) {
            Some(fault) => {
                tracing::debug!(%fault, "no encrypted connection");
                counts.on_ended(fault.kind());
            }
            None => tracing::debug!(%error, "no encrypted connection"),
        },
        Err(_) => counts.on_ended("no encryption in time"),
    }
}

/// Serves the requests of a connection until it ends.
async fn serve_connection<S>(
    stream: S,
    connection: HttpConnection,
    counts: &ConnectionCounts,
    ConnectionLimits { idle_time, head_bytes_max, .. }: ConnectionLimits,
) where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(idle_time).max_buf_size(head_bytes_max);
    let HttpConnection { router, end } = connection;
    let served = server.serve_connection(stream, TowerToHyperService::new(router)).with_upgrades();
    let done = tokio::select! {
        done = served => done,
        reason = end => return counts.on_ended(reason),
    };
    if let Err(error) = done {
        if error.is_timeout() {
            counts.on_idle("no request in time");
        } else if is_unacknowledged(&error) {
            counts.on_ended(STALLED);
        }
        tracing::debug!(%error, "a connection by HTTP");
    }
}

/// Returns whether the system ended a connection because the client acknowledged nothing for [`ACKNOWLEDGE_TIME`].
fn is_unacknowledged(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// A connection on which a request has arrived, and whose client acknowledges nothing: the system times out.
    struct Unacknowledged(&'static [u8]);

    impl AsyncRead for Unacknowledged {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.0.is_empty() {
                return Poll::Pending;
            }
            into.put_slice(std::mem::take(&mut self.0));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Unacknowledged {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Returns the reason for which a connection with this request ends.
    fn end_reasons(request: &'static [u8], end: Option<&'static str>) -> BTreeMap<&'static str, u64> {
        let counts = ConnectionCounts::new("test");
        let connection = HttpConnection {
            router: Router::new(),
            end: match end {
                Some(reason) => Box::pin(std::future::ready(reason)),
                None => Box::pin(std::future::pending()),
            },
        };
        let limits =
            ConnectionLimits { count_max: 1, full: "full", idle_time: Duration::from_millis(1), head_bytes_max: 8192 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(serve_connection(TokioIo::new(Unacknowledged(request)), connection, &counts, limits));
        counts.ended()
    }

    #[test]
    fn client_that_takes_no_answer_counts_as_stalled() {
        let request = b"GET /no-such-path HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(end_reasons(request, None), BTreeMap::from([(STALLED, 1)]));
    }

    #[test]
    fn connection_without_a_whole_head_ends() {
        assert_eq!(end_reasons(b"GET / HTTP/1.1\r\nHo", None), BTreeMap::from([("no request in time", 1)]));
    }

    #[test]
    fn service_ends_a_connection_with_its_reason() {
        assert_eq!(end_reasons(b"", Some("too slow")), BTreeMap::from([("too slow", 1)]));
    }
}
