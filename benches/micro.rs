//! Cost of the parts of the hot path, in nanoseconds: `cargo bench --bench micro [-- [--json] [wire | match |
//! event_types | windows | ledger | history | members | core | redis | nats | security]]`.
//!
//! Each figure is the median of several rounds over the same work, on one thread, memory warm. Random order means
//! that neighbouring operations touch different subjects, as real traffic on many subjects does.

#[path = "deliveries/mod.rs"]
mod deliveries;
#[path = "micro/link_signatures.rs"]
mod link_signatures;
#[path = "micro/security.rs"]
mod security;

use bytes::Bytes;
use deliveries::take_deliveries;
use seqcast::delivery::Deliveries;
use seqcast::event::pattern_index::PatternIndex;
use seqcast::listener::nats;
use seqcast::listener::output_buffer::OutputBuffer;
use seqcast::listener::redis;
use seqcast::listener::session_request::{ConnectionInfo, ReceiverCount, SessionRequest};
use seqcast::message::{ClientId, DeliveryMode, Dseq, Epoch, Message, SubId};
use seqcast::proto::effect::{ClientRequest, Effect, Input, Path};
use seqcast::proto::history::{History, HistorySettings};
use seqcast::proto::mutant::Mutants;
use seqcast::proto::peer::Peer;
use seqcast::proto::question::{Poll, Question, answer};
use seqcast::proto::window::{Numbering, PubWindow, SubEntry, SubWindow};
use seqcast::proto::{Recovery, Settings, WindowSettings};
use seqcast::rng::Rng;
use seqcast::seqno::Seq;
use seqcast::subject::event_type::{EventType, TypePattern};
use seqcast::subject::tree::Tree;
use seqcast::subject::{Pattern, Subject};
use seqcast::time::{ClockReading, Instant, WallTime};
use seqcast::wire::{Builder, CheckValue, Entry, Header, Kind, Record, decode};
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: usize = 9;
const PAYLOAD_BYTES: usize = 64;
const DATAGRAM_BYTES: usize = 1472;

/// Returns the processor time that this thread has used. Other load on the machine affects it only through caches.
fn clock() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which outlives the call.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(outcome, 0, "every Linux has this clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Returns the time for one of `operations` operations, in nanoseconds.
fn nanos_once(operations: usize, work: impl FnOnce()) -> f64 {
    let start = clock();
    work();
    (clock() - start).as_nanos() as f64 / operations as f64
}

/// Returns the median over [`ROUNDS`] of the time for one of `operations` operations, in nanoseconds.
fn nanos_each(operations: usize, mut work: impl FnMut()) -> f64 {
    median((0..ROUNDS).map(|_| nanos_once(operations, &mut work)).collect())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

struct Figures {
    rows: Vec<(String, f64)>,
    json: bool,
}

impl Figures {
    fn add(&mut self, name: impl Into<String>, nanos: f64) {
        self.add_in("ns", name, nanos);
    }

    fn add_in(&mut self, unit: &str, name: impl Into<String>, figure: f64) {
        let name = name.into();
        if !self.json {
            println!("{name:<58} {figure:>9.1} {unit}");
        }
        self.rows.push((name, figure));
    }
}

fn header(number: u64, count: u64) -> Header {
    let epoch = Epoch::new(1).expect("not 0");
    Header { kind: Kind::Data, group: 7500, epoch, number, count, uptime_ms: 0, receiver: None }
}

fn subjects(count: usize) -> Vec<Subject> {
    (0..count).map(|n| format!("RSF.REC.{}.{n}", ["PAC", "MTC", "MCD"][n % 3]).parse().expect("valid")).collect()
}

/// Packs messages into one datagram until it is full; returns their number.
fn compact(builder: &mut Builder, messages: &[Message], seqs: &[Seq]) -> usize {
    let mut packed = 0;
    for (message, seq) in messages.iter().zip(seqs) {
        if !builder.push(&Entry { message: message.into(), seq: Some(*seq), stamp: None, chain: None }) {
            break;
        }
        packed += 1;
    }
    packed
}

/// Measures packing and decoding: all messages of one subject, or each of another.
fn wire(figures: &mut Figures, name: &str, subjects: &[Subject]) {
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let messages: Vec<Message> =
        (0..64).map(|n| Message::new(subjects[n % subjects.len()].clone(), payload.clone())).collect();
    let seqs: Vec<Seq> = (0..64_u64).map(|n| Seq::new(2 + n / subjects.len() as u64).expect("not 0")).collect();
    let mut builder = Builder::new(DATAGRAM_BYTES);
    let each = compact(&mut builder, &messages, &seqs);
    let datagram = builder.seal(&header(1, 0));
    let repeats = 2000;

    figures.add(
        format!("pack and seal, {name}: a message ({each} in {} bytes)", datagram.len()),
        nanos_each(repeats * each, || {
            for number in 1..=repeats as u64 {
                compact(&mut builder, black_box(&messages), &seqs);
                black_box(builder.seal(&header(number, 0)));
            }
        }),
    );
    figures.add(
        format!("decode and read, {name}: a message"),
        nanos_each(repeats * each, || {
            for _ in 0..repeats {
                let decoded = decode(black_box(datagram.clone())).expect("well-formed");
                for record in &decoded.records {
                    if let Record::Run(run) = record {
                        run.messages().for_each(|message| drop(black_box(message)));
                    }
                }
            }
        }),
    );
}

/// Measures look-ups in the match tree itself, behind the cache.
fn matching(figures: &mut Figures) {
    for count in [1_000, 100_000] {
        let subjects = subjects(count);
        let mut tree = Tree::new(1);
        for (n, subject) in subjects.iter().enumerate() {
            tree.insert(&subject.clone().into(), n);
        }
        for (n, pattern) in [">", "RSF.>", "*.REC.PAC.*"].iter().enumerate() {
            tree.insert(&pattern.parse().expect("valid"), count + n);
        }
        let mut rng = Rng::new(1);
        let mut found = Vec::new();
        let order: Vec<&Subject> = (0..100_000).map(|_| &subjects[rng.below(count as u64) as usize]).collect();
        figures.add(
            format!("match tree, {count} patterns, random order: a look-up"),
            nanos_each(order.len(), || {
                for subject in &order {
                    found.clear();
                    tree.matches(subject, &mut found);
                    black_box(&found);
                }
            }),
        );
    }
}

/// Measures look-ups of subjects that were never seen, among patterns with wildcards of which one matches.
fn wildcards(figures: &mut Figures) {
    for count in [100, 100_000] {
        let mut tree = Tree::new(1);
        for n in 0..count {
            tree.insert(&format!("plant.{n}.*.temperature").parse().expect("valid"), n);
        }
        let mut rng = Rng::new(1);
        let mut found = Vec::new();
        let order: Vec<Subject> = (0..100_000)
            .map(|n| format!("plant.{}.line-{n}.temperature", rng.below(count as u64)).parse().expect("valid"))
            .collect();
        figures.add(
            format!("match tree, {count} wildcards, new subjects: a look-up"),
            nanos_each(order.len(), || {
                for subject in &order {
                    found.clear();
                    tree.matches(subject, &mut found);
                    assert_eq!(black_box(&found).len(), 1);
                }
            }),
        );
    }
}

/// Measures types of five levels that were never seen, against queries: one by one, and all of a registry at once, of
/// which one matches.
fn event_types(figures: &mut Figures) {
    let queries = |count: usize| -> Vec<TypePattern> {
        let tails = ["?/line/temperature", "?/?/temperature", "?/*", "unit/line/*"];
        let query = |n: usize| format!("plant/{n}/{}", tails[n % tails.len()]);
        (0..count).map(|n| query(n).parse().expect("valid")).collect()
    };
    // Subjects that were never looked up, each of a type that one of the queries matches: with the second or the
    // third tail.
    let subjects = |count: usize| -> Vec<Subject> {
        let mut rng = Rng::new(1);
        let mut plant = || 4 * rng.below(count as u64 / 4) + rng.between(1, 2);
        (0..100_000).map(|n| format!("plant.{}.unit.line-{n}.temperature", plant()).parse().expect("valid")).collect()
    };
    let types: Vec<EventType> = subjects(100).iter().filter_map(EventType::of_subject).collect();
    let some = queries(100);
    let check = nanos_each(types.len() * some.len(), || {
        let matches = types.iter().map(|of| some.iter().filter(|query| query.matches(black_box(of))).count());
        assert_eq!(matches.sum::<usize>(), types.len());
    });
    figures.add("event types, one by one: a (type, query) check", check);
    figures.add_in("M/s", "event types, one by one: (type, query) checks", 1000.0 / check);
    let sizes = [100, 100_000].map(|count| {
        let mut registry = PatternIndex::new(1);
        for (n, query) in queries(count).iter().enumerate() {
            registry.insert(query, n);
        }
        (count, registry, subjects(count))
    });
    let mut found = Vec::new();
    let mut look = |(_, registry, subjects): &(usize, PatternIndex<usize>, Vec<Subject>)| {
        nanos_once(subjects.len(), || {
            for subject in subjects {
                let event_type = EventType::of_subject(black_box(subject)).expect("one");
                registry.matches(&event_type, &mut found);
                assert_eq!(black_box(&found).len(), 1);
            }
        })
    };
    // The two alternate, so that both see the same machine.
    let rounds: Vec<[f64; 2]> = (0..5 * ROUNDS).map(|_| [look(&sizes[0]), look(&sizes[1])]).collect();
    for (at, (count, ..)) in sizes.iter().enumerate() {
        let nanos = median(rounds.iter().map(|round| round[at]).collect());
        figures.add(format!("event types, {count} queries, new types: an event"), nanos);
        let checks = *count as f64 * 1000.0 / nanos;
        figures.add_in("M/s", format!("event types, {count} queries: (type, query) checks"), checks);
    }
    let ratio = median(rounds.iter().map(|[few, many]| many / few).collect());
    figures.add_in("x", "event types, 100000 queries: an event, relative to 100", ratio);
}

/// Measures the ledger and the code around it: datagrams of one message each, in order; with each two swapped, so
/// that every other one opens a gap that the next one closes; and all of them twice, the second time as repetitions.
fn ledger(figures: &mut Figures) {
    const DATAGRAMS: usize = 20_000;
    let (client, sub) = (ClientId(1), SubId(1));
    let mut publisher = peer(1);
    let message = Message::new("RSF.REC.PAC.1".parse().expect("valid"), Bytes::from(vec![7; PAYLOAD_BYTES]));
    let mut millis = 1;
    let mut datagrams: Vec<Bytes> = Vec::with_capacity(DATAGRAMS);
    for _ in 0..DATAGRAMS {
        publisher.publish(now(millis), client, &message).expect("it is small");
        publisher.handle(now(millis), Input::Tick);
        while let Some(effect) = publisher.poll_effect() {
            if let Effect::Multicast(bytes) = effect {
                datagrams.push(bytes);
            }
        }
    }
    let mut swapped = datagrams.clone();
    swapped.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
    let from = SocketAddr::from(([127, 0, 0, 1], 9001));
    let mut receive = |datagrams: &[Bytes], repeats: usize| {
        let mut subscriber = peer(2);
        let subscribe = ClientRequest::Subscribe {
            sub,
            wanted: ">".parse::<Pattern>().expect("valid").into(),
            mode: DeliveryMode::Repair,
            wants_discovery: false,
        };
        subscriber.handle(now(millis), Input::ClientRequest { client, request: subscribe });
        millis += 1;
        let mut spent = Duration::ZERO;
        for _ in 0..repeats {
            let mut delivered = 0;
            let started = clock();
            for bytes in datagrams {
                let bytes = bytes.clone();
                subscriber.handle(now(millis), Input::Datagram { from, path: Path::Multicast, bytes });
                while let Some(effect) = subscriber.poll_effect() {
                    if let Effect::Deliver { deliveries, .. } = effect {
                        deliveries.for_each(|delivery| delivered += u64::from(delivery.seq.is_some()));
                    }
                }
            }
            spent = clock() - started;
            black_box(delivered);
        }
        (spent, subscriber)
    };
    for (name, datagrams, repeats) in
        [("in order", &datagrams, 1), ("each two swapped", &swapped, 1), ("repeated", &datagrams, 2)]
    {
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| receive(datagrams, repeats).0).collect();
        times.sort_unstable();
        let nanos = times[ROUNDS / 2].as_nanos() as f64 / datagrams.len() as f64;
        figures.add(format!("ledger, {name}: a datagram of one message"), nanos);
    }
    // The check that follows each change, of the two streams of the one publisher, in turn with the whole operation.
    let shares = (0..ROUNDS).map(|_| {
        let (spent, subscriber) = receive(&datagrams, 1);
        let check = nanos_once(2 * DATAGRAMS, || (0..DATAGRAMS).for_each(|_| black_box(&subscriber).check()));
        100.0 * check / (spent.as_nanos() as f64 / datagrams.len() as f64)
    });
    figures.add_in("%", "ledger, in order: share of the check of invariants", median(shares.collect()));
}

/// Measures the windows in random order over few and over very many subjects, and on one subject alone.
fn windows(figures: &mut Figures) {
    let settings = WindowSettings { bytes: 1 << 30, time: Duration::from_secs(10), bytes_max: 1 << 30 };
    let now = ClockReading { instant: Instant::ZERO, wall: WallTime::from_nanos(1_659_131_646_000_000_000) };
    for count in [1, 1_000, 60_000, 1_000_000] {
        let subjects = subjects(count);
        let mut rng = Rng::new(1);
        let mut pub_window = PubWindow::new(settings, u64::MAX, 1);
        let mut sub_window = SubWindow::new(settings, 1);
        let entry = SubEntry { last: Seq::new(1).expect("not 0"), dseq: Dseq(1), at: Instant::ZERO, offset: None };
        for subject in &subjects {
            assert!(matches!(pub_window.number(subject, now, &mut rng), Numbering::Numbered { .. }));
            assert!(sub_window.insert(1, subject, entry));
        }
        // The subjects of arriving messages lie in the datagrams: near, and in order.
        let order: Vec<Subject> = (0..200_000).map(|_| subjects[rng.below(count as u64) as usize].detached()).collect();
        figures.add(
            format!("pub window, {count} subjects: number"),
            nanos_each(order.len(), || {
                for subject in &order {
                    black_box(pub_window.number(subject, now, &mut rng));
                }
            }),
        );
        figures.add(
            format!("sub window, {count} streams: find and renew"),
            nanos_each(order.len(), || {
                for subject in &order {
                    let (place, entry) = sub_window.find(1, subject, None).expect("inserted above");
                    let last = entry.last.forward(1).expect("far from the end");
                    sub_window.renew(place, SubEntry { last, ..entry });
                }
            }),
        );
    }
}

/// Measures the history: recording in random order over few and over very many subjects, and answering polls, 200 in
/// a question, with one event each.
fn history(figures: &mut Figures) {
    let settings = HistorySettings {
        count_max: 100,
        bytes_max: 1 << 20,
        time: Duration::from_secs(60),
        total_bytes_max: 1 << 30,
        overrides: Vec::new(),
    };
    let now = ClockReading { instant: Instant::ZERO, wall: WallTime::from_nanos(1_659_131_646_000_000_000) };
    for count in [1, 1_000, 60_000, 1_000_000] {
        let subjects = subjects(count);
        let mut rng = Rng::new(1);
        let mut history = History::new(&settings, 1);
        let mut off = History::new(&HistorySettings { count_max: 0, ..settings.clone() }, 1);
        let mut counts = vec![0_u32; count];
        let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
        let seq = |count: u32| Seq::new(u64::from(count) + 1).expect("not 0");
        let mut record = |history: &mut History, index: usize, message: &Message| {
            history.record(now, seq(counts[index]), counts[index], message);
            counts[index] += 1;
        };
        for (index, subject) in subjects.iter().enumerate() {
            record(&mut history, index, &Message::new(subject.clone(), payload.clone()));
        }
        let order: Vec<(usize, Message)> = (0..200_000)
            .map(|_| rng.below(count as u64) as usize)
            .map(|index| (index, Message::new(subjects[index].detached(), payload.clone())))
            .collect();
        figures.add(
            format!("history, {count} subjects: record"),
            nanos_each(order.len(), || {
                for (index, message) in &order {
                    record(&mut history, *index, message);
                }
            }),
        );
        figures.add(
            format!("history, {count} subjects: record when off"),
            nanos_each(order.len(), || {
                for (_, message) in &order {
                    off.record(now, seq(1), 1, black_box(message));
                }
            }),
        );
        let polls: Vec<Poll> = order
            .iter()
            .map(|(index, message)| {
                let subject = message.subject.clone();
                // The newest event.
                Poll { subject, offset: counts[*index].wrapping_sub(2), count: 1 }
            })
            .collect();
        let questions: Vec<Bytes> = polls.chunks(200).map(|polls| Question::Poll(polls.to_vec()).encode()).collect();
        let epoch = Epoch::new(1).expect("not 0");
        figures.add(
            format!("history, {count} subjects: answer a poll"),
            nanos_each(order.len(), || {
                for question in &questions {
                    let parts = answer(&history, epoch, Dseq(1), question);
                    assert!(PAYLOAD_BYTES * 200 < parts.iter().map(Bytes::len).sum(), "each has its event");
                }
            }),
        );
    }
}

/// Returns a peer with the settings for the benches of the whole core; its window has room for a million subjects.
fn peer(epoch: u64) -> Peer {
    let window = WindowSettings { bytes: 1 << 30, time: Duration::from_secs(10), bytes_max: 1 << 30 };
    let settings = Settings {
        name: format!("{epoch}.test").parse().expect("a valid name"),
        group: 7500,
        datagram_bytes_max: DATAGRAM_BYTES,
        check_value: CheckValue::Crc32c,
        message_bytes_max: 1 << 20,
        heartbeat: Duration::from_secs(1),
        reliability: Duration::from_millis(5),
        recovery: Recovery::modest(),
        forget: Duration::from_secs(60),
        pub_window: window,
        sub_window: window,
        frame_messages_max: u64::MAX,
        hold_bytes_max: 1 << 26,
        reassembly_bytes_max: 1 << 26,
        reassembly_sets_max: 64,
        gaps_max: 8192,
        peers_max: 1024,
        client_subscriptions_max: 1024,
        subscriptions_max: 1024,
        interest_max: 1_000_000,
        suppresses: false,
        match_cache_max: 65_536,
        advisory_interval: Duration::from_secs(1),
        advisory_subjects_max: 64,
        pace: seqcast::proto::pace::PaceSettings::auto(4 << 20),
        mutants: Mutants::default(),
    };
    let epoch = Epoch::new(epoch).expect("not 0");
    Peer::new(settings, epoch, Rng::new(1), now(1))
}

fn now(millis: u64) -> ClockReading {
    let instant = Instant::from_nanos(millis * 1_000_000);
    ClockReading { instant, wall: WallTime::from_nanos(1_659_131_646_000_000_000 + millis * 1_000_000) }
}

/// Measures a message through the whole core: published by one peer, received by another, in bursts of one datagram
/// and more.
fn core(figures: &mut Figures) {
    const MESSAGES: usize = 50_000;
    let (client, sub) = (ClientId(1), SubId(1));
    for count in [1, 1_000, 1_000_000] {
        let subjects = subjects(count);
        let mut rng = Rng::new(1);
        let (mut publisher, mut subscriber) = (peer(1), peer(2));
        let subscribe = ClientRequest::Subscribe {
            sub,
            wanted: ">".parse::<Pattern>().expect("valid").into(),
            mode: DeliveryMode::Repair,
            wants_discovery: false,
        };
        subscriber.handle(now(1), Input::ClientRequest { client, request: subscribe });
        while subscriber.poll_effect().is_some() {}
        let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
        // The publisher no longer waits for receivers that it does not know yet.
        let mut millis = 1000;
        let mut round = |order: Vec<Subject>| {
            let messages = order.len();
            let mut order = order.into_iter();
            millis += 1;
            let mut datagrams: Vec<Bytes> = Vec::with_capacity(messages);
            let started = clock();
            while 0 < order.len() {
                for subject in order.by_ref().take(256) {
                    let request = ClientRequest::Publish(Message::new(subject, payload.clone()));
                    publisher.handle(now(millis), Input::ClientRequest { client, request });
                }
                publisher.handle(now(millis), Input::Tick);
                while let Some(effect) = publisher.poll_effect() {
                    if let Effect::Multicast(bytes) = effect {
                        datagrams.push(bytes);
                    }
                }
            }
            let published = clock() - started;
            let from = SocketAddr::from(([127, 0, 0, 1], 9001));
            let mut delivered = 0;
            let started = clock();
            for bytes in datagrams {
                subscriber.handle(now(millis), Input::Datagram { from, path: Path::Multicast, bytes });
                delivered += take_deliveries(&mut subscriber);
            }
            assert_eq!(delivered, messages as u64, "nothing is lost between two peers in one process");
            (published, clock() - started)
        };
        // One round over all subjects, so that the windows know them.
        round(subjects.clone());
        let mut times: Vec<(Duration, Duration)> = (0..ROUNDS)
            .map(|_| {
                // Copies that lie in order, as those of arriving requests do.
                round((0..MESSAGES).map(|_| subjects[rng.below(count as u64) as usize].detached()).collect())
            })
            .collect();
        let mut median = |of: fn(&(Duration, Duration)) -> Duration| {
            times.sort_unstable_by_key(of);
            of(&times[ROUNDS / 2]).as_nanos() as f64 / MESSAGES as f64
        };
        figures.add(format!("core, {count} subjects: publish a message"), median(|times| times.0));
        figures.add(format!("core, {count} subjects: receive and deliver a message"), median(|times| times.1));
    }
}

/// Measures datagrams of one message each at a peer that knows 1,000 others.
fn members(figures: &mut Figures) {
    for run in [1, 16] {
        members_in_runs(figures, run);
    }
}

/// Measures datagrams that come in runs of this length from each peer in turn.
fn members_in_runs(figures: &mut Figures, run: usize) {
    const PUBLISHERS: u64 = 1_000;
    let (client, sub) = (ClientId(1), SubId(1));
    let mut subscriber = peer(1);
    let subject = subjects(1).remove(0);
    let wanted = Pattern::from(subject.clone()).into();
    let subscribe = ClientRequest::Subscribe { sub, wanted, mode: DeliveryMode::Repair, wants_discovery: false };
    subscriber.handle(now(1), Input::ClientRequest { client, request: subscribe });
    let mut publishers: Vec<Peer> = (2..2 + PUBLISHERS).map(peer).collect();
    let message = Message::new(subject, Bytes::from(vec![7; PAYLOAD_BYTES]));
    // The publishers no longer wait for receivers that they do not know yet.
    let mut millis = 1000;
    let datagrams_of = |publisher: &mut Peer, millis: u64| {
        let mut datagrams: Vec<Bytes> = Vec::with_capacity(run);
        for _ in 0..run {
            let request = ClientRequest::Publish(message.clone());
            publisher.handle(now(millis), Input::ClientRequest { client, request });
            publisher.handle(now(millis), Input::Tick);
            while let Some(effect) = publisher.poll_effect() {
                if let Effect::Multicast(bytes) = effect {
                    datagrams.push(bytes);
                }
            }
        }
        datagrams
    };
    let mut round = || {
        // Heartbeats are rare in so short a time.
        millis += 1;
        let runs: Vec<Vec<Bytes>> = publishers.iter_mut().map(|publisher| datagrams_of(publisher, millis)).collect();
        let datagrams = runs.iter().map(Vec::len).sum::<usize>();
        let mut delivered = 0;
        let nanos = nanos_once(datagrams, || {
            for (host, datagrams) in runs.into_iter().enumerate() {
                // A host with 1,000 unproven peers would be a flood.
                let from = SocketAddr::from(([10, 0, (host >> 8) as u8, host as u8], 9001));
                for bytes in datagrams {
                    subscriber.handle(now(millis), Input::Datagram { from, path: Path::Multicast, bytes });
                    delivered += take_deliveries(&mut subscriber);
                }
                black_box(subscriber.poll_deadline());
            }
        });
        assert_eq!(delivered, PUBLISHERS * run as u64, "nothing is lost between peers in one process");
        assert_eq!(subscriber.member_rows(now(millis)).len(), PUBLISHERS as usize, "all publishers are members");
        nanos
    };
    // One round in which the subscriber gets to know the publishers.
    round();
    let nanos = median((0..ROUNDS).map(|_| round()).collect());
    figures.add(format!("members: receive a datagram, 1,000 peers, runs of {run}"), nanos);
}

/// Measures messages for a subscription of the same peer: published in turns of 256, each delivery looked at.
fn local(figures: &mut Figures) {
    const TURNS: usize = 400;
    const EACH: usize = 256;
    let (client, sub) = (ClientId(1), SubId(1));
    let (subject, payload) = (subjects(1).remove(0), [7; PAYLOAD_BYTES]);
    let mut publisher = peer(1);
    let wanted = Pattern::from(subject.clone()).into();
    let subscribe = ClientRequest::Subscribe { sub, wanted, mode: DeliveryMode::Repair, wants_discovery: false };
    publisher.handle(now(1), Input::ClientRequest { client, request: subscribe });
    let mut millis = 2;
    figures.add(
        "core, one local subscription: publish and deliver a message",
        nanos_each(TURNS * EACH, || {
            let mut delivered = 0;
            for _ in 0..TURNS {
                millis += 1;
                for _ in 0..EACH {
                    publisher.publish_payload(now(millis), client, &subject, &payload).expect("it is small");
                }
                publisher.handle(now(millis), Input::Tick);
                while let Some(effect) = publisher.poll_effect() {
                    if let Effect::Deliver { deliveries, .. } = effect {
                        deliveries.visit(|delivery| delivered += black_box(delivery).payload.len());
                    }
                }
            }
            assert_eq!(delivered, TURNS * EACH * PAYLOAD_BYTES);
        }),
    );
}

/// Measures the Redis listener: from pipelined commands to requests and their answers, and from messages to bytes.
fn redis_listener(figures: &mut Figures) {
    const TURNS: usize = 400;
    const EACH: usize = 512;
    let settings = redis::Settings::default();
    let address = SocketAddr::from(([127, 0, 0, 1], 6379));
    let hello = ConnectionInfo { client: 1, from: address, listen: address, nonce: [0; 16], is_secure: false };
    let (mut parser, mut out) = (redis::RedisParser::new(&settings), OutputBuffer::new());
    let mut session = redis::RedisSession::new(Arc::new(settings), &hello, Instant::ZERO);
    let publish = format!("*3\r\n$7\r\nPUBLISH\r\n$9\r\nbench.one\r\n$64\r\n{}\r\n", "x".repeat(PAYLOAD_BYTES));
    let written = publish.repeat(EACH);
    let receivers = ReceiverCount { count: 1, is_certain: true };
    let mut published = 0;
    figures.add(
        "redis listener: PUBLISH of 64 bytes, parsed, asked and answered",
        nanos_each(TURNS * EACH, || {
            for _ in 0..TURNS {
                parser.push(black_box(written.as_bytes()));
                while let Some(command) = parser.next().expect("well-formed") {
                    if let Some(SessionRequest::Publish(publish)) =
                        session.on_command(Instant::ZERO, command, &mut out).expect("well-formed")
                    {
                        published += black_box(publish).payload.len();
                    }
                    session.on_published(None, receivers, &mut out);
                }
                out.clear();
            }
        }),
    );
    assert_eq!(published, ROUNDS * TURNS * EACH * PAYLOAD_BYTES);
    parser.push(b"SUBSCRIBE bench.one\r\n");
    let command = parser.next().expect("well-formed").expect("whole");
    let request = session.on_command(Instant::ZERO, command, &mut out);
    assert!(matches!(request, Ok(Some(SessionRequest::Subscribe { sub: SubId(1), .. }))));
    let runs = runs_of(&"bench.one".parse().expect("valid"), EACH);
    let messages = runs.iter().map(ExactSizeIterator::len).sum::<usize>();
    figures.add(
        format!("redis listener: deliver 64 bytes ({messages} in {} runs)", runs.len()),
        nanos_each(TURNS * messages, || {
            for _ in 0..TURNS {
                let count: usize =
                    runs.iter().map(|run| session.on_deliveries(&[SubId(1)], black_box(run), &mut out)).sum();
                assert_eq!(count, messages);
                out.clear();
            }
        }),
    );
}

/// Returns `count` messages on a subject as a subscriber gets them, after one peer has sent them to another.
fn runs_of(subject: &Subject, count: usize) -> Vec<Deliveries> {
    let (client, sub) = (ClientId(1), SubId(1));
    let (mut publisher, mut subscriber) = (peer(1), peer(2));
    let wanted = Pattern::from(subject.clone()).into();
    let subscribe = ClientRequest::Subscribe { sub, wanted, mode: DeliveryMode::Repair, wants_discovery: false };
    subscriber.handle(now(1), Input::ClientRequest { client, request: subscribe });
    for _ in 0..count {
        let request = ClientRequest::Publish(Message::new(subject.clone(), vec![7; PAYLOAD_BYTES]));
        publisher.handle(now(2), Input::ClientRequest { client, request });
    }
    publisher.handle(now(2), Input::Tick);
    let mut runs = Vec::new();
    while let Some(effect) = publisher.poll_effect() {
        if let Effect::Multicast(bytes) = effect {
            let from = SocketAddr::from(([127, 0, 0, 1], 9001));
            subscriber.handle(now(2), Input::Datagram { from, path: Path::Multicast, bytes });
        }
        while let Some(effect) = subscriber.poll_effect() {
            if let Effect::Deliver { deliveries, .. } = effect {
                runs.push(deliveries);
            }
        }
    }
    assert_eq!(runs.iter().map(ExactSizeIterator::len).sum::<usize>(), count);
    runs
}

/// Measures the NATS listener: publications of a client, many messages a write, and the bytes written to it.
fn nats_listener(figures: &mut Figures) {
    const EACH: usize = 256;
    const WRITES: usize = 400;
    let mut settings = nats::Settings::new("A.test".parse().expect("a name"), Epoch::new(1).expect("not 0"));
    let hello = ConnectionInfo {
        client: 1,
        from: ([127, 0, 0, 1], 1).into(),
        listen: ([127, 0, 0, 1], 4222).into(),
        nonce: [1; 16],
        is_secure: false,
    };
    let connect = br#"CONNECT {"verbose":false,"headers":true,"no_responders":true}"#;
    let payload = "x".repeat(PAYLOAD_BYTES);
    for (name, message) in [
        ("PUB", format!("PUB RSF.REC.PAC.0 {PAYLOAD_BYTES}\r\n{payload}\r\n")),
        ("HPUB", format!("HPUB RSF.REC.PAC.0 18 {}\r\nNATS/1.0\r\nA: b\r\n\r\n{payload}\r\n", PAYLOAD_BYTES + 18)),
    ] {
        let write = message.repeat(EACH).into_bytes();
        let mut session = nats::NatsSession::new(Arc::new(settings.clone()), &hello, Instant::ZERO);
        let (mut parser, mut out) = (nats::NatsParser::new(&settings), OutputBuffer::new());
        session.on_command(Instant::ZERO, nats::NatsCommand::Connect(&connect[8..]), &mut out).expect("welcome");
        figures.add(
            format!("NATS listener, {name}: read a message"),
            nanos_each(WRITES * EACH, || {
                let mut published = 0;
                for _ in 0..WRITES {
                    parser.push(&write);
                    while let Some(command) = parser.next().expect("well-formed") {
                        let request = session.on_command(Instant::ZERO, command, &mut out).expect("allowed");
                        if let Some(SessionRequest::Publish(publish)) = black_box(&request) {
                            published += publish.payload.len();
                        }
                    }
                }
                assert_eq!(published, WRITES * EACH * PAYLOAD_BYTES);
            }),
        );
    }
    let run = runs_of(&subjects(1)[0], EACH);
    for (name, headers) in [("plain", false), ("with what the bus knows", true)] {
        settings.access.headers = headers;
        let mut session = nats::NatsSession::new(Arc::new(settings.clone()), &hello, Instant::ZERO);
        let mut out = OutputBuffer::new();
        session.on_command(Instant::ZERO, nats::NatsCommand::Connect(&connect[8..]), &mut out).expect("welcome");
        let subscribe = nats::NatsCommand::Sub { subject: b">", queue: None, sid: b"1" };
        session.on_command(Instant::ZERO, subscribe, &mut out).expect("allowed");
        figures.add(
            format!("NATS listener, {name}: write a message of a run"),
            nanos_each(WRITES * EACH, || {
                let mut written = 0;
                for _ in 0..WRITES {
                    out.clear();
                    for deliveries in &run {
                        written += session.on_deliveries(&[SubId(1)], black_box(deliveries), &mut out);
                    }
                }
                assert_eq!(written, WRITES * EACH);
            }),
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let json = args.iter().any(|arg| arg == "--json");
    let wanted = |group: &str| args.iter().all(|arg| arg == "--json" || arg == group);
    let mut figures = Figures { rows: Vec::new(), json };
    if wanted("wire") {
        wire(&mut figures, "one subject", &subjects(1));
        wire(&mut figures, "64 subjects", &subjects(64));
    }
    if wanted("match") {
        matching(&mut figures);
        wildcards(&mut figures);
    }
    if wanted("event_types") {
        event_types(&mut figures);
    }
    if wanted("windows") {
        windows(&mut figures);
    }
    if wanted("ledger") {
        ledger(&mut figures);
    }
    if wanted("history") {
        history(&mut figures);
    }
    if wanted("nats") {
        nats_listener(&mut figures);
    }
    if wanted("members") {
        members(&mut figures);
    }
    if wanted("core") {
        local(&mut figures);
        core(&mut figures);
    }
    if wanted("redis") {
        redis_listener(&mut figures);
    }
    if wanted("security") {
        security::security(&mut figures);
        link_signatures::link_signatures(&mut figures);
    }
    if json {
        let rows: serde_json::Map<String, serde_json::Value> =
            figures.rows.into_iter().map(|(name, nanos)| (name, nanos.into())).collect();
        println!("{}", serde_json::Value::Object(rows));
    }
}
