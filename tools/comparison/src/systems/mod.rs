//! One file for each system: how it is started, how its published library publishes, and how it receives.

pub mod aeron;
mod iceoryx;
mod nats;
mod redis_server;
mod zenoh_tcp;
mod zeromq;

use crate::server::{Server, free_port};
use anyhow::Result;
use clap::ValueEnum;
use std::fmt;
use std::time::Duration;

/// Time that a subscriber waits for a message before it looks whether the run has ended.
pub const RECEIVE_TIMEOUT: Duration = Duration::from_millis(10);
/// The subject of all messages.
pub const SUBJECT: &str = "comparison";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum System {
    AeronIpc,
    AeronMulticast,
    AeronMulticast1408,
    Iceoryx2,
    Zeromq,
    Zenoh,
    Nats,
    Redis,
}

/// Publishes on the one subject of a measurement.
pub trait Publisher {
    /// Publishes a message; waits if the system holds publishers back.
    fn publish(&mut self, payload: &[u8]) -> Result<()>;

    /// Sends what still waits in the library.
    fn finish(&mut self) -> Result<()>;
}

/// Receives on the one subject of a measurement.
pub trait Subscriber {
    /// Passes what has come to `on_message`. Waits about [`RECEIVE_TIMEOUT`] if there is nothing, or returns at once if
    /// the library can only be polled.
    fn receive(&mut self, on_message: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// A system that is ready for its programs.
pub struct Place {
    /// Address or name by which its programs reach it.
    pub endpoint: String,
    /// The server, for as long as the measurement lasts.
    pub _server: Option<Server>,
}

impl System {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The name in the table.
    pub fn label(self) -> &'static str {
        match self {
            System::AeronIpc => "Aeron IPC (shared memory)",
            System::AeronMulticast => "Aeron multicast, MTU 8192",
            System::AeronMulticast1408 => "Aeron multicast, MTU 1408",
            System::Iceoryx2 => "iceoryx2 (shared memory)",
            System::Zeromq => "ZeroMQ TCP",
            System::Zenoh => "zenoh TCP",
            System::Nats => "nats-server",
            System::Redis => "redis-server",
        }
    }

    /// Starts the server that the system needs, if any.
    pub fn start(self) -> Result<Place> {
        match self {
            System::AeronIpc | System::AeronMulticast => aeron::start(8192),
            System::AeronMulticast1408 => aeron::start(1408),
            System::Iceoryx2 => Ok(Place { endpoint: format!("comparison-{}", free_port()?), _server: None }),
            System::Zeromq | System::Zenoh => {
                Ok(Place { endpoint: format!("127.0.0.1:{}", free_port()?), _server: None })
            }
            System::Nats => nats::start(),
            System::Redis => redis_server::start(),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Opens the publishing side of a system for payloads of `size` bytes.
pub fn publisher(system: System, endpoint: &str, size: usize) -> Result<Box<dyn Publisher>> {
    Ok(match system {
        System::AeronIpc => Box::new(aeron::AeronPublisher::open(endpoint, aeron::IPC)?),
        System::AeronMulticast | System::AeronMulticast1408 => {
            Box::new(aeron::AeronPublisher::open(endpoint, aeron::MULTICAST)?)
        }
        System::Iceoryx2 => Box::new(iceoryx::IceoryxPublisher::open(endpoint, size)?),
        System::Zeromq => Box::new(zeromq::ZeromqPublisher::open(endpoint)?),
        System::Zenoh => Box::new(zenoh_tcp::ZenohPublisher::open(endpoint)?),
        System::Nats => Box::new(nats::NatsPublisher::open(endpoint)?),
        System::Redis => Box::new(redis_server::RedisPublisher::open(endpoint)?),
    })
}

/// Opens the receiving side of a system.
pub fn subscriber(system: System, endpoint: &str) -> Result<Box<dyn Subscriber>> {
    Ok(match system {
        System::AeronIpc => Box::new(aeron::AeronSubscriber::open(endpoint, aeron::IPC)?),
        System::AeronMulticast | System::AeronMulticast1408 => {
            Box::new(aeron::AeronSubscriber::open(endpoint, aeron::MULTICAST)?)
        }
        System::Iceoryx2 => Box::new(iceoryx::IceoryxSubscriber::open(endpoint)?),
        System::Zeromq => Box::new(zeromq::ZeromqSubscriber::open(endpoint)?),
        System::Zenoh => Box::new(zenoh_tcp::ZenohSubscriber::open(endpoint)?),
        System::Nats => Box::new(nats::NatsSubscriber::open(endpoint)?),
        System::Redis => Box::new(redis_server::RedisSubscriber::open(endpoint)?),
    })
}
