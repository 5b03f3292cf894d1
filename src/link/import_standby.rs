//! The last messages and manifests of the shares that another gateway of this site imports.
//!
//! The other gateway delivers the messages and reports the losses. This one continues where the other one ends: the
//! imports that it sees on the LAN say how far that is.

use super::export::{STANDBY_BYTES_MAX, STANDBY_TIME};
use super::import_queue::{HubItem, ImportQueue};
use crate::time::Instant;

/// The messages and manifests of the last seconds.
#[derive(Debug, Default)]
pub(super) struct ImportStandby {
    items: ImportQueue,
}

impl ImportStandby {
    /// Retains an item. Beyond the limit the oldest ones are dropped: if this gateway takes over, it finds that they are
    /// missing, unless it has seen their import.
    pub(super) fn retain(&mut self, item: HubItem) {
        self.items.push(item);
        while STANDBY_BYTES_MAX < self.items.bytes() {
            self.items.pop();
        }
    }

    /// Removes the next item for which the other gateway has accounted by now.
    pub(super) fn pop_settled(&mut self, now: Instant) -> Option<HubItem> {
        let is_old = self.items.front().is_some_and(|oldest| STANDBY_TIME < now.since(oldest.at));
        if is_old { self.items.pop() } else { None }
    }

    /// Removes the items of a share that this gateway imports from now on, oldest first.
    pub(super) fn take_over(&mut self, share: u8) -> Vec<HubItem> {
        self.items.take_share(share)
    }
}
