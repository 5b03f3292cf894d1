//! Questions to a peer, answers, and the limits of both.

use crate::message::{Dseq, Epoch};
use crate::offset::{HistorySpan, PollCase};
use crate::proto::history::{HistoryEvent, ListedSubject, Selection};
use crate::seqno::Seq;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::subject::{Pattern, Subject, SubjectError};
use crate::wire::{self, queue};
use bytes::Bytes;
use std::fmt;

/// Maximum number of polls or fetches in one question.
pub const ITEMS_MAX: usize = 4096;
/// Maximum number of subjects in the answer to one question of kind LIST.
pub const LISTED_MAX: u16 = 4096;
/// Maximum bytes of one part of an answer, unless a single event needs more: a message of few datagrams.
pub const PART_BYTES_MAX: usize = 48 * 1024;
/// Bytes of the parts of an answer after which the rest of the question stays unanswered.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Maximum bytes of the query of a report.
pub const QUERY_BYTES_MAX: usize = 4096;

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

/// Question to a peer.
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
    /// A query for a report of the peer, in the form of clients of that peer: 1 to [`QUERY_BYTES_MAX`] bytes of JSON. The
    /// core passes it on unread.
    Report(Bytes),
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
        /// The answers. If the last part does not reach the end of the question, the client must send the rest again.
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
        /// In the last part: start of the next listing, unless this listing is complete.
        next: Option<u32>,
    },
    /// A part of a report. All parts, joined, are the report in JSON.
    Report(Bytes),
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
            AnswerContent::List { .. } | AnswerContent::Report(_) | AnswerContent::Refused(_) => {}
        }
    }

    /// Removes the messages on subjects on which the answering peer may not publish, as if its history retained none of
    /// them. Returns one of their subjects and their number, if there are any.
    pub(crate) fn remove_denied(&mut self, publish: &PermittedSubjects) -> Option<(Subject, u64)> {
        let mut removed = None;
        let mut on_removed = |subject: &Subject, events: usize| {
            let (_, count) = removed.get_or_insert_with(|| (subject.clone(), 0));
            *count += events as u64;
        };
        match self {
            AnswerContent::Poll { answers, .. } => {
                for answer in answers.iter_mut().filter(|answer| !publish.permits(&answer.subject)) {
                    on_removed(&answer.subject, answer.events.len());
                    (answer.case, answer.span, answer.more) = (PollCase::NoEvent, None, false);
                    answer.events.clear();
                }
            }
            AnswerContent::Fetch { answers, .. } => {
                for answer in answers.iter_mut().filter(|answer| !publish.permits(&answer.subject)) {
                    on_removed(&answer.subject, answer.events.len());
                    (answer.span, answer.more) = (None, false);
                    answer.events.clear();
                }
            }
            AnswerContent::List { listed, .. } => listed.retain(|listed| publish.permits(&listed.subject)),
            AnswerContent::Report(_) | AnswerContent::Refused(_) => {}
        }
        removed
    }
}

/// The answer to one poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollAnswer {
    /// The subject.
    pub subject: Subject,
    /// Case of seed 000 that applies.
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
    /// This peer reports nothing to other peers.
    NoReports,
    /// This peer answers too many questions about reports at present.
    Busy,
}

impl Refused {
    /// All reasons.
    pub(super) const ALL: [Refused; 6] =
        [Refused::Malformed, Refused::Unknown, Refused::TooMany, Refused::Off, Refused::NoReports, Refused::Busy];

    /// Returns the number on the wire.
    pub(super) fn code(self) -> u8 {
        match self {
            Refused::Malformed => 1,
            Refused::Unknown => 2,
            Refused::TooMany => 3,
            Refused::Off => 4,
            Refused::NoReports => 5,
            Refused::Busy => 6,
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
            Refused::NoReports => write!(f, "the peer reports nothing to others"),
            Refused::Busy => write!(f, "the peer is asked for reports too often at present"),
        }
    }
}

/// Reason for which bytes cannot be decoded as a question or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryDecodeError {
    /// A field cannot be read.
    Field(wire::DecodeError),
    /// A kind that does not exist.
    UnknownKind(u8),
    /// The pattern is invalid.
    Pattern(SubjectError),
    /// The question is empty: it has no items, or it requests no events or no subjects.
    Empty,
    /// More than [`ITEMS_MAX`] items; holds the number.
    TooMany(u16),
    /// The last number is below the first.
    InvertedRange,
    /// A subject of length 0 that follows none.
    MissingSubject,
    /// Flags that do not exist or a case that contradicts its fields.
    CaseMismatch(u8),
    /// Events that do not follow each other.
    EventsOutOfOrder,
    /// A reason that does not exist.
    UnknownReason(u8),
}

impl From<wire::DecodeError> for HistoryDecodeError {
    fn from(malformed: wire::DecodeError) -> HistoryDecodeError {
        HistoryDecodeError::Field(malformed)
    }
}

impl fmt::Display for HistoryDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryDecodeError::Field(malformed) => malformed.fmt(f),
            HistoryDecodeError::UnknownKind(kind) => write!(f, "the kind {kind:#04x} does not exist"),
            HistoryDecodeError::Pattern(error) => write!(f, "pattern: {error}"),
            HistoryDecodeError::Empty => write!(f, "the question is empty"),
            HistoryDecodeError::TooMany(count) => write!(f, "{count} items, more than {ITEMS_MAX}"),
            HistoryDecodeError::InvertedRange => write!(f, "the last number is below the first"),
            HistoryDecodeError::MissingSubject => write!(f, "a subject of length 0 must follow another one"),
            HistoryDecodeError::CaseMismatch(case) => write!(f, "the case {case:#04x} does not fit what comes with it"),
            HistoryDecodeError::EventsOutOfOrder => write!(f, "the events do not follow each other"),
            HistoryDecodeError::UnknownReason(reason) => write!(f, "the reason {reason} does not exist"),
        }
    }
}

impl std::error::Error for HistoryDecodeError {}
