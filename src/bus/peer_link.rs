//! The two kinds of connection to a peer, behind one set of calls.

use super::events::{EventError, EventReply};
use super::local_connection::LocalConnection;
use super::streams::{StreamError, StreamReply};
use super::{PublishError, SubscribeError, WaitError};
use crate::daemon::answer_parts::{PartReceiver, part_channel};
use crate::daemon::event_request::{EventRequester, EventServiceCommand};
use crate::daemon::mailbox::{AnswerSender, EngineCommand, Mailbox, PushError, SubscriptionRequest};
use crate::daemon::stream_request::{StreamRequester, StreamServiceCommand};
use crate::daemon::subscription_queue::{PopError, QueueItem, SubscriptionQueue};
use crate::listener::event::{EventRequest, PARTS_MAX};
use crate::listener::session_request::ReceiverCondition;
use crate::listener::stream::StreamRequest;
use crate::message::{ClientId, Message, PeerRef, SubId};
use crate::proto::question::Question;
use crate::shared_memory::FreshBuffer;
use crate::subject::Subject;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for answers that a peer gives at once unless it is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a peer.
#[derive(Clone)]
pub(super) enum PeerLink {
    /// A peer in this process.
    Engine(Arc<Mailbox>, ClientId),
    /// A peer behind its Unix socket.
    LocalConnection(Arc<LocalConnection>),
}

impl PeerLink {
    pub(super) fn publish(&self, message: Message, timeout: Duration) -> Result<(), PublishError> {
        match self {
            PeerLink::Engine(mailbox, client) => {
                let command = EngineCommand::Publish { client: *client, message };
                mailbox.push(command, timeout).map_err(|rejected| match rejected {
                    PushError::Full(_) => PublishError::Full,
                    PushError::Closed => PublishError::Closed,
                })
            }
            PeerLink::LocalConnection(local_connection) => local_connection.publish(message, timeout),
        }
    }

    /// Returns a buffer for a payload of `bytes` bytes, at least one. There is none without shared memory, or if too many
    /// are in use.
    pub(super) fn fresh_buffer(&self, bytes: usize) -> Option<FreshBuffer> {
        match self {
            PeerLink::Engine(..) => None,
            PeerLink::LocalConnection(local_connection) => local_connection.fresh_buffer(bytes),
        }
    }

    /// Publishes a message that has only a subject and a payload.
    pub(super) fn publish_payload(
        &self,
        subject: &Subject,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<(), PublishError> {
        if let PeerLink::LocalConnection(local_connection) = self {
            return local_connection.publish_payload(subject, payload, timeout);
        }
        self.publish(Message::new(subject.clone(), Bytes::copy_from_slice(payload)), timeout)
    }

    /// Takes the next item of a queue of this link, and waits for one: without limit, or for at most `timeout`.
    pub(super) fn receive(&self, queue: &SubscriptionQueue, timeout: Option<Duration>) -> Result<QueueItem, PopError> {
        match self {
            PeerLink::LocalConnection(local_connection) => local_connection.receive(queue, timeout),
            PeerLink::Engine(..) => queue.pop_wait(timeout),
        }
    }

    /// Waits until the number of notifications of a queue of this link differs from `since`: without limit, or for at most
    /// `timeout`.
    pub(super) fn wait_notification(&self, queue: &SubscriptionQueue, since: u64, timeout: Option<Duration>) {
        match self {
            PeerLink::LocalConnection(local_connection) => local_connection.wait_notification(queue, since, timeout),
            PeerLink::Engine(..) => queue.wait_notification(since, timeout),
        }
    }

    /// Has a thread of the link queue all notices from now on, also while no receiver waits.
    pub(super) fn require_thread(&self) {
        if let PeerLink::LocalConnection(local_connection) = self {
            local_connection.require_thread();
        }
    }

    pub(super) fn subscribe(
        &self,
        sub: SubId,
        request: SubscriptionRequest,
        queue: Arc<SubscriptionQueue>,
    ) -> Result<(), SubscribeError> {
        let (answer, receiver) = bounded(1);
        match self {
            PeerLink::Engine(mailbox, client) => {
                let command = EngineCommand::Subscribe { client: *client, sub, request, queue, answer };
                mailbox.push(command, ANSWER_TIMEOUT).map_err(|rejected| match rejected {
                    PushError::Full(_) => SubscribeError::Timeout,
                    PushError::Closed => SubscribeError::Closed,
                })?;
            }
            PeerLink::LocalConnection(local_connection) => local_connection.subscribe(sub, request, queue, answer)?,
        }
        match wait(&receiver, ANSWER_TIMEOUT) {
            Ok(outcome) => outcome.map_err(SubscribeError::Refused),
            Err(WaitError::Timeout) => Err(SubscribeError::Timeout),
            Err(WaitError::Refused(reason)) => Err(SubscribeError::Refused(reason)),
            Err(WaitError::Closed) => Err(SubscribeError::Closed),
        }
    }

    /// Ends a subscription. If the peer is gone, its subscriptions are gone too.
    pub(super) fn unsubscribe(&self, sub: SubId) {
        match self {
            PeerLink::Engine(mailbox, client) => {
                let _ = mailbox.push(EngineCommand::Unsubscribe { client: *client, sub }, Duration::ZERO);
            }
            PeerLink::LocalConnection(local_connection) => local_connection.unsubscribe(sub),
        }
    }

    /// Sends a request to a history; its parts go to `answer`. Waits at most `patience` for room for the request; the
    /// peer then waits at most `timeout` for the answer.
    pub(super) fn request_history(
        &self,
        peer: PeerRef,
        question: Question,
        patience: Duration,
        timeout: Duration,
        answer: AnswerSender,
    ) -> Result<(), WaitError> {
        match self {
            PeerLink::Engine(mailbox, client) => {
                let command = EngineCommand::QueryHistory { client: *client, peer, question, timeout, answer };
                mailbox.push(command, patience).map_err(wait_error)
            }
            PeerLink::LocalConnection(local_connection) => {
                local_connection.request_history(peer, &question, timeout, answer)
            }
        }
    }

    /// Requests a notification to a subscription once the condition holds, if that happens within `timeout`.
    pub(super) fn begin_await(
        &self,
        sub: SubId,
        condition: ReceiverCondition,
        subject: Subject,
        timeout: Duration,
    ) -> Result<(), WaitError> {
        match self {
            PeerLink::Engine(mailbox, client) => {
                let command = EngineCommand::AwaitReceivers { client: *client, sub, condition, subject, timeout };
                mailbox.push(command, timeout).map_err(wait_error)
            }
            PeerLink::LocalConnection(local_connection) => {
                local_connection.begin_await(sub, condition, subject, timeout)
            }
        }
    }

    /// Sends a request about events. The answer, in one part or more, goes to the receiver, which has room for all
    /// parts of the largest answer. A peer that sends more ends the answer.
    pub(super) fn request_events(&self, request: EventRequest) -> Result<PartReceiver<EventReply>, EventError> {
        let (sender, receiver) = part_channel(PARTS_MAX);
        match self {
            PeerLink::Engine(mailbox, client) => {
                let requester = EventRequester::Embedded(*client, sender);
                mailbox
                    .push(EngineCommand::Events(EventServiceCommand::Request { requester, request }), ANSWER_TIMEOUT)
                    .map_err(|rejected| match rejected {
                        PushError::Full(_) => EventError::Timeout,
                        PushError::Closed => EventError::Closed,
                    })?;
            }
            PeerLink::LocalConnection(local_connection) => local_connection.request_events(request, sender)?,
        }
        Ok(receiver)
    }

    /// Sends a request about streams. The answer goes to the receiver.
    pub(super) fn request_stream(&self, request: StreamRequest) -> Result<Receiver<StreamReply>, StreamError> {
        let (sender, receiver) = bounded(1);
        match self {
            PeerLink::Engine(mailbox, client) => {
                let requester = StreamRequester::Embedded(*client, sender);
                mailbox
                    .push(EngineCommand::Streams(StreamServiceCommand::Request { requester, request }), ANSWER_TIMEOUT)
                    .map_err(|rejected| match rejected {
                        PushError::Full(_) => StreamError::Timeout,
                        PushError::Closed => StreamError::Closed,
                    })?;
            }
            PeerLink::LocalConnection(local_connection) => local_connection.request_stream(request, sender)?,
        }
        Ok(receiver)
    }

    pub(super) fn show(&self, query: Value) -> Result<Value, WaitError> {
        let (answer, receiver) = bounded(1);
        match self {
            PeerLink::Engine(mailbox, _) => {
                mailbox.push(EngineCommand::Show { query, answer }, ANSWER_TIMEOUT).map_err(wait_error)?;
            }
            PeerLink::LocalConnection(local_connection) => local_connection.show(&query, answer)?,
        }
        wait(&receiver, ANSWER_TIMEOUT)
    }

    pub(super) fn flush(&self, timeout: Duration) -> Result<(), WaitError> {
        match self {
            PeerLink::Engine(mailbox, _) => {
                let (answer, receiver) = bounded(1);
                mailbox.push(EngineCommand::Flush { answer }, timeout).map_err(wait_error)?;
                wait(&receiver, timeout)
            }
            PeerLink::LocalConnection(local_connection) => {
                let (answer, receiver) = bounded(1);
                local_connection.flush(answer)?;
                wait(&receiver, timeout)?.map_err(WaitError::Refused)
            }
        }
    }
}

fn wait<T>(receiver: &Receiver<T>, timeout: Duration) -> Result<T, WaitError> {
    receiver.recv_timeout(timeout).map_err(|error| match error {
        RecvTimeoutError::Timeout => WaitError::Timeout,
        RecvTimeoutError::Disconnected => WaitError::Closed,
    })
}

fn wait_error(error: PushError) -> WaitError {
    match error {
        PushError::Full(_) => WaitError::Timeout,
        PushError::Closed => WaitError::Closed,
    }
}
