//! Batches of consecutive messages like the first: they are packed at once. The peer numbers, records and delivers them
//! to local clients together.

use super::Peer;
use crate::delivery::Deliveries;
use crate::message::{ClientId, MessageRef, Verdict};
use crate::proto::effect::Effect;
use crate::proto::interest::MatchSet;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::ClockReading;
use crate::wire::{Run, entry};
use bytes::Bytes;
use std::sync::Arc;

/// Messages packed like the one before them, to be numbered and recorded together.
#[derive(Debug)]
pub(super) struct PublishBatch {
    /// Publish time of all of them.
    pub(super) now: ClockReading,
    /// Sequence number and offset of the first.
    pub(super) seq: Seq,
    pub(super) offset: u32,
    pub(super) count: u64,
    /// Number of messages that still fit.
    pub(super) left: u64,
    /// Position of the first in the open datagram.
    pub(super) at: usize,
    /// Publishing client, if its own subscriptions do not get its messages.
    pub(super) except: Option<ClientId>,
    /// Local delivery of the batch and of the message before it.
    pub(super) local: Option<LocalDelivery>,
}

/// Local subscriptions that get the messages of a batch.
#[derive(Debug)]
pub(super) struct LocalDelivery {
    matched: Arc<MatchSet>,
    subject: Subject,
    /// Sequence number of the message before the batch, which is delivered with it.
    seq: Option<Seq>,
    /// Position of that message in the open datagram.
    at: usize,
}

impl PublishBatch {
    /// Begins local delivery of the message before the batch and of all messages in it.
    pub(super) fn begin_local(&mut self, message: MessageRef<'_>, matched: Arc<MatchSet>, seq: Option<Seq>) {
        let at = self.at - entry::bytes_of(message);
        self.local = Some(LocalDelivery { matched, subject: message.subject.clone(), seq, at });
    }
}

impl Peer {
    /// Adds a message to the current batch, if possible. Returns whether it did.
    #[inline]
    pub(super) fn extend(&mut self, now: ClockReading, client: ClientId, subject: &Subject, payload: &[u8]) -> bool {
        if self.batch.as_ref().is_none_or(|batch| batch.except != self.except(client)) {
            return false;
        }
        let Some(batch) = &mut self.batch else { return false };
        let fits = batch.left != 0
            && batch.now == now
            && self.subject_runs.continues_run(subject)
            && payload.len() <= self.settings.message_bytes_max
            && self.multicast.extend(payload);
        if fits {
            batch.left -= 1;
            batch.count += 1;
            self.counters.messages_published += 1;
        }
        fits
    }

    /// Numbers, records and delivers the batch of messages published since the last separate one. The caller calls it
    /// before inspecting the peer; every input other than a publish request begins with it.
    pub fn settle(&mut self) {
        let Some(PublishBatch { now, seq, offset, count, at, local, .. }) = self.batch.take() else { return };
        // Modulo 2^32, as is the count that is cut here.
        let first_of_frame = Some(offset.wrapping_sub((seq.count() - 1) as u32));
        if let (1.., Some(key)) = (count, self.subject_runs.key()) {
            self.pub_window.advance(key, count);
            self.history.record_run(key, now, seq, offset, count as usize, self.multicast.entries(at));
        }
        if let Some(LocalDelivery { matched, subject, seq, at }) = local {
            let entries = Bytes::copy_from_slice(self.multicast.entries(at));
            let run = Run::of_packed(subject, seq, count as u16 + 1, entries);
            let deliveries = Deliveries::of_run(run, self.own_publisher(), Verdict::Direct, false);
            self.deliver_local(&matched, deliveries.with_offset(first_of_frame));
        }
    }

    /// Delivers messages that a client of this peer published to the local subscriptions.
    pub(super) fn deliver_local(&mut self, matched: &MatchSet, deliveries: Deliveries) {
        let messages = deliveries.len() as u64;
        self.counters.messages_local += messages;
        self.count_deliveries(matched, messages);
        self.effects.push_back(Effect::Deliver { to: matched.targets.clone(), deliveries });
    }
}
