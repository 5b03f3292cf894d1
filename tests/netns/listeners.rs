//! Programs with published client libraries, each at the listener of the peer on its own host, across the LAN.

use super::client::{Client, Library};
use super::lan::{Host, Lan, Peer, in_namespaces};
use super::{ONE_IN_TEN, group};
use crate::listeners::client::{ListenerClient, Nats};
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Starts a peer with both listeners on each of the hosts.
fn start(hosts: &[Host], settings: &[&str]) -> Vec<Peer> {
    let settings = [&["nats=on", "redis=on"], settings].concat();
    let peers: Vec<Peer> = hosts
        .iter()
        .enumerate()
        .map(|(index, host)| host.start_peer(&format!("P{}", index + 1), group(), &settings))
        .collect();
    wait_until("all know each other", || peers.iter().all(|peer| peer.rows("peers").len() + 1 == peers.len()));
    peers
}

/// Starts one client of each library, on the hosts in turn.
fn clients(hosts: &[Host]) -> Vec<Client> {
    Library::ALL.iter().zip(hosts.iter().cycle()).map(|(library, host)| library.start(host)).collect()
}

#[test]
fn clients_of_every_library_reach_each_other() {
    in_namespaces("netns::listeners::clients_of_every_library_reach_each_other", || {
        let lan = Lan::new(3);
        let _peers = start(&lan.hosts, &[]);
        let mut clients = clients(&lan.hosts);
        for client in &mut clients {
            client.subscribe("news.all", 1);
        }
        for (index, library) in Library::ALL.iter().enumerate() {
            let headers = library.is_nats().then(|| json!({ "from": format!("{library:?}") }));
            clients[index].act(json!({
                "do": "pub", "subject": "news.all", "data": format!("{library:?}"), "headers": headers
            }));
            for client in &clients {
                client.await_messages(1, index + 1);
            }
        }
        let expected: Vec<String> = Library::ALL.iter().map(|library| format!("{library:?}")).collect();
        for client in &clients {
            assert_eq!(client.messages(1), expected, "{:?}", client.library);
            if client.library.is_nats() {
                let output = client.output();
                let headers: Vec<&Value> =
                    output.iter().filter(|line| line["msg"] == 1).map(|line| &line["headers"]["from"]).collect();
                let expected =
                    |library: &Library| if library.is_nats() { json!(format!("{library:?}")) } else { Value::Null };
                assert!(headers.into_iter().eq(Library::ALL.iter().map(expected).collect::<Vec<_>>().iter()));
            }
        }
        let [.., last] = &lan.hosts[..] else { unreachable!("there are three") };
        assert_eq!(last.run("redis-cli", &["PUBLISH", "news.all", "cli"]).trim(), "7", "receivers on the whole LAN");
        for client in &clients {
            assert_eq!(client.await_messages(1, 8)[7], "cli");
        }
    });
}

#[test]
fn patterns_match_messages_of_other_hosts() {
    in_namespaces("netns::listeners::patterns_match_messages_of_other_hosts", || {
        let lan = Lan::new(3);
        let _peers = start(&lan.hosts, &[]);
        let mut clients = clients(&lan.hosts);
        for client in &mut clients {
            match client.library.is_nats() {
                true => {
                    client.subscribe("plant.*.temp", 1);
                    client.subscribe("plant.>", 2);
                }
                false => {
                    for (pattern, id) in [("plant.?.temp", 1), ("plant.*", 2), ("pl[abc]nt.[^x]*", 3)] {
                        client.act(json!({ "do": "psub", "subject": pattern, "id": id }));
                        client.wait_for("it is subscribed", |line| line["to"] == pattern);
                    }
                }
            }
        }
        let mut publisher = Library::NatsPy.start(&lan.hosts[1]);
        for subject in ["plant.a.temp", "plant.ab.temp", "plant.x.temp.max", "plants", "plant.x", "plant.z"] {
            publisher.act(json!({ "do": "pub", "subject": subject, "data": subject }));
        }
        for client in &clients {
            let is_nats = client.library.is_nats();
            client.await_messages(2, 5);
            assert_eq!(client.messages(2), ["plant.a.temp", "plant.ab.temp", "plant.x.temp.max", "plant.x", "plant.z"]);
            let first = if is_nats { &["plant.a.temp", "plant.ab.temp"][..] } else { &["plant.a.temp"] };
            client.await_messages(1, first.len());
            assert_eq!(client.messages(1), first, "{:?}", client.library);
            if !is_nats {
                client.await_messages(3, 3);
                assert_eq!(client.messages(3), ["plant.a.temp", "plant.ab.temp", "plant.z"], "{:?}", client.library);
            }
        }
    });
}

#[test]
fn requests_are_answered_by_other_hosts_or_refused() {
    in_namespaces("netns::listeners::requests_are_answered_by_other_hosts_or_refused", || {
        let lan = Lan::new(3);
        let _peers = start(&lan.hosts, &[]);
        for (index, library) in Library::NATS.iter().enumerate() {
            let mut responder = library.start(&lan.hosts[2]);
            let subject = format!("svc.{index}");
            responder.act(json!({ "do": "answer", "subject": subject }));
            for library in Library::NATS {
                let mut requester = library.start(&lan.hosts[0]);
                wait_until("the responder is known", || requester.request(&subject, "x") == Ok("re:x".to_owned()));
                assert_eq!(requester.request("svc.nobody", "x"), Err("no responders".to_owned()), "{library:?}");
            }
        }
    });
}

#[test]
fn each_message_reaches_one_queue_group_member() {
    in_namespaces("netns::listeners::each_message_reaches_one_queue_group_member", || {
        let lan = Lan::new(3);
        let peers = start(&lan.hosts, &[]);
        let mut members: Vec<Client> = Vec::new();
        for library in Library::NATS {
            for host in &lan.hosts[1..] {
                let mut member = library.start(host);
                member.act(json!({ "do": "sub", "subject": "work.*", "queue": "q", "id": 1 }));
                members.push(member);
            }
        }
        let mut publishers = [Library::NatsPy.start(&lan.hosts[0]), Library::NodeRedis.start(&lan.hosts[1])];
        let known = |peer: &Peer| {
            let rows = peer.rows("interest").into_iter().filter(|row| row["queue"] == "q");
            rows.map(|row| row["subscriptions"].as_u64().expect("a number")).sum::<u64>()
        };
        wait_until("the members are known", || peers.iter().map(known).collect::<Vec<_>>() == [6, 3, 3]);
        for (publisher, name) in publishers.iter_mut().zip(["a", "b"]) {
            publisher.act(json!({ "do": "pub", "subject": format!("work.{name}"), "data": name, "count": 600 }));
        }
        let total = || members.iter().map(|member| member.messages(1).len()).sum::<usize>();
        wait_until("all the work is given out", || 1200 <= total());
        let mut given: BTreeMap<String, usize> = BTreeMap::new();
        for member in &members {
            let messages = member.messages(1);
            assert!(100 < messages.len(), "{:?} got only {} of 1200", member.library, messages.len());
            messages.into_iter().for_each(|message| *given.entry(message).or_default() += 1);
        }
        assert_eq!((given.len(), total()), (1200, 1200), "each of them once");
    });
}

#[test]
fn clients_reconnect_after_a_kill_of_their_peer() {
    in_namespaces("netns::listeners::clients_reconnect_after_a_kill_of_their_peer", || {
        let lan = Lan::new(3);
        let mut peers = start(&lan.hosts, &[]);
        let mut clients: Vec<Client> = Library::ALL.iter().map(|library| library.start(&lan.hosts[0])).collect();
        for client in &mut clients {
            client.subscribe("news.all", 1);
        }
        let mut publisher = Library::AsyncNats.start(&lan.hosts[1]);
        peers[0].kill();
        peers[0] = lan.hosts[0].start_peer("P1", group(), &["nats=on", "redis=on"]);
        wait_until("all clients are back", || {
            let subs = peers[0].rows("subs");
            subs.iter().filter(|row| row["pattern"] == "news.all").count() == Library::ALL.len()
        });
        let mut number = 0;
        wait_until("messages come again", || {
            number += 1;
            publisher.act(json!({ "do": "pub", "subject": "news.all", "data": number.to_string() }));
            clients.iter().all(|client| !client.messages(1).is_empty())
        });
    });
}

#[test]
fn clients_miss_nothing_at_ten_percent_loss() {
    in_namespaces("netns::listeners::clients_miss_nothing_at_ten_percent_loss", || {
        let lan = Lan::new(3);
        let peers = start(&lan.hosts, &["reliability=10 sec"]);
        let mut clients = clients(&lan.hosts);
        for client in &mut clients {
            client.subscribe("flow.a", 1);
            client.subscribe("flow.b", 2);
        }
        let mut publishers = [Library::AsyncNats.start(&lan.hosts[0]), Library::RedisPy.start(&lan.hosts[1])];
        for host in &lan.hosts {
            host.fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop"));
        }
        // Messages of this size fill several times the datagrams that the losses below need.
        let text = "n".repeat(40);
        for (publisher, subject) in publishers.iter_mut().zip(["flow.a", "flow.b"]) {
            publisher.begin(json!({ "do": "pub", "subject": subject, "data": text, "count": 10_000 }));
        }
        publishers.iter().for_each(Client::finish);
        let expected: Vec<String> = (0..10_000).map(|number| format!("{text}{number}")).collect();
        for client in &clients {
            for id in [1, 2] {
                let messages = client.await_messages(id, expected.len());
                assert!(messages == expected, "{:?}: all of them in order, once", client.library);
            }
        }
        assert!(lan.hosts.iter().map(Host::heal).sum::<u64>() > 20, "the fault was there");
        for peer in &peers {
            assert!(peer.rows("loss").iter().all(|row| row["msg_loss"]["count"] == 0));
        }
    });
}

#[test]
fn clients_receive_loss_reports() {
    in_namespaces("netns::listeners::clients_receive_loss_reports", || {
        let lan = Lan::new(2);
        let _peers = start(&lan.hosts, &["nats-headers=yes"]);
        let mut subscribers: Vec<Client> = Library::ALL.iter().map(|library| library.start(&lan.hosts[1])).collect();
        const ADVISORY: &str = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST";
        for client in &mut subscribers {
            client.subscribe("flow.a", 1);
            client.subscribe(ADVISORY, 2);
        }
        let mut publisher = Library::NatsPy.start(&lan.hosts[0]);
        let mut publish = |data: &str, count: usize| {
            publisher.act(json!({ "do": "pub", "subject": "flow.a", "data": data, "count": count }));
        };
        publish("a", 10);
        subscribers.iter().for_each(|client| drop(client.await_messages(1, 10)));
        lan.hosts[1].fault("udp dport 7500 counter name hits drop");
        publish("b", 25);
        wait_until("it was dropped", || 0 < lan.hosts[1].hits());
        lan.hosts[1].heal();
        publish("c", 10);
        for client in &subscribers {
            let messages = client.await_messages(1, 20);
            assert!(messages[..10].iter().all(|data| data.starts_with('a')) && messages[10] == "c0");
            client.wait_for("the loss is reported to it", |line| {
                let advisory = line["data"].as_str().filter(|_| line["msg"] == 2);
                let advisory: Value = advisory.map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"));
                advisory["lost"] == 25 && advisory["sub1"] == "flow.a" && advisory["lost1"] == 25
            });
            if client.library.is_nats() {
                let lines = client.output();
                let of_first =
                    |data: &str| lines.iter().find(|line| line["data"] == data).expect("it came")["headers"].clone();
                assert_eq!(of_first("c0")["Seqcast-Lost"], "25", "{:?}", client.library);
                let headers = of_first("c1");
                assert!(headers.get("Seqcast-Lost").is_none() && headers["Seqcast-Publisher"] == "P1", "{headers}");
                assert!(headers["Seqcast-Seq"].is_string(), "{headers}");
            }
        }
    });
}

#[test]
fn any_nats_client_polls_a_history() {
    in_namespaces("netns::listeners::any_nats_client_polls_a_history", || {
        let lan = Lan::new(2);
        let peers = start(&lan.hosts, &["nats-headers=yes"]);
        for library in Library::NATS {
            let mut client = library.start(&lan.hosts[1]);
            let subject = format!("hist.{library:?}");
            client.subscribe(&subject, 1);
            wait_until("the subscription is known", || {
                peers[0].publish_one(&subject, "one");
                !client.messages(1).is_empty()
            });
            let first = client.wait_for("it comes", |line| line["msg"] == 1);
            peers[0].publish_one(&subject, "two");
            // Every message names its offset; the poll with it returns the message behind it.
            let offset = first["headers"]["Seqcast-Offset"].as_str().expect("the offset stands in a header").to_owned();
            let next = client.request(&format!("_POLL.P1.{subject}"), &offset).expect("P1 answers");
            assert_eq!(next, client.await_messages(1, 2)[1], "{library:?}");
        }
    });
}

#[test]
fn request_after_flush_gets_no_503_under_loss() {
    in_namespaces("netns::listeners::request_after_flush_gets_no_503_under_loss", || {
        const ROUNDS: u32 = 300;
        let lan = Lan::new(2);
        let _peers = start(&lan.hosts, &["nats=0.0.0.0", "nats-open=yes", "reliability=10 sec"]);
        let [mut requester, mut responder] = [1, 2].map(|number| {
            let mut client = ListenerClient::connect_to(Nats, SocketAddr::from(([10, 75, 0, number], 4222)));
            client.enter();
            client
        });
        requester.subscribe("_INBOX.1", 1);
        for host in &lan.hosts {
            host.fault("udp dport != 0 numgen random mod 100 < 5 counter name hits drop");
        }
        let mut refused = Vec::new();
        for round in 0..ROUNDS {
            responder.subscribe(&format!("work.{round}"), 1 + round);
            requester.send(format!("PUB work.{round} _INBOX.1 1\r\nx\r\n"));
            // Before the responder sends anything, only the status 503 can come.
            let is_refused = requester.message_within(Duration::from_millis(5)).is_some();
            responder.message();
            if is_refused {
                refused.push(round);
            } else {
                responder.send(Nats.publish("_INBOX.1", "re"));
                assert_eq!(requester.message().1, b"re");
            }
        }
        assert!(20 < lan.hosts.iter().map(Host::heal).sum::<u64>(), "the fault was there");
        assert!(refused.is_empty(), "{} of {ROUNDS} requests got 503: {refused:?}", refused.len());
    });
}
