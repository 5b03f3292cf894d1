//! The timed transcript of `docs/wire.md`: two peers, and a wire with a latency of one millisecond that loses one
//! datagram. After a change of the peers' datagrams, the failing test prints the new block.

use super::*;
use crate::wire::{Kind, Record};
use std::fmt::Write;

/// Start of the publisher, in milliseconds; the subscriber starts at 0.
const START: u64 = 200;
/// Times of the two messages; the datagram of the second is lost.
const PUBLISHED: [u64; 2] = [210, 211];
const END: u64 = 245;
/// Hexadecimal digits in a line.
const DIGITS: usize = 112;

/// A datagram in flight.
struct Flight {
    arrival: u64,
    to: usize,
    path: Path,
    bytes: Bytes,
}

/// The publisher, the subscriber, and their transcript.
struct Transcript {
    hosts: [Host; 2],
    flights: Vec<Flight>,
    text: String,
}

const NAMES: [&str; 2] = ["P", "S"];

impl Transcript {
    fn new() -> Transcript {
        let host = |name, number, millis| {
            Host::of(Settings { reliability: Duration::from_secs(2), ..settings(name) }, number, millis)
        };
        let mut subscriber = host("S.test", 0x1112_1314_1516_1718, 0);
        subscriber.subscribe(0, "a");
        for millis in 0..START {
            subscriber.tick(millis);
        }
        let hosts = [host("P.test", 0x0102_0304_0506_0708, START), subscriber];
        Transcript { hosts, flights: Vec::new(), text: String::new() }
    }

    fn run(&mut self, millis: u64) {
        let (arrived, flying) = std::mem::take(&mut self.flights).into_iter().partition(|f| f.arrival == millis);
        self.flights = flying;
        let arrived: Vec<Flight> = arrived;
        for Flight { to, path, bytes, .. } in arrived {
            let from = self.hosts[1 - to].address;
            self.hosts[to].peer.handle(at(millis), Input::Datagram { from, path, bytes });
        }
        if PUBLISHED.contains(&millis) {
            let request = ClientRequest::Publish(Message::new("a".parse().unwrap(), &b"x"[..]));
            self.hosts[0].peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
        }
        for from in 0..self.hosts.len() {
            self.hosts[from].peer.handle(at(millis), Input::Tick);
            for effect in self.hosts[from].drain() {
                self.write(millis, from, effect);
            }
        }
    }

    fn write(&mut self, millis: u64, from: usize, effect: Effect) {
        let (path, bytes) = match effect {
            Effect::Multicast(bytes) => (Path::Multicast, bytes),
            Effect::Unicast { bytes, .. } => (Path::Unicast, bytes),
            effect => {
                for delivery in delivered(effect) {
                    let seq = delivery.seq.map_or(0, |seq| seq.count());
                    let repaired = if delivery.repaired { ", repaired" } else { "" };
                    let subject = &delivery.message.subject;
                    writeln!(self.text, "{millis} {} delivers {subject} {seq}{repaired}", NAMES[from]).unwrap();
                }
                return;
            }
        };
        let datagram = wire::decode(bytes.clone()).unwrap();
        let is_lost = path == Path::Multicast && datagram.header.kind == Kind::Data && datagram.header.number == 2;
        let to = if path == Path::Multicast { "group" } else { NAMES[1 - from] };
        let names: Vec<&str> = datagram.records.iter().map(name).collect();
        let lost = if is_lost { ", lost" } else { "" };
        writeln!(self.text, "{millis} {} > {to}: {}{lost}", NAMES[from], names.join(", ")).unwrap();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for line in digits.as_bytes().chunks(DIGITS) {
            writeln!(self.text, "  {}", std::str::from_utf8(line).unwrap()).unwrap();
        }
        if !is_lost {
            self.flights.push(Flight { arrival: millis + 1, to: 1 - from, path, bytes });
        }
    }
}

fn name(record: &Record) -> &'static str {
    match record {
        Record::Run(_) => "RUN",
        Record::Heartbeat(_) => "HEARTBEAT",
        Record::Hello(_) => "HELLO",
        Record::ResendRequest(_) => "RESEND_REQUEST",
        Record::Interest(_) => "INTEREST",
        Record::InterestRequest(_) => "INTEREST_REQUEST",
        Record::ReceiverReport(_) => "RECEIVER_REPORT",
        other => panic!("not part of the transcript: {other:?}"),
    }
}

/// Proves: W10, W11, W50, W53, W99, W101
#[test]
fn peers_reproduce_the_specified_transcript() {
    let mut transcript = Transcript::new();
    for millis in START..=END {
        transcript.run(millis);
    }
    let page = include_str!("../../../../docs/wire.md");
    let (_, rest) = page.split_once("```transcript\n").expect("a transcript");
    let (expected, _) = rest.split_once("```").expect("an end");
    assert!(transcript.text.contains("delivers a 2, repaired"), "{}", transcript.text);
    assert!(transcript.text == expected, "the transcript is now:\n{}", transcript.text);
}
