//! The directory of a realm: what a host has, and how it gets it.

mod revocations;

use super::error::{RealmFileError, RealmFileFault};
use super::key_file::{self, KeyFileKind, KeyFileText, check_access, user_name};
use crate::message::PeerName;
use crate::security::Secret;
use crate::security::realm::{
    Certificate, Fingerprint, HostIdentity, KEY_BYTES, NAMES_MAX, PeerKeys, Realm, RealmMode, RevocationList,
    SigningKey, Trust, TrustAnchor,
};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Name of the directory in `data-dir`.
const DIRECTORY: &str = "realm";
/// Permission bits of directories.
const DIRECTORY_MODE: u32 = 0o700;

/// The directory of this host's realm. It need not exist.
#[derive(Clone, Debug)]
pub struct RealmDirectory {
    path: PathBuf,
}

/// The first files of a host.
pub struct NewRealm<'a> {
    /// The realm.
    pub realm: &'a Realm,
    /// Seed of this host's keys.
    pub seed: &'a [u8; KEY_BYTES],
    /// The certificate of this host; `None` until the authority signs one.
    pub certificate: Option<&'a Certificate>,
    /// Seed of the authority's key, if this host is the authority.
    pub authority_seed: Option<&'a [u8; KEY_BYTES]>,
}

/// All that a peer of this host needs to be a member of its realm.
#[derive(Debug)]
pub struct LocalRealm {
    /// The realm.
    pub realm: Realm,
    /// The keys of this host.
    pub identity: HostIdentity,
    /// The certificate of this host; `None` until the authority's one is installed.
    pub certificate: Option<Certificate>,
    /// Names of other hosts, and the fingerprints to which they are pinned.
    pub pins: BTreeMap<PeerName, Fingerprint>,
    /// The authority's list of revoked hosts; `None` if this host has none.
    pub revocations: Option<RevocationList>,
}

impl LocalRealm {
    /// Returns the rules by which this host trusts others. Its own name is pinned to its own keys.
    pub fn trust(&self) -> Trust {
        let mut trust = Trust::new(self.realm.name.clone(), self.realm.anchor);
        for (name, fingerprint) in &self.pins {
            trust.pin(name.clone(), *fingerprint);
        }
        if let Some(certificate) = &self.certificate {
            trust.pin(certificate.fields().name.clone(), self.identity.keys().fingerprint());
        }
        if let Some(list) = &self.revocations {
            trust.set_revocations(list);
        }
        trust
    }
}

impl RealmDirectory {
    /// Returns the directory in the data directory of a peer.
    pub fn new(data_dir: &Path) -> RealmDirectory {
        RealmDirectory { path: data_dir.join(DIRECTORY) }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory with its files, all at once. An existing realm stays as it is.
    ///
    /// # Errors
    /// This host has a realm, or the system refuses to write.
    pub fn create(&self, new: &NewRealm) -> Result<(), RealmFileError> {
        self.check_vacant()?;
        let parent = self.path.parent().unwrap_or(Path::new("."));
        make_data_dir(parent)?;
        let draft = parent.join(format!(".{DIRECTORY}.new-{}", std::process::id()));
        let created = write_draft(&draft, new).and_then(|()| self.publish_draft(&draft, parent));
        if created.is_err() {
            // A draft that is not published is of no use; its removal may fail, too.
            drop(fs::remove_dir_all(&draft));
        }
        created
    }

    /// Checks that this host has no realm.
    ///
    /// # Errors
    /// Returns the name of the realm, if it can be read.
    pub fn check_vacant(&self) -> Result<(), RealmFileError> {
        let is_vacant = match fs::read_dir(&self.path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_vacant { Ok(()) } else { Err(self.occupied()) }
    }

    fn occupied(&self) -> RealmFileError {
        let realm = self.read_realm().ok();
        let fault = RealmFileFault::Occupied(realm.map(|realm| realm.name.to_string()));
        RealmFileError::new(&self.path, fault)
    }

    /// Gives a complete draft its final name.
    fn publish_draft(&self, draft: &Path, parent: &Path) -> Result<(), RealmFileError> {
        // An empty directory is replaced; one with files is not.
        fs::rename(draft, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => self.occupied(),
            _ => RealmFileError::of_system(&self.path, "make")(error),
        })?;
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(RealmFileError::of_system(parent, "write"))
    }

    /// Reads the files of this host.
    ///
    /// # Errors
    /// This host has no realm, or a file cannot be used.
    pub fn load(&self) -> Result<LocalRealm, RealmFileError> {
        self.check_directory()?;
        let realm = self.read_realm()?;
        let file = self.read_of(KeyFileKind::Identity, &realm)?;
        let seed = file.key("seed").map_err(|fault| self.error(KeyFileKind::Identity, fault))?;
        let identity = HostIdentity::from_seed(&seed);
        let certificate = self.read_certificate(&realm, identity.keys())?;
        let pins = self.read_names(KeyFileKind::Peers, &realm)?;
        let revocations = self.revocations(&realm)?;
        Ok(LocalRealm { realm, identity, certificate, pins, revocations })
    }

    /// Reads the key of the authority.
    ///
    /// # Errors
    /// This host is not the authority, or the file cannot be used.
    pub fn load_authority(&self, realm: &Realm) -> Result<SigningKey, RealmFileError> {
        let kind = KeyFileKind::Authority;
        let file = self.read_of(kind, realm).map_err(|error| match error.fault {
            RealmFileFault::Missing => RealmFileError { fault: RealmFileFault::NoAuthority, ..error },
            _ => error,
        })?;
        let key = SigningKey::from_seed(&*file.key("seed").map_err(|fault| self.error(kind, fault))?);
        match realm.anchor {
            TrustAnchor::Authority(public) if public == *key.public() => Ok(key),
            _ => Err(self.error(kind, RealmFileFault::Field("seed"))),
        }
    }

    /// Returns whether this host has the key of the authority.
    pub fn has_authority(&self) -> bool {
        self.path.join(KeyFileKind::Authority.file_name()).exists()
    }

    /// Replaces the secret of the realm by that of `realm`.
    ///
    /// # Errors
    /// This host is in another realm, or a file cannot be used.
    pub fn replace_secret(&self, realm: &Realm) -> Result<(), RealmFileError> {
        let _lock = self.lock()?;
        let former = self.read_realm()?;
        if former.name != realm.name || former.anchor != realm.anchor {
            return Err(self.occupied());
        }
        realm_text(realm).write(&self.path)
    }

    /// Installs the certificate of this host in place of the former one. The caller has checked it.
    ///
    /// # Errors
    /// The system refuses to write.
    pub fn install(&self, certificate: &Certificate) -> Result<(), RealmFileError> {
        let _lock = self.lock()?;
        certificate_text(certificate).write(&self.path)
    }

    /// Pins the name of another host to its keys. A name that is pinned already keeps its keys.
    ///
    /// # Errors
    /// The list is full, or a file cannot be used.
    pub fn pin(&self, realm: &Realm, name: &PeerName, fingerprint: Fingerprint) -> Result<(), RealmFileError> {
        self.change_names(KeyFileKind::Peers, realm, |names| {
            names.entry(name.clone()).or_insert(fingerprint);
        })
    }

    /// Removes the pin of a name; returns its fingerprint, or `None` if the name is not pinned.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn forget(&self, realm: &Realm, name: &PeerName) -> Result<Option<Fingerprint>, RealmFileError> {
        let mut forgotten = None;
        self.change_names(KeyFileKind::Peers, realm, |names| forgotten = names.remove(name))?;
        Ok(forgotten)
    }

    /// Returns the names in certificates of this authority, each with the keys of the last one.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn issued(&self, realm: &Realm) -> Result<BTreeMap<PeerName, Fingerprint>, RealmFileError> {
        self.read_names(KeyFileKind::Issued, realm)
    }

    /// Records that the authority has issued a certificate.
    ///
    /// # Errors
    /// The list is full, or a file cannot be used.
    pub fn record_issued(&self, realm: &Realm, certificate: &Certificate) -> Result<(), RealmFileError> {
        let (name, keys) = (certificate.fields().name.clone(), certificate.fields().keys);
        self.change_names(KeyFileKind::Issued, realm, |names| {
            names.insert(name, keys.fingerprint());
        })
    }

    fn error(&self, kind: KeyFileKind, fault: RealmFileFault) -> RealmFileError {
        RealmFileError::new(&self.path.join(kind.file_name()), fault)
    }

    /// Checks that the directory exists and is private to this user.
    fn check_directory(&self) -> Result<(), RealmFileError> {
        let refuse = |fault| RealmFileError::new(&self.path, fault);
        let metadata = fs::metadata(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refuse(RealmFileFault::NoRealm),
            _ => RealmFileError::of_system(&self.path, "read")(error),
        })?;
        if !metadata.is_dir() {
            return Err(refuse(RealmFileFault::Kind { expected: "directory" }));
        }
        check_access(&metadata, DIRECTORY_MODE).map_err(refuse)
    }

    /// Waits until no other process changes the files. The lock ends with the value.
    fn lock(&self) -> Result<File, RealmFileError> {
        self.check_directory()?;
        let locked = File::open(&self.path).and_then(|directory| directory.lock().map(|()| directory));
        locked.map_err(RealmFileError::of_system(&self.path, "lock"))
    }

    fn read_realm(&self) -> Result<Realm, RealmFileError> {
        let kind = KeyFileKind::Realm;
        let file = key_file::read(&self.path, kind)?;
        let realm = || {
            let name = file.text("realm")?.parse().map_err(|_| RealmFileFault::Field("realm"))?;
            let mode = file.text("mode")?;
            let anchor = match RealmMode::ALL.into_iter().find(|known| known.as_str() == mode) {
                Some(RealmMode::Realm) => TrustAnchor::OwnKey,
                Some(RealmMode::Pki) => TrustAnchor::Authority(*file.key("authority")?),
                None => return Err(RealmFileFault::Field("mode")),
            };
            Ok(Realm { name, anchor, secret: Secret::new(*file.key("secret")?) })
        };
        realm().map_err(|fault| self.error(kind, fault))
    }

    /// Reads a file that must belong to the realm.
    fn read_of(&self, kind: KeyFileKind, realm: &Realm) -> Result<key_file::KeyFileFields, RealmFileError> {
        let file = key_file::read(&self.path, kind)?;
        let found = file.text("realm").map_err(|fault| self.error(kind, fault))?;
        if found != realm.name.as_str() {
            let (found, expected) = (found.to_owned(), realm.name.to_string());
            return Err(self.error(kind, RealmFileFault::OtherRealm { found, expected }));
        }
        Ok(file)
    }

    fn read_certificate(&self, realm: &Realm, keys: &PeerKeys) -> Result<Option<Certificate>, RealmFileError> {
        let kind = KeyFileKind::Certificate;
        let Some(file) = absent_as_none(self.read_of(kind, realm))? else { return Ok(None) };
        let decoded = file
            .bytes("certificate")
            .and_then(|bytes| Certificate::decode(&bytes).map_err(|_| RealmFileFault::Field("certificate")));
        match decoded {
            Ok(certificate) if certificate.fields().keys == *keys => Ok(Some(certificate)),
            Ok(_) => Err(self.error(kind, RealmFileFault::OtherKeys)),
            Err(fault) => Err(self.error(kind, fault)),
        }
    }

    /// Reads a list of names; a missing file is an empty one.
    fn read_names(&self, kind: KeyFileKind, realm: &Realm) -> Result<BTreeMap<PeerName, Fingerprint>, RealmFileError> {
        let Some(file) = absent_as_none(self.read_of(kind, realm))? else { return Ok(BTreeMap::new()) };
        let entry = |line: &str| {
            let (name, fingerprint) = line.split_once(' ')?;
            Some((name.parse().ok()?, fingerprint.parse().ok()?))
        };
        let names: Option<BTreeMap<PeerName, Fingerprint>> = file.values("peer").map(entry).collect();
        names.ok_or_else(|| self.error(kind, RealmFileFault::Field("peer")))
    }

    /// Changes a list of names; no other process changes it meanwhile.
    fn change_names(
        &self,
        kind: KeyFileKind,
        realm: &Realm,
        change: impl FnOnce(&mut BTreeMap<PeerName, Fingerprint>),
    ) -> Result<(), RealmFileError> {
        let _lock = self.lock()?;
        let former = self.read_names(kind, realm)?;
        let mut names = former.clone();
        change(&mut names);
        if names == former {
            return Ok(());
        }
        if NAMES_MAX < names.len() {
            return Err(self.error(kind, RealmFileFault::Full(NAMES_MAX)));
        }
        let mut text = KeyFileText::new(kind).field("realm", realm.name.as_str());
        for (name, fingerprint) in &names {
            text = text.field("peer", &format!("{name} {fingerprint}"));
        }
        text.write(&self.path)
    }
}

fn absent_as_none<T>(read: Result<T, RealmFileError>) -> Result<Option<T>, RealmFileError> {
    match read {
        Err(error) if error.fault == RealmFileFault::Missing => Ok(None),
        read => read.map(Some),
    }
}

/// Makes the data directory if it is missing. Root makes nothing in a directory of another user, who could not read it.
fn make_data_dir(path: &Path) -> Result<(), RealmFileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
        .map_err(RealmFileError::of_system(path, "make"))?;
    let owner = fs::metadata(path).map_err(RealmFileError::of_system(path, "read"))?.uid();
    if nix::unistd::geteuid().is_root() && owner != 0 {
        return Err(RealmFileError::new(path, RealmFileFault::Owner { owner: user_name(owner) }));
    }
    Ok(())
}

/// Writes all files of a new realm in a directory of their own.
fn write_draft(path: &Path, new: &NewRealm) -> Result<(), RealmFileError> {
    let NewRealm { realm, seed, certificate, authority_seed } = new;
    DirBuilder::new().mode(DIRECTORY_MODE).create(path).map_err(RealmFileError::of_system(path, "make"))?;
    realm_text(realm).write(path)?;
    let name = realm.name.as_str();
    let seed_text = |kind, seed: &[u8; KEY_BYTES]| KeyFileText::new(kind).field("realm", name).bytes("seed", seed);
    seed_text(KeyFileKind::Identity, seed).write(path)?;
    if let Some(seed) = authority_seed {
        seed_text(KeyFileKind::Authority, seed).write(path)?;
    }
    certificate.map_or(Ok(()), |certificate| certificate_text(certificate).write(path))
}

fn realm_text(realm: &Realm) -> KeyFileText {
    let text = KeyFileText::new(KeyFileKind::Realm)
        .field("realm", realm.name.as_str())
        .field("mode", realm.anchor.mode().as_str())
        .bytes("secret", realm.secret.bytes());
    match &realm.anchor {
        TrustAnchor::OwnKey => text,
        TrustAnchor::Authority(public) => text.bytes("authority", public),
    }
}

fn certificate_text(certificate: &Certificate) -> KeyFileText {
    let (realm, name) = (certificate.fields().realm.as_str(), certificate.fields().name.as_str());
    let text = KeyFileText::new(KeyFileKind::Certificate).field("realm", realm).field("name", name);
    text.bytes("certificate", &certificate.encode())
}

#[cfg(test)]
mod tests;
