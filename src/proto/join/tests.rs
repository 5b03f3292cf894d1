//! Joins against real histories, with random events between them.

use super::*;
use crate::message::{Cause, Count, Dseq, LossScope, Message, Verdict};
use crate::offset::PollCase;
use crate::proto::history::{History, HistorySettings};
use crate::proto::question::answer;
use crate::rng::Rng;
use crate::seqno::{Frame, Seq};
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

fn publisher(number: u64) -> Publisher {
    Publisher { name: None, epoch: Epoch::new(number).unwrap(), uid: number as u32 }
}

fn subject(index: u64) -> Subject {
    format!("a.s{index}").parse().unwrap()
}

fn number(count: u64) -> Seq {
    Seq::from_parts(Frame::new(7).unwrap(), count).unwrap()
}

/// A publisher: its history, the number of its messages on each subject, and its live events.
struct Source {
    publisher: Publisher,
    history: History,
    counts: Vec<u64>,
    bases: Vec<u32>,
    instant: Instant,
    high: u64,
    live: VecDeque<JoinEvent>,
    /// Number of live messages of each subject lost since the last one, and whether there was one.
    gaps: Vec<(u64, bool)>,
}

impl Source {
    fn new(rng: &mut Rng, number: u64, subjects: u64) -> Source {
        let settings = HistorySettings {
            count_max: rng.between(2, 12) as u32,
            bytes_max: 1 << 20,
            time: Duration::from_secs(3600),
            total_bytes_max: 1 << 20,
            overrides: Vec::new(),
        };
        Source {
            publisher: publisher(number),
            history: History::new(&settings, rng.next_u64()),
            counts: vec![0; subjects as usize],
            bases: (0..subjects).map(|_| rng.next_u32()).collect(),
            instant: Instant::from_nanos(1_000_000),
            high: 0,
            live: VecDeque::new(),
            gaps: vec![(0, false); subjects as usize],
        }
    }

    /// Publishes a message that arrives live, is lost, or was in flight before.
    fn publish(&mut self, rng: &mut Rng, is_live: bool, loss: u64) {
        let index = rng.below(self.counts.len() as u64) as usize;
        self.counts[index] += 1;
        self.high += 1;
        let (seq, subject) = (number(self.counts[index]), subject(index as u64));
        let offset = self.bases[index].wrapping_add(self.counts[index] as u32);
        let message = Message::new(subject.clone(), self.counts[index].to_string());
        let now = ClockReading { instant: self.instant, wall: WallTime::EPOCH };
        self.history.record(now, seq, offset, &message);
        if !is_live {
            return;
        }
        let (lost, has_arrived) = &mut self.gaps[index];
        if rng.below(100) < loss {
            *lost += 1;
            return;
        }
        let missing = std::mem::take(lost);
        // To the live stream the first received message of a subject has no predecessor.
        let verdict = match (std::mem::replace(has_arrived, true), missing) {
            (false, _) => Verdict::First,
            (true, 0) => Verdict::Next,
            (true, missing) => Verdict::Skip(Count::Exact(missing)),
        };
        let publisher = self.publisher.clone();
        if let Verdict::Skip(count) = verdict {
            let (first, last) = (number(seq.count() - missing), number(seq.count() - 1));
            let what = LossScope::Messages { subject: subject.clone(), first, last, count };
            let (reason, cause, at) = (Reason::Deadline, Cause::Network, WallTime::EPOCH);
            self.live.push_back(JoinEvent::Loss(Loss { publisher: publisher.clone(), what, reason, cause, at }));
        }
        let (seq, repaired, replayed) = (Some(seq), false, false);
        self.live.push_back(JoinEvent::Message(Delivery {
            message,
            publisher,
            seq,
            offset: None,
            verdict,
            repaired,
            replayed,
            origin: None,
        }));
    }
}

/// Messages that a subscriber got of one subject: each number once, as a message or as lost.
#[derive(Default)]
struct Got {
    last: Option<u64>,
    replayed: u64,
}

impl Got {
    fn enter(&mut self, what: &str, first: u64, last: u64) {
        if let Some(before) = self.last {
            assert_eq!(first, before + 1, "{what} {first}..{last} after {before}");
        }
        self.last = Some(last);
    }
}

#[derive(Default)]
struct Reader {
    got: BTreeMap<(Epoch, Subject), Got>,
    joined: Option<Joined>,
    lost: u64,
    /// Numbers that arrived live, and numbers that were reported as lost.
    live: BTreeSet<(Epoch, Subject, u64)>,
    reported: BTreeSet<(Epoch, Subject, u64)>,
}

impl Reader {
    /// Passes the live events of a publisher to the join.
    fn pass_live_events(&mut self, join: &mut Join, source: &mut Source) {
        for event in source.live.drain(..) {
            match event {
                JoinEvent::Message(delivery) => {
                    let (epoch, subject) = (delivery.publisher.epoch, delivery.message.subject.clone());
                    self.live.insert((epoch, subject, delivery.seq.unwrap().count()));
                    join.on_message(WallTime::EPOCH, delivery);
                }
                JoinEvent::Loss(loss) => join.on_loss(loss),
                JoinEvent::Joined(_) => unreachable!(),
            }
            if !join.is_joining() {
                self.take_events(join);
            }
        }
    }

    fn take_events(&mut self, join: &mut Join) {
        while let Some(event) = join.poll_event() {
            match event {
                JoinEvent::Message(delivery) => {
                    let seq = delivery.seq.unwrap().count();
                    assert_eq!(delivery.message.payload, seq.to_string());
                    let got = self.got.entry((delivery.publisher.epoch, delivery.message.subject)).or_default();
                    assert!(delivery.verdict != Verdict::First || got.last.is_none(), "{seq} after {:?}", got.last);
                    got.replayed += u64::from(delivery.replayed);
                    got.enter("message", seq, seq);
                }
                JoinEvent::Loss(loss) => {
                    let LossScope::Messages { subject, first, last, count } = loss.what else { panic!("{loss:?}") };
                    assert_eq!(count, Count::Exact(last.count() + 1 - first.count()));
                    self.lost += count.min();
                    let numbers = first.count()..=last.count();
                    self.reported.extend(numbers.map(|n| (loss.publisher.epoch, subject.clone(), n)));
                    let got = self.got.entry((loss.publisher.epoch, subject)).or_default();
                    got.enter("loss", first.count(), last.count());
                }
                JoinEvent::Joined(joined) => assert!(self.joined.replace(joined).is_none(), "reported once"),
            }
        }
    }
}

/// Subscribers join in the middle, with messages in flight, live losses, expiring history, and unanswered questions.
/// Each number arrives once, from the start of the history to the last one, or is reported as lost.
/// Proves: W96
#[test]
fn each_message_arrives_once_or_is_reported_lost() {
    let (mut replayed, mut live, mut lost) = (0, 0, 0);
    // Each seed draws other publishers, patterns, selections and losses.
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let subjects = rng.between(1, 5);
        let mut sources: Vec<Source> =
            (0..rng.between(1, 3)).map(|index| Source::new(&mut rng, 10 + index, subjects)).collect();
        let loss = rng.below(40);
        for source in &mut sources {
            let before = rng.below(60);
            let under_way = rng.below(10);
            (0..before).for_each(|_| source.publish(&mut rng, false, 0));
            (0..under_way).for_each(|_| source.publish(&mut rng, true, loss));
        }
        let selection = match rng.below(3) {
            0 => Selection::default(),
            _ => Selection { newest: Some(rng.between(1, 8) as u32), age: None },
        };
        let patterns: Vec<Pattern> = match rng.below(3) {
            0 => vec!["a.>".parse().unwrap()],
            1 => vec!["a.*".parse().unwrap(), "a.s0".parse().unwrap()],
            _ => vec!["a.s0".parse().unwrap(), "a.>".parse().unwrap()],
        };
        let mut join = Join::new(patterns, Some(selection));
        let mut reader = Reader::default();
        sources.iter().for_each(|source| join.on_publisher(Some(source.publisher.clone())));
        join.on_publisher(None);
        let mut requested: VecDeque<(Epoch, VecDeque<Bytes>)> = VecDeque::new();
        let mut steps = 0;
        while join.is_joining() {
            steps += 1;
            assert!(steps < 10_000, "{seed}");
            for source in &mut sources {
                (0..rng.below(4)).for_each(|_| source.publish(&mut rng, true, loss));
            }
            while let Some((epoch, question)) = join.poll_question() {
                if rng.below(10) == 0 {
                    join.requeue(epoch); // the outbox has no room for the question now
                    break;
                }
                let source = sources.iter().find(|source| source.publisher.epoch == epoch).unwrap();
                let mut parts = answer(&source.history, epoch, Dseq(source.high), &question.encode());
                if rng.below(20) == 0 {
                    let lost = rng.below(parts.len() as u64) as usize;
                    parts.remove(lost);
                }
                requested.push_back((epoch, parts.into()));
            }
            if let Some((epoch, mut parts)) = requested.pop_front() {
                for source in &mut sources {
                    reader.pass_live_events(&mut join, source);
                }
                let part = parts.pop_front();
                let part = part.map_or(Err(QuestionFailure::Timeout), |part| Ok(Answer::decode(&part).unwrap()));
                if join.on_answer(WallTime::EPOCH, epoch, part) {
                    requested.push_front((epoch, parts));
                }
            }
            reader.take_events(&mut join);
        }
        assert!(reader.joined.is_some() && join.baselines() == reader.joined, "{seed}");
        for source in &mut sources {
            // The last message of each subject arrives, so that earlier losses become known.
            (0..200).for_each(|_| source.publish(&mut rng, true, 0));
            reader.pass_live_events(&mut join, source);
            join.on_idle(WallTime::EPOCH);
            reader.take_events(&mut join);
            for (index, count) in source.counts.iter().enumerate().filter(|(_, count)| 0 < **count) {
                let got = &reader.got[&(source.publisher.epoch, subject(index as u64))];
                assert_eq!(got.last, Some(*count), "{seed}");
                replayed += got.replayed;
            }
        }
        for key in &reader.live {
            assert!(!reader.reported.contains(key), "{seed}: {key:?} came live and was reported as lost");
        }
        live += reader.live.len();
        lost += reader.lost;
    }
    assert!(1_250 < replayed && 12_500 < live && 250 < lost, "{replayed} {live} {lost}");
}

/// Returns a join with one publisher, whose first question has been sent.
fn begun(selection: Option<Selection>) -> (Join, Publisher) {
    let mut join = Join::new(vec!["a.>".parse().unwrap()], selection);
    let source = publisher(3);
    join.on_publisher(Some(source.clone()));
    join.on_publisher(None);
    assert!(matches!(join.poll_question(), Some((_, Question::List { .. }))));
    assert!(join.poll_question().is_none() && join.is_joining());
    (join, source)
}

fn only_baseline(join: &mut Join) -> Baseline {
    let Some(JoinEvent::Joined(mut joined)) = join.poll_event() else { panic!("the subscription has begun") };
    assert!(!join.is_joining() && joined.baselines.len() == 1);
    joined.baselines.remove(0)
}

fn answered(from: &Publisher, content: AnswerContent) -> Answer {
    Answer { epoch: from.epoch, high: Dseq(42), part: 0, last: true, content }
}

#[test]
fn confirmed_start_sends_one_question_and_replays_nothing() {
    let (mut join, from) = begun(None);
    assert_eq!(join.baselines(), None);
    let listed = AnswerContent::List { listed: Vec::new(), next: Some(9) };
    join.on_answer(WallTime::EPOCH, from.epoch, Ok(answered(&from, listed)));
    let baseline = only_baseline(&mut join);
    assert_eq!(baseline, Baseline { publisher: from, after: Some(Dseq(42)), replayed: 0, unjoined: None });
    // The join sends no question to a publisher discovered later, whose messages are owed from the first contact on.
    join.on_publisher(Some(publisher(4)));
    assert!(!join.is_joining() && join.poll_question().is_none());
}

#[test]
fn publisher_without_history_confirms_the_start() {
    for (selection, unjoined) in [(None, None), (Some(Selection::default()), Some(JoinFailure::Refused(Refused::Off)))]
    {
        let (mut join, from) = begun(selection);
        join.on_answer(WallTime::EPOCH, from.epoch, Ok(answered(&from, AnswerContent::Refused(Refused::Off))));
        let baseline = only_baseline(&mut join);
        assert_eq!((baseline.after, baseline.unjoined), (Some(Dseq(42)), unjoined));
    }
}

#[test]
fn unanswered_question_is_repeated_then_reported() {
    let (mut join, from) = begun(Some(Selection::default()));
    for _ in 1..ATTEMPTS {
        join.on_answer(WallTime::EPOCH, from.epoch, Err(QuestionFailure::Timeout));
        assert!(join.is_joining() && join.poll_question().is_some());
    }
    join.on_answer(WallTime::EPOCH, from.epoch, Err(QuestionFailure::Timeout));
    let baseline = only_baseline(&mut join);
    assert_eq!((baseline.after, baseline.unjoined), (None, Some(JoinFailure::Unanswered(QuestionFailure::Timeout))));
    let (mut join, from) = begun(Some(Selection::default()));
    join.on_answer(WallTime::EPOCH, from.epoch, Err(QuestionFailure::Gone));
    assert_eq!(only_baseline(&mut join).unjoined, Some(JoinFailure::Unanswered(QuestionFailure::Gone)));
}

#[test]
fn listed_message_without_answer_is_reported_lost() {
    let (mut join, from) = begun(Some(Selection::default()));
    let span = crate::offset::HistorySpan { first: u32::MAX, last: 3, first_seq: number(10), last_seq: number(14) };
    let listed = AnswerContent::List { listed: vec![ListedSubject { subject: subject(0), span }], next: None };
    join.on_answer(WallTime::EPOCH, from.epoch, Ok(answered(&from, listed)));
    let Some((_, Question::Poll(polls))) = join.poll_question() else { panic!("its events are polled") };
    assert_eq!((polls[0].offset, polls[0].count), (u32::MAX - 1, 5));
    join.on_answer(WallTime::EPOCH, from.epoch, Err(QuestionFailure::Gone));
    assert_eq!(only_baseline(&mut join).replayed, 0);
    assert_eq!(join.poll_event(), None, "the messages may still arrive live");
    join.on_idle(WallTime::EPOCH);
    let Some(JoinEvent::Loss(loss)) = join.poll_event() else { panic!("the loss is reported") };
    let what = LossScope::Messages { subject: subject(0), first: number(10), last: number(14), count: Count::Exact(5) };
    assert_eq!((loss.what, loss.reason), (what, Reason::PublisherGone));
}

#[test]
fn mismatched_answer_leaves_publisher_unjoined() {
    let other =
        PollAnswer { subject: subject(9), case: PollCase::NoEvent, span: None, events: Vec::new(), more: false };
    for content in [
        AnswerContent::Fetch { first: 0, answers: Vec::new() },
        AnswerContent::Poll { first: 0, answers: vec![other] },
        AnswerContent::List { listed: Vec::new(), next: Some(0) },
    ] {
        let (mut join, from) = begun(Some(Selection::default()));
        join.on_answer(WallTime::EPOCH, from.epoch, Ok(answered(&from, content)));
        assert_eq!(only_baseline(&mut join).unjoined, Some(JoinFailure::Unanswered(QuestionFailure::Malformed)));
        // A stray answer does not disturb the join afterwards either.
        join.on_answer(WallTime::EPOCH, from.epoch, Err(QuestionFailure::Timeout));
        assert_eq!(join.poll_event(), None);
    }
}

#[test]
fn subject_without_history_is_delivered_unchanged() {
    let (mut join, from) = begun(Some(Selection::default()));
    let listed = AnswerContent::List { listed: Vec::new(), next: None };
    join.on_answer(WallTime::EPOCH, from.epoch, Ok(answered(&from, listed)));
    only_baseline(&mut join);
    let message = Message::new(subject(1), "x");
    let (publisher, seq, verdict) = (from, Some(number(5)), Verdict::First);
    let delivery = Delivery::new(message, publisher, seq, verdict);
    join.on_message(WallTime::EPOCH, delivery.clone());
    assert_eq!(join.poll_event(), Some(JoinEvent::Message(delivery)));
}
