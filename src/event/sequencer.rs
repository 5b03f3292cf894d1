//! The sequencer creates events from registrations. It assigns sessions and instances without gaps and repeats, and
//! timestamps that never decrease.

use super::model::{Event, EventId, Registration, ServerId};
use super::timestamp::Timestamp;

/// Sequencer of the events of one server. It has no durable state: the caller passes the last stored session to
/// [`EventSequencer::new`].
#[derive(Debug)]
pub struct EventSequencer {
    server: ServerId,
    /// Last assigned session; 0 if there is none.
    session: u64,
    /// Lower bound of the next event's timestamp.
    timestamp: Timestamp,
}

impl EventSequencer {
    /// Creates a sequencer that continues after the last stored session and its timestamp. Without a stored session,
    /// these are 0 and [`Timestamp::MIN`].
    pub fn new(server: ServerId, session: u64, timestamp: Timestamp) -> EventSequencer {
        EventSequencer { server, session, timestamp }
    }

    /// Returns the last assigned session; 0 if there is none.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Creates the events of one request, which form one session. Instances count from 1 in the order of the request.
    /// All events get the timestamp `now`, or that of the previous session if it is later. An empty request creates no
    /// event and no session.
    pub fn register(&mut self, now: Timestamp, registrations: Vec<Registration>) -> Vec<Event> {
        if registrations.is_empty() {
            return Vec::new();
        }
        self.session = self.session.checked_add(1).expect("2^64 sessions are never reached");
        self.timestamp = self.timestamp.max(now);
        let (server, session, timestamp) = (self.server, self.session, self.timestamp);
        let create = |(instance, registration)| {
            let Registration { event_type, source_timestamp, payload } = registration;
            Event { id: EventId { server, session, instance }, event_type, timestamp, source_timestamp, payload }
        };
        (1..).zip(registrations).map(create).collect()
    }

    /// Rolls back session `first` and all later ones, because none of them was stored. The next request gets the number
    /// `first`. The caller must not have shown their events to any reader. Timestamps are not rolled back.
    ///
    /// # Panics
    /// Panics if there is no such session.
    pub fn roll_back(&mut self, first: u64) {
        assert!(1 <= first && first <= self.session, "session {first} of {} was never assigned", self.session);
        self.session = first - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    fn registrations(types: &[&str]) -> Vec<Registration> {
        let registration = |text: &&str| Registration {
            event_type: text.parse().unwrap(),
            source_timestamp: Some(at(-5)),
            payload: None,
        };
        types.iter().map(registration).collect()
    }

    /// Checks the events that `register` creates for a request: ids with types, and the one timestamp.
    fn check(sequencer: &mut EventSequencer, now: i64, types: &[&str], expected: &[&str], micros: i64) {
        let events = sequencer.register(at(now), registrations(types));
        let found: Vec<String> = events.iter().map(|event| format!("{} {}", event.id, event.event_type)).collect();
        assert_eq!(found, expected);
        assert!(
            events.iter().all(|event| event.timestamp == at(micros) && event.source_timestamp == Some(at(-5))),
            "{events:?}"
        );
    }

    #[test]
    fn request_becomes_one_session() {
        let mut sequencer = EventSequencer::new(ServerId(7), 0, Timestamp::MIN);
        check(&mut sequencer, 10, &["a", "b/c"], &["7/1/1 a", "7/1/2 b/c"], 10);
        check(&mut sequencer, 11, &[], &[], 11);
        check(&mut sequencer, 12, &["a"], &["7/2/1 a"], 12);
        // The clock was set back, and catches up.
        check(&mut sequencer, 3, &["a"], &["7/3/1 a"], 12);
        check(&mut sequencer, 13, &["a"], &["7/4/1 a"], 13);
        // The sequencer restarts with a clock that is late.
        let mut sequencer = EventSequencer::new(ServerId(7), 4, at(13));
        check(&mut sequencer, 9, &["a"], &["7/5/1 a"], 13);
    }

    #[test]
    fn rolled_back_session_is_assigned_again() {
        let mut sequencer = EventSequencer::new(ServerId(7), 40, at(5));
        check(&mut sequencer, 6, &["a"], &["7/41/1 a"], 6);
        check(&mut sequencer, 7, &["b", "c"], &["7/42/1 b", "7/42/2 c"], 7);
        check(&mut sequencer, 8, &["d"], &["7/43/1 d"], 8);
        sequencer.roll_back(42);
        assert_eq!(sequencer.session(), 41);
        check(&mut sequencer, 8, &["e"], &["7/42/1 e"], 8);
    }

    /// Stored events have sessions without gaps and timestamps that never fall, after any number of requests, failures
    /// and restarts.
    #[test]
    fn stored_sessions_have_no_gap_and_no_repeat() {
        let mut rng = Rng::new(6);
        for _ in 0..200 {
            let mut sequencer = EventSequencer::new(ServerId(1), 0, Timestamp::MIN);
            let mut stored: Vec<Event> = Vec::new();
            for _ in 0..40 {
                let sessions: Vec<Vec<Event>> = (0..rng.below(4))
                    .map(|_| {
                        sequencer
                            .register(at(rng.below(1000) as i64), registrations(&["a", "b"][..rng.below(3) as usize]))
                    })
                    .filter(|events| !events.is_empty())
                    .collect();
                let stored_count = rng.below(sessions.len() as u64 + 1) as usize;
                if let Some(lost) = sessions.get(stored_count) {
                    sequencer.roll_back(lost[0].id.session);
                }
                stored.extend(sessions.into_iter().take(stored_count).flatten());
                let last = stored.last().map_or((0, Timestamp::MIN), |event| (event.id.session, event.timestamp));
                if rng.chance(0.2) {
                    sequencer = EventSequencer::new(ServerId(1), last.0, last.1);
                }
                assert_eq!(sequencer.session(), last.0);
            }
            let mut before = (0, 0, Timestamp::MIN);
            for event in &stored {
                let (session, instance) = (event.id.session, event.id.instance);
                let is_next =
                    (session, instance) == (before.0, before.1 + 1) || (session, instance) == (before.0 + 1, 1);
                assert!(is_next && before.2 <= event.timestamp, "{before:?} {event:?}");
                before = (session, instance, event.timestamp);
            }
        }
    }
}
