//! The durable messages of a LAN that the stream of the cluster has not stored yet.
//!
//! Each gateway keeps all of them, oldest first for each share. The gateway that carries a share sends them, and removes
//! what the stream has stored. The others remove what that gateway has announced as stored, some seconds later.
//!
//! Messages may be sent twice: the stream drops one of two with the same id, and importers drop what is not newer. Those
//! that the stream has stored are [retained](RetainedMessages) for some time, in case it loses them.

use super::restore_request::MissingMessages;
use super::retained_messages::RetainedMessages;
use super::stored::{OtherId, with_other_id};
use crate::link::shares::SHARES;
use crate::message::Message;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Time for which a gateway keeps a message longer than the gateway that carries its share: longer than the repair of a
/// LAN and two announcements take.
pub(super) const RETAIN_TIME: Duration = Duration::from_millis(3_500);
/// Pause after a message that was not stored.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Age of a message from which an earlier copy may be too old for importers, which refuse signatures from more than 5
/// minutes before the message was stored. A gateway may have signed such a copy before an outage, and sent it after that.
const COPY_AGE_MAX: Duration = Duration::from_secs(240);
/// Maximum number of messages that are sent and not answered.
pub const UNANSWERED_MAX: usize = 4096;
/// Maximum bytes of these messages.
const UNANSWERED_BYTES_MAX: usize = 8 << 20;
/// Bytes that a message counts beside its payload and its header fields.
const MESSAGE_BYTES: usize = 256;
/// The queue of the messages that the stream has lost, behind those of the shares. Each gateway sends its own.
const RESTORED: u8 = SHARES;
/// Number of queues.
const QUEUES: u8 = SHARES + 1;

/// A message that was sent to the stream, for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolTicket {
    queue: u8,
    index: u64,
    /// Number of times that it had been sent by then.
    attempt: u32,
    bytes: usize,
}

impl SpoolTicket {
    /// Returns whether the message is one that the stream had lost.
    pub(super) fn is_restored(&self) -> bool {
        self.queue == RESTORED
    }
}

/// Answer to a message that was sent to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The stream has stored it.
    Stored {
        /// Its stream sequence.
        sequence: u64,
    },
    /// The stream had stored a message with its id before.
    Duplicate {
        /// Stream sequence of that one.
        sequence: u64,
    },
    /// It is not known to be stored. It is sent again.
    Failed,
    /// The stream never takes it, for example because of its size.
    Refused,
}

#[derive(Debug)]
struct SpooledMessage {
    at: Instant,
    message: Message,
    /// Number of times that it was sent.
    attempts: u32,
    is_stored: bool,
    has_other_id: bool,
    /// A stream sequence that the stream had given before the message came.
    stored_behind: u64,
    /// Whether it is retained once it is stored.
    is_retained: bool,
}

impl SpooledMessage {
    fn bytes(&self) -> usize {
        MESSAGE_BYTES + self.message.body_bytes()
    }
}

/// The messages of a share, or those that the stream has lost.
#[derive(Debug, Default)]
struct ShareSpool {
    messages: VecDeque<SpooledMessage>,
    /// Index of the first of these; indices count all messages of the share.
    first: u64,
    /// Index of the next message to be sent.
    next: u64,
    /// Index below which messages are this gateway's to send, although another one carries the share.
    own_end: u64,
    is_carried: bool,
    /// Time before which nothing is sent.
    retry_at: Instant,
}

impl ShareSpool {
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    fn has_own(&self) -> bool {
        !self.messages.is_empty() && self.first < self.own_end
    }

    /// Returns the index of the next message to be sent, if there is one.
    fn next_index(&mut self, now: Instant) -> Option<u64> {
        let end = if self.is_carried { self.end() } else { self.own_end.min(self.end()) };
        if now < self.retry_at {
            return None;
        }
        self.next = self.next.max(self.first);
        while self.next < end && self.messages[(self.next - self.first) as usize].is_stored {
            self.next += 1;
        }
        Some(self.next).filter(|next| *next < end)
    }

    /// Removes the first message.
    fn pop(&mut self) -> Option<SpooledMessage> {
        self.first += 1;
        self.messages.pop_front()
    }
}

/// The spool of a gateway.
#[derive(Debug)]
pub(super) struct Spool {
    /// The messages of each share, and those of [`RESTORED`].
    shares: [ShareSpool; QUEUES as usize],
    bytes: usize,
    bytes_max: usize,
    unanswered: usize,
    unanswered_bytes: usize,
    /// The queue whose turn it is.
    turn: u8,
    /// Bytes of the messages that the stream has lost.
    restored_bytes: usize,
    /// The last stream sequence that is known to be given.
    stream_end: u64,
    retained: RetainedMessages,
}

impl Spool {
    /// Creates a spool that keeps at most these bytes.
    pub(super) fn new(bytes_max: usize) -> Spool {
        let shares = std::array::from_fn(|queue| ShareSpool {
            is_carried: queue == usize::from(RESTORED),
            ..ShareSpool::default()
        });
        Spool {
            shares,
            bytes: 0,
            bytes_max,
            unanswered: 0,
            unanswered_bytes: 0,
            turn: 0,
            restored_bytes: 0,
            stream_end: 0,
            retained: RetainedMessages::default(),
        }
    }

    /// Returns whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the number of messages, and their bytes.
    pub(super) fn size(&self) -> SpoolSize {
        let messages = self.shares.iter().map(|share| share.messages.len()).sum();
        SpoolSize { messages, bytes: self.bytes }
    }

    /// Appends a message. Returns false if there is no room for it.
    pub(super) fn push(&mut self, now: Instant, share: u8, message: Message) -> bool {
        let message = self.new_message(now, message);
        self.push_message(share, message)
    }

    fn new_message(&self, now: Instant, message: Message) -> SpooledMessage {
        SpooledMessage {
            at: now,
            message,
            attempts: 0,
            is_stored: false,
            has_other_id: false,
            stored_behind: self.stream_end,
            is_retained: true,
        }
    }

    fn push_message(&mut self, queue: u8, message: SpooledMessage) -> bool {
        if self.bytes_max < self.bytes + message.bytes() {
            return false;
        }
        self.bytes += message.bytes();
        self.shares[usize::from(queue)].messages.push_back(message);
        true
    }

    /// Begins to send the messages of a share, or leaves those that come from now on to another gateway.
    pub(super) fn set_carried(&mut self, share: u8, is_carried: bool) {
        let share = &mut self.shares[usize::from(share)];
        if share.is_carried && !is_carried {
            share.own_end = share.end();
        }
        share.is_carried = is_carried;
    }

    /// Returns the next message to be sent.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(SpoolTicket, &Message)> {
        if UNANSWERED_MAX <= self.unanswered || UNANSWERED_BYTES_MAX <= self.unanswered_bytes {
            return None;
        }
        let turns = (0..QUEUES).map(|step| (self.turn + step) % QUEUES);
        let (queue, index) =
            turns.filter_map(|queue| Some((queue, self.shares[usize::from(queue)].next_index(now)?))).next()?;
        self.turn = (queue + 1) % QUEUES;
        let spool = &mut self.shares[usize::from(queue)];
        spool.next = index + 1;
        let waiting = &mut spool.messages[(index - spool.first) as usize];
        waiting.attempts = waiting.attempts.wrapping_add(1);
        let ticket = SpoolTicket { queue, index, attempt: waiting.attempts, bytes: waiting.bytes() };
        self.unanswered += 1;
        self.unanswered_bytes += ticket.bytes;
        Some((ticket, &waiting.message))
    }

    /// Handles the answer to a message. Each ticket has one. Returns whether the message is sent again at once, with another
    /// id: importers drop one of both by its number.
    pub(super) fn on_outcome(&mut self, now: Instant, ticket: SpoolTicket, outcome: StoreOutcome) -> bool {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.unanswered_bytes = self.unanswered_bytes.saturating_sub(ticket.bytes);
        let share = &mut self.shares[usize::from(ticket.queue)];
        let index = ticket.index.checked_sub(share.first);
        let Some(message) = index.and_then(|index| share.messages.get_mut(index as usize)) else { return false };
        if outcome == StoreOutcome::Failed {
            // All that follow are sent again, too: so they stay in order.
            if !message.is_stored && message.attempts == ticket.attempt {
                share.next = share.next.min(ticket.index);
                share.retry_at = now + RETRY_PAUSE;
            }
            return false;
        }
        let is_duplicate = matches!(outcome, StoreOutcome::Duplicate { .. });
        let may_be_old = is_duplicate && COPY_AGE_MAX < now.since(message.at);
        if may_be_old
            && !message.has_other_id
            && let Ok(headers) = with_other_id(&message.message.headers, OtherId::Again)
        {
            self.bytes -= message.bytes();
            (message.message.headers, message.has_other_id, message.is_retained) = (headers, true, false);
            self.bytes += message.bytes();
            share.next = share.next.min(ticket.index);
            return true;
        }
        message.is_stored = true;
        match outcome {
            StoreOutcome::Stored { sequence } | StoreOutcome::Duplicate { sequence } => {
                message.stored_behind = sequence.saturating_sub(1);
            }
            _ => message.is_retained = false,
        }
        while self.shares[usize::from(ticket.queue)].messages.front().is_some_and(|first| first.is_stored) {
            self.pop(now, ticket.queue);
        }
        false
    }

    /// Removes the first message of a queue.
    fn pop(&mut self, now: Instant, queue: u8) {
        let Some(first) = self.shares[usize::from(queue)].pop() else { return };
        self.bytes -= first.bytes();
        self.restored_bytes -= if queue == RESTORED { first.bytes() } else { 0 };
        if first.is_retained {
            self.retained.put(now, first.stored_behind, &first.message);
        }
    }

    /// Notes that the stream has given this sequence.
    pub(super) fn on_stream_end(&mut self, sequence: u64) {
        self.stream_end = sequence;
    }

    /// Sends messages once more that the stream has lost. `first` is the sequence of the first message of the stream. Other
    /// gateways may send them as well, with the same id. Returns their number.
    pub(super) fn restore(&mut self, now: Instant, missing: &MissingMessages, first: u64) -> u64 {
        let mut restored = 0;
        for seq in self.retained.restorable(missing, first) {
            let Some(message) = self.retained.message(&missing.stream, seq).cloned() else { continue };
            let Ok(headers) = with_other_id(&message.headers, OtherId::Restored) else { continue };
            let message = self.new_message(now, Message { headers, ..message });
            let message = SpooledMessage { has_other_id: true, is_retained: false, ..message };
            // They leave the room to new messages.
            let bytes = message.bytes();
            if self.bytes_max / 4 < self.restored_bytes + bytes || !self.push_message(RESTORED, message) {
                break;
            }
            self.restored_bytes += bytes;
            self.retained.on_restored(&missing.stream, seq);
            restored += 1;
        }
        restored
    }

    /// Forgets messages that the stream has stored long ago.
    pub(super) fn on_tick(&mut self, now: Instant) {
        self.retained.expire(now);
    }

    /// Handles the announcement of the gateway that carries a share. `heard_from`: time from which the carrier received
    /// messages; this gateway sends those from before. `stored_to`: all messages that the carrier received before this
    /// time are stored.
    pub(super) fn on_carrier(&mut self, now: Instant, share: u8, heard_from: Instant, stored_to: Instant) {
        let spool = &mut self.shares[usize::from(share)];
        let unknown = spool.messages.partition_point(|message| message.at < heard_from) as u64;
        spool.own_end = spool.own_end.max(spool.first + unknown);
        let is_stored = |spool: &ShareSpool| {
            spool.own_end <= spool.first && spool.messages.front().is_some_and(|first| first.at < stored_to)
        };
        while is_stored(&self.shares[usize::from(share)]) {
            self.pop(now, share);
        }
    }

    /// Returns whether this gateway sends messages of shares that others carry.
    pub(super) fn is_draining(&self) -> bool {
        self.shares.iter().any(|share| !share.is_carried && share.has_own())
    }

    /// Returns the time of the oldest message that this gateway has to send and that is not stored. `elects` selects the
    /// shares that it carries or is about to.
    pub(super) fn oldest(&self, elects: impl Fn(u8) -> bool) -> Option<Instant> {
        let own = (0..SHARES).zip(&self.shares).filter(|(share, spool)| elects(*share) || spool.has_own());
        own.filter_map(|(_, spool)| spool.messages.front()).map(|message| message.at).min()
    }

    /// Returns the time at which messages may be sent again, if any wait for it.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let waits = |share: &&ShareSpool| !share.messages.is_empty() && now < share.retry_at;
        self.shares.iter().filter(waits).map(|share| share.retry_at).min()
    }
}

/// Size of a spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolSize {
    /// Number of messages.
    pub messages: usize,
    /// Their bytes, with 256 for each beside its content.
    pub bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::super::stored::ID_HEADER;
    use super::*;
    use crate::message::Headers;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(1_000 + seconds)
    }

    #[test]
    fn old_duplicate_is_sent_once_more() {
        let mut spool = Spool::new(1 << 20);
        let headers = Headers::from_pairs([(ID_HEADER, "publisher 7 orders.1")]).unwrap();
        let message = Message { headers, ..Message::new("orders.1".parse().unwrap(), "payload") };
        for _ in 0..2 {
            assert!(spool.push(at(0), 3, message.clone()));
        }
        spool.set_carried(3, true);
        let next = |spool: &mut Spool, second| {
            let (ticket, message) = spool.poll(at(second)).expect("it waits");
            (ticket, message.headers.field(ID_HEADER).unwrap().to_owned())
        };
        let (first, _) = next(&mut spool, 1);
        assert!(
            !spool.on_outcome(at(1), first, StoreOutcome::Duplicate { sequence: 7 }),
            "another gateway has just stored it"
        );
        let (second, id) = next(&mut spool, 300);
        assert!(
            spool.on_outcome(at(300), second, StoreOutcome::Duplicate { sequence: 7 }),
            "the stored copy may be an old one"
        );
        let (again, other_id) = next(&mut spool, 300);
        assert_ne!(id, other_id);
        assert!(
            !spool.on_outcome(at(301), again, StoreOutcome::Duplicate { sequence: 7 }),
            "it is stored with the other id"
        );
        assert_eq!((spool.size(), spool.poll(at(301))), (SpoolSize::default(), None));
    }
}
