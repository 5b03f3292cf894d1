//! The core of the engine: the protocol core of a peer, with its sockets and clients. Services are attached to it.
//!
//! It feeds inputs to the protocol core and applies the effects. It makes no protocol decision.

mod answers;
mod commands;
pub(crate) mod confirmation;
pub(super) mod flush;
pub(crate) mod local_clients;
mod protected_io;
mod publish;
mod receive;
pub(crate) mod receiver_waits;
mod segments;

use self::confirmation::PendingConfirmation;
use self::flush::{FLUSHES_MAX, FlushPoint, FlushWaiter};
use self::local_clients::SCRATCH_BYTES;
use self::receiver_waits::ReceiverWaits;
#[cfg(feature = "listeners")]
use crate::clock::random_u64;
use crate::config::Config;
use crate::daemon::advisories;
use crate::daemon::batch::RecvBatch;
use crate::daemon::clients::{ClientTransport, Clients};
use crate::daemon::drop_rule::Dropper;
use crate::daemon::internal_command::InternalCommand;
use crate::daemon::local_socket::LocalSocket;
use crate::daemon::log;
use crate::daemon::mailbox::{AnswerSender, Mailbox};
use crate::daemon::multicast::Sockets;
#[cfg(feature = "listeners")]
use crate::daemon::path_test::PathTests;
use crate::daemon::protection::Protection;
use crate::daemon::subject_losses::SubjectLosses;
use crate::daemon::subscription_queue::QueueLimits;
use crate::daemon::transmit_queue::TransmitQueue;
use crate::daemon::unserved_report::UnservedReport;
use crate::listener::frame::{ByeReason, PeerFrame};
use crate::message::{ClientId, DeliveryMode, Epoch, Publisher, Refusal, SubscriptionFilter};
use crate::proto::effect::{ClientRequest, Effect, Input, MemberEvent};
use crate::proto::peer::Peer;
use crate::time::{ClockReading, Instant};
use mio::Poll;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// Minimum fullness of a local queue, in parts of 1,024, that is reported to the protocol core.
const FULLNESS_REPORT_MIN: u64 = 128;
/// Number of buffers received in one system call: a mebibyte, if the kernel fills each with as many datagrams as it
/// can.
const RECV_BUFFERS: usize = 16;

/// Phase of a peer's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// Accepts messages published before the stop.
    Draining {
        until: Instant,
    },
    /// Sends BYE to the group.
    Stopping {
        until: Instant,
    },
    /// Sends BYE to the clients.
    Closing {
        until: Instant,
    },
    Ended,
}

/// A departed client whose state in the services is not released yet.
#[derive(Debug)]
pub(crate) struct DetachedClient {
    pub(crate) id: ClientId,
    /// Transport of the client. The service that owned the client takes it.
    pub(crate) transport: Option<ClientTransport>,
}

/// Parts of the core of a peer that starts.
pub(super) struct EngineCoreParts {
    pub(super) peer: Peer,
    pub(super) protection: Protection,
    pub(super) started: ClockReading,
    pub(super) poll: Poll,
    pub(super) sockets: Sockets,
    pub(super) local_socket: Option<LocalSocket>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) dropper: Option<Dropper>,
}

/// The protocol core of a peer with its sockets and clients.
pub(crate) struct EngineCore {
    pub(crate) peer: Peer,
    pub(super) protection: Protection,
    pub(super) started: ClockReading,
    pub(super) poll: Poll,
    pub(super) sockets: Sockets,
    batch: RecvBatch,
    /// True if the group socket and the inbox, in this order, may be readable.
    pub(super) is_readable: [bool; 2],
    /// True if the last report to the protocol core said that readers are behind.
    has_backlog: bool,
    /// State of receiving from both sockets.
    receive_state: receive::ReceiveState,
    pub(super) transmit_queue: TransmitQueue,
    pub(super) local_socket: Option<LocalSocket>,
    /// True if attached clients may wait to be accepted.
    pub(super) is_acceptable: bool,
    pub(crate) clients: Clients,
    clients_max: usize,
    /// Attached client that was served last. The next turn begins with the one after it.
    last_served: ClientId,
    /// Default delivery mode of subscriptions that name none and are in no queue group.
    delivery: DeliveryMode,
    pub(super) clients_refused: u64,
    pub(super) segments: segments::SegmentLimits,
    pub(super) receiver_waits: ReceiverWaits,
    pub(crate) mailbox: Arc<Mailbox>,
    flushes: Vec<(FlushWaiter, FlushPoint)>,
    /// Subscriptions not yet confirmed by every suppressing peer.
    pending_confirmations: Vec<PendingConfirmation>,
    /// Number of subscriptions reported active without confirmation.
    pub(super) unconfirmed_reported: u64,
    /// The last publishing client and the number of its messages not yet credited.
    published: Option<(ClientId, u64)>,
    /// Answer senders of embedded clients, by client and question number.
    pending_questions: BTreeMap<(ClientId, u64), AnswerSender>,
    /// The number of the next question of an embedded client.
    next_question: u64,
    /// Source address of each publisher's datagrams. An epoch is bound to its address.
    hosts: BTreeMap<Epoch, IpAddr>,
    pub(super) dropper: Option<Dropper>,
    /// Answers to path tests; `None` if they are switched off.
    #[cfg(feature = "listeners")]
    path_tests: Option<PathTests>,
    unserved_report: UnservedReport,
    pub(super) subject_losses: SubjectLosses,
    pub(super) recv_errors: u64,
    /// Buffer for one read from a client.
    pub(super) scratch: Vec<u8>,
    pub(super) phase: Phase,
    /// Commands for other parts of the engine, in the order in which they arose.
    pub(super) internal_commands: VecDeque<InternalCommand>,
    /// Departed clients whose state in the services is not released yet.
    pub(super) detached: VecDeque<DetachedClient>,
}

impl EngineCore {
    /// Creates the core of a peer that starts.
    pub(super) fn new(config: &Config, parts: EngineCoreParts) -> EngineCore {
        let EngineCoreParts { peer, protection, started, poll, sockets, local_socket, mailbox, dropper } = parts;
        let mut batch = RecvBatch::new(RECV_BUFFERS);
        batch.discard_sender(sockets.inbox_address());
        let transmit_queue = TransmitQueue::new(sockets.copy_addresses(&config.peers));
        let limits = QueueLimits { count_max: config.client_queue_count, bytes_max: config.client_queue_size };
        EngineCore {
            peer,
            protection,
            started,
            poll,
            sockets,
            batch,
            is_readable: [true; 2],
            has_backlog: false,
            receive_state: receive::ReceiveState::default(),
            transmit_queue,
            local_socket,
            is_acceptable: true,
            clients: Clients::new(limits, config.listener_memory),
            clients_max: config.client_max,
            last_served: ClientId(0),
            delivery: config.delivery,
            clients_refused: 0,
            segments: segments::SegmentLimits::of(config),
            receiver_waits: ReceiverWaits::default(),
            mailbox,
            flushes: Vec::new(),
            pending_confirmations: Vec::new(),
            unconfirmed_reported: 0,
            published: None,
            pending_questions: BTreeMap::new(),
            next_question: 0,
            hosts: BTreeMap::new(),
            dropper,
            #[cfg(feature = "listeners")]
            path_tests: config.path_tests.then(|| PathTests::new(random_u64(), config.ttl, started.instant)),
            unserved_report: UnservedReport::default(),
            subject_losses: SubjectLosses::default(),
            recv_errors: 0,
            scratch: vec![0; SCRATCH_BYTES],
            phase: Phase::Running,
            internal_commands: VecDeque::new(),
            detached: VecDeque::new(),
        }
    }

    /// Sets the default delivery mode of subscriptions that begin from now on.
    pub(super) fn set_delivery(&mut self, delivery: DeliveryMode) {
        self.delivery = delivery;
    }

    /// Sets the maximum number of clients. Clients above it stay.
    pub(super) fn set_clients_max(&mut self, clients_max: usize) {
        self.clients_max = clients_max;
    }

    /// Returns the number of datagrams of path tests that arrived, and that of those above the rate.
    pub(super) fn path_test_counts(&self) -> [u64; 2] {
        #[cfg(feature = "listeners")]
        return self.path_tests.as_ref().map_or([0; 2], PathTests::counts);
        #[cfg(not(feature = "listeners"))]
        [0; 2]
    }

    /// Queues a command for another part of the engine.
    pub(super) fn queue_command(&mut self, command: InternalCommand) {
        self.internal_commands.push_back(command);
    }

    /// Returns whether commands or departed clients wait for other parts of the engine.
    pub(super) fn has_internal_work(&self) -> bool {
        !self.internal_commands.is_empty() || !self.detached.is_empty()
    }

    /// Returns whether the peer accepts requests, which it does until a stop begins.
    pub(crate) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Reports the backlog of local readers to the protocol core while there is one, and once more after it ends.
    pub(super) fn report_backlog(&mut self, now: ClockReading) {
        let fullness = self.clients.fullness();
        let was_reported = std::mem::replace(&mut self.has_backlog, FULLNESS_REPORT_MIN <= fullness);
        if self.has_backlog || was_reported {
            self.peer.handle(now, Input::Backlog { fullness });
        }
    }

    /// Passes the time to the protocol core, which does all work that is due.
    pub(super) fn tick(&mut self, now: ClockReading) {
        self.tick_protection(now);
        self.clients.free_unused_buffers(now.instant);
        self.peer.handle(now, Input::Tick);
        self.apply_effects(now);
    }

    /// Logs the number of messages of queue groups that no member received, at intervals.
    pub(super) fn report_unserved(&mut self, now: ClockReading) {
        self.unserved_report.report(now.instant, self.peer.counters().queue_unserved);
    }

    /// Delivers the messages that local clients have published so far to the local subscriptions. The protocol core
    /// collects messages into batches.
    pub(super) fn deliver_published(&mut self, now: ClockReading) {
        self.peer.settle();
        if self.peer.has_effects() {
            self.apply_effects(now);
        }
    }

    /// Drops all pending requests of clients, at the end of the peer.
    pub(super) fn drop_requests(&mut self) {
        self.receiver_waits = ReceiverWaits::default();
        self.flushes.clear();
        self.drop_questions();
    }

    /// Drops the pending questions and confirmations of clients.
    pub(super) fn drop_questions(&mut self) {
        self.pending_confirmations.clear();
        self.pending_questions.clear();
    }

    /// Returns whether publishers must wait: for the network, for receivers, or because too many flush requests are
    /// pending.
    pub(crate) fn is_publish_blocked(&self) -> bool {
        self.transmit_queue.is_backlogged() || self.peer.is_publish_blocked() || FLUSHES_MAX <= self.flushes.len()
    }

    /// Returns the delivery mode of a subscription that names none.
    pub(super) fn default_mode(&self, wanted: &SubscriptionFilter) -> DeliveryMode {
        if wanted.queue.is_some() { DeliveryMode::Repair } else { self.delivery }
    }

    /// Begins to close all clients. Attached clients get a BYE, embedded ones are detached, and clients of listeners
    /// may read their remaining output.
    pub(super) fn close_clients(&mut self, now: ClockReading) {
        let bye = PeerFrame::Bye { reason: ByeReason::Stopping, text: "the peer is stopping".to_owned() };
        for id in self.clients.ids() {
            self.clients.answer(id, &bye);
            match self.clients.client(id).map(|client| &mut client.kind) {
                Some(ClientTransport::Attached(connection)) => connection.flow.is_closing = true,
                Some(ClientTransport::Embedded(_)) => self.detach(now, id),
                #[cfg(feature = "listeners")]
                Some(ClientTransport::Listener(_)) => self.clients.begin_close(id),
                None => {}
            }
        }
    }

    /// Closes all clients at once, attached ones after a BYE with this text.
    pub(super) fn end_clients(&mut self, text: &str) {
        self.internal_commands.clear();
        self.detached.clear();
        let bye = PeerFrame::Bye { reason: ByeReason::Stopping, text: text.to_owned() };
        for id in self.clients.ids() {
            self.clients.answer(id, &bye);
            if let Some(connection) = self.clients.connection(id) {
                connection.write();
            }
            self.clients.remove(id);
        }
    }

    /// Removes a client with its subscriptions, waits and pending queries. The services release their state of it after
    /// the current call.
    pub(crate) fn detach(&mut self, now: ClockReading, id: ClientId) {
        let Some(mut client) = self.clients.remove(id) else { return };
        if let ClientTransport::Attached(connection) = &mut client.kind
            && let Err(error) = self.poll.registry().deregister(&mut connection.stream)
        {
            tracing::debug!(%error, client = id.0, "deregister");
        }
        tracing::debug!(client = id.0, name = client.name, "client disconnected");
        self.pending_questions.retain(|(client, _), _| *client != id);
        self.receiver_waits.end(id, None);
        self.end_confirmation(id, None);
        self.peer.handle(now, Input::Detach { client: id });
        self.apply_effects(now);
        self.is_acceptable = true;
        self.detached.push_back(DetachedClient { id, transport: Some(client.kind) });
    }

    /// Passes a request to the protocol core and applies the effects.
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

    /// Passes a request to the protocol core like [`EngineCore::request`], and reports a refusal to the client.
    pub(super) fn request_or_report(&mut self, now: ClockReading, client: ClientId, request: ClientRequest) {
        if let Err(refusal) = self.request(now, client, request) {
            self.report_refusal(client, None, &refusal);
        }
    }

    /// Applies all pending effects of the protocol core.
    pub(super) fn apply_effects(&mut self, now: ClockReading) {
        self.drain_protection(now);
        loop {
            // Runs that are delivered together were not repaired, so the subjects' losses have nothing to record.
            while let Some(batch) = self.peer.poll_runs() {
                self.clients.deliver_runs(now, batch, self.peer.list_pools());
            }
            let Some(effect) = self.peer.poll_effect() else { return };
            match effect {
                Effect::Multicast(bytes) => self.send(None, bytes),
                Effect::Unicast { to, bytes } => self.send(Some(to), bytes),
                Effect::Deliver { to, deliveries } => {
                    self.subject_losses.on_deliver(&deliveries);
                    self.clients.deliver(now, &to, deliveries);
                }
                Effect::AssignedElsewhere(delivery) => self.clients.note_assigned(delivery),
                Effect::Report { to, loss } => {
                    self.subject_losses.on_report(&loss);
                    self.clients.report(now, &to, &loss);
                }
                Effect::Advise { to, advisory } => {
                    log::advisory(&advisory);
                    let host = self.host(now, advisory.publisher.epoch);
                    let repaired = advisories::repaired(&self.peer, &advisory);
                    let delivery = advisories::delivery(&advisory, host, repaired, self.me());
                    self.clients.advise(now, &to, delivery);
                }
                Effect::Refuse { client, sub, refusal } => self.report_refusal(client, sub, &refusal),
                Effect::Member { publisher, event } => {
                    log::member(&publisher, event);
                    if event == MemberEvent::Crashed {
                        self.protection.on_departed(publisher.epoch);
                    }
                    if event == MemberEvent::Up {
                        self.subject_losses.retain(&self.peer.loss_rows());
                    }
                }
                Effect::NewEpoch { epoch, change } => {
                    log::new_epoch(epoch, change);
                    self.queue_command(InternalCommand::EpochChanged);
                }
                Effect::Answer { client, id, answer } => self.on_answered(client, id, answer),
                Effect::QueryReport { from, reply, query } => {
                    self.queue_command(InternalCommand::AnswerReport { from, reply, query });
                }
                Effect::PublisherKnown { to, publisher } => self.clients.report_publisher(to, publisher),
                Effect::Denied(denied) => self.protection.on_denied(denied),
                Effect::Rejoin => self.rejoin(),
                Effect::Stopped => self.queue_command(InternalCommand::Stopped),
            }
        }
    }

    /// Joins the group again because no multicasts arrive. The switches of the network then see the membership again.
    fn rejoin(&mut self) {
        match self.sockets.rejoin() {
            Ok(()) => tracing::info!(group = %self.sockets.group_address(), "group rejoined"),
            Err(error) => tracing::warn!(%error, group = %self.sockets.group_address(), "group not rejoined"),
        }
    }

    /// Continues on sockets that were opened anew. If the address of the peer has changed, a new epoch begins.
    pub(super) fn on_sockets_moved(&mut self, now: ClockReading, has_new_address: bool) {
        self.batch.discard_sender(self.sockets.inbox_address());
        self.is_readable = [true; 2];
        if has_new_address {
            self.protection.on_address(self.sockets.inbox_address());
            self.peer.handle(now, Input::AddressChanged);
            self.apply_effects(now);
            self.transmit_queue.discard();
        }
    }

    pub(super) fn me(&self) -> Publisher {
        Publisher { name: Some(self.peer.settings().name.clone()), epoch: self.peer.epoch(), uid: 0 }
    }

    /// Returns the address of the host of another peer, if the peer was heard.
    pub(super) fn host(&mut self, now: ClockReading, epoch: Epoch) -> Option<IpAddr> {
        if !self.hosts.contains_key(&epoch) {
            let rows = self.peer.member_rows(now);
            self.hosts = rows.iter().map(|row| (row.publisher.epoch, row.address.ip())).collect();
        }
        self.hosts.get(&epoch).copied()
    }
}
