//! Requesters of the stream service, the cost of their requests, and what the service reports to the engine.

use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::MissedRange;
use crate::listener::stream::{StreamAnswer, StreamOperation, StreamRefusal, StreamRequest};
use crate::message::ClientId;
use crossbeam_channel::Sender;

/// The requester of a stream request.
#[derive(Clone, Debug)]
pub(crate) enum StreamRequester {
    /// An attached program, with its request number.
    Attached(ClientId, u64),
    /// A program in the same process.
    Embedded(ClientId, Sender<Result<StreamAnswer, StreamRefusal>>),
}

impl StreamRequester {
    /// Returns the client that requests.
    pub(crate) fn client(&self) -> ClientId {
        match self {
            StreamRequester::Attached(client, _) | StreamRequester::Embedded(client, _) => *client,
        }
    }
}

/// Cost of pending requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamRequestCost {
    pub(crate) requests: usize,
    pub(crate) reads: usize,
    pub(crate) bytes: usize,
}

impl StreamRequestCost {
    pub(crate) fn of(request: &StreamRequest) -> StreamRequestCost {
        let (reads, bytes) = match &request.operation {
            StreamOperation::Add { data, .. } => (0, data.bytes().len()),
            StreamOperation::Poll { .. } | StreamOperation::Read { .. } | StreamOperation::Consumers => (1, 0),
            _ => (0, 0),
        };
        StreamRequestCost { requests: 1, reads, bytes }
    }

    pub(crate) fn plus(self, other: StreamRequestCost) -> StreamRequestCost {
        StreamRequestCost {
            requests: self.requests + other.requests,
            reads: self.reads + other.reads,
            bytes: self.bytes + other.bytes,
        }
    }

    pub(crate) fn minus(self, other: StreamRequestCost) -> StreamRequestCost {
        StreamRequestCost {
            requests: self.requests - other.requests,
            reads: self.reads - other.reads,
            bytes: self.bytes - other.bytes,
        }
    }
}

/// A report of the stream service.
#[derive(Debug)]
pub(crate) enum StreamServiceEvent {
    /// The answer to a request.
    RequestAnswered { requester: StreamRequester, cost: StreamRequestCost, answer: Result<StreamAnswer, StreamRefusal> },
    /// A consumer has lapsed, or has missed more events since.
    Lapsed { stream: StreamName, consumer: Consumer, missed: MissedRange },
}

/// A command for the streams.
#[derive(Debug)]
pub(crate) enum StreamServiceCommand {
    /// Submits a request to the stream service.
    Request { requester: StreamRequester, request: StreamRequest },
    /// Passes a report of the stream service to the engine.
    Report(Box<StreamServiceEvent>),
}
