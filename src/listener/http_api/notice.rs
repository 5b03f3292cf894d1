//! Notices of a subscription as JSON, with the fields of `seqcast sub --json`, and as server-sent events (WHATWG HTML,
//! section 9.2).

use crate::event::timestamp::Timestamp;
use crate::message::{Cause, Count, Delivery, Headers, Loss, LossScope, MessageOrigin, Publisher, Verdict};
use crate::time::WallTime;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};

/// Returns a message as JSON in one line. `received` is the time at which the server took it.
pub fn message_json(delivery: &Delivery, received: WallTime) -> String {
    let Delivery { message, publisher, .. } = delivery;
    let (verdict, missing, sent) = match delivery.verdict {
        Verdict::Start(sent) => ("start", None, Some(sent)),
        Verdict::First => ("first", None, None),
        Verdict::Next => ("next", None, None),
        Verdict::Skip(count) => ("skip", Some(count), None),
        Verdict::Unnumbered => ("unnumbered", None, None),
        Verdict::Direct => ("direct", None, None),
    };
    let time = |time: WallTime| json!(Timestamp::from(time).to_string());
    let mut fields = Map::new();
    fields.insert("type".to_owned(), json!("message"));
    fields.insert("subject".to_owned(), json!(message.subject.as_str()));
    match std::str::from_utf8(&message.payload) {
        Ok(text) => fields.insert("payload".to_owned(), json!(text)),
        Err(_) => fields.insert("payload_base64".to_owned(), json!(BASE64_STANDARD.encode(&message.payload))),
    };
    put_publisher(&mut fields, publisher);
    fields.insert("verdict".to_owned(), json!(verdict));
    fields.insert("received".to_owned(), time(received));
    let optional = [
        ("seq", delivery.seq.map(|seq| json!(seq.to_string()))),
        ("offset", delivery.offset.map(|offset| json!(offset))),
        ("missing", missing.map(count_json)),
        ("repaired", delivery.repaired.then_some(json!(true))),
        ("replayed", delivery.replayed.then_some(json!(true))),
        ("origin", delivery.origin.map(|origin| json!(MessageOrigin::as_str(origin)))),
        ("sent", sent.map(time)),
        ("reply", message.reply.as_ref().map(|reply| json!(reply.as_str()))),
        ("headers", (!message.headers.is_empty()).then(|| headers_json(&message.headers))),
    ];
    fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Value::Object(fields).to_string()
}

/// Returns a loss as JSON in one line.
pub fn loss_json(loss: &Loss) -> String {
    let (kind, what) = match &loss.what {
        LossScope::Messages { subject, first, last, count } => (
            "messages",
            json!({
                "subject": subject.as_str(),
                "first": first.to_string(),
                "last": last.to_string(),
                "count": count_json(*count),
            }),
        ),
        LossScope::Datagrams { first, last, messages } => {
            ("datagrams", json!({ "first": first.0, "last": last.0, "messages": count_json(*messages) }))
        }
        LossScope::Tail { after } => ("tail", json!({ "after": after.0 })),
        LossScope::Inbox { messages } => ("inbox", json!({ "messages": messages })),
    };
    let Value::Object(mut fields) = what else { unreachable!("objects only") };
    fields.insert("type".to_owned(), json!("loss"));
    fields.insert("kind".to_owned(), json!(kind));
    put_publisher(&mut fields, &loss.publisher);
    fields.insert("reason".to_owned(), json!(loss.reason.as_str()));
    fields.insert("cause".to_owned(), json!(loss.cause.as_str()));
    if loss.cause != Cause::Network {
        fields.insert("overrun_datagrams".to_owned(), json!(loss.cause.overrun()));
    }
    if 0 < loss.cause.network() {
        fields.insert("network_datagrams".to_owned(), json!(loss.cause.network()));
    }
    fields.insert("time".to_owned(), json!(loss.at.to_string()));
    Value::Object(fields).to_string()
}

/// Returns one line of JSON which reports that `count` messages and loss reports were dropped because the client read
/// too slowly.
pub fn dropped_json(count: u64) -> String {
    json!({ "type": "dropped", "count": count }).to_string()
}

/// Returns the headers of a message as an object of texts. A key that occurs more than once has an array.
fn headers_json(headers: &Headers) -> Value {
    let mut fields = Map::new();
    for (key, value) in headers.iter() {
        match fields.get_mut(key) {
            None => _ = fields.insert(key.to_owned(), json!(value)),
            Some(Value::Array(values)) => values.push(json!(value)),
            Some(first) => *first = json!([first.take(), value]),
        }
    }
    Value::Object(fields)
}

fn put_publisher(fields: &mut Map<String, Value>, publisher: &Publisher) {
    fields.insert("user".to_owned(), json!(publisher.to_string()));
    fields.insert("publisher".to_owned(), json!(publisher.name.as_ref().map(|name| name.as_str())));
    fields.insert("epoch".to_owned(), json!(publisher.epoch.to_string()));
}

fn count_json(count: Count) -> Value {
    if count.is_exact() { json!(count.min()) } else { json!({ "min": count.min(), "max": count.max() }) }
}

/// Appends a server-sent event with this text. The text has no CR: clients cannot tell one from a line feed.
pub fn put_event(out: &mut Vec<u8>, name: &str, text: &str) {
    debug_assert!(!text.contains('\r'), "the end of a line");
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    for line in text.split('\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Appends a payload as a server-sent event: `message` with the text, or `base64` if it is no UTF-8 or has a CR.
pub fn put_payload_event(out: &mut Vec<u8>, payload: &[u8]) {
    match std::str::from_utf8(payload) {
        Ok(text) if !text.contains('\r') => put_event(out, "message", text),
        _ => put_event(out, "base64", &BASE64_STANDARD.encode(payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Dseq, Epoch, Message, MissingDatagrams, Reason};
    use crate::seqno::Seq;

    fn publisher() -> Publisher {
        Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(0xabc).unwrap(), uid: 1 }
    }

    fn parse(text: &str) -> Value {
        assert!(!text.contains('\n'), "one line");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn message_has_payload_and_metadata() {
        let headers = Headers::from_pairs([("a", "1"), ("b", "x"), ("a", "2"), ("a", "3")]).unwrap();
        let message = Message { headers, ..Message::new("plant.a".parse().unwrap(), "17.5\n") };
        let mut delivery = Delivery::new(message, publisher(), None, Verdict::Skip(Count::Between { min: 0, max: 3 }));
        let expected = json!({
            "type": "message", "subject": "plant.a", "payload": "17.5\n", "user": "B.1", "publisher": "B.test",
            "epoch": "0000000000000abc", "verdict": "skip", "missing": { "min": 0, "max": 3 },
            "headers": { "a": ["1", "2", "3"], "b": "x" }, "received": "1970-01-01T00:00:01.000000Z",
        });
        let received = WallTime::from_nanos(1_000_000_000);
        assert_eq!(parse(&message_json(&delivery, received)), expected);
        delivery.message.payload = vec![0xff].into();
        delivery.message.reply = Some("r".parse().unwrap());
        (delivery.repaired, delivery.verdict) = (true, Verdict::Start(WallTime::from_nanos(0)));
        let binary = parse(&message_json(&delivery, received));
        assert_eq!((&binary["payload_base64"], &binary["payload"]), (&json!("/w=="), &Value::Null));
        let shown = ["reply", "repaired", "verdict", "sent"].map(|field| binary[field].clone());
        assert_eq!(shown, [json!("r"), json!(true), json!("start"), json!("1970-01-01T00:00:00.000000Z")]);
    }

    #[test]
    fn loss_has_subject_count_and_publisher() {
        let loss = |what, overrun| Loss {
            publisher: publisher(),
            what,
            reason: Reason::Deadline,
            cause: MissingDatagrams { datagrams: 2, overrun }.cause(),
            at: WallTime::from_nanos(0),
        };
        let seq = |raw| Seq::new(raw).unwrap();
        let messages = LossScope::Messages {
            subject: "plant.a".parse().unwrap(),
            first: seq(7),
            last: seq(8),
            count: Count::Exact(2),
        };
        let lost = parse(&loss_json(&loss(messages, 0)));
        let shown =
            ["type", "kind", "subject", "count", "publisher", "reason", "cause"].map(|field| lost[field].clone());
        assert_eq!(
            shown,
            ["loss", "messages", "plant.a", "", "B.test", "DEADLINE", "NETWORK"].map(|text| match text {
                "" => json!(2),
                text => json!(text),
            })
        );
        let unverified =
            LossScope::Datagrams { first: Dseq(3), last: Dseq(4), messages: Count::Between { min: 0, max: 9 } };
        let unverified = parse(&loss_json(&loss(unverified, 1)));
        assert_eq!(unverified["messages"], json!({ "min": 0, "max": 9 }));
        let shown = ["cause", "overrun_datagrams", "network_datagrams"].map(|field| unverified[field].clone());
        assert_eq!(shown, [json!("MIXED"), json!(1), json!(1)]);
        assert_eq!(parse(&loss_json(&loss(LossScope::Tail { after: Dseq(9) }, 0)))["after"], 9);
        assert_eq!(parse(&loss_json(&loss(LossScope::Inbox { messages: 4 }, 0)))["messages"], 4);
        assert_eq!(parse(&dropped_json(5)), json!({ "type": "dropped", "count": 5 }));
    }

    #[test]
    fn payload_events_are_text_or_base64() {
        for (payload, expected) in [
            (&b"17.5"[..], "event: message\ndata: 17.5\n\n"),
            (b"", "event: message\ndata: \n\n"),
            (b"a\n\nb\n", "event: message\ndata: a\ndata: \ndata: b\ndata: \n\n"),
            (b"event: loss\n\n", "event: message\ndata: event: loss\ndata: \ndata: \n\n"),
            (b"a\r", "event: base64\ndata: YQ0=\n\n"),
            (b"\xff", "event: base64\ndata: /w==\n\n"),
        ] {
            let mut out = Vec::new();
            put_payload_event(&mut out, payload);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{payload:?}");
        }
    }
}
