//! Every transcript runs whole, byte by byte and in random cuts, and must give the same frames. Every frame decodes to
//! the encoded value. No input panics.

use super::*;
use crate::delivery::Deliveries;
use crate::event::model::{Event, EventId, Json, Payload, Registration, ServerId};
use crate::event::refusal::{EventRefusal, EventRefusalKind};
use crate::event::store::{Query, Series, SeriesOrder, ServerQuery, TimeSpan};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use crate::event::stream::store::{ConsumerRow, Contents, MissedRange, Policy, StreamLimits, StreamSettings};
use crate::event::timestamp::Timestamp;
use crate::listener::event::{EventAnswer, EventAnswerPart, EventRequest, RegisteredSession};
use crate::listener::frame::{FRAME_SUBS_MAX, LentPayload, Welcome};
use crate::listener::publish_run::PublishRunBuilder;
use crate::listener::refusal::{RefusalReason, RequestRefusal};
use crate::listener::session_request::ReceiverCondition;
use crate::listener::stream::{
    Consumers, ResetPosition, StreamAnswer, StreamEvents, StreamOperation, StreamRefusal, StreamRefusalKind,
    StreamRequest, StreamRow, Streams,
};
use crate::message::{
    Cause, Count, Delivery, DeliveryMode, Dseq, Epoch, Headers, Loss, LossScope, MESSAGE_BYTES_MAX, Message,
    MessageOrigin, NameError, PeerRef, Publisher, QuestionFailure, QueueError, Reason, SubId, Verdict,
};
use crate::rng::Rng;
use crate::seqno::Seq;
use crate::subject::{Subject, SubjectError};
use crate::time::WallTime;
use crate::wire;
use std::time::Duration;

/// MESSAGE RUN for subscription 1, up to its flags.
const RUN_HEAD: &[u8] = b"\x8c\0\0\0\x01\0\0\0\x01";

fn encoded(encode: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.to_vec()
}

fn hello() -> ClientFrame {
    ClientFrame::Hello { version: VERSION, name: "test".into() }
}

fn payload(rng: &mut Rng) -> Bytes {
    let bytes = if rng.chance(0.1) { rng.below(100_000) } else { rng.below(40) };
    (0..bytes).map(|i| i as u8).collect::<Vec<_>>().into()
}

fn message(rng: &mut Rng) -> Message {
    let headers = if rng.chance(0.5) { Headers::from_pairs([("k", "v"), ("l", "")]).unwrap() } else { Headers::new() };
    Message {
        subject: format!("a.{}", rng.below(50)).parse().unwrap(),
        reply: rng.chance(0.5).then(|| "_INBOX.00000000000000aa.1".parse().unwrap()),
        headers,
        payload: payload(rng),
        event: rng.chance(0.2),
    }
}

fn publish_run(rng: &mut Rng) -> ClientFrame {
    let (mut out, mut run) = (BytesMut::new(), PublishRunBuilder::default());
    for _ in 0..rng.between(1, 30) {
        run.push(&mut out, &format!("a.{}", rng.below(3)).parse().unwrap(), &vec![7; rng.below(200) as usize]);
    }
    ClientFrame::decode(out.freeze().slice(LENGTH_BYTES..)).unwrap()
}

fn maybe<T>(rng: &mut Rng, value: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    rng.chance(0.5).then(|| value(rng))
}

fn time(rng: &mut Rng) -> Timestamp {
    Timestamp::from_micros(rng.below(1 << 50).cast_signed() - (1 << 49)).unwrap()
}

fn event_id(rng: &mut Rng) -> EventId {
    EventId { server: ServerId(rng.next_u32()), session: rng.between(1, u64::MAX), instance: rng.between(1, u64::MAX) }
}

fn registration(rng: &mut Rng) -> Registration {
    let payload = match rng.below(3) {
        0 => None,
        1 => Some(Payload::Json(Json::from_bytes(Bytes::from_static(b"{\"v\": [1, 2]}")).unwrap())),
        _ => Some(Payload::Binary { type_name: ["", "t \u{e4}"][rng.below(2) as usize].into(), bytes: payload(rng) }),
    };
    let event_type = ["a", "a/b.c/", "\u{e4}/%"][rng.below(3) as usize].parse().unwrap();
    Registration { event_type, source_timestamp: maybe(rng, time), payload }
}

fn query(rng: &mut Rng) -> Query {
    let types =
        |rng: &mut Rng| ["*", "a/?/*", "x"][rng.below(3) as usize..].iter().map(|t| t.parse().unwrap()).collect();
    let limit = |rng: &mut Rng| rng.below(1 << 40) as usize;
    match rng.below(3) {
        0 => Query::Latest(maybe(rng, types)),
        1 => Query::Server(ServerQuery {
            server: ServerId(rng.next_u32()),
            after: maybe(rng, event_id),
            limit: maybe(rng, limit),
        }),
        _ => Query::Series(Series {
            types: maybe(rng, types),
            time: TimeSpan { from: maybe(rng, time), to: maybe(rng, time) },
            source_time: TimeSpan { from: maybe(rng, time), to: maybe(rng, time) },
            by: if rng.chance(0.5) { SeriesOrder::Time } else { SeriesOrder::SourceTime },
            is_descending: rng.chance(0.5),
            after: maybe(rng, event_id),
            limit: maybe(rng, limit),
        }),
    }
}

fn event_answer(rng: &mut Rng) -> Result<EventAnswer, EventRefusal> {
    let event = |rng: &mut Rng| {
        let Registration { event_type, source_timestamp, payload } = registration(rng);
        Event { id: event_id(rng), event_type, timestamp: time(rng), source_timestamp, payload }
    };
    match rng.below(3) {
        0 => {
            let (server, session, timestamp) = (ServerId(rng.next_u32()), rng.next_u64(), time(rng));
            Ok(EventAnswer::Registered(RegisteredSession { server, session, timestamp }))
        }
        1 => {
            let events = (0..rng.below(5)).map(|_| event(rng)).collect();
            Ok(EventAnswer::Found(EventAnswerPart { events, is_last: rng.chance(0.5), more_follows: rng.chance(0.5) }))
        }
        _ => {
            let kinds = [
                EventRefusalKind::Invalid,
                EventRefusalKind::Unavailable,
                EventRefusalKind::Full,
                EventRefusalKind::Busy,
                EventRefusalKind::Stopping,
            ];
            Err(EventRefusal { kind: kinds[rng.below(5) as usize], text: "w\u{e4}it ".repeat(rng.below(100) as usize) })
        }
    }
}

fn stream_id(rng: &mut Rng) -> StreamId {
    StreamId::from_number(rng.below(1_000_000_000_000_000_000)).unwrap()
}

fn stream_request(rng: &mut Rng) -> StreamRequest {
    let consumer = "alice b:C_1".parse().unwrap();
    let want =
        |rng: &mut Rng| ["A", "B_", "_"][rng.below(4) as usize % 3..].iter().map(|t| t.parse().unwrap()).collect();
    let json = Json::from_bytes(Bytes::from_static(b" [1.50, {}]")).unwrap();
    let operation = match rng.below(9) {
        0 => StreamOperation::List,
        1 => StreamOperation::Add { kind: "SOME_TYPE".parse().unwrap(), data: json },
        2 => StreamOperation::Poll {
            consumer,
            last: maybe(rng, stream_id),
            want: maybe(rng, want),
            events_max: rng.next_u32(),
        },
        3 => StreamOperation::Read { after: stream_id(rng), want: maybe(rng, want), events_max: rng.next_u32() },
        4 => StreamOperation::Accept(consumer, stream_id(rng)),
        5 => StreamOperation::Consumers,
        6 => StreamOperation::Register(consumer),
        7 => {
            let positions = [ResetPosition::Start, ResetPosition::End, ResetPosition::After(stream_id(rng))];
            StreamOperation::Reset(consumer, positions[rng.below(3) as usize])
        }
        _ => StreamOperation::Remove(consumer),
    };
    StreamRequest { stream: rng.chance(0.5).then(|| "main".parse().unwrap()), operation }
}

fn consumer_row(rng: &mut Rng) -> ConsumerRow {
    ConsumerRow {
        consumer: "\u{e4}:C".parse().unwrap(),
        position: stream_id(rng),
        lapsed: maybe(rng, missed),
        registered: time(rng),
        last_request: time(rng),
        lag: rng.next_u64(),
    }
}

fn missed(rng: &mut Rng) -> MissedRange {
    MissedRange { first: stream_id(rng), last: stream_id(rng), count: rng.next_u64() }
}

fn stream_event(rng: &mut Rng) -> StreamEvent {
    StreamEvent {
        id: stream_id(rng),
        kind: "A".parse().unwrap(),
        data: Json::from_bytes(Bytes::from_static(b"null")).unwrap(),
        time: time(rng),
        origin: event_id(rng),
    }
}

fn stream_row(rng: &mut Rng) -> StreamRow {
    let limits = StreamLimits {
        age: maybe(rng, |rng| Duration::from_micros(rng.below(1 << 60))),
        bytes: maybe(rng, Rng::next_u64),
        policy: if rng.chance(0.5) { Policy::Lapse } else { Policy::Block },
    };
    let types = ["*", "a/?"][rng.below(2) as usize..].iter().map(|text| text.parse().unwrap()).collect();
    StreamRow {
        settings: StreamSettings { name: "plant-1".parse().unwrap(), types, limits },
        contents: Contents { last: stream_id(rng), events: rng.next_u64(), bytes: rng.next_u64() },
        consumers: rng.next_u64(),
    }
}

fn stream_answer(rng: &mut Rng) -> Result<StreamAnswer, StreamRefusal> {
    use StreamRefusalKind as Kind;
    Ok(match rng.below(8) {
        0 => {
            let streams = (0..rng.below(4)).map(|_| stream_row(rng)).collect();
            StreamAnswer::Streams(Streams { server: ServerId(rng.next_u32()), streams })
        }
        1 => StreamAnswer::Added(stream_id(rng)),
        2 => {
            let events = (0..rng.below(5)).map(|_| stream_event(rng)).collect();
            StreamAnswer::Events(StreamEvents { after: stream_id(rng), events, covered: stream_id(rng) })
        }
        3 => {
            let rows = (0..rng.below(5)).map(|_| consumer_row(rng)).collect();
            StreamAnswer::Consumers(Consumers { rows, omitted: rng.next_u64() })
        }
        4 => StreamAnswer::Registered(maybe(rng, consumer_row)),
        5 => StreamAnswer::Position(stream_id(rng)),
        6 => StreamAnswer::Removed,
        _ => {
            let lapsed = Kind::Lapsed(missed(rng));
            let kinds = [
                Kind::Invalid,
                Kind::Unavailable,
                Kind::Busy,
                Kind::Stopping,
                Kind::NotServed,
                Kind::UnknownStream,
                Kind::NotRegistered,
                lapsed,
            ];
            return Err(StreamRefusal::new(kinds[rng.below(8) as usize], "w\u{e4}it ".repeat(rng.below(100) as usize)));
        }
    })
}

fn lent_payload(rng: &mut Rng) -> LentPayload {
    let bytes = rng.between(65_536, MESSAGE_BYTES_MAX as u64) as usize;
    LentPayload { bytes, index: rng.below(128) as u8, is_new: rng.chance(0.5) }
}

fn to_peer(rng: &mut Rng) -> ClientFrame {
    match rng.below(12) {
        11 => ClientFrame::BuffersLost,
        10 => ClientFrame::PublishBuffer {
            message: Message { event: false, payload: Bytes::new(), ..message(rng) },
            payload: lent_payload(rng),
        },
        9 => ClientFrame::Streams { id: rng.next_u64(), request: stream_request(rng) },
        8 => {
            let registrations = |rng: &mut Rng| (0..rng.below(5)).map(|_| registration(rng)).collect();
            let request = if rng.chance(0.5) {
                EventRequest::Register(registrations(rng))
            } else {
                EventRequest::Query(query(rng))
            };
            ClientFrame::Events { id: rng.next_u64(), request }
        }
        7 => {
            let condition = if rng.chance(0.5) { ReceiverCondition::Absent } else { ReceiverCondition::Present };
            let (sub, timeout_ms, subject) = (SubId(rng.next_u32()), rng.next_u32(), "a.b".parse().unwrap());
            ClientFrame::Await { sub, condition, timeout_ms, subject }
        }
        6 => publish_run(rng),
        0 => ClientFrame::Publish(Message { event: false, ..message(rng) }),
        1 => {
            let mode = [None, Some(DeliveryMode::Repair), Some(DeliveryMode::Live)][rng.below(3) as usize];
            ClientFrame::Subscribe {
                sub: SubId(rng.next_u32()),
                pattern: "a.*.>".parse().unwrap(),
                queue: rng.chance(0.5).then(|| "q".parse().unwrap()),
                mode,
                wants_discovery: rng.below(2) == 0,
            }
        }
        2 => ClientFrame::Unsubscribe { sub: SubId(rng.next_u32()) },
        3 => ClientFrame::Show { id: rng.next_u32(), query: payload(rng) },
        4 => {
            let peer = if rng.chance(0.5) { "B.test".parse().unwrap() } else { PeerRef::Epoch(Epoch::new(7).unwrap()) };
            ClientFrame::History { id: rng.next_u64(), timeout_ms: rng.next_u32(), peer, question: payload(rng) }
        }
        _ => ClientFrame::Flush { token: rng.next_u64() },
    }
}

fn subs(rng: &mut Rng) -> Vec<SubId> {
    (0..rng.between(1, 5)).map(|_| SubId(rng.next_u32())).collect()
}

fn publisher(rng: &mut Rng) -> Publisher {
    Publisher {
        name: rng.chance(0.5).then(|| "B.test".parse().unwrap()),
        epoch: Epoch::new(rng.next_u64() | 1).unwrap(),
        uid: rng.next_u32(),
    }
}

fn count(rng: &mut Rng) -> Count {
    let min = rng.below(1000);
    Count::from_bounds(min, min + rng.below(3))
}

fn delivery(rng: &mut Rng) -> Delivery {
    let verdict = match rng.below(6) {
        0 => Verdict::Start(WallTime::from_nanos(rng.next_u64())),
        1 => Verdict::First,
        2 => Verdict::Next,
        3 => Verdict::Skip(count(rng)),
        4 => Verdict::Unnumbered,
        _ => Verdict::Direct,
    };
    let seq = rng.chance(0.7).then(|| Seq::new(rng.next_u64() | 1).unwrap());
    let offset = rng.chance(0.5).then(|| rng.next_u32());
    let origin = match rng.below(3) {
        0 => None,
        1 => Some(MessageOrigin::Group),
        _ => Some(MessageOrigin::Publisher),
    };
    Delivery { offset, origin, ..Delivery::new(message(rng), publisher(rng), seq, verdict) }
}

/// Returns messages as they arrive in one datagram, all with a meta part or none.
fn message_run(rng: &mut Rng) -> Deliveries {
    let first = message(rng);
    let payload = |rng: &mut Rng| vec![1; usize::try_from(rng.below(200)).unwrap()].into();
    let messages: Vec<Message> =
        (0..rng.between(1, 30)).map(|_| Message { payload: payload(rng), ..first.clone() }).collect();
    let Delivery { publisher, verdict, offset, origin, .. } = delivery(rng);
    let mut run = Deliveries::run_of(&messages, Seq::new((7 << 32) + 1).unwrap(), publisher, verdict);
    run.set_first_offset(offset);
    run.set_origin(origin);
    run
}

fn loss(rng: &mut Rng) -> Loss {
    let what = match rng.below(4) {
        0 => LossScope::Messages {
            subject: "x.y".parse().unwrap(),
            first: Seq::new(rng.next_u64() | 1).unwrap(),
            last: Seq::new(rng.next_u64() | 1).unwrap(),
            count: count(rng),
        },
        1 => LossScope::Datagrams { first: Dseq(rng.next_u64()), last: Dseq(rng.next_u64()), messages: count(rng) },
        2 => LossScope::Tail { after: Dseq(rng.next_u64()) },
        _ => LossScope::Inbox { messages: rng.next_u64() },
    };
    let cause = match rng.below(3) {
        0 => Cause::Network,
        1 => Cause::LocalOverrun { datagrams: rng.next_u64() },
        _ => Cause::Mixed { overrun: rng.next_u64(), network: rng.next_u64() },
    };
    Loss {
        publisher: publisher(rng),
        what,
        reason: Reason::ALL[usize::try_from(rng.below(Reason::ALL.len() as u64)).unwrap()],
        cause,
        at: WallTime::from_nanos(rng.next_u64()),
    }
}

fn welcome() -> PeerFrame {
    PeerFrame::Welcome(Welcome::any())
}

/// Returns every reason of a refusal.
fn refusal_reasons() -> Vec<RefusalReason> {
    // A new reason does not compile here until the list below has it.
    let is_listed = |reason: &RefusalReason| match reason {
        RefusalReason::MessageTooLarge { .. }
        | RefusalReason::TooManySubscriptions { .. }
        | RefusalReason::Subject(_)
        | RefusalReason::PublishDenied(_)
        | RefusalReason::SubscribeDenied(_)
        | RefusalReason::QueueLive
        | RefusalReason::QueueDiscovery
        | RefusalReason::BufferLost
        | RefusalReason::Stopping => true,
    };
    let reasons = vec![
        RefusalReason::MessageTooLarge { bytes: 9, bytes_max: 8 },
        RefusalReason::TooManySubscriptions { max: 5 },
        RefusalReason::Subject("reserved".into()),
        RefusalReason::PublishDenied("cmd.stop".into()),
        RefusalReason::SubscribeDenied("cmd.>".into()),
        RefusalReason::QueueLive,
        RefusalReason::QueueDiscovery,
        RefusalReason::BufferLost,
        RefusalReason::Stopping,
    ];
    assert!(reasons.iter().all(is_listed));
    reasons
}

fn to_client(rng: &mut Rng) -> PeerFrame {
    match rng.below(15) {
        14 => PeerFrame::BuffersFreed,
        13 => {
            let (subs, mut delivery) = (subs(rng), delivery(rng));
            delivery.message.payload = Bytes::new();
            PeerFrame::MessageBuffer { subs, delivery, payload: lent_payload(rng) }
        }
        12 => PeerFrame::Streams { id: rng.next_u64(), answer: stream_answer(rng) },
        11 => PeerFrame::Events { id: rng.next_u64(), answer: event_answer(rng) },
        10 => PeerFrame::Awaited { sub: SubId(rng.next_u32()) },
        9 => PeerFrame::MessageRun { subs: subs(rng), deliveries: message_run(rng) },
        0 => PeerFrame::Subscribed { sub: SubId(rng.next_u32()) },
        1 => PeerFrame::Message { subs: subs(rng), delivery: delivery(rng) },
        2 => PeerFrame::Loss { subs: subs(rng), loss: loss(rng) },
        3 => PeerFrame::Dropped { counts: subs(rng).into_iter().map(|sub| (sub, 9)).collect() },
        4 => {
            let reasons = refusal_reasons();
            let reason = reasons[rng.below(reasons.len() as u64) as usize].clone();
            PeerFrame::Refused(RequestRefusal { sub: rng.chance(0.5).then_some(SubId(4)), reason })
        }
        5 => {
            let unanswered = [
                QuestionFailure::UnknownPeer,
                QuestionFailure::Ambiguous,
                QuestionFailure::Gone,
                QuestionFailure::Timeout,
                QuestionFailure::TooMany,
                QuestionFailure::Malformed,
            ];
            let failure = unanswered[rng.below(6) as usize];
            PeerFrame::Answered {
                id: rng.next_u64(),
                answer: if rng.chance(0.5) { Ok(payload(rng)) } else { Err(failure) },
            }
        }
        7 => {
            let publisher = if rng.chance(0.5) { Some(publisher(rng)) } else { None };
            PeerFrame::Discovered { sub: SubId(rng.next_u32()), publisher }
        }
        6 => PeerFrame::Shown { id: rng.next_u32(), answer: payload(rng) },
        _ => PeerFrame::Flushed { token: rng.next_u64() },
    }
}

/// Feeds `bytes` in pieces of the lengths that `cut` returns. Returns all frames and the fault, if any.
fn run<T>(
    mut bytes: &[u8],
    mut cut: impl FnMut() -> usize,
    mut step: impl FnMut(&[u8], &mut Vec<T>) -> Result<(), LocalFault>,
) -> (Vec<T>, Option<LocalFault>) {
    let mut frames = Vec::new();
    let mut fault = None;
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(cut().clamp(1, bytes.len()));
        bytes = rest;
        if let Err(found) = step(piece, &mut frames) {
            assert_eq!(fault.replace(found), None, "a conversation ends once");
        }
    }
    (frames, fault)
}

fn run_listener(bytes: &[u8], cut: impl FnMut() -> usize) -> (Vec<ClientFrame>, Option<LocalFault>) {
    let mut listener = PeerEndpoint::new();
    run(bytes, cut, |piece, frames| {
        listener.push(piece);
        while let Some(frame) = listener.poll_frame()? {
            frames.push(frame);
        }
        Ok(())
    })
}

fn run_caller(bytes: &[u8], cut: impl FnMut() -> usize) -> (Vec<PeerFrame>, Option<LocalFault>) {
    let mut caller = ClientEndpoint::new();
    run(bytes, cut, |piece, frames| {
        caller.push(piece);
        while let Some(frame) = caller.poll_frame()? {
            frames.push(frame);
        }
        Ok(())
    })
}

/// Runs a client's bytes whole, byte by byte and in random cuts; the results must be equal.
fn check_listener(bytes: &[u8]) -> (Vec<ClientFrame>, Option<LocalFault>) {
    let whole = run_listener(bytes, || usize::MAX);
    assert_eq!(run_listener(bytes, || 1), whole);
    let mut rng = Rng::new(bytes.len() as u64);
    assert_eq!(run_listener(bytes, || rng.below(50) as usize), whole);
    whole
}

fn check_caller(bytes: &[u8]) -> (Vec<PeerFrame>, Option<LocalFault>) {
    let whole = run_caller(bytes, || usize::MAX);
    assert_eq!(run_caller(bytes, || 1), whole);
    let mut rng = Rng::new(bytes.len() as u64);
    assert_eq!(run_caller(bytes, || rng.below(50) as usize), whole);
    whole
}

#[test]
fn encoded_frames_are_decoded_for_any_segmentation() {
    let mut rng = Rng::new(2);
    for _ in 0..10 {
        let mut sent = vec![hello()];
        sent.extend((0..40).map(|_| to_peer(&mut rng)));
        let bytes = encoded(|out| sent.iter().for_each(|frame| frame.encode(out)));
        assert_eq!(check_listener(&bytes), (sent, None));

        let mut sent = vec![welcome()];
        sent.extend((0..40).map(|_| to_client(&mut rng)));
        sent.push(PeerFrame::Bye { reason: ByeReason::Stopping, text: "stopping".into() });
        let bytes = encoded(|out| sent.iter().for_each(|frame| frame.encode(out)));
        assert_eq!(check_caller(&bytes), (sent, None));
    }
}

#[test]
fn frame_out_of_order_ends_the_conversation() {
    let flush = ClientFrame::Flush { token: 1 };
    let script = |frames: &[&ClientFrame]| encoded(|out| frames.iter().for_each(|frame| frame.encode(out)));
    let misbehaved = |violation| Some(LocalFault::ProtocolViolation(violation));
    assert_eq!(check_listener(&script(&[&flush])), (vec![], misbehaved(ProtocolViolation::NoGreeting)));
    assert_eq!(
        check_listener(&script(&[&hello(), &flush, &hello(), &flush])),
        (vec![hello(), flush.clone()], misbehaved(ProtocolViolation::SecondGreeting))
    );
    let other = ClientFrame::Hello { version: VERSION + 1, name: "new".into() };
    assert_eq!(
        check_listener(&script(&[&other, &flush])),
        (vec![], Some(LocalFault::Incompatible { peer_version: VERSION + 1 }))
    );
    let text = LocalFault::Incompatible { peer_version: VERSION + 1 }.to_string();
    assert!(text.contains(&format!("version {}", VERSION + 1)) && text.contains("install the same version"), "{text}");

    let bye = PeerFrame::Bye { reason: ByeReason::TooManyClients, text: "full".into() };
    let flushed = PeerFrame::Flushed { token: 1 };
    let script = |frames: &[&PeerFrame]| encoded(|out| frames.iter().for_each(|frame| frame.encode(out)));
    assert_eq!(check_caller(&script(&[&bye, &flushed])), (vec![bye], None));
    assert_eq!(check_caller(&script(&[&flushed])), (vec![], misbehaved(ProtocolViolation::NoGreeting)));
}

#[test]
fn malformed_frame_ends_the_conversation() {
    let framed = |body: &[u8]| {
        let mut bytes = encoded(|out| hello().encode(out));
        bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes.extend(encoded(|out| ClientFrame::Flush { token: 1 }.encode(out)));
        bytes
    };
    for (body, expected) in [
        (&b"\x7f"[..], FrameError::Kind(0x7f)),
        (b"\x81", FrameError::Kind(0x81)),
        (b"", FrameError::Short),
        (b"\x06\0\0", FrameError::Short),
        (b"\x06\0\0\0\0\0\0\0\0\0", FrameError::Trailing(1)),
        (b"\x02\x80\x01a\0\0\0\0\0", FrameError::Value("flags")),
        (b"\x02\0\x01a\0\xff\xff\xff\xff", FrameError::Short),
        (b"\x0d\0\0\0\0\0\0\0\x01a\0\0\0\0\0", FrameError::Value("payload bytes")),
        (b"\x0d\0\0\0\xff\xff\0\0\x01a\0\0\0\0\0", FrameError::Value("payload bytes")),
        (b"\x0d\0\0\x80\0\x01\0\0\x01a\0\0\0\0\0", FrameError::Value("payload bytes")),
        (b"\x0d\0\0\x01\0\0\x80\0\x01a\0\0\0\0\0", FrameError::Value("buffer")),
        (b"\x0d\0\0\x01\0\0\x7f\x02\x01a\0\0\0\0\0", FrameError::Value("flags")),
        (b"\x0d\0\0\x01\0\0\0\0\x01a\0\0\0\0\0x", FrameError::Trailing(1)),
        (b"\x0d\x01\0\x01\0\0\0\0\x01a\0\0\0\0\0", FrameError::Value("flags")),
        (b"\x02\0\x01*\0\0\0\0\0", FrameError::Subject(SubjectError::Wildcard)),
        (b"\x02\0\0\0\0\0\0\0", FrameError::Subject(SubjectError::Empty)),
        (b"\x03\0\0\0\x01\x01\xff", FrameError::Value("pattern")),
        (b"\x03\0\0\0\x01\x01a\x03", FrameError::Value("mode")),
        (b"\x03\0\0\0\x01\x01a", FrameError::Short),
        (b"\x03\0\0\0\x01\x01a\0\0", FrameError::Short),
        (b"\x03\0\0\0\x01\x01a\0\0\x03q q", FrameError::Queue(QueueError::Character(1))),
        (b"\x09\0\0\0\x01\x02\0\0\0\0\x01a", FrameError::Value("condition")),
        (b"\x09\0\0\0\x01\x01\0\0\0\0\x01*", FrameError::Subject(SubjectError::Wildcard)),
        (b"\x07\0\0\0\0\0\0\0\x01\0\0\0\x01\0", FrameError::Name(NameError::Empty)),
        (b"\x03\0\0\0\x01\x02a.", FrameError::Subject(SubjectError::EmptyToken(2))),
    ] {
        assert_eq!(check_listener(&framed(body)), (vec![hello()], Some(LocalFault::Malformed(expected))), "{body:?}");
    }
    let foreign = b"\0\0\0\x08\x01HTTP/1.";
    assert_eq!(check_listener(foreign), (vec![], Some(LocalFault::Malformed(FrameError::Value("magic")))));
    // A length beyond the limit ends the conversation at once, before the frame arrives; "GET " is such a length.
    let long = FrameError::TooLong { bytes: 0x4745_5420, bytes_max: GREETING_BYTES_MAX };
    assert_eq!(check_listener(b"GET / HTTP/1.1\r\n"), (vec![], Some(LocalFault::Malformed(long))));

    let framed = |body: &[u8]| {
        let mut bytes = encoded(|out| welcome().encode(out));
        bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes
    };
    for (body, expected) in [
        (&b"\x01"[..], FrameError::Kind(1)),
        (b"\x82\0\0\0\0", FrameError::Value("subscriptions")),
        (b"\x82\xff\xff\xff\xff\0\0\0\x01", FrameError::Short),
        (b"\x84\x10\0\0\0", FrameError::Short),
        (b"\x88\x09\0", FrameError::Value("reason")),
        (&[RUN_HEAD, b"\x80\x02\x05\0\x01a\0\x01\0"].concat(), FrameError::Value("flags")),
        (&[RUN_HEAD, b"\x60\x02\x05\0\x01a\0\x01\0"].concat(), FrameError::Value("flags")),
        (
            &[RUN_HEAD, b"\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\x05\x01a\0\0"].concat(),
            FrameError::Run(wire::DecodeError::RunEmpty),
        ),
        (
            &[RUN_HEAD, b"\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\x05\x01a\xff\xff\0\0"].concat(),
            FrameError::Run(wire::DecodeError::Truncated),
        ),
        (
            &[RUN_HEAD, b"\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\x05\x01a\0\x01\x7f"].concat(),
            FrameError::Run(wire::DecodeError::Truncated),
        ),
        (
            &[RUN_HEAD, b"\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\x05\x01a\0\x01\0\0"].concat(),
            FrameError::Run(wire::DecodeError::Trailing { record: 1, bytes: 1 }),
        ),
        (b"\x8a\0\0\0\0\0\0\0\x01\x08", FrameError::Value("status")),
        (b"\x8a\0\0\0\0\0\0\0\x01\x01\0", FrameError::Trailing(1)),
    ] {
        assert_eq!(check_caller(&framed(body)), (vec![welcome()], Some(LocalFault::Malformed(expected))), "{body:?}");
    }
}

#[test]
fn damaged_frame_never_panics() {
    let mut rng = Rng::new(3);
    for _ in 0..3000 {
        let mut bytes = encoded(|out| {
            hello().encode(out);
            (0..4).for_each(|_| to_peer(&mut rng).encode(out));
        });
        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
        bytes[at] ^= 1 << rng.below(8);
        run_listener(&bytes, || usize::MAX);
        let mut bytes = encoded(|out| {
            welcome().encode(out);
            (0..4).for_each(|_| to_client(&mut rng).encode(out));
        });
        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
        bytes[at] ^= 1 << rng.below(8);
        run_caller(&bytes, || usize::MAX);
    }
}

#[test]
fn largest_message_fits_beside_all_subscriptions() {
    let long: Subject = "s".repeat(255).parse().unwrap();
    let body = crate::message::MESSAGE_BYTES_MAX - 255;
    let mut rng = Rng::new(1);
    let delivery = Delivery {
        message: Message { reply: Some(long.clone()), ..Message::new(long, vec![7u8; body]) },
        publisher: publisher(&mut rng),
        seq: Seq::new(1),
        offset: Some(7),
        verdict: Verdict::Skip(Count::Between { min: 0, max: 9 }),
        repaired: true,
        replayed: false,
        origin: None,
    };
    let subs = (0..FRAME_SUBS_MAX as u32).map(SubId).collect();
    let sent = vec![welcome(), PeerFrame::Message { subs, delivery }];
    let bytes = encoded(|out| sent.iter().for_each(|frame| frame.encode(out)));
    assert_eq!(run_caller(&bytes, || 65_536), (sent, None));
}
