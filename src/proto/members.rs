//! The other peers: one member for each observed epoch, with its liveness and the streams from and to it.

mod deadlines;
mod rows;
mod run_identity;

pub use run_identity::RunIdentity;

use crate::message::{DeliveryMode, Dseq, Epoch, Message, Publisher};
use crate::proto::address_proof::AddressProof;
use crate::proto::advisory::{AdvisoryStream, Throttle};
use crate::proto::certified::MemberCertificate;
use crate::proto::contact::{Contact, FirstContact, margin};
use crate::proto::departed::DepartedMember;
use crate::proto::interest_sync::InterestSync;
use crate::proto::liveness::MulticastLiveness;
use crate::proto::loss::LossCounters;
use crate::proto::member_streams::{broadcast, directed_ring, inbox, reassembly};
use crate::proto::nak::NakScheduler;
use crate::proto::newest_control::NewestControl;
use crate::proto::pace::{PacedReceiver, ReceiveProgress};
use crate::proto::quarantine::{JumpVerdict, Quarantine};
use crate::proto::queue_ledger::{Assignments, ReceivedShares};
use crate::proto::recv::{RecvStream, StreamKind};
use crate::proto::refusals::Refusals;
use crate::proto::reported_loss::ReportedLoss;
use crate::proto::resend::Ring;
use crate::proto::send::{HEARTBEAT_FIRST, HeartbeatTimer, SendStream};
use crate::proto::stats::MemberState;
use crate::proto::transit::Transit;
use crate::proto::wall_clock::ClockOffset;
use crate::proto::{Settings, mutant::Mutant};
use crate::rng::Rng;
use crate::time::{Instant, WallTime};
use crate::wire::{Header, Kind, PeerAnnouncement, Record, Report};
use std::net::SocketAddr;
use std::time::Duration;

/// Longest heartbeat interval that is accepted: 60 s, the configurable maximum.
const HEARTBEAT_MAX: Duration = Duration::from_secs(60);

/// Time after the first BYE of a peer during which its last report of queue-group messages is accepted.
pub const LAST_REPORT_TIME: Duration = Duration::from_millis(200);

/// Minimum time that a name must be observed on two live epochs, counted from the first contact with the newer, to be a
/// duplicate. No packet of a restarted peer is in flight that long.
pub const DUPLICATE_AFTER: Duration = Duration::from_millis(500);

/// Stream of a member to which a datagram belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The member's multicast stream, for subscriptions in mode repair and for the ledger.
    Bcast,
    /// The same stream for subscriptions in mode live.
    Live,
    /// The member's directed stream to this peer.
    Ptp,
}

impl Side {
    /// All sides.
    pub const ALL: [Side; 3] = [Side::Bcast, Side::Live, Side::Ptp];

    /// Returns the delivery mode of the subscriptions that this side serves.
    pub fn mode(self) -> DeliveryMode {
        if self == Side::Live { DeliveryMode::Live } else { DeliveryMode::Repair }
    }
}

/// Bit that marks the live side: its number in the subscription window is the member's number with this bit set.
const LIVE_BIT: u32 = 1 << 31;

/// One epoch of another peer.
#[derive(Debug)]
pub struct Member {
    /// Identity of the peer in deliveries and losses.
    pub publisher: Publisher,
    /// The address the epoch is bound to (A10).
    pub address: SocketAddr,
    /// Certificate of the peer's host.
    pub certificate: MemberCertificate,
    /// Liveness state of the peer.
    pub state: MemberState,
    /// Time of the first datagram from the peer.
    pub first_heard: Instant,
    /// Time of the last new datagram from the peer.
    pub last_heard: Instant,
    /// Latest possible start time of the peer.
    pub started: Instant,
    /// Transit time of the peer's datagrams.
    transit: Transit,
    /// Difference between the wall clocks of the peer and of this one, if a stamp of the peer has arrived.
    pub clock_offset: Option<ClockOffset>,
    /// Liveness of the peer's multicast.
    pub liveness: MulticastLiveness,
    /// Time at which the peer left or was given up.
    pub ended: Option<Instant>,
    /// The newest control datagram accepted.
    pub control: NewestControl,
    /// Heartbeat interval of the peer.
    pub heartbeat: Duration,
    /// Publication window time of the peer, once announced.
    pub pub_window_time: Option<Duration>,
    /// Proof of the address (wire.md W99).
    pub proof: AddressProof,
    /// Time of the last unscheduled announcement to the peer.
    pub announced_at: Option<Instant>,
    /// History requests that arrived before the address was proven, or faster than they are answered.
    pub parked_questions: Vec<Message>,
    /// Time at which the history answers sent so far have used no more than the peer's share of the rate.
    pub answers_due: Instant,
    /// Datagrams of the directed stream to the peer that are kept for retransmission.
    pub directed_ring: Ring,
    /// Loss of this peer's streams, as the peer reports it.
    pub reported_loss: ReportedLoss,
    /// Receive capacity of the peer for this peer's multicast stream.
    pub receiver: PacedReceiver,
    /// Progress of receiving the peer's multicast stream, and what was reported to it.
    pub receive_progress: ReceiveProgress,
    /// The peer's multicast stream.
    pub bcast: RecvStream,
    /// The same stream for subscriptions in mode live; present only while there are such subscriptions.
    pub live: Option<RecvStream>,
    /// The peer's directed stream to this peer.
    pub ptp: RecvStream,
    /// This peer's directed stream to the member.
    pub directed: SendStream,
    /// Time of the last answer to a HELLO of the peer.
    pub hello_answered_at: Option<Instant>,
    /// Synchronisation of this peer's advertised subscriptions with the member.
    pub interest_sync: InterestSync,
    /// Time of the last answer to the peer's requests for advertised subscriptions.
    pub interest_answered: Option<Instant>,
    /// True if a later run of the same peer has been observed.
    pub is_superseded: bool,
    /// Queue-group messages assigned to the peer's members: in this peer's multicast stream, and in the directed stream
    /// to it.
    pub assigned: [Assignments; 2],
    /// Queue-group messages that the peer assigned to members here: in its multicast stream, and in its directed one.
    pub shares: [ReceivedShares; 2],
    /// Queue groups whose messages the peer has recently returned.
    pub refusals: Refusals,
    /// Timer of unicast heartbeats to the peer.
    pub heartbeat_timer: HeartbeatTimer,
    /// Quarantined jump of the peer's multicast stream, and of its directed stream.
    pub quarantine: [Option<Quarantine>; 2],
    /// Counters for `show loss`.
    pub losses: LossCounters,
    /// Counters for `show loss` of the live side.
    pub live_losses: LossCounters,
    /// Advisory throttles, one for each stream in the order of [`AdvisoryStream::ALL`].
    pub throttles: [Throttle; 4],
    /// True if a younger epoch has the same name.
    pub has_successor: bool,
    /// True if another live epoch has the same name.
    pub duplicate_name: bool,
    /// True if a mutant dropped the ledger on silence.
    pub forgotten: bool,
}

impl Member {
    /// Creates the member on first contact, which fixes the baseline permanently (R4).
    pub fn new(settings: &Settings, first: FirstContact, receiver: PacedReceiver, rng: &mut Rng) -> Member {
        let FirstContact { publisher, address, contact, at: now, arrived, listening_since } = first;
        let uptime = Duration::from_millis(u64::from(contact.uptime_ms));
        Member {
            bcast: broadcast(settings, contact, arrived, listening_since, rng),
            ptp: inbox(settings, arrived, (Dseq(0), 0), rng),
            proof: AddressProof::new(rng),
            announced_at: None,
            parked_questions: Vec::new(),
            answers_due: now,
            directed_ring: directed_ring(settings, Dseq(0)),
            reported_loss: ReportedLoss::default(),
            directed: SendStream::new(Some(publisher.epoch), settings),
            publisher,
            address,
            certificate: MemberCertificate::default(),
            state: MemberState::Up,
            first_heard: now,
            last_heard: now,
            started: arrived - uptime,
            transit: Transit::new(now, contact.uptime_ms),
            clock_offset: None,
            liveness: MulticastLiveness::new(now),
            ended: None,
            control: NewestControl::default(),
            heartbeat: settings.heartbeat,
            pub_window_time: None,
            hello_answered_at: None,
            interest_sync: InterestSync::default(),
            interest_answered: None,
            is_superseded: false,
            assigned: Default::default(),
            refusals: Refusals::default(),
            shares: Default::default(),
            heartbeat_timer: HeartbeatTimer::steady(now, settings.heartbeat),
            quarantine: [None, None],
            live: None,
            receiver,
            receive_progress: ReceiveProgress::new(&settings.pace, contact.below),
            losses: LossCounters::default(),
            live_losses: LossCounters::default(),
            throttles: AdvisoryStream::ALL.map(Throttle::new),
            has_successor: false,
            duplicate_name: false,
            forgotten: false,
        }
    }

    /// Returns whether any host may have forged the only datagram of the peer: its address is unproven.
    pub fn is_unproven_newcomer(&self) -> bool {
        !self.proof.is_proven && self.last_heard == self.first_heard
    }

    /// Handles a further datagram of the peer, read now, which arrived at `arrived` at the earliest. Returns its latest
    /// possible send time. The uptimes of other datagrams reveal that a datagram was in flight for seconds.
    pub fn on_further_contact(
        &mut self,
        settings: &Settings,
        contact: Contact,
        now: Instant,
        arrived: Instant,
        rng: &mut Rng,
    ) -> Instant {
        if std::mem::take(&mut self.forgotten) {
            self.bcast = broadcast(settings, contact, arrived, arrived, rng);
        }
        let sealed = self.transit.on_datagram(now, arrived, contact.uptime_ms);
        if !sealed.older.is_zero() {
            self.sides_mut().for_each(|recv| recv.on_older(sealed.older));
        }
        sealed.latest
    }

    /// Returns the state to keep of the member after its removal.
    pub fn departed(&self) -> DepartedMember {
        DepartedMember {
            epoch: self.epoch(),
            left: self.state == MemberState::Left,
            directed: (self.directed.high(), self.directed.count()),
            high: (self.bcast.ledger().high(), self.bcast.ledger().count()),
            control: self.control,
            ptp: (self.ptp.ledger().high(), self.ptp.ledger().count()),
            suppresses: self.interest_sync.suppresses(),
            assigned: [self.assigned[0].totals(), self.assigned[1].totals()],
            shares: self.shares,
            silent_since: self.silent_at(),
        }
    }

    /// Resumes the directed streams at the position that they had when the member was removed.
    pub fn resume(&mut self, departed: &DepartedMember, settings: &Settings, now: Instant, rng: &mut Rng) {
        self.control = departed.control;
        if let Some(suppresses) = departed.suppresses {
            self.interest_sync.on_control(suppresses);
        }
        self.ptp = inbox(settings, now, departed.ptp, rng);
        self.directed.resume(departed.directed.0, departed.directed.1);
        self.directed_ring = directed_ring(settings, departed.directed.0);
        (self.assigned, self.shares) = (departed.assigned.map(Assignments::resume), departed.shares);
    }

    /// Restarts the directed streams in both directions after this peer began a new epoch.
    pub fn on_own_epoch(&mut self, settings: &Settings, now: Instant, rng: &mut Rng) {
        self.ptp = inbox(settings, now, (Dseq(0), 0), rng);
        self.directed = SendStream::new(Some(self.publisher.epoch), settings);
        self.directed_ring = directed_ring(settings, Dseq(0));
        self.interest_sync.on_own_epoch();
        // The member reports on this peer's new run from 0.
        self.reported_loss = ReportedLoss::default();
        (self.assigned, self.shares) = Default::default();
    }

    /// Returns one side, with the member's number in the subscription window and the loss counters.
    pub fn side(&mut self, side: Side) -> Option<(&mut RecvStream, u32, &mut LossCounters)> {
        let uid = self.publisher.uid;
        match side {
            Side::Bcast => Some((&mut self.bcast, uid, &mut self.losses)),
            Side::Live => Some((self.live.as_mut()?, uid | LIVE_BIT, &mut self.live_losses)),
            Side::Ptp => Some((&mut self.ptp, uid, &mut self.losses)),
        }
    }

    /// Returns all existing sides.
    pub fn sides(&self) -> impl Iterator<Item = &RecvStream> {
        [Some(&self.bcast), self.live.as_ref(), Some(&self.ptp)].into_iter().flatten()
    }

    /// Returns all existing sides for modification.
    pub fn sides_mut(&mut self) -> impl Iterator<Item = &mut RecvStream> {
        [Some(&mut self.bcast), self.live.as_mut(), Some(&mut self.ptp)].into_iter().flatten()
    }

    /// Returns the bytes of messages that wait for an earlier datagram, on all sides.
    pub fn buffered_bytes(&self) -> usize {
        self.sides().map(RecvStream::buffered_bytes).sum()
    }

    /// Records that an entry with this number was evicted from the subscription window.
    pub fn on_evicted(&mut self, uid: u32) {
        match uid & LIVE_BIT {
            0 => self.bcast.on_evicted(),
            _ => self.live.iter_mut().for_each(RecvStream::on_evicted),
        }
    }

    /// Returns whether the number in the subscription window belongs to this member.
    pub fn has_uid(&self, uid: u32) -> bool {
        self.publisher.uid == uid & !LIVE_BIT
    }

    /// Returns the lowest missing datagram of the peer's multicast stream, if any is missing.
    pub fn awaited(&self) -> Option<Dseq> {
        let ledger = self.bcast.ledger();
        ledger.is_waiting().then(|| ledger.frontier())
    }

    /// Starts the live side at the current position. It covers what is pending and what arrives later.
    pub fn begin_live(&mut self, settings: &Settings, now: Instant, rng: &mut Rng) {
        if self.live.is_none() {
            let ledger = self.bcast.ledger().tail(now);
            let nak_scheduler = NakScheduler::new(settings.recovery.grace, false, rng.fork());
            let birth = self.bcast.birth().filter(|_| !settings.mutants.is(Mutant::LiveFirstHeard));
            let kind = StreamKind::Bcast { birth };
            self.live = Some(RecvStream::new(kind, ledger, nak_scheduler, reassembly(settings)));
        }
    }

    /// Returns the epoch of the peer.
    pub fn epoch(&self) -> Epoch {
        self.publisher.epoch
    }

    /// Returns whether the peer may still be running.
    pub fn is_alive(&self) -> bool {
        matches!(self.state, MemberState::Up | MemberState::Silent)
    }

    /// Returns whether messages on the subjects of the peer's inbox go to the peer alone. If a later epoch of the same
    /// name at another address has replaced it, they go to the group, where programs that attached to the former epoch
    /// still receive them. Two live peers of one name keep their inboxes.
    pub fn has_inbox(&self) -> bool {
        self.is_alive() && (!self.has_successor || self.duplicate_name)
    }

    /// Returns whether history requests of the peer wait only for the answer rate.
    pub fn has_questions_waiting(&self) -> bool {
        self.is_alive() && self.proof.is_proven && !self.parked_questions.is_empty()
    }

    /// Returns whether messages may be assigned to the peer's clients: it is up, and no later run of the same peer has
    /// replaced it.
    pub fn is_reachable(&self) -> bool {
        self.state == MemberState::Up && !self.is_superseded
    }

    /// Returns the identity of this run of the peer.
    pub fn run(&self) -> RunIdentity<'_> {
        RunIdentity {
            name: self.publisher.name.as_ref(),
            address: self.address,
            started: self.started,
            last_heard: self.last_heard,
        }
    }

    /// Returns whether this member is a later run of the peer of a former run.
    pub fn follows(&self, former: RunIdentity<'_>) -> bool {
        former.precedes(self.run(), self.first_heard)
    }

    /// Applies the name and the intervals of an announcement.
    pub fn on_announce(&mut self, announce: &PeerAnnouncement) {
        self.publisher.name = Some(announce.name.clone());
        // The clamp keeps a publisher from flapping at will and from postponing its silence forever.
        self.heartbeat = announce.heartbeat.clamp(HEARTBEAT_FIRST, HEARTBEAT_MAX);
        self.pub_window_time = Some(announce.pub_window_time);
    }

    /// Returns the time at which the peer counts as silent: 3.5 heartbeat intervals after the last new packet (R8).
    pub fn silent_at(&self) -> Instant {
        self.last_heard + self.heartbeat * 7 / 2
    }

    /// Returns the time until which the peer counts as heard: 1.5 heartbeat intervals after the last new packet.
    /// Silence beyond it does not use up the recovery time of missing datagrams (A1).
    pub fn alive_until(&self) -> Instant {
        self.last_heard + self.heartbeat * 3 / 2
    }

    /// Returns the time until which the recovery time of missing datagrams runs. It is unbounded once the peer has
    /// ended.
    pub fn awaited_until(&self) -> Instant {
        if self.is_alive() { self.alive_until() } else { Instant::MAX }
    }

    /// Handles the peer's report on what it missed of this peer's streams.
    pub fn on_report(&mut self, report: Report, at: WallTime) {
        let [_, _, multicast, directed] = &mut self.throttles;
        self.reported_loss.on_report(report, at, multicast, directed);
    }

    /// Checks the highest number `high` of a datagram of the peer, with `records` if it carries data. An implausible
    /// jump is quarantined (A10).
    pub fn check_jump(&mut self, header: &Header, high: Dseq, records: Option<&Vec<Record>>) -> JumpVerdict {
        let directed = header.kind == Kind::Directed;
        let known = if directed { &self.ptp } else { &self.bcast }.ledger().high();
        Quarantine::check(&mut self.quarantine[usize::from(directed)], known, header, high, records)
    }

    /// Handles a sign of life of the peer. Returns whether the peer was not up before, or counted as a former run of
    /// another member.
    pub fn on_sign_of_life(&mut self, now: Instant) -> bool {
        self.on_contact(now);
        self.proof.earn_credit();
        self.last_heard = now;
        std::mem::take(&mut self.is_superseded) || self.state != MemberState::Up
    }

    /// Updates the reports to the peer after requested datagrams have arrived, or were given up. Returns whether a
    /// report is due.
    pub fn record_awaited(&mut self, now: Instant, wants_repair: bool, receivers: usize) -> bool {
        let awaited = self.awaited().filter(|_| wants_repair);
        self.receive_progress.on_awaited(now, awaited);
        self.receive_progress.deadline(receivers).is_some_and(|at| at <= now)
    }

    /// Extends the deadlines of missing datagrams when something new arrives. The extension is the time that did not
    /// count because the peer was not heard.
    pub fn on_contact(&mut self, now: Instant) {
        if self.awaited_until() < now {
            let by = now.since(self.awaited_until());
            self.sides_mut().for_each(|recv| recv.postpone(now, by));
        }
    }

    /// Returns the time after which sent messages are younger than the peer's window time. Everything counts as older
    /// until that time is known.
    pub fn recent(&self, now: Instant) -> Instant {
        self.pub_window_time.map_or(now, |time| (now - time) + margin(time))
    }

    /// Returns whether `other` is a second peer with the same name, and not an earlier or later run of this one.
    pub fn is_duplicate_of(&self, other: &Member) -> bool {
        let same = self.publisher.name.is_some() && self.publisher.name == other.publisher.name;
        let newer = self.first_heard.max(other.first_heard) + DUPLICATE_AFTER;
        same && self.address != other.address
            && self.is_alive()
            && other.is_alive()
            && newer <= self.last_heard
            && newer <= other.last_heard
    }
}
