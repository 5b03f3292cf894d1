//! Service of listener clients: processes their commands and answers them.

use super::connection::ListenerConnection;
use super::stream::Stream;
use crate::clock::random_u64;
use crate::config::SlowClient;
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine::Engine;
use crate::daemon::engine::confirmation::Subscriber;
use crate::daemon::engine::local_clients::TURN_BYTES;
use crate::daemon::engine::receiver_waits::ReceiverWaits;
use crate::daemon::flow::ReadOutcome;
use crate::daemon::tokens::client_token;
use crate::listener::client::{ClientFault, ClientSession};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{
    ConnectionInfo, JournalRequest, ListedSubscription, Publish, ReceiverCount, ServerFacts, SessionRequest,
};
use crate::message::{ClientId, Message, Target};
use crate::proto::effect::ClientRequest;
use crate::proto::peer::Peer;
use crate::subject::Subject;
use crate::time::ClockReading;
use bytes::Bytes;
use mio::Interest;
use mio::net::TcpStream;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum bytes read from one client before the others have their turn.
const READ_BYTES: usize = 128 * 1024;
/// Cost of a handshake in addition to its bytes: its computation takes about as long as reading this number of bytes.
const HANDSHAKE_BYTES: usize = 32 * 1024;
/// Maximum number of clients accepted at one listener in one turn. Others wait in the system's queue, so that a flood
/// of them does not keep the peer from its work.
const ACCEPTS_MAX: usize = 64;
/// Number of departed or authenticated clients that the list of unauthenticated ones may still contain.
const UNAUTHENTICATED_SLACK: usize = 64;
/// Maximum number of clients served in one turn.
const SERVED_MAX: usize = 256;
/// Maximum time for a client to read its remaining output before its connection ends.
const CLOSING_TIME: Duration = Duration::from_secs(5);
/// Cost of a row inspected for an answer, in bytes read that take about as long.
const ROW_BYTES: usize = 64;
/// Number of matching steps that cost as much as a row.
const ROW_STEPS: usize = 64;
/// Maximum cost of one answer in rows.
const ROWS_MAX: usize = TURN_BYTES / ROW_BYTES;
/// Maximum number of client deadlines served in one turn.
const WAKES_MAX: usize = 1024;

/// Outcome of a client's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing is left to do for now.
    Idle,
    /// There may be more.
    More,
    /// The next command must wait until publishers are not blocked, or until the subscriptions of other peers are
    /// known.
    HeldUp,
    /// The next command must wait until other clients have had their turn.
    Spent,
}

impl Engine {
    /// Accepts new clients of the listeners.
    pub(crate) fn accept_at_listeners(&mut self, now: ClockReading) {
        for listener in 0..self.listeners.open.len() {
            let mut left = ACCEPTS_MAX;
            while 0 < left && self.listeners.open[listener].is_acceptable && self.is_running() {
                left -= 1;
                match self.listeners.open[listener].socket.accept() {
                    Ok((stream, from)) => self.admit(now, listener, stream, from),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.listeners.open[listener].is_acceptable = false;
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        // Usually the process is out of files: the listener accepts again when a client departs or
                        // another one connects.
                        let open = &mut self.listeners.open[listener];
                        open.is_acceptable = false;
                        open.counts.accept_failures += 1;
                        if open.counts.accept_failures.is_power_of_two() {
                            let (protocol, times) = (open.settings.protocol(), open.counts.accept_failures);
                            tracing::warn!(%error, listener = %protocol, times, "client not accepted");
                        }
                    }
                }
            }
        }
    }

    fn admit(&mut self, now: ClockReading, listener: usize, mut stream: TcpStream, from: SocketAddr) {
        self.listeners.open[listener].counts.accepted += 1;
        if self.listeners.clients_max <= self.listeners.clients {
            return self.reject_connection(listener, &stream, "listener-client-max", self.listeners.clients_max);
        }
        if self.listeners.unauthenticated_max <= self.listeners.unauthenticated_count
            && !self.evict_unauthenticated(now)
        {
            return self.reject_connection(
                listener,
                &stream,
                "listener-unauthenticated-max",
                self.listeners.unauthenticated_max,
            );
        }
        let id = self.clients.peek_next();
        let registered =
            self.poll.registry().register(&mut stream, client_token(id), Interest::READABLE | Interest::WRITABLE);
        if let Err(error) = registered.and_then(|()| stream.set_nodelay(true)) {
            tracing::debug!(%error, "client not accepted");
            return;
        }
        let open = &mut self.listeners.open[listener];
        open.clients += 1;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&random_u64().to_be_bytes());
        nonce[8..].copy_from_slice(&random_u64().to_be_bytes());
        let hello = ConnectionInfo { client: id.0, from, listen: open.address, nonce, is_secure: open.tls.is_some() };
        let stream = Stream::new(stream, open.tls.as_ref());
        let limits = self.clients.limits();
        let mut connection = ListenerConnection::new(stream, &open.settings, &hello, listener, limits, now.instant);
        connection.is_scheduled = true;
        if connection.session.is_admitted() {
            connection.parser.admit();
            connection.account = Some(String::new());
        }
        connection.write();
        connection.is_unauthenticated = !connection.is_authenticated();
        let is_unauthenticated = connection.is_unauthenticated;
        let protocol = open.settings.protocol();
        self.listeners.clients += 1;
        self.clients.add(now, String::new(), ClientTransport::Listener(Box::new(connection)));
        if let Some(client) = self.clients.client(id) {
            client.origin = Some((protocol, from));
        }
        self.listeners.ready.push_back(id);
        if is_unauthenticated {
            self.listeners.unauthenticated_count += 1;
            self.listeners.unauthenticated.push_back(id);
            self.prune_authenticated();
        }
        self.drain_requests(now, id);
        self.clients.on_served(id);
        self.schedule_wake(now, id);
    }

    /// Rejects a connection because a client limit is reached.
    fn reject_connection(&mut self, listener: usize, mut stream: &TcpStream, key: &str, max: usize) {
        let open = &mut self.listeners.open[listener];
        open.counts.refused += 1;
        if let Some(text) = open.settings.overload_reply() {
            // An empty socket takes these few bytes; a departed client no longer needs them.
            let _ = stream.write(text);
        }
        if open.counts.refused.is_power_of_two() {
            let protocol = open.settings.protocol();
            tracing::warn!(listener = %protocol, refused = open.counts.refused, max, "no place for a client: see {key}");
        }
    }

    /// Records the effects of a client's turn on its schedule, its encryption and its authentication.
    fn finish_turn(&mut self, now: ClockReading, id: ClientId, turn: Turn) {
        let Some(connection) = self.clients.listener(id) else { return };
        connection.is_scheduled = turn != Turn::Idle;
        connection.note_encryption(now.instant);
        if connection.is_unauthenticated && connection.is_authenticated() {
            connection.is_unauthenticated = false;
            self.listeners.unauthenticated_count -= 1;
        }
        self.clients.on_served(id);
        match turn {
            Turn::More | Turn::Spent => self.listeners.ready.push_back(id),
            Turn::HeldUp => self.listeners.held_up.push(id),
            Turn::Idle => {}
        }
        self.schedule_wake(now, id);
    }

    /// Removes departed and authenticated clients from the list of unauthenticated ones when they are the majority.
    fn prune_authenticated(&mut self) {
        if self.listeners.unauthenticated.len() <= 2 * self.listeners.unauthenticated_count + UNAUTHENTICATED_SLACK {
            return;
        }
        let clients = &mut self.clients;
        let mut is_unauthenticated =
            |id: &ClientId| clients.listener(*id).is_some_and(|client| client.is_unauthenticated);
        self.listeners.unauthenticated.retain(|id| is_unauthenticated(id));
    }

    /// Evicts the oldest unauthenticated client. Returns false if there is none.
    fn evict_unauthenticated(&mut self, now: ClockReading) -> bool {
        while let Some(id) = self.listeners.unauthenticated.pop_front() {
            if self.clients.listener(id).is_some_and(|connection| connection.is_unauthenticated) {
                self.detach(now, id);
                return true;
            }
        }
        false
    }

    /// Releases the resources of a departed listener client.
    pub(crate) fn on_listener_disconnect(
        &mut self,
        now: ClockReading,
        id: ClientId,
        connection: &mut ListenerConnection,
    ) {
        connection.stream.close();
        if let ClientSession::Hat(client) = &mut connection.session {
            client
                .take_final_registrations()
                .into_iter()
                .for_each(|registrations| self.register_internal(now, registrations));
        }
        if let Err(error) = self.poll.registry().deregister(&mut connection.stream.socket) {
            tracing::debug!(%error, client = id.0, "deregister");
        }
        let open = &mut self.listeners.open[connection.listener];
        open.clients -= 1;
        self.listeners.clients -= 1;
        self.listeners.unauthenticated_count -= usize::from(connection.is_unauthenticated);
        open.counts.unauthorized += u64::from(connection.account.is_none());
        if let Some(wake) = connection.wake.take() {
            self.listeners.wakes.remove(&(wake, id));
        }
        for open in &mut self.listeners.open {
            open.is_acceptable = true;
        }
    }

    /// Serves listener clients: those whose deadline has come, then those with input, within a budget.
    pub(crate) fn serve_listeners(&mut self, now: ClockReading) {
        for _ in 0..WAKES_MAX {
            match self.listeners.wakes.first() {
                Some((at, _)) if *at <= now.instant => {}
                _ => break,
            }
            let (_, id) = self.listeners.wakes.pop_first().expect("there is one");
            self.serve_deadline(now, id);
        }
        if !self.is_publish_blocked() && self.discovery_end.is_none() {
            let held_up = std::mem::take(&mut self.listeners.held_up);
            self.listeners.ready.extend(held_up);
        }
        let mut budget = TURN_BYTES;
        for _ in 0..self.listeners.ready.len().min(SERVED_MAX) {
            if budget == 0 {
                return;
            }
            let Some(id) = self.listeners.ready.pop_front() else { return };
            let (turn, cost) = self.serve_client(now, id, budget.min(READ_BYTES));
            budget = budget.saturating_sub(cost);
            self.finish_turn(now, id, turn);
        }
    }

    /// Processes commands and reads alternately, until nothing is left or the budget is used up. Returns the cost as
    /// well.
    fn serve_client(&mut self, now: ClockReading, id: ClientId, budget: usize) -> (Turn, usize) {
        let Some(connection) = self.clients.listener(id) else { return (Turn::Idle, 0) };
        // The cost includes input that was read before and not processed.
        let mut cost =
            if connection.flow.has_buffered_input { connection.parser.held_bytes().min(READ_BYTES) } else { 0 };
        loop {
            match self.process_client_commands(now, id, budget, &mut cost) {
                Turn::More => {}
                turn => return (turn, cost),
            }
            let Some(connection) = self.clients.listener(id) else { return (Turn::Idle, cost) };
            if connection.flow.is_closing || !connection.flow.is_readable {
                return (Turn::Idle, cost);
            }
            if budget <= cost {
                return (Turn::More, cost);
            }
            let was_handshaking = connection.stream.is_handshaking();
            let reading = connection.read(&mut self.scratch);
            if was_handshaking || connection.stream.is_handshaking() {
                cost += HANDSHAKE_BYTES;
            }
            match reading {
                ReadOutcome::Bytes(bytes) => cost += bytes,
                ReadOutcome::Nothing => return (Turn::Idle, cost),
                ReadOutcome::End if connection.stream.is_refused => {
                    let protocol = self.listeners.open[connection.listener].settings.protocol();
                    return (self.on_listener_fault(id, &ClientFault::not_encrypted(protocol)), cost);
                }
                // Its requests before the end are answered first, if it still reads.
                ReadOutcome::End => {
                    connection.flow.is_closing = true;
                    return (Turn::Idle, cost);
                }
            }
        }
    }

    /// Processes the commands that were read, and adds the cost of answering them to `cost`. Returns [`Turn::More`]
    /// when it needs more bytes.
    fn process_client_commands(&mut self, now: ClockReading, id: ClientId, budget: usize, cost: &mut usize) -> Turn {
        let mut is_settled = false;
        loop {
            let is_publish_blocked = self.discovery_end.is_some() || !self.ensure_send_capacity();
            let Some(connection) = self.clients.listener(id) else { return Turn::Idle };
            connection.flow.has_buffered_input = true;
            if connection.flow.is_closing || connection.unwritten.is_backpressured() || connection.session.is_full() {
                return Turn::Idle;
            }
            let command = match connection.parser.next() {
                Ok(Some(command)) => command,
                Ok(None) => {
                    connection.flow.has_buffered_input = false;
                    return Turn::More;
                }
                Err(fault) => return self.on_listener_fault(id, &fault),
            };
            if connection.unconfirmed.is_some() && !command.is_subscribe() {
                connection.parser.repeat_last();
                return Turn::Idle;
            }
            if command.is_publish() {
                if is_publish_blocked {
                    connection.parser.repeat_last();
                    return Turn::HeldUp;
                }
                is_settled = false;
            } else if !is_settled {
                // The client receives earlier messages, its own among them, before the answer to a later request. A
                // delivery between two requests of one command would put the second one off.
                connection.parser.repeat_last();
                self.settle(now);
                is_settled = true;
                continue;
            }
            let ListenerConnection { session, unwritten, .. } = connection;
            let out = &mut unwritten.out;
            let request = match session.on_command(now.instant, command, out) {
                Ok(Some(SessionRequest::Publish(publish))) => {
                    publish_for_session(&mut self.peer, &mut self.receiver_waits, now, id, publish, session, out);
                    connection.unwritten.note_answers();
                    self.on_session_published(now, id);
                    continue;
                }
                Ok(request) => request.map(SessionRequest::detached),
                Err(fault) => return self.on_listener_fault(id, &fault),
            };
            connection.unwritten.note_answers();
            let first = request.map_or(0, |request| self.on_session_request(now, id, request));
            let asked = first + self.drain_requests(now, id);
            *cost += asked;
            if 0 < asked && budget <= *cost {
                return Turn::Spent;
            }
        }
    }

    /// Serves the remaining requests of a client's session. Returns their cost.
    pub(crate) fn drain_requests(&mut self, now: ClockReading, id: ClientId) -> usize {
        let mut cost = 0;
        while let Some(request) = self.clients.listener(id).and_then(ListenerConnection::poll_request) {
            cost += self.on_session_request(now, id, request);
        }
        cost
    }

    /// Delivers the messages published so far.
    fn settle(&mut self, now: ClockReading) {
        self.peer.settle();
        if self.peer.has_effects() {
            self.apply_effects(now);
        }
    }

    /// Counts and logs a refusal whose reason the client's protocol cannot report. Each kind has its own count, so that
    /// the first refusal of a new kind is always logged.
    fn on_listener_refusal(&mut self, id: ClientId, kind: &'static str, reason: &str) {
        let Some(connection) = self.clients.listener(id) else { return };
        let open = &mut self.listeners.open[connection.listener];
        if let Some(refusals) = open.counts.count_refusal(kind) {
            let protocol = open.settings.protocol();
            tracing::warn!(client = id.0, listener = %protocol, from = %connection.from, kind, reason, refusals, "request refused");
        }
    }

    /// Serves the requests of sessions that result from deliveries.
    pub(crate) fn serve_deferred_requests(&mut self, now: ClockReading) {
        while let Some((id, request)) = self.clients.listener_delivery.deferred_requests.pop_front() {
            self.on_session_request(now, id, request);
            self.drain_requests(now, id);
            self.clients.on_served(id);
            self.schedule_wake(now, id);
        }
    }

    /// Resumes clients that are no longer backpressured by unread answers.
    pub(crate) fn resume_at_listeners(&mut self, now: ClockReading) {
        for id in std::mem::take(&mut self.clients.listener_delivery.resumed) {
            self.drain_requests(now, id);
            self.clients.on_served(id);
            self.listeners.note(&mut self.clients, id);
        }
    }

    /// Counts a message that a session has published, and applies its effects. Requests of the session come first.
    fn on_session_published(&mut self, now: ClockReading, id: ClientId) {
        self.listeners.published += 1;
        self.drain_requests(now, id);
        // The session has been notified of a refusal.
        self.on_published(now, id, Ok(()));
    }

    /// Returns the receivers of a message of this client on `subject`.
    pub(crate) fn receivers(&mut self, id: ClientId, subject: &Subject) -> ReceiverCount {
        let (count, is_certain) = self.peer.receivers(id, subject);
        ReceiverCount { count, is_certain }
    }

    /// Serves a request of a session. Returns its cost beyond the command, in bytes read.
    fn on_session_request(&mut self, now: ClockReading, id: ClientId, request: SessionRequest<'static>) -> usize {
        let Some(connection) = self.clients.listener(id) else { return 0 };
        let mut rows = 0;
        match request {
            SessionRequest::Publish(publish) => {
                let ListenerConnection { session, unwritten, .. } = connection;
                let out = &mut unwritten.out;
                publish_for_session(&mut self.peer, &mut self.receiver_waits, now, id, publish, session, out);
                connection.unwritten.note_answers();
                self.on_session_published(now, id);
            }
            SessionRequest::Subscribe { sub, wanted } => {
                let mode = self.default_mode(&wanted);
                let subscribed = self.request(now, id, ClientRequest::Subscribe { sub, wanted, mode, news: false });
                let awaited = subscribed.is_ok().then(|| self.confirm(now, Subscriber::Listener(id))).flatten();
                let Some(connection) = self.clients.listener(id) else { return 0 };
                connection.unconfirmed = awaited.or(connection.unconfirmed);
                if let Err(refusal) = subscribed {
                    connection.answer(|session, out| session.on_refused(Some(sub), &refusal, out));
                }
            }
            SessionRequest::Unsubscribe { sub } => {
                self.request_or_report(now, id, ClientRequest::Unsubscribe { sub });
            }
            SessionRequest::Echo(is_on) => {
                self.request_or_report(now, id, ClientRequest::Echo(is_on));
            }
            SessionRequest::Count { subjects } => {
                let counts: Vec<ReceiverCount> = subjects.iter().map(|subject| self.receivers(id, subject)).collect();
                let found: u64 = counts.iter().map(|receivers| receivers.count).sum();
                rows = counts.len() + usize::try_from(found).unwrap_or(ROWS_MAX).min(ROWS_MAX);
                self.answer_session(id, |session, out| session.on_counts(&counts, out));
            }
            SessionRequest::List => {
                let listed: Vec<ListedSubscription> =
                    self.peer.sub_rows().into_iter().map(|row| ListedSubscription { wanted: row.wanted }).collect();
                rows = listed.len();
                let steps = self.answer_session(id, |session, out| session.on_subscription_list(&listed, out));
                rows += steps.unwrap_or(0) / ROW_STEPS;
            }
            SessionRequest::ServerFacts => {
                let listener = connection.listener;
                let facts = self.facts(now, listener);
                self.answer_session(id, |session, out| session.on_server_facts(&facts, out));
            }
            SessionRequest::Clients { only } => {
                let listener = connection.listener;
                let clients = self.clients.listener_facts(now, listener, only.map(ClientId));
                rows = if only.is_some() { 1 } else { self.clients.len() };
                self.answer_session(id, |session, out| session.on_clients(&clients, out));
            }
            SessionRequest::Admitted { account } => {
                connection.parser.admit();
                tracing::debug!(client = id.0, account, from = %connection.from, "client admitted");
                // Without configured accounts the client has authenticated nothing.
                let has_accounts = !self.listeners.open[connection.listener].settings.access().accounts.is_empty();
                connection.account = Some(if has_accounts { account } else { String::new() });
            }
            SessionRequest::Named { name } => {
                if let Some(client) = self.clients.client(id) {
                    client.name = name;
                }
            }
            SessionRequest::Events(JournalRequest { id: number, request }) => {
                self.request_listener_events(now, id, number, request)
            }
            SessionRequest::Refused { kind, reason } => self.on_listener_refusal(id, kind, &reason),
            SessionRequest::Kill { client } if client == id.0 => connection.flow.is_closing = true,
            SessionRequest::Kill { client } => {
                let (other, listener) = (ClientId(client), connection.listener);
                if self.clients.listener(other).is_some_and(|other| other.listener == listener) {
                    self.detach(now, other);
                }
            }
            SessionRequest::Close => connection.flow.is_closing = true,
        }
        rows * ROW_BYTES
    }

    /// Lets the session of a client write an answer, if the client is still there.
    fn answer_session<T>(
        &mut self,
        id: ClientId,
        write: impl FnOnce(&mut ClientSession, &mut OutputBuffer) -> T,
    ) -> Option<T> {
        self.clients.listener(id).map(|connection| connection.answer(write))
    }

    /// Returns the facts about the peer that the listener with this index reports.
    fn facts(&self, now: ClockReading, listener: usize) -> ServerFacts {
        let open = &self.listeners.open[listener];
        ServerFacts {
            peer: self.peer.settings().name.clone(),
            epoch: self.peer.epoch().to_string(),
            listen: open.address,
            pid: std::process::id(),
            uptime_secs: now.instant.since(self.started.instant).as_secs(),
            clients: open.clients,
            clients_total: open.counts.accepted,
            clients_refused: open.counts.refused,
            published: self.listeners.published,
            dropped: self.clients.listener_delivery.dropped,
        }
    }

    fn on_listener_fault(&mut self, id: ClientId, fault: &ClientFault) -> Turn {
        let Some(connection) = self.clients.listener(id) else { return Turn::Idle };
        let open = &mut self.listeners.open[connection.listener];
        open.counts.faults += 1;
        // A flood of faulty clients must not become a flood of log lines.
        if open.counts.faults.is_power_of_two() {
            let protocol = open.settings.protocol();
            tracing::warn!(client = id.0, listener = %protocol, from = %connection.from, reason = %fault, faults = open.counts.faults, "client turned away");
        } else {
            tracing::debug!(client = id.0, from = %connection.from, reason = %fault, "client turned away");
        }
        connection.answer(|session, out| session.on_fault(fault, out));
        connection.flow.is_closing = true;
        connection.flow.has_buffered_input = false;
        Turn::Idle
    }

    /// Serves a client whose deadline may have come.
    fn serve_deadline(&mut self, now: ClockReading, id: ClientId) {
        let Some(connection) = self.clients.listener(id) else { return };
        connection.wake = None;
        // Nothing can be sent to the client before the end of its handshake.
        let is_due = connection.deadline().is_some_and(|deadline| deadline <= now.instant);
        let is_over = connection.close_deadline.is_some_and(|close_deadline| close_deadline <= now.instant)
            || is_due && connection.stream.is_handshaking();
        let fault = match is_due && !connection.flow.is_closing {
            // A plain request sent now could collide with the first bytes of a handshake.
            true if connection.stream.awaits_encryption() || connection.stream.is_handshaking() => {
                Some(ClientFault::not_encrypted(self.listeners.open[connection.listener].settings.protocol()))
            }
            true => {
                let is_read = !connection.unwritten.is_backpressured();
                connection.answer(|session, out| session.on_deadline(now.instant, is_read, out)).err()
            }
            false => None,
        };
        if let Some(fault) = fault {
            self.on_listener_fault(id, &fault);
        }
        self.drain_requests(now, id);
        self.clients.on_served(id);
        if is_over {
            self.detach(now, id);
        }
        self.schedule_wake(now, id);
    }

    /// Schedules the client's next deadline. If a deadline has moved to later, the client is still woken at the earlier
    /// time and then rescheduled.
    pub(crate) fn schedule_wake(&mut self, now: ClockReading, id: ClientId) {
        let Some(connection) = self.clients.listener(id) else { return };
        let deadline = match connection.flow.is_closing {
            true => Some(*connection.close_deadline.get_or_insert(now.instant + CLOSING_TIME)),
            false => connection.deadline(),
        };
        let Some(deadline) = deadline else { return };
        if connection.wake.is_some_and(|wake| wake <= deadline) {
            return;
        }
        if let Some(wake) = connection.wake.replace(deadline) {
            self.listeners.wakes.remove(&(wake, id));
        }
        self.listeners.wakes.insert((deadline, id));
    }

    /// Reports to slow clients what they lost, once they read again, if they subscribe to the advisory. Closes them
    /// instead if `slow-client` says so.
    pub(crate) fn report_slow_clients(&mut self, now: ClockReading) {
        let mut slow = std::mem::take(&mut self.listeners.slow);
        let known = slow.len();
        self.clients.take_slow(&mut slow);
        for (index, id) in slow.into_iter().enumerate() {
            let Some(connection) = self.clients.listener(id) else { continue };
            if known <= index {
                let (open, from) = (&mut self.listeners.open[connection.listener], connection.from);
                open.counts.slow += 1;
                if self.listeners.slow_client == SlowClient::Close {
                    let protocol = open.settings.protocol();
                    tracing::warn!(client = id.0, listener = %protocol, %from, "client closed, as slow-client says");
                    self.detach(now, id);
                    continue;
                }
            }
            let me = self.me();
            let scid = self.sockets.group_address().port();
            let Some(advisory) = self.clients.take_drop_advisory(id, &me, scid) else {
                self.listeners.slow.push(id);
                continue;
            };
            let targets = self.peer.targets(&advisory.message.subject);
            let own: Vec<Target> =
                targets.iter().flat_map(|to| to.iter()).filter(|to| to.client == id).copied().collect();
            if !own.is_empty() {
                self.clients.deliver(now, &own, advisory.into());
            }
        }
    }

    /// Evicts the clients that hold most, as long as listener clients together exceed their memory limit.
    pub(crate) fn evict(&mut self, now: ClockReading) {
        if !self.clients.listener_delivery.memory.is_full() {
            return;
        }
        for (bytes, id) in self.clients.by_held_bytes() {
            if !self.clients.listener_delivery.memory.is_full() {
                return;
            }
            if let Some(connection) = self.clients.listener(id) {
                let (open, from) = (&mut self.listeners.open[connection.listener], connection.from);
                open.counts.evicted += 1;
                if open.counts.evicted.is_power_of_two() {
                    let (protocol, evicted) = (open.settings.protocol(), open.counts.evicted);
                    tracing::warn!(client = id.0, listener = %protocol, %from, bytes, evicted, "client closed that held most: see listener-memory");
                }
            }
            self.detach(now, id);
        }
    }

    /// Notifies the listener clients that the peer is about to stop.
    pub(crate) fn announce_stop(&mut self) {
        for id in self.clients.ids() {
            if let Some(connection) = self.clients.listener(id) {
                connection.answer(|session, out| session.on_stop(out));
                connection.unconfirmed = None;
                self.clients.schedule_write(id);
            }
        }
    }
}

/// Publishes a message of a session, and notifies the session of a refusal or of the receivers.
fn publish_for_session(
    peer: &mut Peer,
    waits: &mut ReceiverWaits,
    now: ClockReading,
    id: ClientId,
    publish: Publish<'_>,
    session: &mut ClientSession,
    out: &mut OutputBuffer,
) {
    let Publish { subject, reply, headers, payload, wants_receivers } = publish;
    let published = if reply.is_none() && headers.is_empty() {
        peer.publish_payload(now, id, &subject, payload)
    } else {
        let payload = Bytes::copy_from_slice(payload);
        let message = Message { reply: reply.clone(), headers, ..Message::new(subject.clone(), payload) };
        peer.publish(now, id, &message)
    };
    if let Err(refusal) = published {
        return session.on_refused(None, &refusal, out);
    }
    if wants_receivers {
        let (count, is_certain) = peer.receivers(id, &subject);
        match reply {
            Some(reply) if count == 0 && !is_certain => waits.await_absence(now.instant, id, reply, subject),
            reply => session.on_published(reply.as_ref(), ReceiverCount { count, is_certain }, out),
        }
    }
}

/// Returns whether an accept error concerns only the connection to be accepted, not all connections.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
