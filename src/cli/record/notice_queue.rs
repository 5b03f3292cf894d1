//! The queue from the subscription to the thread that writes the file: batches of copied notices, bounded in bytes.
//!
//! Notices that do not fit are dropped and counted. The reader of the subscription never waits for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::bus::NoticeRef;
use crate::cli::recording::DropPlace;
use crate::message::{DeliveryRef, Loss, Publisher, Verdict};
use crate::seqno::Seq;

/// Maximum number of batches in the queue. While it has that many, the next batch grows.
const BATCHES_MAX: usize = 256;
/// Bytes of a notice in a batch, beside the content of a message; rounded up.
const ENTRY_BYTES: usize = 160;
const _: () = assert!(size_of::<BatchEntry>() <= ENTRY_BYTES);
/// Bytes that loss reports may take beyond the limit for messages.
const LOSS_RESERVE_BYTES: usize = 1 << 20;

/// The sending half: it copies notices into a batch.
#[derive(Debug)]
pub struct NoticeQueue {
    sender: Sender<NoticeBatch>,
    batch: NoticeBatch,
    /// Bytes of the batches that were sent and are not yet written.
    in_flight: Arc<AtomicUsize>,
    bytes_max: usize,
    /// Messages and loss reports dropped since the last accepted notice.
    pending_drops: u64,
    counts: IntakeCounts,
}

/// Counts of the notices that reached the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntakeCounts {
    /// Messages accepted.
    pub messages: u64,
    /// Bytes of payload of these.
    pub payload_bytes: u64,
    /// Messages and loss reports dropped because the queue was full.
    pub dropped: u64,
}

/// Notices in their order.
#[derive(Debug, Default)]
pub struct NoticeBatch {
    entries: Vec<BatchEntry>,
    /// Subject, reply subject, headers and payload of each message in turn.
    content: Vec<u8>,
}

#[derive(Debug)]
enum BatchEntry {
    Message(MessageEntry),
    Loss(Box<Loss>, u64),
    Drop(DropEntry),
}

/// A message of a batch without its content.
#[derive(Debug)]
struct MessageEntry {
    publisher: Publisher,
    seq: Option<Seq>,
    offset: Option<u32>,
    verdict: Verdict,
    repaired: bool,
    replayed: bool,
    event: bool,
    log_time: u64,
    subject_bytes: usize,
    reply_bytes: usize,
    headers_bytes: usize,
    payload_bytes: usize,
}

/// Messages that were dropped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropEntry {
    /// Number of messages and loss reports.
    pub count: u64,
    /// Place of the drop.
    pub place: DropPlace,
    /// Time in nanoseconds since 1970.
    pub log_time: u64,
}

/// A message in a batch.
#[derive(Clone, Copy, Debug)]
pub struct QueuedMessage<'a> {
    /// The publisher.
    pub publisher: &'a Publisher,
    /// The subject, which was checked.
    pub subject: &'a [u8],
    /// Subject to which an answer is requested; empty if none.
    pub reply: &'a [u8],
    /// The block of header fields.
    pub headers: &'a [u8],
    /// The content.
    pub payload: &'a [u8],
    /// As in [`DeliveryRef`].
    pub seq: Option<Seq>,
    /// As in [`DeliveryRef`].
    pub offset: Option<u32>,
    /// As in [`DeliveryRef`].
    pub verdict: Verdict,
    /// As in [`DeliveryRef`].
    pub repaired: bool,
    /// As in [`DeliveryRef`].
    pub replayed: bool,
    /// As in [`DeliveryRef`].
    pub event: bool,
    /// Time of reception in nanoseconds since 1970.
    pub log_time: u64,
}

impl QueuedMessage<'_> {
    /// Returns the bytes that the message takes in a file, with its index; rounded up.
    pub fn recorded_bytes(&self) -> u64 {
        let special = if self.is_special() { 2 * self.headers.len() + 512 } else { 0 };
        (self.payload.len() + self.subject.len() + self.reply.len() + special + 512) as u64
    }

    /// Returns whether there is more to say about the message than its subject, publisher, numbers and payload.
    pub fn is_special(&self) -> bool {
        self.repaired
            || self.replayed
            || self.event
            || !self.reply.is_empty()
            || !self.headers.is_empty()
            || matches!(self.verdict, Verdict::Skip(_))
    }
}

/// A notice in a batch.
#[derive(Clone, Copy, Debug)]
pub enum QueuedNotice<'a> {
    /// A message.
    Message(QueuedMessage<'a>),
    /// A loss, and the time of its report in nanoseconds since 1970.
    Loss(&'a Loss, u64),
    /// Messages that were dropped here.
    Drop(DropEntry),
}

/// The receiving half.
#[derive(Debug)]
pub struct NoticeReceiver {
    /// The batches.
    pub batches: Receiver<NoticeBatch>,
    in_flight: Arc<AtomicUsize>,
}

/// Creates a queue in which messages take at most `bytes_max` bytes.
pub fn notice_queue(bytes_max: usize) -> (NoticeQueue, NoticeReceiver) {
    let (sender, batches) = bounded(BATCHES_MAX);
    let in_flight = Arc::new(AtomicUsize::new(0));
    let queue = NoticeQueue {
        sender,
        batch: NoticeBatch::default(),
        in_flight: in_flight.clone(),
        bytes_max,
        pending_drops: 0,
        counts: IntakeCounts::default(),
    };
    (queue, NoticeReceiver { batches, in_flight })
}

impl NoticeQueue {
    /// Copies a notice that was received at this time (nanoseconds since 1970) into the batch, or drops it.
    pub fn push(&mut self, notice: NoticeRef<'_>, log_time: u64) {
        match notice {
            NoticeRef::Message(delivery) => self.push_message(delivery, log_time),
            NoticeRef::Loss(loss) => {
                if self.make_room(ENTRY_BYTES, self.bytes_max.saturating_add(LOSS_RESERVE_BYTES), log_time) {
                    self.batch.entries.push(BatchEntry::Loss(Box::new(loss.clone()), log_time));
                }
            }
            NoticeRef::Dropped(count) => {
                self.push_pending_drops(log_time);
                self.push_drops(count, DropPlace::Subscription, log_time);
            }
            NoticeRef::Joined(_) => {}
        }
    }

    fn push_message(&mut self, delivery: &DeliveryRef<'_>, log_time: u64) {
        let DeliveryRef { subject, reply, headers, payload, .. } = *delivery;
        let subject = subject.as_bytes();
        let bytes = ENTRY_BYTES + subject.len() + reply.len() + headers.len() + payload.len();
        if !self.make_room(bytes, self.bytes_max, log_time) {
            return;
        }
        self.counts.messages += 1;
        self.counts.payload_bytes += payload.len() as u64;
        for part in [subject, reply, headers, payload] {
            self.batch.content.extend_from_slice(part);
        }
        self.batch.entries.push(BatchEntry::Message(MessageEntry {
            publisher: delivery.publisher.clone(),
            seq: delivery.seq,
            offset: delivery.offset,
            verdict: delivery.verdict,
            repaired: delivery.repaired,
            replayed: delivery.replayed,
            event: delivery.event,
            log_time,
            subject_bytes: subject.len(),
            reply_bytes: reply.len(),
            headers_bytes: headers.len(),
            payload_bytes: payload.len(),
        }));
    }

    /// Returns whether a notice of `bytes` bytes fits, so that the queue has at most `bytes_max`, and then reports the
    /// drops before it. Otherwise the notice is counted as dropped.
    fn make_room(&mut self, bytes: usize, bytes_max: usize, log_time: u64) -> bool {
        let fits = self.in_flight.load(Ordering::Relaxed) + self.batch.bytes() + bytes <= bytes_max;
        if fits {
            self.push_pending_drops(log_time);
        } else {
            self.pending_drops += 1;
            self.counts.dropped += 1;
        }
        fits
    }

    /// Adds an entry for the notices dropped before the present one.
    fn push_pending_drops(&mut self, log_time: u64) {
        let count = std::mem::take(&mut self.pending_drops);
        if 0 < count {
            self.push_drops(count, DropPlace::Recorder, log_time);
        }
    }

    /// Adds drops to the last entry if that reports drops at the same place, so that they need no room.
    fn push_drops(&mut self, count: u64, place: DropPlace, log_time: u64) {
        match self.batch.entries.last_mut() {
            Some(BatchEntry::Drop(last)) if last.place == place => last.count += count,
            _ => self.batch.entries.push(BatchEntry::Drop(DropEntry { count, place, log_time })),
        }
    }

    /// Sends the batch, unless the queue has its maximum number of batches; then the batch stays and grows.
    pub fn send(&mut self) {
        if self.batch.entries.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let bytes = batch.bytes();
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        match self.sender.try_send(batch) {
            Ok(()) => {}
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
                self.batch = batch;
            }
        }
    }

    /// Sends the rest, with the drops at its end, and waits for room if necessary. Returns the counts.
    pub fn finish(mut self, log_time: u64) -> IntakeCounts {
        self.push_pending_drops(log_time);
        if !self.batch.entries.is_empty() {
            self.in_flight.fetch_add(self.batch.bytes(), Ordering::Relaxed);
            // The receiver ends early only after a failure, which it reports.
            drop(self.sender.send(self.batch));
        }
        self.counts
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> IntakeCounts {
        self.counts
    }
}

impl NoticeReceiver {
    /// Reports that a batch of this number of bytes is written, so that others find room.
    pub fn release(&self, bytes: usize) {
        self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl NoticeBatch {
    /// Returns the bytes that count against the limit.
    pub fn bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES + self.content.len()
    }

    /// Calls `each` with the notices in their order, until it fails.
    ///
    /// # Errors
    /// The error of `each`.
    pub fn visit<E>(&self, mut each: impl FnMut(QueuedNotice<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut rest = &self.content[..];
        let mut take = |bytes: usize| {
            let (taken, others) = rest.split_at(bytes);
            rest = others;
            taken
        };
        for entry in &self.entries {
            match entry {
                BatchEntry::Loss(loss, log_time) => each(QueuedNotice::Loss(loss, *log_time))?,
                BatchEntry::Drop(drop) => each(QueuedNotice::Drop(*drop))?,
                BatchEntry::Message(entry) => each(QueuedNotice::Message(QueuedMessage {
                    publisher: &entry.publisher,
                    subject: take(entry.subject_bytes),
                    reply: take(entry.reply_bytes),
                    headers: take(entry.headers_bytes),
                    payload: take(entry.payload_bytes),
                    seq: entry.seq,
                    offset: entry.offset,
                    verdict: entry.verdict,
                    repaired: entry.repaired,
                    replayed: entry.replayed,
                    event: entry.event,
                    log_time: entry.log_time,
                }))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Cause, Delivery, Epoch, LossScope, Message, Reason};
    use crate::time::WallTime;

    #[test]
    fn dropped_loss_report_is_counted() {
        let (mut queue, receiver) = notice_queue(0);
        let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 };
        let what = LossScope::Inbox { messages: 1 };
        let loss = Loss { publisher, what, reason: Reason::Deadline, cause: Cause::Network, at: WallTime::EPOCH };
        let accepted = LOSS_RESERVE_BYTES / ENTRY_BYTES;
        for _ in 0..accepted + 2 {
            queue.push(NoticeRef::Loss(&loss), 7);
        }
        assert_eq!(queue.finish(8).dropped, 2);
        let batch = receiver.batches.recv().unwrap();
        assert_eq!(batch.entries.len(), accepted + 1);
        let last = DropEntry { count: 2, place: DropPlace::Recorder, log_time: 8 };
        assert!(matches!(batch.entries.last(), Some(BatchEntry::Drop(drop)) if *drop == last));
    }

    #[test]
    fn full_queue_drops_and_counts_exactly() {
        let (mut queue, receiver) = notice_queue(4 * (ENTRY_BYTES + 100));
        let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 };
        let message = Message::new("a.b".parse().unwrap(), vec![b'x'; 97]);
        let delivery = Delivery::new(message, publisher, None, Verdict::Direct);
        let push = |queue: &mut NoticeQueue, count: u64| {
            for _ in 0..count {
                queue.push(NoticeRef::Message(&(&delivery).into()), 7);
                queue.send();
            }
        };
        push(&mut queue, 10);
        assert_eq!((queue.counts().messages, queue.counts().dropped), (4, 6));
        let batch = receiver.batches.recv().unwrap();
        receiver.release(batch.bytes());
        push(&mut queue, 1);
        assert_eq!((queue.counts().messages, queue.counts().payload_bytes, queue.counts().dropped), (5, 5 * 97, 6));
        queue.push(NoticeRef::Dropped(3), 8);
        push(&mut queue, 2);
        let counts = queue.finish(9);
        assert_eq!(counts.dropped, 8);
        let mut drops = Vec::new();
        while let Ok(batch) = receiver.batches.recv() {
            let visited: Result<(), ()> = batch.visit(|notice| {
                match notice {
                    QueuedNotice::Drop(DropEntry { count, place, log_time }) => drops.push((count, place, log_time)),
                    QueuedNotice::Message(message) => {
                        assert_eq!((message.subject, message.payload.len()), (&b"a.b"[..], 97))
                    }
                    QueuedNotice::Loss(..) => {}
                }
                Ok(())
            });
            assert_eq!(visited, Ok(()));
        }
        // An entry of drops precedes the next accepted message, or ends the queue.
        let (recorder, subscription) = (DropPlace::Recorder, DropPlace::Subscription);
        assert_eq!(drops, [(6, recorder, 7), (3, subscription, 8), (2, recorder, 9)]);
    }
}
