//! Events of the history as readers get them, and the selection and the listing of subjects.

use crate::message::Message;
use crate::offset::HistorySpan;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use std::time::Duration;

/// An event, as readers get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEvent {
    /// Its sequence number.
    pub seq: Seq,
    /// Its offset.
    pub offset: u32,
    /// Time of publication.
    pub time: WallTime,
    /// The published message.
    pub message: Message,
}

/// Selected part of a subject's retained events, from the newest backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Maximum number of events.
    pub newest: Option<u32>,
    /// Maximum age of events, by the publisher's own clock.
    pub age: Option<Duration>,
}

/// A subject in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSubject {
    /// The subject.
    pub subject: Subject,
    /// Span of its selected events.
    pub span: HistorySpan,
}

/// Part of a listing of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The subjects, in no particular order.
    pub listed: Vec<ListedSubject>,
    /// Start of the next listing, unless this was the last.
    pub next: Option<u32>,
}
