//! Explores all states of a few workers, objects and events, with crashes, leases that end, and a store that loses its
//! state.
//!
//! After every step the seed's four invariants hold (the first one also counts an owner), and so do Q1 to Q5 of
//! `event::order`. From every state in which no participant can act, one more worker and enough time suffice to send
//! everything that was pushed.
//!
//! They are not unit tests, because they need an optimised build.

mod mutants;

use seqcast::event::order::model::exploration::{explore, explore_with};
use seqcast::event::order::model::scenario::{LEASE_MS, OrderScenario};
use seqcast::event::order::model::state_hasher::StateRelation;
use seqcast::event::order::mutant::OrderMutants;

/// Explores a scenario once with single steps, and once as workers do them. `states_min` is the minimum number of
/// states with single steps, so that the model cannot become empty unnoticed.
fn check(states_min: usize, scenario: &OrderScenario) {
    for (mutants, states_min) in
        [(OrderMutants::default().stepwise(), states_min), (OrderMutants::default(), states_min / 5)]
    {
        match explore(&OrderScenario { mutants, ..scenario.clone() }) {
            Ok(seen) => {
                println!("{seen:?}");
                assert!(states_min <= seen.states && 0 < seen.quiet, "only {seen:?}");
            }
            Err(text) => panic!("{text}"),
        }
    }
}

/// Checks three workers: a crash at any step with a restart, and a crash at any step whose lease ends.
fn check_three(restarted_min: usize, taken_over_min: usize, pushes: &'static [(&'static str, usize)]) {
    let three = OrderScenario { workers: &["A", "B", "C"], pushes, crashes: 1, ..OrderScenario::default() };
    check(restarted_min, &OrderScenario { restarts: 1, ..three.clone() });
    check(taken_over_min, &OrderScenario { ticks: 1, ..three });
}

#[test]
fn three_workers_order_one_object() {
    check_three(15_000, 200_000, &[("x", 0), ("x", 0), ("x", 0)]);
}

#[test]
fn three_workers_order_three_objects() {
    check_three(15_000, 200_000, &[("x", 0), ("y", 0), ("z", 0)]);
}

/// Checks two workers, one of which crashes and is restarted, or is taken over.
fn check_batches(batch_max: usize, pushes: &'static [(&'static str, usize)]) {
    let scenario = OrderScenario { workers: &["A", "B"], pushes, crashes: 1, batch_max, ..OrderScenario::default() };
    check(5_000, &OrderScenario { restarts: 1, ..scenario.clone() });
    check(5_000, &OrderScenario { ticks: 1, ..scenario });
}

/// Batches have one event, as in the seed.
#[test]
fn batches_of_one_event_keep_the_order() {
    check_batches(1, &[("x", 1), ("x", 0), ("y", 0)]);
}

#[test]
fn batches_of_three_events_keep_the_order() {
    check_batches(3, &[("x", 4), ("x", 0), ("y", 1)]);
}

#[test]
fn three_workers_order_subevents() {
    check_three(2_500, 20_000, &[("x", 2), ("y", 0)]);
}

#[test]
fn crashing_worker_keeps_the_order() {
    let scenario = OrderScenario { pushes: &[("x", 4)], crashes: 4, restarts: 4, ticks: 2, ..OrderScenario::default() };
    check(3_000, &scenario);
}

#[test]
fn two_leases_keep_the_order() {
    let scenario = OrderScenario {
        workers: &["A", "B"],
        pushes: &[("x", 2), ("x", 0)],
        crashes: 1,
        ticks: 2,
        ..OrderScenario::default()
    };
    check(25_000, &scenario);
    check(100_000, &OrderScenario { restarts: 1, ..scenario });
}

#[test]
fn slow_sending_keeps_the_order() {
    check(
        100_000,
        &OrderScenario {
            workers: &["A", "B"],
            pushes: &[("x", 0), ("x", 0)],
            crashes: 1,
            restarts: 1,
            ticks: 3,
            tick_ms: LEASE_MS / 2,
            is_slow: true,
            ..OrderScenario::default()
        },
    );
}

#[test]
fn concurrent_starts_keep_the_order() {
    let scenario =
        OrderScenario { workers: &["A", "B"], pushes: &[("x", 2)], is_warm: false, ..OrderScenario::default() };
    check(20_000, &OrderScenario { crashes: 1, restarts: 1, ticks: 2, ..scenario });
}

#[test]
fn two_workers_of_one_name_keep_the_order() {
    let scenario = OrderScenario {
        workers: &["A", "A"],
        pushes: &[("x", 0), ("y", 0)],
        is_warm: false,
        ..OrderScenario::default()
    };
    check(15_000, &OrderScenario { crashes: 1, restarts: 1, ..scenario.clone() });
    check(9_000, &OrderScenario { restarts: 2, ..scenario });
}

#[test]
fn ending_worker_keeps_the_order() {
    let scenario =
        OrderScenario { workers: &["A", "B"], pushes: &[("x", 1), ("x", 0)], ends: 1, ..OrderScenario::default() };
    check(5_000, &OrderScenario { crashes: 1, restarts: 1, ticks: 1, ..scenario.clone() });
    check(1_000, &OrderScenario { workers: &["A", "A"], restarts: 1, is_warm: false, ..scenario });
}

#[test]
fn rewound_state_keeps_the_order() {
    let scenario = OrderScenario { workers: &["A", "B"], losses: 1, ..OrderScenario::default() };
    check(10_000, &OrderScenario { pushes: &[("x", 0), ("x", 0)], ..scenario.clone() });
    check(10_000, &OrderScenario { pushes: &[("x", 0), ("y", 0)], ..scenario.clone() });
    check(10_000, &OrderScenario { pushes: &[("x", 1)], crashes: 1, ticks: 1, ..scenario });
}

/// States that are merged because they are alike lead to states that are alike.
#[test]
fn equivalent_states_have_equivalent_successors() {
    let scenario =
        OrderScenario { workers: &["A", "B"], pushes: &[("x", 1)], crashes: 1, ticks: 1, ..OrderScenario::default() };
    let least = explore_with(&scenario, StateRelation::Workers).unwrap();
    for relation in [StateRelation::Stamps, StateRelation::Same] {
        let seen = explore_with(&scenario, relation).unwrap();
        println!("{relation:?}: {seen:?}");
        assert_eq!(seen.fewest, least.states, "{relation:?}");
        assert!(least.states < seen.states);
    }
}
