//! `peer` and `config`: the configuration, and the start and the end of a peer.

use crate::support::command::{Outcome, PATIENCE, Place, now, parse_json};
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED, UNREACHABLE};
use crate::support::wait::wait_until;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn checked_configuration_has_no_side_effects() {
    let place = Place::new();
    let file = |name: &str, text: &[u8]| {
        std::fs::write(place.dir().join(name), text).unwrap();
        name.to_owned()
    };
    let good = file("good.yaml", b"parameters:\n  pub-window-size: 10 mb\n  pub_window_time: 60 sec\n");
    let bad = file("bad.yaml", b"parameters:\n  pub-window-tme: 60 sec\n  pub-window-time: 2 sec\n");
    let binary = file("binary.yaml", b"\x7fELF\x00\x01");
    let mixed = file("mixed.yaml", b"parameters:\n  link-live: a.*.c ; b.>\n  link-import: a.b.>\n");
    let before = listing(&place);
    place.run(&["config", "check", &good]).exits(DONE).prints("good.yaml: no errors\n");
    let outcome = place.run(&["config", "check", &bad]).exits(CONFIGURATION);
    let outcome =
        outcome.reports(&["2 errors", "bad.yaml:2:3: pub-window-tme", "pub-window-time", "bad.yaml:3:", "10 sec"]);
    assert_eq!(outcome.stdout, "");
    let json = parse_json(&place.run(&["config", "check", &bad, "--json"]).exits(CONFIGURATION).stdout);
    assert_eq!(json["ok"], false);
    assert_eq!(json["errors"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(json["errors"][0]["line"], 2);
    let checked = place.run(&["config", "check", &mixed]).exits(DONE).stdout;
    let hint = "hint: link-live 'a.*.c' and link-import 'a.b.>' overlap: both match 'a.b.c'\n";
    assert!(checked.starts_with(&format!("mixed.yaml: no errors\n{hint}  why: messages of several")), "{checked}");
    let json = parse_json(&place.run(&["config", "check", &mixed, "--json"]).exits(DONE).stdout);
    assert_eq!((&json["ok"], &json["hints"][0]["common"]), (&true.into(), &"a.b.c".into()), "{json}");
    place.run(&["config", "check", &binary]).exits(CONFIGURATION).reports(&["binary.yaml"]);
    place
        .run(&["config", "check", "missing.yaml"])
        .exits(CONFIGURATION)
        .reports(&["missing.yaml: cannot be read", "\n  fix: name a file"]);
    let shown = place.run(&["config", "show", &good]).exits(DONE).stdout;
    let row = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    assert!(row("pub-window-time").contains("good.yaml:3"), "{shown}");
    assert!(row("port").contains("$SEQCAST_PORT") && row("heartbeat").ends_with("default"), "{shown}");
    let json = parse_json(&place.run(&["config", "show", "--json"]).exits(DONE).stdout);
    assert!(json["keys"].as_array().unwrap().iter().any(|row| row["key"] == "heartbeat"), "{json}");
    assert_eq!(listing(&place), before);
}

#[test]
fn environment_variable_without_key_is_refused() {
    let place = Place::new();
    let check = |name: &str, value: &OsStr| {
        let mut command = place.command(&["config", "show"]);
        Outcome::of(command.env(name, value).output().unwrap(), &["config", "show"])
    };
    check("SEQCAST_PROT", OsStr::new("1")).exits(CONFIGURATION).reports(&["$SEQCAST_PROT: prot: unknown key", "port"]);
    check("SEQCAST_NAME", OsStr::from_bytes(b"a\xffb"))
        .exits(CONFIGURATION)
        .reports(&["$SEQCAST_NAME: name", "not UTF-8"]);
    check("SEQCAST_SUBJECT", OsStr::new("what reply --command says")).exits(DONE);
}

#[test]
fn unusable_listener_files_are_reported_before_it_opens() {
    let place = Place::new();
    let write = |name: &str, text: String| std::fs::write(place.dir().join(name), text).unwrap();
    write("no.pem", "nothing".into());
    write("tls.yaml", "parameters:\n  nats: 0\n  nats-tls: none.pem none.pem\n  redis-tls: no.pem no.pem\n".into());
    let outcome = place.run(&["config", "check", "tls.yaml"]).exits(CONFIGURATION);
    let outcome = outcome.reports(&[
        "2 errors",
        "tls.yaml:3:",
        "nats-tls: cannot read none.pem",
        "redis-tls: no.pem holds no certificate",
    ]);
    assert_eq!(outcome.stdout, "");
    let json = parse_json(&place.run(&["config", "check", "tls.yaml", "--json"]).exits(CONFIGURATION).stdout);
    assert_eq!((&json["ok"], &json["errors"][1]["line"]), (&false.into(), &4.into()), "{json}");
    place.run(&["peer", "--config", "tls.yaml"]).exits(CONFIGURATION).reports(&["nats-tls: cannot read none.pem"]);
}

#[test]
fn unreadable_tls_files_of_each_listener_are_reported() {
    let place = Place::new();
    for key in ["nats-tls", "nats-ws-tls", "redis-tls", "hat-tls", "rv-tls", "ftn18-tls", "http-tls"] {
        let check = |files: &str| {
            std::fs::write(place.dir().join("tls.yaml"), format!("parameters:\n  {key}: {files}\n")).unwrap();
            place.run(&["config", "check", "tls.yaml"])
        };
        check("none").exits(DONE);
        check("none.pem none.pem").exits(CONFIGURATION).reports(&[&format!("{key}: cannot read none.pem")]);
    }
}

/// Returns the process id of a peer.
fn pid(peer: &Place) -> u64 {
    let status = parse_json(&peer.run(&["show", "status", "--json"]).exits(DONE).stdout);
    status["status"]["pid"].as_u64().expect("a number")
}

/// Returns the processor time of a process, in ticks of the system's clock.
fn processor_ticks(pid: u64) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").expect("the name stands in parentheses");
    let fields: Vec<u64> = fields.split(' ').skip(11).take(2).map(|field| field.parse().unwrap()).collect();
    fields.iter().sum()
}

#[test]
fn idle_busy_poll_uses_the_processor() {
    let (busy, idle) = (Place::new(), Place::new());
    let _peers = [busy.peer(&["--set", "busy-poll=1 hour"]), idle.peer(&["--set", "busy-poll=0 sec"])];
    let (busy, idle) = (pid(&busy), pid(&idle));
    wait_until("the busy peer takes a second", || 100 <= processor_ticks(busy));
    let ticks = processor_ticks(idle);
    assert!(ticks < 50, "{ticks} of the idle peer");
}

fn listing(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.dir()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn wrong_configuration_stops_every_command_that_needs_it() {
    let place = Place::new();
    for arguments in [
        &["peer", "--set", "heartbeet=1s"][..],
        &["peer", "--config", "missing.yaml"],
        &["peer", "--port", "70000"],
        &["sub", "a.>", "--embed", "--group", "10.0.0.1"],
    ] {
        place.run(arguments).exits(CONFIGURATION).reports(&["error"]);
    }
    place.run(&["peer", "--set", "heartbeet=1s"]).reports(&["heartbeat"]);
}

#[test]
fn missing_peer_exits_4_with_a_remedy() {
    let place = Place::new();
    for arguments in [
        &["pub", "a.b", "x"][..],
        &["sub", "a.b"],
        &["req", "a.b", "x"],
        &["reply", "a.b", "--echo"],
        &["show", "loss"],
        &["show", "peers", "--json"],
    ] {
        let outcome = place.run(arguments).exits(UNREACHABLE).reports(&["peer.sock", "start one with 'seqcast peer'"]);
        assert_eq!(outcome.stdout, "");
    }
    std::fs::write(place.dir().join("file"), "no socket").unwrap();
    place.run(&["pub", "a.b", "x", "--socket", "file"]).exits(UNREACHABLE).reports(&["file"]);
    // Another user may have put a socket of his own in a directory of the default name.
    let default = format!("seqcast-{}", nix::unistd::getuid());
    std::fs::create_dir(place.dir().join(&default)).unwrap();
    std::fs::set_permissions(place.dir().join(&default), Permissions::from_mode(0o777)).unwrap();
    let socket = format!("{default}/seqcast.sock");
    place.run(&["pub", "a.b", "x", "--socket", &socket]).exits(UNREACHABLE).reports(&["mode 777", "chmod 700"]);
    place.run(&["peer", "--socket", &socket]).exits(FAILED).reports(&["mode 777", "chmod 700"]);
}

#[test]
fn peer_reports_its_choices_and_leaves_on_sigterm() {
    let place = Place::new();
    let mut peer = place.peer(&["--name", "A.test"]);
    let port = place.port().to_string();
    peer.await_report("traffic is not encrypted, and stays on this host");
    let reported = peer.stderr_so_far().join("\n");
    for part in ["peer A.test, epoch", &format!("port {port}: this host only"), "interface  lo 127.0.0.1", "peer.sock"]
    {
        assert!(reported.contains(part), "{part}: {reported}");
    }
    place.run(&["peer", "--name", "B.test"]).exits(FAILED).reports(&["already running", "peer.sock", "--socket"]);
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(DONE));
    assert!(!place.socket().exists(), "the socket stays behind");
}

#[test]
fn peer_with_an_unread_log_keeps_running() {
    let place = Place::new();
    let mut peer = place.command(&["peer"]).spawn().unwrap();
    drop(peer.stderr.take());
    let deadline = now() + PATIENCE;
    let mut published = false;
    while !published && now() < deadline && matches!(peer.try_wait(), Ok(None)) {
        published = place.run(&["pub", "a.b", "x"]).code == Some(DONE);
    }
    let ended = peer.try_wait().unwrap();
    drop(peer.kill());
    peer.wait().unwrap();
    assert!(published && ended.is_none(), "published: {published}, ended: {ended:?}");
}

#[test]
fn unusable_interface_and_port_are_named() {
    let place = Place::new();
    place.run(&["peer", "--interface", "nosuch0"]).exits(UNREACHABLE).reports(&["nosuch0", "lo", "; seqcast doctor"]);
    let busy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let inbox = format!("inbox-port={port}");
    place.run(&["peer", "--set", &inbox]).exits(FAILED).reports(&[&port.to_string()]);
}

#[test]
fn local_socket_has_the_configured_access() {
    let place = Place::new();
    let refused = ["socket-group", "there is no group no-such-group", "groupadd no-such-group"];
    place.run(&["peer", "--set", "socket-group=no-such-group"]).exits(CONFIGURATION).reports(&refused);
    place.run(&["peer", "--set", "socket-mode=0066"]).exits(CONFIGURATION).reports(&["socket-mode", "write 0600"]);
    std::fs::write(place.dir().join("group.yaml"), "parameters:\n  socket-group: no-such-group\n").unwrap();
    place.run(&["config", "check", "group.yaml"]).exits(CONFIGURATION).reports(&refused);
    let own = std::fs::metadata(place.dir()).unwrap();
    // Only root may give the socket to a group of which it is no member.
    let group = if own.uid() == 0 { 1 } else { own.gid() };
    let (mode, group_setting) = ("socket-mode=0606", format!("socket-group={group}"));
    let _peer = place.peer(&["--set", mode, "--set", &group_setting]);
    let socket = std::fs::metadata(place.socket()).unwrap();
    assert_eq!((socket.permissions().mode() & 0o777, socket.gid()), (0o606, group));
    let subscriber = place.start(&["sub", "a.b"]);
    let clients = || parse_json(&place.run(&["show", "clients", "--json"]).exits(DONE).stdout)["rows"].clone();
    let is_subscriber = |row: &serde_json::Value| row["pid"] == subscriber.pid();
    let mut found = None;
    wait_until("the subscriber is a client", || {
        found = clients().as_array().unwrap().iter().find(|row| is_subscriber(row)).cloned();
        found.is_some()
    });
    let row = found.unwrap();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let is_own = |line: &&str| line.split(':').nth(2) == Some(&own.uid().to_string());
    let name = users.lines().find(is_own).and_then(|line| line.split(':').next());
    assert_eq!((&row["user_id"], row["user"].as_str(), &row["listener"]), (&own.uid().into(), name, &().into()));
}

#[test]
fn command_with_one_message_uses_the_socket() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let _subscriber = place.start(&["sub", "a.b"]);
    let _request = place.start(&["req", "a.c", "question", "--patient", "--wait", "60s"]);
    let path = |name: &str| {
        let clients = parse_json(&place.run(&["show", "clients", "--json"]).exits(DONE).stdout)["rows"].clone();
        clients.as_array().unwrap().iter().find(|row| row["name"] == name).map(|row| row["path"].clone())
    };
    wait_until("both are clients", || path("sub").is_some() && path("req").is_some());
    assert_eq!((path("sub"), path("req")), (Some("shm".into()), Some("socket".into())));
}
