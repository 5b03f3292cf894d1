//! Batches: messages that are settled together are sent, numbered and retained like those that are settled one by one.

use super::*;
use crate::message::Headers;
use crate::subject::Subject;
use crate::wire::Run;
use bytes::BytesMut;

fn twins(settings: impl Fn() -> Settings) {
    let mut deliveries = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut together = Host::of(settings(), 1, 1000);
        let mut alone = Host::of(settings(), 1, 1000);
        let subjects: Vec<Subject> = ["a", "a.b", "b.c.d"].iter().map(|text| text.parse().unwrap()).collect();
        let mut millis = 1000;
        let mut subject = &subjects[0];
        let (mut client, mut delivered) = (CLIENT, [Vec::new(), Vec::new()]);
        for _ in 0..400 {
            if rng.chance(0.1) {
                subject = &subjects[rng.below(3) as usize];
            }
            if rng.chance(0.1) {
                client = ClientId(1 + rng.below(2) as u32);
            }
            match rng.below(60) {
                4 | 5 => {
                    let is_on = rng.chance(0.5);
                    both(&mut together, &mut alone, |host| {
                        let request = ClientRequest::Echo(is_on);
                        host.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
                    });
                }
                0 => millis += rng.below(2000),
                1 => both(&mut together, &mut alone, |host| host.peer.handle(at(millis), Input::Tick)),
                2 => both(&mut together, &mut alone, |host| host.subscribe_as(millis, 1, "a.>", DeliveryMode::Live)),
                3 => both(&mut together, &mut alone, |host| {
                    let request = ClientRequest::Unsubscribe { sub: SubId(1) };
                    host.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
                }),
                _ => {
                    let bytes = [rng.below(100), rng.below(300), rng.below(2000)][rng.below(3) as usize];
                    let mut message = Message::new(subject.clone(), vec![rng.below(256) as u8; bytes as usize]);
                    if rng.chance(0.03) {
                        message.headers = Headers::from_pairs([("k", "v")]).unwrap();
                    }
                    if rng.chance(0.03) {
                        message.reply = Some(subjects[0].clone());
                    }
                    if message.reply.is_none() && message.headers.is_empty() && rng.chance(0.3) {
                        let count = 1 + rng.below(5) as u16;
                        publish_run(&mut together, at(millis), client, &message, count);
                        for _ in 1..count {
                            alone.peer.publish(at(millis), client, &message).unwrap();
                            alone.peer.settle();
                        }
                    } else if message.reply.is_none() && message.headers.is_empty() && rng.chance(0.5) {
                        together.peer.publish_payload(at(millis), client, subject, &message.payload).unwrap();
                    } else {
                        together.peer.publish(at(millis), client, &message).unwrap();
                    }
                    alone.peer.publish(at(millis), client, &message).unwrap();
                    alone.peer.settle();
                }
            }
            let of_both = effects(&mut together, &mut alone, &mut delivered);
            assert_eq!(of_both[0], of_both[1], "seed {seed}");
        }
        let rows = [&mut together, &mut alone].map(|host| host.peer.history_rows(&">".parse().unwrap(), 9));
        assert_eq!(rows[0], rows[1], "seed {seed}");
        effects(&mut together, &mut alone, &mut delivered);
        assert_eq!(delivered[0], delivered[1], "seed {seed}");
        deliveries += delivered[0].len();
        let reports = |host: &Host| (host.peer.seqno_rows(9), format!("{:?}", host.peer.counters()));
        assert_eq!(reports(&together), reports(&alone), "seed {seed}");
        for subject in &subjects {
            let all = |host: &Host| {
                let retained = host.peer.publication.history.retained(subject.as_bytes())?;
                Some((0..retained.len()).map(|index| retained.event_at(index).event(subject)).collect::<Vec<_>>())
            };
            assert_eq!(all(&together), all(&alone), "seed {seed}");
        }
    }
    assert_ne!(deliveries, 0);
}

/// Publishes a message a number of times, as a run where the peer suppresses it.
fn publish_run(host: &mut Host, now: ClockReading, client: ClientId, message: &Message, count: u16) {
    let Message { subject, payload, .. } = message;
    if !host.peer.suppresses(now, client, subject, payload.len()) {
        (0..count).for_each(|_| host.peer.publish_payload(now, client, subject, payload).unwrap());
        return;
    }
    let mut entries = BytesMut::new();
    for _ in 0..count {
        wire::put_varint(&mut entries, payload.len());
        entries.extend_from_slice(payload);
    }
    host.peer.publish_suppressed(Run::of_packed(subject.clone(), None, count, entries.freeze()));
}

/// Returns the effects of both hosts, but for deliveries, which it collects one by one because they may come later
/// together.
fn effects(together: &mut Host, alone: &mut Host, delivered: &mut [Vec<(Targets, Delivery)>; 2]) -> [Vec<Effect>; 2] {
    let mut hosts = [together, alone].into_iter().zip(delivered);
    [(); 2].map(|()| {
        let (host, delivered) = hosts.next().expect("there are two");
        let mut others = Vec::new();
        while let Some(effect) = host.peer.poll_effect() {
            match effect {
                Effect::Deliver { to, deliveries } => {
                    delivered.extend(deliveries.map(|delivery| (to.clone(), delivery)));
                }
                effect => others.push(effect),
            }
        }
        others
    })
}

fn both(together: &mut Host, alone: &mut Host, work: impl Fn(&mut Host)) {
    work(together);
    work(alone);
}

#[test]
fn batch_equals_single_publishes() {
    twins(|| settings("A.test"));
}

#[test]
fn suppressed_run_equals_single_publishes() {
    twins(|| Settings { suppresses: true, ..settings("A.test") });
    let mut host = Host::of(Settings { suppresses: true, message_bytes_max: 100, ..settings("A.test") }, 1, 0);
    let subject: Subject = "a".parse().unwrap();
    let suppresses = |host: &mut Host, millis, text: &str, bytes| {
        host.peer.suppresses(at(millis), CLIENT, &text.parse().unwrap(), bytes)
    };
    host.peer.publish_payload(at(10), CLIENT, &subject, b"first").unwrap();
    assert!(!suppresses(&mut host, 10, "a", 9), "a peer that has just started sends everything");
    host.peer.handle(at(10_000), Input::Tick);
    host.peer.publish_payload(at(10_000), CLIENT, &subject, b"second").unwrap();
    assert!(suppresses(&mut host, 10_000, "a", 100));
    assert!(!suppresses(&mut host, 10_000, "a", 101), "too large");
    assert!(!suppresses(&mut host, 10_000, "b", 9), "another subject");
    host.subscribe(10_000, "a");
    assert!(!suppresses(&mut host, 10_000, "a", 9), "the route has changed");
    host.peer.publish_payload(at(10_000), CLIENT, &subject, b"third").unwrap();
    assert!(suppresses(&mut host, 10_000, "a", 9));
    host.peer.publish_suppressed(Run::of_packed(subject, None, 2, Bytes::from_static(b"\x01x\x02yz")));
    let counters = host.peer.counters();
    assert_eq!((counters.messages_published, counters.messages_suppressed, counters.messages_local), (5, 4, 3));
}

#[test]
fn batch_equals_single_publishes_with_short_frames() {
    twins(|| Settings { frame_messages_max: 7, ..settings("A.test") });
}

#[test]
fn batch_equals_single_publishes_with_long_datagrams() {
    twins(|| Settings { datagram_bytes_max: 8972, ..settings("A.test") });
}

/// The messages differ in subject, size and flags, so some are in batches, some in fragments, and some alone.
#[test]
fn history_reads_published_messages_in_sent_datagrams() {
    let mut referred = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let datagram_bytes_max = [1400, 5000, 8972, 32_600][rng.below(4) as usize];
        let mut settings = Settings { datagram_bytes_max, ..settings("A.test") };
        settings.recovery.history.bytes_max = 8 << 20;
        settings.recovery.history.total_bytes_max = 16 << 20;
        let mut host = Host::of(settings, 1, 1000);
        let subjects: Vec<Subject> = ["a", "a.b"].iter().map(|text| text.parse().unwrap()).collect();
        let mut published = [Vec::new(), Vec::new()];
        let (mut sent, mut index) = (Vec::new(), 0);
        for step in 0..200_u32 {
            index = if rng.chance(0.1) { rng.below(2) as usize } else { index };
            let bytes = [rng.below(100), rng.below(2000), rng.below(datagram_bytes_max as u64 + 500)];
            let mut payload = step.to_be_bytes().to_vec();
            payload.resize_with(4 + bytes[rng.below(3) as usize] as usize, || rng.next_u32() as u8);
            let mut message = Message::new(subjects[index].clone(), payload);
            message.reply = rng.chance(0.1).then(|| subjects[0].clone());
            host.peer.publish(at(1000), CLIENT, &message).unwrap();
            published[index].push(message);
            match rng.below(40) {
                0 => host.peer.handle(at(1000), Input::Tick),
                1 => assert_eq!(host.peer.history_rows(&">".parse().unwrap(), 9).1, 0),
                _ => {}
            }
        }
        host.peer.history_rows(&">".parse().unwrap(), 9);
        while let Some(effect) = host.peer.poll_effect() {
            if let Effect::Multicast(datagram) = effect {
                sent.push(datagram);
            }
        }
        for (subject, published) in subjects.iter().zip(&published) {
            let Some(retained) = host.peer.publication.history.retained(subject.as_bytes()) else {
                assert!(published.is_empty(), "seed {seed}");
                continue;
            };
            assert_eq!(retained.len(), published.len().min(100), "seed {seed}");
            for (index, message) in published[published.len() - retained.len()..].iter().enumerate() {
                let event = retained.event_at(index);
                assert!(event.event(subject).message == *message, "seed {seed} {subject} {index}");
                let at = event.payload.as_ptr();
                let is_sent = sent.iter().any(|datagram| datagram.as_ptr_range().contains(&at));
                assert!(!is_sent || 4096 <= datagram_bytes_max);
                referred += usize::from(is_sent);
            }
        }
    }
    assert!(100 < referred, "{referred} payloads lie in sent datagrams");
}
