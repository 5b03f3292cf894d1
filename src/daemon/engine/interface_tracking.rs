//! The interface of a running peer: its state, and the move of the sockets to its new address or its new number.

use super::Engine;
use super::network::{log_copies, socket_options, static_status};
use super::start_error::StartError;
use crate::daemon::engine_core::Phase;
use crate::daemon::interface::{self, ChosenInterface, InterfaceState, InterfaceWatch, state_of, successor};
use crate::daemon::missing_keys::MissingKeys;
use crate::daemon::multicast::SocketOpenError;
use crate::daemon::tokens::{COPIES, GROUP, INBOX};
use crate::time::{ClockReading, Instant};
use std::io;
use std::time::Duration;

/// Minimum time between two lists of the interfaces. A host that starts many containers changes them often.
const LIST_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Time after which a failed list or a failed move to another address is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The interface that the peer uses, as the system last reported it.
#[derive(Debug)]
pub(super) struct TrackedInterface {
    watch: InterfaceWatch,
    current: ChosenInterface,
    state: InterfaceState,
    /// Time of the next list of the interfaces, if one is needed.
    list_at: Option<Instant>,
    /// Time of the last list.
    listed_at: Instant,
    /// Text of the last error, which is logged once.
    error: String,
}

impl TrackedInterface {
    /// Creates the state of a peer that uses this interface.
    pub(super) fn new(watch: InterfaceWatch, current: ChosenInterface) -> TrackedInterface {
        TrackedInterface {
            watch,
            current,
            state: InterfaceState::Usable,
            list_at: None,
            listed_at: Instant::ZERO,
            error: String::new(),
        }
    }

    /// Takes the notifications that an interface has changed.
    pub(super) fn on_event(&mut self) {
        if self.watch.take() {
            self.list_at = Some(self.listed_at + LIST_INTERVAL_MIN);
        }
    }

    /// Returns the time of the next list of the interfaces, if one is needed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.list_at
    }

    /// Returns the present state of the interface.
    pub(super) fn state(&self) -> &InterfaceState {
        &self.state
    }

    /// Returns the interface that the peer uses.
    pub(super) fn current(&self) -> &ChosenInterface {
        &self.current
    }

    /// Logs an error that is not the last one, and schedules another attempt.
    fn retry(&mut self, now: Instant, error: String) {
        self.list_at = Some(now + RETRY_INTERVAL);
        if self.error != error {
            tracing::warn!(interface = self.current.name, "{error}");
            self.error = error;
        }
    }
}

impl Engine {
    /// Lists the interfaces if one has changed, and moves the sockets if the interface of this peer has another address
    /// or another number.
    ///
    /// # Errors
    /// The system's event queue is broken.
    pub(super) fn track_interface(&mut self, now: ClockReading) -> io::Result<()> {
        if self.interface.list_at.is_none_or(|at| now.instant < at) {
            return Ok(());
        }
        (self.interface.list_at, self.interface.listed_at) = (None, now.instant);
        // A peer that stops moves no more.
        if self.core.phase != Phase::Running {
            return Ok(());
        }
        let interfaces = match interface::list() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                self.interface.retry(now.instant, format!("the network interfaces cannot be listed: {error}"));
                return Ok(());
            }
        };
        if let Some(next) = successor(&interfaces, &self.running_config.config.interface, &self.interface.current) {
            match self.follow(now, &next)? {
                Ok(()) => self.interface.current = next,
                Err(error) => {
                    let text = format!("this peer cannot continue with the address {}: {error}", next.address);
                    self.interface.retry(now.instant, text);
                }
            }
        }
        let state = state_of(&interfaces, &self.interface.current);
        self.health.on_interface(&self.interface.current, now.instant);
        self.interface.state = state;
        Ok(())
    }

    /// Moves the sockets, unless other hosts could then reach a peer that has no keys and is not explicitly open. A running
    /// peer never changes its mode.
    fn follow(&mut self, now: ClockReading, next: &ChosenInterface) -> io::Result<Result<(), StartError>> {
        if self.core.protection.is_open()
            && let Err(error) = MissingKeys::check(&self.running_config.config, next)
        {
            return Ok(Err(StartError::Unprotected(error)));
        }
        Ok(self.move_sockets(now, next)?.map_err(StartError::Sockets))
    }

    /// Moves the sockets to an interface with another address or another number. With another address the peer begins a
    /// new epoch.
    fn move_sockets(&mut self, now: ClockReading, next: &ChosenInterface) -> io::Result<Result<(), SocketOpenError>> {
        let former = self.core.sockets.inbox_address();
        let registry = self.core.poll.registry();
        self.core.sockets.deregister(registry)?;
        let moved = self.core.sockets.move_to(&socket_options(&self.running_config.config, next));
        self.core.sockets.register(registry, [GROUP, INBOX, COPIES])?;
        self.is_watching_writes = false;
        if moved.is_ok() {
            log_copies(&self.running_config.config, &mut self.core.sockets);
            self.core.transmit_queue.copy_to(self.core.sockets.copy_addresses(&self.running_config.config.peers));
            let inbox = self.core.sockets.inbox_address();
            tracing::warn!(
                interface = next.name,
                address = %next.address,
                %inbox,
                former = %former.ip(),
                "the interface has another address or is a new one; this peer continues with it"
            );
            self.static_status =
                static_status(&self.running_config.config, next, &self.core.sockets, self.core.local_socket.as_ref());
            self.core.on_sockets_moved(now, inbox != former);
            self.health.move_beacons(next);
        }
        Ok(moved)
    }
}
