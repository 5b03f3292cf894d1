//! Complete sessions with the listener, with a journal in memory behind it.

use super::chatter::{Conversation, PING};
use super::client_message::{EventSubscription, HatClientMessage, Init};
use super::server_message::{HatServerMessage, Status};
use super::value::RegistrationError;
use super::*;
use crate::event::model::{Event, Json, Payload, Registration, ServerId};
use crate::event::sequencer::EventSequencer;
use crate::event::store::memory::MemoryJournal;
use crate::event::store::{Journal, Query, QueryPage, Series, SeriesOrder, ServerQuery, TimeSpan};
use crate::event::timestamp::Timestamp;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Permissions, SubjectPermission};
use crate::rng::Rng;
use crate::subject::event_type::EventType;
use crate::time::Instant;
use ::bytes::BytesMut;
use std::sync::Arc;
use std::time::Duration;

/// A server with one client.
struct World {
    parser: ChatterParser,
    session: HatSession,
    out: OutputBuffer,
    sequencer: EventSequencer,
    journal: MemoryJournal,
    subscription: EventSubscription,
    /// Times of the registrations, one for each session; the last one repeats.
    times: Vec<Timestamp>,
    /// Requests that the tests answer themselves.
    held: Option<Vec<HatAction>>,
    is_closed: bool,
    /// Number of messages that the client has sent.
    sent: i128,
}

fn secs(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

impl World {
    fn new(settings: Settings) -> World {
        World {
            parser: ChatterParser::new(&settings),
            sequencer: EventSequencer::new(settings.server, 0, Timestamp::MIN),
            session: HatSession::new(Arc::new(settings), Status::Operational, Instant::ZERO),
            out: OutputBuffer::new(),
            journal: MemoryJournal::default(),
            subscription: EventSubscription::default(),
            times: Vec::new(),
            held: None,
            is_closed: false,
            sent: 0,
        }
    }

    /// Creates a world whose client is accepted and subscribes to nothing, without events of the server's own.
    fn welcome(settings: Settings) -> World {
        let mut world = World::new(Settings { announces: false, ..settings });
        let welcome = [HatServerMessage::Init(Ok(Status::Operational))];
        assert_eq!(world.exchange(HatClientMessage::Init(init("n", None, &[]))), welcome);
        world
    }

    fn register(&mut self, registrations: Vec<Registration>) -> Vec<Event> {
        let now = if 1 < self.times.len() {
            self.times.remove(0)
        } else {
            self.times.first().copied().unwrap_or(Timestamp::MIN)
        };
        let events = self.sequencer.register(now, registrations);
        assert_eq!(self.journal.append(&events), Ok(events.len()));
        let World { subscription, session, out, .. } = self;
        let subscribed: Vec<&Event> = events.iter().filter(|event| is_wanted(subscription, event)).collect();
        if !subscribed.is_empty() {
            assert_eq!(session.on_events(&subscribed, out), subscribed.len());
        }
        events
    }

    /// Delivers bytes of the client at this time.
    fn push(&mut self, now: Instant, bytes: &[u8]) -> Result<(), HatFault> {
        self.parser.push(bytes);
        while !self.session.is_full()
            && let Some(message) = self.parser.next()?
        {
            self.session.on_command(now, message, &mut self.out)?;
            self.act();
        }
        Ok(())
    }

    fn act(&mut self) {
        while let Some(action) = self.session.poll_request(true) {
            match (action, &mut self.held) {
                (
                    action @ (HatAction::Register { .. }
                    | HatAction::Query { .. }
                    | HatAction::Refused(_)
                    | HatAction::Denied(_)),
                    Some(held),
                ) => held.push(action),
                (HatAction::Admitted { .. }, _) => self.parser.admit(),
                (HatAction::Subscribe(subscription), _) => self.subscription = subscription,
                (HatAction::Register { request, registrations }, None) => {
                    let events = self.register(registrations);
                    self.session.on_registered(request, Some(events), &mut self.out);
                }
                (HatAction::Query { request, query }, None) => {
                    assert_eq!(query.check(), Ok(()));
                    let answer = self.journal.query(&query).unwrap();
                    self.session.on_answered(request, answer, &mut self.out);
                }
                (HatAction::Refused(_) | HatAction::Denied(_), None) => {}
                (HatAction::Close, _) => self.is_closed = true,
            }
        }
    }

    /// Returns the client's next message, in a conversation of its own.
    fn frame(&mut self, is_last: bool, type_name: &str, body: &[u8]) -> Vec<u8> {
        self.sent += 1;
        let conversation = Conversation { first: self.sent, is_own: true };
        ChatterMessage { id: self.sent, conversation, is_last, type_name, body }.frame().to_vec()
    }

    fn send_request(&mut self, is_last: bool, request: &HatClientMessage) -> Result<(), HatFault> {
        let frame = self.frame(is_last, request.type_name(), &request.encode().expect("with a meaning"));
        self.push(Instant::ZERO, &frame)
    }

    /// Sends a message that wants an answer, and returns the listener's output.
    fn exchange(&mut self, request: HatClientMessage) -> Vec<HatServerMessage> {
        assert_eq!(self.send_request(false, &request), Ok(()));
        self.received()
    }

    /// Returns the listener's messages since the last call, after checking numbers, conversations and marks.
    fn received(&mut self) -> Vec<HatServerMessage> {
        let bytes = self.out.take();
        let mut parser = ChatterParser::new(&Settings { unauthenticated_bytes_max: usize::MAX, ..Settings::default() });
        parser.push(&bytes);
        let mut received = Vec::new();
        while let Some(message) = parser.next().unwrap() {
            assert_eq!(message.is_last, message.type_name != PING);
            received.push(HatServerMessage::decode(&message).unwrap());
        }
        assert_eq!(parser.held_bytes(), 0);
        received
    }
}

/// Matches subscriptions, which is the task of the bus elsewhere.
fn is_wanted(subscription: &EventSubscription, event: &Event) -> bool {
    subscription.server.is_none_or(|server| server == event.id.server)
        && subscription.patterns.iter().any(|pattern| pattern.matches(&event.event_type))
}

fn init(name: &str, token: Option<&str>, patterns: &[&str]) -> Init {
    let patterns = patterns.iter().map(|text| text.parse().unwrap()).collect();
    let subscription = EventSubscription { patterns, server: None };
    Init { name: name.to_owned(), token: token.map(str::to_owned), subscription, persisted: false }
}

fn registration(event_type: &str) -> Registration {
    Registration { event_type: event_type.parse().unwrap(), source_timestamp: None, payload: None }
}

fn registering(types: &[&str]) -> HatClientMessage {
    HatClientMessage::Register(Ok(types.iter().map(|text| registration(text)).collect()))
}

fn ids(received: &[HatServerMessage]) -> Vec<String> {
    let (HatServerMessage::Registered(Some(events))
    | HatServerMessage::Found(QueryPage { events, .. })
    | HatServerMessage::Events(events)) = &received[0]
    else {
        panic!("{received:?}")
    };
    events.iter().map(|event| event.id.to_string()).collect()
}

/// The session that was recorded with the reference: `>` is the client, `<` the server. `@` abbreviates the prefix
/// `HatEventer.` in the type of a message.
const RECORDED: &str = "
> 012a 8181010100 @MsgInitReq 8e 84 67772f31 80 818281618 12a 80 00
< 011e 8181000101 @MsgInitRes 82 80 82
> 013f 8282010100 @MsgRegisterReq 9f 82 82 8161 8162 80 80 82 8161 8163 81 062a4f6280 85 81 81 88 7b2276223a20317d
< 0156 8282010101 @MsgEventsNotify b5 82 81 83 81 82 8161 8162 0658051d8a 072c8d 80 80
       81 83 82 82 8161 8163 0658051d8a 072c8d 81 062a4f6280 85 81 81 88 7b2276223a20317d
< 0156 8382000101 @MsgRegisterRes b6 80 82 81 83 81 82 8161 8162 0658051d8a 072c8d 80 80
       81 83 82 82 8161 8163 0658051d8a 072c8d 81 062a4f6280 85 81 81 88 7b2276223a20317d
> 012c 8383010101 @MsgRegisterReq 8c 81 81 8178 80 81 80 8174 82 00ff
> 0125 8484010100 @MsgQueryReq 88 80 81 81 82 8161 8162
< 0131 8484000101 @MsgQueryRes 94 81 81 83 81 82 8161 8162 0658051d8a 072c8d 80 80 00
> 012e 8585010100 @MsgQueryReq 91 81 81 81 82 8161 812a 80 80 80 80 81 80 81 81 80
< 0131 8585000101 @MsgQueryRes 94 81 81 83 81 82 8161 8162 0658051d8a 072c8d 80 80 01
> 0123 8686010100 @MsgQueryReq 86 82 81 00 81 81 80
< 0147 8686000101 @MsgQueryRes aa 81 81 81 81 83 85 6576656e74 81 31 86 656e67696e65 0658051d88 2f3ac5 80
       81 81 89 225354415254454422 01";

/// Returns the bytes of a text in the form above.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut digits = String::new();
    for word in text.split_ascii_whitespace() {
        match word.strip_prefix('@') {
            None => digits.push_str(word),
            Some(name) => {
                bytes.extend(hex(&std::mem::take(&mut digits)));
                let name = format!("HatEventer.{name}");
                bytes.push(0x80 | name.len() as u8);
                bytes.extend_from_slice(name.as_bytes());
            }
        }
    }
    bytes.extend(hex(&digits));
    bytes
}

fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "{digits}");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Creates the world of the recording: the server had announced that it started before the client connected.
fn recorded_world() -> World {
    let mut world = World::new(Settings::default());
    let time = |bytes: &[u8]| {
        let mut reader = sbs::SbsReader::new(bytes);
        value::time(value::micros(&mut reader).unwrap()).unwrap()
    };
    let started = time(&hex("0658051d882f3ac5"));
    world.times = vec![started, started, time(&hex("0658051d8a072c8d"))];
    let payload = Json::from_bytes("\"STARTED\"".into()).unwrap();
    world.register(vec![Registration { payload: Some(Payload::Json(payload)), ..registration("event/1/engine") }]);
    world
}

#[test]
fn recorded_session_is_answered_byte_by_byte() {
    let mut world = recorded_world();
    let mut steps = RECORDED.replace("\n  ", "  ");
    steps.push('\n');
    let mut expected = Vec::new();
    for (number, line) in steps.lines().enumerate().filter(|(_, line)| !line.is_empty()).chain([(999, ">")]) {
        let (side, text) = line.split_at(1);
        if side == ">" {
            assert_eq!(world.out.take(), std::mem::take(&mut expected), "before step {number}");
            assert_eq!(world.push(Instant::ZERO, &bytes(text)), Ok(()));
        } else {
            expected.extend(bytes(text));
        }
    }
    let connected = &world.journal.events()[1];
    assert_eq!(connected.event_type.subtypes().last().unwrap(), "gw%2F1", "the name is one subtype");
    assert_eq!(connected.payload.as_ref().unwrap().bytes(), &b"\"CONNECTED\""[..]);
}

#[test]
fn recorded_session_is_answered_for_any_segmentation() {
    let steps = RECORDED.replace("\n  ", "  ");
    let side =
        |side: char| -> Vec<u8> { steps.lines().filter_map(|line| line.strip_prefix(side)).flat_map(bytes).collect() };
    let (sent, expected) = (side('>'), side('<'));
    let mut rng = Rng::new(1);
    for round in 0..200 {
        let mut world = recorded_world();
        let mut left = &sent[..];
        while !left.is_empty() {
            let length = match round {
                0 => sent.len(),
                1 => 1,
                _ => rng.between(1, 60) as usize,
            };
            let (part, rest) = left.split_at(length.min(left.len()));
            assert_eq!(world.push(Instant::ZERO, part), Ok(()));
            left = rest;
        }
        assert_eq!(world.out.take(), expected, "round {round}");
    }
}

#[test]
fn wrong_token_is_refused_in_the_answer() {
    let refusal = bytes("0132 8181000101 @MsgInitRes 96 81 94 696e76616c696420636c69656e7420746f6b656e");
    let accounts = vec![
        Account::new(Credentials::Token("secret".into())),
        Account::new(Credentials::User { name: "u".into(), password: "pw".into() }),
        Account::new(Credentials::Nkey([1; 32])),
    ];
    let settings = Settings { access: Access { accounts, ..Access::default() }, ..Settings::default() };
    for (name, token, account) in [
        ("n", None, None),
        ("n", Some(""), None),
        ("n", Some("secre"), None),
        ("n", Some("pw"), None),
        ("u", Some("secret"), Some("token")),
        ("u", Some("pw"), Some("u")),
    ] {
        let mut world = World::new(settings.clone());
        world.held = Some(Vec::new());
        let received = HatClientMessage::Init(init(name, token, &[]));
        let frame = world.frame(false, received.type_name(), &received.encode().unwrap());
        world.parser.push(&frame);
        let message = world.parser.next().unwrap().unwrap();
        let outcome = world.session.on_command(Instant::ZERO, message, &mut world.out);
        let admitted =
            account.map(|account| HatAction::Admitted { account: account.to_owned(), name: name.to_owned() });
        assert_eq!(outcome, if account.is_some() { Ok(()) } else { Err(HatFault::Token) }, "{name} {token:?}");
        assert_eq!(world.session.poll_request(true), admitted);
        if let Err(fault) = outcome {
            world.session.on_fault(&fault, &mut world.out);
            assert_eq!(world.out.take(), refusal);
            assert_eq!(world.session.take_final_registrations(), [[]; 0]);
        }
    }
    // Without accounts, any token is accepted.
    let mut world = World::new(Settings::default());
    let welcome = [HatServerMessage::Init(Ok(Status::Operational))];
    assert_eq!(world.exchange(HatClientMessage::Init(init("n", Some("secret"), &[]))), welcome);
}

/// Settings with an account that may publish on `a.>` and subscribe to `b` and `b.>`.
fn with_permissions() -> Settings {
    let only = |texts: &[&str]| SubjectPermission::Only(texts.iter().map(|text| text.parse().unwrap()).collect());
    let permissions = Permissions { publish: only(&["a.>"]), subscribe: only(&["b", "b.>"]) };
    let accounts = vec![Account { permissions, ..Account::new(Credentials::Token("t".into())) }];
    Settings { access: Access { accounts, ..Access::default() }, announces: false, ..Settings::default() }
}

#[test]
fn denied_subscription_is_refused_in_the_answer() {
    let mut world = World::new(with_permissions());
    let refused = world.exchange(HatClientMessage::Init(init("n", Some("t"), &["b/*", "*"])));
    assert_eq!(refused, [HatServerMessage::Init(Err("this client may not subscribe to *".to_owned()))]);
    assert!(world.is_closed);
}

#[test]
fn certificate_has_the_permissions_of_its_account() {
    let mut settings = with_permissions();
    settings.access.accounts[0].credentials = Credentials::Certificate("device-7".into());
    settings.access.accounts.push(Account::new(Credentials::Token("free".into())));
    let connect = |token: Option<&str>, types: &[&str]| {
        let mut world = World::new(settings.clone());
        world.session.on_certificate(&["other".into(), "device-7".into()]);
        let answer = world.exchange(HatClientMessage::Init(init("n", token, types)));
        (world, answer)
    };
    let welcome = [HatServerMessage::Init(Ok(Status::Operational))];
    let (_, refused) = connect(None, &["*"]);
    assert_eq!(refused, [HatServerMessage::Init(Err("this client may not subscribe to *".to_owned()))]);
    let (mut limited, answer) = connect(None, &["b/*"]);
    assert_eq!(answer, welcome);
    assert_eq!(limited.exchange(registering(&["c"])), [HatServerMessage::Registered(None)]);
    let registered = limited.exchange(registering(&["a/x"]));
    assert!(matches!(&registered[..], [HatServerMessage::Registered(Some(_))]), "{registered:?}");
    // A token decides if there is one.
    let (mut free, answer) = connect(Some("free"), &["*"]);
    assert_eq!(answer, welcome);
    let registered = free.exchange(registering(&["c"]));
    assert!(registered.iter().any(|message| matches!(message, HatServerMessage::Registered(Some(_)))));
}

#[test]
fn denied_event_fails_its_registration() {
    let mut world = World::new(with_permissions());
    let welcome = [HatServerMessage::Init(Ok(Status::Operational))];
    assert_eq!(world.exchange(HatClientMessage::Init(init("n", Some("t"), &["b/*"]))), welcome);
    assert_eq!(world.exchange(registering(&["a/x", "c"])), [HatServerMessage::Registered(None)]);
    let registered = world.exchange(registering(&["a/x"]));
    assert!(matches!(&registered[..], [HatServerMessage::Registered(Some(events))] if events.len() == 1));
    let latest = |types: Option<&str>| {
        HatClientMessage::Query(Some(Query::Latest(types.map(|types| vec![types.parse().unwrap()]))))
    };
    assert!(matches!(&world.exchange(latest(Some("b/?")))[..], [HatServerMessage::Found(_)]));
    assert!(!world.is_closed);
    // The protocol cannot refuse a query.
    assert_eq!(world.exchange(latest(None)), []);
    assert!(world.is_closed);
}

#[test]
fn unexpected_message_ends_the_connection() {
    let latest = HatClientMessage::Query(Some(Query::Latest(None)));
    for received in [registering(&["a"]), latest.clone(), HatClientMessage::EventsAck] {
        let mut world = World::new(Settings::default());
        assert_eq!(world.send_request(false, &received), Err(HatFault::Unexpected(received.type_name())));
        world.session.on_fault(&HatFault::Unexpected(received.type_name()), &mut world.out);
        assert!(world.out.is_empty(), "only one who says who it is gets an answer");
        assert_eq!(world.session.deadline(), None);
    }
    let init = HatClientMessage::Init(init("n", None, &[]));
    assert_eq!(World::new(Settings::default()).send_request(true, &init), Err(HatFault::Ended(init.type_name())));
    let mut world = World::welcome(Settings::default());
    assert_eq!(world.send_request(false, &init), Err(HatFault::Unexpected(init.type_name())));
    assert_eq!(world.send_request(true, &latest), Err(HatFault::Ended(latest.type_name())));
    for (type_name, fault) in [
        ("HatEventer.MsgQueryRes", HatFault::Unexpected("HatEventer.MsgQueryRes")),
        ("HatEventer.MsgInitRe", HatFault::UnknownType("HatEventer.MsgInitRe".to_owned())),
        (&"ž".repeat(61), HatFault::UnknownType("ž".repeat(60))),
    ] {
        let frame = world.frame(false, type_name, b"");
        assert_eq!(world.push(Instant::ZERO, &frame), Err(fault));
    }
    // An unexpected acknowledgement does no harm.
    assert_eq!((world.send_request(true, &HatClientMessage::EventsAck), world.received()), (Ok(()), vec![]));
}

#[test]
fn ping_is_answered_at_any_time() {
    let mut world = World::new(Settings::default());
    assert_eq!(world.exchange(HatClientMessage::Ping), [HatServerMessage::Pong]);
    let mut world = World::welcome(Settings::default());
    world.held = Some(Vec::new());
    assert_eq!(world.exchange(HatClientMessage::Query(Some(Query::Latest(None)))), []);
    assert_eq!(world.exchange(HatClientMessage::Ping), [HatServerMessage::Pong]);
}

#[test]
fn silent_client_is_pinged_and_then_disconnected() {
    let check = |world: &mut World, now, expected: Result<&[HatServerMessage], HatFault>| {
        assert_eq!(world.session.deadline(), Some(now));
        let before = world.session.on_deadline(Instant::from_nanos(now.as_nanos() - 1), true, &mut world.out);
        assert!(before.is_ok() && world.out.is_empty());
        let outcome = world.session.on_deadline(now, true, &mut world.out);
        assert_eq!(outcome.map(|()| world.received()), expected.map(<[HatServerMessage]>::to_vec));
    };
    check(&mut World::new(Settings::default()), secs(10), Err(HatFault::AuthTime));
    let mut world = World::welcome(Settings::default());
    check(&mut world, secs(20), Ok(&[HatServerMessage::Ping]));
    let pong = world.frame(true, chatter::PONG, b"");
    world.push(secs(39), &pong).unwrap();
    check(&mut world, secs(59), Ok(&[HatServerMessage::Ping]));
    check(&mut world, secs(79), Err(HatFault::Idle));
    // A client does not time out while its messages are not read.
    let mut world = World::welcome(Settings { requests_max: 1, ..Settings::default() });
    world.held = Some(Vec::new());
    assert_eq!(world.exchange(registering(&["a"])), []);
    check(&mut world, secs(20), Ok(&[]));
    check(&mut world, secs(40), Ok(&[]));
    world.session.on_registered(RequestId(1), None, &mut world.out);
    assert_eq!(world.received(), [HatServerMessage::Registered(None)]);
    check(&mut world, secs(60), Ok(&[HatServerMessage::Ping]));
    // Nor does it time out while it has yet to read a large answer.
    assert_eq!(world.session.on_deadline(secs(80), false, &mut world.out), Ok(()));
    assert_eq!(world.received(), []);
    check(&mut world, secs(100), Ok(&[HatServerMessage::Ping]));
    check(&mut world, secs(120), Err(HatFault::Idle));
}

#[test]
fn connection_and_disconnection_are_registered() {
    for (name, expected) in [
        ("", Some("event/7/eventer/")),
        ("a b%", Some("event/7/eventer/a b%")),
        ("a/b%?*", Some("event/7/eventer/a%2Fb%25%3F%2A")),
        (&"n".repeat(256), None),
    ] {
        let mut world = World::new(Settings { server: ServerId(7), ..Settings::default() });
        world.held = Some(Vec::new());
        let received = world.exchange(HatClientMessage::Init(init(name, None, &["*"])));
        let welcome = [HatServerMessage::Init(Ok(Status::Operational))];
        let Some(expected) = expected else {
            assert_eq!((&received[..], world.session.take_final_registrations()), (&welcome[..], vec![]));
            continue;
        };
        let event = |text: &'static str| {
            let event_type = EventType::new(expected.split('/')).unwrap();
            let payload = Some(Payload::Json(Json::from_bytes(text.into()).unwrap()));
            Registration { event_type, source_timestamp: None, payload }
        };
        let registrations = vec![event("\"CONNECTED\"")];
        assert_eq!(world.held, Some(vec![HatAction::Register { request: RequestId(0), registrations }]));
        // The client may continue at once, and is answered in order.
        assert_eq!(received, []);
        assert_eq!(world.exchange(HatClientMessage::Register(Ok(vec![]))), []);
        world.session.on_registered(RequestId(0), None, &mut world.out);
        let [init, registered] = &world.received()[..] else { panic!("two answers") };
        assert_eq!((init, registered), (&welcome[0], &HatServerMessage::Registered(Some(vec![]))));
        assert_eq!(
            world.session.poll_request(true),
            Some(HatAction::Subscribe(EventSubscription { patterns: vec!["*".parse().unwrap()], server: None }))
        );
        assert_eq!(world.session.take_final_registrations(), [[event("\"DISCONNECTED\"")]]);
        assert_eq!(world.session.take_final_registrations(), [[]; 0]);
    }
}

#[test]
fn query_waits_for_earlier_registrations() {
    let mut world = World::welcome(Settings { requests_max: 6, ..Settings::default() });
    world.held = Some(Vec::new());
    let submitted = |world: &mut World| -> Vec<u64> {
        world.act();
        let number = |action| match action {
            HatAction::Register { request, .. } | HatAction::Query { request, .. } => request.0,
            action => panic!("{action:?}"),
        };
        world.held.replace(Vec::new()).unwrap().into_iter().map(number).collect()
    };
    let answer = |more_follows| QueryPage { events: vec![], more_follows };
    let latest = HatClientMessage::Query(Some(Query::Latest(None)));
    world.send_request(false, &registering(&["a"])).unwrap();
    world.send_request(true, &registering(&["b"])).unwrap();
    world.send_request(false, &latest).unwrap();
    world.send_request(false, &latest).unwrap();
    world.send_request(false, &HatClientMessage::Register(Ok(vec![]))).unwrap();
    assert!(!world.session.is_full());
    world.send_request(false, &registering(&["c"])).unwrap();
    assert!(world.session.is_full() && 0 < world.session.held_bytes());
    assert_eq!(submitted(&mut world), [1, 2]);
    world.session.on_registered(RequestId(2), Some(vec![]), &mut world.out);
    assert_eq!((world.received(), submitted(&mut world)), (vec![], vec![]));
    world.session.on_registered(RequestId(1), None, &mut world.out);
    // The client waits for no answer to the second one.
    assert_eq!((world.received(), submitted(&mut world)), (vec![HatServerMessage::Registered(None)], vec![3]));
    assert!(!world.session.is_full());
    world.session.on_answered(RequestId(3), answer(true), &mut world.out);
    // The next query may wait until the client has taken the answer.
    assert_eq!(world.session.poll_request(false), None);
    assert_eq!((world.received(), submitted(&mut world)), (vec![HatServerMessage::Found(answer(true))], vec![4]));
    world.session.on_answered(RequestId(4), answer(false), &mut world.out);
    let received = vec![HatServerMessage::Found(answer(false)), HatServerMessage::Registered(Some(vec![]))];
    assert_eq!((world.received(), submitted(&mut world)), (received, vec![6]));
    world.session.on_registered(RequestId(6), None, &mut world.out);
    assert_eq!((world.received(), world.session.held_bytes()), (vec![HatServerMessage::Registered(None)], 0));
}

/// Registrations that wait behind a query when the client disconnects are made without an answer.
#[test]
fn pending_registrations_survive_the_disconnection() {
    let mut world = World::welcome(Settings::default());
    world.held = Some(Vec::new());
    world.send_request(true, &registering(&["asked"])).unwrap();
    world.send_request(false, &HatClientMessage::Query(Some(Query::Latest(None)))).unwrap();
    world.send_request(true, &registering(&["a", "b"])).unwrap();
    world.send_request(false, &HatClientMessage::Register(Ok(vec![]))).unwrap();
    world.send_request(false, &registering(&["c"])).unwrap();
    assert_eq!(world.held.as_ref().map(Vec::len), Some(1));
    let left = [vec![registration("a"), registration("b")], vec![registration("c")]];
    assert_eq!(world.session.take_final_registrations(), left);
    assert_eq!(world.session.take_final_registrations(), [[]; 0]);
}

#[test]
fn unanswered_requests_are_limited_in_bytes() {
    let mut world = World::welcome(Settings { requests_bytes_max: 20, ..Settings::default() });
    world.held = Some(Vec::new());
    world.send_request(false, &registering(&["12345678901"])).unwrap();
    assert_eq!((world.session.held_bytes(), world.session.is_full()), (16, false));
    world.send_request(false, &registering(&["a"])).unwrap();
    assert!(world.session.is_full());
    // Later messages stay with the parser.
    world.send_request(false, &registering(&["b"])).unwrap();
    assert_eq!(world.held.as_ref().unwrap().len(), 2);
    assert!(0 < world.parser.held_bytes());
}

/// Returns the body of a registration of one event.
fn body(subtypes: &[&str], rest: &[u8]) -> Vec<u8> {
    let mut body = BytesMut::new();
    sbs::put_count(&mut body, 1);
    sbs::put_count(&mut body, subtypes.len());
    subtypes.iter().for_each(|subtype| sbs::put_text(&mut body, subtype));
    [&body, rest].concat()
}

#[test]
fn invalid_registration_fails_as_a_whole() {
    let none = b"\x80\x80";
    let mut world = World::welcome(Settings { message_bytes_max: 300, registrations_max: 2, ..Settings::default() });
    world.held = Some(Vec::new());
    for body in [
        body(&["a", "?"], none),
        body(&["*"], none),
        body(&["a/b"], none),
        body(&[], none),
        body(&["a"; 33], none),
        body(&["a"; 1000], none),
        body(&[&"a".repeat(256)], none),
        // The year 10000.
        body(&["a"], &[b"\x81", &hex("072f7f51038080")[..], b"\x80"].concat()),
        body(&["a"], b"\x80\x81\x81\x82{]"),
        body(&["a"], b"\x80\x81\x81\x83NaN"),
        body(&["a"], &[b"\x80\x81\x80\x81n\x00\xaa", &[0; 42][..]].concat()),
        // The first event is valid, and the second one is not.
        [b"\x82\x81\x81a\x80\x80", &body(&["?"], none)[1..]].concat(),
        // The rest of too many events is not read.
        b"\x83\x80\x80\x80\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
    ] {
        let frame = world.frame(false, "HatEventer.MsgRegisterReq", &body);
        assert_eq!(world.push(Instant::ZERO, &frame), Ok(()), "{body:x?}");
        assert_eq!(world.received(), [HatServerMessage::Registered(None)], "{body:x?}");
        let held = world.held.replace(Vec::new()).unwrap();
        assert!(matches!(held[..], [HatAction::Refused(_)]), "{held:?}");
        let frame = world.frame(true, "HatEventer.MsgRegisterReq", &body);
        assert_eq!((world.push(Instant::ZERO, &frame), world.received()), (Ok(()), vec![]));
        world.held = Some(Vec::new());
    }
    // The longest body that is allowed, without a payload and with one.
    for body in
        [body(&[&"a".repeat(255)], none), body(&["", "a.b", "ž"], &[b"\x80\x81\x80\x80\xac", &[0; 44][..]].concat())]
    {
        let frame = world.frame(false, "HatEventer.MsgRegisterReq", &body);
        assert_eq!(world.push(Instant::ZERO, &frame), Ok(()));
        let held = world.held.replace(Vec::new()).unwrap();
        assert!(matches!(held[..], [HatAction::Register { .. }]), "{held:?}");
    }
}

#[test]
fn refusal_names_the_event_and_the_reason() {
    let mut world = World::welcome(Settings::default());
    world.held = Some(Vec::new());
    let body = [b"\x82\x81\x81a\x80\x80", &body(&["a", "b?"], b"\x80\x80")[1..]].concat();
    let frame = world.frame(false, "HatEventer.MsgRegisterReq", &body);
    world.push(Instant::ZERO, &frame).unwrap();
    let error =
        RegistrationError::Type(crate::subject::event_type::TypeError::Character { subtype: 2, character: '?' });
    let refusal = RegistrationRefusal::Event { number: 2, error };
    assert_eq!(
        refusal.to_string(),
        "event 2: subtype 2 holds '?': leave out '?', '*' and '/' from the subtypes of an event"
    );
    assert_eq!(world.held, Some(vec![HatAction::Refused(refusal)]));
}

#[test]
fn too_deep_json_is_refused_and_not_stored() {
    let deep = |depth: usize| {
        let json = Json::from_stored(("[".repeat(depth) + &"]".repeat(depth)).into()).unwrap();
        Registration { payload: Some(Payload::Json(json)), ..registration("a") }
    };
    let mut world = World::welcome(Settings::default());
    assert_eq!(ids(&world.exchange(HatClientMessage::Register(Ok(vec![deep(900)])))), ["1/1/1"]);
    assert_eq!(world.journal.events().len(), 1);
    for is_last in [false, true] {
        world.held = Some(Vec::new());
        assert_eq!(
            world.send_request(is_last, &HatClientMessage::Register(Ok(vec![registration("b"), deep(901)]))),
            Ok(())
        );
        let answer = if is_last { vec![] } else { vec![HatServerMessage::Registered(None)] };
        assert_eq!(world.received(), answer);
        let held = world.held.take().unwrap();
        let [HatAction::Refused(refusal)] = &held[..] else { panic!("{held:?}") };
        assert_eq!(refusal.kind(), "JSON depth");
    }
    assert_eq!(world.journal.events().len(), 1, "nothing more is stored");
    assert_eq!(
        ids(&world.exchange(registering(&["b"]))),
        ["1/2/1"],
        "the connection goes on, and no session is used up"
    );
}

#[test]
fn malformed_message_ends_the_connection_with_its_position() {
    use sbs::SbsErrorKind;
    let latest: &[u8] = b"\x80\x80";
    for (type_name, body, at, kind) in [
        ("HatEventer.MsgRegisterReq", &b""[..], 0, SbsErrorKind::Short),
        ("HatEventer.MsgRegisterReq", b"\x82\x80\x80\x80\x80", 0, SbsErrorKind::Length(2)),
        ("HatEventer.MsgRegisterReq", b"\x81\x80\x80\x82", 3, SbsErrorKind::Choice(2)),
        // An event that cannot be registered does not hide a malformed one.
        ("HatEventer.MsgRegisterReq", b"\x82\x80\x80\x80\x81\x81?\x80\x82", 8, SbsErrorKind::Choice(2)),
        ("HatEventer.MsgRegisterReq", b"\x81\x81\x81\xff\x80\x80", 2, SbsErrorKind::Text),
        ("HatEventer.MsgRegisterReq", b"\x80\x80", 1, SbsErrorKind::Trailing),
        ("HatEventer.MsgQueryReq", b"\x83", 0, SbsErrorKind::Choice(3)),
        ("HatEventer.MsgQueryReq", &[latest, b"\x80"].concat(), 2, SbsErrorKind::Trailing),
        ("HatEventer.MsgQueryReq", b"\x82\x81\x02", 2, SbsErrorKind::Boolean(2)),
        ("HatChatter.Ping", b"\x80", 0, SbsErrorKind::Trailing),
        ("HatEventer.MsgEventsAck", b"\x80", 0, SbsErrorKind::Trailing),
    ] {
        let mut world = World::welcome(Settings::default());
        let frame = world.frame(false, type_name, body);
        let Err(HatFault::Malformed { type_name: named, error }) = world.push(Instant::ZERO, &frame) else {
            panic!("{type_name} {body:x?} was taken")
        };
        assert_eq!((named, error), (type_name, sbs::SbsError { at, kind }));
    }
}

#[test]
fn subscribed_events_are_sent_by_session() {
    let mut world = World::new(Settings { announces: false, ..Settings::default() });
    world.exchange(HatClientMessage::Init(init("n", None, &["a/*", "a/b"])));
    let received = world.exchange(registering(&["a/b", "x", "a"]));
    assert_eq!(
        (ids(&received[..1]), ids(&received[1..])),
        (vec!["1/1/1".into(), "1/1/3".into()], vec!["1/1/1".into(), "1/1/2".into(), "1/1/3".into()])
    );
    assert_eq!(ids(&world.exchange(registering(&["x"]))), ["1/2/1"]);
    assert_eq!(world.session.subscriptions(), 2);
    // Without an answer, the client receives the events alone.
    world.send_request(true, &registering(&["a/c"])).unwrap();
    let received = world.received();
    assert_eq!((received.len(), ids(&received)), (1, vec!["1/3/1".to_owned()]));
}

#[test]
fn connection_event_equals_that_of_hat() {
    for (hat_events, next) in [(false, "1/1/1"), (true, "1/2/1")] {
        let mut world = World::new(Settings { announces: hat_events, ..Settings::default() });
        world.exchange(HatClientMessage::Init(init("n", None, &[])));
        assert_eq!(ids(&world.exchange(registering(&["x"]))), [next]);
    }
}

/// Decodes a query from these bytes.
fn decode_query(body: &[u8]) -> Result<Option<Query>, HatFault> {
    let conversation = Conversation { first: 1, is_own: true };
    let message = ChatterMessage { id: 1, conversation, is_last: false, type_name: "HatEventer.MsgQueryReq", body };
    match HatClientMessage::decode(
        &message,
        &Settings { types_max: 4, wildcard_subtypes_max: 66, ..Settings::default() },
    )? {
        HatClientMessage::Query(query) => Ok(query),
        received => panic!("{received:?}"),
    }
}

type Id = [i128; 3];

fn put_limit_and_id(out: &mut BytesMut, limit: Option<i128>, after: Option<Id>) {
    sbs::put_optional(out, limit, sbs::put_integer);
    sbs::put_optional(out, after, |out, id| id.into_iter().for_each(|number| sbs::put_integer(out, number)));
}

#[test]
fn impossible_types_are_left_out_of_a_query() {
    let all: Vec<&str> = vec!["a"; 32];
    let deep = [&all[..], &["*"]].concat();
    let check = |list: &[&[&str]], expected: Result<&[&str], HatFault>| {
        let mut body = BytesMut::from(&b"\x80\x81"[..]);
        sbs::put_count(&mut body, list.len());
        for subtypes in list {
            sbs::put_count(&mut body, subtypes.len());
            subtypes.iter().for_each(|subtype| sbs::put_text(&mut body, subtype));
        }
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(decode_query(&body), expected.map(|texts| Some(Query::Latest(Some(patterns(texts))))), "{list:?}");
    };
    check(&[], Ok(&[]));
    check(&[&["a", "?"], &["*"], &["?", "", "*"]], Ok(&["a/?", "*", "?//*"]));
    check(&[&[], &["*", "a"], &["a?"], &["a/b"]], Ok(&[]));
    // The `*` adds no further type to these patterns.
    check(&[&deep, &[&"b".repeat(255), "*"]], Ok(&[&all.join("/"), &"b".repeat(255)]));
    check(&[&[&deep[..], &["*"]].concat(), &["a"; 33], &[&"b".repeat(256), "*"]], Ok(&[]));
    // Patterns with a `?` have a limit of their own.
    let wide = ["?"; 32];
    check(&[&wide, &all, &["?", "a"], &wide], Ok(&[&wide.join("/"), &all.join("/"), "?/a", &wide.join("/")]));
    check(&[&wide, &wide, &["a", "b", "?"]], Err(HatFault::Wildcards { subtypes: 67, max: 66 }));
    check(&[&["a"][..]; 5], Err(HatFault::Types { count: 5, max: 4 }));
    assert_eq!(decode_query(b"\x80\x80"), Ok(Some(Query::Latest(None))));
}

#[test]
fn series_has_the_bounds_of_the_reference() {
    let check = |bounds: [Option<(i128, i128)>; 4], limit, after: Option<Id>, expected: Option<Series>| {
        let mut body = BytesMut::from(&b"\x81\x80"[..]);
        for bound in bounds {
            sbs::put_optional(&mut body, bound, |out, (s, us)| {
                sbs::put_integer(out, s);
                sbs::put_integer(out, us);
            });
        }
        body.extend_from_slice(b"\x81\x81");
        put_limit_and_id(&mut body, limit, after);
        let expected = expected.map(|series| Query::Series(Series { by: SeriesOrder::SourceTime, ..series }));
        assert_eq!(decode_query(&body), Ok(expected), "{bounds:?} {limit:?} {after:?}");
    };
    let none = [None; 4];
    let at = |micros| Some(Timestamp::from_micros(micros).unwrap());
    let span = |from, to| TimeSpan { from, to };
    let all = Series::default;
    check(none, None, None, Some(all()));
    check(
        [Some((-1, 999_999)), Some((2, 5)), None, None],
        None,
        None,
        Some(Series { time: span(at(-1), at(2_000_005)), ..all() }),
    );
    check(
        [None, None, Some((0, 7)), Some((0, 7))],
        None,
        None,
        Some(Series { source_time: span(at(7), at(7)), ..all() }),
    );
    check([None, None, Some((0, 7)), Some((0, 6))], None, None, None);
    check([Some((0, 7)), Some((0, 6)), None, None], None, None, None);
    // Times before and after all valid years.
    let (early, late) = (Some((-1 << 62, 0)), Some((1 << 62, 0)));
    let whole = span(Some(Timestamp::MIN), Some(Timestamp::MAX));
    check([early, late, early, late], None, None, Some(Series { time: whole, source_time: whole, ..all() }));
    check([late, None, None, None], None, None, None);
    check([None, early, None, None], None, None, None);
    check([None, None, late, None], None, None, None);
    check([None, None, None, early], None, None, None);
    for (limit, expected) in [(0, 0), (-5, 0), (5, 5), (1 << 65, usize::MAX)] {
        check(none, Some(limit), None, Some(Series { limit: Some(expected), ..all() }));
    }
    // A query after an unknown event finds nothing.
    let most: Id = [u32::MAX.into(), u64::MAX.into(), u64::MAX.into()];
    let after = Some("4294967295/18446744073709551615/18446744073709551615".parse().unwrap());
    check(none, None, Some(most), Some(Series { after, ..all() }));
    for id in [[most[0] + 1, 1, 1], [-1, 1, 1], [1, -1, 1], [1, most[1] + 1, 1], [1, 1, -1], [1, 1, most[2] + 1]] {
        check(none, None, Some(id), None);
    }
}

#[test]
fn server_query_continues_after_an_unknown_id() {
    let body = |server, limit, after: Option<Id>| {
        let mut body = BytesMut::from(&b"\x82"[..]);
        sbs::put_integer(&mut body, server);
        sbs::put_boolean(&mut body, true);
        put_limit_and_id(&mut body, limit, after);
        body
    };
    let most = i128::from(u64::MAX);
    for (after, expected) in [
        ([7, 2, 3], "7/2/3"),
        ([7, 2, -3], "7/2/0"),
        ([7, 2, most + 1], "7/2/18446744073709551615"),
        ([7, -1, 3], "7/0/0"),
        ([7, most, 3], "7/18446744073709551615/3"),
        ([7, most + 1, -3], "7/18446744073709551615/18446744073709551615"),
    ] {
        let after_id = Some(expected.parse().unwrap());
        let expected = Query::Server(ServerQuery { server: ServerId(7), limit: Some(2), after: after_id });
        assert_eq!(decode_query(&body(7, Some(2), Some(after))), Ok(Some(expected)), "{after:?}");
    }
    for server in [-1, 1 << 32] {
        assert_eq!(decode_query(&body(server, None, Some([server, 1, 1]))), Ok(None), "no such server");
    }
    let fault = HatFault::OtherServer { after: 8, server: 7 };
    assert_eq!(decode_query(&body(7, None, Some([8, 1, 1]))), Err(fault));
}

/// Every message of clients and servers survives encoding and decoding.
#[test]
fn encoded_message_is_decoded_unchanged() {
    fn message<'a>(type_name: &'a str, body: &'a [u8]) -> ChatterMessage<'a> {
        ChatterMessage { id: 1, conversation: Conversation { first: 1, is_own: true }, is_last: false, type_name, body }
    }
    let at = |micros| Timestamp::from_micros(micros).unwrap();
    let binary = Payload::Binary { type_name: "t".into(), bytes: b"\0\xff"[..].into() };
    let json = Payload::Json(Json::from_bytes("{\"v\": 1}".into()).unwrap());
    let registrations: Vec<Registration> = [None, Some(binary), Some(json)]
        .into_iter()
        .map(|payload| Registration { source_timestamp: Some(at(-5)), payload, ..registration("a//b.%") })
        .chain([registration("x")])
        .collect();
    let span = TimeSpan { from: Some(Timestamp::MIN), to: None };
    let types = Some(vec!["a/?".parse().unwrap(), "*".parse().unwrap()]);
    let after = "1/2/3".parse().ok();
    let series = Series {
        types: types.clone(),
        time: span,
        by: SeriesOrder::SourceTime,
        after,
        limit: Some(3),
        ..Series::default()
    };
    let of_server = ServerQuery { server: ServerId(u32::MAX), after: None, limit: None };
    let subscription = EventSubscription { patterns: types.clone().unwrap(), server: Some(ServerId(3)) };
    for received in [
        HatClientMessage::Ping,
        HatClientMessage::Pong,
        HatClientMessage::EventsAck,
        HatClientMessage::Init(Init { subscription, persisted: true, ..init("ž", Some("t"), &[]) }),
        HatClientMessage::Register(Ok(registrations.clone())),
        HatClientMessage::Query(Some(Query::Latest(types))),
        HatClientMessage::Query(Some(Query::Series(series))),
        HatClientMessage::Query(Some(Query::Server(of_server))),
    ] {
        let body = received.encode().unwrap();
        assert_eq!(HatClientMessage::decode(&message(received.type_name(), &body), &Settings::default()), Ok(received));
    }
    let events = EventSequencer::new(ServerId(9), u64::MAX - 1, Timestamp::MAX).register(Timestamp::MIN, registrations);
    for received in [
        HatServerMessage::Ping,
        HatServerMessage::Pong,
        HatServerMessage::Init(Ok(Status::Starting)),
        HatServerMessage::Init(Err("no".to_owned())),
        HatServerMessage::Status(Status::Standby),
        HatServerMessage::Status(Status::Stopping),
        HatServerMessage::Events(events.clone()),
        HatServerMessage::Registered(None),
        HatServerMessage::Registered(Some(events.clone())),
        HatServerMessage::Found(QueryPage { events, more_follows: true }),
    ] {
        let body = received.encode();
        assert_eq!(HatServerMessage::decode(&message(received.type_name(), &body)), Ok(received));
    }
    let unknown = HatFault::UnknownType("HatEventer.MsgInitReq".to_owned());
    assert_eq!(HatServerMessage::decode(&message("HatEventer.MsgInitReq", b"")), Err(unknown));
}

#[test]
fn stopping_server_answers_requests_and_reports_standby() {
    let mut world = World::welcome(Settings::default());
    world.session.on_status(Status::Operational, &mut world.out);
    assert_eq!(world.received(), [], "that is no news");
    world.held = Some(Vec::new());
    assert_eq!(world.exchange(registering(&["a"])), []);
    world.session.on_stop(&mut world.out);
    assert_eq!(world.received(), [HatServerMessage::Status(Status::Stopping)]);
    // The server registers no further events.
    assert_eq!(world.exchange(registering(&["b"])), []);
    let held = world.held.take().unwrap();
    assert!(
        matches!(
            &held[..],
            [HatAction::Register { .. }, HatAction::Refused(RegistrationRefusal::Status(Status::Stopping))]
        ),
        "{held:?}"
    );
    world.session.on_registered(RequestId(1), None, &mut world.out);
    world.act();
    let received = [
        HatServerMessage::Registered(None),
        HatServerMessage::Registered(None),
        HatServerMessage::Status(Status::Standby),
    ];
    assert_eq!((&world.received()[..], world.is_closed), (&received[..], true));
    // The session neither handles nor sends further messages.
    assert_eq!((world.exchange(HatClientMessage::Ping), world.session.deadline()), (vec![], None));
    for is_known in [false, true] {
        let mut world = World::new(Settings::default());
        world.held = Some(Vec::new());
        if is_known {
            assert_eq!(world.exchange(HatClientMessage::Init(init("n", None, &[]))), []);
        }
        world.session.on_stop(&mut world.out);
        world.act();
        assert_eq!((world.received(), world.is_closed), (vec![], true), "one who is not welcome yet");
    }
}

#[test]
fn registration_fails_while_not_operational() {
    let mut world = World::welcome(Settings::default());
    world.session.on_status(Status::Standby, &mut world.out);
    assert_eq!(world.received(), [HatServerMessage::Status(Status::Standby)]);
    assert_eq!(world.exchange(registering(&["a"])), [HatServerMessage::Registered(None)]);
    assert_eq!(
        world.exchange(HatClientMessage::Query(Some(Query::Latest(None)))),
        [HatServerMessage::Found(QueryPage::default())]
    );
    world.session.on_status(Status::Operational, &mut world.out);
    assert_eq!(world.received(), [HatServerMessage::Status(Status::Operational)]);
    assert_eq!(ids(&world.exchange(registering(&["a"]))), ["1/1/1"]);
}
