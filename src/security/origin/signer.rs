//! The publisher's side: hashes of what it sends, and when they are signed.

use super::{BATCH_MAX, HASH_BYTES, HASHES_MAX, OriginContext, OriginHash};
use crate::security::realm::{SIGNATURE_BYTES, SigningKey};
use crate::time::Instant;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Minimum time between two SIGNATUREs, unless a batch is full. The first datagram after a pause is signed at once.
const INTERVAL: Duration = Duration::from_millis(20);

/// Signs what an epoch sends to the group.
#[derive(Debug)]
pub(in crate::security) struct OriginSigner {
    key: Arc<SigningKey>,
    context: OriginContext,
    /// Number of the datagram with the first hash.
    first: u64,
    /// Hashes of the batch that was signed last, then those that are not signed yet; their numbers ascend by one.
    hashes: Vec<OriginHash>,
    /// Number of hashes that are signed.
    signed: usize,
    /// Body of the last SIGNATURE, until it is repeated or the next one follows.
    unrepeated: Option<Vec<u8>>,
    /// Time from which the next SIGNATURE may be sent; `None` if a full batch was signed since the last tick, which reads
    /// the clock.
    due: Option<Instant>,
}

impl OriginSigner {
    /// Creates the signer of an epoch that begins.
    pub(in crate::security) fn new(key: Arc<SigningKey>, context: OriginContext) -> OriginSigner {
        let hashes = Vec::with_capacity(HASHES_MAX);
        OriginSigner { key, context, first: 0, hashes, signed: 0, unrepeated: None, due: Some(Instant::ZERO) }
    }

    /// Records a datagram of open mode that is sent to the group, maybe again. Returns the body of a SIGNATURE if one must
    /// be sent now.
    pub(in crate::security) fn on_sent(&mut self, number: u64, datagram: &Bytes) -> Option<Vec<u8>> {
        let next = self.first.saturating_add(self.hashes.len() as u64);
        let is_new = self.hashes.is_empty() || next <= number;
        if !is_new {
            return None;
        }
        // Hashes in one SIGNATURE have ascending numbers without holes.
        let mut body = None;
        if next != number || self.hashes.is_empty() {
            body = (self.signed < self.hashes.len()).then(|| self.sign());
            self.hashes.clear();
            (self.first, self.signed) = (number, 0);
        }
        self.hashes.push(OriginHash::of(datagram));
        if self.hashes.len() - self.signed < BATCH_MAX {
            return body;
        }
        self.due = None;
        Some(self.sign())
    }

    /// Handles the passing of time. Returns the body of a SIGNATURE if one must be sent now: over what was sent since the
    /// last one, or the last one again if nothing was.
    pub(in crate::security) fn on_tick(&mut self, now: Instant) -> Option<Vec<u8>> {
        if now < *self.due.get_or_insert(now + INTERVAL) {
            return None;
        }
        if self.signed < self.hashes.len() {
            self.due = Some(now + INTERVAL);
            return Some(self.sign());
        }
        self.unrepeated.take()
    }

    /// Returns the latest time for the next tick; `None` if none is needed.
    pub(in crate::security) fn deadline(&self) -> Option<Instant> {
        let has_work = self.signed < self.hashes.len() || self.unrepeated.is_some();
        has_work.then(|| self.due.unwrap_or(Instant::ZERO))
    }

    /// Signs all hashes, and keeps those of the last batch for the next SIGNATURE.
    fn sign(&mut self) -> Vec<u8> {
        let mut body = Vec::with_capacity(8 + HASH_BYTES * self.hashes.len() + SIGNATURE_BYTES);
        body.extend(self.first.to_be_bytes());
        body.extend(self.hashes.iter().flat_map(|hash| hash.0));
        let signature = self.key.sign(&self.context.signed_text(&body));
        body.extend(signature);
        self.first += self.signed as u64;
        self.hashes.drain(..self.signed);
        self.signed = self.hashes.len();
        self.unrepeated = Some(body.clone());
        body
    }
}
