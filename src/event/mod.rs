//! Events of seed 004: their identity, numbering, order, encoding and subscriptions.
//!
//! An event is immutable and has an identity: the server that created it, the session (one processing of a request to
//! register events) and its position there. It has a type, which is a list of subtypes, and perhaps a payload. There is
//! no I/O here: the caller stores events, sends them and reads the clock.
//!
//! [`order`] is seed 001: several producers agree on one order of each object's events, whatever these are.
//!
//! Programs register events at a peer, which stores them in its journal, and subscribe to their types:
//!
//! ```
//! use seqcast::bus::{Bus, Notice};
//! use seqcast::config::Config;
//! use seqcast::event::model::{Event, Registration};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bits = seqcast::clock::random_u64().to_be_bytes();
//! let mut config = Config::from_text("param.yaml", "parameters:\n  server-id: 7\n")?;
//! # config.port = 30_000 + u16::from_be_bytes([bits[0], bits[1]]) % 2_000;
//! # config.data_dir = std::env::temp_dir().join(format!("seqcast-example-{:x}", u64::from_be_bytes(bits)));
//! let bus = Bus::embed(&config)?;
//! let alarms = bus.subscribe_events(["plant/?/alarm".parse()?])?;
//!
//! let registration = Registration { event_type: "plant/7/alarm".parse()?, source_timestamp: None, payload: None };
//! let stored = bus.register(vec![registration])?;
//! assert_eq!(stored[0].id.to_string(), "7/1/1");
//!
//! if let Notice::Message(delivery) = alarms.recv_timeout(Duration::from_secs(5))? {
//!     assert_eq!(Event::of_message(&delivery.message)?, stored[0]);
//! }
//! # bus.close();
//! # std::fs::remove_dir_all(&config.data_dir)?;
//! # Ok(())
//! # }
//! ```

pub mod follower;
pub mod message;
pub mod model;
pub mod order;
pub mod pattern_index;
pub mod refusal;
pub mod replication;
pub mod sequencer;
pub mod server_id_claim;
pub mod server_origin;
pub mod store;
pub mod stream;
pub mod timestamp;
