//! The realm of keyed runs: it exists as long as the bench, and all peers of a run have the identity of one host.

use std::path::PathBuf;

use super::job::PeerSettings;
use super::temporary_directory;
use crate::clock::{fill_random, random_u64};
use crate::security::Secret;
use crate::security::realm::{Certificate, HostIdentity, KEY_BYTES, PeerPermissions, Realm, TrustAnchor};
use crate::storage::realm::{NewRealm, RealmDirectory};
use crate::terminal::exit::{CommandFailure, Exit};

/// Name of the realm, and of the host.
const NAME: &str = "bench";

/// A realm with its files, which are removed with the value.
pub struct TemporaryRealm {
    data_dir: PathBuf,
}

impl TemporaryRealm {
    /// Makes the realm and its files.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn create() -> Result<TemporaryRealm, CommandFailure> {
        let realm = TemporaryRealm { data_dir: temporary_directory::create()? };
        let [mut secret, mut seed] = [[0; KEY_BYTES]; 2];
        fill_random(&mut secret);
        fill_random(&mut seed);
        let name = NAME.parse().expect("it is the name of a realm");
        let definition = Realm { name, anchor: TrustAnchor::OwnKey, secret: Secret::new(secret) };
        let identity = HostIdentity::from_seed(&seed);
        let host = NAME.parse().expect("it is the name of a peer");
        let (permissions, serial) = (PeerPermissions::all(), random_u64());
        let certificate = Certificate::sign_own(definition.name.clone(), host, &identity, permissions, serial)
            .expect("names and one pattern of each kind fit");
        let new = NewRealm { realm: &definition, seed: &seed, certificate: Some(&certificate), authority_seed: None };
        RealmDirectory::new(&realm.data_dir)
            .create(&new)
            .map_err(|error| CommandFailure::new(Exit::Failed, format!("cannot make a realm: {error}")))?;
        Ok(realm)
    }

    /// Returns the settings of members of the realm.
    pub fn members(&self, values: &PeerSettings) -> PeerSettings {
        let data_dir = self.data_dir.display().to_string();
        values.with("--keyed", "data-dir", &data_dir).with("--keyed", "security", "realm")
    }
}

impl Drop for TemporaryRealm {
    fn drop(&mut self) {
        // Leftovers lie among the temporary files.
        drop(std::fs::remove_dir_all(&self.data_dir));
    }
}
