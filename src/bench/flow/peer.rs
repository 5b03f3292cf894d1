//! The bus as a program of the bench reaches it: one set of calls for each path.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::args::BenchPath;
use crate::bench::child::Launch;
use crate::bench::control_channel::ControlChannel;
use crate::bench::daemon::DaemonProcess;
use crate::bench::host;
use crate::bench::host::{SLEEP_SLACK, resource_usage};
use crate::bench::job::{DaemonJob, Drop as Dropped, PeerSettings, ProcessCommand, ProcessReport, ReadyReport, Window};
use crate::bench::temporary_directory::remove_at_end;
use crate::bus::{
    AttachOptions, Bus, EmbeddedPeer, LoanedBuffer, NoticeRef, Options, PublishError, RecvError, SubscribeError,
    Subscription,
};
use crate::config::Config;
use crate::daemon::drop_rule::DropRule;
use crate::message::Message;
use crate::subject::{Pattern, Subject};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::peer;

/// Time limit for a peer to send all published messages.
const FLUSH_TIME: Duration = Duration::from_secs(30);
/// Maximum wait for room in the queue between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The bus.
pub enum BenchPeer {
    /// A peer that this thread drives, and another client of it if one was needed, whose subscriptions end with it.
    Driven(Box<EmbeddedPeer>, Option<Bus>),
    /// A peer that drives itself.
    Served(Bus, PeerPlace),
}

/// The place of a peer that drives itself.
pub enum PeerPlace {
    /// Another thread of this process.
    Thread,
    /// Another process, which ends with this value.
    Daemon(DaemonProcess),
    /// A process of this number, which all programs share.
    SharedDaemon(u32),
}

impl BenchPeer {
    /// Starts a peer, or a daemon and attaches to it, or attaches to the daemon that all programs share.
    ///
    /// # Errors
    /// Returns why the peer cannot start.
    pub fn open(values: &PeerSettings, path: BenchPath, drop: Option<Dropped>) -> Result<BenchPeer, CommandFailure> {
        let config = values.config()?;
        match path {
            BenchPath::Library => {
                let embedded = EmbeddedPeer::open_with(&config, &options(drop, false));
                embedded
                    .map(|embedded| BenchPeer::Driven(Box::new(embedded), None))
                    .map_err(|error| peer::start_failure(&error))
            }
            BenchPath::Threads => peer::embed(&config, options(drop, false).drop).map(BenchPeer::threaded),
            BenchPath::Daemon => start_and_attach(values, drop, false),
            BenchPath::Shm => start_and_attach(values, drop, true),
            BenchPath::Host => attach_to_shared(&config.socket),
        }
    }

    fn threaded(bus: Bus) -> BenchPeer {
        BenchPeer::Served(bus, PeerPlace::Thread)
    }

    /// Publishes a message. Returns false if the bus is backpressured.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn publish(&mut self, subject: &Subject, payload: &[u8]) -> Result<bool, CommandFailure> {
        let outcome = match self {
            BenchPeer::Driven(embedded, _) => embedded.publish_payload(subject, payload),
            BenchPeer::Served(bus, _) => bus.publish_payload(subject, payload, POLL_INTERVAL),
        };
        is_accepted(outcome)
    }

    /// Lends memory for a payload that the programs of this host read in place; `None` if payloads of this size are
    /// copied.
    pub fn loan(&self, bytes: usize) -> Option<LoanedBuffer> {
        self.attached_bus()?.loan(bytes).ok().filter(LoanedBuffer::is_shared)
    }

    /// Publishes a message with a payload from [`BenchPeer::loan`]. Returns false if the bus is backpressured.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn publish_loaned(&self, message: &Message) -> Result<bool, CommandFailure> {
        let bus = self.attached_bus().expect("only attached programs have loans");
        is_accepted(bus.publish_timeout(message.clone(), POLL_INTERVAL))
    }

    /// Returns the bus of an attached program.
    fn attached_bus(&self) -> Option<&Bus> {
        match self {
            BenchPeer::Served(bus, PeerPlace::Daemon(_) | PeerPlace::SharedDaemon(_)) => Some(bus),
            BenchPeer::Driven(..) | BenchPeer::Served(_, PeerPlace::Thread) => None,
        }
    }

    /// Subscribes to all of these patterns as one stream.
    ///
    /// # Errors
    /// The peer refuses.
    pub fn subscribe(&mut self, patterns: Vec<Pattern>) -> Result<Subscription, CommandFailure> {
        let subscribed = match self {
            BenchPeer::Served(bus, _) => bus.subscribe_all(patterns),
            BenchPeer::Driven(embedded, _) if patterns.len() == 1 => {
                embedded.subscribe(patterns.into_iter().next().expect("there is one"))
            }
            BenchPeer::Driven(embedded, other) => {
                let bus = other.insert(embedded.bus());
                subscribe_driven(embedded, bus, patterns)
            }
        };
        subscribed.map_err(failed)
    }

    /// Lets the peer work, waiting for at most `wait` for something to do. Peers in other threads and processes work by
    /// themselves.
    ///
    /// # Errors
    /// The peer is broken.
    pub fn drive(&mut self, wait: Duration) -> Result<(), CommandFailure> {
        match self {
            BenchPeer::Driven(embedded, _) => drop(embedded.drive(wait).map_err(failed)?),
            _ if !wait.is_zero() => std::thread::sleep(wait),
            _ => {}
        }
        Ok(())
    }

    /// Returns the maximum time by which [`BenchPeer::drive`] ends late. A punctual caller makes turns without waiting
    /// for that long.
    pub fn timer_slack(&self) -> Duration {
        match self {
            // The timer of a peer expires at whole milliseconds.
            BenchPeer::Driven(..) => Duration::from_millis(3),
            _ => SLEEP_SLACK,
        }
    }

    /// Takes the available events, waiting at most `wait` if there are none, and returns their number.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn receive(
        &mut self,
        subscription: &Subscription,
        wait: Duration,
        mut each: impl FnMut(NoticeRef<'_>),
    ) -> Result<usize, CommandFailure> {
        if let BenchPeer::Driven(embedded, _) = self {
            embedded.drive(wait).map_err(failed)?;
            return subscription.drain(each).map_err(failed);
        }
        match subscription.recv_timeout(wait) {
            Ok(event) => event.visit(&mut each),
            Err(RecvError::Empty) => return Ok(0),
            Err(error) => return Err(failed(error)),
        }
        Ok(1 + subscription.drain(each).map_err(failed)?)
    }

    /// Waits until all published messages have left.
    ///
    /// # Errors
    /// The peer is stuck or gone.
    pub fn flush(&mut self) -> Result<(), CommandFailure> {
        match self {
            BenchPeer::Driven(..) => self.drive(Duration::ZERO),
            BenchPeer::Served(bus, _) => bus.flush(FLUSH_TIME).map_err(failed),
        }
    }

    /// Returns the peer's report of this name.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn show(&mut self, what: &str) -> Result<Value, CommandFailure> {
        match self {
            BenchPeer::Driven(embedded, _) => Ok(embedded.show(&json!({ "show": what }))),
            BenchPeer::Served(bus, _) => bus.show(what).map_err(failed),
        }
    }

    /// Returns the number of other peers that it knows.
    ///
    /// # Errors
    /// The same as of [`BenchPeer::show`].
    pub fn peers(&mut self) -> Result<usize, CommandFailure> {
        Ok(self.show("peers")?["rows"].as_array().map_or(0, Vec::len))
    }

    /// Returns the facts about its machine and its sockets.
    ///
    /// # Errors
    /// The same as of [`BenchPeer::show`].
    pub fn ready(&mut self) -> Result<ReadyReport, CommandFailure> {
        let status = self.show("status")?["status"].take();
        Ok(ReadyReport {
            host: host::host_info(),
            interface: status["interface"].as_str().unwrap_or_default().to_owned(),
            mtu: status["mtu"].as_u64().and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(0),
            receive_buffer: status["receive_buffer"].as_u64(),
            datagram_bytes: status["datagram_bytes"].as_u64(),
            segments: None,
        })
    }

    /// Returns true if the programs share this peer: they need not discover each other.
    pub fn is_shared(&self) -> bool {
        matches!(self, BenchPeer::Served(_, PeerPlace::SharedDaemon(_)))
    }

    /// Returns the processor time of this program and of its own daemon in nanoseconds, and the memory of the process
    /// that holds the peer.
    pub fn resource_usage(&self) -> (u64, u64) {
        match self {
            BenchPeer::Driven(..) | BenchPeer::Served(_, PeerPlace::Thread) => resource_usage(),
            BenchPeer::Served(_, PeerPlace::Daemon(daemon)) => {
                (host::cpu_ns() + host::cpu_ns_of(daemon.pid()), host::rss_bytes(daemon.pid()))
            }
            BenchPeer::Served(_, PeerPlace::SharedDaemon(daemon)) => (host::cpu_ns(), host::rss_bytes(*daemon)),
        }
    }

    /// Returns the processor time of the daemon that all programs share, in nanoseconds; 0 if there is none.
    pub fn shared_cpu_ns(&self) -> u64 {
        match self {
            BenchPeer::Served(_, PeerPlace::SharedDaemon(daemon)) => host::cpu_ns_of(*daemon),
            _ => 0,
        }
    }

    /// Stops the peer: published messages leave, and the other peers are notified.
    ///
    /// # Errors
    /// The peer is broken.
    pub fn close(self) -> Result<(), CommandFailure> {
        match self {
            BenchPeer::Driven(embedded, _) => embedded.close().map_err(failed),
            BenchPeer::Served(bus, _) => {
                bus.close();
                Ok(())
            }
        }
    }
}

/// Returns a peer's report of its window of published subjects (`pub`) or received ones (`sub`).
///
/// # Errors
/// The same as of [`BenchPeer::show`].
pub fn window(peer: &mut BenchPeer, which: &str) -> Result<Window, CommandFailure> {
    let answer = peer.show("windows")?;
    let row = answer["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["window"] == which));
    let number = |key: &str| row.and_then(|row| row[key].as_u64()).unwrap_or(0);
    Ok(Window { subjects: number("subjects"), bytes: number("bytes"), evicted: number("evicted") })
}

/// Subscribes through another client of the same peer, which waits for the peer's answers in a thread of its own while
/// this one drives it. A driven peer itself would make a stream of each pattern.
fn subscribe_driven(
    embedded: &mut EmbeddedPeer,
    bus: &Bus,
    patterns: Vec<Pattern>,
) -> Result<Subscription, SubscribeError> {
    std::thread::scope(|scope| {
        let subscriber = scope.spawn(|| bus.subscribe_all(patterns));
        while !subscriber.is_finished() {
            embedded.drive(POLL_INTERVAL).map_err(|_| SubscribeError::Closed)?;
        }
        subscriber.join().expect("subscribing does not panic")
    })
}

fn options(drop: Option<Dropped>, serve: bool) -> Options {
    let drop = drop.map(|Dropped { share, seed }| DropRule { seed, chance: share, burst: 1 });
    Options { serve, drop, ..Options::default() }
}

/// Starts a daemon of this program alone and attaches to it, through shared memory or through its socket.
fn start_and_attach(
    values: &PeerSettings,
    drop: Option<Dropped>,
    shared_memory: bool,
) -> Result<BenchPeer, CommandFailure> {
    let program = std::env::current_exe()?;
    let launch = Launch { program: &program, via: None };
    let daemon = DaemonProcess::start(launch, values, drop, &Interrupt::watch()?)?;
    Ok(BenchPeer::Served(attach(&daemon.socket(), shared_memory)?, PeerPlace::Daemon(daemon)))
}

/// Attaches to the daemon that all programs share, through shared memory.
fn attach_to_shared(socket: &Path) -> Result<BenchPeer, CommandFailure> {
    let bus = attach(socket, true)?;
    let status = bus.show("status").map_err(failed)?;
    let pid = status["status"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    Ok(BenchPeer::Served(bus, PeerPlace::SharedDaemon(pid.unwrap_or(0))))
}

fn attach(socket: &Path, shared_memory: bool) -> Result<Bus, CommandFailure> {
    let options = AttachOptions { name: Some("bench".to_owned()), shared_memory };
    let bus = Bus::attach_with(socket, &options).map_err(failed)?;
    if bus.info().uses_shared_memory != shared_memory {
        return Err(failed("the daemon shares no memory; shared-memory or shared-memory-max forbids it"));
    }
    Ok(bus)
}

/// Runs a daemon until a command ends it.
///
/// # Errors
/// Returns why the daemon cannot start.
pub fn serve(job: &DaemonJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let config: Config = job.values.config()?;
    // Its socket may appear after the other process tried to remove the directory.
    config.socket.parent().into_iter().for_each(remove_at_end);
    let bus = Bus::embed_with(&config, &options(job.drop, true)).map_err(failed)?;
    let mut peer = BenchPeer::threaded(bus);
    channel.report(&ProcessReport::Ready(peer.ready()?))?;
    while channel.wait() != ProcessCommand::Stop {}
    peer.flush()?;
    peer.close()
}

/// Returns whether the bus has accepted a message.
fn is_accepted(outcome: Result<(), PublishError>) -> Result<bool, CommandFailure> {
    match outcome {
        Ok(()) => Ok(true),
        Err(PublishError::Full) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Turns any error into a failure: whatever goes wrong while the bench runs is one.
fn failed(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::new(Exit::Failed, error)
}
