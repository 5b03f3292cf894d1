//! The clients of a peer: attached ones through the Unix socket, embedded ones in the same process; what is delivered to
//! each.

use crate::daemon::flow::ConnectionState;
use crate::daemon::listeners::connection::ListenerConnection;
use crate::daemon::listeners::delivery::ListenerDelivery;
use crate::daemon::local::Connection;
use crate::daemon::outbox::{ClientOutbox, PushOutcome};
use crate::daemon::queue::{Notice, QueueLimits, SubscriptionQueue};
use crate::daemon::show::ClientRow;
use crate::listener::client::Protocol;
use crate::listener::frame::PeerFrame;
use crate::listener::output_buffer::COMMON_BYTES;
use crate::listener::session_request::ClientFacts;
use crate::listener::value::delivery_body;
use crate::message::{ClientId, Count, Delivery, Loss, LossScope, Publisher, SubId};
use crate::proto::delivery::Deliveries;
use crate::proto::effect::Target;
use crate::time::{ClockReading, Instant};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Queues that are looked at in each turn for how full they are, at most; those beyond are looked at when there is room.
const FILLING_MAX: usize = 16;
/// From this fullness on a queue is looked at again though nothing is handed to it: an eighth.
const FULLNESS_MIN: u64 = 128;
/// Subscriptions of what waits for the client of a listener that is served, beyond which it gets that at once: what one of its
/// subscriptions takes of memory is little, but it may have very many.
const POSTPONED_SUBS_MAX: usize = 64 * 1024;
/// Writes that may come before a multicast.
const WRITES_FEW: usize = 8;
/// The least time between two log lines about one client being slow.
const SLOW_INTERVAL: Duration = Duration::from_secs(10);

/// A client.
#[derive(Debug)]
pub(crate) struct ClientEntry {
    pub(crate) name: String,
    /// The listener it came through, and from where.
    pub(crate) origin: Option<(Protocol, SocketAddr)>,
    pub(crate) kind: ClientTransport,
    pub(crate) published: u64,
    connected: Instant,
    delivered: u64,
    slow_logged_at: Option<Instant>,
    /// Whether it is among those that messages wait for,
    is_dirty: bool,
    /// and among those that something else waits for.
    is_dirty_answers: bool,
}

/// How a client is reached.
#[derive(Debug)]
pub(crate) enum ClientTransport {
    /// Through the Unix socket.
    Attached(Box<Connection>),
    /// In the same process: a queue for each subscription.
    Embedded(BTreeMap<SubId, Arc<SubscriptionQueue>>),
    /// Through a listener; away while it is served.
    Listener(Option<Box<ListenerConnection>>),
}

/// What was to be delivered to a client of a listener while it was served.
#[derive(Debug)]
struct PostponedDelivery {
    subs: Vec<SubId>,
    what: PostponedContent,
}

#[derive(Debug)]
enum PostponedContent {
    /// Messages.
    Messages(Box<Deliveries>),
    /// So many messages were lost.
    Lost(Count),
}

#[derive(Debug)]
pub(crate) struct Clients {
    map: BTreeMap<ClientId, ClientEntry>,
    limits: QueueLimits,
    next: u32,
    /// Clients that messages wait for since the last write,
    dirty: Vec<ClientId>,
    /// and those that something else waits for: who waits for a message has waited longer than who sent it.
    dirty_answers: Vec<ClientId>,
    /// Subscriptions whose queues may be filling.
    filling: Vec<Target>,
    subs: Vec<SubId>,
    /// The attached clients, in order.
    attached: Vec<ClientId>,
    /// What came for the one client of a listener that is away.
    postponed: Vec<PostponedDelivery>,
    /// Subscriptions of all of it.
    postponed_subs: usize,
    /// What clients of listeners have in common.
    pub(crate) listener_delivery: ListenerDelivery,
}

impl Clients {
    /// With these limits of each client's queue, and of the bytes that clients of listeners hold together.
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
            postponed: Vec::new(),
            postponed_subs: 0,
            listener_delivery: ListenerDelivery::new(listener_memory),
        }
    }

    /// The limits of each client's queue.
    pub(crate) fn limits(&self) -> QueueLimits {
        self.limits
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The number of the next client.
    pub(crate) fn peek_next(&self) -> ClientId {
        ClientId(self.next)
    }

    /// Takes a client in and gives it its number, which is never used again.
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
        if matches!(client.kind, ClientTransport::Attached(_)) {
            self.attached.push(id);
        }
        self.map.insert(id, client);
        id
    }

    pub(crate) fn client(&mut self, id: ClientId) -> Option<&mut ClientEntry> {
        self.map.get_mut(&id)
    }

    /// The connection of an attached client.
    pub(crate) fn connection(&mut self, id: ClientId) -> Option<&mut Connection> {
        match &mut self.map.get_mut(&id)?.kind {
            ClientTransport::Attached(connection) => Some(connection),
            ClientTransport::Embedded(_) | ClientTransport::Listener(_) => None,
        }
    }

    /// The connection of a client of a listener, unless it is away.
    pub(crate) fn listener(&mut self, id: ClientId) -> Option<&mut ListenerConnection> {
        match &mut self.map.get_mut(&id)?.kind {
            ClientTransport::Listener(connection) => connection.as_deref_mut(),
            ClientTransport::Attached(_) | ClientTransport::Embedded(_) => None,
        }
    }

    /// How the bytes of a client come and go, unless it is away.
    pub(crate) fn flow(&mut self, id: ClientId) -> Option<&mut ConnectionState> {
        match &mut self.map.get_mut(&id)?.kind {
            ClientTransport::Attached(connection) => Some(&mut connection.flow),
            ClientTransport::Listener(connection) => connection.as_deref_mut().map(|connection| &mut connection.flow),
            ClientTransport::Embedded(_) => None,
        }
    }

    /// Takes the connection of a client of a listener, to serve it. [`Clients::put_listener`] must follow before another is taken.
    pub(crate) fn take_listener(&mut self, id: ClientId) -> Option<Box<ListenerConnection>> {
        match &mut self.map.get_mut(&id)?.kind {
            ClientTransport::Listener(connection) => connection.take(),
            ClientTransport::Attached(_) | ClientTransport::Embedded(_) => None,
        }
    }

    /// Puts the connection back, with what came for it meanwhile.
    pub(crate) fn put_listener(&mut self, now: ClockReading, id: ClientId, mut connection: Box<ListenerConnection>) {
        self.deliver_postponed(now, id, &mut connection);
        let Some(client) = self.map.get_mut(&id) else { return };
        self.listener_delivery.memory.note(&mut connection);
        if connection.has_output() || connection.flow.is_closing {
            client.mark_dirty_answers(id, &mut self.dirty_answers);
        }
        client.kind = ClientTransport::Listener(Some(connection));
    }

    /// Whether so much came for the connection that is away that it should be handed on.
    pub(crate) fn exceeds_postponed_limit(&self) -> bool {
        POSTPONED_SUBS_MAX < self.postponed_subs
    }

    /// Hands what came for a connection that is away to it.
    pub(crate) fn deliver_postponed(&mut self, now: ClockReading, id: ClientId, connection: &mut ListenerConnection) {
        self.postponed_subs = 0;
        for PostponedDelivery { subs, what } in std::mem::take(&mut self.postponed) {
            match what {
                PostponedContent::Lost(count) => self.listener_delivery.report_loss(id, connection, &subs, count),
                PostponedContent::Messages(deliveries) => {
                    let pushed = self.listener_delivery.deliver(id, connection, self.map.len(), &subs, &deliveries);
                    if let Some(client) = self.map.get_mut(&id) {
                        client.on_pushed(now, id, pushed, &mut self.dirty);
                    }
                }
            }
        }
    }

    /// Moves the clients of listeners that began to lose messages to `slow`.
    pub(crate) fn take_slow(&mut self, slow: &mut Vec<ClientId>) {
        slow.append(&mut self.listener_delivery.slow);
    }

    /// Word for a client of a listener of what it lost, with nothing lost from then on; `None` as long as it could not be told.
    pub(crate) fn take_drop_advisory(&mut self, id: ClientId, me: &Publisher, scid: u16) -> Option<Delivery> {
        let clients = self.map.len();
        let ClientTransport::Listener(Some(connection)) = &mut self.map.get_mut(&id)?.kind else { return None };
        let can_report_drops =
            connection.can_report_drops() && self.listener_delivery.memory.has_share(connection, clients);
        can_report_drops.then(|| connection.lost.take(me, scid))
    }

    /// There is something to write to a client.
    pub(crate) fn schedule_write(&mut self, id: ClientId) {
        if let Some(client) = self.map.get_mut(&id) {
            client.mark_dirty_answers(id, &mut self.dirty_answers);
        }
    }

    /// What is known of the clients of the listener of this connection, which is away, or of one of them.
    pub(crate) fn listener_facts(
        &self,
        now: ClockReading,
        id: ClientId,
        away: &ListenerConnection,
        only: Option<ClientId>,
    ) -> Vec<ClientFacts> {
        let facts = |(other, client): (&ClientId, &ClientEntry)| {
            let connection = match &client.kind {
                ClientTransport::Listener(Some(connection)) if connection.listener == away.listener => connection,
                ClientTransport::Listener(None) if *other == id => away,
                _ => return None,
            };
            Some(ClientFacts {
                id: other.0,
                from: connection.from,
                name: client.name.clone(),
                age_secs: now.instant.since(client.connected).as_secs(),
                resp: connection.session.resp_state(now.instant),
                account: connection.account.clone().unwrap_or_default(),
                unread_bytes: connection.parser.held_bytes(),
                queued_bytes: connection.unwritten.bytes(),
                lost: connection.session.lost(),
                dropped: connection.dropped,
            })
        };
        match only {
            Some(only) => self.map.get_key_value(&only).and_then(facts).into_iter().collect(),
            None => self.map.iter().filter_map(facts).collect(),
        }
    }

    pub(crate) fn remove(&mut self, id: ClientId) -> Option<ClientEntry> {
        let mut client = self.map.remove(&id)?;
        self.attached.retain(|other| *other != id);
        if let ClientTransport::Listener(Some(connection)) = &mut client.kind {
            self.listener_delivery.memory.release(connection);
        }
        if let ClientTransport::Embedded(queues) = &client.kind {
            queues.values().for_each(|queue| queue.close());
        }
        Some(client)
    }

    /// The attached clients that have something the engine can do, as far as is known, in the order of their numbers.
    pub(crate) fn with_input(&self, is_publish_blocked: bool) -> impl Iterator<Item = ClientId> {
        let has_input = move |id: &&ClientId| match self.map.get(id).map(|client| &client.kind) {
            Some(ClientTransport::Attached(connection)) => connection.has_input(is_publish_blocked),
            _ => false,
        };
        self.attached.iter().filter(has_input).copied()
    }

    /// The attached client that has not said who it is for longer than anyone else, if for longer than `patience`.
    pub(crate) fn oldest_unauthenticated(&self, now: ClockReading, patience: Duration) -> Option<ClientId> {
        let is_unauthenticated = |client: &ClientEntry| {
            matches!(&client.kind, ClientTransport::Attached(connection) if !connection.is_greeted)
                && patience <= now.instant.since(client.connected)
        };
        self.map.iter().find(|(_, client)| is_unauthenticated(client)).map(|(id, _)| *id)
    }

    /// Messages that wait for all clients that are connected.
    pub(crate) fn queued(&self) -> usize {
        let queued = |client: &ClientEntry| match &client.kind {
            ClientTransport::Attached(connection) => connection.outbox.fill().0,
            ClientTransport::Listener(Some(connection)) => connection.fill().0,
            ClientTransport::Listener(None) | ClientTransport::Embedded(_) => 0,
        };
        self.map.values().map(queued).sum()
    }

    /// The clients of listeners and how much each holds, from most to least.
    pub(crate) fn by_held_bytes(&self) -> Vec<(usize, ClientId)> {
        let held = |(id, client): (&ClientId, &ClientEntry)| match &client.kind {
            ClientTransport::Listener(Some(connection)) => Some((connection.held_bytes(), *id)),
            ClientTransport::Listener(None) | ClientTransport::Attached(_) | ClientTransport::Embedded(_) => None,
        };
        let mut rows: Vec<(usize, ClientId)> = self.map.iter().filter_map(held).collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        rows
    }

    /// The numbers of all clients.
    pub(crate) fn ids(&self) -> Vec<ClientId> {
        self.map.keys().copied().collect()
    }

    /// How full the fullest queue is, in parts of 1,024, of all to which something was handed since it was last looked at and of
    /// those that were more than a little full then.
    pub(crate) fn fullness(&mut self) -> u64 {
        let mut fullest = 0;
        let map = &self.map;
        self.filling.retain(|target| {
            let fullness = match map.get(&target.client).map(|client| &client.kind) {
                Some(ClientTransport::Embedded(queues)) => queues.get(&target.sub).map_or(0, |queue| queue.fullness()),
                Some(ClientTransport::Attached(connection)) => connection.outbox.fullness(),
                Some(ClientTransport::Listener(Some(connection))) => connection.fullness(),
                Some(ClientTransport::Listener(None)) | None => 0,
            };
            fullest = fullest.max(fullness);
            FULLNESS_MIN <= fullness
        });
        fullest
    }

    /// Something is handed to these; one subscription of an attached client stands for all.
    fn note_filling(filling: &mut Vec<Target>, to: &[Target]) {
        for target in to {
            if filling.len() < FILLING_MAX && !filling.contains(target) {
                filling.push(*target);
            }
        }
    }

    /// Hands messages to every client that has one of the subscriptions.
    pub(crate) fn deliver(&mut self, now: ClockReading, to: &[Target], deliveries: Deliveries) {
        Clients::note_filling(&mut self.filling, to);
        if let [target] = to
            && let Some(client) = self.map.get_mut(&target.client)
            && let ClientTransport::Embedded(queues) = &client.kind
        {
            // The usual case of the fast path: no copy, not even of references.
            client.delivered += deliveries.len() as u64;
            if let Some(queue) = queues.get(&target.sub) {
                queue.push_messages(deliveries);
            }
            return;
        }
        let (mut attached, mut counted) = (false, None);
        for group in to.chunk_by(|a, b| a.client == b.client) {
            match self.map.get_mut(&group[0].client) {
                Some(ClientEntry { kind: ClientTransport::Embedded(queues), delivered, .. }) => {
                    *delivered += deliveries.len() as u64;
                    for_each_queue(queues, group, |queue| queue.push_messages(deliveries.clone()));
                }
                Some(ClientEntry { kind: ClientTransport::Attached(_), .. }) => attached = true,
                Some(_) if COMMON_BYTES <= deliveries.bytes() => {
                    let counted = counted.get_or_insert_with(|| self.listener_delivery.memory.counted(&deliveries));
                    counted.iter().for_each(|deliveries| self.deliver_at_listener(now, group, deliveries));
                }
                Some(_) => self.deliver_at_listener(now, group, &deliveries),
                None => {}
            }
        }
        match deliveries.run() {
            _ if !attached => {}
            Some(_) => self.push_attached(now, to, |outbox, subs| outbox.push_run(subs, deliveries.clone())),
            None => deliveries.for_each(|delivery| {
                let body = delivery_body(&delivery).freeze();
                self.push_attached(now, to, |outbox, subs| outbox.push_message(subs, &body));
            }),
        }
    }

    /// Hands messages to a client of a listener.
    fn deliver_at_listener(&mut self, now: ClockReading, group: &[Target], deliveries: &Deliveries) {
        let (id, clients) = (group[0].client, self.map.len());
        let Some(client) = self.map.get_mut(&id) else { return };
        self.subs.clear();
        self.subs.extend(group.iter().map(|target| target.sub));
        match &mut client.kind {
            ClientTransport::Listener(Some(connection)) => {
                let pushed = self.listener_delivery.deliver(id, connection, clients, &self.subs, deliveries);
                client.on_pushed(now, id, pushed, &mut self.dirty);
            }
            ClientTransport::Listener(None) => {
                let what = PostponedContent::Messages(Box::new(deliveries.clone()));
                self.postponed_subs += self.subs.len();
                self.postponed.push(PostponedDelivery { subs: self.subs.clone(), what });
            }
            ClientTransport::Attached(_) | ClientTransport::Embedded(_) => {}
        }
    }

    fn push_attached(
        &mut self,
        now: ClockReading,
        to: &[Target],
        push: impl Fn(&mut ClientOutbox, &[SubId]) -> PushOutcome,
    ) {
        for group in to.chunk_by(|a, b| a.client == b.client) {
            let Some(client) = self.map.get_mut(&group[0].client) else { continue };
            if let ClientTransport::Attached(connection) = &mut client.kind {
                self.subs.clear();
                self.subs.extend(group.iter().map(|target| target.sub));
                let pushed = push(&mut connection.outbox, &self.subs);
                client.on_pushed(now, group[0].client, pushed, &mut self.dirty);
            }
        }
    }

    /// Hands a loss to the clients it concerns. What cannot be told by subject concerns every subscription of a client.
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
                    let pushed = connection.outbox.push_loss(&self.subs, loss);
                    client.on_pushed(now, group[0].client, pushed, &mut self.dirty);
                }
                ClientTransport::Listener(connection) => {
                    // What cannot be told by subject is told by the advisory.
                    let LossScope::Messages { count, .. } = loss.what else { continue };
                    let subs: Vec<SubId> = group.iter().map(|target| target.sub).collect();
                    match connection {
                        Some(connection) => {
                            self.listener_delivery.report_loss(group[0].client, connection, &subs, count)
                        }
                        None => {
                            self.postponed_subs += subs.len();
                            self.postponed.push(PostponedDelivery { subs, what: PostponedContent::Lost(count) });
                        }
                    }
                }
            }
        }
    }

    /// Tells a subscription of a publisher.
    pub(crate) fn report_publisher(&mut self, to: Target, publisher: Option<Publisher>) {
        match self.map.get(&to.client).map(|client| &client.kind) {
            Some(ClientTransport::Embedded(queues)) => {
                queues.get(&to.sub).into_iter().for_each(|queue| queue.push_publisher(publisher.clone()));
            }
            Some(ClientTransport::Attached(_)) => self.answer(to.client, &PeerFrame::Known { sub: to.sub, publisher }),
            Some(ClientTransport::Listener(_)) | None => {}
        }
    }

    /// Tells a subscription that what it awaits has come.
    pub(crate) fn report_awaited(&mut self, to: Target) {
        match self.map.get(&to.client).map(|client| &client.kind) {
            Some(ClientTransport::Embedded(queues)) => {
                queues.get(&to.sub).into_iter().for_each(|queue| queue.push_awaited())
            }
            Some(ClientTransport::Attached(_)) => self.answer(to.client, &PeerFrame::Awaited { sub: to.sub }),
            Some(ClientTransport::Listener(_)) | None => {}
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

    /// Writes to every client that something waits for. Gives those whose connection is at its end.
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

    /// Writes to those that messages wait for.
    pub(crate) fn write_messages(&mut self) -> Vec<ClientId> {
        let (mut ended, mut dirty) = (Vec::new(), std::mem::take(&mut self.dirty));
        for id in dirty.drain(..) {
            self.map.get_mut(&id).into_iter().for_each(|client| client.is_dirty = false);
            self.write_to(id, &mut ended);
        }
        self.dirty = dirty;
        ended
    }

    /// Writes to a client, and adds it to `ended` if its connection is at its end.
    fn write_to(&mut self, id: ClientId, ended: &mut Vec<ClientId>) {
        let Some(client) = self.map.get_mut(&id) else { return };
        let goes_on = match &mut client.kind {
            ClientTransport::Attached(connection) => connection.write(),
            ClientTransport::Listener(Some(connection)) => self.listener_delivery.write(id, connection),
            ClientTransport::Listener(None) | ClientTransport::Embedded(_) => true,
        };
        if !goes_on {
            ended.push(id);
        }
    }

    /// Whether messages wait for a few clients at most.
    pub(crate) fn has_few_messages(&self) -> bool {
        self.dirty.len() <= WRITES_FEW
    }

    /// The stream of a client takes bytes again.
    pub(crate) fn on_writable(&mut self, id: ClientId) {
        let Some(client) = self.map.get_mut(&id) else { return };
        let has_output = match &mut client.kind {
            ClientTransport::Attached(connection) => {
                connection.flow.is_writable = true;
                !connection.outbox.is_empty()
            }
            ClientTransport::Listener(Some(connection)) => {
                connection.flow.is_writable = true;
                connection.has_output() || connection.flow.is_closing
            }
            ClientTransport::Listener(None) | ClientTransport::Embedded(_) => false,
        };
        if has_output {
            client.mark_dirty_answers(id, &mut self.dirty_answers);
        }
    }

    /// `show clients`.
    pub(crate) fn rows(&self, now: ClockReading) -> Vec<ClientRow> {
        self.map.iter().map(|(id, client)| client.row(now, *id)).collect()
    }
}

impl ClientEntry {
    /// Notes what became of something for an attached client, and that there is something to write.
    fn on_pushed(&mut self, now: ClockReading, id: ClientId, pushed: PushOutcome, dirty: &mut Vec<ClientId>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(id);
        }
        self.delivered += pushed.taken as u64;
        if pushed.begins_drops {
            self.log_slow_client(now, id);
        }
    }

    /// Something that is no message waits for it.
    fn mark_dirty_answers(&mut self, id: ClientId, dirty_answers: &mut Vec<ClientId>) {
        if !std::mem::replace(&mut self.is_dirty_answers, true) {
            dirty_answers.push(id);
        }
    }

    fn log_slow_client(&mut self, now: ClockReading, id: ClientId) {
        if self.slow_logged_at.is_none_or(|told| SLOW_INTERVAL <= now.instant.since(told)) {
            self.slow_logged_at = Some(now.instant);
            let (listener, from) = self.origin.unzip();
            let consequence = slow_consequence(listener);
            let (listener, from) = (listener.map(Protocol::as_str), from.map(tracing::field::display));
            tracing::warn!(
                client = id.0,
                name = self.name,
                listener,
                from,
                "client does not read fast enough and {consequence}"
            );
        }
    }

    fn row(&self, now: ClockReading, id: ClientId) -> ClientRow {
        let listener = match &self.kind {
            ClientTransport::Listener(Some(connection)) => Some(connection),
            _ => None,
        };
        let (embedded, pid, (queued, bytes, dropped)) = match &self.kind {
            ClientTransport::Listener(connection) => {
                (false, None, connection.as_ref().map_or((0, 0, 0), |connection| connection.fill()))
            }
            ClientTransport::Attached(connection) => (false, connection.pid, connection.outbox.fill()),
            ClientTransport::Embedded(queues) => {
                let fills = queues.values().map(|queue| queue.fill());
                let sums = fills.fold((0, 0, 0), |sum, fill| (sum.0 + fill.0, sum.1 + fill.1, sum.2 + fill.2));
                (true, i32::try_from(std::process::id()).ok(), sums)
            }
        };
        ClientRow {
            client: id.0,
            name: self.name.clone(),
            origin: self.origin,
            account: listener.and_then(|connection| connection.account.clone()).filter(|account| !account.is_empty()),
            embedded,
            pid,
            connected: now.instant.since(self.connected),
            published: self.published,
            delivered: self.delivered,
            dropped,
            queued: queued as u64,
            queued_bytes: bytes as u64,
            unread_bytes: listener.map_or(0, |connection| connection.parser.held_bytes() as u64),
        }
    }
}

/// Returns what becomes of a client of this listener, or of an attached program, whose queue is full.
fn slow_consequence(listener: Option<Protocol>) -> &'static str {
    match listener {
        Some(Protocol::Hat) => "is closed, since its protocol cannot report a loss",
        Some(Protocol::Nats | Protocol::Redis) | None => "loses messages",
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

/// The queues, each once: one that serves several subscriptions gets an event once.
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
    fn slow_hat_client_is_closed_and_others_lose_messages() {
        assert!(slow_consequence(Some(Protocol::Hat)).starts_with("is closed"));
        for listener in [Some(Protocol::Nats), Some(Protocol::Redis), None] {
            assert_eq!(slow_consequence(listener), "loses messages", "{listener:?}");
        }
    }
}
