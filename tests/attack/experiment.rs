//! Victims, an attacker and an innocent host on one LAN, and the table of what the attempts achieve.

use super::member_keys::SenderSecret;
use super::raw_network::{RawSender, Sniffer, UdpDatagram};
use super::shell;
use super::traffic::{Damage, Traffic};
use crate::netns::lan::{Host, Lan, Peer};
use crate::support::command::now;
use crate::support::wait::{let_time_pass, wait_until, wait_until_some};
use seqcast::rng::Rng;
use seqcast::time::Instant;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

pub const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 83, 67);
pub const PORT: u16 = 7500;
pub const PUBLISHER: Ipv4Addr = Ipv4Addr::new(10, 75, 0, 1);
pub const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 75, 0, 2);
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 75, 0, 3);
pub const INNOCENT: Ipv4Addr = Ipv4Addr::new(10, 75, 0, 4);
/// Name of the peer that gives its keys to the attacker.
pub const MEMBER: &str = "M.test";

/// The hosts with their programs.
pub struct Experiment {
    pub lan: Lan,
    pub publisher: Option<Peer>,
    pub victim: Option<Peer>,
    pub rng: Rng,
    /// Everything that arrived at the victim before the first attempt.
    pub recorded: Vec<UdpDatagram>,
    /// Attempts take this many times their usual time.
    pub factor: usize,
    traffic: Option<Traffic>,
    sender: RawSender,
    /// Datagrams to the attacker, to the innocent host, and to an address that a peer had before.
    sniffers: Vec<Sniffer>,
    rows: Vec<AttemptResult>,
}

/// One run of an honest peer, as its datagrams show it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedPeer {
    pub epoch: u64,
    pub inbox: SocketAddrV4,
    /// Highest numbers of its DATA and of its CONTROL datagrams.
    pub data: u64,
    pub control: u64,
}

/// The most that a victim may do with the datagrams of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It discards and counts each of them.
    Discard,
    /// It may answer: a member has sealed them for this handshake, long ago.
    Answer,
}

/// Result of an attempt.
struct AttemptResult {
    name: String,
    sent: AttemptVolume,
    accepted: u64,
    noticed: Vec<(String, u64)>,
    bytes_returned: u64,
    memory_kib: i64,
    processor_ms: u64,
    lost: u64,
}

/// Datagrams of an attempt.
struct AttemptVolume {
    datagrams: u64,
    bytes: u64,
    /// Datagrams a second, if as many as possible were sent.
    rate: Option<u64>,
}

/// State of the victim and of the network before an attempt.
struct Snapshot {
    counters: BTreeMap<String, u64>,
    kernel_drops: u64,
    bytes_returned: u64,
    memory_kib: i64,
    processor_ms: u64,
}

impl Experiment {
    /// Starts two members of a realm that publish to each other, and records what arrives at the victim.
    pub fn new() -> Experiment {
        let lan = Lan::new(4);
        make_realm();
        let [from, to, attacker, innocent] = [0, 1, 2, 3].map(|host: usize| lan.hosts[host]);
        let sniffer = Sniffer::new(&to, VICTIM, RECORDED_MAX);
        let (publisher, victim) = (start(&from, "A.test", &[]), start(&to, "B.test", &[]));
        let mut experiment = Experiment {
            publisher: Some(publisher),
            victim: Some(victim),
            rng: Rng::new(SEED),
            recorded: Vec::new(),
            factor: std::env::var("ATTACK_FACTOR").map_or(1, |factor| factor.parse().expect("a number")),
            traffic: None,
            sender: RawSender::new(&attacker, ATTACKER),
            sniffers: [(attacker, ATTACKER), (innocent, INNOCENT)]
                .map(|(host, address)| Sniffer::new(&host, address, 0))
                .into(),
            rows: Vec::new(),
            lan,
        };
        experiment.resume();
        wait_until("enough is recorded", || RECORDED_MIN < sniffer.recorded().len());
        experiment.recorded = sniffer.recorded();
        experiment
    }

    /// Waits until the peers know each other, and lets them publish to each other.
    pub fn resume(&mut self) {
        let peers = [self.publisher(), self.victim()];
        await_acquaintance(peers);
        let mut traffic = Traffic::start(peers);
        traffic.settle();
        self.traffic = Some(traffic);
    }

    /// Ends the messages of the honest peers. Everything so far must have been delivered.
    pub fn pause(&mut self) {
        let damage = self.traffic.take().expect("it was started").settle();
        assert_eq!(damage, Damage::default());
    }

    pub fn publisher(&self) -> &Peer {
        self.publisher.as_ref().expect("it runs")
    }

    pub fn victim(&self) -> &Peer {
        self.victim.as_ref().expect("it runs")
    }

    /// Starts a member of the realm on the host of the publisher or of the victim.
    pub fn start(&self, name: &str, settings: &[&str]) -> Peer {
        let host = self.lan.hosts[usize::from(name == "B.test")];
        start(&host, name, settings)
    }

    /// Records at least `count` such datagrams of the protocol that arrive at the victim, while something happens.
    pub fn record(
        &mut self,
        count: usize,
        is_such: impl Fn(&UdpDatagram) -> bool,
        happens: impl FnOnce(&mut Experiment),
    ) -> Vec<UdpDatagram> {
        let sniffer = Sniffer::new(&self.lan.hosts[1], VICTIM, RECORDED_MAX);
        happens(self);
        let recorded = || {
            sniffer
                .recorded()
                .into_iter()
                .filter(|datagram| is_of_protocol(datagram) && is_such(datagram))
                .collect::<Vec<_>>()
        };
        wait_until("enough is recorded", || count <= recorded().len());
        recorded()
    }

    /// Counts the bytes to an address that the publisher has no more.
    pub fn watch(&mut self, former: SocketAddrV4) {
        self.sniffers.push(Sniffer::at(&self.lan.hosts[0], former));
    }

    /// Returns the last known numbers of the peer at this address.
    pub fn observed(&self, address: Ipv4Addr) -> ObservedPeer {
        observe(&self.recorded, address).expect("both peers were recorded")
    }

    /// Sends datagrams at a rate that the victim can read, and judges what happened.
    pub fn attempt(&mut self, name: &str, datagrams: &[UdpDatagram], at_most: Reaction) {
        let before = self.snapshot();
        for batch in datagrams.chunks(BATCH) {
            batch.iter().for_each(|datagram| self.sender.send(&datagram.packet(), datagram.to));
            let_time_pass(BATCH_INTERVAL, "the attempt is not about full buffers");
        }
        let bytes = datagrams.iter().map(|datagram| datagram.payload.len() as u64).sum();
        let sent = AttemptVolume { datagrams: datagrams.len() as u64, bytes, rate: None };
        self.judge(name, sent, at_most, &before);
    }

    /// Sends datagrams again and again as fast as one thread can. Those that the victim must discard claim another
    /// epoch each time.
    pub fn flood(&mut self, name: &str, datagrams: &[UdpDatagram], at_most: Reaction) {
        let before = self.snapshot();
        let mut packets: Vec<_> = datagrams.iter().map(|datagram| (datagram.packet(), datagram.to)).collect();
        let began: Instant = now();
        let duration = FLOOD * u32::try_from(self.factor).expect("a small factor");
        let (mut tried, mut bytes) = (0, 0);
        while now().since(began) < duration {
            for (packet, to) in &mut packets {
                if at_most == Reaction::Discard {
                    packet[EPOCH_AT..EPOCH_AT + 8].copy_from_slice(&self.rng.next_u64().to_be_bytes());
                }
                self.sender.send(packet, *to);
                bytes += (packet.len() - PACKET_HEADER_BYTES) as u64;
            }
            tried += packets.len() as u64;
        }
        let rate = tried * 1000 / u64::try_from(now().since(began).as_millis()).expect("seconds").max(1);
        self.judge(name, AttemptVolume { datagrams: tried, bytes, rate: Some(rate) }, at_most, &before);
    }

    /// Judges what has happened since a snapshot: another peer has sent something by itself.
    pub fn observe_stranger(&mut self, name: &str, run: impl FnOnce(&mut Experiment)) {
        let before = self.snapshot();
        let recorded = self.record(STRANGER_MIN, |datagram| *datagram.from.ip() == ATTACKER, run);
        let bytes = recorded.iter().map(|datagram| datagram.payload.len() as u64).sum();
        let sent = AttemptVolume { datagrams: recorded.len() as u64, bytes, rate: None };
        self.judge(name, sent, Reaction::Discard, &before);
    }

    fn judge(&mut self, name: &str, sent: AttemptVolume, at_most: Reaction, before: &Snapshot) {
        let noticed = self.settled_counters(sent.datagrams, at_most, before);
        let damage = self.traffic.as_mut().expect("honest peers publish throughout").settle();
        let seen: u64 = noticed.iter().map(|(_, rise)| rise).sum();
        let after = self.snapshot();
        let is_up = |row: &serde_json::Value| row["publisher"] == "A.test" && row["state"] == "up";
        // A flood may silence it for a moment.
        wait_until("the publisher is up", || self.victim().rows("peers").iter().any(is_up));
        let states = self.victim().rows("peers");
        let is_honest = |row: &&serde_json::Value| ["A.test", "B.test"].map(Into::into).contains(&row["publisher"]);
        let has_left = |row: &&serde_json::Value| row["publisher"] == MEMBER && row["state"] == "left";
        let strangers = states.iter().filter(|row| !is_honest(row) && !has_left(row));
        assert_eq!(strangers.count(), 0, "{name}: {states:?}");
        for counter in ["keyed_authenticated", "keyed_refused", "forged_byes"] {
            assert_eq!(before.counters[counter], after.counters[counter], "{name}: {counter}");
        }
        let unnoticed = if at_most == Reaction::Discard { sent.datagrams.saturating_sub(seen) } else { 0 };
        self.rows.push(AttemptResult {
            name: name.to_owned(),
            accepted: damage.foreign + unnoticed,
            sent,
            noticed,
            bytes_returned: after.bytes_returned - before.bytes_returned,
            memory_kib: after.memory_kib - before.memory_kib,
            processor_ms: after.processor_ms - before.processor_ms,
            lost: damage.lost,
        });
    }

    /// Returns the counters of discarded datagrams that have risen, once they account for all that was tried.
    fn settled_counters(&self, tried: u64, at_most: Reaction, before: &Snapshot) -> Vec<(String, u64)> {
        let found = RefCell::new(Vec::new());
        let deadline = now() + if at_most == Reaction::Discard { NOTICE_TIME } else { ANSWER_TIME };
        wait_until_some(
            || format!("{tried} datagrams are discarded; so far {:?}", found.borrow()),
            || {
                let after = self.counters();
                let rise = |name: &String, value: u64| value - before.counters.get(name).copied().unwrap_or(0);
                let is_discard = |name: &str| name.contains("discard_") && name != "discard_own";
                let mut risen: Vec<(String, u64)> = after
                    .iter()
                    .filter(|(name, _)| is_discard(name))
                    .map(|(name, value)| (name.clone(), rise(name, *value)))
                    .collect();
                risen.push(("dropped by the kernel".to_owned(), self.kernel_drops() - before.kernel_drops));
                risen.retain(|(_, rise)| 0 < *rise);
                let sum: u64 = risen.iter().map(|(_, rise)| rise).sum();
                *found.borrow_mut() = risen;
                // Datagrams that are not noticed in time count as accepted.
                (tried <= sum || deadline < now()).then_some(())
            },
        );
        found.into_inner()
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        counters_of(self.victim())
    }

    fn kernel_drops(&self) -> u64 {
        self.lan.hosts[1].kernel_drops()
    }

    fn snapshot(&self) -> Snapshot {
        let pid = self.victim().process().pid();
        Snapshot {
            counters: self.counters(),
            kernel_drops: self.kernel_drops(),
            bytes_returned: self.sniffers.iter().map(Sniffer::unicast_bytes).sum(),
            memory_kib: memory_kib(pid),
            processor_ms: processor_ms(pid),
        }
    }

    /// Prints the table, and checks it.
    pub fn conclude(mut self) {
        self.pause();
        println!("{HEADINGS}");
        self.rows.iter().for_each(|row| println!("{}", row.line()));
        for row in &self.rows {
            let name = &row.name;
            assert!(0 < row.sent.datagrams, "{name}: nothing was tried");
            assert_eq!((row.accepted, row.lost), (0, 0), "{name}: accepted, and lost by honest peers");
            assert!(row.bytes_returned <= row.sent.bytes, "{name}: {} bytes came back", row.bytes_returned);
            assert!(row.memory_kib < MEMORY_KIB_MAX, "{name}: {} KiB more", row.memory_kib);
        }
    }
}

impl AttemptResult {
    /// Returns the row of the table.
    fn line(&self) -> String {
        let noticed: Vec<String> = self.noticed.iter().map(|(name, rise)| format!("{name} {rise}")).collect();
        let tried = match self.sent.rate {
            Some(rate) => format!("{} ({rate}/s)", self.sent.datagrams),
            None => self.sent.datagrams.to_string(),
        };
        format!(
            "| {} | {tried} | {} | {} | {:.2} | {} | {} | {} |",
            self.name,
            self.accepted,
            noticed.join(", "),
            self.bytes_returned as f64 / self.sent.bytes.max(1) as f64,
            self.memory_kib,
            self.processor_ms,
            self.lost,
        )
    }
}

/// Returns what the datagrams of a peer show of its last run.
pub fn observe(recorded: &[UdpDatagram], address: Ipv4Addr) -> Option<ObservedPeer> {
    let of_peer = |datagram: &&UdpDatagram| *datagram.from.ip() == address && *datagram.to.ip() == GROUP;
    let u64_at = |payload: &[u8], at: usize| Some(u64::from_be_bytes(payload.get(at..at + 8)?.try_into().ok()?));
    let last = recorded.iter().rev().find(|datagram| of_peer(datagram) && datagram.payload.get(3) == Some(&1))?;
    let epoch = u64_at(&last.payload, 8)?;
    let high = |kind: u8| {
        let numbers = recorded.iter().filter(of_peer).filter_map(|datagram| {
            let is_such = datagram.payload.get(4) == Some(&kind) && u64_at(&datagram.payload, 8) == Some(epoch);
            is_such.then(|| u64_at(&datagram.payload, 16))?
        });
        numbers.max()
    };
    Some(ObservedPeer { epoch, inbox: last.from, data: high(0)?, control: high(2)? })
}

/// Returns the counters of a peer.
pub fn counters_of(peer: &Peer) -> BTreeMap<String, u64> {
    let rows = peer.rows("counters");
    let name = |row: &serde_json::Value| row["counter"].as_str().expect("a counter has a name").to_owned();
    rows.iter().map(|row| (name(row), row["value"].as_u64().expect("counters are numbers"))).collect()
}

/// Lets a member run on a host until it has the keys of A and B, and returns all that it has then.
pub fn keys_of_member(host: &Host, peers: [&Peer; 2]) -> Vec<SenderSecret> {
    shell("seqcast realm invite --data-dir A.test | seqcast join - --name M.test --data-dir M.test");
    let member = start(host, MEMBER, &["key-log=/run/M.keys"]);
    let has = |peer: &Peer, name: &str, state: &str| {
        peer.rows("peers").iter().any(|row| row["publisher"] == name && row["state"] == state)
    };
    wait_until("the member knows both", || ["A.test", "B.test"].iter().all(|name| has(&member, name, "up")));
    member.process().signal("TERM");
    wait_until("the member has left", || peers.iter().all(|peer| has(peer, MEMBER, "left")));
    SenderSecret::read_log("/run/M.keys")
}

/// Returns whether a datagram begins with the magic: beacons and probes do not.
fn is_of_protocol(datagram: &UdpDatagram) -> bool {
    datagram.payload.starts_with(&[0x53, 0x43])
}

/// Waits until A and B know each other.
pub fn await_acquaintance([a, b]: [&Peer; 2]) {
    let knows = |peer: &Peer, other: &str| {
        peer.rows("peers").iter().any(|row| row["publisher"] == other && row["state"] == "up")
    };
    wait_until("they know each other", || knows(a, "B.test") && knows(b, "A.test"));
}

/// Makes a realm of two hosts.
pub fn make_realm() {
    shell(
        "seqcast init --realm plant1 --name A.test --data-dir A.test
         seqcast realm invite --data-dir A.test | seqcast join - --name B.test --data-dir B.test",
    );
}

/// Adds a host to the realm.
pub fn join_realm(name: &str) {
    shell(&format!("seqcast realm invite --data-dir A.test | seqcast join - --name {name} --data-dir {name}"));
}

/// Starts a member of the realm, whose files are in the directory of its name.
pub fn start(host: &Host, name: &str, settings: &[&str]) -> Peer {
    let data_dir = format!("data-dir=/run/{name}");
    // A flood may fill the buffers of the victim for seconds.
    let all = [&["security=realm", "reliability=60 s", "cipher=aes-256-gcm", &data_dir], settings].concat();
    host.start_peer(name, GROUP.into(), &all)
}

/// Returns the resident memory of a process.
pub fn memory_kib(pid: u32) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the victim runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Returns the processor time of a process.
pub fn processor_ms(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the victim runs");
    // The name, in parentheses, may hold spaces. User and system time are the 14th and the 15th field, in 10 ms.
    let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number") * 10).sum()
}

const HEADINGS: &str = "| attempt | datagrams | accepted | the victim counts | bytes returned per byte sent \
                        | memory, KiB | processor time, ms | messages lost by honest peers |\n\
                        |---|---|---|---|---|---|---|---|";
const SEED: u64 = 24;
const RECORDED_MIN: usize = 600;
/// Minimum number of datagrams of a stranger that publishes.
const STRANGER_MIN: usize = 20;
const RECORDED_MAX: usize = 20_000;
/// Datagrams of a batch, which fit a receive buffer of the system's default size, and the pause after each.
const BATCH: usize = 40;
const BATCH_INTERVAL: Duration = Duration::from_millis(4);
/// Duration of a flood.
const FLOOD: Duration = Duration::from_millis(300);
/// Time in which the victim must have counted what it discards.
const NOTICE_TIME: Duration = Duration::from_secs(10);
/// Time to answer, or to count what the victim discards instead.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// Maximum growth of the victim's memory in an attempt: the datagrams of unknown epochs that it may keep, and buffers.
pub const MEMORY_KIB_MAX: i64 = 24 * 1024;
/// Bytes of the headers of IPv4 and UDP.
const PACKET_HEADER_BYTES: usize = 28;
/// Offset of the epoch in a packet.
const EPOCH_AT: usize = PACKET_HEADER_BYTES + 8;
