//! The bus for Rust programs: embedded or attached, behind one set of calls.
//!
//! [`Bus::embed`] runs a peer in a thread of this program; [`Bus::attach`] uses the peer that runs on this host;
//! [`EmbeddedPeer`] is a peer that the caller's own thread drives. All three publish and subscribe in the same way, and tell
//! every loss as a value beside the messages.

mod ask;
mod embedded;
mod error;
mod events;
mod link;
mod local_connection;
mod request;
mod streams;
mod subscription;

pub use crate::daemon::drop_rule::DropRule;
pub use crate::daemon::local::DirectoryError;
pub use crate::daemon::queue::{Notice, NoticeRef};
pub use crate::daemon::start::{Options, StartError};
pub use crate::listener::refusal::RefusalReason;
pub use crate::listener::stream::{
    Consumers, ResetPosition, StreamEvents, StreamRefusal, StreamRefusalKind, StreamRow, Streams,
};
pub use crate::proto::history::{HistoryEvent, ListedSubject, Selection};
pub use crate::proto::join::{Baseline, JoinFailure, Joined};
pub use crate::proto::question::{Answer, AnswerContent, Fetch, Poll, PollAnswer, Question, Refused};
pub use ask::{HistoryError, HistoryList, PendingAnswer, PollResult};
pub use embedded::EmbeddedPeer;
pub use error::{OpenError, PublishError, RecvError, RequestError, SubscribeError, WaitError};
pub use events::{EventError, PendingRegistration};
pub use request::{Replies, RequestOptions};
pub use streams::{PendingStreamEvent, StreamError};
pub use subscription::Subscription;

use crate::config::Config;
use crate::daemon::mailbox::EngineCommand;
use crate::daemon::queue::{QueueLimits, SubscriptionQueue};
use crate::listener::frame::Welcome;
use crate::message::{DeliveryMode, Epoch, Message, PeerName, Queue, SubId, SubscriptionFilter};
use crate::proto::join::Join;
use crate::proto::peer::inbox_of;
use crate::subject::{Pattern, Subject};
use link::PeerLink;
use local_connection::LocalConnection;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// As long as anyone would wait.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Events that wait in a subscription of an attached bus: as many small messages as come while its thread waits for a
/// processor. Memory is bounded by the bytes.
const QUEUE_COUNT_MAX: usize = 1_000_000;
/// Bytes that wait in a subscription of an attached bus.
const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What is known about the peer behind a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub peer: PeerName,
    /// Its epoch when the bus was opened.
    pub epoch: Epoch,
    /// The group's number in every datagram.
    pub group: u16,
    /// The group's UDP port.
    pub port: u16,
    /// The number that the peer gave this client.
    pub client: u32,
    /// The largest message, in bytes of payload, headers and reply subject.
    pub message_bytes_max: usize,
    /// The version of the peer's program.
    pub software: String,
}

impl Info {
    fn from_welcome(welcome: Welcome) -> Info {
        Info {
            peer: welcome.peer,
            epoch: welcome.epoch,
            group: welcome.group,
            port: welcome.port,
            client: welcome.client,
            message_bytes_max: usize::try_from(welcome.message_bytes_max).expect("32 bits fit"),
            software: welcome.software,
        }
    }
}

/// What a subscription is to get, beside what matches its patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// What it gets when something is missing; `None`: what the peer's configuration says (`delivery`).
    pub mode: Option<DeliveryMode>,
    /// What it gets first of the histories of all publishers, this peer and those of the LAN; then it goes on live, without a
    /// gap and without a message twice. A publisher that becomes known later, and that has published before, is treated in the
    /// same way. `Selection::default()` is all that they keep.
    pub history: Option<Selection>,
    /// Whether every publisher is asked to confirm where the subscription begins; [`Notice::Joined`] tells it, as it does where
    /// there is history.
    pub confirm: bool,
    /// The queue group that it is a member of: of all subscriptions on the LAN that share the name and match a message, one gets
    /// it, whichever listener or program they come by (docs/listeners.md, "Queue groups"). Not with mode `live`, history or confirmation.
    pub queue: Option<Queue>,
}

impl SubscribeOptions {
    /// Whether publishers are asked for anything.
    fn joins(&self) -> bool {
        self.confirm || self.history.is_some()
    }

    fn wanted(&self, pattern: Pattern) -> SubscriptionFilter {
        SubscriptionFilter { pattern, glob: None, queue: self.queue.clone() }
    }

    fn join(&self, patterns: Vec<Pattern>) -> Option<Join> {
        self.joins().then(|| Join::new(patterns, self.history))
    }
}

/// The numbers that a client gives.
#[derive(Debug, Default)]
struct IdCounters {
    sub: AtomicU32,
    inbox: AtomicU64,
}

impl IdCounters {
    fn next_sub(&self) -> u32 {
        self.sub.fetch_add(1, Ordering::Relaxed)
    }

    /// `_INBOX.<epoch>.<client>.<n>`: the epoch lets peers send to this one alone, the rest is unique within it.
    fn inbox(&self, info: &Info) -> Subject {
        let number = self.inbox.fetch_add(1, Ordering::Relaxed);
        format!("{}{}.{number}", inbox_of(info.epoch), info.client).parse().expect("hexadecimal digits and numbers")
    }
}

fn check_message(message: &Message, bytes_max: usize) -> Result<(), PublishError> {
    if message.event { Err(PublishError::Event) } else { check_size(message.body_bytes(), bytes_max) }
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<(), PublishError> {
    if bytes_max < bytes { Err(PublishError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}

/// A handle to the bus. Clones are the same client; the last one that goes closes it. All calls can be made from several
/// threads at once.
#[derive(Clone)]
pub struct Bus {
    shared: Arc<BusInner>,
}

struct BusInner {
    link: PeerLink,
    info: Info,
    numbers: IdCounters,
    limits: QueueLimits,
    is_closed: AtomicBool,
    /// The thread that runs an embedded peer.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Bus {
    /// Starts a peer in a thread of this program.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn embed(config: &Config) -> Result<Bus, OpenError> {
        Bus::embed_with(config, &Options::default())
    }

    /// Starts a peer in a thread of this program that does more, or less, than others: listens on the Unix socket too,
    /// drops datagrams on purpose.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn embed_with(config: &Config, options: &Options) -> Result<Bus, OpenError> {
        let mut embedded = EmbeddedPeer::open_with(config, options)?.without_owner();
        let mut bus = embedded.bus();
        let spawned = std::thread::Builder::new().name("seqcast".into()).spawn(move || embedded.run());
        let thread = spawned.map_err(|error| OpenError::System { step: "start a thread", error })?;
        let shared = Arc::get_mut(&mut bus.shared).expect("nobody else has it yet");
        shared.thread = Mutex::new(Some(thread));
        Ok(bus)
    }

    /// Uses the peer that listens on the Unix socket `path`.
    ///
    /// # Errors
    /// No peer answers there, or it refuses.
    pub fn attach(path: impl AsRef<Path>) -> Result<Bus, OpenError> {
        let program = std::env::args_os().next();
        let name = program.as_deref().map(Path::new).and_then(Path::file_name).map(|name| name.to_string_lossy());
        Bus::attach_as(path, &name.unwrap_or_default())
    }

    /// As [`Bus::attach`], under a name that `show clients` and the peer's log show.
    ///
    /// # Errors
    /// No peer answers there, or it refuses.
    pub fn attach_as(path: impl AsRef<Path>, name: &str) -> Result<Bus, OpenError> {
        let (local_connection, welcome) = LocalConnection::open(path.as_ref(), name)?;
        let limits = QueueLimits { count_max: QUEUE_COUNT_MAX, bytes_max: QUEUE_BYTES_MAX };
        Ok(Bus::new(PeerLink::LocalConnection(local_connection), Info::from_welcome(welcome), limits, None))
    }

    fn new(link: PeerLink, info: Info, limits: QueueLimits, thread: Option<JoinHandle<()>>) -> Bus {
        let (numbers, is_closed, thread) = (IdCounters::default(), AtomicBool::new(false), Mutex::new(thread));
        Bus { shared: Arc::new(BusInner { link, info, numbers, limits, is_closed, thread }) }
    }

    /// Publishes a message. Never waits.
    ///
    /// # Errors
    /// [`PublishError::Full`] gives the message back when the peer is behind.
    pub fn publish(&self, message: Message) -> Result<(), PublishError> {
        self.publish_timeout(message, Duration::ZERO)
    }

    /// Publishes a message, waiting for room in the queue.
    ///
    /// # Errors
    /// It is too large, or the bus is closed.
    pub fn publish_blocking(&self, message: Message) -> Result<(), PublishError> {
        self.publish_timeout(message, FOREVER)
    }

    /// Publishes a message, waiting for room in the queue for at most `timeout`.
    ///
    /// # Errors
    /// [`PublishError::Full`] gives the message back when the peer is still behind.
    pub fn publish_timeout(&self, message: Message, timeout: Duration) -> Result<(), PublishError> {
        self.check_open(check_message(&message, self.shared.info.message_bytes_max))?;
        self.shared.link.publish(message, timeout)
    }

    /// As [`Bus::publish_timeout`], of a message of nothing but subject and payload, which are copied where they are to be: the
    /// fast way to publish. False, and nothing done, if there is no room in time.
    ///
    /// # Errors
    /// It is too large, or the bus is closed.
    pub fn publish_payload(&self, subject: &Subject, payload: &[u8], timeout: Duration) -> Result<bool, PublishError> {
        self.check_open(check_size(payload.len(), self.shared.info.message_bytes_max))?;
        self.shared.link.publish_payload(subject, payload, timeout)
    }

    /// Whether it takes a message of which this is known.
    fn check_open(&self, checked: Result<(), PublishError>) -> Result<(), PublishError> {
        checked?;
        if self.shared.is_closed.load(Ordering::Relaxed) { Err(PublishError::Closed) } else { Ok(()) }
    }

    /// Subscribes to a pattern. When this returns the subscription is active: every message that reaches the peer from
    /// now on counts.
    ///
    /// # Errors
    /// The peer refuses it, or is gone.
    pub fn subscribe(&self, pattern: Pattern) -> Result<Subscription, SubscribeError> {
        self.subscribe_all([pattern])
    }

    /// Subscribes to several patterns as one stream: a message that several of them match comes once.
    ///
    /// # Errors
    /// The peer refuses one of them, or is gone.
    pub fn subscribe_all(&self, patterns: impl IntoIterator<Item = Pattern>) -> Result<Subscription, SubscribeError> {
        self.subscribe_with(patterns, &SubscribeOptions::default())
    }

    /// As [`Bus::subscribe_all`], with options.
    ///
    /// # Errors
    /// The peer refuses one of them, or is gone.
    pub fn subscribe_with(
        &self,
        patterns: impl IntoIterator<Item = Pattern>,
        options: &SubscribeOptions,
    ) -> Result<Subscription, SubscribeError> {
        let queue = Arc::new(SubscriptionQueue::new(self.shared.limits));
        let mut subs = Vec::new();
        let patterns: Vec<Pattern> = patterns.into_iter().collect();
        let last = patterns.len();
        for (index, pattern) in patterns.iter().enumerate() {
            let sub = SubId(self.shared.numbers.next_sub());
            // Publishers are asked when all is subscribed to.
            let news = index + 1 == last && options.joins();
            let wanted = (options.wanted(pattern.clone()), options.mode, news);
            if let Err(error) = self.shared.link.subscribe(sub, wanted, queue.clone()) {
                // A refused one too: its answer may only have come too late.
                subs.iter().chain([&sub]).for_each(|sub| self.shared.link.unsubscribe(*sub));
                return Err(error);
            }
            subs.push(sub);
        }
        let join = options.join(patterns).filter(|_| 0 < last);
        Ok(Subscription::new(queue, subs, self.shared.link.clone(), join))
    }

    /// A subject of one's own for replies: `_INBOX.<epoch>.<client>.<n>`. Peers that know this one send what is published
    /// on it to this one alone.
    pub fn inbox(&self) -> Subject {
        self.shared.numbers.inbox(&self.shared.info)
    }

    /// Waits until all that this client has published has left the peer's socket. [`Bus::publish`] does not wait for the
    /// peer's consent: what it has refused since is told here, once.
    ///
    /// # Errors
    /// A message was refused; not in time, or the bus is closed.
    pub fn flush(&self, timeout: Duration) -> Result<(), WaitError> {
        self.shared.link.flush(timeout)
    }

    /// Asks the peer for a report: `status`, `loss`, `peers`, `subs`, `seqno`, `windows`, `counters` or `clients`.
    /// `docs/local-protocol.md` names the fields. What the peer cannot answer is `{"error": "…"}`.
    ///
    /// # Errors
    /// No answer in time, or the bus is closed.
    pub fn show(&self, what: &str) -> Result<Value, WaitError> {
        self.query(serde_json::json!({ "show": what }))
    }

    /// As [`Bus::show`], with options: `{"show": "seqno", "limit": 20}`.
    ///
    /// # Errors
    /// No answer in time, or the bus is closed.
    pub fn query(&self, query: Value) -> Result<Value, WaitError> {
        self.shared.link.show(query)
    }

    /// What is known about the peer.
    pub fn info(&self) -> &Info {
        &self.shared.info
    }

    /// Why the peer behind the bus, or the connection to it, has ended, if it has.
    pub fn end_reason(&self) -> Option<String> {
        match &self.shared.link {
            PeerLink::Engine(mailbox, _) => mailbox.end_reason(),
            PeerLink::LocalConnection(local_connection) => local_connection.end_reason(),
        }
    }

    /// Closes the bus, for all its clones: what was published leaves, subscriptions end. An embedded peer says BYE to the
    /// group. Waits for that, about three seconds at most; what has not left by then, because receivers or a rate do not let it, is
    /// lost.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl BusInner {
    fn close(&self) {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        match &self.link {
            PeerLink::Engine(mailbox, client) => {
                let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
                let command =
                    if thread.is_some() { EngineCommand::Stop } else { EngineCommand::Detach { client: *client } };
                // If the engine has ended, there is nothing left to end.
                let _ = mailbox.push(command, Duration::ZERO);
                if let Some(thread) = thread {
                    // A failure of the peer is in the log, and `end_reason` says it.
                    let _ = thread.join();
                }
            }
            PeerLink::LocalConnection(local_connection) => local_connection.close(),
        }
    }
}

impl Drop for BusInner {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("info", &self.shared.info).finish_non_exhaustive()
    }
}
