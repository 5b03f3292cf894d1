//! The certificate of a host: its name, keys and permissions, signed by the host itself or by the realm's authority.
//!
//! ```text
//!   0 +------------------------------------+
//!     | "seqcert" (7 bytes)  | version = 1 |
//!   8 +------------------------------------+
//!     | serial                             |
//!  16 +------------------------------------+
//!     | not before, seconds since 1970     |  0: valid since ever
//!  24 +------------------------------------+
//!     | not after, seconds since 1970      |  0: valid for ever
//!  32 +------------------------------------+
//!     | signing key of the host, Ed25519   |  32 bytes
//!  64 +------------------------------------+
//!     | static key of the host, X25519     |  32 bytes
//!  96 +------------------------------------+
//!     | key of the issuer, Ed25519         |  32 bytes
//! 128 +------------------------------------+
//!     | length (1) | realm name            |
//!     +------------------------------------+
//!     | length (1) | name of the host      |
//!     +------------------------------------+
//!     | count (1)  | publish patterns      |  each: length (1), text
//!     +------------------------------------+
//!     | count (1)  | subscribe patterns    |  each: length (1), text
//!     +------------------------------------+
//!     | signature by the issuer, Ed25519   |  64 bytes, over all bytes before it
//!     +------------------------------------+
//! ```
//!
//! Numbers are big-endian. No two encodings have the same meaning: the bytes that decode are those that encode.

use super::definition::RealmName;
use super::identity::{HostIdentity, KEY_BYTES, PeerKeys, SIGNATURE_BYTES, SigningKey, is_signed_by};
use crate::message::PeerName;
use crate::subject::{Pattern, Subject};
use crate::wire::{self, Reader};
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;

/// Maximum length of a certificate in bytes. The datagrams of a handshake that contain one then have at most 1,200 bytes
/// (wire.md section 18.4).
pub const CERTIFICATE_BYTES_MAX: usize = 960;
/// Maximum number of patterns for publishing, and of those for subscribing.
pub const CERTIFICATE_PATTERNS_MAX: usize = 64;

/// First bytes of every certificate. No other signed text of seqcast begins with them.
const MAGIC: [u8; 7] = *b"seqcert";
/// Version of the layout.
const VERSION: u8 = 1;

/// Span of wall-clock time, in seconds since 1970-01-01 UTC. 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// First second of the span.
    pub not_before: u64,
    /// Last second of the span.
    pub not_after: u64,
}

/// The subjects that the programs of a host may use. Nothing else is permitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPermissions {
    /// Patterns of subjects on which the host may publish; at most [`CERTIFICATE_PATTERNS_MAX`].
    pub publish: Vec<Pattern>,
    /// Patterns of subjects that the host may receive; at most [`CERTIFICATE_PATTERNS_MAX`].
    pub subscribe: Vec<Pattern>,
}

impl PeerPermissions {
    /// Returns the permissions for all subjects.
    pub fn all() -> PeerPermissions {
        let all: Pattern = ">".parse().expect("'>' is a pattern");
        PeerPermissions { publish: vec![all.clone()], subscribe: vec![all] }
    }

    /// Returns whether the host may publish on the subject.
    pub fn may_publish(&self, subject: &Subject) -> bool {
        self.publish.iter().any(|pattern| pattern.matches(subject))
    }

    /// Returns whether the host may receive messages on the subject.
    pub fn may_receive(&self, subject: &Subject) -> bool {
        self.subscribe.iter().any(|pattern| pattern.matches(subject))
    }
}

/// Statements of a certificate about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFields {
    /// The realm.
    pub realm: RealmName,
    /// Name of the host's peer.
    pub name: PeerName,
    /// Public keys of the host.
    pub keys: PeerKeys,
    /// The span in which the certificate is valid.
    pub validity: Validity,
    /// A number that the issuer gives no other certificate.
    pub serial: u64,
    /// Permissions of the host's programs.
    pub permissions: PeerPermissions,
}

/// A certificate. Its signature may be wrong: [`Certificate::is_intact`] checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub(super) fields: CertificateFields,
    pub(super) issuer: [u8; KEY_BYTES],
    signature: [u8; SIGNATURE_BYTES],
}

/// Reason why bytes are no certificate, or statements do not fit in one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// The certificate exceeds [`CERTIFICATE_BYTES_MAX`].
    TooLong,
    /// A field reaches past the end.
    Truncated,
    /// This number of bytes follows the signature.
    Trailing(usize),
    /// The first bytes are not those of a certificate.
    Magic,
    /// The layout has this unknown version.
    Version(u8),
    /// A name is invalid.
    Name,
    /// A pattern is invalid.
    Pattern,
    /// A list exceeds [`CERTIFICATE_PATTERNS_MAX`].
    TooManyPatterns,
    /// The validity ends before it begins.
    Validity,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateError::TooLong => write!(f, "a certificate has at most {CERTIFICATE_BYTES_MAX} bytes"),
            CertificateError::Truncated => write!(f, "the certificate is cut off"),
            CertificateError::Trailing(bytes) => write!(f, "{bytes} bytes follow the certificate"),
            CertificateError::Magic => write!(f, "the bytes are no certificate of seqcast"),
            CertificateError::Version(version) => {
                write!(f, "the certificate has the version {version}; this program knows version {VERSION}")
            }
            CertificateError::Name => write!(f, "a name in the certificate is invalid"),
            CertificateError::Pattern => write!(f, "a pattern in the certificate is invalid"),
            CertificateError::TooManyPatterns => {
                write!(f, "a certificate has at most {CERTIFICATE_PATTERNS_MAX} patterns of each kind")
            }
            CertificateError::Validity => write!(f, "the validity of the certificate ends before it begins"),
        }
    }
}

impl std::error::Error for CertificateError {}

impl From<wire::DecodeError> for CertificateError {
    /// The reader of bytes refuses nothing but reads past the end.
    fn from(_: wire::DecodeError) -> CertificateError {
        CertificateError::Truncated
    }
}

impl Certificate {
    /// Makes a certificate that `issuer` signs.
    ///
    /// # Errors
    /// There are too many patterns, they are too long together, or the validity ends before it begins.
    pub fn sign(fields: CertificateFields, issuer: &SigningKey) -> Result<Certificate, CertificateError> {
        check_validity(fields.validity)?;
        let lists = [&fields.permissions.publish, &fields.permissions.subscribe];
        if lists.iter().any(|patterns| CERTIFICATE_PATTERNS_MAX < patterns.len()) {
            return Err(CertificateError::TooManyPatterns);
        }
        let mut certificate = Certificate { fields, issuer: *issuer.public(), signature: [0; SIGNATURE_BYTES] };
        let signed = certificate.signed_bytes();
        if CERTIFICATE_BYTES_MAX < signed.len() + SIGNATURE_BYTES {
            return Err(CertificateError::TooLong);
        }
        certificate.signature = issuer.sign(&signed);
        Ok(certificate)
    }

    /// Makes the certificate that a host signs itself, without a limit in time. In the mode `pki` it is the request for
    /// a certificate, and proves that the host has the signing key.
    ///
    /// # Errors
    /// The same as of [`Certificate::sign`].
    pub fn sign_own(
        realm: RealmName,
        name: PeerName,
        identity: &HostIdentity,
        permissions: PeerPermissions,
        serial: u64,
    ) -> Result<Certificate, CertificateError> {
        let keys = *identity.keys();
        let fields = CertificateFields { realm, name, keys, validity: Validity::default(), serial, permissions };
        Certificate::sign(fields, identity.signing_key())
    }

    /// Decodes a certificate. The signature is not checked.
    ///
    /// # Errors
    /// Returns the first reason why the bytes are no certificate.
    pub fn decode(bytes: &[u8]) -> Result<Certificate, CertificateError> {
        if CERTIFICATE_BYTES_MAX < bytes.len() {
            return Err(CertificateError::TooLong);
        }
        let bytes = Bytes::copy_from_slice(bytes);
        let mut reader = Reader::new(&bytes);
        let magic: [u8; MAGIC.len()] = reader.array()?;
        if magic != MAGIC {
            return Err(CertificateError::Magic);
        }
        match reader.u8()? {
            VERSION => {}
            version => return Err(CertificateError::Version(version)),
        }
        let serial = reader.u64()?;
        let validity = Validity { not_before: reader.u64()?, not_after: reader.u64()? };
        check_validity(validity)?;
        let keys = PeerKeys { signing: reader.array()?, static_key: reader.array()? };
        let issuer = reader.array()?;
        let (realm, name) = (decode_name(&mut reader)?, decode_name(&mut reader)?);
        let permissions =
            PeerPermissions { publish: decode_patterns(&mut reader)?, subscribe: decode_patterns(&mut reader)? };
        let signature = reader.array()?;
        match reader.left() {
            0 => {}
            left => return Err(CertificateError::Trailing(left)),
        }
        let fields = CertificateFields { realm, name, keys, validity, serial, permissions };
        Ok(Certificate { fields, issuer, signature })
    }

    /// Returns the bytes of the certificate.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.signed_bytes();
        bytes.extend(self.signature);
        bytes
    }

    /// Returns the statements.
    pub fn fields(&self) -> &CertificateFields {
        &self.fields
    }

    /// Returns whether the signature is that of the issuer named in the certificate.
    pub fn is_intact(&self) -> bool {
        is_signed_by(&self.issuer, &self.signed_bytes(), &self.signature)
    }

    /// Returns whether the host is the issuer of its certificate.
    pub fn is_own(&self) -> bool {
        self.issuer == self.fields.keys.signing
    }

    /// Returns the bytes before the signature.
    fn signed_bytes(&self) -> Vec<u8> {
        let CertificateFields { realm, name, keys, validity, serial, permissions } = &self.fields;
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        for number in [*serial, validity.not_before, validity.not_after] {
            bytes.extend(number.to_be_bytes());
        }
        for key in [&keys.signing, &keys.static_key, &self.issuer] {
            bytes.extend(key);
        }
        put_text(&mut bytes, realm.as_str());
        put_text(&mut bytes, name.as_str());
        for patterns in [&permissions.publish, &permissions.subscribe] {
            bytes.push(u8::try_from(patterns.len()).expect("at most 64 patterns"));
            for pattern in patterns {
                put_text(&mut bytes, pattern.as_str());
            }
        }
        bytes
    }
}

/// Appends a text of at most 255 bytes with its length.
pub(super) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len()).expect("names and patterns have at most 255 bytes"));
    bytes.extend(text.as_bytes());
}

fn check_validity(validity: Validity) -> Result<(), CertificateError> {
    let is_reversed = validity.not_after != 0 && validity.not_after < validity.not_before;
    if is_reversed { Err(CertificateError::Validity) } else { Ok(()) }
}

fn decode_text(reader: &mut Reader) -> Result<Bytes, CertificateError> {
    let length = reader.u8()?;
    Ok(reader.bytes(usize::from(length))?)
}

fn decode_name<Name: FromStr>(reader: &mut Reader) -> Result<Name, CertificateError> {
    let text = decode_text(reader)?;
    let text = std::str::from_utf8(&text).map_err(|_| CertificateError::Name)?;
    text.parse().map_err(|_| CertificateError::Name)
}

fn decode_patterns(reader: &mut Reader) -> Result<Vec<Pattern>, CertificateError> {
    let count = usize::from(reader.u8()?);
    if CERTIFICATE_PATTERNS_MAX < count {
        return Err(CertificateError::TooManyPatterns);
    }
    let pattern = |_| Pattern::from_bytes(decode_text(reader)?).map_err(|_| CertificateError::Pattern);
    (0..count).map(pattern).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(identity: &HostIdentity) -> CertificateFields {
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        CertificateFields {
            realm: "plant1".parse().unwrap(),
            name: "A.test".parse().unwrap(),
            keys: *identity.keys(),
            validity: Validity { not_before: 1_700_000_000, not_after: 1_800_000_000 },
            serial: 0x0102_0304_0506_0708,
            permissions: PeerPermissions { publish: patterns(&["line.*.state"]), subscribe: patterns(&["cmd.>", "a"]) },
        }
    }

    fn certificate() -> Certificate {
        Certificate::sign(fields(&HostIdentity::from_seed(&[1; 32])), &SigningKey::from_seed(&[9; 32])).unwrap()
    }

    #[test]
    fn certificate_has_the_documented_layout() {
        let (certificate, identity) = (certificate(), HostIdentity::from_seed(&[1; 32]));
        let bytes = certificate.encode();
        assert_eq!(&bytes[..16], b"seqcert\x01\x01\x02\x03\x04\x05\x06\x07\x08");
        assert_eq!(bytes[16..32], [1_700_000_000_u64.to_be_bytes(), 1_800_000_000_u64.to_be_bytes()].concat());
        assert_eq!(bytes[32..64], identity.keys().signing);
        assert_eq!(bytes[64..96], identity.keys().static_key);
        assert_eq!(&bytes[96..128], SigningKey::from_seed(&[9; 32]).public());
        let variable = b"\x06plant1\x06A.test\x01\x0cline.*.state\x02\x05cmd.>\x01a";
        assert_eq!(&bytes[128..128 + variable.len()], variable);
        assert_eq!(bytes.len(), 128 + variable.len() + SIGNATURE_BYTES);
    }

    #[test]
    fn certificates_are_read_back() {
        let identity = HostIdentity::from_seed(&[1; 32]);
        let (realm, name) = ("r".parse().unwrap(), "n".parse().unwrap());
        let own = Certificate::sign_own(realm, name, &identity, PeerPermissions::all(), 7).unwrap();
        for (certificate, is_own) in [(certificate(), false), (own, true)] {
            assert_eq!(Certificate::decode(&certificate.encode()).as_ref(), Ok(&certificate));
            assert!(certificate.is_intact());
            assert_eq!(certificate.is_own(), is_own);
        }
    }

    #[test]
    fn each_changed_byte_is_refused() {
        let bytes = certificate().encode();
        for at in 0..bytes.len() {
            for change in [1, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let is_accepted = Certificate::decode(&changed).is_ok_and(|certificate| certificate.is_intact());
                assert!(!is_accepted, "byte {at} changed by {change:#x}");
            }
        }
    }

    #[test]
    fn cut_and_extended_certificates_are_refused() {
        let bytes = certificate().encode();
        for length in 0..bytes.len() {
            assert_eq!(Certificate::decode(&bytes[..length]), Err(CertificateError::Truncated), "{length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Certificate::decode(&longer), Err(CertificateError::Trailing(1)));
        assert_eq!(Certificate::decode(&[0; CERTIFICATE_BYTES_MAX + 1]), Err(CertificateError::TooLong));
    }

    #[test]
    fn malformed_fields_are_named() {
        let bytes = certificate().encode();
        for (at, value, expected) in [
            (0, b'S', CertificateError::Magic),
            (7, 2, CertificateError::Version(2)),
            (129, b' ', CertificateError::Name),
            (128, 0, CertificateError::Name),
            (142, 65, CertificateError::TooManyPatterns),
            (144, b' ', CertificateError::Pattern),
        ] {
            let mut changed = bytes.clone();
            changed[at] = value;
            assert_eq!(Certificate::decode(&changed), Err(expected), "byte {at}");
        }
        let reversed = [&bytes[..24], &1_u64.to_be_bytes(), &bytes[32..]].concat();
        assert_eq!(Certificate::decode(&reversed), Err(CertificateError::Validity));
    }

    #[test]
    fn statements_beyond_a_limit_are_refused() {
        let identity = HostIdentity::from_seed(&[1; 32]);
        let sign = |patterns: Vec<Pattern>| {
            let permissions = PeerPermissions { publish: patterns, subscribe: Vec::new() };
            Certificate::sign(CertificateFields { permissions, ..fields(&identity) }, identity.signing_key())
        };
        let short: Pattern = "a.>".parse().unwrap();
        let long: Pattern = "x".repeat(255).parse().unwrap();
        assert!(sign(vec![short.clone(); CERTIFICATE_PATTERNS_MAX]).is_ok());
        assert_eq!(sign(vec![short; CERTIFICATE_PATTERNS_MAX + 1]), Err(CertificateError::TooManyPatterns));
        assert!(sign(vec![long.clone(); 2]).is_ok());
        assert_eq!(sign(vec![long; 4]), Err(CertificateError::TooLong));
        let validity = Validity { not_before: 2, not_after: 1 };
        let reversed = CertificateFields { validity, ..fields(&identity) };
        assert_eq!(Certificate::sign(reversed, identity.signing_key()), Err(CertificateError::Validity));
    }

    #[test]
    fn permissions_are_those_of_the_patterns() {
        let permissions = certificate().fields.permissions;
        for (subject, publish, receive) in
            [("line.7.state", true, false), ("cmd.stop", false, true), ("a", false, true), ("b", false, false)]
        {
            let subject = subject.parse().unwrap();
            assert_eq!((permissions.may_publish(&subject), permissions.may_receive(&subject)), (publish, receive));
        }
        let (none, all) = (PeerPermissions::default(), PeerPermissions::all());
        let subject = "a.b".parse().unwrap();
        assert!(!none.may_publish(&subject) && !none.may_receive(&subject));
        assert!(all.may_publish(&subject) && all.may_receive(&subject));
    }
}
