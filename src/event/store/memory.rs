//! A journal in memory: a plain list, correct by inspection. Tests compare the other journals with this one.

use super::retention::Retention;
use super::{Journal, LastSession, Query, QueryPage, QueryPageBuilder, Series, SeriesOrder};
use crate::event::model::{Event, ServerId};
use crate::event::timestamp::Timestamp;
use crate::subject::event_type::{EventType, TypePattern};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// A journal in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    /// Events in the order of their arrival.
    events: Vec<Event>,
    last: BTreeMap<ServerId, LastSession>,
}

impl MemoryJournal {
    /// Returns the events in the order of their arrival.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the events in their natural order, with their arrivals.
    fn in_order(&self) -> Vec<(u64, &Event)> {
        let mut events: Vec<(u64, &Event)> = (0..).zip(&self.events).collect();
        events.sort_by(|(a, one), (b, other)| one.natural_cmp(*a, other, *b));
        events
    }

    fn series(&self, series: &Series) -> Vec<&Event> {
        let fits = |event: &&Event| {
            is_wanted(series.types.as_deref(), &event.event_type)
                && series.time.contains(Some(event.timestamp))
                && series.source_time.contains(event.source_timestamp)
        };
        let mut events: Vec<&Event> = self.in_order().into_iter().map(|(_, event)| event).filter(fits).collect();
        if series.by == SeriesOrder::SourceTime {
            events.retain(|event| event.source_timestamp.is_some());
            events.sort_by_key(|event| event.source_timestamp);
        }
        if series.is_descending {
            events.reverse();
        }
        match series.after.map(|after| events.iter().position(|event| event.id == after)) {
            None => events,
            Some(None) => Vec::new(),
            Some(Some(at)) => events.split_off(at + 1),
        }
    }
}

/// Returns whether one of the patterns matches, or no patterns are given.
fn is_wanted(patterns: Option<&[TypePattern]>, event_type: &EventType) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(event_type)))
}

impl Journal for MemoryJournal {
    type Error = Infallible;

    fn last_session(&mut self, server: ServerId) -> Result<LastSession, Infallible> {
        Ok(self.last.get(&server).copied().unwrap_or(LastSession::NONE))
    }

    fn append(&mut self, events: &[Event]) -> Result<usize, Infallible> {
        let before = self.events.len();
        for event in events {
            if self.events.iter().all(|other| other.id != event.id) {
                self.events.push(event.clone());
                let last = self.last.entry(event.id.server).or_insert(LastSession::NONE);
                last.session = last.session.max(event.id.session);
                last.timestamp = last.timestamp.max(event.timestamp);
            }
        }
        Ok(self.events.len() - before)
    }

    fn trim(&mut self, retention: &Retention, now: Timestamp, budget: usize) -> Result<Vec<u64>, Infallible> {
        let mut remaining = budget;
        let mut removed = Vec::new();
        for (index, rule) in retention.rules.iter().enumerate() {
            removed.push(0);
            while 0 < remaining {
                let bytes = |event: &Event| event.payload.as_ref().map_or(0, |payload| payload.bytes().len() as u64);
                let events = self.in_order().into_iter().map(|(_, event)| event);
                let of_rule: Vec<&Event> =
                    events.filter(|event| retention.rule(&event.event_type) == Some(index)).collect();
                let (count, sum) = (of_rule.len() as u64, of_rule.iter().map(|event| bytes(event)).sum());
                let Some(first) = of_rule.first() else { break };
                if !rule.is_exceeded(now, first.timestamp, count, sum) {
                    break;
                }
                let id = first.id;
                self.events.retain(|event| event.id != id);
                removed[index] += 1;
                remaining -= 1;
            }
        }
        Ok(removed)
    }

    fn query(&mut self, query: &Query) -> Result<QueryPage, Infallible> {
        let events: Vec<&Event> = match query {
            Query::Latest(types) => {
                let mut latest: Vec<&Event> = Vec::new();
                for (_, event) in self.in_order().into_iter().rev() {
                    let is_first = latest.iter().all(|other| other.event_type != event.event_type);
                    if is_first && is_wanted(types.as_deref(), &event.event_type) {
                        latest.push(event);
                    }
                }
                latest.sort_by(|one, other| one.event_type.cmp(&other.event_type));
                latest
            }
            Query::Series(series) => self.series(series),
            Query::Server(server_query) => {
                let is_after =
                    |event: &&Event| server_query.after.is_none_or(|after| event.id.cmp(&after) == Ordering::Greater);
                let mut events: Vec<&Event> = self
                    .events
                    .iter()
                    .filter(|event| event.id.server == server_query.server)
                    .filter(is_after)
                    .collect();
                events.sort_by_key(|event| event.id);
                events
            }
        };
        let mut page = QueryPageBuilder::new(query);
        let _all = events.into_iter().all(|event| page.take(event.clone()));
        Ok(page.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::store::{QueryError, ServerQuery, TYPES_MAX, TimeSpan};

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    fn event(id: &str, event_type: &str, micros: i64, source_micros: Option<i64>) -> Event {
        Event {
            id: id.parse().unwrap(),
            event_type: event_type.parse().unwrap(),
            timestamp: at(micros),
            source_timestamp: source_micros.map(at),
            payload: None,
        }
    }

    fn journal() -> MemoryJournal {
        let mut journal = MemoryJournal::default();
        let events = [
            event("1/1/1", "a/b", 10, Some(3)),
            event("1/1/2", "a/c", 10, None),
            event("2/1/1", "a/b", 10, Some(1)),
            event("1/2/1", "a/b", 20, Some(2)),
            event("2/2/1", "x", 15, Some(2)),
        ];
        assert_eq!(journal.append(&events), Ok(5));
        assert_eq!(journal.append(&events[3..]), Ok(0));
        journal
    }

    fn check(query: &Query, expected: &[&str], more_follows: bool) {
        let answer = journal().query(query).unwrap();
        let ids: Vec<String> = answer.events.iter().map(|event| event.id.to_string()).collect();
        assert_eq!(
            (ids, answer.more_follows),
            (expected.iter().map(|id| (*id).to_owned()).collect(), more_follows),
            "{query:?}"
        );
    }

    fn types(patterns: &[&str]) -> Option<Vec<TypePattern>> {
        Some(patterns.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn latest_query_returns_one_event_of_each_type() {
        check(&Query::Latest(None), &["1/2/1", "1/1/2", "2/2/1"], false);
        check(&Query::Latest(types(&["a/*"])), &["1/2/1", "1/1/2"], false);
        check(&Query::Latest(types(&["x", "?"])), &["2/2/1"], false);
        check(&Query::Latest(types(&[])), &[], false);
    }

    #[test]
    fn series_query_respects_order_bounds_and_position() {
        let check = |series: Series, expected: &[&str], more: bool| check(&Query::Series(series), expected, more);
        let series = Series::default;
        check(series(), &["1/1/1", "1/1/2", "2/1/1", "2/2/1", "1/2/1"], false);
        check(Series { is_descending: true, ..series() }, &["1/2/1", "2/2/1", "2/1/1", "1/1/2", "1/1/1"], false);
        check(Series { by: SeriesOrder::SourceTime, ..series() }, &["2/1/1", "2/2/1", "1/2/1", "1/1/1"], false);
        let span = |from, to| TimeSpan { from: Some(at(from)), to: Some(at(to)) };
        check(Series { time: span(11, 15), ..series() }, &["2/2/1"], false);
        check(Series { source_time: span(2, 3), ..series() }, &["1/1/1", "2/2/1", "1/2/1"], false);
        check(Series { types: types(&["a/b"]), limit: Some(2), ..series() }, &["1/1/1", "2/1/1"], true);
        check(Series { types: types(&["a/b"]), limit: Some(3), ..series() }, &["1/1/1", "2/1/1", "1/2/1"], false);
        check(Series { limit: Some(0), ..series() }, &[], true);
        let after = |id: &str| Some(id.parse().unwrap());
        check(Series { after: after("2/1/1"), ..series() }, &["2/2/1", "1/2/1"], false);
        check(Series { after: after("2/1/1"), types: types(&["x"]), ..series() }, &[], false);
        check(Series { after: after("9/1/1"), ..series() }, &[], false);
    }

    #[test]
    fn server_query_returns_its_events() {
        let of = |server, after: Option<&str>, limit| {
            Query::Server(ServerQuery { server: ServerId(server), after: after.map(|id| id.parse().unwrap()), limit })
        };
        check(&of(1, None, None), &["1/1/1", "1/1/2", "1/2/1"], false);
        check(&of(1, Some("1/1/1"), Some(1)), &["1/1/2"], true);
        check(&of(1, Some("1/1/9"), None), &["1/2/1"], false);
        check(&of(3, None, None), &[], false);
        assert_eq!(journal().last_session(ServerId(2)), Ok(LastSession { session: 2, timestamp: at(15) }));
        assert_eq!(journal().last_session(ServerId(3)), Ok(LastSession::NONE));
    }

    #[test]
    fn invalid_query_is_refused() {
        let reversed = TimeSpan { from: Some(at(2)), to: Some(at(1)) };
        let error = Err(QueryError::Reversed { from: at(2), to: at(1) });
        assert_eq!(Query::Series(Series { time: reversed, ..Series::default() }).check(), error);
        assert_eq!(Query::Series(Series { source_time: reversed, ..Series::default() }).check(), error);
        let after = "1/1/1".parse().unwrap();
        let query = Query::Server(ServerQuery { server: ServerId(2), after: Some(after), limit: None });
        assert_eq!(query.check(), Err(QueryError::OtherServer { after, server: ServerId(2) }));
        assert_eq!(Query::Latest(None).check(), Ok(()));
        let many = |count| Some(vec![TypePattern::all(); count]);
        assert_eq!(Query::Latest(many(TYPES_MAX)).check(), Ok(()));
        for query in [
            Query::Latest(many(TYPES_MAX + 1)),
            Query::Series(Series { types: many(TYPES_MAX + 1), ..Series::default() }),
        ] {
            assert_eq!(query.check(), Err(QueryError::Types(TYPES_MAX + 1)));
        }
    }
}
