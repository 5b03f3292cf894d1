//! Durable appends to the journal of events: `cargo bench --bench journal`. Files lie where the system keeps temporary ones.
//!
//! Producers register one event at a time, with 256 bytes of JSON, and wait until it is stored before the next; what waits is
//! stored together. The baseline of the same run is a bare loop of inserts into the same tables, in transactions of as many events as
//! the journal had in one, by a program that has nothing else to do.

use bytes::Bytes;
use hdrhistogram::Histogram;
use rusqlite::{Connection, TransactionBehavior, params};
use seqcast::daemon::clock::Clock;
use seqcast::daemon::store::error::StoreError;
use seqcast::daemon::store::sqlite::SqliteJournal;
use seqcast::daemon::store::writer::{Append, Writer};
use seqcast::event::model::{Event, Json, Payload, Registration, ServerId};
use seqcast::event::registrar::Registrar;
use seqcast::event::store::{Answer, Journal, LastSession, Query};
use seqcast::event::timestamp::Timestamp;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

const PRODUCERS: u64 = 64;
const EVENTS: u64 = 200_000;
const ALONE: u64 = 2_000;
const ROUNDS: usize = 3;
const TYPES: u64 = 100;

/// A journal that counts its transactions.
struct Counted {
    journal: SqliteJournal,
    transactions: Arc<AtomicU64>,
}

impl Journal for Counted {
    type Error = StoreError;

    fn last_session(&mut self, server: ServerId) -> Result<LastSession, StoreError> {
        self.journal.last_session(server)
    }

    fn append(&mut self, events: &[Event]) -> Result<usize, StoreError> {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.journal.append(events)
    }

    fn query(&mut self, query: &Query) -> Result<Answer, StoreError> {
        self.journal.query(query)
    }
}

fn registration(number: u64) -> Registration {
    let text = format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(256));
    let json = Json::from_bytes(Bytes::from(format!("{}\"}}", &text[..254]))).expect("JSON");
    let event_type = format!("plant/{}/temperature", number % TYPES).parse().expect("an event type");
    Registration { event_type, source_timestamp: None, payload: Some(Payload::Json(json)) }
}

/// A new file.
fn file(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    for suffix in ["", "-wal", "-shm"] {
        let old = PathBuf::from(format!("{}{suffix}", path.display()));
        if old.exists() {
            fs::remove_file(old).expect("a file of ours");
        }
    }
    path
}

/// Lets so many producers register so many events. Gives events a second, events a transaction, and how long each waited.
fn produce(path: &Path, producers: u64, events: u64) -> (f64, f64, Histogram<u64>) {
    let transactions = Arc::new(AtomicU64::new(0));
    let journal = SqliteJournal::open(path).expect("a new journal");
    let counted = Counted { journal, transactions: Arc::clone(&transactions) };
    let writer = Writer::start(counted, Registrar::new(ServerId(1), 0, Timestamp::MIN)).expect("a thread");
    let begun = Clock::now();
    let waits = thread::scope(|scope| {
        let produce = |producer: u64| {
            let writer = &writer;
            move || {
                let (sender, receiver) = channel();
                let mut waits = Histogram::<u64>::new(3).expect("a histogram");
                for number in (producer..events).step_by(producers as usize) {
                    let now = Clock::now();
                    let append = Append::Register { requested: vec![registration(number)], now: now.wall.into() };
                    let sender = sender.clone();
                    writer.append(append, Box::new(move |done| sender.send(done).expect("it waits"))).expect("room");
                    receiver.recv().expect("an answer").expect("stored");
                    waits.record(Clock::now().instant.since(now.instant).as_nanos() as u64).expect("a time");
                }
                waits
            }
        };
        let threads: Vec<_> = (0..producers).map(|producer| scope.spawn(produce(producer))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).fold(
            Histogram::new(3).expect("one"),
            |mut sum, one| {
                sum.add(one).expect("of one kind");
                sum
            },
        )
    });
    let seconds = Clock::now().instant.since(begun.instant).as_secs_f64();
    drop(writer);
    (events as f64 / seconds, events as f64 / transactions.load(Ordering::Relaxed) as f64, waits)
}

/// The same rows in transactions of so many. Gives events a second.
fn bare(path: &Path, events: u64, batch: u64) -> f64 {
    let mut journal = SqliteJournal::open(path).expect("a new journal");
    // The types are there, as they are nearly always.
    let types = (0..TYPES).map(registration).collect();
    journal.append(&Registrar::new(ServerId(0), 0, Timestamp::MIN).register(Timestamp::MIN, types)).expect("stored");
    drop(journal);
    let mut connection = Connection::open(path).expect("the same file");
    for (pragma, value) in
        [("synchronous", "FULL"), ("temp_store", "MEMORY"), ("cache_size", "-32768"), ("wal_autocheckpoint", "8192")]
    {
        connection.pragma_update(None, pragma, value).expect("a setting");
    }
    let rows: Vec<Registration> = (0..events).map(registration).collect();
    let begun = Clock::now();
    for (number, rows) in rows.chunks(batch as usize).enumerate() {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO event VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)").expect("right");
            for (instance, row) in rows.iter().enumerate() {
                let Some(Payload::Json(json)) = &row.payload else { unreachable!("all have one") };
                let session = (number * batch as usize + instance + 1) as i64;
                let (kind, time) = (session % TYPES as i64 + 1, 1_700_000_000_000_000 + session);
                insert
                    .execute(params![1, session, 1, kind, time, None::<i64>, None::<String>, json.as_str()])
                    .expect("stored");
            }
        }
        transaction.commit().expect("stored");
    }
    events as f64 / Clock::now().instant.since(begun.instant).as_secs_f64()
}

fn main() {
    let dir = std::env::temp_dir().join(format!("seqcast-bench-journal-{}", std::process::id()));
    fs::create_dir(&dir).expect("a directory of our own");
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (rate, batch, waits) = produce(&file(&dir, "journal.db"), PRODUCERS, EVENTS);
        let base = bare(&file(&dir, "bare.db"), EVENTS, (batch.round() as u64).max(1));
        let micros = |quantile| waits.value_at_quantile(quantile) as f64 / 1000.0;
        println!(
            "journal, {PRODUCERS} producers {rate:10.0} events/s  {batch:5.1} a transaction  p50 {:8.1} us  p99 {:8.1} us",
            micros(0.5),
            micros(0.99)
        );
        println!("bare loop             {base:10.0} events/s  {:.2}x", rate / base);
        ratios.push(rate / base);
    }
    ratios.sort_by(f64::total_cmp);
    println!("journal to bare loop, median: {:.2}x", ratios[ROUNDS / 2]);
    let (rate, _, waits) = produce(&file(&dir, "alone.db"), 1, ALONE);
    let base = bare(&file(&dir, "bare.db"), ALONE, 1);
    let micros = |quantile| waits.value_at_quantile(quantile) as f64 / 1000.0;
    println!("journal, one producer {rate:10.0} events/s  p50 {:8.1} us  p99 {:8.1} us", micros(0.5), micros(0.99));
    println!("bare loop             {base:10.0} events/s  {:.2}x", rate / base);
    fs::remove_dir_all(&dir).expect("a directory of our own");
}
