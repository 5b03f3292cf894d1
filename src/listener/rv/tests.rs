//! Transcripts of a client's input, the requests to the peer and the output. Each is played whole, byte by byte, and
//! with random cuts, against a shell that plays the peer without other clients.

use super::message::{RvField, RvMessage, RvValue};
use super::request::RvRequest;
use super::*;
use crate::delivery::Deliveries;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Permissions, SubjectPermission};
use crate::listener::session_request::{ConnectionInfo, Publish, SessionRequest};
use crate::message::{Delivery, Epoch, Headers, Message, Publisher, Refusal, SubId, Verdict};
use crate::rng::Rng;
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, Instant, WallTime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Parses hexadecimal digits; other characters between them have no meaning.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| byte.is_ascii_hexdigit()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The records of a client before its first frame.
fn records() -> Vec<u8> {
    let mut bytes = handshake::VERSION.to_vec();
    bytes.extend_from_slice(&handshake::info(3));
    bytes
}

/// Encodes a message of these fields.
fn encoded(fields: &[(&'static str, RvValue<'_>)]) -> Vec<u8> {
    let fields = fields.iter().map(|(name, value)| advisory::field(name, value.clone())).collect();
    let mut out = Vec::new();
    RvMessage { fields }.encode(&mut out).unwrap();
    out
}

fn init(session: Option<&str>) -> Vec<u8> {
    init_of("", "", session)
}

fn init_of(service: &str, network: &str, session: Option<&str>) -> Vec<u8> {
    let mut fields = vec![
        ("mtype", advisory::text("I")),
        ("userid", advisory::text("demo")),
        ("service", advisory::text(service)),
        ("network", advisory::text(network)),
        ("vmaj", RvValue::I32(5)),
        ("vmin", RvValue::I32(4)),
        ("vupd", RvValue::I32(2)),
    ];
    fields.extend(session.map(|session| ("session", advisory::text(session))));
    encoded(&fields)
}

fn elements(subject: &str) -> RvValue<'_> {
    RvValue::Subject(subject.split('.').map(str::as_bytes).collect())
}

/// An envelope of a client without data.
fn envelope(letter: &'static str, subject: &str) -> Vec<u8> {
    encoded(&[("mtype", advisory::text(letter)), ("sub", elements(subject))])
}

fn listen(subject: &str) -> Vec<u8> {
    envelope("L", subject)
}

fn text_message(text: &str) -> RvValue<'_> {
    RvValue::Message(RvMessage { fields: vec![advisory::field("text", advisory::text(text))] })
}

fn data(subject: &str, value: RvValue<'_>) -> Vec<u8> {
    encoded(&[("sub", elements(subject)), ("mtype", advisory::text("D")), ("data", value)])
}

fn settings() -> Settings {
    Settings { message_bytes_max: 2_000, frame_bytes_max: 100_000, ..Settings::default() }
}

fn hello() -> ConnectionInfo {
    let address = "127.0.0.1:7500".parse().unwrap();
    ConnectionInfo { client: 5, from: address, listen: address, nonce: [0x66; 16], is_secure: false }
}

fn me() -> Publisher {
    Publisher { name: Some("A.test".parse().unwrap()), epoch: Epoch::new(7).unwrap(), uid: 0 }
}

/// A client of a peer without other clients.
struct Shell {
    parser: RvParser,
    session: RvSession,
    out: OutputBuffer,
    subs: BTreeMap<SubId, Pattern>,
    log: Vec<String>,
    /// Refusal of the next subscription or message.
    refusal: Option<Refusal>,
    fault: Option<RvFault>,
    /// True if each message is refused once because of backpressure.
    is_tight: bool,
}

impl Shell {
    fn new(settings: Settings) -> Shell {
        let settings = Arc::new(settings);
        let mut out = OutputBuffer::new();
        let mut session = RvSession::new(Arc::clone(&settings), &hello(), Instant::ZERO);
        session.on_open(&mut out);
        Shell {
            parser: RvParser::new(&settings),
            session,
            out,
            subs: BTreeMap::new(),
            log: Vec::new(),
            refusal: None,
            fault: None,
            is_tight: false,
        }
    }

    /// Creates a client whose session has begun, and forgets its output and its requests.
    fn connected(settings: Settings) -> Shell {
        let mut shell = Shell::new(settings);
        shell.push(&[records(), init(None), init(Some("7F000001.A"))].concat());
        assert!(shell.session.is_admitted(), "{:?}", shell.fault);
        shell.out.clear();
        shell.log.clear();
        shell
    }

    fn push(&mut self, bytes: &[u8]) {
        self.parser.push(bytes);
        let mut was_repeated = !self.is_tight;
        while self.fault.is_none() {
            let mut own = Vec::new();
            let Shell { parser, session, out, subs, log, refusal, .. } = self;
            let command = match parser.next() {
                Ok(Some(command)) => command,
                Ok(None) => return,
                Err(fault) => {
                    session.on_fault(&fault, out);
                    self.fault = Some(fault);
                    return;
                }
            };
            if !was_repeated {
                parser.repeat_last();
                was_repeated = true;
                continue;
            }
            was_repeated = !self.is_tight;
            let mut request = match session.on_command(Instant::ZERO, command, out) {
                Ok(request) => request,
                Err(fault) => {
                    session.on_fault(&fault, out);
                    self.fault = Some(fault);
                    return;
                }
            };
            while let Some(next) = request {
                carry_out(next, session, out, subs, log, refusal, &mut own);
                request = session.poll_request();
            }
            if self.session.is_admitted() {
                self.parser.admit();
            }
            own.into_iter().for_each(|message| self.deliver(message, true));
        }
    }

    /// Delivers a message of a program, or of the peer itself.
    fn deliver(&mut self, message: Message, is_of_program: bool) {
        let matching = self.subs.iter().filter(|(_, pattern)| pattern.matches(&message.subject));
        let subs: Vec<SubId> = matching.map(|(sub, _)| *sub).collect();
        if subs.is_empty() {
            return;
        }
        // Messages of programs of this peer look the same.
        let delivery = Delivery::new(message, me(), None, Verdict::Direct);
        let Shell { session, out, subs: wanted, log, refusal, .. } = self;
        if is_of_program {
            let subs = session.delivery_subs(&subs, &delivery.message.subject);
            session.on_deliveries(subs, &Deliveries::from(delivery.clone()), out);
        } else {
            session.on_advisory(&delivery, out);
        }
        while let Some(request) = session.poll_request() {
            carry_out(request, session, out, wanted, log, refusal, &mut Vec::new());
        }
    }

    /// Returns the frames written since the last call, as text.
    fn frames(&mut self) -> Vec<String> {
        let bytes = self.out.take();
        let mut rest = &bytes[..];
        let mut shown = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            let (frame, behind) = rest.split_at(length);
            rest = behind;
            let message = RvMessage::decode(frame).unwrap_or_else(|error| panic!("{error}: {}", frame.escape_ascii()));
            shown.push(message.fields.iter().map(show).collect::<Vec<_>>().join(" "));
        }
        shown
    }
}

fn carry_out(
    request: SessionRequest<'_>,
    session: &mut RvSession,
    out: &mut OutputBuffer,
    subs: &mut BTreeMap<SubId, Pattern>,
    log: &mut Vec<String>,
    refusal: &mut Option<Refusal>,
    own: &mut Vec<Message>,
) {
    match request {
        SessionRequest::Publish(Publish { subject, reply, headers, payload, wants_receivers }) => {
            assert!(!wants_receivers);
            if let Some(refusal) = refusal.take() {
                return session.on_refused(None, &refusal, out);
            }
            log.push(format!("publish {subject} {} bytes", payload.len()));
            own.push(Message { reply, headers, ..Message::new(subject, payload.to_vec()) });
        }
        SessionRequest::Subscribe { sub, filter } => {
            if let Some(refusal) = refusal.take() {
                return session.on_refused(Some(sub), &refusal, out);
            }
            log.push(format!("subscribe {} {}", sub.0, filter.pattern));
            assert!(subs.insert(sub, filter.pattern).is_none());
        }
        SessionRequest::Unsubscribe { sub } => {
            log.push(format!("unsubscribe {}", sub.0));
            assert!(subs.remove(&sub).is_some());
        }
        SessionRequest::Rv(request) => log.push(format!("{request:?}")),
        SessionRequest::Admitted { account } => log.push(format!("admitted {account:?}")),
        SessionRequest::Named { name } => log.push(format!("named {name}")),
        SessionRequest::Refused { kind, .. } => log.push(format!("refused {kind}")),
        SessionRequest::Denied(denial) => log.push(format!("denied {denial}")),
        other => panic!("{other:?}"),
    }
}

/// Shows a field as text.
fn show(field: &RvField<'_>) -> String {
    let value = match &field.value {
        RvValue::Message(message) => format!("{{{}}}", message.fields.iter().map(show).collect::<Vec<_>>().join(" ")),
        RvValue::Subject(elements) => String::from_utf8_lossy(&elements.join(&b'.')).into_owned(),
        RvValue::String(text) => format!("{:?}", String::from_utf8_lossy(text)),
        RvValue::Opaque(bytes) => format!("opaque {}", bytes.escape_ascii()),
        other => format!("{other:?}"),
    };
    format!("{}={value}", String::from_utf8_lossy(field.name))
}

/// Plays the input whole, byte by byte and with random cuts. Returns the requests, the output and the fault, which are
/// the same each time.
fn play(settings: &Settings, input: &[u8]) -> (Vec<String>, Vec<u8>, Option<RvFault>) {
    let play = |cuts: &mut dyn FnMut(usize) -> usize, is_tight: bool| {
        let mut shell = Shell::new(settings.clone());
        shell.is_tight = is_tight;
        let mut rest = input;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(cuts(rest.len()).clamp(1, rest.len()));
            shell.push(part);
            rest = behind;
        }
        (shell.log, shell.out.take(), shell.fault)
    };
    let whole = play(&mut |len| len, false);
    assert_eq!(play(&mut |_| 1, true), whole, "byte by byte");
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let largest = rng.between(2, 200);
        assert_eq!(play(&mut |_| rng.between(1, largest) as usize, seed % 2 == 0), whole, "seed {seed}");
    }
    whole
}

/// The bytes of the page of facts, captured between published programs.
#[test]
fn captured_handshake_is_answered_as_captured() {
    let input = [
        bytes("000000000000000400000000"),
        bytes("00000003 00000002 00000000 00000001 00000000 04000000 04000000"),
        vec![0; 36],
        bytes(
            "00000062 9955eeaa 06 6d7479706500 08 02 4900 07 75736572696400 08 05 64656d6f00 \
             08 7365727669636500 08 05 3735303000 08 6e6574776f726b00 08 01 00 \
             05 766d616a00 0b 04 00000005 05 766d696e00 0b 04 00000004 05 7675706400 0b 04 00000002",
        ),
        init_of("7500", "", Some("7F000001.660F2268DBD49")),
    ];
    let (log, out, fault) = play(&Settings::default(), &input.concat());
    let record = |word| [bytes(&format!("{word} 00000002 00000000 00000001 00000000 04000000 04000000")), vec![0; 36]];
    let mut expected = bytes("000000000000000400000000");
    expected.extend(record("00000002").concat());
    expected.extend(record("00000001").concat());
    expected.extend(bytes(
        "0000008f 9955eeaa 04 73756200 02 790012 02 05 52564400 0a 494e49545245535000 06 6d7479706500 08 02 5200 \
         05 6461746100 01 7a 0000005b 9955eeaa 07 69706164647200 0a 04 7f000001 07 6970706f727400 0a 02 1d4c \
         05 766d616a00 0b 04 00000005 05 766d696e00 0b 04 00000004 05 7675706400 0b 04 00000002 \
         04 676f6200 08 0e 3636363636363636363636363600",
    ));
    assert_eq!(out[..expected.len()].escape_ascii().to_string(), expected.escape_ascii().to_string());
    let mut shell = Shell::new(Settings::default());
    shell.out.clear();
    shell.out.put(&out[expected.len()..]);
    assert_eq!(
        shell.frames(),
        ["sub=_RV.INFO.SYSTEM.RVD.CONNECTED mtype=\"D\" data={ADV_CLASS=\"INFO\" ADV_SOURCE=\"SYSTEM\" \
          ADV_NAME=\"RVD.CONNECTED\"}"]
    );
    assert_eq!(fault, None);
    assert_eq!(
        log,
        [
            "admitted \"\"",
            "named demo 7F000001.660F2268DBD49",
            "subscribe 0 _RV.ERROR.SYSTEM.DATALOSS.>",
            "Started { user: \"demo\", session: \"7F000001.660F2268DBD49\", is_shared: false }",
        ]
    );
}

#[test]
fn session_with_the_given_name_is_shared() {
    let own = "7F000001.6666666666666";
    for (session, expected) in
        [(Some(own), true), (None, true), (Some("0A000001.6666666666666"), true), (Some("x"), false)]
    {
        let (log, _, _) = play(&settings(), &[records(), init(None), init(session)].concat());
        let shared = format!("is_shared: {expected} }}");
        assert!(log.last().unwrap().ends_with(&shared), "{session:?} {log:?}");
    }
}

#[test]
fn other_services_and_networks_are_refused() {
    for (service, network, error) in [
        ("", "", None),
        ("7500", ";239.255.83.67", None),
        ("7500:7501", "eth0;239.255.83.67,239.255.83.67;239.255.83.67", None),
        ("7501", "", Some(20)),
        ("0", "", Some(18)),
        ("65536", "", Some(18)),
        ("seven", "", Some(18)),
        ("", ";239.1.2.3", Some(5)),
        ("", "eth0;;239.1.2.3", Some(5)),
        ("", ";mesh", Some(5)),
    ] {
        let mut shell = Shell::new(settings());
        shell.push(&records());
        shell.out.clear();
        shell.push(&init_of(service, network, None));
        let frames = shell.frames();
        let expected = match error {
            Some(error) => format!("sub=RVD.INITREFUSED mtype=\"R\" data={{error=I32({error})}}"),
            None => "sub=RVD.INITRESP".to_owned(),
        };
        assert!(frames.len() == 1 && frames[0].starts_with(&expected), "{service} {network}: {frames:?}");
        assert_eq!(shell.fault.is_some(), error.is_some());
    }
    let mut shell = Shell::new(settings());
    shell.push(&[records(), init_of("", &"x".repeat(1680), None)].concat());
    assert_eq!(shell.fault, Some(RvFault::Init(InitError::NetworkText)));
}

#[test]
fn own_messages_come_back_once() {
    let mut shell = Shell::connected(settings());
    shell.push(&[listen("TEST.SUB"), listen("TEST.>"), listen("TEST.*"), listen("TEST.SUB")].concat());
    shell.push(&data("TEST.SUB", text_message("hi")));
    assert_eq!(shell.frames(), ["sub=TEST.SUB mtype=\"D\" data={text=\"hi\"}"]);
    assert_eq!(
        shell.log.iter().filter(|line| line.contains("subscribe")).collect::<Vec<_>>(),
        ["subscribe 1 TEST.SUB", "subscribe 2 TEST.>", "subscribe 3 TEST.*"]
    );
    shell.log.clear();
    let cancel = |subject| envelope("C", subject);
    shell.push(&[cancel("TEST.SUB"), cancel("TEST.>"), cancel("TEST.*"), cancel("NOT.THERE")].concat());
    shell.push(&data("TEST.SUB", text_message("two")));
    assert_eq!(shell.frames().len(), 1, "one listen of two is left");
    shell.push(&[cancel("TEST.SUB"), data("TEST.SUB", text_message("three"))].concat());
    assert_eq!((shell.frames().len(), shell.session.subscriptions()), (0, 0));
    assert_eq!(shell.log.iter().filter(|line| line.starts_with("unsubscribe")).count(), 3);
    assert_eq!(shell.log.iter().filter(|line| line.starts_with("Cancelled")).count(), 4);
}

#[test]
fn listens_are_announced_with_their_reply() {
    let mut shell = Shell::connected(settings());
    // Captured: a listen to TEST.SUB with a reply subject.
    shell.push(&bytes(
        "00000052 9955eeaa 06 6d7479706500 08 02 4c00  04 73756200 02 79000e 02 06 54455354 00 05 535542 00 \
         07 72657475726e00 08 20 5f494e424f582e37463030303030312e363630463146453541324538452e3300",
    ));
    shell.push(&[listen("_INBOX.7F000001.A.>"), listen("_RV.>")].concat());
    assert_eq!(
        shell.log,
        [
            "subscribe 1 TEST.SUB",
            "Listened { text: b\"TEST.SUB\", reply: Some(b\"_INBOX.7F000001.660F1FE5A2E8E.3\") }",
            "subscribe 2 _INBOX.7F000001.A.>",
            "subscribe 3 _RV.>",
        ]
    );
}

/// A captured message passes byte by byte.
#[test]
fn data_of_any_type_is_unchanged() {
    let long = [b'x'; 400];
    let quoted = RvValue::Message(RvMessage { fields: vec![advisory::field("_data_", RvValue::Opaque(b"\0raw"))] });
    for value in [
        text_message("hi"),
        RvValue::Opaque(b"bytes"),
        RvValue::Opaque(b""),
        RvValue::Opaque(&long),
        RvValue::String(b"{\"json\":1}"),
        RvValue::String(b""),
        RvValue::I32(-7),
        RvValue::F64(1.5),
        RvValue::Subject(vec![b"a", b"b"]),
        RvValue::Strings(vec![b"a", b""]),
        RvValue::Messages(vec![RvMessage::default()]),
        quoted,
    ] {
        let mut shell = Shell::connected(settings());
        shell.push(&listen("a.b"));
        let sent = data("a.b", value);
        shell.push(&sent);
        assert_eq!(shell.out.take().escape_ascii().to_string(), sent.escape_ascii().to_string());
    }
    let mut shell = Shell::connected(settings());
    shell.push(&[listen("a"), envelope("D", "a")].concat());
    assert_eq!(shell.frames(), ["sub=a mtype=\"D\""], "a message without data");
}

/// Certified messages need the fields of the envelope that the daemon does not know, wherever they stand.
#[test]
fn unknown_fields_of_the_envelope_arrive() {
    let mut shell = Shell::connected(settings());
    shell.push(&listen("a"));
    shell.push(&encoded(&[
        ("first", RvValue::I32(1)),
        ("mtype", advisory::text("D")),
        ("seqno", RvValue::U64(17)),
        ("sub", elements("a")),
        ("return", advisory::text("_INBOX.7F000001.A.3")),
        ("data", text_message("hi")),
        ("last", RvValue::Opaque(b"z")),
    ]));
    assert_eq!(
        shell.frames(),
        [
            "sub=a mtype=\"D\" return=\"_INBOX.7F000001.A.3\" first=I32(1) seqno=U64(17) last=opaque z data={text=\"hi\"}"
        ]
    );
}

#[test]
fn payloads_of_other_programs_are_opaque() {
    let mut shell = Shell::connected(settings());
    shell.push(&listen(">"));
    let message = |subject: &str, payload: &'static [u8]| Message::new(subject.parse().unwrap(), payload);
    shell.deliver(message("two%20words.%2A", b"text"), true);
    shell.deliver(message("a", b""), true);
    shell.deliver(message("b", b"\0\0\0\x08\x99\x55\xee\xaa"), true);
    let reply = Message { reply: Some("_INBOX.x.1".parse().unwrap()), ..message("c", b"x") };
    shell.deliver(reply, true);
    assert_eq!(
        shell.frames(),
        [
            "sub=two words.* mtype=\"D\" data=opaque text",
            "sub=a mtype=\"D\"",
            "sub=b mtype=\"D\" data={}",
            "sub=c mtype=\"D\" return=\"_INBOX.x.1\" data=opaque x",
        ]
    );
    let long: Subject = "x".repeat(254).parse().unwrap();
    shell.deliver(Message::new(long, "an element that is too long"), true);
    assert_eq!(shell.frames(), [""; 0]);
}

#[test]
fn listen_to_everything_gets_no_inboxes() {
    for (pattern, expected) in [(">", 0), ("*.>", 1), ("_INBOX.>", 1), ("_INBOX.7F000001.A.>", 1)] {
        let mut shell = Shell::connected(settings());
        shell.push(&listen(pattern));
        shell.push(&data("_INBOX.7F000001.A.3", text_message("answer")));
        assert_eq!(shell.frames().len(), expected, "{pattern}");
    }
    let mut shell = Shell::connected(settings());
    shell.push(&[listen(">"), listen("_INBOX.7F000001.A.>"), data("_INBOX.7F000001.A.3", text_message("x"))].concat());
    assert_eq!(shell.frames().len(), 1);
}

#[test]
fn local_messages_stay_with_the_peer() {
    let mut shell = Shell::connected(settings());
    shell.push(&data("_LOCAL.a", text_message("hi")));
    assert_eq!(shell.log.len(), 1);
    assert!(shell.log[0].starts_with("PublishLocal(Message { subject: \"_LOCAL.a\""), "{}", shell.log[0]);
}

#[test]
fn losses_arrive_unasked_and_once() {
    let json = br#"{"ADV_CLASS":"ERROR","ADV_NAME":"DATALOSS.INBOUND.BCAST","lost":7,"sub_cnt":1,"sub1":"LOSS.A","lost1":7,"scid":7510}"#;
    let headers = Headers::from_pairs([("mtype", "A")]).unwrap();
    let subject: Subject = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST".parse().unwrap();
    let advisory = Message { headers, ..Message::new(subject, &json[..]) };
    for listens in [vec![], vec![listen("_RV.ERROR.>"), listen(">")]] {
        let mut shell = Shell::connected(settings());
        shell.push(&listens.concat());
        shell.deliver(advisory.clone(), false);
        let frames = shell.frames();
        assert_eq!(frames.len(), 1);
        let head = "sub=_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST mtype=\"A\" data={ADV_CLASS=\"ERROR\"";
        assert!(frames[0].starts_with(head) && frames[0].contains("lost=U32(7)"), "{frames:?}");
        // A message of a program on this subject comes only to those that listen to it.
        shell.deliver(advisory.clone(), true);
        let frames = shell.frames();
        assert_eq!(frames.len(), usize::from(!listens.is_empty()));
        assert!(frames.iter().all(|frame| frame.contains("data=opaque {")), "its content is not read: {frames:?}");
    }
}

#[test]
fn invalid_subjects_are_reported_to_their_client() {
    let deep = ["a"; 33].join(".");
    let mut shell = Shell::connected(Settings { subscriptions_max: 1, ..settings() });
    shell.push(&[data(&deep, text_message("x")), listen(&deep), listen("a"), listen("b"), listen("a")].concat());
    let frames = shell.frames();
    assert_eq!(frames.len(), 3);
    assert!(frames[0].starts_with("sub=_RV.ERROR.SYSTEM.CLIENT.ILLEGAL_PUBLISH mtype=\"A\""), "{frames:?}");
    assert!(frames[0].contains("tport=\"7F000001.6666666666666\""), "{frames:?}");
    assert!(frames[1].starts_with("sub=_RV.ERROR.SYSTEM.CLIENT.ILLEGAL_LISTEN"), "{frames:?}");
    assert!(frames[2].contains("sub=\"b\"") && frames[2].contains("at most 1 subscriptions"), "{frames:?}");
    shell.refusal = Some(Refusal::MessageTooLarge { bytes: 9, bytes_max: 8 });
    shell.push(&data("a", text_message("x")));
    let frames = shell.frames();
    assert!(frames[0].starts_with("sub=_RV.ERROR.SYSTEM.DATALOSS.MSG_TOO_LARGE mtype=\"A\""), "{frames:?}");
    assert_eq!(shell.fault, None);
}

#[test]
fn refused_listen_is_not_announced() {
    let mut shell = Shell::connected(settings());
    shell.refusal = Some(Refusal::TooManySubscriptions { max: 5 });
    shell.push(&listen("a"));
    assert_eq!((&shell.log[..], shell.session.subscriptions()), (&["refused CLIENT.ILLEGAL_LISTEN".to_owned()][..], 0));
    assert_eq!(shell.frames().len(), 1);
}

#[test]
fn message_beyond_the_limit_is_dropped_and_reported() {
    let large = vec![b'x'; 90_000];
    let input = [
        records(),
        init(None),
        init(Some("a.b")),
        listen("a"),
        data("a", RvValue::Opaque(&large)),
        data("a", RvValue::Opaque(b"small")),
    ];
    let (log, out, fault) = play(&settings(), &input.concat());
    assert_eq!(fault, None);
    assert_eq!(log.iter().filter(|line| line.starts_with("publish")).collect::<Vec<_>>(), ["publish a 5 bytes"]);
    assert!(out.windows(13).any(|part| part == b"MSG_TOO_LARGE"));
    let larger = vec![b'x'; 100_000];
    let input = [records(), init(None), init(None), data("a", RvValue::Opaque(&larger))];
    let (_, _, fault) = play(&settings(), &input.concat());
    assert!(matches!(fault, Some(RvFault::FrameTooLong { bytes_max: 100_000, .. })), "{fault:?}");
}

#[test]
fn bad_input_ends_the_connection() {
    let keepalive = bytes("00000008 9955eeaa");
    let named = |letter: &'static str| encoded(&[("mtype", advisory::text(letter)), ("sub", elements("a"))]);
    let begun = |frame: Vec<u8>| [init(None), init(None), keepalive.clone(), frame].concat();
    let short = bytes("00000022 9955eeaa 06 6d7479706500 08 02 4400 05 6461746100 01 7a 00000007 9955eeaa");
    for (input, expected) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), RvFault::Frame),
        (bytes("00000007 9955eeaa"), RvFault::Frame),
        (bytes("00000010 9955eeab"), RvFault::Frame),
        (bytes("00010000 9955eeaa"), RvFault::FrameTooLong { bytes: 65_536, bytes_max: 8192 }),
        ([keepalive.clone(), data("a", text_message("x"))].concat(), RvFault::NoSession),
        (named("L"), RvFault::NoSession),
        (named("C"), RvFault::NoSession),
        ([init(None), named("D")].concat(), RvFault::NoSession),
        (begun(named("A")), RvFault::DaemonLetter),
        (begun(named("R")), RvFault::DaemonLetter),
        (begun(named("S")), RvFault::DaemonLetter),
        (begun(named("X")), RvFault::Letter),
        (begun(named("DD")), RvFault::Letter),
        (begun(encoded(&[("sub", elements("a"))])), RvFault::Letter),
        (begun(encoded(&[("mtype", advisory::text("D"))])), RvFault::Subject),
        (begun(encoded(&[("mtype", advisory::text("D")), ("sub", advisory::text("a"))])), RvFault::Subject),
        (begun(short), RvFault::Message(message::RvDecodeError::Length)),
    ] {
        let shown = input.escape_ascii().to_string();
        let (_, _, fault) = play(&settings(), &[records(), input].concat());
        assert_eq!(fault, Some(expected), "{shown}");
    }
    let (_, _, fault) = play(&settings(), &[records(), begun(data("a.(b){2}|^$", text_message("x")))].concat());
    assert_eq!(fault, None);
}

#[test]
fn handshake_has_limited_time() {
    let mut shell = Shell::new(settings());
    let due = shell.session.deadline().unwrap();
    assert_eq!(due, Instant::ZERO + settings().handshake_time);
    assert_eq!(shell.session.on_deadline(Instant::ZERO, &mut shell.out), Ok(()));
    assert_eq!(shell.session.on_deadline(due, &mut shell.out), Err(RvFault::HandshakeTime));
    assert_eq!(Shell::connected(settings()).session.deadline(), None, "a silent client stays");
}

/// Settings with an account of a certificate.
fn certified() -> Settings {
    let only = |text: &str| SubjectPermission::Only([text.parse().unwrap()].into_iter().collect());
    let permissions = Permissions { publish: only("out.>"), subscribe: only("in.>") };
    let account = Account { permissions, ..Account::new(Credentials::Certificate("press-7".into())) };
    Settings { access: Access { accounts: vec![account], ..Access::default() }, ..settings() }
}

#[test]
fn client_without_an_account_is_refused() {
    let mut shell = Shell::new(certified());
    shell.push(&records());
    shell.out.clear();
    shell.push(&init(None));
    assert_eq!(shell.fault, Some(RvFault::Init(InitError::Account)));
    assert_eq!(shell.frames(), ["sub=RVD.INITREFUSED mtype=\"R\" data={error=I32(20)}"]);
}

#[test]
fn permissions_of_the_account_apply() {
    let mut shell = Shell::new(certified());
    shell.session.on_certificate(&["press-7".into()]);
    shell.push(&[records(), init(None), init(None)].concat());
    assert!(shell.log.contains(&"admitted \"press-7\"".to_owned()), "{:?}", shell.log);
    shell.log.clear();
    shell.out.clear();
    let inbox = "_INBOX.7F000001.6666666666666";
    shell.push(&[listen("in.a"), listen("out.a"), listen(&format!("{inbox}.>")), listen("_INBOX.>")].concat());
    shell.push(&[data("out.x", text_message("1")), data("in.x", text_message("2"))].concat());
    let request = |reply: &str| {
        let fields =
            [("sub", elements("out.x")), ("mtype", advisory::text("D")), ("return", RvValue::String(reply.as_bytes()))];
        encoded(&fields)
    };
    shell.push(&[request(&format!("{inbox}.1")), request("in.b"), request("_INBOX.other.1")].concat());
    // A client may answer a request that it has received.
    let asked =
        Message { reply: Some("_INBOX.0A000001.B.4".parse().unwrap()), ..Message::new("in.a".parse().unwrap(), "") };
    shell.deliver(asked, true);
    shell.push(&data("_INBOX.0A000001.B.4", text_message("answer")));
    let denied: Vec<&String> = shell.log.iter().filter(|line| line.starts_with("denied")).collect();
    assert_eq!(denied.len(), 4, "{denied:?}");
    let published: Vec<&String> = shell.log.iter().filter(|line| line.starts_with("publish")).collect();
    assert_eq!(published.len(), 4, "{published:?}");
    assert!(published[3].starts_with("publish _INBOX.0A000001.B.4"));
}

#[test]
fn announced_reply_subject_needs_permission() {
    let mut shell = Shell::new(certified());
    shell.session.on_certificate(&["press-7".into()]);
    shell.push(&[records(), init(None), init(None)].concat());
    shell.log.clear();
    let listen = |reply: &str| {
        encoded(&[
            ("mtype", advisory::text("L")),
            ("sub", elements("in.a")),
            ("return", RvValue::String(reply.as_bytes())),
        ])
    };
    shell.push(&[listen("_INBOX.7F000001.6666666666666.3"), listen("in.b"), listen("cmd.stop")].concat());
    let has_reply = |line: &&String| line.starts_with("Listened") && line.contains("reply: Some");
    assert_eq!(shell.log.iter().filter(has_reply).count(), 2, "{:?}", shell.log);
    assert_eq!(shell.log.iter().filter(|line| line.starts_with("denied")).count(), 1, "{:?}", shell.log);
    assert_eq!(shell.log.iter().filter(|line| line.starts_with("Listened")).count(), 3, "{:?}", shell.log);
}

/// Random input and random damage never panic, and cuts do not matter.
#[test]
fn damaged_transcripts_play_alike_for_all_cuts() {
    let whole = [
        records(),
        init(None),
        init(Some("7F000001.A")),
        listen("a.>"),
        data("a.b", text_message("x")),
        envelope("C", "a.>"),
        bytes("00000008 9955eeaa"),
    ]
    .concat();
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut input = whole.clone();
        for _ in 0..rng.between(1, 4) {
            let at = rng.below(input.len() as u64) as usize;
            input[at] = rng.next_u32() as u8;
        }
        play(&settings(), &input);
    }
}

fn facts() -> RvHostFacts {
    RvHostFacts {
        host: std::net::Ipv4Addr::LOCALHOST,
        name: "A.test".to_owned(),
        version: "1.2.3".to_owned(),
        port: 7500,
        service: 7510,
        network: ";239.255.83.67".to_owned(),
    }
}

/// A daemon at one second after its start.
struct HostShell {
    host: RvHost,
    now: ClockReading,
}

impl HostShell {
    fn new() -> HostShell {
        let now = ClockReading { instant: Instant::ZERO, wall: WallTime::from_nanos(1_700_000_000_123_456_000) };
        HostShell { host: RvHost::new(facts(), now), now }
    }

    fn start(&mut self, client: u32, session: &str, is_shared: bool) -> Vec<String> {
        let request = RvRequest::Started { user: "demo".into(), session: session.into(), is_shared };
        self.request(client, request)
    }

    fn listen(&mut self, client: u32, text: &'static str) -> Vec<String> {
        self.request(client, RvRequest::Listened { text: text.into(), reply: Some("_INBOX.x.3".into()) })
    }

    fn request(&mut self, client: u32, request: RvRequest) -> Vec<String> {
        self.host.on_request(self.now, client, request);
        self.messages()
    }

    /// Sends a query with this reply subject, and returns the answers.
    fn query(&mut self, reply: &str, what: &str, session: &str) -> Vec<String> {
        let fields =
            [("op", advisory::text("get")), ("what", advisory::text(what)), ("session", advisory::text(session))];
        let subject = "_INBOX.7F000001.DAEMON".parse().unwrap();
        let query = Message { reply: Some(reply.parse().unwrap()), ..Message::new(subject, encoded(&fields)) };
        self.host.on_query(self.now, &query);
        self.messages()
    }

    fn messages(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.host.poll_message(|_| true)).map(|message| shown(&message)).collect()
    }
}

fn shown(message: &Message) -> String {
    let data = RvMessage::decode(&message.payload).unwrap();
    let fields: Vec<String> = data.fields.iter().filter(|field| !field.name.starts_with(b"ADV_")).map(show).collect();
    let reply = message.reply.as_ref().map(|reply| format!(" ({reply})")).unwrap_or_default();
    format!("{}{reply} {}", message.subject, fields.join(" "))
}

#[test]
fn sessions_and_listens_are_announced() {
    let mut shell = HostShell::new();
    assert_eq!(
        shell.start(1, "7F000001.A", false),
        [
            "_RV.INFO.SYSTEM.HOST.START.7F000001 hostaddr=IpAddress(127.0.0.1) hostid=\"A.test\" sn=U32(1) os=U8(1) \
             ver=\"1.2.3\" time=DateTime { secs: 1700000000, micros: 123456 } up=U32(0) ipport=IpPort(7500) \
             service=\"7510\" network=\";239.255.83.67\"",
            "_RV.INFO.SYSTEM.SESSION.START.7F000001 hostaddr=IpAddress(127.0.0.1) hostid=\"A.test\" id=\"7F000001.A\" \
             userid=\"demo\"",
        ]
    );
    assert_eq!(
        shell.listen(1, "TEST.SUB"),
        ["_RV.INFO.SYSTEM.LISTEN.START.TEST.SUB (_INBOX.x.3) id=\"7F000001.A\" sub=\"TEST.SUB\" refcnt=U32(1)"]
    );
    assert!(shell.listen(1, "TEST.SUB")[0].ends_with("refcnt=U32(2)"));
    assert!(shell.listen(1, "TEST.*")[0].starts_with("_RV.INFO.SYSTEM.LISTEN.START.TEST.%2A "));
    let cancel = RvRequest::Cancelled { text: "TEST.SUB".into() };
    assert_eq!(shell.request(1, cancel.clone()), [""; 0]);
    assert_eq!(
        shell.request(1, cancel),
        ["_RV.INFO.SYSTEM.LISTEN.STOP.TEST.SUB id=\"7F000001.A\" sub=\"TEST.SUB\" refcnt=U32(0)"]
    );
    shell.host.on_departure(shell.now, 1);
    let names: Vec<String> = shell.messages().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(
        names,
        [
            "_RV.INFO.SYSTEM.LISTEN.STOP.TEST.%2A",
            "_RV.INFO.SYSTEM.SESSION.STOP.7F000001",
            "_RV.INFO.SYSTEM.HOST.STOP.7F000001"
        ]
    );
    shell.host.on_departure(shell.now, 1);
    assert_eq!(shell.messages(), [""; 0]);
}

#[test]
fn shared_listens_are_counted_together() {
    let mut shell = HostShell::new();
    shell.start(1, "7F000001.G1", true);
    assert_eq!(shell.start(2, "7F000001.G2", true), [""; 0], "shared sessions are not announced");
    let own = format!("7F000001.DAEMON.{:X}", 1_700_000_000_123_456_u64);
    assert!(shell.listen(1, "a")[0].ends_with(&format!("id=\"{own}\" sub=\"a\" refcnt=U32(1)")));
    assert!(shell.listen(2, "a")[0].ends_with("refcnt=U32(2)"));
    shell.host.on_departure(shell.now, 1);
    assert_eq!(
        shell.messages(),
        ["_RV.INFO.SYSTEM.UNREACHABLE.TRANSPORT.7F000001.G1 hostaddr=IpAddress(127.0.0.1) tport=\"7F000001.G1\""]
    );
    shell.host.on_departure(shell.now, 2);
    assert!(shell.messages()[0].starts_with("_RV.INFO.SYSTEM.LISTEN.STOP.a "));
}

#[test]
fn session_with_a_used_name_is_silent() {
    let mut shell = HostShell::new();
    let own = format!("7F000001.DAEMON.{:X}", 1_700_000_000_123_456_u64);
    shell.start(1, "7F000001.A", false);
    shell.start(2, "7F000001.G2", true);
    for (client, name) in [(3, "7F000001.A"), (4, &own[..]), (5, "7F000001.G2")] {
        assert_eq!(shell.start(client, name, false), [""; 0], "{name}");
        assert_eq!(shell.listen(client, "a"), [""; 0], "{name}");
        assert_eq!(shell.query("_INBOX.x.1", "sessions", ""), [format!("_INBOX.x.1 =\"{own}\" =\"7F000001.A\"")]);
        assert_eq!(shell.request(client, RvRequest::Cancelled { text: "a".into() }), [""; 0], "{name}");
        shell.listen(client, "b");
        shell.host.on_departure(shell.now, client);
        assert_eq!(shell.messages(), [""; 0], "{name}");
    }
    shell.host.on_departure(shell.now, 1);
    assert_eq!(shell.messages().len(), 1);
    assert_eq!(shell.start(6, "7F000001.A", false).len(), 1, "the name is free again");
}

#[test]
fn monitors_get_sessions_and_subscriptions() {
    let mut shell = HostShell::new();
    shell.start(1, "7F000001.A", false);
    shell.start(2, "7F000001.G2", true);
    shell.listen(1, "TEST.>");
    shell.listen(1, "TEST.API5");
    let own = format!("7F000001.DAEMON.{:X}", 1_700_000_000_123_456_u64);
    let reply = "_INBOX.x.1002";
    assert_eq!(shell.query(reply, "sessions", ""), [format!("_INBOX.x.1002 =\"{own}\" =\"7F000001.A\"")]);
    assert_eq!(
        shell.query(reply, "subscriptions", "7F000001.A"),
        ["_INBOX.x.1002 user=\"demo\" =TEST.API5 =TEST.> end=I32(1)"]
    );
    assert_eq!(shell.query(reply, "subscriptions", "other"), [""; 0]);
}

#[test]
fn answers_go_to_inboxes_only() {
    let mut shell = HostShell::new();
    shell.start(1, "7F000001.A", false);
    for reply in ["orders.new", "_RV.INFO.SYSTEM.HOST.STOP.7F000001", "_INBOX"] {
        assert_eq!(shell.query(reply, "sessions", ""), [""; 0], "{reply}");
    }
    assert_eq!(shell.query("_INBOX.x.1", "sessions", "").len(), 1);
}

#[test]
fn host_status_comes_every_90_seconds() {
    let mut shell = HostShell::new();
    assert_eq!(shell.host.deadline(), None);
    shell.start(1, "7F000001.A", false);
    let due = shell.host.deadline().unwrap();
    assert_eq!(due, Instant::ZERO + Duration::from_secs(90));
    let traffic = RvTraffic { messages: [1, 2], losses: [3, 4], ..RvTraffic::default() };
    shell.host.on_deadline(shell.now, traffic);
    assert_eq!(shell.messages(), [""; 0]);
    shell.now.instant = due;
    shell.host.on_deadline(shell.now, traffic);
    let status = &shell.messages()[0];
    assert!(status.starts_with("_RV.INFO.SYSTEM.HOST.STATUS.7F000001 "), "{status}");
    assert!(status.contains("up=U32(90) ms=U64(1) bs=U64(0) mr=U64(2) br=U64(0) ps=U64(0)"), "{status}");
    assert!(status.contains("idl=U64(3) odl=U64(4) ipport=IpPort(7500)"), "{status}");
}

#[test]
fn waiting_announcements_are_limited() {
    let mut shell = HostShell::new();
    let request = RvRequest::Started { user: "u".into(), session: "s.t".into(), is_shared: false };
    shell.host.on_request(shell.now, 1, request);
    for _ in 0..20_000 {
        shell.host.on_request(shell.now, 1, RvRequest::Listened { text: "a".into(), reply: None });
    }
    assert!(shell.messages().len() <= 16_384);
    assert_eq!(shell.host.counts(), [1, 20_002 - 16_384]);
}

/// Starts a session with this number of listens, whose announcements are published.
fn listen_often(shell: &mut HostShell, listens: u32) {
    shell.start(1, "7F000001.A", false);
    for number in 0..listens {
        shell.request(1, RvRequest::Listened { text: format!("a.{number:06}").into(), reply: None });
    }
}

#[test]
fn departure_announces_the_end_of_each_listen() {
    let mut shell = HostShell::new();
    listen_often(&mut shell, 40_000);
    shell.host.on_departure(shell.now, 1);
    shell.host.on_request(
        shell.now,
        2,
        RvRequest::Started { user: "demo".into(), session: "7F000001.A".into(), is_shared: false },
    );
    let messages = shell.messages();
    assert_eq!((messages.len(), shell.host.counts()), (40_004, [1, 0]));
    assert!(messages[..40_000].iter().all(|line| line.starts_with("_RV.INFO.SYSTEM.LISTEN.STOP.a.")));
    let subjects: Vec<&str> = messages[40_000..].iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(
        subjects,
        ["SESSION.STOP", "HOST.STOP", "HOST.START", "SESSION.START"]
            .map(|name| format!("_RV.INFO.SYSTEM.{name}.7F000001"))
    );
    assert!(!shell.host.has_messages());
}

#[test]
fn unwanted_announcements_are_passed_over_in_pieces() {
    let mut shell = HostShell::new();
    listen_often(&mut shell, 5_000);
    shell.host.on_departure(shell.now, 1);
    let (mut polls, mut asked) = (0, 0);
    while shell.host.has_messages() {
        let before = asked;
        let message = shell.host.poll_message(|_| {
            asked += 1;
            false
        });
        assert_eq!(message, None);
        assert!(asked - before <= 1024);
        polls += 1;
    }
    assert_eq!((polls, asked), (5, 5_002));
}

#[test]
fn pending_ends_of_listens_are_limited() {
    let mut shell = HostShell::new();
    let tail = "x".repeat(60_000);
    for round in 0..3 {
        let request = RvRequest::Started { user: "u".into(), session: "s.t".into(), is_shared: false };
        shell.host.on_request(shell.now, 1, request);
        for number in 0..500 {
            shell.host.on_request(
                shell.now,
                1,
                RvRequest::Listened { text: format!("{round}.{number}.{tail}").into(), reply: None },
            );
        }
        shell.host.on_departure(shell.now, 1);
    }
    assert_eq!(shell.host.counts(), [0, 502], "the oldest announcements, to the end of the first departure's listens");
}

#[test]
fn answers_to_monitors_are_limited() {
    let mut shell = HostShell::new();
    for client in 0..20_000 {
        let session = format!("7F000001.{client:054}");
        shell.host.on_request(shell.now, client, RvRequest::Started { user: "u".into(), session, is_shared: false });
        while shell.host.poll_message(|_| true).is_some() {}
    }
    let answers =
        |shell: &mut HostShell| (0..50).filter(|_| !shell.query("_INBOX.x.1", "sessions", "").is_empty()).count();
    let first = answers(&mut shell);
    assert!((8..20).contains(&first), "{first}");
    assert_eq!(answers(&mut shell), 0);
    shell.now.instant = shell.now.instant + Duration::from_secs(1);
    assert_eq!(answers(&mut shell), first);
    shell.host.on_unanswered(7);
    assert_eq!(shell.host.counts(), [20_000, 50 - first as u64 + 50 + 50 - first as u64 + 7]);
}

#[test]
fn invalid_and_large_queries_have_no_answer() {
    let mut shell = HostShell::new();
    assert!(!shell.host.has_clients());
    shell.start(1, "7F000001.A", false);
    assert!(shell.host.has_clients());
    let padding = [b'x'; 5_000];
    let query = |what: &'static str, padding: &[u8]| {
        let fields =
            [("op", advisory::text("get")), ("what", advisory::text(what)), ("padding", RvValue::Opaque(padding))];
        let subject = shell.host.inbox().to_string().parse().unwrap();
        Message { reply: Some("_INBOX.x.1".parse().unwrap()), ..Message::new(subject, encoded(&fields)) }
    };
    let queries = [query("sessions", &padding), query("nothing", b""), query("sessions", &padding[..100])];
    let unwanted = Message { reply: None, ..query("sessions", b"") };
    let answered = queries.iter().chain([&unwanted]).map(|query| {
        shell.host.on_query(shell.now, query);
        shell.messages().len()
    });
    assert_eq!(answered.collect::<Vec<_>>(), [0, 0, 1, 0]);
}

/// The subscriptions of the session itself may be refused, since all clients together have too many.
#[test]
fn refusal_of_an_internal_subscription_is_silent() {
    let mut shell = Shell::new(settings());
    shell.refusal = Some(Refusal::TooManySubscriptions { max: 5 });
    shell.push(&[records(), init(None), init(None)].concat());
    assert!(shell.session.is_admitted() && shell.fault.is_none());
    assert!(!shell.log.iter().any(|line| line.starts_with("refused")), "{:?}", shell.log);
}
