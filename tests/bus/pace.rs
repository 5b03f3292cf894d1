//! Pacing on real sockets: receivers with hardly any room, and one that pauses while others publish at full speed.

use crate::support::bus::{config, wait_for};
use crate::support::command::Place;
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{Bus, EmbeddedPeer, Notice, NoticeRef, PublishError, Subscription};
use seqcast::message::{LossScope, Message};
use seqcast::seqno::Seq;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Deliveries and reports of a subscription.
#[derive(Debug, Default)]
struct Account {
    delivered: u64,
    lost: u64,
    /// Number of messages and reports dropped because the program or its connection was too slow.
    dropped: u64,
    /// The last number delivered, which must rise.
    last: Option<u64>,
    /// The seq up to which each message was delivered, reported as lost, or dropped; exactly one of these.
    reached: Option<Seq>,
}

impl Account {
    /// Takes the available messages and reports, of which none may have been dropped.
    fn take(&mut self, subscription: &Subscription) {
        self.take_some(subscription);
        assert_eq!(self.dropped, 0);
    }

    /// Takes the available messages and reports, and counts the dropped ones.
    fn take_some(&mut self, subscription: &Subscription) {
        while let Ok(event) = subscription.try_recv() {
            self.count(event);
        }
    }

    fn count(&mut self, notice: Notice) {
        match notice {
            Notice::Message(delivery) => {
                let number = delivery.message.payload.first_chunk().copied().map(u64::from_be_bytes);
                assert!(self.last < number, "{number:?} after {:?}", self.last);
                assert!(self.reached < delivery.seq, "{:?} after {:?}", delivery.seq, self.reached);
                self.reached = delivery.seq;
                (self.last, self.delivered) = (number, self.delivered + 1);
            }
            Notice::Loss(loss) => {
                if let LossScope::Messages { first, last, count, .. } = loss.what {
                    assert_eq!(count.min(), count.max(), "{loss:?}");
                    assert!(self.reached < Some(first), "{loss:?} after {:?}", self.reached);
                    self.reached = Some(last);
                    self.lost += count.min();
                }
            }
            Notice::Dropped(count) => self.dropped += count,
            other => panic!("{other:?}"),
        }
    }
}

fn numbered(number: u64, bytes: usize) -> Message {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes, number as u8);
    Message::new("pace".parse().unwrap(), payload)
}

/// Returns the first row of `show peers`.
fn peer(answer: &Value) -> &Value {
    &answer["rows"][0]
}

/// Returns a counter of `show counters`.
fn counter(counters: &Value, name: &str) -> u64 {
    let row = counters["rows"].as_array().unwrap().iter().find(|row| row["counter"] == name).unwrap();
    row["value"].as_u64().unwrap()
}

/// Lets a receiver work for a while, and takes its messages.
fn drive(receiver: &mut EmbeddedPeer, subscription: &Subscription, account: &mut Account) {
    for _ in 0..500 {
        receiver.drive(Duration::from_millis(1)).unwrap();
        account.take(subscription);
    }
}

/// Drives a receiver until it knows its only publisher, and is known to it.
fn meet(publisher: &Bus, receiver: &mut EmbeddedPeer) {
    wait_until("the peers meet", || {
        receiver.drive(Duration::from_millis(1)).unwrap();
        let known = receiver.show(&json!({ "show": "peers" }));
        // A publisher does not wait for receivers whose address is not proven.
        peer(&known)["state"] == "up" && peer(&publisher.show("peers").unwrap())["proven"] == true
    });
}

#[test]
fn tiny_receive_buffer_slows_the_publisher_without_loss() {
    let mut config = config("tiny");
    let publisher = Bus::embed(&config).unwrap();
    config.receive_buffer = 4096;
    let mut receiver = EmbeddedPeer::open(&config).unwrap();
    let subscription = receiver.subscribe("pace".parse().unwrap()).unwrap();
    meet(&publisher, &mut receiver);
    let sent = 20_000;
    let handle = publisher.clone();
    let publishing = std::thread::spawn(move || {
        (0..sent).for_each(|number| handle.publish_blocking(numbered(number, 500)).unwrap());
        handle.flush(LONG).unwrap();
    });
    let mut account = Account::default();
    wait_until("everything arrives", || {
        drive(&mut receiver, &subscription, &mut account);
        account.delivered + account.lost == sent
    });
    publishing.join().unwrap();
    assert_eq!(account.lost, 0);
    // 1,100 datagrams; without pacing most of them find no room.
    let dropped = counter(&receiver.show(&json!({ "show": "counters" })), "kernel_drops");
    assert!(dropped < 200, "{dropped} datagrams found no room");
    let shown = publisher.show("peers").unwrap();
    assert_eq!(peer(&shown)["flow_exclusion_count"], 0, "{shown}");
}

#[test]
fn burst_into_a_new_group_arrives_whole() {
    let config = config("burst");
    let mut receiver = EmbeddedPeer::open(&config).unwrap();
    let subscription = receiver.subscribe("pace".parse().unwrap()).unwrap();
    // The receiver has listened long enough: it must receive all messages of a publisher that starts now.
    for _ in 0..300 {
        receiver.drive(Duration::from_millis(1)).unwrap();
    }
    let (sent, is_over) = (10_000_000, Arc::new(AtomicBool::new(false)));
    let is_over_there = is_over.clone();
    let publishing = std::thread::spawn(move || {
        let mut publisher = EmbeddedPeer::open(&config).unwrap();
        let subject = "pace".parse().unwrap();
        for number in 0..sent {
            while let Err(error) = publisher.publish_payload(&subject, &u64::to_be_bytes(number)) {
                assert_eq!(error, PublishError::Full);
                publisher.drive(Duration::from_millis(1)).unwrap();
            }
        }
        // The publisher lingers to answer requests.
        while !is_over_there.load(Ordering::Relaxed) {
            publisher.drive(Duration::from_millis(10)).unwrap();
        }
    });
    let (mut next, mut others) = (0, 0);
    while next < sent {
        receiver.drive(LONG).unwrap();
        let read = subscription.drain(|event| match event {
            NoticeRef::Message(delivery) => {
                assert_eq!(delivery.payload, u64::to_be_bytes(next));
                next += 1;
            }
            _ => others += 1,
        });
        assert!(read.is_ok(), "{next} came");
    }
    assert_eq!((next, others), (sent, 0));
    is_over.store(true, Ordering::Relaxed);
    publishing.join().unwrap();
}

#[test]
fn stopped_receiver_is_excluded_with_exact_losses() {
    let config = config("still");
    let publisher = Bus::embed(&config).unwrap();
    let mut receiver = EmbeddedPeer::open(&config).unwrap();
    let subscription = receiver.subscribe("pace".parse().unwrap()).unwrap();
    meet(&publisher, &mut receiver);
    // More than can be retransmitted: 100 MB, while no thread drives the receiver.
    let mut sent = 25_000;
    (0..sent).for_each(|number| publisher.publish_blocking(numbered(number, 4000)).unwrap());
    publisher.flush(LONG).unwrap();
    let shown = publisher.show("peers").unwrap();
    assert_eq!(
        (&peer(&shown)["flow_exclusion_count"], &peer(&shown)["flow_exclusion"]["reason"]),
        (&json!(1), &json!("no report"))
    );
    let mut account = Account::default();
    wait_until("every message is accounted for", || {
        drive(&mut receiver, &subscription, &mut account);
        let loss = receiver.show(&json!({ "show": "loss" }));
        let unverified = peer(&loss)["unverified"]["count"].as_u64().unwrap();
        let accounted = account.delivered + account.lost + unverified;
        assert!(accounted <= sent, "{sent} sent, {account:?}, {unverified} unverified");
        accounted == sent
    });
    assert!(0 < account.lost && 0 < account.delivered, "{account:?}");
    // The publisher waits for the receiver again, which misses no further message.
    let before = (account.delivered + 5000, counter(&receiver.show(&json!({ "show": "counters" })), "kernel_drops"));
    let handle = publisher.clone();
    let publishing = std::thread::spawn(move || {
        (sent..sent + 5000).for_each(|number| handle.publish_blocking(numbered(number, 4000)).unwrap());
        handle.flush(LONG).unwrap();
    });
    sent += 5000;
    wait_until("the rest arrives", || {
        drive(&mut receiver, &subscription, &mut account);
        account.delivered + account.lost == sent
    });
    publishing.join().unwrap();
    // Unverified messages may be lost by now.
    assert_eq!((account.delivered, counter(&receiver.show(&json!({ "show": "counters" })), "kernel_drops")), before);
    assert_eq!(peer(&publisher.show("peers").unwrap())["flow_exclusion"], Value::Null);
}

#[test]
fn slow_reader_slows_the_publisher_without_loss() {
    let mut config = config("reader");
    // The publisher waits for the reader, however slowly it reads while the machine is busy.
    config.pace_floor = 0;
    let (publisher, receiver) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    let subscription = receiver.subscribe("pace".parse().unwrap()).unwrap();
    wait_for(&publisher, &receiver);
    wait_for(&receiver, &publisher);
    // Three times the number of messages that the queue holds; the reader pauses now and then.
    let sent = 300_000;
    let reading = std::thread::spawn(move || {
        for expected in 0..sent {
            let Ok(Notice::Message(delivery)) = subscription.recv_timeout(LONG) else { panic!("not {expected}") };
            assert_eq!(delivery.message.payload.first_chunk().copied().map(u64::from_be_bytes), Some(expected));
            if expected % 1000 == 0 {
                let_time_pass(Duration::from_millis(2), "the reader rests now and then");
            }
        }
    });
    (0..sent).for_each(|number| publisher.publish_blocking(numbered(number, 100)).unwrap());
    reading.join().unwrap();
}

#[test]
fn stopped_process_neither_stops_publisher_nor_loses_account() {
    let place = Place::new();
    let receiver = place.peer(&["--interface", "lo"]);
    let attached = Bus::attach(place.socket()).unwrap();
    let subscription = attached.subscribe("pace".parse().unwrap()).unwrap();
    let status = attached.show("status").unwrap()["status"].take();
    let mut config = config("stop");
    config.group = status["group"].as_str().unwrap().parse().unwrap();
    config.port = place.port();
    let publisher = Bus::embed(&config).unwrap();
    wait_for(&publisher, &attached);
    let (sent, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let publishing = {
        let (publisher, sent, is_over) = (publisher.clone(), sent.clone(), is_over.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                publisher.publish_blocking(numbered(sent.load(Ordering::Relaxed), 1000)).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
            publisher.flush(LONG).unwrap();
        })
    };
    let mut account = Account::default();
    while account.delivered < 1000 {
        account.count(subscription.recv_timeout(LONG).unwrap());
    }
    receiver.signal("STOP");
    // The publisher waits for the receiver at first, then continues, and regards it as silent after 3.5 heartbeats.
    let is_up = |shown: &Value| peer(shown)["state"] == "up";
    wait_until("the publisher leaves the receiver behind", || {
        let shown = publisher.show("peers").unwrap();
        !peer(&shown)["flow_exclusion"].is_null() || !is_up(&shown)
    });
    let goal = sent.load(Ordering::Relaxed) + 1000;
    wait_until("the publisher goes on without the receiver", || goal < sent.load(Ordering::Relaxed));
    wait_until("the publisher takes the receiver for silent", || !is_up(&publisher.show("peers").unwrap()));
    receiver.signal("CONT");
    let goal = sent.load(Ordering::Relaxed) + 1000;
    wait_until("the publisher goes on", || {
        account.take_some(&subscription);
        goal < sent.load(Ordering::Relaxed)
    });
    is_over.store(true, Ordering::Relaxed);
    wait_until("every message is accounted for", || {
        account.take_some(&subscription);
        let delivered = counter(&attached.show("counters").unwrap(), "messages_delivered");
        let loss = attached.show("loss").unwrap();
        let [lost, unverified] =
            ["msg_loss", "unverified"].map(|column| peer(&loss)[column]["count"].as_u64().unwrap());
        let (accounted, sent) = (delivered + lost + unverified, sent.load(Ordering::Relaxed));
        assert!(accounted <= sent, "{sent} sent, {delivered} delivered, {lost} lost, {unverified} unverified");
        accounted == sent && publishing.is_finished() && account.delivered + account.dropped >= delivered
    });
    publishing.join().unwrap();
    let delivered = counter(&attached.show("counters").unwrap(), "messages_delivered");
    assert!(1000 < account.delivered && account.delivered <= delivered, "{delivered} delivered, {account:?}");
}
