//! `init`: a new realm, and the keys of its first host.

use super::args::InitOptions;
use super::{Membership, config_of, file_failure, random_key};
use crate::clock::random_u64;
use crate::security::Secret;
use crate::security::realm::{
    Certificate, CertificateFields, HostIdentity, PeerPermissions, Realm, RealmMode, SigningKey, TrustAnchor, Validity,
};
use crate::storage::realm::{NewRealm, RealmDirectory};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};

/// Runs `init`.
///
/// # Errors
/// This host has a realm, or the files cannot be written.
pub fn run(options: &InitOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let config = config_of(&options.files, options.name.as_ref())?;
    let directory = RealmDirectory::new(&config.data_dir);
    directory.check_vacant().map_err(file_failure)?;
    let (seed, authority_seed) = (random_key(), (options.mode == RealmMode::Pki).then(random_key));
    let identity = HostIdentity::from_seed(&seed);
    let authority = authority_seed.as_ref().map(|seed| SigningKey::from_seed(seed));
    let anchor = authority.as_ref().map_or(TrustAnchor::OwnKey, |key| TrustAnchor::Authority(*key.public()));
    let realm = Realm { name: options.realm.clone(), anchor, secret: Secret::new(*random_key()) };
    let fields = CertificateFields {
        realm: realm.name.clone(),
        name: config.name.clone(),
        keys: *identity.keys(),
        validity: Validity::default(),
        serial: random_u64(),
        permissions: PeerPermissions::all(),
    };
    let issuer = authority.as_ref().unwrap_or(identity.signing_key());
    let certificate = Certificate::sign(fields, issuer).expect("names and one pattern of each kind fit");
    let authority_seed = authority_seed.as_deref();
    let new = NewRealm { realm: &realm, seed: &seed, certificate: Some(&certificate), authority_seed };
    directory.create(&new).map_err(file_failure)?;
    let membership = Membership {
        realm: &realm,
        name: &config.name,
        identity: &identity,
        directory: &directory,
        has_new_secret: false,
    };
    membership.print(options.json, None, out)?;
    out.flush()?;
    if authority.is_some() {
        note("keep a copy of authority.key offline: its owner admits hosts to the realm");
    }
    note("next: run 'seqcast realm invite' here, and give its line to 'seqcast join -' on each other host");
    Ok(Exit::Done)
}
