//! A worker step by step against a store in memory: what it asks for, in which order, and what it tells.

use crate::event::order::memory::Memory;
use crate::event::order::mutant::Mutants;
use crate::event::order::name::{Object, WorkerName};
use crate::event::order::stamp::{Generation, Stamp};
use crate::event::order::store::{Act, BYTES_PER_STEP, EVENTS_PER_STEP, OBJECTS_PER_STEP, Op, Outcome, Store};
use crate::event::order::worker::{Advice, Settings, Step, Stop, Worker};
use bytes::Bytes;
use std::collections::BTreeSet;

const LEASE_MS: u64 = 100;

fn worker(name: &str, mark: Option<Stamp>) -> Worker {
    Worker::new(Settings { name: WorkerName::new(name).unwrap(), lease_ms: LEASE_MS }, mark)
}

/// The stamp with this count in the first generation.
fn stamp(count: u64) -> Stamp {
    Stamp::from_number(Stamp::begin(Generation::new(1).unwrap()).number() + count).unwrap()
}

fn push(store: &mut Memory, events: &[&'static str]) {
    push_to(store, "x", events);
}

/// Pushes main events, and begins a generation if there is none.
fn push_to(store: &mut Memory, object: &str, events: &[&'static str]) {
    let object = Object::new(object).unwrap();
    let _ = store.apply(&Op::Begin { found: None, generation: Generation::new(1).unwrap() });
    for event in events {
        let Ok(Outcome::Looked { mark }) = store.apply(&Op::Look) else { panic!("a generation was begun") };
        let (data, main) = (Bytes::new(), Bytes::from_static(event.as_bytes()));
        let Ok(outcome) = store.apply(&Op::Push { mark, object: object.clone(), data, main, subs: Vec::new() });
        assert_eq!(outcome, Outcome::Pushed { mark });
    }
}

/// A step in a word; ids as the count of their generation.
fn shown(step: &Step) -> String {
    match step {
        Step::Apply(Op::Look) => "look".to_owned(),
        Step::Apply(Op::Begin { generation, .. }) => format!("begin {generation}"),
        Step::Apply(Op::Open { .. }) => "open".to_owned(),
        Step::Apply(Op::Push { .. } | Op::Show { .. }) => unreachable!("workers do neither"),
        Step::Apply(Op::Act { act, .. }) => match act {
            Act::Take => "take".to_owned(),
            Act::TakeOver => "take over".to_owned(),
            Act::Claim { .. } => "claim".to_owned(),
            Act::Next { .. } => "next".to_owned(),
            Act::Record { .. } => "record".to_owned(),
            Act::Advance { .. } => "advance".to_owned(),
            Act::Leave => "leave".to_owned(),
            Act::Renew { .. } => "renew".to_owned(),
            Act::Drop { .. } => "drop".to_owned(),
        },
        Step::Send(event) => {
            let prev = event.prev.map_or("-".to_owned(), |prev| prev.count().to_string());
            format!("send {} {prev} @{}", event.id.count(), event.token.count())
        }
        Step::Advise(Advice::LostGeneration { known, found }) => {
            let number = |generation: &Option<Generation>| generation.map_or(0, Generation::number);
            format!("lost {} found {}", number(known), number(found))
        }
        Step::Advise(Advice::TakenOver { object }) => format!("{object} taken over"),
        Step::Wait { until_ms } => format!("wait {until_ms}"),
        Step::Stop(stop) => format!("{stop:?}"),
    }
}

/// Lets the worker go on until it waits, stops, or sends and `is_sent` does not hold.
fn run(worker: &mut Worker, store: &mut Memory, now_ms: u64, is_sent: bool) -> String {
    let mut steps = Vec::new();
    loop {
        let step = worker.poll_step(now_ms);
        steps.push(shown(&step));
        match step {
            Step::Apply(op) => {
                let Ok(outcome) = store.apply(&op);
                worker.on_outcome(now_ms, outcome);
            }
            Step::Send(event) if is_sent => worker.on_sent(event.id),
            Step::Send(_) | Step::Wait { .. } | Step::Stop(_) => return steps.join(", "),
            Step::Advise(_) => {}
        }
    }
}

#[test]
fn the_steps_are_those_of_the_seed() {
    let (mut store, mut a) = (Memory::default(), worker("A", None));
    assert_eq!(run(&mut a, &mut store, 0, true), "look, begin 1, open, take over, take, wait 100");
    push(&mut store, &["one", "two"]);
    a.on_push();
    let mut stepwise = a.clone().mutated(Mutants::default().stepwise());
    let expected = "take, claim, next, send 3 - @2, send 4 3 @2, record, next, drop, take, claim, next, drop, \
                    take, wait 100";
    assert_eq!(run(&mut stepwise, &mut store.clone(), 1, true), expected);
    // With batches of one event, as in the seed.
    let mut single = store.clone().with_batches_of(1);
    let expected = "take, claim, next, send 3 - @2, record, next, send 4 3 @2, record, next, drop, take, claim, next, drop, \
                    take, wait 100";
    assert_eq!(run(&mut a.clone().mutated(Mutants::default().stepwise()), &mut single, 1, true), expected);
    assert_eq!(run(&mut a, &mut store, 1, true), "take, claim, next, send 3 - @2, send 4 3 @2, advance, wait 100");
    assert_eq!(run(&mut a, &mut store, 100, true), "take over, take, wait 200");
    assert_eq!((a.object(), a.mark().map(Stamp::count)), (None, Some(4)));
}

/// From one batch to the next is what the single steps are, one after the other, but for stamps that these give out for nothing.
#[test]
fn the_step_from_one_batch_to_the_next_is_the_single_steps() {
    for objects in [vec!["x"], vec!["x", "x"], vec!["x", "y"], vec!["x", "x", "y"], vec!["x", "y", "x", "y", "x"]] {
        let mut ends = Vec::new();
        for mutants in [Mutants::default(), Mutants::default().stepwise()] {
            let (mut store, mut a) = (Memory::default().with_batches_of(2), worker("A", None).mutated(mutants));
            for name in &objects {
                push_to(&mut store, name, &["main"]);
            }
            let mut sent = Vec::new();
            loop {
                match a.poll_step(0) {
                    Step::Apply(op) => {
                        let Ok(outcome) = store.apply(&op);
                        a.on_outcome(0, outcome);
                    }
                    Step::Send(event) => {
                        a.on_sent(event.id);
                        sent.push(event);
                    }
                    Step::Wait { .. } => break,
                    step => panic!("{step:?}"),
                }
            }
            // Stamps as their places among all that were sent.
            let place = |id: Stamp| sent.iter().position(|event| event.id == id);
            let told: Vec<_> = sent.iter().map(|event| (event.object.clone(), event.prev.map(place))).collect();
            let lasts: Vec<_> = ["x", "y"].map(|name| store.last(&Object::new(name).unwrap()).map(place)).into();
            let is_empty = store.with_events().next().is_none() && store.workers().all(|(_, kept)| kept.hold.is_none());
            assert_eq!((told.len(), is_empty), (objects.len(), true), "{objects:?}");
            ends.push((told, lasts));
        }
        assert_eq!(ends[0], ends[1], "{objects:?}");
    }
}

#[test]
fn a_batch_has_a_bounded_number_of_events_and_of_bytes() {
    let (mut store, mut a) = (Memory::default(), worker("A", None));
    push(&mut store, &["one"; EVENTS_PER_STEP + 2]);
    let large: &'static str = "x".repeat(BYTES_PER_STEP / 2).leak();
    push_to(&mut store, "y", &[large, large, large]);
    let steps = run(&mut a, &mut store, 0, true);
    let sends: Vec<usize> = steps.split("advance").map(|part| part.matches("send").count()).collect();
    assert_eq!(sends, [EVENTS_PER_STEP, 2, 2, 1, 0], "{steps}");
}

#[test]
fn entries_without_events_are_passed_over_a_bounded_number_at_a_time() {
    let (mut store, mut a) = (Memory::default(), worker("A", None));
    push(&mut store, &["one"; OBJECTS_PER_STEP + 2]);
    let steps = run(&mut a, &mut store, 0, true);
    assert!(steps.ends_with("advance, take, claim, next, drop, take, wait 100"), "{steps}");
}

#[test]
fn a_worker_that_is_to_end_finishes_its_object_and_is_forgotten() {
    let (mut store, mut a) = (Memory::default(), worker("A", None));
    push(&mut store, &["one", "two"]);
    push_to(&mut store, "y", &["three"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    a.on_end();
    a.on_sent(stamp(3));
    assert_eq!(run(&mut a, &mut store, 0, true), "send 4 3 @2, record, next, drop, leave, Ended");
    assert_eq!((store.workers().count(), store.with_events().count()), (0, 2));
}

#[test]
fn a_lease_is_renewed_while_an_event_is_sent() {
    let (mut store, mut a, mut b) = (Memory::default(), worker("A", None), worker("B", None));
    push(&mut store, &["one"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    assert_eq!(run(&mut a, &mut store, 49, false), "wait 50");
    assert_eq!(run(&mut a, &mut store, 70, false), "renew, wait 120");
    assert_eq!(run(&mut b, &mut store, 110, true), "look, open, take over, take, wait 170");
    a.on_sent(Stamp::begin(Generation::new(1).unwrap()));
    assert_eq!(run(&mut a, &mut store, 119, false), "wait 120", "another event was sent");
    a.on_sent(a.mark().unwrap());
    assert_eq!(run(&mut a, &mut store, 119, false), "record, next, drop, take over, take, wait 219");
}

#[test]
fn a_lease_is_renewed_between_the_events_of_a_batch() {
    let (mut store, mut a) = (Memory::default(), worker("A", None));
    push(&mut store, &["one", "two", "three"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    // Not the one that is being sent.
    a.on_sent(stamp(4));
    assert_eq!(run(&mut a, &mut store, 10, false), "wait 50");
    a.on_sent(stamp(3));
    assert_eq!(run(&mut a, &mut store, 10, false), "send 4 3 @2");
    a.on_sent(stamp(4));
    assert_eq!(run(&mut a, &mut store, 60, false), "renew, send 5 4 @2");
    // One of before.
    a.on_sent(stamp(4));
    assert_eq!(run(&mut a, &mut store, 60, false), "wait 110");
    let steps = run(&mut worker("B", None), &mut store, 160, true);
    assert!(steps.contains("take over, claim, send 3 - @8, send 4 3 @8, send 5 4 @8, record"), "{steps}");
    assert!(run(&mut a, &mut store, 161, false).starts_with("renew, x taken over, open"));
}

#[test]
fn who_is_taken_over_is_told_and_goes_on_with_something_else() {
    let (mut store, mut a, mut b) = (Memory::default(), worker("A", None), worker("B", None));
    push(&mut store, &["one", "two"]);
    assert!(run(&mut a, &mut store, 0, false).ends_with("send 3 - @2"));
    // The same ids and prevs, by another token; 6 is that of the taking over.
    assert_eq!(run(&mut b, &mut store, 100, false), "look, open, take over, claim, send 3 - @7");
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
fn of_two_workers_with_one_name_the_newer_one_runs() {
    let (mut store, mut old, mut new) = (Memory::default(), worker("A", None), worker("A", None));
    push(&mut store, &["one"]);
    assert!(run(&mut old, &mut store, 0, false).ends_with("send 3 - @2"));
    assert_eq!(run(&mut new, &mut store, 1, false), "look, open, claim, send 3 - @5");
    old.on_sent(old.mark().unwrap());
    assert_eq!(run(&mut old, &mut store, 2, true), "advance, Superseded");
    assert_eq!(old.poll_step(3), Step::Stop(Stop::Superseded));
}

/// At any step: the store did it, or did not, and the worker does not know.
#[test]
fn an_outcome_that_is_not_known_repeats_nothing_but_the_sending() {
    for fails_at in 0..12 {
        for is_done in [false, true] {
            let (mut store, mut a) = (Memory::default(), worker("A", None));
            push(&mut store, &["one", "two"]);
            let (mut sent, mut applied) = (Vec::new(), 0);
            loop {
                match a.poll_step(0) {
                    Step::Apply(op) => {
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
                    Step::Send(event) => {
                        a.on_sent(event.id);
                        sent.push((event.id, event.prev, event.payload));
                    }
                    Step::Wait { .. } => break,
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
fn a_state_that_went_back_is_told() {
    let (mut store, mut a) = (Memory::default(), worker("A", None));
    push(&mut store, &["one"]);
    let earlier = store.clone();
    run(&mut a, &mut store, 0, true);
    let mark = a.mark();
    store.go_back(earlier.clone());
    assert_eq!(run(&mut a, &mut store, 99, true), "wait 100");
    a.on_push();
    let expected = "take over, look, lost 1 found 1, begin 2, open, take over, take, claim, next, send 3 - @2, \
                    advance, wait 200";
    assert_eq!(run(&mut a, &mut store, 100, true), expected);
    // A backup, which does not know that it is one: whoever remembers more notices.
    let mut store = earlier.clone();
    assert!(run(&mut worker("B", mark), &mut store, 0, true).starts_with("look, lost 1 found 1, begin 2, open"));
    // Everything is gone.
    store.go_back(Memory::default());
    assert!(run(&mut worker("C", mark), &mut store, 0, true).starts_with("look, lost 1 found 0, begin 2, open"));
    // Somebody else has begun already.
    assert!(run(&mut worker("D", mark), &mut store, 0, true).starts_with("look, lost 1 found 2, open"));
}
