//! Datagrams as JSON. The dissector for Wireshark uses the same names: `records[].run.subject` is its
//! `seqcast.run.subject`.

use serde_json::{Map, Value, json};

use crate::listener::notice::{HeadersJson, PayloadJson};
use crate::message::{Epoch, Message, Stamp};
use crate::seqno::Seq;
use crate::wire::{
    Beacon, Content, ContentKind, Fragment, Header, Interest, InterestEntry, Kind, Manifest, PeerAnnouncement, Range,
    Record, Report, Run, ShareCount,
};

/// Returns the fields of a header.
pub(super) fn header_fields(header: &Header) -> Map<String, Value> {
    let kind = match header.kind {
        Kind::Data => "data",
        Kind::Directed => "directed",
        Kind::Control => "control",
    };
    object(json!({
        "kind": kind,
        "group": header.group,
        "epoch": header.epoch.to_string(),
        "number": header.number,
        "count": header.count,
        "uptime_ms": header.uptime_ms,
        "receiver": header.receiver.map(text_of),
    }))
}

/// Returns the header fields of a beacon, and its only record.
pub(super) fn beacon_fields(beacon: &Beacon) -> (Map<String, Value>, Vec<Value>) {
    let header = object(json!({ "kind": "beacon", "epoch": text_of(beacon.epoch) }));
    let Beacon { group, port, name, .. } = beacon;
    (header, vec![json!({ "beacon": { "group": group.to_string(), "port": port, "name": name.as_str() } })])
}

/// Returns a record as an object whose only key is the type of the record.
pub(super) fn record_json(record: &Record) -> Value {
    match record {
        Record::Run(run) => json!({ "run": run_json(run) }),
        Record::Fragment(fragment) => json!({ "fragment": fragment_json(fragment) }),
        Record::Heartbeat(announcement) => json!({ "heartbeat": announcement_json(announcement) }),
        Record::Bye(announcement) => json!({ "bye": announcement_json(announcement) }),
        Record::Hello(hello) => {
            let mut fields = object(json!({ "cookie": hello.cookie, "wants_reply": hello.wants_reply }));
            fields.extend(announcement_json(&hello.announce));
            json!({ "hello": fields })
        }
        Record::ResendRequest(request) => json!({ "resend_request": {
            "publisher": text_of(request.epoch),
            "manifests_only": request.manifests_only,
            "directed": request.directed,
            "unicast": request.unicast,
            "ranges": ranges_json(&request.ranges),
        }}),
        Record::Manifest(manifest) => json!({ "manifest": manifest_json(manifest) }),
        Record::Expired(notice) => json!({ "expired": object(json!({
            "receiver": notice.receiver.map(text_of),
            "ranges": ranges_json(&notice.ranges),
        }))}),
        Record::Interest(interest) => json!({ "interest": interest_json(interest) }),
        Record::InterestRequest(request) => json!({ "interest_request": {
            "peer": text_of(request.epoch),
            "from": request.from,
            "base": request.base,
        }}),
        Record::ReceiverReport(report) => json!({ "receiver_report": {
            "publisher": text_of(report.epoch),
            "taken": report.taken.0,
            "window_bytes": report.window,
            "awaited": report.awaited.map_or(0, |dseq| dseq.0),
            "dropped": report.dropped,
        }}),
        Record::UnknownData(record_type) => json!({ "unknown_data": { "type": format!("{record_type:#04x}") } }),
    }
}

/// Returns the fields of an object that have a value.
fn object(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { unreachable!("only objects are passed") };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

fn text_of(epoch: Epoch) -> String {
    epoch.to_string()
}

/// Returns the fields that a RUN and a FRAGMENT share.
fn start_fields(
    subject: &str,
    seq: Option<Seq>,
    stamp: Option<Stamp>,
    chain: Option<Seq>,
    event: bool,
) -> Map<String, Value> {
    object(json!({
        "subject": subject,
        "seq": seq.map(|seq| seq.to_string()),
        "stamp_ns": stamp.map(|stamp| stamp.time.as_nanos()),
        "offset": stamp.map(|stamp| stamp.offset),
        "chain": chain.map(|seq| seq.to_string()),
        "event": event,
    }))
}

fn run_json(run: &Run) -> Map<String, Value> {
    let mut fields = start_fields(run.subject.as_str(), run.first, run.stamp, run.chain, run.event);
    fields.insert("count".to_owned(), run.count.into());
    fields.insert("messages".to_owned(), run.messages().map(|message| message_json(&message)).collect());
    fields
}

fn message_json(message: &Message) -> Value {
    let mut fields = object(json!({
        "reply": message.reply.as_ref().map(|reply| reply.as_str()),
        "headers": (!message.headers.is_empty()).then(|| json!(HeadersJson(&message.headers))),
    }));
    fields.extend(object(json!(PayloadJson::from(&*message.payload))));
    Value::Object(fields)
}

fn fragment_json(fragment: &Fragment) -> Map<String, Value> {
    let Fragment { subject, seq, stamp, chain, event, .. } = fragment;
    let mut fields = start_fields(subject.as_str(), *seq, *stamp, *chain, *event);
    fields.extend(object(json!({
        "meta": fragment.meta,
        "index": fragment.index,
        "total_bytes": fragment.total,
        "chunk_offset": fragment.offset,
        "chunk_bytes": fragment.chunk.len(),
    })));
    fields
}

fn announcement_json(announcement: &PeerAnnouncement) -> Map<String, Value> {
    let interest = announcement.interest.map(|interest| {
        json!({
            "version": interest.version,
            "suppresses": interest.suppresses,
            "wants_confirmation": interest.wants_confirmation,
        })
    });
    let queue = announcement.queue.as_ref().map(|queue| {
        json!({ "multicast": share_count_json(&queue.multicast), "directed": share_count_json(&queue.directed) })
    });
    object(json!({
        "high": announcement.high.0,
        "trail": announcement.trail.0,
        "manifest_trail": announcement.manifest_trail.0,
        "heartbeat_ms": announcement.heartbeat.as_millis() as u64,
        "pub_window_ms": announcement.pub_window_time.as_millis() as u64,
        "directed_high": announcement.directed_high.0,
        "directed_count": announcement.directed_count,
        "directed_receiver": announcement.directed_receiver.map(text_of),
        "name": announcement.name.as_str(),
        "token": announcement.token,
        "echo": announcement.echo,
        "report": announcement.report.as_deref().map(report_json),
        "interest": interest,
        "interest_known": announcement.interest_known,
        "queue": queue,
    }))
}

fn report_json(report: &Report) -> Value {
    let Report { missing, repaired, pending, unverified, lost_min, lost_max, overrun, directed_lost } = *report;
    let if_sent = |number: u64| (number != 0).then_some(number);
    Value::Object(object(json!({
        "missing": missing,
        "repaired": repaired,
        "pending": pending,
        "unverified": unverified,
        "lost_min": lost_min,
        "lost_max": lost_max,
        "overrun": if_sent(overrun),
        "directed_lost": if_sent(directed_lost),
    })))
}

fn share_count_json(count: &ShareCount) -> Value {
    json!({ "settled": count.settled.0, "served": count.served, "returned": count.returned })
}

fn ranges_json(ranges: &[Range]) -> Value {
    ranges.iter().map(|range| json!({ "first": range.first.0, "last": range.last.0 })).collect()
}

fn manifest_json(manifest: &Manifest) -> Value {
    let contents = |contents: &Vec<Content>| contents.iter().map(content_json).collect::<Value>();
    json!({
        "first": manifest.first.0,
        "before": manifest.before,
        "datagrams": manifest.datagrams.iter().map(contents).collect::<Value>(),
    })
}

fn content_json(content: &Content) -> Value {
    let mut fields = start_fields(content.subject.as_str(), content.seq, None, content.chain, content.event);
    let extent = match content.kind {
        ContentKind::Run { count } => json!({ "count": count }),
        ContentKind::Part { index, total } => json!({ "index": index, "total_bytes": total }),
    };
    fields.extend(object(extent));
    Value::Object(fields)
}

fn interest_json(interest: &Interest) -> Value {
    let entry = |InterestEntry { wanted, count }: &InterestEntry| {
        let glob = wanted.glob.as_ref().map(|glob| String::from_utf8_lossy(glob.text()));
        Value::Object(object(json!({
            "pattern": wanted.pattern.as_str(),
            "glob": glob,
            "queue": wanted.queue.as_ref().map(|queue| queue.as_str()),
            "count": count,
        })))
    };
    json!({
        "after": interest.after,
        "upto": interest.upto,
        "high": interest.high,
        "base": interest.base,
        "entries": interest.entries.iter().map(entry).collect::<Value>(),
    })
}
