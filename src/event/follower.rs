//! Replication of other servers' events to this peer. The bus delivers events in announcements. The follower fetches
//! the events that the bus did not deliver from the journals of their servers.
//!
//! A follower that has just started or has lost messages requests the events after its last stored one. Meanwhile it
//! buffers announcements. So this peer stores the events of each server in the order of their ids, without a gap, and
//! each once. The messages on the subjects of the types do not suffice, because the bus does not order messages across
//! several subjects.

mod followed_server;

pub use followed_server::{ReplicationState, ServerStatus};

use super::model::{Event, EventId, ServerId};
use super::replication::{Announcement, ReplicationPage, ReplicationRequest, SERVER_TIMEOUT, is_wanted};
use super::server_origin::{ServerOrigin, ServerSite, ServerSites, SiteVerdict};
use crate::message::Epoch;
use crate::subject::event_type::TypePattern;
use crate::time::Instant;
use followed_server::{ANSWER_TIMEOUT, FollowPhase, FollowedServer, PendingFetch, SentRequest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// Maximum number of servers that are followed.
const SERVERS_MAX: usize = 1024;

/// An action that a follower requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowerAction {
    /// Events to store. The caller reports the result to [`Follower::on_stored`] before it calls any other method.
    Store(Vec<Event>),
    /// A request to send to a server. The caller passes the answer to [`Follower::on_page`].
    Request {
        /// Number that identifies the request.
        number: u64,
        /// The request.
        request: ReplicationRequest,
    },
    /// A notice to report.
    Report(FollowerNotice),
}

/// A change in the state of a followed server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowerNotice {
    /// The follower starts to follow a server.
    Start {
        /// Epoch of its peer, or of the gateway that relays its announcements.
        publisher: Epoch,
        /// Its site.
        site: ServerSite,
        /// Position after which the follower requests events.
        after: EventId,
    },
    /// All events of a server are stored up to this position, and new events are stored as they arrive.
    CatchUp {
        /// Position in its journal.
        covered: EventId,
    },
    /// The server does not answer a request, or its answer is invalid. The follower repeats the request.
    RequestFailure(ServerId),
    /// The journal of a server is rolled back: the server announces a session before one that is stored here. Until it
    /// has passed that session, it assigns ids a second time, and these events are not stored.
    Rollback {
        /// Last position stored here.
        covered: EventId,
        /// Position that the server announces.
        until: EventId,
    },
    /// Two sites have a server of this number. Events of the other site are not stored.
    SiteConflict {
        /// The number.
        server: ServerId,
        /// Site to which the number belongs here.
        followed: ServerSite,
        /// The other site.
        other: ServerSite,
    },
    /// The server no longer announces itself.
    AnnouncementTimeout(ServerId),
    /// The server is not followed, because the maximum number of servers is reached.
    ServerLimit(ServerId),
}

impl FollowerNotice {
    /// Returns whether the notice needs an operator's attention.
    pub fn is_warning(&self) -> bool {
        matches!(
            self,
            FollowerNotice::RequestFailure(_)
                | FollowerNotice::Rollback { .. }
                | FollowerNotice::SiteConflict { .. }
                | FollowerNotice::ServerLimit(_)
        )
    }
}

impl fmt::Display for FollowerNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FollowerNotice::Start { publisher, site: ServerSite::Own, after } => write!(
                f,
                "the events of server {} at the peer in epoch {publisher} are followed from session {} on",
                after.server, after.session
            ),
            FollowerNotice::Start { publisher, site, after } => write!(
                f,
                "the events of server {} of {site} are followed from session {} on, by the gateway in epoch {publisher}",
                after.server, after.session
            ),
            FollowerNotice::CatchUp { covered } => {
                write!(f, "the events of server {} are stored up to session {}", covered.server, covered.session)
            }
            FollowerNotice::RequestFailure(server) => {
                write!(f, "server {server} does not answer a request for its events; the request is repeated")
            }
            FollowerNotice::Rollback { covered, until } => write!(
                f,
                "the journal of server {} has gone back to session {}, while session {} is known here: it assigns ids a second \
                 time, and these events are not stored; give that peer another server-id",
                covered.server, until.session, covered.session
            ),
            FollowerNotice::SiteConflict { server, followed, other } => write!(
                f,
                "{other} has a server {server}, too; its events are not stored, since those of {followed} were followed first: \
                 give one of the two peers another server-id, and start this peer again if it was the one of {followed}"
            ),
            FollowerNotice::AnnouncementTimeout(server) => write!(f, "server {server} no longer announces itself"),
            FollowerNotice::ServerLimit(server) => {
                write!(
                    f,
                    "the events of server {server} are not followed: {SERVERS_MAX} other servers are followed already"
                )
            }
        }
    }
}

/// An event that the follower has fetched from the journal of its server, because no announcement contained it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedEvent {
    /// Id of the event.
    pub id: EventId,
    /// True if the bus lost messages of the server. Otherwise the event was registered before this peer followed the
    /// server, or was not announced.
    pub is_lost: bool,
}

/// Follows the servers of other peers, and decides which events to store.
#[derive(Debug)]
pub struct Follower {
    /// Id of the server of this peer, which is not followed.
    local: ServerId,
    types: Vec<TypePattern>,
    /// Position in each server's journal up to which all events are stored, or pending.
    covered: BTreeMap<ServerId, EventId>,
    /// Servers of which at least one event is stored. Their positions are remembered while they are unreachable.
    stored: BTreeSet<ServerId>,
    servers: BTreeMap<ServerId, FollowedServer>,
    sites: ServerSites,
    /// Events to store next.
    pending: Vec<Event>,
    /// Ids of the fetched events among the pending ones.
    fetched: Vec<FetchedEvent>,
    /// Covered positions to restore if the pending events cannot be stored.
    rollback_positions: BTreeMap<ServerId, EventId>,
    notices: VecDeque<FollowerNotice>,
    /// Number of requests so far.
    requests: u64,
    /// True once [`FollowerNotice::ServerLimit`] was reported.
    is_full_reported: bool,
}

impl Follower {
    /// Creates a follower of all servers but `local`, for events of these types. `stored` is the last stored event of
    /// each server.
    pub fn new(local: ServerId, types: Vec<TypePattern>, stored: impl IntoIterator<Item = EventId>) -> Follower {
        let covered: BTreeMap<ServerId, EventId> = stored.into_iter().map(|id| (id.server, id)).collect();
        Follower {
            local,
            types,
            stored: covered.keys().copied().collect(),
            covered,
            servers: BTreeMap::new(),
            sites: ServerSites::default(),
            pending: Vec::new(),
            fetched: Vec::new(),
            rollback_positions: BTreeMap::new(),
            notices: VecDeque::new(),
            requests: 0,
            is_full_reported: false,
        }
    }

    /// Returns whether events of any type are followed.
    pub fn is_following(&self) -> bool {
        !self.types.is_empty()
    }

    /// Handles the announcement of a server, which its peer has published, or a gateway if the server is in another site.
    pub fn on_announcement(
        &mut self,
        now: Instant,
        publisher: Epoch,
        origin: &ServerOrigin,
        announcement: Announcement,
    ) {
        let server = announcement.until.server;
        let is_followed = self.is_following() && server != self.local && announcement.is_held;
        if !is_followed || !announcement.is_sound() || !self.is_of_its_site(now, server, &origin.site) {
            return;
        }
        let is_of_run = |followed: &FollowedServer| followed.publisher == publisher && followed.origin == *origin;
        if !self.servers.get(&server).is_some_and(is_of_run) {
            if SERVERS_MAX <= self.servers.len() && !self.servers.contains_key(&server) {
                if !std::mem::replace(&mut self.is_full_reported, true) {
                    self.notices.push_back(FollowerNotice::ServerLimit(server));
                }
                return;
            }
            self.start(now, publisher, origin.clone(), announcement.until);
        }
        let buffered_bytes: usize = self.servers.values().map(FollowedServer::buffered_bytes).sum();
        let followed = self.servers.get_mut(&server).expect("the server is followed");
        let others_bytes = buffered_bytes - followed.buffered_bytes();
        followed.last_announcement = now;
        match &mut followed.state {
            FollowPhase::Live => self.apply(announcement),
            FollowPhase::Fetching(fetch) => fetch.buffer(announcement, others_bytes),
            FollowPhase::Backoff { .. } => {}
        }
    }

    /// Returns whether the number of a server belongs to this site.
    fn is_of_its_site(&mut self, now: Instant, server: ServerId, site: &ServerSite) -> bool {
        match self.sites.on_announcement(now, server, site) {
            SiteVerdict::Accepted => true,
            SiteVerdict::Conflict(followed) => {
                let notice = followed.map(|followed| {
                    let other = site.clone();
                    FollowerNotice::SiteConflict { server, followed, other }
                });
                self.notices.extend(notice);
                false
            }
        }
    }

    /// Starts to follow a server, or continues with another publisher of its announcements. `until` is the end of its
    /// journal as announced. A journal can be rolled back only with a new epoch of its peer.
    fn start(&mut self, now: Instant, publisher: Epoch, origin: ServerOrigin, until: EventId) {
        let server = until.server;
        let covered = *self.covered.entry(server).or_insert(EventId { server, session: 0, instance: 0 });
        let (state, is_rolled_back) = (FollowPhase::Fetching(PendingFetch::default()), until.session < covered.session);
        let (failures, is_reported, has_lost) = (0, false, false);
        let site = origin.site.clone();
        let followed = FollowedServer {
            publisher,
            origin,
            last_announcement: now,
            state,
            failures,
            is_rolled_back,
            is_reported,
            has_lost,
        };
        self.servers.insert(server, followed);
        self.notices.push_back(FollowerNotice::Start { publisher, site, after: covered });
        if is_rolled_back {
            self.notices.push_back(FollowerNotice::Rollback { covered, until });
        }
    }

    /// Applies the announcement of a live server.
    fn apply(&mut self, announcement: Announcement) {
        let server = announcement.until.server;
        if self.covered[&server] < announcement.since {
            return self.servers.get_mut(&server).expect("the server is live").fetch();
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
                    followed.fetch();
                }
            }
        }
    }

    /// Handles the answer to a request, which a peer has published, or a gateway if the server is in another site.
    pub fn on_page(
        &mut self,
        now: Instant,
        publisher: Epoch,
        origin: &ServerOrigin,
        number: u64,
        page: ReplicationPage,
    ) {
        let server = page.covered.server;
        let is_of_run = |followed: &&mut FollowedServer| followed.publisher == publisher && followed.origin == *origin;
        let Some(followed) = self.servers.get_mut(&server).filter(is_of_run) else { return };
        let FollowPhase::Fetching(fetch) = &mut followed.state else { return };
        let Some(sent) = fetch.sent.take_if(|sent| sent.number == number) else { return };
        if !page.answers(&sent.request) {
            followed.back_off(now);
            return self.notices.push_back(FollowerNotice::RequestFailure(server));
        }
        let announced: BTreeSet<EventId> =
            fetch.buffered.iter().flat_map(|announcement| &announcement.events).map(|event| event.id).collect();
        let buffered = if page.more_follows { None } else { Some(std::mem::take(&mut fetch.buffered)) };
        let is_lost = followed.has_lost;
        followed.has_lost &= page.more_follows;
        let (covered, ids) = (self.covered[&server], page.events.iter().map(|event| event.id));
        let fetched = ids.filter(|id| covered < *id && !announced.contains(id));
        self.fetched.extend(fetched.map(|id| FetchedEvent { id, is_lost }));
        self.push(page.events);
        self.advance_covered(page.covered);
        let Some(buffered) = buffered else { return };
        self.servers.get_mut(&server).expect("the server has answered").state = FollowPhase::Live;
        for announcement in buffered {
            if let FollowPhase::Live = self.servers[&server].state {
                self.apply(announcement);
            }
        }
    }

    /// Records whether the events of the last [`FollowerAction::Store`] were stored.
    pub fn on_stored(&mut self, now: Instant, is_stored: bool) {
        if is_stored {
            return self.confirm_stored();
        }
        for (server, covered) in std::mem::take(&mut self.rollback_positions) {
            self.covered.insert(server, covered);
            self.servers.get_mut(&server).into_iter().for_each(|followed| followed.back_off(now));
        }
    }

    /// Confirms that all covered events are stored.
    fn confirm_stored(&mut self) {
        for server in std::mem::take(&mut self.rollback_positions).into_keys() {
            let Some(followed) = self.servers.get_mut(&server) else { continue };
            followed.failures = 0;
            if matches!(followed.state, FollowPhase::Live) && !std::mem::replace(&mut followed.is_reported, true) {
                self.notices.push_back(FollowerNotice::CatchUp { covered: self.covered[&server] });
            }
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Instant) -> Option<FollowerAction> {
        if !self.pending.is_empty() {
            return Some(FollowerAction::Store(std::mem::take(&mut self.pending)));
        }
        self.confirm_stored();
        let unreachable =
            self.servers.iter().find(|(_, followed)| SERVER_TIMEOUT <= now.since(followed.last_announcement));
        if let Some(server) = unreachable.map(|(server, _)| *server) {
            self.servers.remove(&server);
            if !self.stored.contains(&server) {
                self.covered.remove(&server);
            }
            self.notices.push_back(FollowerNotice::AnnouncementTimeout(server));
        }
        if let Some(notice) = self.notices.pop_front() {
            return Some(FollowerAction::Report(notice));
        }
        self.servers.iter_mut().find_map(|(server, followed)| {
            let answer_time = followed.backoff(ANSWER_TIMEOUT);
            if matches!(followed.state, FollowPhase::Backoff { until } if until <= now) {
                followed.fetch();
            }
            let FollowPhase::Fetching(fetch) = &mut followed.state else { return None };
            match &mut fetch.sent {
                None => {
                    self.requests += 1;
                    let request = ReplicationRequest { after: self.covered[server], types: self.types.clone() };
                    fetch.sent = Some(SentRequest { at: now, number: self.requests, request: request.clone() });
                    Some(FollowerAction::Request { number: self.requests, request })
                }
                // The request keeps its number, so that a late answer to it still counts.
                Some(SentRequest { at, number, request }) if answer_time <= now.since(*at) => {
                    *at = now;
                    followed.failures += 1;
                    self.notices.push_back(FollowerNotice::RequestFailure(*server));
                    Some(FollowerAction::Request { number: *number, request: request.clone() })
                }
                Some(_) => None,
            }
        })
    }

    /// Removes and returns the ids of the fetched events among those to store. The caller does so before it stores
    /// them.
    pub fn take_fetched(&mut self) -> Vec<FetchedEvent> {
        std::mem::take(&mut self.fetched)
    }

    /// Returns the time of the next poll if nothing happens before. It may already have passed.
    pub fn deadline(&self) -> Option<Instant> {
        let deadline_of = |followed: &FollowedServer| {
            let next = match &followed.state {
                FollowPhase::Live => Instant::MAX,
                FollowPhase::Fetching(PendingFetch { sent: None, .. }) => Instant::ZERO,
                FollowPhase::Fetching(PendingFetch { sent: Some(SentRequest { at, .. }), .. }) => {
                    *at + followed.backoff(ANSWER_TIMEOUT)
                }
                FollowPhase::Backoff { until } => *until,
            };
            next.min(followed.last_announcement + SERVER_TIMEOUT)
        };
        self.servers.values().map(deadline_of).min()
    }

    /// Returns the status of each followed server, and of each unreachable one of which events are stored, by id.
    pub fn rows(&self) -> impl Iterator<Item = ServerStatus> {
        let others = self.covered.iter().filter(|(server, _)| self.is_following() && **server != self.local);
        others.map(|(server, covered)| {
            let followed = self.servers.get(server);
            ServerStatus {
                covered: *covered,
                publisher: followed.map(|followed| followed.publisher),
                site: followed.map(|followed| followed.origin.site.clone()),
                state: followed.map_or(ReplicationState::Unreachable, FollowedServer::replication_state),
            }
        })
    }

    /// Queues the wanted events after the covered position for storing. The caller has checked that no event is missing
    /// between that position and the first of them.
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

    fn advance_covered(&mut self, position: EventId) {
        let covered = self.covered.get_mut(&position.server).expect("the server is followed");
        self.rollback_positions.entry(position.server).or_insert(*covered);
        *covered = position.max(*covered);
    }
}

#[cfg(test)]
mod tests;
