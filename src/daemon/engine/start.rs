//! Start-up of a peer: interface, sockets, local socket, self-test, core. Each step must succeed before the next.

pub use super::options::Options;
pub use super::start_error::StartError;

use crate::clock::{Clock, random_u64};
use crate::config::Config;
use crate::daemon::batch::ReceivedDatagram;
use crate::daemon::drop_rule::Dropper;
use crate::daemon::engine::interface_tracking::TrackedInterface;
use crate::daemon::engine::network::{open_sockets, static_status};
use crate::daemon::engine::reload::RunningConfig;
use crate::daemon::engine::remote_reports::RemoteReports;
use crate::daemon::engine::services::Services;
use crate::daemon::engine::{BusyPoll, Engine};
use crate::daemon::engine_core::{EngineCore, EngineCoreParts};
use crate::daemon::health::Health;
use crate::daemon::interface::{self, ChosenInterface, Family, InterfaceWatch};
use crate::daemon::local_socket::{LocalSocket, SocketAccess};
use crate::daemon::log_levels::LogLevels;
#[cfg(feature = "cli")]
use crate::daemon::log_output;
use crate::daemon::mailbox::{CommandQueue, Mailbox};
#[cfg(feature = "security")]
use crate::daemon::membership::RealmMembership as Membership;
use crate::daemon::missing_keys::MissingKeys;
#[cfg(not(feature = "security"))]
use crate::daemon::open_membership::OpenMembership as Membership;
use crate::daemon::protection::Protection;
use crate::daemon::self_test;
use crate::daemon::signals::Signals;
use crate::daemon::site_loss_monitor::SiteLossMonitor;
use crate::daemon::systemd::SystemdNotifier;
use crate::daemon::timer::Timer;
use crate::daemon::tokens::{COPIES, GROUP, INBOX, INTERFACES, LOCAL_SOCKET, TIMER, WAKER};
use crate::message::Epoch;
use crate::proto::Settings;
use crate::proto::certified::OwnCertificate;
use crate::proto::effect::{Input, Path};
use crate::proto::peer::Peer;
use crate::rng::Rng;
use crate::time::ClockReading;
use mio::{Events, Interest, Poll, Waker};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time for which the self-test waits for its own datagram.
const SELF_TEST_TIME: Duration = Duration::from_secs(2);
/// Maximum number of events taken from the system at once.
const EVENTS: usize = 256;

impl Engine {
    /// Starts a peer.
    pub(crate) fn open(config: &Config, options: &Options) -> Result<Engine, StartError> {
        let step = |step| move |error| StartError::System { step, error };
        let poll = Poll::new().map_err(step("open an event queue"))?;
        let watch = InterfaceWatch::open(poll.registry(), INTERFACES).map_err(step("watch the network interfaces"))?;
        let chosen = choose_interface(config)?;
        let membership = find_membership(config, options, &chosen)?;
        // Signals are watched before the socket exists: a program that finds the socket can then end the peer
        // gracefully.
        let signals = options.signals.then(|| Signals::watch(poll.registry())).transpose();
        let signals = signals.map_err(step("watch for signals"))?;
        let mut sockets = open_sockets(config, &chosen)?;
        let local_socket = options.serve.then(|| LocalSocket::bind(&config.socket, &SocketAccess::of(config)));
        let mut local_socket = local_socket.transpose().map_err(StartError::Socket)?;
        let datagrams = self_test::run(&mut sockets, random_u64(), SELF_TEST_TIME).map_err(StartError::SelfTest)?;
        tracing::info!(group = %sockets.group_address(), "self-test passed: multicast comes back");
        let waker = Waker::new(poll.registry(), WAKER).map_err(step("make a waker"))?;
        let timer = Timer::new(poll.registry(), TIMER).map_err(step("make a timer"))?;
        sockets.register(poll.registry(), [GROUP, INBOX, COPIES]).map_err(step("watch the UDP sockets"))?;
        watch_local_socket(&poll, local_socket.as_mut()).map_err(step("watch the Unix socket"))?;
        let epoch = std::iter::repeat_with(random_u64).find_map(Epoch::new).expect("a random number is rarely 0");
        let certificate = membership.own_certificate();
        let mut services = Services::open(config, options, epoch, &certificate.permissions)?;
        services.register(poll.registry()).map_err(step("watch the listeners"))?;
        let started = Clock::now();
        let static_status = static_status(config, &chosen, &sockets, local_socket.as_ref());
        let mut settings = config.settings(membership.datagram_bytes_max(chosen.payload_bytes_max()));
        settings.pace.room_bytes = sockets.room_bytes();
        let remote_reports = RemoteReports::new(config.remote_reports, started.instant);
        let protection = membership.protection(config, &settings, epoch, sockets.inbox_address(), started.instant)?;
        let health = Health::new(config, &chosen, sockets.group_address(), protection.is_open(), started);
        let mut engine = Engine {
            remote_reports,
            core: EngineCore::new(
                config,
                EngineCoreParts {
                    peer: new_peer(settings, &protection, epoch, started, certificate),
                    protection,
                    started,
                    poll,
                    sockets,
                    local_socket,
                    mailbox: Arc::new(Mailbox::new(waker)),
                    dropper: options.drop.map(Dropper::new),
                },
            ),
            services,
            health,
            site_losses: SiteLossMonitor::new(started.instant),
            interface: TrackedInterface::new(watch, chosen),
            log_levels: (options.signals && has_log()).then(|| LogLevels::new(config.log_level)),
            static_status,
            ready: Events::with_capacity(EVENTS),
            timer,
            queried: None,
            signals,
            pending_signals: 0,
            systemd: options.systemd.then(|| SystemdNotifier::connect(started.instant)).flatten(),
            has_hangup: false,
            running_config: RunningConfig::new(config, options),
            busy_poll: BusyPoll::new(config.busy_poll),
            is_watching_writes: false,
            commands: CommandQueue::default(),
            is_commands_turn: false,
        };
        engine.log_start(config);
        engine.receive_early(started, datagrams);
        engine.services.start(&mut engine.core, started, config, options)?;
        engine.notify_ready(Clock::now());
        Ok(engine)
    }

    /// Handles the datagrams that arrived during the self-test.
    fn receive_early(&mut self, now: ClockReading, datagrams: Vec<(Path, ReceivedDatagram)>) {
        for (path, received) in datagrams {
            self.core.receive_datagram(now, received, path);
        }
        self.core.apply_effects(now);
    }

    fn log_start(&self, config: &Config) {
        tracing::info!(
            name = %config.name,
            security = self.core.protection.mode(),
            epoch = %self.core.peer.epoch(),
            group = %self.core.sockets.group_address(),
            inbox = %self.core.sockets.inbox_address(),
            socket = self.core.local_socket.as_ref().map(|local_socket| tracing::field::display(local_socket.path().display().to_string())),
            version = env!("CARGO_PKG_VERSION"),
            "peer started"
        );
    }
}

/// Creates the protocol core of a peer with this protection, on the host with this certificate.
fn new_peer(
    settings: Settings,
    protection: &Protection,
    epoch: Epoch,
    started: ClockReading,
    certificate: OwnCertificate,
) -> Peer {
    let settings = Settings { check_value: protection.check_value(), ..settings };
    let mut peer = Peer::new(settings, epoch, Rng::new(random_u64()), started);
    peer.handle(started, Input::OwnCertificate(certificate));
    peer
}

/// Chooses the interface of a peer, and logs the choice.
fn choose_interface(config: &Config) -> Result<ChosenInterface, StartError> {
    let chosen = interface::choose(&config.interface, Family::of(config.group)).map_err(StartError::Interface)?;
    tracing::info!(interface = chosen.name, address = %chosen.address, mtu = chosen.mtu, reason = %chosen.reason, "interface");
    Ok(chosen)
}

/// Finds the realm of which a peer on this interface is to be a member.
fn find_membership(config: &Config, options: &Options, chosen: &ChosenInterface) -> Result<Membership, StartError> {
    let membership = Membership::find(config)?;
    // The keys are those of the peer of this host. Peers inside of programs may use them under names of their own.
    if options.signals {
        membership.check_name(&config.name)?;
    }
    if !membership.has_keys() {
        MissingKeys::check(config, chosen).map_err(StartError::Unprotected)?;
    }
    Ok(membership)
}

fn watch_local_socket(poll: &Poll, local_socket: Option<&mut LocalSocket>) -> io::Result<()> {
    match local_socket {
        Some(local_socket) => poll.registry().register(&mut local_socket.socket, LOCAL_SOCKET, Interest::READABLE),
        None => Ok(()),
    }
}

/// Returns whether this process has a log that the command line has started.
fn has_log() -> bool {
    #[cfg(feature = "cli")]
    return log_output::is_started();
    #[cfg(not(feature = "cli"))]
    false
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
    /// Starts a peer: joins the group, verifies that multicasts come back, and listens on the Unix socket if the
    /// options say so. The caller starts the log before, if it wants one: `log_output::start`.
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
