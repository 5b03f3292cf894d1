//! Batches of consecutive messages with the same subject and route. Each is packed when it is published. The peer
//! numbers and records them together, and delivers them to local clients together.

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
    /// Publish time of all messages.
    pub(super) now: ClockReading,
    /// Sequence number and offset of the first message.
    pub(super) seq: Seq,
    pub(super) offset: u32,
    pub(super) count: u64,
    /// Number of messages that the frame of the subject can still number.
    pub(super) left: u64,
    /// Location of the first message in the open datagram.
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
    /// Location of that message in the open datagram.
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
        let fits = payload.len() <= self.settings.message_bytes_max
            && self.publication.extend(now, client, subject, payload, &mut self.outbound.multicast);
        if fits {
            self.counters.messages_published += 1;
        }
        fits
    }

    /// Numbers, records and delivers the batch of messages published since the last separate one. The caller calls it
    /// before inspecting the peer; every input other than a publish request begins with it.
    pub fn settle(&mut self) {
        let stream = &self.outbound.multicast;
        let Some(PublishBatch { offset, seq, count, local, .. }) = self.publication.end_batch(stream) else { return };
        let Some(LocalDelivery { matched, subject, seq: before, at }) = local else { return };
        let entries = Bytes::copy_from_slice(stream.entries(at));
        let run = Run::of_packed(subject, before, count as u16 + 1, entries);
        let mut deliveries = Deliveries::of_run(run, self.own_publisher(), Verdict::Direct, false);
        deliveries.set_origin(self.own_origin());
        // Modulo 2^32, as is the count that is cut here.
        let first_of_frame = Some(offset.wrapping_sub((seq.count() - 1) as u32));
        deliveries.set_offset(first_of_frame);
        self.deliver_local(&matched, deliveries);
    }

    /// Returns whether messages of a client that have only a subject and a payload of at most `bytes_max` bytes go to
    /// subscriptions of this host alone, so that [`Peer::publish_suppressed`] publishes them. That is known once a
    /// message was published on the subject.
    pub fn suppresses(&mut self, now: ClockReading, client: ClientId, subject: &Subject, bytes_max: usize) -> bool {
        let route = &self.publication.route;
        let is_local = !route.is_wanted && route.groups.is_none() && route.owner.is_none();
        is_local
            && bytes_max <= self.settings.message_bytes_max
            && self.publication.batch.is_none()
            && self.stop.is_none()
            && self.publication.runs.continues_run(subject)
            && self.publication.route.changes == self.interest_changes()
            && self.publication.route.except == self.publication.except(client)
            && self.host_permissions().publish.permits(subject)
            && self.is_certain(now)
    }

    /// Publishes a run of messages without numbers for which [`Peer::suppresses`] holds: no other peer gets them.
    pub fn publish_suppressed(&mut self, run: Run) {
        let messages = u64::from(run.count);
        self.counters.messages_published += messages;
        self.counters.messages_suppressed += messages;
        let Some(matched) = self.publication.route.local.clone() else { return };
        let mut deliveries = Deliveries::of_run(run, self.own_publisher(), Verdict::Direct, false);
        deliveries.set_origin(self.own_origin());
        self.deliver_local(&matched, deliveries);
    }

    /// Delivers messages that a client of this peer published to the local subscriptions.
    pub(super) fn deliver_local(&mut self, matched: &MatchSet, deliveries: Deliveries) {
        let messages = deliveries.len() as u64;
        self.counters.messages_local += messages;
        self.count_deliveries(matched, messages);
        self.effects.push_back(Effect::Deliver { to: matched.targets.clone(), deliveries });
    }
}
