//! Transcripts of commands and replies, limits, and requests to the peer. Transcripts are played whole, byte by byte
//! and with random splits, against a shell that plays the peer and the LAN.

use super::*;
use crate::delivery::Deliveries;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Permissions, SubjectPermission};
use crate::listener::session_request::{
    ClientFacts, ConnectionInfo, ListedSubscription, Publish, ReceiverCount, RespState, ServerFacts, SessionRequest,
};
use crate::message::{Count, Delivery, Epoch, Message, Publisher, Refusal, SubId, SubscriptionFilter, Verdict};
use crate::rng::Rng;
use crate::seqno::Seq;
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The replies equal those recorded from a server of the same version, for any segmentation of the bytes.
#[test]
fn recorded_commands_are_answered_as_by_redis() {
    transcripts(include_str!("recorded.txt"));
}

/// These replies differ from those of Redis on purpose.
#[test]
fn deviating_commands_are_answered_as_documented() {
    transcripts(include_str!("own.txt"));
}

/// Each line of `recorded_clients.txt` has the input of a client and the line of redis-server for it in `CLIENT
/// LIST`.
#[test]
fn client_list_has_the_fields_of_redis() {
    let recorded = include_str!("recorded_clients.txt");
    for text in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (sent, expected) = text.split_once("=> ").expect("commands and a line");
        let mut shell = Shell::new(&Settings::default());
        if !sent.is_empty() {
            shell.now = Instant::ZERO + Duration::from_secs(5);
            shell.feed(&unescaped(sent.trim_end())).unwrap();
        }
        let own = shell.session.resp_state(shell.now + Duration::from_secs(1));
        let requester = RedisSession::new(Arc::new(Settings::default()), &hello(9), Instant::ZERO);
        let line = requester.client_list(&clients(own)[..1], &client_filter::ClientFilter::default());
        let fields = |line: &str| -> Vec<(String, String)> {
            let pairs = line.split_whitespace().map(|field| field.split_once('=').expect("name=value"));
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let (ours, theirs) = (fields(&line), fields(expected));
        assert_eq!(ours.len(), theirs.len() + 2, "{line}");
        for ((name, value), (their_name, their_value)) in ours.iter().zip(&theirs) {
            assert_eq!(name, their_name, "{sent}: {line}");
            if ["idle", "flags", "db", "sub", "psub", "ssub", "multi", "cmd", "user", "redir", "resp"]
                .contains(&&name[..])
            {
                assert_eq!(value, their_value, "{sent}: {name} in {line}");
            }
        }
        let names: Vec<&str> = ours[theirs.len()..].iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["lost", "dropped"]);
    }
}

#[test]
fn command_beyond_a_limit_ends_the_connection() {
    let mut rng = Rng::new(2);
    let long = |head: &str, count, tail: &str| format!("{head}{}{tail}", "1".repeat(count)).into_bytes();
    let small = Settings { payload_bytes_max: 100, command_bytes_max: 250, arguments_max: 3, ..Settings::default() };
    for (bytes, fault) in [
        (long("*", 40, ""), RedisFault::ArgumentsDigits),
        (long("*1\r\n$", 40, ""), RedisFault::BulkDigits),
        (long("PING ", 65_533, ""), RedisFault::Line),
        (long("PING ", 65_533, "\r\n"), RedisFault::Line),
        (b"*1\r\n$101\r\n".to_vec(), RedisFault::Bulk),
        (b"*4\r\n".to_vec(), RedisFault::Arguments),
        (long("*3\r\n$100\r\n", 100, &format!("\r\n$100\r\n{}\r\n$100\r\n", "1".repeat(100))), RedisFault::Command),
    ] {
        for cut in [bytes.len(), 1, 1 + rng.below(50) as usize] {
            let mut shell = Shell::new(&small);
            let outcome = bytes.chunks(cut).try_for_each(|part| shell.feed(part));
            assert_eq!(outcome, Err(fault.clone()), "{}", bytes[..20.min(bytes.len())].escape_ascii());
        }
    }
    // This is the longest allowed line.
    let mut shell = Shell::new(&Settings::default());
    assert_eq!(shell.feed(&long("PING ", 65_530, "\r\n")), Ok(()));
    assert!(shell.out.take().starts_with(b"$65530\r\n111"));
    assert_eq!(shell.parser.held_bytes(), 0);
}

#[test]
fn unauthenticated_client_has_limited_time_and_attempts() {
    let settings = with_password();
    let mut shell = Shell::new(&settings);
    let due = shell.session.deadline().unwrap();
    assert_eq!(due, Instant::ZERO + settings.auth_time);
    assert_eq!(shell.session.on_deadline(Instant::ZERO, &mut shell.out), Ok(()));
    assert_eq!(shell.session.on_deadline(due, &mut shell.out), Err(RedisFault::AuthTime));
    shell.session.on_fault(&RedisFault::AuthTime, &mut shell.out);
    assert_eq!(shell.out.take(), b"-ERR no password came in time\r\n");

    let mut shell = Shell::new(&settings);
    shell.feed(b"AUTH pw\r\n").unwrap();
    assert_eq!((shell.session.deadline(), shell.log.as_slice()), (None, &["admitted default".to_owned()][..]));
    assert_eq!(shell.session.on_deadline(due, &mut shell.out), Ok(()));

    // `RESET` restarts the authentication time of an authenticated client, but gives no more time to an
    // unauthenticated one.
    let later = Instant::ZERO + Duration::from_secs(5);
    let mut shell = Shell::new(&settings);
    shell.now = later;
    shell.feed(b"RESET\r\n").unwrap();
    assert_eq!(shell.session.deadline(), Some(due));
    shell.feed(b"AUTH pw\r\nRESET\r\n").unwrap();
    assert_eq!(shell.session.deadline(), Some(later + settings.auth_time));

    let mut shell = Shell::new(&settings);
    let outcome = shell.feed(&b"AUTH no\r\n".repeat(20));
    assert_eq!((outcome, shell.out.take().len()), (Err(RedisFault::Passwords), 10 * (WRONG.len() + 3)));
}

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn every_kind_of_account_authenticates() {
    let user = |name: &str, password: &str| Credentials::User { name: name.into(), password: password.into() };
    let accounts = [user("default", "a"), user("x", "y"), Credentials::Token("t".into()), Credentials::Nkey([0; 32])]
        .map(Account::new);
    let access = Access { accounts: accounts.to_vec(), ..Access::default() };
    let settings = Settings { access, ..Settings::default() };
    for (words, expected) in [
        ("AUTH a", true),
        ("AUTH t", true),
        ("AUTH default t", true),
        ("AUTH x y", true),
        ("AUTH y", false),
        ("AUTH x a", false),
        ("AUTH x t", false),
        ("AUTH x yy", false),
        ("AUTH x ''", false),
        ("HELLO 3 AUTH x y", true),
    ] {
        let mut shell = Shell::new(&settings);
        shell.feed(format!("{words}\r\n").as_bytes()).unwrap();
        assert_eq!(shell.session.is_admitted(), expected, "{words}");
    }
}

#[test]
fn commands_become_requests_to_the_peer() {
    check_requests(
        "SUBSCRIBE a.b 'x y' a.b\r\nPSUBSCRIBE news.e* [ab]\r\nUNSUBSCRIBE a.b nosuch\r\nRESET\r\n",
        &[
            "admitted default",
            "subscribe 1 a.b",
            "subscribe 2 x%20y",
            "subscribe 3 news.> \"news.e*\"",
            "subscribe 4 > \"[ab]\"",
            "unsubscribe 1",
            "unsubscribe 2",
            "unsubscribe 3",
            "unsubscribe 4",
        ],
    );
    check_requests(
        "PUBLISH a..b x\r\nPUBLISH a..b y\r\nHELLO 3 SETNAME n\r\nCLIENT SETNAME m\r\nPUBSUB NUMSUB a '' b\r\nQUIT\r\nPING\r\n",
        &["admitted default", "publish a.%.b x", "publish a.%.b y", "named n", "named m", "count a % b", "close"],
    );
    // Libraries send `INFO` on every connection, so it must not scan all clients.
    check_requests("INFO\r\nCLIENT LIST\r\n", &["admitted default", "facts", "clients"]);
    check_requests("CLIENT KILL TYPE normal SKIPME no\r\n", &["admitted default", "clients", "close", "kill 9"]);
}

fn check_requests(text: &str, expected: &[&str]) {
    let mut shell = Shell::new(&Settings::default());
    shell.feed(text.as_bytes()).unwrap();
    assert_eq!(shell.log, expected);
}

#[test]
fn refused_request_is_answered_with_an_error() {
    let mut shell = Shell::new(&Settings { subscriptions_max: 3, ..Settings::default() });
    shell.refusal = Some(Refusal::TooManySubscriptions { max: 5 });
    shell.feed(b"SUBSCRIBE a\r\n").unwrap();
    let text = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n-ERR there may be at most 5 subscriptions\r\n\
                *3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n";
    assert_eq!((shell.text(), shell.session.subscriptions()), (text.into(), 0));
    shell.refusal = Some(Refusal::MessageTooLarge { bytes: 7, bytes_max: 5 });
    shell.feed(b"PUBLISH a 1234567\r\nPING\r\n").unwrap();
    assert_eq!(shell.text(), "-ERR a message has at most 5 bytes, this one has 7\r\n+PONG\r\n");
    shell.refusal = None;
    shell.feed(b"SUBSCRIBE a b\r\nSUBSCRIBE b c d\r\nUNSUBSCRIBE\r\nPSUBSCRIBE 1 1 2 3\r\n").unwrap();
    assert_eq!(shell.text().matches("subscribe\r\n").count(), 2 + 2 + 4);
    assert_eq!(shell.session.subscriptions(), 3);
}

/// The error is that of redis-server 7.0. The connection stays open.
#[test]
fn action_without_permission_is_denied() {
    let only = |texts: &[&str]| SubjectPermission::Only(texts.iter().map(|text| text.parse().unwrap()).collect());
    let permissions = Permissions { publish: only(&["a.>"]), subscribe: only(&["news.>", "b"]) };
    let credentials = Credentials::User { name: "default".into(), password: "pw".into() };
    let accounts = vec![Account { permissions, ..Account::new(credentials) }];
    let mut shell = Shell::new(&Settings { access: Access { accounts, ..Access::default() }, ..Settings::default() });
    shell.feed(b"AUTH pw\r\n").unwrap();
    shell.text();
    shell.feed(b"CLIENT KILL ID 7\r\n").unwrap();
    assert_eq!(shell.text(), "-NOPERM this user has no permissions to run the 'client|kill' command\r\n");
    let denied = "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
    for (line, is_permitted) in [
        ("PUBLISH a.b x", true),
        ("PUBLISH a x", false),
        ("SPUBLISH b x", false),
        ("PUBLISH b x", false),
        ("PSUBSCRIBE *", false),
        ("PSUBSCRIBE news*", false),
        ("PSUBSCRIBE b", false),
        ("SUBSCRIBE b c", false),
        ("SSUBSCRIBE a.b", false),
        ("PSUBSCRIBE news.eu.*", true),
        ("SUBSCRIBE b news.1", true),
    ] {
        shell.log.clear();
        shell.feed(format!("{line}\r\n").as_bytes()).unwrap();
        let text = shell.text();
        assert_eq!(text != denied, is_permitted, "{line}: {text}");
        assert_eq!(shell.log.iter().any(|request| request.starts_with("denied: ")), !is_permitted, "{line}");
        assert!(shell.log.len() == 1 || is_permitted, "{line}: {:?}", shell.log);
    }
    assert_eq!(shell.session.subscriptions(), 3);
}

#[test]
fn certificate_has_the_permissions_of_its_account() {
    let only = |text: &str| SubjectPermission::Only([text.parse().unwrap()].into_iter().collect());
    let permissions = Permissions { publish: only("a.>"), subscribe: only("news.>") };
    let accounts = vec![
        Account { permissions, ..Account::new(Credentials::Certificate("device-7".into())) },
        Account::new(Credentials::User { name: "free".into(), password: "pw".into() }),
    ];
    let mut shell = Shell::new(&Settings { access: Access { accounts, ..Access::default() }, ..Settings::default() });
    shell.session.on_certificate(&["other".into(), "device-7".into()]);
    let denied = "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
    for (line, expected) in [
        ("PUBLISH a.b x", ":0\r\n"),
        ("PUBLISH c x", denied),
        ("SUBSCRIBE c", denied),
        ("AUTH free wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("PUBLISH c x", denied),
        ("AUTH free pw", "+OK\r\n"),
        ("PUBLISH c x", ":0\r\n"),
        ("RESET", "+RESET\r\n"),
        ("PUBLISH c x", denied),
        ("PUBLISH a.b x", ":0\r\n"),
    ] {
        shell.feed(format!("{line}\r\n").as_bytes()).unwrap();
        assert_eq!(shell.text(), expected, "{line}");
    }
}

#[test]
fn kept_command_is_returned_once_more() {
    let mut parser = RedisParser::new(&Settings::default());
    parser.push(b"PING a\r\n*2\r\n$4\r\nPING\r\n$1\r\nb\r\n*1\r\n");
    let text =
        |command: RedisCommand<'_>| command.args(0).map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>();
    for expected in ["a", "b"] {
        assert_eq!(text(parser.next().unwrap().unwrap()), ["PING", expected]);
        parser.repeat_last();
        parser.push(b"$");
        assert_eq!(text(parser.next().unwrap().unwrap()), ["PING", expected]);
    }
    assert!(parser.next().unwrap().is_none());
    parser.repeat_last();
    assert!(parser.next().unwrap().is_none());
    parser.push(b"\r\n");
    assert_eq!(parser.next().unwrap_err(), RedisFault::Bulk);
}

#[test]
fn repeated_commands_are_parsed_alike() {
    let commands = [
        vec!["PUBLISH", "a", "one"],
        vec!["PUBLISH", "a", "two"],
        vec!["PUBLISH", "a", "*1\r"],
        vec!["PUBLISH", "a", "$3\r"],
        vec!["PUBLISH", "b", "two"],
        vec!["PUBLISH", "a", "four"],
        vec!["PUBLISH", "a", ""],
        vec!["PING"],
        vec!["PUBLISH", "a", "one", "more"],
    ];
    let mut repetitions = 0;
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let command = &commands[rng.below(commands.len() as u64) as usize];
            for _ in 0..rng.between(1, 4) {
                let bulks: Vec<_> = command.iter().map(|arg| format!("${}\r\n{arg}", arg.len())).collect();
                // Any two bytes may follow an argument.
                let end = if rng.chance(0.1) { "*1" } else { "\r\n" };
                let is_line = rng.chance(0.1) && command.iter().all(|arg| !arg.is_empty() && !arg.ends_with('\r'));
                let text = match is_line {
                    true => format!("{}\r\n", command.join(" ")),
                    false => format!("*{}\r\n{}{end}", command.len(), bulks.join("\r\n")),
                };
                stream.extend_from_slice(text.as_bytes());
                expected.push(command.iter().map(|arg| arg.as_bytes().to_vec()).collect::<Vec<_>>());
            }
        }
        let mut parser = RedisParser::new(&Settings::default());
        let (mut rest, mut parsed) = (stream.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(rest.len().min(rng.between(1, 200) as usize));
            parser.push(part);
            rest = others;
            while let Some(command) = parser.next().unwrap() {
                let arguments = command.args(0).map(<[u8]>::to_vec).collect::<Vec<_>>();
                if rng.chance(0.2) {
                    parser.repeat_last();
                    continue;
                }
                parsed.push(arguments.clone());
                while rng.chance(0.7)
                    && let Some(last) = parser.next_repeated()
                {
                    let mut arguments = arguments.clone();
                    *arguments.last_mut().unwrap() = last.to_vec();
                    if rng.chance(0.2) {
                        parser.repeat_last();
                        assert_eq!(parser.next_repeated(), None);
                        break;
                    }
                    parsed.push(arguments);
                }
            }
        }
        assert_eq!(parsed, expected, "seed {seed}");
        repetitions += parser.repetitions;
    }
    assert!(1_000 < repetitions, "{repetitions}");
}

#[test]
fn run_is_delivered_to_all_matching_subscriptions() {
    let mut shell = Shell::new(&Settings::default());
    shell.feed(b"HELLO 3\r\nSUBSCRIBE a\r\nPSUBSCRIBE * b\r\nSSUBSCRIBE a\r\n").unwrap();
    shell.out.clear();
    let large = "x".repeat(9000);
    for payloads in [vec!["1", "22", "22"], vec![&large[..], &large], vec!["", "3", &large]] {
        let messages: Vec<_> =
            payloads.iter().map(|payload| Message::new("a".parse().unwrap(), payload.to_string())).collect();
        let deliveries = Deliveries::run_of(&messages, Seq::new(1 << 35 | 1).unwrap(), publisher(), Verdict::First);
        // The list contains a number that does not exist, and its order is not that of creation.
        let written =
            shell.session.on_deliveries(&[SubId(4), SubId(2), SubId(77), SubId(1)], &deliveries, &mut shell.out);
        assert_eq!(written, 3 * payloads.len());
        let expected: String = payloads
            .iter()
            .flat_map(|payload| {
                let behind = format!("$1\r\na\r\n${}\r\n{payload}\r\n", payload.len());
                [
                    format!(">3\r\n$7\r\nmessage\r\n{behind}"),
                    format!(">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n{behind}"),
                    format!(">3\r\n$8\r\nsmessage\r\n{behind}"),
                ]
            })
            .collect();
        assert_eq!(shell.text(), expected);
    }
}

#[test]
fn client_info_shows_the_sum_of_losses() {
    let mut shell = Shell::new(&Settings::default());
    // A message lost for two subscriptions counts twice.
    shell.session.on_lost(&[SubId(1), SubId(2)], Count::Exact(2));
    shell.session.on_lost(&[SubId(1)], Count::Between { min: 1, max: 4 });
    shell.feed(b"INFO seqcast\r\n").unwrap();
    let text = shell.text();
    assert!(text.contains("messages_lost_by_this_client:5..8\r\n"), "{text}");
}

#[test]
fn channel_list_takes_a_bounded_time() {
    let listed = |channels: u32, glob: &str| {
        let mut shell = Shell::new(&Settings::default());
        for number in 0..channels {
            let pattern = format!("{}{number:04}", "a".repeat(250)).parse::<Pattern>().unwrap();
            shell.subs.insert(SubId(number), pattern.into());
        }
        shell.feed(format!("PUBSUB CHANNELS {glob}\r\n").as_bytes()).unwrap();
        shell.text()
    };
    let worst = format!("*{}b*", "a".repeat(127));
    assert_eq!(listed(100, &worst), "*0\r\n");
    assert!(listed(1000, &worst).starts_with("-ERR there are so many channels that this glob would take more than "));
    assert!(listed(1000, "*7").starts_with("*100\r\n$254\r\naaa"));
}

/// Plays every transcript whole, byte by byte and with random splits.
fn transcripts(text: &str) {
    let mut rng = Rng::new(1);
    let mut count = 0;
    for transcript in text.split("\n\n").map(str::trim).filter(|text| !text.is_empty() && !text.starts_with('#')) {
        count += 1;
        play(transcript, |bytes| bytes);
        play(transcript, |_| 1);
        for _ in 0..3 {
            play(transcript, |bytes| 1 + rng.below(bytes as u64) as usize);
        }
    }
    assert!(5 < count, "{count} transcripts");
}

fn play(transcript: &str, mut cut: impl FnMut(usize) -> usize) {
    let is_closed = transcript.lines().any(|line| line == "password pw");
    let mut shell = Shell::new(&if is_closed { with_password() } else { Settings::default() });
    let mut is_over = false;
    for line in transcript.lines() {
        match line.split_once(' ') {
            Some((">", text)) => {
                let bytes = unescaped(text);
                let mut rest = &bytes[..];
                while !rest.is_empty() && !is_over {
                    let (part, next) = rest.split_at(cut(rest.len()));
                    is_over = shell.feed(part).is_err() || shell.is_closed;
                    rest = next;
                }
            }
            Some(("<", text)) => {
                let (given, expected) = (shell.out.take(), unescaped(text));
                assert_eq!(given.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{transcript}");
            }
            None if line == "<" => assert!(shell.out.is_empty(), "{transcript}"),
            None if line == "closed" => assert!(is_over, "{transcript}"),
            _ => assert_eq!(line, "password pw"),
        }
    }
    assert_eq!(is_over, transcript.ends_with("\nclosed"), "{transcript}");
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                byte => byte,
            },
            byte => byte,
        });
    }
    bytes
}

fn with_password() -> Settings {
    let credentials = Credentials::User { name: "default".into(), password: "pw".into() };
    let access = Access { accounts: vec![Account::new(credentials)], ..Access::default() };
    Settings { access, ..Settings::default() }
}

fn publisher() -> Publisher {
    Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 0 }
}

/// A shell with one client, which is the whole LAN.
struct Shell {
    parser: RedisParser,
    session: RedisSession,
    out: OutputBuffer,
    subs: BTreeMap<SubId, SubscriptionFilter>,
    /// Requests to the peer, as text.
    log: Vec<String>,
    /// Refusal of every subscription and message, if set.
    refusal: Option<Refusal>,
    is_closed: bool,
    now: Instant,
}

impl Shell {
    fn new(settings: &Settings) -> Shell {
        let hello = hello(7);
        let mut shell = Shell {
            parser: RedisParser::new(settings),
            session: RedisSession::new(Arc::new(settings.clone()), &hello, Instant::ZERO),
            out: OutputBuffer::new(),
            subs: BTreeMap::new(),
            log: Vec::new(),
            refusal: None,
            is_closed: false,
            now: Instant::ZERO,
        };
        shell.session.on_open(&mut shell.out);
        while let Some(request) = shell.session.poll_request() {
            shell.on_request(request);
        }
        shell
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.out.take()).unwrap()
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), RedisFault> {
        let mut parser = std::mem::replace(&mut self.parser, RedisParser::new(&Settings::default()));
        parser.push(bytes);
        let outcome = self.read(&mut parser);
        self.parser = parser;
        if let Err(fault) = &outcome {
            self.session.on_fault(fault, &mut self.out);
        }
        outcome
    }

    fn read(&mut self, parser: &mut RedisParser) -> Result<(), RedisFault> {
        while let Some(command) = parser.next()? {
            if let Some(request) = self.session.on_command(self.now, command, &mut self.out)? {
                self.on_request(request);
            }
            while let Some(request) = self.session.poll_request() {
                self.on_request(request);
            }
            if self.session.is_admitted() {
                parser.admit();
            }
        }
        Ok(())
    }

    fn on_request(&mut self, request: SessionRequest<'_>) {
        let (text, out) = (describe(&request), &mut self.out);
        self.log.push(text);
        let receivers = |subs: &BTreeMap<SubId, SubscriptionFilter>, subject: &Subject| {
            let found: Vec<_> =
                subs.iter().filter(|(_, wanted)| wanted.matches(subject)).map(|(sub, _)| *sub).collect();
            (ReceiverCount { count: found.len() as u64, is_certain: true }, found)
        };
        match request {
            SessionRequest::Publish(_) if self.refusal.is_some() => {
                self.session.on_refused(None, self.refusal.as_ref().unwrap(), out);
            }
            SessionRequest::Publish(Publish { subject, payload, wants_receivers, .. }) => {
                assert!(wants_receivers);
                let (count, subs) = receivers(&self.subs, &subject);
                let message = Message::new(subject, payload.to_vec());
                let delivery = Delivery::new(message, publisher(), None, Verdict::Direct);
                self.session.on_deliveries(&subs, &delivery.into(), out);
                self.session.on_published(None, count, out);
            }
            SessionRequest::Subscribe { sub, .. } if self.refusal.is_some() => {
                self.session.on_refused(Some(sub), self.refusal.as_ref().unwrap(), out);
            }
            SessionRequest::Subscribe { sub, filter } => assert_eq!(self.subs.insert(sub, filter), None),
            SessionRequest::Unsubscribe { sub } => assert!(self.subs.remove(&sub).is_some()),
            SessionRequest::Events(_) | SessionRequest::Rv(_) | SessionRequest::Refused { .. } => {
                unreachable!("nothing of this protocol has to do with events")
            }
            SessionRequest::Count { subjects } => {
                let counts: Vec<_> = subjects.iter().map(|subject| receivers(&self.subs, subject).0).collect();
                self.session.on_counts(&counts, out);
            }
            SessionRequest::List => {
                let listed: Vec<_> =
                    self.subs.values().map(|filter| ListedSubscription { filter: filter.clone() }).collect();
                assert!(self.session.on_subscription_list(&listed, out) <= 20_000_000);
            }
            SessionRequest::ServerFacts => self.session.on_server_facts(&facts(), out),
            SessionRequest::Clients { only } => {
                let clients = clients(self.session.resp_state(self.now));
                let meant = clients.into_iter().filter(|client| only.is_none_or(|only| only == client.id));
                self.session.on_clients(&meant.collect::<Vec<_>>(), out);
            }
            SessionRequest::Close => self.is_closed = true,
            SessionRequest::Admitted { .. }
            | SessionRequest::Named { .. }
            | SessionRequest::Echo(_)
            | SessionRequest::Denied(_)
            | SessionRequest::Kill { .. } => {}
        }
    }
}

fn describe(request: &SessionRequest<'_>) -> String {
    match request {
        SessionRequest::Publish(Publish { subject, payload, .. }) => {
            format!("publish {subject} {}", payload.escape_ascii())
        }
        SessionRequest::Subscribe { sub, filter } => {
            let glob = filter.glob.as_ref().map(|glob| format!(" {glob:?}"));
            format!("subscribe {} {}{}", sub.0, filter.pattern, glob.unwrap_or_default())
        }
        SessionRequest::Unsubscribe { sub } => format!("unsubscribe {}", sub.0),
        SessionRequest::Count { subjects } => {
            format!("count {}", subjects.iter().map(Subject::as_str).collect::<Vec<_>>().join(" "))
        }
        SessionRequest::List => "list".into(),
        SessionRequest::ServerFacts => "facts".into(),
        SessionRequest::Clients { only: None } => "clients".into(),
        SessionRequest::Clients { only: Some(only) } => format!("client {only}"),
        SessionRequest::Admitted { account } => format!("admitted {account}"),
        SessionRequest::Named { name } => format!("named {name}"),
        SessionRequest::Denied(denial) => format!("denied: {denial}"),
        SessionRequest::Kill { client } => format!("kill {client}"),
        SessionRequest::Events(_) | SessionRequest::Rv(_) | SessionRequest::Refused { .. } => {
            unreachable!("nothing of this protocol has to do with events")
        }
        SessionRequest::Echo(is_on) => format!("echo {is_on}"),
        SessionRequest::Close => "close".into(),
    }
}

fn hello(client: u32) -> ConnectionInfo {
    let from = "10.0.0.1:5".parse().unwrap();
    ConnectionInfo { client, from, listen: "10.0.0.2:6".parse().unwrap(), nonce: [0; 16], is_secure: false }
}

fn clients(own: RespState) -> [ClientFacts; 2] {
    let client = |id, port, name: &str, resp| ClientFacts {
        id,
        from: format!("10.0.0.1:{port}").parse().unwrap(),
        name: name.into(),
        age_secs: 3,
        resp,
        account: "default".into(),
        unread_bytes: 0,
        queued_bytes: 0,
        lost: Count::Exact(0),
        dropped: 0,
    };
    let other = RespState { last_command: Some("publish"), idle_secs: 2, version: 3, subscriptions: [0; 3] };
    [client(7, 5, "", own), client(9, 6, "other", other)]
}

fn facts() -> ServerFacts {
    ServerFacts {
        peer: "A.test".parse().unwrap(),
        epoch: "0000000000000abc".into(),
        listen: "10.0.0.2:6".parse().unwrap(),
        pid: 12,
        uptime_secs: 90_000,
        clients: 2,
        clients_total: 11,
        clients_refused: 1,
        published: 5,
        dropped: 0,
    }
}
