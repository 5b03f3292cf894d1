//! Traffic over the cluster: between two clients of it, or between two programs whose sites it joins.
//!
//! Sender and receiver are threads of this program. The sender waits while too many messages are under way, so that
//! neither way loses messages because its receiver is slow.

use crate::cluster::{Cluster, Site};
use crate::{Outcome, now};
use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, ConnectOptions, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt;
use seqcast::bus::{Bus, Notice};
use seqcast::message::Message;
use seqcast::subject::{Pattern, Subject};
use seqcast::time::Instant;
use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Messages that are under way at most.
const WINDOW: u64 = 4096;
/// Pause of a sender while that many are under way.
const PAUSE: Duration = Duration::from_micros(500);
/// Time without a message after which the others count as lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Messages that may wait in a client: more than can be under way.
const CAPACITY: usize = 65_536;
/// Interval of the messages whose latency is measured.
const PACE: Duration = Duration::from_millis(1);
/// Bytes at the begin of a payload: the number of the message, and the time at which it was sent.
pub const STAMP_BYTES: usize = 16;

/// Whether messages cross at once, or by the stream of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Live,
    Durable,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Live => "live",
            Mode::Durable => "durable",
        }
    }
}

/// Messages of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub mode: Mode,
    pub count: u64,
    /// Bytes of a payload, at least [`STAMP_BYTES`].
    pub size: usize,
    /// Whether one is sent each [`PACE`], or as many as the receiver takes.
    pub is_paced: bool,
    /// Whether clients add header fields like those of gateways.
    pub has_fields: bool,
}

/// Outcome of a run.
#[derive(Debug, Default)]
pub struct Received {
    pub count: u64,
    /// Time from the first message sent to the last one received.
    pub time: Duration,
    /// Times of all messages from sender to receiver, in nanoseconds, ascending.
    pub latencies: Vec<u64>,
}

impl Received {
    /// Returns the number of messages in a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }
}

/// Progress of a run, which both threads see.
struct Progress {
    load: Load,
    begun: Instant,
    received: AtomicU64,
}

impl Progress {
    /// Returns whether the sender waits until more has been received.
    fn is_full(&self, sent: u64, stalled_since: Instant) -> bool {
        let is_stalled = SILENCE < now().since(stalled_since);
        WINDOW <= sent - self.received.load(Ordering::Relaxed) && !is_stalled
    }

    /// Returns the header fields with which a client sends a message, if it does: the origin, and for the stream an id.
    fn fields(&self, number: u64) -> Option<HeaderMap> {
        let Load { mode, has_fields, .. } = self.load;
        if !has_fields {
            return None;
        }
        let mut fields = HeaderMap::new();
        let origin = format!(
            "plant1 6b1f90a2c3d4e5f6 3 {number} 1102 {number} b41c09e2aa70d355 A.test 5c19adc0{number:08x} {number} b8335b8"
        );
        fields.insert("Seqcast-Origin", origin.as_str());
        if mode == Mode::Durable {
            fields.insert("Seqcast-Durable", "0");
            // The stream drops ids that it has seen, also in an earlier run.
            let run = self.begun.since(Instant::ZERO).as_nanos();
            fields.insert("Nats-Msg-Id", format!("{run:x} 5c19adc0{number:08x}"));
        }
        Some(fields)
    }

    fn payload(&self, number: u64) -> Vec<u8> {
        let mut payload = vec![b'x'; self.load.size];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        let at = now().since(self.begun).as_nanos() as u64;
        payload[8..STAMP_BYTES].copy_from_slice(&at.to_be_bytes());
        payload
    }

    /// Takes a payload. Returns whether it is the last one.
    fn on_payload(&self, payload: &[u8], received: &mut Received) -> bool {
        let word =
            |at: usize| payload.get(at..at + 8).map(|word| u64::from_be_bytes(word.try_into().expect("8 bytes")));
        let (Some(number), Some(at)) = (word(0), word(8)) else { return false };
        received.count += 1;
        self.received.store(received.count, Ordering::Relaxed);
        received.time = now().since(self.begun);
        if self.load.is_paced {
            received.latencies.push((received.time.as_nanos() as u64).saturating_sub(at));
        }
        number + 1 == self.load.count
    }
}

/// Two clients of the cluster.
pub fn between_clients(cluster: &Cluster, load: Load) -> Outcome<Received> {
    let (from, to) = (cluster.address(0), cluster.address(1));
    run(
        load,
        |progress| in_runtime(send_by_client(from, progress)),
        |progress, ready| in_runtime(receive_by_client(to, progress, ready)),
    )
}

/// Two programs, each at the peer of a site.
pub fn between_programs(from: &Site, to: &Site, load: Load) -> Outcome<Received> {
    let (from, to) = (from.attach()?, to.attach()?);
    run(load, |progress| send_by_program(&from, progress), |progress, ready| receive_by_program(&to, progress, ready))
}

fn run(
    load: Load,
    send: impl FnOnce(&Progress) -> Outcome<()> + Send,
    receive: impl FnOnce(&Progress, SyncSender<()>) -> Outcome<Received> + Send,
) -> Outcome<Received> {
    let progress = Progress { load, begun: now(), received: AtomicU64::new(0) };
    let progress = &progress;
    let (ready, is_ready) = sync_channel(1);
    thread::scope(|scope| {
        let receiver = scope.spawn(move || receive(progress, ready));
        // An error of the receiver comes below.
        let sent = match is_ready.recv() {
            Ok(()) => send(progress),
            Err(_) => Ok(()),
        };
        let mut received = receiver.join().map_err(|_| "the receiver has failed")??;
        sent?;
        received.latencies.sort_unstable();
        Ok(received)
    })
}

fn in_runtime<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    runtime.block_on(work)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

async fn connect(address: &str) -> Outcome<Client> {
    ConnectOptions::new().subscription_capacity(CAPACITY).connect(address).await.map_err(text)
}

async fn send_by_client(address: String, progress: &Progress) -> Outcome<()> {
    let client = connect(&address).await?;
    let stream = jetstream::new(client.clone());
    let subject = subject_of_clients(progress.load.mode);
    let mut answers = Vec::new();
    let mut pace = tokio::time::interval(PACE);
    for number in 0..progress.load.count {
        if progress.load.is_paced {
            pace.tick().await;
        }
        let stalled_since = now();
        while progress.is_full(number, stalled_since) {
            tokio::time::sleep(PAUSE).await;
        }
        let payload = Bytes::from(progress.payload(number));
        match (progress.load.mode, progress.fields(number)) {
            (Mode::Live, None) => client.publish(subject, payload).await.map_err(text)?,
            (Mode::Live, Some(fields)) => client.publish_with_headers(subject, fields, payload).await.map_err(text)?,
            (Mode::Durable, fields) => {
                let message = PublishMessage::build().payload(payload);
                let message = match fields {
                    Some(fields) => message.headers(fields),
                    None => message,
                };
                answers.push(stream.send_publish(subject, message).await.map_err(text)?);
                if WINDOW as usize <= answers.len() {
                    for answer in answers.drain(..WINDOW as usize / 2) {
                        answer.await.map_err(text)?;
                    }
                }
            }
        }
    }
    for answer in answers {
        answer.await.map_err(text)?;
    }
    client.flush().await.map_err(text)
}

async fn receive_by_client(address: String, progress: &Progress, ready: SyncSender<()>) -> Outcome<Received> {
    let client = connect(&address).await?;
    let subject = subject_of_clients(progress.load.mode);
    let mut received = Received::default();
    match progress.load.mode {
        Mode::Live => {
            let mut messages = client.subscribe(subject).await.map_err(text)?;
            client.flush().await.map_err(text)?;
            // The other node learns of the subscription.
            tokio::time::sleep(Duration::from_millis(200)).await;
            ready.send(()).map_err(text)?;
            while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
                if progress.on_payload(&message.payload, &mut received) {
                    break;
                }
            }
        }
        Mode::Durable => {
            let stream = client_stream(&client).await?;
            stream.purge().await.map_err(text)?;
            let reader = stream.create_consumer(OrderedConfig::default()).await.map_err(text)?;
            let mut messages = reader.messages().await.map_err(text)?;
            ready.send(()).map_err(text)?;
            while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
                if progress.on_payload(&message.map_err(text)?.payload, &mut received) {
                    break;
                }
            }
        }
    }
    Ok(received)
}

/// Returns the stream of the clients, with the settings of the one that a gateway makes.
async fn client_stream(client: &Client) -> Outcome<jetstream::stream::Stream> {
    let config = jetstream::stream::Config {
        name: "CLIENTS".to_owned(),
        subjects: vec![subject_of_clients(Mode::Durable).to_owned()],
        max_age: Duration::from_secs(7 * 24 * 3600),
        max_bytes: 1 << 30,
        allow_direct: true,
        ..jetstream::stream::Config::default()
    };
    jetstream::new(client.clone()).get_or_create_stream(config).await.map_err(text)
}

fn subject_of_clients(mode: Mode) -> &'static str {
    match mode {
        Mode::Live => "clients.live",
        Mode::Durable => "clients.durable",
    }
}

fn subject_of_programs(mode: Mode) -> Subject {
    let subject = match mode {
        Mode::Live => "live.bench",
        Mode::Durable => "durable.bench",
    };
    subject.parse().expect("a constant that is a subject")
}

fn send_by_program(program: &Bus, progress: &Progress) -> Outcome<()> {
    let subject = subject_of_programs(progress.load.mode);
    let begun = now();
    for number in 0..progress.load.count {
        if progress.load.is_paced {
            let at = begun + PACE * u32::try_from(number).unwrap_or(u32::MAX);
            thread::sleep(at.since(now()));
        }
        let stalled_since = now();
        while progress.is_full(number, stalled_since) {
            thread::sleep(PAUSE);
        }
        program.publish_blocking(Message::new(subject.clone(), progress.payload(number))).map_err(text)?;
    }
    Ok(())
}

fn receive_by_program(program: &Bus, progress: &Progress, ready: SyncSender<()>) -> Outcome<Received> {
    let pattern = Pattern::from(subject_of_programs(progress.load.mode));
    let subscription = program.subscribe(pattern).map_err(text)?;
    ready.send(()).map_err(text)?;
    let mut received = Received::default();
    while let Ok(notice) = subscription.recv_timeout(SILENCE) {
        if let Notice::Message(delivery) = notice
            && progress.on_payload(&delivery.message.payload, &mut received)
        {
            break;
        }
    }
    Ok(received)
}
