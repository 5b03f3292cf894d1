//! Workers, as processes of their own, are killed with -9 at random and started again while front ends push. Nothing
//! is lost, doubled or out of order, and after every kill the state is whole. `ORDER_KILLS=500` kills more often than
//! usual.

use super::state::State;
use super::{REDIS_PREFIX, sent_events::SentEvents, sent_events::line};
use crate::support::TempDir;
use crate::support::redis_server::RedisServer;
use crate::support::wait::{let_time_pass, wait_until_some};
use bytes::Bytes;
use seqcast::event::order::name::{Object, WorkerName};
use seqcast::event::order::store::Store;
use seqcast::event::order::worker::Settings;
use seqcast::rng::Rng;
use seqcast::storage::order::error::OrderError;
use seqcast::storage::order::front_end::{FrontEnd, Push};
use seqcast::storage::order::redis::RedisStore;
use seqcast::storage::order::sqlite::SqliteStore;
use seqcast::storage::order::worker_run::WorkerRun;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Environment variables of the process that is killed: the store, the worker's name, and the file for its sent
/// events.
const STORE: &str = "ORDER_STORE";
const WORKER: &str = "ORDER_WORKER";
const LOG: &str = "ORDER_LOG";
const KILLS: usize = 60;
const WORKERS: usize = 3;
const OBJECTS: [&str; 4] = ["work:1", "work:2", "post:1", "x y"];
const LEASE_MS: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(10);

/// Location of the state.
enum StoreLocation {
    Redis(String),
    Sqlite(PathBuf),
}

impl StoreLocation {
    fn parse(text: &str) -> StoreLocation {
        if text.starts_with("redis://") {
            StoreLocation::Redis(text.to_owned())
        } else {
            StoreLocation::Sqlite(text.into())
        }
    }

    fn text(&self) -> String {
        match self {
            StoreLocation::Redis(url) => url.clone(),
            StoreLocation::Sqlite(path) => path.display().to_string(),
        }
    }

    fn state(&self) -> State {
        match self {
            StoreLocation::Redis(url) => {
                let client = redis::Client::open(url.as_str()).expect("an address");
                State::of_redis(&mut client.get_connection().expect("it answers"), &OBJECTS)
            }
            StoreLocation::Sqlite(path) => State::of_sqlite(path),
        }
    }
}

/// Sends events until the process is killed.
fn work_until_killed<S: Store<Error = OrderError>>(mut store: S) {
    let of = |name| std::env::var(name).expect("given by the test");
    let mut log = OpenOptions::new().append(true).create(true).open(of(LOG)).expect("a file");
    let is_ending = AtomicBool::new(false);
    let settings = Settings { name: WorkerName::new(&of(WORKER)).expect("a name"), lease_ms: LEASE_MS };
    let send = |event: &_| {
        let is_sent = log.write_all(line(event).as_bytes()).is_ok();
        let_time_pass(Duration::from_micros(300), "kills must hit workers that have sent and not yet noted it");
        is_sent
    };
    let run = WorkerRun { settings, mark: None, patience: PATIENCE, send, notify: |_| (), is_ending: &is_ending };
    run.run(&mut store).expect("the store is there");
}

fn start(test: &str, place: &StoreLocation, worker: usize, log: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args([&format!("events::order::kill::{test}"), "--exact", "--nocapture"])
        .env(STORE, place.text())
        .env(WORKER, format!("worker {worker}"))
        .env(LOG, log)
        .stdout(Stdio::null())
        .spawn()
        .expect("this program starts")
}

fn kill(mut child: Child) {
    child.kill().expect("a process of our own");
    child.wait().expect("a process of our own");
}

/// Pushes until `is_ending` is set; returns the number of events of each object.
fn push<S: Store<Error = OrderError>>(store: S, is_ending: &AtomicBool) -> Vec<usize> {
    let (mut front_end, mut rng) = (FrontEnd::new(store, None, PATIENCE), Rng::new(1));
    let mut counts = vec![0; OBJECTS.len()];
    while !is_ending.load(Ordering::Relaxed) {
        let index = rng.below(OBJECTS.len() as u64) as usize;
        let mut event = |kind: &str| {
            counts[index] += 1;
            Bytes::from(format!("{kind} {}", counts[index]))
        };
        let main = event("main");
        let subs = (0..rng.below(3)).map(|_| event("sub")).collect();
        let object = Object::new(OBJECTS[index]).expect("a name");
        front_end.push(&Push { object, data: main.clone(), main, subs }).expect("the store is there");
        let_time_pass(Duration::from_micros(rng.below(2000)), "pushes come at random");
    }
    counts
}

fn check<S: Store<Error = OrderError>>(test: &str, place: &StoreLocation, dir: &Path, open: impl Fn() -> S + Sync) {
    let kills = std::env::var("ORDER_KILLS").map_or(KILLS, |text| text.parse().expect("ORDER_KILLS is a number"));
    let (log, is_ending, mut rng) = (dir.join("sent"), AtomicBool::new(false), Rng::new(2));
    let counts = thread::scope(|scope| {
        let front_end = scope.spawn(|| push(open(), &is_ending));
        let mut children: Vec<_> = (0..WORKERS).map(|worker| Some(start(test, place, worker, &log))).collect();
        for _ in 0..kills {
            let_time_pass(Duration::from_millis(rng.below(120)), "kills come at random");
            let worker = rng.below(WORKERS as u64) as usize;
            // It is started again at once, or with its next kill: then others take over its objects.
            match children[worker].take() {
                Some(child) => kill(child),
                None => children[worker] = Some(start(test, place, worker, &log)),
            }
            place.state().check();
        }
        is_ending.store(true, Ordering::Relaxed);
        children.into_iter().flatten().for_each(kill);
        front_end.join().expect("it ends")
    });
    // One more worker takes over the remaining events, after a lease.
    let last = start(test, place, WORKERS, &log);
    let what = || format!("everything is sent: {:?}", place.state());
    wait_until_some(what, || place.state().is_drained().then_some(()));
    kill(last);
    let sent = SentEvents::read(&log);
    for (object, count) in OBJECTS.iter().zip(counts) {
        sent.check(object, count);
    }
    println!("{kills} kills, {} sent, {} of them again", sent.lines, sent.again);
}

#[test]
fn workers_on_redis_survive_kills() {
    let test = "workers_on_redis_survive_kills";
    if let Ok(url) = std::env::var(STORE) {
        return work_until_killed(RedisStore::new(&url, REDIS_PREFIX).expect("an address"));
    }
    let dir = TempDir::new();
    let server = RedisServer::durable(dir.path());
    let open = || RedisStore::new(&server.url(), REDIS_PREFIX).expect("an address");
    check(test, &StoreLocation::parse(&server.url()), dir.path(), open);
}

#[test]
fn workers_on_sqlite_survive_kills() {
    let test = "workers_on_sqlite_survive_kills";
    if let Ok(path) = std::env::var(STORE) {
        return work_until_killed(SqliteStore::open(Path::new(&path)).expect("a file"));
    }
    let dir = TempDir::new();
    let path = dir.path().join("order.db");
    let open = || SqliteStore::open(&path).expect("a file");
    drop(open());
    check(test, &StoreLocation::parse(&path.display().to_string()), dir.path(), open);
}
