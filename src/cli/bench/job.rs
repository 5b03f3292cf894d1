//! What the bench and its processes say to each other: one JSON object a line, jobs and words down the standard input of
//! a process, answers up its standard output.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::args::BenchPath;
use super::latencies::Quantiles;
use crate::cli::exit::{CommandFailure, Exit};
use crate::cli::help;
use crate::config::{Config, Override};

/// What a process is for; its first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum Job {
    /// Sends datagrams with nothing between it and the kernel.
    RawSend(RawJob),
    /// Receives them.
    RawReceive(RawJob),
    /// Throws raw datagrams and measures how long they are on their way.
    RawPing(PingJob),
    /// Throws them back.
    RawPong(PingJob),
    /// Throws messages and measures.
    Ping(PingJob),
    /// Throws them back.
    Pong(PingJob),
    /// Publishes.
    Publish(PublishJob),
    /// Subscribes, and holds what comes against what was published.
    Subscribe(SubscribeJob),
    /// Is a daemon for another process.
    Daemon(DaemonJob),
}

impl Job {
    /// Its name in error messages.
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

/// The configuration of the peers: neither environment nor file is asked, so that a run depends on its arguments alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSettings(pub Vec<PeerSetting>);

impl PeerSettings {
    /// The same with one more; later ones win.
    pub fn with(&self, flag: &str, key: &str, value: &str) -> PeerSettings {
        let mut values = self.0.clone();
        values.push(PeerSetting { flag: flag.to_owned(), key: key.to_owned(), value: value.to_owned() });
        PeerSettings(values)
    }

    /// The checked configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn config(&self) -> Result<Config, CommandFailure> {
        let overrides: Vec<Override> =
            self.0.iter().map(|PeerSetting { flag, key, value }| Override::flag(flag, key, value)).collect();
        Config::resolve(None, &overrides)
            .map_err(|errors| CommandFailure::new(Exit::Configuration, errors).fix(help::BENCH_SETTINGS))
    }
}

/// How raw datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RawMode {
    /// Each one passes through the kernel by itself; many in one system call.
    Plain,
    /// Many leave as one buffer that the kernel divides (UDP_SEGMENT); they arrive one by one.
    Gso,
    /// Many leave as one buffer, and arrive as one (UDP_GRO).
    GsoGro,
}

/// Raw datagrams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RawJob {
    /// Interface, group and port.
    pub values: PeerSettings,
    /// How they go.
    pub mode: RawMode,
    /// Bytes of payload of each.
    pub bytes: usize,
    /// How long to send, in nanoseconds.
    pub span_ns: u64,
    /// Datagrams a second; as fast as the kernel takes them if absent.
    pub rate: Option<f64>,
}

/// A message to and fro.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PingJob {
    /// The configuration of the peers.
    pub values: PeerSettings,
    /// How they are reached; not for raw ones.
    pub path: BenchPath,
    /// Bytes of payload.
    pub bytes: usize,
    /// How long, in nanoseconds.
    pub span_ns: u64,
    /// Whether to look for it again and again instead of waiting to be woken.
    pub is_busy: bool,
}

impl PingJob {
    /// How long.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.span_ns)
    }
}

/// What is published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of payload.
    pub bytes: usize,
    /// How long to publish, in nanoseconds.
    pub span_ns: u64,
    /// Messages a second; as fast as the bus allows if absent.
    pub rate: Option<f64>,
    /// Subjects, published on in turn.
    pub subjects: u64,
    /// Whether each payload says when it was due.
    pub is_stamped: bool,
}

/// A publisher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishJob {
    /// The configuration of its peer.
    pub values: PeerSettings,
    /// How it reaches its peer.
    pub path: BenchPath,
    /// What it publishes.
    pub load: Load,
    /// Peers that it waits for.
    pub subscribers: usize,
}

/// A subscriber.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubscribeJob {
    /// The configuration of its peer.
    pub values: PeerSettings,
    /// How it reaches its peer.
    pub path: BenchPath,
    /// What is published.
    pub load: Load,
    /// Whether it subscribes to each subject by itself instead of to all of them at once.
    pub is_each: bool,
    /// Datagrams that its peer drops on purpose.
    pub drop: Option<Drop>,
}

/// A share of the datagrams that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drop {
    /// From 0 to below 1.
    pub share: f64,
    /// Decides which ones.
    pub seed: u64,
}

/// A daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonJob {
    /// Its configuration, the socket included.
    pub values: PeerSettings,
    /// Datagrams that it drops on purpose.
    pub drop: Option<Drop>,
}

/// What a process is told after its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ProcessCommand {
    /// Begin.
    Go,
    /// So much was sent or published: end when it has come, or is accounted for.
    Finish {
        /// Datagrams or messages.
        sent: u64,
    },
    /// End.
    Stop,
}

/// What a process answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "kebab-case")]
pub enum ProcessReport {
    /// It waits for [`ProcessCommand::Go`].
    ReadyReport(ReadyReport),
    /// The raw datagrams cannot go in the way they were to.
    Unsupported {
        /// What the kernel says.
        why: String,
    },
    /// It has sent or published everything.
    SendReport(SendReport),
    /// It has received everything.
    ReceiveReport(Box<ReceiveReport>),
    /// It has measured how long messages are on their way.
    PingReport(PingReport),
    /// It cannot go on.
    Failed {
        /// The exit code of the bench.
        exit: u8,
        /// What happened.
        text: String,
        /// What mends it.
        fix: Option<String>,
    },
}

/// Where a process runs, and what it found there.
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

/// A machine, as its kernel tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// The version of the kernel.
    pub kernel: String,
    /// Processors that a process may use.
    pub cpus: usize,
    /// What they are.
    pub cpu: String,
    /// The largest receive buffer for programs without privileges (`net.core.rmem_max`), in bytes.
    pub rmem_max: Option<u64>,
    /// Differs from boot to boot and from machine to machine: equal ones share a clock.
    pub boot: String,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// Datagrams or messages.
    pub sent: u64,
    /// How long that took, in seconds.
    pub seconds: f64,
    /// Processor time that it took, in nanoseconds.
    pub cpu_ns: u64,
    /// How often the bus took no further message for the moment.
    pub held_up: u64,
    /// Memory of the process, in bytes; with [`BenchPath::Daemon`] of the daemon.
    pub rss_bytes: u64,
    /// Of published subjects.
    pub window: Window,
}

/// A window of subjects, as the peer tells of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Subjects in it.
    pub subjects: u64,
    /// Memory that it takes.
    pub bytes: u64,
    /// Subjects that had to leave it too early, for want of memory.
    pub evicted: u64,
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// Datagrams or messages, each counted once.
    pub received: u64,
    /// A second, from a tenth of the run on to the last one.
    pub per_s: f64,
    /// Messages that the library says are lost, at least.
    pub lost: u64,
    /// The same, at most.
    pub lost_max: u64,
    /// Messages in missing datagrams that nothing has explained, as the library says.
    pub unverified: u64,
    /// Messages dropped because the program did not read fast enough, as the library says.
    pub dropped: u64,
    /// Messages that were missing and came because they were asked for.
    pub repaired: u64,
    /// Datagrams that the kernel dropped, as the library says; raw: as the kernel says.
    pub kernel_drops: u64,
    /// Datagrams dropped on purpose.
    pub dropped_by_rule: u64,
    /// The most datagrams that came as one buffer; raw.
    pub segments: u64,
    /// Processor time that it took, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory of the process, in bytes; with [`BenchPath::Daemon`] of the daemon.
    pub rss_bytes: u64,
    /// Of received subjects.
    pub window: Window,
    /// From when a message was due until it was read; of all of them if they said when they were due.
    pub latencies: Quantiles,
    /// The same, of those alone that came because they were asked for.
    pub repair_latencies: Quantiles,
    /// What cannot be: damaged, doubled, or out of order.
    pub faults: Vec<String>,
}

/// How long messages were on their way, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingReport {
    /// Half of to and fro.
    pub latencies: Quantiles,
    /// Messages that did not come back.
    pub lost: u64,
}
