//! Events of a stream, and the pages in which peers and clients read them.

use super::name::{StreamId, StreamType};
use crate::event::model::{EventId, Json};
use crate::event::timestamp::Timestamp;

/// Maximum number of events in one list (003, section 3.1).
pub const LIST_EVENTS_MAX: usize = 1000;
/// Approximate maximum number of unwanted events that one read skips; skipping them takes some milliseconds.
pub const PASSED_MAX: u64 = 20_000;
/// Size of an event in a message in bytes, without its id, type and data:
/// `{"id":"","type":"","data":,"ts":"2026-11-21T07:53:59Z"},`.
const FRAME_BYTES: usize = 56;

/// An event of a stream (003, section 2.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// Id of the event in this stream.
    pub id: StreamId,
    /// Type of the event.
    pub kind: StreamType,
    /// Data of the event: a JSON text of one or more lines.
    pub data: Json,
    /// Time at which the event was registered; on the wire in whole seconds.
    pub time: Timestamp,
    /// Id of the event on the bus, which names the server that registered it.
    pub origin: EventId,
}

impl StreamEvent {
    /// Returns the size of the event in a list of events, in bytes.
    pub fn bytes(&self) -> usize {
        let digits = self.id.number().checked_ilog10().map_or(1, |log| log as usize + 1);
        FRAME_BYTES + digits + self.kind.as_str().len() + self.data.bytes().len()
    }
}

/// Maximum size of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBudget {
    /// Maximum number of events.
    pub events: usize,
    /// Maximum number of [bytes](StreamEvent::bytes).
    pub bytes: usize,
}

impl PageBudget {
    /// Subtracts an event from the budget. Returns false if the event does not fit.
    pub fn take(&mut self, event: &StreamEvent) -> bool {
        let bytes = event.bytes();
        let fits = 0 < self.events && bytes <= self.bytes;
        if fits {
            (self.events, self.bytes) = (self.events - 1, self.bytes - bytes);
        }
        fits
    }

    /// Uses up the budget for an event that exceeds any budget of this size. Returns false if the budget is empty.
    pub fn take_alone(&mut self) -> bool {
        0 < std::mem::take(&mut self.events)
    }
}

/// A part of a stream: the wanted events after a position, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPage {
    /// The events.
    pub events: Vec<StreamEvent>,
    /// Position up to which the page is complete: it has all wanted events after the beginning of the read.
    pub covered: StreamId,
    /// True if a wanted event did not fit, or the read ended after too many unwanted events.
    pub more_follows: bool,
}

impl StreamPage {
    /// Creates an empty page after that position.
    pub fn new(after: StreamId) -> StreamPage {
        StreamPage { events: Vec::new(), covered: after, more_follows: false }
    }

    /// Appends the next wanted event if it fits the budget, or is the first one and would not fit an empty page either.
    /// Otherwise returns false, and the page ends.
    pub fn take(&mut self, event: StreamEvent, budget: &mut PageBudget) -> bool {
        let fits = budget.take(&event) || self.events.is_empty() && budget.take_alone();
        if fits {
            self.covered = event.id;
            self.events.push(event);
        }
        self.more_follows = !fits;
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::ServerId;
    use bytes::Bytes;

    #[test]
    fn size_of_an_event_equals_its_text() {
        for (id, kind, data) in [(1, "A", "null"), (10, "SOME_EVENT", "{\"a\":1}"), (999_999_999_999_999_999, "_", "1")]
        {
            let event = StreamEvent {
                id: StreamId::from_number(id).unwrap(),
                kind: kind.parse().unwrap(),
                data: Json::from_bytes(Bytes::from_static(data.as_bytes())).unwrap(),
                time: Timestamp::MIN,
                origin: EventId { server: ServerId(1), session: 1, instance: 1 },
            };
            let text = format!(r#"{{"id":"{id}","type":"{kind}","data":{data},"ts":"2026-11-21T07:53:59Z"}},"#);
            assert_eq!(event.bytes(), text.len());
            let mut budget = PageBudget { events: 2, bytes: 2 * text.len() - 1 };
            assert!(budget.take(&event) && !budget.take(&event));
            assert!(!PageBudget { events: 0, bytes: 1000 }.take(&event));
            let (mut page, mut small) =
                (StreamPage::new(StreamId::START), PageBudget { events: 3, bytes: text.len() - 1 });
            assert!(page.take(event.clone(), &mut small) && !page.take(event, &mut small), "the page holds it alone");
            assert!(page.more_follows && page.events.len() == 1);
        }
    }
}
