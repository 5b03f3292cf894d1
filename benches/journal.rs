//! Durable appends to the journal of events, and queries to it: `cargo bench --bench journal`. The files are in
//! the system's directory for temporary files.
//!
//! Producers register one event at a time, with 256 bytes of JSON; the journal stores waiting events together. Each
//! producer has one pending request at a time, or up to 64, as a client that does not wait for each answer. The
//! baselines of the same run are bare loops that insert the same rows. They have the same settings, and as many events
//! in a transaction as the journal had. One loop inserts into a table with the indexes that the journal's queries
//! need. The table of the other loop has the index of the id alone, and cannot answer these queries.

use bytes::Bytes;
use hdrhistogram::Histogram;
use rusqlite::{Connection, TransactionBehavior, params};
use seqcast::clock::Clock;
use seqcast::event::model::{Event, EventId, Json, Payload, Registration, ServerId};
use seqcast::event::sequencer::EventSequencer;
use seqcast::event::store::retention::Retention;
use seqcast::event::store::{Journal, LastSession, Query, QueryPage, Series, ServerQuery};
use seqcast::event::timestamp::Timestamp;
use seqcast::storage::journal::error::StoreError;
use seqcast::storage::journal::sqlite::{SqliteJournal, SqliteReader};
use seqcast::storage::journal::writer::{AppendOp, JournalWriter};
use seqcast::time::ClockReading;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

const PRODUCERS: u64 = 64;
/// Pending requests of a producer.
const IN_FLIGHT: [u64; 2] = [1, 64];
const EVENTS: u64 = 200_000;
const ALONE: u64 = 2_000;
const ROUNDS: usize = 3;
const TYPES: u64 = 100;
/// Number of events of the journal that is queried.
const QUERIED_EVENTS: u64 = 1_000_000;
const QUESTIONS: u64 = 200;

/// A plain SQLite table of the same rows.
const ROWS: &str = "
    CREATE TABLE event (arrival INTEGER PRIMARY KEY, server INTEGER, session INTEGER, instance INTEGER, type INTEGER,
        time INTEGER, source_time INTEGER, payload_type TEXT, payload ANY) STRICT;
    CREATE UNIQUE INDEX event_id ON event (server, session, instance);
";
/// Indexes that the journal's queries need.
const INDEXES: &str = "
    CREATE INDEX event_type ON event (type, time);
    CREATE INDEX event_time ON event (time);
    CREATE INDEX event_source_time ON event (source_time) WHERE source_time IS NOT NULL;
";

/// A journal that counts its transactions.
struct CountingJournal {
    journal: SqliteJournal,
    transactions: Arc<AtomicU64>,
}

impl Journal for CountingJournal {
    type Error = StoreError;

    fn last_session(&mut self, server: ServerId) -> Result<LastSession, StoreError> {
        self.journal.last_session(server)
    }

    fn append(&mut self, events: &[Event]) -> Result<usize, StoreError> {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.journal.append(events)
    }

    fn trim(&mut self, retention: &Retention, now: Timestamp, budget: usize) -> Result<Vec<u64>, StoreError> {
        self.journal.trim(retention, now, budget)
    }

    fn query(&mut self, query: &Query) -> Result<QueryPage, StoreError> {
        self.journal.query(query)
    }
}

fn registration(number: u64) -> Registration {
    let text = format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(256));
    let json = Json::from_bytes(Bytes::from(format!("{}\"}}", &text[..254]))).expect("JSON");
    let event_type = format!("plant/{}/temperature", number % TYPES).parse().expect("an event type");
    Registration { event_type, source_timestamp: None, payload: Some(Payload::Json(json)) }
}

/// Returns the path of a new file.
fn file(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    for suffix in ["", "-wal", "-shm"] {
        let old = PathBuf::from(format!("{}{suffix}", path.display()));
        if old.exists() {
            fs::remove_file(old).expect("a file of an earlier round");
        }
    }
    path
}

/// Result of a run.
struct Outcome {
    /// Events a second.
    rate: f64,
    /// Events a transaction.
    batch: f64,
    /// Nanoseconds that each event waited.
    waits: Histogram<u64>,
}

impl Outcome {
    fn print(&self, what: &str) {
        let micros = |quantile| self.waits.value_at_quantile(quantile) as f64 / 1000.0;
        let (rate, batch) = (self.rate, self.batch);
        let (p50, p99) = (micros(0.5), micros(0.99));
        println!("{what:37} {rate:8.0} events/s  {batch:6.1} a transaction  p50 {p50:8.1} us  p99 {p99:8.1} us");
    }
}

/// Runs `producers` producers that register `events` events in total.
fn produce(path: &Path, producers: u64, in_flight: u64, events: u64) -> Outcome {
    let transactions = Arc::new(AtomicU64::new(0));
    let journal = SqliteJournal::open(path).expect("a new journal");
    let counted = CountingJournal { journal, transactions: Arc::clone(&transactions) };
    let writer = JournalWriter::start(counted, EventSequencer::new(ServerId(1), 0, Timestamp::MIN)).expect("a thread");
    let begun = Clock::now();
    let mut waits = Histogram::<u64>::new(3).expect("a histogram");
    thread::scope(|scope| {
        let start = |producer| scope.spawn(|| register(&writer, in_flight, producer));
        let numbers = |producer: u64| (producer..events).step_by(producers as usize);
        let threads: Vec<_> = (0..producers).map(|producer| start(numbers(producer))).collect();
        threads.into_iter().for_each(|thread| waits.add(thread.join().expect("it ends")).expect("of one kind"));
    });
    let seconds = Clock::now().instant.since(begun.instant).as_secs_f64();
    drop(writer);
    let rate = events as f64 / seconds;
    Outcome { rate, batch: events as f64 / transactions.load(Ordering::Relaxed) as f64, waits }
}

/// Registers events with these numbers, and returns the time that each waited.
fn register(writer: &JournalWriter, in_flight: u64, numbers: impl Iterator<Item = u64>) -> Histogram<u64> {
    let (sender, receiver) = sync_channel(1 + usize::try_from(in_flight).expect("64 bits"));
    let mut waits = Histogram::<u64>::new(3).expect("a histogram");
    let mut wait_for_answer = || {
        let begun: ClockReading = receiver.recv().expect("an answer");
        waits.record(Clock::now().instant.since(begun.instant).as_nanos() as u64).expect("a time");
    };
    let mut waiting = 0;
    for number in numbers {
        if waiting == in_flight {
            wait_for_answer();
            waiting -= 1;
        }
        let now = Clock::now();
        let append = AppendOp::Register { registrations: vec![registration(number)], now: now.wall.into() };
        let sender = sender.clone();
        let done = move |done: Result<Vec<Event>, StoreError>| {
            done.expect("stored");
            sender.send(now).expect("it waits");
        };
        writer.append(append, Box::new(done)).expect("room");
        waiting += 1;
    }
    (0..waiting).for_each(|_| wait_for_answer());
    waits
}

/// Inserts the same rows into these tables in transactions of `batch`. Returns events a second.
fn bare(path: &Path, tables: &[&str], events: u64, batch: u64) -> f64 {
    let mut connection = Connection::open(path).expect("a new file");
    for (pragma, value) in [
        ("journal_mode", "WAL"),
        ("synchronous", "FULL"),
        ("temp_store", "MEMORY"),
        ("cache_size", "-32768"),
        ("wal_autocheckpoint", "8192"),
    ] {
        connection.pragma_update(None, pragma, value).expect("a setting");
    }
    connection.execute_batch(&tables.concat()).expect("tables");
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

/// Queries a journal of many events.
fn query_all(path: &Path) {
    produce(path, 4, 4096, QUERIED_EVENTS);
    let mut reader = SqliteJournal::reader(path).expect("the journal");
    let types = |number: u64| Some(vec![format!("plant/{}/temperature", number % TYPES).parse().expect("a pattern")]);
    let middle = |number: u64| EventId { server: ServerId(1), session: QUERIED_EVENTS / 2 + number, instance: 1 };
    let limit = Some(100);
    let latest = |number| Query::Latest(types(number));
    let series = |number| Query::Series(Series { types: types(number), limit, ..Series::default() });
    let of_server = |number| Query::Server(ServerQuery { server: ServerId(1), after: Some(middle(number)), limit });
    print_costs("the latest of one type", &mut reader, 1, latest);
    print_costs("100 of one type by time", &mut reader, 100, series);
    print_costs("100 of a server after an id", &mut reader, 100, of_server);
}

/// Prints the costs of one kind of query, each with `found` events as its answer.
fn print_costs(what: &str, reader: &mut SqliteReader, found: usize, question: impl Fn(u64) -> Query) {
    let mut costs = Histogram::<u64>::new(3).expect("a histogram");
    for number in 0..QUESTIONS {
        let begun = Clock::now();
        let answer = reader.query(&question(number)).expect("readable");
        costs.record(Clock::now().instant.since(begun.instant).as_nanos() as u64).expect("a time");
        assert_eq!(answer.events.len(), found, "{what}");
    }
    let micros = |quantile| costs.value_at_quantile(quantile) as f64 / 1000.0;
    println!("{what:37} p50 {:8.1} us  p99 {:8.1} us", micros(0.5), micros(0.99));
}

fn main() {
    let dir = std::env::temp_dir().join(format!("seqcast-bench-journal-{}", std::process::id()));
    fs::create_dir(&dir).expect("a directory of our own");
    for in_flight in IN_FLIGHT {
        let (mut indexed, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let outcome = produce(&file(&dir, "journal.db"), PRODUCERS, in_flight, EVENTS);
            outcome.print(&format!("journal, {PRODUCERS} producers, {in_flight} in flight each"));
            let batch = (outcome.batch.round() as u64).max(1);
            for (what, tables, ratios) in [
                ("bare loop, the same indexes", &[ROWS, INDEXES][..], &mut indexed),
                ("bare loop, no index but the id's", &[ROWS], &mut plain),
            ] {
                let base = bare(&file(&dir, "bare.db"), tables, EVENTS, batch);
                println!("{what:37} {base:8.0} events/s  {:.2}x", outcome.rate / base);
                ratios.push(outcome.rate / base);
            }
        }
        let median = |ratios: &mut Vec<f64>| {
            ratios.sort_by(f64::total_cmp);
            ratios[ROUNDS / 2]
        };
        println!(
            "journal to bare loop, {in_flight} in flight, median: {:.2}x with the same indexes, \
             {:.2}x with the id's only",
            median(&mut indexed),
            median(&mut plain)
        );
    }
    let alone = produce(&file(&dir, "alone.db"), 1, 1, ALONE);
    alone.print("journal, one producer, 1 in flight");
    let base = bare(&file(&dir, "bare.db"), &[ROWS, INDEXES], ALONE, 1);
    println!("{:37} {base:8.0} events/s  {:.2}x", "bare loop, the same indexes", alone.rate / base);
    query_all(&file(&dir, "queried.db"));
    fs::remove_dir_all(&dir).expect("a directory of our own");
}
