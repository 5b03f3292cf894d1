//! Encoders of a question, and of a decoded answer as the answering peer wrote it: for a client of this peer that
//! decodes for itself.

use super::answer::{put_event, put_head, put_span};
use super::format::{
    ANSWER, FETCH, FLAG_LAST, FLAG_MORE, FLAG_NEXT, FLAG_SPAN, LIST, POLL, REFUSED, REPORT, SubjectWriter, put_text,
};
use super::model::{Answer, AnswerContent, ITEMS_MAX, QUERY_BYTES_MAX, Question};
use crate::offset::{HistorySpan, PollCase};
use crate::proto::history::{HistoryEvent, RetainedEvent};
use crate::subject::Subject;
use crate::time::nanos;
use bytes::{BufMut, Bytes, BytesMut};

impl Question {
    /// Writes the payload of a question.
    ///
    /// # Panics
    /// If it has no items or more than [`ITEMS_MAX`], or a query of 0 or more than [`QUERY_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let mut subjects = SubjectWriter::default();
        let count = |len: usize| {
            assert!(1 <= len && len <= ITEMS_MAX, "a question has 1 to {ITEMS_MAX} items");
            len as u16
        };
        match self {
            Question::Poll(polls) => {
                out.put_u8(POLL);
                out.put_u16(count(polls.len()));
                for poll in polls {
                    subjects.put(&mut out, poll.subject.as_bytes());
                    out.put_u32(poll.offset);
                    out.put_u16(poll.count);
                }
            }
            Question::Fetch(fetches) => {
                out.put_u8(FETCH);
                out.put_u16(count(fetches.len()));
                for fetch in fetches {
                    subjects.put(&mut out, fetch.subject.as_bytes());
                    out.put_u64(fetch.first.raw());
                    out.put_u64(fetch.last.raw());
                }
            }
            Question::List { pattern, selection, from, limit } => {
                out.put_u8(LIST);
                put_text(&mut out, pattern.as_str().as_bytes());
                out.put_u32(selection.newest.map_or(0, |newest| newest.max(1)));
                out.put_u64(selection.age.map_or(0, |age| nanos(age).max(1)));
                out.put_u32(*from);
                out.put_u16(*limit);
            }
            Question::Report(query) => {
                assert!(
                    !query.is_empty() && query.len() <= QUERY_BYTES_MAX,
                    "a query has 1 to {QUERY_BYTES_MAX} bytes"
                );
                out.put_u8(REPORT);
                out.put_u16(query.len() as u16);
                out.put_slice(query);
            }
        }
        out.freeze()
    }
}

impl Answer {
    /// Writes the payload that [`Answer::decode`] reads.
    pub fn encode(&self) -> Bytes {
        let (kind, next) = match &self.content {
            AnswerContent::Poll { .. } => (ANSWER | POLL, None),
            AnswerContent::Fetch { .. } => (ANSWER | FETCH, None),
            AnswerContent::List { next, .. } => (ANSWER | LIST, *next),
            AnswerContent::Report(_) => (ANSWER | REPORT, None),
            AnswerContent::Refused(_) => (REFUSED, None),
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.last, FLAG_LAST) | flag(next.is_some(), FLAG_NEXT);
        let mut out = BytesMut::new();
        put_head(&mut out, kind, flags, self.part, self.epoch, self.high);
        let mut subjects = SubjectWriter::default();
        match &self.content {
            AnswerContent::Poll { first, answers } => {
                out.put_u16(*first);
                out.put_u16(count(answers.len()));
                for answer in answers {
                    let number = match answer.case {
                        PollCase::Successor => 1,
                        PollCase::NoEvent => 2,
                        PollCase::Recovery => 3,
                    };
                    put_case(&mut out, &mut subjects, number, &answer.subject, answer.span.as_ref(), answer.more);
                    if answer.case == PollCase::Successor {
                        put_events(&mut out, &answer.events);
                    }
                }
            }
            AnswerContent::Fetch { first, answers } => {
                out.put_u16(*first);
                out.put_u16(count(answers.len()));
                for answer in answers {
                    put_case(&mut out, &mut subjects, 0, &answer.subject, answer.span.as_ref(), answer.more);
                    put_events(&mut out, &answer.events);
                }
            }
            AnswerContent::List { listed, next } => {
                if let Some(next) = next {
                    out.put_u32(*next);
                }
                out.put_u16(count(listed.len()));
                for listed in listed {
                    subjects.put(&mut out, listed.subject.as_bytes());
                    put_span(&mut out, &listed.span);
                }
            }
            AnswerContent::Report(part) => {
                out.put_u16(count(part.len()));
                out.put_slice(part);
            }
            AnswerContent::Refused(reason) => out.put_u8(reason.code()),
        }
        out.freeze()
    }
}

fn count(len: usize) -> u16 {
    u16::try_from(len).expect("a part counts its items, events and bytes in 16 bits")
}

fn put_case(
    out: &mut BytesMut,
    subjects: &mut SubjectWriter,
    number: u8,
    subject: &Subject,
    span: Option<&HistorySpan>,
    has_more: bool,
) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.put_u8(number | flag(span.is_some(), FLAG_SPAN) | flag(has_more, FLAG_MORE));
    subjects.put(out, subject.as_bytes());
    if let Some(span) = span {
        put_span(out, span);
    }
}

fn put_events(out: &mut BytesMut, events: &[HistoryEvent]) {
    out.put_u16(count(events.len()));
    for HistoryEvent { seq, offset, time, message } in events {
        put_event(
            out,
            &RetainedEvent {
                seq: *seq,
                offset: *offset,
                time: *time,
                event: message.event,
                reply: message.reply.as_ref().map_or(&[], |reply| reply.as_bytes()),
                headers: message.headers.block(),
                payload: &message.payload,
            },
        );
    }
}
