//! Messages that are published one after the other like the first of them: they are packed at once, and numbered, recorded
//! and delivered to local clients all together.

use super::Peer;
use crate::message::{ClientId, MessageRef, Verdict};
use crate::proto::delivery::Deliveries;
use crate::proto::effect::Effect;
use crate::proto::interest::MatchSet;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::ClockReading;
use crate::wire::{Run, entry};
use bytes::Bytes;
use std::sync::Arc;

/// Messages that were packed like the one before them and are to be numbered and recorded like it, all at once.
#[derive(Debug)]
pub(super) struct PublishBatch {
    /// When all of them are published.
    pub(super) now: ClockReading,
    /// The number and the offset of the first.
    pub(super) seq: Seq,
    pub(super) offset: u32,
    pub(super) count: u64,
    /// How many more there may be.
    pub(super) left: u64,
    /// Where the first stands in the open datagram.
    pub(super) at: usize,
    /// Who publishes all of them, if its own subscriptions do not get them.
    pub(super) except: Option<ClientId>,
    /// Who gets them here, and the one before them.
    pub(super) local: Option<LocalDelivery>,
}

/// Where the messages of a batch go within this peer.
#[derive(Debug)]
pub(super) struct LocalDelivery {
    matched: Arc<MatchSet>,
    subject: Subject,
    /// The number of the one before the batch, which is delivered with it.
    seq: Option<Seq>,
    /// Where that stands.
    at: usize,
}

impl PublishBatch {
    /// The message before the batch, and all that are in it, go to subscriptions of this peer too.
    pub(super) fn begin_local(&mut self, message: MessageRef<'_>, matched: Arc<MatchSet>, seq: Option<Seq>) {
        let at = self.at - entry::bytes_of(message);
        self.local = Some(LocalDelivery { matched, subject: message.subject.clone(), seq, at });
    }
}

impl Peer {
    /// Publishes with the message before, if that can be.
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

    /// Numbers, records and delivers what was published since the last message that went the slow way. To be called before
    /// it is looked at from outside; all inputs but messages to publish begin with it.
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

    /// Hands what a client of this peer has published to others of its clients.
    pub(super) fn deliver_local(&mut self, matched: &MatchSet, deliveries: Deliveries) {
        let messages = deliveries.len() as u64;
        self.counters.messages_local += messages;
        self.count_deliveries(matched, messages);
        self.effects.push_back(Effect::Deliver { to: matched.targets.clone(), deliveries });
    }
}
