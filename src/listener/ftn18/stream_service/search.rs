//! Searches for events. Each turn reads one part of the stream, so that a search for rare events does not delay other
//! calls.

use super::StreamService;
use super::effect::{CallOrigin, StreamEffect};
use super::store_faults::{store_fault, store_refusal, unavailable};
use crate::event::stream::model::{PageBudget, StreamEvent, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamType};
use crate::event::stream::store::{StreamStore, StreamStoreError};
use crate::event::timestamp::Timestamp;
use crate::listener::ftn18::session::CallResult;
use crate::listener::stream::{StreamAnswer, StreamEvents};
use std::collections::BTreeSet;
use std::fmt;

/// Requester of a search, to which the result goes.
#[derive(Debug)]
pub(super) enum SearchRequester {
    /// A call of a client that polls as this consumer.
    Call(CallOrigin, Consumer),
    /// The request with this number, of a program that polls as this consumer.
    Poll(u64, Consumer),
    /// The request with this number, of a program that reads.
    Read(u64),
}

/// A search for events.
#[derive(Debug)]
pub(super) struct StreamSearch {
    pub(super) requester: SearchRequester,
    /// Index of the stream in the settings.
    pub(super) stream: usize,
    pub(super) want: Option<BTreeSet<StreamType>>,
    pub(super) budget: PageBudget,
    /// Position after which events are wanted. For a registered consumer it is the accepted position, if that is later.
    pub(super) after: StreamId,
    /// Position up to which no wanted event was found.
    searched: StreamId,
}

impl StreamSearch {
    pub(super) fn new(
        requester: SearchRequester,
        stream: usize,
        after: StreamId,
        want: Option<BTreeSet<StreamType>>,
        budget: PageBudget,
    ) -> StreamSearch {
        StreamSearch { requester, stream, want, budget, after, searched: after }
    }

    /// Returns the reliable consumer for which the search accepts skipped events, if any.
    pub(super) fn reliable_consumer(&self) -> Option<&Consumer> {
        match &self.requester {
            SearchRequester::Call(_, consumer) | SearchRequester::Poll(_, consumer) => {
                Some(consumer).filter(|consumer| !consumer.component.is_live())
            }
            SearchRequester::Read(_) => None,
        }
    }
}

impl StreamService {
    /// Begins a search. A reliable consumer first accepts all events up to `after`.
    pub(super) fn search<S>(&mut self, store: &mut S, mut search: StreamSearch, now: Timestamp)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        if let Some(consumer) = search.reliable_consumer() {
            match store.accept(&self.streams[search.stream].settings.name, consumer, search.after, now) {
                Ok(position) => search.after = search.after.max(position),
                Err(error) => return self.fail_search(search, error),
            }
            search.searched = search.after;
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
        let page = match store.read(name, search.searched, search.want.as_ref(), search.budget) {
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
            && search.searched < passed
            && let Some(consumer) = search.reliable_consumer()
            && let Err(error) = store.accept(name, consumer, passed, now)
        {
            return self.fail_search(search, error);
        }
        // A search for zero events ends at once.
        if events.is_empty() && more_follows && 0 < search.budget.events {
            search.searched = covered;
            return self.searches.push_back(search);
        }
        self.complete_search(search, events, covered);
    }

    fn complete_search(&mut self, search: StreamSearch, events: Vec<StreamEvent>, covered: StreamId) {
        let after = search.after;
        let (number, covered) = match search.requester {
            SearchRequester::Call(from, _) => {
                let result = Ok(CallResult::Events(events));
                return self.effects.push_back(StreamEffect::CallCompleted {
                    conn: from.conn,
                    call: from.call,
                    result,
                });
            }
            // The consumer will accept only events that it has received.
            SearchRequester::Poll(number, _) => (number, events.last().map_or(after, |event| event.id)),
            SearchRequester::Read(number) => (number, covered),
        };
        let answer = Ok(StreamAnswer::Events(StreamEvents { after, events, covered }));
        self.effects.push_back(StreamEffect::Answered { number, answer });
    }

    fn fail_search<E: fmt::Display>(&mut self, search: StreamSearch, error: StreamStoreError<E>) {
        let name = &self.streams[search.stream].settings.name;
        let failed = match (search.requester, error) {
            (SearchRequester::Call(from, consumer), error) => StreamEffect::CallCompleted {
                conn: from.conn,
                call: from.call,
                result: Err(store_fault(&consumer, error)),
            },
            (SearchRequester::Poll(number, consumer), error) => {
                StreamEffect::Answered { number, answer: Err(store_refusal(name, &consumer, error)) }
            }
            (SearchRequester::Read(number), StreamStoreError::Store(error)) => {
                StreamEffect::Answered { number, answer: Err(unavailable(error)) }
            }
            (SearchRequester::Read(_), _) => unreachable!("the store refuses only consumers"),
        };
        self.effects.push_back(failed);
    }

    /// Ends the matching searches with an error, since their results so far are invalid. The requesters must retry.
    pub(super) fn end_searches(&mut self, reason: &str, is_ended: impl Fn(&StreamSearch) -> bool) {
        for search in std::mem::take(&mut self.searches) {
            if is_ended(&search) {
                self.fail_search(search, StreamStoreError::Store(reason));
            } else {
                self.searches.push_back(search);
            }
        }
    }
}
