//! One client of a listener: its stream, its session, its unwritten output and its losses.

use super::drops::DropCounts;
use super::stream::Stream;
use crate::config::TlsFirst;
use crate::daemon::connection_state::{ConnectionState, ReadOutcome, WriteBuffer};
use crate::daemon::outbox::PushOutcome;
use crate::daemon::subscription_queue::QueueLimits;
use crate::delivery::Deliveries;
use crate::listener::client::{ClientParser, ClientSession, Settings};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{ConnectionInfo, SessionRequest};
use crate::message::{Count, Delivery, Publisher, SubId};
use crate::time::Instant;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Approximate number of bytes delivered to a client before its room is checked again; at least one message for one
/// subscription. Unwritten output exceeds its limit by no more than one such chunk. Most batches are smaller.
const DELIVERY_CHUNK_BYTES: usize = 256 * 1024;
/// Minimum bytes that the protocol adds to a message.
const MESSAGE_OVERHEAD_BYTES: usize = 32;

/// Minimum interval between reports of drops that go ahead of waiting output.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Timing of the TLS handshakes of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeTiming {
    /// Maximum time of a handshake that is required or has begun.
    pub(crate) timeout: Duration,
    /// Order of the handshake and the greeting.
    pub(crate) tls_first: TlsFirst,
}

/// A client of a listener.
#[derive(Debug)]
pub(crate) struct ListenerConnection {
    pub(crate) stream: Stream,
    pub(crate) parser: ClientParser,
    pub(crate) session: ClientSession,
    pub(crate) unwritten: WriteBuffer,
    pub(crate) flow: ConnectionState,
    /// Address of the client.
    pub(crate) from: SocketAddr,
    /// Index of its listener.
    pub(crate) listener: usize,
    /// Account of the client, once the session is admitted; empty if no accounts are configured.
    pub(crate) account: Option<String>,
    /// True until the client has authenticated, and has encrypted the stream if the listener requires that.
    pub(crate) is_unauthenticated: bool,
    /// Deadline of the TLS handshake while one is required or has begun, and of the opening of a WebSocket.
    handshake_deadline: Option<Instant>,
    /// Maximum time of a TLS handshake.
    handshake_timeout: Duration,
    /// True until the greeting of the protocol is written.
    is_greeting_pending: bool,
    /// Deadline of a pending greeting. Without one it waits for the first byte of the client.
    greeting_deadline: Option<Instant>,
    /// True if the listeners have scheduled the client to be served.
    pub(crate) is_scheduled: bool,
    /// Time at which the listeners next check the deadlines of the client.
    pub(crate) wake: Option<Instant>,
    /// Subscription version whose confirmation the client waits for. Until then the engine writes nothing to the client
    /// and processes only its further subscriptions.
    pub(crate) awaited_version: Option<u64>,
    /// Deadline of a connection that is closing.
    pub(crate) close_deadline: Option<Instant>,
    limits: QueueLimits,
    /// Bytes that [`ListenerMemory`](super::memory::ListenerMemory) last counted for the client.
    pub(super) accounted_bytes: usize,
    /// Drops since the last report to the client.
    drops: DropCounts,
    /// True from a drop until half of the room is free again. If the report of drops stands where messages are missing,
    /// it precedes the next message.
    is_dropping: bool,
    /// Earliest time of the next report that goes ahead of waiting output.
    next_report: Option<Instant>,
    /// Number of messages dropped in total.
    pub(crate) dropped: u64,
    /// Number of actions that its account did not permit.
    pub(crate) denied: u64,
}

impl ListenerConnection {
    pub(crate) fn new(
        stream: Stream,
        settings: &Settings,
        hello: &ConnectionInfo,
        listener: usize,
        limits: QueueLimits,
        timing: HandshakeTiming,
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
            handshake_timeout: timing.timeout,
            is_greeting_pending: true,
            greeting_deadline: None,
            is_scheduled: false,
            wake: None,
            awaited_version: None,
            close_deadline: None,
            limits,
            accounted_bytes: 0,
            drops: DropCounts::default(),
            is_dropping: false,
            next_report: None,
            dropped: 0,
            denied: 0,
        };
        match timing.tls_first {
            TlsFirst::Never => connection.greet(now),
            TlsFirst::Always => {}
            TlsFirst::Within(time) => connection.greeting_deadline = Some(now + time),
        }
        connection.update_handshake_deadline(now);
        connection
    }

    /// Writes the greeting of the protocol, unless that is done. It is encrypted if the client has begun a handshake. If
    /// the client has waited for it, all time limits begin.
    fn greet(&mut self, now: Instant) {
        if self.greeting_deadline.take().is_some() {
            self.handshake_deadline = None;
            self.session.restart_deadlines(now);
        }
        if std::mem::take(&mut self.is_greeting_pending) {
            self.answer(|session, out| session.on_open(out));
        }
    }

    /// Writes a pending greeting if the client has not begun a handshake in time.
    pub(crate) fn greet_at_deadline(&mut self, now: Instant) {
        if self.greeting_deadline.is_some_and(|deadline| deadline <= now) {
            // A handshake may have begun since the last read. Its error, if any, recurs with the next one.
            drop(self.stream.detect_encryption());
            self.greet(now);
        }
    }

    /// Updates what depends on the handshake and the authentication. Returns whether the client has just authenticated.
    pub(crate) fn update_progress(&mut self, now: Instant) -> bool {
        self.update_handshake_deadline(now);
        self.is_authenticated() && std::mem::take(&mut self.is_unauthenticated)
    }

    /// Updates the handshake deadline from the state of the stream. The time limits of the session begin when the TLS
    /// handshake and the opening of the WebSocket end.
    fn update_handshake_deadline(&mut self, now: Instant) {
        let is_pending =
            self.stream.awaits_encryption() || self.stream.is_handshaking() || self.stream.awaits_upgrade();
        let earlier = self.handshake_deadline.take();
        if is_pending {
            self.handshake_deadline = Some(earlier.unwrap_or(now + self.handshake_timeout));
        } else if earlier.is_some() {
            self.session.restart_deadlines(now);
        }
    }

    /// Returns whether the client has authenticated, and encrypts the stream if the listener requires that.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.account.is_some() && self.handshake_deadline.is_none()
    }

    /// Returns the deadline of what the client is in: the wait for the greeting, then the handshake, then the session. The
    /// next report of drops may come before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // A report that is ahead of the output is written, or the stream blocks, before this time can pass again and again.
        let report = self.next_report.filter(|_| !self.drops.is_empty() && self.flow.is_writable);
        let limit = self.greeting_deadline.or(self.handshake_deadline).or_else(|| self.session.deadline());
        [limit, report].into_iter().flatten().min()
    }

    /// Returns whether the client may have input to process now.
    pub(crate) fn has_input(&self) -> bool {
        !self.unwritten.is_backpressured()
            && !self.session.is_full()
            && self.awaited_version.is_none()
            && self.flow.has_input()
    }

    /// Lets the session write an answer for the client.
    pub(crate) fn answer<T>(&mut self, write: impl FnOnce(&mut ClientSession, &mut OutputBuffer) -> T) -> T {
        let result = write(&mut self.session, &mut self.unwritten.out);
        self.unwritten.count_answers();
        result
    }

    /// Returns the next request of the session to the peer.
    pub(crate) fn poll_request(&mut self) -> Option<SessionRequest<'static>> {
        self.session.poll_request(!self.unwritten.is_backpressured())
    }

    /// Writes an advisory of the peer in the form of the protocol. Returns false if the protocol has none. The rate of
    /// advisories is limited, so a slow client gets them beyond the room for messages; one that reads nothing does not.
    pub(crate) fn advise(&mut self, advisory: &Delivery) -> bool {
        if !self.session.has_advisories() {
            return false;
        }
        if self.unwritten.bytes() <= 2 * self.limits.bytes_max {
            self.answer(|session, out| session.on_advisory(advisory, out));
        }
        true
    }

    /// Writes messages for these subscriptions as long as there is room, and drops the others. `has_share` is false if
    /// the client has used its share of the common memory; all are dropped then.
    pub(crate) fn deliver(&mut self, subs: &[SubId], deliveries: &Deliveries, has_share: bool) -> PushOutcome {
        let subs = self.session.delivery_subs(subs, deliveries.subject());
        if subs.is_empty() {
            return PushOutcome { accepted: 0, begins_drops: false };
        }
        if !has_share || !self.has_room() {
            return PushOutcome { accepted: 0, begins_drops: self.drop_all(subs, deliveries) };
        }
        let bytes = deliveries.bytes() + deliveries.len() * MESSAGE_OVERHEAD_BYTES;
        if bytes.saturating_mul(subs.len()) <= DELIVERY_CHUNK_BYTES {
            return PushOutcome { accepted: self.write_deliveries(subs, deliveries), begins_drops: false };
        }
        let mut outcome = PushOutcome { accepted: 0, begins_drops: false };
        let mut rest = deliveries.clone();
        while self.has_room()
            && let Some(delivery) = rest.next()
        {
            let message = Deliveries::from(delivery);
            let piece = (DELIVERY_CHUNK_BYTES / (message.bytes() + MESSAGE_OVERHEAD_BYTES)).max(1);
            let mut left = subs;
            while !left.is_empty() && self.has_room() {
                let (some, others) = left.split_at(piece.min(left.len()));
                outcome.accepted += self.write_deliveries(some, &message);
                left = others;
            }
            outcome.begins_drops |= self.drop_rest(left, &message);
        }
        outcome.begins_drops |= self.drop_rest(subs, &rest);
        outcome
    }

    /// Writes the messages and returns their number.
    fn write_deliveries(&mut self, subs: &[SubId], deliveries: &Deliveries) -> usize {
        let taken = self.session.on_deliveries(subs, deliveries, &mut self.unwritten.out);
        self.unwritten.count_events(taken);
        taken
    }

    /// Returns whether the client can take more messages. After a drop it can once half of its room is free and the
    /// losses are reported to it, unless the report goes ahead of waiting output.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.session.reports_drops_ahead() {
            self.end_drops();
        }
        !self.is_dropping && self.is_within(1)
    }

    /// Ends the drops once half of the room is free, for a protocol whose reports go ahead of waiting output.
    fn end_drops(&mut self) {
        self.is_dropping &= !self.is_within(2);
    }

    /// Returns the report of losses that precedes the next message, if half of the room is free.
    pub(crate) fn take_drop_advisory(&mut self, me: &Publisher, scid: u16) -> Option<Delivery> {
        if self.drops.is_empty() || !self.is_within(2) {
            return None;
        }
        self.is_dropping = false;
        Some(self.drops.take_advisory(me, scid))
    }

    /// Writes the report of losses ahead of waiting output if the client reads, at most once in [`REPORT_INTERVAL`].
    /// Returns whether all losses are reported and the client has room again.
    pub(crate) fn report_drops_ahead(&mut self, now: Instant) -> bool {
        self.end_drops();
        let is_due = self.next_report.is_none_or(|next| next <= now);
        if is_due && self.flow.is_writable && !self.unwritten.has_report_ahead() && !self.drops.is_empty() {
            let report = self.drops.take_report(self.unwritten.events() as u64);
            if let Some(report) = self.session.drop_report(&report) {
                self.unwritten.put_ahead(report);
            }
            self.next_report = Some(now + REPORT_INTERVAL);
        }
        !self.is_slow()
    }

    /// Returns whether the client loses messages, or has losses that are not reported.
    fn is_slow(&self) -> bool {
        self.is_dropping || !self.drops.is_empty()
    }

    fn is_within(&self, part: usize) -> bool {
        self.unwritten.bytes() < self.limits.bytes_max / part
            && self.unwritten.events() < self.limits.count_max.div_ceil(part)
    }

    /// Drops the rest of partly delivered messages. A subscription that ended with one of the delivered messages loses
    /// none. Returns whether the client begins to lose messages with these.
    fn drop_rest(&mut self, subs: &[SubId], deliveries: &Deliveries) -> bool {
        if subs.is_empty() || deliveries.len() == 0 {
            return false;
        }
        let subs: Vec<SubId> = subs.iter().copied().filter(|sub| self.session.has_subscription(*sub)).collect();
        !subs.is_empty() && self.drop_all(&subs, deliveries)
    }

    /// Drops messages for these subscriptions. Returns whether the client begins to lose messages with these.
    fn drop_all(&mut self, subs: &[SubId], deliveries: &Deliveries) -> bool {
        if subs.is_empty() {
            return false;
        }
        let begins_drops = !self.is_slow();
        self.is_dropping = true;
        let count = deliveries.len() as u64;
        if let Some(first) = deliveries.clone().next() {
            let bytes = deliveries.bytes() as u64 * subs.len() as u64;
            self.drops.add(&first.message.subject, count * subs.len() as u64, bytes);
        }
        self.dropped += count * subs.len() as u64;
        self.session.on_lost(subs, Count::Exact(count));
        begins_drops
    }

    /// Returns the fullness of the unwritten output in parts of 1,024, and 0 while the client loses messages.
    pub(crate) fn fullness(&self) -> u64 {
        let (events, bytes) = (self.unwritten.events(), self.unwritten.bytes());
        if self.is_dropping { 0 } else { self.limits.fullness(events, bytes) }
    }

    /// Returns (waiting messages, waiting bytes, messages dropped in total).
    pub(crate) fn fill(&self) -> (usize, usize, u64) {
        (self.unwritten.events(), self.unwritten.bytes(), self.dropped)
    }

    /// Returns the bytes of the client's incomplete input and unwritten output.
    pub(crate) fn held_bytes(&self) -> usize {
        self.parser.held_bytes() + self.session.held_bytes() + self.unwritten.bytes()
    }

    /// Returns the held bytes that are not counted as shared payloads.
    pub(super) fn own_bytes(&self) -> usize {
        self.parser.held_bytes() + self.session.held_bytes() + self.unwritten.own_bytes()
    }

    /// Reads once through `scratch` into the parser, and greets a client that has begun. Bytes of WebSocket frames count
    /// with and without payload.
    pub(crate) fn read(&mut self, now: Instant, scratch: &mut [u8]) -> ReadOutcome {
        let is_plain = self.stream.is_plain();
        let outcome = self.flow.read(&mut self.stream, is_plain, scratch, |bytes| self.parser.push(bytes));
        let outcome = match (outcome, self.stream.take_frame_bytes()) {
            (ReadOutcome::Nothing | ReadOutcome::Bytes(_), bytes @ 1..) => {
                self.flow.is_readable = true;
                ReadOutcome::Bytes(bytes)
            }
            (outcome, _) => outcome,
        };
        if self.stream.is_begun() {
            self.greet(now);
        }
        if let Some(names) = self.stream.take_client_names() {
            tracing::debug!(from = %self.from, ?names, "client certificate");
            self.answer(|session, _| session.on_certificate(&names));
        }
        outcome
    }

    /// Writes pending output, as far as the stream takes it. Returns false at the end of a connection that the peer
    /// closes.
    pub(crate) fn write(&mut self) -> bool {
        self.session.flush_events(&mut self.unwritten.out);
        self.unwritten.count_events(0);
        if self.awaited_version.is_some() {
            return true;
        }
        let ListenerConnection { flow, unwritten, stream, .. } = self;
        let is_open = flow.write(|| Ok(unwritten.write_to(stream)? && flush(stream)?));
        if flow.is_write_closed() {
            unwritten.clear();
        }
        is_open
    }

    /// Returns whether there is output to write.
    pub(crate) fn has_output(&self) -> bool {
        0 < self.unwritten.bytes() || !self.stream.is_flushed()
    }
}

/// Flushes the stream. Returns whether the socket has taken all bytes.
fn flush(stream: &mut Stream) -> io::Result<bool> {
    match stream.flush() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        outcome => outcome.map(|()| stream.is_flushed()),
    }
}
