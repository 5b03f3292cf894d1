//! Listings of the retained subjects: for questions, and for display.

use super::event::{ListedSubject, Listing, Selection};
use super::subjects::Slot;
use super::{History, retained};
use crate::offset::HistorySpan;
use crate::subject::{Pattern, Subject};
use crate::time::WallTime;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Maximum number of subjects that one call of `list` visits; bounds the pause.
const LIST_STEPS: usize = 4096;

/// Retained events of one subject, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// The subject.
    pub subject: Subject,
    /// Span of the events.
    pub span: HistorySpan,
    /// Number of events.
    pub count: u64,
    /// Bytes of the events, as in [`HistorySettings::bytes_max`](super::settings::HistorySettings::bytes_max).
    pub bytes: u64,
    /// Publication time of the oldest.
    pub oldest: WallTime,
    /// Publication time of the newest.
    pub newest: WallTime,
}

/// Totals of the history, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryTotals {
    /// Number of subjects with events.
    pub subjects: u64,
    /// Number of events. Some may be expired for readers and leave soon.
    pub events: u64,
    /// Bytes allocated for events, subjects and tables.
    pub bytes: u64,
    /// Limit of those bytes.
    pub bytes_max: u64,
    /// Events that left because of their subject's limits in count and bytes, or because the subject's offsets began
    /// anew.
    pub replaced: u64,
    /// Events that left because of their age.
    pub expired: u64,
    /// Events that left because of the limit of all bytes.
    pub evicted: u64,
    /// Messages that were too large to be retained; nothing before them is retained either.
    pub too_large: u64,
}

impl History {
    /// Returns whether records refer to the open datagram, so that [`History::attach`] is due before they are read.
    pub fn awaits_datagram(&self) -> bool {
        self.log.awaits_datagram()
    }

    /// Returns up to `limit` subjects that match `pattern`, with their selected spans. `from` is 0 at first, then the
    /// `next` of the previous listing. A subject that is in the history throughout is listed exactly once. One call
    /// visits a limited number of subjects, so a listing that is not the last may hold few, or none.
    pub fn list(&self, pattern: &Pattern, selection: Selection, from: u32, limit: usize) -> Listing {
        let listed = |slot| {
            let span = self.retained_in(slot)?.select(selection)?;
            let subject = Subject::from_bytes(Bytes::copy_from_slice(slot.text())).expect("only subjects are stored");
            Some(ListedSubject { subject, span })
        };
        let mut listing = Listing::default();
        if let Ok(subject) = pattern.as_str().parse::<Subject>() {
            let text = subject.as_bytes();
            let id = self.subjects.find(self.subjects.hash(text), text);
            listing.listed.extend(id.filter(|_| from == 0).and_then(|id| listed(self.subjects.slot(id))));
            return listing;
        }
        let (slots, next) = self.subjects.scan(from, LIST_STEPS);
        for (id, slot) in slots {
            if listing.listed.len() == limit {
                listing.next = Some(id.0);
                return listing;
            }
            if pattern.matches_text(slot.text()) {
                listing.listed.extend(listed(slot));
            }
        }
        listing.next = next;
        listing
    }

    /// Returns the first `limit` subjects that match, in order, for display, and the number of further ones. Visits all
    /// subjects.
    pub fn rows(&self, pattern: &Pattern, limit: usize) -> (Vec<HistoryRow>, u64) {
        let mut first: BTreeMap<&[u8], &Slot> = BTreeMap::new();
        let mut omitted = 0;
        for slot in self.subjects.iter().filter(|slot| pattern.matches_text(slot.text())) {
            first.insert(slot.text(), slot);
            if limit < first.len() {
                first.pop_last();
                omitted += 1;
            }
        }
        let row = |slot: &Slot| {
            let retained = self.retained_in(slot)?;
            Some(HistoryRow {
                subject: Subject::from_bytes(Bytes::copy_from_slice(slot.text())).expect("only subjects are stored"),
                span: retained.span,
                count: retained.len() as u64,
                bytes: (slot.bytes - retained::counted(&self.log, slot).take(retained.skipped).sum::<usize>()) as u64,
                oldest: retained.event_at(0).time,
                newest: retained.event_at(retained.len() - 1).time,
            })
        };
        (first.into_values().filter_map(row).collect(), omitted)
    }

    /// Returns the totals of the history, for display.
    pub fn totals(&self) -> HistoryTotals {
        HistoryTotals { subjects: self.subjects.len() as u64, bytes: self.bytes() as u64, ..self.totals }
    }
}
