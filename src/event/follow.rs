//! How a peer keeps the events of other servers too: as they come by the bus, and what did not come that way from the journals of
//! those servers.
//!
//! A server announces on one subject what it registers, and now and then itself: each time two places of its journal, with all
//! events between them. Who has everything up to the first place has everything up to the second one then. Who has not, because it has just
//! come or because messages were lost, asks the server for what stands behind the last event that it has, and keeps what is announced
//! meanwhile. So the events of each server are stored in the order of their ids, without a gap, and none twice. What travels on the
//! subjects of the types would not do: nobody promises the order of messages of several subjects.

use super::model::{Event, EventId, ServerId};
use super::store::QueryPage;
use super::timestamp::Timestamp;
use crate::message::Epoch;
use crate::subject::event_type::TypePattern;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// A server of which nothing is heard for so long is away: three announcements of those that come without events, and a half.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(35);
/// The instance that stands behind all events of a session. No event has it.
pub const INSTANCE_END: u64 = i64::MAX as u64;
/// How long an answer may take before it is asked for again; each further time twice as long, up to [`BACKOFF_MAX`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The first wait before asking again after a failure; each further one is twice as long,
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// up to this.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Servers that are followed at most.
const SERVERS_MAX: usize = 1024;
/// Announcements that are kept while an answer is awaited, of each server at most; then they are forgotten and asked for.
const BUFFERED_MAX: usize = 4096;
/// Bytes of the events in them, of all servers together.
const BUFFERED_BYTES_MAX: usize = 8 << 20;
/// What an event counts there beside its payload.
const EVENT_BYTES: usize = 256;

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// When its journal was opened.
    pub opened: Timestamp,
    /// Whether it registers events: it has made sure that no other peer does under its number.
    pub is_held: bool,
    /// Whether its peer follows other servers.
    pub follows: bool,
    /// The place of the journal that the events stand behind.
    pub since: EventId,
    /// The place up to which, with it, there are no others. Not before `since`, and of the same server.
    pub until: EventId,
    /// The events between the two places, in their order.
    pub events: Vec<Event>,
}

/// What a follower asks a server: its events behind this one, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationRequest {
    /// The place of the journal; there need be no event there.
    pub after: EventId,
    /// Only events whose type one of these matches.
    pub types: Vec<TypePattern>,
}

/// A part of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPage {
    /// All that was asked for and stands up to here is in this part, or in one before.
    pub covered: EventId,
    /// Whether the server has more events behind that.
    pub more_follows: bool,
    /// The events.
    pub events: Vec<Event>,
}

impl Announcement {
    /// Whether it makes sense: ids rise from the one place to the other.
    pub fn is_sound(&self) -> bool {
        are_between(self.since, &self.events, self.until)
    }

    fn bytes(&self) -> usize {
        self.events.iter().map(|event| EVENT_BYTES + event.payload_size()).sum()
    }
}

impl ReplicationPage {
    /// What of an answer of the journal is asked for, as much as takes so many bytes at most, or one event; those for which `size`, what
    /// an event takes, gives nothing are left out.
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
            // A session is stored as a whole.
            page.covered.instance = INSTANCE_END;
        }
        page
    }

    /// Whether it can be an answer to that, and one that leads on.
    fn answers(&self, question: &ReplicationRequest) -> bool {
        are_between(question.after, &self.events, self.covered) && (question.after < self.covered || !self.more_follows)
    }
}

/// What is announced of a session with these events, in parts with so many bytes of events at most, or one event; `head` is the
/// announcement of the place before without events. `size` is what an event takes.
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

/// Whether the ids are those of events of one server that a journal can hold, and rise from the first place to the last one.
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

/// What a follower wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowerAction {
    /// These are to be stored; [`Follower::on_stored`] must follow before anything else.
    Store(Vec<Event>),
    /// A server is to be asked; [`Follower::on_page`] takes its answer.
    Ask {
        /// Names the question.
        number: u64,
        /// What.
        question: ReplicationRequest,
    },
    /// There is something to tell.
    Report(FollowerNotice),
}

/// What happened to a server that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerNotice {
    /// It is followed from now on.
    Begun {
        /// The run of its peer.
        publisher: Epoch,
        /// What is asked for stands behind this.
        after: EventId,
    },
    /// All that it had is stored up to this, and what comes is stored as it comes.
    CaughtUp {
        /// The place in its journal.
        covered: EventId,
    },
    /// It does not answer, or says what makes no sense. It is asked again.
    Unanswered(ServerId),
    /// Its journal has gone back: it announces a session before one that is known here. Until it is beyond that, its events have ids
    /// that were given before, and are not stored.
    WentBack {
        /// What is known here.
        covered: EventId,
        /// What it announces.
        until: EventId,
    },
    /// Nothing is heard of it any more.
    Unreachable(ServerId),
    /// It is not followed, because so many are already.
    TooMany(ServerId),
}

impl FollowerNotice {
    /// Whether somebody should look into it.
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

/// A server that is followed, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The place of its journal up to which everything is stored.
    pub covered: EventId,
    /// The run of its peer; `None` while nothing is heard of it.
    pub publisher: Option<Epoch>,
    /// How far its events are stored.
    pub standing: ReplicationState,
}

/// How far the events of a server that is followed are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationState {
    /// All that it had when something was heard of it last.
    Live,
    /// There is more; it is asked for.
    CatchingUp,
    /// Its journal has gone back; what it registers has ids that were given before, and is not stored.
    WentBack,
    /// Nothing is heard of it.
    Unreachable,
}

impl ReplicationState {
    /// As in reports.
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
    /// When it was announced last.
    heard: Instant,
    state: FollowPhase,
    /// In a row.
    failures: u32,
    /// This run began with a session before one that is known here.
    has_gone_back: bool,
    /// Whether it was told that all is stored, since it was not.
    is_reported: bool,
    /// Messages of it were lost since everything was stored.
    has_lost: bool,
}

/// An event that was not heard as it was announced, but fetched from the journal of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedEvent {
    /// Which.
    pub id: EventId,
    /// Whether messages of the server were lost; otherwise it was registered before anybody listened, or nobody announced it.
    pub is_lost: bool,
}

#[derive(Debug)]
enum FollowPhase {
    /// Everything that it announced is stored, or pending.
    Live,
    /// It is asked what stands behind the last place.
    PendingFetch(PendingFetch),
    /// To be asked then.
    Backoff { until: Instant },
}

#[derive(Debug, Default)]
struct PendingFetch {
    /// When and what; `None` if it has yet to be asked.
    asked: Option<(Instant, u64, ReplicationRequest)>,
    /// What was announced meanwhile.
    buffered: Vec<Announcement>,
    buffered_bytes: usize,
}

impl PendingFetch {
    /// `others_bytes` are kept of other servers.
    fn buffer(&mut self, announcement: Announcement, others_bytes: usize) {
        self.buffered_bytes += announcement.bytes();
        if BUFFERED_MAX <= self.buffered.len() || BUFFERED_BYTES_MAX < others_bytes + self.buffered_bytes {
            // What comes next will show that something is missing.
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

    /// A time, the longer the more has failed.
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

/// Follows the servers of other peers.
#[derive(Debug)]
pub struct Follower {
    /// Is not followed.
    own: ServerId,
    types: Vec<TypePattern>,
    /// Of each server the place of its journal up to which everything is stored, or pending.
    covered: BTreeMap<ServerId, EventId>,
    /// Those of which something was ever stored: they are remembered when they are away.
    stored: BTreeSet<ServerId>,
    servers: BTreeMap<ServerId, FollowedServer>,
    /// To be stored next.
    pending: Vec<Event>,
    /// Of these, what was fetched.
    fetched: Vec<FetchedEvent>,
    /// The places before that.
    before: BTreeMap<ServerId, EventId>,
    notices: VecDeque<FollowerNotice>,
    questions: u64,
    is_full_reported: bool,
}

impl Follower {
    /// Follows all servers but its own, for events of these types. `stored` is the last event of each server that is stored.
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

    /// Whether events of any type are followed.
    pub fn is_following(&self) -> bool {
        !self.types.is_empty()
    }

    /// A peer has announced a server.
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

    /// `until` is up to where the journal goes, as far as was announced. Only with another run of its peer it can have gone back.
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

    /// What a server that is live has announced.
    fn take(&mut self, announcement: Announcement) {
        let server = announcement.until.server;
        if self.covered[&server] < announcement.since {
            return self.servers.get_mut(&server).expect("it is live").ask();
        }
        self.push(announcement.events);
        self.advance_covered(announcement.until);
    }

    /// Messages of a peer were lost, or of all peers: what was announced in them is asked for, if it was.
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

    /// A peer has answered a question.
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

    /// Whether what was to be stored is.
    pub fn on_stored(&mut self, now: Instant, is_stored: bool) {
        if is_stored {
            return self.confirm_stored();
        }
        for (server, covered) in std::mem::take(&mut self.before) {
            self.covered.insert(server, covered);
            self.servers.get_mut(&server).into_iter().for_each(|followed| followed.back_off(now));
        }
    }

    /// What is covered is stored.
    fn confirm_stored(&mut self) {
        for server in std::mem::take(&mut self.before).into_keys() {
            let Some(followed) = self.servers.get_mut(&server) else { continue };
            followed.failures = 0;
            if matches!(followed.state, FollowPhase::Live) && !std::mem::replace(&mut followed.is_reported, true) {
                self.notices.push_back(FollowerNotice::CaughtUp { covered: self.covered[&server] });
            }
        }
    }

    /// What to do next.
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
                // The same question, so that the answer counts however late it comes.
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

    /// Which of the events that are to be stored were fetched; to be taken before they are.
    pub fn take_fetched(&mut self) -> Vec<FetchedEvent> {
        std::mem::take(&mut self.fetched)
    }

    /// When to poll again if nothing happens before; there may be something to do already.
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

    /// Those that are followed, by their numbers, with those of which events are stored and nothing is heard.
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

    /// These are to be stored, as far as they are wanted and not stored yet. What stands between them and what is covered is there.
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
