//! Pushes a stream to one live consumer (003, section 2.2.2): what is added from now on, as long as it keeps up. Groups that are skipped
//! for a slow consumer, and what is told to be lost, use up sequence numbers, so that the consumer sees that something is missing.

use super::model::{PageBudget, StreamEvent};
use std::collections::VecDeque;

/// How groups are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What a group holds at most. An event that is larger stands alone.
    pub room: PageBudget,
    /// Groups that are sent and not answered yet, at most.
    pub groups_max: usize,
    /// What waits behind them at most; then the oldest goes.
    pub waiting: PageBudget,
}

#[derive(Debug)]
enum LiveItem {
    Event(StreamEvent),
    /// So many groups are missing here.
    Gap(u32),
}

/// Pushes to one live consumer.
#[derive(Debug)]
pub struct LivePusher {
    settings: Settings,
    waiting: VecDeque<LiveItem>,
    /// What more may wait.
    left: PageBudget,
    seq_next: u32,
    /// Numbers of groups without an answer.
    unanswered: Vec<u32>,
    /// Events that were skipped.
    skipped: u64,
}

impl LivePusher {
    /// For a consumer that has just come.
    pub fn new(settings: Settings) -> LivePusher {
        LivePusher {
            settings,
            waiting: VecDeque::new(),
            left: settings.waiting,
            seq_next: 0,
            unanswered: Vec::new(),
            skipped: 0,
        }
    }

    /// An event was added that is wanted.
    pub fn on_event(&mut self, event: StreamEvent) {
        if !self.left.take(&event) {
            self.skip();
            if !self.left.take(&event) {
                // It is larger than all that may wait.
                self.left = PageBudget { events: 0, bytes: 0 };
            }
        }
        self.waiting.push_back(LiveItem::Event(event));
    }

    /// The bus reports that events of the stream may be missing here.
    pub fn on_loss(&mut self) {
        // Several in a row are one gap.
        if !matches!(self.waiting.back(), Some(LiveItem::Gap(_))) {
            self.waiting.push_back(LiveItem::Gap(1));
        }
    }

    /// The consumer has answered; whether it accepted the group does not matter.
    pub fn on_answer(&mut self, seq: u32) {
        self.unanswered.retain(|other| *other != seq);
    }

    /// The next group with its number, if the consumer keeps up.
    pub fn poll(&mut self) -> Option<(u32, Vec<StreamEvent>)> {
        if self.settings.groups_max <= self.unanswered.len() {
            return None;
        }
        while let Some(LiveItem::Gap(groups)) = self.waiting.front() {
            self.seq_next = self.seq_next.saturating_add(*groups);
            self.waiting.pop_front();
        }
        let (mut room, mut events) = (self.settings.room, Vec::new());
        while let Some(LiveItem::Event(event)) = self.waiting.front()
            && (room.take(event) || events.is_empty() && room.take_alone())
        {
            let Some(LiveItem::Event(event)) = self.waiting.pop_front() else { unreachable!("it was there just now") };
            events.push(event);
        }
        if self.waiting.is_empty() {
            self.left = self.settings.waiting;
        } else {
            self.left.events += events.len();
            self.left.bytes += events.iter().map(StreamEvent::bytes).sum::<usize>();
        }
        if events.is_empty() {
            return None;
        }
        let seq = self.seq_next;
        self.seq_next = self.seq_next.saturating_add(1);
        self.unanswered.push(seq);
        Some((seq, events))
    }

    /// Events that were skipped, since the consumer did not keep up.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Skips all that waits: as many groups as it would have been, and the gaps within.
    fn skip(&mut self) {
        let (mut groups, mut room) = (0, None);
        for waiting in self.waiting.drain(..) {
            match waiting {
                LiveItem::Gap(more) => (groups, room) = (groups + more, None),
                LiveItem::Event(event) => {
                    self.skipped += 1;
                    if !room.as_mut().is_some_and(|room: &mut PageBudget| room.take(&event)) {
                        let mut new = self.settings.room;
                        let _ = new.take(&event) || new.take_alone();
                        (groups, room) = (groups + 1, Some(new));
                    }
                }
            }
        }
        self.left = self.settings.waiting;
        if 0 < groups {
            self.waiting.push_back(LiveItem::Gap(groups));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::{EventId, Json, ServerId};
    use crate::event::stream::name::StreamId;
    use crate::event::timestamp::Timestamp;
    use bytes::Bytes;

    fn event(number: u64) -> StreamEvent {
        StreamEvent {
            id: StreamId::from_number(number).unwrap(),
            kind: "A".parse().unwrap(),
            data: Json::from_bytes(Bytes::from_static(b"1")).unwrap(),
            time: Timestamp::MIN,
            origin: EventId { server: ServerId(1), session: number, instance: 1 },
        }
    }

    const SETTINGS: Settings = Settings {
        room: PageBudget { events: 2, bytes: 10_000 },
        groups_max: 2,
        waiting: PageBudget { events: 5, bytes: 10_000 },
    };

    fn add(pusher: &mut LivePusher, numbers: std::ops::RangeInclusive<u64>) {
        numbers.for_each(|number| pusher.on_event(event(number)));
    }

    /// All groups that are sent now, by number; each is answered, if that is said.
    fn sent(pusher: &mut LivePusher, is_answered: bool) -> Vec<(u32, Vec<u64>)> {
        let mut groups = Vec::new();
        while let Some((seq, events)) = pusher.poll() {
            groups.push((seq, events.iter().map(|event| event.id.number()).collect()));
            if is_answered {
                pusher.on_answer(seq);
            }
        }
        groups
    }

    #[test]
    fn who_keeps_up_gets_everything_without_a_gap() {
        let mut pusher = LivePusher::new(SETTINGS);
        assert_eq!(sent(&mut pusher, true), []);
        add(&mut pusher, 1..=5);
        assert_eq!(sent(&mut pusher, true), [(0, vec![1, 2]), (1, vec![3, 4]), (2, vec![5])]);
        add(&mut pusher, 6..=6);
        assert_eq!(sent(&mut pusher, true), [(3, vec![6])]);
        assert_eq!(pusher.skipped(), 0);
    }

    #[test]
    fn groups_that_are_skipped_use_up_their_numbers() {
        let mut pusher = LivePusher::new(SETTINGS);
        add(&mut pusher, 1..=4);
        assert_eq!(sent(&mut pusher, false), [(0, vec![1, 2]), (1, vec![3, 4])]);
        // Five wait, the next one drives them away: three groups.
        add(&mut pusher, 5..=10);
        assert_eq!(sent(&mut pusher, false), []);
        assert_eq!(pusher.skipped(), 5);
        pusher.on_answer(0);
        assert_eq!(sent(&mut pusher, false), [(5, vec![10])]);
        // An answer that was not asked for changes nothing.
        pusher.on_answer(0);
        pusher.on_answer(99);
        add(&mut pusher, 11..=22);
        assert_eq!(sent(&mut pusher, false), []);
        (1..=5).for_each(|seq| pusher.on_answer(seq));
        assert_eq!(sent(&mut pusher, true), [(12, vec![21, 22])]);
    }

    #[test]
    fn what_the_bus_has_lost_is_a_gap_where_it_is_missing() {
        let mut pusher = LivePusher::new(SETTINGS);
        add(&mut pusher, 1..=1);
        pusher.on_loss();
        pusher.on_loss();
        add(&mut pusher, 2..=2);
        assert_eq!(sent(&mut pusher, true), [(0, vec![1]), (2, vec![2])]);
        pusher.on_loss();
        assert_eq!(sent(&mut pusher, true), []);
        add(&mut pusher, 3..=3);
        assert_eq!(sent(&mut pusher, true), [(4, vec![3])]);
    }

    #[test]
    fn an_event_larger_than_all_that_may_wait_is_sent_alone() {
        let tiny = PageBudget { events: 2, bytes: 10 };
        let mut pusher = LivePusher::new(Settings { room: tiny, waiting: tiny, ..SETTINGS });
        add(&mut pusher, 1..=1);
        assert_eq!(sent(&mut pusher, true), [(0, vec![1])]);
        add(&mut pusher, 2..=3);
        assert_eq!(sent(&mut pusher, true), [(2, vec![3])]);
    }
}
