//! Producers and consumers of event streams that continue after any failure, and record the answers that they got.

use super::World;
use super::oracle::{Attempt, Key, Step};
use crate::netns::lan::Host;
use crate::support::wait::let_time_pass;
use crate::support::websocket::WebSocket;
use seqcast::rng::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

/// Listener of a peer for clients on its own host.
const LISTENER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8181);
/// Time to wait for a message before checking whether the run is over.
const WAIT: Duration = Duration::from_millis(200);
/// Number of waits for an answer after which its connection is given up: longer than a peer waits for its disk.
const ANSWER_WAITS: u32 = 150;
/// Pause before a new connection, and between two polls.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum absence of a consumer in milliseconds.
const ABSENCE_MS_MAX: u64 = 8000;
/// Calls of a producer at a time.
const BURST: u64 = 16;
pub const TYPES: [&str; 3] = ["A", "B", "C"];

/// The calls by which a consumer reads its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    Poll,
    Push,
}

/// A consumer.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    pub peer: usize,
    pub component: &'static str,
    pub mode: ReadMode,
    pub want: Option<&'static [&'static str]>,
}

fn connect(host: Host) -> io::Result<WebSocket> {
    host.within(|| WebSocket::connect(LISTENER, "/main", WAIT))
}

/// Returns the next message, unless none comes for too long, or none is needed any more. `None` is the end.
fn read(socket: &mut WebSocket, waits: u32, is_over: impl Fn() -> bool) -> io::Result<Option<Value>> {
    for _ in 0..waits {
        match socket.read() {
            Ok(text) => return serde_json::from_str(text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == ErrorKind::WouldBlock && is_over() => return Ok(None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::TimedOut.into())
}

fn push(socket: &mut WebSocket, rid: u64, function: &str, parameters: &Value) {
    let call =
        json!({ "f": format!("futoin.evt.{function}"), "p": parameters, "rid": format!("C{rid}"), "sec": "check:x" });
    socket.push(&call.to_string());
}

/// Adds events until producers must end. Then it waits for the pending calls.
pub fn produce(world: &World, number: usize, host: Host, peer: usize, mut rng: Rng) {
    let mut next = 0;
    while world.adds() {
        // A connection that ends, for whatever reason, is followed by another one.
        if let Ok(mut socket) = connect(host) {
            let ended = produce_over(world, &mut socket, Producer { number, peer }, &mut next, &mut rng);
            world.note_end(ended);
        }
        let_time_pass(PAUSE, "clients do not connect again at once");
    }
}

/// A program that adds events to the streams of a peer.
#[derive(Clone, Copy)]
struct Producer {
    number: usize,
    peer: usize,
}

fn produce_over(
    world: &World,
    socket: &mut WebSocket,
    Producer { number: producer, peer }: Producer,
    next: &mut u64,
    rng: &mut Rng,
) -> io::Result<()> {
    while world.adds() && !rng.chance(0.001) {
        let count = rng.between(1, BURST);
        for number in *next..*next + count {
            let kind = TYPES[rng.below(3) as usize];
            world.attempt(Key { producer, number }, Attempt { kind, acknowledged: None });
            let data = json!({ "p": producer, "n": number, "text": "x".repeat(rng.below(400) as usize) });
            push(socket, number, "gen:1.1:addEvent", &json!({ "type": kind, "data": data }));
        }
        *next += count;
        for _ in 0..count {
            let Some(answer) = read(socket, ANSWER_WAITS, || false)? else { return Ok(()) };
            let number = answer["rid"].as_str().and_then(|rid| rid.strip_prefix('C')?.parse().ok());
            let key = Key { producer, number: number.ok_or_else(|| io::Error::other(answer.to_string()))? };
            match answer["r"].as_str().and_then(|id| id.parse().ok()) {
                Some(id) => world.acknowledge(key, (peer, id)),
                None => world.refused(&answer),
            }
        }
        let_time_pass(Duration::from_millis(rng.between(20, 80)), "the load has a rate");
    }
    Ok(())
}

/// Reads events until the run is over.
pub fn consume(world: &World, place: usize, host: Host, consumer: Consumer, mut rng: Rng) {
    while !world.is_over() {
        if let Ok(mut socket) = connect(host) {
            world.step(place, Step::Connected);
            let ended = match consumer.mode {
                ReadMode::Poll => poll(world, place, &mut socket, consumer, &mut rng),
                ReadMode::Push => receive(world, place, &mut socket, consumer, &mut rng),
            };
            world.note_end(ended);
        }
        let is_absent = world.adds() && rng.chance(0.1);
        let absence = if is_absent { Duration::from_millis(rng.between(0, ABSENCE_MS_MAX)) } else { PAUSE };
        let_time_pass(absence, "some consumers are away for so long that the stream is full");
    }
}

/// Registers a consumer, which changes nothing if it is registered already.
pub fn register(host: Host, consumer: Consumer) {
    let mut socket = connect(host).expect("the peer takes clients");
    push(&mut socket, 0, "push:1.1:registerConsumer", &json!({ "component": consumer.component }));
    let answer = read(&mut socket, ANSWER_WAITS, || false).expect("an answer").expect("an answer");
    assert_eq!(answer["r"], true, "{answer}");
}

/// Returns id and key of an event.
fn event(event: &Value) -> io::Result<Step> {
    let read = || {
        let (id, data) = (event["id"].as_str()?.parse().ok()?, &event["data"]);
        let key = Key { producer: usize::try_from(data["p"].as_u64()?).ok()?, number: data["n"].as_u64()? };
        Some(Step::Event { id, key })
    };
    read().ok_or_else(|| io::Error::other(format!("no event: {event}")))
}

/// Takes the events of a group; now and then the consumer is killed in the midst of it, and the result is false.
fn take(world: &World, place: usize, events: &[Value], rng: &mut Rng) -> io::Result<bool> {
    let is_killed = world.adds() && rng.chance(0.02);
    let count = if is_killed { rng.below(events.len() as u64) as usize } else { events.len() };
    for found in &events[..count] {
        world.step(place, event(found)?);
    }
    Ok(!is_killed)
}

fn list(of: &Value) -> io::Result<&Vec<Value>> {
    of.as_array().ok_or_else(|| io::Error::other(format!("no list: {of}")))
}

/// Returns the number of an id on the wire.
fn number(id: &Value) -> Option<u64> {
    id.as_str()?.parse().ok()
}

fn poll(world: &World, place: usize, socket: &mut WebSocket, consumer: Consumer, rng: &mut Rng) -> io::Result<()> {
    // A consumer that reconnects may know its position, or not.
    let mut last = rng.chance(0.5).then(|| world.position(place)).filter(|last| 0 < *last);
    for rid in 0.. {
        let last_id = last.map(|last: u64| last.to_string());
        let parameters = json!({ "component": consumer.component, "last_id": last_id, "want": consumer.want });
        push(socket, rid, "poll:1.1:pollEvents", &parameters);
        let Some(answer) = read(socket, ANSWER_WAITS, || world.is_over())? else { return Ok(()) };
        let Ok(events) = list(&answer["r"]) else {
            world.refused(&answer);
            let_time_pass(PAUSE, "clients do not poll without a pause");
            continue;
        };
        if let Some(last) = last {
            world.step(place, Step::Accepted(last));
        }
        if !take(world, place, events, rng)? || world.is_over() {
            return Ok(());
        }
        match events.last() {
            Some(event) => last = number(&event["id"]),
            None => let_time_pass(PAUSE, "clients do not poll without a pause"),
        }
    }
    Ok(())
}

fn receive(world: &World, place: usize, socket: &mut WebSocket, consumer: Consumer, rng: &mut Rng) -> io::Result<()> {
    let parameters = json!({ "component": consumer.component, "want": consumer.want });
    push(socket, 0, "push:1.1:readyToReceive", &parameters);
    // Groups that preceded a refused one came again.
    let mut buffered: BTreeMap<u64, Value> = BTreeMap::new();
    let mut expected = 0;
    loop {
        let Some(message) = read(socket, u32::MAX, || world.is_over())? else { return Ok(()) };
        if message.get("f").is_none() {
            if message["r"] != true {
                world.refused(&message);
                return Ok(());
            }
            continue;
        }
        let seq = message["p"]["seq"].as_u64().ok_or_else(|| io::Error::other(message.to_string()))?;
        if seq < expected {
            world.complain(place, format!("group {seq} came again, though it was accepted"));
        }
        buffered.insert(seq, message);
        while let Some(message) = buffered.remove(&expected) {
            if !take(world, place, list(&message["p"]["events"])?, rng)? {
                return Ok(());
            }
            let is_refused = world.adds() && rng.chance(0.02);
            let answer = if is_refused {
                world.step(place, Step::Refused);
                json!({ "e": "InternalError", "rid": message["rid"] })
            } else {
                expected += 1;
                json!({ "r": true, "rid": message["rid"] })
            };
            socket.push(&answer.to_string());
            if is_refused {
                break;
            }
        }
    }
}
