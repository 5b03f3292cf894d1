//! The event loop around the protocol core. It feeds inputs to the core and applies its effects, on one thread.
//!
//! A turn waits, reads the clock once, reads available input up to a budget, ticks the core and flushes all output. The
//! engine makes no protocol decision.

use crate::daemon::advisories;
use crate::daemon::batch::{OutgoingDatagram, RecvBatch};
use crate::daemon::clients::{ClientTransport, Clients};
use crate::daemon::clock::Clock;
use crate::daemon::confirm::{PendingConfirmation, Subscriber};
use crate::daemon::drop_rule::Dropper;
use crate::daemon::events::EventService;
use crate::daemon::listeners::Listeners;
use crate::daemon::local::LocalSocket;
use crate::daemon::log;
use crate::daemon::mailbox::{AnswerSender, Answered, CommandQueue, EngineCommand, Mailbox};
use crate::daemon::multicast::Sockets;
use crate::daemon::queue::SubscriptionQueue;
use crate::daemon::receiver_waits::{ReceiverWaiter, ReceiverWaits};
use crate::daemon::serve::why;
use crate::daemon::show::{self, CounterRow, ReportInput};
use crate::daemon::shutdown::Phase;
use crate::daemon::signals::Signals;
use crate::daemon::timer::Timer;
use crate::daemon::transmit_queue::TransmitQueue;
use crate::daemon::unserved_report::UnservedReport;
use crate::listener::frame::PeerFrame;
use crate::message::{
    ClientId, DeliveryMode, Epoch, Message, PeerRef, Publisher, QuestionFailure, Refusal, SubId, SubscriptionFilter,
    Target,
};
use crate::proto::effect::{ClientRequest, Effect, Input, PublishedPosition};
use crate::proto::peer::Peer;
use crate::proto::question::Question;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use crossbeam_channel::Sender;
use mio::{Events, Poll};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Minimum fullness of a local queue, in parts of 1,024, that the engine reports to the core.
const FULLNESS_REPORT_MIN: u64 = 128;
/// Maximum number of pending flush requests.
const FLUSHES_MAX: usize = 4096;
/// Maximum number of requests of embedded clients that one turn processes.
const COMMANDS_PER_TURN: usize = 4096;
/// Maximum time that a client can wait for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// Requester of a flush.
#[derive(Debug)]
pub(super) enum FlushWaiter {
    Attached(ClientId, u64),
    Embedded(Sender<()>),
}

/// Position that must be sent before a flush is reported.
#[derive(Clone, Copy, Debug)]
pub(super) enum FlushPoint {
    /// Position in the published messages that the core must transmit.
    Core(PublishedPosition),
    /// Total number of datagrams ever enqueued that must have left the transmit queue.
    Socket(u64),
}

/// One peer with its sockets and clients. [`Engine::open`] builds it.
pub(crate) struct Engine {
    pub(super) peer: Peer,
    pub(super) started: ClockReading,
    /// Time until which clients of the NATS and Redis listeners publish nothing, unless all subscriptions are known
    /// before.
    pub(super) discovery_end: Option<Instant>,
    /// Constant fields of `show status`.
    pub(super) static_status: Value,
    pub(super) poll: Poll,
    pub(super) ready: Events,
    pub(super) timer: Timer,
    pub(super) sockets: Sockets,
    pub(super) batch: RecvBatch,
    /// True if the group socket and the inbox, in this order, may be readable.
    pub(super) is_readable: [bool; 2],
    /// True if the last report to the core said that readers are behind.
    pub(super) has_backlog: bool,
    /// Time since which the inbox has been waiting for its turn behind the group socket.
    pub(super) inbox_wait_since: Option<Instant>,
    pub(super) transmit_queue: TransmitQueue,
    /// True if the inbox is registered for writability.
    pub(super) is_watching_writes: bool,
    pub(super) local_socket: Option<LocalSocket>,
    pub(super) is_acceptable: bool,
    pub(super) signals: Option<Signals>,
    pub(crate) clients: Clients,
    pub(super) clients_max: usize,
    /// Attached client after which the next turn begins its round.
    pub(super) last_served: ClientId,
    /// Default delivery mode of subscriptions that name none and are in no queue group.
    pub(super) delivery: DeliveryMode,
    /// Time for which the engine polls for events before it sleeps.
    pub(super) busy_poll: Duration,
    pub(super) clients_refused: u64,
    pub(crate) listeners: Listeners,
    pub(super) receiver_waits: ReceiverWaits,
    pub(super) events: EventService,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(super) commands: CommandQueue,
    pub(super) flushes: Vec<(FlushWaiter, FlushPoint)>,
    /// Subscriptions not yet confirmed by every suppressing peer.
    pub(super) unconfirmed: Vec<PendingConfirmation>,
    /// Number of subscriptions reported active without confirmation.
    pub(super) unconfirmed_reported: u64,
    /// The last publishing client and the number of its messages not yet credited.
    pub(super) published: Option<(ClientId, u64)>,
    /// Answer senders of embedded clients, by client and question number.
    pub(super) pending_questions: BTreeMap<(ClientId, u64), AnswerSender>,
    /// The number of the next question of an embedded client.
    pub(super) next_question: u64,
    /// True if embedded clients are served before attached ones in this turn.
    pub(super) is_commands_turn: bool,
    /// Source address of each publisher's datagrams. An epoch is bound to its address.
    pub(super) hosts: BTreeMap<Epoch, IpAddr>,
    pub(super) dropper: Option<Dropper>,
    pub(super) unserved_report: UnservedReport,
    pub(super) recv_errors: u64,
    pub(super) scratch: Vec<u8>,
    /// Number of received signals not yet handled.
    pub(super) signalled: usize,
    pub(super) phase: Phase,
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

    /// Subscribes for an embedded client. The subscription's events go to `queue`.
    pub(crate) fn subscribe(
        &mut self,
        now: ClockReading,
        client: ClientId,
        sub: SubId,
        (wanted, mode, news): (SubscriptionFilter, Option<DeliveryMode>, bool),
        queue: Arc<SubscriptionQueue>,
    ) -> Result<(), Refusal> {
        // A departed client has no queues for events, nor has a peer that has closed them.
        let Some(ClientTransport::Embedded(queues)) = self.clients.client(client).map(|client| &mut client.kind) else {
            return Err(Refusal::Stopping);
        };
        queues.insert(sub, queue);
        let mode = mode.unwrap_or(self.default_mode(&wanted));
        let subscribed = self.request(now, client, ClientRequest::Subscribe { sub, wanted, mode, news });
        if let Err(refusal) = &subscribed {
            self.report_refusal(client, Some(sub), refusal);
            self.end_queue(client, sub);
        }
        subscribed
    }

    /// Returns the delivery mode of a subscription that names none.
    pub(super) fn default_mode(&self, wanted: &SubscriptionFilter) -> DeliveryMode {
        if wanted.queue.is_some() { DeliveryMode::Repair } else { self.delivery }
    }

    /// Ends a subscription of an embedded client.
    pub(crate) fn unsubscribe(&mut self, now: ClockReading, client: ClientId, sub: SubId) {
        self.request_or_report(now, client, ClientRequest::Unsubscribe { sub });
        self.receiver_waits.end(client, Some(Target { client, sub }));
        self.end_confirmation(client, Some(sub));
        self.end_queue(client, sub);
    }

    fn end_queue(&mut self, client: ClientId, sub: SubId) {
        if let Some(ClientTransport::Embedded(queues)) = self.clients.client(client).map(|client| &mut client.kind)
            && let Some(queue) = queues.remove(&sub)
        {
            queue.close();
        }
    }

    /// Queries a peer's history for an embedded client.
    pub(crate) fn query_history(
        &mut self,
        now: ClockReading,
        client: ClientId,
        peer: &PeerRef,
        question: Question,
        timeout: Duration,
        answer: AnswerSender,
    ) {
        let id = self.next_question;
        self.next_question += 1;
        self.pending_questions.insert((client, id), answer);
        self.ask(now, client, id, peer, question, timeout);
    }

    /// Queries a peer's history. The answer goes to [`Engine::on_answered`].
    pub(super) fn ask(
        &mut self,
        now: ClockReading,
        client: ClientId,
        id: u64,
        peer: &PeerRef,
        question: Question,
        timeout: Duration,
    ) {
        let timeout = timeout.min(ANSWER_TIME_MAX);
        match self.peer.resolve(peer) {
            Ok(peer) => {
                self.request_or_report(now, client, ClientRequest::Ask { id, peer, question, timeout });
            }
            Err(reason) => self.on_answered(client, id, Err(reason)),
        }
    }

    /// Passes a part of an answer to the client that asked, or the reason why no answer comes.
    pub(super) fn on_answered(&mut self, client: ClientId, id: u64, answer: Answered) {
        if let Some(connection) = self.clients.connection(client) {
            let answer = if connection.outbox.exceeds_answer_limit() { Err(QuestionFailure::TooMany) } else { answer };
            self.clients.answer(client, &PeerFrame::Answered { id, answer: answer.map(|part| part.encode()) });
        } else if let Entry::Occupied(asked) = self.pending_questions.entry((client, id)) {
            let is_last = answer.as_ref().map_or(true, |part| part.last);
            // The requester may have stopped waiting.
            let is_wanted = asked.get().send(answer);
            if is_last || !is_wanted {
                asked.remove();
            }
        }
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

    /// Answers a `show` query about the peer.
    pub(crate) fn show(&mut self, now: ClockReading, query: &Value) -> Value {
        self.peer.settle();
        self.count_published();
        let counters = self.counters();
        let clients = self.clients.rows(now);
        show::answer(query, &ReportInput { peer: &self.peer, now, status: self.status(now), clients, counters })
    }

    fn status(&self, now: ClockReading) -> Value {
        let mut status = self.static_status.clone();
        status["epoch"] = json!(self.peer.epoch().to_string());
        status["uptime_ms"] = json!(now.instant.since(self.started.instant).as_millis() as u64);
        status["clients"] = json!(self.clients.len());
        let [gso, gro] = self.sockets.offloads();
        status["listeners"] = self.listeners.status();
        self.events.put_status(&mut status);
        status["listener_bytes"] = json!(self.clients.listener_delivery.memory.bytes());
        status["offloads"] = json!({ "gso": gso, "gro": gro });
        let rows = self.peer.member_rows(now);
        let left_behind = rows.iter().filter(|row| row.left_behind.is_some()).map(|row| row.publisher.to_string());
        status["left_behind"] = left_behind.collect();
        status["send_queue"] = json!(self.transmit_queue.len());
        status["phase"] = json!(match self.phase {
            Phase::Running => "running",
            _ => "stopping",
        });
        status
    }

    fn counters(&self) -> Vec<CounterRow> {
        let by_rule = self.dropper.as_ref().map_or(0, |dropper| dropper.dropped);
        let [registered, refused, followed, too_deep] = self.events.counts();
        vec![
            ("events_registered", registered, "Events registered here."),
            ("events_refused", refused, "Requests about events that were refused."),
            ("events_followed", followed, "Events of other servers stored here."),
            (
                "events_too_deep",
                too_deep,
                "Events of other servers that were not stored because their JSON is nested deeper than 900 levels.",
            ),
            ("recv_errors", self.recv_errors, "Errors of the system when receiving."),
            ("send_errors", self.transmit_queue.errors, "Datagrams that the system refused to send."),
            (
                "send_overflow",
                self.transmit_queue.overflow,
                "Answers to other peers discarded because too much waited.",
            ),
            ("clients_refused", self.clients_refused, "Clients turned away because there were too many."),
            (
                "unconfirmed",
                self.unconfirmed_reported,
                "Subscriptions said to stand though a peer that spares messages did not say that it knows them.",
            ),
            (
                "listener_dropped",
                self.clients.listener_delivery.dropped,
                "Messages that clients of listeners did not get because they did not read fast enough.",
            ),
            ("dropped_by_rule", by_rule, "Received datagrams dropped on purpose by a drop rule."),
        ]
    }

    /// Processes the commands of embedded clients in the order of their arrival. While publishers are blocked, all
    /// other commands overtake pending publishes: subscribing, reports, and above all detaching and stopping. Messages
    /// already published are sent even if their client has detached meanwhile.
    fn process_commands(&mut self, now: ClockReading) {
        for _ in 0..COMMANDS_PER_TURN {
            let is_publish_blocked = self.is_publish_blocked();
            if !self.commands.has_command(is_publish_blocked) {
                self.mailbox.take(&mut self.commands, is_publish_blocked);
            }
            let Some(command) = self.commands.pop(is_publish_blocked) else { return };
            self.on_command(now, command);
        }
    }

    fn on_command(&mut self, now: ClockReading, command: EngineCommand) {
        match command {
            EngineCommand::Publish { client, message } => {
                if !self.publish(now, client, &message) {
                    unreachable!("a publish is taken only while the queue is short");
                }
            }
            EngineCommand::Subscribe { client, sub, wanted, mode, news, queue, answer } => {
                let outcome = self.subscribe(now, client, sub, (wanted, mode, news), queue);
                match outcome {
                    Ok(()) => drop(self.confirm(now, Subscriber::Embedded(client, sub, answer))),
                    // The requester may have stopped waiting.
                    Err(refusal) => drop(answer.send(Err(why(&refusal)))),
                }
            }
            EngineCommand::Unsubscribe { client, sub } => self.unsubscribe(now, client, sub),
            EngineCommand::Ask { client, peer, question, timeout, answer } => {
                self.query_history(now, client, &peer, question, timeout, answer);
            }
            EngineCommand::Await { client, sub, what, subject, timeout } => {
                self.begin_await(now, ReceiverWaiter::Subscription(Target { client, sub }), what, subject, timeout);
            }
            EngineCommand::AskEvents { asker, request } => self.request_events(now, asker, request),
            EngineCommand::EventsDone(outcome) => self.on_events_done(now, *outcome),
            EngineCommand::AskStreams { asker, request } => self.request_stream(asker, request),
            EngineCommand::StreamServiceEvent(told) => self.on_streams(now, *told),
            EngineCommand::EventsEnded(cost) => self.events.end(cost),
            EngineCommand::EventsClaimed(claimed) => self.on_events_claimed(now, claimed),
            // The requester may have stopped waiting.
            EngineCommand::Show { query, answer } => drop(answer.send(self.show(now, &query))),
            EngineCommand::Flush { answer } => self.await_flush(FlushWaiter::Embedded(answer)),
            EngineCommand::Detach { client } => self.detach(now, client),
            EngineCommand::Stop => self.stop(now),
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
                Effect::Answered { client, id, answer } => self.on_answered(client, id, answer),
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

    /// Registers a flush request for everything published before this call.
    pub(super) fn await_flush(&mut self, waiting: FlushWaiter) {
        self.flushes.push((waiting, FlushPoint::Core(self.peer.published())));
    }

    /// Sends queued datagrams, reports completed flushes and writes to the clients. Without a preceding tick the core
    /// may still hold an open datagram, so no flush is reported.
    fn flush_output(&mut self, now: ClockReading, has_ticked: bool) {
        // A multicast takes longer than a few writes, and those clients can work meanwhile. Writes to many clients
        // would delay the network, and answers are less urgent.
        if self.clients.has_few_messages() {
            let ended = self.clients.write_messages();
            self.detach_all(now, ended);
        }
        self.transmit_queue.flush(&mut self.sockets);
        if has_ticked && !self.flushes.is_empty() {
            self.report_flushed();
        }
        self.report_slow_clients(now);
        self.serve_deferred_requests(now);
        let ended = self.clients.write();
        self.detach_all(now, ended);
        self.evict(now);
        self.resume_at_listeners(now);
    }

    fn detach_all(&mut self, now: ClockReading, ended: Vec<ClientId>) {
        for id in ended {
            self.detach(now, id);
        }
    }

    /// Reports the flushes that are complete, whatever was published after them.
    fn report_flushed(&mut self) {
        for (waiting, mut leaving) in std::mem::take(&mut self.flushes) {
            if let FlushPoint::Core(published) = leaving
                && self.peer.has_transmitted(published)
            {
                leaving = FlushPoint::Socket(self.transmit_queue.enqueued());
            }
            match (leaving, waiting) {
                (FlushPoint::Socket(count), FlushWaiter::Attached(client, token))
                    if self.transmit_queue.has_sent(count) =>
                {
                    self.clients.answer(client, &PeerFrame::Flushed { token });
                }
                (FlushPoint::Socket(count), FlushWaiter::Embedded(answer)) if self.transmit_queue.has_sent(count) => {
                    // The requester may have stopped waiting.
                    let _ = answer.send(());
                }
                (_, waiting) => self.flushes.push((waiting, leaving)),
            }
        }
    }
}
