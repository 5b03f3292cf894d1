//! Allocations on the hot path: `cargo bench --bench allocations`.
//!
//! Publishing and receiving may allocate a bounded number of times for each datagram, however many messages it
//! contains. The bench prints the number of allocations, through the core alone and through two peers on loopback
//! multicast. It exits with 1 if a bound is exceeded. It counts every delivered message.

use bytes::Bytes;
use seqcast::bus::{EmbeddedPeer, NoticeRef, PublishError, Subscription};
use seqcast::clock::{Clock, random_u64};
use seqcast::config::{Config, DatagramSize};
use seqcast::message::{ClientId, DeliveryMode, Epoch, Message, SubId};
use seqcast::proto::effect::{ClientRequest, Effect, Input, Path};
use seqcast::proto::peer::Peer;
use seqcast::rng::Rng;
use seqcast::subject::{Pattern, Subject};
use seqcast::time::{ClockReading, Instant, WallTime};
use serde_json::json;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Allocator that counts the calls that allocate or reallocate.
struct CountingAllocator;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counter touches no allocated memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Number of messages that are counted, after the same number that makes the tables grow to their size.
const MESSAGES: usize = 200_000;
/// Number of messages published between two turns: fewer than the socket's buffer holds.
const BURST: usize = 512;
const PAYLOAD_BYTES: usize = 64;
/// The largest datagram on an Ethernet, in bytes of UDP payload.
const DATAGRAM_BYTES: usize = 1472;
/// Maximum number of allocations for each datagram on either side. On one subject a datagram holds about twenty
/// messages, so that one allocation for each message would show.
const PER_DATAGRAM_MAX: f64 = 8.0;
/// Timeout for the two peers to meet, and for the messages to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts of one side.
#[derive(Clone, Copy, Default)]
struct Count {
    allocations: u64,
    messages: u64,
    datagrams: u64,
}

impl Count {
    /// Prints a line. Returns false if the bound is exceeded.
    fn print(&self, name: &str) -> bool {
        let [each, of_datagram] = [self.messages, self.datagrams].map(|count| self.allocations as f64 / count as f64);
        let is_within = of_datagram <= PER_DATAGRAM_MAX;
        let verdict = if is_within { "ok" } else { "TOO MANY" };
        println!(
            "{name:<44} | {:>8} | {:>9} | {:>11} | {each:>11.3} | {of_datagram:>12.2} | {verdict}",
            self.messages, self.datagrams, self.allocations
        );
        is_within
    }
}

/// Returns the number of allocations that `work` makes, and its result.
fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = CALLS.load(Relaxed);
    let result = work();
    (CALLS.load(Relaxed) - before, result)
}

/// Returns messages on `subjects` subjects in turn. Their payload is shared, because it is not counted here.
fn messages(subjects: usize) -> Vec<Message> {
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let subject = |n: usize| -> Subject { format!("bench.allocations.{n}").parse().expect("a subject") };
    (0..subjects).map(|n| Message::new(subject(n), payload.clone())).collect()
}

fn config() -> Config {
    let bits = random_u64().to_be_bytes();
    let mut config = Config::default();
    config.group = [239, 255, bits[0], bits[1].max(1)].into();
    config.port = 20_000 + u16::from_be_bytes([bits[2], bits[3]]) % 10_000;
    config.interface = "lo".parse().expect("the loopback interface");
    config.datagram_size = DatagramSize::Bytes(DATAGRAM_BYTES);
    config
}

fn peer(config: &Config, epoch: u64) -> Peer {
    Peer::new(config.settings(DATAGRAM_BYTES), Epoch::new(epoch).expect("not 0"), Rng::new(epoch), now(1))
}

fn now(millis: u64) -> ClockReading {
    let instant = Instant::from_nanos(millis * 1_000_000);
    ClockReading { instant, wall: WallTime::from_nanos(1_659_131_646_000_000_000 + millis * 1_000_000) }
}

/// Measures the core: two state machines, no socket.
fn core(subjects: usize) -> bool {
    let (client, sub) = (ClientId(1), SubId(1));
    let config = config();
    let (mut publisher, mut subscriber) = (peer(&config, 1), peer(&config, 2));
    let pattern = "bench.>".parse::<Pattern>().expect("a pattern").into();
    let request = ClientRequest::Subscribe { sub, wanted: pattern, mode: DeliveryMode::Repair, wants_discovery: false };
    subscriber.handle(now(1), Input::ClientRequest { client, request });
    while subscriber.poll_effect().is_some() {}
    let messages = messages(subjects);
    let mut round = messages.iter().cycle();
    let mut datagrams: Vec<Bytes> = Vec::with_capacity(BURST);
    let from = SocketAddr::from(([127, 0, 0, 1], 9001));
    let (mut published, mut received) = (Count::default(), Count::default());
    for step in 0..2 * MESSAGES.div_ceil(BURST) as u64 {
        if step == MESSAGES.div_ceil(BURST) as u64 {
            (published, received) = (Count::default(), Count::default());
        }
        let now = now(2 + step);
        let (count, ()) = allocations(|| {
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
        published.allocations += count;
        published.messages += BURST as u64;
        published.datagrams += datagrams.len() as u64;
        received.datagrams += datagrams.len() as u64;
        let (count, delivered) = allocations(|| {
            let mut delivered = 0;
            for bytes in datagrams.drain(..) {
                subscriber.handle(now, Input::Datagram { from, path: Path::Multicast, bytes });
                while let Some(effect) = subscriber.poll_effect() {
                    if let Effect::Deliver { deliveries, .. } = effect {
                        deliveries.for_each(|delivery| {
                            black_box(&delivery);
                            delivered += 1;
                        });
                    }
                }
            }
            delivered
        });
        received.allocations += count;
        received.messages += delivered;
    }
    assert_eq!(published.messages, received.messages, "nothing is lost between two peers in one process");
    let is_within = published.print(&format!("core, {subjects} subjects: publish"));
    received.print(&format!("core, {subjects} subjects: receive and deliver")) && is_within
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

/// Returns the number of datagrams that a peer has multicast so far.
fn multicast(peer: &mut EmbeddedPeer) -> u64 {
    let answer = peer.show(&json!({ "show": "counters" }));
    let rows = answer["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["counter"] == "datagrams_multicast").expect("it is counted");
    row["value"].as_u64().expect("a number")
}

/// Measures the library: two peers that this thread drives in turn, over loopback multicast.
fn library(subjects: usize) -> bool {
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
    let messages = messages(subjects);
    let mut round = messages.iter().cycle();
    let (mut published, mut received) = (Count::default(), Count::default());
    let mut before = 0;
    for step in 0..2 * MESSAGES.div_ceil(BURST) {
        if step == MESSAGES.div_ceil(BURST) {
            (published, received) = (Count::default(), Count::default());
            before = multicast(&mut publisher);
        }
        let (count, ()) = allocations(|| {
            for message in round.by_ref().take(BURST) {
                while let Err(error) = publisher.publish_ref(message) {
                    assert_eq!(error, PublishError::Full);
                    publisher.turn().expect("it runs");
                }
            }
            publisher.turn().expect("it runs");
        });
        published.allocations += count;
        published.messages += BURST as u64;
        let deadline = Clock::now().instant + PATIENCE;
        let mut received_count = 0;
        let (count, ()) = allocations(|| {
            while received_count < BURST as u64 {
                subscriber.turn().expect("it runs");
                received_count += drain(&subscription);
                assert!(Clock::now().instant < deadline, "{received_count} of {BURST} messages came");
            }
        });
        received.allocations += count;
        received.messages += received_count;
    }
    published.datagrams = multicast(&mut publisher) - before;
    received.datagrams = published.datagrams;
    let is_within = published.print(&format!("library, {subjects} subjects: publish and send"));
    received.print(&format!("library, {subjects} subjects: receive and read")) && is_within
}

fn main() -> ExitCode {
    println!("{:<44} | messages | datagrams | allocations | for each of | for each of  |", "");
    println!("{:<44} |          |           |             |    messages |    datagrams |", "");
    println!("{}", "-".repeat(118));
    let mut is_within = true;
    for subjects in [1, 1000] {
        is_within &= core(subjects);
        is_within &= library(subjects);
    }
    println!("at most {PER_DATAGRAM_MAX} for each datagram");
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
