//! The realm of a peer that runs: what it has read from the files of its host, and how it reads them again.

#[cfg(feature = "links")]
use crate::daemon::link_realm::LinkRealm;
use crate::daemon::realm_writer::RealmWriter;
#[cfg(feature = "links")]
use crate::link::signatures::realm_trust::RealmTrust;
use crate::message::PeerName;
#[cfg(feature = "links")]
use crate::security::ProvenCertificate;
use crate::security::realm::{
    Certificate, Fingerprint, PeerKeys, Realm, RealmName, RevocationList, RevocationListError, Trust, TrustRefusal,
    VerifiedPeer,
};
use crate::security::{CertificateVerifier, CertifiedHost, RealmCredentials, STATIC_KEY_BYTES, Secret, Suite};
use crate::storage::realm::{LocalRealm, RealmDirectory, RealmFileError};
use crate::time::WallTime;
use std::fmt;
use std::io;

/// The realm of a peer, with the files from which it is read.
pub(crate) struct RunningRealm {
    directory: RealmDirectory,
    /// Content of the files that the peer uses. The certificate is there.
    local: LocalRealm,
    /// Cipher of the datagrams that the peer sends.
    suite: Suite,
    /// True if the peer signs what it publishes.
    signs: bool,
    writer: RealmWriter,
}

/// Differences in files that were read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RealmChanges {
    /// The secret of the realm.
    pub(crate) secret: bool,
    /// The certificate of this host.
    pub(crate) certificate: bool,
    /// The list of revoked hosts.
    pub(crate) revocations: bool,
}

impl RealmChanges {
    /// Returns the names of what has changed.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let RealmChanges { secret, certificate, revocations } = self;
        let all = [(secret, "secret"), (certificate, "certificate"), (revocations, "revocations")];
        all.into_iter().filter_map(|(has_changed, name)| has_changed.then_some(name)).collect()
    }
}

/// Reason why a running peer does not take over the files of its realm.
#[derive(Debug)]
pub(crate) enum RealmReloadError {
    /// A file cannot be used.
    Files(RealmFileError),
    /// The files are those of another realm, or of another authority. Holds the name of that realm.
    OtherRealm(RealmName),
    /// The host has other keys.
    OtherKeys,
    /// The certificate is missing.
    NoCertificate,
    /// The certificate is for another name.
    OtherName {
        /// Name of the running peer.
        running: PeerName,
        /// Name in the certificate.
        found: PeerName,
    },
    /// The certificate gives the programs of the host other permissions.
    OtherPermissions,
    /// Other hosts would refuse the certificate.
    Certificate(TrustRefusal),
}

impl fmt::Display for RealmReloadError {
    /// Formats the problem, and the remedy after `; `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RESTART: &str = "restart the peer, or restore the former files";
        match self {
            RealmReloadError::Files(error) => error.fmt(f),
            RealmReloadError::OtherRealm(found) => {
                write!(f, "the host is in another realm now, called '{found}'; {RESTART}")
            }
            RealmReloadError::OtherKeys => write!(f, "the host has other keys now (identity.key); {RESTART}"),
            RealmReloadError::NoCertificate => {
                write!(f, "the host has no certificate any more; give the one of the authority to 'seqcast join -'")
            }
            RealmReloadError::OtherName { running, found } => write!(
                f,
                "the certificate of the host is for the name '{found}', and the running peer is '{running}'; {RESTART}"
            ),
            RealmReloadError::OtherPermissions => {
                write!(f, "the certificate of the host permits its programs other subjects than before; {RESTART}")
            }
            RealmReloadError::Certificate(refusal) => refusal.fmt(f),
        }
    }
}

/// Reason why a peer does not take over a list of revoked hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RevocationRefusal {
    /// The list is not valid in the realm.
    Invalid(RevocationListError),
    /// The list is not newer than the one of this peer. Holds its revision.
    NotNewer(u64),
}

impl fmt::Display for RevocationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RevocationRefusal::Invalid(error) => error.fmt(f),
            RevocationRefusal::NotNewer(revision) => write!(f, "the revision {revision} of the list is not newer"),
        }
    }
}

impl RunningRealm {
    /// Takes what was read from the files, which has a certificate, and starts the thread that stores what is new.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn new(
        directory: RealmDirectory,
        local: LocalRealm,
        suite: Suite,
        signs: bool,
    ) -> io::Result<RunningRealm> {
        let writer = RealmWriter::start(directory.clone(), local.realm.clone())?;
        Ok(RunningRealm { directory, local, suite, signs, writer })
    }

    /// Returns the realm.
    pub(crate) fn realm(&self) -> &Realm {
        &self.local.realm
    }

    /// Returns the certificate of this host.
    pub(crate) fn certificate(&self) -> &Certificate {
        self.local.certificate.as_ref().expect("a keyed peer has a certificate")
    }

    /// Returns the list of revoked hosts; `None` if there is none.
    pub(crate) fn revocations(&self) -> Option<&RevocationList> {
        self.local.revocations.as_ref()
    }

    /// Returns the revision of the list of revoked hosts; 0 if there is none.
    pub(crate) fn revision(&self) -> u64 {
        revision(&self.local)
    }

    /// Returns the keys and the certificate with which the peer shakes hands.
    pub(crate) fn credentials(&self) -> RealmCredentials {
        RealmCredentials {
            realm_secret: self.local.realm.secret.clone(),
            static_private: Secret::new(*self.local.identity.static_private()),
            certificate: self.certificate().encode().into(),
            suite: self.suite,
            revision: self.revision(),
            signing_key: self.signs.then(|| self.local.identity.shared_signing_key()),
        }
    }

    /// Returns the realm for the link to other sites.
    #[cfg(feature = "links")]
    pub(crate) fn link_realm(&self) -> LinkRealm {
        let Realm { name, anchor, secret } = &self.local.realm;
        LinkRealm {
            name: name.to_string(),
            trust: RealmTrust::new(anchor.mode(), secret, self.verifier()),
            certificate: ProvenCertificate::new(&self.certificate().encode(), secret),
            key: self.local.identity.shared_signing_key(),
        }
    }

    /// Returns the check of other hosts by the present rules.
    pub(crate) fn verifier(&self) -> Box<dyn CertificateVerifier> {
        Box::new(StoredTrust { trust: self.local.trust(), writer: self.writer.clone() })
    }

    /// Reads the files again. If one cannot be used, everything stays as it was.
    ///
    /// # Errors
    /// A file cannot be used, or needs a restart of the peer.
    pub(crate) fn read_again(&mut self, now: WallTime) -> Result<RealmChanges, RealmReloadError> {
        // Names that are new since the start are in the files then.
        self.writer.flush();
        let mut new = self.directory.load().map_err(RealmReloadError::Files)?;
        self.check(&new, now)?;
        let (former, certificate) = (&self.local, &new.certificate);
        let changes = RealmChanges {
            secret: new.realm.secret != former.realm.secret,
            certificate: *certificate != former.certificate,
            revocations: revision(former) < revision(&new),
        };
        if revision(&new) < revision(former) {
            // The file was replaced by an older one. A list is never given up for that.
            new.revocations.clone_from(&former.revocations);
            self.writer.store(former.revocations.clone().expect("a list with a revision is there"));
        }
        self.local = new;
        Ok(changes)
    }

    /// Checks that the running peer can continue with the files.
    fn check(&self, new: &LocalRealm, now: WallTime) -> Result<(), RealmReloadError> {
        let former = &self.local;
        if new.realm.name != former.realm.name || new.realm.anchor != former.realm.anchor {
            return Err(RealmReloadError::OtherRealm(new.realm.name.clone()));
        }
        if new.identity.keys() != former.identity.keys() {
            return Err(RealmReloadError::OtherKeys);
        }
        let certificate = new.certificate.as_ref().ok_or(RealmReloadError::NoCertificate)?;
        if certificate == self.certificate() {
            return Ok(());
        }
        let (running, found) = (&self.certificate().fields().name, &certificate.fields().name);
        if running != found {
            return Err(RealmReloadError::OtherName { running: running.clone(), found: found.clone() });
        }
        // Listeners and clients have the permissions of the start.
        if certificate.fields().permissions != self.certificate().fields().permissions {
            return Err(RealmReloadError::OtherPermissions);
        }
        let static_key = &new.identity.keys().static_key;
        new.trust().check(&certificate.encode(), static_key, now).map_err(RealmReloadError::Certificate)?;
        Ok(())
    }

    /// Takes over a list of revoked hosts that another peer has sent, and stores it. Returns the names of the hosts that
    /// were not revoked before.
    ///
    /// # Errors
    /// The list is not valid in this realm, or not newer.
    pub(crate) fn adopt(&mut self, list: RevocationList) -> Result<Vec<PeerName>, RevocationRefusal> {
        if list.fields().revision <= self.revision() {
            return Err(RevocationRefusal::NotNewer(list.fields().revision));
        }
        list.check(&self.local.realm).map_err(RevocationRefusal::Invalid)?;
        let is_new = |keys: &Fingerprint| self.revocations().is_none_or(|former| !former.contains(keys));
        let hosts = list.fields().hosts.iter().filter(|(fingerprint, _)| is_new(fingerprint));
        let names = hosts.map(|(_, name)| name.clone()).collect();
        self.writer.store(list.clone());
        self.local.revocations = Some(list);
        Ok(names)
    }
}

fn revision(local: &LocalRealm) -> u64 {
    local.revocations.as_ref().map_or(0, |list| list.fields().revision)
}

/// The trust of this host, which stores the keys of each new name.
struct StoredTrust {
    trust: Trust,
    writer: RealmWriter,
}

impl CertificateVerifier for StoredTrust {
    fn verify(
        &mut self,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
        now: WallTime,
    ) -> Result<CertifiedHost, String> {
        let peer = self.trust.check(certificate, static_key, now).map_err(|refusal| refusal.to_string())?;
        if peer.is_new && self.trust.pin(peer.name.clone(), peer.fingerprint) {
            self.writer.pin(peer.name.clone(), peer.fingerprint);
        }
        // The second of the limit is still valid.
        let limit = WallTime::from_nanos(peer.not_after.saturating_add(1).saturating_mul(1_000_000_000));
        let VerifiedPeer { name, keys, permissions, not_after, .. } = peer;
        Ok(CertifiedHost { name, keys, permissions, valid_until: (not_after != 0).then_some(limit) })
    }

    fn is_revoked(&self, keys: &PeerKeys) -> bool {
        self.trust.is_revoked(keys.fingerprint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::random_u64;
    use crate::security::realm::{
        CertificateFields, HostIdentity, PeerPermissions, RevocationListFields, SigningKey, TrustAnchor, Validity,
    };
    use crate::storage::realm::NewRealm;
    use std::fs;
    use std::path::PathBuf;

    /// The files of the host A.test in a realm whose authority has the seed 9. They are deleted on drop.
    struct HostFiles {
        data_dir: PathBuf,
        directory: RealmDirectory,
        realm: Realm,
        authority: SigningKey,
    }

    impl HostFiles {
        fn new() -> HostFiles {
            let data_dir = std::env::temp_dir().join(format!("seqcast-running-{:016x}", random_u64()));
            let (directory, authority) = (RealmDirectory::new(&data_dir), SigningKey::from_seed(&[9; 32]));
            let anchor = TrustAnchor::Authority(*authority.public());
            let realm = Realm { name: "plant1".parse().unwrap(), anchor, secret: Secret::new([0x5a; 32]) };
            let files = HostFiles { data_dir, directory, realm, authority };
            files.create(&files.realm, 1, "A.test");
            files
        }

        /// Replaces all files.
        fn create(&self, realm: &Realm, seed: u8, name: &str) {
            drop(fs::remove_dir_all(&self.data_dir));
            let certificate = self.certificate(seed, name, 1);
            let new = NewRealm { realm, seed: &[seed; 32], certificate: Some(&certificate), authority_seed: None };
            self.directory.create(&new).unwrap();
        }

        fn certificate(&self, seed: u8, name: &str, serial: u64) -> Certificate {
            let fields = CertificateFields {
                realm: self.realm.name.clone(),
                name: name.parse().unwrap(),
                keys: *HostIdentity::from_seed(&[seed; 32]).keys(),
                validity: Validity { not_before: 0, not_after: 1000 * serial },
                serial,
                permissions: PeerPermissions::all(),
            };
            Certificate::sign(fields, &self.authority).unwrap()
        }

        fn run(&self) -> RunningRealm {
            RunningRealm::new(self.directory.clone(), self.directory.load().unwrap(), Suite::Aes256Gcm, false).unwrap()
        }

        /// Revokes the host B.test with this seed, and returns the list.
        fn revoke(&self, seed: u8) -> RevocationList {
            let fingerprint = HostIdentity::from_seed(&[seed; 32]).keys().fingerprint();
            let name = "B.test".parse().unwrap();
            self.directory.revoke(&self.realm, &self.authority, &name, fingerprint).unwrap().unwrap()
        }
    }

    impl Drop for HostFiles {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.data_dir));
        }
    }

    fn names(running: &mut RunningRealm) -> Vec<&'static str> {
        running.read_again(WallTime::EPOCH).unwrap().names()
    }

    #[test]
    fn changed_files_of_the_realm_are_read() {
        let files = HostFiles::new();
        let mut running = files.run();
        assert!(names(&mut running).is_empty());
        files.directory.replace_secret(&Realm { secret: Secret::new([1; 32]), ..files.realm.clone() }).unwrap();
        assert_eq!(names(&mut running), ["secret"]);
        assert_eq!(running.credentials().realm_secret.bytes(), &[1; 32]);
        files.directory.install(&files.certificate(1, "A.test", 2)).unwrap();
        files.revoke(2);
        assert_eq!(names(&mut running), ["certificate", "revocations"]);
        assert_eq!((running.certificate().fields().serial, running.revision()), (2, 1));
        let verify = |seed: u8| {
            let certificate = files.certificate(seed, "B.test", 1);
            let static_key = certificate.fields().keys.static_key;
            running.verifier().verify(&certificate.encode(), &static_key, WallTime::EPOCH).map(|host| host.name)
        };
        assert!(verify(2).unwrap_err().contains("revoked"));
        assert_eq!(verify(3), Ok("B.test".parse().unwrap()));
        assert!(names(&mut running).is_empty());
    }

    #[test]
    fn unusable_files_of_the_realm_change_nothing() {
        let files = HostFiles::new();
        let mut running = files.run();
        let mut check = |expected: &str| {
            let refused = running.read_again(WallTime::EPOCH).unwrap_err().to_string();
            assert!(refused.contains(expected) && refused.contains("; "), "{expected:?}: {refused}");
            assert_eq!(running.credentials().realm_secret.bytes(), &[0x5a; 32]);
            assert_eq!(running.certificate().fields().serial, 1);
        };
        let new_secret = Realm { secret: Secret::new([1; 32]), ..files.realm.clone() };
        files.create(&new_secret, 1, "A.test");
        fs::write(files.directory.path().join("revoked"), "damaged").unwrap();
        check("realm/revoked");
        files.create(&new_secret, 2, "A.test");
        check("other keys");
        files.create(&new_secret, 1, "C.test");
        check("for the name 'C.test'");
        files.create(&Realm { anchor: TrustAnchor::Authority([7; 32]), ..new_secret.clone() }, 1, "A.test");
        check("another realm now, called 'plant1'");
        files.create(&new_secret, 1, "A.test");
        let other = SigningKey::from_seed(&[8; 32]);
        let fields = files.certificate(1, "A.test", 2).fields().clone();
        files.directory.install(&Certificate::sign(fields, &other).unwrap()).unwrap();
        check("not signed by the authority");
        let fields = CertificateFields {
            permissions: PeerPermissions { publish: Vec::new(), ..PeerPermissions::all() },
            ..files.certificate(1, "A.test", 2).fields().clone()
        };
        files.directory.install(&Certificate::sign(fields, &files.authority).unwrap()).unwrap();
        check("permits its programs other subjects");
        fs::remove_file(files.directory.path().join("certificate")).unwrap();
        check("no certificate any more");
    }

    #[test]
    fn newer_list_of_another_peer_is_stored() {
        let (files, other) = (HostFiles::new(), HostFiles::new());
        let mut running = files.run();
        let lists = [2, 3].map(|seed| other.revoke(seed));
        let name: PeerName = "B.test".parse().unwrap();
        assert_eq!(running.adopt(lists[1].clone()), Ok(vec![name.clone(), name]));
        assert_eq!(running.adopt(lists[0].clone()), Err(RevocationRefusal::NotNewer(1)));
        assert_eq!(running.adopt(lists[1].clone()), Err(RevocationRefusal::NotNewer(2)));
        let fields = RevocationListFields { revision: 3, ..lists[0].fields().clone() };
        let forged = RevocationList::sign(fields, &SigningKey::from_seed(&[8; 32])).unwrap();
        let refusal = RevocationRefusal::Invalid(RevocationListError::Signature);
        assert_eq!(running.adopt(forged), Err(refusal));
        running.writer.flush();
        assert_eq!(files.directory.load().unwrap().revocations.as_ref(), Some(&lists[1]));
        // A backup with an older list does not bring revoked hosts back.
        fs::remove_file(files.directory.path().join("revoked")).unwrap();
        files.directory.store_revocations(&files.realm, &lists[0]).unwrap();
        assert!(names(&mut running).is_empty());
        running.writer.flush();
        assert_eq!(files.directory.load().unwrap().revocations.as_ref(), Some(&lists[1]));
        assert_eq!(running.revocations(), Some(&lists[1]));
    }
}
