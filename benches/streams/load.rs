//! Load on a peer: many consumers with filters, and consumers that stay away.

use crate::client::Client;
use crate::server::{PATIENCE, Server};
use crate::{ResourceUse, WINDOW, event, now};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const CONSUMERS: u64 = 100;
/// Number of types, which events have in turn.
const TYPES: u64 = 100;
/// Interval between two queries of the peer's store.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum size of the stream with a limit, in bytes.
const LIMIT_BYTES: u64 = 4 << 20;

fn kind(number: u64) -> String {
    let letter = |number: u64| char::from(b'A' + u8::try_from(number % 26).expect("below 26"));
    format!("KIND_{}{}", letter(number / 26), letter(number))
}

/// Returns the types that a consumer wants: three, and no two consumers the same.
fn wanted_types(consumer: u64) -> [u64; 3] {
    [0, 1, 7].map(|step| (consumer + step) % TYPES)
}

/// Pushes the matching ones of `events` events to a hundred consumers.
pub fn filters(events: u64) {
    let server = Server::peer(&[]);
    let mut producer = Client::connect(&server);
    let mut clients: Vec<Client> = (0..CONSUMERS).map(|_| Client::connect(&server)).collect();
    for (number, client) in (0..).zip(&mut clients) {
        client.register(&format!("filter{number}"));
    }
    producer.register("keeper");
    let half = events / 2;
    let typed = |from: u64| move |number: u64| event(&kind((from + number) % TYPES), from + number);
    producer.add(half, WINDOW, typed(0));
    let with_half = server.memory();
    producer.add(events - half, WINDOW, typed(half));
    let before = server.memory();
    let (peak, is_ending) = (AtomicU64::new(before), AtomicBool::new(false));
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_ending.load(Ordering::Relaxed) {
                peak.fetch_max(server.memory(), Ordering::Relaxed);
                thread::sleep(SAMPLE_INTERVAL);
            }
        });
        let took = ResourceUse::of(&server, || {
            thread::scope(|scope| {
                for (number, client) in (0..).zip(&mut clients) {
                    scope.spawn(move || {
                        let types = wanted_types(number);
                        let want = types.map(|index| format!("\"{}\"", kind(index))).join(",");
                        client.ready(&format!("filter{number}"), &format!("[{want}]"));
                        let of_type = |index: u64| events / TYPES + u64::from(index < events % TYPES);
                        let mut missing: u64 = types.into_iter().map(of_type).sum();
                        let mut last = 0;
                        while 0 < missing {
                            let group = client.receive();
                            assert!(last < group.first, "events come in order");
                            last = group.last;
                            missing = missing.checked_sub(group.count).expect("nothing comes that is not wanted");
                        }
                    });
                }
            });
            events * CONSUMERS
        });
        is_ending.store(true, Ordering::Relaxed);
        took
    });
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "filters                {CONSUMERS} consumers, {events} events: {:.1} s, {:.0} ns for each event and consumer, {:.1} us for each event, {:.1} us \
         for each that is pushed; processor {:.1} s",
        took.time.as_secs_f64(),
        took.time.as_nanos() as f64 / took.events as f64,
        took.time.as_secs_f64() * 1e6 / events as f64,
        took.time.as_secs_f64() * 1e6 / (events * CONSUMERS * 3 / TYPES) as f64,
        took.server.as_secs_f64(),
    );
    println!(
        "filters                memory with half of the events {:.1} MiB, with all {:.1} MiB, \
         at most {:.1} MiB while pushing, {:.1} MiB after that",
        mib(with_half),
        mib(before),
        mib(peak.into_inner()),
        mib(server.memory()),
    );
}

/// Returns the number of retained events and their bytes.
fn retained(file: &Path) -> (u64, u64) {
    let open = || {
        let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(PATIENCE)?;
        connection.query_row("SELECT events, bytes FROM seqcast_streams WHERE name = 'main'", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
    };
    let (events, bytes) = open().expect("the file can be read");
    (u64::try_from(events).expect("a count"), u64::try_from(bytes).expect("a count"))
}

/// Adds to a stream with a limit while a consumer wants a type that never comes, or does not connect.
pub fn limits(events: u64) {
    for is_pushed in [true, false] {
        let server = Server::peer(&[&format!("streams=main size {} mb", LIMIT_BYTES >> 20)]);
        let mut idle = Client::connect(&server);
        idle.register("idle");
        if is_pushed {
            idle.ready("idle", "[\"NEVER\"]");
        }
        let file = server.file("streams.db");
        let is_ending = AtomicBool::new(false);
        let (most, size) = thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut most = (0, 0);
                while !is_ending.load(Ordering::Relaxed) {
                    let (events, bytes) = retained(&file);
                    most = (events.max(most.0), bytes.max(most.1));
                    thread::sleep(SAMPLE_INTERVAL);
                }
                most
            });
            Client::connect(&server).add(events, WINDOW, |number| event("PAYMENT", number));
            let begun = now();
            while LIMIT_BYTES < retained(&file).1 {
                assert!(now().since(begun) < PATIENCE, "the stream retains more than its limit");
                thread::sleep(SAMPLE_INTERVAL);
            }
            is_ending.store(true, Ordering::Relaxed);
            (sampler.join().expect("it ends"), file.metadata().expect("it is there").len())
        });
        let what = if is_pushed { "wants a type that never comes" } else { "does not connect" };
        let (left, bytes) = retained(&file);
        println!(
            "limits                 {events} events, limit {LIMIT_BYTES} bytes, a consumer that {what}: \
             at most {} events, {} bytes ({:.2}x the limit); in the end {left} events, {bytes} bytes; \
             streams.db {size} bytes",
            most.0,
            most.1,
            most.1 as f64 / LIMIT_BYTES as f64,
        );
    }
}
