//! Pushes a stream to one live consumer (003, section 2.2.2): the events added from now on, as long as the consumer
//! keeps up. Groups that a slow consumer skips and losses on the bus each use up sequence numbers, by which the
//! consumer detects missing events.

use super::model::{PageBudget, StreamEvent};
use std::collections::VecDeque;

/// Settings of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum size of a group. A larger event has a group of its own.
    pub budget: PageBudget,
    /// Maximum number of unanswered groups.
    pub groups_max: usize,
    /// Maximum size of the events that wait for these answers. Beyond it, the pusher skips them.
    pub waiting: PageBudget,
}

#[derive(Debug)]
enum LiveItem {
    Event(StreamEvent),
    /// Number of groups that are missing at this position.
    Gap(u32),
}

/// Pusher for one live consumer.
#[derive(Debug)]
pub struct LivePusher {
    settings: Settings,
    waiting: VecDeque<LiveItem>,
    /// Size that further waiting events may have.
    waiting_budget: PageBudget,
    seq_next: u32,
    /// Sequence numbers of unanswered groups.
    unanswered: Vec<u32>,
    /// Number of skipped events.
    skipped: u64,
}

impl LivePusher {
    /// Creates a pusher for a consumer that has just connected.
    pub fn new(settings: Settings) -> LivePusher {
        LivePusher {
            settings,
            waiting: VecDeque::new(),
            waiting_budget: settings.waiting,
            seq_next: 0,
            unanswered: Vec::new(),
            skipped: 0,
        }
    }

    /// Queues a wanted event that was added.
    pub fn on_event(&mut self, event: StreamEvent) {
        if !self.waiting_budget.take(&event) {
            self.skip();
            if !self.waiting_budget.take(&event) {
                // The event is larger than the maximum size of waiting events.
                self.waiting_budget = PageBudget { events: 0, bytes: 0 };
            }
        }
        self.waiting.push_back(LiveItem::Event(event));
    }

    /// Records that the bus has lost events of the stream at this position.
    pub fn on_loss(&mut self) {
        // Consecutive losses are one gap.
        if !matches!(self.waiting.back(), Some(LiveItem::Gap(_))) {
            self.waiting.push_back(LiveItem::Gap(1));
        }
    }

    /// Handles the consumer's answer to a group, whether it accepts the group or not.
    pub fn on_answer(&mut self, seq: u32) {
        self.unanswered.retain(|other| *other != seq);
    }

    /// Returns the next group with its number, if the consumer keeps up.
    pub fn poll(&mut self) -> Option<(u32, Vec<StreamEvent>)> {
        if self.settings.groups_max <= self.unanswered.len() {
            return None;
        }
        while let Some(LiveItem::Gap(groups)) = self.waiting.front() {
            self.seq_next = self.seq_next.saturating_add(*groups);
            self.waiting.pop_front();
        }
        let (mut budget, mut events) = (self.settings.budget, Vec::new());
        while let Some(LiveItem::Event(event)) = self.waiting.front()
            && (budget.take(event) || events.is_empty() && budget.take_alone())
        {
            let Some(LiveItem::Event(event)) = self.waiting.pop_front() else { unreachable!("the front was an event") };
            events.push(event);
        }
        if self.waiting.is_empty() {
            self.waiting_budget = self.settings.waiting;
        } else {
            self.waiting_budget.events += events.len();
            self.waiting_budget.bytes += events.iter().map(StreamEvent::bytes).sum::<usize>();
        }
        if events.is_empty() {
            return None;
        }
        let seq = self.seq_next;
        self.seq_next = self.seq_next.saturating_add(1);
        self.unanswered.push(seq);
        Some((seq, events))
    }

    /// Returns the number of events skipped because the consumer did not keep up.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Skips all waiting events. Replaces them by one gap that counts the groups they would have formed and the gaps
    /// between them.
    fn skip(&mut self) {
        let (mut groups, mut budget) = (0, None);
        for waiting in self.waiting.drain(..) {
            match waiting {
                LiveItem::Gap(more) => (groups, budget) = (groups + more, None),
                LiveItem::Event(event) => {
                    self.skipped += 1;
                    if !budget.as_mut().is_some_and(|budget: &mut PageBudget| budget.take(&event)) {
                        let mut new = self.settings.budget;
                        let _ = new.take(&event) || new.take_alone();
                        (groups, budget) = (groups + 1, Some(new));
                    }
                }
            }
        }
        self.waiting_budget = self.settings.waiting;
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
        budget: PageBudget { events: 2, bytes: 10_000 },
        groups_max: 2,
        waiting: PageBudget { events: 5, bytes: 10_000 },
    };

    fn add(pusher: &mut LivePusher, numbers: std::ops::RangeInclusive<u64>) {
        numbers.for_each(|number| pusher.on_event(event(number)));
    }

    /// Returns all groups that are sent now, by number; answers each if `is_answered` is true.
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
    fn fast_consumer_receives_everything_without_a_gap() {
        let mut pusher = LivePusher::new(SETTINGS);
        assert_eq!(sent(&mut pusher, true), []);
        add(&mut pusher, 1..=5);
        assert_eq!(sent(&mut pusher, true), [(0, vec![1, 2]), (1, vec![3, 4]), (2, vec![5])]);
        add(&mut pusher, 6..=6);
        assert_eq!(sent(&mut pusher, true), [(3, vec![6])]);
        assert_eq!(pusher.skipped(), 0);
    }

    #[test]
    fn skipped_groups_use_up_their_numbers() {
        let mut pusher = LivePusher::new(SETTINGS);
        add(&mut pusher, 1..=4);
        assert_eq!(sent(&mut pusher, false), [(0, vec![1, 2]), (1, vec![3, 4])]);
        // Five events wait, and the next one displaces them: three groups.
        add(&mut pusher, 5..=10);
        assert_eq!(sent(&mut pusher, false), []);
        assert_eq!(pusher.skipped(), 5);
        pusher.on_answer(0);
        assert_eq!(sent(&mut pusher, false), [(5, vec![10])]);
        // An unexpected answer changes nothing.
        pusher.on_answer(0);
        pusher.on_answer(99);
        add(&mut pusher, 11..=22);
        assert_eq!(sent(&mut pusher, false), []);
        (1..=5).for_each(|seq| pusher.on_answer(seq));
        assert_eq!(sent(&mut pusher, true), [(12, vec![21, 22])]);
    }

    #[test]
    fn lost_events_leave_a_gap_at_their_position() {
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
    fn oversized_event_is_sent_alone() {
        let tiny = PageBudget { events: 2, bytes: 10 };
        let mut pusher = LivePusher::new(Settings { budget: tiny, waiting: tiny, ..SETTINGS });
        add(&mut pusher, 1..=1);
        assert_eq!(sent(&mut pusher, true), [(0, vec![1])]);
        add(&mut pusher, 2..=3);
        assert_eq!(sent(&mut pusher, true), [(2, vec![3])]);
    }
}
