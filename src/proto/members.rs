//! The other peers: one member for each epoch heard, its liveness, and the streams from and to it.

use crate::message::{DeliveryMode, Dseq, Epoch, Message, MissingDatagrams, Publisher};
use crate::proto::advisory::{AdvisoryStream, Throttle};
use crate::proto::departed::DepartedMember;
use crate::proto::fragment::Reassembly;
use crate::proto::interest_sync::InterestSync;
use crate::proto::ledger::Ledger;
use crate::proto::liveness::MulticastLiveness;
use crate::proto::loss::LossCounters;
use crate::proto::nak::NakScheduler;
use crate::proto::newest_control::NewestControl;
use crate::proto::pace::{PacedReceiver, ReceiveProgress};
use crate::proto::queue_ledger::{Assignments, ReceivedShares};
use crate::proto::recv::{RecvStream, StreamKind};
use crate::proto::refusals::Refusals;
use crate::proto::resend::{Ring, RingSettings};
use crate::proto::send::{HEARTBEAT_FIRST, HeartbeatTimer, SendStream};
use crate::proto::stats::{LossRow, MemberRow, MemberState};
use crate::proto::transit::Transit;
use crate::proto::{Settings, mutant::Mutant};
use crate::rng::Rng;
use crate::time::{Instant, WallTime};
use crate::wire::{Announce, Header, Record, Report};
use std::net::SocketAddr;
use std::time::Duration;

/// The part of the margin of R4 that covers latency.
const MARGIN: Duration = Duration::from_millis(100);

/// The longest heartbeat interval that is believed: 60 s, the most that can be configured.
const HEARTBEAT_MAX: Duration = Duration::from_secs(60);

/// Bytes of the directed stream to one peer that can be sent again.
const DIRECTED_RING_BYTES: usize = 256 << 10;

/// Time after the first BYE of a peer in which its last report of queue-group messages may come.
pub const LAST_REPORT_TIME: Duration = Duration::from_millis(200);

/// The largest plausible jump of a datagram number without anything in between (A10).
pub const JUMP_MAX: u64 = 1 << 20;
/// A HELLO that wants a reply is padded to this, so that the reply is never longer than the question (5.6).
pub const HELLO_BYTES: usize = 256;

/// Datagrams that are sent to an address that has proven nothing, for each datagram that is accepted from there.
const UNPROVEN_DATAGRAMS: u8 = 3;
/// A token that did not come back after so long is replaced in the next word to its peer: longer than a round trip on a LAN.
const TOKEN_TIME: Duration = Duration::from_millis(50);
/// Peers that answer the first multicast of an address that has proven nothing, on the average; twice as many answer the next one.
pub const ANSWERING_PEERS: u64 = 8;
/// After so many datagrams that were not answered by unicast, no more than [`ANSWERING_PEERS`] answer any multicast.
const UNANSWERED_MAX: u8 = 8;

/// A name heard from two live epochs this long after the first contact with the newer is a duplicate; a packet of
/// a peer that was restarted is never under way that long.
pub const DUPLICATE_AFTER: Duration = Duration::from_millis(500);

/// The margin μ of R4 for two clocks that ran for `age`: 100 ms and 2 x 500 ppm.
pub fn margin(age: Duration) -> Duration {
    MARGIN + age / 1000
}

/// Which side of a member a datagram is taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its multicast stream, for subscriptions in mode repair, and for the ledger.
    Bcast,
    /// The same stream for subscriptions in mode live.
    Live,
    /// Its directed stream to this peer.
    Ptp,
}

impl Side {
    /// All of them.
    pub const ALL: [Side; 3] = [Side::Bcast, Side::Live, Side::Ptp];

    /// Whose subscriptions it serves.
    pub fn mode(self) -> DeliveryMode {
        if self == Side::Live { DeliveryMode::Live } else { DeliveryMode::Repair }
    }
}

/// The number of the live side in the subscription window is that of the member and this bit.
const LIVE_BIT: u32 = 1 << 31;

/// The first thing heard of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Its own word on how long it had been running, in milliseconds, saturating.
    pub uptime_ms: u32,
    /// Whether the uptime is that of the sending. Data that is sent again has the uptime of its sealing.
    pub is_fresh: bool,
    /// The datagram before the first one that follows for certain: one below the datagram heard, or the highest
    /// that a heartbeat tells.
    pub below: Dseq,
    /// Messages begun up to `below`.
    pub count: u64,
    /// The number of the datagram, if it was one of control.
    pub control: Option<u64>,
}

impl Contact {
    /// From a control datagram.
    pub fn of_announce(header: &Header, announce: &Announce) -> Contact {
        Contact {
            uptime_ms: header.uptime_ms,
            is_fresh: true,
            below: announce.high,
            count: header.count,
            control: Some(header.number),
        }
    }

    /// From a data datagram.
    pub fn of_data(header: &Header) -> Contact {
        Contact {
            uptime_ms: header.uptime_ms,
            is_fresh: false,
            below: Dseq(header.number - 1),
            count: header.count,
            control: None,
        }
    }
}

/// A jump held back until a second word confirms it.
#[derive(Clone, Debug)]
pub struct Quarantine {
    /// The datagram number jumped to.
    pub number: u64,
    /// The datagram, if it was one of data.
    pub data: Option<(Header, Vec<Record>)>,
}

/// One epoch of another peer.
#[derive(Debug)]
pub struct Member {
    /// How it is named in deliveries and losses.
    pub publisher: Publisher,
    /// The address the epoch is bound to (A10).
    pub address: SocketAddr,
    /// How it is doing.
    pub state: MemberState,
    /// When it was heard first.
    pub first_heard: Instant,
    /// When something new came from it.
    pub last_heard: Instant,
    /// When it started, at the latest.
    pub started: Instant,
    /// How long its datagrams are under way.
    transit: Transit,
    /// Whether its multicasts arrive.
    pub liveness: MulticastLiveness,
    /// When it left or was given up.
    pub ended: Option<Instant>,
    /// The newest control datagram accepted.
    pub control: NewestControl,
    /// Its heartbeat interval.
    pub heartbeat: Duration,
    /// Its publication window time, once told.
    pub pub_window_time: Option<Duration>,
    /// What it must send back from its address before it gets answers (reliability.md 5.6).
    pub token: u64,
    /// When that was sent first.
    token_sent: Option<Instant>,
    /// The token that was sent before it, which may be on its way back.
    former_token: Option<u64>,
    /// What it wants sent back.
    pub echo: Option<u64>,
    /// Whether it has sent back the token.
    pub is_proven: bool,
    /// Whether it has said something to this peer alone.
    pub has_unicast_contact: bool,
    /// Datagrams that may still be sent to it while its address is not proven.
    unproven_credit: u8,
    /// Datagrams accepted from it, and datagrams sent to it before its address was proven; both as far as they matter.
    heard: u8,
    unanswered: u8,
    /// When a word was last said to it out of turn.
    pub announced_at: Option<Instant>,
    /// Questions to the history that came before its address was proven, or faster than they are answered.
    pub parked_questions: Vec<Message>,
    /// When the answers of the history to it will have taken no more than their share.
    pub answers_due: Instant,
    /// Datagrams of the directed stream to it that can be sent again.
    pub directed_ring: Ring,
    /// What it missed of this peer's multicast stream, by its own word.
    pub report: Option<Report>,
    /// The datagrams that it gave up last, by its report, and whether an advisory has counted them.
    reported_missing: MissingDatagrams,
    is_missing_counted: bool,
    /// When something in that changed last.
    pub reported: Option<WallTime>,
    /// What it can take of this peer's multicast stream.
    pub receiver: PacedReceiver,
    /// What was taken of its multicast stream, and told to it.
    pub receive_progress: ReceiveProgress,
    /// Its multicast stream.
    pub bcast: RecvStream,
    /// The same stream as subscriptions in mode live see it; only while there are any.
    pub live: Option<RecvStream>,
    /// Its directed stream to this peer.
    pub ptp: RecvStream,
    /// This peer's directed stream to it.
    pub directed: SendStream,
    /// When a HELLO of it was last answered.
    pub hello_answered_at: Option<Instant>,
    /// Whether it knows what clients here subscribe to.
    pub interest_sync: InterestSync,
    /// Time of the last answer to its requests for the subscriptions here.
    pub interest_answered: Option<Instant>,
    /// Whether a later run of the same peer has been heard since this one was.
    pub is_superseded: bool,
    /// Queue-group messages assigned to its members: in this peer's multicast stream, and in the directed stream to it.
    pub assigned: [Assignments; 2],
    /// Queue-group messages that it assigned to members here: in its multicast stream, and in its directed one.
    pub shares: [ReceivedShares; 2],
    /// Queue groups of which it has just returned messages.
    pub refusals: Refusals,
    /// Unicast heartbeats to it.
    pub beat: HeartbeatTimer,
    /// A jump held back: of its multicast stream, and of its directed one.
    pub quarantine: [Option<Quarantine>; 2],
    /// Counters for `show loss`.
    pub losses: LossCounters,
    /// The same for the live side.
    pub live_losses: LossCounters,
    /// What is to be told of its multicast stream, of its directed one, and of what it lost of this peer's.
    pub throttles: [Throttle; 3],
    /// Whether a younger epoch has its name.
    pub has_successor: bool,
    /// Whether another live epoch has its name.
    pub duplicate_name: bool,
    /// Only ever set by the mutant that forgets on silence.
    pub forgotten: bool,
}

impl Member {
    #[expect(clippy::too_many_arguments, reason = "all that is known at first contact")]
    /// First contact: fixes the baseline once and for all (R4). `listening` is when this peer joined the group, `arrived`
    /// when the datagram arrived at the earliest.
    pub fn new(
        settings: &Settings,
        publisher: Publisher,
        address: SocketAddr,
        contact: Contact,
        now: Instant,
        (listening, arrived): (Instant, Instant),
        receiver: PacedReceiver,
        rng: &mut Rng,
    ) -> Member {
        let uptime = Duration::from_millis(u64::from(contact.uptime_ms));
        Member {
            bcast: broadcast(settings, contact, arrived, listening, rng),
            ptp: inbox(settings, arrived, (Dseq(0), 0), rng),
            token: rng.next_u64() | 1,
            token_sent: None,
            former_token: None,
            echo: None,
            is_proven: false,
            has_unicast_contact: false,
            unproven_credit: UNPROVEN_DATAGRAMS,
            heard: 0,
            unanswered: 0,
            announced_at: None,
            parked_questions: Vec::new(),
            answers_due: now,
            directed_ring: directed_ring(settings, Dseq(0)),
            report: None,
            reported_missing: MissingDatagrams::default(),
            is_missing_counted: true,
            reported: None,
            directed: SendStream::new(Some(publisher.epoch), settings.datagram_bytes_max, settings.mutants),
            publisher,
            address,
            state: MemberState::Up,
            first_heard: now,
            last_heard: now,
            started: arrived - uptime,
            transit: Transit::new(now, contact.uptime_ms),
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
            beat: HeartbeatTimer::steady(now, settings.heartbeat),
            quarantine: [None, None],
            live: None,
            receiver,
            receive_progress: ReceiveProgress::new(&settings.pace, contact.below),
            losses: LossCounters::default(),
            live_losses: LossCounters::default(),
            throttles: [AdvisoryStream::Bcast, AdvisoryStream::Ptp, AdvisoryStream::Outbound].map(Throttle::new),
            has_successor: false,
            duplicate_name: false,
            forgotten: false,
        }
    }

    /// The token that a word to it carries: another one if the last did not come back in time. A token is sent back once, and that
    /// may be lost.
    pub fn next_token(&mut self, now: Instant, rng: &mut Rng) -> u64 {
        if !self.is_proven && self.token_sent.is_some_and(|sent| TOKEN_TIME <= now.since(sent)) {
            self.former_token = Some(self.token);
            (self.token, self.token_sent) = (rng.next_u64() | 1, None);
        }
        self.token_sent.get_or_insert(now);
        self.token
    }

    /// Whether this proves its address: it is one of the last two tokens that were sent there.
    pub fn is_token(&self, echo: Option<u64>) -> bool {
        echo.is_some() && (echo == Some(self.token) || echo == self.former_token)
    }

    /// Whether one datagram of it was heard and nothing since, and its address is not proven: anybody can forge that.
    pub fn is_unproven_newcomer(&self) -> bool {
        !self.is_proven && self.last_heard == self.first_heard
    }

    /// Takes room for one datagram to its address; false if there is none. There is always room once the address is proven; until
    /// then, one datagram from there earns room for three. Where it was heard by multicast alone, all `peers` have heard it: then a
    /// few of them answer, and more the more often it is heard, so that one forged multicast is not multiplied by every peer.
    pub fn spend_send_credit(&mut self, peers: u64, rng: &mut Rng) -> bool {
        // Rule: proof
        if self.is_proven {
            return true;
        }
        if self.unproven_credit == 0 {
            return false;
        }
        self.unproven_credit -= 1;
        let times = if self.unanswered < UNANSWERED_MAX { self.heard.clamp(1, 32) - 1 } else { 0 };
        let answering = ANSWERING_PEERS << times;
        let may = self.has_unicast_contact || is_among(answering, peers, rng);
        self.unanswered = self.unanswered.saturating_add(u8::from(may));
        may
    }

    /// A new datagram of it was accepted, which earns room for some to it.
    pub fn earn_send_credit(&mut self) {
        self.unproven_credit = UNPROVEN_DATAGRAMS;
        self.heard = self.heard.saturating_add(1);
    }

    /// When a datagram was sent at the latest that is read now, arrived at `arrived` at the earliest, and was sealed at
    /// this uptime: not so long after another one as to have been under way for seconds.
    pub fn latest_send_time(&mut self, (now, arrived): (Instant, Instant), uptime_ms: u32) -> Instant {
        let sealed = self.transit.on_datagram(now, arrived, uptime_ms);
        if !sealed.older.is_zero() {
            self.sides_mut().for_each(|recv| recv.on_older(sealed.older));
        }
        sealed.latest
    }

    /// Takes up the directed streams where they were when the member was forgotten.
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

    /// This peer began a new epoch: the directed streams in both directions begin anew.
    pub fn on_own_epoch(&mut self, settings: &Settings, now: Instant, rng: &mut Rng) {
        self.ptp = inbox(settings, now, (Dseq(0), 0), rng);
        self.directed = SendStream::new(Some(self.publisher.epoch), settings.datagram_bytes_max, settings.mutants);
        self.directed_ring = directed_ring(settings, Dseq(0));
        self.interest_sync.on_own_epoch();
        (self.assigned, self.shares) = Default::default();
    }

    /// One of its sides, with the number of the member in the subscription window and the counters.
    pub fn side(&mut self, side: Side) -> Option<(&mut RecvStream, u32, &mut LossCounters)> {
        let uid = self.publisher.uid;
        match side {
            Side::Bcast => Some((&mut self.bcast, uid, &mut self.losses)),
            Side::Live => Some((self.live.as_mut()?, uid | LIVE_BIT, &mut self.live_losses)),
            Side::Ptp => Some((&mut self.ptp, uid, &mut self.losses)),
        }
    }

    /// All sides that there are.
    pub fn sides(&self) -> impl Iterator<Item = &RecvStream> {
        [Some(&self.bcast), self.live.as_ref(), Some(&self.ptp)].into_iter().flatten()
    }

    /// The same, to be changed.
    pub fn sides_mut(&mut self) -> impl Iterator<Item = &mut RecvStream> {
        [Some(&mut self.bcast), self.live.as_mut(), Some(&mut self.ptp)].into_iter().flatten()
    }

    /// Bytes of messages that wait for an earlier datagram, on all sides.
    pub fn held_bytes(&self) -> usize {
        self.sides().map(RecvStream::held_bytes).sum()
    }

    /// An entry of this number left the subscription window.
    pub fn on_evicted(&mut self, uid: u32) {
        match uid & LIVE_BIT {
            0 => self.bcast.on_evicted(),
            _ => self.live.iter_mut().for_each(RecvStream::on_evicted),
        }
    }

    /// Whether the number in the subscription window is this member's.
    pub fn has_uid(&self, uid: u32) -> bool {
        self.publisher.uid == uid & !LIVE_BIT
    }

    /// How large a datagram to it must be at least: until its token came, there is to be room for an answer that carries it.
    pub fn padding(&self) -> usize {
        if self.echo.is_some() { 0 } else { HELLO_BYTES }
    }

    /// The lowest datagram of its multicast stream that is missing, if any is.
    pub fn awaited(&self) -> Option<Dseq> {
        let ledger = self.bcast.ledger();
        ledger.is_waiting().then(|| ledger.frontier())
    }

    /// Begins the live side here: what is pending or comes later is seen by it.
    pub fn begin_live(&mut self, settings: &Settings, now: Instant, rng: &mut Rng) {
        if self.live.is_none() {
            let ledger = self.bcast.ledger().tail(now);
            let nak_scheduler = NakScheduler::new(settings.recovery.grace, false, rng.fork());
            let birth = self.bcast.birth().filter(|_| !settings.mutants.is(Mutant::LiveFirstHeard));
            let kind = StreamKind::Bcast { birth };
            self.live = Some(RecvStream::new(kind, ledger, nak_scheduler, reassembly(settings)));
        }
    }

    /// The row of `show loss`. What subscriptions in both modes lost counts for each, as in advisories.
    pub fn loss_row(&self) -> LossRow {
        let (ledger, live) = (self.bcast.ledger(), &self.live_losses);
        let row = self.losses.row(self.publisher.clone(), ledger.unexplained(), ledger.states());
        LossRow {
            msg_loss: row.msg_loss.plus(live.msg_loss),
            msg_loss_uncertain: row.msg_loss_uncertain.saturating_add(live.msg_loss_uncertain),
            inconsistent: row.inconsistent + live.inconsistent,
            ..row
        }
    }

    /// What this peer missed of its multicast stream.
    pub fn own_report(&self) -> Report {
        let LossRow { datagrams: states, msg_loss, msg_loss_uncertain, overrun, .. } = self.loss_row();
        Report {
            missing: states.repaired + states.pending + states.lost + states.unverified,
            repaired: states.repaired,
            pending: states.pending,
            unverified: states.unverified,
            lost_min: msg_loss.count,
            lost_max: msg_loss.count.saturating_add(msg_loss_uncertain),
            overrun,
        }
    }

    /// What it says it missed of this peer's.
    pub fn on_report(&mut self, report: Report, at: WallTime) {
        if self.report != Some(report) {
            self.reported = Some(at);
        }
        let before = self.report.replace(report).unwrap_or_default();
        let more = |now: u64, before: u64| now.saturating_sub(before);
        // It may say anything.
        let lost_min = more(report.lost_min, before.lost_min);
        let lost = (lost_min, more(report.lost_max, before.lost_max).max(lost_min));
        // Datagrams that were given up; what they held may be reported later than they.
        let gone = |report: Report| report.missing.saturating_sub(report.repaired).saturating_sub(report.pending);
        let datagrams = more(gone(report), gone(before));
        if 0 < datagrams {
            let missing = MissingDatagrams { datagrams, overrun: more(report.overrun, before.overrun) };
            let uncounted = if self.is_missing_counted { MissingDatagrams::default() } else { self.reported_missing };
            (self.reported_missing, self.is_missing_counted) = (uncounted.plus(missing), false);
        }
        let unverified = more(report.unverified, before.unverified);
        if 0 < lost.1 || 0 < unverified {
            self.throttles[2].on_report(lost, unverified, (self.reported_missing, !self.is_missing_counted));
            self.is_missing_counted = true;
        }
    }

    /// The run of the peer.
    pub fn epoch(&self) -> Epoch {
        self.publisher.epoch
    }

    /// Whether it may still be there.
    pub fn is_alive(&self) -> bool {
        matches!(self.state, MemberState::Up | MemberState::Silent)
    }

    /// Whether questions of it wait for the rate at which it is answered, and for nothing else.
    pub fn has_questions_waiting(&self) -> bool {
        self.is_alive() && self.is_proven && !self.parked_questions.is_empty()
    }

    /// Returns whether messages may be assigned to its clients: it is heard, and no later run of the same peer has replaced it.
    pub fn is_reachable(&self) -> bool {
        self.state == MemberState::Up && !self.is_superseded
    }

    /// Returns whether `other` is a later run of the same peer: first heard when this one was heard no more, at its address, or
    /// on its host under its name.
    pub fn is_followed_by(&self, other: &Member) -> bool {
        let is_namesake = other.address.ip() == self.address.ip() && other.publisher.name == self.publisher.name;
        (other.address == self.address || is_namesake)
            && self.started <= other.started
            && self.last_heard <= other.first_heard
    }

    /// Takes the name and intervals of an announcement.
    pub fn on_announce(&mut self, announce: &Announce) {
        self.publisher.name = Some(announce.name.clone());
        // A publisher can neither flap at will nor put off its silence for ever.
        self.heartbeat = announce.heartbeat.clamp(HEARTBEAT_FIRST, HEARTBEAT_MAX);
        self.pub_window_time = Some(announce.pub_window_time);
    }

    /// When it counts as silent: 3.5 of its heartbeat intervals after the last new packet (R8).
    pub fn silent_at(&self) -> Instant {
        self.last_heard + self.heartbeat * 7 / 2
    }

    /// Until when it counts as heard, so that its silence does not cost what is missing its time (A1): a beat and a half.
    pub fn alive_until(&self) -> Instant {
        self.last_heard + self.heartbeat * 3 / 2
    }

    /// Until when time counts for what is missing: for ever, once nothing more is to be heard.
    pub fn awaited_until(&self) -> Instant {
        if self.is_alive() { self.alive_until() } else { Instant::MAX }
    }

    /// Something new arrives now: what is missing is awaited longer by the time that did not count because the member was not heard.
    pub fn on_contact(&mut self, now: Instant) {
        if self.awaited_until() < now {
            let by = now.since(self.awaited_until());
            self.sides_mut().for_each(|recv| recv.postpone(now, by));
        }
    }

    /// When a gap of its streams is settled next; never while nothing is heard of it.
    pub fn settle_deadline(&self) -> Option<Instant> {
        let until = self.awaited_until();
        self.sides().filter_map(|recv| recv.settle_deadline(until)).min()
    }

    /// When it is to be asked for something next.
    pub fn request_deadline(&self) -> Option<Instant> {
        let asked = self.bcast.request_deadline().into_iter().chain(self.ptp.request_deadline()).min();
        // What is not heard cannot answer: requests, like the time to recover, wait until it is heard again.
        asked.filter(|at| self.state != MemberState::Crashed && *at <= self.awaited_until())
    }

    /// What was sent after this is younger than its window time; everything counts as older until that is known.
    pub fn recent(&self, now: Instant) -> Instant {
        self.pub_window_time.map_or(now, |time| (now - time) + margin(time))
    }

    /// Whether `other` is a second peer with the same name, and not this one's former or later run.
    pub fn is_duplicate_of(&self, other: &Member) -> bool {
        let same = self.publisher.name.is_some() && self.publisher.name == other.publisher.name;
        let newer = self.first_heard.max(other.first_heard) + DUPLICATE_AFTER;
        same && self.address != other.address
            && self.is_alive()
            && other.is_alive()
            && newer <= self.last_heard
            && newer <= other.last_heard
    }

    /// When it is to be looked at next, apart from its streams and advisories.
    pub fn deadline(&self, forget: Duration) -> Instant {
        match (self.state, self.ended) {
            (MemberState::Up, _) => {
                let own = self.silent_at().min(self.beat.deadline());
                self.liveness.deadline(self.heartbeat).map_or(own, |heard| heard.min(own))
            }
            (MemberState::Silent, _) => (self.last_heard + forget).min(self.beat.deadline()),
            (MemberState::Left, Some(ended)) if self.assigned.iter().any(Assignments::is_waiting) => {
                ended + LAST_REPORT_TIME
            }
            (_, ended) => ended.unwrap_or(self.last_heard) + forget,
        }
    }

    /// The row of `show peers`.
    pub fn row(&self, now: Instant) -> MemberRow {
        MemberRow {
            publisher: self.publisher.clone(),
            address: self.address,
            state: self.state,
            uptime: self.ended.unwrap_or(now).since(self.started),
            last_heard: now.since(self.last_heard),
            messages_in: self.losses.messages_in,
            datagrams_in: self.losses.datagrams_in,
            lost: self.loss_row().msg_loss.count,
            unverified: self.bcast.ledger().unexplained(),
            duplicate_name: self.duplicate_name,
            is_multicast_dead: self.liveness.is_dead(),
            left_behind: self.receiver.left_behind().map(|left| (now.since(left.since), left.has_reported)),
            is_proven: self.is_proven,
            times_left: self.receiver.times_left(),
            kernel_drops: self.receiver.report().map(|report| report.dropped),
        }
    }
}

/// Returns whether this peer is among the `answering` of all `peers`, which each finds out by chance.
pub fn is_among(answering: u64, peers: u64, rng: &mut Rng) -> bool {
    peers <= answering || rng.below(peers) < answering
}

/// Whether a datagram is not so far above the highest `known` of its stream that another one must confirm it first (A10).
pub fn is_plausible(known: Dseq, dseq: Dseq) -> bool {
    dseq.0.saturating_sub(known.0) <= JUMP_MAX
}

/// Whether a peer that has listened for `age` is older than a publisher that has been running for `uptime_ms` (R4).
pub fn is_older(uptime_ms: u32, age: Duration) -> bool {
    uptime_ms < u32::MAX && Duration::from_millis(u64::from(uptime_ms)) + margin(age) < age
}

/// The multicast stream of a member, with the baseline of R4: everything is owed if this peer listened before the
/// publisher started, otherwise what follows the first contact, which arrived at `arrived` at the earliest.
pub fn broadcast(
    settings: &Settings,
    contact: Contact,
    arrived: Instant,
    listening: Instant,
    rng: &mut Rng,
) -> RecvStream {
    let uptime = Duration::from_millis(u64::from(contact.uptime_ms));
    let age = arrived.since(listening);
    let older = contact.is_fresh && is_older(contact.uptime_ms, age);
    // Rule: baseline
    let owed_all = match () {
        () if settings.mutants.is(Mutant::BaselineFirstHeard) => false,
        () if settings.mutants.is(Mutant::BaselineZero) => true,
        () => older,
    };
    let (birth, below, count) = if owed_all {
        (Some(arrived - uptime - margin(age)), Dseq(0), 0)
    } else {
        (None, contact.below, contact.count)
    };
    let ledger = Ledger::new(below, count, arrived, settings.gaps_max);
    let ledger = if owed_all || contact.control.is_some() { ledger } else { ledger.undated() };
    RecvStream::new(StreamKind::Bcast { birth }, ledger, nak_scheduler(settings, rng), reassembly(settings))
}

/// A directed stream to this peer, heard up to a datagram and its count; a new one is owed from the start.
fn inbox(settings: &Settings, now: Instant, (high, count): (Dseq, u64), rng: &mut Rng) -> RecvStream {
    let ledger = Ledger::new(high, count, now, settings.gaps_max);
    RecvStream::new(StreamKind::Ptp, ledger, nak_scheduler(settings, rng), reassembly(settings))
}

/// The memory of a directed stream whose last datagram so far was `high`. It is small, for there may be many.
fn directed_ring(settings: &Settings, high: Dseq) -> Ring {
    let bytes_max = settings.recovery.ring.bytes_max.min(DIRECTED_RING_BYTES);
    Ring::new(RingSettings { bytes_max, manifest_bytes_max: 0, ..settings.recovery.ring }, high)
}

fn nak_scheduler(settings: &Settings, rng: &mut Rng) -> NakScheduler {
    NakScheduler::new(settings.recovery.grace, settings.repairs(), rng.fork()).mutated(settings.mutants)
}

fn reassembly(settings: &Settings) -> Reassembly {
    Reassembly::new(settings.reassembly_bytes_max, settings.reassembly_sets_max)
}
