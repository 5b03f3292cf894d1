//! A realm: the hosts that share a secret, their identities, and the certificates by which they recognise each other.
//!
//! | what | who has it |
//! |---|---|
//! | [`Secret`](super::Secret) | every host of the realm |
//! | [`HostIdentity`] | one host |
//! | [`Certificate`] | public: the name, keys and permissions of a host, signed |
//! | [`SigningKey`] of the authority | the host that admits others; only in the mode `pki` |
//!
//! In the mode `realm` a host signs its certificate itself, and other hosts remember its keys. In the mode `pki` the
//! authority signs, and revokes hosts by a signed [`RevocationList`]. [`Trust`] checks certificates of both modes; only the expected issuer differs.
//! `docs/security.md` describes every byte of certificates and lines.

mod certificate;
mod definition;
mod identity;
mod revocation_list;
mod setup_line;
mod trust;

pub use certificate::{
    CERTIFICATE_BYTES_MAX, CERTIFICATE_PATTERNS_MAX, Certificate, CertificateError, CertificateFields, PeerPermissions,
    Validity,
};
pub use definition::{Realm, RealmMode, RealmName, RealmNameError, TrustAnchor};
pub(super) use identity::is_signed_by;
pub use identity::{Fingerprint, FingerprintError, HostIdentity, KEY_BYTES, PeerKeys, SIGNATURE_BYTES, SigningKey};
pub use revocation_list::{
    REVOCATION_LIST_BYTES_MAX, REVOCATIONS_MAX, RevocationList, RevocationListError, RevocationListFields,
};
pub use setup_line::{SETUP_LINE_BYTES_MAX, SetupLine, SetupLineError, SetupLineKind};
pub use trust::{NAMES_MAX, Trust, TrustRefusal, VerifiedPeer, check_validity};
