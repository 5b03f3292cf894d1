//! Which clients are told of which events of a session.

use super::to_peer::Subscription;
use crate::event::model::{Event, ServerId};
use crate::event::registry::Registry;
use std::collections::BTreeMap;

/// The subscriptions of all clients of a door.
///
/// An event costs some steps for each of its subtypes and at most one for each subtype of the patterns with a `?`; for those of a client
/// that is bounded by [`wildcard_subtypes_max`](super::Settings::wildcard_subtypes_max).
#[derive(Debug)]
pub struct Subscribers {
    registry: Registry<u32>,
    clients: BTreeMap<u32, Subscription>,
}

impl Subscribers {
    /// None; `seed` makes the places in memory unpredictable for clients.
    pub fn new(seed: u64) -> Subscribers {
        Subscribers { registry: Registry::new(seed), clients: BTreeMap::new() }
    }

    /// A client with this number, which no other one has, subscribes.
    ///
    /// # Panics
    /// If it did before.
    pub fn insert(&mut self, client: u32, subscription: Subscription) {
        for pattern in &subscription.patterns {
            self.registry.insert(pattern, client);
        }
        assert!(self.clients.insert(client, subscription).is_none(), "client {client} subscribes twice");
    }

    /// The client is gone, if it was there.
    pub fn remove(&mut self, client: u32) {
        let Some(subscription) = self.clients.remove(&client) else { return };
        for pattern in &subscription.patterns {
            // One that it gave twice is there once.
            self.registry.remove(pattern, client);
        }
    }

    /// Calls `tell` for each client that is to be told of any of these events of one session, with these; in the order of the clients'
    /// numbers.
    pub fn tell_each<'a>(&self, session: &'a [Event], mut tell: impl FnMut(u32, &[&'a Event])) {
        let mut by_client: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
        let mut clients = Vec::new();
        for event in session {
            self.registry.matches(&event.event_type, &mut clients);
            for client in &clients {
                if self.clients[client].server.is_none_or(|server: ServerId| server == event.id.server) {
                    by_client.entry(*client).or_default().push(event);
                }
            }
        }
        by_client.iter().for_each(|(client, events)| tell(*client, events));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::timestamp::Timestamp;

    fn event(id: &str, event_type: &str) -> Event {
        Event {
            id: id.parse().unwrap(),
            event_type: event_type.parse().unwrap(),
            timestamp: Timestamp::MIN,
            source_timestamp: None,
            payload: None,
        }
    }

    #[test]
    fn a_client_is_told_once_of_what_matches_and_is_of_its_server() {
        let mut subscribers = Subscribers::new(1);
        for (client, patterns, server) in [
            (3, &["a/*", "a/b", "?/b", "a/*"][..], None),
            (1, &["*"], Some(7)),
            (2, &["*"], Some(8)),
            (4, &[], None),
            (5, &["x"], None),
        ] {
            let patterns = patterns.iter().map(|text| text.parse().unwrap()).collect();
            subscribers.insert(client, Subscription { patterns, server: server.map(ServerId) });
        }
        let session = [event("7/1/1", "a/b"), event("7/1/2", "b"), event("7/1/3", "a")];
        let told = |subscribers: &Subscribers| {
            let mut told = Vec::new();
            subscribers.tell_each(&session, |client, events| {
                told.push((client, events.iter().map(|event| event.id.instance).collect::<Vec<_>>()));
            });
            told
        };
        assert_eq!(told(&subscribers), [(1, vec![1, 2, 3]), (3, vec![1, 3])]);
        subscribers.remove(3);
        assert_eq!(told(&subscribers), [(1, vec![1, 2, 3])]);
        (1..=5).for_each(|client| subscribers.remove(client));
        assert!(told(&subscribers).is_empty() && subscribers.registry.is_empty() && subscribers.clients.is_empty());
    }
}
