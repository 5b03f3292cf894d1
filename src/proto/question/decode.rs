//! Decoder of questions and answers. The reader of the wire compares every length with the bytes present.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use super::format::{
    ANSWER, CASE_BITS, FETCH, FLAG_EVENT, FLAG_LAST, FLAG_META, FLAG_MORE, FLAG_NEXT, FLAG_SPAN, LIST, POLL, REFUSED,
    REPORT,
};
use super::model::{
    Answer, AnswerContent, Fetch, FetchAnswer, HistoryDecodeError, ITEMS_MAX, Poll, PollAnswer, QUERY_BYTES_MAX,
    Question, Refused,
};
use crate::message::{Dseq, Epoch, Message};
use crate::offset::{HistorySpan, PollCase};
use crate::proto::history::{HistoryEvent, ListedSubject, Selection};
use crate::seqno::Seq;
use crate::subject::{Pattern, Subject};
use crate::time::WallTime;
use crate::wire::{self, EntryMeta, Reader};
use bytes::Bytes;
use std::time::Duration;

/// Reader of a payload whose subjects may refer to the one before.
struct FieldReader<'a> {
    reader: Reader<'a>,
    subject: Option<Subject>,
}

impl<'a> FieldReader<'a> {
    fn new(payload: &'a Bytes) -> FieldReader<'a> {
        FieldReader { reader: Reader::new(payload), subject: None }
    }

    fn subject(&mut self) -> Result<Subject, HistoryDecodeError> {
        let bytes = usize::from(self.reader.u8()?);
        if bytes != 0 {
            let subject = Subject::from_bytes(self.reader.bytes(bytes)?).map_err(wire::DecodeError::Subject)?;
            self.subject = Some(subject);
        }
        self.subject.clone().ok_or(HistoryDecodeError::MissingSubject)
    }

    fn seq(&mut self) -> Result<Seq, HistoryDecodeError> {
        let raw = self.reader.u64()?;
        Ok(Seq::new(raw).ok_or(wire::DecodeError::Seq(raw))?)
    }

    fn span(&mut self) -> Result<HistorySpan, HistoryDecodeError> {
        let (first, last) = (self.reader.u32()?, self.reader.u32()?);
        let (first_seq, last_seq) = (self.seq()?, self.seq()?);
        if last_seq < first_seq {
            return Err(HistoryDecodeError::InvertedRange);
        }
        Ok(HistorySpan { first, last, first_seq, last_seq })
    }

    fn event(&mut self, subject: &Subject) -> Result<HistoryEvent, HistoryDecodeError> {
        let flags = self.reader.u8()?;
        if flags & !(FLAG_EVENT | FLAG_META) != 0 {
            return Err(wire::DecodeError::Flags(flags).into());
        }
        let seq = self.seq()?;
        let (offset, time) = (self.reader.u32()?, WallTime::from_nanos(self.reader.u64()?));
        let payload_bytes = self.reader.varint()?;
        let meta = EntryMeta::decode(&mut self.reader, flags & FLAG_META != 0)?;
        let payload = self.reader.bytes(payload_bytes)?;
        let message = Message {
            subject: subject.clone(),
            reply: meta.reply(&self.reader)?,
            headers: meta.headers(&self.reader),
            payload,
            event: flags & FLAG_EVENT != 0,
        };
        Ok(HistoryEvent { seq, offset, time, message })
    }

    /// Reads a count and that number of events, each of which follows the one before.
    fn events(&mut self, subject: &Subject) -> Result<Vec<HistoryEvent>, HistoryDecodeError> {
        let count = self.reader.u16()?;
        let mut events: Vec<HistoryEvent> = Vec::new();
        for _ in 0..count {
            let event = self.event(subject)?;
            let follows = |last: &HistoryEvent| last.seq < event.seq && last.offset.wrapping_add(1) == event.offset;
            if !events.last().is_none_or(follows) {
                return Err(HistoryDecodeError::EventsOutOfOrder);
            }
            events.push(event);
        }
        Ok(events)
    }

    fn finish(&self, kind: u8) -> Result<(), HistoryDecodeError> {
        Ok(self.reader.finish(kind)?)
    }
}

impl Question {
    /// Reads the payload of a question. Its subjects are slices of it.
    ///
    /// # Errors
    /// Returns the reason if the bytes are invalid.
    pub fn decode(payload: &Bytes) -> Result<Question, HistoryDecodeError> {
        let mut fields = FieldReader::new(payload);
        let kind = fields.reader.u8()?;
        let question = match kind {
            POLL => Question::Poll(items(&mut fields, |fields| {
                let poll =
                    Poll { subject: fields.subject()?, offset: fields.reader.u32()?, count: fields.reader.u16()? };
                if poll.count == 0 { Err(HistoryDecodeError::Empty) } else { Ok(poll) }
            })?),
            FETCH => Question::Fetch(items(&mut fields, |fields| {
                let fetch = Fetch { subject: fields.subject()?, first: fields.seq()?, last: fields.seq()? };
                if fetch.last < fetch.first { Err(HistoryDecodeError::InvertedRange) } else { Ok(fetch) }
            })?),
            LIST => {
                let bytes = usize::from(fields.reader.u8()?);
                let pattern = Pattern::from_bytes(fields.reader.bytes(bytes)?).map_err(HistoryDecodeError::Pattern)?;
                let (newest, age) = (fields.reader.u32()?, fields.reader.u64()?);
                let selection = Selection {
                    newest: (newest != 0).then_some(newest),
                    age: (age != 0).then_some(Duration::from_nanos(age)),
                };
                let (from, limit) = (fields.reader.u32()?, fields.reader.u16()?);
                if limit == 0 {
                    return Err(HistoryDecodeError::Empty);
                }
                Question::List { pattern, selection, from, limit }
            }
            REPORT => match usize::from(fields.reader.u16()?) {
                0 => return Err(HistoryDecodeError::Empty),
                bytes if bytes <= QUERY_BYTES_MAX => Question::Report(fields.reader.bytes(bytes)?),
                _ => return Err(wire::DecodeError::Truncated.into()),
            },
            unknown => return Err(HistoryDecodeError::UnknownKind(unknown)),
        };
        fields.finish(kind)?;
        Ok(question)
    }
}

/// Reads a count and that number of items.
fn items<T>(
    fields: &mut FieldReader<'_>,
    mut item: impl FnMut(&mut FieldReader<'_>) -> Result<T, HistoryDecodeError>,
) -> Result<Vec<T>, HistoryDecodeError> {
    let count = fields.reader.u16()?;
    if count == 0 {
        return Err(HistoryDecodeError::Empty);
    }
    if ITEMS_MAX < usize::from(count) {
        return Err(HistoryDecodeError::TooMany(count));
    }
    // The list grows with the bytes present, not with the claimed count.
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(item(fields)?);
    }
    Ok(all)
}

impl Answer {
    /// Reads the payload of one part of an answer. Its messages are slices of it.
    ///
    /// # Errors
    /// Returns the reason if the bytes are invalid.
    pub fn decode(payload: &Bytes) -> Result<Answer, HistoryDecodeError> {
        let mut fields = FieldReader::new(payload);
        let (kind, flags) = (fields.reader.u8()?, fields.reader.u8()?);
        let has_next = flags & FLAG_NEXT != 0;
        if flags & !(FLAG_LAST | FLAG_NEXT) != 0 || has_next && (kind != ANSWER | LIST || flags & FLAG_LAST == 0) {
            return Err(wire::DecodeError::Flags(flags).into());
        }
        let part = fields.reader.u16()?;
        let epoch = Epoch::new(fields.reader.u64()?).ok_or(wire::DecodeError::Epoch)?;
        let high = Dseq(fields.reader.u64()?);
        const POLLS: u8 = ANSWER | POLL;
        const FETCHES: u8 = ANSWER | FETCH;
        const LISTS: u8 = ANSWER | LIST;
        const REPORTS: u8 = ANSWER | REPORT;
        let content = match kind {
            POLLS => {
                AnswerContent::Poll { first: fields.reader.u16()?, answers: items(&mut fields, PollAnswer::decode)? }
            }
            FETCHES => {
                AnswerContent::Fetch { first: fields.reader.u16()?, answers: items(&mut fields, FetchAnswer::decode)? }
            }
            LISTS => {
                let next = if has_next { Some(fields.reader.u32()?) } else { None };
                let count = fields.reader.u16()?;
                let mut listed = Vec::new();
                for _ in 0..count {
                    listed.push(ListedSubject { subject: fields.subject()?, span: fields.span()? });
                }
                AnswerContent::List { listed, next }
            }
            REPORTS => {
                let bytes = usize::from(fields.reader.u16()?);
                AnswerContent::Report(fields.reader.bytes(bytes)?)
            }
            REFUSED => {
                let code = fields.reader.u8()?;
                let reason = Refused::ALL.into_iter().find(|reason| reason.code() == code);
                AnswerContent::Refused(reason.ok_or(HistoryDecodeError::UnknownReason(code))?)
            }
            unknown => return Err(HistoryDecodeError::UnknownKind(unknown)),
        };
        fields.finish(kind)?;
        Ok(Answer { epoch, high, part, last: flags & FLAG_LAST != 0, content })
    }
}

/// Common fields of the answers to polls and fetches.
struct AnswerHeader {
    number: u8,
    more: bool,
    subject: Subject,
    span: Option<HistorySpan>,
}

impl AnswerHeader {
    fn decode(fields: &mut FieldReader<'_>) -> Result<AnswerHeader, HistoryDecodeError> {
        let case = fields.reader.u8()?;
        if case & !(CASE_BITS | FLAG_SPAN | FLAG_MORE) != 0 {
            return Err(HistoryDecodeError::CaseMismatch(case));
        }
        let subject = fields.subject()?;
        let span = if case & FLAG_SPAN != 0 { Some(fields.span()?) } else { None };
        Ok(AnswerHeader { number: case & CASE_BITS, more: case & FLAG_MORE != 0, subject, span })
    }
}

impl PollAnswer {
    fn decode(fields: &mut FieldReader<'_>) -> Result<PollAnswer, HistoryDecodeError> {
        let AnswerHeader { number, more, subject, span } = AnswerHeader::decode(fields)?;
        let (case, events) = match number {
            1 => (PollCase::Successor, fields.events(&subject)?),
            2 => (PollCase::NoEvent, Vec::new()),
            3 => (PollCase::Recovery, Vec::new()),
            _ => return Err(HistoryDecodeError::CaseMismatch(number)),
        };
        let is_event = case == PollCase::Successor;
        if is_event == events.is_empty() || more && !is_event || span.is_none() && case != PollCase::NoEvent {
            return Err(HistoryDecodeError::CaseMismatch(number));
        }
        Ok(PollAnswer { subject, case, span, events, more })
    }
}

impl FetchAnswer {
    fn decode(fields: &mut FieldReader<'_>) -> Result<FetchAnswer, HistoryDecodeError> {
        let AnswerHeader { number, more, subject, span } = AnswerHeader::decode(fields)?;
        let events = fields.events(&subject)?;
        if number != 0 || span.is_none() && !events.is_empty() || more && events.is_empty() {
            return Err(HistoryDecodeError::CaseMismatch(number));
        }
        Ok(FetchAnswer { subject, span, events, more })
    }
}
