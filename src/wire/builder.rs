//! Packs messages into one datagram.

use super::{
    CHECK_BYTES, DATAGRAM_BYTES_MAX, FLAG_CHAIN, FLAG_EVENT, FLAG_META, FLAG_STAMP, FLAG_UNSEQ, FRAGMENT, Header, PAD,
    RECORD_HEADER_BYTES, RUN, entry,
};
use crate::message::{MessageRef, Stamp};
use crate::seqno::Seq;
use bytes::{Buf, BufMut, Bytes};

/// The smallest share of a large message that is worth a fragment in a datagram that already holds other records.
const CHUNK_BYTES_MIN: usize = 256;
/// Bytes of index, total and offset of a fragment.
const FRAGMENT_NUMBERS_BYTES: usize = 12;

/// A message on its way out, with the numbers it was given.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The message.
    pub message: MessageRef<'a>,
    /// Its number, or `None` if the publisher has no memory left to number its subject.
    pub seq: Option<Seq>,
    /// What dates the frame; exactly if `seq` begins one.
    pub stamp: Option<Stamp>,
    /// The last number of the frame before, if the publisher still knows it; only with a stamp.
    pub chain: Option<Seq>,
}

impl Entry<'_> {
    fn flags(&self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.stamp.is_some(), FLAG_STAMP)
            | flag(self.chain.is_some(), FLAG_CHAIN)
            | flag(self.seq.is_none(), FLAG_UNSEQ)
            | flag(self.message.event, FLAG_EVENT)
            | flag(self.message.has_meta(), FLAG_META)
    }

    /// Bytes of what RUN and FRAGMENT begin with, and the record's own header.
    fn start_bytes(&self) -> usize {
        let numbers = self.seq.map_or(0, |_| 8) + self.stamp.map_or(0, |_| 12) + self.chain.map_or(0, |_| 8);
        RECORD_HEADER_BYTES + numbers + 1 + self.message.subject.as_bytes().len()
    }

    /// Bytes of a run with this message alone.
    fn run_bytes(&self) -> usize {
        self.start_bytes() + 2 + entry::bytes_of(self.message)
    }

    /// Writes record header and start; the length stays 0 until the record is closed.
    fn put_start(&self, out: &mut Vec<u8>, record_type: u8) {
        assert!(self.stamp.is_none() || self.seq.is_some_and(|seq| seq.count() == 1), "a stamp begins a frame");
        assert!(self.chain.is_none() || self.stamp.is_some(), "a chain goes with a stamp");
        out.put_u8(record_type);
        out.put_u8(self.flags());
        out.put_u16(0);
        if let Some(seq) = self.seq {
            out.put_u64(seq.raw());
        }
        if let Some(stamp) = self.stamp {
            out.put_u64(stamp.time.as_nanos());
            out.put_u32(stamp.offset);
        }
        if let Some(chain) = self.chain {
            out.put_u64(chain.raw());
        }
        let subject = self.message.subject.as_bytes();
        out.put_u8(u8::try_from(subject.len()).expect("subjects have at most 255 bytes"));
        out.put_slice(subject);
    }
}

/// The run that the next message may extend. All positions are in the builder's buffer.
#[derive(Clone, Debug)]
struct RunInProgress {
    /// Where the record starts.
    at: usize,
    /// Where the subject starts.
    subject_at: usize,
    /// Where the subject ends and the count stands.
    count_at: usize,
    /// EVENT, META and UNSEQ, as every message of the run must have them.
    flags: u8,
    /// The number that the next message must have; `None` also if the frame is full.
    next: Option<Seq>,
    count: u16,
}

/// At most this part of a datagram is padding.
const PAD_SHARE: usize = 8;

/// The least room that a datagram is given at first. Where datagrams can be large, most are still short.
const ROOM_MIN: usize = 2048;

/// A datagram that is being filled. It has room for the longest header, so that one builder serves both data streams.
#[derive(Debug)]
pub struct Builder {
    bytes_max: usize,
    /// Room for the longest header, then the records; empty if there are none.
    buffer: Vec<u8>,
    /// Room that the next datagram is given at first: twice what the last one took.
    room_first: usize,
    run: Option<RunInProgress>,
    messages: u64,
    /// An unfinished fragment is the last record of its datagram.
    is_full: bool,
}

impl Builder {
    /// An empty datagram that will have at most `bytes_max` bytes in all: 576 to 65,507.
    ///
    /// # Panics
    /// If `bytes_max` is outside that range.
    pub fn new(bytes_max: usize) -> Builder {
        assert!((576..=DATAGRAM_BYTES_MAX).contains(&bytes_max), "datagrams have 576 to {DATAGRAM_BYTES_MAX} bytes");
        Builder {
            bytes_max,
            buffer: Vec::new(),
            room_first: ROOM_MIN.min(bytes_max),
            run: None,
            messages: 0,
            is_full: false,
        }
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Messages begun so far: what the stream's `count` rises by with this datagram.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Adds a message. `false`: it does not fit and nothing was written; seal and try again, or, if it
    /// does not fit alone ([`fits_alone`]), send it in fragments.
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        let flags = entry.flags();
        if let Some(run) = &self.run
            && flags == run.flags
            && entry.seq == run.next
            && self.buffer.get(run.subject_at..run.count_at) == Some(entry.message.subject.as_bytes())
        {
            return self.grow(entry::bytes_of(entry.message), |buffer| entry::put(buffer, entry.message));
        }
        if entry::VARINT_MAX < entry.message.payload.len()
            || entry::VARINT_MAX < entry.message.headers.len()
            || self.room() < entry.run_bytes()
        {
            return false;
        }
        self.start_record();
        let at = self.buffer.len();
        entry.put_start(&mut self.buffer, RUN);
        self.run = Some(RunInProgress {
            at,
            subject_at: self.buffer.len() - entry.message.subject.as_bytes().len(),
            count_at: self.buffer.len(),
            flags: flags & !(FLAG_STAMP | FLAG_CHAIN),
            next: entry.seq.and_then(|seq| seq.forward(1)),
            count: 1,
        });
        // The count, known when the run is closed.
        self.buffer.put_u16(0);
        entry::put(&mut self.buffer, entry.message);
        self.messages += 1;
        true
    }

    /// Adds a plain message to the run of the one before, whose subject and flags it shares and whose number its own follows:
    /// the fast path. False, and nothing done, if there is no room.
    #[inline]
    pub fn extend(&mut self, payload: &[u8]) -> bool {
        if self.run.as_ref().is_none_or(|run| run.next.is_none()) {
            return false;
        }
        self.grow(payload.len() + entry::varint_bytes(payload.len()), |buffer| {
            entry::put_varint(buffer, payload.len());
            buffer.extend_from_slice(payload);
        })
    }

    /// Adds an entry of so many bytes to the open run. False, and nothing done, if there is no room.
    #[inline]
    fn grow(&mut self, bytes: usize, put: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(run) = &mut self.run else { return false };
        if self.bytes_max < self.buffer.len() + CHECK_BYTES + bytes || run.count == u16::MAX {
            return false;
        }
        run.count += 1;
        run.next = run.next.and_then(|seq| seq.forward(1));
        put(&mut self.buffer);
        self.messages += 1;
        true
    }

    /// The number that a message must have to extend the open run, and where its entry will stand; `None` if there is no run
    /// of plain messages with numbers.
    pub fn open_run(&self) -> Option<(Seq, usize)> {
        let run = self.run.as_ref().filter(|run| run.flags == 0)?;
        Some((run.next?, self.buffer.len()))
    }

    /// The entries of the open run from there on.
    pub fn entries(&self, at: usize) -> &[u8] {
        self.buffer.get(at..).expect("the open run has not been closed since")
    }

    /// Adds a part of a message, as much of `body` (see [`body_of`](super::body_of)) from `offset` on as there is room
    /// for, and says how many bytes that was. 0: not worth it here; seal and try again. An empty builder always takes
    /// some. Unless the message ends with it, the part is the last record: seal after it.
    ///
    /// # Panics
    /// If `offset` is not within `body`, or the body is larger than
    /// [`FRAGMENT_TOTAL_MAX`](super::FRAGMENT_TOTAL_MAX).
    pub fn push_fragment(&mut self, entry: &Entry<'_>, body: &[u8], index: u32, offset: usize) -> usize {
        assert!(body.len() <= super::FRAGMENT_TOTAL_MAX, "larger than a message can be");
        assert_eq!(index == 0, offset == 0, "the first part and no other starts at 0");
        let rest = body.get(offset..).filter(|rest| !rest.is_empty()).expect("the offset is within the body");
        let room = self.room().saturating_sub(entry.start_bytes() + FRAGMENT_NUMBERS_BYTES);
        let is_worth_it = self.is_empty() || index == 0 && rest.len().min(CHUNK_BYTES_MIN) <= room;
        if self.is_full || !is_worth_it {
            return 0;
        }
        let (chunk, later) = rest.split_at(rest.len().min(room));
        self.start_record();
        let at = self.buffer.len();
        entry.put_start(&mut self.buffer, FRAGMENT);
        for number in [index as usize, body.len(), offset] {
            self.buffer.put_u32(u32::try_from(number).expect("bodies have less than 4 GiB"));
        }
        self.buffer.put_slice(chunk);
        self.close_record(at);
        self.messages += u64::from(index == 0);
        self.is_full = !later.is_empty();
        chunk.len()
    }

    /// Fills a datagram up to which no other message fits with PAD, if little is missing: then datagrams that leave
    /// together have one size, and the kernel takes them as one buffer.
    pub fn pad(&mut self) {
        self.start_record();
        let missing = self.room();
        if (RECORD_HEADER_BYTES..=self.bytes_max / PAD_SHARE).contains(&missing) {
            let body = missing - RECORD_HEADER_BYTES;
            self.buffer.put_u8(PAD);
            self.buffer.put_u8(0);
            self.buffer.put_u16(u16::try_from(body).expect("less than a datagram"));
            self.buffer.put_bytes(0, body);
        }
    }

    /// Completes the datagram with its header and check value and leaves the builder empty.
    ///
    /// # Panics
    /// If the header is one of a control datagram, or not a valid one.
    pub fn seal(&mut self, header: &Header) -> Bytes {
        assert_ne!(header.kind, super::Kind::Control, "data is not control");
        self.start_record();
        let mut datagram = std::mem::take(&mut self.buffer);
        self.room_first = (2 * datagram.len()).max(ROOM_MIN).min(self.bytes_max);
        let start = Header::BYTES_MAX - header.bytes();
        let content = datagram.get_mut(start..).expect("there is room for the longest header");
        header.encode(&mut *content);
        let check = crc32c::crc32c(content);
        datagram.put_u32(check);
        (self.messages, self.is_full) = (0, false);
        if datagram.len() < datagram.capacity() / 2 {
            datagram.shrink_to_fit();
        }
        let mut datagram = Bytes::from(datagram);
        datagram.advance(start);
        datagram
    }

    /// Bytes that a new record, its header included, may have.
    fn room(&self) -> usize {
        if self.is_full {
            return 0;
        }
        self.bytes_max - CHECK_BYTES - self.buffer.len().max(Header::BYTES_MAX)
    }

    /// Closes the open run, and makes room for the datagram if this is the first record.
    fn start_record(&mut self) {
        if let Some(run) = self.run.take() {
            patch(&mut self.buffer, run.count_at, run.count);
            self.close_record(run.at);
        }
        if self.buffer.is_empty() {
            self.buffer.reserve_exact(self.room_first);
            self.buffer.resize(Header::BYTES_MAX, 0);
        }
    }

    /// Writes the length of the record that starts at `at` and ends here.
    fn close_record(&mut self, at: usize) {
        let length = self.buffer.len() - at - RECORD_HEADER_BYTES;
        patch(&mut self.buffer, at + 2, u16::try_from(length).expect("records are smaller than a datagram"));
    }
}

/// Whether the message can travel in a run, alone in a datagram of `bytes_max` bytes.
pub fn fits_alone(entry: &Entry<'_>, bytes_max: usize) -> bool {
    entry.run_bytes() + Header::BYTES_MAX + CHECK_BYTES <= bytes_max
}

fn patch(buffer: &mut [u8], at: usize, value: u16) {
    let field = buffer.get_mut(at..at + 2).expect("the field was written before");
    field.copy_from_slice(&value.to_be_bytes());
}
