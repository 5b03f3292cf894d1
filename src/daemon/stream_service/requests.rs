//! Stream requests of programs: from the engine to the stream service, and back through the mailbox.

use super::input::{AnswerCallback, StreamInput};
use super::input_queue::InputSender;
use crate::daemon::mailbox::{EngineCommand, Mailbox};
use crate::daemon::stream_request::{StreamRequestCost, StreamRequester, StreamServiceCommand, StreamServiceEvent};
use crate::listener::stream::{StreamAnswer, StreamRefusal, StreamRefusalKind, StreamRequest};
use crate::message::ClientId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of pending requests of one client.
const CLIENT_WAITING_MAX: usize = 1024;
/// Maximum number of pending reads of one client.
const CLIENT_READS_MAX: usize = 16;
/// Maximum number of pending reads of all clients: the answers may be large.
const READS_MAX: usize = 64;
/// Maximum bytes of events that wait to be added. A client without other pending requests may exceed it by one event.
const WAITING_BYTES_MAX: usize = 64 << 20;

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

    /// Submits a request to the stream service. The answer arrives through the mailbox.
    pub(crate) fn begin(
        &mut self,
        mailbox: &Arc<Mailbox>,
        requester: &StreamRequester,
        request: StreamRequest,
    ) -> Result<(), StreamRefusal> {
        let (client, cost) = (requester.client(), StreamRequestCost::of(&request));
        let own = self.clients.get(&client).copied().unwrap_or_default();
        let exceeds_bytes = WAITING_BYTES_MAX < self.all.bytes + cost.bytes && 0 < own.requests;
        let exceeds_reads = 0 < cost.reads && (CLIENT_READS_MAX <= own.reads || READS_MAX <= self.all.reads);
        if CLIENT_WAITING_MAX <= own.requests || exceeds_bytes || exceeds_reads {
            return Err(StreamRefusal::busy());
        }
        self.all = self.all.plus(cost);
        self.clients.insert(client, own.plus(cost));
        let guard = AnswerGuard { mailbox: Arc::clone(mailbox), pending: Some((requester.clone(), cost)) };
        let callback: AnswerCallback = Box::new(move |answer| guard.answer(answer));
        // If the thread has ended, the queue drops the request, and the guard refuses it.
        drop(self.inputs.push(StreamInput::Requested(request, callback)));
        Ok(())
    }

    /// Releases the cost of an answered request.
    pub(crate) fn end(&mut self, client: ClientId, cost: StreamRequestCost) {
        let own = self.clients.get_mut(&client).expect("a request is counted when it is submitted");
        (*own, self.all) = (own.minus(cost), self.all.minus(cost));
        if own.requests == 0 {
            self.clients.remove(&client);
        }
    }
}

/// Guard of a pending request, which refuses the request if it is dropped without an answer.
struct AnswerGuard {
    mailbox: Arc<Mailbox>,
    /// The requester, and the cost to release; `None` after the answer.
    pending: Option<(StreamRequester, StreamRequestCost)>,
}

impl AnswerGuard {
    fn answer(mut self, answer: Result<StreamAnswer, StreamRefusal>) {
        self.send_answer(answer);
    }

    fn send_answer(&mut self, answer: Result<StreamAnswer, StreamRefusal>) {
        if let Some((requester, cost)) = self.pending.take() {
            let report = Box::new(StreamServiceEvent::RequestAnswered { requester, cost, answer });
            // If the engine has ended, no requester waits for the answer.
            drop(self.mailbox.push(EngineCommand::Streams(StreamServiceCommand::Report(report)), Duration::ZERO));
        }
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        let text = "the peer no longer serves its event streams: see its log";
        self.send_answer(Err(StreamRefusal::new(StreamRefusalKind::Unavailable, text)));
    }
}
