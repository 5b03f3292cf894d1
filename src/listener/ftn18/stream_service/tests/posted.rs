//! Tests of posted events under failures, of fetched events for live consumers, and of peers that share a store.

use super::*;
use crate::event::refusal::{EventRefusal, EventRefusalKind};

fn main_stream() -> StreamName {
    "main".parse().unwrap()
}

impl World {
    fn post(&mut self, data: &str) {
        self.store.post(&main_stream(), &"A".parse().unwrap(), &json(data));
    }

    /// Returns the data of all events in the stream.
    fn all(&mut self) -> Vec<String> {
        let room = PageBudget { events: usize::MAX, bytes: usize::MAX };
        let page = self.store.read(&main_stream(), StreamId::START, None, room).unwrap();
        page.events.iter().map(|event| event.data.as_str().to_owned()).collect()
    }

    /// Starts another run of the peer with the stored state.
    fn restart(&mut self) {
        let held = self.journal.iter().rev().find(|event| event.id.server == OWN).map(|event| event.id);
        self.stream_service =
            StreamService::new(&mut self.store, settings(StreamLimits::default()), OWN, held.as_slice()).unwrap();
        self.stream_service.on_events_added(OWN);
    }
}

#[test]
fn posted_event_is_added_to_its_stream_once() {
    let mut world = World::new(StreamLimits::default());
    world.post("1");
    world.later(20);
    assert_eq!(world.all(), ["1"]);
    world.later(20);
    assert_eq!(world.store.claimed(OWN, &main_stream()), Ok(Vec::new()));
    assert_eq!(world.add(0, "A", "2"), 2);
    world.post("3");
    world.post("3");
    world.restart();
    world.later(20);
    assert_eq!(world.all(), ["1", "2", "3", "3"]);
    let stamps: Vec<Timestamp> = world.journal.iter().filter_map(|event| event.source_timestamp).collect();
    assert!(stamps.len() == 3 && stamps.is_sorted_by(|one, next| one < next), "{stamps:?}");
}

#[test]
fn only_an_invalid_posted_event_is_quarantined() {
    let mut world = World::new(StreamLimits::default());
    world.post("1");
    world.post("2");
    let refusals = [EventRefusalKind::Invalid, EventRefusalKind::Busy, EventRefusalKind::Invalid]
        .map(|kind| EventRefusal { kind, text: "it is too large".into() });
    let run = |world: &mut World| -> Vec<StreamEffect> {
        world.stream_service.run(&mut world.store, world.now);
        std::iter::from_fn(|| world.stream_service.poll_effect()).collect()
    };
    for (refusal, (count, rests)) in refusals.into_iter().zip([(2, false), (1, false), (1, true)]) {
        let mut effects = run(&mut world);
        if rests {
            assert_eq!(effects, [], "a journal that is busy is left alone for a while");
            world.now = ClockReading { instant: world.now.instant + RETRY_TIME, ..world.now };
            effects = run(&mut world);
        }
        let [StreamEffect::Register { number, registrations }] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!(registrations.len(), count, "they are a session, and then each is one");
        world.stream_service.on_registered(*number, Err(refusal));
    }
    world.later(5_000);
    let is_reported = |effect: &StreamEffect| matches!(effect, StreamEffect::Notice(StreamNotice::Quarantined(1, reason)) if reason == "it is too large");
    assert!(world.pending_effects.iter().any(is_reported), "{:?}", world.pending_effects);
    world.later(1000);
    assert_eq!(world.all(), ["2"]);
    world.restart();
    world.later(1000);
    assert_eq!(world.all(), ["2"]);
}

#[test]
fn full_stream_claims_no_posted_event() {
    let mut world = World::new(StreamLimits { bytes: Some(1), policy: Policy::Block, ..StreamLimits::default() });
    world.register("C").unwrap();
    for data in ["1", "2", "3"] {
        world.post(data);
        world.later(20);
    }
    assert_eq!((world.all(), world.journal.len()), (vec!["1".to_owned()], 1));
    for id in 1..=3 {
        world.poll(0, "C", Some(id), None);
        world.later(2000);
    }
    assert_eq!(world.journal.len(), 3);
}

/// Runs a history with failures: turns whose commit fails or only seems to fail, refused or lost requests, and ends of
/// the peer at any step. Returns the number of posted events.
fn posts(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let mut world = World::new(StreamLimits::default());
    let (mut posted, mut requests, mut now) = (0, Vec::new(), 0);
    for _ in 0..200 {
        now += rng.below(60);
        world.now = at(now);
        if rng.chance(0.3) {
            world.post(&posted.to_string());
            posted += 1;
        }
        let before = world.store.clone();
        if let Some(at) = (!requests.is_empty()).then(|| rng.below(requests.len() as u64) as usize) {
            match requests.remove(at) {
                StreamEffect::Register { number, .. } if rng.chance(0.2) => {
                    world.stream_service.on_registered(number, Err(EventRefusal::busy()));
                }
                StreamEffect::Register { number, registrations } => {
                    let id = world.append_session(registrations);
                    world.stream_service.on_registered(number, Ok(id));
                }
                StreamEffect::Find { stream, after } => world.find(stream, after),
                other => panic!("{other:?}"),
            }
        }
        world.stream_service.run(&mut world.store, world.now);
        if rng.chance(0.15) {
            if rng.chance(0.7) {
                world.store = before;
            }
            world.stream_service.roll_back(&mut world.store, "the disk is full").unwrap();
        }
        let is_request =
            |effect: &StreamEffect| matches!(effect, StreamEffect::Register { .. } | StreamEffect::Find { .. });
        requests.extend(std::iter::from_fn(|| world.stream_service.poll_effect()).filter(is_request));
        if rng.chance(0.05) {
            requests.clear();
            world.restart();
        }
    }
    world.restart();
    (0..20).for_each(|_| world.later(100));
    let expected: Vec<String> = (0..posted).map(|number| number.to_string()).collect();
    assert_eq!(world.all(), expected, "seed {seed}");
    let [main, other] = ["main", "all"].map(|name| world.store.contents(&name.parse().unwrap()).unwrap().events);
    assert_eq!(main, other, "seed {seed}: a stream that holds another one");
    posted
}

#[test]
fn posted_events_keep_their_order_through_any_failure() {
    // Each seed has 200 turns. One in twenty ends the peer, and about one in seven fails to commit.
    let posted: usize = (0..120).map(posts).sum();
    assert!(3_000 < posted, "{posted}");
}

#[test]
fn live_consumer_sees_a_gap_for_lost_events() {
    let mut world = World::new(StreamLimits::default());
    let other = ServerId(9);
    // The event was registered long before its server was known here.
    let old = world.append(other, "main/A", None);
    world.stream_service.on_fetched(&[FetchedEvent { id: old, is_lost: false }]);
    world.now = at(5_000);
    world.ready(1, "LIVE", Some(&["A"]));
    assert_eq!(world.groups(), []);
    // The event was registered just now, and fetched because it was not announced.
    let new = world.append(other, "main/A", None);
    world.stream_service.on_fetched(&[FetchedEvent { id: new, is_lost: false }]);
    world.run();
    assert_eq!(world.groups(), [(ConnectionId(1), PushId(0), 0, vec![2])]);
    world.stream_service.on_answer(world.now.instant, ConnectionId(1), PushId(0), 0, true);
    // Events were lost on the bus: a number is missing. Losses of other types do not concern this consumer.
    let lost = [world.append(other, "main/A", None), world.append(other, "main/A", None)];
    world.stream_service.on_fetched(&lost.map(|id| FetchedEvent { id, is_lost: true }));
    world.append(other, "main/A", None);
    world.run();
    assert_eq!(world.groups(), [(ConnectionId(1), PushId(0), 2, vec![5])]);
    world.stream_service.on_answer(world.now.instant, ConnectionId(1), PushId(0), 2, true);
    let unwanted = world.append(other, "main/B", None);
    world.stream_service.on_fetched(&[FetchedEvent { id: unwanted, is_lost: true }]);
    world.append(other, "main/A", None);
    world.run();
    assert_eq!(world.groups(), [(ConnectionId(1), PushId(0), 3, vec![7])]);
    assert!(world.stream_service.fetched.is_empty());
    // A reliable consumer gets all events.
    world.register("C").unwrap();
    assert_eq!(world.poll(0, "C", None, None).len(), 7);
}

/// Two peers whose journals hold the same events, and whose streams are in one store.
#[test]
fn event_in_a_shared_store_is_fed_once() {
    let mut world = World::new(StreamLimits::default());
    let shared = |server, store: &mut MemoryStreams| {
        StreamService::new(store, Settings { is_shared: true, ..settings(StreamLimits::default()) }, server, &[])
            .unwrap()
    };
    world.stream_service = shared(OWN, &mut world.store);
    world.register("C").unwrap();
    world.ready(1, "C", None);
    world.ready(2, "LIVE", Some(&["A"]));
    let other = ServerId(9);
    let mut second = shared(other, &mut world.store);
    let feed = |second: &mut StreamService, world: &mut World| {
        second.run(&mut world.store, world.now);
        while let Some(effect) = second.poll_effect() {
            let StreamEffect::Find { stream, after } = effect else { panic!("{effect:?}") };
            let of = world.journal.iter().filter(|event| event.id.server == after.server && after < event.id);
            let found = Some(QueryPage { events: of.cloned().collect(), more_follows: false });
            second.on_found(&mut world.store, world.now.instant, stream, after, found);
        }
    };
    // The other peer feeds the event; this one has it in its journal, too.
    world.append(other, "main/A", None);
    second.on_events_added(other);
    feed(&mut second, &mut world);
    world.run();
    // This peer registers the event, and the other one feeds it before this one looks. The caller still gets the id.
    let what = Call::Add { kind: "A".parse().unwrap(), data: json("2") };
    world.stream_service.on_call(
        &mut world.store,
        world.now,
        CallOrigin { conn: ConnectionId(3), call: CallId(77) },
        0,
        "alice".parse().unwrap(),
        what,
    );
    let Some(StreamEffect::Register { number, registrations }) = world.stream_service.poll_effect() else {
        panic!("it is registered")
    };
    let id = world.append_session(registrations);
    second.on_events_added(OWN);
    feed(&mut second, &mut world);
    world.stream_service.on_registered(number, Ok(id));
    world.later(20);
    let added = Ok(CallResult::Added(StreamId::from_number(2).unwrap()));
    assert!(
        world.pending_effects.contains(&StreamEffect::CallCompleted {
            conn: ConnectionId(3),
            call: CallId(77),
            result: added
        }),
        "{:?}",
        world.pending_effects
    );
    // No other peer serves the events of this server.
    let alone = ServerId(5);
    world.append(alone, "main/A", None);
    world.later(20);
    world.later(20);
    let mut groups = world.groups();
    groups.sort_by_key(|(conn, _, seq, _)| (*conn, *seq));
    let ids = |conn| -> Vec<u64> {
        let of = groups.iter().filter(|(of, ..)| *of == ConnectionId(conn));
        of.flat_map(|(.., ids)| ids.iter().copied()).collect()
    };
    assert_eq!((ids(1), ids(2)), (vec![1, 2, 3], vec![1, 2, 3]), "{groups:?}");
    assert_eq!(world.all().len(), 3);
}

/// A turn is rolled back. Before the peer looks again, another one has fed the same event under another id.
#[test]
fn shared_store_confirms_the_stored_id() {
    for is_registered in [false, true] {
        let mut world = World::new(StreamLimits::default());
        world.stream_service = StreamService::new(
            &mut world.store,
            Settings { is_shared: true, ..settings(StreamLimits::default()) },
            OWN,
            &[],
        )
        .unwrap();
        let what = Call::Add { kind: "A".parse().unwrap(), data: json("1") };
        world.stream_service.on_call(
            &mut world.store,
            world.now,
            CallOrigin { conn: ConnectionId(3), call: CallId(77) },
            0,
            "alice".parse().unwrap(),
            what,
        );
        let Some(StreamEffect::Register { number, registrations }) = world.stream_service.poll_effect() else {
            panic!("registered")
        };
        let id = world.append_session(registrations);
        world.stream_service.run(&mut world.store, world.now);
        let finds: Vec<StreamEffect> = std::iter::from_fn(|| world.stream_service.poll_effect()).collect();
        if is_registered {
            world.stream_service.on_registered(number, Ok(id));
            // Another operation fails.
        } else {
            for find in finds {
                let StreamEffect::Find { stream, after } = find else { panic!("{find:?}") };
                world.find(stream, after);
            }
        }
        world.store = MemoryStreams::default();
        let main = main_stream();
        let event = |origin| NewEvent {
            kind: "A".parse().unwrap(),
            data: json("1"),
            time: Timestamp::MIN,
            origin,
            stamp: None,
        };
        let other = EventId { server: ServerId(9), session: 1, instance: 1 };
        world.store.add(&main, &[event(other), event(id)], &[], &StreamLimits::default()).unwrap();
        world.stream_service.roll_back(&mut world.store, "the connection is lost").unwrap();
        world.run();
        if !is_registered {
            world.stream_service.on_registered(number, Ok(id));
            world.run();
        }
        let added = Ok(CallResult::Added(StreamId::from_number(2).unwrap()));
        assert!(
            world.pending_effects.contains(&StreamEffect::CallCompleted {
                conn: ConnectionId(3),
                call: CallId(77),
                result: added
            }),
            "{:?}",
            world.pending_effects
        );
    }
}
