//! Exchange of subscriptions among peers: this peer announces those of its clients, requests missed ones and answers
//! requests.

use super::Peer;
use super::receive::DatagramSource;
use super::text_poll::is_text_poll;
use crate::message::{ClientId, Epoch, Queue, SubscriptionFilter};
use crate::proto::address_proof::HELLO_BYTES;
use crate::proto::interest::MatchSet;
use crate::proto::members::Member;
use crate::proto::mutant::Mutant;
use crate::proto::remote_interest::{RecordOutcome, RemoteEntry};
use crate::proto::stats::{MemberState, RemoteRow};
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, Instant};
use crate::wire::{Header, Interest, InterestRequest, PeerAnnouncement, Record};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of datagrams per span with changes for the whole group.
const ANNOUNCEMENTS_MAX: u32 = 16;
/// Duration of a span.
const ANNOUNCEMENT_SPAN: Duration = Duration::from_millis(10);
/// Maximum number of datagrams that answer one request.
const ANSWERS_MAX: usize = 32;
/// Interval between answer datagrams to one peer that are sent although the answer budget is spent. Repair alone must
/// not keep a peer's knowledge of the subscriptions here out of date.
const RESERVED_INTERVAL: Duration = Duration::from_millis(100);

/// Rate limit of the announcements of this peer's subscriptions.
#[derive(Debug)]
pub(super) struct InterestPacing {
    /// Start of the current span.
    began: Instant,
    /// Number of datagrams sent in it.
    datagrams: u32,
}

impl InterestPacing {
    pub(super) fn new(now: Instant) -> InterestPacing {
        InterestPacing { began: now, datagrams: 0 }
    }
}

/// Numbers of subscriptions that a message would reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Subscriptions in no queue group.
    pub plain: u64,
    /// Queue groups.
    pub groups: u64,
}

impl Peer {
    /// Handles the subscription part of an announcement.
    pub(super) fn on_interest_announcement(
        &mut self,
        now: ClockReading,
        header: &Header,
        announce: &PeerAnnouncement,
        is_for_this: bool,
    ) {
        let epoch = header.epoch;
        if !self.members.get(&epoch).is_some_and(Member::is_alive) {
            return;
        }
        self.on_present(epoch);
        if let Some(interest) = announce.interest {
            self.remote_interest.on_announcement(now.instant, epoch, interest.version);
        }
        self.on_interest_sync(now, epoch, announce.interest, announce.interest_known.filter(|_| is_for_this));
    }

    /// Handles a peer's advertised subscriptions.
    pub(super) fn on_interest_record(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        record: Interest,
    ) {
        let epoch = header.epoch;
        if self.member_at(source, header).is_none_or(|member| !member.is_alive()) {
            return;
        }
        let outcome = self.remote_interest.on_record(now.instant, epoch, source.from.ip(), record);
        let counter = match outcome {
            RecordOutcome::Applied => &mut self.counters.interest_applied,
            RecordOutcome::Stale => &mut self.counters.interest_stale,
            RecordOutcome::Gap => &mut self.counters.interest_gaps,
            RecordOutcome::Overflow => &mut self.counters.interest_overflow,
        };
        *counter += 1;
        if self.settings.suppresses && outcome == RecordOutcome::Applied {
            self.schedule_confirmation(now, epoch);
        }
    }

    /// Handles a peer's request for the subscriptions of this peer's clients.
    pub(super) fn on_interest_request(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        request: InterestRequest,
    ) {
        let own = self.origin.epoch;
        let Some(member) = self.member_at(source, header) else { return };
        if request.epoch != own {
            self.counters.discard_old_epoch += 1;
            return;
        }
        // Rule: proof
        if !member.proof.is_proven {
            self.counters.requests_unproven += 1;
            if HELLO_BYTES <= source.bytes {
                self.send_early_heartbeat(now, header.epoch);
            }
            return;
        }
        let address = member.address;
        let has_reserve = member.interest_answered.is_none_or(|at| at + RESERVED_INTERVAL <= now.instant);
        let room = Interest::room(self.settings.datagram_bytes_max);
        let starves = self.settings.mutants.is(Mutant::InterestStarves);
        let mut records = self.interest.local_interest().answer(&request, room, ANSWERS_MAX);
        if records.is_empty() {
            return;
        }
        let is_reserved = !self.outbound.resends.spend(now.instant, self.settings.datagram_bytes_max);
        match is_reserved {
            true if !has_reserve || starves => return,
            true => records.truncate(1),
            false => {}
        }
        if let Some(member) = self.members.get_mut(&header.epoch) {
            member.interest_answered = Some(now.instant);
        }
        for (index, record) in records.into_iter().enumerate() {
            if 0 < index && !self.outbound.resends.spend(now.instant, self.settings.datagram_bytes_max) {
                return;
            }
            self.counters.interest_answered += 1;
            self.control_to(now.instant, address, &Record::Interest(record), 0);
        }
    }

    /// Announces changes, and requests missing subscriptions.
    pub(super) fn on_interest_tick(&mut self, now: ClockReading) {
        if self.stop.is_some() {
            return;
        }
        self.announce_interest(now);
        let members = &self.members;
        let is_up = |epoch: Epoch| members.get(&epoch).is_some_and(|member| member.state == MemberState::Up);
        let requests: Vec<InterestRequest> =
            std::iter::from_fn(|| self.remote_interest.poll_request(now.instant, is_up)).collect();
        for request in requests {
            if !self.may_send_to(request.epoch) {
                continue;
            }
            let Some(member) = self.members.get(&request.epoch) else { continue };
            let (address, padding) = (member.address, member.proof.padding());
            self.counters.interest_requested += 1;
            self.control_to(now.instant, address, &Record::InterestRequest(request), padding);
        }
    }

    /// Announces changes of this peer's subscriptions, while there is a peer to receive them.
    fn announce_interest(&mut self, now: ClockReading) {
        if !self.has_unsent_interest() {
            return;
        }
        if self.interest_pacing.began + ANNOUNCEMENT_SPAN <= now.instant {
            (self.interest_pacing.began, self.interest_pacing.datagrams) = (now.instant, 0);
        }
        let room = Interest::room(self.settings.datagram_bytes_max);
        while self.interest_pacing.datagrams < ANNOUNCEMENTS_MAX
            && let Some(record) = self.interest.local_interest().poll_changes(room)
        {
            self.interest_pacing.datagrams += 1;
            self.counters.interest_sent += 1;
            let (_, count) = self.outbound.sent();
            let datagram =
                self.announcements.control.datagram(now.instant, &self.origin, count, &Record::Interest(record), 0);
            self.send(None, datagram);
        }
    }

    fn has_unsent_interest(&self) -> bool {
        self.interest.has_changes() && self.members.values().any(Member::is_alive)
    }

    /// Returns the time of the next interest tick.
    pub(super) fn interest_deadline(&self) -> Option<Instant> {
        let is_full = ANNOUNCEMENTS_MAX <= self.interest_pacing.datagrams;
        let unsent = self.has_unsent_interest().then(|| match is_full {
            true => self.interest_pacing.began + ANNOUNCEMENT_SPAN,
            false => self.interest_pacing.began,
        });
        let is_up = |epoch: Epoch| self.members.get(&epoch).is_some_and(|member| member.state == MemberState::Up);
        let all = unsent.into_iter().chain(self.remote_interest.deadline(is_up)).min();
        all.filter(|_| self.stop.is_none())
    }

    /// Returns the number of known subscriptions that a message on the subject would reach. A queue group counts once;
    /// subscriptions of `except` and of unreachable peers do not count.
    pub(super) fn count_receivers(&mut self, subject: &Subject, except: Option<ClientId>) -> u64 {
        // This peer itself answers a poll.
        if is_text_poll(subject) {
            return 1;
        }
        let ReceiverCounts { plain, groups } = self.receiver_counts(subject, except, |entry| entry.count);
        plain + groups
    }

    /// Returns the numbers of known subscriptions that a message on the subject would reach, without those of `except`
    /// and of unreachable peers. `count_of` is the number of another peer's subscriptions of an entry that count.
    pub fn receiver_counts(
        &mut self,
        subject: &Subject,
        except: Option<ClientId>,
        count_of: impl Fn(&RemoteEntry) -> u32,
    ) -> ReceiverCounts {
        let local = self.local_matches(subject, except);
        let groups = local.iter().flat_map(|local| local.queues());
        let mut groups: BTreeSet<Queue> = groups.map(|(queue, _)| queue.clone()).collect();
        let mut plain = local.as_ref().and_then(MatchSet::plain).map_or(0, |plain| plain.targets.len() as u64);
        self.remote_interest.visit_reachable(subject, |entry| match &entry.wanted.queue {
            Some(queue) => drop(groups.insert(queue.clone())),
            None => plain += u64::from(count_of(entry)),
        });
        ReceiverCounts { plain, groups: groups.len() as u64 }
    }

    /// Calls `each` with the filter of every known subscription, except those of a client. `count_of` is as in
    /// [`Peer::receiver_counts`]; entries of which no subscription counts are left out.
    pub fn visit_subscriptions(
        &self,
        except: ClientId,
        count_of: impl Fn(&RemoteEntry) -> u32,
        mut each: impl FnMut(&SubscriptionFilter),
    ) {
        let local = self.interest.rows();
        local.iter().filter(|row| row.client != except).for_each(|row| each(&row.wanted));
        let remote = self.remote_interest.entries().filter(|entry| 0 < count_of(entry));
        remote.for_each(|entry| each(&entry.wanted));
    }

    /// Returns the change counters of the subscriptions. While they are unchanged, so are all subscriptions.
    pub fn subscription_changes(&self) -> (u64, u64) {
        self.interest_changes()
    }

    /// Returns whether the subscriptions of all peers that can be reached are known.
    pub fn knows_all_interest(&self) -> bool {
        let mut others = self.members.values().filter(|member| member.is_reachable());
        self.discovery.is_discovered && others.all(|member| self.remote_interest.is_known(member.epoch()))
    }

    /// Returns whether a client of another peer that can be reached subscribes to exactly this pattern, which matches the
    /// subject.
    pub fn is_subscribed_elsewhere(&mut self, subject: &Subject, pattern: &Pattern) -> bool {
        let mut is_subscribed = false;
        self.remote_interest.visit_reachable(subject, |entry| is_subscribed |= entry.wanted.pattern == *pattern);
        is_subscribed
    }

    /// Returns the known subscriptions of the clients of other peers.
    pub fn remote_rows(&self) -> Vec<RemoteRow> {
        let row = |entry: &RemoteEntry| {
            Some(RemoteRow {
                publisher: self.members.get(&entry.epoch)?.publisher.clone(),
                wanted: entry.wanted.clone(),
                count: entry.count,
                is_complete: self.remote_interest.is_known(entry.epoch),
            })
        };
        self.remote_interest.entries().filter_map(row).collect()
    }
}
