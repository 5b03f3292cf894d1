//! The store against its twin in memory, and files that must be refused.

use super::*;
use crate::rng::Rng;
use crate::storage::streams::tests::{at, check_batches, check_beside_twin, new_event, sid};
use std::fs;
use std::time::Duration;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("seqcast-streams-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("streams.db")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// It answers every request as its twin does, also after it was opened again.
#[test]
fn random_steps_match_the_store_in_memory() {
    let dir = Dir::new("twin");
    let open = |seed: u64| SqliteStreams::open(&dir.0.join(seed.to_string())).unwrap();
    check_beside_twin(40, open, |store, _, stream, kind, data| {
        let transaction = store.connection.transaction().unwrap();
        add_event_in(&transaction, stream, kind, data).unwrap();
        transaction.commit().unwrap();
    });
}

#[test]
fn refused_step_leaves_its_batch_intact() {
    let dir = Dir::new("together");
    check_batches(|| SqliteStreams::open(&dir.file()).unwrap());
}

#[test]
fn foreign_file_is_refused_unchanged() {
    let dir = Dir::new("refused");
    let refused = |part: &str| {
        let before = fs::read(dir.file()).unwrap();
        let error = SqliteStreams::open(&dir.file()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("streams.db"), "{error}");
        assert_eq!(fs::read(dir.file()).unwrap(), before, "{part}: the file was changed");
    };
    fs::write(dir.file(), "no data base at all, but a text").unwrap();
    refused("another kind of file");
    fs::remove_file(dir.file()).unwrap();
    // The file of an application can be used as well.
    let application = Connection::open(dir.file()).unwrap();
    application.execute_batch("PRAGMA application_id = 77; CREATE TABLE theirs (x)").unwrap();
    drop(SqliteStreams::open(&dir.file()).unwrap());
    application.execute_batch("UPDATE seqcast_version SET version = 2; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    refused("version 2, this program knows 1");
    application.execute_batch("DROP TABLE seqcast_version; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    refused("holds other data where streams are kept");
    application.execute_batch("PRAGMA application_id = 0x73716361; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    refused("a journal, an archive or a shared state of ours");
    assert!(SqliteStreams::open(&dir.0.join("no/such/place")).unwrap_err().is_transient());
}

#[test]
fn damage_is_reported_without_a_panic() {
    let dir = Dir::new("damage");
    let (stream, who): (StreamName, Consumer) = ("main".parse().unwrap(), "a:X".parse().unwrap());
    let mut rng = Rng::new(2);
    let mut store = SqliteStreams::open(&dir.file()).unwrap();
    let event = |rng: &mut Rng, session| new_event(rng, EventId { server: ServerId(1), session, instance: 1 }, 5);
    let events: Vec<NewEvent> = (1..300).map(|session| event(&mut rng, session)).collect();
    store.add(&stream, &events, &[], &StreamLimits::default()).unwrap();
    store.register(&stream, &who, at(1)).unwrap();
    for sql in [
        "UPDATE seqcast_events SET type = 'a' WHERE id = 7",
        "UPDATE seqcast_events SET data = '{' WHERE id = 7",
        "UPDATE seqcast_events SET session = -1 WHERE id = 7",
    ] {
        store.connection.execute_batch("SAVEPOINT test").unwrap();
        store.connection.execute_batch(sql).unwrap();
        let room = PageBudget { events: 1000, bytes: 1 << 20 };
        let read = store.read(&stream, StreamId::START, None, room).unwrap_err();
        assert!(matches!(read.fault, StreamFault::Damaged(_)), "{sql}: {read}");
        store.connection.execute_batch("ROLLBACK TO test; RELEASE test").unwrap();
    }
    drop(store);
    let whole = fs::read(dir.file()).unwrap();
    for _ in 0..100 {
        let mut bad = whole.clone();
        for _ in 0..3 {
            let at = rng.below(bad.len() as u64 - 8) as usize;
            bad[at..at + 8].copy_from_slice(&rng.next_u64().to_be_bytes());
        }
        fs::write(dir.file(), &bad).unwrap();
        let Ok(mut store) = SqliteStreams::open(&dir.file()) else { continue };
        drop(store.read(&stream, StreamId::START, None, PageBudget { events: 1000, bytes: 1 << 20 }));
        drop(store.consumers(&stream));
        drop(store.accept(&stream, &who, sid(5), at(2)));
        drop(store.trim(&stream, &StreamLimits { age: Some(Duration::ZERO), ..StreamLimits::default() }, at(100), 100));
    }
}

/// SQLite accepts JSON that is not UTF-8: such a row is set aside, and does not block the rows after it.
#[test]
fn data_that_is_not_utf8_is_quarantined() {
    let dir = Dir::new("latin");
    let mut store = SqliteStreams::open(&dir.file()).unwrap();
    let application = Connection::open(dir.file()).unwrap();
    for data in ["CAST(x'2263e922' AS TEXT)", "'2'"] {
        let post = format!("INSERT INTO seqcast_outbox (stream, type, data) VALUES ('main', 'A', {data})");
        application.execute(&post, []).unwrap();
    }
    let main: StreamName = "main".parse().unwrap();
    let claimed = store.claim(ServerId(1), std::slice::from_ref(&main), at(1), 10).unwrap();
    assert_eq!(claimed.iter().map(|posted| posted.data.as_str()).collect::<Vec<_>>(), ["2"]);
    let why: String =
        application.query_row("SELECT refused FROM seqcast_outbox WHERE number = 1", [], |row| row.get(0)).unwrap();
    assert!(!why.is_empty());
}
