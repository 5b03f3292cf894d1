//! Opened datagrams of publishers that sign, which wait until a SIGNATURE covers them.
//!
//! CONTROL of an epoch waits behind its DATA that arrived before. So to the core it is as if the network had delayed
//! both, and no announcement makes the core request what waits here. DATA that waits too long or finds no room is
//! discarded: the core requests it like any other that is missing.

use super::OriginHash;
use super::verifier::{DATAGRAMS_MAX, OriginVerdict, OriginVerifier, SIGNATURE_TIME};
use crate::message::Epoch;
use crate::proto::effect::ArrivedDatagram;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

/// Maximum bytes of the held datagrams of one epoch, with [`DATAGRAM_COST`] for each.
const EPOCH_COST_MAX: usize = 8 << 20;
/// Maximum bytes of all held datagrams, counted in the same way.
const TOTAL_COST_MAX: usize = 64 << 20;
/// Bytes that manage a held datagram, besides its own.
const DATAGRAM_COST: usize = 256;

/// The datagrams that wait, in the order of arrival for each epoch.
#[derive(Debug, Default)]
pub(in crate::security) struct OriginHold {
    /// Epochs with datagrams that wait. The first one of each epoch is DATA.
    epochs: BTreeMap<Epoch, HeldDatagrams>,
    total_cost: usize,
}

#[derive(Debug, Default)]
struct HeldDatagrams {
    datagrams: VecDeque<HeldDatagram>,
    cost: usize,
}

#[derive(Debug)]
struct HeldDatagram {
    /// Number and hash of DATA; `None` for CONTROL, which waits for earlier DATA alone.
    data: Option<(u64, OriginHash)>,
    until: Instant,
    datagram: ArrivedDatagram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldDecision {
    Pass,
    Discard,
    Wait,
}

impl OriginHold {
    /// Returns whether datagrams of an epoch wait.
    pub(in crate::security) fn has_waiting(&self, epoch: Epoch) -> bool {
        self.epochs.contains_key(&epoch)
    }

    /// Lets a datagram wait from now on: DATA with its number and hash, or CONTROL.
    ///
    /// # Errors
    /// Returns the datagram if there is no room for it.
    pub(in crate::security) fn push(
        &mut self,
        now: Instant,
        epoch: Epoch,
        data: Option<(u64, OriginHash)>,
        datagram: ArrivedDatagram,
    ) -> Result<(), ArrivedDatagram> {
        let cost = cost(&datagram);
        let (count, epoch_cost) = self.epochs.get(&epoch).map_or((0, 0), |held| (held.datagrams.len(), held.cost));
        if DATAGRAMS_MAX <= count || EPOCH_COST_MAX < epoch_cost + cost || TOTAL_COST_MAX < self.total_cost + cost {
            return Err(datagram);
        }
        self.total_cost += cost;
        let held = self.epochs.entry(epoch).or_default();
        held.cost += cost;
        held.datagrams.push_back(HeldDatagram { data, until: now + SIGNATURE_TIME, datagram });
        Ok(())
    }

    /// Releases the held datagrams of an epoch that a SIGNATURE over these numbers verifies, and discards forged ones.
    pub(in crate::security) fn release(
        &mut self,
        epoch: Epoch,
        numbers: &RangeInclusive<u64>,
        verifier: &OriginVerifier,
    ) -> Vec<ArrivedDatagram> {
        self.drain(epoch, |number, hash, _| match verifier.verdict(number, hash) {
            _ if !numbers.contains(&number) => HoldDecision::Wait,
            OriginVerdict::Verified => HoldDecision::Pass,
            OriginVerdict::Forged => HoldDecision::Discard,
            OriginVerdict::Pending => HoldDecision::Wait,
        })
    }

    /// Discards held datagrams whose time is over, and all of epochs that are not known any more. Returns the CONTROL
    /// datagrams that were held behind them, and the number of discarded datagrams.
    pub(in crate::security) fn expire(
        &mut self,
        now: Instant,
        is_known: impl Fn(Epoch) -> bool,
    ) -> (Vec<ArrivedDatagram>, u64) {
        let (mut passed, mut discarded) = (Vec::new(), 0);
        let epochs: Vec<Epoch> = self.epochs.keys().copied().collect();
        for epoch in epochs {
            if !is_known(epoch)
                && let Some(held) = self.epochs.remove(&epoch)
            {
                self.total_cost -= held.cost;
                discarded += held.datagrams.len() as u64;
                continue;
            }
            // The first one has waited longest.
            if self.epochs.get(&epoch).and_then(|held| held.datagrams.front()).is_some_and(|first| now < first.until) {
                continue;
            }
            passed.extend(self.drain(epoch, |_, _, until| match until <= now {
                true => {
                    discarded += 1;
                    HoldDecision::Discard
                }
                false => HoldDecision::Wait,
            }));
        }
        (passed, discarded)
    }

    /// Decides on the held DATA of an epoch by number, hash and end of its time. Returns the datagrams that pass, with the
    /// CONTROL datagrams that are held behind no other DATA.
    fn drain(
        &mut self,
        epoch: Epoch,
        mut decide: impl FnMut(u64, OriginHash, Instant) -> HoldDecision,
    ) -> Vec<ArrivedDatagram> {
        let Some(mut held) = self.epochs.remove(&epoch) else { return Vec::new() };
        let (mut passed, mut waiting) = (Vec::new(), HeldDatagrams::default());
        for item in held.datagrams.drain(..) {
            let decision = match item.data {
                Some((number, hash)) => decide(number, hash, item.until),
                None if waiting.datagrams.is_empty() => HoldDecision::Pass,
                None => HoldDecision::Wait,
            };
            match decision {
                HoldDecision::Pass => passed.push(item.datagram),
                HoldDecision::Discard => {}
                HoldDecision::Wait => {
                    waiting.cost += cost(&item.datagram);
                    waiting.datagrams.push_back(item);
                }
            }
        }
        self.total_cost -= held.cost - waiting.cost;
        if !waiting.datagrams.is_empty() {
            self.epochs.insert(epoch, waiting);
        }
        passed
    }

    /// Returns the time at which the next datagram has waited too long; `None` if none waits.
    pub(in crate::security) fn deadline(&self) -> Option<Instant> {
        self.epochs.values().filter_map(|held| held.datagrams.front()).map(|first| first.until).min()
    }
}

fn cost(datagram: &ArrivedDatagram) -> usize {
    DATAGRAM_COST + datagram.bytes.len()
}
