//! Answers to questions, in parts of limited size. Events are copied straight from the log into the
//! payload.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use super::format::{
    ANSWER, FETCH, FLAG_EVENT, FLAG_LAST, FLAG_META, FLAG_MORE, FLAG_NEXT, FLAG_SPAN, LIST, POLL, REFUSED, REPORT,
    SubjectWriter, put_text,
};
use super::model::{ANSWER_BYTES_MAX, HistoryDecodeError, LISTED_MAX, PART_BYTES_MAX, Question, Refused};
use crate::message::{Dseq, Epoch};
use crate::offset::{HistorySpan, Modulus, PollCase};
use crate::proto::history::{History, ListedSubject, RetainedEvent, RetainedEvents};
use crate::wire::{put_varint, varint_bytes};
use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of an answer before its body.
const HEAD_BYTES: usize = 20;
/// Initial capacity for the items of an answer, in bytes. Allocating a whole part would cost more than a short answer.
const FIRST_BYTES: usize = 1024;
/// Bytes of a span.
const SPAN_BYTES: usize = 24;
/// Bytes of an event before its entry.
pub(super) const EVENT_HEAD_BYTES: usize = 21;

/// Answers a question from the history: returns the payloads of all parts, in order, at least one. `epoch` is this run
/// of the peer, `high` the highest datagram that it has multicast.
pub fn answer(history: &History, epoch: Epoch, high: Dseq, question: &Bytes) -> Vec<Bytes> {
    let question = match Question::decode(question) {
        _ if history.is_off() => return refuse(epoch, high, Refused::Off),
        Ok(question) => question,
        Err(HistoryDecodeError::UnknownKind(_)) => return refuse(epoch, high, Refused::Unknown),
        Err(HistoryDecodeError::TooMany(_)) => return refuse(epoch, high, Refused::TooMany),
        Err(_) => return refuse(epoch, high, Refused::Malformed),
    };
    match question {
        Question::Poll(polls) => {
            let mut parts = AnswerParts::new(epoch, high, ANSWER | POLL);
            for poll in polls {
                let text = poll.subject.as_bytes();
                let retained = history.retained(text);
                let case = HistorySpan::answer(retained.map(|retained| retained.span), Modulus::WIRE, poll.offset);
                let range = match (case, retained) {
                    (PollCase::Successor, Some(retained)) => retained.index_after(poll.offset)..retained.len(),
                    _ => 0..0,
                };
                let number = match case {
                    PollCase::Successor => 1,
                    PollCase::NoEvent => 2,
                    PollCase::Recovery => 3,
                };
                if !parts.put_answer(number, text, retained, range, usize::from(poll.count)) {
                    break;
                }
            }
            parts.finish(None)
        }
        Question::Fetch(fetches) => {
            let mut parts = AnswerParts::new(epoch, high, ANSWER | FETCH);
            for fetch in fetches {
                let text = fetch.subject.as_bytes();
                let retained = history.retained(text);
                let range =
                    retained.map_or(0..0, |retained| retained.index_of(fetch.first)..retained.index_past(fetch.last));
                if !parts.put_answer(0, text, retained, range, usize::MAX) {
                    break;
                }
            }
            parts.finish(None)
        }
        Question::List { pattern, selection, from, limit } => {
            let listing = history.list(&pattern, selection, from, usize::from(limit.min(LISTED_MAX)));
            let mut parts = AnswerParts::new(epoch, high, ANSWER | LIST);
            for ListedSubject { subject, span } in &listing.listed {
                parts.put_listed(subject.as_bytes(), span);
            }
            parts.finish(listing.next)
        }
        Question::Report(_) => refuse(epoch, high, Refused::NoReports),
    }
}

/// Returns the query of a question about a report; `None` if the question is another one, or cannot be read.
pub fn report_query(question: &Bytes) -> Option<Bytes> {
    match Question::decode(question) {
        Ok(Question::Report(query)) => Some(query),
        _ => None,
    }
}

/// Returns the payloads of all parts of an answer about a report, at least one. `epoch` and `high` are those of
/// [`answer`].
pub fn report_parts(epoch: Epoch, high: Dseq, report: Result<&[u8], Refused>) -> Vec<Bytes> {
    let report = match report {
        Ok(report) => report,
        Err(reason) => return refuse(epoch, high, reason),
    };
    // An empty report has one part, too.
    let parts = report.len().div_ceil(PART_BYTES_MAX).max(1);
    let part = |number: usize| {
        let bytes = report.chunks(PART_BYTES_MAX).nth(number).unwrap_or_default();
        let mut out = BytesMut::with_capacity(HEAD_BYTES + 2 + bytes.len());
        let flags = if number + 1 == parts { FLAG_LAST } else { 0 };
        let number = u16::try_from(number).expect("a report has few parts");
        put_head(&mut out, ANSWER | REPORT, flags, number, epoch, high);
        out.put_u16(u16::try_from(bytes.len()).expect("a part has at most 48 KiB"));
        out.put_slice(bytes);
        out.freeze()
    };
    (0..parts).map(part).collect()
}

fn refuse(epoch: Epoch, high: Dseq, reason: Refused) -> Vec<Bytes> {
    let mut out = BytesMut::new();
    put_head(&mut out, REFUSED, FLAG_LAST, 0, epoch, high);
    out.put_u8(reason.code());
    vec![out.freeze()]
}

pub(super) fn put_head(out: &mut BytesMut, kind: u8, flags: u8, part: u16, epoch: Epoch, high: Dseq) {
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u16(part);
    out.put_u64(epoch.bits());
    out.put_u64(high.0);
}

pub(super) fn put_span(out: &mut BytesMut, span: &HistorySpan) {
    out.put_u32(span.first);
    out.put_u32(span.last);
    out.put_u64(span.first_seq.raw());
    out.put_u64(span.last_seq.raw());
}

/// Returns the bytes of an event.
fn event_bytes(event: &RetainedEvent<'_>) -> usize {
    let meta = if has_meta(event) { 1 + varint_bytes(event.headers.len()) } else { 0 };
    EVENT_HEAD_BYTES + varint_bytes(event.payload.len()) + meta + event.body_bytes()
}

fn has_meta(event: &RetainedEvent<'_>) -> bool {
    !event.reply.is_empty() || !event.headers.is_empty()
}

pub(super) fn put_event(out: &mut BytesMut, event: &RetainedEvent<'_>) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.put_u8(flag(event.event, FLAG_EVENT) | flag(has_meta(event), FLAG_META));
    out.put_u64(event.seq.raw());
    out.put_u32(event.offset);
    out.put_u64(event.time.as_nanos());
    put_varint(out, event.payload.len());
    if has_meta(event) {
        put_text(out, event.reply);
        put_varint(out, event.headers.len());
        out.put_slice(event.headers);
    }
    out.put_slice(event.payload);
}

/// Answer to one question, cut into parts.
struct AnswerParts {
    epoch: Epoch,
    high: Dseq,
    kind: u8,
    done: Vec<Bytes>,
    done_bytes: usize,
    /// Items of the open part.
    items: BytesMut,
    count: u16,
    /// Number of items in the finished parts.
    first: u16,
    subjects: SubjectWriter,
}

impl AnswerParts {
    fn new(epoch: Epoch, high: Dseq, kind: u8) -> AnswerParts {
        AnswerParts {
            epoch,
            high,
            kind,
            done: Vec::new(),
            done_bytes: 0,
            items: BytesMut::new(),
            count: 0,
            first: 0,
            subjects: SubjectWriter::default(),
        }
    }

    /// Adds an answer with the events in `range` that fit, at most `count_max`. Returns false if it is the last one
    /// that this answer takes.
    fn put_answer(
        &mut self,
        number: u8,
        text: &[u8],
        retained: Option<RetainedEvents<'_>>,
        range: std::ops::Range<usize>,
        count_max: usize,
    ) -> bool {
        let has_count = number < 2;
        let start_bytes = 2 + text.len() + retained.map_or(0, |_| SPAN_BYTES) + if has_count { 2 } else { 0 };
        let mut pending = retained.filter(|_| !range.is_empty()).map(|retained| retained.event_at(range.start));
        self.make_room(start_bytes + pending.as_ref().map_or(0, event_bytes));
        let case_at = self.items.len();
        let case = number | retained.map_or(0, |_| FLAG_SPAN);
        self.items.put_u8(case);
        self.subjects.put(&mut self.items, text);
        if let Some(retained) = retained {
            put_span(&mut self.items, &retained.span);
        }
        let count_at = self.items.len();
        let mut count = 0_u16;
        if has_count {
            self.items.put_u16(0);
        }
        while let (Some(event), Some(retained)) = (pending, retained) {
            put_event(&mut self.items, &event);
            count += 1;
            let next = range.start + usize::from(count);
            pending = (next < range.end).then(|| retained.event_at(next));
            let is_full = count == u16::MAX || count_max <= usize::from(count);
            if let Some(next) = pending
                && (is_full || PART_BYTES_MAX < HEAD_BYTES + 4 + self.items.len() + event_bytes(&next))
            {
                patch(&mut self.items, case_at, &[case | FLAG_MORE]);
                break;
            }
        }
        if has_count {
            patch(&mut self.items, count_at, &count.to_be_bytes());
        }
        self.count += 1;
        self.done_bytes + self.items.len() < ANSWER_BYTES_MAX
    }

    fn put_listed(&mut self, text: &[u8], span: &HistorySpan) {
        self.make_room(1 + text.len() + SPAN_BYTES);
        self.subjects.put(&mut self.items, text);
        put_span(&mut self.items, span);
        self.count += 1;
    }

    /// Ends the open part if `bytes` more would make it too large.
    fn make_room(&mut self, bytes: usize) {
        if self.count == 0 {
            self.items.reserve(bytes.max(FIRST_BYTES));
        } else if PART_BYTES_MAX < HEAD_BYTES + 8 + self.items.len() + bytes {
            self.end_part(0, None);
            self.items.reserve(bytes.max(PART_BYTES_MAX));
        }
    }

    fn end_part(&mut self, flags: u8, next: Option<u32>) {
        let part = self.done.len() as u16;
        let mut out = BytesMut::with_capacity(HEAD_BYTES + 8 + self.items.len());
        put_head(&mut out, self.kind, flags, part, self.epoch, self.high);
        if self.kind != ANSWER | LIST {
            out.put_u16(self.first);
        } else if let Some(next) = next {
            out.put_u32(next);
        }
        out.put_u16(self.count);
        out.put_slice(&self.items);
        self.done_bytes += self.items.len();
        self.done.push(out.freeze());
        self.first += self.count;
        self.count = 0;
        self.items.clear();
        self.subjects = SubjectWriter::default();
    }

    fn finish(mut self, next: Option<u32>) -> Vec<Bytes> {
        self.end_part(FLAG_LAST | if next.is_some() { FLAG_NEXT } else { 0 }, next);
        self.done
    }
}

fn patch(buffer: &mut BytesMut, at: usize, bytes: &[u8]) {
    let field = buffer.get_mut(at..at + bytes.len()).expect("the field was written before");
    field.copy_from_slice(bytes);
}
