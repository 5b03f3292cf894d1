//! Pacing on real sockets: receivers with hardly any room, and one that stands still while others publish at full speed.

use crate::support::bus::{config, eventually, wait_for};
use seqcast::bus::{Bus, Embedded, Event, Subscription};
use seqcast::message::{Message, Missing};
use serde_json::{Value, json};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// What a subscription has got.
#[derive(Debug, Default)]
struct Account {
    delivered: u64,
    lost: u64,
    /// The last number delivered, which must rise.
    last: Option<u64>,
}

impl Account {
    fn take(&mut self, subscription: &Subscription) {
        while let Ok(event) = subscription.try_recv() {
            match event {
                Event::Message(delivery) => {
                    let number = delivery.message.payload.first_chunk().copied().map(u64::from_be_bytes);
                    assert!(self.last < number, "{number:?} after {:?}", self.last);
                    (self.last, self.delivered) = (number, self.delivered + 1);
                }
                Event::Loss(loss) => {
                    if let Missing::Messages { count, .. } = loss.what {
                        assert_eq!(count.min(), count.max(), "{loss:?}");
                        self.lost += count.min();
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn numbered(number: u64, bytes: usize) -> Message {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes, number as u8);
    Message::new("pace".parse().unwrap(), payload)
}

/// The first row of `show peers`.
fn peer(answer: &Value) -> &Value {
    &answer["rows"][0]
}

fn counter(receiver: &mut Embedded, name: &str) -> u64 {
    let counters = receiver.show(&json!({ "show": "counters" }));
    let row = counters["rows"].as_array().unwrap().iter().find(|row| row["counter"] == name).unwrap();
    row["value"].as_u64().unwrap()
}

/// Lets a receiver work for a while, and takes what it gets.
fn drive(receiver: &mut Embedded, subscription: &Subscription, account: &mut Account) {
    for _ in 0..500 {
        receiver.drive(Duration::from_millis(1)).unwrap();
        account.take(subscription);
    }
}

/// Drives a receiver until it knows its only publisher, and is known to it.
fn meet(publisher: &Bus, receiver: &mut Embedded) {
    eventually("the peers meet", || {
        receiver.drive(Duration::from_millis(1)).unwrap();
        let known = receiver.show(&json!({ "show": "peers" }));
        peer(&known)["state"] == "up" && peer(&publisher.show("peers").unwrap())["state"] == "up"
    });
}

#[test]
fn a_receive_buffer_for_one_datagram_makes_the_publisher_slow_and_loses_nothing() {
    let mut config = config("tiny");
    let publisher = Bus::embed(&config).unwrap();
    config.receive_buffer = 4096;
    let mut receiver = Embedded::open(&config).unwrap();
    let subscription = receiver.subscribe("pace".parse().unwrap()).unwrap();
    meet(&publisher, &mut receiver);
    let sent = 20_000;
    let handle = publisher.clone();
    let publishing = std::thread::spawn(move || {
        (0..sent).for_each(|number| handle.publish_blocking(numbered(number, 500)).unwrap());
        handle.flush(LONG).unwrap();
    });
    let mut account = Account::default();
    eventually("everything arrives", || {
        drive(&mut receiver, &subscription, &mut account);
        account.delivered + account.lost == sent
    });
    publishing.join().unwrap();
    assert_eq!(account.lost, 0);
    // 1,100 datagrams; without pacing most of them find no room.
    let dropped = counter(&mut receiver, "kernel_drops");
    assert!(dropped < 200, "{dropped} datagrams found no room");
    let shown = publisher.show("peers").unwrap();
    assert_eq!(peer(&shown)["times_left_behind"], 0, "{shown}");
}

#[test]
fn who_stands_still_at_full_speed_is_left_behind_and_told_exactly_what_it_missed() {
    let config = config("still");
    let publisher = Bus::embed(&config).unwrap();
    let mut receiver = Embedded::open(&config).unwrap();
    let subscription = receiver.subscribe("pace".parse().unwrap()).unwrap();
    meet(&publisher, &mut receiver);
    // More than can be sent again: 100 MB, while nobody drives the receiver.
    let mut sent = 25_000;
    (0..sent).for_each(|number| publisher.publish_blocking(numbered(number, 4000)).unwrap());
    publisher.flush(LONG).unwrap();
    let shown = publisher.show("peers").unwrap();
    assert_eq!(
        (&peer(&shown)["times_left_behind"], &peer(&shown)["left_behind"]["why"]),
        (&json!(1), &json!("no report"))
    );
    let mut account = Account::default();
    eventually("every message is accounted for", || {
        drive(&mut receiver, &subscription, &mut account);
        let loss = receiver.show(&json!({ "show": "loss" }));
        let unverified = peer(&loss)["unverified"]["count"].as_u64().unwrap();
        let told = account.delivered + account.lost + unverified;
        assert!(told <= sent, "{sent} sent, {account:?}, {unverified} unverified");
        told == sent
    });
    assert!(0 < account.lost && 0 < account.delivered, "{account:?}");
    // It is waited for again, and misses nothing more.
    let before = (account.delivered + 5000, counter(&mut receiver, "kernel_drops"));
    let handle = publisher.clone();
    let publishing = std::thread::spawn(move || {
        (sent..sent + 5000).for_each(|number| handle.publish_blocking(numbered(number, 4000)).unwrap());
        handle.flush(LONG).unwrap();
    });
    sent += 5000;
    eventually("the rest arrives", || {
        drive(&mut receiver, &subscription, &mut account);
        account.delivered + account.lost == sent
    });
    publishing.join().unwrap();
    // What was unverified may be lost by now.
    assert_eq!((account.delivered, counter(&mut receiver, "kernel_drops")), before);
    assert_eq!(peer(&publisher.show("peers").unwrap())["left_behind"], Value::Null);
}

#[test]
fn a_reader_that_takes_its_time_slows_the_publisher_down_and_loses_nothing() {
    let mut config = config("reader");
    // However little it takes while the machine does something else.
    config.pace_floor = 0;
    let (publisher, receiver) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    let subscription = receiver.subscribe("pace".parse().unwrap()).unwrap();
    wait_for(&publisher, &receiver);
    wait_for(&receiver, &publisher);
    // Three times as many as its queue holds, while it rests now and then.
    let sent = 300_000;
    let reading = std::thread::spawn(move || {
        for expected in 0..sent {
            let Ok(Event::Message(delivery)) = subscription.recv_timeout(LONG) else { panic!("not {expected}") };
            assert_eq!(delivery.message.payload.first_chunk().copied().map(u64::from_be_bytes), Some(expected));
            if expected % 1000 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    (0..sent).for_each(|number| publisher.publish_blocking(numbered(number, 100)).unwrap());
    reading.join().unwrap();
}
