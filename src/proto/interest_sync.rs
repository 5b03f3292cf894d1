//! State of one member's knowledge of this peer's advertised subscriptions, with its requests and answers (docs/wire.md
//! 10.7).

use crate::time::Instant;
use std::time::Duration;

/// Time after which this peer first requests a confirmation from a member that has not sent one.
const REQUEST_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time between two requests.
const REQUEST_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Delay of the first request for a flush, so that the record with the subscription leaves first.
const FLUSH_REQUEST_DELAY: Duration = Duration::from_millis(1);

/// Minimum time between two answers.
const ANSWER_INTERVAL: Duration = Duration::from_millis(4);

/// A member's confirmations of this peer's subscriptions, and the pending requests and answers to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterestSync {
    /// True if the member suppresses messages; `None` until it announces that.
    suppresses: Option<bool>,
    /// Highest version of this peer's subscriptions that the member has confirmed.
    confirmed_version: u64,
    /// Time of the next request, and the interval to the one after it.
    next_request: Option<(Instant, Duration)>,
    /// Time of the next answer about the member's own subscriptions, and time of the last answer.
    answer_at: Option<Instant>,
    answered: Option<Instant>,
    /// True after a wait for the member timed out. This peer does not wait for it again until it confirms a higher
    /// version.
    is_abandoned: bool,
    /// Version of the local subscriptions that a flush waits for, though the member suppresses nothing.
    flushed: u64,
    /// True after a flush waited for the member in vain. No flush waits for it until it confirms a higher version.
    is_unresponsive: bool,
}

impl InterestSync {
    /// Resets the state because this peer began a new epoch, of which no peer knows anything.
    pub fn on_own_epoch(&mut self) {
        *self = InterestSync { suppresses: self.suppresses, ..InterestSync::default() };
    }

    /// Handles the member's announcement that it suppresses messages or does not.
    pub fn on_control(&mut self, suppresses: bool) {
        self.suppresses = Some(suppresses);
        if !suppresses && self.flushed <= self.confirmed_version {
            self.next_request = None;
        }
    }

    /// Returns whether the member suppresses messages without subscribers; `None` until it announces that.
    pub fn suppresses(&self) -> Option<bool> {
        self.suppresses
    }

    /// Handles the member's confirmation of the subscriptions up to `confirmed_version`; `version` is that of their
    /// last change.
    pub fn on_confirmed(&mut self, confirmed_version: u64, version: u64) {
        if self.confirmed_version < confirmed_version || confirmed_version == version {
            (self.next_request, self.is_abandoned, self.is_unresponsive) = (None, false, false);
        }
        self.confirmed_version = confirmed_version;
    }

    /// Handles a confirmation of subscriptions that this peer never had: the member has forged ones, and thus confirms
    /// nothing. It gets an announcement of the renewed subscriptions at once.
    pub fn on_forgery(&mut self, now: Instant) {
        self.confirmed_version = 0;
        self.schedule_answer(now);
    }

    /// Stops waiting for the member to confirm the subscriptions.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// Returns the highest version of the subscriptions whose matching messages the member never suppresses; `version`
    /// is the last one. `default_suppresses` holds for a member that has not announced whether it suppresses. A member
    /// for which a wait timed out counts as not suppressing.
    pub fn confirmed(&self, version: u64, default_suppresses: bool) -> u64 {
        if self.suppresses.unwrap_or(default_suppresses) && !self.is_abandoned {
            self.confirmed_version
        } else {
            version
        }
    }

    /// Returns whether the member has yet to confirm this version, and is known to suppress or is awaited by a flush.
    pub fn is_awaited(&self, version: u64) -> bool {
        self.suppresses == Some(true) && self.confirmed_version < version || self.confirmed_version < self.flushed
    }

    /// Requests the confirmation of this version from a member that suppresses nothing. A suppressing member confirms
    /// without a request. A member that has never announced subscriptions may not implement them.
    pub fn flush(&mut self, now: Instant, version: u64) {
        if self.suppresses == Some(false) && !self.is_unresponsive && self.confirmed_version < version {
            self.flushed = version;
            self.next_request.get_or_insert((now + FLUSH_REQUEST_DELAY, REQUEST_INTERVAL / 2));
        }
    }

    /// Returns whether a flush of this version waits for the member.
    pub fn is_flushing(&self, version: u64) -> bool {
        self.confirmed_version < self.flushed && self.confirmed_version < version
    }

    /// Ends the flushes that wait for the member, which has not answered in time.
    pub fn end_flush(&mut self) {
        if self.confirmed_version < self.flushed {
            (self.flushed, self.is_unresponsive) = (0, true);
            if self.suppresses != Some(true) {
                self.next_request = None;
            }
        }
    }

    /// Schedules an answer about the member's own subscriptions.
    pub fn schedule_answer(&mut self, at: Instant) {
        let earliest = self.answered.map_or(at, |answered| at.max(answered + ANSWER_INTERVAL));
        self.answer_at.get_or_insert(earliest);
    }

    /// Returns whether [`InterestSync::take_due`] changes anything now.
    pub fn needs_tick(&self, now: Instant, version: u64) -> bool {
        self.lacks_request(version) || self.deadline().is_some_and(|at| at <= now)
    }

    /// Returns whether a confirmation is awaited, and no request for it is scheduled.
    fn lacks_request(&self, version: u64) -> bool {
        self.next_request.is_none() && self.is_awaited(version)
    }

    /// Returns whether a control message to the member is due now, to request or to answer.
    pub fn take_due(&mut self, now: Instant, version: u64) -> bool {
        if self.lacks_request(version) {
            self.next_request = Some((now + REQUEST_INTERVAL, REQUEST_INTERVAL));
        }
        let is_due = self.deadline().is_some_and(|at| at <= now);
        if is_due {
            (self.answer_at, self.answered) = (None, Some(now));
            if let Some((at, interval)) = self.next_request.as_mut().filter(|(at, _)| *at <= now) {
                *interval = (*interval * 2).min(REQUEST_INTERVAL_MAX);
                *at = now + *interval;
            }
        }
        is_due
    }

    /// Returns the time of the next control message to the member.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_request.map(|(at, _)| at).into_iter().chain(self.answer_at).min()
    }
}
