//! Packs messages into one datagram.

use super::{
    CHECK_BYTES, CheckValue, DATAGRAM_BYTES_MAX, FLAG_CHAIN, FLAG_EVENT, FLAG_META, FLAG_STAMP, FLAG_UNSEQ, FRAGMENT,
    Header, PAD, RECORD_HEADER_BYTES, RUN, entry,
};
use crate::message::{MessageRef, Stamp};
use crate::seqno::Seq;
use bytes::{Buf, BufMut, Bytes};

/// Minimum size in bytes of a fragment in a datagram that already holds other records.
const CHUNK_BYTES_MIN: usize = 256;
/// Bytes of index, total and offset of a fragment.
const FRAGMENT_NUMBERS_BYTES: usize = 12;

/// An outgoing message with its assigned numbers.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The message.
    pub message: MessageRef<'a>,
    /// Number of the message, or `None` if the publisher has no memory left to number its subject.
    pub seq: Option<Seq>,
    /// Time and offset of the frame; present exactly if `seq` begins one.
    pub stamp: Option<Stamp>,
    /// Last number of the previous frame, if the publisher still knows it; only with a stamp.
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

    /// Returns the bytes of the common start of RUN and FRAGMENT, with the record's own header.
    fn start_bytes(&self) -> usize {
        let numbers = self.seq.map_or(0, |_| 8) + self.stamp.map_or(0, |_| 12) + self.chain.map_or(0, |_| 8);
        RECORD_HEADER_BYTES + numbers + 1 + self.message.subject.as_bytes().len()
    }

    /// Returns the bytes of a run with only this message.
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

/// The run that the next message may extend. All locations are in the builder's buffer.
#[derive(Clone, Debug)]
struct RunInProgress {
    /// Start of the record.
    at: usize,
    /// Start of the subject.
    subject_at: usize,
    /// End of the subject and location of the count.
    count_at: usize,
    /// EVENT, META and UNSEQ, which every message of the run must share.
    flags: u8,
    /// Number that the next message must have; `None` also if the frame is full.
    next: Option<Seq>,
    count: u16,
}

/// Divisor of a datagram's size that gives the maximum padding.
const PAD_DIVISOR: usize = 8;

/// Minimum size in bytes of a datagram that the retransmit ring and the history retain in the memory in which it was
/// sealed. They copy from shorter ones.
pub const RETAINED_BYTES_MIN: usize = 4096;

/// Divisor of the size of a datagram to retain that gives the maximum unused memory behind it.
const UNUSED_DIVISOR: usize = 32;

/// Divisor of a shorter datagram's size that gives the maximum unused memory: it leaves soon.
const SHORT_UNUSED_DIVISOR: usize = 1;

/// Bytes of memory of a sealed datagram beyond its bytes and the unused ones: at most [`UNUSED_HEADER_BYTES`] before it,
/// [`REFERENCE_BYTES`], and 16 of the allocator.
const OVERHEAD_BYTES: usize = UNUSED_HEADER_BYTES + REFERENCE_BYTES + 16;

/// Bytes that a short header leaves unused before a datagram.
const UNUSED_HEADER_BYTES: usize = Header::BYTES_MAX - Header::SHORT_BYTES;

/// Bytes of the allocation for a datagram's reference count: four words, and one of the allocator.
const REFERENCE_BYTES: usize = 40;

/// Minimum initial capacity of a datagram's buffer, in bytes. Most datagrams are short, even if large ones are allowed.
const CAPACITY_MIN: usize = 2048;

/// A datagram that is being filled. It reserves space for the longest header, so that one builder serves both data
/// streams.
#[derive(Debug)]
pub struct Builder {
    bytes_max: usize,
    check_value: CheckValue,
    /// Space for the longest header, then the records; empty if there are none.
    buffer: Vec<u8>,
    /// Initial capacity of the next datagram's buffer, in bytes: twice the size of the last datagram.
    initial_capacity: usize,
    run: Option<RunInProgress>,
    messages: u64,
    /// True after an unfinished fragment, which is the last record of its datagram.
    is_full: bool,
}

impl Builder {
    /// Creates an empty datagram of at most `bytes_max` bytes in total: 576 to 65,507. It ends with a CRC32C.
    ///
    /// # Panics
    /// If `bytes_max` is outside that range.
    pub fn new(bytes_max: usize) -> Builder {
        Builder::with_check_value(bytes_max, CheckValue::Crc32c)
    }

    /// Works as [`Builder::new`], for datagrams that end with this kind of check value.
    pub fn with_check_value(bytes_max: usize, check_value: CheckValue) -> Builder {
        assert!((576..=DATAGRAM_BYTES_MAX).contains(&bytes_max), "datagrams have 576 to {DATAGRAM_BYTES_MAX} bytes");
        Builder {
            bytes_max,
            check_value,
            buffer: Vec::new(),
            initial_capacity: CAPACITY_MIN.min(bytes_max),
            run: None,
            messages: 0,
            is_full: false,
        }
    }

    /// Returns whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the number of messages begun so far, by which the stream's `count` rises with this datagram.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Adds a message. Returns false if it does not fit; nothing is written then. The caller seals and tries again, or
    /// sends the message in fragments if it does not fit alone ([`fits_alone`]).
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
            || self.remaining() < entry.run_bytes()
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
        // Placeholder of the count, which is known when the run is closed.
        self.buffer.put_u16(0);
        entry::put(&mut self.buffer, entry.message);
        self.messages += 1;
        true
    }

    /// Adds a plain message to the open run, on the fast path. It must share the subject and flags of the previous
    /// message and follow its number. Returns false, and changes nothing, if there is no space.
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

    /// Adds an entry of `bytes` bytes to the open run. Returns false, and changes nothing, if there is no space.
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

    /// Returns the number that a message must have to extend the open run, and the location of its entry. Returns
    /// `None` if there is no run of plain messages with numbers.
    pub fn open_run(&self) -> Option<(Seq, usize)> {
        let run = self.run.as_ref().filter(|run| run.flags == 0)?;
        Some((run.next?, self.buffer.len()))
    }

    /// Returns the end of the open run in the buffer; `None` if the last record is not a run.
    pub fn run_end(&self) -> Option<usize> {
        self.run.as_ref().map(|_| self.buffer.len())
    }

    /// Returns the entries of the open run from `at` on.
    pub fn entries(&self, at: usize) -> &[u8] {
        self.buffer.get(at..).expect("the open run has not been closed since")
    }

    /// Adds a part of a message: the part of `body` (see [`body_of`](super::body_of)) from `offset` on that fits.
    /// Returns its length in bytes. If the result is 0, too little fits, and the caller seals and tries again. An empty
    /// builder always takes a part. Unless the message ends with it, the part is the last record, and the caller seals
    /// after it.
    ///
    /// # Panics
    /// If `offset` is not within `body`, or the body is larger than
    /// [`FRAGMENT_TOTAL_MAX`](super::FRAGMENT_TOTAL_MAX).
    pub fn push_fragment(&mut self, entry: &Entry<'_>, body: &[u8], index: u32, offset: usize) -> usize {
        assert!(body.len() <= super::FRAGMENT_TOTAL_MAX, "larger than a message can be");
        assert_eq!(index == 0, offset == 0, "the first part and no other starts at 0");
        let rest = body.get(offset..).filter(|rest| !rest.is_empty()).expect("the offset is within the body");
        let room = self.remaining().saturating_sub(entry.start_bytes() + FRAGMENT_NUMBERS_BYTES);
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

    /// Pads a datagram that can take no further message, if little space is left. Datagrams sent together then have one
    /// size, and the kernel accepts them as one buffer.
    pub fn pad(&mut self) {
        self.start_record();
        let missing = self.remaining();
        if (RECORD_HEADER_BYTES..=self.bytes_max / PAD_DIVISOR).contains(&missing) {
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
    /// Panics if the header is that of a control datagram, or invalid.
    pub fn seal(&mut self, header: &Header) -> Bytes {
        assert_ne!(header.kind, super::Kind::Control, "data is not control");
        self.start_record();
        let mut datagram = std::mem::take(&mut self.buffer);
        self.initial_capacity = (2 * datagram.len()).max(CAPACITY_MIN).min(self.bytes_max);
        let start = Header::BYTES_MAX - header.bytes();
        let content = datagram.get_mut(start..).expect("the buffer reserves the longest header");
        header.encode(&mut *content);
        let check = match self.check_value {
            CheckValue::Crc32c => crc32c::crc32c(content),
            CheckValue::Unused => 0,
        };
        datagram.put_u32(check);
        (self.messages, self.is_full) = (0, false);
        let bytes = datagram.len() - start;
        let divisor = if RETAINED_BYTES_MIN <= bytes { UNUSED_DIVISOR } else { SHORT_UNUSED_DIVISOR };
        if bytes / divisor < datagram.capacity() - datagram.len() {
            datagram.shrink_to_fit();
        }
        let mut datagram = Bytes::from(datagram);
        datagram.advance(start);
        datagram
    }

    /// Returns the maximum bytes of a new record, including its header.
    fn remaining(&self) -> usize {
        if self.is_full {
            return 0;
        }
        self.bytes_max - CHECK_BYTES - self.buffer.len().max(Header::BYTES_MAX)
    }

    /// Closes the open run, and reserves space for the datagram if this is the first record.
    fn start_record(&mut self) {
        if let Some(run) = self.run.take() {
            patch(&mut self.buffer, run.count_at, run.count);
            self.close_record(run.at);
        }
        if self.buffer.is_empty() {
            self.buffer.reserve_exact(self.initial_capacity);
            self.buffer.resize(Header::BYTES_MAX, 0);
        }
    }

    /// Writes the length of the record that starts at `at` and ends here.
    fn close_record(&mut self, at: usize) {
        let length = self.buffer.len() - at - RECORD_HEADER_BYTES;
        patch(&mut self.buffer, at + 2, u16::try_from(length).expect("records are smaller than a datagram"));
    }
}

/// Returns the maximum bytes of memory that a sealed datagram of `bytes` bytes keeps allocated; `bytes` is at least
/// [`RETAINED_BYTES_MIN`].
pub fn sealed_allocation_max(bytes: usize) -> usize {
    bytes + bytes / UNUSED_DIVISOR + OVERHEAD_BYTES
}

/// Returns whether the message fits into a run, alone in a datagram of `bytes_max` bytes.
pub fn fits_alone(entry: &Entry<'_>, bytes_max: usize) -> bool {
    entry.run_bytes() + Header::BYTES_MAX + CHECK_BYTES <= bytes_max
}

fn patch(buffer: &mut [u8], at: usize, value: u16) {
    let field = buffer.get_mut(at..at + 2).expect("the field was written before");
    field.copy_from_slice(&value.to_be_bytes());
}
