//! The messages that honest peers publish to each other, and what their subscribers get.

use crate::netns::lan::{Peer, Process};
use crate::support::command::parse_json;
use crate::support::wait::{let_time_pass, wait_until_some};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Two publishers, and a subscriber to both at each of their peers.
pub struct Traffic {
    publishers: Vec<HonestPublisher>,
    subscribers: Vec<HonestSubscriber>,
}

struct HonestPublisher {
    subject: String,
    published: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct HonestSubscriber {
    process: Process,
    lines_read: usize,
    /// Number of the last message of each subject.
    last: BTreeMap<String, u64>,
}

/// Deviations at two subscribers from the messages of the honest publishers, each once and in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Messages that no honest peer has published, or that came again or too late.
    pub foreign: u64,
    /// Messages reported as lost, and reports without a number.
    pub lost: u64,
}

impl Traffic {
    /// Starts to publish 200 messages a second at each of two peers.
    pub fn start(peers: [&Peer; 2]) -> Traffic {
        let subscribe =
            |peer: &Peer| HonestSubscriber { process: peer.subscribe("t.>"), lines_read: 0, last: BTreeMap::new() };
        let subscribers = peers.map(subscribe).into();
        let publishers = peers.iter().zip(["t.a", "t.b"]).map(|(peer, subject)| publish(peer, subject)).collect();
        Traffic { publishers, subscribers }
    }

    /// Waits until each subscriber has everything that was published before this call, and returns what else it got
    /// since the last call.
    pub fn settle(&mut self) -> Damage {
        let published: Vec<(String, u64)> = self
            .publishers
            .iter()
            .map(|publisher| (publisher.subject.clone(), publisher.published.load(Ordering::Relaxed)))
            .collect();
        let mut damage = Damage::default();
        for subscriber in &mut self.subscribers {
            let missing = |subscriber: &HonestSubscriber| {
                let of = |subject: &String| subscriber.last.get(subject).copied().unwrap_or(0);
                published.iter().any(|(subject, count)| of(subject) < *count)
            };
            let found = std::cell::RefCell::new((&mut damage, subscriber));
            let what = || format!("all of {published:?} is delivered; so far {:?}", found.borrow().1.last);
            wait_until_some(what, || {
                let (damage, subscriber) = &mut *found.borrow_mut();
                subscriber.read(damage);
                (!missing(subscriber)).then_some(())
            });
        }
        damage
    }
}

impl HonestSubscriber {
    /// Judges the lines that came since the last call.
    fn read(&mut self, damage: &mut Damage) {
        let lines = self.process.lines();
        for line in &lines[self.lines_read..] {
            let value = parse_json(line);
            if value["type"] != "message" {
                damage.lost += value["count"].as_u64().unwrap_or(1);
                continue;
            }
            let subject = value["subject"].as_str().unwrap_or_default();
            let number = value["payload"].as_str().and_then(|payload| payload.strip_prefix(MARK)?.parse::<u64>().ok());
            let last = self.last.entry(subject.to_owned()).or_default();
            match number {
                Some(number) if number == *last + 1 => *last = number,
                Some(number) if *last < number => {
                    damage.lost += number - *last - 1;
                    *last = number;
                }
                _ => damage.foreign += 1,
            }
        }
        self.lines_read = lines.len();
    }
}

/// Publishes until the value is dropped.
fn publish(peer: &Peer, subject: &str) -> HonestPublisher {
    let bus = peer.attach();
    let (published, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let name = subject.parse().expect("it is a subject");
    let thread = thread::spawn({
        let (published, stop) = (Arc::clone(&published), Arc::clone(&stop));
        move || {
            for number in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let payload = format!("{MARK}{number}");
                bus.publish_payload(&name, payload.as_bytes(), PUBLISH_TIMEOUT).expect("the peer takes it in time");
                published.store(number, Ordering::Relaxed);
                let_time_pass(INTERVAL, "the honest peers publish at a rate");
            }
        }
    });
    HonestPublisher { subject: subject.to_owned(), published, stop, thread: Some(thread) }
}

impl Drop for HonestPublisher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is dropped once");
        assert!(thread.join().is_ok() || thread::panicking(), "the publisher failed");
    }
}

/// Beginning of every honest payload.
const MARK: &str = "honest ";
/// Time between two messages of one publisher.
const INTERVAL: Duration = Duration::from_millis(5);
/// Time in which a peer must take a message, also during an attack.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
