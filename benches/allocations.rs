//! Allocations, copies, system calls and page faults on the hot path: `cargo bench --bench allocations [-- BYTES]`.
//! Datagrams have at most 1,472 bytes, or BYTES.
//!
//! Publishing and receiving may allocate a bounded number of times for each datagram, however many messages it
//! contains. The bench counts allocations, bytes copied, system calls and page faults, through the core alone, through
//! two peers on loopback multicast, and through one peer that two programs of a host share. It exits with 1 if a bound
//! of allocations is exceeded. It counts every delivered message. The threads of the host share a process, so their
//! work is one sum; the calls by which they wait for each other (`futex`) are not counted.
//!
//! Bytes are counted where they are copied: the bench defines `memcpy` and `memmove` itself, as well as the system calls
//! of the data path. A copy of fixed size that the compiler writes out as a few moves is not counted, and no payload is
//! copied that way.

#[path = "deliveries/mod.rs"]
mod deliveries;
#[path = "allocations/interposed.rs"]
mod interposed;

use bytes::Bytes;
use deliveries::take_deliveries;
use interposed::Work;
use seqcast::bus::{AttachOptions, Bus, EmbeddedPeer, Notice, NoticeRef, Options, PublishError, Subscription};
use seqcast::clock::{Clock, random_u64};
use seqcast::config::{Config, DatagramSize};
use seqcast::message::{ClientId, DeliveryMode, Epoch, Message, SubId};
use seqcast::proto::effect::{ClientRequest, Effect, Input, Path};
use seqcast::proto::peer::Peer;
use seqcast::rng::Rng;
use seqcast::subject::{Pattern, Subject};
use seqcast::time::{ClockReading, Instant, WallTime};
use serde_json::{Value, json};
use std::fs;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Number of messages that are counted, after the same number that makes the tables grow to their size.
const MESSAGES: usize = 200_000;
/// Number of messages published between two turns: fewer than the socket's buffer holds.
const BURST: usize = 512;
/// The largest datagram on an Ethernet, in bytes of UDP payload.
const ETHERNET_BYTES: usize = 1472;
/// Maximum number of allocations for each datagram on either side. On one subject a datagram holds about twenty
/// messages, so that one allocation for each message would show.
const PER_DATAGRAM_MAX: f64 = 8.0;
/// Maximum number of allocations for each datagram that the core receives: decoding and delivering use the lists of
/// earlier datagrams again.
const PER_RECEIVED_MAX: f64 = 0.25;
/// Timeout for the two peers to meet, and for the messages to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts of one side.
#[derive(Clone, Copy, Default)]
struct Count {
    work: Work,
    messages: u64,
    datagrams: u64,
    payload_bytes: u64,
}

impl Count {
    /// Prints a line about one side, or two in one sum. Returns false if there are more allocations for each datagram.
    fn print(&self, name: &str, per_datagram_max: f64) -> bool {
        let Work { allocations, copied_bytes, transferred_bytes, system_calls, page_faults } = self.work;
        let of_datagram = allocations as f64 / self.datagrams as f64;
        let is_within = of_datagram <= per_datagram_max;
        let verdict = if is_within { "ok" } else { "TOO MANY" };
        println!(
            "{name:<50} | {:>8} | {:>9} | {:>11.3} | {of_datagram:>12.2} | {:>9.2} | {:>9.2} | {:>12.1} | {:>11.1} | {verdict}",
            self.messages,
            self.datagrams,
            allocations as f64 / self.messages as f64,
            copied_bytes as f64 / self.payload_bytes as f64,
            transferred_bytes as f64 / self.payload_bytes as f64,
            1000.0 * system_calls as f64 / self.messages as f64,
            1000.0 * page_faults as f64 / self.messages as f64,
        );
        is_within
    }

    /// Adds the work for a number of messages.
    fn add(&mut self, work: Work, messages: u64, payload_bytes: usize) {
        self.work += work;
        self.messages += messages;
        self.payload_bytes += messages * payload_bytes as u64;
    }
}

/// Returns messages on `subjects` subjects in turn. Their payload is shared, because it is not counted here.
fn messages(subjects: usize, payload_bytes: usize) -> Vec<Message> {
    let payload = Bytes::from(vec![7; payload_bytes]);
    let subject = |n: usize| -> Subject { format!("bench.allocations.{n}").parse().expect("a subject") };
    (0..subjects).map(|n| Message::new(subject(n), payload.clone())).collect()
}

/// Returns the maximum size of a datagram, in bytes of UDP payload.
fn datagram_bytes() -> usize {
    std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(ETHERNET_BYTES)
}

fn config() -> Config {
    let bits = random_u64().to_be_bytes();
    let mut config = Config::default();
    config.group = [239, 255, bits[0], bits[1].max(1)].into();
    config.port = 20_000 + u16::from_be_bytes([bits[2], bits[3]]) % 10_000;
    config.interface = "lo".parse().expect("the loopback interface");
    config.datagram_size = DatagramSize::Bytes(datagram_bytes());
    config
}

fn peer(config: &Config, epoch: u64) -> Peer {
    Peer::new(config.settings(datagram_bytes()), Epoch::new(epoch).expect("not 0"), Rng::new(epoch), now(1))
}

fn now(millis: u64) -> ClockReading {
    let instant = Instant::from_nanos(millis * 1_000_000);
    ClockReading { instant, wall: WallTime::from_nanos(1_659_131_646_000_000_000 + millis * 1_000_000) }
}

/// Measures the core: two state machines, no socket.
fn core(subjects: usize, payload_bytes: usize) -> bool {
    let (client, sub) = (ClientId(1), SubId(1));
    let config = config();
    let (mut publisher, mut subscriber) = (peer(&config, 1), peer(&config, 2));
    let pattern = "bench.>".parse::<Pattern>().expect("a pattern").into();
    let request = ClientRequest::Subscribe { sub, wanted: pattern, mode: DeliveryMode::Repair, wants_discovery: false };
    subscriber.handle(now(1), Input::ClientRequest { client, request });
    while subscriber.poll_effect().is_some() {}
    let messages = messages(subjects, payload_bytes);
    let mut round = messages.iter().cycle();
    let mut datagrams: Vec<Bytes> = Vec::with_capacity(BURST);
    let from = SocketAddr::from(([127, 0, 0, 1], 9001));
    let (mut published, mut received) = (Count::default(), Count::default());
    for step in 0..2 * MESSAGES.div_ceil(BURST) as u64 {
        if step == MESSAGES.div_ceil(BURST) as u64 {
            (published, received) = (Count::default(), Count::default());
        }
        let now = now(2 + step);
        let (work, ()) = interposed::count(|| {
            for message in round.by_ref().take(BURST) {
                publisher.publish(now, client, message).expect("it is small");
            }
            publisher.handle(now, Input::Tick);
            while let Some(effect) = publisher.poll_effect() {
                if let Effect::Multicast(bytes) = effect {
                    datagrams.push(bytes);
                }
            }
        });
        published.add(work, BURST as u64, payload_bytes);
        published.datagrams += datagrams.len() as u64;
        received.datagrams += datagrams.len() as u64;
        // The first reference to a part of a datagram allocates its count of references. The library's rows include it.
        datagrams.iter().for_each(|bytes| drop(black_box(bytes.clone())));
        let (work, delivered) = interposed::count(|| {
            let mut delivered = 0;
            for bytes in datagrams.drain(..) {
                subscriber.handle(now, Input::Datagram { from, path: Path::Multicast, bytes });
                delivered += take_deliveries(&mut subscriber);
            }
            delivered
        });
        received.add(work, delivered, payload_bytes);
    }
    assert_eq!(published.messages, received.messages, "nothing is lost between two peers in one process");
    let is_within =
        published.print(&format!("core, {subjects} subjects, {payload_bytes} B: publish"), PER_DATAGRAM_MAX);
    received.print(&format!("core, {subjects} subjects, {payload_bytes} B: receive and deliver"), PER_RECEIVED_MAX)
        && is_within
}

/// Reads the available messages and returns their number.
fn drain(subscription: &Subscription) -> u64 {
    let mut messages = 0;
    let drained = subscription.drain(|event| match event {
        NoticeRef::Message(delivery) => {
            black_box(delivery);
            messages += 1;
        }
        other => panic!("on loopback, in small bursts, nothing is missing: {other:?}"),
    });
    drained.expect("the peer runs");
    messages
}

/// Returns the number of datagrams that a peer has multicast so far, by its report of counters.
fn multicast(answer: &Value) -> u64 {
    let rows = answer["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["counter"] == "datagrams_multicast").expect("it is counted");
    row["value"].as_u64().expect("a number")
}

/// Measures the library: two peers that this thread drives in turn, over loopback multicast.
fn library(subjects: usize, payload_bytes: usize) -> bool {
    let config = config();
    let mut subscriber = EmbeddedPeer::open(&config).expect("a peer on loopback");
    let mut publisher = EmbeddedPeer::open(&config).expect("a peer on loopback");
    let subscription = subscriber.subscribe("bench.>".parse().expect("a pattern")).expect("subscribed");
    let deadline = Clock::now().instant + PATIENCE;
    let has_met =
        |peer: &mut EmbeddedPeer| !peer.show(&json!({ "show": "peers" }))["rows"].as_array().expect("rows").is_empty();
    while !(has_met(&mut publisher) && has_met(&mut subscriber)) {
        assert!(Clock::now().instant < deadline, "the two peers do not meet");
        publisher.drive(Duration::from_millis(1)).expect("it runs");
        subscriber.drive(Duration::from_millis(1)).expect("it runs");
    }
    let messages = messages(subjects, payload_bytes);
    let mut round = messages.iter().cycle();
    let (mut published, mut received) = (Count::default(), Count::default());
    let counters = json!({ "show": "counters" });
    let mut before = 0;
    for step in 0..2 * MESSAGES.div_ceil(BURST) {
        if step == MESSAGES.div_ceil(BURST) {
            (published, received) = (Count::default(), Count::default());
            before = multicast(&publisher.show(&counters));
        }
        let (work, ()) = interposed::count(|| {
            for message in round.by_ref().take(BURST) {
                while let Err(error) = publisher.publish_ref(message) {
                    assert_eq!(error, PublishError::Full);
                    publisher.turn().expect("it runs");
                }
            }
            publisher.turn().expect("it runs");
        });
        published.add(work, BURST as u64, payload_bytes);
        let deadline = Clock::now().instant + PATIENCE;
        let mut received_count = 0;
        while received_count < BURST as u64 {
            let (work, count) = interposed::count(|| {
                subscriber.turn().expect("it runs");
                drain(&subscription)
            });
            received.add(work, count, payload_bytes);
            received_count += count;
            // The rest of the burst may wait until the subscriber has reported that it has room.
            let (work, _) = interposed::count(|| publisher.turn().expect("it runs"));
            published.add(work, 0, payload_bytes);
            assert!(Clock::now().instant < deadline, "{received_count} of {BURST} messages came");
        }
    }
    published.datagrams = multicast(&publisher.show(&counters)) - before;
    received.datagrams = published.datagrams;
    let is_within = published
        .print(&format!("library, {subjects} subjects, {payload_bytes} B: publish and send"), PER_DATAGRAM_MAX);
    received.print(&format!("library, {subjects} subjects, {payload_bytes} B: receive and read"), PER_DATAGRAM_MAX)
        && is_within
}

/// Measures a host: a peer, and two programs that attach to it by shared memory or by its socket. The peer multicasts the
/// messages as well.
fn host(has_shared_memory: bool, payload_bytes: usize) -> bool {
    let directory = std::env::temp_dir().join(format!("seqcast-allocations-{}", std::process::id()));
    let mut config = config();
    config.socket = directory.join("peer.sock");
    let peer = Bus::embed_with(&config, &Options { serve: true, ..Options::default() }).expect("a peer on loopback");
    let options = AttachOptions { shared_memory: has_shared_memory, ..AttachOptions::default() };
    let attach = || Bus::attach_with(&config.socket, &options).expect("the peer listens");
    let (publisher, subscriber) = (attach(), attach());
    let subscription = subscriber.subscribe("bench.>".parse::<Pattern>().expect("a pattern")).expect("subscribed");
    let (subject, payload) = ("bench.allocations".parse().expect("a subject"), vec![7; payload_bytes]);
    let multicast_so_far = || multicast(&peer.show("counters").expect("the peer answers"));
    let (mut total, mut before) = (Count::default(), 0);
    for step in 0..2 * MESSAGES.div_ceil(BURST) {
        if step == MESSAGES.div_ceil(BURST) {
            (total, before) = (Count::default(), multicast_so_far());
        }
        let (work, ()) = interposed::count(|| {
            for _ in 0..BURST {
                publisher.publish_payload(&subject, &payload, PATIENCE).expect("there is room");
            }
            for _ in 0..BURST {
                match subscription.recv_timeout(PATIENCE).expect("all messages come") {
                    Notice::Message(delivery) => drop(black_box(delivery)),
                    other => panic!("in small bursts nothing is missing: {other:?}"),
                }
            }
        });
        total.add(work, BURST as u64, payload_bytes);
    }
    total.datagrams = multicast_so_far() - before;
    drop((publisher, subscriber, subscription, peer));
    // The peer has removed its socket; a directory that is left is a matter of the system's clean-up.
    drop(fs::remove_dir_all(directory));
    let path = if has_shared_memory { "shared memory" } else { "socket" };
    total.print(&format!("host, {path}, {payload_bytes} B: publish to read"), 2.0 * PER_DATAGRAM_MAX)
}

fn main() -> ExitCode {
    let columns = ["messages", "datagrams", "allocations", "copied", "by kernel", "system calls", "page faults"];
    let [messages, datagrams, allocations, copied, by_kernel, calls, faults] = columns;
    println!(
        "{:<50} | {messages} | {datagrams} | {allocations} |  {allocations} | {copied:>9} | {by_kernel} | {calls} | {faults} |",
        ""
    );
    println!(
        "{:<50} |          |           | per message | per datagram | per byte  | per byte  | per 1000 m.  | per 1000 m. |",
        ""
    );
    println!("{}", "-".repeat(154));
    let mut is_within = true;
    for (subjects, payload_bytes) in [(1, 64), (1, 1024), (1000, 64)] {
        is_within &= core(subjects, payload_bytes);
        is_within &= library(subjects, payload_bytes);
    }
    for payload_bytes in [64, 1024] {
        is_within &= host(true, payload_bytes);
        is_within &= host(false, payload_bytes);
    }
    println!(
        "at most {PER_DATAGRAM_MAX} allocations for each datagram and side, {PER_RECEIVED_MAX} where the core receives; \
         'per byte' is for each byte of payload"
    );
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
