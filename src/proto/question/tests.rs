//! Round trips of questions and answers, and every limit of an answer.

use super::answer::EVENT_HEAD_BYTES;
use super::*;
use crate::message::{Dseq, Epoch, Message};
use crate::offset::{HistorySpan, PollCase};
use crate::proto::history::{History, HistorySettings, Selection};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant, WallTime};
use bytes::Bytes;
use std::time::Duration;

fn history(total_bytes_max: usize) -> History {
    let time = Duration::from_secs(60);
    let settings =
        HistorySettings { count_max: 10_000, bytes_max: 64 << 20, time, total_bytes_max, overrides: Vec::new() };
    History::new(&settings, 1)
}

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

fn seq(count: u64) -> Seq {
    Seq::new((3 << 35) + count).unwrap()
}

fn poll(name: &str, offset: u32, count: u16) -> Poll {
    Poll { subject: subject(name), offset, count }
}

/// Records `count` messages of `bytes` each, whose offsets begin with `first`.
fn record(history: &mut History, name: &str, first: u32, count: u32, bytes: usize) {
    for step in 0..count {
        let now = ClockReading {
            instant: Instant::from_nanos(u64::from(step)),
            wall: WallTime::from_nanos(9 + u64::from(step)),
        };
        let message = Message::new(subject(name), vec![step as u8; bytes]);
        history.record(now, seq(1 + u64::from(step)), first.wrapping_add(step), &message);
    }
}

fn query(history: &History, question: &Question) -> Vec<Answer> {
    let (epoch, high) = (Epoch::new(5).unwrap(), Dseq(77));
    let parts = answer(history, epoch, high, &question.encode());
    let answers: Vec<Answer> = parts.iter().map(|part| Answer::decode(part).unwrap()).collect();
    for (index, (answer, part)) in answers.iter().zip(&parts).enumerate() {
        assert_eq!((answer.epoch, answer.high), (epoch, high));
        assert_eq!(answer.encode(), *part, "encoding restores the bytes");
        assert_eq!((usize::from(answer.part), answer.last), (index, index + 1 == parts.len()));
        let events = match &answer.content {
            AnswerContent::Poll { answers, .. } => answers.iter().map(|answer| answer.events.len()).sum(),
            AnswerContent::Fetch { answers, .. } => answers.iter().map(|answer| answer.events.len()).sum(),
            _ => 0,
        };
        assert!(part.len() <= PART_BYTES_MAX || events == 1, "{} bytes, {events} events", part.len());
    }
    answers
}

/// Returns the answers to polls of all parts.
fn polled(history: &History, polls: Vec<Poll>) -> Vec<PollAnswer> {
    let mut all = Vec::new();
    for answer in query(history, &Question::Poll(polls)) {
        let AnswerContent::Poll { first, answers } = answer.content else { panic!("an answer to polls") };
        assert_eq!(usize::from(first), all.len());
        all.extend(answers);
    }
    all
}

/// Proves: W90
#[test]
fn encoded_questions_decode_to_the_same() {
    let selection = |newest, age: Option<u64>| Selection { newest, age: age.map(Duration::from_nanos) };
    let list = |pattern: &str, selection, from, limit| Question::List {
        pattern: pattern.parse().unwrap(),
        selection,
        from,
        limit,
    };
    let fetch = |name, first, last| Fetch { subject: subject(name), first: seq(first), last: seq(last) };
    for question in [
        Question::Poll(vec![poll("a", 0, 1)]),
        Question::Poll(vec![poll("a.b", u32::MAX, u16::MAX), poll("a.b", 7, 2), poll("c", 1, 1), poll("a.b", 1, 1)]),
        Question::Fetch(vec![fetch("a", 1, 1), fetch("a", 3, 9)]),
        list("a.*.>", selection(None, None), 0, 1),
        list(">", selection(Some(3), Some(5)), 9, u16::MAX),
    ] {
        let payload = question.encode();
        assert_eq!(Question::decode(&payload), Ok(question));
        for cut in 0..payload.len() {
            assert!(Question::decode(&payload.slice(..cut)).is_err(), "cut to {cut} bytes");
        }
        assert!(Question::decode(&[&payload[..], &[0]].concat().into()).is_err(), "one byte too many");
    }
}

/// Proves: W90
#[test]
fn malformed_questions_are_refused_with_a_reason() {
    for (bytes, expected) in [
        (&b""[..], Refused::Malformed),
        (b"\x00", Refused::Unknown),
        (b"\x81\x00", Refused::Unknown),
        // No items; no preceding subject; no events requested; fewer items than the count; too many items.
        (b"\x01\x00\x00", Refused::Malformed),
        (b"\x01\x00\x01\x00\x00\x00\x00\x00\x00\x01", Refused::Malformed),
        (b"\x01\x00\x01\x01a\x00\x00\x00\x00\x00\x00", Refused::Malformed),
        (b"\x01\x10\x00\x01a\x00\x00\x00\x00\x00\x01", Refused::Malformed),
        (b"\x01\x10\x01", Refused::TooMany),
        // A wildcard in a subject; a number whose count is 0; a range that ends before it begins.
        (b"\x01\x00\x01\x01*\x00\x00\x00\x00\x00\x01", Refused::Malformed),
        (b"\x02\x00\x01\x01a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", Refused::Malformed),
        (b"\x02\x00\x01\x01a\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01", Refused::Malformed),
        // No pattern; no subjects requested.
        (b"\x03\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", Refused::Malformed),
        (b"\x03\x01>\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Refused::Malformed),
    ] {
        let (epoch, question) = (Epoch::new(5).unwrap(), Bytes::copy_from_slice(bytes));
        let parts = answer(&history(1 << 20), epoch, Dseq(0), &question);
        let [part] = &parts[..] else { panic!("one part") };
        let answer = Answer::decode(part).unwrap();
        assert_eq!(answer.content, AnswerContent::Refused(expected), "{bytes:x?}");
        assert!(answer.last);
    }
    let settings =
        HistorySettings { count_max: 0, bytes_max: 9, time: Duration::ZERO, total_bytes_max: 9, overrides: Vec::new() };
    let answers = query(&History::new(&settings, 1), &Question::Poll(vec![poll("a", 0, 1)]));
    assert_eq!(answers[0].content, AnswerContent::Refused(Refused::Off));
}

/// Proves: W93, W98
#[test]
fn poll_answers_agree_with_the_history() {
    let mut history = history(1 << 20);
    record(&mut history, "a", 10, 5, 3);
    let polls = vec![poll("a", 9, 1), poll("a", 11, 9), poll("a", 14, 9), poll("a", 0, 9), poll("none", 0, 1)];
    let answers = polled(&history, polls);
    let outcomes: Vec<(PollCase, Vec<u32>, bool)> = answers
        .iter()
        .map(|answer| (answer.case, answer.events.iter().map(|event| event.offset).collect(), answer.more))
        .collect();
    assert_eq!(
        outcomes,
        [
            (PollCase::Successor, vec![10], true),
            (PollCase::Successor, vec![12, 13, 14], false),
            (PollCase::NoEvent, vec![], false),
            (PollCase::Recovery, vec![], false),
            (PollCase::NoEvent, vec![], false),
        ]
    );
    let span = HistorySpan { first: 10, last: 14, first_seq: seq(1), last_seq: seq(5) };
    assert!(answers[..4].iter().all(|answer| answer.span == Some(span)) && answers[4].span.is_none());
    let retained = history.retained(b"a").unwrap();
    let events: Vec<_> = (2..5).map(|index| retained.event_at(index).event(&subject("a"))).collect();
    assert_eq!(answers[1].events, events);
}

/// Questions of 8 bytes get at most one event of each subject, many to a part.
/// Proves: W97
#[test]
fn long_answers_are_split_without_loss() {
    let mut history = history(64 << 20);
    record(&mut history, "a.b.c", 0, 4000, 100);
    let polls: Vec<Poll> = (0..4000).map(|n| poll("a.b.c", u32::wrapping_sub(n, 1), 1)).collect();
    let answers = polled(&history, polls);
    assert_eq!(answers.len(), 4000);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!((answer.events[0].offset as usize, answer.more), (n, n != 3999));
    }
    // One question for everything gets the events that fit one part, and the flag that there are more.
    let [answer] = &polled(&history, vec![poll("a.b.c", u32::MAX, u16::MAX)])[..] else { panic!("one answer") };
    let bytes = answer.events.len() * (EVENT_HEAD_BYTES + 1 + 100);
    assert!(answer.more && PART_BYTES_MAX - 200 < bytes && bytes < PART_BYTES_MAX, "{bytes} bytes");
}

/// Proves: W97
#[test]
fn oversized_event_gets_its_own_part() {
    let mut history = history(64 << 20);
    record(&mut history, "big", 0, 20, 200_000);
    record(&mut history, "small", 0, 20, 2);
    let polls = |count: u32| {
        let pair = |n| [poll("small", u32::wrapping_sub(n, 1), 1), poll("big", u32::wrapping_sub(n, 1), 9)];
        (0..count).flat_map(pair).collect::<Vec<Poll>>()
    };
    let answers = polled(&history, polls(2));
    let lens: Vec<usize> = answers.iter().map(|answer| answer.events.len()).collect();
    assert_eq!(lens, [1, 1, 1, 1]);
    // The sixth large event exceeds 1 MiB; the client polls the rest again.
    assert_eq!(polled(&history, polls(20)).len(), 12);
}

/// Proves: W94
#[test]
fn fetch_returns_retained_events_of_the_range() {
    let mut history = history(1 << 20);
    record(&mut history, "a", 10, 5, 3);
    let fetch = |name, first, last| Fetch { subject: subject(name), first: seq(first), last: seq(last) };
    let question = Question::Fetch(vec![
        fetch("a", 2, 4),
        fetch("a", 5, 900),
        fetch("a", 6, 900),
        fetch("none", 1, 1),
        Fetch { subject: subject("a"), first: Seq::new(1).unwrap(), last: Seq::new(u64::MAX).unwrap() },
        // The range ends with the frame before.
        Fetch { subject: subject("a"), first: Seq::new(1).unwrap(), last: Seq::new((3 << 35) - 1).unwrap() },
    ]);
    let answers = query(&history, &question);
    let AnswerContent::Fetch { first: 0, answers } = &answers[0].content else { panic!("an answer to fetches") };
    let counts: Vec<Vec<u64>> =
        answers.iter().map(|answer| answer.events.iter().map(|event| event.seq.count()).collect()).collect();
    assert_eq!(counts, [vec![2, 3, 4], vec![5], vec![], vec![], vec![1, 2, 3, 4, 5], vec![]]);
    assert!(answers[0].span.is_some() && answers[3].span.is_none());
    assert!(answers.iter().all(|answer| !answer.more));
}

/// Proves: W95
#[test]
fn listing_resumes_at_the_returned_position() {
    let mut history = history(64 << 20);
    for n in 0..6000 {
        record(&mut history, &format!("a.{n}"), n, 2, 1);
    }
    let (mut from, mut seen, mut questions) = (0, Vec::new(), 0);
    loop {
        let question =
            Question::List { pattern: "a.*".parse().unwrap(), selection: Selection::default(), from, limit: 2500 };
        questions += 1;
        let answers = query(&history, &question);
        let mut following = None;
        for answer in answers {
            let AnswerContent::List { listed, next } = answer.content else { panic!("a list") };
            assert!(next.is_none() || answer.last);
            seen.extend(listed.into_iter().map(|listed| listed.subject));
            following = next;
        }
        let Some(next) = following else { break };
        from = next;
    }
    assert_eq!((seen.len(), questions), (6000, 3));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6000, "each once");
}

/// Returns the bytes of an example of docs/wire.md, section 13.3.
fn example(name: &str) -> Bytes {
    let page = include_str!("../../../docs/wire.md");
    let (_, rest) = page.split_once(&format!("```payload {name}\n")).expect("an example");
    let (block, _) = rest.split_once("```").expect("an end");
    let digits: String = block.lines().flat_map(|line| line.split('#').next().unwrap().split_whitespace()).collect();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Proves: W90
#[test]
fn specification_examples_encode_byte_for_byte() {
    let question = Question::Poll(vec![poll("a.b", u32::MAX, 16), poll("a.b", 9, 1)]);
    assert_eq!(question.encode(), example("question"));
    let mut history = history(1 << 20);
    let now = ClockReading { instant: Instant::ZERO, wall: WallTime::from_nanos(0x1706_6b71_0b70_6c00) };
    let seq = Seq::new(0x5c19_adc0_0000_0001).unwrap();
    history.record(now, seq, 0, &Message::new(subject("a.b"), "hi"));
    let answer_to = |question: &Bytes| answer(&history, Epoch::new(0x0102_0304_0506_0708).unwrap(), Dseq(7), question);
    assert_eq!(answer_to(&question.encode()), [example("answer")]);
    let (first, last) = (Seq::new(0x5c19_adc0_0000_0001).unwrap(), Seq::new(0x5c19_adc0_0000_0003).unwrap());
    let fetch = Question::Fetch(vec![Fetch { subject: subject("a.b"), first, last }]);
    let selection = Selection { newest: Some(1), age: None };
    let list = Question::List { pattern: "a.*".parse().unwrap(), selection, from: 0, limit: 10 };
    for (name, question) in [("fetch", fetch.encode()), ("list", list.encode())] {
        assert_eq!(question, example(&format!("{name}-question")), "{name}");
        assert_eq!(answer_to(&question), [example(&format!("{name}-answer"))], "{name}");
    }
    for name in ["unknown", "malformed"] {
        assert_eq!(answer_to(&example(&format!("{name}-question"))), [example(&format!("{name}-refused"))], "{name}");
    }
}

#[test]
fn report_questions_have_bounded_queries() {
    let query = Bytes::from(vec![b'x'; QUERY_BYTES_MAX]);
    let question = Question::Report(query.clone());
    assert_eq!(Question::decode(&question.encode()), Ok(question.clone()));
    assert_eq!(report_query(&question.encode()), Some(query));
    let claimed = |bytes: u16, rest: usize| {
        let mut payload = vec![0x04];
        payload.extend(bytes.to_be_bytes());
        payload.resize(3 + rest, b'x');
        Question::decode(&Bytes::from(payload))
    };
    assert_eq!(claimed(0, 0), Err(HistoryDecodeError::Empty));
    let too_long = QUERY_BYTES_MAX + 1;
    assert!(claimed(too_long as u16, too_long).is_err());
    assert!(claimed(4, 3).is_err() && claimed(4, 5).is_err());
    assert_eq!(report_query(&Question::Poll(vec![poll("a", 0, 1)]).encode()), None);
}

#[test]
fn reports_and_their_refusals_decode_to_the_same() {
    let (epoch, high) = (Epoch::new(5).unwrap(), Dseq(77));
    for (report, sizes) in [(vec![], vec![0]), (vec![7; 2 * PART_BYTES_MAX], vec![PART_BYTES_MAX; 2])] {
        let parts = report_parts(epoch, high, Ok(&report));
        let answers: Vec<Answer> = parts.iter().map(|part| Answer::decode(part).unwrap()).collect();
        let found: Vec<usize> = answers
            .iter()
            .map(|answer| match &answer.content {
                AnswerContent::Report(bytes) => bytes.len(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, sizes);
        assert!(answers.iter().zip(&parts).all(|(answer, part)| answer.encode() == *part));
        assert!(answers.last().unwrap().last);
    }
    for reason in [Refused::NoReports, Refused::Busy] {
        let parts = report_parts(epoch, high, Err(reason));
        assert_eq!(Answer::decode(&parts[0]).unwrap().content, AnswerContent::Refused(reason));
    }
}
