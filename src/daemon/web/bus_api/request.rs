//! Requests: the body of a request by HTTP is the payload of a message, and the first reply to it is the answer.

use super::publish::{PUBLISH_TIME, ReceivedMessage, permitted_subject, publish, read_message};
use super::subscription::HttpSubscription;
use super::{CallRefusal, invalid};
use crate::clock::Clock;
use crate::daemon::mailbox::SubscriptionRequest;
use crate::daemon::queue_reader::{QueueReader, ReaderItem};
use crate::daemon::subscription_queue::Notice;
use crate::daemon::web::WebContext;
use crate::daemon::web::messages::MessageRefusal;
use crate::listener::http_api::fields::{content_type, reply_fields};
use crate::listener::http_api::url_subject::{parse_parameters, parse_timeout};
use crate::listener::permissions::Permissions;
use crate::message::{Delivery, SubscriptionFilter};
use crate::proto::peer::inbox_of;
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time for a reply unless the request has another one.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Policy of a reply in a browser: it is no page of the peer, and runs no script.
const REPLY_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");
/// Field of the subject for replies to a message.
const REPLY_FIELD: HeaderName = HeaderName::from_static("seqcast-reply");
/// Field of the reason for which there is no reply.
const REASON: HeaderName = HeaderName::from_static("seqcast-reason");

/// Publishes the body of a request, and answers with the first reply. `path` is the path behind `/req/`.
pub(super) async fn answer_request(
    context: &Arc<WebContext>,
    permissions: &Permissions,
    request: &Parts,
    body: Body,
    path: &str,
) -> Result<Response, CallRefusal> {
    let query = request.uri.query().unwrap_or_default();
    let [timeout] = parse_parameters(query, ["timeout"]).map_err(invalid)?;
    let timeout = timeout.map_or(Ok(TIMEOUT), |timeout| parse_timeout(&timeout)).map_err(invalid)?;
    let subject = permitted_subject(context, permissions, path)?;
    if request.headers.contains_key(REPLY_FIELD) {
        return Err(invalid("the server receives the reply to a request: leave out seqcast-reply, or use /pub"));
    }
    let received = read_message(context, permissions, &request.headers, body, subject).await?;
    let subject = received.message.subject.clone();
    let until = Clock::now().instant + timeout;
    let call = RequestCall::begin(context).await?;
    context.counts.bus_requests.fetch_add(1, Ordering::Relaxed);
    let reply = tokio::select! {
        reply = call.reply(received, until) => reply?,
        () = call.subscription.stopped() => return Err(MessageRefusal::NoAnswer.into()),
    };
    let refused = |status: StatusCode, reason: &'static str, text: String| {
        (status, [(REASON, HeaderValue::from_static(reason))], text).into_response()
    };
    Ok(match reply {
        RequestEnd::Reply(delivery) => {
            context.counts.bus_replies.fetch_add(1, Ordering::Relaxed);
            encode_reply(&delivery)
        }
        RequestEnd::NoResponders => {
            context.counts.no_responders.fetch_add(1, Ordering::Relaxed);
            let text = format!("no program on the LAN or in another site subscribes to {subject}\n");
            refused(StatusCode::SERVICE_UNAVAILABLE, "no-responders", text)
        }
        RequestEnd::Timeout => {
            context.counts.timeouts.fetch_add(1, Ordering::Relaxed);
            let text = format!("no reply within {} ms\n", timeout.as_millis());
            refused(StatusCode::GATEWAY_TIMEOUT, "timeout", text)
        }
    })
}

/// End of a request.
#[derive(Debug)]
enum RequestEnd {
    /// The first reply.
    Reply(Box<Delivery>),
    /// It is certain that no subscription gets the request.
    NoResponders,
    /// No reply came in time.
    Timeout,
}

/// A request whose reply is awaited. It ends when this is dropped.
struct RequestCall<'a> {
    context: &'a WebContext,
    subscription: HttpSubscription,
    /// Subject of the replies.
    inbox: Subject,
}

impl<'a> RequestCall<'a> {
    /// Subscribes to the replies of a request.
    async fn begin(context: &'a Arc<WebContext>) -> Result<RequestCall<'a>, CallRefusal> {
        let number = context.next_sub.fetch_add(1, Ordering::Relaxed);
        let inbox: Subject =
            format!("{}http.{number}", inbox_of(context.bus.epoch())).parse().expect("a short subject");
        let wanted = SubscriptionFilter::from(Pattern::from(inbox.clone()));
        let request = SubscriptionRequest { wanted, mode: None, wants_discovery: false };
        let subscription = HttpSubscription::begin(context, request, &context.bus.requests).await?;
        Ok(RequestCall { context, subscription, inbox })
    }

    /// Publishes the request, and waits for its first reply. After `until` it publishes nothing.
    async fn reply(&self, received: ReceivedMessage<'_>, until: Instant) -> Result<RequestEnd, CallRefusal> {
        let no_answer = |_| CallRefusal::from(MessageRefusal::NoAnswer);
        let reader = QueueReader::new(&self.subscription.queue).map_err(no_answer)?;
        let now = Clock::now().instant;
        if until <= now {
            return Ok(RequestEnd::Timeout);
        }
        let mut received = received;
        received.message.reply = Some(self.inbox.clone());
        publish(self.context, &received.message, until.min(now + PUBLISH_TIME)).await?;
        let subject = received.message.subject.clone();
        // The bytes of the message are free while its reply is awaited.
        drop(received);
        let left = until.since(Clock::now().instant);
        self.context.reports.await_absence(self.subscription.sub, subject, left);
        let wait = async {
            loop {
                match reader.next_item().await {
                    Ok(Some(ReaderItem::Notice(Notice::Message(delivery))))
                        if delivery.message.headers.is_no_responders() =>
                    {
                        return Ok(RequestEnd::NoResponders);
                    }
                    Ok(Some(ReaderItem::Notice(Notice::Message(delivery)))) => {
                        return Ok(RequestEnd::Reply(Box::new(delivery)));
                    }
                    // A loss does not end the wait; a lost reply shows as a timeout.
                    Ok(Some(ReaderItem::Notice(_))) => {}
                    Ok(Some(ReaderItem::Awaited)) => return Ok(RequestEnd::NoResponders),
                    Ok(None) | Err(_) => return Err(MessageRefusal::NoAnswer.into()),
                }
            }
        };
        tokio::time::timeout(left, wait).await.unwrap_or(Ok(RequestEnd::Timeout))
    }
}

/// Makes the answer of a reply.
fn encode_reply(delivery: &Delivery) -> Response {
    let message = &delivery.message;
    let content_type = HeaderValue::from_bytes(content_type(message).as_bytes());
    let mut response = Response::new(Body::from(message.payload.clone()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, REPLY_POLICY);
    headers.insert(header::CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    for (name, value) in reply_fields(delivery) {
        // A header that HTTP cannot carry is left out.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.append(name, value);
        }
    }
    response
}
