//! Permissions and names by the certificates of hosts: what this host's own programs may do, and messages of other peers on subjects
//! on which their certificates do not let them publish.
//!
//! Such a message of another peer is accounted for like any other: its datagram, its number, and its loss. It goes to no client.

use super::Peer;
use crate::message::{DeliveryMode, Epoch, MessageOrigin, Publisher, Verdict};
use crate::proto::certified::CertifiedPeer;
use crate::proto::effect::{DeniedPublication, Effect, MemberEvent};
use crate::proto::members::Member;
use crate::proto::question::{AnswerContent, Question};
use crate::proto::recv::StreamOutcome;
use crate::proto::stream_item::StreamItem;
use crate::subject::Subject;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::ClockReading;
use crate::wire::queue;

/// Returns whether an outcome has messages that their publisher may not publish.
#[inline]
pub(super) fn is_denied(publish: &PermittedSubjects, outcome: &StreamOutcome) -> bool {
    let (false, StreamOutcome::Deliver { item, .. } | StreamOutcome::Unserved { item, .. }) =
        (publish.is_all(), outcome)
    else {
        return false;
    };
    !publish.permits(item.subject())
}

impl Peer {
    /// Records the certificate of a peer that has proven its identity.
    pub(super) fn on_authenticated(&mut self, epoch: Epoch, certified: CertifiedPeer) {
        if let Some(member) = self.members.get_mut(&epoch) {
            member.certificate.certified = certified.clone();
        }
        let members = &self.members;
        let name = certified.name.clone();
        self.certified.insert(epoch, certified, |epoch| members.contains(epoch));
        let namesakes = self.members.values().filter(|member| member.publisher.name == name);
        let namesakes: Vec<Epoch> = namesakes.map(Member::epoch).collect();
        namesakes.into_iter().for_each(|namesake| self.check_announced_name(namesake));
    }

    /// Returns the proof of the publisher of what a member has sent: to the group, or to this peer alone.
    #[inline]
    pub(super) fn origin_of(&self, epoch: Epoch, is_directed: bool) -> Option<MessageOrigin> {
        if !self.certified.is_keyed() {
            return None;
        }
        let origin = match self.members.get(&epoch) {
            Some(member) => member.certificate.certified.origin?,
            // It has departed meanwhile.
            None => MessageOrigin::Group,
        };
        // Only the two peers have the keys of a directed datagram.
        Some(if is_directed { MessageOrigin::Publisher } else { origin })
    }

    /// Returns the proof of the publisher of this peer's own messages.
    pub(super) fn own_origin(&self) -> Option<MessageOrigin> {
        self.own_certificate.name.is_some().then_some(MessageOrigin::Publisher)
    }

    /// Checks whether a member announces the name in the certificate of another host, this one included. Peers inside of
    /// programs have names of their own, so any other name is in order.
    pub(super) fn check_announced_name(&mut self, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let (announced, own) = (&member.publisher.name, &member.certificate.certified.name);
        let is_foreign = own.is_some()
            && announced != own
            && (*announced == self.own_certificate.name
                || announced.as_ref().is_some_and(|name| self.certified.has_name(name)));
        let had_foreign_name = member.certificate.has_foreign_name;
        if is_foreign == had_foreign_name {
            return;
        }
        if let Some(member) = self.members.get_mut(&epoch) {
            member.certificate.has_foreign_name = is_foreign;
        }
        if is_foreign {
            self.counters.foreign_names += 1;
            self.notify_member_event(epoch, MemberEvent::ForeignName);
        }
    }

    /// Returns whether the certificate of this host lets its programs ask the question to a history.
    pub(super) fn may_ask(&self, question: &Question) -> bool {
        let subscribe = &self.host_permissions().subscribe;
        match question {
            Question::Poll(polls) => polls.iter().all(|poll| subscribe.permits(&poll.subject)),
            Question::Fetch(fetches) => fetches.iter().all(|fetch| subscribe.permits(&fetch.subject)),
            Question::List { pattern, .. } => subscribe.permits_pattern(pattern),
            Question::Report(_) => true,
        }
    }

    /// Handles an outcome with messages that their publisher may not publish ([`is_denied`]).
    pub(super) fn on_denied(
        &mut self,
        now: ClockReading,
        mode: DeliveryMode,
        publisher: &Publisher,
        outcome: StreamOutcome,
    ) {
        let from = publisher.epoch;
        let subject = match &outcome {
            StreamOutcome::Deliver { item, .. } | StreamOutcome::Unserved { item, .. } => item.subject().clone(),
            _ => return,
        };
        let denied = match outcome {
            StreamOutcome::Deliver { item, repeated, repaired, verdict, matched, .. } => {
                let has_plain = matched.plain().is_some();
                let denied = match mode {
                    DeliveryMode::Repair => self.deny(now, from, item, repeated, verdict == Verdict::Direct, has_plain),
                    // Members of queue groups are in mode repair.
                    DeliveryMode::Live => item.count() - repeated as u64,
                };
                if let Some(member) = self.members.get_mut(&from).filter(|_| repaired) {
                    member.losses.repaired.add(denied, now.wall);
                }
                denied
            }
            StreamOutcome::Unserved { item, directed } => self.deny(now, from, item, 0, directed, false),
            _ => 0,
        };
        self.count_denied(now, from, &subject, denied);
    }

    /// Handles all but the first `repeated` messages of an item. Returns the number of messages that a client here would
    /// have got; `has_plain` is true if a subscription that is in no queue group matches them.
    ///
    /// A message of this peer's own that the other returns is no publication of the other. A denied message for a member
    /// of a queue group here counts as served: it has arrived.
    fn deny(
        &mut self,
        now: ClockReading,
        from: Epoch,
        item: StreamItem,
        repeated: usize,
        directed: bool,
        has_plain: bool,
    ) -> u64 {
        let (mut index, mut denied) = (0, 0);
        item.for_each(|mut message| {
            index += 1;
            if index <= repeated {
                return;
            }
            let block = std::mem::take(&mut message.headers);
            message.headers = queue::unstamped(&block);
            let (mut is_returned, mut is_for_member) = (false, false);
            for stamp in self.own_stamps(&block, directed) {
                if stamp.publisher == Some(self.origin.epoch) {
                    is_returned = true;
                    self.reassign(now, from, message.clone(), &stamp);
                } else {
                    is_for_member = true;
                    self.count_served(from, directed);
                }
            }
            denied += u64::from(is_for_member || has_plain && !is_returned);
        });
        denied
    }

    /// Removes from the answer of a peer the messages and subjects that it may not publish.
    pub(super) fn remove_denied(&mut self, now: ClockReading, from: Epoch, content: &mut AnswerContent) {
        let Some(member) = self.members.get(&from) else { return };
        let publish = &member.certificate.certified.publish;
        if publish.is_all() {
            return;
        }
        if let Some((subject, messages)) = content.remove_denied(&publish.clone()) {
            self.count_denied(now, from, &subject, messages);
        }
    }

    /// Counts denied messages, and reports one of them at intervals.
    fn count_denied(&mut self, now: ClockReading, from: Epoch, subject: &Subject, messages: u64) {
        self.counters.messages_denied += messages;
        if 0 < messages
            && let Some(member) = self.members.get_mut(&from)
            && member.certificate.take_report(now.instant)
        {
            self.effects.push_back(Effect::Denied(DeniedPublication {
                publisher: member.publisher.clone(),
                member: member.certificate.certified.name.clone(),
                subject: subject.clone(),
            }));
        }
    }
}
