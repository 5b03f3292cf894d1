//! Origin of data in the security layer: signatures over what this peer sends, and the check of what others send.

use super::{SecurityEffect, SecurityLayer};
use crate::message::Epoch;
use crate::security::handshake_datagram::{HandshakeDatagram, Step};
use crate::security::origin::{OriginSigner, OriginVerdict, SignatureOutcome};
use crate::time::Instant;
use crate::wire::Header;
use bytes::Bytes;
use std::time::Duration;

/// Time between two searches for datagrams that no SIGNATURE has covered in time.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);

impl SecurityLayer {
    /// Records a datagram of open mode that is sent to the group, and sends a SIGNATURE if it completes a batch.
    pub(super) fn on_data_sent(&mut self, number: u64, datagram: &Bytes) {
        let body = self.own.signer.as_mut().and_then(|signer| signer.on_sent(number, datagram));
        self.send_signature(body);
    }

    fn send_signature(&mut self, body: Option<Vec<u8>>) {
        if let Some(body) = body {
            let (_, bytes) = self.seal_handshake(Step::Signature, None, body);
            self.effects.push_back(SecurityEffect::Multicast { bytes });
        }
    }

    /// Returns an opened DATA datagram for the core, unless it is known to be forged.
    pub(super) fn check_origin(&mut self, now: Instant, header: &Header, opened: Bytes) -> Option<Bytes> {
        let Header { epoch, number, .. } = *header;
        let origin = self.associations.get_mut(&epoch)?.origin.as_mut()?;
        let (verdict, displaced) = origin.on_datagram(now, number, &opened);
        self.counters.origin_unverified += displaced;
        match verdict {
            OriginVerdict::Verified => self.counters.origin_verified += 1,
            OriginVerdict::Unverified => self.counters.origin_unverified += 1,
            OriginVerdict::Pending => {
                self.next_origin_search.get_or_insert(now + SEARCH_INTERVAL);
            }
            OriginVerdict::Forged => {
                self.on_forged(now, epoch, 1, number);
                return None;
            }
        }
        Some(opened)
    }

    /// Handles a SIGNATURE of a peer whose keys are known.
    pub(super) fn on_signature(&mut self, now: Instant, datagram: &HandshakeDatagram) -> Option<()> {
        let origin = self.associations.get_mut(&datagram.epoch)?.origin.as_mut()?;
        match origin.on_signature(now, &datagram.body) {
            SignatureOutcome::Old => {}
            SignatureOutcome::Discarded => self.counters.discard_signature += 1,
            SignatureOutcome::Valid(counts) => {
                self.counters.origin_verified += counts.verified;
                self.counters.origin_unverified += counts.unverified;
                if let Some(number) = counts.forged_number {
                    self.on_forged(now, datagram.epoch, counts.forged, number);
                }
            }
        }
        Some(())
    }

    /// Counts forged datagrams of which the first has this number, and reports it unless another one of this epoch was
    /// reported just now.
    fn on_forged(&mut self, now: Instant, epoch: Epoch, count: u64, number: u64) {
        self.counters.origin_forged += count;
        let Some(association) = self.associations.get_mut(&epoch) else { return };
        if association.origin.as_mut().is_some_and(|origin| origin.allow_report(now)) {
            let (address, name) = (association.host.address, association.host.certified.name.clone());
            self.effects.push_back(SecurityEffect::ForgedOrigin { epoch, address, name, number });
        }
    }

    /// Sends a SIGNATURE if one is due, and counts datagrams that no SIGNATURE has covered in time.
    pub(super) fn tick_origin(&mut self, now: Instant) {
        let body = self.own.signer.as_mut().and_then(|signer| signer.on_tick(now));
        self.send_signature(body);
        if self.next_origin_search.is_none_or(|search| now < search) {
            return;
        }
        let mut is_waiting = false;
        for origin in self.associations.values_mut().filter_map(|association| association.origin.as_mut()) {
            self.counters.origin_unverified += origin.expire(now);
            is_waiting |= origin.is_waiting();
        }
        self.next_origin_search = is_waiting.then_some(now + SEARCH_INTERVAL);
    }

    /// Returns the latest time for the next SIGNATURE or search; `None` if there is none.
    pub(super) fn origin_deadline(&self) -> Option<Instant> {
        let signature = self.own.signer.as_ref().and_then(OriginSigner::deadline);
        signature.into_iter().chain(self.next_origin_search).min()
    }
}
