//! Event streams of three peers on three hosts, with producers and reliable consumers at each. Peers and consumers
//! are killed, the network loses datagrams, disks are full, and the PostgreSQL of one peer is killed. Every
//! acknowledged event comes to every consumer that wants it, once and in order.
//!
//! In the test suite this takes some seconds; `tools/stream-check` lets it run for any given time.

mod client;
mod database;
mod oracle;

use super::lan::{Host, Lan, Peer, in_namespaces_for, run};
use super::{ONE_IN_TEN, group};
use crate::support::wait::let_time_pass;
use client::{Consumer, ReadMode};
use oracle::{Account, Attempt, Key, Ledger, Reader, Step, judge, missing};
use seqcast::clock::{Clock, random_u64};
use seqcast::rng::Rng;
use seqcast::time::Instant;
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::panic;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Duration of the faults in the test suite, in seconds.
const SECS: u64 = 20;
/// Maximum time from the last fault until all consumers have everything.
const SETTLE_TIME: Duration = Duration::from_secs(120);
/// Time after that in which unwanted events may still show up.
const CALM_TIME: Duration = Duration::from_secs(3);
/// Interval between two lines of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which a disk is full before its peer is killed.
const FULL_TIME: Duration = Duration::from_millis(300);
/// Size of a peer's disk.
const DISK: &str = "192m";
const PRODUCERS_PER_PEER: usize = 2;
/// Maximum number of complaints that are printed.
const REPORTS_MAX: usize = 20;

/// Consumers of each peer.
const CONSUMERS: [(&str, ReadMode, Option<&[&str]>); 4] = [
    ("poll_all", ReadMode::Poll, None),
    ("poll_some", ReadMode::Poll, Some(&["A", "C"])),
    ("push_all", ReadMode::Push, None),
    ("push_some", ReadMode::Push, Some(&["B"])),
];

/// Producers, consumers and faults are active.
const ADDING: u8 = 0;
/// Consumers read what is left, and nothing is killed.
const SETTLING: u8 = 1;
const OVER: u8 = 2;

/// State that all threads share.
pub struct World {
    phase: AtomicU8,
    ledger: Mutex<Ledger>,
    readers: Vec<Mutex<Reader>>,
    consumers: Vec<Consumer>,
    /// Errors found so far.
    wrongs: Mutex<Vec<String>>,
    /// Number of error answers, by name and text, and of ended connections, by reason.
    refusals: Mutex<BTreeMap<String, u64>>,
    repeated: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn adds(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == ADDING
    }

    fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    fn new(consumers: Vec<Consumer>) -> World {
        World {
            phase: AtomicU8::new(ADDING),
            ledger: Mutex::default(),
            readers: consumers.iter().map(|_| Mutex::default()).collect(),
            consumers,
            wrongs: Mutex::default(),
            refusals: Mutex::default(),
            repeated: AtomicUsize::new(0),
        }
    }

    fn attempt(&self, key: Key, attempt: Attempt) {
        lock(&self.ledger).insert(key, attempt);
    }

    fn acknowledge(&self, key: Key, receipt: (usize, u64)) {
        lock(&self.ledger).get_mut(&key).expect("it was tried").acknowledged = Some(receipt);
    }

    /// Counts an error answer that a caller got.
    fn refused(&self, answer: &Value) {
        self.count(format!("{}: {}", answer["e"], answer["edesc"]));
    }

    fn note_end(&self, ended: io::Result<()>) {
        if let Err(error) = ended {
            self.count(format!("connection ended: {:?}", error.kind()));
            if error.kind() == ErrorKind::Other {
                lock(&self.wrongs).push(error.to_string());
            }
        }
    }

    fn count(&self, what: String) {
        // Numbers differ from one to the next.
        let what: String = what.chars().filter(|char| !char.is_ascii_digit()).collect();
        *lock(&self.refusals).entry(what).or_default() += 1;
    }

    fn step(&self, place: usize, step: Step) {
        let mut reader = lock(&self.readers[place]);
        let before = reader.count();
        match reader.on(step) {
            Err(wrong) => self.complain(place, wrong.to_string()),
            Ok(()) if matches!(step, Step::Event { .. }) && reader.count() == before => {
                self.repeated.fetch_add(1, Ordering::Relaxed);
            }
            Ok(()) => {}
        }
    }

    fn position(&self, place: usize) -> u64 {
        lock(&self.readers[place]).position()
    }

    fn complain(&self, place: usize, what: String) {
        let Consumer { peer, component, .. } = self.consumers[place];
        lock(&self.wrongs).push(format!("{component} at peer {}: {what}", peer + 1));
    }

    fn with_accounts<T>(&self, look: impl FnOnce(&Ledger, &[Account<'_>]) -> T) -> T {
        let readers: Vec<_> = self.readers.iter().map(lock).collect();
        let accounts: Vec<Account<'_>> = self
            .consumers
            .iter()
            .zip(&readers)
            .map(|(consumer, reader)| Account { peer: consumer.peer, want: consumer.want, reader })
            .collect();
        look(&lock(&self.ledger), &accounts)
    }

    fn report_progress(&self, begun: Instant) {
        let ledger = lock(&self.ledger);
        let acknowledged = ledger.values().filter(|attempt| attempt.acknowledged.is_some()).count();
        let read: usize = self.readers.iter().map(|reader| lock(reader).count()).sum();
        println!(
            "{:6.0} s: {} events tried, {acknowledged} acknowledged, {read} read, {} of them again, {} wrong",
            now().since(begun).as_secs_f64(),
            ledger.len(),
            self.repeated.load(Ordering::Relaxed),
            lock(&self.wrongs).len(),
        );
    }
}

fn now() -> Instant {
    Clock::now().instant
}

/// A fault; each lasts until the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The peer is killed, and started again.
    Kill,
    /// The host gets nothing from the others.
    Cut,
    /// There is no room on its disk.
    Full,
    /// It is killed while there is none.
    KillFull,
    /// No fault.
    Calm,
}

const FAULTS: [Fault; 6] = [Fault::Kill, Fault::Kill, Fault::Cut, Fault::Full, Fault::KillFull, Fault::Calm];

/// A peer, its host and its disk.
struct PeerSite {
    host: Host,
    number: usize,
    peer: Option<Peer>,
}

impl PeerSite {
    fn new(host: Host, number: usize) -> PeerSite {
        let disk = PeerSite::disk(number);
        fs::create_dir(&disk).expect("/run can be written");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={DISK}"), "tmpfs", &disk]));
        let mut place = PeerSite { host, number, peer: None };
        place.start();
        place.lose();
        place
    }

    fn disk(number: usize) -> String {
        format!("/run/disk-{number}")
    }

    fn start(&mut self) {
        let (server, data) =
            (format!("server-id={}", self.number), format!("data-dir={}", PeerSite::disk(self.number)));
        // The streams of the last peer are in a database.
        let url = env::var(database::URL).ok().filter(|_| self.number == 3);
        let store = format!("stream-store={}", url.as_deref().unwrap_or("auto"));
        let settings = [
            "ftn18=on",
            &server,
            &data,
            &store,
            // A short repair time: many datagrams are lost to the bus, and their events come from the journals.
            "reliability=20 ms",
            // A full stream refuses new events while no consumer reads it.
            "streams=main size 1 mb policy block",
            // The retention time is longer than any absence.
            "event-retention=main/? time 3 min",
        ];
        self.peer = Some(self.host.start_peer(&format!("S{}.test", self.number), group(), &settings));
    }

    /// Drops a tenth of the arriving datagrams.
    fn lose(&self) {
        self.host.fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop"));
    }

    fn filler(&self) -> String {
        format!("{}/filler", PeerSite::disk(self.number))
    }

    fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.peer.as_mut().expect("it runs").kill(),
            Fault::Cut => self.host.fault("meta l4proto { tcp, udp } counter name hits drop"),
            Fault::KillFull => {
                self.begin(Fault::Full);
                let_time_pass(FULL_TIME, "the peer works with a full disk before it is killed");
                self.begin(Fault::Kill);
            }
            Fault::Full => {
                let mut filler = fs::File::create(self.filler()).expect("there is room for a name");
                let block = vec![1; 64 << 10];
                let full = std::iter::repeat_with(|| filler.write_all(&block)).find_map(Result::err);
                assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::StorageFull), "the disk of {}", self.number);
            }
            Fault::Calm => {}
        }
    }

    fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.start(),
            Fault::Cut => self.lose(),
            Fault::Full => fs::remove_file(self.filler()).expect("it is there"),
            Fault::KillFull => {
                self.end(Fault::Full);
                self.end(Fault::Kill);
            }
            Fault::Calm => {}
        }
    }
}

/// Returns a number from the environment, which `tools/stream-check` sets.
fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn secs() -> Duration {
    Duration::from_secs(setting("STREAM_CHECK_SECS").unwrap_or(SECS))
}

#[test]
fn acknowledged_events_reach_all_once_in_order() {
    let bound = secs() + 2 * SETTLE_TIME;
    in_namespaces_for("netns::streams::acknowledged_events_reach_all_once_in_order", bound, database::start, || {
        let seed = setting("STREAM_CHECK_SEED").unwrap_or_else(random_u64);
        println!("seed {seed}, {} s", secs().as_secs());
        let mut rng = Rng::new(seed);
        let lan = Lan::new(3);
        let mut places: Vec<PeerSite> =
            (1..).zip(&lan.hosts).map(|(number, host)| PeerSite::new(*host, number)).collect();
        let consumers: Vec<Consumer> = (0..places.len())
            .flat_map(|peer| CONSUMERS.map(|(component, mode, want)| Consumer { peer, component, mode, want }))
            .collect();
        for consumer in &consumers {
            client::register(lan.hosts[consumer.peer], *consumer);
        }
        let world = Arc::new(World::new(consumers));
        let begun = now();
        thread::scope(|scope| {
            let mut producers = Vec::new();
            for number in 0..places.len() * PRODUCERS_PER_PEER {
                let (world, peer, rng) = (&world, number % lan.hosts.len(), rng.fork());
                let host = lan.hosts[peer];
                producers.push(scope.spawn(move || client::produce(world, number, host, peer, rng)));
            }
            for (place, consumer) in world.consumers.iter().enumerate() {
                let (world, host, rng) = (&world, lan.hosts[consumer.peer], rng.fork());
                scope.spawn(move || client::consume(world, place, host, *consumer, rng));
            }
            let disturbed: Vec<_> = places
                .iter_mut()
                .map(|place| {
                    let (world, mut rng) = (&world, rng.fork());
                    scope.spawn(move || disturb(place, begun, &mut rng, world))
                })
                .collect();
            let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
            for disturbed in disturbed {
                let disturbed = disturbed.join().unwrap_or_else(|panic| {
                    // Nothing else needs the rest.
                    world.phase.store(OVER, Ordering::Relaxed);
                    panic::resume_unwind(panic)
                });
                for fault in disturbed {
                    *faults.entry(fault).or_default() += 1;
                }
            }
            world.phase.store(SETTLING, Ordering::Relaxed);
            let hits: u64 = lan.hosts.iter().map(Host::heal).sum();
            assert!(0 < hits, "the bus has lost nothing");
            for producer in producers {
                producer.join().expect("no producer panics");
            }
            println!("{faults:?}; settling");
            let stopped = now();
            while 0 < world.with_accounts(missing) && now().since(stopped) < SETTLE_TIME {
                let_time_pass(Duration::from_millis(500), "a look at all accounts costs much");
            }
            world.report_progress(begun);
            let_time_pass(CALM_TIME, "an event that comes twice or too late would come now");
            world.phase.store(OVER, Ordering::Relaxed);
        });
        conclude(&world, begun, seed);
    });
}

/// Lets faults happen to a peer for the configured time. Returns them.
fn disturb(place: &mut PeerSite, begun: Instant, rng: &mut Rng, world: &World) -> Vec<Fault> {
    let (mut faults, mut reported) = (Vec::new(), begun);
    while now().since(begun) < secs() {
        let fault = FAULTS[rng.below(FAULTS.len() as u64) as usize];
        faults.push(fault);
        place.begin(fault);
        let_time_pass(Duration::from_millis(rng.between(100, 2500)), "the fault lasts");
        place.end(fault);
        let_time_pass(Duration::from_millis(rng.between(100, 4000)), "peers recover between two faults");
        if place.number == 1 && REPORT_INTERVAL <= now().since(reported) {
            reported = now();
            world.report_progress(begun);
        }
    }
    faults
}

/// Reports the errors found; there must be none.
fn conclude(world: &World, begun: Instant, seed: u64) {
    world.report_progress(begun);
    for (what, count) in lock(&world.refusals).iter() {
        println!("{count:6} times {what}");
    }
    let mut wrongs = std::mem::take(&mut *lock(&world.wrongs));
    let judged = world.with_accounts(judge);
    wrongs.extend(judged.iter().map(|(place, wrong)| {
        let Consumer { peer, component, .. } = world.consumers[*place];
        format!("{component} at peer {}: {wrong}", peer + 1)
    }));
    for wrong in wrongs.iter().take(REPORTS_MAX) {
        println!("{wrong}");
    }
    let acknowledged = lock(&world.ledger).values().filter(|attempt| attempt.acknowledged.is_some()).count();
    assert!(100 < acknowledged, "only {acknowledged} events were acknowledged, seed {seed}");
    assert!(wrongs.is_empty(), "{} things are wrong, seed {seed}", wrongs.len());
}
