//! Pacing: a publisher sends no faster than its receivers can take it.
//!
//! Each receiver reports its progress and its window ([`ReceiveWindow`], [`ReceiveProgress`]; RECEIVER_REPORT on the
//! wire). A publisher sends until one receiver's window is used up ([`Pacer`], [`PacedReceiver`]). It queues further
//! sealed datagrams until the next report. The publisher therefore runs at the speed of the slowest receiver, without a
//! clock and at any delay of the network. It also never runs so far ahead that it can no longer resend requested datagrams.
//!
//! A receiver that allows less than the floor for longer than the patience is excluded from flow control. The publisher
//! does not wait for it until it has caught up; its losses are accounted for as always.

mod receive_window;
mod settings;
#[cfg(test)]
mod tests;

pub use receive_window::{ReceiveProgress, ReceiveWindow, WindowChange};
use settings::{ACTIVE, RESEND_PATIENCE};
pub use settings::{FIRST_WINDOW_BYTES, PATIENCE, Pace, PaceSettings, cost};

use crate::message::Dseq;
use crate::proto::newest_control::NewestControl;
use crate::proto::resend::TokenBucket;
use crate::proto::send::SealedDatagram;
use crate::time::{Instant, nanos};
use crate::wire::{DATAGRAM_BYTES_MAX, Range, ReceiverReport};
use std::collections::VecDeque;
use std::time::Duration;

/// A receiver that is excluded again within this time after its last exclusion, or after its last rest, must rest.
const REST_MEMORY: Duration = Duration::from_secs(10);
/// Duration of a rest, in multiples of the patience. A receiver thus keeps a publisher below the floor for at most a
/// tenth of the time.
const REST_MULTIPLE: u32 = 9;

/// Time after the start during which a publisher sends at most a first window, because it does not know its receivers.
/// By its end they have answered the HELLOs, which leave at 0, 20 and 60 ms.
const COLD_TIME: Duration = Duration::from_millis(100);

/// Time for which a publisher waits for a newcomer with an unproven address: a few times the duration of a proof under
/// heavy loss.
const PROOF_TIME: Duration = Duration::from_millis(200);

/// Refill in milliseconds per second, and burst, of the time for which publishers wait for unproven newcomers. Invented
/// newcomers therefore delay a publisher for at most a tenth of the time.
const PROOF_MILLIS_PER_SECOND: u64 = 100;
const PROOF_MILLIS_BURST: u64 = 2000;

/// Bytes of queued datagrams from which publishers are backpressured.
const QUEUED_BYTES_MAX: usize = 256 << 10;

/// Number of recent datagrams whose byte offset is remembered. A receiver older than that counts as fully behind.
const MARKS_MAX: usize = 65_536;

/// Divisor of a rate that gives its burst, and the minimum burst in bytes. Bursts are needed because a timer wakes once
/// in a millisecond.
const BURSTS_PER_SECOND: u64 = 250;
const BURST_BYTES_MIN: u64 = 16 << 10;

/// Minimum time, and minimum number of datagrams, between two updates of the used share of the window.
const SHARE_TIME: Duration = Duration::from_millis(100);
const SHARE_DATAGRAMS: u64 = 64;
/// The whole window as a share, and the smallest share.
const SHARE_ALL: u64 = 256;
const SHARE_MIN: u64 = 32;

/// A receiver for which the publisher does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaggingReceiver {
    /// Time at which it was excluded.
    pub since: Instant,
    /// True if it had ever reported.
    pub has_reported: bool,
}

/// Pacing state of one receiver of this peer's multicasts.
#[derive(Clone, Debug)]
pub struct PacedReceiver {
    /// Cumulative byte offset up to which its window lets this peer send before the next report.
    limit: u64,
    /// Offset up to which the datagrams that it requests let this peer send.
    resend_limit: u64,
    /// Cumulative offset of its last considerable progress, and the time of that progress.
    progress: (u64, Instant),
    /// Control datagram that carried its last report.
    reported: NewestControl,
    /// Its last report.
    report: Option<ReceiverReport>,
    exclusion: Option<LaggingReceiver>,
    /// Time until which this peer waits for it although its address is unproven; `None` if it is proven.
    unproven_until: Option<Instant>,
    /// Number of times it was excluded.
    exclusion_count: u64,
    /// Time at which it was last excluded.
    excluded_at: Option<Instant>,
    /// End of its rest, before which it stays excluded.
    rest_until: Instant,
    /// Highest requested datagram, and the number requested since the last update of the share, each counted once.
    requested: (Dseq, u64),
    /// Used part of its windows, of [`SHARE_ALL`]: less while many datagrams to it get lost.
    share: u64,
    /// Time of the last update of the share, and the number of the next datagram at that time.
    shared: (Instant, u64),
}

impl PacedReceiver {
    /// Creates a receiver that has not reported yet and whose address is unproven.
    pub fn new(now: Instant, pacer: &mut Pacer) -> PacedReceiver {
        PacedReceiver {
            limit: pacer.sent + pacer.settings.first_bytes,
            resend_limit: u64::MAX,
            progress: (0, now),
            reported: NewestControl::default(),
            report: None,
            exclusion: None,
            unproven_until: Some(pacer.admit_newcomer(now)),
            exclusion_count: 0,
            excluded_at: None,
            rest_until: now,
            requested: (Dseq(0), 0),
            share: SHARE_ALL,
            shared: (now, pacer.next),
        }
    }

    /// Records that its address is proven.
    pub fn on_proven(&mut self) {
        self.unproven_until = None;
    }

    /// Returns whether this peer waits for it. A receiver without a proven address may be invented.
    fn is_waited_for(&self, now: Instant) -> bool {
        // Rule: pace-proven
        self.exclusion.is_none() && self.unproven_until.is_none_or(|until| now < until)
    }

    /// Returns its exclusion from flow control, if it was too slow.
    pub fn exclusion(&self) -> Option<LaggingReceiver> {
        self.exclusion
    }

    /// Returns the cumulative byte offset up to which this receiver lets this peer send.
    fn send_limit(&self) -> u64 {
        self.limit.min(self.resend_limit)
    }

    /// Returns whether its limit is below `target` after the patience has passed. Datagrams are queued since `queued`.
    fn is_below(&self, target: u64, now: Instant, queued: Instant) -> bool {
        let is_stuck = || RESEND_PATIENCE <= now.since(self.progress.1.max(queued));
        self.limit < target || self.resend_limit < target && is_stuck()
    }

    /// Returns the number of times it was excluded.
    pub fn exclusion_count(&self) -> u64 {
        self.exclusion_count
    }

    /// Returns its last report.
    pub fn report(&self) -> Option<&ReceiverReport> {
        self.report.as_ref()
    }

    /// Counts the datagrams that it requests, up to the highest sent datagram `high`.
    pub fn on_request(&mut self, ranges: &[Range], high: Dseq) {
        for range in ranges {
            let (first, last) = (range.first.0.max(self.requested.0.0 + 1), range.last.min(high));
            if first <= last.0 {
                self.requested = (last, self.requested.1 + (last.0 - first + 1));
            }
        }
    }

    /// Shrinks the used share while the receiver requests more than a quarter of the datagrams: the path has less
    /// capacity than the receiver. Slower sending does not help against less loss than that.
    fn update_share(&mut self, now: Instant, next: u64) {
        let sent = next - self.shared.1;
        if now.since(self.shared.0) < SHARE_TIME || sent < SHARE_DATAGRAMS {
            return;
        }
        self.share = match sent / 4 < self.requested.1 {
            true => (self.share * 3 / 4).max(SHARE_MIN),
            false => (self.share + SHARE_ALL / 16).min(SHARE_ALL),
        };
        (self.requested.1, self.shared) = (0, (now, next));
    }
}

/// Effect of a new report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportEffect {
    /// True if the publisher waits for the member again.
    pub is_back: bool,
    /// True if the allowance must be recomputed: the member was, or is, the slowest.
    pub affects_allowance: bool,
}

/// End of the wait for receivers while datagrams are queued, and the limit that each receiver must have then.
#[derive(Clone, Copy, Debug)]
struct PacingWait {
    until: Instant,
    target: u64,
}

/// Allowance of this peer for multicasts, and the datagrams queued until it rises.
#[derive(Debug)]
pub struct Pacer {
    settings: PaceSettings,
    /// Maximum distance in bytes from the oldest datagram that receivers still request.
    ahead_bytes: u64,
    /// Bytes sent so far, as windows count.
    sent: u64,
    /// Time of the last datagram.
    sent_at: Option<Instant>,
    /// Cumulative byte offset at the end of each of the last datagrams.
    marks: VecDeque<u64>,
    /// Number of the next datagram.
    next: u64,
    /// Cumulative byte offset up to which this peer may send, and whether requested datagrams limit it.
    allowance: u64,
    is_limited_by_resends: bool,
    /// End of the cold start, and the byte offset permitted until then, while this peer does not know its receivers.
    cold: Option<(Instant, u64)>,
    bucket: Option<TokenBucket>,
    /// Budget in milliseconds for waits for unproven newcomers, and the end of the last of these waits.
    proof_millis: TokenBucket,
    newcomer_until: Option<Instant>,
    wait: Option<PacingWait>,
    queue: VecDeque<SealedDatagram>,
    queued_bytes: usize,
    /// Time since which datagrams have been queued without a break.
    queued_since: Option<Instant>,
}

impl Pacer {
    /// Creates the pacer of a peer that has just started. It keeps `resend_bytes` of sent data for resends.
    pub fn new(settings: &PaceSettings, resend_bytes: usize, now: Instant) -> Pacer {
        let cold = settings.first_bytes;
        Pacer { cold: Some((now + COLD_TIME, cold)), allowance: cold, ..Pacer::resumed(settings, resend_bytes, now) }
    }

    /// Creates the pacer of a peer that knows the others and has sent nothing yet.
    pub fn resumed(settings: &PaceSettings, resend_bytes: usize, now: Instant) -> Pacer {
        // The other half of the ring is for data sent before a report arrives, and for excluded receivers.
        let ahead_bytes = match resend_bytes as u64 / 2 {
            0 => u64::MAX,
            half => half.max(settings.first_bytes),
        };
        let mut pacer = Pacer {
            settings: settings.clone(),
            ahead_bytes,
            sent: 0,
            sent_at: None,
            marks: VecDeque::new(),
            next: 1,
            allowance: u64::MAX,
            is_limited_by_resends: false,
            cold: None,
            bucket: matches!(settings.pace, Pace::Rate(_)).then(|| TokenBucket::full(now)),
            proof_millis: TokenBucket::full(now),
            newcomer_until: None,
            wait: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            queued_since: None,
        };
        pacer.refill(now);
        pacer
    }

    /// Admits a newcomer and returns the end of the wait for it while its address is unproven. Time during which this
    /// peer waits for other newcomers anyway costs no budget.
    fn admit_newcomer(&mut self, now: Instant) -> Instant {
        self.proof_millis.refill(now, PROOF_MILLIS_PER_SECOND, PROOF_MILLIS_BURST);
        let until = now + PROOF_TIME;
        let more = until.since(self.newcomer_until.map_or(now, |before| before.max(now)));
        let millis = nanos(more).div_ceil(1_000_000);
        if !self.proof_millis.has(millis) {
            return now;
        }
        self.proof_millis.take(millis);
        self.newcomer_until = Some(until);
        until
    }

    /// Returns whether receivers limit the rate at all.
    pub fn is_on(&self) -> bool {
        self.settings.pace != Pace::Off
    }

    /// Returns whether a datagram may be sent now. It may exceed the limit by itself, so that the smallest window lets
    /// one pass.
    pub fn is_open(&mut self, now: Instant) -> bool {
        if !self.is_on() {
            return true;
        }
        if self.allowance <= self.sent {
            return false;
        }
        self.refill(now);
        self.bucket.as_ref().is_none_or(|bucket| bucket.has(DATAGRAM_BYTES_MAX as u64))
    }

    /// Returns whether this peer has sent data recently, and so shares the receive buffers of all peers.
    pub fn is_active(&self, now: Instant) -> bool {
        self.sent_at.is_some_and(|at| now.since(at) <= ACTIVE)
    }

    /// Returns whether no datagram is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether publishers are backpressured because of the queued bytes.
    pub fn is_full(&self) -> bool {
        QUEUED_BYTES_MAX <= self.queued_bytes
    }

    /// Returns the first queued datagram, if there is one.
    pub fn first_queued(&self) -> Option<&SealedDatagram> {
        self.queue.front()
    }

    /// Queues a datagram until it may be sent.
    pub fn enqueue(&mut self, now: Instant, sealed: SealedDatagram) {
        self.queued_bytes += sealed.bytes.len();
        self.queue.push_back(sealed);
        self.queued_since.get_or_insert(now);
        if self.wait.is_none() {
            self.wait = Some(self.wait_from(now));
        }
    }

    /// Removes the first queued datagram, whether it may be sent or not.
    pub fn pop(&mut self) -> Option<SealedDatagram> {
        let sealed = self.queue.pop_front()?;
        self.queued_bytes -= sealed.bytes.len();
        if self.queue.is_empty() {
            (self.wait, self.queued_since) = (None, None);
        }
        Some(sealed)
    }

    /// Records that the next datagram is sent.
    pub fn on_sent(&mut self, now: Instant, dseq: Dseq, bytes: usize) {
        assert_eq!(dseq.0, self.next, "datagrams leave in the order of their numbers");
        self.next += 1;
        self.sent_at = Some(now);
        self.on_resent(bytes);
        // A datagram that leaves out of turn, at a stop, may find too few tokens.
        if let Some(bucket) = self.bucket.as_mut().filter(|bucket| bucket.has(bytes as u64)) {
            bucket.take(bytes as u64);
        }
        if self.marks.len() == MARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back(self.sent);
    }

    /// Records that a datagram is resent to the group: it uses the window like any other.
    pub fn on_resent(&mut self, bytes: usize) {
        self.sent += cost(bytes);
    }

    /// Returns the cumulative byte offset at the end of a datagram; `None` if that is no longer remembered.
    fn sent_up_to(&self, dseq: Dseq) -> Option<u64> {
        if self.next <= dseq.0 + 1 {
            return Some(self.sent);
        }
        let first = self.next - self.marks.len() as u64;
        if dseq == Dseq(0) && first == 1 {
            return Some(0);
        }
        let at = usize::try_from(dseq.0.checked_sub(first)?).ok()?;
        self.marks.get(at).copied()
    }

    /// Applies a member's report from a control datagram with this number and uptime in milliseconds. Returns `None` if
    /// the report is stale.
    pub fn on_report(
        &mut self,
        now: Instant,
        receiver: &mut PacedReceiver,
        number: u64,
        uptime_ms: u32,
        report: ReceiverReport,
    ) -> Option<ReportEffect> {
        if !receiver.reported.admits(now, number, uptime_ms) || number <= receiver.reported.number() {
            return None;
        }
        receiver.update_share(now, self.next);
        receiver.reported.accept(now, number, uptime_ms);
        receiver.report = Some(report);
        let before = receiver.send_limit();
        if let Some(sent) = self.sent_up_to(report.taken) {
            // A window above 0 always has room for one datagram.
            let window = (report.window / SHARE_ALL).saturating_mul(receiver.share).max(report.window.min(1));
            receiver.limit = sent.saturating_add(window);
        }
        self.on_awaited(now, receiver, report.awaited);
        let is_back = receiver.exclusion.is_some() && receiver.rest_until <= now && self.sent < receiver.send_limit();
        if is_back {
            receiver.exclusion = None;
        }
        Some(ReportEffect {
            is_back,
            affects_allowance: is_back || before.min(receiver.send_limit()) <= self.allowance,
        })
    }

    /// Limits this peer to the datagrams that it can send without losing those that the receiver still requests.
    fn on_awaited(&mut self, now: Instant, receiver: &mut PacedReceiver, awaited: Option<Dseq>) {
        // Rule: pace-resends
        receiver.resend_limit = match awaited.filter(|dseq| dseq.0 < self.next) {
            // If the offset is no longer remembered, this peer sends nothing more.
            Some(dseq) => self.sent_up_to(Dseq(dseq.0 - 1)).unwrap_or(0).saturating_add(self.ahead_bytes),
            None => u64::MAX,
        };
        // An advance of less than one step (at most the floor), or a move back and forth, is no progress.
        let step = self.settings.floor.min(self.ahead_bytes / 16).max(1);
        let reached = receiver.resend_limit.min(self.sent.saturating_add(self.ahead_bytes));
        if receiver.progress.0.saturating_add(step) <= reached {
            receiver.progress = (reached, now);
        }
    }

    /// Recomputes the allowance from the limits of all `receivers` that this peer waits for.
    pub fn update_allowance<'a>(&mut self, now: Instant, receivers: impl Iterator<Item = &'a PacedReceiver>) {
        // Rule: pace
        self.cold = self.cold.filter(|(until, _)| now < *until);
        self.newcomer_until = self.newcomer_until.filter(|until| now < *until);
        let (mut window_limit, mut resend_limit) = (self.cold.map_or(u64::MAX, |(_, limit)| limit), u64::MAX);
        for receiver in receivers.filter(|receiver| receiver.is_waited_for(now)) {
            (window_limit, resend_limit) = (window_limit.min(receiver.limit), resend_limit.min(receiver.resend_limit));
        }
        (self.allowance, self.is_limited_by_resends) = (window_limit.min(resend_limit), resend_limit < window_limit);
    }

    /// Returns whether datagrams are queued only because of datagrams that receivers still request.
    pub fn waits_for_resends(&self) -> bool {
        self.is_limited_by_resends && !self.queue.is_empty() && self.allowance <= self.sent
    }

    /// Returns whether `receiver` has kept this peer below the floor for too long.
    pub fn is_lagging(&self, now: Instant, receiver: &PacedReceiver) -> bool {
        // Rule: flow-exclusion
        let queued = self.queued_since.unwrap_or(now);
        let is_due = self.wait.is_some_and(|wait| wait.until <= now && receiver.is_below(wait.target, now, queued));
        is_due && receiver.is_waited_for(now) && receiver.send_limit() <= self.sent
    }

    /// Excludes a receiver that is lagging.
    pub fn exclude(&self, now: Instant, receiver: &mut PacedReceiver) {
        receiver.exclusion = Some(LaggingReceiver { since: now, has_reported: receiver.report.is_some() });
        receiver.exclusion_count += 1;
        let last = receiver.excluded_at.replace(now).map(|at| at.max(receiver.rest_until));
        if last.is_some_and(|last| now.since(last) <= REST_MEMORY) {
            let is_window_small = self.wait.is_some_and(|wait| receiver.limit < wait.target);
            let patience = if is_window_small { PATIENCE } else { RESEND_PATIENCE };
            receiver.rest_until = now + patience * REST_MULTIPLE;
        }
    }

    /// Begins a new wait if the current one is over.
    pub fn on_tick(&mut self, now: Instant) {
        if self.wait.is_some_and(|wait| wait.until <= now) {
            self.wait = Some(self.wait_from(now));
        }
    }

    fn wait_from(&self, now: Instant) -> PacingWait {
        let floor = match self.settings.pace {
            Pace::Rate(rate) => self.settings.floor.min(rate / 2),
            _ => self.settings.floor,
        };
        let bytes = floor.saturating_mul(nanos(PATIENCE) / 1_000_000) / 1000;
        PacingWait { until: now + PATIENCE, target: self.sent + bytes.max(1) }
    }

    /// Returns the time of the next check, if datagrams are queued.
    pub fn deadline(&self) -> Option<Instant> {
        let wait = self.wait?;
        let cold = self.cold.map(|(until, _)| until);
        let tokens = match (self.settings.pace, &self.bucket) {
            (Pace::Rate(rate), Some(bucket)) if self.sent < self.allowance => {
                Some(bucket.ready_at(DATAGRAM_BYTES_MAX as u64, rate.max(1)))
            }
            _ => None,
        };
        [Some(wait.until), cold, self.newcomer_until, tokens].into_iter().flatten().min()
    }

    fn refill(&mut self, now: Instant) {
        if let (Pace::Rate(rate), Some(bucket)) = (self.settings.pace, &mut self.bucket) {
            // The bucket can hold tokens for the largest datagram.
            let burst = DATAGRAM_BYTES_MAX as u64 + (rate / BURSTS_PER_SECOND).max(BURST_BYTES_MIN);
            bucket.refill(now, rate, burst);
        }
    }
}
