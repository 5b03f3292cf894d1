//! The HTTP server of the FTN18 listener: requests by POST, and WebSockets, on a thread of its own.
//!
//! The last part of the path names the stream; an empty path selects the first stream.

use super::client_memory::{ClientMemory, MemoryAccount, MemoryReservation, trim_allocator};
use super::input_queue::{InputPushError, InputSender};
use super::service_thread::{ClientMessage, StreamInput};
use super::websocket::{self, MESSAGE_BYTES_READ};
use crate::config::TlsFiles;
use crate::daemon::listeners::TlsError;
use crate::daemon::listeners::stream::ListenerTls;
use crate::daemon::listeners::tls;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamName;
use crate::listener::access::Access;
use crate::listener::ftn18::call::{Channel, MESSAGE_BYTES};
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::message::response;
use crate::listener::ftn18::session::{CallOutput, CallResult, CallSession};
use crate::listener::ftn18::stream_service::ConnectionId;
use crate::listener::ftn18::url::CallPath;
use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Content type of messages (FTN5). Clients compare the whole value.
const CONTENT_TYPE: &str = "application/futoin+json";
/// Content type since FTN5 1.4, used in answers to clients that send it.
const CONTENT_TYPE_VND: &str = "application/vnd.futoin+json";
/// Headers that browsers send with the requests of a page, except `sec-fetch-site` with the value `none`.
const BROWSER_HEADERS: [&str; 3] = ["origin", "referer", "sec-fetch-site"];
/// Idle time after which the server pings a client. After a second one without an answer it closes the connection.
pub(super) const PING_TIME: Duration = Duration::from_secs(60);
/// Maximum time for a client to send a request, or to complete the TLS handshake.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// Maximum time for which a connection may be open without a request: longer than clients keep an idle one.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// Pause before the next accept after the system has refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval between checks whether memory can be returned to the system.
const TRIM_TIME: Duration = Duration::from_secs(1);
/// Additional time per byte for a client to receive a message: 16 kB a second.
pub(super) const BYTE_TIME: Duration = Duration::from_micros(62);
/// Maximum number of messages that wait for a client: all calls that it may leave unanswered, and a few hundred
/// groups. A client that reads too slowly for that is closed.
const CLIENT_QUEUE_MAX: usize = 4096;
/// Close reason for a client that reads nothing.
pub(super) const STALLED: &str = "the client neither reads nor answers";
/// Error text for a client that is refused temporarily.
pub(super) const BUSY: &str = "too many requests wait; try again";
/// First byte of a TLS connection (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Listen address.
    pub address: SocketAddr,
    /// Access control of clients.
    pub access: Arc<Access>,
    /// The streams, in the order of their numbers; at least one.
    pub streams: Vec<StreamName>,
    /// Maximum number of connections at a time.
    pub clients_max: usize,
    /// Maximum bytes of events that all clients hold together. At the limit the client that holds the most is closed.
    pub bytes_max: usize,
    /// True if an unencrypted channel counts as secure: a proxy encrypts it, or it does not leave the host.
    pub is_trusted: bool,
    /// The files for TLS, if connections are encrypted.
    pub tls: Option<TlsFiles>,
}

/// Reason why the server cannot start.
#[derive(Debug)]
pub enum HttpError {
    /// The system refuses to listen on the address.
    Listen(SocketAddr, io::Error),
    /// The certificates or the key cannot be used.
    ListenerTls(TlsError),
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
            HttpError::ListenerTls(error) => write!(f, "ftn18-tls: {error}"),
        }
    }
}

impl Error for HttpError {}

/// Counters since the start. They only rise, except `clients`.
#[derive(Debug, Default)]
pub struct HttpCounts {
    /// Number of open connections.
    pub clients: AtomicUsize,
    /// Number of accepted connections.
    pub accepted: AtomicU64,
    /// Number of connections refused because of the connection limit.
    pub refused: AtomicU64,
    /// Number of calls, group answers and clients refused because too many requests of all clients waited.
    pub busy: AtomicU64,
    /// Number of requests by POST.
    pub requests: AtomicU64,
    /// Number of WebSockets since the start.
    pub websockets: AtomicU64,
    /// Number of open WebSockets.
    pub(super) open_websockets: AtomicUsize,
    /// Number of messages on WebSockets that were not a JSON object, and were dropped.
    pub malformed: AtomicU64,
    /// Number of connections that the server ended, by reason.
    pub(super) ended: Mutex<BTreeMap<&'static str, u64>>,
}

impl HttpCounts {
    /// Counts a connection that the server ends, and logs the first, second, fourth … one of each reason.
    pub(super) fn on_ended(&self, reason: &'static str) {
        // A panic between the two lines leaves a count that is too low by one.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let count = ended.entry(reason).or_default();
        *count += 1;
        if count.is_power_of_two() {
            tracing::warn!(listener = "ftn18", reason, count, "connection ended");
        }
    }

    /// Counts a request that is not taken because too many wait, and logs the first, second, fourth … one.
    fn on_busy(&self) {
        let count = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(listener = "ftn18", count, "request refused: too many requests of all clients wait");
        }
    }

    /// Counts a message that is dropped because it is no JSON object. Logs the first, second, fourth … one with its
    /// fault.
    fn on_malformed(&self, fault: &CallFault) {
        let count = self.malformed.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(listener = "ftn18", count, reason = fault.text, "message dropped");
        }
    }

    /// Returns the number of connections that the server ended, by reason.
    pub fn ended(&self) -> BTreeMap<&'static str, u64> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

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

pub(super) struct HttpShared {
    settings: Settings,
    inputs: InputSender,
    next: AtomicU64,
    pub(super) counts: Arc<HttpCounts>,
    /// Changes when the server stops.
    pub(super) end: watch::Receiver<()>,
    memory: Arc<ClientMemory>,
}

/// The server, as a request sees it.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) shared: Arc<HttpShared>,
    /// True if no third party can read or change the connection.
    is_secure: bool,
    /// Memory account of the request's connection.
    pub(super) account: Arc<MemoryAccount>,
}

impl HttpServer {
    /// Starts the server, which sends the requests of clients to `inputs`.
    ///
    /// # Errors
    /// It cannot listen, or its TLS files cannot be used.
    pub fn start(settings: Settings, inputs: InputSender) -> Result<HttpServer, HttpError> {
        let wanted = settings.address;
        let failed = |error| HttpError::Listen(wanted, error);
        let tls = settings.tls.as_ref().map(tls::load).transpose().map_err(HttpError::ListenerTls)?;
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
    pub fn held(&self) -> (usize, u64) {
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

/// Guard that counts a connection until it is dropped.
pub(super) struct ConnectionGuard(Arc<HttpCounts>);

impl ConnectionGuard {
    pub(super) fn new(counts: &Arc<HttpCounts>) -> ConnectionGuard {
        counts.clients.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(Arc::clone(counts))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns memory to the system, for ever, whenever clients have released enough.
async fn trim(memory: &ClientMemory) {
    loop {
        tokio::time::sleep(TRIM_TIME).await;
        if memory.take_trim_due() {
            trim_allocator();
        }
    }
}

/// Accepts connections, for ever.
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
        let place = ConnectionGuard::new(&shared.counts);
        let (shared, acceptor) = (Arc::clone(&shared), acceptor.clone());
        tokio::spawn(async move {
            serve(stream, acceptor, shared).await;
            drop(place);
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

/// A connection or a request that is registered with the stream service until this is dropped.
pub(super) struct StreamClient {
    conn: ConnectionId,
    shared: Arc<HttpShared>,
}

/// A message to a client, and the memory that the client holds for it.
pub(super) type AccountedMessage = (ClientMessage, Option<MemoryReservation>);

impl StreamClient {
    /// Registers the client with the stream service; `None` if too many inputs wait there.
    pub(super) fn open(context: &RequestContext) -> Option<(StreamClient, Receiver<AccountedMessage>)> {
        let conn = ConnectionId(context.shared.next.fetch_add(1, Ordering::Relaxed));
        let (sender, told) = channel(CLIENT_QUEUE_MAX);
        let account = Arc::clone(&context.account);
        let tell = move |what: ClientMessage| {
            let held = events(&what).map(|events| account.reserve(events.iter().map(StreamEvent::bytes).sum()));
            // A client that has ended needs no further message.
            if let Err(TrySendError::Full(_)) = sender.try_send((what, held)) {
                account.evict_slow();
            }
        };
        match context.shared.inputs.push(StreamInput::Opened(conn, Box::new(tell))) {
            Err(InputPushError::Full) => {
                context.shared.counts.on_busy();
                None
            }
            // If the thread has ended, this connection ends soon too, and no message can reach it.
            Ok(()) | Err(InputPushError::Closed) => {
                Some((StreamClient { conn, shared: Arc::clone(&context.shared) }, told))
            }
        }
    }

    /// Forwards an output of the session. Returns a message to send. A refused call is answered at once.
    ///
    /// # Errors
    /// Too many inputs wait, and the refused output cannot be answered.
    pub(super) fn call(
        &self,
        output: CallOutput,
        stream: usize,
        session: &mut CallSession,
    ) -> Result<Option<String>, Overload> {
        let (called, input) = match output {
            CallOutput::Send(text) => return Ok(Some(text)),
            CallOutput::Malformed(fault) => {
                self.shared.counts.on_malformed(&fault);
                return Ok(None);
            }
            CallOutput::Call { call, user, what } => {
                (Some(call), StreamInput::Called { conn: self.conn, call, stream, user, what })
            }
            CallOutput::Answered { push, seq, is_accepted } => {
                (None, StreamInput::Answered { conn: self.conn, push, seq, is_accepted })
            }
        };
        match (self.shared.inputs.push(input), called) {
            // If the thread has ended, the connection ends soon too.
            (Ok(()) | Err(InputPushError::Closed), _) => Ok(None),
            (Err(InputPushError::Full), Some(call)) => {
                self.shared.counts.on_busy();
                session.on_done(call, Err(CallFault::new(FaultName::DefenseRejected, BUSY)));
                Ok(None)
            }
            (Err(InputPushError::Full), None) => {
                self.shared.counts.on_busy();
                Err(Overload)
            }
        }
    }
}

/// Error: too many inputs wait for the stream service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overload;

impl Drop for StreamClient {
    fn drop(&mut self) {
        // Always taken, unless the thread has ended.
        drop(self.shared.inputs.push(StreamInput::Closed(self.conn)));
    }
}

/// Returns the events of a message to a client, if it has any.
fn events(what: &ClientMessage) -> Option<&[StreamEvent]> {
    match what {
        ClientMessage::CallResult(_, Ok(CallResult::Events(events))) => Some(events),
        ClientMessage::Group { events, .. } => Some(events),
        ClientMessage::CallResult(..) | ClientMessage::PushEnd { .. } => None,
    }
}

impl HttpShared {
    /// Returns the index of the stream that a path names, the first one if the path is empty.
    fn stream(&self, path: &str) -> Option<usize> {
        let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if last.is_empty() { Some(0) } else { self.settings.streams.iter().position(|name| name.as_str() == last) }
    }
}

impl RequestContext {
    pub(super) fn session(&self, is_bidirectional: bool) -> CallSession {
        let channel = Channel { is_secure: self.is_secure, is_bidirectional };
        CallSession::new(channel, Arc::clone(&self.shared.settings.access))
    }
}

async fn answer(State(context): State<RequestContext>, request: Request) -> Response {
    if request.headers().contains_key(header::ORIGIN) && context.shared.settings.access.accounts.is_empty() {
        // Any page in a browser on this host could send the call.
        return (StatusCode::FORBIDDEN, "pages of browsers need an account: see accounts\n").into_response();
    }
    let uri = request.uri().clone();
    let in_url =
        Some(request.method()).filter(|method| *method == Method::GET).and_then(|_| CallPath::find(uri.path()));
    let Some(stream) = context.shared.stream(in_url.as_ref().map_or(uri.path(), |call| call.stream)) else {
        let names: Vec<&str> = context.shared.settings.streams.iter().map(StreamName::as_str).collect();
        let text = format!("there is no such stream here, but /{}\n", names.join(", /"));
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    if request.method() == Method::GET && request.headers().contains_key(header::UPGRADE) {
        let (mut parts, _) = request.into_parts();
        return match WebSocketUpgrade::from_request_parts(&mut parts, &context).await {
            Ok(upgrade) => upgrade
                .max_message_size(MESSAGE_BYTES_READ)
                .max_frame_size(MESSAGE_BYTES_READ)
                .on_upgrade(move |socket| websocket::serve_websocket(context, socket, stream)),
            Err(refused) => refused.into_response(),
        };
    }
    if let Some(call) = in_url {
        return answer_in_url(&context, &call, &uri, request.headers(), stream).await;
    }
    if request.method() != Method::POST {
        let text = "post a request of FutoIn, call by GET /STREAM/INTERFACE/VERSION/FUNCTION, or open a WebSocket\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let content_type = content_type(request.headers());
    let body = axum::body::to_bytes(request.into_body(), MESSAGE_BYTES);
    match tokio::time::timeout(REQUEST_TIME, body).await {
        Ok(Ok(body)) => {
            context.shared.counts.requests.fetch_add(1, Ordering::Relaxed);
            let message = std::str::from_utf8(&body).map_err(|error| {
                CallFault::new(FaultName::InvalidRequest, format!("the message is not UTF-8: {error}"))
            });
            into_http_response(post(&context, message, stream).await, content_type)
        }
        Ok(Err(_)) => (StatusCode::PAYLOAD_TOO_LARGE, "a request has 65536 bytes at most\n").into_response(),
        Err(_) => {
            context.shared.counts.on_ended("no whole request in time");
            StatusCode::REQUEST_TIMEOUT.into_response()
        }
    }
}

/// Answers a call in a URL. Browsers send such a request for any page, an image for example, so theirs are refused.
async fn answer_in_url(
    context: &RequestContext,
    call: &CallPath<'_>,
    uri: &Uri,
    headers: &HeaderMap,
    stream: usize,
) -> Response {
    let is_of_page = |name: &str| headers.get(name).is_some_and(|value| value != "none");
    if BROWSER_HEADERS.iter().any(|name| is_of_page(name)) {
        return (StatusCode::FORBIDDEN, "pages of browsers cannot call in a URL: post the request\n").into_response();
    }
    context.shared.counts.requests.fetch_add(1, Ordering::Relaxed);
    // A header that is not text authenticates nobody.
    let authorization = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    let message = call.message(uri.query().unwrap_or_default(), authorization);
    into_http_response(post(context, message.as_deref().map_err(Clone::clone), stream).await, content_type(headers))
}

fn into_http_response(answer: Option<Bytes>, content_type: &'static str) -> Response {
    match answer {
        Some(answer) => ([(header::CONTENT_TYPE, content_type)], answer).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Returns the content type of the answer to a request.
fn content_type(headers: &HeaderMap) -> &'static str {
    let asked = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if asked.starts_with(CONTENT_TYPE_VND) { CONTENT_TYPE_VND } else { CONTENT_TYPE }
}

/// The answer to a request; its memory is reserved until it is sent.
struct ResponseBody {
    text: String,
    _held: Option<MemoryReservation>,
}

impl AsRef<[u8]> for ResponseBody {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Answers a request; `None` if the peer is stopping, or too many requests wait.
async fn post(context: &RequestContext, message: Result<&str, CallFault>, stream: usize) -> Option<Bytes> {
    let mut session = context.session(false);
    match message {
        Ok(text) => session.on_message(text),
        Err(fault) => return Some(response(None, &Err(fault)).into()),
    }
    let (client, mut told) = StreamClient::open(context)?;
    let mut held = None;
    loop {
        while let Some(output) = session.poll_output() {
            if let Some(text) = client.call(output, stream, &mut session).ok()? {
                return Some(Bytes::from_owner(ResponseBody { text, _held: held }));
            }
        }
        if let (ClientMessage::CallResult(call, done), bytes) = told.recv().await? {
            session.on_done(call, done);
            held = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::input_queue::{InputLimits, InputReceiver, inputs};
    use super::*;
    use crate::listener::ftn18::session::CallId;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// Creates a server that takes at most `count_max` inputs, with the receiver in place of its stream service.
    fn context(count_max: usize) -> (RequestContext, InputReceiver) {
        let (inputs, receiver) = inputs(InputLimits { count_max, bytes_max: 1 << 20 });
        let (_, end) = watch::channel(());
        let settings = Settings {
            address: ([127, 0, 0, 1], 0).into(),
            access: Arc::default(),
            streams: vec!["main".parse().unwrap()],
            clients_max: 1,
            bytes_max: 1 << 20,
            is_trusted: true,
            tls: None,
        };
        let memory = ClientMemory::new(1 << 20);
        let account = memory.account();
        let shared = HttpShared { settings, inputs, next: AtomicU64::new(0), counts: Arc::default(), end, memory };
        (RequestContext { shared: Arc::new(shared), is_secure: true, account }, receiver)
    }

    fn posted(context: &RequestContext) -> Option<Bytes> {
        let body = r#"{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":1},"sec":"alice:any"}"#;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(post(context, Ok(body), 0))
    }

    #[test]
    fn call_beyond_input_limit_is_answered_busy() {
        let (context, _receiver) = context(1);
        let answer = posted(&context).expect("the client was taken, its call was not");
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((&answer["e"], &answer["edesc"]), (&"DefenseRejected".into(), &BUSY.into()));
        assert_eq!(posted(&context), None, "there is no place for the next client");
        assert_eq!(context.shared.counts.busy.load(Ordering::Relaxed), 2);
    }

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

    #[test]
    fn client_that_takes_no_answer_counts_as_stalled() {
        let (context, _receiver) = context(1);
        let counts = Arc::clone(&context.shared.counts);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let stream = Unacknowledged(b"GET /no-such-stream HTTP/1.1\r\nHost: a\r\n\r\n");
        runtime.block_on(serve_connection_http(TokioIo::new(stream), context));
        assert_eq!(counts.ended(), BTreeMap::from([(STALLED, 1)]));
    }

    #[test]
    fn malformed_message_is_counted_and_next_one_served() {
        let (context, receiver) = context(8);
        let (client, _told) = StreamClient::open(&context).unwrap();
        assert!(matches!(receiver.pop(), Some(StreamInput::Opened(..))));
        let mut session = context.session(true);
        session.on_message("{\"f\"");
        session.on_message(r#"{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":1},"sec":"alice:any"}"#);
        while let Some(output) = session.poll_output() {
            assert_eq!(client.call(output, 0, &mut session), Ok(None));
        }
        assert_eq!(context.shared.counts.malformed.load(Ordering::Relaxed), 1);
        assert!(matches!(receiver.pop(), Some(StreamInput::Called { .. })));
    }

    #[test]
    fn client_that_reads_nothing_is_ended() {
        let (context, receiver) = context(1);
        let (_client, mut told) = StreamClient::open(&context).unwrap();
        let Some(StreamInput::Opened(_, tell)) = receiver.pop() else { panic!("a client") };
        (0..CLIENT_QUEUE_MAX).for_each(|_| tell(ClientMessage::CallResult(CallId(0), Ok(CallResult::Accepted))));
        assert!(!context.account.is_slow());
        tell(ClientMessage::CallResult(CallId(0), Ok(CallResult::Accepted)));
        assert!(context.account.is_slow());
        assert_eq!(std::iter::from_fn(|| told.try_recv().ok()).count(), CLIENT_QUEUE_MAX);
    }
}
