//! Packs messages into one datagram.

use super::{
    CHECK_BYTES, DATAGRAM_BYTES_MAX, FLAG_CHAIN, FLAG_EVENT, FLAG_META, FLAG_STAMP, FLAG_UNSEQ, FRAGMENT, Header, PAD,
    RECORD_HEADER_BYTES, RUN,
};
use crate::message::{Message, Stamp};
use crate::seqno::Seq;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The smallest share of a large message that is worth a fragment in a datagram that already holds other records.
const CHUNK_BYTES_MIN: usize = 256;
/// Bytes of index, total and offset of a fragment.
const FRAGMENT_NUMBERS_BYTES: usize = 12;
/// The largest payload or header block whose length a variable-length number can say: 2^28 - 1 bytes.
const VARINT_MAX: usize = (1 << 28) - 1;

/// A message on its way out, with the numbers it was given.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The message.
    pub message: &'a Message,
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
            | flag(has_meta(self.message), FLAG_META)
    }

    /// Bytes of what RUN and FRAGMENT begin with, and the record's own header.
    fn start_bytes(&self) -> usize {
        let numbers = self.seq.map_or(0, |_| 8) + self.stamp.map_or(0, |_| 12) + self.chain.map_or(0, |_| 8);
        RECORD_HEADER_BYTES + numbers + 1 + self.message.subject.as_bytes().len()
    }

    /// Bytes of the message as an entry of a run.
    fn entry_bytes(&self) -> usize {
        let payload = self.message.payload.len();
        varint_bytes(payload) + meta_bytes(self.message) + payload
    }

    /// Bytes of a run with this message alone.
    fn run_bytes(&self) -> usize {
        self.start_bytes() + 2 + self.entry_bytes()
    }

    /// Writes record header and start; the length stays 0 until the record is closed.
    fn put_start(&self, out: &mut BytesMut, record_type: u8) {
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
struct OpenRun {
    /// Where the record starts.
    at: usize,
    /// Where the subject stands.
    subject_at: usize,
    subject_bytes: usize,
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
    buffer: BytesMut,
    /// Room that the next datagram is given at first: twice what the last one took.
    room_first: usize,
    run: Option<OpenRun>,
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
            buffer: BytesMut::new(),
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
        if let Some(run) = &mut self.run {
            let subject = self.buffer.get(run.subject_at..run.subject_at + run.subject_bytes);
            if flags == run.flags && entry.seq == run.next && subject == Some(entry.message.subject.as_bytes()) {
                if self.bytes_max < self.buffer.len() + CHECK_BYTES + entry.entry_bytes() || run.count == u16::MAX {
                    return false;
                }
                run.count += 1;
                run.next = run.next.and_then(|seq| seq.forward(1));
                put_entry(&mut self.buffer, entry.message);
                self.messages += 1;
                return true;
            }
        }
        if VARINT_MAX < entry.message.payload.len()
            || VARINT_MAX < entry.message.headers.block().len()
            || self.room() < entry.run_bytes()
        {
            return false;
        }
        self.start_record();
        let at = self.buffer.len();
        entry.put_start(&mut self.buffer, RUN);
        let subject_bytes = entry.message.subject.as_bytes().len();
        self.run = Some(OpenRun {
            at,
            subject_at: self.buffer.len() - subject_bytes,
            subject_bytes,
            flags: flags & !(FLAG_STAMP | FLAG_CHAIN),
            next: entry.seq.and_then(|seq| seq.forward(1)),
            count: 1,
        });
        // The count, known when the run is closed.
        self.buffer.put_u16(0);
        put_entry(&mut self.buffer, entry.message);
        self.messages += 1;
        true
    }

    /// Adds a part of a message, as much of `body` (see [`body_of`](super::body_of)) from `offset` on as there is room
    /// for, and says how many bytes that was. 0: not worth it here; seal and try again. An empty builder always takes
    /// some. Unless the message ends with it, the part is the last record: seal after it.
    ///
    /// # Panics
    /// If `offset` is not within `body`, or the body is larger than
    /// [`FRAGMENT_TOTAL_MAX`](super::FRAGMENT_TOTAL_MAX).
    pub fn push_fragment(&mut self, entry: &Entry<'_>, body: &Bytes, index: u32, offset: usize) -> usize {
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
        let mut datagram = self.buffer.split();
        self.room_first = (2 * datagram.len()).max(ROOM_MIN).min(self.bytes_max);
        datagram.advance(Header::BYTES_MAX - header.bytes());
        header.encode(&mut *datagram);
        put_check(&mut datagram);
        (self.messages, self.is_full) = (0, false);
        datagram.freeze()
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
            patch(&mut self.buffer, run.subject_at + run.subject_bytes, run.count);
            self.close_record(run.at);
        }
        if self.buffer.is_empty() {
            self.buffer.reserve(self.room_first);
            self.buffer.put_bytes(0, Header::BYTES_MAX);
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

/// Whether the message has what a plain entry cannot carry.
pub(super) fn has_meta(message: &Message) -> bool {
    message.reply.is_some() || !message.headers.is_empty()
}

/// Bytes of the meta part; 0 if there is none.
pub(super) fn meta_bytes(message: &Message) -> usize {
    if !has_meta(message) {
        return 0;
    }
    let headers = message.headers.block().len();
    1 + message.reply.as_ref().map_or(0, |reply| reply.as_bytes().len()) + varint_bytes(headers) + headers
}

/// Writes the meta part.
pub(super) fn put_meta(out: &mut BytesMut, message: &Message) {
    let reply = message.reply.as_ref().map_or(&[][..], |reply| reply.as_bytes());
    out.put_u8(u8::try_from(reply.len()).expect("subjects have at most 255 bytes"));
    out.put_slice(reply);
    put_varint(out, message.headers.block().len());
    out.put_slice(message.headers.block());
}

fn put_entry(out: &mut BytesMut, message: &Message) {
    put_varint(out, message.payload.len());
    if has_meta(message) {
        put_meta(out, message);
    }
    out.put_slice(&message.payload);
}

/// Writes a variable-length number; at most 28 bits.
pub(crate) fn put_varint(out: &mut BytesMut, mut value: usize) {
    assert!(value <= VARINT_MAX, "lengths have at most 28 bits");
    while 0x7f < value {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Bytes of a variable-length number.
pub(crate) fn varint_bytes(value: usize) -> usize {
    1 + usize::from(0x7f < value) + usize::from(0x3fff < value) + usize::from(0x1f_ffff < value)
}

/// Appends the check value of mode 0: CRC32C over all before it.
pub(super) fn put_check(datagram: &mut BytesMut) {
    let check = crc32c::crc32c(datagram);
    datagram.put_u32(check);
}

fn patch(buffer: &mut BytesMut, at: usize, value: u16) {
    let field = buffer.get_mut(at..at + 2).expect("the field was written before");
    field.copy_from_slice(&value.to_be_bytes());
}
