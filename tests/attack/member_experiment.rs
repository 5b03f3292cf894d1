//! A publisher, a subscriber, and datagrams that a member forges between their messages, with the keys that every
//! member has.

use super::experiment::{self, ATTACKER, GROUP, MEMORY_KIB_MAX, ObservedPeer, PORT, PUBLISHER, VICTIM};
use super::forged::{CONTROL, DATA, ForgedHeader};
use super::member_keys::SenderSecret;
use super::raw_network::{RawSender, Sniffer, UdpDatagram};
use crate::netns::lan::{Lan, Peer, Process};
use crate::support::command::{now, parse_json};
use crate::support::wait::{let_time_pass, wait_until, wait_until_some};
use seqcast::bus::Bus;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Two honest peers, one of which publishes to the other, and an attacker with the keys of a member.
pub struct MemberExperiment {
    lan: Lan,
    publisher: Peer,
    subscriber: Peer,
    secrets: Vec<SenderSecret>,
    sender: RawSender,
    /// Everything that arrives at the host of the subscriber.
    sniffer: Sniffer,
    /// Payloads of the attacker's datagrams.
    sent: HashSet<Vec<u8>>,
    subscription: Process,
    bus: Bus,
    /// Number of messages published so far; their payloads are 1, 2, 3 …
    published: u64,
    /// Number of those that the publisher has suppressed.
    suppressed: u64,
    /// Number of lines of the subscription that were judged before.
    lines_read: usize,
}

/// Circumstances of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// Everything has arrived, and the attacker acts in the name of the publisher.
    PublisherIdle,
    /// The same, in the name of the subscriber.
    SubscriberIdle,
    /// A datagram of the publisher is missing, and is requested.
    DatagramMissing,
    /// The publisher has crashed and started again. The attacker acts in the name of the run before.
    PublisherRestarted,
}

/// The peer in whose name the attacker acts, as its datagrams show it.
#[derive(Clone, Copy, Debug)]
pub struct ForgedSender<'a> {
    /// Its epoch, its inbox, and the highest numbers of its datagrams.
    pub peer: ObservedPeer,
    /// Number of messages that it has published.
    pub count: u64,
    /// Its uptime in its last control datagram.
    uptime_ms: u32,
    /// Secret of its datagrams to the group.
    secret: &'a SenderSecret,
}

/// Effect of the forged datagrams on honest messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ForgeryEffect {
    /// Messages of the attacker that were delivered.
    forged: u64,
    /// Messages of the honest publisher that were not delivered.
    missing: u64,
    /// Messages that were reported as lost.
    lost: u64,
    /// Messages in datagrams that were reported as unverified, at most.
    unverified: u64,
    /// Messages that the publisher has suppressed.
    suppressed: u64,
}

impl ForgeryEffect {
    /// Returns whether what is missing is what was reported as lost or unverified, or was suppressed.
    fn is_accounted_for(&self) -> bool {
        let missing = self.missing - self.suppressed.min(self.missing);
        (self.lost..=self.lost + self.unverified).contains(&missing)
    }
}

impl ForgedSender<'_> {
    /// Returns a DATA datagram `ahead` of the last one. Its count is right if each datagram in between has one message.
    pub fn data(&self, ahead: u64, records: &[u8]) -> UdpDatagram {
        self.datagram(DATA, self.peer.data + ahead, self.count + ahead - 1, records)
    }

    /// Returns a CONTROL datagram whose number is `ahead` of the last one.
    pub fn control(&self, ahead: u64, count: u64, records: &[u8]) -> UdpDatagram {
        self.datagram(CONTROL, self.peer.control + ahead, count, records)
    }

    /// Returns a datagram to the group in the name of the peer, from its address.
    pub fn datagram(&self, kind: u8, number: u64, count: u64, records: &[u8]) -> UdpDatagram {
        let (epoch, uptime_ms) = (self.peer.epoch, self.uptime_ms);
        let header =
            ForgedHeader { mode: 0, kind, flags: 0, group: PORT, epoch, number, count, uptime_ms, receiver: 0 };
        let payload = self.secret.seal(header, records);
        UdpDatagram { from: self.peer.inbox, to: SocketAddrV4::new(GROUP, PORT), payload }
    }
}

impl MemberExperiment {
    /// Starts the peers, and a member that gives its keys to the attacker and leaves.
    pub fn new() -> MemberExperiment {
        let lan = Lan::new(3);
        experiment::make_realm();
        let sniffer = Sniffer::new(&lan.hosts[1], VICTIM, RECORDED_MAX);
        let publisher = experiment::start(&lan.hosts[0], "A.test", &SETTINGS);
        let subscriber = experiment::start(&lan.hosts[1], "B.test", &SETTINGS);
        experiment::await_acquaintance([&publisher, &subscriber]);
        let secrets = experiment::keys_of_member(&lan.hosts[2], [&publisher, &subscriber]);
        let (subscription, bus) = (subscriber.subscribe("t.>"), publisher.attach());
        let sender = RawSender::new(&lan.hosts[2], ATTACKER);
        println!("{HEADINGS}");
        MemberExperiment {
            lan,
            publisher,
            subscriber,
            secrets,
            sender,
            sniffer,
            sent: HashSet::new(),
            subscription,
            bus,
            published: 0,
            suppressed: 0,
            lines_read: 0,
        }
    }

    /// Returns the epoch of the publisher.
    pub fn publisher_epoch(&mut self) -> u64 {
        self.await_last();
        self.observe(PUBLISHER).0.epoch
    }

    /// Sends what `forge` makes, publishes until messages arrive as before, and judges what has happened to them: at
    /// most `missing_max` are not delivered, all of these are reported, and none else is reported as lost. Returns the
    /// counters that have risen.
    pub fn attempt(
        &mut self,
        name: &str,
        missing_max: u64,
        situation: Situation,
        forge: impl FnOnce(&ForgedSender) -> Vec<UdpDatagram>,
    ) -> Vec<String> {
        self.await_last();
        let is_of_subscriber = situation == Situation::SubscriberIdle;
        let address = if is_of_subscriber { VICTIM } else { PUBLISHER };
        let ((peer, uptime_ms), first) = (self.observe(address), self.published + 1);
        let secret = self.secrets.iter().rfind(|secret| secret.epoch == peer.epoch && secret.receiver.is_none());
        let secret = secret.expect("the peer has given it to the member").clone();
        let count = if is_of_subscriber { 0 } else { self.published - self.suppressed };
        match situation {
            Situation::DatagramMissing => self.lose(peer.data + 1),
            Situation::PublisherRestarted => self.restart_publisher(),
            Situation::PublisherIdle | Situation::SubscriberIdle => {}
        }
        let (before, suppressed_before) = (self.counters(is_of_subscriber), self.suppressed());
        let (memory_kib, processor_ms) = self.usage(is_of_subscriber);
        let datagrams = forge(&ForgedSender { peer, count, uptime_ms, secret: &secret });
        self.sent.extend(datagrams.iter().map(|datagram| datagram.payload.clone()));
        datagrams.iter().for_each(|datagram| self.sender.send(&datagram.packet(), datagram.to));
        if situation == Situation::DatagramMissing {
            let_time_pass(INTERVAL, "the forged datagrams come before the missing one");
            self.lan.hosts[1].heal();
        }
        // A forged datagram ahead of the stream has its effect until the stream has reached it.
        self.publish(missing_max);
        let disturbed = self.publish_until_delivered();
        let suppressed = self.suppressed().saturating_sub(suppressed_before);
        self.suppressed += suppressed;
        let effect = self.settled_effect(first, suppressed);
        self.lines_read = self.subscription.lines().len();
        let rise = |(name, value): (String, u64)| {
            let rise = value.saturating_sub(*before.get(&name)?);
            (0 < rise).then(|| format!("{name} {rise}"))
        };
        let counts: Vec<String> = self.counters(is_of_subscriber).into_iter().filter_map(rise).collect();
        let usage = self.usage(is_of_subscriber);
        let ForgeryEffect { forged, missing, lost, unverified, suppressed } = effect;
        println!(
            "| {name} | {} | {forged} | {missing} | {lost} | {unverified} | {suppressed} | {} | {} | {} | {} |",
            datagrams.len(),
            counts.join(", "),
            disturbed.as_millis(),
            usage.0 - memory_kib,
            usage.1.saturating_sub(processor_ms),
        );
        assert!(usage.0 - memory_kib < MEMORY_KIB_MAX, "{name}: {} KiB more", usage.0 - memory_kib);
        assert!(forged <= datagrams.len() as u64 && missing <= missing_max, "{name}: {effect:?}");
        assert!(effect.is_accounted_for(), "{name}: not what was reported: {effect:?}");
        let is_reported = counts.iter().any(|count| count.starts_with("interest_forgeries"));
        assert!(is_reported || suppressed == 0, "{name}: suppression was not reported: {effect:?}");
        counts
    }

    /// Publishes messages, each in a datagram of its own.
    fn publish(&mut self, count: u64) {
        let subject = "t.a".parse().expect("it is a subject");
        for _ in 0..count {
            self.published += 1;
            let payload = self.published.to_string();
            self.bus.publish_payload(&subject, payload.as_bytes(), PUBLISH_TIMEOUT).expect("the peer takes it in time");
            let_time_pass(INTERVAL, "each message has a datagram of its own");
        }
    }

    /// Publishes until the last message is delivered.
    fn await_last(&mut self) {
        let deadline = now() + RECOVERY_MAX;
        while !self.delivered().contains(&self.published) {
            assert!(now() < deadline, "the subscriber gets no honest message");
            self.publish(1);
        }
    }

    /// Publishes until the subscriber awaits nothing and has got the last ten messages. Returns the time until then.
    fn publish_until_delivered(&mut self) -> Duration {
        let began = now();
        loop {
            self.publish(10);
            let delivered = self.delivered();
            let rows = self.subscriber.rows("loss");
            let pending: u64 = rows.iter().filter_map(|row| row["datagrams"]["pending"].as_u64()).sum();
            if pending == 0 && (self.published - 9..=self.published).all(|number| delivered.contains(&number)) {
                return now().since(began);
            }
            assert!(now().since(began) < RECOVERY_MAX, "the subscriber gets no ten honest messages in turn");
        }
    }

    /// Makes the host of the subscriber drop a datagram of the publisher, and also the first resent one.
    fn lose(&mut self, number: u64) {
        let host = self.lan.hosts[1];
        let data = "udp dport != 0 @th,64,16 0x5343 @th,96,8 0";
        host.fault(&format!("{data} @th,192,64 {number} counter name hits drop"));
        self.publish(2);
        wait_until("the datagram and a resent one are dropped", || 2 <= host.hits());
    }

    fn restart_publisher(&mut self) {
        self.publisher.kill();
        self.publisher = experiment::start(&self.lan.hosts[0], "A.test", &SETTINGS);
        experiment::await_acquaintance([&self.publisher, &self.subscriber]);
        self.bus = self.publisher.attach();
    }

    /// Returns the numbers of the honest messages that were delivered so far.
    fn delivered(&self) -> BTreeSet<u64> {
        let lines = self.subscription.lines();
        lines.iter().filter_map(|line| parse_json(line)["payload"].as_str()?.parse().ok()).collect()
    }

    /// Returns the effect on the messages from this number on, once it is what was reported, or after some time.
    fn settled_effect(&self, first: u64, suppressed: u64) -> ForgeryEffect {
        let deadline = now() + REPORT_TIME;
        wait_until_some(
            || "the messages are judged".to_owned(),
            || {
                let effect = ForgeryEffect { suppressed, ..self.effect(first) };
                (effect.is_accounted_for() || deadline < now()).then_some(effect)
            },
        )
    }

    fn effect(&self, first: u64) -> ForgeryEffect {
        let delivered = self.delivered();
        let missing = (first..=self.published).filter(|number| !delivered.contains(number)).count() as u64;
        let mut effect = ForgeryEffect { missing, ..ForgeryEffect::default() };
        for line in &self.subscription.lines()[self.lines_read..] {
            let value = parse_json(line);
            let number_of = |field: &str| value[field].as_u64().or(value[field]["max"].as_u64()).unwrap_or(0);
            match (value["type"].as_str(), value["kind"].as_str()) {
                (Some("message"), _) => effect.forged += u64::from(value["payload"] == FORGED_PAYLOAD),
                (_, Some("messages")) => effect.lost += number_of("count"),
                _ => effect.unverified += number_of("messages"),
            }
        }
        effect
    }

    /// Returns the memory in KiB and the processor time in ms of the peer to which the attacker sends.
    fn usage(&self, of_publisher: bool) -> (i64, u64) {
        let pid = if of_publisher { &self.publisher } else { &self.subscriber }.process().pid();
        (experiment::memory_kib(pid), experiment::processor_ms(pid))
    }

    /// Returns the number of messages that the publisher has suppressed.
    fn suppressed(&self) -> u64 {
        experiment::counters_of(&self.publisher).get("messages_suppressed").copied().unwrap_or(0)
    }

    /// Returns the counters that show what a peer has discarded or was made to do, of that to which the attacker sends.
    fn counters(&self, of_publisher: bool) -> BTreeMap<String, u64> {
        let mut counters = experiment::counters_of(if of_publisher { &self.publisher } else { &self.subscriber });
        counters.retain(|name, _| {
            name.contains("discard_") && name != "discard_own"
                || ["forged_byes", "resends", FORGERIES].contains(&name.as_str())
        });
        // The one whose subscriptions were forged notices that.
        let noticed = experiment::counters_of(&self.subscriber).remove(FORGERIES).unwrap_or(0);
        counters.insert(FORGERIES.to_owned(), noticed);
        counters
    }

    /// Returns what the attacker has last observed of a peer, and its uptime.
    fn observe(&self, address: Ipv4Addr) -> (ObservedPeer, u32) {
        let u64_at = |bytes: &[u8], at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let observed = || {
            let recorded = self.sniffer.recorded();
            let is_honest = |datagram: &&UdpDatagram| {
                *datagram.from.ip() == address && *datagram.to.ip() == GROUP && !self.sent.contains(&datagram.payload)
            };
            let of_kind = |kind: u8| {
                let honest = recorded.iter().filter(is_honest);
                honest.filter(move |datagram| datagram.payload.get(4) == Some(&kind))
            };
            let control = of_kind(CONTROL).next_back()?;
            let data = of_kind(DATA).map(|datagram| u64_at(&datagram.payload, 16)).max().unwrap_or(0);
            // CONTROL states the number of messages in all DATA so far.
            let count = u64_at(&control.payload, 24);
            let uptime_ms = u32::from_be_bytes(control.payload[32..36].try_into().expect("four bytes"));
            let (epoch, number) = (u64_at(&control.payload, 8), u64_at(&control.payload, 16));
            let is_latest = address != PUBLISHER || count == self.published - self.suppressed;
            is_latest.then_some((ObservedPeer { epoch, inbox: control.from, data, control: number }, uptime_ms))
        };
        wait_until_some(|| "the last datagrams are observed".to_owned(), observed)
    }
}

const HEADINGS: &str = "| attempt | datagrams | forged messages delivered | honest messages missing | reported as lost \
                        | reported as unverified, at most | suppressed | the receiver counts | disturbance, ms \
                        | memory, KiB | processor time, ms |\n|---|---|---|---|---|---|---|---|---|---|---|";
/// Payload of a forged message.
pub const FORGED_PAYLOAD: &str = "forged";
/// Missing datagrams are given up soon, so that the test is short.
const SETTINGS: [&str; 3] = ["reliability=500 ms", "heartbeat=100 ms", "interest=on"];
/// Counter of forged subscriptions.
const FORGERIES: &str = "interest_forgeries";
/// Time between two messages.
const INTERVAL: Duration = Duration::from_millis(5);
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which honest messages must be delivered again.
const RECOVERY_MAX: Duration = Duration::from_secs(15);
/// Time until everything that is missing must be reported.
const REPORT_TIME: Duration = Duration::from_secs(5);
const RECORDED_MAX: usize = 100_000;
