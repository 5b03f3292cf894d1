//! Conversion of the outcomes of streams to effects: deliveries, losses, advisories.

use super::Peer;
use super::permissions::is_denied;
use super::questions::RepairFetch;
use crate::message::{
    Cause, Count, DeliveryMode, Epoch, Loss, LossScope, MissingDatagrams, PeerName, Publisher, Reason, Targets, Verdict,
};
use crate::proto::contact::Contact;
use crate::proto::effect::{Effect, MemberEvent};
use crate::proto::interest::MatchSet;
use crate::proto::ledger::SettledRange;
use crate::proto::members::{Member, Side};
use crate::proto::mutant::Mutant;
use crate::proto::recv::{ReceiveContext, RecvStream, StreamOutcome};
use crate::proto::stats::MemberState;
use crate::proto::stream_item::StreamItem;
use crate::subject::Subject;
use crate::time::ClockReading;

impl Peer {
    /// Runs `work` on a stream and turns its outcomes into effects.
    pub(super) fn with_stream<T>(
        &mut self,
        now: ClockReading,
        epoch: Epoch,
        side: Side,
        work: impl FnOnce(&mut RecvStream, &mut ReceiveContext<'_>, &mut Vec<StreamOutcome>) -> T,
    ) -> Option<T> {
        let receivers = self.members.len();
        let member = self.members.get_mut(&epoch)?;
        let recent = member.recent(now.instant);
        let (state, publisher) = (member.state, member.publisher.clone());
        let publish = member.certificate.certified.publish.clone();
        // The deadline of a gap that is not requested runs even while the publisher is silent.
        let is_repaired = self.settings.repairs() && side != Side::Live;
        let settled_to = if is_repaired { now.instant.min(member.awaited_until()) } else { now.instant };
        let is_awaited = match side {
            Side::Live => self.settings.mutants.is(Mutant::LiveWaits),
            _ => is_repaired && !self.settings.mutants.is(Mutant::GiveUpSoon),
        };
        let (recv, uid, losses) = member.side(side)?;
        // Kernel drops explain the gaps of both sides, which see the same datagrams.
        let mut overrun = self.inbound.overrun;
        let mut outcomes = std::mem::take(&mut self.inbound.outcomes);
        let mut ctx = ReceiveContext {
            now,
            uid,
            window: &mut self.inbound.window,
            lookup: None,
            lists: &mut self.inbound.lists,
            interest: &mut self.interest,
            mode: side.mode(),
            inbox: &self.inbox,
            own: self.origin.epoch,
            permits_all: publish.is_all(),
            counters: &mut self.counters,
            losses,
            arrived: self.inbound.arrived,
            deadline: now.instant + if is_awaited { self.settings.reliability } else { self.settings.recovery.grace },
            settled_to,
            reason: match state {
                _ if !is_repaired => Reason::Disabled,
                MemberState::Left => Reason::PublisherGone,
                MemberState::Crashed => Reason::Crashed,
                _ => Reason::Deadline,
            },
            receivers,
            overrun: if side == Side::Live { &mut overrun } else { &mut self.inbound.overrun },
            recent,
            frame_messages_max: self.settings.frame_messages_max,
            mutants: self.settings.mutants,
        };
        let result = work(recv, &mut ctx, &mut outcomes);
        check_stream(&publisher, side, recv);
        for outcome in outcomes.drain(..) {
            match is_denied(&publish, &outcome) {
                false => self.on_outcome(now, side.mode(), &publisher, outcome),
                true => self.on_denied(now, side.mode(), &publisher, outcome),
            }
        }
        self.inbound.outcomes = outcomes;
        self.record_settled(epoch, side);
        Some(result)
    }

    /// Turns an outcome into effects. It is inlined because an item would otherwise be moved once more.
    #[inline]
    pub(super) fn on_outcome(
        &mut self,
        now: ClockReading,
        mode: DeliveryMode,
        publisher: &Publisher,
        outcome: StreamOutcome,
    ) {
        if let Some(reason) = reason_of(&outcome)
            && let Some(member) = self.members.get_mut(&publisher.epoch)
        {
            member.losses.on_reported(reason);
        }
        match outcome {
            StreamOutcome::Deliver { item, repeated, repaired, verdict, offset, matched } => {
                let publisher = publisher.clone();
                let epoch = publisher.epoch;
                let is_directed = verdict == Verdict::Direct || matches!(item, StreamItem::FetchedMessages(_));
                let Some(mut deliveries) = item.into_deliveries(repeated, publisher, verdict, repaired) else {
                    return;
                };
                deliveries.set_offset(offset);
                deliveries.set_origin(self.origin_of(epoch, is_directed));
                let mut messages = deliveries.len() as u64;
                match matched.has_queues() || deliveries.is_stamped() {
                    true => messages = self.deliver_with_queues(now, epoch, mode, &matched, deliveries),
                    false => self.deliver_remote(&matched, deliveries),
                }
                if repaired
                    && 0 < messages
                    && let Some(member) = self.members.get_mut(&epoch)
                {
                    let times = if self.settings.mutants.is(Mutant::RepairedTwice) { 2 } else { 1 };
                    member.losses.repaired.add(messages * times, now.wall);
                }
            }
            StreamOutcome::DeliverRuns { items, runs } => self.deliver_runs(publisher, items, runs),
            StreamOutcome::Unserved { item, directed } => self.on_unserved(now, publisher.epoch, item, directed),
            StreamOutcome::Lost { subject, first, last, count, since, matched, reason, missing } => {
                if let Some(member) = self.members.get_mut(&publisher.epoch) {
                    let named = self.settings.advisory_subjects_max;
                    member.throttles[0].on_lost(&subject, count, reason, &missing, named);
                }
                let all = missing.into_iter().fold(MissingDatagrams::default(), |sum, (_, one)| sum.plus(one));
                let (cause, owed) = (all.cause(), matched.split(since));
                for (to, count) in [(owed.0, count), (owed.1, Count::from_bounds(0, count.max()))] {
                    let what = LossScope::Messages { subject: subject.clone(), first, last, count };
                    self.report(to, Loss { publisher: publisher.clone(), what, reason, cause, at: now.wall });
                }
            }
            StreamOutcome::Unverified { range, messages } => {
                self.report_unverified(now, mode, publisher, &range, messages);
            }
            StreamOutcome::Service(message) => self.on_service(now, publisher.epoch, message),
            StreamOutcome::Fetch { dseq, subject, first, last } => {
                self.questions.fetches.push(RepairFetch { epoch: publisher.epoch, dseq, subject, first, last });
            }
            StreamOutcome::InboxLost { messages, reason, missing } => {
                if let Some(member) = self.members.get_mut(&publisher.epoch) {
                    member.throttles[1].on_inbox(messages, reason, missing);
                }
                let (what, cause) = (LossScope::Inbox { messages }, missing.cause());
                let to = self.interest.one_of_each_client();
                self.report(to, Loss { publisher: publisher.clone(), what, reason, cause, at: now.wall });
            }
        }
    }

    /// Reports datagrams whose content is unknown to the subscriptions of a mode.
    fn report_unverified(
        &mut self,
        now: ClockReading,
        mode: DeliveryMode,
        publisher: &Publisher,
        range: &SettledRange,
        messages: Count,
    ) {
        if let Some(member) = self.members.get_mut(&publisher.epoch)
            && !self.interest.is_empty(mode)
        {
            member.throttles[0].on_unverified(range, messages);
        }
        let what = LossScope::Datagrams { first: range.first, last: range.last, messages };
        let (reason, cause) = (range.reason, range.missing().cause());
        let to = self.interest.one_per_client(mode);
        self.report(to, Loss { publisher: publisher.clone(), what, reason, cause, at: now.wall });
    }

    pub(super) fn count_deliveries(&mut self, to: &MatchSet, messages: u64) {
        self.counters.deliveries += to.targets.len() as u64 * messages;
        self.interest.count(to, messages);
    }

    pub(super) fn report(&mut self, to: Targets, loss: Loss) {
        if !to.is_empty() {
            self.effects.push_back(Effect::Report { to, loss });
        }
    }

    /// Reports the data that an epoch sent before its first contact as unverified to the subscriptions here.
    pub(super) fn report_before_contact(&mut self, now: ClockReading, epoch: Epoch, contact: Contact) {
        let range = SettledRange::before_contact(contact.below, contact.count);
        for side in [Side::Bcast, Side::Live] {
            self.with_stream(now, epoch, side, |_, ctx, out| {
                (ctx.losses.before_contact, ctx.losses.unverified_at) = (contact.count, Some(ctx.now.wall));
                out.push(StreamOutcome::Unverified { range, messages: Count::from_bounds(0, contact.count) });
            });
        }
    }

    pub(super) fn report_tail(&mut self, now: ClockReading, epoch: Epoch, reason: Reason) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        member.losses.on_reported(reason);
        let to = self.interest.one_of_each_client();
        if !to.is_empty() {
            member.throttles[0].on_tail(reason);
        }
        let loss = Loss {
            publisher: member.publisher.clone(),
            what: LossScope::Tail { after: member.bcast.ledger().high() },
            reason,
            cause: Cause::Network,
            at: now.wall,
        };
        self.report(to, loss);
    }

    pub(super) fn notify_member_event(&mut self, epoch: Epoch, event: MemberEvent) {
        if let Some(member) = self.members.get(&epoch) {
            self.effects.push_back(Effect::Member { publisher: member.publisher.clone(), event });
        }
    }

    /// Publishes the due advisories of one member or of all.
    pub(super) fn publish_advisories(&mut self, now: ClockReading, only: Option<Epoch>, flush: bool) {
        let (interval, scid) = (self.settings.advisory_interval, self.settings.group);
        let mut due = Vec::new();
        let mut take = |member: &mut Member| {
            for throttle in &mut member.throttles {
                if let Some(advisory) = throttle.take_due(now.instant, interval, flush, &member.publisher, scid) {
                    due.push(advisory);
                }
            }
        };
        match only {
            Some(epoch) => self.members.get_mut(&epoch).into_iter().for_each(&mut take),
            None if flush => self.members.values_mut().for_each(&mut take),
            None => {
                for epoch in self.due_members(now.instant) {
                    self.members.get_mut(&epoch).into_iter().for_each(&mut take);
                }
            }
        }
        for advisory in due {
            self.counters.advisories += 1;
            let subject: Subject = advisory.stream.subject().parse().expect("a constant that is a subject");
            let to = self.targets(&subject).unwrap_or_else(|| Targets::from([]));
            self.effects.push_back(Effect::Advise { to, advisory });
        }
    }
}

/// Checks a stream's ledger and reorder buffer after a change, at a constant cost.
///
/// # Panics
///
/// If a check fails, because wrong numbers must not be reported as if they were right.
#[inline]
pub(super) fn check_stream(publisher: &Publisher, side: Side, recv: &RecvStream) {
    if !recv.is_intact() {
        panic_broken_stream(publisher, side, recv);
    }
}

#[cold]
fn panic_broken_stream(publisher: &Publisher, side: Side, recv: &RecvStream) -> ! {
    let stream = match side {
        Side::Bcast => "multicast stream",
        Side::Live => "multicast stream, as subscriptions in mode live see it,",
        Side::Ptp => "directed stream",
    };
    let name = publisher.name.as_ref().map_or("a publisher without a name", PeerName::as_str);
    panic!(
        "the state of the {stream} of {name} (epoch {}) is wrong, so no number of it can be trusted: {}",
        publisher.epoch,
        recv.summary()
    )
}

/// Returns the reason of a loss or of unverified datagrams, for outcomes that have one.
fn reason_of(outcome: &StreamOutcome) -> Option<Reason> {
    match outcome {
        StreamOutcome::Lost { reason, .. } | StreamOutcome::InboxLost { reason, .. } => Some(*reason),
        StreamOutcome::Unverified { range, .. } => Some(range.reason),
        StreamOutcome::Deliver { .. }
        | StreamOutcome::DeliverRuns { .. }
        | StreamOutcome::Unserved { .. }
        | StreamOutcome::Fetch { .. }
        | StreamOutcome::Service(_) => None,
    }
}
