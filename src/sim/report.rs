//! The result of a simulator run: violations of the oracle's rules, and the figures.

use crate::rng::Rng;
use crate::sim::scenario::{FaultKind, Faults, MILLIS, SECOND};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of violations that are recorded; further ones are only counted.
const VIOLATIONS_MAX: usize = 20;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Virtual time in nanoseconds.
    pub at: u64,
    /// The oracle statement or protocol rule (`docs/simulator.md`).
    pub rule: &'static str,
    /// Description of the observation.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s {}: {}", self.at as f64 / SECOND as f64, self.rule, self.text)
    }
}

/// Collects violations.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The time to record with each violation.
    pub now: u64,
    /// The first violations.
    pub violations: Vec<Violation>,
    /// Number of violations in total.
    pub count: u64,
}

impl Findings {
    /// Adds a violation.
    pub fn add(&mut self, rule: &'static str, text: String) {
        self.count += 1;
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at: self.now, rule, text });
        }
    }

    /// Returns whether the recorded violations include one of this rule.
    pub fn has(&self, rule: &str) -> bool {
        self.violations.iter().any(|violation| violation.rule == rule)
    }
}

/// Histogram of times, in buckets of 1/16 of their power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyHistogram {
    buckets: Vec<u64>,
    /// The largest time.
    pub max: u64,
    /// Number of times.
    pub count: u64,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram { buckets: vec![0; 1024], max: 0, count: 0 }
    }
}

impl LatencyHistogram {
    fn bucket(nanos: u64) -> usize {
        let micros = nanos / 1000 + 16;
        let exponent = micros.ilog2() as usize;
        (exponent - 4) * 16 + ((micros >> (exponent - 4)) & 15) as usize
    }

    /// Counts a time in nanoseconds.
    pub fn add(&mut self, nanos: u64) {
        self.buckets[LatencyHistogram::bucket(nanos)] += 1;
        self.max = self.max.max(nanos);
        self.count += 1;
    }

    /// Returns the time that the given share of all does not exceed, in nanoseconds; at most 1/16 too large.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut sum = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            sum += count;
            if wanted <= sum {
                let upper = ((16 + at as u64 % 16 + 1) << (at / 16)) - 16;
                return (upper * 1000).min(self.max);
            }
        }
        self.max
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
        self.max = self.max.max(other.max);
        self.count += other.count;
    }
}

impl fmt::Display for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |nanos: u64| nanos as f64 / MILLIS as f64;
        let (p50, p99, p999) = (self.quantile(0.5), self.quantile(0.99), self.quantile(0.999));
        write!(
            f,
            "{} samples, p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, max {:.1} ms",
            self.count,
            ms(p50),
            ms(p99),
            ms(p999),
            ms(self.max)
        )
    }
}

macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The figures of one run, or the sums of many.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Figures {
            /// Adds those of another run.
            pub fn merge(&mut self, other: &Figures) {
                $(self.$name += other.$name;)+
            }

            /// Returns name, value and meaning of each figure.
            pub fn rows(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, concat!($($doc),+).trim_ascii()),)+]
            }
        }
    };
}

figures! {
    /// Runs of a scenario.
    scenarios,
    /// Simulated time in nanoseconds.
    nanos,
    /// Epochs that peers began.
    epochs,
    /// Messages published by applications.
    messages_published,
    /// Numbered data datagrams that peers sealed.
    datagrams_sealed,
    /// Datagrams that peers sent: data and control, multicast and unicast.
    datagrams_sent,
    /// Copies of datagrams that the network carried, one for each receiver and duplicate.
    copies,
    /// Datagrams that reached no host when they were first sent.
    lost_at_source,
    /// Copies dropped by loss, bursts, cuts and full receive buffers.
    copies_dropped,
    /// Copies that arrived with changed bytes.
    copies_corrupt,
    /// Copies that arrived twice or again later.
    copies_repeated,
    /// Deliveries of messages to subscriptions.
    deliveries,
    /// Messages delivered after they were missing and requested.
    repaired,
    /// Datagrams still awaited at the end, of publishers that live.
    pending,
    /// Requests for datagrams.
    requests,
    /// Datagrams retransmitted.
    resends,
    /// Datagrams reported by their manifests.
    manifests,
    /// Datagrams reported as expired.
    expired,
    /// (subscription, message) pairs that the oracle found owed.
    owed,
    /// Owed pairs reported as lost by number.
    owed_lost,
    /// Owed pairs reported only as within unverified datagrams.
    owed_unverified,
    /// Owed pairs beyond the last announcement of a publisher that fell silent for good.
    owed_tail,
    /// Reports of lost messages.
    reports_lost,
    /// Reports of lost messages whose number is an interval.
    reports_between,
    /// Reports of unverified datagrams.
    reports_unverified,
    /// Reports of silence.
    reports_silent,
    /// Reports of crashed epochs.
    reports_crashed,
    /// Number of times that a publisher's multicasts were reported as not arriving.
    blackholes,
    /// Number of times that a peer joined the group anew.
    rejoins,
    /// Messages lost from directed streams.
    inbox_lost,
    /// Clients that joined late, and were there at the end.
    joins,
    /// Messages that late joiners got from histories.
    replayed,
    /// Scenarios that ran a second time without their clock steps.
    clock_twins,
    /// Messages that were suppressed because no other peer wanted them.
    suppressed,
    /// Messages delivered to members of queue groups.
    shares,
    /// Messages of queue groups that exactly one member had to get.
    shares_owed,
    /// Comparisons of a product counter with the oracle's own.
    cross_checks,
}

/// The outcome of one run.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// The scenario's seed.
    pub seed: u64,
    /// The active faults.
    pub faults: Faults,
    /// The violations.
    pub findings: Findings,
    /// The figures.
    pub figures: Figures,
    /// Times from the first announcement of a missing datagram to its report.
    pub settling: LatencyHistogram,
    /// Times from the sealing of a tail (a datagram without a successor for 200 ms) to the report of its loss.
    pub tails: LatencyHistogram,
    /// Times from the first announcement of a missing datagram to the delivery of its content.
    pub repairs: LatencyHistogram,
    /// Maximum number of requests for any one datagram, and maximum number of its retransmissions.
    pub most_requested: (u32, u32),
    /// For each host, the number of datagrams that its receive buffer had no room for.
    pub dropped: Vec<u64>,
    /// For each host, the times at which each flood began and at which its last datagram had left.
    pub flood_times: Vec<Vec<(u64, u64)>>,
    /// Digest of all deliveries and reports to clients, without wall times and numbers that depend on them.
    pub digest: u64,
    /// The last events of the run, if a trace was requested.
    pub trace: Vec<String>,
}

/// Sums over many runs.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The sums.
    pub figures: Figures,
    /// Scenarios with each kind of fault, in the order of [`FaultKind::ALL`].
    pub faults: Vec<u64>,
    /// As in [`RunOutcome`].
    pub settling: LatencyHistogram,
    /// As in [`RunOutcome`].
    pub tails: LatencyHistogram,
    /// As in [`RunOutcome`].
    pub repairs: LatencyHistogram,
    /// Number of violations of each rule, of which each run counts its first 20.
    pub violations: BTreeMap<&'static str, u64>,
    /// Sum over the hashes of each run's digest and seed, independent of their order.
    pub digest: u64,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, outcome: &RunOutcome) {
        self.faults.resize(FaultKind::ALL.len(), 0);
        for (sum, kind) in self.faults.iter_mut().zip(FaultKind::ALL) {
            *sum += u64::from(outcome.faults.has(*kind));
        }
        self.figures.merge(&outcome.figures);
        self.settling.merge(&outcome.settling);
        self.tails.merge(&outcome.tails);
        self.repairs.merge(&outcome.repairs);
        for violation in &outcome.findings.violations {
            *self.violations.entry(violation.rule).or_default() += 1;
        }
        self.digest = self.digest.wrapping_add(Rng::new(outcome.digest ^ outcome.seed.rotate_left(32)).next_u64());
    }

    /// Adds the sums of another thread.
    pub fn merge(&mut self, other: &Totals) {
        self.faults.resize(FaultKind::ALL.len(), 0);
        for (sum, more) in self.faults.iter_mut().zip(&other.faults) {
            *sum += more;
        }
        self.figures.merge(&other.figures);
        self.settling.merge(&other.settling);
        self.tails.merge(&other.tails);
        self.repairs.merge(&other.repairs);
        for (rule, count) in &other.violations {
            *self.violations.entry(rule).or_default() += count;
        }
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// Returns the hours of virtual time.
    pub fn simulated_hours(&self) -> f64 {
        self.figures.nanos as f64 / (3600.0 * SECOND as f64)
    }

    /// Returns one line by which two runs can be compared: the same seeds at the same commit give the same line.
    pub fn summary(&self) -> String {
        let of = |rules: &[&str]| rules.iter().filter_map(|rule| self.violations.get(rule)).sum::<u64>();
        let (missed, untrue) = (of(&["O1"]), of(&["O2", "O3", "O4", "O5"]));
        let others = self.violations.values().sum::<u64>() - missed - untrue;
        let Figures { scenarios, datagrams_sent, copies_dropped, owed, cross_checks, .. } = self.figures;
        format!(
            "{scenarios} scenarios, {:.1} hours simulated, {datagrams_sent} datagrams sent, \
             {copies_dropped} copies dropped, {owed} messages owed, {missed} missed, {untrue} false, \
             {others} other violations, {cross_checks} cross-checks, digest {:016x}",
            self.simulated_hours(),
            self.digest
        )
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value, meaning) in self.figures.rows() {
            if name == "nanos" {
                writeln!(f, "{:>16.1}  hours simulated", self.simulated_hours())?;
            } else {
                writeln!(f, "{value:>16}  {name}: {meaning}")?;
            }
        }
        writeln!(f, "from announcement to report: {}", self.settling)?;
        writeln!(f, "from a tail's sealing to report, under all network conditions: {}", self.tails)?;
        writeln!(f, "from announcement to repair: {}", self.repairs)?;
        write!(f, "share of scenarios with each fault:")?;
        for (kind, count) in FaultKind::ALL.iter().zip(&self.faults) {
            let share = 100.0 * *count as f64 / self.figures.scenarios.max(1) as f64;
            write!(f, " {} {share:.0} %", kind.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_a_sixteenth_too_large() {
        let mut spread = LatencyHistogram::default();
        for ms in 1..=1000 {
            spread.add(ms * MILLIS);
        }
        for (share, ms) in [(0.001, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let got = spread.quantile(share);
            assert!((ms * MILLIS..=ms * MILLIS * 17 / 16 + 20_000).contains(&got), "{share} {got}");
        }
        assert_eq!(spread.max, 1000 * MILLIS);
        spread.add(0);
        assert_eq!(spread.quantile(0.0), 1000);
    }
}
