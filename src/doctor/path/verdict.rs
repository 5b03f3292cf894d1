//! The verdict on the path to another host: what the losses of each kind of datagram say about the network.

use super::prober::{Exchange, PathReport, Transfer};
use crate::daemon::health::finding::{Finding, Severity};
use crate::doctor::outcome::{CheckOutcome, HostCheck};

/// Share of lost probes from which a path counts as lossy.
const LOSS_MAX: f64 = 0.02;
/// Offset of two clocks from which it is a finding, in nanoseconds.
const CLOCK_OFFSET_MAX: i64 = 1_000_000_000;
/// A datagram size that nearly every network carries, in bytes.
const SAFE_DATAGRAM_BYTES: usize = 1200;

/// Judges the path to the host `other`. `port` is the port of the group.
pub(crate) fn judge(other: &str, port: u16, report: &PathReport) -> Vec<CheckOutcome> {
    let path = PathVerdict { other, port, report };
    let mut outcomes = vec![path.unicast(), path.multicast()];
    outcomes.extend(path.full_size());
    outcomes.extend(path.fragments());
    outcomes.push(path.delay());
    outcomes
}

/// A path with what its texts name.
struct PathVerdict<'a> {
    other: &'a str,
    port: u16,
    report: &'a PathReport,
}

impl PathVerdict<'_> {
    /// Returns the counts of both directions: `here -> b 50/50, b -> here 50/50`.
    fn counts(&self, exchange: Exchange) -> String {
        let of = |Transfer { sent, arrived }| match sent {
            0 => "not tested".to_owned(),
            _ => format!("{arrived}/{sent}"),
        };
        let other = self.other;
        format!("here -> {other} {}, {other} -> here {}", of(exchange.there), of(exchange.back))
    }

    /// Returns the names of the directions in which nothing arrives.
    fn dead_directions(&self, exchange: Exchange) -> Option<String> {
        match (exchange.there.is_dead(), exchange.back.is_dead()) {
            (false, false) => None,
            (true, false) => Some(format!("towards {}", self.other)),
            (false, true) => Some("towards this host".to_owned()),
            (true, true) => Some("in both directions".to_owned()),
        }
    }

    fn unicast(&self) -> CheckOutcome {
        let exchange = self.report.unicast_small;
        let found = self.counts(exchange);
        if loss_of(exchange) <= LOSS_MAX {
            return CheckOutcome::well(HostCheck::Unicast, found);
        }
        let severity = match self.dead_directions(exchange) {
            Some(_) => Severity::Broken,
            None => Severity::Warning,
        };
        let finding = Finding {
            check: HostCheck::Unicast,
            severity,
            found: format!("{found}; the path loses datagrams of any kind"),
            effect: "messages are requested again, and late",
            fix: "look for a faulty cable, a full queue or a weak radio signal: ip -statistics link; ethtool -S"
                .to_owned(),
        };
        finding.into()
    }

    fn multicast(&self) -> CheckOutcome {
        let (other, port) = (self.other, self.port);
        let exchange = self.report.multicast_small;
        let counts = self.counts(exchange);
        let found = format!("{counts}; unicast: {}", self.counts(self.report.unicast_small));
        let defect = |severity, found, effect, fix| {
            CheckOutcome::from(Finding { check: HostCheck::Multicast, severity, found, effect, fix })
        };
        if let Some(direction) = self.dead_directions(exchange) {
            let receiver = match (exchange.there.is_dead(), exchange.back.is_dead()) {
                (true, true) => "on both hosts".to_owned(),
                (true, false) => format!("on {other}"),
                (false, _) => "on this host".to_owned(),
            };
            return defect(
                Severity::Broken,
                format!("{found}; something drops the multicasts {direction}"),
                "messages do not arrive, or only late by unicast",
                format!(
                    "{receiver} admit UDP port {port} (nft list ruleset); between them: enable an IGMP querier on the \
                     switch, or switch off IGMP snooping, or the isolation of clients at the access point"
                ),
            );
        }
        let unicast_loss = loss_of(self.report.unicast_small);
        if LOSS_MAX < loss_of(exchange) && unicast_loss < loss_of(exchange) {
            return defect(
                Severity::Warning,
                format!("{found}; multicasts get lost more often than unicasts"),
                "messages are requested again, and late",
                "radio networks send multicasts without repetition: use a cable, or a lower rate (key pace)".to_owned(),
            );
        }
        CheckOutcome::well(HostCheck::Multicast, counts)
    }

    /// Judges packets as large as the MTU. They say nothing if small ones do not arrive either.
    fn full_size(&self) -> Option<CheckOutcome> {
        let PathReport { unicast_small, unicast_full, multicast_small, multicast_full, full_bytes, .. } = *self.report;
        let mut tested = false;
        for (kind, small, full) in
            [("unicast", unicast_small, unicast_full), ("multicast", multicast_small, multicast_full)]
        {
            let is_dead = |small: Transfer, full: Transfer| 0 < small.arrived && full.is_dead();
            tested |= 0 < full.there.arrived;
            if is_dead(small.there, full.there) || is_dead(small.back, full.back) {
                let finding = Finding {
                    check: HostCheck::PathMtu,
                    severity: Severity::Broken,
                    found: format!("{kind} of {full_bytes} bytes: {}; small ones arrive", self.counts(full)),
                    effect: "large messages never arrive, and small ones do",
                    fix: format!(
                        "give all hosts and switches one MTU (ip link), or set the key datagram-size to \
                         {SAFE_DATAGRAM_BYTES} on all hosts"
                    ),
                };
                return Some(finding.into());
            }
        }
        let found = format!("packets as large as the MTU arrive ({full_bytes} bytes of payload)");
        tested.then(|| CheckOutcome::well(HostCheck::PathMtu, found))
    }

    /// Judges packets of one byte more than the MTU. They say nothing if full ones do not arrive either.
    fn fragments(&self) -> Option<CheckOutcome> {
        let PathReport { unicast_full, unicast_over, multicast_full, multicast_over, .. } = *self.report;
        let is_dead = |full: Transfer, over: Transfer| 0 < full.arrived && over.is_dead();
        let pairs = [(unicast_full, unicast_over), (multicast_full, multicast_over)];
        if pairs.iter().all(|(full, _)| full.there.arrived == 0) {
            return None;
        }
        let any = pairs.iter().any(|(full, over)| is_dead(full.there, over.there) || is_dead(full.back, over.back));
        Some(match any {
            true => Finding {
                check: HostCheck::Fragments,
                severity: Severity::Notice,
                found: "datagrams of one byte more than the MTU, thus in fragments, do not arrive".to_owned(),
                effect: "it matters only if the key datagram-size is larger than the MTU",
                fix: "leave the key datagram-size at auto".to_owned(),
            }
            .into(),
            false => CheckOutcome::well(HostCheck::Fragments, "datagrams in fragments arrive, too"),
        })
    }

    fn delay(&self) -> CheckOutcome {
        let PathReport { delay_there_nanos, delay_back_nanos, clock_offset_nanos, uncertainty_nanos, .. } =
            *self.report;
        let other = self.other;
        let [there, back, uncertainty] = [delay_there_nanos, delay_back_nanos, uncertainty_nanos].map(millis);
        let offset = clock_offset_nanos.saturating_abs();
        let clocks = match clock_offset_nanos {
            _ if offset <= uncertainty_nanos => "the clocks agree".to_owned(),
            ..0 => format!("the clock of {other} is {} behind", millis(offset)),
            _ => format!("the clock of {other} is {} ahead", millis(offset)),
        };
        let found = format!("here -> {other} {there}, {other} -> here {back} (each ± {uncertainty}); {clocks}");
        if offset < CLOCK_OFFSET_MAX {
            return CheckOutcome::well(HostCheck::Delay, found);
        }
        let finding = Finding {
            check: HostCheck::Delay,
            severity: Severity::Warning,
            found,
            effect: "stamps differ between the hosts; beyond 10 s the time frames of sequence numbers do, too",
            fix: "let a time service set the clocks of both: timedatectl set-ntp true".to_owned(),
        };
        CheckOutcome::from(finding).with_command("timedatectl set-ntp true")
    }
}

/// Returns the larger loss of both directions.
fn loss_of(exchange: Exchange) -> f64 {
    exchange.there.loss().max(exchange.back.loss())
}

/// Returns nanoseconds as milliseconds, or as seconds from one second.
fn millis(nanos: i64) -> String {
    match nanos {
        -999_999_999..=999_999_999 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(there: u32, back: u32) -> Exchange {
        let transfer = |arrived| Transfer { sent: 50, arrived };
        Exchange { there: transfer(there), back: transfer(back) }
    }

    fn healthy() -> PathReport {
        let all = exchange(50, 50);
        PathReport {
            full_bytes: 1472,
            unicast_small: all,
            unicast_full: all,
            unicast_over: all,
            multicast_small: all,
            multicast_full: all,
            multicast_over: all,
            delay_there_nanos: 210_000,
            delay_back_nanos: 180_000,
            clock_offset_nanos: -3_200_000,
            uncertainty_nanos: 100_000,
        }
    }

    /// Changes a healthy path and expects one outcome.
    fn check(expected: &str, part: &str, change: impl FnOnce(&mut PathReport)) {
        let mut report = healthy();
        change(&mut report);
        let outcomes = judge("b", 7500, &report);
        let is_meant = |outcome: &&CheckOutcome| format!("{} {}", outcome.check, outcome.state.as_str()) == expected;
        let outcome = outcomes.iter().find(is_meant).unwrap_or_else(|| panic!("no {expected} in {outcomes:#?}"));
        assert!(
            outcome.found.contains(part) || outcome.fix.as_ref().is_some_and(|fix| fix.contains(part)),
            "{outcome:?}"
        );
    }

    #[test]
    fn healthy_path_has_no_defect() {
        let outcomes = judge("b", 7500, &healthy());
        assert!(outcomes.iter().all(|outcome| outcome.state.as_str() == "ok"), "{outcomes:#?}");
        let delay = "here -> b 0.21 ms, b -> here 0.18 ms (each ± 0.10 ms); the clock of b is 3.20 ms behind";
        assert_eq!(outcomes[4].found, delay);
    }

    #[test]
    fn dead_multicast_names_direction_and_place() {
        check("multicast broken", "here -> b 0/50, b -> here 50/50; unicast: here -> b 50/50", |report| {
            report.multicast_small = exchange(0, 50);
        });
        check("multicast broken", "on b admit UDP port 7500", |report| report.multicast_small = exchange(0, 50));
        check("multicast broken", "towards this host", |report| report.multicast_small = exchange(50, 0));
        check("multicast broken", "in both directions", |report| report.multicast_small = exchange(0, 0));
    }

    #[test]
    fn losses_and_sizes_are_judged() {
        check("unicast warning", "loses datagrams of any kind", |report| report.unicast_small = exchange(40, 50));
        check("unicast broken", "here -> b 0/50", |report| report.unicast_small = exchange(0, 0));
        check("multicast warning", "more often than unicasts", |report| report.multicast_small = exchange(45, 50));
        check("path_mtu broken", "1472 bytes: here -> b 0/50", |report| report.unicast_full = exchange(0, 50));
        check("path_mtu broken", "multicast of 1472", |report| report.multicast_full = exchange(50, 0));
        check("fragments notice", "in fragments", |report| report.multicast_over = exchange(0, 0));
        check("delay warning", "the clock of b is 12.0 s ahead", |report| report.clock_offset_nanos = 12_000_000_000);
    }

    #[test]
    fn sizes_say_nothing_without_small_datagrams() {
        let none = exchange(0, 0);
        let mut report = healthy();
        (report.multicast_small, report.multicast_full, report.multicast_over) = (none, none, none);
        let outcomes = judge("b", 7500, &report);
        let states: Vec<_> = outcomes.iter().map(|outcome| (outcome.check, outcome.state.as_str())).collect();
        let expected =
            [("unicast", "ok"), ("multicast", "broken"), ("path_mtu", "ok"), ("fragments", "ok"), ("delay", "ok")];
        assert_eq!(states, expected);
    }
}
