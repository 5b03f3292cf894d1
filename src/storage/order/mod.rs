//! The shared state of the order of events in durable stores, and the code that runs workers and front ends on it.
//!
//! | store | users | steps that survive a crash of the store | sign of a possible loss |
//! |---|---|---|---|
//! | `redis::RedisStore` | several hosts | all with `appendfsync always`, else as configured | a restart or failover |
//! | `sqlite::SqliteStore` | several processes of one host | all | the file is a copy |
//!
//! Each store is a feature of the build, named after its module. `docs/order.md` lists the guarantees of each.

pub mod error;
pub mod front_end;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod worker_run;

use crate::event::order::store::Store;
use error::OrderError;
use std::path::Path;
use std::time::Duration;

/// Default prefix of the keys in Redis. No prefix in use may begin with another one.
pub const REDIS_PREFIX: &str = "seqcast:";

/// Prepares the shared state in the Redis server at this address. The server must answer within `patience`, but at
/// least 1 second and at most 5.
///
/// # Errors
/// The address is invalid, or this build has no Redis.
#[cfg(feature = "redis")]
pub fn open_redis(
    url: &str,
    prefix: &str,
    patience: Duration,
) -> Result<Box<dyn Store<Error = OrderError>>, OrderError> {
    Ok(Box::new(redis::RedisStore::new(url, prefix)?.answering_within(patience)))
}

/// Refuses to use a server, since this build has no Redis. The error omits the address, which may contain a password.
#[cfg(not(feature = "redis"))]
pub fn open_redis(
    _url: &str,
    _prefix: &str,
    _patience: Duration,
) -> Result<Box<dyn Store<Error = OrderError>>, OrderError> {
    Err(OrderError { location: "redis".into(), fault: error::OrderFault::Unsupported("redis") })
}

/// Opens the shared state in a SQLite file. If the file is missing, creates it if `creates` is true, or else returns
/// `None`.
///
/// # Errors
/// The file cannot be used, or this build has no SQLite.
#[cfg(feature = "sqlite")]
pub fn open_file(path: &Path, creates: bool) -> Result<Option<Box<dyn Store<Error = OrderError>>>, OrderError> {
    if !creates && !sqlite::SqliteStore::exists(path) {
        return Ok(None);
    }
    Ok(Some(Box::new(sqlite::SqliteStore::open(path)?)))
}

/// Refuses to open a file, since this build has no SQLite.
#[cfg(not(feature = "sqlite"))]
pub fn open_file(path: &Path, _creates: bool) -> Result<Option<Box<dyn Store<Error = OrderError>>>, OrderError> {
    Err(OrderError { location: path.display().to_string(), fault: error::OrderFault::Unsupported("sqlite") })
}
