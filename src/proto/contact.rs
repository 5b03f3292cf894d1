//! The first contact with an epoch. A peer that listened before the publisher started is owed every datagram from
//! number 1 on (R4).

use crate::message::{Dseq, Publisher};
use crate::time::Instant;
use crate::wire::{Header, PeerAnnouncement};
use std::net::SocketAddr;
use std::time::Duration;

/// Part of the R4 margin that covers latency.
const MARGIN: Duration = Duration::from_millis(100);

/// Returns the margin μ of R4 for two clocks that ran for `age`: 100 ms and 2 x 500 ppm.
pub fn margin(age: Duration) -> Duration {
    MARGIN + age / 1000
}

/// First datagram received from an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Uptime of the peer in milliseconds, as the peer announces it; saturating.
    pub uptime_ms: u32,
    /// True if the uptime is that of the transmission. A retransmission carries the uptime at which it was sealed.
    pub is_fresh: bool,
    /// The datagram before the first one that certainly follows: one below the received datagram, or the highest that a
    /// heartbeat announces.
    pub below: Dseq,
    /// Number of messages begun up to `below`.
    pub count: u64,
    /// Number of the datagram if it was a control datagram.
    pub control: Option<u64>,
}

impl Contact {
    /// Creates a contact from a control datagram.
    pub fn of_announce(header: &Header, announce: &PeerAnnouncement) -> Contact {
        Contact {
            uptime_ms: header.uptime_ms,
            is_fresh: true,
            below: announce.high,
            count: header.count,
            control: Some(header.number),
        }
    }

    /// Creates a contact from a data datagram.
    pub fn of_data(header: &Header) -> Contact {
        Contact {
            uptime_ms: header.uptime_ms,
            is_fresh: false,
            below: Dseq(header.number - 1),
            count: header.count,
            control: None,
        }
    }
}

/// Circumstances of the first datagram received from an epoch.
#[derive(Clone, Debug)]
pub struct FirstContact {
    /// Identity of the peer.
    pub publisher: Publisher,
    /// Address that the datagram is from.
    pub address: SocketAddr,
    /// State that the datagram announces.
    pub contact: Contact,
    /// Time at which the datagram is read.
    pub at: Instant,
    /// Earliest possible arrival time of the datagram.
    pub arrived: Instant,
    /// Time since which the peer would have been heard.
    pub listening_since: Instant,
}

/// Returns whether a peer that has listened for `age` is older than a publisher that has been running for `uptime_ms`
/// (R4).
pub fn is_older(uptime_ms: u32, age: Duration) -> bool {
    uptime_ms < u32::MAX && Duration::from_millis(u64::from(uptime_ms)) + margin(age) < age
}
