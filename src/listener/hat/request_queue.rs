//! Unanswered requests of a Hat client.
//!
//! Requests are processed in their order. Consecutive registrations are submitted at once, queries one by one. A
//! request waits until all earlier ones of the other kind are answered. So a query finds all events registered before
//! it.

use super::action::{HatAction, RequestId};
use super::chatter::Conversation;
use super::client_message::EventSubscription;
use super::server_message::HatServerMessage;
use crate::event::model::Registration;
use crate::event::store::Query;
use std::collections::VecDeque;

/// Unanswered requests of a client, in order.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    requests: VecDeque<QueuedRequest>,
    /// Id of the first request.
    first: u64,
    /// Bytes of all requests, as received.
    bytes: usize,
}

/// An unanswered request.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    /// Conversation of the answer; `None` if the client wants no answer.
    pub(super) conversation: Option<Conversation>,
    /// Size of the request as received, in bytes.
    pub(super) bytes: usize,
    /// Subscriptions that begin with the answer, for the first request of a client.
    pub(super) welcome: Option<EventSubscription>,
    pub(super) state: HatRequestState,
}

/// Progress of a request.
#[derive(Debug)]
pub(super) enum HatRequestState {
    /// The request waits for earlier requests.
    Waiting(JournalCommand),
    /// The shell processes the request.
    Submitted(HatRequestKind),
    /// The answer waits for earlier answers.
    Done(HatServerMessage),
}

/// A request to the journal.
#[derive(Debug)]
pub(super) enum JournalCommand {
    Register(Vec<Registration>),
    Query(Query),
}

/// Kind of a request to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HatRequestKind {
    Register,
    Query,
}

/// A request whose answer is due.
#[derive(Debug)]
pub(super) struct AnsweredRequest {
    /// Conversation of the answer; `None` if the client wants no answer.
    pub(super) conversation: Option<Conversation>,
    /// Subscriptions that begin with the answer.
    pub(super) welcome: Option<EventSubscription>,
    pub(super) answer: HatServerMessage,
}

impl RequestQueue {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the bytes of all requests, as received.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, request: QueuedRequest) {
        self.bytes += request.bytes;
        self.requests.push_back(request);
    }

    /// Submits the next request that the shell may process together with the submitted ones.
    pub(super) fn submit_next(&mut self) -> Option<HatAction> {
        let mut submitted = None;
        for (number, request) in (self.first..).zip(&mut self.requests) {
            let kind = match &request.state {
                HatRequestState::Waiting(JournalCommand::Register(_)) => HatRequestKind::Register,
                HatRequestState::Waiting(JournalCommand::Query(_)) => HatRequestKind::Query,
                HatRequestState::Submitted(kind) => *kind,
                HatRequestState::Done(_) => continue,
            };
            if matches!(request.state, HatRequestState::Submitted(_)) {
                submitted = Some(kind);
                continue;
            }
            // Answers to queries may be large. The next query waits until the client has accepted the previous answer.
            if submitted.is_some_and(|other| other != kind || kind == HatRequestKind::Query) {
                return None;
            }
            let request_id = RequestId(number);
            return match std::mem::replace(&mut request.state, HatRequestState::Submitted(kind)) {
                HatRequestState::Waiting(JournalCommand::Register(registrations)) => {
                    Some(HatAction::Register { request: request_id, registrations })
                }
                HatRequestState::Waiting(JournalCommand::Query(query)) => {
                    Some(HatAction::Query { request: request_id, query })
                }
                HatRequestState::Submitted(_) | HatRequestState::Done(_) => unreachable!("the request waits"),
            };
        }
        None
    }

    /// Returns the index of a request, if it is not answered yet.
    fn index(&self, request: RequestId) -> Option<usize> {
        request.0.checked_sub(self.first).and_then(|index| usize::try_from(index).ok())
    }

    /// Returns whether the shell processes this request, and it is a registration.
    pub(super) fn is_registering(&self, request: RequestId) -> bool {
        let request = self.index(request).and_then(|index| self.requests.get(index));
        request.is_some_and(|request| matches!(request.state, HatRequestState::Submitted(HatRequestKind::Register)))
    }

    /// Returns a request of this kind that the shell processes.
    ///
    /// # Panics
    /// Panics if there is no such request.
    pub(super) fn submitted(&mut self, request: RequestId, kind: HatRequestKind) -> &mut QueuedRequest {
        let index = self.index(request);
        let request = index.and_then(|index| self.requests.get_mut(index)).expect("a request is answered once");
        assert!(
            matches!(request.state, HatRequestState::Submitted(submitted) if submitted == kind),
            "{kind:?} answers {request:?}"
        );
        request
    }

    /// Removes the first request if its answer is known.
    pub(super) fn pop_answered(&mut self) -> Option<AnsweredRequest> {
        self.requests.front().filter(|request| matches!(request.state, HatRequestState::Done(_)))?;
        let QueuedRequest { conversation, bytes, welcome, state } = self.requests.pop_front()?;
        let HatRequestState::Done(answer) = state else { unreachable!("the request is done") };
        self.first += 1;
        self.bytes -= bytes;
        Some(AnsweredRequest { conversation, welcome, answer })
    }

    /// Removes all requests, and returns the registrations that the shell has not received yet.
    pub(super) fn take_waiting_registrations(&mut self) -> Vec<Vec<Registration>> {
        let registrations = |request: QueuedRequest| match request.state {
            HatRequestState::Waiting(JournalCommand::Register(registrations)) => Some(registrations),
            _ => None,
        };
        self.requests.drain(..).filter_map(registrations).collect()
    }
}
