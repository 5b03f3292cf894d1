//! Limits on connections and on the time for authentication, and addresses that a listener may not use.

use super::Peer;
use super::client::{ListenerClient, Nats, Protocol, Redis, command};
use crate::support::command::{Place, RunningCommand, now};
use crate::support::wait::wait_until;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

const ACCOUNT: &str = "accounts=user alice password s3cret";

#[test]
fn unauthenticated_client_is_closed_in_time() {
    let peer = Peer::start(&[ACCOUNT]);
    let begun = now();
    let mut nats = peer.connect(Nats);
    let mut redis = peer.connect(Redis);
    // Sending something else, or half of it, gains no time.
    nats.send(b"CONNECT {\"user\":\"ali");
    redis.send(b"*3\r\n$4\r\nAUTH\r\n");
    assert!(nats.rest().ends_with("\r\n-ERR 'Authentication Timeout'\r\n"));
    assert!(Duration::from_secs(2) <= now().since(begun));
    assert_eq!(redis.rest(), "-ERR no password came in time\r\n");
    assert!(Duration::from_secs(10) <= now().since(begun));
    for protocol in Protocol::ALL {
        assert_eq!((peer.count(protocol, "unauthorized"), peer.count(protocol, "clients")), (1, 0));
    }
}

#[test]
fn connections_beyond_the_limit_are_refused_and_counted() {
    const CLIENTS: usize = 8;
    const FLOOD: usize = 1000;
    let peer = Peer::start(&["listener-client-max=8"]);
    let mut clients: Vec<ListenerClient> = (0..CLIENTS).map(|index| peer.client(Protocol::ALL[index % 2])).collect();
    clients[0].subscribe("a", 1);
    for index in 0..2 * FLOOD {
        let (protocol, text) = match index % 2 {
            0 => (Nats, "-ERR 'maximum connections exceeded'\r\n"),
            _ => (Redis, "-ERR max number of clients reached\r\n"),
        };
        assert_eq!(peer.connect(protocol).rest(), text);
        if index % 100 == 0 {
            clients[1].send(Redis.publish("a", "x"));
            clients[1].expect(":1");
            assert_eq!(clients[0].message().0, "a");
        }
    }
    for protocol in Protocol::ALL {
        assert_eq!(peer.count(protocol, "refused"), FLOOD as u64);
        assert_eq!(peer.count(protocol, "clients"), CLIENTS as u64 / 2);
    }
    drop(clients.pop());
    wait_until("its place is free", || peer.count(Redis, "clients") < CLIENTS as u64 / 2);
    peer.client(Nats).settle();
}

#[test]
fn repeated_connections_leave_nothing_behind() {
    const FLOOD: u64 = 4000;
    let peer = Peer::start(&[]);
    let mut clients = Protocol::ALL.map(|protocol| peer.client(protocol));
    clients[0].subscribe("a", 1);
    let process = peer.place.show("status")["status"]["pid"].to_string();
    let open_files = || std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count();
    let before = open_files();
    for index in 0..FLOOD {
        let protocol = Protocol::ALL[index as usize % 2];
        let mut client = peer.connect(protocol);
        // Some send nothing, some the half of something, some all of it; none waits for an answer.
        match index % 6 / 2 {
            0 => {}
            1 => client.try_send(b"PUB"),
            _ => client.try_send(protocol.publish("b", "x")),
        }
        if index % 100 == 0 {
            clients[1].send(Redis.publish("a", "x"));
            clients[1].expect(":1");
            assert_eq!(clients[0].message().0, "a");
        }
    }
    for protocol in Protocol::ALL {
        wait_until("all of them are gone", || peer.count(protocol, "clients") == 1);
        assert_eq!(peer.count(protocol, "accepted"), FLOOD / 2 + 1);
    }
    wait_until("no file is left open", || open_files() <= before);
}

/// Starts a peer with a limit of `files` open files.
fn with_files(files: u32) -> Peer {
    let place = Place::new();
    let seqcast = env!("CARGO_BIN_EXE_seqcast");
    let arguments =
        ["-c", "ulimit -Sn $0 && exec \"$@\"", &files.to_string(), seqcast, "peer", "--nats", "0", "--redis", "0"];
    let mut command = Command::new("sh");
    place.set_environment(command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let process = RunningCommand::new(command.spawn().expect("every system has a shell"), &arguments);
    process.await_report("peer started");
    Peer::at(place, process)
}

#[test]
fn peer_raises_and_respects_its_file_limit() {
    let peer = with_files(64);
    let mut clients: Vec<ListenerClient> = (0..200).map(|index| peer.client(Protocol::ALL[index % 2])).collect();
    clients[0].subscribe("a", 1);
    // No more connections from now on: new ones wait, no other client notices, and the log stays short.
    let pid = peer.place.show("status")["status"]["pid"].to_string();
    let limit = |files: usize| {
        let outcome = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={files}:")]).status();
        assert!(outcome.expect("prlimit is installed").success());
    };
    let open_files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
    limit(open_files);
    let mut waiting: Vec<ListenerClient> = (0..100).map(|_| peer.connect(Nats)).collect();
    for _ in 0..10 {
        clients[1].send(Redis.publish("a", "x"));
        clients[1].expect(":1");
        assert_eq!(clients[0].message().0, "a");
    }
    let reports = peer.process.stderr_so_far().iter().filter(|line| line.contains("client not accepted")).count();
    assert!((1..=8).contains(&reports), "{reports} lines");
    limit(1024);
    drop(clients.pop());
    for client in &mut waiting {
        assert!(client.line().starts_with("INFO {"));
    }
    assert!((1..=101).contains(&peer.count(Nats, "accept_failures")));
}

#[test]
fn unauthenticated_flood_leaves_room_for_authenticated_clients() {
    const FLOOD: usize = 2000;
    let peer = Peer::start(&[ACCOUNT, "listener-unauthenticated-max=16"]);
    let mut admitted = peer.connect(Redis);
    admitted.send(b"AUTH alice s3cret\r\n");
    admitted.expect("+OK");
    admitted.subscribe("a", 0);
    let unauthenticated: Vec<ListenerClient> = (0..FLOOD).map(|index| peer.connect(Protocol::ALL[index % 2])).collect();
    let both = |what: &str| Protocol::ALL.iter().map(|protocol| peer.count(*protocol, what)).sum::<u64>();
    wait_until("all of them have been taken in", || both("accepted") == FLOOD as u64 + 1);
    let mut authenticating = peer.connect(Nats);
    authenticating.send(b"CONNECT {\"verbose\":false,\"user\":\"alice\",\"pass\":\"s3cret\"}\r\n");
    assert!(authenticating.line().contains("\"auth_required\":true"));
    authenticating.settle();
    authenticating.send(Nats.publish("a", "x"));
    assert_eq!(admitted.message(), ("a".into(), b"x".into()));
    assert!(both("clients") <= 16 + 2);
    // The oldest connections were evicted.
    assert!(FLOOD as u64 - 16 <= both("unauthorized"), "{}", both("unauthorized"));
    drop(unauthenticated);
    wait_until("they are gone", || both("clients") == 2);
}

/// The requests are short, and the client does not read the answers.
#[test]
fn repeated_long_lists_do_not_delay_others() {
    const CHANNELS: usize = 20_000;
    let peer = Peer::start(&[]);
    let mut subscriber = peer.client(Redis);
    let names: Vec<String> = (0..CHANNELS).map(|number| format!("channel.{number}")).collect();
    let words: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    subscriber.send(command(&[&[&b"SUBSCRIBE"[..]], &words[..]].concat()));
    (0..CHANNELS).for_each(|_| drop(subscriber.push()));
    let (mut requester, mut other) = (peer.client(Redis), peer.client(Nats));
    requester.send(b"CLIENT REPLY OFF\r\n");
    requester.send(b"PUBSUB NUMPAT\r\n".repeat(8000));
    let begun = now();
    (0..5).for_each(|_| other.settle());
    assert!(now().since(begun) < Duration::from_secs(2), "{:?}", now().since(begun));
    // The requests are answered all the same.
    drop(subscriber);
    requester.send(b"CLIENT REPLY ON\r\nPUBSUB NUMPAT\r\n");
    requester.expect("+OK");
    requester.expect(":0");
}

#[test]
fn expensive_globs_are_refused() {
    const GLOBS: usize = 10_000;
    let peer = Peer::start(&[]);
    let mut slow = peer.client(Redis);
    slow.send(b"HELLO 3\r\n");
    slow.expect("%7");
    slow.settle_after_hello();
    let (mut refused, mut text) = (0, String::new());
    for number in 0..GLOBS {
        slow.send(command(&[b"PSUBSCRIBE", format!("*{}b{number}*", "a".repeat(120)).as_bytes()]));
        if number % 100 == 99 {
            slow.send(b"ECHO settled\r\n");
            while text != "settled" {
                text = slow.line();
                refused += usize::from(text.starts_with("-ERR globs may take at most 2500000 steps"));
            }
            text.clear();
        }
    }
    assert!((9_900..GLOBS).contains(&refused), "{refused}");
    let rows = peer.rows("subs");
    assert_eq!(rows.len(), GLOBS - refused);
    let mut publisher = peer.client(Redis);
    let begun = now();
    publisher.send(Redis.publish(&"a".repeat(255), "x"));
    publisher.expect(":0");
    assert!(now().since(begun) < Duration::from_secs(1), "{:?}", now().since(begun));
    // Other clients may still have some.
    publisher.send(command(&[b"PSUBSCRIBE", b"a*"]));
    assert_eq!(publisher.push()[0], b"psubscribe");
    slow.send(Redis.publish("a", "x"));
    slow.expect(":1");
}

#[test]
fn occupied_port_is_named_with_the_remedy() {
    let place = Place::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    for protocol in ["nats", "redis"] {
        let arguments = ["peer", &format!("--{protocol}"), &address.port().to_string()];
        place.run(&arguments).exits(1).reports(&[
            &format!("another program listens at {address}"),
            &format!("write another address for the {protocol} listener, such as {protocol}: "),
        ]);
    }
}

#[test]
fn reachable_listener_needs_accounts_or_permission() {
    let place = Place::new();
    for protocol in ["nats", "redis"] {
        let flag = format!("--{protocol}");
        let open = format!("{protocol}-open");
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1"] {
            place.run(&["peer", &flag, address]).exits(3).reports(&["accounts", &format!("{open}: yes")]);
        }
        for setting in [ACCOUNT.to_owned(), format!("{open}=yes")] {
            let mut peer = place.peer(&[&flag, "0.0.0.0:0", "--set", &setting]);
            let status = place.show("status");
            let address = status["status"]["listeners"][0]["address"].as_str().unwrap();
            assert!(address.starts_with("0.0.0.0:"), "{address}");
            peer.signal("TERM");
            assert_eq!(peer.ended().code(), Some(0));
        }
    }
}
