//! Event streams of the peer, for programs: they add and read events and manage consumers.

use super::Bus;
use crate::event::model::Json;
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::ConsumerRow;
use crate::listener::stream::{
    Consumers, ResetPosition, StreamAnswer, StreamEvents, StreamOperation, StreamRefusal, StreamRequest, Streams,
};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Time limit for an answer of the stream service; more than a busy disk takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason why a stream request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer refuses the request; nothing was done.
    Refused(StreamRefusal),
    /// The peer did not answer in time. The request may have been executed all the same.
    Timeout,
    /// The bus was closed, or its peer went away, before the answer. The request may have been executed all the same.
    Closed,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Refused(refusal) => refusal.fmt(f),
            StreamError::Timeout => {
                write!(f, "the peer did not answer in time; it may have executed the request all the same")
            }
            StreamError::Closed => {
                write!(f, "the bus was closed or its peer ended; it may have executed the request all the same")
            }
        }
    }
}

impl std::error::Error for StreamError {}

pub(super) type StreamReply = Result<StreamAnswer, StreamRefusal>;

/// An event whose addition to a stream is not acknowledged yet.
#[derive(Debug)]
pub struct PendingStreamEvent(Receiver<StreamReply>);

impl PendingStreamEvent {
    /// Waits until the event is stored in the stream and survives a crash of the host. Returns its id.
    ///
    /// # Errors
    /// Either the event is not in the stream, or the outcome is unknown.
    pub fn wait(self) -> Result<StreamId, StreamError> {
        match next(&self.0)? {
            StreamAnswer::Added(id) => Ok(id),
            _ => Err(StreamError::Closed),
        }
    }
}

/// All calls take the name of a stream, or `None` for the first one of the peer's configuration.
impl Bus {
    /// Returns the streams of the peer, or one of them.
    ///
    /// # Errors
    /// The peer serves no streams, or not this one, or the answer does not arrive in time.
    pub fn streams(&self, stream: Option<&StreamName>) -> Result<Streams, StreamError> {
        match self.request_stream(stream, StreamOperation::List)? {
            StreamAnswer::Streams(streams) => Ok(streams),
            _ => Err(StreamError::Closed),
        }
    }

    /// Adds an event to a stream. It is also an event of the bus, of the type `STREAM/TYPE`. Returns its id in the
    /// stream, where it survives a crash of the host then.
    ///
    /// # Errors
    /// Either the event is not in the stream, or the outcome is unknown.
    pub fn add_event(
        &self,
        stream: Option<&StreamName>,
        kind: &StreamType,
        data: Json,
    ) -> Result<StreamId, StreamError> {
        self.begin_add_event(stream, kind, data)?.wait()
    }

    /// Adds an event like [`Bus::add_event`], without waiting for the answer, so that many events can be stored
    /// together. The peer accepts up to 1,024 unanswered requests of a client.
    ///
    /// # Errors
    /// The bus is closed.
    pub fn begin_add_event(
        &self,
        stream: Option<&StreamName>,
        kind: &StreamType,
        data: Json,
    ) -> Result<PendingStreamEvent, StreamError> {
        let operation = StreamOperation::Add { kind: kind.clone(), data };
        self.shared.link.request_stream(StreamRequest { stream: stream.cloned(), operation }).map(PendingStreamEvent)
    }

    /// Returns the events that follow the position of a consumer: at most `events_max`, and at most as many as fit one
    /// answer. The consumer first accepts all events up to `last`. It skips events of other types than `want`, which
    /// accepts them.
    ///
    /// # Errors
    /// The consumer is not registered, or has lapsed; the peer serves no such stream; the answer does not arrive in
    /// time.
    pub fn poll_stream(
        &self,
        stream: Option<&StreamName>,
        consumer: &Consumer,
        last: Option<StreamId>,
        want: Option<&BTreeSet<StreamType>>,
        events_max: u32,
    ) -> Result<StreamEvents, StreamError> {
        let (consumer, want) = (consumer.clone(), want.cloned());
        self.events_of(stream, StreamOperation::Poll { consumer, last, want, events_max })
    }

    /// Returns the events that follow a position: at most `events_max`, and at most as many as fit one answer. The call
    /// needs no registered consumer and does not report events removed before.
    ///
    /// # Errors
    /// The peer serves no such stream, or the answer does not arrive in time.
    pub fn read_stream(
        &self,
        stream: Option<&StreamName>,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        events_max: u32,
    ) -> Result<StreamEvents, StreamError> {
        self.events_of(stream, StreamOperation::Read { after, want: want.cloned(), events_max })
    }

    /// Accepts all events up to a position for a consumer. Returns the accepted position: never less than before, nor
    /// beyond the last event.
    ///
    /// # Errors
    /// The consumer is not registered, or has lapsed; the peer serves no such stream; the answer does not arrive in
    /// time.
    pub fn accept_events(
        &self,
        stream: Option<&StreamName>,
        consumer: &Consumer,
        up_to: StreamId,
    ) -> Result<StreamId, StreamError> {
        self.position_of(stream, StreamOperation::Accept(consumer.clone(), up_to))
    }

    /// Returns the registered consumers of a stream.
    ///
    /// # Errors
    /// The peer serves no such stream, or the answer does not arrive in time.
    pub fn consumers(&self, stream: Option<&StreamName>) -> Result<Consumers, StreamError> {
        match self.request_stream(stream, StreamOperation::Consumers)? {
            StreamAnswer::Consumers(consumers) => Ok(consumers),
            _ => Err(StreamError::Closed),
        }
    }

    /// Registers a consumer, which begins with the oldest retained event. A consumer that is registered already keeps
    /// its position; if it has lapsed, it resumes at the oldest event. Returns its previous row, if there was one.
    ///
    /// # Errors
    /// The component is `LIVE`; the peer serves no such stream; the answer does not arrive in time.
    pub fn register_consumer(
        &self,
        stream: Option<&StreamName>,
        consumer: &Consumer,
    ) -> Result<Option<ConsumerRow>, StreamError> {
        match self.request_stream(stream, StreamOperation::Register(consumer.clone()))? {
            StreamAnswer::Registered(before) => Ok(before),
            _ => Err(StreamError::Closed),
        }
    }

    /// Sets the position of a consumer, wherever it was, and clears its lapse. Closes a connection that pushes to it.
    /// Returns the position.
    ///
    /// # Errors
    /// The consumer is not registered; the peer serves no such stream; the answer does not arrive in time.
    pub fn reset_consumer(
        &self,
        stream: Option<&StreamName>,
        consumer: &Consumer,
        position: ResetPosition,
    ) -> Result<StreamId, StreamError> {
        self.position_of(stream, StreamOperation::Reset(consumer.clone(), position))
    }

    /// Removes a consumer. Closes a connection that pushes to it.
    ///
    /// # Errors
    /// The consumer is not registered; the peer serves no such stream; the answer does not arrive in time.
    pub fn remove_consumer(&self, stream: Option<&StreamName>, consumer: &Consumer) -> Result<(), StreamError> {
        match self.request_stream(stream, StreamOperation::Remove(consumer.clone()))? {
            StreamAnswer::Removed => Ok(()),
            _ => Err(StreamError::Closed),
        }
    }

    fn events_of(&self, stream: Option<&StreamName>, operation: StreamOperation) -> Result<StreamEvents, StreamError> {
        match self.request_stream(stream, operation)? {
            StreamAnswer::Events(events) => Ok(events),
            _ => Err(StreamError::Closed),
        }
    }

    fn position_of(&self, stream: Option<&StreamName>, operation: StreamOperation) -> Result<StreamId, StreamError> {
        match self.request_stream(stream, operation)? {
            StreamAnswer::Position(id) => Ok(id),
            _ => Err(StreamError::Closed),
        }
    }

    fn request_stream(
        &self,
        stream: Option<&StreamName>,
        operation: StreamOperation,
    ) -> Result<StreamAnswer, StreamError> {
        next(&self.shared.link.request_stream(StreamRequest { stream: stream.cloned(), operation })?)
    }
}

fn next(answer: &Receiver<StreamReply>) -> Result<StreamAnswer, StreamError> {
    match answer.recv_timeout(ANSWER_TIMEOUT) {
        Ok(answer) => answer.map_err(StreamError::Refused),
        Err(RecvTimeoutError::Timeout) => Err(StreamError::Timeout),
        Err(RecvTimeoutError::Disconnected) => Err(StreamError::Closed),
    }
}
