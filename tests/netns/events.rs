//! Journals of events of peers on several hosts that follow each other while the network loses datagrams.

use super::lan::{Host, Lan, in_namespaces};
use super::{ONE_IN_TEN, config_of};
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::Bus;
use seqcast::event::model::{Event, Registration, ServerId};
use seqcast::event::store::{Query, ServerQuery};
use seqcast::rng::Rng;
use std::path::PathBuf;
use std::time::Duration;

/// Number of requests, each for some events.
const SESSIONS: u64 = 600;

/// Opens a bus with a short `reliability`, so that many datagrams are lost to it for good.
fn open(host: Host, number: u32) -> Bus {
    let mut config = config_of(&format!("E{number}.test"));
    config.reliability = Duration::from_millis(20);
    config.server_id = Some(ServerId(number));
    config.data_dir = PathBuf::from(format!("/run/events-{number}"));
    config.event_follow = vec!["plant/*".parse().expect("it is a pattern")];
    host.within(move || Bus::embed(&config)).expect("a peer can be started")
}

/// Returns all events of the server that the peer finds.
pub(super) fn found(bus: &Bus, server: u32) -> Vec<Event> {
    let mut found: Vec<Event> = Vec::new();
    loop {
        let after = found.last().map(|event| event.id);
        let query = Query::Server(ServerQuery { server: ServerId(server), after, limit: None });
        // A server of which nothing is known yet has no events.
        let Ok(answer) = bus.find_events(query) else { return found };
        found.extend(answer.events);
        if !answer.more_follows {
            return found;
        }
    }
}

/// One host hears nothing for a while; all lose a tenth of what arrives; two register at the same time. In the end
/// each has all events that it follows of the others, event for event, and nothing else.
#[test]
fn followed_journals_are_complete_under_loss() {
    in_namespaces("netns::events::followed_journals_are_complete_under_loss", || {
        let lan = Lan::new(3);
        let buses: Vec<Bus> = (1..).zip(&lan.hosts).map(|(number, host)| open(*host, number)).collect();
        let met = |bus: &Bus| bus.show("peers").expect("the peer answers")["rows"].as_array().map(Vec::len) == Some(2);
        wait_until("the peers have met", || buses.iter().all(met));
        lan.hosts.iter().for_each(|host| host.fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop")));
        let mut rng = Rng::new(1);
        for session in 0..SESSIONS {
            match session {
                200 => lan.hosts[2].fault("meta l4proto udp counter name hits drop"),
                400 => lan.hosts[2].fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop")),
                _ => {}
            }
            let types = ["plant/1", "plant/2/alarm", "other"];
            let registration = |rng: &mut Rng| Registration {
                event_type: types[rng.below(3) as usize].parse().expect("it is a type"),
                source_timestamp: None,
                payload: None,
            };
            let requested = (0..1 + rng.below(4)).map(|_| registration(&mut rng)).collect();
            buses[usize::from(rng.chance(0.5))].register(requested).expect("it is stored");
            let_time_pass(Duration::from_millis(5), "the load has a rate");
        }
        let is_followed = |event: &Event| event.event_type.to_string().starts_with("plant/");
        for (origin, bus) in (1..).zip(&buses[..2]) {
            let expected: Vec<Event> = found(bus, origin).into_iter().filter(is_followed).collect();
            assert!(200 < expected.len(), "{} events of server {origin}", expected.len());
            for other in (0..3).filter(|other| *other + 1 != origin as usize) {
                wait_until("the other one has them all", || found(&buses[other], origin).len() == expected.len());
                assert_eq!(found(&buses[other], origin), expected, "of server {origin} at {}", other + 1);
            }
        }
        let hits: u64 = lan.hosts.iter().map(Host::heal).sum();
        assert!(100 < hits, "the fault has hit {hits} times");
    });
}
