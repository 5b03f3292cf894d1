//! A connection to a PostgreSQL server: its address, setup and timeouts, and the mapping of its errors.

use super::tls::{PostgresTls, split_tls};
use crate::storage::server_tls::fault_behind;
use crate::storage::streams::error::StreamFault;
use crate::storage::tls_fault::TlsFault;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::types::{ToSql, WrongType};
use tokio_postgres::{Client, Config, Connection, Error, NoTls, Row, Socket, Statement};

/// Maximum time to open and set up a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Maximum time for the server to answer a step, in addition to the transfer time.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Maximum transfer time per byte sent or read: 1 MB/s.
const BYTE_TIME: Duration = Duration::from_micros(1);
/// Error text of a step that exceeds its time.
pub(super) const NO_ANSWER: &str = "no answer in time";
/// Error text of the library for a server that refuses to encrypt. No type of an error distinguishes this case.
const NOT_OFFERED: &str = "server does not support TLS";
/// Idle time after which the first TCP keepalive probe is sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Number of unanswered probes after which the server counts as dead.
const KEEPALIVE_PROBES: u32 = 3;

/// Session settings. The server also ends a session that takes too long, since other peers would wait for the locks of
/// a peer that has failed. The server plans each statement once, for the use of keys: its statistics are poor for
/// tables that grow and shrink all the time.
const SETTINGS: &str = "
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SET statement_timeout = '8s';
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '10s';
    SET default_transaction_isolation = 'read committed';
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET jit = off;
";

/// Address of a database.
pub(in crate::storage::streams) struct PostgresAddress {
    pub(in crate::storage::streams) config: Config,
    /// Encryption; `None` if connections are not encrypted.
    pub(in crate::storage::streams) tls: Option<PostgresTls>,
    /// Address for messages, without user and password.
    pub(in crate::storage::streams) location: String,
}

impl PostgresAddress {
    /// Parses `postgres://[user[:password]@]host[:port][/database][?parameters]`, and reads the file of trusted
    /// authorities that it names.
    ///
    /// # Errors
    /// The text states the expected form without the address, any part of which may belong to a password.
    pub(in crate::storage::streams) fn parse(url: &str) -> Result<PostgresAddress, StreamFault> {
        const FORM: &str = "the address of a PostgreSQL database is postgres://USER:PASSWORD@HOST:PORT/DATABASE; \
            in a password, %xx stands for what is no letter or digit";
        let invalid = |reason: &str| StreamFault::Other(reason.into());
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid(FORM));
        }
        let (url, tls) = split_tls(url)?;
        let mut config: Config = url.parse().map_err(|_| invalid(FORM))?;
        let host = |host: &Host| match host {
            Host::Tcp(name) if name.contains('@') => Err(invalid(FORM)),
            Host::Tcp(name) if name.contains(':') => Ok(format!("[{name}]")),
            Host::Tcp(name) => Ok(name.clone()),
            Host::Unix(dir) => Ok(dir.display().to_string()),
        };
        let ports = config.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        let hosts = config.get_hosts().iter().enumerate();
        let hosts = hosts.map(|(index, of)| Ok(format!("{}:{}", host(of)?, port(index))));
        let hosts = hosts.collect::<Result<Vec<String>, StreamFault>>()?;
        if hosts.is_empty() {
            return Err(invalid(FORM));
        }
        let database = config.get_dbname().unwrap_or("");
        // A password in the address has a `/` that is not written as %2F.
        if database.contains('@') {
            return Err(invalid(FORM));
        }
        let location = format!("postgres://{}/{database}", hosts.join(","));
        if config.get_application_name().is_none() {
            config.application_name("seqcast");
        }
        config
            .connect_timeout(CONNECT_TIME)
            .ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable })
            .tcp_user_timeout(ANSWER_TIME)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_PROBES)
            // A read-only replica cannot be used.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(PostgresAddress { config, tls, location })
    }

    /// Connects. A task of the current runtime drives the connection.
    async fn connect(&self) -> Result<Client, StreamFault> {
        match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(connection_fault)?;
                drive(connection);
                Ok(client)
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                drive(connection);
                Ok(client)
            }
        }
    }
}

/// Converts an error of a new encrypted connection.
pub(in crate::storage::streams) fn connection_fault(error: Error) -> StreamFault {
    let cause = error.source();
    if cause.is_some_and(|cause| cause.to_string() == NOT_OFFERED) {
        return StreamFault::Tls(TlsFault::NotOffered);
    }
    cause.and_then(fault_behind).map_or_else(|| error.into(), StreamFault::Tls)
}

/// Drives a connection until it ends. The requests of its client report the end.
fn drive<T: TlsStream + Unpin + Send + 'static>(connection: Connection<Socket, T>) {
    tokio::spawn(async { drop(connection.await) });
}

/// A connection, and the runtime that drives it.
pub(super) struct PostgresConnection {
    // The session must be dropped before the runtime.
    session: PostgresSession,
    runtime: Runtime,
}

impl PostgresConnection {
    /// Connects, and runs `check` before the connection is used.
    pub(super) fn connect(
        address: &PostgresAddress,
        check: impl AsyncFnOnce(&PostgresSession) -> Result<(), StreamFault>,
    ) -> Result<PostgresConnection, StreamFault> {
        let system = |error: io::Error| StreamFault::Other(error.to_string());
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(system)?;
        let connect = async {
            let session = PostgresSession { client: address.connect().await?, statements: RefCell::default() };
            session.simple(SETTINGS).await?;
            check(&session).await?;
            Ok(session)
        };
        let connected = runtime.block_on(async { timeout(CONNECT_TIME, connect).await });
        match connected.unwrap_or_else(|_| Err(StreamFault::Unreachable(NO_ANSWER.into()))) {
            Ok(session) => Ok(PostgresConnection { session, runtime }),
            Err(fault) => {
                // The shutdown does not wait for a pending name lookup.
                runtime.shutdown_background();
                Err(fault)
            }
        }
    }

    /// Runs a step that sends and reads at most about `bytes` bytes. After [`StreamFault::Unreachable`] the connection
    /// is unusable.
    pub(super) fn run<T, E: From<StreamFault>>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&PostgresSession) -> Result<T, E>,
    ) -> Result<T, E> {
        let time = ANSWER_TIME + BYTE_TIME.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        let PostgresConnection { session, runtime } = self;
        let result = runtime.block_on(async { timeout(time, step(session)).await });
        result.unwrap_or_else(|_| Err(StreamFault::Unreachable(NO_ANSWER.into()).into()))
    }
}

/// The session that sends statements over a connection.
pub(super) struct PostgresSession {
    client: Client,
    /// Prepared statements, by their text.
    statements: RefCell<BTreeMap<&'static str, Statement>>,
}

impl PostgresSession {
    async fn statement(&self, sql: &'static str) -> Result<Statement, StreamFault> {
        let prepared = self.statements.borrow().get(sql).cloned();
        if let Some(prepared) = prepared {
            return Ok(prepared);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.borrow_mut().insert(sql, statement.clone());
        Ok(statement)
    }

    /// Returns the rows of a statement.
    pub(super) async fn rows(
        &self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StreamFault> {
        Ok(self.client.query(&self.statement(sql).await?, values).await?)
    }

    /// Returns the number of rows that a statement has changed.
    pub(super) async fn change(&self, sql: &'static str, values: &[&(dyn ToSql + Sync)]) -> Result<u64, StreamFault> {
        Ok(self.client.execute(&self.statement(sql).await?, values).await?)
    }

    /// Runs several statements at once. The first failure stops the others.
    pub(super) async fn simple(&self, sql: &str) -> Result<(), StreamFault> {
        Ok(self.client.batch_execute(sql).await?)
    }
}

impl From<Error> for StreamFault {
    fn from(error: Error) -> StreamFault {
        let Some(server_error) = error.as_db_error() else {
            let cause = error.source();
            return match cause {
                Some(cause) if cause.is::<WrongType>() => StreamFault::Foreign(format!("{error}: {cause}")),
                Some(cause) => StreamFault::Unreachable(format!("{error}: {cause}")),
                None => StreamFault::Unreachable(error.to_string()),
            };
        };
        let (code, text) = (server_error.code(), server_error.message().to_owned());
        match *code {
            SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => return StreamFault::Full(text),
            SqlState::LOCK_NOT_AVAILABLE
            | SqlState::QUERY_CANCELED
            | SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED => return StreamFault::Busy,
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::WRONG_OBJECT_TYPE => {
                return StreamFault::Foreign(text);
            }
            SqlState::ADMIN_SHUTDOWN
            | SqlState::CRASH_SHUTDOWN
            | SqlState::CANNOT_CONNECT_NOW
            | SqlState::TOO_MANY_CONNECTIONS
            | SqlState::UNDEFINED_DATABASE
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            | SqlState::READ_ONLY_SQL_TRANSACTION => return StreamFault::Unreachable(text),
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => return StreamFault::Damaged(text),
            _ => {}
        }
        // The codes are those of connections, of authorization, and of operator intervention.
        match code.code().get(..2) {
            Some("08" | "28" | "57") => StreamFault::Unreachable(text),
            _ => StreamFault::Other(text),
        }
    }
}

/// Returns a column of a row.
pub(super) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, StreamFault> {
    row.try_get(index).map_err(|error| StreamFault::Foreign(format!("column {}: {error}", row.columns()[index].name())))
}
