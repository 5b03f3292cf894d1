//! Ordered events through their stores: `cargo bench --bench order`. Needs redis-server. The files are in the
//! system's directory for temporary files.
//!
//! Front ends push main events, one at a time, to 1,000 objects in turn. Then workers, each with a connection of its
//! own, send these events and discard them; a second part does both at once. The bench checks the sent events: each
//! event of each object once, in the order of the pushes, with rising ids and right `prev`. There are two baselines in
//! the same run. One is the same number of connections that do nothing but `INCR`, one after the other; the other a
//! loop of transactions that each change one row.

#[expect(dead_code, reason = "tests use the rest of it")]
#[path = "../tests/support/redis_server.rs"]
mod redis_server;
#[path = "../tests/support/server_process.rs"]
mod server_process;
#[expect(dead_code, reason = "tests use the rest of it")]
#[path = "../tests/support/wait.rs"]
mod wait;

use bytes::Bytes;
use redis_server::{DURABLE, RedisServer};
use rusqlite::Connection;
use seqcast::clock::Clock;
use seqcast::event::order::name::{Object, WorkerName};
use seqcast::event::order::stamp::OrderStamp;
use seqcast::event::order::store::Store;
use seqcast::event::order::worker::{OrderedEvent, Settings};
use seqcast::storage::order::REDIS_PREFIX;
use seqcast::storage::order::error::OrderError;
use seqcast::storage::order::front_end::{FrontEnd, Push};
use seqcast::storage::order::redis::RedisStore;
use seqcast::storage::order::sqlite::SqliteStore;
use seqcast::storage::order::worker_run::WorkerRun;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const OBJECTS: u64 = 1000;
const FRONT_ENDS: u64 = 4;
const WORKERS: u64 = 4;
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(5);

/// For each object the events in the order in which they were sent: id, prev, payload.
type Sent = BTreeMap<Object, Vec<(OrderStamp, Option<OrderStamp>, Bytes)>>;

/// Runs front ends that push `events` events. Returns pushes a second.
fn push<S: Store<Error = OrderError>>(open: &(impl Fn() -> S + Sync), events: u64) -> f64 {
    let begun = Clock::now().instant;
    thread::scope(|scope| {
        for front in 0..FRONT_ENDS {
            scope.spawn(move || {
                let mut front_end = FrontEnd::new(open(), None, PATIENCE);
                // All events of an object come from one front end, so that their order is known.
                for number in (0..events).filter(|number| number % OBJECTS % FRONT_ENDS == front) {
                    let object = Object::new(&format!("work:{}", number % OBJECTS)).expect("a name");
                    let main = Bytes::from(format!("{{\"number\":{number:09},\"text\":\"{}\"}}", "x".repeat(220)));
                    let push = Push { object, data: main.clone(), main, subs: Vec::new() };
                    front_end.push(&push).expect("the store is there");
                }
            });
        }
    });
    events as f64 / Clock::now().instant.since(begun).as_secs_f64()
}

/// Runs workers that send all events. Returns events a second, and the sent events.
fn work<S: Store<Error = OrderError>>(open: &(impl Fn() -> S + Sync), workers: u64, events: u64) -> (f64, Sent) {
    let (is_ending, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Clock::now().instant;
    let mut sent: Vec<OrderedEvent> = thread::scope(|scope| {
        let one = |number: u64| {
            let (is_ending, done) = (&is_ending, &done);
            move || {
                let mut sent = Vec::new();
                let send = |event: &OrderedEvent| {
                    sent.push(event.clone());
                    if done.fetch_add(1, Ordering::Relaxed) + 1 == events {
                        is_ending.store(true, Ordering::Relaxed);
                    }
                    true
                };
                let name = WorkerName::new(&format!("worker {number}")).expect("a name");
                let settings = Settings { name, lease_ms: 10_000 };
                let notify = |notice| panic!("{notice:?}");
                let run = WorkerRun { settings, mark: None, patience: PATIENCE, send, notify, is_ending };
                run.run(&mut open()).expect("the store is there");
                sent
            }
        };
        let threads: Vec<_> = (0..workers).map(|number| scope.spawn(one(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    });
    let rate = events as f64 / Clock::now().instant.since(begun).as_secs_f64();
    sent.sort_by_key(|event| event.id);
    let mut by_object = Sent::new();
    for event in sent {
        by_object.entry(event.object).or_default().push((event.id, event.prev, event.payload));
    }
    (rate, by_object)
}

/// Checks each event of each object: once, in the order of the pushes, with the right prev. Returns the events
/// without their ids.
fn checked(sent: Sent, events: u64) -> BTreeMap<Object, Vec<Bytes>> {
    assert_eq!(sent.values().map(Vec::len).sum::<usize>() as u64, events, "each event is sent once");
    for (object, events) in &sent {
        let mut before = None;
        for (id, prev, _) in events {
            assert_eq!(*prev, before, "{object}: prev of {id}");
            before = Some(*id);
        }
        // The numbers of the events have the same number of digits.
        assert!(events.is_sorted_by(|a, b| a.2 < b.2), "{object}: not in the order of the pushes");
    }
    sent.into_iter().map(|(object, events)| (object, events.into_iter().map(|event| event.2).collect())).collect()
}

/// Runs connections that do nothing but one small command, one after the other. Returns commands a second.
fn bare_redis(server: &RedisServer, events: u64) -> f64 {
    let begun = Clock::now().instant;
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || {
                let mut connection = server.connection();
                for _ in 0..events / WORKERS {
                    redis::cmd("INCR").arg(worker).exec(&mut connection).expect("a counter");
                }
            });
        }
    });
    events as f64 / Clock::now().instant.since(begun).as_secs_f64()
}

/// Runs transactions that change one row. Returns transactions a second.
fn bare_sqlite(path: &Path, events: u64) -> f64 {
    let connection = Connection::open(path).expect("a new file");
    connection.pragma_update(None, "journal_mode", "WAL").expect("a setting");
    connection.pragma_update(None, "synchronous", "FULL").expect("a setting");
    connection.execute_batch("CREATE TABLE a (b INTEGER); INSERT INTO a VALUES (0)").expect("a table");
    let begun = Clock::now().instant;
    for _ in 0..events {
        connection.prepare_cached("UPDATE a SET b = b + 1").and_then(|mut one| one.execute([])).expect("a change");
    }
    events as f64 / Clock::now().instant.since(begun).as_secs_f64()
}

fn redis(dir: &Path, what: &str, arguments: &[&str], events: u64) {
    let dir = dir.join(what);
    fs::create_dir(&dir).expect("a directory of our own");
    let server = RedisServer::start(&dir, arguments);
    let open = || RedisStore::new(&server.url(), REDIS_PREFIX).expect("an address");
    let mut orders = Vec::new();
    let mut ratios = Vec::new();
    for workers in [1, 8].into_iter().chain([WORKERS; ROUNDS]) {
        server.command::<()>(&["FLUSHALL"]);
        let pushed = push(&open, events);
        let (rate, sent) = work(&open, workers, events);
        orders.push(checked(sent, events));
        println!("redis {what}, {workers} workers {rate:9.0} events/s  {FRONT_ENDS} front ends {pushed:9.0} pushes/s");
        if workers == WORKERS {
            let base = bare_redis(&server, events);
            println!("bare INCR, {WORKERS} connections  {base:9.0} a second  {:.2}x", rate / base);
            ratios.push(rate / base);
        }
    }
    server.command::<()>(&["FLUSHALL"]);
    let (rate, sent) = thread::scope(|scope| {
        scope.spawn(|| push(&open, events));
        work(&open, WORKERS, events)
    });
    orders.push(checked(sent, events));
    println!("redis {what}, {WORKERS} workers {rate:9.0} events/s  while {FRONT_ENDS} front ends push them");
    assert!(orders.iter().all(|order| *order == orders[0]), "the order depends on the number of workers");
    ratios.sort_by(f64::total_cmp);
    println!(
        "redis {what} to bare INCR, median: {:.2}x; the same order of each object in all runs",
        ratios[ROUNDS / 2]
    );
}

fn sqlite(dir: &Path, events: u64) {
    let mut orders = Vec::new();
    for workers in [1, WORKERS, 8] {
        let path = dir.join(format!("order-{workers}.db"));
        let open = || SqliteStore::open(&path).expect("a file");
        let pushed = push(&open, events);
        let (rate, sent) = work(&open, workers, events);
        orders.push(checked(sent, events));
        println!("SQLite, {workers} workers {rate:9.0} events/s  {FRONT_ENDS} front ends {pushed:9.0} pushes/s");
    }
    assert!(orders.iter().all(|order| *order == orders[0]), "the order depends on the number of workers");
    println!("bare SQLite loop   {:9.0} transactions/s", bare_sqlite(&dir.join("bare.db"), events));
}

fn main() {
    let dir = std::env::temp_dir().join(format!("seqcast-bench-order-{}", std::process::id()));
    fs::create_dir(&dir).expect("a directory of our own");
    redis(&dir, "in memory", &[], 100_000);
    redis(&dir, "appendfsync always", DURABLE, 10_000);
    sqlite(&dir, 5_000);
    fs::remove_dir_all(&dir).expect("a directory of our own");
}
