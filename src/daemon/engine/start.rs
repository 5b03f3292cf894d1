//! Start-up of a peer: interface, sockets, local socket, self-test, core. Each step must succeed before the next.

use crate::clock::{Clock, random_u64};
use crate::config::Config;
use crate::daemon::drop_rule::{DropRule, Dropper};
use crate::daemon::engine::Engine;
use crate::daemon::engine_core::{EngineCore, EngineCoreParts};
use crate::daemon::events::{EventService, EventsError};
use crate::daemon::interface::{self, ChooseError, ChosenInterface, Family};
use crate::daemon::listeners::{ListenerError, Listeners};
use crate::daemon::local::{LocalSocket, SocketError};
use crate::daemon::mailbox::{CommandQueue, Mailbox};
use crate::daemon::multicast::{self, Sockets};
use crate::daemon::self_test::{self, SelfTestError};
use crate::daemon::signals::Signals;
use crate::daemon::stream_service::peer_streams;
use crate::daemon::stream_service::stream_host::StreamHost;
use crate::daemon::timer::Timer;
use crate::daemon::tokens::{GROUP, INBOX, LOCAL_SOCKET, TIMER, WAKER};
use crate::message::Epoch;
use crate::proto::effect::Input;
use crate::proto::peer::Peer;
use crate::rng::Rng;
use crate::time::ClockReading;
use mio::{Events, Interest, Poll, Waker};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time for which the self-test waits for its own datagram.
const SELF_TEST_TIME: Duration = Duration::from_secs(2);
/// Maximum time after the start for which clients of the NATS and Redis listeners publish nothing. Other peers are
/// known after 0.5 s; the rest is for subscriptions whose announcement was lost.
const DISCOVERY_MAX: Duration = Duration::from_millis(750);
/// Maximum number of events taken from the system at once.
const EVENTS: usize = 256;
/// Options of a peer beside its configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// True if the peer listens on the configured Unix socket, so that other programs of this host can attach.
    pub serve: bool,
    /// True if the peer handles signals. It ends on SIGTERM and SIGINT: gracefully on the first, at once on the second.
    /// On SIGHUP it reopens its log, or ends if the log is no file. Only a program that is nothing but a peer should
    /// set it.
    pub signals: bool,
    /// Rule that drops some received datagrams, for demonstrations and tests.
    pub drop: Option<DropRule>,
}

/// Reason why a peer could not start. The text names the fix.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// There is no usable interface.
    Interface(ChooseError),
    /// The UDP sockets could not be opened.
    Sockets(multicast::SocketOpenError),
    /// Multicasts of this host do not come back.
    SelfTest(SelfTestError),
    /// The Unix socket could not be opened.
    Socket(SocketError),
    /// A listener could not be opened.
    Listener(ListenerError),
    /// The journal of events could not be opened.
    Events(EventsError),
    /// The event streams could not be opened.
    Streams(peer_streams::StreamsOpenError),
    /// The system refused another operation.
    System {
        /// Operation that failed.
        step: &'static str,
        /// Error that the system returned.
        error: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Interface(error) => error.fmt(f),
            StartError::Sockets(error) => error.fmt(f),
            StartError::SelfTest(error) => error.fmt(f),
            StartError::Socket(error) => error.fmt(f),
            StartError::Listener(error) => error.fmt(f),
            StartError::Events(error) => error.fmt(f),
            StartError::Streams(error) => error.fmt(f),
            StartError::System { step, error } => write!(f, "cannot {step}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Engine {
    /// Starts a peer.
    pub(crate) fn open(config: &Config, options: &Options) -> Result<Engine, StartError> {
        let chosen = interface::choose(&config.interface, Family::of(config.group)).map_err(StartError::Interface)?;
        tracing::info!(interface = chosen.name, address = %chosen.address, mtu = chosen.mtu, why = %chosen.why, "interface");
        let step = |step| move |error| StartError::System { step, error };
        let poll = Poll::new().map_err(step("open an event queue"))?;
        // Signals are watched before the socket exists: a program that finds the socket can then end the peer
        // gracefully.
        let signals = options.signals.then(|| Signals::watch(poll.registry())).transpose();
        let signals = signals.map_err(step("watch for signals"))?;
        let mut sockets = open_sockets(config, &chosen)?;
        let mut local_socket = match options.serve {
            true => Some(LocalSocket::bind(&config.socket).map_err(StartError::Socket)?),
            false => None,
        };
        let meanwhile = self_test::run(&mut sockets, random_u64(), SELF_TEST_TIME).map_err(StartError::SelfTest)?;
        tracing::info!(group = %sockets.group_address(), "self-test passed: multicast comes back");

        let waker = Waker::new(poll.registry(), WAKER).map_err(step("make a waker"))?;
        let timer = Timer::new(poll.registry(), TIMER).map_err(step("make a timer"))?;
        sockets.register(poll.registry(), GROUP, INBOX).map_err(step("watch the UDP sockets"))?;
        if let Some(local_socket) = &mut local_socket {
            let watched = poll.registry().register(&mut local_socket.socket, LOCAL_SOCKET, Interest::READABLE);
            watched.map_err(step("watch the Unix socket"))?;
        }
        let epoch = std::iter::repeat_with(random_u64).find_map(Epoch::new).expect("most words are not 0");
        let events = open_events(config, options)?;
        let mut listeners = match options.serve {
            true => Listeners::open(config, epoch, events.server()).map_err(StartError::Listener)?,
            false => Listeners::closed(config),
        };
        listeners.register(poll.registry()).map_err(step("watch the listeners"))?;

        let started = Clock::now();
        let static_status = static_status(config, &chosen, &sockets, local_socket.as_ref());
        let mut settings = config.settings(chosen.payload_bytes_max());
        settings.pace.room_bytes = sockets.room_bytes();
        let mut engine = Engine {
            core: EngineCore::new(
                config,
                EngineCoreParts {
                    peer: Peer::new(settings, epoch, Rng::new(random_u64()), started),
                    started,
                    poll,
                    sockets,
                    local_socket,
                    mailbox: Arc::new(Mailbox::new(waker)),
                    dropper: options.drop.map(Dropper::new),
                },
            ),
            listeners,
            streams: StreamHost::default(),
            events,
            static_status,
            ready: Events::with_capacity(EVENTS),
            timer,
            signals,
            signalled: 0,
            busy_poll: config.busy_poll,
            is_watching_writes: false,
            commands: CommandQueue::default(),
            is_commands_turn: false,
        };
        engine.log_start(config);
        for (path, received) in meanwhile {
            engine.core.peer.handle(started, Input::Datagram { from: received.from, path, bytes: received.bytes });
        }
        engine.core.apply_effects(started);
        engine.open_services(started, config, options)?;
        Ok(engine)
    }

    /// Opens what services need the core for.
    fn open_services(&mut self, now: ClockReading, config: &Config, options: &Options) -> Result<(), StartError> {
        let Engine { core, listeners, streams, events, .. } = self;
        if let Some(address) = config.ftn18.filter(|_| options.serve) {
            *streams = StreamHost::open(core, events, now, config, address).map_err(StartError::Streams)?;
        }
        events.replicate(core, now).map_err(StartError::Events)?;
        if options.serve && config.hat.is_some() && config.hat_events {
            events.announce(core, now, "STARTED");
        }
        // Opening the streams may have taken seconds, and the peer sends its first datagram only now.
        listeners.begin_discovery(Clock::now().instant + DISCOVERY_MAX);
        Ok(())
    }

    fn log_start(&self, config: &Config) {
        tracing::info!(
            name = %config.name,
            mode = %config.mode,
            epoch = %self.core.peer.epoch(),
            group = %self.core.sockets.group_address(),
            inbox = %self.core.sockets.inbox_address(),
            socket = self.core.local_socket.as_ref().map(|local_socket| tracing::field::display(local_socket.path().display().to_string())),
            version = env!("CARGO_PKG_VERSION"),
            "peer started"
        );
    }
}

/// Makes the event service. Opens the journal at once if the configuration requires it, or if it exists already.
fn open_events(config: &Config, options: &Options) -> Result<EventService, StartError> {
    let mut events = EventService::new(config);
    let is_counted_on = config.server_id.is_some() || !config.event_follow.is_empty();
    if is_counted_on || options.serve && (config.hat.is_some() || config.ftn18.is_some()) {
        events.open().map_err(StartError::Events)?;
    } else if options.serve && events.has_journal() {
        // Peers that follow its events wait for the journal.
        events.open().unwrap_or_else(|error| tracing::warn!("no events can be registered or found: {error}"));
    }
    Ok(events)
}

fn open_sockets(config: &Config, chosen: &ChosenInterface) -> Result<Sockets, StartError> {
    let sockets = Sockets::open(&multicast::SocketOptions {
        group: config.group,
        port: config.port,
        interface: chosen,
        inbox_port: config.inbox_port,
        ttl: config.ttl,
        receive_buffer: config.receive_buffer,
        send_buffer: config.send_buffer,
    })
    .map_err(StartError::Sockets)?;
    for granted in sockets.granted() {
        let multicast::BufferGrant { wanted, granted: bytes, .. } = granted;
        if granted.is_short() {
            tracing::warn!(wanted, granted = bytes, "{granted}");
        } else {
            tracing::debug!(wanted, granted = bytes, "{granted}");
        }
    }
    Ok(sockets)
}

/// Returns the constant fields of `show status`.
fn static_status(
    config: &Config,
    chosen: &ChosenInterface,
    sockets: &Sockets,
    local_socket: Option<&LocalSocket>,
) -> Value {
    let [receive, send] = sockets.granted();
    json!({
        "name": config.name.as_str(),
        "mode": config.mode.to_string(),
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "group": sockets.group_address().ip().to_string(),
        "port": sockets.group_address().port(),
        "inbox": sockets.inbox_address().to_string(),
        "interface": chosen.name,
        "address": chosen.address.to_string(),
        "interface_reason": chosen.why.to_string(),
        "loopback": chosen.loopback,
        "mtu": chosen.mtu,
        "datagram_bytes": config.datagram_bytes(chosen.payload_bytes_max()),
        "message_bytes_max": config.message_size,
        "receive_buffer_wanted": receive.wanted,
        "receive_buffer": receive.granted,
        "send_buffer_wanted": send.wanted,
        "send_buffer": send.granted,
        "socket": local_socket.map(|local_socket| local_socket.path().display().to_string()),
    })
}

/// Raises the limit of open files to the hard limit, because each client is an open file. The usual soft limit of
/// shells and service managers, 1,024, is meant for programs that wait with `select`.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(now, max)| match now < max {
        true => setrlimit(Resource::RLIMIT_NOFILE, max, max),
        false => Ok(()),
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// A peer as a program of its own.
pub struct Daemon {
    engine: Engine,
}

impl Daemon {
    /// Starts a peer: joins the group, verifies that multicasts come back, and listens on the Unix socket if asked to.
    /// The caller starts the log, if there is to be one: [`log::start`](crate::daemon::log::start).
    ///
    /// # Errors
    /// The error names the obstacle and the fix.
    pub fn open(config: &Config, options: &Options) -> Result<Daemon, StartError> {
        raise_file_limit();
        Ok(Daemon { engine: Engine::open(config, options)? })
    }

    /// Returns the answer to `show status`.
    pub fn status(&mut self) -> Value {
        self.engine.show(Clock::now(), &json!({ "show": "status" }))["status"].take()
    }

    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// The system's event queue is broken, or the peer has panicked. Its clients are then disconnected.
    pub fn run(mut self) -> io::Result<()> {
        while self.engine.turn(None)? {}
        tracing::info!("stopped");
        Ok(())
    }
}
