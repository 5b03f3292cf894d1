//! Start-up: interface, sockets, self-test, local socket, core; each proved before the next.

use crate::config::Config;
use crate::daemon::batch::RecvBatch;
use crate::daemon::clients::Clients;
use crate::daemon::clock::{Clock, random_u64};
use crate::daemon::drop_rule::{DropRule, Dropper};
use crate::daemon::engine::Engine;
use crate::daemon::events::{EventService, EventsError};
use crate::daemon::interface::{self, ChooseError, ChosenInterface, Family};
use crate::daemon::listeners::{ListenerError, Listeners};
use crate::daemon::local::{LocalSocket, SocketError};
use crate::daemon::mailbox::{CommandQueue, Mailbox};
use crate::daemon::multicast::{self, Sockets};
use crate::daemon::queue::QueueLimits;
use crate::daemon::receive::{GROUP, INBOX, LOCAL_SOCKET, TIMER, WAKER};
use crate::daemon::receiver_waits::ReceiverWaits;
use crate::daemon::self_test::{self, SelfTestError};
use crate::daemon::serve::SCRATCH_BYTES;
use crate::daemon::shutdown::Phase;
use crate::daemon::signals::Signals;
use crate::daemon::stream::peer_streams;
use crate::daemon::timer::Timer;
use crate::daemon::transmit_queue::TransmitQueue;
use crate::daemon::unserved_report::UnservedReport;
use crate::message::{ClientId, Epoch};
use crate::proto::effect::Input;
use crate::proto::peer::Peer;
use crate::rng::Rng;
use mio::{Events, Interest, Poll, Waker};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the self-test waits for its own datagram.
const SELF_TEST_TIME: Duration = Duration::from_secs(2);
/// Maximum time for which clients of the NATS and Redis listeners publish nothing after the start. Other peers are known after 0.5 s;
/// the rest is for subscriptions whose announcement was lost.
const DISCOVERY_MAX: Duration = Duration::from_millis(750);
/// Events taken from the system at once.
const EVENTS: usize = 256;
/// Buffers received in one system call: a mebibyte, if each holds as many datagrams as the kernel hands over at once.
const RECV_BUFFERS: usize = 16;

/// What a peer does beside its configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Listen on the configured Unix socket, so that other programs of this host can attach.
    pub serve: bool,
    /// End on SIGTERM and SIGINT: gracefully on the first, at once on the second; open the log anew on SIGHUP, or end if
    /// it is no file. For programs that are nothing but a peer.
    pub signals: bool,
    /// Drop some of what is received, for demonstrations and tests.
    pub drop: Option<DropRule>,
}

/// Why a peer could not start. The text names the fix.
#[derive(Debug)]
pub enum StartError {
    /// No interface to use.
    Interface(ChooseError),
    /// The UDP sockets could not be opened.
    Sockets(multicast::SocketOpenError),
    /// What is sent does not come back.
    SelfTest(SelfTestError),
    /// The Unix socket could not be opened.
    Socket(SocketError),
    /// A listener could not be opened.
    Listener(ListenerError),
    /// There is no journal of events.
    Events(EventsError),
    /// There are no event streams.
    Streams(peer_streams::StreamsOpenError),
    /// Something else the system refused.
    System {
        /// What was asked of it.
        step: &'static str,
        /// What it said.
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
        // Whoever finds the peer at its socket can end it in order.
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
        let limits = QueueLimits { count_max: config.client_queue_count, bytes_max: config.client_queue_size };
        let mut engine = Engine {
            peer: Peer::new(settings, epoch, Rng::new(random_u64()), started),
            started,
            discovery_end: None,
            static_status,
            poll,
            ready: Events::with_capacity(EVENTS),
            timer,
            sockets,
            batch: RecvBatch::new(RECV_BUFFERS),
            is_readable: [true; 2],
            has_backlog: false,
            inbox_wait_since: None,
            transmit_queue: TransmitQueue::default(),
            is_watching_writes: false,
            local_socket,
            is_acceptable: true,
            signals,
            clients: Clients::new(limits, config.listener_memory),
            clients_max: config.client_max,
            last_served: ClientId(0),
            delivery: config.delivery,
            busy_poll: config.busy_poll,
            clients_refused: 0,
            listeners,
            receiver_waits: ReceiverWaits::default(),
            events,
            mailbox: Arc::new(Mailbox::new(waker)),
            commands: CommandQueue::default(),
            published: None,
            flushes: Vec::new(),
            unconfirmed: Vec::new(),
            unconfirmed_reported: 0,
            pending_questions: BTreeMap::new(),
            next_question: 0,
            is_commands_turn: false,
            refused: None,
            hosts: BTreeMap::new(),
            dropper: options.drop.map(Dropper::new),
            unserved_report: UnservedReport::default(),
            recv_errors: 0,
            scratch: vec![0; SCRATCH_BYTES],
            signalled: 0,
            phase: Phase::Running,
        };
        engine.log_start(config);
        for (path, received) in meanwhile {
            engine.peer.handle(started, Input::Datagram { from: received.from, path, bytes: received.bytes });
        }
        engine.apply_effects(started);
        engine.open_streams(started, config, options).map_err(StartError::Streams)?;
        engine.replicate_events(started).map_err(StartError::Events)?;
        if options.serve && config.hat.is_some() && config.hat_events {
            engine.announce_events(started, "STARTED");
        }
        // Opening the streams may have taken seconds, and the peer says its first word only now.
        engine.discovery_end = Some(Clock::now().instant + DISCOVERY_MAX);
        Ok(engine)
    }

    fn log_start(&self, config: &Config) {
        tracing::info!(
            name = %config.name,
            mode = %config.mode,
            epoch = %self.peer.epoch(),
            group = %self.sockets.group_address(),
            inbox = %self.sockets.inbox_address(),
            socket = self.local_socket.as_ref().map(|local_socket| tracing::field::display(local_socket.path().display().to_string())),
            version = env!("CARGO_PKG_VERSION"),
            "peer started"
        );
    }
}

/// The journal, which is opened at once if somebody counts on it, or if it is there already.
fn open_events(config: &Config, options: &Options) -> Result<EventService, StartError> {
    let mut events = EventService::new(config);
    let is_counted_on = config.server_id.is_some() || !config.event_follow.is_empty();
    if is_counted_on || options.serve && (config.hat.is_some() || config.ftn18.is_some()) {
        events.open().map_err(StartError::Events)?;
    } else if options.serve && events.has_journal() {
        // Who follows its events waits for it.
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

/// What does not change in `show status`.
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
        "interface_why": chosen.why.to_string(),
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

/// Allows this program as many open files as the system lets it allow itself: each client is one, and what shells and service managers
/// begin with, 1,024 mostly, is for programs that wait with `select`.
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
    /// Starts a peer: joins the group, proves that multicast comes back, and listens on the Unix socket if asked to.
    /// The log, if there is to be one, is the caller's: [`log::start`](crate::daemon::log::start).
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn open(config: &Config, options: &Options) -> Result<Daemon, StartError> {
        raise_file_limit();
        Ok(Daemon { engine: Engine::open(config, options)? })
    }

    /// The answer to `show status`.
    pub fn status(&mut self) -> Value {
        self.engine.show(Clock::now(), &json!({ "show": "status" }))["status"].take()
    }

    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// The system's event queue is broken, or the peer has panicked. Its clients are disconnected then.
    pub fn run(mut self) -> io::Result<()> {
        while self.engine.turn(None)? {}
        tracing::info!("stopped");
        Ok(())
    }
}
