//! Proves that the oracle can fail: each deliberate mistake in the protocol is caught within a few scenarios.
//!
//! They are not unit tests, because they need an optimised build.

use seqcast::proto::mutant::{Mutant, Mutants};
use seqcast::sim;
use seqcast::sim::report::RunOutcome;
use seqcast::sim::scenario::{Action, FaultKind, Faults, MILLIS, SECOND, Scenario, Speed};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum number of scenarios that a mutant may survive.
const SCENARIOS_MAX: u64 = 60;

/// Number of drawn scenarios, from seed 0 on, of which one must catch a rarely visible mutant.
const DRAWN_SEEDS: u64 = 2400;

/// Runs a scenario, with the checks of sent datagrams if `strict`.
fn run(scenario: &Scenario, strict: bool) -> RunOutcome {
    if strict { sim::run(scenario, false) } else { sim::run_without_sender_checks(scenario) }
}

/// Runs scenarios with `faults` and the mutant until the oracle finds a violation. Returns the number of scenarios
/// and the rules.
fn hunt(mutant: Mutant, faults: &[FaultKind], strict: bool) -> Option<(u64, Vec<&'static str>)> {
    (0..SCENARIOS_MAX).find_map(|seed| {
        let scenario = Scenario::draw_with(seed, Faults::of(faults), Mutants::only(mutant));
        // A failed assertion of the core is as good as a finding of the oracle.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let violations = run(&scenario, strict).findings.violations;
            let mut rules: Vec<&'static str> = violations.iter().map(|found| found.rule).collect();
            rules.dedup();
            rules
        }));
        let rules = found.unwrap_or_else(|_| vec!["assertion"]);
        (!rules.is_empty()).then_some((seed + 1, rules))
    })
}

/// Checks that the mutant is caught, with the checks of sent datagrams and by the receivers alone.
fn check(mutant: Mutant, faults: &[FaultKind]) {
    for strict in [true, false] {
        let found = hunt(mutant, faults, strict);
        assert!(found.is_some(), "{mutant:?} was not noticed; senders checked: {strict}");
    }
}

/// Checks that the mutant is caught by this rule, in both ways.
fn check_by(rule: &str, mutant: Mutant, faults: &[FaultKind]) {
    for strict in [true, false] {
        let rules = hunt(mutant, faults, strict).map_or(Vec::new(), |(_, rules)| rules);
        assert!(rules.contains(&rule), "{mutant:?} was noticed by {rules:?}; senders checked: {strict}");
    }
}

#[test]
fn scenarios_without_mutants_are_clean() {
    for faults in
        [&[FaultKind::Loss, FaultKind::CrashSoon][..], &[FaultKind::Partition, FaultKind::TinyFrames, FaultKind::Stop]]
    {
        for seed in 0..6 {
            let scenario = Scenario::draw_with(seed, Faults::of(faults), Mutants::default());
            assert_eq!(run(&scenario, true).findings.violations, [], "seed {seed}");
        }
    }
}

/// Proves: W46
#[test]
fn missing_heartbeats_are_caught() {
    check(Mutant::NoHeartbeat, &[FaultKind::Loss]);
}

/// Proves: W39
#[test]
fn missing_frame_floor_is_caught() {
    check(Mutant::NoFrameFloor, &[FaultKind::TinyPubWindow, FaultKind::Clock1970, FaultKind::ClockHours]);
}

/// Proves: W68
#[test]
fn baseline_at_first_datagram_is_caught() {
    check(Mutant::BaselineFirstHeard, &[FaultKind::Loss, FaultKind::LateJoin, FaultKind::NoRepair]);
}

/// Proves: W68
#[test]
fn baseline_of_zero_is_caught() {
    check(Mutant::BaselineZero, &[FaultKind::LateJoin]);
}

/// Proves: W9
#[test]
fn same_epoch_after_restart_is_caught() {
    check(Mutant::SameEpoch, &[FaultKind::CrashSoon]);
}

#[test]
fn state_forgotten_on_silence_is_caught() {
    check(Mutant::ForgetOnSilence, &[FaultKind::Partition, FaultKind::Flap]);
}

/// Proves: W76
#[test]
fn settlement_before_the_grace_is_caught() {
    check(Mutant::SettleAtOnce, &[FaultKind::ReorderWithin]);
}

#[test]
fn loss_count_one_too_small_is_caught() {
    check(Mutant::CountOneTooFew, &[FaultKind::Burst, FaultKind::NoRepair]);
}

/// Proves: W85
#[test]
fn skip_always_reported_as_one_is_caught() {
    check(Mutant::SkipIsOne, &[FaultKind::Burst, FaultKind::NoRepair]);
}

/// Proves: W78
#[test]
fn late_delivery_is_caught() {
    check(Mutant::DeliverLate, &[FaultKind::ReorderBeyond, FaultKind::NoRepair]);
}

/// Proves: W84
#[test]
fn duplicate_delivery_is_caught() {
    check(Mutant::DeliverDuplicates, &[FaultKind::Duplicate, FaultKind::Directed]);
}

/// Proves: W60, W61
#[test]
fn liveness_from_old_heartbeats_is_caught() {
    check(Mutant::StaleHeartbeatRefreshes, &[FaultKind::Replay, FaultKind::CrashLate, FaultKind::Partition]);
}

/// Proves: W11
#[test]
fn cumulative_count_off_by_one_is_caught() {
    check(Mutant::CountOffByOne, &[FaultKind::Loss]);
}

#[test]
fn loss_reported_without_subscription_is_caught() {
    check(Mutant::IgnoreContinuity, &[FaultKind::Resubscribe]);
}

#[test]
fn ignored_chain_is_caught() {
    check(Mutant::IgnoreChain, &[FaultKind::TinyFrames, FaultKind::Loss, FaultKind::NoRepair]);
}

/// Proves: W79
#[test]
fn unreported_overflow_is_caught() {
    check(Mutant::OverflowSilent, &[FaultKind::TinyLimits, FaultKind::Loss]);
}

/// Proves: W54
#[test]
fn bye_below_the_last_datagram_is_caught() {
    check(Mutant::ByeShort, &[FaultKind::Stop, FaultKind::Loss, FaultKind::NoRepair]);
}

/// Proves: W48
#[test]
fn heartbeat_beyond_the_last_datagram_is_caught() {
    check(Mutant::HighTooHigh, &[]);
}

/// Proves: W83
#[test]
fn release_across_an_open_gap_is_caught() {
    check(Mutant::ReleaseEarly, &[FaultKind::Loss, FaultKind::ReorderWithin]);
}

#[test]
fn single_request_is_caught() {
    check_by("O9", Mutant::RequestOnce, &[FaultKind::Loss]);
}

#[test]
fn request_without_grace_is_caught() {
    check_by("R5", Mutant::RequestAtOnce, &[FaultKind::ReorderWithin]);
}

#[test]
fn early_give_up_is_caught() {
    check_by("O3", Mutant::GiveUpSoon, &[FaultKind::Loss, FaultKind::Delay]);
}

/// Only one in thousands of drawn scenarios catches the mutant, so a kept one is run. Most of its seeds catch it.
#[test]
fn loss_reported_to_later_subscription_is_caught() {
    let text = include_str!("../corpus/scenarios/repair-subscription-after-live-one.json");
    let mut scenario = Scenario::from_text(text).expect("a kept scenario");
    for host in &mut scenario.hosts {
        host.settings.mutants = Mutants::only(Mutant::ReportToLaterSubscriptions);
    }
    for strict in [true, false] {
        let is_noticed = (1..=20).any(|seed| {
            scenario.seed = seed;
            run(&scenario, strict).findings.has("O3")
        });
        assert!(is_noticed, "senders checked: {strict}");
    }
}

/// Drawn scenarios catch each of these mutants: messages suppressed or assigned on stale knowledge, and gaps given up
/// before T_rec. The listed seed is tried first, then all in turn.
#[test]
fn drawn_seeds_catch_rarely_visible_mutants() {
    for (mutant, first) in [
        (Mutant::GiveUpSoon, 3),
        (Mutant::SuppressUncertain, 9),
        (Mutant::SuppressForgets, 18),
        (Mutant::QueueUnreachable, 1413),
        (Mutant::QueueUnreported, 55),
    ] {
        let is_caught = |seed: &u64| {
            let mut scenario = Scenario::draw(*seed);
            scenario.hosts.iter_mut().for_each(|host| host.settings.mutants = Mutants::only(mutant));
            catch_unwind(AssertUnwindSafe(|| !run(&scenario, true).findings.violations.is_empty())).unwrap_or(true)
        };
        let seed = std::iter::once(first).chain(0..DRAWN_SEEDS).find(is_caught);
        assert!(seed.is_some(), "{mutant:?} is caught by none of the {DRAWN_SEEDS} seeds");
    }
}

#[test]
fn resend_of_another_datagram_is_caught() {
    check_by("O9", Mutant::ResendOther, &[FaultKind::Loss]);
}

#[test]
fn expired_counted_as_delivered_is_caught() {
    check_by("O1", Mutant::ExpiredDelivered, &[FaultKind::Loss, FaultKind::TinyRing, FaultKind::TinyManifests]);
}

#[test]
fn unread_manifests_are_caught() {
    check_by("inconsistencies", Mutant::ManifestUnread, &[FaultKind::Loss, FaultKind::TinyRing]);
}

#[test]
fn repair_counted_twice_is_caught() {
    check_by("repaired", Mutant::RepairedTwice, &[FaultKind::Loss]);
}

#[test]
fn history_that_skips_a_message_is_caught() {
    check_by("O9", Mutant::FetchSkipsFirst, &[FaultKind::Loss, FaultKind::TinyRing]);
}

#[test]
fn missing_fetch_of_large_message_is_caught() {
    check_by("O9", Mutant::LargeNotRequested, &[FaultKind::Loss, FaultKind::TinyRing, FaultKind::Large]);
}

#[test]
fn repaired_delivery_out_of_order_is_caught() {
    check_by("O3", Mutant::RepairedFirst, &[FaultKind::Loss, FaultKind::Burst]);
}

/// Proves: W102
#[test]
fn answers_to_unproven_peers_are_caught() {
    check_by("proof", Mutant::AnswerUnproven, &[FaultKind::Loss, FaultKind::LateJoin, FaultKind::OneWay]);
}

#[test]
fn answers_without_a_budget_are_caught() {
    check_by(
        "budget",
        Mutant::NoBudget,
        &[FaultKind::Loss, FaultKind::Partition, FaultKind::Large, FaultKind::SlowResends],
    );
}

#[test]
fn missing_loss_report_to_publisher_is_caught() {
    check_by("outbound", Mutant::SilentReport, &[FaultKind::Loss]);
}

/// Proves: W135
#[test]
fn heartbeat_announcing_queued_datagrams_is_caught() {
    check(Mutant::QueuedAnnounced, &[FaultKind::Large]);
}

/// Returns the datagrams that overran the slower of two receivers: in two floods without a pause, and in the second
/// flood after a pause of a second in the first one.
fn overruns(mutants: Mutants) -> [u64; 2] {
    let speeds = [50_000_000, 200_000_000].map(|speed| Speed { bytes_per_second: speed, buffer_bytes: 1 << 20 });
    let floods = [(0, 3 * SECOND, 1500), (0, 8 * SECOND, 600)];
    let scenario = Scenario::of_floods(1, &speeds, &floods, mutants);
    let dropped = |scenario: &Scenario| run(scenario, true).dropped[1];
    let calm = dropped(&scenario);
    let mut first = scenario.clone();
    first.events.retain(|event| event.at != 8 * SECOND || !matches!(event.action, Action::Flood(_)));
    let [first, both] =
        [first, scenario].map(|scenario| dropped(&scenario.with_pause(1, 3 * SECOND + 20 * MILLIS, SECOND)));
    [calm, both - first]
}

#[test]
fn ignored_windows_or_permanent_exclusion_overrun_receivers() {
    assert_eq!(overruns(Mutants::default()), [0, 0]);
    assert!(0 < overruns(Mutants::only(Mutant::PacerIgnoresReports))[0]);
    assert!(0 < overruns(Mutants::only(Mutant::ExcludedForever))[1]);
}

#[test]
fn ignored_pending_requests_cause_losses() {
    let lost = |mutants| {
        let speed = Speed { bytes_per_second: 200_000_000, buffer_bytes: 4 << 20 };
        let scenario = Scenario::of_floods(1, &[speed], &[(0, 3 * SECOND, 6000)], mutants).with_loss(0.1, 8 << 20);
        run(&scenario, true).figures.owed_lost
    };
    assert_eq!(lost(Mutants::default()), 0);
    assert!(0 < lost(Mutants::only(Mutant::PacerIgnoresRequests)));
}

#[test]
fn late_joiner_without_splice_is_caught() {
    check_by("splice", Mutant::SpliceRepeated, &[FaultKind::Loss]);
}

#[test]
fn late_joiner_splice_too_far_is_caught() {
    check_by("splice", Mutant::SpliceTooFar, &[FaultKind::Loss]);
}

#[test]
fn unnoticed_missing_multicast_is_caught() {
    check_by("blackhole", Mutant::BlackholeUnreported, &[FaultKind::Snooping]);
}

#[test]
fn waiting_live_subscription_is_caught() {
    check_by("O8", Mutant::LiveWaits, &[FaultKind::Loss, FaultKind::Live]);
}

#[test]
fn live_baseline_at_first_contact_is_caught() {
    check_by("O6", Mutant::LiveFirstHeard, &[FaultKind::Loss, FaultKind::Live]);
}

#[test]
fn missing_directed_delivery_to_live_is_caught() {
    check(Mutant::DirectedRepairOnly, &[FaultKind::Directed, FaultKind::Live]);
}

#[test]
fn suppression_and_queue_groups_are_clean() {
    let quiet = [FaultKind::Suppression, FaultKind::Queues];
    let rough = [
        FaultKind::Suppression,
        FaultKind::Queues,
        FaultKind::Loss,
        FaultKind::OneWay,
        FaultKind::ShortForget,
        FaultKind::Resubscribe,
    ];
    let restarts = [
        FaultKind::Suppression,
        FaultKind::Queues,
        FaultKind::Partition,
        FaultKind::CrashSoon,
        FaultKind::Stop,
        FaultKind::LateJoin,
    ];
    let (mut suppressed, mut shares_owed) = (0, 0);
    for faults in [&quiet[..], &rough, &restarts] {
        for seed in 0..6 {
            let scenario = Scenario::draw_with(seed, Faults::of(faults), Mutants::default());
            let outcome = run(&scenario, true);
            assert_eq!(outcome.findings.violations, [], "seed {seed}");
            suppressed += outcome.figures.suppressed;
            shares_owed += outcome.figures.shares_owed;
        }
    }
    assert!(100 < suppressed && 100 < shares_owed, "{suppressed} {shares_owed}");
}

#[test]
fn interest_update_across_gap_is_caught() {
    check_by("views", Mutant::InterestAcrossGap, &[FaultKind::Loss, FaultKind::Resubscribe]);
}

#[test]
fn late_interest_update_is_caught() {
    check_by(
        "interest",
        Mutant::StaleInterestApplied,
        &[FaultKind::ReorderBeyond, FaultKind::Duplicate, FaultKind::Replay, FaultKind::Resubscribe],
    );
}

/// Proves: W143
#[test]
fn suppression_on_uncertain_interest_is_caught() {
    check_by(
        "suppression",
        Mutant::SuppressUncertain,
        &[FaultKind::Suppression, FaultKind::Loss, FaultKind::LateJoin, FaultKind::CrashSoon],
    );
}

/// Proves: W145
#[test]
fn suppression_despite_unheard_peer_is_caught() {
    check_by(
        "suppression",
        Mutant::SuppressForgets,
        &[FaultKind::Suppression, FaultKind::OneWay, FaultKind::ShortForget],
    );
}

/// Proves: W139
#[test]
fn starved_interest_requests_are_caught() {
    let faults =
        [FaultKind::Loss, FaultKind::MulticastDead, FaultKind::Large, FaultKind::Resubscribe, FaultKind::SlowResends];
    check(Mutant::InterestStarves, &[&faults[..], &[FaultKind::Queues]].concat());
}

/// Proves: W157
#[test]
fn unreported_assignments_are_caught() {
    check_by(
        "assigned",
        Mutant::QueueUnreported,
        &[FaultKind::Queues, FaultKind::Loss, FaultKind::TinyRing, FaultKind::Resubscribe],
    );
}

/// Proves: W151
#[test]
fn queue_choice_by_every_receiver_is_caught() {
    check_by("queue", Mutant::QueueOfReceiver, &[FaultKind::Queues]);
}

#[test]
fn reassigned_message_keeps_its_forgotten_publisher() {
    assert_eq!(sim::run_seed(820_728).findings.violations, []);
}
