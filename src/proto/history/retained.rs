//! The reader's view of a subject's retained events, without those that are too old or beyond the limits.

use super::event::Selection;
use super::log::HistoryLog;
use super::record::LogRecord;
use super::settings::HistoryLimits;
use super::subjects::{EVENT_BYTES, EventRun, Slot};
use crate::offset::HistorySpan;
use crate::seqno::Seq;
use crate::time::{Instant, WallTime};
use crate::wire::entry::{self, EntryParts};

/// Retained events of one subject: at least one, none of them too old.
#[derive(Clone, Copy)]
pub struct RetainedEvents<'a> {
    log: &'a HistoryLog,
    slot: &'a Slot,
    /// Time at which they are read.
    now: Instant,
    /// Number of events at the front that are too old.
    pub(super) skipped: usize,
    /// Span of the events.
    pub span: HistorySpan,
}

impl<'a> RetainedEvents<'a> {
    /// Returns the events in a slot that the limits retain; `None` if there are none.
    pub(super) fn new(
        log: &'a HistoryLog,
        limits: &HistoryLimits,
        now: Instant,
        slot: &'a Slot,
    ) -> Option<RetainedEvents<'a>> {
        let is_too_old = |run: &EventRun| log.instant(run.location) + limits.time < now;
        let mut skipped = 0;
        if is_too_old(slot.runs().front()?) {
            let young = slot.runs().partition_point(is_too_old);
            if young == slot.runs().len() {
                return None;
            }
            skipped = slot.count_before(young);
        }
        skipped = skipped.max(slot.len().saturating_sub(limits.count_max));
        // The oldest run may hold events beyond the limit.
        if limits.bytes_max < slot.bytes {
            let mut bytes = slot.bytes;
            let is_beyond = |counted: &usize| {
                let was = bytes;
                bytes -= counted;
                limits.bytes_max < was
            };
            skipped = skipped.max(counted(log, slot).take_while(is_beyond).count());
        }
        let mut retained = RetainedEvents {
            log,
            slot,
            now,
            skipped,
            span: HistorySpan { first: 0, last: 0, first_seq: slot.last_seq, last_seq: slot.last_seq },
        };
        let first = retained.event_at(0);
        retained.span.first = first.offset;
        retained.span.first_seq = first.seq;
        retained.span.last = slot.next_offset().wrapping_sub(1);
        Some(retained)
    }

    /// Returns the number of events; at least 1.
    pub fn len(&self) -> usize {
        self.slot.len() - self.skipped
    }

    /// Returns false: there is at least one event.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the event with this index, from the oldest.
    ///
    /// # Panics
    /// If there are fewer events.
    pub fn event_at(&self, index: usize) -> RetainedEvent<'a> {
        let (run, within) = self.slot.find(self.skipped + index);
        let (record, entries) = self.log.record(run.location);
        let (mut parts, mut next) = entry::parts(entries, 0, record.meta);
        for _ in 0..within {
            (parts, next) = entry::parts(entries, next, record.meta);
        }
        let LogRecord { wall: time, event, .. } = record;
        let EntryParts { reply, headers, payload } = parts;
        let seq = record.seq.forward(within as u64).expect("the numbers of a run are in one frame");
        // Offsets count modulo 2^32.
        RetainedEvent { seq, offset: record.offset.wrapping_add(within as u32), time, event, reply, headers, payload }
    }

    /// Returns the index of the event after the one with offset `n`; beyond the last if there is none.
    pub fn index_after(&self, n: u32) -> usize {
        n.wrapping_add(1).wrapping_sub(self.span.first) as usize
    }

    /// Returns the index of the first event whose number is `seq` or higher.
    pub fn index_of(&self, seq: Seq) -> usize {
        partition(self.len(), |index| self.event_at(index).seq < seq)
    }

    /// Returns the index after the last event whose number is `seq` or lower.
    pub fn index_past(&self, seq: Seq) -> usize {
        partition(self.len(), |index| self.event_at(index).seq <= seq)
    }

    /// Returns the selected part, if it has any event.
    pub fn select(&self, selection: Selection) -> Option<HistorySpan> {
        let newest = selection.newest.map_or(0, |newest| self.len().saturating_sub(newest as usize));
        let young = selection.age.map_or(0, |age| {
            let since = self.now - age;
            partition(self.len(), |index| self.instant(index) < since)
        });
        let index = newest.max(young);
        if self.len() <= index {
            return None;
        }
        let first = self.event_at(index);
        Some(HistorySpan { first: first.offset, first_seq: first.seq, ..self.span })
    }

    fn instant(&self, index: usize) -> Instant {
        self.log.instant(self.slot.find(self.skipped + index).0.location)
    }
}

/// An event at its location in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainedEvent<'a> {
    /// Its sequence number.
    pub seq: Seq,
    /// Its offset.
    pub offset: u32,
    /// Time of publication.
    pub time: WallTime,
    /// True if it is a journalled event.
    pub event: bool,
    /// The reply subject; empty if there is none.
    pub reply: &'a [u8],
    /// The header fields.
    pub headers: &'a [u8],
    /// The content.
    pub payload: &'a [u8],
}

impl RetainedEvent<'_> {
    /// Returns the bytes of payload, headers and reply subject.
    pub fn body_bytes(&self) -> usize {
        self.reply.len() + self.headers.len() + self.payload.len()
    }
}

#[cfg(test)]
impl RetainedEvent<'_> {
    /// Returns a copy of the event, as a client reads it from an answer.
    pub fn event(&self, subject: &crate::subject::Subject) -> super::event::HistoryEvent {
        use crate::message::{Headers, Message};
        use bytes::Bytes;
        let reply = crate::subject::Subject::from_bytes(Bytes::copy_from_slice(self.reply)).ok();
        let message = Message {
            subject: subject.clone(),
            reply,
            headers: Headers::from_block(Bytes::copy_from_slice(self.headers)),
            payload: Bytes::copy_from_slice(self.payload),
            event: self.event,
        };
        super::event::HistoryEvent { seq: self.seq, offset: self.offset, time: self.time, message }
    }
}

/// Returns the bytes that each event of a subject counts, from the oldest, including events that readers no longer
/// get.
pub(super) fn counted<'a>(log: &'a HistoryLog, slot: &'a Slot) -> impl Iterator<Item = usize> {
    slot.runs().iter().flat_map(|run| {
        let (record, entries) = log.record(run.location);
        let mut at = 0;
        (0..record.count).map(move |_| {
            let (parts, next) = entry::parts(entries, at, record.meta);
            at = next;
            EVENT_BYTES + parts.reply.len() + parts.headers.len() + parts.payload.len()
        })
    })
}

/// Returns the number of indices below `len` that fulfil `condition`, which must hold for a prefix of them.
fn partition(len: usize, condition: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if condition(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
