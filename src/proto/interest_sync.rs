//! Whether one member knows what clients here subscribe to, and when it is asked and answered about that (docs/wire.md 10.7).

use crate::time::Instant;
use std::time::Duration;

/// Who does not say that it knows the subscriptions here is asked after this, at first.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
/// The longest time between two questions.
const ASK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Delay of the first question for a flush: the news of the subscription leaves before it.
const FLUSH_ASK_DELAY: Duration = Duration::from_millis(1);

/// The least time between two answers.
const ANSWER_INTERVAL: Duration = Duration::from_millis(4);

/// What a member has said of knowing this peer's subscriptions, and what is to be said to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterestSync {
    /// Whether it spares messages, once it has said so.
    suppresses: Option<bool>,
    /// Up to which version it knows this peer's subscriptions.
    known: u64,
    /// When it is asked next, and how long after that again.
    ask: Option<(Instant, Duration)>,
    /// When it is told what is known of its own, and when it was told so last.
    answer_at: Option<Instant>,
    answered: Option<Instant>,
    /// It was waited for in vain, and is not until it says that it knows more.
    is_abandoned: bool,
    /// Version of the subscriptions here that a flush waits for, though the member suppresses nothing.
    flushed: u64,
    /// Whether a flush waited for it in vain. No flush waits for it until it says that it knows more.
    is_unresponsive: bool,
}

impl InterestSync {
    /// This peer began a new epoch, of which nobody knows anything.
    pub fn on_own_epoch(&mut self) {
        *self = InterestSync { suppresses: self.suppresses, ..InterestSync::default() };
    }

    /// The member says whether it spares messages.
    pub fn on_control(&mut self, suppresses: bool) {
        self.suppresses = Some(suppresses);
        if !suppresses && self.flushed <= self.known {
            self.ask = None;
        }
    }

    /// Whether the member suppresses messages that nobody wants, once it has said so.
    pub fn suppresses(&self) -> Option<bool> {
        self.suppresses
    }

    /// The member says up to which version it knows the subscriptions; `version` is that of the last change of them.
    pub fn on_confirmed(&mut self, known: u64, version: u64) {
        if self.known < known || known == version {
            (self.ask, self.is_abandoned, self.is_unresponsive) = (None, false, false);
        }
        self.known = known;
    }

    /// Somebody has waited long enough for it to know the subscriptions.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// Up to which version of the subscriptions, the last of which is `version`, nothing that they match is spared by the member;
    /// one that has not said whether it spares messages is `taken_to`, and one that was waited for in vain is not.
    pub fn confirmed(&self, version: u64, taken_to: bool) -> u64 {
        if self.suppresses.unwrap_or(taken_to) && !self.is_abandoned { self.known } else { version }
    }

    /// Whether it has yet to know this version, and is known to spare messages or waited for by a flush.
    pub fn is_awaited(&self, version: u64) -> bool {
        self.suppresses == Some(true) && self.known < version || self.known < self.flushed
    }

    /// Asks a member that suppresses nothing to say that it knows this version. One that suppresses says so unasked, and one that
    /// has never mentioned subscriptions may not implement them.
    pub fn flush(&mut self, now: Instant, version: u64) {
        if self.suppresses == Some(false) && !self.is_unresponsive && self.known < version {
            self.flushed = version;
            self.ask.get_or_insert((now + FLUSH_ASK_DELAY, ASK_INTERVAL / 2));
        }
    }

    /// Returns whether a flush of this version waits for it.
    pub fn is_flushing(&self, version: u64) -> bool {
        self.known < self.flushed && self.known < version
    }

    /// Ends the waiting of flushes for a member that has not answered in time.
    pub fn end_flush(&mut self) {
        if self.known < self.flushed {
            (self.flushed, self.is_unresponsive) = (0, true);
            if self.suppresses != Some(true) {
                self.ask = None;
            }
        }
    }

    /// It is to be told what is known of its own subscriptions.
    pub fn schedule_answer(&mut self, at: Instant) {
        let earliest = self.answered.map_or(at, |answered| at.max(answered + ANSWER_INTERVAL));
        self.answer_at.get_or_insert(earliest);
    }

    /// Whether a word is to be said to it now, to ask or to answer.
    pub fn take_due(&mut self, now: Instant, version: u64) -> bool {
        if self.ask.is_none() && self.is_awaited(version) {
            self.ask = Some((now + ASK_INTERVAL, ASK_INTERVAL));
        }
        let is_due = self.deadline().is_some_and(|at| at <= now);
        if is_due {
            (self.answer_at, self.answered) = (None, Some(now));
            if let Some((at, interval)) = self.ask.as_mut().filter(|(at, _)| *at <= now) {
                *interval = (*interval * 2).min(ASK_INTERVAL_MAX);
                *at = now + *interval;
            }
        }
        is_due
    }

    /// When a word is to be said.
    pub fn deadline(&self) -> Option<Instant> {
        self.ask.map(|(at, _)| at).into_iter().chain(self.answer_at).min()
    }
}
