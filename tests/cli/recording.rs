//! `record` and `play`: files of real peers, read by another library too, and what is left after failures.

use crate::support::bus::{config_with_socket, message, wait_for};
use crate::support::command::{Outcome, Place, RunningCommand, parse_json};
use crate::support::exit_code::{DONE, FAILED, TIMED_OUT, USAGE};
use crate::support::root;
use crate::support::wait::{PATIENCE, wait_until, wait_until_some};
use seqcast::bus::{Bus, DropRule, Notice, Options, SubscribeOptions};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Starts a recording and waits until it has begun.
fn record(place: &Place, arguments: &[&str]) -> RunningCommand {
    let recorder = place.start(&[&["record"], arguments].concat());
    recorder.await_report("recording ");
    recorder
}

/// Ends a recording, which prints JSON, with Ctrl-C, and returns its summary.
fn summary(mut recorder: RunningCommand) -> Value {
    recorder.signal("INT");
    let summary = parse_json(&recorder.line());
    assert_eq!(recorder.ended().code(), Some(DONE));
    summary
}

/// Publishes `count` payloads of the form "PAYLOAD 1".
fn publish(place: &Place, subject: &str, payload: &str, count: u64) {
    let payload = format!("{payload} {{{{count}}}}");
    place.run(&["pub", subject, &payload, "--count", &count.to_string()]).exits(DONE);
}

/// Runs the program with the library of Foxglove; returns its lines.
fn python(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(root().join("target/clients/python/bin/python3"));
    command.arg(root().join("tests/clients/mcap_file.py")).args(arguments);
    place.set_environment(&mut command);
    let output = command.output().expect("tools/test has installed the client");
    Outcome::of(output, arguments).exits(DONE).stdout.lines().map(parse_json).collect()
}

/// Returns whether the file contains the text.
fn contains(path: &Path, text: &str) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// Numbers, offsets, header fields and the reply subject are in the file for any reader, and the message is published
/// again as it was.
#[test]
fn recording_is_read_elsewhere_and_played_again() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let other = place.start(&["sub", "demo.>", "--embed", "--name", "B.test"]);
    other.await_report("listening on");
    let recorder = record(&place, &["demo.>", "-o", "run.mcap", "--json"]);
    place.run(&["pub", "demo.text", "caf\u{e9}", "-H", "unit: C", "-H", "a: b", "--reply", "answers"]).exits(DONE);
    place.run(&["pub", "demo.json", r#"{"x": 1}"#]).exits(DONE);
    place.run(&["pub", "demo.json", r#"{"x": 2}"#]).exits(DONE);
    let path = place.dir().join("run.mcap");
    wait_until("the messages are in the file", || contains(&path, r#"{"x": 2}"#));
    let summary = summary(recorder);
    assert_eq!((&summary["messages"], &summary["dropped"], &summary["losses"]), (&3.into(), &0.into(), &0.into()));
    assert_eq!(summary["file_bytes"], fs::metadata(&path).unwrap().len());

    let lines = python(&place, &["read", "run.mcap"]);
    let file = &lines[0];
    assert_eq!((&file["profile"], &file["metadata"]["seqcast"]["patterns"]), (&"seqcast".into(), &"demo.>".into()));
    assert_eq!(file["topics"], serde_json::json!(["demo.json", "demo.text", "seqcast/annotations"]));
    let of = |topic: &str| -> Vec<&Value> { lines[1..].iter().filter(|line| line["topic"] == topic).collect() };
    let (text, json) = (of("demo.text"), of("demo.json"));
    assert_eq!((&text[0]["data"], &text[0]["encoding"]), (&"caf\u{e9}".into(), &"application/octet-stream".into()));
    assert_eq!(
        (&text[0]["metadata"]["publisher"], &text[0]["metadata"]["seqcast"]),
        (&"A.test".into(), &"message".into())
    );
    assert_eq!((&json[0]["encoding"], &json[0]["schema"], json.len()), (&"json".into(), &"json".into(), 2));
    let sequence = |message: &Value| message["sequence"].as_u64().unwrap();
    assert_eq!(sequence(json[1]), sequence(json[0]) + 1, "{json:?}");
    let annotations: Vec<Value> =
        of("seqcast/annotations").iter().map(|line| parse_json(line["data"].as_str().unwrap())).collect();
    let text = annotations.iter().find(|annotation| annotation["subject"] == "demo.text").expect("it has headers");
    assert_eq!(text["headers"], serde_json::json!([["unit", "C"], ["a", "b"]]));
    assert_eq!(text["reply"], "answers");
    let json = annotations.iter().filter(|annotation| annotation["subject"] == "demo.json").count();
    assert_eq!(json, 1, "the second message continues the numbers of the first: {annotations:?}");

    let sub = place.start(&["sub", "again.>", "--json", "--count", "3"]);
    sub.await_report("listening on");
    let played = place.run(&["play", "run.mcap", "--rate", "max", "--remap", "demo=again.demo"]).exits(DONE);
    played.reports(&["played 3 messages of run.mcap"]).prints("");
    let received = [(); 3].map(|()| parse_json(&sub.line()));
    assert_eq!((&received[0]["subject"], &received[0]["payload"]), (&"again.demo.text".into(), &"caf\u{e9}".into()));
    assert_eq!((&received[0]["reply"], &received[0]["headers"]["unit"]), (&"answers".into(), &"C".into()));
    assert_eq!((&received[2]["payload"], received[2].get("headers")), (&r#"{"x": 2}"#.into(), None));
}

/// Each published message is in the file or in its losses, and both programs count alike.
#[test]
fn recorded_and_lost_messages_add_up() {
    let place = Place::new();
    let (mut config, _directory) = config_with_socket("B.test");
    config.reliability = Duration::ZERO;
    let publisher = {
        let mut config = config.clone();
        config.name = "A.test".parse().unwrap();
        config.socket.set_file_name("none.sock");
        Bus::embed(&config).expect("a peer on loopback")
    };
    let options =
        Options { serve: true, drop: Some(DropRule { seed: 3, chance: 0.1, burst: 1 }), ..Options::default() };
    let receiver = Bus::embed_with(&config, &options).expect("a peer on loopback");
    wait_for(&publisher, &receiver);
    // A message that is dropped before the receiver knows its publisher is not lost to it.
    wait_for(&receiver, &publisher);
    let socket = config.socket.display().to_string();
    let recorder = record(&place, &["demo.>", "-o", "run.mcap", "--json", "--socket", &socket]);
    // The publisher suppresses messages until it knows a subscription. It learns of the recorder's before this one.
    let confirmed = SubscribeOptions { confirm: true, ..SubscribeOptions::default() };
    let subscription = receiver.subscribe_with(["demo.a".parse().unwrap()], &confirmed).expect("the peer subscribes");
    let joined = subscription.wait_established(PATIENCE).expect("the peer runs").expect("it is wanted");
    assert!(joined.is_established(), "{joined:?}");
    let mut sent = 0u64;
    let mut send = |payload: &str| {
        sent += 1;
        publisher.publish(message("demo.a", payload)).expect("the peer accepts it");
        publisher.flush(Duration::from_secs(60)).expect("it is sent");
    };
    for _ in 0..300 {
        send("x");
    }
    // Until the last one of these arrives, the end of the stream may be missing.
    let mut tries = 0;
    let last = wait_until_some(
        || "a last message arrives".to_owned(),
        || {
            tries += 1;
            let payload = format!("last {tries}");
            send(&payload);
            while let Ok(notice) = subscription.recv_timeout(Duration::from_millis(50)) {
                let is_last = matches!(&notice, Notice::Message(delivery) if delivery.message.payload == payload);
                if is_last {
                    return Some(payload);
                }
            }
            None
        },
    );
    let path = place.dir().join("run.mcap");
    wait_until("the last message is in the file", || contains(&path, &last));
    let summary = summary(recorder);
    let number = |value: &Value| value.as_u64().expect("a number");
    let (recorded, lost) = (number(&summary["messages"]), number(&summary["lost_min"]));
    assert!(0 < lost && summary["lost_max"] == lost && summary["dropped"] == 0, "{summary}");
    let shown = place.run(&["play", "run.mcap", "--losses", "--json"]).exits(DONE);
    let shown: Vec<Value> = shown.stdout.lines().map(parse_json).collect();
    let (holes, losses) = shown.split_last().expect("a summary");
    assert_eq!((&holes["lost_min"], &holes["losses"]), (&summary["lost_min"], &summary["losses"]));
    // The answer to the question of the publisher may be lost, too.
    let on_subject: Vec<&Value> = losses.iter().filter(|loss| loss["subject"] == "demo.a").collect();
    assert!(!on_subject.is_empty() && on_subject.iter().all(|loss| loss["publisher"] == "A.test"), "{losses:?}");
    assert_eq!(sent, recorded + on_subject.iter().map(|loss| number(&loss["count"])).sum::<u64>(), "{losses:?}");
    let text = place.run(&["play", "run.mcap", "--losses"]).exits(DONE).reports(&["lost on the bus"]).stdout;
    assert!(text.contains("! lost ") && text.contains(" on demo.a from A."), "{text}");
}

#[test]
fn killed_recorder_leaves_complete_chunks() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut recorder = record(&place, &["demo.>", "-o", "run.mcap"]);
    publish(&place, "demo.a", "early", 500);
    let path = place.dir().join("run.mcap");
    wait_until("the messages are in the file", || contains(&path, "early 500"));
    publish(&place, "demo.a", "late", 500);
    recorder.signal("KILL");
    recorder.ended();
    let played = place.run(&["play", "run.mcap", "--rate", "max", "--json"]).exits(FAILED);
    let played = played.reports(&["run.mcap ends early"]);
    let played = parse_json(&played.stdout);
    assert!((500..=1000).contains(&played["messages"].as_u64().unwrap()) && played["truncated"] == true, "{played}");
    assert_eq!(played["damaged"], 0);
}

/// The file is on a small disk of the command's own. It is whole, and the messages beyond it are counted.
#[test]
fn full_disk_ends_the_recording_in_order() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    fs::create_dir(place.dir().join("small")).unwrap();
    // The shell outlives the command, and with it the disk.
    let script = "mount -t tmpfs -o size=1500k tmpfs small && \"$0\" \"$@\"; code=$?; cp small/run.mcap .; exit $code";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_seqcast")]);
    let arguments = ["record", "demo.>", "-o", "small/run.mcap", "--json"];
    command.args(arguments);
    place.set_environment(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = RunningCommand::new(command.spawn().expect("unshare is there"), &arguments);
    recorder.await_report("recording ");
    publish(&place, "demo.a", &"x".repeat(1000), 3000);
    assert_eq!(recorder.ended().code(), Some(FAILED));
    let report = recorder.await_report("No space left on device");
    assert!(report.contains("free some space"), "{report}");
    let summary = parse_json(&recorder.line());
    let recorded = summary["messages"].as_u64().unwrap();
    assert!(0 < recorded && 0 < summary["unwritten"].as_u64().unwrap(), "{summary}");
    // The file is closed: it is whole up to there.
    let played = place.run(&["play", "run.mcap", "--rate", "max", "--json"]).exits(DONE);
    assert_eq!(parse_json(&played.stdout)["messages"], recorded);
    assert_eq!(python(&place, &["read", "run.mcap"]).len() as u64 - 1, recorded + 1, "and an annotation");
}

#[test]
fn files_are_split_and_the_oldest_removed() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let recorder = record(&place, &["demo.>", "-o", "run.mcap", "--split", "100 kb", "--keep", "3", "--json"]);
    publish(&place, "demo.a", &"x".repeat(1000), 1000);
    place.run(&["pub", "demo.a", "the end"]).exits(DONE);
    let mut files = Vec::new();
    wait_until("the last message is in a file", || {
        files = names(&place);
        files.last().is_some_and(|file| contains(&place.dir().join(file), "the end"))
    });
    let summary = summary(recorder);
    let files: Vec<String> = names(&place);
    assert_eq!((files.len(), summary["files"].as_array().map(Vec::len)), (3, Some(3)), "{files:?}");
    assert!(files[0].as_str() > "run-0008.mcap", "a megabyte has more than ten files: {files:?}");
    let mut played = 0;
    for file in &files {
        let size = fs::metadata(place.dir().join(file)).unwrap().len();
        assert!((50_000..=100 << 10).contains(&size) || Some(file) == files.last(), "{file} has {size} bytes");
        let outcome = place.run(&["play", file, "--rate", "max", "--json"]).exits(DONE);
        played += parse_json(&outcome.stdout)["messages"].as_u64().unwrap();
    }
    assert!((100..300).contains(&played), "{played} messages in {files:?}");
    fs::write(place.dir().join("run-a.mcap"), "another program's").unwrap();
    place.run(&["record", "demo.>", "-o", "run.mcap", "--split", "1 mb"]).exits(FAILED).reports(&["exists", "--force"]);
    let again = place.run(&["record", "a", "-o", "run.mcap", "--split", "1 mb", "--force", "--for", "10ms"]);
    again.exits(DONE).reports(&["recorded 0 messages"]);
    assert_eq!(names(&place), ["run-0001.mcap", "run-a.mcap"], "the files of the replaced recording alone are gone");
    place.run(&["record", "a", "-o", "run.mcap", "--for", "10ms"]).exits(DONE);
    place.run(&["record", "a", "-o", "run.mcap", "--force", "--for", "10ms"]).exits(DONE);
    assert_eq!(names(&place), ["run-0001.mcap", "run-a.mcap", "run.mcap"], "a numbered file is another recording");
}

/// Returns the recordings of a place, sorted.
fn names(place: &Place) -> Vec<String> {
    let names = fs::read_dir(place.dir()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".mcap")).collect();
    names.sort();
    names
}

#[test]
fn disk_quota_is_never_exceeded() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut recorder = record(&place, &["demo.>", "-o", "run.mcap", "--disk-quota", "200 kb"]);
    publish(&place, "demo.a", &"x".repeat(1000), 500);
    assert_eq!(recorder.ended().code(), Some(FAILED));
    recorder.await_report("the disk quota is used up");
    let size = fs::metadata(place.dir().join("run.mcap")).unwrap().len();
    assert!((150_000..=200 << 10).contains(&size), "{size}");
    place.run(&["play", "run.mcap", "--rate", "max"]).exits(DONE);

    let quota = ["demo.>", "-o", "ring.mcap", "--disk-quota", "200 kb", "--split", "64 kb", "--count", "500", "--json"];
    let mut recorder = record(&place, &quota);
    publish(&place, "demo.a", &"x".repeat(1000), 500);
    let summary = parse_json(&recorder.line());
    assert_eq!((recorder.ended().code(), &summary["messages"]), (Some(DONE), &500.into()));
    let kept: Vec<PathBuf> =
        names(&place).iter().filter(|n| n.starts_with("ring")).map(|n| place.dir().join(n)).collect();
    let bytes: u64 = kept.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 200 << 10 && 2 <= kept.len(), "{bytes} in {kept:?}");
    let refused = place.run(&["record", "a", "-o", "b.mcap", "--disk-quota", "100 kb", "--split", "64 kb"]);
    refused.exits(USAGE).reports(&["--disk-quota leaves no room"]);
}

#[test]
fn record_ends_as_its_options_say() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    place.run(&["record", "a", "-o", "x.mcap", "--for", "50ms"]).exits(DONE).reports(&["recorded 0 messages"]);
    place.run(&["record", "a", "-o", "x.mcap", "--for", "50ms"]).exits(FAILED).reports(&["x.mcap exists", "--force"]);
    place.run(&["record", "a", "-o", "x.mcap", "--force", "--count", "1", "--wait", "50ms"]).exits(TIMED_OUT);
    place.run(&["record", "a", "-o", "none/x.mcap"]).exits(FAILED).reports(&["cannot be written", "fix:"]);
    let mut recorder = record(&place, &["a", "-o", "y.mcap", "--count", "2", "--json"]);
    publish(&place, "a", "x", 5);
    assert_eq!(parse_json(&recorder.line())["messages"], 2);
    assert_eq!(recorder.ended().code(), Some(DONE));
    let mut recorder = record(&place, &["a", "-o", "z.mcap", "--count", "2"]);
    recorder.signal("TERM");
    assert_eq!(recorder.ended().code(), Some(FAILED), "it did not reach its count");
}

/// A topic of another program becomes a subject, and its payload stays as it is.
#[test]
fn foreign_files_are_played_or_refused() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let topic = "/robot/pose";
    let files = ["pose.mcap", topic, "NONE", "lz4.mcap", topic, "LZ4", "zstd.mcap", topic, "ZSTD"];
    python(&place, &[&["write"], &files[..], &["invalid.mcap", "/robot pose", "NONE"]].concat());
    let sub = place.start(&["sub", "robot.pose", "--count", "3"]);
    sub.await_report("listening on");
    place.run(&["play", "pose.mcap"]).exits(DONE).reports(&["played 3 messages"]);
    assert_eq!([(); 3].map(|()| sub.line()), ["robot.pose  pose 0", "robot.pose  pose 1", "robot.pose  pose 2"]);
    for file in ["lz4.mcap", "zstd.mcap"] {
        let played = place.run(&["play", file, "--json"]).exits(DONE);
        assert_eq!(parse_json(&played.stdout)["messages"], 3, "{file}");
    }
    let refused = place.run(&["play", "invalid.mcap"]).exits(FAILED);
    refused.reports(&["topic '/robot pose' is no subject", "--subjects"]);
    fs::write(place.dir().join("text.mcap"), "no recording").unwrap();
    place.run(&["play", "text.mcap"]).exits(FAILED).reports(&["text.mcap is no recording", "fix:"]);
    place.run(&["play", "missing.mcap"]).exits(FAILED).reports(&["missing.mcap cannot be read"]);
}

/// The times of the file are those of another program: 0, 1 and 2 ns after 1970.
#[test]
fn part_of_a_recording_is_played() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    python(&place, &["write", "pose.mcap", "a", "NONE"]);
    let count = |arguments: &[&str]| {
        let all = ["play", "pose.mcap", "--json"];
        parse_json(&place.run(&[&all, arguments].concat()).exits(DONE).stdout)["messages"].as_u64().unwrap()
    };
    assert_eq!(count(&["--from", "1ns"]), 2);
    assert_eq!(count(&["--until", "1ns"]), 1);
    assert_eq!(count(&["--from", "1970-01-01T00:00:00.000000001Z", "--until", "2ns"]), 1);
    assert_eq!(count(&["--subjects", "b.>"]), 0);
    assert_eq!(count(&["--subjects", "b.>", "--subjects", "a", "--rate", "0.5"]), 3);
    let mut looping = place.start(&["play", "pose.mcap", "--loop", "--json"]);
    let sub = place.start(&["sub", "a", "--count", "10"]);
    for _ in 0..10 {
        sub.line();
    }
    looping.signal("INT");
    assert!(parse_json(&looping.line())["messages"].as_u64().unwrap() >= 10);
    assert_eq!(looping.ended().code(), Some(DONE));
}
