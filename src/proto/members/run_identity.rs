//! Recognition of a later run of the same peer.

use crate::message::PeerName;
use crate::time::Instant;
use std::net::SocketAddr;

/// One run of a peer, as far as a later run of the same peer is recognised by it.
#[derive(Clone, Copy, Debug)]
pub struct RunIdentity<'a> {
    /// Name of the peer; `None` before its first announcement.
    pub name: Option<&'a PeerName>,
    /// Unicast address of the peer.
    pub address: SocketAddr,
    /// Start of the run.
    pub started: Instant,
    /// Time of its last datagram.
    pub last_heard: Instant,
}

impl RunIdentity<'_> {
    /// Returns whether `later`, whose first datagram arrived at `first_heard`, is a later run of the same peer. It was
    /// first heard after the last datagram of this run, at the same address, or on the same host under the same name.
    pub fn precedes(self, later: RunIdentity<'_>, first_heard: Instant) -> bool {
        let is_namesake = self.name.is_some() && self.name == later.name && self.address.ip() == later.address.ip();
        (later.address == self.address || is_namesake)
            && self.started <= later.started
            && self.last_heard <= first_heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_run_has_the_address_or_the_name() {
        let name: PeerName = "P.1".parse().unwrap();
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let run = |name, port: u16, start: u64| {
            let address = SocketAddr::from(([192, 0, 2, 1], port));
            RunIdentity { name, address, started: at(start), last_heard: at(start + 5) }
        };
        // Each later run is first heard a second after its start.
        let precedes =
            |former: RunIdentity<'_>, later, port, start| former.precedes(run(later, port, start), at(start + 1));
        let former = run(Some(&name), 1, 0);
        assert!(precedes(former, Some(&name), 2, 4));
        assert!(precedes(former, None, 1, 4));
        assert!(!precedes(former, Some(&name), 2, 3), "both runs were heard at the same time");
        assert!(!precedes(former, None, 2, 4));
        assert!(!precedes(run(None, 1, 0), None, 2, 4), "two peers without a name are no namesakes");
    }
}
