//! Requests for single messages of a stream. Their answers can be read, whatever the header fields of the messages are: a
//! reader whose consumer sends a message with malformed ones loses the connection.

use crate::daemon::link::hub::bus_headers;
use crate::message::Message;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{Error, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// Answer to a request.
#[derive(Deserialize)]
struct MessageAnswer {
    message: Option<RawMessage>,
    error: Option<Error>,
}

/// Returns the last message of a stream on a subject, if there is one.
///
/// # Errors
/// The cluster refuses, or does not answer.
pub(super) async fn last_on(context: &Context, stream: &str, subject: &str) -> Result<Option<RawMessage>, String> {
    request(context, stream, &json!({ "last_by_subj": subject })).await
}

/// Returns the first message of a stream that matches `pattern` and has a sequence above `behind`, if there is one.
///
/// # Errors
/// The cluster refuses, or does not answer.
pub(super) async fn next_on(
    context: &Context,
    stream: &str,
    pattern: &str,
    behind: u64,
) -> Result<Option<RawMessage>, String> {
    request(context, stream, &json!({ "seq": behind + 1, "next_by_subj": pattern })).await
}

/// Returns a message of a stream as one of the bus; `None` if it is none.
pub(super) fn bus_message(stored: RawMessage) -> Option<Message> {
    let stored = StreamMessage::try_from(stored).ok()?;
    let subject = stored.subject.as_str().parse().ok()?;
    Some(Message { headers: bus_headers(&stored.headers)?, ..Message::new(subject, stored.payload) })
}

async fn request(context: &Context, stream: &str, wanted: &Value) -> Result<Option<RawMessage>, String> {
    let answer: MessageAnswer =
        context.request(format!("STREAM.MSG.GET.{stream}"), wanted).await.map_err(|error| error.to_string())?;
    match answer.error {
        Some(error) if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
        Some(error) => Err(error.to_string()),
        None => Ok(answer.message),
    }
}
