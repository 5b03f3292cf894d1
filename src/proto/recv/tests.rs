//! Streams with faults, received twice: as in production, and with all buffered items judged again each time.

use super::proven_loss::count_of;
use super::*;
use crate::message::{ClientId, DeliveryMode, Epoch, Message, SubId, Target};
use crate::proto::continuity::{Skip, UnprovenLoss};
use crate::proto::interest::InterestTable;
use crate::proto::ledger::UnexplainedMessages;
use crate::proto::list_pools::ListPools;
use crate::proto::loss::LossCounters;
use crate::proto::mutant::Mutants;
use crate::proto::peer::tests::settings;
use crate::proto::send::{Origin, SendStream};
use crate::proto::stats::Counters;
use crate::proto::window::{Numbering, PubWindow, SubWindow};
use crate::proto::{Settings, WindowSettings};
use crate::rng::Rng;
use crate::seqno::{Frame, Seq};
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, WallTime};
use crate::wire::{self, Entry, Manifest};
use bytes::Bytes;
use std::time::Duration;

impl RecvStream {
    /// Breaks the ledger, as a bug would.
    pub(crate) fn break_ledger(&mut self) {
        self.ledger.break_states();
    }

    /// Breaks the reorder buffer.
    pub(crate) fn break_reorder_buffer(&mut self) {
        self.reorder_buffer.break_bytes();
    }
}

/// A filled gap releases the same items, in the same order, as judging all buffered items again would.
///
/// Proves: W83
#[test]
fn release_agrees_with_judging_all_buffered_items() {
    let mut seen = Seen::default();
    // The totals at the end show that 200 streams cover all cases.
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let datagrams = stream(&mut rng);
        let [mut receiver, mut reference] = [Receiver::new(seed), Receiver::new(seed)];
        for (millis, input) in inputs(&mut rng, &datagrams) {
            receiver.apply_and_fetch(millis, &input, &datagrams);
            reference.recv.reorder_buffer.judge_all_again();
            reference.apply_and_fetch(millis, &input, &datagrams);
            reference.recv.reorder_buffer.judge_all_again();
            reference.with(millis, |recv, ctx, out| recv.release(ctx, out));
            let outcomes = std::mem::take(&mut receiver.outcomes);
            assert_eq!(outcomes, std::mem::take(&mut reference.outcomes), "seed {seed}, {millis} ms: {input:?}");
            assert_eq!(receiver.recv.ledger.states(), reference.recv.ledger.states(), "seed {seed}, {millis} ms");
            assert_eq!(receiver.recv.buffered_bytes(), reference.recv.buffered_bytes(), "seed {seed}, {millis} ms");
            receiver.recv.assert_invariants();
            seen.add(&receiver, &outcomes);
        }
        assert_eq!(
            (receiver.recv.reorder_buffer.is_empty(), receiver.counters.inconsistencies),
            (true, 0),
            "seed {seed}"
        );
    }
    // The streams cover these cases.
    assert!(5_000 < seen.delivered && 300 < seen.lost && 100 < seen.unverified && 100 < seen.fetched, "{seen:?}");
    assert!(1_000 < seen.overtook && 20 < seen.abandoned && 30 < seen.buffered_most && 25 < seen.large, "{seen:?}");
}

fn send_stream() -> SendStream {
    SendStream::new(None, &Settings { datagram_bytes_max: 576, ..settings("A.pub") })
}

/// A rebuilt datagram counts from the discovery of its gap, however old the last received datagram is.
#[test]
fn rebuilt_message_reaches_subscriptions_at_gap_discovery() {
    let settings = settings("A.pub");
    let mut window = PubWindow::new(settings.pub_window, 40, 1);
    let (mut send, mut sealed) = (send_stream(), Vec::new());
    let origin = Origin { group: 7500, epoch: crate::message::Epoch::new(7).unwrap(), started: Instant::ZERO };
    for _ in 0..3 {
        let message = Message::new("t.0".parse().unwrap(), &b"x"[..]);
        let numbered = window.number(&message.subject, at(0), &mut Rng::new(1));
        let Numbering::Numbered { seq, stamp, chain, .. } = numbered else { unreachable!("{numbered:?}") };
        send.push(
            Instant::ZERO,
            &origin,
            &Entry { message: (&message).into(), seq: Some(seq), stamp, chain },
            &mut sealed,
        );
        send.seal(Instant::ZERO, &origin, &mut sealed);
    }
    let datagrams: Vec<Bytes> = sealed.into_iter().map(|datagram| datagram.bytes).collect();
    let mut receiver = Receiver::new(1);
    receiver.apply_and_fetch(0, &Input::Datagram(0), &datagrams);
    let later = Target { client: ClientId(2), sub: SubId(1) };
    receiver
        .interest
        .subscribe(at(60).instant, later, "t.0".parse::<Pattern>().unwrap().into(), DeliveryMode::Repair)
        .unwrap();
    receiver.apply_and_fetch(90, &Input::Datagram(2), &datagrams);
    receiver.age = Duration::from_millis(50);
    receiver.apply_and_fetch(96, &Input::Manifest(1, 1), &datagrams);
    let targets = |outcome: &StreamOutcome| match outcome {
        StreamOutcome::Deliver { matched, .. } => Some(matched.targets.len()),
        _ => None,
    };
    assert_eq!(receiver.outcomes.iter().filter_map(targets).collect::<Vec<_>>(), [1, 2, 2]);
}

/// A completely fetched message waits for the rest of its first datagram. One of its fragments arrives meanwhile
/// and exceeds the limit, which must not report the message as lost. No window remembers its delivery here.
#[test]
fn fetched_message_survives_the_reassembly_limit() {
    let datagrams = datagrams_around_large_message("t.2");
    let mut receiver = Receiver::new(1);
    receiver.recv.reassembly = Reassembly::new(0, 0);
    receiver.window = window_without_room();
    receiver.apply_and_fetch(1, &Input::Datagram(0), &datagrams);
    receiver.apply_and_fetch(2, &Input::Announcement(2), &datagrams);
    receiver.apply(3, &Input::Manifest(1, 1), &datagrams);
    let mut requested = Vec::new();
    receiver.with(3, |recv, ctx, _| {
        let request = |_: Dseq, subject: &Subject, first: Seq, _: Seq| requested.push((subject.clone(), first));
        recv.rebuilds.send_due_requests(ctx.now.instant, request);
    });
    let large = requested.pop().expect("the large message was requested");
    let fetch = |receiver: &mut Receiver, (subject, seq): (Subject, Seq), bytes| {
        let messages = vec![(seq, Message::new(subject.clone(), vec![7; bytes]))];
        receiver.with(4, |recv, ctx, out| recv.on_fetched(ctx, Dseq(2), (&subject, seq, seq), messages, out));
    };
    fetch(&mut receiver, large, 600);
    receiver.apply(5, &Input::Datagram(2), &datagrams);
    let small = receiver.outcomes.iter().find_map(|outcome| match outcome {
        StreamOutcome::Fetch { subject, first, .. } => Some((subject.clone(), *first)),
        _ => None,
    });
    fetch(&mut receiver, small.expect("the small message is requested"), 1);
    let mut seen = Vec::new();
    for outcome in &receiver.outcomes {
        match outcome {
            StreamOutcome::Deliver { item, .. } => seen.push(format!("{} delivered", item.subject())),
            StreamOutcome::Fetch { .. } => {}
            other => seen.push(format!("{other:?}")),
        }
    }
    assert_eq!(seen, ["t.0 delivered", "t.0 delivered", "t.1 delivered", "t.2 delivered"]);
}

/// The beginning of a large message was given up before its rest arrives. The next message of its subject is in the same
/// datagram as the rest. No window remembers their numbers.
#[test]
fn lost_large_message_precedes_the_next_delivery() {
    let datagrams = datagrams_around_large_message("t.1");
    let mut receiver = Receiver::new(1);
    receiver.window = window_without_room();
    receiver.apply(1, &Input::Datagram(0), &datagrams);
    receiver.apply(2, &Input::Announcement(1), &datagrams);
    receiver.apply(3, &Input::Overflow, &datagrams);
    receiver.outcomes.clear();
    receiver.apply(4, &Input::Datagram(2), &datagrams);
    let outcomes = &receiver.outcomes[..];
    let [StreamOutcome::Lost { first, last, .. }, StreamOutcome::Deliver { item, .. }] = outcomes else {
        panic!("a loss, then a delivery: {outcomes:?}")
    };
    assert_eq!((first.count(), last.count(), item.position().map(|position| position.seq.count())), (1, 1, Some(2)));
}

/// Runs before the first reported loss of a datagram are delivered together, and the others one by one after it.
#[test]
fn loss_ends_the_runs_delivered_together() {
    let datagrams = sealed_datagrams(
        &[("t.0", 1), ("t.1", 1), ("t.2", 1), ("t.1", 1), ("t.0", 1), ("t.1", 1), ("t.2", 1)],
        &[2, 3, 6],
    );
    let mut receiver = Receiver::new(1);
    receiver.apply(1, &Input::Datagram(0), &datagrams);
    receiver.apply(2, &Input::Announcement(1), &datagrams);
    receiver.apply(3, &Input::Overflow, &datagrams);
    let subject = |item: &StreamItem| item.subject().to_string();
    let show = |outcome: &StreamOutcome| match outcome {
        StreamOutcome::DeliverRuns { items, runs } => {
            runs.iter().map(|run| subject(&items[run.index as usize])).collect::<Vec<_>>().join(" ")
        }
        StreamOutcome::Deliver { item, .. } => format!("{} alone", subject(item)),
        StreamOutcome::Lost { subject, .. } => format!("{subject} lost"),
        StreamOutcome::Unverified { .. } => "unverified".to_owned(),
        other => panic!("{other:?}"),
    };
    receiver.apply(4, &Input::Datagram(2), &datagrams);
    let shown: Vec<String> = receiver.outcomes.iter().map(show).collect();
    assert_eq!(shown, ["t.0 t.1 t.2", "unverified", "t.0", "t.1 lost", "t.1 alone", "t.2 alone"]);
}

#[test]
fn runs_with_reply_subject_are_delivered_apart() {
    let message = |subject: &str| Message::new(subject.parse().unwrap(), "x");
    let reply = Some("reply".parse().unwrap());
    let messages = ["t.0", "t.1", "t.2", "t.1", "t.2"].map(message);
    let mut messages = Vec::from(messages);
    messages[2].reply = reply;
    let datagrams = sealed_messages(&messages, &[0, 2, 4]);
    let mut receiver = Receiver::new(1);
    (0..3).for_each(|index| receiver.apply(index as u64 + 1, &Input::Datagram(index), &datagrams));
    let together = |outcome: &StreamOutcome| match outcome {
        StreamOutcome::DeliverRuns { runs, .. } => runs.len(),
        StreamOutcome::Deliver { .. } => 1,
        other => panic!("{other:?}"),
    };
    assert_eq!(receiver.outcomes.iter().map(together).collect::<Vec<_>>(), [1, 1, 1, 2]);
}

/// Returns three datagrams: a small message; another one, and the beginning of a large one of the subject `t.1`; the
/// rest of that, and a small message of the subject `after`.
fn datagrams_around_large_message(after: &str) -> Vec<Bytes> {
    sealed_datagrams(&[("t.0", 1), ("t.0", 1), ("t.1", 600), (after, 1)], &[0, 3])
}

/// Returns three datagrams of messages with these subjects and sizes; a datagram ends with each of the last ones.
fn sealed_datagrams(messages: &[(&str, usize)], lasts: &[usize]) -> Vec<Bytes> {
    let message = |(subject, bytes): &(&str, usize)| Message::new(subject.parse().unwrap(), vec![7; *bytes]);
    sealed_messages(&messages.iter().map(message).collect::<Vec<_>>(), lasts)
}

/// Returns three datagrams of these messages; a datagram ends with each of the last ones.
fn sealed_messages(messages: &[Message], lasts: &[usize]) -> Vec<Bytes> {
    let (mut window, mut sealed) = (PubWindow::new(settings("A.pub").pub_window, 40, 1), Vec::new());
    let mut send = send_stream();
    let origin = Origin { group: 7500, epoch: Epoch::new(7).unwrap(), started: Instant::ZERO };
    for (number, message) in messages.iter().enumerate() {
        let Numbering::Numbered { seq, stamp, chain, .. } = window.number(&message.subject, at(0), &mut Rng::new(1))
        else {
            unreachable!("the window has room")
        };
        let entry = Entry { message: message.into(), seq: Some(seq), stamp, chain };
        send.push(Instant::ZERO, &origin, &entry, &mut sealed);
        if lasts.contains(&number) {
            send.seal(Instant::ZERO, &origin, &mut sealed);
        }
    }
    let datagrams: Vec<Bytes> = sealed.into_iter().map(|datagram| datagram.bytes).collect();
    assert_eq!(datagrams.len(), 3);
    datagrams
}

fn window_without_room() -> SubWindow {
    SubWindow::new(WindowSettings { bytes: 0, bytes_max: 0, ..settings("B.sub").sub_window }, 1)
}

/// Across a frame without a chain, more messages may be missing than are proven if some of them are old.
/// Proves: W87, W81
#[test]
fn unchained_frame_counts_only_old_ranges() {
    let seq = |count| Seq::from_parts(Frame::new(7).unwrap(), count).unwrap();
    let skip = Skip { first: seq(1), last: seq(2), messages: 2, rest: UnprovenLoss::Earlier };
    for (old, expected) in
        [(0, Count::Exact(2)), (3, Count::Between { min: 2, max: 5 }), (9, Count::Between { min: 2, max: 9 })]
    {
        let between = UnexplainedMessages { messages: 9, old, ..UnexplainedMessages::default() };
        assert_eq!(count_of(&skip, &between, u64::MAX), expected, "{old} of nine are old");
    }
}

/// Totals over all streams.
#[derive(Debug, Default)]
struct Seen {
    delivered: usize,
    lost: usize,
    unverified: usize,
    fetched: usize,
    /// Large messages from the history.
    large: usize,
    /// Deliveries while an earlier gap was open.
    overtook: usize,
    abandoned: usize,
    /// Maximum number of datagrams buffered at a time.
    buffered_most: u64,
}

impl Seen {
    fn add(&mut self, receiver: &Receiver, outcomes: &[StreamOutcome]) {
        for outcome in outcomes {
            match outcome {
                StreamOutcome::Deliver { item, .. } => {
                    self.delivered += 1;
                    self.large +=
                        usize::from(matches!(item, StreamItem::FetchedMessages(fetched) if fetched.bytes() == LARGE));
                    self.overtook += usize::from(receiver.recv.ledger.is_waiting());
                }
                StreamOutcome::DeliverRuns { runs, .. } => self.delivered += runs.len(),
                StreamOutcome::Lost { .. } => self.lost += 1,
                StreamOutcome::Unverified { .. } => self.unverified += 1,
                StreamOutcome::Fetch { .. } => self.fetched += 1,
                _ => {}
            }
        }
        self.abandoned += receiver.recv.reorder_buffer.abandoned();
        self.buffered_most = self.buffered_most.max(receiver.recv.ledger.states().buffered);
    }
}

/// Input of a stream.
#[derive(Clone, Copy, Debug)]
enum Input {
    /// The datagram of this index arrives.
    Datagram(usize),
    /// An announcement that all datagrams up to it exist.
    Announcement(usize),
    /// The publisher's manifest of it, with this number of its messages in the history.
    Manifest(usize, usize),
    /// The publisher knows nothing about the datagrams up to it.
    Expired(usize),
    Overflow,
    Time,
    End,
}

/// Returns the datagrams of a publisher: a few subjects, some of them wanted, frames that overflow, and large messages.
fn stream(rng: &mut Rng) -> Vec<Bytes> {
    let settings = settings("A.pub");
    let mut window = PubWindow::new(settings.pub_window, rng.between(3, 40), rng.next_u64());
    let mut send = send_stream();
    let origin = Origin { group: 7500, epoch: crate::message::Epoch::new(7).unwrap(), started: Instant::ZERO };
    let (subjects, mut sealed) = (rng.between(1, 8), Vec::new());
    let large = rng.chance(0.5);
    for millis in 0..rng.between(100, 300) {
        let subject: Subject = match rng.below(subjects) {
            7 => "unwanted".parse().unwrap(),
            number => format!("t.{number}").parse().unwrap(),
        };
        let bytes = if large && rng.chance(0.05) { rng.between(500, 3000) } else { rng.between(1, 200) };
        let message = Message::new(subject, vec![7; bytes as usize]);
        let number = (!rng.chance(0.02)).then(|| window.number(&message.subject, at(millis), rng));
        let entry = match number {
            None => Entry { message: (&message).into(), seq: None, stamp: None, chain: None },
            Some(Numbering::Numbered { seq, stamp, chain, .. }) => {
                Entry { message: (&message).into(), seq: Some(seq), stamp, chain }
            }
            other => unreachable!("{other:?}"),
        };
        send.push(Instant::ZERO, &origin, &entry, &mut sealed);
        if rng.chance(0.4) {
            send.seal(Instant::ZERO, &origin, &mut sealed);
        }
    }
    send.seal(Instant::ZERO, &origin, &mut sealed);
    sealed.into_iter().map(|datagram| datagram.bytes).collect()
}

/// Returns the datagrams in order, except those that are late, duplicated, resent on request, or lost.
fn inputs(rng: &mut Rng, datagrams: &[Bytes]) -> Vec<(u64, Input)> {
    let missing = [0.02, 0.2, 0.6][rng.below(3) as usize];
    let mut inputs = Vec::new();
    for index in 0..datagrams.len() {
        let sent = 2 * index as u64;
        let later = sent + rng.between(1, 90);
        match () {
            () if !rng.chance(missing) => inputs.push((sent, Input::Datagram(index))),
            () if rng.chance(0.7) => inputs.push((later, Input::Datagram(index))),
            () if rng.chance(0.5) => inputs.push((later, Input::Manifest(index, rng.below(4) as usize))),
            () if rng.chance(0.2) => inputs.push((later, Input::Expired(index))),
            () => {}
        }
        match () {
            () if rng.chance(0.05) => inputs.push((later, Input::Datagram(index))),
            () if rng.chance(0.05) => inputs.push((sent, Input::Announcement(index))),
            () if rng.chance(0.02) => inputs.push((sent, Input::Overflow)),
            () => inputs.push((sent, Input::Time)),
        }
    }
    inputs.sort_by_key(|(millis, _)| *millis);
    inputs.push((2 * datagrams.len() as u64 + 100, Input::Time));
    inputs.push((2 * datagrams.len() as u64 + 100, Input::End));
    inputs
}

/// Bytes of a large message in the history.
const LARGE: usize = 1000;

/// A stream and the state that its context borrows.
struct Receiver {
    recv: RecvStream,
    /// Age of the current datagram.
    age: Duration,
    /// Number of messages that the history retains of each requested range.
    kept: usize,
    /// Unanswered requests to the history.
    requested: Vec<(Dseq, Subject, Seq, Seq)>,
    window: SubWindow,
    interest: InterestTable,
    counters: Counters,
    losses: LossCounters,
    outcomes: Vec<StreamOutcome>,
    lists: ListPools,
}

impl Receiver {
    fn new(seed: u64) -> Receiver {
        let settings = settings("B.sub");
        let mut interest = InterestTable::new(&settings, seed);
        let target = Target { client: ClientId(1), sub: SubId(1) };
        interest
            .subscribe(Instant::ZERO, target, "t.>".parse::<Pattern>().unwrap().into(), DeliveryMode::Repair)
            .unwrap();
        let ledger = Ledger::new(Dseq(0), 0, Instant::ZERO, [8, 64][seed as usize % 2]);
        let nak_scheduler = NakScheduler::new(Duration::from_millis(5), true, Rng::new(seed));
        let kind = StreamKind::Bcast { birth: Some(Instant::from_nanos(1)) };
        Receiver {
            recv: RecvStream::new(kind, ledger, nak_scheduler, Reassembly::new(6000, 4)),
            age: Duration::ZERO,
            kept: 0,
            requested: Vec::new(),
            window: SubWindow::new(settings.sub_window, seed),
            interest,
            counters: Counters::default(),
            losses: LossCounters::default(),
            outcomes: Vec::new(),
            lists: ListPools::default(),
        }
    }

    fn with(
        &mut self,
        millis: u64,
        work: impl FnOnce(&mut RecvStream, &mut ReceiveContext<'_>, &mut Vec<StreamOutcome>),
    ) {
        let now = at(1 + millis);
        let mut ctx = ReceiveContext {
            now,
            uid: 1,
            window: &mut self.window,
            lookup: None,
            lists: &mut self.lists,
            interest: &mut self.interest,
            mode: DeliveryMode::Repair,
            inbox: "_INBOX.0000000000000002.",
            own: Epoch::new(2).unwrap(),
            permits_all: true,
            counters: &mut self.counters,
            losses: &mut self.losses,
            arrived: now.instant - self.age,
            deadline: now.instant + Duration::from_millis(70),
            settled_to: now.instant,
            reason: Reason::Deadline,
            receivers: 1,
            overrun: &mut 0,
            recent: Instant::ZERO,
            frame_messages_max: 40,
            mutants: Mutants::default(),
        };
        work(&mut self.recv, &mut ctx, &mut self.outcomes);
    }

    fn apply_and_fetch(&mut self, millis: u64, input: &Input, datagrams: &[Bytes]) {
        let known = self.outcomes.len();
        self.apply(millis, input, datagrams);
        self.fetch(millis, known);
    }

    fn apply(&mut self, millis: u64, input: &Input, datagrams: &[Bytes]) {
        let decode = |index: usize| wire::decode(datagrams[index].clone()).unwrap();
        match *input {
            Input::Datagram(index) => {
                let datagram = decode(index);
                let (dseq, before) = (Dseq(datagram.header.number), datagram.header.count);
                self.with(millis, |recv, ctx, out| {
                    recv.on_datagram(ctx, dseq, before, datagram.records, out);
                });
            }
            Input::Announcement(index) => {
                let datagram = decode(index);
                let messages: u64 = datagram.records.iter().map(Record::messages_begun).sum();
                let (high, count) = (Dseq(datagram.header.number), datagram.header.count + messages);
                self.with(millis, |recv, ctx, out| {
                    recv.on_control(ctx, high, count, out);
                });
            }
            Input::Manifest(index, kept) => {
                let datagram = decode(index);
                let (first, before) = (Dseq(datagram.header.number), datagram.header.count);
                let manifest = Manifest { first, before, datagrams: vec![wire::contents_of(&datagrams[index])] };
                self.with(millis, |recv, ctx, out| {
                    recv.on_manifest(ctx, manifest, out);
                });
                self.kept = kept;
            }
            Input::Expired(index) => {
                let last = Dseq(decode(index).header.number);
                self.with(millis, |recv, ctx, out| recv.on_expired(ctx, last, out));
            }
            Input::Overflow => self.with(millis, |recv, ctx, out| recv.overflow(ctx, out)),
            Input::Time => self.with(millis, |recv, ctx, out| recv.on_deadline(ctx, out)),
            Input::End => self.with(millis, |recv, ctx, out| recv.end(ctx, Reason::PublisherGone, out)),
        }
    }

    /// Sends due requests to the publisher's history, which answers now and then: it has the first `kept` messages of
    /// each range.
    fn fetch(&mut self, millis: u64, known: usize) {
        self.with(millis, |recv, ctx, out| {
            recv.rebuilds.send_due_requests(ctx.now.instant, |dseq, subject, first, last| {
                out.push(StreamOutcome::Fetch { dseq, subject: subject.clone(), first, last });
            });
        });
        let requested = |outcome: &StreamOutcome| match outcome {
            StreamOutcome::Fetch { dseq, subject, first, last } => Some((*dseq, subject.clone(), *first, *last)),
            _ => None,
        };
        self.requested.extend(self.outcomes[known..].iter().filter_map(requested));
        if !millis.is_multiple_of(6) {
            return;
        }
        for (dseq, subject, first, last) in std::mem::take(&mut self.requested) {
            let is_large = self.recv.rebuilds.large(dseq).is_some_and(|name| name.seq == first);
            let payload = vec![7; if is_large { LARGE } else { 4 }];
            let seqs = (0..self.kept as u64).filter_map(|index| first.forward(index)).filter(|seq| *seq <= last);
            let messages = seqs.map(|seq| (seq, Message::new(subject.clone(), payload.clone()))).collect();
            self.with(millis, |recv, ctx, out| recv.on_fetched(ctx, dseq, (&subject, first, last), messages, out));
        }
    }
}

fn at(millis: u64) -> ClockReading {
    ClockReading {
        instant: Instant::from_nanos(millis * 1_000_000),
        wall: WallTime::from_nanos(1_700_000_000_000_000_000),
    }
}
