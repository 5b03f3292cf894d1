//! The event streams of the peer with their consumers, as the stream service answers for them.

use super::reports::ReportFailure;
use crate::clock::Clock;
use crate::daemon::mailbox::{EngineCommand, Mailbox};
use crate::daemon::stream_request::{StreamRequester, StreamServiceCommand};
use crate::event::stream::name::StreamName;
use crate::listener::stream::json::{consumer_json, stream_json};
use crate::listener::stream::{StreamAnswer, StreamOperation, StreamRefusal, StreamRequest};
use crate::message::ClientId;
use crate::time::Instant;
use crossbeam_channel::{Receiver, bounded};
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum number of streams whose consumers are read.
const STREAMS_MAX: usize = 64;
/// Maximum number of consumers in the answer.
const CONSUMERS_MAX: usize = 1000;
/// Maximum time for the stream service to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Receiver of the answer to a request.
type StreamAnswerReceiver = Receiver<Result<StreamAnswer, StreamRefusal>>;

/// Returns the streams and their consumers, with the fields of `seqcast stream list --json` and `seqcast consumer list
/// --json`. Both are empty if the peer serves no streams.
pub(super) fn ask_streams(mailbox: &Mailbox, client: ClientId) -> Result<Value, ReportFailure> {
    let deadline = Clock::now().instant + ANSWER_TIME;
    let list = request(mailbox, client, None, StreamOperation::List)?;
    let rows = match answer(&list, deadline)? {
        Some(StreamAnswer::Streams(streams)) => streams.streams,
        _ => Vec::new(),
    };
    let names: Vec<&StreamName> = rows.iter().map(|row| &row.settings.name).take(STREAMS_MAX).collect();
    let mut pending = Vec::with_capacity(names.len());
    for name in names {
        let operation = StreamOperation::Consumers;
        pending.push((name, request(mailbox, client, Some(name.clone()), operation)?));
    }
    let mut consumers = Vec::new();
    let mut omitted = 0;
    for (name, receiver) in pending {
        if let Some(StreamAnswer::Consumers(found)) = answer(&receiver, deadline)? {
            omitted += found.omitted;
            consumers.extend(found.rows.iter().map(|row| consumer_json(name, row)));
        }
    }
    omitted += consumers.len().saturating_sub(CONSUMERS_MAX) as u64;
    consumers.truncate(CONSUMERS_MAX);
    let streams: Vec<Value> = rows.iter().map(stream_json).collect();
    Ok(json!({ "show": "streams", "streams": streams, "consumers": consumers, "omitted": omitted }))
}

fn request(
    mailbox: &Mailbox,
    client: ClientId,
    stream: Option<StreamName>,
    operation: StreamOperation,
) -> Result<StreamAnswerReceiver, ReportFailure> {
    let (sender, receiver) = bounded(1);
    let requester = StreamRequester::Embedded(client, sender);
    let command = StreamServiceCommand::Request { requester, request: StreamRequest { stream, operation } };
    mailbox.push(EngineCommand::Streams(command), ANSWER_TIME).map_err(|_| ReportFailure::NoAnswer)?;
    Ok(receiver)
}

/// Waits for an answer; `None` if the request was refused.
fn answer(receiver: &StreamAnswerReceiver, deadline: Instant) -> Result<Option<StreamAnswer>, ReportFailure> {
    let wait = deadline.since(Clock::now().instant);
    receiver.recv_timeout(wait).map(Result::ok).map_err(|_| ReportFailure::NoAnswer)
}
