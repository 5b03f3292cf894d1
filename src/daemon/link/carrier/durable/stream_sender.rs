//! The messages that a gateway sends to the cluster's stream, and the answers of the stream.
//!
//! One subscription gets all answers. The client offers a future for each of them instead. A task that awaits thousands
//! of these polls most of them in vain: the runtime lets only some of them be ready in each turn.

use super::ANSWER_TIMEOUT;
use crate::clock::Clock;
use crate::daemon::link::hub::{MESSAGES_MAX, header_map, hub_subject};
use crate::link::durable::{SpoolTicket, UNANSWERED_MAX};
use crate::message::Message;
use crate::time::Instant;
use async_nats::client::PublishErrorKind;
use async_nats::header::NATS_EXPECTED_STREAM;
use async_nats::jetstream::{Error as StreamError, ErrorCode};
use async_nats::{Client, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::future::pending;
use tokio::time::timeout;

const _: () = assert!(2 * UNANSWERED_MAX <= MESSAGES_MAX, "all answers may wait in the client, also late ones");

/// Why the stream has not stored a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreFailure {
    /// The cluster or the stream never takes it.
    TooLarge(String),
    /// The stream stores nothing for this reason.
    NotStored(String),
}

/// A message that the stream has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreAck {
    /// Its stream sequence, or that of the message with its id that was stored before.
    pub(super) sequence: u64,
    pub(super) is_duplicate: bool,
}

/// The answer to a message.
#[derive(Debug)]
pub(super) struct StoreAnswer {
    pub(super) ticket: SpoolTicket,
    pub(super) outcome: Result<StoreAck, StoreFailure>,
}

/// A message that waits for its answer.
#[derive(Debug)]
struct SentMessage {
    ticket: SpoolTicket,
    at: Instant,
}

/// Sends to the stream, and receives its answers.
pub(super) struct StreamSender {
    client: Client,
    /// Name of the stream.
    stream: String,
    /// Prefix of the subjects of the answers, which end with the number of the message.
    inbox: String,
    answers: Subscriber,
    /// The messages that wait, by their numbers.
    unanswered: BTreeMap<u64, SentMessage>,
    /// Number of the next message.
    next: u64,
}

impl StreamSender {
    /// Creates the sender for the stream with this name.
    ///
    /// # Errors
    /// The client has ended.
    pub(super) async fn new(client: Client, stream: &str) -> Result<StreamSender, async_nats::SubscribeError> {
        let inbox = format!("{}.", client.new_inbox());
        let answers = client.subscribe(format!("{inbox}*")).await?;
        Ok(StreamSender { client, stream: stream.to_owned(), inbox, answers, unanswered: BTreeMap::new(), next: 0 })
    }

    /// Returns whether no message waits for its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Sends a message. Waits for room in the client, at most for [`ANSWER_TIMEOUT`].
    ///
    /// # Errors
    /// The answer, if the client does not send the message.
    pub(super) async fn send(&mut self, ticket: SpoolTicket, message: Message) -> Result<(), StoreAnswer> {
        let mut headers = header_map(&message.headers);
        headers.insert(NATS_EXPECTED_STREAM, self.stream.as_str());
        let (subject, reply) = (hub_subject(&message.subject), format!("{}{}", self.inbox, self.next));
        let sending = self.client.publish_with_reply_and_headers(subject, reply, headers, message.payload);
        let failure = match timeout(ANSWER_TIMEOUT, sending).await {
            Ok(Ok(())) => {
                self.unanswered.insert(self.next, SentMessage { ticket, at: Clock::now().instant });
                self.next += 1;
                return Ok(());
            }
            Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                StoreFailure::TooLarge(error.to_string())
            }
            Ok(Err(error)) => StoreFailure::NotStored(error.to_string()),
            Err(_) => StoreFailure::NotStored("the cluster takes nothing".to_owned()),
        };
        Err(StoreAnswer { ticket, outcome: Err(failure) })
    }

    /// Waits for the next answer. A message without one after [`ANSWER_TIMEOUT`] counts as not stored. No answer is lost if
    /// this is cancelled.
    pub(super) async fn answer(&mut self) -> StoreAnswer {
        loop {
            let Some((&number, oldest)) = self.unanswered.first_key_value() else { return pending().await };
            let left = (oldest.at + ANSWER_TIMEOUT).since(Clock::now().instant);
            match timeout(left, self.answers.next()).await {
                Ok(Some(received)) => {
                    if let Some(answer) = self.read(&received) {
                        return answer;
                    }
                }
                // The client has ended. Then the link ends as well.
                Ok(None) => return pending().await,
                Err(_) => {
                    let failure = StoreFailure::NotStored("the cluster does not answer".to_owned());
                    if let Some(SentMessage { ticket, .. }) = self.unanswered.remove(&number) {
                        return StoreAnswer { ticket, outcome: Err(failure) };
                    }
                }
            }
        }
    }

    /// Returns the next answer, if it has come.
    pub(super) fn next_answer(&mut self) -> Option<StoreAnswer> {
        loop {
            let received = self.answers.next().now_or_never()??;
            if let Some(answer) = self.read(&received) {
                return Some(answer);
            }
        }
    }

    /// Reads an answer; `None` if no message waits for it.
    fn read(&mut self, received: &async_nats::Message) -> Option<StoreAnswer> {
        let number = received.subject.strip_prefix(self.inbox.as_str())?.parse::<u64>().ok()?;
        let SentMessage { ticket, .. } = self.unanswered.remove(&number)?;
        Some(StoreAnswer { ticket, outcome: outcome(received.status, &received.payload) })
    }
}

/// The JSON of an answer.
#[derive(Deserialize)]
struct AnswerDocument {
    error: Option<StreamError>,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
}

/// Reads the content of an answer.
fn outcome(status: Option<StatusCode>, payload: &[u8]) -> Result<StoreAck, StoreFailure> {
    if status == Some(StatusCode::NO_RESPONDERS) {
        return Err(StoreFailure::NotStored(
            "no stream of the cluster has the subject, or its server is away".to_owned(),
        ));
    }
    let answer: AnswerDocument = serde_json::from_slice(payload)
        .map_err(|error| StoreFailure::NotStored(format!("its answer cannot be read: {error}")))?;
    match answer.error {
        Some(error) if error.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
            Err(StoreFailure::TooLarge(error.to_string()))
        }
        Some(error) => Err(StoreFailure::NotStored(error.to_string())),
        None if answer.seq == 0 => Err(StoreFailure::NotStored("its answer has no sequence".to_owned())),
        None => Ok(StoreAck { sequence: answer.seq, is_duplicate: answer.duplicate }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let read = |payload: &str| outcome(None, payload.as_bytes());
        let stored = |sequence, is_duplicate| Ok(StoreAck { sequence, is_duplicate });
        assert_eq!(read(r#"{"stream":"SEQCAST","seq":7}"#), stored(7, false));
        assert_eq!(read(r#"{"stream":"SEQCAST","domain":"hub","seq":7,"duplicate":true}"#), stored(7, true));
        let error = |code: u64| {
            read(&format!(r#"{{"error":{{"code":400,"err_code":{code},"description":"text"}},"stream":"S","seq":0}}"#))
        };
        assert!(matches!(error(10054), Err(StoreFailure::TooLarge(_))), "message size exceeds maximum allowed");
        assert!(matches!(error(10077), Err(StoreFailure::NotStored(_))), "the stream is full");
        for payload in ["", "{}", "[]", r#"{"stream":"SEQCAST"}"#, r#"{"seq":-1}"#, r#"{"seq":0}"#] {
            assert!(matches!(read(payload), Err(StoreFailure::NotStored(_))), "{payload}");
        }
        assert!(matches!(outcome(Some(StatusCode::NO_RESPONDERS), b""), Err(StoreFailure::NotStored(_))));
    }
}
