//! Queue groups: one of all subscriptions on the LAN with the same group name and a matching subject gets the message.
//!
//! The publishing peer chooses the peer whose member gets it, and names it in a stamp before the headers. The chosen
//! peer chooses the member. A peer whose last member has left meanwhile returns the message to the publisher
//! (docs/listeners.md, "Queue groups").

use super::Peer;
use crate::delivery::Deliveries;
use crate::message::{
    Count, Delivery, DeliveryMode, Epoch, Headers, Message, MessageOrigin, Publisher, Queue, Targets, Verdict,
};
use crate::proto::effect::Effect;
use crate::proto::interest::MatchSet;
use crate::proto::members::Member;
use crate::proto::mutant::Mutant;
use crate::proto::run_batch::RunBatch;
use crate::proto::run_delivery::RunDelivery;
use crate::proto::stream_item::StreamItem;
use crate::rng::Rng;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::ClockReading;
use crate::wire::queue::{self, QueueStamp, STAMPS_MAX};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Members of a queue group whose subscriptions match a subject: the number here, and the number at each other peer.
#[derive(Debug)]
pub(super) struct QueueGroup {
    queue: Queue,
    own: u64,
    others: GroupPeers,
}

/// Other peers, and the number of members of each.
#[derive(Debug, Default)]
pub(super) struct GroupPeers(BTreeMap<Epoch, u64>);

impl GroupPeers {
    pub(super) fn add(&mut self, epoch: Epoch, members: u32) {
        *self.0.entry(epoch).or_default() += u64::from(members);
    }

    /// Chooses one of the `eligible` peers, weighted by their members. Returns `Some(None)` if the choice falls on one
    /// of the `own` members here, and `None` if there is no candidate.
    pub(super) fn choose(&self, own: u64, eligible: impl Fn(Epoch) -> bool, rng: &mut Rng) -> Option<Option<Epoch>> {
        let others = || self.0.iter().filter(|(epoch, _)| eligible(**epoch));
        let all = own + others().map(|(_, members)| members).sum::<u64>();
        if all == 0 {
            return None;
        }
        let mut at = rng.below(all);
        for (epoch, members) in others() {
            match at.checked_sub(*members) {
                Some(rest) => at = rest,
                None => return Some(Some(*epoch)),
            }
        }
        Some(None)
    }
}

/// Chosen recipients of a message, one for each queue group.
#[derive(Debug, Default)]
pub(super) struct QueueRecipients {
    /// Recipients at other peers.
    stamps: Vec<(Epoch, Queue)>,
    /// Recipients at this peer.
    own: Vec<Arc<MatchSet>>,
}

impl QueueRecipients {
    /// Returns the peers that the message is assigned to, once for each group.
    pub(super) fn peers(&self) -> impl Iterator<Item = Epoch> {
        self.stamps.iter().map(|(epoch, _)| *epoch)
    }

    /// Returns the headers to send: `headers` without lines that only peers may write, after the stamps. The second
    /// value has no stamps.
    pub(super) fn headers<'a>(&self, headers: &'a [u8]) -> (Cow<'a, [u8]>, Cow<'a, [u8]>) {
        let own = if headers.is_empty() { headers.into() } else { queue::without_field(headers) };
        if self.stamps.is_empty() {
            return (own.clone(), own);
        }
        let stamps: Vec<(Epoch, &Queue)> = self.stamps.iter().map(|(epoch, queue)| (*epoch, queue)).collect();
        (queue::stamped(&stamps, None, &own).into(), own)
    }
}

impl Peer {
    /// Returns the queue groups that match a subject; `None` if there are none.
    pub(super) fn groups_of(&mut self, subject: &Subject, local: Option<&MatchSet>) -> Option<Arc<[QueueGroup]>> {
        if !self.remote_interest.has_queues() && local.is_none_or(|local| !local.has_queues()) {
            return None;
        }
        let mut groups: BTreeMap<Queue, (u64, GroupPeers)> = BTreeMap::new();
        for (queue, members) in local.into_iter().flat_map(MatchSet::queues) {
            groups.entry(queue.clone()).or_default().0 = members as u64;
        }
        self.remote_interest.visit(subject, |entry| {
            if let Some(queue) = &entry.wanted.queue {
                groups.entry(queue.clone()).or_default().1.add(entry.epoch, entry.count);
            }
        });
        let groups: Vec<QueueGroup> =
            groups.into_iter().map(|(queue, (own, others))| QueueGroup { queue, own, others }).collect();
        (!groups.is_empty()).then(|| groups.into())
    }

    /// Chooses a member of each group for a message. If the message goes to `only` alone, other remote peers are not
    /// eligible.
    pub(super) fn choose_recipients(
        &mut self,
        groups: &[QueueGroup],
        local: Option<&Arc<MatchSet>>,
        only: Option<Epoch>,
    ) -> QueueRecipients {
        let mut recipients = QueueRecipients::default();
        let beyond = groups.len().saturating_sub(STAMPS_MAX);
        self.counters.queue_unserved += beyond as u64;
        for QueueGroup { queue, own, others } in groups.iter().take(STAMPS_MAX) {
            let members = &self.members;
            let accepts_unreachable = self.settings.mutants.is(Mutant::QueueUnreachable);
            let eligible = |epoch| {
                let member: Option<&Member> = members.get(&epoch).filter(|_| only.is_none_or(|only| only == epoch));
                member.is_some_and(|member| member.is_reachable() || accepts_unreachable && member.is_alive())
            };
            match others.choose(*own, eligible, &mut self.rng) {
                Some(Some(epoch)) => recipients.stamps.push((epoch, queue.clone())),
                Some(None) => {
                    let name: &[u8] = queue.as_str().as_bytes();
                    recipients.own.extend(local.and_then(|local| local.member(name, &mut self.rng)));
                }
                None => self.counters.queue_unserved += 1,
            }
        }
        recipients
    }

    /// Delivers a message that a client of this peer published to the chosen members of this peer. Without one, an
    /// effect says that members at other peers get it.
    pub(super) fn deliver_own_assignments(
        &mut self,
        recipients: &QueueRecipients,
        numbered: Option<(Seq, u32)>,
        message: &Message,
    ) {
        for member in &recipients.own {
            self.deliver_local(member, self.own_delivery(message.clone(), numbered).into());
        }
        if recipients.own.is_empty() && !recipients.stamps.is_empty() && !message.headers.is_empty() {
            let delivery = self.own_delivery(message.clone(), numbered);
            self.effects.push_back(Effect::AssignedElsewhere(delivery));
        }
    }

    /// Delivers messages of another peer to plain subscriptions and to the chosen members. Returns the number of
    /// messages that at least one subscription got.
    pub(super) fn deliver_with_queues(
        &mut self,
        now: ClockReading,
        from: Epoch,
        mode: DeliveryMode,
        matched: &Arc<MatchSet>,
        deliveries: Deliveries,
    ) -> u64 {
        let plain = matched.plain().cloned();
        if self.settings.mutants.is(Mutant::QueueOfReceiver) {
            for mut delivery in deliveries.clone() {
                delivery.message.headers = queue::unstamped(&delivery.message.headers);
                for (queue, _) in matched.queues() {
                    let member = matched.member(queue.as_str().as_bytes(), &mut self.rng);
                    member.into_iter().for_each(|member| self.deliver_remote(&member, delivery.clone().into()));
                }
            }
        }
        if !deliveries.is_stamped() {
            let Some(plain) = plain else {
                // A member at the publisher's peer gets them.
                if matched.queues().next().is_some() {
                    self.note_assigned_elsewhere(deliveries);
                }
                return 0;
            };
            self.deliver_remote(&plain, deliveries.clone());
            return deliveries.len() as u64;
        }
        let (mut unassigned, mut assignments) = (Vec::new(), Vec::new());
        for mut delivery in deliveries.clone() {
            let block = std::mem::take(&mut delivery.message.headers);
            delivery.message.headers = queue::unstamped(&block);
            let directed = delivery.verdict == Verdict::Direct;
            let is_redirected = directed && queue::stamps(block.block()).any(|stamp| stamp.publisher.is_some());
            if !is_redirected {
                unassigned.push(delivery.message.clone());
            }
            assignments.push((block, delivery));
        }
        let unassigned = deliveries.with_messages(unassigned);
        let mut messages = 0;
        if let (Some(plain), Some(unassigned)) = (&plain, unassigned) {
            messages = unassigned.len() as u64;
            self.deliver_remote(plain, unassigned);
        }
        // Members of queue groups are in mode repair.
        if mode == DeliveryMode::Repair && !self.settings.mutants.is(Mutant::QueueOfReceiver) {
            for (block, delivery) in assignments {
                let is_delivered = self.deliver_assignment(now, from, matched, &block, delivery.clone());
                messages += u64::from(is_delivered && plain.is_none());
                if !is_delivered && plain.is_none() {
                    self.note_assigned_elsewhere(delivery.into());
                }
            }
        }
        messages
    }

    /// Lets the shell know of messages with header fields that members of queue groups at another peer get.
    fn note_assigned_elsewhere(&mut self, deliveries: Deliveries) {
        let with_fields = deliveries.filter(|delivery| !delivery.message.headers.is_empty());
        with_fields.for_each(|delivery| self.effects.push_back(Effect::AssignedElsewhere(delivery)));
    }

    /// Delivers a message of another peer to the members here that its stamps name. Returns whether there was one.
    fn deliver_assignment(
        &mut self,
        now: ClockReading,
        from: Epoch,
        matched: &MatchSet,
        stamps: &Headers,
        mut delivery: Delivery,
    ) -> bool {
        let mut is_delivered = false;
        let directed = delivery.verdict == Verdict::Direct;
        // The accounting of losses owes members only their own messages.
        if let Verdict::Skip(count) = delivery.verdict {
            delivery.verdict = Verdict::Skip(Count::from_bounds(0, count.max()));
        }
        for stamp in self.own_stamps(stamps, directed) {
            if stamp.publisher == Some(self.origin.epoch) {
                self.reassign(now, from, delivery.message.clone(), &stamp);
                continue;
            }
            match matched.member(stamp.name, &mut self.rng) {
                Some(member) => {
                    self.count_served(from, directed);
                    let mut delivery = delivery.clone();
                    if let Some(epoch) = stamp.publisher {
                        // Another member has sent it on, and says whose it is.
                        delivery.publisher = self.publisher_of(epoch);
                        delivery.origin = delivery.origin.map(|_| MessageOrigin::Group);
                    }
                    self.deliver_remote(&member, delivery.into());
                    is_delivered = true;
                }
                None => self.return_assignment(now, from, &delivery.message, &stamp, directed),
            }
        }
        is_delivered
    }

    /// Handles messages without subscriptions here, some of which are assigned to departed members of queue groups
    /// here.
    pub(super) fn on_unserved(&mut self, now: ClockReading, from: Epoch, item: StreamItem, directed: bool) {
        item.for_each(|mut message| {
            let block = std::mem::take(&mut message.headers);
            message.headers = queue::unstamped(&block);
            for stamp in self.own_stamps(&block, directed) {
                match stamp.publisher == Some(self.origin.epoch) {
                    true => self.reassign(now, from, message.clone(), &stamp),
                    false => self.return_assignment(now, from, &message, &stamp, directed),
                }
            }
        });
    }

    /// Returns the stamps that name this peer, one for each group.
    pub(super) fn own_stamps<'a>(&self, headers: &'a Headers, directed: bool) -> Vec<QueueStamp<'a>> {
        let mut own: Vec<QueueStamp<'a>> = Vec::new();
        for stamp in queue::stamps(headers.block()) {
            // A message that another peer returned or reassigned goes to one peer alone.
            let is_ours = stamp.epoch == self.origin.epoch && (directed || stamp.publisher.is_none());
            if is_ours && own.iter().all(|other| other.name != stamp.name) {
                own.push(stamp);
            }
        }
        own
    }

    /// Delivers messages of other peers.
    #[inline]
    pub(super) fn deliver_remote(&mut self, to: &MatchSet, deliveries: Deliveries) {
        let messages = deliveries.len() as u64;
        self.effects.push_back(Effect::Deliver { to: to.targets.clone(), deliveries });
        self.counters.messages_delivered += messages;
        self.count_deliveries(to, messages);
    }

    /// Delivers runs of a datagram of another peer together.
    pub(super) fn deliver_runs(&mut self, publisher: &Publisher, items: Vec<StreamItem>, runs: Vec<RunDelivery>) {
        let origin = self.origin_of(publisher.epoch, false);
        let batch = RunBatch::new(items, runs, publisher.clone(), origin);
        self.counters.messages_delivered += batch.messages() as u64;
        batch.for_each_match(|matched, messages| self.count_deliveries(matched, messages));
        self.effects.push_runs(batch);
    }

    /// Returns the local subscriptions that get a message of this peer itself on a subject, with one member of each
    /// queue group. `None` if there are none.
    pub fn targets(&mut self, subject: &Subject) -> Option<Targets> {
        let matched = self.interest.matches_any(subject)?;
        if !matched.has_queues() {
            return Some(matched.targets.clone());
        }
        let members: Vec<Arc<MatchSet>> = matched
            .queues()
            .filter_map(|(queue, _)| matched.member(queue.as_str().as_bytes(), &mut self.rng))
            .collect();
        let mut targets: Vec<_> =
            matched.plain().into_iter().chain(&members).flat_map(|part| part.targets.iter().copied()).collect();
        targets.sort_unstable();
        Some(targets.into())
    }
}
