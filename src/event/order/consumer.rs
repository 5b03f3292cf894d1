//! A consumer: brings the events of each object into their order, each once, and says what cannot be had.
//!
//! Events come from the bus or from a store, in any order, more than once, from several workers. The first event of an object that comes
//! is its baseline. From then on an event waits until the one that its `prev` names was handed on. What is missing is asked for after a
//! grace, and given up at a deadline. A consumer that wants only some events chooses objects, not events: an event that is left out
//! would be missing for the next one of its object.
//!
//! | an event comes whose | then |
//! |---|---|
//! | object is not known | it is the baseline, and handed on |
//! | id is above the newest token of the object, its own token below that | it is refused: an owner of before made it |
//! | id is at or below the last one | it was seen and is dropped |
//! | `prev` is the last one | it is handed on, and what waited for it |
//! | `prev` is below the last one | it is handed on; that the producers' state went back is told |
//! | `prev` is above the last one, or was | it waits |
//!
//! An older token is no reason to refuse what was stamped before the newer one was given: such an event has only been overtaken.

use super::name::Object;
use super::stamp::{Generation, Stamp};
use super::worker::OrderedEvent;
use foldhash::fast::FixedState;
use lru::LruCache;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Limits and times of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Objects that are remembered. Beyond, the one whose last event came longest ago is forgotten, which is told.
    pub objects_max: NonZeroUsize,
    /// Events that wait. Beyond, the oldest gap is given up at once.
    pub held_max: usize,
    /// Bytes of the payloads of events that wait. Beyond, the oldest gap is given up at once.
    pub held_bytes_max: usize,
    /// How long to wait before a missing event is asked for, in milliseconds: for those that were only overtaken.
    pub grace_ms: u64,
    /// How long to wait for a missing event altogether, in milliseconds; more than the grace. What is missing before it has its own time.
    pub patience_ms: u64,
}

/// What a consumer wants done, or tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The next event of its object. It counts as processed: the next one may follow at once.
    Deliver(OrderedEvent),
    /// The event is missing: it is wanted from recovery or from a store, by [`Consumer::on_event`], or word that it cannot be had, by
    /// [`Consumer::on_gone`].
    Fetch {
        /// The object.
        object: Object,
        /// The event.
        id: Stamp,
        /// When it is given up, in milliseconds.
        until_ms: u64,
    },
    /// The event cannot be had. Others between `after` and this one may be missing too. The object goes on.
    Missing {
        /// The object.
        object: Object,
        /// The event.
        id: Stamp,
        /// The last one handed on before.
        after: Stamp,
    },
    /// An event came from a worker that was not the object's owner any more. It is not processed.
    Refused {
        /// The object.
        object: Object,
        /// The event.
        id: Stamp,
        /// Its token.
        token: Stamp,
    },
    /// The object's events are of a new generation: the producers lost their state, or it went back. Events may be gone, and events
    /// handed on before may come again with other ids.
    LostGeneration {
        /// The object.
        object: Object,
        /// What it was.
        known: Generation,
        /// What it is.
        found: Generation,
    },
    /// The event that follows names one as its predecessor that has other successors already.
    Rewound {
        /// The object.
        object: Object,
        /// The event that follows.
        id: Stamp,
        /// What it names.
        prev: Option<Stamp>,
        /// The last one handed on.
        last: Stamp,
    },
    /// Too many objects: this one is forgotten. Its next event is a baseline again.
    Forgotten {
        /// The object.
        object: Object,
        /// Its last event that was handed on.
        last: Stamp,
    },
}

/// What is known of an object.
#[derive(Debug)]
struct Known {
    last: Stamp,
    /// The highest token of its events.
    token: Stamp,
    held: BTreeMap<Stamp, OrderedEvent>,
    gap: Option<Gap>,
}

/// The event that the first one of those held waits for.
#[derive(Clone, Copy, Debug)]
struct Gap {
    id: Stamp,
    /// When to ask; `None` once that is done.
    ask_ms: Option<u64>,
    until_ms: u64,
}

/// A consumer of the events of any number of objects.
#[derive(Debug)]
pub struct Consumer {
    settings: Settings,
    objects: LruCache<Object, Known, FixedState>,
    /// Of each gap that was not asked for yet: when to ask, and its object.
    asks: BTreeSet<(u64, Object)>,
    /// Of each gap: when it is given up, and its object.
    untils: BTreeSet<(u64, Object)>,
    held: usize,
    held_bytes: usize,
}

impl Consumer {
    /// One that knows no object; `seed` is for the hash of its table.
    pub fn new(settings: Settings, seed: u64) -> Consumer {
        Consumer {
            settings,
            objects: LruCache::unbounded_with_hasher(FixedState::with_seed(seed)),
            asks: BTreeSet::new(),
            untils: BTreeSet::new(),
            held: 0,
            held_bytes: 0,
        }
    }

    /// An event came, from wherever. `now_ms` never goes back.
    pub fn on_event(&mut self, now_ms: u64, event: OrderedEvent, out: &mut Vec<Effect>) {
        let Some(known) = self.objects.get_mut(&event.object) else { return self.on_baseline(event, out) };
        if event.token < known.token && known.token < event.id {
            return out.push(Effect::Refused { object: event.object, id: event.id, token: event.token });
        }
        if event.id <= known.last || known.held.contains_key(&event.id) {
            return;
        }
        let (before, after) = (known.token.generation(), event.token.generation());
        if before < after {
            out.push(Effect::LostGeneration { object: event.object.clone(), known: before, found: after });
        }
        known.token = known.token.max(event.token);
        self.held += 1;
        self.held_bytes += event.payload.len();
        let object = event.object.clone();
        known.held.insert(event.id, event);
        self.release(now_ms, &object, out);
        while self.settings.held_max < self.held || self.settings.held_bytes_max < self.held_bytes {
            let (_, oldest) = self.untils.first().cloned().expect("whatever waits, waits for something");
            self.give_up(now_ms, &oldest, out);
        }
    }

    /// An event that was asked for cannot be had.
    pub fn on_gone(&mut self, now_ms: u64, object: &Object, id: Stamp, out: &mut Vec<Effect>) {
        if self.gap(object).is_some_and(|gap| gap.id == id) {
            self.give_up(now_ms, object, out);
        }
    }

    /// When [`on_deadline`](Consumer::on_deadline) is next worth calling, in milliseconds.
    pub fn deadline_ms(&self) -> Option<u64> {
        let (ask, until) = (self.asks.first(), self.untils.first());
        ask.into_iter().chain(until).map(|(deadline_ms, _)| *deadline_ms).min()
    }

    /// Time has passed.
    pub fn on_deadline(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        while let Some((_, object)) = self.untils.first().filter(|(until_ms, _)| *until_ms <= now_ms).cloned() {
            self.give_up(now_ms, &object, out);
        }
        while let Some((_, object)) = self.asks.first().filter(|(ask_ms, _)| *ask_ms <= now_ms).cloned() {
            let gap = self.gap(&object).expect("only gaps are asked for");
            self.set_gap(&object, Some(Gap { ask_ms: None, ..gap }));
            out.push(Effect::Fetch { object, id: gap.id, until_ms: gap.until_ms });
        }
    }

    /// The object's last event that was handed on; `None` if the object is not known.
    pub fn last(&self, object: &Object) -> Option<Stamp> {
        self.objects.peek(object).map(|known| known.last)
    }

    /// Events that wait, of all objects.
    pub fn held(&self) -> usize {
        self.held
    }

    fn on_baseline(&mut self, event: OrderedEvent, out: &mut Vec<Effect>) {
        while self.settings.objects_max.get() <= self.objects.len() {
            self.forget_oldest(out);
        }
        let known = Known { last: event.id, token: event.token, held: BTreeMap::new(), gap: None };
        self.objects.put(event.object.clone(), known);
        out.push(Effect::Deliver(event));
    }

    /// Forgets the object whose last event came longest ago. What waits is handed on, and what is missing for it is told.
    fn forget_oldest(&mut self, out: &mut Vec<Effect>) {
        let (object, _) = self.objects.peek_lru().expect("at least one object is remembered");
        let object = object.clone();
        while self.gap(&object).is_some() {
            self.give_up(0, &object, out);
        }
        let known = self.objects.pop(&object).expect("found above");
        out.push(Effect::Forgotten { object, last: known.last });
    }

    fn gap(&self, object: &Object) -> Option<Gap> {
        self.objects.peek(object)?.gap
    }

    fn set_gap(&mut self, object: &Object, gap: Option<Gap>) {
        let known = self.objects.peek_mut(object).expect("only of objects that are known");
        if let Some(before) = std::mem::replace(&mut known.gap, gap) {
            if let Some(ask_ms) = before.ask_ms {
                self.asks.remove(&(ask_ms, object.clone()));
            }
            self.untils.remove(&(before.until_ms, object.clone()));
        }
        if let Some(gap) = gap {
            self.asks.extend(gap.ask_ms.map(|ask_ms| (ask_ms, object.clone())));
            self.untils.insert((gap.until_ms, object.clone()));
        }
    }

    /// Goes on without the missing event.
    fn give_up(&mut self, now_ms: u64, object: &Object, out: &mut Vec<Effect>) {
        let known = self.objects.peek_mut(object).expect("only of objects that are known");
        let gap = known.gap.expect("only of objects with a gap");
        out.push(Effect::Missing { object: object.clone(), id: gap.id, after: known.last });
        known.last = gap.id;
        self.release(now_ms, object, out);
    }

    /// Hands on what waits for nothing any more, and finds what the rest waits for.
    fn release(&mut self, now_ms: u64, object: &Object, out: &mut Vec<Effect>) {
        let known = self.objects.peek_mut(object).expect("only of objects that are known");
        let mut missing = None;
        while let Some(first) = known.held.first_entry() {
            let prev = first.get().prev;
            if Some(known.last) < prev {
                missing = prev;
                break;
            }
            let event = first.remove();
            self.held -= 1;
            self.held_bytes -= event.payload.len();
            if prev < Some(known.last) {
                out.push(Effect::Rewound { object: object.clone(), id: event.id, prev, last: known.last });
            }
            known.last = event.id;
            out.push(Effect::Deliver(event));
        }
        let before = known.gap;
        if missing == before.map(|gap| gap.id) {
            return;
        }
        let gap = missing.map(|id| Gap {
            id,
            ask_ms: Some(now_ms.saturating_add(self.settings.grace_ms)),
            until_ms: now_ms.saturating_add(self.settings.patience_ms),
        });
        self.set_gap(object, gap);
    }
}
