//! The client protocols of listeners with sessions: NATS, Redis, Hat and Rendezvous. FTN18 is served over HTTP.

use std::fmt;

/// Client protocols that have a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// NATS clients.
    Nats,
    /// Redis clients.
    Redis,
    /// Clients of Hat Event Server.
    Hat,
    /// Clients of Rendezvous.
    Rv,
}

impl Protocol {
    /// Returns the name of the protocol in configuration, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Nats => "nats",
            Protocol::Redis => "redis",
            Protocol::Hat => "hat",
            Protocol::Rv => "rv",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
