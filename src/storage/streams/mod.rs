//! Durable stores of the streams of seed 003, and the archives to which programs copy streams.

pub mod archive;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod column_values;
pub mod error;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store;

use error::StreamStorageError;
use std::path::Path;
use store::BatchStore;

/// Opens the streams in a SQLite file, or creates it.
///
/// # Errors
/// The file cannot be used, or this build has no SQLite.
#[cfg(feature = "sqlite")]
pub fn open_file(path: &Path) -> Result<Box<dyn BatchStore>, StreamStorageError> {
    Ok(Box::new(sqlite::SqliteStreams::open(path)?))
}

/// Refuses to open a file, since this build has no SQLite.
#[cfg(not(feature = "sqlite"))]
pub fn open_file(path: &Path) -> Result<Box<dyn BatchStore>, StreamStorageError> {
    Err(StreamStorageError::unsupported(path.display().to_string(), "sqlite"))
}

/// Opens the streams in the PostgreSQL database at this address.
///
/// # Errors
/// The database cannot be used, or this build has no PostgreSQL.
#[cfg(feature = "postgres")]
pub fn open_postgres(url: &str) -> Result<Box<dyn BatchStore>, StreamStorageError> {
    Ok(Box::new(postgres::PostgresStreams::open(url)?))
}

/// Refuses to open a database, since this build has no PostgreSQL. The error omits the address, which may contain a
/// password.
#[cfg(not(feature = "postgres"))]
pub fn open_postgres(_url: &str) -> Result<Box<dyn BatchStore>, StreamStorageError> {
    Err(StreamStorageError::unsupported("postgres".into(), "postgres"))
}

#[cfg(all(test, any(feature = "postgres", feature = "sqlite")))]
mod tests;
