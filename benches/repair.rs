//! What repair costs and how long it takes, between two hosts in network namespaces: `cargo bench --bench repair`.
//! Takes about 30 seconds, and needs `unshare`, `ip` and `nft`.
//!
//! Of what one host sends, a rule at the other one's network card drops a part by chance: data, heartbeats and resends.
//! Peers ask for no segmentation offload, so what the rule hits is one datagram.
//!
//! - *goodput*: messages delivered in a second while the publisher sends as fast as it may, as a ratio to that without a rule.
//! - *repair*: from publishing to delivery, of messages that had to be asked for, at a pace that nothing has to wait for.
//! - *others*: the same of a subject that loses nothing, while another one of the same publisher is being repaired.

use bytes::Bytes;
use seqcast::bus::{Bus, Event, Subscription};
use seqcast::config::Config;
use seqcast::daemon::clock::Clock;
use seqcast::message::Message;
use seqcast::time::Instant;
use serde_json::Value;
use std::env;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// How long each publisher of the first figure sends.
const SPAN: Duration = Duration::from_secs(3);
/// The rest has arrived when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(700);
/// Rounds of the other figures, each of two messages, and the pause after each message.
const ROUNDS: u64 = 8000;
const PAUSE: Duration = Duration::from_micros(250);
/// The payloads of the two subjects; a rule tells them apart by the length of the datagram.
const LONG_BYTES: usize = 600;
const SHORT_BYTES: usize = 32;
/// Set in the namespaces.
const INSIDE: &str = "SEQCAST_BENCH_IN_NAMESPACES";

fn main() -> ExitCode {
    if env::var_os(INSIDE).is_some() {
        measure();
        return ExitCode::SUCCESS;
    }
    let unshare =
        ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"];
    let this = env::current_exe().expect("a program knows its own file");
    let status =
        Command::new("unshare").args(unshare).arg(this).env(INSIDE, "1").status().expect("unshare is installed");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure() {
    sh("mount -t tmpfs tmpfs /run
        ip netns add far
        ip link add eth0 type veth peer name eth0 netns far
        ip link set lo up
        ip addr add 10.76.0.1/24 dev eth0
        ip link set eth0 up
        ip -n far link set lo up
        ip -n far addr add 10.76.0.2/24 dev eth0
        ip -n far link set eth0 up");
    let [lossless, one, ten] = [None, Some(1), Some(10)].map(goodput);
    println!("goodput      lossless {lossless:.0} messages/s");
    println!("goodput      1 % dropped: {:.1} % of lossless (goal 90 %)", 100.0 * one / lossless);
    println!("goodput     10 % dropped: {:.1} % of lossless (goal 50 %)", 100.0 * ten / lossless);

    let [quiet, repaired] = [None, Some("numgen random mod 100 0 drop")].map(latencies);
    let all = [quiet.all(), repaired.all()];
    println!("latency      nothing dropped: median {:?}, p99 {:?}", part(&all[0], 50), part(&all[0], 99));
    println!(
        "repair       1 % dropped: {} messages repaired, median {:?}, p99 {:?} (goal 15 ms), of all messages p99 {:?}",
        repaired.repaired.len(),
        part(&repaired.repaired, 50),
        part(&repaired.repaired, 99),
        part(&all[1], 99),
    );
    let beside = latencies(Some("udp length > 500 numgen random mod 10 0 drop"));
    let (before, after) = (part(&quiet.short, 50), part(&beside.short, 50));
    println!(
        "others       a tenth of another subject dropped: {} messages of it repaired, median {after:?}, {:+.1} % (goal 5 %)",
        beside.repaired.len(),
        100.0 * (after.as_secs_f64() / before.as_secs_f64() - 1.0)
    );
}

/// A publisher on the far host, and a subscriber of all on this one.
struct Pair {
    publisher: Bus,
    subscriber: Bus,
    subscription: Subscription,
}

impl Pair {
    fn new() -> Pair {
        let config = |name: &str| {
            let mut config = Config::default();
            config.name = name.parse().expect("it is a name");
            config.interface = "eth0".parse().expect("it is an interface");
            config.group = [239, 255, 83, 68].into();
            config.reliability = Duration::from_secs(2);
            (config.client_queue_count, config.client_queue_size) = (4_000_000, 1 << 30);
            config
        };
        let subscriber = Bus::embed(&config("near.bench")).expect("a peer can be started");
        let far = config("far.bench");
        let publisher = thread::spawn(move || {
            let namespace = File::open("/run/netns/far").expect("ip netns keeps the namespace there");
            // SAFETY: the call takes two numbers; it moves this thread alone, which ends below.
            let moved = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(moved, 0, "{}", std::io::Error::last_os_error());
            Bus::embed(&far).expect("a peer can be started")
        });
        let publisher = publisher.join().expect("the far host has a peer");
        let subscription = subscriber.subscribe("t.>".parse().expect("it is a pattern")).expect("it may be had");
        while rows(&subscriber, "peers").len() != 1 || rows(&publisher, "peers").len() != 1 {
            thread::sleep(Duration::from_millis(5));
        }
        // Addresses are proven with the next heartbeats.
        thread::sleep(Duration::from_millis(1500));
        Pair { publisher, subscriber, subscription }
    }
}

/// Messages of 64 bytes delivered in a second, while so many percent of the datagrams are dropped.
fn goodput(percent: Option<u32>) -> f64 {
    let pair = Pair::new();
    drop_at_the_card(percent.map(|percent| format!("numgen random mod 100 < {percent} drop")).as_deref());
    let (began, is_over) = (now(), AtomicBool::new(false));
    let (count, last) = thread::scope(|scope| {
        scope.spawn(|| {
            let message = Message::new("t.x".parse().expect("it is a subject"), Bytes::from(vec![7; 64]));
            while now() < began + SPAN {
                pair.publisher.publish_blocking(message.clone()).expect("the peer takes it");
            }
            is_over.store(true, Relaxed);
        });
        let (mut count, mut last) = (0u64, now());
        loop {
            match pair.subscription.recv_timeout(4 * QUIET) {
                Ok(Event::Message(_)) => (count, last) = (count + 1, now()),
                Ok(_) => {}
                Err(_) if is_over.load(Relaxed) => return (count, last),
                Err(_) => {}
            }
        }
    });
    drop_at_the_card(None);
    let row = &rows(&pair.subscriber, "loss")[0];
    let counters = |bus: &Bus, names: &[&str]| -> String {
        let is_named = |row: &&Value| names.iter().any(|name| row["counter"] == *name);
        let all = rows(bus, "counters");
        let told = all.iter().filter(is_named).map(|row| format!(" {} {}", row["counter"], row["value"]));
        told.collect::<Vec<_>>().join(",")
    };
    let lost = (&row["lost"], &row["datagrams"]);
    eprintln!("{percent:?} percent: {count} delivered in {:?}; lost {lost:?}", last.since(began));
    let subscriber = counters(&pair.subscriber, &["requests_sent", "kernel_drops", "overflow_gaps", "discard_late"]);
    let publisher =
        counters(&pair.publisher, &["messages_published", "requests_received", "resends", "unproven", "kernel_drops"]);
    eprintln!("  subscriber:{subscriber}; publisher:{publisher}");
    count as f64 / last.since(began).as_secs_f64()
}

/// Times from publishing to delivery.
#[derive(Default)]
struct Latencies {
    /// Of the subject with short messages, and of the one with long ones.
    short: Vec<Duration>,
    long: Vec<Duration>,
    /// Of both, what was missing at first.
    repaired: Vec<Duration>,
}

impl Latencies {
    fn all(&self) -> Vec<Duration> {
        [&self.short[..], &self.long[..]].concat()
    }
}

/// Long and short messages in turn, each in a datagram of its own, while this is dropped.
fn latencies(dropped: Option<&str>) -> Latencies {
    let pair = Pair::new();
    drop_at_the_card(dropped);
    let began = now();
    let latencies = thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = now();
            for _ in 0..ROUNDS {
                for (subject, bytes) in [("t.long", LONG_BYTES), ("t.short", SHORT_BYTES)] {
                    let mut payload = vec![0; bytes];
                    payload[..8].copy_from_slice(&(now().since(began).as_nanos() as u64).to_be_bytes());
                    let message = Message::new(subject.parse().expect("it is a subject"), payload);
                    pair.publisher.publish_blocking(message).expect("the peer takes it");
                    next = next + PAUSE;
                    thread::sleep(next.since(now()));
                }
            }
        });
        let mut latencies = Latencies::default();
        while let Ok(event) = pair.subscription.recv_timeout(3 * QUIET) {
            let Event::Message(delivery) = event else { continue };
            let (time, _) = delivery.message.payload.split_first_chunk::<8>().expect("a time is in it");
            let took = now().since(began + Duration::from_nanos(u64::from_be_bytes(*time)));
            let is_short = delivery.message.payload.len() == SHORT_BYTES;
            if is_short { &mut latencies.short } else { &mut latencies.long }.push(took);
            if delivery.repaired {
                latencies.repaired.push(took);
            }
        }
        latencies
    });
    drop_at_the_card(None);
    let count = latencies.short.len() + latencies.long.len();
    assert_eq!(count as u64, 2 * ROUNDS, "everything arrives: {:?}", rows(&pair.subscriber, "loss"));
    latencies
}

/// The value that so many percent of all do not exceed.
fn part(all: &[Duration], percent: usize) -> Duration {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Makes this host's card drop what matches of the datagrams that come, and nothing else.
fn drop_at_the_card(matching: Option<&str>) {
    let chain = "type filter hook ingress device eth0 priority 0";
    let rule = matching.map_or(String::new(), |matching| format!("meta l4proto udp {matching}"));
    let table = format!(
        "table netdev faults\ndelete table netdev faults\ntable netdev faults {{\nchain ingress {{\n{chain}\n{rule}\n}}\n}}\n"
    );
    let done = Command::new("nft").arg(&table).status().expect("nft is installed");
    assert!(done.success(), "{table}");
}

fn rows(bus: &Bus, what: &str) -> Vec<Value> {
    bus.show(what).expect("the peer answers")["rows"].as_array().cloned().unwrap_or_default()
}

fn sh(script: &str) {
    assert!(Command::new("sh").args(["-e", "-c", script]).status().expect("there is a shell").success(), "{script}");
}

fn now() -> Instant {
    Clock::now().instant
}
