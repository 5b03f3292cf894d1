//! Proves that the model can fail: it detects each deliberate mistake by the invariant that the mistake breaks. Workers
//! do single steps here, unless the mistake concerns the step from one event to the next.

use seqcast::event::order::model::exploration::explore;
use seqcast::event::order::model::scenario::OrderScenario;
use seqcast::event::order::mutant::{OrderMutant, OrderMutants};

/// Explores a scenario of two workers with the mistake; returns the first violation.
fn hunt(mutant: OrderMutant, mutants: OrderMutants, scenario: &OrderScenario) -> String {
    let scenario = OrderScenario { mutants, ..scenario.clone() };
    explore(&scenario).map_or_else(|text| text, |seen| panic!("{mutant:?} was not noticed: {seen:?}"))
}

fn two() -> OrderScenario {
    OrderScenario {
        workers: &["A", "B"],
        pushes: &[("x", 1), ("x", 1)],
        crashes: 1,
        restarts: 1,
        ticks: 1,
        ..OrderScenario::default()
    }
}

/// Returns a scenario with an object for each of the two workers.
fn apart() -> OrderScenario {
    OrderScenario { pushes: &[("x", 1), ("y", 1)], crashes: 0, ..two() }
}

fn check(mutant: OrderMutant, scenario: &OrderScenario, expected: &str) {
    let found = hunt(mutant, OrderMutants::only(mutant).stepwise(), scenario);
    assert!(found.contains(expected), "{mutant:?} was noticed by {found}");
}

#[test]
fn mutants_of_the_single_step_are_detected() {
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
fn late_release_is_detected() {
    check(OrderMutant::ReleaseLater, &two(), "invariant 1");
}

#[test]
fn new_id_on_resend_is_detected() {
    check(OrderMutant::NewIdOnResend, &two(), "Q2: not the next event");
}

#[test]
fn unchecked_owner_is_detected() {
    check(OrderMutant::OwnerUnchecked, &two(), "Q4: done by an old token");
}

#[test]
fn unfenced_takeover_is_detected() {
    check(OrderMutant::TakeOverUnfenced, &OrderScenario { crashes: 0, ..two() }, "Q4: done by an old token");
}

#[test]
fn early_takeover_is_detected() {
    check(OrderMutant::TakeOverEarly, &two(), "Q5: taken over before the lease ended");
}

#[test]
fn takeover_of_owned_objects_only_is_detected() {
    check(OrderMutant::TakeOverOwnedOnly, &two(), "Q5: not taken over after the lease ended");
}

#[test]
fn record_before_send_is_detected() {
    check(OrderMutant::RecordBeforeSend, &two(), "Q1: recorded as sent, and was not");
}

#[test]
fn early_record_of_a_batch_is_detected() {
    check(OrderMutant::RecordEarly, &two(), "Q1: recorded as sent, and was not");
}

#[test]
fn shared_predecessor_in_a_batch_is_detected() {
    check(OrderMutant::PrevOfBatch, &two(), "Q2: prev does not name the event before");
}

#[test]
fn unreserved_ids_are_detected() {
    // The worker that drew the batch has seen more ids than the store has assigned.
    check(OrderMutant::IdsUnreserved, &two(), "a loss is reported, and there was none");
}

#[test]
fn first_id_as_last_is_detected() {
    check(OrderMutant::FirstAsLast, &two(), "Q2: prev does not name the event before");
}

#[test]
fn truncated_batch_on_resend_is_detected() {
    check(OrderMutant::UnfinishedCut, &two(), "Q1: in process is");
}

#[test]
fn skipped_entry_is_detected() {
    let found = hunt(OrderMutant::EntryWasted, OrderMutants::only(OrderMutant::EntryWasted), &apart());
    assert!(found.contains("invariant 1"), "{found}");
}

#[test]
fn claim_of_an_owned_object_is_detected() {
    check(OrderMutant::ClaimOwned, &two(), "invariant 3");
}

#[test]
fn unchecked_session_is_detected() {
    let scenario = OrderScenario { workers: &["A", "A"], is_warm: false, ..two() };
    check(OrderMutant::SessionUnchecked, &scenario, "Q4: two runs of one worker");
}

#[test]
fn forgotten_batch_is_detected() {
    check(OrderMutant::UnfinishedForgotten, &two(), "Q1: recorded as sent, and was not");
}

#[test]
fn early_drop_is_detected() {
    check(OrderMutant::DropEarly, &two(), "invariant 1");
}

#[test]
fn unnoticed_loss_is_detected() {
    let scenario = OrderScenario { crashes: 0, restarts: 0, losses: 1, ..two() };
    check(OrderMutant::LossUnnoticed, &scenario, "Q1: recorded as sent, and was not");
}

#[test]
fn forgotten_last_id_is_detected() {
    check(OrderMutant::LastForgotten, &two(), "Q2: prev does not name the event before");
}

#[test]
fn unwatched_leases_are_detected() {
    check(OrderMutant::LeasesUnwatched, &two(), "Q5: B sleeps");
}
