//! Tests that every store must pass, against its twin in memory.

use super::store::BatchStore;
use crate::event::model::{EventId, Json, ServerId};
use crate::event::stream::model::PageBudget;
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::memory::MemoryStreams;
use crate::event::stream::store::{Contents, NewEvent, Policy, StreamLimits, StreamStore, StreamStoreError};
use crate::event::timestamp::Timestamp;
use crate::rng::Rng;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

pub(super) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

pub(super) fn sid(number: u64) -> StreamId {
    StreamId::from_number(number).unwrap()
}

pub(super) fn new_event(rng: &mut Rng, origin: EventId, now: i64) -> NewEvent {
    let stamp = rng.chance(0.4).then(|| at(rng.between(1, 150) as i64));
    let kind = ["A", "B", "C_C"][rng.below(3) as usize].parse().unwrap();
    let data = format!("\"{}\"", "x".repeat(rng.below(40) as usize));
    NewEvent { kind, data: Json::from_bytes(data.into()).unwrap(), time: at(now - rng.below(3) as i64), origin, stamp }
}

pub(super) fn refusal<T: Debug, E: Debug>(result: Result<T, StreamStoreError<E>>) -> Result<T, StreamStoreError<()>> {
    result.map_err(|refused| match refused {
        StreamStoreError::NotRegistered => StreamStoreError::NotRegistered,
        StreamStoreError::Lapsed(missed) => StreamStoreError::Lapsed(missed),
        StreamStoreError::Full => StreamStoreError::Full,
        StreamStoreError::Store(error) => panic!("{error:?}"),
    })
}

/// Runs random histories, step by step; some of them store several steps together. `open` returns the same store for
/// the same seed. `post` posts as an application does.
pub(super) fn check_beside_twin<S: BatchStore>(
    seeds: u64,
    open: impl Fn(u64) -> S,
    post: impl Fn(&mut S, u64, &StreamName, &StreamType, &Json),
) {
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let mut twin = MemoryStreams::default();
        let mut store = open(seed);
        let names: [StreamName; 2] = ["main", "other"].map(|name| name.parse().unwrap());
        let who: [Consumer; 3] = ["a:X", "a:Y", "b:X"].map(|name| name.parse().unwrap());
        let policy = if rng.chance(0.3) { Policy::Block } else { Policy::Lapse };
        let limits = StreamLimits {
            age: rng.chance(0.5).then(|| Duration::from_micros(rng.between(1, 60))),
            bytes: rng.chance(0.5).then(|| rng.between(50, 600)),
            policy,
        };
        let mut sessions = [1_u64, 1];
        for now in 0..150 {
            let (stream, consumer) = (&names[rng.below(2) as usize], &who[rng.below(3) as usize]);
            let id = sid(rng.below(80));
            match rng.below(16) {
                0..=3 => {
                    let mut events = Vec::new();
                    for _ in 0..rng.below(5) {
                        let server = rng.below(2);
                        // Some events were there already.
                        let session = &mut sessions[server as usize];
                        *session = (*session + 1).saturating_sub(3 * u64::from(rng.chance(0.1))).max(1);
                        let origin = EventId { server: ServerId(server as u32), session: *session, instance: 1 };
                        events.push(new_event(&mut rng, origin, now));
                    }
                    let position = EventId { server: ServerId(0), session: sessions[0], instance: rng.below(3) };
                    let covered = if rng.chance(0.3) { vec![position] } else { Vec::new() };
                    let expected = refusal(twin.add(stream, &events, &covered, &limits));
                    assert_eq!(refusal(store.add(stream, &events, &covered, &limits)), expected, "seed {seed}");
                    assert_eq!(store.covered(stream), Ok(twin.covered(stream).unwrap()), "seed {seed}");
                    for event in &events {
                        let expected = twin.find(stream, event.origin).unwrap();
                        assert_eq!(store.find(stream, event.origin), Ok(expected), "seed {seed}");
                    }
                }
                4 => {
                    let expected = twin.register(stream, consumer, at(now)).unwrap();
                    assert_eq!(store.register(stream, consumer, at(now)), Ok(expected), "seed {seed}");
                }
                5..=6 => {
                    let expected = refusal(twin.accept(stream, consumer, id, at(now)));
                    assert_eq!(refusal(store.accept(stream, consumer, id, at(now))), expected, "seed {seed}");
                }
                7 if rng.chance(0.3) => {
                    let expected = twin.reset(stream, consumer, id).unwrap();
                    assert_eq!(store.reset(stream, consumer, id), Ok(expected), "seed {seed}");
                }
                7 if rng.chance(0.3) => {
                    let expected = twin.remove(stream, consumer).unwrap();
                    assert_eq!(store.remove(stream, consumer), Ok(expected), "seed {seed}");
                }
                8 => {
                    let budget = 1 + rng.below(20) as usize;
                    let expected = twin.trim(stream, &limits, at(now), budget).unwrap();
                    assert_eq!(store.trim(stream, &limits, at(now), budget), Ok(expected), "seed {seed}");
                }
                10..=12 if rng.chance(0.5) => {
                    let kind = ["A", "B"][rng.below(2) as usize].parse().unwrap();
                    let data = Json::from_bytes("[1]".into()).unwrap();
                    twin.post(stream, &kind, &data);
                    store.commit().unwrap();
                    post(&mut store, seed, stream, &kind, &data);
                }
                10..=12 => {
                    let (server, count_max) = (ServerId(rng.below(2) as u32), rng.below(4) as usize);
                    let streams = &names[rng.below(2) as usize..];
                    let expected = twin.claim(server, streams, at(now), count_max).unwrap();
                    assert_eq!(store.claim(server, streams, at(now), count_max), Ok(expected), "seed {seed}");
                    let expected = twin.claimed(server, stream).unwrap();
                    assert_eq!(store.claimed(server, stream), Ok(expected), "seed {seed}");
                }
                13 if rng.chance(0.3) => {
                    let number = 1 + rng.below(20);
                    twin.quarantine(number, "why").unwrap();
                    store.quarantine(number, "why").unwrap();
                }
                9 if rng.chance(0.3) => {
                    store.commit().unwrap();
                    store.begin();
                }
                9 if rng.chance(0.3) => {
                    store.commit().unwrap();
                    drop(store);
                    store = open(seed);
                }
                _ => {
                    let want: BTreeSet<StreamType> =
                        ["A", "B", "D"].iter().filter(|_| rng.chance(0.5)).map(|kind| kind.parse().unwrap()).collect();
                    let want = rng.chance(0.6).then_some(&want);
                    let room = PageBudget { events: 1 + rng.below(6) as usize, bytes: rng.below(400) as usize };
                    let expected = twin.read(stream, id, want, room).unwrap();
                    assert_eq!(store.read(stream, id, want, room), Ok(expected), "seed {seed}");
                }
            }
            assert_eq!(store.consumers(stream), Ok(twin.consumers(stream).unwrap()), "seed {seed}");
            assert_eq!(store.contents(stream), Ok(twin.contents(stream).unwrap()), "seed {seed}");
        }
    }
}

/// Checks batches; `open` returns the same store each time.
pub(super) fn check_batches<S: BatchStore>(open: impl Fn() -> S) {
    let (stream, who): (StreamName, Consumer) = ("main".parse().unwrap(), "a:X".parse().unwrap());
    let mut rng = Rng::new(1);
    let mut event = |session| new_event(&mut rng, EventId { server: ServerId(1), session, instance: 1 }, 5);
    let (one, two) = (event(1), event(2));
    let none = StreamLimits { bytes: Some(0), policy: Policy::Block, ..StreamLimits::default() };
    let mut store = open();
    store.begin();
    store.add(&stream, &[one], &[], &StreamLimits::default()).unwrap();
    assert_eq!(refusal(store.add(&stream, &[two], &[], &none)), Err(StreamStoreError::Full));
    assert_eq!(refusal(store.accept(&stream, &who, sid(1), at(1))), Err(StreamStoreError::NotRegistered));
    store.register(&stream, &who, at(1)).unwrap();
    let mut other = open();
    assert_eq!(other.contents(&stream), Ok(Contents::default()), "nothing is there before it is stored");
    store.commit().unwrap();
    assert_eq!(other.contents(&stream).unwrap().last, sid(1));
    assert_eq!(other.consumers(&stream).unwrap().len(), 1);
    // A batch that was not committed leaves no trace.
    store.begin();
    store.remove(&stream, &who).unwrap();
    drop(store);
    assert_eq!(other.consumers(&stream).unwrap().len(), 1);
}
