//! Counters of the security layer.

/// Counters of a security layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecurityCounters {
    /// Datagrams of open mode, which a keyed peer discards.
    pub discard_open: u64,
    /// Datagrams of a mode or layout that is not known.
    pub discard_malformed: u64,
    /// Datagrams that their sender did not seal, or that were changed.
    pub discard_forged: u64,
    /// Control datagrams that were accepted before, and older datagrams to the group than the keys are for.
    pub discard_replayed: u64,
    /// Datagrams of a known epoch from another address.
    pub discard_source: u64,
    /// Datagrams for other groups or receivers.
    pub discard_other: u64,
    /// Datagrams of peers without a handshake in progress, whose keys did not arrive in time, or that found no room to
    /// wait.
    pub discard_unauthenticated: u64,
    /// Datagrams to peers whose keys were forgotten.
    pub discard_unsent: u64,
    /// Datagrams of handshakes that are not authentic, or came out of turn.
    pub discard_handshake: u64,
    /// Handshakes that were not begun or answered because of a limit.
    pub limited_handshakes: u64,
    /// Peers that have proven their identity.
    pub authenticated: u64,
    /// Peers that were refused.
    pub refused: u64,
    /// Peers whose certificate has expired.
    pub expired: u64,
    /// Peers whose keys were revoked while they ran.
    pub revoked: u64,
    /// Silent peers whose keys were forgotten for others.
    pub evicted: u64,
    /// Times at which this peer has changed the keys of its datagrams to the group.
    pub rekeyed: u64,
    /// DATA of peers that sign, which its publisher has signed.
    pub origin_verified: u64,
    /// DATA of peers that sign, which no signature has covered in time.
    pub origin_unverified: u64,
    /// DATA that another member than its publisher has made.
    pub origin_forged: u64,
    /// Datagrams of peers that sign, which were held, and which no signature has covered in time or that found no room.
    pub discard_unverified: u64,
    /// SIGNATUREs that another member has made, or that came too often.
    pub discard_signature: u64,
}
