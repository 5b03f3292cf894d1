//! The subscriptions of one client.

use crate::message::{Count, SubId};
use crate::subject::tree::Tree;
use crate::subject::{Pattern, Subject};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of matching steps to find the subscription for a reply subject.
const STEPS_MAX: usize = 10_000;

/// A subscription.
#[derive(Clone, Debug)]
pub(super) struct NatsSubscription {
    /// The client's id of the subscription.
    pub(super) sid: Arc<[u8]>,
    pattern: Pattern,
    is_queue: bool,
    /// Number of messages delivered.
    delivered: u64,
    /// Number of messages after which the subscription ends; 0 for no limit.
    max: u64,
}

impl NatsSubscription {
    /// Returns the number of messages that the subscription may still receive.
    pub(super) fn remaining(&self) -> u64 {
        if self.max == 0 { u64::MAX } else { self.max.saturating_sub(self.delivered) }
    }
}

/// All subscriptions of the client. A number is reused only after the counter wraps, and never while it is in use. So a
/// late delivery for an ended subscription reaches no other subscription.
#[derive(Debug, Default)]
pub(super) struct NatsSubscriptions {
    by_id: BTreeMap<SubId, NatsSubscription>,
    by_sid: BTreeMap<Arc<[u8]>, SubId>,
    last: u32,
    /// Number of messages lost for each subscription since its last message.
    lost: BTreeMap<SubId, Count>,
    /// Index of the patterns of all subscriptions without a queue group, built at the first lookup by a reply subject.
    reply_index: Option<Box<Tree<SubId>>>,
}

impl NatsSubscriptions {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns whether the client has a subscription with this id.
    pub(super) fn has(&self, sid: &[u8]) -> bool {
        self.by_sid.contains_key(sid)
    }

    /// Adds a subscription, whose id must not be in use.
    pub(super) fn add(&mut self, sid: &[u8], pattern: Pattern, is_queue: bool) -> SubId {
        self.last = self.last.wrapping_add(1);
        while self.by_id.contains_key(&SubId(self.last)) {
            self.last = self.last.wrapping_add(1);
        }
        let (id, sid) = (SubId(self.last), Arc::<[u8]>::from(sid));
        if let Some(index) = self.reply_index.as_mut().filter(|_| !is_queue) {
            index.insert(&pattern, id);
        }
        self.by_sid.insert(Arc::clone(&sid), id);
        self.by_id.insert(id, NatsSubscription { sid, pattern, is_queue, delivered: 0, max: 0 });
        id
    }

    pub(super) fn get(&self, id: SubId) -> Option<&NatsSubscription> {
        self.by_id.get(&id)
    }

    pub(super) fn remove(&mut self, id: SubId) {
        let Some(sub) = self.by_id.remove(&id) else { return };
        self.by_sid.remove(&sub.sid);
        self.lost.remove(&id);
        if let Some(index) = self.reply_index.as_mut().filter(|_| !sub.is_queue) {
            index.remove(&sub.pattern, id);
        }
    }

    /// Ends the subscription after `max` messages, including those already delivered; 0 ends it at once. Returns the
    /// subscription if it has ended.
    pub(super) fn limit(&mut self, sid: &[u8], max: u64) -> Option<SubId> {
        let id = *self.by_sid.get(sid)?;
        let sub = self.by_id.get_mut(&id).expect("every sid belongs to a subscription");
        sub.max = max;
        self.end(id, max == 0)
    }

    /// Counts `count` delivered messages. Returns the subscription if they end it.
    pub(super) fn on_delivered(&mut self, id: SubId, count: u64) -> Option<SubId> {
        self.by_id.get_mut(&id)?.delivered += count;
        self.end(id, false)
    }

    fn end(&mut self, id: SubId, is_over: bool) -> Option<SubId> {
        if !is_over && self.by_id.get(&id)?.remaining() != 0 {
            return None;
        }
        self.remove(id);
        Some(id)
    }

    /// Adds `lost` messages to those lost before the subscription's next message.
    pub(super) fn on_lost(&mut self, id: SubId, lost: Count) {
        if !self.by_id.contains_key(&id) {
            return;
        }
        let before = self.lost.get(&id).copied().unwrap_or(Count::Exact(0));
        let sum = Count::from_bounds(before.min().saturating_add(lost.min()), before.max().saturating_add(lost.max()));
        self.lost.insert(id, sum);
    }

    /// Returns and clears the losses since the subscription's last message or the last call.
    pub(super) fn take_lost(&mut self, id: SubId) -> Option<Count> {
        if self.lost.is_empty() { None } else { self.lost.remove(&id) }
    }

    /// Returns a subscription that matches this reply subject. A subscription to exactly this subject precedes one with
    /// wildcards. As in nats-server, members of queue groups do not count. `seed` makes hashing unpredictable.
    pub(super) fn find_by_reply(&mut self, reply: &Subject, seed: u64) -> Option<&NatsSubscription> {
        let by_id = &self.by_id;
        let tree = self.reply_index.get_or_insert_with(|| {
            let mut tree = Tree::new(seed);
            for (id, sub) in by_id.iter().filter(|(_, sub)| !sub.is_queue) {
                tree.insert(&sub.pattern, *id);
            }
            Box::new(tree)
        });
        let mut found = Vec::new();
        // Any subscription suffices, so those found before the steps are used up are enough.
        tree.matches_within(reply, &mut found, STEPS_MAX);
        let subs = || found.iter().filter_map(|id| by_id.get(id));
        subs().find(|sub| sub.pattern.as_str() == reply.as_str()).or_else(|| subs().next())
    }
}
