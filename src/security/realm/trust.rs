//! The check of another host's certificate.

use super::certificate::{Certificate, CertificateError, PeerPermissions};
use super::definition::{RealmName, TrustAnchor};
use super::identity::{Fingerprint, KEY_BYTES, PeerKeys};
use super::revocation_list::RevocationList;
use crate::message::PeerName;
use crate::time::WallTime;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum number of names whose keys are pinned. A holder of the secret could otherwise fill the memory of every other
/// host.
pub const NAMES_MAX: usize = 4096;

/// The rules by which a host trusts the certificates of others.
///
/// In the mode `realm` the keys of each name are pinned: [`Trust::check`] reports a name that is new, and the caller
/// pins it with [`Trust::pin`].
#[derive(Clone, Debug)]
pub struct Trust {
    realm: RealmName,
    anchor: TrustAnchor,
    /// Fingerprints of known names; unused in the mode `pki`, where the authority decides about names.
    pins: BTreeMap<PeerName, Fingerprint>,
    /// Fingerprints in the revocation list; none in the mode `realm`.
    revoked: BTreeSet<Fingerprint>,
}

/// Another host, as its valid certificate describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedPeer {
    /// The name.
    pub name: PeerName,
    /// The public keys. [`PeerKeys::signing`] verifies what the host signs later.
    pub keys: PeerKeys,
    /// Fingerprint of the keys.
    pub fingerprint: Fingerprint,
    /// Permissions of the host's programs.
    pub permissions: PeerPermissions,
    /// Last second of the certificate's validity since 1970-01-01 UTC; 0 for no end.
    pub not_after: u64,
    /// True if the name is to be pinned.
    pub is_new: bool,
}

/// Reason why a certificate is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustRefusal {
    /// The bytes are no certificate.
    Malformed(CertificateError),
    /// The certificate is for another realm. Holds its name.
    OtherRealm(RealmName),
    /// The handshake proved another static key than that of the certificate.
    StaticKeyDiffers(PeerName),
    /// The issuer is neither the authority nor, in the mode `realm`, the host itself.
    OtherIssuer(PeerName),
    /// The signature is wrong.
    Signature(PeerName),
    /// The keys are revoked.
    Revoked(PeerName),
    /// The certificate becomes valid later.
    NotYetValid {
        /// The host.
        name: PeerName,
        /// Seconds until then.
        seconds: u64,
    },
    /// The certificate is no longer valid.
    Expired {
        /// The host.
        name: PeerName,
        /// Seconds since then.
        seconds: u64,
    },
    /// The name belongs to other keys.
    NamePinned {
        /// The host.
        name: PeerName,
        /// Fingerprint of the keys to which the name belongs.
        pinned: Fingerprint,
        /// Fingerprint of the keys in the certificate.
        presented: Fingerprint,
    },
    /// The name is new, and [`NAMES_MAX`] names are pinned.
    TooManyNames(PeerName),
}

impl TrustRefusal {
    /// Returns the name of the reason, for counters and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            TrustRefusal::Malformed(_) => "malformed",
            TrustRefusal::OtherRealm(_) => "other_realm",
            TrustRefusal::StaticKeyDiffers(_) => "static_key_differs",
            TrustRefusal::OtherIssuer(_) => "other_issuer",
            TrustRefusal::Signature(_) => "signature",
            TrustRefusal::Revoked(_) => "revoked",
            TrustRefusal::NotYetValid { .. } => "not_yet_valid",
            TrustRefusal::Expired { .. } => "expired",
            TrustRefusal::NamePinned { .. } => "name_pinned",
            TrustRefusal::TooManyNames(_) => "too_many_names",
        }
    }
}

impl fmt::Display for TrustRefusal {
    /// Formats the problem, and the remedy after `; `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustRefusal::Malformed(error) => write!(f, "{error}; update seqcast on both hosts"),
            TrustRefusal::OtherRealm(realm) => write!(
                f,
                "the certificate is for the realm '{realm}'; let the host join this realm, or give each realm a port \
                 of its own"
            ),
            TrustRefusal::StaticKeyDiffers(name) => write!(
                f,
                "the host that shows the certificate of '{name}' does not have its key; find the host that copies \
                 certificates"
            ),
            TrustRefusal::OtherIssuer(name) => write!(
                f,
                "the certificate of '{name}' is not signed by the authority of this realm; sign a request of that host \
                 (seqcast realm sign)"
            ),
            TrustRefusal::Signature(name) => {
                write!(f, "the certificate of '{name}' has a wrong signature; join that host again")
            }
            TrustRefusal::Revoked(name) => {
                write!(f, "the keys of '{name}' are revoked; set that host up again, with new keys (seqcast join)")
            }
            TrustRefusal::NotYetValid { name, seconds } => write!(
                f,
                "the certificate of '{name}' becomes valid in {} by the clock of this host; set the clocks of this \
                 host and of the authority",
                SpanText(*seconds)
            ),
            TrustRefusal::Expired { name, seconds } => write!(
                f,
                "the certificate of '{name}' expired {} ago by the clock of this host; sign a new request of that \
                 host (seqcast realm sign), or set the clock",
                SpanText(*seconds)
            ),
            TrustRefusal::NamePinned { name, pinned, presented } => write!(
                f,
                "the name '{name}' belongs to the keys {pinned}, and another host uses it with the keys {presented}; \
                 rename one of the hosts, or let this host forget the name if that host has new keys (seqcast realm \
                 forget {name})"
            ),
            TrustRefusal::TooManyNames(name) => write!(
                f,
                "'{name}' is new, and this host knows {NAMES_MAX} names already; let it forget names (seqcast realm \
                 forget NAME)"
            ),
        }
    }
}

impl std::error::Error for TrustRefusal {}

/// A span in seconds, shown in one unit: `3 days`, `1 hour`.
struct SpanText(u64);

impl fmt::Display for SpanText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
        let (seconds, unit) = units.into_iter().find(|(seconds, _)| *seconds <= self.0).unwrap_or((1, "second"));
        let count = self.0 / seconds;
        write!(f, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

impl Trust {
    /// Creates the rules of a realm, without pinned names.
    pub fn new(realm: RealmName, anchor: TrustAnchor) -> Trust {
        Trust { realm, anchor, pins: BTreeMap::new(), revoked: BTreeSet::new() }
    }

    /// Pins a name to keys; returns false if the name is new and [`NAMES_MAX`] names are pinned. A host pins its own
    /// name first, so that no other host can use it.
    pub fn pin(&mut self, name: PeerName, fingerprint: Fingerprint) -> bool {
        let has_room = self.pins.len() < NAMES_MAX || self.pins.contains_key(&name);
        if has_room {
            self.pins.insert(name, fingerprint);
        }
        has_room
    }

    /// Refuses from now on the keys that the list revokes, and no others. The caller has checked the list.
    pub fn set_revocations(&mut self, list: &RevocationList) {
        self.revoked = list.fields().hosts.keys().copied().collect();
    }

    /// Returns whether the keys with this fingerprint are revoked.
    pub fn is_revoked(&self, fingerprint: Fingerprint) -> bool {
        self.revoked.contains(&fingerprint)
    }

    /// Checks the certificate of a host that has proved, in a handshake, that it has the private half of `static_key`.
    ///
    /// # Errors
    /// Returns the first reason why the certificate is not accepted.
    pub fn check(
        &self,
        certificate: &[u8],
        static_key: &[u8; KEY_BYTES],
        now: WallTime,
    ) -> Result<VerifiedPeer, TrustRefusal> {
        let certificate = Certificate::decode(certificate).map_err(TrustRefusal::Malformed)?;
        let name = certificate.fields.name.clone();
        if certificate.fields.realm != self.realm {
            return Err(TrustRefusal::OtherRealm(certificate.fields.realm));
        }
        if certificate.fields.keys.static_key != *static_key {
            return Err(TrustRefusal::StaticKeyDiffers(name));
        }
        let is_expected_issuer = match &self.anchor {
            TrustAnchor::OwnKey => certificate.is_own(),
            TrustAnchor::Authority(key) => certificate.issuer == *key,
        };
        if !is_expected_issuer {
            return Err(TrustRefusal::OtherIssuer(name));
        }
        if !certificate.is_intact() {
            return Err(TrustRefusal::Signature(name));
        }
        let fingerprint = certificate.fields.keys.fingerprint();
        if self.revoked.contains(&fingerprint) {
            return Err(TrustRefusal::Revoked(name));
        }
        check_validity(&certificate, now)?;
        let is_new = self.check_name(&name, fingerprint)?;
        let (keys, not_after) = (certificate.fields.keys, certificate.fields.validity.not_after);
        Ok(VerifiedPeer { name, keys, fingerprint, permissions: certificate.fields.permissions, not_after, is_new })
    }

    /// Returns whether the name is to be pinned.
    fn check_name(&self, name: &PeerName, presented: Fingerprint) -> Result<bool, TrustRefusal> {
        match self.pins.get(name) {
            _ if self.anchor != TrustAnchor::OwnKey => Ok(false),
            Some(pinned) if *pinned == presented => Ok(false),
            Some(pinned) => Err(TrustRefusal::NamePinned { name: name.clone(), pinned: *pinned, presented }),
            None if self.pins.len() < NAMES_MAX => Ok(true),
            None => Err(TrustRefusal::TooManyNames(name.clone())),
        }
    }
}

/// Checks that a certificate is valid now.
///
/// # Errors
/// Its validity begins later, or has ended.
pub fn check_validity(certificate: &Certificate, now: WallTime) -> Result<(), TrustRefusal> {
    let name = || certificate.fields.name.clone();
    let (now, validity) = (now.as_nanos() / 1_000_000_000, certificate.fields.validity);
    if now < validity.not_before {
        return Err(TrustRefusal::NotYetValid { name: name(), seconds: validity.not_before - now });
    }
    if validity.not_after != 0 && validity.not_after < now {
        return Err(TrustRefusal::Expired { name: name(), seconds: now - validity.not_after });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::certificate::{CertificateFields, Validity};
    use super::super::identity::{HostIdentity, SigningKey};
    use super::super::revocation_list::RevocationListFields;
    use super::*;

    const DAY: u64 = 86_400;

    fn at(seconds: u64) -> WallTime {
        WallTime::from_nanos(seconds * 1_000_000_000)
    }

    fn name(text: &str) -> PeerName {
        text.parse().unwrap()
    }

    fn realm() -> RealmName {
        "plant1".parse().unwrap()
    }

    fn fields(identity: &HostIdentity) -> CertificateFields {
        CertificateFields {
            realm: realm(),
            name: name("A.test"),
            keys: *identity.keys(),
            validity: Validity { not_before: 10 * DAY, not_after: 20 * DAY },
            serial: 1,
            permissions: PeerPermissions::all(),
        }
    }

    /// Signs the certificate of identity 1, and checks it in both modes at day 15.
    fn check_both(change: impl Fn(&mut Certificate), expected: &TrustRefusal) {
        let (identity, authority) = (HostIdentity::from_seed(&[1; 32]), SigningKey::from_seed(&[9; 32]));
        for (anchor, issuer) in
            [(TrustAnchor::OwnKey, identity.signing_key()), (TrustAnchor::Authority(*authority.public()), &authority)]
        {
            let trust = Trust::new(realm(), anchor);
            let mut certificate = Certificate::sign(fields(&identity), issuer).unwrap();
            let accepted = trust.check(&certificate.encode(), &identity.keys().static_key, at(15 * DAY)).unwrap();
            assert_eq!((&accepted.name, accepted.keys), (&name("A.test"), *identity.keys()));
            assert_eq!((accepted.not_after, accepted.permissions), (20 * DAY, PeerPermissions::all()));
            assert_eq!(accepted.is_new, anchor == TrustAnchor::OwnKey);
            change(&mut certificate);
            let refused = trust.check(&certificate.encode(), &identity.keys().static_key, at(15 * DAY));
            assert_eq!(refused.as_ref(), Err(expected));
        }
    }

    #[test]
    fn changed_certificates_are_refused_in_both_modes() {
        let a = || name("A.test");
        check_both(|of| of.fields.realm = "r".parse().unwrap(), &TrustRefusal::OtherRealm("r".parse().unwrap()));
        check_both(|of| of.fields.keys.static_key[0] ^= 1, &TrustRefusal::StaticKeyDiffers(a()));
        check_both(|of| of.issuer[0] ^= 1, &TrustRefusal::OtherIssuer(a()));
        check_both(|of| of.fields.serial ^= 1, &TrustRefusal::Signature(a()));
        check_both(|of| of.fields.name = name("B.test"), &TrustRefusal::Signature(name("B.test")));
    }

    #[test]
    fn issuer_depends_on_the_mode() {
        let (identity, authority) = (HostIdentity::from_seed(&[1; 32]), SigningKey::from_seed(&[9; 32]));
        let own = Certificate::sign(fields(&identity), identity.signing_key()).unwrap();
        let issued = Certificate::sign(fields(&identity), &authority).unwrap();
        for (anchor, certificate) in [(TrustAnchor::Authority(*authority.public()), own), (TrustAnchor::OwnKey, issued)]
        {
            let checked =
                Trust::new(realm(), anchor).check(&certificate.encode(), &identity.keys().static_key, at(15 * DAY));
            assert_eq!(checked, Err(TrustRefusal::OtherIssuer(name("A.test"))));
        }
    }

    #[test]
    fn certificate_is_valid_in_its_span_alone() {
        let identity = HostIdentity::from_seed(&[1; 32]);
        let trust = Trust::new(realm(), TrustAnchor::OwnKey);
        let check = |validity: Validity, now: u64| {
            let fields = CertificateFields { validity, ..fields(&identity) };
            let certificate = Certificate::sign(fields, identity.signing_key()).unwrap();
            trust.check(&certificate.encode(), &identity.keys().static_key, at(now)).map(|_| ()).map_err(|refusal| {
                assert!(matches!(refusal.as_str(), "not_yet_valid" | "expired"));
                refusal.to_string().split_once(" by").unwrap().0.to_owned()
            })
        };
        let span = Validity { not_before: 10 * DAY, not_after: 20 * DAY };
        let refusal = |text: &str| Err(format!("the certificate of 'A.test' {text}"));
        assert_eq!(check(span, 10 * DAY - 1), refusal("becomes valid in 1 second"));
        assert_eq!(check(span, 0), refusal("becomes valid in 10 days"));
        assert_eq!(check(span, 10 * DAY), Ok(()));
        assert_eq!(check(span, 20 * DAY), Ok(()));
        assert_eq!(check(span, 20 * DAY + 7_300), refusal("expired 2 hours ago"));
        assert_eq!(check(Validity { not_after: 0, ..span }, 900 * DAY), Ok(()));
        assert_eq!(check(Validity::default(), 0), Ok(()));
    }

    #[test]
    fn name_with_other_keys_is_refused() {
        let (one, other) = (HostIdentity::from_seed(&[1; 32]), HostIdentity::from_seed(&[2; 32]));
        let check = |trust: &Trust, identity: &HostIdentity| {
            let permissions = PeerPermissions::all();
            let certificate = Certificate::sign_own(realm(), name("A.test"), identity, permissions, 1).unwrap();
            trust.check(&certificate.encode(), &identity.keys().static_key, at(0)).map(|peer| peer.is_new)
        };
        let mut trust = Trust::new(realm(), TrustAnchor::OwnKey);
        assert_eq!(check(&trust, &one), Ok(true));
        let (pinned, presented) = (one.keys().fingerprint(), other.keys().fingerprint());
        assert!(trust.pin(name("A.test"), pinned));
        assert_eq!(check(&trust, &one), Ok(false));
        let refusal = TrustRefusal::NamePinned { name: name("A.test"), pinned, presented };
        assert_eq!(check(&trust, &other), Err(refusal));
    }

    #[test]
    fn revoked_keys_are_refused_until_they_are_unlisted() {
        let (identity, authority) = (HostIdentity::from_seed(&[1; 32]), SigningKey::from_seed(&[9; 32]));
        let mut trust = Trust::new(realm(), TrustAnchor::Authority(*authority.public()));
        let certificate = Certificate::sign(fields(&identity), &authority).unwrap().encode();
        for (seed, expected) in [(1, Err("revoked")), (2, Ok(()))] {
            let revoked = HostIdentity::from_seed(&[seed; 32]).keys().fingerprint();
            let hosts = [(revoked, name("A.test"))].into();
            let list = RevocationListFields { realm: realm(), revision: 1, hosts };
            trust.set_revocations(&RevocationList::sign(list, &authority).unwrap());
            let checked = trust.check(&certificate, &identity.keys().static_key, at(15 * DAY));
            assert_eq!(checked.map(|_| ()).map_err(|refusal| refusal.as_str()), expected);
        }
    }

    #[test]
    fn pinned_names_have_a_bound() {
        let identity = HostIdentity::from_seed(&[1; 32]);
        let fingerprint = identity.keys().fingerprint();
        let mut trust = Trust::new(realm(), TrustAnchor::OwnKey);
        for number in 0..NAMES_MAX {
            assert!(trust.pin(name(&format!("peer{number}")), fingerprint));
        }
        assert!(trust.pin(name("peer7"), fingerprint));
        assert!(!trust.pin(name("A.test"), fingerprint));
        let certificate = Certificate::sign(fields(&identity), identity.signing_key()).unwrap();
        let checked = trust.check(&certificate.encode(), &identity.keys().static_key, at(15 * DAY));
        assert_eq!(checked, Err(TrustRefusal::TooManyNames(name("A.test"))));
    }
}
