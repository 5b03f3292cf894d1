//! The thread that stores what a running peer learns about its realm. The engine must not wait for the disk.

use crate::message::PeerName;
use crate::security::realm::{Fingerprint, Realm, RevocationList};
use crate::storage::realm::RealmDirectory;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Maximum number of changes that wait to be stored.
const WAITING_MAX: usize = 1024;
/// Maximum time for which a flush waits for a slow disk.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// A change of the files of the realm.
enum RealmWrite {
    /// The keys of a new name.
    Pin(PeerName, Fingerprint),
    /// A newer list of revoked hosts.
    Revocations(RevocationList),
    /// Report that everything before is stored.
    Flush(SyncSender<()>),
}

/// The way to the thread, which ends with the last copy of it.
#[derive(Clone)]
pub(super) struct RealmWriter(SyncSender<RealmWrite>);

impl RealmWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(directory: RealmDirectory, realm: Realm) -> io::Result<RealmWriter> {
        let (sender, writes) = sync_channel(WAITING_MAX);
        thread::Builder::new().name("realm-writer".into()).spawn(move || write_all(&directory, &realm, &writes))?;
        Ok(RealmWriter(sender))
    }

    /// Stores the keys of a new name.
    pub(super) fn pin(&self, name: PeerName, fingerprint: Fingerprint) {
        if let Err(error) = self.0.try_send(RealmWrite::Pin(name.clone(), fingerprint)) {
            tracing::warn!(peer = %name, %error, "the keys of this name are not stored; they are known until this peer ends or reads its files again");
        }
    }

    /// Stores a list of revoked hosts.
    pub(super) fn store(&self, list: RevocationList) {
        if let Err(error) = self.0.try_send(RealmWrite::Revocations(list)) {
            tracing::warn!(%error, "the list of revoked hosts is not stored, and is in use until this peer ends");
        }
    }

    /// Waits until everything before is stored, but not for long.
    pub(super) fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        let is_flushed = self.0.try_send(RealmWrite::Flush(done)).is_ok() && is_done.recv_timeout(FLUSH_TIME).is_ok();
        if !is_flushed {
            tracing::warn!("names that are new in the realm are not stored yet: the disk is slow");
        }
    }
}

fn write_all(directory: &RealmDirectory, realm: &Realm, writes: &Receiver<RealmWrite>) {
    for write in writes {
        match write {
            RealmWrite::Pin(name, fingerprint) => {
                if let Err(error) = directory.pin(realm, &name, fingerprint) {
                    tracing::warn!(peer = %name, %error, "the keys of this name are not stored; they are known until this peer ends or reads its files again");
                }
            }
            RealmWrite::Revocations(list) => {
                if let Err(error) = directory.store_revocations(realm, &list) {
                    tracing::warn!(%error, "the list of revoked hosts is not stored, and is in use until this peer ends");
                }
            }
            // The engine may have stopped waiting.
            RealmWrite::Flush(done) => drop(done.try_send(())),
        }
    }
}
