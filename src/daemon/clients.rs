//! The clients of a peer and the delivery to each. Attached clients connect through the Unix socket, embedded ones run
//! in the same process, and listener clients connect through a listener.

mod large_messages;
#[cfg(feature = "listeners")]
mod listener_clients;

use self::large_messages::DeliveryBuffers;
use crate::daemon::client_origin::ClientOrigin;
use crate::daemon::client_process::ClientProcess;
use crate::daemon::connection_state::ConnectionState;
#[cfg(feature = "listeners")]
use crate::daemon::listeners::connection::ListenerConnection;
#[cfg(feature = "listeners")]
use crate::daemon::listeners::delivery::ListenerDelivery;
use crate::daemon::local_socket::Connection;
use crate::daemon::outbox::PushOutcome;
use crate::daemon::show::ClientRow;
use crate::daemon::subscription_queue::{Notice, QueueLimits, SubscriptionQueue};
use crate::delivery::Deliveries;
use crate::link::repeat_filter::{RepeatFilter, is_imported};
use crate::listener::frame::PeerFrame;
#[cfg(feature = "listeners")]
use crate::listener::output_buffer::COMMON_BYTES;
use crate::listener::protocol::Protocol;
use crate::listener::value::delivery_body;
use crate::message::{ClientId, Delivery, Loss, LossScope, Publisher, SubId, Target};
use crate::proto::list_pools::ListPools;
use crate::proto::run_batch::RunBatch;
use crate::shared_memory::BUFFER_BYTES_MIN;
use crate::time::{ClockReading, Instant};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of queues whose fullness each turn checks; others are added when there is room.
const FILLING_MAX: usize = 16;
/// Minimum fullness, in parts of 1,024, at which a queue is checked again without a new delivery: an eighth.
const FULLNESS_MIN: u64 = 128;
/// Maximum number of client writes that may precede a multicast.
const WRITES_BEFORE_MULTICAST_MAX: usize = 8;
/// Minimum time between two log lines about the same slow client.
const SLOW_INTERVAL: Duration = Duration::from_secs(10);

/// A client.
#[derive(Debug)]
pub(crate) struct ClientEntry {
    pub(crate) name: String,
    /// Listener at which the client has connected.
    pub(crate) origin: Option<ClientOrigin>,
    pub(crate) kind: ClientTransport,
    pub(crate) published: u64,
    connected: Instant,
    delivered: u64,
    slow_logged_at: Option<Instant>,
    /// True if the client is in [`Clients::dirty`].
    is_dirty: bool,
    /// True if the client is in [`Clients::dirty_answers`].
    is_dirty_answers: bool,
}

/// Transport of a client.
#[derive(Debug)]
pub(crate) enum ClientTransport {
    /// Connected through the Unix socket.
    Attached(Box<Connection>),
    /// In the same process, with a queue for each subscription.
    Embedded(BTreeMap<SubId, Arc<SubscriptionQueue>>),
    /// Connected through a listener.
    #[cfg(feature = "listeners")]
    Listener(Box<ListenerConnection>),
}

#[derive(Debug)]
pub(crate) struct Clients {
    map: BTreeMap<ClientId, ClientEntry>,
    limits: QueueLimits,
    next: u32,
    /// Clients with unwritten messages since the last write. They are written first: the receivers of a message have
    /// waited longer than its publisher.
    dirty: Vec<ClientId>,
    /// Clients with other unwritten output.
    dirty_answers: Vec<ClientId>,
    /// Subscriptions whose queues may be filling up.
    filling: Vec<Target>,
    /// Buffer for the subscriptions of one client that get a message.
    subs: Vec<SubId>,
    /// The attached clients, in the order of their numbers.
    attached: Vec<ClientId>,
    /// The process of the embedded clients.
    own_process: ClientProcess,
    buffers: DeliveryBuffers,
    /// Messages of other sites that gateways have delivered.
    repeats: RepeatFilter,
    /// Delivery state shared by all listener clients.
    #[cfg(feature = "listeners")]
    pub(crate) listener_delivery: ListenerDelivery,
}

impl Clients {
    /// Makes an empty table. `limits` bounds each client's queue; `listener_memory` bounds the bytes of all listener
    /// clients together.
    #[cfg_attr(not(feature = "listeners"), expect(unused_variables, reason = "there are no listener clients"))]
    pub(crate) fn new(limits: QueueLimits, listener_memory: usize) -> Clients {
        Clients {
            map: BTreeMap::new(),
            limits,
            next: 1,
            dirty: Vec::new(),
            dirty_answers: Vec::new(),
            filling: Vec::new(),
            subs: Vec::new(),
            attached: Vec::new(),
            own_process: ClientProcess::own(),
            buffers: DeliveryBuffers::default(),
            repeats: RepeatFilter::default(),
            #[cfg(feature = "listeners")]
            listener_delivery: ListenerDelivery::new(listener_memory),
        }
    }

    /// Returns the limits of each client's queue.
    pub(crate) fn limits(&self) -> QueueLimits {
        self.limits
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the number of clients that no listener serves.
    pub(crate) fn local_count(&self) -> usize {
        #[cfg(feature = "listeners")]
        return self.map.len() - self.listener_delivery.clients;
        #[cfg(not(feature = "listeners"))]
        self.map.len()
    }

    /// Returns the number of messages dropped because clients of listeners did not read fast enough.
    pub(crate) fn dropped_at_listeners(&self) -> u64 {
        #[cfg(feature = "listeners")]
        return self.listener_delivery.dropped;
        #[cfg(not(feature = "listeners"))]
        0
    }

    /// Does nothing: this build has no listener clients.
    #[cfg(not(feature = "listeners"))]
    pub(crate) fn resume_confirmed(&mut self, _id: ClientId, _version: u64) {}

    /// Returns the number of the next client.
    pub(crate) fn peek_next(&self) -> ClientId {
        ClientId(self.next)
    }

    /// Adds a client and assigns its number, which is never reused.
    pub(crate) fn add(&mut self, now: ClockReading, name: String, kind: ClientTransport) -> ClientId {
        let id = self.peek_next();
        self.next = self.next.checked_add(1).expect("4 billion clients");
        let client = ClientEntry {
            name,
            origin: None,
            kind,
            published: 0,
            connected: now.instant,
            delivered: 0,
            slow_logged_at: None,
            is_dirty: false,
            is_dirty_answers: false,
        };
        match &client.kind {
            ClientTransport::Attached(_) => self.attached.push(id),
            #[cfg(feature = "listeners")]
            ClientTransport::Listener(_) => self.listener_delivery.clients += 1,
            ClientTransport::Embedded(_) => {}
        }
        self.map.insert(id, client);
        id
    }

    pub(crate) fn client(&mut self, id: ClientId) -> Option<&mut ClientEntry> {
        self.map.get_mut(&id)
    }

    /// Returns the connection of an attached client.
    pub(crate) fn connection(&mut self, id: ClientId) -> Option<&mut Connection> {
        match &mut self.map.get_mut(&id)?.kind {
            ClientTransport::Attached(connection) => Some(connection),
            _ => None,
        }
    }

    /// Returns the number of clients that have shared memory.
    pub(crate) fn ring_count(&self) -> usize {
        let has_rings = |client: &ClientEntry| match &client.kind {
            ClientTransport::Attached(connection) => connection.rings.is_some(),
            _ => false,
        };
        self.map.values().filter(|client| has_rings(client)).count()
    }

    /// Calls `each` with the attached clients, in the order of their numbers.
    fn for_each_attached(&mut self, mut each: impl FnMut(ClientId, &mut Connection)) {
        for id in &self.attached {
            if let Some(ClientTransport::Attached(connection)) = self.map.get_mut(id).map(|client| &mut client.kind) {
                each(*id, connection);
            }
        }
    }

    /// Wakes the clients with shared memory that wait until their ring is read.
    pub(crate) fn wake_waiting_writers(&mut self) {
        self.for_each_attached(|_, connection| connection.wake_waiting_writer());
    }

    /// Wakes the clients like [`Clients::wake_waiting_writers`]. Returns those that may have input to process now, in the
    /// order of their numbers.
    pub(crate) fn wake_and_find_input(&mut self, is_publish_blocked: bool) -> Vec<ClientId> {
        let mut with_input = Vec::new();
        self.for_each_attached(|id, connection| {
            connection.wake_waiting_writer();
            if connection.has_input(is_publish_blocked) {
                with_input.push(id);
            }
        });
        with_input
    }

    /// Prepares the clients with shared memory for a sleep of the peer: wakes those that wait, and asks all for a
    /// doorbell at their next frame. Returns whether any attached client has input to process now.
    pub(crate) fn arm_rings(&mut self, is_publish_blocked: bool) -> bool {
        let mut has_input = false;
        self.for_each_attached(|_, connection| {
            if let Some(rings) = &mut connection.rings {
                rings.arm();
            }
            connection.wake_waiting_writer();
            has_input |= connection.has_input(is_publish_blocked);
        });
        has_input
    }

    /// Returns the connection state of a client with a stream.
    pub(crate) fn connection_state(&mut self, id: ClientId) -> Option<&mut ConnectionState> {
        match &mut self.map.get_mut(&id)?.kind {
            ClientTransport::Attached(connection) => Some(&mut connection.flow),
            #[cfg(feature = "listeners")]
            ClientTransport::Listener(connection) => Some(&mut connection.flow),
            ClientTransport::Embedded(_) => None,
        }
    }

    /// Schedules a write to a client.
    pub(crate) fn schedule_write(&mut self, id: ClientId) {
        if let Some(client) = self.map.get_mut(&id) {
            client.mark_dirty_answers(id, &mut self.dirty_answers);
        }
    }

    /// Removes all clients.
    pub(crate) fn clear(&mut self) {
        for id in self.ids() {
            self.remove(id);
        }
    }

    pub(crate) fn remove(&mut self, id: ClientId) -> Option<ClientEntry> {
        let mut client = self.map.remove(&id)?;
        self.attached.retain(|other| *other != id);
        match &mut client.kind {
            ClientTransport::Attached(connection) => {
                connection.rings.iter_mut().for_each(|rings| self.buffers.remove_lent(rings));
            }
            ClientTransport::Embedded(queues) => queues.values().for_each(|queue| queue.close()),
            #[cfg(feature = "listeners")]
            ClientTransport::Listener(connection) => {
                self.listener_delivery.clients -= 1;
                self.listener_delivery.memory.release(connection);
            }
        }
        Some(client)
    }

    /// Returns whether an attached client may have input to process now.
    pub(crate) fn has_input(&self, is_publish_blocked: bool) -> bool {
        self.attached.iter().any(|id| match self.map.get(id).map(|client| &client.kind) {
            Some(ClientTransport::Attached(connection)) => connection.has_input(is_publish_blocked),
            _ => false,
        })
    }

    /// Returns whether there are attached clients.
    pub(crate) fn has_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Returns the oldest attached client without a HELLO, if it has been connected for at least `patience`.
    pub(crate) fn oldest_without_hello(&self, now: ClockReading, patience: Duration) -> Option<ClientId> {
        let lacks_hello = |client: &ClientEntry| {
            matches!(&client.kind, ClientTransport::Attached(connection) if !connection.is_greeted)
                && patience <= now.instant.since(client.connected)
        };
        self.map.iter().find(|(_, client)| lacks_hello(client)).map(|(id, _)| *id)
    }

    /// Returns the number of messages that wait for all attached and listener clients.
    pub(crate) fn queued(&self) -> usize {
        let queued = |client: &ClientEntry| match &client.kind {
            ClientTransport::Attached(connection) => connection.outbox.fill().0,
            #[cfg(feature = "listeners")]
            ClientTransport::Listener(connection) => connection.fill().0,
            ClientTransport::Embedded(_) => 0,
        };
        self.map.values().map(queued).sum()
    }

    /// Returns the numbers of all clients.
    pub(crate) fn ids(&self) -> Vec<ClientId> {
        self.map.keys().copied().collect()
    }

    /// Returns the fullness of the fullest queue, in parts of 1,024. It checks queues with deliveries since the last
    /// check, and those that were at least an eighth full then.
    pub(crate) fn fullness(&mut self) -> u64 {
        let mut fullest = 0;
        let map = &mut self.map;
        self.filling.retain(|target| {
            let fullness = match map.get_mut(&target.client).map(|client| &mut client.kind) {
                Some(ClientTransport::Embedded(queues)) => queues.get(&target.sub).map_or(0, |queue| queue.fullness()),
                Some(ClientTransport::Attached(connection)) => {
                    connection.release_buffers();
                    connection.outbox.fullness()
                }
                #[cfg(feature = "listeners")]
                Some(ClientTransport::Listener(connection)) => connection.fullness(),
                None => 0,
            };
            fullest = fullest.max(fullness);
            FULLNESS_MIN <= fullness
        });
        fullest
    }

    /// Adds queues that receive a delivery to those whose fullness the next turn checks. One subscription of an
    /// attached client stands for all of them, since they share an outbox.
    fn record_filling(filling: &mut Vec<Target>, to: &[Target]) {
        for target in to {
            if filling.len() < FILLING_MAX && !filling.contains(target) {
                filling.push(*target);
            }
        }
    }

    /// Delivers an advisory of this peer to every client that has one of the subscriptions.
    pub(crate) fn advise(&mut self, now: ClockReading, to: &[Target], advisory: Delivery) {
        #[cfg(feature = "listeners")]
        let others = self.advise_at_listeners(to, &advisory);
        #[cfg(feature = "listeners")]
        let to = &others[..];
        self.deliver(now, to, advisory.into());
    }

    /// Delivers the runs of a datagram. Their lists go to the queue of the only subscription, or else to the pools.
    pub(crate) fn deliver_runs(&mut self, now: ClockReading, mut batch: RunBatch, lists: &mut ListPools) {
        // Runs of a batch have no header fields, so their messages are none of other sites.
        if let Some([target]) = batch.common_targets().map(|targets| &**targets)
            && let Some(client) = self.map.get_mut(&target.client)
            && let ClientTransport::Embedded(queues) = &client.kind
        {
            Clients::record_filling(&mut self.filling, &[*target]);
            client.delivered += batch.messages() as u64;
            if let Some(queue) = queues.get(&target.sub) {
                queue.push_runs(batch);
            }
            return;
        }
        batch.by_ref().for_each(|(to, deliveries)| self.push(now, &to, deliveries));
        batch.recycle(lists);
    }

    /// Delivers messages to every client that has one of the subscriptions. Messages of other sites that have come from
    /// another gateway before are dropped.
    pub(crate) fn deliver(&mut self, now: ClockReading, to: &[Target], deliveries: Deliveries) {
        if !deliveries.any_headers(is_imported) {
            return self.push(now, to, deliveries);
        }
        for deliveries in self.repeats.filter(deliveries) {
            self.push(now, to, deliveries);
        }
    }

    /// Notes a message that members of queue groups at other peers get: another gateway may deliver it again, for a member
    /// here.
    pub(crate) fn note_assigned(&mut self, delivery: Delivery) {
        if is_imported(delivery.message.headers.block()) {
            drop(self.repeats.filter(delivery.into()));
        }
    }

    /// Returns the number of messages that were dropped because another gateway had delivered them before.
    pub(crate) fn dropped_repeats(&self) -> u64 {
        self.repeats.dropped()
    }

    /// Appends messages to the queues of these subscriptions.
    fn push(&mut self, now: ClockReading, to: &[Target], deliveries: Deliveries) {
        Clients::record_filling(&mut self.filling, to);
        if let [target] = to
            && let Some(client) = self.map.get_mut(&target.client)
            && let ClientTransport::Embedded(queues) = &client.kind
        {
            // In this common case of the fast path nothing is copied, not even references.
            client.delivered += deliveries.len() as u64;
            if let Some(queue) = queues.get(&target.sub) {
                queue.push_messages(deliveries);
            }
            return;
        }
        let mut attached = false;
        #[cfg(feature = "listeners")]
        let mut counted = None;
        for group in to.chunk_by(|a, b| a.client == b.client) {
            match self.map.get_mut(&group[0].client) {
                Some(ClientEntry { kind: ClientTransport::Embedded(queues), delivered, .. }) => {
                    *delivered += deliveries.len() as u64;
                    for_each_queue(queues, group, |queue| queue.push_messages(deliveries.clone()));
                }
                Some(ClientEntry { kind: ClientTransport::Attached(_), .. }) => attached = true,
                #[cfg(feature = "listeners")]
                Some(_) if COMMON_BYTES <= deliveries.bytes() => {
                    let counted =
                        counted.get_or_insert_with(|| self.listener_delivery.memory.count_payloads(&deliveries));
                    counted.iter().for_each(|deliveries| self.deliver_at_listener(now, group, deliveries));
                }
                #[cfg(feature = "listeners")]
                Some(_) => self.deliver_at_listener(now, group, &deliveries),
                None => {}
            }
        }
        match deliveries.run() {
            _ if !attached => {}
            Some(_) => {
                self.push_attached(now, to, |connection, subs| connection.outbox.push_run(subs, deliveries.clone()))
            }
            None => deliveries.for_each(|delivery| match BUFFER_BYTES_MIN <= delivery.message.payload.len() {
                true => self.deliver_large(now, to, &delivery),
                false => {
                    let body = delivery_body(&delivery).freeze();
                    self.push_attached(now, to, |connection, subs| connection.outbox.push_message(subs, &body));
                }
            }),
        }
    }

    fn push_attached(
        &mut self,
        now: ClockReading,
        to: &[Target],
        mut push: impl FnMut(&mut Connection, &[SubId]) -> PushOutcome,
    ) {
        for group in to.chunk_by(|a, b| a.client == b.client) {
            let Some(client) = self.map.get_mut(&group[0].client) else { continue };
            if let ClientTransport::Attached(connection) = &mut client.kind {
                self.subs.clear();
                self.subs.extend(group.iter().map(|target| target.sub));
                connection.release_buffers();
                let outcome = push(connection, &self.subs);
                client.on_pushed(now, group[0].client, outcome, &mut self.dirty);
            }
        }
    }

    /// Reports a loss to the clients that it concerns. A loss without known subjects concerns every subscription of a
    /// client.
    pub(crate) fn report(&mut self, now: ClockReading, to: &[Target], loss: &Loss) {
        let by_subject = matches!(loss.what, LossScope::Messages { .. });
        for group in to.chunk_by(|a, b| a.client == b.client) {
            let Some(client) = self.map.get_mut(&group[0].client) else { continue };
            match &mut client.kind {
                ClientTransport::Embedded(queues) if by_subject => {
                    client.delivered += 1;
                    for_each_queue(queues, group, |queue| queue.push(Notice::Loss(loss.clone())));
                }
                ClientTransport::Embedded(queues) => {
                    client.delivered += 1;
                    distinct(queues.values().collect()).iter().for_each(|queue| queue.push(Notice::Loss(loss.clone())));
                }
                ClientTransport::Attached(connection) => {
                    self.subs.clear();
                    self.subs.extend(group.iter().map(|target| target.sub));
                    let outcome = connection.outbox.push_loss(&self.subs, loss);
                    client.on_pushed(now, group[0].client, outcome, &mut self.dirty);
                }
                #[cfg(feature = "listeners")]
                ClientTransport::Listener(connection) => {
                    // The advisory reports losses without known subjects.
                    let LossScope::Messages { count, .. } = loss.what else { continue };
                    let subs: Vec<SubId> = group.iter().map(|target| target.sub).collect();
                    self.listener_delivery.report_loss(group[0].client, connection, &subs, count);
                }
            }
        }
    }

    /// Notifies a subscription of a publisher.
    pub(crate) fn report_publisher(&mut self, to: Target, publisher: Option<Publisher>) {
        match self.map.get(&to.client).map(|client| &client.kind) {
            Some(ClientTransport::Embedded(queues)) => {
                queues.get(&to.sub).into_iter().for_each(|queue| queue.push_publisher(publisher.clone()));
            }
            Some(ClientTransport::Attached(_)) => {
                self.answer(to.client, &PeerFrame::Discovered { sub: to.sub, publisher })
            }
            _ => {}
        }
    }

    /// Notifies a subscription that its awaited receiver condition has been met.
    pub(crate) fn report_awaited(&mut self, to: Target) {
        match self.map.get(&to.client).map(|client| &client.kind) {
            Some(ClientTransport::Embedded(queues)) => {
                queues.get(&to.sub).into_iter().for_each(|queue| queue.push_awaited())
            }
            Some(ClientTransport::Attached(_)) => self.answer(to.client, &PeerFrame::Awaited { sub: to.sub }),
            _ => {}
        }
    }

    /// Answers an attached client.
    pub(crate) fn answer(&mut self, id: ClientId, answer: &PeerFrame) {
        let Some(client) = self.map.get_mut(&id) else { return };
        if let ClientTransport::Attached(connection) = &mut client.kind {
            connection.outbox.push_answer(answer);
            client.mark_dirty_answers(id, &mut self.dirty_answers);
        }
    }

    /// Writes to every client with unwritten output. Returns those whose connection has ended.
    pub(crate) fn write(&mut self) -> Vec<ClientId> {
        let mut ended = self.write_messages();
        let mut dirty = std::mem::take(&mut self.dirty_answers);
        for id in dirty.drain(..) {
            self.map.get_mut(&id).into_iter().for_each(|client| client.is_dirty_answers = false);
            self.write_to(id, &mut ended);
        }
        self.dirty_answers = dirty;
        ended
    }

    /// Writes to the clients with unwritten messages. Returns those whose connection has ended.
    pub(crate) fn write_messages(&mut self) -> Vec<ClientId> {
        let (mut ended, mut dirty) = (Vec::new(), std::mem::take(&mut self.dirty));
        for id in dirty.drain(..) {
            self.map.get_mut(&id).into_iter().for_each(|client| client.is_dirty = false);
            self.write_to(id, &mut ended);
        }
        self.dirty = dirty;
        ended
    }

    /// Writes to a client, and adds it to `ended` if its connection has ended.
    fn write_to(&mut self, id: ClientId, ended: &mut Vec<ClientId>) {
        let Some(client) = self.map.get_mut(&id) else { return };
        let is_open = match &mut client.kind {
            ClientTransport::Attached(connection) => connection.write(),
            #[cfg(feature = "listeners")]
            ClientTransport::Listener(connection) => self.listener_delivery.write(id, connection),
            ClientTransport::Embedded(_) => true,
        };
        if !is_open {
            ended.push(id);
        }
    }

    /// Returns whether only a few clients have unwritten messages.
    pub(crate) fn has_few_messages(&self) -> bool {
        self.dirty.len() <= WRITES_BEFORE_MULTICAST_MAX
    }

    /// Records that the stream of a client takes bytes again, and schedules a write if there is output.
    pub(crate) fn on_writable(&mut self, id: ClientId) {
        let Some(client) = self.map.get_mut(&id) else { return };
        let has_output = match &mut client.kind {
            ClientTransport::Attached(connection) => {
                connection.flow.is_writable = true;
                !connection.outbox.is_empty()
            }
            #[cfg(feature = "listeners")]
            ClientTransport::Listener(connection) => {
                connection.flow.is_writable = true;
                connection.has_output() || connection.flow.is_closing
            }
            ClientTransport::Embedded(_) => false,
        };
        if has_output {
            client.mark_dirty_answers(id, &mut self.dirty_answers);
        }
    }

    /// Returns the rows of `show clients`.
    pub(crate) fn rows(&mut self, now: ClockReading) -> Vec<ClientRow> {
        for client in self.map.values_mut() {
            if let ClientTransport::Attached(connection) = &mut client.kind {
                connection.release_buffers();
            }
        }
        self.map.iter().map(|(id, client)| client.row(now, *id, &self.own_process)).collect()
    }
}

impl ClientEntry {
    /// Records the outcome of a push to the client, and schedules a write.
    fn on_pushed(&mut self, now: ClockReading, id: ClientId, outcome: PushOutcome, dirty: &mut Vec<ClientId>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(id);
        }
        self.delivered += outcome.accepted as u64;
        if outcome.begins_drops {
            self.log_slow_client(now, id);
        }
    }

    /// Schedules a write of output other than messages.
    fn mark_dirty_answers(&mut self, id: ClientId, dirty_answers: &mut Vec<ClientId>) {
        if !std::mem::replace(&mut self.is_dirty_answers, true) {
            dirty_answers.push(id);
        }
    }

    fn log_slow_client(&mut self, now: ClockReading, id: ClientId) {
        if self.slow_logged_at.is_none_or(|logged_at| SLOW_INTERVAL <= now.instant.since(logged_at)) {
            self.slow_logged_at = Some(now.instant);
            let consequence = slow_consequence(self.origin.map(|origin| origin.protocol));
            tracing::warn!(
                client = id.0,
                name = self.name,
                listener = self.origin.map(|origin| origin.listener),
                from = self.origin.map(|origin| tracing::field::display(origin.address)),
                "client does not read fast enough and {consequence}"
            );
        }
    }

    fn row(&self, now: ClockReading, id: ClientId, own_process: &ClientProcess) -> ClientRow {
        #[cfg(feature = "listeners")]
        let listener = match &self.kind {
            ClientTransport::Listener(connection) => Some(connection),
            ClientTransport::Attached(_) | ClientTransport::Embedded(_) => None,
        };
        let (embedded, process, (queued, bytes, dropped)) = match &self.kind {
            #[cfg(feature = "listeners")]
            ClientTransport::Listener(connection) => (false, None, connection.fill()),
            ClientTransport::Attached(connection) => (false, connection.process.as_ref(), connection.outbox.fill()),
            ClientTransport::Embedded(queues) => {
                let fills = queues.values().map(|queue| queue.fill());
                let sums = fills.fold((0, 0, 0), |sum, fill| (sum.0 + fill.0, sum.1 + fill.1, sum.2 + fill.2));
                (true, Some(own_process), sums)
            }
        };
        ClientRow {
            client: id.0,
            name: self.name.clone(),
            origin: self.origin,
            #[cfg(feature = "listeners")]
            account: listener.and_then(|connection| connection.account.clone()).filter(|account| !account.is_empty()),
            #[cfg(not(feature = "listeners"))]
            account: None,
            embedded,
            process: process.cloned(),
            path: match &self.kind {
                ClientTransport::Attached(connection) => {
                    Some(if connection.rings.is_some() { "shm" } else { "socket" })
                }
                _ => None,
            },
            connected: now.instant.since(self.connected),
            published: self.published,
            delivered: self.delivered,
            dropped,
            queued: queued as u64,
            queued_bytes: bytes as u64,
            #[cfg(feature = "listeners")]
            unread_bytes: listener.map_or(0, |connection| connection.parser.held_bytes() as u64),
            #[cfg(not(feature = "listeners"))]
            unread_bytes: 0,
            #[cfg(feature = "listeners")]
            denied: listener.map_or(0, |connection| connection.denied),
            #[cfg(not(feature = "listeners"))]
            denied: 0,
        }
    }
}

/// Returns the consequence of a full queue for a client of this protocol, or for an attached client (`None`).
fn slow_consequence(protocol: Option<Protocol>) -> &'static str {
    match protocol {
        Some(Protocol::Hat) => "is closed, since its protocol cannot report a loss",
        Some(Protocol::Nats | Protocol::Redis | Protocol::Rv) | None => "loses messages",
    }
}

/// Calls `each` with the queues of these subscriptions, each once.
fn for_each_queue(
    queues: &BTreeMap<SubId, Arc<SubscriptionQueue>>,
    group: &[Target],
    each: impl Fn(&SubscriptionQueue),
) {
    if let [target] = group {
        return queues.get(&target.sub).into_iter().for_each(|queue| each(queue));
    }
    let queues = group.iter().filter_map(|target| queues.get(&target.sub)).collect();
    distinct(queues).iter().for_each(|queue| each(queue));
}

/// Returns each queue once: a queue that serves several subscriptions receives an event once.
pub(crate) fn distinct(mut queues: Vec<&Arc<SubscriptionQueue>>) -> Vec<&Arc<SubscriptionQueue>> {
    if 1 < queues.len() {
        queues.sort_unstable_by_key(|queue| Arc::as_ptr(queue));
        queues.dedup_by(|a, b| Arc::ptr_eq(a, b));
    }
    queues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_hat_client_is_closed_others_lose_messages() {
        assert!(slow_consequence(Some(Protocol::Hat)).starts_with("is closed"));
        for listener in [Some(Protocol::Nats), Some(Protocol::Redis), Some(Protocol::Rv), None] {
            assert_eq!(slow_consequence(listener), "loses messages", "{listener:?}");
        }
    }
}
