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
/// Maximum bytes of events that wait to be added. A client without other pending bytes may exceed it by one event.
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

    /// Hands a request to the stream service. The answer arrives through the mailbox.
    pub(crate) fn begin(
        &mut self,
        mailbox: &Arc<Mailbox>,
        requester: &StreamRequester,
        request: StreamRequest,
    ) -> Result<(), StreamRefusal> {
        let (client, cost) = (requester.client(), StreamRequestCost::of(&request));
        let own = self.clients.get(&client).copied().unwrap_or_default();
        let is_much = WAITING_BYTES_MAX < self.all.bytes + cost.bytes && 0 < own.requests;
        let are_reads = 0 < cost.reads && (CLIENT_READS_MAX <= own.reads || READS_MAX <= self.all.reads);
        if CLIENT_WAITING_MAX <= own.requests || is_much || are_reads {
            return Err(StreamRefusal::busy());
        }
        self.all = self.all.and(cost);
        self.clients.insert(client, own.and(cost));
        let waiting = AnswerGuard { mailbox: Arc::clone(mailbox), asked: Some((requester.clone(), cost)) };
        let answered: AnswerCallback = Box::new(move |answer| waiting.answer(answer));
        // If the thread has ended, the request is dropped, which answers it.
        drop(self.inputs.push(StreamInput::Requested(request, answered)));
        Ok(())
    }

    /// Releases the cost of an answered request.
    pub(crate) fn end(&mut self, client: ClientId, cost: StreamRequestCost) {
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
        if let Some((requester, cost)) = self.asked.take() {
            // If the engine has ended, nobody waits for it.
            let done = StreamServiceEvent::RequestAnswered { requester, cost, answer };
            drop(
                self.mailbox.push(EngineCommand::Streams(StreamServiceCommand::Report(Box::new(done))), Duration::ZERO),
            );
        }
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        let text = "the peer no longer serves its event streams: see its log";
        self.send_answer(Err(StreamRefusal::new(StreamRefusalKind::Unavailable, text)));
    }
}
