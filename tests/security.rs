//! Keyed peers: members of a realm, strangers, and the same ciphers of other implementations.

use crate::support::command::{Place, RunningCommand};
use crate::support::exit_code::{CONFIGURATION, DONE};
use crate::support::root;
use crate::support::wait::{wait_until, wait_until_some};
use serde_json::Value;
use std::fs::File;
use std::process::Command;

/// A peer of a host of its own, in the group of a place.
struct Peer<'a> {
    place: &'a Place,
    socket: String,
    _process: RunningCommand,
}

impl<'a> Peer<'a> {
    fn start(place: &'a Place, name: &str, settings: &[&str]) -> Peer<'a> {
        let (socket, data_dir) = (format!("{name}.sock"), format!("data-dir={name}"));
        let mut arguments = vec!["peer", "--name", name, "--socket", &socket, "--set", &data_dir];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let process = place.start(&arguments);
        process.await_report("peer started");
        Peer { place, socket, _process: process }
    }

    fn show(&self, report: &str) -> Value {
        let outcome = self.place.run(&["show", report, "--json", "--socket", &self.socket]).exits(DONE);
        crate::support::command::parse_json(&outcome.stdout)
    }

    fn counter(&self, name: &str) -> u64 {
        let rows = self.show("counters")["rows"].take();
        let row = rows.as_array().unwrap().iter().find(|row| row["counter"] == name);
        row.unwrap_or_else(|| panic!("{name} in {rows}"))["value"].as_u64().unwrap()
    }

    /// Returns the names of the other peers that are up.
    fn peers(&self) -> Vec<String> {
        let rows = self.show("peers")["rows"].take();
        let up = rows.as_array().unwrap().iter().filter(|row| row["state"] == "up");
        up.map(|row| row["publisher"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// Makes a realm for the first name, which the others join.
fn make_realm(place: &Place, names: &[&str]) {
    place.run(&["init", "--realm", "plant1", "--name", names[0], "--data-dir", names[0]]).exits(DONE);
    let line = place.run(&["realm", "invite", "--data-dir", names[0]]).exits(DONE).stdout;
    for name in &names[1..] {
        place.run_with_input(&["join", "-", "--name", name, "--data-dir", name], line.as_bytes()).exits(DONE);
    }
}

/// Makes a realm with an authority on the host of the first name, which admits the others.
fn make_pki_realm(place: &Place, names: &[&str]) {
    let first = names[0];
    place.run(&["init", "--realm", "plant1", "--mode", "pki", "--name", first, "--data-dir", first]).exits(DONE);
    let line = place.run(&["realm", "invite", "--data-dir", first]).exits(DONE).stdout;
    for name in &names[1..] {
        let join = |line: &str| {
            place.run_with_input(&["join", "-", "--name", name, "--data-dir", name], line.as_bytes()).exits(DONE).stdout
        };
        let request = join(&line);
        let sign = ["realm", "sign", "-", "--name", name, "--publish", ">", "--subscribe", ">", "--data-dir", first];
        join(&place.run_with_input(&sign, request.as_bytes()).exits(DONE).stdout);
    }
}

#[test]
fn members_of_a_realm_exchange_messages() {
    let place = Place::new();
    make_realm(&place, &["A.test", "B.test"]);
    let a = Peer::start(&place, "A.test", &["cipher=chacha20-poly1305", "origin=signed"]);
    let b = Peer::start(&place, "B.test", &["cipher=aes-256-gcm"]);
    for (peer, cipher, origin) in [(&a, "chacha20-poly1305", "signed"), (&b, "aes-256-gcm", "group")] {
        let status = peer.show("status")["status"].take();
        let expected = (&"realm".into(), &"plant1".into(), &cipher.into(), &origin.into());
        let found = (&status["security"], &status["realm"], &status["cipher"], &status["origin"]);
        assert_eq!(found, expected, "{status}");
    }
    wait_until("each knows the other", || a.peers() == ["B.test"] && b.peers() == ["A.test"]);
    let mut subscriber = place.start(&["sub", "plant.>", "--count", "1000", "--socket", &b.socket]);
    subscriber.await_report("listening on");
    place.run(&["pub", "plant.a", "hello", "--count", "1000", "--socket", &a.socket]).exits(DONE);
    assert_eq!(subscriber.ended().code(), Some(DONE));
    // Requests and replies go to one peer alone.
    let responder = place.start(&["reply", "service.echo", "pong", "--socket", &b.socket]);
    responder.await_report("service.echo");
    let reply = place.run(&["req", "service.echo", "ping", "--socket", &a.socket]).exits(DONE).stdout;
    assert!(reply.contains("pong"), "{reply}");
    let lost = a.show("loss")["rows"].take();
    assert!(lost.as_array().unwrap().iter().all(|row| row["lost"] == 0), "{lost}");
    for peer in [&a, &b] {
        assert_eq!(peer.counter("keyed_authenticated"), 1);
        assert_eq!(peer.counter("keyed_discard_forged"), 0);
    }
    wait_until("the signatures of A are verified", || 0 < b.counter("origin_verified"));
    assert_eq!((b.counter("origin_forged"), a.counter("origin_verified")), (0, 0), "B does not sign");
    for (peer, origin) in [(&a, "group"), (&b, "publisher")] {
        assert_eq!(peer.show("peers")["rows"][0]["origin"], origin);
    }
}

#[test]
fn followed_events_need_the_permission_of_their_server() {
    let place = Place::new();
    let run = |arguments: &[&str], input: &str| place.run_with_input(arguments, input.as_bytes()).exits(DONE).stdout;
    run(&["init", "--realm", "plant1", "--mode", "pki", "--name", "A.test", "--data-dir", "A.test"], "");
    let join = ["join", "-", "--name", "B.test", "--data-dir", "B.test"];
    let request = run(&join, &run(&["realm", "invite", "--data-dir", "A.test"], ""));
    let admit = |publish: &str| {
        let permissions = ["--publish", publish, "--subscribe", ">"];
        let sign = [&["realm", "sign", "-", "--name", "B.test", "--data-dir", "A.test"], &permissions[..]].concat();
        run(&join, &run(&sign, &request));
    };
    admit(">");
    let b = Peer::start(&place, "B.test", &["server-id=7"]);
    for event_type in ["cmd/stop", "line/1"] {
        place.run(&["event", "add", event_type, "1", "--socket", &b.socket]).exits(DONE);
    }
    drop(b);
    // The next certificate of B does not permit everything that B has registered.
    admit("line.>");
    let _b = Peer::start(&place, "B.test", &["server-id=7"]);
    let a = Peer::start(&place, "A.test", &["server-id=8", "event-follow=*"]);
    let counts = || ["events_followed", "events_denied"].map(|counter| a.counter(counter));
    wait_until("A has stored one of the two events", || counts() == [1, 1]);
    let found = place.run(&["event", "query", "--json", "--socket", &a.socket]).exits(DONE).stdout;
    assert!(found.contains("line/1") && !found.contains("cmd/stop"), "{found}");
}

#[test]
fn open_and_keyed_peers_ignore_each_other() {
    let place = Place::new();
    make_realm(&place, &["A.test", "B.test"]);
    let keyed = Peer::start(&place, "A.test", &[]);
    // The same files, but the configuration says open.
    let open = Peer::start(&place, "B.test", &["security=open"]);
    let status = open.show("status")["status"].take();
    assert_eq!((&status["security"], &status["realm"]), (&"open".into(), &Value::Null), "{status}");
    wait_until("each has discarded datagrams of the other", || {
        0 < keyed.counter("keyed_discard_open") && 0 < open.counter("discard_mode")
    });
    assert_eq!((keyed.peers(), open.peers()), (Vec::new(), Vec::new()));
}

#[test]
fn peer_without_its_wanted_realm_does_not_start() {
    let place = Place::new();
    make_realm(&place, &["A.test"]);
    let start = |settings: &[&str]| {
        let mut arguments = vec!["peer"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        place.run(&arguments).exits(CONFIGURATION)
    };
    start(&["security=realm", "data-dir=nothing"]).reports(&["no realm", "seqcast init", "seqcast join"]);
    start(&["name=A.test", "security=pki", "data-dir=A.test"]).reports(&["of the mode realm, not pki"]);
    let name = ["the certificate of this host is for the name A.test", "names this peer B.test", "--name A.test"];
    start(&["name=B.test", "data-dir=A.test"]).reports(&name);
    std::fs::write(place.dir().join("A.test/realm/realm.key"), "damaged").unwrap();
    // It does not fall back to open mode.
    start(&["data-dir=A.test"]).reports(&["realm.key"]);
}

#[test]
fn copied_identity_is_named_by_the_others() {
    let place = Place::new();
    make_realm(&place, &["A.test", "B.test"]);
    // Another host takes the name of B with keys of its own.
    let line = place.run(&["realm", "invite", "--data-dir", "A.test"]).exits(DONE).stdout;
    place.run_with_input(&["join", "-", "--name", "B.test", "--data-dir", "C"], line.as_bytes()).exits(DONE);
    let a = Peer::start(&place, "A.test", &[]);
    let b = Peer::start(&place, "B.test", &[]);
    wait_until("A knows B", || a.peers() == ["B.test"]);
    let c = place.start(&["peer", "--name", "B.test", "--socket", "c.sock", "--set", "data-dir=C"]);
    wait_until_some(|| "A refuses the other B".to_owned(), || (0 < a.counter("keyed_refused")).then_some(()));
    assert_eq!(a.peers(), ["B.test"], "the first one");
    drop((b, c));
}

#[test]
fn running_peer_takes_over_a_new_secret() {
    let place = Place::new();
    make_realm(&place, &["A.test", "B.test"]);
    let (a, b) = (Peer::start(&place, "A.test", &[]), Peer::start(&place, "B.test", &[]));
    wait_until("each knows the other", || a.peers() == ["B.test"] && b.peers() == ["A.test"]);
    place.run(&["realm", "rotate", "--data-dir", "A.test"]).exits(DONE).reports(&["seqcast config reload"]);
    let line = place.run(&["realm", "invite", "--data-dir", "A.test"]).exits(DONE).stdout;
    for name in ["B.test", "C.test"] {
        let join = ["join", "-", "--replace-secret", "--name", name, "--data-dir", name];
        place.run_with_input(&join, line.as_bytes()).exits(DONE);
    }
    // A damaged file changes nothing.
    let reload = |peer: &Peer| place.run(&["config", "reload", "--socket", &peer.socket]);
    let certificate = place.dir().join("A.test/realm/certificate");
    let content = std::fs::read(&certificate).unwrap();
    std::fs::write(&certificate, "damaged").unwrap();
    let refused = ["the files of the realm are refused", "realm/certificate", "  fix: "];
    reload(&a).exits(CONFIGURATION).reports(&refused);
    std::fs::write(&certificate, content).unwrap();
    for peer in [&a, &b] {
        reload(peer).exits(DONE).prints("the realm was read again\n  realm: secret\n");
        reload(peer).exits(DONE).prints("the realm was read again\n  nothing changed\n");
    }
    // A peer that starts now has the new secret alone; the others have gone on.
    let c = Peer::start(&place, "C.test", &[]);
    wait_until("both know the new one", || {
        [&a, &b].iter().all(|peer| peer.peers().contains(&"C.test".to_owned())) && c.peers().len() == 2
    });
    let mut subscriber = place.start(&["sub", "plant.>", "--count", "10", "--socket", &b.socket]);
    subscriber.await_report("listening on");
    place.run(&["pub", "plant.a", "hello", "--count", "10", "--socket", &a.socket]).exits(DONE);
    assert_eq!(subscriber.ended().code(), Some(DONE));
    assert!(b.peers().contains(&"A.test".to_owned()), "they have gone on");
}

#[test]
fn revoked_host_is_shut_out_everywhere() {
    let (place, names) = (Place::new(), ["A.test", "B.test", "C.test"]);
    make_pki_realm(&place, &names);
    // The list of revoked hosts is no report.
    let [a, b, c] = names.map(|name| Peer::start(&place, name, &["remote-reports=no"]));
    wait_until("all know each other", || [&a, &b, &c].iter().all(|peer| peer.peers().len() == 2));
    let subscribe = |peer: &Peer| {
        let subscriber = place.start(&["sub", "plant.>", "--socket", &peer.socket]);
        subscriber.await_report("listening on");
        subscriber
    };
    let [at_b, at_c] = [&b, &c].map(subscribe);
    let publish = |peer: &Peer, payload: &str| {
        place.run(&["pub", "plant.a", payload, "--socket", &peer.socket]).exits(DONE);
    };
    let has = |subscriber: &RunningCommand, payload: &str| {
        subscriber.lines_so_far().iter().any(|line| line.contains(payload))
    };
    publish(&a, "before-a");
    publish(&c, "before-c");
    wait_until("messages arrive", || has(&at_b, "before-a") && has(&at_b, "before-c") && has(&at_c, "before-a"));

    let _steady =
        place.start(&["pub", "plant.steady", "x", "--count", "100000", "--rate", "500", "--socket", &a.socket]);
    place.run(&["realm", "revoke", "C.test", "--data-dir", "A.test"]).exits(DONE).reports(&["seqcast config reload"]);
    let reload = place.run(&["config", "reload", "--socket", &a.socket]).exits(DONE);
    reload.prints("the realm was read again\n  realm: revocations\n");
    wait_until("B has the list", || b.show("status")["status"]["revoked_hosts"] == 1);
    assert_eq!((a.counter("keyed_revoked"), b.counter("keyed_revoked")), (1, 1));
    publish(&c, "after-c");
    let discarded = c.counter("keyed_discard_unauthenticated");
    // A was the first to announce new keys; B may use them later.
    wait_until("C does not have A's new keys", || discarded < c.counter("keyed_discard_unauthenticated"));
    publish(&a, "after-a");
    publish(&b, "after-b");
    wait_until("B receives what A publishes", || has(&at_b, "after-a") && has(&at_b, "after-b"));
    assert!(!has(&at_b, "after-c"), "B delivers nothing more of C");
    assert!(!has(&at_c, "after-a"), "C reads nothing more of A");
    for peer in [&a, &b] {
        let rows = peer.show("loss")["rows"].take();
        let honest = rows.as_array().unwrap().iter().filter(|row| row["publisher"] != "C.test");
        honest.for_each(|row| assert_eq!(row["lost"], 0, "{row}"));
    }
    // The list is on the disk of B, too.
    wait_until("B has stored the list", || {
        let shown = place.run(&["realm", "show", "--json", "--data-dir", "B.test"]).exits(DONE).stdout;
        crate::support::command::parse_json(&shown)["revoked"][0]["name"] == "C.test"
    });
}

#[test]
fn known_answers_agree_with_other_implementations() {
    let mut command = Command::new(root().join("target/clients/python/bin/python3"));
    command.arg(root().join("tests/clients/known_answers.py")).stdin(File::open(root().join("docs/wire.md")).unwrap());
    let output = command.output().expect("run tools/test once: it installs the libraries");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "38 values compared");
}
