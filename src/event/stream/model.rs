//! What stands in a stream, and the parts in which it is read.

use super::name::{StreamId, StreamType};
use crate::event::model::{EventId, Json};
use crate::event::timestamp::Timestamp;

/// The most events in one list (003, section 3.1).
pub const LIST_EVENTS_MAX: usize = 1000;
/// Events that nobody wants and that are passed by one look into a stream, at most, and about: it takes some milliseconds.
pub const PASSED_MAX: u64 = 20_000;
/// What an event takes in a message beside its id, type and data, in bytes: `{"id":"","type":"","data":,"ts":"2026-11-21T07:53:59Z"},`.
const FRAME_BYTES: usize = 56;

/// An event of a stream (003, section 2.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// In this stream.
    pub id: StreamId,
    /// Its type.
    pub kind: StreamType,
    /// A JSON text of one line or several.
    pub data: Json,
    /// When it was registered; on the wire in whole seconds.
    pub time: Timestamp,
    /// What it is on the bus: where it was added, and its number there.
    pub origin: EventId,
}

impl StreamEvent {
    /// What it takes in a list of events, in bytes.
    pub fn bytes(&self) -> usize {
        let digits = self.id.number().checked_ilog10().map_or(1, |log| log as usize + 1);
        FRAME_BYTES + digits + self.kind.as_str().len() + self.data.bytes().len()
    }
}

/// How much is read at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBudget {
    /// So many events at most.
    pub events: usize,
    /// So many [bytes](StreamEvent::bytes) at most.
    pub bytes: usize,
}

impl PageBudget {
    /// Takes an event from it; false if it does not fit.
    pub fn take(&mut self, event: &StreamEvent) -> bool {
        let bytes = event.bytes();
        let fits = 0 < self.events && bytes <= self.bytes;
        if fits {
            (self.events, self.bytes) = (self.events - 1, self.bytes - bytes);
        }
        fits
    }

    /// Takes one that fits no room of this size, so that nothing else does; false if there is no room at all.
    pub fn take_alone(&mut self) -> bool {
        0 < std::mem::take(&mut self.events)
    }
}

/// A part of a stream: the events behind some place that are wanted, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPage {
    /// The events.
    pub events: Vec<StreamEvent>,
    /// Nothing that is wanted stands between the last event, or where one began to read, and here.
    pub covered: StreamId,
    /// Whether a wanted event that stands there did not fit, or so much was passed that it was not looked further.
    pub more_follows: bool,
}

impl StreamPage {
    /// Of nothing, behind that place.
    pub fn new(after: StreamId) -> StreamPage {
        StreamPage { events: Vec::new(), covered: after, more_follows: false }
    }

    /// Takes the next wanted event if it fits into the room, or would not fit into an empty page either; false, and the page ends, if not.
    pub fn take(&mut self, event: StreamEvent, room: &mut PageBudget) -> bool {
        let is_taken = room.take(&event) || self.events.is_empty() && room.take_alone();
        if is_taken {
            self.covered = event.id;
            self.events.push(event);
        }
        self.more_follows = !is_taken;
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::ServerId;
    use bytes::Bytes;

    #[test]
    fn an_event_takes_what_it_is_as_text() {
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
            let mut room = PageBudget { events: 2, bytes: 2 * text.len() - 1 };
            assert!(room.take(&event) && !room.take(&event));
            assert!(!PageBudget { events: 0, bytes: 1000 }.take(&event));
            let (mut page, mut small) =
                (StreamPage::new(StreamId::START), PageBudget { events: 3, bytes: text.len() - 1 });
            assert!(page.take(event.clone(), &mut small) && !page.take(event, &mut small), "it stands alone");
            assert!(page.more_follows && page.events.len() == 1);
        }
    }
}
