//! Announcements of one peer and the table of another, over a network that loses, repeats and reorders, compared with a
//! map.

use super::*;
use crate::proto::local_interest::LocalInterest;
use crate::rng::Rng;
use crate::subject::Pattern;
use crate::subject::glob::Glob;

const OWNER: u64 = 7;

fn owner() -> Epoch {
    Epoch::new(OWNER).unwrap()
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Returns an address with this number.
fn address(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

/// A packet in flight. An announcement has a number and a version.
#[derive(Clone)]
enum Packet {
    Record(Interest),
    Announcement(u64, u64),
    Request(InterestRequest),
}

struct World {
    rng: Rng,
    local_interest: LocalInterest,
    remote_interest: RemoteInterest,
    /// True subscriptions at each version, from 0.
    truth: Vec<BTreeMap<SubscriptionFilter, u32>>,
    /// Number of announcements sent, and the number of the last one that arrived.
    sent: u64,
    announced: u64,
    millis: u64,
    packets: Vec<Packet>,
    room: usize,
}

impl World {
    fn new(seed: u64, mutants: Mutants) -> World {
        let mut rng = Rng::new(seed);
        let ended_max = rng.below(6) as usize;
        World {
            local_interest: LocalInterest::new(seed, ended_max, mutants),
            remote_interest: RemoteInterest::new(seed, 1000, Duration::from_millis(5), mutants),
            truth: vec![BTreeMap::new()],
            sent: 0,
            announced: 0,
            millis: 0,
            packets: Vec::new(),
            room: [1, 30, 100][rng.below(3) as usize],
            rng,
        }
    }

    fn change(&mut self) {
        let mut now = self.truth.last().unwrap().clone();
        let names = ["a", "a.b", "a.*", "b.>"];
        let pattern: Pattern = names[self.rng.below(4) as usize].parse().unwrap();
        let glob = (self.rng.below(4) == 0).then(|| Glob::new(b"a*").unwrap());
        let queue = (self.rng.below(3) == 0).then(|| "q".parse().unwrap());
        let wanted = SubscriptionFilter { pattern, glob, queue };
        let is_more = !now.contains_key(&wanted) || self.rng.below(3) == 0;
        self.local_interest.change(&wanted, is_more);
        let count = now.entry(wanted.clone()).or_default();
        *count = if is_more { *count + 1 } else { *count - 1 };
        if *count == 0 {
            now.remove(&wanted);
        }
        self.truth.push(now);
    }

    fn deliver(&mut self, packet: Packet) {
        match packet {
            Packet::Record(record) => {
                self.remote_interest.on_record(at(self.millis), owner(), address(1), record);
            }
            // The core discards an announcement that is older than the last one.
            Packet::Announcement(number, _) if number <= self.announced => {}
            Packet::Announcement(number, version) => {
                self.announced = number;
                self.remote_interest.on_announcement(at(self.millis), owner(), version);
            }
            Packet::Request(request) => {
                for record in self.local_interest.answer(&request, self.room, 3) {
                    self.packets.push(Packet::Record(record));
                }
            }
        }
    }

    /// Checks that the known subscriptions are the true ones of their version.
    fn check(&mut self, seed: u64) -> Result<(), String> {
        self.remote_interest.assert_invariants();
        if !self.remote_interest.is_known(owner()) {
            return Ok(());
        }
        let entries: BTreeMap<SubscriptionFilter, u32> =
            self.remote_interest.entries().map(|entry| (entry.wanted.clone(), entry.count)).collect();
        let version = self.remote_interest.report_complete(owner());
        match self.truth.get(version as usize) {
            Some(truth) if *truth == entries => Ok(()),
            truth => Err(format!("seed {seed} version {version}: {entries:?}, in truth {truth:?}")),
        }
    }

    fn step(&mut self, lossy: bool) {
        self.millis += self.rng.below(8);
        for _ in 0..self.rng.below(3) {
            if let Some(record) = self.local_interest.poll_changes(self.room) {
                self.packets.push(Packet::Record(record));
            }
        }
        if self.rng.chance(0.2) {
            self.sent += 1;
            self.packets.push(Packet::Announcement(self.sent, self.local_interest.high()));
        }
        while let Some(request) = self.remote_interest.poll_request(at(self.millis), |_| true) {
            self.packets.push(Packet::Request(request));
        }
        for _ in 0..self.rng.below(6) {
            if self.packets.is_empty() {
                return;
            }
            let index = if lossy { self.rng.below(self.packets.len() as u64) as usize } else { 0 };
            let packet = match lossy && self.rng.chance(0.15) {
                true => self.packets[index].clone(),
                false => self.packets.remove(index),
            };
            if !lossy || !self.rng.chance(0.2) {
                self.deliver(packet);
            }
        }
    }
}

fn run(seed: u64, mutants: Mutants) -> Result<(), String> {
    let mut world = World::new(seed, mutants);
    for _ in 0..300 {
        for _ in 0..world.rng.below(3) {
            world.change();
        }
        world.step(true);
        world.check(seed)?;
    }
    let since = world.millis;
    while world.local_interest.has_changes()
        || !world.remote_interest.is_known(owner())
        || world.remote_interest.report_complete(owner()) != world.local_interest.high()
    {
        world.step(false);
        world.check(seed)?;
        if since + 20_000 < world.millis {
            return Err(format!("seed {seed}: the subscriptions are unknown after 20 s"));
        }
    }
    world.check(seed)?;
    for text in ["a", "a.b", "a.x", "b.c.d", "c"] {
        let subject: Subject = text.parse().unwrap();
        let mut found = 0;
        world.remote_interest.visit(&subject, |entry| found += u64::from(entry.count));
        let wanting = world.truth.last().unwrap().iter().filter(|(wanted, _)| wanted.matches(&subject));
        let expected: u64 = wanting.map(|(_, count)| u64::from(*count)).sum();
        if found != expected {
            return Err(format!("seed {seed}: {found} on {text}, in truth {expected}"));
        }
    }
    world.remote_interest.end(owner());
    world.remote_interest.assert_invariants();
    assert_eq!(world.remote_interest.entries().count(), 0);
    Ok(())
}

/// Proves: W138, W140, W141
#[test]
fn known_tables_are_correct_and_become_complete() {
    (0..400).for_each(|seed| run(seed, Mutants::default()).unwrap());
}

/// Proves: W138, W140, W141
#[test]
fn interest_mutants_are_detected() {
    for mutant in [Mutant::InterestAcrossGap, Mutant::StaleInterestApplied, Mutant::EndedInterestDropped] {
        let noticed = (0..400).filter(|seed| run(*seed, Mutants::only(mutant)).is_err()).count();
        assert!(0 < noticed, "{mutant:?}");
    }
}

/// Proves: W160, W142
#[test]
fn peer_beyond_the_limit_counts_as_unknown() {
    let mut remote_interest = RemoteInterest::new(1, 32, Duration::ZERO, Mutants::default());
    let others = [8, 9, 10, 11].map(|bits| Epoch::new(bits).unwrap());
    let [other, _, _, greedy] = others;
    for (number, (epoch, count)) in (1..).zip(others.into_iter().zip([8, 8, 8, 5])) {
        assert_eq!(remote_interest.on_record(at(0), epoch, address(number), record_of(count)), RecordOutcome::Applied);
    }
    let own = (owner(), address(5));
    assert_eq!(
        remote_interest.on_record(at(0), own.0, own.1, record_of(4)),
        RecordOutcome::Overflow,
        "the table is full"
    );
    assert!(remote_interest.is_known(other) && !remote_interest.is_known(owner()));
    assert_eq!(remote_interest.entries().count(), 29);
    assert_eq!(remote_interest.poll_request(at(1000), |_| true), None, "the next request waits");
    assert!(remote_interest.poll_request(at(31_000), |_| true).is_some());
    remote_interest.end(other);
    let fitting = Interest { high: 4, upto: 4, ..record_of(3) };
    assert_eq!(remote_interest.on_record(at(31_000), own.0, own.1, fitting), RecordOutcome::Applied);
    assert!(remote_interest.is_known(owner()));
    remote_interest.on_announcement(at(31_000), greedy, 9);
    let more = Interest { after: 5, upto: 9, high: 9, base: 0, entries: record_of(9).entries };
    assert_eq!(
        remote_interest.on_record(at(31_000), greedy, address(4), more),
        RecordOutcome::Overflow,
        "one peer has a quarter at most"
    );
    assert!(!remote_interest.is_known(greedy));
}

/// Proves: W160
#[test]
fn peers_at_one_address_share_quarter_of_limit() {
    let mut remote_interest = RemoteInterest::new(1, 400, Duration::ZERO, Mutants::default());
    let epochs: Vec<Epoch> = (100..130).map(|bits| Epoch::new(bits).unwrap()).collect();
    for epoch in &epochs {
        remote_interest.on_record(at(0), *epoch, address(66), record_of(20));
    }
    assert_eq!(remote_interest.entries().count(), 100, "of 600 that one address advertised");
    assert_eq!(epochs.iter().filter(|epoch| remote_interest.is_known(**epoch)).count(), 5);
    for (number, bits) in (1..4).zip(200..) {
        let neighbour = Epoch::new(bits).unwrap();
        assert_eq!(
            remote_interest.on_record(at(0), neighbour, address(number), record_of(100)),
            RecordOutcome::Applied
        );
    }
    remote_interest.assert_invariants();
}

/// Proves: W160
#[test]
fn entries_of_replaced_peer_yield_to_next_run() {
    type Departure = fn(&mut RemoteInterest, Epoch);
    let departures: [Departure; 2] =
        [|interest, epoch| interest.mark_absent(epoch), |interest, epoch| interest.set_reachable(epoch, false)];
    for depart in departures {
        let mut remote_interest = RemoteInterest::new(1, 400, Duration::ZERO, Mutants::default());
        let [former, next] = [100, 101].map(|bits| Epoch::new(bits).unwrap());
        remote_interest.on_record(at(0), former, address(66), record_of(80));
        depart(&mut remote_interest, former);
        assert_eq!(remote_interest.on_record(at(0), next, address(66), record_of(80)), RecordOutcome::Applied);
        assert!(remote_interest.is_known(next) && !remote_interest.is_known(former));
        remote_interest.assert_invariants();
    }
}

/// Proves: W160
#[test]
fn interest_is_requested_again_once_entries_are_free() {
    let mut remote_interest = RemoteInterest::new(1, 400, Duration::ZERO, Mutants::default());
    let [first, second] = [100, 101].map(|bits| Epoch::new(bits).unwrap());
    remote_interest.on_record(at(0), first, address(66), record_of(80));
    let outcome = remote_interest.on_record(at(0), second, address(66), record_of(80));
    assert_eq!(outcome, RecordOutcome::Overflow);
    assert_eq!(remote_interest.poll_request(at(3_000), |_| true), None);
    remote_interest.end(first);
    assert!(remote_interest.poll_request(at(3_000), |_| true).is_some_and(|request| request.epoch == second));
}

/// Returns a record of this number of entries, each with a pattern of its own.
fn record_of(count: u64) -> Interest {
    let entry = |n: u64| InterestEntry { wanted: format!("s.{n}").parse::<Pattern>().unwrap().into(), count: 1 };
    Interest { after: 0, upto: count, high: count, base: 0, entries: (0..count).map(entry).collect() }
}

/// Proves: W138
#[test]
fn unanswered_requests_become_rarer() {
    let mut remote_interest = RemoteInterest::new(1, 10, Duration::from_millis(5), Mutants::default());
    remote_interest.on_announcement(at(0), owner(), 1 << 60);
    let request_times: Vec<u64> =
        (0..10_000).filter(|millis| remote_interest.poll_request(at(*millis), |_| true).is_some()).collect();
    assert_eq!(request_times, [5, 25, 65, 145, 305, 625, 1265, 2545, 4545, 6545, 8545]);
    assert!(!remote_interest.is_known(owner()));
    remote_interest.on_announcement(at(10_000), owner(), 0);
    assert!(remote_interest.is_known(owner()), "the next announcement holds");
}

/// Proves: W142
#[test]
fn forged_versions_make_no_table_known() {
    let mut remote_interest = RemoteInterest::new(1, 100, Duration::ZERO, Mutants::default());
    let on_record = |interest: &mut RemoteInterest, record| interest.on_record(at(0), owner(), address(1), record);
    let step_max = 1 << 20;
    remote_interest.on_announcement(at(0), owner(), 4);
    on_record(&mut remote_interest, record_of(4));
    let forged = |upto| Interest { after: 4, upto, high: upto, base: 0, entries: Vec::new() };
    assert_eq!(on_record(&mut remote_interest, forged(5 + step_max)), RecordOutcome::Gap);
    assert!(remote_interest.is_known(owner()), "the record does not count");
    assert_eq!(on_record(&mut remote_interest, forged(4 + step_max)), RecordOutcome::Applied);
    remote_interest.on_announcement(at(0), owner(), 4);
    assert!(!remote_interest.is_known(owner()), "the table is complete beyond the announcement");
    // The announcement may be forged, too.
    for version in [VERSION_MAX - 1, VERSION_MAX] {
        remote_interest.on_announcement(at(0), owner(), version);
        let ahead = Interest { after: 0, upto: version, high: version, base: version, entries: Vec::new() };
        assert_eq!(on_record(&mut remote_interest, ahead), RecordOutcome::Gap);
        assert!(!remote_interest.is_known(owner()), "{version}");
    }
    let renewed =
        Interest { after: 0, upto: 5 + step_max, high: 5 + step_max, base: 5 + step_max, entries: Vec::new() };
    remote_interest.on_announcement(at(0), owner(), 5 + step_max);
    assert_eq!(on_record(&mut remote_interest, renewed), RecordOutcome::Applied);
    assert!(remote_interest.is_known(owner()), "the peer has raised its version beyond the forged one");
}
