//! `Peer`: takes an [`Input`], consults its parts, and is the only producer of [`Effect`]s.

mod admission;
mod announcements;
mod batch;
pub(crate) mod discovery;
mod effect_queue;
mod history_service;
mod inbound;
pub mod interest;
mod liveness;
mod outbound;
mod pace;
mod path_limit;
mod permissions;
mod publication;
mod publish;
mod questions;
mod queue;
mod queue_accounting;
mod receive;
mod repair;
mod report;
mod suppression;
mod text_poll;
mod tick;

use crate::message::{Epoch, Publisher, Targets};
use crate::proto::Settings;
use crate::proto::certified::{CertifiedPeers, OwnCertificate};
use crate::proto::effect::{ArrivedDatagram, ClientRequest, Effect, EpochChange, Input, Path};
use crate::proto::history::{HistoryRow, HistoryTotals};
use crate::proto::interest::InterestTable;
use crate::proto::list_pools::ListPools;
use crate::proto::member_table::MemberTable;
use crate::proto::members::{Member, Side};
use crate::proto::path_probe::PathProbes;
use crate::proto::peer::admission::Admission;
use crate::proto::peer::announcements::Announcements;
use crate::proto::peer::discovery::PublisherDiscovery;
use crate::proto::peer::effect_queue::EffectQueue;
use crate::proto::peer::inbound::Inbound;
use crate::proto::peer::interest::InterestPacing;
use crate::proto::peer::outbound::Outbound;
pub use crate::proto::peer::path_limit::PathLimit;
use crate::proto::peer::publication::Publication;
use crate::proto::peer::questions::PendingQuestions;
use crate::proto::peer::suppression::Suppression;
use crate::proto::remote_interest::RemoteInterest;
use crate::proto::resend::ResendCounters;
use crate::proto::run_batch::RunBatch;
use crate::proto::send::{HeartbeatTimer, Origin};
use crate::proto::stats::{Counters, LossRow, MemberRow, OutboundRow, SeqnoRow, SubRow, WindowRow};
use crate::rng::Rng;
use crate::subject::permitted_subjects::HostPermissions;
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, Instant};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// BYEs are sent at 0, +20 and +60 ms.
const BYES: u8 = 3;
/// Time for which a stopping peer stays after its last BYE and after the last request.
const LINGER_QUIET: Duration = Duration::from_millis(100);
/// Maximum time for which a graceful stop queues datagrams for its receivers. The peer then sends them regardless.
const STOP_DRAIN_TIME: Duration = Duration::from_secs(1);

/// One peer of the bus: the whole protocol, without I/O.
///
/// The caller passes [`Input`]s to [`Peer::handle`], then drains [`Peer::poll_effect`] to `None`. It passes
/// [`Input::Tick`] at [`Peer::poll_deadline`] and whenever it has no other input.
pub struct Peer {
    settings: Settings,
    origin: Origin,
    rng: Rng,
    /// Prefix of the subjects that belong to this peer alone.
    inbox: String,
    /// Subscriptions of the clients of this peer.
    interest: InterestTable,
    /// Subscriptions of the clients of other peers.
    remote_interest: RemoteInterest,
    /// Rate limit of the announcements of this peer's subscriptions.
    interest_pacing: InterestPacing,
    /// State that decides whether this peer may suppress messages without subscribers.
    suppression: Suppression,
    publication: Publication,
    outbound: Outbound,
    announcements: Announcements,
    /// Searches for the largest datagrams that arrive at receivers.
    path_probes: PathProbes,
    /// Size of datagrams that do not arrive at some receivers.
    path_limit: Option<PathLimit>,
    inbound: Inbound,
    admission: Admission,
    members: MemberTable,
    /// Certificates of other peers, members or not.
    certified: CertifiedPeers,
    /// Certificate of the host of this peer.
    own_certificate: OwnCertificate,
    /// Questions to histories that are still unanswered.
    questions: PendingQuestions,
    /// Subscriptions that are notified of publishers.
    discovery: PublisherDiscovery,
    stop: Option<Stop>,
    counters: Counters,
    effects: EffectQueue,
}

/// Progress of a graceful stop.
#[derive(Clone, Copy, Debug)]
struct Stop {
    byes: u8,
    heartbeat_timer: HeartbeatTimer,
    /// Deadline until which datagrams may be queued. The first BYE follows it.
    hold_until: Instant,
    /// Time of the last BYE or the last request, whichever is later.
    quiet_since: Instant,
    /// Deadline of the stop, even if receivers still request datagrams.
    until: Instant,
    is_over: bool,
}

impl Peer {
    /// Creates a peer that begins to listen and to send HELLOs now. `epoch` is 64 fresh random bits; `rng` supplies all
    /// other randomness.
    pub fn new(settings: Settings, epoch: Epoch, mut rng: Rng, now: ClockReading) -> Peer {
        let [interest, remote_interest, pub_window, sub_window, cookie, history, question] =
            std::array::from_fn(|_| rng.next_u64());
        let at = now.instant;
        Peer {
            origin: Origin { group: settings.group, epoch, started: at },
            inbox: inbox_of(epoch),
            interest: InterestTable::new(&settings, interest),
            remote_interest: RemoteInterest::new(
                remote_interest,
                settings.interest_max,
                settings.recovery.grace,
                settings.mutants,
            ),
            interest_pacing: InterestPacing::new(at),
            suppression: Suppression::new(at, settings.heartbeat),
            publication: Publication::new(&settings, pub_window, history),
            outbound: Outbound::new(&settings, at),
            announcements: Announcements::new(cookie | 1, settings.heartbeat, at),
            path_probes: PathProbes::default(),
            path_limit: None,
            inbound: Inbound::new(&settings, sub_window, at),
            admission: Admission::new(&settings, at),
            members: MemberTable::default(),
            // One more for each member, so that those of departed ones remain known for a while.
            certified: CertifiedPeers::new(2 * settings.peers_max),
            own_certificate: OwnCertificate::default(),
            questions: PendingQuestions::new(question >> 1),
            discovery: PublisherDiscovery::new(at),
            stop: None,
            counters: Counters::default(),
            effects: EffectQueue::default(),
            rng,
            settings,
        }
    }

    /// Handles one input. `now` never goes backwards from call to call.
    pub fn handle(&mut self, now: ClockReading, input: Input) {
        // Consecutive publish requests are settled together, also if multicasts of this peer come back between them.
        if !matches!(
            input,
            Input::ClientRequest { request: ClientRequest::Publish(_), .. } | Input::OwnDatagrams { .. }
        ) {
            self.begin_input();
        }
        match input {
            // A stopped peer handles no datagrams and no ticks.
            Input::Datagram { .. } | Input::Deferred(_) | Input::Tick if self.is_stopped() => {}
            Input::Datagram { from, path, bytes } => {
                let arrived = self.inbound.earliest_arrival(path).unwrap_or(now.instant);
                self.on_datagram(now, ArrivedDatagram { from, path, bytes, arrived });
            }
            Input::Deferred(datagram) => self.on_datagram(now, datagram),
            Input::Authenticated { epoch, certified } => self.on_authenticated(epoch, certified),
            Input::OwnCertificate(certificate) => self.own_certificate = certificate,
            Input::OwnDatagrams { datagrams, bytes } => {
                self.counters.datagrams_in += datagrams;
                self.counters.bytes_in += bytes;
                self.counters.discard_own += datagrams;
            }
            Input::Overrun { path, drops, datagrams_max } => {
                self.counters.kernel_drops += drops;
                self.inbound.on_overrun(now.instant, datagrams_max);
                // Drops of unicast datagrams do not limit how much this peer can take of the group.
                if path == Path::Multicast {
                    self.on_overrun(now.instant);
                }
            }
            Input::Backlog { fullness } => self.on_backlog(now.instant, fullness),
            Input::ClientRequest { client, request } => {
                let sub = match &request {
                    ClientRequest::Subscribe { sub, .. } => Some(*sub),
                    _ => None,
                };
                if let Err(refusal) = self.on_request(now, client, request) {
                    self.effects.push_back(Effect::Refuse { client, sub, refusal });
                }
            }
            Input::Detach { client } => {
                self.interest.detach(client);
                self.publication.set_echo(client, true);
                self.questions.discard_client(client);
                self.discovery.detach(client);
                self.on_interest(now);
            }
            Input::Arrived { path, at } => self.inbound.on_arrived(path, at.min(now.instant)),
            Input::AddressChanged => {
                // A peer that stops has no use for a new epoch.
                if self.stop.is_none() {
                    self.begin_epoch(now, EpochChange::AddressChanged);
                }
            }
            Input::Tick => self.on_tick(now),
            Input::Stop => self.on_stop(now),
        }
    }

    /// Completes what consecutive publish requests share, before another input.
    fn begin_input(&mut self) {
        self.settle();
        self.suppression.reset_certainty();
    }

    /// Returns the next effect, or `None` if there are no more. Consecutive published messages are sent, and delivered
    /// to clients of this peer, together: with the next input that is neither a publish request nor
    /// [`Input::OwnDatagrams`], at the latest with a tick.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop(&mut self.inbound.lists)
    }

    /// Returns the next effects together if they deliver the runs of a datagram, instead of one by one. The caller
    /// then takes the next effect.
    pub fn poll_runs(&mut self) -> Option<RunBatch> {
        self.effects.pop_runs()
    }

    /// Returns the lists of earlier datagrams. Whoever has read a batch of [`Peer::poll_runs`] adds its lists to them.
    pub fn list_pools(&mut self) -> &mut ListPools {
        &mut self.inbound.lists
    }

    /// Returns the latest time for the next [`Input::Tick`]; an earlier tick is harmless. It is in the past while a
    /// datagram is open.
    pub fn poll_deadline(&mut self) -> Option<Instant> {
        if self.is_stopped() {
            return None;
        }
        let own = match (self.outbound.opened(), &self.stop) {
            (Some(opened), _) => Some(opened),
            (None, Some(stop)) if self.has_queued() => {
                Some(stop.hold_until.min(self.announcements.heartbeat_timer.deadline()))
            }
            (None, Some(stop)) if 0 < stop.byes => Some(stop.heartbeat_timer.deadline()),
            (None, Some(stop)) => (!stop.is_over).then(|| self.linger_deadline(stop)),
            (None, None) => Some(self.announcements.heartbeat_timer.deadline()),
        };
        let (forget, receivers) = (self.settings.forget, self.members.len());
        let members = match &self.stop {
            // A stopping peer no longer reports its subscriptions.
            Some(_) => self.members.values().map(|member| member.next_due(forget, receivers)).min(),
            None => self.members.earliest(|member| member.next_due_with_interest(forget, receivers)),
        };
        own.into_iter()
            .chain(members)
            .chain(self.pending_epoch_deadline())
            .chain(self.outbound.resends.deadline())
            .chain(self.path_probes.deadline())
            .chain(self.outbound.pacer.deadline())
            .chain(self.inbound.receive_window.deadline())
            .chain(self.questions.deadline())
            .chain(self.discovery.deadline())
            .chain(self.interest_deadline())
            .chain(self.suppression_deadline())
            .min()
    }

    /// Returns the epoch of this run.
    pub fn epoch(&self) -> Epoch {
        self.origin.epoch
    }

    /// Returns the settings of this peer.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns what the certificate of this host permits its programs.
    pub fn host_permissions(&self) -> &HostPermissions {
        &self.own_certificate.permissions
    }

    /// Returns the counters of the whole peer.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// `show loss`: returns a row for each publisher, in the order of first contact.
    pub fn loss_rows(&self) -> Vec<LossRow> {
        self.by_uid(Member::loss_row)
    }

    /// `show loss --outbound`: returns the losses of this peer's multicast stream that other peers report.
    pub fn outbound_rows(&self) -> Vec<OutboundRow> {
        let row = |member: &Member| {
            let loss = &member.reported_loss;
            Some(OutboundRow { receiver: member.publisher.clone(), report: loss.report?, at: loss.at? })
        };
        self.by_uid(row).into_iter().flatten().collect()
    }

    /// Returns the number of messages of this publisher that were missing at first and then repaired.
    pub fn repaired(&self, publisher: Epoch) -> u64 {
        self.members.get(&publisher).map_or(0, |member| member.loss_row().repaired.count)
    }

    /// `show history`: returns the first `limit` retained subjects that match, in order, and the number of further
    /// ones. Settles, and sends nothing: the history gets a copy of the open datagram if it refers to it. A limit of 0
    /// reads no message and needs none.
    pub fn history_rows(&mut self, pattern: &Pattern, limit: usize) -> (Vec<HistoryRow>, u64) {
        self.settle();
        if 0 < limit && self.publication.history.awaits_datagram() {
            self.publication.history.attach(&Bytes::copy_from_slice(self.outbound.multicast.open_records()));
        }
        self.publication.history.rows(pattern, limit)
    }

    /// Returns the totals of the history.
    pub fn history_totals(&self) -> HistoryTotals {
        self.publication.history.totals()
    }

    /// Returns the counters of received resend requests and their answers.
    pub fn resend_counters(&self) -> &ResendCounters {
        self.outbound.resends.counters()
    }

    /// Checks the ledger and the reorder buffer of every stream. The peer does the same for one stream after each
    /// change.
    ///
    /// # Panics
    ///
    /// If a check fails; the message names the publisher, the stream and the state.
    pub fn check(&self) {
        for member in self.members.values() {
            report::check_stream(&member.publisher, Side::Bcast, &member.bcast);
            member.live.iter().for_each(|live| report::check_stream(&member.publisher, Side::Live, live));
            report::check_stream(&member.publisher, Side::Ptp, &member.ptp);
        }
    }

    /// `show peers`: returns a row for each member, in the order of first contact.
    pub fn member_rows(&self, now: ClockReading) -> Vec<MemberRow> {
        self.by_uid(|member| member.row(now.instant))
    }

    fn by_uid<T>(&self, row: impl Fn(&Member) -> T) -> Vec<T> {
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_key(|member| member.publisher.uid);
        members.into_iter().map(row).collect()
    }

    /// `show subs`: returns a row for each subscription.
    pub fn sub_rows(&self) -> Vec<SubRow> {
        self.interest.rows()
    }

    /// `show seqno`: returns up to `limit` published streams, then up to `limit` received ones.
    pub fn seqno_rows(&self, limit: usize) -> Vec<SeqnoRow> {
        let publishers: BTreeMap<u32, &Publisher> =
            self.members.values().map(|member| (member.publisher.uid, &member.publisher)).collect();
        let published =
            self.publication.window.iter().map(|(subject, last)| SeqnoRow { publisher: None, subject, last });
        let received = self.inbound.window.iter().filter_map(|(uid, subject, entry)| {
            let publisher = Some((*publishers.get(&uid)?).clone());
            Some(SeqnoRow { publisher, subject, last: entry.last })
        });
        published.take(limit).chain(received.take(limit)).collect()
    }

    /// Returns what `show seqno` has of one subject: the published stream, if there is one, then the received ones.
    pub fn subject_rows(&self, subject: &Subject) -> Vec<SeqnoRow> {
        let row = |publisher, last| SeqnoRow { publisher, subject: subject.clone(), last };
        let published = self.publication.window.last(subject).map(|last| row(None, last));
        let received = self.members.values().filter_map(|member| {
            let last = self.inbound.window.last(member.publisher.uid, subject)?;
            Some(row(Some(member.publisher.clone()), last))
        });
        published.into_iter().chain(received).collect()
    }

    /// Returns the local subscriptions that match a subject.
    pub fn subscribers(&mut self, subject: &Subject) -> Targets {
        self.interest.matches_any(subject).map_or_else(|| Targets::from([]), |matched| matched.targets.clone())
    }

    /// `show windows`: returns the publication window, then the subscription window.
    pub fn window_rows(&self) -> [WindowRow; 2] {
        [self.publication.window.row(), self.inbound.window.row()]
    }

    /// Checks the invariants that hold after every input; panics if one is violated.
    pub fn assert_invariants(&self) {
        self.members.values().flat_map(Member::sides).for_each(|side| side.assert_invariants());
        let (forget, receivers) = (self.settings.forget, self.members.len());
        self.members.assert_invariants(|member| member.next_due_with_interest(forget, receivers));
        self.remote_interest.assert_invariants();
        self.publication.assert_invariants(&self.outbound.multicast);
        self.outbound.assert_invariants();
        self.path_probes.assert_invariants();
        self.inbound.assert_invariants();
        self.admission.assert_invariants();
        self.questions.assert_invariants();
    }

    /// Returns whether the stop is complete, with all BYEs sent.
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.is_over)
    }

    /// Returns whether this epoch has sent its first BYE.
    fn has_sent_bye(&self) -> bool {
        self.stop.is_some_and(|stop| stop.byes < BYES)
    }

    fn own_publisher(&self) -> Publisher {
        Publisher { name: Some(self.settings.name.clone()), epoch: self.origin.epoch, uid: 0 }
    }
}

/// Prefix of the subjects that belong to one peer alone: `_INBOX.<epoch in 16 hexadecimal digits>.…`.
pub const INBOX_PREFIX: &str = "_INBOX.";

/// Returns the prefix of the subjects that belong to the peer of this epoch alone.
pub fn inbox_of(epoch: Epoch) -> String {
    format!("{INBOX_PREFIX}{epoch}.")
}

#[cfg(test)]
pub(crate) mod tests;
