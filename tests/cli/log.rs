//! The log of `seqcast peer` from the operator's view: rotated, on a full disk, at the end of a terminal.

use crate::support::command::{Place, RunningCommand, parse_json};
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED, UNREACHABLE, USAGE};
use crate::support::wait::wait_until;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

fn peer(place: &Place, format: &str) -> RunningCommand {
    let log = format!("log-file={}", place.dir().join("peer.log").display());
    place.peer(&["--set", &log, "--log-level", "debug", "--log-format", format])
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.dir().join(name)).unwrap_or_default()
}

#[test]
fn moved_log_continues_in_a_new_file() {
    let place = Place::new();
    let mut peer = peer(&place, "text");
    let [log, moved] = ["peer.log", "peer.log.1"].map(|name| place.dir().join(name));
    place.run(&["show", "status"]).exits(0);
    fs::rename(&log, &moved).unwrap();
    place.run(&["pub", "a", "x"]).exits(0);
    wait_until("the lines of both", || read(&place, "peer.log.1").matches("client connected").count() == 2);
    peer.signal("HUP");
    wait_until("the new file", || read(&place, "peer.log").contains("log opened anew"));
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(0));
    assert!(read(&place, "peer.log").contains("stopped") && !read(&place, "peer.log.1").contains("stopped"));
}

#[test]
fn lines_lost_to_a_full_disk_are_counted() {
    let place = Place::new();
    let log = place.dir().join("peer.log");
    symlink("/dev/full", &log).unwrap();
    let mut peer = peer(&place, "json");
    place.run(&["pub", "a", "x"]).exits(0);
    // A directory is no log.
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    peer.signal("HUP");
    place.run(&["pub", "a", "x"]).exits(0);
    fs::remove_dir(&log).unwrap();
    peer.signal("HUP");
    wait_until("the new file", || read(&place, "peer.log").contains("log opened anew"));
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(0));
    let text = read(&place, "peer.log");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(lines[0]["message"], "log lines lost: the file could not be written");
    assert!(lines[0]["lines"].as_u64().is_some_and(|lines| 5 < lines), "{text}");
    assert_eq!(lines[1]["message"], "log opened anew");
}

/// Returns the log of a stopped peer with these settings to which a client had connected.
fn log_of(settings: &[&str]) -> String {
    let place = Place::new();
    let log = format!("log-file={}", place.dir().join("peer.log").display());
    let arguments: Vec<&str> = [&log].into_iter().map(String::as_str).chain(settings.iter().copied()).collect();
    let arguments: Vec<&str> = arguments.into_iter().flat_map(|setting| ["--set", setting]).collect();
    let mut peer = place.peer(&arguments);
    place.run(&["pub", "a", "x"]).exits(0);
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(0));
    read(&place, "peer.log")
}

#[test]
fn less_severe_events_are_not_logged() {
    for (setting, is_logged) in [("log-level=info", false), ("log-level=debug", true)] {
        let log = log_of(&[setting]);
        assert!(log.contains("stopped"), "{log}");
        assert_eq!(log.contains("client connected"), is_logged, "{log}");
    }
}

#[test]
fn log_lines_have_the_format() {
    for (setting, is_json) in [("log-format=text", false), ("log-format=json", true)] {
        let log = log_of(&[setting]);
        let is_object = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object());
        assert!(log.contains("stopped") && log.lines().all(|line| is_object(line) == is_json), "{log}");
    }
}

#[test]
fn log_level_is_set_for_a_time() {
    let place = Place::new();
    let log = format!("log-file={}", place.dir().join("peer.log").display());
    let _peer = place.peer_with(&[&log]);
    let connections = || read(&place, "peer.log").matches("client connected").count();
    let levels = |arguments: &[&str]| {
        let outcome = place.run(&[&["log", "level", "--json"], arguments].concat()).exits(DONE);
        parse_json(&outcome.stdout)["log"].as_array().unwrap().clone()
    };
    let level =
        |rows: &[Value], target: &str| rows.iter().find(|row| row["target"] == target).unwrap()["level"].clone();
    let rows = levels(&[]);
    assert_eq!((level(&rows, "all"), level(&rows, "clients"), connections()), ("info".into(), "info".into(), 0));
    let rows = levels(&["clients=debug", "--for", "7d"]);
    assert_eq!((level(&rows, "all"), level(&rows, "clients")), ("info".into(), "debug".into()));
    place.run(&["show", "status"]).exits(DONE);
    wait_until("the connection is logged", || connections() == 1);
    levels(&["clients=debug", "--for", "1ms"]);
    wait_until("the level reverts", || read(&place, "peer.log").contains("log level reverted"));
    let logged = connections();
    assert_eq!(level(&levels(&[]), "clients"), "info");
    place.run(&["show", "status"]).exits(DONE);
    assert_eq!(connections(), logged, "no connection is logged any more");
    for directive in ["warn", "all=error"] {
        let text = place.run(&["log", "level", directive]).exits(DONE).stdout;
        let level = directive.trim_start_matches("all=");
        assert!(text.contains(&format!("\nall       | {level:<5} |      | everything")), "{text}");
    }
    place.run(&["log", "level", "core=loud"]).exits(USAGE).reports(&["\"loud\" is no level\n  fix: use one of error"]);
    let outcome = place.run(&["log", "level", "cor=debug"]).exits(USAGE);
    outcome.reports(&["there is no target \"cor\"\n  fix: use one of all, core, clients"]);
    place.run(&["log", "level", "debug", "--for", "30d"]).exits(FAILED).reports(&["at most 7 days\n  fix: "]);
}

/// Starts a peer by another command, which decides about the handling of SIGHUP.
fn peer_by(place: &Place, command: &[&str]) -> RunningCommand {
    let mut starter = Command::new(command[0]);
    starter.args(&command[1..]).arg(place.command(&[]).get_program()).arg("peer");
    place.set_environment(&mut starter);
    starter.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let peer = place.reachable(RunningCommand::new(starter.spawn().expect("it is installed"), &["peer"]));
    place.run(&["show", "status"]).exits(0);
    peer
}

#[test]
fn hangup_without_configuration_file_ends_nothing() {
    let place = Place::new();
    // This does not depend on the signal handling that the tests were started with.
    let mut peer = peer_by(&place, &["env", "--default-signal=HUP"]);
    peer.signal("HUP");
    peer.await_report("there is no configuration file to read again");
    place
        .run(&["config", "reload"])
        .exits(FAILED)
        .reports(&["without a configuration file\n  fix: name one with --config"]);
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(DONE));
    let mut peer = peer_by(&place, &["nohup"]);
    peer.signal("HUP");
    place.run(&["show", "status"]).exits(DONE);
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(DONE));
}

#[test]
fn closed_terminal_ends_its_peer() {
    let place = Place::new();
    // This does not depend on the signal handling that the tests were started with.
    let peer = concat!("env --default-signal=HUP ", env!("CARGO_BIN_EXE_seqcast"), " peer");
    let script = place.terminal_command(peer).spawn().expect("script starts");
    let script = RunningCommand::new(script, &["peer"]);
    let script = place.reachable(script);
    script.signal("KILL");
    wait_until("the peer ends", || std::os::unix::net::UnixStream::connect(place.socket()).is_err());
}

#[test]
fn configuration_is_read_again_while_the_peer_runs() {
    let place = Place::new();
    let write = |keys: &[&str]| {
        let text = format!("parameters:\n  {}\n", keys.join("\n  "));
        fs::write(place.dir().join("param.yaml"), text).unwrap();
    };
    write(&["log-file: peer.log", "linger: 1 sec"]);
    let peer = place.peer(&["--config", "param.yaml"]);
    let before = place.show("status")["status"].clone();
    assert_eq!((&before["config_file"], &before["restart_needed"]), (&"param.yaml".into(), &serde_json::json!([])));

    write(&["log-file: peer.log", "linger: 2 sec", "log-level: debug", "accounts: user alice password s3cret"]);
    let outcome = place.run(&["config", "reload"]).exits(DONE);
    for line in
        ["log-level: info -> debug\n", "linger: 1 sec -> 2 sec (needs a restart)\n", "accounts: none -> user alice"]
    {
        assert!(outcome.stdout.contains(line), "{line:?} is not in {}", outcome.stdout);
    }
    let after = place.show("status")["status"].clone();
    assert_eq!(after["restart_needed"], serde_json::json!(["linger", "accounts"]));
    assert!(before["config_loaded_ns"].as_u64() < after["config_loaded_ns"].as_u64(), "{after}");
    assert!(read(&place, "peer.log").contains("client connected"));
    assert!(!read(&place, "peer.log").contains("s3cret"));

    write(&["prot: 1", "log-level: error"]);
    place
        .run(&["config", "reload"])
        .exits(CONFIGURATION)
        .reports(&["param.yaml:2:3: prot: unknown key", "fix: did you mean port?"]);
    let refused = parse_json(&place.run(&["config", "reload", "--json"]).exits(CONFIGURATION).stdout);
    assert_eq!(refused["refused"][0]["key"], "prot");
    let level = || parse_json(&place.run(&["log", "level", "--json"]).exits(DONE).stdout)["log"][0]["level"].clone();
    assert_eq!(level(), "debug", "a refused configuration changes nothing");

    write(&["log-file: peer.log", "linger: 1 sec", "log-level: warn"]);
    peer.signal("HUP");
    wait_until("the signal reads the configuration", || level() == "warn");
    assert_eq!(place.show("status")["status"]["restart_needed"], serde_json::json!([]));

    let sub = place.start(&["sub", "a"]);
    sub.await_report("listening on");
    let run_time_keys = ["client-max: 1", "delivery: live", "busy-poll: 1 ms", "remote-reports: no"];
    write(&[&["log-file: peer.log", "linger: 1 sec", "log-level: warn"], &run_time_keys[..]].concat());
    let outcome = place.run(&["config", "reload"]).exits(DONE);
    assert!(!outcome.stdout.contains("restart"), "{}", outcome.stdout);
    place.run(&["show", "subs"]).exits(UNREACHABLE);
}
