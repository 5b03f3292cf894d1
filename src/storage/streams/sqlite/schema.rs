//! The tables in a SQLite file, and the connection that uses them.

use crate::storage::sqlite_file::retry_busy;
use crate::storage::streams::error::StreamFault;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;

/// Version of the tables; a file of any other version is refused.
pub(super) const VERSION: i64 = 1;
/// Prefix of the application ids of the other files of seqcast: "sq".
const OTHER_APPLICATION_PREFIX: i32 = 0x7371;

const SCHEMA: &str = "
    CREATE TABLE seqcast_version (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL) STRICT;
    INSERT INTO seqcast_version VALUES (1, 1);
    CREATE TABLE seqcast_streams (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER NOT NULL, events INTEGER NOT NULL, bytes INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE seqcast_events (
        stream INTEGER, id INTEGER, type TEXT NOT NULL, data TEXT NOT NULL, time INTEGER NOT NULL,
        server INTEGER NOT NULL, session INTEGER NOT NULL, instance INTEGER NOT NULL, PRIMARY KEY (stream, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE seqcast_covered (
        stream INTEGER, server INTEGER, session INTEGER NOT NULL, instance INTEGER NOT NULL, PRIMARY KEY (stream, server)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE seqcast_consumers (
        stream INTEGER, user TEXT, component TEXT, position INTEGER NOT NULL,
        missed_first INTEGER, missed_last INTEGER, missed_count INTEGER,
        registered INTEGER NOT NULL, heard INTEGER NOT NULL, PRIMARY KEY (stream, user, component)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE seqcast_outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT CHECK (0 < number),
        stream TEXT NOT NULL CHECK (length(stream) BETWEEN 1 AND 32),
        type TEXT NOT NULL CHECK (length(type) BETWEEN 1 AND 16 AND type NOT GLOB '*[^A-Z_]*'),
        data TEXT NOT NULL CHECK (json_valid(data)),
        server INTEGER, stamp INTEGER, refused TEXT
    ) STRICT;
    CREATE INDEX seqcast_outbox_claimed ON seqcast_outbox (server, stream, stamp) WHERE refused IS NULL;
";

/// Opens the file, or creates it, and creates missing tables.
pub(super) fn open(path: &Path) -> Result<Connection, StreamFault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(retry_busy))?;
    connection.set_prepared_statement_cache_capacity(64);
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application >> 16 == OTHER_APPLICATION_PREFIX {
        return Err(StreamFault::Foreign("a journal, an archive or a shared state of ours".into()));
    }
    let has_tables = check_version(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    if !has_tables {
        // Another process may create the tables at the same time.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !check_version(&transaction)? {
            transaction.execute_batch(SCHEMA)?;
        }
        transaction.commit()?;
    }
    Ok(connection)
}

/// Returns whether the tables exist. Returns an error if they are of another version or program.
fn check_version(connection: &Connection) -> Result<bool, StreamFault> {
    let names = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'seqcast_*' AND type = 'table'";
    if connection.query_row(names, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(false);
    }
    let found = connection.query_row("SELECT version FROM seqcast_version", [], |row| row.get(0));
    match found.map_err(|error| StreamFault::Foreign(format!("seqcast_version: {error}")))? {
        VERSION => Ok(true),
        found => Err(StreamFault::Version { found, supported: VERSION }),
    }
}
