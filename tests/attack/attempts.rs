//! The attempts, each of which the victim must notice and survive.

use super::experiment::Reaction::{Answer, Discard};
use super::experiment::{ATTACKER, Experiment, GROUP, INNOCENT, ObservedPeer, PORT, PUBLISHER, VICTIM};
use super::forged::{
    self, CONTROL, DATA, DIRECTED, ForgedHeader, HANDSHAKE, INIT_BYTES, KEYED, OPEN, REQUEST_BYTES, UPTIME_MS,
    control_records, encode_handshake, padded,
};
use super::member_keys::SenderSecret;
use super::raw_network::UdpDatagram;
use super::shell;
use seqcast::rng::Rng;
use std::net::SocketAddrV4;

/// Datagrams of each kind in an attempt.
const EACH: usize = 40;
/// Bytes that make room for an answer to a peer that is not proven.
const ANSWERED_BYTES: usize = 256;
/// Bytes of the records and the tag of the largest forged datagrams.
const SEALED_BYTES_MAX: u64 = 400;

/// Protection of the datagrams of an attempt.
#[derive(Clone, Copy, Debug)]
pub enum Sealing<'a> {
    /// A correct check value of open mode.
    Open,
    /// Random bytes in this keyed mode.
    Random(u8),
    /// A key that follows from this secret.
    Secret(&'a SenderSecret),
}

/// Correct datagrams of open mode with each record, in the name of the publisher.
pub fn send_open_datagrams(experiment: &mut Experiment) {
    let publisher = experiment.observed(PUBLISHER);
    for (from, whose) in [(attacker_address(), "the attacker's"), (publisher.inbox, "the publisher's")] {
        let datagrams = forge_all_kinds(experiment, publisher, from, Sealing::Open);
        experiment.attempt(&format!("mode 0: all kinds and records, from {whose} address"), &datagrams, Discard);
    }
}

/// Datagrams of keyed modes, sealed by nobody.
pub fn send_keyed_datagrams(experiment: &mut Experiment) {
    let publisher = experiment.observed(PUBLISHER);
    for (from, whose) in [(attacker_address(), "the attacker's"), (publisher.inbox, "the publisher's")] {
        let mut datagrams = Vec::new();
        for mode in KEYED {
            datagrams.extend(forge_all_kinds(experiment, publisher, from, Sealing::Random(mode)));
        }
        experiment.attempt(
            &format!("modes 1 and 2: all kinds, random content, from {whose} address"),
            &datagrams,
            Discard,
        );
    }
}

/// Recorded datagrams, each with one bit flipped or with another mode.
pub fn send_changed_datagrams(experiment: &mut Experiment) {
    let recorded = recorded_of_publisher(experiment);
    let mut flipped = recorded.clone();
    for datagram in &mut flipped {
        let bit = experiment.rng.below(datagram.payload.len() as u64 * 8) as usize;
        datagram.payload[bit / 8] ^= 1 << (bit % 8);
    }
    experiment.attempt("recorded datagrams with one bit flipped", &flipped, Discard);
    let mut downgraded = recorded;
    for datagram in &mut downgraded {
        let records = datagram.payload.split_off(36);
        let header = ForgedHeader {
            mode: OPEN,
            kind: datagram.payload[4],
            flags: 0,
            group: PORT,
            epoch: number_at(&datagram.payload, 8),
            number: number_at(&datagram.payload, 16),
            count: number_at(&datagram.payload, 24),
            uptime_ms: UPTIME_MS,
            receiver: 1,
        };
        datagram.payload = header.open(&records);
    }
    experiment.attempt("recorded datagrams as mode 0, with a correct check value", &downgraded, Discard);
}

/// Recorded datagrams, as they are.
pub fn replay_datagrams(experiment: &mut Experiment) {
    let recorded = recorded_of_publisher(experiment);
    experiment.attempt("recorded datagrams again, from the publisher's address", &recorded, Discard);
    let handshakes = recorded_handshakes(experiment);
    experiment.attempt("recorded handshakes again, from the publisher's address", &handshakes, Answer);
    let mut moved = recorded;
    moved.iter_mut().for_each(|datagram| datagram.from = attacker_address());
    experiment.attempt("recorded datagrams again, from the attacker's address", &moved, Discard);
}

/// Datagrams of a member, on the publisher's host, in another group.
pub fn replay_other_group(experiment: &mut Experiment) {
    let other = PORT + 1;
    let in_group = |datagram: &UdpDatagram| {
        datagram.payload.get(6..8) == Some(&other.to_be_bytes()) && *datagram.from.ip() == PUBLISHER
    };
    let mut datagrams = experiment.record(EACH, in_group, |experiment| {
        shell("seqcast realm invite --data-dir A.test | seqcast join - --name C.test --data-dir C.test");
        let peer = experiment.start("C.test", &[&format!("port={other}")]);
        peer.publish("t.a", 2 * EACH as u64, 500).finish();
    });
    datagrams.iter_mut().for_each(|datagram| datagram.to = group_address());
    let mut renumbered = datagrams.clone();
    renumbered.iter_mut().for_each(|datagram| datagram.payload[6..8].copy_from_slice(&PORT.to_be_bytes()));
    experiment.attempt("datagrams of another group, as they are", &datagrams, Discard);
    experiment.attempt("datagrams of another group, with this group's number", &renumbered, Discard);
}

/// A peer of the product that is a member of another realm.
pub fn start_other_realm(experiment: &mut Experiment) {
    shell("seqcast init --realm plant2 --name E.test --data-dir E.test");
    experiment.observe_stranger("a peer with the keys of another realm, which publishes", |experiment| {
        let settings = ["security=realm", "data-dir=/run/E.test"];
        let stranger = experiment.lan.hosts[2].start_peer("E.test", GROUP.into(), &settings);
        stranger.publish("t.a", 200, 1000).finish();
        stranger.process().signal("TERM");
    });
}

/// Datagrams that would make peers answer to a host that has sent nothing.
pub fn reflect_datagrams(experiment: &mut Experiment) {
    let [publisher, victim] = [PUBLISHER, VICTIM].map(|address| experiment.observed(address));
    let innocent = |port: u64| SocketAddrV4::new(INNOCENT, 5000 + port as u16);
    let mut unknown = Vec::new();
    for number in 0..10 * EACH as u64 {
        let header = header(publisher, KEYED[0], [DATA, CONTROL][number as usize % 2], experiment.rng.next_u64());
        let payload = header.sealed_without_key(60, || experiment.rng.next_u32() as u8);
        let to = [group_address(), victim.inbox][number as usize / 2 % 2];
        unknown.push(UdpDatagram { from: innocent(number), to, payload });
    }
    experiment.attempt("unknown epochs, from a fourth host's address", &unknown, Discard);
    // A member has sealed these, so the victim can open them, and may answer.
    let mut handshakes = Vec::new();
    for datagram in recorded_handshakes(experiment) {
        for port in 0..EACH as u64 {
            handshakes.push(UdpDatagram { from: innocent(port), to: victim.inbox, ..datagram.clone() });
        }
    }
    experiment.attempt("recorded handshakes, from a fourth host's address", &handshakes, Answer);
    let open = forge_all_kinds(experiment, publisher, innocent(0), Sealing::Open);
    experiment.attempt("mode 0: all kinds and records, from a fourth host's address", &open, Discard);
}

/// As many datagrams as one thread can send.
pub fn flood_victim(experiment: &mut Experiment) {
    let [publisher, victim] = [PUBLISHER, VICTIM].map(|address| experiment.observed(address));
    let mut unknown = Vec::new();
    for host in 0..200 {
        let header = header(publisher, KEYED[0], [DATA, CONTROL][host % 2], 1);
        let payload = header.sealed_without_key(64, || experiment.rng.next_u32() as u8);
        let from = SocketAddrV4::new([10, 75, 0, 20 + host as u8].into(), 4000);
        unknown.push(UdpDatagram { from, to: [group_address(), victim.inbox][host / 2 % 2], payload });
    }
    experiment.flood("flood of unknown epochs from 200 addresses", &unknown, Discard);
    let mut handshakes = Vec::new();
    for (step, bytes) in [(0, REQUEST_BYTES), (2, INIT_BYTES), (4, 300)] {
        let epochs = [publisher.epoch, victim.epoch];
        let payload = encode_handshake(step, PORT, epochs, bytes, || experiment.rng.next_u32() as u8);
        handshakes.push(UdpDatagram { from: attacker_address(), to: victim.inbox, payload });
    }
    experiment.flood("flood of handshakes with random content", &handshakes, Discard);
    let recorded = recorded_handshakes(experiment);
    let first = recorded.iter().filter(|datagram| datagram.to == victim.inbox).min_by_key(|one| one.payload.len());
    let first =
        UdpDatagram { from: attacker_address(), ..first.expect("the victim has taken part in a handshake").clone() };
    experiment.flood("flood of a recorded REQUEST or COOKIE, from the attacker's address", &[first], Answer);
    let hello: Vec<_> = recorded.into_iter().filter(|datagram| datagram.to == group_address()).collect();
    experiment.flood("flood of recorded HELLOs, from the publisher's address", &hello, Answer);
}

/// Returns packets to the group with datagrams of epochs that do not exist, from many addresses.
pub fn unknown_epochs(count: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(count);
    let packet = |number: u64| {
        let (kind, mode) = ([DATA, CONTROL][number as usize % 2], KEYED[number as usize / 2 % 2]);
        let epoch = rng.next_u64();
        let (group, uptime_ms) = (PORT, UPTIME_MS);
        let header = ForgedHeader { mode, kind, flags: 0, group, epoch, number: 1, count: 0, uptime_ms, receiver: 1 };
        let payload = header.sealed_without_key(64, || rng.next_u32() as u8);
        let from = SocketAddrV4::new([10, 75, 0, 20 + (number % 200) as u8].into(), 4000);
        UdpDatagram { from, to: group_address(), payload }.packet()
    };
    (0..count).map(packet).collect()
}

/// Datagrams of the run before, after the publisher has crashed and started again.
pub fn restart_publisher(experiment: &mut Experiment) {
    let recorded = recorded_of_publisher(experiment);
    experiment.pause();
    // Its end is not announced.
    experiment.publisher.take().expect("it runs").kill();
    experiment.publisher = Some(experiment.start("A.test", &[]));
    experiment.resume();
    experiment.attempt("datagrams of the publisher's run before a crash", &recorded, Discard);
}

/// Datagrams of the publisher's present run, which a new run of the victim has not seen.
pub fn restart_victim(experiment: &mut Experiment) {
    let is_sealed = |datagram: &UdpDatagram| *datagram.from.ip() == PUBLISHER && is_sealed(&datagram.payload);
    let recorded = experiment.record(5 * EACH, is_sealed, |_| ());
    experiment.pause();
    experiment.victim.take().expect("it runs").kill();
    experiment.victim = Some(experiment.start("B.test", &[]));
    experiment.resume();
    let present =
        experiment.record(1, |datagram| *datagram.from.ip() == VICTIM && datagram.to == group_address(), |_| ());
    let inbox = present[0].from;
    let mut datagrams = recorded;
    for datagram in datagrams.iter_mut().filter(|datagram| datagram.to != group_address()) {
        datagram.to = inbox;
    }
    experiment.attempt("datagrams of before a restart of the victim", &datagrams, Discard);
    // The victim does not know this run, so it must take the HELLOs for those of a member.
    let hellos: Vec<UdpDatagram> = recorded_handshakes(experiment)
        .into_iter()
        .filter(|datagram| datagram.to == group_address() && *datagram.from.ip() == PUBLISHER)
        .flat_map(|datagram| vec![datagram; EACH])
        .collect();
    experiment.watch(hellos[0].from);
    experiment.attempt("HELLOs of the publisher's run before its crash", &hellos, Answer);
}

/// Returns datagrams in the name of a peer: of each kind that can be sealed so, and with each record.
pub fn forge_all_kinds(
    experiment: &mut Experiment,
    peer: ObservedPeer,
    from: SocketAddrV4,
    sealing: Sealing,
) -> Vec<UdpDatagram> {
    let victim = experiment.observed(VICTIM);
    let mut datagrams = Vec::new();
    for ahead in 1..=EACH as u64 * experiment.factor as u64 {
        let mut all =
            vec![(DATA, forged::encode_run("t.a", "forged")), (DIRECTED, forged::encode_run("t.a", "forged"))];
        let high = peer.data + 1000;
        let records = control_records("A.test", peer.epoch, high).into_iter();
        all.extend(records.map(|(_, record)| (CONTROL, padded(record, ANSWERED_BYTES))));
        // RECEIVER_REPORT, RESEND_REQUEST and INTEREST_REQUEST are for their addressee.
        let records = control_records("A.test", victim.epoch, 1).into_iter();
        all.extend(records.map(|(_, record)| (CONTROL, padded(record, ANSWERED_BYTES))));
        if let Sealing::Secret(secret) = sealing {
            all.retain(|(kind, _)| secret.can_seal(*kind));
        }
        for (kind, records) in all {
            let mut header = header(peer, OPEN, kind, peer.epoch);
            // The victim has accepted more since. Numbers near the present ones are the most plausible.
            header.number += 500 + ahead;
            header.receiver = victim.epoch;
            let payload = match sealing {
                Sealing::Open => header.open(&records),
                Sealing::Random(mode) => {
                    let flags = u8::from(kind == DIRECTED || ahead % 2 == 0);
                    let bytes = experiment.rng.below(SEALED_BYTES_MAX) as usize;
                    ForgedHeader { mode, flags, ..header }.sealed_without_key(bytes, || experiment.rng.next_u32() as u8)
                }
                Sealing::Secret(secret) => secret.seal(header, &records),
            };
            let to = if kind == DIRECTED || ahead % 2 == 0 { victim.inbox } else { group_address() };
            datagrams.push(UdpDatagram { from, to, payload });
        }
    }
    datagrams
}

/// Returns a header with the next numbers of a peer.
fn header(peer: ObservedPeer, mode: u8, kind: u8, epoch: u64) -> ForgedHeader {
    let number = 1 + if kind == CONTROL { peer.control } else { peer.data };
    let uptime_ms = UPTIME_MS;
    ForgedHeader { mode, kind, flags: 0, group: PORT, epoch, number, count: peer.data, uptime_ms, receiver: 1 }
}

/// Returns the recorded sealed datagrams of the publisher.
fn recorded_of_publisher(experiment: &Experiment) -> Vec<UdpDatagram> {
    let of_publisher = |datagram: &&UdpDatagram| *datagram.from.ip() == PUBLISHER && is_sealed(&datagram.payload);
    experiment.recorded.iter().filter(of_publisher).cloned().collect()
}

/// Returns whether a datagram is one of a keyed mode that is not part of a handshake.
pub fn is_sealed(payload: &[u8]) -> bool {
    matches!(payload, [0x53, 0x43, 1, 1, kind, ..] if *kind < HANDSHAKE)
}

/// Returns the recorded datagrams of the handshake that the victim has received.
fn recorded_handshakes(experiment: &Experiment) -> Vec<UdpDatagram> {
    let is_handshake = |datagram: &&UdpDatagram| datagram.payload.get(4) == Some(&HANDSHAKE);
    experiment.recorded.iter().filter(is_handshake).cloned().collect()
}

pub fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub fn attacker_address() -> SocketAddrV4 {
    SocketAddrV4::new(ATTACKER, 4000)
}

pub fn group_address() -> SocketAddrV4 {
    SocketAddrV4::new(GROUP, PORT)
}
