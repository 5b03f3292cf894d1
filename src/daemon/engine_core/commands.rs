//! Subscriptions and history queries of embedded clients, and answers to the history queries of all local clients.

use super::EngineCore;
use crate::daemon::clients::ClientTransport;
use crate::daemon::mailbox::{AnswerResult, AnswerSender, SubscriptionRequest};
use crate::daemon::subscription_queue::SubscriptionQueue;
use crate::listener::frame::PeerFrame;
use crate::message::{ClientId, PeerRef, QuestionFailure, Refusal, SubId, Target};
use crate::proto::effect::ClientRequest;
use crate::proto::question::Question;
use crate::time::ClockReading;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time that a client can wait for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

impl EngineCore {
    /// Subscribes for an embedded client. The subscription's events go to `queue`.
    pub(crate) fn subscribe(
        &mut self,
        now: ClockReading,
        client: ClientId,
        sub: SubId,
        SubscriptionRequest { wanted, mode, wants_discovery }: SubscriptionRequest,
        queue: Arc<SubscriptionQueue>,
    ) -> Result<(), Refusal> {
        // A client that has departed, or that the stopping peer has closed, can have no queue.
        let Some(ClientTransport::Embedded(queues)) = self.clients.client(client).map(|client| &mut client.kind) else {
            return Err(Refusal::Stopping);
        };
        queues.insert(sub, queue);
        let mode = mode.unwrap_or(self.default_mode(&wanted));
        let subscribed = self.request(now, client, ClientRequest::Subscribe { sub, wanted, mode, wants_discovery });
        if let Err(refusal) = &subscribed {
            self.report_refusal(client, Some(sub), refusal);
            self.end_queue(client, sub);
        }
        subscribed
    }

    /// Ends a subscription of an embedded client.
    pub(crate) fn unsubscribe(&mut self, now: ClockReading, client: ClientId, sub: SubId) {
        self.request_or_report(now, client, ClientRequest::Unsubscribe { sub });
        self.receiver_waits.end(client, Some(Target { client, sub }));
        self.end_confirmation(client, Some(sub));
        self.end_queue(client, sub);
    }

    fn end_queue(&mut self, client: ClientId, sub: SubId) {
        if let Some(ClientTransport::Embedded(queues)) = self.clients.client(client).map(|client| &mut client.kind)
            && let Some(queue) = queues.remove(&sub)
        {
            queue.close();
        }
    }

    /// Queries a peer's history for an embedded client.
    pub(crate) fn query_history(
        &mut self,
        now: ClockReading,
        client: ClientId,
        peer: &PeerRef,
        question: Question,
        timeout: Duration,
        answer: AnswerSender,
    ) {
        let id = self.next_question;
        self.next_question += 1;
        self.pending_questions.insert((client, id), answer);
        self.send_history_query(now, client, id, peer, question, timeout);
    }

    /// Queries a peer's history. The answer, or the reason why there is none, arrives at [`EngineCore::on_answered`].
    pub(super) fn send_history_query(
        &mut self,
        now: ClockReading,
        client: ClientId,
        id: u64,
        peer: &PeerRef,
        question: Question,
        timeout: Duration,
    ) {
        let timeout = timeout.min(ANSWER_TIME_MAX);
        match self.peer.resolve(peer) {
            Ok(peer) => {
                self.request_or_report(now, client, ClientRequest::QueryHistory { id, peer, question, timeout });
            }
            Err(reason) => self.on_answered(client, id, Err(reason)),
        }
    }

    /// Passes a part of an answer, or the reason why no answer comes, to the client that sent the query.
    pub(super) fn on_answered(&mut self, client: ClientId, id: u64, answer: AnswerResult) {
        if let Some(connection) = self.clients.connection(client) {
            let answer = if connection.outbox.exceeds_answer_limit() { Err(QuestionFailure::TooMany) } else { answer };
            self.clients.answer(client, &PeerFrame::Answered { id, answer: answer.map(|part| part.encode()) });
        } else if let Entry::Occupied(pending) = self.pending_questions.entry((client, id)) {
            let is_last = answer.as_ref().map_or(true, |part| part.last);
            // The requester may have stopped waiting.
            let is_accepted = pending.get().send(answer);
            if is_last || !is_accepted {
                pending.remove();
            }
        }
    }
}
