//! Tests of the journal file against its twin in memory, and with files that are not ours.

mod crash;
mod vfs;

use super::*;
use crate::event::model::{EventId, Json, Payload, Registration};
use crate::event::sequencer::EventSequencer;
use crate::event::store::memory::MemoryJournal;
use crate::event::store::retention::{Retention, Rule};
use crate::event::store::{Series, SeriesOrder, ServerQuery, TimeSpan};
use crate::event::timestamp::Timestamp;
use crate::rng::Rng;
use crate::subject::event_type::TypePattern;
use bytes::Bytes;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A directory that is deleted on drop.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        Dir::below(&std::env::temp_dir())
    }

    /// Creates a directory in memory, if the system has one: for tests that must be fast and need no disk.
    fn in_memory() -> Dir {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Dir::below(memory) } else { Dir::new() }
    }

    fn below(parent: &Path) -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("seqcast-journal-{}-{number}", std::process::id()));
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

fn span(rng: &mut Rng) -> TimeSpan {
    let mut bound = |low: u64| rng.chance(0.3).then(|| at((low + rng.below(6)) as i64 - 3));
    TimeSpan { from: bound(0), to: bound(5) }
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
            Query::Server(ServerQuery { server, after, limit })
        }
        _ => Query::Series(Series {
            types,
            time: span(rng),
            source_time: if rng.chance(0.3) { span(rng) } else { TimeSpan::default() },
            by: if rng.chance(0.5) { SeriesOrder::Time } else { SeriesOrder::SourceTime },
            is_descending: rng.chance(0.5),
            after,
            limit,
        }),
    }
}

fn draw_retention(rng: &mut Rng) -> Retention {
    let mut limit = |below: u64| rng.chance(0.4).then(|| rng.below(below));
    let (ages, counts, sizes) = ([limit(8), limit(8)], [limit(40), limit(40)], [limit(300), limit(300)]);
    let rule = |index: usize, pattern: &str| Rule {
        pattern: pattern.parse().unwrap(),
        age: ages[index].map(Duration::from_micros),
        count: counts[index],
        bytes: sizes[index],
    };
    let pattern = PATTERNS[rng.below(PATTERNS.len() as u64) as usize];
    let second = PATTERNS[rng.below(PATTERNS.len() as u64) as usize];
    Retention { rules: vec![rule(0, pattern), rule(1, second)] }
}

#[test]
fn random_history_is_answered_as_in_memory() {
    let (mut found, mut removed) = (0, 0);
    // Each history asks 600 queries in 30 states of its journal. The first empties its tail with each append, the last never.
    for (seed, tail_events) in (0..).zip([1, 4, 32, 256]) {
        let (dir, mut rng, mut slices) = (Dir::new(), Rng::new(seed), Rng::new(seed));
        let mut twin = MemoryJournal::default();
        let mut journal = SqliteJournal::open(&dir.file()).unwrap();
        let mut reader = SqliteJournal::reader(&dir.file()).unwrap();
        journal.tail_events = tail_events;
        let retention = draw_retention(&mut rng);
        let mut servers: Vec<EventSequencer> = (1..4).map(|id| EventSequencer::new(ServerId(id), 0, at(-3))).collect();
        for _ in 0..30 {
            let mut events = Vec::new();
            for server in &mut servers {
                let requested = (0..rng.below(4)).map(|_| registration(&mut rng)).collect();
                events.extend(server.register(at(rng.below(6) as i64 - 3), requested));
            }
            // Some events are appended again, alone or with new ones.
            if !twin.events().is_empty() && rng.chance(0.3) {
                let again = twin.events()[rng.below(twin.events().len() as u64) as usize].clone();
                events.insert(0, again);
            }
            assert_eq!(journal.append(&events), Ok(twin.append(&events).unwrap()));
            if rng.chance(0.3) {
                let retention = if rng.chance(0.5) { &retention } else { &draw_retention(&mut rng) };
                let (now, budget) = (at(rng.below(12) as i64 - 3), rng.below(20) as usize);
                let expected = twin.trim(retention, now, budget).unwrap();
                removed += expected.iter().sum::<u64>();
                assert_eq!(journal.trim(retention, now, budget), Ok(expected), "seed {seed}: {retention:?}");
            }
            if rng.chance(0.2) {
                drop(journal);
                journal = SqliteJournal::open(&dir.file()).unwrap();
                journal.tail_events = tail_events;
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
                let slice_rows = slices.between(10, 40) as usize;
                let (sliced, _) = in_slices(&mut reader, &query, slice_rows, |_| {});
                assert_eq!(sliced, expected, "seed {seed}: {query:?} in slices of {slice_rows} rows");
            }
            for id in 0..5 {
                assert_eq!(journal.last_session(ServerId(id)), Ok(twin.last_session(ServerId(id)).unwrap()));
            }
        }
    }
    assert!(3_300 < found && 100 < removed, "{found} events found, {removed} removed");
}

/// A follower resumes after the last event of each server. That event may be in the tail, in the index tables, or
/// removed.
#[test]
fn opened_journal_knows_last_event_of_each_server() {
    let dir = Dir::in_memory();
    let registration = Registration { event_type: "a".parse().unwrap(), source_timestamp: None, payload: None };
    let session = |server, count| {
        EventSequencer::new(ServerId(server), 4, at(0)).register(at(5), vec![registration.clone(); count])
    };
    let rule = |count| Rule { pattern: "a".parse().unwrap(), age: None, count: Some(count), bytes: None };
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    journal.append(&session(1, TAIL_EVENTS + 3)).unwrap();
    journal.append(&session(2, 7)).unwrap();
    let last = |server, instance| EventId { server: ServerId(server), session: 5, instance };
    let check = |journal: &mut SqliteJournal, expected: [EventId; 2]| {
        let mut found = journal.last_events().unwrap();
        found.sort();
        assert_eq!(found, expected);
        for id in expected {
            assert_eq!(journal.last_session(id.server), Ok(LastSession { session: 5, timestamp: at(5) }));
        }
    };
    check(&mut journal, [last(1, TAIL_EVENTS as u64 + 3), last(2, 7)]);
    journal.trim(&Retention { rules: vec![rule(3)] }, at(9), 10_000).unwrap();
    drop(journal);
    check(&mut SqliteJournal::open(&dir.file()).unwrap(), [last(1, 0), last(2, 7)]);
}

/// Answers a query in slices of `slice_rows` rows; returns the number of slices too. `between` is called with the
/// number of slices done.
fn in_slices(
    reader: &mut SqliteReader,
    query: &Query,
    slice_rows: usize,
    mut between: impl FnMut(usize),
) -> (QueryPage, usize) {
    let mut search = QueryCursor::with_slices(query.clone(), slice_rows);
    let mut slices = 1;
    while !reader.advance(&mut search).unwrap() {
        between(slices);
        slices += 1;
        assert!(slices < 10_000, "{query:?} makes no progress");
    }
    (search.end(), slices)
}

/// Queries that scan the whole journal and find little or nothing run in small slices.
#[test]
fn expensive_query_runs_in_slices() {
    let dir = Dir::in_memory();
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    let registration = |number: i64| Registration {
        event_type: format!("a/{number}").parse().unwrap(),
        source_timestamp: Some(at(number % 7)),
        payload: None,
    };
    // All events have the same time, so that only the arrival orders them.
    let events =
        EventSequencer::new(ServerId(1), 0, Timestamp::MIN).register(at(5), (0..5000).map(registration).collect());
    journal.append(&events).unwrap();
    let mut reader = SqliteJournal::reader(&dir.file()).unwrap();
    let types = |patterns: &[&str]| Some(patterns.iter().map(|text| text.parse().unwrap()).collect());
    let late = TimeSpan { from: Some(at(9)), to: None };
    for (query, found, slices_min) in [
        (Query::Latest(types(&["?/?/zzz"])), 0, 50),
        (Query::Latest(types(&["?/?"])), 5000, 1250),
        (Query::Series(Series { types: types(&["?/?/zzz"]), ..Series::default() }), 0, 50),
        (Query::Series(Series { source_time: late, ..Series::default() }), 0, 50),
        (Query::Series(Series { source_time: late, is_descending: true, ..Series::default() }), 0, 50),
        (Query::Series(Series { time: late, by: SeriesOrder::SourceTime, ..Series::default() }), 0, 50),
        (Query::Series(Series { types: types(&["*"]), limit: Some(4), ..Series::default() }), 4, 3),
        // A type that is looked up directly needs no scan.
        (Query::Latest(types(&["a/17", "none/1"])), 1, 1),
        (Query::Series(Series { types: types(&["none"]), by: SeriesOrder::SourceTime, ..Series::default() }), 0, 1),
        (Query::Series(Series { types: types(&["a/17"]), ..Series::default() }), 1, 1),
    ] {
        let (answer, slices) = in_slices(&mut reader, &query, 100, |_| {});
        assert_eq!(answer.events.len(), found, "{query:?}");
        assert!(slices_min <= slices && slices <= 2 * slices_min, "{query:?}: {slices} slices");
    }
}

/// Events that were stored when the query arrived are in the answer once, whatever is appended meanwhile.
#[test]
fn appends_between_slices_repeat_no_event() {
    let dir = Dir::in_memory();
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    journal.tail_events = 64;
    let registration = |number: i64| Registration {
        event_type: format!("a/{}", number % 3).parse().unwrap(),
        source_timestamp: Some(at(number % 7)),
        payload: None,
    };
    let mut sequencer = EventSequencer::new(ServerId(1), 0, Timestamp::MIN);
    let mut reader = SqliteJournal::reader(&dir.file()).unwrap();
    for (by, is_descending) in
        [SeriesOrder::Time, SeriesOrder::SourceTime].into_iter().flat_map(|by| [(by, false), (by, true)])
    {
        let now = i64::try_from(sequencer.session()).unwrap();
        journal.append(&sequencer.register(at(now), (0..200).map(registration).collect())).unwrap();
        let types = Some(vec!["a/*".parse().unwrap()]);
        let query = Query::Series(Series { types, by, is_descending, ..Series::default() });
        let before = journal.query(&query).unwrap().events;
        let (answer, slices) = in_slices(&mut reader, &query, 48, |_| {
            journal.append(&sequencer.register(at(now + 1), (0..5).map(registration).collect())).unwrap();
        });
        let old: Vec<Event> = answer.events.iter().filter(|event| event.timestamp <= at(now)).cloned().collect();
        assert!(3 < slices && old == before, "{query:?}");
    }
}

fn some_events(count: usize) -> Vec<Event> {
    let payload = Payload::Json(Json::from_bytes(format!("\"{}\"", "x".repeat(254)).into()).unwrap());
    let one =
        || Registration { event_type: "a/b".parse().unwrap(), source_timestamp: None, payload: Some(payload.clone()) };
    EventSequencer::new(ServerId(1), 0, Timestamp::MIN).register(at(5), (0..count).map(|_| one()).collect())
}

#[test]
fn many_types_are_scanned_in_the_same_order() {
    let dir = Dir::new();
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    let mut twin = MemoryJournal::default();
    let registration = |number: usize| Registration {
        event_type: format!("a/{}", number % 300).parse().unwrap(),
        source_timestamp: Some(at((number % 7) as i64)),
        payload: None,
    };
    let mut sequencer = EventSequencer::new(ServerId(1), 0, Timestamp::MIN);
    for session in 0..4 {
        let events = sequencer.register(at(session), (0..400).map(registration).collect());
        assert_eq!(journal.append(&events), Ok(400));
        twin.append(&events).unwrap();
    }
    for (is_descending, by) in [
        (false, SeriesOrder::Time),
        (true, SeriesOrder::Time),
        (false, SeriesOrder::SourceTime),
        (true, SeriesOrder::SourceTime),
    ] {
        let after = Some("1/2/17".parse().unwrap());
        let types = Some(vec!["a/?".parse().unwrap()]);
        let query = Query::Series(Series { types, is_descending, by, after, limit: Some(50), ..Series::default() });
        assert_eq!(journal.query(&query), Ok(twin.query(&query).unwrap()), "{query:?}");
    }
}

#[test]
fn answer_ends_at_its_own_limits() {
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
    let events = EventSequencer::new(ServerId(2), 0, Timestamp::MIN).register(at(9), (0..5).map(large).collect());
    journal.append(&events).unwrap();
    let of_server = Query::Server(ServerQuery { server: ServerId(2), after: None, limit: None });
    let answer = journal.query(&of_server).unwrap();
    assert_eq!((answer.events.len(), answer.more_follows), (3, true));
}

/// Checks that the file is refused with this text, and stays unchanged.
fn refused(dir: &Dir, part: &str) {
    let before = fs::read(dir.file()).unwrap();
    let error = SqliteJournal::open(&dir.file()).unwrap_err().to_string();
    assert!(error.contains(part) && error.contains("events.db"), "{error}");
    assert!(fs::read(dir.file()).unwrap() == before, "{part}: the file was changed");
}

#[test]
fn foreign_or_incomplete_file_is_refused_unchanged() {
    let dir = Dir::new();
    fs::write(dir.file(), "parameters:\n  port: 7501\n").unwrap();
    refused(&dir, "is no journal of events");
    fs::write(dir.file(), "x").unwrap();
    refused(&dir, "is no journal of events");
    // A crash occurred right after the file was created.
    fs::write(dir.file(), "").unwrap();
    drop(SqliteJournal::open(&dir.file()).unwrap());
    // The file is another program's database.
    fs::remove_file(dir.file()).unwrap();
    let other = Connection::open(dir.file()).unwrap();
    other.execute_batch("CREATE TABLE event (x)").unwrap();
    drop(other);
    refused(&dir, "is no journal of events");
    // The file is of another version of the program.
    fs::remove_file(dir.file()).unwrap();
    SqliteJournal::open(&dir.file()).unwrap().append(&some_events(2000)).unwrap();
    let later = Connection::open(dir.file()).unwrap();
    later.pragma_update(None, "user_version", SIGNATURE.version + 1).unwrap();
    drop(later);
    refused(&dir, &format!("has version {}, this program knows {}", SIGNATURE.version + 1, SIGNATURE.version));
    let back = Connection::open(dir.file()).unwrap();
    back.pragma_update(None, "user_version", SIGNATURE.version).unwrap();
    drop(back);
    assert_eq!(SqliteJournal::open(&dir.file()).unwrap().query(&Query::Latest(None)).unwrap().events.len(), 1);
    // The file is truncated.
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

/// A crash of the process leaves the file with its WAL. Pages are cut off the file that are in no WAL, or in the WAL
/// too.
#[test]
fn cut_file_opens_only_with_its_wal() {
    let (dir, crashed) = (Dir::new(), Dir::new());
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    let events = some_events(3000);
    journal.append(&events[..2000]).unwrap();
    journal.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let before = fs::metadata(dir.file()).unwrap().len();
    journal.append(&events[2000..]).unwrap();
    let wal = fs::read(sibling_path(&dir.file(), "-wal")).unwrap();
    // The file contains everything as well.
    journal.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    let whole = fs::read(dir.file()).unwrap();
    assert!(before + 200_000 < whole.len() as u64);
    let leave = |file: Option<&[u8]>| {
        drop(fs::remove_file(crashed.file()));
        drop(fs::remove_file(sibling_path(&crashed.file(), "-shm")));
        file.iter().for_each(|file| fs::write(crashed.file(), file).unwrap());
        fs::write(sibling_path(&crashed.file(), "-wal"), &wal).unwrap();
    };
    for length in [before, before + 4096, before + 5000, whole.len() as u64 - 200_000, whole.len() as u64] {
        leave(Some(&whole[..usize::try_from(length).unwrap()]));
        let mut journal = SqliteJournal::open(&crashed.file()).unwrap();
        assert_eq!(journal.last_session(ServerId(1)).unwrap().session, 1, "{length}");
        let integrity: String = journal.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(integrity, "ok", "{length}");
    }
    for missing in [20_000, 200_000] {
        leave(Some(&whole[..usize::try_from(before).unwrap() - missing]));
        refused(&crashed, "bytes; nothing was changed");
        assert!(fs::read(sibling_path(&crashed.file(), "-wal")).unwrap() == wal, "the WAL was changed");
    }
    // SQLite would delete the WAL of a file that is empty or missing.
    for file in [Some(&[][..]), None] {
        leave(file);
        let error = SqliteJournal::open(&crashed.file()).unwrap_err().to_string();
        assert!(error.contains(&format!(" 0 of {} bytes; nothing was changed", whole.len())), "{error}");
        assert!(fs::read(sibling_path(&crashed.file(), "-wal")).unwrap() == wal, "the WAL was changed");
    }
}

/// Without the check SQLite would silently revert to the state before the change.
#[test]
fn changed_wal_is_refused_unchanged() {
    let (dir, crashed) = (Dir::new(), Dir::new());
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    for session in 1..=5 {
        let mut events = some_events(1);
        events[0].id.session = session;
        journal.append(&events).unwrap();
    }
    let mut wal = fs::read(sibling_path(&dir.file(), "-wal")).unwrap();
    fs::copy(dir.file(), crashed.file()).unwrap();
    wal[5000] ^= 1;
    fs::write(sibling_path(&crashed.file(), "-wal"), &wal).unwrap();
    refused(&crashed, "its -wal file does not hold what was written); nothing was changed");
    assert!(fs::read(sibling_path(&crashed.file(), "-wal")).unwrap() == wal, "the WAL was changed");
    wal[5000] ^= 1;
    fs::write(sibling_path(&crashed.file(), "-wal"), &wal).unwrap();
    let mut journal = SqliteJournal::open(&crashed.file()).unwrap();
    assert_eq!(journal.query(&Query::Series(Series::default())).unwrap().events.len(), 5);
}

#[test]
fn damage_is_reported_without_a_panic() {
    let dir = Dir::new();
    SqliteJournal::open(&dir.file()).unwrap().append(&some_events(500)).unwrap();
    let whole = fs::read(dir.file()).unwrap();
    let (mut rng, mut reports) = (Rng::new(1), 0);
    for _ in 0..200 {
        fs::write(dir.file(), &whole).unwrap();
        let mut file = fs::OpenOptions::new().write(true).open(dir.file()).unwrap();
        for _ in 0..3 {
            file.seek(SeekFrom::Start(rng.below(whole.len() as u64 - 64))).unwrap();
            file.write_all(&rng.next_u64().to_be_bytes()).unwrap();
        }
        drop(file);
        let Ok(mut journal) = SqliteJournal::open(&dir.file()) else {
            reports += 1;
            continue;
        };
        for query in [Query::Latest(None), Query::Series(Series::default())] {
            reports += u32::from(journal.query(&query).is_err());
        }
        reports += u32::from(journal.append(&some_events(501)).is_err());
    }
    assert!(50 < reports, "damage was reported {reports} times");
}

/// The row of a type is deleted with its last event, and no new type gets a number that was used before.
#[test]
fn types_without_events_are_removed() {
    let dir = Dir::new();
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    let mut sequencer = EventSequencer::new(ServerId(1), 0, Timestamp::MIN);
    let mut append = |journal: &mut SqliteJournal, time: i64| {
        let one = |number: usize| Registration {
            event_type: format!("a/{}", number % 50).parse().unwrap(),
            source_timestamp: None,
            payload: None,
        };
        let events = sequencer.register(at(time), (0..100).map(one).collect());
        assert_eq!(journal.append(&events), Ok(100));
    };
    let numbers = |journal: &SqliteJournal| -> Vec<i64> {
        let mut find = journal.connection.prepare("SELECT number FROM type ORDER BY number").unwrap();
        find.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let count = Rule { pattern: TypePattern::all(), age: None, count: Some(10), bytes: None };
    let age = Rule { age: Some(Duration::from_micros(3)), count: None, ..count.clone() };
    let (count, age) = (Retention { rules: vec![count] }, Retention { rules: vec![age] });
    append(&mut journal, 1);
    assert_eq!(journal.trim(&count, at(1), 70), Ok(vec![70]));
    assert_eq!(numbers(&journal), (21..=50).collect::<Vec<_>>(), "of 20 types both events are gone");
    assert_eq!(journal.trim(&count, at(1), 70), Ok(vec![20]));
    assert_eq!(numbers(&journal), (41..=50).collect::<Vec<_>>());
    append(&mut journal, 2);
    assert_eq!(numbers(&journal), (41..=90).collect::<Vec<_>>());
    assert_eq!(journal.trim(&age, at(9), 1000), Ok(vec![110]));
    assert_eq!(numbers(&journal), [0; 0]);
    drop(journal);
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    append(&mut journal, 3);
    assert_eq!(numbers(&journal), (91..=140).collect::<Vec<_>>());
    assert_eq!(journal.query(&Query::Latest(None)).unwrap().events.len(), 50);
}

/// The rows contain numbers that no version of this program writes.
#[test]
fn impossible_sums_are_reported_as_damage() {
    let rule = Rule { pattern: TypePattern::all(), age: None, count: Some(3), bytes: None };
    let retention = Retention { rules: vec![rule] };
    for (set, is_corruption) in [
        ("bytes = bytes", false),
        ("bytes = 100", true),
        ("events = 4, first = -9", false),
        ("bytes = -9223372036854775808", true),
        ("events = 9223372036854775807", false),
    ] {
        let dir = Dir::new();
        let mut journal = SqliteJournal::open(&dir.file()).unwrap();
        journal.append(&some_events(10)).unwrap();
        assert_eq!(journal.trim(&retention, at(5), 0), Ok(vec![0]));
        journal.connection.execute(&format!("UPDATE type SET {set}"), []).unwrap();
        drop(journal);
        let mut journal = SqliteJournal::open(&dir.file()).unwrap();
        let trimmed = journal.trim(&retention, at(5), 5);
        assert_eq!(matches!(trimmed, Err(StoreError::Damaged(_))), is_corruption, "{set}: {trimmed:?}");
    }
    let dir = Dir::new();
    let journal = SqliteJournal::open(&dir.file()).unwrap();
    journal.connection.execute("UPDATE filled SET arrival = 9223372036854775806", []).unwrap();
    drop(journal);
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    let error = journal.append(&some_events(1)).unwrap_err().to_string();
    assert!(error.contains("it holds an arrival with an invalid value") && error.contains("restore a copy"), "{error}");
}

#[test]
fn full_disk_refuses_an_append_as_a_whole() {
    let dir = Dir::new();
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    let events = some_events(1000);
    assert_eq!(journal.append(&events[..10]), Ok(10));
    let pages: i64 = journal.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    journal.connection.pragma_update(None, "max_page_count", pages + 3).unwrap();
    assert_eq!(journal.append(&events), Err(StoreError::Full));
    let all = Query::Server(ServerQuery { server: ServerId(1), after: None, limit: None });
    assert_eq!(journal.query(&all).unwrap().events, events[..10]);
    journal.connection.pragma_update(None, "max_page_count", 1_000_000).unwrap();
    assert_eq!(journal.append(&events), Ok(990));
    assert_eq!(journal.query(&all).unwrap().events, events);
}

#[test]
fn open_journal_locks_its_file() {
    let dir = Dir::new();
    let mut journal = SqliteJournal::open(&dir.file()).unwrap();
    assert!(matches!(SqliteJournal::open(&dir.file()), Err(JournalOpenError::InUse(path)) if path == dir.file()));
    // A reader may open it.
    journal.append(&some_events(1)).unwrap();
    assert_eq!(SqliteJournal::reader(&dir.file()).unwrap().query(&Query::Latest(None)).unwrap().events.len(), 1);
    drop(journal);
    SqliteJournal::open(&dir.file()).unwrap();
}
