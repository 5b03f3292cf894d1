//! The output of one attached client that is not yet written: bounded in messages and bytes. A drop count
//! stands where messages are missing.
//!
//! Frames are encoded on entry.

use crate::daemon::connection_state::WriteBuffer;
use crate::daemon::subscription_queue::QueueLimits;
use crate::delivery::Deliveries;
use crate::listener::frame::{
    FRAME_SUBS_MAX, LentPayload, PeerFrame, put_message_buffer, put_message_head, put_message_run,
};
use crate::message::{Loss, SubId};
use crate::shared_memory::{UNREAD_BUFFERS_MAX, UnreadBuffers};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Bytes of unwritten answers beyond which late answers are refused. An answer is late if it is not made in the turn of
/// its request, such as an answer of another peer.
const LATE_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Number of loss reports accepted beyond an outbox full of messages, as in the queue of an embedded client.
const LOSSES_BEYOND_MAX: usize = 4096;

/// Outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PushOutcome {
    /// Number of messages or reports accepted; the others were dropped and counted.
    pub(crate) accepted: usize,
    /// True if this push starts a span of drops.
    pub(crate) begins_drops: bool,
}

/// Frames to be written to one client.
#[derive(Debug)]
pub(crate) struct ClientOutbox {
    limits: QueueLimits,
    unwritten: WriteBuffer,
    /// Buffers that the client has, and whose frames it has not read yet. Their bytes count like unwritten ones.
    unread_buffers: UnreadBuffers,
    /// Number of events dropped since the last frame in the outbox, by subscription.
    dropped: BTreeMap<SubId, u64>,
    dropped_total: u64,
}

impl ClientOutbox {
    pub(crate) fn new(limits: QueueLimits) -> ClientOutbox {
        ClientOutbox {
            limits,
            unwritten: WriteBuffer::default(),
            unread_buffers: UnreadBuffers::default(),
            dropped: BTreeMap::new(),
            dropped_total: 0,
        }
    }

    /// Appends a message for these subscriptions, or drops it for each of them. `body` comes from
    /// [`delivery_body`](crate::listener::value::delivery_body).
    pub(crate) fn push_message(&mut self, subs: &[SubId], body: &Bytes) -> PushOutcome {
        if self.room(body.len()) == 0 {
            return self.drop_for(subs, 1);
        }
        self.report_dropped();
        for subs in subs.chunks(FRAME_SUBS_MAX) {
            self.unwritten.out.put_with(|tail| put_message_head(tail, subs, body.len()));
            self.unwritten.out.put_shared(body);
            self.unwritten.count_events(1);
        }
        PushOutcome { accepted: 1, begins_drops: false }
    }

    /// Appends a message whose payload is in a buffer, or drops it. `lend` lends the buffer to the client. `body` is the
    /// body without the payload; `tail` is the position up to which the ring is written. Returns `None` if the client
    /// cannot have the buffer now, and nothing has changed.
    pub(crate) fn push_buffer(
        &mut self,
        subs: &[SubId],
        body: &[u8],
        payload: LentPayload,
        tail: u64,
        lend: impl FnOnce() -> bool,
    ) -> Option<PushOutcome> {
        if self.room(body.len() + payload.bytes) == 0 {
            return Some(self.drop_for(subs, 1));
        }
        if FRAME_SUBS_MAX < subs.len() || UNREAD_BUFFERS_MAX <= self.unread_buffers.len() || !lend() {
            return None;
        }
        self.report_dropped();
        self.unwritten.out.put_with(|tail| put_message_buffer(tail, subs, body, payload));
        self.unwritten.count_events(1);
        self.unread_buffers.push(tail + self.unwritten.bytes() as u64, payload.bytes);
        Some(PushOutcome { accepted: 1, begins_drops: false })
    }

    /// Returns whether the client has buffers whose frames it had not read at the last look.
    pub(crate) fn has_unread_buffers(&self) -> bool {
        !self.unread_buffers.is_empty()
    }

    /// Records that the client has read its ring up to this position.
    pub(crate) fn on_read(&mut self, head: u64) {
        self.unread_buffers.release(head);
    }

    /// Appends a run of messages. Those for which there is no room are dropped for each of the subscriptions.
    pub(crate) fn push_run(&mut self, subs: &[SubId], mut run: Deliveries) -> PushOutcome {
        let (count, room) = (run.len(), self.room(run.bytes()));
        if 0 < room {
            self.report_dropped();
            run.truncate(room);
            let accepted = run.len();
            let run = run.run().expect("the deliveries are a run");
            for subs in subs.chunks(FRAME_SUBS_MAX) {
                self.unwritten.out.put_with(|tail| put_message_run(tail, subs, &run));
                self.unwritten.count_events(accepted);
            }
        }
        let accepted = count.min(room);
        match count - accepted {
            0 => PushOutcome { accepted, begins_drops: false },
            dropped => PushOutcome { accepted, ..self.drop_for(subs, dropped as u64) },
        }
    }

    /// Returns whether a message of `bytes` bytes fits.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        0 < self.room(bytes)
    }

    /// Returns the number of messages of together `bytes` bytes that fit. After a drop the outbox accepts messages
    /// again when it is half empty, so that drops come in few spans.
    fn room(&self, bytes: usize) -> usize {
        let part = if self.dropped.is_empty() { 1 } else { 2 };
        let waiting = self.waiting_bytes();
        if 0 < waiting && self.limits.bytes_max / part < waiting + bytes {
            return 0;
        }
        self.limits.count_max.div_ceil(part).saturating_sub(self.unwritten.events())
    }

    /// Returns the number of bytes that wait for the client.
    fn waiting_bytes(&self) -> usize {
        self.unwritten.bytes() + self.unread_buffers.bytes()
    }

    /// Appends a loss report for these subscriptions, or counts it as dropped, as [`ClientOutbox::push_message`] does.
    pub(crate) fn push_loss(&mut self, subs: &[SubId], loss: &Loss) -> PushOutcome {
        if self.limits.count_max + LOSSES_BEYOND_MAX <= self.unwritten.events() {
            return self.drop_for(subs, 1);
        }
        self.report_dropped();
        for subs in subs.chunks(FRAME_SUBS_MAX) {
            self.unwritten
                .out
                .put_with(|tail| PeerFrame::Loss { subs: subs.to_vec(), loss: loss.clone() }.encode(tail));
            self.unwritten.count_events(1);
        }
        PushOutcome { accepted: 1, begins_drops: false }
    }

    /// Appends an answer to a request of the client. Answers are never dropped; see [`ClientOutbox::is_backpressured`].
    pub(crate) fn push_answer(&mut self, answer: &PeerFrame) {
        self.unwritten.out.put_with(|tail| answer.encode(tail));
        self.unwritten.count_answers();
    }

    /// Discards all unwritten frames of a client that no longer reads.
    pub(crate) fn discard(&mut self) {
        *self = ClientOutbox { dropped_total: self.dropped_total, ..ClientOutbox::new(self.limits) };
    }

    /// Removes the drop count of a subscription that has ended.
    pub(crate) fn remove_sub(&mut self, sub: SubId) {
        self.dropped.remove(&sub);
    }

    /// Returns whether unwritten answers exceed the limit beyond which no more requests of this client are read.
    pub(crate) fn is_backpressured(&self) -> bool {
        self.unwritten.is_backpressured()
    }

    /// Returns whether unwritten answers exceed the limit for late ones. A refusal of a few bytes then replaces a late
    /// answer.
    pub(crate) fn exceeds_answer_limit(&self) -> bool {
        LATE_ANSWER_BYTES_MAX < self.unwritten.answer_bytes()
    }

    /// Returns whether nothing waits to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.unwritten.bytes() == 0 && self.dropped.is_empty()
    }

    /// Returns the fullness in parts of 1,024, and 0 while the outbox drops, as in the queue of an embedded client.
    pub(crate) fn fullness(&self) -> u64 {
        if self.dropped.is_empty() { self.limits.fullness(self.unwritten.events(), self.waiting_bytes()) } else { 0 }
    }

    /// Returns (waiting messages and loss reports, waiting bytes, events dropped in total).
    pub(crate) fn fill(&self) -> (usize, usize, u64) {
        (self.unwritten.events(), self.waiting_bytes(), self.dropped_total)
    }

    /// Writes until nothing waits or the writer would block. Returns false in the latter case, and while the report of
    /// drops must wait.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn write_to(&mut self, writer: &mut impl Write) -> io::Result<bool> {
        while self.unwritten.write_to(writer)? {
            if self.dropped.is_empty() {
                return Ok(true);
            }
            if self.has_waiting_report() {
                return Ok(false);
            }
            self.report_dropped();
        }
        Ok(false)
    }

    /// Returns whether the report of drops waits until the client has read more buffers: until then the span of drops
    /// goes on.
    pub(crate) fn has_waiting_report(&self) -> bool {
        !self.dropped.is_empty() && self.limits.bytes_max / 2 < self.unread_buffers.bytes()
    }

    fn drop_for(&mut self, subs: &[SubId], count: u64) -> PushOutcome {
        let begins_drops = self.dropped.is_empty();
        for sub in subs {
            *self.dropped.entry(*sub).or_default() += count;
            self.dropped_total += count;
        }
        PushOutcome { accepted: 0, begins_drops }
    }

    /// Appends the counts of events dropped since the previous frame.
    fn report_dropped(&mut self) {
        if self.dropped.is_empty() {
            return;
        }
        let counts: Vec<(SubId, u64)> = std::mem::take(&mut self.dropped).into_iter().collect();
        for counts in counts.chunks(FRAME_SUBS_MAX) {
            self.unwritten.out.put_with(|tail| PeerFrame::Dropped { counts: counts.to_vec() }.encode(tail));
            self.unwritten.count_events(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::frame::Welcome;
    use crate::listener::local::ClientEndpoint;
    use crate::listener::value::delivery_body;
    use crate::message::{Cause, Delivery, Dseq, Epoch, LossScope, Message, Publisher, Reason, Verdict};
    use crate::rng::Rng;
    use crate::seqno::Seq;
    use crate::time::WallTime;

    /// A client that takes `room` bytes and then blocks.
    struct Slow {
        caller: ClientEndpoint,
        room: usize,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= taken;
            self.caller.push(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow(outbox: &mut ClientOutbox) -> Slow {
        let mut slow = Slow { caller: ClientEndpoint::new(), room: 10_000 };
        outbox.push_answer(&PeerFrame::Welcome(Welcome::any()));
        assert!(outbox.write_to(&mut slow).unwrap());
        assert!(matches!(slow.caller.poll_frame(), Ok(Some(PeerFrame::Welcome(_)))));
        slow
    }

    fn publisher() -> Publisher {
        Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 }
    }

    fn body(number: u32, bytes: usize) -> Bytes {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(4 + bytes, 0);
        let message = Message::new("a".parse().unwrap(), payload);
        delivery_body(&Delivery::new(message, publisher(), None, Verdict::Direct)).freeze()
    }

    fn loss() -> Loss {
        let what = LossScope::Tail { after: Dseq(1) };
        Loss { publisher: publisher(), what, reason: Reason::Silent, cause: Cause::Network, at: WallTime::EPOCH }
    }

    #[test]
    fn slow_client_gets_drop_counts_in_place() {
        let mut outbox = ClientOutbox::new(QueueLimits { count_max: 3, bytes_max: 1 << 20 });
        let mut client = slow(&mut outbox);
        client.room = 0;
        let subs = [SubId(1), SubId(7)];
        let pushed: Vec<PushOutcome> = (0..5).map(|number| outbox.push_message(&subs, &body(number, 0))).collect();
        assert_eq!(pushed[..3], [PushOutcome { accepted: 1, begins_drops: false }; 3]);
        assert_eq!(pushed[3..], [true, false].map(|begins_drops| PushOutcome { accepted: 0, begins_drops }));
        outbox.push_loss(&subs[..1], &loss());
        assert_eq!(outbox.fill().2, 4);
        client.room = usize::MAX;
        assert!(outbox.write_to(&mut client).unwrap());
        outbox.push_message(&subs, &body(5, 0));
        assert!(outbox.write_to(&mut client).unwrap());
        assert!(outbox.is_empty());
        let mut read = Vec::new();
        while let Some(frame) = client.caller.poll_frame().unwrap() {
            read.push(match frame {
                PeerFrame::Message { delivery, .. } => format!("m{}", delivery.message.payload[3]),
                PeerFrame::Loss { .. } => "loss".to_owned(),
                PeerFrame::Dropped { counts } => format!("{counts:?}"),
                other => panic!("{other:?}"),
            });
        }
        let dropped = "[(SubId(1), 2), (SubId(7), 2)]";
        assert_eq!(read, ["m0", "m1", "m2", dropped, "loss", "m5"]);
    }

    fn run(number: u32, count: u32) -> Deliveries {
        let message = |number: u32| Message::new("a".parse().unwrap(), number.to_be_bytes().to_vec());
        let messages: Vec<Message> = (number..number + count).map(message).collect();
        Deliveries::run_of(&messages, Seq::new(1).unwrap(), publisher(), Verdict::Next)
    }

    #[test]
    fn run_is_cut_at_the_queue_limit() {
        let mut outbox = ClientOutbox::new(QueueLimits { count_max: 8, bytes_max: 1 << 20 });
        let mut client = slow(&mut outbox);
        client.room = 0;
        let subs = [SubId(1), SubId(7)];
        assert_eq!(outbox.push_run(&subs, run(0, 5)), PushOutcome { accepted: 5, begins_drops: false });
        assert_eq!(outbox.push_run(&subs, run(5, 5)), PushOutcome { accepted: 3, begins_drops: true });
        assert_eq!(outbox.push_run(&subs, run(10, 4)), PushOutcome { accepted: 0, begins_drops: false });
        assert_eq!((outbox.fill().0, outbox.fill().2), (8, 12));
        client.room = usize::MAX;
        assert!(outbox.write_to(&mut client).unwrap());
        let mut read = Vec::new();
        while let Some(frame) = client.caller.poll_frame().unwrap() {
            match frame {
                PeerFrame::MessageRun { deliveries, .. } => {
                    read.extend(deliveries.map(|d| u64::from(d.message.payload[3])))
                }
                PeerFrame::Dropped { counts } => read.extend(counts.iter().map(|(_, count)| 100 + count)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(read, [0, 1, 2, 3, 4, 5, 6, 7, 106, 106]);
    }

    #[test]
    fn every_pushed_message_is_read_or_counted() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut outbox = ClientOutbox::new(QueueLimits { count_max: 40, bytes_max: 100_000 });
            let mut client = slow(&mut outbox);
            let (mut pushed, mut read, mut dropped, mut next) = (0u64, 0u64, 0u64, 0u64);
            for step in 0..2000u32 {
                let size = if rng.chance(0.1) { rng.below(30_000) } else { rng.below(50) };
                let number = u32::try_from(pushed).unwrap();
                if rng.chance(0.1) {
                    let count = u32::try_from(rng.between(1, 20)).unwrap();
                    outbox.push_run(&[SubId(1)], run(number, count));
                    pushed += u64::from(count);
                } else {
                    outbox.push_message(&[SubId(1)], &body(number, usize::try_from(size).unwrap()));
                    pushed += 1;
                }
                client.room = usize::try_from(rng.below(2_000)).unwrap();
                if step == 1999 {
                    client.room = usize::MAX;
                }
                outbox.write_to(&mut client).unwrap();
                while let Some(frame) = client.caller.poll_frame().unwrap() {
                    let deliveries = match frame {
                        PeerFrame::Message { delivery, .. } => Deliveries::from(delivery),
                        PeerFrame::MessageRun { deliveries, .. } => deliveries,
                        PeerFrame::Dropped { counts } => {
                            dropped += counts[0].1;
                            next += counts[0].1;
                            continue;
                        }
                        other => panic!("{other:?}"),
                    };
                    for delivery in deliveries {
                        let number = u32::from_be_bytes(delivery.message.payload[..4].try_into().unwrap());
                        assert_eq!(u64::from(number), next, "the drop count is delivered in place");
                        read += 1;
                        next += 1;
                    }
                }
            }
            assert!(outbox.is_empty());
            assert_eq!(outbox.fill(), (0, 0, dropped));
            assert_eq!(read + dropped, pushed, "seed {seed}");
            assert!(0 < dropped && 0 < read, "seed {seed}: {read} {dropped}");
        }
    }

    #[test]
    fn unread_answers_backpressure_only_their_client() {
        let mut outbox = ClientOutbox::new(QueueLimits { count_max: 3, bytes_max: 1 << 20 });
        let mut client = slow(&mut outbox);
        client.room = 0;
        outbox.push_answer(&PeerFrame::Shown { id: 1, answer: vec![b' '; 2 << 20].into() });
        assert!(outbox.is_backpressured() && !outbox.exceeds_answer_limit());
        for id in 0..15 {
            outbox.push_answer(&PeerFrame::Answered { id, answer: Ok(vec![0; 1 << 20].into()) });
        }
        assert!(outbox.exceeds_answer_limit());
        client.room = usize::MAX;
        assert!(outbox.write_to(&mut client).unwrap());
        assert!(!outbox.is_backpressured());
        assert_eq!(outbox.fill(), (0, 0, 0));
    }

    #[test]
    fn unread_buffers_delay_the_drop_report() {
        let mut outbox = ClientOutbox::new(QueueLimits { count_max: 100, bytes_max: 1_000_000 });
        let mut client = slow(&mut outbox);
        let subs = [SubId(1)];
        let message = Message::new("a".parse().unwrap(), "");
        let body = delivery_body(&Delivery::new(message, publisher(), None, Verdict::Direct));
        let lent = |bytes| LentPayload { bytes, index: 0, is_new: false };
        let mut tail = 0;
        // The first three have room, and each reaches the client at once.
        let pushed = [300_000; 4].map(|bytes| {
            let pushed = outbox.push_buffer(&subs, &body, lent(bytes), tail, || true).unwrap();
            tail += outbox.unwritten.bytes() as u64;
            assert_eq!(outbox.write_to(&mut client).unwrap(), pushed.accepted == 1);
            pushed.accepted
        });
        assert_eq!(pushed, [1, 1, 1, 0]);
        assert_eq!(
            outbox.push_buffer(&subs, &body, lent(70_000), tail, || true).unwrap().accepted,
            0,
            "the span goes on"
        );
        assert_eq!((outbox.has_waiting_report(), outbox.fullness()), (true, 0));
        let frames = |client: &mut Slow| {
            std::iter::from_fn(|| client.caller.poll_frame().unwrap())
                .map(|frame| matches!(frame, PeerFrame::Dropped { counts } if counts == [(SubId(1), 2)]))
                .collect::<Vec<bool>>()
        };
        assert_eq!(frames(&mut client), [false; 3]);
        outbox.on_read(tail);
        assert!(outbox.write_to(&mut client).unwrap() && outbox.is_empty());
        assert_eq!(frames(&mut client), [true]);
    }
}
