//! Replication of a journal between peers. One thread claims the server number, announces registered events, answers
//! followers, and follows other servers.

use super::page_queue::PageQueue;
use super::{JournalObserver, push};
use crate::clock::Clock;
use crate::daemon::event_request::EventServiceCommand;
use crate::daemon::mailbox::{EngineCommand, Mailbox};
use crate::daemon::remote_permissions::RemotePermissions;
use crate::daemon::subscription_queue::{Notice, PopError, QueueItem, QueueLimits, SubscriptionQueue};
use crate::event::follower::{Follower, FollowerAction, ServerStatus};
use crate::event::model::{Event, EventId, JSON_DEPTH_MAX, ServerId};
use crate::event::replication::{Announcement, INSTANCE_END, ReplicationPage, ReplicationRequest, split_session};
use crate::event::server_id_claim::{ClaimAction, ServerIdClaim};
use crate::event::server_origin::{ServerOrigin, ServerSite};
use crate::event::store::{Query, QueryPage, ServerQuery};
use crate::event::timestamp::Timestamp;
use crate::listener::replication::{
    HEAD_BYTES, RELAY_SUBJECT, REQUEST_PREFIX, SERVER_PREFIX, encode_announcement, encode_page, encode_request,
    event_bytes, read_announcement, read_page, read_relay, read_request, remove_denied_events, remove_too_deep_events,
};
use crate::message::{ClientId, Delivery, Epoch, Message, PeerName, Publisher};
use crate::proto::peer::inbox_of;
use crate::storage::journal::error::StoreError;
use crate::storage::journal::reader::JournalReader;
use crate::storage::journal::writer::{AppendOp, JournalWriter};
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use crossbeam_channel::bounded;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Limits of the thread's queue; messages beyond them are lost and requested again.
const QUEUE: QueueLimits = QueueLimits { count_max: 65_536, bytes_max: 32 << 20 };
/// Maximum number of messages handled before events are stored or requested.
const MESSAGES_PER_TURN: usize = 64;
/// Maximum bytes of events in a message, unless it is one event.
const MESSAGE_EVENTS_BYTES: usize = 256 * 1024;
/// Maximum number of events examined for a page.
const PAGE_EVENTS: usize = 2048;
/// Client under which queries of other peers run. No connected client has this id, so none cancels them by leaving.
const FOLLOWER_CLIENT: ClientId = ClientId(0);
/// Maximum number of peer names that are cached.
const NAMES_MAX: usize = 4096;

/// The local server, whose journal is shared.
#[derive(Clone, Debug)]
pub(super) struct LocalServer {
    pub(super) server: ServerId,
    /// Bits of the present epoch of this peer. The engine stores those of a new one.
    pub(super) epoch: Arc<AtomicU64>,
    /// The client under which messages are published.
    pub(super) client: ClientId,
    pub(super) message_bytes_max: usize,
    pub(super) mailbox: Arc<Mailbox>,
}

impl LocalServer {
    /// Returns the present epoch of this peer.
    fn epoch(&self) -> Epoch {
        Epoch::new(self.epoch.load(Ordering::Relaxed)).expect("the bits of an epoch are not 0")
    }

    /// Returns the subject of replies, without the query number at its end.
    fn inbox(&self) -> String {
        format!("{}{}.", inbox_of(self.epoch()), self.client.0)
    }

    /// Returns the patterns to subscribe to. The last one is that of the replies, which an epoch changes.
    pub(super) fn patterns(&self) -> [Pattern; 4] {
        let patterns = [
            format!("{SERVER_PREFIX}*"),
            format!("{REQUEST_PREFIX}{}", self.server),
            RELAY_SUBJECT.to_owned(),
            format!("{}*", self.inbox()),
        ];
        patterns.map(|text| text.parse().expect("words and numbers"))
    }

    /// Publishes a message with the event mark, which programs cannot set. It shows that a peer sent the message.
    fn publish(&self, message: Message) {
        let message = Message { event: true, ..message };
        push(&self.mailbox, EngineCommand::Publish { client: self.client, message });
    }

    /// Builds the page for a follower from a query result. Omits events that exceed `message-size`, which may have been
    /// greater when they were registered.
    fn page(&self, question: &ReplicationRequest, found: QueryPage) -> ReplicationPage {
        let size = |event: &Event| match event_bytes(event) {
            bytes if self.event_bytes_max() < bytes => {
                tracing::warn!(event = %event.id, bytes, "the event fits no message (message-size): followers do not receive it");
                None
            }
            bytes => Some(bytes),
        };
        ReplicationPage::new(question, found, self.events_bytes_max(), size)
    }

    /// Returns the maximum bytes of events in a message, unless it is one event.
    fn events_bytes_max(&self) -> usize {
        MESSAGE_EVENTS_BYTES.min(self.event_bytes_max())
    }

    /// Returns the maximum bytes of one event in a message.
    fn event_bytes_max(&self) -> usize {
        self.message_bytes_max.saturating_sub(HEAD_BYTES)
    }
}

fn claim_decision(outcome: Result<(), Publisher>) -> EngineCommand {
    EngineCommand::Events(EventServiceCommand::ClaimDecided(outcome))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds a lock, and a panic would leave the protected value intact.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announcer of the journal, shared by the journal's thread and the replication thread.
#[derive(Debug)]
pub(super) struct JournalAnnouncer {
    local: LocalServer,
    subject: Subject,
    /// The last announcement, without its events. An announcer holds the lock until its message is in the mailbox, so
    /// that announcements leave in order.
    head: Mutex<Announcement>,
    /// True if other peers follow this server. Announcements then contain the events.
    has_followers: AtomicBool,
}

impl JournalAnnouncer {
    /// Returns the announcements for stored events, which form one session. They contain the events if there are
    /// followers.
    pub(super) fn parts(&self, events: &[Event]) -> Vec<Announcement> {
        let head = lock(&self.head).clone();
        if self.has_followers.load(Ordering::Relaxed) {
            return split_session(&head, events, self.local.events_bytes_max(), event_bytes);
        }
        let session_end = events.last().map(|event| EventId { instance: INSTANCE_END, ..event.id });
        session_end.into_iter().map(|end| Announcement { since: end, until: end, ..head.clone() }).collect()
    }

    /// Sends the announcements, after the events themselves were published.
    pub(super) fn on_published(&self, parts: &[Announcement]) {
        let mut head = lock(&self.head);
        for part in parts {
            (head.since, head.until) = (part.until, part.until);
            if !part.events.is_empty() {
                self.publish(&Announcement { is_held: head.is_held, ..part.clone() });
            }
        }
    }

    fn announce(&self, is_held: bool) {
        let mut head = lock(&self.head);
        head.is_held = is_held;
        self.publish(&head);
    }

    fn publish(&self, announcement: &Announcement) {
        self.local.publish(Message::new(self.subject.clone(), encode_announcement(announcement)));
    }
}

/// Status of the replication thread.
#[derive(Debug, Default)]
pub(super) struct ReplicationStatus {
    /// The followed servers, with their peer names where known.
    pub(super) rows: Mutex<Vec<(ServerStatus, Option<PeerName>)>>,
    /// Number of events of other servers that were stored.
    pub(super) followed: AtomicU64,
    /// Number of events of other servers that were not stored because their JSON is nested too deep.
    pub(super) too_deep: AtomicU64,
    /// Number of events of other servers that were not stored because the certificates of those do not permit their types.
    pub(super) denied: AtomicU64,
}

/// Handle of the replication thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Replication {
    pub(super) announcer: Arc<JournalAnnouncer>,
    pub(super) status: Arc<ReplicationStatus>,
    pub(super) queue: Arc<SubscriptionQueue>,
    thread: Option<JoinHandle<()>>,
}

impl Replication {
    /// Starts the thread. The caller routes messages that match the [patterns](LocalServer::patterns) to its queue.
    /// `last_session` is the last session of the local server in the journal.
    pub(super) fn start(
        local: LocalServer,
        last_session: u64,
        follower: Follower,
        reader: Arc<JournalReader>,
        writer: Arc<JournalWriter>,
        observer: Option<Arc<dyn JournalObserver>>,
        permissions: Arc<RemotePermissions>,
    ) -> io::Result<Replication> {
        let now = Clock::now();
        let opened = Timestamp::from(now.wall);
        let end = EventId { server: local.server, session: last_session, instance: INSTANCE_END };
        let follows = follower.is_following();
        let head = Announcement { opened, is_held: false, follows, since: end, until: end, events: Vec::new() };
        let announcer = Arc::new(JournalAnnouncer {
            subject: format!("{SERVER_PREFIX}{}", local.server).parse().expect("words and a number"),
            head: Mutex::new(head),
            has_followers: AtomicBool::new(false),
            local: local.clone(),
        });
        let queue = Arc::new(SubscriptionQueue::new(QUEUE));
        let status = Arc::new(ReplicationStatus::default());
        let replicator = Replicator {
            claim: ServerIdClaim::new(now.instant, local.server, local.epoch(), opened),
            follower,
            names: BTreeMap::new(),
            pages: PageQueue::new(),
            announcer: Arc::clone(&announcer),
            status: Arc::clone(&status),
            queue: Arc::clone(&queue),
            local,
            reader,
            writer,
            observer,
            permissions,
            is_conflict_reported: false,
        };
        let thread = thread::Builder::new().name("replication".into()).spawn(move || replicator.run())?;
        Ok(Replication { announcer, status, queue, thread: Some(thread) })
    }

    /// Continues under a new epoch of this peer. Returns the pattern of the replies from now on.
    pub(super) fn set_epoch(&self, epoch: Epoch) -> Pattern {
        let local = &self.announcer.local;
        local.epoch.store(epoch.bits(), Ordering::Relaxed);
        let [.., replies] = local.patterns();
        replies
    }

    /// Returns the part of `show status` about the followed servers.
    pub(super) fn status(&self) -> Value {
        let row = |(row, name): &(ServerStatus, Option<PeerName>)| {
            json!({
                "server": row.covered.server.0,
                "peer": name.as_ref().map(PeerName::as_str),
                "epoch": row.publisher.map(|epoch| epoch.to_string()),
                "site": row.site.as_ref().and_then(ServerSite::other),
                "session": row.covered.session,
                "state": row.state.as_str(),
            })
        };
        lock(&self.status.rows).iter().map(row).collect()
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported the fault.
            drop(thread.join());
        }
    }
}

struct Replicator {
    local: LocalServer,
    claim: ServerIdClaim,
    follower: Follower,
    names: BTreeMap<Epoch, PeerName>,
    pages: PageQueue,
    announcer: Arc<JournalAnnouncer>,
    status: Arc<ReplicationStatus>,
    queue: Arc<SubscriptionQueue>,
    reader: Arc<JournalReader>,
    writer: Arc<JournalWriter>,
    observer: Option<Arc<dyn JournalObserver>>,
    permissions: Arc<RemotePermissions>,
    /// True once the log has named another site with a server of this number.
    is_conflict_reported: bool,
}

impl Replicator {
    fn run(mut self) {
        loop {
            let now = Clock::now().instant;
            self.poll_actions(now);
            let deadline =
                self.follower.deadline().map_or(self.claim.deadline(), |then| then.min(self.claim.deadline()));
            let first = match self.queue.pop_wait(Some(deadline.since(now))) {
                Ok(item) => item,
                Err(PopError::Empty) => continue,
                Err(PopError::Closed) => return,
            };
            let now = Clock::now().instant;
            self.on_item(now, first);
            for _ in 0..MESSAGES_PER_TURN {
                let Ok(item) = self.queue.pop() else { break };
                self.on_item(now, item);
            }
        }
    }

    fn poll_actions(&mut self, now: Instant) {
        while let Some(action) = self.claim.poll(now) {
            match action {
                ClaimAction::Announce => self.announcer.announce(self.claim.is_held()),
                ClaimAction::Hold => push(&self.local.mailbox, claim_decision(Ok(()))),
                ClaimAction::Yield(to) => self.yield_claim(to),
            }
        }
        self.announcer.has_followers.store(self.claim.has_followers(), Ordering::Relaxed);
        while let Some(action) = self.follower.poll(now) {
            match action {
                FollowerAction::Store(events) => {
                    let fetched = self.follower.take_fetched();
                    if let Some(observer) = self.observer.as_ref().filter(|_| !fetched.is_empty()) {
                        observer.on_fetched(fetched);
                    }
                    self.store(now, events);
                }
                FollowerAction::Request { number, request } => self.request(number, &request),
                FollowerAction::Report(notice) if notice.is_warning() => tracing::warn!("{notice}"),
                FollowerAction::Report(notice) => tracing::info!("{notice}"),
            }
        }
        let named = |row: ServerStatus| {
            let name = row.publisher.and_then(|publisher| self.names.get(&publisher).cloned());
            (row, name)
        };
        *lock(&self.status.rows) = self.follower.rows().map(named).collect();
    }

    fn yield_claim(&self, to: Epoch) {
        self.announcer.announce(false);
        let other = Publisher { name: self.names.get(&to).cloned(), epoch: to, uid: 0 };
        push(&self.local.mailbox, claim_decision(Err(other)));
    }

    fn on_item(&mut self, now: Instant, item: QueueItem) {
        match item {
            QueueItem::Notice(Notice::Message(delivery)) => self.on_message(now, delivery),
            QueueItem::Notice(Notice::Loss(loss)) => self.follower.on_loss(Some(loss.publisher.epoch)),
            QueueItem::Notice(Notice::Dropped(_)) => self.follower.on_loss(None),
            QueueItem::Notice(Notice::Joined(_)) => {}
            // The reader signals an available page with this item.
            QueueItem::Publisher(_) => {
                while let Some((_, reply, page)) = self.pages.take() {
                    page.iter().for_each(|page| self.local.publish(Message::new(reply.clone(), encode_page(page))));
                }
            }
        }
    }

    /// Handles a message. Ignores messages without the event mark, which programs send, messages with other headers than
    /// those of relayed messages, which are events, and messages that cannot be decoded.
    fn on_message(&mut self, now: Instant, delivery: Delivery) {
        let (Message { subject, reply, payload, headers, event: true }, publisher) =
            (delivery.message, delivery.publisher)
        else {
            return;
        };
        let from = publisher.epoch;
        let Some(origin) = ServerOrigin::of_message(&headers, from) else { return };
        let is_relayed = origin.site != ServerSite::Own;
        let subject = subject.as_str();
        if let Some(number) = subject.strip_prefix(SERVER_PREFIX) {
            let Ok(mut announcement) = read_announcement(payload, self.follower.is_following()) else { return };
            self.drop_refused_events(from, &mut announcement.events);
            let is_own = from == self.local.epoch() && !is_relayed;
            if announcement.until.server.to_string() == number && !is_own {
                self.remember_name(publisher);
                if is_relayed {
                    self.report_site_conflict(&origin, &announcement);
                } else {
                    self.claim.on_announcement(now, from, &announcement);
                }
                self.follower.on_announcement(now, from, &origin, announcement);
            }
        } else if let Some(number) = subject.strip_prefix(&self.local.inbox()) {
            let (Ok(number), Ok(mut page)) = (number.parse(), read_page(payload)) else { return };
            self.drop_refused_events(from, &mut page.events);
            self.follower.on_page(now, from, &origin, number, page);
        } else if subject == RELAY_SUBJECT && read_relay(payload.clone()).is_ok() {
            self.claim.on_relay(now, from);
        } else if subject.starts_with(REQUEST_PREFIX)
            && let (Some(reply), Ok(question)) = (reply, read_request(payload))
            && reply.as_str().starts_with(&inbox_of(from))
        {
            self.answer(from, reply, question);
        }
    }

    fn remember_name(&mut self, publisher: Publisher) {
        if let Some(name) = publisher.name {
            if NAMES_MAX <= self.names.len() {
                self.names.clear();
            }
            self.names.insert(publisher.epoch, name);
        }
    }

    /// Logs once that another site has a server with the number of this one.
    fn report_site_conflict(&mut self, origin: &ServerOrigin, announcement: &Announcement) {
        let server = self.local.server;
        if announcement.is_held && announcement.until.server == server && !self.is_conflict_reported {
            self.is_conflict_reported = true;
            tracing::warn!(%server, site = %origin.site, "another site has a server of this number, too: give one of the two peers another server-id");
        }
    }

    /// Removes the events that stock Hat clients could not read, and those that the certificate of their server does not
    /// permit. Logs the first, second, fourth … of either kind.
    fn drop_refused_events(&self, from: Epoch, events: &mut Vec<Event>) {
        for event in remove_too_deep_events(events) {
            let refused = self.status.too_deep.fetch_add(1, Ordering::Relaxed) + 1;
            if refused.is_power_of_two() {
                tracing::warn!(%event, peer = %from, refused, "event of another server not stored: its JSON is nested deeper than {JSON_DEPTH_MAX} levels");
            }
        }
        let permitted = self.permissions.of(from);
        for event in remove_denied_events(events, &permitted) {
            let denied = self.status.denied.fetch_add(1, Ordering::Relaxed) + 1;
            if denied.is_power_of_two() {
                tracing::warn!(%event, peer = %from, denied, "event of another server not stored: the certificate of that host does not permit its type; sign a new request of it with a pattern for the type (seqcast realm sign), or find the program that registers it");
            }
        }
    }

    fn request(&self, number: u64, question: &ReplicationRequest) {
        let subject = format!("{REQUEST_PREFIX}{}", question.after.server).parse().expect("words and a number");
        let reply = format!("{}{number}", self.local.inbox()).parse().expect("words and numbers");
        self.local.publish(Message { reply: Some(reply), ..Message::new(subject, encode_request(question)) });
    }

    /// Answers one query of a peer at a time: a follower sends the next one after it has the answer.
    fn answer(&mut self, from: Epoch, reply: Subject, question: ReplicationRequest) {
        let server = self.local.server;
        if !self.claim.is_held() || question.after.server != server {
            return;
        }
        let Some(reply_sender) = self.pages.admit(from) else { return };
        let query = Query::Server(ServerQuery { server, after: Some(question.after), limit: Some(PAGE_EVENTS) });
        let (local, queue) = (self.local.clone(), Arc::clone(&self.queue));
        let callback = move |found| {
            let page = match found {
                Err(StoreError::NoServer(..)) => Some(local.page(&question, QueryPage::default())),
                Ok(found) => Some(local.page(&question, found)),
                Err(error) => {
                    tracing::warn!(%error, peer = %from, "query of events not answered: the journal could not be read");
                    None
                }
            };
            // The channel has room for the answer to each admitted query. It is closed when the peer stops.
            drop(reply_sender.try_send((from, reply, page)));
            queue.push_publisher(None);
        };
        if !self.reader.request(FOLLOWER_CLIENT, query, Box::new(callback)) {
            self.pages.cancel(from);
        }
    }

    fn store(&mut self, now: Instant, events: Vec<Event>) {
        let count = events.len() as u64;
        let (outcome_sender, outcome) = bounded(1);
        let observer = self.observer.clone();
        let callback = move |stored: Result<Vec<Event>, _>| {
            if let (Some(observer), Ok(events)) = (&observer, &stored) {
                observer.on_stored(events);
            }
            drop(outcome_sender.send(stored.map(drop)));
        };
        let error = match self.writer.append(AppendOp::Follow(events), Box::new(callback)) {
            Err(refused) => Some(refused.error.to_string()),
            Ok(()) => match outcome.recv() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the journal has ended".to_owned()),
            },
        };
        self.follower.on_stored(now, error.is_none());
        match error {
            None => drop(self.status.followed.fetch_add(count, Ordering::Relaxed)),
            Some(error) => {
                tracing::warn!(error, events = count, "events of other servers not stored; they are requested again")
            }
        }
    }
}
