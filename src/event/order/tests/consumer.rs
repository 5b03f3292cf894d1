//! Tests of the consumer, effect by effect and against a twin that examines all events received so far.

use crate::event::order::consumer::{ConsumerEffect, OrderConsumer, Settings};
use crate::event::order::name::Object;
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::worker::OrderedEvent;
use crate::rng::Rng;
use bytes::Bytes;
use std::num::NonZeroUsize;

const SETTINGS: Settings = Settings {
    objects_max: NonZeroUsize::new(100).unwrap(),
    buffered_max: 1000,
    buffered_bytes_max: 1 << 20,
    fetch_delay_ms: 5,
    gap_timeout_ms: 50,
};

fn object(name: &str) -> Object {
    Object::new(name).unwrap()
}

/// Returns the stamp with this count in generation `count / 1000 + 1`.
fn stamp(count: u64) -> OrderStamp {
    let generation = Generation::new(u32::try_from(count / 1000 + 1).unwrap()).unwrap();
    OrderStamp::from_number(OrderStamp::begin(generation).number() + count).unwrap()
}

/// Parses an event. `x 7<5 @3` is event 7 of object x, with prev 5, sent by token 3; `x 7` is the first event, of token
/// 1.
fn event(text: &str) -> OrderedEvent {
    let (name, rest) = text.split_once(' ').unwrap();
    let (ids, token) = rest.split_once(" @").unwrap_or((rest, "1"));
    let (id, prev) = ids.split_once('<').map_or((ids, None), |(id, prev)| (id, Some(prev)));
    let number = |text: &str| stamp(text.parse().unwrap());
    let payload = Bytes::copy_from_slice(text.as_bytes());
    OrderedEvent { object: object(name), id: number(id), prev: prev.map(number), token: number(token), payload }
}

/// Returns a short text for an effect.
fn describe(effect: &ConsumerEffect) -> String {
    let count = |stamp: &OrderStamp| stamp.count();
    match effect {
        ConsumerEffect::Deliver(event) => format!("{} {}", event.object, count(&event.id)),
        ConsumerEffect::Fetch { object, id, until_ms } => format!("{object} fetch {} until {until_ms}", count(id)),
        ConsumerEffect::Missing { object, id, after } => {
            format!("{object} missing {} after {}", count(id), count(after))
        }
        ConsumerEffect::Refused { object, id, token } => format!("{object} refused {} @{}", count(id), count(token)),
        ConsumerEffect::LostGeneration { object, known, found } => format!("{object} lost {known} found {found}"),
        ConsumerEffect::Rewound { object, id, prev, last } => {
            format!("{object} rewound {} to {:?} from {}", count(id), prev.as_ref().map(count), count(last))
        }
        ConsumerEffect::Evicted { object, last } => format!("{object} forgotten at {}", count(last)),
    }
}

/// Runs a story: `30: x 7<5` is an event at 30 ms, `30: unrecoverable x 5` reports that this one cannot be fetched,
/// `30:` is time that passes.
fn check(settings: &Settings, story: &[(&str, &[&str])]) {
    let mut consumer = OrderConsumer::new(settings.clone(), 0);
    for (line, expected) in story {
        let (now_ms, input) = line.split_once(':').unwrap();
        let (now_ms, mut out) = (now_ms.parse().unwrap(), Vec::new());
        match input.trim().strip_prefix("unrecoverable ").map(|rest| rest.split_once(' ').unwrap()) {
            Some((name, id)) => consumer.on_unrecoverable(now_ms, &object(name), stamp(id.parse().unwrap()), &mut out),
            None if input.is_empty() => consumer.on_deadline(now_ms, &mut out),
            None => consumer.on_event(now_ms, event(input.trim()), &mut out),
        }
        assert_eq!(out.iter().map(describe).collect::<Vec<_>>(), *expected, "{line}");
    }
    assert_eq!((consumer.buffered(), consumer.deadline_ms()), (0, None));
}

#[test]
fn event_waits_for_its_predecessor() {
    check(
        &SETTINGS,
        &[
            ("0: x 5<3", &["x 5"]),
            ("0: x 3", &[]),
            ("1: x 9<7", &[]),
            ("1: x 12<9", &[]),
            ("1: y 8", &["y 8"]),
            ("1: x 9<7", &[]),
            ("2: x 7<5", &["x 7", "x 9", "x 12"]),
            ("3: x 7<5", &[]),
            ("3: x 12<9", &[]),
        ],
    );
}

#[test]
fn missing_event_is_fetched_and_then_abandoned() {
    check(
        &SETTINGS,
        &[
            ("0: x 5<3", &["x 5"]),
            ("1: x 9<7", &[]),
            ("5:", &[]),
            ("6:", &["x fetch 7 until 51"]),
            ("50:", &[]),
            ("51:", &["x missing 7 after 5", "x 9"]),
            ("52: x 7<5", &[]),
            // Another event before the fetched one is missing, and cannot be fetched.
            ("60: x 20<18", &[]),
            ("65:", &["x fetch 18 until 110"]),
            ("70: x 18<16", &[]),
            ("75:", &["x fetch 16 until 120"]),
            ("76: unrecoverable x 18", &[]),
            ("76: unrecoverable y 18", &[]),
            ("76: unrecoverable x 16", &["x missing 16 after 9", "x 18", "x 20"]),
        ],
    );
}

#[test]
fn only_events_of_earlier_owners_are_refused() {
    check(
        &SETTINGS,
        &[
            ("0: x 5<3 @2", &["x 5"]),
            ("1: x 12<9 @10", &[]),
            // The previous owner stamped it while it was the owner.
            ("1: x 9<5 @2", &["x 9", "x 12"]),
            // The previous owner stamped it after the next owner began.
            ("2: x 14<12 @2", &["x refused 14 @2"]),
            ("3: x 15<12 @10", &["x 15"]),
            // An event that another owner had stamped is sent again.
            ("4: x 16<15 @20", &["x 16"]),
            ("4: x 16<15 @10", &[]),
        ],
    );
}

#[test]
fn lost_generation_is_reported() {
    check(
        &SETTINGS,
        &[
            ("0: x 5<3", &["x 5"]),
            ("0: x 7<5", &["x 7"]),
            ("1: x 1003<5 @1002", &["x lost 1 found 2", "x rewound 1003 to Some(5) from 7", "x 1003"]),
            ("2: x 1004<1003 @1002", &["x 1004"]),
            ("3: x 2004 @2002", &["x lost 2 found 3", "x rewound 2004 to None from 1004", "x 2004"]),
        ],
    );
}

#[test]
fn memory_of_the_consumer_is_limited() {
    let objects_max = NonZeroUsize::new(2).unwrap();
    check(
        &Settings { objects_max, buffered_max: 2, ..SETTINGS },
        &[
            ("0: x 5", &["x 5"]),
            ("0: y 6", &["y 6"]),
            ("1: x 9<7", &[]),
            ("2: y 20<18", &[]),
            ("3: y 22<21", &["x missing 7 after 5", "x 9"]),
            ("4: x 10<9", &["x 10"]),
            (
                "5: z 30",
                &["y missing 18 after 6", "y 20", "y missing 21 after 20", "y 22", "y forgotten at 22", "z 30"],
            ),
            ("6: y 22<21", &["x forgotten at 10", "y 22"]),
        ],
    );
    let buffered_bytes_max = "x 9<7".len();
    check(
        &Settings { buffered_bytes_max, ..SETTINGS },
        &[("0: x 5", &["x 5"]), ("1: x 9<7", &[]), ("2: x 11<9", &["x missing 7 after 5", "x 9", "x 11"])],
    );
}

/// A consumer without an index: it keeps all events received, and scans them again for each step.
struct Twin {
    received: Vec<OrderedEvent>,
    last: Option<OrderStamp>,
    gap: Option<(OrderStamp, u64)>,
    is_requested: bool,
}

impl Twin {
    /// Delivers events and reports gaps. Deadlines count only if `is_over` is true, so that no other event arrives at
    /// this time.
    fn settle(&mut self, now_ms: u64, is_over: bool, out: &mut Vec<String>) {
        loop {
            let waiting = self.received.iter().filter(|event| self.last.is_none_or(|last| last < event.id));
            let Some(first) = waiting.min_by_key(|event| event.id) else { break self.gap = None };
            if self.last.is_none() || first.prev <= self.last {
                out.push(format!("{} {}", first.object, first.id.count()));
                self.last = Some(first.id);
                continue;
            }
            let id = first.prev.unwrap();
            if self.gap.is_none_or(|(gap, _)| gap != id) {
                (self.gap, self.is_requested) = (Some((id, now_ms)), false);
            }
            let (_, since_ms) = self.gap.unwrap();
            if !is_over {
                break;
            }
            if now_ms < since_ms + SETTINGS.gap_timeout_ms {
                if since_ms + SETTINGS.fetch_delay_ms <= now_ms && !self.is_requested {
                    self.is_requested = true;
                    out.push(format!(
                        "{} fetch {} until {}",
                        first.object,
                        id.count(),
                        since_ms + SETTINGS.gap_timeout_ms
                    ));
                }
                break;
            }
            out.push(format!("{} missing {} after {}", first.object, id.count(), self.last.unwrap().count()));
            self.last = Some(id);
        }
    }
}

/// Draws events of one object: a chain with changing owners. Some events are lost, duplicated or late.
fn draw(rng: &mut Rng, name: &str) -> (Vec<OrderedEvent>, Vec<(u64, OrderedEvent)>) {
    let (mut id, mut token, mut prev) = (1, 1, None);
    let mut chain = Vec::new();
    for _ in 0..rng.between(1, 12) {
        if rng.chance(0.2) {
            (token, id) = (id + 1, id + 1);
        }
        id += rng.between(1, 3);
        let before = prev.map_or(String::new(), |prev| format!("<{prev}"));
        chain.push(event(&format!("{name} {id}{before} @{token}")));
        prev = Some(id);
    }
    let mut arrivals = Vec::new();
    for (index, event) in (0..).zip(&chain) {
        for _ in 0..[0, 1, 1, 1, 1, 2][rng.below(6) as usize] {
            let delay = if rng.chance(0.3) { rng.below(80) } else { 0 };
            arrivals.push((index * 4 + delay, event.clone()));
        }
    }
    arrivals.sort_by_key(|(at_ms, _)| *at_ms);
    (chain, arrivals)
}

#[test]
fn consumer_equals_its_reference_model() {
    let mut rng = Rng::new(1);
    let (mut missing, mut processed) = (0, 0);
    // The sums below show that enough events are missing and processed.
    for round in 0..1_000 {
        let drawn = [draw(&mut rng, "x"), draw(&mut rng, "y")];
        let mut consumer = OrderConsumer::new(SETTINGS, round);
        let mut twins = [0, 1].map(|_| Twin { received: Vec::new(), last: None, gap: None, is_requested: false });
        let mut expected = [Vec::new(), Vec::new()];
        for now_ms in 0..1_000 {
            let mut out = Vec::new();
            for (index, (_, arrivals)) in drawn.iter().enumerate() {
                for (_, event) in arrivals.iter().filter(|(at_ms, _)| *at_ms == now_ms) {
                    consumer.on_event(now_ms, event.clone(), &mut out);
                    twins[index].received.push(event.clone());
                    twins[index].settle(now_ms, false, &mut expected[index]);
                }
            }
            consumer.on_deadline(now_ms, &mut out);
            let mut found = [Vec::new(), Vec::new()];
            for effect in out.iter().map(describe) {
                found[usize::from(effect.starts_with('y'))].push(effect);
            }
            for (index, twin) in twins.iter_mut().enumerate() {
                twin.settle(now_ms, true, &mut expected[index]);
                assert_eq!(found[index], expected[index], "round {round}, {now_ms} ms: {drawn:?}");
                missing += expected[index].iter().filter(|text| text.contains("missing")).count();
                processed += expected[index].iter().filter(|text| !text.contains(['m', 'f'])).count();
                expected[index].clear();
            }
        }
        assert_eq!(consumer.buffered(), 0, "round {round}");
        for (chain, arrivals) in &drawn {
            let last = arrivals.iter().map(|(_, event)| event.id).max();
            assert_eq!(consumer.last(&chain[0].object), last, "round {round}");
        }
    }
    assert!(333 < missing && 3_333 < processed, "{missing} {processed}");
}
