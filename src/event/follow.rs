//! Replication of other servers' events to this peer. Events arrive by the bus; the peer fetches those that did not
//! from the journals of their servers.
//!
//! A server announces on one subject what it registers, and periodically itself. Each announcement names two positions
//! of its journal and all events between them. A follower that has everything up to the first position has everything
//! up to the second one then. A follower that has just started or has lost messages requests the events behind the last
//! one that it has. Meanwhile it buffers announcements. So the events of each server are stored in the order of their
//! ids, without a gap, and none twice. The messages on the subjects of the types would not do: the bus does not promise
//! an order of messages across several subjects.

use super::model::{Event, EventId, ServerId};
use super::store::QueryPage;
use super::timestamp::Timestamp;
use crate::message::Epoch;
use crate::subject::event_type::TypePattern;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// Time without announcements after which a server is unreachable: three and a half intervals of announcements without
/// events.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(35);
/// Instance behind all events of a session. No event has it.
pub const INSTANCE_END: u64 = i64::MAX as u64;
/// Timeout of an answer, after which the request is repeated. It doubles with each failure, up to [`BACKOFF_MAX`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait before the first retry after a failure. It doubles with each further failure,
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// up to this.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Maximum number of servers that are followed.
const SERVERS_MAX: usize = 1024;
/// Maximum number of announcements buffered for each server during a request. Beyond it they are discarded and
/// requested.
const BUFFERED_MAX: usize = 4096;
/// Maximum bytes of the events in them, of all servers together.
const BUFFERED_BYTES_MAX: usize = 8 << 20;
/// Bytes that an event counts there beside its payload.
const EVENT_BYTES: usize = 256;

/// The announcement of a server about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Time at which its journal was opened.
    pub opened: Timestamp,
    /// True if it registers events: it has made sure that no other peer uses its server id.
    pub is_held: bool,
    /// True if its peer follows other servers.
    pub follows: bool,
    /// Position in the journal after which the events begin.
    pub since: EventId,
    /// Position up to which, inclusive, there are no other events. It is not before `since`, and of the same server.
    pub until: EventId,
    /// The events between the two positions, in their order.
    pub events: Vec<Event>,
}

/// A follower's request to a server: the events behind a position, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationRequest {
    /// Position in the journal; it need not be that of an event.
    pub after: EventId,
    /// Patterns of the wanted types. An event is wanted if one of them matches its type.
    pub types: Vec<TypePattern>,
}

/// A part of the answer to a [`ReplicationRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPage {
    /// Position up to which this part and those before contain all requested events.
    pub covered: EventId,
    /// True if the server has more events behind `covered`.
    pub more_follows: bool,
    /// The events of this part.
    pub events: Vec<Event>,
}

impl Announcement {
    /// Returns whether it is valid: ids rise from the first position to the second.
    pub fn is_sound(&self) -> bool {
        are_between(self.since, &self.events, self.until)
    }

    fn bytes(&self) -> usize {
        self.events.iter().map(|event| EVENT_BYTES + event.payload_size()).sum()
    }
}

impl ReplicationPage {
    /// Builds the answer to `question` from the events of the journal, with at most `bytes_max` bytes of events, or one
    /// event. `size` returns the bytes of an event. Events without a size are left out.
    pub fn new(
        question: &ReplicationRequest,
        found: QueryPage,
        bytes_max: usize,
        size: impl Fn(&Event) -> Option<usize>,
    ) -> ReplicationPage {
        let mut page =
            ReplicationPage { covered: question.after, more_follows: found.more_follows, events: Vec::new() };
        let mut bytes = 0;
        for event in found.events {
            let id = event.id;
            if is_wanted(&question.types, &event)
                && let Some(size) = size(&event)
            {
                bytes += size;
                if bytes_max < bytes && !page.events.is_empty() {
                    page.more_follows = true;
                    break;
                }
                page.events.push(event);
            }
            page.covered = id;
        }
        if !page.more_follows {
            // A session is stored as a whole, so the last one is complete.
            page.covered.instance = INSTANCE_END;
        }
        page
    }

    /// Returns whether the page can be an answer to `question` that makes progress.
    fn answers(&self, question: &ReplicationRequest) -> bool {
        are_between(question.after, &self.events, self.covered) && (question.after < self.covered || !self.more_follows)
    }
}

/// Splits the events of a session into announcements of at most `bytes_max` bytes of events, or one event. `head` is
/// the announcement of the position before, without events. `size` returns the bytes of an event.
pub fn parts(
    head: &Announcement,
    events: &[Event],
    bytes_max: usize,
    size: impl Fn(&Event) -> usize,
) -> Vec<Announcement> {
    let mut parts: Vec<Announcement> = Vec::new();
    let mut bytes = 0;
    for event in events {
        bytes += size(event);
        if parts.is_empty() || bytes_max < bytes {
            let since = parts.last().map_or(head.until, |part| part.until);
            parts.push(Announcement { since, events: Vec::new(), ..head.clone() });
            bytes = size(event);
        }
        let part = parts.last_mut().expect("one was begun");
        part.until = event.id;
        part.events.push(event.clone());
    }
    if let Some(last) = parts.last_mut() {
        last.until.instance = INSTANCE_END;
    }
    parts
}

/// Returns whether all ids are valid ids of events of one server and rise from the first position to the last.
fn are_between(since: EventId, events: &[Event], until: EventId) -> bool {
    let ids = events.iter().map(|event| event.id);
    let is_rising = [since].into_iter().chain(ids.clone()).is_sorted_by(|one, next| one < next);
    is_rising
        && events.last().map_or(since, |event| event.id) <= until
        && since.server == until.server
        && until.session < INSTANCE_END
        && ids.into_iter().all(|id| id.is_of_event() && id.instance < INSTANCE_END)
}

fn is_wanted(types: &[TypePattern], event: &Event) -> bool {
    types.iter().any(|pattern| pattern.matches(&event.event_type))
}

/// An action that a follower requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowerAction {
    /// Events to store; [`Follower::on_stored`] must follow before anything else.
    Store(Vec<Event>),
    /// A request to send to a server; [`Follower::on_page`] takes its answer.
    Ask {
        /// Number that identifies the request.
        number: u64,
        /// The request.
        question: ReplicationRequest,
    },
    /// A notice to report.
    Report(FollowerNotice),
}

/// A change in the state of a followed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerNotice {
    /// The server is followed from now on.
    Begun {
        /// Epoch of its peer.
        publisher: Epoch,
        /// Position after which events are requested.
        after: EventId,
    },
    /// All of its events are stored up to this position, and new ones are stored as they arrive.
    CaughtUp {
        /// Position in its journal.
        covered: EventId,
    },
    /// The server does not answer, or its answer is invalid. The request is repeated.
    Unanswered(ServerId),
    /// Its journal has gone back: it announces a session before one that is stored here. Until it has passed that
    /// session, its events have ids that were given before, and are not stored.
    WentBack {
        /// Last position stored here.
        covered: EventId,
        /// Position that it announces.
        until: EventId,
    },
    /// The server no longer announces itself.
    Unreachable(ServerId),
    /// The server is not followed, because the maximum number of servers is reached.
    TooMany(ServerId),
}

impl FollowerNotice {
    /// Returns whether the notice needs an operator's attention.
    pub fn is_warning(&self) -> bool {
        matches!(self, FollowerNotice::Unanswered(_) | FollowerNotice::WentBack { .. } | FollowerNotice::TooMany(_))
    }
}

impl fmt::Display for FollowerNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FollowerNotice::Begun { publisher, after } => write!(
                f,
                "the events of server {} at the peer in epoch {publisher} are followed from session {} on",
                after.server, after.session
            ),
            FollowerNotice::CaughtUp { covered } => {
                write!(f, "the events of server {} are stored up to session {}", covered.server, covered.session)
            }
            FollowerNotice::Unanswered(server) => {
                write!(f, "server {server} does not answer what it has; it is asked again")
            }
            FollowerNotice::WentBack { covered, until } => write!(
                f,
                "the journal of server {} has gone back to session {}, while session {} is known here: what it registers has ids that \
                 were given before, and is not stored; give that peer another server-id",
                covered.server, until.session, covered.session
            ),
            FollowerNotice::Unreachable(server) => write!(f, "nothing is heard of server {server} any more"),
            FollowerNotice::TooMany(server) => {
                write!(f, "the events of server {server} are not followed, since {SERVERS_MAX} others are")
            }
        }
    }
}

/// Status of a followed server, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Position in its journal up to which everything is stored.
    pub covered: EventId,
    /// Epoch of its peer; `None` while the server is unreachable.
    pub publisher: Option<Epoch>,
    /// Progress of storing its events.
    pub standing: ReplicationState,
}

/// Progress of storing the events of a followed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationState {
    /// All events up to its last announcement are stored.
    Live,
    /// The server has more events; they are being requested.
    CatchingUp,
    /// Its journal has gone back: the events it registers have ids that were given before, and are not stored.
    WentBack,
    /// The server does not announce itself.
    Unreachable,
}

impl ReplicationState {
    /// Returns the name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplicationState::Live => "live",
            ReplicationState::CatchingUp => "catching_up",
            ReplicationState::WentBack => "went_back",
            ReplicationState::Unreachable => "away",
        }
    }
}

#[derive(Debug)]
struct FollowedServer {
    publisher: Epoch,
    /// Time of its last announcement.
    heard: Instant,
    state: FollowPhase,
    /// Number of consecutive failures.
    failures: u32,
    /// True if this run began with a session before one that is stored here.
    has_gone_back: bool,
    /// True if [`FollowerNotice::CaughtUp`] was reported since the server was last behind.
    is_reported: bool,
    /// True if messages of the server were lost since everything was stored.
    has_lost: bool,
}

/// An event that was not received with an announcement, but fetched from the journal of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedEvent {
    /// Id of the event.
    pub id: EventId,
    /// True if messages of the server were lost. Otherwise the event was registered before this peer listened, or was
    /// not announced.
    pub is_lost: bool,
}

#[derive(Debug)]
enum FollowPhase {
    /// Everything that the server announced is stored, or pending.
    Live,
    /// Events behind the last covered position are being requested.
    PendingFetch(PendingFetch),
    /// The request follows at `until`.
    Backoff { until: Instant },
}

#[derive(Debug, Default)]
struct PendingFetch {
    /// Time, number and request; `None` if it has yet to be sent.
    asked: Option<(Instant, u64, ReplicationRequest)>,
    /// Announcements received meanwhile.
    buffered: Vec<Announcement>,
    buffered_bytes: usize,
}

impl PendingFetch {
    /// Buffers an announcement. `others_bytes` is the number of bytes buffered for other servers.
    fn buffer(&mut self, announcement: Announcement, others_bytes: usize) {
        self.buffered_bytes += announcement.bytes();
        if BUFFERED_MAX <= self.buffered.len() || BUFFERED_BYTES_MAX < others_bytes + self.buffered_bytes {
            // The next announcement will show that something is missing.
            *self = PendingFetch { asked: self.asked.take(), ..PendingFetch::default() };
        } else {
            self.buffered.push(announcement);
        }
    }
}

impl FollowedServer {
    fn ask(&mut self) {
        self.is_reported = false;
        self.state = FollowPhase::PendingFetch(PendingFetch::default());
    }

    fn back_off(&mut self, now: Instant) {
        self.is_reported = false;
        self.state = FollowPhase::Backoff { until: now + self.backoff(BACKOFF_MIN) };
        self.failures += 1;
    }

    /// Returns the given time, doubled for each consecutive failure, up to [`BACKOFF_MAX`].
    fn backoff(&self, time: Duration) -> Duration {
        time.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX)
    }

    fn standing(&self) -> ReplicationState {
        match self.state {
            _ if self.has_gone_back => ReplicationState::WentBack,
            FollowPhase::Live => ReplicationState::Live,
            FollowPhase::PendingFetch(_) | FollowPhase::Backoff { .. } => ReplicationState::CatchingUp,
        }
    }

    fn buffered_bytes(&self) -> usize {
        if let FollowPhase::PendingFetch(asking) = &self.state { asking.buffered_bytes } else { 0 }
    }
}

/// Follows the servers of other peers, and decides which events to store.
#[derive(Debug)]
pub struct Follower {
    /// Id of the local server, which is not followed.
    own: ServerId,
    types: Vec<TypePattern>,
    /// Position in each server's journal up to which everything is stored, or pending.
    covered: BTreeMap<ServerId, EventId>,
    /// Servers of which at least one event was stored: they are remembered while unreachable.
    stored: BTreeSet<ServerId>,
    servers: BTreeMap<ServerId, FollowedServer>,
    /// Events to store next.
    pending: Vec<Event>,
    /// The fetched ones among the pending events.
    fetched: Vec<FetchedEvent>,
    /// Covered positions before the pending events.
    before: BTreeMap<ServerId, EventId>,
    notices: VecDeque<FollowerNotice>,
    questions: u64,
    is_full_reported: bool,
}

impl Follower {
    /// Creates a follower of all servers but its own, for events of these types. `stored` is the last stored event of
    /// each server.
    pub fn new(own: ServerId, types: Vec<TypePattern>, stored: impl IntoIterator<Item = EventId>) -> Follower {
        let covered: BTreeMap<ServerId, EventId> = stored.into_iter().map(|id| (id.server, id)).collect();
        Follower {
            own,
            types,
            stored: covered.keys().copied().collect(),
            covered,
            servers: BTreeMap::new(),
            pending: Vec::new(),
            fetched: Vec::new(),
            before: BTreeMap::new(),
            notices: VecDeque::new(),
            questions: 0,
            is_full_reported: false,
        }
    }

    /// Returns whether events of any type are followed.
    pub fn is_following(&self) -> bool {
        !self.types.is_empty()
    }

    /// Handles a peer's announcement of a server.
    pub fn on_announcement(&mut self, now: Instant, publisher: Epoch, announcement: Announcement) {
        let server = announcement.until.server;
        let is_meant = self.is_following() && server != self.own && announcement.is_held;
        if !is_meant || !announcement.is_sound() {
            return;
        }
        if self.servers.get(&server).is_none_or(|followed| followed.publisher != publisher) {
            if SERVERS_MAX <= self.servers.len() && !self.servers.contains_key(&server) {
                if !std::mem::replace(&mut self.is_full_reported, true) {
                    self.notices.push_back(FollowerNotice::TooMany(server));
                }
                return;
            }
            self.begin(now, publisher, announcement.until);
        }
        let buffered_bytes: usize = self.servers.values().map(FollowedServer::buffered_bytes).sum();
        let followed = self.servers.get_mut(&server).expect("it has begun by now");
        let others_bytes = buffered_bytes - followed.buffered_bytes();
        followed.heard = now;
        match &mut followed.state {
            FollowPhase::Live => self.take(announcement),
            FollowPhase::PendingFetch(asking) => asking.buffer(announcement, others_bytes),
            FollowPhase::Backoff { .. } => {}
        }
    }

    /// Begins to follow a server. `until` is the end of its journal as announced. A journal can have gone back only
    /// with a new epoch of its peer.
    fn begin(&mut self, now: Instant, publisher: Epoch, until: EventId) {
        let server = until.server;
        let covered = *self.covered.entry(server).or_insert(EventId { server, session: 0, instance: 0 });
        let (state, has_gone_back) =
            (FollowPhase::PendingFetch(PendingFetch::default()), until.session < covered.session);
        let (failures, is_reported, has_lost) = (0, false, false);
        let followed = FollowedServer { publisher, heard: now, state, failures, has_gone_back, is_reported, has_lost };
        self.servers.insert(server, followed);
        self.notices.push_back(FollowerNotice::Begun { publisher, after: covered });
        if has_gone_back {
            self.notices.push_back(FollowerNotice::WentBack { covered, until });
        }
    }

    /// Applies the announcement of a live server.
    fn take(&mut self, announcement: Announcement) {
        let server = announcement.until.server;
        if self.covered[&server] < announcement.since {
            return self.servers.get_mut(&server).expect("it is live").ask();
        }
        self.push(announcement.events);
        self.advance_covered(announcement.until);
    }

    /// Records that messages of a peer, or of all peers, were lost. Announcements may have been among them, so the
    /// follower requests the missing events.
    pub fn on_loss(&mut self, publisher: Option<Epoch>) {
        for followed in self.servers.values_mut() {
            if publisher.is_none_or(|publisher| followed.publisher == publisher) {
                followed.has_lost = true;
                if let FollowPhase::Live = followed.state {
                    followed.ask();
                }
            }
        }
    }

    /// Handles a peer's answer to a request.
    pub fn on_page(&mut self, now: Instant, publisher: Epoch, number: u64, page: ReplicationPage) {
        let server = page.covered.server;
        let Some(followed) = self.servers.get_mut(&server).filter(|followed| followed.publisher == publisher) else {
            return;
        };
        let FollowPhase::PendingFetch(asking) = &mut followed.state else { return };
        let Some((_, _, question)) = asking.asked.take_if(|(_, of, _)| *of == number) else { return };
        if !page.answers(&question) {
            followed.back_off(now);
            return self.notices.push_back(FollowerNotice::Unanswered(server));
        }
        let heard: BTreeSet<EventId> =
            asking.buffered.iter().flat_map(|announcement| &announcement.events).map(|event| event.id).collect();
        let buffered = if page.more_follows { None } else { Some(std::mem::take(&mut asking.buffered)) };
        let is_lost = followed.has_lost;
        followed.has_lost &= page.more_follows;
        let (covered, ids) = (self.covered[&server], page.events.iter().map(|event| event.id));
        let fetched = ids.filter(|id| covered < *id && !heard.contains(id));
        self.fetched.extend(fetched.map(|id| FetchedEvent { id, is_lost }));
        self.push(page.events);
        self.advance_covered(page.covered);
        let Some(buffered) = buffered else { return };
        self.servers.get_mut(&server).expect("it has answered").state = FollowPhase::Live;
        for announcement in buffered {
            if let FollowPhase::Live = self.servers[&server].state {
                self.take(announcement);
            }
        }
    }

    /// Records whether the events of the last [`FollowerAction::Store`] were stored.
    pub fn on_stored(&mut self, now: Instant, is_stored: bool) {
        if is_stored {
            return self.confirm_stored();
        }
        for (server, covered) in std::mem::take(&mut self.before) {
            self.covered.insert(server, covered);
            self.servers.get_mut(&server).into_iter().for_each(|followed| followed.back_off(now));
        }
    }

    /// Confirms that all covered events are stored.
    fn confirm_stored(&mut self) {
        for server in std::mem::take(&mut self.before).into_keys() {
            let Some(followed) = self.servers.get_mut(&server) else { continue };
            followed.failures = 0;
            if matches!(followed.state, FollowPhase::Live) && !std::mem::replace(&mut followed.is_reported, true) {
                self.notices.push_back(FollowerNotice::CaughtUp { covered: self.covered[&server] });
            }
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Instant) -> Option<FollowerAction> {
        if !self.pending.is_empty() {
            return Some(FollowerAction::Store(std::mem::take(&mut self.pending)));
        }
        self.confirm_stored();
        let away = self.servers.iter().find(|(_, followed)| SERVER_TIMEOUT <= now.since(followed.heard));
        if let Some(server) = away.map(|(server, _)| *server) {
            self.servers.remove(&server);
            if !self.stored.contains(&server) {
                self.covered.remove(&server);
            }
            self.notices.push_back(FollowerNotice::Unreachable(server));
        }
        if let Some(notice) = self.notices.pop_front() {
            return Some(FollowerAction::Report(notice));
        }
        self.servers.iter_mut().find_map(|(server, followed)| {
            let answer_time = followed.backoff(ANSWER_TIMEOUT);
            if matches!(followed.state, FollowPhase::Backoff { until } if until <= now) {
                followed.ask();
            }
            let FollowPhase::PendingFetch(asking) = &mut followed.state else { return None };
            match &mut asking.asked {
                None => {
                    self.questions += 1;
                    let question = ReplicationRequest { after: self.covered[server], types: self.types.clone() };
                    asking.asked = Some((now, self.questions, question.clone()));
                    Some(FollowerAction::Ask { number: self.questions, question })
                }
                // The request stays the same, so that a late answer counts, too.
                Some((at, number, question)) if answer_time <= now.since(*at) => {
                    *at = now;
                    followed.failures += 1;
                    self.notices.push_back(FollowerNotice::Unanswered(*server));
                    Some(FollowerAction::Ask { number: *number, question: question.clone() })
                }
                Some(_) => None,
            }
        })
    }

    /// Returns the fetched ones among the events to store. The caller takes them before it stores the events.
    pub fn take_fetched(&mut self) -> Vec<FetchedEvent> {
        std::mem::take(&mut self.fetched)
    }

    /// Returns the time of the next poll if nothing happens before. It may already have passed.
    pub fn deadline(&self) -> Option<Instant> {
        let of = |followed: &FollowedServer| {
            let then = match &followed.state {
                FollowPhase::Live => Instant::MAX,
                FollowPhase::PendingFetch(PendingFetch { asked: None, .. }) => Instant::ZERO,
                FollowPhase::PendingFetch(PendingFetch { asked: Some((at, ..)), .. }) => {
                    *at + followed.backoff(ANSWER_TIMEOUT)
                }
                FollowPhase::Backoff { until } => *until,
            };
            then.min(followed.heard + SERVER_TIMEOUT)
        };
        self.servers.values().map(of).min()
    }

    /// Returns the followed servers by id, with the unreachable ones of which events are stored.
    pub fn rows(&self) -> impl Iterator<Item = ServerStatus> {
        let others = self.covered.iter().filter(|(server, _)| self.is_following() && **server != self.own);
        others.map(|(server, covered)| {
            let followed = self.servers.get(server);
            ServerStatus {
                covered: *covered,
                publisher: followed.map(|followed| followed.publisher),
                standing: followed.map_or(ReplicationState::Unreachable, FollowedServer::standing),
            }
        })
    }

    /// Queues the events that are wanted and not stored yet. No events are missing between them and the covered
    /// position.
    fn push(&mut self, events: Vec<Event>) {
        for event in events {
            if self.covered[&event.id.server] < event.id {
                self.advance_covered(event.id);
                self.stored.insert(event.id.server);
                if is_wanted(&self.types, &event) {
                    self.pending.push(event);
                }
            }
        }
    }

    fn advance_covered(&mut self, place: EventId) {
        let covered = self.covered.get_mut(&place.server).expect("it is followed");
        self.before.entry(place.server).or_insert(*covered);
        *covered = place.max(*covered);
    }
}

#[cfg(test)]
mod tests;
