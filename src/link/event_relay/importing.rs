//! The side of the followers: announcements and pages of other sites reach them, and their requests leave the site.

use super::exporting::request_of;
use super::relayed_types::retain_types;
use super::request_queue::RelayedRequest;
use super::{CarriedShares, EVENT_PREFIX, EventRelay, FOLLOW_INTERVAL, REQUEST_HEADER, message_with};
use crate::event::model::ServerId;
use crate::event::replication::Announcement;
use crate::event::server_origin::{ServerOrigin, ServerSite};
use crate::link::hub_sender::HubSender;
use crate::link::site_name::SiteName;
use crate::listener::replication::{
    REQUEST_PREFIX, SERVER_PREFIX, encode_announcement, encode_page, read_announcement, read_page, read_request,
};
use crate::message::{Epoch, Headers, Message};
use crate::subject::Subject;
use crate::time::Instant;
use bytes::Bytes;

impl EventRelay {
    /// Says to other sites that this one follows events, if it does.
    pub(super) fn send_follow(&mut self, now: Instant) {
        if self.follow_at <= now && !self.types.imports.is_empty() && !self.followers.is_empty() {
            self.follow_at = now + FOLLOW_INTERVAL;
            let subject = format!("{EVENT_PREFIX}FOLLOW.{}", self.site);
            self.send_to_hub(message_with(&subject, Headers::new(), Bytes::new()));
        }
    }

    /// Handles the announcement of a server in another site. Returns false if it is invalid.
    pub(super) fn on_hub_announcement(
        &mut self,
        now: Instant,
        shares: CarriedShares,
        server: ServerId,
        message: &Message,
        sender: &HubSender,
        site: &SiteName,
    ) -> bool {
        if *site == self.site || self.types.imports.is_empty() {
            return true;
        }
        let Some(origin) = remote_origin(&message.headers, site) else { return false };
        let Ok(mut announcement) = read_announcement(message.payload.clone(), true) else { return false };
        if announcement.until.server != server || !announcement.is_held || !announcement.is_sound() {
            return false;
        }
        self.remove_refused(&mut announcement.events, |subject| sender.may_publish(subject));
        // Nobody in this site is followed by that peer.
        announcement.follows = false;
        let is_carried = self.is_of_its_site(now, server, &origin.site)
            && self.update_server(now, &origin, &announcement)
            && self.servers.get(&server).is_some_and(|known| shares.carries(&known.subject));
        if is_carried {
            self.import_announcement(&origin, &announcement);
        }
        true
    }

    /// Publishes an announcement of a server in another site on this LAN. Events that do not fit are requested later.
    pub(super) fn import_announcement(&mut self, origin: &ServerOrigin, announcement: &Announcement) {
        let ServerSite::Other(site) = &origin.site else { return };
        let mut announcement = announcement.clone();
        retain_types(&mut announcement.events, &self.types.imports);
        let permitted = self.permitted.clone();
        self.remove_refused(&mut announcement.events, |subject| permitted.permits(subject));
        if let Some(last) = self.fit(&mut announcement.events, self.lan_bytes_max) {
            announcement.until = last;
        }
        let server = announcement.until.server;
        let headers = ServerOrigin::relayed_headers(site, origin.peer);
        let subject = format!("{SERVER_PREFIX}{server}");
        if self.send_to_lan(message_with(&subject, headers, encode_announcement(&announcement))) {
            self.counts.imported += announcement.events.len() as u64;
        }
        self.servers.get_mut(&server).into_iter().for_each(|known| known.is_sent = true);
    }

    /// Handles the request of a follower of this LAN.
    pub(super) fn on_lan_request(&mut self, now: Instant, shares: CarriedShares, message: &Message, from: Epoch) {
        let server = message.subject.as_str().strip_prefix(REQUEST_PREFIX).and_then(|number| number.parse().ok());
        let (Some(server), Some(reply)) = (server.map(ServerId), &message.reply) else { return };
        let Some(known) = self.servers.get(&server).filter(|known| shares.carries(&known.subject)) else { return };
        let ServerSite::Other(site) = known.origin.site.clone() else { return };
        // A peer asks for answers to itself only.
        let is_of_peer = reply.as_str().starts_with(&format!("_INBOX.{from}."));
        if !is_of_peer || !message.headers.is_empty() || read_request(message.payload.clone()).is_err() {
            return;
        }
        let Some(number) = self.imported.add(now, reply.clone(), server, &site) else {
            self.counts.dropped += 1;
            return;
        };
        let request = RelayedRequest { site: self.site.clone(), gateway: self.gateway, number };
        let value = request.to_value();
        let headers = Headers::from_pairs([(REQUEST_HEADER, value.as_str())]).expect("names and numbers");
        let subject = format!("{EVENT_PREFIX}QUERY.{site}.{server}");
        self.send_to_hub(message_with(&subject, headers, message.payload.clone()));
    }

    /// Handles the answer of another site to a request of this LAN. Returns false if it is invalid.
    pub(super) fn on_hub_page(
        &mut self,
        site: &SiteName,
        server: ServerId,
        message: &Message,
        sender: &HubSender,
    ) -> bool {
        let Some(request) = request_of(&message.headers) else { return false };
        if *site != self.site || request.gateway != self.gateway {
            return true;
        }
        let Some(origin) = ServerOrigin::of_relayed(&message.headers) else { return false };
        let ServerSite::Other(of_site) = &origin.site else { return false };
        let Ok(mut page) = read_page(message.payload.clone()) else { return false };
        if page.covered.server != server {
            return false;
        }
        let Some(reply) = self.imported.take(request.number, server, of_site) else { return true };
        retain_types(&mut page.events, &self.types.imports);
        let permitted = self.permitted.clone();
        let permits = |subject: &Subject| permitted.permits(subject) && sender.may_publish(subject);
        self.remove_refused(&mut page.events, permits);
        if let Some(last) = self.fit(&mut page.events, self.lan_bytes_max) {
            (page.covered, page.more_follows) = (last, true);
        }
        let headers = ServerOrigin::relayed_headers(of_site, origin.peer);
        if self.send_to_lan(message_with(reply.as_str(), headers, encode_page(&page))) {
            self.counts.imported += page.events.len() as u64;
        }
        true
    }
}

/// Returns the origin of an announcement of a site.
fn remote_origin(headers: &Headers, site: &SiteName) -> Option<ServerOrigin> {
    ServerOrigin::of_relayed(headers).filter(|origin| origin.site.other() == Some(site.as_str()))
}
