//! The bus that the options select, and its events until the time expires or the output is closed.

pub mod resumption;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bus_options::{BusOptions, PeerOptions};
use super::config;
use crate::bus::{Bus, Notice, RecvError, Replies, RequestError, RequestOptions, SubscribeOptions, Subscription};
use crate::clock::Clock;
use crate::config::Config;
use crate::message::Message;
use crate::subject::{Pattern, Subject};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{Output, note};
use crate::terminal::peer;
use crate::time::Instant;
use resumption::{OutageEnd, Resumption};

/// Interval between checks whether the user has interrupted the command, or the output is closed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Socket of the peer that the Debian package runs as a service.
const SERVICE_SOCKET: &str = "/run/seqcast/seqcast.sock";

/// Attaches to the local peer under this name, or starts one inside this process.
///
/// # Errors
/// An option needs `--embed`; the configuration is wrong; the peer, or the network, cannot be reached.
pub fn bus(options: &BusOptions, name: &str) -> Result<Bus, CommandFailure> {
    open(options, name, peer::attach)
}

/// Connects like [`bus`], for a command that sends one message: making shared memory would take longer.
///
/// # Errors
/// The same as of [`bus`].
pub fn bus_for_message(options: &BusOptions, name: &str) -> Result<Bus, CommandFailure> {
    open(options, name, peer::attach_for_requests)
}

fn open(
    options: &BusOptions,
    name: &str,
    attach: fn(&Path, &str) -> Result<Bus, CommandFailure>,
) -> Result<Bus, CommandFailure> {
    if options.embed {
        return peer::embed(&config::resolve(&options.peer)?, None);
    }
    if let Some(flag) = embed_only_flag(&options.peer) {
        return Err(CommandFailure::new(
            Exit::Usage,
            format!("{flag} sets up a peer, but this command uses the local one"),
        )
        .fix(format!("add --embed to run a peer inside this command, or give {flag} to 'seqcast peer'")));
    }
    attach(&socket(&options.peer)?, name)
}

/// Attaches to the local peer under this name, for a command that asks for reports or changes the peer.
///
/// # Errors
/// The configuration is wrong, or the peer cannot be reached.
pub fn attach(socket: Option<&PathBuf>, name: &str) -> Result<Bus, CommandFailure> {
    peer::attach_for_requests(&self::socket(&PeerOptions { socket: socket.cloned(), ..PeerOptions::default() })?, name)
}

/// Returns the socket of the local peer: from the flag, the environment or the configuration. Where none of them names
/// one, and the user runs no peer, it is that of the service if the service runs.
///
/// # Errors
/// The configuration is wrong.
pub fn socket(options: &PeerOptions) -> Result<PathBuf, CommandFailure> {
    if let Some(socket) = &options.socket {
        return Ok(socket.clone());
    }
    let socket = config::resolve(options)?.socket;
    let (service, is_default) = (Path::new(SERVICE_SOCKET), socket == Config::for_this_host().socket);
    Ok(if is_default && !socket.exists() && service.exists() { service.to_owned() } else { socket })
}

/// Returns the configuration that the options select, with the socket of the local peer as [`socket`] finds it.
///
/// # Errors
/// The configuration is wrong.
pub fn config_of_peer(options: &PeerOptions) -> Result<Config, CommandFailure> {
    let mut config = config::resolve(options)?;
    config.socket = socket(options)?;
    Ok(config)
}

/// Returns the first given flag that needs `--embed`.
fn embed_only_flag(options: &PeerOptions) -> Option<&'static str> {
    let given = [
        ("--name", options.name.is_some()),
        ("--interface", options.interface.is_some()),
        ("--open", options.open),
        ("--group", options.group.is_some()),
        ("--port", options.port.is_some()),
        ("--set", !options.settings.is_empty()),
    ];
    given.into_iter().find_map(|(flag, given)| given.then_some(flag))
}

/// The events of a subscription or a request, until the time expires, the user interrupts the command, or the output is
/// closed.
pub struct Events {
    bus: Bus,
    source: EventSource,
    deadline: Option<Instant>,
    interrupt: Interrupt,
    /// How the command subscribes again if its peer restarts; `None` if it ends with its peer.
    resumption: Option<Resumption>,
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
    /// the wait, not the process.
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
        let source = EventSource::Subscription(Box::new(subscription));
        Ok(Events { bus: bus.clone(), source, deadline, interrupt, resumption: None })
    }

    /// Returns the same events, which survive a restart of the peer if there is a resumption.
    pub fn resumed_by(self, resumption: Option<Resumption>) -> Events {
        Events { resumption, ..self }
    }

    /// Sends a request; the events are its replies. From now on Ctrl-C ends the wait, not the process.
    ///
    /// # Errors
    /// The request is too large, or the peer refuses it or is gone.
    pub fn request(
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
        let source = EventSource::Request(Box::new(replies), subject);
        Ok(Events { bus: bus.clone(), source, deadline, interrupt, resumption: None })
    }

    /// Publishes an answer; waits while the peer is busy. Returns false if the user ends the command first, or if the
    /// peer is away and the events survive that: the answer is then lost, which the call notes.
    ///
    /// # Errors
    /// The message is too large; the peer is gone.
    pub fn publish_answer(&self, message: Message) -> Result<bool, CommandFailure> {
        let subject = message.subject.clone();
        match peer::publish(&self.bus, message, &self.interrupt) {
            Err(failure) if self.survives(&failure) => {
                note(format_args!("the answer to {subject} is lost: {}", failure.text));
                Ok(false)
            }
            published => published,
        }
    }

    /// Waits until everything published has left the peer's socket. A peer that is away is no error if the events
    /// survive that.
    ///
    /// # Errors
    /// The peer is stuck or gone.
    pub fn flush(&self) -> Result<(), CommandFailure> {
        match peer::flush(&self.bus) {
            Err(failure) if self.survives(&failure) => Ok(()),
            flushed => flushed,
        }
    }

    /// Returns whether the failure is that the peer is away, and the events survive that.
    fn survives(&self, failure: &CommandFailure) -> bool {
        self.resumption.is_some() && failure.exit == Exit::Unreachable
    }

    /// Returns the flag that a signal raises.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
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
                Err(RequestError::Closed) if self.resumption.is_some() => {
                    if let Some(reason) = self.resume(out)? {
                        return Ok(Err(reason));
                    }
                }
                Err(error) => return Err(self.failure(error)),
            }
        }
    }

    /// Subscribes again once the peer is back. Returns the reason why the events end, if they do.
    fn resume(&mut self, out: &mut Output) -> Result<Option<StopReason>, CommandFailure> {
        let resumption = self.resumption.as_ref().expect("the caller checks this");
        Ok(match resumption.wait(&self.bus, self.deadline, &self.interrupt, out)? {
            OutageEnd::Resumed(bus, subscription) => {
                self.bus = bus;
                self.source = EventSource::Subscription(subscription);
                None
            }
            OutageEnd::TimedOut => Some(StopReason::TimedOut),
            OutageEnd::Interrupted => Some(StopReason::Interrupted),
        })
    }

    fn failure(&self, error: RequestError) -> CommandFailure {
        match &self.source {
            EventSource::Subscription(_) => peer::end_failure(&self.bus),
            EventSource::Request(_, subject) => request_failure(&self.bus, subject, error),
        }
    }
}

/// Converts the reason why a request has no reply.
fn request_failure(bus: &Bus, subject: &Subject, error: RequestError) -> CommandFailure {
    match error {
        RequestError::Closed => peer::end_failure(bus),
        RequestError::NoResponders => CommandFailure::new(
            Exit::Unreachable,
            format!("no client on the LAN or in another site subscribes to {subject}"),
        )
        .fix("start a responder ('seqcast reply'), or wait for one with --patient"),
        error => CommandFailure::new(Exit::Failed, error),
    }
}
