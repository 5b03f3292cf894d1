//! The streams of a peer, as the engine uses them: requests of programs, and the reports of the stream service.

use super::input_queue::{InputChannel, InputLimits};
use super::peer_streams::{PeerStreams, StreamsOpenError};
use crate::config::Config;
use crate::daemon::advisories;
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::events::EventService;
use crate::daemon::service::Service;
use crate::daemon::stream_request::{StreamRequester, StreamServiceCommand, StreamServiceEvent};
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::MissedRange;
use crate::listener::stream::{StreamRefusal, StreamRequest};
use crate::time::ClockReading;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Subject of the advisories about lapsed consumers.
const LAPSED: &str = "_RV.ERROR.SYSTEM.STREAM.LAPSED";

/// The streams of a peer, if it serves any.
#[derive(Debug, Default)]
pub(crate) struct StreamHost {
    streams: Option<PeerStreams>,
}

impl StreamHost {
    /// Opens the streams, to which FTN18 clients connect at `address`. The journal must be open, and not yet shared
    /// with other peers.
    ///
    /// # Errors
    /// The streams cannot be stored, or the address cannot be served.
    pub(crate) fn open(
        core: &mut EngineCore,
        events: &mut EventService,
        now: ClockReading,
        config: &Config,
        address: SocketAddr,
    ) -> Result<StreamHost, StreamsOpenError> {
        let client = core.clients.add(now, "streams".into(), ClientTransport::Embedded(BTreeMap::new()));
        let Some(journal) = events.journal_source(client, &core.mailbox) else { return Ok(StreamHost::default()) };
        let channel = InputChannel::new(InputLimits::USUAL);
        let stream_inputs = channel.sender.clone();
        let streams = PeerStreams::open(config, core.peer.host_permissions(), address, journal, channel)?;
        events.set_observer(Arc::new(stream_inputs));
        Ok(StreamHost { streams: Some(streams) })
    }

    /// Starts a request. It is refused at once, or answered later.
    fn request(&mut self, core: &mut EngineCore, requester: StreamRequester, request: StreamRequest) {
        let result = match (core.is_running(), &mut self.streams) {
            (false, _) => Err(StreamRefusal::stopping()),
            (true, None) => Err(StreamRefusal::not_served()),
            (true, Some(streams)) => streams.stream_requests.begin(&core.mailbox, &requester, request),
        };
        if let Err(refusal) = result {
            core.answer_stream_request(requester, Err(refusal));
        }
    }
}

impl Service for StreamHost {
    type Command = StreamServiceCommand;

    fn on_command(&mut self, core: &mut EngineCore, now: ClockReading, command: StreamServiceCommand) {
        let report = match command {
            StreamServiceCommand::Request { requester, request } => return self.request(core, requester, request),
            StreamServiceCommand::Report(report) => *report,
        };
        match report {
            StreamServiceEvent::RequestAnswered { requester, cost, answer: result } => {
                if let Some(streams) = &mut self.streams {
                    streams.stream_requests.end(requester.client(), cost);
                }
                core.answer_stream_request(requester, result);
            }
            StreamServiceEvent::Lapsed { stream, consumer, missed } => {
                advise_lapse(core, now, &stream, &consumer, &missed);
            }
        }
    }

    fn add_status(&self, _core: &EngineCore, status: &mut Value) {
        status["streams"] = self.streams.as_ref().map_or(Value::Null, PeerStreams::status);
    }

    fn close(&mut self, _core: &mut EngineCore) {
        self.streams = None;
    }

    fn pending_requests(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.stream_requests.waiting())
    }
}

/// Publishes an advisory for local subscribers: a consumer has lapsed, or has missed more events since.
fn advise_lapse(
    core: &mut EngineCore,
    now: ClockReading,
    stream: &StreamName,
    consumer: &Consumer,
    missed: &MissedRange,
) {
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
    let advisory = advisories::message(LAPSED, payload.to_string().into_bytes(), core.me());
    if let Some(to) = core.peer.targets(&advisory.message.subject) {
        core.clients.deliver(now, &to, advisory.into());
    }
}
