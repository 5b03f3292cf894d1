//! Archives in a PostgreSQL database, which can hold archives of any number of streams.
//!
//! | table | row |
//! |---|---|
//! | `stream_archive` | an archive: its stream and server, and the event after which it begins |
//! | `stream_archive_event` | an event |
//! | `stream_archive_gap` | events that are missing |

use super::super::error::{StreamFault, StreamStorageError};
use super::super::postgres::{PostgresAddress, connection_fault};
use super::{ArchiveGap, ArchiveSource, ArchiveStore};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use postgres::{Client, Config, GenericClient, NoTls, Transaction};

/// Creates the tables. The lock serializes processes that create them at the same time; its number is `sqar`.
const TABLES: &str = r#"
    BEGIN;
    SELECT pg_advisory_xact_lock(1936810354);
    CREATE TABLE IF NOT EXISTS stream_archive (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, server bigint NOT NULL, stream text NOT NULL, after bigint NOT NULL,
        UNIQUE (server, stream)
    );
    CREATE TABLE IF NOT EXISTS stream_archive_event (
        archive bigint, id bigint, type text NOT NULL, data text NOT NULL, time text NOT NULL, origin text NOT NULL,
        PRIMARY KEY (archive, id)
    );
    CREATE TABLE IF NOT EXISTS stream_archive_gap (
        archive bigint, first bigint, last bigint NOT NULL, count bigint, noticed text NOT NULL, PRIMARY KEY (archive, first)
    );
    COMMIT;
"#;

/// Session settings. The timeouts exceed the time of any step. A committed write is synchronized with the disk.
const SETTINGS: &str = "SET synchronous_commit = on; SET statement_timeout = '60s'; SET lock_timeout = '10s'";

const LAST: &str = "SELECT greatest(a.after, (SELECT max(id) FROM stream_archive_event WHERE archive = a.number), \
    (SELECT max(last) FROM stream_archive_gap WHERE archive = a.number)) FROM stream_archive a WHERE a.number = $1 FOR UPDATE";

/// An archive in a database.
pub(super) struct PostgresArchive {
    client: Client,
    location: String,
    number: i64,
    last: StreamId,
}

impl PostgresArchive {
    pub(super) fn open(
        url: &str,
        source: &ArchiveSource,
        after: StreamId,
    ) -> Result<PostgresArchive, StreamStorageError> {
        let address =
            PostgresAddress::parse(url).map_err(|fault| StreamStorageError { location: "postgres".into(), fault })?;
        let open = || -> Result<(Client, i64, StreamId), StreamFault> {
            let config = Config::from(address.config.clone());
            let mut client = match address.tls.clone() {
                Some(tls) => config.connect(tls).map_err(connection_fault)?,
                None => config.connect(NoTls)?,
            };
            client.batch_execute(SETTINGS)?;
            client.batch_execute(TABLES)?;
            let (server, stream) = (i64::from(source.server.0), source.stream.as_str());
            let make = "INSERT INTO stream_archive (server, stream, after) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            client.execute(make, &[&server, &stream, &number(after)])?;
            let find = "SELECT number FROM stream_archive WHERE server = $1 AND stream = $2";
            let number = client.query_one(find, &[&server, &stream])?.try_get(0)?;
            let last = last(&mut client, number)?;
            Ok((client, number, last))
        };
        let (client, number, last) =
            open().map_err(|fault| StreamStorageError { location: address.location.clone(), fault })?;
        Ok(PostgresArchive { client, location: address.location, number, last })
    }

    fn error(&self, fault: StreamFault) -> StreamStorageError {
        StreamStorageError { location: self.location.clone(), fault }
    }

    /// Runs a step as one transaction, unless another process has written to the archive meanwhile.
    fn change(
        &mut self,
        end: StreamId,
        step: impl FnOnce(&mut Transaction<'_>, i64) -> Result<(), StreamFault>,
    ) -> Result<(), StreamStorageError> {
        let (known, number) = (self.last, self.number);
        let change = || -> Result<(), StreamFault> {
            let mut transaction = self.client.transaction()?;
            if last(&mut transaction, number)? != known {
                return Err(StreamFault::Busy);
            }
            step(&mut transaction, number)?;
            Ok(transaction.commit()?)
        };
        let changed = change();
        changed.map_err(|fault| self.error(fault))?;
        self.last = end;
        Ok(())
    }
}

impl ArchiveStore for PostgresArchive {
    fn last(&self) -> StreamId {
        self.last
    }

    fn store(&mut self, events: &[StreamEvent]) -> Result<(), StreamStorageError> {
        let Some(end) = events.last() else { return Ok(()) };
        self.change(end.id, |transaction, archive| {
            let insert = "INSERT INTO stream_archive_event SELECT $1::bigint, * FROM \
                unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])";
            let ids: Vec<i64> = events.iter().map(|event| number(event.id)).collect();
            let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
            let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
            let times: Vec<String> = events.iter().map(|event| event.time.to_string()).collect();
            let origins: Vec<String> = events.iter().map(|event| event.origin.to_string()).collect();
            transaction.execute(insert, &[&archive, &ids, &kinds, &data, &times, &origins])?;
            Ok(())
        })
    }

    fn store_gap(&mut self, gap: ArchiveGap) -> Result<(), StreamStorageError> {
        let ArchiveGap { first, last, count, detected } = gap;
        self.change(last, |transaction, archive| {
            let count = count.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
            let insert = "INSERT INTO stream_archive_gap VALUES ($1, $2, $3, $4, $5)";
            transaction.execute(insert, &[&archive, &number(first), &number(last), &count, &detected.to_string()])?;
            Ok(())
        })
    }

    fn count_from(&mut self, first: StreamId) -> Result<u64, StreamStorageError> {
        let count = "SELECT count(*) FROM stream_archive_event WHERE archive = $1 AND $2 <= id";
        let counted = self.client.query_one(count, &[&self.number, &number(first)]).and_then(|row| row.try_get(0));
        counted.map(i64::unsigned_abs).map_err(|error| self.error(error.into()))
    }
}

fn number(id: StreamId) -> i64 {
    i64::try_from(id.number()).expect("at most 18 digits")
}

fn last(client: &mut impl GenericClient, number: i64) -> Result<StreamId, StreamFault> {
    let last: i64 = client.query_one(LAST, &[&number])?.try_get(0)?;
    let id = u64::try_from(last).ok().and_then(StreamId::from_number);
    id.ok_or_else(|| StreamFault::Damaged(format!("{last} is no id of an event")))
}
