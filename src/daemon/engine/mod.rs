//! The event loop around the protocol core. It feeds inputs to the core and applies its effects, on one thread.
//!
//! A turn waits, reads the clock once, reads available input up to a budget, ticks the core and flushes all output. It
//! ticks the core only if it has read both sockets, so that unread datagrams do not count as missing. The engine makes
//! no protocol decision.

mod commands;
pub(crate) mod confirmation;
mod flush;
pub(crate) mod local_clients;
mod receive;
pub(crate) mod receiver_waits;
pub(crate) mod shutdown;
pub mod start;
mod status;
mod stream_requests;

use self::confirmation::PendingConfirmation;
use self::flush::{FLUSHES_MAX, FlushPoint, FlushWaiter};
use self::receiver_waits::ReceiverWaits;
use self::shutdown::Phase;
use crate::clock::Clock;
use crate::daemon::advisories;
use crate::daemon::batch::{OutgoingDatagram, RecvBatch};
use crate::daemon::clients::{ClientTransport, Clients};
use crate::daemon::drop_rule::Dropper;
use crate::daemon::events::EventService;
use crate::daemon::listeners::Listeners;
use crate::daemon::local::LocalSocket;
use crate::daemon::log;
use crate::daemon::mailbox::{AnswerSender, CommandQueue, Mailbox};
use crate::daemon::multicast::Sockets;
use crate::daemon::signals::Signals;
use crate::daemon::timer::Timer;
use crate::daemon::transmit_queue::TransmitQueue;
use crate::daemon::unserved_report::UnservedReport;
use crate::message::{ClientId, DeliveryMode, Epoch, Message, Publisher, Refusal, SubscriptionFilter};
use crate::proto::effect::{ClientRequest, Effect, Input};
use crate::proto::peer::Peer;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use mio::{Events, Poll};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Minimum fullness of a local queue, in parts of 1,024, that the engine reports to the core.
const FULLNESS_REPORT_MIN: u64 = 128;

/// One peer with its sockets and clients. [`Engine::open`] builds it.
pub(crate) struct Engine {
    pub(super) peer: Peer,
    pub(super) started: ClockReading,
    /// Time until which clients of the NATS and Redis listeners publish nothing, unless all subscriptions are known
    /// before.
    pub(super) discovery_end: Option<Instant>,
    /// Constant fields of `show status`.
    static_status: Value,
    pub(super) poll: Poll,
    ready: Events,
    timer: Timer,
    pub(super) sockets: Sockets,
    batch: RecvBatch,
    /// True if the group socket and the inbox, in this order, may be readable.
    is_readable: [bool; 2],
    /// True if the last report to the core said that readers are behind.
    has_backlog: bool,
    /// Time since which the inbox has been waiting for its turn behind the group socket.
    inbox_wait_since: Option<Instant>,
    transmit_queue: TransmitQueue,
    /// True if the inbox is registered for writability.
    is_watching_writes: bool,
    local_socket: Option<LocalSocket>,
    is_acceptable: bool,
    signals: Option<Signals>,
    pub(crate) clients: Clients,
    clients_max: usize,
    /// Attached client after which the next turn begins its round.
    last_served: ClientId,
    /// Default delivery mode of subscriptions that name none and are in no queue group.
    delivery: DeliveryMode,
    /// Time for which the engine polls for events before it sleeps.
    busy_poll: Duration,
    clients_refused: u64,
    pub(crate) listeners: Listeners,
    pub(super) receiver_waits: ReceiverWaits,
    pub(super) events: EventService,
    pub(crate) mailbox: Arc<Mailbox>,
    commands: CommandQueue,
    flushes: Vec<(FlushWaiter, FlushPoint)>,
    /// Subscriptions not yet confirmed by every suppressing peer.
    unconfirmed: Vec<PendingConfirmation>,
    /// Number of subscriptions reported active without confirmation.
    unconfirmed_reported: u64,
    /// The last publishing client and the number of its messages not yet credited.
    published: Option<(ClientId, u64)>,
    /// Answer senders of embedded clients, by client and question number.
    pending_questions: BTreeMap<(ClientId, u64), AnswerSender>,
    /// The number of the next question of an embedded client.
    next_question: u64,
    /// True if embedded clients are served before attached ones in this turn.
    is_commands_turn: bool,
    /// Source address of each publisher's datagrams. An epoch is bound to its address.
    hosts: BTreeMap<Epoch, IpAddr>,
    dropper: Option<Dropper>,
    unserved_report: UnservedReport,
    recv_errors: u64,
    pub(super) scratch: Vec<u8>,
    /// Number of received signals not yet handled.
    signalled: usize,
    phase: Phase,
}

impl Engine {
    /// Runs one turn: waits for at most `timeout` (`None`: until an event occurs), then processes all pending work.
    /// Returns false when the engine has ended.
    ///
    /// # Errors
    /// The system's event queue is broken, or the engine panicked. The engine has then ended.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if self.is_ended() {
            return Ok(false);
        }
        self.guarded(|engine| engine.work(timeout))
    }

    fn work(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.wait(timeout)?;
        let now = Clock::now();
        self.on_signals(now);
        self.accept(now);
        self.accept_at_listeners(now);
        self.note_backlog(now);
        let is_caught_up = self.receive(now);
        // The order alternates, because the first client takes all of a scarce send capacity. During a stop, commands
        // already accepted come first.
        self.is_commands_turn = !self.is_commands_turn || matches!(self.phase, Phase::Draining { .. });
        if self.is_commands_turn {
            self.process_commands(now);
        }
        self.serve_clients(now);
        self.serve_listeners(now);
        if !self.is_commands_turn {
            self.process_commands(now);
        }
        self.report_awaited(now);
        if is_caught_up {
            self.peer.handle(now, Input::Tick);
            self.apply_effects(now);
        }
        self.unserved_report.report(now.instant, self.peer.counters().queue_unserved);
        self.end_discovery(now);
        self.confirm_due(now);
        self.flush_output(now, is_caught_up);
        self.advance(now);
        Ok(self.phase != Phase::Ended)
    }

    /// Reports the backlog of local readers to the core while there is one, and once more after it ends.
    fn note_backlog(&mut self, now: ClockReading) {
        let fullness = self.clients.fullness();
        let was_told = std::mem::replace(&mut self.has_backlog, FULLNESS_REPORT_MIN <= fullness);
        if self.has_backlog || was_told {
            self.peer.handle(now, Input::Backlog { fullness });
        }
    }

    /// Returns whether publishers must wait: for the network, for receivers, or because too many flush requests are
    /// pending.
    pub(super) fn is_publish_blocked(&self) -> bool {
        self.transmit_queue.is_backlogged() || self.peer.is_publish_blocked() || FLUSHES_MAX <= self.flushes.len()
    }

    /// Lets clients of listeners publish once the peer knows the interest of all others, or the discovery time has
    /// passed.
    fn end_discovery(&mut self, now: ClockReading) {
        self.discovery_end.take_if(|until| *until <= now.instant || self.peer.knows_all_interest());
    }

    /// Returns the time at which clients of listeners may be able to publish, if one of them waits for that.
    pub(super) fn discovery_deadline(&self) -> Option<Instant> {
        let until = self.discovery_end.filter(|_| self.listeners.has_held_up())?;
        Some(self.peer.discovery().map_or(until, |discovery| discovery.min(until)))
    }

    /// Publishes a message for a client. Returns false without publishing if the client must wait for the socket or for
    /// receivers. The engine reads the window reports of receivers only during its turns.
    pub(crate) fn publish(&mut self, now: ClockReading, client: ClientId, message: &Message) -> bool {
        let has_room = self.ensure_send_capacity();
        if has_room {
            let published = self.peer.publish(now, client, message);
            self.on_published(now, client, published);
        }
        has_room
    }

    /// Does the same as [`Engine::publish`] for a message that has only a subject and a payload.
    #[inline]
    pub(crate) fn publish_payload(
        &mut self,
        now: ClockReading,
        client: ClientId,
        subject: &Subject,
        payload: &[u8],
    ) -> bool {
        let has_room = self.ensure_send_capacity();
        if has_room {
            let published = self.peer.publish_payload(now, client, subject, payload);
            self.on_published(now, client, published);
        }
        has_room
    }

    /// Returns whether a message can be sent now. Flushes the transmit queue if it is backlogged.
    #[inline]
    pub(super) fn ensure_send_capacity(&mut self) -> bool {
        if self.transmit_queue.is_backlogged() {
            self.transmit_queue.flush(&mut self.sockets);
        }
        !self.transmit_queue.is_backlogged() && !self.peer.is_publish_blocked()
    }

    /// Handles the outcome of a publish request of a client.
    #[inline]
    pub(super) fn on_published(&mut self, now: ClockReading, client: ClientId, published: Result<(), Refusal>) {
        if self.peer.has_effects() {
            self.apply_effects(now);
        }
        if let Err(refusal) = published {
            self.report_refusal(client, None, &refusal);
        }
        if let Some((recent, count)) = &mut self.published
            && *recent == client
        {
            *count += 1;
            return;
        }
        self.count_published();
        self.published = Some((client, 1));
    }

    /// Credits the last publishing client with its messages since the last call.
    pub(super) fn count_published(&mut self) {
        if let Some((client, count)) = self.published.take()
            && let Some(client) = self.clients.client(client)
        {
            client.published += count;
        }
    }

    /// Returns the delivery mode of a subscription that names none.
    pub(super) fn default_mode(&self, wanted: &SubscriptionFilter) -> DeliveryMode {
        if wanted.queue.is_some() { DeliveryMode::Repair } else { self.delivery }
    }

    /// Removes a client and everything that belongs to it.
    pub(crate) fn detach(&mut self, now: ClockReading, id: ClientId) {
        let Some(mut client) = self.clients.remove(id) else { return };
        match &mut client.kind {
            ClientTransport::Attached(connection) => {
                if let Err(error) = self.poll.registry().deregister(&mut connection.stream) {
                    tracing::debug!(%error, client = id.0, "deregister");
                }
            }
            ClientTransport::Listener(connection) => self.on_listener_disconnect(now, id, connection),
            ClientTransport::Embedded(_) => {}
        }
        tracing::debug!(client = id.0, name = client.name, "client disconnected");
        self.pending_questions.retain(|(client, _), _| *client != id);
        self.receiver_waits.end(id, None);
        self.end_confirmation(id, None);
        self.events.cancel_queries(id);
        self.peer.handle(now, Input::Detach { client: id });
        self.apply_effects(now);
        self.is_acceptable = true;
    }

    /// Passes a request to the core and applies the effects.
    pub(super) fn request(
        &mut self,
        now: ClockReading,
        client: ClientId,
        request: ClientRequest,
    ) -> Result<(), Refusal> {
        let outcome = self.peer.request(now, client, request);
        self.apply_effects(now);
        outcome
    }

    /// Passes a request to the core as [`Engine::request`] does, and reports a refusal to the client.
    pub(super) fn request_or_report(&mut self, now: ClockReading, client: ClientId, request: ClientRequest) {
        if let Err(refusal) = self.request(now, client, request) {
            self.report_refusal(client, None, &refusal);
        }
    }

    /// Applies all pending effects of the core.
    pub(super) fn apply_effects(&mut self, now: ClockReading) {
        while let Some(effect) = self.peer.poll_effect() {
            match effect {
                Effect::Multicast(bytes) => self.transmit_queue.push(OutgoingDatagram { to: None, bytes }),
                Effect::Unicast { to, bytes } => self.transmit_queue.push(OutgoingDatagram { to: Some(to), bytes }),
                Effect::Deliver { to, deliveries } => self.clients.deliver(now, &to, deliveries),
                Effect::Report { to, loss } => self.clients.report(now, &to, &loss),
                Effect::Advise { to, advisory } => {
                    log::advisory(&advisory);
                    let host = self.host(now, advisory.publisher.epoch);
                    let delivery = advisories::delivery(&advisory, host, self.me());
                    self.clients.deliver(now, &to, delivery.into());
                }
                Effect::Refuse { client, sub, refusal } => self.report_refusal(client, sub, &refusal),
                Effect::Member { publisher, event } => log::member(&publisher, event),
                Effect::NewEpoch(epoch) => tracing::warn!(%epoch, "new epoch: the frames of the old one ran out"),
                Effect::Answer { client, id, answer } => self.on_answered(client, id, answer),
                Effect::PublisherKnown { to, publisher } => self.clients.report_publisher(to, publisher),
                Effect::Rejoin => self.rejoin(),
                Effect::Stopped => self.close(now),
            }
        }
    }

    /// Joins the group again because no multicasts arrive: the switches then see the membership once more.
    fn rejoin(&mut self) {
        match self.sockets.rejoin() {
            Ok(()) => tracing::info!(group = %self.sockets.group_address(), "group joined anew"),
            Err(error) => tracing::warn!(%error, group = %self.sockets.group_address(), "group not joined anew"),
        }
    }

    pub(super) fn me(&self) -> Publisher {
        Publisher { name: Some(self.peer.settings().name.clone()), epoch: self.peer.epoch(), uid: 0 }
    }

    fn host(&mut self, now: ClockReading, epoch: Epoch) -> Option<IpAddr> {
        if !self.hosts.contains_key(&epoch) {
            let rows = self.peer.member_rows(now);
            self.hosts = rows.iter().map(|row| (row.publisher.epoch, row.address.ip())).collect();
        }
        self.hosts.get(&epoch).copied()
    }
}
