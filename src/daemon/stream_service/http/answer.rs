//! Answers requests by HTTP: calls that are posted or in a URL, and the upgrade to a WebSocket.

use super::client::{AccountedMessage, StreamClient};
use super::context::RequestContext;
use super::websocket::{self, MESSAGE_BYTES_READ};
use crate::daemon::http_server::REQUEST_TIME;
use crate::daemon::stream_service::client_memory::MemoryReservation;
use crate::daemon::stream_service::input::ClientMessage;
use crate::listener::ftn18::call::MESSAGE_BYTES;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::message::response;
use crate::listener::ftn18::url::CallPath;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::sync::atomic::Ordering;

/// Content type of messages (FTN5). Clients compare the whole value.
const CONTENT_TYPE: &str = "application/futoin+json";
/// Content type since FTN5 1.4, used in answers to clients that send it.
const CONTENT_TYPE_VND: &str = "application/vnd.futoin+json";
/// Headers that browsers send with the requests of a page, except `sec-fetch-site` with the value `none`.
const BROWSER_HEADERS: [&str; 3] = ["origin", "referer", "sec-fetch-site"];

/// Answers a request.
pub(super) async fn answer(State(context): State<RequestContext>, request: Request) -> Response {
    if request.headers().contains_key(header::ORIGIN) && context.shared.settings.access.accounts.is_empty() {
        // Any page in a browser on this host could send the call.
        return (StatusCode::FORBIDDEN, "pages of browsers need an account: see accounts\n").into_response();
    }
    let uri = request.uri().clone();
    let in_url =
        Some(request.method()).filter(|method| *method == Method::GET).and_then(|_| CallPath::find(uri.path()));
    let Some(stream) = context.shared.stream(in_url.as_ref().map_or(uri.path(), |call| call.stream)) else {
        let names: Vec<&str> = context.shared.settings.streams.iter().map(|stream| stream.name.as_str()).collect();
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
            context.shared.connections.on_ended("no whole request in time");
            StatusCode::REQUEST_TIMEOUT.into_response()
        }
    }
}

/// Answers a call in a URL, but refuses requests of web pages: any page can make a browser send one, for example as the
/// address of an image.
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
    let request_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if request_type.starts_with(CONTENT_TYPE_VND) { CONTENT_TYPE_VND } else { CONTENT_TYPE }
}

/// The answer to a request; its memory is reserved until it is sent.
struct ResponseBody {
    text: String,
    _reservation: Option<MemoryReservation>,
}

impl AsRef<[u8]> for ResponseBody {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Answers a request; `None` if the peer is stopping, or too many requests wait.
pub(super) async fn post(context: &RequestContext, message: Result<&str, CallFault>, stream: usize) -> Option<Bytes> {
    let mut session = context.session(false);
    match message {
        Ok(text) => session.on_message(text),
        Err(fault) => return Some(response(None, &Err(fault)).into()),
    }
    let (client, mut messages) = StreamClient::open(context)?;
    let mut answer_reservation = None;
    loop {
        while let Some(output) = session.poll_output() {
            if let Some(text) = client.call(output, stream, &mut session).ok()? {
                return Some(Bytes::from_owner(ResponseBody { text, _reservation: answer_reservation }));
            }
        }
        let AccountedMessage { message, reservation } = messages.recv().await?;
        if let ClientMessage::CallResult(call, done) = message {
            session.on_result(call, done);
            answer_reservation = reservation;
        }
    }
}
