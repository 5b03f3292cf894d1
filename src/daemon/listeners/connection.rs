//! One client of a listener: its stream, its conversation, what waits to be written to it and what it did not get.

use super::drops::DropCounts;
use super::stream::Stream;
use crate::daemon::flow::{ConnectionState, ReadOutcome, WriteBuffer};
use crate::daemon::outbox::PushOutcome;
use crate::daemon::queue::QueueLimits;
use crate::listener::client::{ClientParser, ClientSession, Settings};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{ConnectionInfo, SessionRequest};
use crate::message::{Count, SubId};
use crate::proto::delivery::Deliveries;
use crate::time::Instant;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a client may take to encrypt, where it must or has begun to.
const HANDSHAKE_TIME: Duration = Duration::from_secs(2);
/// About as many bytes, or one message to one subscription, are handed to a client before it is looked at again whether it has room.
/// By no more than that what waits for it is above its limit. Most batches are smaller.
const DELIVERY_CHUNK_BYTES: usize = 256 * 1024;
/// What is written around a message at least.
const MESSAGE_OVERHEAD_BYTES: usize = 32;

/// A client of a listener.
#[derive(Debug)]
pub(crate) struct ListenerConnection {
    pub(crate) stream: Stream,
    pub(crate) parser: ClientParser,
    pub(crate) session: ClientSession,
    pub(crate) unwritten: WriteBuffer,
    pub(crate) flow: ConnectionState,
    /// Where it comes from.
    pub(crate) from: SocketAddr,
    /// Which of the listeners.
    pub(crate) listener: usize,
    /// The account it proved to be, once it is admitted.
    pub(crate) account: Option<String>,
    /// It has not proven who it is, or not encrypted what must be.
    pub(crate) is_unauthenticated: bool,
    /// When it must have come to the end of encrypting, as long as it must or has begun to.
    handshake_deadline: Option<Instant>,
    /// Whether it is among those to be served.
    pub(crate) is_scheduled: bool,
    /// When it is to be called at the latest.
    pub(crate) wake: Option<Instant>,
    /// Until its subscriptions are known up to this version nothing is written, and nothing taken but more of them.
    pub(crate) unconfirmed: Option<u64>,
    /// When it ends at the latest, once it is to end.
    pub(crate) close_deadline: Option<Instant>,
    limits: QueueLimits,
    /// What it held when [`ListenerMemory`](super::memory::ListenerMemory) last looked.
    pub(super) accounted_bytes: usize,
    /// What it did not get since it was last told.
    pub(crate) lost: DropCounts,
    /// Dropped in all.
    pub(crate) dropped: u64,
}

impl ListenerConnection {
    pub(crate) fn new(
        stream: Stream,
        settings: &Settings,
        hello: &ConnectionInfo,
        listener: usize,
        limits: QueueLimits,
        now: Instant,
    ) -> ListenerConnection {
        let mut connection = ListenerConnection {
            stream,
            parser: ClientParser::new(settings),
            session: ClientSession::new(settings, hello, now),
            unwritten: WriteBuffer::default(),
            flow: ConnectionState::new(),
            from: hello.from,
            listener,
            account: None,
            is_unauthenticated: true,
            handshake_deadline: None,
            is_scheduled: false,
            wake: None,
            unconfirmed: None,
            close_deadline: None,
            limits,
            accounted_bytes: 0,
            lost: DropCounts::default(),
            dropped: 0,
        };
        connection.answer(|session, out| session.on_open(out));
        connection.note_encryption(now);
        connection
    }

    /// Looks how far the client has come with encrypting.
    pub(crate) fn note_encryption(&mut self, now: Instant) {
        let is_on_its_way = self.stream.awaits_encryption() || self.stream.is_handshaking();
        self.handshake_deadline = is_on_its_way.then(|| self.handshake_deadline.unwrap_or(now + HANDSHAKE_TIME));
    }

    /// Whether it has proven who it is, as far as it must, and encrypts, if it must.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.account.is_some() && self.handshake_deadline.is_none()
    }

    /// When something has to be said or done about the client.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.session.deadline().into_iter().chain(self.handshake_deadline).min()
    }

    /// Whether something can be done for the client now, as far as is known.
    pub(crate) fn has_input(&self) -> bool {
        !self.unwritten.is_backpressured()
            && !self.session.is_full()
            && self.unconfirmed.is_none()
            && self.flow.has_input()
    }

    /// Has the session say something that answers the client.
    pub(crate) fn answer<T>(&mut self, say: impl FnOnce(&mut ClientSession, &mut OutputBuffer) -> T) -> T {
        let said = say(&mut self.session, &mut self.unwritten.out);
        self.unwritten.note_answers();
        said
    }

    /// What the session asks of the peer next.
    pub(crate) fn poll_request(&mut self) -> Option<SessionRequest<'static>> {
        self.session.poll_request(!self.unwritten.is_backpressured())
    }

    /// Hands on messages for these subscriptions as long as there is room, and drops the others. There is none when the client
    /// has had its share of the memory of all.
    pub(crate) fn deliver(&mut self, subs: &[SubId], deliveries: &Deliveries, has_share: bool) -> PushOutcome {
        let subs = self.session.delivery_subs(subs);
        if !has_share || !self.has_room() {
            return PushOutcome { taken: 0, begins_drops: self.drop_all(subs, deliveries) };
        }
        let bytes = deliveries.bytes() + deliveries.len() * MESSAGE_OVERHEAD_BYTES;
        if bytes.saturating_mul(subs.len()) <= DELIVERY_CHUNK_BYTES {
            return PushOutcome { taken: self.write_deliveries(subs, deliveries), begins_drops: false };
        }
        let mut pushed = PushOutcome { taken: 0, begins_drops: false };
        let mut rest = deliveries.clone();
        while self.has_room()
            && let Some(delivery) = rest.next()
        {
            let message = Deliveries::from(delivery);
            let piece = (DELIVERY_CHUNK_BYTES / (message.bytes() + MESSAGE_OVERHEAD_BYTES)).max(1);
            let mut left = subs;
            while !left.is_empty() && self.has_room() {
                let (some, others) = left.split_at(piece.min(left.len()));
                pushed.taken += self.write_deliveries(some, &message);
                left = others;
            }
            pushed.begins_drops |= self.drop_rest(left, &message);
        }
        pushed.begins_drops |= self.drop_rest(subs, &rest);
        pushed
    }

    /// Gives how many messages are written.
    fn write_deliveries(&mut self, subs: &[SubId], deliveries: &Deliveries) -> usize {
        let taken = self.session.on_deliveries(subs, deliveries, &mut self.unwritten.out);
        self.unwritten.note_events(taken);
        taken
    }

    /// Whether more messages are taken for it: after a drop when half of the room is free again, and it has been told of what it
    /// did not get.
    pub(crate) fn has_room(&self) -> bool {
        self.lost.is_empty() && self.is_within(1)
    }

    /// Whether the client, which has lost something, can be told of it.
    pub(crate) fn can_report_drops(&self) -> bool {
        !self.lost.is_empty() && self.is_within(2)
    }

    fn is_within(&self, part: usize) -> bool {
        self.unwritten.bytes() < self.limits.bytes_max / part
            && self.unwritten.events() < self.limits.count_max.div_ceil(part)
    }

    /// Drops what is left of messages of which some were handed on: none for subscriptions that ended with one of these.
    fn drop_rest(&mut self, subs: &[SubId], deliveries: &Deliveries) -> bool {
        if subs.is_empty() || deliveries.len() == 0 {
            return false;
        }
        let subs: Vec<SubId> = subs.iter().copied().filter(|sub| self.session.has_subscription(*sub)).collect();
        !subs.is_empty() && self.drop_all(&subs, deliveries)
    }

    /// Whether the client begins to lose messages with these.
    fn drop_all(&mut self, subs: &[SubId], deliveries: &Deliveries) -> bool {
        let begins_drops = self.lost.is_empty();
        let count = deliveries.len() as u64;
        if let Some(first) = deliveries.clone().next() {
            self.lost.add(&first.message.subject, count * subs.len() as u64);
        }
        self.dropped += count * subs.len() as u64;
        self.session.on_lost(subs, Count::Exact(count));
        begins_drops
    }

    /// How full what waits for it is, in parts of 1,024; 0 while it drops anyway.
    pub(crate) fn fullness(&self) -> u64 {
        let (events, bytes) = (self.unwritten.events(), self.unwritten.bytes());
        if self.lost.is_empty() { self.limits.fullness(events, bytes) } else { 0 }
    }

    /// (messages that wait, bytes that wait, messages dropped in all).
    pub(crate) fn fill(&self) -> (usize, usize, u64) {
        (self.unwritten.events(), self.unwritten.bytes(), self.dropped)
    }

    /// Bytes that it has sent and not ended, and that wait to be written to it.
    pub(crate) fn held_bytes(&self) -> usize {
        self.parser.held_bytes() + self.session.held_bytes() + self.unwritten.bytes()
    }

    /// Those of them that nobody else counts.
    pub(super) fn own_bytes(&self) -> usize {
        self.parser.held_bytes() + self.session.held_bytes() + self.unwritten.own_bytes()
    }

    /// Reads once, into the parser, by way of `scratch`.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> ReadOutcome {
        let is_plain = self.stream.is_plain();
        self.flow.read(&mut self.stream, is_plain, scratch, |bytes| self.parser.push(bytes))
    }

    /// Writes what waits, as far as the stream takes it. False at the end of a connection that the peer ends.
    pub(crate) fn write(&mut self) -> bool {
        self.session.flush_events(&mut self.unwritten.out);
        self.unwritten.note_events(0);
        if self.unconfirmed.is_some() {
            return true;
        }
        let ListenerConnection { flow, unwritten, stream, .. } = self;
        let goes_on = flow.write(|| Ok(unwritten.write_to(stream)? && flush(stream)?));
        if flow.is_write_closed() {
            unwritten.clear();
        }
        goes_on
    }

    /// Whether there is something to write.
    pub(crate) fn has_output(&self) -> bool {
        0 < self.unwritten.bytes() || !self.stream.is_flushed()
    }
}

/// Whether the stream keeps nothing back.
fn flush(stream: &mut Stream) -> io::Result<bool> {
    match stream.flush() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        outcome => outcome.map(|()| stream.is_flushed()),
    }
}
