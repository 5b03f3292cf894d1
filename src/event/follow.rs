//! How a peer keeps the events of other servers too: as they come by the bus, and what did not come that way from the journals of
//! those servers.
//!
//! A server announces on one subject what it registers, and now and then itself: each time two places of its journal, with all
//! events between them. Who has everything up to the first place has everything up to the second one then. Who has not, because it has just
//! come or because messages were lost, asks the server for what stands behind the last event that it has, and keeps what is announced
//! meanwhile. So the events of each server are stored in the order of their ids, without a gap, and none twice. What travels on the
//! subjects of the types would not do: nobody promises the order of messages of several subjects.

use super::model::{Event, EventId, ServerId};
use super::store::Answer;
use super::timestamp::Timestamp;
use crate::message::Epoch;
use crate::subject::event_type::TypePattern;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// A server of which nothing is heard for so long is away: three announcements of those that come without events, and a half.
pub const AWAY_TIME: Duration = Duration::from_secs(35);
/// The instance that stands behind all events of a session. No event has it.
pub const BEHIND_ALL: u64 = i64::MAX as u64;
/// How long an answer may take before it is asked for again; each further time twice as long, up to [`PAUSE_MAX`].
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The first wait before asking again after a failure; each further one is twice as long,
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Servers that are followed at most.
const SERVERS_MAX: usize = 1024;
/// Announcements that are kept while an answer is awaited, of each server at most; then they are forgotten and asked for.
const KEPT_MAX: usize = 4096;
/// Bytes of the events in them, of all servers together.
const KEPT_BYTES_MAX: usize = 8 << 20;
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
pub struct Question {
    /// The place of the journal; there need be no event there.
    pub after: EventId,
    /// Only events whose type one of these matches.
    pub types: Vec<TypePattern>,
}

/// A part of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
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

impl Page {
    /// What of an answer of the journal is asked for, as much as takes so many bytes at most, or one event; those for which `size`, what
    /// an event takes, gives nothing are left out.
    pub fn new(question: &Question, found: Answer, bytes_max: usize, size: impl Fn(&Event) -> Option<usize>) -> Page {
        let mut page = Page { covered: question.after, more_follows: found.more_follows, events: Vec::new() };
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
            page.covered.instance = BEHIND_ALL;
        }
        page
    }

    /// Whether it can be an answer to that, and one that leads on.
    fn answers(&self, question: &Question) -> bool {
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
        last.until.instance = BEHIND_ALL;
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
        && until.session < BEHIND_ALL
        && ids.into_iter().all(|id| id.is_of_event() && id.instance < BEHIND_ALL)
}

fn is_wanted(types: &[TypePattern], event: &Event) -> bool {
    types.iter().any(|pattern| pattern.matches(&event.event_type))
}

/// What a follower wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These are to be stored; [`Follower::on_stored`] must follow before anything else.
    Store(Vec<Event>),
    /// A server is to be asked; [`Follower::on_page`] takes its answer.
    Ask {
        /// Names the question.
        number: u64,
        /// What.
        question: Question,
    },
    /// There is something to tell.
    Tell(Notice),
}

/// What happened to a server that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
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
    Away(ServerId),
    /// It is not followed, because so many are already.
    TooMany(ServerId),
}

impl Notice {
    /// Whether somebody should look into it.
    pub fn is_warning(&self) -> bool {
        matches!(self, Notice::Unanswered(_) | Notice::WentBack { .. } | Notice::TooMany(_))
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Begun { publisher, after } => write!(
                f,
                "the events of server {} at the peer in epoch {publisher} are followed from session {} on",
                after.server, after.session
            ),
            Notice::CaughtUp { covered } => {
                write!(f, "the events of server {} are stored up to session {}", covered.server, covered.session)
            }
            Notice::Unanswered(server) => write!(f, "server {server} does not answer what it has; it is asked again"),
            Notice::WentBack { covered, until } => write!(
                f,
                "the journal of server {} has gone back to session {}, while session {} is known here: what it registers has ids that \
                 were given before, and is not stored; give that peer another server-id",
                covered.server, until.session, covered.session
            ),
            Notice::Away(server) => write!(f, "nothing is heard of server {server} any more"),
            Notice::TooMany(server) => {
                write!(f, "the events of server {server} are not followed, since {SERVERS_MAX} others are")
            }
        }
    }
}

/// A server that is followed, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The place of its journal up to which everything is stored.
    pub covered: EventId,
    /// The run of its peer; `None` while nothing is heard of it.
    pub publisher: Option<Epoch>,
    /// How far its events are stored.
    pub standing: Standing,
}

/// How far the events of a server that is followed are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All that it had when something was heard of it last.
    Live,
    /// There is more; it is asked for.
    CatchingUp,
    /// Its journal has gone back; what it registers has ids that were given before, and is not stored.
    WentBack,
    /// Nothing is heard of it.
    Away,
}

impl Standing {
    /// As in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Live => "live",
            Standing::CatchingUp => "catching_up",
            Standing::WentBack => "went_back",
            Standing::Away => "away",
        }
    }
}

#[derive(Debug)]
struct Followed {
    publisher: Epoch,
    /// When it was announced last.
    heard: Instant,
    state: State,
    /// In a row.
    failures: u32,
    /// This run began with a session before one that is known here.
    has_gone_back: bool,
    /// Whether it was told that all is stored, since it was not.
    is_told: bool,
    /// Messages of it were lost since everything was stored.
    has_lost: bool,
}

/// An event that was not heard as it was announced, but fetched from the journal of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Which.
    pub id: EventId,
    /// Whether messages of the server were lost; otherwise it was registered before anybody listened, or nobody announced it.
    pub is_lost: bool,
}

#[derive(Debug)]
enum State {
    /// Everything that it announced is stored, or pending.
    Live,
    /// It is asked what stands behind the last place.
    Asking(Asking),
    /// To be asked then.
    Pausing { until: Instant },
}

#[derive(Debug, Default)]
struct Asking {
    /// When and what; `None` if it has yet to be asked.
    asked: Option<(Instant, u64, Question)>,
    /// What was announced meanwhile.
    kept: Vec<Announcement>,
    kept_bytes: usize,
}

impl Asking {
    /// `others_bytes` are kept of other servers.
    fn keep(&mut self, announcement: Announcement, others_bytes: usize) {
        self.kept_bytes += announcement.bytes();
        if KEPT_MAX <= self.kept.len() || KEPT_BYTES_MAX < others_bytes + self.kept_bytes {
            // What comes next will show that something is missing.
            *self = Asking { asked: self.asked.take(), ..Asking::default() };
        } else {
            self.kept.push(announcement);
        }
    }
}

impl Followed {
    fn ask(&mut self) {
        self.is_told = false;
        self.state = State::Asking(Asking::default());
    }

    fn pause(&mut self, now: Instant) {
        self.is_told = false;
        self.state = State::Pausing { until: now + self.longer(PAUSE_MIN) };
        self.failures += 1;
    }

    /// A time, the longer the more has failed.
    fn longer(&self, time: Duration) -> Duration {
        time.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX)
    }

    fn standing(&self) -> Standing {
        match self.state {
            _ if self.has_gone_back => Standing::WentBack,
            State::Live => Standing::Live,
            State::Asking(_) | State::Pausing { .. } => Standing::CatchingUp,
        }
    }

    fn kept_bytes(&self) -> usize {
        if let State::Asking(asking) = &self.state { asking.kept_bytes } else { 0 }
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
    servers: BTreeMap<ServerId, Followed>,
    /// To be stored next.
    pending: Vec<Event>,
    /// Of these, what was fetched.
    fetched: Vec<Fetched>,
    /// The places before that.
    before: BTreeMap<ServerId, EventId>,
    notices: VecDeque<Notice>,
    questions: u64,
    is_full_told: bool,
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
            is_full_told: false,
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
                if !std::mem::replace(&mut self.is_full_told, true) {
                    self.notices.push_back(Notice::TooMany(server));
                }
                return;
            }
            self.begin(now, publisher, announcement.until);
        }
        let kept_bytes: usize = self.servers.values().map(Followed::kept_bytes).sum();
        let followed = self.servers.get_mut(&server).expect("it has begun by now");
        let others_bytes = kept_bytes - followed.kept_bytes();
        followed.heard = now;
        match &mut followed.state {
            State::Live => self.take(announcement),
            State::Asking(asking) => asking.keep(announcement, others_bytes),
            State::Pausing { .. } => {}
        }
    }

    /// `until` is up to where the journal goes, as far as was announced. Only with another run of its peer it can have gone back.
    fn begin(&mut self, now: Instant, publisher: Epoch, until: EventId) {
        let server = until.server;
        let covered = *self.covered.entry(server).or_insert(EventId { server, session: 0, instance: 0 });
        let (state, has_gone_back) = (State::Asking(Asking::default()), until.session < covered.session);
        let (failures, is_told, has_lost) = (0, false, false);
        let followed = Followed { publisher, heard: now, state, failures, has_gone_back, is_told, has_lost };
        self.servers.insert(server, followed);
        self.notices.push_back(Notice::Begun { publisher, after: covered });
        if has_gone_back {
            self.notices.push_back(Notice::WentBack { covered, until });
        }
    }

    /// What a server that is live has announced.
    fn take(&mut self, announcement: Announcement) {
        let server = announcement.until.server;
        if self.covered[&server] < announcement.since {
            return self.servers.get_mut(&server).expect("it is live").ask();
        }
        self.push(announcement.events);
        self.cover(announcement.until);
    }

    /// Messages of a peer were lost, or of all peers: what was announced in them is asked for, if it was.
    pub fn on_loss(&mut self, publisher: Option<Epoch>) {
        for followed in self.servers.values_mut() {
            if publisher.is_none_or(|publisher| followed.publisher == publisher) {
                followed.has_lost = true;
                if let State::Live = followed.state {
                    followed.ask();
                }
            }
        }
    }

    /// A peer has answered a question.
    pub fn on_page(&mut self, now: Instant, publisher: Epoch, number: u64, page: Page) {
        let server = page.covered.server;
        let Some(followed) = self.servers.get_mut(&server).filter(|followed| followed.publisher == publisher) else {
            return;
        };
        let State::Asking(asking) = &mut followed.state else { return };
        let Some((_, _, question)) = asking.asked.take_if(|(_, of, _)| *of == number) else { return };
        if !page.answers(&question) {
            followed.pause(now);
            return self.notices.push_back(Notice::Unanswered(server));
        }
        let heard: BTreeSet<EventId> =
            asking.kept.iter().flat_map(|announcement| &announcement.events).map(|event| event.id).collect();
        let kept = if page.more_follows { None } else { Some(std::mem::take(&mut asking.kept)) };
        let is_lost = followed.has_lost;
        followed.has_lost &= page.more_follows;
        let (covered, ids) = (self.covered[&server], page.events.iter().map(|event| event.id));
        let fetched = ids.filter(|id| covered < *id && !heard.contains(id));
        self.fetched.extend(fetched.map(|id| Fetched { id, is_lost }));
        self.push(page.events);
        self.cover(page.covered);
        let Some(kept) = kept else { return };
        self.servers.get_mut(&server).expect("it has answered").state = State::Live;
        for announcement in kept {
            if let State::Live = self.servers[&server].state {
                self.take(announcement);
            }
        }
    }

    /// Whether what was to be stored is.
    pub fn on_stored(&mut self, now: Instant, is_stored: bool) {
        if is_stored {
            return self.settle();
        }
        for (server, covered) in std::mem::take(&mut self.before) {
            self.covered.insert(server, covered);
            self.servers.get_mut(&server).into_iter().for_each(|followed| followed.pause(now));
        }
    }

    /// What is covered is stored.
    fn settle(&mut self) {
        for server in std::mem::take(&mut self.before).into_keys() {
            let Some(followed) = self.servers.get_mut(&server) else { continue };
            followed.failures = 0;
            if matches!(followed.state, State::Live) && !std::mem::replace(&mut followed.is_told, true) {
                self.notices.push_back(Notice::CaughtUp { covered: self.covered[&server] });
            }
        }
    }

    /// What to do next.
    pub fn poll(&mut self, now: Instant) -> Option<Step> {
        if !self.pending.is_empty() {
            return Some(Step::Store(std::mem::take(&mut self.pending)));
        }
        self.settle();
        let away = self.servers.iter().find(|(_, followed)| AWAY_TIME <= now.since(followed.heard));
        if let Some(server) = away.map(|(server, _)| *server) {
            self.servers.remove(&server);
            if !self.stored.contains(&server) {
                self.covered.remove(&server);
            }
            self.notices.push_back(Notice::Away(server));
        }
        if let Some(notice) = self.notices.pop_front() {
            return Some(Step::Tell(notice));
        }
        self.servers.iter_mut().find_map(|(server, followed)| {
            let answer_time = followed.longer(ANSWER_TIME);
            if matches!(followed.state, State::Pausing { until } if until <= now) {
                followed.ask();
            }
            let State::Asking(asking) = &mut followed.state else { return None };
            match &mut asking.asked {
                None => {
                    self.questions += 1;
                    let question = Question { after: self.covered[server], types: self.types.clone() };
                    asking.asked = Some((now, self.questions, question.clone()));
                    Some(Step::Ask { number: self.questions, question })
                }
                // The same question, so that the answer counts however late it comes.
                Some((at, number, question)) if answer_time <= now.since(*at) => {
                    *at = now;
                    followed.failures += 1;
                    self.notices.push_back(Notice::Unanswered(*server));
                    Some(Step::Ask { number: *number, question: question.clone() })
                }
                Some(_) => None,
            }
        })
    }

    /// Which of the events that are to be stored were fetched; to be taken before they are.
    pub fn take_fetched(&mut self) -> Vec<Fetched> {
        std::mem::take(&mut self.fetched)
    }

    /// When to poll again if nothing happens before; there may be something to do already.
    pub fn deadline(&self) -> Option<Instant> {
        let of = |followed: &Followed| {
            let then = match &followed.state {
                State::Live => Instant::MAX,
                State::Asking(Asking { asked: None, .. }) => Instant::ZERO,
                State::Asking(Asking { asked: Some((at, ..)), .. }) => *at + followed.longer(ANSWER_TIME),
                State::Pausing { until } => *until,
            };
            then.min(followed.heard + AWAY_TIME)
        };
        self.servers.values().map(of).min()
    }

    /// Those that are followed, by their numbers, with those of which events are stored and nothing is heard.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let others = self.covered.iter().filter(|(server, _)| self.is_following() && **server != self.own);
        others.map(|(server, covered)| {
            let followed = self.servers.get(server);
            Row {
                covered: *covered,
                publisher: followed.map(|followed| followed.publisher),
                standing: followed.map_or(Standing::Away, Followed::standing),
            }
        })
    }

    /// These are to be stored, as far as they are wanted and not stored yet. What stands between them and what is covered is there.
    fn push(&mut self, events: Vec<Event>) {
        for event in events {
            if self.covered[&event.id.server] < event.id {
                self.cover(event.id);
                self.stored.insert(event.id.server);
                if is_wanted(&self.types, &event) {
                    self.pending.push(event);
                }
            }
        }
    }

    fn cover(&mut self, place: EventId) {
        let covered = self.covered.get_mut(&place.server).expect("it is followed");
        self.before.entry(place.server).or_insert(*covered);
        *covered = place.max(*covered);
    }
}

#[cfg(test)]
mod tests;
