//! Requests of programs attached to the peer: the calls that clients of the listener have, and operations for
//! operators.

use super::StreamService;
use super::consumer_limit::{CONSUMERS_MAX, register};
use super::effect::{CallOrigin, ConnectionId, StreamEffect};
use super::search::{SearchRequester, StreamSearch};
use super::store_faults::{refusal_of_fault, store_refusal, unavailable, unregistered};
use crate::event::stream::model::{LIST_EVENTS_MAX, PageBudget};
use crate::event::stream::name::{Consumer, StreamId, StreamName};
use crate::event::stream::store::StreamStore;
use crate::event::timestamp::Timestamp;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::session::{CallId, CallResult};
use crate::listener::stream::{
    Consumers, ResetPosition, StreamAnswer, StreamOperation, StreamRefusal, StreamRefusalKind as Kind, StreamRequest,
    StreamRow, Streams,
};
use crate::time::ClockReading;
use std::fmt;

/// Connection id in effects for attached programs. No connection has this id.
const LOCAL_CONNECTION: ConnectionId = ConnectionId(u64::MAX);
/// Maximum bytes of events in one answer, since many answers may wait at the same time.
const EVENTS_BYTES: usize = 1 << 20;

impl StreamService {
    /// Handles a request. `number` is unique among the pending requests, and the answer has the same number.
    pub fn on_request<S>(&mut self, store: &mut S, now: ClockReading, number: u64, request: StreamRequest)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let StreamRequest { stream, operation } = request;
        let answer = match (self.index(stream.as_ref()), operation) {
            (Err(refusal), _) => Err(refusal),
            (Ok(_), StreamOperation::List) => self.list(store, stream.as_ref()),
            (Ok(index), StreamOperation::Add { kind, data }) => {
                return self.add(
                    store,
                    CallOrigin { conn: LOCAL_CONNECTION, call: CallId(number) },
                    index,
                    &kind,
                    data,
                );
            }
            (Ok(index), StreamOperation::Poll { consumer, last, want, events_max }) => {
                let (requester, after) = (SearchRequester::Poll(number, consumer), last.unwrap_or(StreamId::START));
                let search = StreamSearch::new(requester, index, after, want, page_budget(events_max));
                return self.search(store, search, Timestamp::from(now.wall));
            }
            (Ok(index), StreamOperation::Read { after, want, events_max }) => {
                let search =
                    StreamSearch::new(SearchRequester::Read(number), index, after, want, page_budget(events_max));
                return self.search(store, search, Timestamp::from(now.wall));
            }
            (Ok(index), operation) => self.answer(store, Timestamp::from(now.wall), index, operation),
        };
        self.effects.push_back(StreamEffect::Answered { number, answer });
    }

    /// Returns the index of the stream in the settings.
    fn index(&self, stream: Option<&StreamName>) -> Result<usize, StreamRefusal> {
        let is_wanted = |name: &StreamName| stream.is_none_or(|wanted| wanted == name);
        self.streams.iter().position(|stream| is_wanted(&stream.settings.name)).ok_or_else(|| {
            let known: Vec<&str> = self.streams.iter().map(|stream| stream.settings.name.as_str()).collect();
            let wanted = stream.map_or("", |stream| stream.as_str());
            let text = format!("there is no stream {wanted}; the streams are {} (key streams)", known.join(", "));
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
        index: usize,
        operation: StreamOperation,
    ) -> Result<StreamAnswer, StreamRefusal>
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let name = &self.streams[index].settings.name.clone();
        match operation {
            StreamOperation::List
            | StreamOperation::Add { .. }
            | StreamOperation::Poll { .. }
            | StreamOperation::Read { .. } => {
                unreachable!("handled by on_request")
            }
            StreamOperation::Accept(consumer, up_to) => {
                refuse_live(&consumer)?;
                let accepted = store.accept(name, &consumer, up_to, now);
                accepted.map(StreamAnswer::Position).map_err(|error| store_refusal(name, &consumer, error))
            }
            StreamOperation::Consumers => {
                let mut rows = store.consumers(name).map_err(unavailable)?;
                let omitted = rows.len().saturating_sub(CONSUMERS_MAX) as u64;
                rows.truncate(CONSUMERS_MAX);
                Ok(StreamAnswer::Consumers(Consumers { rows, omitted }))
            }
            StreamOperation::Register(consumer) => {
                refuse_live(&consumer)?;
                register(store, name, &consumer, now).map(StreamAnswer::Registered).map_err(refusal_of_fault)
            }
            StreamOperation::Reset(consumer, to) => {
                let last = store.contents(name).map_err(unavailable)?.last;
                let position = match to {
                    ResetPosition::Start => start(store, name, last)?,
                    ResetPosition::End => last,
                    ResetPosition::After(id) => id.min(last),
                };
                let is_registered = store.reset(name, &consumer, position).map_err(unavailable)?;
                self.disconnect_consumer(index, consumer, is_registered)?;
                Ok(StreamAnswer::Position(position))
            }
            StreamOperation::Remove(consumer) => {
                let is_registered = store.remove(name, &consumer).map_err(unavailable)?;
                self.disconnect_consumer(index, consumer, is_registered)?;
                Ok(StreamAnswer::Removed)
            }
        }
    }

    /// Ends the pushes and searches of a consumer, which must reconnect. Fails if the consumer was not registered.
    fn disconnect_consumer(
        &mut self,
        stream: usize,
        consumer: Consumer,
        is_registered: bool,
    ) -> Result<(), StreamRefusal> {
        if !is_registered {
            return Err(unregistered(&self.streams[stream].settings.name, &consumer));
        }
        let is_of_consumer =
            |search: &StreamSearch| search.stream == stream && search.reliable_consumer() == Some(&consumer);
        self.end_searches("its position was set meanwhile", is_of_consumer);
        if let Some((conn, push)) = self.reliable_pushes.get(&(stream, consumer)).copied() {
            self.end_push((conn, push));
            self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
        }
        Ok(())
    }
}

/// Converts the result of an attached program's call to an answer.
pub(super) fn into_answer(effect: StreamEffect) -> StreamEffect {
    match effect {
        StreamEffect::CallCompleted { conn: LOCAL_CONNECTION, call, result } => {
            let answer = match result {
                Ok(CallResult::Added(id)) => Ok(StreamAnswer::Added(id)),
                Ok(result) => unreachable!("attached programs make no call with {result:?}"),
                Err(fault) => Err(refusal_of_fault(fault)),
            };
            StreamEffect::Answered { number: call.0, answer }
        }
        effect => effect,
    }
}

/// Replaces a result that could not be stored by an error with the reason.
pub(super) fn fail(effect: &mut StreamEffect, reason: &str) {
    match effect {
        StreamEffect::CallCompleted { result: result @ Ok(CallResult::Added(_)), .. } => {
            let text = format!("the event is registered, and will be added to the stream later: {reason}");
            *result = Err(CallFault::new(FaultName::InternalError, text));
        }
        StreamEffect::CallCompleted { result: result @ Ok(_), .. } => {
            *result = Err(CallFault::new(FaultName::InternalError, reason))
        }
        StreamEffect::Answered { answer: answer @ Ok(_), .. } => {
            *answer = Err(StreamRefusal::new(Kind::Unavailable, reason))
        }
        _ => {}
    }
}

/// Returns the budget of a request for at most this number of events.
fn page_budget(events_max: u32) -> PageBudget {
    let events = usize::try_from(events_max).unwrap_or(usize::MAX).min(LIST_EVENTS_MAX);
    PageBudget { events, bytes: EVENTS_BYTES }
}

/// Returns the position before the first retained event.
fn start<S>(store: &mut S, name: &StreamName, last: StreamId) -> Result<StreamId, StreamRefusal>
where
    S: StreamStore + ?Sized,
    S::Error: fmt::Display,
{
    let page = store.read(name, StreamId::START, None, page_budget(1)).map_err(unavailable)?;
    let first = page.events.first().map(|event| event.id.number());
    Ok(first.map_or(last, |first| StreamId::from_number(first - 1).expect("less than an id")))
}

/// Refuses a live consumer, which cannot be registered.
fn refuse_live(consumer: &Consumer) -> Result<(), StreamRefusal> {
    match consumer.component.is_live() {
        true => Err(StreamRefusal::new(
            Kind::Invalid,
            "LIVE names consumers that are not registered: choose another component",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{World, json, wanted};
    use super::*;
    use crate::event::stream::store::{MissedRange, Policy, StreamLimits};
    use crate::listener::stream::{StreamEvents, StreamRequest};

    /// Returns the answer to a request of an attached program.
    #[track_caller]
    fn send_request(
        world: &mut World,
        stream: &str,
        operation: StreamOperation,
    ) -> Result<StreamAnswer, StreamRefusal> {
        let stream = Some(stream).filter(|stream| !stream.is_empty()).map(|stream| stream.parse().unwrap());
        let number = world.number();
        world.stream_service.on_request(&mut world.store, world.now, number, StreamRequest { stream, operation });
        world.run();
        let is_it =
            |effect: &StreamEffect| matches!(effect, StreamEffect::Answered { number: of, .. } if *of == number);
        let at = world.pending_effects.iter().position(is_it).expect("it is answered");
        let StreamEffect::Answered { answer, .. } = world.pending_effects.remove(at) else {
            unreachable!("just found")
        };
        answer
    }

    fn consumer(text: &str) -> Consumer {
        text.parse().unwrap()
    }

    fn id(number: u64) -> StreamId {
        StreamId::from_number(number).unwrap()
    }

    fn add(world: &mut World, kind: &str) -> u64 {
        match send_request(world, "", StreamOperation::Add { kind: kind.parse().unwrap(), data: json("1") }) {
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
    fn program_adds_polls_and_reads_like_a_client() {
        let mut world = World::new(StreamLimits::default());
        assert_eq!([add(&mut world, "A"), add(&mut world, "B"), add(&mut world, "A")], [1, 2, 3]);
        let what = poll(&mut world, None, None, 2);
        assert_eq!(events(send_request(&mut world, "main", what)), (vec![1, 2], 2));
        let what = poll(&mut world, Some(1), Some(&["A"]), 1000);
        assert_eq!(events(send_request(&mut world, "main", what)), (vec![3], 3));
        assert_eq!(world.position("C"), 2, "what it does not want it has");
        let read = |after: u64, want: Option<&[&str]>| StreamOperation::Read {
            after: id(after),
            want: want.map(wanted),
            events_max: 1000,
        };
        assert_eq!(events(send_request(&mut world, "main", read(0, None))), (vec![1, 2, 3], 3));
        assert_eq!(events(send_request(&mut world, "main", read(0, Some(&["B"])))), (vec![2], 3));
        assert_eq!(events(send_request(&mut world, "main", read(3, None))), (vec![], 3));
        let accept = |up_to: u64| StreamOperation::Accept(consumer("alice:C"), id(up_to));
        assert_eq!(send_request(&mut world, "main", accept(99)), Ok(StreamAnswer::Position(id(3))));
        assert_eq!(send_request(&mut world, "main", accept(1)), Ok(StreamAnswer::Position(id(3))), "never back");
    }

    #[test]
    fn streams_and_consumers_are_listed() {
        let mut world = World::new(StreamLimits::default());
        world.register("C").unwrap();
        for _ in 0..3 {
            add(&mut world, "A");
        }
        let Ok(StreamAnswer::Streams(Streams { streams, .. })) = send_request(&mut world, "", StreamOperation::List)
        else {
            panic!("the streams")
        };
        let rows: Vec<(&str, u64, u64, u64)> = streams
            .iter()
            .map(|row| (row.settings.name.as_str(), row.contents.last.number(), row.contents.bytes, row.consumers))
            .collect();
        assert_eq!(rows, [("main", 3, 3, 1), ("all", 3, 3, 0)]);
        let Ok(StreamAnswer::Streams(one)) = send_request(&mut world, "all", StreamOperation::List) else {
            panic!("the stream")
        };
        assert_eq!(one.streams.len(), 1);
        let Ok(StreamAnswer::Consumers(Consumers { rows, omitted: 0 })) =
            send_request(&mut world, "main", StreamOperation::Consumers)
        else {
            panic!("the consumers")
        };
        assert_eq!((rows.len(), rows[0].lag, rows[0].position), (1, 3, StreamId::START));
        is_refused(
            send_request(&mut world, "no", StreamOperation::List),
            Kind::UnknownStream,
            "no stream no; the streams are main, all",
        );
    }

    #[test]
    fn consumers_are_registered_reset_and_removed() {
        let mut world = World::new(StreamLimits::default());
        let it = consumer("bob:C");
        let reset = |position| StreamOperation::Reset(consumer("bob:C"), position);
        is_refused(
            send_request(&mut world, "", reset(ResetPosition::Start)),
            Kind::NotRegistered,
            "bob:C is no consumer of the stream main",
        );
        is_refused(send_request(&mut world, "", StreamOperation::Remove(it.clone())), Kind::NotRegistered, "bob:C");
        is_refused(
            send_request(&mut world, "", StreamOperation::Register(consumer("bob:LIVE"))),
            Kind::Invalid,
            "LIVE",
        );
        is_refused(
            send_request(&mut world, "", StreamOperation::Accept(it.clone(), id(1))),
            Kind::NotRegistered,
            "register it",
        );
        assert_eq!(
            send_request(&mut world, "", StreamOperation::Register(it.clone())),
            Ok(StreamAnswer::Registered(None))
        );
        let again = send_request(&mut world, "", StreamOperation::Register(it.clone()));
        assert!(matches!(again, Ok(StreamAnswer::Registered(Some(row))) if row.consumer == it));
        for _ in 0..4 {
            add(&mut world, "A");
        }
        for (position, expected) in [
            (ResetPosition::End, 4),
            (ResetPosition::After(id(2)), 2),
            (ResetPosition::After(id(9)), 4),
            (ResetPosition::Start, 0),
        ] {
            assert_eq!(
                send_request(&mut world, "", reset(position)),
                Ok(StreamAnswer::Position(id(expected))),
                "{position:?}"
            );
        }
        assert_eq!(
            send_request(&mut world, "", StreamOperation::Accept(it.clone(), id(2))),
            Ok(StreamAnswer::Position(id(2)))
        );
        world.later(2000);
        assert_eq!(
            send_request(&mut world, "", reset(ResetPosition::Start)),
            Ok(StreamAnswer::Position(id(2))),
            "the first two are gone"
        );
        assert_eq!(send_request(&mut world, "", StreamOperation::Remove(it)), Ok(StreamAnswer::Removed));
    }

    /// A consumer with an active push learns it, since its connection is closed.
    #[test]
    fn reset_or_removed_consumer_is_disconnected() {
        let mut world = World::new(StreamLimits::default());
        for (conn, what) in [
            (3, StreamOperation::Reset(consumer("alice:C"), ResetPosition::Start)),
            (4, StreamOperation::Remove(consumer("alice:C"))),
        ] {
            world.register("C").unwrap();
            world.ready(conn, "C", None);
            add(&mut world, "A");
            send_request(&mut world, "", what).unwrap();
            let closed = |effect: &StreamEffect| matches!(effect, StreamEffect::PushEnd { conn: ConnectionId(of), is_closed: true, .. } if *of == conn);
            assert!(world.pending_effects.iter().any(closed), "{:?}", world.pending_effects);
            world.pending_effects.clear();
            add(&mut world, "A");
            assert!(world.groups().is_empty());
        }
    }

    #[test]
    fn lapsed_consumer_receives_the_exact_missed_range() {
        let limits = StreamLimits { bytes: Some(2), policy: Policy::Lapse, age: None };
        let mut world = World::new(limits);
        let what = poll(&mut world, None, None, 1000);
        for _ in 0..5 {
            add(&mut world, "A");
        }
        world.later(2000);
        let missed = MissedRange { first: id(1), last: id(3), count: 3 };
        is_refused(
            send_request(&mut world, "", what.clone()),
            Kind::Lapsed(missed),
            "3 events of the stream main, 1 to 3",
        );
        let registered = send_request(&mut world, "", StreamOperation::Register(consumer("alice:C")));
        assert!(matches!(registered, Ok(StreamAnswer::Registered(Some(row))) if row.lapsed == Some(missed)));
        assert_eq!(events(send_request(&mut world, "", what)), (vec![4, 5], 5));
        let blocked = StreamLimits { policy: Policy::Block, ..limits };
        let mut world = World::new(blocked);
        world.register("C").unwrap();
        assert_eq!([add(&mut world, "A"), add(&mut world, "A")], [1, 2]);
        let what = StreamOperation::Add { kind: "A".parse().unwrap(), data: json("1") };
        is_refused(send_request(&mut world, "", what), Kind::Busy, "is full");
    }

    #[test]
    fn rolled_back_request_is_answered_with_a_refusal() {
        let mut world = World::new(StreamLimits::default());
        let request = StreamRequest { stream: None, operation: StreamOperation::Register(consumer("alice:C")) };
        world.stream_service.on_request(&mut world.store, world.now, 7, request);
        world.stream_service.roll_back(&mut world.store, "the disk is full").unwrap();
        let answer = std::iter::from_fn(|| world.stream_service.poll_effect()).find_map(|effect| match effect {
            StreamEffect::Answered { number: 7, answer } => Some(answer),
            _ => None,
        });
        is_refused(answer.expect("it is answered"), Kind::Unavailable, "the disk is full");
    }
}
