//! The Hat listener, as the published client of Hat Event Server (`hat-event`) uses it.

use crate::support::certificate::{Authority, certificate};
use crate::support::command::{Place, RunningCommand};
use crate::support::root;
use crate::support::wait::{PATIENCE, wait_until};
use seqcast::event::store::{Query, Series};
use seqcast::listener::hat::chatter::Conversation;
use seqcast::listener::hat::client_message::{EventSubscription, HatClientMessage, Init};
use seqcast::listener::hat::server_message::HatServerMessage;
use seqcast::listener::hat::{ChatterMessage, ChatterParser, Settings};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

/// A client in a program of its own; each line of its input is a JSON object with a command.
struct Client {
    process: RunningCommand,
    input: ChildStdin,
}

impl Client {
    /// Starts a client that connects to the listener of this place's peer.
    fn start(place: &Place, options: &Value) -> Client {
        let mut command = Command::new(root().join("target/clients/python/bin/python3"));
        command.arg(root().join("tests/clients/hat_client.py")).arg(place.port().to_string()).arg(options.to_string());
        place.set_environment(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("tools/test has installed the client");
        let input = child.stdin.take().expect("standard input is a pipe");
        Client { process: RunningCommand::new(child, &["hat_client.py"]), input }
    }

    /// Starts a client and waits until it is connected.
    fn connect(place: &Place, options: &Value) -> Client {
        let client = Client::start(place, options);
        assert_eq!(client.next(), json!({ "event": "connected", "status": "operational" }));
        client
    }

    #[track_caller]
    fn next(&self) -> Value {
        let line = self.process.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Makes it perform a command; returns its output until the end of the command.
    #[track_caller]
    fn act(&mut self, command: &Value) -> Vec<Value> {
        writeln!(self.input, "{command}").expect("the client reads");
        let mut lines = Vec::new();
        loop {
            let line = self.next();
            if line.get("done").is_some() {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Returns the answer to a command; events may have been reported meanwhile.
    #[track_caller]
    fn answer(&mut self, command: &Value, field: &str) -> Value {
        let lines = self.act(command);
        lines.iter().find_map(|line| line.get(field)).unwrap_or_else(|| panic!("no {field} in {lines:?}")).clone()
    }
}

fn peer(place: &Place, settings: &[&str]) -> RunningCommand {
    let hat = format!("hat={}", place.port());
    place.peer_with_listener(&[&[hat.as_str()], settings].concat())
}

/// Returns whether the peer of this place knows another peer.
fn knows_another(place: &Place) -> bool {
    place.show("peers")["rows"].as_array().unwrap().iter().any(|row| row["state"] == "up")
}

/// Returns ids and types of events.
fn shown(events: &Value) -> Vec<String> {
    let one = |event: &Value| {
        let join = |list: &Value| {
            let texts = list.as_array().unwrap().iter().map(|part| part.to_string().replace('"', ""));
            texts.collect::<Vec<_>>().join("/")
        };
        format!("{} {}", join(&event["id"]), join(&event["type"]))
    };
    events.as_array().unwrap_or_else(|| panic!("{events} are no events")).iter().map(one).collect()
}

#[test]
fn published_client_registers_receives_and_queries() {
    let place = Place::new();
    let _peer = peer(&place, &["server-id=7", "hat-events=no"]);
    let mut source = Client::connect(&place, &json!({ "name": "source" }));
    let reader = Client::connect(&place, &json!({ "subscriptions": [["a", "*"], ["a", "b"], ["x", "?"]] }));
    let elsewhere = Client::connect(&place, &json!({ "subscriptions": [["*"]], "server": 8 }));
    let events = json!([
        { "type": ["a", "b"] },
        { "type": ["a", "c"], "json": "{\"v\": 1}", "source": [1_700_000_000, 5] },
        { "type": ["x"], "binary": "t", "hex": "00ff" },
        { "type": ["x", ""] },
    ]);
    let registered = source.answer(&json!({ "do": "register", "events": events }), "registered");
    assert_eq!(shown(&registered), ["7/1/1 a/b", "7/1/2 a/c", "7/1/3 x", "7/1/4 x/"]);
    let lines = reader.next()["notified"].clone();
    assert_eq!(shown(&lines), ["7/1/1 a/b", "7/1/2 a/c", "7/1/4 x/"], "a session in one message, each event once");
    assert_eq!(lines[1]["payload"]["json"], "{\"v\": 1}");
    assert_eq!(lines[1]["source"], json!([1_700_000_000, 5]));
    assert_eq!(lines[0]["time"], registered[0]["time"]);
    // First a registration without a response, then an invalid one, which is answered without a reason.
    source.act(&json!({ "do": "register", "events": [{ "type": ["x", "y"] }], "answer": false }));
    assert_eq!(shown(&reader.next()["notified"]), ["7/2/1 x/y"]);
    let refused =
        source.answer(&json!({ "do": "register", "events": [{ "type": ["a"] }, { "type": ["a/b"] }] }), "registered");
    assert_eq!(refused, Value::Null);
    let mut query = |command: Value| source.act(&command).pop().expect("an answer");
    let latest = query(json!({ "do": "latest", "types": [["a", "?"], ["x"]] }));
    let mut found = shown(&latest["answer"]);
    found.sort();
    assert_eq!(found, ["7/1/1 a/b", "7/1/2 a/c", "7/1/3 x"]);
    let series = query(json!({ "do": "timeseries", "types": [["x", "*"]], "max": 2 }));
    assert_eq!(
        (shown(&series["answer"]), &series["more"]),
        (vec!["7/2/1 x/y".into(), "7/1/4 x/".into()], &json!(true))
    );
    let by_source = query(json!({ "do": "timeseries", "by_source": true }));
    assert_eq!(shown(&by_source["answer"]), ["7/1/2 a/c"]);
    let of_server = query(json!({ "do": "server", "server": 7, "after": [7, 1, 3], "persisted": true }));
    assert_eq!(shown(&of_server["answer"]), ["7/1/4 x/", "7/2/1 x/y"]);
    assert_eq!(query(json!({ "do": "server", "server": 8 }))["answer"], json!([]));
    // All clients see the same events.
    let found = place.run(&["event", "query", "--latest", "x/y", "--json"]).exits(0).stdout;
    assert!(found.contains("\"7/2/1\""), "{found}");
    assert_eq!(
        elsewhere.process.lines_so_far().len(),
        1,
        "the client subscribes to another server's events, and gets none"
    );
}

#[test]
fn concurrent_requests_are_sessions_in_order() {
    const COUNT: u64 = 500;
    let place = Place::new();
    let _peer = peer(&place, &["server-id=7", "hat-events=no"]);
    let mut client = Client::connect(&place, &json!({ "subscriptions": [["n", "*"]] }));
    let lines =
        client.act(&json!({ "do": "burst", "count": COUNT, "events": [{ "type": ["n"] }, { "type": ["n", "m"] }] }));
    let sessions: Vec<u64> = (1..=COUNT).collect();
    assert_eq!(lines.iter().find_map(|line| line.get("sessions")), Some(&json!(sessions)));
    let mut seen: Vec<Value> = lines.iter().filter_map(|line| line.get("notified")).cloned().collect();
    while seen.len() < sessions.len() {
        seen.push(client.next()["notified"].clone());
    }
    for (session, events) in sessions.iter().zip(&seen) {
        assert_eq!(shown(events), [format!("7/{session}/1 n"), format!("7/{session}/2 n/m")]);
        assert_eq!(events[0]["payload"]["json"], (session - 1).to_string());
    }
}

#[test]
fn client_connections_and_peer_stop_are_events() {
    let place = Place::new();
    let mut running = peer(&place, &["server-id=7"]);
    let reader = Client::connect(&place, &json!({ "name": "reader", "subscriptions": [["event", "*"]] }));
    let other = Client::connect(&place, &json!({ "name": "gw/1" }));
    drop(other);
    let lines: Vec<String> = (0..2).flat_map(|_| shown(&reader.next()["notified"])).collect();
    assert_eq!(lines, ["7/3/1 event/7/eventer/gw%2F1", "7/4/1 event/7/eventer/gw%2F1"]);
    running.signal("TERM");
    let rest: Vec<Value> = (0..3).map(|_| reader.next()).collect();
    assert_eq!(rest, [json!({ "status": "stopping" }), json!({ "status": "standby" }), json!({ "event": "closed" })]);
    assert_eq!(running.ended().code(), Some(0));
    let _peer = peer(&place, &["server-id=7"]);
    let mut client = Client::connect(&place, &json!({ "name": "reader" }));
    let all = client.act(&json!({ "do": "server", "server": 7 })).pop().expect("an answer");
    let words: Vec<&Value> = all["answer"].as_array().unwrap().iter().map(|event| &event["payload"]["json"]).collect();
    let expected = ["STARTED", "CONNECTED", "CONNECTED", "DISCONNECTED", "STOPPED", "STARTED", "CONNECTED"];
    assert_eq!(words, expected.map(|word| json!(format!("\"{word}\""))).iter().collect::<Vec<_>>());
}

/// Returns whether a client that encrypts, and trusts this certificate, completes its handshake.
fn completes_handshake(place: &Place, certificate: &Path) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-verify_return_error", "-connect", &format!("127.0.0.1:{}", place.port()), "-CAfile"]);
    openssl.arg(certificate).stdin(Stdio::null());
    openssl.output().expect("openssl is installed").status.success()
}

/// Returns whether a client that does not encrypt is welcome.
fn welcomes_in_clear(place: &Place) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", place.port())).expect("the listener is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
    let subscription = EventSubscription::default();
    let init = HatClientMessage::Init(Init { name: "clear".into(), token: None, subscription, persisted: false });
    let (conversation, body) = (Conversation { first: 1, is_own: true }, init.encode().unwrap());
    let message = ChatterMessage { id: 1, conversation, is_last: false, type_name: init.type_name(), body: &body };
    stream.write_all(&message.frame()).expect("the system has room for it");
    let (mut parser, mut bytes) = (ChatterParser::new(&Settings::default()), [0; 1024]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => parser.push(&bytes[..count]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                return false;
            }
        }
        match parser.next() {
            Ok(Some(message)) => {
                return matches!(HatServerMessage::decode(&message), Ok(HatServerMessage::Init(Ok(_))));
            }
            Ok(None) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn unencrypted_clients_are_refused_unless_encryption_is_optional() {
    for (optional, is_welcome) in [("", false), (" optional", true)] {
        let place = Place::new();
        let [certificate, key] = certificate(place.dir(), "listener");
        let tls = format!("hat-tls={} {}{optional}", certificate.display(), key.display());
        let _peer = peer(&place, &[&tls]);
        assert!(completes_handshake(&place, &certificate));
        assert_eq!(welcomes_in_clear(&place), is_welcome, "{tls}");
    }
}

#[test]
fn certificate_is_required_and_maps_to_an_account() {
    let place = Place::new();
    let authority = Authority::new(place.dir(), "authority");
    let [certificate, key] = authority.sign("listener", "/CN=listener", "IP:127.0.0.1", 2);
    let ca = authority.certificate().display();
    let tls = format!("hat-tls={} {} verify {ca}", certificate.display(), key.display());
    let accounts = "accounts=certificate device-7 publish plant.> subscribe cmd.> ; token s3cret";
    let peer = peer(&place, &[&tls, accounts, "server-id=1", "hat-events=no"]);
    let sign = |name: &str| authority.sign(name, &format!("/CN={name}"), &format!("DNS:{name}"), 2);
    let options = |certificate: &[PathBuf; 2]| json!({ "ca": authority.certificate(), "certificate": certificate });
    let mut device = Client::connect(&place, &options(&sign("device-7")));
    for (path, is_registered) in [("plant", true), ("cmd", false)] {
        let events = json!([{ "type": [path, "a"], "json": "1" }]);
        let answer = device.answer(&json!({ "do": "register", "events": events }), "registered");
        assert_eq!(answer.is_array(), is_registered, "{path}: {answer}");
    }
    // A verified certificate without an account enters by a token only.
    let mut other = options(&sign("other"));
    assert_eq!(Client::start(&place, &other).next(), json!({ "event": "refused", "text": "invalid client token" }));
    other["token"] = json!("s3cret");
    Client::connect(&place, &other);
    let anonymous = json!({ "ca": authority.certificate(), "token": "s3cret" });
    assert_eq!(Client::start(&place, &anonymous).next(), json!({ "event": "closed" }));
    let reason = "the client has no certificate, which this listener requires";
    wait_until("the reason is logged", || peer.stderr_so_far().iter().any(|line| line.contains(reason)));
}

#[test]
fn client_without_token_is_refused_with_accounts() {
    let place = Place::new();
    let _peer = peer(&place, &["accounts=token s3cret"]);
    for options in [json!({}), json!({ "token": "other" })] {
        let refused = Client::start(&place, &options).next();
        assert_eq!(refused, json!({ "event": "refused", "text": "invalid client token" }));
    }
    Client::connect(&place, &json!({ "token": "s3cret" }));
}

#[test]
fn account_does_only_the_permitted() {
    let place = Place::new();
    let accounts = "accounts=token free ; token limited publish plant.> subscribe cmd,cmd.>";
    let _peer = peer(&place, &[accounts, "server-id=1", "hat-events=no"]);
    let refused = Client::start(&place, &json!({ "token": "limited", "subscriptions": [["cmd", "*"], ["*"]] })).next();
    assert_eq!(refused, json!({ "event": "refused", "text": "this client may not subscribe to *" }));
    let mut free = Client::connect(&place, &json!({ "token": "free", "subscriptions": [["*"]] }));
    let mut limited = Client::connect(&place, &json!({ "token": "limited", "subscriptions": [["cmd", "*"]] }));
    let register = |event_type: [&str; 2]| json!({ "do": "register", "events": [{ "type": event_type, "json": "1" }] });
    assert_eq!(limited.answer(&register(["secret", "a"]), "registered"), Value::Null);
    assert_eq!(shown(&limited.answer(&register(["plant", "a"]), "registered")), ["1/1/1 plant/a"]);
    assert_eq!(shown(&free.next()["notified"]), ["1/1/1 plant/a"]);
    for event_type in [["secret", "b"], ["cmd", "stop"]] {
        free.act(&register(event_type));
    }
    assert_eq!(shown(&limited.next()["notified"]), ["1/3/1 cmd/stop"]);
    let latest = json!({ "do": "latest", "types": [["cmd", "?"]] });
    assert_eq!(shown(&limited.answer(&latest, "answer")), ["1/3/1 cmd/stop"]);
    // The protocol cannot refuse a query, so the connection ends.
    writeln!(limited.input, "{}", json!({ "do": "latest", "types": [["secret", "*"]] })).expect("the client reads");
    wait_until("the client is closed and its denials are counted", || {
        let status = place.show("status");
        let listener = &status["status"]["listeners"][0];
        (listener["clients"].as_u64(), listener["denied"].as_u64()) == (Some(1), Some(3))
    });
}

/// Events of another peer, which are not in this one's journal, reach the subscribers here.
#[test]
fn events_of_other_peers_reach_clients() {
    let (here, there) = (Place::new(), Place::new());
    let _peers = [
        peer(&here, &["server-id=1", "hat-events=no"]),
        peer(&there, &["server-id=2", "hat-events=no", &format!("port={}", here.port())]),
    ];
    let mut reader = Client::connect(&here, &json!({ "subscriptions": [["a", "*"], ["a", "?"], ["?", "b"]] }));
    let only = Client::connect(&here, &json!({ "subscriptions": [["a", "*"]], "server": 2 }));
    let mut source = Client::connect(&there, &json!({}));
    reader.act(&json!({ "do": "register", "events": [{ "type": ["b"] }] }));
    // Until the peers know each other, a message of one may not reach the other.
    wait_until("the peers know each other", || [&here, &there].into_iter().all(knows_another));
    // One that is large, and several in a session.
    let large = json!({ "type": ["a", "b"], "binary": "", "hex": "00".repeat(300_000) });
    source.act(&json!({ "do": "register", "events": [large] }));
    let events = [["b", "b"], ["a", "b"], ["a", "c"]].map(|event_type| json!({ "type": event_type, "json": "[1]" }));
    source.act(&json!({ "do": "register", "events": events }));
    source.act(&json!({ "do": "register", "events": [{ "type": ["a", "end"] }] }));
    for (client, session) in
        [(&reader, &["2/2/1 b/b", "2/2/2 a/b", "2/2/3 a/c"][..]), (&only, &["2/2/2 a/b", "2/2/3 a/c"])]
    {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|last| last != "2/3/1 a/end") {
            lines.extend(shown(&client.next()["notified"]));
        }
        assert_eq!(
            lines,
            [&["2/1/1 a/b"], session, &["2/3/1 a/end"]].concat(),
            "each once, however many subscriptions match"
        );
    }
}

/// A client that sends all its requests at once and reads nothing gets the next answer only after it has read the
/// last ones.
#[test]
fn queries_of_a_slow_client_wait() {
    const QUESTIONS: i128 = 20;
    const BYTES: usize = 100_000;
    let place = Place::new();
    let _peer = peer(&place, &["server-id=7", "hat-events=no"]);
    let mut source = Client::connect(&place, &json!({}));
    for _ in 0..4 {
        let events = vec![json!({ "type": ["a"], "binary": "", "hex": "00".repeat(BYTES) }); 10];
        source.act(&json!({ "do": "register", "events": events }));
    }
    let mut stream = TcpStream::connect(("127.0.0.1", place.port())).unwrap();
    let subscription = EventSubscription::default();
    let init = HatClientMessage::Init(Init { name: "greedy".into(), token: None, subscription, persisted: false });
    let question = HatClientMessage::Query(Some(Query::Series(Series::default())));
    for id in 1..=1 + QUESTIONS {
        let request = if id == 1 { &init } else { &question };
        let (conversation, body) = (Conversation { first: id, is_own: true }, request.encode().unwrap());
        let message = ChatterMessage { id, conversation, is_last: false, type_name: request.type_name(), body: &body };
        stream.write_all(&message.frame()).unwrap();
    }
    let queued = || {
        let clients: Value = serde_json::from_str(&place.run(&["show", "clients", "--json"]).exits(0).stdout).unwrap();
        let rows = clients["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == "greedy").map_or(0, |row| row["queued_bytes"].as_u64().unwrap())
    };
    wait_until("an answer waits for it", || 0 < queued());
    // Other clients are answered in between.
    let found = source.act(&json!({ "do": "latest", "types": [["a"]] })).pop().expect("an answer");
    assert_eq!(shown(&found["answer"]), ["7/4/10 a"]);
    assert!(queued() < 2 * 40 * BYTES as u64, "one answer at a time");
    let mut parser = ChatterParser::new(&Settings { unauthenticated_bytes_max: usize::MAX, ..Settings::default() });
    let (mut answers, mut bytes) = (0, vec![0; 1 << 20]);
    while answers < QUESTIONS {
        let count = stream.read(&mut bytes).unwrap();
        assert!(0 < count, "closed behind {answers} answers");
        parser.push(&bytes[..count]);
        while let Some(message) = parser.next().unwrap() {
            if let HatServerMessage::Found(answer) = HatServerMessage::decode(&message).unwrap() {
                answers += 1;
                assert_eq!((message.conversation.first, answer.events.len()), (1 + answers, 40));
            }
        }
    }
}
