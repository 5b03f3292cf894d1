//! `debug bundle`: what it contains, and what it must not contain.

use crate::support::command::{Outcome, Place, parse_json};
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED, UNREACHABLE};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn bundle_has_everything_but_secrets() {
    let place = Place::new();
    let accounts = "  accounts: user alice password pw-s3cret ; token tk-s3cret\n";
    let store = "  stream-store: postgres://bob:db-s3cret@127.0.0.1:1/plant\n";
    let text = format!("parameters:\n{accounts}{store}  log-level: debug\n");
    fs::write(place.dir().join("param.yaml"), &text).unwrap();
    let _peer = place.peer(&["--config", "param.yaml", "--name", "A.test"]);
    place.run(&["pub", "demo.x", "pa1load"]).exits(DONE);
    fs::write(place.dir().join("param.yaml"), text.replace("s3cret", "n3w-s3cret").replace("tk-", "tk")).unwrap();
    place.run(&["config", "reload"]).exits(DONE);
    fs::write(place.dir().join("param.yaml"), text.replace("token tk", "tokn tk")).unwrap();
    place.run(&["config", "reload"]).exits(CONFIGURATION);

    let outcome = place.run(&["debug", "bundle", "-o", "bundle.json"]).exits(DONE).prints("bundle.json\n");
    outcome.reports(&["read it before you publish it"]);
    let path = place.dir().join("bundle.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("s3cret") && !text.contains("pa1load"), "{text}");
    let bundle = parse_json(&text);
    let keys = bundle["peer"]["config"].as_array().unwrap();
    let value = |key: &str| keys.iter().find(|row| row["key"] == key).unwrap()["value"].as_str().unwrap();
    assert_eq!(value("accounts"), "user alice password *** ; token ***");
    assert!(value("stream-store").starts_with("postgres://bob"), "{}", value("stream-store"));
    for what in seqcast::daemon::show::REPORTS {
        assert_eq!(bundle["reports"][what]["show"], what);
    }
    let log = bundle["peer"]["log"].as_array().unwrap();
    let has_line = |part: &str| log.iter().any(|line| line.as_str().unwrap().contains(part));
    assert!(has_line("peer started") && has_line("client connected") && has_line("configuration refused"), "{log:?}");
    assert_eq!(bundle["log_levels"][0]["level"], "debug");
    let checked = bundle["doctor"]["checks"].as_array().unwrap().iter().find(|check| check["check"] == "peer").unwrap();
    assert!(checked["found"].as_str().unwrap().starts_with("A.test runs in "), "{checked}");
    assert!(bundle["interfaces"].as_array().unwrap().iter().any(|interface| interface["name"] == "lo"));
    assert!(bundle["sysctls"]["net.core.rmem_max"].is_string() && bundle["files"]["/proc/net/snmp"].is_string());

    place.run(&["debug", "bundle", "-o", "bundle.json"]).exits(FAILED).reports(&["File exists", "fix: name a file"]);
    let printed = place.run(&["debug", "bundle", "-o", "-"]).exits(DONE);
    assert_eq!(parse_json(&printed.stdout)["bundle"], 1);
}

#[test]
fn bundle_without_peer_names_the_reason() {
    let place = Place::new();
    place.run(&["show", "status"]).exits(UNREACHABLE);
    let outcome = place.run(&["debug", "bundle", "-o", "-"]).exits(DONE);
    let outcome = outcome.reports(&["the bundle describes this host alone: no peer answers", "  fix: "]);
    let bundle = parse_json(&outcome.stdout);
    assert!(bundle["peer"]["error"].as_str().unwrap().contains("no peer answers"), "{bundle}");
    assert!(bundle["command_config"].as_array().unwrap().iter().any(|row| row["key"] == "socket"));
    assert!(bundle["sysctls"]["kernel.osrelease"].is_string() && bundle["reports"].is_null());
}

#[test]
fn failed_write_leaves_no_bundle() {
    let place = Place::new();
    let mut shell = Command::new("sh");
    place.set_environment(&mut shell);
    // A file of at most 512 bytes, as a full disk would allow.
    let limited = format!("trap '' XFSZ; ulimit -f 1; exec {} debug bundle -o b.json", env!("CARGO_BIN_EXE_seqcast"));
    let output = shell.args(["-c", &limited]).output().unwrap();
    Outcome::of(output, &[&limited]).exits(FAILED).reports(&["b.json cannot be written", "fix: ", "-o -"]);
    assert!(!place.dir().join("b.json").exists());
}
