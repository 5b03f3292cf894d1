//! The bus by HTTP: `/pub`, `/sub` and `/req`, for programs and scripts. `docs/http-api.md` describes it.

mod cross_origin;
mod event_source;
mod publish;
mod request;
mod subscription;
mod websocket;

pub(super) use cross_origin::{add_cross_origin_headers, answer_preflight};

use self::event_source::answer_events;
use self::subscription::SubscriptionCall;
use self::websocket::{answer_websocket, is_upgrade};
use super::guard::RequestGuard;
use super::message_refusal::refuse_message;
use super::messages::MessageRefusal;
use super::{CONNECTIONS_MAX, WebContext};
use crate::config::{Config, HttpPublish, TlsClients};
use crate::listener::notice::{ESCAPED_BYTES, FIELDS_BYTES};
use crate::listener::permissions::Permissions;
use crate::message::{Epoch, MESSAGE_BYTES_MAX};
use crate::subject::SUBJECT_BYTES_MAX;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Maximum bytes of the bodies of all requests that are being read.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes for which a body needs one permit.
const BODY_UNIT_BYTES: usize = 1 << 10;
/// Maximum bytes of the large notices of all subscriptions that are encoded as a whole. Two copies count: the notice and
/// its frame.
const NOTICES_BYTES_MAX: usize = 128 << 20;
/// Bytes for which a large notice needs one permit.
const NOTICE_UNIT_BYTES: usize = 1 << 10;
/// Size in bytes of the largest notice that needs no permit.
const SMALL_NOTICE_BYTES: usize = 64 << 10;
/// Maximum time for which a large notice waits for room. Then it is dropped and counted.
const NOTICE_ROOM_TIME: Duration = Duration::from_secs(5);
const _: () = assert!(
    2 * (ESCAPED_BYTES * (MESSAGE_BYTES_MAX + SUBJECT_BYTES_MAX) + FIELDS_BYTES) <= NOTICES_BYTES_MAX,
    "the largest message fits"
);
/// Maximum number of subscriptions of all clients.
const SUBSCRIPTIONS_MAX: usize = 128;
/// Maximum number of requests that await their replies.
const REQUESTS_MAX: usize = 64;
const _: () = assert!(SUBSCRIPTIONS_MAX + REQUESTS_MAX < CONNECTIONS_MAX, "connections are left for others");
/// Interval between checks of the number of subscriptions, while the server stops.
const CLOSE_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A call of the bus that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BusCall {
    /// `/pub/SUBJECT`
    Publish,
    /// `/sub/PATTERN`
    Subscribe,
    /// `/req/SUBJECT`
    Request,
}

impl BusCall {
    /// Finds the call of a path, and the rest of the path behind it.
    pub(super) fn find(path: &str) -> Option<(BusCall, &str)> {
        let calls = [("/pub/", BusCall::Publish), ("/sub/", BusCall::Subscribe), ("/req/", BusCall::Request)];
        calls.into_iter().find_map(|(prefix, call)| Some((call, path.strip_prefix(prefix)?)))
    }

    /// Returns the methods of the call, as the field `Allow` lists them.
    pub(super) fn allowed_methods(self) -> &'static str {
        match self {
            BusCall::Publish | BusCall::Request => "POST",
            BusCall::Subscribe => "GET, HEAD",
        }
    }

    /// Returns the answer to a request with another method.
    pub(super) fn method_refusal(self) -> &'static str {
        match self {
            BusCall::Publish => "a message is published by POST\n",
            BusCall::Request => "a request is sent by POST\n",
            BusCall::Subscribe => "a pattern is subscribed to by GET\n",
        }
    }
}

/// State of the calls.
#[derive(Debug)]
pub(super) struct BusApi {
    /// Origins of other sites whose pages may call, in lower case.
    pub(super) origins: Vec<String>,
    /// True if clients may publish, as far as their account permits.
    may_publish: bool,
    /// Room for bodies of requests, in units of [`BODY_UNIT_BYTES`].
    body_room: Semaphore,
    /// Room for large notices, in units of [`NOTICE_UNIT_BYTES`].
    notice_room: Semaphore,
    /// Room for subscriptions.
    subscriptions: Arc<Semaphore>,
    /// Room for requests that await their replies.
    requests: Arc<Semaphore>,
    /// Epoch of the peer, to which replies are sent.
    epoch: AtomicU64,
    /// True once the server stops.
    stop: watch::Sender<bool>,
}

impl BusApi {
    /// Creates the state for a server at this address, of a peer in this epoch.
    pub(super) fn new(config: &Config, address: SocketAddr, epoch: Epoch) -> BusApi {
        let is_certified = config.http_tls.as_ref().is_some_and(|tls| matches!(tls.clients, TlsClients::Certified(_)));
        let may_publish = match config.http_publish {
            HttpPublish::All => true,
            HttpPublish::Nobody => false,
            HttpPublish::Auto => !config.accounts.is_empty() || is_certified || address.ip().is_loopback(),
        };
        BusApi {
            origins: config.http_origins.clone(),
            may_publish,
            body_room: Semaphore::new(BODY_BYTES_MAX / BODY_UNIT_BYTES),
            notice_room: Semaphore::new(NOTICES_BYTES_MAX / NOTICE_UNIT_BYTES),
            subscriptions: Arc::new(Semaphore::new(SUBSCRIPTIONS_MAX)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            epoch: AtomicU64::new(epoch.bits()),
            stop: watch::Sender::new(false),
        }
    }

    /// Returns the epoch of the peer.
    fn epoch(&self) -> Epoch {
        Epoch::new(self.epoch.load(Ordering::Relaxed)).expect("the bits of an epoch")
    }

    /// Changes the epoch of the peer.
    pub(super) fn set_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch.bits(), Ordering::Relaxed);
    }

    /// Waits for room for two copies of a notice of this size. Returns `Some(None)` if it is small and needs none, and
    /// `None` if there is no room in time.
    async fn notice_room(&self, bytes: usize) -> Option<Option<SemaphorePermit<'_>>> {
        if bytes <= SMALL_NOTICE_BYTES {
            return Some(None);
        }
        let units = u32::try_from((2 * bytes).div_ceil(NOTICE_UNIT_BYTES)).expect("at most the largest message");
        let permit = tokio::time::timeout(NOTICE_ROOM_TIME, self.notice_room.acquire_many(units)).await;
        permit.ok()?.ok().map(Some)
    }

    /// Returns the number of subscriptions.
    pub(super) fn subscriptions(&self) -> usize {
        SUBSCRIPTIONS_MAX - self.subscriptions.available_permits()
    }

    /// Ends all subscriptions, and waits for their ends.
    pub(super) async fn close(&self) {
        self.stop.send_replace(true);
        while 0 < self.subscriptions() || self.requests.available_permits() < REQUESTS_MAX {
            tokio::time::sleep(CLOSE_CHECK_INTERVAL).await;
        }
        // The connections send what they have before the server ends them.
        tokio::time::sleep(CLOSE_CHECK_INTERVAL).await;
    }
}

/// Answers a call of a client with these permissions.
pub(super) async fn answer_call(
    context: &Arc<WebContext>,
    call: BusCall,
    permissions: &Permissions,
    request: &Parts,
    body: Body,
) -> Response {
    let (_, path) = BusCall::find(request.uri.path()).expect("the path has named the call");
    let answered = match call {
        BusCall::Publish => publish::answer_publish(context, permissions, request, body, path).await,
        BusCall::Subscribe => answer_subscribe(context, permissions, request, path).await,
        BusCall::Request => request::answer_request(context, permissions, request, body, path).await,
    };
    answered.unwrap_or_else(|refusal| refuse_call(context, &refusal))
}

/// Begins a subscription, or only checks it for a HEAD request.
async fn answer_subscribe(
    context: &Arc<WebContext>,
    permissions: &Permissions,
    request: &Parts,
    path: &str,
) -> Result<Response, CallRefusal> {
    let call = SubscriptionCall::parse(path, request.uri.query().unwrap_or_default(), permissions)?;
    if call.is_in_queue() && RequestGuard::may_be_of_any_page(&request.headers) {
        return Err(CallRefusal::UnknownPage);
    }
    match request.method {
        Method::HEAD => Ok(StatusCode::OK.into_response()),
        _ if is_upgrade(&request.headers) => answer_websocket(context, call, request).await,
        _ => answer_events(context, call).await,
    }
}

/// Reason why a call is refused.
#[derive(Debug, PartialEq, Eq)]
enum CallRefusal {
    /// The same reasons as for the page.
    Message(MessageRefusal),
    /// Clients may not publish by HTTP.
    PublishingOff,
    /// The message is larger than the limit, in bytes.
    TooLarge(usize),
    /// The body is not complete in time.
    SlowBody,
    /// The body breaks HTTP, or ends too early.
    BrokenBody,
    /// A page of any site may have caused the request, which would take messages from others.
    UnknownPage,
}

impl From<MessageRefusal> for CallRefusal {
    fn from(refusal: MessageRefusal) -> CallRefusal {
        CallRefusal::Message(refusal)
    }
}

/// Makes the refusal of an invalid request.
fn invalid(reason: impl ToString) -> CallRefusal {
    CallRefusal::Message(MessageRefusal::Invalid(reason.to_string()))
}

/// Answers a call that is refused.
fn refuse_call(context: &WebContext, refusal: &CallRefusal) -> Response {
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    match refusal {
        CallRefusal::Message(refusal) => refuse_message(context, refusal),
        CallRefusal::PublishingOff => {
            count(&context.counts.denied);
            let text = "publishing by HTTP is off: http-publish: yes turns it on, or configure accounts\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
        CallRefusal::TooLarge(most) => {
            count(&context.counts.invalid);
            let text = format!("a message has at most {most} bytes with its headers: see message-size\n");
            (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
        }
        CallRefusal::SlowBody => {
            count(&context.counts.invalid);
            (StatusCode::REQUEST_TIMEOUT, "the body is not complete in time\n").into_response()
        }
        CallRefusal::BrokenBody => {
            count(&context.counts.invalid);
            (StatusCode::BAD_REQUEST, "the body breaks HTTP, or ends too early\n").into_response()
        }
        CallRefusal::UnknownPage => {
            count(&context.counts.denied);
            let text = "the browser does not send the site of the page: join a queue group by WebSocket or HTTPS\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_notices_share_bounded_room() {
        let config = Config::from_text("param.yaml", "parameters:\n  port: 7500\n").unwrap();
        let api = BusApi::new(&config, "127.0.0.1:7580".parse().unwrap(), Epoch::new(7).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let half = api.notice_room(NOTICES_BYTES_MAX / 4).await.expect("all of it is free");
            let rest = api.notice_room(NOTICES_BYTES_MAX / 4).await.expect("the other half is free");
            assert!(half.is_some() && rest.is_some());
            let small = api.notice_room(SMALL_NOTICE_BYTES).await;
            assert!(small.is_some_and(|permit| permit.is_none()), "a small notice needs no room");
            assert!(api.notice_room(SMALL_NOTICE_BYTES + 1).await.is_none(), "no room in time");
            drop(half);
            assert!(api.notice_room(SMALL_NOTICE_BYTES + 1).await.is_some());
        });
    }

    #[test]
    fn clients_publish_as_the_configuration_says() {
        let check = |text: &str, address: &str, expected: bool| {
            let config = Config::from_text("param.yaml", &format!("parameters:\n  port: 7500\n{text}")).unwrap();
            let api = BusApi::new(&config, address.parse().unwrap(), Epoch::new(7).unwrap());
            assert_eq!(api.may_publish, expected, "{text} {address}");
        };
        let (here, beyond) = ("127.0.0.1:7580", "10.0.0.7:7580");
        check("", here, true);
        check("", beyond, false);
        check("  accounts: token t0ken\n", beyond, true);
        check("  http-tls: a.pem b.pem verify c.pem\n", beyond, true);
        check("  http-tls: a.pem b.pem\n", beyond, false);
        check("  http-publish: yes\n", beyond, true);
        check("  http-publish: no\n  accounts: token t0ken\n", here, false);
    }
}
