//! Requests to the streams of the peer, and the reports of the stream service.

use super::Engine;
use super::start::Options;
use crate::config::Config;
use crate::daemon::advisories;
use crate::daemon::clients::ClientTransport;
use crate::daemon::stream_service::input_queue::{InputChannel, InputLimits};
use crate::daemon::stream_service::peer_streams::{PeerStreams, StreamsOpenError};
use crate::daemon::stream_service::requester::{StreamRequester, StreamServiceEvent};
use crate::listener::frame::PeerFrame;
use crate::listener::stream::{StreamAnswer, StreamRefusal, StreamRequest};
use crate::time::ClockReading;
use serde_json::json;
use std::collections::BTreeMap;

/// Subject of the advisories about lapsed consumers.
const LAPSED: &str = "_RV.ERROR.SYSTEM.STREAM.LAPSED";

impl Engine {
    /// Opens the streams if clients can connect to them. The journal must be open, and not yet shared with other
    /// peers.
    pub(crate) fn open_streams(
        &mut self,
        now: ClockReading,
        config: &Config,
        options: &Options,
    ) -> Result<(), StreamsOpenError> {
        let (true, Some(address)) = (options.serve, config.ftn18) else { return Ok(()) };
        let client = self.clients.add(now, "streams".into(), ClientTransport::Embedded(BTreeMap::new()));
        let Some(journal) = self.events.for_streams(client, &self.mailbox) else { return Ok(()) };
        let channel = InputChannel::new(InputLimits::USUAL);
        let stream_inputs = channel.sender.clone();
        let streams = PeerStreams::open(config, address, journal, channel)?;
        self.events.serve_streams(streams, stream_inputs);
        Ok(())
    }

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
