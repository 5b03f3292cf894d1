//! Pacing: a publisher sends no faster than its receivers can take it.
//!
//! Each receiver tells how far it has come and how much more it has room for ([`ReceiveWindow`], [`ReceiveProgress`]; RECEIVER_REPORT on the
//! wire). A publisher sends until the first of them has no room left ([`Pacer`], [`PacedReceiver`]), and keeps what is sealed
//! beyond that; the next report lets it go on. So it runs at the speed of the slowest, without a clock and whatever the
//! delay of the network. Nor does it run away from what a receiver still asks for: only so far that it can be sent again. Who
//! allows less than the floor for longer than the patience is left behind: it is not waited for until it has come close again,
//! and what it misses is accounted for as always.

mod receive_window;
#[cfg(test)]
mod tests;

use receive_window::ACTIVE;
pub use receive_window::{ReceiveProgress, ReceiveWindow, WindowChange};

use crate::message::Dseq;
use crate::proto::newest_control::NewestControl;
use crate::proto::resend::TokenBucket;
use crate::proto::send::SealedDatagram;
use crate::time::{Instant, nanos};
use crate::wire::{DATAGRAM_BYTES_MAX, Range, ReceiverReport, WINDOW_DATAGRAM_BYTES};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a receiver may hold up a publisher below the floor. Longer than programs on a busy host are kept from running
/// mostly, shorter than people notice.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// A receiver that is left behind twice within this time counts again only after a rest.
const REST_MEMORY: Duration = Duration::from_secs(10);
/// That rest: whatever it reports, it holds up a publisher below the floor for a tenth of the time at most.
const REST: Duration = Duration::from_millis(9 * 200);

/// How long what a receiver still asks for may hold up a publisher without coming on: it has been asked for many times by then.
const RESEND_PATIENCE: Duration = Duration::from_secs(1);

/// The window of a receiver that has not reported yet, in bytes as windows count: what the receive buffer holds that Linux
/// grants without being asked.
pub const FIRST_WINDOW_BYTES: u64 = 64 << 10;

/// A publisher that has just started does not know who is there, and sends a first window at most. So long it takes until those
/// that are there have answered: the HELLOs are said at 0, 20 and 60 ms.
const COLD_TIME: Duration = Duration::from_millis(100);

/// A newcomer whose address is not proven is waited for during this time: a few times what the proof takes where much is lost.
const PROOF_TIME: Duration = Duration::from_millis(200);

/// Milliseconds a second during which newcomers are waited for before their addresses are proven, and so many at once. So whoever
/// invents newcomers holds up a publisher for a tenth of the time at most.
const PROOF_MILLIS_PER_SECOND: u64 = 100;
const PROOF_MILLIS_BURST: u64 = 2000;

/// Bytes of datagrams that are kept back before publishers are held up.
const HELD_BYTES_MAX: usize = 256 << 10;

/// Of so many datagrams it is known how much was sent up to each; who has read none of them is as far behind as can be.
const MARKS_MAX: usize = 65_536;

/// Under a rate, what it gives in one part in so many of a second may be sent at once, for a timer wakes once in a millisecond;
/// and so many bytes at least.
const BURSTS_PER_SECOND: u64 = 250;
const BURST_BYTES_MIN: u64 = 16 << 10;

/// The share of the window that is used is looked at again after so long, and after so many datagrams.
const SHARE_TIME: Duration = Duration::from_millis(100);
const SHARE_DATAGRAMS: u64 = 64;
/// All of the window; and how little of it may be used.
const SHARE_ALL: u64 = 256;
const SHARE_MIN: u64 = 32;

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the system takes it, whatever receivers say.
    Off,
    /// As fast as the receivers can take it.
    Auto,
    /// The same, and at most so many bytes of UDP payload a second.
    Rate(u64),
}

/// What is set of pacing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceSettings {
    /// How fast to send.
    pub pace: Pace,
    /// Bytes a second, as windows count, below which receivers are not waited for; 0: only who takes nothing at all is not.
    pub floor: u64,
    /// What this peer's receive buffer holds, in bytes as windows count.
    pub room_bytes: u64,
    /// The window before the first report: [`FIRST_WINDOW_BYTES`]. Smaller only to test.
    pub first_bytes: u64,
}

impl PaceSettings {
    /// `pace: auto` for receive buffers that hold so many bytes.
    pub fn auto(room_bytes: u64) -> PaceSettings {
        PaceSettings { pace: Pace::Auto, floor: 1 << 20, room_bytes, first_bytes: FIRST_WINDOW_BYTES }
    }
}

/// Bytes that a datagram counts in windows.
pub fn cost(bytes: usize) -> u64 {
    bytes as u64 + WINDOW_DATAGRAM_BYTES
}

/// A receiver that is not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaggingReceiver {
    /// Since when.
    pub since: Instant,
    /// Whether it had ever reported.
    pub has_reported: bool,
}

/// What a member can take of this peer's multicasts.
#[derive(Clone, Debug)]
pub struct PacedReceiver {
    /// How much may have been sent altogether before it must be heard of again: it has no room for more.
    limit: u64,
    /// The same, because of what it asks for.
    resend_limit: u64,
    /// How far that had come when it last came on by much, and when that was.
    progress: (u64, Instant),
    /// The control datagram that carried its last report.
    reported: NewestControl,
    /// Its last report.
    report: Option<ReceiverReport>,
    left: Option<LaggingReceiver>,
    /// Until when it is waited for although its address is not proven; `None` if it is proven.
    unproven_until: Option<Instant>,
    /// How often it was left behind.
    times_left: u64,
    /// Time at which it was left behind last.
    left_at: Option<Instant>,
    /// Time before which it does not count again.
    rest_until: Instant,
    /// Datagrams that it has asked for, each counted once: the highest, and how many since the share was looked at.
    asked: (Dseq, u64),
    /// The part of its windows that is used, of [`SHARE_ALL`]: less while much of what is sent to it gets lost.
    share: u64,
    /// When that was looked at last, and the datagrams sent by then.
    shared: (Instant, u64),
}

impl PacedReceiver {
    /// One that has not reported yet, and whose address is not proven.
    pub fn new(now: Instant, pacer: &mut Pacer) -> PacedReceiver {
        PacedReceiver {
            limit: pacer.sent + pacer.settings.first_bytes,
            resend_limit: u64::MAX,
            progress: (0, now),
            reported: NewestControl::default(),
            report: None,
            left: None,
            unproven_until: Some(pacer.admit_newcomer(now)),
            times_left: 0,
            left_at: None,
            rest_until: now,
            asked: (Dseq(0), 0),
            share: SHARE_ALL,
            shared: (now, pacer.next),
        }
    }

    /// Its address is proven.
    pub fn on_proven(&mut self) {
        self.unproven_until = None;
    }

    /// Whether this peer waits for it: nobody may hold up a publisher in the name of others.
    fn is_waited_for(&self, now: Instant) -> bool {
        // Rule: pace-proven
        self.left.is_none() && self.unproven_until.is_none_or(|until| now < until)
    }

    /// Since when and why it is not waited for, if it was too slow.
    pub fn left_behind(&self) -> Option<LaggingReceiver> {
        self.left
    }

    /// How much may have been sent altogether before it must be heard of again, for whatever reason.
    fn least(&self) -> u64 {
        self.limit.min(self.resend_limit)
    }

    /// Whether it has let this peer come no further than that by now, in spite of all patience. Something has been held since
    /// `held`.
    fn is_below(&self, line: u64, now: Instant, held: Instant) -> bool {
        let is_stuck = || RESEND_PATIENCE <= now.since(self.progress.1.max(held));
        self.limit < line || self.resend_limit < line && is_stuck()
    }

    /// How often it was left behind so far.
    pub fn times_left(&self) -> u64 {
        self.times_left
    }

    /// What it reported last.
    pub fn report(&self) -> Option<&ReceiverReport> {
        self.report.as_ref()
    }

    /// It asks for datagrams again, of those up to `high` that were sent.
    pub fn on_asked(&mut self, ranges: &[Range], high: Dseq) {
        for range in ranges {
            let (first, last) = (range.first.0.max(self.asked.0.0 + 1), range.last.min(high));
            if first <= last.0 {
                self.asked = (last, self.asked.1 + (last.0 - first + 1));
            }
        }
    }

    /// Uses less of the window while more than a quarter of what is sent is asked for again: what lies between has less
    /// room than the receiver. Less loss than that is none that slower sending would help.
    fn update_share(&mut self, now: Instant, next: u64) {
        let sent = next - self.shared.1;
        if now.since(self.shared.0) < SHARE_TIME || sent < SHARE_DATAGRAMS {
            return;
        }
        self.share = match sent / 4 < self.asked.1 {
            true => (self.share * 3 / 4).max(SHARE_MIN),
            false => (self.share + SHARE_ALL / 16).min(SHARE_ALL),
        };
        (self.asked.1, self.shared) = (0, (now, next));
    }
}

/// What a report says that is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportEffect {
    /// The member is waited for from now on, and was not before.
    pub is_back: bool,
    /// How much may be sent must be reckoned anew: the member was, or is, the slowest.
    pub matters: bool,
}

/// While something is held: until when receivers are waited for, and how far each must have let this peer come by then.
#[derive(Clone, Copy, Debug)]
struct PacingWait {
    until: Instant,
    line: u64,
}

/// How much may be sent to the group, and what waits for that.
#[derive(Debug)]
pub struct Pacer {
    settings: PaceSettings,
    /// How far to be ahead of what is still asked for, at most.
    ahead_bytes: u64,
    /// Bytes sent so far, as windows count.
    sent: u64,
    /// When the last datagram was sent.
    sent_at: Option<Instant>,
    /// How much was sent up to and including each of the last datagrams.
    marks: VecDeque<u64>,
    /// The number of the datagram that is sent next.
    next: u64,
    /// How much may be sent altogether; and whether that is so because of what is asked for.
    allowance: u64,
    is_behind: bool,
    /// Until when, and up to how much, this peer does not know who is there.
    cold: Option<(Instant, u64)>,
    bucket: Option<TokenBucket>,
    /// Milliseconds during which newcomers are waited for before their addresses are proven, and until when the last of them is.
    proof_millis: TokenBucket,
    newcomer_until: Option<Instant>,
    wait: Option<PacingWait>,
    held: VecDeque<SealedDatagram>,
    held_bytes: usize,
    /// Since when something is held without a break.
    held_since: Option<Instant>,
}

impl Pacer {
    /// Nothing sent yet, by a peer that has just started. It keeps `resend_bytes` of what it sent to send it again.
    pub fn new(settings: &PaceSettings, resend_bytes: usize, now: Instant) -> Pacer {
        let cold = settings.first_bytes;
        Pacer { cold: Some((now + COLD_TIME, cold)), allowance: cold, ..Pacer::resumed(settings, resend_bytes, now) }
    }

    /// Nothing sent yet, by a peer that knows the others.
    pub fn resumed(settings: &PaceSettings, resend_bytes: usize, now: Instant) -> Pacer {
        // Half of it: the rest is for what is sent until the receiver has been heard, and for who is not waited for any more.
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
            is_behind: false,
            cold: None,
            bucket: matches!(settings.pace, Pace::Rate(_)).then(|| TokenBucket::full(now)),
            proof_millis: TokenBucket::full(now),
            newcomer_until: None,
            wait: None,
            held: VecDeque::new(),
            held_bytes: 0,
            held_since: None,
        };
        pacer.refill(now);
        pacer
    }

    /// A newcomer has room for a first window only. Says until when it is waited for before its address is proven. Time during which
    /// others are waited for anyway costs nothing.
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

    /// Whether receivers are heeded at all.
    pub fn is_on(&self) -> bool {
        self.settings.pace != Pace::Off
    }

    /// Whether a datagram may be sent now. It may go over the limit by itself, so that the smallest window lets one pass.
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

    /// Whether this peer shares the room of receive buffers, its own among them.
    pub fn is_active(&self, now: Instant) -> bool {
        self.sent_at.is_some_and(|at| now.since(at) <= ACTIVE)
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether so much is held that publishers should wait.
    pub fn is_long(&self) -> bool {
        HELD_BYTES_MAX <= self.held_bytes
    }

    /// The first datagram that is held, if there is one.
    pub fn first_held(&self) -> Option<&SealedDatagram> {
        self.held.front()
    }

    /// Keeps a datagram until it may be sent.
    pub fn hold(&mut self, now: Instant, sealed: SealedDatagram) {
        self.held_bytes += sealed.bytes.len();
        self.held.push_back(sealed);
        self.held_since.get_or_insert(now);
        if self.wait.is_none() {
            self.wait = Some(self.wait_from(now));
        }
    }

    /// Takes out the first datagram that is held, whether it may be sent or not.
    pub fn pop(&mut self) -> Option<SealedDatagram> {
        let sealed = self.held.pop_front()?;
        self.held_bytes -= sealed.bytes.len();
        if self.held.is_empty() {
            (self.wait, self.held_since) = (None, None);
        }
        Some(sealed)
    }

    /// The next datagram is sent.
    pub fn on_sent(&mut self, now: Instant, dseq: Dseq, bytes: usize) {
        assert_eq!(dseq.0, self.next, "datagrams leave in the order of their numbers");
        self.next += 1;
        self.sent_at = Some(now);
        self.on_resent(bytes);
        // What leaves out of turn, at a stop, may find too few.
        if let Some(bucket) = self.bucket.as_mut().filter(|bucket| bucket.has(bytes as u64)) {
            bucket.take(bytes as u64);
        }
        if self.marks.len() == MARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back(self.sent);
    }

    /// A datagram is sent to the group once more: it needs room like any other.
    pub fn on_resent(&mut self, bytes: usize) {
        self.sent += cost(bytes);
    }

    /// How much was sent up to a datagram; `None` if that was too long ago to know.
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

    /// A member reports in a control datagram of this number and uptime in milliseconds; `None` if that is old news.
    pub fn on_report(
        &mut self,
        now: Instant,
        receiver: &mut PacedReceiver,
        (number, uptime_ms): (u64, u32),
        report: ReceiverReport,
    ) -> Option<ReportEffect> {
        if !receiver.reported.admits(now, number, uptime_ms) || number <= receiver.reported.number() {
            return None;
        }
        receiver.update_share(now, self.next);
        receiver.reported.accept(now, number, uptime_ms);
        receiver.report = Some(report);
        let before = receiver.least();
        if let Some(sent) = self.sent_up_to(report.taken) {
            // Where there is room, there is some for a datagram.
            let window = (report.window / SHARE_ALL).saturating_mul(receiver.share).max(report.window.min(1));
            receiver.limit = sent.saturating_add(window);
        }
        self.on_awaited(now, receiver, report.awaited);
        let is_back = receiver.left.is_some() && receiver.rest_until <= now && self.sent < receiver.least();
        if is_back {
            receiver.left = None;
        }
        Some(ReportEffect { is_back, matters: is_back || before.min(receiver.least()) <= self.allowance })
    }

    /// A receiver still asks for what was sent from a datagram on: this peer must not send so much more that it has it no more.
    fn on_awaited(&mut self, now: Instant, receiver: &mut PacedReceiver, awaited: Option<Dseq>) {
        // Rule: pace-resends
        receiver.resend_limit = match awaited.filter(|dseq| dseq.0 < self.next) {
            // If that was too long ago to know, no more is sent at all.
            Some(dseq) => self.sent_up_to(Dseq(dseq.0 - 1)).unwrap_or(0).saturating_add(self.ahead_bytes),
            None => u64::MAX,
        };
        // What comes on by less than the floor, or to and fro, does not come on.
        let step = self.settings.floor.min(self.ahead_bytes / 16).max(1);
        let reached = receiver.resend_limit.min(self.sent.saturating_add(self.ahead_bytes));
        if receiver.progress.0.saturating_add(step) <= reached {
            receiver.progress = (reached, now);
        }
    }

    /// Reckons anew how much may be sent: what all `receivers` allow that are waited for.
    pub fn update_allowance<'a>(&mut self, now: Instant, receivers: impl Iterator<Item = &'a PacedReceiver>) {
        // Rule: pace
        self.cold = self.cold.filter(|(until, _)| now < *until);
        self.newcomer_until = self.newcomer_until.filter(|until| now < *until);
        let (mut room, mut resends) = (self.cold.map_or(u64::MAX, |(_, limit)| limit), u64::MAX);
        for receiver in receivers.filter(|receiver| receiver.is_waited_for(now)) {
            (room, resends) = (room.min(receiver.limit), resends.min(receiver.resend_limit));
        }
        (self.allowance, self.is_behind) = (room.min(resends), resends < room);
    }

    /// Whether something is held only because of what receivers still ask for.
    pub fn waits_for_resends(&self) -> bool {
        self.is_behind && !self.held.is_empty() && self.allowance <= self.sent
    }

    /// Whether `receiver` has held up this peer below the floor for too long. If so, it is left behind.
    pub fn exclude_if_lagging(&self, now: Instant, receiver: &mut PacedReceiver) -> bool {
        // Rule: left-behind
        let held = self.held_since.unwrap_or(now);
        let is_due = self.wait.is_some_and(|wait| wait.until <= now && receiver.is_below(wait.line, now, held));
        let is_slow = is_due && receiver.is_waited_for(now) && receiver.least() <= self.sent;
        if is_slow {
            receiver.left = Some(LaggingReceiver { since: now, has_reported: receiver.report.is_some() });
            receiver.times_left += 1;
            if receiver.left_at.replace(now).is_some_and(|at| now.since(at) <= REST_MEMORY) {
                receiver.rest_until = now + REST;
            }
        }
        is_slow
    }

    /// Begins to wait anew if the wait is over.
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
        PacingWait { until: now + PATIENCE, line: self.sent + bytes.max(1) }
    }

    /// When to look again, if something is held.
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
            // There are tokens for the largest datagram before any is sent.
            let burst = DATAGRAM_BYTES_MAX as u64 + (rate / BURSTS_PER_SECOND).max(BURST_BYTES_MIN);
            bucket.refill(now, rate, burst);
        }
    }
}
