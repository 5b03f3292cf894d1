//! The events of this peer: what clients register is stored, then acknowledged, then multicast; what they ask is looked up in the
//! journal. The journal works on threads of its own, which leave what became of a request in the mailbox of the engine.

mod open;
mod serve;

pub use open::EventsError;

use crate::config::Config;
use crate::daemon::clients::{Clients, Kind};
use crate::daemon::mailbox::{Command, Mailbox, Rejected};
use crate::daemon::store::error::StoreError;
use crate::door::event::{EventAnswer, EventRequest, Registered, parts};
use crate::event::model::{Event, Registration, ServerId};
use crate::event::refusal::{self, Refusal};
use crate::event::store::retention::Retention;
use crate::event::store::{Answer, Query};
use crate::event::timestamp::Timestamp;
use crate::message::{ClientId, Message};
use crate::time::Now;
use crossbeam_channel::Sender;
use open::Opened;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::daemon::store::writer::Append;

/// Requests of one client that wait for the journal, at most.
const CLIENT_WAITING_MAX: usize = 4096;
/// Bytes of events that wait for the journal, at most, apart from the first request.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How long a thread of the journal waits for room in the mailbox before it looks again; it ends when the engine does.
const MAILBOX_PATIENCE: Duration = Duration::from_secs(60);

/// Who asked.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    /// An attached program, with its number for the request.
    Attached(ClientId, u64),
    /// A program in the same process.
    Embedded(ClientId, Sender<Result<EventAnswer, Refusal>>),
    /// A client of a door, with its number for the request.
    Door(ClientId, u64),
    /// The peer itself, which tells something by an event.
    Own,
}

impl Asker {
    fn client(&self) -> ClientId {
        match self {
            Asker::Attached(client, _) | Asker::Embedded(client, _) | Asker::Door(client, _) => *client,
            Asker::Own => ClientId(0),
        }
    }
}

/// What the journal did.
#[derive(Debug)]
pub(crate) enum Done {
    /// These events are stored.
    Registered(Vec<Event>),
    /// These were found.
    Found(Answer),
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Outcome {
    asker: Asker,
    /// What it counted while it waited.
    bytes: usize,
    done: Result<Done, Refusal>,
}

/// The events of a peer.
#[derive(Debug)]
pub(crate) struct EventService {
    directory: PathBuf,
    /// As configured.
    server: Option<ServerId>,
    message_bytes_max: usize,
    retention: Retention,
    /// Opened when it is needed for the first time.
    opened: Option<Opened>,
    /// As whom events are published.
    client: Option<ClientId>,
    /// Requests that wait for the journal, by client.
    waiting: BTreeMap<ClientId, usize>,
    /// Bytes of all of them.
    waiting_bytes: usize,
    /// Events registered since the start.
    registered: u64,
    /// Requests refused since the start.
    refused: u64,
}

impl EventService {
    /// None yet.
    pub(crate) fn new(config: &Config) -> EventService {
        EventService {
            directory: config.data_dir.clone(),
            server: config.server_id,
            message_bytes_max: config.message_size,
            retention: config.event_retention.clone(),
            opened: None,
            client: None,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            registered: 0,
            refused: 0,
        }
    }

    /// Opens the journal before anybody asks, so that what is wrong with it is told at the start.
    pub(crate) fn open(&mut self) -> Result<(), EventsError> {
        self.journal().map(drop)
    }

    /// Whose events are registered here, once the journal is open.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.opened.as_ref().map(|opened| opened.server)
    }

    /// Whether somebody waits for the journal.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Events registered and requests refused since the start.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.registered, self.refused]
    }

    /// The part of `show status`; null without a journal.
    pub(crate) fn status(&self) -> Value {
        self.opened.as_ref().map_or(Value::Null, |opened| {
            let trimmed = opened.writer.trimmed();
            let rules = self.retention.rules.iter().zip(&trimmed.removed);
            let removed = rules.map(|(rule, removed)| {
                json!({ "types": rule.pattern.to_string(), "removed": removed.load(Ordering::Relaxed) })
            });
            json!({
                "retention": removed.collect::<Value>(),
                "trims_failed": trimmed.failed.load(Ordering::Relaxed),
                "server": opened.server.0,
                "journal": opened.path.display().to_string(),
                "waiting": self.waiting.values().sum::<usize>(),
                "waiting_bytes": self.waiting_bytes,
            })
        })
    }

    /// The journal, which is opened if it is not yet.
    fn journal(&mut self) -> Result<&Opened, EventsError> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => Opened::open(&self.directory, self.server, &self.retention)?,
        };
        Ok(self.opened.insert(opened))
    }

    /// As whom events are published: a client of its own, so that they are subject to all that holds up publishers.
    fn publisher(&mut self, now: Now, clients: &mut Clients) -> ClientId {
        let add = || clients.add(now, "events".into(), Kind::Embedded(BTreeMap::new()));
        *self.client.get_or_insert_with(add)
    }

    /// Hands a request to the journal. What becomes of it comes through the mailbox.
    fn begin(
        &mut self,
        (now, publisher): (Now, ClientId),
        mailbox: &Arc<Mailbox>,
        asker: &Asker,
        request: EventRequest,
    ) -> Result<(), Refusal> {
        let bytes = match &request {
            EventRequest::Register(requested) => self.check(requested)?,
            EventRequest::Query(query) => query.check().map(|()| 0)?,
        };
        let of_client = self.waiting.get(&asker.client()).copied().unwrap_or(0);
        let is_much = 0 < self.waiting_bytes && WAITING_BYTES_MAX < self.waiting_bytes + bytes;
        if CLIENT_WAITING_MAX <= of_client || is_much {
            return Err(Refusal::busy());
        }
        let outcome = Outcome { asker: asker.clone(), bytes, done: Err(Refusal::busy()) };
        let mailbox = Arc::clone(mailbox);
        let opened = self.journal().map_err(unavailable)?;
        let is_taken = match request {
            EventRequest::Register(requested) => {
                opened.register(now, requested, Publishing { mailbox, publisher, outcome })
            }
            EventRequest::Query(query) => opened.find(query, mailbox, outcome),
        };
        if !is_taken {
            return Err(Refusal::busy());
        }
        *self.waiting.entry(asker.client()).or_default() += 1;
        self.waiting_bytes += bytes;
        Ok(())
    }

    /// Whether all of these fit messages; gives how many bytes they hold.
    fn check(&self, requested: &[Registration]) -> Result<usize, Refusal> {
        let bytes_max = self.message_bytes_max;
        let size = |registration: &Registration| match registration.message_bytes() {
            bytes if bytes_max < bytes => Err(Refusal::too_large(&registration.event_type, bytes, bytes_max)),
            bytes => Ok(bytes),
        };
        requested.iter().map(size).sum()
    }

    /// A request does not wait any more.
    fn end(&mut self, outcome: &Outcome) {
        self.waiting_bytes -= outcome.bytes;
        let client = outcome.asker.client();
        let count = self.waiting.get_mut(&client).expect("its request was counted when it was handed in");
        *count -= 1;
        if *count == 0 {
            self.waiting.remove(&client);
        }
    }
}

/// What follows when events are stored.
struct Publishing {
    mailbox: Arc<Mailbox>,
    publisher: ClientId,
    outcome: Outcome,
}

impl Opened {
    /// False if the journal has too much to do.
    fn register(&self, now: Now, requested: Vec<Registration>, then: Publishing) -> bool {
        let append = Append::Register { requested, now: Timestamp::from(now.wall) };
        self.writer.append(append, Box::new(move |stored| then.tell(stored))).is_ok()
    }

    /// False if the journal has too much to do.
    fn find(&self, query: Query, mailbox: Arc<Mailbox>, outcome: Outcome) -> bool {
        let heard = move |answer: Result<Answer, StoreError>| {
            let done = answer.map(Done::Found).map_err(refusal);
            push(&mailbox, Command::EventsDone(Box::new(Outcome { done, ..outcome })));
        };
        self.reader.ask(query, Box::new(heard))
    }
}

impl Publishing {
    /// Who asked is told, then the network.
    fn tell(self, stored: Result<Vec<Event>, StoreError>) {
        let Publishing { mailbox, publisher: client, outcome } = self;
        let messages: Vec<Message> = stored.iter().flatten().map(Message::from).collect();
        let done = stored.map(Done::Registered).map_err(refusal);
        push(&mailbox, Command::EventsDone(Box::new(Outcome { done, ..outcome })));
        for message in messages {
            push(&mailbox, Command::Publish { client, message });
        }
    }
}

/// Leaves a command in the mailbox; waits for room as long as the engine lives.
fn push(mailbox: &Mailbox, command: Command) {
    let mut command = command;
    while let Err(Rejected::Full(back)) = mailbox.push(command, MAILBOX_PATIENCE) {
        command = *back;
    }
}

fn unavailable(error: EventsError) -> Refusal {
    Refusal { kind: refusal::Kind::Unavailable, text: error.to_string() }
}

fn refusal(error: StoreError) -> Refusal {
    let kind = match error {
        StoreError::Full => refusal::Kind::Full,
        _ => refusal::Kind::Unavailable,
    };
    Refusal { kind, text: error.to_string() }
}

/// What is told of something done, in one part or more.
fn answers(done: Done) -> Vec<EventAnswer> {
    match done {
        Done::Registered(events) => {
            let none = Registered { server: ServerId(0), session: 0, timestamp: Timestamp::MIN };
            let of = |event: &Event| {
                let Event { id, timestamp, .. } = event;
                Registered { server: id.server, session: id.session, timestamp: *timestamp }
            };
            vec![EventAnswer::Registered(events.first().map_or(none, of))]
        }
        Done::Found(Answer { events, more_follows }) => {
            parts(events, more_follows).into_iter().map(EventAnswer::Found).collect()
        }
    }
}
