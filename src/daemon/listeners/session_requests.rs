//! Requests of the sessions of listener clients to the peer, and their answers.

use super::Listeners;
use super::connection::ListenerConnection;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::engine_core::confirmation::Subscriber;
use crate::daemon::engine_core::local_clients::TURN_BYTES;
use crate::daemon::engine_core::receiver_waits::{ReceiverWaits, count_receivers};
use crate::daemon::event_request::{EventRequester, EventServiceCommand};
use crate::daemon::internal_command::InternalCommand;
use crate::listener::client::ClientSession;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::Denial;
use crate::listener::session_request::{
    JournalRequest, ListedSubscription, Publish, ReceiverCount, ServerFacts, SessionRequest,
};
use crate::message::{ClientId, Message, SubId, SubscriptionFilter};
use crate::proto::effect::ClientRequest;
use crate::proto::peer::Peer;
use crate::subject::Subject;
use crate::time::ClockReading;
use bytes::Bytes;

/// Cost of a row inspected for an answer: number of bytes whose reading takes about as long.
const ROW_BYTES: usize = 64;
/// Number of matching steps that cost as much as a row.
const ROW_STEPS: usize = 64;
/// Maximum cost of one answer in rows.
const ROWS_MAX: usize = TURN_BYTES / ROW_BYTES;

impl Listeners {
    /// Serves a request of a session. Returns its cost beyond that of reading the command, in bytes.
    pub(super) fn on_session_request(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        id: ClientId,
        request: SessionRequest<'static>,
    ) -> usize {
        let Some(connection) = core.clients.listener_connection(id) else { return 0 };
        let mut rows = 0;
        match request {
            SessionRequest::Publish(publish) => {
                let ListenerConnection { session, unwritten, .. } = connection;
                let out = &mut unwritten.out;
                publish_for_session(&mut core.peer, &mut core.receiver_waits, now, id, publish, session, out);
                connection.unwritten.count_answers();
                self.on_session_published(core, now, id, 1);
            }
            SessionRequest::Subscribe { sub, filter } => subscribe_session(core, now, id, sub, filter),
            SessionRequest::Unsubscribe { sub } => {
                core.request_or_report(now, id, ClientRequest::Unsubscribe { sub });
            }
            SessionRequest::Echo(is_on) => {
                core.request_or_report(now, id, ClientRequest::Echo(is_on));
            }
            SessionRequest::Count { subjects } => rows = answer_receiver_counts(core, id, &subjects),
            SessionRequest::List => rows = answer_subscription_list(core, id),
            SessionRequest::ServerFacts => {
                let listener = connection.listener;
                let facts = self.facts(core, now, listener);
                answer_session(core, id, |session, out| session.on_server_facts(&facts, out));
            }
            SessionRequest::Clients { only } => {
                let listener = connection.listener;
                let clients = core.clients.listener_facts(now, listener, only.map(ClientId));
                rows = if only.is_some() { 1 } else { core.clients.len() };
                answer_session(core, id, |session, out| session.on_clients(&clients, out));
            }
            SessionRequest::Admitted { account } => {
                connection.parser.admit();
                tracing::debug!(client = id.0, account, from = %connection.from, "client admitted");
                // Without configured accounts the client has authenticated nothing.
                let has_accounts = !self.listeners[connection.listener].settings.access().accounts.is_empty();
                connection.account = Some(if has_accounts { account } else { String::new() });
            }
            SessionRequest::Named { name } => {
                if let Some(client) = core.clients.client(id) {
                    client.name = name;
                }
            }
            SessionRequest::Events(JournalRequest { id: number, request }) => {
                let requester = EventRequester::Listener(id, number);
                core.queue_command(InternalCommand::Events(EventServiceCommand::Request { requester, request }));
            }
            SessionRequest::Rv(request) => self.on_rv_request(core, now, id, request),
            SessionRequest::Refused { kind, reason } => self.on_listener_refusal(core, id, kind, &reason),
            SessionRequest::Denied(denial) => self.on_denied(core, id, &denial),
            SessionRequest::Kill { client } if client == id.0 => connection.flow.is_closing = true,
            SessionRequest::Kill { client } => {
                let (other, listener) = (ClientId(client), connection.listener);
                if core.clients.listener_connection(other).is_some_and(|other| other.listener == listener) {
                    self.detach(core, now, other);
                }
            }
            SessionRequest::Close => connection.flow.is_closing = true,
        }
        rows * ROW_BYTES
    }

    /// Returns the facts about the peer that the listener with this index reports.
    fn facts(&self, core: &EngineCore, now: ClockReading, index: usize) -> ServerFacts {
        let listener = &self.listeners[index];
        ServerFacts {
            peer: core.peer.settings().name.clone(),
            epoch: core.peer.epoch().to_string(),
            listen: listener.address,
            pid: std::process::id(),
            uptime_secs: now.instant.since(core.started.instant).as_secs(),
            clients: listener.clients,
            clients_total: listener.counts.accepted,
            clients_refused: listener.counts.refused,
            published: self.published,
            dropped: core.clients.listener_delivery.dropped,
        }
    }

    /// Counts `count` messages that a session has published, and applies their effects. Requests of the session come
    /// first. It knows of refusals already.
    pub(super) fn on_session_published(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId, count: u64) {
        self.published += count;
        self.drain_requests(core, now, id);
        core.on_published_many(now, id, count);
    }

    /// Serves the remaining requests of a client's session. Returns their cost.
    pub(super) fn drain_requests(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId) -> usize {
        let mut cost = 0;
        while let Some(request) = core.clients.listener_connection(id).and_then(ListenerConnection::poll_request) {
            cost += self.on_session_request(core, now, id, request);
        }
        cost
    }

    /// Serves the requests of sessions that result from deliveries.
    pub(super) fn serve_deferred_requests(&mut self, core: &mut EngineCore, now: ClockReading) {
        while let Some((id, request)) = core.clients.listener_delivery.deferred_requests.pop_front() {
            self.on_session_request(core, now, id, request);
            self.drain_requests(core, now, id);
            core.clients.on_served(id);
            self.schedule_wake(core, now, id);
        }
    }

    /// Counts and logs a refusal whose reason the client's protocol cannot report. Each kind has its own count, so that
    /// the first refusal of a new kind is always logged.
    fn on_listener_refusal(&mut self, core: &mut EngineCore, id: ClientId, kind: &'static str, reason: &str) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        let listener = &mut self.listeners[connection.listener];
        if let Some(refusals) = listener.counts.count_refusal(kind) {
            tracing::warn!(client = id.0, listener = listener.name, from = %connection.from, kind, reason, refusals, "request refused");
        }
    }

    /// Counts and logs an action that the account of a client does not permit. The log has the first, second, fourth …
    /// denial of each listener; the level debug has all of them.
    fn on_denied(&mut self, core: &mut EngineCore, id: ClientId, denial: &Denial) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        connection.denied += 1;
        let listener = &mut self.listeners[connection.listener];
        listener.counts.denied += 1;
        let (name, denied) = (listener.name, listener.counts.denied);
        let account = connection.account.as_deref().unwrap_or_default();
        if denied.is_power_of_two() {
            tracing::warn!(client = id.0, listener = name, from = %connection.from, account, reason = %denial, denied, "action denied: see accounts, and seqcast realm show");
        } else {
            tracing::debug!(client = id.0, listener = name, from = %connection.from, account, reason = %denial, "action denied");
        }
    }
}

/// Lets the session of a client write an answer, if the client is still connected.
fn answer_session<T>(
    core: &mut EngineCore,
    id: ClientId,
    write: impl FnOnce(&mut ClientSession, &mut OutputBuffer) -> T,
) -> Option<T> {
    core.clients.listener_connection(id).map(|connection| connection.answer(write))
}

/// Subscribes for a session. The client waits until the other peers know the subscription.
fn subscribe_session(core: &mut EngineCore, now: ClockReading, id: ClientId, sub: SubId, wanted: SubscriptionFilter) {
    let mode = core.default_mode(&wanted);
    let subscribed = core.request(now, id, ClientRequest::Subscribe { sub, wanted, mode, wants_discovery: false });
    let awaited = subscribed.is_ok().then(|| core.confirm(now, Subscriber::Listener(id))).flatten();
    let Some(connection) = core.clients.listener_connection(id) else { return };
    connection.awaited_version = awaited.or(connection.awaited_version);
    if let Err(refusal) = subscribed {
        connection.answer(|session, out| session.on_refused(Some(sub), &refusal, out));
    }
}

/// Answers with the number of receivers of each subject. Returns the cost in rows.
fn answer_receiver_counts(core: &mut EngineCore, id: ClientId, subjects: &[Subject]) -> usize {
    let counts: Vec<ReceiverCount> =
        subjects.iter().map(|subject| count_receivers(&mut core.peer, id, subject)).collect();
    let found: u64 = counts.iter().map(|receivers| receivers.count).sum();
    answer_session(core, id, |session, out| session.on_counts(&counts, out));
    counts.len() + usize::try_from(found).unwrap_or(ROWS_MAX).min(ROWS_MAX)
}

/// Answers with all subscriptions of this peer. Returns the cost in rows.
fn answer_subscription_list(core: &mut EngineCore, id: ClientId) -> usize {
    let listed: Vec<ListedSubscription> =
        core.peer.sub_rows().into_iter().map(|row| ListedSubscription { filter: row.wanted }).collect();
    let steps = answer_session(core, id, |session, out| session.on_subscription_list(&listed, out));
    listed.len() + steps.unwrap_or(0) / ROW_STEPS
}

/// Publishes a message of a session, and notifies the session of a refusal or of the receivers.
pub(super) fn publish_for_session(
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
        let receivers = count_receivers(peer, id, &subject);
        match reply {
            Some(reply) if receivers.count == 0 && !receivers.is_certain => {
                waits.await_absence(now.instant, id, reply, subject);
            }
            reply => session.on_published(reply.as_ref(), receivers, out),
        }
    }
}
