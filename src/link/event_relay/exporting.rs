//! The side of the servers: announcements and pages leave the site, and requests of other sites reach the servers.

use super::relayed_types::retain_types;
use super::request_queue::RelayedRequest;
use super::{
    CarriedShares, EVENT_PREFIX, EventRelay, FOLLOW_INTERVAL, FOLLOWERS_MAX, REQUEST_HEADER, SITES_MAX, message_with,
};
use crate::event::model::ServerId;
use crate::event::replication::{Announcement, ReplicationRequest};
use crate::event::server_origin::{ServerOrigin, ServerSite};
use crate::link::site_name::SiteName;
use crate::listener::replication::{
    REQUEST_PREFIX, encode_announcement, encode_page, encode_relay, read_announcement, read_page, read_request,
};
use crate::message::{Epoch, Headers, Message};
use crate::subject::Subject;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::Instant;

impl EventRelay {
    /// Handles the announcement of a server on this LAN.
    pub(super) fn on_lan_announcement(
        &mut self,
        now: Instant,
        shares: CarriedShares,
        number: &str,
        message: &Message,
        from: Epoch,
        permitted: &PermittedSubjects,
    ) {
        let Some(origin) = ServerOrigin::of_message(&message.headers, from) else { return };
        let is_exported = origin.site == ServerSite::Own
            && shares.carries(&message.subject)
            && !self.types.exports.is_empty()
            && !self.importers.is_empty();
        let Ok(mut announcement) = read_announcement(message.payload.clone(), is_exported) else { return };
        let server = announcement.until.server;
        if server.to_string() != number || !announcement.is_sound() {
            return;
        }
        if origin.site == ServerSite::Own && announcement.follows {
            self.on_follower(now, from, announcement.is_held);
        }
        // Another gateway has relayed it if it is of another site.
        if !announcement.is_held
            || !self.is_of_its_site(now, server, &origin.site)
            || origin.site != ServerSite::Own
            || !self.update_server(now, &origin, &announcement)
            || !is_exported
        {
            return;
        }
        let own = self.publications.clone();
        self.remove_refused(&mut announcement.events, |subject| permitted.permits(subject) && own.permits(subject));
        self.export_announcement(from, &announcement);
    }

    /// Notes a follower of this LAN. A new one, and one that has just started, needs the positions of all servers.
    fn on_follower(&mut self, now: Instant, from: Epoch, is_held: bool) {
        let is_known = self.followers.contains_key(&from);
        if is_known || self.followers.len() < FOLLOWERS_MAX {
            self.followers.insert(from, now);
        }
        if !is_known && self.followers.len() == 1 {
            self.follow_at = now;
        }
        if !is_known || !is_held {
            let others = self.servers.values_mut().filter(|known| known.origin.site != ServerSite::Own);
            others.for_each(|known| known.is_sent = false);
        }
    }

    /// Sends an announcement of a server of this LAN to other sites. Events that do not fit are requested later.
    pub(super) fn export_announcement(&mut self, peer: Epoch, announcement: &Announcement) {
        let mut announcement = announcement.clone();
        retain_types(&mut announcement.events, &self.types.exports);
        if let Some(last) = self.fit(&mut announcement.events, self.hub_bytes_max) {
            announcement.until = last;
        }
        let server = announcement.until.server;
        let subject = format!("{EVENT_PREFIX}SERVER.{}.{server}", self.site);
        let headers = ServerOrigin::relayed_headers(self.site.as_str(), peer);
        if self.send_to_hub(message_with(&subject, headers, encode_announcement(&announcement))) {
            self.counts.exported += announcement.events.len() as u64;
        }
        self.servers.get_mut(&server).into_iter().for_each(|known| known.is_sent = true);
    }

    /// Notes that a site follows events. The servers of this LAN announce their events from then on.
    pub(super) fn on_follow(&mut self, now: Instant, site: SiteName) {
        let is_known = self.importers.contains_key(&site);
        if site == self.site || self.types.exports.is_empty() || (!is_known && SITES_MAX <= self.importers.len()) {
            return;
        }
        if !is_known {
            self.relay_at = now;
            let own = self.servers.values_mut().filter(|known| known.origin.site == ServerSite::Own);
            own.for_each(|known| known.is_sent = false);
        }
        self.importers.insert(site, now);
    }

    /// Says to the servers of this LAN that their announcements are relayed.
    pub(super) fn send_relay(&mut self, now: Instant, subject: Subject) {
        if self.relay_at <= now && !self.importers.is_empty() {
            self.relay_at = now + FOLLOW_INTERVAL;
            self.send_to_lan(Message::new(subject, encode_relay()));
        }
    }

    /// Handles a request of another site. Returns false if it is invalid.
    pub(super) fn on_hub_request(
        &mut self,
        now: Instant,
        shares: CarriedShares,
        site: &SiteName,
        server: ServerId,
        message: &Message,
    ) -> bool {
        let request = request_of(&message.headers).filter(|request| request.site != self.site);
        let Some(request) = request else { return false };
        let is_for_server = |read: ReplicationRequest| read.after.server == server;
        if !read_request(message.payload.clone()).is_ok_and(is_for_server) {
            return false;
        }
        let known = self.servers.get(&server).filter(|known| known.origin.site == ServerSite::Own);
        let is_carried = known.is_some_and(|known| shares.carries(&known.subject));
        if is_carried && *site == self.site && !self.types.exports.is_empty() {
            let is_added = self.exported.add(server, request, message.payload.clone());
            self.counts.dropped += u64::from(!is_added);
            self.send_request(now, server);
        }
        true
    }

    /// Sends the next request to a server, unless it has yet to answer one.
    pub(super) fn send_request(&mut self, now: Instant, server: ServerId) {
        let Some((number, payload)) = self.exported.next(now, server) else { return };
        let Ok(reply) = format!("{}{number}", self.inbox).parse() else { return };
        let subject = format!("{REQUEST_PREFIX}{server}");
        let message = message_with(&subject, Headers::new(), payload);
        self.send_to_lan(Message { reply: Some(reply), ..message });
    }

    /// Handles the answer of a server to a request of another site.
    pub(super) fn on_lan_page(
        &mut self,
        now: Instant,
        number: &str,
        message: &Message,
        from: Epoch,
        permitted: &PermittedSubjects,
    ) {
        let server = number.parse().ok().and_then(|number| self.exported.server(number));
        let Some(server) = server.filter(|_| message.headers.is_empty()) else { return };
        let is_of_server = self.servers.get(&server).is_some_and(|known| known.origin.peer == from);
        let Ok(mut page) = read_page(message.payload.clone()) else { return };
        if !is_of_server || page.covered.server != server {
            return;
        }
        let Some(request) = self.exported.take(server) else { return };
        let own = self.publications.clone();
        self.remove_refused(&mut page.events, |subject| permitted.permits(subject) && own.permits(subject));
        retain_types(&mut page.events, &self.types.exports);
        if let Some(last) = self.fit(&mut page.events, self.hub_bytes_max) {
            (page.covered, page.more_follows) = (last, true);
        }
        let subject = format!("{EVENT_PREFIX}PAGE.{}.{server}", request.site);
        let origin = ServerOrigin::relayed_headers(self.site.as_str(), from);
        let value = request.to_value();
        let fields = origin.iter().chain([(REQUEST_HEADER, value.as_str())]);
        let headers = Headers::from_pairs(fields).expect("names and numbers");
        if self.send_to_hub(message_with(&subject, headers, encode_page(&page))) {
            self.counts.exported += page.events.len() as u64;
        }
        self.send_request(now, server);
    }
}

/// Returns the request that the header field of a message identifies.
pub(super) fn request_of(headers: &Headers) -> Option<RelayedRequest> {
    let (_, value) = headers.iter().find(|(key, _)| *key == REQUEST_HEADER)?;
    RelayedRequest::from_value(value)
}
