//! Datagrams of other peers: from bytes to members and streams.

use super::Peer;
use crate::message::{DeliveryMode, Dseq, Epoch, Publisher, Reason};
use crate::proto::effect::{MemberEvent, Path};
use crate::proto::ledger::Acceptance;
use crate::proto::members::{self, ANSWERING_PEERS, Contact, HELLO_BYTES, JUMP_MAX, Member, Quarantine, Side};
use crate::proto::mutant::Mutant;
use crate::proto::pace::PacedReceiver;
use crate::proto::send::AnnounceKind;
use crate::proto::stats::MemberState;
use crate::time::{ClockReading, Instant};
use crate::wire::{self, Announce, DiscardReason, Header, Kind, Record};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Maximum number of bytes of deferred data of all epochs without an announcement.
const PENDING_EPOCH_BYTES_MAX: usize = 4 << 20;
/// Divisor of the member table that bounds the unproven epochs of one IP address: a quarter of the table.
const UNPROVEN_SHARE: usize = 4;
/// Number of such epochs that are admitted in any case.
const UNPROVEN_MIN: usize = 16;
/// Maximum number of epochs with deferred data.
const PENDING_EPOCHS_MAX: usize = 64;
/// Minimum interval between two answers to the HELLOs of one peer, and between two HELLOs to an unknown one. It is
/// shorter than the 20 ms between the first two HELLOs.
const ANSWER_INTERVAL: Duration = Duration::from_millis(15);

impl Peer {
    pub(super) fn on_datagram(&mut self, now: ClockReading, from: SocketAddr, path: Path, bytes: Bytes) {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += bytes.len() as u64;
        if wire::claimed_epoch(&bytes) == Some(self.origin.epoch) {
            self.counters.discard_own += 1;
            return;
        }
        let length = bytes.len();
        self.arrived = self.earliest_arrival[usize::from(path == Path::Unicast)].unwrap_or(now.instant);
        let datagram = match wire::decode(bytes) {
            Ok(datagram) => datagram,
            Err(discard) => return self.on_discard(&discard),
        };
        let header = datagram.header;
        if header.group != self.settings.group {
            self.counters.discard_group += 1;
        } else if from.ip().is_multicast() || from.ip().is_unspecified() || from.port() == 0 {
            self.counters.discard_source += 1;
        } else if header.receiver.is_some_and(|receiver| receiver != self.origin.epoch) {
            self.counters.discard_not_for_us += 1;
        } else if header.kind == Kind::Control && datagram.records.is_empty() {
            // No record in it is known, so its number proves nothing either (wire.md W20).
        } else if header.kind == Kind::Control && !self.accepts_control(now, &header, from) {
            self.counters.discard_quarantined += 1;
        } else if header.kind == Kind::Control {
            self.on_path(now, &header, from, (path, length));
            let source = ControlSource { from, path, bytes: length };
            datagram.records.into_iter().for_each(|record| self.on_control(now, source, &header, record));
        } else {
            self.on_path(now, &header, from, (path, length));
            self.on_data(now, (from, length), header, datagram.records);
        }
        self.publish_advisories(now, Some(header.epoch), false);
    }

    /// Returns whether the number of a control datagram is plausible. It is for an unknown epoch, or one known at
    /// another address.
    fn accepts_control(&mut self, now: ClockReading, header: &Header, from: SocketAddr) -> bool {
        let member = self.members.get_mut(&header.epoch).filter(|member| member.address == from);
        member.is_none_or(|member| member.control.admits(now.instant, header.number, header.uptime_ms))
    }

    pub(super) fn on_discard(&mut self, discard: &DiscardReason) {
        let counter = match discard {
            DiscardReason::Foreign => &mut self.counters.discard_foreign,
            DiscardReason::Version(_) => &mut self.counters.discard_version,
            DiscardReason::Mode(_) => &mut self.counters.discard_mode,
            DiscardReason::Check => &mut self.counters.discard_check,
            DiscardReason::Malformed(_) => &mut self.counters.discard_malformed,
        };
        *counter += 1;
    }

    pub(super) fn on_data(
        &mut self,
        now: ClockReading,
        (from, length): (SocketAddr, usize),
        header: Header,
        records: Vec<Record>,
    ) {
        if records.iter().any(|record| matches!(record, Record::UnknownData(_))) {
            self.counters.unknown_records += 1;
            return;
        }
        if header.kind == Kind::Directed && !self.members.contains_key(&header.epoch) {
            self.counters.discard_stranger += 1;
            return;
        }
        if self.defer_until_announced(now, from, &header, &records, length)
            || !self.find_or_add_member(now, from, header.epoch, Contact::of_data(&header), None)
        {
            return;
        }
        let Some(held_back) = self.check_jump(&header, Dseq(header.number), Some(&records)) else { return };
        if let Some((earlier, records)) = held_back {
            self.accept(now, earlier, records);
        }
        self.accept(now, header, records);
    }

    /// Finds or adds the member that a datagram is from. Returns false if the datagram is to be discarded.
    pub(super) fn find_or_add_member(
        &mut self,
        now: ClockReading,
        from: SocketAddr,
        epoch: Epoch,
        contact: Contact,
        announce: Option<&Announce>,
    ) -> bool {
        let arrived = self.arrived;
        if let Some(member) = self.members.get_mut(&epoch) {
            if member.address != from {
                self.counters.discard_source += 1;
                return false;
            }
            if member.forgotten {
                member.forgotten = false;
                member.bcast = members::broadcast(&self.settings, contact, arrived, arrived, &mut self.rng);
            }
            self.arrived = member.latest_send_time((now.instant, arrived), contact.uptime_ms);
            return true;
        }
        if self.departed_members.is_old(epoch, &contact) {
            self.counters.discard_old_epoch += 1;
            return false;
        }
        let pending_data = self.pending_data.remove(&epoch).filter(|pending_data| pending_data.from == from);
        let mut followers = pending_data.map_or(Vec::new(), |pending_data| pending_data.datagrams);
        followers.sort_by_key(|(_, header, _)| header.number);
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
        self.uids += 1;
        let publisher = Publisher { name: None, epoch, uid: self.uids };
        let departed = self.departed_members.take(epoch);
        let contact = departed.as_ref().map_or(contact, |departed| departed.contact(contact));
        let absent = departed.as_ref().map(|departed| departed.silent_since);
        let listening_since = if departed.is_some() { arrived } else { self.listening_since };
        let since = (listening_since, arrived);
        let is_age_unknown = !contact.is_fresh
            && members::is_older(contact.uptime_ms, arrived.since(listening_since))
            && 0 < contact.below.0
            && 0 < contact.count;
        let receiver = PacedReceiver::new(now.instant, &mut self.pacer);
        let mut member =
            Member::new(&self.settings, publisher, from, contact, now.instant, since, receiver, &mut self.rng);
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
        self.tell(epoch, MemberEvent::Up);
        self.notify_discovery(epoch, absent);
        if is_age_unknown {
            self.report_before_contact(now, epoch, contact);
        }
        for (arrived, header, records) in followers {
            self.arrived = arrived;
            self.accept(now, header, records);
        }
        self.arrived = arrived;
        true
    }

    /// Notes the uptime of a control datagram, which is that of its sending, for the deferred data of an epoch without
    /// an announcement.
    fn note_uptime(&mut self, now: ClockReading, from: SocketAddr, header: &Header) {
        let arrived = self.arrived;
        if !self.members.contains_key(&header.epoch)
            && let Some(pending_data) = self.pending_epoch(now, header.epoch, from)
            && pending_data.from == from
        {
            pending_data.uptime = Some((header.uptime_ms, arrived));
        }
    }

    /// Requests an announcement from an unknown peer whose control message cannot be handled before it is a member. The
    /// request has no more bytes than the message.
    fn send_hello_to_unknown(&mut self, now: ClockReading, source: ControlSource, header: &Header, record: &Record) {
        let told = match record {
            Record::ResendRequest(request) => Some(request.epoch),
            Record::ReceiverReport(report) => Some(report.epoch),
            Record::InterestRequest(request) => Some(request.epoch),
            _ => None,
        };
        let is_meant = told == Some(self.origin.epoch) && HELLO_BYTES <= source.bytes && self.stop.is_none();
        if is_meant
            && !self.members.contains_key(&header.epoch)
            && let Some(pending_data) = self.pending_epoch(now, header.epoch, source.from)
            && pending_data.from == source.from
            && pending_data.hello_sent_at.is_none_or(|at| ANSWER_INTERVAL <= now.instant.since(at))
        {
            pending_data.hello_sent_at = Some(now.instant);
            self.send_hello(now, source.from);
        }
    }

    /// Returns the deferred state of an epoch without an announcement; `None` if there are too many.
    fn pending_epoch(&mut self, now: ClockReading, epoch: Epoch, from: SocketAddr) -> Option<&mut PendingEpoch> {
        if PENDING_EPOCHS_MAX <= self.pending_data.len() && !self.pending_data.contains_key(&epoch) {
            return None;
        }
        Some(self.pending_data.entry(epoch).or_insert_with(|| PendingEpoch::new(from, now.instant)))
    }

    /// Defers the data of an epoch that claims to be younger than this peer until its announcement confirms that. The
    /// datagram may be a replayed old one, whose uptime is that of its sealing. Returns false if there is no need to
    /// wait.
    fn defer_until_announced(
        &mut self,
        now: ClockReading,
        from: SocketAddr,
        header: &Header,
        records: &[Record],
        bytes: usize,
    ) -> bool {
        // Rule: baseline
        let epoch = header.epoch;
        let is_known =
            self.members.contains_key(&epoch) || self.departed_members.is_old(epoch, &Contact::of_data(header));
        let age = self.arrived.since(self.listening_since);
        if is_known || !members::is_older(header.uptime_ms, age) || self.departed_members.has(epoch) {
            return false;
        }
        let arrived = self.arrived;
        let waiting: usize = self.pending_data.values().map(|pending_data| pending_data.bytes).sum();
        let peers = self.members.len() as u64;
        let is_among_few = members::is_among(ANSWERING_PEERS, peers, &mut self.rng);
        let Some(pending_data) = self.pending_epoch(now, epoch, from) else {
            self.counters.discard_peers_full += 1;
            self.suppression.suspend_until(now.instant + self.settings.forget);
            return true;
        };
        if pending_data.from != from || PENDING_EPOCH_BYTES_MAX < waiting + bytes {
            return true;
        }
        pending_data.bytes += bytes;
        pending_data.datagrams.push((arrived, *header, records.to_vec()));
        // One HELLO requests its announcement, with no more bytes than came. All peers may have heard a multicast, so
        // few of them send one.
        if pending_data.hello_sent_at.is_none() && HELLO_BYTES <= bytes {
            pending_data.hello_sent_at = is_among_few.then_some(now.instant);
            if is_among_few {
                self.send_hello(now, from);
            }
        }
        true
    }

    /// Returns the time at which deferred data is accepted without an announcement. A publisher that sends has made
    /// more than one by then.
    pub(super) fn pending_epoch_deadline(&self) -> Option<Instant> {
        self.pending_data.values().map(|pending_data| pending_data.since + self.settings.heartbeat * 2).min()
    }

    /// Accepts deferred data without an announcement. Unless another control datagram gave the current uptime, this
    /// peer does not count as older than the epoch.
    pub(super) fn on_pending_epoch_tick(&mut self, now: ClockReading) {
        while self.pending_epoch_deadline().is_some_and(|deadline| deadline <= now.instant) {
            let Some((&epoch, pending_data)) =
                self.pending_data.iter().min_by_key(|(_, pending_data)| pending_data.since)
            else {
                return;
            };
            let (from, uptime) = (pending_data.from, pending_data.uptime);
            match pending_data.datagrams.first() {
                // A number above `JUMP_MAX` is implausible without an announcement.
                Some((_, header, _)) if uptime.is_none() && JUMP_MAX < header.number => {
                    self.counters.discard_quarantined += 1;
                    self.pending_data.remove(&epoch);
                }
                Some((arrived, header, _)) => {
                    let of_data = Contact::of_data(header);
                    let (uptime_ms, arrived) = uptime.unwrap_or((of_data.uptime_ms, *arrived));
                    let contact = Contact { uptime_ms, is_fresh: uptime.is_some(), ..of_data };
                    self.arrived = arrived;
                    self.find_or_add_member(now, from, epoch, contact, None);
                }
                None => drop(self.pending_data.remove(&epoch)),
            }
        }
    }

    /// Returns whether an epoch of this IP address may be added. If too many epochs there are unproven, one that ended
    /// or looks forged is evicted. One host that forges epochs therefore excludes no other host.
    fn has_address_slot(&mut self, now: ClockReading, ip: IpAddr) -> bool {
        let unproven = || self.members.values().filter(|member| !member.is_proven && member.address.ip() == ip);
        if unproven().count() < (self.settings.peers_max / UNPROVEN_SHARE).max(UNPROVEN_MIN) {
            return true;
        }
        self.evict_member(now, |member| !member.is_proven && member.address.ip() == ip)
    }

    /// Evicts the eligible member that ended longest ago. If none has ended, evicts the unproven one that has been
    /// silent longest, so that forged epochs do not exclude a newcomer.
    fn evict_member(&mut self, now: ClockReading, is_meant: impl Fn(&Member) -> bool) -> bool {
        let meant = || self.members.values().filter(|member| is_meant(member));
        let ended = meant().filter_map(|member| Some((member.ended?, member.epoch()))).min();
        let stranger = || {
            let strangers = meant().filter(|member| member.is_unproven_newcomer());
            strangers.map(|member| (member.last_heard, member.epoch())).min()
        };
        ended.or_else(stranger).map(|(_, epoch)| self.forget(now, epoch)).is_some()
    }

    /// Quarantines an implausible jump (A10). Returns `None` if the datagram must wait; otherwise a quarantined
    /// datagram that is now confirmed, if there is one.
    pub(super) fn check_jump(
        &mut self,
        header: &Header,
        high: Dseq,
        records: Option<&Vec<Record>>,
    ) -> Option<Option<(Header, Vec<Record>)>> {
        let member = self.members.get_mut(&header.epoch)?;
        let directed = header.kind == Kind::Directed;
        let known = if directed { &member.ptp } else { &member.bcast }.ledger().high();
        let quarantine = &mut member.quarantine[usize::from(directed)];
        if members::is_plausible(known, high) {
            if known <= high {
                *quarantine = None;
            }
            return Some(None);
        }
        // Rule: quarantine
        match quarantine.take() {
            Some(Quarantine { number, data })
                if number <= high.0 && high.0 - number <= JUMP_MAX && (records.is_none() || number < high.0) =>
            {
                Some(data)
            }
            _ => {
                self.counters.discard_quarantined += 1;
                let data = records.map(|records| (*header, records.clone()));
                *quarantine = Some(Quarantine { number: high.0, data });
                None
            }
        }
    }

    /// Handles a data datagram of a known member.
    pub(super) fn accept(&mut self, now: ClockReading, header: Header, records: Vec<Record>) {
        let dseq = Dseq(header.number);
        let directed = header.kind == Kind::Directed;
        if !directed {
            self.reopen_if_left(now, header.epoch, |member| member.bcast.ledger().high() < dseq);
        }
        let is_back = |member: &Member| matches!(member.state, MemberState::Silent | MemberState::Crashed);
        if self.members.get(&header.epoch).is_some_and(is_back) {
            // The notification precedes all deliveries of its messages.
            self.notify_discovery(header.epoch, None);
        }
        let has_live = self.members.get(&header.epoch).is_some_and(|member| member.live.is_some());
        if has_live && !directed {
            let records = records.clone();
            self.with_stream(now, header.epoch, Side::Live, |recv, ctx, out| {
                recv.on_datagram(ctx, (dseq, header.count), records, out)
            });
            self.limit_held(now, header.epoch, Side::Live);
        }
        let side = if directed { Side::Ptp } else { Side::Bcast };
        let accept = self.with_stream(now, header.epoch, side, |recv, ctx, out| {
            recv.on_datagram(ctx, (dseq, header.count), records, out)
        });
        let counter = match accept {
            Some(Acceptance::Fresh | Acceptance::Filled | Acceptance::Repaired) => {
                // Rule: silence
                // A directed datagram shows nothing of the multicast stream.
                if !directed {
                    self.on_heard(now, header.epoch);
                    self.note_awaited(now.instant, header.epoch);
                }
                return self.limit_held(now, header.epoch, side);
            }
            Some(Acceptance::BeforeBaseline) => &mut self.counters.discard_before_baseline,
            Some(Acceptance::Duplicate) => &mut self.counters.discard_duplicate,
            Some(Acceptance::Late) => &mut self.counters.discard_late,
            Some(Acceptance::Contradiction) | None => &mut self.counters.discard_contradiction,
        };
        *counter += 1;
    }

    /// Settles gaps early while too many bytes are held for them (A7).
    pub(super) fn limit_held(&mut self, now: ClockReading, epoch: Epoch, side: Side) {
        let of_side = |member: &mut Member| member.side(side).map_or(0, |(recv, ..)| recv.held_bytes());
        while self.members.get_mut(&epoch).map_or(0, of_side) != 0 {
            if self.members.values().map(Member::held_bytes).sum::<usize>() <= self.settings.hold_bytes_max {
                return;
            }
            self.with_stream(now, epoch, side, |recv, ctx, out| recv.overflow(ctx, out));
        }
    }

    /// Reopens an epoch that sent BYE if `is_proof` shows that its BYE was forged. Missing data in between is awaited
    /// like any other gap.
    fn reopen_if_left(&mut self, now: ClockReading, epoch: Epoch, is_proof: impl FnOnce(&Member) -> bool) {
        let Some(member) = self.members.get_mut(&epoch).filter(|member| member.state == MemberState::Left) else {
            return;
        };
        if !is_proof(member) {
            return;
        }
        self.counters.false_byes += 1;
        (member.state, member.ended) = (MemberState::Up, None);
        member.on_contact(now.instant);
        member.last_heard = now.instant;
        self.update_pace(now.instant);
        self.on_present(epoch);
        self.tell(epoch, MemberEvent::Resumed);
        self.notify_discovery(epoch, None);
    }

    /// Handles a sign of life of a member.
    pub(super) fn on_heard(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        member.on_contact(now.instant);
        member.earn_send_credit();
        member.last_heard = now.instant;
        let was_superseded = std::mem::take(&mut member.is_superseded);
        if was_superseded || member.state != MemberState::Up {
            self.remote_interest.set_reachable(epoch, true);
        }
        let Some(member) = self.members.get_mut(&epoch) else { return };
        if matches!(member.state, MemberState::Silent | MemberState::Crashed) {
            if member.state == MemberState::Crashed {
                let deadline = now.instant + self.settings.reliability;
                member.sides_mut().for_each(|recv| recv.resume(now.instant, deadline));
            }
            member.state = MemberState::Up;
            member.ended = None;
            // The member counts as a receiver again.
            self.update_pace(now.instant);
            self.on_present(epoch);
            self.tell(epoch, MemberEvent::Resumed);
            self.notify_discovery(epoch, None);
        }
    }

    pub(super) fn on_control(&mut self, now: ClockReading, source: ControlSource, header: &Header, record: Record) {
        if matches!(
            record,
            Record::ResendRequest(_)
                | Record::Manifest(_)
                | Record::Expired(_)
                | Record::ReceiverReport(_)
                | Record::Interest(_)
                | Record::InterestRequest(_)
        ) {
            self.note_uptime(now, source.from, header);
            self.send_hello_to_unknown(now, source, header, &record);
        }
        let (announce, hello, bye) = match record {
            Record::ResendRequest(request) => return self.on_resend_request(now, source, header, &request),
            Record::Manifest(manifest) => return self.on_manifest(now, source, header, manifest),
            Record::Expired(expired) => return self.on_expired(now, source, header, &expired),
            Record::Interest(interest) => return self.on_interest_record(now, source, header, interest),
            Record::InterestRequest(request) => return self.on_interest_request(now, source, header, request),
            Record::ReceiverReport(report) => return self.on_receiver_report(now, source, header, report),
            Record::Heartbeat(announce) => (announce, None, false),
            Record::Hello(hello) => (hello.announce, Some((hello.cookie, hello.wants_reply)), false),
            Record::Bye(announce) => (announce, None, true),
            _ => return,
        };
        let epoch = header.epoch;
        let answers_another = hello
            .is_some_and(|(cookie, wants_reply)| source.path == Path::Unicast && !wants_reply && cookie != self.cookie);
        if answers_another {
            self.counters.discard_stranger += 1;
            return;
        }
        if !self.find_or_add_member(now, source.from, epoch, Contact::of_announce(header, &announce), Some(&announce)) {
            return;
        }
        // After its BYE an epoch sends no other announcement.
        self.reopen_if_left(now, epoch, |member| !bye && member.control.number() < header.number);
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let left = member.state == MemberState::Left;
        // A later BYE may be the one that announces the directed stream.
        if header.number <= member.control.number() || (left && !bye) {
            self.counters.discard_stale_control += 1;
            if self.settings.mutants.is(Mutant::StaleHeartbeatRefreshes) {
                self.on_heard(now, epoch);
            }
            return;
        }
        member.control.accept(now.instant, header.number, header.uptime_ms);
        member.has_unicast_contact |= source.path == Path::Unicast;
        member.on_announce(&announce);
        let is_report_due = source.path == Path::Multicast
            && members::is_plausible(member.bcast.ledger().high(), announce.high)
            && member.receive_progress.on_control(now.instant, announce.high);
        let heard_before = member.last_heard;
        if source.path == Path::Unicast && announce.directed_receiver == Some(self.origin.epoch) {
            if let Some(report) = &announce.report {
                member.on_report(**report, now.wall);
            }
            member.liveness.on_control(now.instant, member.heartbeat, announce.high);
            self.on_queue_report(epoch, &announce);
            self.on_proof(now, epoch, &announce);
        }
        if is_report_due {
            self.schedule_report_now(now.instant, epoch);
        }
        self.on_heard(now, epoch);
        self.on_interest_word(now, header, &announce);
        self.supersede_former_runs(epoch);
        self.end_departed_members(now, epoch, heard_before);
        self.note_namesakes(now, epoch);
        self.on_high(now, header, &announce);
        match hello {
            Some((cookie, true)) => self.answer(now, epoch, cookie, source.bytes),
            _ if bye && !left => self.end(now, epoch, Reason::PublisherGone),
            _ => {}
        }
    }

    /// Handles the highest datagrams of an announcement.
    pub(super) fn on_high(&mut self, now: ClockReading, header: &Header, announce: &Announce) {
        let Some(held_back) = self.check_jump(header, announce.high, None) else { return };
        if let Some((earlier, records)) = held_back {
            self.accept(now, earlier, records);
        }
        let (epoch, high, count) = (header.epoch, announce.high, header.count);
        self.with_stream(now, epoch, Side::Live, |recv, ctx, out| recv.on_control(ctx, high, count, out));
        let fits = self.with_stream(now, epoch, Side::Bcast, |recv, ctx, out| recv.on_control(ctx, high, count, out));
        // An announcement of the directed stream to a former run of this peer, or to one at its address, does not
        // concern this run.
        let is_ours = announce.directed_receiver == Some(self.origin.epoch);
        let (high, count) = (announce.directed_high, announce.directed_count);
        let known = self.members.get(&epoch).map_or(Dseq(0), |member| member.ptp.ledger().high());
        let directed_fits = !is_ours
            || members::is_plausible(known, high)
                && self.with_stream(now, epoch, Side::Ptp, |recv, ctx, out| recv.on_control(ctx, high, count, out))
                    == Some(true);
        if let Some(member) = self.members.get_mut(&epoch) {
            member.receive_progress.rewind_to(member.bcast.ledger().high());
        }
        if fits != Some(true) || !directed_fits {
            self.counters.discard_contradiction += 1;
        }
    }

    /// Answers a HELLO, never with more bytes than it had, and only to the address it came from.
    pub(super) fn answer(&mut self, now: ClockReading, epoch: Epoch, cookie: u64, bytes_max: usize) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let lately = member.hello_answered_at.is_some_and(|at| now.instant.since(at) < ANSWER_INTERVAL);
        if self.stop.is_none() && HELLO_BYTES <= bytes_max && !lately && self.may_send_to(epoch) {
            let Some(member) = self.members.get_mut(&epoch) else { return };
            member.hello_answered_at = Some(now.instant);
            self.send_announcement(now, AnnounceKind::Hello { cookie, wants_reply: false }, Some(epoch), 0);
        }
    }

    /// Excludes former runs of the peer of this epoch from queue choices and receiver counts, without touching their
    /// streams. One that is heard again counts again. A forged name therefore costs an honest peer its turn only until
    /// its next datagram.
    fn supersede_former_runs(&mut self, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let others = self.members.values().filter(|other| other.epoch() != epoch && other.is_reachable());
        let departed: Vec<Epoch> = others.filter(|other| other.is_followed_by(member)).map(Member::epoch).collect();
        for departed in departed {
            if let Some(member) = self.members.get_mut(&departed) {
                member.is_superseded = true;
            }
            self.remote_interest.set_reachable(departed, false);
            self.expire_assignments(departed);
        }
    }

    /// Ends earlier runs at the address of a peer that sent an announcement, because the same address means the same
    /// socket (R1). A run is kept if it was heard at or after `heard_before`, or within a beat and a half. Long-delayed
    /// datagrams make an earlier run look like the later one.
    fn end_departed_members(&mut self, now: ClockReading, epoch: Epoch, heard_before: Instant) {
        // Rule: epoch
        let Some(member) = self.members.get(&epoch).filter(|_| heard_before < now.instant) else { return };
        let departed_members: Vec<Epoch> = self
            .members
            .values()
            .filter(|other| other.epoch() != epoch && other.address == member.address && other.is_alive())
            .filter(|other| other.started <= member.started)
            .filter(|other| other.last_heard < heard_before && other.alive_until() < now.instant)
            .map(Member::epoch)
            .collect();
        departed_members.into_iter().for_each(|departed| self.end(now, departed, Reason::Crashed));
    }

    /// Handles other epochs with the name of this one: former runs, or a second peer of that name.
    pub(super) fn note_namesakes(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get(&epoch) else { return };
        let (name, started) = (member.publisher.name.clone(), member.started);
        let namesakes: Vec<Epoch> = self
            .members
            .values()
            .filter(|other| other.epoch() != epoch && other.is_alive() && other.publisher.name == name)
            .map(Member::epoch)
            .collect();
        for other in namesakes {
            let (Some(a), Some(b)) = (self.members.get(&epoch), self.members.get(&other)) else { continue };
            let duplicate = a.is_duplicate_of(b) && !a.duplicate_name;
            if b.started <= started && b.address != a.address && !b.has_successor {
                let silent = b.state == MemberState::Silent;
                self.members.get_mut(&other).expect("found above").has_successor = true;
                if silent {
                    self.end(now, other, Reason::Crashed);
                }
            }
            if duplicate {
                self.on_duplicate(epoch);
                self.on_duplicate(other);
            }
        }
        let mine = name.as_ref() == Some(&self.settings.name);
        let lasting = self.members.get(&epoch).is_some_and(|member| {
            !member.duplicate_name && members::DUPLICATE_AFTER <= now.instant.since(member.first_heard)
        });
        if mine && lasting {
            self.on_duplicate(epoch);
        }
    }

    pub(super) fn on_duplicate(&mut self, epoch: Epoch) {
        if let Some(member) = self.members.get_mut(&epoch)
            && !member.duplicate_name
        {
            member.duplicate_name = true;
            self.tell(epoch, MemberEvent::DuplicateName);
        }
    }
}

/// Deferred data of an epoch without an announcement.
#[derive(Debug)]
pub(super) struct PendingEpoch {
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

/// Origin of a control datagram.
#[derive(Clone, Copy)]
pub(super) struct ControlSource {
    pub(super) from: SocketAddr,
    pub(super) path: Path,
    pub(super) bytes: usize,
}
