//! The consumer delivers the events of each object in their order, each once, and reports missing events.
//!
//! Events arrive from the bus or from a store, in any order, more than once, from several workers. The first event of
//! an object that arrives is its baseline. From then on an event waits until the event that its `prev` names is
//! delivered. The consumer requests a missing event after `fetch_delay_ms`, and abandons it after `gap_timeout_ms`. A
//! consumer selects objects, not events: an event that it does not receive would be missing for the next event of its
//! object.
//!
//! In this table, `last` is the id of the object's last delivered event, and `newest` the highest token of its events.
//!
//! | event received | action |
//! |---|---|
//! | its object is unknown | the event is the baseline: the consumer delivers it |
//! | its token is below `newest`, and its id above | the consumer refuses it: an earlier owner stamped it |
//! | its id is at most `last` | it is a duplicate: the consumer drops it |
//! | its `prev` is `last` | the consumer delivers it, and then the events that waited for it |
//! | its `prev` is below `last` | the consumer delivers it, and reports a rollback of the producers' state |
//! | its `prev` is above `last`, or an event with a lower id waits | the event waits |
//!
//! The consumer does not refuse an event that an earlier owner stamped before the newer token was assigned. Such an
//! event was only overtaken.

use super::name::Object;
use super::stamp::{Generation, OrderStamp};
use super::worker::OrderedEvent;
use foldhash::fast::FixedState;
use lru::LruCache;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Limits and times of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of remembered objects. Beyond it, the consumer evicts and reports the object whose last event is
    /// oldest.
    pub objects_max: NonZeroUsize,
    /// Maximum number of waiting events. Beyond it, the consumer abandons the oldest gap at once.
    pub buffered_max: usize,
    /// Maximum bytes of the payloads of waiting events. Beyond it, the consumer abandons the oldest gap at once.
    pub buffered_bytes_max: usize,
    /// Delay before the consumer requests a missing event, in milliseconds. An overtaken event may still arrive
    /// meanwhile.
    pub fetch_delay_ms: u64,
    /// Time after which the consumer abandons a missing event, in milliseconds; greater than `fetch_delay_ms`. It
    /// begins anew for each missing event of an object.
    pub gap_timeout_ms: u64,
}

/// An effect that a consumer requests of its caller, or a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerEffect {
    /// Deliver this event, the next one of its object. The consumer counts it as processed: the next event may follow
    /// at once.
    Deliver(OrderedEvent),
    /// Fetch the missing event from the bus's recovery or from a store. The caller passes it to
    /// [`OrderConsumer::on_event`], or calls [`OrderConsumer::on_unrecoverable`] if it cannot be fetched.
    Fetch {
        /// The object.
        object: Object,
        /// The event.
        id: OrderStamp,
        /// Time at which the consumer abandons it, in milliseconds.
        until_ms: u64,
    },
    /// The event is lost. Others between `after` and this one may be missing too. Delivery of the object continues.
    Missing {
        /// The object.
        object: Object,
        /// The event.
        id: OrderStamp,
        /// Last event delivered before.
        after: OrderStamp,
    },
    /// An event arrived from a worker that no longer owned the object. The consumer does not deliver it.
    Refused {
        /// The object.
        object: Object,
        /// The event.
        id: OrderStamp,
        /// Token of the event.
        token: OrderStamp,
    },
    /// The object's events are of a new generation: the state of the producers was lost or rolled back. Events may be
    /// lost, and delivered events may arrive again with other ids.
    LostGeneration {
        /// The object.
        object: Object,
        /// Previous generation.
        known: Generation,
        /// New generation.
        found: Generation,
    },
    /// The next event names a predecessor that has another successor already.
    Rewound {
        /// The object.
        object: Object,
        /// The next event.
        id: OrderStamp,
        /// Its `prev`.
        prev: Option<OrderStamp>,
        /// Last event delivered.
        last: OrderStamp,
    },
    /// The consumer evicted the object because it remembers too many. The next event of the object is a baseline again.
    Evicted {
        /// The object.
        object: Object,
        /// Its last event that was delivered.
        last: OrderStamp,
    },
}

/// State of an object.
#[derive(Debug)]
struct ObjectState {
    /// Id of the last delivered event.
    last: OrderStamp,
    /// Highest token of its events.
    token: OrderStamp,
    buffered: BTreeMap<OrderStamp, OrderedEvent>,
    gap: Option<ObjectGap>,
}

/// The missing event that the first waiting event needs.
#[derive(Clone, Copy, Debug)]
struct ObjectGap {
    id: OrderStamp,
    /// Time at which to request the event, in milliseconds; `None` once it is requested.
    fetch_ms: Option<u64>,
    /// Time at which to abandon the event, in milliseconds.
    until_ms: u64,
}

/// A consumer of the events of any number of objects.
#[derive(Debug)]
pub struct OrderConsumer {
    settings: Settings,
    objects: LruCache<Object, ObjectState, FixedState>,
    /// Request times of gaps not requested yet, with their objects.
    fetch_deadlines: BTreeSet<(u64, Object)>,
    /// Times at which gaps are abandoned, with their objects.
    gap_deadlines: BTreeSet<(u64, Object)>,
    buffered: usize,
    buffered_bytes: usize,
}

impl OrderConsumer {
    /// Creates a consumer without objects. `seed` makes the hashes of objects unpredictable.
    pub fn new(settings: Settings, seed: u64) -> OrderConsumer {
        OrderConsumer {
            settings,
            objects: LruCache::unbounded_with_hasher(FixedState::with_seed(seed)),
            fetch_deadlines: BTreeSet::new(),
            gap_deadlines: BTreeSet::new(),
            buffered: 0,
            buffered_bytes: 0,
        }
    }

    /// Handles an event from the bus or a store. `now_ms` never goes back.
    pub fn on_event(&mut self, now_ms: u64, event: OrderedEvent, out: &mut Vec<ConsumerEffect>) {
        let Some(state) = self.objects.get_mut(&event.object) else { return self.on_baseline(event, out) };
        if event.token < state.token && state.token < event.id {
            return out.push(ConsumerEffect::Refused { object: event.object, id: event.id, token: event.token });
        }
        if event.id <= state.last || state.buffered.contains_key(&event.id) {
            return;
        }
        let (before, after) = (state.token.generation(), event.token.generation());
        if before < after {
            out.push(ConsumerEffect::LostGeneration { object: event.object.clone(), known: before, found: after });
        }
        state.token = state.token.max(event.token);
        self.buffered += 1;
        self.buffered_bytes += event.payload.len();
        let object = event.object.clone();
        state.buffered.insert(event.id, event);
        self.release(now_ms, &object, out);
        while self.settings.buffered_max < self.buffered || self.settings.buffered_bytes_max < self.buffered_bytes {
            let (_, oldest) = self.gap_deadlines.first().cloned().expect("every buffered event waits for a gap");
            self.abandon_gap(now_ms, &oldest, out);
        }
    }

    /// Records that a requested event cannot be fetched.
    pub fn on_unrecoverable(&mut self, now_ms: u64, object: &Object, id: OrderStamp, out: &mut Vec<ConsumerEffect>) {
        if self.gap(object).is_some_and(|gap| gap.id == id) {
            self.abandon_gap(now_ms, object, out);
        }
    }

    /// Returns the time at which [`on_deadline`](OrderConsumer::on_deadline) is due, in milliseconds.
    pub fn deadline_ms(&self) -> Option<u64> {
        let (fetch, until) = (self.fetch_deadlines.first(), self.gap_deadlines.first());
        fetch.into_iter().chain(until).map(|(deadline_ms, _)| *deadline_ms).min()
    }

    /// Handles the passage of time.
    pub fn on_deadline(&mut self, now_ms: u64, out: &mut Vec<ConsumerEffect>) {
        while let Some((_, object)) = self.gap_deadlines.first().filter(|(until_ms, _)| *until_ms <= now_ms).cloned() {
            self.abandon_gap(now_ms, &object, out);
        }
        while let Some((_, object)) = self.fetch_deadlines.first().filter(|(fetch_ms, _)| *fetch_ms <= now_ms).cloned()
        {
            let gap = self.gap(&object).expect("only gaps have a fetch deadline");
            self.set_gap(&object, Some(ObjectGap { fetch_ms: None, ..gap }));
            out.push(ConsumerEffect::Fetch { object, id: gap.id, until_ms: gap.until_ms });
        }
    }

    /// Returns the object's last event that was delivered; `None` if the object is unknown.
    pub fn last(&self, object: &Object) -> Option<OrderStamp> {
        self.objects.peek(object).map(|state| state.last)
    }

    /// Returns the number of waiting events of all objects.
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    fn on_baseline(&mut self, event: OrderedEvent, out: &mut Vec<ConsumerEffect>) {
        while self.settings.objects_max.get() <= self.objects.len() {
            self.evict_oldest(out);
        }
        let state = ObjectState { last: event.id, token: event.token, buffered: BTreeMap::new(), gap: None };
        self.objects.put(event.object.clone(), state);
        out.push(ConsumerEffect::Deliver(event));
    }

    /// Evicts the object whose last event is oldest. Its waiting events are delivered, and its missing events reported.
    fn evict_oldest(&mut self, out: &mut Vec<ConsumerEffect>) {
        let (object, _) = self.objects.peek_lru().expect("at least one object is remembered");
        let object = object.clone();
        while self.gap(&object).is_some() {
            self.abandon_gap(0, &object, out);
        }
        let state = self.objects.pop(&object).expect("found above");
        out.push(ConsumerEffect::Evicted { object, last: state.last });
    }

    fn gap(&self, object: &Object) -> Option<ObjectGap> {
        self.objects.peek(object)?.gap
    }

    fn set_gap(&mut self, object: &Object, gap: Option<ObjectGap>) {
        let state = self.objects.peek_mut(object).expect("the object is known");
        if let Some(before) = std::mem::replace(&mut state.gap, gap) {
            if let Some(fetch_ms) = before.fetch_ms {
                self.fetch_deadlines.remove(&(fetch_ms, object.clone()));
            }
            self.gap_deadlines.remove(&(before.until_ms, object.clone()));
        }
        if let Some(gap) = gap {
            self.fetch_deadlines.extend(gap.fetch_ms.map(|fetch_ms| (fetch_ms, object.clone())));
            self.gap_deadlines.insert((gap.until_ms, object.clone()));
        }
    }

    /// Continues without the missing event.
    fn abandon_gap(&mut self, now_ms: u64, object: &Object, out: &mut Vec<ConsumerEffect>) {
        let state = self.objects.peek_mut(object).expect("the object is known");
        let gap = state.gap.expect("the object has a gap");
        out.push(ConsumerEffect::Missing { object: object.clone(), id: gap.id, after: state.last });
        state.last = gap.id;
        self.release(now_ms, object, out);
    }

    /// Delivers the buffered events whose predecessor was delivered, and finds the event that the others wait for.
    fn release(&mut self, now_ms: u64, object: &Object, out: &mut Vec<ConsumerEffect>) {
        let state = self.objects.peek_mut(object).expect("the object is known");
        let mut missing = None;
        while let Some(first) = state.buffered.first_entry() {
            let prev = first.get().prev;
            if Some(state.last) < prev {
                missing = prev;
                break;
            }
            let event = first.remove();
            self.buffered -= 1;
            self.buffered_bytes -= event.payload.len();
            if prev < Some(state.last) {
                out.push(ConsumerEffect::Rewound { object: object.clone(), id: event.id, prev, last: state.last });
            }
            state.last = event.id;
            out.push(ConsumerEffect::Deliver(event));
        }
        let before = state.gap;
        if missing == before.map(|gap| gap.id) {
            return;
        }
        let gap = missing.map(|id| ObjectGap {
            id,
            fetch_ms: Some(now_ms.saturating_add(self.settings.fetch_delay_ms)),
            until_ms: now_ms.saturating_add(self.settings.gap_timeout_ms),
        });
        self.set_gap(object, gap);
    }
}
