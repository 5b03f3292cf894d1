//! Publishing and other requests of local clients, and the sending of all datagrams.

use super::batch::PublishBatch;
use super::publication::Route;
use super::questions::AnswerRecipient;
use super::queue::QueueRecipients;
use super::text_poll::is_text_poll;
use super::{INBOX_PREFIX, Peer};
use crate::message::{ClientId, Delivery, DeliveryMode, Epoch, Headers, Message, MessageRef, Refusal, Target, Verdict};
use crate::proto::effect::{ClientRequest, Effect, EpochChange, PublishedPosition};
use crate::proto::history::RunStart;
use crate::proto::interest::MatchSet;
use crate::proto::members::Member;
use crate::proto::send::SealedDatagram;
use crate::proto::subject_run::SubjectRunKey;
use crate::proto::window::Numbering;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::ClockReading;
use crate::wire::Entry;
use bytes::Bytes;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

impl Peer {
    /// Handles a request of a local client, as [`Input::ClientRequest`](crate::proto::effect::Input::ClientRequest)
    /// does, but returns a refusal to the caller.
    ///
    /// # Errors
    /// The peer refuses the request. Nothing has changed then.
    pub fn request(&mut self, now: ClockReading, client: ClientId, request: ClientRequest) -> Result<(), Refusal> {
        if !matches!(request, ClientRequest::Publish(_)) {
            self.begin_input();
        }
        self.on_request(now, client, request)
    }

    pub(super) fn on_request(
        &mut self,
        now: ClockReading,
        client: ClientId,
        request: ClientRequest,
    ) -> Result<(), Refusal> {
        match request {
            ClientRequest::Publish(message) => self.publish(now, client, &message)?,
            ClientRequest::Subscribe { sub, wanted, mode, wants_discovery } => {
                let target = Target { client, sub };
                let subscribed = match wanted.queue {
                    Some(_) if mode == DeliveryMode::Live => Err(Refusal::QueueLive),
                    Some(_) if wants_discovery => Err(Refusal::QueueDiscovery),
                    _ if !self.host_permissions().subscribe.permits_pattern(&wanted.pattern) => {
                        Err(Refusal::SubscribeDenied(wanted.pattern))
                    }
                    _ => self.interest.subscribe(now.instant, target, wanted, mode),
                };
                if wants_discovery && subscribed.is_ok() {
                    self.begin_discovery(now, target);
                }
                self.on_interest(now);
                self.counters.refusals += u64::from(subscribed.is_err());
                subscribed?;
            }
            ClientRequest::QueryHistory { id, peer, question, timeout } => {
                self.request_history(now, AnswerRecipient::Client(client, id), peer, &question, timeout);
            }
            ClientRequest::Echo(is_on) => self.publication.set_echo(client, is_on),
            ClientRequest::Unsubscribe { sub } => {
                self.interest.unsubscribe(client, sub);
                self.discovery.end(Target { client, sub });
                self.on_interest(now);
            }
        }
        Ok(())
    }

    /// Handles a change of the subscriptions. The live sides of all members begin and end with the subscriptions in
    /// mode live.
    pub(super) fn on_interest(&mut self, now: ClockReading) {
        let is_wanted = !self.interest.is_empty(DeliveryMode::Live);
        for member in self.members.values_mut() {
            match is_wanted {
                true => member.begin_live(&self.settings, now.instant, &mut self.rng),
                false => member.live = None,
            }
        }
    }

    /// Publishes a message, as [`ClientRequest::Publish`] does, without a request object.
    ///
    /// # Errors
    /// The message is too large, the certificate of this host does not permit it, or the peer is stopping. Nothing is
    /// published then.
    #[inline]
    pub fn publish(&mut self, now: ClockReading, client: ClientId, message: &Message) -> Result<(), Refusal> {
        if MessageRef::from(message).is_plain() && self.extend(now, client, &message.subject, &message.payload) {
            return Ok(());
        }
        self.settle();
        self.publish_alone(now, client, message.into(), &|| message.clone())
    }

    /// Publishes a message of subject and payload only. Both are copied directly to their final location.
    ///
    /// # Errors
    /// The same as of [`Peer::publish`].
    #[inline]
    pub fn publish_payload(
        &mut self,
        now: ClockReading,
        client: ClientId,
        subject: &Subject,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        if self.extend(now, client, subject, payload) {
            return Ok(());
        }
        self.settle();
        let whole = || Message::new(subject.clone(), Bytes::copy_from_slice(payload));
        self.publish_alone(now, client, MessageRef::new(subject, payload), &whole)
    }

    /// Returns the end of what has been published to the group so far, for [`Peer::has_transmitted`].
    pub fn published(&self) -> PublishedPosition {
        PublishedPosition { epoch: self.origin.epoch, last: self.outbound.last() }
    }

    /// Returns whether all messages published to the group up to `published` have left as effects. That needs a tick
    /// after they were published, and does not depend on later messages.
    pub fn has_transmitted(&self, published: PublishedPosition) -> bool {
        // All data of the old epoch leaves before a new one begins.
        published.epoch != self.origin.epoch || published.last <= self.outbound.sent().0
    }

    /// Returns whether published messages wait in an open datagram, which the next tick sends.
    pub fn has_open_datagram(&self) -> bool {
        self.outbound.opened().is_some()
    }

    /// Returns whether effects are pending.
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Publishes one message outside a batch. `whole` creates an owned copy of it.
    fn publish_alone(
        &mut self,
        now: ClockReading,
        client: ClientId,
        message: MessageRef<'_>,
        whole: &dyn Fn() -> Message,
    ) -> Result<(), Refusal> {
        let (bytes, bytes_max) = (message.body_bytes(), self.settings.message_bytes_max);
        let refusal = match () {
            () if self.stop.is_some() => Some(Refusal::Stopping),
            () if bytes_max < bytes => Some(Refusal::MessageTooLarge { bytes, bytes_max }),
            () if !self.host_permissions().publish.permits(message.subject) => {
                Some(Refusal::PublishDenied(message.subject.clone()))
            }
            () => None,
        };
        if let Some(refusal) = refusal {
            self.counters.refusals += 1;
            return Err(refusal);
        }
        let (key, begins) = self.publication.runs.next(message.subject);
        let (changes, except) = (self.interest_changes(), self.publication.except(client));
        if begins || self.publication.route.changes != changes || self.publication.route.except != except {
            let local = self.local_matches(message.subject, except);
            self.publication.route = Route {
                is_poll: is_text_poll(message.subject),
                owner: inbox_owner(message.subject),
                groups: self.groups_of(message.subject, local.as_deref()),
                receivers: None,
                is_wanted: self.is_wanted(message.subject),
                local,
                except,
                changes,
            };
        }
        if self.publication.route.is_poll && message.reply.is_some() {
            self.on_text_poll(now, client, &whole());
            return Ok(());
        }
        self.counters.messages_published += 1;
        self.outbound.record_opened(now.instant);
        if self.publication.route.groups.is_some() || !message.headers.is_empty() {
            self.publish_shared(now, key, message, whole);
            return Ok(());
        }
        let numbered = self.send_routed(now, key, message);
        let Some(matched) = self.publication.route.local.clone() else { return Ok(()) };
        match &mut self.publication.batch {
            Some(batch) => batch.begin_local(message, matched, numbered.map(|(seq, _)| seq)),
            None => self.deliver_local(&matched, self.own_delivery(whole(), numbered).into()),
        }
        Ok(())
    }

    /// Returns the local subscriptions to a subject, whatever their mode, without those of one client; `None` if there
    /// are none.
    pub(super) fn local_matches(&mut self, subject: &Subject, except: Option<ClientId>) -> Option<Arc<MatchSet>> {
        let matched = self.interest.matches_any(subject)?;
        match except {
            Some(client) => matched.without(client),
            None => Some(matched),
        }
    }

    /// Returns the change counters of the subscriptions here and of those elsewhere.
    pub(super) fn interest_changes(&self) -> (u64, u64) {
        (self.interest.changes(), self.remote_interest.changes())
    }

    /// Returns the number of known subscriptions that a message of the client on the subject would reach; a queue group
    /// counts once. The flag is true if the subscriptions of all reachable peers are known, so that 0 is certain. The
    /// call is cheap for the subject published last.
    pub fn receivers(&mut self, client: ClientId, subject: &Subject) -> (u64, bool) {
        let except = self.publication.except(client);
        let is_same =
            (self.publication.route.changes, self.publication.route.except) == (self.interest_changes(), except);
        let is_routed = is_same && self.publication.runs.continues_run(subject);
        let count = match self.publication.route.receivers.filter(|_| is_routed) {
            Some(count) => count,
            None => self.count_receivers(subject, except),
        };
        if is_routed {
            self.publication.route.receivers = Some(count);
        }
        (count, 0 < count || self.knows_all_interest())
    }

    /// Publishes a message with headers, or to queue groups. Header lines that a client may not write are removed.
    fn publish_shared(
        &mut self,
        now: ClockReading,
        key: SubjectRunKey<'_>,
        message: MessageRef<'_>,
        whole: &dyn Fn() -> Message,
    ) {
        let local = self.publication.route.local.clone();
        let recipients = match self.publication.route.groups.clone() {
            Some(groups) => self.choose_recipients(&groups, local.as_ref(), self.owner()),
            None => QueueRecipients::default(),
        };
        let (stamped, own) = recipients.headers(message.headers);
        let numbered = self.send_routed(now, key, MessageRef { headers: &stamped, ..message });
        self.count_assignments(recipients.peers(), self.owner().is_some());
        // Each message has its own recipients.
        self.publication.batch = None;
        let Some(local) = local else { return };
        let mut whole = whole();
        if let Cow::Owned(own) = own {
            whole.headers = Headers::from_block(own.into());
        }
        if let Some(plain) = local.plain() {
            self.deliver_local(plain, self.own_delivery(whole.clone(), numbered).into());
        }
        self.deliver_own_assignments(&recipients, numbered, &whole);
    }

    /// Returns the delivery of a message of this peer's own, with its sequence number and history offset if it has
    /// them.
    pub(super) fn own_delivery(&self, message: Message, numbered: Option<(Seq, u32)>) -> Delivery {
        let (seq, offset) = numbered.unzip();
        let origin = self.own_origin();
        Delivery { offset, origin, ..Delivery::new(message, self.own_publisher(), seq, Verdict::Direct) }
    }

    /// Returns the peer whose inbox the current subject belongs to, if it is present: this one or another.
    fn owner(&self) -> Option<Epoch> {
        let is_present =
            |owner: &Epoch| *owner == self.origin.epoch || self.members.get(owner).is_some_and(Member::has_inbox);
        self.publication.route.owner.filter(is_present)
    }

    /// Sends a message to the peers that its subject addresses, unless it is certain that no peer wants it. Returns its
    /// sequence number and history offset if it went to the group and the window had room.
    fn send_routed(
        &mut self,
        now: ClockReading,
        key: SubjectRunKey<'_>,
        message: MessageRef<'_>,
    ) -> Option<(Seq, u32)> {
        match self.owner() {
            Some(owner) if owner == self.origin.epoch => None,
            Some(owner) => {
                self.send_to(now, owner, message);
                None
            }
            // Rule: publish-suppression
            None if !self.publication.route.is_wanted && self.is_certain(now) => {
                self.counters.messages_suppressed += 1;
                None
            }
            None => self.send_to_all(now, key, message),
        }
    }

    /// Sends to the group. Returns the message's sequence number and its offset in the history, if the window had room
    /// for them.
    pub(super) fn send_to_all(
        &mut self,
        now: ClockReading,
        key: SubjectRunKey<'_>,
        message: MessageRef<'_>,
    ) -> Option<(Seq, u32)> {
        let numbering = match self.publication.window.number(key, now, &mut self.rng) {
            Numbering::FramesExhausted => {
                self.begin_epoch(now, EpochChange::FramesExhausted);
                self.outbound.record_opened(now.instant);
                self.publication.window.number(key, now, &mut self.rng)
            }
            numbering => numbering,
        };
        let entry = match numbering {
            Numbering::Numbered { seq, stamp, chain, .. } => Entry { message, seq: Some(seq), stamp, chain },
            Numbering::Unnumbered | Numbering::FramesExhausted => {
                self.counters.messages_unnumbered += 1;
                Entry { message, seq: None, stamp: None, chain: None }
            }
        };
        self.outbound.multicast.push(now.instant, &self.origin, &entry, &mut self.outbound.sealed);
        self.send_sealed(now, None);
        let Numbering::Numbered { seq: last, offset, .. } = numbering else { return None };
        let datagram_location = self.outbound.multicast.last_entry_location(message);
        let noted = self.publication.window.noted();
        let start = RunStart { now, seq: last, offset, datagram_location };
        let slot = self.publication.history.record_in(key, noted, start, message);
        if let Some(slot) = slot.filter(|_| slot != noted) {
            self.publication.window.note(slot);
        }
        if key.subject_run().is_some()
            && message.is_plain()
            && let Some((seq, at)) = self.outbound.multicast.open_run()
        {
            let left = self.publication.window.room_after(last);
            let offset = offset.wrapping_add(1);
            let except = self.publication.route.except;
            self.publication.batch = Some(PublishBatch { now, seq, offset, count: 0, left, at, except, local: None });
        }
        Some((last, offset))
    }

    pub(super) fn send_to(&mut self, now: ClockReading, owner: Epoch, message: MessageRef<'_>) {
        let Some(member) = self.members.get_mut(&owner) else { return };
        let entry = Entry { message, seq: None, stamp: None, chain: None };
        member.directed.push(now.instant, &self.origin, &entry, &mut self.outbound.sealed);
        self.outbound.record_open_directed(owner);
        self.send_sealed(now, Some(owner));
    }

    /// Sends the sealed datagrams to the group, or to one member.
    pub(super) fn send_sealed(&mut self, now: ClockReading, to: Option<Epoch>) {
        if self.outbound.sealed.is_empty() {
            return;
        }
        let Some(epoch) = to else { return self.send_paced(now) };
        let mut sealed = std::mem::take(&mut self.outbound.sealed);
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let address = member.address;
        member.heartbeat_timer.on_datagram(now.instant);
        for datagram in &sealed {
            member.directed_ring.push(now.instant, datagram.dseq, datagram.before, &datagram.bytes);
            self.outbound.resends.on_sent(now.instant, datagram.bytes.len());
        }
        for SealedDatagram { bytes, .. } in sealed.drain(..) {
            self.send(Some(address), bytes);
        }
        self.outbound.sealed = sealed;
    }

    pub(super) fn send(&mut self, to: Option<SocketAddr>, bytes: Bytes) {
        self.counters.bytes_out += bytes.len() as u64;
        match to {
            None => {
                self.counters.datagrams_multicast += 1;
                self.effects.push_back(Effect::Multicast(bytes));
            }
            Some(to) => {
                self.counters.datagrams_unicast += 1;
                self.effects.push_back(Effect::Unicast { to, bytes });
            }
        }
    }

    /// Seals all open datagrams.
    pub(super) fn flush(&mut self, now: ClockReading) {
        let open = self.outbound.take_open();
        self.outbound.multicast.seal(now.instant, &self.origin, &mut self.outbound.sealed);
        self.send_sealed(now, None);
        open.into_iter().for_each(|epoch| self.seal_directed(now, epoch));
    }

    /// Seals the open datagram of the directed stream to a member, if there is one.
    pub(super) fn seal_directed(&mut self, now: ClockReading, epoch: Epoch) {
        if let Some(member) = self.members.get_mut(&epoch) {
            member.directed.seal(now.instant, &self.origin, &mut self.outbound.sealed);
            self.send_sealed(now, Some(epoch));
        }
    }
}

/// Returns the epoch that an inbox subject names.
fn inbox_owner(subject: &Subject) -> Option<Epoch> {
    // Most subjects are in no inbox, as their first bytes show.
    if !subject.as_bytes().starts_with(INBOX_PREFIX.as_bytes()) {
        return None;
    }
    let rest = subject.as_str().strip_prefix(INBOX_PREFIX)?;
    let (digits, _) = rest.split_once('.')?;
    if digits.len() != 16 {
        return None;
    }
    Epoch::new(u64::from_str_radix(digits, 16).ok()?)
}
