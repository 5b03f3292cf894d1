//! The whole shared state as its keys and tables have it, read at once, and its invariants at any time: those of seed
//! 001.

use super::REDIS_PREFIX;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// The state to which the invariants apply.
#[derive(Debug, Default)]
pub struct State {
    /// `OBJ:events` and `OBJ:event.worker`.
    objects: BTreeMap<String, (Vec<String>, Option<String>)>,
    /// `objects.with.events`.
    entries: Vec<String>,
    /// `event.worker:W:object` and `event.worker:W:event`.
    workers: BTreeMap<String, (Option<String>, Vec<String>)>,
}

impl State {
    pub fn of_redis(connection: &mut redis::Connection, objects: &[&str]) -> State {
        let script = redis::Script::new(
            "local p, objects, workers = ARGV[1], {}, {}
             for at = 2, #ARGV do
               local o = p .. ARGV[at]
               objects[at - 1] = { ARGV[at], redis.call('LRANGE', o .. ':events', 0, -1), redis.call('GET', o .. ':event.worker') }
             end
             for at, w in ipairs(redis.call('SMEMBERS', p .. 'event.workers')) do
               local k = p .. 'event.worker:' .. w
               workers[at] = { w, redis.call('LINDEX', k .. ':object', 0), redis.call('LRANGE', k .. ':event', 0, -1) }
             end
             return { objects, redis.call('LRANGE', p .. 'objects.with.events', 0, -1), workers }",
        );
        let mut invocation = script.prepare_invoke();
        invocation.arg(REDIS_PREFIX).arg(objects);
        type Object = (String, Vec<String>, Option<String>);
        type Worker = (String, Option<String>, Vec<String>);
        let (objects, entries, workers): (Vec<Object>, Vec<String>, Vec<Worker>) =
            invocation.invoke(connection).expect("keys of the right kinds");
        let owner = |text: String| text.split_once(' ').expect("token and name").1.to_owned();
        State {
            objects: objects.into_iter().map(|(name, events, by)| (name, (events, by.map(owner)))).collect(),
            entries,
            workers: workers.into_iter().map(|(name, object, events)| (name, (object, events))).collect(),
        }
    }

    pub fn of_sqlite(path: &Path) -> State {
        let mut connection = Connection::open(path).expect("a file");
        let one = connection.transaction().expect("begun");
        let mut state = State::default();
        let each = |sql: &str, read: &mut dyn FnMut(&rusqlite::Row<'_>)| {
            let mut statement = one.prepare(sql).expect("right");
            let mut rows = statement.query([]).expect("readable");
            while let Some(row) = rows.next().expect("readable") {
                read(row);
            }
        };
        each("SELECT name, owner FROM object", &mut |row| {
            state.objects.insert(row.get(0).expect("text"), (Vec::new(), row.get(1).expect("text")));
        });
        each("SELECT object, CAST(payload AS TEXT) FROM event ORDER BY number", &mut |row| {
            let object: String = row.get(0).expect("text");
            state.objects.get_mut(&object).expect("pushed").0.push(row.get(1).expect("text"));
        });
        each("SELECT object FROM queue", &mut |row| state.entries.push(row.get(0).expect("text")));
        each("SELECT name, object FROM worker", &mut |row| {
            state.workers.insert(row.get(0).expect("text"), (row.get(1).expect("text"), Vec::new()));
        });
        each("SELECT worker, CAST(payload AS TEXT) FROM process", &mut |row| {
            let worker: String = row.get(0).expect("text");
            state.workers.get_mut(&worker).expect("known").1.push(row.get(1).expect("text"));
        });
        state
    }

    /// Checks the four invariants; the first one also counts an owner.
    pub fn check(&self) {
        for (object, (events, owner)) in &self.objects {
            let holders = || self.workers.iter().filter(|(_, (held, _))| held.as_ref() == Some(object));
            let mains = events.iter().filter(|event| event.starts_with("main")).count();
            let entries = self.entries.iter().filter(|entry| *entry == object).count();
            assert!(owner.is_some() || mains <= entries + holders().count(), "invariant 1 of {object}: {self:?}");
            if let Some(owner) = owner {
                assert!(holders().any(|(name, _)| name == owner), "invariant 2 of {object}: {self:?}");
            }
            for (name, (_, batch)) in holders() {
                assert!(owner.as_ref() == Some(name) || batch.is_empty(), "invariant 3 of {object}: {self:?}");
                let is_queued = batch.iter().any(|event| events.contains(event));
                assert!(!is_queued, "invariant 4 of {object}: {self:?}");
            }
        }
    }

    /// Returns whether everything was sent and recorded.
    pub fn is_drained(&self) -> bool {
        self.entries.is_empty() && self.workers.values().all(|(object, _)| object.is_none())
    }
}
