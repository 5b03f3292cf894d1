//! The files of a realm on one host: secret, identity, certificate, and the names of other hosts.
//!
//! | file in `data-dir`/realm | content | secret |
//! |---|---|---|
//! | `realm.key` | name and mode of the realm, its secret, the authority's public key | yes |
//! | `identity.key` | the seed of this host's keys | yes |
//! | `certificate` | the certificate of this host | no |
//! | `authority.key` | the seed of the key that signs certificates; only on the authority's host | yes |
//! | `peers` | names of other hosts, and the fingerprints to which they are pinned | no |
//! | `issued` | names in certificates of the authority, and their fingerprints | no |
//! | `revoked` | the authority's list of revoked hosts, with its signature | no |
//!
//! The directory has the mode 0700, and each file 0600 from its first moment. A file appears whole or not at all: it is
//! written under another name, synchronised and renamed. A file with a wrong owner, mode, version or checksum is
//! refused, and never changed.

mod directory;
mod error;
mod key_file;

pub use directory::{LocalRealm, NewRealm, RealmDirectory};
pub use error::{RealmFileError, RealmFileFault};
