//! Number and size of the indexed events of each retention rule, so that no operation has to scan all types.

use super::row::{event_type, unsigned};
use crate::event::store::retention::Retention;
use crate::storage::journal::error::StoreError;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Transaction};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Placeholder for an arrival that was not looked up yet. It sorts before all arrivals.
pub(super) const UNKNOWN_ARRIVAL: i64 = i64::MIN;
/// Usage that the tail adds to each of its types.
const TAIL_USAGE: &str = "SELECT t.subject, t.number, t.events, t.first, count(*), sum(coalesce(octet_length(e.payload), 0)), min(e.time) \
    FROM event e JOIN type t ON t.number = e.type WHERE (SELECT arrival FROM filled) < e.arrival GROUP BY e.type";

/// Number, bytes and earliest events of the types of each rule.
#[derive(Debug)]
pub(super) struct RetentionUsage {
    /// Rules to which the usage belongs.
    pub(super) retention: Retention,
    /// Usage per rule, in the order of the rules.
    pub(super) rules: Vec<RuleUsage>,
}

/// Earliest event of a type. Heads are ordered by their removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TypeHead {
    pub(super) time: i64,
    pub(super) arrival: i64,
    /// Number of the type.
    pub(super) number: i64,
}

/// Usage of the types of one rule.
#[derive(Debug, Default)]
pub(super) struct RuleUsage {
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// Earliest event of each type. If an earlier event arrived later, the heap has both entries.
    pub(super) heads: BinaryHeap<Reverse<TypeHead>>,
}

impl RetentionUsage {
    /// Reads the usage of all types, which takes one or two microseconds per type.
    pub(super) fn read(connection: &Connection, retention: &Retention) -> Result<RetentionUsage, StoreError> {
        let rules = retention.rules.iter().map(|_| RuleUsage::default()).collect();
        let mut usage = RetentionUsage { retention: retention.clone(), rules };
        let mut types =
            connection.prepare_cached("SELECT subject, number, events, bytes, first FROM type WHERE 0 < events")?;
        let mut rows = types.query([])?;
        while let Some(row) = rows.next()? {
            let head = TypeHead { time: row.get(4)?, arrival: UNKNOWN_ARRIVAL, number: row.get(1)? };
            usage.add(row.get_ref(0)?, row.get(2)?, row.get(3)?, Some(head))?;
        }
        Ok(usage)
    }

    /// Adds the usage of the tail before it moves into the index tables.
    pub(super) fn add_tail(&mut self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        let mut tail = transaction.prepare_cached(TAIL_USAGE)?;
        let mut rows = tail.query([])?;
        while let Some(row) = rows.next()? {
            let (number, events, first) = (row.get(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?);
            let head = TypeHead { time: row.get(6)?, arrival: UNKNOWN_ARRIVAL, number };
            let is_earlier = events == 0 || head.time < first;
            self.add(row.get_ref(0)?, row.get(4)?, row.get(5)?, is_earlier.then_some(head))?;
        }
        Ok(())
    }

    /// Adds events and bytes of a type, and `head` if the type has a new earliest event.
    fn add(
        &mut self,
        subject: ValueRef<'_>,
        events: i64,
        bytes: i64,
        head: Option<TypeHead>,
    ) -> Result<(), StoreError> {
        let Some(rule) = self.retention.rule(&event_type(subject)?) else { return Ok(()) };
        let usage = &mut self.rules[rule];
        usage.events = usage.events.checked_add(unsigned(events)?).ok_or_else(damaged_count)?;
        usage.bytes = usage.bytes.checked_add(unsigned(bytes)?).ok_or_else(damaged_count)?;
        usage.heads.extend(head.map(Reverse));
        Ok(())
    }
}

/// Returns the error of a count that no version of this program writes.
pub(super) fn damaged_count() -> StoreError {
    StoreError::damaged("a count of events or bytes")
}
