//! The journal of events in a SQLite file, which `sqlite3` opens as well.
//!
//! | table | a row is |
//! |---|---|
//! | `event` | an event; `arrival` is the order in which this peer learned of them. A JSON payload is text, a binary one a blob, with its type's name in `payload_type` |
//! | `type` | an event type, as the subject on which its events travel |
//! | `server` | a server with the last session of it that was ever stored |
//!
//! Times are microseconds since 1970. What was appended is in the file, and survives a crash of the host, when [`Journal::append`]
//! returns: WAL with `synchronous=FULL` (<https://sqlite.org/wal.html>).

use super::error::{OpenError, StoreError};
use crate::event::model::{Event, EventId, Json, Payload, ServerId};
use crate::event::store::{Answer, Answering, By, Journal, LastSession, OfServer, Query, Series};
use crate::event::timestamp::Timestamp;
use crate::subject::Subject;
use crate::subject::event_type::{EventType, TypePattern};
use bytes::Bytes;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, Row, Transaction, TransactionBehavior, params, params_from_iter};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Marks a file as ours, in its header: "sqca".
const APPLICATION_ID: i32 = 0x7371_6361;
/// Of the tables; a greater one is of a later program.
const VERSION: i32 = 1;
/// What every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Types whose numbers are remembered.
const TYPES_MAX: usize = 65_536;
/// Types of one question that are looked up one by one; for more of them all events are gone through.
const MERGED_TYPES_MAX: usize = 256;
/// Prepared statements that are kept.
const STATEMENTS: usize = 64;

const SCHEMA: &str = "
    CREATE TABLE type (number INTEGER PRIMARY KEY, subject TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE server (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, time INTEGER NOT NULL) STRICT;
    CREATE TABLE event (
        arrival INTEGER PRIMARY KEY,
        server INTEGER NOT NULL,
        session INTEGER NOT NULL,
        instance INTEGER NOT NULL,
        type INTEGER NOT NULL REFERENCES type (number),
        time INTEGER NOT NULL,
        source_time INTEGER,
        payload_type TEXT,
        payload ANY
    ) STRICT;
    CREATE UNIQUE INDEX event_id ON event (server, session, instance);
    CREATE INDEX event_type ON event (type, time);
    CREATE INDEX event_time ON event (time);
    CREATE INDEX event_source_time ON event (source_time) WHERE source_time IS NOT NULL;
";

/// The columns that [`event`] reads, of `event` and `type`.
const COLUMNS: &str =
    "e.arrival, e.server, e.session, e.instance, t.subject, e.time, e.source_time, e.payload_type, e.payload";
const TABLES: &str = "event e JOIN type t ON t.number = e.type";

/// A journal in a file.
#[derive(Debug)]
pub struct SqliteJournal {
    connection: Connection,
    /// Numbers of types.
    types: HashMap<Subject, i64>,
    /// The arrival of the next event.
    next: i64,
}

impl SqliteJournal {
    /// Opens the file, or makes it. Who calls it sees to it that only one journal writes to the file.
    ///
    /// # Errors
    /// It is none of ours, damaged, of a later program, or the system refuses it; nothing is changed then.
    pub fn open(path: &Path) -> Result<SqliteJournal, OpenError> {
        check_head(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| OpenError::of_sqlite(path, error);
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        check_version(path, &connection)?;
        configure(&connection).map_err(failed)?;
        make_tables(&mut connection).map_err(failed)?;
        check_length(path, &connection)?;
        let next = connection
            .query_row("SELECT coalesce(max(arrival), 0) + 1 FROM event", [], |row| row.get(0))
            .map_err(failed)?;
        Ok(SqliteJournal { connection, types: HashMap::new(), next })
    }

    /// A second view of the same file, for questions only.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn reader(path: &Path) -> Result<SqliteReader, OpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| OpenError::of_sqlite(path, error);
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(SqliteReader { connection })
    }
}

/// A view of a journal that another thread writes. It sees what was appended before it is asked.
#[derive(Debug)]
pub struct SqliteReader {
    connection: Connection,
}

impl SqliteReader {
    /// Answers a question that makes sense.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn query(&mut self, query: &Query) -> Result<Answer, StoreError> {
        answer(&self.connection, query)
    }
}

impl Journal for SqliteJournal {
    type Error = StoreError;

    fn last_session(&mut self, server: ServerId) -> Result<LastSession, StoreError> {
        let mut found = self.connection.prepare_cached("SELECT session, time FROM server WHERE id = ?")?;
        let mut rows = found.query([server.0])?;
        match rows.next()? {
            Some(row) => Ok(LastSession { session: unsigned(row.get(0)?)?, timestamp: timestamp(row.get(1)?)? }),
            None => Ok(LastSession::NONE),
        }
    }

    fn append(&mut self, events: &[Event]) -> Result<usize, StoreError> {
        let SqliteJournal { connection, types, next } = self;
        let before = *next;
        let appended = append_all(connection, types, next, events);
        if appended.is_err() {
            // What was rolled back may have numbered types.
            types.clear();
            *next = before;
        }
        appended
    }

    fn query(&mut self, query: &Query) -> Result<Answer, StoreError> {
        answer(&self.connection, query)
    }
}

/// Whether the file, if there is one that holds anything, begins as SQLite files do. Nothing but that opens it: SQLite may write to what it opens.
fn check_head(path: &Path) -> Result<(), OpenError> {
    let system = |error| OpenError::System { path: path.to_owned(), error };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
    };
    if !file.metadata().map_err(system)?.is_file() {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(MAGIC.len() as u64).read_to_end(&mut head).map_err(system)?;
    match head.len() {
        // A crash before anything was written to a new file.
        0 => Ok(()),
        _ if head == MAGIC => Ok(()),
        _ => Err(OpenError::Foreign(path.to_owned())),
    }
}

/// Whether it is ours, and of no later program, or has no content yet.
fn check_version(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let failed = |error| OpenError::of_sqlite(path, error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(failed);
    if number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(());
    }
    if number("PRAGMA application_id")? != APPLICATION_ID {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    match number("PRAGMA user_version")? {
        VERSION => Ok(()),
        version => Err(OpenError::Version { path: path.to_owned(), version, known: VERSION }),
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.pragma_update(None, "wal_autocheckpoint", 8192)
}

/// Makes the tables and what marks the file as ours, all or nothing, unless they are there.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i32>(0))? == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

/// Whether the file, with what waits beside it written back, is as long as it says.
fn check_length(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let failed = |error| OpenError::of_sqlite(path, error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed);
    number("PRAGMA wal_checkpoint(TRUNCATE)")?;
    let wanted = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
    let length = fs::metadata(path).map_err(|error| OpenError::System { path: path.to_owned(), error })?.len();
    if length < wanted.unsigned_abs() {
        return Err(OpenError::Truncated { path: path.to_owned(), bytes: length, wanted: wanted.unsigned_abs() });
    }
    Ok(())
}

fn append_all(
    connection: &mut Connection,
    types: &mut HashMap<Subject, i64>,
    next: &mut i64,
    events: &[Event],
) -> Result<usize, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut appended = 0;
    let mut last: BTreeMap<ServerId, (i64, i64)> = BTreeMap::new();
    {
        let mut insert = transaction.prepare_cached(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (server, session, instance) DO NOTHING",
        )?;
        for event in events {
            let (session, instance) = (signed(event.id.session)?, signed(event.id.instance)?);
            let number = type_number(&transaction, types, event.event_type.subject())?;
            let (payload_type, payload) = match &event.payload {
                None => (None, ValueRef::Null),
                Some(Payload::Json(json)) => (None, ValueRef::Text(json.as_str().as_bytes())),
                Some(Payload::Binary { type_name, bytes }) => (Some(&**type_name), ValueRef::Blob(bytes)),
            };
            let time = event.timestamp.as_micros();
            let count = insert.execute(params![
                *next,
                event.id.server.0,
                session,
                instance,
                number,
                time,
                event.source_timestamp.map(Timestamp::as_micros),
                payload_type,
                rusqlite::types::ToSqlOutput::Borrowed(payload),
            ])?;
            if count == 1 {
                *next += 1;
                appended += 1;
                last.insert(event.id.server, (session, time));
            }
        }
        let mut upsert = transaction.prepare_cached(
            "INSERT INTO server VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE \
             SET session = max(session, excluded.session), time = max(time, excluded.time)",
        )?;
        for (server, (session, time)) in last {
            upsert.execute(params![server.0, session, time])?;
        }
    }
    transaction.commit()?;
    Ok(appended)
}

/// The number of a type; gives it one if it has none.
fn type_number(
    transaction: &Transaction<'_>,
    types: &mut HashMap<Subject, i64>,
    subject: &Subject,
) -> Result<i64, StoreError> {
    if let Some(number) = types.get(subject) {
        return Ok(*number);
    }
    let known = |transaction: &Transaction<'_>| -> rusqlite::Result<Option<i64>> {
        let mut find = transaction.prepare_cached("SELECT number FROM type WHERE subject = ?")?;
        let mut rows = find.query([subject.as_str()])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    };
    let number = match known(transaction)? {
        Some(number) => number,
        None => {
            transaction.prepare_cached("INSERT INTO type (subject) VALUES (?)")?.execute([subject.as_str()])?;
            transaction.last_insert_rowid()
        }
    };
    if TYPES_MAX <= types.len() {
        types.clear();
    }
    types.insert(subject.detached(), number);
    Ok(number)
}

fn answer(connection: &Connection, query: &Query) -> Result<Answer, StoreError> {
    let mut answering = Answering::new(query);
    match query {
        Query::Latest(patterns) => latest(connection, patterns.as_deref(), &mut answering)?,
        Query::Series(series) => self::series(connection, series, &mut answering)?,
        Query::Server(of_server) => self::of_server(connection, of_server, &mut answering)?,
    }
    Ok(answering.end())
}

/// The numbers of the types that one of the patterns matches, or of all, in the order of their subjects.
fn matching(connection: &Connection, patterns: Option<&[TypePattern]>) -> Result<Vec<i64>, StoreError> {
    let mut behind =
        connection.prepare_cached("SELECT number, subject FROM type WHERE ? <= subject ORDER BY subject")?;
    let mut found = BTreeMap::new();
    let all = [TypePattern::all()];
    for pattern in patterns.unwrap_or(&all) {
        let prefix = pattern.literal_prefix();
        let mut rows = behind.query([prefix])?;
        while let Some(row) = rows.next()? {
            let event_type = event_type(row.get_ref(1)?)?;
            if !event_type.subject().as_str().starts_with(prefix) {
                break;
            }
            if pattern.matches(&event_type) {
                found.insert(event_type, row.get(0)?);
            }
        }
    }
    Ok(found.into_values().collect())
}

fn latest(
    connection: &Connection,
    patterns: Option<&[TypePattern]>,
    answering: &mut Answering,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE e.type = ? ORDER BY e.time DESC, e.arrival DESC LIMIT 1");
    let mut find = connection.prepare_cached(&sql)?;
    for number in matching(connection, patterns)? {
        let mut rows = find.query([number])?;
        if let Some(row) = rows.next()?
            && !answering.take(event(row)?)
        {
            break;
        }
    }
    Ok(())
}

fn of_server(connection: &Connection, of_server: &OfServer, answering: &mut Answering) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE e.server = ? AND (e.session, e.instance) > (?, ?) ORDER BY e.session, e.instance"
    );
    let place = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (session, instance) = of_server.after.map_or((0, 0), |after| (place(after.session), place(after.instance)));
    let mut find = connection.prepare_cached(&sql)?;
    let mut rows = find.query(params![of_server.server.0, session, instance])?;
    while let Some(row) = rows.next()? {
        if !answering.take(event(row)?) {
            break;
        }
    }
    Ok(())
}

/// Where an event stands in a series: what orders it, its timestamp and its arrival.
type Place = (i64, i64, i64);

fn series(connection: &Connection, series: &Series, answering: &mut Answering) -> Result<(), StoreError> {
    let types = series.types.as_deref().map(|patterns| matching(connection, Some(patterns))).transpose()?;
    let after = match series.after.map(|after| place(connection, series, types.as_deref(), after)).transpose()? {
        Some(None) => return Ok(()),
        Some(after) => after,
        None => None,
    };
    // One more than is wanted, which tells whether there are more.
    let wanted = answering.room() + 1;
    let places = match &types {
        Some(types) if series.by == By::Time && types.len() <= MERGED_TYPES_MAX => {
            merged(connection, series, types, after, wanted)?
        }
        types => scanned(connection, series, types.as_deref(), after, wanted)?,
    };
    let mut find = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM {TABLES} WHERE e.arrival = ?"))?;
    for (.., arrival) in places {
        let mut rows = find.query([arrival])?;
        // Retention may have taken it meanwhile.
        if let Some(row) = rows.next()?
            && !answering.take(event(row)?)
        {
            break;
        }
    }
    Ok(())
}

/// The place of an event in the series; `None` if it is not in it.
fn place(
    connection: &Connection,
    series: &Series,
    types: Option<&[i64]>,
    id: EventId,
) -> Result<Option<Place>, StoreError> {
    let (Ok(session), Ok(instance)) = (signed(id.session), signed(id.instance)) else { return Ok(None) };
    let mut find = connection.prepare_cached(
        "SELECT time, source_time, arrival, type FROM event WHERE server = ? AND session = ? AND instance = ?",
    )?;
    let mut rows = find.query(params![id.server.0, session, instance])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (time, source_time, number) = (row.get(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, i64>(3)?);
    let key = if series.by == By::Time { Some(time) } else { source_time };
    let is_meant = types.is_none_or(|types| types.contains(&number))
        && series.time.contains(Some(timestamp(time)?))
        && series.source_time.contains(source_time.map(timestamp).transpose()?);
    key.filter(|_| is_meant).map(|key| Ok((key, time, row.get(2)?))).transpose()
}

/// The places of the first events of each of the types, put together.
fn merged(
    connection: &Connection,
    series: &Series,
    types: &[i64],
    after: Option<Place>,
    wanted: usize,
) -> Result<Vec<Place>, StoreError> {
    let (sql, mut values) = places_sql(series, after, "type = ?");
    let mut find = connection.prepare_cached(&format!("{sql} LIMIT {wanted}"))?;
    let mut places = Vec::new();
    for number in types {
        values[0] = Value::Integer(*number);
        let mut rows = find.query(params_from_iter(&values))?;
        while let Some(row) = rows.next()? {
            places.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    places.sort_unstable_by(|a: &Place, b| if series.is_descending { b.cmp(a) } else { a.cmp(b) });
    places.truncate(wanted);
    Ok(places)
}

/// The places of the first events, found by going through all in their order.
fn scanned(
    connection: &Connection,
    series: &Series,
    types: Option<&[i64]>,
    after: Option<Place>,
    wanted: usize,
) -> Result<Vec<Place>, StoreError> {
    let types: Option<HashSet<i64>> = types.map(|types| types.iter().copied().collect());
    let (sql, values) = places_sql(series, after, "? IS NULL");
    let mut find = connection.prepare_cached(&sql)?;
    let mut rows = find.query(params_from_iter(&values))?;
    let mut places = Vec::new();
    while places.len() < wanted
        && let Some(row) = rows.next()?
    {
        let number: i64 = row.get(3)?;
        if types.as_ref().is_none_or(|types| types.contains(&number)) {
            places.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    Ok(places)
}

/// The question for places, and its values; the first value, NULL so far, belongs to the condition.
fn places_sql(series: &Series, after: Option<Place>, condition: &str) -> (String, Vec<Value>) {
    let key = if series.by == By::Time { "time" } else { "source_time" };
    let mut sql = format!("SELECT {key}, time, arrival, type FROM event WHERE {condition}");
    let mut values = vec![Value::Null];
    let mut put = |part: &str, more: &[i64]| {
        sql.push_str(part);
        values.extend(more.iter().map(|value| Value::Integer(*value)));
    };
    if series.by == By::SourceTime {
        put(" AND source_time IS NOT NULL", &[]);
    }
    for (bound, part) in [
        (series.time.from, " AND time >= ?"),
        (series.time.to, " AND time <= ?"),
        (series.source_time.from, " AND source_time >= ?"),
        (series.source_time.to, " AND source_time <= ?"),
    ] {
        bound.into_iter().for_each(|bound| put(part, &[bound.as_micros()]));
    }
    let (behind, order) = if series.is_descending { ("<", "DESC") } else { (">", "ASC") };
    if let Some((at, time, arrival)) = after {
        // The first part lets the index find the place.
        put(&format!(" AND {key} {behind}= ? AND ({key}, time, arrival) {behind} (?, ?, ?)"), &[at, at, time, arrival]);
    }
    let first = if series.by == By::Time { String::new() } else { format!("source_time {order}, ") };
    sql.push_str(&format!(" ORDER BY {first}time {order}, arrival {order}"));
    (sql, values)
}

/// The event of a row of [`COLUMNS`].
fn event(row: &Row<'_>) -> Result<Event, StoreError> {
    let server = u32::try_from(row.get::<_, i64>(1)?).map_err(|_| StoreError::damaged("a server"))?;
    let id = EventId { server: ServerId(server), session: unsigned(row.get(2)?)?, instance: unsigned(row.get(3)?)? };
    let payload = match (row.get_ref(8)?, row.get::<_, Option<String>>(7)?) {
        (ValueRef::Null, None) => None,
        (ValueRef::Text(text), None) => {
            let json =
                Json::from_bytes(Bytes::copy_from_slice(text)).map_err(|_| StoreError::damaged("a JSON payload"))?;
            Some(Payload::Json(json))
        }
        (ValueRef::Blob(bytes), Some(type_name)) => {
            Some(Payload::Binary { type_name: type_name.into(), bytes: Bytes::copy_from_slice(bytes) })
        }
        _ => return Err(StoreError::damaged("a payload")),
    };
    Ok(Event {
        id,
        event_type: event_type(row.get_ref(4)?)?,
        timestamp: timestamp(row.get(5)?)?,
        source_timestamp: row.get::<_, Option<i64>>(6)?.map(timestamp).transpose()?,
        payload,
    })
}

fn event_type(value: ValueRef<'_>) -> Result<EventType, StoreError> {
    let subject = value.as_bytes().ok().and_then(|bytes| Subject::from_bytes(Bytes::copy_from_slice(bytes)).ok());
    subject.and_then(|subject| EventType::of_subject(&subject)).ok_or_else(|| StoreError::damaged("an event type"))
}

fn timestamp(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_micros(micros).map_err(|_| StoreError::damaged("a time"))
}

fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::damaged("an id"))
}

/// A part of an id as SQLite counts: to 2^63 - 1.
fn signed(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::Registration;
    use crate::event::registrar::Registrar;
    use crate::event::store::Span;
    use crate::event::store::memory::MemoryJournal;
    use crate::rng::Rng;
    use std::io::{Seek, SeekFrom, Write};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory that goes away with it.
    struct Dir(PathBuf);

    impl Dir {
        fn new() -> Dir {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("seqcast-journal-{}-{number}", std::process::id()));
            fs::create_dir(&dir).unwrap();
            Dir(dir)
        }

        fn file(&self) -> PathBuf {
            self.0.join("events.db")
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    const TYPES: [&str; 7] = ["a", "a/b", "a/b/c", "ab", "x.y/%", "", "z/"];
    const PATTERNS: [&str; 9] = ["*", "a/*", "a/?", "a", "?", "?/b/*", "x.y/*", "", "none/?"];

    fn registration(rng: &mut Rng) -> Registration {
        let bytes = |rng: &mut Rng| Bytes::from(vec![b'0'; rng.below(20) as usize]);
        let payload = match rng.below(3) {
            0 => None,
            1 => Some(Payload::Json(Json::from_bytes(format!("[{}]", rng.below(9)).into()).unwrap())),
            _ => Some(Payload::Binary { type_name: ["", "t ü"][rng.below(2) as usize].into(), bytes: bytes(rng) }),
        };
        Registration {
            event_type: TYPES[rng.below(TYPES.len() as u64) as usize].parse().unwrap(),
            source_timestamp: rng.chance(0.6).then(|| at(rng.below(8) as i64 - 4)),
            payload,
        }
    }

    fn span(rng: &mut Rng) -> Span {
        let mut bound = |low: u64| rng.chance(0.3).then(|| at((low + rng.below(6)) as i64 - 3));
        Span { from: bound(0), to: bound(5) }
    }

    fn draw_query(rng: &mut Rng, events: &[Event]) -> Query {
        let types = rng.chance(0.6).then(|| {
            let count = rng.below(4);
            (0..count).map(|_| PATTERNS[rng.below(PATTERNS.len() as u64) as usize].parse().unwrap()).collect()
        });
        let limit = rng.chance(0.5).then(|| rng.below(12) as usize);
        let after = rng.chance(0.4).then(|| match rng.chance(0.9) && !events.is_empty() {
            true => events[rng.below(events.len() as u64) as usize].id,
            false => EventId { server: ServerId(1), session: rng.below(9), instance: u64::MAX },
        });
        match rng.below(4) {
            0 => Query::Latest(types),
            1 => {
                let server = after.map_or(ServerId(rng.below(4) as u32), |after| after.server);
                Query::Server(OfServer { server, after, limit })
            }
            _ => Query::Series(Series {
                types,
                time: span(rng),
                source_time: if rng.chance(0.3) { span(rng) } else { Span::default() },
                by: if rng.chance(0.5) { By::Time } else { By::SourceTime },
                is_descending: rng.chance(0.5),
                after,
                limit,
            }),
        }
    }

    #[test]
    fn it_answers_as_its_twin_in_memory_does() {
        let mut found = 0;
        for seed in 0..12 {
            let (dir, mut rng) = (Dir::new(), Rng::new(seed));
            let mut twin = MemoryJournal::default();
            let mut journal = SqliteJournal::open(&dir.file()).unwrap();
            let mut reader = SqliteJournal::reader(&dir.file()).unwrap();
            let mut servers: Vec<Registrar> = (1..4).map(|id| Registrar::new(ServerId(id), 0, at(-3))).collect();
            for _ in 0..30 {
                let mut events = Vec::new();
                for server in &mut servers {
                    let requested = (0..rng.below(4)).map(|_| registration(&mut rng)).collect();
                    events.extend(server.register(at(rng.below(6) as i64 - 3), requested));
                }
                // Some come again, alone or with new ones.
                if !twin.events().is_empty() && rng.chance(0.3) {
                    let again = twin.events()[rng.below(twin.events().len() as u64) as usize].clone();
                    events.insert(0, again);
                }
                assert_eq!(journal.append(&events), Ok(twin.append(&events).unwrap()));
                if rng.chance(0.2) {
                    drop(journal);
                    journal = SqliteJournal::open(&dir.file()).unwrap();
                }
                for _ in 0..20 {
                    let query = draw_query(&mut rng, twin.events());
                    if query.check().is_err() {
                        continue;
                    }
                    let expected = twin.query(&query).unwrap();
                    found += expected.events.len();
                    assert_eq!(journal.query(&query).as_ref(), Ok(&expected), "seed {seed}: {query:?}");
                    assert_eq!(reader.query(&query).as_ref(), Ok(&expected), "seed {seed}: {query:?}");
                }
                for id in 0..5 {
                    assert_eq!(journal.last_session(ServerId(id)), Ok(twin.last_session(ServerId(id)).unwrap()));
                }
            }
        }
        assert!(10_000 < found, "{found} events found");
    }

    fn some_events(count: usize) -> Vec<Event> {
        let payload = Payload::Json(Json::from_bytes(format!("\"{}\"", "x".repeat(254)).into()).unwrap());
        let one = || Registration {
            event_type: "a/b".parse().unwrap(),
            source_timestamp: None,
            payload: Some(payload.clone()),
        };
        Registrar::new(ServerId(1), 0, Timestamp::MIN).register(at(5), (0..count).map(|_| one()).collect())
    }

    #[test]
    fn many_types_are_gone_through_in_the_same_order() {
        let dir = Dir::new();
        let mut journal = SqliteJournal::open(&dir.file()).unwrap();
        let mut twin = MemoryJournal::default();
        let registration = |number: usize| Registration {
            event_type: format!("a/{}", number % 300).parse().unwrap(),
            source_timestamp: Some(at((number % 7) as i64)),
            payload: None,
        };
        let mut registrar = Registrar::new(ServerId(1), 0, Timestamp::MIN);
        for session in 0..4 {
            let events = registrar.register(at(session), (0..400).map(registration).collect());
            assert_eq!(journal.append(&events), Ok(400));
            twin.append(&events).unwrap();
        }
        for (is_descending, by) in
            [(false, By::Time), (true, By::Time), (false, By::SourceTime), (true, By::SourceTime)]
        {
            let after = Some("1/2/17".parse().unwrap());
            let types = Some(vec!["a/?".parse().unwrap()]);
            let query = Query::Series(Series { types, is_descending, by, after, limit: Some(50), ..Series::default() });
            assert_eq!(journal.query(&query), Ok(twin.query(&query).unwrap()), "{query:?}");
        }
    }

    #[test]
    fn an_answer_has_limits_of_its_own() {
        let dir = Dir::new();
        let mut journal = SqliteJournal::open(&dir.file()).unwrap();
        journal.append(&some_events(crate::event::store::ANSWER_EVENTS_MAX + 1)).unwrap();
        let answer = journal.query(&Query::Series(Series { limit: Some(1_000_000), ..Series::default() })).unwrap();
        assert_eq!((answer.events.len(), answer.more_follows), (crate::event::store::ANSWER_EVENTS_MAX, true));
        let large = |number| Registration {
            event_type: format!("large/{number}").parse().unwrap(),
            source_timestamp: None,
            payload: Some(Payload::Binary { type_name: "".into(), bytes: vec![0; 3 << 20].into() }),
        };
        let events = Registrar::new(ServerId(2), 0, Timestamp::MIN).register(at(9), (0..5).map(large).collect());
        journal.append(&events).unwrap();
        let of_server = Query::Server(OfServer { server: ServerId(2), after: None, limit: None });
        let answer = journal.query(&of_server).unwrap();
        assert_eq!((answer.events.len(), answer.more_follows), (3, true));
    }

    /// The file must be refused with this text, and stay as it is.
    fn refused(dir: &Dir, part: &str) {
        let before = fs::read(dir.file()).unwrap();
        let error = SqliteJournal::open(&dir.file()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("events.db"), "{error}");
        assert!(fs::read(dir.file()).unwrap() == before, "{part}: the file was changed");
    }

    #[test]
    fn what_is_no_whole_journal_of_ours_is_refused_and_left_alone() {
        let dir = Dir::new();
        fs::write(dir.file(), "parameters:\n  port: 7501\n").unwrap();
        refused(&dir, "is no journal of events");
        fs::write(dir.file(), "x").unwrap();
        refused(&dir, "is no journal of events");
        // A crash right after the file was made.
        fs::write(dir.file(), "").unwrap();
        drop(SqliteJournal::open(&dir.file()).unwrap());
        // Someone else's database.
        fs::remove_file(dir.file()).unwrap();
        let other = Connection::open(dir.file()).unwrap();
        other.execute_batch("CREATE TABLE event (x)").unwrap();
        drop(other);
        refused(&dir, "is no journal of events");
        // Of a later program.
        fs::remove_file(dir.file()).unwrap();
        SqliteJournal::open(&dir.file()).unwrap().append(&some_events(2000)).unwrap();
        let later = Connection::open(dir.file()).unwrap();
        later.pragma_update(None, "user_version", VERSION + 1).unwrap();
        drop(later);
        refused(&dir, "has version 2, this program knows 1");
        let back = Connection::open(dir.file()).unwrap();
        back.pragma_update(None, "user_version", VERSION).unwrap();
        drop(back);
        assert_eq!(SqliteJournal::open(&dir.file()).unwrap().query(&Query::Latest(None)).unwrap().events.len(), 1);
        // Cut off.
        let whole = fs::read(dir.file()).unwrap();
        for (missing, part) in [(100, "bytes; nothing was changed"), (5000, "is damaged")] {
            fs::write(dir.file(), &whole[..whole.len() - missing]).unwrap();
            refused(&dir, part);
        }
        fs::write(dir.file(), &whole[..60]).unwrap();
        refused(&dir, "events.db");
        fs::write(dir.file(), &whole).unwrap();
        SqliteJournal::open(&dir.file()).unwrap();
    }

    #[test]
    fn damage_is_told_when_it_is_met_and_nothing_panics() {
        let dir = Dir::new();
        SqliteJournal::open(&dir.file()).unwrap().append(&some_events(500)).unwrap();
        let whole = fs::read(dir.file()).unwrap();
        let (mut rng, mut told) = (Rng::new(1), 0);
        for _ in 0..200 {
            fs::write(dir.file(), &whole).unwrap();
            let mut file = fs::OpenOptions::new().write(true).open(dir.file()).unwrap();
            for _ in 0..3 {
                file.seek(SeekFrom::Start(rng.below(whole.len() as u64 - 64))).unwrap();
                file.write_all(&rng.next_u64().to_be_bytes()).unwrap();
            }
            drop(file);
            let Ok(mut journal) = SqliteJournal::open(&dir.file()) else {
                told += 1;
                continue;
            };
            for query in [Query::Latest(None), Query::Series(Series::default())] {
                told += u32::from(journal.query(&query).is_err());
            }
            told += u32::from(journal.append(&some_events(501)).is_err());
        }
        assert!(50 < told, "damage was told {told} times");
    }

    #[test]
    fn a_full_disk_refuses_what_is_appended_whole_and_takes_it_later() {
        let dir = Dir::new();
        let mut journal = SqliteJournal::open(&dir.file()).unwrap();
        let events = some_events(1000);
        assert_eq!(journal.append(&events[..10]), Ok(10));
        let pages: i64 = journal.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        journal.connection.pragma_update(None, "max_page_count", pages + 3).unwrap();
        assert_eq!(journal.append(&events), Err(StoreError::Full));
        let all = Query::Server(OfServer { server: ServerId(1), after: None, limit: None });
        assert_eq!(journal.query(&all).unwrap().events, events[..10]);
        journal.connection.pragma_update(None, "max_page_count", 1_000_000).unwrap();
        assert_eq!(journal.append(&events), Ok(990));
        assert_eq!(journal.query(&all).unwrap().events, events);
    }
}
