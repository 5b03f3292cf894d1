//! Target `history`: payloads of questions and answers, and a history with small limits that is used at random.

use super::script::Script;
use crate::message::{Dseq, Epoch, Message};
use crate::offset::PollCase;
use crate::proto::history::{History, HistoryRule, HistorySettings, Selection};
use crate::proto::question::{self, Answer, AnswerContent, PART_BYTES_MAX, Poll, Question};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant, WallTime};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes by which a segment of the log, and buffers that double, may exceed the limit.
const GROWTH_BYTES: usize = 64 * 1024;

/// Runs the target. The first byte chooses the kind of the others: a question, a part of an answer, or operations.
pub fn history(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    match script.u8() % 3 {
        0 => check_question(&filled(), &Bytes::copy_from_slice(script.take(bytes.len()))),
        1 => check_answer(&Bytes::copy_from_slice(script.take(bytes.len()))),
        _ => check_operations(&mut script),
    }
}

/// Returns a history with some messages of three subjects.
fn filled() -> History {
    let settings = HistorySettings {
        count_max: 20,
        bytes_max: 1 << 20,
        time: Duration::from_secs(60),
        total_bytes_max: 1 << 20,
        overrides: Vec::new(),
    };
    let mut history = History::new(&settings, 1);
    for n in 0..40_u32 {
        let name = ["a", "a.b", "c.d.e"][n as usize % 3].parse().expect("a subject");
        let step = n / 3;
        let payload = vec![n as u8; if n == 30 { 2 * PART_BYTES_MAX } else { n as usize }];
        let seq = Seq::new((5 << 35) + u64::from(step) + 1).expect("not 0");
        history.record(ClockReading::default(), seq, u32::MAX.wrapping_add(step), &Message::new(name, payload));
    }
    history
}

/// Checks that every question has an answer whose parts can be read. Only a part with a single event may be too
/// large.
fn check_question(history: &History, payload: &Bytes) {
    if let Ok(question) = Question::decode(payload) {
        assert_eq!(Question::decode(&question.encode()), Ok(question));
    }
    let epoch = Epoch::new(1).expect("not 0");
    let parts = question::answer(history, epoch, Dseq(7), payload);
    for (index, part) in parts.iter().enumerate() {
        let answer = Answer::decode(part).expect("an encoded answer decodes");
        assert_eq!((usize::from(answer.part), answer.last), (index, index + 1 == parts.len()));
        let events: usize = match &answer.content {
            AnswerContent::Poll { answers, .. } => answers.iter().map(|answer| answer.events.len()).sum(),
            AnswerContent::Fetch { answers, .. } => answers.iter().map(|answer| answer.events.len()).sum(),
            AnswerContent::List { .. } | AnswerContent::Report(_) | AnswerContent::Refused(_) => 0,
        };
        assert!(part.len() <= PART_BYTES_MAX || events == 1, "{} bytes", part.len());
    }
}

/// Checks that a poll with the offset of the newest event of a subject returns no event, if the history is on.
fn check_newest(history: &History, subject: Subject, offset: u32, seq: Seq) {
    let question = Question::Poll(vec![Poll { subject, offset, count: 1 }]);
    let parts = question::answer(history, Epoch::new(1).expect("not 0"), Dseq(7), &question.encode());
    match Answer::decode(&parts[0]).expect("an encoded answer decodes").content {
        AnswerContent::Refused(_) if history.is_off() => {}
        AnswerContent::Poll { answers, .. } => {
            assert_eq!(answers[0].case, PollCase::NoEvent, "the newest event is the last one");
            let span = answers[0].span;
            assert!(span.is_none_or(|span| (span.last, span.last_seq) == (offset, seq)), "{span:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Checks that the decoded events are no larger than the answer.
fn check_answer(payload: &Bytes) {
    let Ok(answer) = Answer::decode(payload) else { return };
    let events = match answer.content {
        AnswerContent::Poll { answers, .. } => answers.into_iter().flat_map(|answer| answer.events).collect(),
        AnswerContent::Fetch { answers, .. } => answers.into_iter().flat_map(|answer| answer.events).collect(),
        AnswerContent::List { .. } | AnswerContent::Report(_) | AnswerContent::Refused(_) => Vec::new(),
    };
    let body_bytes: usize = events.iter().map(|event| event.message.body_bytes()).sum();
    assert!(body_bytes <= payload.len(), "messages do not grow by decoding");
}

/// Runs records, time and questions against a history with small limits.
fn check_operations(script: &mut Script<'_>) {
    let (count, other) = (u32::from(script.u8()) + 2, u32::from(script.u8()) + 2);
    let settings = HistorySettings {
        count_max: count,
        bytes_max: usize::from(script.u16()),
        time: Duration::from_millis(script.u16().into()),
        total_bytes_max: 8 * usize::from(script.u16()),
        overrides: vec![HistoryRule {
            pattern: "s.1.>".parse().expect("a pattern"),
            count_max: script.choose(&[0, other]),
            bytes_max: usize::from(script.u16()),
            time: Duration::from_millis(script.u16().into()),
        }],
    };
    let mut history = History::new(&settings, script.u8().into());
    let mut streams: BTreeMap<Subject, (u64, u32)> = BTreeMap::new();
    let mut millis = 0;
    while !script.is_done() {
        let operation = script.u8();
        millis += u64::from(operation >> 4);
        let instant = Instant::from_nanos(millis * 1_000_000);
        let now = ClockReading { instant, wall: WallTime::from_nanos(millis) };
        match operation % 8 {
            0 => history.on_tick(instant),
            1 => {
                let payload_bytes = usize::from(script.u8());
                check_question(&history, &Bytes::copy_from_slice(script.take(payload_bytes)));
            }
            2 => {
                let listing = history.list(&">".parse().expect("a pattern"), Selection::default(), 0, usize::MAX);
                assert!(listing.listed.len() as u64 <= history.totals().subjects);
            }
            kind => {
                let name: Subject = format!("s.{}.{}", script.u8() % 3, script.u8()).parse().expect("a subject");
                let (count, offset) = streams.entry(name.clone()).or_insert((0, 0));
                *count += 1;
                *offset = if kind == 3 { script.u16().into() } else { offset.wrapping_add(1) };
                let payload = vec![0; usize::from(script.u8()) << (kind - 3)];
                let seq = Seq::new(*count).expect("not 0");
                history.record(now, seq, *offset, &Message::new(name.clone(), payload));
                check_newest(&history, name, *offset, seq);
            }
        }
        assert!(history.bytes() <= settings.total_bytes_max + GROWTH_BYTES, "{} bytes", history.bytes());
    }
}
