//! seqcast: a brokerless message bus for a LAN whose subscribers know exactly what they missed.
//!
//! Peers exchange datagrams over UDP multicast. Every datagram and every message is numbered. A subscriber therefore
//! receives each message or a report of its loss: the number of lost messages, their subject, their publisher and the
//! reason. No message is lost silently, and no loss is reported that did not happen.
//!
//! ```
//! use seqcast::bus::{Bus, Notice};
//! use seqcast::config::Config;
//! use seqcast::message::Message;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bits = seqcast::clock::random_u64().to_be_bytes();
//! // Without a configuration a peer stays on the loopback interface.
//! let mut config = Config::for_this_host();
//! # config.port = 30_000 + u16::from_be_bytes([bits[0], bits[1]]) % 2_000;
//! let (alice, bob) = (Bus::embed(&config)?, Bus::embed(&config)?);
//!
//! let subscription = bob.subscribe("plant.*.temperature".parse()?)?;
//! alice.publish(Message::new("plant.7.temperature".parse()?, "21.5"))?;
//!
//! match subscription.recv_timeout(Duration::from_secs(5))? {
//!     Notice::Message(delivery) => assert_eq!(delivery.message.payload, "21.5"),
//!     Notice::Loss(loss) => println!("{:?} of {} is missing: {}", loss.what, loss.publisher, loss.reason),
//!     Notice::Dropped(count) => println!("{count} dropped here: this program is too slow"),
//!     Notice::Joined(joined) => println!("begun with {} publishers", joined.baselines.len()),
//!     _ => {}
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Bus::embed`](bus::Bus::embed) starts a peer of its own; [`Bus::attach`](bus::Bus::attach) uses the one that
//! `seqcast peer` runs on this host; with [`EmbeddedPeer`](bus::EmbeddedPeer) the caller's own thread drives the peer.
//!
//! # The modules, lowest first
//!
//! | module | its one job |
//! |---|---|
//! | [`time`], [`rng`], [`subject`], [`seqno`], [`offset`], [`message`] | plain values |
//! | [`wire`] | the bytes of datagrams and records |
//! | `security` | the keys of hosts and realms, without I/O |
//! | [`delivery`] | the messages of one run on their way to clients |
//! | [`proto`] | the protocol, as state machines without I/O |
//! | [`clock`] | the only reader of the system's clocks and of its randomness |
//! | [`event`] | events, their order, their replication over the bus, and the streams; without I/O |
//! | [`link`] | messages between sites, and their accounting, without I/O |
//! | [`listener`] | client protocols, without I/O |
//! | [`storage`] | the event journal, the streams and the order of events in SQLite, PostgreSQL and Redis |
//! | [`config`] | YAML to a checked configuration |
//! | `shared_memory` | rings in memory that a program shares with its peer |
//! | [`daemon`] | the loop around the core: sockets, clients, services, log |
//! | [`bus`] | the library |
//! | `sim` | many cores on one simulated network, and an oracle |
//! | `terminal` | exit codes, output, tables and arguments of the programs |
//! | `bench` | the measurements of `seqcast bench` |
//! | `doctor` | the checks of `seqcast doctor` |
//! | `cli` | the command line |
//!
//! `sim` and `security` are features, and so is `cli` with `terminal`, `bench` and `doctor`. The services of a peer are
//! features too. Without any of them the crate is the library: the bus, embedded and attached.

#![cfg_attr(
    not(feature = "streams"),
    expect(dead_code, reason = "absent services leave some of what they share unused")
)]

#[cfg(feature = "cli")]
pub mod bench;
pub mod bus;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod delivery;
#[cfg(feature = "cli")]
pub mod doctor;
pub mod event;
pub mod link;
pub mod listener;
pub mod message;
pub mod offset;
pub mod proto;
pub mod rng;
#[cfg(feature = "security")]
pub mod security;
pub mod seqno;
mod shared_memory;
#[cfg(any(feature = "sim", all(test, feature = "listeners")))]
pub mod sim;
pub mod storage;
pub mod subject;
#[cfg(feature = "cli")]
pub mod terminal;
pub mod time;
pub mod wire;

/// Unit tests share helpers with the tests outside the library, which name it so.
#[cfg(test)]
extern crate self as seqcast;

#[cfg(test)]
#[expect(dead_code, reason = "integration tests use the rest of it")]
#[path = "../tests/support/wait.rs"]
mod wait;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
