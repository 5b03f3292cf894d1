//! The shared state of the order of events in stores that last, and what runs workers and front ends on it.
//!
//! | store | for | what it keeps after the answer | when something may have been lost |
//! |---|---|---|---|
//! | [`redis::RedisStore`] | several hosts | as the server is set up: everything with `appendfsync always` | it restarted or failed over |
//! | [`sqlite::SqliteStore`] | several processes of one host | everything | the file is a copy |
//!
//! `docs/order.md` says what each of them promises.

pub mod error;
pub mod front_end;
pub mod redis;
pub mod sqlite;
pub mod worker_run;
