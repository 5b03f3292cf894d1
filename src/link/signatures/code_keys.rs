//! The keys of the codes in the signatures of a realm's members, around a change of the realm's secret.
//!
//! Hosts get a new secret one after the other. So a gateway uses the former key for some minutes to sign, and accepts it
//! for longer.

use crate::security::batch_signature::{BatchCodeKey, BatchSignature, SignedRoot};
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Time for which a gateway signs with the former key.
pub(super) const FORMER_SIGN_TIME: Duration = Duration::from_secs(300);
/// Time for which a gateway accepts a former key: a host that gets the new one at the end of the time above signs with the
/// former one for as long.
const FORMER_ACCEPT_TIME: Duration = Duration::from_secs(600);
/// Maximum number of former keys. The oldest is forgotten first.
const FORMER_MAX: usize = 4;

/// The keys with which a gateway signs.
#[derive(Debug)]
pub(super) struct SignerCodeKeys {
    current: BatchCodeKey,
    /// The next key, and the time from which it is used.
    next: Option<NextKey>,
}

#[derive(Debug)]
struct NextKey {
    from: Instant,
    key: BatchCodeKey,
}

impl SignerCodeKeys {
    pub(super) fn new(key: BatchCodeKey) -> SignerCodeKeys {
        SignerCodeKeys { current: key, next: None }
    }

    /// Uses another key some minutes later.
    pub(super) fn set(&mut self, now: Instant, key: BatchCodeKey) {
        let last = self.next.as_ref().map_or(&self.current, |next| &next.key);
        if *last != key {
            self.next = Some(NextKey { from: now + FORMER_SIGN_TIME, key });
        }
    }

    /// Returns the key with which a message is signed now.
    pub(super) fn get(&mut self, now: Instant) -> &BatchCodeKey {
        if let Some(next) = self.next.take_if(|next| next.from <= now) {
            self.current = next.key;
        }
        &self.current
    }
}

/// The keys that a gateway accepts.
#[derive(Debug)]
pub(super) struct VerifierCodeKeys {
    current: BatchCodeKey,
    former: VecDeque<FormerKey>,
}

#[derive(Debug)]
struct FormerKey {
    to: Instant,
    key: BatchCodeKey,
}

impl VerifierCodeKeys {
    pub(super) fn new(key: BatchCodeKey) -> VerifierCodeKeys {
        VerifierCodeKeys { current: key, former: VecDeque::new() }
    }

    /// Takes over a key. The one before is accepted for some minutes.
    pub(super) fn set(&mut self, now: Instant, key: BatchCodeKey) {
        if self.current == key {
            return;
        }
        let key = std::mem::replace(&mut self.current, key);
        self.former.push_front(FormerKey { to: now + FORMER_ACCEPT_TIME, key });
        self.former.truncate(FORMER_MAX);
    }

    /// Returns whether a member of the realm has made the batch with this root.
    pub(super) fn accepts(&self, now: Instant, signature: &BatchSignature, root: &SignedRoot) -> bool {
        let former = self.former.iter().filter(|former| now < former.to).map(|former| &former.key);
        std::iter::once(&self.current).chain(former).any(|key| signature.is_of_member(root, key))
    }
}
