//! The exact accounting of queue groups: every assignment is served, goes to another member, or is counted and reported
//! (docs/wire.md 10.8).

use super::Peer;
use crate::message::{Dseq, Epoch, Message, MessageRef, MissingDatagrams, Publisher, Queue};
use crate::proto::members::{LAST_REPORT_TIME, Member, Side};
use crate::proto::mutant::Mutant;
use crate::proto::queue_ledger::{self, Assignments};
use crate::proto::stats::MemberState;
use crate::time::ClockReading;
use crate::wire::queue::{self, QueueStamp};
use crate::wire::{PeerAnnouncement, QueueReport};

/// Returns the index of a stream in pairs of counts: the multicast stream first.
fn index_of(is_directed: bool) -> usize {
    usize::from(is_directed)
}

impl Peer {
    /// Counts the assignments of a message that was just sent to the group, or to one peer alone.
    pub(super) fn count_assignments(&mut self, to: impl Iterator<Item = Epoch>, is_directed: bool) {
        let multicast = self.outbound.last();
        for epoch in to {
            let Some(member) = self.members.get_mut(&epoch) else { continue };
            let Dseq(high) = member.directed.high();
            let dseq = if is_directed { Dseq(high + u64::from(member.directed.is_open())) } else { multicast };
            member.assigned[index_of(is_directed)].assign(dseq);
        }
    }

    /// Counts an assignment by `from` that a member here received.
    pub(super) fn count_served(&mut self, from: Epoch, is_directed: bool) {
        if let Some(member) = self.members.get_mut(&from) {
            member.shares[index_of(is_directed)].on_served();
        }
    }

    /// Records the settled datagrams of a stream for the next report to its sender.
    pub(super) fn record_settled(&mut self, epoch: Epoch, side: Side) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        match side {
            Side::Bcast => member.shares[0].note(member.bcast.ledger()),
            Side::Ptp => member.shares[1].note(member.ptp.ledger()),
            Side::Live => {}
        }
    }

    /// Returns the report to a member, if clients here were ever members of queue groups.
    pub(super) fn queue_report(&self, member: &Member) -> Option<Box<QueueReport>> {
        let is_mute = self.settings.mutants.is(Mutant::QueueUnreported);
        (self.interest.has_had_queues() && !is_mute).then(|| Box::new(queue_ledger::report(&member.shares)))
    }

    /// Handles a member's report on the messages that were assigned to it.
    pub(super) fn on_queue_report(&mut self, epoch: Epoch, announce: &PeerAnnouncement) {
        let Some(report) = &announce.queue else { return };
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let [multicast, directed] = &mut member.assigned;
        let (multicast, directed) = (multicast.on_report(report.multicast), directed.on_report(report.directed));
        // The report on the directed stream counts those that were lost there.
        member.throttles[2].on_report(multicast, multicast, 0, MissingDatagrams::default(), false);
        self.counters.queue_lost += multicast + directed;
    }

    /// Stops waiting for a member's report: assignments that it did not confirm may be unserved.
    pub(super) fn expire_assignments(&mut self, epoch: Epoch) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let uncertain: u64 = member.assigned.iter_mut().map(Assignments::abandon).sum();
        member.throttles[2].on_report(0, uncertain, 0, MissingDatagrams::default(), false);
        self.counters.queue_uncertain += uncertain;
    }

    /// Stops waiting for the report of a member that has sent BYE, once its last report had the time to arrive.
    pub(super) fn expire_departed_assignments(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let is_due = member.ended.is_some_and(|ended| ended + LAST_REPORT_TIME <= now.instant);
        if member.state == MemberState::Left && is_due {
            self.expire_assignments(epoch);
        }
    }

    /// Returns a message to its publisher after the last member of the group here has left. The publisher assigns it to
    /// another member.
    pub(super) fn return_assignment(
        &mut self,
        now: ClockReading,
        from: Epoch,
        message: &Message,
        stamp: &QueueStamp<'_>,
        is_directed: bool,
    ) {
        let queue = std::str::from_utf8(stamp.name).ok().and_then(|name| name.parse::<Queue>().ok());
        let may_send = self.stop.is_none() && !self.settings.mutants.is(Mutant::QueueMessageDropped);
        // Rule: proof
        let member =
            self.members.get_mut(&from).filter(|member| may_send && member.proof.is_proven && member.is_alive());
        let (Some(queue), Some(member)) = (queue, member) else { return };
        member.shares[index_of(is_directed)].on_returned();
        self.counters.queue_returned += 1;
        let headers = queue::stamped(&[(from, &queue)], Some(from), message.headers.block());
        self.outbound.record_opened(now.instant);
        self.send_to(now, from, MessageRef { headers: &headers, ..message.into() });
    }

    /// Reassigns a message that another peer returned to another member, here or elsewhere.
    pub(super) fn reassign(&mut self, now: ClockReading, from: Epoch, message: Message, stamp: &QueueStamp<'_>) {
        let queue = std::str::from_utf8(stamp.name).ok().and_then(|name| name.parse::<Queue>().ok());
        let (Some(queue), Some(member)) = (queue, self.members.get_mut(&from)) else { return };
        if !member.assigned.iter_mut().any(Assignments::on_returned) {
            self.counters.discard_contradiction += 1;
            return;
        }
        member.refusals.insert(now.instant, queue.clone());
        let local = self.local_matches(&message.subject, None);
        let own = local.iter().flat_map(|local| local.queues()).find(|(name, _)| **name == queue);
        let own = own.map_or(0, |(_, members)| members as u64);
        let mut others = super::queue::GroupPeers::default();
        self.remote_interest.visit_reachable(&message.subject, |entry| {
            if entry.wanted.queue.as_ref() == Some(&queue) {
                others.add(entry.epoch, entry.count);
            }
        });
        let members = &self.members;
        let eligible = |epoch| {
            members.get(&epoch).is_some_and(|member| {
                member.proof.is_proven && member.is_reachable() && !member.refusals.has(now.instant, &queue)
            })
        };
        match others.choose(own, eligible, &mut self.rng) {
            None => self.counters.queue_unserved += 1,
            Some(None) => {
                let member = local.and_then(|local| local.member(queue.as_str().as_bytes(), &mut self.rng));
                let delivery = self.own_delivery(message, None);
                member.into_iter().for_each(|member| self.deliver_local(&member, delivery.clone().into()));
            }
            Some(Some(to)) => {
                let headers = queue::stamped(&[(to, &queue)], Some(self.origin.epoch), message.headers.block());
                self.outbound.record_opened(now.instant);
                self.send_to(now, to, MessageRef { headers: &headers, ..(&message).into() });
                self.count_assignments([to].into_iter(), true);
            }
        }
    }

    /// Returns the publisher of a message that another peer has redirected; only the epoch if the publisher is unknown
    /// here.
    pub(super) fn publisher_of(&self, epoch: Epoch) -> Publisher {
        match self.members.get(&epoch) {
            _ if epoch == self.origin.epoch => self.own_publisher(),
            Some(member) => member.publisher.clone(),
            None => Publisher { name: None, epoch, uid: 0 },
        }
    }

    /// Expires the assignments to all members: this peer begins a new epoch with new streams.
    pub(super) fn expire_all_assignments(&mut self) {
        self.members.epochs().to_vec().into_iter().for_each(|epoch| self.expire_assignments(epoch));
    }
}
