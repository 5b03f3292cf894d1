//! The machines and processes of the bench, and the runs of every measurement.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use super::args::{BenchPath, TestbedOptions};
use super::child::{Launch, Process};
use super::daemon::DaemonProcess;
use super::job::{
    Drop, Job, Load, PeerSettings, PingJob, PingReport, ProcessCommand, PublishJob, RawJob, RawMode, RawPace,
    ReadyReport, ReceiveReport, SendReport, SubscribeJob,
};
use super::temporary_realm::TemporaryRealm;
use crate::clock::{Clock, random_u64};
use crate::config::Config;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::progress::Progress;
use crate::time::nanos;

/// Size of a subscription's queue in a run: the bench measures the path to the queue, and reads it as fast as it can.
const QUEUE_SIZE: &str = "1 gb";
/// Maximum number of messages in it: the bytes bound it.
const QUEUE_COUNT: &str = "100000000";

/// Time for which a daemon that all programs share polls before it sleeps, where they poll busily.
const BUSY_POLL: &str = "1 sec";

/// Share of the sent raw datagrams below which the sender overruns its receivers.
const OVERRUN_SHARE: f64 = 0.95;
/// Divisor that gives the duration of a trial of another rate from that of a run, and its minimum duration.
const TRIAL_SHARE: u32 = 4;
const TRIAL_TIME: Duration = Duration::from_millis(100);
/// Factor by which the rate of a trial exceeds the received rate of the trial before, and the maximum number of
/// trials.
const TRIAL_STEP: f64 = 1.25;
const TRIALS: usize = 10;

/// Time by which the subscriptions are older than the publisher. It makes a subscriber certain that the very first
/// message was meant for it, even if all datagrams are lost at first (R4).
const SUBSCRIBER_LEAD_TIME: Duration = Duration::from_millis(250);

/// Both sides of the bench.
pub struct Testbed {
    /// The configuration of all peers.
    pub values: PeerSettings,
    /// The same configuration, parsed.
    pub config: Config,
    /// Realm of the keyed runs; `None` if there are none.
    realm: Option<TemporaryRealm>,
    path: BenchPath,
    program: PathBuf,
    publisher_via: Option<String>,
    subscriber_via: Option<String>,
    interrupt: Interrupt,
    /// Number of runs that have begun.
    runs: Cell<u32>,
}

/// Result of a run.
pub struct BenchRun {
    /// Environment of the sender or publisher.
    pub sender: ReadyReport,
    /// Environment of the first receiver or subscriber.
    pub receiver: ReadyReport,
    /// Report of the sender.
    pub sent: SendReport,
    /// Report of each receiver.
    pub received: Vec<ReceiveReport>,
}

impl BenchRun {
    /// Returns the number of messages received per second, summed over all receivers.
    pub fn per_s(&self) -> f64 {
        self.received.iter().map(|report| report.per_s).sum()
    }

    /// Returns the share of the sent messages that was received, over all receivers.
    fn share_received(&self) -> f64 {
        let received: u64 = self.received.iter().map(|report| report.received).sum();
        received as f64 / (self.sent.sent * self.received.len() as u64).max(1) as f64
    }
}

/// A case with raw datagrams.
#[derive(Clone, Copy)]
pub struct RawCase {
    /// Way of the datagrams through the kernel.
    pub mode: RawMode,
    /// Bytes of payload of each.
    pub bytes: usize,
    /// Number of receivers.
    pub receivers: usize,
    /// Times at which they leave.
    pub pace: RawPace,
}

/// A case with messages to and fro.
#[derive(Clone, Copy)]
pub struct PingCase {
    /// True for raw datagrams, false for messages of the library.
    pub is_raw: bool,
    /// True if both sides poll busily instead of waiting to be woken.
    pub is_busy: bool,
    /// True if the peers are keyed.
    pub is_keyed: bool,
    /// Bytes of payload.
    pub bytes: usize,
}

/// Result of a case with messages to and fro.
pub struct PingRun {
    /// True if both sides run on one machine, and thus share a clock.
    pub has_one_clock: bool,
    /// Report of the side that measured.
    pub report: PingReport,
}

/// A case with the library.
#[derive(Clone, Copy)]
pub struct LoadCase {
    /// The published messages.
    pub load: Load,
    /// Number of subscribers.
    pub subscribers: usize,
    /// True if each subscribes to each subject by itself.
    pub is_each: bool,
    /// Share of the datagrams that each drops on purpose.
    pub drop: f64,
    /// True if the peers are keyed.
    pub is_keyed: bool,
}

impl Testbed {
    /// Reads the arguments; it reports errors in them before any process starts.
    ///
    /// # Errors
    /// A value is not allowed for its key, or this program does not know its own file.
    pub fn new(options: &TestbedOptions) -> Result<Testbed, CommandFailure> {
        Testbed::with(options, &[])
    }

    /// Reads the arguments like [`Testbed::new`], with these keys at these values unless the user sets them.
    ///
    /// # Errors
    /// The same as of [`Testbed::new`].
    pub fn with(options: &TestbedOptions, more: &[(&str, &str)]) -> Result<Testbed, CommandFailure> {
        let chance = random_u64();
        let [high, low, ..] = chance.to_be_bytes();
        let group = options.group.clone().unwrap_or_else(|| format!("239.254.{high}.{low}"));
        let port = options.port.map_or(20_000 + chance % 12_000, u64::from).to_string();
        let mut values = PeerSettings::default()
            .with("bench", "name", "bench")
            .with("bench", "client-queue-size", QUEUE_SIZE)
            .with("bench", "client-queue-count", QUEUE_COUNT)
            .with("--interface", "interface", &options.interface)
            .with("--group", "group", &group)
            .with("--port", "port", &port)
            .with("--datagram", "datagram-size", &options.datagram);
        if options.open {
            values = values.with("--open", "security", "open");
        }
        for (key, value) in more {
            values = values.with("bench", key, value);
        }
        for setting in &options.settings {
            values = values.with("--set", &setting.key, &setting.value);
        }
        let program = match &options.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(|error| {
                CommandFailure::new(Exit::Failed, format!("cannot find the file of this program: {error}"))
            })?,
        };
        Ok(Testbed {
            config: values.config()?,
            values,
            realm: None,
            path: options.path,
            program,
            publisher_via: options.publisher_via.clone(),
            subscriber_via: options.subscriber_via.clone(),
            interrupt: Interrupt::watch()?,
            runs: Cell::new(0),
        })
    }

    /// Makes a realm for keyed runs if `is_wanted`. All other runs are open then.
    ///
    /// # Errors
    /// The files of the realm cannot be written.
    pub fn with_realm(self, is_wanted: bool) -> Result<Testbed, CommandFailure> {
        let realm = if is_wanted { Some(TemporaryRealm::create()?) } else { None };
        Ok(Testbed { realm, ..self })
    }

    /// Returns the configuration of the peers of a run.
    fn peers(&self, is_keyed: bool) -> PeerSettings {
        match &self.realm {
            Some(realm) if is_keyed => realm.members(&self.values),
            Some(_) => self.values.with("--keyed", "security", "open"),
            None => self.values.clone(),
        }
    }

    /// Sends raw datagrams to the receivers of a case at its pace. `Err`
    /// inside: the reason why the kernel cannot do it in this way.
    ///
    /// # Errors
    /// A process fails.
    pub fn raw(&self, raw: &RawCase, span: Duration) -> Result<Result<BenchRun, String>, CommandFailure> {
        let RawCase { mode, bytes, receivers, pace } = *raw;
        let _progress = self.progress(&format!("raw datagrams of {bytes} bytes"));
        let job = RawJob { values: self.values.clone(), mode, bytes, span_ns: nanos(span), pace };
        let receivers = vec![Job::RawReceive(job.clone()); receivers];
        self.run(&Job::RawSend(job), &receivers, span)
    }

    /// Returns the rate of raw datagrams at which most is received: a sender that overruns its receivers may take
    /// resources that they need to receive. `None` means as fast as the kernel accepts them.
    ///
    /// # Errors
    /// A process fails.
    pub fn raw_rate(&self, raw: &RawCase, span: Duration) -> Result<Result<Option<f64>, String>, CommandFailure> {
        let span = (span / TRIAL_SHARE).max(TRIAL_TIME);
        let (mut best, mut rate) = match self.raw(&RawCase { pace: RawPace::Unlimited, ..*raw }, span)? {
            Ok(run) if run.share_received() < OVERRUN_SHARE => (run.per_s(), None),
            Ok(_) => return Ok(Ok(None)),
            Err(why) => return Ok(Err(why)),
        };
        for _ in 0..TRIALS {
            let next = best / raw.receivers as f64 * TRIAL_STEP;
            match self.raw(&RawCase { pace: RawPace::Batches(next), ..*raw }, span)? {
                Ok(run) if best < run.per_s() => (best, rate) = (run.per_s(), Some(next)),
                Ok(_) => break,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(rate))
    }

    /// Publishes with the library.
    ///
    /// # Errors
    /// A process fails.
    pub fn library(&self, case: &LoadCase) -> Result<BenchRun, CommandFailure> {
        let LoadCase { load, subscribers, is_each, drop, is_keyed } = *case;
        let peers = self.peers(is_keyed);
        let _progress = self.progress(&format!("messages of {} bytes", load.bytes));
        let daemon = self.shared_daemon(&peers)?;
        let peers = daemon.as_ref().map_or(peers.clone(), |daemon| daemon.settings(&peers));
        let subscriber = |seed| {
            let drop = (0.0 < drop).then_some(Drop { share: drop, seed });
            let values = peers.with("bench", "name", &format!("bench-sub-{seed}"));
            Job::Subscribe(SubscribeJob { values, path: self.path, load, is_each, drop })
        };
        let receivers: Vec<Job> = (1..).take(subscribers).map(subscriber).collect();
        let values = peers.with("bench", "name", "bench-pub");
        let publisher = Job::Publish(PublishJob { values, path: self.path, load, subscribers });
        let run = self.run(&publisher, &receivers, Duration::from_nanos(load.span_ns))?;
        run.map_err(|why| CommandFailure::new(Exit::Failed, why))
    }

    /// Sends messages to and fro.
    ///
    /// # Errors
    /// A process fails.
    pub fn ping(&self, case: PingCase, span: Duration) -> Result<PingRun, CommandFailure> {
        let PingCase { is_raw, is_busy, bytes, is_keyed } = case;
        let peers = self.peers(is_keyed);
        let what = if is_raw { "raw datagrams" } else { "messages" };
        let _progress = self.progress(&format!("{what} of {bytes} bytes to and fro"));
        let polling = peers.with("bench", "busy-poll", BUSY_POLL);
        let daemon = if is_raw { None } else { self.shared_daemon(if is_busy { &polling } else { &peers })? };
        let peers = daemon.as_ref().map_or(peers.clone(), |daemon| daemon.settings(&peers));
        let [ping, pong] = ["bench-ping", "bench-pong"].map(|name| PingJob {
            values: peers.with("bench", "name", name),
            path: self.path,
            bytes,
            span_ns: nanos(span),
            is_busy,
        });
        let [ping, pong] =
            if is_raw { [Job::RawPing(ping), Job::RawPong(pong)] } else { [Job::Ping(ping), Job::Pong(pong)] };
        let [pinger, ponger] = self.launches();
        let able = |ready: Result<ReadyReport, String>| ready.map_err(|why| CommandFailure::new(Exit::Failed, why));
        let mut ponger = Process::start(ponger, &pong)?;
        let there = able(ponger.ready(&self.interrupt)?)?;
        let mut pinger = Process::start(pinger, &ping)?;
        let here = able(pinger.ready(&self.interrupt)?)?;
        pinger.send(ProcessCommand::Go);
        let pinged = pinger.pinged(&self.interrupt, span)?;
        pinger.send(ProcessCommand::Stop);
        ponger.send(ProcessCommand::Stop);
        Ok(PingRun { has_one_clock: here.host.boot == there.host.boot, report: pinged })
    }

    /// Starts the daemon that all programs of a run share, on the side of the publisher, if this is their path.
    fn shared_daemon(&self, peers: &PeerSettings) -> Result<Option<DaemonProcess>, CommandFailure> {
        if self.path != BenchPath::Host {
            return Ok(None);
        }
        let [launch, _] = self.launches();
        DaemonProcess::start(launch, peers, None, &self.interrupt).map(Some)
    }

    /// Shows the next run until the value is dropped.
    fn progress(&self, what: &str) -> Progress {
        self.runs.set(self.runs.get() + 1);
        Progress::activity(format!("run {}: {what}", self.runs.get()), Clock::now().instant)
    }

    /// Returns the start parameters of publishers and subscribers.
    fn launches(&self) -> [Launch<'_>; 2] {
        [&self.publisher_via, &self.subscriber_via].map(|via| Launch { program: &self.program, via: via.as_deref() })
    }

    /// Executes one run: from the start of the receivers, which are ready before anything is sent, until all have
    /// reported.
    fn run(&self, sender: &Job, receivers: &[Job], span: Duration) -> Result<Result<BenchRun, String>, CommandFailure> {
        let [publisher, subscriber] = self.launches();
        let receivers = receivers.iter().map(|job| Process::start(subscriber, job));
        let mut receivers = receivers.collect::<Result<Vec<Process>, CommandFailure>>()?;
        let mut first = None;
        for receiver in &mut receivers {
            match receiver.ready(&self.interrupt)? {
                Ok(ready) => first = first.or(Some(ready)),
                Err(why) => return Ok(Err(why)),
            }
            receiver.send(ProcessCommand::Go);
        }
        if matches!(sender, Job::Publish(_)) {
            std::thread::sleep(SUBSCRIBER_LEAD_TIME);
        }
        let mut sender = Process::start(publisher, sender)?;
        let ready = match sender.ready(&self.interrupt)? {
            Ok(ready) => ready,
            Err(why) => return Ok(Err(why)),
        };
        sender.send(ProcessCommand::Go);
        let sent = sender.sent(&self.interrupt, span)?;
        receivers.iter_mut().for_each(|receiver| receiver.send(ProcessCommand::Finish { sent: sent.sent }));
        let received = receivers.iter_mut().map(|receiver| receiver.received(&self.interrupt));
        let received = received.collect::<Result<Vec<ReceiveReport>, CommandFailure>>()?;
        sender.send(ProcessCommand::Stop);
        Ok(Ok(BenchRun { sender: ready, receiver: first.expect("there is a receiver"), sent, received }))
    }
}
