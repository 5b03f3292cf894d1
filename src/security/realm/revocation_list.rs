//! The list of revoked hosts of a realm, signed by the authority.
//!
//! ```text
//!  0 +------------------------------------+
//!    | "seqrevo" (7 bytes)  | version = 1 |
//!  8 +------------------------------------+
//!    | revision                           |  1 or more; a higher one replaces the list
//! 16 +------------------------------------+
//!    | length (1) | realm name            |
//!    +------------------------------------+
//!    | count (2)  | hosts                 |  each: fingerprint (32), length (1), name
//!    +------------------------------------+
//!    | signature by the authority         |  64 bytes, Ed25519, over all bytes before it
//!    +------------------------------------+
//! ```
//!
//! Numbers are big-endian, and the fingerprints ascend. No two encodings have the same meaning: the bytes that decode
//! are those that encode.

use super::certificate::put_text;
use super::definition::{Realm, RealmName, TrustAnchor};
use super::identity::{FINGERPRINT_BYTES, Fingerprint, KEY_BYTES, SIGNATURE_BYTES, SigningKey, is_signed_by};
use crate::message::PeerName;
use crate::wire::{self, Reader};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Maximum number of revoked hosts of a realm: as many as the authority can admit at a time.
pub const REVOCATIONS_MAX: usize = 4096;
/// Maximum length of a list in bytes.
pub const REVOCATION_LIST_BYTES_MAX: usize =
    16 + NAME_BYTES_MAX + 2 + REVOCATIONS_MAX * (FINGERPRINT_BYTES + NAME_BYTES_MAX) + SIGNATURE_BYTES;

/// Bytes of the longest name with its length.
const NAME_BYTES_MAX: usize = 1 + PeerName::BYTES_MAX;
/// First bytes of every list. No other signed text of seqcast begins with them.
const MAGIC: [u8; 7] = *b"seqrevo";
/// Version of the layout.
const VERSION: u8 = 1;

/// Statements of a revocation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationListFields {
    /// The realm.
    pub realm: RealmName,
    /// Number of the list, 1 or more. A list with a higher one replaces it.
    pub revision: u64,
    /// Fingerprints of revoked keys, each with the name that the host had; at most [`REVOCATIONS_MAX`].
    pub hosts: BTreeMap<Fingerprint, PeerName>,
}

/// A list of revoked hosts. Its signature may be wrong: [`RevocationList::check`] checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    fields: RevocationListFields,
    signature: [u8; SIGNATURE_BYTES],
}

/// Reason why bytes are no revocation list, or why a list is not one of a realm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevocationListError {
    /// The text is no base64.
    Base64,
    /// The list exceeds [`REVOCATION_LIST_BYTES_MAX`].
    TooLong,
    /// A field reaches past the end.
    Truncated,
    /// This number of bytes follows the signature.
    Trailing(usize),
    /// The first bytes are not those of a revocation list.
    Magic,
    /// The layout has this unknown version.
    Version(u8),
    /// A name is invalid.
    Name,
    /// The revision is 0.
    Revision,
    /// The list has more than [`REVOCATIONS_MAX`] hosts.
    TooMany,
    /// The fingerprints do not ascend.
    Order,
    /// The list is for another realm. Holds its name.
    OtherRealm(RealmName),
    /// The realm has no authority, so no list is valid in it.
    NoAuthority,
    /// The signature is not that of the authority.
    Signature,
}

impl fmt::Display for RevocationListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RevocationListError::Base64 => write!(f, "the text of the revocation list is no base64"),
            RevocationListError::TooLong => {
                write!(f, "a revocation list has at most {REVOCATION_LIST_BYTES_MAX} bytes")
            }
            RevocationListError::Truncated => write!(f, "the revocation list is cut off"),
            RevocationListError::Trailing(bytes) => write!(f, "{bytes} bytes follow the revocation list"),
            RevocationListError::Magic => write!(f, "the bytes are no revocation list of seqcast"),
            RevocationListError::Version(version) => {
                write!(f, "the revocation list has the version {version}; this program knows version {VERSION}")
            }
            RevocationListError::Name => write!(f, "a name in the revocation list is invalid"),
            RevocationListError::Revision => write!(f, "the revision of the revocation list is 0"),
            RevocationListError::TooMany => write!(f, "a revocation list has at most {REVOCATIONS_MAX} hosts"),
            RevocationListError::Order => write!(f, "the fingerprints in the revocation list do not ascend"),
            RevocationListError::OtherRealm(realm) => write!(f, "the revocation list is for the realm '{realm}'"),
            RevocationListError::NoAuthority => write!(f, "the realm has no authority that could revoke hosts"),
            RevocationListError::Signature => write!(f, "the authority has not signed the revocation list"),
        }
    }
}

impl std::error::Error for RevocationListError {}

impl From<wire::DecodeError> for RevocationListError {
    /// The reader of bytes refuses nothing but reads past the end.
    fn from(_: wire::DecodeError) -> RevocationListError {
        RevocationListError::Truncated
    }
}

impl RevocationList {
    /// Makes a list that the authority signs.
    ///
    /// # Errors
    /// The revision is 0, or there are too many hosts.
    pub fn sign(fields: RevocationListFields, authority: &SigningKey) -> Result<RevocationList, RevocationListError> {
        let mut list = RevocationList::from_parts(fields, [0; SIGNATURE_BYTES])?;
        list.signature = authority.sign(&list.signed_bytes());
        Ok(list)
    }

    /// Joins the statements of a list and its signature, which is not checked.
    ///
    /// # Errors
    /// The revision is 0, or there are too many hosts.
    pub fn from_parts(
        fields: RevocationListFields,
        signature: [u8; SIGNATURE_BYTES],
    ) -> Result<RevocationList, RevocationListError> {
        if fields.revision == 0 {
            return Err(RevocationListError::Revision);
        }
        if REVOCATIONS_MAX < fields.hosts.len() {
            return Err(RevocationListError::TooMany);
        }
        Ok(RevocationList { fields, signature })
    }

    /// Decodes a list. The signature is not checked.
    ///
    /// # Errors
    /// Returns the first reason why the bytes are no list.
    pub fn decode(bytes: &[u8]) -> Result<RevocationList, RevocationListError> {
        if REVOCATION_LIST_BYTES_MAX < bytes.len() {
            return Err(RevocationListError::TooLong);
        }
        let bytes = Bytes::copy_from_slice(bytes);
        let mut reader = Reader::new(&bytes);
        let magic: [u8; MAGIC.len()] = reader.array()?;
        if magic != MAGIC {
            return Err(RevocationListError::Magic);
        }
        match reader.u8()? {
            VERSION => {}
            version => return Err(RevocationListError::Version(version)),
        }
        let (revision, realm) = (reader.u64()?, decode_name(&mut reader)?);
        let count = usize::from(reader.u16()?);
        if REVOCATIONS_MAX < count {
            return Err(RevocationListError::TooMany);
        }
        let mut hosts = BTreeMap::new();
        for _ in 0..count {
            let fingerprint = Fingerprint::from_bytes(reader.array()?);
            if hosts.last_key_value().is_some_and(|(last, _)| fingerprint <= *last) {
                return Err(RevocationListError::Order);
            }
            hosts.insert(fingerprint, decode_name(&mut reader)?);
        }
        let signature = reader.array()?;
        match reader.left() {
            0 => RevocationList::from_parts(RevocationListFields { realm, revision, hosts }, signature),
            left => Err(RevocationListError::Trailing(left)),
        }
    }

    /// Returns the bytes of the list.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.signed_bytes();
        bytes.extend(self.signature);
        bytes
    }

    /// Returns the bytes of the list in base64 (RFC 4648, section 4).
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.encode())
    }

    /// Decodes a list in base64. The signature is not checked.
    ///
    /// # Errors
    /// Returns the first reason why the text is no list.
    pub fn from_base64(text: &str) -> Result<RevocationList, RevocationListError> {
        let bytes = STANDARD.decode(text).map_err(|_| RevocationListError::Base64)?;
        RevocationList::decode(&bytes)
    }

    /// Returns the statements.
    pub fn fields(&self) -> &RevocationListFields {
        &self.fields
    }

    /// Returns the signature.
    pub fn signature(&self) -> &[u8; SIGNATURE_BYTES] {
        &self.signature
    }

    /// Returns whether the list revokes these keys.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.fields.hosts.contains_key(fingerprint)
    }

    /// Checks that the list is one of the realm, and that its authority has signed it.
    ///
    /// # Errors
    /// Returns the first reason why the list is not valid in this realm.
    pub fn check(&self, realm: &Realm) -> Result<(), RevocationListError> {
        if self.fields.realm != realm.name {
            return Err(RevocationListError::OtherRealm(self.fields.realm.clone()));
        }
        let authority: [u8; KEY_BYTES] = match realm.anchor {
            TrustAnchor::OwnKey => return Err(RevocationListError::NoAuthority),
            TrustAnchor::Authority(key) => key,
        };
        match is_signed_by(&authority, &self.signed_bytes(), &self.signature) {
            true => Ok(()),
            false => Err(RevocationListError::Signature),
        }
    }

    /// Returns the bytes before the signature.
    fn signed_bytes(&self) -> Vec<u8> {
        let RevocationListFields { realm, revision, hosts } = &self.fields;
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend(revision.to_be_bytes());
        put_text(&mut bytes, realm.as_str());
        bytes.extend(u16::try_from(hosts.len()).expect("at most 4,096 hosts").to_be_bytes());
        for (fingerprint, name) in hosts {
            bytes.extend(fingerprint.bytes());
            put_text(&mut bytes, name.as_str());
        }
        bytes
    }
}

fn decode_name<Name: FromStr>(reader: &mut Reader) -> Result<Name, RevocationListError> {
    let length = reader.u8()?;
    let text = reader.bytes(usize::from(length))?;
    let text = std::str::from_utf8(&text).map_err(|_| RevocationListError::Name)?;
    text.parse().map_err(|_| RevocationListError::Name)
}

#[cfg(test)]
mod tests {
    use super::super::identity::HostIdentity;
    use super::*;
    use crate::security::Secret;

    fn authority() -> SigningKey {
        SigningKey::from_seed(&[9; 32])
    }

    fn realm(name: &str, anchor: TrustAnchor) -> Realm {
        Realm { name: name.parse().unwrap(), anchor, secret: Secret::new([0x5a; 32]) }
    }

    /// Returns the statements about hosts with the seeds 1 and 2.
    fn fields() -> RevocationListFields {
        let host = |seed: u8, name: &str| {
            (HostIdentity::from_seed(&[seed; 32]).keys().fingerprint(), name.parse::<PeerName>().unwrap())
        };
        let hosts = [host(1, "A.test"), host(2, "B.test")].into();
        RevocationListFields { realm: "plant1".parse().unwrap(), revision: 0x0102_0304_0506_0708, hosts }
    }

    fn list() -> RevocationList {
        RevocationList::sign(fields(), &authority()).unwrap()
    }

    /// The bytes were computed by another implementation of HKDF, X25519 and Ed25519.
    #[test]
    fn list_agrees_with_another_implementation() {
        let expected = "7365717265766f01010203040506070806706c616e7431000278fa55b95760ba4ad9e40cef6792b6ddcf7f765291e7\
                        e9e8b7a79ce369346fa406422e74657374b61ad7bf2f8df4afdc567440273ebb51eb922e46447eba4ecbf6d887c024\
                        efd406412e746573741c2532e0380be288b82d320763cb8540ce0e46592d2dd723dd0f22bcf921fe288e78b61680fa\
                        3997d464550f659d833c12289c9b9169e2a6c2a6d839273d2207";
        let hex: String = list().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn lists_are_read_back() {
        let empty = RevocationListFields { hosts: BTreeMap::new(), ..fields() };
        for list in [list(), RevocationList::sign(empty, &authority()).unwrap()] {
            assert_eq!(RevocationList::decode(&list.encode()).as_ref(), Ok(&list));
            assert_eq!(RevocationList::from_base64(&list.to_base64()).as_ref(), Ok(&list));
            assert_eq!(list.check(&realm("plant1", TrustAnchor::Authority(*authority().public()))), Ok(()));
        }
        let revoked = HostIdentity::from_seed(&[1; 32]).keys().fingerprint();
        let other = HostIdentity::from_seed(&[3; 32]).keys().fingerprint();
        assert_eq!((list().contains(&revoked), list().contains(&other)), (true, false));
    }

    #[test]
    fn each_changed_byte_of_a_list_is_refused() {
        let (bytes, realm) = (list().encode(), realm("plant1", TrustAnchor::Authority(*authority().public())));
        for at in 0..bytes.len() {
            for change in [1, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let checked = RevocationList::decode(&changed).and_then(|list| list.check(&realm));
                assert!(checked.is_err(), "byte {at} ^ {change:#x}");
            }
        }
    }

    #[test]
    fn cut_and_longer_lists_are_refused() {
        let bytes = list().encode();
        for length in 0..bytes.len() {
            let refused = RevocationList::decode(&bytes[..length]);
            assert_eq!(refused, Err(RevocationListError::Truncated), "{length} bytes");
        }
        let longer = RevocationList::decode(&[&bytes[..], &[0, 0]].concat());
        assert_eq!(longer, Err(RevocationListError::Trailing(2)));
        let too_long = RevocationList::decode(&vec![0; REVOCATION_LIST_BYTES_MAX + 1]);
        assert_eq!(too_long, Err(RevocationListError::TooLong));
    }

    #[test]
    fn invalid_fields_of_a_list_are_refused() {
        let bytes = list().encode();
        let refused = |at: usize, replacement: &[u8]| {
            let mut changed = bytes.clone();
            changed[at..at + replacement.len()].copy_from_slice(replacement);
            RevocationList::decode(&changed).unwrap_err()
        };
        assert_eq!(refused(0, b"seqcert"), RevocationListError::Magic);
        assert_eq!(refused(7, &[2]), RevocationListError::Version(2));
        assert_eq!(refused(8, &[0; 8]), RevocationListError::Revision);
        assert_eq!(refused(17, b" "), RevocationListError::Name);
        assert_eq!(refused(17, &[0xff]), RevocationListError::Name);
        let too_many = u16::try_from(REVOCATIONS_MAX + 1).unwrap();
        assert_eq!(refused(23, &too_many.to_be_bytes()), RevocationListError::TooMany);
        // The same host twice, and the two hosts in the other order.
        let host_bytes = FINGERPRINT_BYTES + 7;
        let [first, second] = [0, 1].map(|index| bytes[25 + index * host_bytes..][..host_bytes].to_vec());
        assert_eq!(refused(25 + host_bytes, &first), RevocationListError::Order);
        assert_eq!(refused(25, &[second, first].concat()), RevocationListError::Order);
    }

    #[test]
    fn list_is_valid_in_its_realm_alone() {
        let anchor = TrustAnchor::Authority(*authority().public());
        let other = TrustAnchor::Authority(*SigningKey::from_seed(&[8; 32]).public());
        let check = |name: &str, anchor: TrustAnchor| list().check(&realm(name, anchor));
        assert_eq!(check("plant1", anchor), Ok(()));
        assert_eq!(check("plant1", other), Err(RevocationListError::Signature));
        assert_eq!(check("plant1", TrustAnchor::OwnKey), Err(RevocationListError::NoAuthority));
        assert_eq!(check("plant2", anchor), Err(RevocationListError::OtherRealm("plant1".parse().unwrap())));
    }

    #[test]
    fn list_of_too_many_hosts_is_refused() {
        let host = |number: usize| {
            let mut bytes = [0; FINGERPRINT_BYTES];
            bytes[..8].copy_from_slice(&u64::try_from(number).unwrap().to_be_bytes());
            (Fingerprint::from_bytes(bytes), format!("{number:0>64}").parse::<PeerName>().unwrap())
        };
        let realm: RealmName = "r".repeat(RealmName::BYTES_MAX).parse().unwrap();
        let sign = |count: usize| {
            let hosts = (0..count).map(host).collect();
            RevocationList::sign(RevocationListFields { realm: realm.clone(), revision: u64::MAX, hosts }, &authority())
        };
        let longest = sign(REVOCATIONS_MAX).unwrap();
        assert_eq!(longest.encode().len(), REVOCATION_LIST_BYTES_MAX);
        assert_eq!(RevocationList::decode(&longest.encode()), Ok(longest));
        assert_eq!(sign(REVOCATIONS_MAX + 1), Err(RevocationListError::TooMany));
    }
}
