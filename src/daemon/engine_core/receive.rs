//! Input of the core: accepting attached clients, receiving datagrams.

use super::EngineCore;
use super::protected_io::ProtectedIo;
use crate::clock::Clock;
use crate::daemon::clients::ClientTransport;
use crate::daemon::local_socket::Connection;
#[cfg(feature = "listeners")]
use crate::daemon::path_test::datagram::is_path_test;
use crate::daemon::tokens::client_token;
use crate::listener::frame::{ByeReason, PeerFrame};
use crate::proto::effect::{Input, Path};
use crate::time::{ClockReading, Instant};
use mio::Interest;
use std::io;
use std::time::Duration;

/// Minimum age at which a client without a HELLO is evicted for a new client, at the limit of clients.
const GREETING_TIME: Duration = Duration::from_secs(2);
/// Maximum bytes received from one socket in one turn, which the last batch may exceed. A turn must not deliver more
/// than the queue of an embedded subscription holds, since its reader may be the thread that runs the turns. A mebibyte
/// holds 16,000 messages of 64 bytes.
const RECV_BYTES: usize = 1 << 20;
/// Maximum number of this peer's own multicasts received in one turn, which the last batch may exceed. The kernel
/// returns multicasts to their sender, where they are only counted. Those that it cuts have few bytes, and buffers of
/// many count once. The limit exceeds what a receive buffer of 16 MiB holds, at about 800 bytes each, so that a peer
/// that publishes at full speed reads its inbox in every turn.
const OWN_DATAGRAMS: u64 = 65_536;
/// Maximum time for which the inbox and the clock tick wait while the group socket has more than one turn can receive.
/// The inbox carries requests to publishers and their receive windows, which must arrive in time however fast
/// multicasts come.
const INBOX_WAIT_MAX: Duration = Duration::from_millis(2);

/// Maximum bytes of a receive buffer that the kernel charges for a datagram, besides twice its length: of another peer,
/// and of this peer. The kernel may keep 16 KiB of memory for a datagram that it has cut to its header.
const CHARGE_BYTES: usize = 4096;
const OWN_CHARGE_BYTES: usize = 20 * 1024;

/// State of receiving that outlasts a turn.
#[derive(Debug, Default)]
pub(super) struct ReceiveState {
    /// Time since which the inbox has been waiting for its turn behind the group socket.
    inbox_wait_since: Option<Instant>,
    /// Upper bound of the bytes that the kernel has charged to the buffers of the group socket and the inbox, for
    /// datagrams received since each socket was last empty.
    charged_bytes: [usize; 2],
}

/// Counts of what one turn has received from a socket.
#[derive(Clone, Copy, Debug, Default)]
struct ReceiveBudget {
    /// Number of datagrams of other peers, and their bytes.
    datagrams: usize,
    bytes: usize,
    /// Number of this peer's own multicasts, and their bytes.
    own_datagrams: u64,
    own_bytes: u64,
}

impl ReceiveBudget {
    /// Returns whether the turn may receive more.
    fn is_left(self) -> bool {
        self.bytes < RECV_BYTES && self.own_datagrams < OWN_DATAGRAMS
    }

    /// Returns an upper bound of the bytes of the receive buffer that the kernel has charged for the datagrams.
    fn charged_bytes(self) -> usize {
        let own = 2 * self.own_bytes as usize + OWN_CHARGE_BYTES * self.own_datagrams as usize;
        own + 2 * self.bytes + CHARGE_BYTES * self.datagrams
    }
}

impl EngineCore {
    /// Accepts new clients.
    pub(in crate::daemon) fn accept(&mut self, now: ClockReading) {
        while self.is_acceptable && self.is_running() {
            let Some(local_socket) = &self.local_socket else { return };
            let mut stream = match local_socket.socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_acceptable = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Usually the process has no file descriptor left. The engine accepts again after a client departs.
                    tracing::warn!(%error, "client not accepted");
                    self.is_acceptable = false;
                    return;
                }
            };
            let is_full = |core: &EngineCore| core.clients_max <= core.clients.local_count();
            if is_full(self)
                && let Some(oldest) = self.clients.oldest_without_hello(now, GREETING_TIME)
            {
                self.detach(now, oldest);
            }
            if is_full(self) {
                self.clients_refused += 1;
                let mut connection = Connection::new(stream, self.clients.limits());
                let text = format!("the peer has {} clients already; raise client-max", self.clients_max);
                connection.outbox.push_answer(&PeerFrame::Bye { reason: ByeReason::TooManyClients, text });
                connection.write();
                continue;
            }
            let next = self.clients.peek_next();
            let registry = self.poll.registry();
            if let Err(error) =
                registry.register(&mut stream, client_token(next), Interest::READABLE | Interest::WRITABLE)
            {
                tracing::warn!(%error, "client not accepted");
                continue;
            }
            let connection = Connection::new(stream, self.clients.limits());
            self.clients.add(now, String::new(), ClientTransport::Attached(Box::new(connection)));
        }
    }

    /// Receives from the group socket, then from the inbox. The inbox waits while the group socket has more than the
    /// budget: unread multicasts must not look missing because a unicast mentions them, or because of a clock tick.
    /// Returns false if the clock tick must wait too.
    pub(in crate::daemon) fn receive(&mut self, now: ClockReading) -> bool {
        self.receive_from(now, Path::Multicast);
        if should_delay_inbox(&mut self.receive_state.inbox_wait_since, now.instant, self.is_readable[0]) {
            return false;
        }
        self.receive_from(now, Path::Unicast);
        true
    }

    fn receive_from(&mut self, mut now: ClockReading, path: Path) {
        let index = usize::from(path == Path::Unicast);
        let mut budget = ReceiveBudget::default();
        let was_readable = self.is_readable[index];
        while self.is_readable[index] && budget.is_left() {
            match self.sockets.recv_batch(path, &mut self.batch) {
                Ok(_) => self.is_readable[index] = self.batch.is_full(),
                Err(error) => self.on_recv_error(&error),
            }
            // Datagrams that arrived after the turn began must not count as arriving before they were sent.
            now = Clock::now();
            let datagrams_each = self.batch.segments_seen();
            let own = self.batch.take_discarded();
            budget.own_datagrams += own.datagrams;
            budget.own_bytes += own.bytes;
            for received in self.batch.drain() {
                budget.bytes += received.bytes.len();
                budget.datagrams += 1;
                // A datagram may have arrived after a subscription began, and an earlier one of the same batch before.
                if let Some(at) = received.arrival(now) {
                    self.peer.handle(now, Input::Arrived { path, at });
                }
                if 0 < received.overrun {
                    self.peer.handle(now, overrun(path, received.overrun, datagrams_each));
                }
                if let Some(dropper) = &mut self.dropper
                    && dropper.drops()
                {
                    continue;
                }
                #[cfg(feature = "listeners")]
                if let Some(path_tests) = &mut self.path_tests
                    && path == Path::Multicast
                    && is_path_test(&received.bytes)
                {
                    path_tests.handle(&self.sockets, &received);
                    continue;
                }
                ProtectedIo {
                    protection: &mut self.protection,
                    peer: &mut self.peer,
                    transmit_queue: &mut self.transmit_queue,
                }
                .receive(now, received, path);
            }
            if 0 < own.datagrams {
                self.peer.handle(now, Input::OwnDatagrams { datagrams: own.datagrams, bytes: own.bytes });
            }
            if 0 < own.overrun {
                self.peer.handle(now, overrun(path, own.overrun, datagrams_each));
            }
            self.apply_effects(now);
        }
        let charged_bytes = &mut self.receive_state.charged_bytes[index];
        *charged_bytes += budget.charged_bytes();
        // The query is a system call.
        if was_readable
            && !self.is_readable[index]
            && may_have_overrun(std::mem::take(charged_bytes), self.sockets.granted()[0].granted)
        {
            match self.sockets.overrun(path) {
                Ok(0) => {}
                Ok(drops) => self.peer.handle(now, overrun(path, drops, self.batch.segments_seen())),
                Err(error) => self.on_recv_error(&error),
            }
        }
    }

    /// Counts an error. The socket is still read until it is empty: most errors report the failure of an earlier send.
    fn on_recv_error(&mut self, error: &io::Error) {
        self.recv_errors += 1;
        if self.recv_errors.is_power_of_two() {
            tracing::warn!(%error, errors = self.recv_errors, "error when receiving");
        }
    }
}

/// Returns whether the inbox must wait because the group socket has more. `since` is the time since which it waits.
fn should_delay_inbox(since: &mut Option<Instant>, now: Instant, has_more: bool) -> bool {
    let waits = has_more && now.since(*since.get_or_insert(now)) < INBOX_WAIT_MAX;
    if !waits {
        *since = None;
    }
    waits
}

/// Returns whether the kernel may have dropped datagrams at a socket that received others, charged with at most
/// `charged_bytes`, until it was empty. The kernel drops datagrams only while others fill the buffer, which is larger
/// than the granted one.
fn may_have_overrun(charged_bytes: usize, granted_bytes: usize) -> bool {
    granted_bytes <= charged_bytes
}

/// Makes the input that reports kernel drops at a socket, each of up to `datagrams_each` datagrams.
fn overrun(path: Path, drops: u32, datagrams_each: u64) -> Input {
    let drops = u64::from(drops);
    Input::Overrun { path, drops, datagrams_max: drops * datagrams_each }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_own_datagrams_use_up_a_turn() {
        let after = |bytes, own_datagrams| ReceiveBudget { bytes, own_datagrams, ..Default::default() }.is_left();
        assert!(after(0, 0) && after(RECV_BYTES - 1, 40_000), "a receive buffer of 16 MiB is read in one turn");
        assert!(!after(RECV_BYTES, 0) && !after(0, 70_000));
    }

    #[test]
    fn charge_of_a_full_buffer_permits_overruns() {
        let granted = 212_992;
        let of_others = |datagrams, bytes| ReceiveBudget { datagrams, bytes, ..Default::default() };
        let of_this = |own_datagrams, own_bytes| ReceiveBudget { own_datagrams, own_bytes, ..Default::default() };
        for (budget, expected) in [
            (ReceiveBudget::default(), false),
            (of_others(1, 1400), false),
            (of_others(20, 20 * 1400), false),
            (of_others(1, 65_507), false),
            (of_others(52, 0), true),
            (of_others(40, 40 * 1400), true),
            (of_others(4, 4 * 32_600), true),
            (of_this(4, 4 * 36), false),
            // Single datagrams of a jumbo frame that are cut to their headers keep 16 KiB each.
            (of_this(28, 28 * 36), true),
            // They come back whole where the kernel accepts no filter.
            (of_this(2, 2 * 65_507), true),
        ] {
            assert_eq!(may_have_overrun(budget.charged_bytes(), granted), expected, "{budget:?}");
        }
        assert!(may_have_overrun(granted, granted) && !may_have_overrun(granted - 1, granted));
    }

    /// Proves: W5
    #[test]
    fn inbox_waits_for_the_group_socket_by_time() {
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let mut since = None;
        let turns = [(0, true), (1900, true), (2000, true), (2100, true), (2200, false), (9000, true), (10_900, true)];
        let waits = turns.map(|(micros, has_more)| should_delay_inbox(&mut since, at(micros), has_more));
        assert_eq!(waits, [true, true, false, true, false, true, true]);
    }
}
