//! A client of FTN18 with as little work for each event as possible. It still checks that no event is missing or
//! comes twice, and that all come in order.

use crate::now;
use crate::server::{PATIENCE, Server};
use crate::websocket::WebSocket;
use hdrhistogram::Histogram;
use seqcast::time::Instant;
use std::collections::VecDeque;

/// Beginning of each event in a list, as all known servers write it.
const EVENT: &str = "{\"id\":\"";
const GROUP: &str = "{\"f\":\"futoin.evt.receiver:";

/// A connection, and the calls made over it.
pub struct Client {
    socket: WebSocket,
    calls: u64,
}

/// Events of one message.
pub struct Group {
    pub count: u64,
    pub first: u64,
    pub last: u64,
}

impl Client {
    pub fn connect(server: &Server) -> Client {
        let socket = WebSocket::connect(server.address, "/main", PATIENCE).expect("the server takes clients");
        Client { socket, calls: 0 }
    }

    fn push(&mut self, function: &str, parameters: &str) {
        self.calls += 1;
        let rid = self.calls;
        self.socket
            .push(&format!("{{\"f\":\"{function}\",\"p\":{parameters},\"rid\":\"C{rid}\",\"sec\":\"bench:x\"}}"));
    }

    /// Calls and waits. Returns the answer.
    fn call(&mut self, function: &str, parameters: &str) -> &str {
        self.push(function, parameters);
        let answer = self.socket.read().expect("an answer");
        assert!(answer.starts_with("{\"r\":"), "{function}: {answer}");
        answer
    }

    pub fn register(&mut self, component: &str) {
        self.call("futoin.evt.push:1.1:registerConsumer", &format!("{{\"component\":\"{component}\"}}"));
    }

    /// Adds `count` events, of which `window` are pending at a time. Returns the times until each was answered, in
    /// nanoseconds.
    pub fn add(&mut self, count: u64, window: usize, event: impl Fn(u64) -> String) -> Histogram<u64> {
        let mut times = Histogram::new(3).expect("three digits");
        let mut sent: VecDeque<Instant> = VecDeque::new();
        let (mut added, mut last) = (0, 0);
        loop {
            while added < count && sent.len() < window {
                self.push("futoin.evt.gen:1.1:addEvent", &event(added));
                sent.push_back(now());
                added += 1;
            }
            let Some(time) = sent.pop_front() else { return times };
            let answer = self.socket.read().expect("an answer");
            let id = answer.strip_prefix("{\"r\":\"").and_then(number).unwrap_or_else(|| panic!("{answer}"));
            // Calls over one connection are answered in the order of the calls.
            assert!(last < id, "{last} before {id}");
            last = id;
            times.record(now().since(time).as_nanos() as u64).expect("a histogram that grows");
        }
    }

    /// Polls the events after `after`, and accepts those up to it; `None` if there are no more.
    pub fn poll(&mut self, server: &Server, component: &str, after: u64) -> Option<Group> {
        let last = if after == 0 { "null".to_owned() } else { format!("\"{after}\"") };
        let parameters = format!("{{\"component\":\"{component}\",\"last_id\":{last}}}");
        group(self.call(&format!("{}:pollEvents", server.poll), &parameters))
    }

    /// Makes the server push events from now on.
    pub fn ready(&mut self, component: &str, want: &str) {
        let parameters = format!("{{\"component\":\"{component}\",\"want\":{want}}}");
        self.push("futoin.evt.push:1.1:readyToReceive", &parameters);
    }

    /// Waits for the next group that is pushed, and accepts it.
    pub fn receive(&mut self) -> Group {
        loop {
            let message = self.socket.read().expect("a group");
            if !message.starts_with(GROUP) {
                assert!(message.starts_with("{\"r\":true"), "{message}");
                continue;
            }
            let group = group(message).expect("no group is empty");
            let rid = message.rsplit_once("\"rid\":\"").and_then(|(_, rid)| rid.split('"').next()).expect("an id");
            let answer = format!("{{\"r\":true,\"rid\":\"{rid}\"}}");
            self.socket.push(&answer);
            return group;
        }
    }
}

/// Returns the number that a text begins with.
fn number(text: &str) -> Option<u64> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    text[..end].parse().ok()
}

/// Counts the events in a message. The ids must rise.
fn group(message: &str) -> Option<Group> {
    let mut group: Option<Group> = None;
    for (at, _) in message.match_indices(EVENT) {
        let id = number(&message[at + EVENT.len()..]).expect("an id is a number");
        let before = group.get_or_insert(Group { count: 0, first: id, last: 0 });
        assert!(before.last < id, "{} before {id}", before.last);
        (before.count, before.last) = (before.count + 1, id);
    }
    group
}
