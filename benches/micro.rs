//! What the parts of the hot path cost, in nanoseconds: `cargo bench --bench micro [-- --json]`.
//!
//! Each figure is the median of several rounds over the same work, on one thread, memory warm. Random order means that
//! neighbouring operations touch different subjects, as real traffic on many subjects does.

use bytes::Bytes;
use seqcast::message::{Dseq, Epoch, Message};
use seqcast::proto::WindowSettings;
use seqcast::proto::window::{Numbering, PubWindow, SubEntry, SubWindow};
use seqcast::rng::Rng;
use seqcast::seqno::Seq;
use seqcast::subject::Subject;
use seqcast::subject::tree::Tree;
use seqcast::time::{Instant, Now, Wall};
use seqcast::wire::{Builder, Entry, Header, Kind, Record, decode};
use std::hint::black_box;
use std::time::Duration;

const ROUNDS: usize = 9;
const PAYLOAD_BYTES: usize = 64;
const DATAGRAM_BYTES: usize = 1472;

/// The median over [`ROUNDS`] of the time of one of `operations` operations, in nanoseconds.
#[expect(clippy::disallowed_methods, reason = "a bench measures with the real clock")]
fn nanos_each(operations: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = std::time::Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2].as_nanos() as f64 / operations as f64
}

struct Figures {
    rows: Vec<(String, f64)>,
    json: bool,
}

impl Figures {
    fn add(&mut self, name: impl Into<String>, nanos: f64) {
        let name = name.into();
        if !self.json {
            println!("{name:<58} {nanos:>9.1} ns");
        }
        self.rows.push((name, nanos));
    }
}

fn header(number: u64, count: u64) -> Header {
    let epoch = Epoch::new(1).expect("not 0");
    Header { kind: Kind::Data, group: 7500, epoch, number, count, uptime_ms: 0, receiver: None }
}

fn subjects(count: usize) -> Vec<Subject> {
    (0..count).map(|n| format!("RSF.REC.{}.{n}", ["PAC", "MTC", "MCD"][n % 3]).parse().expect("valid")).collect()
}

/// Packs messages into one datagram until it is full; gives how many.
fn pack(builder: &mut Builder, messages: &[Message], seqs: &[Seq]) -> usize {
    let mut packed = 0;
    for (message, seq) in messages.iter().zip(seqs) {
        if !builder.push(&Entry { message, seq: Some(*seq), stamp: None, chain: None }) {
            break;
        }
        packed += 1;
    }
    packed
}

/// Packing and decoding: all messages of one subject, or each of another.
fn wire(figures: &mut Figures, name: &str, subjects: &[Subject]) {
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let messages: Vec<Message> =
        (0..64).map(|n| Message::new(subjects[n % subjects.len()].clone(), payload.clone())).collect();
    let seqs: Vec<Seq> = (0..64_u64).map(|n| Seq::new(2 + n / subjects.len() as u64).expect("not 0")).collect();
    let mut builder = Builder::new(DATAGRAM_BYTES);
    let each = pack(&mut builder, &messages, &seqs);
    let datagram = builder.seal(&header(1, 0));
    let repeats = 2000;

    figures.add(
        format!("pack and seal, {name}: a message ({each} in {} bytes)", datagram.len()),
        nanos_each(repeats * each, || {
            for number in 1..=repeats as u64 {
                pack(&mut builder, black_box(&messages), &seqs);
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

/// Look-ups in the match tree itself, behind the cache.
fn matching(figures: &mut Figures) {
    for count in [1_000, 100_000] {
        let subjects = subjects(count);
        let mut tree = Tree::new();
        for (n, subject) in subjects.iter().enumerate() {
            tree.insert(&subject.clone().into(), n);
        }
        for (n, pattern) in [">", "RSF.>", "*.REC.PAC.*"].iter().enumerate() {
            tree.insert(&pattern.parse().expect("valid"), count + n);
        }
        let mut rng = Rng::new(1);
        let order: Vec<&Subject> = (0..100_000).map(|_| &subjects[rng.below(count as u64) as usize]).collect();
        figures.add(
            format!("match tree, {count} patterns, random order: a look-up"),
            nanos_each(order.len(), || order.iter().for_each(|subject| drop(black_box(tree.matches(subject))))),
        );
    }
}

/// The windows in random order over few and over very many subjects, and on one subject alone.
fn windows(figures: &mut Figures) {
    let settings = WindowSettings { bytes: 1 << 30, time: Duration::from_secs(10), bytes_max: 1 << 30 };
    let now = Now { instant: Instant::ZERO, wall: Wall::from_nanos(1_659_131_646_000_000_000) };
    for count in [1, 1_000, 60_000, 1_000_000] {
        let subjects = subjects(count);
        let mut rng = Rng::new(1);
        let mut pub_window = PubWindow::new(settings, u64::MAX, 1);
        let mut sub_window = SubWindow::new(settings, 1);
        let entry = SubEntry { last: Seq::new(1).expect("not 0"), dseq: Dseq(1), at: Instant::ZERO };
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
            format!("sub window, {count} streams: lookup"),
            nanos_each(order.len(), || {
                for subject in &order {
                    let entry = sub_window.lookup(1, subject).expect("inserted above");
                    entry.last = entry.last.forward(1).expect("far from the end");
                }
            }),
        );
    }
}

fn main() {
    let mut figures = Figures { rows: Vec::new(), json: std::env::args().any(|arg| arg == "--json") };
    wire(&mut figures, "one subject", &subjects(1));
    wire(&mut figures, "64 subjects", &subjects(64));
    matching(&mut figures);
    windows(&mut figures);
    if figures.json {
        let rows: serde_json::Map<String, serde_json::Value> =
            figures.rows.into_iter().map(|(name, nanos)| (name, nanos.into())).collect();
        println!("{}", serde_json::Value::Object(rows));
    }
}
