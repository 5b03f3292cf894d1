//! Stores on disks and database servers: the journal of events, the streams of seed 003, the shared state of the order
//! of events, and the keys of a realm.
//!
//! They implement the traits of [`event`](crate::event) in SQLite, PostgreSQL and Redis, and use no engine, no mailbox
//! and no listener. The services of the daemon pass requests and answers between the threads here and the engine.
//!
//! Each database is a feature of the build. Opening a store of an absent database is an error that names the
//! feature.

#[cfg(feature = "events")]
pub mod journal;
pub mod order;
#[cfg(feature = "security")]
pub mod realm;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod server_tls;
#[cfg(feature = "sqlite")]
mod sqlite_file;
pub mod streams;
pub mod tls_fault;
#[cfg(any(feature = "links", feature = "postgres", feature = "redis"))]
pub(crate) mod trusted_authorities;
