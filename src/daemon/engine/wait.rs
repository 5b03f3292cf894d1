//! Waiting for events of the sockets, clients, timers and signals.

use super::Engine;
use crate::clock::Clock;
use crate::daemon::engine_core::Phase;
use crate::daemon::log_levels::LogLevels;
use crate::daemon::signals::Signals;
use crate::daemon::systemd::SystemdNotifier;
use crate::daemon::tokens::{
    CLIENTS, COPIES, GROUP, INBOX, INTERFACES, LISTENERS, LOCAL_SOCKET, SIGNALS, TIMER, WAKER,
};
use crate::message::ClientId;
use crate::time::{ClockReading, Instant};
use mio::Token;
use std::io;
use std::time::Duration;

/// Maximum number of looks at shared memory between two looks for other events, while the engine polls.
const UNPOLLED_MAX: u32 = 32;
/// Maximum time since the last query for events after which a turn may do without one.
const EVENTS_AGE_MAX: Duration = Duration::from_micros(100);

impl Engine {
    /// Waits for events unless the turn only sends: then it returns at once if the last turn queried within
    /// [`EVENTS_AGE_MAX`]. Events stay queued for the next turn. Returns the time.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<ClockReading> {
        // A program that answers a message makes a turn to send the answer, which need not wait for another query.
        if timeout == Some(Duration::ZERO) && self.core.peer.has_open_datagram() {
            let now = Clock::now();
            if may_skip_query(&mut self.queried, now.instant) {
                self.ready.clear();
                return Ok(now);
            }
        }
        self.query_events(timeout)?;
        let now = Clock::now();
        self.queried = Some(now.instant);
        if let Some(asleep_since) = self.busy_poll.asleep_since.take() {
            self.busy_poll.short_poll.on_sleep(now.instant.since(asleep_since));
        }
        Ok(now)
    }

    /// Waits for events, and records which sockets, listeners and clients are ready.
    fn query_events(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let is_publish_blocked = self.core.is_publish_blocked();
        let is_busy = self.has_work() || !self.core.mailbox.sleep(is_publish_blocked);
        if self.core.transmit_queue.is_blocked() != self.is_watching_writes {
            self.is_watching_writes = self.core.transmit_queue.is_blocked();
            self.core.sockets.watch_writable(self.core.poll.registry(), INBOX, self.is_watching_writes)?;
        }
        if is_busy || timeout == Some(Duration::ZERO) {
            self.poll_events(Some(Duration::ZERO))?;
        } else {
            self.wait_idle(timeout, is_publish_blocked)?;
        }
        for event in &self.ready {
            match event.token() {
                GROUP => self.core.is_readable[0] = true,
                COPIES => {
                    self.core.sockets.on_copies_readable();
                    self.core.is_readable[0] = true;
                }
                INBOX => {
                    self.core.is_readable[1] |= event.is_readable();
                    if event.is_writable() {
                        self.core.transmit_queue.on_writable();
                    }
                }
                LOCAL_SOCKET => self.core.is_acceptable = true,
                WAKER => {}
                TIMER => self.timer.on_event(),
                INTERFACES => self.interface.on_event(),
                SIGNALS => {
                    let received = self.signals.as_mut().map(Signals::take).unwrap_or_default();
                    self.pending_signals += received.terminations;
                    self.has_hangup |= 0 < received.hangups;
                }
                Token(listener @ LISTENERS..CLIENTS) => self.services.on_connection(listener - LISTENERS),
                Token(token) => {
                    let id =
                        ClientId(u32::try_from(token - CLIENTS).expect("tokens are made from the clients' numbers"));
                    if event.is_writable() {
                        self.core.clients.on_writable(id);
                    }
                    if let Some(state) = self.core.clients.connection_state(id) {
                        state.is_readable |= event.is_readable();
                        state.may_be_closed |= event.is_read_closed() || event.is_error();
                    }
                    self.services.schedule_if_input(&mut self.core.clients, id);
                }
            }
        }
        Ok(())
    }

    fn poll_events(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.core.poll.poll(&mut self.ready, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.ready.clear(),
            outcome => return outcome,
        }
        Ok(())
    }

    /// Waits while no work is pending: polls for the configured time, or for a short one while that succeeds, then
    /// sleeps.
    fn wait_idle(&mut self, timeout: Option<Duration>, is_publish_blocked: bool) -> io::Result<()> {
        let start = Clock::now().instant;
        let poll_time = self.busy_poll.short_poll.time();
        let has_come = if !self.busy_poll.time.is_zero() {
            self.spin(start, timeout, is_publish_blocked)?
        } else {
            !poll_time.is_zero() && self.poll_shortly(start, poll_time, timeout, is_publish_blocked)?
        };
        if has_come {
            return Ok(());
        }
        // Only from here on clients with shared memory must ring a doorbell.
        if self.core.clients.arm_rings(is_publish_blocked) {
            return self.poll_events(Some(Duration::ZERO));
        }
        let left = timeout.map(|timeout| (start + timeout).since(Clock::now().instant));
        let timeout = self.wait_until(left)?;
        self.busy_poll.asleep_since = poll_time.is_zero().then_some(start);
        self.poll_events(timeout)
    }

    /// Polls for events and for input in shared memory for `poll_time`, at most `timeout` and until the next deadline. Each
    /// look at the memory follows a query for events. Returns false if nothing came.
    fn poll_shortly(
        &mut self,
        start: Instant,
        poll_time: Duration,
        timeout: Option<Duration>,
        is_publish_blocked: bool,
    ) -> io::Result<bool> {
        let poll_end = start + poll_time;
        let until = self.deadline(start, timeout).map_or(poll_end, |deadline| deadline.min(poll_end));
        if until <= start {
            return Ok(false);
        }
        // A client with shared memory that waits for room sleeps until its doorbell.
        self.core.clients.wake_waiting_writers();
        loop {
            self.poll_events(Some(Duration::ZERO))?;
            let has_come = !self.ready.is_empty() || self.core.clients.has_input(is_publish_blocked);
            let now = Clock::now().instant;
            if has_come || poll_end <= now {
                self.busy_poll.short_poll.on_poll(now.since(start), has_come);
            }
            if has_come || until <= now {
                return Ok(has_come);
            }
            // The programs that poll as well may be more than the processors.
            std::thread::yield_now();
        }
    }

    /// Polls for events and for input in shared memory without sleeping, for the configured time, at most `timeout` and
    /// until the next deadline. Returns false if nothing came.
    fn spin(&mut self, start: Instant, timeout: Option<Duration>, is_publish_blocked: bool) -> io::Result<bool> {
        let spin_end = start + self.busy_poll.time;
        let mut until = None;
        self.ready.clear();
        // A client with shared memory that waits for room sleeps until its doorbell.
        self.core.clients.wake_waiting_writers();
        loop {
            self.busy_poll.unpolled += 1;
            if self.core.clients.has_input(is_publish_blocked) && self.busy_poll.unpolled < UNPOLLED_MAX {
                return Ok(true);
            }
            // A look at the memory costs much less than a system call.
            if self.core.clients.has_attached() && self.busy_poll.unpolled < UNPOLLED_MAX {
                std::hint::spin_loop();
                continue;
            }
            self.busy_poll.unpolled = 0;
            self.poll_events(Some(Duration::ZERO))?;
            if !self.ready.is_empty() || self.core.clients.has_input(is_publish_blocked) {
                return Ok(true);
            }
            let until = match until {
                Some(until) => until,
                // Most looks at the memory succeed before a deadline matters.
                None => *until.insert(self.deadline(start, timeout).map_or(spin_end, |it| it.min(spin_end))),
            };
            if until <= Clock::now().instant {
                return Ok(false);
            }
            // The programs that poll as well may be more than the processors. Other programs may run for long, and no
            // deadline passes before the events of that time are known.
            std::thread::yield_now();
            self.busy_poll.unpolled = UNPOLLED_MAX;
        }
    }

    /// Sets the timer so that it ends a wait of at most `timeout` by the next deadline. Returns zero if the deadline
    /// has passed.
    fn wait_until(&mut self, timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        let now = Clock::now().instant;
        match self.deadline(now, timeout) {
            Some(deadline) if deadline <= now => return Ok(Some(Duration::ZERO)),
            Some(deadline) => self.timer.set(deadline)?,
            None => {}
        }
        Ok(None)
    }

    /// Returns the time at which a wait of at most `timeout` that begins now must end.
    fn deadline(&mut self, now: Instant, timeout: Option<Duration>) -> Option<Instant> {
        let stop = match self.core.phase {
            Phase::Draining { until } | Phase::Stopping { until } | Phase::Closing { until } => Some(until),
            Phase::Running | Phase::Ended => None,
        };
        [
            self.core.peer.poll_deadline(),
            self.core.protection_deadline(),
            self.core.protection.inquiry_deadline(),
            self.services.deadline(&self.core),
            self.core.receiver_waits.deadline(),
            self.core.confirm_deadline(),
            self.core.clients.buffer_deadline(),
            Some(self.health.deadline()),
            self.site_losses.deadline(),
            self.systemd.as_ref().and_then(SystemdNotifier::deadline),
            self.interface.deadline(),
            self.log_levels.as_ref().and_then(LogLevels::deadline),
            stop,
            timeout.map(|timeout| now + timeout),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns whether work is pending that needs no event.
    fn has_work(&mut self) -> bool {
        let is_publish_blocked = self.core.is_publish_blocked();
        self.core.is_readable.contains(&true)
            || self.core.has_internal_work()
            || self.commands.has_command(is_publish_blocked)
            || self.core.clients.has_input(is_publish_blocked)
            || self.services.has_work(&self.core)
    }
}

/// Returns whether a turn may do without a query for events. `queried` is the time of the query in the last turn, or
/// `None` if it made none: two turns in a row must not do without.
fn may_skip_query(queried: &mut Option<Instant>, now: Instant) -> bool {
    queried.take().is_some_and(|queried| now < queried + EVENTS_AGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::random_u64;
    use crate::config::Config;
    use crate::daemon::engine::start::Options;
    use crate::daemon::short_poll::ShortPoll;
    use serde_json::json;
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Makes the configuration of a peer on loopback in a group of its own.
    fn config() -> Config {
        let bits = random_u64().to_be_bytes();
        let mut config = Config::default();
        config.group = [239, 255, bits[0], bits[1].max(1)].into();
        config.port = 20_000 + u16::from_be_bytes([bits[2], bits[3]]) % 10_000;
        config.interface = "lo".parse().unwrap();
        config.heartbeat = Duration::from_millis(100);
        config
    }

    fn open(config: &Config) -> Engine {
        Engine::open(config, &Options::default()).unwrap()
    }

    fn let_time_pass(time: Duration) {
        let end = Clock::now().instant + time;
        while Clock::now().instant < end {
            std::thread::yield_now();
        }
    }

    /// Runs turns of both engines while `condition` does not hold.
    fn turn_until(engines: &mut [&mut Engine; 2], condition: impl Fn(&mut Engine) -> bool) {
        let end = Clock::now().instant + PATIENCE;
        while !condition(engines[0]) {
            assert!(Clock::now().instant < end, "the condition holds in time");
            for engine in engines.iter_mut() {
                engine.turn(Some(Duration::from_millis(1))).unwrap();
            }
        }
    }

    /// Returns the state of the only other peer.
    fn state_of_other(engine: &mut Engine) -> String {
        let report = engine.show(Clock::now(), &json!({ "show": "peers" }));
        report["rows"][0]["state"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn datagram_ends_a_poll() {
        let mut engine = open(&config());
        let (inbox, socket) = (engine.core.sockets.inbox_address(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    socket.send_to(&[0; 64], inbox).unwrap();
                    let_time_pass(Duration::from_millis(1));
                }
            });
            let end = Clock::now().instant + PATIENCE;
            let mut has_come = false;
            // A turn reads what has come and runs the deadlines; the poll that follows lasts until the next deadline.
            while !has_come && Clock::now().instant < end {
                engine.turn(Some(Duration::ZERO)).unwrap();
                has_come = engine.poll_shortly(Clock::now().instant, PATIENCE, None, false).unwrap()
                    && engine.ready.iter().any(|event| event.token() == INBOX);
            }
            is_over.store(true, Relaxed);
            assert!(has_come, "the poll finds a datagram");
        });
    }

    #[test]
    fn overdue_deadline_waits_for_unread_datagrams() {
        for busy_poll in [Duration::ZERO, Duration::from_secs(1)] {
            let mut config = config();
            config.busy_poll = busy_poll;
            let (mut engine, mut other) = (open(&config), open(&config));
            turn_until(&mut [&mut engine, &mut other], |engine| state_of_other(engine) == "up");
            // The other peer is silent after 3.5 intervals.
            let_time_pass(Duration::from_millis(400));
            assert_eq!(state_of_other(&mut engine), "up", "the deadline has not run yet");
            other.turn(Some(Duration::ZERO)).unwrap();
            engine.busy_poll.short_poll = ShortPoll::polling();
            engine.turn(None).unwrap();
            assert_eq!(state_of_other(&mut engine), "up", "its heartbeat came before the turn");
            let_time_pass(Duration::from_millis(400));
            engine.turn(None).unwrap();
            assert_eq!(state_of_other(&mut engine), "silent");
        }
    }

    #[test]
    fn every_second_turn_queries_at_least() {
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let mut queried = None;
        for (micros, expected) in
            [(0, false), (1, true), (2, false), (101, true), (102, false), (202, false), (301, true), (302, false)]
        {
            let skips = may_skip_query(&mut queried, at(micros));
            assert_eq!(skips, expected, "{micros}");
            if !skips {
                queried = Some(at(micros));
            }
        }
    }
}
