//! Tests of a worker step by step against a store in memory: its actions, their order, and its reports.

use crate::event::order::memory::MemoryStore;
use crate::event::order::mutant::OrderMutants;
use crate::event::order::name::{Object, WorkerName};
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::store::{
    BYTES_PER_STEP, EVENTS_PER_STEP, OBJECTS_PER_STEP, OpOutcome, Store, StoreOp, WorkerOp,
};
use crate::event::order::worker::{Settings, Worker, WorkerAction, WorkerAdvisory, WorkerEnd};
use bytes::Bytes;
use std::collections::BTreeSet;

const LEASE_MS: u64 = 100;

fn worker(name: &str, mark: Option<OrderStamp>) -> Worker {
    Worker::new(Settings { name: WorkerName::new(name).unwrap(), lease_ms: LEASE_MS }, mark)
}

/// Returns the stamp with this count in the first generation.
fn stamp(count: u64) -> OrderStamp {
    OrderStamp::from_number(OrderStamp::begin(Generation::new(1).unwrap()).number() + count).unwrap()
}

fn push(store: &mut MemoryStore, events: &[&'static str]) {
    push_to(store, "x", events);
}

/// Pushes main events, and begins a generation if there is none.
fn push_to(store: &mut MemoryStore, object: &str, events: &[&'static str]) {
    let object = Object::new(object).unwrap();
    let _ = store.apply(&StoreOp::Begin { found: None, generation: Generation::new(1).unwrap() });
    for event in events {
        let Ok(OpOutcome::MarkRead { mark }) = store.apply(&StoreOp::ReadMark) else {
            panic!("a generation was begun")
        };
        let (data, main) = (Bytes::new(), Bytes::from_static(event.as_bytes()));
        let Ok(outcome) = store.apply(&StoreOp::Push { mark, object: object.clone(), data, main, subs: Vec::new() });
        assert_eq!(outcome, OpOutcome::Pushed { mark });
    }
}

/// Returns a short text for a step; ids are written as the count of their generation.
fn describe(step: &WorkerAction) -> String {
    match step {
        WorkerAction::Apply(StoreOp::ReadMark) => "read mark".to_owned(),
        WorkerAction::Apply(StoreOp::Begin { generation, .. }) => format!("begin {generation}"),
        WorkerAction::Apply(StoreOp::Open { .. }) => "open".to_owned(),
        WorkerAction::Apply(StoreOp::Push { .. } | StoreOp::Show { .. }) => unreachable!("workers do neither"),
        WorkerAction::Apply(StoreOp::WorkerOp { op, .. }) => match op {
            WorkerOp::Take => "take".to_owned(),
            WorkerOp::TakeOver => "take over".to_owned(),
            WorkerOp::Claim { .. } => "claim".to_owned(),
            WorkerOp::Next { .. } => "next".to_owned(),
            WorkerOp::Record { .. } => "record".to_owned(),
            WorkerOp::Advance { .. } => "advance".to_owned(),
            WorkerOp::Leave => "leave".to_owned(),
            WorkerOp::Renew { .. } => "renew".to_owned(),
            WorkerOp::Drop { .. } => "drop".to_owned(),
        },
        WorkerAction::Send(event) => {
            let prev = event.prev.map_or("-".to_owned(), |prev| prev.count().to_string());
            format!("send {} {prev} @{}", event.id.count(), event.token.count())
        }
        WorkerAction::Report(WorkerAdvisory::LostGeneration { known, found }) => {
            let number = |generation: &Option<Generation>| generation.map_or(0, Generation::number);
            format!("lost {} found {}", number(known), number(found))
        }
        WorkerAction::Report(WorkerAdvisory::TakenOver { object }) => format!("{object} taken over"),
        WorkerAction::Wait { until_ms } => format!("wait {until_ms}"),
        WorkerAction::Stop(stop) => format!("{stop:?}"),
    }
}

/// Runs the worker until it waits, stops, or sends while `is_sent` is false.
fn run(worker: &mut Worker, store: &mut MemoryStore, now_ms: u64, is_sent: bool) -> String {
    let mut steps = Vec::new();
    loop {
        let step = worker.poll_step(now_ms);
        steps.push(describe(&step));
        match step {
            WorkerAction::Apply(op) => {
                let Ok(outcome) = store.apply(&op);
                worker.on_outcome(now_ms, outcome);
            }
            WorkerAction::Send(event) if is_sent => worker.on_sent(event.id),
            WorkerAction::Send(_) | WorkerAction::Wait { .. } | WorkerAction::Stop(_) => return steps.join(", "),
            WorkerAction::Report(_) => {}
        }
    }
}

#[test]
fn worker_takes_the_steps_of_the_seed() {
    let (mut store, mut a) = (MemoryStore::default(), worker("A", None));
    assert_eq!(run(&mut a, &mut store, 0, true), "read mark, begin 1, open, take over, take, wait 100");
    push(&mut store, &["one", "two"]);
    a.on_push();
    let mut stepwise = a.clone().with_mutants(OrderMutants::default().stepwise());
    let expected = "take, claim, next, send 3 - @2, send 4 3 @2, record, next, drop, take, claim, next, drop, \
                    take, wait 100";
    assert_eq!(run(&mut stepwise, &mut store.clone(), 1, true), expected);
    // Batches have one event, as in the seed.
    let mut single = store.clone().with_batches_of(1);
    let expected = "take, claim, next, send 3 - @2, record, next, send 4 3 @2, record, next, drop, take, claim, next, drop, \
                    take, wait 100";
    assert_eq!(run(&mut a.clone().with_mutants(OrderMutants::default().stepwise()), &mut single, 1, true), expected);
    assert_eq!(run(&mut a, &mut store, 1, true), "take, claim, next, send 3 - @2, send 4 3 @2, advance, wait 100");
    assert_eq!(run(&mut a, &mut store, 100, true), "take over, take, wait 200");
    assert_eq!((a.object(), a.mark().map(OrderStamp::count)), (None, Some(4)));
}

/// The combined step has the effect of the single steps, apart from stamps that the single steps give out in vain.
#[test]
fn combined_step_equals_the_single_steps() {
    for objects in [vec!["x"], vec!["x", "x"], vec!["x", "y"], vec!["x", "x", "y"], vec!["x", "y", "x", "y", "x"]] {
        let mut ends = Vec::new();
        for mutants in [OrderMutants::default(), OrderMutants::default().stepwise()] {
            let (mut store, mut a) =
                (MemoryStore::default().with_batches_of(2), worker("A", None).with_mutants(mutants));
            for name in &objects {
                push_to(&mut store, name, &["main"]);
            }
            let mut sent = Vec::new();
            loop {
                match a.poll_step(0) {
                    WorkerAction::Apply(op) => {
                        let Ok(outcome) = store.apply(&op);
                        a.on_outcome(0, outcome);
                    }
                    WorkerAction::Send(event) => {
                        a.on_sent(event.id);
                        sent.push(event);
                    }
                    WorkerAction::Wait { .. } => break,
                    step => panic!("{step:?}"),
                }
            }
            // Stamps are compared by their positions among all that were sent.
            let position = |id: OrderStamp| sent.iter().position(|event| event.id == id);
            let events: Vec<_> = sent.iter().map(|event| (event.object.clone(), event.prev.map(position))).collect();
            let lasts: Vec<_> = ["x", "y"].map(|name| store.last(&Object::new(name).unwrap()).map(position)).into();
            let is_empty =
                store.with_events().next().is_none() && store.workers().all(|(_, record)| record.lease.is_none());
            assert_eq!((events.len(), is_empty), (objects.len(), true), "{objects:?}");
            ends.push((events, lasts));
        }
        assert_eq!(ends[0], ends[1], "{objects:?}");
    }
}

#[test]
fn batch_has_limited_events_and_bytes() {
    let (mut store, mut a) = (MemoryStore::default(), worker("A", None));
    push(&mut store, &["one"; EVENTS_PER_STEP + 2]);
    let large: &'static str = "x".repeat(BYTES_PER_STEP / 2).leak();
    push_to(&mut store, "y", &[large, large, large]);
    let steps = run(&mut a, &mut store, 0, true);
    let sends: Vec<usize> = steps.split("advance").map(|part| part.matches("send").count()).collect();
    assert_eq!(sends, [EVENTS_PER_STEP, 2, 2, 1, 0], "{steps}");
}

#[test]
fn step_skips_a_limited_number_of_entries() {
    let (mut store, mut a) = (MemoryStore::default(), worker("A", None));
    push(&mut store, &["one"; OBJECTS_PER_STEP + 2]);
    let steps = run(&mut a, &mut store, 0, true);
    assert!(steps.ends_with("advance, take, claim, next, drop, take, wait 100"), "{steps}");
}

#[test]
fn ending_worker_finishes_its_object() {
    let (mut store, mut a) = (MemoryStore::default(), worker("A", None));
    push(&mut store, &["one", "two"]);
    push_to(&mut store, "y", &["three"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    a.on_end();
    a.on_sent(stamp(3));
    assert_eq!(run(&mut a, &mut store, 0, true), "send 4 3 @2, record, next, drop, leave, Ended");
    assert_eq!((store.workers().count(), store.with_events().count()), (0, 2));
}

#[test]
fn lease_is_renewed_while_an_event_is_sent() {
    let (mut store, mut a, mut b) = (MemoryStore::default(), worker("A", None), worker("B", None));
    push(&mut store, &["one"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    assert_eq!(run(&mut a, &mut store, 49, false), "wait 50");
    assert_eq!(run(&mut a, &mut store, 70, false), "renew, wait 120");
    assert_eq!(run(&mut b, &mut store, 110, true), "read mark, open, take over, take, wait 170");
    a.on_sent(OrderStamp::begin(Generation::new(1).unwrap()));
    assert_eq!(run(&mut a, &mut store, 119, false), "wait 120", "another event was sent");
    a.on_sent(a.mark().unwrap());
    assert_eq!(run(&mut a, &mut store, 119, false), "record, next, drop, take over, take, wait 219");
}

#[test]
fn lease_is_renewed_within_a_batch() {
    let (mut store, mut a) = (MemoryStore::default(), worker("A", None));
    push(&mut store, &["one", "two", "three"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    // This is not the event being sent.
    a.on_sent(stamp(4));
    assert_eq!(run(&mut a, &mut store, 10, false), "wait 50");
    a.on_sent(stamp(3));
    assert_eq!(run(&mut a, &mut store, 10, false), "send 4 3 @2");
    a.on_sent(stamp(4));
    assert_eq!(run(&mut a, &mut store, 60, false), "renew, send 5 4 @2");
    // This is an earlier event.
    a.on_sent(stamp(4));
    assert_eq!(run(&mut a, &mut store, 60, false), "wait 110");
    let steps = run(&mut worker("B", None), &mut store, 160, true);
    assert!(steps.contains("take over, claim, send 3 - @8, send 4 3 @8, send 5 4 @8, record"), "{steps}");
    assert!(run(&mut a, &mut store, 161, false).starts_with("renew, x taken over, open"));
}

#[test]
fn superseded_owner_reports_it_and_takes_another_object() {
    let (mut store, mut a, mut b) = (MemoryStore::default(), worker("A", None), worker("B", None));
    push(&mut store, &["one", "two"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    // The event has the same id and prev, but another token; 6 is that of the takeover.
    assert_eq!(run(&mut b, &mut store, 100, false), "read mark, open, take over, claim, send 3 - @7");
    a.on_sent(stamp(3));
    let expected = "renew, x taken over, open, take over, take, claim, drop, take, wait 200";
    assert_eq!(run(&mut a, &mut store, 101, true), expected);
    push(&mut store, &["three"]);
    b.on_sent(stamp(3));
    assert!(
        run(&mut b, &mut store, 102, true).starts_with("send 4 3 @7, record, next, send 9 4 @7, record, next, drop")
    );
}

#[test]
fn newer_worker_of_a_name_supersedes_the_older() {
    let (mut store, mut old, mut new) = (MemoryStore::default(), worker("A", None), worker("A", None));
    push(&mut store, &["one"]);
    assert!(run(&mut old, &mut store, 0, false).ends_with("send 3 - @2"));
    assert_eq!(run(&mut new, &mut store, 1, false), "read mark, open, claim, send 3 - @5");
    old.on_sent(old.mark().unwrap());
    assert_eq!(run(&mut old, &mut store, 2, true), "advance, Superseded");
    assert_eq!(old.poll_step(3), WorkerAction::Stop(WorkerEnd::Superseded));
}

/// The outcome of any step may be unknown: the store may or may not have done it.
#[test]
fn unknown_outcome_repeats_only_the_sending() {
    for fails_at in 0..12 {
        for is_done in [false, true] {
            let (mut store, mut a) = (MemoryStore::default(), worker("A", None));
            push(&mut store, &["one", "two"]);
            let (mut sent, mut applied) = (Vec::new(), 0);
            loop {
                match a.poll_step(0) {
                    WorkerAction::Apply(op) => {
                        applied += 1;
                        let is_known = applied != fails_at + 1;
                        if is_known || is_done {
                            let Ok(outcome) = store.apply(&op);
                            if is_known {
                                a.on_outcome(0, outcome);
                            }
                        }
                        if !is_known {
                            a.on_unknown();
                        }
                    }
                    WorkerAction::Send(event) => {
                        a.on_sent(event.id);
                        sent.push((event.id, event.prev, event.payload));
                    }
                    WorkerAction::Wait { .. } => break,
                    step => panic!("{step:?}"),
                }
            }
            let mut ids = BTreeSet::new();
            sent.retain(|(id, ..)| ids.insert(*id));
            let [(first, None, one), (_, Some(prev), two)] = &sent[..] else { panic!("{sent:?}") };
            assert_eq!((first, &one[..], &two[..]), (prev, &b"one"[..], &b"two"[..]));
            assert_eq!(store.with_events().count(), 0);
        }
    }
}

#[test]
fn rewound_state_is_reported() {
    let (mut store, mut a) = (MemoryStore::default(), worker("A", None));
    push(&mut store, &["one"]);
    let earlier = store.clone();
    run(&mut a, &mut store, 0, true);
    let mark = a.mark();
    store.rewind(earlier.clone());
    assert_eq!(run(&mut a, &mut store, 99, true), "wait 100");
    a.on_push();
    let expected = "take over, read mark, lost 1 found 1, begin 2, open, take over, take, claim, next, send 3 - @2, \
                    advance, wait 200";
    assert_eq!(run(&mut a, &mut store, 100, true), expected);
    // The state is a backup that does not know it: a worker that remembers a higher stamp detects it.
    let mut store = earlier.clone();
    assert!(run(&mut worker("B", mark), &mut store, 0, true).starts_with("read mark, lost 1 found 1, begin 2, open"));
    // The whole state is lost.
    store.rewind(MemoryStore::default());
    assert!(run(&mut worker("C", mark), &mut store, 0, true).starts_with("read mark, lost 1 found 0, begin 2, open"));
    // Another worker has begun a generation already.
    assert!(run(&mut worker("D", mark), &mut store, 0, true).starts_with("read mark, lost 1 found 2, open"));
}
