//! Detection of lost multicast of a member whose unicast still arrives (wire.md W111).
//!
//! A switch that wrongly believes the group to be empty drops multicast silently. The member's unicast continues and
//! reveals the loss, because the member sends both kinds at least once in a heartbeat interval.

use crate::message::Dseq;
use crate::time::Instant;
use std::time::Duration;

/// Time between two rejoins of the group while multicast does not arrive.
pub const REJOIN_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum number of datagrams sent between two unicast control messages, none of which arrived, that rules out chance.
/// With 8 heartbeats, a network that loses a third of all datagrams loses these once in ten million times.
const MISSED_MIN: u64 = 8;

/// Observed multicast of a member, and its unicast since then.
#[derive(Clone, Copy, Debug)]
pub struct MulticastLiveness {
    /// Time since which only unicast control messages arrived, one in each interval; or the time of the last multicast.
    since: Instant,
    /// Time of the last unicast control message.
    announced_at: Instant,
    /// Highest datagram announced by the first control message since then, if there was one.
    first: Option<Dseq>,
    /// Number of datagrams that the member sent between that control message and the last one.
    missed: u64,
    /// Time of the next rejoin of the group, while no multicast arrives.
    rejoin_at: Option<Instant>,
}

impl MulticastLiveness {
    /// Creates the state as after a multicast.
    pub fn new(now: Instant) -> MulticastLiveness {
        MulticastLiveness { since: now, announced_at: now, first: None, missed: 0, rejoin_at: None }
    }

    /// Returns whether the member's multicast does not arrive.
    pub fn is_dead(&self) -> bool {
        self.rejoin_at.is_some()
    }

    /// Returns whether the member has sent this peer no unicast control message for 3.5 heartbeats, or none since the
    /// first contact. A member sends one per heartbeat to each peer that it hears (wire.md W47).
    pub fn is_unicast_absent(&self, now: Instant, heartbeat: Duration) -> bool {
        self.announced_at + heartbeat * 7 / 2 <= now
    }

    /// Handles a multicast of the member. Returns true if multicast was dead before.
    pub fn on_multicast(&mut self, now: Instant) -> bool {
        let was_dead = self.is_dead();
        *self = MulticastLiveness { announced_at: self.announced_at, ..MulticastLiveness::new(now) };
        was_dead
    }

    /// Handles a unicast control message of the member, which announces `high` as its highest datagram.
    pub fn on_control(&mut self, now: Instant, heartbeat: Duration, high: Dseq) {
        // Rule: blackhole
        // If unicast control messages were missing as well, the member could not be heard at all.
        if self.announced_at + heartbeat * 3 / 2 < now {
            (self.since, self.first, self.missed) = (now, None, 0);
        }
        self.announced_at = now;
        let first = *self.first.get_or_insert(high);
        self.missed = high.0.saturating_sub(first.0);
    }

    /// Returns the time at which the member's multicast counts as dead; once dead, the time of the next rejoin.
    pub fn deadline(&self, heartbeat: Duration) -> Option<Instant> {
        if self.rejoin_at.is_some() {
            return self.rejoin_at;
        }
        // Two control messages, about an interval apart, with many datagrams in between.
        if MISSED_MIN <= self.missed {
            return Some(self.since + heartbeat * 3 / 4);
        }
        // One heartbeat may be lost, and the next one late.
        (self.since + heartbeat <= self.announced_at).then(|| self.since + heartbeat * 9 / 4)
    }

    /// Returns whether the group should be joined anew now.
    pub fn take_due(&mut self, now: Instant, heartbeat: Duration) -> bool {
        let is_due = self.deadline(heartbeat).is_some_and(|deadline| deadline <= now);
        if is_due {
            self.rejoin_at = Some(now + REJOIN_INTERVAL);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Replays a story of multicasts `m`, control messages `c`, and control messages with a highest datagram `c:9`,
    /// each with its time. Compares the rejoin times, and the times of later multicasts.
    fn check(story: &str, expected: &str) {
        let mut liveness = MulticastLiveness::new(at(0));
        let mut reports = Vec::new();
        let mut high = 0;
        let mut events = story.split_whitespace().map(|event| {
            let (kind, millis) = event.split_once('@').unwrap();
            (kind, millis.parse::<u64>().unwrap())
        });
        let mut next = events.next();
        let mut millis = 0;
        while next.is_some() {
            while let Some((kind, _)) = next.filter(|(_, when)| *when == millis) {
                if kind == "m" {
                    let is_back = liveness.on_multicast(at(millis));
                    reports.extend(is_back.then(|| format!("back {millis}")));
                } else {
                    high = kind.split_once(':').map_or(high, |(_, high)| high.parse().unwrap());
                    liveness.on_control(at(millis), BEAT, Dseq(high));
                }
                next = events.next();
            }
            if liveness.take_due(at(millis), BEAT) {
                reports.push(millis.to_string());
            }
            millis += 1;
        }
        assert_eq!(reports.join(", "), expected, "{story}");
    }

    /// Proves: W111, blackhole
    #[test]
    fn missing_multicast_is_reported_periodically() {
        check("c@500 c@1500 c@2500 c@3500 c@4500 c@5500 c@6500 c@7500 m@8000 c@8500", "2250, 7250, back 8000");
        // While the member publishes, the second control message is enough.
        check("c:10@500 c:510@1500 c:1010@2500", "1500");
        check("m@900 c:10@1000 c:17@2000 c:30@3000", "3000");
    }

    #[test]
    fn unicast_is_absent_after_some_heartbeats() {
        let mut liveness = MulticastLiveness::new(at(1000));
        assert!(!liveness.is_unicast_absent(at(4499), BEAT) && liveness.is_unicast_absent(at(4500), BEAT));
        liveness.on_control(at(5000), BEAT, Dseq(1));
        liveness.on_multicast(at(7000));
        assert!(!liveness.is_unicast_absent(at(8499), BEAT) && liveness.is_unicast_absent(at(8500), BEAT));
    }

    #[test]
    fn single_loss_or_full_silence_is_not_reported() {
        check("c@500 c@1500 m@2100 c@2500 m@3100 c@3500 c@4500 m@5200 c@5500", "");
        // A partition, after which a control message arrives first; a pause of this peer; a publisher that crashed.
        check("m@900 c@1000 c@4500 m@5000 c@5500", "");
        check("m@900 c:5@1000 c:900@6000 m@6000 c:901@7000 m@7200 m@9000", "");
        check("m@900 c@1000 m@9000 c@9000 m@9900", "");
        // Unscheduled control messages, with much data in flight.
        check("m@900 c:5@1000 c:50@1001 c:90@1002 m@1003 c:200@2000 m@2001 c@3000", "");
    }
}
