//! A client of the cluster with the library of NATS. It publishes on subjects that each site imports, and subscribes to
//! what the sites export.
//!
//! Nobody counts what such a client misses while nodes die, or what its messages suffer: they have no numbers. In calm
//! times, without any fault, each message must come once, and each durable one of a site at least once: a gateway that
//! waits too long for the answer of the stream sends it again.

use super::World;
use super::account::is_durable;
use super::wan::SITES;
use crate::netns::lan::Host;
use crate::support::wait::wait_until;
use futures_util::StreamExt;
use futures_util::stream::select_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Subjects on which the client publishes.
const SUBJECTS: usize = 4;
/// Time between two messages of the client.
const SEND_INTERVAL: Duration = Duration::from_millis(25);

/// Numbers of the messages on each subject that were published in a calm time.
#[derive(Clone, Debug, Default)]
pub struct CalmWindow {
    /// Numbers of messages on each subject before the calm time.
    pub from: BTreeMap<String, usize>,
    /// The same at its end.
    pub to: BTreeMap<String, usize>,
}

/// Counts of the deliveries of each message, by subject.
#[derive(Debug, Default)]
pub struct DeliveryCounts {
    counts: BTreeMap<String, Vec<u32>>,
}

impl DeliveryCounts {
    /// Counts a message whose payload is its number.
    pub fn on_message(&mut self, subject: &str, payload: &[u8]) {
        let number = std::str::from_utf8(payload).ok().and_then(|text| text.parse::<usize>().ok());
        let number = number.unwrap_or_else(|| panic!("{payload:?} on {subject} is no number"));
        let counts = self.counts.entry(subject.to_owned()).or_default();
        if counts.len() <= number {
            counts.resize(number + 1, 0);
        }
        counts[number] += 1;
    }

    /// Returns the number of deliveries, and that of further deliveries of a message.
    pub fn totals(&self) -> (u64, u64) {
        let counts = || self.counts.values().flatten();
        (counts().map(|count| u64::from(*count)).sum(), counts().map(|count| u64::from(count.saturating_sub(1))).sum())
    }

    /// Returns a sentence for each message of the calm time that did not come once, or not at all if it is a durable one.
    /// Only subjects that begin with this text count.
    pub fn violations(&self, window: &CalmWindow, subjects: &str) -> Vec<String> {
        let mut violations = Vec::new();
        for (subject, to) in window.to.iter().filter(|(subject, _)| subject.starts_with(subjects)) {
            let from = window.from.get(subject).copied().unwrap_or(0);
            let counts = self.counts.get(subject).map_or(&[][..], Vec::as_slice);
            for number in from..*to {
                let count = counts.get(number).copied().unwrap_or(0);
                if count == 0 || 1 < count && !is_durable(subject) {
                    violations.push(format!("message {number} of {subject} came {count} times in a calm time"));
                }
            }
        }
        violations
    }
}

/// Starts the client on a host of the cluster. It ends with the run.
pub fn start(world: &Arc<World>, host: Host, addresses: String) -> JoinHandle<()> {
    let of_client = Arc::clone(world);
    // A thread stays in the network of the one that starts it.
    let client = host.within(move || {
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("the system has a timer").block_on(run(&of_client, &addresses));
        })
    });
    wait_until("the client has subscribed", || 0 < world.hub_deliveries().totals().0);
    client
}

async fn run(world: &World, addresses: &str) {
    let options = async_nats::ConnectOptions::new()
        .retry_on_initial_connect()
        .subscription_capacity(1 << 20)
        .reconnect_delay_callback(|_| Duration::from_millis(100));
    let addresses: Vec<&str> = addresses.split(", ").collect();
    let client = options.connect(&addresses[..]).await.expect("addresses of nodes");
    let mut exports = Vec::new();
    for site in 1..=SITES {
        exports.push(client.subscribe(format!("s{site}.>")).await.expect("a subject"));
    }
    let mut exports = select_all(exports);
    let mut sends = interval(SEND_INTERVAL);
    sends.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut next = 0;
    while !world.is_over() {
        tokio::select! {
            Some(message) = exports.next() => {
                world.hub_deliveries().on_message(&message.subject, &message.payload);
            }
            _ = sends.tick() => {
                if world.is_publishing() {
                    let (subject, number) = (format!("hub.client.{}", next % SUBJECTS), next / SUBJECTS);
                    next += 1;
                    let sent = client.publish(subject.clone(), number.to_string().into()).await;
                    sent.expect("the client waits for a node");
                    world.on_published(&subject);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_repeated_messages_are_named() {
        let mut counts = DeliveryCounts::default();
        for number in ["0", "2", "3", "3", "4", "4"] {
            counts.on_message("hub.client.0", number.as_bytes());
        }
        assert_eq!(counts.totals(), (6, 2));
        let at = |number| BTreeMap::from([("hub.client.0".to_owned(), number)]);
        let violations = |from, to| counts.violations(&CalmWindow { from: at(from), to: at(to) }, "hub.").len();
        assert_eq!([violations(0, 1), violations(0, 3), violations(2, 4), violations(0, 6)], [0, 1, 1, 4]);
        assert_eq!(counts.violations(&CalmWindow { from: at(0), to: at(6) }, "s1."), Vec::<String>::new());
        for number in ["0", "0", "2"] {
            counts.on_message("s1.durable.0", number.as_bytes());
        }
        let to = BTreeMap::from([("s1.durable.0".to_owned(), 3)]);
        assert_eq!(counts.violations(&CalmWindow { from: BTreeMap::new(), to }, "s1.").len(), 1, "number 1");
    }
}
