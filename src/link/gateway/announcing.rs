//! Announcements of the gateways of a LAN to each other.

use super::Gateway;
use crate::link::envelope::parse_epoch;
use crate::link::gateway_counts::SiteConflict;
use crate::link::shares::ANNOUNCE_INTERVAL;
use crate::link::site_name::SiteName;
use crate::link::system_messages::{ANNOUNCE_SUBJECT, GatewayAnnouncement};
use crate::message::{Epoch, Message};
use crate::time::Instant;
use std::time::Duration;

/// Maximum time by which an announcement or an idle round of manifests comes early, so that one wake-up serves both.
const SHARED_TICK_ADVANCE: Duration = Duration::from_millis(100);

/// Maximum bytes of the streams that an announcement names.
const ANNOUNCED_STREAM_BYTES_MAX: usize = 16 << 10;

impl Gateway {
    /// Announces this gateway if it is time, or somewhat earlier if a round is sent now. Rounds that name nothing and are
    /// due soon are sent with the announcement.
    pub(super) fn announce_if_due(&mut self, now: Instant) {
        let is_round_due = self.is_linked && self.exporter.deadline() <= now;
        let advance = if is_round_due { SHARED_TICK_ADVANCE } else { Duration::ZERO };
        if self.announce_at <= now + advance {
            self.announce(now, false);
            self.exporter.hasten_idle_rounds(now, SHARED_TICK_ADVANCE);
        }
    }

    pub(super) fn announce(&mut self, now: Instant, leaving: bool) {
        self.announce_at = now + ANNOUNCE_INTERVAL;
        let bytes_max = ANNOUNCED_STREAM_BYTES_MAX.min(self.settings.message_bytes_max / 4);
        let elects = |share| self.election.elected(share) == Some(self.epoch);
        let durable = self.durable.announcement(now, bytes_max, elects);
        let announced = GatewayAnnouncement {
            site: self.settings.site.to_string(),
            gateway: self.epoch.to_string(),
            ready: self.election.is_ready(),
            leaving,
            patterns: self.settings.of_lan().iter().map(ToString::to_string).collect(),
            durable,
        };
        let text = serde_json::to_vec(&announced).expect("strings and numbers can be written");
        let subject = ANNOUNCE_SUBJECT.parse().expect("a constant that is a subject");
        let announcement = Message::new(subject, text);
        match leaving {
            // The messages imported so far come first, since the others take over at once.
            true => self.to_lan.push_back(announcement),
            false => self.announcement = Some(announcement),
        }
    }

    pub(super) fn on_announcement(&mut self, now: Instant, message: &Message) {
        let Ok(announcement) = serde_json::from_slice::<GatewayAnnouncement>(&message.payload) else {
            return self.counts.invalid += 1;
        };
        let epoch = parse_epoch(&announcement.gateway);
        match (epoch, announcement.site.parse::<SiteName>()) {
            (Some(epoch), Ok(site)) if site == self.settings.site => self.on_gateway(now, epoch, &announcement),
            (Some(_), Ok(site)) => self.conflict = Some(SiteConflict::TwoNames(site)),
            _ => return self.counts.invalid += 1,
        }
        self.update_shares(now);
    }

    /// Handles the announcement of another gateway of this site.
    fn on_gateway(&mut self, now: Instant, epoch: Epoch, announcement: &GatewayAnnouncement) {
        if announcement.leaving {
            self.election.on_departure(now, epoch);
            self.durable.on_departure(epoch, &announcement.durable);
        } else {
            self.election.on_announcement(now, epoch, announcement.ready);
            let elects = |share| self.election.elected(share) == Some(epoch);
            self.durable.on_announcement(now, epoch, &announcement.durable, elects);
        }
    }
}
