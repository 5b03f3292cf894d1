//! Admission of epochs that are not members: their baseline, the data deferred until an announcement, and the limits
//! for forged epochs.

use super::Peer;
use super::receive::{ANSWER_INTERVAL, DatagramSource};
use crate::message::{DeliveryMode, Epoch, Publisher};
use crate::proto::Settings;
use crate::proto::address_proof::{ANSWERING_PEERS, HELLO_BYTES, is_among};
use crate::proto::contact::{self, Contact, FirstContact};
use crate::proto::departed::DepartedMembers;
use crate::proto::effect::MemberEvent;
use crate::proto::members::Member;
use crate::proto::pace::PacedReceiver;
use crate::proto::quarantine::JUMP_MAX;
use crate::time::{ClockReading, Instant};
use crate::wire::{Header, PeerAnnouncement, Record};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of bytes of deferred data of all epochs without an announcement.
const PENDING_EPOCH_BYTES_MAX: usize = 4 << 20;
/// Divisor of the member table that bounds the unproven epochs of one IP address: a quarter of the table.
const UNPROVEN_SHARE: usize = 4;
/// Minimum number of unproven epochs of one IP address that are admitted.
const UNPROVEN_MIN: usize = 16;
/// Maximum number of epochs with deferred data.
const PENDING_EPOCHS_MAX: usize = 64;

/// Epochs of other peers that are not members: departed members, and epochs without an announcement.
pub(super) struct Admission {
    /// Start of listening: a peer that started later cannot have been heard before its first contact.
    pub(super) listening_since: Instant,
    /// Departed members.
    pub(super) departed: DepartedMembers,
    /// Data of epochs that have sent no announcement yet.
    pending: BTreeMap<Epoch, PendingEpoch>,
    /// Number of the last member added.
    last_uid: u32,
}

/// Deferred data of an epoch without an announcement.
#[derive(Debug)]
struct PendingEpoch {
    from: SocketAddr,
    since: Instant,
    /// Uptime in another control datagram of the epoch, and the arrival of that datagram.
    uptime: Option<(u32, Instant)>,
    /// Time of the last HELLO that requested its announcement.
    hello_sent_at: Option<Instant>,
    bytes: usize,
    /// Deferred datagrams, each with its time of arrival.
    datagrams: Vec<(Instant, Header, Vec<Record>)>,
}

impl PendingEpoch {
    fn new(from: SocketAddr, since: Instant) -> PendingEpoch {
        PendingEpoch { from, since, uptime: None, hello_sent_at: None, bytes: 0, datagrams: Vec::new() }
    }
}

impl Admission {
    /// Creates the state of a peer that begins to listen now.
    pub(super) fn new(settings: &Settings, now: Instant) -> Admission {
        Admission {
            listening_since: now,
            departed: DepartedMembers::new(settings.peers_max),
            pending: BTreeMap::new(),
            last_uid: 0,
        }
    }

    /// Returns the number of the next member.
    fn next_uid(&mut self) -> u32 {
        self.last_uid += 1;
        self.last_uid
    }

    /// Returns whether data waits for an announcement.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn pending_bytes(&self) -> usize {
        self.pending.values().map(|pending| pending.bytes).sum()
    }

    /// Returns the deferred state of an epoch without an announcement; `None` if there are too many.
    fn pending_epoch(&mut self, now: Instant, epoch: Epoch, from: SocketAddr) -> Option<&mut PendingEpoch> {
        if PENDING_EPOCHS_MAX <= self.pending.len() && !self.pending.contains_key(&epoch) {
            return None;
        }
        Some(self.pending.entry(epoch).or_insert_with(|| PendingEpoch::new(from, now)))
    }

    /// Takes out the deferred datagrams of an epoch, lowest number first, if they are from this address.
    fn take_followers(&mut self, epoch: Epoch, from: SocketAddr) -> Vec<(Instant, Header, Vec<Record>)> {
        let pending = self.pending.remove(&epoch).filter(|pending| pending.from == from);
        let mut followers = pending.map_or(Vec::new(), |pending| pending.datagrams);
        followers.sort_by_key(|(_, header, _)| header.number);
        followers
    }

    /// Checks the limits.
    pub(super) fn assert_invariants(&self) {
        assert!(self.pending.len() <= PENDING_EPOCHS_MAX);
        assert!(self.pending_bytes() <= PENDING_EPOCH_BYTES_MAX);
    }
}

impl Peer {
    /// Finds or adds the member that a datagram is from. Returns false if the datagram is to be discarded.
    pub(super) fn find_or_add_member(
        &mut self,
        now: ClockReading,
        from: SocketAddr,
        epoch: Epoch,
        contact: Contact,
        announce: Option<&PeerAnnouncement>,
    ) -> bool {
        let arrived = self.inbound.arrived;
        if let Some(member) = self.members.get_mut(&epoch) {
            if member.address != from {
                self.counters.discard_source += 1;
                return false;
            }
            self.inbound.arrived =
                member.on_further_contact(&self.settings, contact, now.instant, arrived, &mut self.rng);
            return true;
        }
        if self.admission.departed.is_old(epoch, &contact) {
            self.counters.discard_old_epoch += 1;
            return false;
        }
        let followers = self.admission.take_followers(epoch, from);
        // The lowest contact counts, whenever the announcement arrived.
        let lowest =
            followers.iter().map(|(_, header, _)| Contact::of_data(header)).min_by_key(|contact| contact.below);
        let contact = match lowest {
            Some(lowest) if lowest.below < contact.below => {
                Contact { below: lowest.below, count: lowest.count, ..contact }
            }
            _ => contact,
        };
        if !self.has_address_slot(now, from.ip())
            || self.settings.peers_max <= self.members.len() && !self.evict_member(now, |_| true)
        {
            self.counters.discard_peers_full += 1;
            self.suppression.suspend_until(now.instant + self.settings.forget);
            return false;
        }
        self.add_member(now, from, epoch, contact, announce);
        for (arrived, header, records) in followers {
            self.inbound.arrived = arrived;
            self.accept(now, header, records);
        }
        self.inbound.arrived = arrived;
        true
    }

    /// Adds the member that a datagram is from, on its first contact or after its return.
    fn add_member(
        &mut self,
        now: ClockReading,
        address: SocketAddr,
        epoch: Epoch,
        contact: Contact,
        announce: Option<&PeerAnnouncement>,
    ) {
        let arrived = self.inbound.arrived;
        let publisher = Publisher { name: None, epoch, uid: self.admission.next_uid() };
        let departed = self.admission.departed.take(epoch);
        let contact = departed.as_ref().map_or(contact, |departed| departed.contact(contact));
        let absent = departed.as_ref().map(|departed| departed.silent_since);
        let listening_since = if departed.is_some() { arrived } else { self.admission.listening_since };
        let is_age_unknown = !contact.is_fresh
            && contact::is_older(contact.uptime_ms, arrived.since(listening_since))
            && 0 < contact.below.0
            && 0 < contact.count;
        let receiver = PacedReceiver::new(now.instant, &mut self.outbound.pacer);
        let first = FirstContact { publisher, address, contact, at: now.instant, arrived, listening_since };
        let mut member = Member::new(&self.settings, first, receiver, &mut self.rng);
        member.certificate.certified = self.certified.of(epoch);
        if let Some(departed) = departed {
            member.resume(&departed, &self.settings, arrived, &mut self.rng);
        }
        if let Some(announce) = announce {
            member.on_announce(announce);
        }
        if !self.interest.is_empty(DeliveryMode::Live) {
            member.begin_live(&self.settings, now.instant, &mut self.rng);
        }
        self.members.insert(epoch, member);
        self.remote_interest.set_reachable(epoch, true);
        self.on_publisher(now.instant, epoch);
        self.update_pace(now.instant);
        self.notify_member_event(epoch, MemberEvent::Up);
        self.notify_discovery(epoch, absent);
        if is_age_unknown {
            self.report_before_contact(now, epoch, contact);
        }
    }

    /// Notes the uptime of a control datagram, which is that of its sending, for the deferred data of an epoch without
    /// an announcement.
    pub(super) fn record_uptime(&mut self, now: ClockReading, from: SocketAddr, header: &Header) {
        let arrived = self.inbound.arrived;
        if !self.members.contains(&header.epoch)
            && let Some(pending) = self.admission.pending_epoch(now.instant, header.epoch, from)
            && pending.from == from
        {
            pending.uptime = Some((header.uptime_ms, arrived));
        }
    }

    /// Requests an announcement from an unknown peer whose control message cannot be handled before it is a member. The
    /// request has no more bytes than the message.
    pub(super) fn send_hello_to_unknown(
        &mut self,
        now: ClockReading,
        source: DatagramSource,
        header: &Header,
        record: &Record,
    ) {
        let target = match record {
            Record::ResendRequest(request) => Some(request.epoch),
            Record::ReceiverReport(report) => Some(report.epoch),
            Record::InterestRequest(request) => Some(request.epoch),
            _ => None,
        };
        let is_meant = target == Some(self.origin.epoch) && HELLO_BYTES <= source.bytes && self.stop.is_none();
        if is_meant
            && !self.members.contains(&header.epoch)
            && let Some(pending) = self.admission.pending_epoch(now.instant, header.epoch, source.from)
            && pending.from == source.from
            && pending.hello_sent_at.is_none_or(|at| ANSWER_INTERVAL <= now.instant.since(at))
        {
            pending.hello_sent_at = Some(now.instant);
            self.send_hello(now, source.from);
        }
    }

    /// Defers the data of an epoch that is no member and claims to be younger than this peer, until its announcement
    /// confirms that. The datagram may be a replayed old one, whose uptime is that of its sealing. Returns false if
    /// there is no need to wait.
    pub(super) fn defer_until_announced(
        &mut self,
        now: ClockReading,
        DatagramSource { from, bytes, .. }: DatagramSource,
        header: &Header,
        records: &[Record],
    ) -> bool {
        // Rule: baseline
        let epoch = header.epoch;
        let is_known = self.admission.departed.is_old(epoch, &Contact::of_data(header));
        let age = self.inbound.arrived.since(self.admission.listening_since);
        if is_known || !contact::is_older(header.uptime_ms, age) || self.admission.departed.has(epoch) {
            return false;
        }
        let arrived = self.inbound.arrived;
        let waiting = self.admission.pending_bytes();
        let peers = self.members.len() as u64;
        let is_among_few = is_among(ANSWERING_PEERS, peers, &mut self.rng);
        let Some(pending) = self.admission.pending_epoch(now.instant, epoch, from) else {
            self.counters.discard_peers_full += 1;
            self.suppression.suspend_until(now.instant + self.settings.forget);
            return true;
        };
        if pending.from != from || PENDING_EPOCH_BYTES_MAX < waiting + bytes {
            return true;
        }
        pending.bytes += bytes;
        pending.datagrams.push((arrived, *header, records.to_vec()));
        // One HELLO requests its announcement, with no more bytes than came. All peers may have heard a multicast, so
        // few of them send one.
        if pending.hello_sent_at.is_none() && HELLO_BYTES <= bytes {
            pending.hello_sent_at = is_among_few.then_some(now.instant);
            if is_among_few {
                self.send_hello(now, from);
            }
        }
        true
    }

    /// Returns the time at which deferred data is accepted without an announcement. A sending publisher has made more
    /// than one announcement by then.
    pub(super) fn pending_epoch_deadline(&self) -> Option<Instant> {
        self.admission.pending.values().map(|pending| pending.since + self.settings.heartbeat * 2).min()
    }

    /// Accepts deferred data without an announcement. Unless another control datagram gave the current uptime, this
    /// peer does not count as older than the epoch.
    pub(super) fn on_pending_epoch_tick(&mut self, now: ClockReading) {
        while self.pending_epoch_deadline().is_some_and(|deadline| deadline <= now.instant) {
            let Some((&epoch, pending)) = self.admission.pending.iter().min_by_key(|(_, pending)| pending.since) else {
                return;
            };
            let (from, uptime) = (pending.from, pending.uptime);
            match pending.datagrams.first() {
                // A number above `JUMP_MAX` is implausible without an announcement.
                Some((_, header, _)) if uptime.is_none() && JUMP_MAX < header.number => {
                    self.counters.discard_quarantined += 1;
                    self.admission.pending.remove(&epoch);
                }
                Some((arrived, header, _)) => {
                    let of_data = Contact::of_data(header);
                    let (uptime_ms, arrived) = uptime.unwrap_or((of_data.uptime_ms, *arrived));
                    let contact = Contact { uptime_ms, is_fresh: uptime.is_some(), ..of_data };
                    self.inbound.arrived = arrived;
                    self.find_or_add_member(now, from, epoch, contact, None);
                }
                None => drop(self.admission.pending.remove(&epoch)),
            }
        }
    }

    /// Returns whether an epoch of this IP address may be added. If too many epochs there are unproven, one that ended
    /// or looks forged is evicted. One host that forges epochs therefore excludes no other host.
    fn has_address_slot(&mut self, now: ClockReading, ip: IpAddr) -> bool {
        let unproven = || self.members.values().filter(|member| !member.proof.is_proven && member.address.ip() == ip);
        if unproven().count() < (self.settings.peers_max / UNPROVEN_SHARE).max(UNPROVEN_MIN) {
            return true;
        }
        self.evict_member(now, |member| !member.proof.is_proven && member.address.ip() == ip)
    }

    /// Evicts the eligible member that ended longest ago. If none has ended, evicts the unproven one that has been
    /// silent longest, so that forged epochs do not exclude a newcomer.
    fn evict_member(&mut self, now: ClockReading, is_meant: impl Fn(&Member) -> bool) -> bool {
        let meant = || self.members.values().filter(|member| is_meant(member));
        let ended = meant().filter_map(|member| Some((member.ended?, member.epoch()))).min();
        let newcomer = || {
            let newcomers = meant().filter(|member| member.is_unproven_newcomer());
            newcomers.map(|member| (member.last_heard, member.epoch())).min()
        };
        ended.or_else(newcomer).map(|(_, epoch)| self.expire_member(now, epoch)).is_some()
    }
}
