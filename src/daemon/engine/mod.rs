//! The event loop of a peer: the core and the services attached to it, on one thread.
//!
//! A turn waits, reads the clock once, reads available input up to a budget, ticks the protocol core and flushes all
//! output. It ticks the protocol core only if it has read both sockets, so that unread datagrams do not count as
//! missing.

mod commands;
mod control;
mod interface_tracking;
mod network;
mod options;
mod reload;
mod remote_reports;
#[cfg(feature = "security")]
mod revocations;
mod services;
pub(crate) mod shutdown;
pub mod start;
pub(in crate::daemon) mod start_error;
mod status;
mod wait;

use self::interface_tracking::TrackedInterface;
use self::reload::RunningConfig;
use self::remote_reports::RemoteReports;
use self::services::Services;
use crate::clock::Clock;
use crate::daemon::engine_core::{EngineCore, Phase};
use crate::daemon::health::Health;
use crate::daemon::log_levels::LogLevels;
use crate::daemon::mailbox::CommandQueue;
use crate::daemon::short_poll::ShortPoll;
use crate::daemon::signals::Signals;
use crate::daemon::site_loss_monitor::SiteLossMonitor;
use crate::daemon::systemd::SystemdNotifier;
use crate::daemon::timer::Timer;
use crate::time::{ClockReading, Instant};
use mio::Events;
use serde_json::Value;
use std::io;
use std::time::Duration;

/// One peer with its services. [`Engine::open`] builds it.
pub(crate) struct Engine {
    pub(crate) core: EngineCore,
    services: Services,
    health: Health,
    site_losses: SiteLossMonitor,
    remote_reports: RemoteReports,
    interface: TrackedInterface,
    /// Levels of the log; `None` if the peer has no log of its own.
    log_levels: Option<LogLevels>,
    /// Fields of `show status` that only another address of the interface changes.
    static_status: Value,
    /// Events that the system reported in this turn.
    ready: Events,
    timer: Timer,
    /// Time of the query for events in the last turn; `None` if it made none.
    queried: Option<Instant>,
    signals: Option<Signals>,
    /// Number of received signals to end the peer that are not handled yet.
    pending_signals: usize,
    /// True if a SIGHUP is not handled yet.
    has_hangup: bool,
    running_config: RunningConfig,
    systemd: Option<SystemdNotifier>,
    busy_poll: BusyPoll,
    /// True if the inbox is registered for writability.
    is_watching_writes: bool,
    commands: CommandQueue,
    /// True if embedded clients are served before attached ones in this turn.
    is_commands_turn: bool,
}

/// Polling of the engine before it sleeps.
struct BusyPoll {
    /// Time of polling.
    time: Duration,
    /// Number of looks at shared memory since the last look for other events.
    unpolled: u32,
    /// Decision whether a wait begins with a short poll if no time is configured.
    short_poll: ShortPoll,
    /// Time at which the wait of this turn began, if it sleeps without a poll.
    asleep_since: Option<Instant>,
}

impl BusyPoll {
    fn new(time: Duration) -> BusyPoll {
        BusyPoll { time, unpolled: 0, short_poll: ShortPoll::new(), asleep_since: None }
    }
}

impl Engine {
    /// Runs one turn: waits for at most `timeout` (`None`: until an event occurs), then processes all pending work.
    /// Returns false when the engine has ended.
    ///
    /// # Errors
    /// The system's event queue is broken, or the engine panicked. The engine has then ended.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if self.is_ended() {
            return Ok(false);
        }
        self.run_guarded(|engine| engine.work(timeout))
    }

    fn work(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let now = self.wait(timeout)?;
        self.process_internal_commands(now);
        self.on_signals(now);
        self.track_interface(now)?;
        self.core.accept(now);
        self.core.report_backlog(now);
        let is_caught_up = self.core.receive(now);
        // Time never goes back: datagrams were received at later times than that at which the turn began.
        let now = Clock::now();
        // Embedded and attached clients come first in alternate turns, because the first client takes all of a scarce
        // send capacity. During a stop, commands already accepted come first.
        self.is_commands_turn = !self.is_commands_turn || matches!(self.core.phase, Phase::Draining { .. });
        if self.is_commands_turn {
            self.process_commands(now);
        }
        self.core.serve_clients(now);
        self.process_internal_commands(now);
        self.services.on_turn(&mut self.core, now);
        self.process_internal_commands(now);
        if !self.is_commands_turn {
            self.process_commands(now);
        }
        self.core.report_awaited(now);
        if is_caught_up {
            self.core.tick(now);
        }
        #[cfg(feature = "security")]
        self.exchange_revocations(now);
        let conflict = self.services.server_id_conflict();
        let link_problem = || self.services.link_problem(now.instant);
        self.health.on_turn(&mut self.core, self.interface.state(), conflict, link_problem, now);
        self.site_losses.on_turn(&mut self.core, self.services.is_gateway(), now);
        self.notify_systemd(now);
        self.expire_log_levels(now);
        self.core.report_unserved(now);
        self.core.confirm_due(now);
        self.process_internal_commands(now);
        self.flush_output(now, is_caught_up);
        self.advance(now);
        Ok(self.core.phase != Phase::Ended)
    }

    /// Notifies systemd that the sockets are joined and that all services are open.
    fn notify_ready(&mut self, now: ClockReading) {
        if let Some(systemd) = &mut self.systemd {
            systemd.notify_ready(now.instant, status::summary(&self.core.peer, now));
        }
    }

    fn notify_systemd(&mut self, now: ClockReading) {
        if let Some(systemd) = &mut self.systemd {
            systemd.on_turn(now.instant, || status::summary(&self.core.peer, now));
        }
    }

    /// Sends queued datagrams, then writes to the clients.
    fn flush_output(&mut self, now: ClockReading, has_ticked: bool) {
        self.core.flush_network(now, has_ticked);
        self.services.before_writes(&mut self.core, now);
        self.process_internal_commands(now);
        self.core.write_clients(now);
        self.services.after_writes(&mut self.core, now);
        self.process_internal_commands(now);
    }
}
