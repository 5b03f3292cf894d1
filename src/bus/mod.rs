//! The bus for Rust programs: embedded or attached, behind one set of calls.
//!
//! [`Bus::embed`] runs a peer in a thread of this program. [`Bus::attach`] uses the peer that runs on this host.
//! [`EmbeddedPeer`] is a peer that the caller's own thread drives. All three publish and subscribe in the same way,
//! and report every loss as a value beside the messages.
//!
//! ```
//! use seqcast::bus::{Bus, Notice, PublishError};
//! use seqcast::config::Config;
//! use seqcast::message::Message;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bits = seqcast::clock::random_u64().to_be_bytes();
//! let mut config = Config::for_this_host();
//! # config.port = 30_000 + u16::from_be_bytes([bits[0], bits[1]]) % 2_000;
//! let bus = Bus::embed(&config)?;
//! let subscription = bus.subscribe("plant.>".parse()?)?;
//!
//! let message = Message::new("plant.7.temperature".parse()?, "21.5");
//! match bus.publish(message.clone()) {
//!     // A full queue means that the peer is behind: this waits for room.
//!     Err(PublishError::Full) => bus.publish_blocking(message)?,
//!     published => published?,
//! }
//!
//! while let Ok(notice) = subscription.recv_timeout(Duration::from_millis(200)) {
//!     match notice {
//!         Notice::Message(delivery) => println!("{:?}", delivery.message.payload),
//!         Notice::Loss(loss) => println!("{:?} of {} is missing: {}", loss.what, loss.publisher, loss.reason),
//!         _ => {}
//!     }
//! }
//!
//! for row in bus.losses()? {
//!     println!("{}: {} lost, {} repaired", row.publisher, row.lost, row.repaired.count);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Large payloads
//!
//! [`Bus::loan`] lends memory for the payload of a message. With shared memory, the peer copies it once, however many
//! subscribe, and all programs of the host read that copy in place. The memory of a received payload is used again after
//! the last reference to it is gone, so a program that wants few payloads for long should copy them.
//!
//! ```no_run
//! # use seqcast::bus::{Bus, PublishError};
//! # use std::time::Duration;
//! # fn publish(bus: &Bus, image: &[u8]) -> Result<(), PublishError> {
//! let mut buffer = bus.loan(image.len())?;
//! buffer.copy_from_slice(image);
//! bus.publish_loaned(&"camera.1".parse().expect("a subject"), buffer, Duration::from_secs(1))
//! # }
//! ```
//!
//! # Event loops and tasks
//!
//! [`Subscription::readiness_fd`] is a descriptor for `poll` and `epoll`. With the Cargo feature `async` a
//! [`Subscription`] is a `futures_core::Stream`, which needs no runtime.

mod attach;
mod embedded;
mod error;
mod events;
mod history;
mod loan;
mod local_connection;
mod local_handshake;
mod peer_link;
mod reports;
mod request;
mod streams;
mod subscription;

pub use crate::daemon::drop_rule::DropRule;
pub use crate::daemon::local_socket::DirectoryError;
pub use crate::daemon::missing_keys::MissingKeys;
pub use crate::daemon::start::{Options, StartError};
pub use crate::daemon::subscription_queue::{Notice, NoticeRef};
pub use crate::listener::refusal::RefusalReason;
pub use crate::listener::stream::{
    Consumers, ResetPosition, StreamEvents, StreamRefusal, StreamRefusalKind, StreamRow, Streams,
};
pub use crate::proto::history::{HistoryEvent, ListedSubject, Selection};
pub use crate::proto::join::{Baseline, JoinFailure, Joined};
pub use crate::proto::question::{Answer, AnswerContent, Fetch, Poll, PollAnswer, Question, Refused};
pub use crate::proto::stats::{DatagramStates, LossTally, MemberState};
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seqcast::bus::add_event_in_postgres;
/// use seqcast::event::model::Json;
///
/// let mut client = postgres::Client::connect("postgres://plant@db.example/plant", postgres::NoTls)?;
/// let mut transaction = client.transaction()?;
/// transaction.execute("UPDATE accounts SET balance = balance + 10 WHERE number = 7", &[])?;
/// let data = Json::from_bytes(r#"{"amount":"10.00"}"#.into())?;
/// add_event_in_postgres(&mut transaction, &"main".parse()?, &"DEPOSIT".parse()?, &data)?;
/// transaction.commit()?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "postgres")]
pub use crate::storage::streams::postgres::add_event_in as add_event_in_postgres;
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seqcast::bus::add_event_in_sqlite;
/// use seqcast::event::model::Json;
///
/// let mut connection = rusqlite::Connection::open("plant.db")?;
/// let transaction = connection.transaction()?;
/// transaction.execute("UPDATE accounts SET balance = balance + 10 WHERE number = 7", [])?;
/// let data = Json::from_bytes(r#"{"amount":"10.00"}"#.into())?;
/// add_event_in_sqlite(&transaction, &"main".parse()?, &"DEPOSIT".parse()?, &data)?;
/// transaction.commit()?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "sqlite")]
pub use crate::storage::streams::sqlite::add_event_in as add_event_in_sqlite;
pub use attach::AttachOptions;
pub use embedded::EmbeddedPeer;
pub use error::{OpenError, PublishError, RecvError, RequestError, SubscribeError, WaitError};
pub use events::{EventError, PendingRegistration};
pub use history::{HistoryError, HistoryList, PendingAnswer, PendingReport, PollResult};
pub use loan::LoanedBuffer;
pub use reports::{
    ClockSkew, Counter, FlowExclusion, LossReport, PeerReport, ReportError, ReportRows, StatusReport,
    SubscriptionReport,
};
pub use request::{Replies, RequestOptions};
pub use streams::{PendingStreamEvent, StreamError};
pub use subscription::Subscription;

use crate::config::Config;
use crate::daemon::mailbox::{EngineCommand, SubscriptionRequest};
use crate::daemon::subscription_queue::{QueueLimits, SubscriptionQueue};
use crate::listener::frame::Welcome;
use crate::message::{DeliveryMode, Epoch, Message, PeerName, Queue, SubId, SubscriptionFilter};
use crate::proto::join::Join;
use crate::proto::peer::inbox_of;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::subject::{Pattern, Subject};
use peer_link::PeerLink;
use serde_json::Value;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A timeout that never expires in practice.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Facts about the peer behind a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub peer: PeerName,
    /// Its epoch when the bus was opened.
    pub epoch: Epoch,
    /// Number of the group in every datagram.
    pub group: u16,
    /// UDP port of the group.
    pub port: u16,
    /// Number that the peer assigned to this client.
    pub client: u32,
    /// Size limit of a message, in bytes of payload, headers and reply subject.
    pub message_bytes_max: usize,
    /// Version of the peer's program.
    pub software: String,
    /// True if messages pass between this program and its peer through shared memory.
    pub uses_shared_memory: bool,
}

impl Info {
    fn from_welcome(welcome: Welcome, uses_shared_memory: bool) -> Info {
        Info {
            peer: welcome.peer,
            epoch: welcome.epoch,
            group: welcome.group,
            port: welcome.port,
            client: welcome.client,
            message_bytes_max: usize::try_from(welcome.message_bytes_max).expect("32 bits fit"),
            software: welcome.software,
            uses_shared_memory,
        }
    }
}

/// Options of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Delivery of messages after a gap; `None`: the peer's configuration decides (`delivery`).
    pub mode: Option<DeliveryMode>,
    /// Part of all publishers' histories, this peer's and those of the LAN, that is delivered first. Live messages
    /// follow without a gap and without a duplicate. A publisher that becomes known later, and that has published
    /// before, is treated in the same way. `Selection::default()` is everything that they retain.
    pub history: Option<Selection>,
    /// True if the subscription requests each publisher to confirm where it begins; [`Notice::Joined`] reports that, as
    /// it does with history.
    pub confirm: bool,
    /// Queue group of the subscription. Of all matching subscriptions on the LAN that share the name, one gets each
    /// message, whichever listener or program they use (docs/listeners.md, "Queue groups"). Not with mode `live`,
    /// history or confirmation.
    pub queue: Option<Queue>,
}

impl SubscribeOptions {
    /// Returns whether the subscription sends requests to publishers.
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

/// Counters for the numbers that a client assigns.
#[derive(Debug, Default)]
struct IdCounters {
    sub: AtomicU32,
    inbox: AtomicU64,
}

impl IdCounters {
    fn next_sub(&self) -> u32 {
        self.sub.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns `_INBOX.<epoch>.<client>.<n>`: the epoch lets peers send to this peer alone, the rest is unique within
    /// it.
    fn inbox(&self, info: &Info) -> Subject {
        let number = self.inbox.fetch_add(1, Ordering::Relaxed);
        format!("{}{}.{number}", inbox_of(info.epoch), info.client).parse().expect("hexadecimal digits and numbers")
    }
}

fn check_message(message: &Message, bytes_max: usize) -> Result<(), PublishError> {
    if message.event { Err(PublishError::Event) } else { check_size(message.body_bytes(), bytes_max) }
}

#[inline]
fn check_permission(subject: &Subject, publish: &PermittedSubjects) -> Result<(), PublishError> {
    if publish.permits(subject) { Ok(()) } else { Err(PublishError::Denied(subject.clone())) }
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<(), PublishError> {
    if bytes_max < bytes { Err(PublishError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}

/// A handle to the bus. Clones are the same client; dropping the last one closes it. All calls can be made from
/// several threads at once.
#[derive(Clone)]
pub struct Bus {
    shared: Arc<BusInner>,
}

struct BusInner {
    link: PeerLink,
    info: Info,
    numbers: IdCounters,
    limits: QueueLimits,
    /// Subjects on which a program with a peer of its own may publish. A peer of another process checks that itself.
    publish: PermittedSubjects,
    is_closed: AtomicBool,
    /// The thread that runs an embedded peer.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Bus {
    /// Starts a peer in a thread of this program.
    ///
    /// # Errors
    /// Returns why the peer cannot start, and the remedy.
    pub fn embed(config: &Config) -> Result<Bus, OpenError> {
        Bus::embed_with(config, &Options::default())
    }

    /// Starts a peer in a thread of this program with options: for example, it also listens on the Unix socket, or
    /// drops datagrams on purpose.
    ///
    /// # Errors
    /// Returns why the peer cannot start, and the remedy.
    pub fn embed_with(config: &Config, options: &Options) -> Result<Bus, OpenError> {
        let mut embedded = EmbeddedPeer::open_with(config, options)?.without_owner();
        let mut bus = embedded.bus();
        let spawned = std::thread::Builder::new().name("seqcast".into()).spawn(move || embedded.run());
        let thread = spawned.map_err(|error| OpenError::System { step: "start a thread", error })?;
        let shared = Arc::get_mut(&mut bus.shared).expect("no other handle exists yet");
        shared.thread = Mutex::new(Some(thread));
        Ok(bus)
    }

    fn new(link: PeerLink, info: Info, limits: QueueLimits, publish: PermittedSubjects) -> Bus {
        let (numbers, is_closed, thread) = (IdCounters::default(), AtomicBool::new(false), Mutex::new(None));
        Bus { shared: Arc::new(BusInner { link, info, numbers, limits, publish, is_closed, thread }) }
    }

    /// Publishes a message. Never waits.
    ///
    /// # Errors
    /// [`PublishError::Full`] if the peer is behind.
    pub fn publish(&self, message: Message) -> Result<(), PublishError> {
        self.publish_timeout(message, Duration::ZERO)
    }

    /// Publishes a message, waiting for room in the queue.
    ///
    /// # Errors
    /// The message is too large, or the bus is closed.
    pub fn publish_blocking(&self, message: Message) -> Result<(), PublishError> {
        self.publish_timeout(message, FOREVER)
    }

    /// Publishes a message, waiting at most `timeout` for room in the queue.
    ///
    /// # Errors
    /// [`PublishError::Full`] if the peer is still behind.
    pub fn publish_timeout(&self, message: Message, timeout: Duration) -> Result<(), PublishError> {
        self.check_open(check_message(&message, self.shared.info.message_bytes_max))?;
        check_permission(&message.subject, &self.shared.publish)?;
        self.shared.link.publish(message, timeout)
    }

    /// Publishes like [`Bus::publish_timeout`] a message that has only a subject and a payload: the fast way to
    /// publish. Both are copied straight to their destination.
    ///
    /// # Errors
    /// The same as of [`Bus::publish_timeout`].
    pub fn publish_payload(&self, subject: &Subject, payload: &[u8], timeout: Duration) -> Result<(), PublishError> {
        self.check_open(check_size(payload.len(), self.shared.info.message_bytes_max))?;
        check_permission(subject, &self.shared.publish)?;
        self.shared.link.publish_payload(subject, payload, timeout)
    }

    /// Returns the result of a check, or that the bus is closed.
    fn check_open(&self, result: Result<(), PublishError>) -> Result<(), PublishError> {
        result?;
        if self.shared.is_closed.load(Ordering::Relaxed) { Err(PublishError::Closed) } else { Ok(()) }
    }

    /// Subscribes to a pattern. On return the subscription is active: it gets every message that reaches the peer from
    /// then on.
    ///
    /// # Errors
    /// The peer refuses it, or is gone.
    pub fn subscribe(&self, pattern: Pattern) -> Result<Subscription, SubscribeError> {
        self.subscribe_all([pattern])
    }

    /// Subscribes to several patterns as one stream: a message that matches several of them is delivered once.
    ///
    /// # Errors
    /// The peer refuses one of them, or is gone.
    pub fn subscribe_all(&self, patterns: impl IntoIterator<Item = Pattern>) -> Result<Subscription, SubscribeError> {
        self.subscribe_with(patterns, &SubscribeOptions::default())
    }

    /// Subscribes like [`Bus::subscribe_all`], with options.
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
            // Requests to publishers follow once all patterns are subscribed to.
            let wants_discovery = index + 1 == last && options.joins();
            let request =
                SubscriptionRequest { wanted: options.wanted(pattern.clone()), mode: options.mode, wants_discovery };
            if let Err(error) = self.shared.link.subscribe(sub, request, queue.clone()) {
                // The failed subscription ends too: the peer may have accepted it, with a late answer.
                subs.iter().chain([&sub]).for_each(|sub| self.shared.link.unsubscribe(*sub));
                return Err(error);
            }
            subs.push(sub);
        }
        let join = options.join(patterns).filter(|_| 0 < last);
        Ok(Subscription::new(queue, subs, self.shared.link.clone(), join))
    }

    /// Returns a new subject for replies, `_INBOX.<epoch>.<client>.<n>`. Peers that know this peer send what is
    /// published on the subject to this peer alone.
    pub fn inbox(&self) -> Subject {
        self.shared.numbers.inbox(&self.shared.info)
    }

    /// Waits until every message published by this client has left the peer's socket. [`Bus::publish`] does not wait
    /// until the peer accepts the message, so this call reports the first refusal since the previous flush.
    ///
    /// # Errors
    /// The peer refused a message, the time expired, or the bus is closed.
    pub fn flush(&self, timeout: Duration) -> Result<(), WaitError> {
        self.shared.link.flush(timeout)
    }

    /// Requests a report of the peer as JSON, for tools that print it: `status`, `loss`, `outbound`, `peers`, `subs`,
    /// `interest`, `seqno`, `windows`, `history`, `counters` or `clients`. `docs/local-protocol.md` names the fields.
    /// The peer answers an unknown report with `{"error": "…"}`.
    ///
    /// Programs use [`Bus::losses`], [`Bus::peers`], [`Bus::subscriptions`], [`Bus::counters`] and [`Bus::status`],
    /// which return structures.
    ///
    /// # Errors
    /// The answer does not arrive in time, or the bus is closed.
    pub fn show(&self, what: &str) -> Result<Value, WaitError> {
        self.query(serde_json::json!({ "show": what }))
    }

    /// Requests a report like [`Bus::show`], with options: `{"show": "seqno", "limit": 20}`.
    ///
    /// # Errors
    /// The answer does not arrive in time, or the bus is closed.
    pub fn query(&self, query: Value) -> Result<Value, WaitError> {
        self.shared.link.show(query)
    }

    /// Returns the facts about the peer.
    pub fn info(&self) -> &Info {
        &self.shared.info
    }

    /// Returns the reason why the peer behind the bus, or the connection to it, has ended, if it has.
    pub fn end_reason(&self) -> Option<String> {
        match &self.shared.link {
            PeerLink::Engine(mailbox, _) => mailbox.end_reason(),
            PeerLink::LocalConnection(local_connection) => local_connection.end_reason(),
        }
    }

    /// Closes the bus, for all its clones: published messages leave, subscriptions end. An embedded peer says BYE to
    /// the group. Waits for that, about three seconds at most. Messages that are still backpressured by receivers or a
    /// rate then are lost.
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
                    // The log contains a failure of the peer, and `end_reason` returns it.
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
