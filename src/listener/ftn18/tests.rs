//! Messages of clients, as captured (`ftn18-wire.md`), and messages that are refused.

use super::call::{Call, Channel, LIST_BYTES, MESSAGE_BYTES, Version};
use super::fault::{CallFault, FaultName};
use super::message::{ENVELOPE_BYTES, on_events};
use super::session::{CallId, CallOutput, CallResult, CallSession, PushId};
use crate::event::model::{EventId, Json, ServerId};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use crate::event::timestamp::Timestamp;
use crate::listener::access::{Access, Account, Credentials};
use bytes::Bytes;
use std::sync::Arc;

const WEBSOCKET: Channel = Channel { is_secure: true, is_bidirectional: true };
const HTTP: Channel = Channel { is_secure: true, is_bidirectional: false };

fn access() -> Arc<Access> {
    let credentials = Credentials::User { name: "alice".into(), password: "alicepwd".into() };
    Arc::new(Access { accounts: vec![Account::new(credentials)], ..Access::default() })
}

fn outputs(session: &mut CallSession) -> Vec<CallOutput> {
    std::iter::from_fn(|| session.poll_output()).collect()
}

/// Returns the output that a message causes.
fn output_of(channel: Channel, text: &str) -> CallOutput {
    let mut session = CallSession::new(channel, access());
    session.on_message(text);
    let mut outputs = outputs(&mut session);
    assert_eq!(outputs.len(), 1, "{text}: {outputs:?}");
    outputs.remove(0)
}

/// Returns a request of alice; `call` is `f` and the content of `p`.
fn request((f, p): (&str, &str)) -> String {
    format!(r#"{{"f":"{f}","p":{{{p}}},"sec":"alice:alicepwd"}}"#)
}

#[track_caller]
fn check_call(channel: Channel, call: (&str, &str), expected: Call) {
    match output_of(channel, &request(call)) {
        CallOutput::Call { user, call, .. } => assert_eq!((user.as_str(), call), ("alice", expected)),
        other => panic!("{call:?}: {other:?}"),
    }
}

/// Checks that the message is answered with an error of this name, whose text has this part.
#[track_caller]
fn refused(channel: Channel, text: &str, name: &str, part: &str) {
    let CallOutput::Send(answer) = output_of(channel, text) else { panic!("{text} is not refused") };
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["e"], name, "{text}: {answer}");
    assert!(answer["edesc"].as_str().unwrap().contains(part), "{text}: {answer}");
}

#[test]
fn captured_requests_are_decoded() {
    let json = |text: &'static str| Json::from_bytes(Bytes::from_static(text.as_bytes())).unwrap();
    let add = |data| Call::Add { kind: "SOME_EVENT".parse().unwrap(), data: json(data) };
    check_call(HTTP, ("futoin.evt.gen:1.1:addEvent", r#""type":"SOME_EVENT","data":{"a":1}"#), add(r#"{"a":1}"#));
    // Data keeps its original form: numbers, and null.
    check_call(HTTP, ("futoin.evt.gen:1.0:addEvent", r#""data":1.50e3,"type":"SOME_EVENT""#), add("1.50e3"));
    check_call(WEBSOCKET, ("futoin.evt.gen:1.1:addEvent", r#""data":null,"type":"SOME_EVENT""#), add("null"));
    let component = "Comp".parse().unwrap();
    check_call(HTTP, ("futoin.evt.poll:1.1:registerConsumer", r#""component":"Comp""#), Call::Register(component));
    let component = || "Comp".parse().unwrap();
    let poll = |last: Option<&str>, want: Option<&[&str]>, answer_bytes_max| Call::Poll {
        component: component(),
        last: last.map(|last| last.parse().unwrap()),
        want: want.map(|want| want.iter().map(|text| text.parse().unwrap()).collect()),
        answer_bytes_max,
    };
    let nulls = r#""component":"Comp","last_id":null,"want":null"#;
    check_call(HTTP, ("futoin.evt.poll:1.1:pollEvents", nulls), poll(None, None, LIST_BYTES));
    check_call(HTTP, ("futoin.evt.poll:1.1:pollEvents", r#""component":"Comp""#), poll(None, None, LIST_BYTES));
    let all = r#""component":"Comp","last_id":"17","want":["A","B_","A"]"#;
    check_call(HTTP, ("futoin.evt.poll:1.0:pollEvents", all), poll(Some("17"), Some(&["A", "B_"]), MESSAGE_BYTES));
    check_call(WEBSOCKET, ("futoin.evt.push:1.1:pollEvents", all), poll(Some("17"), Some(&["A", "B_"]), MESSAGE_BYTES));
    let ready = Call::Ready { component: component(), want: None, version: Version::V1_1 };
    check_call(WEBSOCKET, ("futoin.evt.push:1.1:readyToReceive", r#""component":"Comp""#), ready);
    let none = Call::Ready { component: component(), want: Some([].into()), version: Version::V1_0 };
    check_call(WEBSOCKET, ("futoin.evt.push:1.0:readyToReceive", r#""component":"Comp","want":[]"#), none);
}

#[test]
fn ping_is_answered_at_once() {
    for interface in ["futoin.ping:1.0", "futoin.evt.gen:1.1", "futoin.evt.poll:1.0", "futoin.evt.push:1.1"] {
        let answer = output_of(WEBSOCKET, &request((&format!("{interface}:ping"), r#""echo":-7"#)));
        assert_eq!(answer, CallOutput::Send(r#"{"r":{"echo":-7}}"#.into()));
    }
    let with_id = r#"{"f":"futoin.ping:1.0:ping","p":{"echo":1},"rid":"C\u0031","forcersp":true,"sec":"alice:alicepwd","obf":{}}"#;
    assert_eq!(output_of(HTTP, with_id), CallOutput::Send(r#"{"r":{"echo":1},"rid":"C\u0031"}"#.into()));
}

#[test]
fn invalid_request_reports_its_first_fault() {
    let sec = r#""sec":"alice:alicepwd""#;
    for text in ["", "x", "[]", "\"f\"", "{\"f\":}", "{} {}"] {
        refused(HTTP, text, "InvalidRequest", "a JSON object: ");
        let mut session = CallSession::new(WEBSOCKET, access());
        session.on_message(text);
        let outputs = outputs(&mut session);
        let [CallOutput::Malformed(fault)] = &outputs[..] else {
            panic!("{text:?} has no id to answer to: {outputs:?}")
        };
        assert!(fault.text.contains(" at line 1 column "), "{text:?}: {fault:?}");
    }
    refused(HTTP, "{\n \"f\":}", "InvalidRequest", "line 2 column 6");
    for (text, part) in [
        (r#"{"p":{},SEC}"#, "f is missing"),
        (r#"{"rid":"C1","p":{},SEC}"#, "f is missing"),
        (r#"{"rid":"S1","r":true}"#, "a response is not expected"),
        (r#"{"f":5,"p":{},SEC}"#, "f is no string"),
        (r#"{"f":"futoin.ping:1.0:ping",SEC}"#, "p is missing"),
        (r#"{"f":"futoin.ping:1.0:ping","p":[],SEC}"#, "p is no object"),
        (r#"{"f":"futoin.ping:1.0:ping","p":{"echo":1},"x":1,SEC}"#, "no field \"x\""),
        (r#"{"f":"futoin.ping:1.0:ping","p":{"echo":1},"rid":5,SEC}"#, "rid is no string"),
        (r#"{"f":"futoin.ping:1.0:ping","p":{"echo":1},"sec":5}"#, "sec is no string"),
    ] {
        refused(HTTP, &text.replace("SEC", sec), "InvalidRequest", part);
    }
    let unsafe_http = Channel { is_secure: false, ..HTTP };
    for (channel, f, name, part) in [
        (HTTP, "futoin.evt.gen:1.1", "InvalidRequest", "interface:version:function"),
        (HTTP, "futoin.evt.gen:1:ping", "InvalidRequest", "no version"),
        (HTTP, "futoin.evt.gen:1.x:ping", "InvalidRequest", "no version"),
        (HTTP, "futoin.evt.x:1.1:ping", "UnknownInterface", "futoin.evt.x"),
        (HTTP, "futoin.evt.receiver:1.1:onEvents", "UnknownInterface", "receiver"),
        (HTTP, "futoin.evt.gen:1.2:ping", "NotSupportedVersion", "1.0 and 1.1"),
        (HTTP, "futoin.evt.gen:2.0:x", "NotSupportedVersion", "1.0 and 1.1"),
        (HTTP, "futoin.ping:1.1:ping", "NotSupportedVersion", "but 1.0"),
        (HTTP, "futoin.evt.gen:1.1:pollEvents", "InvalidRequest", "addEvent, ping"),
        (unsafe_http, "futoin.evt.gen:1.1:ping", "SecurityError", "secure"),
        (HTTP, "futoin.evt.push:1.1:ping", "InvalidRequest", "WebSocket"),
    ] {
        refused(channel, &request((f, r#""echo":1"#)), name, part);
    }
    // Polling does not require a secure channel.
    let ping = request(("futoin.evt.poll:1.1:ping", r#""echo":1"#));
    assert_eq!(output_of(unsafe_http, &ping), CallOutput::Send(r#"{"r":{"echo":1}}"#.into()));
}

#[test]
fn unauthenticated_call_is_refused_first() {
    for (sec, part) in [
        (r#""alice:bad""#, "wrong"),
        (r#""bob:alicepwd""#, "wrong"),
        (r#""alice""#, "user:secret"),
        (r#""alice:""#, "wrong"),
        (r#""-hmac:alice:SHA256:aaaa""#, "authentication codes"),
        ("null", "Anonymous not allowed"),
    ] {
        let text = format!(r#"{{"f":"futoin.ping:1.0:ping","p":{{"echo":1}},"sec":{sec}}}"#);
        refused(HTTP, &text, "SecurityError", part);
    }
    refused(HTTP, r#"{"f":"futoin.ping:1.0:ping","p":{"echo":1}}"#, "SecurityError", "Anonymous not allowed");
    // Wrong credentials are reported before all other errors.
    refused(HTTP, r#"{"f":"x","p":5,"sec":"alice:bad"}"#, "SecurityError", "wrong");
    // Without accounts, any user name is accepted.
    let mut open = CallSession::new(HTTP, Arc::new(Access::default()));
    open.on_message(r#"{"f":"futoin.ping:1.0:ping","p":{"echo":1},"sec":"anybody:what:ever"}"#);
    assert_eq!(outputs(&mut open), [CallOutput::Send(r#"{"r":{"echo":1}}"#.into())]);
    open.on_message(r#"{"f":"futoin.ping:1.0:ping","p":{"echo":1},"sec":":x"}"#);
    assert!(matches!(&outputs(&mut open)[..], [CallOutput::Send(text)] if text.contains("SecurityError")));
}

#[test]
fn too_deep_data_is_refused() {
    let add = |depth: usize| {
        let data = "[".repeat(depth) + &"]".repeat(depth);
        request(("futoin.evt.gen:1.1:addEvent", &format!(r#""type":"A","data":{data}"#)))
    };
    assert!(matches!(output_of(HTTP, &add(900)), CallOutput::Call { .. }));
    refused(HTTP, &add(901), "InvalidRequest", "data of addEvent: JSON is nested deeper than 900 levels: see byte 900");
}

#[test]
fn invalid_parameter_is_refused() {
    let (add, poll) = ("futoin.evt.gen:1.1:addEvent", "futoin.evt.poll:1.1:pollEvents");
    for (f, p, part) in [
        (add, r#""type":"evt","data":1"#, "type of addEvent is 1 to 16 of A-Z and _"),
        (add, r#""type":"A\n","data":1"#, "type of addEvent"),
        (add, r#""type":5,"data":1"#, "type of addEvent"),
        (add, r#""type":"A""#, "needs the parameter data"),
        (add, r#""data":1"#, "needs the parameter type"),
        (add, r#""type":"A","data":1,"x":1"#, "no parameter \"x\""),
        ("futoin.ping:1.0:ping", r#""echo":1.5"#, "32 bits"),
        ("futoin.ping:1.0:ping", r#""echo":"1""#, "32 bits"),
        ("futoin.ping:1.0:ping", r#""echo":2147483648"#, "32 bits"),
        ("futoin.ping:1.0:ping", "", "needs the parameter echo"),
        ("futoin.evt.poll:1.1:registerConsumer", r#""component":"a-b""#, "component of registerConsumer"),
        (poll, r#""component":"C","last_id":"0""#, "last_id of pollEvents"),
        (poll, r#""component":"C","last_id":17"#, "last_id of pollEvents"),
        (poll, r#""component":"C","last_id":"1000000000000000000""#, "last_id of pollEvents"),
        (poll, r#""component":"C","want":"A""#, "want of pollEvents"),
        (poll, r#""component":"C","want":["a"]"#, "want of pollEvents"),
        (poll, r#""component":null"#, "component of pollEvents"),
    ] {
        refused(HTTP, &request((f, p)), "InvalidRequest", part);
    }
}

fn event(id: u64, kind: &str, data: &'static str) -> StreamEvent {
    StreamEvent {
        id: StreamId::from_number(id).unwrap(),
        kind: kind.parse().unwrap(),
        data: Json::from_bytes(Bytes::from_static(data.as_bytes())).unwrap(),
        time: "2026-11-21T07:54:01.987654Z".parse().unwrap_or(Timestamp::MIN),
        origin: EventId { server: ServerId(1), session: id, instance: 1 },
    }
}

#[test]
fn call_is_answered_under_its_own_id() {
    let mut session = CallSession::new(WEBSOCKET, access());
    for rid in ["C1", "C2", "C3", "C4"] {
        let add = r#""f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":1},"sec":"alice:alicepwd""#;
        session.on_message(&format!(r#"{{{add},"rid":"{rid}"}}"#));
    }
    let calls: Vec<CallId> = outputs(&mut session)
        .into_iter()
        .map(|output| match output {
            CallOutput::Call { id, .. } => id,
            other => panic!("{other:?}"),
        })
        .collect();
    let events = vec![event(4, "SOME_EVENT", r#"{"a":1}"#), event(5, "A", "null")];
    session.on_result(calls[2], Ok(CallResult::Events(events)));
    session.on_result(calls[0], Ok(CallResult::Added("7".parse().unwrap())));
    session.on_result(calls[1], Ok(CallResult::Accepted));
    session.on_result(calls[3], Err(CallFault::new(FaultName::NotRegistered, "say \"register\" first")));
    session.on_result(calls[3], Ok(CallResult::Accepted));
    let sent: Vec<String> = outputs(&mut session)
        .into_iter()
        .map(|output| match output {
            CallOutput::Send(text) => text,
            other => panic!("{other:?}"),
        })
        .collect();
    let list = r#"[{"id":"4","type":"SOME_EVENT","data":{"a":1},"ts":"2026-11-21T07:54:01Z"},{"id":"5","type":"A","data":null,"ts":"2026-11-21T07:54:01Z"}]"#;
    assert_eq!(
        sent,
        [
            format!(r#"{{"r":{list},"rid":"C3"}}"#),
            r#"{"r":"7","rid":"C1"}"#.to_owned(),
            r#"{"r":true,"rid":"C2"}"#.to_owned(),
            r#"{"e":"NotRegistered","edesc":"say \"register\" first","rid":"C4"}"#.to_owned(),
        ]
    );
}

#[test]
fn answer_to_a_group_is_reported() {
    let mut session = CallSession::new(WEBSOCKET, access());
    session.on_group(PushId(8), Version::V1_1, 0, &[event(4, "A", "1")]);
    session.on_group(PushId(9), Version::V1_0, 5, &[]);
    session.on_group(PushId(8), Version::V1_1, 1, &[]);
    let one = r#"{"id":"4","type":"A","data":1,"ts":"2026-11-21T07:54:01Z"}"#;
    let call = |version, seq, events, rid| {
        let f = format!("futoin.evt.receiver:{version}:onEvents");
        CallOutput::Send(format!(r#"{{"f":"{f}","p":{{"seq":{seq},"events":[{events}]}},"rid":"{rid}"}}"#))
    };
    let calls = [call("1.1", 0, one, "S1"), call("1.0", 5, "", "S2"), call("1.1", 1, "", "S3")];
    assert_eq!(outputs(&mut session), calls);
    session.on_message(r#"{"rid":"S2","e":"InternalError","edesc":"Result type mismatch"}"#);
    session.on_message(r#"{"r":true,"rid":"S1"}"#);
    // Each answer counts once. Answers to unknown groups and those of ended pushes do not count.
    session.on_push_end(PushId(8));
    for text in [
        r#"{"r":true,"rid":"S1"}"#,
        r#"{"r":true,"rid":"S3"}"#,
        r#"{"r":true,"rid":"C1"}"#,
        r#"{"rid":"S99","r":true}"#,
    ] {
        session.on_message(text);
    }
    let answered = |push, seq, is_accepted| CallOutput::Answered { push: PushId(push), seq, is_accepted };
    assert_eq!(outputs(&mut session), [answered(9, 5, false), answered(8, 0, true)]);
}

#[test]
fn list_of_events_stays_within_the_counted_size() {
    let events = [event(999_999_999_999_999_999, "ABCDEFGHIJKLMNOP", "\"x\""), event(1, "A", "1")];
    let counted: usize = events.iter().map(StreamEvent::bytes).sum();
    let text = on_events("1.1", &format!("S{}", u64::MAX), i32::MAX as u32, &events);
    assert!(text.len() <= counted + ENVELOPE_BYTES && counted < text.len(), "{} {counted}", text.len());
}
