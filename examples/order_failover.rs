//! Kills a redis-server and starts it again, or fails over to its replica, in turn, while workers send and a front
//! end pushes: `tools/order-failover [ROUNDS]`, 20 rounds unless said otherwise. Needs redis-server.
//!
//! The servers write to the disk once a second, so that rounds do lose something. The example checks that no id
//! belongs to two events. Within a generation workers must send each object's events in the order of the pushes, each
//! naming the one before. The front end must get a report of each loss before a worker sends an event of the new
//! generation. The example prints the number of lost events, which is no failure.

#[expect(dead_code, reason = "tests use the rest of it")]
#[path = "../tests/support/redis_server.rs"]
mod redis_server;
#[path = "../tests/support/server_process.rs"]
mod server_process;
#[expect(dead_code, reason = "tests use the rest of it")]
#[path = "../tests/support/wait.rs"]
mod wait;

use bytes::Bytes;
use redis_server::RedisServer;
use seqcast::clock::Clock;
use seqcast::event::order::name::{Object, WorkerName};
use seqcast::event::order::stamp::{Generation, OrderStamp};
use seqcast::event::order::worker::{OrderedEvent, Settings, WorkerAdvisory};
use seqcast::storage::order::REDIS_PREFIX;
use seqcast::storage::order::front_end::{FrontEnd, Push};
use seqcast::storage::order::redis::RedisStore;
use seqcast::storage::order::worker_run::{WorkerNotice, WorkerRun};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const WORKERS: u64 = 3;
const OBJECTS: u64 = 5;
const ROUNDS: usize = 20;
/// Time between two failures.
const FAILURE_INTERVAL: Duration = Duration::from_millis(700);
const PERSISTENT: &[&str] = &["--appendonly", "yes", "--appendfsync", "everysec"];

/// The current address of the primary, and what the processes have observed.
#[derive(Default)]
struct Observations {
    url: Mutex<String>,
    sent: Mutex<Vec<OrderedEvent>>,
    /// Generations whose beginning workers or the front end reported.
    reported: Mutex<BTreeSet<Generation>>,
    pushed: Mutex<u64>,
    unknown: Mutex<u64>,
    is_ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn store(observations: &Observations) -> RedisStore {
    RedisStore::new(&lock(&observations.url), REDIS_PREFIX).expect("an address")
}

/// Runs workers on the current primary, each with the highest stamp of the one before.
fn work(observations: &Observations, number: u64) {
    let mut mark: Option<OrderStamp> = None;
    while !observations.is_ending.load(Ordering::Relaxed) {
        let newest = Mutex::new(mark);
        let send = |event: &OrderedEvent| {
            let mut newest = lock(&newest);
            *newest = (*newest).max(Some(event.token)).max(Some(event.id));
            lock(&observations.sent).push(event.clone());
            true
        };
        let notify = |notice| {
            if let WorkerNotice::Advisory(WorkerAdvisory::LostGeneration { known, found }) = notice {
                lock(&observations.reported).extend(known.into_iter().chain(found));
            }
        };
        let name = WorkerName::new(&format!("worker {number}")).expect("a name");
        let settings = Settings { name, lease_ms: 500 };
        // Without retries: the primary may have moved.
        let run =
            WorkerRun { settings, mark, patience: Duration::ZERO, send, notify, is_ending: &observations.is_ending };
        mark = match run.run(&mut store(observations)) {
            Ok(ended) => mark.max(ended.mark),
            Err(_) => lock(&newest).to_owned(),
        };
        thread::sleep(Duration::from_millis(5));
    }
}

/// Pushes numbered events to each object in turn, on the current primary.
fn push(observations: &Observations) {
    let mut mark = None;
    let mut front_end = FrontEnd::new(store(observations), mark, Duration::ZERO);
    for number in 0u64.. {
        let main = Bytes::from(format!("{:012}", number / OBJECTS));
        let object = Object::new(&format!("work:{}", number % OBJECTS)).expect("a name");
        let push = Push { object, data: main.clone(), main, subs: Vec::new() };
        loop {
            if observations.is_ending.load(Ordering::Relaxed) {
                return;
            }
            match front_end.push(&push) {
                Ok(pushed) => {
                    mark = Some(pushed.mark);
                    let lost = pushed.lost.map(|lost| lost.known.into_iter().chain(lost.found));
                    lock(&observations.reported).extend(lost.into_iter().flatten());
                    *lock(&observations.pushed) += 1;
                    break;
                }
                Err(error) => {
                    front_end = FrontEnd::new(store(observations), mark, Duration::ZERO);
                    // The next number, so that no event is pushed twice.
                    if error.is_unknown() {
                        *lock(&observations.unknown) += 1;
                        break;
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }
}

/// Panics if an id belongs to two events, or a generation is not in order, or began without a report. Returns the
/// summary.
fn check(sent: &[OrderedEvent], reported: &BTreeSet<Generation>) -> String {
    let (mut ids, mut again) = (BTreeMap::new(), 0);
    let mut objects: BTreeMap<(&Object, Generation), BTreeMap<OrderStamp, &OrderedEvent>> = BTreeMap::new();
    for event in sent {
        let of = (&event.object, &event.payload, event.prev);
        assert_eq!(*ids.entry(event.id).or_insert(of), of, "an id of two events, or with another prev: {event:?}");
        let before = objects.entry((&event.object, event.id.generation())).or_default();
        again += usize::from(before.insert(event.id, event).is_some());
    }
    for ((object, generation), events) in &objects {
        let mut last: Option<&OrderedEvent> = None;
        for event in events.values() {
            if let Some(last) = last {
                assert_eq!(event.prev, Some(last.id), "prev in generation {generation} of {object}");
                assert!(last.payload < event.payload, "order in generation {generation} of {object}");
            }
            last = Some(event);
        }
    }
    let generations: BTreeSet<Generation> = ids.keys().map(|id| id.generation()).collect();
    // The last one has nothing after it.
    let silent = generations.iter().rev().skip(1).filter(|generation| !reported.contains(generation)).count();
    assert_eq!(silent, 0, "generations that ended without a report: {generations:?}, reported {reported:?}");
    let payloads: BTreeSet<_> = sent.iter().map(|event| (&event.object, &event.payload)).collect();
    let twice = ids.len() - payloads.len();
    format!(
        "{} sent: {} events under {} ids ({twice} again under another id, in a later generation), {again} again under the \
         same; {} generations",
        sent.len(),
        payloads.len(),
        ids.len(),
        generations.len()
    )
}

fn replica_of(primary: &RedisServer, dir: &std::path::Path) -> RedisServer {
    fs::create_dir(dir).expect("a directory of our own");
    let port = primary.port().to_string();
    let replica = RedisServer::start(dir, &[PERSISTENT, &["--replicaof", "127.0.0.1", &port]].concat());
    while !replica.command::<String>(&["INFO", "replication"]).contains("master_link_status:up") {
        thread::sleep(Duration::from_millis(5));
    }
    replica
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(ROUNDS, |text| text.parse().expect("ROUNDS is a number"));
    let dir = std::env::temp_dir().join(format!("seqcast-order-failover-{}", std::process::id()));
    fs::create_dir(&dir).expect("a directory of our own");
    let mut place = dir.join("first");
    fs::create_dir(&place).expect("a directory of our own");
    let mut primary = RedisServer::start(&place, PERSISTENT);
    let observations = Observations::default();
    *lock(&observations.url) = primary.url();
    let begun = Clock::now().instant;
    thread::scope(|scope| {
        (0..WORKERS).for_each(|number| {
            drop(scope.spawn({
                let observations = &observations;
                move || work(observations, number)
            }))
        });
        scope.spawn(|| push(&observations));
        for round in 0..rounds {
            thread::sleep(FAILURE_INTERVAL);
            if round % 2 == 0 {
                primary = RedisServer::start_on(primary.kill(), &place, PERSISTENT);
            } else {
                place = dir.join(format!("round-{round}"));
                let replica = replica_of(&primary, &place);
                thread::sleep(FAILURE_INTERVAL);
                // Later answers of the primary are lost: the replica does not get them.
                replica.command::<()>(&["REPLICAOF", "NO", "ONE"]);
                thread::sleep(Duration::from_millis(50));
                *lock(&observations.url) = replica.url();
                primary.kill();
                primary = replica;
            }
            println!("round {round}: {} sent", lock(&observations.sent).len());
        }
        thread::sleep(FAILURE_INTERVAL);
        observations.is_ending.store(true, Ordering::Relaxed);
    });
    println!("{}", check(&lock(&observations.sent), &lock(&observations.reported)));
    println!("{} pushes answered, {} without an answer", lock(&observations.pushed), lock(&observations.unknown));
    println!(
        "{rounds} rounds in {:.0} s: no id of two events, no other order, nothing silent",
        Clock::now().instant.since(begun).as_secs_f64()
    );
    fs::remove_dir_all(&dir).expect("a directory of our own");
}
