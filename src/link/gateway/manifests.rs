//! Manifests: what this gateway has counted is sent, what others have counted waits behind their messages.

use super::{Gateway, UNREAD_BYTES_MAX};
use crate::link::gateway_counts::SiteConflict;
use crate::link::hub_sender::HubSender;
use crate::link::import_queue::{HubContent, HubItem};
use crate::link::local_subjects::stays_local;
use crate::link::manifest::{LinkManifest, ManifestBatch};
use crate::link::system_messages::{MANIFEST_PREFIX, system_subject};
use crate::message::Message;
use crate::time::Instant;

impl Gateway {
    /// Sends the rounds of manifests that are due. They wait while the cluster is too slow.
    pub(super) fn send_rounds(&mut self, now: Instant) {
        let mut batch = ManifestBatch::default();
        while self.to_hub.has_room()
            && let Some(round) = self.exporter.poll_round(now)
        {
            self.send_round(&mut batch, round);
        }
        self.send_manifests(&batch);
    }

    /// Adds the manifests of a round to those that the next message carries. Sends those for which it has no room.
    pub(super) fn send_round(&mut self, batch: &mut ManifestBatch, round: Vec<LinkManifest>) {
        for manifest in round {
            if let Some(full) = batch.add(manifest) {
                self.send_manifests(&full);
            }
        }
    }

    pub(super) fn send_manifests(&mut self, batch: &ManifestBatch) {
        if let Some(text) = batch.to_json() {
            self.to_hub.push(Message::new(system_subject(MANIFEST_PREFIX, &self.settings.site), text));
        }
    }

    /// Handles a message of manifests.
    pub(super) fn on_manifests(&mut self, now: Instant, message: &Message, sender: &HubSender) {
        match ManifestBatch::from_json(&message.payload) {
            Ok(batch) if batch.site().is_some_and(|site| sender.may_act_for(site)) => {
                batch.into_iter().for_each(|manifest| self.on_manifest(now, manifest, sender));
            }
            _ => self.counts.invalid += 1,
        }
    }

    fn on_manifest(&mut self, now: Instant, mut manifest: LinkManifest, sender: &HubSender) {
        // Messages on other subjects are not accepted, so they are no losses. Those of the system never cross.
        manifest.entries.retain(|entry| !stays_local(entry.subject.as_bytes()) && sender.may_publish(&entry.subject));
        if manifest.site == self.settings.site {
            return self.on_own_manifest(now, manifest);
        }
        self.ledger.on_heard(&manifest.site, manifest.gateway);
        self.watch.on_manifest(now, &manifest.site, manifest.gateway);
        let imports = &self.settings.imports;
        let imported = manifest.entries.iter().filter(|entry| imports.matches(&entry.subject));
        imported.for_each(|entry| self.durable.on_live_export(&entry.subject));
        // Without room the next round shows that this one is missing, and it is requested.
        if self.unread.bytes() < UNREAD_BYTES_MAX {
            self.unread.push(HubItem { at: now, content: HubContent::Manifest(Box::new(manifest)) });
        }
    }

    /// Looks whether a manifest in the name of this site is from another LAN: from a gateway that no announcement names,
    /// and that has not just left.
    fn on_own_manifest(&mut self, now: Instant, manifest: LinkManifest) {
        if now < self.settled || self.election.knows(manifest.gateway) {
            return self.unannounced.remove(manifest.gateway);
        }
        self.unannounced.on_manifest(now, manifest.gateway);
        if self.unannounced.are_in_conflict() {
            self.conflict = Some(SiteConflict::TwoLans(manifest.site));
        }
    }

    /// Ends a conflict with another LAN whose gateways are silent by now.
    pub(super) fn expire_conflict(&mut self, now: Instant) {
        self.unannounced.expire(now);
        let is_with_lan = matches!(self.conflict, Some(SiteConflict::TwoLans(_)));
        if is_with_lan && !self.unannounced.are_in_conflict() {
            self.conflict = None;
        }
    }
}
