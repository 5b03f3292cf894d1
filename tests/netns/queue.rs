//! Programs on several hosts that share the messages of a subject as a queue group.

use super::lan::{Lan, Peer, Process, in_namespaces};
use super::{ONE_IN_TEN, group};
use crate::listeners::client::{ListenerClient, Nats};
use crate::support::wait::wait_until;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Returns the numbers of the messages that a subscriber printed; it may print nothing else.
fn numbers(member: &Process) -> Vec<u64> {
    let number = |line: &String| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(event["type"], "message", "{line}");
        event["payload"].as_str().expect("a payload of text").parse().expect("a number")
    };
    member.lines().iter().map(number).collect()
}

#[test]
fn queue_members_on_three_hosts_share_messages_once() {
    in_namespaces("netns::queue::queue_members_on_three_hosts_share_messages_once", || {
        let lan = Lan::new(3);
        let settings = ["reliability=10 sec"];
        let peers: Vec<Peer> = ["P1", "P2", "P3"]
            .into_iter()
            .zip(&lan.hosts)
            .map(|(name, host)| host.start_peer(name, group(), &settings))
            .collect();
        wait_until("all know each other", || peers.iter().all(|peer| peer.rows("peers").len() == 2));
        let members: Vec<Process> = [0, 1, 1, 2].into_iter().map(|host| peers[host].join("work.*", "q")).collect();
        let all = peers[2].subscribe("work.a");
        let known = |peer: &Peer| {
            let rows = peer.rows("interest").into_iter().filter(|row| row["queue"] == "q");
            rows.map(|row| row["subscriptions"].as_u64().expect("a number")).sum::<u64>()
        };
        wait_until("the members are known", || peers.iter().map(known).collect::<Vec<_>>() == [3, 2, 3]);
        for host in &lan.hosts {
            host.fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop"));
        }
        let publishing = [0, 1].map(|host| peers[host].publish("work.a", 2_000, 2_000));
        publishing.into_iter().for_each(Process::finish);
        let total = || members.iter().map(|member| numbers(member).len()).sum::<usize>();
        wait_until("all is given out", || 4_000 <= total() && 4_000 <= all.lines().len());
        assert!(20 < lan.hosts.iter().map(|host| host.heal()).sum::<u64>(), "the fault was there");
        let mut given: Vec<u64> = Vec::new();
        for (member, host) in members.iter().zip([1, 2, 2, 3]) {
            let numbers = numbers(member);
            assert!((600..1_500).contains(&numbers.len()), "one on host {host} got {} of 4000", numbers.len());
            given.extend(numbers);
        }
        given.sort_unstable();
        let twice: Vec<u64> = (1..=2_000).flat_map(|number| [number, number]).collect();
        assert_eq!(given, twice, "each message of both publishers once");
        assert_eq!(numbers(&all).len(), 4_000, "a subscriber in no group gets all");
    });
}

/// Subscribes a NATS client of the peer on host `number` as a member of the queue group.
fn join(number: u8) -> ListenerClient {
    let mut member = ListenerClient::connect_to(Nats, SocketAddr::from(([10, 75, 0, number], 4222)));
    member.enter();
    member.send("SUB work q 1\r\n");
    member
}

/// Ends the subscription of a member; returns the messages that it got before the end was confirmed.
fn leave(mut member: ListenerClient) -> Vec<u64> {
    member.send("UNSUB 1\r\nPING\r\n");
    let mut numbers = Vec::new();
    loop {
        match member.line().as_str() {
            "PONG" => return numbers,
            "PING" => member.send("PONG\r\n"),
            line => {
                assert!(line.starts_with("MSG work 1 "), "{line}");
                numbers.push(member.line().parse().expect("a number"));
            }
        }
    }
}

#[test]
fn messages_of_leaving_members_are_served_or_counted() {
    in_namespaces("netns::queue::messages_of_leaving_members_are_served_or_counted", || {
        const COUNT: u64 = 6_000;
        let lan = Lan::new(3);
        let settings = ["reliability=10 sec", "nats=0.0.0.0", "nats-open=yes"];
        let peers: Vec<Peer> = ["P1", "P2", "P3"]
            .into_iter()
            .zip(&lan.hosts)
            .map(|(name, host)| host.start_peer(name, group(), &settings))
            .collect();
        wait_until("all know each other", || peers.iter().all(|peer| peer.rows("peers").len() == 2));
        let mut members: VecDeque<ListenerClient> = [2, 3, 2, 3].map(join).into();
        let known = || {
            let rows = peers[0].rows("interest").into_iter().filter(|row| row["queue"] == "q");
            rows.map(|row| row["subscriptions"].as_u64().expect("a number")).sum::<u64>()
        };
        wait_until("the members are known", || known() == 4);
        for host in &lan.hosts {
            host.fault("udp dport != 0 numgen random mod 100 < 5 counter name hits drop");
        }
        let publishing = peers[0].publish("work", COUNT, 2_000);
        let mut given: BTreeMap<u64, u32> = BTreeMap::new();
        let mut take = |numbers: Vec<u64>| {
            numbers.into_iter().for_each(|number| *given.entry(number).or_default() += 1);
            given.len() as u64
        };
        // Each host has a member for most of the time, and none for some of it.
        let mut left = 0;
        for number in [2, 3].into_iter().cycle() {
            let oldest = members.pop_front().expect("there are members");
            let total = take(leave(oldest));
            left += 1;
            if COUNT / 2 < total {
                break;
            }
            members.push_back(join(number));
        }
        publishing.finish();
        let counted = || ["queue_lost", "queue_unserved"].map(|name| peers[0].counter(name)).iter().sum::<u64>();
        assert_eq!(peers[0].counter("queue_uncertain"), 0);
        println!("{left} members left, {} messages counted", counted());
        let mut total = take(Vec::new());
        wait_until("each message is served or counted", || {
            for member in &mut members {
                while let Some((_, payload)) = member.message_within(std::time::Duration::ZERO) {
                    total = take(vec![std::str::from_utf8(&payload).expect("text").parse().expect("a number")]);
                }
            }
            total + counted() == COUNT
        });
        assert!(20 < lan.hosts.iter().map(|host| host.heal()).sum::<u64>(), "the fault was there");
        assert!(given.values().all(|count| *count == 1), "no message goes to two members");
        assert!(10 < left, "{left} members left");
    });
}
