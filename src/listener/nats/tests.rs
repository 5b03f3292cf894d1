//! Transcripts of a client's input and the expected output. Each is played whole, byte by byte, and with random
//! splits. The expected output was recorded from nats-server 2.9.10, except where a comment states otherwise.

use super::*;
use crate::delivery::Deliveries;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::nkey;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Denial, DeniedAction, Permissions, SubjectPermission};
use crate::listener::session_request::{ConnectionInfo, Publish, ReceiverCount, SessionRequest};
use crate::message::{
    Count, Delivery, Epoch, Headers, Message, Publisher, Refusal, SubId, SubscriptionFilter, Verdict,
};
use crate::rng::Rng;
use crate::seqno::{Frame, Seq};
use crate::time::Instant;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A CONNECT as client libraries send it.
const QUIET: &str = r#"CONNECT {"verbose":false,"headers":true,"no_responders":true}|"#;

fn settings() -> Settings {
    Settings { payload_bytes_max: 2_000, ..Settings::new("A.test".parse().unwrap(), Epoch::new(7).unwrap()) }
}

fn closed(credentials: impl IntoIterator<Item = Credentials>) -> Settings {
    let accounts = credentials.into_iter().map(Account::new).collect();
    Settings { access: Access { accounts, ..Access::default() }, ..settings() }
}

fn with_password() -> Settings {
    closed([Credentials::User { name: "u".to_owned(), password: "p".to_owned() }])
}

fn hello() -> ConnectionInfo {
    let address = |text: &str| text.parse().unwrap();
    let (from, listen) = (address("10.0.0.9:50000"), address("127.0.0.1:4222"));
    ConnectionInfo { client: 5, from, listen, nonce: [9; 16], is_secure: false }
}

fn seconds(count: u64) -> Instant {
    Instant::from_nanos(count * 1_000_000_000)
}

/// A client of a peer that has no other clients.
struct Alone {
    parser: NatsParser,
    session: NatsSession,
    out: OutputBuffer,
    wanted: BTreeMap<SubId, SubscriptionFilter>,
    requests: Vec<String>,
    is_over: bool,
    /// True if the client receives its own messages.
    has_echo: bool,
    /// True if each message is refused once because of backpressure.
    is_tight: bool,
}

impl Alone {
    fn new(settings: &Settings) -> Alone {
        let session = NatsSession::new(Arc::new(settings.clone()), &hello(), Instant::ZERO);
        Alone {
            parser: NatsParser::new(settings),
            session,
            out: OutputBuffer::new(),
            wanted: BTreeMap::new(),
            requests: Vec::new(),
            is_over: false,
            has_echo: true,
            is_tight: false,
        }
    }

    /// Creates a client that has already sent this text.
    fn after(settings: &Settings, sent: &str) -> Alone {
        let mut alone = Alone::new(settings);
        alone.push(&bytes(sent));
        alone.out.clear();
        alone
    }

    fn push(&mut self, bytes: &[u8]) {
        let Alone { parser, session, out, wanted, requests, is_over, has_echo, is_tight } = self;
        if *is_over {
            return;
        }
        parser.push(bytes);
        let mut was_repeated = !*is_tight;
        while !*is_over {
            let command = match parser.next() {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(fault) => {
                    session.on_fault(&fault, out);
                    *is_over = true;
                    break;
                }
            };
            if command.is_publish() && !was_repeated {
                parser.repeat_last();
                was_repeated = true;
                continue;
            }
            was_repeated = !*is_tight;
            let first = match session.on_command(Instant::ZERO, command, out) {
                Ok(request) => request,
                Err(fault) => {
                    session.on_fault(&fault, out);
                    *is_over = true;
                    break;
                }
            };
            let (mut is_admitted, mut own) = (false, Vec::new());
            let mut carry_out = |request: SessionRequest<'_>, session: &mut NatsSession| match request {
                SessionRequest::Admitted { account } => {
                    is_admitted = true;
                    requests.push(format!("admitted {account}"));
                }
                SessionRequest::Close => *is_over = true,
                SessionRequest::Echo(is_on) => *has_echo = is_on,
                request @ SessionRequest::Publish(_) if !*has_echo => {
                    carry_out(request, session, out, &mut BTreeMap::new(), requests, &mut own);
                }
                request => carry_out(request, session, out, wanted, requests, &mut own),
            };
            if let Some(request) = first {
                carry_out(request, session);
            }
            while let Some(request) = session.poll_request() {
                carry_out(request, session);
            }
            // The daemon delivers the client's own messages after it has handled all requests.
            for (subs, deliveries) in own {
                session.on_deliveries(&subs, &deliveries, out);
                while let Some(request) = session.poll_request() {
                    self::carry_out(request, session, out, wanted, requests, &mut Vec::new());
                }
            }
            if is_admitted {
                parser.admit();
            }
        }
    }

    fn received(&mut self) -> String {
        let mut received = String::from_utf8_lossy(&self.out.take()).replace("\r\n", "|");
        if self.is_over {
            received.push_str("(closed)");
        }
        received
    }
}

/// Handles a request as a peer without other peers does.
fn carry_out(
    request: SessionRequest<'_>,
    session: &mut NatsSession,
    out: &mut OutputBuffer,
    wanted: &mut BTreeMap<SubId, SubscriptionFilter>,
    requests: &mut Vec<String>,
    own: &mut Vec<(Vec<SubId>, Deliveries)>,
) {
    match request {
        SessionRequest::Publish(Publish { subject, reply, headers, payload, wants_receivers }) => {
            let mut groups = BTreeSet::new();
            let subs: Vec<SubId> = wanted
                .iter()
                .filter(|(_, wanted)| wanted.matches(&subject))
                .filter(|(_, wanted)| wanted.queue.as_ref().is_none_or(|queue| groups.insert(queue.clone())))
                .map(|(sub, _)| *sub)
                .collect();
            let (payload, message) = (Bytes::copy_from_slice(payload), Message::new(subject, ""));
            let message = Message { payload, headers, reply: reply.clone(), ..message };
            own.push((subs.clone(), Deliveries::from(direct(message))));
            if wants_receivers {
                let receivers = ReceiverCount { count: subs.len() as u64, is_certain: true };
                session.on_published(reply.as_ref(), receivers, out);
            }
        }
        SessionRequest::Subscribe { sub, filter } => {
            assert_eq!(wanted.insert(sub, filter), None, "a number is assigned once")
        }
        SessionRequest::Unsubscribe { sub } => _ = wanted.remove(&sub).expect("what ends has begun"),
        SessionRequest::Count { subjects } => {
            assert_eq!(subjects, []);
            session.on_counts(&[], out);
        }
        request => requests.push(format!("{request:?}")),
    }
}

fn direct(message: Message) -> Delivery {
    Delivery::new(message, publisher(), None, Verdict::Direct)
}

fn publisher() -> Publisher {
    Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(0xab).unwrap(), uid: 1 }
}

fn bytes(text: &str) -> Vec<u8> {
    text.replace('|', "\r\n").into_bytes()
}

/// Plays a client's input with all kinds of splits, and compares the output. `|` means CR LF.
fn check(settings: &Settings, sent: &[u8], expected: &str) {
    let play = |cuts: &mut dyn FnMut() -> usize, is_tight: bool| {
        let (mut alone, mut rest) = (Alone::new(settings), sent);
        alone.is_tight = is_tight;
        while !rest.is_empty() {
            let (part, next) = rest.split_at(cuts().min(rest.len()));
            alone.push(part);
            rest = next;
        }
        alone.received()
    };
    let shown = String::from_utf8_lossy(&sent[..sent.len().min(200)]).into_owned();
    assert_eq!(play(&mut || usize::MAX, false), expected, "{shown}");
    assert_eq!(play(&mut || 1, true), expected, "byte by byte: {shown}");
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let cuts = &mut || rng.between(1, 40) as usize;
        assert_eq!(play(cuts, seed % 2 == 0), expected, "seed {seed}: {shown}");
    }
}

fn check_all(settings: &Settings, before: &str, table: &[(&str, &str)]) {
    for (sent, expected) in table {
        check(settings, &bytes(&format!("{before}{sent}")), expected);
    }
}

#[test]
fn transcript_equals_that_of_nats_server() {
    check_all(
        &settings(),
        "",
        &[
            ("PING|", "PONG|"),
            ("PING  |ping|PiNg\nPINGX|PONG|+OK|+OKK|INFO {}|PING|", "PONG|PONG|PONG|PONG|PONG|"),
            ("SUB a 1|PUB a 2|hi|", "+OK|+OK|MSG a 1 2|hi|"),
            (
                r#"CONNECT {"verbose":true}|PING|SUB a 1|PUB a 2|hi|UNSUB 1|UNSUB 7|PUB a 1|x|PONG|"#,
                "+OK|PONG|+OK|+OK|MSG a 1 2|hi|+OK|+OK|+OK|",
            ),
            (r#"connect   {"verbose":false}   |sub a 1|pub a 1|x|unsub 1|Pub a 1|y|"#, "MSG a 1 1|x|"),
            (r#"CONNECT{"verbose":false}|PING|"#, "PONG|"),
            ("FOO bar|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("PIX", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            (" PING|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("PUB|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("MSG a 1 1|x|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("SUBa 1|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("-ERRX|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("-ERR 'x'|PING|", "(closed)"),
        ],
    );
}

#[test]
fn published_message_reaches_its_subscriptions() {
    check_all(
        &settings(),
        QUIET,
        &[
            (
                "SUB a 1|PUB a 10 |0123456789|PUB \t a \t 1\t|0|PUB a 0||",
                "MSG a 1 10|0123456789|MSG a 1 1|0|MSG a 1 0||",
            ),
            ("SUB svc  2|PUB svc   in.box  1|x|UNSUB 2 |PUB svc 1|y|", "MSG svc 2 in.box 1|x|"),
            ("SUB a 1\nPUB a 1\nx|PING\n", "MSG a 1 1|x|PONG|"),
            ("SUB a 1|PUB a 001|x|", "MSG a 1 1|x|"),
            ("SUB a.* 1|SUB a.> x-y|PUB a.b 1|x|PUB a.b.c 1|y|", "MSG a.b 1 1|x|MSG a.b x-y 1|x|MSG a.b.c x-y 1|y|"),
            ("SUB a q 1|SUB a q 2|SUB a r 3|SUB a 4|PUB a 1|x|", "MSG a 1 1|x|MSG a 3 1|x|MSG a 4 1|x|"),
            // A second subscription with an id in use is ignored.
            ("SUB a 1|SUB b 1|PUB a 1|x|PUB b 1|y|UNSUB 1|PUB a 1|x|", "MSG a 1 1|x|"),
            ("PUB a 2|hixPING|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("PUB a 2|hi\nPING|", "-ERR 'Unknown Protocol Operation'|(closed)"),
            ("PUB a 2001|", "-ERR 'Maximum Payload Violation'|(closed)"),
            ("HPUB a 12 2001|", "-ERR 'Maximum Payload Violation'|(closed)"),
        ],
    );
    let whole = format!("PUB a 2000|{}|PING|", "x".repeat(2000));
    check_all(&settings(), QUIET, &[(&whole, "PONG|")]);
}

/// This listener reports an error where nats-server closes silently, or accepts content that the bus cannot carry.
#[test]
fn invalid_operation_is_answered_with_an_error() {
    let end = |what: &str| format!("-ERR 'Parser Error: {what}'|(closed)");
    let arguments = |op: Op| end(&format!("{op} is {}", op.usage()));
    let size = |op: Op| end(&format!("bad size in {op}: {}", op.usage()));
    for (sent, expected) in [
        ("PUB a|", arguments(Op::Pub)),
        ("PUB a b c 1|", arguments(Op::Pub)),
        ("PUB  |", arguments(Op::Pub)),
        ("PUB a x|", size(Op::Pub)),
        ("PUB a -1|", size(Op::Pub)),
        ("PUB a +1|", size(Op::Pub)),
        ("PUB a 1234567890|", size(Op::Pub)),
        ("HPUB a 1|", arguments(Op::Hpub)),
        ("HPUB a b c 1 1|", arguments(Op::Hpub)),
        ("HPUB a 1 x|", size(Op::Hpub)),
        ("HPUB a 13 2|", size(Op::Hpub)),
        ("SUB a|", arguments(Op::Sub)),
        ("SUB a b c d|", arguments(Op::Sub)),
        ("UNSUB  |", arguments(Op::Unsub)),
        ("UNSUB 1 2 3|", arguments(Op::Unsub)),
    ] {
        check_all(&settings(), QUIET, &[(sent, &expected)]);
    }
    check_all(
        &settings(),
        QUIET,
        &[
            (
                "SUB > 1|PUB a..b 1|0|PUB .a 1|0|PUB a. 1|0|PING|",
                &("-ERR 'Invalid Publish Subject'|".repeat(3) + "PONG|"),
            ),
            ("PUB a.* 1|0|PUB > 1|0|PING|", &("-ERR 'Invalid Publish Subject'|".repeat(2) + "PONG|")),
            ("SUB a 1|PUB a r..x 1|1|PUB a r.* 1|1|PING|", &("-ERR 'Invalid Reply Subject'|".repeat(2) + "PONG|")),
            ("SUB a..b 1|SUB a.>.b 1|PING|", &("-ERR 'Invalid Subject'|".repeat(2) + "PONG|")),
            ("HPUB a 3 5|abchi|HPUB a 13 15|NATS/1.0\n||hi|PING|", &("-ERR 'Invalid Headers'|".repeat(2) + "PONG|")),
            ("HPUB a 22 24|NATS/1.0||A: b|||hi|PING|", "-ERR 'Invalid Headers'|PONG|"),
        ],
    );
    let raw = [&bytes(QUIET)[..], b"PUB a\xff 1\r\n0\r\nSUB b\xff 1\r\nSUB b \xff 1\r\n"].concat();
    let expected = "-ERR 'Invalid Publish Subject'|-ERR 'Invalid Subject'|-ERR 'Invalid Queue Name'|";
    check(&settings(), &raw, expected);
    let sid = "s".repeat(65);
    let expected = "-ERR 'Invalid Subscription ID: more than 64 bytes'|MSG a ssss 1|x|".replace("ssss", &sid[1..]);
    check_all(&settings(), QUIET, &[(&format!("SUB a {sid}|SUB a {}|PUB a 1|x|", &sid[1..]), &expected)]);
    let few = Settings { subscriptions_max: 1, ..settings() };
    let expected = "-ERR 'maximum subscriptions exceeded'|MSG a 1 1|x|";
    check_all(&few, QUIET, &[("SUB a 1|SUB a 2|PUB a 1|x|UNSUB 1|SUB a 2|", expected)]);
    check_all(
        &settings(),
        r#"CONNECT {"verbose":true}|"#,
        &[("SUB a..b 1|PUB a..b 1|x|PING|", "+OK|-ERR 'Invalid Subject'|-ERR 'Invalid Publish Subject'|PONG|")],
    );
}

#[test]
fn line_limit_equals_that_of_nats_server() {
    let too_long = "-ERR 'maximum control line exceeded'|(closed)";
    let sid = |bytes: usize| format!("{QUIET}SUB a {}|PING|", "1".repeat(bytes));
    let long = Settings { sid_bytes_max: 5000, ..settings() };
    check(&long, &bytes(&sid(4094)), "PONG|");
    check(&long, &bytes(&sid(4095)), too_long);
    check(&settings(), &bytes(&format!("{QUIET}PUB a{}1|", " ".repeat(4095))), too_long);
    let name = |bytes: usize| format!(r#"CONNECT {{"verbose":false,"name":"{}"}}|PING|"#, "n".repeat(bytes));
    check(&settings(), &bytes(&name(4096 - 27)), "PONG|");
    check(&settings(), &bytes(&name(4096 - 26)), too_long);
    let shy = Settings { unauthenticated_bytes_max: 100, ..with_password() };
    check(&shy, &bytes(&name(100)), too_long);
}

#[test]
fn subscription_ends_after_its_maximum() {
    check_all(
        &settings(),
        QUIET,
        &[
            ("SUB a 1|UNSUB 1 2|PUB a 1|1|PUB a 1|2|PUB a 1|3|PING|", "MSG a 1 1|1|MSG a 1 1|2|PONG|"),
            ("SUB a 1|PUB a 1|1|PUB a 1|2|UNSUB 1 2|PUB a 1|3|PING|", "MSG a 1 1|1|MSG a 1 1|2|PONG|"),
            ("SUB a 1|PUB a 1|1|PUB a 1|2|UNSUB 1 1|PUB a 1|3|", "MSG a 1 1|1|MSG a 1 1|2|"),
            ("SUB a 1|PUB a 1|1|UNSUB 1 0|PUB a 1|3|PING|", "MSG a 1 1|1|PONG|"),
            ("SUB a 1|UNSUB 1 5|UNSUB 1 1|PUB a 1|1|PUB a 1|3|", "MSG a 1 1|1|"),
            ("SUB a 1|UNSUB 1 1|SUB a 1|PUB a 1|1|PUB a 1|3|", "MSG a 1 1|1|"),
            ("SUB a 1|UNSUB 1 1|PUB a 1|1|UNSUB 1|UNSUB 1|SUB a 1|PUB a 1|2|", "MSG a 1 1|1|MSG a 1 1|2|"),
            ("SUB a 1|UNSUB   1   1  |PUB a 1|1|PUB a 1|2|", "MSG a 1 1|1|"),
            ("SUB a 1|UNSUB 1 x|PUB a 1|1|PING|", "PONG|"),
            ("SUB a 1|UNSUB 1 99999999999999999|PUB a 1|1|PING|", "PONG|"),
        ],
    );
}

#[test]
fn request_without_receivers_is_answered_503() {
    check_all(
        &settings(),
        QUIET,
        &[
            ("SUB r 1|PUB nobody r 1|1|PING|", "HMSG r 1 16 16|NATS/1.0 503|||PONG|"),
            ("SUB r.* 1|SUB r.x 2|SUB r.> q 3|PUB nobody r.x 1|1|", "HMSG r.x 2 16 16|NATS/1.0 503|||"),
            ("SUB r.* 7|PUB nobody r.x 1|1|UNSUB 7|PUB nobody r.x 1|1|", "HMSG r.x 7 16 16|NATS/1.0 503|||"),
            (
                "PUB nobody r 1|1|SUB r.> q 1|PUB nobody r.x 1|1|SUB r.* 2|PUB nobody r.x 1|1|",
                "HMSG r.x 2 16 16|NATS/1.0 503|||",
            ),
            // The notification does not count as one of the messages after which a subscription ends.
            ("SUB r 1|UNSUB 1 1|PUB nobody r 1|1|PUB nobody r 1|1|", &"HMSG r 1 16 16|NATS/1.0 503|||".repeat(2)),
            ("SUB r 1|SUB somebody 2|PUB somebody r 1|1|PUB nobody 1|1|", "MSG somebody 2 r 1|1|"),
            // A client without echo is not a receiver of its own messages, until it enables echo again.
            (
                r#"SUB r 1|SUB a 2|CONNECT {"echo":false}|PUB a r 1|1|CONNECT {"echo":true}|PUB a r 1|2|"#,
                "HMSG r 1 16 16|NATS/1.0 503|||MSG a 2 r 1|2|",
            ),
        ],
    );
    check_all(
        &settings(),
        r#"CONNECT {"verbose":false,"headers":true}|"#,
        &[("SUB r 1|PUB nobody r 1|1|PING|", "PONG|")],
    );
    let mut alone = Alone::after(&settings(), &format!("{QUIET}SUB r 1|"));
    let reply = "r".parse().unwrap();
    for (count, is_certain) in [(0, false), (1, true)] {
        alone.session.on_published(Some(&reply), ReceiverCount { count, is_certain }, &mut alone.out);
        assert_eq!(alone.received(), "", "{count} {is_certain}");
    }
}

#[test]
fn headers_reach_clients_that_support_them() {
    check_all(
        &settings(),
        QUIET,
        &[
            ("SUB a 1|HPUB a rep 18 20|NATS/1.0|A:bc||hi|PING|", "HMSG a 1 rep 18 20|NATS/1.0|A:bc||hi|PONG|"),
            ("SUB a 1|HPUB  a   18   20  |NATS/1.0|A:bc||hi|", "HMSG a 1 18 20|NATS/1.0|A:bc||hi|"),
            ("SUB a 1|HPUB a 0 2|hi|", "MSG a 1 2|hi|"),
            ("SUB a 1|HPUB a 26 28|NATS/1.0 503 foo|A: b||hi|", "HMSG a 1 26 28|NATS/1.0 503 foo|A: b||hi|"),
            ("SUB a 1|HPUB a 16 16|NATS/1.0 100|||", "HMSG a 1 16 16|NATS/1.0 100|||"),
            // nats-server delivers headers without any field.
            ("SUB a 1|HPUB a 12 14|NATS/1.0||hi|", "MSG a 1 2|hi|"),
            // Fields reserved for the bus are removed.
            (
                "SUB a 1|HPUB a 45 47|NATS/1.0|A: b|sEQCAST-Lost: 7|C: d|e:||hi|HPUB a 24 26|NATS/1.0|Seqcast-a:||hi|",
                "HMSG a 1 28 30|NATS/1.0|A: b|C: d|e:||hi|MSG a 1 2|hi|",
            ),
            (
                "SUB a 1|HPUB a 80 82|NATS/1.0|A: b| Seqcast-Seq: 7|\t\tseqcast-lost: 7|C: d\rSeqcast-Lost: 7|e:||hi|",
                "HMSG a 1 22 24|NATS/1.0|A: b|e:||hi|",
            ),
        ],
    );
    let no_headers = "-ERR 'message headers not supported: CONNECT did not say \"headers\":true'|(closed)";
    let sent = "SUB a 1|HPUB a rep 18 20|NATS/1.0|A:bc||hi|PING|";
    check_all(&settings(), r#"CONNECT {"verbose":false}|"#, &[(sent, no_headers)]);
}

#[test]
fn connect_is_parsed_as_by_nats_server() {
    let member =
        |name: &str, wanted: &str| format!("-ERR 'Parser Error: \"{name}\" in CONNECT must be {wanted}'|(closed)");
    let json = |column: usize| {
        format!("-ERR 'Parser Error: CONNECT is not followed by JSON (line 1, column {column})'|(closed)")
    };
    let no_responders = "-ERR 'no responders requires headers support'|(closed)".to_owned();
    let protocol = "-ERR 'invalid client protocol'|(closed)".to_owned();
    let no_object = "-ERR 'Parser Error: CONNECT must be followed by a JSON object'|(closed)".to_owned();
    for (json, expected) in [
        ("{}", "+OK|PONG|".to_owned()),
        ("null", "+OK|PONG|".to_owned()),
        (r#"{"verbose":null,"foo":{"a":[1]},"echo":null,"protocol":null,"jwt":null}"#, "+OK|PONG|".to_owned()),
        (r#"{"VERBOSE":false,"Pedantic":false}"#, "PONG|".to_owned()),
        (r#"{"verbose":false,"verbose":true}"#, "+OK|PONG|".to_owned()),
        (r#"{"verbose":false,"tls_required":true,"jwt":"abc","sig":"x","user":"u","pass":"x"}"#, "PONG|".to_owned()),
        (r#"{"protocol":2}"#, protocol.clone()),
        (r#"{"protocol":-1}"#, protocol),
        (r#"{"protocol":1.5}"#, member("protocol", "0 or 1")),
        (r#"{"protocol":"1"}"#, member("protocol", "0 or 1")),
        (r#"{"verbose":1}"#, member("verbose", "true or false")),
        (r#"{"echo":"x"}"#, member("echo", "true or false")),
        (r#"{"pass":5}"#, member("pass", "text")),
        (r#"{"no_responders":true,"headers":false}"#, no_responders.clone()),
        (r#"{"no_responders":true}"#, no_responders),
        ("[]", no_object),
        ("{", json(1)),
        ("{} x", json(4)),
        ("", json(0)),
    ] {
        check_all(&settings(), "", &[(&format!("CONNECT {json}|PING|"), &expected)]);
    }
    check_all(
        &settings(),
        QUIET,
        &[
            // A second CONNECT leaves options that it does not name unchanged.
            ("CONNECT {}|PING|", "PONG|"),
            (r#"CONNECT {"verbose":true}|PING|"#, "+OK|PONG|"),
            (r#"CONNECT {"echo":false}|SUB a 1|SUB r 2|PUB a r 1|1|PING|"#, "HMSG r 2 16 16|NATS/1.0 503|||PONG|"),
        ],
    );
    let mut alone =
        Alone::after(&settings(), "CONNECT {\"name\":\"a\\u0007b\",\"verbose\":false}|CONNECT {\"name\":\"ab\"}|");
    assert_eq!(alone.requests, ["admitted open", r#"Named { name: "ab" }"#]);
    assert_eq!(alone.received(), "");
}

#[test]
fn unauthenticated_client_must_connect_first() {
    let violation = "-ERR 'Authorization Violation'|(closed)";
    for sent in ["SUB a 1|", "PING|", "+OK|", "PUB a 99999|"] {
        check(&with_password(), &bytes(sent), violation);
    }
    check(&with_password(), b"FOO", "-ERR 'Unknown Protocol Operation'|(closed)");
    check_all(
        &with_password(),
        "CONNECT ",
        &[
            (r#"{"user":"u","pass":"p"}|PING|PUB a 1|x|"#, "+OK|PONG|+OK|"),
            (r#"{"user":"u","pass":"x"}|PING|"#, violation),
            (r#"{"user":"x","pass":"p"}|PING|"#, violation),
            (r#"{"user":"u"}|PING|"#, violation),
            (r#"{"auth_token":"p"}|PING|"#, violation),
            (r#"{}|PING|"#, violation),
            (r#"{"jwt":"eyJ0","sig":"x"}|PING|"#, violation),
            (r#"{"user":"u","pass":"p"}|CONNECT {"user":"u","pass":"y"}|PING|"#, &format!("+OK|{violation}")),
        ],
    );
    let with_token = closed([Credentials::Token("t".to_owned()), Credentials::Token(String::new())]);
    check_all(
        &with_token,
        "CONNECT ",
        &[
            (r#"{"auth_token":"t"}|PING|"#, "+OK|PONG|"),
            (r#"{"auth_token":"x"}|PING|"#, violation),
            // An empty token never matches.
            (r#"{"auth_token":""}|PING|"#, violation),
            (r#"{"user":"t","pass":"t"}|PING|"#, violation),
        ],
    );
    let alone = Alone::after(&with_password(), r#"CONNECT {"user":"u","pass":"p","name":"n"}|"#);
    assert_eq!(alone.requests, ["admitted u", r#"Named { name: "n" }"#]);
    assert!(alone.session.is_admitted());
    assert!(!Alone::new(&with_password()).session.is_admitted());
}

/// Client libraries compare the whole text of an error, so only the log contains the reason.
#[test]
fn refused_jwt_is_named_in_the_log_only() {
    let command = NatsCommand::Connect(br#"{"jwt":"eyJ0","sig":"x"}"#);
    let mut alone = Alone::new(&with_password());
    let fault = alone.session.on_command(Instant::ZERO, command, &mut alone.out).unwrap_err();
    alone.session.on_fault(&fault, &mut alone.out);
    assert_eq!(alone.received(), "-ERR 'Authorization Violation'|");
    assert_eq!(fault, NatsFault::Unauthorized(AuthenticationFailure::Jwt));
    assert!(fault.to_string().contains("JWT"), "{fault}");
    assert_ne!(fault.to_string(), NatsFault::Unauthorized(AuthenticationFailure::Wrong).to_string());
}

/// Encodes a public key as NATS text.
fn nkey_text(prefix: u8, key: &[u8]) -> String {
    let mut content = vec![prefix];
    content.extend_from_slice(key);
    let crc = content.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc >> 15 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    content.extend_from_slice(&crc.to_le_bytes());
    let bits: String = content.iter().map(|byte| format!("{byte:08b}")).collect();
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    bits.as_bytes()
        .chunks(5)
        .map(|five| five.iter().fold(0, |value, bit| value * 2 + usize::from(bit - b'0')))
        .map(|value| char::from(letters[value]))
        .collect()
}

#[test]
fn signed_nonce_authenticates_an_nkey() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).unwrap();
    let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
    let text = nkey_text(20 << 3, &key);
    assert!(text.starts_with('U') && nkey::decode(&text) == Ok(key), "{text}");
    // The key is from the documentation of NATS.
    let known = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    assert_eq!(nkey_text(20 << 3, &nkey::decode(known).unwrap()), known);
    for (text, expected) in [
        (nkey_text(0, &key), nkey::NkeyError::Kind),
        (known.replace('F', "G"), nkey::NkeyError::Check),
        (known.to_lowercase(), nkey::NkeyError::Text),
        (known[1..].to_owned(), nkey::NkeyError::Text),
    ] {
        assert_eq!(nkey::decode(&text), Err(expected), "{text}");
    }

    let settings = closed([Credentials::Nkey(key)]);
    let nonce = URL_SAFE_NO_PAD.encode(hello().nonce);
    let mut alone = Alone::new(&settings);
    alone.session.on_open(&mut alone.out);
    assert!(alone.received().contains(&format!(
        r#""auth_required":true,"max_payload":2000,"client_id":5,"client_ip":"10.0.0.9","nonce":"{nonce}""#
    )));
    let signed = |text: &str| pair.sign(text.as_bytes());
    let violation = "-ERR 'Authorization Violation'|(closed)";
    for (signature, expected) in [
        (URL_SAFE_NO_PAD.encode(signed(&nonce)), "+OK|PONG|"),
        (STANDARD.encode(signed(&nonce)), "+OK|PONG|"),
        (URL_SAFE_NO_PAD.encode(signed("another")), violation),
        ("?".to_owned(), violation),
        (String::new(), violation),
    ] {
        let connect = format!(r#"CONNECT {{"nkey":"{text}","sig":"{signature}","jwt":""}}|PING|"#);
        check(&settings, &bytes(&connect), expected);
    }
}

#[test]
fn info_has_the_fields_that_clients_read() {
    let mut alone = Alone::new(&Settings { tls: Tls::Available, ..settings() });
    alone.session.on_open(&mut alone.out);
    let expected = r#"INFO {"server_id":"NHAAAAAAAAAAAAA","server_name":"A.test","version":"2.10.0","proto":1,"go":"rust","host":"127.0.0.1","port":4222,"headers":true,"tls_available":true,"max_payload":2000,"client_id":5,"client_ip":"10.0.0.9"} |"#;
    let received = alone.received();
    let (id, rest) = (&received[19..75], [&received[..19], &received[75..]].concat());
    assert_eq!(rest, expected.replace("NHAAAAAAAAAAAAA", ""));
    assert!(id.starts_with("NHAAAAAAAAAAAQ") && id.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7')), "{id}");
    alone.session.on_stop(&mut alone.out);
    assert_eq!(alone.received(), "", "not to a client that does not want it");
    alone.push(&bytes(r#"CONNECT {"protocol":1,"verbose":false}|"#));
    alone.session.on_stop(&mut alone.out);
    assert_eq!(alone.received(), received.replace("} |", r#","ldm":true} |"#));
    let mut alone = Alone::new(&Settings { tls: Tls::Required, ..settings() });
    alone.session.on_open(&mut alone.out);
    assert!(alone.received().contains(r#""tls_required":true"#));
    alone.session.on_fault(&NatsFault::NotEncrypted, &mut alone.out);
    assert_eq!(alone.received(), "-ERR 'Secure Connection - TLS Required'|");
}

#[test]
fn silent_client_is_pinged_and_then_disconnected() {
    let mut alone = Alone::after(&settings(), QUIET);
    let mut step = |secs: u64, sent: &str, expected: &str| {
        alone.parser.push(&bytes(sent));
        while let Some(command) = alone.parser.next().unwrap() {
            alone.session.on_command(seconds(secs), command, &mut alone.out).unwrap();
        }
        let outcome = alone.session.on_deadline(seconds(secs), &mut alone.out);
        let fault = outcome.err().map(|fault| fault.to_string()).unwrap_or_default();
        assert_eq!(alone.received() + &fault, expected, "after {secs} s");
        alone.session.deadline().unwrap()
    };
    // The first PING is sent after 2 s to 2.4 s.
    let first = step(1, "", "");
    assert!(seconds(2) <= first && first <= Instant::from_nanos(2_400_000_000), "{first:?}");
    assert_eq!(step(3, "", "PING|"), seconds(123));
    assert_eq!(step(100, "PONG|", ""), seconds(123));
    assert_eq!(step(123, "", ""), seconds(243), "something was heard 23 s ago");
    step(243, "", "PING|");
    step(300, "UNSUB 1|", "");
    step(363, "", "");
    step(483, "", "PING|");
    step(602, "", "");
    assert_eq!(step(603, "", "Stale Connection"), seconds(603));
    alone.session.on_fault(&NatsFault::Stale, &mut alone.out);
    assert_eq!(alone.received(), "-ERR 'Stale Connection'|");

    let mut unauthenticated = Alone::new(&with_password());
    assert_eq!(unauthenticated.session.deadline(), Some(seconds(2)));
    assert_eq!(unauthenticated.session.on_deadline(seconds(1), &mut unauthenticated.out), Ok(()));
    assert_eq!(unauthenticated.session.on_deadline(seconds(2), &mut unauthenticated.out), Err(NatsFault::AuthTimeout));
    unauthenticated.session.on_fault(&NatsFault::AuthTimeout, &mut unauthenticated.out);
    assert_eq!(unauthenticated.received(), "-ERR 'Authentication Timeout'|");
}

#[test]
fn time_limits_can_begin_again() {
    let mut alone = Alone::new(&settings());
    let first = alone.session.deadline().unwrap();
    alone.session.restart_deadlines(seconds(10));
    assert_eq!(alone.session.deadline(), Some(first + Duration::from_secs(10)));
    let mut unauthenticated = Alone::new(&with_password());
    unauthenticated.session.restart_deadlines(seconds(10));
    assert_eq!(unauthenticated.session.deadline(), Some(seconds(12)));
}

/// A PING is a barrier: its answer confirms that the peer has completed earlier commands.
#[test]
fn pong_waits_for_the_peer() {
    let mut session = NatsSession::new(Arc::new(settings()), &hello(), Instant::ZERO);
    let (mut parser, mut out) = (NatsParser::new(&settings()), OutputBuffer::new());
    parser.push(&bytes(&format!("{QUIET}PING|SUB a 1|PING|PING|")));
    let mut step = |answer: bool| {
        let command = parser.next().unwrap().unwrap();
        let request = session.on_command(Instant::ZERO, command, &mut out).unwrap();
        while session.poll_request().is_some() {}
        let is_barrier = request == Some(SessionRequest::Count { subjects: Vec::new() });
        let before = out.take();
        if answer {
            session.on_counts(&[], &mut out);
        }
        (is_barrier, before.len(), out.take().len())
    };
    assert_eq!(step(false), (false, 0, 0));
    assert_eq!(step(false), (false, 6, 0), "nothing was requested yet");
    assert_eq!(step(false), (false, 0, 0));
    assert_eq!(step(true), (true, 0, 6));
    assert_eq!(step(false), (false, 6, 0), "nothing was requested since");
}

/// In verbose mode an operation is answered once, whether the listener or the peer refuses it.
#[test]
fn refused_operation_is_not_confirmed() {
    let mut session = NatsSession::new(Arc::new(settings()), &hello(), Instant::ZERO);
    let (mut parser, mut out) = (NatsParser::new(&settings()), OutputBuffer::new());
    parser.push(&bytes(r#"CONNECT {"verbose":true}|SUB a 1|PUB a 1|x|SUB b 2|"#));
    let mut step = |refusal: Option<(Option<SubId>, Refusal)>| {
        let command = parser.next().unwrap().unwrap();
        session.on_command(Instant::ZERO, command, &mut out).unwrap();
        if let Some((sub, refusal)) = refusal {
            session.on_refused(sub, &refusal, &mut out);
        }
        while session.poll_request().is_some() {
            session.on_counts(&[], &mut out);
        }
        String::from_utf8(out.take()).unwrap()
    };
    let many = Refusal::TooManySubscriptions { max: 1 };
    assert_eq!(step(None), "+OK\r\n");
    assert_eq!(step(Some((Some(SubId(1)), many))), "-ERR 'maximum subscriptions exceeded'\r\n");
    assert_eq!(step(Some((None, Refusal::Stopping))), "-ERR 'Server Shutdown'\r\n");
    assert_eq!(step(None), "+OK\r\n");
}

#[test]
fn refused_operation_is_answered_with_an_error() {
    let refuse = |sub, refusal: Refusal| {
        let mut alone = Alone::after(&settings(), &format!("{QUIET}SUB a 1|SUB b 2|"));
        alone.session.on_refused(sub, &refusal, &mut alone.out);
        let is_closed = alone.session.poll_request() == Some(SessionRequest::Close);
        (alone.received(), alone.session.subscriptions(), is_closed)
    };
    let subject = Refusal::Subject(crate::subject::SubjectError::Wildcard);
    let many = Refusal::TooManySubscriptions { max: 1 };
    let large = Refusal::MessageTooLarge { bytes: 2, bytes_max: 1 };
    let received = |text: &str| format!("-ERR '{text}'|");
    assert_eq!(refuse(Some(SubId(1)), many), (received("maximum subscriptions exceeded"), 1, false));
    assert_eq!(refuse(Some(SubId(2)), subject.clone()), (received("Invalid Subject"), 1, false));
    assert_eq!(refuse(None, subject), (received("Invalid Publish Subject"), 2, false));
    assert_eq!(refuse(None, large), (received("Maximum Payload Violation"), 2, true));
    assert_eq!(refuse(None, Refusal::Stopping), (received("Server Shutdown"), 2, false));
}

/// Tests headers that are shared instead of copied.
#[test]
fn large_headers_equal_small_ones() {
    let large = "x".repeat(20_000);
    for headers in [format!("A: {large}|"), format!("A: {large}")] {
        let mut alone = Alone::after(&settings(), &format!("{QUIET}SUB a.b 1|"));
        let seq = Seq::new(1).unwrap();
        let one = Deliveries::of_messages(vec![message("hi", &headers, None)], seq, publisher());
        assert_eq!(alone.session.on_deliveries(&[SubId(1)], &one, &mut alone.out), 1);
        let count = 10 + 3 + large.len() + 4;
        assert_eq!(alone.received(), format!("HMSG a.b 1 {count} {}|NATS/1.0|A: {large}||hi|", count + 2));
    }
}

fn message(payload: &str, headers: &str, reply: Option<&str>) -> Message {
    Message {
        reply: reply.map(|reply| reply.parse().unwrap()),
        headers: Headers::from_block(bytes(headers).into()),
        ..Message::new("a.b".parse().unwrap(), payload.to_owned())
    }
}

fn run_of(messages: &[Message]) -> Deliveries {
    let seq = Seq::from_parts(Frame::new(7).unwrap(), 1).unwrap();
    Deliveries::run_of(messages, seq, publisher(), Verdict::First)
}

#[test]
fn run_reaches_every_subscription_in_order() {
    let mut alone = Alone::after(&settings(), &format!("{QUIET}SUB a.b 1|SUB a.* x|SUB > 3|UNSUB x 2|"));
    let plain = run_of(&["p", "qq", "rr"].map(|payload| message(payload, "", None)));
    let subs = [SubId(1), SubId(2), SubId(9)];
    assert_eq!(alone.session.on_deliveries(&subs, &plain, &mut alone.out), 5);
    let expected = "MSG a.b 1 1|p|MSG a.b x 1|p|MSG a.b 1 2|qq|MSG a.b x 2|qq|MSG a.b 1 2|rr|";
    assert_eq!(alone.received(), expected);
    assert_eq!(alone.session.poll_request(), Some(SessionRequest::Unsubscribe { sub: SubId(2) }));
    assert_eq!(alone.session.poll_request(), None);
    assert_eq!(alone.session.on_deliveries(&[SubId(2)], &plain, &mut alone.out), 0);
    let mixed = [message("p", "A: b|", None), message("q", "", Some("r")), message("s", "odd", None)];
    let mixed = Deliveries::of_messages(mixed.to_vec(), Seq::new(1).unwrap(), publisher());
    assert_eq!(alone.session.on_deliveries(&[SubId(1)], &mixed, &mut alone.out), 3);
    let expected = "HMSG a.b 1 18 19|NATS/1.0|A: b||p|MSG a.b 1 r 1|q|HMSG a.b 1 17 18|NATS/1.0|odd||s|";
    assert_eq!(alone.received(), expected);
    let large = message(&"x".repeat(9_000), "", None);
    alone.session.on_deliveries(&[SubId(1)], &Deliveries::from(direct(large)), &mut alone.out);
    assert_eq!(alone.received(), format!("MSG a.b 1 9000|{}|", "x".repeat(9_000)));
    let mut deaf = Alone::after(&settings(), r#"CONNECT {"verbose":false}|SUB a.b 1|"#);
    assert_eq!(deaf.session.on_deliveries(&[SubId(1)], &mixed, &mut deaf.out), 3);
    assert_eq!(deaf.received(), "MSG a.b 1 1|p|MSG a.b 1 r 1|q|MSG a.b 1 1|s|", "headers are for those that know them");
}

#[test]
fn annotated_client_receives_the_metadata() {
    let annotated = Settings { access: Access { headers: true, ..Access::default() }, ..settings() };
    let mut alone = Alone::after(&annotated, &format!("{QUIET}SUB a.b 1|SUB a.* 2|"));
    let from = "Seqcast-Publisher: B.test|Seqcast-Epoch: 00000000000000ab|";
    let seq = |count: u64| format!("Seqcast-Seq: {}|", (7_u64 << 35) + count);
    let hmsg = |sid: &str, headers: &str, payload: &str| {
        let headers = format!("NATS/1.0{headers}|");
        let header_bytes = bytes(&headers).len();
        format!("HMSG a.b {sid} {header_bytes} {}|{headers}{payload}|", header_bytes + payload.len())
    };
    alone.session.on_lost(&[SubId(1), SubId(9)], Count::Exact(3));
    alone.session.on_lost(&[SubId(1)], Count::Between { min: 0, max: 4 });
    alone.session.on_lost(&[SubId(2)], Count::Exact(1));
    let mut run = run_of(&[message("p", "C: d|", None), message("q", "A: b|", None)]);
    run.set_offset(Some(u32::MAX));
    assert_eq!(alone.session.on_deliveries(&[SubId(1)], &run, &mut alone.out), 2);
    let expected = [
        hmsg("1", &format!("|{from}{}Seqcast-Offset: 4294967295|Seqcast-Lost: 3..7|C: d|", seq(1)), "p"),
        hmsg("1", &format!("|{from}{}Seqcast-Offset: 0|A: b|", seq(2)), "q"),
    ];
    assert_eq!(alone.received(), expected.concat());
    let repaired = Delivery { repaired: true, ..direct(message("p", "NATS/1.0 503|A: b|", None)) };
    alone.session.on_deliveries(&[SubId(2)], &repaired.into(), &mut alone.out);
    let expected = hmsg("2", &format!(" 503|{from}Seqcast-Repaired: true|Seqcast-Lost: 1|A: b|"), "p");
    assert_eq!(alone.received(), expected);
    // The loss is reported only once.
    alone.session.on_deliveries(&[SubId(2)], &direct(message("p", "", None)).into(), &mut alone.out);
    assert_eq!(alone.received(), hmsg("2", &format!("|{from}"), "p"));

    let mut account = with_password();
    account.access.accounts[0].headers = true;
    let connect = r#"CONNECT {"verbose":false,"headers":true,"user":"u","pass":"p"}|SUB a.b 1|"#;
    let mut alone = Alone::after(&account, connect);
    alone.session.on_deliveries(&[SubId(1)], &direct(message("p", "", None)).into(), &mut alone.out);
    assert_eq!(alone.received(), hmsg("1", &format!("|{from}"), "p"));
}

/// Recordings of nats-py 2.16.0 and @nats-io/transport-node 3.4.0 in front of nats-server. They cover a service in a
/// queue group, requests to it and to no responder, and headers. They also cover a subscription that ends by itself,
/// a request in the old style, and a drain.
#[test]
fn captured_clients_are_answered_as_by_nats_server() {
    let python = [
        r#"CONNECT {"echo": true, "headers": true, "lang": "python3", "name": "py", "no_responders": true, "pedantic": false, "protocol": 1, "verbose": false, "version": "2.16.0"}|"#,
        r#"PING|PING|SUB svc w 1|SUB _INBOX.4sRM06MTS46wH6iKWgZ7Wn.*  2|"#,
        r#"PUB svc _INBOX.4sRM06MTS46wH6iKWgZ7Wn.4sRM06MTS46wH6iKWgZ7bue1c9 4|ping|"#,
        r#"PUB _INBOX.4sRM06MTS46wH6iKWgZ7Wn.4sRM06MTS46wH6iKWgZ7bue1c9  4|pong|"#,
        r#"PUB nobody _INBOX.4sRM06MTS46wH6iKWgZ7Wn.4sRM06MTS46wH6iKWgZ7h1b3d0 1|x|PING|SUB a.*  3|UNSUB 3 2|"#,
        r#"HPUB a.b  18 19|NATS/1.0|K: v||1|PUB a.c  1|2|PUB a.d  1|3|SUB _INBOX.4sRM06MTS46wH6iKWgZ7m8  4|"#,
        r#"UNSUB 4 1|PUB svc _INBOX.4sRM06MTS46wH6iKWgZ7m8 4|ping|PUB _INBOX.4sRM06MTS46wH6iKWgZ7m8  4|pong|"#,
        r#"PING|PING|UNSUB 1 |UNSUB 2 |PING|"#,
    ];
    let answers = [
        r#"PONG|PONG|MSG svc 1 _INBOX.4sRM06MTS46wH6iKWgZ7Wn.4sRM06MTS46wH6iKWgZ7bue1c9 4|ping|"#,
        r#"MSG _INBOX.4sRM06MTS46wH6iKWgZ7Wn.4sRM06MTS46wH6iKWgZ7bue1c9 2 4|pong|"#,
        r#"HMSG _INBOX.4sRM06MTS46wH6iKWgZ7Wn.4sRM06MTS46wH6iKWgZ7h1b3d0 2 16 16|NATS/1.0 503|||PONG|"#,
        r#"HMSG a.b 3 18 19|NATS/1.0|K: v||1|MSG a.c 3 1|2|MSG svc 1 _INBOX.4sRM06MTS46wH6iKWgZ7m8 4|ping|"#,
        r#"MSG _INBOX.4sRM06MTS46wH6iKWgZ7m8 4 4|pong|PONG|PONG|PONG|"#,
    ];
    check(&settings(), &bytes(&python.concat()), &answers.concat());
    let javascript = [
        r#"CONNECT {"no_responders":true,"protocol":1,"verbose":false,"pedantic":false,"name":"js","lang":"nats.js","version":"3.4.0","headers":true}|"#,
        r#"PING|SUB svc w 1|PING|SUB _INBOX.m6uuS7rKFExE9cOPfjzknC.* 2|"#,
        r#"PUB svc _INBOX.m6uuS7rKFExE9cOPfjzknC.kJm5MdXS 4|ping|PUB _INBOX.m6uuS7rKFExE9cOPfjzknC.kJm5MdXS 4|"#,
        r#"pong|PUB nobody _INBOX.m6uuS7rKFExE9cOPfjzknC.4YZ7pHrd 1|x|SUB a.* 3|UNSUB 3 2|HPUB a.b 18 19|"#,
        r#"NATS/1.0|K: v||1|PUB a.c 1|2|PUB a.d 1|3|UNSUB 3|UNSUB 3|SUB _INBOX.m6uuS7rKFExE9cOPfjzksN 4|"#,
        r#"UNSUB 4 1|PUB svc _INBOX.m6uuS7rKFExE9cOPfjzksN 4|ping|PUB _INBOX.m6uuS7rKFExE9cOPfjzksN 4|pong|"#,
        r#"UNSUB 4|UNSUB 1|PING|UNSUB 2|PING|PING|"#,
    ];
    let answers = [
        r#"PONG|PONG|MSG svc 1 _INBOX.m6uuS7rKFExE9cOPfjzknC.kJm5MdXS 4|ping|"#,
        r#"MSG _INBOX.m6uuS7rKFExE9cOPfjzknC.kJm5MdXS 2 4|pong|"#,
        r#"HMSG _INBOX.m6uuS7rKFExE9cOPfjzknC.4YZ7pHrd 2 16 16|NATS/1.0 503|||HMSG a.b 3 18 19|NATS/1.0|K: v||"#,
        r#"1|MSG a.c 3 1|2|MSG svc 1 _INBOX.m6uuS7rKFExE9cOPfjzksN 4|ping|"#,
        r#"MSG _INBOX.m6uuS7rKFExE9cOPfjzksN 4 4|pong|PONG|PONG|PONG|"#,
    ];
    check(&settings(), &bytes(&javascript.concat()), &answers.concat());
}

/// The parser holds only bytes of incomplete commands, and an idle client holds none.
#[test]
fn parser_holds_one_incomplete_command() {
    let mut parser = NatsParser::new(&settings());
    let publish = bytes(&format!("PUB a 1000|{}|", "x".repeat(1000)));
    for _ in 0..100 {
        parser.push(&publish.repeat(3));
        parser.push(&publish[..500]);
        let mut count = 0;
        while parser.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!((count, parser.held_bytes()), (3, 500));
        parser.push(&publish[500..]);
        assert!(parser.next().unwrap().is_some());
        assert_eq!(parser.next(), Ok(None));
        assert_eq!(parser.held_bytes(), 0);
    }
}

/// Settings with an account that may publish on `a.>` and subscribe to `b.*`.
fn with_permissions() -> Settings {
    let credentials = Credentials::User { name: "u".to_owned(), password: "p".to_owned() };
    let only = |text: &str| SubjectPermission::Only([text.parse().unwrap()].into_iter().collect());
    let permissions = Permissions { publish: only("a.>"), subscribe: only("b.*") };
    let accounts = vec![Account { permissions, ..Account::new(credentials) }];
    Settings { access: Access { accounts, ..Access::default() }, ..settings() }
}

/// The errors are those of nats-server. The connection stays open.
#[test]
fn action_without_permission_is_denied() {
    let connect = r#"CONNECT {"verbose":false,"headers":true,"user":"u","pass":"p"}|"#;
    let inbox = "_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t";
    let denied = |what: &str| format!("-ERR 'Permissions Violation for {what}'|PONG|");
    check_all(
        &with_permissions(),
        connect,
        &[
            ("PUB a.b 1|x|SUB b.* 1|SUB b.c q 2|PING|", "PONG|"),
            ("PUB a 1|x|PING|", &denied("Publish to \"a\"")),
            ("PUB b.c 1|x|PING|", &denied("Publish to \"b.c\"")),
            ("HPUB c 12 13|NATS/1.0||x|PING|", &denied("Publish to \"c\"")),
            ("PUB a.b c 1|x|PING|", &denied("Publish with Reply of \"c\"")),
            ("SUB b.> 1|PING|", &denied("Subscription to \"b.>\"")),
            ("SUB > 1|PING|", &denied("Subscription to \">\"")),
            ("SUB a.b q 1|PING|", &denied("Subscription to \"a.b\" using queue \"q\"")),
            ("SUB _INBOX.> 1|PING|", &denied("Subscription to \"_INBOX.>\"")),
            (&format!("SUB {inbox}.* 1|PUB a.b {inbox}.1 1|x|PING|"), "PONG|"),
        ],
    );
    // In verbose mode the error replaces the answer. A denied subscription does not exist.
    let verbose = r#"CONNECT {"user":"u","pass":"p"}|"#;
    let expected = "+OK|-ERR 'Permissions Violation for Subscription to \"c\"'|-ERR 'Permissions Violation for Publish to \"c\"'|+OK|";
    check_all(&with_permissions(), verbose, &[("SUB c 1|PUB c 1|x|SUB b.c 1|", expected)]);
}

#[test]
fn certificate_of_the_host_limits_all_clients() {
    let only = |text: &str| SubjectPermission::Only([text.parse().unwrap()].into_iter().collect());
    let permissions = Permissions { publish: only("a.>"), subscribe: only("b.*") };
    let settings = Settings { access: Access { permissions, ..Access::default() }, ..settings() };
    let denied = |what: &str| format!("-ERR 'Permissions Violation for {what}'|PONG|");
    check_all(
        &settings,
        r#"CONNECT {"verbose":false}|"#,
        &[
            ("PUB a.b 1|x|SUB b.* 1|PING|", "PONG|"),
            ("PUB c 1|x|PING|", &denied("Publish to \"c\"")),
            ("SUB > 1|PING|", &denied("Subscription to \">\"")),
        ],
    );
    // The peer decides the same about what a session has not denied.
    let mut alone = Alone::after(&settings, r#"CONNECT {"verbose":false}|"#);
    let refusal = Refusal::PublishDenied("a.b".parse().unwrap());
    alone.session.on_refused(None, &refusal, &mut alone.out);
    assert_eq!(alone.received(), "-ERR 'Permissions Violation for Publish to \"a.b\"'|");
}

#[test]
fn denied_action_is_reported_to_the_operator() {
    let mut alone = Alone::new(&with_permissions());
    alone.push(&bytes(r#"CONNECT {"verbose":false,"user":"u","pass":"p"}|PUB c 6|secret|SUB > 1|"#));
    let denial = |action, subject| format!("{:?}", SessionRequest::Denied(Denial::new(action, subject)));
    let expected = ["admitted u".to_owned(), denial(DeniedAction::Publish, "c"), denial(DeniedAction::Subscribe, ">")];
    assert_eq!(alone.requests, expected);
}

#[test]
fn certificate_has_the_permissions_of_its_account() {
    let mut settings = with_permissions();
    let permissions = settings.access.accounts[0].permissions.clone();
    settings.access.accounts = vec![
        Account { permissions, ..Account::new(Credentials::Certificate("device-7".to_owned())) },
        Account::new(Credentials::User { name: "free".to_owned(), password: "p".to_owned() }),
    ];
    let mut alone = Alone::new(&settings);
    alone.session.on_certificate(&["other".to_owned(), "device-7".to_owned()]);
    let certified = r#"CONNECT {"verbose":false}|"#;
    let free = r#"CONNECT {"verbose":false,"user":"free","pass":"p"}|"#;
    let denied = "-ERR 'Permissions Violation for Publish to \"c\"'|";
    for (connect, expected) in [(certified, denied), (free, ""), (certified, denied)] {
        alone.push(&bytes(&format!("{connect}PUB a.b 1|x|PUB c 1|x|")));
        assert_eq!(alone.received(), expected, "{connect}");
    }
    alone.push(&bytes("SUB > 1|"));
    assert_eq!(alone.received(), "-ERR 'Permissions Violation for Subscription to \">\"'|");
    let admitted: Vec<&String> = alone.requests.iter().filter(|request| request.starts_with("admitted")).collect();
    assert_eq!(admitted, ["admitted device-7", "admitted free", "admitted device-7"]);
}

#[test]
fn received_request_may_be_answered() {
    let mut alone = Alone::new(&with_permissions());
    alone.push(&bytes(r#"CONNECT {"verbose":false,"user":"u","pass":"p"}|SUB b.c 1|PUB r.1 1|x|"#));
    assert_eq!(alone.received(), "-ERR 'Permissions Violation for Publish to \"r.1\"'|");
    let message = Message { reply: Some("r.1".parse().unwrap()), ..Message::new("b.c".parse().unwrap(), "?") };
    alone.session.on_deliveries(&[SubId(1)], &Deliveries::from(direct(message)), &mut alone.out);
    assert!(0 < alone.session.held_bytes());
    alone.push(&bytes("PUB r.1 1|x|PUB r.2 1|x|"));
    assert_eq!(alone.received(), "MSG b.c 1 r.1 1|?|-ERR 'Permissions Violation for Publish to \"r.2\"'|");
    // Two intervals of PING later the permission is over.
    for at in [10, 200] {
        alone.session.on_deadline(seconds(at), &mut alone.out).unwrap();
    }
    alone.received();
    alone.push(&bytes("PUB r.1 1|x|"));
    assert_eq!(alone.received(), "-ERR 'Permissions Violation for Publish to \"r.1\"'|");
    assert_eq!(alone.session.held_bytes(), 0);
}

/// Subject and payload of a message.
type Published = (Vec<u8>, Vec<u8>);

/// Reads all published messages, some of them twice, by [`NatsParser::next_repeated`] where that is possible if
/// `by_repetition` is true. Also returns the number of messages that it returned.
fn published(parts: &[&[u8]], by_repetition: bool, rng: &mut Rng) -> (Vec<Published>, usize) {
    let mut parser = NatsParser::new(&settings());
    let (mut messages, mut repeated) = (Vec::new(), 0);
    for part in parts {
        parser.push(part);
        while let Some(command) = parser.next().unwrap() {
            let NatsCommand::Pub(Pub { subject, payload, .. }) = command else { continue };
            let (subject, payload) = (subject.to_vec(), payload.to_vec());
            if rng.chance(0.2) {
                parser.repeat_last();
                continue;
            }
            messages.push((subject.clone(), payload));
            while by_repetition && let Some(payload) = parser.next_repeated() {
                repeated += 1;
                let payload = payload.to_vec();
                if rng.chance(0.2) {
                    parser.repeat_last();
                    break;
                }
                messages.push((subject.clone(), payload));
            }
        }
    }
    (messages, repeated)
}

#[test]
fn repeated_publishes_are_parsed_alike() {
    let long = format!("PUB {} 1\r\nx\r\n", "s".repeat(200));
    let commands: [(&str, Option<(&str, &str)>); 11] = [
        ("PUB a.b 3\r\none\r\n", Some(("a.b", "one"))),
        ("PUB a.b 3\r\ntwo\r\n", Some(("a.b", "two"))),
        ("PUB a.b 3\r\nPUB\r\n", Some(("a.b", "PUB"))),
        ("pub \t a.b 3 \nthr\r\n", Some(("a.b", "thr"))),
        ("pub \t a.b 3 \nfou\r\n", Some(("a.b", "fou"))),
        ("PUB a.b 2\r\n\r\n\r\n", Some(("a.b", "\r\n"))),
        ("PUB a.b r 3\r\nfiv\r\n", Some(("a.b", "fiv"))),
        ("HPUB a.b 0 3\r\nsix\r\n", Some(("a.b", "six"))),
        ("PUB c 0\r\n\r\n", Some(("c", ""))),
        ("PING\r\n", None),
        (&long, Some((&long[4..204], "x"))),
    ];
    let mut repeated = 0;
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let (command, message) = commands[rng.below(commands.len() as u64) as usize];
            let message = message.map(|(subject, payload)| (subject.as_bytes().to_vec(), payload.as_bytes().to_vec()));
            for _ in 0..rng.between(1, 4) {
                stream.extend_from_slice(command.as_bytes());
                expected.extend(message.clone());
            }
        }
        let mut parts = Vec::new();
        let mut rest = stream.as_slice();
        while !rest.is_empty() {
            let (part, others) = rest.split_at(rest.len().min(rng.between(1, 200) as usize));
            parts.push(part);
            rest = others;
        }
        assert_eq!(published(&parts, false, &mut rng), (expected.clone(), 0), "seed {seed}");
        let (together, count) = published(&parts, true, &mut rng);
        assert_eq!(together, expected, "seed {seed}");
        repeated += count;
    }
    assert!(1_000 < repeated, "{repeated}");
}
