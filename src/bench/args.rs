//! The arguments of `seqcast bench` as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{help, size};
use crate::terminal::value::{self, Rate, Setting};

/// `seqcast bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchOptions {
    /// The measurement.
    #[command(subcommand)]
    pub what: BenchCommand,
}

/// The measurements of `seqcast bench`.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Messages a second from one publisher to one subscriber, compared with the kernel without the bus.
    #[command(after_help = help::BENCH_THROUGHPUT)]
    Throughput(Box<ThroughputOptions>),
    /// Latency of a message: to and fro, and one way at a given rate.
    #[command(after_help = help::BENCH_LATENCY)]
    Latency(Box<LatencyOptions>),
    /// Messages a second from one publisher to several subscribers, summed over them.
    #[command(after_help = help::BENCH_FANOUT)]
    Fanout(Box<FanoutOptions>),
    /// Cost of a message with many subjects.
    #[command(after_help = help::BENCH_SUBJECTS)]
    Subjects(Box<SubjectsOptions>),
    /// Messages a second while datagrams get lost, compared with the rate without loss.
    #[command(after_help = help::BENCH_LOSS)]
    Loss(Box<LossOptions>),
    /// A process of the bench: it reads its job from standard input, and ends with it.
    #[command(hide = true)]
    Role,
}

/// Path of the messages to and from the peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BenchPath {
    /// A peer inside each program, driven by the thread that publishes or reads: the fast path.
    #[default]
    Library,
    /// A peer inside each program, in a thread of its own.
    Threads,
    /// A daemon for each program, reached through its Unix socket.
    Daemon,
    /// A daemon for each program, reached through shared memory.
    Shm,
    /// One daemon for all programs, reached through shared memory: no message passes the network between them.
    Host,
}

/// Location of the programs, and path of the messages.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Peers")]
pub struct TestbedOptions {
    /// Path of the messages to and from the peers.
    #[arg(long, value_enum, default_value_t)]
    pub path: BenchPath,
    /// The interface of the multicast group: a name, an address, a network (10.75.0.0/24), lo or auto.
    #[arg(long, value_name = "WHICH", default_value = "lo")]
    pub interface: String,
    /// Run the peers without keys, also where other hosts reach them: each of those can read and publish anything.
    #[arg(long)]
    pub open: bool,
    /// The multicast group (default: one that no other program is likely to use).
    #[arg(long, value_name = "ADDRESS")]
    pub group: Option<String>,
    /// The UDP port of the group; raw ping-pong uses the next one, too (default: as the group).
    #[arg(long)]
    pub port: Option<u16>,
    /// The largest datagram of the library: bytes, or auto.
    #[arg(long, value_name = "BYTES", default_value = "auto")]
    pub datagram: String,
    /// Any key of the configuration of all peers, such as receive-buffer="16 mb"; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = value::setting)]
    pub settings: Vec<Setting>,
    /// Start publishers by this shell command with the program and its arguments behind it, such as 'ip netns exec a'.
    #[arg(long, value_name = "CMD")]
    pub publisher_via: Option<String>,
    /// Start subscribers by this shell command, such as 'ssh hostb'.
    #[arg(long, value_name = "CMD")]
    pub subscriber_via: Option<String>,
    /// The program to start on both sides (default: this one).
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Duration and number of the runs.
#[derive(Args, Clone, Copy, Debug)]
pub struct RunOptions {
    /// Publishing time of each run.
    #[arg(long, value_name = "TIME", value_parser = value::seconds, default_value = "2s")]
    pub secs: Duration,
    /// Number of runs of each case, one after the other in turn; the median counts.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=101))]
    pub runs: u32,
}

/// Options of a measurement of one publisher and one subscriber without raw rates.
#[derive(Args, Clone, Debug)]
pub struct LoadOptions {
    /// Messages to publish per second (default: as fast as the bus allows).
    #[arg(long, value_name = "N/s", value_parser = value::rate)]
    pub rate: Option<Rate>,
    /// Duration and number of the runs.
    #[command(flatten)]
    pub run: RunOptions,
    /// Location of the programs.
    #[command(flatten)]
    pub testbed: TestbedOptions,
}

/// Raw rates to measure for comparison.
#[derive(Args, Clone, Copy, Debug)]
pub struct RawOptions {
    /// The offloads of the network are off on purpose: a run without them is not void.
    #[arg(long)]
    pub offloads_off: bool,
    /// Measure no raw rates: there are no ratios then.
    #[arg(long, conflicts_with = "offloads_off")]
    pub no_raw: bool,
}

/// `seqcast bench throughput`.
#[derive(Args, Clone, Debug)]
pub struct ThroughputOptions {
    /// Bytes of payload, such as 64, 1024, 8mb; several are measured one after the other.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = size::payload_bytes, default_value = "64")]
    pub size: Vec<usize>,
    /// Messages to publish per second, such as 100000/s (default: as fast as the bus allows).
    #[arg(long, value_name = "N/s", value_parser = value::rate)]
    pub rate: Option<Rate>,
    /// Also measure keyed peers, in turn with open ones, in a realm that is made for that.
    #[arg(long)]
    pub keyed: bool,
    /// Duration and number of the runs.
    #[command(flatten)]
    pub run: RunOptions,
    /// Raw rates to measure for comparison.
    #[command(flatten)]
    pub raw: RawOptions,
    /// Location of the programs.
    #[command(flatten)]
    pub testbed: TestbedOptions,
}

/// `seqcast bench latency`.
#[derive(Args, Clone, Debug)]
pub struct LatencyOptions {
    /// Bytes of payload, at least 16.
    #[arg(long, value_name = "BYTES", value_parser = size::stamped_bytes, default_value = "64")]
    pub size: usize,
    /// The rate for the one-way latency, in addition to 1000/s.
    #[arg(long, value_name = "N/s", value_parser = value::rate, default_value = "100000/s")]
    pub rate: Rate,
    /// Also measure round trips between keyed peers, in turn with open ones, in a realm that is made for that.
    #[arg(long)]
    pub keyed: bool,
    /// Duration and number of the runs.
    #[command(flatten)]
    pub run: RunOptions,
    /// Measure no raw datagrams: there are no ratios then.
    #[arg(long)]
    pub no_raw: bool,
    /// Location of the programs.
    #[command(flatten)]
    pub testbed: TestbedOptions,
}

/// `seqcast bench fanout`.
#[derive(Args, Clone, Debug)]
pub struct FanoutOptions {
    /// Subscribers, each a process of its own.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = subscribers)]
    pub subscribers: usize,
    /// The same options as for one subscriber.
    #[command(flatten)]
    pub throughput: ThroughputOptions,
}

/// `seqcast bench subjects`.
#[derive(Args, Clone, Debug)]
pub struct SubjectsOptions {
    /// Subjects, published on in turn; several numbers are measured one after the other.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(1..=10_000_000),
        default_value = "1000,100000,1000000"
    )]
    pub subjects: Vec<u64>,
    /// Subscribe to each subject by itself instead of to all of them at once.
    #[arg(long)]
    pub each: bool,
    /// Bytes of payload, such as 64.
    #[arg(long, value_name = "BYTES", value_parser = size::payload_bytes, default_value = "64")]
    pub size: usize,
    /// Rate, runs and programs.
    #[command(flatten)]
    pub load: LoadOptions,
}

/// `seqcast bench loss`.
#[derive(Args, Clone, Debug)]
pub struct LossOptions {
    /// The share of the datagrams that the subscriber's peer drops on purpose as they arrive; several are measured.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = value::percent, default_value = "1%,10%")]
    pub drop: Vec<f64>,
    /// Instead of that: have this shell command make the network lose datagrams before a run.
    #[arg(long, value_name = "CMD", requires = "heal", conflicts_with = "drop")]
    pub fault: Option<String>,
    /// The shell command that ends what --fault began.
    #[arg(long, value_name = "CMD", requires = "fault")]
    pub heal: Option<String>,
    /// Bytes of payload, at least 16.
    #[arg(long, value_name = "BYTES", value_parser = size::stamped_bytes, default_value = "64")]
    pub size: usize,
    /// Rate, runs and programs.
    #[command(flatten)]
    pub load: LoadOptions,
}

/// Reads a number of subscribers from 1 to 64.
///
/// # Errors
/// The text is no such number.
fn subscribers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(subscribers @ 1..=64) => Ok(subscribers),
        _ => Err("there are 1 to 64 subscribers".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_are_bounded() {
        assert_eq!((subscribers("4"), subscribers("65").is_err()), (Ok(4), true));
    }
}
