//! Relay of the replication of events between the LAN of a gateway and other sites.
//!
//! Followers in another site follow a server as if it were on their LAN. The gateways carry its announcements, the
//! requests of followers, and the pages that answer them. Journals at the source give what an outage has delayed, so a
//! gateway holds nothing that may not be lost: a follower repeats a request that gets no answer, and finds by the
//! positions in announcements that events are missing.
//!
//! ```text
//!  LAN of the server                        cluster                                LAN of the follower
//!  _EVENT.SERVER.7      -> announcement ->  _SEQCAST.LINK.EVENT.SERVER.plant1.7 -> _EVENT.SERVER.7, with the site
//!  _EVENT.QUERY.7       <- request      <-  _SEQCAST.LINK.EVENT.QUERY.plant1.7  <- _EVENT.QUERY.7
//!  inbox of the gateway -> page         ->  _SEQCAST.LINK.EVENT.PAGE.hq.7       -> inbox of the follower, with the site
//!  _EVENT.RELAY         <-                  _SEQCAST.LINK.EVENT.FOLLOW.hq       <- a follower was heard
//! ```
//!
//! Events whose type a gateway does not export or import are taken out of announcements and pages. The positions stay:
//! an announcement still says up to where everything is known, so a follower does not miss what was taken out.

mod exporting;
mod importing;
pub mod relayed_types;
mod request_queue;
#[cfg(test)]
mod tests;

use self::relayed_types::{RelayedTypes, fit};
use self::request_queue::{ExportedRequests, ImportedRequests};
use super::hub_sender::{HubSender, site_publications};
use super::shares::{SHARES, share_of};
use super::site_name::SiteName;
use super::unsent_messages::UnsentMessages;
use crate::event::model::{Event, EventId, ServerId};
use crate::event::replication::{Announcement, SERVER_TIMEOUT};
use crate::event::server_origin::{ServerOrigin, ServerSite, ServerSites, SiteVerdict};
use crate::listener::replication::{RELAY_SUBJECT, SERVER_PREFIX};
use crate::message::{Epoch, Headers, Message};
use crate::subject::Subject;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// Subjects of the cluster for the replication of events.
pub const EVENT_PREFIX: &str = "_SEQCAST.LINK.EVENT.";
/// Name of the header field that identifies a request at the cluster.
pub const REQUEST_HEADER: &str = "Seqcast-Link";
/// Interval at which an importing site says that it follows events, and an exporting gateway that it relays them.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of servers, of this site and of others together, that a gateway relays.
const SERVERS_MAX: usize = 1024;
/// The same of one other site.
const SITE_SERVERS_MAX: usize = 256;
/// Maximum number of peers of this LAN that are remembered as followers.
const FOLLOWERS_MAX: usize = 4096;
/// Maximum number of other sites that follow.
const SITES_MAX: usize = 256;
/// Bytes of headers, reply subject and numbers beside the events of a message. The signature of a realm has up to 409.
pub(super) const OVERHEAD_BYTES: usize = 1024;
/// Maximum bytes that wait for the cluster, and for the LAN. Live messages have queues of their own.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Maximum number of notices that wait. Further ones are not logged, but counted.
const NOTICES_MAX: usize = 64;

/// Shares that a gateway carries, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarriedShares(u16);

impl CarriedShares {
    /// Creates the set of the shares for which `carries` returns true.
    pub fn new(carries: impl Fn(u8) -> bool) -> CarriedShares {
        CarriedShares((0..SHARES).filter(|share| carries(*share)).fold(0, |bits, share| bits | 1 << share))
    }

    fn carries(self, subject: &Subject) -> bool {
        self.0 & (1 << share_of(subject)) != 0
    }
}

/// Counts of the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Events in announcements and pages for other sites.
    pub exported: u64,
    /// Events in announcements and pages of other sites for this LAN.
    pub imported: u64,
    /// Events that the certificate of their host, or of this one, does not permit.
    pub refused: u64,
    /// Events that are too large for a message of the cluster or of the LAN.
    pub too_large: u64,
    /// Announcements, requests and pages for which there was no room. Followers request their events again.
    pub dropped: u64,
    /// Messages of the cluster that cannot be read.
    pub invalid: u64,
}

/// A fact about relayed events that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventRelayNotice {
    /// Two sites have a server of this number.
    Conflict {
        /// The number.
        server: ServerId,
        /// Site whose server is relayed.
        relayed: ServerSite,
        /// The other site, whose server is not.
        other: ServerSite,
    },
    /// A certificate does not permit the type of this event.
    Refused(EventId),
    /// This event fits no message of the cluster or of the LAN.
    TooLarge(EventId),
}

impl fmt::Display for EventRelayNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventRelayNotice::Conflict { server, relayed, other } => write!(
                f,
                "{other} has a server {server}, too: its events do not cross, since those of {relayed} came first; give one \
                 of the two peers another server-id"
            ),
            EventRelayNotice::Refused(event) => {
                write!(f, "event {event} does not cross: the certificate of a host does not permit its type")
            }
            EventRelayNotice::TooLarge(event) => {
                write!(f, "event {event} does not cross: it is too large for a message of the cluster or of the LAN")
            }
        }
    }
}

/// A server, of this site or of another one.
#[derive(Debug)]
struct RelayedServer {
    /// Subject of its announcements.
    subject: Subject,
    origin: ServerOrigin,
    /// Time of its last announcement.
    heard: Instant,
    /// Its last announcement, without the events.
    head: Announcement,
    /// True if this gateway has relayed the position of its journal since it carries the share.
    is_sent: bool,
}

/// Relay of the replication of events.
#[derive(Debug)]
pub struct EventRelay {
    site: SiteName,
    /// Epoch of this gateway.
    gateway: Epoch,
    types: RelayedTypes,
    /// Subjects on which the certificate of this host permits it to publish.
    permitted: PermittedSubjects,
    /// Subjects on which it permits this site to publish at the cluster.
    publications: PermittedSubjects,
    lan_bytes_max: usize,
    hub_bytes_max: usize,
    /// Subject of the answers of servers, without the number at its end.
    inbox: String,
    sites: ServerSites,
    servers: BTreeMap<ServerId, RelayedServer>,
    /// Peers of this LAN that follow, with the time of their last announcement.
    followers: BTreeMap<Epoch, Instant>,
    /// Other sites that follow, with the time at which they last said so.
    importers: BTreeMap<SiteName, Instant>,
    exported: ExportedRequests,
    imported: ImportedRequests,
    /// Time of the next message to servers of this LAN that their announcements are relayed.
    relay_at: Instant,
    /// Time of the next message to other sites that this one follows.
    follow_at: Instant,
    to_hub: UnsentMessages,
    to_lan: UnsentMessages,
    /// True if the next message of the gateway is one of events, if any waits.
    is_next: bool,
    counts: EventCounts,
    notices: VecDeque<EventRelayNotice>,
}

impl EventRelay {
    /// Creates the relay of a gateway, which relays nothing before [`EventRelay::set_types`].
    pub fn new(
        site: SiteName,
        gateway: Epoch,
        permitted: PermittedSubjects,
        lan_bytes_max: usize,
        now: Instant,
    ) -> EventRelay {
        EventRelay {
            gateway,
            types: RelayedTypes::default(),
            publications: site_publications(&permitted, &site).unwrap_or_else(|| PermittedSubjects::of([])),
            site,
            permitted,
            lan_bytes_max,
            hub_bytes_max: 1 << 20,
            inbox: String::new(),
            sites: ServerSites::default(),
            servers: BTreeMap::new(),
            followers: BTreeMap::new(),
            importers: BTreeMap::new(),
            exported: ExportedRequests::default(),
            imported: ImportedRequests::default(),
            relay_at: now,
            follow_at: now,
            to_hub: UnsentMessages::default(),
            to_lan: UnsentMessages::default(),
            is_next: false,
            counts: EventCounts::default(),
            notices: VecDeque::new(),
        }
    }

    /// Sets the types of events that cross.
    pub fn set_types(&mut self, types: RelayedTypes) {
        self.types = types;
    }

    /// Sets the subject of the answers of servers, without the number at its end.
    pub fn set_inbox(&mut self, inbox: String) {
        self.inbox = inbox;
    }

    /// Sets the maximum bytes of a message of the cluster.
    pub fn set_hub_bytes_max(&mut self, bytes: usize) {
        self.hub_bytes_max = bytes;
    }

    /// Handles a message of the LAN, whose publisher may publish on the subjects `permitted`.
    pub fn on_lan_message(
        &mut self,
        now: Instant,
        shares: CarriedShares,
        message: &Message,
        from: Epoch,
        permitted: &PermittedSubjects,
    ) {
        if !message.event {
            return;
        }
        let subject = message.subject.as_str();
        if let Some(number) = subject.strip_prefix(SERVER_PREFIX) {
            self.on_lan_announcement(now, shares, number, message, from, permitted);
        } else if let Some(number) = subject.strip_prefix(&self.inbox) {
            self.on_lan_page(now, number, message, from, permitted);
        } else {
            self.on_lan_request(now, shares, message, from);
        }
        self.send_heads(now, shares);
    }

    /// Handles a message of the cluster on a subject with [`EVENT_PREFIX`].
    pub fn on_hub_message(&mut self, now: Instant, shares: CarriedShares, message: &Message, sender: &HubSender) {
        let words = message.subject.as_str().strip_prefix(EVENT_PREFIX).unwrap_or_default();
        let words: Vec<&str> = words.split('.').collect();
        let server = |word: &str| word.parse().ok().map(ServerId).filter(|server| server.to_string() == word);
        let site = words.get(1).and_then(|word| word.parse::<SiteName>().ok());
        let is_valid = match (&words[..], site) {
            (["FOLLOW", _], Some(site)) => {
                self.on_follow(now, site);
                true
            }
            ([kind, _, number], Some(site)) => server(number).is_some_and(|server| match *kind {
                "SERVER" => self.on_hub_announcement(now, shares, server, message, sender, &site),
                "QUERY" => self.on_hub_request(now, shares, &site, server, message),
                "PAGE" => self.on_hub_page(&site, server, message, sender),
                _ => false,
            }),
            _ => false,
        };
        self.counts.invalid += u64::from(!is_valid);
        self.send_heads(now, shares);
    }

    /// Does what is due. The caller calls it at least twice a second.
    pub fn on_tick(&mut self, now: Instant, shares: CarriedShares) {
        let is_alive = |heard: &Instant| now.since(*heard) < SERVER_TIMEOUT;
        self.followers.retain(|_, heard| is_alive(heard));
        self.importers.retain(|_, heard| is_alive(heard));
        self.servers.retain(|_, known| is_alive(&known.heard));
        let servers = &self.servers;
        self.exported.retain(|server| servers.get(&server).is_some_and(|known| shares.carries(&known.subject)));
        self.imported.expire(now);
        for server in self.exported.overdue(now) {
            self.send_request(now, server);
        }
        let subject: Subject = RELAY_SUBJECT.parse().expect("a constant that is a subject");
        if shares.carries(&subject) {
            self.send_relay(now, subject);
            self.send_follow(now);
        }
        self.send_heads(now, shares);
    }

    /// Returns the next message for the cluster.
    pub fn poll_hub(&mut self) -> Option<Message> {
        self.to_hub.pop()
    }

    /// Returns the next message for the LAN.
    pub fn poll_lan(&mut self) -> Option<Message> {
        self.to_lan.pop()
    }

    /// Returns whether the gateway sends a message of events before others, so that neither waits for all of the others.
    pub fn take_turn(&mut self) -> bool {
        self.is_next = !self.is_next;
        self.is_next
    }

    /// Drops what waits for the cluster, whose connection has ended.
    pub fn on_disconnect(&mut self) {
        self.to_hub.clear();
        self.exported = ExportedRequests::default();
    }

    /// Returns the counts.
    pub fn counts(&self) -> EventCounts {
        self.counts
    }

    /// Returns whether anything may cross.
    pub fn is_used(&self) -> bool {
        self.types.is_any()
    }

    /// Returns the patterns of the subjects of the cluster that the relay needs.
    pub fn hub_patterns(&self) -> Vec<String> {
        let mut patterns = Vec::new();
        if !self.types.exports.is_empty() {
            patterns.extend([format!("{EVENT_PREFIX}FOLLOW.*"), format!("{EVENT_PREFIX}QUERY.{}.*", self.site)]);
        }
        if !self.types.imports.is_empty() {
            patterns.extend([format!("{EVENT_PREFIX}SERVER.*.*"), format!("{EVENT_PREFIX}PAGE.{}.*", self.site)]);
        }
        patterns
    }

    /// Returns the number of servers of other sites that are heard.
    pub fn remote_servers(&self) -> usize {
        self.servers.values().filter(|known| known.origin.site != ServerSite::Own).count()
    }

    /// Returns a sentence about a number of a server that two sites use now.
    pub fn conflict(&self, now: Instant) -> Option<String> {
        let (server, relayed, other) = self.sites.conflicts(now).next()?;
        let (relayed, other) = (relayed.clone(), other.clone());
        Some(EventRelayNotice::Conflict { server, relayed, other }.to_string())
    }

    /// Removes and returns the next notice.
    pub fn poll_notice(&mut self) -> Option<EventRelayNotice> {
        self.notices.pop_front()
    }

    /// Returns whether the number of a server belongs to this site. Notes a conflict.
    fn is_of_its_site(&mut self, now: Instant, server: ServerId, site: &ServerSite) -> bool {
        match self.sites.on_announcement(now, server, site) {
            SiteVerdict::Accepted => true,
            SiteVerdict::Conflict(relayed) => {
                if let Some(relayed) = relayed {
                    self.notify(EventRelayNotice::Conflict { server, relayed, other: site.clone() });
                }
                false
            }
        }
    }

    /// Notes the announcement of a server. Returns false if it says nothing new and is older than the last one, or if
    /// there is no room for the server.
    fn update_server(&mut self, now: Instant, origin: &ServerOrigin, announcement: &Announcement) -> bool {
        let server = announcement.until.server;
        let head = Announcement { since: announcement.until, events: Vec::new(), ..announcement.clone() };
        if let Some(known) = self.servers.get_mut(&server) {
            known.heard = now;
            // It came on another way, or again.
            let is_older = known.origin == *origin && announcement.until < known.head.until;
            if !is_older {
                (known.origin, known.head) = (origin.clone(), head);
            }
            return !is_older;
        }
        let is_of_site = |known: &&RelayedServer| known.origin.site == origin.site;
        let is_remote = matches!(origin.site, ServerSite::Other(_));
        let is_excess = is_remote && SITE_SERVERS_MAX <= self.servers.values().filter(is_of_site).count();
        if is_excess || SERVERS_MAX <= self.servers.len() {
            self.counts.dropped += 1;
            return false;
        }
        let subject = format!("{SERVER_PREFIX}{server}").parse().expect("words and a number");
        let known = RelayedServer { subject, origin: origin.clone(), heard: now, head, is_sent: false };
        self.servers.insert(server, known);
        true
    }

    /// Relays the positions of the servers whose shares this gateway has taken over, and those that are needed again.
    fn send_heads(&mut self, now: Instant, shares: CarriedShares) {
        let mut heads = Vec::new();
        for known in self.servers.values_mut() {
            let is_wanted = match known.origin.site {
                ServerSite::Own => !self.importers.is_empty(),
                // An older one would make a silent server seem alive.
                ServerSite::Other(_) => now.since(known.heard) < FOLLOW_INTERVAL + Duration::from_secs(5),
            };
            let carries = shares.carries(&known.subject);
            if carries && is_wanted && !known.is_sent {
                heads.push((known.origin.clone(), known.head.clone()));
            }
            known.is_sent = carries && (known.is_sent || is_wanted);
        }
        for (origin, head) in heads {
            match origin.site {
                ServerSite::Own => self.export_announcement(origin.peer, &head),
                ServerSite::Other(_) => self.import_announcement(&origin, &head),
            }
        }
    }

    /// Takes out the events that a certificate does not permit.
    fn remove_refused(&mut self, events: &mut Vec<Event>, permits: impl Fn(&Subject) -> bool) {
        let refused = events.extract_if(.., |event| !permits(event.event_type.subject()));
        for id in refused.map(|event| event.id).collect::<Vec<EventId>>() {
            self.counts.refused += 1;
            if self.counts.refused.is_power_of_two() {
                self.notify(EventRelayNotice::Refused(id));
            }
        }
    }

    /// Cuts a list of events to what fits a message of `bytes_max` bytes. Returns the last event that is left if later ones
    /// were cut off.
    fn fit(&mut self, events: &mut Vec<Event>, bytes_max: usize) -> Option<EventId> {
        let fitting = fit(events, bytes_max.saturating_sub(OVERHEAD_BYTES));
        for id in fitting.too_large {
            self.counts.too_large += 1;
            if self.counts.too_large.is_power_of_two() {
                self.notify(EventRelayNotice::TooLarge(id));
            }
        }
        fitting.cut_after
    }

    fn notify(&mut self, notice: EventRelayNotice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back(notice);
        }
    }

    fn send_to_hub(&mut self, message: Message) -> bool {
        send(&mut self.to_hub, &mut self.counts, message)
    }

    /// Sends a message to the LAN with the event mark, which programs cannot set.
    fn send_to_lan(&mut self, message: Message) -> bool {
        send(&mut self.to_lan, &mut self.counts, Message { event: true, ..message })
    }
}

/// Appends a message if there is room. Returns whether there is.
fn send(queue: &mut UnsentMessages, counts: &mut EventCounts, message: Message) -> bool {
    let has_room = queue.bytes() < WAITING_BYTES_MAX;
    match has_room {
        true => queue.push(message),
        false => counts.dropped += 1,
    }
    has_room
}

/// Returns a message with headers.
fn message_with(subject: &str, headers: Headers, payload: Bytes) -> Message {
    let subject = subject.parse().expect("words, names of sites and numbers");
    Message { headers, ..Message::new(subject, payload) }
}
