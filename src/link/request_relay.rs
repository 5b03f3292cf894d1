//! Requests between sites. They are no part of the accounts of live messages: each has a reply or a timeout.
//!
//! ```text
//!  program of the LAN --request--> gateway: the own site has a subscription -> its programs answer
//!                                           another site may have one       -> CALL.<site>, then the next site
//!                                           clients of the cluster answer   -> the subject itself
//!                                           nobody                          -> 503
//!  CALL.<own site> ------------------> gateway: publishes it on the LAN with a reply subject of its own,
//!                                           or replies 503
//!  client of the cluster -request-> gateway: the same, if this site is the one that answers
//! ```
//!
//! Replies go back the same way. Each gateway that passes a request on gives it a number, under which the replies come.

use super::envelope::ORIGIN_HEADER;
use super::gateway_settings::GatewaySettings;
use super::hub_sender::HubSender;
use super::interest_summary::{InterestSummary, LanInterest, LanReceivers, SummaryAnnouncement};
use super::local_subjects::stays_local;
use super::pending_request::{PendingRequests, RelayStage, RequestOrigin};
use super::shares::hash;
use super::site_interests::{SUMMARY_INTERVAL, SiteInterests};
use super::site_name::SiteName;
use super::system_messages::{
    CALL_PREFIX, INTEREST_PREFIX, NO_RESPONDERS, REPLY_PREFIX, STATUS_HEADER, SUBJECT_HEADER, system_subject,
};
use super::unsent_messages::UnsentMessages;
use crate::message::{Epoch, Headers, Message};
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of other sites that a request is sent to, one after the other.
const SITES_MAX: usize = 8;
/// Maximum number of times that a request is sent: to these sites, and to the clients of the cluster.
const ATTEMPTS_MAX: u64 = SITES_MAX as u64 + 1;
/// Minimum time between two announcements of the interest.
const SUMMARY_PAUSE: Duration = Duration::from_millis(100);
/// Time from a connection until the interest of the other sites is known: they announce it when this gateway asks.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// Maximum number of requests whose receivers on the LAN are to be counted. Further ones are dropped.
const LOOKUPS_MAX: usize = 16_384;

/// Counts of the requests of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// Requests that were sent to the cluster, once for each other site.
    pub sent: u64,
    /// Requests of other sites and of clients of the cluster that were published on the LAN.
    pub delivered: u64,
    /// Replies passed on, in both directions.
    pub replies: u64,
    /// Requests of the LAN that were answered with 503.
    pub no_responders: u64,
    /// Requests and replies that were dropped: there was no room, the subject of the replies is not allowed, or the
    /// cluster has repeated a request of another site.
    pub dropped: u64,
}

/// The requests of a gateway, and what it knows of the interest of the sites.
#[derive(Debug)]
pub(super) struct RequestRelay {
    settings: GatewaySettings,
    /// Prefix of the subjects of the cluster on which replies come.
    reply_prefix: String,
    epoch: Epoch,
    sites: SiteInterests,
    own: InterestSummary,
    /// Time of the next announcement, and of the last one.
    announce_at: Instant,
    announced_at: Option<Instant>,
    /// True if the next announcement asks for those of other gateways.
    asks: bool,
    /// Time from which the interest of the other sites is known, while there is a connection.
    settled_at: Option<Instant>,
    pending: PendingRequests,
    /// Requests of the LAN that came before that time.
    postponed: VecDeque<u64>,
    lookups: VecDeque<u64>,
    to_hub: UnsentMessages,
    to_lan: UnsentMessages,
    pub(super) counts: RelayCounts,
}

impl RequestRelay {
    /// Creates the relay of a gateway that is not connected.
    pub(super) fn new(settings: GatewaySettings, epoch: Epoch, now: Instant) -> RequestRelay {
        RequestRelay {
            reply_prefix: format!("{REPLY_PREFIX}{}.{epoch}.", settings.site),
            settings,
            epoch,
            sites: SiteInterests::default(),
            own: InterestSummary::default(),
            announce_at: now,
            announced_at: None,
            asks: true,
            settled_at: None,
            pending: PendingRequests::default(),
            postponed: VecDeque::new(),
            lookups: VecDeque::new(),
            to_hub: UnsentMessages::default(),
            to_lan: UnsentMessages::default(),
            counts: RelayCounts::default(),
        }
    }

    /// Handles the begin or the end of the connection to the cluster.
    pub(super) fn on_link(&mut self, now: Instant, is_linked: bool) {
        if is_linked && self.settled_at.is_none() {
            self.settled_at = Some(now + SETTLE_TIME);
            (self.announce_at, self.asks) = (now, true);
        }
        if !is_linked {
            self.settled_at = None;
            // Their senders have timeouts, and may have sent them again when the cluster returns.
            self.to_hub.clear();
            self.lookups.append(&mut self.postponed);
        }
    }

    /// Handles a request.
    pub(super) fn on_request(&mut self, now: Instant, origin: RequestOrigin, mut message: Message) {
        let Some(reply) = message.reply.take() else { return };
        let has_room = self.lookups.len() + self.postponed.len() < LOOKUPS_MAX;
        if !has_room || !self.may_reply_to(origin, &reply) || !self.is_accepted(origin, &message) {
            return self.counts.dropped += 1;
        }
        let Some(number) = self.pending.add(now, origin, message, reply) else { return self.counts.dropped += 1 };
        let is_settled = self.settled_at.is_none_or(|settled| settled <= now);
        match origin == RequestOrigin::Lan && !is_settled {
            true => self.postponed.push_back(number),
            false => self.lookups.push_back(number),
        }
    }

    /// Returns whether a request waits for the number of its receivers.
    pub(super) fn has_lookup(&self) -> bool {
        !self.lookups.is_empty()
    }

    /// Returns the next request whose receivers on the LAN are to be counted: its number and its subject.
    pub(super) fn poll_lookup(&mut self) -> Option<(u64, Subject)> {
        loop {
            let number = self.lookups.pop_front()?;
            if let Some(request) = self.pending.find(number, RelayStage::Lookup) {
                return Some((number, request.subject.clone()));
            }
        }
    }

    /// Handles the count of a request's receivers on the LAN, without gateways.
    pub(super) fn on_receivers(&mut self, number: u64, receivers: LanReceivers) {
        let settings = &self.settings;
        let Some(request) = self.pending.find(number, RelayStage::Lookup) else { return };
        request.is_certain = receivers.is_certain;
        let subject = &request.subject;
        match request.origin {
            RequestOrigin::Lan if receivers.is_any() => drop(self.pending.remove(number)),
            RequestOrigin::Lan => {
                if self.settled_at.is_some() {
                    if settings.exports.matches(subject) {
                        request.sites = choose_sites(self.sites.sites(subject), number);
                    }
                    request.asks_clients = settings.services.matches(subject);
                }
                self.send_on(number);
            }
            // Without certainty somebody may be there.
            RequestOrigin::Site if receivers.is_any() || !receivers.is_certain => self.deliver(number),
            RequestOrigin::Site => {
                let site = self.settings.site.as_str();
                let headers = Headers::from_pairs([(ORIGIN_HEADER, site), (STATUS_HEADER, NO_RESPONDERS)]);
                if let (Some(request), Ok(headers)) = (self.pending.remove(number), headers) {
                    self.send_to_hub(Message { headers, ..Message::new(request.reply, "") });
                }
            }
            // The cluster delivers the message to each importing site. All plain subscriptions get it.
            RequestOrigin::Client if receivers.groups == 0 && 0 < receivers.plain => self.deliver(number),
            RequestOrigin::Client => {
                let others = self.sites.group_sites(subject);
                let own = receivers.groups != 0 || self.own.matches_group(subject);
                if !own || !is_first_site(&settings.site, &others, &request.reply) {
                    drop(self.pending.remove(number));
                } else if receivers.groups != 0 {
                    self.deliver(number);
                } else {
                    request.sites = choose_sites(others, number);
                    self.send_on(number);
                }
            }
        }
    }

    /// Handles a message of the cluster for the relay. `is_unserved` says that the cluster itself reports that nobody
    /// has received a request. Returns false if the message cannot be read.
    pub(super) fn on_hub_message(
        &mut self,
        now: Instant,
        message: Message,
        is_unserved: bool,
        sender: &HubSender,
    ) -> bool {
        let subject = message.subject.as_str();
        if subject.starts_with(INTEREST_PREFIX) {
            return self.on_summary(now, &message, sender);
        }
        if subject.strip_prefix(CALL_PREFIX) == Some(self.settings.site.as_str()) {
            return self.on_call(now, &message, sender).is_some();
        }
        let Some(reply_number) =
            subject.strip_prefix(self.reply_prefix.as_str()).and_then(|digits| digits.parse::<u64>().ok())
        else {
            return false;
        };
        let (number, attempt) = (reply_number / ATTEMPTS_MAX, reply_number % ATTEMPTS_MAX);
        let Some(request) = self.pending.find(number, RelayStage::Hub) else {
            // It may have come too late.
            return true;
        };
        let is_asked = match (&request.asked, sender) {
            (Some(site), _) => sender.may_act_for(site),
            (None, HubSender::AnyClient | HubSender::Client) => true,
            (None, HubSender::Gateway { .. }) => false,
        };
        if !is_asked && !is_unserved {
            return false;
        }
        if is_unserved || message.headers.field(STATUS_HEADER) == Some(NO_RESPONDERS) {
            // The cluster may repeat the status of a site that was asked before.
            if !request.has_reply && attempt + 1 == u64::from(request.attempts) {
                self.send_on(number);
            }
            return true;
        }
        let (origin, reply) = (request.origin, request.reply.clone());
        self.pending.on_reply(now, number);
        let Some(reply) = relayed(reply, &message, None, None) else { return false };
        match origin {
            RequestOrigin::Lan => self.send_to_lan(reply),
            RequestOrigin::Site | RequestOrigin::Client => self.send_to_hub(reply),
        }
        self.counts.replies += 1;
        true
    }

    /// Handles a message of the LAN that may be a reply to a request of another site. Returns whether it is one.
    pub(super) fn on_lan_reply(&mut self, now: Instant, message: &Message) -> bool {
        let Some(number) = message.subject.as_str().strip_prefix(self.settings.inbox.as_str()) else { return false };
        if let Ok(number) = number.parse()
            && let Some(request) = self.pending.find(number, RelayStage::Lan)
        {
            let to = request.reply.clone();
            self.pending.on_reply(now, number);
            if let Some(reply) = relayed(to, message, Some(&self.settings.site), None) {
                self.counts.replies += 1;
                self.send_to_hub(reply);
            }
        }
        true
    }

    /// Handles the subscriptions on the LAN, without those of gateways.
    pub(super) fn on_lan_interest(&mut self, now: Instant, interest: &LanInterest) {
        let summary = InterestSummary::new(interest, &self.settings.imports);
        if summary != self.own {
            self.own = summary;
            self.announce_soon(now);
        }
    }

    /// Does what is due.
    pub(super) fn on_tick(&mut self, now: Instant) {
        self.pending.expire(now);
        self.sites.expire(now);
        if self.settled_at.is_some_and(|settled| settled <= now) {
            self.lookups.append(&mut self.postponed);
        }
        if self.settled_at.is_some() && self.announce_at <= now {
            self.announce(now);
        }
    }

    /// Returns the time of the next [`RequestRelay::on_tick`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let announce_at = self.settled_at.map(|_| self.announce_at);
        let settled_at = self.settled_at.filter(|_| !self.postponed.is_empty());
        self.pending.deadline().into_iter().chain(announce_at).chain(settled_at).min()
    }

    /// Returns the next message for the cluster.
    pub(super) fn poll_hub(&mut self) -> Option<Message> {
        self.to_hub.pop()
    }

    /// Returns the next message for the LAN.
    pub(super) fn poll_lan(&mut self) -> Option<Message> {
        self.to_lan.pop()
    }

    fn on_summary(&mut self, now: Instant, message: &Message, sender: &HubSender) -> bool {
        let announcement = SummaryAnnouncement::from_json(&message.payload);
        let Some(announcement) = announcement.filter(|announcement| sender.may_act_for(&announcement.site)) else {
            return false;
        };
        if announcement.site != self.settings.site {
            if announcement.asks {
                self.announce_soon(now);
            }
            return self.sites.on_announcement(now, announcement);
        }
        true
    }

    /// Handles a request of another site to the programs of this one. Returns `None` if it is none.
    fn on_call(&mut self, now: Instant, message: &Message, sender: &HubSender) -> Option<()> {
        let subject = message.headers.field(SUBJECT_HEADER)?;
        let site = named_site(message).filter(|site| sender.may_act_for(site))?;
        let request = relayed(subject.parse().ok()?, message, Some(&site), None)?;
        // A reply to another site would carry the signature of this one, although no gateway there has asked this site.
        let reply = message.reply.clone()?;
        reply.as_str().strip_prefix(REPLY_PREFIX)?.strip_prefix(site.as_str())?.strip_prefix('.')?;
        self.on_request(now, RequestOrigin::Site, Message { reply: Some(reply), ..request });
        Some(())
    }

    /// Sends a request to the next site that may have a receiver, then to the clients of the cluster. If none is left,
    /// its sender gets the status 503, or nothing if the sender is a client of the cluster: other clients may answer it.
    fn send_on(&mut self, number: u64) {
        let Some(request) = self.pending.begin_hub(number) else { return };
        let own = Some(&self.settings.site);
        request.asked = request.sites.pop();
        let target = match request.asked.clone() {
            Some(site) => Some((system_subject(CALL_PREFIX, &site), Some(request.subject.clone()))),
            None => std::mem::take(&mut request.asks_clients).then(|| (request.subject.clone(), None)),
        };
        let sent = target.zip(request.message.as_ref());
        if let Some(((to, subject), message)) = sent {
            let reply_number = number * ATTEMPTS_MAX + u64::from(request.attempts);
            let reply = format!("{}{reply_number}", self.reply_prefix).parse().ok();
            let Some(message) = relayed(to, message, own, subject.as_ref()) else {
                drop(self.pending.remove(number));
                return self.counts.dropped += 1;
            };
            request.attempts += 1;
            self.counts.sent += 1;
            return self.send_to_hub(Message { reply, ..message });
        }
        if let Some(request) = self.pending.remove(number)
            && request.origin == RequestOrigin::Lan
            && request.is_certain
        {
            self.counts.no_responders += 1;
            let headers = Headers::no_responders();
            self.send_to_lan(Message { headers, ..Message::new(request.reply, "") });
        }
    }

    /// Publishes a request of another site or of a client of the cluster on the LAN.
    fn deliver(&mut self, number: u64) {
        let Some(request) = self.pending.find(number, RelayStage::Lookup) else { return };
        request.stage = RelayStage::Lan;
        let reply = format!("{}{number}", self.settings.inbox).parse().ok();
        let message = self.pending.take_message(number).and_then(|message| {
            let subject = message.subject.clone();
            relayed(subject, &message, None, None)
        });
        if let Some(message) = message {
            self.counts.delivered += 1;
            self.send_to_lan(Message { reply, ..message });
        }
    }

    /// Returns whether a gateway may publish replies on a subject that the sender of a request has chosen. It must not
    /// speak for gateways and peers.
    fn may_reply_to(&self, origin: RequestOrigin, reply: &Subject) -> bool {
        let text = reply.as_str();
        match origin {
            RequestOrigin::Site => text.starts_with(REPLY_PREFIX),
            RequestOrigin::Client => text.starts_with("_INBOX.") || !stays_local(reply.as_bytes()),
            RequestOrigin::Lan if text.starts_with("_INBOX.") => true,
            RequestOrigin::Lan => !stays_local(reply.as_bytes()) && self.settings.permitted.permits(reply),
        }
    }

    /// Returns whether the LAN takes a request of the cluster.
    fn is_accepted(&self, origin: RequestOrigin, message: &Message) -> bool {
        let GatewaySettings { imports, permitted, message_bytes_max, .. } = &self.settings;
        let (subject, bytes) = (&message.subject, message.body_bytes());
        let is_local = stays_local(subject.as_bytes());
        let is_imported = || imports.matches(subject) && permitted.permits(subject) && bytes <= *message_bytes_max;
        !is_local && (origin == RequestOrigin::Lan || is_imported())
    }

    fn announce_soon(&mut self, now: Instant) {
        let earliest = self.announced_at.map_or(now, |at| now.max(at + SUMMARY_PAUSE));
        self.announce_at = self.announce_at.min(earliest);
    }

    fn announce(&mut self, now: Instant) {
        (self.announced_at, self.announce_at) = (Some(now), now + SUMMARY_INTERVAL);
        let site = self.settings.site.clone();
        let subject = system_subject(INTEREST_PREFIX, &site);
        let asks = std::mem::take(&mut self.asks);
        let announcement = SummaryAnnouncement { site, gateway: self.epoch, asks, summary: self.own.clone() };
        self.send_to_hub(Message::new(subject, announcement.to_json()));
    }

    fn send_to_hub(&mut self, message: Message) {
        match self.to_hub.has_room() {
            true => self.to_hub.push(message),
            false => self.counts.dropped += 1,
        }
    }

    fn send_to_lan(&mut self, message: Message) {
        match self.to_lan.has_room() && message.body_bytes() <= self.settings.message_bytes_max {
            true => self.to_lan.push(message),
            false => self.counts.dropped += 1,
        }
    }
}

/// Returns the site that has sent a message of the relay, as it says; `None` if it names none.
fn named_site(message: &Message) -> Option<SiteName> {
    message.headers.field(ORIGIN_HEADER)?.parse().ok()
}

/// Returns a message with the body of another one, which is marked as one of the relay. Its origin is `site`, or the
/// site that the other one names. `None` if its header fields cannot be written.
fn relayed(to: Subject, message: &Message, site: Option<&SiteName>, subject: Option<&Subject>) -> Option<Message> {
    let named = named_site(message);
    let origin = site.or(named.as_ref()).map_or("-", SiteName::as_str);
    let subject = subject.map(Subject::as_str).map(|subject| (SUBJECT_HEADER, subject));
    let own = [ORIGIN_HEADER, SUBJECT_HEADER, STATUS_HEADER];
    let is_own = |key: &str| own.iter().any(|own| key.eq_ignore_ascii_case(own));
    let others = message.headers.iter().filter(|(key, _)| !is_own(key));
    let headers = Headers::from_pairs(std::iter::once((ORIGIN_HEADER, origin)).chain(subject).chain(others)).ok()?;
    Some(Message { headers, ..Message::new(to, message.payload.clone()) })
}

/// Returns the sites that a request is sent to, the first one last. Requests with other numbers begin with other sites.
fn choose_sites(mut sites: Vec<SiteName>, number: u64) -> Vec<SiteName> {
    if !sites.is_empty() {
        let first = (number % sites.len() as u64) as usize;
        sites.rotate_left(first);
    }
    sites.truncate(SITES_MAX);
    sites.reverse();
    sites
}

/// Returns whether the own site, and none of the others, takes the request of a client for its queue groups. All sites
/// decide alike. Requests with other reply subjects go to other sites.
fn is_first_site(own: &SiteName, others: &[SiteName], reply: &Subject) -> bool {
    let weight = |site: &SiteName| (hash(format!("{site} {reply}").as_bytes()), site.clone());
    others.iter().all(|other| weight(other) <= weight(own))
}
