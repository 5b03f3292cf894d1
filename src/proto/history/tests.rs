//! The history against a slow model that keeps a list for each subject, against its limits, and through the polls of
//! seed 000.

use super::*;
use crate::message::{Dseq, Epoch, Headers};
use crate::offset::{HistorySpan, PollCase};
use crate::proto::question::{self, Answer, AnswerContent, Fetch, Poll, PollAnswer, Question};
use crate::rng::Rng;
use crate::subject::Subject;
use crate::time::WallTime;
use crate::wire::RETAINED_BYTES_MIN;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const SECOND: u64 = 1_000_000_000;

fn settings(count_max: u32, bytes_max: usize, secs: u64, total_bytes_max: usize) -> HistorySettings {
    HistorySettings { count_max, bytes_max, time: Duration::from_secs(secs), total_bytes_max, overrides: Vec::new() }
}

fn rule(pattern: &str, count_max: u32, bytes_max: usize, secs: u64) -> HistoryRule {
    HistoryRule { pattern: pattern.parse().unwrap(), count_max, bytes_max, time: Duration::from_secs(secs) }
}

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

fn at(nanos: u64) -> ClockReading {
    ClockReading { instant: Instant::from_nanos(nanos), wall: WallTime::from_nanos(1_700_000_000 * SECOND + nanos) }
}

fn seq(frame: u64, count: u64) -> Seq {
    Seq::new((frame << 35) + count).unwrap()
}

/// Returns a message whose content names it.
fn message(name: &str, text: &str) -> Message {
    Message::new(subject(name), text.to_owned())
}

/// Records `count` messages of one subject from offset `first` on; the content is the offset.
fn record(history: &mut History, name: &str, first: u32, count: u32) {
    for step in 0..count {
        let offset = first.wrapping_add(step);
        history.record(at(0), seq(1, 1 + u64::from(step)), offset, &message(name, &offset.to_string()));
    }
}

/// Returns the parts of the answer to a question, as clients read them.
fn query(history: &History, question: &Question) -> Vec<AnswerContent> {
    let parts = question::answer(history, Epoch::new(5).unwrap(), Dseq(1), &question.encode());
    parts.iter().map(|part| Answer::decode(part).unwrap().content).collect()
}

/// Returns the answer to a poll with offset `n` for up to `count` events.
fn poll_many(history: &History, name: &str, n: u32, count: u16) -> PollAnswer {
    let poll = Poll { subject: subject(name), offset: n, count };
    match &query(history, &Question::Poll(vec![poll]))[..] {
        [AnswerContent::Poll { answers, .. }] => answers[0].clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns the case of a poll with offset `n`, the retained span, and the offset of the returned event.
fn poll(history: &History, name: &str, n: u32) -> (PollCase, Option<HistorySpan>, Option<u32>) {
    let answer = poll_many(history, name, n, 1);
    (answer.case, answer.span, answer.events.first().map(|event| event.offset))
}

#[test]
fn poll_returns_successor_no_event_or_recovery() {
    let mut history = History::new(&settings(3, 1 << 20, 60, 1 << 20), 1);
    assert_eq!(poll(&history, "a.b", 0), (PollCase::NoEvent, None, None), "an empty history has no event");
    record(&mut history, "a.b", u32::MAX - 1, 5);
    // The retained events are 0, 1, 2.
    let span = Some(HistorySpan { first: 0, last: 2, first_seq: seq(1, 3), last_seq: seq(1, 5) });
    for (n, expected) in [(u32::MAX, 0), (0, 1), (1, 2)] {
        let answer = poll_many(&history, "a.b", n, 1);
        let [event] = &answer.events[..] else { panic!("case 1 for {n}") };
        assert_eq!((answer.case, answer.span, event.offset), (PollCase::Successor, span, expected));
        assert_eq!(event.message.payload, Bytes::from(expected.to_string()));
        assert_eq!(event.seq, seq(1, 3 + u64::from(expected)));
    }
    assert_eq!(poll(&history, "a.b", 2), (PollCase::NoEvent, span, None));
    for n in [3, 4, u32::MAX - 1, 1 << 31] {
        assert_eq!(poll(&history, "a.b", n), (PollCase::Recovery, span, None), "{n}");
    }
    assert_eq!(poll(&history, "a.c", 0), (PollCase::NoEvent, None, None), "nor has an unknown subject");
}

#[test]
fn disabled_history_retains_no_events() {
    let mut history = History::new(&settings(0, 1 << 20, 60, 1 << 20), 1);
    record(&mut history, "a", 0, 9);
    assert!(history.is_off());
    assert_eq!((history.totals().events, history.retained(b"a").is_none()), (0, true));
}

/// Returns the number of events left of five with these limits.
fn count_retained_of_five(limits: &HistorySettings, after: u64) -> u64 {
    let mut history = History::new(limits, 1);
    for offset in 0..5 {
        let message = Message::new(subject("a"), vec![0; 500 - EVENT_BYTES]);
        history.record(at(0), seq(1, 1 + u64::from(offset)), offset, &message);
    }
    history.on_tick(at(after * SECOND).instant);
    history.totals().events
}

#[test]
fn history_count_limits_retained_events() {
    for (history_count, retained) in [(3, 3), (10, 5)] {
        assert_eq!(count_retained_of_five(&settings(history_count, 1 << 20, 60, 1 << 20), 1), retained);
    }
}

#[test]
fn history_subject_size_limits_retained_events() {
    for (history_subject_size, retained) in [(1000, 2), (1 << 20, 5)] {
        assert_eq!(count_retained_of_five(&settings(10, history_subject_size, 60, 1 << 20), 1), retained);
    }
}

#[test]
fn events_are_retained_for_the_history_time() {
    for (history_time, retained) in [(60, 0), (120, 5)] {
        assert_eq!(count_retained_of_five(&settings(10, 1 << 20, history_time, 1 << 20), 61), retained);
    }
}

#[test]
fn history_size_limits_all_subjects_together() {
    for (history_size, retains_all) in [(64 << 10, false), (64 << 20, true)] {
        let mut history = History::new(&settings(10_000, 1 << 20, 60, history_size), 1);
        record(&mut history, "a", 0, 2000);
        assert_eq!(history.totals().events == 2000, retains_all, "{history_size} bytes");
        assert_ne!(history.totals().events, 0);
    }
}

#[test]
fn first_matching_history_rule_applies() {
    let mut bounds = settings(4, 1 << 20, 60, 1 << 20);
    bounds.overrides = vec![rule("off.>", 0, 1 << 20, 60), rule("a.*", 2, 1 << 20, 60), rule("a.b", 9, 1 << 20, 60)];
    let mut history = History::new(&bounds, 1);
    for (name, retained) in [("off.x", 0), ("a.b", 2), ("c", 4), ("off.x", 0), ("off", 4)] {
        record(&mut history, name, 7, 20);
        let count = history.retained(name.as_bytes()).map_or(0, |retained| retained.len());
        assert_eq!(count, retained, "{name}");
    }
    // A history that is off for all but some subjects.
    let mut bounds = settings(0, 1 << 20, 60, 1 << 20);
    bounds.overrides = vec![rule("a.*", 2, 1 << 20, 60)];
    let mut history = History::new(&bounds, 1);
    record(&mut history, "b", 0, 3);
    record(&mut history, "a.b", 0, 3);
    assert_eq!((history.is_off(), history.totals().subjects), (false, 1));
}

#[test]
fn recreated_subject_loses_its_earlier_events() {
    let mut history = History::new(&settings(10, 1 << 20, 60, 1 << 20), 1);
    record(&mut history, "a", 100, 5);
    history.record(at(0), seq(9, 1), 5000, &message("a", "new"));
    let span = HistorySpan { first: 5000, last: 5000, first_seq: seq(9, 1), last_seq: seq(9, 1) };
    assert_eq!(poll(&history, "a", 104), (PollCase::Recovery, Some(span), None));
    assert_eq!(history.totals().events, 1);
}

#[test]
fn oversized_message_clears_the_subject_history() {
    let mut history = History::new(&settings(10, 1000, 60, 1 << 20), 1);
    record(&mut history, "a", 0, 5);
    history.record(at(0), seq(1, 6), 5, &Message::new(subject("a"), vec![0; 1001 - EVENT_BYTES]));
    assert_eq!(poll(&history, "a", 4), (PollCase::NoEvent, None, None));
    let totals = history.totals();
    assert_eq!((totals.subjects, totals.events, totals.too_large, totals.replaced), (0, 0, 1, 5));
    history.record(at(0), seq(1, 7), 6, &Message::new(subject("a"), vec![0; 1000 - EVENT_BYTES]));
    assert_eq!(history.retained(b"a").map(|retained| retained.len()), Some(1));
}

#[test]
fn history_returns_the_published_messages() {
    let mut history = History::new(&settings(10, 1 << 20, 60, 1 << 20), 1);
    let full = Message {
        subject: subject("a"),
        reply: Some(subject("_INBOX.1")),
        headers: Headers::from_pairs([("k", "v")]).unwrap(),
        payload: Bytes::from_static(b"\0payload"),
        event: true,
    };
    let bare = Message::new(subject("a"), Bytes::new());
    history.record(at(5), seq(3, 1), 7, &full);
    history.record(at(6), seq(3, 2), 8, &bare);
    let PollAnswer { events, more, .. } = poll_many(&history, "a", 6, 9);
    let event = |seq, offset, nanos, message: &Message| HistoryEvent {
        seq,
        offset,
        time: at(nanos).wall,
        message: message.clone(),
    };
    assert_eq!((events, more), (vec![event(seq(3, 1), 7, 5, &full), event(seq(3, 2), 8, 6, &bare)], false));
}

#[test]
fn batches_are_bounded_and_report_remaining_events() {
    let mut history = History::new(&settings(100, 1 << 20, 60, 1 << 20), 1);
    record(&mut history, "a", 10, 20);
    for (n, count_max, count, more) in [
        (9, 5, 5, true),
        (9, 20, 20, false),
        (9, 99, 20, false),
        (28, 99, 1, false),
        (29, 99, 0, false),
        (5, 99, 0, false),
    ] {
        let answer = poll_many(&history, "a", n, count_max);
        assert_eq!((answer.events.len(), answer.more), (count, more), "{n} {count_max}");
        let offsets: Vec<u32> = answer.events.iter().map(|event| event.offset).collect();
        assert_eq!(offsets, (n + 1..).take(count).collect::<Vec<_>>());
    }
    let by_seq = |first, last| {
        let fetch = Fetch { subject: subject("a"), first: seq(1, first), last: seq(1, last) };
        match &query(&history, &Question::Fetch(vec![fetch]))[..] {
            [AnswerContent::Fetch { answers, .. }] => answers[0].events.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((by_seq(1, 20), by_seq(3, 5), by_seq(20, 99), by_seq(21, 99)), (20, 3, 1, 0));
}

#[test]
fn expired_events_release_their_table_memory() {
    let mut bounds = settings(100, 1 << 20, 60, 1 << 20);
    bounds.overrides = vec![rule("short", 100, 1 << 20, 10)];
    let mut history = History::new(&bounds, 1);
    let empty_bytes = history.bytes();
    for step in 0..30_u32 {
        for name in ["a", "short"] {
            let now = at(u64::from(step) * SECOND);
            history.record(now, seq(1, 1 + u64::from(step)), step, &message(name, "x"));
        }
    }
    let count = |history: &History, name: &str| history.retained(name.as_bytes()).map_or(0, |retained| retained.len());
    assert_eq!((count(&history, "a"), count(&history, "short")), (30, 11), "those of the last ten seconds");
    history.on_tick(at(35 * SECOND).instant);
    assert_eq!((count(&history, "a"), count(&history, "short")), (30, 5));
    history.on_tick(at(69 * SECOND).instant);
    assert_eq!((count(&history, "a"), count(&history, "short")), (21, 0));
    assert_eq!(poll(&history, "short", 29), (PollCase::NoEvent, None, None), "too old is gone");
    let selection = Selection { newest: None, age: Some(Duration::from_secs(45)) };
    let span = history.retained(b"a").and_then(|retained| retained.select(selection)).unwrap();
    assert_eq!((span.first, span.last), (24, 29));
    history.on_tick(at(200 * SECOND).instant);
    assert_eq!((history.totals().events, history.totals().subjects), (0, 0));
    assert!(history.bytes() < empty_bytes + 16 * 1024, "{} bytes are left", history.bytes());
}

/// Proves: W95
#[test]
fn paged_listing_returns_every_subject_once() {
    let mut history = History::new(&settings(5, 1 << 20, 60, 8 << 20), 1);
    for n in 0..9000 {
        record(&mut history, &format!("{}.{n}", ["a", "b"][n % 2]), 3, 1 + n as u32 % 7);
    }
    for (pattern, newest, limit, expected) in
        [("a.*", None, 100, 4500), (">", Some(2), 9999, 9000), ("b.17", None, 1, 1), ("b.16", None, 1, 0)]
    {
        let pattern: Pattern = pattern.parse().unwrap();
        let mut seen = BTreeSet::new();
        let mut from = 0;
        loop {
            let listing = history.list(&pattern, Selection { newest, age: None }, from, limit);
            assert!(listing.listed.len() <= limit);
            for listed in listing.listed {
                let count = 1 + listed.subject.as_str()[2..].parse::<u32>().unwrap() % 7;
                let retained = count.min(5).min(newest.unwrap_or(5));
                assert_eq!((listed.span.first, listed.span.last), (3 + count - retained, 2 + count));
                assert_eq!(listed.span.first_seq, seq(1, u64::from(1 + count - retained)));
                assert!(seen.insert(listed.subject), "once");
            }
            let Some(next) = listing.next else { break };
            from = next;
        }
        assert_eq!(seen.len(), expected, "{pattern}");
    }
    let count = history.totals().subjects;
    let (rows, omitted) = history.rows(&">".parse().unwrap(), 3);
    assert_eq!(omitted, count - 3);
    let names: Vec<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(names, ["a.0", "a.10", "a.100"]);
    assert_eq!((rows[0].count, rows[2].count), (1, 3));
    let (rows, omitted) = history.rows(&"a.10".parse().unwrap(), 3);
    assert_eq!(
        (rows.len(), rows[0].count, omitted),
        (1, rows[0].span.last.wrapping_sub(rows[0].span.first) as u64 + 1, 0)
    );
}

/// A list for each subject; only the limits of subjects, not that of all bytes.
#[derive(Default)]
struct Twin {
    lists: BTreeMap<String, Vec<(Seq, u32, Instant, Message)>>,
}

impl Twin {
    fn record(&mut self, now: Instant, limits: HistoryLimits, seq: Seq, offset: u32, message: &Message) {
        let list = self.lists.entry(message.subject.to_string()).or_default();
        list.retain(|(_, _, instant, _)| now <= *instant + limits.time);
        if list.last().is_some_and(|(_, last, ..)| last.wrapping_add(1) != offset) {
            list.clear();
        }
        list.push((seq, offset, now, message.clone()));
        let bytes = |message: &Message| EVENT_BYTES + message.body_bytes();
        while limits.count_max < list.len()
            || limits.bytes_max < list.iter().map(|(_, _, _, message)| bytes(message)).sum()
        {
            list.remove(0);
        }
    }
}

/// The retained events equal those of the model. Once the limit of all bytes is reached, they are the newest part of
/// those over all subjects.
///
/// Proves: W92
#[test]
fn history_agrees_with_its_reference_model() {
    // About half of the seeds have a tight limit, and each one has 4,000 steps.
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let is_tight = rng.chance(0.5);
        let total = if is_tight { rng.between(60_000, 400_000) as usize } else { 64 << 20 };
        let mut bounds =
            settings(rng.between(2, 60) as u32, rng.between(200, 20_000) as usize, rng.between(1, 30), total);
        bounds.overrides =
            vec![rule("off.>", 0, 999, 9), rule("s.*", 3, 5000, 2), rule("t.1", 4000, 1 << 20, rng.between(1, 60))];
        let mut history = History::new(&bounds, rng.next_u64());
        // A small history refers to datagrams only here.
        history.has_references |= 250_000 <= total;
        let mut model = Twin::default();
        let mut streams: BTreeMap<String, (u64, u32)> = BTreeMap::new();
        let mut slots: BTreeMap<String, u32> = BTreeMap::new();
        let mut nanos = 0;
        let mut open = Vec::new();
        for step in 0..4000 {
            let mut is_full = false;
            let context = format!("seed {seed} step {step}");
            nanos += rng.below(SECOND / 200);
            if rng.chance(0.0005) {
                nanos += rng.below(40 * SECOND);
            }
            let spread = [2, 20, 2000][rng.below(3) as usize];
            let name = format!("{}.{}", ["s", "t", "u", "off"][rng.below(4) as usize], rng.below(spread));
            if rng.chance(0.7) {
                let (count, offset) = streams.entry(name.clone()).or_insert_with(|| (0, rng.next_u32()));
                let first = *count + 1;
                *offset = if rng.chance(0.01) { rng.next_u32() } else { offset.wrapping_add(1) };
                let mut message = || {
                    let bytes = [0, 10, 100, rng.below(6000)][rng.below(4) as usize];
                    Message::new(subject(&name), vec![step as u8; bytes as usize])
                };
                // Some messages are published together.
                let mut messages = vec![message()];
                if step % 5 == 0 {
                    messages.extend((0..step / 5 % 90).map(|_| message()));
                } else {
                    messages[0].reply = rng.chance(0.2).then(|| subject("r.r"));
                    messages[0].event = rng.chance(0.2);
                }
                let rule = history.patterns.iter().position(|pattern| pattern.matches_text(name.as_bytes()));
                let limits = history.limits[rule.map_or(0, |rule| rule + 1)];
                let now = at(nanos);
                let entries_at = open.len();
                messages.iter().for_each(|message| entry::put(&mut open, message.into()));
                let is_long = RETAINED_BYTES_MIN <= open.len();
                let datagram_location = (is_long && rng.chance(0.9)).then_some(entries_at);
                let evicted = history.totals().evicted;
                if let [message] = &messages[..] {
                    // The slot hint is absent, an earlier one, or arbitrary.
                    let slot = [None, slots.get(&name).copied(), Some(rng.below(300) as u32)][rng.below(3) as usize];
                    let key = SubjectRunKey::from(&message.subject);
                    let start = RunStart { now, seq: seq(1, first), offset: *offset, datagram_location };
                    let slot = history.record_in(key, slot, start, message.into());
                    slots.extend(slot.map(|slot| (name.clone(), slot)));
                } else {
                    let key = SubjectRunKey::from(&messages[0].subject);
                    let start = RunStart { now, seq: seq(1, first), offset: *offset, datagram_location };
                    history.record_run(key, start, messages.len(), &open[entries_at..]);
                }
                for (index, message) in messages.iter().enumerate() {
                    *offset = offset.wrapping_add(u32::from(0 < index));
                    *count += 1;
                    let largest = limits.bytes_max.min(total / SHARE);
                    if largest < EVENT_BYTES + message.body_bytes() {
                        model.lists.remove(&name);
                    } else if limits.count_max != 0 {
                        model.record(now.instant, limits, seq(1, *count), *offset, message);
                    }
                }
                is_full = evicted != history.totals().evicted;
            } else {
                history.on_tick(at(nanos).instant);
            }
            // The peer attaches the open datagram once it is sealed, and before each time that it reads the history.
            let is_sealed = rng.chance(0.1) || 30_000 <= open.len();
            let is_read = rng.chance(0.3);
            let evicted = history.totals().evicted;
            if is_sealed || is_read && RETAINED_BYTES_MIN <= open.len() {
                history.attach(&Bytes::copy_from_slice(&open));
            }
            is_full |= evicted != history.totals().evicted;
            assert!(!is_full || total / 2 <= history.bytes(), "{context}: {} of {total} bytes", history.bytes());
            if is_sealed {
                open = vec![0; rng.below(50) as usize];
            }
            assert!(history.bytes() <= total + total / 10, "{context}: {} of {total} bytes", history.bytes());
            if history.awaits_datagram() {
                continue;
            }
            check_subject(&history, &model, &name, is_tight, &context);
            if rng.chance(0.005) {
                for name in model.lists.keys() {
                    check_subject(&history, &model, name, is_tight, &context);
                }
                assert_oldest_first(&history, &model);
                assert_consistent(&history);
            }
        }
        assert!(!is_tight || history.totals().evicted != 0, "seed {seed}: the limit was never reached");
    }
}

fn check_subject(history: &History, model: &Twin, name: &str, is_tight: bool, context: &str) {
    let rule = history.patterns.iter().position(|pattern| pattern.matches(&subject(name)));
    let limits = history.limits[rule.map_or(0, |rule| rule + 1)];
    let list = model.lists.get(name).map_or(&[][..], |list| list);
    let young: Vec<_> = list.iter().filter(|(_, _, instant, _)| history.now <= *instant + limits.time).collect();
    let retained = history.retained(name.as_bytes());
    let count = retained.map_or(0, |retained| retained.len());
    assert!(count == young.len() || is_tight && count < young.len(), "{context} {name}: {count} of {}", young.len());
    let Some(retained) = retained else { return };
    let expected = &young[young.len() - count..];
    for (index, (seq, offset, _, message)) in expected.iter().enumerate() {
        let event = retained.event_at(index).event(&message.subject);
        assert_eq!((event.seq, event.offset, &event.message), (*seq, *offset, message), "{context} {name}");
    }
    let (first, last) = (expected[0].1, expected[count - 1].1);
    assert_eq!((retained.span.first, retained.span.last), (first, last), "{context} {name}");
    for n in [first.wrapping_sub(2), first.wrapping_sub(1), first, last, last.wrapping_add(1)] {
        let present = |n: u32| expected.iter().any(|(_, offset, ..)| *offset == n);
        let (case, offset) = match (present(n), present(n.wrapping_add(1))) {
            (_, true) => (PollCase::Successor, Some(n.wrapping_add(1))),
            (true, false) => (PollCase::NoEvent, None),
            (false, false) => (PollCase::Recovery, None),
        };
        assert_eq!(poll(history, name, n), (case, Some(retained.span), offset), "{context} {name} {n}");
    }
}

/// Checks that no missing event is newer than any retained one.
fn assert_oldest_first(history: &History, model: &Twin) {
    let (mut missing, mut retained) = (Instant::ZERO, Instant::from_nanos(u64::MAX));
    for (name, list) in &model.lists {
        let id = history.subjects.find(history.subjects.hash(name.as_bytes()), name.as_bytes());
        let count = id.map_or(0, |id| history.subjects.slot(id).len());
        let gone = list.len().saturating_sub(count);
        missing = missing.max(list[..gone].last().map_or(Instant::ZERO, |(_, _, instant, _)| *instant));
        retained = retained.min(list.get(gone).map_or(retained, |(_, _, instant, _)| *instant));
    }
    assert!(missing <= retained, "{missing:?} {retained:?}");
}

/// Checks that the tables agree with each other.
fn assert_consistent(history: &History) {
    let slots = || history.subjects.iter();
    assert_eq!(slots().count(), history.subjects.len());
    assert_eq!(slots().map(|slot| slot.len() as u64).sum::<u64>(), history.totals.events);
    let mut last = Instant::ZERO;
    let mut live = 0;
    for (location, record) in history.log.records() {
        assert!(last <= record.instant, "the order of time holds over the whole log");
        last = record.instant;
        let is_live = history.subjects.get(record.slot).is_some_and(|slot| slot.holds(record.offset, location));
        live += if is_live { u64::from(record.count) } else { 0 };
    }
    assert_eq!(live, history.totals.events);
    for slot in slots() {
        let mut counted = 0;
        for (index, run) in slot.runs().iter().enumerate() {
            let (record, _) = history.log.record(run.location);
            assert_eq!(
                (run.bytes, run.content_bytes),
                (record.bytes, record.content_bytes),
                "a run repeats its record"
            );
            assert_eq!(slot.count_of(index), usize::from(record.count));
            counted += record.counted_bytes();
        }
        assert_eq!(slot.bytes, counted, "a subject counts the bytes of its events");
    }
    assert_eq!(history.log.bytes(), history.log.allocated_bytes());
    let [expected, awaiting] = history.log.awaiting_segments();
    assert_eq!(awaiting, expected);
    assert_eq!(history.subjects.bytes(), history.subjects.allocated_bytes());
}

/// Returns messages of one subject whose entries fill a long datagram behind `start` other bytes, and that datagram.
fn long_datagram(start: usize, count: usize, payload_bytes: usize) -> (Vec<Message>, Bytes) {
    let messages: Vec<Message> =
        (0..count).map(|index| message("a", &index.to_string().repeat(payload_bytes))).collect();
    let mut datagram = vec![0; start];
    messages.iter().for_each(|message| entry::put(&mut datagram, message.into()));
    (messages, Bytes::from(datagram))
}

#[test]
fn long_records_refer_to_their_datagram() {
    let mut history = History::new(&settings(100, 1 << 20, 60, 4 << 20), 1);
    let (messages, datagram) = long_datagram(80, 8, 1000);
    let key = SubjectRunKey::from(&messages[0].subject);
    let start = RunStart { now: at(0), seq: seq(1, 1), offset: 0, datagram_location: Some(80) };
    history.record_run(key, start, messages.len(), &datagram[80..]);
    history.attach(&datagram);
    let retained = history.retained(b"a").unwrap();
    let memory = datagram.as_ptr_range();
    for (index, message) in messages.iter().enumerate() {
        let payload = retained.event_at(index).payload;
        assert!(payload == message.payload && memory.contains(&payload.as_ptr()), "{index}");
    }
    assert!(datagram.len() < history.log.bytes(), "the history counts the datagram");
    assert_consistent(&history);
    history.on_tick(at(100 * SECOND).instant);
    assert!(datagram.is_unique() && history.totals().events == 0, "expired events keep no datagram");
    assert_consistent(&history);
}

/// Publishes `count` datagrams of messages of one subject, and returns the history.
fn publish_datagrams(total: usize, datagram_bytes: usize, payload_bytes: usize, count: usize) -> History {
    let mut history = History::new(&settings(1 << 20, 1 << 30, 60, total), 1);
    let mut published = 0;
    for _ in 0..count {
        let mut datagram = vec![0; 80];
        let message = Message::new(subject("a"), vec![7; payload_bytes]);
        while datagram.len() + entry::bytes_of((&message).into()) <= datagram_bytes {
            let from = datagram.len();
            entry::put(&mut datagram, (&message).into());
            let datagram_location = (RETAINED_BYTES_MIN <= datagram.len()).then_some(from);
            let start =
                RunStart { now: at(0), seq: seq(1, published + 1), offset: published as u32, datagram_location };
            history.record_run(SubjectRunKey::from(&message.subject), start, 1, &datagram[from..]);
            published += 1;
        }
        history.attach(&Bytes::from(datagram));
        assert!(history.bytes() <= total);
    }
    let retained = history.retained(b"a").expect("the newest are retained");
    assert_eq!(u64::from(retained.span.last) + 1, published);
    assert_eq!(retained.event_at(retained.len() - 1).payload, [7].repeat(payload_bytes));
    assert_consistent(&history);
    history
}

#[test]
fn full_history_retains_messages_of_long_datagrams() {
    for total in [64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20] {
        for datagram_bytes in [8972, 32_600, 65_507] {
            for payload_bytes in [300, 1024] {
                let history = publish_datagrams(total, datagram_bytes, payload_bytes, 2 * total / datagram_bytes + 2);
                let bytes = history.log.live_bytes();
                assert!(total / 3 <= bytes, "{bytes} of {total}, {datagram_bytes} {payload_bytes}");
                assert_ne!(history.totals().evicted, 0);
            }
        }
    }
}

#[test]
fn segments_without_references_get_no_datagram() {
    let mut history = History::new(&settings(1000, 1 << 20, 60, 4 << 20), 1);
    let (messages, datagram) = long_datagram(6000, 1, 1000);
    let start = RunStart { now: at(0), seq: seq(1, 1), offset: 0, datagram_location: Some(6000) };
    history.record_in(SubjectRunKey::from(&messages[0].subject), None, start, (&messages[0]).into());
    // Copied messages fill other segments before the datagram is sealed.
    for step in 0..400 {
        history.record(at(0), seq(1, 1 + step), step as u32, &message("b", &"x".repeat(200)));
    }
    assert_eq!(history.log.awaiting_segments(), [1, 1]);
    let bytes = history.bytes();
    history.attach(&datagram);
    assert!(history.bytes() < bytes + 2 * datagram.len(), "the datagram counts once");
    assert_eq!(history.retained(b"a").unwrap().event_at(0).payload, messages[0].payload);
    assert_consistent(&history);
}

#[test]
fn few_events_do_not_keep_their_datagram() {
    let mut history = History::new(&settings(100, 1 << 20, 60, 4 << 20), 1);
    let (messages, datagram) = long_datagram(60_000, 1, 1000);
    let start = RunStart { now: at(0), seq: seq(1, 1), offset: 0, datagram_location: Some(60_000) };
    history.record_in(SubjectRunKey::from(&messages[0].subject), None, start, (&messages[0]).into());
    history.attach(&datagram);
    assert!(!datagram.is_unique(), "the history refers to it");
    // Other events fill the history.
    for step in 0..9000 {
        if !datagram.is_unique() {
            history.record(at(1), seq(1, 1), 0, &message(&format!("b.{step}"), &"x".repeat(400)));
        }
    }
    assert!(datagram.is_unique(), "its event was copied");
    assert_eq!(history.retained(b"a").unwrap().event_at(0).payload, messages[0].payload);
    assert_eq!(history.totals().evicted, 0);
    assert_consistent(&history);
}
