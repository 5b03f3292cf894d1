//! State of reception: the last number of each subject, the receive window, the times of arrival, and kernel drops.

use crate::proto::Settings;
use crate::proto::effect::Path;
use crate::proto::list_pools::ListPools;
use crate::proto::liveness::REJOIN_INTERVAL;
use crate::proto::pace::ReceiveWindow;
use crate::proto::recv::StreamOutcome;
use crate::proto::window::SubWindow;
use crate::time::Instant;
use std::time::Duration;

/// Age at which kernel drops that no gap explained are attributed to datagrams of others.
const OVERRUN_AGE_MAX: Duration = Duration::from_secs(2);

/// Reception of the datagrams of other peers.
pub(super) struct Inbound {
    /// Last number of each subject of each publisher.
    pub(super) window: SubWindow,
    /// Window that this peer advertises to publishers.
    pub(super) receive_window: ReceiveWindow,
    /// Earliest arrival of the next multicast and the next unicast datagram in their sockets, if reported.
    earliest_arrival: [Option<Instant>; 2],
    /// Earliest arrival of the current datagram: a peer that did not run for a while reads it late. Once the sender is
    /// known, it is at most the latest possible time of sending.
    pub(super) arrived: Instant,
    /// Kernel drops that no gap explains yet.
    pub(super) overrun: u64,
    /// Time of the last report of kernel drops.
    overrun_at: Instant,
    /// Time of the last rejoin of the group.
    rejoined: Option<Instant>,
    /// Buffer for the outcomes of a stream; empty between inputs.
    pub(super) outcomes: Vec<StreamOutcome>,
    /// Lists of earlier datagrams, for later ones.
    pub(super) lists: ListPools,
}

impl Inbound {
    /// Creates the state of a peer that begins to listen now, with a seed for the window.
    pub(super) fn new(settings: &Settings, window_seed: u64, now: Instant) -> Inbound {
        Inbound {
            window: SubWindow::new(settings.sub_window, window_seed),
            receive_window: ReceiveWindow::new(&settings.pace, now),
            earliest_arrival: [None, None],
            arrived: now,
            overrun: 0,
            overrun_at: now,
            rejoined: None,
            outcomes: Vec::new(),
            lists: ListPools::default(),
        }
    }

    /// Records the earliest arrival of the next datagram of a socket.
    pub(super) fn on_arrived(&mut self, path: Path, at: Instant) {
        self.earliest_arrival[usize::from(path == Path::Unicast)] = Some(at);
    }

    /// Returns the earliest arrival of the next datagram of a socket, if reported.
    pub(super) fn earliest_arrival(&self, path: Path) -> Option<Instant> {
        self.earliest_arrival[usize::from(path == Path::Unicast)]
    }

    /// Records kernel drops that represent at most `datagrams_max` datagrams.
    pub(super) fn on_overrun(&mut self, now: Instant, datagrams_max: u64) {
        (self.overrun, self.overrun_at) = (self.overrun + datagrams_max, now);
    }

    /// Discards kernel drops that no gap explained in time.
    pub(super) fn expire_overrun(&mut self, now: Instant) {
        if OVERRUN_AGE_MAX < now.since(self.overrun_at) {
            self.overrun = 0;
        }
    }

    /// Returns whether to rejoin the group now, and records that. Several members may be found one after the other; one
    /// rejoin suffices for them.
    pub(super) fn take_rejoin(&mut self, now: Instant) -> bool {
        let is_due = self.rejoined.is_none_or(|at| REJOIN_INTERVAL / 2 <= now.since(at));
        if is_due {
            self.rejoined = Some(now);
        }
        is_due
    }

    /// Checks that every outcome of a stream was processed.
    pub(super) fn assert_invariants(&self) {
        assert!(self.outcomes.is_empty(), "every outcome has become an effect");
    }
}
