//! Questions to a peer's history, and its answers: the payloads of messages on `_INBOX.<epoch>.HISTORY` and of the
//! replies (docs/wire.md, "History service"; seed 000).
//!
//! A payload has no version of its own; an unknown kind is refused. All numbers are big-endian. A subject is encoded as
//! a length of one byte and its bytes; length 0 means the preceding subject in the same payload.
//!
//! ```text
//! question = kind u8 · body
//!   0x01 POLL  = count u16 · count x (subject · offset u32 · events u16)
//!   0x02 FETCH = count u16 · count x (subject · first seq u64 · last seq u64)
//!   0x03 LIST  = pattern bytes u8 · pattern · newest u32 (0: all) · age in ns u64 (0: any) · from u32 · limit u16
//! answer   = kind u8 · flags u8 · part u16 · epoch u64 · high dseq u64 · body
//!   0x81 POLL  = first u16 · count u16 · count x (case u8 · subject · [span] · [count u16 · events])
//!   0x82 FETCH = first u16 · count u16 · count x (case u8 · subject · [span] · count u16 · events)
//!   0x83 LIST  = next u32 if NEXT · count u16 · count x (subject · span)
//!   0xff REFUSED = reason u8
//! span     = first offset u32 · last offset u32 · first seq u64 · last seq u64
//! event    = flags u8 · seq u64 · offset u32 · time u64 · entry, as in RUN
//! flags of an answer: 0x01 LAST, 0x02 NEXT; of a case: 0x04 SPAN, 0x08 MORE; of an event: 0x08 EVENT, 0x10 META
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod answer;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use answer::answer;

use crate::message::{Dseq, Epoch};
use crate::offset::{HistorySpan, PollCase};
use crate::proto::history::{HistoryEvent, ListedSubject, Selection};
use crate::seqno::Seq;
use crate::subject::{Pattern, Subject, SubjectError};
use crate::time::nanos;
use crate::wire::{self, queue};
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// Maximum number of polls or fetches in one question.
pub const ITEMS_MAX: usize = 4096;
/// Maximum number of subjects that one question of kind LIST gets.
pub const LISTED_MAX: u16 = 4096;
/// Maximum bytes of one part of an answer, unless a single event needs more: a message of few datagrams.
pub const PART_BYTES_MAX: usize = 48 * 1024;
/// Bytes of the parts of an answer after which the rest of the question stays unanswered.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

const POLL: u8 = 0x01;
const FETCH: u8 = 0x02;
const LIST: u8 = 0x03;
/// Bit that is set in the kind of an answer.
const ANSWER: u8 = 0x80;
const REFUSED: u8 = 0xff;

const FLAG_LAST: u8 = 0x01;
const FLAG_NEXT: u8 = 0x02;
/// Bits of a case byte that hold the number of the case; 0 in a FETCH.
const CASE_BITS: u8 = 0x03;
const FLAG_SPAN: u8 = 0x04;
const FLAG_MORE: u8 = 0x08;
const FLAG_EVENT: u8 = 0x08;
const FLAG_META: u8 = 0x10;

/// One poll for the events that follow an offset of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The subject.
    pub subject: Subject,
    /// n: offset of the last event that the client has, or 0.
    pub offset: u32,
    /// Maximum number of events; at least 1.
    pub count: u16,
}

/// One requested range of numbers of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The subject.
    pub subject: Subject,
    /// The lowest number.
    pub first: Seq,
    /// The highest number, not below `first`.
    pub last: Seq,
}

/// Question to a peer's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The polls of seed 000; 1 to [`ITEMS_MAX`].
    Poll(Vec<Poll>),
    /// Events by number, the second way of repair; 1 to [`ITEMS_MAX`].
    Fetch(Vec<Fetch>),
    /// A listing of subjects.
    List {
        /// Pattern of the subjects.
        pattern: Pattern,
        /// Selected part of each subject; a subject without events in it is left out.
        selection: Selection,
        /// 0, or the `next` of the previous answer.
        from: u32,
        /// Maximum number of subjects, at least 1; the answer has no more than [`LISTED_MAX`].
        limit: u16,
    },
}

/// One part of the answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Epoch of the answering publisher.
    pub epoch: Epoch,
    /// Highest datagram that it has multicast at this time: later messages are in later datagrams.
    pub high: Dseq,
    /// Number of the part, from 0.
    pub part: u16,
    /// True if it is the last part.
    pub last: bool,
    /// The answer.
    pub content: AnswerContent,
}

/// The content of an answer, by the kind of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerContent {
    /// Answers to some polls, in order.
    Poll {
        /// The index in the question of the first one.
        first: u16,
        /// The answers. If the last part does not reach the end of the question, the client must ask the rest again.
        answers: Vec<PollAnswer>,
    },
    /// Answers to some fetches, in order; the rule for polls applies.
    Fetch {
        /// The index in the question of the first one.
        first: u16,
        /// The answers.
        answers: Vec<FetchAnswer>,
    },
    /// A part of a listing.
    List {
        /// Subjects, with the selected span of each.
        listed: Vec<ListedSubject>,
        /// In the last part: start of the next listing, unless that was all.
        next: Option<u32>,
    },
    /// A refusal of the question.
    Refused(Refused),
}

impl AnswerContent {
    /// Removes the stamps of queue groups from the messages, because clients do not get them.
    pub(crate) fn unstamp(&mut self) {
        let unstamp = |event: &mut HistoryEvent| {
            if queue::is_stamped(event.message.headers.block()) {
                event.message.headers = queue::unstamped(&event.message.headers);
            }
        };
        match self {
            AnswerContent::Poll { answers, .. } => {
                answers.iter_mut().flat_map(|answer| &mut answer.events).for_each(unstamp);
            }
            AnswerContent::Fetch { answers, .. } => {
                answers.iter_mut().flat_map(|answer| &mut answer.events).for_each(unstamp);
            }
            AnswerContent::List { .. } | AnswerContent::Refused(_) => {}
        }
    }
}

/// The answer to one poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollAnswer {
    /// The subject.
    pub subject: Subject,
    /// Case of the seed.
    pub case: PollCase,
    /// Span that the history retains of the subject now; `None` if nothing.
    pub span: Option<HistorySpan>,
    /// In case 1 the next event and its successors, up to the requested count and the room in the part; else none.
    pub events: Vec<HistoryEvent>,
    /// True if more events follow than are here.
    pub more: bool,
}

/// The answer to one fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchAnswer {
    /// The subject.
    pub subject: Subject,
    /// Span that the history retains of the subject now: numbers below its first are gone. `None` if all are.
    pub span: Option<HistorySpan>,
    /// Events in the range, from the lowest number, up to the room in the part.
    pub events: Vec<HistoryEvent>,
    /// True if the range has more events than are here.
    pub more: bool,
}

/// Reason for which a question is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The question cannot be read.
    Malformed,
    /// Its kind is unknown.
    Unknown,
    /// It has more than [`ITEMS_MAX`] polls or fetches.
    TooMany,
    /// This peer keeps no history.
    Off,
}

impl Refused {
    const ALL: [Refused; 4] = [Refused::Malformed, Refused::Unknown, Refused::TooMany, Refused::Off];

    /// Returns the number on the wire.
    fn code(self) -> u8 {
        match self {
            Refused::Malformed => 1,
            Refused::Unknown => 2,
            Refused::TooMany => 3,
            Refused::Off => 4,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Malformed => write!(f, "the question cannot be read"),
            Refused::Unknown => write!(f, "the peer does not know this kind of question"),
            Refused::TooMany => write!(f, "one question holds at most {ITEMS_MAX} polls"),
            Refused::Off => write!(f, "the peer keeps no history"),
        }
    }
}

/// Reason for which bytes are no valid question or answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryDecodeError {
    /// A field cannot be read.
    Field(wire::Malformed),
    /// A kind that does not exist.
    Kind(u8),
    /// The pattern is invalid.
    Pattern(SubjectError),
    /// The question is empty: it wants no items, no events or no subjects.
    Nothing,
    /// More than [`ITEMS_MAX`] items; holds the number.
    TooMany(u16),
    /// The last number is below the first.
    Range,
    /// A subject of length 0 that follows none.
    NoSubject,
    /// Flags that do not exist or a case that contradicts its fields.
    PollCase(u8),
    /// Events that do not follow each other.
    Order,
    /// A reason that does not exist.
    Reason(u8),
}

impl From<wire::Malformed> for HistoryDecodeError {
    fn from(malformed: wire::Malformed) -> HistoryDecodeError {
        HistoryDecodeError::Field(malformed)
    }
}

impl fmt::Display for HistoryDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryDecodeError::Field(malformed) => malformed.fmt(f),
            HistoryDecodeError::Kind(kind) => write!(f, "the kind {kind:#04x} does not exist"),
            HistoryDecodeError::Pattern(error) => write!(f, "pattern: {error}"),
            HistoryDecodeError::Nothing => write!(f, "nothing is asked"),
            HistoryDecodeError::TooMany(count) => write!(f, "{count} items, more than {ITEMS_MAX}"),
            HistoryDecodeError::Range => write!(f, "the last number is below the first"),
            HistoryDecodeError::NoSubject => write!(f, "a subject of length 0 must follow another one"),
            HistoryDecodeError::PollCase(case) => write!(f, "the case {case:#04x} does not fit what comes with it"),
            HistoryDecodeError::Order => write!(f, "the events do not follow each other"),
            HistoryDecodeError::Reason(reason) => write!(f, "the reason {reason} does not exist"),
        }
    }
}

impl std::error::Error for HistoryDecodeError {}

impl Question {
    /// Writes the payload of a question.
    ///
    /// # Panics
    /// If it has no items or more than [`ITEMS_MAX`].
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
        }
        out.freeze()
    }
}

/// Writer of subjects that writes a repeated subject only once.
#[derive(Default)]
struct SubjectWriter {
    before: Vec<u8>,
}

impl SubjectWriter {
    fn put(&mut self, out: &mut BytesMut, text: &[u8]) {
        if self.before == text {
            out.put_u8(0);
            return;
        }
        put_text(out, text);
        self.before.clear();
        self.before.extend_from_slice(text);
    }
}

fn put_text(out: &mut BytesMut, text: &[u8]) {
    out.put_u8(u8::try_from(text.len()).expect("subjects and patterns have at most 255 bytes"));
    out.put_slice(text);
}
