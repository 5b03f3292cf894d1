//! Conformance of all stores: random histories have the same outcomes and leave the same state. The histories have
//! several front ends and workers, restarts, and steps that name the wrong object, token, session or stamp.

use super::{REDIS_PREFIX, apply};
use crate::support::TempDir;
use crate::support::redis_server::RedisServer;
use bytes::Bytes;
use seqcast::event::order::memory::MemoryStore;
use seqcast::event::order::name::{Object, WorkerName};
use seqcast::event::order::stamp::{Generation, OrderStamp};
use seqcast::event::order::store::{
    BYTES_PER_STEP, EVENTS_PER_STEP, OBJECTS_PER_STEP, OpOutcome, StampedEvent, Store, StoreOp, StoreSnapshot,
    WorkerContext, WorkerOp,
};
use seqcast::rng::Rng;
use seqcast::storage::order::redis::RedisStore;
use seqcast::storage::order::sqlite::SqliteStore;
use std::collections::BTreeMap;

/// Names that would break a store that does not keep them apart.
const OBJECTS: [&str; 6] =
    ["work:1", "event.worker:A", "objects.with", "work:1:events", "' OR 1=1 --; \"\\ %s \u{1f980}", "{x}*?[a-c]"];
const WORKERS: [&str; 4] = ["A", "B", "A:object", "C C"];

/// Values that a caller may know. They are drawn from observed ones, so that they are often right and sometimes old.
#[derive(Default)]
struct ObservedValues {
    stamps: Vec<OrderStamp>,
    sessions: BTreeMap<WorkerName, OrderStamp>,
    leases: BTreeMap<WorkerName, (Object, Option<OrderStamp>, Option<OrderStamp>)>,
    mark: Option<OrderStamp>,
    now_ms: u64,
}

impl ObservedValues {
    fn observe(&mut self, worker: Option<&WorkerName>, op: Option<&WorkerOp>, outcome: &OpOutcome) {
        let seen: &[OrderStamp] = match outcome {
            OpOutcome::MarkRead { mark } | OpOutcome::Pushed { mark } => &[*mark],
            OpOutcome::Opened { session, .. } => &[*session],
            OpOutcome::Claimed { token, .. } => &[*token],
            OpOutcome::Next(batch) => &[last(batch)],
            OpOutcome::Advanced { token, batch, .. } => &[*token, last(batch)],
            _ => &[],
        };
        self.stamps.extend(seen);
        self.mark = self.mark.max(seen.iter().max().copied());
        let Some(worker) = worker else { return };
        match (outcome, op) {
            (OpOutcome::Opened { session, object }, _) => {
                self.sessions.insert(worker.clone(), *session);
                if let Some(object) = object {
                    self.leases.insert(worker.clone(), (object.clone(), None, None));
                }
            }
            (OpOutcome::Taken { object }, _) => drop(self.leases.insert(worker.clone(), (object.clone(), None, None))),
            (OpOutcome::Claimed { token, unfinished }, Some(WorkerOp::Claim { object })) => {
                let id = unfinished.last().map(|event| event.id);
                self.leases.insert(worker.clone(), (object.clone(), Some(*token), id));
            }
            (OpOutcome::Next(batch), Some(WorkerOp::Next { object, token })) => {
                self.leases.insert(worker.clone(), (object.clone(), Some(*token), Some(last(batch))));
            }
            (OpOutcome::Advanced { object, token, batch }, _) => {
                self.leases.insert(worker.clone(), (object.clone(), Some(*token), Some(last(batch))));
            }
            (OpOutcome::Done, Some(WorkerOp::Record { object, token, .. })) => {
                self.leases.insert(worker.clone(), (object.clone(), Some(*token), None));
            }
            (OpOutcome::Emptied, Some(WorkerOp::Next { object, .. })) => {
                self.leases.insert(worker.clone(), (object.clone(), None, None));
            }
            (OpOutcome::Empty | OpOutcome::Paused | OpOutcome::NotHeld, _)
            | (OpOutcome::Done, Some(WorkerOp::Drop { .. })) => {
                self.leases.remove(worker);
            }
            _ => {}
        }
    }

    fn any(&self, rng: &mut Rng) -> OrderStamp {
        self.stamps[rng.below(self.stamps.len() as u64) as usize]
    }

    /// Returns a mark, mostly the highest one.
    fn mark(&self, rng: &mut Rng) -> OrderStamp {
        let mark = self.mark.expect("a generation was begun first");
        match rng.below(60) {
            0 => mark.next().expect("far from the last"),
            1 => OrderStamp::begin(Generation::new(mark.generation().number() + 1).expect("far from the last")),
            2..10 => self.any(rng),
            _ => mark,
        }
    }

    fn random_op(&mut self, rng: &mut Rng) -> StoreOp {
        let pick = |rng: &mut Rng, names: &[&'static str]| names[rng.below(names.len() as u64) as usize];
        let object = Object::new(pick(rng, &OBJECTS)).expect("a name");
        self.now_ms += rng.below(30);
        let number = rng.below(1_000_000);
        let bytes = |kind: &str| Bytes::from([kind.as_bytes(), &[0, 255, b'\n'], &number.to_le_bytes()].concat());
        if rng.chance(0.1) {
            // Seldom more than one batch, by number or by length.
            let (count, bytes_max) = match rng.below(20) {
                0 => (3 * EVENTS_PER_STEP as u64, 0),
                1 => (6, BYTES_PER_STEP),
                _ => (3, 0),
            };
            let mut subs = Vec::new();
            for _ in 0..rng.below(count) {
                let long = vec![b'x'; rng.below(bytes_max as u64 + 1) as usize];
                subs.push(Bytes::from([&bytes("sub")[..], &long].concat()));
            }
            return StoreOp::Push { mark: self.mark(rng), object, data: bytes("data"), main: bytes("main"), subs };
        }
        if rng.chance(0.02) {
            let found = self.mark.map(OrderStamp::generation).filter(|_| rng.chance(0.8));
            let number = found.map_or(3, Generation::number) + rng.below(3) as u32;
            return StoreOp::Begin { found, generation: Generation::new(number).expect("small") };
        }
        if rng.chance(0.02) {
            return StoreOp::ReadMark;
        }
        let worker = WorkerName::new(pick(rng, &WORKERS)).expect("a name");
        let context = WorkerContext { worker, mark: self.mark(rng), now_ms: self.now_ms, lease_ms: 100 };
        let Some(session) = self.sessions.get(&context.worker).copied().filter(|_| rng.chance(0.95)) else {
            return StoreOp::Open { context };
        };
        let session = if rng.chance(0.02) { self.any(rng) } else { session };
        let op = self.random_worker_op(rng, &context.worker, object);
        StoreOp::WorkerOp { context, session, op }
    }

    fn random_worker_op(&self, rng: &mut Rng, worker: &WorkerName, other: Object) -> WorkerOp {
        let lease = self.leases.get(worker).cloned();
        let wrong = OrderStamp::begin(Generation::new(1).expect("one"));
        let (mut object, mut token, mut id) = match lease {
            Some((object, token, id)) => (object, token.unwrap_or(wrong), id.unwrap_or(wrong)),
            None => (other.clone(), wrong, wrong),
        };
        match rng.below(30) {
            0 => object = other,
            1 => token = self.any(rng),
            2 => id = self.any(rng),
            _ => {}
        }
        // A worker's likely step is drawn most of the time.
        let likely = match self.leases.get(worker) {
            None => 0..5,
            Some((_, None, _)) => 5..8,
            Some((_, Some(_), None)) => 8..10,
            Some((_, Some(_), Some(_))) => 10..15,
        };
        let among = if rng.chance(0.15) { 0..17 } else { likely };
        match rng.between(among.start, among.end - 1) {
            0..4 => WorkerOp::Take,
            4 => WorkerOp::TakeOver,
            5 | 6 => WorkerOp::Claim { object },
            7 => WorkerOp::Drop { object },
            8 | 9 => WorkerOp::Next { object, token },
            10..13 => WorkerOp::Advance { object, token, id },
            13 | 14 => WorkerOp::Record { object, token, id },
            15 => WorkerOp::Renew { object, token },
            _ => WorkerOp::Leave,
        }
    }
}

fn last(batch: &[StampedEvent]) -> OrderStamp {
    batch.last().expect("at least one event").id
}

fn shown(outcome: OpOutcome) -> StoreSnapshot {
    let OpOutcome::Shown(shown) = outcome else { panic!("{outcome:?} of a look at everything") };
    shown
}

/// Runs the histories and returns how often each outcome was seen.
fn check<S: Store<Error: std::fmt::Debug>>(
    seed: u64,
    steps: usize,
    real: &mut S,
    again: impl Fn() -> S,
) -> BTreeMap<String, u32> {
    let (mut rng, mut twin, mut observed) = (Rng::new(seed), MemoryStore::default(), ObservedValues::default());
    let mut counts = BTreeMap::new();
    let mut both = |real: &mut S, op: &StoreOp, what: &str| {
        let (expected, outcome) = (apply(&mut twin, op), apply(real, op));
        assert_eq!(outcome, expected, "seed {seed}, {what}: {op:?}");
        outcome
    };
    both(real, &StoreOp::ReadMark, "first");
    let begin = StoreOp::Begin { found: None, generation: Generation::new(1 << 24).expect("below 2^25") };
    observed.observe(None, None, &both(real, &begin, "second"));
    for step in 0..steps {
        let op = observed.random_op(&mut rng);
        let outcome = both(real, &op, &format!("step {step}"));
        let (worker, worker_op) = match &op {
            StoreOp::Open { context } => (Some(&context.worker), None),
            StoreOp::WorkerOp { context, op, .. } => (Some(&context.worker), Some(op)),
            _ => (None, None),
        };
        observed.observe(worker, worker_op, &outcome);
        *counts.entry(name(&outcome)).or_insert(0) += 1;
        if step % 10 == 0 {
            let objects = OBJECTS.iter().map(|name| Object::new(name).expect("a name")).collect();
            let queued_max = rng.below(4) as usize;
            let all = shown(both(real, &StoreOp::Show { objects, queued_max }, "shown"));
            assert!(all.mark.is_some() && OBJECTS.len() <= all.objects.len());
            both(real, &StoreOp::Show { objects: Vec::new(), queued_max }, "shown");
        }
        if step % 500 == 499 {
            *real = again();
        }
    }
    counts
}

/// Returns the outcome in a word, and whether it has several events, the maximum number, or the maximum length.
fn name(outcome: &OpOutcome) -> String {
    let name = format!("{outcome:?}").split([' ', '(']).next().expect("a word").to_owned();
    let batch: &[StampedEvent] = match outcome {
        OpOutcome::Next(batch) | OpOutcome::Advanced { batch, .. } | OpOutcome::Claimed { unfinished: batch, .. } => {
            batch
        }
        _ => &[],
    };
    let bytes: usize = batch.iter().map(|event| event.payload.len()).sum();
    match batch.len() {
        EVENTS_PER_STEP => name + " all",
        2.. if BYTES_PER_STEP <= bytes => name + " long",
        2.. => name + " some",
        _ => name,
    }
}

/// Checks that every outcome was seen.
fn check_counts(counts: &BTreeMap<String, u32>) {
    let names = [
        "Advanced",
        "Advanced all",
        "Advanced long",
        "Advanced some",
        "Claimed",
        "Claimed all",
        "Claimed long",
        "Claimed some",
        "Done",
        "Emptied",
        "Empty",
        "LostGeneration",
        "MarkRead",
        "Next",
        "Next all",
        "Next long",
        "Next some",
        "NoneEnded",
        "NotHeld",
        "Opened",
        "Owned",
        "Pushed",
        "Superseded",
        "Taken",
    ];
    for name in names {
        assert!(counts.get(name).is_some_and(|count| 3 <= *count), "{name}: {counts:?}");
    }
}

fn sum(all: &mut BTreeMap<String, u32>, counts: BTreeMap<String, u32>) {
    counts.into_iter().for_each(|(name, count)| *all.entry(name).or_insert(0) += count);
}

#[test]
fn redis_agrees_with_the_memory_store() {
    let dir = TempDir::new();
    let server = RedisServer::durable(dir.path());
    let mut all = BTreeMap::new();
    for seed in 0..6 {
        server.command::<()>(&["FLUSHALL"]);
        let open = || RedisStore::new(&server.url(), REDIS_PREFIX).expect("an address");
        sum(&mut all, check(seed, 2000, &mut open(), open));
    }
    check_counts(&all);
}

#[test]
fn sqlite_agrees_with_the_memory_store() {
    let mut all = BTreeMap::new();
    for seed in 0..6 {
        let dir = TempDir::new();
        let open = || SqliteStore::open(&dir.path().join("order.db")).expect("a file");
        sum(&mut all, check(seed, 2000, &mut open(), open));
    }
    check_counts(&all);
}

/// More entries without events than one step visits.
#[test]
fn all_stores_pause_after_equally_many_entries() {
    fn check<S: Store<Error: std::fmt::Debug>>(mut store: S) -> Vec<OpOutcome> {
        let mark = OrderStamp::begin(Generation::new(2).expect("one"));
        apply(&mut store, &StoreOp::Begin { found: None, generation: mark.generation() });
        let object = Object::new("x").expect("a name");
        for _ in 0..OBJECTS_PER_STEP + 6 {
            let (object, data, main) = (object.clone(), Bytes::new(), Bytes::from("e"));
            apply(&mut store, &StoreOp::Push { mark, object, data, main, subs: Vec::new() });
        }
        let context = WorkerContext { worker: WorkerName::new("A").expect("a name"), mark, now_ms: 0, lease_ms: 9 };
        let OpOutcome::Opened { session, .. } = apply(&mut store, &StoreOp::Open { context: context.clone() }) else {
            panic!("opens")
        };
        let mut apply_op = |op| apply(&mut store, &StoreOp::WorkerOp { context: context.clone(), session, op });
        apply_op(WorkerOp::Take);
        let OpOutcome::Claimed { token, .. } = apply_op(WorkerOp::Claim { object: object.clone() }) else {
            panic!("claims")
        };
        let mut outcomes = vec![apply_op(WorkerOp::Next { object: object.clone(), token })];
        loop {
            let id = match outcomes.last() {
                Some(OpOutcome::Next(batch) | OpOutcome::Advanced { batch, .. }) => last(batch),
                _ => return outcomes,
            };
            outcomes.push(apply_op(WorkerOp::Advance { object: object.clone(), token, id }));
        }
    }
    let dir = TempDir::new();
    let server = RedisServer::durable(dir.path());
    let outcomes = check(MemoryStore::default());
    assert_eq!(
        (outcomes.len(), outcomes.last()),
        ((OBJECTS_PER_STEP + 6).div_ceil(EVENTS_PER_STEP) + 1, Some(&OpOutcome::Paused))
    );
    assert_eq!(check(RedisStore::new(&server.url(), REDIS_PREFIX).expect("an address")), outcomes);
    assert_eq!(check(SqliteStore::open(&dir.path().join("order.db")).expect("a file")), outcomes);
}
