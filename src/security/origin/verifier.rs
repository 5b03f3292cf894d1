//! The receiver's side: hashes of what one epoch has sent, and what its SIGNATUREs say about them.

use super::{BATCH_MAX, OriginContext, OriginHash, SignatureBody};
use crate::proto::resend::TokenBucket;
use crate::security::realm::{KEY_BYTES, is_signed_by};
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Maximum number of datagrams that wait for a SIGNATURE, and of signed hashes that are remembered.
pub(super) const DATAGRAMS_MAX: usize = 4096;
/// Time within which a SIGNATURE covers a datagram, unless several are lost.
pub(super) const SIGNATURE_TIME: Duration = Duration::from_millis(100);
/// Maximum number of signatures that are verified each second, and at once, besides one for each batch of datagrams that
/// has arrived. Each costs about 40 µs.
const VERIFICATIONS_RATE: u64 = 100;
/// The same for SIGNATUREs over older datagrams, which strangers can replay.
const OLD_VERIFICATIONS_RATE: u64 = 100;
/// Minimum time between two reports of forged datagrams.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Knowledge about the origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::security) enum OriginVerdict {
    /// The publisher has signed it.
    Verified,
    /// The publisher has signed another one with this number.
    Forged,
    /// It waits for a SIGNATURE.
    Pending,
}

/// Result of a SIGNATURE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::security) enum SignatureOutcome {
    /// It is of the publisher.
    Valid {
        /// Numbers of the datagrams that it covers.
        numbers: RangeInclusive<u64>,
        counts: OriginCounts,
    },
    /// It is not newer than the last one, and covers no datagram that waits.
    Old,
    /// It breaks the layout, is not of the publisher, or exceeds the limit of verifications.
    Discarded,
}

/// Number of datagrams that waited for a SIGNATURE, by its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::security) struct OriginCounts {
    pub(in crate::security) verified: u64,
    pub(in crate::security) forged: u64,
    /// Number of the first forged datagram.
    pub(in crate::security) forged_number: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct PendingDatagram {
    number: u64,
    hash: OriginHash,
    arrived: Instant,
}

/// Verifies what one epoch of another peer has sent to the group.
#[derive(Debug)]
pub(in crate::security) struct OriginVerifier {
    key: [u8; KEY_BYTES],
    context: OriginContext,
    /// Signed hashes of the last datagrams, by number.
    signed: BTreeMap<u64, OriginHash>,
    /// Number of the last datagram that is signed.
    last: Option<u64>,
    /// Datagrams that wait for a SIGNATURE, in the order of arrival.
    pending: VecDeque<PendingDatagram>,
    /// Those that have waited too long, and are counted as unverified. A SIGNATURE may still come: whoever forges the next
    /// datagram of an idle publisher is found out when the publisher sends the genuine one.
    overdue: VecDeque<PendingDatagram>,
    verifications: TokenBucket,
    old_verifications: TokenBucket,
    /// Number of arrived datagrams for which no verification was granted yet.
    ungranted: usize,
    /// Time from which a forged datagram is reported again.
    next_report: Instant,
}

impl OriginVerifier {
    /// Creates the verifier of an epoch whose host has this Ed25519 key.
    pub(in crate::security) fn new(key: [u8; KEY_BYTES], context: OriginContext, now: Instant) -> OriginVerifier {
        OriginVerifier {
            key,
            context,
            signed: BTreeMap::new(),
            last: None,
            pending: VecDeque::new(),
            overdue: VecDeque::new(),
            verifications: TokenBucket::full(now),
            old_verifications: TokenBucket::full(now),
            ungranted: 0,
            next_report: now,
        }
    }

    /// Returns whether this is the verifier of a host with this key.
    pub(in crate::security) fn has_key(&self, key: &[u8; KEY_BYTES]) -> bool {
        self.key == *key
    }

    /// Judges an opened datagram with this hash. Returns the verdict, and the number of other datagrams that lose their
    /// place to it unverified.
    pub(in crate::security) fn on_datagram(
        &mut self,
        arrived: Instant,
        number: u64,
        hash: OriginHash,
    ) -> (OriginVerdict, u64) {
        self.ungranted = (self.ungranted + 1).min(DATAGRAMS_MAX);
        let verdict = self.verdict(number, hash);
        if verdict != OriginVerdict::Pending {
            return (verdict, 0);
        }
        let mut unverified = 0;
        if DATAGRAMS_MAX <= self.pending.len() + self.overdue.len() && self.overdue.pop_front().is_none() {
            self.pending.pop_front();
            unverified = 1;
        }
        self.pending.push_back(PendingDatagram { number, hash, arrived });
        (OriginVerdict::Pending, unverified)
    }

    /// Returns what the SIGNATUREs so far say about a datagram with this number and hash.
    pub(super) fn verdict(&self, number: u64, hash: OriginHash) -> OriginVerdict {
        match self.signed.get(&number) {
            Some(signed) if *signed == hash => OriginVerdict::Verified,
            Some(_) => OriginVerdict::Forged,
            None => OriginVerdict::Pending,
        }
    }

    /// Handles the body of a SIGNATURE of this epoch.
    pub(in crate::security) fn on_signature(&mut self, now: Instant, body: &[u8]) -> SignatureOutcome {
        let Some(body) = SignatureBody::decode(body) else { return SignatureOutcome::Discarded };
        let numbers = body.first..=body.last;
        let is_old = self.last.is_some_and(|last| body.last <= last);
        // A repeated or replayed one costs no verification, unless a datagram waits for it.
        if is_old && !self.has_waiting(&numbers) {
            return SignatureOutcome::Old;
        }
        let is_granted = if is_old { self.grant_old_verification(now) } else { self.grant_verification(now) };
        if !is_granted || !is_signed_by(&self.key, &self.context.signed_text(body.content), &body.signature) {
            return SignatureOutcome::Discarded;
        }
        // The hashes of this SIGNATURE stay until the next one, even if they are old: datagrams may be held for them.
        while DATAGRAMS_MAX < self.signed.len() {
            self.signed.pop_first();
        }
        for (number, hash) in numbers.clone().zip(&body.hashes) {
            self.signed.entry(number).or_insert(*hash);
        }
        self.last = self.last.max(Some(body.last));
        let counts = self.resolve(&numbers);
        SignatureOutcome::Valid { numbers, counts }
    }

    /// Returns whether datagrams with some of these numbers wait for a SIGNATURE.
    fn has_waiting(&self, numbers: &RangeInclusive<u64>) -> bool {
        self.pending.iter().chain(&self.overdue).any(|datagram| numbers.contains(&datagram.number))
    }

    /// Judges the datagrams with these numbers, which wait no longer. Overdue ones count as unverified already.
    fn resolve(&mut self, numbers: &RangeInclusive<u64>) -> OriginCounts {
        let OriginVerifier { signed, pending, overdue, .. } = self;
        let mut counts = OriginCounts::default();
        for (datagrams, is_overdue) in [(overdue, true), (pending, false)] {
            datagrams.retain(|datagram| {
                if !numbers.contains(&datagram.number) {
                    return true;
                }
                if signed.get(&datagram.number) == Some(&datagram.hash) {
                    counts.verified += u64::from(!is_overdue);
                } else {
                    counts.forged += 1;
                    counts.forged_number.get_or_insert(datagram.number);
                }
                false
            });
        }
        counts
    }

    /// Returns whether one more signature may be verified, and counts it. Other members can send SIGNATUREs in the name
    /// of this epoch, at any rate.
    fn grant_verification(&mut self, now: Instant) -> bool {
        if let Some(left) = self.ungranted.checked_sub(BATCH_MAX) {
            self.ungranted = left;
            return true;
        }
        self.verifications.take_one(now, VERIFICATIONS_RATE)
    }

    /// Works as [`OriginVerifier::grant_verification`], for a SIGNATURE that may be a replay. A stranger that replays both
    /// data and SIGNATUREs must not use up what new ones need.
    fn grant_old_verification(&mut self, now: Instant) -> bool {
        self.old_verifications.take_one(now, OLD_VERIFICATIONS_RATE)
    }

    /// Forgets the datagram that came last, which is not held.
    pub(in crate::security) fn forget_last(&mut self) {
        self.pending.pop_back();
    }

    /// Ends the wait of datagrams that no SIGNATURE has covered in time, and returns their number.
    pub(in crate::security) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while let Some(first) = self.pending.front().filter(|first| SIGNATURE_TIME <= now.since(first.arrived)) {
            self.overdue.push_back(*first);
            self.pending.pop_front();
            expired += 1;
        }
        expired
    }

    /// Returns whether datagrams wait for a SIGNATURE that may still come in time.
    pub(in crate::security) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether a forged datagram is reported now, and remembers it if so.
    pub(in crate::security) fn allow_report(&mut self, now: Instant) -> bool {
        let is_allowed = self.next_report <= now;
        if is_allowed {
            self.next_report = now + REPORT_INTERVAL;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests;
