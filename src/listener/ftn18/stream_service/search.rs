//! Searches for events. Each turn reads one part of the stream, so that a search for rare events does not delay other
//! calls.

use super::requests::{refusal, unavailable};
use super::{ConnectionId, StreamService, refused};
use crate::event::stream::model::{PageBudget, StreamEvent, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamType};
use crate::event::stream::store::{StreamStore, StreamStoreError};
use crate::event::timestamp::Timestamp;
use crate::listener::ftn18::session::{CallId, CallResult};
use crate::listener::ftn18::stream_service::effect::StreamEffect;
use crate::listener::stream::{StreamAnswer, StreamEvents};
use std::collections::BTreeSet;
use std::fmt;

/// The requester of a search.
#[derive(Debug)]
pub(super) enum SearchRequester {
    /// A client that polls as this consumer.
    Call(ConnectionId, CallId, Consumer),
    /// A program that polls as this consumer, under this number.
    Poll(u64, Consumer),
    /// A program that reads, under this number.
    Read(u64),
}

/// A search for events.
#[derive(Debug)]
pub(super) struct StreamSearch {
    pub(super) requester: SearchRequester,
    /// Index of the stream in the settings.
    pub(super) stream: usize,
    pub(super) want: Option<BTreeSet<StreamType>>,
    pub(super) room: PageBudget,
    /// Position after which events are wanted. For a registered consumer it is the accepted position, if that is later.
    pub(super) after: StreamId,
    /// Position up to which nothing was found.
    passed: StreamId,
}

impl StreamSearch {
    pub(super) fn new(
        requester: SearchRequester,
        stream: usize,
        after: StreamId,
        want: Option<BTreeSet<StreamType>>,
        room: PageBudget,
    ) -> StreamSearch {
        StreamSearch { requester, stream, want, room, after, passed: after }
    }

    /// Returns the consumer that accepts skipped events, if it is a registered one.
    pub(super) fn registered(&self) -> Option<&Consumer> {
        match &self.requester {
            SearchRequester::Call(_, _, consumer) | SearchRequester::Poll(_, consumer) => {
                Some(consumer).filter(|consumer| !consumer.component.is_live())
            }
            SearchRequester::Read(_) => None,
        }
    }
}

impl StreamService {
    /// Begins a search. A registered consumer first accepts everything up to `after`.
    pub(super) fn search<S>(&mut self, store: &mut S, mut search: StreamSearch, now: Timestamp)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        if let Some(consumer) = search.registered() {
            match store.accept(&self.streams[search.stream].settings.name, consumer, search.after, now) {
                Ok(position) => search.after = search.after.max(position),
                Err(why) => return self.fail_search(search, why),
            }
            search.passed = search.after;
        }
        self.continue_search(store, search, now);
    }

    /// Runs the next part of the search that has waited longest.
    pub(super) fn run_searches<S>(&mut self, store: &mut S, now: Timestamp)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        if let Some(search) = self.searches.pop_front() {
            self.continue_search(store, search, now);
        }
    }

    fn continue_search<S>(&mut self, store: &mut S, mut search: StreamSearch, now: Timestamp)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let name = &self.streams[search.stream].settings.name;
        let page = match store.read(name, search.passed, search.want.as_ref(), search.room) {
            Ok(page) => page,
            Err(error) => return self.fail_search(search, StreamStoreError::Store(error)),
        };
        let StreamPage { events, covered, more_follows } = page;
        // Skipped events that are not wanted count as delivered (003, section 2.2.3).
        let passed = match events.first() {
            Some(first) => StreamId::from_number(first.id.number() - 1).expect("less than an id"),
            None => covered,
        };
        if search.want.is_some()
            && search.passed < passed
            && let Some(consumer) = search.registered()
            && let Err(why) = store.accept(name, consumer, passed, now)
        {
            return self.fail_search(search, why);
        }
        // A search for zero events ends at once.
        if events.is_empty() && more_follows && 0 < search.room.events {
            search.passed = covered;
            return self.searches.push_back(search);
        }
        self.found(search, events, covered);
    }

    fn found(&mut self, search: StreamSearch, events: Vec<StreamEvent>, covered: StreamId) {
        let after = search.after;
        let (number, covered) = match search.requester {
            SearchRequester::Call(conn, call, _) => {
                return self.effects.push_back(StreamEffect::CallResult {
                    conn,
                    call,
                    done: Ok(CallResult::Events(events)),
                });
            }
            // The consumer accepts only the events that it got.
            SearchRequester::Poll(number, _) => (number, events.last().map_or(after, |event| event.id)),
            SearchRequester::Read(number) => (number, covered),
        };
        let answer = Ok(StreamAnswer::Events(StreamEvents { after, events, covered }));
        self.effects.push_back(StreamEffect::Answered { number, answer });
    }

    fn fail_search<E: fmt::Display>(&mut self, search: StreamSearch, why: StreamStoreError<E>) {
        let name = &self.streams[search.stream].settings.name;
        let failed = match (search.requester, why) {
            (SearchRequester::Call(conn, call, consumer), why) => {
                StreamEffect::CallResult { conn, call, done: Err(refused(&consumer, why)) }
            }
            (SearchRequester::Poll(number, consumer), why) => {
                StreamEffect::Answered { number, answer: Err(refusal(name, &consumer, why)) }
            }
            (SearchRequester::Read(number), StreamStoreError::Store(error)) => {
                StreamEffect::Answered { number, answer: Err(unavailable(error)) }
            }
            (SearchRequester::Read(_), _) => unreachable!("only consumers are refused"),
        };
        self.effects.push_back(failed);
    }

    /// Ends the matching searches with an error, since their results so far are invalid. The requesters must retry.
    pub(super) fn end_searches(&mut self, why: &str, is_one: impl Fn(&StreamSearch) -> bool) {
        for search in std::mem::take(&mut self.searches) {
            if is_one(&search) {
                self.fail_search(search, StreamStoreError::Store(why));
            } else {
                self.searches.push_back(search);
            }
        }
    }
}
