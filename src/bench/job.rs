//! The messages between the bench and its processes: one JSON object per line, jobs and commands to the standard input
//! of a process, reports from its standard output.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::args::BenchPath;
use super::help;
use super::latencies::Quantiles;
use crate::config::{Config, Override};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::time::Instant;

/// Job of a process; its first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum Job {
    /// Sends raw datagrams through the kernel alone.
    RawSend(RawJob),
    /// Receives raw datagrams.
    RawReceive(RawJob),
    /// Sends raw datagrams to and fro, and measures their latency.
    RawPing(PingJob),
    /// Sends them back.
    RawPong(PingJob),
    /// Sends messages to and fro, and measures their latency.
    Ping(PingJob),
    /// Sends them back.
    Pong(PingJob),
    /// Publishes.
    Publish(PublishJob),
    /// Subscribes, and compares the received messages with the published ones.
    Subscribe(SubscribeJob),
    /// Runs a daemon for another process.
    Daemon(DaemonJob),
}

impl Job {
    /// Returns the name for error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Job::RawSend(_) => "raw sender",
            Job::RawReceive(_) => "raw receiver",
            Job::RawPing(_) => "raw pinger",
            Job::RawPong(_) => "raw ponger",
            Job::Ping(_) => "pinger",
            Job::Pong(_) => "ponger",
            Job::Publish(_) => "publisher",
            Job::Subscribe(_) => "subscriber",
            Job::Daemon(_) => "daemon",
        }
    }
}

/// A value of the configuration of a peer: flag, key, value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSetting {
    /// The flag that gave it.
    pub flag: String,
    /// The key.
    pub key: String,
    /// The value as text.
    pub value: String,
}

/// The configuration of the peers: neither environment nor file contribute, so that a run depends on its arguments
/// alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSettings(pub Vec<PeerSetting>);

impl PeerSettings {
    /// Returns the same settings with one more; later ones win.
    pub fn with(&self, flag: &str, key: &str, value: &str) -> PeerSettings {
        let mut values = self.0.clone();
        values.push(PeerSetting { flag: flag.to_owned(), key: key.to_owned(), value: value.to_owned() });
        PeerSettings(values)
    }

    /// Returns the checked configuration.
    ///
    /// # Errors
    /// Returns all errors in it.
    pub fn config(&self) -> Result<Config, CommandFailure> {
        let overrides: Vec<Override> =
            self.0.iter().map(|PeerSetting { flag, key, value }| Override::flag(flag, key, value)).collect();
        Config::resolve(None, &overrides)
            .map_err(|errors| CommandFailure::new(Exit::Configuration, errors).fix(help::BENCH_SETTINGS))
    }
}

/// Way of raw datagrams through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RawMode {
    /// Each datagram passes through the kernel by itself; many in one system call.
    Plain,
    /// Many leave as one buffer that the kernel divides (UDP_SEGMENT); they arrive one by one.
    Gso,
    /// Many leave as one buffer, and arrive as one (UDP_GRO).
    GsoGro,
}

/// Times at which raw datagrams leave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RawPace {
    /// As fast as the kernel takes them.
    Unlimited,
    /// In full batches, at this number of datagrams a second.
    Batches(f64),
    /// Each when it is due at this number of datagrams a second. It contains its due time. Only with
    /// [`RawMode::Plain`].
    Due(f64),
}

/// Job of raw datagrams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RawJob {
    /// Interface, group and port.
    pub values: PeerSettings,
    /// Way of the datagrams.
    pub mode: RawMode,
    /// Bytes of payload of each.
    pub bytes: usize,
    /// Sending time, in nanoseconds.
    pub span_ns: u64,
    /// Times at which they leave.
    pub pace: RawPace,
}

/// Job of a message to and fro.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PingJob {
    /// The configuration of the peers.
    pub values: PeerSettings,
    /// Path to the peers; unused for raw datagrams.
    pub path: BenchPath,
    /// Bytes of payload.
    pub bytes: usize,
    /// Duration, in nanoseconds.
    pub span_ns: u64,
    /// True if the process polls busily instead of waiting to be woken.
    pub is_busy: bool,
}

impl PingJob {
    /// Returns the duration.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.span_ns)
    }
}

/// The published messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of payload.
    pub bytes: usize,
    /// Publishing time, in nanoseconds.
    pub span_ns: u64,
    /// Messages a second; as fast as the bus allows if absent.
    pub rate: Option<f64>,
    /// Number of subjects, used for publishing in turn.
    pub subjects: u64,
    /// True if each payload contains its due time.
    pub is_stamped: bool,
}

impl Load {
    /// Returns the time at which message `number` is due, if there is a rate.
    pub fn due_at(&self, start: Instant, number: u64) -> Option<Instant> {
        self.rate.map(|rate| due_at(start, rate, number))
    }
}

/// Returns the time at which message `number` is due, counted from 0, at `rate` messages a second.
pub fn due_at(start: Instant, rate: f64, number: u64) -> Instant {
    start + Duration::from_secs_f64(number as f64 / rate)
}

/// Job of a publisher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishJob {
    /// The configuration of its peer.
    pub values: PeerSettings,
    /// Path to its peer.
    pub path: BenchPath,
    /// The messages to publish.
    pub load: Load,
    /// Number of peers that it waits for.
    pub subscribers: usize,
}

/// Job of a subscriber.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubscribeJob {
    /// The configuration of its peer.
    pub values: PeerSettings,
    /// Path to its peer.
    pub path: BenchPath,
    /// The published messages.
    pub load: Load,
    /// True if it subscribes to each subject by itself instead of to all of them at once.
    pub is_each: bool,
    /// Datagrams that its peer drops on purpose.
    pub drop: Option<Drop>,
}

/// A share of the received datagrams that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drop {
    /// Share, from 0 to below 1.
    pub share: f64,
    /// Seed that determines the dropped datagrams.
    pub seed: u64,
}

/// Job of a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonJob {
    /// Its configuration, the socket included.
    pub values: PeerSettings,
    /// Datagrams that it drops on purpose.
    pub drop: Option<Drop>,
}

/// A command to a process after its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum ProcessCommand {
    /// Begin.
    Go,
    /// Everything was sent or published: the process ends when all of it has arrived, or is accounted for.
    Finish {
        /// Number of datagrams or messages.
        sent: u64,
    },
    /// End.
    Stop,
}

/// A report of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum ProcessReport {
    /// The process waits for [`ProcessCommand::Go`].
    Ready(ReadyReport),
    /// The raw datagrams cannot use the requested way.
    Unsupported {
        /// The kernel's reason.
        why: String,
    },
    /// The process has sent or published everything.
    Sent(SendReport),
    /// The process has received everything.
    Received(Box<ReceiveReport>),
    /// The process has measured the latency of messages.
    Pinged(PingReport),
    /// The process cannot continue.
    Failed {
        /// The exit code of the bench.
        exit: u8,
        /// Description of the failure.
        text: String,
        /// Remedy, if one is known.
        fix: Option<String>,
    },
}

/// Environment of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyReport {
    /// The machine.
    pub host: HostInfo,
    /// The interface of the group.
    pub interface: String,
    /// Its MTU in bytes.
    pub mtu: usize,
    /// The receive buffer that the kernel granted, in bytes; of a receiver and of a peer.
    pub receive_buffer: Option<u64>,
    /// The largest datagram of the peer, in bytes.
    pub datagram_bytes: Option<u64>,
    /// Datagrams in one buffer that the kernel divides; of a raw sender.
    pub segments: Option<u64>,
}

/// A machine, as its kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// The version of the kernel.
    pub kernel: String,
    /// Processors that a process may use.
    pub cpus: usize,
    /// Model of the processors.
    pub cpu: String,
    /// The largest receive buffer for programs without privileges (`net.core.rmem_max`), in bytes.
    pub rmem_max: Option<u64>,
    /// Id that differs from boot to boot and from machine to machine: machines with equal ids share a clock.
    pub boot: String,
}

/// Report of a sender or publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// Number of datagrams or messages.
    pub sent: u64,
    /// Duration, in seconds.
    pub seconds: f64,
    /// Processor time used, in nanoseconds, with that of a daemon that all programs share.
    pub cpu_ns: u64,
    /// Number of times that the bus was backpressured.
    pub held_up: u64,
    /// Memory of the process, in bytes; of the daemon where there is one.
    pub rss_bytes: u64,
    /// Window of published subjects.
    pub window: Window,
}

/// A window of subjects, as the peer reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Number of subjects in it.
    pub subjects: u64,
    /// Memory that it uses, in bytes.
    pub bytes: u64,
    /// Number of subjects that were evicted too early, for lack of memory.
    pub evicted: u64,
}

/// Report of a receiver or subscriber.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// Number of datagrams or messages, each counted once.
    pub received: u64,
    /// Rate per second, from a tenth of the run up to the last message.
    pub per_s: f64,
    /// Minimum number of lost messages, as the library reports.
    pub lost: u64,
    /// Maximum number of lost messages, as the library reports.
    pub lost_max: u64,
    /// Number of messages in missing datagrams that nothing has explained, as the library reports.
    pub unverified: u64,
    /// Number of messages dropped because the program did not read fast enough, as the library reports.
    pub dropped: u64,
    /// Number of messages that were missing and retransmitted on request.
    pub repaired: u64,
    /// Number of datagrams that the kernel dropped, as the library reports; raw: as the kernel reports.
    pub kernel_drops: u64,
    /// Number of datagrams dropped on purpose.
    pub dropped_by_rule: u64,
    /// Maximum number of datagrams that arrived as one buffer; raw.
    pub segments: u64,
    /// Processor time used, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory of the process, in bytes; of the daemon where there is one.
    pub rss_bytes: u64,
    /// Window of received subjects.
    pub window: Window,
    /// Latencies from the due time of a message until it was read; of all messages, if their payloads contain the due
    /// time.
    pub latencies: Quantiles,
    /// The same, of retransmitted messages alone.
    pub repair_latencies: Quantiles,
    /// Faults: damaged, duplicate, or out of order.
    pub faults: Vec<String>,
}

/// One-way latencies of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingReport {
    /// Half of the round trip.
    pub latencies: Quantiles,
    /// Number of messages without an echo.
    pub lost: u64,
}
