//! The times at which a member needs attention.

use super::{Assignments, LAST_REPORT_TIME, Member};
use crate::proto::stats::MemberState;
use crate::time::Instant;
use std::time::Duration;

impl Member {
    /// Returns the time at which the next gap of the peer's streams is settled; `None` while the peer is not heard.
    pub fn settle_deadline(&self) -> Option<Instant> {
        let until = self.awaited_until();
        self.sides().filter_map(|recv| recv.settle_deadline(until)).min()
    }

    /// Returns the time of the next request to the peer.
    pub fn request_deadline(&self) -> Option<Instant> {
        let due = self.bcast.request_deadline().into_iter().chain(self.ptp.request_deadline()).min();
        // A silent peer cannot answer. Requests wait until it is heard again, as the recovery time does.
        due.filter(|at| self.state != MemberState::Crashed && *at <= self.awaited_until())
    }

    /// Returns the time of the member's next timer, apart from its streams and advisories.
    pub fn deadline(&self, forget: Duration) -> Instant {
        match (self.state, self.ended) {
            (MemberState::Up, _) => {
                let own = self.silent_at().min(self.heartbeat_timer.deadline());
                self.liveness.deadline(self.heartbeat).map_or(own, |heard| heard.min(own))
            }
            (MemberState::Silent, _) => (self.last_heard + forget).min(self.heartbeat_timer.deadline()),
            (MemberState::Left, Some(ended)) if self.assigned.iter().any(Assignments::is_waiting) => {
                ended + LAST_REPORT_TIME
            }
            (_, ended) => ended.unwrap_or(self.last_heard) + forget,
        }
    }

    /// Returns the time at which the member needs attention next, of a peer that forgets members after `forget` and has
    /// this number of receivers. It depends on nothing else but the member.
    pub fn next_due(&self, forget: Duration, receivers: usize) -> Instant {
        let throttles = self.throttles.iter().filter_map(|throttle| throttle.deadline());
        let question = self.has_questions_waiting().then_some(self.answers_due);
        [self.settle_deadline(), self.request_deadline(), self.receive_progress.deadline(receivers), question]
            .into_iter()
            .flatten()
            .chain(throttles)
            .fold(self.deadline(forget), Instant::min)
    }

    /// Returns the same as [`Member::next_due`], or the time of the next control message to the member about
    /// subscriptions, if that is earlier.
    pub fn next_due_with_interest(&self, forget: Duration, receivers: usize) -> Instant {
        let interest = self.interest_sync.deadline().filter(|_| self.state == MemberState::Up);
        interest.into_iter().fold(self.next_due(forget, receivers), Instant::min)
    }
}
