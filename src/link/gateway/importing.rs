//! Imports: messages of the cluster are delivered to the LAN, or retained while another gateway delivers them.

use super::Gateway;
use crate::link::bye::GatewayBye;
use crate::link::durable::DurableDelivery;
use crate::link::envelope::{LinkEnvelope, ORIGIN_HEADER};
use crate::link::export::STANDBY_TIME;
use crate::link::hub_sender::HubSender;
use crate::link::import::{Imported, RoundRequest, SITES_MAX};
use crate::link::import_queue::{HubContent, HubItem};
use crate::link::manifest::LinkManifest;
use crate::link::position::one_more;
use crate::link::remote_stream_key::RemoteStreamKey;
use crate::link::site_loss::{SiteLoss, SiteReport, SiteTail};
use crate::link::system_messages::{LOSS_SUBJECT, REQUEST_PREFIX, RequestText, system_subject};
use crate::message::{Count, Headers, Message};
use crate::subject::Subject;
use crate::time::Instant;
use std::time::Duration;

/// Value of the header field of a message that a client of the cluster has sent. It marks the message as imported.
const HUB_ORIGIN: &str = "-";
/// Time for which a manifest of a gateway that does not carry the share is held back. Messages that it names come on
/// another connection, and may be under way. If the gateway that carries the share has died, another one exports them
/// by then.
pub(super) const HOLD_TIME: Duration = Duration::from_secs(4);
/// Maximum number of losses that another gateway has reported, or should report, which are remembered. Further ones are
/// reported twice, or not, if that gateway dies.
const REPORTED_MAX: usize = 4096;
/// Maximum bytes of the manifests that are held back. Further ones count at once.
const HELD_BYTES_MAX: usize = 16 << 20;

impl Gateway {
    /// Accounts for everything that waits for the LAN.
    pub(super) fn account_all(&mut self, now: Instant) {
        while let Some(item) = self.unread.pop() {
            self.account(now, item);
        }
    }

    /// Accounts for something that has come from the cluster, or retains it while another gateway does so.
    pub(super) fn account(&mut self, now: Instant, item: HubItem) {
        if !self.exporter.carries(item.share()) {
            // No number shows whether another gateway has delivered a message of a client.
            if !matches!(item.content, HubContent::OfClient(_)) {
                self.standby.retain(item);
            }
            return;
        }
        let HubItem { at, content } = item;
        match content {
            HubContent::OfSite(envelope, message) => self.import(*envelope, message),
            HubContent::OfClient(message) if message.reply.is_some() => self.on_client_request(now, message),
            HubContent::OfClient(message) => self.import_of_client(message),
            HubContent::Manifest(manifest)
                if !manifest.carries && now < at + HOLD_TIME && self.held.bytes() < HELD_BYTES_MAX =>
            {
                self.held.push(HubItem { at, content: HubContent::Manifest(manifest) });
            }
            HubContent::Manifest(manifest) => self.account_manifest(&manifest, true),
        }
    }

    /// Drops something that another gateway of this site has had the time to deliver or to report. A message that it
    /// did not deliver is missing before the next one of its stream.
    pub(super) fn settle(&mut self, item: HubItem) {
        if let HubContent::Manifest(manifest) = item.content {
            self.account_manifest(&manifest, false);
        }
    }

    /// Accounts for what waits before these shares are released. Other gateways retain what came within the last
    /// seconds, if there are any.
    pub(super) fn account_before_release(&mut self, now: Instant, released: &[u8]) {
        let is_alone = !self.election.has_ready_others();
        let mut kept = Vec::new();
        while let Some(item) = self.unread.pop() {
            match is_alone || (STANDBY_TIME < now.since(item.at) && released.contains(&item.share())) {
                true => self.account(now, item),
                false => kept.push(item),
            }
        }
        self.unread.put_first(kept);
        for loss in self.ledger.give_up_shares(released) {
            self.report(loss);
        }
    }

    /// Notes that another gateway of this site has delivered a message.
    pub(super) fn on_imported(&mut self, envelope: &LinkEnvelope, subject: &Subject) {
        self.ledger.on_imported(envelope, subject);
        if self.reported.is_empty() && self.unreported.is_empty() {
            return;
        }
        let key = RemoteStreamKey::new(envelope, subject);
        self.reported.remove(&key);
        let is_of_stream = |loss: &SiteLoss| RemoteStreamKey::new(&loss.origin, &loss.subject) == key;
        self.unreported.retain(|loss| !(is_of_stream(loss) && loss.origin.point.is_covered_by(&envelope.point)));
    }

    /// Notes a report of another gateway of this site.
    pub(super) fn on_loss_report(&mut self, message: &Message) {
        let loss = match SiteReport::from_json(&message.payload) {
            Some(SiteReport::Loss(loss)) => loss,
            // Each gateway finds the end of another one by itself.
            Some(SiteReport::Tail(_)) => return,
            None => return self.counts.invalid += 1,
        };
        let SiteLoss { origin, subject, follows, is_durable, .. } = *loss;
        if is_durable {
            return;
        }
        if !follows {
            return self.on_imported(&origin, &subject);
        }
        if REPORTED_MAX <= self.reported.len() {
            self.reported.pop_first();
        }
        self.reported.insert(RemoteStreamKey::new(&origin, &subject), origin.point);
    }

    /// Reports the losses of a share that nobody has reported.
    pub(super) fn report_unreported(&mut self, share: u8) {
        let of_share: Vec<SiteLoss> = self.unreported.extract_if(.., |loss| loss.origin.share == share).collect();
        of_share.into_iter().for_each(|loss| self.report(loss));
    }

    /// Accounts for the manifests that were held back long enough.
    pub(super) fn release_held(&mut self, now: Instant) {
        while self.held.front().is_some_and(|item| item.at + HOLD_TIME <= now)
            && let Some(item) = self.held.pop()
        {
            self.account(now, item);
        }
    }

    /// Accounts for a manifest. Its losses are reported if this gateway `reports` for its share.
    pub(super) fn account_manifest(&mut self, manifest: &LinkManifest, reports: bool) {
        let imports = &self.settings.imports;
        let imported = self.ledger.on_manifest(manifest, |subject| imports.matches(subject));
        if reports {
            imported.losses.into_iter().for_each(|loss| self.report(loss));
        } else {
            let room = REPORTED_MAX.saturating_sub(self.unreported.len());
            self.unreported.extend(imported.losses.into_iter().take(room));
        }
        if self.is_linked
            && let Some(RoundRequest { gateway, share, after }) = imported.request
        {
            let text = serde_json::to_vec(&RequestText { gateway: gateway.to_string(), share, after });
            let subject = system_subject(REQUEST_PREFIX, &manifest.site);
            self.to_hub.push(Message::new(subject, text.expect("strings and numbers can be written")));
        }
    }

    fn import(&mut self, envelope: LinkEnvelope, message: Message) {
        let loss = match self.ledger.on_message(&envelope, &message.subject) {
            Imported::OwnSite => return,
            Imported::Repeated => return self.site(&envelope.site).repeated += 1,
            Imported::TooManySites => return self.counts.excess_sites += 1,
            Imported::Deliver(loss) => loss,
        };
        // Another gateway has reported what is missing before this message, and ended before it delivered it.
        let is_reported = !self.reported.is_empty()
            && self.reported.remove(&RemoteStreamKey::new(&envelope, &message.subject)) == Some(envelope.point);
        let loss = loss.filter(|_| !is_reported);
        if self.permits(&message) {
            loss.into_iter().for_each(|loss| self.report(loss));
            self.site(&envelope.site).imported += 1;
            self.to_lan.push_back(Message { reply: None, ..message });
            return;
        }
        self.counts.refused += 1;
        let count = one_more(loss.map(|loss| loss.count));
        self.report(SiteLoss::of_live(envelope, message.subject, count, false));
    }

    /// Imports a message that a client of the cluster has sent. No publisher numbers it.
    fn import_of_client(&mut self, message: Message) {
        let own = std::iter::once((ORIGIN_HEADER, HUB_ORIGIN));
        let Ok(headers) = Headers::from_pairs(own.chain(message.headers.iter())) else {
            return self.counts.invalid += 1;
        };
        let message = Message { headers, ..message };
        if self.permits(&message) {
            self.counts.of_clients += 1;
            self.to_lan.push_back(message);
        } else {
            self.counts.refused += 1;
        }
    }

    /// Imports the next message of the cluster's stream; `None` if none may be delivered yet.
    pub(super) fn import_stored(&mut self, now: Instant) -> Option<()> {
        let DurableDelivery { site, message, is_deliverable, loss } = self.durable.poll_lan(now)?;
        if site.as_ref().is_some_and(|site| SITES_MAX <= self.sites.len() && !self.sites.contains_key(site)) {
            self.counts.excess_sites += 1;
            return Some(());
        }
        loss.into_iter().for_each(|loss| self.report(loss));
        if is_deliverable && self.permits(&message) {
            match site {
                Some(site) => self.site(&site).imported += 1,
                None => self.counts.of_clients += 1,
            }
            self.to_lan.push_back(message);
        } else {
            self.refuse(message);
        }
        Some(())
    }

    /// Counts a durable message that the LAN does not take as lost, if another site has sent it.
    fn refuse(&mut self, message: Message) {
        self.counts.refused += 1;
        if let Some(Ok(origin)) = LinkEnvelope::find(&message.headers) {
            let (subject, count) = (message.subject, Count::Exact(1));
            self.report(SiteLoss { origin, subject, count, follows: false, is_durable: true });
        }
    }

    /// Returns whether the LAN takes this message.
    fn permits(&self, message: &Message) -> bool {
        message.body_bytes() <= self.settings.message_bytes_max && self.settings.permitted.permits(&message.subject)
    }

    /// Handles the end of a gateway of another site.
    pub(super) fn on_bye(&mut self, now: Instant, message: &Message, sender: &HubSender) {
        match GatewayBye::from_json(&message.payload) {
            Ok(bye) if sender.may_act_for(&bye.site) => self.watch.on_bye(now, bye),
            _ => self.counts.invalid += 1,
        }
    }

    fn report(&mut self, loss: SiteLoss) {
        let counts = self.site(&loss.origin.site);
        counts.lost_min = counts.lost_min.saturating_add(loss.count.min());
        counts.lost_max = counts.lost_max.saturating_add(loss.count.max());
        self.publish_report(loss.to_json());
    }

    /// Counts and reports a tail, if there is one. Each gateway of this site does so.
    pub(super) fn report_tail(&mut self, tail: Option<SiteTail>) {
        if let Some(tail) = tail {
            self.site(&tail.site).tails += 1;
            self.publish_report(tail.to_json());
        }
    }

    fn publish_report(&mut self, report: Vec<u8>) {
        let subject: Subject = LOSS_SUBJECT.parse().expect("a constant that is a subject");
        self.to_lan.push_back(Message::new(subject, report));
    }
}
