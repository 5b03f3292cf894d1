//! Publishing: the body of a request is the payload of a message.

use super::{BODY_BYTES_MAX, BODY_UNIT_BYTES, CallRefusal, invalid};
use crate::clock::Clock;
use crate::daemon::http_server::REQUEST_TIME;
use crate::daemon::mailbox::PushError;
use crate::daemon::web::WebContext;
use crate::daemon::web::messages::MessageRefusal;
use crate::listener::http_api::fields::parse_message;
use crate::listener::http_api::url_subject::{parse_parameters, parse_subject};
use crate::listener::permissions::{Denial, DeniedAction, Permissions};
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::subject::Subject;
use crate::time::Instant;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::SemaphorePermit;

const _: () = assert!(MESSAGE_BYTES_MAX <= BODY_BYTES_MAX, "the largest message fits");

/// Maximum time for which a message waits for the network.
pub(super) const PUBLISH_TIME: Duration = Duration::from_secs(2);
/// Interval between attempts to publish while publishers wait for the network.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(5);

/// Publishes the body of a request. `path` is the path behind `/pub/`.
pub(super) async fn answer_publish(
    context: &WebContext,
    permissions: &Permissions,
    request: &Parts,
    body: Body,
    path: &str,
) -> Result<Response, CallRefusal> {
    let [] = parse_parameters(request.uri.query().unwrap_or_default(), []).map_err(invalid)?;
    let subject = permitted_subject(context, permissions, path)?;
    let received = read_message(context, permissions, &request.headers, body, subject).await?;
    publish(context, &received.message, Clock::now().instant + PUBLISH_TIME).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the subject of a path, on which the client may publish.
pub(super) fn permitted_subject(
    context: &WebContext,
    permissions: &Permissions,
    path: &str,
) -> Result<Subject, CallRefusal> {
    if !context.bus.may_publish {
        return Err(CallRefusal::PublishingOff);
    }
    let subject = parse_subject(path).map_err(invalid)?;
    match permissions.publish.permits(&subject) {
        true => Ok(subject),
        false => Err(MessageRefusal::Denied(Denial::new(DeniedAction::Publish, subject)).into()),
    }
}

/// A message that a request carries.
#[derive(Debug)]
pub(super) struct ReceivedMessage<'a> {
    pub(super) message: Message,
    /// Its part of the bytes of all requests.
    _permit: SemaphorePermit<'a>,
}

/// Reads the message that a request carries.
pub(super) async fn read_message<'a>(
    context: &'a WebContext,
    permissions: &Permissions,
    headers: &HeaderMap,
    body: Body,
    subject: Subject,
) -> Result<ReceivedMessage<'a>, CallRefusal> {
    let fields = headers.iter().map(|(name, value)| (HeaderName::as_str(name), value.as_bytes()));
    let mut message = parse_message(subject, fields, Bytes::new()).map_err(invalid)?;
    // Otherwise a client could make the receiver of a request publish where the client itself may not.
    let may_reply_to = |reply: &Subject| {
        let Permissions { publish, subscribe } = permissions;
        permissions.are_unlimited() || publish.permits(reply) || subscribe.permits(reply)
    };
    if let Some(reply) = message.reply.as_ref().filter(|reply| !may_reply_to(reply)) {
        return Err(MessageRefusal::Denied(Denial::new(DeniedAction::Reply, reply)).into());
    }
    let most = context.message_bytes_max;
    let room = most.saturating_sub(message.body_bytes());
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length: usize = length.unwrap_or(room);
    if room < length || most < message.body_bytes() {
        return Err(CallRefusal::TooLarge(most));
    }
    let units = u32::try_from(length.div_ceil(BODY_UNIT_BYTES)).expect("at most the largest message");
    let permit = context.bus.body_room.try_acquire_many(units).map_err(|_| MessageRefusal::Busy)?;
    message.payload = match tokio::time::timeout(REQUEST_TIME, read_body(body, room)).await {
        Ok(Ok(payload)) => payload,
        Ok(Err(PayloadFault::TooLarge)) => return Err(CallRefusal::TooLarge(most)),
        Ok(Err(PayloadFault::Broken)) => return Err(CallRefusal::BrokenBody),
        Err(_) => return Err(CallRefusal::SlowBody),
    };
    Ok(ReceivedMessage { message, _permit: permit })
}

/// Fault of a body that is to be a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadFault {
    /// It has more bytes than are permitted.
    TooLarge,
    /// It breaks HTTP, or ends too early.
    Broken,
}

/// Reads a body of at most `bytes_max` bytes.
async fn read_body(mut body: Body, bytes_max: usize) -> Result<Bytes, PayloadFault> {
    let mut received = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        // Trailers have no meaning here.
        let Ok(data) = frame.map_err(|_| PayloadFault::Broken)?.into_data() else { continue };
        if bytes_max - received.len() < data.len() {
            return Err(PayloadFault::TooLarge);
        }
        received.extend_from_slice(&data);
    }
    Ok(received.freeze())
}

/// Publishes a message, and waits for room for it until a time.
pub(super) async fn publish(context: &WebContext, message: &Message, until: Instant) -> Result<(), CallRefusal> {
    loop {
        match context.reports.publish(message.clone()) {
            Ok(()) => {
                context.counts.published.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Err(PushError::Closed) => return Err(MessageRefusal::NoAnswer.into()),
            Err(PushError::Full(_)) if until <= Clock::now().instant => return Err(MessageRefusal::Busy.into()),
            Err(PushError::Full(_)) => tokio::time::sleep(PUBLISH_INTERVAL).await,
        }
    }
}
