//! The bus as the commands use it: the local peer through its socket, or a peer of their own; events until the time
//! expires or nobody reads them any more.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::args::{BusOptions, PeerOptions};
use super::config;
use super::exit::{CommandFailure, Exit};
use super::interrupt::Interrupt;
use super::output::Output;
use crate::bus::{
    Bus, DropRule, Notice, OpenError, Options, PublishError, RecvError, Replies, RequestError, RequestOptions,
    StartError, SubscribeOptions, Subscription, WaitError,
};
use crate::config::Config;
use crate::daemon::clock::Clock;
use crate::daemon::listeners::ListenerError;
use crate::daemon::stream_service::http::HttpError;
use crate::daemon::stream_service::peer_streams as streams;
use crate::message::Message;
use crate::subject::{Pattern, Subject};
use crate::time::Instant;

/// Time limit for a peer of one's own to send HELLO.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Interval between checks whether it has.
const HELLO_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Time that the other peers' answers to HELLO may take.
const ANSWER_TIME: Duration = Duration::from_millis(30);
/// Time limit for the peer to send all published messages, as its socket and the network need.
const FLUSH_TIME: Duration = Duration::from_secs(30);
/// Interval between checks whether the user or the reader of the output has ended the command.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Attaches to the local peer under this name, or starts one inside this process.
///
/// # Errors
/// An option needs `--embed`; the configuration is wrong; the peer, or the network, cannot be reached.
pub fn bus(options: &BusOptions, name: &str) -> Result<Bus, CommandFailure> {
    if options.embed {
        return embed(&config::resolve(&options.peer)?, None);
    }
    if let Some(flag) = flag_of_embedded(&options.peer) {
        return Err(CommandFailure::new(
            Exit::Usage,
            format!("{flag} sets up a peer, but this command uses the local one"),
        )
        .fix(format!("add --embed to run a peer inside this command, or give {flag} to 'seqcast peer'")));
    }
    attach(&socket(&options.peer)?, name)
}

/// Attaches to the peer at this socket under this name.
///
/// # Errors
/// The peer cannot be reached.
pub fn attach(socket: &Path, name: &str) -> Result<Bus, CommandFailure> {
    Bus::attach_as(socket, name).map_err(open_failure)
}

/// Starts a peer inside this process that drops datagrams by the rule. On return it has introduced itself: its
/// messages come from a peer with a name, and others can send replies to it alone.
///
/// # Errors
/// The network cannot be reached, or the peer cannot start for another reason.
pub fn embed(config: &Config, drop: Option<DropRule>) -> Result<Bus, CommandFailure> {
    let bus = Bus::embed_with(config, &Options { drop, ..Options::default() }).map_err(open_failure)?;
    let deadline = Clock::now().instant + HELLO_TIME;
    while counter(&bus, "datagrams_multicast")? == 0 && Clock::now().instant < deadline {
        std::thread::sleep(HELLO_CHECK_INTERVAL);
    }
    std::thread::sleep(ANSWER_TIME);
    Ok(bus)
}

/// Returns a counter of the peer, by name.
///
/// # Errors
/// The same as of [`show`].
pub fn counter(bus: &Bus, name: &str) -> Result<u64, CommandFailure> {
    let answer = show(bus, json!({ "show": "counters" }))?;
    let row = answer["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["counter"] == name));
    Ok(row.and_then(|row| row["value"].as_u64()).unwrap_or(0))
}

/// Converts the reason why there is no bus: no peer answers, the network is absent, or another reason.
fn open_failure(error: OpenError) -> CommandFailure {
    match error {
        OpenError::Start(error) => start_failure(&error),
        OpenError::System { .. } => CommandFailure::new(Exit::Failed, error),
        OpenError::NoPeer { .. }
        | OpenError::Directory(_)
        | OpenError::NoPermission { .. }
        | OpenError::Incompatible { .. }
        | OpenError::Refused(_) => CommandFailure::new(Exit::Unreachable, error),
    }
}

/// Converts the reason why a peer could not start: the network is absent, or another reason.
pub fn start_failure(error: &StartError) -> CommandFailure {
    let exit = match error {
        StartError::Interface(_) | StartError::SelfTest(_) => Exit::Unreachable,
        StartError::Listener(ListenerError::Tls { .. })
        | StartError::Streams(streams::StreamsOpenError::Http(HttpError::ListenerTls(_))) => Exit::Configuration,
        StartError::Sockets(_)
        | StartError::Socket(_)
        | StartError::Listener(_)
        | StartError::Events(_)
        | StartError::Streams(_)
        | StartError::System { .. } => Exit::Failed,
    };
    CommandFailure::new(exit, error)
}

/// Returns the socket of the local peer: from the flag, the environment or the configuration.
///
/// # Errors
/// The configuration is wrong.
pub fn socket(options: &PeerOptions) -> Result<PathBuf, CommandFailure> {
    match &options.socket {
        Some(socket) => Ok(socket.clone()),
        None => Ok(config::resolve(options)?.socket),
    }
}

fn flag_of_embedded(options: &PeerOptions) -> Option<&'static str> {
    let given = [
        ("--name", options.name.is_some()),
        ("--interface", options.interface.is_some()),
        ("--group", options.group.is_some()),
        ("--port", options.port.is_some()),
        ("--set", !options.settings.is_empty()),
    ];
    given.into_iter().find_map(|(flag, given)| given.then_some(flag))
}

/// Publishes a message; waits while the peer is busy, until the user ends it.
///
/// # Errors
/// The message is too large; the peer is gone.
pub fn publish(bus: &Bus, message: Message, interrupt: &Interrupt) -> Result<(), CommandFailure> {
    loop {
        match bus.publish_timeout(message.clone(), POLL_INTERVAL) {
            Ok(()) => return Ok(()),
            Err(PublishError::Full) if !interrupt.is_raised() => {}
            Err(PublishError::Closed) => return Err(gone(bus)),
            Err(error) => return Err(CommandFailure::new(Exit::Failed, error)),
        }
    }
}

/// Waits until everything published has left the peer's socket.
///
/// # Errors
/// The peer is stuck or gone.
pub fn flush(bus: &Bus) -> Result<(), CommandFailure> {
    bus.flush(FLUSH_TIME).map_err(|error| wait_failure(bus, error, "not everything published has left the peer"))
}

/// Asks the peer for a report.
///
/// # Errors
/// The peer does not know the question, is stuck or gone.
pub fn show(bus: &Bus, query: Value) -> Result<Value, CommandFailure> {
    let answer = bus.query(query).map_err(|error| wait_failure(bus, error, "the peer does not answer"))?;
    match answer["error"].as_str() {
        None => Ok(answer),
        Some(error) => Err(CommandFailure::new(Exit::Failed, error)),
    }
}

fn wait_failure(bus: &Bus, error: WaitError, what: &str) -> CommandFailure {
    match error {
        WaitError::Closed => gone(bus),
        WaitError::Timeout | WaitError::Refused(_) => CommandFailure::new(Exit::Failed, format!("{what}: {error}")),
    }
}

/// Returns the failure of a command whose peer has ended.
pub fn gone(bus: &Bus) -> CommandFailure {
    let why = bus.end_reason().unwrap_or_else(|| "it stopped".to_owned());
    CommandFailure::new(Exit::Unreachable, format!("the peer is gone: {why}"))
}

/// The events of a subscription, until the time expires, the user ends it, or nobody reads the output.
pub struct Events {
    bus: Bus,
    source: EventSource,
    deadline: Option<Instant>,
    interrupt: Interrupt,
}

/// Source of the events.
enum EventSource {
    Subscription(Box<Subscription>),
    Request(Box<Replies>, Subject),
}

impl EventSource {
    fn recv_timeout(&mut self, timeout: Duration) -> Result<Notice, RequestError> {
        match self {
            EventSource::Request(replies, _) => replies.recv_timeout(timeout),
            EventSource::Subscription(subscription) => {
                subscription.recv_timeout(timeout).map_err(|error| match error {
                    RecvError::Empty => RequestError::Timeout,
                    RecvError::Closed => RequestError::Closed,
                })
            }
        }
    }
}

/// Reason why there is no further event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The time has expired.
    TimedOut,
    /// The user has ended the command.
    Interrupted,
}

impl Events {
    /// Subscribes to the patterns; a message that matches several of them is delivered once. From now on Ctrl-C ends
    /// the waiting, not the process.
    ///
    /// # Errors
    /// The peer refuses the subscription or is gone.
    pub fn subscribe(
        bus: &Bus,
        patterns: &[Pattern],
        options: &SubscribeOptions,
        wait: Option<Duration>,
    ) -> Result<Events, CommandFailure> {
        let interrupt = Interrupt::watch()?;
        let subscription = bus
            .subscribe_with(patterns.iter().cloned(), options)
            .map_err(|error| CommandFailure::new(Exit::Failed, error))?;
        let deadline = wait.map(|wait| Clock::now().instant + wait);
        Ok(Events { bus: bus.clone(), source: EventSource::Subscription(Box::new(subscription)), deadline, interrupt })
    }

    /// Sends a request; the events are its replies. From now on Ctrl-C ends the waiting, not the process.
    ///
    /// # Errors
    /// The request is too large, or the peer refuses it or is gone.
    pub fn of_request(
        bus: &Bus,
        request: Message,
        options: &RequestOptions,
        wait: Duration,
    ) -> Result<Events, CommandFailure> {
        let interrupt = Interrupt::watch()?;
        let deadline = Some(Clock::now().instant + wait);
        let subject = request.subject.clone();
        let replies =
            bus.request_with(request, options, wait).map_err(|error| request_failure(bus, &subject, error))?;
        Ok(Events { bus: bus.clone(), source: EventSource::Request(Box::new(replies), subject), deadline, interrupt })
    }

    /// Returns the next event, or the reason why there is none. Flushes standard output before it waits.
    ///
    /// # Errors
    /// The peer is gone, standard output is closed, or the request has no responder.
    pub fn next(&mut self, out: &mut Output) -> Result<Result<Notice, StopReason>, CommandFailure> {
        loop {
            if self.interrupt.is_raised() {
                return Ok(Err(StopReason::Interrupted));
            }
            let left =
                self.deadline.map_or(POLL_INTERVAL, |deadline| deadline.since(Clock::now().instant).min(POLL_INTERVAL));
            if left.is_zero() {
                return Ok(Err(StopReason::TimedOut));
            }
            let mut event = self.source.recv_timeout(Duration::ZERO);
            if event == Err(RequestError::Timeout) {
                out.flush()?;
                if out.is_closed() {
                    return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
                }
                event = self.source.recv_timeout(left);
            }
            match event {
                Ok(event) => return Ok(Ok(event)),
                Err(RequestError::Timeout) => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
    }

    fn failure(&self, error: RequestError) -> CommandFailure {
        match &self.source {
            EventSource::Subscription(_) => gone(&self.bus),
            EventSource::Request(_, subject) => request_failure(&self.bus, subject, error),
        }
    }
}

/// Converts the reason why a request has no reply.
fn request_failure(bus: &Bus, subject: &Subject, error: RequestError) -> CommandFailure {
    match error {
        RequestError::Closed => gone(bus),
        RequestError::NoResponders => {
            CommandFailure::new(Exit::Unreachable, format!("nobody on the LAN is subscribed to {subject}"))
                .fix("start who answers ('seqcast reply'), or wait for it with --patient")
        }
        error => CommandFailure::new(Exit::Failed, error),
    }
}
