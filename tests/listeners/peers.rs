//! Several peers of one group: the view of clients of a NATS or Redis listener when a peer is killed, starts, or gets
//! a new subscription.

use super::Peer;
use super::client::{ListenerClient, Nats, Redis};
use crate::support::command::{PATIENCE, Place, RunningCommand, now};
use crate::support::wait::wait_until;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest interval between two heartbeats, and the default of `heartbeat`.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Reply subject of every requesting client here.
const REPLY: &str = "_INBOX.1";
/// Subject of the advisories about losses at receivers of a publisher's messages.
const OUTBOUND: &str = "_RV.ERROR.SYSTEM.DATALOSS.OUTBOUND.BCAST";
/// Time that a client waits for an answer before it repeats its request.
const REPEAT: Duration = Duration::from_millis(50);

/// Starts a peer with this name in the group of `port`.
fn start(name: &str, port: u16) -> Peer {
    restart(Place::new(), name, port)
}

/// Starts a peer with this name at a place where one ran before.
fn restart(place: Place, name: &str, port: u16) -> Peer {
    Peer::start_at(place, [0, 0], &[&format!("name={name}"), &format!("port={port}")])
}

/// Starts two peers in the group of `port` and waits until they know each other.
fn pair(port: u16) -> [Peer; 2] {
    let peers = ["A.test", "B.test"].map(|name| start(name, port));
    wait_until("the peers know each other", || peers.iter().all(|peer| peer.rows("peers").len() == 1));
    peers
}

/// Ends a peer without a chance to say goodbye; returns its place.
fn kill(peer: Peer) -> Place {
    let Peer { place, mut process, .. } = peer;
    process.signal("KILL");
    process.ended();
    place
}

/// Returns a NATS client that is subscribed to [`REPLY`].
fn requester(peer: &Peer) -> ListenerClient {
    let mut client = peer.client(Nats);
    client.subscribe(REPLY, 9);
    client
}

fn request(subject: &str) -> String {
    format!("PUB {subject} {REPLY} 1\r\nx\r\n")
}

/// Outcome of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    NoResponders,
    Response,
    Nothing,
}

fn answer_within(requester: &mut ListenerClient, time: Duration) -> Answer {
    match requester.message_within(time) {
        None => Answer::Nothing,
        Some((_, payload)) if payload.is_empty() => Answer::NoResponders,
        Some(_) => Answer::Response,
    }
}

/// Takes a request and answers it.
#[track_caller]
fn respond(responder: &mut ListenerClient) {
    responder.message();
    responder.send(Nats.publish(REPLY, "re"));
}

#[test]
fn killed_responder_does_not_count_after_its_silence() {
    let [requesting, responding] = pair(Place::new().port());
    let mut responder = responding.client(Nats);
    responder.subscribe("work", 1);
    let mut requester = requester(&requesting);
    let mut publisher = requesting.client(Redis);
    let mut receivers = || {
        publisher.send(Redis.publish("work", "x"));
        publisher.line()
    };
    wait_until("the subscription counts", || receivers() == ":1");
    requester.send(request("work"));
    wait_until("the request arrives", || responder.message().1 == b"x");
    kill(responding);
    let killed = now();
    let is_absent = |requester: &mut ListenerClient| {
        requester.send(request("work"));
        answer_within(requester, REPEAT) == Answer::NoResponders
    };
    wait_until("a request gets 503", || is_absent(&mut requester));
    let refused = now().since(killed);
    wait_until("PUBLISH counts nobody", || receivers() == ":0");
    let counted = now().since(killed);
    let bound = HEARTBEAT * 7 / 2 + Duration::from_secs(1);
    assert!(refused <= bound && counted <= bound, "503 after {refused:?}, :0 after {counted:?}, bound {bound:?}");
}

#[test]
fn request_to_nobody_after_start_gets_503() {
    let port = Place::new().port();
    let bound = Duration::from_secs(3);
    let check = |name: &str| {
        let peer = start(name, port);
        let mut requester = requester(&peer);
        let sent = now();
        requester.send(request("nobody.there"));
        let answer = answer_within(&mut requester, bound);
        assert_eq!(answer, Answer::NoResponders, "{name}: after {:?}", now().since(sent));
        peer
    };
    let first = check("A.test");
    let mut other = first.client(Nats);
    other.subscribe("work", 1);
    for name in ["B.test", "C.test", "D.test"] {
        check(name);
    }
}

/// Joins the queue group of the tests at a peer.
fn queue_member(peer: &Peer) -> ListenerClient {
    let mut member = peer.client(Nats);
    member.send("SUB work q 1\r\n");
    member.settle();
    member
}

#[test]
fn first_queue_request_after_start_is_answered() {
    let port = Place::new().port();
    let first = start("A.test", port);
    let mut member = queue_member(&first);
    for name in ["B.test", "C.test", "D.test", "E.test", "F.test"] {
        let peer = start(name, port);
        let mut requester = requester(&peer);
        requester.send(request("work"));
        respond(&mut member);
        assert_eq!(answer_within(&mut requester, PATIENCE), Answer::Response, "{name}");
    }
}

/// Starts a peer, and sends a request on `subject` as soon as its NATS listener is open: no other peer can be known
/// by then.
fn request_at_start(place: &Place, name: &str, port: u16, subject: &str) -> (RunningCommand, ListenerClient) {
    let [name, port] = [format!("name={name}"), format!("port={port}")];
    let process = place.start(&["peer", "--nats", "0", "--set", &name, "--set", &port]);
    let line = process.await_report("listener open");
    let address = line.split_once("address=").and_then(|(_, rest)| rest.split(' ').next());
    let address: SocketAddr = address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    let mut requester = ListenerClient::connect_to(Nats, address);
    let connect = "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}";
    requester.send(format!("{connect}\r\nSUB {REPLY} 9\r\n{}", request(subject)));
    assert!(requester.line().starts_with("INFO {"));
    (process, requester)
}

#[test]
fn queue_request_in_first_milliseconds_is_answered() {
    let port = Place::new().port();
    let responding = start("A.test", port);
    let mut member = queue_member(&responding);
    for round in 0..10 {
        let place = Place::new();
        let (_process, mut requester) = request_at_start(&place, &format!("B{round}.test"), port, "work");
        respond(&mut member);
        assert_eq!(answer_within(&mut requester, PATIENCE), Answer::Response, "round {round}");
    }
}

#[test]
fn request_to_nobody_in_first_milliseconds_gets_503() {
    let port = Place::new().port();
    let bound = Duration::from_secs(5);
    let places = [Place::new(), Place::new(), Place::new()];
    let mut processes = Vec::new();
    for (place, name) in places.iter().zip(["A.test", "B.test", "C.test"]) {
        let (process, mut requester) = request_at_start(place, name, port, "nobody.there");
        processes.push(process);
        assert_eq!(answer_within(&mut requester, bound), Answer::NoResponders, "{name} within {bound:?}");
    }
}

#[test]
fn flushed_responder_is_followed_by_no_503() {
    let [requesting, responding] = pair(Place::new().port());
    let mut responder = responding.client(Nats);
    let mut requester = requester(&requesting);
    for round in 0..100 {
        let subject = format!("work.{round}");
        responder.subscribe(&subject, round);
        requester.send(request(&subject));
        assert_eq!(answer_within(&mut requester, Duration::ZERO), Answer::Nothing, "{subject}");
        respond(&mut responder);
        assert_eq!(answer_within(&mut requester, PATIENCE), Answer::Response, "{subject}");
    }
}

/// Adds the numbers in the messages of a member to `given`.
fn count(text: &str, given: &mut [usize]) {
    let mut lines = text.split("\r\n");
    while let Some(line) = lines.next() {
        if line.starts_with("MSG ") {
            let number: usize = lines.next().and_then(|payload| payload.parse().ok()).expect("a number");
            given[number] += 1;
        }
    }
}

#[test]
fn queue_messages_are_served_or_counted_over_crash() {
    const COUNT: usize = 200;
    let port = Place::new().port();
    let [requesting, crashing] = pair(port);
    let staying = start("C.test", port);
    let mut members = vec![queue_member(&crashing), queue_member(&staying)];
    let is_member =
        |epoch: &str| requesting.rows("interest").iter().any(|row| row["queue"] == "q" && row["epoch"] == epoch);
    let crashed = crashing.epoch();
    wait_until("the members are known", || is_member(&crashed) && is_member(&staying.epoch()));
    let mut watcher = requesting.client(Nats);
    watcher.subscribe(OUTBOUND, 1);
    let mut publisher = requesting.client(Nats);
    let mut publish = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            publisher.send(Nats.publish("work", number.to_string()));
            // One message every 10 ms.
            publisher.message_within(Duration::from_millis(10));
        }
        publisher.settle();
    };
    publish(0..COUNT / 4);
    let place = kill(crashing);
    // Half a second.
    publish(COUNT / 4..COUNT / 2);
    let restarted = restart(place, "B.test", port);
    members.push(queue_member(&restarted));
    let next = restarted.epoch();
    wait_until("the next run's member is known", || is_member(&next));
    publish(COUNT / 2..COUNT);
    let mut given = vec![0; COUNT];
    count(&members.remove(0).rest(), &mut given);
    let counter = |name: &str| -> usize {
        let rows = requesting.rows("counters");
        let row = rows.iter().find(|row| row["counter"] == name).expect("a counter");
        row["value"].as_u64().expect("a number").try_into().expect("it fits")
    };
    let mut missing = Vec::new();
    wait_until("each message is served or counted, and each of the second half is served", || {
        for member in &mut members {
            while let Some((_, payload)) = member.message_within(Duration::ZERO) {
                let number: usize = std::str::from_utf8(&payload).expect("text").parse().expect("a number");
                given[number] += 1;
            }
        }
        missing = (0..COUNT).filter(|number| given[*number] == 0).collect::<Vec<usize>>();
        let counted = ["queue_uncertain", "queue_lost", "queue_unserved"].into_iter().map(counter).sum();
        missing.len() <= counted && missing.iter().all(|number| *number < COUNT / 2)
    });
    let twice: Vec<usize> = (0..COUNT).filter(|number| 1 < given[*number]).collect();
    assert!(twice.is_empty(), "{twice:?} went to two members");
    println!("{} of {COUNT} messages went to no member and are counted: {missing:?}", missing.len());
    let mut reported = 0;
    wait_until("advisories report what the crashed peer may not have served", || {
        while let Some((_, payload)) = watcher.message_within(Duration::ZERO) {
            let advisory: Value = serde_json::from_slice(&payload).expect("JSON");
            if advisory["epoch"] == crashed {
                reported += advisory["lost"]["max"].as_u64().or(advisory["lost"].as_u64()).expect("a count");
            }
        }
        let uncertain = counter("queue_uncertain") as u64;
        0 < uncertain && uncertain <= reported
    });
}
