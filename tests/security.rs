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
fn known_answers_agree_with_other_implementations() {
    let mut command = Command::new(root().join("target/clients/python/bin/python3"));
    command.arg(root().join("tests/clients/known_answers.py")).stdin(File::open(root().join("docs/wire.md")).unwrap());
    let output = command.output().expect("run tools/test once: it installs the libraries");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "38 values compared");
}
