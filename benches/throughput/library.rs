//! The same messages through the library: one peer publishes as fast as it is allowed to, another one subscribes, each
//! on a thread of its own, over loopback multicast. Everything is numbered, checked, and accounted for.

use bytes::Bytes;
use seqcast::bus::{Bus, Embedded, Event, Options, RecvError, Subscription};
use seqcast::config::{Config, DatagramSize};
use seqcast::daemon::clock::{Clock, random_u64};
use seqcast::message::Message;
use seqcast::time::Instant;
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The subject of all messages.
const SUBJECT: &str = "bench.throughput";
/// Messages published between two turns of a peer that the caller drives.
const BURST: usize = 1024;
/// How long meeting the other peer may take.
const MEET_TIME: Duration = Duration::from_secs(5);
/// The rest has arrived, or is known to be lost, when nothing has come for so long.
const QUIET_TIME: Duration = Duration::from_millis(500);

/// What a run came to, in messages.
pub struct Outcome {
    pub published: u64,
    pub received: u64,
    /// Reported as lost by number.
    pub lost: u64,
    /// In datagrams reported as missing that no later message has explained.
    pub unverified: u64,
    /// Dropped because the subscription was not read fast enough, as told in its stream.
    pub dropped: u64,
    /// Datagrams that the subscriber's kernel threw away because the receive buffer was full.
    pub kernel_drops: u64,
}

/// Two peers that meet only each other.
fn configs(datagram_bytes: usize) -> Result<[Config; 2], String> {
    let bits = random_u64().to_be_bytes();
    let config = |name: &str| -> Result<Config, String> {
        let mut config = Config::default();
        config.name = name.parse().map_err(text)?;
        config.group = [239, 255, bits[0], bits[1].max(1)].into();
        config.port = 20_000 + u16::from_be_bytes([bits[2], bits[3]]) % 10_000;
        config.interface = "lo".parse().map_err(text)?;
        config.client_queue_count = 1_000_000;
        config.client_queue_size = 1 << 30;
        config.datagram_size = DatagramSize::Bytes(datagram_bytes);
        Ok(config)
    };
    Ok([config("bench.pub")?, config("bench.sub")?])
}

fn message(bytes: usize) -> Message {
    Message::new(SUBJECT.parse().expect("a valid subject"), Bytes::from(vec![7; bytes]))
}

/// Each peer is driven by the thread that publishes or subscribes: the fast path of the library.
pub fn driven(bytes: usize, datagram_bytes: usize, span: Duration) -> Result<Outcome, String> {
    let [publisher, subscriber] = configs(datagram_bytes)?;
    let over = AtomicBool::new(false);
    let met = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_driven(&subscriber, &met, &over));
        let published = publish_driven(&publisher, bytes, &met, &over, span);
        over.store(true, Relaxed);
        let outcome = reader.join().expect("the subscriber does not panic")?;
        Ok(Outcome { published: published?, ..outcome })
    })
}

fn publish_driven(
    config: &Config,
    bytes: usize,
    met: &AtomicBool,
    over: &AtomicBool,
    span: Duration,
) -> Result<u64, String> {
    let mut peer = Embedded::open(config).map_err(text)?;
    let deadline = now() + MEET_TIME;
    while !met.load(Relaxed) && now() < deadline {
        peer.drive(Duration::from_millis(1)).map_err(text)?;
    }
    let message = message(bytes);
    let mut published = 0;
    let until = now() + span;
    while now() < until {
        for _ in 0..BURST {
            if !peer.publish_ref(&message).map_err(text)? {
                break;
            }
            published += 1;
        }
        peer.turn().map_err(text)?;
    }
    // Heartbeats tell the subscriber what was last; it says when it has everything.
    over.store(true, Relaxed);
    let deadline = now() + 4 * QUIET_TIME;
    while now() < deadline {
        peer.drive(Duration::from_millis(1)).map_err(text)?;
    }
    peer.close().map_err(text)?;
    Ok(published)
}

fn read_driven(config: &Config, met: &AtomicBool, over: &AtomicBool) -> Result<Outcome, String> {
    let mut peer = Embedded::open(config).map_err(text)?;
    let subscription = peer.subscribe(SUBJECT.parse().expect("a valid pattern")).map_err(text)?;
    let deadline = now() + MEET_TIME;
    while peers(&peer.show(&json!({"show": "peers"}))) == 0 {
        if deadline < now() {
            return Err("the two peers did not meet".to_owned());
        }
        peer.drive(Duration::from_millis(1)).map_err(text)?;
    }
    met.store(true, Relaxed);
    let mut tally = Tally::default();
    let mut last = now();
    while !over.load(Relaxed) || now().since(last) < QUIET_TIME {
        peer.drive(Duration::from_millis(1)).map_err(text)?;
        if 0 < subscription.drain(|event| tally.count(event)).map_err(text)? {
            last = now();
        }
    }
    let outcome = tally.outcome(&peer.show(&json!({"show": "loss"})), &peer.show(&json!({"show": "counters"})));
    drop(subscription);
    peer.close().map_err(text)?;
    Ok(outcome)
}

/// Each peer runs in a thread of the library, and the program publishes and reads in threads of its own.
pub fn threaded(bytes: usize, datagram_bytes: usize, span: Duration) -> Result<Outcome, String> {
    let [publisher, subscriber] = configs(datagram_bytes)?;
    let subscriber = Bus::embed(&subscriber).map_err(text)?;
    let publisher = Bus::embed(&publisher).map_err(text)?;
    measure(&publisher, &subscriber, bytes, span)
}

/// Each peer listens on a Unix socket, and the program publishes and reads through these: as with daemons.
pub fn attached(bytes: usize, datagram_bytes: usize, span: Duration) -> Result<Outcome, String> {
    let directory = env::temp_dir().join(format!("seqcast-bench-{:016x}", random_u64()));
    fs::create_dir(&directory).map_err(text)?;
    let outcome = configs(datagram_bytes).and_then(|[mut publisher, mut subscriber]| {
        publisher.socket = directory.join("pub.sock");
        subscriber.socket = directory.join("sub.sock");
        let options = Options { serve: true, ..Options::default() };
        let _daemons = [
            Bus::embed_with(&publisher, &options).map_err(text)?,
            Bus::embed_with(&subscriber, &options).map_err(text)?,
        ];
        let subscriber = Bus::attach(&subscriber.socket).map_err(text)?;
        let publisher = Bus::attach(&publisher.socket).map_err(text)?;
        measure(&publisher, &subscriber, bytes, span)
    });
    fs::remove_dir_all(&directory).map_err(text)?;
    outcome
}

fn measure(publisher: &Bus, subscriber: &Bus, bytes: usize, span: Duration) -> Result<Outcome, String> {
    let subscription = subscriber.subscribe(SUBJECT.parse().expect("a valid pattern")).map_err(text)?;
    let deadline = now() + MEET_TIME;
    while peers(&subscriber.show("peers").map_err(text)?) == 0 {
        if deadline < now() {
            return Err("the two peers did not meet".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&subscription, &over));
        let message = message(bytes);
        let mut published = 0;
        let until = now() + span;
        let mut outcome = Ok(());
        while outcome.is_ok() && now() < until {
            for _ in 0..BURST {
                outcome = publisher.publish_timeout(message.clone(), span);
                published += u64::from(outcome.is_ok());
            }
        }
        over.store(true, Relaxed);
        let tally = reader.join().expect("the reader does not panic");
        outcome.map_err(text)?;
        let loss = subscriber.show("loss").map_err(text)?;
        let counters = subscriber.show("counters").map_err(text)?;
        Ok(Outcome { published, ..tally.outcome(&loss, &counters) })
    })
}

fn read(subscription: &Subscription, over: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    loop {
        match subscription.recv_timeout(QUIET_TIME) {
            Ok(event) => tally.count(&event),
            Err(RecvError::Empty) if !over.load(Relaxed) => {}
            Err(_) => return tally,
        }
    }
}

#[derive(Default)]
struct Tally {
    received: u64,
    dropped: u64,
}

impl Tally {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Message(_) => self.received += 1,
            Event::Dropped(count) => self.dropped += count,
            Event::Joined(_) => {}
            Event::Loss(_) => {}
        }
    }

    /// Together with what the peer says of itself.
    fn outcome(self, loss: &Value, counters: &Value) -> Outcome {
        let row = &loss["rows"][0];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let kernel = counters["rows"].as_array().into_iter().flatten().find(|row| row["counter"] == "kernel_drops");
        Outcome {
            published: 0,
            received: self.received,
            lost: number(&row["msg_loss"]["count"]),
            unverified: number(&row["unverified"]["count"]),
            dropped: self.dropped,
            kernel_drops: kernel.map_or(0, |row| number(&row["value"])),
        }
    }
}

fn peers(report: &Value) -> usize {
    report["rows"].as_array().map_or(0, Vec::len)
}

fn now() -> Instant {
    Clock::now().instant
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
