//! Memory of the sequence windows and of the history, measured with an allocator that counts: `cargo bench --bench
//! memory`.
//!
//! Prints the bytes that each subject costs beyond its own bytes, and exits with 1 if a limit is exceeded: 48 bytes
//! in the publication window, 128 in the subscription window. Besides the full window it shows two other moments. One
//! is the worst while the number of subjects doubled (growing tables exist twice for a moment), the other follows
//! after three quarters of the subjects have left.
//!
//! The history is flooded with a million subjects and has to stay within its limit plus 10 %. Nothing here depends on
//! time or chance: every run prints the same.

use bytes::Bytes;
use seqcast::message::{Dseq, Message};
use seqcast::proto::WindowSettings;
use seqcast::proto::history::{History, HistorySettings};
use seqcast::proto::stats::WindowRow;
use seqcast::proto::window::{Numbering, PubWindow, SubEntry, SubWindow};
use seqcast::rng::Rng;
use seqcast::seqno::Seq;
use seqcast::subject::Subject;
use seqcast::time::{ClockReading, Instant, WallTime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Allocator that counts the requested bytes; the overhead of the system's allocator is not included.
struct CountingAllocator;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counters touch no allocated memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`; `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const PUB_LIMIT: f64 = 48.0;
const SUB_LIMIT: f64 = 128.0;
/// Maximum number of calls that a rotation takes; more than enough.
const ROTATE_CALLS: usize = 100;
const SECOND: u64 = 1_000_000_000;

/// Either window, with the operations of a publisher or subscriber on it.
enum Window {
    Pub(PubWindow, Rng),
    Sub(SubWindow),
}

impl Window {
    fn new(name: &str) -> Window {
        // The window rotates as soon as its time has passed; it has room for all subjects.
        let settings = WindowSettings { bytes: 0, time: Duration::from_secs(10), bytes_max: 1 << 40 };
        match name {
            "pub" => Window::Pub(PubWindow::new(settings, u64::MAX, 1), Rng::new(1)),
            _ => Window::Sub(SubWindow::new(settings, 1)),
        }
    }

    /// Records the next message of a subject.
    fn message(&mut self, subject: &Subject, secs: u64) {
        let instant = Instant::from_nanos(secs * SECOND);
        match self {
            Window::Pub(window, rng) => {
                let now = ClockReading { instant, wall: WallTime::from_nanos(1_659_131_646 * SECOND) };
                assert!(matches!(window.number(subject, now, rng), Numbering::Numbered { .. }));
            }
            Window::Sub(window) => {
                let entry = SubEntry { last: Seq::new(1).expect("not 0"), dseq: Dseq(1), at: instant, offset: None };
                // A subject from one of three publishers.
                let publisher = 1 + u32::from(subject.as_bytes()[0] % 3);
                assert!(window.insert(publisher, subject, entry));
            }
        }
    }

    fn rotate(&mut self, secs: u64) {
        for _ in 0..ROTATE_CALLS {
            match self {
                Window::Pub(window, _) => window.rotate_if_due(Instant::from_nanos(secs * SECOND)),
                Window::Sub(window) => drop(window.rotate_if_due(Instant::from_nanos(secs * SECOND))),
            }
        }
    }

    fn row(&self) -> WindowRow {
        match self {
            Window::Pub(window, _) => window.row(),
            Window::Sub(window) => window.row(),
        }
    }
}

/// Returns the nth of many different subjects, with a length from `low` to `high`.
fn subject(n: usize, low: usize, high: usize) -> Subject {
    let mut rng = Rng::new(n as u64);
    let len = rng.between(low as u64, high as u64) as usize;
    let mut text = format!("{}.{n:x}.", ["RSF.REC", "plant.line-4", "md.eq"][n % 3]);
    while text.len() < len {
        text.push(char::from(b'a' + rng.below(26) as u8));
    }
    text.truncate(len.max(text.trim_end_matches('.').len()));
    text.trim_end_matches('.').parse().expect("made of letters, digits and dots")
}

/// Measures one window and prints its line. Returns false if it exceeds its limit.
fn measure(name: &str, subjects: usize, lengths: &RangeInclusive<usize>) -> bool {
    let (low, high) = (*lengths.start(), *lengths.end());
    let limit = if name == "pub" { PUB_LIMIT } else { SUB_LIMIT };
    let before = LIVE.load(Relaxed);
    let mut window = Window::new(name);
    window.rotate(0);
    let (mut text_bytes, mut worst) = (0, 0.0_f64);
    let overhead = |bytes: usize, text_bytes: usize, subjects: usize| {
        (bytes - before).saturating_sub(text_bytes) as f64 / subjects as f64
    };
    for n in 0..subjects {
        let subject = subject(n, low, high);
        PEAK.store(LIVE.load(Relaxed), Relaxed);
        window.message(&subject, 1);
        text_bytes += subject.as_bytes().len();
        if subjects / 2 <= n {
            worst = worst.max(overhead(PEAK.load(Relaxed), text_bytes, n + 1));
        }
    }
    let full = overhead(LIVE.load(Relaxed), text_bytes, subjects);
    let account = window.row().bytes as usize;
    let measured = LIVE.load(Relaxed) - before;
    assert_eq!(window.row().subjects, subjects as u64);
    assert!(account <= measured && measured - account < 8192, "the window counts {account}, it has {measured} bytes");

    // Two rotations with only every fourth subject in use.
    let (mut live, mut live_bytes) = (0, 0);
    window.rotate(11);
    for n in (0..subjects).step_by(4) {
        let subject = subject(n, low, high);
        window.message(&subject, 12);
        live += 1;
        live_bytes += subject.as_bytes().len();
    }
    window.rotate(22);
    assert_eq!(window.row().subjects, live, "the idle ones have left");
    let thinned = overhead(LIVE.load(Relaxed), live_bytes, live as usize);

    let within = full <= limit && worst <= limit && thinned <= limit;
    let mean = text_bytes as f64 / subjects as f64;
    let verdict = if within { "ok" } else { "TOO MUCH" };
    println!(
        "{name:>6} | {subjects:>8} | {low:>3}..{high:<3} {mean:>6.1} | {measured:>11} | {full:>6.1} | {worst:>6.1} | \
         {thinned:>6.1} | {limit:>5.0} | {verdict}"
    );
    within
}

/// Floods a history with messages on `subjects` subjects, in turn, and prints the line of its worst moment. Returns
/// false if that exceeds the limit by more than 10 %.
fn flood(subjects: usize, payload_bytes: usize, total_bytes_max: usize) -> bool {
    let settings = HistorySettings {
        count_max: 1000,
        bytes_max: 1 << 20,
        time: Duration::from_secs(60),
        total_bytes_max,
        overrides: Vec::new(),
    };
    let before = LIVE.load(Relaxed);
    let mut history = History::new(&settings, 1);
    let payload = Bytes::from(vec![7; payload_bytes]);
    let payload_alone = LIVE.load(Relaxed) - before;
    let mut worst = 0;
    for n in 0..2_000_000.max(subjects) {
        let message = Message::new(subject(n % subjects, 12, 32), payload.clone());
        PEAK.store(LIVE.load(Relaxed), Relaxed);
        let now = ClockReading { instant: Instant::from_nanos(n as u64), wall: WallTime::EPOCH };
        let step = (n / subjects) as u32;
        history.record(now, Seq::new(u64::from(step) + 1).expect("not 0"), step, &message);
        worst = worst.max(PEAK.load(Relaxed));
    }
    let totals = history.totals();
    let measured = LIVE.load(Relaxed) - before;
    worst -= before;
    let within = worst as f64 <= 1.1 * total_bytes_max as f64;
    println!(
        "{subjects:>8} | {payload_bytes:>5} | {total_bytes_max:>11} | {:>11} | {measured:>11} | {worst:>11} | {:>8} | {:>8} | {}",
        totals.bytes,
        totals.subjects,
        totals.events,
        if within { "ok" } else { "TOO MUCH" }
    );
    assert!(measured <= totals.bytes as usize + payload_alone + 16 * 1024, "the history knows what it has");
    within
}

fn main() -> ExitCode {
    println!("Bytes for each subject beyond its own bytes");
    println!("       |          |    subject's   |             |      overhead of a subject |       |");
    println!("window | subjects |    bytes  mean | bytes in all|   full |  worst |   left | limit |");
    println!("-------+----------+----------------+-------------+--------+--------+--------+-------+---------");
    let mut within = true;
    for name in ["pub", "sub"] {
        for subjects in [60_000, 1_000_000] {
            for lengths in [12..=32, 20..=20, 10..=255] {
                within &= measure(name, subjects, &lengths);
            }
        }
    }
    println!("full: all subjects in; worst: the worst moment of the last doubling; left: after 3 of 4 subjects left");
    println!("\nThe history under a flood of subjects");
    println!("subjects | bytes |       limit |  it accounts |    measured |       worst | retained |   events |");
    println!(
        "---------+-------+-------------+-------------+-------------+-------------+----------+----------+---------"
    );
    for (subjects, payload_bytes) in [(1_000_000, 16), (1_000_000, 200), (1000, 16), (1, 16), (100_000, 2000)] {
        for total_bytes_max in [1 << 20, 64 << 20] {
            within &= flood(subjects, payload_bytes, total_bytes_max);
        }
    }
    within &= flood(1_000_000, 16, 1 << 30);
    println!("bytes: of a payload; worst: the worst moment; retained: subjects in the history at the end");
    if within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
