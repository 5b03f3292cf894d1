//! Certificates of other peers, as far as the core needs them: the names in them, and the subjects on which their hosts
//! may publish.

use crate::message::{Epoch, MessageOrigin, PeerName};
use crate::subject::permitted_subjects::{HostPermissions, PermittedSubjects};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum time between two reports of messages of one member that its certificate does not permit.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Statements of the certificate of a peer's host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertifiedPeer {
    /// Name in the certificate; `None` if the peer has none, as in open mode.
    pub name: Option<PeerName>,
    /// Subjects on which the peer may publish.
    pub publish: PermittedSubjects,
    /// Proof of the publisher of what the peer sends to the group; `None` in open mode.
    pub origin: Option<MessageOrigin>,
}

/// Statements of the certificate of this peer's own host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnCertificate {
    /// Name in the certificate; `None` in open mode.
    pub name: Option<PeerName>,
    /// Permissions of the programs of this host.
    pub permissions: HostPermissions,
}

/// Certificate of a member, with what was reported about it.
#[derive(Clone, Debug, Default)]
pub struct MemberCertificate {
    /// The statements.
    pub certified: CertifiedPeer,
    /// True if the peer announces the name in the certificate of another host.
    pub has_foreign_name: bool,
    /// Time of the last report of a message that is not permitted.
    reported_at: Option<Instant>,
}

impl MemberCertificate {
    /// Returns whether a message that is not permitted is to be reported now, and records that.
    pub fn take_report(&mut self, now: Instant) -> bool {
        let is_due = self.reported_at.is_none_or(|at| REPORT_INTERVAL <= now.since(at));
        if is_due {
            self.reported_at = Some(now);
        }
        is_due
    }
}

/// Peers that have proven their identity.
#[derive(Debug)]
pub struct CertifiedPeers {
    peers_max: usize,
    /// True once a peer has proven its identity. All of them do so from then on.
    is_keyed: bool,
    /// The peers, each with its number in the order of the proofs.
    peers: BTreeMap<Epoch, (u64, CertifiedPeer)>,
    /// Number of proofs so far.
    proofs: u64,
}

impl CertifiedPeers {
    /// Creates the state of a peer that knows no certificates.
    pub fn new(peers_max: usize) -> CertifiedPeers {
        CertifiedPeers { peers_max, is_keyed: false, peers: BTreeMap::new(), proofs: 0 }
    }

    /// Adds a peer that has proven its identity. At the limit, the peer that proved its identity first leaves of those
    /// that are no members.
    pub fn insert(&mut self, epoch: Epoch, certified: CertifiedPeer, is_member: impl Fn(&Epoch) -> bool) {
        self.is_keyed = true;
        self.proofs += 1;
        self.peers.insert(epoch, (self.proofs, certified));
        while self.peers_max < self.peers.len() {
            let absent = self.peers.iter().filter(|(other, _)| **other != epoch && !is_member(other));
            let Some(oldest) = absent.min_by_key(|(_, (proof, _))| *proof).map(|(epoch, _)| *epoch) else { return };
            self.peers.remove(&oldest);
        }
    }

    /// Returns whether a peer has proven its identity. All of them do so from then on.
    pub fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// Returns whether the certificate of a known peer has this name.
    pub fn has_name(&self, name: &PeerName) -> bool {
        self.peers.values().any(|(_, certified)| certified.name.as_ref() == Some(name))
    }

    /// Returns the statements about a peer. In open mode it may publish on every subject. Among keyed peers, one without
    /// a known certificate may publish on none.
    pub fn of(&self, epoch: Epoch) -> CertifiedPeer {
        match self.peers.get(&epoch) {
            Some((_, certified)) => certified.clone(),
            None if !self.is_keyed => CertifiedPeer::default(),
            None => {
                CertifiedPeer { name: None, publish: PermittedSubjects::of([]), origin: Some(MessageOrigin::Group) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    fn certified(name: &str) -> CertifiedPeer {
        CertifiedPeer { name: Some(name.parse().unwrap()), ..CertifiedPeer::default() }
    }

    #[test]
    fn unknown_peers_may_publish_nothing_once_keyed() {
        let mut peers = CertifiedPeers::new(2);
        assert!(peers.of(epoch(1)).publish.is_all());
        peers.insert(epoch(1), certified("A.test"), |_| false);
        assert_eq!(peers.of(epoch(1)), certified("A.test"));
        let unknown = peers.of(epoch(2));
        assert_eq!((unknown.name, unknown.publish), (None, PermittedSubjects::of([])));
    }

    #[test]
    fn oldest_absent_peer_leaves_at_the_limit() {
        let mut peers = CertifiedPeers::new(2);
        for number in [3, 1, 2] {
            peers.insert(epoch(number), certified("A.test"), |epoch| epoch.bits() == 3);
        }
        let known = [1, 2, 3].map(|number| peers.of(epoch(number)).publish.is_all());
        assert_eq!(known, [false, true, true]);
    }

    #[test]
    fn denied_messages_are_reported_every_ten_seconds() {
        let mut certificate = MemberCertificate::default();
        let reported = [0, 1, 9_999, 10_000, 19_999, 20_000]
            .map(|millis| certificate.take_report(Instant::from_nanos(millis * 1_000_000)));
        assert_eq!(reported, [true, false, false, true, false, true]);
    }
}
