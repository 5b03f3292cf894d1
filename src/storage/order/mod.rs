//! The shared state of the order of events in durable stores, and the code that runs workers and front ends on it.
//!
//! | store | for | what it keeps after the answer | when data may have been lost |
//! |---|---|---|---|
//! | [`redis::RedisStore`] | several hosts | depends on the configuration of the server: everything with `appendfsync always` | it restarted or failed over |
//! | [`sqlite::SqliteStore`] | several processes of one host | everything | the file is a copy |
//!
//! `docs/order.md` lists the guarantees of each.

pub mod error;
pub mod front_end;
pub mod redis;
pub mod sqlite;
pub mod worker_run;
