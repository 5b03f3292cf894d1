//! Origin of data in the security layer: signatures over what this peer sends, and the check of what others send.
//!
//! What others send is passed on at once, and reported if it turns out to be forged. Or it is held until it is verified
//! (`SecuritySettings::holds_until_verified`).

use super::{SecurityEffect, SecurityLayer};
use crate::message::Epoch;
use crate::proto::effect::ArrivedDatagram;
use crate::security::handshake_datagram::{HandshakeDatagram, Step};
use crate::security::origin::{OriginHash, OriginSigner, OriginVerdict, RepeatedSignature, SignatureOutcome};
use crate::time::Instant;
use crate::wire::{Header, Kind};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Time between two searches for datagrams that no SIGNATURE has covered in time.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);

impl SecurityLayer {
    /// Records a datagram of open mode that is sent to the group, or again to one address, and sends a SIGNATURE if it
    /// completes a batch.
    pub(super) fn on_data_sent(&mut self, number: u64, to: Option<SocketAddr>, datagram: &Bytes) {
        let Some(signer) = &mut self.own.signer else { return };
        if let Some(body) = signer.on_sent(number, to, datagram) {
            self.send_signature(body, &BTreeSet::from([None]));
        }
    }

    /// Sends the last SIGNATURE of an epoch, over what is not signed yet.
    pub(super) fn sign_rest(&mut self) {
        if let Some(body) = self.own.signer.as_mut().and_then(OriginSigner::sign_rest) {
            self.send_signature(body, &BTreeSet::from([None]));
        }
    }

    /// Sends a SIGNATURE to these addresses; `None` is the group.
    fn send_signature(&mut self, body: Vec<u8>, receivers: &BTreeSet<Option<SocketAddr>>) {
        let (_, bytes) = self.seal_handshake(Step::Signature, None, body);
        self.effects.extend(receivers.iter().map(|to| match *to {
            Some(to) => SecurityEffect::Send { to, bytes: bytes.clone() },
            None => SecurityEffect::Multicast { bytes: bytes.clone() },
        }));
    }

    /// Returns an opened datagram of a peer that signs, unless it is held or forged.
    pub(super) fn check_origin(&mut self, now: Instant, header: &Header, opened: ArrivedDatagram) -> Option<Bytes> {
        match header.kind {
            Kind::Data => self.check_data(now, header, opened),
            Kind::Control if self.hold.has_waiting(header.epoch) => {
                // If there is no room, it only makes the core request what is held.
                self.hold.push(now, header.epoch, None, opened).err().map(|datagram| datagram.bytes)
            }
            // No other member has the keys of DIRECTED.
            Kind::Control | Kind::Directed => Some(opened.bytes),
        }
    }

    fn check_data(&mut self, now: Instant, header: &Header, opened: ArrivedDatagram) -> Option<Bytes> {
        let Header { epoch, number, .. } = *header;
        let origin = self.associations.get_mut(&epoch)?.origin.as_mut()?;
        let hash = OriginHash::of(&opened.bytes);
        let (verdict, displaced) = origin.on_datagram(now, number, hash);
        self.counters.origin_unverified += displaced;
        match verdict {
            OriginVerdict::Verified => self.counters.origin_verified += 1,
            OriginVerdict::Pending => {
                self.next_origin_search.get_or_insert(now + SEARCH_INTERVAL);
                if self.settings.holds_until_verified {
                    if self.hold.push(now, epoch, Some((number, hash)), opened).is_err() {
                        origin.forget_last();
                        self.counters.discard_unverified += 1;
                    }
                    return None;
                }
            }
            OriginVerdict::Forged => {
                self.on_forged(now, epoch, 1, number);
                return None;
            }
        }
        Some(opened.bytes)
    }

    /// Handles a SIGNATURE of a peer whose keys are known.
    pub(super) fn on_signature(&mut self, now: Instant, datagram: &HandshakeDatagram) -> Option<()> {
        let origin = self.associations.get_mut(&datagram.epoch)?.origin.as_mut()?;
        match origin.on_signature(now, &datagram.body) {
            SignatureOutcome::Old => {}
            SignatureOutcome::Discarded => self.counters.discard_signature += 1,
            SignatureOutcome::Valid { numbers, counts } => {
                let released = self.hold.release(datagram.epoch, &numbers, origin);
                self.effects.extend(released.into_iter().map(SecurityEffect::Receive));
                self.counters.origin_verified += counts.verified;
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

    /// Sends SIGNATUREs that are due, and counts or discards datagrams that no SIGNATURE has covered in time.
    pub(super) fn tick_origin(&mut self, now: Instant) {
        if let Some(body) = self.own.signer.as_mut().and_then(|signer| signer.on_tick(now)) {
            self.send_signature(body, &BTreeSet::from([None]));
        }
        if let Some(RepeatedSignature { body, receivers }) =
            self.own.signer.as_mut().and_then(|signer| signer.sign_resent(now))
        {
            self.send_signature(body, &receivers);
        }
        if self.hold.deadline().is_some_and(|deadline| deadline <= now) {
            let (passed, discarded) = self.hold.expire(now, |epoch| self.associations.contains_key(&epoch));
            self.counters.discard_unverified += discarded;
            self.effects.extend(passed.into_iter().map(SecurityEffect::Receive));
        }
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
        signature.into_iter().chain(self.next_origin_search).chain(self.hold.deadline()).min()
    }
}
