//! The file with the authority's list of revoked hosts.
//!
//! ```text
//! seqcast revocation list, version 1
//! realm: plant1
//! revision: 3
//! revoked: B.test SHA256:(43 characters of base64)
//! signature: (88 characters of base64)
//! checksum: 1c291ca3
//! ```

use super::{KeyFileKind, RealmDirectory, RealmFileError, RealmFileFault, absent_as_none};
use crate::message::PeerName;
use crate::security::realm::{
    Fingerprint, REVOCATIONS_MAX, Realm, RealmMode, RevocationList, RevocationListError, RevocationListFields,
    SigningKey,
};
use crate::storage::realm::key_file::{KeyFileFields, KeyFileText};
use std::collections::BTreeMap;

const KIND: KeyFileKind = KeyFileKind::Revoked;

impl RealmDirectory {
    /// Returns the authority's list of revoked hosts; `None` if there is none, as always in the mode `realm`.
    ///
    /// # Errors
    /// The file cannot be used, or the authority has not signed it.
    pub fn revocations(&self, realm: &Realm) -> Result<Option<RevocationList>, RealmFileError> {
        if realm.anchor.mode() == RealmMode::Realm {
            return Ok(None);
        }
        let Some(file) = absent_as_none(self.read_of(KIND, realm))? else { return Ok(None) };
        let list = list_of(&file, realm).and_then(|list| match list.check(realm) {
            Ok(()) => Ok(list),
            Err(error) => Err(RealmFileFault::Revocations(error)),
        });
        list.map(Some).map_err(|fault| self.error(KIND, fault))
    }

    /// Revokes the keys of a host: the authority signs a list with one more entry and the next revision. Returns `None`
    /// if the keys are revoked already.
    ///
    /// # Errors
    /// The list is full, or a file cannot be used.
    pub fn revoke(
        &self,
        realm: &Realm,
        authority: &SigningKey,
        name: &PeerName,
        fingerprint: Fingerprint,
    ) -> Result<Option<RevocationList>, RealmFileError> {
        let _lock = self.lock()?;
        let former = self.revocations(realm)?;
        if former.as_ref().is_some_and(|list| list.contains(&fingerprint)) {
            return Ok(None);
        }
        let (revision, mut hosts) =
            former.map_or((0, BTreeMap::new()), |list| (list.fields().revision, list.fields().hosts.clone()));
        hosts.insert(fingerprint, name.clone());
        let fields = RevocationListFields { realm: realm.name.clone(), revision: revision.saturating_add(1), hosts };
        let signed = RevocationList::sign(fields, authority).map_err(|error| match error {
            RevocationListError::TooMany => RealmFileFault::RevocationsFull(REVOCATIONS_MAX),
            error => RealmFileFault::Revocations(error),
        });
        let list = signed.map_err(|fault| self.error(KIND, fault))?;
        list_text(&list).write(&self.path)?;
        Ok(Some(list))
    }

    /// Stores a list of the authority in place of an older one; returns false if the present one is not older. The
    /// caller has checked the list.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn store_revocations(&self, realm: &Realm, list: &RevocationList) -> Result<bool, RealmFileError> {
        let _lock = self.lock()?;
        let is_newer = self.revocations(realm)?.is_none_or(|former| former.fields().revision < list.fields().revision);
        if is_newer {
            list_text(list).write(&self.path)?;
        }
        Ok(is_newer)
    }
}

/// Returns the list in a file. The signature is not checked.
fn list_of(file: &KeyFileFields, realm: &Realm) -> Result<RevocationList, RealmFileFault> {
    let revision = file.text("revision")?.parse().map_err(|_| RealmFileFault::Field("revision"))?;
    let host = |line: &str| {
        let (name, fingerprint) = line.split_once(' ')?;
        Some((fingerprint.parse().ok()?, name.parse().ok()?))
    };
    let hosts: Option<BTreeMap<Fingerprint, PeerName>> = file.values("revoked").map(host).collect();
    let hosts = hosts.ok_or(RealmFileFault::Field("revoked"))?;
    let fields = RevocationListFields { realm: realm.name.clone(), revision, hosts };
    RevocationList::from_parts(fields, *file.array("signature")?).map_err(RealmFileFault::Revocations)
}

fn list_text(list: &RevocationList) -> KeyFileText {
    let RevocationListFields { realm, revision, hosts } = list.fields();
    let mut text = KeyFileText::new(KIND).field("realm", realm.as_str()).field("revision", &revision.to_string());
    for (fingerprint, name) in hosts {
        text = text.field("revoked", &format!("{name} {fingerprint}"));
    }
    text.bytes("signature", list.signature())
}
