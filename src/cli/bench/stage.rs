//! Where the programs of the bench run, and the runs that every measurement is made of.

use std::path::PathBuf;
use std::time::Duration;

use super::args::{BenchPath, StageOptions};
use super::child::{Launch, Process};
use super::job::{
    Drop, Job, Load, PingJob, Pinged, PublishJob, RawJob, RawMode, Ready, Received, Sent, SubscribeJob, Values, Word,
};
use crate::cli::exit::{Exit, Failure};
use crate::cli::interrupt::Interrupt;
use crate::config::Config;
use crate::daemon::clock::random_u64;
use crate::time::nanos;

/// The queue of a subscription in a run: the bench measures the way to it, and reads it as fast as it can.
const QUEUE_COUNT: &str = "1000000";
const QUEUE_SIZE: &str = "1 gb";

/// How much older than the publisher the subscriptions are: enough for a subscriber to be certain, also where nothing of the
/// publisher gets through at first, that its very first message was meant for it (reliability.md R4).
const OLDER: Duration = Duration::from_millis(250);

/// Both sides.
pub struct Stage {
    /// The configuration of all peers.
    pub values: Values,
    /// The same, read.
    pub config: Config,
    path: BenchPath,
    program: PathBuf,
    publisher_via: Option<String>,
    subscriber_via: Option<String>,
    interrupt: Interrupt,
}

/// How a run went.
pub struct Run {
    /// What the sender or publisher found.
    pub sender: Ready,
    /// What the first receiver or subscriber found.
    pub receiver: Ready,
    /// What was sent.
    pub sent: Sent,
    /// What came, at each.
    pub received: Vec<Received>,
}

/// What is run with the library.
#[derive(Clone, Copy)]
pub struct Case {
    /// What is published.
    pub load: Load,
    /// How many subscribe.
    pub subscribers: usize,
    /// Whether each subscribes to each subject by itself.
    pub is_each: bool,
    /// The share of the datagrams that each drops on purpose.
    pub drop: f64,
}

impl Stage {
    /// Takes the arguments; what is wrong with them is told before anything starts.
    ///
    /// # Errors
    /// A value is no value of its key; this program does not know its own file.
    pub fn new(options: &StageOptions) -> Result<Stage, Failure> {
        Stage::with(options, &[])
    }

    /// As [`Stage::new`], with these keys at these values unless the user sets them.
    ///
    /// # Errors
    /// As [`Stage::new`].
    pub fn with(options: &StageOptions, more: &[(&str, &str)]) -> Result<Stage, Failure> {
        let chance = random_u64();
        let [high, low, ..] = chance.to_be_bytes();
        let group = options.group.clone().unwrap_or_else(|| format!("239.254.{high}.{low}"));
        let port = options.port.map_or(20_000 + chance % 12_000, u64::from).to_string();
        let mut values = Values::default()
            .with("bench", "name", "bench")
            .with("bench", "client-queue-count", QUEUE_COUNT)
            .with("bench", "client-queue-size", QUEUE_SIZE)
            .with("--interface", "interface", &options.interface)
            .with("--group", "group", &group)
            .with("--port", "port", &port)
            .with("--datagram", "datagram-size", &options.datagram);
        for (key, value) in more {
            values = values.with("bench", key, value);
        }
        for setting in &options.settings {
            values = values.with("--set", &setting.key, &setting.value);
        }
        let program = match &options.program {
            Some(program) => program.clone(),
            None => std::env::current_exe()
                .map_err(|error| Failure::new(Exit::Failed, format!("cannot tell which program this is: {error}")))?,
        };
        Ok(Stage {
            config: values.config()?,
            values,
            path: options.path,
            program,
            publisher_via: options.publisher_via.clone(),
            subscriber_via: options.subscriber_via.clone(),
            interrupt: Interrupt::watch()?,
        })
    }

    /// Sends raw datagrams to so many receivers. `Err` inside: why the kernel cannot do it in this way.
    ///
    /// # Errors
    /// A process fails.
    pub fn raw(
        &self,
        mode: RawMode,
        bytes: usize,
        span: Duration,
        receivers: usize,
    ) -> Result<Result<Run, String>, Failure> {
        let job = RawJob { values: self.values.clone(), mode, bytes, span_ns: nanos(span) };
        let receivers = vec![Job::RawReceive(job.clone()); receivers];
        self.run(&Job::RawSend(job), &receivers, span)
    }

    /// Publishes with the library.
    ///
    /// # Errors
    /// A process fails.
    pub fn library(&self, case: &Case) -> Result<Run, Failure> {
        let Case { load, subscribers, is_each, drop } = *case;
        let subscriber = |seed| {
            let drop = (0.0 < drop).then_some(Drop { share: drop, seed });
            let values = self.values.with("bench", "name", &format!("bench-sub-{seed}"));
            Job::Subscribe(SubscribeJob { values, path: self.path, load, is_each, drop })
        };
        let receivers: Vec<Job> = (1..).take(subscribers).map(subscriber).collect();
        let values = self.values.with("bench", "name", "bench-pub");
        let publisher = Job::Publish(PublishJob { values, path: self.path, load, subscribers });
        let run = self.run(&publisher, &receivers, Duration::from_nanos(load.span_ns))?;
        run.map_err(|why| Failure::new(Exit::Failed, why))
    }

    /// Throws messages to and fro, raw ones or with the library. What the side that measures found comes with it.
    ///
    /// # Errors
    /// A process fails.
    pub fn ping(
        &self,
        is_raw: bool,
        bytes: usize,
        span: Duration,
        is_busy: bool,
    ) -> Result<(Ready, Ready, Pinged), Failure> {
        let [ping, pong] = ["bench-ping", "bench-pong"].map(|name| PingJob {
            values: self.values.with("bench", "name", name),
            path: self.path,
            bytes,
            span_ns: nanos(span),
            is_busy,
        });
        let [ping, pong] =
            if is_raw { [Job::RawPing(ping), Job::RawPong(pong)] } else { [Job::Ping(ping), Job::Pong(pong)] };
        let [pinger, ponger] = self.launches();
        let able = |ready: Result<Ready, String>| ready.map_err(|why| Failure::new(Exit::Failed, why));
        let mut ponger = Process::start(ponger, &pong)?;
        let there = able(ponger.ready(&self.interrupt)?)?;
        let mut pinger = Process::start(pinger, &ping)?;
        let here = able(pinger.ready(&self.interrupt)?)?;
        pinger.say(Word::Go);
        let pinged = pinger.pinged(&self.interrupt, span)?;
        pinger.say(Word::Stop);
        ponger.say(Word::Stop);
        Ok((here, there, pinged))
    }

    /// How publishers and subscribers are started.
    fn launches(&self) -> [Launch<'_>; 2] {
        [&self.publisher_via, &self.subscriber_via].map(|via| Launch { program: &self.program, via: via.as_deref() })
    }

    /// One run: from the start of the receivers, which are there before anything is sent, until all have said what came.
    fn run(&self, sender: &Job, receivers: &[Job], span: Duration) -> Result<Result<Run, String>, Failure> {
        let [publisher, subscriber] = self.launches();
        let receivers = receivers.iter().map(|job| Process::start(subscriber, job));
        let mut receivers = receivers.collect::<Result<Vec<Process>, Failure>>()?;
        let mut first = None;
        for receiver in &mut receivers {
            match receiver.ready(&self.interrupt)? {
                Ok(ready) => first = first.or(Some(ready)),
                Err(why) => return Ok(Err(why)),
            }
            receiver.say(Word::Go);
        }
        if matches!(sender, Job::Publish(_)) {
            std::thread::sleep(OLDER);
        }
        let mut sender = Process::start(publisher, sender)?;
        let ready = match sender.ready(&self.interrupt)? {
            Ok(ready) => ready,
            Err(why) => return Ok(Err(why)),
        };
        sender.say(Word::Go);
        let sent = sender.sent(&self.interrupt, span)?;
        receivers.iter_mut().for_each(|receiver| receiver.say(Word::Finish { sent: sent.sent }));
        let received = receivers.iter_mut().map(|receiver| receiver.received(&self.interrupt));
        let received = received.collect::<Result<Vec<Received>, Failure>>()?;
        sender.say(Word::Stop);
        Ok(Ok(Run { sender: ready, receiver: first.expect("there is a receiver"), sent, received }))
    }
}
