//! Proves that the model can fail: it detects each deliberate mistake by the invariant that the mistake breaks. Workers
//! do single steps here, unless the mistake concerns the step from one event to the next.

use super::explore::explore;
use super::world::Scenario;
use crate::event::order::mutant::{OrderMutant, OrderMutants};

/// Explores a scenario of two workers with the mistake; returns the first violation.
fn hunt(mutant: OrderMutant, mutants: OrderMutants, scenario: &Scenario) -> String {
    let scenario = Scenario { mutants, ..scenario.clone() };
    explore(&scenario).map_or_else(|text| text, |seen| panic!("{mutant:?} was not noticed: {seen:?}"))
}

fn two() -> Scenario {
    Scenario {
        workers: &["A", "B"],
        pushes: &[("x", 1), ("x", 1)],
        crashes: 1,
        restarts: 1,
        ticks: 1,
        ..Scenario::default()
    }
}

/// Returns a scenario with an object for each of the two workers.
fn apart() -> Scenario {
    Scenario { pushes: &[("x", 1), ("y", 1)], crashes: 0, ..two() }
}

fn check(mutant: OrderMutant, scenario: &Scenario, expected: &str) {
    let found = hunt(mutant, OrderMutants::only(mutant).stepwise(), scenario);
    assert!(found.contains(expected), "{mutant:?} was noticed by {found}");
}

#[test]
fn in_the_step_from_one_event_to_the_next() {
    for mutant in [
        OrderMutant::NewIdOnResend,
        OrderMutant::TakeOverUnfenced,
        OrderMutant::TakeOverEarly,
        OrderMutant::TakeOverOwnedOnly,
        OrderMutant::RecordBeforeSend,
        OrderMutant::RecordEarly,
        OrderMutant::PrevOfBatch,
        OrderMutant::IdsUnreserved,
        OrderMutant::FirstAsLast,
        OrderMutant::ClaimOwned,
        OrderMutant::UnfinishedForgotten,
        OrderMutant::UnfinishedCut,
        OrderMutant::LastForgotten,
        OrderMutant::LeasesUnwatched,
    ] {
        hunt(mutant, OrderMutants::only(mutant), &two());
    }
}

#[test]
fn the_object_is_released_after_the_queue_was_seen_empty() {
    check(OrderMutant::ReleaseLater, &two(), "invariant 1");
}

#[test]
fn an_event_gets_another_id_when_sent_again() {
    check(OrderMutant::NewIdOnResend, &two(), "Q2: not the next event");
}

#[test]
fn the_owner_is_not_checked() {
    check(OrderMutant::OwnerUnchecked, &two(), "Q4: done by an old token");
}

#[test]
fn who_is_taken_over_goes_on() {
    check(OrderMutant::TakeOverUnfenced, &Scenario { crashes: 0, ..two() }, "Q4: done by an old token");
}

#[test]
fn taken_over_too_early() {
    check(OrderMutant::TakeOverEarly, &two(), "Q5: taken over before the lease ended");
}

#[test]
fn only_what_is_owned_is_taken_over() {
    check(OrderMutant::TakeOverOwnedOnly, &two(), "Q5: not taken over after the lease ended");
}

#[test]
fn recorded_before_it_is_sent() {
    check(OrderMutant::RecordBeforeSend, &two(), "Q1: recorded as sent, and was not");
}

#[test]
fn recorded_before_all_of_the_batch_is_sent() {
    check(OrderMutant::RecordEarly, &two(), "Q1: recorded as sent, and was not");
}

#[test]
fn the_events_of_a_batch_name_the_one_before_it() {
    check(OrderMutant::PrevOfBatch, &two(), "Q2: prev does not name the event before");
}

#[test]
fn the_ids_of_a_batch_are_given_out_again() {
    // The worker that drew the batch has seen more ids than the store knows.
    check(OrderMutant::IdsUnreserved, &two(), "a loss is told, and there was none");
}

#[test]
fn the_first_id_of_a_batch_is_written_down() {
    check(OrderMutant::FirstAsLast, &two(), "Q2: prev does not name the event before");
}

#[test]
fn a_part_of_a_batch_is_sent_again() {
    check(OrderMutant::UnfinishedCut, &two(), "Q1: in process is");
}

#[test]
fn an_entry_is_passed_over_with_events_left() {
    let found = hunt(OrderMutant::EntryWasted, OrderMutants::only(OrderMutant::EntryWasted), &apart());
    assert!(found.contains("invariant 1"), "{found}");
}

#[test]
fn claimed_although_owned() {
    check(OrderMutant::ClaimOwned, &two(), "invariant 3");
}

#[test]
fn two_runs_of_one_worker() {
    let scenario = Scenario { workers: &["A", "A"], is_warm: false, ..two() };
    check(OrderMutant::SessionUnchecked, &scenario, "Q4: two runs of one worker");
}

#[test]
fn what_was_in_process_is_forgotten() {
    check(OrderMutant::UnfinishedForgotten, &two(), "Q1: recorded as sent, and was not");
}

#[test]
fn an_object_is_dropped_with_events_left() {
    check(OrderMutant::DropEarly, &two(), "invariant 1");
}

#[test]
fn a_lost_state_is_not_noticed() {
    let scenario = Scenario { crashes: 0, restarts: 0, losses: 1, ..two() };
    check(OrderMutant::LossUnnoticed, &scenario, "Q1: recorded as sent, and was not");
}

#[test]
fn the_last_id_is_forgotten() {
    check(OrderMutant::LastForgotten, &two(), "Q2: prev does not name the event before");
}

#[test]
fn leases_are_not_watched() {
    check(OrderMutant::LeasesUnwatched, &two(), "Q5: B sleeps");
}
