//! The definition of a realm: its name, its secret, and the issuer of valid certificates.

use super::identity::KEY_BYTES;
use crate::message::PeerName;
use crate::security::secret::Secret;
use std::fmt;
use std::str::FromStr;

/// Name of a realm for people: 1 to 64 of `A-Z a-z 0-9 . _ -`, as in a peer name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RealmName(PeerName);

/// Reason why a text is no realm name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealmNameError;

impl fmt::Display for RealmNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a realm name has 1 to {} letters, digits, '.', '_' and '-'", RealmName::BYTES_MAX)
    }
}

impl std::error::Error for RealmNameError {}

impl RealmName {
    /// Maximum length of a name in bytes.
    pub const BYTES_MAX: usize = PeerName::BYTES_MAX;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for RealmName {
    type Err = RealmNameError;

    fn from_str(text: &str) -> Result<RealmName, RealmNameError> {
        text.parse().map(RealmName).map_err(|_| RealmNameError)
    }
}

impl fmt::Display for RealmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for RealmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Mode of a realm: the rule by which a host admits another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealmMode {
    /// Holders of the secret are admitted. Each signs its own certificate, and names are pinned to keys at first use.
    Realm,
    /// Hosts with a certificate of the realm's authority are admitted.
    Pki,
}

impl RealmMode {
    /// Every mode.
    pub const ALL: [RealmMode; 2] = [RealmMode::Realm, RealmMode::Pki];

    /// Returns the name of the mode: `realm` or `pki`.
    pub fn as_str(self) -> &'static str {
        match self {
            RealmMode::Realm => "realm",
            RealmMode::Pki => "pki",
        }
    }
}

impl fmt::Display for RealmMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The issuer that signs the valid certificates of a realm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustAnchor {
    /// The host itself.
    OwnKey,
    /// The owner of this Ed25519 public key.
    Authority([u8; KEY_BYTES]),
}

impl TrustAnchor {
    /// Returns the mode of a realm with this anchor.
    pub fn mode(&self) -> RealmMode {
        match self {
            TrustAnchor::OwnKey => RealmMode::Realm,
            TrustAnchor::Authority(_) => RealmMode::Pki,
        }
    }
}

/// A realm, as each of its hosts stores it and as a join line carries it.
#[derive(Clone, Debug)]
pub struct Realm {
    /// The name.
    pub name: RealmName,
    /// The issuer of valid certificates.
    pub anchor: TrustAnchor,
    /// The secret.
    pub secret: Secret,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn realm_names_are_checked() {
        let long = "x".repeat(RealmName::BYTES_MAX);
        for text in ["plant1", "a.b_c-D9", &long] {
            assert_eq!(text.parse::<RealmName>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "a b", "ü", "a/b", &format!("{long}x")] {
            assert_eq!(text.parse::<RealmName>(), Err(RealmNameError), "{text}");
        }
    }

    #[test]
    fn debug_output_of_realm_has_no_secret() {
        let secret = Secret::new([0x5a; 32]);
        let realm = Realm { name: "plant1".parse().unwrap(), anchor: TrustAnchor::OwnKey, secret };
        assert_eq!(format!("{realm:?}"), "Realm { name: \"plant1\", anchor: OwnKey, secret: Secret }");
    }
}
