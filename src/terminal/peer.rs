//! The peer as a program reaches it: attaching, embedding, publishing, and the exit code of each failure.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::exit::{CommandFailure, Exit};
use super::interrupt::Interrupt;
use crate::bus::{AttachOptions, Bus, DropRule, HistoryError, OpenError, Options, PublishError, StartError, WaitError};
use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::http_server::HttpError;
use crate::daemon::link::LinkError;
use crate::daemon::listeners::ListenerError;
use crate::daemon::local_socket::{GroupError, SocketError};
use crate::daemon::stream_service::peer_streams as streams;
use crate::message::{Message, PeerRef};

/// Time limit for a peer of one's own to send HELLO.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Interval between checks whether it has.
const HELLO_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Time that the other peers' answers to HELLO may take.
const ANSWER_TIME: Duration = Duration::from_millis(30);
/// Time limit for the peer to send all published messages, as its socket and the network need.
const FLUSH_TIME: Duration = Duration::from_secs(30);
/// Time limit for the report of another peer.
const REPORT_TIME: Duration = Duration::from_secs(5);
/// Interval between checks whether the user has ended the command.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Attaches to the peer at this socket under this name.
///
/// # Errors
/// The peer cannot be reached.
pub fn attach(socket: &Path, name: &str) -> Result<Bus, CommandFailure> {
    Bus::attach_as(socket, name).map_err(open_failure)
}

/// Attaches like [`attach`], but without shared memory: for a command that sends only a few requests.
///
/// # Errors
/// The peer cannot be reached.
pub fn attach_for_requests(socket: &Path, name: &str) -> Result<Bus, CommandFailure> {
    let options = AttachOptions { name: Some(name.to_owned()), shared_memory: false };
    Bus::attach_with(socket, &options).map_err(open_failure)
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
        OpenError::System { .. } => CommandFailure::of_peer(Exit::Failed, error),
        OpenError::NoPeer { .. }
        | OpenError::Directory(_)
        | OpenError::NoPermission { .. }
        | OpenError::Incompatible { .. }
        | OpenError::Refused(_) => CommandFailure::of_peer(Exit::Unreachable, error),
    }
}

/// Converts the reason why a peer could not start: the network is absent, or another reason.
pub fn start_failure(error: &StartError) -> CommandFailure {
    let exit = match error {
        StartError::Interface(_) | StartError::SelfTest(_) => Exit::Unreachable,
        StartError::Absent { .. }
        | StartError::Socket(SocketError::Group(GroupError::Unknown(_) | GroupError::NotMember(_)))
        | StartError::Membership(_)
        | StartError::Unprotected(_)
        | StartError::Listener(ListenerError::Tls { .. })
        | StartError::Web(HttpError::Tls { .. })
        | StartError::Link(LinkError::Credentials(_) | LinkError::Tls(_) | LinkError::NotPermitted(_))
        | StartError::Streams(streams::StreamsOpenError::Http(HttpError::Tls { .. })) => Exit::Configuration,
        StartError::Sockets(_)
        | StartError::Socket(_)
        | StartError::Listener(_)
        | StartError::Events(_)
        | StartError::Streams(_)
        | StartError::Web(_)
        | StartError::Link(_)
        | StartError::System { .. } => Exit::Failed,
    };
    let failure = CommandFailure::of_peer(exit, error);
    match error {
        StartError::Interface(_) | StartError::SelfTest(_) | StartError::Sockets(_) => {
            failure.or_fix("seqcast doctor checks the network of this host")
        }
        _ => failure,
    }
}

/// Publishes a message; waits while the peer is busy. Returns false if the user ends the command first.
///
/// # Errors
/// The message is too large; the peer is gone.
pub fn publish(bus: &Bus, message: Message, interrupt: &Interrupt) -> Result<bool, CommandFailure> {
    loop {
        match bus.publish_timeout(message.clone(), INTERRUPT_CHECK_INTERVAL) {
            Ok(()) => return Ok(true),
            Err(PublishError::Full) if interrupt.is_raised() => return Ok(false),
            Err(PublishError::Full) => {}
            Err(PublishError::Closed) => return Err(end_failure(bus)),
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
        Some(error) => Err(CommandFailure::of_peer(Exit::Failed, error)),
    }
}

/// Asks a peer of the group for a report.
///
/// # Errors
/// The peer is unknown, does not answer in time, refuses, or does not know the report.
pub fn show_of(bus: &Bus, peer: &PeerRef, query: &Value) -> Result<Value, CommandFailure> {
    let answer =
        bus.query_peer(peer.clone(), query, REPORT_TIME).map_err(|error| question_failure(bus, peer, &error))?;
    match answer["error"].as_str() {
        None => Ok(answer),
        Some(error) => Err(CommandFailure::new(Exit::Failed, format!("{peer}: {error}"))),
    }
}

fn wait_failure(bus: &Bus, error: WaitError, what: &str) -> CommandFailure {
    match error {
        WaitError::Closed => end_failure(bus),
        WaitError::Timeout | WaitError::Refused(_) => CommandFailure::new(Exit::Failed, format!("{what}: {error}")),
    }
}

/// Returns the failure of a command whose question to another peer has no answer.
pub fn question_failure(bus: &Bus, peer: &PeerRef, error: &HistoryError) -> CommandFailure {
    let exit = match error {
        HistoryError::UnknownPeer | HistoryError::Gone | HistoryError::Closed => Exit::Unreachable,
        HistoryError::Timeout => Exit::TimedOut,
        HistoryError::Ambiguous
        | HistoryError::TooMany
        | HistoryError::Denied
        | HistoryError::Refused(_)
        | HistoryError::Misfit => Exit::Failed,
    };
    let failure = CommandFailure::new(exit, format!("{peer}: {error}"));
    let peers = match error {
        HistoryError::UnknownPeer | HistoryError::Ambiguous | HistoryError::Gone => reachable_peers(bus),
        _ => None,
    };
    match peers {
        Some(peers) => failure.fix(format!("name one of {peers}")),
        None => failure,
    }
}

/// Returns the peers that can be asked: this one and those that are up.
fn reachable_peers(bus: &Bus) -> Option<String> {
    let shown = bus.show("peers").ok()?;
    let live = shown["rows"].as_array()?.iter().filter(|row| row["state"] == "up");
    let peer = |row: &Value| Some(format!("{} ({})", row["publisher"].as_str().unwrap_or("?"), row["epoch"].as_str()?));
    let own = format!("{} ({})", bus.info().peer, bus.info().epoch);
    Some(std::iter::once(own).chain(live.filter_map(peer)).collect::<Vec<_>>().join(", "))
}

/// Returns the failure of a command whose peer has ended.
pub fn end_failure(bus: &Bus) -> CommandFailure {
    let why = bus.end_reason().unwrap_or_else(|| "it stopped".to_owned());
    CommandFailure::new(Exit::Unreachable, format!("the peer is gone: {why}"))
}
