//! Messages and manifests of the cluster that are not accounted for yet, in the order of the connection.

use super::envelope::LinkEnvelope;
use super::manifest::LinkManifest;
use super::shares::share_of;
use crate::message::Message;
use crate::time::Instant;
use std::collections::VecDeque;

/// Bytes that an item counts beside its payload, its headers and the streams that it names.
const ITEM_BYTES: usize = 512;
/// Bytes that a stream of a manifest counts.
const ENTRY_BYTES: usize = 256;

/// A message or a manifest of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HubContent {
    /// A message of another site.
    OfSite(Box<LinkEnvelope>, Message),
    /// A message of a client of the cluster.
    OfClient(Message),
    /// A manifest of a gateway of another site.
    Manifest(Box<LinkManifest>),
}

/// Something that has come from the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubItem {
    /// Time of its arrival.
    pub(super) at: Instant,
    pub(super) content: HubContent,
}

impl HubItem {
    /// Returns the share to which it belongs.
    pub(super) fn share(&self) -> u8 {
        match &self.content {
            HubContent::OfSite(envelope, _) => envelope.share,
            HubContent::OfClient(message) => share_of(&message.subject),
            HubContent::Manifest(manifest) => manifest.share,
        }
    }

    fn bytes(&self) -> usize {
        let content = match &self.content {
            HubContent::OfSite(_, message) | HubContent::OfClient(message) => message.body_bytes(),
            HubContent::Manifest(manifest) => manifest.entries.len() * ENTRY_BYTES,
        };
        ITEM_BYTES + content
    }
}

/// A queue of items, with the bytes that they take.
#[derive(Debug, Default)]
pub(super) struct ImportQueue {
    items: VecDeque<HubItem>,
    bytes: usize,
}

impl ImportQueue {
    /// Returns the bytes that the items take, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the oldest item.
    pub(super) fn front(&self) -> Option<&HubItem> {
        self.items.front()
    }

    /// Appends an item.
    pub(super) fn push(&mut self, item: HubItem) {
        self.bytes += item.bytes();
        self.items.push_back(item);
    }

    /// Removes the oldest item.
    pub(super) fn pop(&mut self) -> Option<HubItem> {
        let item = self.items.pop_front()?;
        self.bytes -= item.bytes();
        Some(item)
    }

    /// Removes the items of a share, oldest first.
    pub(super) fn take_share(&mut self, share: u8) -> Vec<HubItem> {
        let mut taken = Vec::new();
        for item in std::mem::take(&mut self.items) {
            match item.share() == share {
                true => taken.push(item),
                false => self.items.push_back(item),
            }
        }
        self.bytes -= taken.iter().map(HubItem::bytes).sum::<usize>();
        taken
    }

    /// Puts items, oldest first, before all others.
    pub(super) fn put_first(&mut self, items: Vec<HubItem>) {
        self.bytes += items.iter().map(HubItem::bytes).sum::<usize>();
        items.into_iter().rev().for_each(|item| self.items.push_front(item));
    }
}
