//! Event streams, as published FutoIn clients (`futoin-eventstream`) use them, and as any HTTP client can.

mod postgres;
mod postgres_tls;

use crate::support::certificate::{Authority, certificate};
use crate::support::command::{PATIENCE, Place, RunningCommand};
use crate::support::exit_code::DONE;
use crate::support::root;
use crate::support::wait::{wait_until, wait_until_some};
use crate::support::websocket::WebSocket;
use seqcast::event::model::Json;
use seqcast::storage::streams::sqlite::add_event_in;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

/// Starts a peer with the listener at the place's port.
fn peer(place: &Place, settings: &[&str]) -> RunningCommand {
    let listener = format!("ftn18={}", place.port());
    place.peer_with_listener(&[&[listener.as_str()], settings].concat())
}

/// FutoIn clients in a program of their own; each line of its input is a JSON object with a command.
struct Client {
    process: RunningCommand,
    input: ChildStdin,
    /// Output that came while other output was awaited.
    unread: Vec<Value>,
}

impl Client {
    fn start(place: &Place, credentials: &str) -> Client {
        Client::start_with(place, &[credentials], None)
    }

    /// Starts the same over encrypted connections; it trusts this certificate.
    fn start_with(place: &Place, arguments: &[&str], certificate: Option<&Path>) -> Client {
        let mut command = Command::new("node");
        command.arg(root().join("target/clients/node/futoin.mjs")).arg(place.port().to_string()).args(arguments);
        command.envs(certificate.map(|path| ("NODE_EXTRA_CA_CERTS", path)));
        place.set_environment(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("tools/test has installed the client");
        let input = child.stdin.take().expect("standard input is a pipe");
        let mut client = Client { process: RunningCommand::new(child, &["futoin.mjs"]), input, unread: Vec::new() };
        client.await_output(|line| line["event"] == "started");
        client
    }

    /// Returns the first output that matches.
    #[track_caller]
    fn await_output(&mut self, is_such: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&is_such) {
            return self.unread.remove(at);
        }
        loop {
            let line = self.process.line();
            let output: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if is_such(&output) {
                return output;
            }
            self.unread.push(output);
        }
    }

    /// Makes it perform a command; returns the result.
    #[track_caller]
    fn act(&mut self, command: &Value) -> Value {
        writeln!(self.input, "{command}").expect("the client reads");
        self.await_output(|line| line.get("done").is_some())["done"].take()
    }

    #[track_caller]
    fn add(&mut self, kind: &str, data: Value) -> String {
        let done = self.act(&json!({ "do": "add", "type": kind, "data": data }));
        done["id"].as_str().unwrap_or_else(|| panic!("{done}")).to_owned()
    }

    /// Returns the next `count` events of the receiver, as id, type and data.
    #[track_caller]
    fn received(&mut self, name: &str, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let output = self.await_output(|line| line["received"] == name);
            events.extend(output["events"].as_array().expect("a list").clone());
        }
        events
    }
}

/// Returns all bytes of the answer until the connection is closed.
fn exchange_or_nothing(place: &Place, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", place.port())).expect("the listener is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer in time to {request}"),
        // A connection that is reset has sent nothing more.
        Ok(_) | Err(_) => {}
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the answer to an HTTP request: the whole head, and the body.
fn exchange(place: &Place, request: &str) -> (String, String) {
    let answer = exchange_or_nothing(place, request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {answer}"));
    (head.to_owned(), body.to_owned())
}

fn post_to(place: &Place, path: &str, body: &str) -> (String, String) {
    let head = "Host: x\r\nContent-Type: application/futoin+json\r\nConnection: close";
    exchange(place, &format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// Makes a call as alice by HTTP, and returns the result.
fn call(place: &Place, path: &str, f: &str, p: &Value) -> Value {
    let (head, body) = post_to(place, path, &json!({ "f": f, "p": p, "sec": "alice:x" }).to_string());
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/futoin+json\r\n"), "{head}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn add(place: &Place, path: &str, kind: &str, data: &Value) -> u64 {
    let done = call(place, path, "futoin.evt.gen:1.1:addEvent", &json!({ "type": kind, "data": data }));
    done["r"].as_str().and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("{done}"))
}

/// Returns the events that a consumer polls: id, type and data.
fn poll(place: &Place, path: &str, component: &str, last: Option<u64>) -> Vec<(u64, String)> {
    let p = json!({ "component": component, "last_id": last.map(|last| last.to_string()) });
    let done = call(place, path, "futoin.evt.poll:1.1:pollEvents", &p);
    let events = done["r"].as_array().unwrap_or_else(|| panic!("{done}"));
    let row = |event: &Value| {
        let id = event["id"].as_str().expect("a text").parse().expect("a number");
        (id, format!("{} {}", event["type"].as_str().expect("a text"), event["data"]))
    };
    events.iter().map(row).collect()
}

fn register(place: &Place, path: &str, component: &str) {
    let p = json!({ "component": component });
    assert_eq!(call(place, path, "futoin.evt.poll:1.1:registerConsumer", &p), json!({ "r": true }));
}

#[test]
fn published_clients_add_register_and_poll() {
    let place = Place::new();
    let _peer = peer(&place, &["accounts=user alice password alicepwd"]);
    let mut client = Client::start(&place, "alice:alicepwd");
    for socket in [false, true] {
        assert_eq!(client.act(&json!({ "do": "ping", "echo": 7, "socket": socket })), json!({ "echo": 7 }));
    }
    let live = client.act(&json!({ "do": "register", "component": "LIVE" }));
    assert_eq!(live["error"], "LiveNotAllowed", "{live}");
    assert_eq!(client.act(&json!({ "do": "poll", "component": "C" }))["error"], "NotRegistered");
    assert_eq!(client.act(&json!({ "do": "register", "component": "C" })), json!({ "registered": true }));
    let data = [json!({ "a": [1, 2.5, "ä"], "b": null }), json!("text"), json!(null), json!(12)];
    let ids: Vec<String> = data.iter().map(|data| client.add("SOME_EVENT", data.clone())).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);
    let rows = |from: usize| -> Value {
        ids.iter().zip(&data).skip(from).map(|(id, data)| json!([id, "SOME_EVENT", data])).collect()
    };
    assert_eq!(client.act(&json!({ "do": "poll", "component": "C" })), json!({ "events": rows(0) }));
    assert_eq!(client.act(&json!({ "do": "poll", "component": "C", "last": "2" })), json!({ "events": rows(2) }));
    assert_eq!(client.act(&json!({ "do": "poll", "component": "C", "want": ["X"] })), json!({ "events": [] }));
    let many = client.act(&json!({ "do": "add-many", "type": "MANY", "from": 0, "count": 2500 }));
    let ids: Vec<u64> =
        many["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(ids, (5..=2504).collect::<Vec<u64>>());
    // A list has 1,000 events at most.
    let polled = client.act(&json!({ "do": "poll", "component": "C" }));
    assert_eq!(polled["events"].as_array().map(Vec::len), Some(1000), "{polled}");
    // No other user gets in.
    let mut other = Client::start(&place, "alice:wrong");
    assert_eq!(other.act(&json!({ "do": "ping", "echo": 7 }))["error"], "SecurityError");
}

#[test]
fn published_receivers_get_everything_in_order() {
    let place = Place::new();
    let _peer = peer(&place, &[]);
    let mut client = Client::start(&place, "alice:x");
    let mut expected = Vec::new();
    for number in 0..5 {
        expected.push(json!([client.add("A", json!(number)), "A", number]));
    }
    client.act(&json!({ "do": "receive", "name": "all", "component": "C" }));
    client.act(&json!({ "do": "receive", "name": "some", "component": "D", "want": ["B"] }));
    client.act(&json!({ "do": "receive", "name": "live", "live": true }));
    for name in ["all", "some", "live"] {
        client.await_output(|line| line["ready"] == name);
    }
    assert_eq!(client.received("all", 5), expected);
    let mut later = Vec::new();
    for number in 0..300 {
        let kind = if number % 3 == 0 { "B" } else { "A" };
        later.push(json!([client.add(kind, json!(number)), kind, number]));
    }
    assert_eq!(client.received("all", 300), later);
    assert_eq!(client.received("live", 300), later);
    let some: Vec<Value> = later.into_iter().filter(|event| event[1] == "B").collect();
    assert_eq!(client.received("some", 100), some);
}

#[test]
fn required_encryption_works_with_published_clients() {
    let place = Place::new();
    let [certificate, key] = certificate(place.dir(), "listener");
    let files = format!("ftn18-tls={} {}", certificate.display(), key.display());
    for optional in ["", " optional"] {
        let mut running = peer(&place, &[&format!("{files}{optional}")]);
        let mut client = Client::start_with(&place, &["alice:x", "tls"], Some(&certificate));
        for socket in [false, true] {
            assert_eq!(client.act(&json!({ "do": "ping", "echo": 7, "socket": socket })), json!({ "echo": 7 }));
        }
        client.add("A", json!(1));
        let plain = exchange_or_nothing(&place, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(plain.starts_with("HTTP/1.1 400"), !optional.is_empty(), "{plain}");
        running.signal("TERM");
        running.ended();
    }
    let wrong = format!("ftn18-tls={} {}", key.display(), certificate.display());
    place.run(&["peer", "--set", "ftn18=0", "--set", &wrong]).exits(3).reports(&["ftn18-tls: ", "listener-key.pem"]);
}

#[test]
fn certificate_of_the_client_is_required() {
    let place = Place::new();
    let authority = Authority::new(place.dir(), "authority");
    let sign = |name: &str| authority.sign(name, &format!("/CN={name}"), "IP:127.0.0.1", 2);
    let ([certificate, key], ca) = (sign("listener"), authority.certificate());
    let tls = format!("ftn18-tls={} {} verify {}", certificate.display(), key.display(), ca.display());
    let running = peer(&place, &[&tls]);
    let url = format!("https://127.0.0.1:{}/futoin.ping/1.0/ping?echo=42", place.port());
    let ping = |files: Option<[PathBuf; 2]>| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "30", "--user", "alice:x", "--cacert"]).arg(ca).arg(&url);
        for (option, file) in ["--cert", "--key"].iter().zip(files.iter().flatten()) {
            curl.arg(option).arg(file);
        }
        let output = curl.output().expect("curl is installed");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let answer = ping(Some(sign("client")));
    assert!(answer.contains("\"echo\":42"), "{answer}");
    let foreign = Authority::new(place.dir(), "other").sign("foreign", "/CN=client", "DNS:client", 2);
    for (files, reason) in [(None, "no client certificate"), (Some(foreign), "foreign client certificate")] {
        let answer = ping(files);
        assert!(!answer.contains("echo"), "{answer}");
        wait_until(reason, || running.stderr_so_far().iter().any(|line| line.contains(reason)));
    }
}

#[test]
fn clear_events_need_a_trusted_listener() {
    for (setting, is_trusted) in [("ftn18-trusted=no", false), ("ftn18-trusted=yes", true)] {
        let place = Place::new();
        let listener = format!("ftn18=0.0.0.0:{}", place.port());
        let _peer = place.peer_with_listener(&[&listener, "ftn18-open=yes", setting]);
        let event = json!({ "type": "A", "data": 1 });
        let done = call(&place, "/main", "futoin.evt.gen:1.1:addEvent", &event);
        assert_eq!((done["r"] == "1", done["e"] == "SecurityError"), (is_trusted, !is_trusted), "{done}");
    }
}

#[test]
fn stream_continues_at_its_position_after_a_kill() {
    let place = Place::new();
    let mut running = peer(&place, &[]);
    register(&place, "/main", "C");
    let rows: Vec<(u64, String)> = (1..=40).map(|number| (number, format!("A {number}"))).collect();
    for round in 0..4 {
        for number in 10 * round + 1..=10 * round + 10 {
            assert_eq!(add(&place, "/main", "A", &json!(number)), number);
        }
        let last = 10 * round + 5;
        let open = rows[usize::try_from(last).unwrap()..usize::try_from(last).unwrap() + 5].to_vec();
        assert_eq!(poll(&place, "/main", "C", Some(last)), open);
        running.signal("KILL");
        running.ended();
        running = peer(&place, &[]);
        assert_eq!(poll(&place, "/main", "C", None), open, "what was accepted stays so");
    }
}

/// Opens the database in which an application has its own tables, and the streams beside them.
fn data_base(place: &Place) -> rusqlite::Connection {
    let opened =
        rusqlite::Connection::open(place.dir().join("state/seqcast/streams.db")).expect("the peer has made it");
    opened.busy_timeout(PATIENCE).expect("a timeout");
    opened
}

/// An event exists exactly if the transaction in which it was added commits, whenever the peer is killed.
#[test]
fn transaction_events_exist_exactly_after_commit() {
    let place = Place::new();
    let mut running = peer(&place, &[]);
    register(&place, "/main", "C");
    let mut data_base = data_base(&place);
    data_base.execute_batch("CREATE TABLE account (balance INTEGER)").expect("a table of the application");
    let (main, deposit) = ("main".parse().expect("a name"), "DEPOSIT".parse().expect("a type"));
    let mut expected = Vec::new();
    for number in 0..60 {
        let transaction = data_base.transaction().expect("it begins");
        transaction.execute("INSERT INTO account VALUES (?)", [number]).expect("the application's own row");
        let data = Json::from_bytes(number.to_string().into()).expect("a number is JSON");
        add_event_in(&transaction, &main, &deposit, &data).expect("it is posted");
        if number % 3 == 0 {
            transaction.rollback().expect("it ends");
        } else {
            transaction.commit().expect("it ends");
            expected.push(format!("DEPOSIT {number}"));
        }
        if number % 20 == 10 {
            running.signal("KILL");
            running.ended();
            running = peer(&place, &[]);
        }
    }
    // Any language can add events, and every subscriber on the bus sees them.
    let seen = place.start(&["sub", "main.>"]);
    seen.await_report("listening");
    let post = "INSERT INTO seqcast_outbox (stream, type, data) VALUES (?, ?, ?)";
    data_base.execute(post, ["main", "DEPOSIT", "[1, 2]"]).expect("it is posted");
    expected.push("DEPOSIT [1,2]".to_owned());
    for wrong in [["main", "deposit", "1"], ["main", "DEPOSIT", "no JSON"], ["", "DEPOSIT", "1"]] {
        let refused = data_base.execute(post, wrong).expect_err("the table refuses it").to_string();
        assert!(refused.contains("CHECK constraint failed"), "{refused}");
    }
    let polled = || poll(&place, "/main", "C", None);
    let what = || format!("{} events are there, of which {} are", expected.len(), polled().len());
    let all = wait_until_some(what, || Some(polled()).filter(|all| expected.len() <= all.len()));
    assert_eq!(all.into_iter().map(|(_, text)| text).collect::<Vec<String>>(), expected);
    while !seen.line().contains("[1, 2]") {}
    let left: i64 = data_base.query_row("SELECT count(*) FROM seqcast_outbox", [], |row| row.get(0)).expect("a table");
    assert_eq!(left, 0);
}

/// An event is added at one peer, and read at the other one, and the other way round.
#[test]
fn stream_has_the_same_events_at_all_peers() {
    let (here, there) = (Place::new(), Place::new());
    let port = format!("port={}", here.port());
    let _here = peer(&here, &["server-id=7", &port]);
    let _there = peer(&there, &["server-id=8", &port]);
    for place in [&here, &there] {
        register(place, "/", "C");
    }
    let mut expected = Vec::new();
    for number in 0..50 {
        let place = if number % 2 == 0 { &here } else { &there };
        add(place, "/", "A", &json!(number));
        expected.push(format!("A {number}"));
    }
    expected.sort();
    for place in [&here, &there] {
        wait_until("the 50 events are there", || {
            let polled = poll(place, "/", "C", None);
            assert!(polled.is_sorted() && polled.len() <= 50);
            let mut found: Vec<String> = polled.into_iter().map(|(_, text)| text).collect();
            found.sort();
            found == expected
        });
    }
}

/// Events in a stream are events of the bus, and the other way round.
#[test]
fn stream_events_are_events_of_the_bus() {
    let place = Place::new();
    let _peer = peer(&place, &["streams=main ; alarms plant/?/ALARM"]);
    let seen = place.start(&["sub", "main.>", "--count", "1"]);
    seen.await_report("listening");
    assert_eq!(add(&place, "/ftn/main/", "DEPOSIT", &json!({ "x": 1 })), 1);
    assert!(seen.line().contains("{\"x\":1}"));
    place.run(&["event", "add", "plant/7/ALARM", "{\"level\": 3}"]).exits(DONE);
    place.run(&["event", "add", "plant/7/alarm", "4"]).exits(DONE);
    assert_eq!(add(&place, "/alarms", "OWN", &json!(5)), 2);
    assert_eq!(poll(&place, "/alarms", "LIVE", None), [(1, "ALARM {\"level\":3}".into()), (2, "OWN 5".into())]);
    assert_eq!(poll(&place, "/", "LIVE", None), [(1, "DEPOSIT {\"x\":1}".into())]);
    let found = place.run(&["event", "query", "*"]).exits(DONE).stdout;
    assert!(found.contains("main/DEPOSIT") && found.contains("alarms/OWN"), "{found}");
}

/// Clients that request much and read nothing hold no more than is allowed, and others are served meanwhile.
#[test]
fn slow_clients_are_closed() {
    const CLIENTS: usize = 12;
    let place = Place::new();
    let _peer = peer(&place, &["listener-memory=1 mb"]);
    let text = "x".repeat(60_000);
    let events = 120;
    let lines: String = (0..events).map(|_| format!("\"{text}\"\n")).collect();
    place.run_with_input(&["stream", "add", "A", "--lines"], lines.as_bytes()).exits(DONE);
    let p = json!({ "component": "LIVE" });
    let body = json!({ "f": "futoin.evt.poll:1.1:pollEvents", "p": p, "sec": "alice:x" }).to_string();
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let slow: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", place.port())).expect("the listener is open");
            stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
            stream
        })
        .collect();
    let memory = || {
        let status: Value =
            serde_json::from_str(&place.run(&["show", "status", "--json"]).exits(DONE).stdout).expect("a JSON object");
        let of = |name: &str| status["status"]["streams"][name].as_u64().expect("a number");
        (of("bytes"), of("evicted"), of("requests"))
    };
    let await_memory = |what: &str, is_such: &dyn Fn((u64, u64, u64)) -> bool| {
        let what = || format!("{what}; held, evicted, requests: {:?}", memory());
        wait_until_some(what, || is_such(memory()).then_some(()));
    };
    await_memory("clients are evicted until the rest fits", &|(bytes, evicted, requests)| {
        CLIENTS as u64 <= requests && 0 < evicted && bytes <= 32 << 20
    });
    assert_eq!(poll(&place, "/", "LIVE", None).len(), events, "a client that reads is served");
    let (_, evicted, _) = memory();
    assert!(evicted < CLIENTS as u64, "no more of them go than must");
    drop(slow);
    await_memory("the clients hold no bytes", &|(bytes, _, _)| bytes == 0);
}

#[test]
fn websocket_ends_with_its_close_code() {
    let place = Place::new();
    let peer = peer(&place, &["accounts=user alice password x"]);
    let address = ([127, 0, 0, 1], place.port()).into();
    let connect = || WebSocket::connect(address, "/", PATIENCE).expect("the listener is open");
    let check = |socket: &mut WebSocket, code: u16| {
        let error = socket.read().expect_err("the server closes").to_string();
        assert_eq!(error, format!("closed with code {code}"));
    };
    for (opcode, payload, code) in [
        (0x82, vec![b' '; 70_000], 1009),
        (0x82, vec![b' '; 300_000], 1009),
        (0x82, vec![0xff], 1007),
        (0x81, vec![0xff], 1007),
        (0x83, vec![], 1002),
        (0x88, vec![0x03, 0xe8], 1000),
    ] {
        let mut socket = connect();
        socket.push_frame(opcode, &payload);
        check(&mut socket, code);
    }
    let mut socket = connect();
    peer.signal("TERM");
    check(&mut socket, 1001);
    let log = peer.stderr_so_far();
    let lines = |reason: &str| log.iter().filter(|line| line.contains(reason)).count();
    assert_eq!(
        (lines("a message has more than 65536 bytes"), lines("breaks the WebSocket protocol")),
        (2, 1),
        "{log:?}"
    );
}

#[test]
fn call_in_url_is_answered() {
    let place = Place::new();
    let _peer = peer(&place, &["accounts=user alice password x:y"]);
    let get = |path: &str, headers: &str| {
        exchange(&place, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n"))
    };
    let basic = "Authorization: Basic YWxpY2U6eDp5\r\n";
    let (head, body) = get("/main/futoin.evt.gen/1.1/addEvent?type=A&data=%7B%22a%22:1%7D", basic);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("application/futoin+json"), "{head}");
    assert_eq!(body, r#"{"r":"1"}"#);
    let (_, body) = get("/futoin.ping/1.0/ping/alice%3Ax%3Ay?echo=42", "");
    assert_eq!(body, r#"{"r":{"echo":42}}"#);
    let (_, body) = get("/futoin.ping/1.0/ping?echo=42", "Authorization: Basic YWxpY2U6eA==\r\n");
    assert!(body.contains("SecurityError"), "{body}");
    let (_, body) = get("/futoin.ping/1.0/ping?echo=4+2", basic);
    assert!(body.contains(r#"\"echo\" is no JSON: trailing characters at line 1 column 3"#), "{body}");
    for header in ["Referer: http://evil.example/\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let (head, _) = get("/futoin.ping/1.0/ping?echo=42", &format!("{basic}{header}"));
        assert!(head.starts_with("HTTP/1.1 403 "), "{header}: {head}");
    }
    let (head, _) = get("/mian/futoin.ping/1.0/ping?echo=42", basic);
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

#[test]
fn malformed_message_is_answered_with_place() {
    let place = Place::new();
    let _peer = peer(&place, &[]);
    for (body, text) in [
        ("{\"f\":1,\n x}", "key must be a string at line 2 column 2"),
        ("[1]", "a message is a JSON object: another value stands at line 1 column 0"),
        ("{\"f\":1,\"p\":{}}", "f is no string"),
        ("{\"f\":\"futoin.ping:1.0:ping\",\"p\":1}", "p is no object"),
    ] {
        let (_, answer) = post_to(&place, "/", body);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["e"], "InvalidRequest");
        assert!(answer["edesc"].as_str().unwrap().contains(text), "{body}: {answer}");
    }
}

#[test]
fn invalid_requests_are_refused() {
    let place = Place::new();
    let _peer = peer(&place, &["accounts=user alice password x"]);
    for (f, p, name) in [
        ("futoin.evt.gen:1.1:addEvent", json!({ "type": "evt", "data": 1 }), "InvalidRequest"),
        ("futoin.evt.gen:1.2:ping", json!({ "echo": 1 }), "NotSupportedVersion"),
        ("futoin.evt.x:1.0:ping", json!({ "echo": 1 }), "UnknownInterface"),
        ("futoin.evt.push:1.1:readyToReceive", json!({ "component": "C" }), "InvalidRequest"),
        ("futoin.evt.poll:1.1:pollEvents", json!({ "component": "C" }), "NotRegistered"),
        ("futoin.evt.poll:1.1:registerConsumer", json!({ "component": "LIVE" }), "LiveNotAllowed"),
    ] {
        assert_eq!(call(&place, "/", f, &p)["e"], name, "{f}");
    }
    let ping = |sec: &str| format!(r#"{{"f":"futoin.ping:1.0:ping","p":{{"echo":1}}{sec}}}"#);
    for (body, answer) in [
        ("no JSON".to_owned(), "InvalidRequest"),
        (ping(""), "Anonymous not allowed"),
        (ping(r#","sec":"alice:y""#), "SecurityError"),
        (ping(r#","sec":"alice:x","more":1"#), "InvalidRequest"),
        (ping(r#","sec":"alice:x","rid":"C1""#), r#"{"r":{"echo":1},"rid":"C1"}"#),
    ] {
        let (head, answered) = post_to(&place, "/", &body);
        assert!(head.starts_with("HTTP/1.1 200 ") && answered.contains(answer), "{body}: {head} {answered}");
    }
    let (head, _) = post_to(&place, "/", &" ".repeat(70_000));
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    let (head, text) = post_to(&place, "/mian", &ping(r#","sec":"alice:x""#));
    assert!(head.starts_with("HTTP/1.1 404 ") && text.contains("/main"), "{head} {text}");
    for request in ["GET / HTTP/1.1", "PUT /main HTTP/1.1\r\nContent-Length: 0"] {
        let (head, _) = exchange(&place, &format!("{request}\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert!(head.starts_with("HTTP/1.1 400 "), "{request}: {head}");
    }
}

#[test]
fn account_does_only_the_permitted() {
    let place = Place::new();
    let accounts = "accounts=user alice password alicepwd publish main.A subscribe main.A ; user bob password x";
    let _peer = peer(&place, &[accounts]);
    let mut client = Client::start(&place, "alice:alicepwd");
    assert_eq!(client.act(&json!({ "do": "add", "type": "B", "data": 1 }))["error"], "Unauthorized");
    assert_eq!(client.add("A", json!(1)), "1");
    let added = json!({ "f": "futoin.evt.gen:1.1:addEvent", "p": { "type": "B", "data": 2 }, "sec": "bob:x" });
    assert_eq!(post_to(&place, "/", &added.to_string()).1, r#"{"r":"2"}"#);
    assert_eq!(client.act(&json!({ "do": "register", "component": "C" })), json!({ "registered": true }));
    assert_eq!(client.act(&json!({ "do": "poll", "component": "C" }))["error"], "Unauthorized");
    let poll = |want: &[&str]| json!({ "do": "poll", "component": "C", "want": want });
    assert_eq!(client.act(&poll(&["A", "B"]))["error"], "Unauthorized");
    assert_eq!(client.act(&poll(&["A"])), json!({ "events": [["1", "A", 1]] }));
    assert_eq!(place.show("status")["status"]["streams"]["denied"], 3);
}
