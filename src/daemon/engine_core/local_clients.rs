//! Serves attached clients: processes their frames and answers them.

use super::EngineCore;
use super::confirmation::Subscriber;
use super::flush::FlushWaiter;
use super::receiver_waits::ReceiverWaiter;
use crate::daemon::clients::ClientTransport;
use crate::daemon::connection_state::ReadOutcome;
use crate::daemon::event_request::{EventRequester, EventServiceCommand};
use crate::daemon::internal_command::InternalCommand;
use crate::daemon::stream_request::{StreamRequester, StreamServiceCommand};
use crate::listener::frame::{ClientFrame, FRAME_BYTES_MAX, PeerFrame, VERSION, Welcome};
use crate::listener::local::LocalFault;
use crate::listener::publish_run::PublishRun;
use crate::listener::refusal::{RefusalReason, RequestRefusal};
use crate::message::{ClientId, PeerRef, QuestionFailure, Refusal, SubId, SubscriptionFilter, Target};
use crate::proto::effect::ClientRequest;
use crate::proto::question::Question;
use crate::time::ClockReading;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum bytes read from one client before the others have their turn.
const READ_BYTES: usize = 256 * 1024;
/// Maximum bytes read in one turn from all attached clients, and again from all listener clients. The limit gives the
/// group's sockets and the clock tick their share. The next turn begins with the clients that this turn did not reach.
pub(crate) const TURN_BYTES: usize = 1 << 20;
/// Size in bytes of the buffer for one read.
pub(super) const SCRATCH_BYTES: usize = 64 * 1024;

impl EngineCore {
    /// Serves attached clients with input, up to a budget for each and one for all. The first client rotates from turn
    /// to turn, because it takes all of a scarce send capacity.
    pub(in crate::daemon) fn serve_clients(&mut self, now: ClockReading) {
        let is_publish_blocked = self.is_publish_blocked();
        let mut ids = self.clients.wake_and_find_input(is_publish_blocked);
        let after = ids.partition_point(|id| *id <= self.last_served) % ids.len().max(1);
        ids.rotate_left(after);
        if !is_publish_blocked && let Some(first) = ids.first() {
            self.last_served = *first;
        }
        let mut budget = TURN_BYTES;
        for id in ids {
            if budget == 0 {
                return;
            }
            let left = self.serve(now, id, budget.min(READ_BYTES));
            budget -= budget.min(READ_BYTES) - left;
            if budget == 0 {
                self.last_served = id;
            }
        }
    }

    /// Processes frames and reads alternately, until nothing is left, the budget is used up, or the next frame must
    /// wait. That frame stays first in its connection. Returns the rest of the budget.
    fn serve(&mut self, now: ClockReading, id: ClientId, mut budget: usize) -> usize {
        if !self.read_doorbells(now, id) {
            return budget;
        }
        loop {
            loop {
                let is_publish_blocked = self.is_publish_blocked();
                let Some(connection) = self.clients.connection(id) else { return budget };
                connection.flow.has_buffered_input = true;
                if connection.outbox.is_backpressured() {
                    return budget;
                }
                let frame = match connection.waiting.take() {
                    Some(frame) => Ok(Some(frame)),
                    None => connection.endpoint.poll_frame(),
                };
                match frame {
                    Ok(Some(frame)) if is_publish_blocked && must_wait(&frame) => {
                        connection.waiting = Some(frame);
                        return budget;
                    }
                    Ok(Some(frame)) => {
                        let is_show = matches!(frame, ClientFrame::Show { .. });
                        // A buffer is not read from the ring, and its message is as much work as any large one.
                        let lent_bytes = frame.lent_bytes();
                        budget = budget.saturating_sub(lent_bytes);
                        self.on_frame(now, id, frame);
                        // The engine makes the answer, which may be large, after this call. Only then does the
                        // check above see whether the client is backpressured.
                        if is_show || (0 < lent_bytes && budget == 0) {
                            return budget;
                        }
                    }
                    Ok(None) => {
                        connection.flow.has_buffered_input = false;
                        break;
                    }
                    Err(fault) => {
                        self.on_fault(now, id, &fault);
                        return budget;
                    }
                }
            }
            let Some(connection) = self.clients.connection(id) else { return budget };
            if budget == 0 || !connection.is_readable() {
                return budget;
            }
            match connection.read(&mut self.scratch) {
                Ok(ReadOutcome::Bytes(bytes)) => budget = budget.saturating_sub(bytes),
                Ok(ReadOutcome::Nothing) => return budget,
                Ok(ReadOutcome::End) => {
                    self.detach(now, id);
                    return budget;
                }
                Err(fault) => {
                    self.on_fault(now, id, &fault);
                    return budget;
                }
            }
        }
    }

    pub(super) fn on_fault(&mut self, now: ClockReading, id: ClientId, fault: &LocalFault) {
        let name = self.clients.client(id).map_or(String::new(), |client| client.name.clone());
        tracing::warn!(client = id.0, name, reason = %fault, "client rejected");
        self.clients.answer(id, &fault.bye());
        if let Some(connection) = self.clients.connection(id) {
            connection.write();
        }
        self.detach(now, id);
    }

    fn on_frame(&mut self, now: ClockReading, id: ClientId, frame: ClientFrame) {
        match frame {
            ClientFrame::Hello { name, .. } => {
                let welcome = self.welcome(id);
                self.clients.answer(id, &PeerFrame::Welcome(welcome));
                if let Some(client) = self.clients.client(id) {
                    tracing::debug!(client = id.0, name, "client connected");
                    client.name = name;
                }
                if let Some(connection) = self.clients.connection(id) {
                    connection.is_greeted = true;
                }
            }
            ClientFrame::Publish(message) => self.publish_whole(now, id, message),
            ClientFrame::PublishBuffer { message, payload } => self.publish_buffer(now, id, message, payload),
            ClientFrame::PublishRun(run) => self.publish_run(now, id, run),
            ClientFrame::Subscribe { sub, pattern, queue, mode, wants_discovery } => {
                let wanted = SubscriptionFilter { pattern, glob: None, queue };
                let mode = mode.unwrap_or(self.default_mode(&wanted));
                match self.request(now, id, ClientRequest::Subscribe { sub, wanted, mode, wants_discovery }) {
                    Ok(()) => _ = self.confirm(now, Subscriber::Attached(id, sub)),
                    Err(refusal) => self.report_refusal(id, Some(sub), &refusal),
                }
            }
            ClientFrame::Unsubscribe { sub } => {
                self.request_or_report(now, id, ClientRequest::Unsubscribe { sub });
                self.receiver_waits.end(id, Some(Target { client: id, sub }));
                self.end_confirmation(id, Some(sub));
                if let Some(connection) = self.clients.connection(id) {
                    connection.outbox.remove_sub(sub);
                }
            }
            ClientFrame::Show { id: question, query } => match serde_json::from_slice::<Value>(&query) {
                Ok(query) => self.queue_command(InternalCommand::Show { client: id, id: question, query }),
                Err(error) => {
                    let answer = json!({ "error": format!("the question is no JSON: {error}") });
                    self.answer_show(id, question, &answer);
                }
            },
            ClientFrame::History { id: number, timeout_ms, peer, question } => {
                self.query_history_for(now, id, number, &peer, &question, timeout_ms);
            }
            ClientFrame::Await { sub, condition, timeout_ms, subject } => {
                let (target, timeout) = (Target { client: id, sub }, Duration::from_millis(u64::from(timeout_ms)));
                self.begin_await(now, ReceiverWaiter::Subscription(target), condition, subject, timeout);
            }
            ClientFrame::Events { id: number, request } => {
                self.queue_command(InternalCommand::Events(EventServiceCommand::Request {
                    requester: EventRequester::Attached(id, number),
                    request,
                }))
            }
            ClientFrame::Streams { id: number, request } => {
                self.queue_command(InternalCommand::Streams(StreamServiceCommand::Request {
                    requester: StreamRequester::Attached(id, number),
                    request,
                }))
            }
            ClientFrame::Flush { token } => self.await_flush(FlushWaiter::Attached(id, token)),
            ClientFrame::SharedMemory => self.share_memory(now, id),
            ClientFrame::BuffersLost => self.clients.reset_descriptors(id),
        }
    }

    /// Queries a peer's history for an attached client.
    fn query_history_for(
        &mut self,
        now: ClockReading,
        id: ClientId,
        number: u64,
        peer: &PeerRef,
        question: &Bytes,
        timeout_ms: u32,
    ) {
        let timeout = Duration::from_millis(u64::from(timeout_ms));
        match Question::decode(question) {
            Ok(question) => self.send_history_query(now, id, number, peer, question, timeout),
            Err(error) => {
                tracing::debug!(client = id.0, %error, "history query refused");
                self.on_answered(id, number, Err(QuestionFailure::Malformed));
            }
        }
    }

    /// Answers a `show` query of an attached client.
    pub(in crate::daemon) fn answer_show(&mut self, client: ClientId, id: u32, answer: &Value) {
        self.clients.answer(client, &PeerFrame::Shown { id, answer: encode_answer(answer) });
    }

    /// Publishes the messages of a run until publishers are blocked. The connection keeps the rest, which precedes the
    /// client's later frames.
    fn publish_run(&mut self, now: ClockReading, id: ClientId, mut run: PublishRun) {
        if let Some(subject) = self.clients.connection(id).and_then(|connection| connection.subject.as_ref()) {
            run.share_subject(subject);
        }
        let is_all = loop {
            if self.peer.suppresses(now, id, run.subject(), run.remaining_bytes())
                && self.ensure_send_capacity()
                && let Some(suppressed) = run.take_run()
            {
                let messages = u64::from(suppressed.count);
                self.peer.publish_suppressed(suppressed);
                self.on_published_many(now, id, messages);
            }
            match run.publish_next(|subject, payload| self.publish_payload(now, id, subject, payload)) {
                None => break true,
                Some(true) => {}
                Some(false) => break false,
            }
        };
        if let Some(connection) = self.clients.connection(id) {
            connection.cache_subject(run.subject());
            connection.waiting = Some(ClientFrame::PublishRun(run)).filter(|_| !is_all);
        }
    }

    /// Returns the WELCOME frame for a client. Embedded clients get the same facts about the peer.
    pub(crate) fn welcome(&self, id: ClientId) -> Welcome {
        let settings = self.peer.settings();
        Welcome {
            version: VERSION,
            peer: settings.name.clone(),
            epoch: self.peer.epoch(),
            group: settings.group,
            port: self.sockets.group_address().port(),
            client: id.0,
            message_bytes_max: u32::try_from(settings.message_bytes_max).expect("at most 8 MiB"),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            offers_shared_memory: self.segments.is_offered(),
        }
    }

    /// Reports a refusal of the core to an attached client. Sessions of listener clients and callers of embedded
    /// clients get it from the request itself.
    pub(in crate::daemon) fn report_refusal(&mut self, id: ClientId, sub: Option<SubId>, refusal: &Refusal) {
        match self.clients.client(id).map(|client| &client.kind) {
            Some(ClientTransport::Attached(_)) => {
                self.clients
                    .answer(id, &PeerFrame::Refused(RequestRefusal { sub, reason: RefusalReason::from(refusal) }));
            }
            Some(ClientTransport::Embedded(_)) => tracing::debug!(client = id.0, ?refusal, "request refused"),
            _ => {}
        }
    }
}

/// Returns whether a frame must wait while publishers are blocked. All other frames are still processed.
fn must_wait(frame: &ClientFrame) -> bool {
    use ClientFrame::{Await, Flush, History, Publish, PublishBuffer, PublishRun};
    matches!(frame, Publish(_) | PublishBuffer { .. } | PublishRun(_) | History { .. } | Await { .. } | Flush { .. })
}

/// Encodes an answer. An answer that does not fit a frame becomes an error.
fn encode_answer(answer: &Value) -> Bytes {
    let bytes = serde_json::to_vec(answer).expect("JSON values can be written");
    if bytes.len() < FRAME_BYTES_MAX - 16 {
        return bytes.into();
    }
    let error = format!("the report has {} bytes, too many for one answer; ask with a lower limit", bytes.len());
    serde_json::to_vec(&json!({ "error": error })).expect("JSON values can be written").into()
}
