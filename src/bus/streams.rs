//! Event streams of the peer, for programs: events are added to them and read, their consumers looked after.

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

/// How long the streams may take for an answer: what a busy disk takes, and more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Why something about streams was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The peer refuses; nothing was done.
    Refused(StreamRefusal),
    /// The peer did not answer in time. What was asked for may be done all the same.
    Timeout,
    /// The bus was closed, or its peer went away, before there was an answer. What was asked for may be done all the same.
    Closed,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Refused(refusal) => refusal.fmt(f),
            StreamError::Timeout => {
                write!(f, "the peer did not answer in time; what was asked for may be done all the same")
            }
            StreamError::Closed => {
                write!(f, "the bus was closed or its peer went away; what was asked for may be done all the same")
            }
        }
    }
}

impl std::error::Error for StreamError {}

pub(super) type StreamReply = Result<StreamAnswer, StreamRefusal>;

/// An event that is being added to a stream.
#[derive(Debug)]
pub struct PendingStreamEvent(Receiver<StreamReply>);

impl PendingStreamEvent {
    /// Waits until it stands in the stream, and survives a crash of the host there. Gives its id.
    ///
    /// # Errors
    /// It does not stand there, or it is not known.
    pub fn wait(self) -> Result<StreamId, StreamError> {
        match next(&self.0)? {
            StreamAnswer::Added(id) => Ok(id),
            _ => Err(StreamError::Closed),
        }
    }
}

/// All calls take the name of a stream, or `None` for the first one of the peer's configuration.
impl Bus {
    /// The streams of the peer, or one of them.
    ///
    /// # Errors
    /// The peer serves no streams, or not this one; no answer in time.
    pub fn streams(&self, stream: Option<&StreamName>) -> Result<Streams, StreamError> {
        match self.request_stream(stream, StreamOperation::List)? {
            StreamAnswer::Streams(streams) => Ok(streams),
            _ => Err(StreamError::Closed),
        }
    }

    /// Adds an event to a stream. It is an event of the bus, too: of the type `STREAM/TYPE`. Gives its id in the stream, where it survives a
    /// crash of the host then.
    ///
    /// # Errors
    /// It does not stand there, or it is not known.
    pub fn add_event(
        &self,
        stream: Option<&StreamName>,
        kind: &StreamType,
        data: Json,
    ) -> Result<StreamId, StreamError> {
        self.begin_add_event(stream, kind, data)?.wait()
    }

    /// As [`Bus::add_event`], without waiting for the answer: the way to have many events stored together. The peer takes some
    /// hundreds before the first is answered.
    ///
    /// # Errors
    /// The bus is closed.
    pub fn begin_add_event(
        &self,
        stream: Option<&StreamName>,
        kind: &StreamType,
        data: Json,
    ) -> Result<PendingStreamEvent, StreamError> {
        let what = StreamOperation::Add { kind: kind.clone(), data };
        self.shared.link.request_stream(StreamRequest { stream: stream.cloned(), what }).map(PendingStreamEvent)
    }

    /// The events behind what a consumer has accepted, so many of the first ones at most, and as many as an answer holds. It accepts what
    /// stands up to `last` first. What it does not want it accepts by that.
    ///
    /// # Errors
    /// The consumer is not registered, or has lapsed; the peer serves no such stream; no answer in time.
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

    /// The events behind a place, so many of the first ones at most, and as many as an answer holds. Nobody needs to be registered, and
    /// what was removed before is not told of.
    ///
    /// # Errors
    /// The peer serves no such stream; no answer in time.
    pub fn read_stream(
        &self,
        stream: Option<&StreamName>,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        events_max: u32,
    ) -> Result<StreamEvents, StreamError> {
        self.events_of(stream, StreamOperation::Read { after, want: want.cloned(), events_max })
    }

    /// A consumer accepts what stands up to here. Gives up to where it has accepted: never less than before, nor beyond the last event.
    ///
    /// # Errors
    /// The consumer is not registered, or has lapsed; the peer serves no such stream; no answer in time.
    pub fn accept_events(
        &self,
        stream: Option<&StreamName>,
        consumer: &Consumer,
        up_to: StreamId,
    ) -> Result<StreamId, StreamError> {
        self.position_of(stream, StreamOperation::Accept(consumer.clone(), up_to))
    }

    /// The registered consumers of a stream.
    ///
    /// # Errors
    /// The peer serves no such stream; no answer in time.
    pub fn consumers(&self, stream: Option<&StreamName>) -> Result<Consumers, StreamError> {
        match self.request_stream(stream, StreamOperation::Consumers)? {
            StreamAnswer::Consumers(consumers) => Ok(consumers),
            _ => Err(StreamError::Closed),
        }
    }

    /// Registers a consumer: it begins with the oldest event that is kept. One that is registered stays where it is; if it has lapsed, it goes
    /// on with the oldest event. Gives its row as it was before, if it was there.
    ///
    /// # Errors
    /// The component is `LIVE`; the peer serves no such stream; no answer in time.
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

    /// Sets the position of a consumer, wherever it was; it has not lapsed then. A connection over which it is pushed to is closed. Gives
    /// the position.
    ///
    /// # Errors
    /// The consumer is not registered; the peer serves no such stream; no answer in time.
    pub fn reset_consumer(
        &self,
        stream: Option<&StreamName>,
        consumer: &Consumer,
        place: ResetPosition,
    ) -> Result<StreamId, StreamError> {
        self.position_of(stream, StreamOperation::Reset(consumer.clone(), place))
    }

    /// Removes a consumer. A connection over which it is pushed to is closed.
    ///
    /// # Errors
    /// The consumer is not registered; the peer serves no such stream; no answer in time.
    pub fn remove_consumer(&self, stream: Option<&StreamName>, consumer: &Consumer) -> Result<(), StreamError> {
        match self.request_stream(stream, StreamOperation::Remove(consumer.clone()))? {
            StreamAnswer::Removed => Ok(()),
            _ => Err(StreamError::Closed),
        }
    }

    fn events_of(&self, stream: Option<&StreamName>, what: StreamOperation) -> Result<StreamEvents, StreamError> {
        match self.request_stream(stream, what)? {
            StreamAnswer::Events(events) => Ok(events),
            _ => Err(StreamError::Closed),
        }
    }

    fn position_of(&self, stream: Option<&StreamName>, what: StreamOperation) -> Result<StreamId, StreamError> {
        match self.request_stream(stream, what)? {
            StreamAnswer::Position(id) => Ok(id),
            _ => Err(StreamError::Closed),
        }
    }

    fn request_stream(&self, stream: Option<&StreamName>, what: StreamOperation) -> Result<StreamAnswer, StreamError> {
        next(&self.shared.link.request_stream(StreamRequest { stream: stream.cloned(), what })?)
    }
}

fn next(told: &Receiver<StreamReply>) -> Result<StreamAnswer, StreamError> {
    match told.recv_timeout(ANSWER_TIMEOUT) {
        Ok(answer) => answer.map_err(StreamError::Refused),
        Err(RecvTimeoutError::Timeout) => Err(StreamError::Timeout),
        Err(RecvTimeoutError::Disconnected) => Err(StreamError::Closed),
    }
}
