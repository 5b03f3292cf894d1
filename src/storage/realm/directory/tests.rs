//! Tests of the directory of a realm on a disk.

use super::*;
use crate::clock::random_u64;
use crate::security::realm::{CertificateFields, PeerPermissions, RevocationListError, Validity, VerifiedPeer};
use crate::time::WallTime;
use std::os::unix::fs::PermissionsExt;

/// A directory for data that is deleted on drop.
struct DataDir(PathBuf);

impl DataDir {
    fn new() -> DataDir {
        DataDir(std::env::temp_dir().join(format!("seqcast-realm-{:016x}", random_u64())))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // A test may have removed it.
        drop(fs::remove_dir_all(&self.0));
    }
}

fn realm(name: &str) -> Realm {
    Realm { name: name.parse().unwrap(), anchor: TrustAnchor::OwnKey, secret: Secret::new([0x5a; 32]) }
}

fn certificate(realm: &Realm, name: &str, seed: u8) -> Certificate {
    let (identity, name) = (HostIdentity::from_seed(&[seed; 32]), name.parse().unwrap());
    Certificate::sign_own(realm.name.clone(), name, &identity, PeerPermissions::all(), 1).unwrap()
}

/// Creates the files of the host `A.test` with the seed 1.
fn create(data_dir: &DataDir, realm: &Realm) -> RealmDirectory {
    let directory = RealmDirectory::new(&data_dir.0);
    let certificate = certificate(realm, "A.test", 1);
    let new = NewRealm { realm, seed: &[1; 32], certificate: Some(&certificate), authority_seed: None };
    directory.create(&new).unwrap();
    directory
}

/// Checks a certificate as the host does whose files are in the directory.
fn check(directory: &RealmDirectory, of: &Certificate) -> Result<VerifiedPeer, String> {
    let trust = directory.load().unwrap().trust();
    let checked = trust.check(&of.encode(), &of.fields().keys.static_key, WallTime::EPOCH);
    checked.map_err(|refusal| refusal.as_str().to_owned())
}

#[test]
fn created_files_are_read_back() {
    let (data_dir, realm) = (DataDir::new(), realm("plant1"));
    let local = create(&data_dir, &realm).load().unwrap();
    assert_eq!((&local.realm.name, local.realm.anchor), (&realm.name, TrustAnchor::OwnKey));
    assert_eq!(local.realm.secret.bytes(), &[0x5a; 32]);
    assert_eq!(local.identity.keys(), HostIdentity::from_seed(&[1; 32]).keys());
    assert_eq!(local.certificate, Some(certificate(&realm, "A.test", 1)));
    assert_eq!(local.pins, BTreeMap::new());
}

#[test]
fn second_realm_does_not_replace_the_first() {
    let data_dir = DataDir::new();
    let directory = create(&data_dir, &realm("plant1"));
    let other = realm("plant2");
    let new = NewRealm { realm: &other, seed: &[2; 32], certificate: None, authority_seed: None };
    assert_eq!(directory.create(&new).unwrap_err().fault, RealmFileFault::Occupied(Some("plant1".to_owned())));
    // Another process was faster, between the check and the end.
    let draft = data_dir.0.join("draft");
    write_draft(&draft, &new).unwrap();
    let refused = directory.publish_draft(&draft, &data_dir.0).unwrap_err();
    assert_eq!(refused.fault, RealmFileFault::Occupied(Some("plant1".to_owned())));
    assert_eq!(directory.load().unwrap().realm.name, realm("plant1").name);
}

#[test]
fn known_name_is_bound_to_its_keys() {
    let (data_dir, realm) = (DataDir::new(), realm("plant1"));
    let directory = create(&data_dir, &realm);
    let (b, other) = (certificate(&realm, "B.test", 2), certificate(&realm, "B.test", 3));
    let first = check(&directory, &b).unwrap();
    assert!(first.is_new);
    directory.pin(&realm, &first.name, first.fingerprint).unwrap();
    assert!(!check(&directory, &b).unwrap().is_new);
    assert_eq!(check(&directory, &other), Err("name_pinned".to_owned()));
    // A later pin of the same name has no effect.
    directory.pin(&realm, &first.name, other.fields().keys.fingerprint()).unwrap();
    assert_eq!(directory.forget(&realm, &first.name), Ok(Some(first.fingerprint)));
    assert_eq!(directory.forget(&realm, &first.name), Ok(None));
    assert!(check(&directory, &other).unwrap().is_new);
    assert_eq!(check(&directory, &certificate(&realm, "A.test", 4)), Err("name_pinned".to_owned()));
}

#[test]
fn names_pinned_at_once_are_all_stored() {
    let (data_dir, realm) = (DataDir::new(), realm("plant1"));
    let directory = create(&data_dir, &realm);
    let fingerprint = HostIdentity::from_seed(&[2; 32]).keys().fingerprint();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (directory, realm) = (&directory, &realm);
            scope.spawn(move || {
                for number in 0..5 {
                    let name = format!("peer-{thread}-{number}").parse().unwrap();
                    directory.pin(realm, &name, fingerprint).unwrap();
                }
            });
        }
    });
    assert_eq!(directory.load().unwrap().pins.len(), 20);
    let mode = fs::metadata(directory.path().join("peers")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn abandoned_draft_of_a_file_is_replaced() {
    let (data_dir, realm) = (DataDir::new(), realm("plant1"));
    let directory = create(&data_dir, &realm);
    fs::write(directory.path().join(".peers.new"), "seqcast list of kn").unwrap();
    let fingerprint = HostIdentity::from_seed(&[2; 32]).keys().fingerprint();
    directory.pin(&realm, &"B.test".parse().unwrap(), fingerprint).unwrap();
    assert_eq!(directory.load().unwrap().pins.len(), 1);
    assert!(!directory.path().join(".peers.new").exists());
}

#[test]
fn socket_in_place_of_a_file_is_refused() {
    let (data_dir, realm) = (DataDir::new(), realm("plant1"));
    let directory = create(&data_dir, &realm);
    let path = directory.path().join("identity.key");
    fs::remove_file(&path).unwrap();
    std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(matches!(directory.load().unwrap_err().fault, RealmFileFault::System { operation: "read", .. }));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(directory.load().unwrap_err().fault, RealmFileFault::Kind { expected: "file" });
}

/// Creates the files of a host in a realm whose authority has the seed 9.
fn create_pki(data_dir: &DataDir) -> (RealmDirectory, Realm, SigningKey) {
    let authority = SigningKey::from_seed(&[9; 32]);
    let realm = Realm { anchor: TrustAnchor::Authority(*authority.public()), ..realm("plant1") };
    let directory = RealmDirectory::new(&data_dir.0);
    directory.create(&NewRealm { realm: &realm, seed: &[1; 32], certificate: None, authority_seed: None }).unwrap();
    (directory, realm, authority)
}

#[test]
fn revoked_hosts_are_read_back_and_not_trusted() {
    let data_dir = DataDir::new();
    let (directory, realm, authority) = create_pki(&data_dir);
    assert_eq!(directory.load().unwrap().revocations, None);
    let keys = [2, 3].map(|seed| *HostIdentity::from_seed(&[seed; 32]).keys());
    let name: PeerName = "B.test".parse().unwrap();
    for (revision, keys) in (1..).zip(keys) {
        let list = directory.revoke(&realm, &authority, &name, keys.fingerprint()).unwrap().unwrap();
        assert_eq!(list.fields().revision, revision);
        assert_eq!(directory.load().unwrap().revocations, Some(list));
    }
    assert_eq!(directory.revoke(&realm, &authority, &name, keys[0].fingerprint()), Ok(None));
    let mode = fs::metadata(directory.path().join("revoked")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let fields = CertificateFields {
        realm: realm.name.clone(),
        name,
        keys: keys[1],
        validity: Validity::default(),
        serial: 1,
        permissions: PeerPermissions::all(),
    };
    let certificate = Certificate::sign(fields, &authority).unwrap();
    assert_eq!(check(&directory, &certificate), Err("revoked".to_owned()));
}

#[test]
fn older_revocation_list_is_not_stored() {
    let (data_dir, other_dir) = (DataDir::new(), DataDir::new());
    let (directory, realm, authority) = create_pki(&data_dir);
    let (other, ..) = create_pki(&other_dir);
    let revoke = |seed: u8| {
        let fingerprint = HostIdentity::from_seed(&[seed; 32]).keys().fingerprint();
        directory.revoke(&realm, &authority, &"B.test".parse().unwrap(), fingerprint).unwrap().unwrap()
    };
    let (first, second) = (revoke(2), revoke(3));
    assert_eq!(other.store_revocations(&realm, &second), Ok(true));
    for list in [&first, &second] {
        assert_eq!(other.store_revocations(&realm, list), Ok(false));
    }
    assert_eq!(other.load().unwrap().revocations, Some(second));
}

#[test]
fn revocation_list_of_another_authority_is_refused() {
    let data_dir = DataDir::new();
    let (directory, realm, _) = create_pki(&data_dir);
    let fingerprint = HostIdentity::from_seed(&[2; 32]).keys().fingerprint();
    let other = SigningKey::from_seed(&[8; 32]);
    directory.revoke(&realm, &other, &"B.test".parse().unwrap(), fingerprint).unwrap();
    let refused = directory.load().unwrap_err();
    assert_eq!(refused.fault, RealmFileFault::Revocations(RevocationListError::Signature));
    assert!(refused.path.ends_with("realm/revoked"), "{refused}");
}

#[test]
fn secret_is_replaced_in_the_same_realm_alone() {
    let (data_dir, realm) = (DataDir::new(), realm("plant1"));
    let directory = create(&data_dir, &realm);
    let before = directory.load().unwrap();
    let authority = TrustAnchor::Authority([7; 32]);
    for (name, anchor) in [("plant2", TrustAnchor::OwnKey), ("plant1", authority)] {
        let other = Realm { name: name.parse().unwrap(), anchor, secret: Secret::new([1; 32]) };
        let refused = directory.replace_secret(&other).unwrap_err();
        assert_eq!(refused.fault, RealmFileFault::Occupied(Some("plant1".to_owned())));
    }
    directory.replace_secret(&Realm { secret: Secret::new([1; 32]), ..realm }).unwrap();
    let after = directory.load().unwrap();
    assert_eq!(after.realm.secret.bytes(), &[1; 32]);
    assert_eq!((after.identity.keys(), &after.certificate), (before.identity.keys(), &before.certificate));
}
