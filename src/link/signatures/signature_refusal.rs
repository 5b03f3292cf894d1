//! Reasons for which a gateway of a realm does not accept a message of the cluster.

use super::hub_claim::HubClaim;
use crate::message::PeerName;
use crate::subject::Subject;
use std::fmt;

/// Reason for which a message is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignatureRefusal {
    /// It has no signature.
    Unsigned,
    /// The certificate of the signer is not known yet.
    UnknownCertificate,
    /// An announced certificate cannot be read.
    InvalidCertificate,
    /// A certificate is not checked, since too many unknown ones have come.
    ExcessCertificate,
    /// This host does not trust the certificate for this reason. `is_member` says whether the sender knows the secret of
    /// the realm.
    Untrusted { reason: String, is_member: bool },
    /// The signature is wrong.
    Signature,
    /// The time of the signature differs by this number of seconds from that of the arrival.
    Clock { name: PeerName, seconds: u64 },
    /// The same gateway has sent a later message on the subject.
    Repeated,
    /// The certificate of the signer does not permit the message.
    Denied { name: PeerName, subject: Subject, claim: Option<HubClaim> },
}

impl SignatureRefusal {
    /// Returns whether something is wrong with this host, another one of the realm, or a clock. What any client of the
    /// cluster can cause is no problem of them.
    pub(super) fn is_problem(&self) -> bool {
        match self {
            SignatureRefusal::Unsigned
            | SignatureRefusal::UnknownCertificate
            | SignatureRefusal::InvalidCertificate
            | SignatureRefusal::ExcessCertificate
            | SignatureRefusal::Signature
            | SignatureRefusal::Repeated => false,
            SignatureRefusal::Untrusted { is_member, .. } => *is_member,
            SignatureRefusal::Clock { .. } | SignatureRefusal::Denied { .. } => true,
        }
    }
}

impl fmt::Display for SignatureRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignatureRefusal::Unsigned => f.write_str("a message of the cluster has no signature of the realm"),
            SignatureRefusal::UnknownCertificate => f.write_str("the certificate of a gateway is not known yet"),
            SignatureRefusal::InvalidCertificate => f.write_str("a certificate that was announced cannot be read"),
            SignatureRefusal::ExcessCertificate => f.write_str("too many unknown certificates come: some are ignored"),
            SignatureRefusal::Untrusted { reason, .. } => {
                write!(f, "a gateway at the cluster is not trusted: {reason}")
            }
            SignatureRefusal::Signature => f.write_str("a message of the cluster has a wrong signature"),
            SignatureRefusal::Clock { name, seconds } => {
                write!(
                    f,
                    "the time in a signature of '{name}' differs by {seconds} s from that of its arrival: a clock is \
                     wrong, or the message was sent again"
                )
            }
            SignatureRefusal::Repeated => f.write_str("a message of a gateway came again"),
            SignatureRefusal::Denied { name, subject, claim } => {
                write!(f, "the certificate of '{name}' does not permit its message on {subject}")?;
                match claim {
                    Some(HubClaim::Site(site) | HubClaim::Publication { site, .. }) => {
                        write!(f, " for the site {site}")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}
