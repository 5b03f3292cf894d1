//! Programs on several hosts that share the messages of a subject as a queue group.

use super::lan::{Lan, Peer, Process, in_namespaces, until};
use super::{ONE_IN_TEN, group};
use serde_json::Value;

/// The numbers of the messages that a subscriber printed; it may print nothing else.
fn numbers(member: &Process) -> Vec<u64> {
    let number = |line: &String| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(event["type"], "message", "{line}");
        event["payload"].as_str().expect("a payload of text").parse().expect("a number")
    };
    member.lines().iter().map(number).collect()
}

#[test]
fn members_on_three_hosts_share_the_messages_and_none_is_missing_or_twice() {
    in_namespaces("netns::queue::members_on_three_hosts_share_the_messages_and_none_is_missing_or_twice", || {
        let lan = Lan::new(3);
        let settings = ["reliability=10 sec"];
        let peers: Vec<Peer> = ["P1", "P2", "P3"]
            .into_iter()
            .zip(&lan.hosts)
            .map(|(name, host)| host.start_peer(name, group(), &settings))
            .collect();
        until("all know each other", || peers.iter().all(|peer| peer.rows("peers").len() == 2));
        let members: Vec<Process> = [0, 1, 1, 2].into_iter().map(|host| peers[host].join("work.*", "q")).collect();
        let all = peers[2].subscribe("work.a");
        let known = |peer: &Peer| {
            let rows = peer.rows("interest").into_iter().filter(|row| row["queue"] == "q");
            rows.map(|row| row["subscriptions"].as_u64().expect("a number")).sum::<u64>()
        };
        until("the members are known", || peers.iter().map(known).collect::<Vec<_>>() == [3, 2, 3]);
        for host in &lan.hosts {
            host.fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop"));
        }
        let publishing = [0, 1].map(|host| peers[host].publish("work.a", 2_000, 2_000));
        publishing.into_iter().for_each(Process::finish);
        let total = || members.iter().map(|member| numbers(member).len()).sum::<usize>();
        until("all is given out", || 4_000 <= total() && 4_000 <= all.lines().len());
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
        assert_eq!(numbers(&all).len(), 4_000, "who is in no group gets all");
    });
}
