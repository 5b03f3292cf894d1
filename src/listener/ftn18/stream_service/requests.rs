//! Requests of programs attached to the peer: those that clients of the listener have, and those of operators of
//! streams.

use super::search::{SearchRequester, StreamSearch};
use super::{CONSUMERS_MAX, ConnectionId, StreamEffect, StreamService, refused, register};
use crate::event::stream::model::{LIST_EVENTS_MAX, PageBudget};
use crate::event::stream::name::{Consumer, StreamId, StreamName};
use crate::event::stream::store::{MissedRange, StreamStore, StreamStoreError};
use crate::event::timestamp::Timestamp;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::session::{CallId, CallResult};
use crate::listener::stream::{
    Consumers, ResetPosition, StreamAnswer, StreamOperation, StreamRefusal, StreamRefusalKind as Kind, StreamRequest,
    StreamRow, Streams,
};
use crate::time::ClockReading;
use std::fmt;

/// Connection id of attached programs; no connection has it.
const LOCAL_CONNECTION: ConnectionId = ConnectionId(u64::MAX);
/// Maximum bytes of events of one answer: many answers may wait together.
const EVENTS_BYTES: usize = 1 << 20;

impl StreamService {
    /// Handles a request. The number of the answer is unique among the pending requests.
    pub fn on_request<S>(&mut self, store: &mut S, now: ClockReading, number: u64, request: StreamRequest)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let StreamRequest { stream, what } = request;
        let answer = match (self.place(stream.as_ref()), what) {
            (Err(refusal), _) => Err(refusal),
            (Ok(_), StreamOperation::List) => self.list(store, stream.as_ref()),
            (Ok(place), StreamOperation::Add { kind, data }) => {
                return self.add(store, (LOCAL_CONNECTION, CallId(number)), place, &kind, data);
            }
            (Ok(place), StreamOperation::Poll { consumer, last, want, events_max }) => {
                let (requester, after) = (SearchRequester::Poll(number, consumer), last.unwrap_or(StreamId::START));
                let search = StreamSearch::new(requester, place, after, want, room(events_max));
                return self.search(store, search, Timestamp::from(now.wall));
            }
            (Ok(place), StreamOperation::Read { after, want, events_max }) => {
                let search = StreamSearch::new(SearchRequester::Read(number), place, after, want, room(events_max));
                return self.search(store, search, Timestamp::from(now.wall));
            }
            (Ok(place), what) => self.answer(store, Timestamp::from(now.wall), place, what),
        };
        self.effects.push_back(StreamEffect::Answered { number, answer });
    }

    /// Returns the index of the stream in the settings.
    fn place(&self, stream: Option<&StreamName>) -> Result<usize, StreamRefusal> {
        let is_it = |name: &StreamName| stream.is_none_or(|wanted| wanted == name);
        self.streams.iter().position(|stream| is_it(&stream.settings.name)).ok_or_else(|| {
            let known: Vec<&str> = self.streams.iter().map(|stream| stream.settings.name.as_str()).collect();
            let wanted = stream.map_or("", |stream| stream.as_str());
            let text = format!("there is no stream {wanted} here, but {} (key streams)", known.join(", "));
            StreamRefusal::new(Kind::UnknownStream, text)
        })
    }

    fn list<S>(&self, store: &mut S, only: Option<&StreamName>) -> Result<StreamAnswer, StreamRefusal>
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let mut streams = Vec::new();
        for settings in self.streams.iter().map(|stream| &stream.settings) {
            if only.is_none_or(|only| *only == settings.name) {
                let contents = store.contents(&settings.name).map_err(unavailable)?;
                let consumers = store.consumers(&settings.name).map_err(unavailable)?.len() as u64;
                streams.push(StreamRow { settings: settings.clone(), contents, consumers });
            }
        }
        Ok(StreamAnswer::Streams(Streams { server: self.server, streams }))
    }

    fn answer<S>(
        &mut self,
        store: &mut S,
        now: Timestamp,
        place: usize,
        what: StreamOperation,
    ) -> Result<StreamAnswer, StreamRefusal>
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let name = &self.streams[place].settings.name.clone();
        match what {
            StreamOperation::List
            | StreamOperation::Add { .. }
            | StreamOperation::Poll { .. }
            | StreamOperation::Read { .. } => {
                unreachable!("they are done before")
            }
            StreamOperation::Accept(consumer, up_to) => {
                registrable(&consumer)?;
                let accepted = store.accept(name, &consumer, up_to, now);
                accepted.map(StreamAnswer::Position).map_err(|why| refusal(name, &consumer, why))
            }
            StreamOperation::Consumers => {
                let mut rows = store.consumers(name).map_err(unavailable)?;
                let omitted = rows.len().saturating_sub(CONSUMERS_MAX) as u64;
                rows.truncate(CONSUMERS_MAX);
                Ok(StreamAnswer::Consumers(Consumers { rows, omitted }))
            }
            StreamOperation::Register(consumer) => {
                registrable(&consumer)?;
                register(store, name, &consumer, now).map(StreamAnswer::Registered).map_err(refusal_of_fault)
            }
            StreamOperation::Reset(consumer, to) => {
                let last = store.contents(name).map_err(unavailable)?.last;
                let position = match to {
                    ResetPosition::Start => start(store, name, last)?,
                    ResetPosition::End => last,
                    ResetPosition::Behind(id) => id.min(last),
                };
                let is_known = store.reset(name, &consumer, position).map_err(unavailable)?;
                self.disconnect_consumer(place, consumer, is_known)?;
                Ok(StreamAnswer::Position(position))
            }
            StreamOperation::Remove(consumer) => {
                let is_known = store.remove(name, &consumer).map_err(unavailable)?;
                self.disconnect_consumer(place, consumer, is_known)?;
                Ok(StreamAnswer::Removed)
            }
        }
    }

    /// Ends the pushes and searches of a consumer, which must reconnect. Fails if the consumer is unknown.
    fn disconnect_consumer(&mut self, stream: usize, consumer: Consumer, is_known: bool) -> Result<(), StreamRefusal> {
        if !is_known {
            return Err(unregistered(&self.streams[stream].settings.name, &consumer));
        }
        let is_its = |search: &StreamSearch| search.stream == stream && search.registered() == Some(&consumer);
        self.end_searches("its position was set meanwhile", is_its);
        if let Some((conn, push)) = self.places.get(&(stream, consumer)).copied() {
            self.end_push((conn, push));
            self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
        }
        Ok(())
    }
}

/// Turns the result of an attached program's call into an answer.
pub(super) fn into_answer(effect: StreamEffect) -> StreamEffect {
    match effect {
        StreamEffect::CallResult { conn: LOCAL_CONNECTION, call, done } => {
            let answer = match done {
                Ok(CallResult::Added(id)) => Ok(StreamAnswer::Added(id)),
                Ok(done) => unreachable!("{done:?} is not asked for by calls"),
                Err(fault) => Err(refusal_of_fault(fault)),
            };
            StreamEffect::Answered { number: call.0, answer }
        }
        effect => effect,
    }
}

/// Replaces a result that could not be stored by the reason.
pub(super) fn fail(effect: &mut StreamEffect, why: &str) {
    match effect {
        StreamEffect::CallResult { done: done @ Ok(CallResult::Added(_)), .. } => {
            let text = format!("the event is registered, and will stand in the stream later: {why}");
            *done = Err(CallFault::new(FaultName::InternalError, text));
        }
        StreamEffect::CallResult { done: done @ Ok(_), .. } => {
            *done = Err(CallFault::new(FaultName::InternalError, why))
        }
        StreamEffect::Answered { answer: answer @ Ok(_), .. } => {
            *answer = Err(StreamRefusal::new(Kind::Unavailable, why))
        }
        _ => {}
    }
}

fn room(events_max: u32) -> PageBudget {
    let events = usize::try_from(events_max).unwrap_or(usize::MAX).min(LIST_EVENTS_MAX);
    PageBudget { events, bytes: EVENTS_BYTES }
}

/// Returns the position before the first retained event.
fn start<S>(store: &mut S, name: &StreamName, last: StreamId) -> Result<StreamId, StreamRefusal>
where
    S: StreamStore + ?Sized,
    S::Error: fmt::Display,
{
    let page = store.read(name, StreamId::START, None, room(1)).map_err(unavailable)?;
    let first = page.events.first().map(|event| event.id.number());
    Ok(first.map_or(last, |first| StreamId::from_number(first - 1).expect("less than an id")))
}

fn registrable(consumer: &Consumer) -> Result<(), StreamRefusal> {
    match consumer.component.is_live() {
        true => Err(StreamRefusal::new(
            Kind::Invalid,
            "LIVE stands for consumers that are not registered: choose another component",
        )),
        false => Ok(()),
    }
}

fn unregistered(name: &StreamName, consumer: &Consumer) -> StreamRefusal {
    StreamRefusal::new(
        Kind::NotRegistered,
        format!("{consumer} is no consumer of the stream {name}: register it first"),
    )
}

pub(super) fn refusal<E: fmt::Display>(
    name: &StreamName,
    consumer: &Consumer,
    why: StreamStoreError<E>,
) -> StreamRefusal {
    match why {
        StreamStoreError::NotRegistered => unregistered(name, consumer),
        StreamStoreError::Lapsed(missed) => {
            let MissedRange { first, last, count } = missed;
            let text = format!(
                "{consumer} has lapsed: {count} events of the stream {name}, {first} to {last}, were not accepted in time and are \
                 gone; register it again to go on behind them"
            );
            StreamRefusal::new(Kind::Lapsed(missed), text)
        }
        why @ (StreamStoreError::Full | StreamStoreError::Store(_)) => refusal_of_fault(refused(consumer, why)),
    }
}

pub(super) fn unavailable(error: impl fmt::Display) -> StreamRefusal {
    StreamRefusal::new(Kind::Unavailable, error.to_string())
}

fn refusal_of_fault(CallFault { name, text }: CallFault) -> StreamRefusal {
    let kind = match name {
        FaultName::InternalError => Kind::Unavailable,
        FaultName::DefenseRejected => Kind::Busy,
        _ => Kind::Invalid,
    };
    StreamRefusal::new(kind, text)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{World, json, wanted};
    use super::*;
    use crate::event::stream::store::{Policy, StreamLimits};
    use crate::listener::stream::{StreamEvents, StreamRequest};

    /// Returns the answer to a request of an attached program.
    #[track_caller]
    fn ask(world: &mut World, stream: &str, what: StreamOperation) -> Result<StreamAnswer, StreamRefusal> {
        let stream = Some(stream).filter(|stream| !stream.is_empty()).map(|stream| stream.parse().unwrap());
        let number = world.number();
        world.stream_service.on_request(&mut world.store, world.now, number, StreamRequest { stream, what });
        world.run();
        let is_it =
            |effect: &StreamEffect| matches!(effect, StreamEffect::Answered { number: of, .. } if *of == number);
        let at = world.told.iter().position(is_it).expect("it is answered");
        let StreamEffect::Answered { answer, .. } = world.told.remove(at) else { unreachable!("just found") };
        answer
    }

    fn consumer(text: &str) -> Consumer {
        text.parse().unwrap()
    }

    fn id(number: u64) -> StreamId {
        StreamId::from_number(number).unwrap()
    }

    fn add(world: &mut World, kind: &str) -> u64 {
        match ask(world, "", StreamOperation::Add { kind: kind.parse().unwrap(), data: json("1") }) {
            Ok(StreamAnswer::Added(id)) => id.number(),
            other => panic!("{other:?}"),
        }
    }

    fn poll(world: &mut World, last: Option<u64>, want: Option<&[&str]>, events_max: u32) -> StreamOperation {
        world.register("C").unwrap();
        StreamOperation::Poll { consumer: consumer("alice:C"), last: last.map(id), want: want.map(wanted), events_max }
    }

    #[track_caller]
    fn events(answer: Result<StreamAnswer, StreamRefusal>) -> (Vec<u64>, u64) {
        match answer {
            Ok(StreamAnswer::Events(StreamEvents { events, covered, .. })) => {
                (events.iter().map(|event| event.id.number()).collect(), covered.number())
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn is_refused(answer: Result<StreamAnswer, StreamRefusal>, kind: Kind, part: &str) {
        let refusal = answer.expect_err("a refusal");
        assert!(refusal.kind == kind && refusal.text.contains(part), "{refusal:?}");
    }

    #[test]
    fn who_asks_adds_polls_and_reads_as_who_calls() {
        let mut world = World::new(StreamLimits::default());
        assert_eq!([add(&mut world, "A"), add(&mut world, "B"), add(&mut world, "A")], [1, 2, 3]);
        let what = poll(&mut world, None, None, 2);
        assert_eq!(events(ask(&mut world, "main", what)), (vec![1, 2], 2));
        let what = poll(&mut world, Some(1), Some(&["A"]), 1000);
        assert_eq!(events(ask(&mut world, "main", what)), (vec![3], 3));
        assert_eq!(world.position("C"), 2, "what it does not want it has");
        let read = |after: u64, want: Option<&[&str]>| StreamOperation::Read {
            after: id(after),
            want: want.map(wanted),
            events_max: 1000,
        };
        assert_eq!(events(ask(&mut world, "main", read(0, None))), (vec![1, 2, 3], 3));
        assert_eq!(events(ask(&mut world, "main", read(0, Some(&["B"])))), (vec![2], 3));
        assert_eq!(events(ask(&mut world, "main", read(3, None))), (vec![], 3));
        let accept = |up_to: u64| StreamOperation::Accept(consumer("alice:C"), id(up_to));
        assert_eq!(ask(&mut world, "main", accept(99)), Ok(StreamAnswer::Position(id(3))));
        assert_eq!(ask(&mut world, "main", accept(1)), Ok(StreamAnswer::Position(id(3))), "never back");
    }

    #[test]
    fn streams_and_consumers_are_listed() {
        let mut world = World::new(StreamLimits::default());
        world.register("C").unwrap();
        for _ in 0..3 {
            add(&mut world, "A");
        }
        let Ok(StreamAnswer::Streams(Streams { streams, .. })) = ask(&mut world, "", StreamOperation::List) else {
            panic!("the streams")
        };
        let rows: Vec<(&str, u64, u64, u64)> = streams
            .iter()
            .map(|row| (row.settings.name.as_str(), row.contents.last.number(), row.contents.bytes, row.consumers))
            .collect();
        assert_eq!(rows, [("main", 3, 3, 1), ("all", 3, 3, 0)]);
        let Ok(StreamAnswer::Streams(one)) = ask(&mut world, "all", StreamOperation::List) else {
            panic!("the stream")
        };
        assert_eq!(one.streams.len(), 1);
        let Ok(StreamAnswer::Consumers(Consumers { rows, omitted: 0 })) =
            ask(&mut world, "main", StreamOperation::Consumers)
        else {
            panic!("the consumers")
        };
        assert_eq!((rows.len(), rows[0].behind, rows[0].position), (1, 3, StreamId::START));
        is_refused(
            ask(&mut world, "no", StreamOperation::List),
            Kind::UnknownStream,
            "no stream no here, but main, all",
        );
    }

    #[test]
    fn consumers_are_registered_reset_and_removed() {
        let mut world = World::new(StreamLimits::default());
        let it = consumer("bob:C");
        let reset = |place| StreamOperation::Reset(consumer("bob:C"), place);
        is_refused(
            ask(&mut world, "", reset(ResetPosition::Start)),
            Kind::NotRegistered,
            "bob:C is no consumer of the stream main",
        );
        is_refused(ask(&mut world, "", StreamOperation::Remove(it.clone())), Kind::NotRegistered, "bob:C");
        is_refused(ask(&mut world, "", StreamOperation::Register(consumer("bob:LIVE"))), Kind::Invalid, "LIVE");
        is_refused(ask(&mut world, "", StreamOperation::Accept(it.clone(), id(1))), Kind::NotRegistered, "register it");
        assert_eq!(ask(&mut world, "", StreamOperation::Register(it.clone())), Ok(StreamAnswer::Registered(None)));
        let again = ask(&mut world, "", StreamOperation::Register(it.clone()));
        assert!(matches!(again, Ok(StreamAnswer::Registered(Some(row))) if row.consumer == it));
        for _ in 0..4 {
            add(&mut world, "A");
        }
        for (place, expected) in [
            (ResetPosition::End, 4),
            (ResetPosition::Behind(id(2)), 2),
            (ResetPosition::Behind(id(9)), 4),
            (ResetPosition::Start, 0),
        ] {
            assert_eq!(ask(&mut world, "", reset(place)), Ok(StreamAnswer::Position(id(expected))), "{place:?}");
        }
        assert_eq!(ask(&mut world, "", StreamOperation::Accept(it.clone(), id(2))), Ok(StreamAnswer::Position(id(2))));
        world.later(2000);
        assert_eq!(
            ask(&mut world, "", reset(ResetPosition::Start)),
            Ok(StreamAnswer::Position(id(2))),
            "the first two are gone"
        );
        assert_eq!(ask(&mut world, "", StreamOperation::Remove(it)), Ok(StreamAnswer::Removed));
    }

    /// A consumer with an active push learns it, since its connection is closed.
    #[test]
    fn a_consumer_that_is_reset_or_removed_is_pushed_to_no_more() {
        let mut world = World::new(StreamLimits::default());
        for (conn, what) in [
            (3, StreamOperation::Reset(consumer("alice:C"), ResetPosition::Start)),
            (4, StreamOperation::Remove(consumer("alice:C"))),
        ] {
            world.register("C").unwrap();
            world.ready(conn, "C", None);
            add(&mut world, "A");
            ask(&mut world, "", what).unwrap();
            let closed = |effect: &StreamEffect| matches!(effect, StreamEffect::PushEnd { conn: ConnectionId(of), is_closed: true, .. } if *of == conn);
            assert!(world.told.iter().any(closed), "{:?}", world.told);
            world.told.clear();
            add(&mut world, "A");
            assert!(world.groups().is_empty());
        }
    }

    #[test]
    fn a_lapsed_consumer_is_told_the_exact_range() {
        let limits = StreamLimits { bytes: Some(2), policy: Policy::Lapse, age: None };
        let mut world = World::new(limits);
        let what = poll(&mut world, None, None, 1000);
        for _ in 0..5 {
            add(&mut world, "A");
        }
        world.later(2000);
        let missed = MissedRange { first: id(1), last: id(3), count: 3 };
        is_refused(ask(&mut world, "", what.clone()), Kind::Lapsed(missed), "3 events of the stream main, 1 to 3");
        let registered = ask(&mut world, "", StreamOperation::Register(consumer("alice:C")));
        assert!(matches!(registered, Ok(StreamAnswer::Registered(Some(row))) if row.lapsed == Some(missed)));
        assert_eq!(events(ask(&mut world, "", what)), (vec![4, 5], 5));
        let blocked = StreamLimits { policy: Policy::Block, ..limits };
        let mut world = World::new(blocked);
        world.register("C").unwrap();
        assert_eq!([add(&mut world, "A"), add(&mut world, "A")], [1, 2]);
        let what = StreamOperation::Add { kind: "A".parse().unwrap(), data: json("1") };
        is_refused(ask(&mut world, "", what), Kind::Busy, "is full");
    }

    #[test]
    fn what_could_not_be_stored_is_not_told_as_done() {
        let mut world = World::new(StreamLimits::default());
        let request = StreamRequest { stream: None, what: StreamOperation::Register(consumer("alice:C")) };
        world.stream_service.on_request(&mut world.store, world.now, 7, request);
        world.stream_service.roll_back(&mut world.store, "the disk is full").unwrap();
        let told = std::iter::from_fn(|| world.stream_service.poll_effect()).find_map(|effect| match effect {
            StreamEffect::Answered { number: 7, answer } => Some(answer),
            _ => None,
        });
        is_refused(told.expect("it is answered"), Kind::Unavailable, "the disk is full");
    }
}
