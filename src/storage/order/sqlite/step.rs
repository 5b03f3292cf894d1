//! A step on the shared state, within its transaction.

use crate::event::order::name::{Object, ObjectNameError, WorkerName};
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::store::{
    BYTES_PER_STEP, EVENTS_PER_STEP, OBJECTS_PER_STEP, ObjectSnapshot, OpOutcome, STAMPS_PER_STEP, StampedEvent,
    StoreOp, StoreSnapshot, WorkerContext, WorkerOp, WorkerSnapshot,
};
use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Params, Row, Transaction, params};
use std::collections::BTreeSet;

/// A step within its transaction.
pub(super) struct StepTransaction<'t> {
    transaction: &'t Transaction<'t>,
    identity: &'t str,
    /// Last stamps before the step and now; `None` without a generation.
    stamps: Option<StampProgress>,
    /// True if the file is a copy of the one in which the generation began.
    is_suspect: bool,
}

/// The last assigned stamp, before the step and now.
#[derive(Clone, Copy)]
struct StampProgress {
    before: OrderStamp,
    last: OrderStamp,
}

impl StampProgress {
    fn new(last: OrderStamp) -> StampProgress {
        StampProgress { before: last, last }
    }
}

impl<'t> StepTransaction<'t> {
    /// Begins a step. Reads the generation and its last stamp.
    pub(super) fn begin(transaction: &'t Transaction<'t>, identity: &'t str) -> rusqlite::Result<StepTransaction<'t>> {
        let mut steps = StepTransaction { transaction, identity, stamps: None, is_suspect: false };
        let found = steps.find("SELECT generation, count, file FROM state", [], |row| {
            let (generation, count) = (row.get(0)?, unsigned(row, 1)?.unwrap_or(0));
            let begin = Generation::new(generation).map(OrderStamp::begin).filter(|begin| begin.is_followed_by(count));
            let stamp = begin.and_then(|begin| OrderStamp::from_number(begin.number() + count));
            Ok((stamp.ok_or(rusqlite::Error::IntegralValueOutOfRange(1, 0))?, row.get::<_, String>(2)? != identity))
        })?;
        if let Some((stamp, is_suspect)) = found {
            (steps.stamps, steps.is_suspect) = (Some(StampProgress::new(stamp)), is_suspect);
        }
        Ok(steps)
    }

    /// Ends the step. Stores the last stamp that it has assigned.
    pub(super) fn end(self) -> rusqlite::Result<()> {
        match self.stamps {
            Some(StampProgress { before, last }) if before != last => {
                self.run("UPDATE state SET count = ?1", [signed(last.count())])
            }
            _ => Ok(()),
        }
    }

    fn run(&self, sql: &str, parameters: impl Params) -> rusqlite::Result<()> {
        self.transaction.prepare_cached(sql)?.execute(parameters).map(drop)
    }

    fn find<T>(
        &self,
        sql: &str,
        parameters: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.transaction.prepare_cached(sql)?.query_row(parameters, read).optional()
    }

    /// Applies the operation of the step.
    pub(super) fn apply(&mut self, op: &StoreOp) -> rusqlite::Result<OpOutcome> {
        let mark = match op {
            StoreOp::ReadMark => return Ok(self.read_mark()),
            StoreOp::Show { objects, queued_max } => {
                return self.show(objects, *queued_max).map(OpOutcome::Shown);
            }
            StoreOp::Begin { found, generation } => return self.begin_generation(*found, *generation),
            StoreOp::Push { mark, .. } => *mark,
            StoreOp::Open { context } | StoreOp::WorkerOp { context, .. } => context.mark,
        };
        if self.is_lost(mark) {
            return Ok(self.lost_generation());
        }
        match op {
            StoreOp::Push { object, data, main, subs, .. } => {
                self.push(object, data, std::iter::once(main).chain(subs))
            }
            StoreOp::Open { context } => self.open(context),
            StoreOp::WorkerOp { context, session, op } => self.apply_worker_op(context, *session, op),
            StoreOp::ReadMark | StoreOp::Show { .. } | StoreOp::Begin { .. } => unreachable!("done above"),
        }
    }

    fn mark(&self) -> Option<OrderStamp> {
        self.stamps.map(|stamps| stamps.last)
    }

    fn is_lost(&self, seen: OrderStamp) -> bool {
        self.is_suspect
            || self.mark().is_none_or(|mark| {
                mark.generation() != seen.generation() || mark < seen || !mark.is_followed_by(STAMPS_PER_STEP)
            })
    }

    fn lost_generation(&self) -> OpOutcome {
        OpOutcome::LostGeneration { found: self.mark().map(OrderStamp::generation) }
    }

    fn read_mark(&self) -> OpOutcome {
        match self.mark() {
            Some(mark) if !self.is_lost(mark) => OpOutcome::MarkRead { mark },
            _ => self.lost_generation(),
        }
    }

    fn begin_generation(&mut self, found: Option<Generation>, new: Generation) -> rusqlite::Result<OpOutcome> {
        if self.mark().map(OrderStamp::generation) == found && found < Some(new) {
            self.run("INSERT OR REPLACE INTO state VALUES (1, ?1, 0, ?2)", params![new.number(), self.identity])?;
            self.stamps = Some(StampProgress::new(OrderStamp::begin(new)));
            self.is_suspect = false;
        }
        Ok(self.read_mark())
    }

    fn stamp(&mut self) -> OrderStamp {
        let StampProgress { before, last } = self.stamps.expect("checked before each step");
        let next = last.next().expect("checked before each step");
        self.stamps = Some(StampProgress { before, last: next });
        next
    }

    fn push<'e>(
        &self,
        object: &Object,
        data: &Bytes,
        events: impl Iterator<Item = &'e Bytes>,
    ) -> rusqlite::Result<OpOutcome> {
        let name = object.as_str();
        self.run(
            "INSERT INTO object (name, data) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET data = excluded.data",
            params![name, &data[..]],
        )?;
        for event in events {
            self.run("INSERT INTO event (object, payload) VALUES (?1, ?2)", params![name, &event[..]])?;
        }
        self.run("INSERT INTO queue (object) VALUES (?1)", [name])?;
        Ok(OpOutcome::Pushed { mark: self.mark().expect("checked before each step") })
    }

    fn open(&mut self, context: &WorkerContext) -> rusqlite::Result<OpOutcome> {
        let session = self.stamp();
        self.run(
            "INSERT INTO worker (name, session) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET session = excluded.session",
            params![context.worker.as_str(), signed(session.number())],
        )?;
        let sql = "SELECT object FROM worker WHERE name = ?1";
        let taken = self.find(sql, [context.worker.as_str()], |row| object(row, 0))?.flatten();
        if taken.is_some() {
            self.renew(context)?;
        }
        Ok(OpOutcome::Opened { session, object: taken })
    }

    fn apply_worker_op(
        &mut self,
        context: &WorkerContext,
        session: OrderStamp,
        op: &WorkerOp,
    ) -> rusqlite::Result<OpOutcome> {
        let sql =
            "SELECT session, object, (SELECT max(id) FROM process WHERE worker = name) FROM worker WHERE name = ?1";
        let found =
            self.find(sql, [context.worker.as_str()], |row| Ok((stamp(row, 0)?, object(row, 1)?, stamp(row, 2)?)))?;
        let Some((current, taken, in_process)) = found else { return Ok(OpOutcome::NotHeld) };
        if current != Some(session) {
            return Ok(OpOutcome::Superseded);
        }
        let (object, token) = match op {
            WorkerOp::Take | WorkerOp::TakeOver | WorkerOp::Leave => (None, None),
            WorkerOp::Claim { object } | WorkerOp::Drop { object } => (Some(object), None),
            WorkerOp::Next { object, token }
            | WorkerOp::Renew { object, token }
            | WorkerOp::Record { object, token, .. }
            | WorkerOp::Advance { object, token, .. } => (Some(object), Some(*token)),
        };
        let batch_end = match op {
            WorkerOp::Record { id, .. } | WorkerOp::Advance { id, .. } => Some(*id),
            WorkerOp::Next { .. } => None,
            _ => in_process,
        };
        let owner = object.map(|object| self.owner(object)).transpose()?.flatten();
        let is_owner = owner.as_ref().is_some_and(|(worker, _)| *worker == context.worker);
        let owns = token.is_none() || is_owner && owner.as_ref().map(|(_, token)| *token) == token;
        let drops_owned = is_owner && matches!(op, WorkerOp::Drop { .. });
        if taken.as_ref() != object || !owns || drops_owned || batch_end != in_process {
            return Ok(OpOutcome::NotHeld);
        }
        if object.is_some() {
            self.renew(context)?;
        }
        match op {
            WorkerOp::Take => Ok(self.take(context)?.map_or(OpOutcome::Empty, |object| OpOutcome::Taken { object })),
            WorkerOp::TakeOver => self.take_over(context),
            WorkerOp::Claim { .. } if owner.is_some() && !is_owner => Ok(OpOutcome::Owned),
            WorkerOp::Claim { object } => self.claim(context, object),
            WorkerOp::Next { object, .. } => {
                Ok(self.dequeue_batch(context, object)?.map_or(OpOutcome::Emptied, OpOutcome::Next))
            }
            WorkerOp::Renew { .. } => Ok(OpOutcome::Done),
            WorkerOp::Record { object, id, .. } => self.record(context, object, *id).map(|()| OpOutcome::Done),
            WorkerOp::Advance { object, token, id } => {
                self.record(context, object, *id)?;
                self.advance(context, object, *token)
            }
            WorkerOp::Drop { .. } => self.release_object(context).map(|()| OpOutcome::Done),
            WorkerOp::Leave => self.remove_worker(&context.worker).map(|()| OpOutcome::Done),
        }
    }

    fn owner(&self, object: &Object) -> rusqlite::Result<Option<(WorkerName, OrderStamp)>> {
        let sql = "SELECT owner, token FROM object WHERE name = ?1";
        let found = self.find(sql, [object.as_str()], |row| Ok((worker(row, 0)?, stamp(row, 1)?)))?;
        Ok(found.and_then(|(worker, token)| worker.zip(token)))
    }

    fn grant_ownership(&mut self, context: &WorkerContext, object: &Object) -> rusqlite::Result<OrderStamp> {
        let token = self.stamp();
        self.run(
            "UPDATE object SET owner = ?2, token = ?3 WHERE name = ?1",
            params![object.as_str(), context.worker.as_str(), signed(token.number())],
        )?;
        Ok(token)
    }

    fn last(&self, object: &Object) -> rusqlite::Result<Option<OrderStamp>> {
        let sql = "SELECT last FROM object WHERE name = ?1";
        Ok(self.find(sql, [object.as_str()], |row| stamp(row, 0))?.flatten())
    }

    fn renew(&self, context: &WorkerContext) -> rusqlite::Result<()> {
        self.run(
            "UPDATE worker SET lease_end = ?2 WHERE name = ?1",
            params![context.worker.as_str(), lease_end(context)],
        )
    }

    fn remove_worker(&self, name: &WorkerName) -> rusqlite::Result<()> {
        self.run("DELETE FROM worker WHERE name = ?1", [name.as_str()])
    }

    fn take(&self, context: &WorkerContext) -> rusqlite::Result<Option<Object>> {
        let sql = "DELETE FROM queue WHERE number = (SELECT min(number) FROM queue) RETURNING object";
        let Some(object) = self.find(sql, [], |row| object(row, 0))?.flatten() else { return Ok(None) };
        self.assign_object(context, &object)?;
        Ok(Some(object))
    }

    fn assign_object(&self, context: &WorkerContext, object: &Object) -> rusqlite::Result<()> {
        self.run(
            "UPDATE worker SET object = ?2, lease_end = ?3 WHERE name = ?1",
            params![context.worker.as_str(), object.as_str(), lease_end(context)],
        )
    }

    fn take_over(&mut self, context: &WorkerContext) -> rusqlite::Result<OpOutcome> {
        let sql = "SELECT name, object, lease_end FROM worker WHERE object IS NOT NULL \
                   ORDER BY lease_end, object, name LIMIT 1";
        let found = self.find(sql, [], |row| {
            let (from, of) = (worker(row, 0)?, object(row, 1)?);
            Ok((from.zip(of), unsigned(row, 2)?.unwrap_or(0)))
        })?;
        let Some((Some((from, object)), first_ms)) = found else {
            return Ok(OpOutcome::NoneEnded { first_ms: None });
        };
        if context.now_ms < first_ms {
            return Ok(OpOutcome::NoneEnded { first_ms: Some(first_ms) });
        }
        self.remove_worker(&from)?;
        self.run("UPDATE process SET worker = ?2 WHERE worker = ?1", [from.as_str(), context.worker.as_str()])?;
        self.assign_object(context, &object)?;
        if self.owner(&object)?.is_some_and(|(owner, _)| owner == from) {
            self.grant_ownership(context, &object)?;
        }
        Ok(OpOutcome::Taken { object })
    }

    fn claim(&mut self, context: &WorkerContext, object: &Object) -> rusqlite::Result<OpOutcome> {
        let token = self.grant_ownership(context, object)?;
        let mut prev = self.last(object)?;
        let mut unfinished = Vec::new();
        let mut statement =
            self.transaction.prepare_cached("SELECT id, payload FROM process WHERE worker = ?1 ORDER BY id")?;
        let mut rows = statement.query([context.worker.as_str()])?;
        while let Some(row) = rows.next()? {
            let Some(id) = stamp(row, 0)? else { continue };
            unfinished.push(StampedEvent {
                id,
                prev: prev.replace(id),
                payload: Bytes::from(row.get::<_, Vec<u8>>(1)?),
            });
        }
        Ok(OpOutcome::Claimed { token, unfinished })
    }

    /// Moves the object's next events into the batch in process. Without events, ends the ownership of the object.
    fn dequeue_batch(
        &mut self,
        context: &WorkerContext,
        object: &Object,
    ) -> rusqlite::Result<Option<Vec<StampedEvent>>> {
        let (mut batch, mut bytes, mut prev) = (Vec::new(), 0, self.last(object)?);
        while batch.len() < EVENTS_PER_STEP && bytes < BYTES_PER_STEP {
            let sql =
                "DELETE FROM event WHERE number = (SELECT min(number) FROM event WHERE object = ?1) RETURNING payload";
            let Some(payload) = self.find(sql, [object.as_str()], |row| row.get::<_, Vec<u8>>(0))? else { break };
            let id = self.stamp();
            self.run(
                "INSERT INTO process VALUES (?1, ?2, ?3)",
                params![signed(id.number()), context.worker.as_str(), payload],
            )?;
            bytes += payload.len();
            batch.push(StampedEvent { id, prev: prev.replace(id), payload: Bytes::from(payload) });
        }
        if batch.is_empty() {
            self.run("UPDATE object SET owner = NULL, token = NULL WHERE name = ?1", [object.as_str()])?;
            return Ok(None);
        }
        Ok(Some(batch))
    }

    fn record(&self, context: &WorkerContext, object: &Object, id: OrderStamp) -> rusqlite::Result<()> {
        self.run("DELETE FROM process WHERE worker = ?1", [context.worker.as_str()])?;
        self.run("UPDATE object SET last = ?2 WHERE name = ?1", params![object.as_str(), signed(id.number())])
    }

    /// Continues after `record` with the next batch of the object, or of the next object.
    fn advance(&mut self, context: &WorkerContext, object: &Object, token: OrderStamp) -> rusqlite::Result<OpOutcome> {
        if let Some(batch) = self.dequeue_batch(context, object)? {
            return Ok(OpOutcome::Advanced { object: object.clone(), token, batch });
        }
        self.release_object(context)?;
        for _ in 0..OBJECTS_PER_STEP {
            let Some(object) = self.take(context)? else { return Ok(OpOutcome::Empty) };
            // An object that has an owner or no events needs no worker.
            if self.has_events(&object)? && self.owner(&object)?.is_none() {
                let token = self.grant_ownership(context, &object)?;
                let batch = self.dequeue_batch(context, &object)?.expect("the object has events");
                return Ok(OpOutcome::Advanced { object, token, batch });
            }
            self.release_object(context)?;
        }
        Ok(OpOutcome::Paused)
    }

    fn has_events(&self, object: &Object) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM event WHERE object = ?1 LIMIT 1";
        Ok(self.find(sql, [object.as_str()], |_| Ok(()))?.is_some())
    }

    fn release_object(&self, context: &WorkerContext) -> rusqlite::Result<()> {
        self.run("UPDATE worker SET object = NULL, lease_end = NULL WHERE name = ?1", [context.worker.as_str()])
    }

    fn show(&self, objects: &[Object], queued_max: usize) -> rusqlite::Result<StoreSnapshot> {
        let mut names: BTreeSet<Object> = objects.iter().cloned().collect();
        let sql = "SELECT name, object, lease_end, count(id), max(id) FROM worker LEFT JOIN process ON worker = name \
                   GROUP BY name ORDER BY name";
        let mut workers = Vec::new();
        let mut statement = self.transaction.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (Some(name), object) = (worker(row, 0)?, object(row, 1)?) else { continue };
            names.extend(object.clone());
            let (lease_end_ms, events, last) = (unsigned(row, 2)?, unsigned(row, 3)?.unwrap_or(0), stamp(row, 4)?);
            workers.push(WorkerSnapshot { name, object, lease_end_ms, events, last });
        }
        let mut statement = self.transaction.prepare_cached("SELECT object FROM queue ORDER BY number LIMIT ?1")?;
        let mut rows = statement.query([i64::try_from(queued_max).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            names.extend(object(row, 0)?);
        }
        let count = |sql: &str, parameters: &[&str]| -> rusqlite::Result<u64> {
            Ok(self.find(sql, rusqlite::params_from_iter(parameters), |row| unsigned(row, 0))?.flatten().unwrap_or(0))
        };
        let snapshot = |name: Object| {
            Ok(ObjectSnapshot {
                queued: count("SELECT count(*) FROM event WHERE object = ?1", &[name.as_str()])?,
                last: self.last(&name)?,
                owner: self.owner(&name)?.map(|(owner, _)| owner),
                name,
            })
        };
        Ok(StoreSnapshot {
            mark: self.mark(),
            is_suspect: self.is_suspect,
            queued: count("SELECT count(*) FROM queue", &[])?,
            workers,
            objects: names.into_iter().map(snapshot).collect::<rusqlite::Result<_>>()?,
        })
    }
}

/// Returns the end of a lease that begins now.
fn lease_end(context: &WorkerContext) -> i64 {
    i64::try_from(context.lease_end_ms()).unwrap_or(i64::MAX)
}

/// Converts a count or a part of a stamp, which have at most 63 bits.
fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("below 2^63")
}

fn unsigned(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<u64>> {
    let number: Option<i64> = row.get(at)?;
    let out_of_range = |number| rusqlite::Error::IntegralValueOutOfRange(at, number);
    number.map(|number| u64::try_from(number).map_err(|_| out_of_range(number))).transpose()
}

fn stamp(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<OrderStamp>> {
    let out_of_range = |number| rusqlite::Error::IntegralValueOutOfRange(at, signed(number));
    unsigned(row, at)?.map(|number| OrderStamp::from_number(number).ok_or_else(|| out_of_range(number))).transpose()
}

fn object(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Object>> {
    name(row, at, Object::new)
}

fn worker(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<WorkerName>> {
    name(row, at, WorkerName::new)
}

fn name<T>(row: &Row<'_>, at: usize, parse: fn(&str) -> Result<T, ObjectNameError>) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(at)?;
    let out_of_range = |error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error));
    text.map(|text| parse(&text).map_err(out_of_range)).transpose()
}
