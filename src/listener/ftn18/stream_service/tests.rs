//! A stream service with a simulated journal, store and connections.

use super::consumer_limit::CONSUMERS_MAX;
use super::*;
use crate::event::follower::FetchedEvent;
use crate::event::model::{Event, Json, Payload, Registration};
use crate::event::store::QueryPage;
use crate::event::stream::model::{PASSED_MAX, StreamEvent};
use crate::event::stream::name::StreamName;
use crate::event::stream::store::memory::MemoryStreams;
use crate::event::stream::store::{MissedRange, NewEvent, Policy, StreamLimits};
use crate::listener::ftn18::call::{Call, Version};
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::session::{CallId, CallResult};
use crate::listener::stream::{ResetPosition, StreamOperation, StreamRequest};
use crate::rng::Rng;
use crate::time::WallTime;
use bytes::Bytes;

#[path = "tests/posted.rs"]
mod posted;

const OWN: ServerId = ServerId(1);
const ROOM: usize = 1 << 20;

/// A stream service and its environment.
pub(super) struct World {
    pub(super) stream_service: StreamService,
    pub(super) store: MemoryStreams,
    pub(super) now: ClockReading,
    /// The journals of servers: event types and ids, in the order of the ids.
    journal: Vec<Event>,
    /// Effects that the test has not examined yet.
    pub(super) pending_effects: Vec<StreamEffect>,
    calls: u64,
}

fn at(millis: u64) -> ClockReading {
    let wall = WallTime::from_nanos(1_000_000_000_000_000_000 + millis * 1_000_000);
    ClockReading { instant: Instant::ZERO + Duration::from_millis(millis), wall }
}

fn settings(limits: StreamLimits) -> Settings {
    let stream = |name: &str, types: &[&str]| StreamSettings {
        name: name.parse().unwrap(),
        types: types.iter().map(|text| text.parse().unwrap()).collect(),
        limits,
    };
    let streams = vec![stream("main", &[]), stream("all", &["main/*", "plant/?/?"])];
    Settings { streams, is_shared: false, groups_max: 4, delay: Duration::from_millis(10) }
}

impl World {
    pub(super) fn new(limits: StreamLimits) -> World {
        let mut store = MemoryStreams::default();
        let stream_service = StreamService::new(&mut store, settings(limits), OWN, &[]).unwrap();
        World { stream_service, store, now: at(0), journal: Vec::new(), pending_effects: Vec::new(), calls: 0 }
    }

    /// Runs all effects until none is left; registers and finds events as the peer does.
    pub(super) fn run(&mut self) {
        loop {
            self.stream_service.run(&mut self.store, self.now);
            let mut is_done = true;
            while let Some(effect) = self.stream_service.poll_effect() {
                is_done = false;
                match effect {
                    StreamEffect::Register { number, registrations } => {
                        let id = self.append_session(registrations);
                        self.stream_service.on_registered(number, Ok(id));
                    }
                    StreamEffect::Find { stream, after } => self.find(stream, after),
                    pending_effects => self.pending_effects.push(pending_effects),
                }
            }
            if is_done && self.now.instant < self.stream_service.deadline() {
                return;
            }
        }
    }

    fn find(&mut self, stream: usize, after: EventId) {
        let of = self.journal.iter().filter(|event| event.id.server == after.server && after < event.id);
        let mut events: Vec<Event> = of.cloned().collect();
        let more_follows = 3 < events.len();
        events.truncate(3);
        self.stream_service.on_found(
            &mut self.store,
            self.now.instant,
            stream,
            after,
            Some(QueryPage { events, more_follows }),
        );
    }

    /// Appends a session of this server to the journal. Returns the id of its first event.
    fn append_session(&mut self, registrations: Vec<Registration>) -> EventId {
        let mut first = None;
        for (registration, instance) in registrations.into_iter().zip(1..) {
            let id = self.append(OWN, &registration.event_type.to_string(), registration.payload);
            let first = *first.get_or_insert(id);
            let event = self.journal.last_mut().expect("just added");
            (event.id, event.source_timestamp) = (EventId { instance, ..first }, registration.source_timestamp);
        }
        first.expect("a session has events")
    }

    /// Appends an event to the journal, and reports that it has grown.
    fn append(&mut self, server: ServerId, event_type: &str, payload: Option<Payload>) -> EventId {
        let id = self.append_silently(server, event_type, payload);
        self.stream_service.on_events_added(server);
        id
    }

    fn append_silently(&mut self, server: ServerId, event_type: &str, payload: Option<Payload>) -> EventId {
        let last = self.journal.iter().filter(|event| event.id.server == server).map(|event| event.id.session).max();
        let id = EventId { server, session: 1 + last.unwrap_or(0), instance: 1 };
        self.journal.push(Event {
            id,
            event_type: event_type.parse().unwrap(),
            timestamp: Timestamp::from(self.now.wall),
            source_timestamp: None,
            payload,
        });
        id
    }

    /// Returns a number that no call or request has used.
    pub(super) fn number(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    fn call(&mut self, conn: u64, stream: usize, user: &str, what: Call) -> CallId {
        let call = CallId(self.number());
        let from = CallOrigin { conn: ConnectionId(conn), call };
        self.stream_service.on_call(&mut self.store, self.now, from, stream, user.parse().unwrap(), what);
        self.run();
        call
    }

    /// Returns the result of a call.
    #[track_caller]
    fn result(&mut self, stream: usize, what: Call) -> Result<CallResult, CallFault> {
        let call = self.call(1, stream, "alice", what);
        let is_it =
            |effect: &StreamEffect| matches!(effect, StreamEffect::CallCompleted { call: of, .. } if *of == call);
        let at = self.pending_effects.iter().position(is_it).expect("it is done");
        let StreamEffect::CallCompleted { result, .. } = self.pending_effects.remove(at) else {
            unreachable!("just found")
        };
        result
    }

    #[track_caller]
    fn add(&mut self, stream: usize, kind: &str, data: &str) -> u64 {
        match self.result(stream, Call::Add { kind: kind.parse().unwrap(), data: json(data) }) {
            Ok(CallResult::Added(id)) => id.number(),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn poll(&mut self, stream: usize, component: &str, last: Option<u64>, want: Option<&[&str]>) -> Vec<(u64, String)> {
        let what = Call::Poll {
            component: component.parse().unwrap(),
            last: last.map(|last| StreamId::from_number(last).unwrap()),
            want: want.map(wanted),
            answer_bytes_max: ROOM,
        };
        match self.result(stream, what) {
            Ok(CallResult::Events(events)) => rows(&events),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn register(&mut self, component: &str) -> Result<CallResult, CallFault> {
        self.result(0, Call::Register(component.parse().unwrap()))
    }

    pub(super) fn ready(&mut self, conn: u64, component: &str, want: Option<&[&str]>) {
        let want = want.map(wanted);
        let what = Call::Ready { component: component.parse().unwrap(), want, version: Version::V1_1 };
        self.call(conn, 0, "alice", what);
    }

    /// Returns the pushed groups: connection, push, number of the group, and ids of the events.
    pub(super) fn groups(&mut self) -> Vec<(ConnectionId, PushId, u32, Vec<u64>)> {
        let (groups, rest) = std::mem::take(&mut self.pending_effects)
            .into_iter()
            .partition(|pending_effects| matches!(pending_effects, StreamEffect::Group { .. }));
        self.pending_effects = rest;
        let groups: Vec<StreamEffect> = groups;
        let group = |effect| match effect {
            StreamEffect::Group { conn, push, seq, events, .. } => {
                (conn, push, seq, events.iter().map(|event| event.id.number()).collect())
            }
            other => unreachable!("{other:?}"),
        };
        groups.into_iter().map(group).collect()
    }

    pub(super) fn position(&mut self, component: &str) -> u64 {
        let rows = self.store.consumers(&"main".parse().unwrap()).unwrap();
        rows.iter().find(|row| row.consumer.component.as_str() == component).unwrap().position.number()
    }

    pub(super) fn later(&mut self, millis: u64) {
        self.now = ClockReading { instant: self.now.instant + Duration::from_millis(millis), ..at(0) };
        self.now.wall = at((self.now.instant.since(Instant::ZERO)).as_millis() as u64).wall;
        self.run();
    }
}

pub(super) fn json(text: &str) -> Json {
    Json::from_bytes(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

pub(super) fn wanted(kinds: &[&str]) -> BTreeSet<StreamType> {
    kinds.iter().map(|kind| kind.parse().unwrap()).collect()
}

fn rows(events: &[StreamEvent]) -> Vec<(u64, String)> {
    events.iter().map(|event| (event.id.number(), format!("{} {}", event.kind, event.data.as_str()))).collect()
}

fn strings(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(id, text)| (*id, (*text).to_owned())).collect()
}

#[track_caller]
fn is_fault(result: Result<CallResult, CallFault>, name: FaultName, part: &str) {
    let fault = result.expect_err("a fault");
    assert!(fault.name == name && fault.text.contains(part), "{fault:?}");
}

#[test]
fn added_event_is_polled_and_accepted() {
    let mut world = World::new(StreamLimits::default());
    is_fault(world.register("LIVE"), FaultName::LiveNotAllowed, "readyToReceive");
    let poll = Call::Poll { component: "C".parse().unwrap(), last: None, want: None, answer_bytes_max: ROOM };
    is_fault(world.result(0, poll), FaultName::NotRegistered, "alice:C is not registered");
    assert_eq!(world.register("C"), Ok(CallResult::Accepted));
    assert_eq!(world.poll(0, "C", None, None), []);
    let ids = [world.add(0, "A", "1"), world.add(0, "B", "{\"x\":1.50}"), world.add(0, "A", "null")];
    assert_eq!(ids, [1, 2, 3]);
    let all = strings(&[(1, "A 1"), (2, "B {\"x\":1.50}"), (3, "A null")]);
    // Reading alone accepts no event.
    assert_eq!(world.poll(0, "C", None, None), all);
    assert_eq!(world.poll(0, "C", None, None), all);
    assert_eq!(world.poll(0, "C", Some(1), None), all[1..]);
    assert_eq!(world.poll(0, "C", None, None), all[1..], "what was accepted stays so");
    // The position moves neither back nor beyond the end.
    assert_eq!(world.poll(0, "C", Some(99), None), []);
    assert_eq!(world.add(0, "A", "4"), 4);
    assert_eq!(world.poll(0, "C", Some(1), None), strings(&[(4, "A 4")]));
    // A live consumer is not registered, and gets the retained events.
    assert_eq!(world.poll(0, "LIVE", None, Some(&["B"])), all[1..2]);
    // Events that the only consumer has accepted are removed.
    world.later(2000);
    assert_eq!(world.poll(0, "LIVE", None, None), strings(&[(4, "A 4")]));
}

#[test]
fn unwanted_event_counts_as_delivered() {
    let mut world = World::new(StreamLimits::default());
    world.register("C").unwrap();
    for _ in 0..5 {
        world.add(0, "A", "1");
    }
    world.add(0, "B", "2");
    world.add(0, "A", "3");
    assert_eq!(world.poll(0, "C", None, Some(&["B"])), strings(&[(6, "B 2")]));
    assert_eq!(world.position("C"), 5);
    assert_eq!(world.poll(0, "C", Some(6), Some(&["B"])), []);
    assert_eq!(world.position("C"), 7);
}

#[test]
fn stream_holds_matching_events_of_all_servers() {
    let mut world = World::new(StreamLimits::default());
    world.add(0, "A", "1");
    let other = ServerId(9);
    world.append(other, "plant/7/LEVEL", Some(Payload::Json(json("5"))));
    world.append(other, "plant/7/level", Some(Payload::Json(json("6"))));
    world.append(other, "main/B", None);
    world.append(other, "main/deep/B", Some(Payload::Json(json("7"))));
    world.append(other, "main/PHOTO", Some(Payload::Binary { type_name: "jpeg".into(), bytes: Bytes::new() }));
    world.run();
    assert_eq!(world.add(1, "C", "8"), 5);
    assert_eq!(world.poll(0, "LIVE", None, None), strings(&[(1, "A 1"), (2, "B null")]));
    let all = strings(&[(1, "A 1"), (2, "LEVEL 5"), (3, "B null"), (4, "B 7"), (5, "C 8")]);
    assert_eq!(world.poll(1, "LIVE", None, None), all);
    // A restarted service continues from its position.
    let held: Vec<EventId> = world.journal.iter().map(|event| event.id).collect();
    world.stream_service = StreamService::new(&mut world.store, settings(StreamLimits::default()), OWN, &held).unwrap();
    world.run();
    assert_eq!(world.add(0, "A", "9"), 3);
    assert_eq!(world.poll(1, "LIVE", None, None).len(), 6);
}

#[test]
fn accepted_group_advances_the_position() {
    let mut world = World::new(StreamLimits::default());
    world.add(0, "A", "1");
    world.ready(1, "C", None);
    assert!(
        matches!(&world.pending_effects[..], [StreamEffect::CallCompleted { result: Err(fault), .. }] if fault.name == FaultName::NotRegistered)
    );
    world.pending_effects.clear();
    world.register("C").unwrap();
    world.add(0, "A", "2");
    world.ready(1, "C", Some(&["A"]));
    let (conn, push) = (ConnectionId(1), PushId(0));
    assert_eq!(world.groups(), [(conn, push, 0, vec![1, 2])], "a new consumer begins with what is kept");
    world.add(0, "B", "3");
    world.add(0, "A", "4");
    assert_eq!(world.groups(), []);
    world.later(10);
    assert_eq!(world.groups(), [(conn, push, 1, vec![4])]);
    assert_eq!(world.position("C"), 0);
    world.stream_service.on_answer(world.now.instant, conn, push, 0, true);
    world.run();
    assert_eq!(world.position("C"), 2);
    // Over another connection, the consumer gets again what it has not accepted, and the first connection gets nothing.
    world.ready(2, "C", None);
    assert!(world.pending_effects.contains(&StreamEffect::PushEnd { conn, push, is_closed: false }));
    assert_eq!(world.groups(), [(ConnectionId(2), PushId(1), 0, vec![3, 4])]);
    world.stream_service.on_answer(world.now.instant, conn, push, 1, true);
    world.run();
    assert_eq!(world.position("C"), 2);
    world.stream_service.on_close(ConnectionId(2));
    world.add(0, "A", "5");
    assert_eq!(world.groups(), []);
    // Polling continues where pushing ended.
    assert_eq!(world.poll(0, "C", Some(4), None), strings(&[(5, "A 5")]));
}

#[test]
fn live_consumer_receives_new_events_only() {
    let mut world = World::new(StreamLimits::default());
    world.add(0, "A", "1");
    world.ready(7, "LIVE", Some(&["A"]));
    assert_eq!(world.groups(), []);
    world.add(0, "B", "2");
    world.add(0, "A", "3");
    world.add(0, "A", "4");
    world.add(0, "A", "5");
    let (conn, push) = (ConnectionId(7), PushId(0));
    assert_eq!(world.groups(), [(conn, push, 0, vec![3]), (conn, push, 1, vec![4])]);
    world.stream_service.on_answer(world.now.instant, conn, push, 0, false);
    world.run();
    assert_eq!(world.groups(), [(conn, push, 2, vec![5])]);
}

#[test]
fn lapsed_consumer_receives_the_range_of_missed_events() {
    let limits = StreamLimits { bytes: Some(3), ..StreamLimits::default() };
    let mut world = World::new(limits);
    world.register("C").unwrap();
    world.ready(1, "C", None);
    (1..=9).for_each(|number| assert_eq!(world.add(0, "A", "1"), number));
    world.later(1000);
    // The first notice comes at once, and later ones once a second.
    let pending_effects: Vec<(StreamName, Consumer, MissedRange)> = std::mem::take(&mut world.pending_effects)
        .into_iter()
        .filter_map(|effect| match effect {
            StreamEffect::Notice(StreamNotice::Lapsed { stream, consumer, missed }) => Some((stream, consumer, missed)),
            effect => {
                world.pending_effects.push(effect);
                None
            }
        })
        .collect();
    let missed = |first: u64, last: u64| {
        let [first, last] = [first, last].map(|id| StreamId::from_number(id).unwrap());
        let count = 1 + last.number() - first.number();
        ("main".parse().unwrap(), "alice:C".parse().unwrap(), MissedRange { first, last, count })
    };
    assert_eq!(pending_effects, [missed(1, 1), missed(2, 6)]);
    assert!(world.pending_effects.contains(&StreamEffect::PushEnd {
        conn: ConnectionId(1),
        push: PushId(0),
        is_closed: true
    }));
    let poll = Call::Poll { component: "C".parse().unwrap(), last: None, want: None, answer_bytes_max: ROOM };
    is_fault(world.result(0, poll), FaultName::NotRegistered, "6 events, 1 to 6, were not accepted in time");
    world.register("C").unwrap();
    assert_eq!(world.poll(0, "C", None, None).len(), 3);
}

#[test]
fn full_stream_refuses_events_until_some_are_accepted() {
    let mut world = World::new(StreamLimits { bytes: Some(3), policy: Policy::Block, ..StreamLimits::default() });
    world.register("C").unwrap();
    (1..=3).for_each(|number| assert_eq!(world.add(0, "A", "1"), number));
    let add = || Call::Add { kind: "A".parse().unwrap(), data: json("1") };
    is_fault(world.result(0, add()), FaultName::DefenseRejected, "the stream main is full");
    // Events of other servers wait.
    world.append(ServerId(9), "main/A", None);
    world.later(1000);
    world.later(1000);
    assert_eq!(world.poll(0, "C", None, None).len(), 3);
    assert_eq!(world.poll(0, "C", Some(2), None).len(), 1);
    world.later(1000);
    world.later(1000);
    assert_eq!(world.poll(0, "C", Some(3), None), strings(&[(4, "A null")]));
}

#[test]
fn stored_events_are_fed_without_the_journal() {
    let mut world = World::new(StreamLimits::default());
    world.register("C").unwrap();
    world.append(OWN, "main/A", Some(Payload::Json(json("0"))));
    world.run();
    let first = world.append_silently(OWN, "main/A", Some(Payload::Json(json("1"))));
    world.append_silently(OWN, "main/A", Some(Payload::Json(json("2"))));
    let stored = |world: &World| world.journal.iter().filter(|event| first <= event.id).cloned().collect::<Vec<_>>();
    let events = stored(&world);
    world.stream_service.on_stored(&mut world.store, world.now.instant, &events);
    world.stream_service.run(&mut world.store, world.now);
    assert_eq!(world.stream_service.poll_effect(), None, "nothing is read back");
    assert_eq!(world.poll(0, "C", None, None), strings(&[(1, "A 0"), (2, "A 1"), (3, "A 2")]));
    // A stream that is behind, or already reads the journal, takes from it the events that it does not have yet.
    world.append(OWN, "main/A", Some(Payload::Json(json("3"))));
    let events = stored(&world);
    world.stream_service.on_stored(&mut world.store, world.now.instant, &events);
    world.append_silently(OWN, "main/A", Some(Payload::Json(json("4"))));
    world.run();
    let events = stored(&world);
    world.stream_service.on_stored(&mut world.store, world.now.instant, &events);
    let all: Vec<(u64, String)> = (0..5).map(|number| (number + 1, format!("A {number}"))).collect();
    assert_eq!(world.poll(0, "C", None, None), all);
    assert_eq!(world.poll(1, "LIVE", None, None), all);
}

/// The disk is full at the commit. No result is sent, and nothing is left out when the work is repeated.
#[test]
fn rolled_back_turn_is_repeated_without_a_gap() {
    let mut world = World::new(StreamLimits::default());
    world.register("C").unwrap();
    world.ready(1, "C", None);
    world.pending_effects.clear();
    let before = world.store.clone();
    for number in 0..5 {
        world.append(OWN, "main/A", Some(Payload::Json(json(&number.to_string()))));
    }
    world.stream_service.run(&mut world.store, world.now);
    let finds: Vec<StreamEffect> = std::iter::from_fn(|| world.stream_service.poll_effect()).collect();
    for find in finds {
        let StreamEffect::Find { stream, after } = find else { panic!("{find:?}") };
        world.find(stream, after);
    }
    world.stream_service.run(&mut world.store, world.now);
    world.store = before;
    world.stream_service.roll_back(&mut world.store, "the disk is full").unwrap();
    // A search of the journal issued before the rollback is still answered, and its answer is ignored.
    world.run();
    assert_eq!(world.groups(), []);
    assert_eq!(
        world.pending_effects,
        [StreamEffect::PushEnd { conn: ConnectionId(1), push: PushId(0), is_closed: true }]
    );
    world.pending_effects.clear();
    let all: Vec<(u64, String)> = (0..5).map(|number| (number + 1, format!("A {number}"))).collect();
    assert_eq!(world.poll(0, "C", None, None), all);
    assert_eq!(world.poll(1, "LIVE", None, None), all);
}

#[test]
fn consumer_beyond_the_maximum_is_refused() {
    let mut world = World::new(StreamLimits::default());
    let name = "main".parse().unwrap();
    for number in 0..CONSUMERS_MAX {
        let consumer = Consumer { user: "bob".parse().unwrap(), component: format!("C{number}").parse().unwrap() };
        world.store.register(&name, &consumer, Timestamp::MIN).unwrap();
    }
    let refused = world.register("D").expect_err("it is one too many");
    assert_eq!(refused.name, FaultName::DefenseRejected);
    let what = Call::Poll { component: "D".parse().unwrap(), last: None, want: None, answer_bytes_max: ROOM };
    assert_eq!(world.result(0, what).expect_err("it is not registered").name, FaultName::NotRegistered);
    let known = Consumer { user: "bob".parse().unwrap(), component: "C0".parse().unwrap() };
    world.store.remove(&name, &known).unwrap();
    assert_eq!((world.register("D"), world.register("D")), (Ok(CallResult::Accepted), Ok(CallResult::Accepted)));
}

impl World {
    /// Puts an event of type B after many of type A into the first stream, and returns its id.
    fn fill(&mut self) -> u64 {
        let name: StreamName = "main".parse().unwrap();
        let event = |(session, kind): (u64, &str)| NewEvent {
            kind: kind.parse().unwrap(),
            data: json("1"),
            time: Timestamp::MIN,
            origin: EventId { server: ServerId(9), session, instance: 1 },
            stamp: None,
        };
        let last = 3 * PASSED_MAX + 2;
        let kinds = (1..last).map(|session| (session, "A")).chain([(last, "B")]);
        let events: Vec<NewEvent> = kinds.map(event).collect();
        self.store.add(&name, &events, &[], &StreamLimits::default()).unwrap();
        last
    }
}

/// The requester of a search that was ended gets an error, and the search does not continue.
#[test]
fn rollback_or_reset_ends_a_search() {
    let mut world = World::new(StreamLimits::default());
    world.register("C").unwrap();
    world.fill();
    let begin = |world: &mut World| {
        let (component, want) = ("C".parse().unwrap(), Some(wanted(&["B"])));
        let poll = Call::Poll { component, last: None, want, answer_bytes_max: ROOM };
        world.stream_service.on_call(
            &mut world.store,
            world.now,
            CallOrigin { conn: ConnectionId(1), call: CallId(9) },
            0,
            "alice".parse().unwrap(),
            poll,
        );
        assert_eq!(world.stream_service.poll_effect(), None);
    };
    let pending_effects = |world: &mut World| {
        let pending_effects: Vec<StreamEffect> = std::iter::from_fn(|| world.stream_service.poll_effect()).collect();
        let is_it = |effect: &&StreamEffect| {
            matches!(effect, StreamEffect::CallCompleted { call: CallId(9), result: Err(_), .. })
        };
        assert_eq!(pending_effects.iter().filter(is_it).count(), 1, "{pending_effects:?}");
        assert!(world.stream_service.searches.is_empty());
    };
    begin(&mut world);
    world.stream_service.roll_back(&mut world.store, "the disk is full").unwrap();
    pending_effects(&mut world);
    begin(&mut world);
    let (stream, consumer) = (None, Consumer { user: "alice".parse().unwrap(), component: "C".parse().unwrap() });
    let operation = StreamOperation::Reset(consumer, ResetPosition::Start);
    world.stream_service.on_request(&mut world.store, world.now, 1, StreamRequest { stream, operation });
    pending_effects(&mut world);
    world.run();
    assert_eq!(world.position("C"), 0, "what was reset stays so");
}

/// A search for rare events passes a part of the stream in each turn, and other calls do not wait for it.
#[test]
fn long_search_does_not_delay_other_calls() {
    let mut world = World::new(StreamLimits::default());
    for component in ["C", "D"] {
        world.register(component).unwrap();
    }
    let last = world.fill();
    let want = Some(wanted(&["B"]));
    let poll = |component: &str| Call::Poll {
        component: component.parse().unwrap(),
        last: None,
        want: want.clone(),
        answer_bytes_max: ROOM,
    };
    let mut turns = 0;
    for (call, component) in [(1, "C"), (2, "LIVE")] {
        let from = CallOrigin { conn: ConnectionId(1), call: CallId(call) };
        world.stream_service.on_call(&mut world.store, world.now, from, 0, "alice".parse().unwrap(), poll(component));
    }
    let from = CallOrigin { conn: ConnectionId(2), call: CallId(3) };
    world.stream_service.on_call(&mut world.store, world.now, from, 0, "alice".parse().unwrap(), poll("C"));
    world.stream_service.on_close(ConnectionId(2));
    let ready = Call::Ready { component: "D".parse().unwrap(), want: want.clone(), version: Version::V1_1 };
    let from = CallOrigin { conn: ConnectionId(1), call: CallId(4) };
    world.stream_service.on_call(&mut world.store, world.now, from, 0, "alice".parse().unwrap(), ready);
    let (mut found, mut groups) = (Vec::new(), Vec::new());
    while world.stream_service.deadline() <= world.now.instant {
        turns += 1;
        world.stream_service.run(&mut world.store, world.now);
        while let Some(effect) = world.stream_service.poll_effect() {
            match effect {
                StreamEffect::CallCompleted { call: CallId(4), result, .. } => {
                    assert_eq!((result, turns), (Ok(CallResult::Accepted), 1))
                }
                StreamEffect::CallCompleted { call, result: Ok(CallResult::Events(events)), .. } => {
                    found.push((call.0, rows(&events)))
                }
                StreamEffect::Group { events, .. } => groups.push(rows(&events)),
                other => panic!("{other:?}"),
            }
        }
    }
    let row = vec![(last, "B 1".to_owned())];
    assert_eq!((found, groups), (vec![(1, row.clone()), (2, row.clone())], vec![row]));
    assert!((6..10).contains(&turns), "{turns}");
    assert_eq!((world.position("C"), world.position("D")), (last - 1, 3 * PASSED_MAX));
}

/// If the journal cannot be read, the caller gets an error, since its event is not in the stream yet. The service feeds
/// the event once, later.
#[test]
fn unreadable_journal_fails_the_waiting_calls() {
    let mut world = World::new(StreamLimits::default());
    let (from, user) = (CallOrigin { conn: ConnectionId(1), call: CallId(99) }, "alice".parse().unwrap());
    let add = Call::Add { kind: "A".parse().unwrap(), data: json("1") };
    world.stream_service.on_call(&mut world.store, world.now, from, 0, user, add);
    let Some(StreamEffect::Register { number, registrations }) = world.stream_service.poll_effect() else {
        panic!("it is registered")
    };
    let id = world.append_session(registrations);
    world.stream_service.on_registered(number, Ok(id));
    world.stream_service.run(&mut world.store, world.now);
    let Some(StreamEffect::Find { stream, after }) = world.stream_service.poll_effect() else {
        panic!("it is looked for")
    };
    world.stream_service.on_found(&mut world.store, world.now.instant, stream, after, None);
    world.run();
    let pending_effects = std::mem::take(&mut world.pending_effects);
    let [StreamEffect::CallCompleted { call: CallId(99), result: Err(fault), .. }] = &pending_effects[..] else {
        panic!("{pending_effects:?}")
    };
    assert_eq!(fault.name, FaultName::InternalError);
    assert!(fault.text.contains(&id.to_string()), "{fault:?}");
    world.later(1000);
    assert_eq!(world.pending_effects, []);
    assert_eq!(world.poll(0, "LIVE", None, None), [(1, "A 1".to_owned())]);
}

/// More events arrive at once than the stream takes: it takes what fits, and the rest when space is available.
#[test]
fn nearly_full_stream_takes_some_events() {
    let mut world = World::new(StreamLimits { bytes: Some(2), policy: Policy::Block, ..StreamLimits::default() });
    world.register("C").unwrap();
    for _ in 0..7 {
        world.append(ServerId(9), "main/A", Some(Payload::Json(json("1"))));
    }
    let mut last = None;
    let mut seen = Vec::new();
    for _ in 0..20 {
        world.later(1000);
        let polled = world.poll(0, "C", last, None);
        last = polled.last().map(|(id, _)| *id).or(last);
        seen.extend(polled.into_iter().map(|(id, _)| id));
    }
    assert_eq!(seen, (1..=7).collect::<Vec<u64>>());
}

#[test]
fn event_lost_by_the_journal_fails_its_call() {
    let mut world = World::new(StreamLimits::default());
    let what = Call::Add { kind: "A".parse().unwrap(), data: json("1") };
    let from = CallOrigin { conn: ConnectionId(1), call: CallId(77) };
    world.stream_service.on_call(&mut world.store, world.now, from, 0, "alice".parse().unwrap(), what);
    let Some(StreamEffect::Register { number, .. }) = world.stream_service.poll_effect() else {
        panic!("nothing is registered")
    };
    // The first event was removed before it was found; the one after it was not.
    let lost = world.append(OWN, "main/A", None);
    world.append(OWN, "main/A", None);
    world.journal.remove(0);
    world.run();
    world.stream_service.on_registered(number, Ok(lost));
    world.run();
    let pending_effects = std::mem::take(&mut world.pending_effects);
    assert!(
        matches!(&pending_effects[..], [StreamEffect::CallCompleted { call: CallId(77), result: Err(fault), .. }] if fault.name == FaultName::InternalError),
        "{pending_effects:?}"
    );
}

/// An event may be confirmed as registered before or after it is in the stream.
#[test]
fn added_event_is_confirmed_in_any_order() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(StreamLimits::default());
        let (mut registered, mut finds, mut result) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut left: u64 = 12;
        while result.len() < 12 {
            if 0 < left && rng.chance(0.4) {
                left -= 1;
                let what = Call::Add { kind: "A".parse().unwrap(), data: json(&left.to_string()) };
                let from = CallOrigin { conn: ConnectionId(1), call: CallId(left) };
                world.stream_service.on_call(&mut world.store, world.now, from, 0, "alice".parse().unwrap(), what);
            }
            world.stream_service.run(&mut world.store, world.now);
            while let Some(effect) = world.stream_service.poll_effect() {
                match effect {
                    StreamEffect::Register { number, registrations } => {
                        let id = world.append_session(registrations);
                        registered.push((number, id));
                    }
                    StreamEffect::Find { stream, after } => finds.push((stream, after)),
                    StreamEffect::CallCompleted { call, result: Ok(CallResult::Added(id)), .. } => {
                        assert_eq!(result.insert(call, id), None, "seed {seed}");
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            if !registered.is_empty() && rng.chance(0.5) {
                // Confirmations arrive in the order of the events.
                let (number, id) = registered.remove(0);
                world.stream_service.on_registered(number, Ok(id));
            }
            if !finds.is_empty() && rng.chance(0.5) {
                let (stream, after) = finds.swap_remove(rng.below(finds.len() as u64) as usize);
                world.find(stream, after);
            }
        }
        let all =
            world.store.read(&"main".parse().unwrap(), StreamId::START, None, PageBudget { events: 99, bytes: ROOM });
        let expected: BTreeMap<CallId, StreamId> =
            all.unwrap().events.iter().map(|event| (CallId(event.data.as_str().parse().unwrap()), event.id)).collect();
        assert_eq!(result, expected, "seed {seed}");
    }
}
