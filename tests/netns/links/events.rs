//! Events of a server in the first site, which peers of the other sites follow.

use super::World;
use crate::netns::events::found;
use crate::support::wait::let_time_pass;
use seqcast::bus::Bus;
use seqcast::event::model::{Event, Registration};
use std::time::Duration;

/// Index of the peer of each site that keeps a journal.
pub const PEER: usize = 1;
/// Site of the server, and its number.
pub const SERVER: u32 = 1;
/// Time between two sessions.
const SESSION_INTERVAL: Duration = Duration::from_millis(100);
/// Events of a session are 1 to this number.
const SESSION_EVENTS_MAX: usize = 3;

/// Settings of all gateways.
pub const GATEWAY_SETTINGS: [&str; 2] = ["link-events=plant/*", "link-events-import=plant/*"];

/// Returns the settings of the peer of a site that keeps a journal.
pub fn settings(site: usize) -> Vec<String> {
    let follows = (site != SERVER as usize).then(|| "event-follow=plant/*".to_owned());
    [format!("server-id={site}")].into_iter().chain(follows).collect()
}

/// Registers events while programs publish. Returns those that the peer has acknowledged.
pub fn register(world: &World, bus: &Bus) -> Vec<Event> {
    let mut acknowledged = Vec::new();
    let mut session = 0;
    while world.is_publishing() {
        let registration = |number| Registration {
            event_type: format!("plant/{}", (session + number) % 7).parse().expect("a type"),
            source_timestamp: None,
            payload: None,
        };
        let requested = (0..1 + session % SESSION_EVENTS_MAX).map(registration).collect();
        acknowledged.extend(bus.register(requested).expect("the peer of the server lives"));
        session += 1;
        let_time_pass(SESSION_INTERVAL, "the load has a rate");
    }
    acknowledged
}

/// Returns what the journal of a peer has in place of the acknowledged events; `None` if it has all of them, each once
/// and in order, and nothing else.
pub fn difference(bus: &Bus, acknowledged: &[Event]) -> Option<String> {
    let found = found(bus, SERVER);
    if found == acknowledged {
        return None;
    }
    let same = found.iter().zip(acknowledged).take_while(|(found, expected)| found == expected).count();
    let [found_next, expected] = [found.get(same), acknowledged.get(same)];
    Some(format!(
        "{} events of {}; behind the first {same} comes {found_next:?}, not {expected:?}",
        found.len(),
        acknowledged.len()
    ))
}
