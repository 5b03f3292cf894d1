//! State of one followed server.

use crate::event::model::EventId;
use crate::event::replication::{Announcement, ReplicationRequest};
use crate::event::server_origin::{ServerOrigin, ServerSite};
use crate::message::Epoch;
use crate::time::Instant;
use std::time::Duration;

/// Timeout of an answer, after which the request is repeated. It doubles with each failure, up to [`BACKOFF_MAX`].
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait before the first retry after a failure. It doubles with each further failure.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Maximum of that wait, and of the timeout of an answer.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Maximum number of announcements buffered for each server during a request. Beyond it the follower discards them and
/// requests their events.
const BUFFERED_MAX: usize = 4096;
/// Maximum bytes of the events in buffered announcements, of all servers together.
const BUFFERED_BYTES_MAX: usize = 8 << 20;

/// Status of a followed server, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Position in the server's journal up to which all events are stored.
    pub covered: EventId,
    /// Epoch of the server's peer, or of the gateway that relays its announcements; `None` while the server is
    /// unreachable.
    pub publisher: Option<Epoch>,
    /// Site of the server; `None` while the server is unreachable.
    pub site: Option<ServerSite>,
    /// Progress of storing its events.
    pub state: ReplicationState,
}

/// Progress of storing the events of a followed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationState {
    /// All events up to its last announcement are stored.
    Live,
    /// The server has more events, which the follower is requesting.
    CatchingUp,
    /// The server's journal is rolled back: its new events have ids that were assigned before, and are not stored.
    RolledBack,
    /// The server no longer announces itself.
    Unreachable,
}

impl ReplicationState {
    /// Returns the name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplicationState::Live => "live",
            ReplicationState::CatchingUp => "catching_up",
            ReplicationState::RolledBack => "rolled_back",
            ReplicationState::Unreachable => "unreachable",
        }
    }
}

/// A server that is followed.
#[derive(Debug)]
pub(super) struct FollowedServer {
    /// Epoch of its peer, or of the gateway that relays its announcements.
    pub(super) publisher: Epoch,
    pub(super) origin: ServerOrigin,
    /// Time of its last announcement.
    pub(super) last_announcement: Instant,
    pub(super) state: FollowPhase,
    /// Number of consecutive failures.
    pub(super) failures: u32,
    /// True if the current run of the server began with a session before one that is stored here.
    pub(super) is_rolled_back: bool,
    /// True if [`CatchUp`](super::FollowerNotice::CatchUp) was reported since the server was last behind.
    pub(super) is_reported: bool,
    /// True if the bus lost messages of the server since the last complete fetch.
    pub(super) has_lost: bool,
}

/// Progress of following a server.
#[derive(Debug)]
pub(super) enum FollowPhase {
    /// All events that the server has announced are stored, or pending.
    Live,
    /// The follower is requesting the events after the covered position.
    Fetching(PendingFetch),
    /// The follower requests the missing events at `until`.
    Backoff { until: Instant },
}

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct SentRequest {
    /// Time of the last transmission.
    pub(super) at: Instant,
    pub(super) number: u64,
    pub(super) request: ReplicationRequest,
}

/// A fetch of the events after the covered position.
#[derive(Debug, Default)]
pub(super) struct PendingFetch {
    /// The request; `None` if it has yet to be sent.
    pub(super) sent: Option<SentRequest>,
    /// Announcements received meanwhile.
    pub(super) buffered: Vec<Announcement>,
    pub(super) buffered_bytes: usize,
}

impl PendingFetch {
    /// Buffers an announcement. `others_bytes` is the number of bytes buffered for other servers.
    pub(super) fn buffer(&mut self, announcement: Announcement, others_bytes: usize) {
        self.buffered_bytes += announcement.bytes();
        if BUFFERED_MAX <= self.buffered.len() || BUFFERED_BYTES_MAX < others_bytes + self.buffered_bytes {
            // The next announcement will show that something is missing.
            *self = PendingFetch { sent: self.sent.take(), ..PendingFetch::default() };
        } else {
            self.buffered.push(announcement);
        }
    }
}

impl FollowedServer {
    /// Begins to fetch the missing events.
    pub(super) fn fetch(&mut self) {
        self.is_reported = false;
        self.state = FollowPhase::Fetching(PendingFetch::default());
    }

    /// Schedules a fetch after the next backoff.
    pub(super) fn back_off(&mut self, now: Instant) {
        self.is_reported = false;
        self.state = FollowPhase::Backoff { until: now + self.backoff(BACKOFF_MIN) };
        self.failures += 1;
    }

    /// Returns the given time, doubled for each consecutive failure, up to [`BACKOFF_MAX`].
    pub(super) fn backoff(&self, time: Duration) -> Duration {
        time.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX)
    }

    /// Returns the progress in reports.
    pub(super) fn replication_state(&self) -> ReplicationState {
        match self.state {
            _ if self.is_rolled_back => ReplicationState::RolledBack,
            FollowPhase::Live => ReplicationState::Live,
            FollowPhase::Fetching(_) | FollowPhase::Backoff { .. } => ReplicationState::CatchingUp,
        }
    }

    /// Returns the bytes of its buffered announcements.
    pub(super) fn buffered_bytes(&self) -> usize {
        if let FollowPhase::Fetching(fetch) = &self.state { fetch.buffered_bytes } else { 0 }
    }
}
