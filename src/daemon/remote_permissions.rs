//! Subjects on which other hosts may publish, for threads that read what those hosts send.

use crate::message::Epoch;
use crate::subject::permitted_subjects::PermittedSubjects;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The permissions of peers whose certificates do not permit every subject. Any other peer may publish on all of them.
#[derive(Debug, Default)]
pub(crate) struct RemotePermissions(Mutex<BTreeMap<Epoch, PermittedSubjects>>);

impl RemotePermissions {
    /// Records the permission of a peer that has proven its identity, and forgets those of peers that are not known any
    /// more.
    #[cfg(feature = "security")]
    pub(crate) fn insert(&self, epoch: Epoch, publish: PermittedSubjects, is_known: impl Fn(Epoch) -> bool) {
        let mut limited = self.lock();
        limited.retain(|other, _| is_known(*other));
        match publish.is_all() {
            true => drop(limited.remove(&epoch)),
            false => drop(limited.insert(epoch, publish)),
        }
    }

    /// Returns the subjects on which a peer may publish.
    #[cfg(feature = "events")]
    pub(crate) fn of(&self, epoch: Epoch) -> PermittedSubjects {
        self.lock().get(&epoch).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Epoch, PermittedSubjects>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "events", feature = "security"))]
mod tests {
    use super::*;

    fn epoch(bits: u64) -> Epoch {
        Epoch::new(bits).unwrap()
    }

    #[test]
    fn permission_lasts_while_the_peer_is_known() {
        let permissions = RemotePermissions::default();
        let limited = PermittedSubjects::of(["line.>".parse().unwrap()]);
        assert!(permissions.of(epoch(1)).is_all());
        permissions.insert(epoch(1), limited.clone(), |_| true);
        permissions.insert(epoch(2), PermittedSubjects::all(), |_| true);
        assert_eq!([1, 2].map(|bits| permissions.of(epoch(bits)).is_all()), [false, true]);
        permissions.insert(epoch(3), limited, |known| known == epoch(3));
        assert_eq!([1, 3].map(|bits| permissions.of(epoch(bits)).is_all()), [true, false]);
        permissions.insert(epoch(3), PermittedSubjects::all(), |_| true);
        assert!(permissions.of(epoch(3)).is_all(), "it has another certificate");
    }
}
