//! The bus as a library: embedded peers on loopback, driven by threads of their own and by the caller's.

use crate::support::bus::{config, message, messages, serve, two_configs, wait_for};
use crate::support::wait::{let_time_pass, wait_until};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use seqcast::bus::{
    Bus, DropRule, EmbeddedPeer, MemberState, Notice, NoticeRef, Options, PublishError, RecvError, RequestError,
    Selection, SubscribeOptions,
};
use seqcast::clock::Clock;
use seqcast::message::{Count, DeliveryMode, Headers, Loss, LossScope, Message, Reason, Verdict};
use std::os::fd::BorrowedFd;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
/// The same time in milliseconds, as `poll` takes it.
const MINUTE: u16 = 60_000;

#[test]
fn message_crosses_the_group() {
    let config = config("cross");
    let (a, b) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    let subscription = b.subscribe("demo.>".parse().unwrap()).unwrap();
    let headers = Headers::from_pairs([("k", "v")]).unwrap();
    let sent = Message { headers, ..message("demo.hello", "hi") };
    wait_for(&a, &b);
    a.publish(sent.clone()).unwrap();
    let delivery = messages(&subscription, 1).remove(0);
    assert_eq!(delivery.message, sent);
    assert_eq!(delivery.publisher.epoch, a.info().epoch);
    assert!(matches!(delivery.verdict, Verdict::Start(_)), "{:?}", delivery.verdict);
}

#[test]
fn busy_polling_peers_behave_the_same() {
    for busy_poll in [Duration::from_micros(50), Duration::from_secs(3600)] {
        let mut config = config("busy");
        config.busy_poll = busy_poll;
        let (a, b) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
        let subscription = b.subscribe("demo.>".parse().unwrap()).unwrap();
        wait_for(&a, &b);
        for number in 0..20 {
            a.publish(message("demo.n", &number.to_string())).unwrap();
            let delivery = messages(&subscription, 1).remove(0);
            assert_eq!(delivery.message.payload, number.to_string());
            let_time_pass(Duration::from_micros(number * 10), "the peers go to sleep between two messages");
        }
        a.close();
        wait_until("the departed peer is no longer up", || {
            b.peers().unwrap().into_iter().all(|peer| peer.state == MemberState::Left)
        });
    }
}

#[test]
fn large_messages_arrive_whole_and_in_order() {
    let config = config("large");
    let (a, b) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    let subscription = b.subscribe("big".parse().unwrap()).unwrap();
    wait_for(&a, &b);
    // A burst must fit the receiver's buffer, because the receiver may not have read any of it when the last part
    // comes. The kernel counts a datagram about twice, in a buffer of twice what it grants.
    let granted = b.status().unwrap().receive_buffer;
    let sizes = [0, 1, 1_000, 100_000, 1_000_000].map(|size: usize| size.min(granted / 2));
    for (index, size) in sizes.into_iter().enumerate() {
        a.publish_blocking(Message::new("big".parse().unwrap(), vec![index as u8; size])).unwrap();
        let delivery = messages(&subscription, 1).remove(0);
        assert_eq!(delivery.message.payload.len(), size);
        assert!(delivery.message.payload.iter().all(|byte| *byte == index as u8));
    }
    let subscription = b.subscribe("many".parse().unwrap()).unwrap();
    for number in 0..2000u32 {
        a.publish_blocking(Message::new("many".parse().unwrap(), number.to_be_bytes().to_vec())).unwrap();
    }
    let numbers: Vec<u32> = messages(&subscription, 2000)
        .iter()
        .map(|delivery| u32::from_be_bytes(delivery.message.payload[..].try_into().unwrap()))
        .collect();
    assert_eq!(numbers, (0..2000).collect::<Vec<u32>>());
}

#[test]
fn oversized_message_is_refused_with_the_limit() {
    let bus = Bus::embed(&config("size")).unwrap();
    let limit = bus.info().message_bytes_max;
    let refused = bus.publish(Message::new("a".parse().unwrap(), vec![0; limit + 1])).unwrap_err();
    assert_eq!(refused, PublishError::TooLarge { bytes: limit + 1, bytes_max: limit });
    assert!(refused.to_string().contains("message-size"));
}

#[test]
fn requests_are_answered_or_time_out() {
    let config = config("request");
    let (a, b) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    let questions = b.subscribe("time.now".parse().unwrap()).unwrap();
    wait_for(&a, &b);
    wait_for(&b, &a);
    let answering = std::thread::spawn(move || {
        for event in questions.iter() {
            if let Notice::Message(question) = event {
                let payload = [b"re: ", &question.message.payload[..]].concat();
                b.reply_to(&question, payload.clone()).unwrap();
                b.reply_to(&question, payload).unwrap();
                if question.message.payload == "two" {
                    b.flush(LONG).unwrap();
                    return;
                }
            }
        }
    });
    let answer = a.request("time.now".parse().unwrap(), "one", LONG).unwrap();
    assert_eq!(answer.message.payload, "re: one");
    assert_eq!(answer.verdict, Verdict::Direct, "an answer travels to one peer alone");
    let answers = a.request_many(message("time.now", "two"), 2, LONG).unwrap();
    assert_eq!(answers.len(), 2);
    answering.join().unwrap();
    let nobody = a.request("no.body".parse().unwrap(), "", LONG);
    assert_eq!(nobody.unwrap_err(), RequestError::NoResponders);
    let _silent = a.subscribe("no.body".parse().unwrap()).unwrap();
    let nobody = a.request("no.body".parse().unwrap(), "", Duration::from_millis(50));
    assert_eq!(nobody.unwrap_err(), RequestError::Timeout);
}

#[test]
fn losses_are_values_that_add_up() {
    let mut config = config("losses");
    // Nothing is requested again.
    config.reliability = Duration::from_millis(5);
    let options = Options { drop: Some(DropRule { seed: 7, chance: 0.2, burst: 2 }), ..Options::default() };
    let start = Clock::now().instant;
    let (a, b) = (Bus::embed(&config).unwrap(), Bus::embed_with(&config, &options).unwrap());
    let subscription = b.subscribe("loss.*.*".parse().unwrap()).unwrap();
    // The receiver knows the publisher before the first message, so it accounts for all of them.
    wait_for(&b, &a);
    let publish = |phase: &str, count: u64| {
        for number in 0..count {
            let subject = format!("loss.{phase}.{}", number % 3).parse().unwrap();
            a.publish_blocking(Message::new(subject, vec![0u8; 700])).unwrap();
            if number % 20 == 0 {
                a.flush(LONG).unwrap();
            }
        }
    };
    publish("early", 300);
    // A datagram shows that earlier ones were in flight for longer than known, and what is missing among them may
    // precede the subscription. The difference is at most the time in which the first datagram has come.
    let_time_pass(2 * Clock::now().instant.since(start), "later losses do not precede the subscription");
    publish("late", 3000);
    // Messages missing at the end of a subject are unverified until a later message comes.
    let (mut sent, mut delivered, mut lost_min, mut lost_max) = (3300u64, 0u64, 0u64, 0u64);
    wait_until("every message is accounted for", || {
        for subject in ["early.0", "early.1", "early.2", "late.0", "late.1", "late.2"] {
            a.publish_blocking(message(&format!("loss.{subject}"), "end")).unwrap();
            sent += 1;
        }
        a.flush(LONG).unwrap();
        while let Ok(event) = subscription.recv_timeout(Duration::from_millis(100)) {
            match event {
                Notice::Message(_) => delivered += 1,
                Notice::Loss(Loss { what: LossScope::Messages { subject, count, .. }, .. }) => {
                    assert!(count.is_exact() || subject.as_str().starts_with("loss.early."), "{subject}: {count}");
                    (lost_min, lost_max) = (lost_min + count.min(), lost_max + count.max());
                }
                Notice::Loss(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let known = delivered + b.losses().unwrap().rows[0].unverified.count;
        assert!(known + lost_min <= sent, "{sent} sent, {known} delivered or unverified, {lost_min} lost at least");
        sent <= known + lost_max
    });
    let lost = Count::from_bounds(lost_min, lost_max);
    assert!(300 < lost_min, "the rule drops one datagram in three: {lost} lost");
    let losses = b.losses().unwrap();
    assert_eq!((losses.rows[0].lost, losses.rows[0].lost_min.count), (lost, lost_min), "{losses:?}");
    assert!(losses.rows[0].reasons.iter().any(|(reason, _)| *reason == Reason::Disabled), "{losses:?}");
    assert!(Some(0) < b.counters().unwrap().value("dropped_by_rule"));
}

#[test]
fn reports_are_the_same_embedded_and_attached() {
    let (config, other, _directory) = two_configs();
    let (peer, sender) = (serve(&config), Bus::embed(&other).unwrap());
    let attached = Bus::attach_as(&config.socket, "reader").unwrap();
    wait_for(&peer, &sender);
    wait_for(&sender, &peer);
    let subscription = attached.subscribe("report.*".parse().unwrap()).unwrap();
    let member = SubscribeOptions { queue: Some("workers".parse().unwrap()), ..SubscribeOptions::default() };
    let _workers = attached.subscribe_with(["work".parse().unwrap()], &member).unwrap();
    sender.publish(message("report.x", "1")).unwrap();
    messages(&subscription, 1);

    let rows = attached.subscriptions().unwrap();
    assert_eq!(peer.subscriptions().unwrap(), rows);
    assert_eq!((rows.rows.len(), rows.omitted), (2, 0), "{rows:?}");
    let row = |pattern: &str| rows.rows.iter().find(|row| row.pattern.as_str() == pattern).unwrap();
    let (client, name) = (attached.info().client, Some("reader"));
    assert_eq!((row("report.*").client, row("report.*").client_name.as_deref()), (client, name));
    assert_eq!((row("report.*").deliveries, row("report.*").queue.as_ref()), (1, None));
    assert_eq!((row("work").queue.as_ref(), row("work").mode), (member.queue.as_ref(), DeliveryMode::Repair));

    let (embedded, rows) = (peer.peers().unwrap(), attached.peers().unwrap());
    assert_eq!((embedded.rows.len(), rows.rows.len()), (1, 1), "{rows:?}");
    let row = &rows.rows[0];
    assert_eq!((row.publisher.epoch, &row.publisher), (sender.info().epoch, &embedded.rows[0].publisher));
    // A host under load may make the other peer silent for a moment.
    assert!(matches!(row.state, MemberState::Up | MemberState::Silent), "{row:?}");
    assert_eq!((row.publisher.name.as_ref(), row.flow_exclusion), (Some(&other.name), None));
    assert!(0 < row.messages_in, "{row:?}");

    let (embedded, rows) = (peer.losses().unwrap(), attached.losses().unwrap());
    assert_eq!(embedded.rows[0].publisher, rows.rows[0].publisher);
    let row = &rows.rows[0];
    assert_eq!((row.lost, row.lost_min.last), (Count::Exact(0), None), "{row:?}");
    assert!(0 < row.datagrams.delivered, "{row:?}");

    let status = attached.status().unwrap();
    assert_eq!((&status.name, status.epoch), (&config.name, peer.info().epoch));
    assert_eq!((status.group, status.port), (config.group, config.port));
    assert_eq!((status.socket.as_ref(), status.clients, status.is_stopping), (Some(&config.socket), 2, false));
    assert_eq!(peer.status().unwrap().inbox, status.inbox);
    assert!(Some(0) < attached.counters().unwrap().value("messages_delivered"));
    assert_eq!(attached.counters().unwrap().value("no_such_counter"), None);
}

#[test]
fn owner_of_a_peer_reads_the_same_reports() {
    let mut peer = EmbeddedPeer::open(&config("owner")).unwrap();
    let _subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    assert_eq!(peer.status().unwrap().epoch, peer.info().epoch);
    assert_eq!(peer.subscriptions().unwrap().rows[0].pattern.as_str(), "x");
    assert!(peer.peers().unwrap().rows.is_empty() && peer.losses().unwrap().rows.is_empty());
    assert_eq!(peer.counters().unwrap().value("kernel_drops"), Some(0));
}

#[test]
fn slow_subscription_loses_only_its_own_messages() {
    let mut config = config("slow");
    config.client_queue_count = 100;
    let bus = Bus::embed(&config).unwrap();
    let (slow, quick) = (bus.subscribe("x".parse().unwrap()).unwrap(), bus.subscribe("x".parse().unwrap()).unwrap());
    for _ in 0..20 {
        for _ in 0..50 {
            bus.publish(message("x", "")).unwrap();
        }
        messages(&quick, 50);
    }
    // The quick one may have its last message before the slow one's is dropped.
    wait_until("every drop is counted", || bus.show("clients").unwrap()["rows"][0]["dropped"] == 900);
    let (mut read, mut dropped) = (0, 0);
    while let Ok(event) = slow.try_recv() {
        match event {
            Notice::Message(_) => read += 1,
            Notice::Dropped(count) => dropped += count,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((read, dropped), (100, 900));
}

#[test]
fn overlapping_patterns_deliver_each_message_once() {
    let bus = Bus::embed(&config("patterns")).unwrap();
    let patterns = ["a.*", "a.>", "b"].map(|pattern| pattern.parse().unwrap());
    let subscription = bus.subscribe_all(patterns).unwrap();
    for subject in ["a.b", "b", "a.b.c", "c"] {
        bus.publish(message(subject, subject)).unwrap();
    }
    bus.flush(LONG).unwrap();
    let got: Vec<_> = messages(&subscription, 3).iter().map(|delivery| delivery.message.subject.to_string()).collect();
    assert_eq!(got, ["a.b", "b", "a.b.c"]);
    assert_eq!(subscription.try_recv(), Err(RecvError::Empty));
    drop(subscription);
    wait_until("the subscriptions end", || bus.subscriptions().unwrap().rows.is_empty());
}

#[test]
fn closing_announces_departure_and_ends_subscriptions() {
    let config = config("close");
    let (a, b) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    wait_for(&a, &b);
    let subscription = b.subscribe("x".parse().unwrap()).unwrap();
    a.publish(message("x", "last words")).unwrap();
    a.close();
    assert_eq!(messages(&subscription, 1)[0].message.payload, "last words");
    wait_until("the other peer shows 'left'", || b.peers().unwrap().rows[0].state == MemberState::Left);
    assert_eq!(a.publish(message("x", "")), Err(PublishError::Closed));
    assert!(a.subscribe("x".parse().unwrap()).is_err());
    b.close();
    assert_eq!(subscription.recv(), None);
}

#[test]
fn caller_can_drive_the_peer() {
    let config = config("driven");
    let (mut a, mut b) = (EmbeddedPeer::open(&config).unwrap(), EmbeddedPeer::open(&config).unwrap());
    let subscription = b.subscribe("x".parse().unwrap()).unwrap();
    let mut turns = 0;
    while b.peers().unwrap().rows.is_empty() {
        assert!(a.drive(Duration::from_millis(1)).unwrap() && b.drive(Duration::from_millis(1)).unwrap());
        turns += 1;
        assert!(turns < 20_000, "the peers never met");
    }
    let (mut sent, mut got) = (0u32, Vec::new());
    while got.len() < 5000 {
        while sent < 5000 && sent < got.len() as u32 + 500 {
            match a.publish(Message::new("x".parse().unwrap(), sent.to_be_bytes().to_vec())) {
                Ok(()) => sent += 1,
                Err(PublishError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        a.turn().unwrap();
        b.drive(Duration::from_millis(1)).unwrap();
        while let Ok(event) = subscription.try_recv() {
            let Notice::Message(delivery) = event else { panic!("{event:?}") };
            got.push(u32::from_be_bytes(delivery.message.payload[..].try_into().unwrap()));
        }
    }
    assert_eq!(got, (0..5000).collect::<Vec<u32>>());
    drop(subscription);
    b.turn().unwrap();
    assert!(b.subscriptions().unwrap().rows.is_empty());
    a.close().unwrap();
}

#[test]
fn failed_start_names_the_remedy() {
    let mut config = config("start");
    config.interface = "no-such-if0".parse().unwrap();
    let error = Bus::embed(&config).unwrap_err().to_string();
    assert!(error.contains("no-such-if0"), "{error}");
}

/// Returns whether the descriptor is readable, or becomes so within `timeout`.
fn is_readable(descriptor: BorrowedFd<'_>, timeout: PollTimeout) -> bool {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
    poll(&mut descriptors, timeout).unwrap() == 1
}

#[test]
fn descriptor_is_readable_while_a_notice_waits() {
    let bus = Bus::embed(&config("readable")).unwrap();
    let subscription = bus.subscribe("x".parse().unwrap()).unwrap();
    let descriptor = subscription.readiness_fd().unwrap();
    assert!(is_readable(descriptor, PollTimeout::ZERO), "the reader begins with a look");
    assert_eq!(subscription.try_recv(), Err(RecvError::Empty));
    assert!(!is_readable(descriptor, PollTimeout::ZERO));
    for _ in 0..2 {
        bus.publish(message("x", "")).unwrap();
    }
    bus.flush(LONG).unwrap();
    assert!(is_readable(descriptor, MINUTE.into()));
    messages(&subscription, 2);
    assert_eq!(subscription.drain(|_| panic!("nothing is left")), Ok(0));
    assert!(!is_readable(descriptor, PollTimeout::ZERO));
    bus.close();
    assert!(is_readable(descriptor, MINUTE.into()));
    assert_eq!(subscription.try_recv(), Err(RecvError::Closed));
    assert!(is_readable(descriptor, PollTimeout::ZERO), "the end stays");
}

#[test]
fn descriptor_drives_a_subscription_with_history() {
    let config = config("history");
    let (a, b) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    wait_for(&b, &a);
    for number in 0..3 {
        a.publish(message("x", &number.to_string())).unwrap();
    }
    a.flush(LONG).unwrap();
    let history = SubscribeOptions { history: Some(Selection::default()), ..SubscribeOptions::default() };
    let subscription = b.subscribe_with(["x".parse().unwrap()], &history).unwrap();
    let descriptor = subscription.readiness_fd().unwrap();
    let (mut received, mut is_joined) = (0, false);
    while !is_joined {
        assert!(is_readable(descriptor, MINUTE.into()), "{received} messages came");
        let drained = subscription.drain(|notice| match notice {
            NoticeRef::Message(_) => received += 1,
            NoticeRef::Joined(_) => is_joined = true,
            other => panic!("{other:?}"),
        });
        drained.unwrap();
    }
    assert_eq!(received, 3);
}

/// Wakes the thread that polls a stream.
#[cfg(feature = "async")]
struct ThreadWaker(std::thread::Thread);

#[cfg(feature = "async")]
impl std::task::Wake for ThreadWaker {
    fn wake(self: std::sync::Arc<ThreadWaker>) {
        self.0.unpark();
    }
}

#[cfg(feature = "async")]
#[test]
fn stream_yields_notices_until_the_bus_closes() {
    use futures_core::Stream;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    let bus = Bus::embed(&config("stream")).unwrap();
    let mut subscription = bus.subscribe("x".parse().unwrap()).unwrap();
    let reader = std::thread::spawn(move || {
        let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
        let mut payloads = Vec::new();
        loop {
            match Pin::new(&mut subscription).poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(Notice::Message(delivery))) => payloads.push(delivery.message.payload),
                Poll::Ready(Some(other)) => panic!("{other:?}"),
                Poll::Ready(None) => return payloads,
                Poll::Pending => std::thread::park(),
            }
        }
    });
    for number in 0..100 {
        bus.publish_blocking(message("x", &number.to_string())).unwrap();
        if number % 10 == 0 {
            bus.flush(LONG).unwrap();
        }
    }
    bus.flush(LONG).unwrap();
    bus.close();
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    assert_eq!(reader.join().unwrap(), expected);
}
