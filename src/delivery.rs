//! Messages on their way to clients. The messages of one run stay together until they are read, which keeps the cost of
//! each one low: no lock, no copy, no lookup.

use crate::message::{Delivery, DeliveryRef, Message, MessageOrigin, Publisher, Verdict};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::wire::entry::EntryParts;
use crate::wire::{Run, RunMessages, queue};
use std::iter::FusedIterator;
use std::vec;

/// Iterator over one or more messages of one subject, in order, for the same subscriptions.
#[derive(Clone, Debug)]
pub struct Deliveries {
    messages: Messages,
    publisher: Publisher,
    position: DeliveryPosition,
    repaired: bool,
    replayed: bool,
    origin: Option<MessageOrigin>,
    left: usize,
    bytes: usize,
}

/// Position of a message in its stream.
#[derive(Clone, Copy, Debug)]
struct DeliveryPosition {
    /// Number of the message.
    seq: Option<Seq>,
    /// Offset in the history.
    offset: Option<u32>,
    /// Verdict on the message.
    verdict: Verdict,
}

impl DeliveryPosition {
    /// Returns this position and advances to the next one.
    fn next(&mut self) -> DeliveryPosition {
        let position = *self;
        self.seq = self.seq.and_then(|seq| seq.forward(1));
        self.offset = self.offset.map(|offset| offset.wrapping_add(1));
        if !matches!(self.verdict, Verdict::Direct | Verdict::Unnumbered) {
            self.verdict = Verdict::Next;
        }
        position
    }
}

/// Position of a run in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPosition {
    /// Number of messages at its front that were received before; less than its messages.
    pub repeated: u16,
    /// Verdict on the first message delivered; the others follow it.
    pub verdict: Verdict,
    /// Offset of the first message of its frame in the history, if it is known.
    pub offset: Option<u32>,
}

/// Attributes that all messages of a run share.
#[derive(Clone, Copy, Debug)]
struct RunAttributes<'a> {
    publisher: &'a Publisher,
    repaired: bool,
    replayed: bool,
    origin: Option<MessageOrigin>,
}

impl RunAttributes<'_> {
    /// Returns a borrowed view of a message of a run.
    #[inline(always)]
    fn delivery<'a>(&'a self, run: &'a Run, parts: EntryParts<'a>, position: DeliveryPosition) -> DeliveryRef<'a> {
        let EntryParts { reply, headers, payload } = parts;
        let DeliveryPosition { seq, offset, verdict } = position;
        let RunAttributes { publisher, repaired, replayed, origin } = *self;
        let (subject, event) = (&run.subject, run.event);
        DeliveryRef {
            subject,
            reply,
            headers,
            payload,
            event,
            publisher,
            seq,
            offset,
            verdict,
            repaired,
            replayed,
            origin,
        }
    }
}

/// Calls `each` with a borrowed view of every message of a run that was not received before. The messages arrived in
/// order, and not from a history.
#[inline]
pub(crate) fn visit_run(
    run: &Run,
    at: RunPosition,
    publisher: &Publisher,
    origin: Option<MessageOrigin>,
    each: &mut impl FnMut(&DeliveryRef<'_>),
) {
    let seq = run.first.and_then(|seq| seq.forward(at.repeated.into()));
    let mut position = DeliveryPosition { seq, offset: offset_of(seq, at.offset), verdict: at.verdict };
    let attributes = RunAttributes { publisher, repaired: false, replayed: false, origin };
    run.visit(at.repeated, |parts| each(&attributes.delivery(run, parts, position.next())));
}

/// Returns the offset of a message in the history; the first message of its frame has the offset `first_of_frame`.
#[inline(always)]
fn offset_of(seq: Option<Seq>, first_of_frame: Option<u32>) -> Option<u32> {
    // The offset is modulo 2^32, as is the truncated count.
    first_of_frame.zip(seq).map(|(first, seq)| first.wrapping_add((seq.count() - 1) as u32))
}

/// Storage of the messages.
#[derive(Clone, Debug)]
enum Messages {
    One(Option<Message>),
    Run(RunMessages),
    Fetched(vec::IntoIter<Message>),
}

impl Messages {
    fn next(&mut self) -> Option<Message> {
        match self {
            Messages::One(message) => message.take(),
            Messages::Run(messages) => messages.next(),
            Messages::Fetched(messages) => messages.next(),
        }
    }
}

/// A borrowed view of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunRef<'a> {
    /// Subject on which the messages are published.
    pub(crate) subject: &'a Subject,
    /// Publisher of the messages.
    pub(crate) publisher: &'a Publisher,
    /// Number of the first message.
    pub(crate) seq: Option<Seq>,
    /// Offset of the first message in the history; the offsets of the others follow it.
    pub(crate) offset: Option<u32>,
    /// Verdict on the first message.
    pub(crate) verdict: Verdict,
    /// True if the messages were missing at first.
    pub(crate) repaired: bool,
    /// Proof of their publisher.
    pub(crate) origin: Option<MessageOrigin>,
    /// True if the messages are journalled events.
    pub(crate) event: bool,
    /// True if each entry has a meta part.
    pub(crate) meta: bool,
    /// Number of messages.
    pub(crate) count: u16,
    /// Entries of the messages as in a datagram.
    pub(crate) entries: &'a [u8],
}

impl Deliveries {
    /// Creates deliveries from a run that did not arrive in a datagram; the first message has this verdict.
    pub(crate) fn of_run(run: Run, publisher: Publisher, verdict: Verdict, repaired: bool) -> Deliveries {
        let (seq, left, bytes) = (run.first, usize::from(run.count), run.entry_bytes());
        let messages = Messages::Run(run.into_messages());
        Deliveries {
            messages,
            publisher,
            position: DeliveryPosition { seq, offset: None, verdict },
            repaired,
            replayed: false,
            origin: None,
            left,
            bytes,
        }
    }

    /// Returns the remaining messages as one run, if they came as one.
    pub(crate) fn run(&self) -> Option<RunRef<'_>> {
        let Messages::Run(messages) = &self.messages else { return None };
        let (run, entries) = messages.rest(self.left);
        Some(RunRef {
            subject: &run.subject,
            publisher: &self.publisher,
            seq: self.position.seq,
            offset: self.position.offset,
            verdict: self.position.verdict,
            repaired: self.repaired,
            origin: self.origin,
            event: run.event,
            meta: run.has_meta(),
            count: u16::try_from(self.left).expect("a run has at most 65,535"),
            entries,
        })
    }

    /// Creates the delivery of one message, which may have a number.
    pub(crate) fn of_message(
        message: Message,
        seq: Option<Seq>,
        publisher: Publisher,
        verdict: Verdict,
        repaired: bool,
    ) -> Deliveries {
        let delivery = Delivery::new(message, publisher, seq, verdict);
        Deliveries { repaired, ..delivery.into() }
    }

    /// Creates deliveries from messages of one subject that were fetched from a history; the first message has this
    /// number and this verdict.
    pub(crate) fn of_fetched(
        messages: Vec<Message>,
        seq: Seq,
        publisher: Publisher,
        verdict: Verdict,
        repaired: bool,
    ) -> Deliveries {
        let (left, bytes) = (messages.len(), messages.iter().map(Message::body_bytes).sum());
        let (messages, position) =
            (Messages::Fetched(messages.into_iter()), DeliveryPosition { seq: Some(seq), offset: None, verdict });
        Deliveries { messages, publisher, position, repaired, replayed: false, origin: None, left, bytes }
    }

    /// Drops the first `repeated` messages, which were delivered before; the next message has the verdict of the first.
    /// Returns whether a message is left.
    #[inline]
    pub(crate) fn skip_repeated(&mut self, repeated: usize) -> bool {
        self.left = self.left.saturating_sub(repeated);
        if 0 < self.left {
            for _ in 0..repeated {
                drop(self.messages.next());
            }
            self.position.seq = self.position.seq.and_then(|seq| seq.forward(repeated as u64));
        }
        0 < self.left
    }

    /// Copies the messages of a run, so that they do not keep the memory of a whole datagram.
    pub(crate) fn detach(&mut self) {
        if let Messages::Run(messages) = &mut self.messages {
            messages.detach();
        }
    }

    /// Removes the numbers of these messages.
    pub(crate) fn remove_numbers(&mut self) {
        self.position.seq = None;
    }

    /// Calls `each` with a borrowed view of every remaining message.
    pub fn visit(self, mut each: impl FnMut(&DeliveryRef<'_>)) {
        let Messages::Run(messages) = &self.messages else {
            return self.for_each(|delivery| each(&(&delivery).into()));
        };
        let Deliveries { mut position, repaired, replayed, origin, .. } = self;
        let attributes = RunAttributes { publisher: &self.publisher, repaired, replayed, origin };
        messages.visit(self.left, |run, parts| each(&attributes.delivery(run, parts, position.next())));
    }

    /// Returns the subject of the messages; `None` if no message is left.
    #[inline]
    pub fn subject(&self) -> Option<&Subject> {
        match &self.messages {
            Messages::One(message) => Some(&message.as_ref()?.subject),
            Messages::Run(messages) => Some(&messages.rest(0).0.subject),
            Messages::Fetched(messages) => Some(&messages.as_slice().first()?.subject),
        }
    }

    /// Returns the publisher and the subject of the messages, if they were repaired.
    #[inline]
    pub(crate) fn repaired(&self) -> Option<(&Publisher, &Subject)> {
        if self.repaired { Some((&self.publisher, self.subject()?)) } else { None }
    }

    /// Returns whether one of the messages has a stamp of a queue group.
    #[inline]
    pub(crate) fn is_stamped(&self) -> bool {
        self.any_headers(queue::is_stamped)
    }

    /// Returns whether `predicate` holds for the header fields of one of the messages.
    #[inline]
    pub(crate) fn any_headers(&self, predicate: impl Fn(&[u8]) -> bool) -> bool {
        let is_selected = |message: &Message| predicate(message.headers.block());
        match &self.messages {
            Messages::One(message) => message.as_ref().is_some_and(is_selected),
            Messages::Run(messages) => messages.any_headers(predicate),
            Messages::Fetched(messages) => messages.as_slice().iter().any(is_selected),
        }
    }

    /// Returns `messages` with the position and the publisher of the remaining ones; `None` if `messages` is empty.
    pub(crate) fn with_messages(&self, messages: Vec<Message>) -> Option<Deliveries> {
        let left = messages.len();
        let messages = Messages::Fetched(messages.into_iter());
        (0 < left).then(|| Deliveries { messages, publisher: self.publisher.clone(), left, ..*self })
    }

    /// Returns the bytes of memory that all messages keep in use, whether or not the iterator has yielded them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the offsets in the history: the first message of the frame has this offset, if it is known.
    #[inline(always)]
    pub(crate) fn set_offset(&mut self, first_of_frame: Option<u32>) {
        self.position.offset = offset_of(self.position.seq, first_of_frame);
    }

    /// Sets the offset of the first message.
    pub(crate) fn set_first_offset(&mut self, offset: Option<u32>) {
        self.position.offset = offset;
    }

    /// Sets the proof of the publisher of all messages.
    #[inline(always)]
    pub(crate) fn set_origin(&mut self, origin: Option<MessageOrigin>) {
        self.origin = origin;
    }

    /// Keeps the first `count` messages and drops the others.
    pub fn truncate(&mut self, count: usize) {
        self.left = self.left.min(count);
    }
}

impl From<Delivery> for Deliveries {
    fn from(delivery: Delivery) -> Deliveries {
        let Delivery { message, publisher, seq, offset, verdict, repaired, replayed, origin } = delivery;
        let bytes = message.body_bytes();
        Deliveries {
            messages: Messages::One(Some(message)),
            publisher,
            position: DeliveryPosition { seq, offset, verdict },
            repaired,
            replayed,
            origin,
            left: 1,
            bytes,
        }
    }
}

impl Iterator for Deliveries {
    type Item = Delivery;

    fn next(&mut self) -> Option<Delivery> {
        self.left = self.left.checked_sub(1)?;
        let message = self.messages.next()?;
        let DeliveryPosition { seq, offset, verdict } = self.position.next();
        let (publisher, repaired, replayed) = (self.publisher.clone(), self.repaired, self.replayed);
        Some(Delivery { message, publisher, seq, offset, verdict, repaired, replayed, origin: self.origin })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Deliveries {}

impl FusedIterator for Deliveries {}

impl Eq for Deliveries {}

impl PartialEq for Deliveries {
    /// Returns whether both yield the same messages.
    fn eq(&self, other: &Deliveries) -> bool {
        self.clone().eq(other.clone())
    }
}

#[cfg(test)]
impl Deliveries {
    /// Returns these messages, of one subject and all with a meta part or none, as they arrive in a datagram.
    pub(crate) fn run_of(messages: &[Message], seq: Seq, publisher: Publisher, verdict: Verdict) -> Deliveries {
        use crate::message::MessageRef;
        use crate::wire::entry;
        let mut entries = Vec::new();
        messages.iter().for_each(|message| entry::put(&mut entries, message.into()));
        let (first, count) = (&messages[0], u16::try_from(messages.len()).unwrap());
        let has_meta = MessageRef::from(first).has_meta();
        let run = Run::of_entries(first.subject.clone(), Some(seq), first.event, has_meta, count, entries.into());
        Deliveries::of_run(run.unwrap(), publisher, verdict, false)
    }

    /// Returns messages of one subject as they come from a history, from this number on.
    pub(crate) fn of_messages(messages: Vec<Message>, seq: Seq, publisher: Publisher) -> Deliveries {
        Deliveries::of_fetched(messages, seq, publisher, Verdict::First, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Count, Epoch};
    use crate::seqno::Frame;
    use crate::wire::{self, Builder, Entry, Header, Kind, Record};

    fn publisher() -> Publisher {
        Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 }
    }

    fn seq(count: u64) -> Seq {
        Seq::from_parts(Frame::new(7).unwrap(), count).unwrap()
    }

    /// Returns a run of five messages, as decoded from a datagram.
    fn run(first: u64) -> Run {
        let mut builder = Builder::new(1400);
        for index in 0..5 {
            let message = Message::new("a".parse().unwrap(), vec![index as u8; index as usize]);
            assert!(builder.push(&Entry {
                message: (&message).into(),
                seq: Some(seq(first + index)),
                stamp: None,
                chain: None
            }));
        }
        let (kind, epoch) = (Kind::Data, Epoch::new(1).unwrap());
        let header = Header { kind, group: 1, epoch, number: 1, count: 0, uptime_ms: 0, receiver: None };
        let datagram = wire::decode(builder.seal(&header)).unwrap();
        match datagram.records.into_iter().next() {
            Some(Record::Run(run)) => run,
            other => panic!("{other:?}"),
        }
    }

    fn shown(delivery: &Delivery) -> (u64, usize, Verdict) {
        (delivery.seq.map_or(0, Seq::count), delivery.message.payload.len(), delivery.verdict)
    }

    #[test]
    fn only_first_message_of_run_has_the_verdict() {
        let skip = Verdict::Skip(Count::Exact(2));
        let of = |run, repeated, verdict| {
            let mut deliveries = Deliveries::of_run(run, publisher(), verdict, false);
            deliveries.skip_repeated(repeated).then_some(deliveries)
        };
        let deliveries = of(run(10), 0, skip).unwrap();
        assert_eq!(deliveries.len(), 5);
        let rest = [(11, 1, Verdict::Next), (12, 2, Verdict::Next), (13, 3, Verdict::Next), (14, 4, Verdict::Next)];
        let all: Vec<_> = deliveries.map(|delivery| shown(&delivery)).collect();
        assert_eq!(all, [&[(10, 0, skip)], &rest[..]].concat());
        let repeated: Vec<_> = of(run(10), 3, Verdict::Next).unwrap().map(|delivery| shown(&delivery)).collect();
        assert_eq!(repeated, rest[2..]);
        assert!(of(run(10), 5, Verdict::Next).is_none(), "the whole run was repeated");
        let mut direct = of(run(10), 0, Verdict::Direct).unwrap();
        direct.remove_numbers();
        let direct: Vec<_> = direct.map(|delivery| shown(&delivery)).collect();
        assert!(direct.iter().all(|(seq, _, verdict)| (*seq, *verdict) == (0, Verdict::Direct)));
    }

    #[test]
    fn visit_yields_what_the_iterator_yields() {
        let messages = (0..4).map(|index| Message::new("a".parse().unwrap(), vec![0; index])).collect();
        let fetched = Deliveries::of_messages(messages, seq(3), publisher());
        let mut of_run = Deliveries::of_run(run(10), publisher(), Verdict::First, true);
        assert!(of_run.skip_repeated(1));
        for mut deliveries in [fetched, of_run] {
            let expected: Vec<Delivery> = deliveries.clone().collect();
            let mut delivery = deliveries.next().unwrap();
            let mut visited = Vec::new();
            deliveries.clone().visit(|delivery| visited.push(delivery.to_delivery()));
            assert_eq!(visited, expected[1..]);
            for (index, expected) in expected.iter().enumerate() {
                assert_eq!(&delivery, expected);
                let next = deliveries.next();
                assert_eq!(next.is_some(), index + 1 < 4);
                delivery = next.unwrap_or(delivery);
            }
            assert_eq!((deliveries.len(), deliveries.next()), (0, None));
        }
    }

    #[test]
    fn rest_of_run_is_a_run() {
        let mut rng = crate::rng::Rng::new(1);
        for _ in 0..200 {
            let (taken, left) = (rng.below(5), rng.below(6) as usize);
            let mut deliveries = Deliveries::of_run(run(10), publisher(), Verdict::First, true);
            deliveries.set_offset(rng.chance(0.5).then_some(u32::MAX - 10));
            (0..taken).for_each(|_| drop(deliveries.next()));
            deliveries.truncate(left);
            let run = deliveries.run().unwrap();
            let entries = crate::wire::Run::of_entries(
                run.subject.clone(),
                run.seq,
                run.event,
                run.meta,
                run.count,
                run.entries.to_vec().into(),
            );
            match entries {
                Ok(again) => {
                    let mut again = Deliveries::of_run(again, publisher(), run.verdict, true);
                    again.set_first_offset(run.offset);
                    assert_eq!(again, deliveries);
                }
                Err(error) => assert_eq!((error, left), (crate::wire::DecodeError::RunEmpty, 0)),
            }
        }
    }

    #[test]
    fn cut_off_messages_are_not_delivered() {
        let mut deliveries = Deliveries::of_run(run(1), publisher(), Verdict::First, false);
        deliveries.truncate(2);
        let mut last = deliveries.clone();
        assert_eq!(deliveries.map(|delivery| delivery.seq).collect::<Vec<_>>(), [Some(seq(1)), Some(seq(2))]);
        assert!(last.next().is_some() && last.next().is_some() && last.next().is_none());
    }
}
