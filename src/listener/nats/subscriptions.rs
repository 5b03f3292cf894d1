//! The subscriptions of one client.

use crate::message::{Count, SubId};
use crate::subject::tree::Tree;
use crate::subject::{Pattern, Subject};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Steps that looking for who waits for an answer may take.
const STEPS_MAX: usize = 10_000;

/// A subscription.
#[derive(Clone, Debug)]
pub(super) struct NatsSubscription {
    /// The client's name for it.
    pub(super) sid: Arc<[u8]>,
    pattern: Pattern,
    is_queue: bool,
    /// Messages that it got.
    delivered: u64,
    /// It ends after so many; 0 if it does not.
    max: u64,
}

impl NatsSubscription {
    /// How many messages it may still get.
    pub(super) fn left(&self) -> u64 {
        if self.max == 0 { u64::MAX } else { self.max.saturating_sub(self.delivered) }
    }
}

/// All of them. A number is not given twice, so that what still comes for one that has ended reaches no other.
#[derive(Debug, Default)]
pub(super) struct NatsSubscriptions {
    by_id: BTreeMap<SubId, NatsSubscription>,
    by_sid: BTreeMap<Arc<[u8]>, SubId>,
    last: u32,
    /// What was lost of each since it last got a message.
    lost: BTreeMap<SubId, Count>,
    /// Who waits for which answers; from the first time on that it is asked.
    waiting: Option<Box<Tree<SubId>>>,
}

impl NatsSubscriptions {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether the client has one by this name.
    pub(super) fn has(&self, sid: &[u8]) -> bool {
        self.by_sid.contains_key(sid)
    }

    /// Adds one, which has another name than the others.
    pub(super) fn add(&mut self, sid: &[u8], pattern: Pattern, is_queue: bool) -> SubId {
        self.last = self.last.wrapping_add(1);
        while self.by_id.contains_key(&SubId(self.last)) {
            self.last = self.last.wrapping_add(1);
        }
        let (id, sid) = (SubId(self.last), Arc::<[u8]>::from(sid));
        if let Some(waiting) = self.waiting.as_mut().filter(|_| !is_queue) {
            waiting.insert(&pattern, id);
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
        if let Some(waiting) = self.waiting.as_mut().filter(|_| !sub.is_queue) {
            waiting.remove(&sub.pattern, id);
        }
    }

    /// The one by this name is to end after `max` messages, those included that it has got; 0 for at once. Gives it if it has ended.
    pub(super) fn limit(&mut self, sid: &[u8], max: u64) -> Option<SubId> {
        let id = *self.by_sid.get(sid)?;
        let sub = self.by_id.get_mut(&id).expect("every name stands for one");
        sub.max = max;
        self.end(id, max == 0)
    }

    /// The subscription got so many messages. Gives it if it has ended with them.
    pub(super) fn on_delivered(&mut self, id: SubId, count: u64) -> Option<SubId> {
        self.by_id.get_mut(&id)?.delivered += count;
        self.end(id, false)
    }

    fn end(&mut self, id: SubId, is_over: bool) -> Option<SubId> {
        if !is_over && self.by_id.get(&id)?.left() != 0 {
            return None;
        }
        self.remove(id);
        Some(id)
    }

    /// So many messages of the subscription are lost before its next one.
    pub(super) fn on_lost(&mut self, id: SubId, lost: Count) {
        if !self.by_id.contains_key(&id) {
            return;
        }
        let before = self.lost.get(&id).copied().unwrap_or(Count::Exact(0));
        let sum = Count::from_bounds(before.min().saturating_add(lost.min()), before.max().saturating_add(lost.max()));
        self.lost.insert(id, sum);
    }

    /// What was lost since the subscription got its last message, or was asked for.
    pub(super) fn take_lost(&mut self, id: SubId) -> Option<Count> {
        if self.lost.is_empty() { None } else { self.lost.remove(&id) }
    }

    /// The one of them that waits for answers on this subject: one that names it, else one with wildcards. Those of queue groups
    /// do not count, as with nats-server. `seed` makes the table unpredictable.
    pub(super) fn waiting(&mut self, reply: &Subject, seed: u64) -> Option<&NatsSubscription> {
        let by_id = &self.by_id;
        let tree = self.waiting.get_or_insert_with(|| {
            let mut tree = Tree::new(seed);
            for (id, sub) in by_id.iter().filter(|(_, sub)| !sub.is_queue) {
                tree.insert(&sub.pattern, *id);
            }
            Box::new(tree)
        });
        let mut found = Vec::new();
        // What was found until the steps were used up is as good.
        tree.matches_within(reply, &mut found, STEPS_MAX);
        let subs = || found.iter().filter_map(|id| by_id.get(id));
        subs().find(|sub| sub.pattern.as_str() == reply.as_str()).or_else(|| subs().next())
    }
}
