//! Durable messages in a model: two sites with several gateways each, and a stream that is away, loses messages under way
//! and answers, forgets ids, has copies that give messages other sequences, and loses its last messages in one copy or
//! all. Gateways start, leave, die and lose their
//! connections, and the LAN loses datagrams for the programs, which a gateway that has died does not repeat. Each message
//! must be delivered once, in its order.

use super::super::durable::{
    DURABLE_HEADER, DurableSettings, HubPosition, ID_HEADER, ReadingStart, SpoolTicket, StartedReading, StoreOutcome,
    StoredArrival, StoredPosition,
};
use super::super::gateway::Gateway;
use super::super::gateway_settings::GatewaySettings;
use super::super::hub_sender::HubSender;
use super::super::import::SITES_MAX;
use super::super::repeat_filter::RepeatFilter;
use super::super::site_loss::SiteReport;
use super::super::system_messages::{LOSS_SUBJECT, RESTORE_PREFIX};
use super::{at, epoch};
use crate::message::{Delivery, Epoch, Headers, Message, Publisher, Verdict};
use crate::rng::Rng;
use crate::seqno::{Frame, Seq};
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::{Instant, WallTime, nanos};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of runs.
const SEEDS: u64 = 50;
/// Number of subjects.
const TOPICS: u64 = 5;
const STEP: Duration = Duration::from_millis(10);
/// Time of the faults, and of the rest, which is longer than messages are held back.
const FAULTY_TIME: Duration = Duration::from_secs(100);
const CALM_TIME: Duration = Duration::from_secs(40);
/// Time for which the stream remembers ids.
const ID_TIME: Duration = Duration::from_secs(15);
/// Time until a datagram that the LAN has lost has been repeated.
const REPAIR_TIME: Duration = Duration::from_millis(150);
const ANSWER_TIME: Duration = Duration::from_secs(4);
/// Minimum time between two losses of the stream's last messages. Messages that are stored once more stay.
const LOST_END_INTERVAL: Duration = Duration::from_secs(20);
/// Time after which a gateway can replace another one: it has heard all messages that the other one has not sent.
const SETTLED_TIME: Duration = Duration::from_secs(30);

/// A message that is under way to the stream, or its answer.
struct Request {
    due: Instant,
    ticket: SpoolTicket,
    message: Message,
    /// The outcome that the gateway will learn; `None` before the message has arrived.
    outcome: Option<StoreOutcome>,
}

/// A message that is under way from a gateway to the programs of its LAN.
struct UnderWay {
    due: Instant,
    delivery: Delivery,
}

struct Host {
    is_plant: bool,
    epoch: Epoch,
    gateway: Gateway,
    under_way: Vec<UnderWay>,
    started: Instant,
    linked_from: Instant,
    is_linked: bool,
    requests: Vec<Request>,
    reader: Option<Reader>,
    /// Revision of the position that it has stored last.
    written: Option<u64>,
}

struct Reader {
    /// Index of the copy that it reads.
    copy: usize,
    /// Stream sequence of the last message read.
    read_to: u64,
    /// The position at which it began, until its first message.
    unchecked: Option<HubPosition>,
    revision: u64,
    reached: HubPosition,
    store_at: Instant,
}

/// A message of a copy of the stream.
#[derive(Clone)]
struct StreamRecord {
    at: WallTime,
    message: Message,
}

/// The stream of the hub, and the position of the importing site.
#[derive(Default)]
struct Stream {
    copies: [Vec<StreamRecord>; 2],
    /// Time at which the last message was stored.
    last: WallTime,
    ids: BTreeMap<String, Instant>,
    repeated: u64,
    position: HubPosition,
    revision: u64,
    away_until: Instant,
    /// Time at which it lost its last messages.
    lost_end_at: Instant,
    /// Time of the last message that a gateway has read.
    read_to: WallTime,
    /// Time up to which its messages stay: an importing gateway has read them, and died before its LAN had all of them.
    needed_to: WallTime,
}

struct Model {
    rng: Rng,
    now: Instant,
    hosts: Vec<Host>,
    stream: Stream,
    sent: BTreeMap<u64, u64>,
    delivered: BTreeMap<u64, Vec<u64>>,
    /// The peer of the programs.
    filter: RepeatFilter,
    reported: u64,
    faults: u64,
    /// Readings that began behind the position, because their copy has it at another sequence.
    late: u64,
    /// Messages that the stream has stored and lost, and those that gateways have stored once more.
    lost: u64,
    restored: u64,
    next_epoch: u64,
}

impl Stream {
    /// Takes a message. Returns whether it is stored, now or before.
    fn take(&mut self, now: Instant, message: Message) -> bool {
        if now < self.away_until {
            return false;
        }
        let (_, id) = message.headers.iter().find(|(key, _)| *key == ID_HEADER).expect("it has an id");
        let is_known = self.ids.get(id).is_some_and(|at| now.since(*at) < ID_TIME);
        if !is_known {
            let was_stored = self.ids.insert(id.to_owned(), now).is_some();
            self.repeated += u64::from(was_stored);
            let at = self.next_time(now);
            self.copies.iter_mut().for_each(|copy| copy.push(StreamRecord { at, message: message.clone() }));
        }
        true
    }

    /// Returns the time of the next message: each has another one.
    fn next_time(&mut self, now: Instant) -> WallTime {
        let now = nanos(now.since(Instant::ZERO));
        self.last = WallTime::from_nanos(now.max(self.last.as_nanos() + 1));
        self.last
    }

    /// Loses the messages that it has stored in the last time, in these copies. Returns their number.
    fn lose_end(&mut self, now: Instant, time: Duration, copies: &[usize]) -> u64 {
        if now.since(self.lost_end_at) < LOST_END_INTERVAL {
            return 0;
        }
        self.lost_end_at = now;
        let from = WallTime::from_nanos(nanos(now.since(Instant::ZERO).saturating_sub(time)));
        let stays = |record: &StreamRecord| record.at < from || record.at <= self.needed_to;
        let end = |copy: &Vec<StreamRecord>| copy.partition_point(stays);
        let is_imported = |record: &&StreamRecord| record.message.subject.as_bytes().starts_with(b"orders.");
        let mut lost = 0;
        for copy in copies {
            let copy = &mut self.copies[*copy];
            lost += copy.drain(end(copy)..).filter(|record| is_imported(&record)).count() as u64;
        }
        lost
    }

    /// Stores messages that no site imports in one copy only.
    fn diverge(&mut self, now: Instant, copy: usize, count: u64) {
        for _ in 0..count {
            let at = self.next_time(now);
            self.copies[copy].push(StreamRecord { at, message: Message::new("filling".parse().unwrap(), "") });
        }
    }
}

impl Model {
    fn draw(seed: u64) -> Model {
        let mut model = Model {
            rng: Rng::new(seed),
            now: at(0),
            hosts: Vec::new(),
            stream: Stream::default(),
            sent: BTreeMap::new(),
            delivered: BTreeMap::new(),
            filter: RepeatFilter::default(),
            reported: 0,
            faults: 0,
            late: 0,
            lost: 0,
            restored: 0,
            next_epoch: 10,
        };
        for is_plant in [true, false] {
            (0..=model.rng.below(3)).for_each(|_| model.start(is_plant));
        }
        model
    }

    fn start(&mut self, is_plant: bool) {
        let patterns = |text: &str| text.parse::<Pattern>().into_iter().collect::<PatternSet>();
        let exports = if is_plant { patterns("orders.>") } else { PatternSet::default() };
        let settings = GatewaySettings {
            site: if is_plant { "plant1" } else { "hq" }.parse().unwrap(),
            exports: PatternSet::default(),
            services: PatternSet::default(),
            inbox: "_INBOX.0000000000000001.link.".to_owned(),
            imports: if is_plant { PatternSet::default() } else { patterns("orders.>") },
            durable: DurableSettings {
                exports,
                stream: "SEQCAST".into(),
                spool_bytes_max: 64 << 20,
                bytes_per_second: 1 << 20,
            },
            message_bytes_max: 1 << 20,
            permitted: PermittedSubjects::all(),
        };
        self.next_epoch += 1;
        let epoch = epoch(self.next_epoch << 32 | self.rng.next_u64() >> 32);
        self.hosts.push(Host {
            is_plant,
            epoch,
            gateway: Gateway::new(settings, epoch, self.now),
            under_way: Vec::new(),
            started: self.now,
            linked_from: self.now,
            is_linked: false,
            requests: Vec::new(),
            reader: None,
            written: None,
        });
    }

    fn publish(&mut self, topic: u64) {
        let number = self.sent.entry(topic).or_default();
        *number += 1;
        let first = Frame::at(WallTime::from_nanos(100_000_000_000)).first();
        let seq: Seq = first.forward(*number - 1).unwrap();
        let verdict = if *number == 1 { Verdict::Start(WallTime::EPOCH) } else { Verdict::Next };
        let publisher = Publisher { name: None, epoch: epoch(7), uid: 1 };
        let message = Message::new(format!("orders.{topic}").parse().unwrap(), number.to_string());
        let delivery = Delivery::new(message, publisher, Some(seq), verdict);
        for host in self.hosts.iter_mut().filter(|host| host.is_plant) {
            host.gateway.on_delivery(self.now, &delivery);
        }
    }

    /// Another gateway of the site could replace this one.
    fn is_replaceable(&self, index: usize) -> bool {
        let now = self.now;
        let is_settled = |host: &Host| SETTLED_TIME < now.since(host.started) && host.linked_from <= now;
        let is_other = |(other, host): (usize, &Host)| {
            other != index && host.is_plant == self.hosts[index].is_plant && is_settled(host)
        };
        self.hosts.iter().enumerate().any(is_other)
    }

    fn fault(&mut self) {
        let index = self.rng.below(self.hosts.len() as u64) as usize;
        self.faults += 1;
        match self.rng.below(8) {
            0 if self.is_replaceable(index) => self.kill(index),
            1 if self.is_replaceable(index) => {
                let mut host = self.hosts.remove(index);
                host.gateway.on_stop(self.now);
                self.exchange(&mut host);
                host.under_way.iter_mut().for_each(|message| message.due = self.now);
                self.reach_programs(&mut host);
            }
            // An importing gateway that has just started does not know which messages of a stream come late.
            2 if self.hosts.len() < 8 => self.start(true),
            3 => {
                let host = &mut self.hosts[index];
                host.linked_from = self.now + Duration::from_millis(self.rng.below(12_000));
            }
            4 => self.stream.away_until = self.now + Duration::from_millis(self.rng.below(8_000)),
            5 => {
                let count = if self.rng.chance(0.3) { 700 } else { self.rng.below(20) };
                self.stream.diverge(self.now, self.rng.below(2) as usize, count);
            }
            6 => {
                let time = Duration::from_millis(self.rng.below(3_000));
                let copies = [&[0][..], &[1], &[0, 1]][self.rng.below(3) as usize];
                self.lost += self.stream.lose_end(self.now, time, copies);
            }
            _ => self.lose_answers(index),
        }
    }

    /// Kills a gateway, unless it is the only one that has messages which the stream has lost and the LAN repairs.
    fn kill(&mut self, index: usize) {
        let is_importing = !self.hosts[index].is_plant;
        if is_importing && self.now.since(self.stream.lost_end_at) < 2 * REPAIR_TIME {
            return;
        }
        self.hosts.remove(index);
        if is_importing {
            self.stream.needed_to = self.stream.read_to;
        }
    }

    /// Each message and answer that is under way is lost or not.
    fn lose_answers(&mut self, index: usize) {
        for request in &mut self.hosts[index].requests {
            if request.outcome.is_none() && self.rng.chance(0.5) {
                self.stream.take(self.now, request.message.clone());
            }
            (request.outcome, request.due) = (Some(StoreOutcome::Failed), self.now + ANSWER_TIME);
        }
    }

    /// Hands messages of a gateway to the programs.
    fn reach_programs(&mut self, host: &mut Host) {
        let now = self.now;
        for UnderWay { delivery, .. } in host.under_way.extract_if(.., |message| message.due <= now) {
            for Delivery { message, .. } in self.filter.filter(delivery.into()).into_iter().flatten() {
                let subject = message.subject.to_string();
                let topic = subject.strip_prefix("orders.").expect("only these are under way").parse().unwrap();
                let number = String::from_utf8_lossy(&message.payload).parse().unwrap();
                self.delivered.entry(topic).or_default().push(number);
            }
        }
    }

    /// Hands what a gateway sends to its LAN to the others, and to the programs, which get some of it late.
    fn exchange(&mut self, host: &mut Host) {
        let publisher = Publisher { name: None, epoch: host.epoch, uid: 2 };
        while let Some(message) = host.gateway.poll_lan(self.now) {
            let delivery = Delivery::new(message.clone(), publisher.clone(), None, Verdict::Next);
            if message.subject.as_bytes() == LOSS_SUBJECT.as_bytes() {
                if let Some(SiteReport::Loss(loss)) = SiteReport::from_json(&message.payload) {
                    self.reported += loss.count.min();
                }
            } else if message.subject.as_bytes().starts_with(b"orders.") {
                let is_lost = self.rng.chance(0.1);
                let arrival = self.now + if is_lost { REPAIR_TIME } else { Duration::ZERO };
                let of_stream = |other: &&UnderWay| other.delivery.message.subject == message.subject;
                // The messages of a stream stay in order.
                let earlier = host.under_way.iter().rfind(of_stream).map(|other| other.due);
                host.under_way.push(UnderWay {
                    due: earlier.map_or(arrival, |due| due.max(arrival)),
                    delivery: delivery.clone(),
                });
            }
            for other in self.hosts.iter_mut().filter(|other| other.is_plant == host.is_plant) {
                other.gateway.on_delivery(self.now, &delivery);
            }
        }
        while let Some(message) = host.gateway.poll_hub() {
            if message.subject.as_str().starts_with(RESTORE_PREFIX) && host.is_linked {
                for other in self.hosts.iter_mut().filter(|other| other.is_linked) {
                    other.gateway.on_system_message(self.now, message.clone(), &HubSender::AnyClient);
                }
            }
        }
    }

    /// Sends to the stream what waits at a gateway, and hands over the answers.
    fn store(&mut self, host: &mut Host) {
        let is_away = self.now < self.stream.away_until;
        if !is_away && host.is_linked {
            let last = self.stream.copies[0].len() as u64;
            let durable = host.gateway.durable_mut();
            let before = durable.counts().restored;
            durable.on_stream_state(self.now, 1, last);
            self.restored += durable.counts().restored - before;
        }
        while host.is_linked
            && !is_away
            && let Some((ticket, message)) = host.gateway.durable_mut().poll_store(self.now)
        {
            let due = self.now + Duration::from_millis(20);
            host.requests.push(Request { due, ticket, message, outcome: None });
        }
        for request in host.requests.iter_mut().filter(|request| request.outcome.is_none() && request.due <= self.now) {
            let is_stored = self.stream.take(self.now, request.message.clone());
            let sequence = self.stream.copies[0].len() as u64;
            let (outcome, time) = match is_stored {
                true => (StoreOutcome::Stored { sequence }, Duration::from_millis(20)),
                false => (StoreOutcome::Failed, ANSWER_TIME),
            };
            (request.outcome, request.due) = (Some(outcome), self.now + time);
        }
        let now = self.now;
        let answered = host.requests.extract_if(.., |request| request.outcome.is_some() && request.due <= now);
        for Request { ticket, outcome, .. } in answered.collect::<Vec<Request>>() {
            host.gateway.durable_mut().on_outcome(now, ticket, outcome.expect("it is answered"));
        }
    }

    /// Reads the stream at a gateway that does that for its site.
    fn read(&mut self, host: &mut Host) {
        let now = self.now;
        let may_read = !host.is_plant && host.is_linked && host.gateway.durable().reads(now);
        let length = |copy: usize| self.stream.copies[copy].len() as u64;
        let has_lost_end = host.reader.as_ref().is_some_and(|reader| length(reader.copy) < reader.read_to);
        if !may_read || now < self.stream.away_until || has_lost_end {
            let Some(reader) = host.reader.take() else { return };
            let position = host.gateway.durable_mut().stop_reading();
            let is_written = !may_read && host.is_linked && self.stream.away_until <= now;
            if is_written && reader.revision == self.stream.revision {
                self.stream.revision += 1;
                self.stream.position = position.expect("it has read");
                host.written = Some(self.stream.revision);
            }
            return;
        }
        let durable = host.gateway.durable_mut();
        let copy = self.rng.below(2) as usize;
        let reader = host.reader.get_or_insert_with(|| {
            let (stored, revision) = (self.stream.position, self.stream.revision);
            let last = HubPosition::of_sequence(self.stream.copies[0].len() as u64);
            let is_own = host.written == Some(revision);
            let start = ReadingStart { stored: StoredPosition::At(stored), is_own, first: 1, last, is_new: false };
            let StartedReading { position, read_from, .. } = durable.start_reading(start);
            Reader { copy, read_to: read_from, unchecked: Some(position), revision, reached: stored, store_at: now }
        });
        let copy = &self.stream.copies[reader.copy];
        let arrival =
            |index: u64| copy.get(index as usize).map(|copied| StoredArrival { sequence: index + 1, at: copied.at });
        let unchecked = reader.unchecked.take().filter(|position| position.at.is_some());
        if let Some(position) = unchecked
            && arrival(reader.read_to).is_none_or(|first| position.is_reused_by(first))
        {
            self.late += u64::from(arrival(reader.read_to).is_some());
            durable.accept_earlier();
            reader.read_to = copy.partition_point(|copied| Some(copied.at) < position.at) as u64;
        }
        while durable.has_room()
            && let Some(arrival) = arrival(reader.read_to)
        {
            reader.read_to += 1;
            self.stream.read_to = self.stream.read_to.max(arrival.at);
            durable.on_stored(now, arrival, Some(copy[arrival.sequence as usize - 1].message.clone()));
        }
        if reader.store_at <= now {
            reader.store_at = now + Duration::from_millis(250);
            if reader.revision != self.stream.revision {
                host.reader = None;
                durable.stop_reading();
                return;
            }
            self.stream.revision += 1;
            (reader.revision, self.stream.position) = (self.stream.revision, reader.reached);
            host.written = Some(reader.revision);
            durable.on_position(reader.reached);
            reader.reached = durable.position().unwrap_or(reader.reached);
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        for _ in 0..self.hosts.len() {
            let mut host = self.hosts.remove(0);
            let is_linked = host.linked_from <= self.now;
            if is_linked != host.is_linked {
                host.is_linked = is_linked;
                host.gateway.on_link(self.now, is_linked);
            }
            host.gateway.on_tick(self.now);
            self.store(&mut host);
            self.read(&mut host);
            self.exchange(&mut host);
            self.reach_programs(&mut host);
            self.hosts.push(host);
        }
    }

    fn run(&mut self) {
        let end = self.now + FAULTY_TIME;
        // Gateways are connected, and the importing site has begun to read.
        while self.now < at(6_000) {
            self.step();
        }
        // The importer knows where each stream begins.
        (0..TOPICS).for_each(|topic| self.publish(topic));
        while self.now < at(7_000) {
            self.step();
        }
        while self.now < end {
            self.step();
            if self.rng.chance(0.3) {
                let topic = self.rng.below(TOPICS);
                self.publish(topic);
            }
            if self.rng.chance(0.008) {
                self.fault();
            }
        }
        self.hosts.iter_mut().for_each(|host| host.linked_from = self.now);
        self.stream.away_until = self.now;
        // Messages behind those that the stream has lost.
        (0..TOPICS).for_each(|topic| self.publish(topic));
        let end = self.now + CALM_TIME;
        while self.now < end {
            self.step();
        }
    }
}

#[test]
fn durable_messages_arrive_once_and_in_order() {
    let (mut faults, mut repeated, mut late, mut sent) = (0, 0, 0, 0);
    let (mut lost, mut restored) = (0, 0);
    for seed in 0..SEEDS {
        let mut model = Model::draw(seed);
        model.run();
        for (topic, last) in &model.sent {
            let delivered = model.delivered.remove(topic).unwrap_or_default();
            let expected: Vec<u64> = (1..=*last).collect();
            if delivered != expected {
                let wrong = delivered.iter().zip(&expected).position(|(one, other)| one != other);
                panic!(
                    "seed {seed}, orders.{topic}: {} of {last}, wrong from {wrong:?}: {delivered:?}",
                    delivered.len()
                );
            }
            sent += last;
        }
        assert_eq!(model.reported, 0, "seed {seed}: no loss took place");
        faults += model.faults;
        repeated += model.stream.repeated;
        late += model.late;
        lost += model.lost;
        restored += model.restored;
    }
    assert!(SEEDS * 20 < faults && 1_000 < sent, "{faults} faults, {sent} messages");
    assert!(0 < repeated && 0 < late, "stored twice: {repeated}, read by time: {late}");
    assert!(0 < restored, "lost by the stream: {lost}, stored once more: {restored}");
}

fn arrival(sequence: u64) -> StoredArrival {
    StoredArrival { sequence, at: WallTime::from_nanos(sequence) }
}

/// Returns a gateway of hq that reads the stream.
fn reading_gateway() -> Gateway {
    let mut model = Model::draw(1);
    model.hosts.clear();
    model.start(false);
    let mut gateway = model.hosts.remove(0).gateway;
    gateway.durable_mut().start_reading(ReadingStart::default());
    gateway
}

/// Returns the header block of a durable message, which is the message with this ordinal in its stream.
fn stored_headers(site: &str, ordinal: u64) -> String {
    format!(
        "Seqcast-Origin: {site} 6b1f90a2c3d4e5f6 3 {ordinal} 1 {ordinal} b41c09e2aa70d355 - - - -\r\n{DURABLE_HEADER}: 0\r\n"
    )
}

fn stored_message(block: String) -> Option<Message> {
    let headers = Headers::from_block(block.into_bytes().into());
    Some(Message { headers, ..Message::new("orders.1".parse().unwrap(), "text") })
}

#[test]
fn durable_messages_of_too_many_sites_are_refused() {
    let mut gateway = reading_gateway();
    let sites = SITES_MAX as u64 + 10;
    for number in 1..=sites {
        let message = stored_message(stored_headers(&format!("s{number}"), 1));
        gateway.durable_mut().on_stored(at(0), arrival(number), message);
    }
    // The rate limits the deliveries.
    for ms in (0..10_000).step_by(10) {
        while gateway.poll_lan(at(ms)).is_some() {}
    }
    assert_eq!((gateway.sites().len(), gateway.counts().excess_sites), (SITES_MAX, 10));
    assert_eq!(gateway.durable().counts().imported, sites, "all were read");
}

#[test]
fn stored_message_that_cannot_be_delivered_is_lost() {
    let mut gateway = reading_gateway();
    let is_invalid = [false, false, true];
    for (ordinal, is_invalid) in (1..).zip(is_invalid) {
        let invalid_field = if is_invalid { "a key: text\r\n" } else { "" };
        let lost = if is_invalid { 4 } else { 0 };
        let block = stored_headers("plant1", ordinal + lost).replace(": 0\r", &format!(": {lost}\r")) + invalid_field;
        gateway.durable_mut().on_stored(at(0), arrival(ordinal), stored_message(block));
    }
    let messages: Vec<Message> = std::iter::from_fn(|| gateway.poll_lan(at(0))).collect();
    let is_order = |message: &&Message| message.subject.as_bytes() == b"orders.1";
    assert_eq!(messages.iter().filter(is_order).count(), 2);
    let site = gateway.sites().values().next().expect("plant1");
    assert_eq!((site.imported, site.lost_min, site.lost_max, gateway.counts().refused), (2, 5, 5, 1));
}
