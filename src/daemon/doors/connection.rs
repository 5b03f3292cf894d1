//! One client of a door: its stream, its conversation, what waits to be written to it and what it did not get.

use super::lost::Lost;
use super::stream::Stream;
use crate::daemon::local::{Reading, read_once};
use crate::daemon::outbox::Pushed;
use crate::daemon::queue::QueueLimits;
use crate::door::ask::Hello;
use crate::door::client::{Parser, Session, Settings};
use crate::door::out::Out;
use crate::message::{Count, SubId};
use crate::proto::delivery::Deliveries;
use crate::time::Instant;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of answers beyond which no more commands of the client are taken: it asks and does not listen.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// How long a client may take to encrypt, where it must or has begun to.
const HANDSHAKE_TIME: Duration = Duration::from_secs(2);

/// A client of a door.
#[derive(Debug)]
pub(crate) struct DoorConnection {
    pub(crate) stream: Stream,
    pub(crate) parser: Parser,
    pub(crate) session: Session,
    pub(crate) out: Out,
    /// Where it comes from.
    pub(crate) from: SocketAddr,
    /// Which of the doors.
    pub(crate) door: usize,
    /// The account it proved to be, once it is admitted.
    pub(crate) account: Option<String>,
    /// It has not proven who it is, or not encrypted what must be.
    pub(crate) is_stranger: bool,
    /// When it must have come to the end of encrypting, as long as it must or has begun to.
    secure_by: Option<Instant>,
    /// There may be bytes to read.
    pub(crate) is_readable: bool,
    /// The stream may take bytes.
    pub(crate) is_writable: bool,
    /// Commands that were read wait in the parser.
    pub(crate) is_stalled: bool,
    /// Whether it is among those to be served.
    pub(crate) is_listed: bool,
    /// When it is to be called at the latest.
    pub(crate) wake: Option<Instant>,
    /// Nothing more is read; it ends when everything is written.
    pub(crate) is_closing: bool,
    /// When it ends at the latest, once it is to end.
    pub(crate) end_by: Option<Instant>,
    /// Bytes of answers since nothing waited last.
    answer_bytes: usize,
    /// Bytes written and waiting, of all there ever were.
    pushed_bytes: u64,
    /// Bytes that wait and are accounted for.
    known_bytes: usize,
    /// For what waits: at how many bytes of all there ever were so many messages end.
    marks: VecDeque<(u64, usize)>,
    /// Messages that wait.
    queued: usize,
    limits: QueueLimits,
    /// What it did not get since it was last told.
    pub(crate) lost: Lost,
    /// Dropped in all.
    pub(crate) dropped: u64,
    /// The client does not listen any more. What it said before it left is still read.
    is_deaf: bool,
}

impl DoorConnection {
    pub(crate) fn new(
        stream: Stream,
        settings: &Settings,
        hello: &Hello,
        door: usize,
        limits: QueueLimits,
        now: Instant,
    ) -> DoorConnection {
        let mut connection = DoorConnection {
            stream,
            parser: Parser::new(settings),
            session: Session::new(settings, hello, now),
            out: Out::new(),
            from: hello.from,
            door,
            account: None,
            is_stranger: true,
            secure_by: None,
            is_readable: true,
            is_writable: true,
            is_stalled: false,
            is_listed: false,
            wake: None,
            is_closing: false,
            end_by: None,
            answer_bytes: 0,
            pushed_bytes: 0,
            known_bytes: 0,
            marks: VecDeque::new(),
            queued: 0,
            limits,
            lost: Lost::default(),
            dropped: 0,
            is_deaf: false,
        };
        connection.session.on_open(&mut connection.out);
        connection.note_encryption(now);
        connection
    }

    /// Looks how far the client has come with encrypting.
    pub(crate) fn note_encryption(&mut self, now: Instant) {
        let is_on_its_way = self.stream.awaits_encryption() || self.stream.is_handshaking();
        self.secure_by = is_on_its_way.then(|| self.secure_by.unwrap_or(now + HANDSHAKE_TIME));
    }

    /// Whether it has proven who it is, as far as it must, and encrypts, if it must.
    pub(crate) fn is_known(&self) -> bool {
        self.account.is_some() && self.secure_by.is_none()
    }

    /// When something has to be said or done about the client.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.session.deadline().into_iter().chain(self.secure_by).min()
    }

    /// Whether something can be done for the client now, as far as is known.
    pub(crate) fn has_input(&self) -> bool {
        !self.is_closing && !self.is_choked() && (self.is_stalled || self.is_readable)
    }

    /// Whether so many answers wait that no more commands should be taken.
    pub(crate) fn is_choked(&self) -> bool {
        ANSWER_BYTES_MAX < self.answer_bytes
    }

    /// Has the session say something that answers the client.
    pub(crate) fn answer<T>(&mut self, say: impl FnOnce(&mut Session, &mut Out) -> T) -> T {
        let said = say(&mut self.session, &mut self.out);
        self.note_answers();
        said
    }

    /// What has been put into `out` since the last call is answers.
    pub(crate) fn note_answers(&mut self) {
        let bytes = self.note_pushed();
        self.answer_bytes += bytes;
    }

    fn note_pushed(&mut self) -> usize {
        let bytes = self.out.len() - self.known_bytes;
        self.known_bytes += bytes;
        self.pushed_bytes += bytes as u64;
        bytes
    }

    /// Hands on messages for these subscriptions, or drops all of them.
    pub(crate) fn deliver(&mut self, subs: &[SubId], deliveries: &Deliveries) -> Pushed {
        if !self.has_room() {
            return self.drop_all(subs, deliveries);
        }
        let taken = self.session.on_deliveries(subs, deliveries, &mut self.out);
        self.note_pushed();
        if 0 < taken {
            self.queued += taken;
            self.marks.push_back((self.pushed_bytes, taken));
        }
        Pushed { taken, begins_drops: false }
    }

    /// Whether more messages are taken for it: after a drop when half of the room is free again, and it has been told of what it
    /// did not get.
    pub(crate) fn has_room(&self) -> bool {
        self.lost.is_empty() && self.is_within(1)
    }

    /// Whether the client, which has lost something, can be told of it.
    pub(crate) fn can_be_told(&self) -> bool {
        !self.lost.is_empty() && self.is_within(2)
    }

    fn is_within(&self, part: usize) -> bool {
        self.out.len() < self.limits.bytes_max / part && self.queued < self.limits.count_max.div_ceil(part)
    }

    fn drop_all(&mut self, subs: &[SubId], deliveries: &Deliveries) -> Pushed {
        let begins_drops = self.lost.is_empty();
        let count = deliveries.len() as u64;
        if let Some(first) = deliveries.clone().next() {
            self.lost.add(&first.message.subject, count * subs.len() as u64);
        }
        self.dropped += count * subs.len() as u64;
        self.session.on_lost(subs, Count::Exact(count));
        Pushed { taken: 0, begins_drops }
    }

    /// How full what waits for it is, in parts of 1,024; 0 while it drops anyway.
    pub(crate) fn fullness(&self) -> u64 {
        if self.lost.is_empty() { self.limits.fullness(self.queued, self.out.len()) } else { 0 }
    }

    /// (messages that wait, bytes that wait, messages dropped in all).
    pub(crate) fn fill(&self) -> (usize, usize, u64) {
        (self.queued, self.out.len(), self.dropped)
    }

    /// Reads once, into the parser, by way of `scratch`.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> Reading {
        let reading = read_once(&mut self.stream, scratch, |bytes| self.parser.push(bytes));
        self.is_readable &= reading != Reading::Nothing;
        reading
    }

    /// Writes what waits, as far as the stream takes it. False at the end of a connection that the peer ends.
    pub(crate) fn write(&mut self) -> bool {
        if self.is_deaf {
            self.discard();
            return !self.is_closing;
        }
        if !self.is_writable {
            return true;
        }
        let written = self.out.write_to(&mut self.stream).and_then(|is_all| match is_all {
            true => self.flush(),
            false => Ok(false),
        });
        self.note_written();
        match written {
            Ok(true) => !self.is_closing,
            Ok(false) => {
                self.is_writable = false;
                true
            }
            Err(_) => {
                // The reader finds the end, after all that was published.
                self.is_deaf = true;
                self.is_readable = true;
                self.discard();
                !self.is_closing
            }
        }
    }

    fn flush(&mut self) -> io::Result<bool> {
        match self.stream.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            outcome => outcome.map(|()| self.stream.is_flushed()),
        }
    }

    fn discard(&mut self) {
        self.out.clear();
        self.note_written();
    }

    fn note_written(&mut self) {
        self.known_bytes = self.out.len();
        let written = self.pushed_bytes - self.out.len() as u64;
        while let Some((end, messages)) = self.marks.front()
            && *end <= written
        {
            self.queued -= messages;
            self.marks.pop_front();
        }
        if self.out.is_empty() {
            self.answer_bytes = 0;
        }
    }

    /// Whether there is something to write.
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || !self.stream.is_flushed()
    }
}
