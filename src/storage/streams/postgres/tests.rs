//! The store against its twin in memory, on a real server: shared, restarted, killed, hung, and databases that must be
//! refused.

use super::*;
use crate::event::model::{Json, ServerId};
use crate::event::stream::model::StreamEvent;
use crate::rng::Rng;
use crate::storage::streams::tests::{at, check_batches, check_beside_twin, new_event, sid};
use crate::wait;
use postgres_server::{PostgresServer, signal};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

#[path = "../../../../tests/support/postgres_server.rs"]
mod postgres_server;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("seqcast-postgres-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn open(url: &str) -> PostgresStreams {
    PostgresStreams::open(url).unwrap()
}

fn main_stream() -> StreamName {
    "main".parse().unwrap()
}

fn event(rng: &mut Rng, server: u32, session: u64) -> NewEvent {
    new_event(rng, EventId { server: ServerId(server), session, instance: 1 }, 5)
}

const ALL: PageBudget = PageBudget { events: 1000, bytes: 1 << 20 };

/// It answers every request as its twin does, also after it was opened again.
#[test]
fn random_steps_match_the_store_in_memory() {
    let dir = Dir::new("twin");
    let server = PostgresServer::start(dir.path());
    let urls: Vec<String> = (0..15).map(|seed| server.schema(&format!("s{seed}"))).collect();
    let open_one = |seed: u64| open(&urls[seed as usize]);
    check_beside_twin(15, open_one, |_, seed, stream, kind, data| {
        let mut application = postgres::Client::connect(&urls[seed as usize], postgres::NoTls).unwrap();
        let mut transaction = application.transaction().unwrap();
        add_event_in(&mut transaction, stream, kind, data).unwrap();
        transaction.commit().unwrap();
    });
    check_batches(|| open(&server.url()));
}

#[test]
fn data_of_any_kind_are_read_unchanged() {
    let dir = Dir::new("data");
    let server = PostgresServer::start(dir.path());
    let mut store = open(&server.url());
    let deep = format!("{}{}", "[".repeat(900), "]".repeat(900));
    let large = format!("\"{}\"", "\u{1f409}x".repeat(1 << 20));
    let texts = [r#""\u0000""#, r#"{"a":1, "a" : 2}"#, r#""\ud800""#, "1e999999", "\n null ", &deep, &large, "3"];
    let mut rng = Rng::new(7);
    let events: Vec<NewEvent> = (1..)
        .zip(texts)
        .map(|(session, text)| NewEvent {
            data: Json::from_bytes(text.to_owned().into()).unwrap(),
            ..event(&mut rng, 1, session)
        })
        .collect();
    store.add(&main_stream(), &events, &[], &StreamLimits::default()).unwrap();
    let mut found = Vec::new();
    loop {
        let after = found.last().map_or(StreamId::START, |event: &StreamEvent| event.id);
        let page = store.read(&main_stream(), after, None, PageBudget { events: 5, bytes: 1000 }).unwrap();
        found.extend(page.events);
        if !page.more_follows {
            break;
        }
    }
    let found: Vec<&str> = found.iter().map(|event| event.data.as_str()).collect();
    assert_eq!(found.len(), texts.len());
    assert!(found == texts);
}

/// Events that two writers add at the same time are read in id order. A reader of an id never finds a smaller new one
/// later.
#[test]
fn concurrent_writers_make_ids_visible_in_order() {
    const EACH: u64 = 300;
    let dir = Dir::new("order");
    let server = PostgresServer::start(dir.path());
    let url = server.schema("shared");
    let add = |number: u32| {
        let url = &url;
        move || {
            // Both create the tables, too.
            let mut store = open(url);
            let mut rng = Rng::new(number.into());
            for session in 1..=EACH {
                store.begin();
                store.add(&main_stream(), &[event(&mut rng, number, session)], &[], &StreamLimits::default()).unwrap();
                store.commit().unwrap();
            }
        }
    };
    thread::scope(|scope| {
        let adding = [scope.spawn(add(1)), scope.spawn(add(2))];
        while server.sql("SELECT count(*) FROM pg_tables WHERE tablename = 'seqcast_consumers'") == "0" {}
        let mut reader = open(&url);
        let (mut after, mut next) = (StreamId::START, 1);
        while next <= 2 * EACH {
            let is_over = adding.iter().all(thread::ScopedJoinHandle::is_finished);
            let page = reader.read(&main_stream(), after, None, ALL).unwrap();
            for event in &page.events {
                assert_eq!(event.id, sid(next));
                next += 1;
            }
            assert!(!is_over || !page.events.is_empty(), "{next} is missing");
            after = page.covered;
        }
    });
}

#[test]
fn restarted_server_holds_every_answered_step() {
    let dir = Dir::new("kill");
    let mut server = PostgresServer::start(dir.path());
    let mut store = open(&server.url());
    let mut rng = Rng::new(3);
    let who: Consumer = "a:X".parse().unwrap();
    let mut next = |store: &mut PostgresStreams, session| {
        store.add(&main_stream(), &[event(&mut rng, 1, session)], &[], &StreamLimits::default())
    };
    assert_eq!(next(&mut store, 1), Ok(vec![Some(sid(1))]));
    store.begin();
    next(&mut store, 2).unwrap();
    server.kill();
    // All of the batch is lost, and each step and the commit report that.
    assert!(matches!(next(&mut store, 3), Err(StreamStoreError::Store(error)) if error.is_transient()));
    assert!(store.contents(&main_stream()).unwrap_err().is_transient());
    assert!(store.commit().unwrap_err().is_transient());
    let away = store.contents(&main_stream()).unwrap_err();
    assert!(matches!(away.fault, StreamFault::Unreachable(_)), "{away}");
    let server = server.restart();
    wait::wait_until("the store connects again", || store.contents(&main_stream()).is_ok());
    assert_eq!(store.contents(&main_stream()).unwrap().last, sid(1));
    assert_eq!(next(&mut store, 2), Ok(vec![Some(sid(2))]));
    // A restart between two steps stays unnoticed.
    let server = server.restart();
    assert_eq!(store.register(&main_stream(), &who, at(1)), Ok(None));
    let _server = server.restart();
    store.begin();
    assert_eq!(next(&mut store, 3), Ok(vec![Some(sid(3))]));
    store.commit().unwrap();
    assert_eq!(store.contents(&main_stream()).unwrap().last, sid(3));
}

#[test]
fn silent_server_fails_a_step_in_time() {
    let dir = Dir::new("hang");
    let server = PostgresServer::start(dir.path());
    let (mut one, mut two) = (open(&server.url()), open(&server.url()));
    let mut rng = Rng::new(4);
    one.begin();
    one.add(&main_stream(), &[event(&mut rng, 1, 1)], &[], &StreamLimits::default()).unwrap();
    let busy = two.add(&main_stream(), &[event(&mut rng, 2, 1)], &[], &StreamLimits::default());
    assert!(
        matches!(busy, Err(StreamStoreError::Store(StreamStorageError { fault: StreamFault::Busy, .. }))),
        "{busy:?}"
    );
    one.commit().unwrap();
    two.begin();
    assert_eq!(
        two.add(&main_stream(), &[event(&mut rng, 2, 1)], &[], &StreamLimits::default()),
        Ok(vec![Some(sid(2))])
    );
    two.commit().unwrap();
    let processes = server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'seqcast'");
    let processes: Vec<u32> = processes.lines().map(|line| line.parse().unwrap()).collect();
    processes.iter().for_each(|process| signal("STOP", *process));
    let away = one.contents(&main_stream()).unwrap_err();
    assert!(away.to_string().contains(NO_ANSWER), "{away}");
    assert_eq!(one.contents(&main_stream()).unwrap().last, sid(2), "another connection is as good");
    processes.iter().for_each(|process| signal("CONT", *process));
}

#[test]
fn foreign_database_is_refused_without_its_password() {
    let dir = Dir::new("refused");
    let server = PostgresServer::start(dir.path());
    let refused = |url: &str, part: &str| {
        let error = PostgresStreams::open(url).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(part), "{url}: {text}");
        assert!(!text.contains("s3cret"), "{url}: {text}");
    };
    let port = server.port();
    for url in [
        "redis://u:s3cret@localhost",
        "postgres://u:p@s3cret@localhost/x",
        "postgres://u:s3cret@localhost:port/x",
        "postgres://u:s3cret@/x",
    ] {
        refused(url, "the address of a PostgreSQL database is");
    }
    refused("postgres://u:s3cret@localhost/x?sslmode=prefer", "without notice");
    refused("postgres://u:s3cret@127.0.0.1:1/x", "postgres://127.0.0.1:1/x cannot be used");
    refused("postgres://u:/?s3cret@127.0.0.1:1/x", "postgres://127.0.0.1:1/x cannot be used");
    refused(&format!("postgres://postgres:s3cret@127.0.0.1:{port}/none"), "\"none\" does not exist");
    refused(&format!("postgres://nobody:s3cret@127.0.0.1:{port}/postgres"), "\"nobody\" does not exist");
    server.sql("CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0");
    refused(&format!("postgres://postgres@127.0.0.1:{port}/old"), "UTF8 is needed");
    // The database of an application can be used as well.
    server.sql("CREATE TABLE theirs (x int)");
    let mut store = open(&server.url());
    server.sql("UPDATE seqcast_version SET version = 2");
    refused(&server.url(), "version 2, this program knows 1");
    server.sql("DROP TABLE seqcast_version");
    refused(&server.url(), "holds other data where streams are kept");
    server
        .sql("DROP TABLE seqcast_events, seqcast_consumers, seqcast_covered, seqcast_outbox; ALTER TABLE seqcast_streams RENAME TO x");
    assert!(matches!(store.contents(&main_stream()).unwrap_err().fault, StreamFault::Foreign(_)));
    let mut store = open(&server.url());
    let mut rng = Rng::new(5);
    store.add(&main_stream(), &[event(&mut rng, 1, 1)], &[], &StreamLimits::default()).unwrap();
    for sql in ["SET type = 'a'", "SET data = '{'", "SET time = 9223372036854775807"] {
        server.sql(&format!("CREATE TABLE kept AS TABLE seqcast_events; UPDATE seqcast_events {sql}"));
        let read = store.read(&main_stream(), StreamId::START, None, ALL).unwrap_err();
        assert!(matches!(read.fault, StreamFault::Damaged(_)), "{sql}: {read}");
        server.sql("TRUNCATE seqcast_events; INSERT INTO seqcast_events TABLE kept; DROP TABLE kept");
    }
    assert_eq!(store.read(&main_stream(), StreamId::START, None, ALL).unwrap().events.len(), 1);
}
