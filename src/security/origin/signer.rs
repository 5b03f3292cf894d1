//! The publisher's side: hashes of what it sends, and when they are signed.

use super::{BATCH_MAX, HASH_BYTES, HASHES_MAX, OriginContext, OriginHash};
use crate::security::realm::{SIGNATURE_BYTES, SigningKey};
use crate::time::Instant;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Minimum time between two SIGNATUREs, unless a batch is full. The first datagram after a pause is signed at once.
const INTERVAL: Duration = Duration::from_millis(20);
/// Minimum time between two SIGNATUREs over datagrams that were sent again.
const RESENT_INTERVAL: Duration = Duration::from_millis(5);
/// Number of signed hashes that are remembered, so that one SIGNATURE covers many datagrams that are sent again.
const SIGNED_MAX: usize = 4096;
/// Maximum number of datagrams that were sent again and wait for a SIGNATURE.
const RESENT_MAX: usize = 1024;

/// Signs what an epoch sends to the group.
#[derive(Debug)]
pub(in crate::security) struct OriginSigner {
    key: Arc<SigningKey>,
    context: OriginContext,
    /// Number of the datagram with the first hash.
    first: u64,
    /// Hashes of the last datagrams; their numbers ascend by one.
    hashes: VecDeque<OriginHash>,
    /// Number of hashes, the first ones, that are signed.
    signed: usize,
    /// Number of hashes at the end of the signed ones that only one SIGNATURE contains.
    signed_once: usize,
    /// Body of the last SIGNATURE, until it is repeated or the next one follows.
    unrepeated: Option<Vec<u8>>,
    /// Time from which the next SIGNATURE may be sent; `None` if a full batch was signed since the last tick, which reads
    /// the clock.
    due: Option<Instant>,
    /// Datagrams that were sent again, by number and receiver, which is `None` for the group. Their receivers may have
    /// lost the SIGNATUREs, too.
    resent: BTreeMap<(u64, Option<SocketAddr>), OriginHash>,
    /// Time from which the next SIGNATURE over datagrams that were sent again may be sent.
    resent_due: Instant,
}

/// A SIGNATURE over datagrams that were sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::security) struct RepeatedSignature {
    pub(in crate::security) body: Vec<u8>,
    /// Receivers of these datagrams; `None` is the group.
    pub(in crate::security) receivers: BTreeSet<Option<SocketAddr>>,
}

impl OriginSigner {
    /// Creates the signer of an epoch that begins.
    pub(in crate::security) fn new(key: Arc<SigningKey>, context: OriginContext) -> OriginSigner {
        OriginSigner {
            key,
            context,
            first: 0,
            hashes: VecDeque::new(),
            signed: 0,
            signed_once: 0,
            unrepeated: None,
            due: Some(Instant::ZERO),
            resent: BTreeMap::new(),
            resent_due: Instant::ZERO,
        }
    }

    /// Records a datagram of open mode that is sent, or sent again, to the group or to one receiver. Returns the body of a
    /// SIGNATURE if one must be sent now.
    pub(in crate::security) fn on_sent(
        &mut self,
        number: u64,
        to: Option<SocketAddr>,
        datagram: &Bytes,
    ) -> Option<Vec<u8>> {
        let hash = OriginHash::of(datagram);
        let next = self.first.saturating_add(self.hashes.len() as u64);
        let is_new = self.hashes.is_empty() || next <= number;
        if !is_new {
            // The receiver requests what finds no room here once more.
            if self.resent.len() < RESENT_MAX {
                self.resent.insert((number, to), hash);
            }
            return None;
        }
        // Hashes in one SIGNATURE have ascending numbers without holes.
        let mut body = None;
        if next != number || self.hashes.is_empty() {
            body = (self.signed < self.hashes.len()).then(|| self.sign());
            self.hashes.clear();
            (self.first, self.signed, self.signed_once) = (number, 0, 0);
        }
        self.hashes.push_back(hash);
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

    /// Returns the SIGNATURE over datagrams that were sent again, if one is due. It covers the first of them, and those
    /// that follow as far as it has room.
    pub(in crate::security) fn sign_resent(&mut self, now: Instant) -> Option<RepeatedSignature> {
        let (&(first, _), _) = self.resent.first_key_value().filter(|_| self.resent_due <= now)?;
        self.resent_due = now + RESENT_INTERVAL;
        let remembered = first.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let hashes = match remembered.filter(|index| *index < self.signed) {
            Some(index) => self.hashes.range(index..self.signed.min(index + HASHES_MAX)).copied().collect(),
            None => self.consecutive_resent(first),
        };
        let rest = self.resent.split_off(&(first + hashes.len() as u64, None));
        let covered = std::mem::replace(&mut self.resent, rest);
        let receivers = covered.into_keys().map(|(_, to)| to).collect();
        Some(RepeatedSignature { body: self.encode(first, &hashes), receivers })
    }

    /// Returns the hashes of datagrams that were sent again, whose numbers ascend by one from `first` on.
    fn consecutive_resent(&self, first: u64) -> Vec<OriginHash> {
        let mut hashes = Vec::new();
        for (&(number, _), &hash) in &self.resent {
            let next = first + hashes.len() as u64;
            match number.cmp(&next) {
                // It went to another receiver, too.
                Ordering::Less => {}
                Ordering::Equal if hashes.len() < HASHES_MAX => hashes.push(hash),
                Ordering::Equal | Ordering::Greater => break,
            }
        }
        hashes
    }

    /// Returns the body of the last SIGNATURE of the epoch, if something is not signed yet.
    pub(in crate::security) fn sign_rest(&mut self) -> Option<Vec<u8>> {
        (self.signed < self.hashes.len()).then(|| self.sign())
    }

    /// Returns the latest time for the next tick; `None` if none is needed.
    pub(in crate::security) fn deadline(&self) -> Option<Instant> {
        let has_work = self.signed < self.hashes.len() || self.unrepeated.is_some();
        let due = has_work.then(|| self.due.unwrap_or(Instant::ZERO));
        let resent_due = (!self.resent.is_empty()).then_some(self.resent_due);
        due.into_iter().chain(resent_due).min()
    }

    /// Signs the hashes that are not signed yet, with those of the batch before.
    fn sign(&mut self) -> Vec<u8> {
        let begin = self.signed - self.signed_once;
        let hashes: Vec<OriginHash> = self.hashes.range(begin..).copied().collect();
        let body = self.encode(self.first + begin as u64, &hashes);
        self.signed_once = self.hashes.len() - self.signed;
        let forgotten = self.hashes.len().saturating_sub(SIGNED_MAX);
        self.hashes.drain(..forgotten);
        self.first += forgotten as u64;
        self.signed = self.hashes.len();
        self.unrepeated = Some(body.clone());
        body
    }

    /// Returns the body of a SIGNATURE over hashes of which the first is of the datagram with this number.
    fn encode(&self, first: u64, hashes: &[OriginHash]) -> Vec<u8> {
        let mut body = Vec::with_capacity(8 + HASH_BYTES * hashes.len() + SIGNATURE_BYTES);
        body.extend(first.to_be_bytes());
        body.extend(hashes.iter().flat_map(|hash| hash.0));
        let signature = self.key.sign(&self.context.signed_text(&body));
        body.extend(signature);
        body
    }
}
