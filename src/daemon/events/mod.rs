//! The events of this peer. Events that clients register are stored, then acknowledged, then multicast; queries are
//! answered from the journal. The journal runs on threads of its own, which post the outcome of a request to the
//! engine's mailbox. Another thread ensures that no other peer uses this server's number, and follows the servers of
//! other peers.

mod journal_handle;
mod page_queue;
mod replication;
mod service;

pub use journal_handle::EventsError;

use crate::config::Config;
use crate::daemon::clients::{ClientTransport, Clients};
use crate::daemon::event_request::{
    EventCompletion, EventRequestCost, EventRequester, EventServiceCommand, JournalReply, ServerIdConflict,
};
use crate::daemon::mailbox::{EngineCommand, Mailbox, PushError};
use crate::daemon::remote_permissions::RemotePermissions;
use crate::daemon::subscription_queue::SubscriptionQueue;
use crate::event::follower::{FetchedEvent, Follower};
use crate::event::model::{Event, EventId, Payload, Registration, SESSION_EVENTS_MAX, ServerId, TYPE_NAME_BYTES_MAX};
use crate::event::refusal::{self, EventRefusal};
use crate::event::store::retention::Retention;
use crate::event::store::{Query, QueryPage};
use crate::event::stream::store::StreamSettings;
use crate::event::timestamp::Timestamp;
use crate::listener::event::{EventAnswer, EventRequest, RegisteredSession, split_answer};
use crate::message::{ClientId, Message};
use crate::storage::journal::error::StoreError;
use crate::storage::journal::reader::JournalReader;
use crate::storage::journal::writer::AppendOp;
use crate::subject::event_type::TypePattern;
use crate::time::{ClockReading, Instant};
use journal_handle::JournalHandle;
use replication::{JournalAnnouncer, LocalServer, Replication};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of requests of one client that wait for the journal.
const CLIENT_WAITING_MAX: usize = 4096;
/// Pause before the service retries to open a journal that could not be opened.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum bytes of events that wait for the journal. Beyond it each client may still use its share.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Timeout of one wait of a journal thread for room in the mailbox. The thread repeats the wait while the engine runs.
const MAILBOX_PATIENCE: Duration = Duration::from_secs(60);

/// A service that consumes the events of the journal. The journal's threads and the replication thread call its
/// methods.
pub(crate) trait JournalObserver: fmt::Debug + Send + Sync {
    /// Reports that the journal has stored these events, of one server or several.
    fn on_stored(&self, events: &[Event]);

    /// Reports events that were fetched from other servers, before they are stored. May wait for room.
    fn on_fetched(&self, events: Vec<FetchedEvent>);
}

/// Access to the journal for a service that consumes its events and registers others.
pub(crate) struct JournalSource {
    /// The server whose events are registered here.
    pub(crate) server: ServerId,
    /// For each server, the last event in the journal.
    pub(crate) last_events: Vec<EventId>,
    pub(crate) reader: Arc<JournalReader>,
    /// Client under which the service registers events.
    pub(crate) client: ClientId,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// State of the server-id claim, which allows this peer to register events.
#[derive(Debug)]
enum ClaimStatus {
    /// The claim is not decided yet.
    Pending,
    /// This peer may register events under the number.
    Granted,
    /// Another peer holds the number.
    Denied(ServerIdConflict),
}

/// Requests of one client that wait for the journal.
#[derive(Clone, Copy, Debug, Default)]
struct ClientBacklog {
    count: usize,
    /// Bytes of their events.
    bytes: usize,
}

/// The events of a peer.
#[derive(Debug)]
pub(crate) struct EventService {
    directory: PathBuf,
    /// Server number as configured.
    server: Option<ServerId>,
    message_bytes_max: usize,
    retention: Retention,
    /// Types whose events are followed at other servers.
    follow: Vec<TypePattern>,
    /// Replication of the journal; declared before `journal`, so that its thread ends before the journal closes.
    replication: Option<Replication>,
    claim: ClaimStatus,
    /// Requests to register events that wait for the server-id claim.
    waiting_for_claim: Vec<(EventRequester, EventRequestCost, EventRequest)>,
    /// The open journal; `None` before its first use.
    journal: Option<JournalHandle>,
    /// The service that consumes the events of the journal.
    observer: Option<Arc<dyn JournalObserver>>,
    /// Client under which events are published; `None` before its first use.
    client: Option<ClientId>,
    /// Requests that wait for the journal, by client.
    backlogs: BTreeMap<ClientId, ClientBacklog>,
    /// Event bytes of all waiting requests.
    waiting_bytes: usize,
    /// Number of events registered since the start.
    registered: u64,
    /// Number of requests refused since the start.
    refused: u64,
    /// Number of these refused because the journal was unavailable or full.
    journal_failures: u64,
    /// The last failure to open the journal, with its time. Retries are limited, since each one delays the bus.
    open_failure: Option<(Instant, EventRefusal)>,
}

impl EventService {
    /// Creates the service without opening the journal.
    pub(crate) fn new(config: &Config) -> EventService {
        EventService {
            directory: config.data_dir.clone(),
            server: config.server_id,
            message_bytes_max: config.message_size,
            retention: config.event_retention.clone(),
            follow: followed_types(config),
            replication: None,
            claim: ClaimStatus::Pending,
            waiting_for_claim: Vec::new(),
            journal: None,
            observer: None,
            client: None,
            backlogs: BTreeMap::new(),
            waiting_bytes: 0,
            registered: 0,
            refused: 0,
            journal_failures: 0,
            open_failure: None,
        }
    }

    /// Opens the journal before any request arrives, so that its faults are reported at the start.
    pub(crate) fn open(&mut self) -> Result<(), EventsError> {
        if self.journal.is_none() {
            self.journal = Some(JournalHandle::open(&self.directory, self.server, &self.retention)?);
        }
        Ok(())
    }

    /// Notifies this observer whenever the journal grows. The caller must set the observer before the journal grows.
    pub(crate) fn set_observer(&mut self, observer: Arc<dyn JournalObserver>) {
        self.observer = Some(observer);
    }

    /// Returns the journal for a service that registers events as `client`, if it is open.
    pub(crate) fn journal_source(&self, client: ClientId, mailbox: &Arc<Mailbox>) -> Option<JournalSource> {
        let journal = self.journal.as_ref()?;
        Some(JournalSource {
            server: journal.server,
            last_events: journal.last_events.clone(),
            reader: Arc::clone(&journal.reader),
            client,
            mailbox: Arc::clone(mailbox),
        })
    }

    /// Returns whether the data directory contains a journal of this peer, which can be opened.
    pub(crate) fn has_journal(&self) -> bool {
        JournalHandle::exists(&self.directory)
    }

    /// Returns the server whose events are registered here, once the journal is open.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.journal.as_ref().map(|journal| journal.server)
    }

    /// Returns the number of requests that wait for the journal, or whose events are not all published.
    fn waiting_request_count(&self) -> usize {
        self.backlogs.values().map(|backlog| backlog.count).sum()
    }

    /// Returns the number of events registered, of requests refused, and of events of other servers that were stored, too
    /// deep, and denied since the start.
    pub(crate) fn counts(&self) -> [u64; 5] {
        let status = self.replication.as_ref().map(|replication| &replication.status);
        let [followed, too_deep, denied] = status.map_or([0; 3], |status| {
            [&status.followed, &status.too_deep, &status.denied].map(|count| count.load(Ordering::Relaxed))
        });
        [self.registered, self.refused, followed, too_deep, denied]
    }

    /// Returns the status; null without a journal.
    fn status(&self) -> Value {
        self.journal.as_ref().map_or(Value::Null, |journal| {
            let trimmed = journal.writer.trimmed();
            let rules = self.retention.rules.iter().zip(&trimmed.removed);
            let removed = rules.map(|(rule, removed)| {
                json!({ "types": rule.pattern.to_string(), "removed": removed.load(Ordering::Relaxed) })
            });
            json!({
                "retention": removed.collect::<Value>(),
                "trims_failed": trimmed.failed.load(Ordering::Relaxed),
                "server": journal.server.0,
                "journal": journal.path.display().to_string(),
                "waiting": self.waiting_request_count(),
                "waiting_bytes": self.waiting_bytes,
                "claimed": matches!(self.claim, ClaimStatus::Granted),
                "followed": self.replication.as_ref().map_or_else(|| json!([]), Replication::status),
            })
        })
    }

    /// Opens the journal for a request, like [`EventService::open`]; retries a failure after [`OPEN_INTERVAL`].
    fn open_with_retry(&mut self, now: ClockReading) -> Result<(), EventRefusal> {
        if let Some((failed_at, refusal)) = &self.open_failure
            && now.instant.since(*failed_at) < OPEN_INTERVAL
        {
            return Err(refusal.clone());
        }
        let opened = self.open().map_err(unavailable);
        self.open_failure = opened.as_ref().err().map(|refusal| (now.instant, refusal.clone()));
        opened
    }

    /// Returns the client under which events are published. The service adds this client on its first use, so that
    /// publisher backpressure applies to events, too.
    fn publisher(&mut self, now: ClockReading, clients: &mut Clients) -> ClientId {
        let add = || clients.add(now, "events".into(), ClientTransport::Embedded(BTreeMap::new()));
        *self.client.get_or_insert_with(add)
    }

    /// Starts the replication of the journal. Returns the queue that takes the messages for it.
    fn start_replication(
        &mut self,
        local: &LocalServer,
        permissions: Arc<RemotePermissions>,
    ) -> Result<Arc<SubscriptionQueue>, EventsError> {
        let journal = self.journal.as_mut().expect("the caller has opened the journal");
        let last_events = journal.last_events.clone();
        let last = last_events.iter().find(|id| id.server == local.server).map_or(0, |id| id.session);
        let follower = Follower::new(local.server, self.follow.clone(), last_events);
        let (reader, writer) = (Arc::clone(&journal.reader), Arc::clone(&journal.writer));
        let path = &journal.path;
        let failed = |error| EventsError::System { step: "start a thread for", path: path.clone(), error };
        let (local, observer) = (local.clone(), self.observer.clone());
        let replication =
            Replication::start(local, last, follower, reader, writer, observer, permissions).map_err(failed)?;
        Ok(Arc::clone(&self.replication.insert(replication).queue))
    }

    /// Submits a request to the journal. The outcome arrives through the mailbox.
    fn begin(
        &mut self,
        now: ClockReading,
        publisher: ClientId,
        mailbox: &Arc<Mailbox>,
        requester: &EventRequester,
        request: EventRequest,
    ) -> Result<(), EventRefusal> {
        let bytes = match &request {
            EventRequest::Register(requested) => self.check(requested)?,
            EventRequest::Query(query) => query.check().map(|()| 0)?,
        };
        if !self.has_room(requester.client(), bytes) {
            return Err(EventRefusal::busy());
        }
        let cost = EventRequestCost { client: requester.client(), bytes };
        let notify = CompletionNotifier { mailbox: Arc::clone(mailbox), requester: requester.clone(), cost };
        let journal = self.journal.as_ref().expect("the caller has opened the journal");
        let result = match (request, &self.claim, &self.replication) {
            (EventRequest::Query(query), ..) => journal.find(query, notify),
            (EventRequest::Register(requested), ClaimStatus::Granted, Some(replication)) => {
                let announcer = Arc::clone(&replication.announcer);
                journal.register(
                    now,
                    requested,
                    PublishTask { notify, publisher, announcer, observer: self.observer.clone() },
                )
            }
            (_, ClaimStatus::Denied(conflict), _) => return Err(denial(conflict)),
            (request, ..) => {
                self.waiting_for_claim.push((requester.clone(), cost, request));
                Ok(())
            }
        };
        result.map_err(refusal)?;
        let backlog = self.backlogs.entry(requester.client()).or_default();
        (backlog.count, backlog.bytes) = (backlog.count + 1, backlog.bytes + bytes);
        self.waiting_bytes += bytes;
        Ok(())
    }

    /// Returns whether a client's request with `bytes` bytes of events may wait. Beyond the limit of all clients, each
    /// client may have one request, or its share of the bytes.
    fn has_room(&self, client: ClientId, bytes: usize) -> bool {
        let backlog = self.backlogs.get(&client).copied().unwrap_or_default();
        let share = WAITING_BYTES_MAX / (self.backlogs.len() + 1);
        let is_over_share = WAITING_BYTES_MAX < self.waiting_bytes + bytes && share < backlog.bytes + bytes;
        backlog.count < CLIENT_WAITING_MAX && (backlog.bytes == 0 || !is_over_share)
    }

    /// Checks that the number of events is within the limit and that each fits a message. Returns their bytes.
    fn check(&self, requested: &[Registration]) -> Result<usize, EventRefusal> {
        if SESSION_EVENTS_MAX < requested.len() {
            return Err(EventRefusal::too_many(requested.len()));
        }
        let bytes_max = self.message_bytes_max;
        let size = |registration: &Registration| match (registration.message_bytes(), &registration.payload) {
            (_, Some(Payload::Binary { type_name, .. })) if TYPE_NAME_BYTES_MAX < type_name.len() => {
                Err(EventRefusal::long_type_name(&registration.event_type, type_name.len()))
            }
            (bytes, _) if bytes_max < bytes => Err(EventRefusal::too_large(&registration.event_type, bytes, bytes_max)),
            (bytes, _) => Ok(bytes),
        };
        requested.iter().map(size).sum()
    }

    /// Records the outcome of the server-id claim. Returns the requests that have waited for it.
    fn on_claim_decision(&mut self, outcome: Result<(), ServerIdConflict>) -> Vec<(EventRequester, EventRequest)> {
        self.claim = match outcome {
            Ok(()) => ClaimStatus::Granted,
            Err(conflict) => ClaimStatus::Denied(conflict),
        };
        let waiting = std::mem::take(&mut self.waiting_for_claim);
        waiting.iter().for_each(|(_, cost, _)| self.end(*cost));
        waiting.into_iter().map(|(requester, _, request)| (requester, request)).collect()
    }

    /// Returns the peer that holds the server id of this one, if there is one.
    pub(crate) fn server_id_conflict(&self) -> Option<&ServerIdConflict> {
        match &self.claim {
            ClaimStatus::Denied(conflict) => Some(conflict),
            ClaimStatus::Pending | ClaimStatus::Granted => None,
        }
    }

    /// Returns whether the journal is open and not yet shared with other peers.
    fn needs_replication(&self) -> bool {
        self.journal.is_some() && self.replication.is_none()
    }

    /// Releases the cost of a finished request.
    fn end(&mut self, EventRequestCost { client, bytes }: EventRequestCost) {
        self.release_cost(client, 1, bytes);
    }

    fn release_cost(&mut self, client: ClientId, count: usize, bytes: usize) {
        self.waiting_bytes -= bytes;
        let backlog = self.backlogs.get_mut(&client).expect("a request is counted when it is submitted");
        (backlog.count, backlog.bytes) = (backlog.count - count, backlog.bytes - bytes);
        if backlog.count == 0 {
            self.backlogs.remove(&client);
        }
    }
}

/// Notifier that reports the outcome of a request to its requester.
struct CompletionNotifier {
    mailbox: Arc<Mailbox>,
    requester: EventRequester,
    cost: EventRequestCost,
}

/// Follow-up work for stored events.
struct PublishTask {
    notify: CompletionNotifier,
    publisher: ClientId,
    announcer: Arc<JournalAnnouncer>,
    observer: Option<Arc<dyn JournalObserver>>,
}

/// Returns the types whose events are followed at other servers: the configured ones, and those of the streams served
/// here.
fn followed_types(config: &Config) -> Vec<TypePattern> {
    let streams = config.streams.iter().filter(|_| config.ftn18.is_some());
    config.event_follow.iter().cloned().chain(streams.flat_map(StreamSettings::patterns)).collect()
}

impl JournalHandle {
    fn register(&self, now: ClockReading, requested: Vec<Registration>, then: PublishTask) -> Result<(), StoreError> {
        let append = AppendOp::Register { registrations: requested, now: Timestamp::from(now.wall) };
        self.writer.append(append, Box::new(move |stored| then.run(stored))).map_err(|refused| refused.error)
    }

    fn find(&self, query: Query, notify: CompletionNotifier) -> Result<(), StoreError> {
        let requester = notify.cost.client;
        let callback = move |answer: Result<QueryPage, StoreError>| {
            let answer = match (answer, &notify.requester) {
                // The listener protocols cannot express that error.
                (Err(StoreError::NoEvent(_) | StoreError::NoServer(..)), EventRequester::Listener(..)) => {
                    Ok(QueryPage::default())
                }
                (answer, _) => answer,
            };
            let ended = Some(notify.cost);
            notify.notify(answer.map(JournalReply::Found), ended);
        };
        if self.reader.request(requester, query, Box::new(callback)) { Ok(()) } else { Err(StoreError::Busy) }
    }
}

impl CompletionNotifier {
    fn notify(&self, result: Result<JournalReply, StoreError>, ended: Option<EventRequestCost>) {
        let (requester, result) = (self.requester.clone(), result.map_err(refusal));
        let completion = EventServiceCommand::Completed(Box::new(EventCompletion { requester, result, ended }));
        push(&self.mailbox, EngineCommand::Events(completion));
    }
}

impl PublishTask {
    /// Reports the events to the observer and the requester, then publishes and announces them.
    fn run(self, stored: Result<Vec<Event>, StoreError>) {
        let PublishTask { notify, publisher: client, announcer, observer } = self;
        let events = stored.as_deref().unwrap_or_default();
        if let Some(observer) = observer {
            observer.on_stored(events);
        }
        let (messages, parts) = (events.iter().map(Message::from).collect(), announcer.parts(events));
        notify.notify(stored.map(JournalReply::Registered), None);
        push(&notify.mailbox, EngineCommand::PublishEvents { client, messages, ended: notify.cost });
        announcer.on_published(&parts);
    }
}

/// Posts a command to the mailbox; waits for room while the engine lives.
fn push(mailbox: &Mailbox, command: EngineCommand) {
    let mut command = command;
    while let Err(PushError::Full(back)) = mailbox.push(command, MAILBOX_PATIENCE) {
        command = *back;
    }
}

fn unavailable(error: EventsError) -> EventRefusal {
    EventRefusal { kind: refusal::EventRefusalKind::Unavailable, text: error.to_string() }
}

fn denial(conflict: &ServerIdConflict) -> EventRefusal {
    let text = format!("{conflict}: {}", ServerIdConflict::FIX);
    EventRefusal { kind: refusal::EventRefusalKind::Unavailable, text }
}

fn refusal(error: StoreError) -> EventRefusal {
    let kind = match error {
        StoreError::Busy => return EventRefusal::busy(),
        StoreError::Full => refusal::EventRefusalKind::Full,
        StoreError::NoEvent(_) | StoreError::NoServer(..) => refusal::EventRefusalKind::Invalid,
        _ => refusal::EventRefusalKind::Unavailable,
    };
    EventRefusal { kind, text: error.to_string() }
}

/// Returns the answer to a program that has registered events.
fn registered_answer(events: &[Event]) -> EventAnswer {
    let empty = RegisteredSession { server: ServerId(0), session: 0, timestamp: Timestamp::MIN };
    let of = |event: &Event| {
        let Event { id, timestamp, .. } = event;
        RegisteredSession { server: id.server, session: id.session, timestamp: *timestamp }
    };
    EventAnswer::Registered(events.first().map_or(empty, of))
}

/// Splits the events found by a query into one or more answer parts.
fn found_answers(QueryPage { events, more_follows }: QueryPage) -> Vec<EventAnswer> {
    split_answer(events, more_follows).into_iter().map(EventAnswer::Found).collect()
}
