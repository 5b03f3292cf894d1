//! Stream requests of programs: from the engine to the stream service, and back through the mailbox.

use super::input::{AnswerCallback, StreamInput};
use super::input_queue::InputSender;
use crate::daemon::advisories;
use crate::daemon::engine::Engine;
use crate::daemon::mailbox::{EngineCommand, Mailbox};
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::MissedRange;
use crate::listener::frame::PeerFrame;
use crate::listener::stream::{StreamAnswer, StreamOperation, StreamRefusal, StreamRefusalKind, StreamRequest};
use crate::message::ClientId;
use crate::time::ClockReading;
use crossbeam_channel::Sender;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of pending requests of one client.
const CLIENT_WAITING_MAX: usize = 1024;
/// Maximum number of pending reads of one client.
const CLIENT_READS_MAX: usize = 16;
/// Maximum number of pending reads of all clients: the answers may be large.
const READS_MAX: usize = 64;
/// Maximum bytes of events that wait to be added. A client without other pending bytes may exceed it by one event.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Subject of the advisories about lapsed consumers.
const LAPSED: &str = "_RV.ERROR.SYSTEM.STREAM.LAPSED";

/// The requester of a stream request.
#[derive(Clone, Debug)]
pub(crate) enum StreamRequester {
    /// An attached program, with its request number.
    Attached(ClientId, u64),
    /// A program in the same process.
    Embedded(ClientId, Sender<Result<StreamAnswer, StreamRefusal>>),
}

impl StreamRequester {
    fn client(&self) -> ClientId {
        match self {
            StreamRequester::Attached(client, _) | StreamRequester::Embedded(client, _) => *client,
        }
    }
}

/// Cost of pending requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamRequestCost {
    requests: usize,
    reads: usize,
    bytes: usize,
}

impl StreamRequestCost {
    fn of(request: &StreamRequest) -> StreamRequestCost {
        let (reads, bytes) = match &request.operation {
            StreamOperation::Add { data, .. } => (0, data.bytes().len()),
            StreamOperation::Poll { .. } | StreamOperation::Read { .. } | StreamOperation::Consumers => (1, 0),
            _ => (0, 0),
        };
        StreamRequestCost { requests: 1, reads, bytes }
    }

    fn and(self, other: StreamRequestCost) -> StreamRequestCost {
        StreamRequestCost {
            requests: self.requests + other.requests,
            reads: self.reads + other.reads,
            bytes: self.bytes + other.bytes,
        }
    }

    fn without(self, other: StreamRequestCost) -> StreamRequestCost {
        StreamRequestCost {
            requests: self.requests - other.requests,
            reads: self.reads - other.reads,
            bytes: self.bytes - other.bytes,
        }
    }
}

/// Requests that wait for the stream service.
#[derive(Debug)]
pub(crate) struct StreamRequests {
    inputs: InputSender,
    all: StreamRequestCost,
    clients: BTreeMap<ClientId, StreamRequestCost>,
}

impl StreamRequests {
    /// Creates an empty set; `inputs` is the queue that takes the requests.
    pub(crate) fn new(inputs: InputSender) -> StreamRequests {
        StreamRequests { inputs, all: StreamRequestCost::default(), clients: BTreeMap::new() }
    }

    /// Returns the number of pending requests.
    pub(crate) fn waiting(&self) -> usize {
        self.all.requests
    }

    /// Hands a request to the stream service. The answer arrives through the mailbox.
    fn begin(
        &mut self,
        mailbox: &Arc<Mailbox>,
        asker: &StreamRequester,
        request: StreamRequest,
    ) -> Result<(), StreamRefusal> {
        let (client, cost) = (asker.client(), StreamRequestCost::of(&request));
        let own = self.clients.get(&client).copied().unwrap_or_default();
        let is_much = WAITING_BYTES_MAX < self.all.bytes + cost.bytes && 0 < own.requests;
        let are_reads = 0 < cost.reads && (CLIENT_READS_MAX <= own.reads || READS_MAX <= self.all.reads);
        if CLIENT_WAITING_MAX <= own.requests || is_much || are_reads {
            return Err(StreamRefusal::busy());
        }
        self.all = self.all.and(cost);
        self.clients.insert(client, own.and(cost));
        let waiting = AnswerGuard { mailbox: Arc::clone(mailbox), asked: Some((asker.clone(), cost)) };
        let answered: AnswerCallback = Box::new(move |answer| waiting.answer(answer));
        // If the thread has ended, the request is dropped, which answers it.
        drop(self.inputs.push(StreamInput::Requested(request, answered)));
        Ok(())
    }

    fn end(&mut self, client: ClientId, cost: StreamRequestCost) {
        let own = self.clients.get_mut(&client).expect("a request is counted when it is handed in");
        (*own, self.all) = (own.without(cost), self.all.without(cost));
        if own.requests == 0 {
            self.clients.remove(&client);
        }
    }
}

/// Guard of a requester that waits for an answer.
struct AnswerGuard {
    mailbox: Arc<Mailbox>,
    asked: Option<(StreamRequester, StreamRequestCost)>,
}

impl AnswerGuard {
    fn answer(mut self, answer: Result<StreamAnswer, StreamRefusal>) {
        self.send_answer(answer);
    }

    fn send_answer(&mut self, answer: Result<StreamAnswer, StreamRefusal>) {
        if let Some((asker, cost)) = self.asked.take() {
            // If the engine has ended, nobody waits for it.
            let done = StreamServiceEvent::CallResult { asker, cost, answer };
            drop(self.mailbox.push(EngineCommand::StreamServiceEvent(Box::new(done)), Duration::ZERO));
        }
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        let text = "the peer no longer serves its event streams: see its log";
        self.send_answer(Err(StreamRefusal::new(StreamRefusalKind::Unavailable, text)));
    }
}

/// A report of the stream service.
#[derive(Debug)]
pub(crate) enum StreamServiceEvent {
    /// The answer to a request.
    CallResult { asker: StreamRequester, cost: StreamRequestCost, answer: Result<StreamAnswer, StreamRefusal> },
    /// A consumer has lapsed, or has missed more events since.
    Lapsed { stream: StreamName, consumer: Consumer, missed: MissedRange },
}

impl Engine {
    /// Starts a stream request. It is refused at once, or answered later.
    pub(crate) fn request_stream(&mut self, asker: StreamRequester, request: StreamRequest) {
        let begun = match (self.is_running(), self.events.stream_requests()) {
            (false, _) => Err(StreamRefusal::stopping()),
            (true, None) => Err(StreamRefusal::not_served()),
            (true, Some(stream_requests)) => stream_requests.begin(&self.mailbox, &asker, request),
        };
        if let Err(refusal) = begun {
            self.answer_stream_request(asker, Err(refusal));
        }
    }

    /// Handles a report of the stream service.
    pub(crate) fn on_streams(&mut self, now: ClockReading, told: StreamServiceEvent) {
        match told {
            StreamServiceEvent::CallResult { asker, cost, answer } => {
                if let Some(stream_requests) = self.events.stream_requests() {
                    stream_requests.end(asker.client(), cost);
                }
                self.answer_stream_request(asker, answer);
            }
            StreamServiceEvent::Lapsed { stream, consumer, missed } => {
                let payload = json!({
                    "ADV_CLASS": "ERROR",
                    "ADV_SOURCE": "SYSTEM",
                    "ADV_NAME": "STREAM.LAPSED",
                    "ADV_DESC": "lost events",
                    "stream": stream.as_str(),
                    "user": consumer.user.as_str(),
                    "component": consumer.component.as_str(),
                    "lost": missed.count,
                    "first": missed.first.to_string(),
                    "last": missed.last.to_string(),
                });
                let advisory = advisories::message(LAPSED, payload.to_string().into_bytes(), self.me());
                if let Some(to) = self.peer.targets(&advisory.message.subject) {
                    self.clients.deliver(now, &to, advisory.into());
                }
            }
        }
    }

    fn answer_stream_request(&mut self, asker: StreamRequester, answer: Result<StreamAnswer, StreamRefusal>) {
        match asker {
            StreamRequester::Attached(client, id) => {
                let Some(connection) = self.clients.connection(client) else { return };
                // After BYE the peer sends no more answers.
                if !connection.flow.is_closing {
                    let answer =
                        if connection.outbox.exceeds_answer_limit() { Err(StreamRefusal::busy()) } else { answer };
                    self.clients.answer(client, &PeerFrame::Streams { id, answer });
                }
            }
            // The requester may have stopped waiting.
            StreamRequester::Embedded(_, told) => drop(told.send(answer)),
        }
    }
}
