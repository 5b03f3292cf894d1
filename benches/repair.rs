//! Cost and duration of repair between two hosts in network namespaces: `cargo bench --bench repair [-- figure...]`.
//! Takes about 45 seconds, and needs `unshare`, `ip` and `nft`.
//!
//! A rule at the receiving host's network card drops a random part of the other host's datagrams: data, heartbeats
//! and retransmissions. The virtual cable carries no buffers of several datagrams, so the rule hits single datagrams.
//!
//! - *goodput*: messages delivered in a second, until everything is delivered, as a ratio to that without a rule. A
//!   publisher faster than its receiver makes losses of its own, in the receiver's socket. Therefore all runs have
//!   the same rate: a part of the highest rate of a ladder that arrives completely without a rule.
//! - *repair*: time from publishing to delivery of requested messages, at a rate at which no message waits.
//! - *others*: the same time on a subject without losses, while receivers repair another subject of the same publisher.
//!   Turns with repair alternate with turns without.

use bytes::Bytes;
use seqcast::bus::{Bus, Notice, Subscription};
use seqcast::clock::Clock;
use seqcast::config::{Config, Security};
use seqcast::message::Message;
use seqcast::time::Instant;
use serde_json::Value;
use std::env;
use std::fs::{self, File};
use std::iter;
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

/// Time for which each publisher of the first figure sends, and one of the ladder.
const SPAN: Duration = Duration::from_secs(4);
const TRIAL: Duration = Duration::from_millis(700);
/// Messages a second, 64 bytes each. The bench tries the ladder from the top until a rate arrives completely, and uses
/// a part of that rate.
const LADDER: [u64; 9] = [1_500_000, 1_200_000, 1_000_000, 800_000, 600_000, 400_000, 300_000, 200_000, 100_000];
const PART_PERCENT: u64 = 75;
/// Minimum part of the rate that is delivered if publisher and receiver keep up with it.
const DELIVERED_MIN: f64 = 0.95;
/// Sleep of the publisher after it has sent all due messages.
const STEP: Duration = Duration::from_millis(1);
/// Time without any arrival after which the rest counts as arrived.
const QUIET: Duration = Duration::from_millis(2500);
/// Rounds of the other figures, each of a long message and some short ones, and the pause after each message.
const ROUNDS: u64 = 8000;
const PAUSE: Duration = Duration::from_micros(250);
/// Turns of the last figure: while nothing is dropped, while something is, and so on.
const TURNS: u64 = 40;
/// Payload bytes of the two subjects; a rule distinguishes them by the length of the datagram.
const LONG_BYTES: usize = 600;
const SHORT_BYTES: usize = 32;
/// Environment variable that is set in the namespaces.
const INSIDE: &str = "BENCH_IN_NAMESPACES";

fn main() -> ExitCode {
    if env::var_os(INSIDE).is_some() {
        measure();
        return ExitCode::SUCCESS;
    }
    let unshare =
        ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"];
    let this = env::current_exe().expect("a program knows its own file");
    let status = Command::new("unshare")
        .args(unshare)
        .arg(this)
        .args(env::args().skip(1))
        .env(INSIDE, "1")
        .status()
        .expect("unshare is installed");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure() {
    sh("mount -t tmpfs tmpfs /run
        ip netns add far
        ip link add eth0 gso_max_segs 1 type veth peer name eth0 gso_max_segs 1 netns far
        ip link set lo up
        ip addr add 10.76.0.1/24 dev eth0
        ip link set eth0 up
        ip -n far link set lo up
        ip -n far addr add 10.76.0.2/24 dev eth0
        ip -n far link set eth0 up");
    println!("load         {}", fs::read_to_string("/proc/loadavg").unwrap_or_default().trim_end());
    let wanted: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let figures: [(&str, fn()); 3] = [("goodput", goodputs), ("repair", repair), ("others", others)];
    for (name, figure) in figures {
        if wanted.is_empty() || wanted.iter().any(|other| other == name) {
            figure();
        }
    }
}

fn goodputs() {
    let whole = LADDER.iter().copied().find(|rate| {
        let run = goodput(*rate, TRIAL, None);
        run.is_whole() && *rate as f64 * DELIVERED_MIN <= run.rate()
    });
    let rate = whole.unwrap_or(LADDER[LADDER.len() - 1]) * PART_PERCENT / 100;
    println!("goodput      {whole:?} messages/s are the most that get through whole; published from here on: {rate}");
    let runs = [None, Some(1), Some(10)].map(|percent| goodput(rate, SPAN, percent));
    let lossless = runs[0].rate();
    for (run, goal) in runs.iter().zip([100, 90, 50]) {
        println!("goodput      {} ({:.1} % of lossless, goal {goal} %)", run.line(), 100.0 * run.rate() / lossless);
    }
}

fn repair() {
    let [quiet, repaired] = [None, Some("numgen random mod 100 0")].map(|dropped| latencies(&[dropped], ROUNDS, 1));
    let all = [quiet.all(), repaired.all()];
    println!("latency      nothing dropped: median {:?}, p99 {:?}", part(&all[0], 50), part(&all[0], 99));
    println!(
        "repair       1 % dropped: {} messages repaired, median {:?}, p99 {:?} (goal 15 ms), of all messages p99 {:?}",
        repaired.repaired.len(),
        part(&repaired.repaired, 50),
        part(&repaired.repaired, 99),
        part(&all[1], 99),
    );
}

fn others() {
    let dropped = |turn| (turn % 2 == 1).then_some("udp length > 500 numgen random mod 3 0");
    let turns: Vec<_> = (0..TURNS).map(dropped).collect();
    let beside = latencies(&turns, ROUNDS / TURNS / 2, 7);
    let medians: Vec<f64> = beside.short.iter().map(|turn| part(turn, 50).as_secs_f64()).collect();
    let mut added: Vec<f64> = medians.chunks_exact(2).map(|pair| 100.0 * (pair[1] / pair[0] - 1.0)).collect();
    added.sort_by(f64::total_cmp);
    let quartile = |quarters: usize| added[added.len() * quarters / 4];
    let quiet: Vec<_> = beside.short.iter().step_by(2).flatten().copied().collect();
    println!(
        "others       a third of another subject dropped: {} messages of it repaired, added to a median of {:?} in the middle \
         {:+.1} % (goal 5 %), in half of the pairs of turns between {:+.1} % and {:+.1} %",
        beside.repaired.len(),
        part(&quiet, 50),
        quartile(2),
        quartile(1),
        quartile(3),
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
            config.security = Security::Open;
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

/// Outcome of the messages of one publisher.
struct Run {
    percent: u32,
    published: u64,
    delivered: u64,
    /// Time from the first publish to the last delivery.
    took: Duration,
    /// Number of datagrams sent, of those dropped by the rule and in the receiver's sockets, and of messages reported
    /// as lost or unverified.
    sent: u64,
    by_rule: u64,
    by_kernel: u64,
    lost: u64,
}

impl Run {
    fn is_whole(&self) -> bool {
        self.delivered == self.published && self.by_kernel == 0
    }

    fn rate(&self) -> f64 {
        self.delivered as f64 / self.took.as_secs_f64()
    }

    fn line(&self) -> String {
        format!(
            "{} %: {:.0}/s, {} of {} messages in {:.2?}; \
             of {} datagrams {} dropped at the card, {} in the socket, {} never came",
            self.percent,
            self.rate(),
            self.delivered,
            self.published,
            self.took,
            self.sent,
            self.by_rule,
            self.by_kernel,
            self.lost,
        )
    }
}

/// Publishes `rate` messages of 64 bytes a second for `span`, while `percent` of the datagrams are dropped.
fn goodput(rate: u64, span: Duration, percent: Option<u32>) -> Run {
    let pair = Pair::new();
    drop_at_the_card(percent.map(|percent| format!("numgen random mod 100 < {percent}")).as_deref());
    let (began, total) = (now(), rate * span.as_millis() as u64 / 1000);
    let (delivered, last) = thread::scope(|scope| {
        scope.spawn(|| {
            let message = Message::new("t.x".parse().expect("it is a subject"), Bytes::from(vec![7; 64]));
            let mut published = 0;
            while published < total {
                let due = rate * now().since(began).as_micros() as u64 / 1_000_000;
                for _ in published..due.min(total) {
                    pair.publisher.publish_blocking(message.clone()).expect("the peer takes it");
                }
                published = due.min(total);
                thread::sleep(STEP);
            }
        });
        let (mut delivered, mut last) = (0, now());
        while delivered < total
            && let Ok(event) = pair.subscription.recv_timeout(QUIET)
        {
            if matches!(event, Notice::Message(_)) {
                (delivered, last) = (delivered + 1, now());
            }
        }
        (delivered, last)
    });
    let by_rule = dropped_at_the_card();
    drop_at_the_card(None);
    let row = &rows(&pair.subscriber, "loss")[0];
    let of = |value: &Value| value.as_u64().expect("it is a number");
    let counter = |bus: &Bus, name: &str| {
        let row = rows(bus, "counters").into_iter().find(|row| row["counter"] == name);
        of(&row.expect("there is such a counter")["value"])
    };
    let run = Run {
        percent: percent.unwrap_or(0),
        published: total,
        delivered,
        took: last.since(began),
        sent: of(&row["datagrams"]["high"]),
        by_rule,
        by_kernel: counter(&pair.subscriber, "kernel_drops"),
        lost: of(&row["datagrams"]["lost"]) + of(&row["datagrams"]["unverified"]),
    };
    let counters = |bus: &Bus, names: &[&str]| -> String {
        names.iter().map(|name| format!(" {name} {}", counter(bus, name))).collect::<Vec<_>>().join(",")
    };
    eprintln!("{rate}/s, {}", run.line());
    let subscriber =
        counters(&pair.subscriber, &["requests_sent", "overflow_gaps", "discard_late", "discard_duplicate"]);
    let publisher = counters(&pair.publisher, &["requests_received", "resends", "resend_waits", "kernel_drops"]);
    eprintln!("  subscriber:{subscriber}; publisher:{publisher}");
    run
}

/// Times from publishing to delivery.
#[derive(Default)]
struct Latencies {
    /// Times of the subject with short messages, in each turn.
    short: Vec<Vec<Duration>>,
    /// Times of the subject with long messages.
    long: Vec<Duration>,
    /// Times of messages of both that were missing at first.
    repaired: Vec<Duration>,
}

impl Latencies {
    fn all(&self) -> Vec<Duration> {
        self.short.iter().chain([&self.long]).flatten().copied().collect()
    }
}

/// Publishes `rounds` rounds for each of `dropped`, while it is dropped. A round is a long message and `short` short
/// ones, each in a datagram of its own.
fn latencies(dropped: &[Option<&str>], rounds: u64, short: usize) -> Latencies {
    let pair = Pair::new();
    let began = now();
    let latencies = thread::scope(|scope| {
        scope.spawn(|| {
            for (turn, dropped) in dropped.iter().enumerate() {
                drop_at_the_card(*dropped);
                send_rounds(&pair.publisher, began, turn as u8, rounds, short);
                // Repair in one turn must not affect the next.
                thread::sleep(Duration::from_millis(100));
            }
        });
        let mut latencies = Latencies { short: vec![Vec::new(); dropped.len()], ..Latencies::default() };
        while let Ok(event) = pair.subscription.recv_timeout(QUIET) {
            let Notice::Message(delivery) = event else { continue };
            let (time, rest) = delivery.message.payload.split_first_chunk::<8>().expect("a time is in it");
            let took = now().since(began + Duration::from_nanos(u64::from_be_bytes(*time)));
            let is_short = delivery.message.payload.len() == SHORT_BYTES;
            if is_short { &mut latencies.short[usize::from(rest[0])] } else { &mut latencies.long }.push(took);
            if delivery.repaired {
                latencies.repaired.push(took);
            }
        }
        latencies
    });
    drop_at_the_card(None);
    let messages = (1 + short as u64) * rounds * dropped.len() as u64;
    assert_eq!(latencies.all().len() as u64, messages, "everything arrives: {:?}", rows(&pair.subscriber, "loss"));
    latencies
}

/// Publishes in each round a long message and `short` short ones, which contain the time and the turn.
fn send_rounds(publisher: &Bus, began: Instant, turn: u8, rounds: u64, short: usize) {
    let [long, short_ones] = [("t.long", LONG_BYTES), ("t.short", SHORT_BYTES)];
    let mut next = now();
    for _ in 0..rounds {
        for (subject, bytes) in iter::once(long).chain(iter::repeat_n(short_ones, short)) {
            let mut payload = vec![turn; bytes];
            payload[..8].copy_from_slice(&(now().since(began).as_nanos() as u64).to_be_bytes());
            let message = Message::new(subject.parse().expect("it is a subject"), payload);
            publisher.publish_blocking(message).expect("the peer takes it");
            next = next + PAUSE;
            thread::sleep(next.since(now()));
        }
    }
}

/// Returns the value that `percent` percent of all do not exceed.
fn part(all: &[Duration], percent: usize) -> Duration {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Makes this host's card drop the matching datagrams that arrive, and nothing else.
fn drop_at_the_card(matching: Option<&str>) {
    let chain = "type filter hook ingress device eth0 priority 0";
    let rule = matching.map_or(String::new(), |matching| format!("meta l4proto udp {matching} counter drop"));
    let table = format!(
        "table netdev faults\ndelete table netdev faults\ntable netdev faults {{\nchain ingress {{\n{chain}\n{rule}\n}}\n}}\n"
    );
    let done = Command::new("nft").arg(&table).status().expect("nft is installed");
    assert!(done.success(), "{table}");
}

/// Returns the number of datagrams that the rule has dropped so far.
fn dropped_at_the_card() -> u64 {
    let listed = Command::new("nft").args(["list", "table", "netdev", "faults"]).output().expect("nft is installed");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let count = text.split_once("counter packets ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    count.unwrap_or(0)
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
