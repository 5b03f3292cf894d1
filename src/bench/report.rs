//! Figures of runs: medians, ratios, totals, as tables and as JSON.

use serde::Serialize;

use super::job::{HostInfo, RawMode, ReadyReport};
use super::latencies::Quantiles;
use super::testbed::BenchRun;
use crate::terminal::output::note;

/// Minimum ratio of the raw rate with offloads to the plain one. A run below it is void: offloads are missing.
const OFFLOAD_GAIN: f64 = 40.0;
/// Maximum size in bytes for that check; larger datagrams gain less.
const OFFLOAD_GAIN_BYTES: usize = 1024;

/// Median, minimum and maximum of some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RunStats {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl RunStats {
    /// Returns the statistics of these values, one for each run.
    pub fn of(values: impl IntoIterator<Item = f64>) -> RunStats {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let [Some(min), Some(max)] = [values.first(), values.last()] else { return RunStats::default() };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        RunStats { median, min: *min, max: *max }
    }
}

/// Result of one way of measuring, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct ThroughputRow {
    /// `raw_plain`, `raw_gso`, `raw_gso_gro`, `library`, `threads`, `daemon`, `shm`, or one of the last four with `_keyed`.
    pub what: &'static str,
    /// Bytes of payload of a message.
    pub size: usize,
    /// Bytes of UDP payload of the largest datagram.
    pub datagram_bytes: u64,
    /// Number of receivers or subscribers.
    pub receivers: usize,
    /// Datagrams or messages received a second, all receivers together.
    pub per_s: RunStats,
    /// Bytes of payload received per second: the median.
    pub bytes_per_s: f64,
    /// Number of datagrams or messages sent; one to all receivers counts once.
    pub sent: u64,
    /// Number of datagrams or messages received, over all receivers.
    pub received: u64,
    /// Minimum number of messages reported as lost.
    pub lost: u64,
    /// Maximum number of messages reported as lost.
    pub lost_max: u64,
    /// Number of messages in missing datagrams that nothing has explained.
    pub unverified: u64,
    /// Number of messages dropped because a program did not read fast enough; raw: sent and not received.
    pub dropped: u64,
    /// Number of messages that were missing at first, and retransmitted on request.
    pub repaired: u64,
    /// Number of datagrams that kernels dropped; raw: those that arrived together count once.
    pub kernel_drops: u64,
    /// Number of datagrams dropped on purpose.
    pub dropped_by_rule: u64,
    /// Raw: sending rate per second, if most is received at less than the kernel accepts.
    pub paced_per_s: Option<f64>,
    /// Number of times that the bus was backpressured.
    pub held_up: u64,
    /// Processor time of the sending program for each message sent, in nanoseconds.
    pub sender_ns: f64,
    /// Processor time of a receiving program for each message received, in nanoseconds.
    pub receiver_ns: f64,
    /// Memory of the sending side at the end, in bytes: the maximum of all runs.
    pub sender_rss_bytes: u64,
    /// Memory of a receiving side at the end, in bytes: the maximum of all runs.
    pub receiver_rss_bytes: u64,
    /// True if every message was received or accounted for; raw datagrams need not be.
    pub adds_up: bool,
    /// Faults: damaged, duplicate, out of order.
    pub faults: Vec<String>,
    /// Reason why the measurement cannot be done; then all else is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// Bytes per second, run by run.
    #[serde(skip)]
    pub each: Vec<f64>,
}

impl ThroughputRow {
    /// Returns the row of these runs of messages of `size` bytes in one way.
    pub fn of(what: &'static str, size: usize, datagram_bytes: u64, bytes: usize, runs: &[BenchRun]) -> ThroughputRow {
        let rates: Vec<f64> = runs.iter().map(BenchRun::per_s).collect();
        let reports = || runs.iter().flat_map(|run| &run.received);
        let sum = |of: fn(&super::job::ReceiveReport) -> u64| reports().map(of).sum::<u64>();
        let sent: u64 = runs.iter().map(|run| run.sent.sent).sum();
        let sent_to_all: u64 = runs.iter().map(|run| run.sent.sent * run.received.len() as u64).sum();
        let received = sum(|report| report.received);
        let share = |cpu_ns: u64, count: u64| cpu_ns as f64 / count.max(1) as f64;
        let is_raw = what.starts_with("raw_");
        let per_s = RunStats::of(rates.iter().copied());
        ThroughputRow {
            what,
            size,
            datagram_bytes,
            receivers: runs.iter().map(|run| run.received.len()).max().unwrap_or(0),
            per_s,
            bytes_per_s: per_s.median * bytes as f64,
            sent,
            received,
            lost: sum(|report| report.lost),
            lost_max: sum(|report| report.lost_max),
            unverified: sum(|report| report.unverified),
            dropped: if is_raw { sent_to_all.saturating_sub(received) } else { sum(|report| report.dropped) },
            repaired: sum(|report| report.repaired),
            kernel_drops: sum(|report| report.kernel_drops),
            dropped_by_rule: sum(|report| report.dropped_by_rule),
            paced_per_s: None,
            held_up: runs.iter().map(|run| run.sent.held_up).sum(),
            sender_ns: share(runs.iter().map(|run| run.sent.cpu_ns).sum(), sent),
            receiver_ns: share(sum(|report| report.cpu_ns), received),
            sender_rss_bytes: runs.iter().map(|run| run.sent.rss_bytes).max().unwrap_or(0),
            receiver_rss_bytes: reports().map(|report| report.rss_bytes).max().unwrap_or(0),
            adds_up: is_raw || runs.iter().all(adds_up),
            faults: reports().flat_map(|report| report.faults.iter().cloned()).collect(),
            unsupported: None,
            each: rates.iter().map(|rate| rate * bytes as f64).collect(),
        }
    }

    /// Returns the row of a measurement that the kernel cannot do.
    pub fn unsupported(what: &'static str, size: usize, why: String) -> ThroughputRow {
        ThroughputRow { unsupported: Some(why), ..ThroughputRow::of(what, size, 0, 0, &[]) }
    }

    /// Returns whether the row has no problems.
    pub fn is_good(&self) -> bool {
        self.adds_up && self.faults.is_empty()
    }

    /// Reports the problems.
    pub fn report_problems(&self) {
        let ThroughputRow { what, size, sent, received, receivers, .. } = self;
        if !self.adds_up {
            note(format_args!(
                "{what}, {size} bytes: {sent} messages sent to each of {receivers} receivers do not add up with {received} received ones"
            ));
        }
        self.faults.iter().for_each(|fault| note(format_args!("{what}, {size} bytes: {fault}")));
    }

    /// Returns the number of lost messages, for people.
    pub fn lost(&self) -> String {
        if self.lost == self.lost_max { self.lost.to_string() } else { format!("{}..{}", self.lost, self.lost_max) }
    }

    /// Returns the ratio to the bytes per second of `other`, run by run; `None` if there is nothing to compare.
    pub fn ratio(&self, other: &ThroughputRow) -> Option<RunStats> {
        let pairs = self.each.iter().zip(&other.each).filter(|(_, other)| 0.0 < **other);
        let ratios: Vec<f64> = pairs.map(|(own, other)| own / other).collect();
        (!ratios.is_empty()).then(|| RunStats::of(ratios))
    }
}

/// Latency quantiles over all runs, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Number of messages.
    pub count: u64,
    /// Minimum.
    pub min_ns: RunStats,
    /// Median.
    pub p50_ns: RunStats,
    /// 90th percentile.
    pub p90_ns: RunStats,
    /// 99th percentile.
    pub p99_ns: RunStats,
    /// 99.9th percentile.
    pub p999_ns: RunStats,
    /// 99.99th percentile.
    pub p9999_ns: RunStats,
    /// Maximum.
    pub max_ns: RunStats,
}

impl Times {
    /// Returns the quantiles of these runs, of those only that have messages.
    pub fn of(runs: impl Iterator<Item = Quantiles>) -> Times {
        let runs: Vec<Quantiles> = runs.filter(|run| 0 < run.count).collect();
        let spread = |of: fn(&Quantiles) -> u64| RunStats::of(runs.iter().map(|run| of(run) as f64));
        Times {
            count: runs.iter().map(|run| run.count).sum(),
            min_ns: spread(|run| run.min_ns),
            p50_ns: spread(|run| run.p50_ns),
            p90_ns: spread(|run| run.p90_ns),
            p99_ns: spread(|run| run.p99_ns),
            p999_ns: spread(|run| run.p999_ns),
            p9999_ns: spread(|run| run.p9999_ns),
            max_ns: spread(|run| run.max_ns),
        }
    }
}

/// Returns whether every message of a run was received or accounted for, at each subscriber.
pub fn adds_up(run: &BenchRun) -> bool {
    run.received.iter().all(|report| {
        let known = report.received + report.unverified + report.dropped;
        (known + report.lost..=known + report.lost_max).contains(&run.sent.sent)
    })
}

/// The rates of the library as multiples of the raw ones.
#[derive(Clone, Debug, Serialize)]
pub struct Ratios {
    /// Bytes of payload of a message.
    pub size: usize,
    /// Number of receivers or subscribers.
    pub receivers: usize,
    /// Ratio to one datagram per message.
    pub to_raw_plain: Option<RunStats>,
    /// Ratio to datagrams that leave together.
    pub to_raw_gso: Option<RunStats>,
    /// Ratio to datagrams that leave and arrive together.
    pub to_raw_gso_gro: Option<RunStats>,
    /// Gain of the kernel by that.
    pub raw_gso_gro_to_raw_plain: Option<RunStats>,
    /// Reason why these ratios are void, if they are.
    pub void: Option<String>,
}

impl Ratios {
    /// Returns the ratios of the library's row to those of the raw rates in the order of [`RAW_MODES`].
    pub fn of(library: &ThroughputRow, [plain, gso, gso_gro]: [&ThroughputRow; 3], offloads_off: bool) -> Ratios {
        let gain = gso_gro.ratio(plain);
        let void = match (&gso_gro.unsupported, gain) {
            _ if offloads_off || OFFLOAD_GAIN_BYTES < library.size => None,
            (Some(why), _) => Some(format!("the kernel does not divide or gather datagrams here: {why}")),
            (None, Some(gain)) if gain.median < OFFLOAD_GAIN => Some(format!(
                "datagrams that leave and arrive together are only {:.1} times as fast as single ones, not \
                 {OFFLOAD_GAIN:.0} times: offloads are missing, or the machine is busy",
                gain.median
            )),
            _ => None,
        };
        Ratios {
            size: library.size,
            receivers: library.receivers,
            to_raw_plain: library.ratio(plain),
            to_raw_gso: library.ratio(gso),
            to_raw_gso_gro: library.ratio(gso_gro),
            raw_gso_gro_to_raw_plain: gain,
            void,
        }
    }
}

/// The raw rates, with their names.
pub const RAW_MODES: [(RawMode, &str); 3] =
    [(RawMode::Plain, "raw_plain"), (RawMode::Gso, "raw_gso"), (RawMode::GsoGro, "raw_gso_gro")];

/// Environment of the programs.
#[derive(Clone, Debug, Serialize)]
pub struct TestbedInfo {
    /// The sending machine.
    pub publisher: HostInfo,
    /// The first receiving machine.
    pub subscriber: HostInfo,
    /// Interface of the first receiver.
    pub interface: String,
    /// Its MTU in bytes.
    pub mtu: usize,
    /// The largest datagram of the library, in bytes.
    pub datagram_bytes: Option<u64>,
    /// The receive buffer that the kernel granted the library, in bytes.
    pub receive_buffer: Option<u64>,
    /// The receive buffer that it granted the raw receiver.
    pub raw_receive_buffer: Option<u64>,
    /// Datagrams in one buffer that the kernel divides on sending; absent if it does not, or this was not tried.
    pub gso_segments: Option<u64>,
    /// Maximum number of datagrams that arrived as one buffer; absent if this was not tried.
    pub gro_segments: Option<u64>,
}

impl TestbedInfo {
    /// Returns the environment of a run of the library.
    pub fn from_run(run: &BenchRun) -> TestbedInfo {
        let ReadyReport { host, interface, mtu, receive_buffer, datagram_bytes, .. } = run.receiver.clone();
        TestbedInfo {
            publisher: run.sender.host.clone(),
            subscriber: host,
            interface,
            mtu,
            datagram_bytes,
            receive_buffer,
            raw_receive_buffer: None,
            gso_segments: None,
            gro_segments: None,
        }
    }

    /// Adds the environment of a raw run.
    pub fn merge_raw(&mut self, mode: RawMode, run: &BenchRun) {
        self.raw_receive_buffer = run.receiver.receive_buffer;
        if mode != RawMode::Plain {
            self.gso_segments = self.gso_segments.max(run.sender.segments);
        }
        if mode == RawMode::GsoGro {
            self.gro_segments = self.gro_segments.max(run.received.iter().map(|report| report.segments).max());
        }
    }

    /// Returns the environment as text for people.
    pub fn lines(&self) -> Vec<String> {
        let bytes = |bytes: Option<u64>| bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
        let host = |host: &HostInfo| format!("Linux {}, {} CPUs ({})", host.kernel, host.cpus, host.cpu);
        let mut lines = vec![host(&self.publisher)];
        if self.publisher.boot != self.subscriber.boot {
            lines[0].insert_str(0, "publisher  ");
            lines.push(format!("subscriber  {}", host(&self.subscriber)));
        }
        let mut network = format!(
            "{}, MTU {}; datagrams of up to {} bytes; receive buffer {} bytes",
            self.interface,
            self.mtu,
            bytes(self.datagram_bytes),
            bytes(self.receive_buffer)
        );
        if let Some(raw) = self.raw_receive_buffer {
            network += &format!(", raw {raw}");
        }
        lines.push(network);
        if self.raw_receive_buffer.is_some() {
            let sends = self.gso_segments.map_or("none".to_owned(), |most| format!("{most} datagrams a buffer"));
            let gets = self.gro_segments.map_or("none".to_owned(), |most| format!("up to {most}"));
            lines.push(format!("offloads: sent together (UDP_SEGMENT) {sends}, received together (UDP_GRO) {gets}"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::job::{ReceiveReport, SendReport};

    #[test]
    fn median_divides_the_values() {
        let spread = |values: &[f64]| RunStats::of(values.iter().copied());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), RunStats { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]), RunStats { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(spread(&[]), RunStats::default());
    }

    fn run(sent: u64, report: ReceiveReport) -> BenchRun {
        let host = HostInfo { kernel: "6".into(), cpus: 1, cpu: String::new(), rmem_max: None, boot: "b".into() };
        let ready = ReadyReport {
            host,
            interface: "lo".into(),
            mtu: 65_536,
            receive_buffer: None,
            datagram_bytes: None,
            segments: None,
        };
        BenchRun {
            sender: ready.clone(),
            receiver: ready,
            sent: SendReport { sent, ..SendReport::default() },
            received: vec![report],
        }
    }

    #[test]
    fn run_adds_up_within_its_reported_losses() {
        let report =
            ReceiveReport { received: 5, unverified: 1, dropped: 1, lost: 1, lost_max: 2, ..ReceiveReport::default() };
        let adds_up = |sent| ThroughputRow::of("library", 64, 1472, 64, &[run(sent, report.clone())]).is_good();
        assert_eq!([7, 8, 9, 10].map(adds_up), [false, true, true, false]);
        let damaged =
            ReceiveReport { received: 1, faults: vec!["a payload is damaged".into()], ..ReceiveReport::default() };
        assert!(!ThroughputRow::of("raw_plain", 64, 64, 64, &[run(9, damaged)]).is_good());
    }

    #[test]
    fn run_without_offloads_is_void() {
        let row = |what, per_s| {
            ThroughputRow::of(what, 64, 64, 64, &[run(0, ReceiveReport { per_s, ..ReceiveReport::default() })])
        };
        let raw = |gso_gro| [row("raw_plain", 0.2e6), row("raw_gso", 1e6), row("raw_gso_gro", gso_gro)];
        let ratios = Ratios::of(&row("library", 12e6), raw(12e6).each_ref(), false);
        assert_eq!((ratios.void, ratios.to_raw_gso_gro.unwrap().median), (None, 1.0));
        let ratios = Ratios::of(&row("library", 12e6), raw(6e6).each_ref(), false);
        assert!(ratios.void.unwrap().contains("only 30.0 times"));
        assert_eq!(Ratios::of(&row("library", 12e6), raw(6e6).each_ref(), true).void, None);
        let none =
            [row("raw_plain", 0.2e6), row("raw_gso", 0.0), ThroughputRow::unsupported("raw_gso_gro", 64, "no".into())];
        let ratios = Ratios::of(&row("library", 12e6), none.each_ref(), false);
        assert!(ratios.void.unwrap().ends_with(": no") && ratios.to_raw_gso.is_none());
    }
}
