//! The Rendezvous listener of peers that run as processes, over sockets.

use super::client::{ListenerClient, Nats};
use super::rv_client::{RvClient, RvFrame, body, encode, message, text};
use crate::support::certificate::Authority;
use crate::support::command::{Place, RunningCommand, now};
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::listener::rv::message::{RvField, RvMessage, RvValue};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time in which nothing must come.
const SILENCE: Duration = Duration::from_millis(300);

/// A peer with a Rendezvous listener and a NATS listener.
struct RvPeer {
    place: Place,
    _process: RunningCommand,
    /// Service of its clients: the port of the group.
    service: u16,
}

impl RvPeer {
    fn start(name: &str, service: u16, settings: &[&str]) -> RvPeer {
        let place = Place::new();
        let (name, port) = (format!("name={name}"), format!("port={service}"));
        let settings = [&["--rv", "0", "--nats", "0", "--set", &name, "--set", &port], settings].concat();
        let process = place.peer(&settings);
        RvPeer { place, _process: process, service }
    }

    /// Starts two peers of a group, which know each other.
    fn pair() -> [RvPeer; 2] {
        let service = Place::new().port();
        let peers = ["A.test", "B.test"].map(|name| RvPeer::start(name, service, &[]));
        wait_until("the peers know each other", || {
            peers.iter().all(|peer| peer.place.show("peers")["rows"].as_array().is_some_and(|rows| rows.len() == 1))
        });
        peers
    }

    /// Returns the row of a listener in `show status`.
    fn listener(&self, name: &str) -> Value {
        let status = self.place.show("status");
        let rows = status["status"]["listeners"].as_array().expect("rows");
        rows.iter().find(|row| row["listener"] == name).expect("the listener is open").clone()
    }

    fn address(&self, name: &str) -> SocketAddr {
        self.listener(name)["address"].as_str().expect("an address").parse().expect("an address")
    }

    fn client(&self) -> RvClient {
        let mut client = RvClient::enter(self.address("rv"), self.service);
        client.settle();
        client
    }

    fn nats(&self) -> ListenerClient {
        let mut client = ListenerClient::connect_to(Nats, self.address("nats"));
        client.enter();
        client
    }
}

fn is_text(frame: &RvFrame, subject: &str, value: &str) -> bool {
    frame.subject == subject && frame.field("text") == Some(value)
}

#[test]
fn messages_reach_clients_of_both_peers() {
    let [a, b] = RvPeer::pair();
    let (mut here, mut there) = (a.client(), b.client());
    for client in [&mut here, &mut there] {
        client.listen("TEST.*.SUB", None);
        client.listen("TEST.>", None);
        client.settle();
    }
    here.publish("TEST.a.SUB", "one");
    there.publish("TEST.a.SUB", "two");
    for client in [&mut here, &mut there] {
        let mut values = [client.frame(), client.frame()].map(|frame| frame.field("text").expect("a text").to_owned());
        values.sort();
        assert_eq!(values, ["one", "two"], "one copy of each, own messages too");
    }
    // A request and its answer, through an inbox of the client.
    let inbox = here.inbox(7);
    here.send(&encode(&message("TEST.request", Some(&inbox), body("please"))));
    let request = there.await_frame(|frame| is_text(frame, "TEST.request", "please"));
    assert_eq!((&request.reply[..], &request.letter[..]), (&inbox[..], "D"));
    there.publish(&request.reply, "answer");
    here.await_frame(|frame| is_text(frame, &inbox, "answer"));
    // The fields of the envelope of certified messages.
    let mut certified = message("TEST.certified", None, body("x"));
    certified.insert(1, ("cmseq", RvValue::U64(17)));
    here.send(&encode(&certified));
    let frame = there.await_frame(|frame| frame.subject == "TEST.certified");
    assert!(frame.fields.contains(&"text=x".to_owned()), "{frame:?}");
    for subject in ["TEST.*.SUB", "TEST.>"] {
        there.cancel(subject);
    }
    there.settle();
    here.publish("TEST.x", "only here");
    here.await_frame(|frame| is_text(frame, "TEST.x", "only here"));
    assert!(there.is_silent(SILENCE));
    let row = &a.place.show("clients")["rows"];
    assert!(row.to_string().contains(&here.session), "{row}");
}

#[test]
fn listens_are_announced_on_the_lan() {
    let [a, b] = RvPeer::pair();
    let mut monitor = a.client();
    monitor.listen("_RV.INFO.SYSTEM.>", None);
    monitor.settle();
    let mut client = b.client();
    let host = client.host.clone();
    assert_ne!(host, monitor.host);
    let start = monitor.await_frame(|frame| frame.subject == format!("_RV.INFO.SYSTEM.HOST.START.{host}"));
    assert_eq!((start.field("hostid"), start.field("service")), (Some("B.test"), Some(&b.service.to_string()[..])));
    let start = monitor.await_frame(|frame| frame.subject == format!("_RV.INFO.SYSTEM.SESSION.START.{host}"));
    assert_eq!((&start.letter[..], start.field("id")), ("A", Some(&client.session[..])));
    let inbox = client.inbox(3);
    client.listen("TEST.*", Some(&inbox));
    let start = monitor.await_frame(|frame| frame.subject == "_RV.INFO.SYSTEM.LISTEN.START.TEST.*");
    assert_eq!((&start.reply[..], start.field("refcnt"), start.field("sub")), (&inbox[..], Some("1"), Some("TEST.*")));
    // The publisher of an image answers to the listen.
    monitor.publish(&start.reply, "image");
    client.await_frame(|frame| is_text(frame, &inbox, "image"));
    // A monitor asks the daemon of another host.
    let ask = |what: &'static str, session: &str| {
        let fields = [("op", text("get")), ("what", text(what)), ("session", text(session))];
        let field = |(name, value): (&'static str, _)| RvField { name: name.as_bytes(), id: None, value };
        let data = RvMessage { fields: fields.map(field).to_vec() };
        let (subject, reply) = (format!("_INBOX.{host}.DAEMON"), monitor.inbox(1000));
        encode(&message(&subject, Some(&reply), RvValue::Message(data)))
    };
    let (sessions, subscriptions) = (ask("sessions", ""), ask("subscriptions", &client.session));
    let reply = monitor.inbox(1000);
    monitor.send(&sessions);
    assert_eq!(monitor.await_frame(|frame| frame.subject == reply).fields, [format!("={}", client.session)]);
    monitor.send(&subscriptions);
    assert_eq!(monitor.await_frame(|frame| frame.subject == reply).fields, ["user=demo", "=TEST.*", "end=1"]);
    let session = client.session.clone();
    drop(client);
    monitor.await_frame(|frame| frame.subject == "_RV.INFO.SYSTEM.LISTEN.STOP.TEST.*");
    let stop = monitor.await_frame(|frame| frame.subject.starts_with("_RV.INFO.SYSTEM.SESSION.STOP."));
    assert_eq!(stop.field("id"), Some(&session[..]));
    monitor.await_frame(|frame| frame.subject == format!("_RV.INFO.SYSTEM.HOST.STOP.{host}"));
}

#[test]
fn local_messages_do_not_leave_the_peer() {
    let [a, b] = RvPeer::pair();
    let (mut near, mut far) = (a.client(), b.client());
    for client in [&mut near, &mut far] {
        client.listen("_LOCAL.>", None);
        client.listen("LAN", None);
        client.settle();
    }
    let mut sender = a.client();
    sender.publish("_LOCAL.x", "here");
    sender.publish("LAN", "everywhere");
    assert!(is_text(&near.frame(), "_LOCAL.x", "here"));
    assert!(is_text(&near.frame(), "LAN", "everywhere"));
    assert!(is_text(&far.frame(), "LAN", "everywhere"));
}

#[test]
fn payloads_pass_between_listeners_unchanged() {
    let peer = RvPeer::start("A.test", Place::new().port(), &[]);
    let (mut rv, mut nats) = (peer.client(), peer.nats());
    rv.listen("mix.>", None);
    rv.settle();
    nats.subscribe("mix.>", 1);
    nats.settle();
    rv.publish("mix.a", "hi");
    let sent = encode(&[("text", text("hi"))]);
    assert_eq!(nats.message(), ("mix.a".to_owned(), sent.clone()));
    assert_eq!(rv.frame().data, sent);
    nats.send(Nats.publish("mix.b", "plain"));
    nats.send(Nats.publish("mix.c", &sent));
    let (plain, made) = (rv.frame(), rv.frame());
    assert_eq!((&plain.data[..], plain.fields.len()), (&b"plain"[..], 0));
    assert_eq!(made.field("text"), Some("hi"));
}

#[test]
fn other_service_or_network_is_refused() {
    let peer = RvPeer::start("A.test", Place::new().port(), &[]);
    let own = peer.service.to_string();
    for (service, network, error) in [("1", "", "20"), ("x", "", "18"), (&own[..], ";239.9.9.9", "5")] {
        let mut client = RvClient::connect(peer.address("rv"));
        client.init(service, network, None);
        let refusal = client.frame();
        assert_eq!((&refusal.subject[..], refusal.field("error")), ("RVD.INITREFUSED", Some(error)), "{refusal:?}");
        assert_eq!(client.poll_frame(), None, "the connection ends");
    }
    assert_eq!(peer.listener("rv")["faults"], 3);
}

#[test]
fn faulty_clients_disturb_no_others() {
    let peer = RvPeer::start("A.test", Place::new().port(), &[]);
    let mut reader = peer.client();
    reader.listen("ok", None);
    reader.settle();
    let listen = encode(&[("mtype", text("L")), ("sub", RvValue::Subject(vec![b"a"]))]);
    let half = encode(&message("ok", None, body("never whole")));
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &listen,
        b"\0\0\0\x07\x99\x55\xee\xaa",
        b"\xff\xff\xff\xff\x99\x55\xee\xaa",
    ] {
        let mut client = RvClient::connect(peer.address("rv"));
        client.try_send(bytes);
        assert_eq!(client.poll_frame(), None, "the connection ends");
    }
    let mut silent = RvClient::enter(peer.address("rv"), peer.service);
    silent.send(&half[..half.len() - 1]);
    for letter in ["A", "R", "S"] {
        let mut client = peer.client();
        client.try_send(&encode(&[("mtype", text(letter)), ("sub", RvValue::Subject(vec![b"ok"]))]));
        assert_eq!(client.poll_frame(), None, "the connection ends");
    }
    reader.publish("ok", "still here");
    assert!(is_text(&reader.frame(), "ok", "still here"));
    assert!(reader.is_silent(SILENCE));
    assert_eq!(peer.listener("rv")["faults"], 7);
}

/// Forwards bytes until either side closes. A splice, as of `io::copy`, would lock the pipe while it waits.
fn forward(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
}

/// Forwards one connection over TLS with this certificate and key. Returns the address for the client.
fn encrypted(to: SocketAddr, authority: &Authority, files: &[PathBuf; 2]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut tunnel = Command::new("openssl");
    tunnel.args(["s_client", "-quiet", "-connect", &to.to_string(), "-CAfile"]).arg(authority.certificate());
    tunnel.arg("-cert").arg(&files[0]).arg("-key").arg(&files[1]);
    tunnel.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("the client connects");
        let mut child = tunnel.spawn().expect("openssl is installed");
        let (mut input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut reader = client.try_clone().expect("a socket");
        // Either side may close first.
        std::thread::spawn(move || forward(&mut reader, &mut input));
        forward(&mut output, &mut client);
        drop(client.shutdown(std::net::Shutdown::Both));
        drop(child.kill());
        child.wait().expect("the tunnel ends");
    });
    address
}

#[test]
fn certificates_admit_clients_with_permissions() {
    let place = Place::new();
    let authority = Authority::new(place.dir(), "authority");
    let [certificate, key] = authority.sign("listener", "/CN=listener", "IP:127.0.0.1", 2);
    let ca = authority.certificate().display();
    let tls = format!("rv-tls={} {} verify {ca}", certificate.display(), key.display());
    let accounts = "accounts=certificate press-7 publish out.> subscribe in.>,_INBOX.>";
    let peer = RvPeer::start("A.test", place.port(), &["--set", &tls, "--set", accounts]);
    let known = authority.sign("known", "/CN=press-7", "IP:127.0.0.1", 2);
    let mut client = RvClient::enter(encrypted(peer.address("rv"), &authority, &known), peer.service);
    client.listen("out.x", None);
    let denied = client.frame();
    assert_eq!(denied.subject, "_RV.ERROR.SYSTEM.CLIENT.ILLEGAL_LISTEN", "{denied:?}");
    client.publish("in.x", "1");
    let denied = client.frame();
    assert_eq!((&denied.subject[..], denied.field("sub")), ("_RV.ERROR.SYSTEM.CLIENT.ILLEGAL_PUBLISH", Some("in.x")));
    client.listen("in.x", None);
    client.publish("out.x", "2");
    wait_until("the denials are counted", || peer.listener("rv")["denied"] == 2);
    let other = authority.sign("other", "/CN=stranger", "IP:127.0.0.1", 2);
    let mut stranger = RvClient::connect(encrypted(peer.address("rv"), &authority, &other));
    stranger.init("", "", None);
    let refusal = stranger.frame();
    assert_eq!((&refusal.subject[..], refusal.field("error")), ("RVD.INITREFUSED", Some("20")));
    // A client without encryption gets no byte.
    let mut plain = std::net::TcpStream::connect(peer.address("rv")).expect("the listener is open");
    plain.write_all(&[0; 12]).expect("the peer reads");
    assert_eq!(plain.read(&mut [0; 64]).unwrap_or(0), 0);
}

#[test]
fn slow_client_stalls_no_others() {
    const COUNT: usize = 4_000;
    let settings = ["message-size=64 kb", "hold-size=1 mb", "reassembly-size=1 mb", "client-queue-size=1 mb"];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let peer = RvPeer::start("A.test", Place::new().port(), &settings);
    let (mut sleeper, mut reader) = (peer.client(), peer.client());
    for client in [&mut sleeper, &mut reader] {
        client.listen("flood", None);
    }
    reader.settle();
    let mut publisher = peer.client();
    let value = "x".repeat(10_000);
    for _ in 0..COUNT {
        publisher.publish("flood", &value);
        assert_eq!(reader.frame().subject, "flood");
    }
    let (mut received, mut dropped, mut after_report) = (0, 0, 0);
    while received + dropped < COUNT {
        let frame = sleeper.frame();
        if frame.subject == "flood" {
            received += 1;
            after_report += usize::from(0 < dropped);
            continue;
        }
        assert_eq!((&frame.subject[..], &frame.letter[..]), ("_RV.ERROR.SYSTEM.CLIENT.SLOWCONSUMER", "A"));
        let number = |name: &str| frame.field(name).expect("a number").parse::<usize>().expect("a number");
        assert_eq!(number("bytes_dropped") / number("dropped") / 1000, 10, "{frame:?}");
        assert!(0 < number("waiting"), "{frame:?}");
        dropped += number("dropped");
    }
    assert_eq!(received + dropped, COUNT);
    assert!(0 < after_report, "the report precedes the messages that wait");
    publisher.publish("flood", "last");
    sleeper.await_frame(|frame| is_text(frame, "flood", "last"));
    assert_eq!(peer.listener("rv")["slow"], 1);
}

#[test]
fn slow_client_gets_one_report_a_second() {
    let settings = ["message-size=64 kb", "hold-size=1 mb", "reassembly-size=1 mb", "client-queue-size=1 mb"];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let peer = RvPeer::start("A.test", Place::new().port(), &settings);
    let mut slow = peer.client();
    slow.listen("flood", None);
    slow.settle();
    let mut publisher = peer.client();
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&is_over);
    let flood = std::thread::spawn(move || {
        let value = "x".repeat(10_000);
        while !ended.load(Ordering::Relaxed) {
            publisher.publish("flood", &value);
        }
    });
    let (started, mut reports) = (now(), 0);
    while now().since(started) < Duration::from_secs(4) {
        reports += u32::from(slow.frame().subject == "_RV.ERROR.SYSTEM.CLIENT.SLOWCONSUMER");
        let_time_pass(Duration::from_millis(1), "the client reads more slowly than the publisher sends");
    }
    is_over.store(true, Ordering::Relaxed);
    flood.join().expect("the publisher ends");
    assert!((1..=5).contains(&reports), "{reports} reports in 4 s");
}

#[test]
fn daemon_answers_while_its_clients_do_not_read() {
    let settings = ["message-size=64 kb", "hold-size=1 mb", "reassembly-size=1 mb", "client-queue-size=1 mb"];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let peer = RvPeer::start("A.test", Place::new().port(), &settings);
    let mut sleepers = [(); 2].map(|()| peer.client());
    sleepers.iter_mut().for_each(|sleeper| sleeper.listen("flood", None));
    sleepers.iter_mut().for_each(RvClient::settle);
    let mut monitor = peer.client();
    let inbox = format!("_INBOX.{}.DAEMON", monitor.host);
    let inboxes = || {
        let rows = peer.place.show("subs")["rows"].clone();
        rows.as_array().expect("rows").iter().filter(|row| row["pattern"] == inbox[..]).count()
    };
    assert_eq!(inboxes(), 1, "one subscription, however many clients there are");
    let value = "x".repeat(10_000);
    wait_until("both clients are slow", || {
        (0..100).for_each(|_| monitor.publish("flood", &value));
        peer.listener("rv")["slow"] == 2
    });
    let reply = monitor.inbox(1000);
    let fields = [("op", text("get")), ("what", text("sessions"))];
    let fields = fields.map(|(name, value)| RvField { name: name.as_bytes(), id: None, value }).to_vec();
    let query = encode(&message(&inbox, Some(&reply), RvValue::Message(RvMessage { fields })));
    monitor.send(&query);
    assert_eq!(monitor.await_frame(|frame| frame.subject == reply).fields.len(), 3);
    // More queries than have room in one turn, and than the answers of a second may hold, do no harm.
    monitor.send(&query.repeat(20_000));
    monitor.publish(&monitor.inbox(1), "alive");
    monitor.await_frame(|frame| frame.field("text") == Some("alive"));
    drop(sleepers);
    drop(monitor);
    wait_until("the inbox ends with the last client", || inboxes() == 0);
}
