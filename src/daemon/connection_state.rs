//! State of a client's connection: readiness of its stream, and accounting of unwritten output.

use crate::listener::output_buffer::OutputBuffer;
use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// Bytes of unwritten answers beyond which the client is backpressured: it sends requests without reading the answers.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Minimum bytes of a read that make another one worthwhile: a client that sends much has sent more meanwhile.
const SMALL_BYTES: usize = 4 * 1024;
/// Maximum bytes of one span of output that is accounted for together.
const SPAN_BYTES: u64 = 64 * 1024;

/// State of a client's stream.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// True if there may be bytes to read.
    pub(crate) is_readable: bool,
    /// True if the client may have closed, or the connection may be broken; a read shows whether it is.
    pub(crate) may_be_closed: bool,
    /// True if the stream may take bytes.
    pub(crate) is_writable: bool,
    /// True if requests already read wait to be processed.
    pub(crate) has_buffered_input: bool,
    /// True if nothing more is read; the connection ends when all output is written.
    pub(crate) is_closing: bool,
    /// True if the client no longer reads. Its earlier requests are still read.
    is_write_closed: bool,
}

/// Outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// Number of bytes read.
    Bytes(usize),
    /// There is nothing to read for now.
    Nothing,
    /// The client has closed, or the connection is broken.
    End,
}

impl ConnectionState {
    /// Makes the state of a stream whose readiness is unknown.
    pub(crate) fn new() -> ConnectionState {
        ConnectionState {
            is_readable: true,
            may_be_closed: false,
            is_writable: true,
            has_buffered_input: false,
            is_closing: false,
            is_write_closed: false,
        }
    }

    /// Returns whether the client may have requests to process.
    pub(crate) fn has_input(&self) -> bool {
        !self.is_closing && (self.has_buffered_input || self.is_readable)
    }

    /// Reads once into `scratch` and passes the bytes to `take`. With `is_plain`, a read that does not fill `scratch`
    /// has emptied the socket, and later bytes cause an event of their own (`epoll(7)`). The end of the stream causes
    /// none if it was reported together with these bytes.
    pub(crate) fn read(
        &mut self,
        stream: &mut impl Read,
        is_plain: bool,
        scratch: &mut [u8],
        take: impl FnOnce(&[u8]),
    ) -> ReadOutcome {
        loop {
            match stream.read(scratch) {
                Ok(0) => return ReadOutcome::End,
                Ok(bytes) => {
                    take(&scratch[..bytes]);
                    self.is_readable = !is_plain || self.may_be_closed || scratch.len().min(SMALL_BYTES) <= bytes;
                    return ReadOutcome::Bytes(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    return ReadOutcome::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ReadOutcome::End,
            }
        }
    }

    /// Calls `write` if the stream may take bytes; `write` returns whether all output was written. Returns false at the
    /// end of a connection that the peer closes.
    pub(crate) fn write(&mut self, write: impl FnOnce() -> io::Result<bool>) -> bool {
        if self.is_writable && !self.is_write_closed {
            match write() {
                Ok(true) => return !self.is_closing,
                Ok(false) => self.is_writable = false,
                Err(_) => {
                    // A later read detects the end, after all messages that the client has published.
                    self.is_write_closed = true;
                    self.is_readable = true;
                }
            }
        }
        !(self.is_write_closed && self.is_closing)
    }

    /// Records that the client no longer reads.
    pub(crate) fn end_writes(&mut self) {
        self.is_write_closed = true;
    }

    /// Returns whether the client no longer reads.
    pub(crate) fn is_write_closed(&self) -> bool {
        self.is_write_closed
    }
}

/// Unwritten output of a client, with the amounts of messages and answers in it.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    /// The unwritten bytes. A call of [`WriteBuffer::count`] must follow each addition.
    pub(crate) out: OutputBuffer,
    /// Total bytes written so far.
    written: u64,
    /// Total bytes that spans account for, among them those written.
    counted: u64,
    /// Spans of the output that are not completely written, in order.
    spans: VecDeque<BufferSpan>,
    /// Number of unwritten messages and loss reports.
    events: usize,
    /// Number of unwritten bytes of answers.
    answer_bytes: usize,
    /// Total bytes up to the end of the last report that was put ahead.
    report_end: u64,
}

/// A span of the output. Its contents count until all of it is written.
#[derive(Debug)]
struct BufferSpan {
    start: u64,
    end: u64,
    events: usize,
    answer_bytes: usize,
}

impl WriteBuffer {
    /// Counts the bytes added to `out` since the last call as `events` messages or reports. The caller may count an
    /// event before it adds the bytes of the event, if it adds them before the next call.
    pub(crate) fn count_events(&mut self, events: usize) {
        self.count(events, false);
    }

    /// Counts the bytes added to `out` since the last call as answers.
    pub(crate) fn count_answers(&mut self) {
        self.count(0, true);
    }

    fn count(&mut self, events: usize, is_answer: bool) {
        let (start, end) = (self.counted, self.written + self.out.len() as u64);
        if start == end && events == 0 {
            return;
        }
        let answer_bytes = if is_answer { (end - start) as usize } else { 0 };
        self.counted = end;
        self.events += events;
        self.answer_bytes += answer_bytes;
        match self.spans.back_mut() {
            Some(span) if end - span.start <= SPAN_BYTES => {
                span.end = end;
                span.events += events;
                span.answer_bytes += answer_bytes;
            }
            _ => self.spans.push_back(BufferSpan { start, end, events, answer_bytes }),
        }
    }

    /// Inserts a report ahead of the unwritten output, behind the span whose writing has begun. All output must be
    /// counted: spans end where messages end.
    pub(crate) fn put_ahead(&mut self, report: Vec<u8>) {
        let begun = self.spans.front().filter(|span| span.start < self.written);
        let (index, offset) = begun.map_or((0, 0), |span| (1, span.end - self.written));
        let (start, bytes) = (self.written + offset, report.len() as u64);
        self.out.insert(offset as usize, report);
        for span in self.spans.iter_mut().skip(index) {
            (span.start, span.end) = (span.start + bytes, span.end + bytes);
        }
        self.spans.insert(index, BufferSpan { start, end: start + bytes, events: 0, answer_bytes: 0 });
        self.counted += bytes;
        self.report_end = start + bytes;
    }

    /// Returns whether a report that was put ahead is not completely written. A further one would overtake it.
    pub(crate) fn has_report_ahead(&self) -> bool {
        self.written < self.report_end
    }

    /// Returns the number of unwritten messages and reports.
    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// Returns the number of unwritten bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Returns the number of unwritten bytes that are not counted as shared payloads.
    pub(crate) fn own_bytes(&self) -> usize {
        self.out.uncounted_len()
    }

    /// Returns the number of unwritten bytes of answers.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Returns whether unwritten answers exceed the limit beyond which no more requests of the client are processed.
    pub(crate) fn is_backpressured(&self) -> bool {
        ANSWER_BYTES_MAX < self.answer_bytes
    }

    /// Writes until nothing waits or the writer would block. Returns false in the latter case.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn write_to(&mut self, writer: &mut impl Write) -> io::Result<bool> {
        let before = self.out.len();
        let outcome = self.out.write_to(writer);
        self.on_written(before - self.out.len());
        outcome
    }

    /// Discards all unwritten output of a client that no longer reads.
    pub(crate) fn clear(&mut self) {
        let bytes = self.out.len();
        self.out.clear();
        self.on_written(bytes);
    }

    fn on_written(&mut self, bytes: usize) {
        self.written += bytes as u64;
        while let Some(span) = self.spans.front()
            && span.end <= self.written
        {
            self.events -= span.events;
            self.answer_bytes -= span.answer_bytes;
            self.spans.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// A stream that takes this number of bytes and then blocks.
    struct Slow(usize);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn short_read_ends_reading_until_the_next_event() {
        let reads = |is_plain: bool, may_be_closed: bool| {
            let mut flow = ConnectionState { may_be_closed, ..ConnectionState::new() };
            let (mut stream, mut reads) = (&[7; 20][..], 0);
            while flow.is_readable && reads < 10 {
                reads += 1;
                if flow.read(&mut stream, is_plain, &mut [0; 8], |_| {}) == ReadOutcome::End {
                    break;
                }
            }
            reads
        };
        assert_eq!(reads(true, false), 3, "8, 8 and 4 bytes");
        assert_eq!(reads(true, true), 4, "and the end of the stream");
        assert_eq!(reads(false, false), 4);
    }

    #[test]
    fn written_answers_do_not_count_as_backpressure() {
        let mut unwritten = WriteBuffer::default();
        unwritten.out.put(&vec![0; 2 << 20]);
        unwritten.count_answers();
        unwritten.out.put(&vec![0; 1 << 20]);
        unwritten.count_events(10);
        assert!(!unwritten.write_to(&mut Slow(1 << 20)).unwrap() && unwritten.is_backpressured());
        assert!(!unwritten.write_to(&mut Slow(1 << 20)).unwrap());
        assert_eq!((unwritten.answer_bytes(), unwritten.events(), unwritten.bytes()), (0, 10, 1 << 20));
        unwritten.clear();
        assert_eq!((unwritten.answer_bytes(), unwritten.events(), unwritten.bytes()), (0, 0, 0));
    }

    #[test]
    fn report_precedes_messages_that_are_not_begun() {
        for written in [0, 1, SPAN_BYTES, SPAN_BYTES + 7] {
            let mut unwritten = WriteBuffer::default();
            for message in 0..30 {
                unwritten.out.put(&[message; 10_000]);
                unwritten.count_events(1);
            }
            let mut sent = Vec::new();
            let mut prefix = Prefix { sent: &mut sent, room: written as usize };
            unwritten.write_to(&mut prefix).unwrap();
            assert!(!unwritten.has_report_ahead());
            unwritten.put_ahead(vec![99; 3]);
            assert!(unwritten.has_report_ahead());
            assert!(unwritten.write_to(&mut sent).unwrap());
            assert!(!unwritten.has_report_ahead());
            assert_eq!((unwritten.events(), unwritten.bytes()), (0, 0));
            let at = sent.iter().position(|byte| *byte == 99).expect("the report is sent");
            assert_eq!(at % 10_000, 0, "no message is split");
            assert!((written..=written + SPAN_BYTES + 10_000).contains(&(at as u64)), "{written} {at}");
            sent.drain(at..at + 3);
            let messages = (0..30).flat_map(|message| [message; 10_000]);
            assert!(sent.into_iter().eq(messages), "everything else is unchanged");
        }
    }

    /// A stream that stores what it takes, up to this number of bytes.
    struct Prefix<'a> {
        sent: &'a mut Vec<u8>,
        room: usize,
    }

    impl Write for Prefix<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.sent.extend_from_slice(&bytes[..taken]);
            if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn unwritten_output_is_counted_within_one_span() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut unwritten = WriteBuffer::default();
            // Bytes of each message or answer, and true for an answer. Written ones are removed from the front.
            let mut twin: VecDeque<(usize, bool)> = VecDeque::new();
            for _ in 0..1000 {
                let (bytes, is_answer) = (rng.between(1, 5000) as usize, rng.chance(0.3));
                unwritten.out.put(&vec![0; bytes]);
                if is_answer {
                    unwritten.count_answers()
                } else {
                    unwritten.count_events(1)
                }
                twin.push_back((bytes, is_answer));
                let mut taken = rng.below(6000) as usize;
                let is_all = unwritten.write_to(&mut Slow(taken)).unwrap();
                while let Some((bytes, _)) = twin.front_mut() {
                    if taken < *bytes {
                        *bytes -= taken;
                        break;
                    }
                    taken -= *bytes;
                    twin.pop_front();
                }
                assert_eq!(is_all, twin.is_empty(), "seed {seed}");
                assert_eq!(unwritten.bytes(), twin.iter().map(|(bytes, _)| bytes).sum::<usize>(), "seed {seed}");
                let events = twin.iter().filter(|(_, is_answer)| !is_answer).count();
                let answers: usize = twin.iter().filter(|(_, is_answer)| *is_answer).map(|(bytes, _)| bytes).sum();
                assert!(events <= unwritten.events() && answers <= unwritten.answer_bytes(), "seed {seed}");
                assert!(unwritten.answer_bytes() <= answers + SPAN_BYTES as usize, "seed {seed}");
                assert!(!is_all || (unwritten.events(), unwritten.answer_bytes()) == (0, 0), "seed {seed}");
            }
        }
    }
}
