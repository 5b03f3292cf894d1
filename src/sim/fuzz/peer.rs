//! Target `peer`: turns bytes into inputs of a real core, and checks its effects.
//!
//! The input is a list of operations on one [`Peer`]. A second one publishes honestly; its datagrams are delivered,
//! dropped, repeated, reordered and damaged as the bytes say. Forged datagrams of other epochs come between them.

use super::script::Script;
use super::{CHECK_BYTES, repair, repaired};
use crate::message::{
    ClientId, Count, DeliveryMode, Dseq, Epoch, Headers, Loss, LossScope, MESSAGE_BYTES_MAX, Message, PeerName, Stamp,
    SubId, SubscriptionFilter,
};
use crate::proto::effect::{ClientRequest, Effect, Input, Path};
use crate::proto::mutant::Mutants;
use crate::proto::peer::Peer;
use crate::proto::{Recovery, Settings, WindowSettings};
use crate::rng::Rng;
use crate::seqno::{COUNT_MAX, Frame, Seq};
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, Instant, WallTime};
use crate::wire::ShareCount;
use crate::wire::{
    self, Builder, CheckValue, Entry, Header, Hello, InterestAnnouncement, Kind, NUMBER_LIMIT, PeerAnnouncement,
    QueueReport, Record, Report,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

const GROUP: u16 = 7500;
/// The epoch of the peer under test.
const OURS: u64 = 1;
/// The epoch of the honest publisher; the forged ones follow.
const HONEST: u64 = 2;
const EPOCHS: u64 = 6;
/// Bytes of every operation, used or not, so that a change of one operation does not change the others.
const OPERATION_BYTES: usize = 16;
/// Maximum number of ticks at one instant until no deadline is due.
const TICKS_MAX: u32 = 8;
/// Minimum datagram size, so that large messages take many datagrams.
const DATAGRAM_BYTES: usize = 576;
/// Maximum number of datagrams of the honest publisher in transit.
const IN_TRANSIT_MAX: usize = 64;
const SUBJECTS: [&str; 6] =
    ["a", "a.b", "a.b.c", "RSF.REC.PAC.NaE", "_INBOX.0000000000000001.7", "_INBOX.0000000000000002.7"];
const PATTERNS: [&str; 6] = ["a", "a.*", "a.>", ">", "_INBOX.>", "_RV.>"];
const STEPS_MS: [u64; 12] = [0, 0, 1, 5, 10, 20, 100, 1_000, 3_500, 11_000, 61_000, 86_400_000];
const EDGES: [u64; 12] =
    [0, 1, 2, 3, 16, 255, 1 << 20, (1 << 20) + 2, 1 << 40, NUMBER_LIMIT - 2, NUMBER_LIMIT - 1, u64::MAX];

/// Runs the operations that `bytes` encode.
pub fn peer(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut world = PeerWorld::new(script.u8());
    while !script.is_done() {
        let mut choices = Script::new(script.take(OPERATION_BYTES));
        world.step(&mut choices, &mut script);
        world.settle();
    }
    // Finally time passes until everything has settled.
    for millis in [10, 4_000, 20_000, 100_000] {
        world.tick(millis);
        world.settle();
    }
}

struct PeerWorld {
    now: ClockReading,
    peer: Peer,
    honest: Peer,
    /// Datagrams of the honest publisher in transit.
    in_transit: Vec<Bytes>,
    /// The last number and count of each forged stream.
    forged: BTreeMap<(u64, Kind), (u64, u64)>,
    sent: SenderTrace,
    /// The last token that the peer sent to each epoch.
    tokens: BTreeMap<u64, u64>,
    /// True if the honest publisher receives what the peer sends.
    honest_receives: bool,
    /// True until a datagram is forged or damaged.
    is_honest: bool,
}

/// The datagrams that the peer under test has sent so far. The numbers of the next ones must continue theirs.
struct SenderTrace {
    epoch: Epoch,
    control: u64,
    /// Number and count of the next datagram of each stream. The key of the multicast stream is `None`.
    streams: BTreeMap<Option<Epoch>, (u64, u64)>,
    /// Every datagram of those streams, which a retransmission must repeat.
    datagrams: BTreeMap<(Option<Epoch>, u64), Bytes>,
    has_stopped: bool,
}

impl Default for SenderTrace {
    fn default() -> SenderTrace {
        let (streams, datagrams) = (BTreeMap::new(), BTreeMap::new());
        SenderTrace { epoch: epoch(OURS), control: 0, streams, datagrams, has_stopped: false }
    }
}

impl PeerWorld {
    fn new(choices: u8) -> PeerWorld {
        let now = ClockReading {
            instant: Instant::from_nanos(1 << 40),
            wall: WallTime::from_nanos(1_659_131_646_000_000_000),
        };
        let peer = Peer::new(settings("A.fuzz", choices), epoch(OURS), Rng::new(1), now);
        let honest = Peer::new(settings("B.fuzz", choices), epoch(HONEST), Rng::new(2), now);
        let sent = SenderTrace { epoch: epoch(OURS), ..SenderTrace::default() };
        let honest_receives = choices & 0x40 != 0;
        let (in_transit, forged, tokens) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        PeerWorld { now, peer, honest, in_transit, forged, sent, tokens, honest_receives, is_honest: true }
    }

    fn step(&mut self, script: &mut Script<'_>, rest: &mut Script<'_>) {
        match script.u8() % 16 {
            0 | 1 => self.tick(script.choose(&STEPS_MS)),
            2 => self.honest.handle(self.now, Input::ClientRequest { client: ClientId(1), request: publish(script) }),
            3 => self.honest.handle(self.now, Input::Tick),
            4 | 5 => self.deliver(script),
            6 => self.deliver_damaged(script),
            7 => drop(self.take_in_transit(script)),
            8 => self.forge_control(script),
            9 => self.forge_messages(script),
            10 => self.forge_fragment(script),
            11 => self.forge_records(script, rest),
            12 => self.request(subscription(script), script),
            13 => self.request(publish(script), script),
            14 => self.step_clock(script),
            _ => match script.u8() {
                0 => self.peer.handle(self.now, Input::Stop),
                1 => self.honest.handle(self.now, Input::Stop),
                2 => self.peer.handle(self.now, Input::Detach { client: client(script) }),
                3 => self.peer.handle(self.now, Input::AddressChanged),
                4..0xa0 => self.forge_repair(script),
                other => {
                    let drops = u64::from(other);
                    self.peer.handle(self.now, Input::Overrun { path: Path::Multicast, drops, datagrams_max: drops });
                }
            },
        }
    }

    fn tick(&mut self, millis: u64) {
        self.now.instant = self.now.instant + Duration::from_millis(millis);
        self.now.wall = WallTime::from_nanos(self.now.wall.as_nanos().saturating_add(millis * 1_000_000));
        self.honest.handle(self.now, Input::Tick);
        // One overdue timer may lead to the next: silence, crash, eviction.
        for _ in 0..TICKS_MAX {
            self.peer.handle(self.now, Input::Tick);
            if self.peer.poll_deadline().is_none_or(|deadline| self.now.instant < deadline) {
                return;
            }
        }
        panic!("still due after {TICKS_MAX} ticks: {:?}", self.peer.poll_deadline());
    }

    /// Sets the wall clock, on which only frames may depend.
    fn step_clock(&mut self, script: &mut Script<'_>) {
        let seconds = script.choose(&[0, 1_000_000_000, 1_659_131_646, 1_659_131_700, 4_611_686_017, 9_000_000_000]);
        self.now.wall = WallTime::from_nanos(seconds * 1_000_000_000);
    }

    fn request(&mut self, request: ClientRequest, script: &mut Script<'_>) {
        let client = client(script);
        self.peer.handle(self.now, Input::ClientRequest { client, request });
    }

    fn receive(&mut self, from: SocketAddr, is_multicast: bool, bytes: Bytes) {
        let path = if is_multicast { Path::Multicast } else { Path::Unicast };
        self.peer.handle(self.now, Input::Datagram { from, path, bytes });
    }

    fn take_in_transit(&mut self, script: &mut Script<'_>) -> Option<Bytes> {
        let at = usize::from(script.u8()).checked_rem(self.in_transit.len())?;
        Some(self.in_transit.remove(at))
    }

    fn deliver(&mut self, script: &mut Script<'_>) {
        let Some(at) = usize::from(script.u8()).checked_rem(self.in_transit.len()) else { return };
        let bytes = if script.flag() { self.in_transit.remove(at) } else { self.in_transit[at].clone() };
        self.receive(address(HONEST), true, bytes);
    }

    fn deliver_damaged(&mut self, script: &mut Script<'_>) {
        self.is_honest = false;
        let Some(bytes) = self.take_in_transit(script) else { return };
        let mut bytes = bytes.to_vec();
        let at = usize::from(script.u16()) % bytes.len();
        let patch = script.u8();
        for (byte, value) in bytes[at..].iter_mut().zip(script.take(usize::from(patch % 9))) {
            *byte = *value;
        }
        let from = if patch < 0x80 { HONEST } else { HONEST + 1 };
        let bytes = if patch & 0x40 == 0 { repaired(&bytes) } else { bytes.into() };
        self.receive(address(from), true, bytes);
    }

    /// Returns a header that continues a forged stream, skips some of it, or claims anything.
    fn forge_header(&mut self, script: &mut Script<'_>, kind: Kind, messages: u64) -> Header {
        self.is_honest = false;
        let epoch_number = HONEST + u64::from(script.u8()) % (EPOCHS - HONEST + 1);
        let last = self.forged.entry((epoch_number, kind)).or_insert((0, 0));
        let (number, count) = match script.u8() {
            0..160 => (last.0 + 1, last.1),
            skip @ 160..224 => (last.0 + 1 + u64::from(skip % 8), last.1 + u64::from(skip / 8 % 4)),
            _ => (script.choose(&EDGES), script.choose(&EDGES)),
        };
        let (number, count) = (number.clamp(1, NUMBER_LIMIT - 1), count.min(NUMBER_LIMIT - 1));
        *last = (number, count.saturating_add(messages));
        let uptime_ms = script.choose(&[0, 1, 1_000, 60_000, u32::MAX]);
        let receiver = (kind == Kind::Directed).then(|| epoch(OURS));
        Header { kind, group: GROUP, epoch: epoch(epoch_number), number, count, uptime_ms, receiver }
    }

    fn forge_control(&mut self, script: &mut Script<'_>) {
        let mut header = self.forge_header(script, Kind::Control, 0);
        let data = self.forged.get(&(header.epoch.bits(), Kind::Data)).copied().unwrap_or((0, 0));
        let directed = self.forged.get(&(header.epoch.bits(), Kind::Directed)).copied().unwrap_or((0, 0));
        let more = script.u8();
        let (ahead, wild) = (u64::from(more % 8), 0xf0 <= more);
        let high = if wild { script.choose(&EDGES) } else { data.0 + ahead }.min(NUMBER_LIMIT - 1);
        header.count = data.1.saturating_add(ahead).min(NUMBER_LIMIT - 1);
        let announce = PeerAnnouncement {
            high: Dseq(high),
            trail: Dseq(script.choose(&EDGES).min(NUMBER_LIMIT - 1)),
            manifest_trail: Dseq(high),
            heartbeat: Duration::from_millis(script.choose(&[1, 20, 1_000, u64::from(u32::MAX)])),
            pub_window_time: Duration::from_millis(script.choose(&[0, 10_000, u64::from(u32::MAX)])),
            directed_high: Dseq((directed.0 + u64::from(script.u8() % 4)).min(NUMBER_LIMIT - 1)),
            directed_count: directed.1.min(NUMBER_LIMIT - 1),
            directed_receiver: Some(epoch(OURS)),
            name: name(script.choose(&["A.fuzz", "B.fuzz", "C.fuzz"])),
            token: Some(u64::from(more)).filter(|token| 0 < *token),
            echo: self.tokens.get(&header.epoch.bits()).copied().filter(|_| more & 0x10 != 0),
            report: (more & 0x20 != 0).then(|| Box::new(report(script))),
            interest: (more & 0x40 != 0).then(|| InterestAnnouncement {
                version: u64::from(more % 16),
                suppresses: more & 0x08 != 0,
                wants_confirmation: more & 0x04 != 0,
            }),
            interest_known: (more & 0x80 != 0).then_some(u64::from(more % 8)),
            queue: (more & 0x28 == 0x28).then(|| {
                let settled = Dseq(script.choose(&EDGES).min(NUMBER_LIMIT - 1));
                let share = ShareCount { settled, served: u64::from(more), returned: u64::from(more % 4) };
                Box::new(QueueReport { multicast: share, directed: share })
            }),
        };
        let what = script.u8();
        let record = match what % 4 {
            0 | 1 => Record::Heartbeat(Box::new(announce)),
            2 => Record::Hello(Box::new(Hello { cookie: u64::from(what), wants_reply: 0x80 <= what, announce })),
            _ => Record::Bye(Box::new(announce)),
        };
        let bytes = wire::encode_control(&header, &record, script.choose(&[0, 100, 256, 500]));
        self.receive(address(header.epoch.bits()), script.flag(), bytes);
    }

    /// Sends a request, a manifest or a report of expiry in the name of a forged epoch.
    fn forge_repair(&mut self, script: &mut Script<'_>) {
        let header = self.forge_header(script, Kind::Control, 0);
        let last = self.forged.get(&(header.epoch.bits(), Kind::Data)).copied().unwrap_or((0, 0));
        let record = repair::record(script, epoch(OURS), last, &SUBJECTS);
        let bytes = wire::encode_control(&header, &record, script.choose(&[0, 0, 256]));
        self.receive(address(header.epoch.bits()), script.flag(), bytes);
    }

    fn forge_messages(&mut self, script: &mut Script<'_>) {
        let mut builder = Builder::new(DATAGRAM_BYTES);
        for _ in 0..=script.u8() % 4 {
            let (message, (seq, stamp, chain)) = (message(script), numbers(script));
            for step in 0..=u64::from(script.u8() % 3) {
                let seq = match seq {
                    Some(seq) if 0 < step => Some(seq.forward(step).unwrap_or(seq)),
                    seq => seq,
                };
                let is_first = step == 0;
                let (stamp, chain) = (stamp.filter(|_| is_first), chain.filter(|_| is_first));
                builder.push(&Entry { message: (&message).into(), seq, stamp, chain });
            }
        }
        let kind = script.choose(&[Kind::Data, Kind::Data, Kind::Data, Kind::Directed]);
        let header = self.forge_header(script, kind, builder.messages());
        let bytes = builder.seal(&header);
        self.receive(address(header.epoch.bits()), script.flag(), bytes);
    }

    fn forge_fragment(&mut self, script: &mut Script<'_>) {
        let mut builder = Builder::new(DATAGRAM_BYTES);
        let (message, (seq, stamp, chain)) = (message(script), numbers(script));
        let body = Bytes::from(vec![script.u8(); 1 + usize::from(script.u16() % 3_000)]);
        let index = u32::from(script.u8() % 5);
        let offset = if index == 0 { 0 } else { (index as usize * 400).clamp(1, body.len()) };
        if offset < body.len() {
            builder.push_fragment(&Entry { message: (&message).into(), seq, stamp, chain }, &body, index, offset);
        }
        let kind = script.choose(&[Kind::Data, Kind::Data, Kind::Data, Kind::Directed]);
        let header = self.forge_header(script, kind, builder.messages());
        let bytes = builder.seal(&header);
        self.receive(address(header.epoch.bits()), script.flag(), bytes);
    }

    /// Sends a valid header, and then any bytes.
    fn forge_records(&mut self, script: &mut Script<'_>, rest: &mut Script<'_>) {
        let kind = script.choose(&[Kind::Data, Kind::Directed]);
        let header = self.forge_header(script, kind, 1);
        let mut bytes = Builder::new(DATAGRAM_BYTES).seal(&header).to_vec();
        bytes.truncate(bytes.len() - CHECK_BYTES);
        if header.kind == Kind::Data && script.flag() {
            // The kind of a control datagram.
            bytes[4] = 2;
        }
        let operations = usize::from(script.u8() % 8);
        bytes.extend_from_slice(rest.take(operations * OPERATION_BYTES));
        bytes.extend_from_slice(&[0; CHECK_BYTES]);
        self.receive(address(header.epoch.bits()), script.flag(), repaired(&bytes));
    }

    /// Drains and checks the effects, and checks the state.
    fn settle(&mut self) {
        while let Some(effect) = self.honest.poll_effect() {
            if let Effect::Multicast(bytes) | Effect::Unicast { bytes, .. } = effect
                && self.in_transit.len() < IN_TRANSIT_MAX
            {
                self.in_transit.push(bytes);
            }
        }
        while let Some(effect) = self.peer.poll_effect() {
            self.check_effect(effect);
        }
        self.peer.assert_invariants();
        for row in self.peer.loss_rows() {
            let d = row.datagrams;
            let sum = d.delivered + d.buffered + d.pending + d.lost + d.unverified;
            assert_eq!(sum, d.high.0 - d.baseline.0, "every datagram is in one state: {row:?}");
        }
        if self.is_honest {
            let counters = self.peer.counters();
            assert_eq!(
                (counters.inconsistencies, counters.discard_contradiction, counters.interest_forgeries),
                (0, 0, 0),
                "an honest publisher's numbers agree"
            );
        }
        let _rows = (self.peer.member_rows(self.now), self.peer.seqno_rows(4), self.peer.window_rows());
    }

    fn check_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Multicast(bytes) => self.check_sent(None, bytes),
            Effect::Unicast { to, bytes } => self.check_sent(Some(to), bytes),
            Effect::Deliver { to, deliveries, .. } => {
                assert!(!to.is_empty() && 0 < deliveries.len(), "a delivery has targets and messages");
                let count = deliveries.len();
                let delivered = deliveries.inspect(|delivery| {
                    assert!(delivery.message.body_bytes() <= MESSAGE_BYTES_MAX);
                });
                assert_eq!(delivered.count(), count);
            }
            Effect::AssignedElsewhere(delivery) => {
                assert!(!delivery.message.headers.is_empty(), "others need not be noted");
                assert!(delivery.message.body_bytes() <= MESSAGE_BYTES_MAX);
            }
            Effect::Report { loss, .. } => check_loss(&loss),
            Effect::Advise { advisory, .. } => {
                assert!(advisory.lost_min <= advisory.lost_max);
                assert!(advisory.subjects.len() as u64 <= advisory.subjects_count);
            }
            Effect::NewEpoch { epoch, .. } => {
                let has_stopped = self.sent.has_stopped;
                self.sent = SenderTrace { epoch, has_stopped, ..SenderTrace::default() };
            }
            Effect::Stopped => self.sent.has_stopped = true,
            Effect::Refuse { .. }
            | Effect::Member { .. }
            | Effect::Answer { .. }
            | Effect::PublisherKnown { .. }
            | Effect::QueryReport { .. }
            | Effect::Denied(_)
            | Effect::Rejoin => {}
        }
    }

    /// Records the tokens in a control message of the peer, so that a forged epoch may echo them.
    fn record_tokens(&mut self, records: &[Record]) {
        for record in records {
            let announce = match record {
                Record::Heartbeat(announce) => announce,
                Record::Hello(hello) => &hello.announce,
                _ => continue,
            };
            if let (Some(receiver), Some(token)) = (announce.directed_receiver, announce.token) {
                self.tokens.insert(receiver.bits(), token);
            }
        }
    }

    /// Checks that a datagram that the peer sends keeps the rules of the wire.
    fn check_sent(&mut self, to: Option<SocketAddr>, bytes: Bytes) {
        assert!(!self.sent.has_stopped, "nothing is sent after the stop");
        assert!(bytes.len() <= DATAGRAM_BYTES);
        let datagram = wire::decode(bytes.clone()).expect("a sent datagram decodes");
        let header = datagram.header;
        assert_eq!((header.group, header.epoch), (GROUP, self.sent.epoch));
        if header.kind == Kind::Control {
            assert_eq!(header.number, self.sent.control + 1, "control datagrams are counted");
            self.sent.control = header.number;
            self.record_tokens(&datagram.records);
        } else if let Some(first) = self.sent.datagrams.get(&(header.receiver, header.number)) {
            assert_eq!(*first, bytes, "a retransmission has the bytes of the original");
        } else {
            self.sent.datagrams.insert((header.receiver, header.number), bytes.clone());
            assert_eq!(header.kind == Kind::Directed, to.is_some(), "directed data goes by unicast");
            let next = self.sent.streams.entry(header.receiver).or_insert((1, 0));
            assert_eq!((header.number, header.count), *next, "numbers are contiguous and counts exact");
            *next = (header.number + 1, header.count + datagram.messages_begun());
        }
        if self.honest_receives && to.is_none_or(|to| to == address(HONEST)) {
            let path = if to.is_none() { Path::Multicast } else { Path::Unicast };
            self.honest.handle(self.now, Input::Datagram { from: address(OURS), path, bytes });
        }
    }
}

fn report(script: &mut Script<'_>) -> Report {
    let mut number = || script.choose(&EDGES);
    let (missing, repaired, pending, unverified) = (number(), number(), number(), number());
    Report {
        missing,
        repaired,
        pending,
        unverified,
        lost_min: number(),
        lost_max: number(),
        overrun: number(),
        directed_lost: number(),
    }
}

fn check_loss(loss: &Loss) {
    match &loss.what {
        LossScope::Messages { first, last, count, .. } => {
            assert!(first <= last, "{loss:?}");
            assert!(0 < count.max() && count.min() <= count.max(), "{loss:?}");
            assert_ne!(*count, Count::Exact(0), "{loss:?}");
        }
        LossScope::Datagrams { first, last, messages } => {
            assert!(first <= last && 0 < messages.max(), "{loss:?}");
        }
        LossScope::Tail { .. } => {}
        LossScope::Inbox { messages } => assert!(0 < *messages, "{loss:?}"),
    }
}

fn settings(name: &str, choices: u8) -> Settings {
    // Half of the scripts run with limits that they soon reach.
    let is_tight = choices & 0x01 != 0;
    let limit = |tight: usize, wide: usize| if is_tight { tight } else { wide };
    let window = WindowSettings {
        bytes: limit(100, 4 << 20),
        time: Duration::from_secs(10),
        bytes_max: if choices & 0x02 != 0 { 300 } else { 64 << 20 },
    };
    Settings {
        name: self::name(name),
        group: GROUP,
        datagram_bytes_max: DATAGRAM_BYTES,
        check_value: CheckValue::Crc32c,
        message_bytes_max: limit(4_000, MESSAGE_BYTES_MAX),
        heartbeat: Duration::from_secs(1),
        reliability: if choices & 0x08 != 0 { Duration::from_secs(2) } else { Duration::from_millis(5) },
        recovery: Recovery::modest(),
        forget: Duration::from_secs(60),
        pub_window: window,
        sub_window: window,
        frame_messages_max: if choices & 0x04 != 0 { 3 } else { COUNT_MAX },
        hold_bytes_max: limit(200, 64 << 20),
        reassembly_bytes_max: limit(1_500, 64 << 20),
        reassembly_sets_max: limit(2, 64),
        gaps_max: limit(2, 8192),
        peers_max: limit(3, 1024),
        client_subscriptions_max: limit(2, 1_000),
        subscriptions_max: limit(3, 1_000),
        interest_max: limit(3, 1_000),
        suppresses: choices & 0x20 != 0,
        match_cache_max: limit(2, 64),
        advisory_interval: Duration::from_secs(1),
        advisory_subjects_max: limit(1, 64),
        pace: crate::proto::pace::PaceSettings::auto(4 << 20),
        mutants: Mutants::default(),
    }
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).expect("epochs are numbered from 1")
}

/// Returns the address from which the peer of this epoch sends; the last two share an address.
fn address(epoch: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, epoch.min(EPOCHS - 1) as u8], 9_000))
}

fn name(text: &str) -> PeerName {
    text.parse().expect("a name")
}

fn client(script: &mut Script<'_>) -> ClientId {
    ClientId(u32::from(script.u8() % 3))
}

fn subject(script: &mut Script<'_>) -> Subject {
    script.choose(&SUBJECTS).parse().expect("a subject")
}

fn message(script: &mut Script<'_>) -> Message {
    let shape = script.u8();
    let payload = vec![shape; [0, 1, 40, 300][usize::from(shape % 4)]];
    let mut message = Message { event: shape & 0x10 != 0, ..Message::new(subject(script), payload) };
    if shape & 0x20 != 0 {
        message.reply = Some(subject(script));
    }
    if shape & 0x40 != 0 {
        message.headers = Headers::from_pairs([("k", "v")]).expect("a header");
    }
    if shape & 0x80 != 0 {
        message.headers = stamped(shape & 0x08 != 0, &message.headers);
    }
    message
}

/// Returns headers with stamps for a member of a queue group at the peer under test, and for one at another peer.
/// `is_redirected` is set if another peer returned the message.
fn stamped(is_redirected: bool, headers: &Headers) -> Headers {
    let queue = "q".parse().expect("a name");
    let publisher = is_redirected.then(|| epoch(HONEST + 1));
    let stamps = [(epoch(OURS), &queue), (epoch(HONEST), &queue)];
    Headers::from_block(wire::queue::stamped(&stamps, publisher, headers.block()).into())
}

/// Returns the number of a message, and the fields that go with the first one of a frame.
fn numbers(script: &mut Script<'_>) -> (Option<Seq>, Option<Stamp>, Option<Seq>) {
    let shape = script.u8();
    if shape & 0x80 != 0 {
        return (None, None, None);
    }
    let frame = 1_000 + u32::from(shape % 4);
    let count = script.choose(&[1, 1, 2, 3, 4, 5, COUNT_MAX - 1, COUNT_MAX]);
    let seq = Frame::new(frame).and_then(|frame| Seq::from_parts(frame, count));
    let is_first = count == 1 && shape & 0x40 == 0;
    let stamp = is_first.then_some(Stamp { time: WallTime::EPOCH, offset: 0 });
    let before = Frame::new(frame - 1 - u32::from(shape >> 4 & 1));
    let chain = before.and_then(|before| Seq::from_parts(before, u64::from(script.u8() % 4)));
    (seq, stamp, chain.filter(|_| is_first && shape & 0x20 != 0))
}

fn publish(script: &mut Script<'_>) -> ClientRequest {
    let mut message = message(script);
    if script.u8() < 32 {
        message.payload = Bytes::from(vec![7; usize::from(script.u16() % 5_000)]);
    }
    ClientRequest::Publish(message)
}

fn subscription(script: &mut Script<'_>) -> ClientRequest {
    let shape = script.u8();
    let sub = SubId(u32::from(shape % 4));
    if script.u8() < 64 {
        return ClientRequest::Unsubscribe { sub };
    }
    let queue = (0x80 <= shape).then(|| "q".parse().expect("a name"));
    ClientRequest::Subscribe {
        sub,
        wanted: SubscriptionFilter { queue, ..script.choose(&PATTERNS).parse::<Pattern>().expect("a pattern").into() },
        mode: DeliveryMode::Repair,
        wants_discovery: script.choose(&[false, true]),
    }
}
