//! Serves listener clients: reads and processes their commands, within a budget for each turn.

use super::Listeners;
use super::client_certificate::HandshakeFault;
use super::connection::ListenerConnection;
use super::repeated_publishes::RepeatablePublish;
use super::session_requests::publish_for_session;
use crate::config::SlowClient;
use crate::daemon::connection_state::ReadOutcome;
use crate::daemon::engine_core::local_clients::TURN_BYTES;
use crate::daemon::engine_core::{DetachedClient, EngineCore};
use crate::daemon::event_report::EventReport;
use crate::daemon::service::Service;
use crate::listener::client::ClientFault;
use crate::listener::rv::RvHost;
use crate::listener::session_request::SessionRequest;
use crate::listener::websocket::WebSocketFault;
use crate::message::{ClientId, Target};
use crate::time::{ClockReading, Instant};
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum bytes read from one client before the others have their turn.
const READ_BYTES: usize = 128 * 1024;
/// Cost of a handshake in addition to its bytes: its computation takes about as long as reading this number of bytes.
const HANDSHAKE_BYTES: usize = 32 * 1024;
/// Maximum number of clients served in one turn.
const SERVED_MAX: usize = 256;
/// Maximum time for a client to read its remaining output before its connection ends.
const CLOSING_TIME: Duration = Duration::from_secs(5);
/// Maximum number of client deadlines served in one turn.
const WAKES_MAX: usize = 1024;

/// Outcome of serving a client once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServeOutcome {
    /// Nothing is left to do for now.
    Idle,
    /// The client may have more input.
    More,
    /// The next command must wait until publishers are not blocked, or until the subscriptions of other peers are
    /// known.
    PublishBlocked,
    /// The next command must wait until other clients have had their turn.
    Spent,
}

impl Service for Listeners {
    type Command = EventReport;

    fn on_command(&mut self, core: &mut EngineCore, now: ClockReading, command: EventReport) {
        match command {
            EventReport::Registered { registrant, events } => self.on_registered(core, now, registrant, events),
            EventReport::Found { requester, page } => {
                self.with_hat_session(core, now, requester.0, |session, out| {
                    session.on_answered(requester.1, page, out)
                });
            }
            EventReport::Refused { requester, refusal } => {
                self.with_hat_session(core, now, requester.0, |session, out| {
                    session.on_refusal(requester.1, &refusal, out);
                });
            }
        }
    }

    fn add_status(&self, core: &EngineCore, status: &mut Value) {
        status["listeners"] = self.status();
        status["listener_bytes"] = json!(core.clients.listener_delivery.memory.bytes());
    }

    /// Stops accepting clients.
    fn close(&mut self, core: &mut EngineCore) {
        for listener in &mut self.listeners {
            listener.is_acceptable = false;
            if let Err(error) = core.poll.registry().deregister(&mut listener.socket) {
                tracing::debug!(%error, "deregister");
            }
        }
    }

    fn on_turn(&mut self, core: &mut EngineCore, now: ClockReading) {
        // The clients may publish once the peer knows the interest of all others, or the discovery time has passed.
        let has_passed = self.discovery_end.is_some_and(|until| until <= now.instant);
        if has_passed || self.is_discovery_over(core) {
            self.discovery_end = None;
        }
        self.accept(core, now);
        self.serve(core, now);
        self.serve_rv_host(core, now);
    }

    fn before_writes(&mut self, core: &mut EngineCore, now: ClockReading) {
        self.report_slow_clients(core, now);
        self.serve_deferred_requests(core, now);
        self.answer_rv_queries(core, now);
    }

    fn after_writes(&mut self, core: &mut EngineCore, now: ClockReading) {
        self.evict(core, now);
        self.resume_clients(core, now);
    }

    fn on_detach(&mut self, core: &mut EngineCore, now: ClockReading, client: &mut DetachedClient) {
        self.release(core, now, client);
    }

    /// Notifies the clients that the peer is about to stop. Their pending publishes are refused.
    fn on_stop(&mut self, core: &mut EngineCore, _now: ClockReading) {
        for id in core.clients.ids() {
            if let Some(connection) = core.clients.listener_connection(id) {
                connection.answer(|session, out| session.on_stop(out));
                connection.awaited_version = None;
                core.clients.schedule_write(id);
            }
        }
        self.discovery_end = None;
    }

    fn has_work(&self, core: &EngineCore) -> bool {
        let may_publish = !core.is_publish_blocked() && self.is_discovery_over(core);
        let has_announcements = self.rv_host.as_ref().is_some_and(RvHost::has_messages);
        !self.ready.is_empty() || may_publish && (!self.publish_blocked.is_empty() || has_announcements)
    }

    fn deadline(&self, core: &EngineCore) -> Option<Instant> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        // The end of the discovery matters only to clients that wait for it.
        let has_announcements = self.rv_host.as_ref().is_some_and(RvHost::has_messages);
        let discovery = self.discovery_end.filter(|_| !self.publish_blocked.is_empty() || has_announcements);
        let discovery = discovery.map(|until| core.peer.discovery().map_or(until, |known| known.min(until)));
        let status = self.rv_host.as_ref().and_then(RvHost::deadline);
        [wake, discovery, status].into_iter().flatten().min()
    }
}

impl Listeners {
    /// Returns whether clients may publish as far as the discovery of other peers is concerned.
    fn is_discovery_over(&self, core: &EngineCore) -> bool {
        self.discovery_end.is_none() || core.peer.knows_all_interest()
    }

    /// Records the effects of a client's turn on its schedule, its encryption and its authentication.
    fn finish_turn(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId, outcome: ServeOutcome) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        connection.is_scheduled = outcome != ServeOutcome::Idle;
        self.unauthenticated_count -= usize::from(connection.update_progress(now.instant));
        core.clients.on_served(id);
        match outcome {
            ServeOutcome::More | ServeOutcome::Spent => self.ready.push_back(id),
            ServeOutcome::PublishBlocked => self.publish_blocked.push(id),
            ServeOutcome::Idle => {}
        }
        self.schedule_wake(core, now, id);
    }

    /// Serves listener clients: those whose deadline has come, then those with input, within a budget.
    fn serve(&mut self, core: &mut EngineCore, now: ClockReading) {
        for _ in 0..WAKES_MAX {
            match self.wakes.first() {
                Some((at, _)) if *at <= now.instant => {}
                _ => break,
            }
            let (_, id) = self.wakes.pop_first().expect("there is one");
            self.serve_deadline(core, now, id);
        }
        if !core.is_publish_blocked() && self.discovery_end.is_none() {
            let unblocked = std::mem::take(&mut self.publish_blocked);
            self.ready.extend(unblocked);
        }
        let mut budget = TURN_BYTES;
        for _ in 0..self.ready.len().min(SERVED_MAX) {
            if budget == 0 {
                return;
            }
            let Some(id) = self.ready.pop_front() else { return };
            let (outcome, cost) = self.serve_client(core, now, id, budget.min(READ_BYTES));
            budget = budget.saturating_sub(cost);
            self.finish_turn(core, now, id, outcome);
        }
    }

    /// Processes commands and reads alternately, until nothing is left or the budget is used up. Returns the outcome
    /// and the cost in bytes.
    fn serve_client(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        id: ClientId,
        budget: usize,
    ) -> (ServeOutcome, usize) {
        let Some(connection) = core.clients.listener_connection(id) else { return (ServeOutcome::Idle, 0) };
        // The cost includes input that was read before and not processed.
        let mut cost =
            if connection.flow.has_buffered_input { connection.parser.held_bytes().min(READ_BYTES) } else { 0 };
        loop {
            match self.process_client_commands(core, now, id, budget, &mut cost) {
                ServeOutcome::More => {}
                outcome => return (outcome, cost),
            }
            let Some(connection) = core.clients.listener_connection(id) else { return (ServeOutcome::Idle, cost) };
            if connection.flow.is_closing || !connection.flow.is_readable {
                return (ServeOutcome::Idle, cost);
            }
            if budget <= cost {
                return (ServeOutcome::More, cost);
            }
            let (was_handshaking, is_plain) = (connection.stream.is_handshaking(), connection.stream.is_plain());
            let reading = connection.read(now.instant, &mut core.scratch);
            if was_handshaking || connection.stream.is_handshaking() {
                cost += HANDSHAKE_BYTES;
            }
            if !is_plain {
                // The certificate of the client may have authenticated it.
                cost += self.drain_requests(core, now, id);
            }
            let Some(connection) = core.clients.listener_connection(id) else { return (ServeOutcome::Idle, cost) };
            match reading {
                ReadOutcome::Bytes(bytes) => cost += bytes,
                ReadOutcome::Nothing => return (ServeOutcome::Idle, cost),
                ReadOutcome::End if connection.stream.is_refused => {
                    let protocol = self.listeners[connection.listener].settings.protocol();
                    return (self.on_listener_fault(core, id, &ClientFault::not_encrypted(protocol)), cost);
                }
                // The client gets the answers to its last requests first, if it still reads.
                ReadOutcome::End => {
                    connection.flow.is_closing = true;
                    if let Some(fault) = connection.stream.take_handshake_fault() {
                        self.on_handshake_fault(core, id, &fault);
                    } else if let Some(fault) = connection.stream.take_web_socket_fault() {
                        self.on_web_socket_fault(core, id, fault);
                    }
                    return (ServeOutcome::Idle, cost);
                }
            }
        }
    }

    /// Processes the commands that were read, and adds the cost of answering them to `cost`. Returns
    /// [`ServeOutcome::More`] when it needs more bytes.
    fn process_client_commands(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        id: ClientId,
        budget: usize,
        cost: &mut usize,
    ) -> ServeOutcome {
        let mut is_delivered = false;
        loop {
            let is_publish_blocked = self.discovery_end.is_some() || !core.ensure_send_capacity();
            let Some(connection) = core.clients.listener_connection(id) else { return ServeOutcome::Idle };
            connection.flow.has_buffered_input = true;
            if connection.flow.is_closing || connection.unwritten.is_backpressured() || connection.session.is_full() {
                return ServeOutcome::Idle;
            }
            let command = match connection.parser.next() {
                Ok(Some(command)) => command,
                Ok(None) => {
                    connection.flow.has_buffered_input = false;
                    return ServeOutcome::More;
                }
                Err(fault) => return self.on_listener_fault(core, id, &fault),
            };
            if connection.awaited_version.is_some() && !command.is_subscribe() {
                connection.parser.repeat_last();
                return ServeOutcome::Idle;
            }
            if command.is_publish() {
                if is_publish_blocked {
                    connection.parser.repeat_last();
                    return ServeOutcome::PublishBlocked;
                }
                is_delivered = false;
            } else if !is_delivered {
                // The client receives earlier messages, its own among them, before the answer to a later request. They
                // are delivered now, because a delivery between two requests of one command would delay the second one.
                connection.parser.repeat_last();
                core.deliver_published(now);
                is_delivered = true;
                continue;
            }
            let ListenerConnection { session, unwritten, .. } = connection;
            let out = &mut unwritten.out;
            let request = match session.on_command(now.instant, command, out) {
                Ok(Some(SessionRequest::Publish(publish))) => {
                    let repeatable = RepeatablePublish::of(&publish).filter(|_| session.may_repeat_publishes());
                    publish_for_session(&mut core.peer, &mut core.receiver_waits, now, id, publish, session, out);
                    connection.unwritten.count_answers();
                    self.on_session_published(core, now, id, 1);
                    if let Some(last) = repeatable {
                        self.publish_repeated(core, now, id, &last);
                    }
                    continue;
                }
                Ok(request) => request.map(SessionRequest::detached),
                Err(fault) => return self.on_listener_fault(core, id, &fault),
            };
            connection.unwritten.count_answers();
            let first = request.map_or(0, |request| self.on_session_request(core, now, id, request));
            let request_cost = first + self.drain_requests(core, now, id);
            *cost += request_cost;
            if 0 < request_cost && budget <= *cost {
                return ServeOutcome::Spent;
            }
        }
    }

    /// Resumes clients that have read their answers, or whose subscriptions are confirmed.
    fn resume_clients(&mut self, core: &mut EngineCore, now: ClockReading) {
        for id in std::mem::take(&mut core.clients.listener_delivery.resumed) {
            self.drain_requests(core, now, id);
            core.clients.on_served(id);
            self.schedule_if_input(&mut core.clients, id);
        }
    }

    fn on_listener_fault(&mut self, core: &mut EngineCore, id: ClientId, fault: &ClientFault) -> ServeOutcome {
        let Some(connection) = core.clients.listener_connection(id) else { return ServeOutcome::Idle };
        let listener = &mut self.listeners[connection.listener];
        listener.counts.faults += 1;
        // A flood of faulty clients must not become a flood of log lines.
        if listener.counts.faults.is_power_of_two() {
            tracing::warn!(client = id.0, listener = listener.name, from = %connection.from, reason = %fault, faults = listener.counts.faults, "client rejected");
        } else {
            tracing::debug!(client = id.0, from = %connection.from, reason = %fault, "client rejected");
        }
        connection.answer(|session, out| session.on_fault(fault, out));
        connection.flow.is_closing = true;
        connection.flow.has_buffered_input = false;
        ServeOutcome::Idle
    }

    /// Counts and logs a handshake that failed. The client has got an alert, or has sent one.
    fn on_handshake_fault(&mut self, core: &mut EngineCore, id: ClientId, fault: &HandshakeFault) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        let listener = &mut self.listeners[connection.listener];
        if let Some(refusals) = listener.counts.count_refusal(fault.kind()) {
            tracing::warn!(client = id.0, listener = listener.name, from = %connection.from, reason = %fault, refusals, "client not encrypted");
        }
    }

    /// Counts and logs a WebSocket that was refused, or that its client has broken.
    fn on_web_socket_fault(&mut self, core: &mut EngineCore, id: ClientId, fault: WebSocketFault) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        let listener = &mut self.listeners[connection.listener];
        if let Some(refusals) = listener.counts.count_refusal(fault.kind()) {
            tracing::warn!(client = id.0, listener = listener.name, from = %connection.from, reason = %fault, refusals, "WebSocket refused");
        }
    }

    /// Serves a client whose deadline may have come.
    fn serve_deadline(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        connection.wake = None;
        connection.greet_at_deadline(now.instant);
        // A handshake can also end while output is written.
        self.unauthenticated_count -= usize::from(connection.update_progress(now.instant));
        // No fault can be reported to a client before its handshake is complete, so its connection just ends.
        let is_due = connection.deadline().is_some_and(|deadline| deadline <= now.instant);
        let is_unopened = is_due && connection.stream.awaits_upgrade();
        let is_over = connection.close_deadline.is_some_and(|close_deadline| close_deadline <= now.instant)
            || is_due && connection.stream.is_handshaking()
            || is_unopened;
        let fault = match is_due && !is_unopened && !connection.flow.is_closing {
            // A message in plain text, such as a PING, could collide with the first bytes of a handshake.
            true if connection.stream.awaits_encryption() || connection.stream.is_handshaking() => {
                Some(ClientFault::not_encrypted(self.listeners[connection.listener].settings.protocol()))
            }
            true => {
                let is_read = !connection.unwritten.is_backpressured();
                connection.answer(|session, out| session.on_deadline(now.instant, is_read, out)).err()
            }
            false => None,
        };
        if let Some(fault) = fault {
            self.on_listener_fault(core, id, &fault);
        }
        if is_unopened {
            self.on_web_socket_fault(core, id, WebSocketFault::Timeout);
        }
        self.drain_requests(core, now, id);
        core.clients.on_served(id);
        if is_over {
            self.detach(core, now, id);
        }
        self.schedule_wake(core, now, id);
    }

    /// Schedules the client's next deadline. If a deadline has moved to later, the client is still woken at the earlier
    /// time and then rescheduled.
    pub(super) fn schedule_wake(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        let deadline = match connection.flow.is_closing {
            true => Some(*connection.close_deadline.get_or_insert(now.instant + CLOSING_TIME)),
            false => connection.deadline(),
        };
        let Some(deadline) = deadline else { return };
        if connection.wake.is_some_and(|wake| wake <= deadline) {
            return;
        }
        if let Some(wake) = connection.wake.replace(deadline) {
            self.wakes.remove(&(wake, id));
        }
        self.wakes.insert((deadline, id));
    }

    /// Reports their losses to slow clients that read again: those that subscribe to the advisory, or all if their
    /// protocol wants the report ahead of what waits. If `slow-client` is `close`, closes newly slow clients instead.
    fn report_slow_clients(&mut self, core: &mut EngineCore, now: ClockReading) {
        let mut slow = std::mem::take(&mut self.slow);
        let earlier_count = slow.len();
        core.clients.take_slow(&mut slow);
        for (index, id) in slow.into_iter().enumerate() {
            let Some(connection) = core.clients.listener_connection(id) else { continue };
            if earlier_count <= index {
                let (listener, from) = (&mut self.listeners[connection.listener], connection.from);
                listener.counts.slow += 1;
                if self.slow_client == SlowClient::Close {
                    tracing::warn!(client = id.0, listener = listener.name, %from, "client closed, as slow-client says");
                    self.detach(core, now, id);
                    continue;
                }
            }
            let connection = core.clients.listener_connection(id).expect("the client was found above");
            if connection.session.reports_drops_ahead() {
                if !connection.report_drops_ahead(now.instant) {
                    self.slow.push(id);
                }
                core.clients.schedule_write(id);
                self.schedule_wake(core, now, id);
                continue;
            }
            let me = core.me();
            let scid = core.sockets.group_address().port();
            let Some(advisory) = core.clients.take_drop_advisory(id, &me, scid) else {
                self.slow.push(id);
                continue;
            };
            let targets = core.peer.targets(&advisory.message.subject);
            let own: Vec<Target> =
                targets.iter().flat_map(|to| to.iter()).filter(|to| to.client == id).copied().collect();
            if !own.is_empty() {
                core.clients.advise(now, &own, advisory);
            }
        }
    }
}
